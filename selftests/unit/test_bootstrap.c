// SPDX-License-Identifier: MIT
/* Members of bootstraps as threads: exchanges, deadlines, aborts, losses, successors. */
#include <sys/stat.h>

#include "boot.h"

/* A member that a thread is, and what it was told. */
struct peer {
	pthread_t thread;
	struct npuwin_bootstrap_attr attr;
	struct npuwin_bootstrap *bs;
	size_t bytes;
	int rc;
	struct npuwin_error err;
	const char *wrong;
};

static void start(struct peer *peer, void *(*run)(void *peer))
{
	assert_int_equal(pthread_create(&peer->thread, NULL, run, peer), 0);
}

static void join(struct peer *peer)
{
	assert_int_equal(pthread_join(peer->thread, NULL), 0);
}

static void connect_peer(struct peer *peer, const char *address, uint32_t nranks, uint32_t rank)
{
	peer->attr = make_attr(address, nranks, rank);
	if (npuwin_bootstrap_connect(&peer->attr, &peer->bs, &peer->err) || !peer->bs)
		fail_msg("rank %u: %s", rank, peer->err.text);
	assert_int_equal(peer->err.code, 0);
}

static void assert_error(const struct peer *peer, int code, int32_t about, const char *words)
{
	if (peer->rc != code || peer->err.code != code || peer->err.peer != about ||
	    !strstr(peer->err.text, words))
		fail_msg("%d, about %d: \"%s\", want %d, about %d, with \"%s\"", peer->rc,
			 peer->err.peer, peer->err.text, code, about, words);
}

/* Sizes from one byte to all, and barriers between them. */
static void *exchange_all(void *arg)
{
	static const size_t sizes[] = { 1, 8, 72, 4096, NPUWIN_BOOTSTRAP_MAX_BYTES, 3 };
	struct peer *peer = arg;
	size_t i;

	if (!peer->bs)
		peer->rc = npuwin_bootstrap_connect(&peer->attr, &peer->bs, &peer->err);
	if (!peer->rc && !peer->bs)
		peer->wrong = "no member";
	for (i = 0; i < ARRAY_SIZE(sizes) && !peer->rc && !peer->wrong; i++) {
		peer->wrong = exchange(peer->bs, (uint32_t)i, sizes[i]);
		peer->rc = barrier(peer->bs, npuwin_deadline_ms(60000), &peer->err);
	}
	return NULL;
}

static void exchange_peers(struct peer *peers, uint32_t n)
{
	uint32_t r;

	for (r = 0; r < n; r++)
		start(&peers[r], exchange_all);
	for (r = 0; r < n; r++)
		join(&peers[r]);
	for (r = 0; r < n; r++)
		if (peers[r].rc || peers[r].wrong)
			fail_msg("rank %u: %s", r,
				 peers[r].rc ? peers[r].err.text : peers[r].wrong);
	/* The last one first, and then from the one without which there is none. */
	npuwin_bootstrap_free(peers[n - 1].bs);
	for (r = 0; r + 1 < n; r++)
		npuwin_bootstrap_free(peers[r].bs);
}

static void test_local(void **state)
{
	static const uint32_t counts[] = { 1, 2, 17 };
	struct npuwin_bootstrap *all[17];
	struct npuwin_error err;
	unsigned int fds = open_fds();
	size_t i;
	uint32_t r;

	for (i = 0; i < ARRAY_SIZE(counts); i++) {
		struct peer peers[17] = { 0 };

		assert_int_equal(npuwin_bootstrap_local(counts[i], all, &err), 0);
		for (r = 0; r < counts[i]; r++) {
			assert_int_equal(all[r]->rank, r);
			assert_int_equal(all[r]->nranks, counts[i]);
			peers[r].bs = all[r];
		}
		exchange_peers(peers, counts[i]);
	}
	assert_int_equal(open_fds(), fds);
}

static void test_connect(void **state)
{
	unsigned int fds = open_fds();
	char address[100];
	uint32_t r, n;
	int where;

	for (where = TCP; where < PLACES; where++) {
		for (n = 1; n <= 16; n *= 4) {
			struct peer peers[16] = { 0 };

			make_address(address, sizeof(address), where);
			for (r = 0; r < n; r++)
				peers[r].attr = make_attr(address, n, r);
			exchange_peers(peers, n);
			if (where == UNIX_PATH)
				assert_int_equal(access(address + 5, F_OK), -1);
		}
	}
	assert_int_equal(open_fds(), fds);
}

