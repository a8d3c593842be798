// SPDX-License-Identifier: MIT
/*
 * A libFuzzer target: what the driver takes of a device, driver/pci_check.c.
 *
 * What is accepted must have the properties that the driver relies on, which are worked out
 * here anew and in other ways; and what is right must be accepted. The first byte says what
 * the rest is, see enum kind.
 *
 *	make fuzz				builds it
 *	build/fuzz/fuzz_driver FILE		runs one input again
 */
#include <stdlib.h>
#include <string.h>

#include "pci_check.h"
#include "fuzz.h"

#define REGIONS		10

/**
 * enum kind - What an input is.
 * @KIND_IDENT: size of BAR2 (8), an identification
 * @KIND_GOOD_IDENT: struct recipe for one that is right, and then bytes to change in it
 * @KIND_CQE: number of ranks (4), a descriptor, a completion
 * @KIND_STATE: struct npuwin_hw_progress, sq_head (4), cq_tail (4), a completion
 * @KIND_COUNT: how many there are
 */
enum kind {
	KIND_IDENT,
	KIND_GOOD_IDENT,
	KIND_CQE,
	KIND_STATE,
	KIND_COUNT,
};

/**
 * struct recipe - An identification that is right.
 * @order: seed of the order of its regions
 * @gaps: pages between them, for each
 * @queues: makes max_queues
 * @endpoints: makes max_endpoints
 * @depths: log2 of max_depth, admin_depth and event_depth
 * @align: log2 of window_align, beyond that of a page
 * @rest: of the other numbers, each into its range
 */
struct recipe {
	__u32	order;
	__u8	gaps[REGIONS];
	__u16	queues;
	__u16	endpoints;
	__u8	depths[3];
	__u8	align;
	__u32	rest[5];
} __attribute__((packed));

/**
 * struct input - What is left of the input.
 * @at: next byte
 * @left: bytes
 */
struct input {
	const uint8_t *at;
	size_t left;
};

static bool take(struct input *in, void *to, size_t size)
{
	size_t n = size < in->left ? size : in->left;

	memset(to, 0, size);
	memcpy(to, in->at, n);
	in->at += n;
	in->left -= n;
	return n == size;
}

static void insist(bool what)
{
	if (!what)
		abort();
}

/* ---- identification --------------------------------------------------------------- */

/* By the document: how many elements of how many bytes region @i has. */
static __u64 region_needs(const struct npuwin_hw_ident *ident, size_t i)
{
	const __u64 needs[REGIONS] = {
		64ULL * ident->admin_depth, 32ULL * ident->admin_depth,
		32ULL * ident->event_depth,
		64ULL * ident->max_queues, 64ULL * ident->max_queues,
		64ULL * ident->max_endpoints, 64ULL * ident->max_endpoints,
		4096ULL * ident->max_endpoints, 48ULL * ident->max_ranks,
		ident->window_align,
	};

	return needs[i];
}

static void check_regions(const struct npuwin_hw_ident *ident, __u64 bar)
{
	const struct npuwin_hw_region *regions = &ident->admin_requests;
	size_t i, j;

	for (i = 0; i < REGIONS; i++) {
		unsigned __int128 end = (unsigned __int128)regions[i].offset + regions[i].size;

		/* Behind the pages with fixed places, and aligned to be mapped alone. */
		insist(regions[i].offset >= 8192 && !(regions[i].offset & 4095));
		insist(end <= bar && regions[i].size >= region_needs(ident, i));
		for (j = 0; j < REGIONS; j++) {
			__u64 first = regions[j].offset >> 12;
			__u64 last = (regions[j].offset + regions[j].size - 1) >> 12;

			insist(i == j || regions[i].offset >> 12 < first ||
			       regions[i].offset >> 12 > last);
		}
	}
	insist(!(ident->windows.offset & (ident->window_align - 1)));
}

