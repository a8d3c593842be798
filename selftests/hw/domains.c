// SPDX-License-Identifier: MIT
/*
 * Ranks that leave, die and abort.
 */
#include <errno.h>
#include <string.h>

#include "hw.h"

static void unbind(struct guest *g, bool dead)
{
	CHECK_EQ(do_queue_simple(g, NPUWIN_HW_CMD_QUEUE_DESTROY, 0), NPUWIN_HW_OK);
	CHECK_EQ(do_unbind(g, 0, dead), NPUWIN_HW_OK);
}

static void peer_leaves(void)
{
	struct guest *g = &guests[0];
	struct npuwin_cqe cqe;
	struct queue other;

	ranks_start(3, NULL);
	CHECK_EQ(do_queue_create(&other, g, 1, 16), NPUWIN_HW_OK);
	*cell_of(g, 0) = 1;
	post_one(&queues[0], d_wait_by_rank(3));
	post_one(&other, d_wait(256, NPUWIN_CMP_EQ, 1, NEVER));
	settle(g);
	unbind(&guests[1], false);
	expect_event(g, NPUWIN_HW_EV_PEER, 0, 1, NPUWIN_RANK_LEFT);
	expect_event(&guests[2], NPUWIN_HW_EV_PEER, 0, 1, NPUWIN_RANK_LEFT);
	next_cqe(&queues[0], &cqe);
	CHECK_EQ(cqe.status, NPUWIN_ST_PEER);
	CHECK_EQ(cqe.rank, 1);
	CHECK_EQ(cqe.cell, 1);
	CHECK_EQ(READ(ep_state(g, 0)->state), NPUWIN_HW_EP_BOUND);
	/* Other waits and other ranks are not concerned. */
	settle(g);
	CHECK_EQ(READ(q_state(g, 1)->sq_head), 0);
	do_queue_reset(&queues[0]);
	CHECK_EQ(run_one(&queues[0], d_put(2, 0, 0, 4), NULL), NPUWIN_ST_OK);
	CHECK_EQ(run_one(&queues[0], d_put(1, 0, 0, 4), NULL), NPUWIN_ST_PEER);
	do_queue_reset(&queues[0]);
	/* The cell that a rank wrote before it left still counts. */
	*cell_of(g, 4) = 1;
	post_one(&queues[0], d_wait_by_rank(3));
	settle(g);
	CHECK(cq_empty(&queues[0]));
	CHECK_EQ(run_one(&queues[2], d_notify(0, 8, NPUWIN_NOTIFY_SET, 1), NULL), NPUWIN_ST_OK);
	expect_cqe(&queues[0], 0, NPUWIN_ST_OK);
}

static void expect_lost(struct guest *g, struct queue *q, uint32_t rank)
{
	struct npuwin_cqe cqe;

	expect_event(g, NPUWIN_HW_EV_PEER, 0, rank, NPUWIN_RANK_DEAD);
	CHECK_EQ(READ(ep_state(g, 0)->state), NPUWIN_HW_EP_LOST);
	CHECK_EQ(ep_state(g, 0)->abort_rank, rank);
	CHECK_EQ(ep_state(g, 0)->abort_error, EPIPE);
	next_cqe(q, &cqe);
	CHECK_EQ(cqe.status, NPUWIN_ST_PEER);
	CHECK_EQ(cqe.rank, rank);
	do_queue_reset(q);
	CHECK_EQ(run_one(q, d_nop(), &cqe), NPUWIN_ST_PEER);
	CHECK_EQ(cqe.rank, rank);
}

static void peer_dies(void)
{
	ranks_start(3, NULL);
	for (uint32_t i = 0; i < 3; i += 2)
		post_one(&queues[i], d_wait(256, NPUWIN_CMP_EQ, 1, NEVER));
	settle(&guests[0]);
	unbind(&guests[1], true);
	expect_lost(&guests[0], &queues[0], 1);
	expect_lost(&guests[2], &queues[2], 1);
	/* A wait that has nothing to wait for is complete all the same. */
	do_queue_reset(&queues[0]);
	CHECK_EQ(run_one(&queues[0], d_wait(256, NPUWIN_CMP_EQ, 0, NEVER), NULL), NPUWIN_ST_OK);
}

