// SPDX-License-Identifier: MIT
/*
 * The admin ring and its commands.
 */
#include <string.h>

#include "hw.h"

static const char *const small[] = { "--memory", "16M", NULL };

static struct guest *one_guest(void)
{
	emu_start(small);
	guest_connect(&guests[0], 0);
	guest_ready(&guests[0]);
	return &guests[0];
}

static void admin_in_order(void)
{
	struct guest *g = one_guest();
	struct npuwin_hw_request *requests =
		(struct npuwin_hw_request *)(g->base + g->ident.admin_requests.offset);
	struct npuwin_hw_response *responses =
		(struct npuwin_hw_response *)(g->base + g->ident.admin_responses.offset);
	uint32_t n = g->ident.admin_depth;

	for (uint32_t i = 0; i < n; i++)
		requests[i] = (struct npuwin_hw_request) {
			.opcode = i % 2 ? NPUWIN_HW_CMD_NOP : 0x7fff, .tag = 1000 + i,
		};
	g->admin_tail = n;
	WRITE(control_of(g)->admin_tail, n);
	ring(g, 0);
	UNTIL(READ(status_of(g)->admin_done) == n);
	UNTIL(irqs(g, 0) >= 1);
	for (uint32_t i = 0; i < n; i++) {
		CHECK_EQ(responses[i].tag, 1000 + i);
		CHECK_EQ(responses[i].status, i % 2 ? NPUWIN_HW_OK : NPUWIN_HW_E_OPCODE);
	}
}

static void admin_wraps(void)
{
	struct guest *g = one_guest();

	for (uint32_t i = 0; i < g->ident.admin_depth * 3; i++)
		settle(g);
}

static void admin_unknown(void)
{
	struct guest *g = one_guest();

	for (uint32_t opcode = NPUWIN_HW_CMD_QUEUE_RESET + 1; opcode < 70000; opcode += 971) {
		struct npuwin_hw_request request = {
			.opcode = (uint16_t)opcode, .flags = 0xffff, .reserved = 1,
		};

		if (request.opcode <= NPUWIN_HW_CMD_QUEUE_RESET)
			continue;
		CHECK_EQ(admin(g, &request, NULL), NPUWIN_HW_E_OPCODE);
	}
}

static void admin_reserved(void)
{
	static const struct {
		uint16_t opcode, flags;
		uint8_t bytes;
		bool has_id;
	} commands[] = {
		{ NPUWIN_HW_CMD_NOP, 0, 0, false },
		{ NPUWIN_HW_CMD_CLOCK, 0, 0, false },
		{ NPUWIN_HW_CMD_BIND, 0, 24, true },
		{ NPUWIN_HW_CMD_UNBIND, 1, 0, true },
		{ NPUWIN_HW_CMD_PEERS, 0, 16, true },
		{ NPUWIN_HW_CMD_PEER_STATES, 0, 16, true },
		{ NPUWIN_HW_CMD_ABORT, 1, 8, true },
		{ NPUWIN_HW_CMD_ENDPOINT_RESET, 0, 0, true },
		{ NPUWIN_HW_CMD_QUEUE_CREATE, 0, 32, true },
		{ NPUWIN_HW_CMD_QUEUE_DESTROY, 0, 0, true },
		{ NPUWIN_HW_CMD_QUEUE_RESET, 0, 0, true },
	};
	struct guest *g = one_guest();

	for (size_t c = 0; c < ARRAY_SIZE(commands); c++) {
		struct npuwin_hw_request good = { .opcode = commands[c].opcode };
		struct npuwin_hw_request bad = good;

		bad.flags = commands[c].flags + 1;
		if (commands[c].opcode == NPUWIN_HW_CMD_CLOCK)
			bad.flags = 2;
		CHECK_EQ(admin(g, &bad, NULL), NPUWIN_HW_E_FIELD);
		bad = good;
		bad.reserved = 1;
		CHECK_EQ(admin(g, &bad, NULL), NPUWIN_HW_E_FIELD);
		if (!commands[c].has_id) {
			bad = good;
			bad.id = 1;
			CHECK_EQ(admin(g, &bad, NULL), NPUWIN_HW_E_FIELD);
		}
		for (size_t i = commands[c].bytes; i < sizeof(good.raw); i += 3) {
			bad = good;
			bad.raw[i] = 0x80;
			CHECK_EQ(admin(g, &bad, NULL), NPUWIN_HW_E_FIELD);
		}
	}
}

