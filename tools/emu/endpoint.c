// SPDX-License-Identifier: MIT
/*
 * Endpoints: whose window may be written by whom, and what ranks tell each other.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "emu.h"

/* ---- the fabric ------------------------------------------------------------------ */

static struct device *fabric_find(const struct emu *emu, u64 fabric_id)
{
	u64 index = (fabric_id ^ emu->fabric) - 1;

	return index < emu->config.devices ? &emu->devices[index] : NULL;
}

/*
 * Look at another device, which lets nothing of its endpoints change until
 * endpoint_let_go(). Its own thread looks without.
 */
static struct device *fabric_reach(struct device *dev, u64 fabric_id)
{
	struct device *target = fabric_find(dev->emu, fabric_id);

	if (target && target != dev) {
		pthread_rwlock_rdlock(&target->lock);
		dev->reading = target;
	}
	return target;
}

/**
 * endpoint_let_go() - The step is over: what it looked at may change again.
 * @dev: whose engine made the step
 */
void endpoint_let_go(struct device *dev)
{
	if (!dev->reading)
		return;
	pthread_rwlock_unlock(&dev->reading->lock);
	dev->reading = NULL;
}

/* What a device says to somebody who shows it @peer: the endpoint, or NULL. */
static struct endpoint *fabric_check(struct device *target, const struct npuwin_hw_peer *peer)
{
	struct endpoint *ep;

	if (peer->endpoint >= target->ident.max_endpoints)
		return NULL;
	ep = &target->endpoints[peer->endpoint];
	if (ep->state == NPUWIN_HW_EP_FREE || ep->key != peer->key ||
	    ep->offset != peer->offset || ep->size != peer->size)
		return NULL;
	return ep;
}

/* ---- what the engine asks for ---------------------------------------------------- */

static u32 engine_resolve(void *priv, u32 rank, enum npuwin_space space,
			  struct npuwin_span *span)
{
	struct queue *queue = priv;
	struct device *target = queue->dev;
	struct endpoint *ep = &target->endpoints[queue->args.endpoint];

	if (rank != ep->rank) {
		const struct npuwin_hw_peer *peer = &ep->peers[rank];

		if (!peer->fabric_id || ep->seen[rank])
			return NPUWIN_ST_PEER;
		target = fabric_reach(target, peer->fabric_id);
		ep = target ? fabric_check(target, peer) : NULL;
		if (!ep)
			return NPUWIN_ST_PEER;
	}
	if (space == NPUWIN_SPACE_REG) {
		span->base = endpoint_regs(target, endpoint_id(target, ep));
		span->size = 4 * NPUWIN_NOTIFY_REGS;
	} else {
		span->base = target->base + ep->offset;
		span->size = ep->size;
	}
	return NPUWIN_ST_OK;
}

/* Between engine_resolve() of the same rank and endpoint_let_go(). */
static void engine_notified(void *priv, u32 rank)
{
	struct queue *queue = priv;
	struct device *target = queue->dev;
	struct endpoint *ep = &target->endpoints[queue->args.endpoint];
	u32 arm;

	if (rank != ep->rank) {
		u32 id = ep->peers[rank].endpoint;

		if (target->reading)
			target = target->reading;
		ep = &target->endpoints[id];
	}
	/* The cell has been written, in one order with this: who parks or arms looks at it. */
	arm = __atomic_load_n(endpoint_arm(target, endpoint_id(target, ep)), __ATOMIC_SEQ_CST);
	if (!__atomic_load_n(&ep->parked, __ATOMIC_SEQ_CST) &&
	    arm == __atomic_load_n(&ep->answered, __ATOMIC_RELAXED))
		return;
	__atomic_fetch_or(&ep->pending, PENDING_NOTIFIED, __ATOMIC_SEQ_CST);
	device_kick(target);
}

const struct npuwin_engine_ops endpoint_engine_ops = {
	.resolve = engine_resolve,
	.notified = engine_notified,
};

