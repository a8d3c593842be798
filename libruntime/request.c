// SPDX-License-Identifier: MIT
/*
 * Requests: calls in flight, from their start until they are freed.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "collective.h"

static struct npuwin_request *request_create(struct npuwin_domain *domain, struct plan *plan)
{
	uint32_t nranks = domain->ep->nranks;
	uint32_t news = handshake_news_count(nranks);
	size_t descs = (news + plan->count) * sizeof(struct npuwin_desc);
	struct npuwin_request *request;

	request = calloc(1, sizeof(*request) + descs + nranks * sizeof(struct npuwin_clamp));
	if (!request)
		return NULL;
	request->domain = domain;
	request->plan = plan;
	request->clamps = (struct npuwin_clamp *)((uint8_t *)request->descs + descs);
	handshake_build_news(domain->ep, request->descs);
	collective_build(domain->ep, plan, request_program(request));
	request_program(request)[plan->count - 1].flags |= NPUWIN_DESC_F_CQE;
	return request;
}

int request_get(struct npuwin_domain *domain, struct plan *plan,
		struct npuwin_request **request, struct npuwin_error *err)
{
	struct plans *plans = domain->plans;
	struct npuwin_request *r = plan->idle;

	if (!plans->nstages)
		return npuwin_fail(err, -EBUSY, domain->ep->rank, NPUWIN_NOBODY,
				   "%s: %d calls of this rank are in flight, the most there can be",
				   collective_name(plan->kind), HANDSHAKE_STAGES);
	if (r) {
		plan->idle = r->next;
	} else {
		r = request_create(domain, plan);
		if (!r)
			return npuwin_fail(err, -ENOMEM, domain->ep->rank, NPUWIN_NOBODY,
					   "%s: out of memory for a program of %u descriptors",
					   collective_name(plan->kind), plan->count);
	}
	plan->active++;
	r->stage = plans->stages[--plans->nstages];
	r->staged = true;
	r->armed = false;
	r->settled = false;
	r->code = 0;
	r->nclamped = 0;
	r->bytes = 0;
	r->prev = NULL;
	r->next = plans->live;
	if (r->next)
		r->next->prev = r;
	plans->live = r;
	*request = r;
	return 0;
}

/* The engine does not read the signature's copy any more. */
static void request_unstage(struct npuwin_request *request)
{
	struct plans *plans = request->domain->plans;

	if (request->staged)
		plans->stages[plans->nstages++] = (uint16_t)request->stage;
	request->staged = false;
}

void request_put(struct npuwin_request *request)
{
	struct npuwin_domain *domain = request->domain;
	struct plans *plans = domain->plans;

	if (request->armed)
		job_fini(&request->job);
	request_unstage(request);
	if (request->prev)
		request->prev->next = request->next;
	else
		plans->live = request->next;
	if (request->next)
		request->next->prev = request->prev;
	request->next = request->plan->idle;
	request->plan->idle = request;
	plan_put(domain, request->plan);
}

/* Whether an earlier call may yet read what it tells of allocations. */
static bool request_telling(const struct npuwin_request *request)
{
	const struct npuwin_request *older;

	for (older = request->next; older; older = older->next)
		if (older->armed && older->tells && !older->settled)
			return true;
	return false;
}

void request_arm(struct npuwin_request *request, int64_t deadline_ns)
{
	struct npuwin_domain *domain = request->domain;
	uint32_t news = handshake_news_count(domain->ep->nranks);
	struct signature *signature = &request->signature;

	/* Descriptors know no negative deadlines; both have passed. */
	if (deadline_ns < 0)
		deadline_ns = 0;
	*signature = request->plan->signature;
	signature->seq = domain->seq++;
	heap_history(domain->heap, &signature->allocs, &signature->alloc_digest);
	signature_seal(signature);
	handshake_patch(domain->ep, request_program(request), signature, request->stage,
			deadline_ns);
	collective_patch(request, deadline_ns);
	request->tells = heap_has_news(domain->heap) && !request_telling(request);
	if (request->tells)
		heap_tell(domain->heap);
	request->job = (struct job) {
		.ep = domain->ep,
		.rail = request->plan->rail,
		.descs = request->tells ? request->descs : request_program(request),
		.count = (request->tells ? news : 0) + request->plan->count,
		.event_fd = -1,
	};
	request->armed = true;
}

