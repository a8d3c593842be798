// SPDX-License-Identifier: MIT
/*
 * all_to_all_v between processes, timed.
 * Usage: bench_npuwin PROVIDER RAIL MODE RANKS MAX_RECV ROW_BYTES CALLS, with PROVIDER shm or
 * dev, RAIL host or direct, MODE block or rows; prints the median microseconds of a call on
 * rank 0.
 */
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "npuwin.h"
#include "workload.h"

struct bench {
	const char *provider;
	uint32_t rail;
	uint32_t mode;
	struct workload w;
	char name[48];
};

struct operand {
	struct npuwin_buffer *buffer;
	struct npuwin_tensor tensor;
};

static int operand(struct npuwin_domain *dom, struct operand *o, uint32_t dtype, uint64_t rows,
		   uint64_t cols, struct npuwin_error *err)
{
	uint64_t size = rows * cols * npuwin_dtype_size(dtype);

	o->tensor = (struct npuwin_tensor){
		.dtype = dtype, .ndim = cols > 1 ? 2 : 1, .shape = { rows, cols },
	};
	return npuwin_buffer_alloc(dom, size, 0, &o->buffer, err) ?:
	       (o->tensor.buffer = o->buffer, 0);
}

static int calls(const struct bench *b, struct npuwin_domain *dom, struct npuwin_error *err)
{
	const struct workload *w = &b->w;
	const uint32_t rank = npuwin_domain_rank(dom);
	const size_t block = (size_t)w->max_recv * w->row_bytes;
	const uint64_t rows = (uint64_t)w->ranks * w->max_recv;
	struct operand input, target, signal, send, recv;
	double *seconds = calloc(w->calls, sizeof(double));
	int32_t *counts;
	uint32_t i, d;
	int ret = -1;

	if (!seconds || operand(dom, &input, NPUWIN_UINT8, rows, w->row_bytes, err) ||
	    operand(dom, &target, NPUWIN_UINT8, rows, w->row_bytes, err) ||
	    operand(dom, &signal, NPUWIN_INT32, w->ranks, 1, err) ||
	    operand(dom, &send, NPUWIN_INT32, w->ranks, 1, err) ||
	    operand(dom, &recv, NPUWIN_INT32, w->ranks, 1, err))
		goto out;

	struct npuwin_a2av op = {
		.input = input.tensor, .target = target.tensor, .signal = signal.tensor,
		.send_counts = send.tensor, .recv_counts = recv.tensor,
		.mode = b->mode, .rail = b->rail,
	};

	counts = npuwin_buffer_ptr(send.buffer);
	for (d = 0; d < w->ranks; d++) {
		counts[d] = workload_count(w, rank, d);
		memset((uint8_t *)npuwin_buffer_ptr(input.buffer) + d * block,
		       workload_mark(rank, d), block);
	}
	for (i = 0; i < w->calls + 10; i++) {
		double start = workload_now();

		if (npuwin_all_to_all_v(dom, &op, npuwin_deadline_ms(60000), NULL, err))
			goto out;
		if (i >= 10)
			seconds[i - 10] = workload_now() - start;
	}
	counts = npuwin_buffer_ptr(recv.buffer);
	for (d = 0; d < w->ranks; d++) {
		const uint8_t *got = (uint8_t *)npuwin_buffer_ptr(target.buffer) + d * block;

		if (counts[d] != workload_count(w, d, rank) ||
		    (counts[d] && got[0] != workload_mark(d, rank)))
			goto out;
	}
	ret = 0;
	if (!rank)
		workload_report(seconds, w->calls);
out:
	free(seconds);
	return ret;
}

static int run(const struct bench *b, uint32_t rank)
{
	const struct workload *w = &b->w;
	uint64_t rows = (uint64_t)w->ranks * w->max_recv;
	struct npuwin_domain_attr attr = {
		.name = b->name, .nranks = w->ranks, .rank = rank, .device = -1,
		.window_size = 2 * rows * w->row_bytes + 12 * (uint64_t)w->ranks + 65536,
		.deadline_ns = npuwin_deadline_ms(60000),
	};
	struct npuwin_domain *dom = NULL;
	struct npuwin_error err = { .text = "" };
	struct npuwin *ctx = NULL;
	int ret = 1;

	if (!npuwin_open(b->provider, &ctx, &err) &&
	    !npuwin_domain_join(ctx, &attr, &dom, &err) && !calls(b, dom, &err))
		ret = 0;
	if (ret)
		fprintf(stderr, "rank %u: %s\n", rank, err.text[0] ? err.text : "wrong result");
	npuwin_domain_leave(dom);
	npuwin_close(ctx);
	return ret;
}

int main(int argc, char **argv)
{
	struct bench b = { 0 };
	int failed = 0, status;
	uint32_t r;

	if (argc != 8 || workload_parse(argv + 4, &b.w)) {
		fprintf(stderr, "usage: %s PROVIDER RAIL MODE RANKS MAX_RECV ROW_BYTES CALLS\n",
			argv[0]);
		return 2;
	}
	b.provider = argv[1];
	b.rail = strcmp(argv[2], "direct") ? NPUWIN_RAIL_HOST : NPUWIN_RAIL_DIRECT;
	b.mode = strcmp(argv[3], "rows") ? NPUWIN_MODE_BLOCK : NPUWIN_MODE_ROWS;
	snprintf(b.name, sizeof(b.name), "bench-%d", (int)getpid());

	for (r = 0; r < b.w.ranks; r++) {
		pid_t pid = fork();

		if (!pid)
			exit(run(&b, r));
		if (pid < 0) {
			perror("fork");
			return 1;
		}
	}
	while (wait(&status) > 0)
		failed |= status;
	return failed ? 1 : 0;
}
