// SPDX-License-Identifier: MIT
/*
 * How a host sleeps for an int32, and the event queue.
 */
#include <poll.h>
#include <string.h>

#include "hw.h"

static void notify(int32_t value)
{
	CHECK_EQ(run_one(&queues[1], d_notify(0, 32, NPUWIN_NOTIFY_SET, value), NULL),
		 NPUWIN_ST_OK);
}

static void event_armed(void)
{
	struct guest *g = &guests[0];
	struct npuwin_hw_event event;

	two_ranks();
	notify(1);
	settle(g);
	CHECK(!next_event(g, &event));
	/* A blocked wait makes no difference. */
	post_one(&queues[0], d_wait(256, NPUWIN_CMP_EQ, 1, NEVER));
	settle(g);
	for (uint32_t arm = 1; arm < 20; arm++) {
		WRITE(*ep_arm(g, 0), arm * 0x10000001);
		notify(2);
		expect_event(g, NPUWIN_HW_EV_NOTIFIED, 0, NPUWIN_NO_RANK, arm * 0x10000001);
		/* Once for each value. */
		notify(3);
		settle(g);
		CHECK(!next_event(g, &event));
	}
	do_queue_reset(&queues[0]);
	/* The own engine's TNOTIFY counts too. */
	WRITE(*ep_arm(g, 0), 7);
	CHECK_EQ(run_one(&queues[0], d_notify(0, 0, NPUWIN_NOTIFY_ADD, 1), NULL), NPUWIN_ST_OK);
	expect_event(g, NPUWIN_HW_EV_NOTIFIED, 0, NPUWIN_NO_RANK, 7);
	/* A TPUT does not. */
	WRITE(*ep_arm(g, 0), 8);
	CHECK_EQ(run_one(&queues[1], d_put(0, 0, 0, 8), NULL), NPUWIN_ST_OK);
	settle(g);
	CHECK(!next_event(g, &event));
}

/* Sleeps as a driver would: arm, look, sleep until an interrupt, look. */
static void sleep_for(struct guest *g, uint32_t *arm, int32_t value)
{
	struct npuwin_hw_event event;
	bool armed = false;

	for (;;) {
		struct pollfd fd = { .fd = g->vector[0], .events = POLLIN };

		while (next_event(g, &event))
			armed &= event.type != NPUWIN_HW_EV_NOTIFIED || event.value != *arm;
		if (!armed) {
			__atomic_exchange_n(ep_arm(g, 0), ++*arm, __ATOMIC_SEQ_CST);
			armed = true;
		}
		if (__atomic_load_n(cell_of(g, 32), __ATOMIC_SEQ_CST) == value)
			return;
		if (poll(&fd, 1, 20000) != 1)
			fail(__FILE__, __LINE__, "slept through value %d", value);
		irqs(g, 0);
	}
}

static void event_never_lost(void)
{
	struct guest *g = &guests[0];
	uint32_t arm = 0;

	two_ranks();
	for (int32_t i = 1; i <= (int32_t)repeat(3000); i++) {
		post_one(&queues[1], d_notify(0, 32, NPUWIN_NOTIFY_SET, i));
		sleep_for(g, &arm, i);
	}
}

static void event_overflow(void)
{
	struct guest *g = &guests[0];
	uint32_t depth, extra = 10;
	struct npuwin_hw_event event;

	two_ranks();
	depth = g->ident.event_depth;
	for (uint32_t i = 1; i <= depth + extra; i++) {
		WRITE(*ep_arm(g, 0), i);
		notify(1);
		UNTIL(READ(status_of(g)->event_tail) + READ(status_of(g)->event_lost) == i);
	}
	CHECK_EQ(READ(status_of(g)->event_lost), extra);
	/* The old ones are all there. */
	for (uint32_t i = 1; i <= depth; i++) {
		CHECK(next_event(g, &event));
		CHECK_EQ(event.value, i);
	}
	CHECK(!next_event(g, &event));
	WRITE(*ep_arm(g, 0), 5000);
	notify(1);
	expect_event(g, NPUWIN_HW_EV_NOTIFIED, 0, NPUWIN_NO_RANK, 5000);
}

static void event_head_garbage(void)
{
	struct guest *g = &guests[0];

	two_ranks();
	WRITE(control_of(g)->event_head, 0x7fffffff);
	WRITE(*ep_arm(g, 0), 1);
	notify(1);
	UNTIL(READ(status_of(g)->event_lost) == 1);
	CHECK_EQ(READ(status_of(g)->event_tail), 0);
	WRITE(control_of(g)->event_head, 0);
	WRITE(*ep_arm(g, 0), 2);
	notify(1);
	expect_event(g, NPUWIN_HW_EV_NOTIFIED, 0, NPUWIN_NO_RANK, 2);
}

static void event_interrupt(void)
{
	struct guest *g = &guests[0];
	uint64_t before;

	two_ranks();
	settle(g);
	before = irqs(g, 0);
	WRITE(*ep_arm(g, 0), 1);
	notify(1);
	UNTIL(irqs(g, 0) > before);
}

static void arm_survives_reset(void)
{
	struct guest *g = &guests[0];
	struct npuwin_hw_event event;
	struct npuwin_hw_peer peer;
	uint64_t key;

	two_ranks();
	WRITE(*ep_arm(g, 0), 41);
	CHECK_EQ(do_endpoint_reset(g, 0, &key), NPUWIN_HW_OK);
	peer = peer_of(g, 0, key);
	CHECK_EQ(do_peers(&guests[1], 0, 0, &peer, 1), NPUWIN_HW_OK);
	/* What was there before is not a request. */
	notify(1);
	settle(g);
	CHECK(!next_event(g, &event));
	WRITE(*ep_arm(g, 0), 42);
	notify(1);
	expect_event(g, NPUWIN_HW_EV_NOTIFIED, 0, NPUWIN_NO_RANK, 42);
}

static const struct test tests[] = {
	{ "event_armed", "a new arm value gets one event at the next TNOTIFY", event_armed },
	{ "event_never_lost", "who arms, looks and sleeps is always woken", event_never_lost },
	{ "event_overflow", "events without room are counted; none is written over",
	  event_overflow },
	{ "event_head_garbage", "a wrong event_head loses events, and only that",
	  event_head_garbage },
	{ "event_interrupt", "an event signals vector 0", event_interrupt },
	{ "arm_survives_reset", "an endpoint begins unarmed, whatever its arm word has",
	  arm_survives_reset },
};

const struct group group_events = { tests, ARRAY_SIZE(tests) };
