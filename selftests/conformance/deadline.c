// SPDX-License-Identifier: MIT
/*
 * Deadlines that expire, aborts, and what a reset makes of them: no credit and no row of
 * before is seen again.
 */
#include "conformance.h"

#define NRANKS	4
#define LATE	2	/* the rank that does not come */

static const struct layout layout = {
	.dtype = NPUWIN_INT16, .max_recv = 4, .ndim_size = 1, .size = { 9 },
};

/* The call on those of the own ranks whose bit is in @ranks; 1 where that is none. */
static int call_some(struct party *p, struct set *sets, uint32_t ranks, int64_t deadline_ns,
		     struct npuwin_error *err)
{
	struct npuwin_domain *domains[NRANKS];
	struct npuwin_a2av ops[NRANKS];
	uint32_t i, n = 0;

	for (i = 0; i < p->n; i++) {
		if (!(ranks & 1U << p->ranks[i].rank))
			continue;
		domains[n] = p->ranks[i].domain;
		ops[n++] = sets[i].op;
	}
	if (!n)
		return 1;
	if (p->cfg->form == FORM_GROUP)
		return npuwin_all_to_all_v_group(domains, ops, n, deadline_ns, NULL, err);
	return npuwin_all_to_all_v(domains[0], &ops[0], deadline_ns, NULL, err);
}

static void fill_all(struct party *p, struct set *sets, uint64_t seed)
{
	uint32_t i;

	for (i = 0; i < p->n; i++)
		set_fill(&sets[i], seed, count_random);
	party_sync(p);
}

/* After the reset nothing arrives any more, and calls work. */
static void recover(struct party *p, struct set *sets, uint64_t seed)
{
	uint32_t i;

	party_reset(p);
	for (i = 0; i < p->n; i++)
		set_settled(&sets[i]);
	fill_all(p, sets, seed);
	party_barrier(p);
	for (i = 0; i < p->n; i++)
		set_unmoved(&sets[i], seed, count_random);
	party_sync(p);
	party_exchange(p, sets, seed + 1, count_random);
	party_exchange(p, sets, seed + 2, count_random);
}

#define FLAG_TIMEDOUT	FLAG_USER
/* Who is not late has to come within it, on a busy machine too. */
#define SOON_MS		250

/* Whose own deadline it was says who is late; flag @flag counts them. */
static void check_late(struct party *p, uint32_t flag, int ret, const struct npuwin_error *err)
{
	char late[16];

	if (ret == -ETIMEDOUT) {
		snprintf(late, sizeof(late), "rank %d", err->peer);
		CHECK_ERR(ret, -ETIMEDOUT, err, late, "expected", "1", "0");
		flag_add(p->shared, flag, 1);
	} else {
		CHECK_ERR(ret, -ECANCELED, err, "rank");
	}
}

/* One rank does not call. */
static void expires_party(struct party *p)
{
	struct npuwin_error err;
	struct set sets[NRANKS];
	uint32_t i, round;
	int64_t deadline;
	int ret;

	party_alloc(p, &layout, sets);
	for (round = 0; round < 3; round++) {
		fill_all(p, sets, round);
		deadline = npuwin_deadline_ms(round == 2 ? 0 : SOON_MS);
		err = fresh_error();
		ret = call_some(p, sets, ~(1U << LATE), deadline, &err);
		if (ret != 1) {
			check_late(p, FLAG_TIMEDOUT + round, ret, &err);
			CHECK(ret == -ECANCELED || npuwin_deadline_ms(0) >= deadline);
			/* Without any time the others need not have come either. */
			CHECK(ret == -ECANCELED || round == 2 || err.peer == LATE);
		}
		party_sync(p);
		CHECK(flag_get(p->shared, FLAG_TIMEDOUT + round));
		for (i = 0; i < p->n; i++)
			set_unmoved(&sets[i], round, count_random);

		/* Nobody can use it now, the late rank neither. */
		err = fresh_error();
		CHECK_ERR(party_call(p, sets, far(), NULL, &err), -ECANCELED, &err, "rank");
		party_sync(p);
		for (i = 0; i < p->n; i++)
			set_unmoved(&sets[i], round, count_random);
		recover(p, sets, 10 + 10 * round);
	}
	party_free(p, sets);
}

