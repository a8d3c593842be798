// SPDX-License-Identifier: MIT
/* put, notify, wait, test and barrier. */
#include "local.h"

#define SIZE	4096

struct pair {
	struct local *l;
	struct npuwin_buffer *a[2];
	struct npuwin_buffer *b[2];
};

static int setup(void **state)
{
	struct pair *p = calloc(1, sizeof(*p));
	uint32_t r, i;

	p->l = local_open(2, 1 << 18);
	for (r = 0; r < 2; r++) {
		assert_ok(p->l, npuwin_buffer_alloc(p->l->domain[r], SIZE, 0, &p->a[r],
						    &p->l->err));
		assert_ok(p->l, npuwin_buffer_alloc(p->l->domain[r], SIZE, 0, &p->b[r],
						    &p->l->err));
		for (i = 0; i < SIZE; i++)
			((uint8_t *)npuwin_buffer_ptr(p->a[r]))[i] = (uint8_t)(i * 7 + r);
	}
	*state = p;
	return 0;
}

static int teardown(void **state)
{
	struct pair *p = *state;

	local_close(p->l);
	free(p);
	return 0;
}

/* 3 rows of 10 bytes from a of rank 0 to b of rank 1, with gaps. */
static struct npuwin_put base(const struct pair *p, uint32_t rail)
{
	return (struct npuwin_put) {
		.src = p->a[0],
		.src_offset = 5,
		.src_stride = 16,
		.dst = p->b[0],
		.dst_offset = 100,
		.dst_stride = 12,
		.rows = 3,
		.row_bytes = 10,
		.dst_rank = 1,
		.rail = rail,
	};
}

static void test_put(void **state)
{
	struct pair *p = *state;
	uint32_t rail, i, j;

	for (rail = NPUWIN_RAIL_HOST; rail <= NPUWIN_RAIL_DIRECT; rail++) {
		struct npuwin_put put = base(p, rail);
		const uint8_t *from = npuwin_buffer_ptr(p->a[0]);
		uint8_t *to = npuwin_buffer_ptr(p->b[1]), want[SIZE] = { 0 };

		memset(to, 0, SIZE);
		for (i = 0; i < 3; i++)
			for (j = 0; j < 10; j++)
				want[100 + 12 * i + j] = from[5 + 16 * i + j];
		assert_ok(p->l, npuwin_put(p->l->domain[0], &put, &p->l->err));
		assert_memory_equal(to, want, SIZE);
		/* Rows without gaps, more than a descriptor can count. */
		put.src_offset = 0;
		put.dst_offset = 0;
		put.row_bytes = 0;
		put.rows = UINT64_MAX;
		assert_ok(p->l, npuwin_put(p->l->domain[0], &put, &p->l->err));
		put = base(p, rail);
		put.rows = SIZE;
		put.row_bytes = 1;
		put.src_stride = 1;
		put.dst_stride = 1;
		put.src_offset = 0;
		put.dst_offset = 0;
		assert_ok(p->l, npuwin_put(p->l->domain[0], &put, &p->l->err));
		assert_memory_equal(to, from, SIZE);
		/* To the own rank, overlapping: as by memmove. */
		memcpy(npuwin_buffer_ptr(p->b[0]), from, SIZE);
		put = base(p, rail);
		put.src = p->b[0];
		put.src_offset = 0;
		put.rows = 1;
		put.row_bytes = 1000;
		put.dst_rank = 0;
		assert_ok(p->l, npuwin_put(p->l->domain[0], &put, &p->l->err));
		assert_memory_equal((uint8_t *)npuwin_buffer_ptr(p->b[0]) + 100, from, 1000);
	}
}

