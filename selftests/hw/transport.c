// SPDX-License-Identifier: MIT
/*
 * The transport and the identification.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "hw.h"

static const char *const small[] = { "--memory", "16M", NULL };

static bool power_of_two(uint64_t n)
{
	return n && !(n & (n - 1));
}

static void ident_numbers(void)
{
	struct guest *g = &guests[0];
	const struct npuwin_hw_ident *ident = &g->ident;

	emu_start(small);
	guest_connect(g, 0);
	CHECK(!memcmp(ident->magic, NPUWIN_HW_MAGIC, 8));
	CHECK_EQ(ident->revision >> 16, NPUWIN_HW_REVISION >> 16);
	CHECK(ident->ident_size >= 320 && ident->fabric_id);
	CHECK(ident->doorbells >= 1 && ident->doorbells <= NPUWIN_HW_MAX_VECTORS);
	CHECK(ident->vectors >= 1 && ident->vectors <= NPUWIN_HW_MAX_VECTORS);
	CHECK(ident->max_queues >= 1 && ident->max_queues <= NPUWIN_HW_MAX_QUEUES);
	CHECK(power_of_two(ident->max_depth) && ident->max_depth <= NPUWIN_HW_MAX_DEPTH);
	CHECK(ident->max_endpoints >= 1 && ident->max_endpoints <= NPUWIN_HW_MAX_ENDPOINTS);
	CHECK(ident->max_ranks >= 1 && ident->max_ranks <= NPUWIN_MAX_RANKS);
	CHECK_EQ(ident->notify_regs, NPUWIN_NOTIFY_REGS);
	CHECK(power_of_two(ident->admin_depth) && ident->admin_depth >= 2);
	CHECK(power_of_two(ident->event_depth) && ident->event_depth >= 2);
	CHECK(ident->heartbeat_ms >= 1 && ident->heartbeat_ms <= 10000);
	CHECK(power_of_two(ident->window_align) && ident->window_align >= NPUWIN_HW_PAGE);
	CHECK(memchr(ident->firmware, 0, sizeof(ident->firmware)));
	for (size_t i = 0; i < sizeof(ident->reserved); i++)
		CHECK(!ident->reserved[i]);
	CHECK_EQ(ident->peer, g->device_id);
}

static void regions_good(struct guest *g)
{
	const struct npuwin_hw_ident *ident = &g->ident;
	const struct npuwin_hw_region *regions = &ident->admin_requests;
	uint64_t least[10];

	least[0] = ident->admin_depth * sizeof(struct npuwin_hw_request);
	least[1] = ident->admin_depth * sizeof(struct npuwin_hw_response);
	least[2] = ident->event_depth * sizeof(struct npuwin_hw_event);
	least[3] = ident->max_queues * sizeof(struct npuwin_hw_queue_post);
	least[4] = ident->max_queues * sizeof(struct npuwin_hw_queue_state);
	least[5] = ident->max_endpoints * sizeof(struct npuwin_hw_endpoint_arm);
	least[6] = ident->max_endpoints * sizeof(struct npuwin_hw_endpoint_state);
	least[7] = ident->max_endpoints * 4ULL * NPUWIN_NOTIFY_REGS;
	least[8] = ident->max_ranks * sizeof(struct npuwin_hw_peer);
	least[9] = ident->window_align;
	for (size_t i = 0; i < 10; i++) {
		CHECK_EQ(regions[i].offset % NPUWIN_HW_PAGE, 0);
		CHECK(regions[i].size >= least[i]);
		CHECK(regions[i].offset >= 2 * NPUWIN_HW_PAGE);
		CHECK(regions[i].size <= g->size && regions[i].offset <= g->size - regions[i].size);
		for (size_t j = 0; j < i; j++) {
			uint64_t end = (regions[j].offset + regions[j].size + 4095) & ~4095ULL;

			CHECK(regions[i].offset >= end ||
			      regions[j].offset >= regions[i].offset + regions[i].size);
		}
	}
	CHECK(power_of_two(g->size));
}

static void ident_regions(void)
{
	static const char *const least[] = {
		"--memory", "128K", "--queues", "1", "--endpoints", "1", NULL,
	};
	static const char *const most[] = {
		"--memory", "32M", "--queues", "4096", "--endpoints", "4096", NULL,
	};
	static const char *const *const all[] = { small, least, most };
	struct guest *g = &guests[0];

	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		emu_start(all[i]);
		guest_connect(g, 0);
		regions_good(g);
		world_end();
	}
}

static void server_protocol(void)
{
	static const char *const options[] = { "--memory", "16M", "--vectors", "5", NULL };
	struct guest *g = &guests[0];
	char byte;

	emu_start(options);
	guest_connect(g, 0);
	CHECK_EQ(g->version, 0);
	CHECK(g->own_id >= 0 && g->own_id <= 65535);
	CHECK(g->device_id >= 0 && g->device_id <= 65535 && g->device_id != g->own_id);
	CHECK_EQ(g->ndoorbells, 5);
	CHECK_EQ(g->nvectors, 5);
	CHECK_EQ(g->ident.doorbells, 5);
	CHECK_EQ(g->ident.vectors, 5);
	guest_ready(g);
	CHECK(recv(g->sock, &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN);
}

static void server_one_machine(void)
{
	emu_start(small);
	guest_connect(&guests[0], 0);
	guest_ready(&guests[0]);
	for (int i = 0; i < 20; i++)
		CHECK(!guest_try_connect(&guests[1], 0));
	settle(&guests[0]);
	guest_connect(&guests[1], 1);
}

static void memory_sealed(void)
{
	struct guest *g = &guests[0];

	emu_start(small);
	guest_connect(g, 0);
	CHECK(ftruncate(g->memory_fd, 0) && ftruncate(g->memory_fd, (off_t)g->size * 2));
	guest_ready(g);
	settle(g);
}

static void memory_fresh(void)
{
	struct guest *g = &guests[0];
	uint8_t *old;
	int fd;

	two_ranks();
	memset(window_of(g, 0), 0x5a, WINDOW_SIZE);
	fd = dup(g->memory_fd);
	CHECK(fd >= 0);
	old = mmap(NULL, g->size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	CHECK(old != MAP_FAILED);
	guest_close(g);
	guest_connect(g, 0);
	for (uint64_t i = g->ident.notify.offset; i < g->size; i++) {
		if (g->base[i])
			fail(__FILE__, __LINE__, "byte %#lx is not zero", (unsigned long)i);
	}
	guest_ready(g);
	/* What the old machine could still do must not be seen. */
	memset(old + NPUWIN_HW_CONTROL, 0xff, g->size - NPUWIN_HW_CONTROL);
	settle(g);
	CHECK(!window_of(g, 0)[0]);
	munmap(old, g->size);
}

