// SPDX-License-Identifier: MIT
/*
 * Bootstraps and those who mean no good, or are something else: at rank 0's address, in the
 * place of rank 0, and on the way between them.
 */
#include <poll.h>

#include "boot.h"

/* Rank 0 of two, and the other one, which comes when whatever it is has been done. */
static void begin(struct npuwin_bootstrap **first, char *address, enum where where)
{
	struct npuwin_bootstrap_attr attr;
	struct npuwin_error err;

	make_address(address, 100, where);
	attr = make_attr(address, 2, 0);
	if (npuwin_bootstrap_connect(&attr, first, &err))
		fail_msg("%s", err.text);
}

static void *second_main(void *arg)
{
	struct npuwin_bootstrap_attr attr = make_attr(arg, 2, 1);
	struct npuwin_bootstrap *bs;
	struct npuwin_error err;
	const char *wrong;

	if (npuwin_bootstrap_connect(&attr, &bs, &err))
		fail_msg("%s", err.text);
	wrong = exchange(bs, 3, 100);
	npuwin_bootstrap_free(bs);
	return (void *)wrong;
}

static void finish(struct npuwin_bootstrap *first, char *address)
{
	pthread_t thread;
	void *wrong;

	assert_int_equal(pthread_create(&thread, NULL, second_main, address), 0);
	assert_null(exchange(first, 3, 100));
	assert_int_equal(pthread_join(thread, &wrong), 0);
	assert_null(wrong);
	npuwin_bootstrap_free(first);
}

static int dial(const char *address)
{
	struct npuwin_error err;
	struct boot_address place;
	int fd, why;

	assert_int_equal(net_parse(address, &place, &err), 0);
	fd = net_connect(&place, address, npuwin_deadline_ms(60000), &why, &err);
	assert_true(fd >= 0);
	return fd;
}

static void say(int fd, const void *bytes, size_t n)
{
	assert_int_equal(send(fd, bytes, n, MSG_NOSIGNAL), (int)n);
}

/* Whether the other side ends the connection. */
static bool is_dropped(int fd, int ms)
{
	int64_t until = npuwin_deadline_ms(ms);
	char bytes[256];
	ssize_t n;

	do {
		n = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);
		if (n == 0 || (n < 0 && errno != EAGAIN))
			return true;
	} while (net_wait(fd, POLLIN, until));
	return false;
}

static struct boot_channel *channel(int fd)
{
	struct boot_channel *ch = calloc(1, sizeof(*ch));

	assert_non_null(ch);
	ch->fd = fd;
	return ch;
}

static void channel_done(struct boot_channel *ch)
{
	channel_close(ch);
	free(ch);
}

static void tell(struct boot_channel *ch, uint16_t type, const void *payload, uint32_t length)
{
	channel_put(ch, &(struct boot_message) {
		.type = type, .rank = 1, .nranks = 2, .length = length, .payload = payload,
	});
	assert_int_equal(channel_send(ch), 0);
}

static int hear(struct boot_channel *ch, struct boot_message *msg)
{
	int rc;

	do {
		rc = channel_get(ch, msg);
	} while (rc == -EAGAIN && net_wait(ch->fd, POLLIN, npuwin_deadline_ms(60000)));
	return rc;
}

/* Connections that are none: what is not a greeting is not answered. */
static void test_garbage(void **state)
{
	static const char http[] = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
	static const uint8_t zeros[4096];
	struct npuwin_bootstrap *first;
	uint8_t header[BOOT_HEADER] = { 0 };
	char address[100];
	int fd, where;

	for (where = TCP; where < PLACES; where++) {
		begin(&first, address, where);
		fd = dial(address);
		say(fd, http, sizeof(http));
		assert_true(is_dropped(fd, 60000));
		close(fd);
		fd = dial(address);
		say(fd, zeros, sizeof(zeros));
		assert_true(is_dropped(fd, 60000));
		close(fd);
		/* A length that nobody has room for. */
		boot_put32(header, BOOT_MAGIC);
		boot_put32(header + 4, BOOT_HELLO << 16 | BOOT_VERSION);
		boot_put32(header + 20, UINT32_MAX);
		fd = dial(address);
		say(fd, header, sizeof(header));
		assert_true(is_dropped(fd, 60000));
		close(fd);
		finish(first, address);
	}
}

