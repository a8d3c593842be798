// SPDX-License-Identifier: MIT
/* all_to_all_v: what arrives, what is clamped, and ranks that disagree. */
#include <sched.h>

#include "local.h"

static void test_golden(void **state)
{
	static const uint32_t ranks[] = { 1, 2, 3, 4, 8, 16, 64 };
	uint32_t i, rail, mode, call, r;

	for (i = 0; i < ARRAY_SIZE(ranks); i++) {
		struct local *l = local_open(ranks[i], 1 << 20);

		local_operands(l, 3, 5, NPUWIN_BF16);
		for (rail = NPUWIN_RAIL_HOST; rail <= NPUWIN_RAIL_DIRECT; rail++)
			for (mode = NPUWIN_MODE_BLOCK; mode <= NPUWIN_MODE_ROWS; mode++) {
				for (r = 0; r < l->n; r++) {
					l->op[r].rail = rail;
					l->op[r].mode = mode;
				}
				for (call = 0; call < 3; call++)
					local_exchange(l, call);
			}
		local_settled(l);
		local_close(l);
	}
}

/* Small enough to see: two ranks, one int32 a row, two rows at most. */
static void test_by_hand(void **state)
{
	struct local *l = local_open(2, 1 << 16);
	struct npuwin_a2av_result results[2] = { 0 };
	int32_t *p;

	local_operands(l, 2, 1, NPUWIN_INT32);
	memcpy(npuwin_buffer_ptr(l->buffer[0][INPUT]), (int32_t[]) { 1, 2, 3, 4 }, 16);
	memcpy(npuwin_buffer_ptr(l->buffer[1][INPUT]), (int32_t[]) { 5, 6, 7, 8 }, 16);
	memcpy(local_counts(l, 0, SEND), (int32_t[]) { 2, 1 }, 8);
	memcpy(local_counts(l, 1, SEND), (int32_t[]) { 0, 2 }, 8);
	assert_ok(l, local_run(l, results));
	p = npuwin_buffer_ptr(l->buffer[0][TARGET]);
	assert_memory_equal(p, ((int32_t[]) { 1, 2, 5, 6 }), 16);
	p = npuwin_buffer_ptr(l->buffer[1][TARGET]);
	assert_memory_equal(p, ((int32_t[]) { 3, 4, 7, 8 }), 16);
	assert_memory_equal(local_counts(l, 0, RECV), ((int32_t[]) { 2, 0 }), 8);
	assert_memory_equal(local_counts(l, 1, RECV), ((int32_t[]) { 1, 2 }), 8);
	assert_int_equal(results[0].max_recv, 2);
	assert_int_equal(results[0].bytes, 16);
	assert_int_equal(results[1].nclamped, 0);
	local_close(l);
}

static void test_clamps(void **state)
{
	static const int32_t counts[6] = { -1, 0, 4, 5, INT32_MIN, INT32_MAX };
	struct npuwin_clamp clamps[6][6];
	struct npuwin_a2av_result results[6];
	struct local *l = local_open(6, 1 << 16);
	uint32_t mode, room, r, s;

	local_operands(l, 4, 1, NPUWIN_INT64);
	for (mode = NPUWIN_MODE_BLOCK; mode <= NPUWIN_MODE_ROWS; mode++)
		for (room = 0; room <= 6; room += 3) {
			memset(clamps, POISON, sizeof(clamps));
			memset(results, 0, sizeof(results));
			for (r = 0; r < 6; r++) {
				l->op[r].mode = mode;
				local_fill(l, r, counts, mode);
				results[r].clamps = clamps[r];
				results[r].clamps_room = room;
			}
			assert_ok(l, local_run(l, results));
			for (r = 0; r < 6; r++) {
				int32_t from[6];

				for (s = 0; s < 6; s++)
					from[s] = counts[r];
				local_verify(l, r, from, mode);
				assert_int_equal(results[r].nclamped, 4);
				assert_int_equal(results[r].bytes, mode == NPUWIN_MODE_ROWS ?
						 12 * 8 : 24 * 8);
				if (room) {
					assert_int_equal(clamps[r][0].dest, 0);
					assert_int_equal(clamps[r][0].requested, -1);
					assert_int_equal(clamps[r][0].sent, 0);
					assert_int_equal(clamps[r][1].dest, 3);
					assert_int_equal(clamps[r][1].requested, 5);
					assert_int_equal(clamps[r][1].sent, 4);
					assert_int_equal(clamps[r][2].dest, 4);
				}
				if (room == 6) {
					assert_int_equal(clamps[r][3].dest, 5);
					assert_int_equal(clamps[r][3].requested, INT32_MAX);
				} else {
					/* No room: not written. */
					assert_int_equal(clamps[r][3].dest, 0xa5a5a5a5);
				}
			}
		}
	local_close(l);
}

