// SPDX-License-Identifier: MIT
/*
 * Queues: taking descriptors, having them executed, posting completions.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "emu.h"

/* What a step may cost, see npuwin_engine_step(), before anything else is looked at. */
#define STEP_BYTES	(256u << 10)
/* Descriptors of a queue that are executed before the other queues have their turn. */
#define SLICE		64
/* What a descriptor costs at least, and each of its rows or cells. */
#define DESC_BYTES	1024
#define ROW_BYTES	64

#define EXIT_DIED	3

static u32 queue_id(const struct queue *queue)
{
	return (u32)(queue - queue->dev->queues);
}

/* ---- commands -------------------------------------------------------------------- */

/**
 * queue_find() - Find a queue.
 * @dev: the device
 * @id: its number
 *
 * Return: the queue, or NULL where there is none.
 */
struct queue *queue_find(struct device *dev, u32 id)
{
	if (id >= dev->ident.max_queues || dev->queues[id].state == NPUWIN_HW_Q_NONE)
		return NULL;
	return &dev->queues[id];
}

static void queue_publish(struct queue *queue)
{
	struct npuwin_hw_queue_state *words = queue_words(queue->dev, queue_id(queue));

	words->fault = queue->fault;
	store_release(&words->cq_tail, queue->cq_tail);
	store_release(&words->sq_head, queue->sq_head);
	store_release(&words->state, queue->state);
}

static bool depth_valid(const struct device *dev, u32 depth)
{
	return depth && !(depth & (depth - 1)) && depth <= dev->ident.max_depth;
}

/**
 * queue_create() - NPUWIN_HW_CMD_QUEUE_CREATE.
 * @dev: the device
 * @id: number of the queue
 * @args: copy of the arguments
 *
 * Return: NPUWIN_HW_OK or NPUWIN_HW_E_*.
 */
u32 queue_create(struct device *dev, u32 id, const struct npuwin_hw_queue_create *args)
{
	struct endpoint *ep = endpoint_find(dev, args->endpoint);
	struct queue *queue;

	if (id >= dev->ident.max_queues || !ep)
		return NPUWIN_HW_E_ID;
	queue = &dev->queues[id];
	if (queue->state != NPUWIN_HW_Q_NONE)
		return NPUWIN_HW_E_BUSY;
	if (!depth_valid(dev, args->sq_depth) || !depth_valid(dev, args->cq_depth) ||
	    args->vector >= dev->ident.vectors || args->doorbell >= dev->ident.doorbells)
		return NPUWIN_HW_E_FIELD;
	if ((args->sq_offset | args->cq_offset) & (NPUWIN_HW_RING_ALIGN - 1))
		return NPUWIN_HW_E_ALIGN;
	if (!memory_within(&dev->ident.rings, args->sq_offset,
			   args->sq_depth * sizeof(struct npuwin_desc)) ||
	    !memory_within(&dev->ident.rings, args->cq_offset,
			   args->cq_depth * sizeof(struct npuwin_cqe)))
		return NPUWIN_HW_E_BOUNDS;

	*queue = (struct queue) {
		.dev = dev,
		.state = NPUWIN_HW_Q_RUNNING,
		.args = *args,
		.engine = {
			.ops = &endpoint_engine_ops,
			.priv = queue,
			.rank = ep->rank,
			.nranks = ep->nranks,
		},
	};
	ep->queues++;
	queue_publish(queue);
	return NPUWIN_HW_OK;
}

static struct endpoint *queue_endpoint(const struct queue *queue)
{
	return &queue->dev->endpoints[queue->args.endpoint];
}

static void queue_unblock(struct queue *queue)
{
	if (!queue->blocked)
		return;
	queue->blocked = false;
	__atomic_fetch_sub(&queue_endpoint(queue)->parked, 1, __ATOMIC_SEQ_CST);
}

/**
 * queue_destroy() - NPUWIN_HW_CMD_QUEUE_DESTROY.
 * @dev: the device
 * @queue: the queue
 */
void queue_destroy(struct device *dev, struct queue *queue)
{
	struct npuwin_hw_queue_state *words = queue_words(dev, queue_id(queue));

	queue_unblock(queue);
	queue_endpoint(queue)->queues--;
	queue->state = NPUWIN_HW_Q_NONE;
	memset(words, 0, sizeof(*words));
}

