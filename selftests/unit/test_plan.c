// SPDX-License-Identifier: MIT
/* Plans: which calls share one, and what a repeated call costs. */
#include <stdatomic.h>

#include "local.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define COUNTS_ALLOCATIONS	0	/* the sanitizer's allocator cannot be stood in for */
#else
#define COUNTS_ALLOCATIONS	1

static atomic_uint allocations;

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *old, size_t size);

void *malloc(size_t size)
{
	allocations++;
	return __libc_malloc(size);
}

void *calloc(size_t nmemb, size_t size)
{
	allocations++;
	return __libc_calloc(nmemb, size);
}

void *realloc(void *ptr, size_t size)
{
	allocations++;
	return __libc_realloc(ptr, size);
}
#endif

static const struct plan *newest(const struct local *l)
{
	return l->domain[0]->plans->first;
}

/* Calls that differ in anything that shapes the program have plans of their own. */
static void test_identity(void **state)
{
	struct local *l = local_open(2, 1 << 20);
	struct npuwin_a2av variant[16];
	const struct plan *plan[16];
	uint32_t n = 0, i, j, r;

	local_operands(l, 8, 4, NPUWIN_FP32);
	/* Room for offsets. */
	for (r = 0; r < 2; r++) {
		struct npuwin_tensor *operand[OPERANDS] = {
			&l->op[r].input, &l->op[r].target, &l->op[r].signal,
			&l->op[r].send_counts, &l->op[r].recv_counts,
		};

		for (i = 0; i < OPERANDS; i++)
			assert_ok(l, npuwin_buffer_alloc(l->domain[r], 4096, 0,
							 &operand[i]->buffer, &l->err));
	}
	for (i = 0; i < 15; i++)
		variant[i] = l->op[0];
	n++;
	variant[n].input.shape[0] = 8;
	variant[n].target.shape[0] = 8;
	n++;
	variant[n].input.shape[1] = 5;
	variant[n].target.shape[1] = 5;
	n++;
	variant[n].input.dtype = NPUWIN_INT32;
	variant[n].target.dtype = NPUWIN_INT32;
	n++;
	variant[n].input.ndim = 3;
	variant[n].target.ndim = 3;
	variant[n].input.shape[2] = 1;
	variant[n].target.shape[2] = 1;
	n++;
	variant[n++].mode = NPUWIN_MODE_ROWS;
	variant[n++].rail = NPUWIN_RAIL_DIRECT;
	variant[n++].input.offset = 16;
	variant[n++].target.offset = 16;
	variant[n++].signal.offset = 16;
	variant[n++].send_counts.offset = 16;
	variant[n++].recv_counts.offset = 16;
	for (i = 0; i < n; i++) {
		struct npuwin_a2av other = variant[i];
		struct npuwin_a2av *op[2] = { &l->op[0], &l->op[1] };
		struct npuwin_a2av base = l->op[1];

		*op[0] = variant[i];
		other.input.buffer = base.input.buffer;
		other.target.buffer = base.target.buffer;
		other.signal.buffer = base.signal.buffer;
		other.send_counts.buffer = base.send_counts.buffer;
		other.recv_counts.buffer = base.recv_counts.buffer;
		*op[1] = other;
		assert_ok(l, local_run(l, NULL));
		plan[i] = newest(l);
		assert_int_equal(l->domain[0]->plans->count, i + 1);
		for (j = 0; j < i; j++)
			assert_ptr_not_equal(plan[i], plan[j]);
		/* Again: the same one, whatever lies in extents that it does not have. */
		op[0]->target.shape[7] = 99;
		op[1]->target.shape[7] = 99;
		assert_ok(l, local_run(l, NULL));
		assert_ptr_equal(newest(l), plan[i]);
		assert_int_equal(l->domain[0]->plans->count, i + 1);
		l->op[1] = base;
	}
	for (i = 0; i < n; i++)
		assert_int_equal(plan[i]->active, 0);
	local_close(l);
}

/* Two call sites that differ in MAX_RECV, in turns. */
static void test_two_sites(void **state)
{
	struct local *l = local_open(3, 1 << 20);
	struct local site[2];
	uint32_t i;

	for (i = 0; i < 2; i++) {
		local_operands(l, 2 + 3 * i, 4, NPUWIN_BF16);
		site[i] = *l;
	}
	for (i = 0; i < 40; i++)
		local_exchange(&site[i % 2], i);
	assert_int_equal(l->domain[0]->plans->count, 2);
	local_close(l);
}