static void host_dies(void)
{
	two_ranks();
	post_one(&queues[0], d_wait(256, NPUWIN_CMP_EQ, 1, NEVER));
	settle(&guests[0]);
	guest_close(&guests[1]);
	expect_lost(&guests[0], &queues[0], 1);
}

static void reset_is_death(void)
{
	two_ranks();
	post_one(&queues[0], d_wait(256, NPUWIN_CMP_EQ, 1, NEVER));
	settle(&guests[0]);
	guest_reset(&guests[1]);
	expect_lost(&guests[0], &queues[0], 1);
}

static void abort_here(void)
{
	struct guest *g = &guests[0];
	struct npuwin_cqe cqe;

	two_ranks();
	memset(window_of(g, 0), 1, 8);
	post_one(&queues[0], d_wait(256, NPUWIN_CMP_EQ, 1, NEVER));
	post_one(&queues[0], d_put(1, 0, 0, 8));
	settle(g);
	CHECK_EQ(do_abort(g, 0, 0, 125, false), NPUWIN_HW_OK);
	next_cqe(&queues[0], &cqe);
	CHECK_EQ(cqe.status, NPUWIN_ST_ABORTED);
	CHECK_EQ(cqe.rank, 0);
	expect_cqe(&queues[0], 0, NPUWIN_ST_CANCELLED);
	do_queue_reset(&queues[0]);
	CHECK_EQ(run_one(&queues[0], d_put(1, 0, 0, 8), NULL), NPUWIN_ST_ABORTED);
	CHECK(!*window_of(&guests[1], 0));
	/* Nobody was told. */
	settle(&guests[1]);
	CHECK_EQ(READ(ep_state(&guests[1], 0)->state), NPUWIN_HW_EP_BOUND);
	CHECK_EQ(READ(status_of(&guests[1])->event_tail), 0);
}

static void abort_tells(void)
{
	struct npuwin_cqe cqe;

	ranks_start(3, NULL);
	for (uint32_t i = 1; i < 3; i++)
		post_one(&queues[i], d_wait(256, NPUWIN_CMP_EQ, 1, NEVER));
	settle(&guests[1]);
	CHECK_EQ(do_abort(&guests[0], 0, 0, 110, true), NPUWIN_HW_OK);
	for (uint32_t i = 1; i < 3; i++) {
		expect_event(&guests[i], NPUWIN_HW_EV_ABORTED, 0, 0, 110);
		CHECK_EQ(READ(ep_state(&guests[i], 0)->state), NPUWIN_HW_EP_ABORTED);
		CHECK_EQ(ep_state(&guests[i], 0)->abort_rank, 0);
		CHECK_EQ(ep_state(&guests[i], 0)->abort_error, 110);
		next_cqe(&queues[i], &cqe);
		CHECK_EQ(cqe.status, NPUWIN_ST_ABORTED);
		CHECK_EQ(cqe.rank, 0);
	}
}

static void telling_needs_key(void)
{
	struct npuwin_hw_peer bad;

	two_ranks();
	bad = peer_of(&guests[1], 0, keys[1] + 1);
	CHECK_EQ(do_peers(&guests[0], 0, 1, &bad, 1), NPUWIN_HW_OK);
	CHECK_EQ(do_abort(&guests[0], 0, 0, 110, true), NPUWIN_HW_OK);
	unbind(&guests[0], true);
	settle(&guests[1]);
	CHECK_EQ(READ(ep_state(&guests[1], 0)->state), NPUWIN_HW_EP_BOUND);
	CHECK_EQ(READ(status_of(&guests[1])->event_tail), 0);
}

