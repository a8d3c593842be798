// SPDX-License-Identifier: MIT
/*
 * all_to_all_v as a request: started, looked at, waited for, polled, several at once, and
 * given up.
 */
#include <poll.h>
#include <sched.h>

#include "conformance.h"

#define NRANKS	4
#define DEPTH	8

static const struct layout layout = {
	.dtype = NPUWIN_INT16, .max_recv = 4, .ndim_size = 1, .size = { 9 },
};

/* The operands' description is not needed after the start. */
static struct npuwin_request *start(const struct rank *r, const struct set *set)
{
	struct npuwin_error err = fresh_error();
	struct npuwin_request *request = NULL;
	struct npuwin_a2av op = set->op;

	CHECK_OK(npuwin_all_to_all_v_start(r->domain, &op, far(), &request, &err), &err);
	memset(&op, 0x5a, sizeof(op));
	CHECK(request);
	return request;
}

/* Look at all of them in turn until all are complete. */
static void test_all(struct npuwin_request **requests, uint32_t n,
		     struct npuwin_a2av_result *results)
{
	struct npuwin_error err = fresh_error();
	uint32_t i, left = n;
	bool done[MAX_TEST_RANKS] = { false };
	int ret;

	while (left) {
		for (i = 0; i < n; i++) {
			if (done[i])
				continue;
			ret = npuwin_request_test(requests[i], results ? &results[i] : NULL,
						  &err);
			if (ret == -EAGAIN)
				continue;
			CHECK_OK(ret, &err);
			done[i] = true;
			left--;
		}
		sched_yield();
	}
}

static void verify_all(struct party *p, struct set *sets, uint64_t seed)
{
	uint32_t i;

	for (i = 0; i < p->n; i++)
		set_verify(&sets[i], seed, count_random);
	party_sync(p);
	for (i = 0; i < p->n; i++)
		set_settled(&sets[i]);
	party_sync(p);
}

static void test_party(struct party *p)
{
	struct npuwin_request *requests[NRANKS] = { NULL };
	struct npuwin_a2av_result results[NRANKS];
	struct set sets[NRANKS];
	uint64_t seed;
	uint32_t i;

	party_alloc(p, &layout, sets);
	for (seed = 0; seed < 10; seed++) {
		memset(results, 0, sizeof(results));
		for (i = 0; i < p->n; i++) {
			set_fill(&sets[i], seed, count_random);
			requests[i] = start(&p->ranks[i], &sets[i]);
		}
		test_all(requests, p->n, results);
		for (i = 0; i < p->n; i++) {
			CHECK_EQ(results[i].max_recv, layout.max_recv);
			CHECK_EQ(npuwin_request_test(requests[i], NULL, NULL), 0);
			CHECK_EQ(npuwin_request_wait(requests[i], 0, NULL, NULL), 0);
			npuwin_request_free(requests[i]);
		}
		verify_all(p, sets, seed);
	}
	party_free(p, sets);
}

static void wait_party(struct party *p)
{
	struct npuwin_error err = fresh_error();
	struct npuwin_request *request;
	struct npuwin_a2av_result result = { 0 };
	struct set set;
	uint64_t seed;

	party_alloc(p, &layout, &set);
	for (seed = 0; seed < 10; seed++) {
		set_fill(&set, seed, count_random);
		request = start(&p->ranks[0], &set);
		CHECK_OK(npuwin_request_wait(request, far(), &result, &err), &err);
		CHECK_EQ(result.max_recv, layout.max_recv);
		npuwin_request_free(request);
		verify_all(p, &set, seed);
	}
	party_free(p, &set);
}

