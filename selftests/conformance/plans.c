// SPDX-License-Identifier: MIT
/*
 * What a runtime that remembers calls could mix up: call sites that differ in one thing,
 * buffers that were freed and allocated again, domains side by side.
 */
#include "conformance.h"

/* Calls of different MAX_RECV, SIZE and dtype take turns on one signal. */
static void sites_party(struct party *p)
{
	static const struct layout sites[] = {
		{ .dtype = NPUWIN_INT16, .max_recv = 2, .ndim_size = 1, .size = { 12 } },
		{ .dtype = NPUWIN_INT16, .max_recv = 6, .ndim_size = 1, .size = { 4 } },
		{ .dtype = NPUWIN_INT16, .max_recv = 6, .ndim_size = 1, .size = { 12 } },
		{ .dtype = NPUWIN_BF16, .max_recv = 2, .ndim_size = 1, .size = { 12 } },
		{ .dtype = NPUWIN_FP64, .max_recv = 2, .ndim_size = 1, .size = { 3 } },
	};
	struct set sets[ARRAY_SIZE(sites)][4];
	uint32_t k, i, round;

	for (k = 0; k < ARRAY_SIZE(sites); k++) {
		party_alloc(p, &sites[k], sets[k]);
		for (i = 0; i < p->n; i++)
			sets[k][i].op.signal = sets[0][i].op.signal;
	}
	for (round = 0; round < times(p->cfg, 20, 4); round++)
		for (k = 0; k < ARRAY_SIZE(sites); k++)
			party_exchange(p, sets[k], round * 16 + k, count_random);
	for (i = 0; i < p->n; i++)
		set_settled(&sets[0][i]);
}

static void sites_run(const struct config *cfg)
{
	const struct run run = { .nranks = 4, .fn = sites_party };

	run_ranks(cfg, &run);
}

/* The same buffers, called as if they were smaller: only what is said crosses. */
static void same_buffers_party(struct party *p)
{
	const struct layout layout = {
		.dtype = NPUWIN_INT32, .max_recv = 8, .ndim_size = 1, .size = { 5 },
	};
	struct set sets[4], part[4];
	uint32_t i, round, rows;

	party_alloc(p, &layout, sets);
	for (round = 0; round < 16; round++) {
		rows = round % 2 ? 8 : 1 + round % 7;
		for (i = 0; i < p->n; i++) {
			part[i] = sets[i];
			part[i].max_recv = rows;
			part[i].op.input.shape[0] = (uint64_t)rows * p->nranks;
			part[i].op.target.shape[0] = (uint64_t)rows * p->nranks;
			part[i].op.mode = round % 3 ? NPUWIN_MODE_BLOCK : NPUWIN_MODE_ROWS;
			part[i].bytes[INPUT] = rows * p->nranks * part[i].row;
			part[i].bytes[TARGET] = part[i].bytes[INPUT];
		}
		party_exchange(p, part, round, count_random);
	}
	party_free(p, sets);
}

static void same_buffers_run(const struct config *cfg)
{
	const struct run run = { .nranks = 4, .fn = same_buffers_party };

	run_ranks(cfg, &run);
}

/*
 * Freed and allocated again, behind a hole whose size changes: the handles may be the same
 * as before, and the call looks the same, but the memory is elsewhere.
 */
static void realloc_party(struct party *p)
{
	const struct layout layout = {
		.dtype = NPUWIN_INT8, .max_recv = 3, .ndim_size = 1, .size = { 11 },
	};
	struct npuwin_error err = fresh_error();
	struct npuwin_buffer *hole[4];
	struct set sets[4];
	uint32_t i, round;

	for (round = 0; round < times(p->cfg, 60, 12); round++) {
		for (i = 0; i < p->n; i++)
			CHECK_OK(npuwin_buffer_alloc(p->ranks[i].domain, 64 + 128 * (round % 5),
						     0, &hole[i], &err), &err);
		party_alloc(p, &layout, sets);
		party_exchange(p, sets, round, count_random);
		party_exchange(p, sets, round + 1000, count_random);
		party_free(p, sets);
		for (i = p->n; i--;)
			npuwin_buffer_free(hole[i]);
	}
}

