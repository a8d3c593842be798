// SPDX-License-Identifier: MIT
/*
 * Domains over a bootstrap, on a provider that only pretends to have a fabric: behind what
 * every rank takes for a domain of its own there is one that all share. What can be seen here
 * is what ranks tell each other, in which order, and how they end together.
 */
#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include "boot.h"

#define NRANKS		4
#define WINDOW		65536
#define FABRIC		0xfab0000

/**
 * struct stage - What a rank is to do, and has done.
 * @ctx: context, with the provider that pretends
 * @bs: bootstrap
 * @attr: how it joins
 * @domain: membership
 * @export_code: what its export fails with
 * @import_code: what its import fails with
 * @imported: ranks taken in since the last commit
 * @rc: how its call ended
 * @err: and why
 * @thread: in which it acts
 */
struct stage {
	struct npuwin *ctx;
	struct npuwin_bootstrap *bs;
	struct npuwin_domain_attr attr;
	struct npuwin_domain *domain;
	int export_code;
	int import_code;
	uint32_t imported;
	int rc;
	struct npuwin_error err;
	pthread_t thread;
};

static struct stage stages[NRANKS];
static struct provider_ops fake;
static int shared_fd;

static int fake_domain_create(struct npuwin *ctx, uint32_t nranks, uint64_t window_size,
			      struct npuwin_error *err)
{
	return fcntl(shared_fd, F_DUPFD_CLOEXEC, 0);
}

static uint64_t key_of(uint32_t rank, uint32_t generation)
{
	return ((uint64_t)generation + 1) << 32 | rank;
}

static uint32_t generation_of(const struct endpoint *ep)
{
	return __atomic_load_n(&ep->status->generation, __ATOMIC_ACQUIRE);
}

static int fake_export(struct endpoint *ep, struct npuwin_ioc_domain_peer *peer,
		       struct npuwin_error *err)
{
	struct stage *stage = &stages[ep->rank];

	if (stage->export_code)
		return npuwin_fail(err, stage->export_code, (int32_t)ep->rank, NPUWIN_NOBODY,
				   "the test does not export");
	*peer = (struct npuwin_ioc_domain_peer) {
		.fabric_id = FABRIC + ep->rank,
		.offset = ep->rank * 4096,
		.window_size = ep->window_size,
		.key = key_of(ep->rank, generation_of(ep)),
		.endpoint = ep->rank * 3,
	};
	return 0;
}

static int fake_import(struct endpoint *ep, const struct npuwin_ioc_domain_peer *peer)
{
	struct stage *stage = &stages[ep->rank];

	if (stage->import_code)
		return stage->import_code;
	if (peer->rank == ep->rank || peer->fabric_id != FABRIC + peer->rank ||
	    peer->offset != peer->rank * 4096 || peer->window_size != ep->window_size ||
	    peer->key != key_of(peer->rank, generation_of(ep)) ||
	    peer->endpoint != peer->rank * 3)
		return -EBADMSG;
	stage->imported++;
	return 0;
}

/* All must have been taken in before; each in its turn. */
static int fake_commit(struct endpoint *ep, int64_t deadline_ns, uint32_t *missing)
{
	struct stage *stage = &stages[ep->rank];

	if (stage->imported != ep->nranks - 1)
		return -EBADMSG;
	stage->imported = 0;
	return provider_shm.commit(ep, deadline_ns, missing);
}

