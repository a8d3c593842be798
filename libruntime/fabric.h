/* SPDX-License-Identifier: MIT */
/* Ranks elsewhere on the fabric: how each learns where the windows of the others are. */
#ifndef NPUWIN_FABRIC_H
#define NPUWIN_FABRIC_H

#include "internal.h"

/* More that fabric_exchange() returns. */
#define FABRIC_READY	1	/* every rank is ready */
#define FABRIC_AGAIN	2	/* who is not forming is to be reset; then all exchange again */

/**
 * fabric_exchange() - Tell the others of the own window, and learn of theirs.
 * @ep: the rank, in a domain of its own
 * @bs: its bootstrap
 * @peers: out: nranks elements: what the ranks have exported, where all are forming
 * @deadline_ns: when to give up
 * @err: out: may be NULL
 *
 * Return: 0: every rank is forming, and they agree; FABRIC_*; what keeps a rank from it, the
 * same on every rank; or what the bootstrap returns.
 */
int fabric_exchange(struct endpoint *ep, struct npuwin_bootstrap *bs,
		    struct npuwin_ioc_domain_peer *peers, int64_t deadline_ns,
		    struct npuwin_error *err);
/* Tell the others, who exchange, that this rank cannot, because of @code. */
void fabric_refuse(struct npuwin_bootstrap *bs, int code, int64_t deadline_ns);
/* Take all the others in. */
int fabric_import(struct endpoint *ep, const struct npuwin_ioc_domain_peer *peers,
		  struct npuwin_error *err);

#endif /* NPUWIN_FABRIC_H */
