// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Checks of what a device says, by the rules of Documentation/hardware.rst.
 */
#ifdef __KERNEL__
#include <linux/kernel.h>
#include <linux/string.h>
#else
#include <string.h>
#define ARRAY_SIZE(a)	(sizeof(a) / sizeof((a)[0]))
#endif

#include "pci_check.h"

static bool between(__u32 value, __u32 min, __u32 max)
{
	return value >= min && value <= max;
}

static bool power_of_two(__u32 value)
{
	return value && !(value & (value - 1));
}

/* A region, and the size that it needs at least. */
struct place {
	const struct npuwin_hw_region *region;
	__u64 need;
};

static bool overlap(const struct npuwin_hw_region *a, const struct npuwin_hw_region *b)
{
	return a->offset < b->offset + b->size && b->offset < a->offset + a->size;
}

static const char *regions_wrong(const struct npuwin_hw_ident *ident, __u64 bar)
{
	const __u64 fixed = NPUWIN_HW_CONTROL + NPUWIN_HW_PAGE;
	const struct place places[] = {
		{ &ident->admin_requests,
		  (__u64)ident->admin_depth * sizeof(struct npuwin_hw_request) },
		{ &ident->admin_responses,
		  (__u64)ident->admin_depth * sizeof(struct npuwin_hw_response) },
		{ &ident->events, (__u64)ident->event_depth * sizeof(struct npuwin_hw_event) },
		{ &ident->queue_posts,
		  (__u64)ident->max_queues * sizeof(struct npuwin_hw_queue_post) },
		{ &ident->queue_states,
		  (__u64)ident->max_queues * sizeof(struct npuwin_hw_queue_state) },
		{ &ident->endpoint_arms,
		  (__u64)ident->max_endpoints * sizeof(struct npuwin_hw_endpoint_arm) },
		{ &ident->endpoint_states,
		  (__u64)ident->max_endpoints * sizeof(struct npuwin_hw_endpoint_state) },
		{ &ident->notify, (__u64)ident->max_endpoints * ident->notify_regs * 4 },
		{ &ident->rings, (__u64)ident->max_ranks * sizeof(struct npuwin_hw_peer) },
		{ &ident->windows, ident->window_align },
	};
	size_t i, j;

	for (i = 0; i < ARRAY_SIZE(places); i++) {
		const struct npuwin_hw_region *region = places[i].region;

		if (region->offset % NPUWIN_HW_PAGE)
			return "a region is misaligned";
		if (region->offset < fixed)
			return "a region covers the fixed pages";
		if (region->offset > bar || region->size > bar - region->offset)
			return "a region reaches beyond the memory";
		if (region->size < places[i].need)
			return "a region is too small";
	}
	for (i = 0; i < ARRAY_SIZE(places); i++) {
		for (j = 0; j < i; j++) {
			if (overlap(places[i].region, places[j].region))
				return "regions overlap";
		}
	}
	if (ident->windows.offset % ident->window_align)
		return "the window memory is misaligned";
	return NULL;
}

const char *npuwin_hw_ident_wrong(const struct npuwin_hw_ident *ident, __u64 bar)
{
	if (memcmp(ident->magic, NPUWIN_HW_MAGIC, sizeof(ident->magic)))
		return "no identification";
	if (ident->revision >> 16 != NPUWIN_HW_REVISION >> 16)
		return "unknown major revision";
	if (ident->ident_size < sizeof(*ident))
		return "ident_size is too small";
	if (!ident->fabric_id)
		return "fabric_id is zero";
	if (ident->peer > 0xffff)
		return "peer is out of range";
	if (!between(ident->doorbells, 1, NPUWIN_HW_MAX_VECTORS))
		return "doorbells is out of range";
	if (!between(ident->vectors, 1, NPUWIN_HW_MAX_VECTORS))
		return "vectors is out of range";
	if (!between(ident->max_queues, 1, NPUWIN_HW_MAX_QUEUES))
		return "max_queues is out of range";
	if (!between(ident->max_depth, 1, NPUWIN_HW_MAX_DEPTH) ||
	    !power_of_two(ident->max_depth))
		return "max_depth is out of range";
	if (!between(ident->max_endpoints, 1, NPUWIN_HW_MAX_ENDPOINTS))
		return "max_endpoints is out of range";
	if (!between(ident->max_ranks, 1, NPUWIN_MAX_RANKS))
		return "max_ranks is out of range";
	if (ident->notify_regs != NPUWIN_NOTIFY_REGS)
		return "notify_regs is not 1024";
	if (!between(ident->admin_depth, 2, NPUWIN_HW_MAX_DEPTH) ||
	    !power_of_two(ident->admin_depth))
		return "admin_depth is out of range";
	if (!between(ident->event_depth, 2, NPUWIN_HW_MAX_DEPTH) ||
	    !power_of_two(ident->event_depth))
		return "event_depth is out of range";
	if (!between(ident->heartbeat_ms, 1, 10000))
		return "heartbeat_ms is out of range";
	if (ident->window_align < NPUWIN_HW_PAGE || !power_of_two(ident->window_align))
		return "window_align is out of range";
	return regions_wrong(ident, bar);
}

const char *npuwin_hw_state_wrong(const struct npuwin_hw_progress *known, __u32 sq_head,
				  __u32 cq_tail)
{
	if ((__u32)(sq_head - (__u32)known->through) > known->posted - known->through)
		return "sq_head is wrong";
	if ((__u32)(cq_tail - known->taken) > known->size)
		return "cq_tail is wrong";
	return NULL;
}

const char *npuwin_hw_seq_wrong(const struct npuwin_hw_progress *known,
				const struct npuwin_cqe *cqe, bool *void_now)
{
	/* Of what is behind a failure, the driver has taken care already. */
	*void_now = cqe->seq < known->tail;
	if (*void_now)
		return cqe->status == NPUWIN_ST_CANCELLED ? NULL : "it completes twice";
	return cqe->seq < known->posted ? NULL : "it completes what was not posted";
}

const char *npuwin_hw_cqe_wrong(const struct npuwin_cqe *cqe, const struct npuwin_desc *desc,
				__u32 nranks)
{
	__u32 cells = desc->opcode == NPUWIN_OP_TWAIT ? desc->rows : 0;

	if (cqe->status > NPUWIN_ST_DEVICE)
		return "unknown status";
	if (cqe->status == NPUWIN_ST_OK && !(desc->flags & NPUWIN_DESC_F_CQE))
		return "a success that nobody has asked for";
	/* The descriptor's may be anything: that may be what is wrong with it. */
	if (cqe->rank != NPUWIN_NO_RANK && cqe->rank >= nranks && cqe->rank != desc->rank)
		return "rank is out of range";
	if (cqe->cell && cqe->cell >= cells)
		return "cell is out of range";
	if (cqe->value && !cells)
		return "a value of no cell";
	return NULL;
}