static void admin_ids(void)
{
	static const uint32_t ids[] = { 0, 1, 63, 64, 4096, 0x7fffffff, 0xffffffff };
	struct guest *g = one_guest();
	uint64_t key;

	for (size_t i = 0; i < ARRAY_SIZE(ids); i++) {
		CHECK_EQ(do_unbind(g, ids[i], false), NPUWIN_HW_E_ID);
		CHECK_EQ(do_endpoint_reset(g, ids[i], &key), NPUWIN_HW_E_ID);
		CHECK_EQ(do_abort(g, ids[i], 0, 5, false), NPUWIN_HW_E_ID);
		for (uint16_t op = NPUWIN_HW_CMD_QUEUE_DESTROY; op <= NPUWIN_HW_CMD_QUEUE_RESET;
		     op++)
			CHECK_EQ(do_queue_simple(g, op, ids[i]), NPUWIN_HW_E_ID);
		if (ids[i] < g->ident.max_endpoints)
			continue;
		CHECK_EQ(do_bind(g, ids[i], 0, 1, &key), NPUWIN_HW_E_ID);
	}
}

static uint32_t bind_at(struct guest *g, uint32_t id, uint64_t offset, uint64_t size,
			uint32_t rank, uint32_t nranks)
{
	struct npuwin_hw_request request = {
		.opcode = NPUWIN_HW_CMD_BIND, .id = id,
		.bind = { .offset = offset, .size = size, .rank = rank, .nranks = nranks },
	};

	return admin(g, &request, NULL);
}

static void bind_checks(void)
{
	struct guest *g = one_guest();
	const struct npuwin_hw_region *windows = &g->ident.windows;
	uint64_t start = windows->offset, align = g->ident.window_align;
	uint64_t end = start + (windows->size & ~(align - 1));

	CHECK_EQ(bind_at(g, 0, start, 0, 0, 1), NPUWIN_HW_E_FIELD);
	CHECK_EQ(bind_at(g, 0, start, align, 0, 0), NPUWIN_HW_E_FIELD);
	CHECK_EQ(bind_at(g, 0, start, align, 1, 1), NPUWIN_HW_E_FIELD);
	CHECK_EQ(bind_at(g, 0, start, align, 0, g->ident.max_ranks + 1), NPUWIN_HW_E_FIELD);
	CHECK_EQ(bind_at(g, 0, start, align, 0, UINT32_MAX), NPUWIN_HW_E_FIELD);
	CHECK_EQ(bind_at(g, 0, start + 8, align, 0, 1), NPUWIN_HW_E_ALIGN);
	CHECK_EQ(bind_at(g, 0, start, align + 4, 0, 1), NPUWIN_HW_E_ALIGN);
	CHECK_EQ(bind_at(g, 0, 0, align, 0, 1), NPUWIN_HW_E_BOUNDS);
	CHECK_EQ(bind_at(g, 0, g->ident.rings.offset, align, 0, 1), NPUWIN_HW_E_BOUNDS);
	CHECK_EQ(bind_at(g, 0, start - align, 2 * align, 0, 1), NPUWIN_HW_E_BOUNDS);
	CHECK_EQ(bind_at(g, 0, end, align, 0, 1), NPUWIN_HW_E_BOUNDS);
	CHECK_EQ(bind_at(g, 0, end - align, 2 * align, 0, 1), NPUWIN_HW_E_BOUNDS);
	CHECK_EQ(bind_at(g, 0, start, 0 - align, 0, 1), NPUWIN_HW_E_BOUNDS);
	CHECK_EQ(bind_at(g, 0, 0 - align, align, 0, 1), NPUWIN_HW_E_BOUNDS);
	CHECK_EQ(bind_at(g, 0, 0 - align, 2 * align, 0, 1), NPUWIN_HW_E_BOUNDS);

	CHECK_EQ(bind_at(g, 0, start + align, 2 * align, 0, 1), NPUWIN_HW_OK);
	CHECK_EQ(bind_at(g, 0, end - align, align, 0, 1), NPUWIN_HW_E_BUSY);
	CHECK_EQ(bind_at(g, 1, start, 2 * align, 0, 1), NPUWIN_HW_E_BUSY);
	CHECK_EQ(bind_at(g, 1, start + 2 * align, align, 0, 1), NPUWIN_HW_E_BUSY);
	CHECK_EQ(bind_at(g, 1, start + 2 * align, 3 * align, 0, 1), NPUWIN_HW_E_BUSY);
	CHECK_EQ(bind_at(g, 1, start, 8 * align, 0, 1), NPUWIN_HW_E_BUSY);
	CHECK_EQ(bind_at(g, 1, start, align, 0, 1), NPUWIN_HW_OK);
	CHECK_EQ(bind_at(g, 2, start + 3 * align, align, 0, g->ident.max_ranks),
		 NPUWIN_HW_OK);
	CHECK_EQ(ep_state(g, 2)->state, NPUWIN_HW_EP_BOUND);
	CHECK_EQ(ep_state(g, 2)->abort_rank, NPUWIN_NO_RANK);
	CHECK_EQ(ep_state(g, 3)->state, NPUWIN_HW_EP_FREE);
}

