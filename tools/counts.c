// SPDX-License-Identifier: MIT
#include <stdio.h>
#include <stdlib.h>
#include <json-c/json.h>

#include "counts.h"
#include "json.h"
#include "npy.h"
#include "ranks.h"

#define MAX_PRINTED	12

int counts_alloc(struct counts *c, uint32_t nranks)
{
	c->nranks = nranks;
	c->count = calloc((size_t)nranks * nranks, sizeof(*c->count));
	return c->count ? 0 : complain(CLI_FAILED, "out of memory");
}

int counts_load(struct counts *c, const struct npy *a)
{
	char shape[160];
	int rc;

	npy_shape_text(shape, sizeof(shape), a->ndim, a->shape);
	if (!npy_is_int(a))
		return complain(CLI_FILE, "cannot use %s as counts: its dtype is '%s', not int32 or int64",
				a->path, a->descr);
	if ((a->ndim != 2 && a->ndim != 3) || a->shape[0] != a->shape[1] ||
	    (a->ndim == 3 && a->shape[2] != 1))
		return complain(CLI_FILE, "cannot use %s as counts: its shape is %s, not [N, N] or [N, N, 1]",
				a->path, shape);
	if (a->shape[0] > NPUWIN_MAX_RANKS)
		return complain(CLI_FILE, "cannot use %s as counts: its shape is %s, and %d ranks are possible",
				a->path, shape, NPUWIN_MAX_RANKS);
	rc = counts_alloc(c, (uint32_t)a->shape[0]);
	if (rc)
		return rc;
	for (uint64_t i = 0; i < a->shape[0] * a->shape[0]; i++)
		c->count[i] = npy_int(a, i);
	return 0;
}

void counts_free(struct counts *c)
{
	free(c->count);
	c->count = NULL;
}

int32_t count_int32(const struct counts *c, uint32_t src, uint32_t dst)
{
	int64_t v = count_asked(c, src, dst);

	return (int32_t)(v < INT32_MIN ? INT32_MIN : v > INT32_MAX ? INT32_MAX : v);
}

uint32_t count_sent(const struct counts *c, uint32_t src, uint32_t dst)
{
	int64_t v = count_asked(c, src, dst);

	return (uint32_t)(v < 0 ? 0 : v > c->max_recv ? c->max_recv : v);
}

static bool is_clamped(const struct counts *c, uint32_t src, uint32_t dst)
{
	return count_asked(c, src, dst) != (int64_t)count_sent(c, src, dst);
}

uint64_t counts_clamped(const struct counts *c)
{
	uint64_t n = 0;

	for (uint32_t s = 0; s < c->nranks; s++)
		for (uint32_t d = 0; d < c->nranks; d++)
			n += is_clamped(c, s, d);
	return n;
}

uint64_t counts_of(const struct counts *c, uint32_t first, uint32_t count)
{
	uint64_t n = 0;

	for (uint32_t s = first; s < first + count; s++)
		for (uint32_t d = 0; d < c->nranks; d++)
			n += count_sent(c, s, d);
	return n;
}

uint64_t counts_total(const struct counts *c)
{
	return counts_of(c, 0, c->nranks);
}

void counts_check_result(struct rank *rk, const struct counts *c)
{
	const struct npuwin_a2av_result *res = &rk->result[0];
	uint32_t n = 0;

	if (res->max_recv != c->max_recv)
		rank_mismatch(rk, "the call says that MAX_RECV is %u, not %u", res->max_recv,
			      c->max_recv);
	for (uint32_t d = 0; d < c->nranks; d++) {
		const struct npuwin_clamp *told = &rk->clamps[n];

		if (!is_clamped(c, rk->id, d))
			continue;
		if (n >= res->nclamped || told->dest != d ||
		    told->requested != count_int32(c, rk->id, d) ||
		    told->sent != (int32_t)count_sent(c, rk->id, d)) {
			rank_mismatch(rk, "the call does not tell that the count for rank %u was clamped",
				      d);
			return;
		}
		n++;
	}
	if (n != res->nclamped)
		rank_mismatch(rk, "the call says that %u counts were clamped, not %u",
			      res->nclamped, n);
}

struct json_object *counts_json(const struct counts *c)
{
	struct json_object *list = json_object_new_array();

	for (uint32_t s = 0; s < c->nranks; s++) {
		for (uint32_t d = 0; d < c->nranks; d++) {
			struct json_object *o;

			if (!is_clamped(c, s, d))
				continue;
			o = json_object_new_object();
			json_add_uint(o, "rank", s);
			json_add_uint(o, "dest", d);
			json_add_int(o, "count", count_asked(c, s, d));
			json_add_uint(o, "sent", count_sent(c, s, d));
			json_object_array_add(list, o);
		}
	}
	return list;
}

void counts_warn(const struct counts *c)
{
	uint64_t n = counts_clamped(c);

	if (n)
		cli_complain("%llu count%s clamped to 0..%u (MAX_RECV): rows over it were not sent",
			     (unsigned long long)n, n == 1 ? " was" : "s were", c->max_recv);
}

void counts_print(const struct counts *c)
{
	uint64_t left = counts_clamped(c);
	unsigned int printed = 0;

	if (!left) {
		printf("  clamped   none: every count was within 0..%u\n", c->max_recv);
		return;
	}
	printf("  clamped   %llu count%s out of 0..%u:\n", (unsigned long long)left,
	       left == 1 ? " was" : "s were", c->max_recv);
	for (uint32_t s = 0; s < c->nranks; s++) {
		for (uint32_t d = 0; d < c->nranks; d++) {
			if (!is_clamped(c, s, d))
				continue;
			if (printed++ == MAX_PRINTED) {
				printf("            and %llu more (--json lists all)\n",
				       (unsigned long long)left);
				return;
			}
			printf("            rank %u for rank %u: %lld asked, %u sent\n", s, d,
			       (long long)count_asked(c, s, d), count_sent(c, s, d));
			left--;
		}
	}
}
