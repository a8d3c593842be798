// SPDX-License-Identifier: MIT
/*
 * Offsets, strides and blocks beyond 4 GiB, and MAX_RECV at its end. The windows are large,
 * but little of them is touched.
 */
#include "conformance.h"

/* A device that has memory of its own has so much, whatever the host has. */
static void need_device_memory(struct npuwin *ctx, const struct run *run)
{
	int devices = npuwin_device_count(ctx), i;
	struct npuwin_device_info info;
	struct npuwin_error err;
	uint64_t bytes;

	for (i = 0; i < devices && i < (int)run->nranks; i++) {
		/* Ranks i, i + devices, ... */
		bytes = run->window * ((run->nranks - i - 1) / devices + 1);
		CHECK_OK(npuwin_device_info(ctx, i, &info, &err), &err);
		if (info.memory_total < bytes)
			skip_case("%s has %llu MiB of memory, windows of %llu MiB are needed",
				  info.name, (unsigned long long)(info.memory_total / MIB),
				  (unsigned long long)(bytes / MIB));
	}
}

/* A device takes the memory of a window at once, whatever of it is touched; shm does not. */
static void need_memory(const struct config *cfg, const struct run *run)
{
	uint64_t bytes = run->nranks * run->window;
	unsigned long long available = 0;
	struct npuwin_error err;
	struct npuwin *ctx;
	char line[256];
	FILE *f;

	if (!strcmp(cfg->provider, "shm"))
		return;
	CHECK_OK(npuwin_open(cfg->provider, &ctx, &err), &err);
	need_device_memory(ctx, run);
	npuwin_close(ctx);
	f = fopen("/proc/meminfo", "r");
	CHECK(f);
	while (fgets(line, sizeof(line), f))
		if (!strncmp(line, "MemAvailable:", 13))
			available = KIB * strtoull(line + 13, NULL, 10);
	fclose(f);
	if (available < bytes + GIB)
		skip_case("%llu MiB of memory are available, windows of %llu MiB are needed",
			  available / MIB, (unsigned long long)(bytes / MIB));
}

/* All operands lie beyond 4 GiB of the window. */
static void far_buffers_party(struct party *p)
{
	const struct layout layout = {
		.dtype = NPUWIN_INT16, .max_recv = 4, .ndim_size = 1, .size = { 333 },
	};
	struct npuwin_error err = fresh_error();
	struct npuwin_buffer *pad[2] = { NULL };
	struct set sets[2];
	uint64_t seed;
	uint32_t i;

	for (i = 0; i < p->n; i++)
		CHECK_OK(npuwin_buffer_alloc(p->ranks[i].domain, 4 * GIB + 4096, 0, &pad[i],
					     &err), &err);
	party_alloc(p, &layout, sets);
	for (seed = 1; seed < 4; seed++)
		party_exchange(p, sets, seed, count_random);
	for (i = 0; i < p->n; i++) {
		check_filled("start of the window", npuwin_buffer_ptr(pad[i]), 0, 64 * KIB);
		check_filled("4 GiB on", (uint8_t *)npuwin_buffer_ptr(pad[i]) + 4 * GIB, 0,
			     4096);
	}
}

static void far_buffers_run(const struct config *cfg)
{
	const struct run run = {
		.nranks = 2, .window = 4 * GIB + MIB, .fn = far_buffers_party, .scarce = true,
	};

	need_memory(cfg, &run);
	run_ranks(cfg, &run);
}

/* One buffer, with the tensor beyond 4 GiB of it. */
static void far_tensor_party(struct party *p)
{
	const struct layout layout = {
		.dtype = NPUWIN_INT16, .max_recv = 4, .ndim_size = 1, .size = { 333 },
	};
	struct npuwin_error err = fresh_error();
	struct npuwin_buffer *big[2] = { NULL };
	struct set sets[2], moved[2];
	uint32_t i;

	party_alloc(p, &layout, sets);
	for (i = 0; i < p->n; i++) {
		CHECK_OK(npuwin_buffer_alloc(p->ranks[i].domain, 4 * GIB + 64 * KIB, 0, &big[i],
					     &err), &err);
		set_fill(&sets[i], 1, count_full);
		moved[i] = sets[i];
		moved[i].op.target.buffer = big[i];
		moved[i].op.target.offset = 4 * GIB + 128;
	}
	CHECK_OK(party_call(p, moved, far(), NULL, &err), &err);
	for (i = 0; i < p->n; i++) {
		uint8_t *at = (uint8_t *)npuwin_buffer_ptr(big[i]) + 4 * GIB;

		memcpy(set_ptr(&sets[i], TARGET), at + 128, sets[i].bytes[TARGET]);
		set_verify(&sets[i], 1, count_full);
		check_filled("before the tensor", at, 0, 128);
		check_filled("after the tensor", at + 128 + sets[i].bytes[TARGET], 0, 4096);
		check_filled("start of the buffer", npuwin_buffer_ptr(big[i]), 0, 64 * KIB);
	}
	party_sync(p);
}