/* One rank at an offset of its buffers, [NR,1] counts: the same on all. */
static void test_offsets(void **state)
{
	struct local *l = local_open(3, 1 << 16);
	uint32_t r, i;

	local_operands(l, 4, 8, NPUWIN_FP16);
	for (r = 0; r < l->n; r++) {
		struct npuwin_tensor *operand[OPERANDS] = {
			&l->op[r].input, &l->op[r].target, &l->op[r].signal,
			&l->op[r].send_counts, &l->op[r].recv_counts,
		};

		for (i = 0; i < OPERANDS; i++) {
			assert_ok(l, npuwin_buffer_alloc(l->domain[r], 4096, 0,
							 &operand[i]->buffer, &l->err));
			operand[i]->offset = 128 + 4 * i;
			if (i > TARGET) {
				operand[i]->ndim = 2;
				operand[i]->shape[1] = 1;
			}
		}
		memset(npuwin_buffer_ptr(l->op[r].input.buffer), 0x11 * (int)(r + 1), 4096);
		memcpy((uint8_t *)npuwin_buffer_ptr(l->op[r].send_counts.buffer) + 128 + 12,
		       (int32_t[]) { 1, 2, 3 }, 12);
	}
	assert_ok(l, local_run(l, NULL));
	for (r = 0; r < l->n; r++) {
		const uint8_t *target = npuwin_buffer_ptr(l->op[r].target.buffer);
		const int32_t *counts = npuwin_buffer_ptr(l->op[r].recv_counts.buffer);

		assert_int_equal(target[131], 0);
		assert_int_equal(target[132], 0x11);
		assert_int_equal(target[132 + 64], 0x22);
		assert_int_equal(target[132 + 192 - 1], 0x33);
		assert_int_equal(target[132 + 192], 0);
		for (i = 0; i < 3; i++)
			assert_int_equal(counts[36 + i], (int32_t)r + 1);
		assert_int_equal(counts[35], 0);
		assert_int_equal(counts[39], 0);
	}
	local_close(l);
}

/* Buffers of the largest stride: rows that begin beyond 4 GiB of the window. */
static void test_beyond_4gib(void **state)
{
	struct local *l = local_open(2, (5ULL << 30) + (1 << 20));
	struct npuwin_buffer *hole;
	uint32_t r;

	for (r = 0; r < l->n; r++)
		assert_ok(l, npuwin_buffer_alloc(l->domain[r], 5ULL << 30, 4096, &hole, &l->err));
	local_operands(l, 2, 3, NPUWIN_INT8);
	assert_true(l->buffer[0][INPUT]->offset > UINT32_MAX);
	local_exchange(l, 1);
	local_close(l);
}

/*
 * Ranks that disagree: each gets the same sentence, nothing of the operands is written, no
 * credit is left, and the next call works.
 */
