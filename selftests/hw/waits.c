// SPDX-License-Identifier: MIT
/*
 * TWAIT: what it compares, what ends it.
 */
#include "hw.h"

static void wait_compares(void)
{
	static const int32_t values[] = { INT32_MIN, -1, 0, 1, INT32_MAX };

	two_ranks();
	for (size_t c = 0; c < ARRAY_SIZE(values); c++) {
		*cell_of(&guests[0], 0) = values[c];
		for (size_t v = 0; v < ARRAY_SIZE(values); v++) {
			bool holds[] = {
				values[c] == values[v], values[c] != values[v],
				values[c] > values[v], values[c] >= values[v],
				values[c] < values[v], values[c] <= values[v],
			};

			for (uint8_t cmp = 0; cmp <= NPUWIN_CMP_LE; cmp++) {
				struct npuwin_desc desc = d_wait(0, cmp, values[v], NEVER);
				struct npuwin_cqe cqe;
				uint32_t status;

				desc.flags = NPUWIN_TWAIT_F_TEST;
				status = run_one(&queues[0], desc, &cqe);
				CHECK_EQ(status, holds[cmp] ? NPUWIN_ST_OK :
							      NPUWIN_ST_MISMATCH);
				if (!holds[cmp])
					CHECK(cqe.value == values[c]);
			}
		}
	}
}

static void wait_consumes(void)
{
	struct guest *g = &guests[0];
	struct npuwin_desc desc = d_wait(0, NPUWIN_CMP_GE, 3, NEVER);
	struct npuwin_cqe cqe;

	two_ranks();
	for (uint32_t i = 0; i < 4; i++)
		*cell_of(g, 8 * i) = 5;
	*cell_of(g, 16) = 2;
	desc.rows = 4;
	desc.src_stride = 8;
	desc.flags = NPUWIN_TWAIT_F_TEST | NPUWIN_TWAIT_F_CONSUME;
	CHECK_EQ(run_one(&queues[0], desc, &cqe), NPUWIN_ST_MISMATCH);
	CHECK_EQ(cqe.cell, 2);
	CHECK_EQ(cqe.value, 2);
	CHECK_EQ(*cell_of(g, 0), 2);
	CHECK_EQ(*cell_of(g, 8), 2);
	CHECK_EQ(*cell_of(g, 16), 2);
	CHECK_EQ(*cell_of(g, 24), 5);
}

static void wait_woken_by_peer(void)
{
	struct npuwin_desc desc = d_wait(40, NPUWIN_CMP_GE, 1, NEVER);
	struct queue *q = &queues[0];

	two_ranks();
	desc.flags = NPUWIN_DESC_F_CQE | NPUWIN_TWAIT_F_CONSUME;
	for (unsigned int i = 0; i < repeat(2000); i++) {
		desc.user_data = i;
		post_one(q, desc);
		post_one(&queues[1], d_notify(0, 40, NPUWIN_NOTIFY_ADD, 1));
		expect_cqe(q, i, NPUWIN_ST_OK);
	}
	CHECK_EQ(*cell_of(&guests[0], 40), 0);
	/* And in a register. */
	desc.flags |= NPUWIN_DESC_F_REG;
	post_one(q, desc);
	settle(&guests[0]);
	CHECK(cq_empty(q));
	desc = d_notify(0, 40, NPUWIN_NOTIFY_SET, 1);
	desc.flags = NPUWIN_DESC_F_REG;
	post_one(&queues[1], desc);
	UNTIL(!cq_empty(q));
}

/* Two engines that wait for each other, with nobody else in between. */
static void wait_never_missed(void)
{
	enum { TURNS = 60 };
	struct npuwin_desc descs[2][2 * TURNS];

	two_ranks();
	for (uint32_t i = 0; i < 2 * TURNS; i++) {
		for (uint32_t rank = 0; rank < 2; rank++) {
			struct npuwin_desc *desc = &descs[rank][i];

			if (i % 2 != rank) {
				*desc = d_wait(40, NPUWIN_CMP_GE, 1, NEVER);
				desc->flags = NPUWIN_TWAIT_F_CONSUME;
			} else {
				*desc = d_notify(!rank, 40, NPUWIN_NOTIFY_ADD, 1);
			}
		}
	}
	for (unsigned int i = 0; i < repeat(300); i++) {
		post(&queues[0], descs[0], 2 * TURNS);
		post(&queues[1], descs[1], 2 * TURNS);
		until_through(&queues[0]);
		until_through(&queues[1]);
	}
}

static void wait_woken_by_host(void)
{
	struct npuwin_desc desc = d_wait(40, NPUWIN_CMP_EQ, 9, NEVER);
	struct queue *q = &queues[0];

	two_ranks();
	desc.flags = NPUWIN_DESC_F_CQE;
	for (int i = 0; i < 50; i++) {
		*cell_of(&guests[0], 40) = 0;
		post_one(q, desc);
		settle(&guests[0]);
		CHECK(cq_empty(q));
		WRITE(*cell_of(&guests[0], 40), 9);
		ring(&guests[0], i % 2 ? q->args.doorbell : 0);
		expect_cqe(q, 0, NPUWIN_ST_OK);
	}
}

static void wait_cells_in_order(void)
{
	enum { CELLS = 100 };
	struct npuwin_desc desc = d_wait(0, NPUWIN_CMP_EQ, 1, NEVER);
	struct queue *q = &queues[0];

	two_ranks();
	desc.rows = CELLS;
	desc.src_stride = 12;
	desc.flags = NPUWIN_DESC_F_CQE;
	post_one(q, desc);
	for (uint32_t i = CELLS; i-- > 0;) {
		settle(&guests[0]);
		CHECK(cq_empty(q));
		post_one(&queues[1], d_notify(0, 12 * i, NPUWIN_NOTIFY_SET, 1));
		until_through(&queues[1]);
	}
	expect_cqe(q, 0, NPUWIN_ST_OK);
}

