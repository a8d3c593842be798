// SPDX-License-Identifier: MIT
/*
 * Operands of a wrong shape or dtype, with everything else valid.
 */
#include "violations.h"

/* A tensor that is otherwise right: its buffer has room for what it says. */
static void reshape(struct npuwin_tensor *t, uint32_t ndim, uint64_t a, uint64_t b, uint64_t c)
{
	t->ndim = ndim;
	t->shape[0] = a;
	t->shape[1] = b;
	t->shape[2] = c;
}

static void one_too_many(struct scene *s, struct npuwin_a2av *op, const struct violation *v)
{
	reshape(tensor_of(op, v->a), 1, s->set.nranks + 1, 0, 0);
}

static void one_too_few(struct scene *s, struct npuwin_a2av *op, const struct violation *v)
{
	reshape(tensor_of(op, v->a), 1, s->set.nranks - 1, 0, 0);
}

static void empty(struct scene *s, struct npuwin_a2av *op, const struct violation *v)
{
	reshape(tensor_of(op, v->a), 1, 0, 0, 0);
}

static void lying(struct scene *s, struct npuwin_a2av *op, const struct violation *v)
{
	reshape(tensor_of(op, v->a), 2, 1, s->set.nranks, 0);
}

static void two_columns(struct scene *s, struct npuwin_a2av *op, const struct violation *v)
{
	reshape(tensor_of(op, v->a), 2, s->set.nranks, 2, 0);
}

static void deep(struct scene *s, struct npuwin_a2av *op, const struct violation *v)
{
	reshape(tensor_of(op, v->a), 3, s->set.nranks, 1, 1);
}

static void ndim(struct scene *s, struct npuwin_a2av *op, const struct violation *v)
{
	tensor_of(op, v->a)->ndim = v->value;
}

static void dtype(struct scene *s, struct npuwin_a2av *op, const struct violation *v)
{
	tensor_of(op, v->a)->dtype = v->value;
}

/* In the target or the input, so that they differ. */
static void extent(struct scene *s, struct npuwin_a2av *op, const struct violation *v)
{
	tensor_of(op, v->a)->shape[v->value]--;
}

static void flatter(struct scene *s, struct npuwin_a2av *op, const struct violation *v)
{
	struct npuwin_tensor *t = tensor_of(op, v->a);

	t->shape[1] *= t->shape[2];
	t->ndim--;
}

static void swapped(struct scene *s, struct npuwin_a2av *op, const struct violation *v)
{
	struct npuwin_tensor *t = tensor_of(op, v->a);
	uint64_t extent = t->shape[1];

	t->shape[1] = t->shape[2];
	t->shape[2] = extent;
}

/* In both, so that they agree. */
static void rows(struct scene *s, struct npuwin_a2av *op, const struct violation *v)
{
	op->input.shape[0] = v->value;
	op->target.shape[0] = v->value;
}

static void size(struct scene *s, struct npuwin_a2av *op, const struct violation *v)
{
	op->input.shape[1] = v->value;
	op->target.shape[1] = v->value;
}

/* 2^64 + 8 elements: modulo 2^64 they would fit. */
static void wrapping_product(struct scene *s, struct npuwin_a2av *op, const struct violation *v)
{
	struct npuwin_tensor *t[] = { &op->input, &op->target };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(t); i++) {
		t[i]->ndim = 4;
		t[i]->shape[0] = 8;
		t[i]->shape[1] = 1ULL << 31;
		t[i]->shape[2] = 1ULL << 31;
		t[i]->shape[3] = 2;
	}
}

/* 2^64 bytes in 2^63 elements: only the bytes wrap. */
static void wrapping_bytes(struct scene *s, struct npuwin_a2av *op, const struct violation *v)
{
	op->input.ndim = 2;
	op->input.shape[0] = 2;
	op->input.shape[1] = 1ULL << 62;
	op->target = (struct npuwin_tensor){
		.buffer = op->target.buffer, .offset = op->target.offset,
		.dtype = op->target.dtype, .ndim = 2, .shape = { 2, 1ULL << 62 },
	};
}

static const struct test_case cases[] = {
	EACH_COUNTS("[NR+1]", one_too_many),
	EACH_COUNTS("[NR-1]", one_too_few),
	EACH_COUNTS("[0]", empty),
	EACH_COUNTS("[1,NR]", lying),
	EACH_COUNTS("[NR,2]", two_columns),
	EACH_COUNTS("[NR,1,1]", deep),
	EACH_OPERAND("no dimensions", ndim, .value = 0),
	EACH_OPERAND("9 dimensions", ndim, .value = NPUWIN_MAX_DIMS + 1),
	EACH_COUNTS("as uint8", dtype, .value = NPUWIN_UINT8),
	EACH_COUNTS("as int16", dtype, .value = NPUWIN_INT16),
	EACH_COUNTS("as int64", dtype, .value = NPUWIN_INT64),
	EACH_COUNTS("as fp32", dtype, .value = NPUWIN_FP32),
	EACH_OPERAND("dtype 0", dtype, .value = 0),
	EACH_OPERAND("dtype 12", dtype, .value = 12),
	EACH_OPERAND("dtype -1", dtype, .value = UINT32_MAX),
	VIOLATION("input has another dtype", dtype, "input", "target", .a = INPUT,
		  .value = NPUWIN_BF16),
	VIOLATION("target has another dtype", dtype, "input", "target", .a = TARGET,
		  .value = NPUWIN_BF16),
	VIOLATION("input has fewer rows", extent, "input", "target", .a = INPUT, .value = 0),
	VIOLATION("target has fewer rows", extent, "target", NULL, .a = TARGET, .value = 0),
	VIOLATION("input has another SIZE", extent, "input", "target", .a = INPUT, .value = 1),
	VIOLATION("target has another SIZE", extent, "input", "target", .a = TARGET,
		  .value = 2),
	VIOLATION("input has SIZE flat", flatter, "input", "target", .a = INPUT),
	VIOLATION("target has SIZE flat", flatter, "input", "target", .a = TARGET),
	VIOLATION("target has SIZE swapped", swapped, "input", "target", .a = TARGET),
	VIOLATION("MAX_RECV 0", rows, "MAX_RECV", "0", .value = 0),
	VIOLATION("rows not divisible by the ranks", rows, "7", "2", .value = 7),
	VIOLATION("MAX_RECV over INT32_MAX", rows, "4294967296", NULL, .value = 1ULL << 32),
	VIOLATION("rows over 64 bits", rows, NULL, NULL, .value = UINT64_MAX - 1),
	VIOLATION("SIZE with an extent of 0", size, "0", NULL, .value = 0),
	VIOLATION("elements over 64 bits", wrapping_product, NULL, NULL, .value = 0),
	VIOLATION("bytes over 64 bits", wrapping_bytes, NULL, NULL, .value = 0),
};

const struct suite suite_shapes = { cases, ARRAY_SIZE(cases) };