static void expect_disagreement(struct local *l, const char *word)
{
	uint64_t start = handshake_size(l->n);
	uint64_t size = l->domain[0]->ep->window_size;
	uint8_t *copy = local_snapshot(l);
	char text[sizeof(l->err.text)];
	uint32_t r;

	for (r = 0; r < l->n; r++)
		assert_ok(l, npuwin_all_to_all_v_start(l->domain[r], &l->op[r], far(),
						       (struct npuwin_request **)
						       &l->buffer[r][INPUT], &l->err));
	for (r = 0; r < l->n; r++) {
		struct npuwin_request *request = (void *)l->buffer[r][INPUT];

		assert_error(l, npuwin_request_wait(request, far(), NULL, &l->err), -EPROTO,
			     word);
		assert_int_equal(l->err.rank, r);
		assert_true(l->err.peer >= 0 && l->err.peer != (int32_t)r);
		if (l->n == 2 && r)
			assert_string_equal(text, l->err.text);
		memcpy(text, l->err.text, sizeof(text));
		npuwin_request_free(request);
		l->buffer[r][INPUT] = l->op[r].input.buffer;
	}
	for (r = 0; r < l->n; r++)
		assert_memory_equal(copy + r * size + start,
				    l->domain[r]->ep->window[r] + start, size - start);
	free(copy);
	local_settled(l);
}

static void test_disagree(void **state)
{
	struct local *l = local_open(2, 1 << 16);
	struct npuwin_a2av op;

	local_operands(l, 8, 4, NPUWIN_FP32);
	op = l->op[1];

	l->op[1].input.shape[0] = 4;
	l->op[1].target.shape[0] = 4;
	expect_disagreement(l, "MAX_RECV differs: rank 0 has 8, rank 1 has 2");
	l->op[1] = op;
	l->op[1].input.shape[1] = 3;
	l->op[1].target.shape[1] = 3;
	expect_disagreement(l, "all_to_all_v: SIZE differs: rank 0 has [4], rank 1 has [3]");
	l->op[1] = op;
	l->op[1].input.dtype = NPUWIN_INT32;
	l->op[1].target.dtype = NPUWIN_INT32;
	expect_disagreement(l, "dtype differs: rank 0 has fp32, rank 1 has int32");
	l->op[1] = op;
	l->op[1].input.ndim = 3;
	l->op[1].target.ndim = 3;
	l->op[1].input.shape[2] = 1;
	l->op[1].target.shape[2] = 1;
	expect_disagreement(l, "all_to_all_v: SIZE differs: rank 0 has [4], rank 1 has [4,1]");
	l->op[1] = op;
	l->op[1].mode = NPUWIN_MODE_ROWS;
	expect_disagreement(l, "mode differs: rank 0 has block, rank 1 has rows");
	l->op[1] = op;
	l->op[1].target.buffer = op.input.buffer;
	l->op[1].input.buffer = op.target.buffer;
	expect_disagreement(l, "offset of target in the window differs");
	l->op[1] = op;
	l->op[1].signal.buffer = op.recv_counts.buffer;
	l->op[1].recv_counts.buffer = op.signal.buffer;
	expect_disagreement(l, "offset of signal in the window differs");
	l->op[1] = op;
	l->op[1].recv_counts.buffer = op.send_counts.buffer;
	l->op[1].send_counts.buffer = op.recv_counts.buffer;
	expect_disagreement(l, "offset of recv_counts in the window differs");
	l->op[1] = op;
	l->op[0].input.ndim = 3;
	l->op[0].target.ndim = 3;
	l->op[0].input.shape[1] = 2;
	l->op[0].target.shape[1] = 2;
	l->op[0].input.shape[2] = 2;
	l->op[0].target.shape[2] = 2;
	l->op[1].input = l->op[0].input;
	l->op[1].target = l->op[0].target;
	l->op[1].input.buffer = op.input.buffer;
	l->op[1].target.buffer = op.target.buffer;
	l->op[1].input.shape[1] = 4;
	l->op[1].target.shape[1] = 4;
	l->op[1].input.shape[2] = 1;
	l->op[1].target.shape[2] = 1;
	expect_disagreement(l, "all_to_all_v: SIZE differs: rank 0 has [2,2], rank 1 has [4,1]");
	l->op[1] = op;
	l->op[0] = op;
	l->op[0].input.buffer = l->buffer[0][INPUT];
	l->op[0].target.buffer = l->buffer[0][TARGET];
	l->op[0].signal.buffer = l->buffer[0][SIGNAL];
	l->op[0].send_counts.buffer = l->buffer[0][SEND];
	l->op[0].recv_counts.buffer = l->buffer[0][RECV];
	local_exchange(l, 0);

	/* The input and the rail are a rank's own affair. */
	l->op[0].rail = NPUWIN_RAIL_DIRECT;
	local_exchange(l, 1);
	local_close(l);
}

