// SPDX-License-Identifier: MIT
/*
 * Ranks elsewhere on the fabric: how each learns where the windows of the others are.
 *
 * Each rank has joined a domain of its own, in which it is alone. What its window is known by
 * on the fabric goes to all others by the bootstrap, and they take it into their domains. None
 * of it is believed: the device of a window looks at the key with each write.
 *
 * What a rank has to say is more than that. One that cannot join says so, since the others
 * would only find out at their deadline. Those whose domain is aborted say that first: only
 * when all have come, and nobody is in a call any more, may a key become void, or who still
 * writes would take its owner for dead. And one whose domain is ready has not heard yet of the
 * abort that others recover from.
 */
#include <endian.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "fabric.h"

#define FABRIC_VERSION	1

enum { ENTRY_FORMING, ENTRY_READY, ENTRY_ABORTED };

/**
 * struct entry - What a rank says. Numbers are little-endian.
 * @version: FABRIC_VERSION
 * @state: ENTRY_*
 * @code: 0, or a positive errno that keeps it from joining
 * @nranks: ranks
 * @window_size: bytes that buffers can be carved from
 * @fabric_id: as in struct npuwin_ioc_domain_peer, as the rest
 * @offset: see there
 * @key: see there
 * @endpoint: see there
 * @reserved: zero
 */
struct entry {
	uint32_t version;
	uint32_t state;
	uint32_t code;
	uint32_t nranks;
	uint64_t window_size;
	uint64_t fabric_id;
	uint64_t offset;
	uint64_t key;
	uint32_t endpoint;
	uint32_t reserved;
};

static uint64_t user_size(const struct endpoint *ep)
{
	return ep->window_size - handshake_size(ep->nranks);
}

static struct entry make_entry(const struct endpoint *ep)
{
	return (struct entry) {
		.version = htole32(FABRIC_VERSION),
		.nranks = htole32(ep->nranks),
		.window_size = htole64(user_size(ep)),
	};
}

/* Describe the own window. 0, or why there is nothing to describe. */
static int export(struct endpoint *ep, struct entry *entry, struct npuwin_error *err)
{
	struct npuwin_ioc_domain_peer peer = { 0 };
	int rc = -EOPNOTSUPP;

	if (!ep->ctx->ops->export_peer)
		npuwin_fail(err, rc, (int32_t)ep->rank, NPUWIN_NOBODY,
			    "provider %s: its windows are on no fabric, where ranks of other processes could reach them without sharing the domain",
			    ep->ctx->ops->name);
	else
		rc = ep->ctx->ops->export_peer(ep, &peer, err);
	entry->code = htole32((uint32_t)-rc);
	entry->fabric_id = htole64(peer.fabric_id);
	entry->offset = htole64(peer.offset);
	entry->key = htole64(peer.key);
	entry->endpoint = htole32(peer.endpoint);
	return rc;
}

static int fail_code(const struct endpoint *ep, uint32_t rank, int code, struct npuwin_error *err)
{
	const char *name = strerrorname_np(code), *text = strerrordesc_np(code);

	if (code < 1 || code > 4095)
		code = EPROTO;
	return npuwin_fail(err, -code, (int32_t)ep->rank, (int32_t)rank,
			   "rank %" PRIu32 " cannot join: %s (%s)", rank, name ? name : "error",
			   text ? text : "unknown");
}

static int fail_differs(const struct endpoint *ep, const char *what, uint64_t first,
			uint32_t rank, uint64_t value, struct npuwin_error *err)
{
	return npuwin_fail(err, -EINVAL, (int32_t)ep->rank, (int32_t)(rank == ep->rank ? 0 : rank),
			   "%s differs: rank 0 has %" PRIu64 ", rank %" PRIu32 " has %" PRIu64,
			   what, first, rank, value);
}

