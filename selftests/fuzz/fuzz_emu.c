// SPDX-License-Identifier: MIT
/*
 * A libFuzzer target: what a host may do to npuwin-emu's devices.
 *
 * The input is a program of steps, see enum step. Device 0 is the one it drives; device 1
 * has a rank of the same domain, and its host has done nothing wrong: what is outside of
 * its window and registers must stay as it was.
 *
 *	selftests/fuzz/run.sh [SECONDS]	builds all fuzzers, makes the seeds, runs each so long
 *	build/fuzz/fuzz_emu FILE	runs one input again
 *
 * New inputs are kept in build/fuzz/corpus-emu.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../tools/emu/emu.h"
#include "fuzz.h"

#define WINDOW		8192
/* Bytes behind device 1's window that must stay as they were. */
#define GUARD		16384
/* Passes that a device gets to finish what one step gave it: enough for all queues. */
#define MOST_PASSES	64

/**
 * enum step - A step of the input; what follows it is in take_*().
 * @STEP_WRITE: offset (4), length (1), bytes: write them into BAR2
 * @STEP_DOORBELL: number (1)
 * @STEP_REQUEST: request (64): post it
 * @STEP_BIND: endpoint (1), rank (1), nranks (1): a BIND that is right
 * @STEP_QUEUE: queue (1), endpoint (1), depth (1): a QUEUE_CREATE that is right
 * @STEP_PEERS: endpoint (1): a table that has device 1's key
 * @STEP_DESC: queue (1), descriptor (64): post it
 * @STEP_TAKE: queue (1): take all completions and events
 * @STEP_RESET: reset and enable
 * @STEP_HOST: the host goes and another one comes
 * @STEP_PEER_DESC: descriptor (64): device 1 executes it
 * @STEP_COUNT: number of steps
 */
enum step {
	STEP_WRITE,
	STEP_DOORBELL,
	STEP_REQUEST,
	STEP_BIND,
	STEP_QUEUE,
	STEP_PEERS,
	STEP_DESC,
	STEP_TAKE,
	STEP_RESET,
	STEP_HOST,
	STEP_PEER_DESC,
	STEP_COUNT,
};

/**
 * struct input - What is left of the input.
 * @at: next byte
 * @left: bytes
 */
struct input {
	const u8 *at;
	size_t left;
};

static struct emu emu = {
	.config = {
		.devices = 2, .memory = 256 << 10, .queues = 8, .endpoints = 8, .vectors = 4,
		.depth = 64, .heartbeat_ms = 100,
	},
	.fabric = 0xf00d0000,
};

static struct device devices[2];

void emu_log(const struct device *dev, const char *format, ...)
{
}

static void take(struct input *in, void *to, size_t size)
{
	size_t n = size < in->left ? size : in->left;

	memset(to, 0, size);
	memcpy(to, in->at, n);
	in->at += n;
	in->left -= n;
}

static u8 take_byte(struct input *in)
{
	u8 byte;

	take(in, &byte, 1);
	return byte;
}

static void run(struct device *dev)
{
	for (int i = 0; i < MOST_PASSES; i++) {
		bool more = device_pass(&devices[0]);

		more |= device_pass(&devices[1]);
		if (!more)
			return;
	}
}

static void doorbell(struct device *dev, u32 number)
{
	device_doorbell(dev, number);
	run(dev);
}

/* ---- what a host does right ------------------------------------------------------ */

static void request(struct device *dev, const struct npuwin_hw_request *what)
{
	struct npuwin_hw_request *ring =
		(void *)(dev->base + dev->ident.admin_requests.offset);

	ring[dev->admin_done & (dev->ident.admin_depth - 1)] = *what;
	device_control(dev)->admin_tail = dev->admin_done + 1;
	doorbell(dev, 0);
}

static void reset(struct device *dev)
{
	u32 number = dev->reset_ack + 1;

	device_control(dev)->reset = number ? number : 1;
	device_control(dev)->enable = 0;
	doorbell(dev, 0);
	device_control(dev)->admin_tail = 0;
	device_control(dev)->event_head = 0;
	memset(dev->base + dev->ident.queue_posts.offset, 0, dev->ident.queue_posts.size);
	device_control(dev)->enable = dev->reset_ack;
	doorbell(dev, 0);
}

static void bind_window(struct device *dev, u32 id, u32 rank, u32 nranks)
{
	request(dev, &(struct npuwin_hw_request) {
		.opcode = NPUWIN_HW_CMD_BIND, .id = id,
		.bind = {
			.offset = dev->ident.windows.offset + (u64)id * WINDOW,
			.size = WINDOW, .rank = rank, .nranks = nranks,
		},
	});
}

static void make_queue(struct device *dev, u32 id, u32 endpoint, u32 depth)
{
	u64 rings = dev->ident.rings.offset + id * 8192ULL;

	request(dev, &(struct npuwin_hw_request) {
		.opcode = NPUWIN_HW_CMD_QUEUE_CREATE, .id = id,
		.queue = {
			.sq_offset = rings, .cq_offset = rings + 4096,
			.sq_depth = depth, .cq_depth = depth, .endpoint = endpoint,
			.vector = (__u16)(id % 4), .doorbell = (__u16)(id % 4),
		},
	});
}