static uint64_t device_clock(struct guest *g)
{
	struct npuwin_hw_request request = { .opcode = NPUWIN_HW_CMD_CLOCK };
	struct npuwin_hw_response response;

	CHECK_EQ(admin(g, &request, &response), NPUWIN_HW_OK);
	return response.value[0];
}

static void set_clock(struct guest *g, int64_t offset)
{
	struct npuwin_hw_request request = {
		.opcode = NPUWIN_HW_CMD_CLOCK, .flags = NPUWIN_HW_CLOCK_F_SET,
		.clock = { .offset = (uint64_t)offset },
	};

	CHECK_EQ(admin(g, &request, NULL), NPUWIN_HW_OK);
}

static void wait_deadline(void)
{
	struct guest *g = &guests[0];
	struct npuwin_desc desc;
	struct npuwin_cqe cqe;
	int64_t begin, end;

	two_ranks();
	begin = now_ns();
	set_clock(g, (int64_t)device_clock(g) - begin);
	end = now_ns() + 30 * NSEC_PER_MSEC;
	desc = d_wait(4, NPUWIN_CMP_NE, 17, end);
	*cell_of(g, 4) = 17;
	CHECK_EQ(run_one(&queues[0], desc, &cqe), NPUWIN_ST_TIMEOUT);
	/* Not before; how long after is not for a test to say. */
	CHECK(now_ns() >= end);
	CHECK_EQ(cqe.cell, 0);
	CHECK_EQ(cqe.value, 17);
	do_queue_reset(&queues[0]);
	desc.rows = 2;
	desc.src_stride = 4;
	desc.flags = NPUWIN_TWAIT_F_BY_RANK;
	*cell_of(g, 4) = 1;
	*cell_of(g, 8) = 17;
	CHECK_EQ(run_one(&queues[0], desc, &cqe), NPUWIN_ST_TIMEOUT);
	CHECK_EQ(cqe.rank, 1);
}

static void wait_offset(void)
{
	struct guest *g = &guests[0];
	struct npuwin_desc desc = d_wait(4, NPUWIN_CMP_EQ, 1, 1000 * 1000 * NSEC_PER_MSEC);

	two_ranks();
	/* The deadline is long past with this offset, and never comes with that. */
	set_clock(g, INT64_MIN);
	CHECK_EQ(run_one(&queues[0], desc, NULL), NPUWIN_ST_TIMEOUT);
	do_queue_reset(&queues[0]);
	set_clock(g, INT64_MAX);
	desc.flags = NPUWIN_DESC_F_CQE;
	post_one(&queues[0], desc);
	settle(g);
	set_clock(g, INT64_MIN);
	settle(g);
	CHECK(cq_empty(&queues[0]));
	do_queue_reset(&queues[0]);
	/* None is none. */
	desc.deadline_ns = NEVER;
	post_one(&queues[0], desc);
	settle(g);
	CHECK(cq_empty(&queues[0]));
}

static void wait_past_deadline(void)
{
	struct guest *g = &guests[0];
	struct npuwin_desc desc = d_wait(0, NPUWIN_CMP_EQ, 0, 0);

	two_ranks();
	/* What holds is complete, and what does not times out without a sleep. */
	CHECK_EQ(run_one(&queues[0], desc, NULL), NPUWIN_ST_OK);
	*cell_of(g, 0) = 1;
	CHECK_EQ(run_one(&queues[0], desc, NULL), NPUWIN_ST_TIMEOUT);
}

static void wait_many_deadlines(void)
{
	enum { QUEUES = 12 };
	struct queue own[QUEUES];
	struct guest *g = &guests[0];
	int64_t now;

	two_ranks();
	now = now_ns();
	set_clock(g, (int64_t)device_clock(g) - now);
	for (uint32_t i = 0; i < QUEUES; i++)
		CHECK_EQ(do_queue_create(&own[i], g, 1 + i, 4), NPUWIN_HW_OK);
	now = now_ns();
	for (uint32_t i = 0; i < QUEUES; i++)
		post_one(&own[i], d_wait(0, NPUWIN_CMP_EQ, 1,
					 now + (QUEUES - i) * 5 * NSEC_PER_MSEC));
	for (uint32_t i = 0; i < QUEUES; i++)
		expect_cqe(&own[i], 0, NPUWIN_ST_TIMEOUT);
}

static const struct test tests[] = {
	{ "wait_compares", "six comparisons of signed int32", wait_compares },
	{ "wait_consumes", "CONSUME takes from the cells that compare, up to the first that fails",
	  wait_consumes },
	{ "wait_woken_by_peer", "a TNOTIFY of a peer wakes a blocked wait, always",
	  wait_woken_by_peer },
	{ "wait_never_missed", "two engines that wait for each other never miss each other",
	  wait_never_missed },
	{ "wait_woken_by_host", "a doorbell makes the device look at cells the host wrote",
	  wait_woken_by_host },
	{ "wait_cells_in_order", "a wait of many cells ends when all compare",
	  wait_cells_in_order },
	{ "wait_deadline", "a deadline ends a wait, not before its time", wait_deadline },
	{ "wait_offset", "deadlines are the host's time plus the offset, saturating",
	  wait_offset },
	{ "wait_past_deadline", "a past deadline does not block; what holds still holds",
	  wait_past_deadline },
	{ "wait_many_deadlines", "each blocked queue has its own deadline",
	  wait_many_deadlines },
};

const struct group group_waits = { tests, ARRAY_SIZE(tests) };