/* Types and lengths that do not belong where they come. */
static void test_out_of_place(void **state)
{
	static const uint8_t bytes[BOOT_CLEAR];
	struct npuwin_bootstrap *first;
	struct boot_channel *ch;
	struct boot_message msg;
	char address[100];
	uint16_t type;

	begin(&first, address, TCP);
	for (type = 0; type < 12; type++) {
		ch = channel(dial(address));
		tell(ch, type, bytes, type == BOOT_HELLO ? BOOT_NONCE - 1 : BOOT_NONCE);
		assert_int_equal(hear(ch, &msg), -EPIPE);
		channel_done(ch);
		if (type == BOOT_PROOF)
			continue;
		ch = channel(dial(address));
		tell(ch, BOOT_HELLO, bytes, BOOT_NONCE);
		assert_int_equal(hear(ch, &msg), 0);
		assert_int_equal(msg.type, BOOT_CHALLENGE);
		tell(ch, type, bytes, BOOT_MAC + BOOT_STREAM);
		assert_int_equal(hear(ch, &msg), -EPIPE);
		channel_done(ch);
	}
	/* A proof of another length, and one that proves nothing. */
	ch = channel(dial(address));
	tell(ch, BOOT_HELLO, bytes, BOOT_NONCE);
	assert_int_equal(hear(ch, &msg), 0);
	tell(ch, BOOT_PROOF, bytes, BOOT_MAC);
	assert_int_equal(hear(ch, &msg), -EPIPE);
	channel_done(ch);
	ch = channel(dial(address));
	tell(ch, BOOT_HELLO, bytes, BOOT_NONCE);
	assert_int_equal(hear(ch, &msg), 0);
	tell(ch, BOOT_PROOF, bytes, BOOT_MAC + BOOT_STREAM);
	assert_int_equal(hear(ch, &msg), 0);
	assert_int_equal(msg.type, BOOT_REFUSED);
	assert_int_equal(boot_get32(msg.payload), BOOT_BAD_SECRET);
	assert_int_equal(hear(ch, &msg), -EPIPE);
	channel_done(ch);
	finish(first, address);
}

/* More silent ones than there is room for, and those that go in the middle of something. */
static void test_silent(void **state)
{
	static const uint8_t nonce[BOOT_NONCE];
	struct npuwin_bootstrap *first;
	struct boot_channel *ch;
	char address[100];
	int fds[200], i, where;

	for (where = TCP; where < PLACES; where++) {
		begin(&first, address, where);
		for (i = 0; i < 200; i++) {
			fds[i] = dial(address);
			if (i % 2)
				say(fds[i], "npwb", (size_t)i % 5);
		}
		for (i = 0; i < 50; i++) {
			ch = channel(dial(address));
			if (i % 3)
				tell(ch, BOOT_HELLO, nonce, BOOT_NONCE);
			if (i % 3 == 2)
				tell(ch, BOOT_PROOF, nonce, BOOT_NONCE);
			channel_done(ch);
		}
		finish(first, address);
		for (i = 0; i < 200; i++)
			close(fds[i]);
	}
}

/* A byte now and then does not keep a connection. */
static void test_slow(void **state)
{
	struct npuwin_bootstrap *first;
	int64_t until = npuwin_deadline_ms(30000);
	uint8_t header[BOOT_HEADER] = { 0 };
	char address[100];
	size_t i = 0;
	int fd;

	begin(&first, address, TCP);
	boot_put32(header, BOOT_MAGIC);
	fd = dial(address);
	while (npuwin_now() < until && send(fd, header + i++ % 16, 1, MSG_NOSIGNAL) == 1 && i < 20)
		if (is_dropped(fd, 500))
			break;
	assert_true(is_dropped(fd, 0));
	assert_true(npuwin_now() < until);
	close(fd);
	finish(first, address);
}