static void setup(uint32_t n)
{
	struct npuwin_domain_attr attr = { .nranks = n, .window_size = WINDOW };
	struct npuwin_bootstrap *all[NRANKS];
	struct npuwin_error err;
	uint32_t r;

	memset(stages, 0, sizeof(stages));
	fake = provider_shm;
	fake.domain_create = fake_domain_create;
	fake.export_peer = fake_export;
	fake.import_peer = fake_import;
	fake.commit = fake_commit;
	assert_int_equal(npuwin_bootstrap_local(n, all, &err), 0);
	for (r = 0; r < n; r++) {
		struct stage *stage = &stages[r];

		assert_int_equal(npuwin_open("shm", &stage->ctx, &err), 0);
		stage->bs = all[r];
		stage->attr = attr;
		stage->attr.rank = r;
		stage->attr.device = -1;
		stage->attr.deadline_ns = npuwin_deadline_ms(60000);
	}
	shared_fd = npuwin_domain_create_fd(stages[0].ctx, &attr, &err);
	assert_true(shared_fd >= 0);
	for (r = 0; r < n; r++)
		stages[r].ctx->ops = &fake;
}

static void teardown(uint32_t n)
{
	uint32_t r;

	for (r = 0; r < n; r++)
		npuwin_domain_leave(stages[r].domain);
	for (r = 0; r < n; r++) {
		npuwin_bootstrap_free(stages[r].bs);
		npuwin_close(stages[r].ctx);
	}
	close(shared_fd);
}

static void *join_main(void *arg)
{
	struct stage *stage = arg;

	stage->rc = npuwin_domain_join_bootstrap(stage->ctx, &stage->attr, stage->bs,
						 &stage->domain, &stage->err);
	return NULL;
}

static void *reset_main(void *arg)
{
	struct stage *stage = arg;

	stage->rc = npuwin_domain_reset(stage->domain, stage->attr.deadline_ns, &stage->err);
	return NULL;
}

static void *barrier_main(void *arg)
{
	struct stage *stage = arg;

	stage->rc = npuwin_barrier(stage->domain, stage->attr.deadline_ns, &stage->err);
	return NULL;
}

static void all(uint32_t n, void *(*run)(void *stage))
{
	uint32_t r;

	for (r = 0; r < n; r++)
		assert_int_equal(pthread_create(&stages[r].thread, NULL, run, &stages[r]), 0);
	for (r = 0; r < n; r++)
		assert_int_equal(pthread_join(stages[r].thread, NULL), 0);
}

static void all_succeed(uint32_t n, void *(*run)(void *stage))
{
	uint32_t r;

	all(n, run);
	for (r = 0; r < n; r++)
		if (stages[r].rc)
			fail_msg("rank %u: %d: %s", r, stages[r].rc, stages[r].err.text);
}

static void assert_failed(uint32_t rank, int code, const char *words)
{
	const struct stage *stage = &stages[rank];

	if (stage->rc != code || stage->err.code != code || !strstr(stage->err.text, words))
		fail_msg("rank %u: %d: \"%s\", want %d with \"%s\"", rank, stage->rc,
			 stage->err.text, code, words);
}

static void test_join(void **state)
{
	unsigned int fds = open_fds();
	uint32_t n;

	for (n = 1; n <= NRANKS; n++) {
		setup(n);
		all_succeed(n, join_main);
		all_succeed(n, barrier_main);
		teardown(n);
	}
	assert_int_equal(open_fds(), fds);
}

static void test_unsupported(void **state)
{
	uint32_t r;

	setup(2);
	for (r = 0; r < 2; r++)
		stages[r].ctx->ops = &provider_shm;
	all(2, join_main);
	for (r = 0; r < 2; r++) {
		assert_failed(r, -EOPNOTSUPP, "provider shm: its windows are on no fabric");
		assert_null(stages[r].domain);
	}
	teardown(2);
}