/**
 * queue_reset() - NPUWIN_HW_CMD_QUEUE_RESET.
 * @dev: the device
 * @queue: the queue
 */
void queue_reset(struct device *dev, struct queue *queue)
{
	u32 tail = load_acquire(&queue_posts(dev, queue_id(queue))->sq_tail);

	queue_unblock(queue);
	queue->active = false;
	queue->skip = false;
	queue->unsignalled = false;
	queue->seq += (u32)(tail - queue->sq_head);
	queue->sq_head = tail;
	queue->state = NPUWIN_HW_Q_RUNNING;
	queue->fault = NPUWIN_HW_Q_FAULT_NONE;
	queue_publish(queue);
}

/**
 * queue_look() - See that the queues of an endpoint look at what they wait for.
 * @dev: the device
 * @endpoint: its number
 */
void queue_look(struct device *dev, u32 endpoint)
{
	for (u32 id = 0; id < dev->ident.max_queues; id++) {
		if (dev->queues[id].args.endpoint == endpoint)
			dev->queues[id].look = true;
	}
}

/* ---- completing ------------------------------------------------------------------ */

static void queue_fault(struct queue *queue, u32 fault)
{
	queue_unblock(queue);
	queue->active = false;
	queue->state = NPUWIN_HW_Q_FAULT;
	queue->fault = fault;
	queue_publish(queue);
	device_event(queue->dev, NPUWIN_HW_EV_QUEUE, queue_id(queue), NPUWIN_NO_RANK, fault);
	emu_log(queue->dev, "queue %u: fault %u", queue_id(queue), fault);
}

static void corrupt(struct device *dev, struct npuwin_cqe *cqe)
{
	u64 garbage[sizeof(*cqe) / sizeof(u64)];

	for (size_t i = 0; i < ARRAY_SIZE(garbage); i++)
		garbage[i] = fault_random(dev);
	memcpy(cqe, garbage, sizeof(*cqe));
}

/* Return: false where there was no room and the queue has faulted. */
static bool queue_post(struct queue *queue, const struct npuwin_cqe *cqe)
{
	struct device *dev = queue->dev;
	u32 id = queue_id(queue);
	u32 depth = queue->args.cq_depth;
	u32 used = queue->cq_tail - load_acquire(&queue_posts(dev, id)->cq_head);
	struct npuwin_cqe *slot;

	if (used >= depth) {
		queue_fault(queue, NPUWIN_HW_Q_FAULT_CQ);
		return false;
	}
	slot = (struct npuwin_cqe *)(dev->base + queue->args.cq_offset) +
	       (queue->cq_tail & (depth - 1));
	*slot = *cqe;
	if (fault_hit(dev, FAULT_CORRUPT))
		corrupt(dev, slot);
	store_release(&queue_words(dev, id)->cq_tail, ++queue->cq_tail);
	count(&dev->counters.completions, 1);
	queue->unsignalled = true;
	return true;
}

static void queue_signal(struct queue *queue)
{
	queue->unsignalled = false;
	device_signal(queue->dev, queue->args.vector);
}

/* The descriptor at sq_head is through. */
static void queue_advance(struct queue *queue)
{
	queue->active = false;
	queue->seq++;
	store_release(&queue_words(queue->dev, queue_id(queue))->sq_head, ++queue->sq_head);
	count(&queue->dev->counters.descriptors, 1);
	count(&queue->dev->counters.steps, 1);
	if (!(queue->ring & NPUWIN_HW_SQE_END))
		return;
	queue->skip = false;
	if (queue->unsignalled || queue->ring & NPUWIN_HW_SQE_IRQ)
		queue_signal(queue);
}

