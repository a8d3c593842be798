// SPDX-License-Identifier: MIT
/*
 * Batches: how they end, fail and signal.
 */
#include <string.h>

#include "hw.h"

static struct npuwin_desc d_seen(uint64_t user_data)
{
	return (struct npuwin_desc) {
		.opcode = NPUWIN_OP_NOP, .flags = NPUWIN_DESC_F_CQE, .user_data = user_data,
	};
}

static void batch_one_interrupt(void)
{
	enum { N = 200 };
	struct queue *q = &queues[0];
	struct guest *g = &guests[0];
	uint32_t vector;

	two_ranks();
	vector = q->args.vector;
	CHECK(vector);
	for (uint64_t round = 1; round <= 20; round++) {
		struct npuwin_desc descs[N];

		for (uint64_t i = 0; i < N; i++)
			descs[i] = d_seen(i);
		post(q, descs, N);
		for (uint64_t i = 0; i < N; i++)
			expect_cqe(q, i, NPUWIN_ST_OK);
		UNTIL(irqs(g, vector) >= round);
		settle(g);
		CHECK_EQ(irqs(g, vector), round);
	}
}

static void batch_irq_flag(void)
{
	struct queue *q = &queues[0];
	struct guest *g = &guests[0];
	struct npuwin_desc nop = d_nop();

	two_ranks();
	put_slot(q, &nop, 0);
	put_slot(q, &nop, NPUWIN_HW_SQE_END | NPUWIN_HW_SQE_IRQ);
	publish(q);
	ring(g, q->args.doorbell);
	UNTIL(irqs(g, q->args.vector) == 1);
	CHECK_EQ(READ(q_state(g, 0)->sq_head), 2);
	CHECK(cq_empty(q));
	/* Also where the batch ends early. */
	nop.sub = 1;
	put_slot(q, &nop, 0);
	nop.sub = 0;
	put_slot(q, &nop, NPUWIN_HW_SQE_END | NPUWIN_HW_SQE_IRQ);
	publish(q);
	ring(g, q->args.doorbell);
	UNTIL(irqs(g, q->args.vector) >= 2);
	expect_cqe(q, 0, NPUWIN_ST_FLAGS);
}

static void batch_signals_blocked(void)
{
	struct queue *q = &queues[0];
	struct guest *g = &guests[0];
	struct npuwin_desc descs[3] = {
		d_seen(1), d_wait(0, NPUWIN_CMP_EQ, 1, NEVER), d_seen(2),
	};

	two_ranks();
	post(q, descs, 3);
	UNTIL(irqs(g, q->args.vector) == 1);
	expect_cqe(q, 1, NPUWIN_ST_OK);
	CHECK(cq_empty(q));
	*cell_of(g, 0) = 1;
	ring(g, q->args.doorbell);
	UNTIL(irqs(g, q->args.vector) == 2);
	expect_cqe(q, 2, NPUWIN_ST_OK);
}

static void batch_in_pieces(void)
{
	struct queue *q = &queues[0];
	struct guest *g = &guests[0];
	struct npuwin_desc desc = d_seen(5);

	two_ranks();
	put_slot(q, &desc, 0);
	publish(q);
	ring(g, q->args.doorbell);
	/* The end mark is not there, and may never be. */
	UNTIL(irqs(g, q->args.vector) == 1);
	expect_cqe(q, 5, NPUWIN_ST_OK);
	desc.sub = 1;
	put_slot(q, &desc, 0);
	publish(q);
	ring(g, q->args.doorbell);
	expect_cqe(q, 5, NPUWIN_ST_FLAGS);
	/* The rest of a batch that has ended comes later and is skipped all the same. */
	desc = d_seen(6);
	put_slot(q, &desc, 0);
	put_slot(q, &desc, NPUWIN_HW_SQE_END);
	desc = d_seen(7);
	put_slot(q, &desc, NPUWIN_HW_SQE_END);
	publish(q);
	ring(g, q->args.doorbell);
	expect_cqe(q, 7, NPUWIN_ST_CANCELLED);
	CHECK(cq_empty(q));
}

