// SPDX-License-Identifier: MIT
/*
 * Notify, wait, test and barrier.
 */
#include <sched.h>

#include "conformance.h"

#define NRANKS	16

static const int32_t edges[] = {
	INT32_MIN, INT32_MIN + 1, -2, -1, 0, 1, 2, INT32_MAX - 1, INT32_MAX,
};

static bool holds(int32_t cell, uint32_t cmp, int32_t value)
{
	switch (cmp) {
	case NPUWIN_EQ:
		return cell == value;
	case NPUWIN_NE:
		return cell != value;
	case NPUWIN_GT:
		return cell > value;
	case NPUWIN_GE:
		return cell >= value;
	case NPUWIN_LT:
		return cell < value;
	default:
		return cell <= value;
	}
}

static void compare(const struct rank *r, const struct npuwin_buffer *b, int32_t cell,
		    uint32_t cmp, int32_t value)
{
	bool want = holds(cell, cmp, value);
	struct npuwin_error err = fresh_error();
	int32_t seen = POISON_COUNT;
	char there[16], expected[16];
	int ret;

	ret = npuwin_test(r->domain, b, 64, cmp, value, &seen, &err);
	if (ret != (want ? 0 : -EAGAIN))
		FAIL("test: %d cmp %u %d is %d: %s", cell, cmp, value, ret, err.text);
	CHECK_EQ(seen, cell);
	CHECK_EQ(npuwin_test(r->domain, b, 64, cmp, value, NULL, NULL), want ? 0 : -EAGAIN);

	seen = POISON_COUNT;
	err = fresh_error();
	ret = npuwin_wait(r->domain, b, 64, cmp, value, want ? far() : npuwin_deadline_ms(0),
			  &seen, &err);
	CHECK_EQ(seen, cell);
	snprintf(there, sizeof(there), "%d", cell);
	snprintf(expected, sizeof(expected), "%d", value);
	if (want)
		CHECK_OK(ret, &err);
	else
		CHECK_ERR(ret, -ETIMEDOUT, &err, there, expected);
}

/* Every rank compares in its own window what it has set there itself. */
static void edges_party(struct party *p)
{
	struct npuwin_error err = fresh_error();
	struct npuwin_buffer *b;
	uint32_t cmp, i;
	size_t c, v;

	for (i = 0; i < p->n; i++) {
		struct rank *r = &p->ranks[i];

		CHECK_OK(npuwin_buffer_alloc(r->domain, 132, 0, &b, &err), &err);
		memset(npuwin_buffer_ptr(b), GUARD_BYTE, 132);
		for (c = 0; c < ARRAY_SIZE(edges); c++) {
			CHECK_OK(npuwin_notify(r->domain, r->rank, b, 64, NPUWIN_SET, edges[c],
					       p->cfg->rail, &err), &err);
			for (v = 0; v < ARRAY_SIZE(edges); v++)
				for (cmp = NPUWIN_EQ; cmp <= NPUWIN_LE; cmp++)
					compare(r, b, edges[c], cmp, edges[v]);
		}
		check_filled("before the cell", npuwin_buffer_ptr(b), GUARD_BYTE, 64);
		check_filled("after the cell", (uint8_t *)npuwin_buffer_ptr(b) + 68, GUARD_BYTE,
			     64);
	}
}

/* A wait that expires says what it waited for and aborts nothing. */
static void expiry_party(struct party *p)
{
	struct npuwin_error err = fresh_error();
	int64_t before, deadline;
	struct npuwin_buffer *b;
	int32_t seen = 0;
	uint32_t i;

	for (i = 0; i < p->n; i++) {
		struct rank *r = &p->ranks[i];

		CHECK_OK(npuwin_buffer_alloc(r->domain, 64, 0, &b, &err), &err);
		*(int32_t *)npuwin_buffer_ptr(b) = -77;
		before = npuwin_deadline_ms(0);
		deadline = npuwin_deadline_ms(50);
		CHECK_ERR(npuwin_wait(r->domain, b, 0, NPUWIN_EQ, 1234, deadline, &seen, &err),
			  -ETIMEDOUT, &err, "1234", "-77");
		CHECK(npuwin_deadline_ms(0) >= deadline && deadline > before);
		CHECK_EQ(seen, -77);
		CHECK_EQ(err.rank, r->rank);
	}
	party_sync(p);
	party_barrier(p);
}

struct cells {
	struct npuwin_buffer *b[NRANKS];
};