/*
 * In the place of rank 0
 */

enum fake {
	FAKE_HTTP,
	FAKE_SILENT,
	FAKE_CLOSES,
	FAKE_VERSION,
	FAKE_REFUSES,
	FAKE_SHORT_REFUSAL,
	FAKE_PROOF,
	FAKE_OTHER,
	FAKE_LONG,
	FAKES,
};

struct fake_hub {
	int listener;
	enum fake fake;
	bool stop;
};

static void fake_answer(const struct fake_hub *hub, struct boot_channel *ch)
{
	static const char http[] = "HTTP/1.1 400 Bad Request\r\n\r\n";
	uint8_t bytes[BOOT_CLEAR] = { 0 };
	struct boot_message msg;

	if (hear(ch, &msg))
		return;
	switch (hub->fake) {
	case FAKE_HTTP:
		say(ch->fd, http, sizeof(http));
		break;
	case FAKE_SILENT:
		hear(ch, &msg);
		break;
	case FAKE_VERSION:
		boot_put32(bytes, BOOT_BAD_VERSION);
		boot_put32(bytes + 4, 7);
		tell(ch, BOOT_REFUSED, bytes, 8);
		break;
	case FAKE_REFUSES:
		boot_put32(bytes, 12345);
		tell(ch, BOOT_REFUSED, bytes, 8);
		break;
	case FAKE_SHORT_REFUSAL:
		tell(ch, BOOT_REFUSED, bytes, 7);
		break;
	case FAKE_PROOF:
		tell(ch, BOOT_CHALLENGE, bytes, BOOT_NONCE);
		if (!hear(ch, &msg))
			tell(ch, BOOT_WELCOME, bytes, BOOT_MAC + BOOT_STREAM);
		break;
	case FAKE_OTHER:
		tell(ch, BOOT_RESULT, bytes, 10);
		break;
	case FAKE_LONG:
		boot_put32(bytes, BOOT_MAGIC);
		boot_put32(bytes + 20, 0x7fffffff);
		say(ch->fd, bytes, BOOT_HEADER);
		break;
	default:
		break;
	}
	/* What was sent is not to be lost by closing before it is read. */
	if (hub->fake != FAKE_CLOSES)
		hear(ch, &msg);
}

static void *fake_main(void *arg)
{
	struct fake_hub *hub = arg;
	struct boot_channel *ch;
	int fd;

	while (!__atomic_load_n(&hub->stop, __ATOMIC_ACQUIRE)) {
		if (!net_wait(hub->listener, POLLIN, npuwin_deadline_ms(20)))
			continue;
		fd = net_accept(hub->listener);
		if (fd < 0)
			continue;
		ch = channel(fd);
		fake_answer(hub, ch);
		channel_done(ch);
	}
	return NULL;
}

static void test_fake(void **state)
{
	static const struct {
		int code;
		const char *words;
	} expected[FAKES] = {
		[FAKE_HTTP] = { -EPROTO, "what answers there is no bootstrap" },
		[FAKE_SILENT] = { -ETIMEDOUT, "has been reached, but has not answered" },
		[FAKE_CLOSES] = { -ETIMEDOUT, "deadline: bootstrap" },
		[FAKE_VERSION] = { -EINVAL, "version 7 of the protocol, this library version 1" },
		[FAKE_REFUSES] = { -EINVAL, "rank 0 refuses rank 1" },
		[FAKE_SHORT_REFUSAL] = { -EPROTO, "no bootstrap" },
		[FAKE_PROOF] = { -EACCES, "who answers does not know the secret" },
		[FAKE_OTHER] = { -EPROTO, "no bootstrap" },
		[FAKE_LONG] = { -EPROTO, "no bootstrap" },
	};
	struct npuwin_bootstrap_attr attr;
	struct npuwin_bootstrap *bs;
	struct boot_address place;
	struct npuwin_error err;
	char address[100];
	pthread_t thread;
	int fake, rc;

	for (fake = 0; fake < FAKES; fake++) {
		struct fake_hub hub = { .fake = (enum fake)fake };

		make_address(address, sizeof(address), TCP);
		assert_int_equal(net_parse(address, &place, NULL), 0);
		hub.listener = net_listen(&place, address, &err);
		assert_true(hub.listener >= 0);
		assert_int_equal(pthread_create(&thread, NULL, fake_main, &hub), 0);
		attr = make_attr(address, 2, 1);
		if (expected[fake].code == -ETIMEDOUT)
			attr.deadline_ns = npuwin_deadline_ms(200);
		rc = npuwin_bootstrap_connect(&attr, &bs, &err);
		if (rc != expected[fake].code || !strstr(err.text, expected[fake].words))
			fail_msg("fake %d: %d: %s", fake, rc, err.text);
		assert_int_equal(err.peer, 0);
		assert_int_equal(err.rank, 1);
		assert_null(bs);
		__atomic_store_n(&hub.stop, true, __ATOMIC_RELEASE);
		assert_int_equal(pthread_join(thread, NULL), 0);
		close(hub.listener);
	}
}