static void bind_keys(void)
{
	enum { COUNT = 64 };
	struct guest *g = one_guest();
	uint64_t seen[COUNT];

	for (int i = 0; i < COUNT; i++) {
		for (uint32_t r = 0; r < NPUWIN_NOTIFY_REGS; r += 13)
			*reg_of(g, 3, r) = -1;
		CHECK_EQ(do_bind(g, 3, 0, 1, &seen[i]), NPUWIN_HW_OK);
		CHECK(seen[i]);
		for (int j = 0; j < i; j++)
			CHECK(seen[i] != seen[j]);
		for (uint32_t r = 0; r < NPUWIN_NOTIFY_REGS; r++)
			CHECK(!*reg_of(g, 3, r));
		CHECK_EQ(do_unbind(g, 3, i % 2), NPUWIN_HW_OK);
		CHECK_EQ(ep_state(g, 3)->state, NPUWIN_HW_EP_FREE);
	}
}

static void unbind_busy(void)
{
	struct guest *g = &guests[0];

	two_ranks();
	CHECK_EQ(do_unbind(g, 0, false), NPUWIN_HW_E_BUSY);
	CHECK_EQ(run_one(&queues[0], d_nop(), NULL), NPUWIN_ST_OK);
	CHECK_EQ(do_queue_simple(g, NPUWIN_HW_CMD_QUEUE_DESTROY, 0), NPUWIN_HW_OK);
	CHECK_EQ(do_unbind(g, 0, false), NPUWIN_HW_OK);
	CHECK_EQ(do_unbind(g, 0, false), NPUWIN_HW_E_ID);
}

static uint32_t create(struct guest *g, uint32_t id, const struct npuwin_hw_queue_create *args)
{
	struct npuwin_hw_request request = {
		.opcode = NPUWIN_HW_CMD_QUEUE_CREATE, .id = id, .queue = *args,
	};

	return admin(g, &request, NULL);
}

static void queue_create_checks(void)
{
	struct guest *g = one_guest();
	const struct npuwin_hw_region *rings = &g->ident.rings;
	const struct npuwin_hw_queue_create good = {
		.sq_offset = rings->offset, .cq_offset = rings->offset + 4096,
		.sq_depth = 64, .cq_depth = 128,
	};
	struct npuwin_hw_queue_create bad = good;
	uint64_t key;

	CHECK_EQ(create(g, 0, &good), NPUWIN_HW_E_ID);
	CHECK_EQ(do_bind(g, 0, 0, 1, &key), NPUWIN_HW_OK);
	CHECK_EQ(create(g, g->ident.max_queues, &good), NPUWIN_HW_E_ID);
	bad.endpoint = g->ident.max_endpoints;
	CHECK_EQ(create(g, 0, &bad), NPUWIN_HW_E_ID);

#define BAD(field, value, status) do { \
		bad = good; \
		bad.field = (value); \
		CHECK_EQ(create(g, 0, &bad), status); \
	} while (0)
	BAD(sq_depth, 0, NPUWIN_HW_E_FIELD);
	BAD(sq_depth, 63, NPUWIN_HW_E_FIELD);
	BAD(sq_depth, g->ident.max_depth * 2, NPUWIN_HW_E_FIELD);
	BAD(sq_depth, 1u << 31, NPUWIN_HW_E_FIELD);
	BAD(cq_depth, 0, NPUWIN_HW_E_FIELD);
	BAD(cq_depth, 96, NPUWIN_HW_E_FIELD);
	BAD(cq_depth, 1u << 31, NPUWIN_HW_E_FIELD);
	BAD(vector, g->ident.vectors, NPUWIN_HW_E_FIELD);
	BAD(doorbell, g->ident.doorbells, NPUWIN_HW_E_FIELD);
	BAD(sq_offset, rings->offset + 32, NPUWIN_HW_E_ALIGN);
	BAD(cq_offset, rings->offset + 8, NPUWIN_HW_E_ALIGN);
	BAD(sq_offset, 0, NPUWIN_HW_E_BOUNDS);
	BAD(cq_offset, 0, NPUWIN_HW_E_BOUNDS);
	BAD(sq_offset, g->ident.windows.offset, NPUWIN_HW_E_BOUNDS);
	BAD(sq_offset, rings->offset + rings->size - 4096 + 64, NPUWIN_HW_E_BOUNDS);
	BAD(cq_offset, rings->offset + rings->size - 4096 + 64, NPUWIN_HW_E_BOUNDS);
	BAD(sq_offset, UINT64_MAX & ~63ULL, NPUWIN_HW_E_BOUNDS);
	BAD(cq_offset, UINT64_MAX & ~63ULL, NPUWIN_HW_E_BOUNDS);
