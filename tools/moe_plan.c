// SPDX-License-Identifier: MIT
#include <stdlib.h>
#include <string.h>

#include "moe.h"

uint32_t split_owner(uint64_t index, uint64_t total, uint32_t parts)
{
	uint64_t small = total / parts, longer = total % parts;
	uint64_t in_longer = longer * (small + 1);

	if (index < in_longer)
		return (uint32_t)(index / (small + 1));
	return (uint32_t)(longer + (index - in_longer) / small);
}

int moe_plan_start(struct moe_plan *p)
{
	uint64_t cells = (uint64_t)p->counts.nranks * p->counts.nranks, row = 0;

	p->start = calloc(cells + 1, sizeof(*p->start));
	if (!p->start)
		return complain(CLI_FAILED, "out of memory");
	for (uint64_t i = 0; i < cells; i++) {
		p->start[i] = row;
		row += (uint64_t)p->counts.count[i];
	}
	p->start[cells] = row;
	return 0;
}

/* Whether choice @i of the routes is an expert; @cell is then where it is counted. */
static bool route_cell(const struct moe_plan *p, const struct npy *routes, uint64_t i,
		       uint64_t *cell)
{
	int64_t expert = npy_int(routes, i);
	uint32_t n = p->counts.nranks;

	if (expert < 0)
		return false;
	*cell = (uint64_t)split_owner(i / p->topk, p->tokens, n) * n +
		split_owner((uint64_t)expert, p->experts, n);
	return true;
}

static int count_routes(struct moe_plan *p, const struct npy *routes)
{
	uint64_t cell;

	for (uint64_t i = 0; i < p->tokens * p->topk; i++) {
		int64_t expert = npy_int(routes, i);

		if (expert >= 0 && (uint64_t)expert >= p->experts)
			return complain(CLI_FILE, "cannot use %s: choice %llu of token %llu is expert %lld, and there are %llu, from 0",
					routes->path,
					(unsigned long long)(i % p->topk),
					(unsigned long long)(i / p->topk), (long long)expert,
					(unsigned long long)p->experts);
		if (route_cell(p, routes, i, &cell))
			p->counts.count[cell]++;
	}
	return 0;
}

static int place_tokens(struct moe_plan *p, const struct npy *routes)
{
	uint64_t cells = (uint64_t)p->counts.nranks * p->counts.nranks, cell;
	uint64_t *next = malloc((cells + 1) * sizeof(*next));

	p->token = calloc(p->start[cells] + 1, sizeof(*p->token));
	if (!next || !p->token) {
		free(next);
		return complain(CLI_FAILED, "out of memory");
	}
	memcpy(next, p->start, (cells + 1) * sizeof(*next));
	for (uint64_t i = 0; i < p->tokens * p->topk; i++)
		if (route_cell(p, routes, i, &cell))
			p->token[next[cell]++] = i / p->topk;
	free(next);
	return 0;
}

int moe_plan_routes(struct moe_plan *p, const struct npy *routes, uint32_t nranks,
		    uint64_t experts)
{
	char shape[160];
	int rc;

	if (!npy_is_int(routes))
		return complain(CLI_FILE, "cannot use %s as routes: its dtype is '%s', not int32 or int64",
				routes->path, routes->descr);
	if (routes->ndim != 2)
		return complain(CLI_FILE, "cannot use %s as routes: its shape is %s, not [tokens, experts of each]",
				routes->path,
				npy_shape_text(shape, sizeof(shape), routes->ndim, routes->shape));
	p->tokens = routes->shape[0];
	p->topk = routes->shape[1];
	p->experts = experts;
	rc = counts_alloc(&p->counts, nranks);
	if (!rc)
		rc = count_routes(p, routes);
	if (!rc)
		rc = moe_plan_start(p);
	if (!rc)
		rc = place_tokens(p, routes);
	return rc;
}

void moe_plan_free(struct moe_plan *p)
{
	counts_free(&p->counts);
	free(p->start);
	free(p->token);
}

/* Bytes that differ from token to token and from word to word. */
static void make_row(uint8_t *row, uint64_t len, uint64_t token)
{
	uint64_t state = token * 0xd1342543de82ef95ULL + 1;

	for (uint64_t at = 0; at < len; at += sizeof(uint64_t)) {
		uint64_t word, left = len - at;

		state += 0x9e3779b97f4a7c15ULL;
		word = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9ULL;
		word ^= word >> 29;
		memcpy(row + at, &word, left < sizeof(word) ? left : sizeof(word));
	}
}

const uint8_t *moe_row(const struct moe_job *job, uint32_t src, uint32_t dst, uint32_t i,
		       uint8_t *scratch)
{
	const struct moe_plan *p = &job->plan;
	uint64_t token = p->start[(uint64_t)src * p->counts.nranks + dst] + i;

	if (p->token)
		token = p->token[token];
	if (job->values.data)
		return job->values.data + token * job->layout.row_bytes;
	make_row(scratch, job->layout.row_bytes, token);
	return scratch;
}