static void test_no_allocation(void **state)
{
#if COUNTS_ALLOCATIONS
	struct local *l = local_open(4, 1 << 20);
	uint32_t rail, i, r, before;

	local_operands(l, 4, 4, NPUWIN_BF16);
	for (rail = NPUWIN_RAIL_HOST; rail <= NPUWIN_RAIL_DIRECT; rail++) {
		struct npuwin_a2av_result results[4] = { 0 };
		struct npuwin_request *request[4][2];

		for (r = 0; r < 4; r++)
			l->op[r].rail = rail;
		for (i = 0, before = 0; i < 20; i++) {
			/* What the first calls leave behind is all that there will be. */
			if (i == 2)
				before = allocations;
			assert_ok(l, local_run(l, results));
			assert_ok(l, npuwin_barrier_group(l->domain, 4, far(), &l->err));
			for (r = 0; r < 8; r++) {
				uint32_t own = r % 4;

				assert_ok(l, npuwin_all_to_all_v_start(l->domain[own], &l->op[own],
								       far(), &request[own][r / 4],
								       &l->err));
			}
			for (r = 0; r < 8; r++) {
				assert_ok(l, npuwin_request_wait(request[r % 4][r / 4], far(),
								 NULL, &l->err));
				npuwin_request_free(request[r % 4][r / 4]);
			}
		}
		assert_int_equal(allocations, before);
	}
	local_close(l);
#else
	skip();
#endif
}

/* Idle plans are bounded; those used last stay. */
static void test_bounded(void **state)
{
	struct local *l = local_open(1, 1 << 20);
	const struct plan *kept;
	struct npuwin_a2av op;
	uint32_t i;

	local_operands(l, 3 * PLANS_IDLE, 1, NPUWIN_INT8);
	op = l->op[0];
	local_exchange(l, 0);
	kept = newest(l);
	for (i = 1; i < 3 * PLANS_IDLE; i++) {
		op.input.shape[0] = i;
		op.target.shape[0] = i;
		assert_ok(l, npuwin_all_to_all_v(l->domain[0], &op, far(), NULL, &l->err));
		assert_true(l->domain[0]->plans->count <= PLANS_IDLE);
		assert_ok(l, npuwin_all_to_all_v(l->domain[0], &l->op[0], far(), NULL, &l->err));
		assert_ptr_equal(newest(l), kept);
	}
	assert_int_equal(l->domain[0]->plans->count, PLANS_IDLE);
	local_close(l);
}

/* A new buffer in the place of a freed one does not get its plan. */
static void test_freed_buffer(void **state)
{
	struct local *l = local_open(2, 1 << 20);
	uint32_t i;

	for (i = 0; i < 20; i++) {
		local_operands(l, 1 + i % 3, 4 + i % 2, NPUWIN_INT16);
		local_exchange(l, i);
		local_exchange(l, i + 1);
		assert_int_equal(l->domain[0]->plans->count, 1);
		local_free_operands(l);
		assert_int_equal(l->domain[0]->plans->count, 0);
	}
	local_close(l);
}

/* A complete request outlives the buffers and the plan that it was for. */
static void test_freed_under_request(void **state)
{
	struct local *l = local_open(1, 1 << 20);
	struct npuwin_a2av_result result = { 0 };
	struct npuwin_request *request;
	int32_t counts[1] = { 9 };

	local_operands(l, 2, 4, NPUWIN_INT16);
	local_fill(l, 0, counts, 0);
	assert_ok(l, npuwin_all_to_all_v_start(l->domain[0], &l->op[0], far(), &request,
					       &l->err));
	assert_ok(l, npuwin_request_wait(request, far(), NULL, &l->err));
	local_free_operands(l);
	assert_int_equal(l->domain[0]->plans->count, 0);
	assert_ok(l, npuwin_request_wait(request, far(), &result, &l->err));
	assert_int_equal(result.max_recv, 2);
	assert_int_equal(result.nclamped, 1);
	npuwin_request_free(request);
	local_operands(l, 2, 4, NPUWIN_INT16);
	local_exchange(l, 0);
	local_close(l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_identity),
		cmocka_unit_test(test_two_sites),
		cmocka_unit_test(test_no_allocation),
		cmocka_unit_test(test_bounded),
		cmocka_unit_test(test_freed_buffer),
		cmocka_unit_test(test_freed_under_request),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
