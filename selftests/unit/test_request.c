// SPDX-License-Identifier: MIT
/* Requests: several in flight, both rails, mismatches behind each other, and their ends. */
#include <poll.h>

#include "local.h"

static struct npuwin_request *start(struct local *l, uint32_t r)
{
	struct npuwin_request *request;

	assert_ok(l, npuwin_all_to_all_v_start(l->domain[r], &l->op[r], far(), &request,
					       &l->err));
	return request;
}

static void finish(struct local *l, struct npuwin_request *request)
{
	assert_ok(l, npuwin_request_wait(request, far(), NULL, &l->err));
	npuwin_request_free(request);
}

static void fill_all(struct local *l, uint32_t call)
{
	int32_t counts[MAX_LOCAL];
	uint32_t r, d;

	for (r = 0; r < l->n; r++) {
		for (d = 0; d < l->n; d++)
			counts[d] = (int32_t)l->max_recv;
		local_fill(l, r, counts, call);
	}
}

static void verify_all(struct local *l, uint32_t call)
{
	int32_t counts[MAX_LOCAL];
	uint32_t r, d;

	for (d = 0; d < l->n; d++)
		counts[d] = (int32_t)l->max_recv;
	for (r = 0; r < l->n; r++)
		local_verify(l, r, counts, call);
}

static void test_start_and_wait(void **state)
{
	struct local *l = local_open(3, 1 << 18);
	struct npuwin_request *request[3];
	struct npuwin_a2av_result result = { 0 };
	uint32_t rail, r;

	local_operands(l, 2, 4, NPUWIN_FP32);
	for (rail = NPUWIN_RAIL_HOST; rail <= NPUWIN_RAIL_DIRECT; rail++) {
		for (r = 0; r < 3; r++)
			l->op[r].rail = rail;
		fill_all(l, rail);
		request[0] = start(l, 0);
		request[1] = start(l, 1);
		/* Rank 2 has not started. */
		assert_error(l, npuwin_request_test(request[0], NULL, &l->err), -EAGAIN,
			     "not complete");
		assert_error(l, npuwin_request_wait(request[1], 0, NULL, &l->err), -EAGAIN,
			     "not complete");
		assert_error(l, npuwin_request_wait(request[1], npuwin_deadline_ms(1), NULL,
						    &l->err), -EAGAIN, "not complete");
		request[2] = start(l, 2);
		/* One thread moves all of them on by testing. */
		for (r = 0; r < 3; r = r + 1) {
			int rc;

			do {
				rc = npuwin_request_test(request[r], &result, &l->err);
				npuwin_request_test(request[(r + 1) % 3], NULL, NULL);
				npuwin_request_test(request[(r + 2) % 3], NULL, NULL);
			} while (rc == -EAGAIN);
			assert_int_equal(rc, 0);
			assert_int_equal(result.max_recv, 2);
			assert_int_equal(result.bytes, 3 * 2 * 16);
		}
		verify_all(l, rail);
		for (r = 0; r < 3; r++) {
			assert_ok(l, npuwin_request_wait(request[r], 0, NULL, &l->err));
			npuwin_request_free(request[r]);
		}
	}
	npuwin_request_free(NULL);
	local_close(l);
}

/* Many in flight on each rank before anybody looks, each with operands of its own. */
static void test_pipelined(void **state)
{
	enum { DEPTH = 24 };
	struct local *l = local_open(4, 4 << 20), call[DEPTH];
	struct npuwin_request *request[4][DEPTH];
	uint32_t i, r;

	for (i = 0; i < DEPTH; i++) {
		local_operands(l, 1 + i % 4, 4, NPUWIN_FP32);
		call[i] = *l;
		fill_all(&call[i], i);
	}
	for (r = 0; r < 4; r++)
		for (i = 0; i < DEPTH; i++)
			request[r][i] = start(&call[i], r);
	for (i = 0; i < DEPTH; i++)
		for (r = 0; r < 4; r++)
			finish(l, request[r][DEPTH - 1 - i]);
	for (i = 0; i < DEPTH; i++)
		verify_all(&call[i], i);
	local_settled(l);
	local_close(l);
}

