// SPDX-License-Identifier: MIT
/* Symmetric buffers and element types. */
#include "local.h"

#define WINDOW	(1ULL << 20)

static struct npuwin_buffer *alloc(struct local *l, uint32_t r, uint64_t size, uint64_t align)
{
	struct npuwin_buffer *buffer;

	assert_ok(l, npuwin_buffer_alloc(l->domain[r], size, align, &buffer, &l->err));
	assert_int_equal(npuwin_buffer_size(buffer), size);
	if (align)
		assert_int_equal((uintptr_t)npuwin_buffer_ptr(buffer) % align, 0);
	return buffer;
}

/* The same order of calls gives the same offsets, and no two buffers overlap. */
static void test_symmetric(void **state)
{
	struct local *l = local_open(2, WINDOW);
	struct npuwin_buffer *held[2][64] = { 0 };
	uint32_t x = 1, step, i, j;

	for (step = 0; step < 4000; step++) {
		uint64_t size, align;

		x = x * 1103515245 + 12345;
		i = (x >> 16) % 64;
		if (held[0][i]) {
			npuwin_buffer_free(held[0][i]);
			npuwin_buffer_free(held[1][i]);
			held[0][i] = NULL;
			held[1][i] = NULL;
			continue;
		}
		size = 1 + (x >> 8) % 5000;
		align = (x >> 4) % 14 ? 1ULL << (x >> 4) % 13 : 0;
		held[0][i] = alloc(l, 0, size, align);
		held[1][i] = alloc(l, 1, size, align);
		assert_int_equal(held[0][i]->offset, held[1][i]->offset);
		for (j = 0; j < 64; j++)
			if (j != i && held[0][j])
				assert_true(held[0][j]->offset >= held[0][i]->offset + size ||
					    held[0][i]->offset >= held[0][j]->offset +
					    held[0][j]->size);
	}
	local_close(l);
}

/* A window is as large as was asked for, and all of it comes back. */
static void test_all_of_it(void **state)
{
	struct local *l = local_open(1, WINDOW);
	struct npuwin_buffer *a, *b, *c, *none;

	a = alloc(l, 0, WINDOW, 4096);
	assert_error(l, npuwin_buffer_alloc(l->domain[0], 1, 0, &none, &l->err), -ENOSPC,
		     "no room for 1 bytes: the largest free range is 0 of 1048576");
	npuwin_buffer_free(a);
	a = alloc(l, 0, WINDOW / 2, 0);
	b = alloc(l, 0, WINDOW / 4, 0);
	c = alloc(l, 0, WINDOW / 4, 0);
	npuwin_buffer_free(a);
	npuwin_buffer_free(c);
	assert_error(l, npuwin_buffer_alloc(l->domain[0], WINDOW * 3 / 4, 0, &none, &l->err),
		     -ENOSPC, "no room for 786432 bytes: the largest free range is 524288");
	assert_error(l, npuwin_buffer_alloc(l->domain[0], UINT64_MAX, 0, &none, &l->err),
		     -ENOSPC, "no room for 18446744073709551615 bytes");
	npuwin_buffer_free(b);
	alloc(l, 0, WINDOW, 0);
	local_close(l);
}

static void test_zeroed(void **state)
{
	struct local *l = local_open(1, WINDOW);
	struct npuwin_buffer *buffer;
	uint8_t *p;
	uint64_t i;

	buffer = alloc(l, 0, 10000, 0);
	memset(npuwin_buffer_ptr(buffer), 0xff, 10000);
	npuwin_buffer_free(buffer);
	buffer = alloc(l, 0, 20000, 0);
	p = npuwin_buffer_ptr(buffer);
	for (i = 0; i < 20000; i++)
		assert_int_equal(p[i], 0);
	local_close(l);
}

static void test_arguments(void **state)
{
	struct local *l = local_open(1, WINDOW);
	struct npuwin_buffer *none;

	assert_error(l, npuwin_buffer_alloc(l->domain[0], 0, 0, &none, &l->err), -EINVAL,
		     "size is 0");
	assert_error(l, npuwin_buffer_alloc(l->domain[0], 1, 3, &none, &l->err), -EINVAL,
		     "align is 3");
	assert_error(l, npuwin_buffer_alloc(l->domain[0], 1, 8192, &none, &l->err), -EINVAL,
		     "align is 8192");
	npuwin_buffer_free(NULL);
	local_close(l);
}