static void cells_alloc(struct party *p, uint64_t size, struct cells *cells)
{
	struct npuwin_error err = fresh_error();
	uint32_t i;

	for (i = 0; i < p->n; i++)
		CHECK_OK(npuwin_buffer_alloc(p->ranks[i].domain, size, 0, &cells->b[i], &err),
			 &err);
	party_sync(p);
}

static int32_t set_value(uint32_t src, uint32_t dst, uint32_t round)
{
	return (int32_t)(src * 0x01010101u + dst * 4096 + round);
}

/* All ranks set cells side by side in all windows: a neighbour's store is never lost. */
static void hammer_set_party(struct party *p)
{
	uint32_t rounds = times(p->cfg, 200, 30), round, i, d;
	struct npuwin_error err = fresh_error();
	struct cells cells;

	cells_alloc(p, 4 * NRANKS + 2 * GUARD, &cells);
	for (i = 0; i < p->n; i++)
		memset(npuwin_buffer_ptr(cells.b[i]), GUARD_BYTE, 4 * NRANKS + 2 * GUARD);
	party_sync(p);
	for (round = 0; round < rounds; round++)
		for (i = 0; i < p->n; i++) {
			struct rank *r = &p->ranks[i];

			for (d = 0; d < p->nranks; d++)
				CHECK_OK(npuwin_notify(r->domain, d, cells.b[i],
						       GUARD + 4 * r->rank, NPUWIN_SET,
						       set_value(r->rank, d, round),
						       p->cfg->rail, &err), &err);
		}
	party_sync(p);
	for (i = 0; i < p->n; i++) {
		const uint8_t *at = npuwin_buffer_ptr(cells.b[i]);
		const int32_t *cell = (const int32_t *)(at + GUARD);

		for (d = 0; d < p->nranks; d++)
			CHECK_EQ(cell[d], set_value(d, p->ranks[i].rank, rounds - 1));
		check_filled("before the cells", at, GUARD_BYTE, GUARD);
		check_filled("after the cells", at + GUARD + 4 * NRANKS, GUARD_BYTE, GUARD);
	}
	party_sync(p);
}

/* All ranks add to the same cells of all windows: no addition is lost; sums wrap. */
static void hammer_add_party(struct party *p)
{
	uint32_t rounds = times(p->cfg, 200, 30), round, i, d, want;
	struct npuwin_error err = fresh_error();
	struct cells cells;

	cells_alloc(p, 64, &cells);
	for (i = 0; i < p->n; i++) {
		((int32_t *)npuwin_buffer_ptr(cells.b[i]))[3] = POISON_COUNT;
		((int32_t *)npuwin_buffer_ptr(cells.b[i]))[5] = POISON_COUNT;
	}
	party_sync(p);
	for (round = 0; round < rounds; round++)
		for (i = 0; i < p->n; i++)
			for (d = 0; d < p->nranks; d++)
				CHECK_OK(npuwin_notify(p->ranks[i].domain, d, cells.b[i], 16,
						       NPUWIN_ADD, 0x7ffffff0, p->cfg->rail,
						       &err), &err);
	party_sync(p);
	want = 0x7ffffff0u * NRANKS * rounds;
	for (i = 0; i < p->n; i++) {
		const int32_t *cell = npuwin_buffer_ptr(cells.b[i]);

		CHECK_EQ(cell[3], POISON_COUNT);
		CHECK_EQ(cell[4], (int32_t)want);
		CHECK_EQ(cell[5], POISON_COUNT);
	}
	party_sync(p);
}

/* A token goes round: each rank waits for it and passes it on, asleep most of the time. */
static void ring_party(struct party *p)
{
	struct rank *r = &p->ranks[0];
	uint32_t rounds = times(p->cfg, 200, 30), next = (r->rank + 1) % p->nranks, k;
	struct npuwin_error err = fresh_error();
	uint32_t rail = p->cfg->rail;
	struct cells cells;
	int32_t seen;

	cells_alloc(p, 64, &cells);
	for (k = 1; k <= rounds; k++) {
		if (r->rank == 0)
			CHECK_OK(npuwin_notify(r->domain, next, cells.b[0], 0, NPUWIN_SET, k,
					       rail, &err), &err);
		CHECK_OK(npuwin_wait(r->domain, cells.b[0], 0, NPUWIN_GE, k, NPUWIN_NO_DEADLINE,
				     &seen, &err), &err);
		CHECK_EQ(seen, k);
		if (r->rank)
			CHECK_OK(npuwin_notify(r->domain, next, cells.b[0], 0,
					       k % 2 ? NPUWIN_ADD : NPUWIN_SET, k % 2 ? 1 : k,
					       rail, &err), &err);
	}
	party_sync(p);
}

