// SPDX-License-Identifier: MIT
/* Memberships of domains: joining, resetting, aborting and leaving. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "domain.h"
#include "rendezvous.h"

#define RETRY_NS	10000000

int domain_check_attr(const struct npuwin_domain_attr *attr, bool named,
		      struct npuwin_error *err)
{
	size_t i, length = named && attr->name ? strnlen(attr->name, 65) : 0;

	if (!attr->nranks || attr->nranks > NPUWIN_MAX_RANKS)
		return npuwin_fail(err, -EINVAL, NPUWIN_NOBODY, NPUWIN_NOBODY,
				   "nranks is %" PRIu32 ", not in 1..%d", attr->nranks,
				   NPUWIN_MAX_RANKS);
	if (attr->rank >= attr->nranks)
		return npuwin_fail(err, -EINVAL, NPUWIN_NOBODY, NPUWIN_NOBODY,
				   "rank %" PRIu32 " is not in 0..%" PRIu32, attr->rank,
				   attr->nranks - 1);
	if (attr->flags & ~NPUWIN_DOMAIN_REPLACE)
		return npuwin_fail(err, -EINVAL, (int32_t)attr->rank, NPUWIN_NOBODY,
				   "flags 0x%" PRIx32 " are unknown",
				   attr->flags & ~NPUWIN_DOMAIN_REPLACE);
	for (i = 0; i < sizeof(attr->reserved) / sizeof(*attr->reserved); i++)
		if (attr->reserved[i])
			return npuwin_fail(err, -EINVAL, (int32_t)attr->rank, NPUWIN_NOBODY,
					   "reserved[%zu] is 0x%" PRIx64 ", want 0", i,
					   attr->reserved[i]);
	if (named && (!length || length > 64 || memchr(attr->name, '/', length)))
		return npuwin_fail(err, -EINVAL, (int32_t)attr->rank, NPUWIN_NOBODY,
				   "the name \"%.64s\" is not 1..64 bytes without '/'",
				   attr->name ? attr->name : "");
	return 0;
}

/* What a window has to hold: the runtime's own part and the user's. */
int domain_total_size(const struct npuwin_domain_attr *attr, uint64_t *size,
		      struct npuwin_error *err)
{
	if (__builtin_add_overflow(handshake_size(attr->nranks), attr->window_size, size))
		return npuwin_fail(err, -EOVERFLOW, NPUWIN_NOBODY, NPUWIN_NOBODY,
				   "a window of %" PRIu64 " bytes is too large",
				   attr->window_size);
	return 0;
}

/* The sentence for what commit or reset returned; @what is what was waited for. */
int domain_sync_error(const struct endpoint *ep, const char *what, int rc, uint32_t missing,
		      struct npuwin_error *err)
{
	int32_t peer = missing < ep->nranks ? (int32_t)missing : NPUWIN_NOBODY;
	int32_t rank = (int32_t)ep->rank;

	if (rc == -EAGAIN)
		rc = -ETIMEDOUT;
	switch (rc) {
	case -ETIMEDOUT:
		return npuwin_fail(err, rc, rank, peer, "deadline: rank %" PRId32 " of %" PRIu32
				   " has not %s", peer, ep->nranks, what);
	case -EPIPE:
		return npuwin_fail(err, rc, rank, peer, "rank %" PRId32 " of %" PRIu32
				   " died before every rank had %s", peer, ep->nranks, what);
	case -ECANCELED:
		return npuwin_fail(err, rc, rank, NPUWIN_NOBODY,
				   "the domain was aborted before every rank had %s", what);
	default:
		return npuwin_fail(err, rc, rank, peer, "waiting until every rank has %s: %s",
				   what, strerror(-rc));
	}
}

/*
 * Commit a rank that has joined. A domain that is aborted although nobody is missing may have
 * been ready before, and others be in it: then this one is in it too, and its first call tells.
 */
static int commit_joined(struct endpoint *ep, int64_t deadline_ns, uint32_t *missing)
{
	int rc = ep->ctx->ops->commit(ep, deadline_ns, missing);
	uint32_t rank;

	if (rc != -EPIPE && rc != -ECANCELED)
		return rc;
	for (rank = 0; rank < ep->nranks; rank++)
		if (__atomic_load_n(&ep->status->rank[rank].state, __ATOMIC_ACQUIRE) ==
		    NPUWIN_RANK_EMPTY)
			return rc;
	return 0;
}

