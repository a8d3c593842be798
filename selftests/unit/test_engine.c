// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * The engine on three ranks of plain memory, with a guard on both sides of every window:
 * results byte by byte, every rejected descriptor with all else valid and nothing changed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine.h"

#define NRANKS		3
#define WINDOW		4096
#define GUARD		256
#define ME		1

#define ARRAY_SIZE(a)	(sizeof(a) / sizeof((a)[0]))

struct fabric {
	_Alignas(8) u8 mem[NRANKS][GUARD + WINDOW + GUARD];
	_Alignas(8) u8 before[NRANKS][GUARD + WINDOW + GUARD];
	s32 regs[NRANKS][NPUWIN_NOTIFY_REGS];
	u32 notified[NRANKS];
	u32 gone;
	struct npuwin_engine engine;
	struct npuwin_cursor cursor;
	struct npuwin_cqe cqe;
};

static u8 *window(struct fabric *f, u32 rank)
{
	return f->mem[rank] + GUARD;
}

static s32 *cell(struct fabric *f, u32 rank, u64 off)
{
	return (s32 *)(window(f, rank) + off);
}

static u32 resolve(void *priv, u32 rank, enum npuwin_space space, struct npuwin_span *span)
{
	struct fabric *f = priv;

	assert_true(rank < NRANKS);
	if (rank == f->gone)
		return NPUWIN_ST_PEER;
	if (space == NPUWIN_SPACE_REG) {
		span->base = f->regs[rank];
		span->size = sizeof(f->regs[rank]);
	} else {
		span->base = window(f, rank);
		span->size = WINDOW;
	}
	return NPUWIN_ST_OK;
}

static void notified(void *priv, u32 rank)
{
	struct fabric *f = priv;

	f->notified[rank]++;
}

static const struct npuwin_engine_ops ops = { .resolve = resolve, .notified = notified };

static int setup(void **state)
{
	struct fabric *f = calloc(1, sizeof(*f));
	u32 r, i;

	if (!f)
		return -1;
	for (r = 0; r < NRANKS; r++)
		for (i = 0; i < sizeof(f->mem[r]); i++)
			f->mem[r][i] = (u8)(i * 7 + r * 41 + 3);
	memcpy(f->before, f->mem, sizeof(f->mem));
	f->gone = NPUWIN_NO_RANK;
	f->engine = (struct npuwin_engine){
		.ops = &ops, .priv = f, .rank = ME, .nranks = NRANKS,
	};
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	free(*state);
	return 0;
}

static enum npuwin_exec step(struct fabric *f, const struct npuwin_desc *d, u64 budget)
{
	memset(&f->cqe, 0xa5, sizeof(f->cqe));
	return npuwin_engine_step(&f->engine, d, &f->cursor, budget, &f->cqe);
}

static enum npuwin_exec start(struct fabric *f, const struct npuwin_desc *d, u64 budget)
{
	memset(&f->cursor, 0, sizeof(f->cursor));
	return step(f, d, budget);
}

static void run(struct fabric *f, const struct npuwin_desc *d, u64 budget)
{
	enum npuwin_exec x = start(f, d, budget);

	while (x == NPUWIN_EXEC_AGAIN)
		x = step(f, d, budget);
	assert_int_equal(x, NPUWIN_EXEC_DONE);
	assert_int_equal(f->cqe.user_data, d->user_data);
}

/* The descriptor fails with @status, nothing was written and nobody was woken. */
static void rejected(struct fabric *f, const struct npuwin_desc *d, u32 status)
{
	static const u32 nobody[NRANKS];

	run(f, d, ~0ULL);
	assert_int_equal(f->cqe.status, status);
	assert_memory_equal(f->mem, f->before, sizeof(f->mem));
	assert_memory_equal(f->notified, nobody, sizeof(nobody));
}