/* Only one rank has a deadline: it ends the call of the others too. */
static void one_deadline_party(struct party *p)
{
	struct npuwin_error err = fresh_error();
	struct set sets[NRANKS];
	uint32_t rank = p->ranks[0].rank;
	int ret;

	party_alloc(p, &layout, sets);
	fill_all(p, sets, 1);
	if (rank != LATE) {
		ret = party_call(p, sets, rank ? NPUWIN_NO_DEADLINE : npuwin_deadline_ms(100),
				 NULL, &err);
		if (rank)
			CHECK_ERR(ret, -ECANCELED, &err, "rank 0");
		else
			CHECK_ERR(ret, -ETIMEDOUT, &err, "rank 2");
	}
	party_sync(p);
	set_unmoved(&sets[0], 1, count_random);
	recover(p, sets, 10);
	party_free(p, sets);
}

/* Some ranks call, others do not, at random; large rows, so that some are on their way. */
static void storm_party(struct party *p)
{
	const struct layout large = {
		.dtype = NPUWIN_UINT8, .max_recv = 8, .ndim_size = 1, .size = { 2048 },
	};
	uint64_t random = 7, own = 100 + p->index;
	uint32_t round, who;
	struct npuwin_error err;
	struct set sets[NRANKS];
	int ret;

	party_alloc(p, &large, sets);
	for (round = 0; round < times(p->cfg, 25, 6); round++) {
		who = rnd(&random) % 15;
		fill_all(p, sets, round);
		dawdle(&own, 200);
		ret = call_some(p, sets, who, npuwin_deadline_ms(rnd(&own) % 8), &err);
		CHECK(ret == 1 || ret == -ETIMEDOUT || ret == -ECANCELED);
		party_sync(p);
		if (!who)
			continue;
		recover(p, sets, 1000 + 10 * round);
	}
	party_free(p, sets);
}

static void barrier_party(struct party *p)
{
	struct npuwin_error err = fresh_error();
	int ret;

	party_sync(p);
	if (p->ranks[0].rank != LATE) {
		ret = npuwin_barrier(p->ranks[0].domain, npuwin_deadline_ms(SOON_MS), &err);
		check_late(p, FLAG_TIMEDOUT, ret, &err);
		CHECK(ret == -ECANCELED || err.peer == LATE);
	}
	party_sync(p);
	CHECK(flag_get(p->shared, FLAG_TIMEDOUT));
	err = fresh_error();
	CHECK_ERR(npuwin_barrier(p->ranks[0].domain, far(), &err), -ECANCELED, &err, "rank");
	party_sync(p);
	party_reset(p);
	party_barrier(p);
	party_barrier(p);
}

/* An abort ends calls, barriers and waits, and names who did it. */
static void abort_party(struct party *p)
{
	struct npuwin_error err;
	struct rank *r = &p->ranks[0];
	struct set sets[NRANKS];
	uint32_t round;
	int ret;

	party_alloc(p, &layout, sets);
	for (round = 0; round < 3; round++) {
		fill_all(p, sets, round);
		err = fresh_error();
		if (r->rank == 0) {
			npuwin_domain_abort(r->domain, EIO);
			ret = -ECANCELED;
		} else if (round == 0) {
			ret = party_call(p, sets, NPUWIN_NO_DEADLINE, NULL, &err);
		} else if (round == 1) {
			ret = npuwin_barrier(r->domain, NPUWIN_NO_DEADLINE, &err);
		} else {
			ret = npuwin_wait(r->domain, sets[0].buffer[RECV], GUARD, NPUWIN_EQ, 1,
					  NPUWIN_NO_DEADLINE, NULL, &err);
		}
		if (r->rank)
			CHECK_ERR(ret, -ECANCELED, &err, "rank 0");
		party_sync(p);
		set_unmoved(&sets[0], round, count_random);
		recover(p, sets, 10 + 10 * round);
	}
	party_free(p, sets);
}

