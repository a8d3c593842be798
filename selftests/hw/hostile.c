// SPDX-License-Identifier: MIT
/*
 * Hosts that write anything anywhere, and hosts that go: the others do not notice.
 */
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "hw.h"

/* Rank 0 and rank 1 exchange; guest 2 is the one that misbehaves. */
static void exchange(uint64_t seed)
{
	uint8_t *from = window_of(&guests[0], 0);

	for (size_t i = 0; i < 512; i++)
		((uint64_t *)from)[i] = next_random(&seed);
	CHECK_EQ(run_one(&queues[0], d_put(1, 0, 8192, 4096), NULL), NPUWIN_ST_OK);
	CHECK_EQ(run_one(&queues[0], d_notify(1, 0, NPUWIN_NOTIFY_ADD, 1), NULL), NPUWIN_ST_OK);
	CHECK_EQ(run_one(&queues[1], d_wait(0, NPUWIN_CMP_GE, 1, NEVER), NULL), NPUWIN_ST_OK);
	CHECK(!memcmp(from, window_of(&guests[1], 0) + 8192, 4096));
}

static void three_devices(void)
{
	static const char *const options[] = {
		"--memory", "16M", "--devices", "3", "--heartbeat", "10", NULL,
	};
	struct npuwin_hw_peer peers[2];

	emu_start(options);
	for (uint32_t i = 0; i < 3; i++) {
		guest_connect(&guests[i], i);
		guest_ready(&guests[i]);
	}
	for (uint32_t i = 0; i < 2; i++) {
		CHECK_EQ(do_bind(&guests[i], 0, i, 2, &keys[i]), NPUWIN_HW_OK);
		peers[i] = peer_of(&guests[i], 0, keys[i]);
	}
	for (uint32_t i = 0; i < 2; i++) {
		CHECK_EQ(do_peers(&guests[i], 0, 0, peers, 2), NPUWIN_HW_OK);
		CHECK_EQ(do_queue_create(&queues[i], &guests[i], 0, 64), NPUWIN_HW_OK);
	}
}

static void garble(uint8_t *at, uint64_t bytes, uint64_t *seed)
{
	for (uint64_t i = 0; i < bytes; i++)
		at[i] = (uint8_t)next_random(seed);
}

static void recover(struct guest *g)
{
	guest_ready(g);
	settle(g);
}

static void hostile_control(void)
{
	struct guest *g = &guests[2];
	uint64_t seed = 11;

	three_devices();
	for (unsigned int i = 0; i < repeat(300); i++) {
		garble(g->base + NPUWIN_HW_CONTROL, sizeof(struct npuwin_hw_control), &seed);
		garble(g->base + g->ident.queue_posts.offset, g->ident.queue_posts.size, &seed);
		garble(g->base + g->ident.endpoint_arms.offset, g->ident.endpoint_arms.size,
		       &seed);
		ring(g, (uint32_t)next_random(&seed) % g->ndoorbells);
		ring(g, 0);
		if (!(i % 50))
			exchange(i);
	}
	recover(g);
	exchange(1);
}

/* A request that gets past the first check more often than noise does. */
static void likely_request(struct guest *g, struct npuwin_hw_request *request, uint64_t *seed)
{
	uint64_t random = next_random(seed);

	garble((uint8_t *)request, sizeof(*request), seed);
	request->opcode = random % (NPUWIN_HW_CMD_QUEUE_RESET + 2);
	request->flags = random >> 8 & 1;
	request->reserved = random >> 9 & 31 ? 0 : 1;
	request->id = random >> 16 & 7;
	if (random >> 20 & 7)
		memset(request->raw + 16, 0, 32);
	switch (request->opcode) {
	case NPUWIN_HW_CMD_BIND:
		request->bind = (struct npuwin_hw_bind) {
			.offset = g->ident.windows.offset + (random >> 24 & 31) * 4096,
			.size = (random >> 32 & 15) * 4096,
			.rank = random >> 40 & 3,
			.nranks = random >> 44 & 7,
		};
		break;
	case NPUWIN_HW_CMD_QUEUE_CREATE:
		memset(request->raw, 0, sizeof(request->raw));
		request->queue = (struct npuwin_hw_queue_create) {
			.sq_offset = g->ident.rings.offset + (random >> 24 & 255) * 64,
			.cq_offset = g->ident.rings.offset + (random >> 32 & 255) * 64,
			.sq_depth = 1u << (random >> 40 & 15),
			.cq_depth = 1u << (random >> 44 & 15),
			.endpoint = random >> 48 & 7,
			.vector = random >> 52 & 7,
			.doorbell = random >> 55 & 7,
		};
		break;
	case NPUWIN_HW_CMD_PEERS:
	case NPUWIN_HW_CMD_PEER_STATES:
		request->table = (struct npuwin_hw_table) {
			.offset = g->ident.rings.offset + (random >> 24 & 255) * 64,
			.first = random >> 32 & 3,
			.count = random >> 34 & 7,
		};
		break;
	case NPUWIN_HW_CMD_ABORT:
		memset(request->raw, 0, sizeof(request->raw));
		request->abort = (struct npuwin_hw_abort) {
			.rank = random >> 24 & 3, .error = random >> 26 & 4095,
		};
		break;
	default:
		if (random >> 60)
			memset(request->raw, 0, sizeof(request->raw));
	}
}

