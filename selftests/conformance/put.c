// SPDX-License-Identifier: MIT
/*
 * One-sided writes of rows.
 */
#include "conformance.h"

#define NRANKS	4
#define SIZE	4096

struct pair {
	struct npuwin_buffer *src;
	struct npuwin_buffer *dst;
};

static void pairs_alloc(struct party *p, struct pair *pairs)
{
	struct npuwin_error err = fresh_error();
	uint32_t i, k;

	for (i = 0; i < p->n; i++) {
		CHECK_OK(npuwin_buffer_alloc(p->ranks[i].domain, SIZE, 0, &pairs[i].src, &err),
			 &err);
		CHECK_OK(npuwin_buffer_alloc(p->ranks[i].domain, SIZE, 0, &pairs[i].dst, &err),
			 &err);
		for (k = 0; k < SIZE / 8; k++)
			row_fill((uint8_t *)npuwin_buffer_ptr(pairs[i].src) + 8 * k, 8, 5,
				 p->ranks[i].rank, 0, k);
		memset(npuwin_buffer_ptr(pairs[i].dst), POISON_BYTE, SIZE);
	}
	party_sync(p);
}

/* What the source buffer of @rank holds. */
static void source_of(uint32_t rank, uint8_t *bytes)
{
	uint32_t k;

	for (k = 0; k < SIZE / 8; k++)
		row_fill(bytes + 8 * k, 8, 5, rank, 0, k);
}

struct shape {
	uint64_t src_offset, src_stride, dst_offset, dst_stride, rows, row_bytes;
};

static const struct shape shapes[] = {
	{ 0, SIZE, 0, SIZE, 1, SIZE },
	{ 0, 16, 0, 16, 8, 16 },
	{ 0, 64, 0, 16, 8, 16 },
	{ 0, 16, 0, 64, 8, 16 },
	{ 1, 7, 3, 11, 30, 7 },
	{ 5, 100, 77, 33, 40, 31 },
	{ SIZE - 1, 0, SIZE - 1, 0, 1, 1 },
	{ 9, 0, 1001, 0, 1, 1999 },
	{ 0, 4095, 0, 4095, 2, 1 },
	{ 0, 16, 0, 16, 0, 16 },
	{ 0, 16, 0, 16, 8, 0 },
	{ SIZE, 0, SIZE, 0, 0, 0 },
};

/* Every rank puts to the one that is @hop on. */
static void put_shape(struct party *p, struct pair *pairs, const struct shape *s, uint32_t hop)
{
	uint8_t source[SIZE], want[SIZE];
	struct npuwin_error err = fresh_error();
	uint32_t i;
	uint64_t row;

	for (i = 0; i < p->n; i++)
		memset(npuwin_buffer_ptr(pairs[i].dst), POISON_BYTE, SIZE);
	party_sync(p);
	for (i = 0; i < p->n; i++) {
		struct npuwin_put put = {
			.src = pairs[i].src, .dst = pairs[i].dst,
			.src_offset = s->src_offset, .src_stride = s->src_stride,
			.dst_offset = s->dst_offset, .dst_stride = s->dst_stride,
			.rows = s->rows, .row_bytes = s->row_bytes,
			.dst_rank = (p->ranks[i].rank + hop) % p->nranks,
			.op = NPUWIN_COPY, .rail = p->cfg->rail,
		};

		CHECK_OK(npuwin_put(p->ranks[i].domain, &put, &err), &err);
	}
	party_sync(p);
	for (i = 0; i < p->n; i++) {
		source_of((p->ranks[i].rank + p->nranks - hop) % p->nranks, source);
		memset(want, POISON_BYTE, SIZE);
		for (row = 0; row < s->rows; row++)
			memcpy(want + s->dst_offset + row * s->dst_stride,
			       source + s->src_offset + row * s->src_stride, s->row_bytes);
		check_bytes("put", npuwin_buffer_ptr(pairs[i].dst), want, SIZE);
		source_of(p->ranks[i].rank, source);
		check_bytes("source", npuwin_buffer_ptr(pairs[i].src), source, SIZE);
	}
	party_sync(p);
}

static void strides_party(struct party *p)
{
	struct pair pairs[NRANKS];
	size_t k;

	pairs_alloc(p, pairs);
	for (k = 0; k < ARRAY_SIZE(shapes); k++) {
		put_shape(p, pairs, &shapes[k], 1);
		put_shape(p, pairs, &shapes[k], 0);
	}
}