static void abort_group_party(struct party *p)
{
	struct npuwin_error err = fresh_error();
	struct set sets[NRANKS];

	party_alloc(p, &layout, sets);
	fill_all(p, sets, 1);
	npuwin_domain_abort(p->ranks[1].domain, EIO);
	CHECK_ERR(party_call(p, sets, NPUWIN_NO_DEADLINE, NULL, &err), -ECANCELED, &err,
		  "rank 1");
	recover(p, sets, 10);
	party_free(p, sets);
}

/* A reset that not all call expires, names who is missing, and can be called again. */
static void reset_party(struct party *p)
{
	struct npuwin_error err = fresh_error();
	struct rank *r = &p->ranks[0];
	struct set sets[NRANKS];

	party_alloc(p, &layout, sets);
	CHECK_OK(npuwin_domain_reset(r->domain, npuwin_deadline_ms(0), &err), &err);
	party_sync(p);
	party_exchange(p, sets, 1, count_random);
	/* As if a call had ended between its credits. */
	*(int32_t *)set_ptr(&sets[0], SIGNAL) = 5;
	if (r->rank == 3)
		npuwin_domain_abort(r->domain, EIO);
	party_sync(p);
	if (r->rank != LATE) {
		err = fresh_error();
		CHECK_ERR(npuwin_domain_reset(r->domain, npuwin_deadline_ms(100), &err),
			  -ETIMEDOUT, &err, "rank");
		CHECK(err.peer >= 0 && err.peer < NRANKS && err.peer != (int32_t)r->rank);
	}
	party_sync(p);
	recover(p, sets, 10);
	party_free(p, sets);
}

/* Requests that are in flight when the domain is reset are ended. */
static void in_flight_party(struct party *p)
{
	struct npuwin_request *requests[3] = { NULL };
	struct npuwin_error err = fresh_error();
	struct rank *r = &p->ranks[0];
	struct set sets[3];
	uint32_t k;

	for (k = 0; k < 3; k++) {
		party_alloc(p, &layout, &sets[k]);
		set_fill(&sets[k], k, count_full);
	}
	party_sync(p);
	for (k = 0; r->rank != LATE && k < 3; k++)
		CHECK_OK(npuwin_all_to_all_v_start(r->domain, &sets[k].op, NPUWIN_NO_DEADLINE,
						   &requests[k], &err), &err);
	party_sync(p);
	if (r->rank == LATE)
		npuwin_domain_abort(r->domain, EIO);
	party_sync(p);
	party_reset(p);
	for (k = 0; r->rank != LATE && k < 3; k++) {
		err = fresh_error();
		CHECK_ERR(npuwin_request_wait(requests[k], NPUWIN_NO_DEADLINE, NULL, &err),
			  -ECANCELED, &err, NULL);
		npuwin_request_free(requests[k]);
	}
	for (k = 0; k < 3; k++) {
		set_unmoved(&sets[k], k, count_full);
		set_settled(&sets[k]);
	}
	party_sync(p);
	for (k = 0; k < 3; k++)
		party_exchange(p, &sets[k], 10 + k, count_random);
}

typedef void (*party_fn)(struct party *p);

static void deadline_run(const struct config *cfg)
{
	const party_fn *fn = cfg->data;
	const struct run run = { .nranks = NRANKS, .fn = *fn };

	run_ranks(cfg, &run);
}

#define CASE(text, fn, axes)	{ text, deadline_run, axes, 0, &(const party_fn){ fn } }
#define ONE_RANK_EACH		(A_RAILS | A_THREADS | A_PROCESS_EACH | A_MODES | A_PAIRS)

static const struct test_case cases[] = {
	CASE("a deadline expires, reset, a correct call", expires_party, A_ALL),
	CASE("one deadline ends the call of all", one_deadline_party, ONE_RANK_EACH),
	CASE("deadlines expire at random", storm_party, A_ALL | A_PAIRS),
	CASE("a barrier's deadline expires", barrier_party, A_THREADS | A_PROCESS_EACH),
	CASE("abort", abort_party, ONE_RANK_EACH),
	CASE("abort before a group's call", abort_group_party, A_RAILS | A_GROUP | A_MODES),
	CASE("a reset expires and is called again", reset_party, ONE_RANK_EACH),
	CASE("requests in flight at a reset", in_flight_party, ONE_RANK_EACH),
};

const struct suite suite_deadline = { cases, ARRAY_SIZE(cases) };
