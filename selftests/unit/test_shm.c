// SPDX-License-Identifier: MIT
/* The shm provider: distrust of what is handed in, claims, sleeping and waking, leaks. */
#include "procs.h"

static struct npuwin *open_shm(void)
{
	struct npuwin_error err;
	struct npuwin *ctx;

	assert_int_equal(npuwin_open("shm", &ctx, &err), 0);
	return ctx;
}

static int join_raw(struct npuwin *ctx, int fd, uint32_t nranks, uint32_t rank,
		    struct endpoint **ep, struct npuwin_error *err)
{
	return provider_shm.join(ctx, fd, nranks, WINDOW, rank, -1, ep, err);
}

static int raw_domain(struct npuwin *ctx, uint32_t nranks)
{
	struct npuwin_error err;
	int fd = provider_shm.domain_create(ctx, nranks, WINDOW, &err);

	assert_true(fd >= 0);
	return fd;
}

static void refused(int fd, int code, const char *word)
{
	struct npuwin *ctx = open_shm();
	struct npuwin_error err;
	struct endpoint *ep;

	assert_int_equal(join_raw(ctx, fd, 2, 0, &ep, &err), code);
	if (!strstr(err.text, word))
		fail_msg("no \"%s\" in: %s", word, err.text);
	npuwin_close(ctx);
}

/* A memfd with a header of our own making. */
static void refused_header(struct shm_header header, uint64_t size, unsigned int seals,
			   const char *word)
{
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)size), 0);
	assert_int_equal(pwrite(fd, &header, sizeof(header), 0), sizeof(header));
	if (seals)
		assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
	refused(fd, -EINVAL, word);
	close(fd);
}

static void test_distrust(void **state)
{
	const struct shm_header good = { SHM_MAGIC, SHM_VERSION, 2, WINDOW };
	struct shm_header bad;
	struct shm_layout layout;
	int fds[2], fd;

	assert_int_equal(shm_layout_of(2, WINDOW, &layout), 0);
	refused_header(good, layout.total, 0, "is no domain");
	refused_header(good, layout.total, F_SEAL_GROW, "is no domain");
	refused_header(good, layout.total, F_SEAL_SHRINK | F_SEAL_WRITE, "is no domain");
	refused_header(good, layout.total - 4096, F_SEAL_SHRINK, "damaged");
	refused_header(good, layout.total + 4096, F_SEAL_SHRINK, "damaged");
	bad = good;
	bad.magic++;
	refused_header(bad, layout.total, F_SEAL_SHRINK, "is no domain");
	bad = good;
	bad.version++;
	refused_header(bad, layout.total, F_SEAL_SHRINK, "version 2");
	bad = good;
	bad.nranks = 0;
	refused_header(bad, layout.total, F_SEAL_SHRINK, "damaged");
	bad.nranks = UINT32_MAX;
	refused_header(bad, layout.total, F_SEAL_SHRINK, "damaged");
	bad = good;
	bad.window_size = WINDOW + 1;
	refused_header(bad, layout.total, F_SEAL_SHRINK, "damaged");
	bad.window_size = 0xfffffffffffff000;
	refused_header(bad, layout.total, F_SEAL_SHRINK, "damaged");
	bad.window_size = 1ULL << 63;
	refused_header(bad, layout.total, F_SEAL_SHRINK, "damaged");
	refused(-1, -EBADF, "-1");
	assert_int_equal(pipe(fds), 0);
	refused(fds[0], -EINVAL, "is no domain");
	close(fds[0]);
	close(fds[1]);
	fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	refused(fd, -EINVAL, "is no domain");
	close(fd);
}

