// SPDX-License-Identifier: MIT
/*
 * States, reset, heartbeat.
 */
#include <string.h>

#include "hw.h"

static const char *const quick[] = { "--memory", "16M", "--heartbeat", "10", NULL };

static void reset_first(void)
{
	struct guest *g = &guests[0];

	emu_start(quick);
	guest_connect(g, 0);
	CHECK_EQ(READ(status_of(g)->state), NPUWIN_HW_RESET);
	CHECK_EQ(READ(status_of(g)->reset_ack), 0);
	for (uint32_t enable = 0; enable < 3; enable++) {
		WRITE(control_of(g)->enable, enable);
		ring(g, 0);
		until_beats(g, 2);
		CHECK_EQ(READ(status_of(g)->state), NPUWIN_HW_RESET);
	}
}

static void reset_and_enable(void)
{
	struct guest *g = &guests[0];

	emu_start(quick);
	guest_connect(g, 0);
	g->resets = 40;
	guest_reset(g);
	CHECK_EQ(READ(status_of(g)->state), NPUWIN_HW_RESET);
	WRITE(control_of(g)->enable, 40);
	ring(g, 0);
	until_beats(g, 2);
	CHECK_EQ(READ(status_of(g)->state), NPUWIN_HW_RESET);
	guest_enable(g);
	UNTIL(irqs(g, 0) >= 1);
	WRITE(control_of(g)->enable, 7);
	ring(g, 0);
	settle(g);
	CHECK_EQ(READ(status_of(g)->state), NPUWIN_HW_READY);
}

static void reset_clears(void)
{
	struct guest *g = &guests[0];
	struct npuwin_desc desc = d_wait(0, NPUWIN_CMP_EQ, 1, NEVER);

	ranks_start(2, NULL);
	*reg_of(g, 0, 5) = 77;
	post_one(&queues[0], desc);
	settle(g);
	guest_reset(g);
	CHECK_EQ(READ(status_of(g)->state), NPUWIN_HW_RESET);
	CHECK_EQ(status_of(g)->admin_done, 0);
	CHECK_EQ(status_of(g)->event_tail, 0);
	CHECK_EQ(status_of(g)->event_lost, 0);
	CHECK_EQ(ep_state(g, 0)->state, NPUWIN_HW_EP_FREE);
	CHECK_EQ(q_state(g, 0)->state, NPUWIN_HW_Q_NONE);
	CHECK_EQ(*reg_of(g, 0, 5), 0);
	guest_enable(g);
	/* What was in the queue does not come back. */
	*cell_of(g, 0) = 1;
	ring(g, 0);
	ring(g, queues[0].args.doorbell);
	settle(g);
	CHECK_EQ(do_unbind(g, 0, false), NPUWIN_HW_E_ID);
	CHECK_EQ(do_queue_simple(g, NPUWIN_HW_CMD_QUEUE_DESTROY, 0), NPUWIN_HW_E_ID);
	CHECK_EQ(q_state(g, 0)->cq_tail, 0);
}

static void reset_once(void)
{
	struct guest *g = &guests[0];

	two_ranks();
	for (int i = 0; i < 5; i++)
		ring(g, 0);
	settle(g);
	CHECK_EQ(READ(ep_state(g, 0)->state), NPUWIN_HW_EP_BOUND);
	WRITE(control_of(g)->reset, 0);
	ring(g, 0);
	settle(g);
	CHECK_EQ(READ(ep_state(g, 0)->state), NPUWIN_HW_EP_BOUND);
	CHECK_EQ(run_one(&queues[0], d_nop(), NULL), NPUWIN_ST_OK);
}

static void reset_again(void)
{
	struct guest *g = &guests[0];

	emu_start(quick);
	guest_connect(g, 0);
	g->resets = UINT32_MAX - 5;
	for (unsigned int i = 0; i < repeat(200); i++) {
		guest_ready(g);
		CHECK_EQ(do_bind(g, 0, 0, 1, &keys[0]), NPUWIN_HW_OK);
		CHECK_EQ(do_queue_create(&queues[0], g, 0, 4), NPUWIN_HW_OK);
		CHECK_EQ(run_one(&queues[0], d_nop(), NULL), NPUWIN_ST_OK);
		post_one(&queues[0], d_wait(0, NPUWIN_CMP_EQ, 1, NEVER));
	}
}