static struct npuwin_desc tput(void)
{
	return (struct npuwin_desc){
		.opcode = NPUWIN_OP_TPUT, .rank = 2, .user_data = 77, .src_off = 100,
		.dst_off = 203, .rows = 5, .row_bytes = 30, .src_stride = 64, .dst_stride = 31,
	};
}

static struct npuwin_desc tnotify(void)
{
	return (struct npuwin_desc){
		.opcode = NPUWIN_OP_TNOTIFY, .rank = 2, .user_data = 78, .dst_off = 40,
		.value = -5,
	};
}

static struct npuwin_desc twait(void)
{
	return (struct npuwin_desc){
		.opcode = NPUWIN_OP_TWAIT, .sub = NPUWIN_CMP_GE, .user_data = 79, .src_off = 64,
		.rows = NRANKS, .src_stride = 8, .value = 2, .deadline_ns = NPUWIN_NO_DEADLINE,
	};
}

/* Row by row, one byte after the other: what a TPUT must leave. */
static void expect_put(struct fabric *f, const struct npuwin_desc *d)
{
	u8 row[WINDOW];
	u64 r;

	for (r = 0; r < d->rows; r++) {
		memcpy(row, f->before[ME] + GUARD + d->src_off + r * d->src_stride,
		       d->row_bytes);
		memcpy(f->before[d->rank] + GUARD + d->dst_off + r * d->dst_stride, row,
		       d->row_bytes);
	}
}

static void test_put_budgets(void **state)
{
	struct npuwin_desc shapes[] = { tput(), tput(), tput(), tput() };
	static const u64 budgets[] = { 1, 7, 30, 64, 65, 1000, ~0ULL };
	struct fabric *f = *state;
	size_t s, b;

	shapes[1].src_stride = 30;	/* no gaps at all: one row */
	shapes[1].dst_stride = 30;
	shapes[2].rows = 1;		/* strides of a single row do not matter */
	shapes[2].src_stride = 0;
	shapes[2].dst_stride = ~0ULL;
	shapes[3].rows = 1;
	shapes[3].src_off = 0;
	shapes[3].dst_off = 0;
	shapes[3].row_bytes = WINDOW;	/* up to the last byte */
	for (s = 0; s < ARRAY_SIZE(shapes); s++) {
		for (b = 0; b < ARRAY_SIZE(budgets); b++) {
			run(f, &shapes[s], budgets[b]);
			assert_int_equal(f->cqe.status, NPUWIN_ST_OK);
			expect_put(f, &shapes[s]);
			assert_memory_equal(f->mem, f->before, sizeof(f->mem));
			memset(window(f, 2), (int)b, WINDOW);
			memset(f->before[2] + GUARD, (int)b, WINDOW);
		}
	}
}

static void test_put_again_charges_rows(void **state)
{
	struct npuwin_desc d = tput();
	struct fabric *f = *state;

	d.rows = 64;
	d.row_bytes = 1;
	d.src_stride = 1;
	d.dst_stride = 2;
	assert_int_equal(start(f, &d, 128), NPUWIN_EXEC_AGAIN);
	assert_int_equal(f->cursor.row, 2);
}

static void test_put_self_overlap(void **state)
{
	static const u64 budgets[] = { 1, 13, ~0ULL };
	struct npuwin_desc d = tput();
	struct fabric *f = *state;
	s64 shift;
	size_t b;

	d.rank = ME;
	d.rows = 3;
	d.row_bytes = 40;
	d.src_stride = 40;
	d.dst_stride = 40;
	for (b = 0; b < ARRAY_SIZE(budgets); b++) {
		for (shift = -50; shift <= 50; shift++) {
			d.dst_off = d.src_off + (u64)shift;
			run(f, &d, budgets[b]);
			expect_put(f, &d);
			assert_memory_equal(f->mem, f->before, sizeof(f->mem));
		}
	}
}

