// SPDX-License-Identifier: MIT
/*
 * Long descriptors, and what else a device does meanwhile.
 */
#include "hw.h"

/* Cells of a long TWAIT, rows of a long TPUT: hundreds of steps of any bounded size. */
#define MANY		(2u << 20)
#define BYTES		(4ULL * MANY)
#define CREDIT		1000
/* Until one is seen in the middle: who looks may be kept from looking, but not always. */
#define ATTEMPTS	200

/**
 * struct work - A long descriptor that can be seen to begin and to end.
 * @desc: the descriptor
 * @first: changes when it begins
 * @last: changes when it ends
 * @source: what it copies to @last, or NULL
 */
struct work {
	struct npuwin_desc desc;
	int32_t *first;
	int32_t *last;
	int32_t *source;
};

/* A rank alone in its domain, with a window of 3 * BYTES, and queues 0 and 1. */
static void lone_rank(void)
{
	static const char *const options[] = {
		"--memory", "64M", "--devices", "1", "--heartbeat", "1", NULL,
	};
	struct guest *g = &guests[0];
	struct npuwin_hw_request request = {
		.opcode = NPUWIN_HW_CMD_BIND, .bind = { .size = 3 * BYTES, .nranks = 1 },
	};

	emu_start(options);
	guest_connect(g, 0);
	guest_ready(g);
	request.bind.offset = g->ident.windows.offset;
	CHECK_EQ(admin(g, &request, NULL), NPUWIN_HW_OK);
	for (uint32_t i = 0; i < 2; i++)
		CHECK_EQ(do_queue_create(&queues[i], g, i, 16), NPUWIN_HW_OK);
}

/* The third part of the window: cells that have credit for many waits. */
static struct npuwin_desc long_wait(struct guest *g)
{
	struct npuwin_desc desc = d_wait(2 * BYTES, NPUWIN_CMP_GE, 1, NEVER);

	for (uint64_t i = 0; i < MANY; i++)
		*cell_of(g, (uint32_t)(2 * BYTES + 4 * i)) = CREDIT;
	desc.rows = MANY;
	desc.src_stride = 4;
	desc.flags = NPUWIN_DESC_F_CQE | NPUWIN_TWAIT_F_CONSUME;
	return desc;
}

/* From the first part of the window to the second. */
static struct npuwin_desc long_put(uint8_t sub)
{
	struct npuwin_desc desc = d_put(0, 0, BYTES, 4);

	desc.sub = sub;
	desc.rows = MANY;
	desc.src_stride = 4;
	desc.dst_stride = 4;
	desc.flags = NPUWIN_DESC_F_CQE;
	return desc;
}

/* Whether @serve comes back while the descriptor is under way, sooner or later. */
static bool meanwhile(struct work *work, void (*serve)(struct guest *g))
{
	for (int32_t i = 1; i <= ATTEMPTS; i++) {
		int32_t first = READ(*work->first), last = READ(*work->last);
		bool seen;

		if (work->source) {
			work->source[0] = i;
			work->source[MANY - 1] = i;
		}
		post_one(&queues[0], work->desc);
		UNTIL(READ(*work->first) != first);
		serve(&guests[0]);
		seen = READ(*work->last) == last;
		expect_cqe(&queues[0], 0, NPUWIN_ST_OK);
		CHECK(READ(*work->last) != last);
		if (seen)
			return true;
	}
	return false;
}

static void with_each(void (*serve)(struct guest *g))
{
	struct guest *g = &guests[0];
	struct work wait, copy, add;
	int32_t left;

	lone_rank();
	wait = (struct work) {
		.desc = long_wait(g),
		.first = cell_of(g, 2 * BYTES),
		.last = cell_of(g, 3 * BYTES - 4),
	};
	CHECK(meanwhile(&wait, serve));
	left = *wait.first;
	CHECK(left < CREDIT);
	for (uint64_t i = 0; i < MANY; i++)
		CHECK(wait.first[i] == left);

	copy = (struct work) {
		.desc = long_put(NPUWIN_PUT_COPY),
		.first = cell_of(g, BYTES),
		.last = cell_of(g, 2 * BYTES - 4),
		.source = cell_of(g, 0),
	};
	CHECK(meanwhile(&copy, serve));
	add = copy;
	add.desc = long_put(NPUWIN_PUT_ADD_I32);
	CHECK(meanwhile(&add, serve));
}

static void serve_queue(struct guest *g)
{
	CHECK_EQ(run_one(&queues[1], d_nop(), NULL), NPUWIN_ST_OK);
}