static void batch_mismatch(void)
{
	struct queue *q = &queues[0];
	struct guest *g = &guests[0];
	struct npuwin_desc descs[4] = {
		d_seen(1), d_wait(8, NPUWIN_CMP_GT, 5, NEVER), d_put(1, 0, 0, 64), d_seen(2),
	};
	struct npuwin_cqe cqe;

	two_ranks();
	memset(window_of(g, 0) + 16, 7, 64);
	*cell_of(g, 8) = 5;
	descs[1].flags = NPUWIN_TWAIT_F_TEST;
	descs[1].user_data = 77;
	for (int i = 0; i < 2; i++) {
		post(q, descs, 4);
		expect_cqe(q, 1, NPUWIN_ST_OK);
		next_cqe(q, &cqe);
		CHECK_EQ(cqe.user_data, 77);
		CHECK_EQ(cqe.status, NPUWIN_ST_MISMATCH);
		CHECK_EQ(cqe.seq, 5 * (uint64_t)i + 1);
		CHECK_EQ(cqe.cell, 0);
		CHECK_EQ(cqe.value, 5);
		/* The queue goes on with the next batch. */
		post_one(q, d_seen(3));
		expect_cqe(q, 3, NPUWIN_ST_OK);
		CHECK(cq_empty(q));
		CHECK(!window_of(&guests[1], 0)[16]);
		CHECK_EQ(READ(q_state(g, 0)->state), NPUWIN_HW_Q_RUNNING);
	}
}

static void batch_failure_stops(void)
{
	struct queue *q = &queues[0];
	struct guest *g = &guests[0];
	struct npuwin_desc bad = d_put(1, WINDOW_SIZE, 0, 1);
	struct npuwin_desc descs[3] = { d_seen(10), bad, d_seen(12) };
	struct npuwin_cqe cqe;

	two_ranks();
	memset(window_of(g, 0), 9, 64);
	descs[1].user_data = 11;
	for (uint32_t i = 0; i < 3; i++)
		put_slot(q, &descs[i], i == 2 ? NPUWIN_HW_SQE_END : 0);
	for (uint64_t b = 0; b < 3; b++) {
		struct npuwin_desc first = d_put(1, 0, 0, 64), last = d_seen(20 + b);

		put_slot(q, &first, 0);
		last.flags = 0;
		put_slot(q, &last, NPUWIN_HW_SQE_END);
	}
	publish(q);
	ring(g, q->args.doorbell);
	expect_cqe(q, 10, NPUWIN_ST_OK);
	expect_cqe(q, 11, NPUWIN_ST_BOUNDS);
	for (uint64_t b = 0; b < 3; b++) {
		next_cqe(q, &cqe);
		CHECK_EQ(cqe.user_data, 20 + b);
		CHECK_EQ(cqe.status, NPUWIN_ST_CANCELLED);
		CHECK_EQ(cqe.seq, 4 + 2 * b);
		CHECK_EQ(cqe.rank, NPUWIN_NO_RANK);
	}
	CHECK_EQ(READ(q_state(g, 0)->state), NPUWIN_HW_Q_STOPPED);
	/* What is posted later has the same fate. */
	post_one(q, d_seen(30));
	expect_cqe(q, 30, NPUWIN_ST_CANCELLED);
	CHECK(!window_of(&guests[1], 0)[0]);
	do_queue_reset(q);
	CHECK_EQ(READ(q_state(g, 0)->state), NPUWIN_HW_Q_RUNNING);
	CHECK_EQ(run_one(q, d_put(1, 0, 0, 64), NULL), NPUWIN_ST_OK);
	CHECK_EQ(window_of(&guests[1], 0)[63], 9);
}

static void batch_ring_byte(void)
{
	static const uint8_t wrong[] = {
		NPUWIN_HW_SQE_REJECT, NPUWIN_HW_SQE_REJECT | NPUWIN_HW_SQE_END,
		NPUWIN_HW_SQE_IRQ, 0x04, 0x40 | NPUWIN_HW_SQE_END, 0xff,
	};
	struct queue *q = &queues[0];
	struct guest *g = &guests[0];

	two_ranks();
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		struct npuwin_desc desc = d_put(1, 0, 0, 8);

		desc.user_data = i;
		put_slot(q, &desc, wrong[i]);
		publish(q);
		ring(g, q->args.doorbell);
		expect_cqe(q, i, NPUWIN_ST_FLAGS);
		do_queue_reset(q);
	}
	CHECK_EQ(run_one(q, d_nop(), NULL), NPUWIN_ST_OK);
}

static const struct test tests[] = {
	{ "batch_one_interrupt", "a batch that does not block signals once for all its completions",
	  batch_one_interrupt },
	{ "batch_irq_flag", "a batch that asks for it signals without a completion",
	  batch_irq_flag },
	{ "batch_signals_blocked", "completions before a blocked wait are signalled",
	  batch_signals_blocked },
	{ "batch_in_pieces", "a batch may come in pieces; its rest is skipped as it comes",
	  batch_in_pieces },
	{ "batch_mismatch", "MISMATCH ends the batch, and the next one runs", batch_mismatch },
	{ "batch_failure_stops",
	  "a failure stops the queue: one CANCELLED for each later batch",
	  batch_failure_stops },
	{ "batch_ring_byte", "bits of the ring byte that mean nothing fail the descriptor",
	  batch_ring_byte },
};

const struct group group_batches = { tests, ARRAY_SIZE(tests) };
