/* SPDX-License-Identifier: MIT */
/*
 * What the files that deal with memberships owe each other: domain.c has the ways into a
 * domain and out of it, domain_reset.c how it becomes usable again, and domain_bootstrap.c
 * both for ranks that are elsewhere on the fabric.
 */
#ifndef NPUWIN_DOMAIN_H
#define NPUWIN_DOMAIN_H

#include "internal.h"

static inline uint32_t domain_state(const struct endpoint *ep)
{
	return __atomic_load_n(&ep->status->state, __ATOMIC_ACQUIRE);
}

static inline uint32_t domain_generation(const struct endpoint *ep)
{
	return __atomic_load_n(&ep->status->generation, __ATOMIC_ACQUIRE);
}

/* domain.c */

/* How a rank wants to join makes sense; @named: by a name. */
int domain_check_attr(const struct npuwin_domain_attr *attr, bool named,
		      struct npuwin_error *err);
/* What a window has to hold: the runtime's own part and the user's. */
int domain_total_size(const struct npuwin_domain_attr *attr, uint64_t *size,
		      struct npuwin_error *err);
/* The sentence for what commit or reset returned; @what is what was waited for. */
int domain_sync_error(const struct endpoint *ep, const char *what, int rc, uint32_t missing,
		      struct npuwin_error *err);
/* A membership of a rank that has joined. On failure the endpoint is left as it was. */
int domain_member_create(struct endpoint *ep, const char *name, struct npuwin_domain **domain,
			 struct npuwin_error *err);
/* Leave, and free the membership. */
void domain_member_free(struct npuwin_domain *domain);

/* domain_reset.c */

/* Say that this rank has stopped writing, and wait for the others' word. */
int domain_stop_writing(struct npuwin_domain *domain, int64_t deadline_ns, uint32_t *missing);
/* Clean the own window, once for each reset, before saying that it is ready. */
void domain_clean(struct npuwin_domain *domain);

/* domain_bootstrap.c */

/* Reset, with the others, a rank whose peers are elsewhere. */
int domain_meet_again(struct npuwin_domain *domain, int64_t deadline_ns,
		      struct npuwin_error *err);

#endif /* NPUWIN_DOMAIN_H */
