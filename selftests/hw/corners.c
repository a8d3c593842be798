// SPDX-License-Identifier: MIT
/*
 * Corners: a rank that comes back, messages about nobody, what is skipped and what is last.
 */
#include <string.h>

#include "hw.h"

static struct npuwin_desc d_seen(uint64_t user_data)
{
	return (struct npuwin_desc) {
		.opcode = NPUWIN_OP_NOP, .flags = NPUWIN_DESC_F_CQE, .user_data = user_data,
	};
}

static void peers_set_anew(void)
{
	struct guest *g = &guests[0];
	struct npuwin_hw_peer fresh, self, none = { 0 };
	uint64_t key;

	ranks_start(3, NULL);
	self = peer_of(g, 0, keys[0]);
	CHECK_EQ(do_queue_simple(&guests[1], NPUWIN_HW_CMD_QUEUE_DESTROY, 0), NPUWIN_HW_OK);
	*cell_of(g, 0) = 1;
	*cell_of(g, 8) = 1;
	for (int round = 0; round < 3; round++) {
		struct npuwin_cqe cqe;

		/* It leaves, and that counts each time. */
		CHECK_EQ(do_unbind(&guests[1], 0, false), NPUWIN_HW_OK);
		expect_event(g, NPUWIN_HW_EV_PEER, 0, 1, NPUWIN_RANK_LEFT);
		CHECK_EQ(peer_state(g, 1), NPUWIN_RANK_LEFT);
		CHECK_EQ(run_one(&queues[0], d_wait_by_rank(3), &cqe), NPUWIN_ST_PEER);
		CHECK_EQ(cqe.rank, 1);
		do_queue_reset(&queues[0]);
		/* It comes back. */
		CHECK_EQ(do_bind(&guests[1], 0, 1, 3, &key), NPUWIN_HW_OK);
		CHECK_EQ(do_peers(&guests[1], 0, 0, &self, 1), NPUWIN_HW_OK);
		fresh = peer_of(&guests[1], 0, key);
		CHECK_EQ(do_peers(g, 0, 1, &fresh, 1), NPUWIN_HW_OK);
		CHECK_EQ(peer_state(g, 1), NPUWIN_RANK_JOINED);
		CHECK_EQ(run_one(&queues[0], d_put(1, 0, 0, 4), NULL), NPUWIN_ST_OK);
		post_one(&queues[0], d_wait_by_rank(3));
		settle(g);
		CHECK(cq_empty(&queues[0]));
		do_queue_reset(&queues[0]);
	}
	/* What another one says does not bring the old message back. */
	CHECK_EQ(do_queue_simple(&guests[2], NPUWIN_HW_CMD_QUEUE_DESTROY, 0), NPUWIN_HW_OK);
	CHECK_EQ(do_unbind(&guests[2], 0, false), NPUWIN_HW_OK);
	expect_event(g, NPUWIN_HW_EV_PEER, 0, 2, NPUWIN_RANK_LEFT);
	CHECK_EQ(peer_state(g, 1), NPUWIN_RANK_JOINED);
	/* To nothing it is set anew too. */
	CHECK_EQ(do_unbind(&guests[1], 0, false), NPUWIN_HW_OK);
	expect_event(g, NPUWIN_HW_EV_PEER, 0, 1, NPUWIN_RANK_LEFT);
	CHECK_EQ(do_peers(g, 0, 1, &none, 1), NPUWIN_HW_OK);
	CHECK_EQ(peer_state(g, 1), NPUWIN_RANK_EMPTY);
	post_one(&queues[0], d_wait_by_rank(3));
	settle(g);
	CHECK(cq_empty(&queues[0]));
}

/* Endpoint 5 of guest 0, rank @rank of @nranks, has guest 1's endpoint 0 as rank @to. */
static void teller(uint32_t rank, uint32_t nranks, uint32_t to)
{
	struct npuwin_hw_peer peer = peer_of(&guests[1], 0, keys[1]);
	uint64_t key;

	CHECK_EQ(do_bind(&guests[0], 5, rank, nranks, &key), NPUWIN_HW_OK);
	CHECK_EQ(do_peers(&guests[0], 5, to, &peer, 1), NPUWIN_HW_OK);
}