static void test_many(void **state)
{
	struct peer peers[MAX_MEMBERS] = { 0 };
	char address[100];
	uint32_t r;

	make_address(address, sizeof(address), TCP);
	for (r = 0; r < MAX_MEMBERS; r++)
		peers[r].attr = make_attr(address, MAX_MEMBERS, r);
	exchange_peers(peers, MAX_MEMBERS);
}

/* Where members are of one user there can be a secret, or not; but the same for all. */
static void test_no_secret(void **state)
{
	struct peer peers[2] = { 0 }, other = { 0 };
	char address[100];
	uint32_t r;

	make_address(address, sizeof(address), UNIX_ABSTRACT);
	for (r = 0; r < 2; r++) {
		peers[r].attr = make_attr(address, 2, r);
		peers[r].attr.secret = NULL;
		peers[r].attr.secret_bytes = 0;
	}
	assert_int_equal(npuwin_bootstrap_connect(&peers[0].attr, &peers[0].bs, NULL), 0);
	other.attr = make_attr(address, 2, 1);
	other.rc = npuwin_bootstrap_connect(&other.attr, &other.bs, &other.err);
	assert_error(&other, -EACCES, 0, "the secret is not the one that rank 0 has");
	assert_null(other.bs);
	exchange_peers(peers, 2);
}

static void test_values(void **state)
{
	static const char *const bad[] = {
		"", "tcp", "tcp:", "tcp:host", "tcp:127.0.0.1:", "tcp:127.0.0.1:0",
		"tcp:127.0.0.1:65536", "tcp:127.0.0.1:7x", "tcp::7000", "tcp:::1:7000", "tcp:[]:7",
		"unix:", "unix:relative", "unix:@", "http://127.0.0.1:80", "tcp:no.such.host.invalid:7",
		"tcp:999.1.1.1:80",
	};
	struct peer peer = { 0 };
	struct npuwin_bootstrap *none[1];
	char longest[200];
	size_t i;

	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		peer.attr = make_attr(bad[i], 2, 1);
		peer.rc = npuwin_bootstrap_connect(&peer.attr, &peer.bs, &peer.err);
		assert_error(&peer, -EINVAL, NPUWIN_NOBODY, bad[i]);
		assert_null(peer.bs);
	}
	memset(longest, 'x', sizeof(longest));
	memcpy(longest, "unix:/", 6);
	longest[sizeof(longest) - 1] = 0;
	peer.attr = make_attr(longest, 2, 1);
	peer.rc = npuwin_bootstrap_connect(&peer.attr, &peer.bs, &peer.err);
	assert_error(&peer, -EINVAL, NPUWIN_NOBODY, "at most 107 bytes");
	peer.attr = make_attr(NULL, 2, 1);
	assert_int_equal(npuwin_bootstrap_connect(&peer.attr, &peer.bs, NULL), -EINVAL);

	peer.attr = make_attr("tcp:127.0.0.1:7000", 0, 0);
	peer.rc = npuwin_bootstrap_connect(&peer.attr, &peer.bs, &peer.err);
	assert_error(&peer, -EINVAL, NPUWIN_NOBODY, "nranks is 0, not in 1..1024");
	peer.attr = make_attr("tcp:127.0.0.1:7000", 2, 2);
	peer.rc = npuwin_bootstrap_connect(&peer.attr, &peer.bs, &peer.err);
	assert_error(&peer, -EINVAL, NPUWIN_NOBODY, "rank 2 is not in 0..1");
	peer.attr = make_attr("tcp:127.0.0.1:7000", 2, 1);
	peer.attr.secret_bytes = 15;
	peer.rc = npuwin_bootstrap_connect(&peer.attr, &peer.bs, &peer.err);
	assert_error(&peer, -EINVAL, NPUWIN_NOBODY, "the secret has 15 bytes, not 16..4096");
	peer.attr.secret_bytes = 0;
	peer.rc = npuwin_bootstrap_connect(&peer.attr, &peer.bs, &peer.err);
	assert_error(&peer, -EINVAL, NPUWIN_NOBODY, "tcp: wants a secret");
	peer.attr.secret = NULL;
	peer.attr.secret_bytes = 20;
	peer.rc = npuwin_bootstrap_connect(&peer.attr, &peer.bs, &peer.err);
	assert_error(&peer, -EINVAL, NPUWIN_NOBODY, "the secret is NULL, but has 20 bytes");
	peer.attr = make_attr("tcp:127.0.0.1:7000", 2, 1);
	peer.attr.reserved[3] = 1;
	peer.rc = npuwin_bootstrap_connect(&peer.attr, &peer.bs, &peer.err);
	assert_error(&peer, -EINVAL, NPUWIN_NOBODY, "reserved[3] is 0x1, want 0");
	peer.rc = npuwin_bootstrap_local(1025, none, &peer.err);
	assert_error(&peer, -EINVAL, NPUWIN_NOBODY, "nranks is 1025");
	npuwin_bootstrap_free(NULL);
}

