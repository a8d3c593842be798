// SPDX-License-Identifier: MIT
/*
 * Calls back to back on one signal, with nothing between them but what the contract gives:
 * a rank that is done with call n may be in call n + 1 while another still looks at n.
 */
#include "conformance.h"

static const struct layout layout = {
	.dtype = NPUWIN_UINT8, .max_recv = 4, .ndim_size = 1, .size = { 23 },
};

/* Ranks wait at random between the completion of a call and the look at its rows. */
static void back_to_back_party(struct party *p)
{
	uint64_t random = 1000 + p->index, seed, ncalls = times(p->cfg, 1000, 100);
	struct npuwin_error err = fresh_error();
	struct set sets[8];
	uint32_t i;

	party_alloc(p, &layout, sets);
	for (seed = 0; seed < ncalls; seed++) {
		dawdle(&random, 30);
		for (i = 0; i < p->n; i++)
			set_fill(&sets[i], seed, count_random);
		CHECK_OK(party_call(p, sets, far(), NULL, &err), &err);
		dawdle(&random, p->index == seed % p->nparties ? 300 : 10);
		for (i = 0; i < p->n; i++)
			set_verify(&sets[i], seed, count_random);
	}
	party_sync(p);
	for (i = 0; i < p->n; i++)
		set_settled(&sets[i]);
	party_free(p, sets);
}

static void back_to_back_run(const struct config *cfg)
{
	const struct run run = { .nranks = 4, .fn = back_to_back_party };

	run_ranks(cfg, &run);
}

/* The input is overwritten as soon as the call is complete, and the call made again. */
static void input_reuse_party(struct party *p)
{
	const struct layout big = {
		.dtype = NPUWIN_UINT8, .max_recv = 8, .ndim_size = 1, .size = { 1500 },
	};
	uint64_t seed, ncalls = times(p->cfg, 100, 20);
	struct npuwin_error err = fresh_error();
	struct set sets[4];
	uint32_t i;

	party_alloc(p, &big, sets);
	for (i = 0; i < p->n; i++)
		set_fill(&sets[i], 0, count_full);
	for (seed = 0; seed < ncalls; seed++) {
		CHECK_OK(party_call(p, sets, far(), NULL, &err), &err);
		for (i = 0; i < p->n; i++)
			memset(set_ptr(&sets[i], INPUT), 0xee, sets[i].bytes[INPUT]);
		for (i = 0; i < p->n; i++) {
			uint8_t want[1500];
			uint32_t s, k;

			for (s = 0; s < p->nranks; s++)
				for (k = 0; k < big.max_recv; k++) {
					row_fill(want, sizeof(want), seed, s,
						 p->ranks[i].rank, k);
					check_bytes("row of a reused input",
						    (uint8_t *)set_ptr(&sets[i], TARGET) +
						    (s * big.max_recv + k) * sizeof(want),
						    want, sizeof(want));
				}
			set_fill(&sets[i], seed + 1, count_full);
		}
	}
	party_free(p, sets);
}

static void input_reuse_run(const struct config *cfg)
{
	const struct run run = { .nranks = 4, .fn = input_reuse_party };

	run_ranks(cfg, &run);
}

/* Counts of one int32 each, side by side, from all ranks at once. */
static void adjacent_party(struct party *p)
{
	const struct layout thin = { .dtype = NPUWIN_UINT8, .max_recv = 200 };
	uint64_t seed, ncalls = times(p->cfg, 50, 10);
	struct npuwin_error err = fresh_error();
	struct set sets[16];
	uint32_t i;

	party_alloc(p, &thin, sets);
	for (seed = 0; seed < ncalls; seed++) {
		for (i = 0; i < p->n; i++)
			set_fill(&sets[i], seed, count_random);
		CHECK_OK(party_call(p, sets, far(), NULL, &err), &err);
		for (i = 0; i < p->n; i++)
			set_verify(&sets[i], seed, count_random);
	}
	party_sync(p);
	for (i = 0; i < p->n; i++)
		set_settled(&sets[i]);
	party_free(p, sets);
}

static void adjacent_run(const struct config *cfg)
{
	const struct run run = { .nranks = 16, .fn = adjacent_party };

	run_ranks(cfg, &run);
}

/* Barriers between calls, in the same order on all ranks. */
static void barriers_party(struct party *p)
{
	uint64_t random = p->index, k, rounds = times(p->cfg, 100, 20);
	struct set sets[4];

	party_alloc(p, &layout, sets);
	for (k = 0; k < rounds; k++) {
		dawdle(&random, 50);
		flag_add(p->shared, FLAG_USER + k % 2, 1);
		party_barrier(p);
		/* Nobody has come through before all had come. */
		CHECK(flag_get(p->shared, FLAG_USER + k % 2) >= (k / 2 + 1) * p->nparties);
		if (k % 10 == 0)
			party_exchange(p, sets, k, count_random);
	}
	party_free(p, sets);
}

static void barriers_run(const struct config *cfg)
{
	const struct run run = { .nranks = 4, .fn = barriers_party };

	run_ranks(cfg, &run);
}

static const struct test_case cases[] = {
	{ "back to back calls with a slow consumer", back_to_back_run, A_ALL, 0, NULL },
	{ "input reused at once", input_reuse_run, A_ALL | A_PAIRS, 0, NULL },
	{ "adjacent counts from 16 ranks", adjacent_run, A_ALL | A_PAIRS, 0, NULL },
	{ "barriers and calls", barriers_run, A_ALL | A_PAIRS, 0, NULL },
};

const struct suite suite_stress = { cases, ARRAY_SIZE(cases) };