static void test_put_adds(void **state)
{
	struct pair *p = *state;
	uint32_t rail;

	for (rail = NPUWIN_RAIL_HOST; rail <= NPUWIN_RAIL_DIRECT; rail++) {
		struct npuwin_put put = base(p, rail);
		int32_t *src = npuwin_buffer_ptr(p->a[0]), *dst = npuwin_buffer_ptr(p->b[1]);
		float *fdst = (float *)dst, two = 2.5f, half = 0.5f;

		put.src_offset = 0;
		put.dst_offset = 0;
		put.rows = 1;
		put.row_bytes = 8;
		put.op = NPUWIN_ADD_INT32;
		src[0] = INT32_MAX;
		src[1] = -5;
		dst[0] = 1;
		dst[1] = 7;
		assert_ok(p->l, npuwin_put(p->l->domain[0], &put, &p->l->err));
		assert_int_equal(dst[0], INT32_MIN);
		assert_int_equal(dst[1], 2);
		put.op = NPUWIN_ADD_FP32;
		put.row_bytes = 4;
		memcpy(src, &two, 4);
		memcpy(dst, &half, 4);
		assert_ok(p->l, npuwin_put(p->l->domain[0], &put, &p->l->err));
		assert_true(fdst[0] == 3.0f);
	}
}

static void put_refused(struct pair *p, const struct npuwin_put *put, int code, const char *text)
{
	uint8_t *copy = local_snapshot(p->l);

	assert_error(p->l, npuwin_put(p->l->domain[0], put, &p->l->err), code, text);
	assert_memory_equal(p->l->err.text, "put: ", 5);
	local_unchanged(p->l, copy);
}

static void test_put_arguments(void **state)
{
	struct pair *p = *state;
	struct npuwin_put put;

#define REFUSED(code, text, change) do {					\
	put = base(p, NPUWIN_RAIL_HOST);					\
	change;									\
	put_refused(p, &put, code, text);					\
} while (0)
	REFUSED(-EINVAL, "src: the buffer is NULL", put.src = NULL);
	REFUSED(-EINVAL, "dst: the buffer is NULL", put.dst = NULL);
	REFUSED(-EINVAL, "src: is no buffer of this domain", put.src = p->a[1]);
	REFUSED(-EINVAL, "dst: is no buffer of this domain", put.dst = p->b[1]);
	REFUSED(-EINVAL, "dst_rank is 2", put.dst_rank = 2);
	REFUSED(-EINVAL, "op is 3", put.op = 3);
	REFUSED(-EINVAL, "rail is 2", put.rail = 2);
	REFUSED(-EINVAL, "reserved is 0x1, want 0", put.reserved = 1);
	REFUSED(-EINVAL, "src_stride is 9, less than the row of 10", put.src_stride = 9);
	REFUSED(-EINVAL, "dst_stride is 0, less than the row of 10", put.dst_stride = 0);
	REFUSED(-ERANGE, "src: 42 bytes at offset 4055 are outside", put.src_offset = 4055);
	REFUSED(-ERANGE, "dst: 34 bytes at offset 4063 are outside", put.dst_offset = 4063);
	REFUSED(-ERANGE, "dst: 34 bytes at offset 18446744073709551615",
		put.dst_offset = UINT64_MAX);
	REFUSED(-EOVERFLOW, "src_stride of 9223372036854775808 overflow",
		put.src_stride = 1ULL << 63);
	REFUSED(-EOVERFLOW, "18446744073709551615 rows", put.rows = UINT64_MAX);
	REFUSED(-EINVAL, "src_offset is 5, not a multiple of 4", put.op = NPUWIN_ADD_INT32);
	REFUSED(-EINVAL, "src_stride is 17, not a multiple of 4",
		(put.op = NPUWIN_ADD_FP32, put.src_offset = 4, put.row_bytes = 8,
		 put.src_stride = 17));
#undef REFUSED
	put = base(p, NPUWIN_RAIL_HOST);
	put.src_offset = 4054;
	put.dst_offset = 4062;
	assert_ok(p->l, npuwin_put(p->l->domain[0], &put, &p->l->err));
}