void request_disarm(struct npuwin_request *request)
{
	request->domain->seq--;
	request->armed = false;
	if (request->tells)
		heap_tell_again(request->domain->heap);
}

static void request_close(struct npuwin_request *request, bool abort)
{
	struct npuwin_request *older;

	if (request->settled)
		return;
	/* What stopped the queue explains more than that it was stopped. */
	if (request->job.cqe.status == NPUWIN_ST_CANCELLED)
		for (older = request->next; older; older = older->next)
			if (older->plan->rail == request->plan->rail && !older->settled &&
			    older->job.cqe.status != NPUWIN_ST_CANCELLED)
				request_close(older, abort);
	request->code = outcome_request(request, &request->error);
	request->settled = true;
	request_unstage(request);
	if (abort)
		outcome_stop(request->domain, &request->job.cqe, request->code);
}

void request_settle(struct npuwin_request *request)
{
	request_close(request, true);
}

void request_end(struct npuwin_request *request)
{
	request_close(request, false);
}

int request_result(const struct npuwin_request *request, struct npuwin_a2av_result *result,
		   struct npuwin_error *err)
{
	if (err)
		*err = request->error;
	if (result) {
		uint32_t n = request->nclamped;

		if (n > result->clamps_room)
			n = result->clamps_room;
		if (result->clamps)
			memcpy(result->clamps, request->clamps, n * sizeof(*result->clamps));
		result->nclamped = request->nclamped;
		result->max_recv = request->plan->shape.max_recv;
		result->bytes = request->code ? 0 : request->bytes;
	}
	return request->code;
}

static int request_finish(struct npuwin_request *request, struct npuwin_a2av_result *result,
			  struct npuwin_error *err)
{
	struct npuwin_domain *domain = request->domain;
	int rc;

	pthread_mutex_lock(&domain->lock);
	request_settle(request);
	rc = request_result(request, result, err);
	pthread_mutex_unlock(&domain->lock);
	return rc;
}

static int request_pending(const struct npuwin_request *request, struct npuwin_error *err)
{
	return npuwin_fail(err, -EAGAIN, request->domain->ep->rank, NPUWIN_NOBODY,
			   "%s: is not complete yet", collective_name(request->plan->kind));
}

int npuwin_request_test(struct npuwin_request *request, struct npuwin_a2av_result *result,
			struct npuwin_error *err)
{
	if (job_test(&request->job))
		return request_pending(request, err);
	return request_finish(request, result, err);
}

int npuwin_request_wait(struct npuwin_request *request, int64_t deadline_ns,
			struct npuwin_a2av_result *result, struct npuwin_error *err)
{
	struct job *job = &request->job;

	if (job_wait(&job, 1, deadline_ns))
		return request_pending(request, err);
	return request_finish(request, result, err);
}

int npuwin_request_fd(struct npuwin_request *request, struct npuwin_error *err)
{
	int fd = job_fd(&request->job, err);

	return fd < 0 ? fd : npuwin_ok(err, fd);
}

void npuwin_request_free(struct npuwin_request *request)
{
	struct npuwin_domain *domain;
	struct job *job;

	if (!request)
		return;
	domain = request->domain;
	job = &request->job;
	if (job_test(job)) {
		/* The abort ends the job, and what is in front of it. */
		outcome_abort(domain, -ECANCELED);
		job_wait(&job, 1, NPUWIN_NO_DEADLINE);
	}
	pthread_mutex_lock(&domain->lock);
	while (request->pins)
		pthread_cond_wait(&domain->plans->turned, &domain->lock);
	request_settle(request);
	request_put(request);
	pthread_mutex_unlock(&domain->lock);
}
