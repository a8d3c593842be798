/* SPDX-License-Identifier: MIT */
/*
 * A domain whose ranks are all in this process, with the operands of an all_to_all_v on each,
 * for tests that look into the runtime: they see its internal headers too.
 */
#ifndef LOCAL_H
#define LOCAL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "collective.h"

#define MAX_LOCAL	64
#define POISON		0xa5
#define UNUSED		__attribute__((unused))

enum { INPUT, TARGET, SIGNAL, SEND, RECV, OPERANDS };

struct local {
	struct npuwin *ctx;
	uint32_t n;
	struct npuwin_domain *domain[MAX_LOCAL];
	struct npuwin_buffer *buffer[MAX_LOCAL][OPERANDS];
	struct npuwin_a2av op[MAX_LOCAL];
	uint32_t max_recv;
	uint64_t row_bytes;
	struct npuwin_error err;
};

/* A deadline that only a hang reaches. */
static inline int64_t far(void)
{
	return npuwin_deadline_ms(120000);
}

#define assert_ok(l, call) do {							\
	int rc_ = (call);							\
										\
	if (rc_)								\
		fail_msg("%s: %d: %s", #call, rc_, (l)->err.text);		\
} while (0)

/* Failed with @code, and the sentence holds @word. */
#define assert_error(l, call, code_, word) do {					\
	int rc_ = (call);							\
										\
	if (rc_ != (code_) || (l)->err.code != (code_) || !strstr((l)->err.text, word)) \
		fail_msg("%s: %d, want %d with \"%s\": %s", #call, rc_, code_, word,	\
			 (l)->err.text);					\
} while (0)

static inline UNUSED struct local *local_open(uint32_t n, uint64_t window)
{
	struct npuwin_domain_attr attr = {
		.nranks = n,
		.window_size = window,
		.device = -1,
		.deadline_ns = far(),
	};
	struct local *l = calloc(1, sizeof(*l));

	assert_non_null(l);
	l->n = n;
	assert_ok(l, npuwin_open("shm", &l->ctx, &l->err));
	assert_ok(l, npuwin_domain_create_local(l->ctx, &attr, l->domain, &l->err));
	return l;
}

static inline UNUSED void local_close(struct local *l)
{
	uint32_t r;

	for (r = 0; r < l->n; r++)
		npuwin_domain_leave(l->domain[r]);
	npuwin_close(l->ctx);
	free(l);
}

static inline UNUSED struct npuwin_tensor counts_tensor(struct npuwin_buffer *buffer, uint32_t n)
{
	return (struct npuwin_tensor) {
		.buffer = buffer,
		.dtype = NPUWIN_INT32,
		.ndim = 1,
		.shape = { n },
	};
}

/* Five buffers on each rank, and an op over all of each. */
static inline UNUSED void local_operands(struct local *l, uint32_t max_recv, uint64_t size,
					 uint32_t dtype)
{
	uint32_t r, i;

	l->max_recv = max_recv;
	l->row_bytes = size * npuwin_dtype_size(dtype);
	for (r = 0; r < l->n; r++) {
		struct npuwin_buffer **b = l->buffer[r];
		struct npuwin_a2av *op = &l->op[r];

		for (i = 0; i < OPERANDS; i++)
			assert_ok(l, npuwin_buffer_alloc(l->domain[r], i <= TARGET ?
				l->n * max_recv * l->row_bytes : l->n * sizeof(int32_t), 0,
				&b[i], &l->err));
		*op = (struct npuwin_a2av) {
			.target = {
				.buffer = b[TARGET],
				.dtype = dtype,
				.ndim = 2,
				.shape = { (uint64_t)l->n * max_recv, size },
			},
			.signal = counts_tensor(b[SIGNAL], l->n),
			.send_counts = counts_tensor(b[SEND], l->n),
			.recv_counts = counts_tensor(b[RECV], l->n),
		};
		op->input = op->target;
		op->input.buffer = b[INPUT];
	}
}

static inline UNUSED void local_free_operands(struct local *l)
{
	uint32_t r, i;

	for (r = 0; r < l->n; r++)
		for (i = 0; i < OPERANDS; i++)
			npuwin_buffer_free(l->buffer[r][i]);
}

static inline UNUSED int32_t *local_counts(struct local *l, uint32_t r, int operand)
{
	return npuwin_buffer_ptr(l->buffer[r][operand]);
}

/* Byte @i of the block that @from sends to @to in call @call. */
static inline UNUSED uint8_t local_byte(uint32_t from, uint32_t to, uint64_t i, uint32_t call)
{
	uint32_t x = from * 2654435761u + to * 40503u + (uint32_t)i * 97u + call * 7919u;

	x ^= x >> 15;
	return (uint8_t)(x * 31u >> 3);
}

