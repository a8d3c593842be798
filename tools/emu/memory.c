// SPDX-License-Identifier: MIT
/*
 * What BAR2 looks like, and the memory behind it.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "emu.h"

#define ADMIN_DEPTH	64
/* Ring memory for each queue, where there is enough: 1024 descriptors and completions. */
#define RING_SHARE	(1024 * (sizeof(struct npuwin_desc) + sizeof(struct npuwin_cqe)))

/* Ring memory for each queue at least: one descriptor and one completion. */
#define RING_LEAST	(2 * NPUWIN_HW_RING_ALIGN)

static u64 page_up(u64 size)
{
	return (size + EMU_PAGE - 1) & ~(EMU_PAGE - 1);
}

static void place(struct npuwin_hw_region *region, u64 *at, u64 size)
{
	region->offset = *at;
	region->size = size;
	*at += page_up(size);
}

/**
 * memory_layout() - Work out what goes where.
 * @config: limits
 * @ident: the identification; all but fabric_id is filled in
 *
 * Return: 0, or -1 where the memory is too small.
 */
int memory_layout(const struct config *config, struct npuwin_hw_ident *ident)
{
	const u64 table = NPUWIN_MAX_RANKS * sizeof(struct npuwin_hw_peer);
	u64 at = NPUWIN_HW_CONTROL + EMU_PAGE;
	u32 event_depth = 64;
	u64 rings, least;

	while (event_depth < 2 * config->endpoints)
		event_depth *= 2;

	*ident = (struct npuwin_hw_ident) {
		.revision = NPUWIN_HW_REVISION,
		.ident_size = sizeof(*ident),
		.caps = NPUWIN_HW_CAP_ADD_I32 | NPUWIN_HW_CAP_ADD_F32,
		.doorbells = config->vectors,
		.vectors = config->vectors,
		.max_queues = config->queues,
		.max_depth = config->depth,
		.max_endpoints = config->endpoints,
		.max_ranks = NPUWIN_MAX_RANKS,
		.notify_regs = NPUWIN_NOTIFY_REGS,
		.admin_depth = ADMIN_DEPTH,
		.event_depth = event_depth,
		.heartbeat_ms = config->heartbeat_ms,
		.window_align = EMU_PAGE,
	};
	memcpy(ident->magic, NPUWIN_HW_MAGIC, sizeof(ident->magic));
	snprintf((char *)ident->firmware, sizeof(ident->firmware), "npuwin-emu %s",
		 NPUWIN_VERSION_STRING);

	place(&ident->admin_requests, &at, ADMIN_DEPTH * sizeof(struct npuwin_hw_request));
	place(&ident->admin_responses, &at, ADMIN_DEPTH * sizeof(struct npuwin_hw_response));
	place(&ident->events, &at, event_depth * sizeof(struct npuwin_hw_event));
	place(&ident->queue_posts, &at, config->queues * sizeof(struct npuwin_hw_queue_post));
	place(&ident->queue_states, &at, config->queues * sizeof(struct npuwin_hw_queue_state));
	place(&ident->endpoint_arms, &at,
	      config->endpoints * sizeof(struct npuwin_hw_endpoint_arm));
	place(&ident->endpoint_states, &at,
	      config->endpoints * sizeof(struct npuwin_hw_endpoint_state));
	place(&ident->notify, &at, config->endpoints * 4ULL * NPUWIN_NOTIFY_REGS);

	least = page_up(table + config->queues * RING_LEAST);
	rings = page_up(table + config->queues * RING_SHARE);
	if (rings > config->memory / 4)
		rings = config->memory / 4;
	if (rings < least)
		rings = least;
	place(&ident->rings, &at, rings);
	if (at >= config->memory)
		return -1;
	place(&ident->windows, &at, config->memory - at);
	return 0;
}

/**
 * memory_least() - How much memory a device needs.
 * @config: limits; what it has as memory is not looked at
 *
 * Return: bytes, a power of two.
 */
u64 memory_least(const struct config *config)
{
	struct config trial = *config;
	struct npuwin_hw_ident ident;

	trial.memory = EMU_PAGE;
	while (memory_layout(&trial, &ident))
		trial.memory *= 2;
	return trial.memory;
}

/**
 * memory_create() - Give the device memory that nobody has seen.
 * @dev: the device, with its lock held for writing
 *
 * It is sealed: a machine that changed its size would make every access here a fault. What
 * the device writes by itself is taken from the system at once, so that a machine that there
 * is no memory for is refused; rings and windows are taken as they are used.
 *
 * Return: 0, or -1 with errno.
 */
int memory_create(struct device *dev)
{
	u64 size = dev->emu->config.memory;
	void *base;
	int fd;

	fd = memfd_create("npuwin-emu", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return -1;
	if (ftruncate(fd, (off_t)size) ||
	    fallocate(fd, 0, 0, (off_t)dev->ident.rings.offset) ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
		goto err_close;
	base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
	if (base == MAP_FAILED)
		goto err_close;
	dev->memory_fd = fd;
	dev->base = base;
	return 0;

err_close:
	close(fd);
	return -1;
}

/**
 * memory_publish() - Let the host see what the device is.
 * @dev: the device
 */
void memory_publish(struct device *dev)
{
	const size_t magic = sizeof(dev->ident.magic);
	u64 word;

	memcpy(dev->base + NPUWIN_HW_IDENT + magic, (const u8 *)&dev->ident + magic,
	       sizeof(dev->ident) - magic);
	memcpy(&word, dev->ident.magic, magic);
	__atomic_store_n((u64 *)(dev->base + NPUWIN_HW_IDENT), word, __ATOMIC_RELEASE);
}

/**
 * memory_destroy() - Part with the memory.
 * @dev: the device, with its lock held for writing
 */
void memory_destroy(struct device *dev)
{
	munmap(dev->base, dev->emu->config.memory);
	close(dev->memory_fd);
	dev->base = NULL;
	dev->memory_fd = -1;
}

/**
 * memory_within() - Whether a stretch of BAR2 lies in a region.
 * @region: the region
 * @offset: in BAR2
 * @size: bytes
 *
 * Return: true if it does.
 */
bool memory_within(const struct npuwin_hw_region *region, u64 offset, u64 size)
{
	return offset >= region->offset && size <= region->size &&
	       offset - region->offset <= region->size - size;
}
