// SPDX-License-Identifier: MIT
/* Memberships of domains: making an aborted domain usable again. */
#include <inttypes.h>
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

int npuwin_domain_reset_group(struct npuwin_domain *const *domains, uint32_t n,
			      int64_t deadline_ns, struct npuwin_error *err)
{
	uint32_t i, missing = NPUWIN_NO_RANK;
	int rc;

	/* To providers a time is never negative. */
	if (deadline_ns < 0)
		deadline_ns = 0;
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

int npuwin_domain_reset(struct npuwin_domain *domain, int64_t deadline_ns,
			struct npuwin_error *err)
{
	return npuwin_domain_reset_group(&domain, 1, deadline_ns, err);
}