static void test_fd(void **state)
{
	struct local *l = local_open(2, 1 << 18);
	uint32_t rail, r;

	local_operands(l, 2, 4, NPUWIN_FP32);
	for (rail = NPUWIN_RAIL_HOST; rail <= NPUWIN_RAIL_DIRECT; rail++) {
		struct npuwin_request *request[2];
		struct pollfd fds[2];

		fill_all(l, rail);
		l->op[0].rail = rail;
		l->op[1].rail = rail;
		for (r = 0; r < 2; r++) {
			request[r] = start(l, r);
			fds[r].fd = npuwin_request_fd(request[r], &l->err);
			fds[r].events = POLLIN;
			assert_true(fds[r].fd >= 0);
			assert_int_equal(npuwin_request_fd(request[r], NULL), fds[r].fd);
			if (!r)
				assert_int_equal(poll(fds, 1, 0), 0);
		}
		/* They go on by themselves. */
		for (r = 0; r < 2; r++) {
			assert_int_equal(poll(&fds[r], 1, 120000), 1);
			assert_ok(l, npuwin_request_test(request[r], NULL, &l->err));
			npuwin_request_free(request[r]);
		}
		verify_all(l, rail);
		/* One that is made after completion is readable at once. */
		request[0] = start(l, 0);
		request[1] = start(l, 1);
		assert_ok(l, npuwin_request_wait(request[1], far(), NULL, &l->err));
		finish(l, request[0]);
		fds[1].fd = npuwin_request_fd(request[1], &l->err);
		assert_int_equal(poll(&fds[1], 1, 120000), 1);
		npuwin_request_free(request[1]);
	}
	local_close(l);
}

/* Calls that are in flight on one rail come before those that start on the other. */
static void test_both_rails(void **state)
{
	struct local *l = local_open(3, 1 << 18);
	uint32_t i, r;

	local_operands(l, 2, 4, NPUWIN_FP32);
	for (i = 0; i < 20; i++) {
		struct npuwin_request *request[3];

		fill_all(l, i);
		for (r = 0; r < 3; r++) {
			l->op[r].rail = i % 2;
			request[r] = start(l, r);
		}
		if (i % 3 == 0)
			assert_ok(l, npuwin_barrier_group(l->domain, 3, far(), &l->err));
		for (r = 0; r < 3; r++)
			l->op[r].rail = 1 - i % 2;
		assert_ok(l, local_run(l, NULL));
		for (r = 0; r < 3; r++)
			finish(l, request[r]);
		verify_all(l, i);
	}
	local_settled(l);
	local_close(l);
}

/* On another rail than what cannot complete, a call ends at its deadline. */
static void test_other_rail_is_stuck(void **state)
{
	struct local *l = local_open(2, 1 << 18);
	struct npuwin_request *request, *none;

	local_operands(l, 2, 4, NPUWIN_FP32);
	request = start(l, 0);
	l->op[0].rail = NPUWIN_RAIL_DIRECT;
	assert_error(l, npuwin_all_to_all_v_start(l->domain[0], &l->op[0],
						  npuwin_deadline_ms(10), &none, &l->err),
		     -ETIMEDOUT, "an earlier call on the other rail");
	npuwin_request_free(request);
	assert_ok(l, npuwin_domain_reset_group(l->domain, 2, far(), &l->err));
	l->op[0].rail = NPUWIN_RAIL_HOST;
	local_exchange(l, 0);
	local_close(l);
}

static int32_t *cell_of(struct local *l, uint32_t rank, uint64_t offset)
{
	return (int32_t *)(l->domain[rank]->ep->window[rank] + offset);
}

static void assert_late(const struct local *l, int32_t peer, const char *sentence)
{
	assert_int_equal(l->err.rank, 0);
	assert_int_equal(l->err.peer, peer);
	assert_string_equal(l->err.text, sentence);
}

/* Requests go on while somebody looks. */
static void look(struct npuwin_request *request)
{
	assert_int_equal(npuwin_request_test(request, NULL, NULL), -EAGAIN);
}

static void expect_late(struct local *l, uint32_t rank, const char *sentence)
{
	struct npuwin_a2av op = l->op[0];
	struct npuwin_request *none;

	op.rail = NPUWIN_RAIL_DIRECT;
	assert_int_equal(npuwin_all_to_all_v_start(l->domain[0], &op, npuwin_deadline_ms(10),
						   &none, &l->err), -ETIMEDOUT);
	assert_late(l, (int32_t)rank, sentence);
}