static void test_put_nothing(void **state)
{
	struct npuwin_desc d = tput();
	struct fabric *f = *state;

	d.rows = 0;
	rejected(f, &d, NPUWIN_ST_OK);
	d = tput();
	d.row_bytes = 0;
	rejected(f, &d, NPUWIN_ST_OK);
}

static void test_put_add_int32(void **state)
{
	struct npuwin_desc d = tput();
	struct fabric *f = *state;
	u64 budget;
	int i;

	d.sub = NPUWIN_PUT_ADD_I32;
	d.dst_off = 200;
	d.rows = 2;
	d.row_bytes = 12;
	d.src_stride = 16;
	d.dst_stride = 12;
	for (i = 0; i < 8; i++)
		*cell(f, ME, 100 + 4 * (u64)i) = INT32_MAX - i;
	for (budget = 1; budget < 200; budget += 33) {
		for (i = 0; i < 6; i++)
			*cell(f, 2, 200 + 4 * (u64)i) = 3 + i;
		memcpy(f->before, f->mem, sizeof(f->mem));
		for (i = 0; i < 6; i++) {
			u32 sum = (u32)(INT32_MAX - (i < 3 ? i : i + 1)) + 3 + (u32)i;

			memcpy(f->before[2] + GUARD + 200 + 4 * i, &sum, 4);
		}
		run(f, &d, budget);
		assert_int_equal(f->cqe.status, NPUWIN_ST_OK);
		assert_memory_equal(f->mem, f->before, sizeof(f->mem));
	}
}

static void test_put_rejects(void **state)
{
	struct npuwin_desc d;
	struct fabric *f = *state;

#define REJECT(status, ...) do { d = tput(); __VA_ARGS__; rejected(f, &d, status); } while (0)
	REJECT(NPUWIN_ST_FLAGS, d.flags = NPUWIN_DESC_F_REG);
	REJECT(NPUWIN_ST_FLAGS, d.flags = NPUWIN_TWAIT_F_TEST);
	REJECT(NPUWIN_ST_FLAGS, d.flags = 0x80);
	REJECT(NPUWIN_ST_FLAGS, d.sub = NPUWIN_PUT_ADD_F32 + 1);
	REJECT(NPUWIN_ST_FLAGS, d.reserved0 = 1);
	REJECT(NPUWIN_ST_FLAGS, d.value = 1);
	REJECT(NPUWIN_ST_RANK, d.rank = NRANKS);
	REJECT(NPUWIN_ST_RANK, d.rank = NPUWIN_NO_RANK);
	REJECT(NPUWIN_ST_RANGE, d.src_stride = 29);
	REJECT(NPUWIN_ST_RANGE, d.dst_stride = 29);
	REJECT(NPUWIN_ST_BOUNDS, d.src_off = WINDOW - 4 * 64 - 29);
	REJECT(NPUWIN_ST_BOUNDS, d.dst_off = WINDOW - 4 * 31 - 29);
	REJECT(NPUWIN_ST_BOUNDS, d.src_off = ~0ULL);
	REJECT(NPUWIN_ST_BOUNDS, d.dst_off = ~0ULL - 100);
	REJECT(NPUWIN_ST_BOUNDS, d.rows = ~0U);
	REJECT(NPUWIN_ST_BOUNDS, d.rows = 1, d.row_bytes = ~0ULL);
	REJECT(NPUWIN_ST_BOUNDS, d.src_stride = ~0ULL);
	REJECT(NPUWIN_ST_BOUNDS, d.dst_stride = 1ULL << 62);
	REJECT(NPUWIN_ST_BOUNDS, d.rows = 1U << 31, d.row_bytes = 1ULL << 33,
	       d.src_stride = 1ULL << 33, d.dst_stride = 1ULL << 33);
	REJECT(NPUWIN_ST_PEER, f->gone = 2);
	f->gone = NPUWIN_NO_RANK;
	REJECT(NPUWIN_ST_ALIGN, d.sub = NPUWIN_PUT_ADD_I32, d.dst_off = 200);
#define ADDING d.sub = NPUWIN_PUT_ADD_F32, d.dst_off = 200, d.row_bytes = 28, d.dst_stride = 32
	REJECT(NPUWIN_ST_ALIGN, ADDING, d.src_off = 102);
	REJECT(NPUWIN_ST_ALIGN, ADDING, d.dst_off = 201);
	REJECT(NPUWIN_ST_ALIGN, ADDING, d.row_bytes = 27);
	REJECT(NPUWIN_ST_ALIGN, ADDING, d.src_stride = 66);
	REJECT(NPUWIN_ST_ALIGN, ADDING, d.dst_stride = 30);
#undef REJECT
}