static void test_sizes(void **state)
{
	struct peer peer = { 0 };
	char address[100];
	uint8_t byte = 0;

	make_address(address, sizeof(address), TCP);
	connect_peer(&peer, address, 1, 0);
	peer.rc = gather(peer.bs, &byte, &byte, 0, NPUWIN_NO_DEADLINE, &peer.err);
	assert_error(&peer, -EINVAL, NPUWIN_NOBODY, "allgather of 0 bytes, not in 1..16384");
	peer.rc = gather(peer.bs, &byte, &byte, 16385, NPUWIN_NO_DEADLINE, &peer.err);
	assert_error(&peer, -EINVAL, NPUWIN_NOBODY, "allgather of 16385 bytes");
	assert_null(exchange(peer.bs, 1, 100));
	npuwin_bootstrap_free(peer.bs);
}

/* Two that listen at one place; and one that takes the place of a file that nobody owns. */
static void test_in_use(void **state)
{
	struct peer first = { 0 }, second = { 0 };
	struct sockaddr_storage stale = { .ss_family = AF_UNIX };
	char address[100];
	struct stat st;
	int where, fd;

	for (where = TCP; where < PLACES; where++) {
		make_address(address, sizeof(address), where);
		connect_peer(&first, address, 1, 0);
		second.attr = make_attr(address, 1, 0);
		second.rc = npuwin_bootstrap_connect(&second.attr, &second.bs, &second.err);
		assert_error(&second, -EADDRINUSE, NPUWIN_NOBODY, "rank 0 cannot listen there");
		if (where == UNIX_PATH)
			assert_int_equal(stat(address + 5, &st), 0);
		npuwin_bootstrap_free(first.bs);
		/* At once, whatever is left of connections. */
		connect_peer(&first, address, 1, 0);
		npuwin_bootstrap_free(first.bs);
	}
	make_address(address, sizeof(address), UNIX_PATH);
	strcpy(((struct sockaddr *)&stale)->sa_data, address + 5);
	fd = socket(AF_UNIX, SOCK_STREAM, 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&stale, sizeof(sa_family_t) +
			      (socklen_t)strlen(address + 5) + 1), 0);
	close(fd);
	connect_peer(&first, address, 1, 0);
	npuwin_bootstrap_free(first.bs);
	/* What is no socket is left alone. */
	fclose(fopen(address + 5, "w"));
	second.attr = make_attr(address, 1, 0);
	second.rc = npuwin_bootstrap_connect(&second.attr, &second.bs, &second.err);
	assert_error(&second, -EADDRINUSE, NPUWIN_NOBODY, address);
	assert_int_equal(unlink(address + 5), 0);
}

static void test_nobody(void **state)
{
	struct peer peer = { 0 };
	int64_t until = npuwin_deadline_ms(100);
	char address[100];
	int where;

	for (where = TCP; where < PLACES; where++) {
		make_address(address, sizeof(address), where);
		peer.attr = make_attr(address, 2, 1);
		peer.attr.deadline_ns = until;
		peer.rc = npuwin_bootstrap_connect(&peer.attr, &peer.bs, &peer.err);
		assert_error(&peer, -ETIMEDOUT, 0, "rank 0 does not listen there");
		assert_non_null(strstr(peer.err.text, address));
		assert_true(npuwin_now() >= until);
	}
}