/* Whom the earlier call waits for is told, and what for. */
static void test_other_rail_tells_whom(void **state)
{
	struct local *l = local_open(4, 1 << 18);
	struct npuwin_request *request[4] = { NULL };
	uint32_t r;

	local_operands(l, 2, 4, NPUWIN_FP32);
	for (r = 0; r < 4; r++) {
		request[r] = r == 2 ? NULL : start(l, r);
		if (request[r])
			look(request[r]);
	}
	expect_late(l, 2, "all_to_all_v: deadline: an earlier call on the other rail is not complete: rank 2 has not entered it");
	for (r = 0; r < 4; r++)
		npuwin_request_free(request[r]);
	assert_ok(l, npuwin_domain_reset_group(l->domain, 4, far(), &l->err));

	/* The last one enters, and is not heard of again. */
	for (r = 0; r < 3; r++) {
		request[r] = start(l, r);
		look(request[r]);
	}
	for (r = 0; r < 3; r++) {
		memcpy(cell_of(l, r, handshake_slot(4, 0, 3)), &request[r]->signature,
		       sizeof(struct signature));
		__atomic_store_n(cell_of(l, r, handshake_ready(4, 0, 3)), 1, __ATOMIC_RELEASE);
	}
	for (r = 0; r < 3; r++)
		look(request[r]);
	expect_late(l, 3, "all_to_all_v: deadline: an earlier call on the other rail is not complete: rank 3 has entered it but not delivered");
	for (r = 0; r < 3; r++)
		npuwin_request_free(request[r]);
	assert_ok(l, npuwin_domain_reset_group(l->domain, 4, far(), &l->err));
	local_exchange(l, 0);
	local_close(l);
}

struct lonely {
	struct local *l;
	struct npuwin_error err;
	int rc;
};

static void *call_alone(void *arg)
{
	struct lonely *caller = arg;

	caller->rc = npuwin_all_to_all_v(caller->l->domain[0], &caller->l->op[0], far(), NULL,
					 &caller->err);
	return NULL;
}

/* So is it where the earlier call is another thread's, which is in it. */
static void test_turn_tells_whom(void **state)
{
	struct local *l = local_open(2, 1 << 18);
	struct npuwin_request *none;
	struct lonely caller = { .l = l };
	pthread_t thread;
	int32_t *ready;
	int grouped, rc;

	local_operands(l, 2, 4, NPUWIN_FP32);
	ready = cell_of(l, 1, handshake_ready(2, 0, 0));
	for (grouped = 0; grouped < 2; grouped++) {
		assert_int_equal(pthread_create(&thread, NULL, call_alone, &caller), 0);
		/* It has told the other one that it is in the call. */
		while (!__atomic_load_n(ready, __ATOMIC_RELAXED))
			sched_yield();
		if (grouped)
			rc = npuwin_all_to_all_v_group(l->domain, l->op, 2, npuwin_deadline_ms(10),
						       NULL, &l->err);
		else
			rc = npuwin_all_to_all_v_start(l->domain[0], &l->op[0],
						       npuwin_deadline_ms(10), &none, &l->err);
		assert_int_equal(rc, -ETIMEDOUT);
		assert_late(l, 1,
			    "all_to_all_v: deadline: an earlier call of this rank is not complete: rank 1 has not entered it");
		assert_int_equal(pthread_join(thread, NULL), 0);
		assert_int_equal(caller.rc, -ECANCELED);
		assert_ok(l, npuwin_domain_reset_group(l->domain, 2, far(), &l->err));
	}
	local_exchange(l, 0);
	local_close(l);
}

/* A mismatch between calls that agree, all in flight: ranks stay in step. */
static void test_mismatch_in_between(void **state)
{
	enum { DEPTH = 5 };
	struct local *l = local_open(3, 1 << 18), call[DEPTH];
	struct npuwin_request *request[3][DEPTH];
	uint32_t rail, i, r;

	for (i = 0; i < DEPTH; i++) {
		local_operands(l, 2, 4, NPUWIN_FP32);
		call[i] = *l;
	}
	for (rail = NPUWIN_RAIL_HOST; rail <= NPUWIN_RAIL_DIRECT; rail++) {
		for (r = 0; r < 3; r++)
			for (i = 0; i < DEPTH; i++) {
				call[i].op[r].rail = rail;
				call[i].op[r].mode = r == 1 && (i == 1 || i == 2);
			}
		for (i = 0; i < DEPTH; i++)
			fill_all(&call[i], i);
		for (r = 0; r < 3; r++)
			for (i = 0; i < DEPTH; i++)
				request[r][i] = start(&call[i], r);
		for (i = 0; i < DEPTH; i++)
			for (r = 0; r < 3; r++) {
				struct npuwin_request *q = request[r][i];

				if (i == 1 || i == 2) {
					assert_error(l, npuwin_request_wait(q, far(), NULL,
									    &l->err), -EPROTO,
						     "mode differs: rank ");
					npuwin_request_free(q);
				} else {
					finish(l, q);
				}
			}
		verify_all(&call[0], 0);
		verify_all(&call[3], 3);
		verify_all(&call[4], 4);
		local_settled(l);
	}
	local_close(l);
}

