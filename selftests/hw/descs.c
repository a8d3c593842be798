// SPDX-License-Identifier: MIT
/*
 * What the device checks in a descriptor, and what it moves.
 */
#include <string.h>

#include "hw.h"

static void fill(struct guest *g, uint64_t seed)
{
	uint64_t *words = (uint64_t *)window_of(g, 0);

	for (size_t i = 0; i < WINDOW_SIZE / 8; i++)
		words[i] = next_random(&seed);
}

/* All of a window's neighbourhood must keep the byte it had. */
static void expect_untouched(struct guest *g, uint8_t byte)
{
	for (uint64_t i = g->ident.windows.offset; i < g->size; i++) {
		if (g->base[i] != byte)
			fail(__FILE__, __LINE__, "byte %#lx was written", (unsigned long)i);
	}
}

static void expect_status(struct npuwin_desc desc, uint32_t status)
{
	CHECK_EQ(run_one(&queues[0], desc, NULL), status);
	do_queue_reset(&queues[0]);
}

static void desc_opcodes(void)
{
	two_ranks();
	for (uint32_t opcode = NPUWIN_OP_TWAIT + 1; opcode < 256; opcode++) {
		struct npuwin_desc desc = { .opcode = (uint8_t)opcode, .flags = 0xfe, .rank = 9 };

		expect_status(desc, NPUWIN_ST_OPCODE);
	}
}

static void desc_fields(void)
{
	struct npuwin_desc good[4] = {
		d_nop(), d_put(1, 0, 0, 4), d_notify(1, 0, 0, 1), d_wait(0, 0, 0, 0),
	};
	/* Which bytes of the 64 an opcode does not use: reserved0 is the ring's. */
	static const uint8_t unused[4][12] = {
		{ 4, 16, 24, 32, 36, 40, 48, 56 },
		{ 36 },
		{ 16, 32, 40, 48, 56 },
		{ 4, 24, 40 },
	};
	static const uint8_t flags[4][6] = {
		{ 0x02, 0x04, 0x10, 0x80 }, { 0x02, 0x04, 0x20, 0x80 },
		{ 0x04, 0x08, 0x10, 0x80 }, { 0x04, 0x08, 0x80 },
	};

	two_ranks();
	for (size_t op = 0; op < 4; op++) {
		for (size_t i = 0; unused[op][i]; i++) {
			struct npuwin_desc bad = good[op];

			((uint8_t *)&bad)[unused[op][i]] = 4;
			expect_status(bad, NPUWIN_ST_FLAGS);
		}
		for (size_t i = 0; flags[op][i]; i++) {
			struct npuwin_desc bad = good[op];

			bad.flags = flags[op][i];
			expect_status(bad, NPUWIN_ST_FLAGS);
		}
		good[op].sub = 9;
		expect_status(good[op], NPUWIN_ST_FLAGS);
	}
}

static void desc_ranges(void)
{
	struct npuwin_desc desc;

	two_ranks();
	expect_status(d_put(2, 0, 0, 4), NPUWIN_ST_RANK);
	expect_status(d_put(UINT32_MAX, 0, 0, 4), NPUWIN_ST_RANK);
	expect_status(d_notify(2, 0, 0, 4), NPUWIN_ST_RANK);
	desc = d_put(1, 0, 0, 16);
	desc.rows = 2;
	desc.src_stride = 15;
	desc.dst_stride = 16;
	expect_status(desc, NPUWIN_ST_RANGE);
	desc.src_stride = 16;
	desc.dst_stride = 15;
	expect_status(desc, NPUWIN_ST_RANGE);
	desc = d_wait(0, 0, 0, -1);
	expect_status(desc, NPUWIN_ST_RANGE);
	desc = d_wait(0, 0, 0, 0);
	desc.rows = 0;
	expect_status(desc, NPUWIN_ST_RANGE);
	desc.rows = 2;
	expect_status(desc, NPUWIN_ST_RANGE);
	desc.rows = 3;
	desc.src_stride = 4;
	desc.flags = NPUWIN_TWAIT_F_BY_RANK;
	expect_status(desc, NPUWIN_ST_RANGE);
	expect_status(d_notify(1, 2, 0, 1), NPUWIN_ST_ALIGN);
	expect_status(d_wait(1, 0, 0, 0), NPUWIN_ST_ALIGN);
	desc = d_put(1, 4, 8, 6);
	desc.sub = NPUWIN_PUT_ADD_I32;
	expect_status(desc, NPUWIN_ST_ALIGN);
	desc = d_put(1, 4, 2, 8);
	desc.sub = NPUWIN_PUT_ADD_F32;
	expect_status(desc, NPUWIN_ST_ALIGN);
}

