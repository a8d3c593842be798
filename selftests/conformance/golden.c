// SPDX-License-Identifier: MIT
/*
 * What a call leaves in the windows: fixed values, numbers of ranks, dtypes, shapes, and
 * the same bytes on every rail and provider.
 */
#include "conformance.h"

struct golden {
	struct layout layout;
	uint32_t nranks;
	const void *input[3];
	const void *block[3];
	const void *rows[3];
	int32_t send[3][3];
	int32_t recv[3][3];
};

/* Rows say where they come from, where they go and which they are; '.' was not written. */
static const struct golden letters = {
	.layout = { .dtype = NPUWIN_UINT8, .max_recv = 2, .ndim_size = 1, .size = { 3 } },
	.nranks = 3,
	.input = { "A00A01A10A11A20A21", "B00B01B10B11B20B21", "C00C01C10C11C20C21" },
	.block = { "A00A01B00B01C00C01", "A10A11B10B11C10C11", "A20A21B20B21C20C21" },
	.rows = { "A00A01B00.........", "......B10...C10C11", "A20.........C20C21" },
	.send = { { 2, 0, 1 }, { 1, 1, 0 }, { 0, 2, 2 } },
	.recv = { { 2, 1, 0 }, { 0, 1, 2 }, { 1, 0, 2 } },
};

#define DOTS 0x2e2e2e2e

static const struct golden numbers = {
	.layout = { .dtype = NPUWIN_INT32, .max_recv = 2, .ndim_size = 1, .size = { 2 },
		    .column = true },
	.nranks = 2,
	.input = {
		(const int32_t[]){ 1, 2, 3, 4, 5, 6, 7, 8 },
		(const int32_t[]){ -1, -2, -3, -4, INT32_MIN, INT32_MAX, 0, 9 },
	},
	.block = {
		(const int32_t[]){ 1, 2, 3, 4, -1, -2, -3, -4 },
		(const int32_t[]){ 5, 6, 7, 8, INT32_MIN, INT32_MAX, 0, 9 },
	},
	.rows = {
		(const int32_t[]){ 1, 2, DOTS, DOTS, -1, -2, -3, -4 },
		(const int32_t[]){ DOTS, DOTS, DOTS, DOTS, INT32_MIN, INT32_MAX, DOTS, DOTS },
	},
	.send = { { 1, 0 }, { 2, 1 } },
	.recv = { { 1, 2 }, { 0, 1 } },
};

static void golden_party(struct party *p)
{
	const struct golden *g = p->arg;
	struct npuwin_a2av_result results[3] = { 0 };
	struct npuwin_error err = fresh_error();
	uint64_t rows;
	struct set sets[3];
	uint32_t i, k, r;

	party_alloc(p, &g->layout, sets);
	for (i = 0; i < p->n; i++) {
		r = p->ranks[i].rank;
		memcpy(set_ptr(&sets[i], INPUT), g->input[r], sets[i].bytes[INPUT]);
		memset(set_ptr(&sets[i], TARGET), '.', sets[i].bytes[TARGET]);
		memcpy(set_ptr(&sets[i], SEND), g->send[r], sets[i].bytes[SEND]);
		memset(set_ptr(&sets[i], RECV), 0x77, sets[i].bytes[RECV]);
	}
	CHECK_OK(party_call(p, sets, far(), results, &err), &err);
	for (i = 0; i < p->n; i++) {
		r = p->ranks[i].rank;
		check_bytes("target", set_ptr(&sets[i], TARGET),
			    p->cfg->mode == NPUWIN_MODE_ROWS ? g->rows[r] : g->block[r],
			    sets[i].bytes[TARGET]);
		check_bytes("recv_counts", set_ptr(&sets[i], RECV), g->recv[r],
			    sets[i].bytes[RECV]);
		rows = (uint64_t)g->nranks * g->layout.max_recv;
		for (k = 0; p->cfg->mode == NPUWIN_MODE_ROWS && k < g->nranks; k++)
			rows = (k ? rows : 0) + g->send[r][k];
		CHECK_EQ(results[i].bytes, rows * sets[i].row);
		CHECK_EQ(results[i].max_recv, g->layout.max_recv);
		CHECK_EQ(results[i].nclamped, 0);
	}
	party_sync(p);
	for (i = 0; i < p->n; i++)
		set_settled(&sets[i]);
	party_free(p, sets);
}

static void golden_run(const struct config *cfg)
{
	const struct golden *g = cfg->data;
	const struct run run = { .nranks = g->nranks, .fn = golden_party, .arg = g };

	run_ranks(cfg, &run);
}

