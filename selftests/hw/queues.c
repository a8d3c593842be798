// SPDX-License-Identifier: MIT
/*
 * Submission and completion rings.
 */
#include <string.h>

#include "hw.h"

static struct npuwin_desc d_seen(uint64_t user_data)
{
	return (struct npuwin_desc) {
		.opcode = NPUWIN_OP_NOP, .flags = NPUWIN_DESC_F_CQE, .user_data = user_data,
	};
}

static void queue_completion(void)
{
	struct queue *q = &queues[0];
	struct npuwin_cqe cqe;

	two_ranks();
	for (uint64_t i = 0; i < 20; i++) {
		CHECK_EQ(run_one(q, d_nop(), &cqe), NPUWIN_ST_OK);
		CHECK_EQ(cqe.seq, i);
		CHECK_EQ(cqe.rank, NPUWIN_NO_RANK);
		CHECK_EQ(cqe.cell, 0);
		CHECK_EQ(cqe.value, 0);
	}
}

static void queue_silent(void)
{
	struct queue *q = &queues[0];
	struct guest *g = &guests[0];
	struct npuwin_desc descs[7];

	two_ranks();
	settle(g);
	irqs(g, q->args.vector);
	for (size_t i = 0; i < ARRAY_SIZE(descs); i++)
		descs[i] = d_nop();
	post(q, descs, ARRAY_SIZE(descs));
	until_through(q);
	settle(g);
	CHECK(cq_empty(q));
	CHECK_EQ(irqs(g, q->args.vector), g->irqs[q->args.vector]);
	CHECK_EQ(g->irqs[q->args.vector], 0);
}

static void queue_wraps(void)
{
	struct queue *q = &queues[1];
	struct guest *g = &guests[0];
	uint64_t seq = 0;
	struct npuwin_cqe cqe;

	two_ranks();
	CHECK_EQ(do_queue_create(q, g, 1, 8), NPUWIN_HW_OK);
	for (uint32_t round = 0; round < 300; round++) {
		struct npuwin_desc descs[8];
		uint32_t n = 1 + round % 8;

		for (uint32_t i = 0; i < n; i++)
			descs[i] = d_seen(seq + i);
		post(q, descs, n);
		for (uint32_t i = 0; i < n; i++, seq++) {
			next_cqe(q, &cqe);
			CHECK_EQ(cqe.seq, seq);
			CHECK_EQ(cqe.user_data, seq);
		}
	}
}

static void queue_order(void)
{
	enum { N = 100 };
	struct queue *q = &queues[0];
	struct npuwin_desc descs[N];

	two_ranks();
	/* Each copies what the one before it has written. */
	for (uint32_t i = 0; i < N; i++)
		descs[i] = d_put(i % 2 ? 1 : 0, 8 * i, i % 2 ? 8 * i : 8 * (i + 1), 8);
	for (uint32_t i = 0; i < N; i++)
		descs[i] = d_put(0, 8 * i, 8 * (i + 1), 8);
	descs[N - 1] = d_put(1, 8 * (N - 1), 0, 8);
	descs[N - 1].flags = NPUWIN_DESC_F_CQE;
	memcpy(window_of(&guests[0], 0), "in order", 8);
	post(q, descs, N);
	expect_cqe(q, 0, NPUWIN_ST_OK);
	CHECK(!memcmp(window_of(&guests[1], 0), "in order", 8));
}

static void queue_independent(void)
{
	struct queue *q = &queues[1];
	struct guest *g = &guests[0];

	two_ranks();
	CHECK_EQ(do_queue_create(q, g, 1, 16), NPUWIN_HW_OK);
	post_one(&queues[0], d_wait(64, NPUWIN_CMP_EQ, 1, NEVER));
	for (int i = 0; i < 50; i++)
		CHECK_EQ(run_one(q, d_nop(), NULL), NPUWIN_ST_OK);
	CHECK_EQ(READ(q_state(g, 0)->sq_head), 0);
	CHECK_EQ(run_one(q, d_notify(0, 64, NPUWIN_NOTIFY_SET, 1), NULL), NPUWIN_ST_OK);
	until_through(&queues[0]);
}

