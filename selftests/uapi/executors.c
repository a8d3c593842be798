// SPDX-License-Identifier: GPL-2.0-only
/* What descriptors do, the same whether the waiting task or a worker executes them. */
#include "common.h"

#define SIZE	(4 * MIB)

FIXTURE(executors)
{
	struct team team;
};

FIXTURE_VARIANT(executors)
{
	bool inline_;
};

FIXTURE_VARIANT_ADD(executors, waiting)
{
	.inline_ = true,
};

FIXTURE_VARIANT_ADD(executors, worker)
{
	.inline_ = false,
};

FIXTURE_SETUP(executors)
{
	if (!have_devices())
		SKIP(LEAVE_TEST, NEEDS_DEVICES);
	ASSERT_EQ(0, team_make(&self->team, 2, SIZE));
}

FIXTURE_TEARDOWN(executors)
{
	team_free(&self->team);
}

/* Post a batch and get all its completions. */
static int batch(const struct _fixture_variant_executors *variant, struct rank *rank,
		 const struct npuwin_desc *descs, uint32_t count, struct npuwin_cqe *cqes,
		 uint32_t expected)
{
	uint32_t n = expected;
	int ret;

	if (variant->inline_) {
		ret = submit_wait(rank->fd, rank->queue, descs, count, cqes, &n, in_ms(10000));
	} else {
		ret = submit(rank->fd, rank->queue, descs, count);
		if (!ret)
			ret = queue_wait(rank->fd, rank->queue, cqes, expected, &n,
					 in_ms(10000));
	}
	if (!ret && n != expected)
		ret = -EBADE;
	return ret;
}

TEST_F(executors, put_rows)
{
	struct rank *a = &self->team.rank[0], *b = &self->team.rank[1];
	struct npuwin_desc desc = put(1, 100, 1000, 37);
	struct npuwin_cqe cqe;
	unsigned int i, k;

	for (i = 0; i < SIZE; i++)
		a->mem[i] = i * 7 + i / 251;
	desc.rows = 99;
	desc.src_stride = 1021;
	desc.dst_stride = 41;
	desc.user_data = 0x123456789abcdef0;
	ASSERT_EQ(0, batch(variant, a, &desc, 1, &cqe, 1));
	EXPECT_EQ(NPUWIN_ST_OK, cqe.status);
	EXPECT_EQ(0x123456789abcdef0, cqe.user_data);
	EXPECT_EQ(0, cqe.seq);
	for (i = 0; i < 99; i++) {
		for (k = 0; k < 41; k++)
			ASSERT_EQ(k < 37 ? a->mem[100 + i * 1021 + k] : 0,
				  b->mem[1000 + i * 41 + k]);
	}
	EXPECT_EQ(0, b->mem[999]);
	EXPECT_EQ(0, b->mem[1000 + 99 * 41]);
}

/* In order: each descriptor sees what those before it have done. */
TEST_F(executors, order)
{
	struct rank *a = &self->team.rank[0];
	struct npuwin_desc descs[RANK_DEPTH];
	struct npuwin_cqe cqe;
	uint32_t i, round;

	*cell_at(a, 0) = 42;
	for (round = 0; round < 20; round++) {
		/* Hand a value from cell to cell, and the last one to the first. */
		for (i = 0; i < RANK_DEPTH - 1; i++) {
			descs[i] = put(0, i * 4, (i + 1) * 4, 4);
			descs[i].flags = 0;
		}
		descs[i] = put(0, i * 4, 0, 4);
		ASSERT_EQ(0, batch(variant, a, descs, RANK_DEPTH, &cqe, 1));
		EXPECT_EQ(NPUWIN_ST_OK, cqe.status);
		EXPECT_EQ((round + 1) * RANK_DEPTH - 1, cqe.seq);
		EXPECT_EQ((int32_t)(42 + round), *cell_at(a, (RANK_DEPTH - 1) * 4));
		*cell_at(a, 0) = 43 + round;
	}
}

/* Many rounds in which each rank waits for the other: hand-over in every state. */
TEST_F(executors, ping_pong)
{
	enum { ROUNDS = 2000 };
	struct rank *a = &self->team.rank[0], *b = &self->team.rank[1];
	struct npuwin_desc descs[2];
	struct npuwin_cqe cqe;
	int i, status;
	pid_t pid;

	pid = fork();
	ASSERT_GE(pid, 0);
	if (!pid) {
		for (i = 1; i <= ROUNDS; i++) {
			descs[0] = twait(0, NPUWIN_CMP_EQ, i, in_ms(20000));
			descs[0].flags = 0;
			descs[1] = notify(0, 0, 1);
			if (batch(variant, b, descs, 2, &cqe, 1) || cqe.status)
				_exit(1);
		}
		_exit(0);
	}
	for (i = 1; i <= ROUNDS; i++) {
		descs[0] = notify(1, 0, 1);
		descs[0].flags = 0;
		descs[1] = twait(0, NPUWIN_CMP_EQ, i, in_ms(20000));
		ASSERT_EQ(0, batch(variant, a, descs, 2, &cqe, 1)) TH_LOG("round %d", i);
		ASSERT_EQ(NPUWIN_ST_OK, cqe.status) TH_LOG("round %d", i);
	}
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	EXPECT_EQ(0, status);
}