/* Whatever a peer writes into the shared words, nothing is read outside of the memfd. */
static void test_hostile_words(void **state)
{
	struct npuwin *ctx = open_shm();
	struct npuwin_signal signal = { .rank = 0, .cmp = NPUWIN_CMP_NE, .peer = 1 };
	uint32_t missing, index, gone, value, i;
	struct npuwin_error err;
	struct endpoint *ep;
	struct view view;

	view_open(&view, raw_domain(ctx, 2), 2);
	assert_int_equal(join_raw(ctx, view.fd, 2, 0, &ep, &err), 0);
	for (i = 0; i < 64; i++) {
		value = i < 32 ? 1U << i : ~(1U << (i - 32));
		view.ranks[1].slot = value;
		view.ranks[1].commit = value;
		view.ranks[1].reset = value;
		view.status->rank[1].state = i % 2 ? NPUWIN_RANK_JOINED : value;
		view.status->rank[1].sleepers = value;
		provider_shm.signal_wake(ep, 1);
		provider_shm.commit(ep, 0, &missing);
		provider_shm.map(ep, NULL);
		provider_shm.signal_wait(ep, &signal, 1, 0, &index, &gone);
		view.status->abort_rank = value;
		view.status->abort_error = (int32_t)value;
		view.status->nranks = value;
		provider_shm.abort(ep, EIO);
		view.status->generation = value;
		provider_shm.signal_wait(ep, &signal, 1, 0, &index, &gone);
		provider_shm.reset(ep, 0, &missing);
		view.status->state = i % 3 ? NPUWIN_DOMAIN_FORMING : value;
	}
	provider_shm.leave(ep);
	view_close(&view);
	npuwin_close(ctx);
}

static void test_claims(void **state)
{
	struct npuwin *one = open_shm(), *two = open_shm();
	struct endpoint *a, *b, *c;
	struct npuwin_error err;
	uint32_t missing;
	int fd = raw_domain(one, 2);

	assert_int_equal(join_raw(one, fd, 2, 0, &a, &err), 0);
	/* By another context, and by the same one. */
	assert_int_equal(join_raw(two, fd, 2, 0, &b, &err), -EBUSY);
	assert_non_null(strstr(err.text, "rank 0 is taken"));
	assert_int_equal(join_raw(one, fd, 2, 0, &b, &err), -EBUSY);
	assert_int_equal(join_raw(one, fd, 2, 2, &b, &err), -EINVAL);
	assert_int_equal(join_raw(one, fd, 3, 1, &b, &err), -EINVAL);
	assert_non_null(strstr(err.text, "nranks is 3"));
	/* Who leaves while it is forming leaves the place free. */
	assert_int_equal(join_raw(two, fd, 2, 1, &b, &err), 0);
	provider_shm.leave(b);
	assert_int_equal(join_raw(one, fd, 2, 1, &b, &err), 0);
	assert_int_equal(provider_shm.commit(a, 0, &missing), -EAGAIN);
	assert_int_equal(missing, 1);
	assert_int_equal(provider_shm.commit(b, 0, &missing), 0);
	assert_int_equal(provider_shm.commit(a, 0, &missing), 0);
	/* A domain that is complete takes nobody. */
	provider_shm.leave(b);
	assert_int_equal(join_raw(two, fd, 2, 1, &c, &err), -EBUSY);
	assert_non_null(strstr(err.text, "complete"));
	assert_int_equal(provider_shm.reset(a, 0, &missing), -EINVAL);
	provider_shm.abort(a, EIO);
	assert_int_equal(join_raw(two, fd, 2, 1, &c, &err), -EPIPE);
	assert_non_null(strstr(err.text, "aborted"));
	assert_int_equal(provider_shm.commit(a, 0, &missing), -ECANCELED);
	/* After a reset the place is free. */
	assert_int_equal(provider_shm.reset(a, 0, &missing), 0);
	assert_int_equal(join_raw(two, fd, 2, 1, &c, &err), 0);
	assert_int_equal(provider_shm.commit(c, 0, &missing), -EAGAIN);
	assert_int_equal(provider_shm.commit(a, 0, &missing), 0);
	provider_shm.leave(c);
	provider_shm.leave(a);
	close(fd);
	npuwin_close(two);
	npuwin_close(one);
}