static struct npuwin_buffer *extra(struct local *l, uint32_t r, uint64_t size)
{
	struct npuwin_buffer *buffer;

	assert_ok(l, npuwin_buffer_alloc(l->domain[r], size, 0, &buffer, &l->err));
	return buffer;
}

static void extra_on_all(struct local *l, uint32_t count, uint64_t size)
{
	uint32_t r, i;

	for (r = 0; r < l->n; r++)
		for (i = 0; i < count; i++)
			extra(l, r, size);
}

/* Both ranks have made @allocs allocations, and what differed first is not known. */
static void expect_digests(struct local *l, uint32_t allocs)
{
	uint32_t count[2], digest[2], r;
	char sentence[200];

	for (r = 0; r < 2; r++) {
		heap_history(l->domain[r]->heap, &count[r], &digest[r]);
		assert_int_equal(count[r], allocs);
	}
	assert_int_not_equal(digest[0], digest[1]);
	snprintf(sentence, sizeof(sentence),
		 "the sequence of buffer allocations differs: rank 0 has made %u, digest %08x, rank 1 has made %u, digest %08x",
		 allocs, digest[0], allocs, digest[1]);
	expect_disagreement(l, sentence);
}

static void test_disagree_allocations(void **state)
{
	struct local *l = local_open(2, 1 << 16);
	uint8_t *told;

	local_operands(l, 2, 4, NPUWIN_FP32);
	extra(l, 0, 64);
	expect_disagreement(l, "buffer allocation 6 differs: rank 0 has 64 bytes, rank 1 has none");
	extra(l, 1, 128);
	expect_disagreement(l, "buffer allocation 6 differs: rank 0 has 64 bytes, rank 1 has 128 bytes");
	/* It is the first one that counts, and those that are told are told once. */
	extra_on_all(l, HISTORY - 6, 32);
	expect_disagreement(l, "buffer allocation 6 differs: rank 0 has 64 bytes, rank 1 has 128 bytes");
	expect_disagreement(l, "buffer allocation 6 differs: rank 0 has 64 bytes, rank 1 has 128 bytes");
	/* A reset clears it, and it is told again. */
	npuwin_domain_abort(l->domain[0], EIO);
	assert_ok(l, npuwin_domain_reset_group(l->domain, 2, far(), &l->err));
	expect_disagreement(l, "buffer allocation 6 differs: rank 0 has 64 bytes, rank 1 has 128 bytes");
	extra_on_all(l, 5, 32);
	expect_disagreement(l, "buffer allocation 6 differs: rank 0 has 64 bytes, rank 1 has 128 bytes");
	extra_on_all(l, 1, 32);
	expect_digests(l, 38);
	extra(l, 1, 32);
	expect_disagreement(l, "the number of buffers allocated differs: rank 0 has 38, rank 1 has 39");
	local_close(l);

	/* Behind many that are alike; and a peer that does not tell the truth about them. */
	l = local_open(2, 1 << 16);
	local_operands(l, 2, 4, NPUWIN_FP32);
	extra_on_all(l, 100, 64);
	local_exchange(l, 0);
	extra(l, 0, 1000);
	extra(l, 0, 3000);
	extra(l, 1, 3000);
	extra(l, 1, 1000);
	expect_disagreement(l, "buffer allocation 106 differs: rank 0 has 1000 bytes, rank 1 has 3000 bytes");
	told = l->domain[0]->ep->window[0] + handshake_history(2, 1);
	memset(told, 0xff, HISTORY * sizeof(struct allocation));
	told = l->domain[1]->ep->window[1] + handshake_history(2, 0);
	memset(told, 0xff, HISTORY * sizeof(struct allocation));
	expect_digests(l, 107);
	local_close(l);

	/* The same size elsewhere, because of a free that the other has not made. */
	l = local_open(2, 1 << 16);
	local_operands(l, 2, 4, NPUWIN_FP32);
	npuwin_buffer_free(extra(l, 0, 64));
	extra(l, 0, 64);
	extra(l, 1, 64);
	extra(l, 1, 64);
	expect_disagreement(l, "buffer allocation 7 differs: rank 0 has 64 bytes at offset ");
	local_close(l);
}