static void queue_finish(struct queue *queue)
{
	struct npuwin_cqe *cqe = &queue->cqe;
	struct device *dev = queue->dev;

	queue_unblock(queue);
	cqe->seq = queue->seq;
	if ((cqe->status || queue->desc.flags & NPUWIN_DESC_F_CQE) && !queue_post(queue, cqe))
		return;
	if (cqe->status) {
		queue->skip = true;
		if (cqe->status != NPUWIN_ST_MISMATCH) {
			queue->state = NPUWIN_HW_Q_STOPPED;
			store_release(&queue_words(dev, queue_id(queue))->state, queue->state);
			count(&dev->counters.errors, 1);
		}
	} else if (queue->desc.opcode == NPUWIN_OP_TPUT) {
		count(&dev->counters.bytes, queue->desc.rows * queue->desc.row_bytes);
	}
	queue_advance(queue);
}

/* The descriptor belongs to a batch that is not executed any more. */
static void queue_skip(struct queue *queue)
{
	struct npuwin_cqe cqe = {
		.user_data = queue->desc.user_data,
		.seq = queue->seq,
		.status = NPUWIN_ST_CANCELLED,
		.rank = NPUWIN_NO_RANK,
	};

	if (!queue->skip && queue->ring & NPUWIN_HW_SQE_END && !queue_post(queue, &cqe))
		return;
	queue_advance(queue);
}

/* ---- executing ------------------------------------------------------------------- */

/* Return: whether there is a descriptor; it is copied then. */
static bool queue_fetch(struct queue *queue)
{
	struct device *dev = queue->dev;
	u32 tail = load_acquire(&queue_posts(dev, queue_id(queue))->sq_tail);
	u32 depth = queue->args.sq_depth;
	const struct npuwin_desc *slot;

	if (tail - queue->sq_head > depth) {
		queue_fault(queue, NPUWIN_HW_Q_FAULT_SQ);
		return false;
	}
	if (tail == queue->sq_head)
		return false;
	slot = (const struct npuwin_desc *)(dev->base + queue->args.sq_offset) +
	       (queue->sq_head & (depth - 1));
	copy_in(&queue->desc, slot, sizeof(queue->desc));
	queue->ring = queue->desc.reserved0 & NPUWIN_HW_SQE_END;
	if (queue->ring)
		queue->ring |= queue->desc.reserved0 & NPUWIN_HW_SQE_IRQ;
	queue->desc.reserved0 &= (u8)~queue->ring;
	queue->cursor = (struct npuwin_cursor) { 0 };
	queue->deadline = NEVER;
	queue->active = true;
	return true;
}

static u64 device_deadline(const struct device *dev, s64 deadline)
{
	s64 sum;

	if (deadline == NPUWIN_NO_DEADLINE)
		return NEVER;
	if (__builtin_add_overflow(deadline, (s64)dev->clock_offset, &sum))
		return (s64)dev->clock_offset < 0 ? 0 : NEVER;
	return sum < 0 ? 0 : (u64)sum;
}

/* Occasions for what happens before a descriptor. Return: false where it must not go on. */
static bool queue_tempt(struct queue *queue)
{
	struct device *dev = queue->dev;
	const struct fault_rule *rule;

	if (fault_hit(dev, FAULT_DIE))
		_exit(EXIT_DIED);
	if (fault_hit(dev, FAULT_DEVICE)) {
		device_fail(dev, NPUWIN_HW_FAULT_DEVICE);
		return false;
	}
	rule = fault_hit(dev, FAULT_FAIL);
	if (rule) {
		queue->cqe = (struct npuwin_cqe) {
			.user_data = queue->desc.user_data,
			.status = rule->status,
			.rank = NPUWIN_NO_RANK,
		};
		queue_finish(queue);
		return false;
	}
	rule = fault_hit(dev, FAULT_STALL);
	if (rule) {
		dev->stalled_until = rule->ms ? device_clock(dev) + rule->ms * NSEC_PER_MSEC :
						NEVER;
		return false;
	}
	return true;
}

static enum npuwin_exec queue_step(struct queue *queue)
{
	struct endpoint *ep = queue_endpoint(queue);
	bool wait = queue->desc.opcode == NPUWIN_OP_TWAIT;
	enum npuwin_exec exec;
	u32 status, rank;

