// SPDX-License-Identifier: MIT
#include "layout.h"

#define BUFFER_ALIGN	64
#define PAGE		4096

int layout_init(struct layout *l, uint64_t nranks, uint64_t max_recv, uint32_t dtype,
		uint32_t row_ndim, const uint64_t *row_shape)
{
	uint64_t elements = 1;
	bool overflow = false;

	l->nranks = (uint32_t)nranks;
	l->max_recv = (uint32_t)max_recv;
	l->dtype = dtype;
	l->ndim = 1;
	l->shape[0] = nranks * max_recv;
	for (uint32_t i = 0; i < row_ndim; i++) {
		overflow |= __builtin_mul_overflow(elements, row_shape[i], &elements);
		if (l->ndim < NPUWIN_MAX_DIMS)
			l->shape[l->ndim++] = row_shape[i];
		else
			l->shape[l->ndim - 1] *= row_shape[i];
	}
	overflow |= __builtin_mul_overflow(elements, npuwin_dtype_size(dtype), &l->row_bytes);
	overflow |= __builtin_mul_overflow(l->row_bytes, max_recv, &l->block_bytes);
	overflow |= __builtin_mul_overflow(l->block_bytes, nranks, &l->rank_bytes);
	if (overflow || l->rank_bytes > INT64_MAX / 4)
		return complain(CLI_USAGE, "%llu blocks of %llu rows do not fit an address space",
				(unsigned long long)nranks, (unsigned long long)max_recv);
	return 0;
}

static uint64_t round_up(uint64_t bytes)
{
	return (bytes + PAGE - 1) / PAGE * PAGE;
}

uint64_t layout_window(const struct layout *l, uint32_t large, uint32_t small)
{
	return round_up(l->rank_bytes) * large + round_up(l->nranks * sizeof(int32_t)) * small;
}

static int alloc(struct rank *rk, struct npuwin_tensor *t, uint64_t bytes)
{
	t->offset = 0;
	return npuwin_buffer_alloc(rk->domain, bytes, BUFFER_ALIGN, &t->buffer, &rk->err);
}

int layout_rows(const struct layout *l, struct rank *rk, struct npuwin_tensor *t)
{
	t->dtype = l->dtype;
	t->ndim = l->ndim;
	for (uint32_t i = 0; i < l->ndim; i++)
		t->shape[i] = l->shape[i];
	return alloc(rk, t, l->rank_bytes);
}

int layout_cells(const struct layout *l, struct rank *rk, struct npuwin_tensor *t)
{
	t->dtype = NPUWIN_INT32;
	t->ndim = 1;
	t->shape[0] = l->nranks;
	return alloc(rk, t, l->nranks * sizeof(int32_t));
}

uint32_t array_dtype(const struct npy *a)
{
	/* Elements that no dtype describes are moved as integers of their size. */
	bool is_float = a->kind == 'f' && !a->swapped;

	switch (a->itemsize) {
	case 1:
		return a->kind == 'i' ? NPUWIN_INT8 : NPUWIN_UINT8;
	case 2:
		return is_float ? NPUWIN_FP16 : NPUWIN_INT16;
	case 4:
		return is_float ? NPUWIN_FP32 : NPUWIN_INT32;
	default:
		return is_float ? NPUWIN_FP64 : NPUWIN_INT64;
	}
}