/* A membership of a rank that has joined. On failure the endpoint is left as it was. */
int domain_member_create(struct endpoint *ep, const char *name, struct npuwin_domain **domain,
			 struct npuwin_error *err)
{
	struct npuwin_domain *member;
	int rc;

	member = calloc(1, sizeof(*member));
	if (!member)
		return npuwin_fail(err, -ENOMEM, (int32_t)ep->rank, NPUWIN_NOBODY,
				   "no memory for a membership of rank %" PRIu32, ep->rank);
	rc = job_queue_create(ep, err);
	if (rc) {
		free(member);
		return rc;
	}
	member->ctx = ep->ctx;
	member->ep = ep;
	if (name)
		strncpy(member->name, name, sizeof(member->name) - 1);
	pthread_mutex_init(&member->lock, NULL);
	member->generation = domain_generation(ep);
	*domain = member;
	return 0;
}

void domain_member_free(struct npuwin_domain *domain)
{
	struct endpoint *ep = domain->ep;

	job_queue_destroy(ep);
	ep->ctx->ops->leave(ep);
	pthread_mutex_destroy(&domain->lock);
	free(domain);
}

/* Wait until all are there, and bring the membership to life. */
static int member_commit(struct npuwin_domain *domain, int64_t deadline_ns,
			 struct npuwin_error *err)
{
	struct endpoint *ep = domain->ep;
	uint32_t missing;
	int rc;

	rc = commit_joined(ep, deadline_ns, &missing);
	if (rc)
		return domain_sync_error(ep, "joined", rc, missing, err);
	rc = ep->ctx->ops->map(ep, err);
	if (rc)
		return rc;
	return collective_init(domain, err);
}

/* A membership of a rank that has joined and waits for the others. On failure it has left. */
static int member_begin(struct endpoint *ep, const char *name, int64_t deadline_ns,
			struct npuwin_domain **domain, struct npuwin_error *err)
{
	int rc;

	rc = domain_member_create(ep, name, domain, err);
	if (rc) {
		ep->ctx->ops->leave(ep);
		return rc;
	}
	rc = member_commit(*domain, deadline_ns, err);
	if (!rc)
		return npuwin_ok(err, 0);
	domain_member_free(*domain);
	*domain = NULL;
	return rc;
}

static void retry_later(void)
{
	struct timespec time = { .tv_nsec = RETRY_NS };

	nanosleep(&time, NULL);
}

/* A successor comes to a domain that may still be ready or aborted; until it is reset it
 * takes nobody.
 */
static int join_by_fd(struct npuwin *ctx, int fd, const struct npuwin_domain_attr *attr,
		      uint64_t window_size, struct endpoint **ep, struct npuwin_error *err)
{
	int rc;

	for (;;) {
		rc = ctx->ops->join(ctx, fd, attr->nranks, window_size, attr->rank,
				    attr->device, ep, err);
		if ((rc != -EBUSY && rc != -EPIPE) || !(attr->flags & NPUWIN_DOMAIN_REPLACE) ||
		    attr->deadline_ns <= npuwin_now())
			return rc;
		retry_later();
	}
}

int npuwin_domain_join_fd(struct npuwin *ctx, int fd, const struct npuwin_domain_attr *attr,
			  struct npuwin_domain **domain, struct npuwin_error *err)
{
	uint64_t window_size;
	struct endpoint *ep;
	int rc;

	*domain = NULL;
	rc = domain_check_attr(attr, false, err);
	if (!rc)
		rc = domain_total_size(attr, &window_size, err);
	if (!rc)
		rc = join_by_fd(ctx, fd, attr, window_size, &ep, err);
	if (rc)
		return rc;
	return member_begin(ep, NULL, attr->deadline_ns, domain, err);
}

int npuwin_domain_join(struct npuwin *ctx, const struct npuwin_domain_attr *attr,
		       struct npuwin_domain **domain, struct npuwin_error *err)
{
	uint32_t founder, missing;
	uint64_t window_size;
	struct endpoint *ep;
	int rc;