	endpoint_attend(queue->dev, ep);
	status = endpoint_verdict(ep, NPUWIN_NO_RANK, &rank);
	if (!status || wait) {
		exec = npuwin_engine_step(&queue->engine, &queue->desc, &queue->cursor,
					  STEP_BYTES, &queue->cqe);
		endpoint_let_go(queue->dev);
		/* A peer that was reset for an abort looks as if it were gone. */
		if (exec == NPUWIN_EXEC_DONE && queue->cqe.status == NPUWIN_ST_PEER) {
			endpoint_attend(queue->dev, ep);
			status = endpoint_verdict(ep, NPUWIN_NO_RANK, &rank);
		}
		/* What is there is there, even when all else is lost. */
		if (!status || exec == NPUWIN_EXEC_AGAIN ||
		    (exec == NPUWIN_EXEC_DONE && !queue->cqe.status))
			return exec;
	}
	queue->cqe = (struct npuwin_cqe) {
		.user_data = queue->desc.user_data,
		.status = status,
		.rank = rank,
	};
	return NPUWIN_EXEC_DONE;
}

/*
 * A TWAIT is blocked: whether it is over all the same. @late: its deadline had passed
 * before that look, which is the one that it gives.
 */
static bool queue_give_up(struct queue *queue, bool late)
{
	u32 writer = queue->desc.flags & NPUWIN_TWAIT_F_BY_RANK ? queue->cqe.cell :
								  NPUWIN_NO_RANK;
	u32 rank;

	queue->cqe.status = endpoint_verdict(queue_endpoint(queue), writer, &rank);
	if (queue->cqe.status)
		queue->cqe.rank = rank;
	else if (late)
		queue->cqe.status = NPUWIN_ST_TIMEOUT;
	return queue->cqe.status;
}

/* Return: whether the TWAIT is to be looked at again at once. */
static bool queue_block(struct queue *queue, bool late)
{
	if (queue->blocked) {
		if (!queue_give_up(queue, late))
			return false;
		queue_finish(queue);
		return true;
	}
	/* Whoever notifies from here on sees that somebody waits; who did before was seen. */
	queue->blocked = true;
	queue->deadline = device_deadline(queue->dev, queue->desc.deadline_ns);
	__atomic_fetch_add(&queue_endpoint(queue)->parked, 1, __ATOMIC_SEQ_CST);
	return true;
}

static bool queue_late(const struct queue *queue)
{
	return queue->blocked && device_clock(queue->dev) >= queue->deadline;
}

/* What the descriptor has cost, about. */
static u64 queue_cost(const struct queue *queue)
{
	const struct npuwin_desc *desc = &queue->desc;

	return DESC_BYTES +
	       desc->rows * (desc->row_bytes > ROW_BYTES ? desc->row_bytes : ROW_BYTES);
}

static bool queue_running(const struct queue *queue)
{
	return queue->state == NPUWIN_HW_Q_RUNNING || queue->state == NPUWIN_HW_Q_STOPPED;
}

/**
 * queue_run() - Execute a bounded piece of what is in a queue.
 * @dev: the device, ready
 * @queue: the queue, which need not exist
 *
 * Return: whether there is more to do at once.
 */
bool queue_run(struct device *dev, struct queue *queue)
{
	u64 before = dev->cost;

	if (!queue->look && !queue_late(queue))
		return false;

	for (u32 n = 0; n < SLICE && dev->cost - before < STEP_BYTES; n++) {
		bool late;

		if (!queue_running(queue))
			return false;
		if (!queue->active) {
			if (!queue_fetch(queue))
				goto idle;
			if (queue->skip || queue->state == NPUWIN_HW_Q_STOPPED) {
				queue_skip(queue);
				continue;
			}
			if (!queue_tempt(queue)) {
				if (dev->state != NPUWIN_HW_READY)
					return false;
				if (queue->active)
					return true;
				continue;
			}
		}
		late = queue_late(queue);
		switch (queue_step(queue)) {
		case NPUWIN_EXEC_DONE:
			dev->cost += queue_cost(queue);
			queue_finish(queue);
			break;
		case NPUWIN_EXEC_BLOCKED:
			if (queue_block(queue, late))
				break;
			goto idle;
		case NPUWIN_EXEC_AGAIN:
			count(&dev->counters.steps, 1);
			dev->cost += STEP_BYTES;
			return true;
		}
	}
	return queue_running(queue);

idle:
	queue->look = false;
	if (queue->unsignalled && queue_running(queue))
		queue_signal(queue);
	return false;
}