static void test_notify(void **state)
{
	struct npuwin_desc d = tnotify();
	struct fabric *f = *state;
	s32 want;

	d.dst_off = WINDOW - 4;
	run(f, &d, 1);
	assert_int_equal(f->cqe.status, NPUWIN_ST_OK);
	assert_int_equal(f->notified[2], 1);
	want = -5;
	memcpy(f->before[2] + GUARD + WINDOW - 4, &want, 4);
	assert_memory_equal(f->mem, f->before, sizeof(f->mem));

	d.sub = NPUWIN_NOTIFY_ADD;
	d.value = INT32_MIN;
	run(f, &d, 1);
	want = (s32)((u32)-5 + 0x80000000U);
	memcpy(f->before[2] + GUARD + WINDOW - 4, &want, 4);
	assert_memory_equal(f->mem, f->before, sizeof(f->mem));

	d.flags = NPUWIN_DESC_F_REG;
	d.dst_off = 4 * (NPUWIN_NOTIFY_REGS - 1);
	d.value = 9;
	run(f, &d, 1);
	run(f, &d, 1);
	assert_int_equal(f->regs[2][NPUWIN_NOTIFY_REGS - 1], 18);
	assert_int_equal(f->notified[2], 4);
	assert_memory_equal(f->mem, f->before, sizeof(f->mem));
}

static void test_notify_rejects(void **state)
{
	struct npuwin_desc d;
	struct fabric *f = *state;

#define REJECT(status, ...) do { d = tnotify(); __VA_ARGS__; rejected(f, &d, status); } while (0)
	REJECT(NPUWIN_ST_FLAGS, d.flags = NPUWIN_TWAIT_F_CONSUME);
	REJECT(NPUWIN_ST_FLAGS, d.flags = 0x04);
	REJECT(NPUWIN_ST_FLAGS, d.sub = 2);
	REJECT(NPUWIN_ST_FLAGS, d.reserved0 = 1);
	REJECT(NPUWIN_ST_FLAGS, d.src_off = 4);
	REJECT(NPUWIN_ST_FLAGS, d.rows = 1);
	REJECT(NPUWIN_ST_FLAGS, d.row_bytes = 1);
	REJECT(NPUWIN_ST_FLAGS, d.src_stride = 1);
	REJECT(NPUWIN_ST_FLAGS, d.dst_stride = 1);
	REJECT(NPUWIN_ST_RANK, d.rank = NRANKS);
	REJECT(NPUWIN_ST_ALIGN, d.dst_off = 42);
	REJECT(NPUWIN_ST_BOUNDS, d.dst_off = WINDOW);
	REJECT(NPUWIN_ST_BOUNDS, d.dst_off = ~0ULL - 3);
	REJECT(NPUWIN_ST_BOUNDS, d.flags = NPUWIN_DESC_F_REG, d.dst_off = 4 * NPUWIN_NOTIFY_REGS);
	REJECT(NPUWIN_ST_PEER, f->gone = 2);
#undef REJECT
}