static void hostile_requests(void)
{
	struct guest *g = &guests[2];
	uint64_t seed = 12;

	three_devices();
	garble(g->base + g->ident.rings.offset, 65536, &seed);
	for (unsigned int i = 0; i < repeat(3000); i++) {
		struct npuwin_hw_request request;

		likely_request(g, &request, &seed);
		CHECK(admin(g, &request, NULL) <= NPUWIN_HW_E_LIMIT);
		if (!(i % 500))
			exchange(i);
	}
	recover(g);
	exchange(2);
}

static void likely_desc(struct npuwin_desc *desc, uint64_t *seed)
{
	uint64_t random = next_random(seed);

	garble((uint8_t *)desc, sizeof(*desc), seed);
	if (random & 1)
		return;
	*desc = (struct npuwin_desc) {
		.opcode = random >> 1 & 3,
		.flags = random >> 3 & 0x73 & (random >> 11 & 3 ? 0x71 : 0xff),
		.sub = random >> 20 & 1,
		.reserved0 = random >> 13 & 3,
		.rank = random >> 15 & 1,
		.user_data = random,
		.src_off = random >> 24 & 0xfffc,
		.dst_off = random >> 28 & 0xfffc,
		.rows = random >> 50 & 3,
		.value = (int32_t)(random >> 52 & 3),
		.row_bytes = random >> 30 & 0xfff,
		.src_stride = 4096,
		.dst_stride = random >> 62 ? 4096 : 0,
	};
	if (desc->opcode == NPUWIN_OP_TWAIT) {
		desc->rank = 0;
		desc->dst_off = 0;
		desc->row_bytes = 0;
		desc->deadline_ns = random >> 63 ? 0 : NEVER;
	}
	if (desc->opcode == NPUWIN_OP_TPUT) {
		desc->value = 0;
		desc->flags &= 1;
		desc->dst_stride = 4096;
	}
}

static void hostile_rings(void)
{
	struct guest *g = &guests[2];
	struct queue *q = &queues[2];
	uint64_t key, seed = 13;

	three_devices();
	CHECK_EQ(do_bind(g, 0, 0, 2, &key), NPUWIN_HW_OK);
	CHECK_EQ(do_queue_create(q, g, 0, 64), NPUWIN_HW_OK);
	for (unsigned int i = 0; i < repeat(2000); i++) {
		for (uint32_t k = 0; k < 8; k++) {
			struct npuwin_desc desc;

			likely_desc(&desc, &seed);
			put_slot(q, &desc, desc.reserved0);
		}
		publish(q);
		WRITE(q_post(g, 0)->cq_head, READ(q_state(g, 0)->cq_tail));
		ring(g, q->args.doorbell);
		settle(g);
		do_queue_reset(q);
		if (!(i % 400))
			exchange(i);
	}
	CHECK_EQ(run_one(q, d_nop(), NULL), NPUWIN_ST_OK);
	exchange(3);
}

static uint32_t scribbling;

static void *scribble(void *arg)
{
	struct guest *g = arg;
	uint64_t seed = 14;

	while (__atomic_load_n(&scribbling, __ATOMIC_SEQ_CST)) {
		uint64_t random = next_random(&seed);
		uint64_t at = random % (128 * 1024 / 8);

		__atomic_store_n((uint64_t *)(g->base + g->ident.rings.offset) + at,
				 random >> 60 ? next_random(&seed) : 0x10000 | (random & 3),
				 __ATOMIC_RELAXED);
	}
	return NULL;
}

static void hostile_while_executed(void)
{
	struct guest *g = &guests[2];
	struct queue *q = &queues[2];
	pthread_t thread;
	uint64_t key;

	three_devices();
	CHECK_EQ(do_bind(g, 0, 0, 2, &key), NPUWIN_HW_OK);
	CHECK_EQ(do_queue_create(q, g, 0, 1024), NPUWIN_HW_OK);
	__atomic_store_n(&scribbling, 1, __ATOMIC_SEQ_CST);
	CHECK(!pthread_create(&thread, NULL, scribble, g));
	for (unsigned int i = 0; i < repeat(500); i++) {
		q->tail += 1024;
		publish(q);
		WRITE(q_post(g, 0)->cq_head, READ(q_state(g, 0)->cq_tail));
		ring(g, 0);
	}
	__atomic_store_n(&scribbling, 0, __ATOMIC_SEQ_CST);
	pthread_join(thread, NULL);
	exchange(4);
	recover(g);
	exchange(5);
}