static void set_peer(struct device *dev, u32 id, u32 rank, struct device *other)
{
	const struct endpoint *ep = &other->endpoints[0];
	u64 offset = dev->ident.rings.offset;
	struct npuwin_hw_peer *table = (void *)(dev->base + offset);

	*table = (struct npuwin_hw_peer) {
		.fabric_id = other->ident.fabric_id, .offset = ep->offset, .size = ep->size,
		.key = ep->key,
	};
	request(dev, &(struct npuwin_hw_request) {
		.opcode = NPUWIN_HW_CMD_PEERS, .id = id,
		.table = { .offset = offset, .first = rank, .count = 1 },
	});
}

static void post(struct device *dev, u32 id, const struct npuwin_desc *desc)
{
	const struct queue *queue = queue_find(dev, id);
	struct npuwin_desc *ring;

	if (!queue)
		return;
	ring = (void *)(dev->base + queue->args.sq_offset);
	ring[queue_posts(dev, id)->sq_tail++ & (queue->args.sq_depth - 1)] = *desc;
	doorbell(dev, queue->args.doorbell);
}

static void take_completions(struct device *dev, u32 id)
{
	const struct queue *queue = queue_find(dev, id);

	device_control(dev)->event_head = dev->event_tail;
	if (queue)
		queue_posts(dev, id)->cq_head = queue->cq_tail;
}

/* ---- the device that is only written to ------------------------------------------ */

static void peer_begin(struct device *dev)
{
	const struct npuwin_hw_region *windows = &dev->ident.windows;

	reset(dev);
	bind_window(dev, 0, 1, 2);
	make_queue(dev, 0, 0, 16);
	/* What is right is taken, or all of this looks at nothing. */
	if (!endpoint_find(dev, 0) || !queue_find(dev, 0))
		abort();
	memset(dev->base + windows->offset + WINDOW, 0x5a, GUARD);
}

static void peer_check(struct device *dev)
{
	const struct npuwin_hw_region *windows = &dev->ident.windows;
	const u8 *at = dev->base + windows->offset + WINDOW;
	const u8 *regs = endpoint_regs(dev, 1);

	for (u64 i = 0; i < GUARD; i++) {
		if (at[i] != 0x5a)
			abort();
	}
	for (u64 i = 0; i < 4 * NPUWIN_NOTIFY_REGS; i++) {
		if (regs[i])
			abort();
	}
	if (memcmp(dev->base, &dev->ident, sizeof(dev->ident)) ||
	    dev->state != NPUWIN_HW_READY)
		abort();
}

static void peer_post(struct device *dev, struct npuwin_desc *desc)
{
	take_completions(dev, 0);
	desc->reserved0 = NPUWIN_HW_SQE_END;
	post(dev, 0, desc);
	take_completions(dev, 0);
	request(dev, &(struct npuwin_hw_request) { .opcode = NPUWIN_HW_CMD_QUEUE_RESET });
}

/* ---- steps ----------------------------------------------------------------------- */

static void step_write(struct device *dev, struct input *in)
{
	u64 room = emu.config.memory;
	u32 offset;
	size_t n;

	take(in, &offset, sizeof(offset));
	n = take_byte(in);
	offset %= room;
	if (n > room - offset)
		n = room - offset;
	take(in, dev->base + offset, n);
}

static void do_step(struct device *dev, struct device *peer, struct input *in)
{
	struct npuwin_hw_request what;
	struct npuwin_desc desc;
	u8 a, b, c;

	switch (take_byte(in) % STEP_COUNT) {
	case STEP_WRITE:
		step_write(dev, in);
		break;
	case STEP_DOORBELL:
		doorbell(dev, take_byte(in) % dev->ident.doorbells);
		break;
	case STEP_REQUEST:
		take(in, &what, sizeof(what));
		request(dev, &what);
		break;
	case STEP_BIND:
		a = take_byte(in) % 8;
		b = take_byte(in);
		c = take_byte(in);
		bind_window(dev, a, b, c);
		break;
	case STEP_QUEUE:
		a = take_byte(in) % 8;
		b = take_byte(in) % 8;
		c = take_byte(in) % 7;
		make_queue(dev, a, b, 1u << c);
		break;
	case STEP_PEERS:
		a = take_byte(in) % 8;
		set_peer(dev, a, 1, peer);
		set_peer(peer, 0, 0, dev);
		break;
	case STEP_DESC:
		a = take_byte(in) % 8;
		take(in, &desc, sizeof(desc));
		post(dev, a, &desc);
		break;
	case STEP_TAKE:
		take_completions(dev, take_byte(in) % 8);
		break;
	case STEP_RESET:
		reset(dev);
		break;
	case STEP_HOST:
		device_disconnect(dev);
		if (device_connect(dev))
			abort();
		break;
	case STEP_PEER_DESC:
		take(in, &desc, sizeof(desc));
		peer_post(peer, &desc);
		break;
	}
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	struct input in = { .at = data, .left = size };

	if (!emu.devices) {
		emu.devices = devices;
		for (u32 i = 0; i < 2; i++) {
			if (device_create(&devices[i], &emu, i))
				abort();
		}
		/* A reset is enough for the one that nobody garbles. */
		if (device_connect(&devices[1]))
			abort();
	}
	if (device_connect(&devices[0]))
		abort();
	peer_begin(&devices[1]);
	while (in.left) {
		do_step(&devices[0], &devices[1], &in);
		take_completions(&devices[1], 0);
	}
	peer_check(&devices[1]);
	device_disconnect(&devices[0]);
	return 0;
}
