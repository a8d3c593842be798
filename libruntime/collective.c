// SPDX-License-Identifier: MIT
/*
 * Starting collectives: in the same order on every rail, one rank or many at once.
 */
#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "collective.h"

#define NSEC_PER_SEC	1000000000LL

int collective_init(struct npuwin_domain *domain, struct npuwin_error *err)
{
	struct endpoint *ep = domain->ep;

	domain->seq = 0;
	domain->heap = heap_create(domain, handshake_size(ep->nranks), ep->window_size);
	domain->plans = plans_create(domain);
	if (domain->heap && domain->plans)
		return 0;
	collective_fini(domain);
	return npuwin_fail(err, -ENOMEM, ep->rank, NPUWIN_NOBODY,
			   "domain: out of memory for rank %u", ep->rank);
}

void collective_fini(struct npuwin_domain *domain)
{
	plans_destroy(domain);
	domain->plans = NULL;
	heap_destroy(domain->heap);
	domain->heap = NULL;
}

void collective_reset(struct npuwin_domain *domain)
{
	struct npuwin_request *request;

	pthread_mutex_lock(&domain->lock);
	/* A call that is between its look at the domain and its start ends like the others. */
	while (domain->plans->turn)
		pthread_cond_wait(&domain->plans->turned, &domain->lock);
	/* Before the signatures are gone that explain a mismatch. */
	for (request = domain->plans->live; request; request = request->next)
		if (request->armed)
			request_end(request);
	handshake_reset(domain->ep);
	heap_zero_signals(domain->heap);
	heap_tell_again(domain->heap);
	domain->seq = 0;
	pthread_mutex_unlock(&domain->lock);
}

int collective_turn_take(struct npuwin_domain *domain, int64_t deadline_ns)
{
	struct plans *plans = domain->plans;
	struct timespec until = {
		.tv_sec = deadline_ns / NSEC_PER_SEC,
		.tv_nsec = deadline_ns % NSEC_PER_SEC,
	};

	if (deadline_ns < 0)
		until = (struct timespec) { 0 };
	while (plans->turn)
		if (pthread_cond_timedwait(&plans->turned, &domain->lock, &until) == ETIMEDOUT &&
		    plans->turn)
			return -ETIMEDOUT;
	plans->turn = true;
	return 0;
}

void collective_turn_give(struct npuwin_domain *domain)
{
	domain->plans->turn = false;
	pthread_cond_broadcast(&domain->plans->turned);
}

/* The newest request that may still be executed, on @rail or, for -1, on any. */
static struct npuwin_request *newest(const struct npuwin_domain *domain, int rail)
{
	struct npuwin_request *request;

	for (request = domain->plans->live; request; request = request->next)
		if (request->armed && !request->settled &&
		    (rail < 0 || request->plan->rail == (uint32_t)rail))
			return request;
	return NULL;
}

static uint32_t other_rail(uint32_t rail)
{
	return rail == NPUWIN_RAIL_HOST ? NPUWIN_RAIL_DIRECT : NPUWIN_RAIL_HOST;
}

/* The caller has the turn and the lock: get the next call's request, checked. */
static int collective_prepare(struct npuwin_domain *domain, uint32_t kind,
			      const struct npuwin_a2av *op, struct npuwin_error *err)
{
	const struct npuwin_request *before = newest(domain, -1);
	struct plan *plan;
	uint32_t rail;
	int rc;

	/* A barrier has no rail of its own: it goes on behind what is in flight. */
	if (op)
		rail = op->rail;
	else
		rail = before ? before->plan->rail : NPUWIN_RAIL_HOST;
	rc = plan_get(domain, kind, rail, op, &plan, err);
	if (rc)
		return rc;
	return request_get(domain, plan, &domain->plans->current, err);
}

/*
 * Jobs are in order on each rail, but not between the rails: wait for what the @n ranks,
 * whose turn the caller has, have in flight on another rail than their next request. All at
 * once, since on the direct rail it is the caller who moves them on.
 */
static int collective_make_way(struct npuwin_domain *const *domains, uint32_t n,
			       struct job **jobs, uint32_t kind, int64_t deadline_ns,
			       struct npuwin_error *err)
{
	uint32_t i, count = 0;
	int rc;

	for (i = 0; i < n; i++) {
		struct plans *plans = domains[i]->plans;
		struct npuwin_request *request;

		pthread_mutex_lock(&domains[i]->lock);
		request = newest(domains[i], (int)other_rail(plans->current->plan->rail));
		if (request) {
			request->pins++;
			jobs[count++] = &request->job;
		}
		pthread_mutex_unlock(&domains[i]->lock);
	}
	if (!count)
		return 0;
	rc = job_wait(jobs, count, deadline_ns);
	for (i = 0; i < count; i++) {
		struct npuwin_request *request = (struct npuwin_request *)jobs[i];
		struct npuwin_domain *domain = request->domain;

		pthread_mutex_lock(&domain->lock);
		request->pins--;
		pthread_cond_broadcast(&domain->plans->turned);
		pthread_mutex_unlock(&domain->lock);
	}
	if (!rc)
		return 0;
	rc = outcome_earlier(domains, n, kind, "on the other rail", err);
	outcome_abort(domains[0], rc);
	return rc;
}

