// SPDX-License-Identifier: MIT
/*
 * Commands, queues and descriptors, as a driver would use them.
 */
#include <string.h>

#include "hw.h"

struct queue queues[MAX_GUESTS];
uint64_t keys[MAX_GUESTS];

/* ---- commands -------------------------------------------------------------------- */

uint32_t admin(struct guest *g, const struct npuwin_hw_request *request,
	       struct npuwin_hw_response *response)
{
	uint32_t slot = g->admin_tail & (g->ident.admin_depth - 1);
	struct npuwin_hw_request *requests =
		(struct npuwin_hw_request *)(g->base + g->ident.admin_requests.offset);
	struct npuwin_hw_response *responses =
		(struct npuwin_hw_response *)(g->base + g->ident.admin_responses.offset);
	struct npuwin_hw_response copy;

	requests[slot] = *request;
	requests[slot].tag = g->admin_tail * 7 + 1;
	g->admin_tail++;
	WRITE(control_of(g)->admin_tail, g->admin_tail);
	ring(g, 0);
	UNTIL(READ(status_of(g)->admin_done) == g->admin_tail);
	copy = responses[slot];
	CHECK_EQ(copy.tag, (g->admin_tail - 1) * 7 + 1);
	if (response)
		*response = copy;
	return copy.status;
}

uint32_t do_bind(struct guest *g, uint32_t endpoint, uint32_t rank, uint32_t nranks,
		 uint64_t *key)
{
	struct npuwin_hw_request request = {
		.opcode = NPUWIN_HW_CMD_BIND,
		.id = endpoint,
		.bind = {
			.offset = window_offset(g, endpoint),
			.size = WINDOW_SIZE,
			.rank = rank,
			.nranks = nranks,
		},
	};
	struct npuwin_hw_response response;
	uint32_t status = admin(g, &request, &response);

	*key = response.value[0];
	return status;
}

uint32_t do_unbind(struct guest *g, uint32_t endpoint, bool dead)
{
	struct npuwin_hw_request request = {
		.opcode = NPUWIN_HW_CMD_UNBIND,
		.flags = dead ? NPUWIN_HW_UNBIND_F_DEAD : 0,
		.id = endpoint,
	};

	return admin(g, &request, NULL);
}

uint32_t do_peers(struct guest *g, uint32_t endpoint, uint32_t first,
		  const struct npuwin_hw_peer *peers, uint32_t n)
{
	uint64_t used = g->rings_used;
	uint64_t offset = rings_alloc(g, n * sizeof(*peers));
	struct npuwin_hw_request request = {
		.opcode = NPUWIN_HW_CMD_PEERS,
		.id = endpoint,
		.table = { .offset = offset, .first = first, .count = n },
	};
	uint32_t status;

	memcpy(g->base + offset, peers, n * sizeof(*peers));
	status = admin(g, &request, NULL);
	g->rings_used = used;
	return status;
}

uint32_t do_abort(struct guest *g, uint32_t endpoint, uint32_t rank, uint32_t error, bool tell)
{
	struct npuwin_hw_request request = {
		.opcode = NPUWIN_HW_CMD_ABORT,
		.flags = tell ? NPUWIN_HW_ABORT_F_TELL : 0,
		.id = endpoint,
		.abort = { .rank = rank, .error = error },
	};

	return admin(g, &request, NULL);
}

uint32_t do_endpoint_reset(struct guest *g, uint32_t endpoint, uint64_t *key)
{
	struct npuwin_hw_request request = {
		.opcode = NPUWIN_HW_CMD_ENDPOINT_RESET,
		.id = endpoint,
	};
	struct npuwin_hw_response response;
	uint32_t status = admin(g, &request, &response);

	*key = response.value[0];
	return status;
}

uint32_t do_queue_create(struct queue *q, struct guest *g, uint32_t id, uint32_t depth)
{
	struct npuwin_hw_request request = {
		.opcode = NPUWIN_HW_CMD_QUEUE_CREATE,
		.id = id,
	};

	*q = (struct queue) {
		.g = g,
		.id = id,
		.args = {
			.sq_offset = rings_alloc(g, depth * sizeof(struct npuwin_desc)),
			.cq_offset = rings_alloc(g, depth * sizeof(struct npuwin_cqe)),
			.sq_depth = depth,
			.cq_depth = depth,
			.vector = (uint16_t)((id + 1) % g->nvectors),
			.doorbell = (uint16_t)((id + 1) % g->ndoorbells),
		},
	};
	request.queue = q->args;
	q_post(g, id)->sq_tail = 0;
	q_post(g, id)->cq_head = 0;
	return admin(g, &request, NULL);
}

