// SPDX-License-Identifier: MIT
/* Processes that are killed: whatever the others are doing, they learn it at once. */
#include "procs.h"

#define RANKS	4
#define VICTIM	2

struct rank_arg {
	int fd;
	uint32_t rank;
	uint32_t flags;
	/* Expected of the join. */
	int joined;
};

static struct npuwin_domain *join_as(struct npuwin *ctx, const struct rank_arg *arg, int expected,
				     struct npuwin_error *err)
{
	struct npuwin_domain_attr attr = {
		.nranks = RANKS,
		.rank = arg->rank,
		.window_size = WINDOW,
		.device = -1,
		.flags = arg->flags,
		.deadline_ns = far(),
	};
	struct npuwin_domain *domain;
	int rc = npuwin_domain_join_fd(ctx, arg->fd, &attr, &domain, err);

	must(rc == expected, "rank %u: %d: %s", arg->rank, rc, err->text);
	return domain;
}

static struct npuwin *open_shm(void)
{
	struct npuwin_error err;
	struct npuwin *ctx;

	must(!npuwin_open("shm", &ctx, &err), "%s", err.text);
	return ctx;
}

static void join_only(void *p)
{
	struct npuwin_error err;

	join_as(open_shm(), p, -EPIPE, &err);
	must(err.peer == VICTIM, "%s", err.text);
}

/* One rank never comes; one that waits for it is killed. */
static void test_forming(void **state)
{
	struct rank_arg args[RANKS];
	pid_t pids[RANKS];
	struct view view;
	uint32_t rank;

	view_open(&view, make_domain(RANKS), RANKS);
	for (rank = 0; rank < RANKS - 1; rank++) {
		args[rank] = (struct rank_arg){ .fd = view.fd, .rank = rank };
		pids[rank] = spawn(join_only, &args[rank]);
	}
	for (rank = 0; rank < RANKS - 1; rank++)
		until(&view.ranks[rank].commit, 1);
	kill_and_reap(pids[VICTIM]);
	for (rank = 0; rank < RANKS - 1; rank++)
		if (rank != VICTIM)
			reap(pids[rank], 0);
	assert_int_equal(view.status->state, NPUWIN_DOMAIN_ABORTED);
	assert_int_equal(view.status->abort_rank, VICTIM);
	assert_int_equal(view.status->rank[VICTIM].state, NPUWIN_RANK_DEAD);
	view_close(&view);
}

static void barrier_gone(struct npuwin_domain *domain)
{
	struct npuwin_error err;
	int rc = npuwin_barrier(domain, far(), &err);

	must(rc == -EPIPE, "%d: %s", rc, err.text);
}

/* The victim does not take part in the barrier that the others wait in. */
static void wait_in_barrier(void *p)
{
	struct rank_arg *arg = p;
	struct npuwin_error err;
	struct npuwin *ctx = open_shm();
	struct npuwin_domain *domain = join_as(ctx, arg, 0, &err);

	if (arg->rank == VICTIM)
		pause();
	barrier_gone(domain);
	npuwin_domain_leave(domain);
	npuwin_close(ctx);
}

static void start_all(struct view *view, struct rank_arg *args, pid_t *pids, void (*run)(void *))
{
	uint32_t rank;

	view_open(view, make_domain(RANKS), RANKS);
	for (rank = 0; rank < RANKS; rank++) {
		args[rank] = (struct rank_arg){ .fd = view->fd, .rank = rank };
		pids[rank] = spawn(run, &args[rank]);
	}
	until(&view->status->state, NPUWIN_DOMAIN_READY);
}

static void test_asleep(void **state)
{
	struct rank_arg args[RANKS];
	pid_t pids[RANKS];
	struct view view;
	uint32_t rank;

	start_all(&view, args, pids, wait_in_barrier);
	for (rank = 0; rank < RANKS; rank++)
		while (rank != VICTIM && !shm_load(&view.status->rank[rank].sleepers))
			sched_yield();
	kill_and_reap(pids[VICTIM]);
	for (rank = 0; rank < RANKS; rank++)
		if (rank != VICTIM)
			reap(pids[rank], 0);
	assert_int_equal(view.status->abort_rank, VICTIM);
	view_close(&view);
}

/* Several at once, neighbours in the ring: the watch goes on around it. */
static void test_many(void **state)
{
	struct rank_arg args[RANKS];
	pid_t pids[RANKS];
	struct view view;
	uint32_t rank;

	start_all(&view, args, pids, wait_in_barrier);
	while (!shm_load(&view.status->rank[3].sleepers))
		sched_yield();
	for (rank = 0; rank < 3; rank++)
		kill(pids[rank], SIGKILL);
	for (rank = 0; rank < 3; rank++)
		reap(pids[rank], SIGKILL);
	reap(pids[3], 0);
	view_close(&view);
}