/* Within one buffer, each row onto itself a little further on: moved as by memmove. */
static void self_party(struct party *p)
{
	uint8_t want[SIZE];
	struct npuwin_error err = fresh_error();
	struct pair pairs[NRANKS];
	uint32_t i, row;

	pairs_alloc(p, pairs);
	for (i = 0; i < p->n; i++) {
		struct npuwin_put put = {
			.src = pairs[i].src, .dst = pairs[i].src,
			.src_offset = 10, .src_stride = 60, .dst_offset = 13, .dst_stride = 60,
			.rows = 20, .row_bytes = 50,
			.dst_rank = p->ranks[i].rank, .rail = p->cfg->rail,
		};

		source_of(p->ranks[i].rank, want);
		for (row = 0; row < 20; row++)
			memmove(want + 13 + row * 60, want + 10 + row * 60, 50);
		CHECK_OK(npuwin_put(p->ranks[i].domain, &put, &err), &err);
		check_bytes("put onto itself", npuwin_buffer_ptr(pairs[i].src), want, SIZE);
	}
}

/* All ranks add the same rows into all windows. Sums of fp32 here are exact. */
static void add_party(struct party *p)
{
	bool fp32 = p->cfg->arg == NPUWIN_ADD_FP32;
	uint32_t rounds = times(p->cfg, 50, 10), round, i, d, k;
	struct npuwin_error err = fresh_error();
	struct pair pairs[NRANKS];

	pairs_alloc(p, pairs);
	for (i = 0; i < p->n; i++) {
		for (k = 0; k < SIZE / 4; k++) {
			float f = k + 0.5f;
			int32_t n = fp32 ? 0 : (int32_t)(k * 0x00abcdefu);

			memcpy((uint8_t *)npuwin_buffer_ptr(pairs[i].src) + 4 * k,
			       fp32 ? (void *)&f : (void *)&n, 4);
		}
		memset(npuwin_buffer_ptr(pairs[i].dst), 0, SIZE);
	}
	party_sync(p);
	for (round = 0; round < rounds; round++)
		for (i = 0; i < p->n; i++)
			for (d = 0; d < p->nranks; d++) {
				struct npuwin_put put = {
					.src = pairs[i].src, .dst = pairs[i].dst,
					.src_offset = 4, .src_stride = 64, .dst_offset = 8,
					.dst_stride = 128, .rows = 16, .row_bytes = 60,
					.dst_rank = d, .op = p->cfg->arg, .rail = p->cfg->rail,
				};

				CHECK_OK(npuwin_put(p->ranks[i].domain, &put, &err), &err);
			}
	party_sync(p);
	for (i = 0; i < p->n; i++) {
		const uint8_t *at = npuwin_buffer_ptr(pairs[i].dst);
		uint8_t want[SIZE] = { 0 };
		uint32_t row, from;

		for (row = 0; row < 16; row++)
			for (k = 0; k < 15; k++) {
				from = 1 + row * 16 + k;
				float f = (from + 0.5f) * NRANKS * rounds;
				uint32_t n = from * 0x00abcdefu * NRANKS * rounds;

				memcpy(want + 8 + row * 128 + 4 * k,
				       fp32 ? (void *)&f : (void *)&n, 4);
			}
		check_bytes("sums", at, want, SIZE);
	}
	party_sync(p);
}

struct refusal {
	const char *what;
	size_t field;
	uint64_t value;
	int code;
	const char *word;
};

#define FIELD(name)	offsetof(struct npuwin_put, name)

/* One field at a time, in a put of 4 rows of 16 bytes that is otherwise right. */
static const struct refusal refusals[] = {
	{ "source beyond", FIELD(src_offset), SIZE - 32, -ERANGE, "src" },
	{ "source far beyond", FIELD(src_offset), UINT64_MAX, -ERANGE, "src" },
	{ "source rows beyond", FIELD(src_stride), SIZE / 3, -ERANGE, "src" },
	{ "source stride wraps", FIELD(src_stride), 1ULL << 63, -EOVERFLOW, "src" },
	{ "source rows overlap", FIELD(src_stride), 12, -EINVAL, "stride" },
	{ "destination beyond", FIELD(dst_offset), SIZE - 32, -ERANGE, "dst" },
	{ "destination far beyond", FIELD(dst_offset), UINT64_MAX, -ERANGE, "dst" },
	{ "destination rows beyond", FIELD(dst_stride), SIZE / 3, -ERANGE, "dst" },
	{ "destination stride wraps", FIELD(dst_stride), 1ULL << 63, -EOVERFLOW, "dst" },
	{ "destination rows overlap", FIELD(dst_stride), 12, -EINVAL, "stride" },
	{ "rows beyond", FIELD(rows), SIZE / 16 + 1, -ERANGE, NULL },
	{ "rows wrap", FIELD(rows), 1ULL << 60, -EOVERFLOW, "rows" },
	{ "rows longer than the strides", FIELD(row_bytes), SIZE, -EINVAL, "stride" },
};