#undef BAD
	CHECK_EQ(q_state(g, 0)->state, NPUWIN_HW_Q_NONE);
	CHECK_EQ(create(g, 0, &good), NPUWIN_HW_OK);
	CHECK_EQ(q_state(g, 0)->state, NPUWIN_HW_Q_RUNNING);
	CHECK_EQ(create(g, 0, &good), NPUWIN_HW_E_BUSY);
	CHECK_EQ(create(g, g->ident.max_queues - 1, &good), NPUWIN_HW_OK);
}

static uint32_t table(struct guest *g, uint16_t opcode, uint64_t offset, uint32_t first,
		      uint32_t n)
{
	struct npuwin_hw_request request = {
		.opcode = opcode,
		.table = { .offset = offset, .first = first, .count = n },
	};

	return admin(g, &request, NULL);
}

static void peers_checks(void)
{
	struct guest *g = one_guest();
	const struct npuwin_hw_region *rings = &g->ident.rings;
	struct npuwin_hw_peer peer = { .fabric_id = 1 };
	uint64_t key;

	CHECK_EQ(do_bind(g, 0, 1, 4, &key), NPUWIN_HW_OK);
	for (uint16_t op = NPUWIN_HW_CMD_PEERS; op <= NPUWIN_HW_CMD_PEER_STATES; op++) {
		CHECK_EQ(table(g, op, rings->offset, 0, 0), NPUWIN_HW_E_FIELD);
		CHECK_EQ(table(g, op, rings->offset, 0, 5), NPUWIN_HW_E_FIELD);
		CHECK_EQ(table(g, op, rings->offset, 4, 1), NPUWIN_HW_E_FIELD);
		CHECK_EQ(table(g, op, rings->offset, 3, UINT32_MAX), NPUWIN_HW_E_FIELD);
		CHECK_EQ(table(g, op, rings->offset, UINT32_MAX, 2), NPUWIN_HW_E_FIELD);
		CHECK_EQ(table(g, op, rings->offset + 16, 0, 4), NPUWIN_HW_E_ALIGN);
		CHECK_EQ(table(g, op, g->ident.windows.offset, 0, 4), NPUWIN_HW_E_BOUNDS);
		CHECK_EQ(table(g, op, UINT64_MAX & ~63ULL, 0, 4), NPUWIN_HW_E_BOUNDS);
		CHECK_EQ(table(g, op, 0, 0, 4), NPUWIN_HW_E_BOUNDS);
		CHECK_EQ(table(g, op, rings->offset, 0, 4), NPUWIN_HW_OK);
	}
	CHECK_EQ(table(g, NPUWIN_HW_CMD_PEERS, rings->offset + rings->size - 128, 0, 4),
		 NPUWIN_HW_E_BOUNDS);
	peer.reserved0 = 1;
	CHECK_EQ(do_peers(g, 0, 0, &peer, 1), NPUWIN_HW_E_FIELD);
	peer.reserved0 = 0;
	peer.reserved1 = 1;
	CHECK_EQ(do_peers(g, 0, 0, &peer, 1), NPUWIN_HW_E_FIELD);
	peer = (struct npuwin_hw_peer) { .key = 1 };
	CHECK_EQ(do_peers(g, 0, 0, &peer, 1), NPUWIN_HW_E_FIELD);
	peer = (struct npuwin_hw_peer) { .fabric_id = 0x1234, .endpoint = UINT32_MAX };
	CHECK_EQ(do_peers(g, 0, 3, &peer, 1), NPUWIN_HW_OK);
	CHECK_EQ(do_abort(g, 0, 0, 1, false), NPUWIN_HW_OK);
	CHECK_EQ(do_peers(g, 0, 3, &peer, 1), NPUWIN_HW_E_STATE);
}