static void serve_admin(struct guest *g)
{
	CHECK_EQ(do_queue_simple(g, NPUWIN_HW_CMD_NOP, 0), NPUWIN_HW_OK);
}

static void serve_heartbeat(struct guest *g)
{
	until_beats(g, 1);
}

static void serve_steps(struct guest *g)
{
	const uint64_t steps = READ(status_of(g)->steps);

	UNTIL(READ(status_of(g)->steps) != steps);
}

static void long_hinders_no_queue(void)
{
	with_each(serve_queue);
}

static void long_hinders_no_request(void)
{
	with_each(serve_admin);
}

static void long_hinders_no_heartbeat(void)
{
	with_each(serve_heartbeat);
}

static void long_shows_steps(void)
{
	with_each(serve_steps);
}

/* Looks that bring nothing on are no steps, however many there are. */
static void blocked_shows_none(void)
{
	struct guest *g = &guests[0];
	uint64_t steps;

	lone_rank();
	post_one(&queues[0], d_wait(0, NPUWIN_CMP_EQ, 1, NEVER));
	settle(g);
	until_beats(g, 2);
	steps = READ(status_of(g)->steps);
	for (int i = 0; i < 100; i++) {
		ring(g, 0);
		settle(g);
	}
	until_beats(g, 2);
	CHECK_EQ(READ(status_of(g)->steps), steps);
	*cell_of(g, 0) = 1;
	ring(g, 0);
	UNTIL(READ(status_of(g)->steps) != steps);
}

static void long_wait_goes_on(void)
{
	struct guest *g = &guests[0];
	struct npuwin_desc desc;
	int32_t *cells;

	lone_rank();
	desc = long_wait(g);
	cells = cell_of(g, 2 * BYTES);
	/* It stops far from its beginning, twice, and takes from each cell once. */
	cells[MANY / 2] = 0;
	cells[MANY - 1] = 0;
	post_one(&queues[0], desc);
	UNTIL(READ(cells[MANY / 2 - 1]) == CREDIT - 1);
	settle(g);
	CHECK(READ(cells[MANY / 2 + 1]) == CREDIT);
	desc = d_notify(0, 2 * BYTES + 4 * (MANY / 2), NPUWIN_NOTIFY_SET, CREDIT);
	CHECK_EQ(run_one(&queues[1], desc, NULL), NPUWIN_ST_OK);
	UNTIL(READ(cells[MANY - 2]) == CREDIT - 1);
	settle(g);
	CHECK(cq_empty(&queues[0]));
	/* What was left behind does not count any more. */
	WRITE(cells[0], 0);
	WRITE(cells[MANY - 1], CREDIT);
	ring(g, 0);
	expect_cqe(&queues[0], 0, NPUWIN_ST_OK);
	for (uint64_t i = 1; i < MANY; i++)
		CHECK(cells[i] == CREDIT - 1);
	CHECK(cells[0] == 0);
}

static void long_wait_holds(void)
{
	struct guest *g = &guests[0];
	struct npuwin_desc desc;

	lone_rank();
	desc = long_wait(g);
	CHECK_EQ(do_abort(g, 0, 0, 5, false), NPUWIN_HW_OK);
	CHECK_EQ(run_one(&queues[0], desc, NULL), NPUWIN_ST_OK);
	*cell_of(g, 3 * BYTES - 4) = 0;
	CHECK_EQ(run_one(&queues[0], desc, NULL), NPUWIN_ST_ABORTED);
	CHECK(*cell_of(g, 3 * BYTES - 8) == CREDIT - 2);
}

static const struct test tests[] = {
	{ "long_hinders_no_queue", "other queues run while a long descriptor does",
	  long_hinders_no_queue },
	{ "long_hinders_no_request", "requests are answered while a long descriptor runs",
	  long_hinders_no_request },
	{ "long_hinders_no_heartbeat", "the heartbeat grows while a long descriptor runs",
	  long_hinders_no_heartbeat },
	{ "long_wait_goes_on", "a long wait goes on where it stopped, and takes from each cell once",
	  long_wait_goes_on },
	{ "long_wait_holds", "a long wait that holds is complete on an aborted endpoint too",
	  long_wait_holds },
};

const struct group group_turns = { tests, ARRAY_SIZE(tests) };

static const struct test progress_tests[] = {
	{ "long_shows_steps", "steps grows while a long descriptor runs", long_shows_steps },
	{ "blocked_shows_none", "steps stands still while all that there is blocks",
	  blocked_shows_none },
};

const struct group group_progress = { progress_tests, ARRAY_SIZE(progress_tests) };