static void queue_vectors(void)
{
	struct guest *g = &guests[0];
	struct queue own[3];

	two_ranks();
	for (uint32_t i = 0; i < 3; i++)
		CHECK_EQ(do_queue_create(&own[i], g, 10 + i, 16), NPUWIN_HW_OK);
	settle(g);
	for (uint32_t i = 0; i < 3; i++) {
		uint64_t before[3];

		for (uint32_t k = 0; k < 3; k++)
			before[k] = irqs(g, own[k].args.vector);
		CHECK_EQ(run_one(&own[i], d_nop(), NULL), NPUWIN_ST_OK);
		UNTIL(irqs(g, own[i].args.vector) > before[i]);
		settle(g);
		for (uint32_t k = 0; k < 3; k++) {
			if (own[k].args.vector && own[k].args.vector != own[i].args.vector)
				CHECK_EQ(irqs(g, own[k].args.vector), before[k]);
		}
	}
}

static void queue_doorbells(void)
{
	struct queue *q = &queues[0];
	struct guest *g = &guests[0];
	uint32_t other;

	two_ranks();
	other = q->args.doorbell == 2 ? 3 : 2;
	/* Doorbell 0 stands for everything, and another one not for this. */
	for (int i = 0; i < 10; i++) {
		struct npuwin_desc desc = d_seen((uint64_t)i);

		put_slot(q, &desc, NPUWIN_HW_SQE_END);
		publish(q);
		ring(g, other);
		ring(g, 0);
		expect_cqe(q, (uint64_t)i, NPUWIN_ST_OK);
	}
}

static void queue_many_batches(void)
{
	struct queue *q = &queues[0];

	two_ranks();
	for (uint64_t i = 0; i < 60; i++) {
		struct npuwin_desc desc = d_seen(i);

		put_slot(q, &desc, NPUWIN_HW_SQE_END);
	}
	publish(q);
	ring(q->g, q->args.doorbell);
	for (uint64_t i = 0; i < 60; i++)
		expect_cqe(q, i, NPUWIN_ST_OK);
}

static void queue_sq_overrun(void)
{
	struct queue *q = &queues[0];
	struct guest *g = &guests[0];
	static const uint32_t wrong[] = { 257, 1000, 0x80000000, 0xffffffff };

	two_ranks();
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		CHECK_EQ(run_one(q, d_nop(), NULL), NPUWIN_ST_OK);
		WRITE(q_post(g, 0)->sq_tail, q->tail + wrong[i]);
		ring(g, q->args.doorbell);
		expect_event(g, NPUWIN_HW_EV_QUEUE, 0, NPUWIN_NO_RANK, NPUWIN_HW_Q_FAULT_SQ);
		CHECK_EQ(READ(q_state(g, 0)->state), NPUWIN_HW_Q_FAULT);
		CHECK_EQ(READ(q_state(g, 0)->fault), NPUWIN_HW_Q_FAULT_SQ);
		CHECK_EQ(READ(q_state(g, 0)->sq_head), q->tail);
		/* It stays so, whatever is written now. */
		publish(q);
		ring(g, 0);
		settle(g);
		CHECK_EQ(READ(q_state(g, 0)->state), NPUWIN_HW_Q_FAULT);
		do_queue_reset(q);
	}
	CHECK_EQ(run_one(q, d_nop(), NULL), NPUWIN_ST_OK);
}

static void queue_cq_overrun(void)
{
	struct queue *q = &queues[1];
	struct guest *g = &guests[0];

	two_ranks();
	CHECK_EQ(do_queue_create(q, g, 1, 4), NPUWIN_HW_OK);
	for (uint64_t i = 0; i < 5; i++) {
		post_one(q, d_seen(i));
		if (i < 4)
			until_through(q);
	}
	expect_event(g, NPUWIN_HW_EV_QUEUE, 1, NPUWIN_NO_RANK, NPUWIN_HW_Q_FAULT_CQ);
	CHECK_EQ(READ(q_state(g, 1)->fault), NPUWIN_HW_Q_FAULT_CQ);
	for (uint64_t i = 0; i < 4; i++)
		expect_cqe(q, i, NPUWIN_ST_OK);
	CHECK(cq_empty(q));
	do_queue_reset(q);
	CHECK_EQ(run_one(q, d_nop(), NULL), NPUWIN_ST_OK);
	/* Completions that have not been posted cannot have been taken. */
	WRITE(q_post(g, 1)->cq_head, q->cq_head + 1);
	post_one(q, d_seen(9));
	expect_event(g, NPUWIN_HW_EV_QUEUE, 1, NPUWIN_NO_RANK, NPUWIN_HW_Q_FAULT_CQ);
	/* Other queues go on. */
	CHECK_EQ(run_one(&queues[0], d_nop(), NULL), NPUWIN_ST_OK);
}