/* All ranks compare with rank 0, so that all come to the same end. */
static int agree(const struct endpoint *ep, const struct entry *all, struct npuwin_error *err)
{
	const struct entry *first = &all[0];
	uint32_t rank, forming = 0, ready = 0;

	for (rank = 0; rank < ep->nranks; rank++) {
		const struct entry *entry = &all[rank];

		if (entry->version != first->version)
			return fail_differs(ep, "the version of the library's exchange",
					    le32toh(first->version), rank,
					    le32toh(entry->version), err);
		if (entry->code)
			return fail_code(ep, rank, (int)le32toh(entry->code), err);
		if (entry->nranks != first->nranks)
			return fail_differs(ep, "nranks", le32toh(first->nranks), rank,
					    le32toh(entry->nranks), err);
		if (entry->window_size != first->window_size)
			return fail_differs(ep, "window_size", le64toh(first->window_size), rank,
					    le64toh(entry->window_size), err);
		forming += le32toh(entry->state) == ENTRY_FORMING;
		ready += le32toh(entry->state) == ENTRY_READY;
	}
	if (forming == ep->nranks)
		return 0;
	return ready == ep->nranks ? FABRIC_READY : FABRIC_AGAIN;
}

int fabric_exchange(struct endpoint *ep, struct npuwin_bootstrap *bs,
		    struct npuwin_ioc_domain_peer *peers, int64_t deadline_ns,
		    struct npuwin_error *err)
{
	struct entry mine = make_entry(ep), *all;
	uint32_t rank;
	int rc = 0;

	all = calloc(ep->nranks, sizeof(*all));
	if (!all)
		return npuwin_fail(err, -ENOMEM, (int32_t)ep->rank, NPUWIN_NOBODY,
				   "no memory for what %" PRIu32 " ranks say", ep->nranks);
	switch (__atomic_load_n(&ep->status->state, __ATOMIC_ACQUIRE)) {
	case NPUWIN_DOMAIN_READY:
		mine.state = htole32(ENTRY_READY);
		break;
	case NPUWIN_DOMAIN_ABORTED:
		mine.state = htole32(ENTRY_ABORTED);
		break;
	default:
		rc = export(ep, &mine, err);
	}
	if (rc) {
		bs->ops->allgather(bs->priv, &mine, all, sizeof(mine), deadline_ns, NULL);
		goto free_all;
	}
	rc = bs->ops->allgather(bs->priv, &mine, all, sizeof(mine), deadline_ns, err);
	if (!rc)
		rc = agree(ep, all, err);
	for (rank = 0; rank < ep->nranks && !rc; rank++)
		peers[rank] = (struct npuwin_ioc_domain_peer) {
			.rank = rank,
			.fabric_id = le64toh(all[rank].fabric_id),
			.offset = le64toh(all[rank].offset),
			.window_size = ep->window_size,
			.key = le64toh(all[rank].key),
			.endpoint = le32toh(all[rank].endpoint),
		};
free_all:
	/* It has keys in it. */
	explicit_bzero(&mine, sizeof(mine));
	explicit_bzero(all, ep->nranks * sizeof(*all));
	free(all);
	return rc;
}

void fabric_refuse(struct npuwin_bootstrap *bs, int code, int64_t deadline_ns)
{
	struct entry mine = {
		.version = htole32(FABRIC_VERSION),
		.code = htole32((uint32_t)-code),
	};
	struct entry *all = calloc(bs->nranks, sizeof(*all));

	if (all)
		bs->ops->allgather(bs->priv, &mine, all, sizeof(mine), deadline_ns, NULL);
	free(all);
}

int fabric_import(struct endpoint *ep, const struct npuwin_ioc_domain_peer *peers,
		  struct npuwin_error *err)
{
	uint32_t rank;
	int rc;

	for (rank = 0; rank < ep->nranks; rank++) {
		if (rank == ep->rank)
			continue;
		rc = ep->ctx->ops->import_peer(ep, &peers[rank]);
		if (rc)
			return npuwin_fail(err, rc, (int32_t)ep->rank, (int32_t)rank,
					   "rank %" PRIu32
					   " cannot be taken in, with fabric id %#" PRIx64 ": %s",
					   rank, (uint64_t)peers[rank].fabric_id, strerror(-rc));
	}
	return 0;
}