static void hostile_everything(void)
{
	struct guest *g = &guests[2];
	uint64_t seed = 15;

	three_devices();
	for (unsigned int i = 0; i < repeat(100); i++) {
		for (int k = 0; k < 4000; k++)
			g->base[next_random(&seed) % g->ident.windows.offset] =
				(uint8_t)next_random(&seed);
		for (uint32_t v = 0; v < g->ndoorbells; v++)
			ring(g, v);
		exchange(i);
		if (i % 10 == 9)
			recover(g);
	}
	recover(g);
}

static void hostile_doorbells(void)
{
	struct guest *g = &guests[2];

	three_devices();
	for (unsigned int i = 0; i < repeat(20000); i++)
		ring(g, i % g->ndoorbells);
	exchange(6);
	/* Blocking, and full or empty: the device must not wait for it. */
	for (uint32_t v = 0; v < g->ndoorbells; v++) {
		uint64_t most = UINT64_MAX - 1;

		CHECK(!fcntl(g->doorbell[v], F_SETFL, 0));
		irqs(g, v);
		CHECK(!fcntl(g->vector[v], F_SETFL, 0));
		CHECK(write(g->vector[v], &most, sizeof(most)) == sizeof(most));
	}
	/* Rung and taken back, so that the device may come too late to read it. */
	for (unsigned int i = 0; i < repeat(5000); i++) {
		uint64_t value;
		struct iovec iov = { .iov_base = &value, .iov_len = sizeof(value) };

		ring(g, 0);
		CHECK(preadv2(g->doorbell[0], &iov, 1, -1, RWF_NOWAIT) >= -1);
		if (!(i % 50))
			until_beats(g, 1);
	}
	settle(g);
	settle(g);
	exchange(7);
	CHECK_EQ(emu_stop(), 0);
}

static void hosts_come_and_go(void)
{
	struct guest *g = &guests[2];
	uint64_t key;

	three_devices();
	for (unsigned int i = 0; i < repeat(100); i++) {
		CHECK_EQ(do_bind(g, 0, 0, 1, &key), NPUWIN_HW_OK);
		CHECK_EQ(do_queue_create(&queues[2], g, 0, 16), NPUWIN_HW_OK);
		post_one(&queues[2], d_put(0, 0, 4096, 32768));
		post_one(&queues[2], d_wait(0, NPUWIN_CMP_EQ, 1, NEVER));
		guest_close(g);
		exchange(i);
		guest_connect(g, 2);
		guest_ready(g);
	}
}

static void host_goes_under_fire(void)
{
	struct npuwin_hw_peer peer;
	uint64_t key = 0;

	three_devices();
	/* Ranks 0 and 1 have a third one now, in another domain's endpoint. */
	for (unsigned int i = 0; i < repeat(100); i++) {
		struct guest *g = &guests[2];
		struct npuwin_desc descs[32];

		CHECK_EQ(do_bind(g, 0, 1, 2, &key), NPUWIN_HW_OK);
		peer = peer_of(g, 0, key);
		CHECK_EQ(do_peers(&guests[0], 0, 1, &peer, 1), NPUWIN_HW_OK);
		for (size_t k = 0; k < ARRAY_SIZE(descs); k++)
			descs[k] = d_put(1, 0, 0, WINDOW_SIZE);
		post(&queues[0], descs, ARRAY_SIZE(descs));
		guest_close(g);
		until_through(&queues[0]);
		do_queue_reset(&queues[0]);
		guest_connect(g, 2);
		for (uint32_t at = 0; at < WINDOW_SIZE; at += 512)
			CHECK(!window_of(g, 0)[at]);
		guest_ready(g);
	}
	peer = peer_of(&guests[1], 0, keys[1]);
	CHECK_EQ(do_peers(&guests[0], 0, 1, &peer, 1), NPUWIN_HW_OK);
	exchange(8);
}

static const struct test tests[] = {
	{ "hostile_control", "garbage in control words, indices and arms harms nobody else",
	  hostile_control },
	{ "hostile_requests", "garbage requests get an answer each", hostile_requests },
	{ "hostile_rings", "garbage descriptors are executed or refused, and the queue recovers",
	  hostile_rings },
	{ "hostile_while_executed", "rings that change while they are read harm nobody",
	  hostile_while_executed },
	{ "hostile_everything", "garbage all over the memory harms nobody else; a reset heals",
	  hostile_everything },
	{ "hostile_doorbells", "floods of doorbells and blocking eventfds do not stop a device",
	  hostile_doorbells },
	{ "hosts_come_and_go", "peers run on while hosts come and go", hosts_come_and_go },
	{ "host_goes_under_fire", "a host may go while others write to it",
	  host_goes_under_fire },
};

const struct group group_hostile = { tests, ARRAY_SIZE(tests) };