static void test_version(void **state)
{
	uint8_t hello[BOOT_HEADER + BOOT_NONCE + 5] = { 0 };
	struct npuwin_bootstrap *first;
	struct boot_channel *ch;
	struct boot_message msg;
	struct npuwin_error err;
	char address[100];

	begin(&first, address, TCP);
	boot_put32(hello, BOOT_MAGIC);
	boot_put32(hello + 4, BOOT_HELLO << 16 | (BOOT_VERSION + 1));
	boot_put32(hello + 8, 1);
	boot_put32(hello + 12, 2);
	/* Whatever it is that a later version says. */
	boot_put32(hello + 20, BOOT_NONCE + 5);
	ch = channel(dial(address));
	say(ch->fd, hello, sizeof(hello));
	assert_int_equal(hear(ch, &msg), 0);
	assert_int_equal(msg.type, BOOT_REFUSED);
	assert_int_equal(msg.length, 8);
	assert_int_equal(boot_get32(msg.payload), BOOT_BAD_VERSION);
	assert_int_equal(boot_get32(msg.payload + 4), BOOT_VERSION);
	channel_done(ch);
	assert_int_equal(barrier(first, npuwin_deadline_ms(20), &err), -ETIMEDOUT);
	assert_non_null(strstr(err.text, "rank 1 and speaks another version"));
	finish(first, address);
}

/*
 * On the way
 */

enum tamper {
	TAMPER_NOTHING,
	TAMPER_FLIP,
	TAMPER_REPEAT,
	TAMPER_LONG,
	TAMPERS,
};

/**
 * struct proxy - A man in the middle of one connection.
 * @listener: where the member comes
 * @target: where rank 0 is
 * @tamper: what is done
 * @to_hub: to what the member sends; otherwise to what rank 0 sends
 * @after: bytes that pass before
 * @heard: what the member said, up to the first call
 * @nheard: bytes of that
 */
struct proxy {
	int listener;
	const char *target;
	enum tamper tamper;
	bool to_hub;
	size_t after;
	uint8_t heard[1024];
	size_t nheard;
};

static size_t change(const struct proxy *proxy, uint8_t *bytes, size_t n)
{
	switch (proxy->tamper) {
	case TAMPER_FLIP:
		bytes[n - 1] ^= 1;
		return n;
	case TAMPER_REPEAT:
		memcpy(bytes + n, bytes, n);
		return 2 * n;
	default:
		memset(bytes, 0xff, 4);
		return n;
	}
}

/* Pass on what there is. False where one side has ended. */
static bool pass(struct proxy *proxy, int from, int to, bool to_hub, size_t *passed)
{
	uint8_t bytes[2 * 65536];
	ssize_t n = recv(from, bytes, sizeof(bytes) / 2, MSG_DONTWAIT);
	size_t length;

	if (n < 0)
		return errno == EAGAIN;
	if (!n)
		return false;
	length = (size_t)n;
	if (to_hub && proxy->nheard + length <= sizeof(proxy->heard)) {
		memcpy(proxy->heard + proxy->nheard, bytes, length);
		proxy->nheard += length;
	}
	if (proxy->tamper && to_hub == proxy->to_hub && *passed >= proxy->after)
		length = change(proxy, bytes, length);
	*passed += (size_t)n;
	return send(to, bytes, length, MSG_NOSIGNAL) == (ssize_t)length;
}