/* One rank starts alone, so its request cannot be complete before the others come. */
static void early_party(struct party *p)
{
	struct npuwin_error err = fresh_error();
	struct npuwin_request *requests[NRANKS] = { NULL };
	struct set sets[NRANKS];
	struct pollfd pfd = { .events = POLLIN };
	uint32_t i;

	party_alloc(p, &layout, sets);
	for (i = 0; i < p->n; i++) {
		set_fill(&sets[i], 3, count_random);
		if (p->ranks[i].rank)
			continue;
		requests[i] = start(&p->ranks[i], &sets[i]);
		CHECK_EQ(npuwin_request_test(requests[i], NULL, &err), -EAGAIN);
		CHECK_EQ(npuwin_request_wait(requests[i], 0, NULL, &err), -EAGAIN);
		CHECK_EQ(npuwin_request_wait(requests[i], npuwin_deadline_ms(20), NULL, &err),
			 -EAGAIN);
		pfd.fd = npuwin_request_fd(requests[i], &err);
		CHECK_OK(pfd.fd, &err);
		CHECK_EQ(npuwin_request_fd(requests[i], &err), pfd.fd);
		CHECK_EQ(poll(&pfd, 1, 0), 0);
		/* Before the test, which orders it before what the library writes later. */
		set_unmoved(&sets[i], 3, count_random);
		CHECK_EQ(npuwin_request_test(requests[i], NULL, &err), -EAGAIN);
	}
	party_sync(p);
	for (i = 0; i < p->n; i++)
		if (p->ranks[i].rank)
			requests[i] = start(&p->ranks[i], &sets[i]);
	test_all(requests, p->n, NULL);
	for (i = 0; i < p->n; i++)
		npuwin_request_free(requests[i]);
	verify_all(p, sets, 3);
	party_free(p, sets);
}

static void poll_party(struct party *p)
{
	struct npuwin_error err = fresh_error();
	struct npuwin_request *requests[NRANKS];
	struct set sets[NRANKS];
	struct pollfd pfd;
	uint64_t seed;
	uint32_t i;

	party_alloc(p, &layout, sets);
	for (seed = 0; seed < 10; seed++) {
		for (i = 0; i < p->n; i++) {
			set_fill(&sets[i], seed, count_random);
			requests[i] = start(&p->ranks[i], &sets[i]);
			CHECK_OK(npuwin_request_fd(requests[i], &err), &err);
		}
		for (i = 0; i < p->n; i++) {
			pfd.fd = npuwin_request_fd(requests[i], &err);
			pfd.events = POLLIN;
			CHECK_EQ(poll(&pfd, 1, 60000), 1);
			CHECK(pfd.revents & POLLIN);
			CHECK_OK(npuwin_request_test(requests[i], NULL, &err), &err);
			CHECK_EQ(poll(&pfd, 1, 0), 1);
			npuwin_request_free(requests[i]);
		}
		verify_all(p, sets, seed);
	}
	party_free(p, sets);
}

/* Several in flight, on one signal; the last is complete after all others are. */
static void depth_party(struct party *p)
{
	struct npuwin_request *requests[DEPTH][NRANKS];
	struct npuwin_error err = fresh_error();
	struct set sets[DEPTH][NRANKS];
	uint32_t i, k, round;

	for (k = 0; k < DEPTH; k++) {
		party_alloc(p, &layout, sets[k]);
		for (i = 0; i < p->n; i++)
			sets[k][i].op.signal = sets[0][i].op.signal;
	}
	for (round = 0; round < times(p->cfg, 20, 5); round++) {
		for (k = 0; k < DEPTH; k++)
			for (i = 0; i < p->n; i++) {
				set_fill(&sets[k][i], round * DEPTH + k, count_random);
				requests[k][i] = start(&p->ranks[i], &sets[k][i]);
			}
		test_all(requests[DEPTH - 1], p->n, NULL);
		for (k = DEPTH; k--;)
			for (i = 0; i < p->n; i++) {
				CHECK_OK(npuwin_request_test(requests[k][i], NULL, &err), &err);
				npuwin_request_free(requests[k][i]);
			}
		for (k = 0; k < DEPTH; k++)
			verify_all(p, sets[k], round * DEPTH + k);
		for (i = 0; i < p->n; i++)
			set_settled(&sets[0][i]);
	}
}