/* What is told of allocations is not changed while an earlier call may read it. */
static void test_tell_in_flight(void **state)
{
	struct local *l = local_open(2, 1 << 16);
	struct npuwin_request *request[2][2];
	uint32_t r, i;

	local_operands(l, 2, 4, NPUWIN_FP32);
	for (i = 0; i < 2; i++) {
		for (r = 0; r < 2; r++) {
			assert_ok(l, npuwin_all_to_all_v_start(l->domain[r], &l->op[r], far(),
							       &request[r][i], &l->err));
			assert_int_equal(request[r][i]->tells, !i);
		}
		extra_on_all(l, 1, 64);
		for (r = 0; r < 2; r++)
			assert_true(heap_has_news(l->domain[r]->heap));
	}
	for (r = 0; r < 2; r++)
		for (i = 0; i < 2; i++) {
			assert_ok(l, npuwin_request_wait(request[r][i], far(), NULL, &l->err));
			npuwin_request_free(request[r][i]);
		}
	local_exchange(l, 0);
	for (r = 0; r < 2; r++)
		assert_false(heap_has_news(l->domain[r]->heap));
	extra(l, 1, 100);
	expect_disagreement(l, "buffer allocation 8 differs: rank 0 has none, rank 1 has 100 bytes");
	local_close(l);
}

/* One of many is wrong: every rank is told, the others name the odd one out. */
static void test_disagree_one_of_many(void **state)
{
	struct local *l = local_open(16, 1 << 20);

	local_operands(l, 2, 4, NPUWIN_FP32);
	l->op[11].mode = NPUWIN_MODE_ROWS;
	expect_disagreement(l, "has rows");
	l->op[11].mode = NPUWIN_MODE_BLOCK;
	local_exchange(l, 0);
	local_close(l);
}

static void test_call_order(void **state)
{
	struct local *l = local_open(2, 1 << 16);
	struct npuwin_request *request;

	local_operands(l, 2, 4, NPUWIN_FP32);
	assert_ok(l, npuwin_all_to_all_v_start(l->domain[0], &l->op[0], far(), &request,
					       &l->err));
	assert_error(l, npuwin_barrier(l->domain[1], far(), &l->err), -EPROTO,
		     "barrier: the collective differs: rank 0 has all_to_all_v, rank 1 has barrier");
	assert_error(l, npuwin_request_wait(request, far(), NULL, &l->err), -EPROTO,
		     "all_to_all_v: the collective differs: rank 0 has all_to_all_v, rank 1 has barrier");
	npuwin_request_free(request);
	local_settled(l);
	assert_ok(l, npuwin_barrier_group(l->domain, 2, far(), &l->err));
	local_exchange(l, 0);
	local_close(l);
}

/* A rank that does not come: named, with its counter; then reset, then a correct call. */
static void test_deadline(void **state)
{
	struct local *l = local_open(3, 1 << 16);
	uint32_t rail;

	local_operands(l, 2, 4, NPUWIN_FP32);
	for (rail = NPUWIN_RAIL_HOST; rail <= NPUWIN_RAIL_DIRECT; rail++) {
		l->op[0].rail = rail;
		l->op[1].rail = rail;
		l->op[2].rail = rail;
		local_exchange(l, 0);
		assert_error(l, npuwin_all_to_all_v_group(l->domain, l->op, 2,
							  npuwin_deadline_ms(20), NULL, &l->err),
			     -ETIMEDOUT, "rank 2 has not entered the call: its credit is 0, expected 1");
		assert_int_equal(l->err.peer, 2);
		assert_error(l, npuwin_all_to_all_v(l->domain[2], &l->op[2], far(), NULL, &l->err),
			     -ECANCELED, "aborted the domain: ETIMEDOUT");
		assert_ok(l, npuwin_domain_reset_group(l->domain, 3, far(), &l->err));
		local_settled(l);
		local_exchange(l, 1);
	}
	local_close(l);
}