static void memory_own(void)
{
	emu_start(small);
	guest_connect(&guests[0], 0);
	guest_connect(&guests[1], 1);
	CHECK(guests[0].ident.fabric_id != guests[1].ident.fabric_id);
	memset(guests[0].base + NPUWIN_HW_CONTROL, 0xee,
	       guests[0].size - NPUWIN_HW_CONTROL);
	ring(&guests[0], 0);
	guest_ready(&guests[1]);
	for (uint64_t i = 0; i < WINDOW_SIZE; i++)
		CHECK(!window_of(&guests[1], 0)[i]);
}

static void one_vector(void)
{
	static const char *const options[] = { "--vectors", "1", NULL };
	struct queue *q = &queues[0];
	struct npuwin_desc desc = d_nop();

	ranks_start(2, options);
	CHECK_EQ(guests[0].ndoorbells, 1);
	CHECK_EQ(q->args.doorbell, 0);
	desc.flags = NPUWIN_DESC_F_CQE;
	settle(&guests[0]);
	irqs(&guests[0], 0);
	guests[0].irqs[0] = 0;
	for (int i = 0; i < 10; i++) {
		uint64_t before = irqs(&guests[0], 0);

		post_one(q, desc);
		UNTIL(irqs(&guests[0], 0) > before);
		expect_cqe(q, 0, NPUWIN_ST_OK);
	}
}

static const struct test tests[] = {
	{ "ident_numbers", "the identification is complete and within its limits",
	  ident_numbers },
	{ "ident_regions", "regions are aligned, disjoint, inside and large enough",
	  ident_regions },
	{ "server_protocol", "the machine gets version, id, memory, doorbells, vectors, no more",
	  server_protocol },
	{ "server_one_machine", "a second machine is turned away, the first works on",
	  server_one_machine },
	{ "memory_sealed", "the size of the memory cannot be changed", memory_sealed },
	{ "memory_fresh", "each machine gets zeroed memory that no other one has",
	  memory_fresh },
	{ "memory_own", "a device's memory is its own", memory_own },
	{ "one_vector", "one doorbell and one vector are enough", one_vector },
};

const struct group group_transport = { tests, ARRAY_SIZE(tests) };