static void test_sizes(void **state)
{
	struct npuwin_device_info info;
	struct npuwin *ctx = open_shm();
	struct npuwin_error err;
	uint8_t *last;
	struct endpoint *ep;
	int fd;

	assert_int_equal(npuwin_device_info(ctx, 0, &info, &err), 0);
	assert_int_equal(provider_shm.domain_create(ctx, 2, UINT64_MAX, &err), -EOVERFLOW);
	assert_int_equal(provider_shm.domain_create(ctx, 2, info.memory_total + 4096, &err),
			 -ENOSPC);
	assert_non_null(strstr(err.text, "larger than the memory"));
	assert_int_equal(provider_shm.domain_create(ctx, 0, WINDOW, &err), -EINVAL);
	assert_int_equal(provider_shm.domain_create(ctx, 1025, WINDOW, &err), -EINVAL);
	assert_int_equal(npuwin_device_info(ctx, 1, &info, &err), -ENOENT);
	/* Beyond 4 GiB, where there is that much. */
	if (info.memory_total > 5ULL << 30) {
		fd = provider_shm.domain_create(ctx, 1, 5ULL << 30, &err);
		assert_true(fd >= 0);
		assert_int_equal(provider_shm.join(ctx, fd, 1, 5ULL << 30, 0, -1, &ep, &err), 0);
		assert_int_equal(provider_shm.map(ep, &err), 0);
		last = ep->window[0] + (5ULL << 30) - 1;
		*last = 1;
		assert_int_equal(*last, 1);
		assert_int_equal(npuwin_device_info(ctx, 0, &info, &err), 0);
		assert_int_equal(info.memory_used, 5ULL << 30);
		provider_shm.leave(ep);
		close(fd);
	}
	npuwin_close(ctx);
}

#define TURNS	20000

struct player {
	struct npuwin *ctx;
	struct endpoint *ep;
	uint32_t peer;
	int fd;
};

/* Wait for the own cell to get to a number, and give the next one to the peer. */
static void play(struct endpoint *ep, uint32_t peer)
{
	struct npuwin_signal signal = { .rank = ep->rank, .cmp = NPUWIN_CMP_GE, .peer = peer };
	uint32_t index, gone;
	int32_t turn, *cell;
	int rc;

	for (turn = 1; turn <= TURNS; turn++) {
		signal.value = turn;
		if (ep->rank == 0 || turn > 1) {
			cell = (int32_t *)ep->window[peer];
			__atomic_fetch_add(cell, 1, __ATOMIC_SEQ_CST);
			__atomic_thread_fence(__ATOMIC_SEQ_CST);
			if (shm_load(&ep->status->rank[peer].sleepers))
				provider_shm.signal_wake(ep, peer);
		}
		rc = provider_shm.signal_wait(ep, &signal, 1, far(), &index, &gone);
		must(!rc, "turn %d: %d", turn, rc);
	}
	cell = (int32_t *)ep->window[peer];
	if (ep->rank) {
		__atomic_fetch_add(cell, 1, __ATOMIC_SEQ_CST);
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
		provider_shm.signal_wake(ep, peer);
	}
}

static void player_process(void *p)
{
	struct player *player = p;
	uint32_t missing;
	struct npuwin_error err;

	must(!npuwin_open("shm", &player->ctx, &err), "%s", err.text);
	must(!provider_shm.join(player->ctx, player->fd, 2, WINDOW, !player->peer, -1,
				&player->ep, &err), "%s", err.text);
	must(!provider_shm.commit(player->ep, far(), &missing), "commit");
	provider_shm.map(player->ep, NULL);
	play(player->ep, player->peer);
	provider_shm.leave(player->ep);
	npuwin_close(player->ctx);
}

/* A wake that is lost is a deadline that passes. */
static void test_wakes(void **state)
{
	struct npuwin *ctx = open_shm();
	int fd = raw_domain(ctx, 2), i;
	struct player players[2];
	pid_t pids[2];

	npuwin_close(ctx);
	for (i = 0; i < 2; i++) {
		players[i] = (struct player){ .peer = !i, .fd = fd };
		pids[i] = spawn(player_process, &players[i]);
	}
	reap(pids[0], 0);
	reap(pids[1], 0);
	close(fd);
}