uint32_t do_queue_simple(struct guest *g, uint16_t opcode, uint32_t id)
{
	struct npuwin_hw_request request = { .opcode = opcode, .id = id };

	return admin(g, &request, NULL);
}

void do_queue_reset(struct queue *q)
{
	struct npuwin_hw_request request = {
		.opcode = NPUWIN_HW_CMD_QUEUE_RESET,
		.id = q->id,
	};
	struct npuwin_hw_response response;

	CHECK_EQ(admin(q->g, &request, &response), NPUWIN_HW_OK);
	q->tail = (uint32_t)response.value[0];
	q->cq_head = (uint32_t)response.value[1];
	WRITE(q_post(q->g, q->id)->cq_head, q->cq_head);
}

uint8_t peer_state(struct guest *g, uint32_t rank)
{
	uint64_t used = g->rings_used;
	struct npuwin_hw_request request = {
		.opcode = NPUWIN_HW_CMD_PEER_STATES,
		.table = { .offset = rings_alloc(g, 1), .first = rank, .count = 1 },
	};

	g->base[request.table.offset] = 0xff;
	CHECK_EQ(admin(g, &request, NULL), NPUWIN_HW_OK);
	g->rings_used = used;
	return g->base[request.table.offset];
}

struct npuwin_hw_peer peer_of(struct guest *g, uint32_t endpoint, uint64_t key)
{
	return (struct npuwin_hw_peer) {
		.fabric_id = g->ident.fabric_id,
		.offset = window_offset(g, endpoint),
		.size = WINDOW_SIZE,
		.key = key,
		.endpoint = endpoint,
	};
}

bool next_event(struct guest *g, struct npuwin_hw_event *event)
{
	const struct npuwin_hw_event *events =
		(const struct npuwin_hw_event *)(g->base + g->ident.events.offset);

	if (READ(status_of(g)->event_tail) == g->event_head)
		return false;
	*event = events[g->event_head & (g->ident.event_depth - 1)];
	WRITE(control_of(g)->event_head, ++g->event_head);
	return true;
}

void expect_event(struct guest *g, uint32_t type, uint32_t id, uint32_t rank, uint32_t value)
{
	struct npuwin_hw_event event;

	UNTIL(next_event(g, &event));
	CHECK_EQ(event.type, type);
	CHECK_EQ(event.id, id);
	CHECK_EQ(event.rank, rank);
	CHECK_EQ(event.value, value);
}

void settle(struct guest *g)
{
	/* The second request is taken after all that was rung for before the first. */
	for (int i = 0; i < 2; i++)
		CHECK_EQ(do_queue_simple(g, NPUWIN_HW_CMD_NOP, 0), NPUWIN_HW_OK);
}

void until_beats(struct guest *g, uint64_t n)
{
	uint64_t from = READ(status_of(g)->heartbeat);

	UNTIL(READ(status_of(g)->heartbeat) >= from + n);
}

/* ---- ranks ----------------------------------------------------------------------- */

void ranks_bind(uint32_t n)
{
	struct npuwin_hw_peer peers[MAX_GUESTS];

	for (uint32_t i = 0; i < n; i++) {
		CHECK_EQ(do_bind(&guests[i], 0, i, n, &keys[i]), NPUWIN_HW_OK);
		peers[i] = peer_of(&guests[i], 0, keys[i]);
	}
	for (uint32_t i = 0; i < n; i++)
		CHECK_EQ(do_peers(&guests[i], 0, 0, peers, n), NPUWIN_HW_OK);
}