static void far_tensor_run(const struct config *cfg)
{
	const struct run run = {
		.nranks = 2, .window = 4 * GIB + MIB, .fn = far_tensor_party, .scarce = true,
	};

	need_memory(cfg, &run);
	run_ranks(cfg, &run);
}

#define FEW	3

/* Blocks of more than 4 GiB, of which few rows are counted. */
static void huge_blocks_party(struct party *p)
{
	const struct layout layout = {
		.dtype = NPUWIN_UINT8, .max_recv = (1U << 20) + 1, .ndim_size = 1,
		.size = { 4096 },
	};
	uint64_t block = (uint64_t)layout.max_recv * 4096;
	struct npuwin_error err = fresh_error();
	struct npuwin_buffer *b[NOPERANDS];
	struct rank *r = &p->ranks[0];
	struct npuwin_a2av op = { .mode = NPUWIN_MODE_ROWS, .rail = p->cfg->rail };
	uint8_t row[4096], *in, *out;
	uint32_t i, k;

	for (i = 0; i < NOPERANDS; i++) {
		struct npuwin_tensor *t = tensor_of(&op, i);
		bool data = i == INPUT || i == TARGET;

		CHECK_OK(npuwin_buffer_alloc(r->domain, data ? 2 * block : 64, 0, &b[i], &err),
			 &err);
		*t = (struct npuwin_tensor){
			.buffer = b[i], .dtype = data ? NPUWIN_UINT8 : NPUWIN_INT32, .ndim = 1,
			.shape = { data ? 2ULL * layout.max_recv : 2 },
		};
		if (data) {
			t->ndim = 2;
			t->shape[1] = 4096;
		}
	}
	in = npuwin_buffer_ptr(b[INPUT]);
	out = npuwin_buffer_ptr(b[TARGET]);
	for (i = 0; i < 2; i++) {
		((int32_t *)npuwin_buffer_ptr(b[SEND]))[i] = FEW + i;
		for (k = 0; k < FEW + i; k++)
			row_fill(in + i * block + k * 4096, 4096, 1, r->rank, i, k);
	}
	CHECK_OK(npuwin_all_to_all_v(r->domain, &op, far(), NULL, &err), &err);
	for (i = 0; i < 2; i++) {
		CHECK_EQ(((int32_t *)npuwin_buffer_ptr(b[RECV]))[i], FEW + r->rank);
		for (k = 0; k < FEW + r->rank; k++) {
			row_fill(row, 4096, 1, i, r->rank, k);
			check_bytes("row of a huge block", out + i * block + k * 4096, row,
				    4096);
		}
		check_filled("row past the count", out + i * block + k * 4096, 0, 4096);
	}
	party_sync(p);
}

static void huge_blocks_run(const struct config *cfg)
{
	const uint64_t window = 4 * ((1ULL << 20) + 1) * 4096 + MIB;
	const struct run run = {
		.nranks = 2, .window = window, .fn = huge_blocks_party, .scarce = true,
	};

	need_memory(cfg, &run);
	run_ranks(cfg, &run);
}

/* Strides beyond 4 GiB. */
static void far_strides_party(struct party *p)
{
	const uint64_t stride = 4 * GIB + 64;
	struct npuwin_error err = fresh_error();
	struct rank *r = &p->ranks[0];
	struct npuwin_buffer *b;
	uint8_t row[64], *at;
	uint32_t peer = 1 - r->rank, k;
	struct npuwin_put put = {
		.src_offset = 0, .src_stride = stride, .dst_offset = 64, .dst_stride = stride,
		.rows = 2, .row_bytes = 64, .dst_rank = peer, .rail = p->cfg->rail,
	};

	CHECK_OK(npuwin_buffer_alloc(r->domain, stride + 256, 0, &b, &err), &err);
	put.src = b;
	put.dst = b;
	at = npuwin_buffer_ptr(b);
	for (k = 0; k < 2; k++)
		row_fill(at + k * stride, 64, 1, r->rank, peer, k);
	party_sync(p);
	CHECK_OK(npuwin_put(r->domain, &put, &err), &err);
	CHECK_OK(npuwin_notify(r->domain, peer, b, stride + 192, NPUWIN_ADD, 7, p->cfg->rail,
			       &err), &err);
	CHECK_OK(npuwin_wait(r->domain, b, stride + 192, NPUWIN_EQ, 7, far(), NULL, &err), &err);
	for (k = 0; k < 2; k++) {
		row_fill(row, 64, 1, peer, r->rank, k);
		check_bytes("row at a far stride", at + 64 + k * stride, row, 64);
	}
	check_filled("between the rows", at + 128, 0, 4096);
	party_sync(p);
}