TEST_F(executors, failure_stops)
{
	struct rank *a = &self->team.rank[0], *b = &self->team.rank[1];
	uint64_t bounds = device_attr(0, "errors/bounds");
	struct npuwin_desc descs[4] = {
		put(1, 0, 64, 4), put(1, 0, SIZE - 3, 4), put(1, 0, 128, 4), nop(0),
	};
	struct npuwin_cqe cqes[4];
	uint32_t n = 4;

	*cell_at(a, 0) = 77;
	descs[1].flags = 0;
	ASSERT_EQ(0, batch(variant, a, descs, 4, cqes, 2));
	EXPECT_EQ(NPUWIN_ST_OK, cqes[0].status);
	EXPECT_EQ(NPUWIN_ST_BOUNDS, cqes[1].status);
	EXPECT_EQ(1, cqes[1].seq);
	EXPECT_EQ(bounds + 1, device_attr(0, "errors/bounds"));
	EXPECT_EQ(77, *cell_at(b, 64));
	EXPECT_EQ(0, *cell_at(b, 128));
	/* Stopped, until it is reset. */
	EXPECT_EQ(-ECANCELED, submit(a->fd, a->queue, descs, 1));
	EXPECT_EQ(-ECANCELED, queue_wait(a->fd, a->queue, cqes, 1, &n, in_ms(1000)));
	ASSERT_EQ(0, queue_reset(a->fd, a->queue));
	ASSERT_EQ(0, batch(variant, a, descs, 1, cqes, 1));
	EXPECT_EQ(NPUWIN_ST_OK, cqes[0].status);
	EXPECT_EQ(4, cqes[0].seq);
}

/* A test that fails ends its batch and nothing else. */
TEST_F(executors, mismatch_goes_on)
{
	struct rank *a = &self->team.rank[0];
	struct npuwin_desc descs[3] = {
		twait(0, NPUWIN_CMP_EQ, 1, NPUWIN_NO_DEADLINE), notify(0, 64, 1), nop(0),
	};
	struct npuwin_cqe cqes[3];

	descs[0].flags = NPUWIN_TWAIT_F_TEST;
	*cell_at(a, 0) = 5;
	ASSERT_EQ(0, batch(variant, a, descs, 3, cqes, 1));
	EXPECT_EQ(NPUWIN_ST_MISMATCH, cqes[0].status);
	EXPECT_EQ(0, cqes[0].cell);
	EXPECT_EQ(5, cqes[0].value);
	EXPECT_EQ(0, *cell_at(a, 64));
	*cell_at(a, 0) = 1;
	ASSERT_EQ(0, batch(variant, a, descs, 3, cqes, 1));
	EXPECT_EQ(NPUWIN_ST_OK, cqes[0].status);
	EXPECT_EQ(4, cqes[0].seq);
	EXPECT_EQ(1, *cell_at(a, 64));
}

TEST_F(executors, deadline)
{
	struct rank *a = &self->team.rank[0];
	uint64_t timeouts = device_attr(0, "errors/timeouts");
	int64_t start = now_ns();
	struct npuwin_desc desc = twait(8, NPUWIN_CMP_EQ, 1, start + 60000000);
	struct npuwin_cqe cqe;

	desc.rows = 2;
	desc.src_stride = 8;
	*cell_at(a, 8) = 1;
	*cell_at(a, 16) = 9;
	ASSERT_EQ(0, batch(variant, a, &desc, 1, &cqe, 1));
	EXPECT_EQ(NPUWIN_ST_TIMEOUT, cqe.status);
	EXPECT_EQ(1, cqe.cell);
	EXPECT_EQ(9, cqe.value);
	EXPECT_EQ(NPUWIN_NO_RANK, cqe.rank);
	EXPECT_GE(now_ns(), start + 60000000);
	EXPECT_EQ(timeouts + 1, device_attr(0, "errors/timeouts"));
	/* A deadline that has passed is no success, but what holds when looked at is. */
	ASSERT_EQ(0, queue_reset(a->fd, a->queue));
	desc.deadline_ns = 0;
	ASSERT_EQ(0, batch(variant, a, &desc, 1, &cqe, 1));
	EXPECT_EQ(NPUWIN_ST_TIMEOUT, cqe.status);
	*cell_at(a, 16) = 1;
	ASSERT_EQ(0, queue_reset(a->fd, a->queue));
	ASSERT_EQ(0, batch(variant, a, &desc, 1, &cqe, 1));
	EXPECT_EQ(NPUWIN_ST_OK, cqe.status);
}

