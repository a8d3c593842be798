// SPDX-License-Identifier: MIT
/* The contract of all_to_all_v: each operand that breaks it, with all else valid. */
#include "local.h"

#define NRANKS		4
#define MAX_RECV	2
#define SIZE		3

/* What is being checked: rank 0 calls @op, a copy that the test spoils. */
struct check {
	struct local *l;
	struct npuwin_a2av op;
};

static int setup(void **state)
{
	struct check *c = calloc(1, sizeof(*c));

	c->l = local_open(NRANKS, 1 << 16);
	local_operands(c->l, MAX_RECV, SIZE, NPUWIN_FP32);
	c->op = c->l->op[0];
	*state = c;
	return 0;
}

/* After everything that was refused, the domain works. */
static int teardown(void **state)
{
	struct check *c = *state;

	local_exchange(c->l, 0);
	local_settled(c->l);
	local_close(c->l);
	free(c);
	return 0;
}

/* Refused at once, with that sentence, by every form, and nothing is written anywhere. */
static void refused(struct check *c, int code, const char *text)
{
	struct local *l = c->l;
	uint8_t *copy = local_snapshot(l);
	struct npuwin_request *request = NULL;

	assert_error(l, npuwin_all_to_all_v(l->domain[0], &c->op, far(), NULL, &l->err), code,
		     text);
	assert_memory_equal(l->err.text, "all_to_all_v: ", 14);
	assert_int_equal(l->err.rank, 0);
	assert_int_equal(npuwin_all_to_all_v(l->domain[0], &c->op, far(), NULL, NULL), code);
	assert_error(l, npuwin_all_to_all_v_start(l->domain[0], &c->op, far(), &request,
						  &l->err), code, text);
	assert_null(request);
	assert_int_equal(l->domain[0]->seq, 0);
	local_unchanged(l, copy);
	c->op = l->op[0];
}

static struct npuwin_tensor *operand(struct check *c, uint32_t i)
{
	struct npuwin_tensor *const of[OPERANDS] = {
		&c->op.input, &c->op.target, &c->op.signal, &c->op.send_counts,
		&c->op.recv_counts,
	};

	return of[i];
}

static const char *const name[OPERANDS] = {
	"input", "target", "signal", "send_counts", "recv_counts",
};

/* "name: text" */
static const char *about(uint32_t i, const char *text)
{
	static char buffer[128];

	snprintf(buffer, sizeof(buffer), "%s: %s", name[i], text);
	return buffer;
}

static void test_buffers(void **state)
{
	struct check *c = *state;
	struct local *other = local_open(NRANKS, 1 << 16);
	struct npuwin_buffer *freed;
	uint32_t i, j;
	char text[128];

	local_operands(other, MAX_RECV, SIZE, NPUWIN_FP32);
	assert_ok(c->l, npuwin_buffer_alloc(c->l->domain[0], 64, 0, &freed, &c->l->err));
	npuwin_buffer_free(freed);
	for (i = 0; i < OPERANDS; i++) {
		operand(c, i)->buffer = NULL;
		refused(c, -EINVAL, about(i, "is not window-bound"));
		operand(c, i)->buffer = other->buffer[0][i];
		refused(c, -EINVAL, about(i, "its buffer is none of this domain"));
		operand(c, i)->buffer = c->l->buffer[1][i];
		refused(c, -EINVAL, about(i, "its buffer is none of this domain"));
		operand(c, i)->buffer = freed;
		refused(c, -EINVAL, about(i, "its buffer is none of this domain"));
		for (j = i + 1; j < OPERANDS; j++) {
			operand(c, j)->buffer = operand(c, i)->buffer;
			snprintf(text, sizeof(text), "%s and %s are in the same buffer", name[i],
				 name[j]);
			refused(c, -EINVAL, text);
		}
	}
	local_close(other);
	/* Rank 0's history is one allocation ahead. */
	for (i = 1; i < NRANKS; i++) {
		assert_ok(c->l, npuwin_buffer_alloc(c->l->domain[i], 64, 0, &freed, &c->l->err));
		npuwin_buffer_free(freed);
	}
}