/* So many calls later that the signatures are gone: still an error that names the rank. */
static void test_mismatch_seen_late(void **state)
{
	struct local *l = local_open(2, 1 << 18);
	struct npuwin_request *request[2];
	uint32_t i;

	local_operands(l, 2, 4, NPUWIN_FP32);
	l->op[1].mode = NPUWIN_MODE_ROWS;
	request[0] = start(l, 0);
	request[1] = start(l, 1);
	l->op[1].mode = NPUWIN_MODE_BLOCK;
	for (i = 0; i < HANDSHAKE_SLOTS; i++)
		local_exchange(l, i);
	assert_error(l, npuwin_request_wait(request[0], far(), NULL, &l->err), -EPROTO,
		     "rank 0 and rank 1 have not made the same call");
	assert_int_equal(l->err.peer, 1);
	assert_error(l, npuwin_request_wait(request[1], far(), NULL, &l->err), -EPROTO,
		     "rank 1 and rank 0 have not made the same call");
	npuwin_request_free(request[0]);
	npuwin_request_free(request[1]);
	local_close(l);
}

/* More than there is room for in flight is an error that changes nothing. */
static void test_too_many(void **state)
{
	struct local *l = local_open(2, 1 << 18);
	struct npuwin_request *request[2][HANDSHAKE_STAGES], *none;
	uint32_t i, r;

	local_operands(l, 2, 4, NPUWIN_FP32);
	fill_all(l, 0);
	for (i = 0; i < HANDSHAKE_STAGES; i++)
		request[0][i] = start(l, 0);
	assert_error(l, npuwin_all_to_all_v_start(l->domain[0], &l->op[0], far(), &none, &l->err),
		     -EBUSY, "256 calls of this rank are in flight");
	for (i = 0; i < HANDSHAKE_STAGES; i++)
		request[1][i] = start(l, 1);
	for (i = 0; i < HANDSHAKE_STAGES; i++)
		for (r = 0; r < 2; r++)
			finish(l, request[r][i]);
	verify_all(l, 0);
	local_exchange(l, 1);
	local_close(l);
}

/* A request that is given up before it is complete aborts the domain. */
static void test_free_incomplete(void **state)
{
	struct local *l = local_open(2, 1 << 18);
	struct npuwin_request *request[3];
	uint32_t rail;

	local_operands(l, 2, 4, NPUWIN_FP32);
	for (rail = NPUWIN_RAIL_HOST; rail <= NPUWIN_RAIL_DIRECT; rail++) {
		l->op[0].rail = rail;
		l->op[1].rail = rail;
		request[0] = start(l, 0);
		request[1] = start(l, 0);
		npuwin_request_free(request[1]);
		assert_error(l, npuwin_request_wait(request[0], far(), NULL, &l->err),
			     -ECANCELED, "rank 0 has aborted the domain");
		npuwin_request_free(request[0]);
		assert_error(l, npuwin_all_to_all_v_start(l->domain[1], &l->op[1], far(),
							  &request[2], &l->err), -ECANCELED,
			     "rank 0 has aborted the domain: ECANCELED");
		assert_error(l, npuwin_barrier(l->domain[1], far(), &l->err), -ECANCELED,
			     "barrier: rank 0 has aborted the domain");
		assert_ok(l, npuwin_domain_reset_group(l->domain, 2, far(), &l->err));
		local_exchange(l, rail);
	}
	local_close(l);
}

