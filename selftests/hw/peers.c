// SPDX-License-Identifier: MIT
/*
 * Keys: who may write where.
 */
#include <string.h>

#include "hw.h"

/* Nothing that rank 0 tries may come through to rank 1. */
static void expect_refused(void)
{
	struct guest *g = &guests[1];
	struct npuwin_cqe cqe;
	struct npuwin_desc desc;

	memset(window_of(&guests[0], 0), 0x77, WINDOW_SIZE);
	memset(g->base + g->ident.windows.offset, 0x22, g->ident.windows.size);
	CHECK_EQ(run_one(&queues[0], d_put(1, 0, 0, 64), &cqe), NPUWIN_ST_PEER);
	CHECK_EQ(cqe.rank, 1);
	do_queue_reset(&queues[0]);
	CHECK_EQ(run_one(&queues[0], d_notify(1, 0, NPUWIN_NOTIFY_ADD, 1), &cqe),
		 NPUWIN_ST_PEER);
	CHECK_EQ(cqe.rank, 1);
	do_queue_reset(&queues[0]);
	desc = d_notify(1, 0, NPUWIN_NOTIFY_ADD, 1);
	desc.flags = NPUWIN_DESC_F_REG;
	CHECK_EQ(run_one(&queues[0], desc, NULL), NPUWIN_ST_PEER);
	do_queue_reset(&queues[0]);
	for (uint64_t i = g->ident.windows.offset; i < g->size; i++)
		CHECK(g->base[i] == 0x22);
	for (uint32_t e = 0; e < g->ident.max_endpoints; e++)
		CHECK(!*reg_of(g, e, 0));
}

static void set_peer(struct npuwin_hw_peer peer)
{
	CHECK_EQ(do_peers(&guests[0], 0, 1, &peer, 1), NPUWIN_HW_OK);
}

static void key_wrong(void)
{
	struct npuwin_hw_peer good, bad;

	two_ranks();
	good = peer_of(&guests[1], 0, keys[1]);
#define BAD(field, value) do { \
		bad = good; \
		bad.field = (value); \
		set_peer(bad); \
		expect_refused(); \
	} while (0)
	BAD(key, keys[1] + 1);
	BAD(key, keys[1] ^ 1ULL << 63);
	BAD(key, 0);
	BAD(key, keys[0]);
	BAD(offset, good.offset + 4096);
	BAD(offset, 0);
	BAD(size, WINDOW_SIZE * 2);
	BAD(size, WINDOW_SIZE / 2);
	BAD(size, UINT64_MAX);
	BAD(endpoint, 1);
	BAD(endpoint, guests[1].ident.max_endpoints);
	BAD(endpoint, UINT32_MAX);
	BAD(fabric_id, guests[0].ident.fabric_id);
	BAD(fabric_id, good.fabric_id + 100);
	BAD(fabric_id, UINT64_MAX);
	BAD(fabric_id, 1);
#undef BAD
	set_peer(good);
	CHECK_EQ(run_one(&queues[0], d_put(1, 0, 0, 64), NULL), NPUWIN_ST_OK);
}

static void key_none(void)
{
	two_ranks();
	set_peer((struct npuwin_hw_peer) { 0 });
	expect_refused();
}

static void key_stale_unbind(void)
{
	uint64_t key;

	two_ranks();
	CHECK_EQ(do_queue_simple(&guests[1], NPUWIN_HW_CMD_QUEUE_DESTROY, 0), NPUWIN_HW_OK);
	CHECK_EQ(do_peers(&guests[1], 0, 0, &(struct npuwin_hw_peer) { 0 }, 1), NPUWIN_HW_OK);
	CHECK_EQ(do_unbind(&guests[1], 0, false), NPUWIN_HW_OK);
	expect_refused();
	/* The same place, bound again. */
	CHECK_EQ(do_bind(&guests[1], 0, 1, 2, &key), NPUWIN_HW_OK);
	expect_refused();
	set_peer(peer_of(&guests[1], 0, key));
	CHECK_EQ(run_one(&queues[0], d_put(1, 0, 0, 64), NULL), NPUWIN_ST_OK);
}