/* Deadlines that pass at every distance from going to sleep. None of them is missed. */
TEST_F_TIMEOUT(executors, deadline_races, 60)
{
	struct rank *a = &self->team.rank[0];
	unsigned int seed = 1;
	int i;

	for (i = 0; i < 1000; i++) {
		struct npuwin_desc desc = twait(0, NPUWIN_CMP_EQ, 1,
						now_ns() + rand_r(&seed) % 200000);
		struct npuwin_cqe cqe;

		ASSERT_EQ(0, batch(variant, a, &desc, 1, &cqe, 1)) TH_LOG("round %d", i);
		ASSERT_EQ(NPUWIN_ST_TIMEOUT, cqe.status);
		ASSERT_EQ(0, queue_reset(a->fd, a->queue));
	}
}

/* Credits by rank, consumed; a rank that left is named. */
TEST_F(executors, by_rank)
{
	struct rank *a = &self->team.rank[0], *b = &self->team.rank[1];
	struct npuwin_desc desc = {
		.opcode = NPUWIN_OP_TWAIT, .sub = NPUWIN_CMP_GE, .value = 1, .rows = 2,
		.src_off = 256, .src_stride = 4, .deadline_ns = NPUWIN_NO_DEADLINE,
		.flags = NPUWIN_DESC_F_CQE | NPUWIN_TWAIT_F_CONSUME | NPUWIN_TWAIT_F_BY_RANK,
	};
	struct npuwin_cqe cqe;
	uint32_t n = 1;

	*cell_at(a, 256) = 1;
	*cell_at(a, 260) = 3;
	ASSERT_EQ(0, batch(variant, a, &desc, 1, &cqe, 1));
	EXPECT_EQ(NPUWIN_ST_OK, cqe.status);
	EXPECT_EQ(0, *cell_at(a, 256));
	EXPECT_EQ(2, *cell_at(a, 260));
	/* While it waits: what the one who leaves has done counts. */
	*cell_at(a, 256) = 1;
	*cell_at(a, 260) = 0;
	ASSERT_EQ(0, submit(a->fd, a->queue, &desc, 1));
	sleep_ms(20);
	ASSERT_EQ(0, domain_leave(b->fd, self->team.domain, 1));
	ASSERT_EQ(0, queue_wait(a->fd, a->queue, &cqe, 1, &n, in_ms(10000)));
	EXPECT_EQ(NPUWIN_ST_PEER, cqe.status);
	EXPECT_EQ(1, cqe.rank);
	EXPECT_EQ(1, cqe.cell);
	EXPECT_EQ(0, *cell_at(a, 256));
	ASSERT_EQ(0, queue_reset(a->fd, a->queue));
	*cell_at(a, 256) = 1;
	*cell_at(a, 260) = 1;
	ASSERT_EQ(0, batch(variant, a, &desc, 1, &cqe, 1));
	EXPECT_EQ(NPUWIN_ST_OK, cqe.status);
	/* Nothing can be written to who has left. */
	desc = put(1, 0, 0, 4);
	ASSERT_EQ(0, batch(variant, a, &desc, 1, &cqe, 1));
	EXPECT_EQ(NPUWIN_ST_PEER, cqe.status);
	EXPECT_EQ(1, cqe.rank);
}

TEST_F(executors, registers)
{
	struct rank *a = &self->team.rank[0], *b = &self->team.rank[1];
	struct npuwin_desc descs[2] = {
		notify(1, 4 * (NPUWIN_NOTIFY_REGS - 1), 6),
		notify(1, 4 * NPUWIN_NOTIFY_REGS, 6),
	};
	struct npuwin_desc wait = twait(4 * (NPUWIN_NOTIFY_REGS - 1), NPUWIN_CMP_GT, 5,
					NPUWIN_NO_DEADLINE);
	struct npuwin_cqe cqes[2];
	uint32_t n = 1;

	wait.flags |= NPUWIN_DESC_F_REG;
	descs[0].flags |= NPUWIN_DESC_F_REG;
	descs[1].flags |= NPUWIN_DESC_F_REG;
	ASSERT_EQ(0, submit(b->fd, b->queue, &wait, 1));
	sleep_ms(10);
	ASSERT_EQ(0, batch(variant, a, descs, 2, cqes, 2));
	EXPECT_EQ(NPUWIN_ST_OK, cqes[0].status);
	EXPECT_EQ(NPUWIN_ST_BOUNDS, cqes[1].status);
	ASSERT_EQ(0, queue_wait(b->fd, b->queue, cqes, 1, &n, in_ms(10000)));
	EXPECT_EQ(NPUWIN_ST_OK, cqes[0].status);
}

TEST_HARNESS_MAIN
