/* SPDX-License-Identifier: MIT */
/*
 * Matrices of send counts: row s, column d is how many rows rank s has for rank d.
 */
#ifndef NPUWIN_COUNTS_H
#define NPUWIN_COUNTS_H

#include <stdint.h>

struct json_object;
struct npy;
struct rank;

/**
 * struct counts - A matrix of send counts as it was asked for, before clamping.
 * @nranks: N
 * @max_recv: what counts are clamped to
 * @count: N * N
 */
struct counts {
	uint32_t nranks;
	uint32_t max_recv;
	int64_t *count;
};

/** counts_alloc() - A matrix of zeros. Return: 0, or CLI_FAILED after a complaint. */
int counts_alloc(struct counts *c, uint32_t nranks);

/**
 * counts_load() - Read a matrix from an array.
 * @c: out
 * @a: int32 or int64, [N, N] or [N, N, 1]
 *
 * Return: 0, or CLI_FILE after a complaint.
 */
int counts_load(struct counts *c, const struct npy *a);

void counts_free(struct counts *c);

static inline int64_t count_asked(const struct counts *c, uint32_t src, uint32_t dst)
{
	return c->count[(uint64_t)src * c->nranks + dst];
}

/** count_int32() - Return: what send_counts can say: the nearest int32. */
int32_t count_int32(const struct counts *c, uint32_t src, uint32_t dst);

/** count_sent() - Return: rows that cross: the count, within 0..max_recv. */
uint32_t count_sent(const struct counts *c, uint32_t src, uint32_t dst);

/** counts_clamped() - Return: how many of the counts are out of 0..max_recv. */
uint64_t counts_clamped(const struct counts *c);

/** counts_total() - Return: rows that cross in all. */
uint64_t counts_total(const struct counts *c);

/** counts_of() - Return: those of them that @count ranks from @first on send. */
uint64_t counts_of(const struct counts *c, uint32_t first, uint32_t count);

/** counts_check_result() - In a check: what call 0 told of clamps, against the matrix. */
void counts_check_result(struct rank *rk, const struct counts *c);

/** counts_json() - The clamped ones, a list of {rank, dest, count, sent}. */
struct json_object *counts_json(const struct counts *c);

/** counts_warn() - On standard error, how many were clamped; nothing if none was. */
void counts_warn(const struct counts *c);

/** counts_print() - The clamped ones for people. */
void counts_print(const struct counts *c);

#endif /* NPUWIN_COUNTS_H */
