// SPDX-License-Identifier: MIT
/*
 * A device: its states, and what goes out of and into it beside the rings.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "emu.h"

/* How long FAULT_REORDER_IRQ holds an interrupt back when no other comes. */
#define REORDER_MS	20
/* What queues may cost, see struct device.cost, before the rest of the device has its turn. */
#define PASS_COST	(2u << 20)

/* ---- time ------------------------------------------------------------------------ */

/**
 * device_clock() - The device's time.
 * @dev: the device
 *
 * Return: nanoseconds, from any start.
 */
u64 device_clock(const struct device *dev)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return dev->clock_base + (u64)now.tv_sec * 1000000000 + (u64)now.tv_nsec;
}

static void device_beat(struct device *dev)
{
	struct npuwin_hw_status *status = device_status(dev);
	const struct counters *counters = &dev->counters;
	const struct fault_rule *rule;
	u64 now = device_clock(dev);

	store64(&status->doorbells, counters->doorbells);
	store64(&status->interrupts, counters->interrupts);
	store64(&status->descriptors, counters->descriptors);
	store64(&status->bytes, counters->bytes);
	store64(&status->errors, counters->errors);
	store64(&status->steps, counters->steps);
	if (now < dev->beat_at)
		return;
	/* Often enough to grow within each period, however late the thread is woken. */
	dev->beat_at = now + dev->ident.heartbeat_ms * NSEC_PER_MSEC / 2;
	rule = fault_hit(dev, FAULT_NO_HEARTBEAT);
	if (rule)
		dev->silent_until = rule->ms ? now + rule->ms * NSEC_PER_MSEC : NEVER;
	if (now < dev->silent_until)
		return;
	/* Who does not find it may not even ask for a reset. */
	memory_publish(dev);
	store64(&status->clock, now);
	store64(&status->heartbeat, ++dev->heartbeat);
}

/* ---- interrupts ------------------------------------------------------------------ */

static void vector_write(struct device *dev, u32 vector)
{
	struct pollfd room = { .fd = dev->vector_fd[vector], .events = POLLOUT };
	u64 one = 1;

	count(&dev->counters.interrupts, 1);
	/* The machine could have made it blocking, and full. */
	if (room.fd >= 0 && poll(&room, 1, 0) == 1 && write(room.fd, &one, sizeof(one)) < 0 &&
	    errno != EAGAIN)
		emu_log(dev, "vector %u: %s", vector, strerror(errno));
}

static void signal_held(struct device *dev)
{
	for (u32 vector = 0; vector < dev->ident.vectors; vector++) {
		if (!(dev->held & 1ULL << vector))
			continue;
		dev->held &= ~(1ULL << vector);
		dev->signal_at[vector] = NEVER;
		vector_write(dev, vector);
	}
}

static void signal_now(struct device *dev, u32 vector)
{
	const struct fault_rule *rule;

	if (fault_hit(dev, FAULT_DROP_IRQ))
		return;
	rule = fault_hit(dev, FAULT_DELAY_IRQ);
	if (rule) {
		if (dev->signal_at[vector] == NEVER)
			dev->signal_at[vector] = device_clock(dev) + rule->ms * NSEC_PER_MSEC;
		return;
	}
	if (fault_hit(dev, FAULT_REORDER_IRQ)) {
		dev->held |= 1ULL << vector;
		dev->signal_at[vector] = device_clock(dev) + REORDER_MS * NSEC_PER_MSEC;
		return;
	}
	vector_write(dev, vector);
	signal_held(dev);
}

/**
 * device_signal() - There is something to see: an interrupt at the end of this pass.
 * @dev: the device
 * @vector: which
 */
void device_signal(struct device *dev, u32 vector)
{
	dev->due |= 1ULL << vector;
}

static void signal_due(struct device *dev)
{
	u64 now;

	for (u32 vector = 0; dev->due; vector++) {
		if (!(dev->due & 1ULL << vector))
			continue;
		dev->due &= ~(1ULL << vector);
		signal_now(dev, vector);
	}
	now = device_clock(dev);
	for (u32 vector = 0; vector < dev->ident.vectors; vector++) {
		if (dev->signal_at[vector] > now)
			continue;
		dev->signal_at[vector] = NEVER;
		dev->held &= ~(1ULL << vector);
		vector_write(dev, vector);
	}
}

/* ---- events ---------------------------------------------------------------------- */

/**
 * device_event() - Post an event, or count it as lost.
 * @dev: the device
 * @type: NPUWIN_HW_EV_*
 * @id: endpoint or queue
 * @rank: who, or NPUWIN_NO_RANK
 * @value: by type
 */
