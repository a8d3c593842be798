// SPDX-License-Identifier: MIT
/* Memberships of domains: making an aborted domain usable again. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "domain.h"
#include "rendezvous.h"

int domain_stop_writing(struct npuwin_domain *domain, int64_t deadline_ns, uint32_t *missing)
{
	struct endpoint *ep = domain->ep;
	int rc;

	if (domain_state(ep) != NPUWIN_DOMAIN_ABORTED)
		return 0;
	job_queue_flush(ep);
	rc = ep->ctx->ops->reset(ep, deadline_ns, missing);
	/* Another rank may have arrived last, just now. */
	if (rc == -EINVAL && domain_state(ep) != NPUWIN_DOMAIN_ABORTED)
		return 0;
	return rc;
}

void domain_clean(struct npuwin_domain *domain)
{
	uint32_t generation = domain_generation(domain->ep);

	if (domain->generation == generation)
		return;
	collective_reset(domain);
	domain->generation = generation;
}

/* Whether it is on this rank to let successors in. */
static bool lets_in(const struct npuwin_domain *domain)
{
	const struct endpoint *ep = domain->ep;
	uint32_t rank, state, lowest = ep->nranks, vacant = 0;

	if (!domain->name[0] || domain_state(ep) != NPUWIN_DOMAIN_FORMING)
		return false;
	for (rank = 0; rank < ep->nranks; rank++) {
		state = __atomic_load_n(&ep->status->rank[rank].state, __ATOMIC_ACQUIRE);
		if (state != NPUWIN_RANK_JOINED)
			vacant++;
		else if (lowest == ep->nranks)
			lowest = rank;
	}
	return vacant && lowest == ep->rank;
}

static int make_ready(struct npuwin_domain *const *domains, uint32_t n, int64_t deadline_ns,
		      struct npuwin_error *err)
{
	uint32_t i, missing;
	struct endpoint *ep;
	int rc;

	for (i = 0; i < n; i++) {
		ep = domains[i]->ep;
		domain_clean(domains[i]);
		rc = ep->ctx->ops->commit(ep, 0, &missing);
		if (rc && rc != -EAGAIN)
			return domain_sync_error(ep, "come back from the reset", rc, missing, err);
	}
	for (i = 0; i < n; i++) {
		if (!lets_in(domains[i]))
			continue;
		rc = rendezvous_replace(domains[i]->ep, domains[i]->name, deadline_ns, err);
		if (rc)
			return rc;
	}
	for (i = 0; i < n; i++) {
		ep = domains[i]->ep;
		rc = ep->ctx->ops->commit(ep, deadline_ns, &missing);
		if (rc)
			return domain_sync_error(ep, "come back from the reset", rc, missing, err);
		rc = ep->ctx->ops->map(ep, err);
		if (rc)
			return rc;
	}
	return npuwin_ok(err, 0);
}

static int reset_together(struct npuwin_domain *const *domains, uint32_t n, int64_t deadline_ns,
			  struct npuwin_error *err)
{
	uint32_t i, missing = NPUWIN_NO_RANK;
	int rc;

	for (i = 0; i < n; i++) {
		rc = domain_stop_writing(domains[i], 0, &missing);
		if (rc && rc != -EAGAIN)
			return domain_sync_error(domains[i]->ep, "called reset", rc, missing, err);
	}
	for (i = 0; i < n; i++) {
		rc = domain_stop_writing(domains[i], deadline_ns, &missing);
		if (rc)
			return domain_sync_error(domains[i]->ep, "called reset", rc, missing, err);
	}
	return make_ready(domains, n, deadline_ns, err);
}

/**
 * struct reset - A rank that is reset beside others of this process.
 * @thread: that does it
 * @domain: the rank
 * @deadline_ns: when to give up
 * @rc: what became of it
 * @err: why
 */
struct reset {
	pthread_t thread;
	struct npuwin_domain *domain;
	int64_t deadline_ns;
	int rc;
	struct npuwin_error err;
};

static void *reset_main(void *arg)
{
	struct reset *reset = arg;

	reset->rc = npuwin_domain_reset(reset->domain, reset->deadline_ns, &reset->err);
	return NULL;
}

/* An exchange over a bootstrap waits for the other ranks, of which some are here. */
static int reset_beside(struct npuwin_domain *const *domains, uint32_t n, int64_t deadline_ns,
			struct npuwin_error *err)
{
	struct reset *resets = calloc(n, sizeof(*resets));
	uint32_t i, started;
	int rc = 0;

	if (!resets)
		return npuwin_fail(err, -ENOMEM, NPUWIN_NOBODY, NPUWIN_NOBODY,
				   "no memory to reset %" PRIu32 " ranks", n);
	for (started = 0; started < n; started++) {
		resets[started].domain = domains[started];
		resets[started].deadline_ns = deadline_ns;
		rc = npuwin_thread(&resets[started].thread, reset_main, &resets[started]);
		if (rc) {
			npuwin_fail(err, rc, (int32_t)domains[started]->ep->rank, NPUWIN_NOBODY,
				    "cannot start a thread to reset rank %" PRIu32 ": %s",
				    domains[started]->ep->rank, strerror(-rc));
			break;
		}
	}
	for (i = 0; i < started; i++) {
		pthread_join(resets[i].thread, NULL);
		if (!resets[i].rc || rc)
			continue;
		rc = resets[i].rc;
		if (err)
			*err = resets[i].err;
	}
	free(resets);
	return rc ? rc : npuwin_ok(err, 0);
}

int npuwin_domain_reset_group(struct npuwin_domain *const *domains, uint32_t n,
			      int64_t deadline_ns, struct npuwin_error *err)
{
	uint32_t i;

	/* To providers a time is never negative. */
	if (deadline_ns < 0)
		deadline_ns = 0;
	for (i = 0; i < n; i++)
		if (domains[i]->bootstrap)
			break;
	if (i == n)
		return reset_together(domains, n, deadline_ns, err);
	if (n > 1)
		return reset_beside(domains, n, deadline_ns, err);
	return domain_meet_again(domains[0], deadline_ns, err);
}

int npuwin_domain_reset(struct npuwin_domain *domain, int64_t deadline_ns,
			struct npuwin_error *err)
{
	return npuwin_domain_reset_group(&domain, 1, deadline_ns, err);
}
