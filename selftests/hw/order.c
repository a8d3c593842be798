// SPDX-License-Identifier: MIT
/*
 * Order: which of several things that are true of a descriptor or a rank counts.
 */
#include "hw.h"

/* A TWAIT for a 1 at @offset. */
static struct npuwin_desc d_one(uint64_t offset)
{
	struct npuwin_desc desc = d_wait(offset, NPUWIN_CMP_EQ, 1, NEVER);

	desc.flags = NPUWIN_DESC_F_CQE;
	return desc;
}

/* On the endpoint of queue 0, which has ended by what @rank did: whatever is wrong, it is that. */
static void expect_ended(struct npuwin_desc desc, uint32_t status, uint32_t rank)
{
	struct npuwin_cqe cqe;

	CHECK_EQ(run_one(&queues[0], desc, &cqe), status);
	CHECK_EQ(cqe.rank, rank);
	CHECK_EQ(cqe.cell, 0);
	CHECK_EQ(cqe.value, 0);
	CHECK_EQ(READ(q_state(&guests[0], 0)->state), NPUWIN_HW_Q_STOPPED);
	do_queue_reset(&queues[0]);
}

static void order_ended(void)
{
	for (int dead = 0; dead < 2; dead++) {
		uint32_t status = dead ? NPUWIN_ST_PEER : NPUWIN_ST_ABORTED;
		struct npuwin_desc desc;

		ranks_start(3, NULL);
		*cell_of(&guests[0], 0) = 1;
		if (dead) {
			CHECK_EQ(do_queue_simple(&guests[2], NPUWIN_HW_CMD_QUEUE_DESTROY, 0),
				 NPUWIN_HW_OK);
			CHECK_EQ(do_unbind(&guests[2], 0, true), NPUWIN_HW_OK);
			expect_event(&guests[0], NPUWIN_HW_EV_PEER, 0, 2, NPUWIN_RANK_DEAD);
		} else {
			CHECK_EQ(do_abort(&guests[2], 0, 2, 5, true), NPUWIN_HW_OK);
			expect_event(&guests[0], NPUWIN_HW_EV_ABORTED, 0, 2, 5);
		}

		desc = d_one(8);
		desc.flags |= NPUWIN_TWAIT_F_TEST;
		expect_ended(desc, status, 2);
		desc.src_off = 2;
		expect_ended(desc, status, 2);
		desc = d_one(0);
		desc.rows = 0;
		expect_ended(desc, status, 2);
		desc = d_one(WINDOW_SIZE);
		expect_ended(desc, status, 2);
		desc = d_nop();
		expect_ended(desc, status, 2);
		desc.opcode = 99;
		expect_ended(desc, status, 2);
		expect_ended(d_put(1, 0, 0, WINDOW_SIZE + 1), status, 2);
		expect_ended(d_notify(7, 0, NPUWIN_NOTIFY_SET, 1), status, 2);
		/* A cell that compares does, whatever has become of the endpoint. */
		CHECK_EQ(run_one(&queues[0], d_one(0), NULL), NPUWIN_ST_OK);
		desc = d_one(0);
		desc.flags |= NPUWIN_TWAIT_F_TEST;
		CHECK_EQ(run_one(&queues[0], desc, NULL), NPUWIN_ST_OK);
		world_end();
	}
}

static void order_stopped(void)
{
	struct queue *q = &queues[0];

	two_ranks();
	*cell_of(q->g, 0) = 1;
	CHECK_EQ(run_one(q, d_put(1, 0, WINDOW_SIZE, 1), NULL), NPUWIN_ST_BOUNDS);
	CHECK_EQ(run_one(q, d_one(0), NULL), NPUWIN_ST_CANCELLED);
	CHECK_EQ(do_abort(q->g, 0, 0, 5, false), NPUWIN_HW_OK);
	CHECK_EQ(run_one(q, d_one(0), NULL), NPUWIN_ST_CANCELLED);
	CHECK_EQ(run_one(q, d_one(8), NULL), NPUWIN_ST_CANCELLED);
	CHECK_EQ(run_one(q, d_put(1, 0, 0, 1), NULL), NPUWIN_ST_CANCELLED);
	do_queue_reset(q);
	CHECK_EQ(run_one(q, d_one(0), NULL), NPUWIN_ST_OK);
}