/* Reset ends what is in flight, and leaves what was complete before. */
static void test_reset(void **state)
{
	struct local *l = local_open(2, 1 << 18);
	struct npuwin_request *done[2], *mismatch[2], *flying;
	uint32_t r;

	local_operands(l, 2, 4, NPUWIN_FP32);
	for (r = 0; r < 2; r++)
		done[r] = start(l, r);
	l->op[1].mode = NPUWIN_MODE_ROWS;
	for (r = 0; r < 2; r++)
		mismatch[r] = start(l, r);
	l->op[1].mode = NPUWIN_MODE_BLOCK;
	flying = start(l, 0);
	for (r = 0; r < 2; r++) {
		assert_ok(l, npuwin_request_wait(done[r], far(), NULL, &l->err));
		assert_int_equal(npuwin_request_wait(mismatch[r], far(), NULL, NULL), -EPROTO);
	}
	npuwin_domain_abort(l->domain[1], EIO);
	assert_ok(l, npuwin_domain_reset_group(l->domain, 2, far(), &l->err));
	local_settled(l);
	for (r = 0; r < 2; r++) {
		assert_ok(l, npuwin_request_wait(done[r], far(), NULL, &l->err));
		assert_error(l, npuwin_request_wait(mismatch[r], far(), NULL, &l->err), -EPROTO,
			     "mode differs");
		npuwin_request_free(done[r]);
		npuwin_request_free(mismatch[r]);
	}
	assert_int_equal(npuwin_request_wait(flying, far(), NULL, &l->err), -ECANCELED);
	local_exchange(l, 0);
	npuwin_request_free(flying);
	local_exchange(l, 1);
	local_close(l);
}

struct caller {
	struct local *l;
	bool done;
};

static void *call_in_vain(void *arg)
{
	struct caller *c = arg;
	uint32_t i;

	for (i = 0; i < 50; i++)
		npuwin_barrier(c->l->domain[0], far(), NULL);
	__atomic_store_n(&c->done, true, __ATOMIC_RELEASE);
	return NULL;
}

/* Resets while another thread calls: nothing of what they end is left. */
static void test_reset_under_calls(void **state)
{
	struct local *l = local_open(2, 1 << 18);
	struct caller c = { .l = l };
	pthread_t thread;

	local_operands(l, 2, 4, NPUWIN_FP32);
	assert_int_equal(pthread_create(&thread, NULL, call_in_vain, &c), 0);
	while (!__atomic_load_n(&c.done, __ATOMIC_ACQUIRE)) {
		npuwin_domain_abort(l->domain[1], EIO);
		assert_ok(l, npuwin_domain_reset_group(l->domain, 2, far(), &l->err));
	}
	pthread_join(thread, NULL);
	local_settled(l);
	local_exchange(l, 0);
	local_close(l);
}

/* A rank that leaves takes its requests along; who needs it gets EPIPE. */
static void test_leave(void **state)
{
	struct local *l = local_open(3, 1 << 18);
	struct npuwin_request *request;

	local_operands(l, 2, 4, NPUWIN_FP32);
	/* On this rail a call is where the last test of it got: waiting for rank 1. */
	l->op[0].rail = NPUWIN_RAIL_DIRECT;
	l->op[2].rail = NPUWIN_RAIL_DIRECT;
	start(l, 2);
	request = start(l, 0);
	assert_int_equal(npuwin_request_test(request, NULL, &l->err), -EAGAIN);
	npuwin_domain_leave(l->domain[2]);
	npuwin_domain_leave(l->domain[1]);
	assert_error(l, npuwin_request_wait(request, far(), NULL, &l->err), -EPIPE,
		     "all_to_all_v: rank 1 has left");
	assert_int_equal(l->err.peer, 1);
	npuwin_request_free(request);
	l->domain[1] = NULL;
	l->domain[2] = NULL;
	local_close(l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_start_and_wait),
		cmocka_unit_test(test_pipelined),
		cmocka_unit_test(test_fd),
		cmocka_unit_test(test_both_rails),
		cmocka_unit_test(test_other_rail_is_stuck),
		cmocka_unit_test(test_other_rail_tells_whom),
		cmocka_unit_test(test_turn_tells_whom),
		cmocka_unit_test(test_mismatch_in_between),
		cmocka_unit_test(test_mismatch_seen_late),
		cmocka_unit_test(test_too_many),
		cmocka_unit_test(test_free_incomplete),
		cmocka_unit_test(test_reset),
		cmocka_unit_test(test_reset_under_calls),
		cmocka_unit_test(test_leave),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