static void test_compare(void **state)
{
	static const s32 v[] = { INT32_MIN, -1, 0, 1, INT32_MAX };
	size_t i, j;

	(void)state;
	for (i = 0; i < 5; i++) {
		for (j = 0; j < 5; j++) {
			assert_int_equal(npuwin_compare(v[i], NPUWIN_CMP_EQ, v[j]), i == j);
			assert_int_equal(npuwin_compare(v[i], NPUWIN_CMP_NE, v[j]), i != j);
			assert_int_equal(npuwin_compare(v[i], NPUWIN_CMP_GT, v[j]), i > j);
			assert_int_equal(npuwin_compare(v[i], NPUWIN_CMP_GE, v[j]), i >= j);
			assert_int_equal(npuwin_compare(v[i], NPUWIN_CMP_LT, v[j]), i < j);
			assert_int_equal(npuwin_compare(v[i], NPUWIN_CMP_LE, v[j]), i <= j);
			assert_false(npuwin_compare(v[i], NPUWIN_CMP_LE + 1, v[j]));
		}
	}
}

static void test_wait(void **state)
{
	struct npuwin_desc d = twait();
	struct fabric *f = *state;

	*cell(f, ME, 64) = 2;
	*cell(f, ME, 72) = 1;
	*cell(f, ME, 80) = 7;
	memcpy(f->before, f->mem, sizeof(f->mem));
	assert_int_equal(start(f, &d, ~0ULL), NPUWIN_EXEC_BLOCKED);
	assert_int_equal(f->cqe.cell, 1);
	assert_int_equal(f->cqe.value, 1);
	assert_int_equal(f->cqe.rank, NPUWIN_NO_RANK);
	assert_memory_equal(f->mem, f->before, sizeof(f->mem));

	/* A cell that has compared is not looked at again. */
	*cell(f, ME, 64) = 0;
	*cell(f, ME, 72) = 2;
	assert_int_equal(step(f, &d, ~0ULL), NPUWIN_EXEC_DONE);
	assert_int_equal(f->cqe.status, NPUWIN_ST_OK);
}

static void test_wait_consume(void **state)
{
	struct npuwin_desc d = twait();
	struct fabric *f = *state;

	d.flags = NPUWIN_TWAIT_F_CONSUME | NPUWIN_TWAIT_F_BY_RANK;
	*cell(f, ME, 64) = 5;
	*cell(f, ME, 72) = 2;
	*cell(f, ME, 80) = 1;
	assert_int_equal(start(f, &d, ~0ULL), NPUWIN_EXEC_BLOCKED);
	assert_int_equal(f->cqe.cell, 2);
	assert_int_equal(f->cqe.rank, 2);
	assert_int_equal(*cell(f, ME, 64), 3);
	assert_int_equal(*cell(f, ME, 72), 0);
	assert_int_equal(*cell(f, ME, 80), 1);
	*cell(f, ME, 80) = 2;
	assert_int_equal(step(f, &d, ~0ULL), NPUWIN_EXEC_DONE);
	assert_int_equal(*cell(f, ME, 64), 3);
	assert_int_equal(*cell(f, ME, 80), 0);
}

/* A cell of a TWAIT costs as much as a row. */
#define CELL_COST	64

/* A wait of all cells of the window that has @rows, one after the other. */
static struct npuwin_desc twait_many(struct fabric *f, u32 rows)
{
	struct npuwin_desc d = twait();

	for (u32 i = 0; i < rows; i++)
		*cell(f, ME, 4 * (u64)i) = 5;
	d.src_off = 0;
	d.src_stride = 4;
	d.rows = rows;
	return d;
}

