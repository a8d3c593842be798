// SPDX-License-Identifier: MIT
/*
 * What became of a program, in an errno and a sentence.
 */
#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "collective.h"

/* How long word of a rank that is gone may take, and how often to look for it. */
#define WORD_NS		1000000000LL
#define PAUSE_NS	1000000

const char *collective_name(uint32_t kind)
{
	switch (kind) {
	case COLLECTIVE_BARRIER:
		return "barrier";
	case COLLECTIVE_A2AV:
		return "all_to_all_v";
	default:
		return "an unknown collective";
	}
}

void outcome_abort(const struct npuwin_domain *domain, int code)
{
	const struct npuwin_domain_status *status = domain->ep->status;

	/* Not while it is being reset: what fails then is what the reset ends. */
	if (__atomic_load_n(&status->state, __ATOMIC_ACQUIRE) == NPUWIN_DOMAIN_READY)
		domain->ctx->ops->abort(domain->ep, -code);
}

void outcome_stop(const struct npuwin_domain *domain, const struct npuwin_cqe *cqe, int code)
{
	switch (cqe->status) {
	case NPUWIN_ST_OK:
	case NPUWIN_ST_MISMATCH:
	case NPUWIN_ST_ABORTED:
	case NPUWIN_ST_CANCELLED:
		return;
	default:
		outcome_abort(domain, code);
	}
}

static uint32_t rank_state(const struct npuwin_domain *domain, uint32_t rank)
{
	return __atomic_load_n(&domain->ep->status->rank[rank].state, __ATOMIC_RELAXED);
}

/* Whose going -EPIPE is about: @rank, or who made @rank abort. */
static uint32_t who_is_gone(const struct npuwin_domain *domain, uint32_t rank)
{
	uint32_t nranks = domain->ep->nranks, i;

	if (rank < nranks && rank_state(domain, rank) != NPUWIN_RANK_JOINED)
		return rank;
	for (i = 0; i < nranks; i++)
		if (rank_state(domain, i) == NPUWIN_RANK_DEAD ||
		    rank_state(domain, i) == NPUWIN_RANK_LEFT)
			return i;
	return rank < nranks ? rank : NPUWIN_NO_RANK;
}

static int outcome_peer(const struct npuwin_domain *domain, const char *what, uint32_t rank,
			struct npuwin_error *err)
{
	uint32_t peer = who_is_gone(domain, rank);
	const char *how = "is gone";

	if (peer == NPUWIN_NO_RANK)
		return npuwin_fail(err, -EPIPE, domain->ep->rank, NPUWIN_NOBODY,
				   "%s: a rank of the domain is gone", what);
	if (rank_state(domain, peer) == NPUWIN_RANK_DEAD)
		how = "is dead";
	else if (rank_state(domain, peer) == NPUWIN_RANK_LEFT)
		how = "has left";
	return npuwin_fail(err, -EPIPE, domain->ep->rank, (int32_t)peer, "%s: rank %u %s", what,
			   peer, how);
}

/* @who has aborted, as far as a completion tells: of that the status page may be later. */
static int outcome_aborted(const struct npuwin_domain *domain, const char *what, uint32_t who,
			   struct npuwin_error *err)
{
	const struct npuwin_domain_status *status = domain->ep->status;
	uint32_t rank = __atomic_load_n(&status->abort_rank, __ATOMIC_RELAXED);
	int error = __atomic_load_n(&status->abort_error, __ATOMIC_RELAXED);
	const char *name = strerrorname_np(error), *text = strerrordesc_np(error);

	if (__atomic_load_n(&status->state, __ATOMIC_ACQUIRE) != NPUWIN_DOMAIN_ABORTED ||
	    rank >= domain->ep->nranks) {
		if (who < domain->ep->nranks)
			return npuwin_fail(err, -ECANCELED, domain->ep->rank, (int32_t)who,
					   "%s: rank %u has aborted the domain", what, who);
		return npuwin_fail(err, -ECANCELED, domain->ep->rank, NPUWIN_NOBODY,
				   "%s: the domain was aborted or is being reset", what);
	}
	if (error == EPIPE)
		return outcome_peer(domain, what, rank, err);
	return npuwin_fail(err, -ECANCELED, domain->ep->rank, (int32_t)rank,
			   "%s: rank %u has aborted the domain: %s (%s)", what, rank,
			   name ? name : "error", text ? text : "unknown");
}

int outcome_domain(const struct npuwin_domain *domain, const char *what,
		   struct npuwin_error *err)
{
	if (__atomic_load_n(&domain->ep->status->state, __ATOMIC_ACQUIRE) == NPUWIN_DOMAIN_READY)
		return 0;
	return outcome_aborted(domain, what, NPUWIN_NO_RANK, err);
}

/*
 * Why a peer refuses or a wait has ended is on the status page. From another host that word
 * comes by itself, and may be a little later than the refusal.
 */
static void await_word(const struct npuwin_domain *domain, const struct npuwin_cqe *cqe)
{
	const struct timespec pause = { .tv_nsec = PAUSE_NS };
	int64_t until = npuwin_now() + WORD_NS;

	if (cqe->status != NPUWIN_ST_PEER && cqe->status != NPUWIN_ST_ABORTED)
		return;
	while (__atomic_load_n(&domain->ep->status->state, __ATOMIC_ACQUIRE) ==
	       NPUWIN_DOMAIN_READY) {
		if (cqe->status == NPUWIN_ST_PEER &&
		    (cqe->rank >= domain->ep->nranks ||
		     rank_state(domain, cqe->rank) != NPUWIN_RANK_JOINED))
			return;
		if (npuwin_now() >= until)
			return;
		nanosleep(&pause, NULL);
	}
}