static void expect_untold(void)
{
	settle(&guests[1]);
	CHECK_EQ(READ(ep_state(&guests[1], 0)->state), NPUWIN_HW_EP_BOUND);
	CHECK_EQ(READ(status_of(&guests[1])->event_tail), 0);
	CHECK_EQ(peer_state(&guests[1], 0), NPUWIN_RANK_JOINED);
	CHECK_EQ(peer_state(&guests[1], 1), NPUWIN_RANK_JOINED);
}

static void messages_ignored(void)
{
	/* Guest 1 is rank 1 of 2. */
	two_ranks();
	for (int dead = 0; dead < 2; dead++) {
		/* Of its own rank. */
		teller(1, 2, 0);
		CHECK_EQ(do_unbind(&guests[0], 5, dead), NPUWIN_HW_OK);
		expect_untold();
		/* Of ranks that it does not have. */
		teller(2, 3, 1);
		CHECK_EQ(do_unbind(&guests[0], 5, dead), NPUWIN_HW_OK);
		expect_untold();
		teller(1023, 1024, 1);
		CHECK_EQ(do_unbind(&guests[0], 5, dead), NPUWIN_HW_OK);
		expect_untold();
	}
	teller(0, 1024, 1);
	CHECK_EQ(do_abort(&guests[0], 5, 1, 5, true), NPUWIN_HW_OK);
	expect_untold();
	CHECK_EQ(do_abort(&guests[0], 5, 2, 5, true), NPUWIN_HW_OK);
	expect_untold();
	CHECK_EQ(do_abort(&guests[0], 5, 1023, 5, true), NPUWIN_HW_OK);
	expect_untold();
	/* One that it has is believed, of anybody who has the key. */
	CHECK_EQ(do_abort(&guests[0], 5, 0, 5, true), NPUWIN_HW_OK);
	expect_event(&guests[1], NPUWIN_HW_EV_ABORTED, 0, 0, 5);
}

static void reset_counts_skipped(void)
{
	static const uint32_t skipped[] = {
		0, 1, 256, 257, 100000, 0x80000000, 0xffffffff, 0xffffffff,
	};
	struct queue *q = &queues[0];
	struct guest *g = &guests[0];
	struct npuwin_cqe cqe;
	uint64_t seq = 0;

	two_ranks();
	for (size_t i = 0; i < ARRAY_SIZE(skipped); i++) {
		uint32_t head = q->tail;

		/* No doorbell: nothing of it is executed, or it does not matter. */
		WRITE(q_post(g, 0)->sq_tail, head + skipped[i]);
		do_queue_reset(q);
		CHECK_EQ(q->tail, head + skipped[i]);
		CHECK_EQ(READ(q_state(g, 0)->sq_head), q->tail);
		seq += skipped[i];
		CHECK_EQ(run_one(q, d_nop(), &cqe), NPUWIN_ST_OK);
		CHECK_EQ(cqe.seq, seq);
		seq++;
	}
}

static void batch_end_itself(void)
{
	struct npuwin_desc test = d_wait(8, NPUWIN_CMP_EQ, 1, NEVER);
	struct npuwin_desc bad = d_put(1, WINDOW_SIZE, 0, 1);
	struct queue *q = &queues[0];

	two_ranks();
	test.flags = NPUWIN_TWAIT_F_TEST;
	test.user_data = 1;
	bad.user_data = 5;
	/* What comes after it is another batch, and is not skipped. */
	put_slot(q, &test, NPUWIN_HW_SQE_END);
	for (uint64_t i = 2; i < 5; i++) {
		struct npuwin_desc desc = d_seen(i);

		put_slot(q, &desc, i == 4 ? NPUWIN_HW_SQE_END : 0);
	}
	put_slot(q, &bad, NPUWIN_HW_SQE_END);
	/* Of a later batch there is one completion, of its last. */
	for (uint64_t i = 6; i < 9; i++) {
		struct npuwin_desc desc = d_seen(i);

		put_slot(q, &desc, i == 7 ? 0 : NPUWIN_HW_SQE_END);
	}
	publish(q);
	ring(q->g, q->args.doorbell);
	expect_cqe(q, 1, NPUWIN_ST_MISMATCH);
	for (uint64_t i = 2; i < 5; i++)
		expect_cqe(q, i, NPUWIN_ST_OK);
	expect_cqe(q, 5, NPUWIN_ST_BOUNDS);
	expect_cqe(q, 6, NPUWIN_ST_CANCELLED);
	expect_cqe(q, 8, NPUWIN_ST_CANCELLED);
	settle(q->g);
	CHECK(cq_empty(q));
}

