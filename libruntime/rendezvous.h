/* SPDX-License-Identifier: MIT */
/* Meeting by name: how the descriptor of a domain gets to processes started separately. */
#ifndef NPUWIN_RENDEZVOUS_H
#define NPUWIN_RENDEZVOUS_H

#include "internal.h"

/**
 * rendezvous_join() - Join the domain of a name as a rank; make it where nobody has.
 * @ctx: context
 * @attr: checked
 * @window_size: of the provider, the runtime's own part included
 * @ep: out: joined; committed for as far as that is possible without waiting
 * @founder: out: rank that made the domain or lets successors in. When it dies or gives up
 *	while the domain is forming, the others start over
 * @err: out: may be NULL
 *
 * Whoever finds nobody under the name makes the domain and hands its descriptor to the others,
 * in the calling thread, until all have joined. With %NPUWIN_DOMAIN_REPLACE it only ever looks
 * for who hands it out.
 *
 * Return: 0 or a negative errno.
 */
int rendezvous_join(struct npuwin *ctx, const struct npuwin_domain_attr *attr,
		    uint64_t window_size, struct endpoint **ep, uint32_t *founder,
		    struct npuwin_error *err);

/**
 * rendezvous_replace() - Let successors in, until no rank is vacant.
 * @ep: the lowest surviving rank, ready for the commit
 * @name: rendezvous name
 * @deadline_ns: when to stop
 * @err: out: may be NULL
 *
 * Return: 0, also where the domain was aborted meanwhile: its commit tells; -ETIMEDOUT.
 */
int rendezvous_replace(struct endpoint *ep, const char *name, int64_t deadline_ns,
		       struct npuwin_error *err);

#endif /* NPUWIN_RENDEZVOUS_H */