int collective_start(struct npuwin_domain *domain, const struct npuwin_a2av *op,
		     int64_t deadline_ns, struct npuwin_request **request,
		     struct npuwin_error *err)
{
	const uint32_t kind = COLLECTIVE_A2AV;
	struct plans *plans = domain->plans;
	int rc;

	pthread_mutex_lock(&domain->lock);
	rc = collective_turn_take(domain, deadline_ns);
	if (rc) {
		pthread_mutex_unlock(&domain->lock);
		rc = outcome_earlier(&domain, 1, kind, "of this rank", err);
		outcome_abort(domain, rc);
		return rc;
	}
	rc = collective_prepare(domain, kind, op, err);
	if (rc)
		goto give_turn;
	pthread_mutex_unlock(&domain->lock);
	rc = collective_make_way(&domain, 1, plans->jobs, kind, deadline_ns, err);
	pthread_mutex_lock(&domain->lock);
	if (!rc)
		rc = outcome_domain(domain, collective_name(kind), err);
	if (rc)
		goto put_request;
	request_arm(plans->current, deadline_ns);
	rc = job_start(&plans->current->job, err);
	if (rc)
		goto disarm;
	*request = plans->current;
	collective_turn_give(domain);
	pthread_mutex_unlock(&domain->lock);
	return npuwin_ok(err, 0);

disarm:
	request_disarm(plans->current);
put_request:
	request_put(plans->current);
give_turn:
	collective_turn_give(domain);
	pthread_mutex_unlock(&domain->lock);
	return rc;
}

/**
 * struct group - Ranks of this process that run a collective together.
 * @domains: @n of them, as the caller gave them
 * @n: how many
 * @kind: enum collective_kind
 * @deadline_ns: of the operation
 * @by_rank: indices of @domains in ascending order of ranks
 * @jobs: room for @n jobs
 */
struct group {
	struct npuwin_domain *const *domains;
	uint32_t n;
	uint32_t kind;
	int64_t deadline_ns;
	uint16_t by_rank[NPUWIN_MAX_RANKS];
	struct job **jobs;
};

static int check_result(const char *what, uint32_t rank, const struct npuwin_a2av_result *result,
			struct npuwin_error *err)
{
	size_t i;

	if (result->reserved0)
		return npuwin_fail(err, -EINVAL, rank, NPUWIN_NOBODY,
				   "%s: reserved0 of the result is 0x%" PRIx32 ", want 0", what,
				   result->reserved0);
	for (i = 0; i < ARRAY_SIZE(result->reserved); i++)
		if (result->reserved[i])
			return npuwin_fail(err, -EINVAL, rank, NPUWIN_NOBODY,
					   "%s: reserved[%zu] of the result is 0x%" PRIx64
					   ", want 0", what, i, result->reserved[i]);
	return 0;
}

static int group_check(struct group *group, const struct npuwin_a2av_result *results,
		       struct npuwin_error *err)
{
	const char *what = collective_name(group->kind);
	uint32_t nranks, rank, i, at = 0;

	if (!group->n || !group->domains[0])
		return npuwin_fail(err, -EINVAL, NPUWIN_NOBODY, NPUWIN_NOBODY,
				   "%s: no domain is given", what);
	nranks = group->domains[0]->ep->nranks;
	memset(group->by_rank, 0xff, sizeof(group->by_rank));
	for (i = 0; i < group->n; i++) {
		const struct npuwin_domain *domain = group->domains[i];

		if (!domain)
			return npuwin_fail(err, -EINVAL, NPUWIN_NOBODY, NPUWIN_NOBODY,
					   "%s: domains[%u] is NULL", what, i);
		rank = domain->ep->rank;
		if (domain->ep->nranks != nranks)
			return npuwin_fail(err, -EINVAL, rank, NPUWIN_NOBODY,
					   "%s: domains[%u] has %u ranks, domains[0] has %u",
					   what, i, domain->ep->nranks, nranks);
		if (group->by_rank[rank] != UINT16_MAX)
			return npuwin_fail(err, -EINVAL, rank, NPUWIN_NOBODY,
					   "%s: domains[%u] and domains[%u] are both rank %u",
					   what, group->by_rank[rank], i, rank);
		group->by_rank[rank] = (uint16_t)i;
		if (results && check_result(what, rank, &results[i], err))
			return -EINVAL;
	}
	for (rank = 0; rank < nranks; rank++)
		if (group->by_rank[rank] != UINT16_MAX)
			group->by_rank[at++] = group->by_rank[rank];
	return 0;
}