static void test_rank_left(void)
{
	struct guest *g = &guests[0];
	struct npuwin_desc desc = d_wait_by_rank(2);
	struct npuwin_cqe cqe;

	two_ranks();
	CHECK_EQ(do_queue_simple(&guests[1], NPUWIN_HW_CMD_QUEUE_DESTROY, 0), NPUWIN_HW_OK);
	CHECK_EQ(do_unbind(&guests[1], 0, false), NPUWIN_HW_OK);
	expect_event(g, NPUWIN_HW_EV_PEER, 0, 1, NPUWIN_RANK_LEFT);
	*cell_of(g, 0) = 1;
	*cell_of(g, 4) = 6;
	desc.flags |= NPUWIN_TWAIT_F_TEST;
	CHECK_EQ(run_one(&queues[0], desc, &cqe), NPUWIN_ST_MISMATCH);
	CHECK_EQ(cqe.rank, 1);
	CHECK_EQ(cqe.cell, 1);
	CHECK_EQ(cqe.value, 6);
	CHECK_EQ(READ(q_state(g, 0)->state), NPUWIN_HW_Q_RUNNING);
	/* One that would wait fails. */
	CHECK_EQ(run_one(&queues[0], d_wait_by_rank(2), &cqe), NPUWIN_ST_PEER);
	CHECK_EQ(cqe.rank, 1);
	CHECK_EQ(cqe.cell, 1);
	CHECK_EQ(cqe.value, 6);
}

static void enable_stale(void)
{
	static const char *const options[] = { "--memory", "16M", "--heartbeat", "10", NULL };
	static const uint32_t numbers[] = { 40, 39, 0xffffffff, 1, 41 };
	struct guest *g = &guests[0];
	uint32_t stale = 0;

	emu_start(options);
	guest_connect(g, 0);
	for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) {
		/* A number need not be larger than the last, and the old one enables nothing. */
		WRITE(control_of(g)->enable, stale);
		WRITE(control_of(g)->reset, numbers[i]);
		ring(g, 0);
		UNTIL(READ(status_of(g)->reset_ack) == numbers[i]);
		ring(g, 0);
		until_beats(g, 2);
		CHECK_EQ(READ(status_of(g)->state), NPUWIN_HW_RESET);
		WRITE(control_of(g)->enable, numbers[i]);
		ring(g, 0);
		UNTIL(READ(status_of(g)->state) == NPUWIN_HW_READY);
		stale = numbers[i];
	}
	/* It is taken as it is: who leaves the next number there is ready after a reset. */
	WRITE(control_of(g)->enable, 77);
	ring(g, 0);
	until_beats(g, 2);
	CHECK_EQ(READ(status_of(g)->state), NPUWIN_HW_READY);
	CHECK_EQ(READ(status_of(g)->reset_ack), stale);
	WRITE(control_of(g)->reset, 77);
	ring(g, 0);
	UNTIL(READ(status_of(g)->reset_ack) == 77);
	UNTIL(READ(status_of(g)->state) == NPUWIN_HW_READY);
}

static const struct test tests[] = {
	{ "peers_set_anew", "PEERS makes a rank that had left alive again", peers_set_anew },
	{ "messages_ignored", "a message of the own rank, or of one out of range, is ignored",
	  messages_ignored },
	{ "reset_counts_skipped", "over QUEUE_RESET seq goes on by sq_tail - sq_head",
	  reset_counts_skipped },
	{ "batch_end_itself", "a descriptor that fails and has the end mark ends its batch only",
	  batch_end_itself },
	{ "test_rank_left", "TEST of a cell whose rank has left is MISMATCH", test_rank_left },
	{ "enable_stale", "the number of the last reset enables, and no other", enable_stale },
};

const struct group group_corners = { tests, ARRAY_SIZE(tests) };