static void key_stale_reset(void)
{
	uint64_t key;

	two_ranks();
	CHECK_EQ(do_endpoint_reset(&guests[1], 0, &key), NPUWIN_HW_OK);
	CHECK(key && key != keys[1]);
	expect_refused();
	set_peer(peer_of(&guests[1], 0, key));
	CHECK_EQ(run_one(&queues[0], d_put(1, 0, 0, 64), NULL), NPUWIN_ST_OK);
}

static void key_stale_host(void)
{
	struct npuwin_hw_peer none = { 0 };
	uint64_t key;

	two_ranks();
	/* So that rank 0 is not told, and has to find out. */
	CHECK_EQ(do_peers(&guests[1], 0, 0, &none, 1), NPUWIN_HW_OK);
	guest_close(&guests[1]);
	guest_connect(&guests[1], 1);
	expect_refused();
	guest_ready(&guests[1]);
	CHECK_EQ(do_bind(&guests[1], 0, 1, 2, &key), NPUWIN_HW_OK);
	expect_refused();
	set_peer(peer_of(&guests[1], 0, key));
	CHECK_EQ(run_one(&queues[0], d_put(1, 0, 0, 64), NULL), NPUWIN_ST_OK);
}

static void key_void_at_once(void)
{
	struct guest *g = &guests[1];
	uint64_t key;

	two_ranks();
	/* A stream of writes; not one may land after the response. */
	for (unsigned int round = 0; round < repeat(100); round++) {
		struct npuwin_desc descs[64];
		int32_t seen;

		for (uint32_t i = 0; i < 64; i++)
			descs[i] = d_notify(1, 0, NPUWIN_NOTIFY_ADD, 1);
		for (uint32_t i = 0; i < 3; i++)
			post(&queues[0], descs, 64);
		CHECK_EQ(do_endpoint_reset(g, 0, &key), NPUWIN_HW_OK);
		seen = READ(*cell_of(g, 0));
		UNTIL(READ(q_state(&guests[0], 0)->sq_head) == queues[0].tail);
		settle(&guests[0]);
		CHECK_EQ(READ(*cell_of(g, 0)), seen);
		do_queue_reset(&queues[0]);
		set_peer(peer_of(g, 0, key));
	}
}

static void key_same_device(void)
{
	struct guest *g = &guests[0];
	struct npuwin_hw_peer peer;
	uint64_t key;

	two_ranks();
	/* Two ranks of a domain may be on one device. */
	CHECK_EQ(do_bind(g, 7, 1, 2, &key), NPUWIN_HW_OK);
	peer = peer_of(g, 7, key);
	set_peer(peer);
	memset(window_of(g, 0), 0x31, 64);
	CHECK_EQ(run_one(&queues[0], d_put(1, 0, 128, 64), NULL), NPUWIN_ST_OK);
	CHECK_EQ(window_of(g, 7)[191], 0x31);
	CHECK_EQ(run_one(&queues[0], d_notify(1, 0, NPUWIN_NOTIFY_SET, 5), NULL), NPUWIN_ST_OK);
	CHECK_EQ(window_of(g, 7)[0], 5);
}

static const struct test tests[] = {
	{ "key_wrong", "a wrong key, place, size, endpoint or device writes nothing",
	  key_wrong },
	{ "key_none", "a rank without an entry is ST_PEER", key_none },
	{ "key_stale_unbind", "a key is void after UNBIND, for ever", key_stale_unbind },
	{ "key_stale_reset", "a key is void after ENDPOINT_RESET", key_stale_reset },
	{ "key_stale_host", "a key is void when the host has gone", key_stale_host },
	{ "key_void_at_once", "no write lands after the response that made its key void",
	  key_void_at_once },
	{ "key_same_device", "peers may be on the same device", key_same_device },
};

const struct group group_peers = { tests, ARRAY_SIZE(tests) };
