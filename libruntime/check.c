// SPDX-License-Identifier: MIT
/*
 * The contract of collectives and primitives, as far as one rank can see it. What ranks
 * have to agree on is in the signatures.
 */
#include <inttypes.h>
#include <stdio.h>

#include "collective.h"

#define A2AV	"all_to_all_v"

enum { INPUT, TARGET, SIGNAL, SEND_COUNTS, RECV_COUNTS, OPERANDS };

static const char *const operand_name[OPERANDS] = {
	"input", "target", "signal", "send_counts", "recv_counts",
};

#define bad(domain, err, ...) \
	npuwin_fail(err, -EINVAL, (domain)->ep->rank, NPUWIN_NOBODY, A2AV ": " __VA_ARGS__)

int check_rail(const struct npuwin_domain *domain, const char *what, uint32_t rail,
	       struct npuwin_error *err)
{
	const struct endpoint *ep = domain->ep;
	uint32_t rank;

	if (rail == NPUWIN_RAIL_HOST)
		return 0;
	if (rail != NPUWIN_RAIL_DIRECT)
		return npuwin_fail(err, -EINVAL, ep->rank, NPUWIN_NOBODY,
				   "%s: rail is %u, want 0 (host) or 1 (direct)", what, rail);
	/* One that left before it could be mapped is not missing: the engine says it is gone. */
	for (rank = 0; rank < ep->nranks; rank++)
		if (!ep->window[rank] &&
		    __atomic_load_n(&ep->status->rank[rank].state, __ATOMIC_RELAXED) ==
		    NPUWIN_RANK_JOINED)
			return npuwin_fail(err, -EOPNOTSUPP, ep->rank, rank,
					   "%s: rail direct: the window of rank %u cannot be mapped here",
					   what, rank);
	return 0;
}

int check_range(const struct npuwin_domain *domain, const char *what, const char *name,
		const struct npuwin_buffer *buffer, uint64_t offset, uint64_t bytes,
		struct npuwin_error *err)
{
	uint32_t rank = domain->ep->rank;

	if (!heap_owns(domain->heap, buffer))
		return npuwin_fail(err, -EINVAL, rank, NPUWIN_NOBODY,
				   "%s: %s: %s", what, name, buffer ?
				   "is no buffer of this domain (another's, or freed)" :
				   "the buffer is NULL");
	if (offset > buffer->size || bytes > buffer->size - offset)
		return npuwin_fail(err, -ERANGE, rank, NPUWIN_NOBODY,
				   "%s: %s: %" PRIu64 " bytes at offset %" PRIu64
				   " are outside the buffer of %" PRIu64 " bytes", what, name,
				   bytes, offset, buffer->size);
	return 0;
}

/* Each operand lies in a buffer of this domain, and in one of its own. */
static int check_buffers(const struct npuwin_domain *domain,
			 const struct npuwin_tensor *const *operand, struct npuwin_error *err)
{
	int i, j;

	for (i = 0; i < OPERANDS; i++) {
		if (!operand[i]->buffer)
			return bad(domain, err, "%s: is not window-bound: its buffer is NULL",
				   operand_name[i]);
		if (!heap_owns(domain->heap, operand[i]->buffer))
			return bad(domain, err,
				   "%s: its buffer is none of this domain (another's, or freed)",
				   operand_name[i]);
	}
	for (i = 0; i < OPERANDS; i++)
		for (j = i + 1; j < OPERANDS; j++)
			if (operand[i]->buffer == operand[j]->buffer)
				return bad(domain, err,
					   "%s and %s are in the same buffer, at offsets %" PRIu64
					   " and %" PRIu64 "; want distinct buffers",
					   operand_name[i], operand_name[j], operand[i]->offset,
					   operand[j]->offset);
	return 0;
}

/* A tensor that is one by itself: dtype, dimensions, alignment. */
static int check_tensor(const struct npuwin_domain *domain, const char *name,
			const struct npuwin_tensor *tensor, struct npuwin_error *err)
{
	uint32_t size = npuwin_dtype_size(tensor->dtype);

	if (!size)
		return bad(domain, err, "%s: dtype is %u, which is none", name, tensor->dtype);
	if (tensor->ndim < 1 || tensor->ndim > NPUWIN_MAX_DIMS)
		return bad(domain, err, "%s: ndim is %u, want 1..%d", name, tensor->ndim,
			   NPUWIN_MAX_DIMS);
	if (tensor->offset % size)
		return bad(domain, err,
			   "%s: offset is %" PRIu64 ", not a multiple of the %u bytes of %s",
			   name, tensor->offset, size, npuwin_dtype_name(tensor->dtype));
	return 0;
}