int outcome_status(const struct npuwin_domain *domain, const char *what,
		   const struct npuwin_cqe *cqe, struct npuwin_error *err)
{
	uint32_t rank = domain->ep->rank;

	await_word(domain, cqe);
	switch (cqe->status) {
	case NPUWIN_ST_PEER:
		return outcome_peer(domain, what, cqe->rank, err);
	case NPUWIN_ST_ABORTED:
		return outcome_aborted(domain, what, cqe->rank, err);
	case NPUWIN_ST_CANCELLED:
		if (outcome_domain(domain, what, err))
			return outcome_aborted(domain, what, NPUWIN_NO_RANK, err);
		return npuwin_fail(err, -ECANCELED, rank, NPUWIN_NOBODY,
				   "%s: was not executed, because an earlier call of this rank failed",
				   what);
	case NPUWIN_ST_DEVICE:
		return npuwin_fail(err, -ENODEV, rank, NPUWIN_NOBODY,
				   "%s: the device is gone or has failed", what);
	default:
		return npuwin_fail(err, -EIO, rank, NPUWIN_NOBODY,
				   "%s: the engine refused descriptor %" PRIu64 " with status %u",
				   what, (uint64_t)cqe->seq, cqe->status);
	}
}

static int outcome_timeout(const struct npuwin_request *request, const char *what,
			   struct npuwin_error *err)
{
	const struct npuwin_cqe *cqe = &request->job.cqe;
	const struct endpoint *ep = request->domain->ep;
	uint64_t before = request->job.count - request->plan->count;

	if (cqe->seq < before + handshake_count(ep->nranks))
		return npuwin_fail(err, -ETIMEDOUT, ep->rank, (int32_t)cqe->cell,
				   "%s: deadline: rank %u has not entered the call: its credit is %d, expected %d",
				   what, cqe->cell, cqe->value, 1);
	return npuwin_fail(err, -ETIMEDOUT, ep->rank, (int32_t)cqe->cell,
			   "%s: deadline: rank %u has entered the call but not delivered: signal[%u] is %d, expected %d",
			   what, cqe->cell, cqe->cell, cqe->value, 1);
}

/**
 * struct late - Whom a call waits for.
 * @rank: who, or NPUWIN_NO_RANK where it does not show
 * @entered: it has made the call, and not delivered
 */
struct late {
	uint32_t rank;
	bool entered;
};

/* For the oldest call of @domain that shows it. */
static struct late late_in(struct npuwin_domain *domain)
{
	struct late late = { .rank = NPUWIN_NO_RANK };
	struct npuwin_request *request;
	uint64_t desc, before;
	uint32_t rank;

	pthread_mutex_lock(&domain->lock);
	for (request = domain->plans->live; request; request = request->next) {
		if (!request->armed || request->settled ||
		    !job_waits_for(&request->job, &desc, &rank))
			continue;
		late.rank = rank;
		before = request->job.count - request->plan->count;
		late.entered = desc >= before + handshake_count(domain->ep->nranks);
	}
	pthread_mutex_unlock(&domain->lock);
	return late;
}

int outcome_earlier(struct npuwin_domain *const *domains, uint32_t n, uint32_t kind,
		    const char *which, struct npuwin_error *err)
{
	const char *what = collective_name(kind);
	struct late late;
	uint32_t i;

	for (i = 0; i < n; i++) {
		late = late_in(domains[i]);
		if (late.rank != NPUWIN_NO_RANK)
			return npuwin_fail(err, -ETIMEDOUT, domains[i]->ep->rank,
					   (int32_t)late.rank,
					   "%s: deadline: an earlier call %s is not complete: rank %u has %s",
					   what, which, late.rank,
					   late.entered ? "entered it but not delivered" :
							  "not entered it");
	}
	return npuwin_fail(err, -ETIMEDOUT, domains[0]->ep->rank, NPUWIN_NOBODY,
			   "%s: deadline: an earlier call %s is not complete", what, which);
}

static int outcome_mismatch(const struct npuwin_request *request, const char *what,
			    struct npuwin_error *err)
{
	const struct npuwin_cqe *cqe = &request->job.cqe;
	const struct endpoint *ep = request->domain->ep;
	struct alloc_difference difference;
	struct allocation told[HISTORY];
	struct signature peer;
	uint64_t slot;

	if (cqe->cell >= ep->nranks)
		return outcome_status(request->domain, what, cqe, err);
	slot = handshake_slot(ep->nranks, request->signature.seq, cqe->cell);
	/* Peers can write the slot while it is read, so what counts is the copy. */
	memcpy(&peer, ep->window[ep->rank] + slot, sizeof(peer));
	if (peer.crc != (uint32_t)cqe->value)
		return npuwin_fail(err, -EPROTO, ep->rank, (int32_t)cqe->cell,
				   "%s: rank %u and rank %u have not made the same call",
				   what, ep->rank, cqe->cell);
	memcpy(told, ep->window[ep->rank] + handshake_history(ep->nranks, cqe->cell), sizeof(told));
	heap_difference(request->domain->heap, &request->signature, &peer, told, &difference);
	return signature_explain(&request->signature, ep->rank, &peer, cqe->cell, &difference, err);
}

int outcome_request(const struct npuwin_request *request, struct npuwin_error *err)
{
	const char *what = collective_name(request->plan->kind);

	switch (request->job.cqe.status) {
	case NPUWIN_ST_OK:
		return npuwin_ok(err, 0);
	case NPUWIN_ST_TIMEOUT:
		return outcome_timeout(request, what, err);
	case NPUWIN_ST_MISMATCH:
		return outcome_mismatch(request, what, err);
	default:
		return outcome_status(request->domain, what, &request->job.cqe, err);
	}
}
