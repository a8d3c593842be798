// SPDX-License-Identifier: MIT
/*
 * Plans: collectives that have been checked, with their programs, kept for the next call.
 */
#include <stdlib.h>
#include <string.h>

#include "collective.h"

struct plans *plans_create(struct npuwin_domain *domain)
{
	struct plans *plans = calloc(1, sizeof(*plans));
	pthread_condattr_t attr;
	uint32_t i;

	if (!plans)
		return NULL;
	plans->jobs_room = 1;
	plans->jobs = calloc(plans->jobs_room, sizeof(struct job *));
	if (!plans->jobs) {
		free(plans);
		return NULL;
	}
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&plans->turned, &attr);
	pthread_condattr_destroy(&attr);
	for (i = 0; i < HANDSHAKE_STAGES; i++)
		plans->stages[plans->nstages++] = (uint16_t)(HANDSHAKE_STAGES - 1 - i);
	return plans;
}

static void plan_destroy(struct plan *plan)
{
	while (plan->idle) {
		struct npuwin_request *next = plan->idle->next;

		free(plan->idle);
		plan->idle = next;
	}
	free(plan);
}

static void plan_unlink(struct plans *plans, struct plan *plan)
{
	if (plan->prev)
		plan->prev->next = plan->next;
	else
		plans->first = plan->next;
	if (plan->next)
		plan->next->prev = plan->prev;
	else
		plans->last = plan->prev;
	plans->count--;
}

static void plan_link(struct plans *plans, struct plan *plan)
{
	plan->prev = NULL;
	plan->next = plans->first;
	if (plan->next)
		plan->next->prev = plan;
	else
		plans->last = plan;
	plans->first = plan;
	plans->count++;
}

void plans_destroy(struct npuwin_domain *domain)
{
	struct plans *plans = domain->plans;

	if (!plans)
		return;
	while (plans->live)
		request_put(plans->live);
	while (plans->first) {
		struct plan *plan = plans->first;

		plan_unlink(plans, plan);
		plan_destroy(plan);
	}
	pthread_cond_destroy(&plans->turned);
	free(plans->jobs);
	free(plans);
}

static bool tensor_equal(const struct npuwin_tensor *a, const struct npuwin_tensor *b)
{
	/* Compared with a plan's, which has been checked: its ndim is in range. */
	return a->buffer == b->buffer && a->offset == b->offset && a->dtype == b->dtype &&
	       a->ndim == b->ndim &&
	       !memcmp(a->shape, b->shape, b->ndim * sizeof(b->shape[0]));
}

static bool plan_fits(const struct plan *plan, uint32_t kind, uint32_t rail,
		      const struct npuwin_a2av *op)
{
	if (plan->kind != kind || plan->rail != rail)
		return false;
	if (kind != COLLECTIVE_A2AV)
		return true;
	return op->mode == plan->op.mode && op->rail == plan->op.rail && !op->reserved[0] &&
	       !op->reserved[1] && tensor_equal(&op->target, &plan->op.target) &&
	       tensor_equal(&op->input, &plan->op.input) &&
	       tensor_equal(&op->signal, &plan->op.signal) &&
	       tensor_equal(&op->send_counts, &plan->op.send_counts) &&
	       tensor_equal(&op->recv_counts, &plan->op.recv_counts);
}

static void plan_sign(struct plan *plan)
{
	struct signature *signature = &plan->signature;
	const struct npuwin_a2av *op = &plan->op;

	signature->version = SIGNATURE_VERSION;
	signature->kind = (uint8_t)plan->kind;
	if (plan->kind != COLLECTIVE_A2AV)
		goto begin;
	signature->mode = (uint8_t)op->mode;
	signature->dtype = (uint8_t)op->target.dtype;
	signature->ndim = (uint8_t)op->target.ndim;
	signature->max_recv = plan->shape.max_recv;
	memcpy(signature->size, op->target.shape + 1,
	       (op->target.ndim - 1) * sizeof(signature->size[0]));
	signature->row_bytes = plan->shape.row_bytes;
	signature->target = op->target.buffer->offset + op->target.offset;
	signature->signal = op->signal.buffer->offset + op->signal.offset;
	signature->recv_counts = op->recv_counts.buffer->offset + op->recv_counts.offset;
begin:
	signature_begin(signature);
}

/* Forget idle plans, those used longest ago first, but not @keep. */
static void plans_trim(struct plans *plans, const struct plan *keep)
{
	struct plan *plan = plans->last, *prev;

	for (; plan && plans->count > PLANS_IDLE; plan = prev) {
		prev = plan->prev;
		if (plan->active || plan == keep)
			continue;
		plan_unlink(plans, plan);
		plan_destroy(plan);
	}
}

static int plan_make(struct npuwin_domain *domain, uint32_t kind, uint32_t rail,
		     const struct npuwin_a2av *op, struct plan **made, struct npuwin_error *err)
{
	struct plan *plan = calloc(1, sizeof(*plan));
	int rc = -ENOMEM;

	if (!plan)
		goto fail;
	plan->kind = kind;
	plan->rail = rail;
	plan->count = collective_count(kind, domain->ep->nranks);
	if (kind == COLLECTIVE_A2AV) {
		plan->op = *op;
		rc = check_a2av(domain, &plan->op, &plan->shape, err);
		if (rc)
			goto free_plan;
		rc = heap_add_signal(op->signal.buffer,
				     op->signal.buffer->offset + op->signal.offset);
		if (rc)
			goto fail;
	}
	plan_sign(plan);
	plan_link(domain->plans, plan);
	plans_trim(domain->plans, plan);
	*made = plan;
	return 0;
fail:
	npuwin_fail(err, rc, domain->ep->rank, NPUWIN_NOBODY, "%s: out of memory for a plan",
		    collective_name(kind));
free_plan:
	free(plan);
	return rc;
}

int plan_get(struct npuwin_domain *domain, uint32_t kind, uint32_t rail,
	     const struct npuwin_a2av *op, struct plan **plan, struct npuwin_error *err)
{
	struct plans *plans = domain->plans;
	struct plan *p;

	for (p = plans->first; p; p = p->next)
		if (plan_fits(p, kind, rail, op))
			break;
	if (!p) {
		int rc = plan_make(domain, kind, rail, op, &p, err);

		if (rc)
			return rc;
	} else if (p != plans->first) {
		plan_unlink(plans, p);
		plan_link(plans, p);
	}
	*plan = p;
	return 0;
}

void plan_put(struct npuwin_domain *domain, struct plan *plan)
{
	plan->active--;
	if (!plan->dropped)
		plans_trim(domain->plans, plan);
	else if (!plan->active)
		plan_destroy(plan);
}

void plans_drop(struct npuwin_domain *domain, const struct npuwin_buffer *buffer)
{
	struct plans *plans = domain->plans;
	struct plan *plan, *next;

	for (plan = plans->first; plan; plan = next) {
		const struct npuwin_a2av *op = &plan->op;

		next = plan->next;
		if (op->input.buffer != buffer && op->target.buffer != buffer &&
		    op->signal.buffer != buffer && op->send_counts.buffer != buffer &&
		    op->recv_counts.buffer != buffer)
			continue;
		plan_unlink(plans, plan);
		plan->dropped = true;
		if (!plan->active)
			plan_destroy(plan);
	}
}
