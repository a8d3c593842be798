/* SPDX-License-Identifier: MIT */
/*
 * What the parts of npuwin moe owe each other: moe.c runs, moe_plan.c works out which rows
 * go where, moe_counts.c reads a plan that is a count matrix, moe_report.c tells.
 */
#ifndef NPUWIN_MOE_H
#define NPUWIN_MOE_H

#include "counts.h"
#include "layout.h"
#include "npy.h"
#include "ranks.h"

/**
 * struct moe_plan - Which rows each rank has for each other.
 * @counts: how many
 * @start: N*N + 1: number of the first row of rank s for rank d, at s * N + d
 * @token: by row number: its token; NULL where a row is its own token
 * @tokens: number of tokens, 0 if not known
 * @topk: experts of a token, 0 if not known
 * @experts: number of experts, 0 if not known
 * @model: what the routing is of, or empty
 * @source: where it was published, or empty
 */
struct moe_plan {
	struct counts counts;
	uint64_t *start;
	uint64_t *token;
	uint64_t tokens;
	uint64_t topk;
	uint64_t experts;
	char model[128];
	char source[256];
};

/**
 * struct moe_job - A dispatch and its combine.
 * @plan: which rows
 * @values: what tokens hold; @data NULL: made from their number
 * @layout: sizes
 * @dtype: as the user or the file named it
 * @recv_matrix: N * N, shared by the ranks: rank r got [r, s] rows from rank s
 */
struct moe_job {
	struct moe_plan plan;
	struct npy values;
	struct layout layout;
	const char *dtype;
	int32_t *recv_matrix;
};

/** split_owner() - Return: the part that @index is in when @total is cut as array_split does. */
uint32_t split_owner(uint64_t index, uint64_t total, uint32_t parts);

/** moe_plan_routes() - Make a plan of routes. Return: 0 or an exit code after a complaint. */
int moe_plan_routes(struct moe_plan *p, const struct npy *routes, uint32_t nranks,
		    uint64_t experts);

/** moe_plan_start() - From counts to @start. Return: likewise. */
int moe_plan_start(struct moe_plan *p);

/**
 * moe_plan_load() - Make a plan of a count matrix.
 * @p: out
 * @path: a .npy or JSON file
 * @hidden: in/out: 0, or what the user asked for; the file's, if it says, in place of 0
 * @dtype: in/out: the same for a dtype, 0 for none
 *
 * Return: likewise.
 */
int moe_plan_load(struct moe_plan *p, const char *path, uint64_t *hidden, uint32_t *dtype);

void moe_plan_free(struct moe_plan *p);

/** moe_dtype() - Return: the enum npuwin_dtype of that name, or 0. */
uint32_t moe_dtype(const char *name);

/** moe_row() - Return: row @i of rank @src for rank @dst; in @scratch if it is made. */
const uint8_t *moe_row(const struct moe_job *job, uint32_t src, uint32_t dst, uint32_t i,
		       uint8_t *scratch);

void moe_print_json(const struct moe_job *job, const struct run_args *args,
		    const struct run_report *report);
void moe_print_summary(const struct moe_job *job, const struct run_args *args,
		       const struct run_report *report);

#endif /* NPUWIN_MOE_H */
