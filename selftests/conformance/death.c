// SPDX-License-Identifier: MIT
/*
 * A rank that is killed before, during and after its pushes. None of the others has a
 * deadline: what does not end at once is ended by the watchdog. Then the survivors reset
 * the domain, a successor joins, and calls work.
 */
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conformance.h"

#define NRANKS		4
#define VICTIM		1
#define FLAG_ENTER	(FLAG_USER + 0)	/* parties that are about to wait */
#define FLAG_VICTIM	(FLAG_USER + 1)	/* the victim is there */
#define FLAG_NEVER	(FLAG_USER + 2)

static const struct layout small = {
	.dtype = NPUWIN_INT16, .max_recv = 4, .ndim_size = 1, .size = { 9 },
};

static const struct layout large = {
	.dtype = NPUWIN_UINT8, .max_recv = 16, .ndim_size = 1, .size = { 16384 },
};

static bool is_victim(const struct party *p)
{
	return p->index == VICTIM;
}

static void die(void)
{
	raise(SIGKILL);
}

/* The domain is of no use until it is reset, and everything says why. */
static void check_dead(struct party *p, struct set *sets)
{
	struct npuwin_error err = fresh_error();
	struct npuwin_request *request;
	int ret;

	CHECK_ERR(party_call(p, sets, NPUWIN_NO_DEADLINE, NULL, &err), -EPIPE, &err, "rank 1");
	CHECK_EQ(err.peer, VICTIM);
	err = fresh_error();
	CHECK_ERR(npuwin_barrier(p->ranks[0].domain, NPUWIN_NO_DEADLINE, &err), -EPIPE, &err,
		  "rank 1");
	err = fresh_error();
	ret = npuwin_all_to_all_v_start(p->ranks[0].domain, &sets[0].op, NPUWIN_NO_DEADLINE,
					&request, &err);
	if (!ret) {
		ret = npuwin_request_wait(request, NPUWIN_NO_DEADLINE, NULL, &err);
		npuwin_request_free(request);
	}
	CHECK_ERR(ret, -EPIPE, &err, "rank 1");
	err = fresh_error();
	CHECK_ERR(npuwin_notify(p->ranks[0].domain, VICTIM, sets[0].buffer[SIGNAL], 0, NPUWIN_ADD,
				1, p->cfg->rail, &err), -EPIPE, &err, "rank 1");
	CHECK_EQ(npuwin_wait(p->ranks[0].domain, sets[0].buffer[SIGNAL], GUARD, NPUWIN_EQ, 99,
			     NPUWIN_NO_DEADLINE, NULL, &err), -EPIPE);
}

/* From the reset on, survivors and successor do the same. */
static void recover(struct party *p, struct set *sets, const struct layout *layout)
{
	uint32_t i;
	uint64_t seed;

	if (p->successor)
		party_alloc(p, layout, sets);
	else
		party_reset(p);
	for (i = 0; i < p->n; i++) {
		set_settled(&sets[i]);
		set_fill(&sets[i], 400, count_random);
	}
	party_sync(p);
	party_barrier(p);
	for (i = 0; i < p->n; i++)
		set_unmoved(&sets[i], 400, count_random);
	party_sync(p);
	for (seed = 500; seed < 503; seed++)
		party_exchange(p, sets, seed, count_random);
	party_free(p, sets);
}

static void small_successor(struct party *p)
{
	struct set sets[2];

	recover(p, sets, &small);
}

static void large_successor(struct party *p)
{
	struct set sets[2];

	recover(p, sets, &large);
}

static void before_party(struct party *p)
{
	struct set set;

	party_alloc(p, &small, &set);
	party_exchange(p, &set, 1, count_random);
	set_fill(&set, 2, count_full);
	party_sync(p);
	if (is_victim(p))
		die();
	flag_wait(p->shared, FLAG_DEAD, 1);
	check_dead(p, &set);
	set_unmoved(&set, 2, count_full);
	recover(p, &set, &small);
}

static void before_run(const struct config *cfg)
{
	const struct run run = {
		.nranks = NRANKS, .fn = before_party, .dies = true, .victim = VICTIM,
		.successor = small_successor,
	};

	run_ranks(cfg, &run);
}