/* What the signature says of allocations: their number, sizes and places. */
static void test_history(void **state)
{
	struct local *l = local_open(3, WINDOW);
	uint32_t count[3], digest[3], r;

	npuwin_buffer_free(alloc(l, 0, 100, 0));
	alloc(l, 0, 100, 0);
	npuwin_buffer_free(alloc(l, 1, 100, 0));
	alloc(l, 1, 100, 0);
	/* Without the free in between: another place. */
	alloc(l, 2, 100, 0);
	alloc(l, 2, 100, 0);
	for (r = 0; r < 3; r++)
		heap_history(l->domain[r]->heap, &count[r], &digest[r]);
	assert_int_equal(count[0], 2);
	assert_int_equal(count[1], 2);
	assert_int_equal(count[2], 2);
	assert_int_equal(digest[0], digest[1]);
	assert_int_not_equal(digest[0], digest[2]);
	local_close(l);
}

/* A peer can claim any number of allocations, any digest and any history. */
static void test_difference(void **state)
{
	static const uint32_t claims[] = { 0, 1, 39, 40, 41, 72, 73, INT32_MAX, UINT32_MAX };
	struct local *l = local_open(1, WINDOW);
	const struct heap *heap = l->domain[0]->heap;
	struct allocation told[HISTORY];
	struct alloc_difference d;
	struct signature own = { 0 }, peer;
	uint32_t i;

	for (i = 0; i < 40; i++)
		alloc(l, 0, 64, 0);
	heap_history(heap, &own.allocs, &own.alloc_digest);
	memset(told, 0xff, sizeof(told));
	for (i = 0; i < ARRAY_SIZE(claims); i++) {
		peer = own;
		peer.allocs = claims[i];
		heap_difference(heap, &own, &peer, told, &d);
		assert_int_equal(d.number, 0);
		peer.alloc_digest = 0;
		heap_difference(heap, &own, &peer, told, &d);
		assert_int_equal(d.number, 0);
	}
	/* Where all agree there is none. */
	heap_tell(l->domain[0]->heap);
	memcpy(told, l->domain[0]->ep->window[0] + handshake_history(1, 0), sizeof(told));
	heap_difference(heap, &own, &own, told, &d);
	assert_int_equal(d.number, 0);
	/* Seen from an earlier call of its own, the later ones are the peer's. */
	peer = own;
	own.allocs = 38;
	heap_difference(heap, &own, &peer, told, &d);
	assert_int_equal(d.number, 39);
	assert_int_equal(d.own.size, 0);
	assert_int_equal(d.peer.size, 64);
	local_close(l);
}

static void test_dtypes(void **state)
{
	static const struct {
		const char *name;
		uint32_t size;
	} want[] = {
		[NPUWIN_FP64] = { "fp64", 8 }, [NPUWIN_FP32] = { "fp32", 4 },
		[NPUWIN_FP16] = { "fp16", 2 }, [NPUWIN_BF16] = { "bf16", 2 },
		[NPUWIN_FP8_E4M3] = { "fp8-e4m3", 1 }, [NPUWIN_FP8_E5M2] = { "fp8-e5m2", 1 },
		[NPUWIN_INT64] = { "int64", 8 }, [NPUWIN_INT32] = { "int32", 4 },
		[NPUWIN_INT16] = { "int16", 2 }, [NPUWIN_INT8] = { "int8", 1 },
		[NPUWIN_UINT8] = { "uint8", 1 },
	};
	uint32_t i;

	for (i = NPUWIN_FP64; i <= NPUWIN_UINT8; i++) {
		assert_string_equal(npuwin_dtype_name(i), want[i].name);
		assert_int_equal(npuwin_dtype_size(i), want[i].size);
	}
	for (i = 0; i < 3; i++) {
		static const uint32_t none[] = { 0, NPUWIN_UINT8 + 1, UINT32_MAX };

		assert_null(npuwin_dtype_name(none[i]));
		assert_int_equal(npuwin_dtype_size(none[i]), 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_symmetric),
		cmocka_unit_test(test_all_of_it),
		cmocka_unit_test(test_zeroed),
		cmocka_unit_test(test_arguments),
		cmocka_unit_test(test_history),
		cmocka_unit_test(test_difference),
		cmocka_unit_test(test_dtypes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