static void *proxy_main(void *arg)
{
	struct proxy *proxy = arg;
	struct pollfd polls[2] = { { .events = POLLIN }, { .events = POLLIN } };
	size_t passed[2] = { 0 };
	bool open = true;

	while (!net_wait(proxy->listener, POLLIN, NPUWIN_NO_DEADLINE))
		;
	polls[0].fd = net_accept(proxy->listener);
	polls[1].fd = dial(proxy->target);
	while (open && poll(polls, 2, -1) > 0) {
		if (polls[0].revents)
			open = pass(proxy, polls[0].fd, polls[1].fd, true, &passed[0]);
		if (open && polls[1].revents)
			open = pass(proxy, polls[1].fd, polls[0].fd, false, &passed[1]);
	}
	close(polls[0].fd);
	close(polls[1].fd);
	return NULL;
}

struct second {
	struct npuwin_bootstrap *bs;
	struct npuwin_error err;
	int rc;
};

static void *gather_main(void *arg)
{
	struct second *second = arg;
	uint8_t mine[64] = { 1 }, all[128];

	second->rc = gather(second->bs, mine, all, sizeof(mine), npuwin_deadline_ms(60000),
			    &second->err);
	return NULL;
}

/* One connection through a proxy, and one exchange in it, which @proxy does something to. */
static void through(struct proxy *proxy, struct npuwin_bootstrap *first, const char *address)
{
	struct npuwin_bootstrap_attr attr;
	uint8_t mine[64] = { 0 }, all[128];
	struct boot_address place;
	struct second second;
	struct npuwin_error err;
	char middle[100];
	pthread_t threads[2];
	int64_t deadline_ns;
	int rc;

	make_address(middle, sizeof(middle), TCP);
	assert_int_equal(net_parse(middle, &place, NULL), 0);
	proxy->listener = net_listen(&place, middle, &err);
	assert_true(proxy->listener >= 0);
	proxy->target = address;
	assert_int_equal(pthread_create(&threads[0], NULL, proxy_main, proxy), 0);
	attr = make_attr(middle, 2, 1);
	if (npuwin_bootstrap_connect(&attr, &second.bs, &second.err))
		fail_msg("%s", second.err.text);
	assert_int_equal(pthread_create(&threads[1], NULL, gather_main, &second), 0);
	deadline_ns = npuwin_deadline_ms(proxy->tamper && proxy->to_hub ? 300 : 60000);
	rc = gather(first, mine, all, sizeof(mine), deadline_ns, &err);
	assert_int_equal(pthread_join(threads[1], NULL), 0);
	npuwin_bootstrap_free(second.bs);
	assert_int_equal(pthread_join(threads[0], NULL), 0);
	close(proxy->listener);
	switch (proxy->tamper) {
	case TAMPER_NOTHING:
		assert_int_equal(rc, 0);
		assert_int_equal(second.rc, 0);
		break;
	case TAMPER_REPEAT:
		/* The first of them was right; with the second the member may be out at once. */
		assert_true(!rc || (proxy->to_hub && rc == -ETIMEDOUT));
		assert_true(!second.rc || (proxy->to_hub && second.rc == -EPIPE));
		break;
	default:
		assert_int_equal(rc, proxy->to_hub ? -ETIMEDOUT : 0);
		assert_int_equal(second.rc, proxy->to_hub ? -EPIPE : -EPROTO);
		assert_non_null(strstr(second.err.text, proxy->to_hub ? "rank 0 is gone" :
				       "is not what it sent"));
	}
}