static void check_ident(const struct npuwin_hw_ident *ident, __u64 bar)
{
	insist(!memcmp(ident->magic, "NPUWIN-H", 8) && ident->revision >> 16 == 1);
	insist(ident->ident_size >= 320 && ident->fabric_id && ident->peer < 1 << 16);
	/* What the driver sizes arrays, shifts and masks with. */
	insist(ident->doorbells - 1 < 64 && ident->vectors - 1 < 64);
	insist(ident->max_queues - 1 < 4096 && ident->max_endpoints - 1 < 4096);
	insist(ident->max_ranks - 1 < 1024 && ident->notify_regs == 1024);
	insist(__builtin_popcount(ident->max_depth) == 1 && ident->max_depth <= 65536);
	insist(__builtin_popcount(ident->admin_depth) == 1 && ident->admin_depth <= 65536);
	insist(__builtin_popcount(ident->event_depth) == 1 && ident->event_depth <= 65536);
	insist(ident->admin_depth > 1 && ident->event_depth > 1);
	insist(__builtin_popcount(ident->window_align) == 1 && ident->window_align >= 4096);
	insist(ident->heartbeat_ms - 1 < 10000);
	check_regions(ident, bar);
}

static void fuzz_ident(struct input *in)
{
	struct npuwin_hw_ident ident;
	__u64 bar;

	take(in, &bar, sizeof(bar));
	take(in, &ident, sizeof(ident));
	if (!npuwin_hw_ident_wrong(&ident, bar))
		check_ident(&ident, bar);
}

/* Returns where the last region ends: how large BAR2 has to be. */
static __u64 place_regions(struct npuwin_hw_ident *ident, const struct recipe *recipe)
{
	struct npuwin_hw_region *regions = &ident->admin_requests;
	size_t places[REGIONS], i;
	__u64 at = 8192;
	__u32 order = recipe->order;

	for (i = 0; i < REGIONS; i++)
		places[i] = i;
	for (i = REGIONS - 1; i; i--) {
		size_t other = order % (i + 1), swap = places[i];

		order /= i + 1;
		places[i] = places[other];
		places[other] = swap;
	}
	for (i = 0; i < REGIONS; i++) {
		struct npuwin_hw_region *region = &regions[places[i]];
		__u64 align = region == &ident->windows ? ident->window_align : 4096;

		at = (at + align - 1) & ~(align - 1);
		region->offset = at;
		region->size = region_needs(ident, places[i]);
		at = (at + region->size + 4095) & ~4095ULL;
		at += 4096ULL * recipe->gaps[places[i]];
	}
	return at;
}

static __u64 follow_recipe(struct npuwin_hw_ident *ident, const struct recipe *recipe)
{
	*ident = (struct npuwin_hw_ident) {
		.magic = NPUWIN_HW_MAGIC,
		.revision = 0x10000 | (recipe->rest[0] & 0xffff),
		.ident_size = 320 + (recipe->rest[0] >> 16),
		.fabric_id = 1ULL + recipe->rest[1],
		.peer = recipe->rest[1] & 0xffff,
		.doorbells = 1 + recipe->rest[2] % 64,
		.vectors = 1 + recipe->rest[2] / 64 % 64,
		.max_queues = 1 + recipe->queues % 4096,
		.max_depth = 1U << recipe->depths[0] % 17,
		.max_endpoints = 1 + recipe->endpoints % 4096,
		.max_ranks = 1 + recipe->rest[3] % 1024,
		.notify_regs = 1024,
		.admin_depth = 2U << recipe->depths[1] % 16,
		.event_depth = 2U << recipe->depths[2] % 16,
		.heartbeat_ms = 1 + recipe->rest[4] % 10000,
		.window_align = 4096U << recipe->align % 20,
	};
	return place_regions(ident, recipe);
}

static void fuzz_good_ident(struct input *in)
{
	struct npuwin_hw_ident ident;
	struct recipe recipe;
	__u16 where;
	__u64 bar;

	take(in, &recipe, sizeof(recipe));
	bar = follow_recipe(&ident, &recipe);
	insist(!npuwin_hw_ident_wrong(&ident, bar));
	check_ident(&ident, bar);
	while (take(in, &where, sizeof(where))) {
		__u64 value;

		/* A whole field, or what comes of it. */
		take(in, &value, 1 + (where >> 13));
		memcpy((__u8 *)&ident + (where & 0x1fff) % (sizeof(ident) - 8), &value,
		       1 + (where >> 13));
		if (!npuwin_hw_ident_wrong(&ident, bar))
			check_ident(&ident, bar);
	}
}