static void endpoint_reset_recovers(void)
{
	uint64_t fresh[2];
	struct npuwin_hw_peer peers[2];

	two_ranks();
	for (uint32_t round = 1; round <= 5; round++) {
		for (uint32_t i = 0; i < 2; i++) {
			post_one(&queues[i], d_wait(256, NPUWIN_CMP_EQ, 1, NEVER));
			*reg_of(&guests[i], 0, 3) = 9;
		}
		CHECK_EQ(do_abort(&guests[0], 0, 0, 5, true), NPUWIN_HW_OK);
		expect_event(&guests[1], NPUWIN_HW_EV_ABORTED, 0, 0, 5);
		for (uint32_t i = 0; i < 2; i++) {
			struct guest *g = &guests[i];

			CHECK_EQ(do_endpoint_reset(g, 0, &fresh[i]), NPUWIN_HW_OK);
			CHECK_EQ(READ(ep_state(g, 0)->state), NPUWIN_HW_EP_BOUND);
			CHECK_EQ(ep_state(g, 0)->generation, round);
			CHECK_EQ(ep_state(g, 0)->abort_rank, NPUWIN_NO_RANK);
			CHECK_EQ(ep_state(g, 0)->abort_error, 0);
			CHECK_EQ(*reg_of(g, 0, 3), 0);
			CHECK_EQ(READ(q_state(g, 0)->state), NPUWIN_HW_Q_RUNNING);
			CHECK_EQ(READ(q_state(g, 0)->sq_head), queues[i].tail);
			queues[i].cq_head = READ(q_state(g, 0)->cq_tail);
			WRITE(q_post(g, 0)->cq_head, queues[i].cq_head);
			peers[i] = peer_of(g, 0, fresh[i]);
		}
		/* No peers yet. */
		CHECK_EQ(run_one(&queues[0], d_put(1, 0, 0, 4), NULL), NPUWIN_ST_PEER);
		do_queue_reset(&queues[0]);
		for (uint32_t i = 0; i < 2; i++)
			CHECK_EQ(do_peers(&guests[i], 0, 0, peers, 2), NPUWIN_HW_OK);
		CHECK_EQ(run_one(&queues[0], d_put(1, 0, 0, 4), NULL), NPUWIN_ST_OK);
		CHECK_EQ(run_one(&queues[1], d_put(0, 0, 0, 4), NULL), NPUWIN_ST_OK);
	}
}

static void peer_states_tell(void)
{
	static const uint8_t want[4] = {
		NPUWIN_RANK_JOINED, NPUWIN_RANK_LEFT, NPUWIN_RANK_DEAD, NPUWIN_RANK_EMPTY,
	};
	struct guest *g = &guests[0];
	struct npuwin_hw_request request = {
		.opcode = NPUWIN_HW_CMD_PEER_STATES, .table = { .count = 4 },
	};
	struct npuwin_hw_peer none = { 0 };

	ranks_start(4, NULL);
	unbind(&guests[1], false);
	expect_event(g, NPUWIN_HW_EV_PEER, 0, 1, NPUWIN_RANK_LEFT);
	CHECK_EQ(do_peers(g, 0, 3, &none, 1), NPUWIN_HW_OK);
	unbind(&guests[2], true);
	expect_event(g, NPUWIN_HW_EV_PEER, 0, 2, NPUWIN_RANK_DEAD);
	request.table.offset = rings_alloc(g, 4);
	CHECK_EQ(admin(g, &request, NULL), NPUWIN_HW_OK);
	CHECK(!memcmp(g->base + request.table.offset, want, 4));
}

static const struct test tests[] = {
	{ "peer_leaves", "a rank that leaves ends only the waits that need it", peer_leaves },
	{ "peer_dies", "a rank that dies ends all that does not hold, by its name",
	  peer_dies },
	{ "host_dies", "a host that goes is the death of its ranks", host_dies },
	{ "reset_is_death", "a reset is the death of the device's ranks", reset_is_death },
	{ "abort_here", "ABORT ends what is in the endpoint's queues, here only", abort_here },
	{ "abort_tells", "ABORT with its flag aborts every peer", abort_tells },
	{ "telling_needs_key", "without the key nobody is told anything", telling_needs_key },
	{ "endpoint_reset_recovers", "ENDPOINT_RESET makes an aborted endpoint as new",
	  endpoint_reset_recovers },
	{ "peer_states_tell", "PEER_STATES tells who is there, left or dead",
	  peer_states_tell },
};

const struct group group_domains = { tests, ARRAY_SIZE(tests) };