/* Some calls on the layout that is handed in. */
static void exchange_party(struct party *p)
{
	struct set sets[MAX_TEST_RANKS];
	uint64_t seed;

	party_alloc(p, p->arg, sets);
	for (seed = 1; seed <= 3; seed++)
		party_exchange(p, sets, seed, count_random);
	party_exchange(p, sets, 4, count_full);
	party_free(p, sets);
}

static void ranks_run(const struct config *cfg)
{
	const struct layout layout = {
		.dtype = NPUWIN_BF16, .max_recv = 3, .ndim_size = 1, .size = { 5 },
	};
	const struct run run = { .nranks = cfg->arg, .fn = exchange_party, .arg = &layout };

	run_ranks(cfg, &run);
}

static void layout_run(const struct config *cfg)
{
	const struct run run = { .nranks = 3, .fn = exchange_party, .arg = cfg->data };

	run_ranks(cfg, &run);
}

static void dtype_run(const struct config *cfg)
{
	static const struct {
		const char *name;
		uint32_t size;
	} dtypes[] = {
		[NPUWIN_FP64] = { "fp64", 8 }, [NPUWIN_FP32] = { "fp32", 4 },
		[NPUWIN_FP16] = { "fp16", 2 }, [NPUWIN_BF16] = { "bf16", 2 },
		[NPUWIN_FP8_E4M3] = { "fp8-e4m3", 1 }, [NPUWIN_FP8_E5M2] = { "fp8-e5m2", 1 },
		[NPUWIN_INT64] = { "int64", 8 }, [NPUWIN_INT32] = { "int32", 4 },
		[NPUWIN_INT16] = { "int16", 2 }, [NPUWIN_INT8] = { "int8", 1 },
		[NPUWIN_UINT8] = { "uint8", 1 },
	};
	struct layout layout = {
		.dtype = cfg->arg, .max_recv = 4, .ndim_size = 1, .size = { 3 },
	};
	const struct run run = { .nranks = 2, .fn = exchange_party, .arg = &layout };

	CHECK_EQ(ARRAY_SIZE(dtypes), 12);
	CHECK_EQ(npuwin_dtype_size(layout.dtype), dtypes[layout.dtype].size);
	CHECK(dtypes[layout.dtype].name);
	CHECK(!strcmp(npuwin_dtype_name(layout.dtype), dtypes[layout.dtype].name));
	CHECK_EQ(npuwin_dtype_size(0), 0);
	CHECK_EQ(npuwin_dtype_size(12), 0);
	CHECK(!npuwin_dtype_name(0));
	CHECK(!npuwin_dtype_name(12));
	run_ranks(cfg, &run);
}

static void odd_rows_party(struct party *p)
{
	static const uint64_t row_bytes[] = { 1, 2, 3, 5, 7, 13, 31, 33, 63, 65, 127, 1021, 4097 };
	struct layout layout = { .dtype = NPUWIN_INT8, .max_recv = 3, .ndim_size = 1 };
	struct set sets[MAX_TEST_RANKS];
	size_t k;

	for (k = 0; k < ARRAY_SIZE(row_bytes); k++) {
		layout.size[0] = row_bytes[k];
		party_alloc(p, &layout, sets);
		party_exchange(p, sets, k, count_random);
		party_free(p, sets);
	}
}

static void odd_rows_run(const struct config *cfg)
{
	const struct run run = { .nranks = 3, .fn = odd_rows_party };

	run_ranks(cfg, &run);
}

/* FNV-1a of each rank's target after the call below. */
static const uint64_t digests[4] = {
	0xcb70deee9b822b48ULL, 0x0215621fa27cf453ULL,
	0x5c1e20208f1256f0ULL, 0xebf98418b32309fbULL,
};

static uint64_t fnv1a(const uint8_t *p, size_t n)
{
	uint64_t h = 0xcbf29ce484222325ULL;

	while (n--)
		h = (h ^ *p++) * 0x100000001b3ULL;
	return h;
}

static void digest_party(struct party *p)
{
	const struct layout layout = {
		.dtype = NPUWIN_FP8_E4M3, .max_recv = 5, .ndim_size = 2, .size = { 3, 7 },
	};
	struct set sets[4];
	uint64_t got;
	uint32_t i;

	party_alloc(p, &layout, sets);
	party_exchange(p, sets, 2026, count_random);
	for (i = 0; i < p->n; i++) {
		got = fnv1a(set_ptr(&sets[i], TARGET), sets[i].bytes[TARGET]);
		if (got != digests[p->ranks[i].rank])
			FAIL("rank %u: digest %#llx, expected %#llx", p->ranks[i].rank,
			     (unsigned long long)got,
			     (unsigned long long)digests[p->ranks[i].rank]);
	}
	party_free(p, sets);
}

