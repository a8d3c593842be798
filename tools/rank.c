// SPDX-License-Identifier: MIT
/*
 * What a rank does, alone or among those that one thread drives.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "run.h"

void rank_mismatch(struct rank *rk, const char *fmt, ...)
{
	char *text = rk->shared->rank[rk->id].mismatch;
	va_list ap;

	if (text[0])
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(rk->shared->rank[0].mismatch), fmt, ap);
	va_end(ap);
}

void record_failure(struct run_shared *sh, uint32_t slot, const struct npuwin_error *err)
{
	struct rank_shared *rs = &sh->rank[slot];

	if (rs->failed)
		return;
	rs->err = *err;
	rs->failed = ++sh->failures;
}

void fail_run(struct run *run, int code, const char *what)
{
	struct npuwin_error err = { .code = code, .rank = NPUWIN_NOBODY, .peer = NPUWIN_NOBODY };

	snprintf(err.text, sizeof(err.text), "%s: %s", what, strerror(-code));
	record_failure(run->shared, (uint32_t)run->prog->args->ranks, &err);
}

int64_t run_deadline(const struct program *prog)
{
	return npuwin_deadline_ms((int64_t)(prog->args->timeout * 1000) + 1);
}

static void note_start(struct run_shared *sh, uint64_t it, uint32_t call)
{
	_Atomic uint64_t *cell = &sh->times[it].start[call];
	uint64_t now = now_ns(), seen = *cell;

	while ((!seen || now < seen) && !atomic_compare_exchange_weak(cell, &seen, now))
		;
}

static void note_end(struct run_shared *sh, uint64_t it, uint32_t call)
{
	_Atomic uint64_t *cell = &sh->times[it].end[call];
	uint64_t now = now_ns(), seen = *cell;

	while (now > seen && !atomic_compare_exchange_weak(cell, &seen, now))
		;
}

static int rank_init(struct rank *rk, struct run *run, uint32_t id, struct npuwin_domain *domain)
{
	uint32_t n = (uint32_t)run->prog->args->ranks;

	memset(rk, 0, sizeof(*rk));
	rk->prog = run->prog;
	rk->shared = run->shared;
	rk->id = id;
	rk->domain = domain;
	rk->clamps = calloc((size_t)n * RANKS_MAX_CALLS, sizeof(*rk->clamps));
	if (!rk->clamps) {
		rk->err.code = -ENOMEM;
		snprintf(rk->err.text, sizeof(rk->err.text), "out of memory");
		return -ENOMEM;
	}
	for (uint32_t c = 0; c < RANKS_MAX_CALLS; c++) {
		rk->result[c].clamps = rk->clamps + (size_t)c * n;
		rk->result[c].clamps_room = n;
	}
	return rk->prog->setup(rk);
}

static void rank_exit(struct rank *rk)
{
	free(rk->clamps);
	free(rk->scratch);
}

static void rank_failed(struct rank *rk)
{
	int code = rk->err.code;

	record_failure(rk->shared, rk->id, &rk->err);
	if (code != -EPIPE && code != -ECANCELED && code != -ETIMEDOUT)
		npuwin_domain_abort(rk->domain, -code);
}

static void rank_finish_iteration(struct rank *rk, uint64_t it)
{
	struct rank_shared *rs = &rk->shared->rank[rk->id];

	for (uint32_t c = 0; c < rk->prog->ncalls; c++)
		rs->bytes[c] = rk->result[c].bytes;
	rk->prog->check(rk, it);
	rs->iterations = it + 1;
}

static int rank_iterate(struct rank *rk, uint64_t it)
{
	int rc;

	rk->prog->fill(rk, it);
	rc = npuwin_barrier(rk->domain, run_deadline(rk->prog), &rk->err);
	for (uint32_t c = 0; c < rk->prog->ncalls && !rc; c++) {
		note_start(rk->shared, it, c);
		rc = npuwin_all_to_all_v(rk->domain, &rk->op[c], run_deadline(rk->prog),
					 &rk->result[c], &rk->err);
		note_end(rk->shared, it, c);
	}
	if (!rc)
		rank_finish_iteration(rk, it);
	return rc;
}

int rank_main(struct run *run, uint32_t id, struct npuwin_domain *domain)
{
	struct rank rk;
	int rc = rank_init(&rk, run, id, domain);

	for (uint64_t it = 0; it < run->prog->args->iterations && !rc; it++)
		rc = rank_iterate(&rk, it);
	if (rc)
		rank_failed(&rk);
	rank_exit(&rk);
	return rc;
}

static int group_iterate(struct run *run, struct rank *ranks, struct npuwin_domain **domains,
			 struct npuwin_a2av *ops, struct npuwin_a2av_result *results, uint64_t it,
			 struct npuwin_error *err)
{
	const struct program *prog = run->prog;
	uint32_t n = (uint32_t)prog->args->ranks;
	int rc;

	for (uint32_t r = 0; r < n; r++)
		prog->fill(&ranks[r], it);
	rc = npuwin_barrier_group(domains, n, run_deadline(prog), err);
	for (uint32_t c = 0; c < prog->ncalls && !rc; c++) {
		for (uint32_t r = 0; r < n; r++) {
			ops[r] = ranks[r].op[c];
			results[r] = ranks[r].result[c];
		}
		note_start(run->shared, it, c);
		rc = npuwin_all_to_all_v_group(domains, ops, n, run_deadline(prog), results, err);
		note_end(run->shared, it, c);
		for (uint32_t r = 0; r < n; r++)
			ranks[r].result[c] = results[r];
	}
	for (uint32_t r = 0; r < n && !rc; r++)
		rank_finish_iteration(&ranks[r], it);
	return rc;
}

void drive_group(struct run *run, struct npuwin_domain **domains)
{
	uint32_t n = (uint32_t)run->prog->args->ranks;
	struct npuwin_error err = { .rank = NPUWIN_NOBODY };
	struct rank *ranks = calloc(n, sizeof(*ranks));
	struct npuwin_a2av *ops = calloc(n, sizeof(*ops));
	struct npuwin_a2av_result *results = calloc(n, sizeof(*results));
	int rc = 0;

	if (!ranks || !ops || !results) {
		fail_run(run, -ENOMEM, "cannot start the ranks");
		goto out;
	}
	for (uint32_t r = 0; r < n && !rc; r++) {
		rc = rank_init(&ranks[r], run, r, domains[r]);
		if (rc)
			record_failure(run->shared, r, &ranks[r].err);
	}
	for (uint64_t it = 0; it < run->prog->args->iterations && !rc; it++) {
		rc = group_iterate(run, ranks, domains, ops, results, it, &err);
		if (rc)
			record_failure(run->shared,
				       err.rank >= 0 && err.rank < (int32_t)n ?
				       (uint32_t)err.rank : n, &err);
	}
	for (uint32_t r = 0; r < n; r++)
		rank_exit(&ranks[r]);
out:
	free(results);
	free(ops);
	free(ranks);
}