static void test_values(void **state)
{
	struct npuwin_bootstrap_ops ops = { 0 };
	struct npuwin_bootstrap bad;
	struct stage *stage = &stages[1];

	setup(2);
	stage->attr.nranks = 3;
	join_main(stage);
	assert_failed(1, -EINVAL, "nranks is 3, but the bootstrap has 2");
	stage->attr.nranks = 2;
	stage->attr.rank = 0;
	join_main(stage);
	assert_failed(1, -EINVAL, "rank is 0, but the bootstrap's is 1");
	stage->attr.rank = 1;
	stage->attr.flags = 0x80;
	join_main(stage);
	assert_failed(1, -EINVAL, "flags 0x80");
	stage->attr.flags = 0;
	stage->rc = npuwin_domain_join_bootstrap(stage->ctx, &stage->attr, NULL, &stage->domain,
						 &stage->err);
	assert_failed(1, -EINVAL, "the bootstrap is NULL");
	bad = *stage->bs;
	bad.ops = &ops;
	stage->rc = npuwin_domain_join_bootstrap(stage->ctx, &stage->attr, &bad, &stage->domain,
						 &stage->err);
	assert_failed(1, -EINVAL, "lacks an operation");
	bad = *stage->bs;
	bad.reserved[2] = 1;
	stage->rc = npuwin_domain_join_bootstrap(stage->ctx, &stage->attr, &bad, &stage->domain,
						 &stage->err);
	assert_failed(1, -EINVAL, "reserved[2] of the bootstrap is 0x1, want 0");
	assert_null(stage->domain);
	teardown(2);
}

/* One that cannot join tells the others so. */
static void test_one_cannot(void **state)
{
	uint32_t r;

	setup(NRANKS);
	stages[2].export_code = -ENODEV;
	all(NRANKS, join_main);
	for (r = 0; r < NRANKS; r++) {
		assert_failed(r, -ENODEV, r == 2 ? "the test does not export" :
			      "rank 2 cannot join: ENODEV (No such device)");
		if (r != 2)
			assert_int_equal(stages[r].err.peer, 2);
	}
	/* And before there is anything to export. */
	stages[2].export_code = 0;
	stages[1].attr.device = 77;
	all(NRANKS, join_main);
	for (r = 0; r < NRANKS; r++)
		assert_failed(r, -ENOENT, r == 1 ? "device 77" : "rank 1 cannot join: ENOENT");
	/* It was nobody's fault but its own. */
	stages[1].attr.device = -1;
	all_succeed(NRANKS, join_main);
	teardown(NRANKS);
}

static void test_window_differs(void **state)
{
	struct npuwin_error err;
	uint32_t r;

	/* Each makes a domain of its own here, as on a fabric. */
	setup(2);
	fake.domain_create = provider_shm.domain_create;
	stages[1].attr.window_size = 2 * WINDOW;
	all(2, join_main);
	for (r = 0; r < 2; r++) {
		assert_failed(r, -EINVAL,
			      "window_size differs: rank 0 has 65536, rank 1 has 131072");
		assert_int_equal(stages[r].err.peer, !r);
		assert_int_equal(stages[r].err.rank, r);
	}
	stages[1].attr.window_size = UINT64_MAX;
	all(2, join_main);
	assert_failed(0, -EOVERFLOW, "rank 1 cannot join: EOVERFLOW");
	assert_failed(1, -EOVERFLOW, "too large");
	assert_int_equal(barrier(stages[0].bs, 0, &err), -ETIMEDOUT);
	teardown(2);
}