static void test_differ(void **state)
{
	struct peer first = { 0 }, peer = { 0 }, right = { 0 };
	char address[100];

	make_address(address, sizeof(address), TCP);
	connect_peer(&first, address, 2, 0);
	peer.attr = make_attr(address, 2, 1);
	peer.attr.secret = other_secret;
	peer.attr.secret_bytes = sizeof(other_secret);
	peer.rc = npuwin_bootstrap_connect(&peer.attr, &peer.bs, &peer.err);
	assert_error(&peer, -EACCES, 0, "the secret is not the one that rank 0 has");
	/* The same text, shorter. */
	peer.attr.secret = secret;
	peer.attr.secret_bytes = sizeof(secret) - 1;
	peer.rc = npuwin_bootstrap_connect(&peer.attr, &peer.bs, &peer.err);
	assert_error(&peer, -EACCES, 0, "the secret");
	/* Rank 0 knows who it may have been that does not come. */
	peer.rc = barrier(first.bs, npuwin_deadline_ms(50), &peer.err);
	assert_error(&peer, -ETIMEDOUT, 1, "rank 1 of 2 has not connected");
	assert_non_null(strstr(peer.err.text, "says it is rank 1 and does not know the secret"));
	peer.attr = make_attr(address, 3, 1);
	peer.rc = npuwin_bootstrap_connect(&peer.attr, &peer.bs, &peer.err);
	assert_error(&peer, -EINVAL, 0, "nranks is 3, but rank 0 has 2");
	peer.attr = make_attr(address, 3, 2);
	peer.rc = npuwin_bootstrap_connect(&peer.attr, &peer.bs, &peer.err);
	assert_error(&peer, -EINVAL, 0, "nranks is 3, but rank 0 has 2");

	connect_peer(&right, address, 2, 1);
	peer.attr = make_attr(address, 2, 1);
	peer.attr.deadline_ns = npuwin_deadline_ms(2000);
	peer.rc = npuwin_bootstrap_connect(&peer.attr, &peer.bs, &peer.err);
	assert_error(&peer, -EBUSY, 1, "rank 1 is connected already");
	peer = right;
	start(&peer, exchange_all);
	assert_null(exchange(first.bs, 0, 1));
	/* It goes on with a barrier, which this is not. */
	peer.attr = first.attr;
	first.rc = gather(first.bs, "x", address, 1, npuwin_deadline_ms(60000), &first.err);
	join(&peer);
	assert_error(&first, -EPROTO, 1, "calls barrier");
	assert_error(&peer, -EPROTO, 0, "calls allgather of 1 bytes");
	npuwin_bootstrap_free(right.bs);
	npuwin_bootstrap_free(first.bs);
}

static void *gather_one(void *arg)
{
	struct peer *peer = arg;
	uint8_t all[MAX_MEMBERS], mine = given(peer->bs->rank, 0, 0);

	peer->rc = gather(peer->bs, &mine, all, 1, peer->attr.deadline_ns, &peer->err);
	return NULL;
}

static void *enter_barrier(void *arg)
{
	struct peer *peer = arg;

	peer->rc = barrier(peer->bs, peer->attr.deadline_ns, &peer->err);
	return NULL;
}

static void connect_all(struct peer *peers, enum where where, char *address, uint32_t n)
{
	uint32_t r;

	make_address(address, 100, where);
	memset(peers, 0, n * sizeof(*peers));
	for (r = 0; r < n; r++)
		connect_peer(&peers[r], address, n, r);
}

static void free_all(struct peer *peers, uint32_t n)
{
	while (n--)
		npuwin_bootstrap_free(peers[n].bs);
}

/* All but one; then it comes, and who has given up calls again. */
static void test_deadline(void **state)
{
	struct peer peers[4];
	char address[100];
	int64_t until;
	uint32_t r;

	connect_all(peers, TCP, address, 4);
	/* Long enough for all to have called by then, however busy the machine is. */
	until = npuwin_deadline_ms(3000);
	for (r = 0; r < 4; r++) {
		peers[r].attr.deadline_ns = until;
		if (r != 2)
			start(&peers[r], gather_one);
	}
	for (r = 0; r < 4; r++)
		if (r != 2)
			join(&peers[r]);
	assert_true(npuwin_now() >= until);
	for (r = 0; r < 4; r++) {
		if (r == 2)
			continue;
		assert_error(&peers[r], -ETIMEDOUT, 2, "rank 2 of 4 has not called allgather");
		assert_int_equal(peers[r].err.rank, r);
	}
	/* What has passed is no time to wait at all. */
	peers[0].rc = barrier(peers[0].bs, 0, &peers[0].err);
	assert_error(&peers[0], -ETIMEDOUT, 1, "rank 1 of 4 has not called barrier");
	peers[0].rc = barrier(peers[0].bs, -5, &peers[0].err);
	assert_error(&peers[0], -ETIMEDOUT, 1, "rank 1 of 4 has not called barrier");
	for (r = 0; r < 4; r++)
		peers[r].rc = 0;
	exchange_peers(peers, 4);
}