void ranks_start(uint32_t n, const char *const *options)
{
	const char *all[20] = { "--memory", "16M", "--devices" };
	char devices[16];
	size_t count = 3;

	snprintf(devices, sizeof(devices), "%u", n);
	all[count++] = devices;
	for (; options && *options; options++) {
		CHECK(count < ARRAY_SIZE(all) - 1);
		all[count++] = *options;
	}
	emu_start(all);
	for (uint32_t i = 0; i < n; i++) {
		guest_connect(&guests[i], i);
		guest_ready(&guests[i]);
	}
	ranks_bind(n);
	for (uint32_t i = 0; i < n; i++)
		CHECK_EQ(do_queue_create(&queues[i], &guests[i], 0, 256), NPUWIN_HW_OK);
}

void two_ranks(void)
{
	ranks_start(2, NULL);
}

/* ---- descriptors ----------------------------------------------------------------- */

struct npuwin_desc d_nop(void)
{
	return (struct npuwin_desc) { .opcode = NPUWIN_OP_NOP };
}

struct npuwin_desc d_put(uint32_t rank, uint64_t src, uint64_t dst, uint64_t bytes)
{
	return (struct npuwin_desc) {
		.opcode = NPUWIN_OP_TPUT, .rank = rank, .src_off = src, .dst_off = dst,
		.rows = 1, .row_bytes = bytes,
	};
}

struct npuwin_desc d_notify(uint32_t rank, uint64_t dst, uint8_t sub, int32_t value)
{
	return (struct npuwin_desc) {
		.opcode = NPUWIN_OP_TNOTIFY, .sub = sub, .rank = rank, .dst_off = dst,
		.value = value,
	};
}

struct npuwin_desc d_wait(uint64_t src, uint8_t cmp, int32_t value, int64_t deadline)
{
	return (struct npuwin_desc) {
		.opcode = NPUWIN_OP_TWAIT, .sub = cmp, .src_off = src, .rows = 1, .value = value,
		.deadline_ns = deadline,
	};
}

struct npuwin_desc d_wait_by_rank(uint32_t nranks)
{
	struct npuwin_desc desc = d_wait(0, NPUWIN_CMP_EQ, 1, NEVER);

	desc.rows = nranks;
	desc.src_stride = 4;
	desc.flags = NPUWIN_DESC_F_CQE | NPUWIN_TWAIT_F_BY_RANK;
	return desc;
}

void put_slot(struct queue *q, const struct npuwin_desc *desc, uint8_t ring_byte)
{
	struct npuwin_desc *slot = (struct npuwin_desc *)(q->g->base + q->args.sq_offset) +
				   (q->tail & (q->args.sq_depth - 1));

	*slot = *desc;
	slot->reserved0 = ring_byte;
	q->tail++;
}

void publish(struct queue *q)
{
	WRITE(q_post(q->g, q->id)->sq_tail, q->tail);
}

void post(struct queue *q, const struct npuwin_desc *descs, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		put_slot(q, &descs[i], i == n - 1 ? NPUWIN_HW_SQE_END : 0);
	publish(q);
	ring(q->g, q->args.doorbell);
}

void post_one(struct queue *q, struct npuwin_desc desc)
{
	post(q, &desc, 1);
}

bool cq_empty(struct queue *q)
{
	return READ(q_state(q->g, q->id)->cq_tail) == q->cq_head;
}

void next_cqe(struct queue *q, struct npuwin_cqe *cqe)
{
	UNTIL(!cq_empty(q));
	*cqe = ((struct npuwin_cqe *)(q->g->base + q->args.cq_offset))
		[q->cq_head & (q->args.cq_depth - 1)];
	WRITE(q_post(q->g, q->id)->cq_head, ++q->cq_head);
}

void expect_cqe(struct queue *q, uint64_t user_data, uint32_t status)
{
	struct npuwin_cqe cqe;

	next_cqe(q, &cqe);
	CHECK_EQ(cqe.user_data, user_data);
	CHECK_EQ(cqe.status, status);
}

void until_through(struct queue *q)
{
	UNTIL(READ(q_state(q->g, q->id)->sq_head) == q->tail);
}

uint32_t run_one(struct queue *q, struct npuwin_desc desc, struct npuwin_cqe *cqe)
{
	struct npuwin_cqe own;

	desc.flags |= NPUWIN_DESC_F_CQE;
	desc.user_data = 0x1122334455667788ULL + q->tail;
	post_one(q, desc);
	next_cqe(q, &own);
	CHECK_EQ(own.user_data, desc.user_data);
	if (cqe)
		*cqe = own;
	return own.status;
}