/* What another version, or anything else, says. */
static void test_version(void **state)
{
	uint32_t words[14] = { htole32(99) }, all_words[2][14];
	pthread_t thread;

	setup(2);
	assert_int_equal(pthread_create(&thread, NULL, join_main, &stages[0]), 0);
	assert_int_equal(gather(stages[1].bs, words, all_words, sizeof(words),
				npuwin_deadline_ms(60000), NULL), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_failed(0, -EINVAL, "exchange differs: rank 0 has 1, rank 1 has 99");
	/* An errno that is none. */
	words[0] = htole32(1);
	words[2] = htole32(0x80000000);
	assert_int_equal(pthread_create(&thread, NULL, join_main, &stages[0]), 0);
	assert_int_equal(gather(stages[1].bs, words, all_words, sizeof(words),
				npuwin_deadline_ms(60000), NULL), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_failed(0, -EPROTO, "rank 1 cannot join");
	teardown(2);
}

/* What fails after the exchange leaves the others nothing to wait for. */
static void test_import_fails(void **state)
{
	uint32_t r;

	setup(NRANKS);
	stages[3].import_code = -ENOMEM;
	all(NRANKS, join_main);
	assert_failed(3, -ENOMEM, "rank 0 cannot be taken in, with fabric id 0xfab0000");
	for (r = 0; r < 3; r++)
		assert_true(stages[r].rc);
	teardown(NRANKS);
}

static void test_missing(void **state)
{
	uint32_t r;

	setup(3);
	for (r = 0; r < 2; r++) {
		/* Long enough for both to have called by then, however busy the machine is. */
		stages[r].attr.deadline_ns = npuwin_deadline_ms(3000);
		assert_int_equal(pthread_create(&stages[r].thread, NULL, join_main, &stages[r]), 0);
	}
	for (r = 0; r < 2; r++) {
		assert_int_equal(pthread_join(stages[r].thread, NULL), 0);
		assert_failed(r, -ETIMEDOUT, "rank 2 of 3 has not called allgather");
		assert_int_equal(stages[r].err.peer, 2);
		assert_null(stages[r].domain);
		stages[r].attr.deadline_ns = npuwin_deadline_ms(60000);
	}
	all_succeed(3, join_main);
	teardown(3);
}

static void test_reset(void **state)
{
	struct npuwin_domain *domains[NRANKS];
	struct npuwin_error err;
	uint32_t r;

	setup(NRANKS);
	all_succeed(NRANKS, join_main);
	/* Nobody has anything to do. */
	all_succeed(NRANKS, reset_main);
	all_succeed(NRANKS, barrier_main);
	/* With another key each time. */
	for (r = 0; r < 3; r++) {
		npuwin_domain_abort(stages[r].domain, EIO);
		all_succeed(NRANKS, reset_main);
		all_succeed(NRANKS, barrier_main);
	}
	/* By one thread for all. */
	npuwin_domain_abort(stages[0].domain, EIO);
	for (r = 0; r < NRANKS; r++)
		domains[r] = stages[r].domain;
	if (npuwin_domain_reset_group(domains, NRANKS, npuwin_deadline_ms(60000), &err))
		fail_msg("%s", err.text);
	all_succeed(NRANKS, barrier_main);
	/* One fails, and the others with it; and then they go on. */
	npuwin_domain_abort(stages[0].domain, EIO);
	stages[1].export_code = -EIO;
	all(NRANKS, reset_main);
	for (r = 0; r < NRANKS; r++)
		assert_failed(r, -EIO, r == 1 ? "does not export" : "rank 1 cannot join: EIO");
	stages[1].export_code = 0;
	all_succeed(NRANKS, reset_main);
	all_succeed(NRANKS, barrier_main);
	teardown(NRANKS);
}

static void test_reset_missing(void **state)
{
	uint32_t r;

	setup(2);
	all_succeed(2, join_main);
	npuwin_domain_abort(stages[0].domain, EIO);
	stages[0].attr.deadline_ns = npuwin_deadline_ms(50);
	reset_main(&stages[0]);
	assert_failed(0, -ETIMEDOUT, "rank 1 of 2 has not called");
	for (r = 0; r < 2; r++)
		stages[r].attr.deadline_ns = npuwin_deadline_ms(60000);
	all_succeed(2, reset_main);
	all_succeed(2, barrier_main);
	teardown(2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_join),
		cmocka_unit_test(test_unsupported),
		cmocka_unit_test(test_values),
		cmocka_unit_test(test_one_cannot),
		cmocka_unit_test(test_window_differs),
		cmocka_unit_test(test_version),
		cmocka_unit_test(test_import_fails),
		cmocka_unit_test(test_missing),
		cmocka_unit_test(test_reset),
		cmocka_unit_test(test_reset_missing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