/* The others are asleep in the call when it happens. */
static void waiting_party(struct party *p)
{
	struct npuwin_error err = fresh_error();
	struct set set;

	party_alloc(p, &small, &set);
	party_exchange(p, &set, 1, count_random);
	set_fill(&set, 2, count_full);
	party_sync(p);
	if (is_victim(p)) {
		if (p->cfg->arg)
			raise(SIGSTOP);
		flag_wait(p->shared, FLAG_NEVER, 1);
	}
	flag_add(p->shared, FLAG_ENTER, 1);
	CHECK_ERR(party_call(p, &set, NPUWIN_NO_DEADLINE, NULL, &err), -EPIPE, &err, "rank 1");
	CHECK_EQ(err.peer, VICTIM);
	CHECK_EQ(err.rank, p->ranks[0].rank);
	set_unmoved(&set, 2, count_full);
	check_dead(p, &set);
	recover(p, &set, &small);
}

static void kill_when_asleep(struct shared *shared, const pid_t *pids)
{
	uint32_t i;

	flag_wait(shared, FLAG_ENTER, NRANKS - 1);
	for (i = 0; i < NRANKS; i++)
		if (i != VICTIM)
			wait_asleep(pids[i]);
	kill(pids[VICTIM], SIGKILL);
}

static void waiting_run(const struct config *cfg)
{
	const struct run run = {
		.nranks = NRANKS, .fn = waiting_party, .dies = true, .victim = VICTIM,
		.control = kill_when_asleep, .successor = small_successor,
	};

	run_ranks(cfg, &run);
}

/* Waits for a cell and for a request's descriptor end as well. */
static void sleepers_party(struct party *p)
{
	struct npuwin_error err = fresh_error();
	struct npuwin_request *request;
	struct pollfd pfd = { .events = POLLIN };
	struct set set;

	party_alloc(p, &small, &set);
	set_fill(&set, 2, count_full);
	party_sync(p);
	if (is_victim(p))
		flag_wait(p->shared, FLAG_NEVER, 1);
	if (p->index % 2) {
		CHECK_OK(npuwin_all_to_all_v_start(p->ranks[0].domain, &set.op,
						   NPUWIN_NO_DEADLINE, &request, &err), &err);
		pfd.fd = npuwin_request_fd(request, &err);
		CHECK_OK(pfd.fd, &err);
		flag_add(p->shared, FLAG_ENTER, 1);
		CHECK_EQ(poll(&pfd, 1, -1), 1);
		err = fresh_error();
		CHECK_ERR(npuwin_request_test(request, NULL, &err), -EPIPE, &err, "rank 1");
		CHECK_EQ(err.peer, VICTIM);
		npuwin_request_free(request);
	} else {
		flag_add(p->shared, FLAG_ENTER, 1);
		CHECK_ERR(npuwin_wait(p->ranks[0].domain, set.buffer[RECV], GUARD, NPUWIN_EQ, 1,
				      NPUWIN_NO_DEADLINE, NULL, &err), -EPIPE, &err, "rank 1");
		CHECK_EQ(err.peer, VICTIM);
	}
	recover(p, &set, &small);
}

static void sleepers_run(const struct config *cfg)
{
	const struct run run = {
		.nranks = NRANKS, .fn = sleepers_party, .dies = true, .victim = VICTIM,
		.control = kill_when_asleep, .successor = small_successor,
	};

	run_ranks(cfg, &run);
}

/* Whatever has come is right, and nothing else was touched. */
static void check_partial(const struct set *set, uint64_t seed)
{
	const uint8_t *target = set_ptr(set, TARGET);
	const uint8_t *all = npuwin_buffer_ptr(set->buffer[TARGET]);
	uint8_t *want = malloc(set->row);
	uint32_t s, i;
	uint64_t k;

	CHECK(want);
	for (s = 0; s < set->nranks; s++)
		for (i = 0; i < set->max_recv; i++) {
			const uint8_t *row = target + (s * set->max_recv + i) * set->row;

			row_fill(want, set->row, seed, s, set->rank, i);
			for (k = 0; k < set->row; k++)
				if (row[k] != want[k] && row[k] != POISON_BYTE)
					FAIL("rank %u: row %u from %u: %#x is neither sent nor left",
					     set->rank, i, s, row[k]);
		}
	check_filled("before the target", all, GUARD_BYTE, GUARD);
	check_filled("after the target", target + set->bytes[TARGET], GUARD_BYTE, GUARD);
	free(want);
}