static void desc_bounds(void)
{
	static const struct {
		uint64_t src, dst, bytes, rows, stride;
	} puts[] = {
		{ WINDOW_SIZE, 0, 1, 1, 0 },
		{ 0, WINDOW_SIZE, 1, 1, 0 },
		{ WINDOW_SIZE - 7, 0, 8, 1, 0 },
		{ 0, WINDOW_SIZE - 7, 8, 1, 0 },
		{ 0, 0, WINDOW_SIZE + 1, 1, 0 },
		{ UINT64_MAX, 0, 1, 1, 0 },
		{ 0, UINT64_MAX - 3, 8, 1, 0 },
		{ 0, 0, UINT64_MAX, 1, 0 },
		{ 8, 8, UINT64_MAX - 7, 1, 0 },
		{ 0, 0, 4096, 17, 4096 },
		{ 0, 0, 1, UINT32_MAX, 1 },
		{ 0, 0, 1, 3, UINT64_MAX / 2 + 1 },
		{ 0, 0, 1, 3, 1ULL << 63 },
		{ 16, 16, 16, UINT32_MAX, UINT64_MAX },
		{ 0 - 16ULL, 0, 16, 2, 16 },
	};
	struct guest *g = &guests[1];
	struct npuwin_desc desc;

	two_ranks();
	memset(guests[0].base + g->ident.windows.offset, 0x11, g->ident.windows.size);
	memset(g->base + g->ident.windows.offset, 0x22, g->ident.windows.size);
	for (size_t i = 0; i < ARRAY_SIZE(puts); i++) {
		desc = d_put(1, puts[i].src, puts[i].dst, puts[i].bytes);
		desc.rows = (uint32_t)puts[i].rows;
		desc.src_stride = puts[i].stride;
		desc.dst_stride = puts[i].stride;
		expect_status(desc, NPUWIN_ST_BOUNDS);
		desc.rank = 0;
		expect_status(desc, NPUWIN_ST_BOUNDS);
	}
	for (uint32_t rank = 0; rank < 2; rank++) {
		expect_status(d_notify(rank, WINDOW_SIZE, 0, -1), NPUWIN_ST_BOUNDS);
		expect_status(d_notify(rank, UINT64_MAX - 3, 0, -1), NPUWIN_ST_BOUNDS);
		desc = d_notify(rank, 4 * NPUWIN_NOTIFY_REGS, 0, -1);
		desc.flags = NPUWIN_DESC_F_REG;
		expect_status(desc, NPUWIN_ST_BOUNDS);
	}
	expect_status(d_wait(WINDOW_SIZE, 0, 0, 0), NPUWIN_ST_BOUNDS);
	desc = d_wait(0, 0, 0x11111111, 0);
	desc.rows = UINT32_MAX;
	desc.src_stride = 4;
	expect_status(desc, NPUWIN_ST_BOUNDS);
	desc.rows = 3;
	desc.src_stride = 1ULL << 63;
	expect_status(desc, NPUWIN_ST_BOUNDS);
	expect_untouched(&guests[0], 0x11);
	expect_untouched(g, 0x22);
}

static void put_exact(void)
{
	uint64_t seed = 42;
	uint8_t model[WINDOW_SIZE];

	two_ranks();
	fill(&guests[0], 1);
	fill(&guests[1], 2);
	memcpy(model, window_of(&guests[1], 0), WINDOW_SIZE);
	for (unsigned int i = 0; i < repeat(500); i++) {
		struct npuwin_desc desc = d_put(1, 0, 0, next_random(&seed) % 300);
		uint8_t *from = window_of(&guests[0], 0);

		desc.rows = (uint32_t)(next_random(&seed) % 20);
		desc.src_stride = desc.row_bytes + next_random(&seed) % 100;
		desc.dst_stride = desc.row_bytes + next_random(&seed) % 100;
		desc.src_off = next_random(&seed) % (WINDOW_SIZE - 8000);
		desc.dst_off = next_random(&seed) % (WINDOW_SIZE - 8000);
		CHECK_EQ(run_one(&queues[0], desc, NULL), NPUWIN_ST_OK);
		for (uint32_t row = 0; row < desc.rows; row++)
			memcpy(model + desc.dst_off + row * desc.dst_stride,
			       from + desc.src_off + row * desc.src_stride, desc.row_bytes);
		CHECK(!memcmp(model, window_of(&guests[1], 0), WINDOW_SIZE));
	}
}

