/* SPDX-License-Identifier: MIT */
/*
 * Blocks of rows: the shape of an exchange, and its tensors.
 */
#ifndef NPUWIN_LAYOUT_H
#define NPUWIN_LAYOUT_H

#include <stdint.h>

#include "npy.h"
#include "ranks.h"

/**
 * struct layout - What each rank sends and receives: blocks of rows.
 * @nranks: blocks of a rank
 * @max_recv: rows of a block
 * @row_bytes: bytes of a row
 * @block_bytes: of a block
 * @rank_bytes: of all blocks of a rank
 * @dtype: enum npuwin_dtype
 * @ndim: of a rank's input
 * @shape: of it: nranks * max_recv, then that of a row
 */
struct layout {
	uint32_t nranks;
	uint32_t max_recv;
	uint64_t row_bytes;
	uint64_t block_bytes;
	uint64_t rank_bytes;
	uint32_t dtype;
	uint32_t ndim;
	uint64_t shape[NPUWIN_MAX_DIMS];
};

/**
 * layout_init() - Work out sizes.
 * @l: out
 * @nranks: blocks of a rank
 * @max_recv: rows of a block
 * @dtype: enum npuwin_dtype
 * @row_ndim: dimensions of a row, may be 0
 * @row_shape: of a row
 *
 * Return: 0, or CLI_USAGE after a complaint where they do not fit.
 */
int layout_init(struct layout *l, uint64_t nranks, uint64_t max_recv, uint32_t dtype,
		uint32_t row_ndim, const uint64_t *row_shape);

/** layout_window() - Return: bytes of window for @large tensors of rows and @small of counts. */
uint64_t layout_window(const struct layout *l, uint32_t large, uint32_t small);

/** layout_rows() - Allocate a tensor of rows. Return: as npuwin_buffer_alloc(). */
int layout_rows(const struct layout *l, struct rank *rk, struct npuwin_tensor *t);

/** layout_cells() - Allocate a tensor of an int32 for each rank. Return: likewise. */
int layout_cells(const struct layout *l, struct rank *rk, struct npuwin_tensor *t);

/** tensor_ptr() - Return: this rank's memory of a tensor. */
static inline void *tensor_ptr(const struct npuwin_tensor *t)
{
	return (uint8_t *)npuwin_buffer_ptr(t->buffer) + t->offset;
}

/** array_dtype() - Return: the enum npuwin_dtype to move an array's elements as. */
uint32_t array_dtype(const struct npy *a);

#endif /* NPUWIN_LAYOUT_H */