/* Requests, then a blocking call and a barrier behind them. */
static void behind_party(struct party *p)
{
	struct npuwin_request *requests[2];
	struct npuwin_error err = fresh_error();
	struct set sets[3];
	uint32_t k, round;

	for (k = 0; k < 3; k++)
		party_alloc(p, &layout, &sets[k]);
	for (round = 0; round < 10; round++) {
		for (k = 0; k < 3; k++)
			set_fill(&sets[k], round * 3 + k, count_random);
		for (k = 0; k < 2; k++)
			requests[k] = start(&p->ranks[0], &sets[k]);
		CHECK_OK(npuwin_all_to_all_v(p->ranks[0].domain, &sets[2].op, far(), NULL, &err),
			 &err);
		party_barrier(p);
		for (k = 0; k < 2; k++) {
			CHECK_OK(npuwin_request_test(requests[k], NULL, &err), &err);
			npuwin_request_free(requests[k]);
		}
		for (k = 0; k < 3; k++)
			verify_all(p, &sets[k], round * 3 + k);
	}
}

/* A request that is given up ends the domain for all, until it is reset. */
static void free_party(struct party *p)
{
	struct npuwin_error err = fresh_error();
	struct npuwin_request *request;
	struct set sets[NRANKS];
	uint32_t i, round;

	party_alloc(p, &layout, sets);
	for (round = 0; round < 3; round++) {
		for (i = 0; i < p->n; i++)
			set_fill(&sets[i], round, count_random);
		party_sync(p);
		if (p->ranks[0].rank == 0) {
			request = start(&p->ranks[0], &sets[0]);
			if (round == 1)
				CHECK_OK(npuwin_request_fd(request, &err), &err);
			npuwin_request_free(request);
		}
		party_sync(p);
		err = fresh_error();
		CHECK_ERR(party_call(p, sets, NPUWIN_NO_DEADLINE, NULL, &err), -ECANCELED, &err,
			  "rank 0");
		party_sync(p);
		for (i = 0; i < p->n; i++)
			set_unmoved(&sets[i], round, count_random);
		party_reset(p);
		party_exchange(p, sets, round + 100, count_random);
	}
	party_free(p, sets);
}

/* Left with a request in flight: it is freed with the membership. */
static void leave_party(struct party *p)
{
	struct npuwin_error err = fresh_error();
	struct set sets[NRANKS];
	uint32_t i;

	party_alloc(p, &layout, sets);
	for (i = 0; i < p->n; i++)
		set_fill(&sets[i], 1, count_random);
	if (p->ranks[0].rank == 2) {
		start(&p->ranks[0], &sets[0]);
		npuwin_domain_leave(p->ranks[0].domain);
		p->ranks[0].domain = NULL;
		party_sync(p);
		party_sync(p);
		return;
	}
	party_sync(p);
	CHECK_ERR(party_call(p, sets, NPUWIN_NO_DEADLINE, NULL, &err), -EPIPE, &err, "rank 2");
	CHECK_EQ(err.peer, 2);
	party_sync(p);
}

typedef void (*party_fn)(struct party *p);

static void requests_run(const struct config *cfg)
{
	const party_fn *fn = cfg->data;
	const struct run run = { .nranks = NRANKS, .fn = *fn };

	run_ranks(cfg, &run);
}

#define CASE(text, fn, axes)	{ text, requests_run, axes, 0, &(const party_fn){ fn } }
#define ONE_RANK_EACH		(A_RAILS | A_THREADS | A_PROCESS_EACH | A_MODES | A_PAIRS)

static const struct test_case cases[] = {
	CASE("request: test", test_party, A_ALL),
	CASE("request: wait", wait_party, ONE_RANK_EACH),
	CASE("request: not complete before all have come", early_party, A_ALL | A_PAIRS),
	CASE("request: poll", poll_party, A_ALL | A_PAIRS),
	CASE("request: eight in flight, in order", depth_party, A_ALL | A_PAIRS),
	CASE("request: a call and a barrier behind two", behind_party, ONE_RANK_EACH),
	CASE("request: freed before it is complete", free_party, ONE_RANK_EACH),
	CASE("request: left in flight", leave_party, ONE_RANK_EACH),
};

const struct suite suite_requests = { cases, ARRAY_SIZE(cases) };
