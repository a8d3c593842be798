// SPDX-License-Identifier: MIT
/* Memberships of domains whose other ranks are elsewhere on the fabric. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "domain.h"
#include "fabric.h"

/*
 * Take in those whose windows are known now, and wait until they have done the same. Where
 * that fails when it is the @first time, the others are told: there is nothing to go back to.
 */
static int take_in(struct npuwin_domain *domain, const struct npuwin_ioc_domain_peer *peers,
		   bool first, int64_t deadline_ns, struct npuwin_error *err)
{
	struct npuwin_bootstrap *bs = domain->bootstrap;
	struct endpoint *ep = domain->ep;
	uint32_t missing;
	int rc;

	rc = fabric_import(ep, peers, err);
	if (!rc) {
		rc = ep->ctx->ops->commit(ep, deadline_ns, &missing);
		if (rc)
			domain_sync_error(ep, "been taken in", rc, missing, err);
	}
	if (!rc)
		rc = ep->ctx->ops->map(ep, err);
	/* Of a death they hear as this rank has. */
	if (rc && rc != -EPIPE && first)
		bs->ops->abort(bs->priv, -rc);
	/* Before all have committed nobody may write to anybody. */
	if (!rc)
		rc = bs->ops->barrier(bs->priv, deadline_ns, err);
	/* A reset begins anew. */
	if (rc)
		ep->ctx->ops->abort(ep, ECANCELED);
	return rc;
}

/* All know that there is a reset: take part in it, whether this rank knew why or not. */
static int start_over(struct npuwin_domain *domain, bool first, int64_t deadline_ns,
		      struct npuwin_error *err)
{
	uint32_t missing = NPUWIN_NO_RANK;
	struct endpoint *ep = domain->ep;
	int rc;

	if (domain_state(ep) == NPUWIN_DOMAIN_READY)
		ep->ctx->ops->abort(ep, ECANCELED);
	rc = first && domain_state(ep) == NPUWIN_DOMAIN_ABORTED ? -ECANCELED :
	     domain_stop_writing(domain, deadline_ns, &missing);
	if (rc)
		return domain_sync_error(ep, first ? "joined" : "called reset", rc, missing, err);
	if (!first)
		domain_clean(domain);
	return 0;
}

/* Meet the ranks elsewhere, for the @first time or to become ready again. */
static int meet(struct npuwin_domain *domain, bool first, int64_t deadline_ns,
		struct npuwin_error *err)
{
	struct npuwin_ioc_domain_peer *peers;
	struct endpoint *ep = domain->ep;
	int rc;

	peers = calloc(ep->nranks, sizeof(*peers));
	if (!peers)
		return npuwin_fail(err, -ENOMEM, (int32_t)ep->rank, NPUWIN_NOBODY,
				   "no memory for the windows of %" PRIu32 " ranks", ep->nranks);
	do {
		rc = fabric_exchange(ep, domain->bootstrap, peers, deadline_ns, err);
		if (rc != FABRIC_AGAIN)
			break;
		rc = start_over(domain, first, deadline_ns, err);
	} while (!rc);
	if (!rc)
		rc = take_in(domain, peers, first, deadline_ns, err);
	explicit_bzero(peers, ep->nranks * sizeof(*peers));
	free(peers);
	return rc == FABRIC_READY ? 0 : rc;
}

int domain_meet_again(struct npuwin_domain *domain, int64_t deadline_ns, struct npuwin_error *err)
{
	int rc = meet(domain, false, deadline_ns, err);

	/* Nobody came, and nothing was heard of a reason to. */
	if (rc == -ETIMEDOUT && domain_state(domain->ep) == NPUWIN_DOMAIN_READY)
		rc = 0;
	return rc ? rc : npuwin_ok(err, 0);
}

static int check_bootstrap(const struct npuwin_domain_attr *attr,
			   const struct npuwin_bootstrap *bs, struct npuwin_error *err)
{
	size_t i;

	if (!bs || !bs->ops || !bs->ops->allgather || !bs->ops->barrier || !bs->ops->abort)
		return npuwin_fail(err, -EINVAL, NPUWIN_NOBODY, NPUWIN_NOBODY,
				   "the bootstrap is NULL, or lacks an operation");
	for (i = 0; i < ARRAY_SIZE(bs->reserved); i++)
		if (bs->reserved[i])
			return npuwin_fail(err, -EINVAL, NPUWIN_NOBODY, NPUWIN_NOBODY,
					   "reserved[%zu] of the bootstrap is 0x%" PRIx64
					   ", want 0", i,
					   bs->reserved[i]);
	if (attr->nranks != bs->nranks)
		return npuwin_fail(err, -EINVAL, NPUWIN_NOBODY, NPUWIN_NOBODY,
				   "nranks is %" PRIu32 ", but the bootstrap has %" PRIu32,
				   attr->nranks, bs->nranks);
	if (attr->rank != bs->rank)
		return npuwin_fail(err, -EINVAL, NPUWIN_NOBODY, NPUWIN_NOBODY,
				   "rank is %" PRIu32 ", but the bootstrap's is %" PRIu32,
				   attr->rank, bs->rank);
	return 0;
}

/* A domain of its own for a rank whose peers are elsewhere. */
static int join_alone(struct npuwin *ctx, const struct npuwin_domain_attr *attr,
		      struct npuwin_domain **domain, struct npuwin_error *err)
{
	uint64_t window_size;
	struct endpoint *ep;
	int fd, rc;

	rc = domain_total_size(attr, &window_size, err);
	if (rc)
		return rc;
	fd = ctx->ops->domain_create(ctx, attr->nranks, window_size, err);
	if (fd < 0)
		return fd;
	rc = ctx->ops->join(ctx, fd, attr->nranks, window_size, attr->rank, attr->device, &ep,
			    err);
	close(fd);
	if (rc)
		return rc;
	rc = domain_member_create(ep, NULL, domain, err);
	if (rc)
		ctx->ops->leave(ep);
	return rc;
}

int npuwin_domain_join_bootstrap(struct npuwin *ctx, const struct npuwin_domain_attr *attr,
				 struct npuwin_bootstrap *bootstrap,
				 struct npuwin_domain **domain, struct npuwin_error *err)
{
	int rc;

	*domain = NULL;
	rc = check_bootstrap(attr, bootstrap, err);
	if (rc)
		return rc;
	rc = domain_check_attr(attr, false, err);
	if (rc)
		return rc;
	rc = join_alone(ctx, attr, domain, err);
	if (rc) {
		fabric_refuse(bootstrap, rc, attr->deadline_ns);
		return rc;
	}
	(*domain)->bootstrap = bootstrap;
	rc = meet(*domain, true, attr->deadline_ns, err);
	if (!rc)
		rc = collective_init(*domain, err);
	if (!rc)
		return npuwin_ok(err, 0);
	domain_member_free(*domain);
	*domain = NULL;
	return rc;
}