/* Write the input of rank @r and its counts: @counts[d] rows for rank d. */
static inline UNUSED void local_fill(struct local *l, uint32_t r, const int32_t *counts,
				     uint32_t call)
{
	uint64_t block = l->max_recv * l->row_bytes, i;
	uint8_t *input = npuwin_buffer_ptr(l->buffer[r][INPUT]);
	uint32_t d;

	for (d = 0; d < l->n; d++)
		for (i = 0; i < block; i++)
			input[d * block + i] = local_byte(r, d, i, call);
	memcpy(local_counts(l, r, SEND), counts, l->n * sizeof(*counts));
	memset(npuwin_buffer_ptr(l->buffer[r][TARGET]), POISON, l->n * block);
	memset(local_counts(l, r, RECV), POISON, l->n * sizeof(int32_t));
}

/*
 * Rank @r holds what every rank sent to it: @counts[s] of rank s, clamped. Beyond the count
 * a block has all of what was sent in mode block, and what was there before in mode rows.
 */
static inline UNUSED void local_verify(struct local *l, uint32_t r, const int32_t *counts,
				       uint32_t call)
{
	uint64_t block = l->max_recv * l->row_bytes, i;
	const uint8_t *target = npuwin_buffer_ptr(l->buffer[r][TARGET]);
	uint32_t s;

	for (s = 0; s < l->n; s++) {
		int32_t want = counts[s] < 0 ? 0 : counts[s];

		if (want > (int32_t)l->max_recv)
			want = (int32_t)l->max_recv;
		assert_int_equal(local_counts(l, r, RECV)[s], want);
		assert_int_equal(local_counts(l, r, SIGNAL)[s], 0);
		for (i = 0; i < block; i++) {
			uint8_t byte = local_byte(s, r, i, call);

			if (l->op[r].mode == NPUWIN_MODE_ROWS &&
			    i >= (uint64_t)want * l->row_bytes)
				byte = POISON;
			if (target[s * block + i] != byte)
				fail_msg("call %u: rank %u has %02x from rank %u at %lu, want %02x",
					 call, r, target[s * block + i], s, (unsigned long)i,
					 byte);
		}
	}
}

static inline UNUSED int local_run(struct local *l, struct npuwin_a2av_result *results)
{
	return npuwin_all_to_all_v_group(l->domain, l->op, l->n, far(), results, &l->err);
}

/* Fill, run and verify a call in which rank r sends (r + d + call) % (max_recv + 1) to d. */
static inline UNUSED void local_exchange(struct local *l, uint32_t call)
{
	int32_t counts[MAX_LOCAL];
	uint32_t r, d;

	for (r = 0; r < l->n; r++) {
		for (d = 0; d < l->n; d++)
			counts[d] = (int32_t)((r + d + call) % (l->max_recv + 1));
		local_fill(l, r, counts, call);
	}
	assert_ok(l, local_run(l, NULL));
	for (r = 0; r < l->n; r++) {
		for (d = 0; d < l->n; d++)
			counts[d] = (int32_t)((r + d + call) % (l->max_recv + 1));
		local_verify(l, r, counts, call);
	}
}

/* A copy of every byte of every window. */
static inline UNUSED uint8_t *local_snapshot(const struct local *l)
{
	uint64_t size = l->domain[0]->ep->window_size;
	uint8_t *copy = malloc(l->n * size);
	uint32_t r;

	assert_non_null(copy);
	for (r = 0; r < l->n; r++)
		memcpy(copy + r * size, l->domain[r]->ep->window[r], size);
	return copy;
}

/* Nothing has changed since; frees the copy. */
static inline UNUSED void local_unchanged(const struct local *l, uint8_t *copy)
{
	uint64_t size = l->domain[0]->ep->window_size;
	uint32_t r;

	for (r = 0; r < l->n; r++)
		assert_memory_equal(copy + r * size, l->domain[r]->ep->window[r], size);
	free(copy);
}

/* Every credit is zero: nothing is left of calls that are complete. */
static inline UNUSED void local_settled(const struct local *l)
{
	uint32_t r, slot, from;

	for (r = 0; r < l->n; r++)
		for (slot = 0; slot < HANDSHAKE_SLOTS; slot++)
			for (from = 0; from < l->n; from++)
				assert_int_equal(npuwin_cell_read(l->domain[r]->ep->window[r] +
						 handshake_ready(l->n, slot, from)), 0);
}

#endif /* LOCAL_H */
