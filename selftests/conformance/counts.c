// SPDX-License-Identifier: MIT
/*
 * Send counts: zeros, extremes, and what the result says of those that were clamped.
 */
#include "conformance.h"

#define NRANKS		4
#define MAX_RECV	5

static const struct layout layout = {
	.dtype = NPUWIN_INT16, .max_recv = MAX_RECV, .ndim_size = 1, .size = { 3 },
};

static int32_t count_silent_rank(uint64_t seed, uint32_t src, uint32_t dst, uint32_t nranks,
				 uint32_t max_recv)
{
	return src == seed % nranks ? 0 : count_full(seed, src, dst, nranks, max_recv);
}

static int32_t count_deaf_rank(uint64_t seed, uint32_t src, uint32_t dst, uint32_t nranks,
			       uint32_t max_recv)
{
	return dst == seed % nranks ? 0 : count_full(seed, src, dst, nranks, max_recv);
}

static int32_t count_all_to_one(uint64_t seed, uint32_t src, uint32_t dst, uint32_t nranks,
				uint32_t max_recv)
{
	return dst == seed % nranks ? count_full(seed, src, dst, nranks, max_recv) : 0;
}

static int32_t count_to_self(uint64_t seed, uint32_t src, uint32_t dst, uint32_t nranks,
			     uint32_t max_recv)
{
	return dst == src ? count_full(seed, src, dst, nranks, max_recv) : 0;
}

static int32_t count_extreme(uint64_t seed, uint32_t src, uint32_t dst, uint32_t nranks,
			     uint32_t max_recv)
{
	const int32_t values[] = {
		-1, 0, (int32_t)max_recv, (int32_t)max_recv + 1, INT32_MIN, INT32_MAX,
	};

	return values[(seed + src * nranks + dst) % ARRAY_SIZE(values)];
}

struct pattern {
	count_fn count;
};

static void pattern_party(struct party *p)
{
	const struct pattern *pattern = p->arg;
	struct set sets[NRANKS];
	uint64_t seed;

	party_alloc(p, &layout, sets);
	for (seed = 0; seed < NRANKS; seed++)
		party_exchange(p, sets, seed, pattern->count);
	party_free(p, sets);
}

static void pattern_run(const struct config *cfg)
{
	const struct run run = { .nranks = NRANKS, .fn = pattern_party, .arg = cfg->data };

	run_ranks(cfg, &run);
}

static void check_clamps(const struct npuwin_a2av_result *result, uint32_t room, uint64_t seed,
			 uint32_t rank, uint64_t bytes)
{
	uint32_t d, n = 0;
	int32_t count;

	for (d = 0; d < NRANKS; d++) {
		count = count_extreme(seed, rank, d, NRANKS, MAX_RECV);
		if (count == (int32_t)clamped(count, MAX_RECV))
			continue;
		if (n < room) {
			CHECK_EQ(result->clamps[n].dest, d);
			CHECK_EQ(result->clamps[n].requested, count);
			CHECK_EQ(result->clamps[n].sent, clamped(count, MAX_RECV));
		}
		n++;
	}
	CHECK_EQ(result->nclamped, n);
	CHECK_EQ(result->max_recv, MAX_RECV);
	CHECK_EQ(result->bytes, bytes);
	CHECK_EQ(result->clamps_room, room);
	for (; n < room; n++)
		CHECK_EQ(result->clamps[n].requested, POISON_COUNT);
	/* What lies behind the room is not the library's. */
	for (n = room; result->clamps && n < NRANKS + 1; n++)
		CHECK_EQ(result->clamps[n].requested, POISON_COUNT);
}

static void clamp_once(struct party *p, struct set *sets, uint64_t seed, uint32_t room,
		       bool list)
{
	struct npuwin_clamp clamps[NRANKS][NRANKS + 1];
	struct npuwin_a2av_result results[NRANKS];
	struct npuwin_error err = fresh_error();
	uint64_t rows;
	uint32_t i, d, rank;

	memset(results, 0, sizeof(results));
	for (i = 0; i < p->n; i++) {
		for (d = 0; d < NRANKS + 1; d++)
			clamps[i][d] = (struct npuwin_clamp){ .requested = POISON_COUNT };
		results[i].clamps = list ? clamps[i] : NULL;
		results[i].clamps_room = list ? room : 0;
		results[i].nclamped = 0xdead;
		results[i].max_recv = 0xdead;
		results[i].bytes = 0xdead;
		set_fill(&sets[i], seed, count_extreme);
	}
	CHECK_OK(party_call(p, sets, far(), results, &err), &err);
	for (i = 0; i < p->n; i++) {
		rank = p->ranks[i].rank;
		set_verify(&sets[i], seed, count_extreme);
		rows = NRANKS * MAX_RECV;
		for (d = 0; p->cfg->mode == NPUWIN_MODE_ROWS && d < NRANKS; d++)
			rows = (d ? rows : 0) + clamped(count_extreme(seed, rank, d, NRANKS,
								      MAX_RECV), MAX_RECV);
		check_clamps(&results[i], list ? room : 0, seed, rank, rows * sets[i].row);
	}
	party_sync(p);
}

static void clamp_party(struct party *p)
{
	struct set sets[NRANKS];
	uint32_t room;
	uint64_t seed;

	party_alloc(p, &layout, sets);
	for (seed = 0; seed < 6; seed++) {
		for (room = 0; room <= NRANKS; room++)
			clamp_once(p, sets, seed, room, true);
		clamp_once(p, sets, seed, 0, false);
		party_exchange(p, sets, seed, count_extreme);
	}
	party_free(p, sets);
}

static void clamp_run(const struct config *cfg)
{
	const struct run run = { .nranks = NRANKS, .fn = clamp_party };

	run_ranks(cfg, &run);
}

#define PATTERN(name, fn)							\
	{ name, pattern_run, A_ALL | A_PAIRS, 0, &(const struct pattern){ fn } }

static const struct test_case cases[] = {
	PATTERN("zero counts everywhere", count_zero),
	PATTERN("a rank that sends nothing", count_silent_rank),
	PATTERN("a rank that receives nothing", count_deaf_rank),
	PATTERN("all to one", count_all_to_one),
	PATTERN("only to oneself", count_to_self),
	PATTERN("full counts", count_full),
	PATTERN("counts -1, 0, MAX_RECV, MAX_RECV + 1, INT32_MIN, INT32_MAX", count_extreme),
	{ "clamps are reported", clamp_run, A_ALL, 0, NULL },
};

const struct suite suite_counts = { cases, ARRAY_SIZE(cases) };