static void digest_run(const struct config *cfg)
{
	const struct run run = { .nranks = 4, .fn = digest_party };

	run_ranks(cfg, &run);
}

/* Even ranks store themselves, odd ones have the engine do it. */
static void mixed_rails_party(struct party *p)
{
	const struct layout layout = {
		.dtype = NPUWIN_INT16, .max_recv = 4, .ndim_size = 1, .size = { 9 },
	};
	struct set sets[4];
	uint64_t seed;
	uint32_t i;

	party_alloc(p, &layout, sets);
	for (seed = 0; seed < 8; seed++) {
		for (i = 0; i < p->n; i++)
			sets[i].op.rail = (p->ranks[i].rank + seed) % 2;
		party_exchange(p, sets, seed, count_random);
	}
	party_free(p, sets);
}

static void mixed_rails_run(const struct config *cfg)
{
	struct npuwin_device_info info;
	struct npuwin *ctx;
	const struct run run = { .nranks = 4, .fn = mixed_rails_party };

	CHECK_EQ(npuwin_open(cfg->provider, &ctx, NULL), 0);
	CHECK_EQ(npuwin_device_info(ctx, 0, &info, NULL), 0);
	npuwin_close(ctx);
	if (!info.peer_map)
		skip_case("the device does not map peer windows");
	run_ranks(cfg, &run);
}

#define RANKS(n, axes)	{ "ranks " #n, ranks_run, axes, n, NULL }
#define DTYPE(d)	{ "dtype " #d, dtype_run, A_ALL | A_EACH, NPUWIN_##d, NULL }
#define SHAPE(text, axes, ...)							\
	{ text, layout_run, axes, 0, &(const struct layout){ .dtype = NPUWIN_INT16, __VA_ARGS__ } }

static const struct test_case cases[] = {
	{ "golden letters", golden_run, A_ALL, 0, &letters },
	{ "golden numbers", golden_run, A_ALL, 0, &numbers },
	RANKS(1, A_ALL),
	RANKS(2, A_ALL),
	RANKS(3, A_ALL),
	RANKS(4, A_ALL),
	RANKS(8, A_ALL),
	RANKS(16, A_ALL | A_PAIRS),
	RANKS(64, A_ALL | A_PAIRS),
	{ "rails agree on every byte of the targets", digest_run, A_RAILS | A_FORMS | A_BLOCK, 0,
	  NULL },
	{ "ranks on different rails", mixed_rails_run,
	  A_THREADS | A_PROCESSES | A_GROUP | A_MODES, 0, NULL },
	DTYPE(FP64), DTYPE(FP32), DTYPE(FP16), DTYPE(BF16), DTYPE(FP8_E4M3), DTYPE(FP8_E5M2),
	DTYPE(INT64), DTYPE(INT32), DTYPE(INT16), DTYPE(INT8), DTYPE(UINT8),
	SHAPE("1 dimension", A_ALL | A_EACH, .max_recv = 7),
	SHAPE("2 dimensions", A_ALL | A_EACH, .max_recv = 2, .ndim_size = 1, .size = { 3 }),
	SHAPE("3 dimensions", A_ALL | A_EACH, .max_recv = 2, .ndim_size = 2, .size = { 3, 2 }),
	SHAPE("4 dimensions", A_ALL | A_EACH, .max_recv = 2, .ndim_size = 3, .size = { 1, 5, 1 }),
	SHAPE("5 dimensions", A_ALL | A_EACH, .max_recv = 2, .ndim_size = 4,
	      .size = { 2, 2, 3, 1 }),
	SHAPE("6 dimensions", A_ALL | A_EACH, .max_recv = 2, .ndim_size = 5,
	      .size = { 2, 1, 2, 1, 2 }),
	SHAPE("7 dimensions", A_ALL | A_EACH, .max_recv = 2, .ndim_size = 6,
	      .size = { 2, 1, 2, 1, 2, 3 }),
	SHAPE("8 dimensions", A_ALL | A_EACH, .max_recv = 2, .ndim_size = 7,
	      .size = { 2, 1, 2, 1, 2, 1, 3 }),
	SHAPE("MAX_RECV 1", A_ALL | A_PAIRS, .max_recv = 1, .ndim_size = 1, .size = { 3 }),
	SHAPE("counts as [NR,1]", A_ALL | A_PAIRS, .max_recv = 3, .ndim_size = 1, .size = { 3 },
	      .column = true),
	{ "odd row bytes", odd_rows_run, A_ALL | A_PAIRS, 0, NULL },
};

const struct suite suite_golden = { cases, ARRAY_SIZE(cases) };