/* Take all turns, or none, in the order of ranks: so do all who need several. */
static int group_take_turns(struct group *group, struct npuwin_error *err)
{
	uint32_t i;
	int rc;

	for (i = 0; i < group->n; i++) {
		struct npuwin_domain *domain = group->domains[group->by_rank[i]];

		pthread_mutex_lock(&domain->lock);
		rc = collective_turn_take(domain, group->deadline_ns);
		if (!rc)
			domain->plans->current = NULL;
		pthread_mutex_unlock(&domain->lock);
		if (!rc)
			continue;
		rc = outcome_earlier(&domain, 1, group->kind, "of this rank", err);
		outcome_abort(domain, rc);
		goto give;
	}
	return 0;
give:
	while (i-- > 0) {
		struct npuwin_domain *domain = group->domains[group->by_rank[i]];

		pthread_mutex_lock(&domain->lock);
		collective_turn_give(domain);
		pthread_mutex_unlock(&domain->lock);
	}
	return rc;
}

static void group_give_turns(struct group *group)
{
	uint32_t i;

	for (i = 0; i < group->n; i++) {
		struct npuwin_domain *domain = group->domains[i];

		pthread_mutex_lock(&domain->lock);
		if (domain->plans->current)
			request_put(domain->plans->current);
		collective_turn_give(domain);
		pthread_mutex_unlock(&domain->lock);
	}
}

/* Room that stays for the next call: with the rank that every call of this group has. */
static int group_room(struct group *group, struct npuwin_error *err)
{
	struct plans *plans = group->domains[group->by_rank[0]]->plans;
	struct job **jobs;

	if (plans->jobs_room < group->n) {
		jobs = realloc(plans->jobs, group->n * sizeof(struct job *));
		if (!jobs)
			return npuwin_fail(err, -ENOMEM, NPUWIN_NOBODY, NPUWIN_NOBODY,
					   "%s: out of memory for %u jobs",
					   collective_name(group->kind), group->n);
		plans->jobs = jobs;
		plans->jobs_room = group->n;
	}
	group->jobs = plans->jobs;
	return 0;
}

static int group_prepare(struct group *group, const struct npuwin_a2av *ops,
			 struct npuwin_error *err)
{
	uint32_t i;
	int rc = group_room(group, err);

	for (i = 0; !rc && i < group->n; i++) {
		struct npuwin_domain *domain = group->domains[i];

		pthread_mutex_lock(&domain->lock);
		rc = collective_prepare(domain, group->kind, ops ? &ops[i] : NULL, err);
		pthread_mutex_unlock(&domain->lock);
	}
	if (rc)
		return rc;
	return collective_make_way(group->domains, group->n, group->jobs, group->kind,
				   group->deadline_ns, err);
}

static int group_execute(struct group *group, struct npuwin_error *err)
{
	uint32_t i;
	int rc = 0;

	for (i = 0; !rc && i < group->n; i++)
		rc = outcome_domain(group->domains[i], collective_name(group->kind), err);
	if (rc)
		return rc;
	for (i = 0; i < group->n; i++) {
		struct npuwin_domain *domain = group->domains[i];

		pthread_mutex_lock(&domain->lock);
		request_arm(domain->plans->current, group->deadline_ns);
		group->jobs[i] = &domain->plans->current->job;
		pthread_mutex_unlock(&domain->lock);
	}
	rc = job_run(group->jobs, group->n, err);
	for (i = 0; rc && i < group->n; i++) {
		pthread_mutex_lock(&group->domains[i]->lock);
		request_disarm(group->domains[i]->plans->current);
		pthread_mutex_unlock(&group->domains[i]->lock);
	}
	return rc;
}

/* A rank that was cancelled because of another's failure tells less than that failure. */
static int group_results(struct group *group, struct npuwin_a2av_result *results,
			 struct npuwin_error *err)
{
	struct npuwin_error error;
	uint32_t i;
	int first = 0;

	for (i = 0; i < group->n; i++) {
		struct npuwin_domain *domain = group->domains[i];
		int rc;

		pthread_mutex_lock(&domain->lock);
		request_settle(domain->plans->current);
		rc = request_result(domain->plans->current, results ? &results[i] : NULL, &error);
		pthread_mutex_unlock(&domain->lock);
		if (rc && (!first || (first == -ECANCELED && rc != -ECANCELED))) {
			first = rc;
			if (err)
				*err = error;
		}
	}
	return first ? first : npuwin_ok(err, 0);
}

int collective_run(struct npuwin_domain *const *domains, uint32_t kind,
		   const struct npuwin_a2av *ops, uint32_t n, int64_t deadline_ns,
		   struct npuwin_a2av_result *results, struct npuwin_error *err)
{
	struct group group = {
		.domains = domains,
		.n = n,
		.kind = kind,
		.deadline_ns = deadline_ns,
	};
	int rc;

	rc = group_check(&group, results, err);
	if (rc)
		return rc;
	rc = group_take_turns(&group, err);
	if (rc)
		return rc;
	rc = group_prepare(&group, ops, err);
	if (!rc)
		rc = group_execute(&group, err);
	if (!rc)
		rc = group_results(&group, results, err);
	group_give_turns(&group);
	return rc;
}