/* ---- telling --------------------------------------------------------------------- */

static void tell_one(struct device *dev, const struct npuwin_hw_peer *peer, u32 pending,
		     u32 rank, u32 value)
{
	struct device *target = fabric_reach(dev, peer->fabric_id);
	struct endpoint *ep = target ? fabric_check(target, peer) : NULL;
	u64 nothing = 0;

	if (ep && rank < ep->nranks && rank != ep->rank) {
		if (pending == PENDING_ABORT)
			__atomic_compare_exchange_n(&ep->told_abort, &nothing,
						    (u64)rank << 32 | value, false,
						    __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
		else
			__atomic_store_n(&ep->gone[rank], (u8)value, __ATOMIC_SEQ_CST);
		__atomic_fetch_or(&ep->pending, pending, __ATOMIC_SEQ_CST);
	} else {
		ep = NULL;
	}
	endpoint_let_go(dev);
	if (ep)
		device_kick(target);
}

static void tell_all(struct device *dev, const struct npuwin_hw_peer *peers, u32 nranks,
		     u32 pending, u32 rank, u32 value)
{
	for (u32 r = 0; r < nranks; r++) {
		if (peers[r].fabric_id)
			tell_one(dev, &peers[r], pending, rank, value);
	}
}

static void endpoint_set_state(struct device *dev, struct endpoint *ep, u32 state, u32 rank,
			       u32 error)
{
	struct npuwin_hw_endpoint_state *words = endpoint_words(dev, endpoint_id(dev, ep));

	pthread_rwlock_wrlock(&dev->lock);
	ep->state = state;
	pthread_rwlock_unlock(&dev->lock);
	ep->abort_rank = rank;
	ep->abort_error = error;
	words->generation = ep->generation;
	words->abort_rank = rank;
	words->abort_error = error;
	store_release(&words->state, state);
}

static void attend_gone(struct device *dev, struct endpoint *ep)
{
	for (u32 rank = 0; rank < ep->nranks; rank++) {
		u8 how = __atomic_load_n(&ep->gone[rank], __ATOMIC_SEQ_CST);

		if (how == ep->seen[rank])
			continue;
		ep->seen[rank] = how;
		if (how == NPUWIN_RANK_DEAD && ep->state == NPUWIN_HW_EP_BOUND)
			endpoint_set_state(dev, ep, NPUWIN_HW_EP_LOST, rank, EPIPE);
		device_event(dev, NPUWIN_HW_EV_PEER, endpoint_id(dev, ep), rank, how);
	}
}

static void attend_abort(struct device *dev, struct endpoint *ep)
{
	u64 told = __atomic_load_n(&ep->told_abort, __ATOMIC_SEQ_CST);
	u32 rank = told >> 32, error = (u32)told;

	if (ep->state != NPUWIN_HW_EP_BOUND)
		return;
	endpoint_set_state(dev, ep, NPUWIN_HW_EP_ABORTED, rank, error);
	device_event(dev, NPUWIN_HW_EV_ABORTED, endpoint_id(dev, ep), rank, error);
}

static void attend_notified(struct device *dev, struct endpoint *ep)
{
	u32 id = endpoint_id(dev, ep);
	u32 arm = __atomic_load_n(endpoint_arm(dev, id), __ATOMIC_SEQ_CST);

	if (arm == ep->answered)
		return;
	__atomic_store_n(&ep->answered, arm, __ATOMIC_RELAXED);
	device_event(dev, NPUWIN_HW_EV_NOTIFIED, id, NPUWIN_NO_RANK, arm);
}

/**
 * endpoint_attend() - See what others want of an endpoint.
 * @dev: its device
 * @ep: the endpoint, bound
 */
void endpoint_attend(struct device *dev, struct endpoint *ep)
{
	u32 pending;

	if (!__atomic_load_n(&ep->pending, __ATOMIC_SEQ_CST))
		return;
	pending = __atomic_exchange_n(&ep->pending, 0, __ATOMIC_SEQ_CST);
	if (pending & PENDING_ABORT)
		attend_abort(dev, ep);
	if (pending & PENDING_GONE)
		attend_gone(dev, ep);
	if (pending & PENDING_NOTIFIED)
		attend_notified(dev, ep);
	queue_look(dev, endpoint_id(dev, ep));
}

/**
 * endpoint_verdict() - Why nothing more can be done for an endpoint.
 * @ep: the endpoint
 * @writer: rank that is needed, or NPUWIN_NO_RANK
 * @rank: out: who is to blame
 *
 * Return: NPUWIN_ST_OK, or what descriptors fail with.
 */
u32 endpoint_verdict(const struct endpoint *ep, u32 writer, u32 *rank)
{
	*rank = ep->abort_rank;
	if (ep->state == NPUWIN_HW_EP_ABORTED)
		return NPUWIN_ST_ABORTED;
	if (ep->state == NPUWIN_HW_EP_LOST)
		return NPUWIN_ST_PEER;
	*rank = writer;
	if (writer < ep->nranks && ep->seen[writer])
		return NPUWIN_ST_PEER;
	return NPUWIN_ST_OK;
}

/* ---- commands -------------------------------------------------------------------- */

static u64 new_key(void)
{
	u64 key = 0;

	while (!key) {
		if (getrandom(&key, sizeof(key), 0) != sizeof(key))
			abort();
	}
	return key;
}

/* What a bind and a reset have in common. */
static void endpoint_open(struct device *dev, struct endpoint *ep)
{
	u32 id = endpoint_id(dev, ep);

	pthread_rwlock_wrlock(&dev->lock);
	memset(endpoint_regs(dev, id), 0, 4 * NPUWIN_NOTIFY_REGS);
	memset(ep->gone, 0, ep->nranks);
	__atomic_store_n(&ep->told_abort, 0, __ATOMIC_SEQ_CST);
	__atomic_store_n(&ep->pending, 0, __ATOMIC_SEQ_CST);
	__atomic_store_n(&ep->answered, load_acquire(endpoint_arm(dev, id)), __ATOMIC_RELAXED);
	ep->key = new_key();
	pthread_rwlock_unlock(&dev->lock);
	memset(ep->seen, 0, ep->nranks);
	memset(ep->peers, 0, ep->nranks * sizeof(*ep->peers));
	endpoint_set_state(dev, ep, NPUWIN_HW_EP_BOUND, NPUWIN_NO_RANK, 0);
}

static bool window_taken(const struct device *dev, u64 offset, u64 size)
{
	for (u32 id = 0; id < dev->ident.max_endpoints; id++) {
		const struct endpoint *ep = &dev->endpoints[id];

		if (ep->state != NPUWIN_HW_EP_FREE && offset < ep->offset + ep->size &&
		    ep->offset < offset + size)
			return true;
	}
	return false;
}

/**
 * endpoint_find() - Find an endpoint.
 * @dev: the device
 * @id: its number
 *
 * Return: the endpoint if it is bound, or NULL.
 */
struct endpoint *endpoint_find(struct device *dev, u32 id)
{
	if (id >= dev->ident.max_endpoints || dev->endpoints[id].state == NPUWIN_HW_EP_FREE)
		return NULL;
	return &dev->endpoints[id];
}

/**
 * endpoint_bind() - NPUWIN_HW_CMD_BIND.
 * @dev: the device
 * @id: number of the endpoint
 * @args: copy of the arguments
 * @key: out
 *
 * Return: NPUWIN_HW_OK or NPUWIN_HW_E_*.
 */
u32 endpoint_bind(struct device *dev, u32 id, const struct npuwin_hw_bind *args, __u64 *key)
{
	struct endpoint *ep;

	if (id >= dev->ident.max_endpoints)
		return NPUWIN_HW_E_ID;
	ep = &dev->endpoints[id];
	if (ep->state != NPUWIN_HW_EP_FREE)
		return NPUWIN_HW_E_BUSY;
	if (!args->nranks || args->nranks > dev->ident.max_ranks || args->rank >= args->nranks ||
	    !args->size)
		return NPUWIN_HW_E_FIELD;
	if ((args->offset | args->size) & (dev->ident.window_align - 1))
		return NPUWIN_HW_E_ALIGN;
	if (!memory_within(&dev->ident.windows, args->offset, args->size))
		return NPUWIN_HW_E_BOUNDS;
	if (window_taken(dev, args->offset, args->size))
		return NPUWIN_HW_E_BUSY;

	ep->gone = calloc(args->nranks, 1);
	ep->seen = calloc(args->nranks, 1);
	ep->peers = calloc(args->nranks, sizeof(*ep->peers));
	if (!ep->gone || !ep->seen || !ep->peers) {
		free(ep->gone);
		free(ep->seen);
		free(ep->peers);
		return NPUWIN_HW_E_LIMIT;
	}
	/* Nobody else looks at them before the state says so. */
	ep->rank = args->rank;
	ep->nranks = args->nranks;
	ep->offset = args->offset;
	ep->size = args->size;
	ep->generation = 0;
	ep->queues = 0;
	endpoint_open(dev, ep);
	*key = ep->key;
	return NPUWIN_HW_OK;
}

/* The key is void when this returns. */
static void endpoint_close(struct device *dev, struct endpoint *ep, u8 how)
{
	struct npuwin_hw_endpoint_state *words = endpoint_words(dev, endpoint_id(dev, ep));

	endpoint_set_state(dev, ep, NPUWIN_HW_EP_FREE, 0, 0);
	memset(words, 0, sizeof(*words));
	tell_all(dev, ep->peers, ep->nranks, PENDING_GONE, ep->rank, how);
	free(ep->gone);
	free(ep->seen);
	free(ep->peers);
}

/**
 * endpoint_unbind() - NPUWIN_HW_CMD_UNBIND.
 * @dev: the device
 * @ep: the endpoint
 * @how: NPUWIN_RANK_LEFT or NPUWIN_RANK_DEAD
 *
 * Return: NPUWIN_HW_OK or NPUWIN_HW_E_*.
 */
u32 endpoint_unbind(struct device *dev, struct endpoint *ep, u8 how)
{
	if (ep->queues)
		return NPUWIN_HW_E_BUSY;
	endpoint_close(dev, ep, how);
	return NPUWIN_HW_OK;
}

/**
 * endpoint_release() - All endpoints die. There are no queues any more.
 * @dev: the device
 */
void endpoint_release(struct device *dev)
{
	for (u32 id = 0; id < dev->ident.max_endpoints; id++) {
		struct endpoint *ep = endpoint_find(dev, id);

		if (ep)
			endpoint_close(dev, ep, NPUWIN_RANK_DEAD);
	}
}

static u32 table_check(const struct device *dev, const struct endpoint *ep,
		       const struct npuwin_hw_table *args, u64 element)
{
	if (!args->count || args->first >= ep->nranks || args->count > ep->nranks - args->first)
		return NPUWIN_HW_E_FIELD;
	if (args->offset & (NPUWIN_HW_RING_ALIGN - 1))
		return NPUWIN_HW_E_ALIGN;
	if (!memory_within(&dev->ident.rings, args->offset, args->count * element))
		return NPUWIN_HW_E_BOUNDS;
	return NPUWIN_HW_OK;
}

static bool peer_valid(const struct npuwin_hw_peer *peer)
{
	if (peer->reserved0 || peer->reserved1)
		return false;
	return peer->fabric_id || !(peer->offset | peer->size | peer->key | peer->endpoint);
}

/**
 * endpoint_peers() - NPUWIN_HW_CMD_PEERS.
 * @dev: the device
 * @ep: the endpoint
 * @args: copy of the arguments
 *
 * Return: NPUWIN_HW_OK or NPUWIN_HW_E_*.
 */
u32 endpoint_peers(struct device *dev, struct endpoint *ep, const struct npuwin_hw_table *args)
{
	struct npuwin_hw_peer *copy;
	u32 status;

	endpoint_attend(dev, ep);
	if (ep->state != NPUWIN_HW_EP_BOUND)
		return NPUWIN_HW_E_STATE;
	status = table_check(dev, ep, args, sizeof(*copy));
	if (status)
		return status;
	copy = calloc(args->count, sizeof(*copy));
	if (!copy)
		return NPUWIN_HW_E_LIMIT;
	copy_in(copy, dev->base + args->offset, args->count * sizeof(*copy));
	for (u32 i = 0; i < args->count && !status; i++) {
		if (!peer_valid(&copy[i]))
			status = NPUWIN_HW_E_FIELD;
	}
	for (u32 i = 0; i < args->count && !status; i++) {
		ep->peers[args->first + i] = copy[i];
		ep->seen[args->first + i] = 0;
		__atomic_store_n(&ep->gone[args->first + i], 0, __ATOMIC_SEQ_CST);
	}
	free(copy);
	return status;
}

/**
 * endpoint_peer_states() - NPUWIN_HW_CMD_PEER_STATES.
 * @dev: the device
 * @ep: the endpoint
 * @args: copy of the arguments
 *
 * Return: NPUWIN_HW_OK or NPUWIN_HW_E_*.
 */
u32 endpoint_peer_states(struct device *dev, struct endpoint *ep,
			 const struct npuwin_hw_table *args)
{
	u32 status = table_check(dev, ep, args, 1);
	u8 *table;

	if (status)
		return status;
	table = dev->base + args->offset;
	endpoint_attend(dev, ep);
	for (u32 i = 0; i < args->count; i++) {
		u32 rank = args->first + i;

		if (rank == ep->rank)
			table[i] = NPUWIN_RANK_JOINED;
		else if (ep->seen[rank])
			table[i] = ep->seen[rank];
		else
			table[i] = ep->peers[rank].fabric_id ? NPUWIN_RANK_JOINED :
							       NPUWIN_RANK_EMPTY;
	}
	return NPUWIN_HW_OK;
}

/**
 * endpoint_abort() - NPUWIN_HW_CMD_ABORT.
 * @dev: the device
 * @ep: the endpoint
 * @args: copy of the arguments
 * @tell: tell the peers
 *
 * Return: NPUWIN_HW_OK or NPUWIN_HW_E_*.
 */
u32 endpoint_abort(struct device *dev, struct endpoint *ep, const struct npuwin_hw_abort *args,
		   bool tell)
{
	if (args->rank >= ep->nranks || !args->error || args->error > 4095)
		return NPUWIN_HW_E_FIELD;
	if (ep->state == NPUWIN_HW_EP_BOUND)
		endpoint_set_state(dev, ep, NPUWIN_HW_EP_ABORTED, args->rank, args->error);
	if (tell)
		tell_all(dev, ep->peers, ep->nranks, PENDING_ABORT, args->rank, args->error);
	queue_look(dev, endpoint_id(dev, ep));
	return NPUWIN_HW_OK;
}

/**
 * endpoint_reset() - NPUWIN_HW_CMD_ENDPOINT_RESET.
 * @dev: the device
 * @ep: the endpoint
 * @key: out: the new one
 *
 * Return: NPUWIN_HW_OK.
 */
u32 endpoint_reset(struct device *dev, struct endpoint *ep, __u64 *key)
{
	for (u32 id = 0; id < dev->ident.max_queues; id++) {
		struct queue *queue = queue_find(dev, id);

		if (queue && queue->args.endpoint == endpoint_id(dev, ep))
			queue_reset(dev, queue);
	}
	ep->generation++;
	endpoint_open(dev, ep);
	*key = ep->key;
	return NPUWIN_HW_OK;
}