static void test_wait_budgets(void **state)
{
	static const struct {
		u64 budget;
		u32 cells;
	} steps[] = {
		{ 1, 1 }, { CELL_COST, 1 }, { CELL_COST + 1, 2 }, { 3 * CELL_COST, 3 },
		{ 100 * CELL_COST - 1, 100 },
	};
	const u32 rows = WINDOW / 4;
	struct fabric *f = *state;
	struct npuwin_desc d = twait_many(f, rows);

	memcpy(f->before, f->mem, sizeof(f->mem));
	for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
		u32 at = 0;

		memset(&f->cursor, 0, sizeof(f->cursor));
		while (rows - at > steps[i].cells) {
			assert_int_equal(step(f, &d, steps[i].budget), NPUWIN_EXEC_AGAIN);
			at += steps[i].cells;
			assert_int_equal(f->cursor.row, at);
		}
		assert_int_equal(step(f, &d, steps[i].budget), NPUWIN_EXEC_DONE);
		assert_int_equal(f->cqe.status, NPUWIN_ST_OK);
		assert_memory_equal(f->mem, f->before, sizeof(f->mem));
	}
}

static void test_wait_consume_in_steps(void **state)
{
	const u32 rows = WINDOW / 4, blocked = 700;
	struct fabric *f = *state;
	struct npuwin_desc d = twait_many(f, rows);
	enum npuwin_exec x;

	d.flags = NPUWIN_TWAIT_F_CONSUME;
	*cell(f, ME, 4 * blocked) = 1;
	memcpy(f->before, f->mem, sizeof(f->mem));
	for (x = start(f, &d, 5 * CELL_COST); x == NPUWIN_EXEC_AGAIN;
	     x = step(f, &d, 5 * CELL_COST)) {
		/* Taken once, and not looked at again. */
		for (u32 i = 0; i < f->cursor.row; i++) {
			assert_int_equal(*cell(f, ME, 4 * (u64)i), i + 5 < f->cursor.row ? 0 : 3);
			*cell(f, ME, 4 * (u64)i) = 0;
		}
	}
	assert_int_equal(x, NPUWIN_EXEC_BLOCKED);
	assert_int_equal(f->cqe.cell, blocked);
	assert_int_equal(f->cqe.value, 1);
	assert_int_equal(*cell(f, ME, 4 * (u64)blocked), 1);
	/* It goes on from there, and takes from each of the rest once. */
	*cell(f, ME, 4 * (u64)blocked) = 2;
	for (x = step(f, &d, CELL_COST); x == NPUWIN_EXEC_AGAIN; x = step(f, &d, CELL_COST))
		;
	assert_int_equal(x, NPUWIN_EXEC_DONE);
	assert_int_equal(f->cqe.status, NPUWIN_ST_OK);
	for (u32 i = 0; i < rows; i++) {
		s32 want = i <= blocked ? 0 : 3;

		memcpy(f->before[ME] + GUARD + 4 * i, &want, 4);
	}
	assert_memory_equal(f->mem, f->before, sizeof(f->mem));
}

static void test_wait_test_in_steps(void **state)
{
	struct fabric *f = *state;
	struct npuwin_desc d = twait_many(f, 20);
	u32 i;

	d.flags = NPUWIN_TWAIT_F_TEST;
	*cell(f, ME, 4 * 19) = 0;
	assert_int_equal(start(f, &d, 1), NPUWIN_EXEC_AGAIN);
	for (i = 1; i < 19; i++) {
		/* It looks at each cell once. */
		*cell(f, ME, 4 * (u64)(i - 1)) = 0;
		assert_int_equal(step(f, &d, 1), NPUWIN_EXEC_AGAIN);
	}
	assert_int_equal(step(f, &d, 1), NPUWIN_EXEC_DONE);
	assert_int_equal(f->cqe.status, NPUWIN_ST_MISMATCH);
	assert_int_equal(f->cqe.cell, 19);
	assert_int_equal(f->cqe.value, 0);
}