/* Those who wait go on when one comes in the place of the one that was lost. */
static void test_successor(void **state)
{
	struct peer peers[4];
	char address[100];
	uint32_t r, k;
	int where;

	for (where = TCP; where < PLACES; where++) {
		connect_all(peers, where, address, 4);
		/* Before it has taken part in anything, and after. */
		for (k = 0; k < 2; k++) {
			for (r = 0; r < 4; r++) {
				peers[r].attr.deadline_ns = npuwin_deadline_ms(60000);
				if (r != 2)
					start(&peers[r], gather_one);
			}
			npuwin_bootstrap_free(peers[2].bs);
			connect_peer(&peers[2], address, 4, 2);
			start(&peers[2], gather_one);
			for (r = 0; r < 4; r++) {
				join(&peers[r]);
				if (peers[r].rc)
					fail_msg("rank %u: %s", r, peers[r].err.text);
			}
		}
		for (r = 0; r < 4; r++)
			peers[r].rc = 0;
		exchange_peers(peers, 4);
	}
}

static void *come_late(void *arg)
{
	struct peer *peer = arg;

	peer->rc = npuwin_bootstrap_connect(&peer->attr, &peer->bs, &peer->err);
	return NULL;
}

/*
 * Of a host that lost its power rank 0 learns late, and so long its ranks are taken: who comes
 * in the place of one tries until its own deadline. The predecessor stays for longer than any
 * pause of the other's; that the other has tried meanwhile is likely, and not needed.
 */
static void test_taken(void **state)
{
	struct peer peers[2], next = { 0 };
	char address[100];
	int where;

	for (where = TCP; where < PLACES; where++) {
		connect_all(peers, where, address, 2);
		next.attr = make_attr(address, 2, 1);
		start(&next, come_late);
		net_pause(NPUWIN_NO_DEADLINE, 1500000000);
		npuwin_bootstrap_free(peers[1].bs);
		join(&next);
		if (next.rc)
			fail_msg("the successor: %s", next.err.text);
		peers[1] = next;
		exchange_peers(peers, 2);
	}
}

/* Lost while its call waits: what it gave is not what its successor gives. */
static void test_withdrawn(void **state)
{
	struct boot_channel *ch = calloc(1, sizeof(*ch));
	struct boot_secret known;
	uint8_t call[BOOT_CALL_ARGS + 1] = { BOOT_ALLGATHER };
	struct npuwin_bootstrap_attr attr;
	struct peer peers[2] = { 0 };
	struct boot_address place;
	char address[100];
	int why;

	make_address(address, sizeof(address), TCP);
	connect_peer(&peers[0], address, 2, 0);
	attr = make_attr(address, 2, 1);
	auth_secret(&known, secret, sizeof(secret));
	assert_int_equal(net_parse(address, &place, NULL), 0);
	ch->fd = net_connect(&place, address, attr.deadline_ns, &why, NULL);
	assert_true(ch->fd >= 0);
	assert_int_equal(auth_member(ch, &attr, &known, attr.deadline_ns, NULL), 0);
	boot_put64(call + 8, NPUWIN_NO_DEADLINE);
	call[BOOT_CALL_ARGS] = 99;
	channel_put(ch, &(struct boot_message) {
		.type = BOOT_CALL, .rank = 1, .nranks = 2, .sequence = 1,
		.length = sizeof(call), .payload = call,
	});
	assert_int_equal(channel_send(ch), 0);
	channel_close(ch);
	free(ch);

	connect_peer(&peers[1], address, 2, 1);
	exchange_peers(peers, 2);
}

/* A barrier is of those who exchanged before: it is for nothing without one of them. */
static void test_barrier_lost(void **state)
{
	struct peer peers[3];
	char address[100];
	uint32_t r;

	connect_all(peers, UNIX_ABSTRACT, address, 3);
	for (r = 0; r < 3; r++)
		start(&peers[r], gather_one);
	for (r = 0; r < 3; r++) {
		join(&peers[r]);
		assert_int_equal(peers[r].rc, 0);
	}
	/* One waits when it happens, and one comes afterwards. */
	peers[0].attr.deadline_ns = NPUWIN_NO_DEADLINE;
	start(&peers[0], enter_barrier);
	npuwin_bootstrap_free(peers[2].bs);
	join(&peers[0]);
	assert_error(&peers[0], -EPIPE, 2, "rank 2 of 3 is gone");
	enter_barrier(&peers[1]);
	assert_error(&peers[1], -EPIPE, 2, "rank 2 of 3 is gone");
	connect_peer(&peers[2], address, 3, 2);
	for (r = 0; r < 3; r++)
		peers[r].rc = 0;
	exchange_peers(peers, 3);
}