static void abort_checks(void)
{
	struct guest *g = one_guest();
	uint64_t key;

	CHECK_EQ(do_bind(g, 0, 1, 4, &key), NPUWIN_HW_OK);
	CHECK_EQ(do_abort(g, 0, 4, 5, false), NPUWIN_HW_E_FIELD);
	CHECK_EQ(do_abort(g, 0, 0, 0, false), NPUWIN_HW_E_FIELD);
	CHECK_EQ(do_abort(g, 0, 0, 4096, false), NPUWIN_HW_E_FIELD);
	CHECK_EQ(ep_state(g, 0)->state, NPUWIN_HW_EP_BOUND);
	CHECK_EQ(do_abort(g, 0, 3, 4095, false), NPUWIN_HW_OK);
	CHECK_EQ(ep_state(g, 0)->state, NPUWIN_HW_EP_ABORTED);
	CHECK_EQ(ep_state(g, 0)->abort_rank, 3);
	CHECK_EQ(ep_state(g, 0)->abort_error, 4095);
	CHECK_EQ(do_abort(g, 0, 2, 7, false), NPUWIN_HW_OK);
	CHECK_EQ(ep_state(g, 0)->abort_rank, 3);
}

static void clock_command(void)
{
	struct guest *g = one_guest();
	struct npuwin_hw_request request = { .opcode = NPUWIN_HW_CMD_CLOCK };
	struct npuwin_hw_response first, second;
	int64_t before = now_ns(), span;

	CHECK_EQ(admin(g, &request, &first), NPUWIN_HW_OK);
	CHECK_EQ(first.value[1], 0);
	request.flags = NPUWIN_HW_CLOCK_F_SET;
	request.clock.offset = (uint64_t)-5;
	CHECK_EQ(admin(g, &request, &second), NPUWIN_HW_OK);
	span = now_ns() - before;
	CHECK_EQ(second.value[1], (uint64_t)-5);
	/* Nanoseconds of the same length as ours. */
	CHECK(second.value[0] > first.value[0]);
	CHECK((int64_t)(second.value[0] - first.value[0]) <= span);
	request = (struct npuwin_hw_request) { .opcode = NPUWIN_HW_CMD_CLOCK };
	CHECK_EQ(admin(g, &request, &second), NPUWIN_HW_OK);
	CHECK_EQ(second.value[1], (uint64_t)-5);
}

static const struct test tests[] = {
	{ "admin_in_order", "requests are answered in order, each in its slot",
	  admin_in_order },
	{ "admin_wraps", "indices run freely over the ring's end", admin_wraps },
	{ "admin_unknown", "an unknown command is E_OPCODE", admin_unknown },
	{ "admin_reserved", "unknown flags and bytes that are not used are E_FIELD",
	  admin_reserved },
	{ "admin_ids", "an endpoint or queue that does not exist is E_ID", admin_ids },
	{ "bind_checks", "BIND checks every argument, and that windows do not overlap",
	  bind_checks },
	{ "bind_keys", "each bind has a new key and zeroed notify registers", bind_keys },
	{ "unbind_busy", "an endpoint that has queues is not unbound", unbind_busy },
	{ "queue_create_checks", "QUEUE_CREATE checks every argument", queue_create_checks },
	{ "peers_checks", "PEERS and PEER_STATES check every argument and the table",
	  peers_checks },
	{ "abort_checks", "ABORT checks its arguments; the first abort stands", abort_checks },
	{ "clock_command", "CLOCK tells the device's time and takes the offset",
	  clock_command },
};

const struct group group_admin = { tests, ARRAY_SIZE(tests) };