/* A credit that never comes behind a handshake that worked: the other phase's sentence. */
static void test_deadline_delivery(void **state)
{
	struct local *l = local_open(2, 1 << 16);
	uint32_t r;

	local_operands(l, 2, 4, NPUWIN_FP32);
	/* The signal of rank 0 begins one credit short of zero. */
	local_counts(l, 0, SIGNAL)[1] = -1;
	assert_error(l, npuwin_all_to_all_v_group(l->domain, l->op, 2, npuwin_deadline_ms(20),
						  NULL, &l->err), -ETIMEDOUT,
		     "rank 1 has entered the call but not delivered: signal[1] is 0, expected 1");
	assert_int_equal(l->err.peer, 1);
	assert_ok(l, npuwin_domain_reset_group(l->domain, 2, far(), &l->err));
	for (r = 0; r < 2; r++)
		assert_memory_equal(local_counts(l, r, SIGNAL), ((int32_t[]) { 0, 0 }), 8);
	local_exchange(l, 0);
	local_close(l);
}

/* A deadline that has passed is no success, unless nobody has to be waited for. */
static void test_deadline_passed(void **state)
{
	static const int64_t past[] = { INT64_MIN, -1, 0, 1 };
	struct local *l = local_open(2, 1 << 16);
	uint32_t i;

	local_operands(l, 2, 4, NPUWIN_FP32);
	for (i = 0; i < ARRAY_SIZE(past); i++) {
		assert_error(l, npuwin_all_to_all_v(l->domain[0], &l->op[0], past[i], NULL,
						    &l->err), -ETIMEDOUT, "rank 1 has not entered");
		assert_ok(l, npuwin_domain_reset_group(l->domain, 2, far(), &l->err));
	}
	local_exchange(l, 0);
	local_close(l);
}

static void test_group_arguments(void **state)
{
	struct local *l = local_open(3, 1 << 16), *other = local_open(2, 1 << 16);
	struct npuwin_domain *domain[3] = { l->domain[0], l->domain[1], l->domain[0] };
	struct npuwin_a2av_result results[3] = { 0 };
	uint8_t *copy;

	local_operands(l, 2, 4, NPUWIN_FP32);
	copy = local_snapshot(l);
	assert_error(l, npuwin_all_to_all_v_group(l->domain, l->op, 0, far(), NULL, &l->err),
		     -EINVAL, "no domain");
	assert_error(l, npuwin_all_to_all_v_group(domain, l->op, 3, far(), NULL, &l->err),
		     -EINVAL, "domains[0] and domains[2] are both rank 0");
	domain[2] = NULL;
	assert_error(l, npuwin_all_to_all_v_group(domain, l->op, 3, far(), NULL, &l->err),
		     -EINVAL, "domains[2] is NULL");
	domain[2] = other->domain[1];
	assert_error(l, npuwin_barrier_group(domain, 3, far(), &l->err),
		     -EINVAL, "domains[2] has 2 ranks, domains[0] has 3");
	results[1].reserved[3] = 1;
	assert_error(l, npuwin_all_to_all_v_group(l->domain, l->op, 3, far(), results, &l->err),
		     -EINVAL, "reserved[3] of the result is 0x1, want 0");
	results[1].reserved0 = 0x80000000;
	assert_error(l, npuwin_all_to_all_v_group(l->domain, l->op, 3, far(), results, &l->err),
		     -EINVAL, "reserved0 of the result is 0x80000000, want 0");
	/* The last one's argument keeps all from starting. */
	l->op[2].mode = 7;
	assert_error(l, npuwin_all_to_all_v_group(l->domain, l->op, 3, far(), NULL, &l->err),
		     -EINVAL, "mode is 7");
	assert_int_equal(l->err.rank, 2);
	local_unchanged(l, copy);
	l->op[2].mode = NPUWIN_MODE_BLOCK;
	local_exchange(l, 0);
	local_close(other);
	local_close(l);
}

struct worker {
	struct local *l;
	uint32_t rank;
	uint32_t calls;
	pthread_t thread;
};