static void refused_party(struct party *p)
{
	struct npuwin_error err = fresh_error();
	struct pair pairs[NRANKS] = { 0 }, *mine = &pairs[0];
	const struct rank *r = &p->ranks[0];
	const struct npuwin_put good = {
		.src = NULL, .src_stride = 16, .dst_stride = 16, .rows = 4, .row_bytes = 16,
		.dst_rank = (r->rank + 1) % p->nranks, .rail = p->cfg->rail,
	};
	struct npuwin_put put;
	size_t k;
	int ret;

	pairs_alloc(p, pairs);
	for (k = 0; k < ARRAY_SIZE(refusals); k++) {
		put = good;
		put.src = mine->src;
		put.dst = mine->dst;
		memcpy((uint8_t *)&put + refusals[k].field, &refusals[k].value, 8);
		err = fresh_error();
		ret = npuwin_put(r->domain, &put, &err);
		check_err(__FILE__, __LINE__, refusals[k].what, ret, refusals[k].code, &err,
			  (const char *const[]){ refusals[k].word, NULL });
	}

#define REFUSED(change, word) do {						\
	put = good;								\
	put.src = mine->src;							\
	put.dst = mine->dst;							\
	change;									\
	err = fresh_error();							\
	CHECK_ERR(npuwin_put(r->domain, &put, &err), -EINVAL, &err, word);	\
} while (0)
	REFUSED(put.dst_rank = p->nranks, "rank");
	REFUSED(put.dst_rank = UINT32_MAX, "rank");
	REFUSED(put.op = 3, "op");
	REFUSED(put.rail = 2, "rail");
	REFUSED(put.reserved = 1, "reserved");
	REFUSED(put.src = NULL, "src");
	REFUSED(put.dst = NULL, "dst");
	REFUSED((put.op = NPUWIN_ADD_INT32, put.src_offset = 2), "src");
	REFUSED((put.op = NPUWIN_ADD_INT32, put.dst_offset = 2), "dst");
	REFUSED((put.op = NPUWIN_ADD_FP32, put.src_stride = 18), "src");
	REFUSED((put.op = NPUWIN_ADD_FP32, put.dst_stride = 18), "dst");
	REFUSED((put.op = NPUWIN_ADD_INT32, put.row_bytes = 14), "row_bytes");
#undef REFUSED
	party_sync(p);
	check_filled("destination of refused puts", npuwin_buffer_ptr(mine->dst), POISON_BYTE,
		     SIZE);
	party_sync(p);
	put = good;
	put.src = mine->src;
	put.dst = mine->dst;
	CHECK_OK(npuwin_put(r->domain, &put, &err), &err);
	party_sync(p);
}

typedef void (*party_fn)(struct party *p);

static void put_run(const struct config *cfg)
{
	const party_fn *fn = cfg->data;
	const struct run run = { .nranks = NRANKS, .fn = *fn };

	run_ranks(cfg, &run);
}

#define CASE(text, fn, axes, arg) { text, put_run, axes, arg, &(const party_fn){ fn } }

static const struct test_case cases[] = {
	CASE("put: strides", strides_party, A_RAILS | A_FORMS, 0),
	CASE("put: onto itself", self_party, A_RAILS | A_FORMS, 0),
	CASE("put: add int32 from all ranks", add_party, A_RAILS | A_FORMS, NPUWIN_ADD_INT32),
	CASE("put: add fp32 from all ranks", add_party, A_RAILS | A_FORMS, NPUWIN_ADD_FP32),
	CASE("put: refused", refused_party, A_RAILS | A_THREADS | A_PROCESS_EACH, 0),
};

const struct suite suite_put = { cases, ARRAY_SIZE(cases) };
