// SPDX-License-Identifier: GPL-2.0-only
/* Waits of very many cells, which are executed in many steps. */
#include "common.h"

#define SIZE	(4 * MIB)
#define CELLS	(SIZE / 4)
#define CREDIT	100

FIXTURE(steps)
{
	struct team team;
	struct rank *a;
	struct rank *b;
	int32_t *cells;
	struct npuwin_desc desc;
};

FIXTURE_SETUP(steps)
{
	uint32_t i;

	if (!have_devices())
		SKIP(LEAVE_TEST, NEEDS_DEVICES);
	ASSERT_EQ(0, team_make(&self->team, 2, SIZE));
	self->a = &self->team.rank[0];
	self->b = &self->team.rank[1];
	self->cells = cell_at(self->a, 0);
	for (i = 0; i < CELLS; i++)
		self->cells[i] = CREDIT;
	self->desc = twait(0, NPUWIN_CMP_GE, 1, NPUWIN_NO_DEADLINE);
	self->desc.flags |= NPUWIN_TWAIT_F_CONSUME;
	self->desc.rows = CELLS;
	self->desc.src_stride = 4;
}

FIXTURE_TEARDOWN(steps)
{
	team_free(&self->team);
}

/* The first cell from @from to @end that is not @value; @end if all are. */
static uint32_t other_than(const int32_t *cells, uint32_t from, uint32_t end, int32_t value)
{
	while (from < end && cells[from] == value)
		from++;
	return from;
}

static void until(const int32_t *cell, int32_t value)
{
	while (__atomic_load_n(cell, __ATOMIC_ACQUIRE) != value)
		sched_yield();
}

TEST_F_TIMEOUT(steps, each_cell_once, 60)
{
	struct npuwin_cqe cqe;

	/* By who waits, and by a worker. */
	ASSERT_EQ(NPUWIN_ST_OK, rank_run(self->a, self->desc, &cqe));
	EXPECT_EQ(CELLS, other_than(self->cells, 0, CELLS, CREDIT - 1));
	ASSERT_EQ(0, rank_post(self->a, self->desc));
	until(&self->cells[CELLS - 1], CREDIT - 2);
	ASSERT_EQ(0, rank_take(self->a, &cqe));
	EXPECT_EQ(NPUWIN_ST_OK, cqe.status);
	EXPECT_EQ(CELLS, other_than(self->cells, 0, CELLS, CREDIT - 2));
	/* TEST looks once, and takes what is before the cell that does not compare. */
	self->cells[CELLS - 1] = 0;
	self->desc.flags |= NPUWIN_TWAIT_F_TEST;
	ASSERT_EQ(NPUWIN_ST_MISMATCH, rank_run(self->a, self->desc, &cqe));
	EXPECT_EQ(CELLS - 1, cqe.cell);
	EXPECT_EQ(0, cqe.value);
	EXPECT_EQ(CELLS - 1, other_than(self->cells, 0, CELLS - 1, CREDIT - 3));
	EXPECT_EQ(0, self->cells[CELLS - 1]);
}

/* It blocks far from its beginning, and far from there again. */
TEST_F_TIMEOUT(steps, blocked, 60)
{
	const uint32_t middle = CELLS / 2 + 1;
	struct npuwin_cqe cqe;

	self->cells[middle] = 0;
	self->cells[CELLS - 1] = 0;
	ASSERT_EQ(0, rank_post(self->a, self->desc));
	until(&self->cells[middle - 1], CREDIT - 1);
	EXPECT_EQ(CELLS - 1, other_than(self->cells, middle + 1, CELLS - 1, CREDIT));
	ASSERT_EQ(NPUWIN_ST_OK, rank_run(self->b, notify(0, 4 * middle, CREDIT), &cqe));
	until(&self->cells[CELLS - 2], CREDIT - 1);
	ASSERT_EQ(NPUWIN_ST_OK, rank_run(self->b, notify(0, SIZE - 4, CREDIT), &cqe));
	ASSERT_EQ(0, rank_take(self->a, &cqe));
	EXPECT_EQ(NPUWIN_ST_OK, cqe.status);
	EXPECT_EQ(CELLS, other_than(self->cells, 0, CELLS, CREDIT - 1));
}

/* The call has no time left in the middle of it: it goes on by itself. */
TEST_F_TIMEOUT(steps, left_alone, 60)
{
	struct npuwin_cqe cqe;
	uint32_t i, n;

	for (i = 1; i <= 10; i++) {
		n = 1;
		ASSERT_EQ(0, submit_wait(self->a->fd, self->a->queue, &self->desc, 1, &cqe, &n,
					 now_ns() + 100000));
		if (!n)
			ASSERT_EQ(0, rank_take(self->a, &cqe));
		EXPECT_EQ(NPUWIN_ST_OK, cqe.status);
		EXPECT_EQ(CELLS, other_than(self->cells, 0, CELLS, CREDIT - i));
	}
}

/* What holds is success, also where the domain is aborted before the last cell. */
TEST_F_TIMEOUT(steps, aborted, 60)
{
	struct npuwin_cqe cqe;

	ASSERT_EQ(0, rank_post(self->a, self->desc));
	until(&self->cells[0], CREDIT - 1);
	ASSERT_EQ(0, domain_abort(self->b->fd, self->team.domain, 1, EIO));
	ASSERT_EQ(0, rank_take(self->a, &cqe));
	EXPECT_EQ(NPUWIN_ST_OK, cqe.status);
	EXPECT_EQ(CELLS, other_than(self->cells, 0, CELLS, CREDIT - 1));
}

/* A reset ends it where it is, and from the reset on nothing is taken. */
TEST_F_TIMEOUT(steps, reset, 60)
{
	struct npuwin_cqe cqe;
	uint32_t i, end;

	for (i = 1; i <= 10; i++) {
		ASSERT_EQ(0, rank_post(self->a, self->desc));
		until(&self->cells[0], CREDIT - i);
		ASSERT_EQ(0, queue_reset(self->a->fd, self->a->queue));
		end = other_than(self->cells, 0, CELLS, CREDIT - i);
		ASSERT_EQ(NPUWIN_ST_OK, rank_run(self->a, nop(NPUWIN_DESC_F_CQE), &cqe));
		EXPECT_EQ(end, other_than(self->cells, 0, CELLS, CREDIT - i));
		/* The next one begins at the first cell again. */
		for (; end < CELLS; end++)
			self->cells[end] = CREDIT - i;
	}
}

TEST_HARNESS_MAIN