void device_event(struct device *dev, u32 type, u32 id, u32 rank, u32 value)
{
	struct npuwin_hw_status *status = device_status(dev);
	u32 used = dev->event_tail - load_acquire(&device_control(dev)->event_head);
	struct npuwin_hw_event *slot;

	device_signal(dev, 0);
	if (used >= dev->ident.event_depth) {
		store_release(&status->event_lost, ++dev->event_lost);
		return;
	}
	slot = (struct npuwin_hw_event *)(dev->base + dev->ident.events.offset) +
	       (dev->event_tail & (dev->ident.event_depth - 1));
	*slot = (struct npuwin_hw_event) {
		.type = type, .id = id, .rank = rank, .value = value,
	};
	count(&dev->counters.events, 1);
	store_release(&status->event_tail, ++dev->event_tail);
}

/* ---- states ---------------------------------------------------------------------- */

static void device_set_state(struct device *dev, u32 state)
{
	static const char *const names[] = { "reset", "ready", "fault", "resetting" };

	dev->state = state;
	store_release(&device_status(dev)->state, state);
	device_signal(dev, 0);
	emu_log(dev, "%s", names[state]);
}

/* Drop queues and endpoints. Peers are told. */
static void device_drop(struct device *dev)
{
	for (u32 id = 0; id < dev->ident.max_queues; id++) {
		struct queue *queue = queue_find(dev, id);

		if (queue)
			queue_destroy(dev, queue);
	}
	endpoint_release(dev);
}

/**
 * device_fail() - The device goes to FAULT.
 * @dev: the device
 * @fault: NPUWIN_HW_FAULT_*
 */
void device_fail(struct device *dev, u32 fault)
{
	device_drop(dev);
	dev->fault = fault;
	store_release(&device_status(dev)->fault, fault);
	device_set_state(dev, NPUWIN_HW_FAULT);
}

static void device_forget(struct device *dev)
{
	device_drop(dev);
	dev->clock_offset = 0;
	dev->stalled_until = 0;
	dev->fault = NPUWIN_HW_FAULT_NONE;
	dev->admin_done = 0;
	dev->event_tail = 0;
	dev->event_lost = 0;
}

static void device_reset(struct device *dev, u32 number)
{
	struct npuwin_hw_status *status = device_status(dev);
	const struct npuwin_hw_ident *ident = &dev->ident;

	device_set_state(dev, NPUWIN_HW_RESETTING);
	device_forget(dev);
	memset(dev->base + ident->admin_responses.offset, 0, ident->admin_responses.size);
	memset(dev->base + ident->events.offset, 0, ident->events.size);
	memset(dev->base + ident->queue_states.offset, 0, ident->queue_states.size);
	memset(dev->base + ident->endpoint_states.offset, 0, ident->endpoint_states.size);
	memset(dev->base + ident->notify.offset, 0, ident->notify.size);
	store_release(&status->fault, NPUWIN_HW_FAULT_NONE);
	store_release(&status->admin_done, 0);
	store_release(&status->event_tail, 0);
	store_release(&status->event_lost, 0);
	device_set_state(dev, NPUWIN_HW_RESET);
	dev->reset_ack = number;
	store_release(&status->reset_ack, number);
}

static void device_control_look(struct device *dev)
{
	struct npuwin_hw_control *control = device_control(dev);
	u32 number = load_acquire(&control->reset);

	if (number && number != dev->reset_ack)
		device_reset(dev, number);
	if (dev->state == NPUWIN_HW_RESET && dev->reset_ack &&
	    load_acquire(&control->enable) == dev->reset_ack)
		device_set_state(dev, NPUWIN_HW_READY);
}

/* ---- work ------------------------------------------------------------------------ */

/**
 * device_doorbell() - A doorbell has been rung.
 * @dev: the device, with a host
 * @number: which
 */
void device_doorbell(struct device *dev, u32 number)
{
	if (!number) {
		device_control_look(dev);
		if (dev->state == NPUWIN_HW_READY)
			admin_run(dev);
	}
	if (dev->state != NPUWIN_HW_READY)
		return;
	for (u32 id = 0; id < dev->ident.max_queues; id++) {
		struct queue *queue = &dev->queues[id];

		if (!number || queue->args.doorbell == number)
			queue->look = true;
	}
}

/**
 * device_wake() - Make a device's thread look around.
 * @dev: the device
 */
void device_wake(struct device *dev)
{
	u64 one = 1;

	if (write(dev->kick_fd, &one, sizeof(one)) < 0)
		emu_log(dev, "kick: %s", strerror(errno));
}

/**
 * device_kick() - Somebody else wants something of a device's endpoints.
 * @dev: the device
 */
void device_kick(struct device *dev)
{
	if (!__atomic_exchange_n(&dev->attention, 1, __ATOMIC_SEQ_CST))
		device_wake(dev);
}

/* Give queues their turn, from where the last pass has left off. */
static bool device_queues(struct device *dev)
{
	bool more = false;

	dev->cost = 0;
	for (u32 n = 0; n < dev->ident.max_queues && dev->state == NPUWIN_HW_READY; n++) {
		struct queue *queue = &dev->queues[dev->turn];

		if (dev->cost >= PASS_COST)
			return true;
		dev->turn = (dev->turn + 1) % dev->ident.max_queues;
		more |= queue_run(dev, queue);
	}
	return more;
}