/* Refused notifies, waits and tests: each has one thing wrong. */
static void refused_party(struct party *p)
{
	struct rank *r = &p->ranks[0];
	struct npuwin_error err = fresh_error();
	uint32_t rail = p->cfg->rail;
	struct cells cells = { 0 };
	int32_t seen = 5;

	cells_alloc(p, 64, &cells);
	memset(npuwin_buffer_ptr(cells.b[0]), POISON_BYTE, 64);
	party_sync(p);

#define NOTIFY(rank, offset, op, rail_)						\
	npuwin_notify(r->domain, rank, cells.b[0], offset, op, 1, rail_, &err)
#define WAIT(offset, cmp)							\
	npuwin_wait(r->domain, cells.b[0], offset, cmp, 1, far(), &seen, &err)
#define TEST(offset, cmp)							\
	npuwin_test(r->domain, cells.b[0], offset, cmp, 1, &seen, &err)
	CHECK_ERR(NOTIFY(p->nranks, 0, NPUWIN_SET, rail), -EINVAL, &err, "rank", "3");
	CHECK_ERR(NOTIFY(UINT32_MAX, 0, NPUWIN_SET, rail), -EINVAL, &err, "rank");
	CHECK_ERR(NOTIFY(0, 2, NPUWIN_SET, rail), -EINVAL, &err, "offset", "2");
	CHECK_ERR(NOTIFY(0, 64, NPUWIN_SET, rail), -ERANGE, &err, "64");
	CHECK_ERR(NOTIFY(0, UINT64_MAX - 3, NPUWIN_SET, rail), -ERANGE, &err, NULL);
	CHECK_ERR(NOTIFY(0, 0, 2, rail), -EINVAL, &err, "op", "2");
	CHECK_ERR(NOTIFY(0, 0, NPUWIN_SET, 2), -EINVAL, &err, "rail", "2");
	CHECK_ERR(npuwin_notify(r->domain, 0, NULL, 0, NPUWIN_SET, 1, rail, &err), -EINVAL, &err,
		  "buffer");
	CHECK_ERR(WAIT(2, NPUWIN_EQ), -EINVAL, &err, "offset", "2");
	CHECK_ERR(WAIT(64, NPUWIN_EQ), -ERANGE, &err, "64");
	CHECK_ERR(WAIT(UINT64_MAX - 3, NPUWIN_EQ), -ERANGE, &err, NULL);
	CHECK_ERR(WAIT(0, NPUWIN_LE + 1), -EINVAL, &err, "6");
	CHECK_ERR(TEST(1, NPUWIN_EQ), -EINVAL, &err, "offset", "1");
	CHECK_ERR(TEST(64, NPUWIN_EQ), -ERANGE, &err, "64");
	CHECK_ERR(TEST(0, NPUWIN_LE + 1), -EINVAL, &err, "6");
#undef NOTIFY
#undef WAIT
#undef TEST
	CHECK_EQ(seen, 5);
	party_sync(p);
	check_filled("cells after refused notifies", npuwin_buffer_ptr(cells.b[0]), POISON_BYTE,
		     64);
	party_barrier(p);
}

typedef void (*party_fn)(struct party *p);

static void primitives_run(const struct config *cfg)
{
	const party_fn *fn = cfg->data;
	const struct run run = { .nranks = cfg->arg, .fn = *fn };

	run_ranks(cfg, &run);
}

#define CASE(text, fn, n, axes)	{ text, primitives_run, axes, n, &(const party_fn){ fn } }
#define ONE_RANK_EACH		(A_RAILS | A_THREADS | A_PROCESS_EACH)

static const struct test_case cases[] = {
	CASE("six comparisons at the edges", edges_party, 2, A_RAILS | A_FORMS),
	CASE("a wait that expires", expiry_party, 2, A_RAILS | A_FORMS),
	CASE("16 ranks set adjacent cells", hammer_set_party, NRANKS, A_RAILS | A_FORMS),
	CASE("16 ranks add to one cell", hammer_add_party, NRANKS, A_RAILS | A_FORMS),
	CASE("a token goes round", ring_party, 4, ONE_RANK_EACH),
	CASE("refused notifies, waits and tests", refused_party, 3, ONE_RANK_EACH),
};

const struct suite suite_primitives = { cases, ARRAY_SIZE(cases) };