/* Rank @rank leaves, or dies. */
static void goes(uint32_t rank, bool dead)
{
	CHECK_EQ(do_queue_simple(&guests[rank], NPUWIN_HW_CMD_QUEUE_DESTROY, 0), NPUWIN_HW_OK);
	CHECK_EQ(do_unbind(&guests[rank], 0, dead), NPUWIN_HW_OK);
	expect_event(&guests[0], NPUWIN_HW_EV_PEER, 0, rank,
		     dead ? NPUWIN_RANK_DEAD : NPUWIN_RANK_LEFT);
}

static void order_dead_writer(void)
{
	ranks_start(3, NULL);
	*cell_of(&guests[0], 0) = 1;
	*cell_of(&guests[0], 4) = 6;
	/* Rank 1 has left, at whose cell it stops; who is to blame for the end is another. */
	goes(1, false);
	goes(2, true);
	expect_ended(d_wait_by_rank(3), NPUWIN_ST_PEER, 2);
	*cell_of(&guests[0], 4) = 1;
	*cell_of(&guests[0], 8) = 6;
	expect_ended(d_wait_by_rank(3), NPUWIN_ST_PEER, 2);
}

static void order_left_writer(void)
{
	struct queue *q = &queues[0];
	struct npuwin_cqe cqe;

	ranks_start(3, NULL);
	*cell_of(q->g, 0) = 1;
	*cell_of(q->g, 8) = 9;
	post_one(q, d_wait_by_rank(3));
	settle(q->g);
	/* It waits for rank 1, and rank 2 leaves. */
	goes(2, false);
	settle(q->g);
	CHECK(cq_empty(q));
	/* Then it comes to the cell of rank 2. */
	CHECK_EQ(run_one(&queues[1], d_notify(0, 4, NPUWIN_NOTIFY_SET, 1), NULL), NPUWIN_ST_OK);
	next_cqe(q, &cqe);
	CHECK_EQ(cqe.status, NPUWIN_ST_PEER);
	CHECK_EQ(cqe.rank, 2);
	CHECK_EQ(cqe.cell, 2);
	CHECK_EQ(cqe.value, 9);

	/* What who leaves has written, telling nobody, is seen. */
	do_queue_reset(q);
	*cell_of(q->g, 4) = 0;
	*cell_of(q->g, 8) = 1;
	*cell_of(&guests[1], 0) = 1;
	post_one(q, d_wait_by_rank(3));
	settle(q->g);
	CHECK_EQ(run_one(&queues[1], d_put(0, 0, 4, 4), NULL), NPUWIN_ST_OK);
	goes(1, false);
	next_cqe(q, &cqe);
	CHECK_EQ(cqe.status, NPUWIN_ST_OK);
}

/* Endpoint 1 of guest 1 is rank 2 of 3, knows nobody but rank 0, and goes. */
static void stranger_goes(bool dead)
{
	struct npuwin_hw_peer peer = peer_of(&guests[0], 0, keys[0]);
	uint64_t key;

	CHECK_EQ(do_bind(&guests[1], 1, 2, 3, &key), NPUWIN_HW_OK);
	CHECK_EQ(do_peers(&guests[1], 1, 0, &peer, 1), NPUWIN_HW_OK);
	CHECK_EQ(do_unbind(&guests[1], 1, dead), NPUWIN_HW_OK);
	expect_event(&guests[0], NPUWIN_HW_EV_PEER, 0, 2,
		     dead ? NPUWIN_RANK_DEAD : NPUWIN_RANK_LEFT);
}