/* One thread sleeps for many ranks; a deadline that passes is not success. */
static void test_many_signals(void **state)
{
	struct npuwin_signal signals[64];
	struct endpoint *ep[64];
	struct npuwin *ctx = open_shm();
	uint32_t rank, missing, index, gone;
	struct npuwin_error err;
	int fd = raw_domain(ctx, 64);

	for (rank = 0; rank < 64; rank++)
		assert_int_equal(join_raw(ctx, fd, 64, rank, &ep[rank], &err), 0);
	for (rank = 0; rank < 64; rank++) {
		provider_shm.commit(ep[rank], 0, &missing);
		signals[rank] = (struct npuwin_signal){
			.rank = rank, .offset = 64, .value = 1, .peer = NPUWIN_NO_RANK,
		};
	}
	for (rank = 0; rank < 64; rank++)
		assert_int_equal(provider_shm.map(ep[rank], &err), 0);
	assert_int_equal(provider_shm.signal_wait(ep[3], signals, 64, 0, &index, &gone), -EAGAIN);
	assert_int_equal(provider_shm.signal_wait(ep[3], signals, 64, 1, &index, &gone),
			 -ETIMEDOUT);
	assert_int_equal(provider_shm.signal_wait(ep[3], signals, 64, npuwin_deadline_ms(5),
						  &index, &gone), -ETIMEDOUT);
	assert_int_equal(index, 64);
	*(int32_t *)(ep[41]->window[41] + 64) = 1;
	assert_int_equal(provider_shm.signal_wait(ep[3], signals, 64, far(), &index, &gone), 0);
	assert_int_equal(index, 41);
	assert_int_equal(signals[41].observed, 1);
	/* A peer that has left ends a wait, unless a cell holds. */
	signals[5].peer = 7;
	provider_shm.leave(ep[7]);
	signals[7].rank = 6;
	assert_int_equal(provider_shm.signal_wait(ep[3], signals, 64, far(), &index, &gone), 0);
	*(int32_t *)(ep[41]->window[41] + 64) = 0;
	assert_int_equal(provider_shm.signal_wait(ep[3], signals, 64, far(), &index, &gone),
			 -EPIPE);
	assert_int_equal(index, 5);
	assert_int_equal(gone, 7);
	signals[5].peer = NPUWIN_NO_RANK;
	signals[9].offset = WINDOW;
	assert_int_equal(provider_shm.signal_wait(ep[3], signals, 64, far(), &index, &gone),
			 -EOVERFLOW);
	signals[9].offset = 2;
	assert_int_equal(provider_shm.signal_wait(ep[3], signals, 64, far(), &index, &gone),
			 -EINVAL);
	signals[9].offset = 0;
	provider_shm.abort(ep[2], EIO);
	assert_int_equal(provider_shm.signal_wait(ep[3], signals, 64, far(), &index, &gone),
			 -ECANCELED);
	for (rank = 0; rank < 64; rank++)
		if (rank != 7)
			provider_shm.leave(ep[rank]);
	close(fd);
	npuwin_close(ctx);
}

/* Descriptors, mappings and threads of many domains, one after the other. */
static void test_cycles(void **state)
{
	struct npuwin_domain_attr attr = { .nranks = 4, .window_size = WINDOW, .device = -1 };
	struct npuwin_domain *domains[4];
	struct npuwin *ctx = open_shm();
	unsigned int fds = 0, maps = 0, i, rank;
	struct npuwin_device_info info;
	struct npuwin_error err;

	for (i = 0; i < 1000; i++) {
		attr.deadline_ns = far();
		assert_int_equal(npuwin_domain_create_local(ctx, &attr, domains, &err), 0);
		if (i % 3 == 0) {
			npuwin_domain_abort(domains[1], EIO);
			assert_int_equal(npuwin_domain_reset_group(domains, 4, far(), &err), 0);
		}
		assert_int_equal(npuwin_barrier_group(domains, 4, far(), &err), 0);
		for (rank = 0; rank < 4; rank++)
			npuwin_domain_leave(domains[rank]);
		if (i == 10) {
			fds = count_fds();
			maps = count_maps();
		}
	}
	assert_int_equal(count_fds(), fds);
	assert_true(count_maps() < maps + 10);
	assert_int_equal(npuwin_device_info(ctx, 0, &info, &err), 0);
	assert_int_equal(info.memory_used, 0);
	npuwin_close(ctx);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_wakes),
		cmocka_unit_test(test_distrust),
		cmocka_unit_test(test_hostile_words),
		cmocka_unit_test(test_claims),
		cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_many_signals),
		cmocka_unit_test(test_cycles),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