static void test_wait_test(void **state)
{
	struct npuwin_desc d = twait();
	struct fabric *f = *state;

	d.flags = NPUWIN_TWAIT_F_TEST;
	d.sub = NPUWIN_CMP_EQ;
	*cell(f, ME, 64) = 2;
	*cell(f, ME, 72) = 2;
	*cell(f, ME, 80) = 3;
	run(f, &d, 1);
	assert_int_equal(f->cqe.status, NPUWIN_ST_MISMATCH);
	assert_int_equal(f->cqe.cell, 2);
	assert_int_equal(f->cqe.value, 3);
	*cell(f, ME, 80) = 2;
	run(f, &d, 1);
	assert_int_equal(f->cqe.status, NPUWIN_ST_OK);
}

static void test_wait_register(void **state)
{
	struct npuwin_desc d = twait();
	struct fabric *f = *state;

	d.flags = NPUWIN_DESC_F_REG;
	d.rows = 1;
	d.src_stride = 0;
	assert_int_equal(start(f, &d, 1), NPUWIN_EXEC_BLOCKED);
	f->regs[ME][16] = 2;
	run(f, &d, 1);
	assert_int_equal(f->cqe.status, NPUWIN_ST_OK);
}

static void test_wait_rejects(void **state)
{
	struct npuwin_desc d;
	struct fabric *f = *state;

	*cell(f, ME, 64) = 2;
	*cell(f, ME, 72) = 2;
	*cell(f, ME, 80) = 2;
	memcpy(f->before, f->mem, sizeof(f->mem));
#define REJECT(status, ...) do { d = twait(); __VA_ARGS__; rejected(f, &d, status); } while (0)
	REJECT(NPUWIN_ST_OK, (void)0);
	REJECT(NPUWIN_ST_FLAGS, d.flags = 0x04);
	REJECT(NPUWIN_ST_FLAGS, d.flags = 0x80);
	REJECT(NPUWIN_ST_FLAGS, d.sub = NPUWIN_CMP_LE + 1);
	REJECT(NPUWIN_ST_FLAGS, d.reserved0 = 1);
	REJECT(NPUWIN_ST_FLAGS, d.rank = 1);
	REJECT(NPUWIN_ST_FLAGS, d.dst_off = 4);
	REJECT(NPUWIN_ST_FLAGS, d.row_bytes = 4);
	REJECT(NPUWIN_ST_RANGE, d.rows = 0);
	REJECT(NPUWIN_ST_RANGE, d.deadline_ns = -1);
	REJECT(NPUWIN_ST_RANGE, d.src_stride = 0);
	REJECT(NPUWIN_ST_RANGE, d.flags = NPUWIN_TWAIT_F_BY_RANK, d.rows = NRANKS - 1);
	REJECT(NPUWIN_ST_ALIGN, d.src_off = 66);
	REJECT(NPUWIN_ST_ALIGN, d.src_stride = 6);
	REJECT(NPUWIN_ST_BOUNDS, d.src_off = WINDOW - 16);
	REJECT(NPUWIN_ST_BOUNDS, d.src_stride = 1ULL << 63);
	REJECT(NPUWIN_ST_BOUNDS, d.rows = ~0U);
	REJECT(NPUWIN_ST_BOUNDS, d.flags = NPUWIN_DESC_F_REG, d.src_off = 4 * NPUWIN_NOTIFY_REGS);
	REJECT(NPUWIN_ST_PEER, f->gone = ME);
#undef REJECT
}

static void test_nop_and_unknown(void **state)
{
	struct npuwin_desc d = { .opcode = NPUWIN_OP_NOP, .flags = NPUWIN_DESC_F_CQE };
	struct fabric *f = *state;
	u32 i;

	rejected(f, &d, NPUWIN_ST_OK);
	/* Every byte but opcode, user_data and the one known flag must be zero. */
	for (i = 1; i < sizeof(d); i++) {
		if (i >= offsetof(struct npuwin_desc, user_data) &&
		    i < offsetof(struct npuwin_desc, src_off))
			continue;
		memset(&d, 0, sizeof(d));
		((u8 *)&d)[i] = 0x80;
		rejected(f, &d, NPUWIN_ST_FLAGS);
	}
	for (i = NPUWIN_OP_TWAIT + 1; i < 256; i++) {
		memset(&d, 0, sizeof(d));
		d.opcode = (u8)i;
		rejected(f, &d, NPUWIN_ST_OPCODE);
	}
}