static void order_last_message(void)
{
	struct guest *g = &guests[0];
	uint64_t key;

	ranks_start(3, NULL);
	/* Begin anew, without elements. */
	CHECK_EQ(do_endpoint_reset(g, 0, &keys[0]), NPUWIN_HW_OK);
	CHECK_EQ(peer_state(g, 2), NPUWIN_RANK_EMPTY);
	stranger_goes(false);
	CHECK_EQ(peer_state(g, 2), NPUWIN_RANK_LEFT);
	stranger_goes(true);
	CHECK_EQ(peer_state(g, 2), NPUWIN_RANK_DEAD);
	CHECK_EQ(READ(ep_state(g, 0)->state), NPUWIN_HW_EP_LOST);
	stranger_goes(false);
	CHECK_EQ(peer_state(g, 2), NPUWIN_RANK_LEFT);
	CHECK_EQ(READ(ep_state(g, 0)->state), NPUWIN_HW_EP_LOST);
	CHECK_EQ(do_endpoint_reset(g, 0, &key), NPUWIN_HW_OK);
	CHECK_EQ(peer_state(g, 2), NPUWIN_RANK_EMPTY);
}

/* Nothing but what has been posted when a request has been answered. */
static void expect_no_more(struct guest *g)
{
	uint32_t tail = READ(status_of(g)->event_tail);

	settle(g);
	until_beats(g, 2);
	CHECK_EQ(READ(status_of(g)->event_tail), tail);
	WRITE(control_of(g)->event_head, tail);
	g->event_head = tail;
}

static void order_old_events(void)
{
	static const char *const options[] = { "--heartbeat", "2", NULL };
	struct guest *g = &guests[0];
	uint64_t key;

	ranks_start(2, options);
	for (unsigned int i = 0; i < repeat(100); i++) {
		struct npuwin_hw_peer peer = peer_of(g, 0, keys[0]);

		CHECK_EQ(do_bind(&guests[1], 1, 1, 2, &key), NPUWIN_HW_OK);
		CHECK_EQ(do_peers(&guests[1], 1, 0, &peer, 1), NPUWIN_HW_OK);
		CHECK_EQ(do_abort(&guests[1], 1, 1, 5, true), NPUWIN_HW_OK);
		CHECK_EQ(do_unbind(&guests[1], 1, i % 2), NPUWIN_HW_OK);
		CHECK_EQ(do_endpoint_reset(g, 0, &keys[0]), NPUWIN_HW_OK);
		expect_no_more(g);
		CHECK_EQ(READ(ep_state(g, 0)->state), NPUWIN_HW_EP_BOUND);
	}
	CHECK_EQ(do_queue_simple(g, NPUWIN_HW_CMD_QUEUE_DESTROY, 0), NPUWIN_HW_OK);
	CHECK_EQ(do_abort(&guests[1], 0, 1, 5, true), NPUWIN_HW_OK);
	CHECK_EQ(do_unbind(g, 0, false), NPUWIN_HW_OK);
	expect_no_more(g);
}

static const struct test tests[] = {
	{ "order_ended", "on an aborted or lost endpoint only a TWAIT that holds succeeds",
	  order_ended },
	{ "order_stopped", "a queue that is STOPPED cancels what would hold or fail otherwise",
	  order_stopped },
	{ "order_dead_writer", "a wait for the rank whose death ended the domain blames it, no cell",
	  order_dead_writer },
	{ "order_left_writer",
	  "a rank that leaves ends a wait only at its own cell, after a last look",
	  order_left_writer },
	{ "order_last_message",
	  "what is known of a rank needs no element; the last message stands",
	  order_last_message },
	{ "order_old_events", "after ENDPOINT_RESET and UNBIND no event of before comes",
	  order_old_events },
};

const struct group group_order = { tests, ARRAY_SIZE(tests) };