static void check_exchange(struct npuwin_domain *domain, uint32_t rank)
{
	struct npuwin_error err;
	struct npuwin_buffer *buffer;
	uint32_t to = (rank + 1) % RANKS;
	int32_t seen;

	must(!npuwin_barrier(domain, far(), &err), "%s", err.text);
	must(!npuwin_buffer_alloc(domain, 64, 0, &buffer, &err), "%s", err.text);
	must(!npuwin_barrier(domain, far(), &err), "%s", err.text);
	must(!npuwin_notify(domain, to, buffer, 0, NPUWIN_ADD, 7, NPUWIN_RAIL_DIRECT, &err),
	     "%s", err.text);
	must(!npuwin_wait(domain, buffer, 0, NPUWIN_EQ, 7, far(), &seen, &err), "%s", err.text);
	must(!npuwin_barrier(domain, far(), &err), "%s", err.text);
}

/* The victim does not come to the reset that the others wait in; a successor does. */
static void reset_and_go_on(void *p)
{
	struct rank_arg *arg = p;
	struct npuwin_error err;
	struct npuwin *ctx = open_shm();
	struct npuwin_domain *domain = join_as(ctx, arg, 0, &err);

	if (arg->rank == VICTIM && !(arg->flags & NPUWIN_DOMAIN_REPLACE)) {
		/* What it leaves behind must not reach the successor. */
		memset(domain->ep->window[VICTIM], 0xee, domain->ep->window_size);
		npuwin_domain_abort(domain, ECANCELED);
		pause();
	}
	if (arg->rank != VICTIM) {
		must(npuwin_barrier(domain, far(), &err), "not aborted");
		must(!npuwin_domain_reset(domain, far(), &err), "%s", err.text);
	}
	check_exchange(domain, arg->rank);
	npuwin_domain_leave(domain);
	npuwin_close(ctx);
}

static void test_in_reset(void **state)
{
	struct rank_arg args[RANKS], heir;
	pid_t pids[RANKS], heir_pid;
	struct view view;
	uint32_t rank;

	view_open(&view, make_domain(RANKS), RANKS);
	for (rank = 0; rank < RANKS; rank++) {
		args[rank] = (struct rank_arg){ .fd = view.fd, .rank = rank };
		pids[rank] = spawn(reset_and_go_on, &args[rank]);
	}
	/* It comes early, while the rank is not even vacant. */
	heir = (struct rank_arg){ view.fd, VICTIM, NPUWIN_DOMAIN_REPLACE, 0 };
	until(&view.status->state, NPUWIN_DOMAIN_ABORTED);
	heir_pid = spawn(reset_and_go_on, &heir);
	for (rank = 0; rank < RANKS; rank++)
		if (rank != VICTIM)
			until(&view.ranks[rank].reset, 1);
	kill_and_reap(pids[VICTIM]);
	for (rank = 0; rank < RANKS; rank++)
		if (rank != VICTIM)
			reap(pids[rank], 0);
	reap(heir_pid, 0);
	assert_int_equal(view.status->generation, 1);
	view_close(&view);
}

/* Abort, reset and commit over and over, until the victim is missed. */
static void storm(void *p)
{
	struct rank_arg *arg = p;
	struct npuwin_error err;
	struct npuwin *ctx = open_shm();
	struct npuwin_domain *domain = join_as(ctx, arg, 0, &err);
	const struct npuwin_domain_status *status = domain->ep->status;
	int rc;

	for (;;) {
		if (arg->rank == 0)
			npuwin_domain_abort(domain, ECANCELED);
		npuwin_barrier(domain, far(), &err);
		/* Nobody comes in the victim's place: then the reset has a deadline. */
		rc = npuwin_domain_reset(domain, npuwin_deadline_ms(20), &err);
		if (rc == -ETIMEDOUT && shm_load(&status->rank[VICTIM].state) !=
					NPUWIN_RANK_JOINED)
			break;
		must(!rc || rc == -EPIPE || rc == -ECANCELED || rc == -ETIMEDOUT, "%d: %s", rc,
		     err.text);
	}
	npuwin_domain_leave(domain);
	npuwin_close(ctx);
}

static void test_anywhere(void **state)
{
	struct rank_arg args[RANKS];
	pid_t pids[RANKS];
	struct view view;
	uint32_t rank, round, spin;

	for (round = 0; round < 30; round++) {
		start_all(&view, args, pids, storm);
		for (spin = 0; spin < round * 80; spin++)
			sched_yield();
		kill_and_reap(pids[VICTIM]);
		for (rank = 0; rank < RANKS; rank++)
			if (rank != VICTIM)
				reap(pids[rank], 0);
		view_close(&view);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_forming),
		cmocka_unit_test(test_asleep),
		cmocka_unit_test(test_many),
		cmocka_unit_test(test_in_reset),
		cmocka_unit_test(test_anywhere),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