static void put_large(void)
{
	static const char *const options[] = { "--memory", "16M", NULL };
	enum { BYTES = 5 << 20 };
	struct npuwin_hw_request request = {
		.opcode = NPUWIN_HW_CMD_BIND, .bind = { .size = BYTES, .nranks = 2 },
	};
	struct npuwin_hw_response response;
	struct npuwin_hw_peer peers[2];
	uint64_t seed = 3;

	emu_start(options);
	for (uint32_t i = 0; i < 2; i++) {
		struct guest *g = &guests[i];

		guest_connect(g, i);
		guest_ready(g);
		request.bind.rank = i;
		request.bind.offset = g->ident.windows.offset;
		CHECK_EQ(admin(g, &request, &response), NPUWIN_HW_OK);
		peers[i] = (struct npuwin_hw_peer) {
			.fabric_id = g->ident.fabric_id, .offset = request.bind.offset,
			.size = BYTES, .key = response.value[0],
		};
	}
	CHECK_EQ(do_peers(&guests[0], 0, 0, peers, 2), NPUWIN_HW_OK);
	CHECK_EQ(do_queue_create(&queues[0], &guests[0], 0, 4), NPUWIN_HW_OK);
	for (size_t i = 0; i < BYTES / 8; i++)
		((uint64_t *)window_of(&guests[0], 0))[i] = next_random(&seed);
	CHECK_EQ(run_one(&queues[0], d_put(1, 0, 0, BYTES), NULL), NPUWIN_ST_OK);
	CHECK(!memcmp(window_of(&guests[0], 0), window_of(&guests[1], 0), BYTES));
}

static void put_adds(void)
{
	struct npuwin_desc desc = d_put(1, 0, 64, 16);
	int32_t *from, *to;
	float fours[4];

	two_ranks();
	from = cell_of(&guests[0], 0);
	to = cell_of(&guests[1], 64);
	for (int i = 0; i < 4; i++) {
		from[i] = i + 1;
		to[i] = INT32_MAX;
	}
	desc.sub = NPUWIN_PUT_ADD_I32;
	CHECK_EQ(run_one(&queues[0], desc, NULL), NPUWIN_ST_OK);
	for (int i = 0; i < 4; i++)
		CHECK_EQ((uint32_t)to[i], (uint32_t)INT32_MAX + (uint32_t)i + 1);
	for (int i = 0; i < 4; i++)
		fours[i] = 4.0f + (float)i;
	memcpy(from, fours, 16);
	memcpy(to, fours, 16);
	desc.sub = NPUWIN_PUT_ADD_F32;
	CHECK_EQ(run_one(&queues[0], desc, NULL), NPUWIN_ST_OK);
	memcpy(fours, to, 16);
	for (int i = 0; i < 4; i++)
		CHECK(fours[i] == 8.0f + 2 * (float)i);
}

static void notify_values(void)
{
	struct npuwin_desc desc;

	two_ranks();
	for (uint32_t rank = 0; rank < 2; rank++) {
		struct guest *g = &guests[rank];

		*cell_of(g, 12) = 5;
		CHECK_EQ(run_one(&queues[0], d_notify(rank, 12, NPUWIN_NOTIFY_ADD, -7), NULL),
			 NPUWIN_ST_OK);
		CHECK(*cell_of(g, 12) == -2);
		CHECK_EQ(run_one(&queues[0], d_notify(rank, 12, NPUWIN_NOTIFY_SET, INT32_MAX),
				 NULL), NPUWIN_ST_OK);
		CHECK_EQ(run_one(&queues[0], d_notify(rank, 12, NPUWIN_NOTIFY_ADD, 1), NULL),
			 NPUWIN_ST_OK);
		CHECK(*cell_of(g, 12) == INT32_MIN);
		desc = d_notify(rank, 4 * (NPUWIN_NOTIFY_REGS - 1), NPUWIN_NOTIFY_SET, 11);
		desc.flags = NPUWIN_DESC_F_REG;
		CHECK_EQ(run_one(&queues[0], desc, NULL), NPUWIN_ST_OK);
		CHECK_EQ(*reg_of(g, 0, NPUWIN_NOTIFY_REGS - 1), 11);
		CHECK_EQ(*reg_of(g, 1, 0), 0);
	}
}

static const struct test tests[] = {
	{ "desc_opcodes", "an unknown opcode is ST_OPCODE whatever else it has", desc_opcodes },
	{ "desc_fields", "unknown flags and subs, and fields not used, are ST_FLAGS",
	  desc_fields },
	{ "desc_ranges", "ranks, strides, counts, deadlines and alignment are checked",
	  desc_ranges },
	{ "desc_bounds", "nothing outside a window is read or written, by any overflow",
	  desc_bounds },
	{ "put_exact", "a TPUT moves its rows, every byte of them and no other", put_exact },
	{ "put_large", "a TPUT of many steps is whole", put_large },
	{ "put_adds", "adding TPUTs add int32 and fp32", put_adds },
	{ "notify_values", "a TNOTIFY sets and adds, in windows and registers, wrapping",
	  notify_values },
};

const struct group group_descs = { tests, ARRAY_SIZE(tests) };