/* The victim is killed at some point of its call: the call of a peer fails or is whole. */
static void during_party(struct party *p)
{
	struct npuwin_error err = fresh_error();
	struct set set;
	int ret;

	party_alloc(p, &large, &set);
	set_fill(&set, 2, count_full);
	party_sync(p);
	if (is_victim(p))
		flag_add(p->shared, FLAG_VICTIM, 1);
	ret = party_call(p, &set, NPUWIN_NO_DEADLINE, NULL, &err);
	if (is_victim(p))
		flag_wait(p->shared, FLAG_NEVER, 1);
	if (ret) {
		CHECK_ERR(ret, -EPIPE, &err, "rank 1");
		CHECK_EQ(err.peer, VICTIM);
		check_partial(&set, 2);
	} else {
		set_verify(&set, 2, count_full);
		flag_wait(p->shared, FLAG_DEAD, 1);
	}
	check_dead(p, &set);
	recover(p, &set, &large);
}

static uint64_t during_random;

static void kill_at_random(struct shared *shared, const pid_t *pids)
{
	flag_wait(shared, FLAG_VICTIM, 1);
	dawdle(&during_random, 3000);
	kill(pids[VICTIM], SIGKILL);
}

static void during_run(const struct config *cfg)
{
	uint32_t k;
	const struct run run = {
		.nranks = 3, .window = 4 * MIB, .dies = true, .fn = during_party,
		.victim = VICTIM, .control = kill_at_random, .successor = large_successor,
	};

	for (k = 0; k < times(cfg, 12, 4); k++)
		run_ranks(cfg, &run);
}

/* Killed by a peer which sees the first row of the victim arrive. */
static void midway_party(struct party *p)
{
	struct npuwin_error err = fresh_error();
	struct npuwin_request *request;
	const uint8_t *first;
	struct set set;
	int ret = -EAGAIN;

	party_alloc(p, &large, &set);
	set_fill(&set, 2, count_full);
	party_sync(p);
	if (is_victim(p)) {
		flag_add(p->shared, FLAG_VICTIM, getpid());
		party_call(p, &set, NPUWIN_NO_DEADLINE, NULL, &err);
		flag_wait(p->shared, FLAG_NEVER, 1);
	}
	flag_wait(p->shared, FLAG_VICTIM, 1);
	first = (uint8_t *)set_ptr(&set, TARGET) + VICTIM * large.max_recv * set.row;
	CHECK_OK(npuwin_all_to_all_v_start(p->ranks[0].domain, &set.op, NPUWIN_NO_DEADLINE,
					   &request, &err), &err);
	while (__atomic_load_n(first, __ATOMIC_ACQUIRE) == POISON_BYTE && ret == -EAGAIN)
		ret = npuwin_request_test(request, NULL, &err);
	kill(flag_get(p->shared, FLAG_VICTIM), SIGKILL);
	ret = npuwin_request_wait(request, NPUWIN_NO_DEADLINE, NULL, &err);
	npuwin_request_free(request);
	if (ret) {
		CHECK_ERR(ret, -EPIPE, &err, "rank 1");
		check_partial(&set, 2);
	} else {
		set_verify(&set, 2, count_full);
		flag_wait(p->shared, FLAG_DEAD, 1);
	}
	check_dead(p, &set);
	recover(p, &set, &large);
}

static void midway_run(const struct config *cfg)
{
	uint32_t k;
	const struct run run = {
		.nranks = 3, .window = 4 * MIB, .dies = true, .fn = midway_party,
		.victim = VICTIM, .successor = large_successor,
	};

	for (k = 0; k < times(cfg, 6, 2); k++)
		run_ranks(cfg, &run);
}