static void test_notify(void **state)
{
	struct pair *p = *state;
	struct npuwin_domain *d = p->l->domain[0];
	int32_t *cell = (int32_t *)npuwin_buffer_ptr(p->b[1]) + 2;
	uint32_t rail;

	for (rail = NPUWIN_RAIL_HOST; rail <= NPUWIN_RAIL_DIRECT; rail++) {
		assert_ok(p->l, npuwin_notify(d, 1, p->b[0], 8, NPUWIN_SET, INT32_MAX, rail,
					      &p->l->err));
		assert_int_equal(*cell, INT32_MAX);
		assert_ok(p->l, npuwin_notify(d, 1, p->b[0], 8, NPUWIN_ADD, 1, rail,
					      &p->l->err));
		assert_int_equal(*cell, INT32_MIN);
		assert_int_equal(cell[-1], 0);
		assert_int_equal(cell[1], 0);
	}
	assert_error(p->l, npuwin_notify(d, 1, p->b[0], 6, NPUWIN_SET, 0, 0, &p->l->err),
		     -EINVAL, "notify: offset is 6");
	assert_error(p->l, npuwin_notify(d, 1, p->b[0], SIZE, NPUWIN_SET, 0, 0, &p->l->err),
		     -ERANGE, "4 bytes at offset 4096");
	assert_error(p->l, npuwin_notify(d, 1, p->b[0], 8, 2, 0, 0, &p->l->err),
		     -EINVAL, "op is 2");
	assert_error(p->l, npuwin_notify(d, 2, p->b[0], 8, NPUWIN_SET, 0, 0, &p->l->err),
		     -EINVAL, "dst_rank is 2");
	assert_error(p->l, npuwin_notify(d, 1, p->b[0], 8, NPUWIN_SET, 0, 9, &p->l->err),
		     -EINVAL, "rail is 9");
}

static void test_compare(void **state)
{
	struct pair *p = *state;
	static const struct {
		uint32_t cmp;
		bool less;
		bool same;
		bool more;
	} want[] = {
		{ NPUWIN_EQ, false, true, false }, { NPUWIN_NE, true, false, true },
		{ NPUWIN_GT, false, false, true }, { NPUWIN_GE, false, true, true },
		{ NPUWIN_LT, true, false, false }, { NPUWIN_LE, true, true, false },
	};
	struct npuwin_domain *d = p->l->domain[0];
	int32_t seen;
	uint32_t i;
	int v;

	for (i = 0; i < 6; i++)
		for (v = -1; v <= 1; v++) {
			bool holds = v < 0 ? want[i].less : v ? want[i].more : want[i].same;

			*(int32_t *)npuwin_buffer_ptr(p->b[0]) = v;
			seen = 99;
			assert_int_equal(npuwin_test(d, p->b[0], 0, want[i].cmp, 0, &seen,
						     &p->l->err), holds ? 0 : -EAGAIN);
			assert_int_equal(seen, v);
			seen = 99;
			assert_int_equal(npuwin_wait(d, p->b[0], 0, want[i].cmp, 0, 0, &seen,
						     &p->l->err), holds ? 0 : -ETIMEDOUT);
			assert_int_equal(seen, v);
		}
	assert_error(p->l, npuwin_wait(d, p->b[0], 0, NPUWIN_GE, 5, npuwin_deadline_ms(5), NULL,
				       &p->l->err), -ETIMEDOUT,
		     "wait: deadline: int32 at offset 0 is 1, expected >= 5");
	assert_error(p->l, npuwin_test(d, p->b[0], 0, NPUWIN_GE, 5, NULL, &p->l->err), -EAGAIN,
		     "test: int32 at offset 0 is 1, expected >= 5");
	assert_error(p->l, npuwin_wait(d, p->b[0], 0, 6, 5, 0, NULL, &p->l->err), -EINVAL,
		     "wait: cmp is 6");
	assert_error(p->l, npuwin_test(d, p->b[0], 1, 0, 5, NULL, &p->l->err), -EINVAL,
		     "test: offset is 1");
	assert_error(p->l, npuwin_test(d, NULL, 0, 0, 5, NULL, &p->l->err), -EINVAL,
		     "test: buffer: the buffer is NULL");
	/* An expired wait aborts nothing. */
	assert_ok(p->l, npuwin_barrier_group(p->l->domain, 2, far(), &p->l->err));
}

enum { ROUNDS = 2000 };

static void *pong(void *arg)
{
	struct pair *p = arg;
	struct npuwin_error err;
	int32_t i;

	for (i = 1; i <= ROUNDS; i++)
		if (npuwin_wait(p->l->domain[1], p->b[1], 0, NPUWIN_EQ, i, far(), NULL, &err) ||
		    npuwin_notify(p->l->domain[1], 0, p->b[1], 64, NPUWIN_ADD, 1, i % 2, &err))
			return strdup(err.text);
	return NULL;
}