	*domain = NULL;
	rc = domain_check_attr(attr, true, err);
	if (!rc)
		rc = domain_total_size(attr, &window_size, err);
	if (rc)
		return rc;
	for (;;) {
		rc = rendezvous_join(ctx, attr, window_size, &ep, &founder, err);
		if (rc)
			return rc;
		rc = commit_joined(ep, attr->deadline_ns, &missing);
		if (!rc)
			break;
		rc = domain_sync_error(ep, "joined", rc, missing, err);
		ctx->ops->leave(ep);
		/* What the founder began ends with it; the others begin anew. */
		if (rc != -ECANCELED && (rc != -EPIPE || missing != founder))
			return rc;
	}
	return member_begin(ep, attr->name, attr->deadline_ns, domain, err);
}

int npuwin_domain_create_fd(struct npuwin *ctx, const struct npuwin_domain_attr *attr,
			    struct npuwin_error *err)
{
	struct npuwin_domain_attr sizes = {
		.nranks = attr->nranks,
		.window_size = attr->window_size,
	};
	uint64_t window_size;
	int rc;

	rc = domain_check_attr(&sizes, false, err);
	if (!rc)
		rc = domain_total_size(&sizes, &window_size, err);
	if (!rc)
		rc = ctx->ops->domain_create(ctx, attr->nranks, window_size, err);
	return rc < 0 ? rc : npuwin_ok(err, rc);
}

/* Join every rank, and wait only when all are there. */
static int join_all(struct npuwin *ctx, int fd, const struct npuwin_domain_attr *attr,
		    struct npuwin_domain **domains, struct npuwin_error *err)
{
	uint64_t window_size;
	struct endpoint *ep;
	uint32_t rank, missing;
	int rc;

	rc = domain_total_size(attr, &window_size, err);
	for (rank = 0; rank < attr->nranks && !rc; rank++) {
		rc = ctx->ops->join(ctx, fd, attr->nranks, window_size, rank, attr->device, &ep,
				    err);
		if (rc)
			break;
		rc = domain_member_create(ep, NULL, &domains[rank], err);
		if (rc)
			ctx->ops->leave(ep);
	}
	for (rank = 0; rank < attr->nranks && !rc; rank++) {
		ep = domains[rank]->ep;
		rc = ctx->ops->commit(ep, 0, &missing);
		if (rc == -EAGAIN)
			rc = 0;
		if (rc)
			domain_sync_error(ep, "joined", rc, missing, err);
	}
	for (rank = 0; rank < attr->nranks && !rc; rank++)
		rc = member_commit(domains[rank], attr->deadline_ns, err);
	return rc;
}

int npuwin_domain_create_local(struct npuwin *ctx, const struct npuwin_domain_attr *attr,
			       struct npuwin_domain **domains, struct npuwin_error *err)
{
	uint32_t rank;
	int fd, rc;

	rc = domain_check_attr(attr, false, err);
	if (rc)
		return rc;
	for (rank = 0; rank < attr->nranks; rank++)
		domains[rank] = NULL;
	fd = npuwin_domain_create_fd(ctx, attr, err);
	if (fd < 0)
		return fd;
	rc = join_all(ctx, fd, attr, domains, err);
	for (rank = 0; rank < attr->nranks && rc; rank++) {
		npuwin_domain_leave(domains[rank]);
		domains[rank] = NULL;
	}
	close(fd);
	return rc ? rc : npuwin_ok(err, 0);
}

int npuwin_domain_fd(const struct npuwin_domain *domain)
{
	return domain->ep->fd;
}

uint32_t npuwin_domain_rank(const struct npuwin_domain *domain)
{
	return domain->ep->rank;
}

uint32_t npuwin_domain_nranks(const struct npuwin_domain *domain)
{
	return domain->ep->nranks;
}

void npuwin_domain_abort(struct npuwin_domain *domain, int error)
{
	domain->ctx->ops->abort(domain->ep, error >= 1 && error <= 4095 ? error : ECANCELED);
}

void npuwin_domain_leave(struct npuwin_domain *domain)
{
	if (!domain)
		return;
	job_queue_flush(domain->ep);
	collective_fini(domain);
	domain_member_free(domain);
}