/* A rank in its own thread, whose consumer is slow now and then. */
static void *work(void *arg)
{
	struct worker *w = arg;
	struct npuwin_error err;
	uint32_t call, d, x = w->rank * 7 + 1;
	int32_t counts[MAX_LOCAL];

	for (call = 0; call < w->calls; call++) {
		for (d = 0; d < w->l->n; d++)
			counts[d] = (int32_t)((w->rank + d + call) % (w->l->max_recv + 1));
		local_fill(w->l, w->rank, counts, call);
		if (npuwin_all_to_all_v(w->l->domain[w->rank], &w->l->op[w->rank], far(), NULL,
					&err))
			return strdup(err.text);
		for (x = x * 1103515245 + 12345, d = x >> 28; d; d--)
			sched_yield();
		for (d = 0; d < w->l->n; d++)
			counts[d] = (int32_t)((w->rank + d + call) % (w->l->max_recv + 1));
		local_verify(w->l, w->rank, counts, call);
	}
	return NULL;
}

static void run_threads(uint32_t n, uint32_t calls, uint32_t rail, uint32_t mode)
{
	struct local *l = local_open(n, 1 << 20);
	struct worker w[MAX_LOCAL];
	uint32_t r;
	void *text;

	local_operands(l, 3, 7, NPUWIN_INT16);
	for (r = 0; r < n; r++) {
		l->op[r].rail = rail;
		l->op[r].mode = mode;
		w[r] = (struct worker) { .l = l, .rank = r, .calls = calls };
		assert_int_equal(pthread_create(&w[r].thread, NULL, work, &w[r]), 0);
	}
	for (r = 0; r < n; r++) {
		pthread_join(w[r].thread, &text);
		if (text)
			fail_msg("rank %u: %s", r, (char *)text);
	}
	local_settled(l);
	local_close(l);
}

static void test_threads(void **state)
{
	run_threads(4, 1000, NPUWIN_RAIL_HOST, NPUWIN_MODE_BLOCK);
	run_threads(4, 1000, NPUWIN_RAIL_DIRECT, NPUWIN_MODE_ROWS);
	run_threads(64, 5, NPUWIN_RAIL_HOST, NPUWIN_MODE_ROWS);
	run_threads(64, 5, NPUWIN_RAIL_DIRECT, NPUWIN_MODE_BLOCK);
}

/* Two threads of each rank make the same calls: whoever is first, ranks stay in step. */
static void *barriers(void *arg)
{
	struct worker *w = arg;
	struct npuwin_error err;
	uint32_t i;

	for (i = 0; i < w->calls; i++)
		if (npuwin_barrier(w->l->domain[w->rank], far(), &err))
			return strdup(err.text);
	return NULL;
}

static void test_threads_share_a_rank(void **state)
{
	struct local *l = local_open(3, 1 << 16);
	struct worker w[6];
	uint32_t i;
	void *text;

	for (i = 0; i < 6; i++) {
		w[i] = (struct worker) { .l = l, .rank = i % 3, .calls = 200 };
		assert_int_equal(pthread_create(&w[i].thread, NULL, barriers, &w[i]), 0);
	}
	for (i = 0; i < 6; i++) {
		pthread_join(w[i].thread, &text);
		if (text)
			fail_msg("%s", (char *)text);
	}
	local_settled(l);
	local_close(l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_by_hand),
		cmocka_unit_test(test_golden),
		cmocka_unit_test(test_clamps),
		cmocka_unit_test(test_offsets),
		cmocka_unit_test(test_beyond_4gib),
		cmocka_unit_test(test_disagree),
		cmocka_unit_test(test_disagree_allocations),
		cmocka_unit_test(test_tell_in_flight),
		cmocka_unit_test(test_disagree_one_of_many),
		cmocka_unit_test(test_call_order),
		cmocka_unit_test(test_deadline),
		cmocka_unit_test(test_deadline_delivery),
		cmocka_unit_test(test_deadline_passed),
		cmocka_unit_test(test_group_arguments),
		cmocka_unit_test(test_threads),
		cmocka_unit_test(test_threads_share_a_rank),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