static void fault_needs_reset(void)
{
	static const char *const options[] = { "--heartbeat", "10", NULL };
	struct guest *g = &guests[0];

	ranks_start(2, options);
	WRITE(control_of(g)->admin_tail, g->admin_tail + g->ident.admin_depth + 1);
	ring(g, 0);
	UNTIL(READ(status_of(g)->state) == NPUWIN_HW_FAULT);
	CHECK_EQ(READ(status_of(g)->fault), NPUWIN_HW_FAULT_ADMIN);
	WRITE(control_of(g)->admin_tail, g->admin_tail);
	post_one(&queues[0], d_nop());
	ring(g, 0);
	until_beats(g, 3);
	CHECK_EQ(READ(status_of(g)->state), NPUWIN_HW_FAULT);
	CHECK_EQ(READ(status_of(g)->admin_done), g->admin_tail);
	/* The peer has been told. */
	expect_event(&guests[1], NPUWIN_HW_EV_PEER, 0, 0, NPUWIN_RANK_DEAD);
	guest_ready(g);
	CHECK_EQ(READ(status_of(g)->fault), NPUWIN_HW_FAULT_NONE);
	settle(g);
}

static void words_not_read_back(void)
{
	struct guest *g = &guests[0];
	struct queue *q = &queues[0];
	struct npuwin_hw_status *status;
	uint64_t key;

	two_ranks();
	CHECK_EQ(run_one(q, d_nop(), NULL), NPUWIN_ST_OK);
	status = status_of(g);
	memset(ep_state(g, 0), 0xff, sizeof(*ep_state(g, 0)));
	q_state(g, 0)->state = 99;
	q_state(g, 0)->fault = 99;
	status->state = NPUWIN_HW_FAULT;
	status->fault = 5;
	status->reset_ack = 12345;
	memset(g->base, 0, sizeof(g->ident));
	WRITE(q_state(g, 0)->sq_head, 1000);
	WRITE(q_state(g, 0)->cq_tail, q->cq_head);
	CHECK_EQ(run_one(q, d_nop(), NULL), NPUWIN_ST_OK);
	CHECK_EQ(READ(q_state(g, 0)->sq_head), 2);
	CHECK_EQ(READ(q_state(g, 0)->cq_tail), 2);
	CHECK_EQ(do_endpoint_reset(g, 0, &key), NPUWIN_HW_OK);
	CHECK_EQ(ep_state(g, 0)->generation, 1);
	CHECK_EQ(ep_state(g, 0)->abort_rank, NPUWIN_NO_RANK);
	/* The next driver goes by the identification. */
	UNTIL(!memcmp(g->base, &g->ident, sizeof(g->ident)));
}

static void heartbeat_grows(void)
{
	struct guest *g = &guests[0];
	uint64_t clock;

	emu_start(quick);
	guest_connect(g, 0);
	clock = READ(status_of(g)->clock);
	until_beats(g, 3);
	CHECK(READ(status_of(g)->clock) > clock);
	guest_ready(g);
	until_beats(g, 3);
	WRITE(control_of(g)->admin_tail, 5000);
	ring(g, 0);
	UNTIL(READ(status_of(g)->state) == NPUWIN_HW_FAULT);
	until_beats(g, 3);
}

static void doorbells_spurious(void)
{
	struct guest *g = &guests[0];
	uint64_t before = 0, after = 0;

	two_ranks();
	settle(g);
	for (uint32_t v = 1; v < g->nvectors; v++)
		before += irqs(g, v);
	for (int i = 0; i < 200; i++)
		ring(g, (uint32_t)i % g->ndoorbells);
	settle(g);
	for (uint32_t v = 1; v < g->nvectors; v++)
		after += irqs(g, v);
	CHECK_EQ(after, before);
	CHECK_EQ(READ(q_state(g, 0)->cq_tail), 0);
	CHECK_EQ(READ(q_state(g, 0)->sq_head), 0);
	CHECK_EQ(READ(status_of(g)->event_tail), 0);
	CHECK_EQ(READ(status_of(g)->admin_done), g->admin_tail);
}

static const struct test tests[] = {
	{ "reset_first", "a device starts in RESET; only a reset makes it enableable",
	  reset_first },
	{ "reset_and_enable", "a reset is acknowledged; its number alone enables",
	  reset_and_enable },
	{ "reset_clears", "a reset frees queues and endpoints and zeroes what the device writes",
	  reset_clears },
	{ "reset_once", "a number asks for one reset, zero for none", reset_once },
	{ "reset_again", "any number of resets, with work under way", reset_again },
	{ "fault_needs_reset", "too many requests are a FAULT, and only a reset leads out",
	  fault_needs_reset },
	{ "words_not_read_back", "what the host scribbles over the device's words is not read",
	  words_not_read_back },
	{ "heartbeat_grows", "heartbeat and clock go on in every state", heartbeat_grows },
	{ "doorbells_spurious", "a doorbell without work does nothing", doorbells_spurious },
};

const struct group group_states = { tests, ARRAY_SIZE(tests) };