static void far_strides_run(const struct config *cfg)
{
	const struct run run = {
		.nranks = 2, .window = 4 * GIB + MIB, .fn = far_strides_party, .scarce = true,
	};

	need_memory(cfg, &run);
	run_ranks(cfg, &run);
}

/* MAX_RECV is INT32_MAX, which is right, or one more, which is not. */
static void max_recv_party(struct party *p)
{
	uint64_t max_recv = (uint64_t)INT32_MAX + p->cfg->arg;
	struct npuwin_a2av_result result = { 0 };
	struct npuwin_error err = fresh_error();
	struct npuwin_buffer *b[NOPERANDS];
	struct rank *r = &p->ranks[0];
	struct npuwin_a2av op = { .mode = NPUWIN_MODE_ROWS, .rail = p->cfg->rail };
	uint8_t row[100];
	uint32_t i;

	for (i = 0; i < NOPERANDS; i++) {
		bool data = i == INPUT || i == TARGET;

		CHECK_OK(npuwin_buffer_alloc(r->domain, data ? max_recv : 64, 0, &b[i], &err),
			 &err);
		*tensor_of(&op, i) = (struct npuwin_tensor){
			.buffer = b[i], .dtype = data ? NPUWIN_UINT8 : NPUWIN_INT32, .ndim = 1,
			.shape = { data ? max_recv : 1 },
		};
	}
	row_fill(row, sizeof(row), 1, 0, 0, 0);
	memcpy(npuwin_buffer_ptr(b[INPUT]), row, sizeof(row));
	*(int32_t *)npuwin_buffer_ptr(b[SEND]) = sizeof(row);
	if (p->cfg->arg) {
		CHECK_ERR(npuwin_all_to_all_v(r->domain, &op, far(), &result, &err), -EINVAL,
			  &err, "MAX_RECV", "2147483648");
		check_filled("target", npuwin_buffer_ptr(b[TARGET]), 0, 4096);
		CHECK_EQ(*(int32_t *)npuwin_buffer_ptr(b[RECV]), 0);
		return;
	}
	CHECK_OK(npuwin_all_to_all_v(r->domain, &op, far(), &result, &err), &err);
	check_bytes("rows", npuwin_buffer_ptr(b[TARGET]), row, sizeof(row));
	CHECK_EQ(*(int32_t *)npuwin_buffer_ptr(b[RECV]), sizeof(row));
	CHECK_EQ(result.max_recv, INT32_MAX);
	CHECK_EQ(result.bytes, sizeof(row));
}

static void max_recv_run(const struct config *cfg)
{
	const struct run run = {
		.nranks = 1, .window = 4 * GIB + MIB, .fn = max_recv_party, .scarce = true,
	};

	need_memory(cfg, &run);
	run_ranks(cfg, &run);
}

#define ONE_RANK_EACH	(A_RAILS | A_THREADS | A_PROCESS_EACH)

static const struct test_case cases[] = {
	{ "buffers beyond 4 GiB", far_buffers_run, A_ALL | A_PAIRS, 0, NULL },
	{ "a tensor beyond 4 GiB of its buffer", far_tensor_run, A_ALL | A_EACH, 0, NULL },
	{ "blocks of more than 4 GiB", huge_blocks_run, ONE_RANK_EACH, 0, NULL },
	{ "strides beyond 4 GiB", far_strides_run, ONE_RANK_EACH, 0, NULL },
	{ "MAX_RECV is INT32_MAX", max_recv_run, ONE_RANK_EACH, 0, NULL },
	{ "MAX_RECV is INT32_MAX + 1", max_recv_run, ONE_RANK_EACH, 1, NULL },
};

const struct suite suite_limits = { cases, ARRAY_SIZE(cases) };