/* What was put before a notify is there for who has seen it; nobody sleeps for ever. */
static void test_ping_pong(void **state)
{
	struct pair *p = *state;
	pthread_t thread;
	void *text;
	int32_t i;

	assert_int_equal(pthread_create(&thread, NULL, pong, p), 0);
	for (i = 1; i <= ROUNDS; i++) {
		assert_ok(p->l, npuwin_notify(p->l->domain[0], 1, p->b[0], 0, NPUWIN_SET, i,
					      i / 2 % 2, &p->l->err));
		assert_ok(p->l, npuwin_wait(p->l->domain[0], p->b[0], 64, NPUWIN_GE, i, far(),
					    NULL, &p->l->err));
	}
	pthread_join(thread, &text);
	if (text)
		fail_msg("%s", (char *)text);
}

static void *sleeper(void *arg)
{
	struct pair *p = arg;
	static struct npuwin_error err;

	npuwin_notify(p->l->domain[1], 0, p->b[1], 0, NPUWIN_SET, 1, 0, NULL);
	npuwin_wait(p->l->domain[1], p->b[1], 0, NPUWIN_EQ, 77, far(), NULL, &err);
	return &err;
}

/* An abort ends a wait, unless what it waits for is there. */
static void test_wait_aborted(void **state)
{
	struct pair *p = *state;
	struct npuwin_error *err;
	pthread_t thread;
	void *ret;

	assert_int_equal(pthread_create(&thread, NULL, sleeper, p), 0);
	assert_ok(p->l, npuwin_wait(p->l->domain[0], p->b[0], 0, NPUWIN_EQ, 1, far(), NULL,
				    &p->l->err));
	npuwin_domain_abort(p->l->domain[0], EIO);
	pthread_join(thread, &ret);
	err = ret;
	assert_int_equal(err->code, -ECANCELED);
	assert_non_null(strstr(err->text, "wait: rank 0 has aborted the domain: EIO"));
	assert_int_equal(err->peer, 0);
	assert_ok(p->l, npuwin_wait(p->l->domain[1], p->b[1], 0, NPUWIN_EQ, 0, far(), NULL,
				    &p->l->err));
	assert_error(p->l, npuwin_notify(p->l->domain[1], 0, p->b[1], 0, NPUWIN_SET, 1, 0,
					 &p->l->err), -ECANCELED,
		     "notify: rank 0 has aborted the domain");
	assert_ok(p->l, npuwin_domain_reset_group(p->l->domain, 2, far(), &p->l->err));
	assert_ok(p->l, npuwin_notify(p->l->domain[1], 0, p->b[1], 0, NPUWIN_SET, 1, 0,
				      &p->l->err));
}

/* To a rank that has left nothing can be written; the rest of the domain is usable. */
static void test_left(void **state)
{
	struct pair *p = *state;
	struct npuwin_put put = base(p, NPUWIN_RAIL_HOST);

	npuwin_domain_leave(p->l->domain[1]);
	p->l->domain[1] = NULL;
	assert_error(p->l, npuwin_put(p->l->domain[0], &put, &p->l->err), -EPIPE,
		     "put: rank 1 has left");
	assert_int_equal(p->l->err.peer, 1);
	assert_error(p->l, npuwin_notify(p->l->domain[0], 1, p->b[0], 0, NPUWIN_SET, 1, 0,
					 &p->l->err), -EPIPE, "notify: rank 1 has left");
	put.dst_rank = 0;
	assert_ok(p->l, npuwin_put(p->l->domain[0], &put, &p->l->err));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_put, setup, teardown),
		cmocka_unit_test_setup_teardown(test_put_adds, setup, teardown),
		cmocka_unit_test_setup_teardown(test_put_arguments, setup, teardown),
		cmocka_unit_test_setup_teardown(test_notify, setup, teardown),
		cmocka_unit_test_setup_teardown(test_compare, setup, teardown),
		cmocka_unit_test_setup_teardown(test_ping_pong, setup, teardown),
		cmocka_unit_test_setup_teardown(test_wait_aborted, setup, teardown),
		cmocka_unit_test_setup_teardown(test_left, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