static void test_tensors(void **state)
{
	struct check *c = *state;
	uint32_t i;

	for (i = 0; i < OPERANDS; i++) {
		operand(c, i)->dtype = 0;
		refused(c, -EINVAL, about(i, "dtype is 0"));
		operand(c, i)->dtype = NPUWIN_UINT8 + 1;
		refused(c, -EINVAL, about(i, "dtype is 12"));
		operand(c, i)->dtype = UINT32_MAX;
		refused(c, -EINVAL, about(i, "dtype is 4294967295"));
		operand(c, i)->ndim = 0;
		refused(c, -EINVAL, about(i, "ndim is 0"));
		operand(c, i)->ndim = NPUWIN_MAX_DIMS + 1;
		refused(c, -EINVAL, about(i, "ndim is 9"));
		operand(c, i)->ndim = UINT32_MAX;
		refused(c, -EINVAL, about(i, "ndim is 4294967295"));
		operand(c, i)->offset = 2;
		refused(c, -EINVAL, about(i, "offset is 2, not a multiple of the 4 bytes"));
		operand(c, i)->offset = 4;
		refused(c, -EINVAL, about(i, i > TARGET ?
					  "16 bytes at offset 4 do not fit its buffer of 16" :
					  "96 bytes at offset 4 do not fit its buffer of 96"));
		operand(c, i)->offset = UINT64_MAX - 3;
		refused(c, -EINVAL, about(i, i > TARGET ? "16 bytes at offset" :
					  "96 bytes at offset"));
	}
}

static void test_counts(void **state)
{
	struct check *c = *state;
	uint32_t i;

	for (i = SIGNAL; i < OPERANDS; i++) {
		operand(c, i)->dtype = NPUWIN_INT64;
		refused(c, -EINVAL, about(i, "dtype is int64, want int32"));
		operand(c, i)->dtype = NPUWIN_FP32;
		refused(c, -EINVAL, about(i, "dtype is fp32, want int32"));
		operand(c, i)->shape[0] = NRANKS - 1;
		refused(c, -EINVAL, about(i, "shape[0] is 3, want 4"));
		operand(c, i)->shape[0] = 0;
		refused(c, -EINVAL, about(i, "shape[0] is 0, want 4"));
		operand(c, i)->shape[0] = NRANKS + (1ULL << 32);
		refused(c, -EINVAL, about(i, "shape[0] is 4294967300, want 4"));
		operand(c, i)->ndim = 2;
		operand(c, i)->shape[1] = 2;
		refused(c, -EINVAL, about(i, "shape[1] is 2, want 1"));
		operand(c, i)->ndim = 2;
		operand(c, i)->shape[0] = 1;
		operand(c, i)->shape[1] = NRANKS;
		refused(c, -EINVAL, about(i, "shape[0] is 1, want 4"));
		operand(c, i)->ndim = 3;
		operand(c, i)->shape[1] = operand(c, i)->shape[2] = 1;
		refused(c, -EINVAL, about(i, "ndim is 3"));
	}
}