/* What came before the death stays. */
static void after_party(struct party *p)
{
	struct npuwin_error err = fresh_error();
	struct set set;

	party_alloc(p, &small, &set);
	set_fill(&set, 1, count_random);
	CHECK_OK(party_call(p, &set, NPUWIN_NO_DEADLINE, NULL, &err), &err);
	party_sync(p);
	if (is_victim(p))
		die();
	flag_wait(p->shared, FLAG_DEAD, 1);
	set_verify(&set, 1, count_random);
	set_settled(&set);
	check_dead(p, &set);
	set_verify(&set, 1, count_random);
	recover(p, &set, &small);
}

static void after_run(const struct config *cfg)
{
	const struct run run = {
		.nranks = NRANKS, .fn = after_party, .dies = true, .victim = VICTIM,
		.successor = small_successor,
	};

	run_ranks(cfg, &run);
}

/* A process with two ranks: both are gone, and both come back. */
static void two_party(struct party *p)
{
	struct npuwin_error err = fresh_error();
	struct set sets[2];

	party_alloc(p, &small, sets);
	party_exchange(p, sets, 1, count_random);
	party_sync(p);
	if (is_victim(p))
		die();
	err = fresh_error();
	CHECK_ERR(party_call(p, sets, NPUWIN_NO_DEADLINE, NULL, &err), -EPIPE, &err, "rank");
	CHECK(err.peer == 2 || err.peer == 3);
	recover(p, sets, &small);
}

static void two_run(const struct config *cfg)
{
	const struct run run = {
		.nranks = 6, .per_process = 2, .fn = two_party, .dies = true,
		.victim = VICTIM, .successor = small_successor,
	};

	run_ranks(cfg, &run);
}

/* Killed while it waits for the domain to be formed. */
static void joining_party(struct party *p)
{
	const int *fd = p->arg;
	struct npuwin_error err = fresh_error();
	struct rank *r = &p->ranks[0];
	struct npuwin_domain_attr attr = {
		.nranks = p->nranks, .rank = r->rank, .window_size = p->window, .device = -1,
		.deadline_ns = NPUWIN_NO_DEADLINE,
	};

	if (p->index == 2) {
		flag_wait(p->shared, FLAG_DEAD, 1);
		return;
	}
	flag_add(p->shared, FLAG_ENTER, 1);
	CHECK_ERR(npuwin_domain_join_fd(r->ctx, *fd, &attr, &r->domain, &err), -EPIPE, &err,
		  "rank 1");
	CHECK_EQ(err.peer, VICTIM);
	CHECK(!r->domain);
}

static void kill_joining(struct shared *shared, const pid_t *pids)
{
	flag_wait(shared, FLAG_ENTER, 2);
	wait_asleep(pids[0]);
	wait_asleep(pids[VICTIM]);
	kill(pids[VICTIM], SIGKILL);
}

static void joining_run(const struct config *cfg)
{
	struct npuwin_error err = fresh_error();
	struct npuwin_domain_attr attr = { .nranks = 3, .window_size = MIB };
	struct npuwin *ctx;
	int fd;
	const struct run run = {
		.nranks = 3, .bare = true, .fn = joining_party, .dies = true,
		.victim = VICTIM, .control = kill_joining, .arg = &fd,
	};

	CHECK_OK(npuwin_open(cfg->provider, &ctx, &err), &err);
	fd = npuwin_domain_create_fd(ctx, &attr, &err);
	CHECK_OK(fd, &err);
	run_ranks(cfg, &run);
	close(fd);
	npuwin_close(ctx);
}

#define AXES	(A_RAILS | A_PROCESS_EACH | A_MODES)

static const struct test_case cases[] = {
	{ "killed before the call", before_run, AXES, 0, NULL },
	{ "killed while others sleep in the call", waiting_run, AXES, 0, NULL },
	{ "killed while stopped", waiting_run, AXES | A_PAIRS, 1, NULL },
	{ "killed while others wait and poll", sleepers_run, AXES | A_PAIRS, 0, NULL },
	{ "killed at a random point of the call", during_run, AXES, 0, NULL },
	{ "killed when its first row arrives", midway_run, AXES, 0, NULL },
	{ "killed after the call", after_run, AXES, 0, NULL },
	{ "two ranks killed at once", two_run, AXES | A_PAIRS, 0, NULL },
	{ "killed while joining", joining_run, A_PROCESSES, 0, NULL },
};

const struct suite suite_death = { cases, ARRAY_SIZE(cases) };
