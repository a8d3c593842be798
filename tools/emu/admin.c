// SPDX-License-Identifier: MIT
/*
 * The admin ring.
 */
#include <stddef.h>

#include "emu.h"

/**
 * struct command - What a request must look like, and who serves it.
 * @flags: flags that it knows
 * @bytes: bytes of its arguments; what is behind them is zero
 * @has_id: it is about an endpoint or a queue
 * @run: serve it; returns NPUWIN_HW_OK or NPUWIN_HW_E_*
 */
struct command {
	__u16 flags;
	u8 bytes;
	bool has_id;
	u32 (*run)(struct device *dev, const struct npuwin_hw_request *request, __u64 *value);
};

static u32 cmd_nop(struct device *dev, const struct npuwin_hw_request *request, __u64 *value)
{
	return NPUWIN_HW_OK;
}

static u32 cmd_clock(struct device *dev, const struct npuwin_hw_request *request, __u64 *value)
{
	if (request->flags & NPUWIN_HW_CLOCK_F_SET)
		dev->clock_offset = request->clock.offset;
	else if (request->clock.offset)
		return NPUWIN_HW_E_FIELD;
	value[0] = device_clock(dev);
	value[1] = dev->clock_offset;
	return NPUWIN_HW_OK;
}

static u32 cmd_bind(struct device *dev, const struct npuwin_hw_request *request, __u64 *value)
{
	return endpoint_bind(dev, request->id, &request->bind, value);
}

static u32 cmd_unbind(struct device *dev, const struct npuwin_hw_request *request, __u64 *value)
{
	struct endpoint *ep = endpoint_find(dev, request->id);

	if (!ep)
		return NPUWIN_HW_E_ID;
	return endpoint_unbind(dev, ep, request->flags & NPUWIN_HW_UNBIND_F_DEAD ?
			       NPUWIN_RANK_DEAD : NPUWIN_RANK_LEFT);
}

static u32 cmd_peers(struct device *dev, const struct npuwin_hw_request *request, __u64 *value)
{
	struct endpoint *ep = endpoint_find(dev, request->id);

	return ep ? endpoint_peers(dev, ep, &request->table) : NPUWIN_HW_E_ID;
}

static u32 cmd_peer_states(struct device *dev, const struct npuwin_hw_request *request,
			   __u64 *value)
{
	struct endpoint *ep = endpoint_find(dev, request->id);

	return ep ? endpoint_peer_states(dev, ep, &request->table) : NPUWIN_HW_E_ID;
}

static u32 cmd_abort(struct device *dev, const struct npuwin_hw_request *request, __u64 *value)
{
	struct endpoint *ep = endpoint_find(dev, request->id);

	if (!ep)
		return NPUWIN_HW_E_ID;
	return endpoint_abort(dev, ep, &request->abort,
			      request->flags & NPUWIN_HW_ABORT_F_TELL);
}

static u32 cmd_endpoint_reset(struct device *dev, const struct npuwin_hw_request *request,
			      __u64 *value)
{
	struct endpoint *ep = endpoint_find(dev, request->id);

	return ep ? endpoint_reset(dev, ep, value) : NPUWIN_HW_E_ID;
}

static u32 cmd_queue_create(struct device *dev, const struct npuwin_hw_request *request,
			    __u64 *value)
{
	return queue_create(dev, request->id, &request->queue);
}

static u32 cmd_queue_destroy(struct device *dev, const struct npuwin_hw_request *request,
			     __u64 *value)
{
	struct queue *queue = queue_find(dev, request->id);

	if (!queue)
		return NPUWIN_HW_E_ID;
	queue_destroy(dev, queue);
	return NPUWIN_HW_OK;
}

static u32 cmd_queue_reset(struct device *dev, const struct npuwin_hw_request *request,
			   __u64 *value)
{
	struct queue *queue = queue_find(dev, request->id);

	if (!queue)
		return NPUWIN_HW_E_ID;
	queue_reset(dev, queue);
	value[0] = queue->sq_head;
	value[1] = queue->cq_tail;
	return NPUWIN_HW_OK;
}

/* Of an argument's structure, what is not reserved. */
#define BYTES(args)	offsetof(struct npuwin_hw_##args, reserved)

static const struct command commands[] = {
	[NPUWIN_HW_CMD_NOP] = { 0, 0, false, cmd_nop },
	[NPUWIN_HW_CMD_CLOCK] = { NPUWIN_HW_CLOCK_F_SET, BYTES(clock), false, cmd_clock },
	[NPUWIN_HW_CMD_BIND] = { 0, BYTES(bind), true, cmd_bind },
	[NPUWIN_HW_CMD_UNBIND] = { NPUWIN_HW_UNBIND_F_DEAD, 0, true, cmd_unbind },
	[NPUWIN_HW_CMD_PEERS] = { 0, BYTES(table), true, cmd_peers },
	[NPUWIN_HW_CMD_PEER_STATES] = { 0, BYTES(table), true, cmd_peer_states },
	[NPUWIN_HW_CMD_ABORT] = { NPUWIN_HW_ABORT_F_TELL, BYTES(abort), true, cmd_abort },
	[NPUWIN_HW_CMD_ENDPOINT_RESET] = { 0, 0, true, cmd_endpoint_reset },
	[NPUWIN_HW_CMD_QUEUE_CREATE] = { 0, BYTES(queue_create), true, cmd_queue_create },
	[NPUWIN_HW_CMD_QUEUE_DESTROY] = { 0, 0, true, cmd_queue_destroy },
	[NPUWIN_HW_CMD_QUEUE_RESET] = { 0, 0, true, cmd_queue_reset },
};

static u32 admin_serve(struct device *dev, const struct npuwin_hw_request *request, __u64 *value)
{
	const struct command *command;

	if (request->opcode >= ARRAY_SIZE(commands))
		return NPUWIN_HW_E_OPCODE;
	command = &commands[request->opcode];
	if (request->flags & ~command->flags || request->reserved ||
	    (request->id && !command->has_id))
		return NPUWIN_HW_E_FIELD;
	for (size_t i = command->bytes; i < sizeof(request->raw); i++) {
		if (request->raw[i])
			return NPUWIN_HW_E_FIELD;
	}
	return command->run(dev, request, value);
}

/**
 * admin_run() - Answer what has been asked.
 * @dev: the device, ready
 */
void admin_run(struct device *dev)
{
	const u32 mask = dev->ident.admin_depth - 1;
	const struct npuwin_hw_request *requests =
		(const void *)(dev->base + dev->ident.admin_requests.offset);
	struct npuwin_hw_response *responses =
		(void *)(dev->base + dev->ident.admin_responses.offset);
	u32 tail = load_acquire(&device_control(dev)->admin_tail);

	if (tail - dev->admin_done > dev->ident.admin_depth) {
		device_fail(dev, NPUWIN_HW_FAULT_ADMIN);
		return;
	}
	while (dev->admin_done != tail) {
		struct npuwin_hw_response response = { 0 };
		struct npuwin_hw_request request;

		copy_in(&request, &requests[dev->admin_done & mask], sizeof(request));
		response.tag = request.tag;
		response.status = admin_serve(dev, &request, response.value);
		if (response.status)
			emu_log(dev, "request %u, opcode %u, id %u: error %u", dev->admin_done,
				request.opcode, request.id, response.status);
		responses[dev->admin_done & mask] = response;
		count(&dev->counters.requests, 1);
		store_release(&device_status(dev)->admin_done, ++dev->admin_done);
		device_signal(dev, 0);
	}
}