static void realloc_run(const struct config *cfg)
{
	const struct run run = { .nranks = 4, .fn = realloc_party };

	run_ranks(cfg, &run);
}

/* More call sites than anyone would remember, each used again later. */
static void many_party(struct party *p)
{
	const struct layout layout = { .dtype = NPUWIN_INT8, .max_recv = 2 };
	uint32_t n = times(p->cfg, 100, 70), i, k, round;
	struct set *sets = calloc((size_t)n * p->n, sizeof(*sets));

	CHECK(sets);
	for (k = 0; k < n; k++) {
		party_alloc(p, &layout, &sets[k * p->n]);
		for (i = 0; i < p->n; i++)
			sets[k * p->n + i].op.signal = sets[i].op.signal;
	}
	for (round = 0; round < 2; round++)
		for (k = 0; k < n; k++)
			party_exchange(p, &sets[k * p->n], round * n + k, count_random);
	for (k = 0; k < n; k++)
		party_free(p, &sets[k * p->n]);
	free(sets);
}

static void many_run(const struct config *cfg)
{
	const struct run run = { .nranks = 2, .fn = many_party };

	run_ranks(cfg, &run);
}

/* Two domains of the same ranks, of one context each. */
static void two_domains_party(struct party *p)
{
	const struct layout a = {
		.dtype = NPUWIN_INT16, .max_recv = 3, .ndim_size = 1, .size = { 7 },
	};
	const struct layout b = {
		.dtype = NPUWIN_FP32, .max_recv = 5, .ndim_size = 1, .size = { 2 },
	};
	struct set sets[4], others[4];
	struct rank ranks[4];
	struct party q = *p;
	char name[64];
	uint32_t round;

	memcpy(ranks, p->ranks, p->n * sizeof(ranks[0]));
	q.ranks = ranks;
	snprintf(name, sizeof(name), "%s-second", p->name);
	party_join(&q, name, 0);
	party_alloc(p, &a, sets);
	party_alloc(&q, &b, others);
	for (round = 0; round < 10; round++) {
		party_exchange(p, sets, round, count_random);
		party_exchange(&q, others, round + 50, count_random);
		party_barrier(round % 2 ? p : &q);
	}
	party_leave(&q);
	party_exchange(p, sets, 99, count_random);
}

static void two_domains_run(const struct config *cfg)
{
	const struct run run = { .nranks = 4, .fn = two_domains_party };

	run_ranks(cfg, &run);
}

/* Processes that own two ranks each and drive them as a group. */
static void half_groups_party(struct party *p)
{
	const struct layout layout = {
		.dtype = NPUWIN_INT16, .max_recv = 3, .ndim_size = 1, .size = { 7 },
	};
	struct set sets[2];
	uint32_t round;

	party_alloc(p, &layout, sets);
	for (round = 0; round < 20; round++) {
		party_exchange(p, sets, round, count_random);
		if (round % 5 == 0)
			party_barrier(p);
	}
	party_free(p, sets);
}

static void half_groups_run(const struct config *cfg)
{
	const struct run run = { .nranks = 6, .per_process = 2, .fn = half_groups_party };

	run_ranks(cfg, &run);
}

static const struct test_case cases[] = {
	{ "call sites that differ in MAX_RECV, SIZE or dtype", sites_run, A_ALL | A_PAIRS, 0,
	  NULL },
	{ "one set of buffers with several MAX_RECV and modes", same_buffers_run,
	  A_RAILS | A_FORMS, 0, NULL },
	{ "buffers freed and allocated again", realloc_run, A_ALL | A_PAIRS, 0, NULL },
	{ "many call sites", many_run, A_ALL | A_EACH, 0, NULL },
	{ "two domains at once", two_domains_run, A_ALL | A_PAIRS, 0, NULL },
	{ "groups of two ranks in each process", half_groups_run,
	  A_RAILS | A_PROCESS_EACH | A_MODES, 0, NULL },
};

const struct suite suite_plans = { cases, ARRAY_SIZE(cases) };