static void queue_slots_reusable(void)
{
	struct queue *q = &queues[1];
	struct guest *g = &guests[0];

	two_ranks();
	CHECK_EQ(do_queue_create(q, g, 1, 2), NPUWIN_HW_OK);
	for (uint64_t i = 0; i < 100; i++) {
		struct npuwin_desc *slots =
			(struct npuwin_desc *)(g->base + q->args.sq_offset);

		post_one(q, d_seen(i));
		until_through(q);
		/* What is through is not looked at again. */
		memset(slots, 0xff, 2 * sizeof(*slots));
		expect_cqe(q, i, NPUWIN_ST_OK);
	}
}

static void queue_reset_goes_on(void)
{
	struct queue *q = &queues[0];
	struct npuwin_cqe cqe;

	two_ranks();
	for (int i = 0; i < 3; i++)
		CHECK_EQ(run_one(q, d_nop(), NULL), NPUWIN_ST_OK);
	post_one(q, d_wait(0, NPUWIN_CMP_EQ, 1, NEVER));
	for (int i = 0; i < 6; i++)
		post_one(q, d_seen(1));
	settle(q->g);
	do_queue_reset(q);
	CHECK_EQ(q->tail, 10);
	CHECK_EQ(q->cq_head, 3);
	*cell_of(q->g, 0) = 1;
	ring(q->g, 0);
	settle(q->g);
	CHECK(cq_empty(q));
	CHECK_EQ(run_one(q, d_nop(), &cqe), NPUWIN_ST_OK);
	CHECK_EQ(cqe.seq, 10);
}

static void queue_destroy_ends(void)
{
	struct queue *q = &queues[0];
	struct guest *g = &guests[0];

	two_ranks();
	post_one(q, d_wait(0, NPUWIN_CMP_EQ, 1, NEVER));
	post_one(q, d_put(1, 0, 128, 64));
	settle(g);
	CHECK_EQ(do_queue_simple(g, NPUWIN_HW_CMD_QUEUE_DESTROY, 0), NPUWIN_HW_OK);
	CHECK_EQ(READ(q_state(g, 0)->state), NPUWIN_HW_Q_NONE);
	memset(window_of(g, 0), 1, 64);
	ring(g, 0);
	settle(g);
	settle(&guests[1]);
	CHECK(!window_of(&guests[1], 0)[128]);
	CHECK_EQ(do_queue_create(q, g, 0, 8), NPUWIN_HW_OK);
	CHECK_EQ(run_one(q, d_nop(), NULL), NPUWIN_ST_OK);
}

static const struct test tests[] = {
	{ "queue_completion", "a completion has user_data, seq and nothing it should not",
	  queue_completion },
	{ "queue_silent", "a success without F_CQE and IRQ posts and signals nothing",
	  queue_silent },
	{ "queue_wraps", "rings of any depth wrap", queue_wraps },
	{ "queue_order", "a queue executes in order", queue_order },
	{ "queue_independent", "a blocked queue hinders no other", queue_independent },
	{ "queue_vectors", "a queue signals its vector", queue_vectors },
	{ "queue_doorbells", "doorbell 0 stands for every queue", queue_doorbells },
	{ "queue_many_batches", "one doorbell serves many batches", queue_many_batches },
	{ "queue_sq_overrun", "a tail too far ahead faults the queue, until it is reset",
	  queue_sq_overrun },
	{ "queue_cq_overrun", "no completion is written over one that was not taken",
	  queue_cq_overrun },
	{ "queue_slots_reusable", "a slot that sq_head has passed is not read again",
	  queue_slots_reusable },
	{ "queue_reset_goes_on", "QUEUE_RESET skips what is posted; indices and seq go on",
	  queue_reset_goes_on },
	{ "queue_destroy_ends", "after QUEUE_DESTROY nothing of the queue is executed",
	  queue_destroy_ends },
};

const struct group group_queues = { tests, ARRAY_SIZE(tests) };