static void test_abort(void **state)
{
	struct peer peers[4], late = { 0 };
	char address[100];
	uint32_t r;

	connect_all(peers, TCP, address, 3);
	peers[0].attr.deadline_ns = NPUWIN_NO_DEADLINE;
	peers[1].attr.deadline_ns = NPUWIN_NO_DEADLINE;
	start(&peers[0], gather_one);
	start(&peers[1], gather_one);
	/* While it is in a call itself, from another thread. */
	peers[1].bs->ops->abort(peers[1].bs->priv, ENOSPC);
	join(&peers[0]);
	join(&peers[1]);
	for (r = 0; r < 3; r++) {
		if (r == 2)
			gather_one(&peers[r]);
		assert_error(&peers[r], -ECANCELED, 1, "rank 1 has aborted: ENOSPC");
		peers[r].rc = 0;
		enter_barrier(&peers[r]);
		assert_error(&peers[r], -ECANCELED, 1, "rank 1 has aborted: ENOSPC");
	}
	/* The first word counts; and who comes now is told, too. */
	peers[2].bs->ops->abort(peers[2].bs->priv, EIO);
	npuwin_bootstrap_free(peers[2].bs);
	connect_peer(&late, address, 3, 2);
	gather_one(&late);
	assert_error(&late, -ECANCELED, 1, "rank 1 has aborted: ENOSPC");
	npuwin_bootstrap_free(late.bs);
	free_all(peers, 2);
}

/* Those who look only later learn who has aborted, not that rank 0 is gone since. */
static void test_abort_of_first(void **state)
{
	struct peer peers[2];
	char address[100];
	int where;

	for (where = TCP; where < PLACES; where++) {
		connect_all(peers, where, address, 2);
		peers[0].bs->ops->abort(peers[0].bs->priv, 99999);
		npuwin_bootstrap_free(peers[0].bs);
		gather_one(&peers[1]);
		assert_error(&peers[1], -ECANCELED, 0, "rank 0 has aborted: ECANCELED");
		npuwin_bootstrap_free(peers[1].bs);
	}
}

static void test_first_lost(void **state)
{
	struct peer peers[3];
	char address[100];
	uint32_t r;
	int where;

	for (where = TCP; where < PLACES; where++) {
		connect_all(peers, where, address, 3);
		peers[1].attr.deadline_ns = NPUWIN_NO_DEADLINE;
		start(&peers[1], gather_one);
		npuwin_bootstrap_free(peers[0].bs);
		join(&peers[1]);
		gather_one(&peers[2]);
		for (r = 1; r < 3; r++) {
			assert_error(&peers[r], -EPIPE, 0, "rank 0 is gone");
			enter_barrier(&peers[r]);
			assert_error(&peers[r], -EPIPE, 0, "rank 0 is gone");
			npuwin_bootstrap_free(peers[r].bs);
		}
	}
}

static void *gather_much(void *arg)
{
	struct peer *peer = arg;

	peer->wrong = exchange(peer->bs, 5, NPUWIN_BOOTSTRAP_MAX_BYTES);
	if (!peer->bs->rank)
		npuwin_bootstrap_free(peer->bs);
	return NULL;
}

/* Rank 0 is done when it has its result, and goes: the others still get theirs. */
static void test_first_leaves(void **state)
{
	struct peer peers[16];
	char address[100];
	uint32_t r;

	connect_all(peers, TCP, address, 16);
	for (r = 0; r < 16; r++)
		start(&peers[r], gather_much);
	for (r = 0; r < 16; r++) {
		join(&peers[r]);
		if (peers[r].wrong)
			fail_msg("rank %u: %s", r, peers[r].wrong);
		if (r)
			npuwin_bootstrap_free(peers[r].bs);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_local),
		cmocka_unit_test(test_connect),
		cmocka_unit_test(test_many),
		cmocka_unit_test(test_no_secret),
		cmocka_unit_test(test_values),
		cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_in_use),
		cmocka_unit_test(test_nobody),
		cmocka_unit_test(test_differ),
		cmocka_unit_test(test_deadline),
		cmocka_unit_test(test_successor),
		cmocka_unit_test(test_taken),
		cmocka_unit_test(test_withdrawn),
		cmocka_unit_test(test_barrier_lost),
		cmocka_unit_test(test_abort),
		cmocka_unit_test(test_abort_of_first),
		cmocka_unit_test(test_first_lost),
		cmocka_unit_test(test_first_leaves),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