/**
 * device_pass() - Do a bounded piece of what there is to do.
 * @dev: the device, with a host
 *
 * Return: whether there is more to do at once.
 */
bool device_pass(struct device *dev)
{
	bool more = false;

	device_beat(dev);
	if (dev->state == NPUWIN_HW_READY) {
		if (__atomic_exchange_n(&dev->attention, 0, __ATOMIC_SEQ_CST)) {
			for (u32 id = 0; id < dev->ident.max_endpoints; id++) {
				struct endpoint *ep = endpoint_find(dev, id);

				if (ep)
					endpoint_attend(dev, ep);
			}
		}
		if (device_clock(dev) >= dev->stalled_until)
			more = device_queues(dev);
	}
	signal_due(dev);
	return more;
}

/**
 * device_next() - When there is something to do if nothing else happens.
 * @dev: the device, with a host
 *
 * Return: the device's time.
 */
u64 device_next(struct device *dev)
{
	u64 next = dev->beat_at;

	for (u32 vector = 0; vector < dev->ident.vectors; vector++) {
		if (dev->signal_at[vector] < next)
			next = dev->signal_at[vector];
	}
	if (dev->state != NPUWIN_HW_READY)
		return next;
	if (dev->stalled_until > device_clock(dev))
		return dev->stalled_until < next ? dev->stalled_until : next;
	for (u32 id = 0; id < dev->ident.max_queues; id++) {
		const struct queue *queue = &dev->queues[id];

		if (queue->state == NPUWIN_HW_Q_RUNNING && queue->blocked &&
		    queue->deadline < next)
			next = queue->deadline;
	}
	return next;
}

/* ---- hosts ----------------------------------------------------------------------- */

/**
 * device_connect() - A host comes.
 * @dev: the device, without one
 *
 * Return: 0, or -1 with errno.
 */
int device_connect(struct device *dev)
{
	int ret;

	pthread_rwlock_wrlock(&dev->lock);
	ret = memory_create(dev);
	pthread_rwlock_unlock(&dev->lock);
	if (ret)
		return ret;
	dev->state = NPUWIN_HW_RESET;
	dev->reset_ack = 0;
	dev->due = 0;
	dev->held = 0;
	for (u32 vector = 0; vector < NPUWIN_HW_MAX_VECTORS; vector++)
		dev->signal_at[vector] = NEVER;
	dev->beat_at = 0;
	memory_publish(dev);
	device_beat(dev);
	count(&dev->counters.hosts, 1);
	return 0;
}

/**
 * device_disconnect() - The host is gone.
 * @dev: the device, with one
 */
void device_disconnect(struct device *dev)
{
	device_forget(dev);
	dev->state = NPUWIN_HW_RESET;
	pthread_rwlock_wrlock(&dev->lock);
	memory_destroy(dev);
	pthread_rwlock_unlock(&dev->lock);
}

/**
 * device_create() - Make a device. It has no host and no thread yet.
 * @dev: zeroed
 * @emu: all devices, with @emu->config and @emu->fabric set
 * @index: its number
 *
 * Return: 0, or -1 with errno.
 */
int device_create(struct device *dev, struct emu *emu, u32 index)
{
	pthread_rwlockattr_t attr;

	dev->emu = emu;
	dev->index = index;
	dev->listen_fd = -1;
	dev->listen_at = NEVER;
	dev->client_fd = -1;
	dev->epoll_fd = -1;
	dev->memory_fd = -1;
	dev->kick_fd = -1;
	for (u32 i = 0; i < NPUWIN_HW_MAX_VECTORS; i++) {
		dev->doorbell_fd[i] = -1;
		dev->vector_fd[i] = -1;
	}
	/* An owner that wants to take an endpoint back does not wait for a stream of writers. */
	pthread_rwlockattr_init(&attr);
	pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	pthread_rwlock_init(&dev->lock, &attr);
	pthread_rwlockattr_destroy(&attr);

	memory_layout(&emu->config, &dev->ident);
	dev->ident.fabric_id = emu->fabric | (index + 1);
	dev->faults.random = emu->config.seed + index * 0x9e3779b97f4a7c15ULL;
	dev->clock_base = fault_random(dev) >> 16;

	dev->endpoints = calloc(emu->config.endpoints, sizeof(*dev->endpoints));
	dev->queues = calloc(emu->config.queues, sizeof(*dev->queues));
	dev->kick_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (dev->endpoints && dev->queues && dev->kick_fd >= 0)
		return 0;
	device_destroy(dev);
	return -1;
}

/**
 * device_destroy() - Undo device_create().
 * @dev: the device, without a host
 */
void device_destroy(struct device *dev)
{
	if (dev->kick_fd >= 0)
		close(dev->kick_fd);
	free(dev->queues);
	free(dev->endpoints);
	pthread_rwlock_destroy(&dev->lock);
}