static void test_shapes(void **state)
{
	struct check *c = *state;

	c->op.target.shape[0] = 0;
	c->op.input.shape[0] = 0;
	refused(c, -EINVAL, "target: shape[0] is 0, so MAX_RECV is 0");
	c->op.target.shape[0] = 10;
	c->op.input.shape[0] = 10;
	refused(c, -EINVAL, "target: shape[0] is 10, not a multiple of 4 ranks");
	c->op.target.shape[0] = 3;
	c->op.input.shape[0] = 3;
	refused(c, -EINVAL, "target: shape[0] is 3, not a multiple of 4 ranks");
	c->op.target.shape[0] = NRANKS * (INT32_MAX + 1ULL);
	c->op.input.shape[0] = NRANKS * (INT32_MAX + 1ULL);
	refused(c, -EINVAL, "MAX_RECV is 2147483648, more than 2147483647");
	c->op.target.shape[0] = UINT64_MAX - 3;
	c->op.input.shape[0] = UINT64_MAX - 3;
	refused(c, -EINVAL, "MAX_RECV is 4611686018427387903, more than");
	c->op.target.shape[0] = NRANKS * (uint64_t)INT32_MAX;
	c->op.input.shape[0] = NRANKS * (uint64_t)INT32_MAX;
	refused(c, -EINVAL, "do not fit its buffer of 96 bytes");
	c->op.target.shape[1] = 0;
	c->op.input.shape[1] = 0;
	refused(c, -EINVAL, "target: shape[1] is 0");
	c->op.target.shape[1] = UINT64_MAX;
	c->op.input.shape[1] = UINT64_MAX;
	refused(c, -EINVAL, "input: shape[1] is 18446744073709551615: the bytes overflow 64 bits");
	c->op.target.shape[1] = UINT64_MAX / 8;
	c->op.input.shape[1] = UINT64_MAX / 8;
	refused(c, -EINVAL, "input: shape[0] is 8: the bytes overflow 64 bits");
	c->op.input.shape[0] = 4;
	refused(c, -EINVAL, "input: shape[0] is 4, but target's is 8");
	c->op.input.shape[1] = 2;
	refused(c, -EINVAL, "input: shape[1] is 2, but target's is 3");
	c->op.input.ndim = 1;
	refused(c, -EINVAL, "input: ndim is 1, but target's is 2");
	c->op.input.dtype = NPUWIN_INT32;
	refused(c, -EINVAL, "input: dtype is int32, but target's is fp32");
}

static void test_flags(void **state)
{
	struct check *c = *state;

	c->op.mode = 2;
	refused(c, -EINVAL, "mode is 2");
	c->op.rail = 2;
	refused(c, -EINVAL, "rail is 2");
	c->op.reserved[0] = 1;
	refused(c, -EINVAL, "reserved[0] is 0x1, want 0");
	c->op.reserved[1] = 1ULL << 63;
	refused(c, -EINVAL, "reserved[1] is 0x8000000000000000, want 0");
}

/* A plan that exists is no way around the checks. */
static void test_behind_a_plan(void **state)
{
	struct check *c = *state;
	uint32_t i, r;

	local_exchange(c->l, 0);
	for (r = 0; r < NRANKS; r++)
		c->l->domain[r]->seq = 0;
	c->op.reserved[1] = 1;
	refused(c, -EINVAL, "reserved");
	for (i = 0; i < OPERANDS; i++) {
		operand(c, i)->offset = 4;
		refused(c, -EINVAL, "do not fit");
		operand(c, i)->ndim = 9;
		refused(c, -EINVAL, "ndim is 9");
	}
	for (r = 0; r < NRANKS; r++)
		c->l->domain[r]->seq = 1;
}

/* A rank whose peers cannot be mapped has the host rail only. */
static void test_rail_unsupported(void **state)
{
	struct check *c = *state;
	uint8_t **window = c->l->domain[0]->ep->window, *peer = window[2];

	c->op.rail = NPUWIN_RAIL_DIRECT;
	window[2] = NULL;
	assert_error(c->l, npuwin_all_to_all_v(c->l->domain[0], &c->op, far(), NULL, &c->l->err),
		     -EOPNOTSUPP, "rail direct: the window of rank 2 cannot be mapped here");
	window[2] = peer;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_buffers, setup, teardown),
		cmocka_unit_test_setup_teardown(test_tensors, setup, teardown),
		cmocka_unit_test_setup_teardown(test_counts, setup, teardown),
		cmocka_unit_test_setup_teardown(test_shapes, setup, teardown),
		cmocka_unit_test_setup_teardown(test_flags, setup, teardown),
		cmocka_unit_test_setup_teardown(test_behind_a_plan, setup, teardown),
		cmocka_unit_test_setup_teardown(test_rail_unsupported, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