/* ---- completions ------------------------------------------------------------------- */

static void fuzz_cqe(struct input *in)
{
	struct npuwin_desc desc;
	struct npuwin_cqe cqe;
	__u32 nranks;

	take(in, &nranks, sizeof(nranks));
	nranks = 1 + nranks % NPUWIN_MAX_RANKS;
	take(in, &desc, sizeof(desc));
	take(in, &cqe, sizeof(cqe));
	if (!npuwin_hw_cqe_wrong(&cqe, &desc, nranks)) {
		insist(cqe.status <= 12);
		/* A name that the poster has for it, or none. */
		insist(cqe.rank < nranks || cqe.rank == NPUWIN_NO_RANK ||
		       cqe.rank == desc.rank);
		insist(cqe.cell < desc.rows || !cqe.cell);
		insist(desc.opcode == NPUWIN_OP_TWAIT || (!cqe.cell && !cqe.value));
		insist(cqe.status || desc.flags & NPUWIN_DESC_F_CQE);
	}

	/* What a device would say of it. */
	cqe.status = cqe.status % 12 + 1;
	cqe.rank = cqe.rank % 2 ? NPUWIN_NO_RANK : cqe.rank % nranks;
	if (desc.opcode != NPUWIN_OP_TWAIT || !desc.rows) {
		cqe.cell = 0;
		cqe.value = 0;
	} else {
		cqe.cell %= desc.rows;
	}
	insist(!npuwin_hw_cqe_wrong(&cqe, &desc, nranks));
	if (desc.flags & NPUWIN_DESC_F_CQE) {
		cqe.status = NPUWIN_ST_OK;
		insist(!npuwin_hw_cqe_wrong(&cqe, &desc, nranks));
	}
}

/* ---- indices ------------------------------------------------------------------------ */

static void fuzz_state(struct input *in)
{
	struct npuwin_hw_progress known;
	__u32 sq_head, cq_tail;
	struct npuwin_cqe cqe;
	bool void_now;

	take(in, &known, sizeof(known));
	take(in, &sq_head, sizeof(sq_head));
	take(in, &cq_tail, sizeof(cq_tail));
	take(in, &cqe, sizeof(cqe));
	/* What the driver sees to itself. */
	known.size = 1U << known.size % 17;
	known.posted %= 1ULL << 62;
	known.through = known.posted - known.through % (known.size + 1ULL) %
			(known.posted + 1);
	known.tail = known.through + known.tail % (known.posted - known.through + 1);

	if (!npuwin_hw_state_wrong(&known, sq_head, cq_tail)) {
		__u64 through = known.through + (__u32)(sq_head - (__u32)known.through);

		insist(through >= known.through && through <= known.posted);
		insist((__u32)through == sq_head);
		insist((__u32)(cq_tail - known.taken) <= known.size);
	}
	if (!npuwin_hw_seq_wrong(&known, &cqe, &void_now)) {
		insist(cqe.seq < known.posted);
		insist(void_now == (cqe.seq < known.tail));
		/* What is not void has its descriptor on the ring. */
		insist(void_now || known.posted - cqe.seq <= known.size);
	}

	sq_head = (__u32)(known.through + sq_head % (known.posted - known.through + 1));
	cq_tail = known.taken + cq_tail % (known.size + 1);
	insist(!npuwin_hw_state_wrong(&known, sq_head, cq_tail));
	if (known.tail < known.posted) {
		cqe.seq = known.tail + cqe.seq % (known.posted - known.tail);
		insist(!npuwin_hw_seq_wrong(&known, &cqe, &void_now) && !void_now);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { .at = data, .left = size };
	__u8 kind;

	take(&in, &kind, sizeof(kind));
	switch (kind % KIND_COUNT) {
	case KIND_IDENT:
		fuzz_ident(&in);
		break;
	case KIND_GOOD_IDENT:
		fuzz_good_ident(&in);
		break;
	case KIND_CQE:
		fuzz_cqe(&in);
		break;
	default:
		fuzz_state(&in);
		break;
	}
	return 0;
}