static void test_tamper(void **state)
{
	const size_t greeting = 2 * BOOT_HEADER + BOOT_NONCE + BOOT_MAC + BOOT_STREAM;
	struct npuwin_bootstrap *first;
	char address[100];
	int tamper, to_hub;

	for (tamper = 0; tamper < TAMPERS; tamper++) {
		for (to_hub = 0; to_hub < 2; to_hub++) {
			struct proxy proxy = {
				.tamper = (enum tamper)tamper,
				.to_hub = to_hub,
				.after = greeting,
			};

			begin(&first, address, TCP);
			through(&proxy, first, address);
			finish(first, address);
		}
	}
}

/* What a member has said once proves nothing when it is said again. */
static void test_replay(void **state)
{
	struct proxy proxy = { .tamper = TAMPER_NOTHING };
	size_t hello = BOOT_HEADER + BOOT_NONCE;
	struct npuwin_bootstrap *first;
	struct boot_channel *ch;
	struct boot_message msg;
	char address[100];

	begin(&first, address, TCP);
	through(&proxy, first, address);
	assert_true(proxy.nheard > hello + BOOT_HEADER + BOOT_MAC + BOOT_STREAM);
	ch = channel(dial(address));
	say(ch->fd, proxy.heard, hello);
	assert_int_equal(hear(ch, &msg), 0);
	assert_int_equal(msg.type, BOOT_CHALLENGE);
	say(ch->fd, proxy.heard + hello, BOOT_HEADER + BOOT_MAC + BOOT_STREAM);
	assert_int_equal(hear(ch, &msg), 0);
	assert_int_equal(msg.type, BOOT_REFUSED);
	channel_done(ch);
	/* Nothing of the exchange can be read on the way. */
	assert_null(memmem(proxy.heard + hello, proxy.nheard - hello, "\1\0\0\0\0\0\0\0", 8));
	finish(first, address);
}

/* A member whose messages are sealed, but make no sense, is dropped. */
static void test_bad_member(void **state)
{
	static const struct {
		uint16_t type;
		uint32_t length;
		uint32_t kind;
	} bad[] = {
		{ BOOT_CALL, 0, 0 },
		{ BOOT_CALL, BOOT_CALL_ARGS - 1, BOOT_ALLGATHER },
		{ BOOT_CALL, BOOT_CALL_ARGS, BOOT_ALLGATHER },
		{ BOOT_CALL, BOOT_CALL_ARGS + 1, BOOT_BARRIER },
		{ BOOT_CALL, BOOT_CALL_ARGS + 1, 0 },
		{ BOOT_CALL, BOOT_CALL_ARGS + 1, UINT32_MAX },
		{ BOOT_ABORT, 3, 0 },
		{ BOOT_ABORT, 5, 0 },
		{ BOOT_HELLO, BOOT_NONCE, 0 },
		{ BOOT_RESULT, 0, 0 },
		{ 0xffff, 10, 0 },
	};
	struct npuwin_bootstrap_attr attr;
	struct npuwin_bootstrap *first;
	struct boot_channel *ch;
	struct boot_message msg;
	struct boot_secret known;
	uint8_t bytes[BOOT_CHUNK] = { 0 };
	char address[100];
	size_t i;

	begin(&first, address, TCP);
	auth_secret(&known, secret, sizeof(secret));
	attr = make_attr(address, 2, 1);
	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		ch = channel(dial(address));
		assert_int_equal(auth_member(ch, &attr, &known, attr.deadline_ns, NULL), 0);
		boot_put32(bytes, bad[i].kind);
		tell(ch, bad[i].type, bytes, bad[i].length);
		assert_int_equal(hear(ch, &msg), -EPIPE);
		channel_done(ch);
	}
	finish(first, address);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_garbage),
		cmocka_unit_test(test_out_of_place),
		cmocka_unit_test(test_silent),
		cmocka_unit_test(test_slow),
		cmocka_unit_test(test_fake),
		cmocka_unit_test(test_version),
		cmocka_unit_test(test_tamper),
		cmocka_unit_test(test_replay),
		cmocka_unit_test(test_bad_member),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