/* Out of line, so that the machine adds and not the compiler. */
static __attribute__((noinline)) u32 f32_hardware(u32 a, u32 b)
{
	float x, y, sum;
	u32 bits;

	memcpy(&x, &a, 4);
	memcpy(&y, &b, 4);
	sum = x + y;
	if (sum != sum)
		return 0x7fc00000;
	memcpy(&bits, &sum, 4);
	return bits;
}

/* The machine's own adder is the reference: edges with edges, then a seeded walk. */
static void test_f32_add(void **state)
{
	static const u32 edge[] = {
		0, 1, 2, 0x007fffff, 0x00800000, 0x00800001, 0x00ffffff, 0x01000000, 0x33800000,
		0x33800001, 0x34000000, 0x3f7fffff, 0x3f800000, 0x3f800001, 0x40000000,
		0x4b000000, 0x4b7fffff, 0x4b800000, 0x7effffff, 0x7f000000, 0x7f7fffff,
		0x7f800000, 0x7f800001, 0x7fc00000, 0x7fffffff,
	};
	const u32 n = ARRAY_SIZE(edge);
	u64 seed = 0x9e3779b97f4a7c15;
	u32 i, j, a, b;

	(void)state;
	for (i = 0; i < 2 * n; i++) {
		for (j = 0; j < 2 * n; j++) {
			a = edge[i / 2] | (i & 1) << 31;
			b = edge[j / 2] | (j & 1) << 31;
			assert_int_equal(npuwin_f32_add(a, b), f32_hardware(a, b));
		}
	}
	for (i = 0; i < 4000000; i++) {
		seed ^= seed << 13;
		seed ^= seed >> 7;
		seed ^= seed << 17;
		a = (u32)seed;
		b = (u32)(seed >> 32);
		if (i & 1)	/* exponents that are near, where cancellation is */
			b = (b & 0x807fffff) | ((a + ((b >> 23 & 3) << 23)) & 0x7f800000);
		if (npuwin_f32_add(a, b) != f32_hardware(a, b))
			fail_msg("0x%08x + 0x%08x: 0x%08x, want 0x%08x", a, b,
				 npuwin_f32_add(a, b), f32_hardware(a, b));
	}
}

static void test_put_add_fp32(void **state)
{
	struct npuwin_desc d = tput();
	struct fabric *f = *state;
	float x, sum;
	int i;

	d.sub = NPUWIN_PUT_ADD_F32;
	d.dst_off = 200;
	d.rows = 1;
	d.row_bytes = 16;
	for (i = 0; i < 4; i++) {
		x = 0.1f * (float)i;
		memcpy(window(f, ME) + 100 + 4 * i, &x, 4);
		x = 0.001f;
		memcpy(window(f, 2) + 200 + 4 * i, &x, 4);
	}
	run(f, &d, 16);
	assert_int_equal(f->cqe.status, NPUWIN_ST_OK);
	for (i = 0; i < 4; i++) {
		sum = 0.1f * (float)i + 0.001f;
		assert_memory_equal(window(f, 2) + 200 + 4 * i, &sum, 4);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
		T(test_put_budgets), T(test_put_again_charges_rows), T(test_put_self_overlap),
		T(test_put_nothing), T(test_put_add_int32), T(test_put_add_fp32),
		T(test_put_rejects), T(test_notify), T(test_notify_rejects), T(test_compare),
		T(test_wait), T(test_wait_consume), T(test_wait_test), T(test_wait_register),
		T(test_wait_budgets), T(test_wait_consume_in_steps), T(test_wait_test_in_steps),
		T(test_wait_rejects), T(test_nop_and_unknown), T(test_f32_add),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