/* [NR] or [NR,1] int32. */
static int check_counts(const struct npuwin_domain *domain, const char *name,
			const struct npuwin_tensor *tensor, struct npuwin_error *err)
{
	uint32_t nranks = domain->ep->nranks;

	if (tensor->dtype != NPUWIN_INT32)
		return bad(domain, err, "%s: dtype is %s, want int32", name,
			   npuwin_dtype_name(tensor->dtype));
	if (tensor->ndim > 2)
		return bad(domain, err, "%s: ndim is %u, want [%u] or [%u,1]", name,
			   tensor->ndim, nranks, nranks);
	if (tensor->shape[0] != nranks)
		return bad(domain, err, "%s: shape[0] is %" PRIu64 ", want %u, one for each rank",
			   name, tensor->shape[0], nranks);
	if (tensor->ndim == 2 && tensor->shape[1] != 1)
		return bad(domain, err, "%s: shape[1] is %" PRIu64 ", want 1", name,
			   tensor->shape[1]);
	return 0;
}

/* MAX_RECV of target, and input the same shape and dtype. */
static int check_shapes(const struct npuwin_domain *domain, const struct npuwin_a2av *op,
			uint32_t *max_recv, struct npuwin_error *err)
{
	const struct npuwin_tensor *target = &op->target, *input = &op->input;
	uint32_t nranks = domain->ep->nranks, i;

	if (!target->shape[0])
		return bad(domain, err, "target: shape[0] is 0, so MAX_RECV is 0, want at least 1");
	if (target->shape[0] % nranks)
		return bad(domain, err, "target: shape[0] is %" PRIu64
			   ", not a multiple of %u ranks", target->shape[0], nranks);
	if (target->shape[0] / nranks > INT32_MAX)
		return bad(domain, err, "target: shape[0] is %" PRIu64 ", so MAX_RECV is %" PRIu64
			   ", more than %d", target->shape[0], target->shape[0] / nranks,
			   INT32_MAX);
	for (i = 1; i < target->ndim; i++)
		if (!target->shape[i])
			return bad(domain, err, "target: shape[%u] is 0, want at least 1", i);
	if (input->dtype != target->dtype)
		return bad(domain, err, "input: dtype is %s, but target's is %s",
			   npuwin_dtype_name(input->dtype), npuwin_dtype_name(target->dtype));
	if (input->ndim != target->ndim)
		return bad(domain, err, "input: ndim is %u, but target's is %u", input->ndim,
			   target->ndim);
	for (i = 0; i < target->ndim; i++)
		if (input->shape[i] != target->shape[i])
			return bad(domain, err, "input: shape[%u] is %" PRIu64
				   ", but target's is %" PRIu64, i, input->shape[i],
				   target->shape[i]);
	*max_recv = (uint32_t)(target->shape[0] / nranks);
	return 0;
}

/* The tensor is within its buffer; *row_bytes is what one of its shape[0] rows takes. */
static int check_extent(const struct npuwin_domain *domain, const char *name,
			const struct npuwin_tensor *tensor, uint64_t *row_bytes,
			struct npuwin_error *err)
{
	uint64_t bytes = npuwin_dtype_size(tensor->dtype), end;
	uint32_t i;

	*row_bytes = 0;
	for (i = tensor->ndim; i-- > 0;) {
		if (!i)
			*row_bytes = bytes;
		if (__builtin_mul_overflow(bytes, tensor->shape[i], &bytes))
			return bad(domain, err,
				   "%s: shape[%u] is %" PRIu64 ": the bytes overflow 64 bits",
				   name, i, tensor->shape[i]);
	}
	if (__builtin_add_overflow(bytes, tensor->offset, &end) || end > tensor->buffer->size)
		return bad(domain, err, "%s: %" PRIu64 " bytes at offset %" PRIu64
			   " do not fit its buffer of %" PRIu64 " bytes", name, bytes,
			   tensor->offset, tensor->buffer->size);
	return 0;
}

int check_a2av(const struct npuwin_domain *domain, const struct npuwin_a2av *op,
	       struct a2av_shape *shape, struct npuwin_error *err)
{
	const struct npuwin_tensor *const operand[OPERANDS] = {
		&op->input, &op->target, &op->signal, &op->send_counts, &op->recv_counts,
	};
	uint64_t unused;
	int rc, i;

	if (op->mode != NPUWIN_MODE_BLOCK && op->mode != NPUWIN_MODE_ROWS)
		return bad(domain, err, "mode is %u, want 0 (block) or 1 (rows)", op->mode);
	for (i = 0; i < (int)ARRAY_SIZE(op->reserved); i++)
		if (op->reserved[i])
			return bad(domain, err, "reserved[%d] is 0x%" PRIx64 ", want 0", i,
				   op->reserved[i]);
	rc = check_rail(domain, A2AV, op->rail, err);
	if (rc)
		return rc;
	rc = check_buffers(domain, operand, err);
	for (i = 0; !rc && i < OPERANDS; i++)
		rc = check_tensor(domain, operand_name[i], operand[i], err);
	if (!rc)
		rc = check_shapes(domain, op, &shape->max_recv, err);
	for (i = SIGNAL; !rc && i < OPERANDS; i++)
		rc = check_counts(domain, operand_name[i], operand[i], err);
	for (i = 0; !rc && i < OPERANDS; i++)
		rc = check_extent(domain, operand_name[i], operand[i],
				  i == TARGET ? &shape->row_bytes : &unused, err);
	return rc;
}
