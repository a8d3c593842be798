// SPDX-License-Identifier: GPL-2.0-only
/*
 * Ranks as endpoints of the device, and what the device says of their peers.
 *
 * Peers on this host are known from their own files: what the device says of them is old
 * news. It is asked only where a domain has ranks elsewhere on the fabric.
 */
#include "pci.h"

/*
 * So many sleepers are woken by an interrupt's thread, which is before everybody else. Where there
 * are more, it is left to a worker.
 */
#define NPUWIN_PCI_WAKE_NOW	256

/**
 * npuwin_pci_endpoint() - The endpoint that a rank is: where its notify registers lie.
 * @member: the rank
 * @endpoint: out: its number
 *
 * Where the rank is changing, as it can for who is only inside npuwin_srcu, this is an
 * endpoint that the rank has been or is becoming.
 *
 * Return: the device.
 */
struct npuwin_pci *npuwin_pci_endpoint(const struct npuwin_member *member, u32 *endpoint)
{
	const struct npuwin_mem *notify = READ_ONCE(member->notify);
	struct npuwin_pci *npci = npuwin_pci_of(notify->ndev);
	u64 offset = ((u64)notify->pfn - npci->pfn) << PAGE_SHIFT;

	*endpoint = (offset - npci->ident.notify.offset) / NPUWIN_REG_BYTES;
	return npci;
}

static u32 *npuwin_pci_arm_word(struct npuwin_pci *npci, u32 endpoint)
{
	struct npuwin_hw_endpoint_arm *arms = npci->memory + npci->ident.endpoint_arms.offset;

	return &arms[endpoint].arm;
}

/* Ask for an event, unless one is to come anyway. */
static void npuwin_pci_arm(struct npuwin_pci *npci, u32 endpoint)
{
	struct npuwin_pci_endpoint *ep = &npci->endpoints[endpoint];

	lockdep_assert_held(&npci->endpoint_lock);

	if (!ep->armed) {
		ep->armed = true;
		WRITE_ONCE(*npuwin_pci_arm_word(npci, endpoint), ++ep->arm);
	}
	/* The cells are looked at after this, as the device looks at arm after the cell. */
	dma_mb();
}

/**
 * npuwin_pci_member_arm() - Have TNOTIFYs for a rank wake who sleeps there.
 * @member: the rank
 */
void npuwin_pci_member_arm(struct npuwin_member *member)
{
	u32 endpoint;
	struct npuwin_pci *npci = npuwin_pci_endpoint(member, &endpoint);

	spin_lock(&npci->endpoint_lock);
	if (npci->endpoints[endpoint].member == member)
		npuwin_pci_arm(npci, endpoint);
	spin_unlock(&npci->endpoint_lock);
}

/**
 * npuwin_pci_member_look() - Have the device look at its waits in a rank's window.
 * @member: the rank
 */
void npuwin_pci_member_look(struct npuwin_member *member)
{
	u32 endpoint;

	npuwin_pci_ring(npuwin_pci_endpoint(member, &endpoint), 0);
}

/* The event for the last arm has come, or never will. */
static void npuwin_pci_disarmed(struct npuwin_pci *npci, u32 endpoint)
{
	struct npuwin_pci_endpoint *ep = &npci->endpoints[endpoint];

	lockdep_assert_held(&npci->endpoint_lock);

	ep->armed = false;
	if (!ep->member || !wq_has_sleeper(&ep->member->wq))
		return;
	if (npuwin_sleepers_count(ep->member) > NPUWIN_PCI_WAKE_NOW) {
		WRITE_ONCE(ep->wake, true);
		queue_work(system_unbound_wq, &npci->wakes_work);
		return;
	}
	/* Who is woken for nothing sleeps on without a word. */
	npuwin_pci_arm(npci, endpoint);
	npuwin_member_wake(ep->member);
}

/**
 * npuwin_pci_notified() - A TNOTIFY has come that somebody had asked for.
 * @npci: the device
 * @endpoint: where, below max_endpoints
 */
void npuwin_pci_notified(struct npuwin_pci *npci, u32 endpoint)
{
	spin_lock(&npci->endpoint_lock);
	npuwin_pci_disarmed(npci, endpoint);
	spin_unlock(&npci->endpoint_lock);
}

/*
 * Take a mark off an endpoint, for a worker.
 * Return: its rank, domain referenced, or NULL where there is no mark or nobody.
 */
static struct npuwin_member *npuwin_pci_marked(struct npuwin_pci *npci, u32 endpoint, bool *mark)
{
	struct npuwin_member *member;

	if (!READ_ONCE(*mark))
		return NULL;
	spin_lock(&npci->endpoint_lock);
	WRITE_ONCE(*mark, false);
	member = npci->endpoints[endpoint].member;
	/* A rank that is joined has a reference, and it is so while it is here. */
	if (member)
		npuwin_domain_get(member->domain);
	spin_unlock(&npci->endpoint_lock);
	return member;
}

/**
 * npuwin_pci_wakes_work() - Wake where many sleep, which takes long.
 * @work: in struct npuwin_pci
 */
void npuwin_pci_wakes_work(struct work_struct *work)
{
	struct npuwin_pci *npci = container_of(work, struct npuwin_pci, wakes_work);
	u32 endpoint;

	for (endpoint = 0; endpoint < npci->ident.max_endpoints; endpoint++) {
		struct npuwin_pci_endpoint *ep = &npci->endpoints[endpoint];
		struct npuwin_member *member = npuwin_pci_marked(npci, endpoint, &ep->wake);

		if (!member)
			continue;
		spin_lock(&npci->endpoint_lock);
		if (ep->member == member)
			npuwin_pci_arm(npci, endpoint);
		spin_unlock(&npci->endpoint_lock);
		npuwin_member_wake(member);
		npuwin_domain_put(member->domain);
		cond_resched();
	}
}

/* ---- joining and leaving ------------------------------------------------ */

/**
 * npuwin_pci_member_join() - Bind a rank's window to an endpoint.
 * @member: the rank, with mem and notify
 *
 * Return: 0 or a negative errno.
 */
int npuwin_pci_member_join(struct npuwin_member *member)
{
	u32 endpoint;
	struct npuwin_pci *npci = npuwin_pci_endpoint(member, &endpoint);
	struct npuwin_hw_request request = {
		.opcode = NPUWIN_HW_CMD_BIND,
		.id = endpoint,
		.bind = {
			.offset = member->mem->vaddr - npci->memory,
			.size = member->mem->size,
			.rank = member->rank,
			.nranks = member->domain->nranks,
		},
	};
	struct npuwin_pci_endpoint *ep = &npci->endpoints[endpoint];
	struct npuwin_hw_response response;
	int ret;

	/* What the device finds there it takes for answered. */
	WRITE_ONCE(*npuwin_pci_arm_word(npci, endpoint), ep->arm);
	ret = npuwin_pci_admin(npci, &request, &response);
	if (ret)
		return ret;
	member->peer = (struct npuwin_peer) {
		.fabric_id = npci->ident.fabric_id,
		.offset = request.bind.offset,
		.key = response.value[0],
		.endpoint = endpoint,
	};
	spin_lock(&npci->endpoint_lock);
	ep->member = member;
	ep->armed = false;
	WRITE_ONCE(ep->ask, false);
	WRITE_ONCE(ep->wake, false);
	/* Who sleeps here since the rank that was here before has armed for that one. */
	npuwin_pci_arm(npci, endpoint);
	spin_unlock(&npci->endpoint_lock);
	return 0;
}

/**
 * npuwin_pci_member_leave() - Part a rank's window from its endpoint.
 * @member: the rank, which has no queues any more
 * @state: what has become of it, NPUWIN_RANK_*
 */
void npuwin_pci_member_leave(struct npuwin_member *member, u32 state)
{
	u32 endpoint;
	struct npuwin_pci *npci = npuwin_pci_endpoint(member, &endpoint);
	struct npuwin_hw_request request = {
		.opcode = NPUWIN_HW_CMD_UNBIND,
		.flags = state == NPUWIN_RANK_DEAD ? NPUWIN_HW_UNBIND_F_DEAD : 0,
		.id = endpoint,
	};

	spin_lock(&npci->endpoint_lock);
	npci->endpoints[endpoint].member = NULL;
	spin_unlock(&npci->endpoint_lock);
	/* A device that does not answer is reset before it is used again. */
	if (npuwin_pci_admin(npci, &request, NULL) == -EIO)
		npuwin_pci_fail(npci, "it does not part with a window");
}

static void npuwin_pci_peer_table(const struct npuwin_domain *domain,
				  struct npuwin_hw_peer *table)
{
	u32 rank;

	for (rank = 0; rank < domain->nranks; rank++) {
		const struct npuwin_peer *peer = &domain->members[rank].peer;

		table[rank] = (struct npuwin_hw_peer) {
			.fabric_id = peer->fabric_id,
			.offset = peer->offset,
			.size = domain->window_size,
			.key = peer->key,
			.endpoint = peer->endpoint,
		};
	}
}

/**
 * npuwin_pci_member_connect() - Tell a rank's endpoint where its peers are.
 * @member: the rank, of a domain in which all have joined
 *
 * Return: 0 or a negative errno.
 */
int npuwin_pci_member_connect(struct npuwin_member *member)
{
	u32 endpoint;
	struct npuwin_pci *npci = npuwin_pci_endpoint(member, &endpoint);
	struct npuwin_hw_request request = {
		.opcode = NPUWIN_HW_CMD_PEERS,
		.id = endpoint,
		.table = {
			.offset = npci->scratch - npci->memory,
			.count = member->domain->nranks,
		},
	};
	int ret;

	mutex_lock(&npci->admin_lock);
	npuwin_pci_peer_table(member->domain, npci->scratch);
	ret = npuwin_pci_admin_locked(npci, &request, NULL);
	mutex_unlock(&npci->admin_lock);
	return ret;
}

static bool npuwin_pci_has_remote(const struct npuwin_domain *domain)
{
	u32 rank;

	for (rank = 0; rank < domain->nranks; rank++) {
		const struct npuwin_member *member = &domain->members[rank];

		if (npuwin_member_joined(member) && !npuwin_member_local(member))
			return true;
	}
	return false;
}

/**
 * npuwin_pci_member_abort() - End what a rank's queues wait for.
 * @member: the rank, of a domain that has been aborted
 *
 * A death the peers are told by the device of who has died.
 */
void npuwin_pci_member_abort(struct npuwin_member *member)
{
	const struct npuwin_domain *domain = member->domain;
	u32 endpoint;
	struct npuwin_pci *npci = npuwin_pci_endpoint(member, &endpoint);
	struct npuwin_hw_request request = {
		.opcode = NPUWIN_HW_CMD_ABORT,
		.flags = !domain->abort_death && npuwin_pci_has_remote(domain) ?
			 NPUWIN_HW_ABORT_F_TELL : 0,
		.id = endpoint,
		.abort = {
			.rank = domain->abort_rank,
			.error = domain->abort_error,
		},
	};

	if (npuwin_pci_admin(npci, &request, NULL) == -EIO)
		npuwin_pci_fail(npci, "it does not abort");
}

/**
 * npuwin_pci_member_reset() - Begin anew, with another key and without peers.
 * @member: the rank
 */
void npuwin_pci_member_reset(struct npuwin_member *member)
{
	u32 endpoint;
	struct npuwin_pci *npci = npuwin_pci_endpoint(member, &endpoint);
	struct npuwin_hw_request request = {
		.opcode = NPUWIN_HW_CMD_ENDPOINT_RESET,
		.id = endpoint,
	};
	struct npuwin_hw_response response;
	int ret;

	ret = npuwin_pci_admin(npci, &request, &response);
	if (ret == -EIO)
		npuwin_pci_fail(npci, "it does not reset an endpoint");
	/* Where it has failed, the rank dies soon. */
	if (ret)
		return;
	member->peer.key = response.value[0];
	spin_lock(&npci->endpoint_lock);
	/* The device takes an arm that it has not answered as answered. */
	npuwin_pci_disarmed(npci, endpoint);
	spin_unlock(&npci->endpoint_lock);
}

/* ---- what has become of peers -------------------------------------------- */

/**
 * npuwin_pci_ask_peers() - Something has become of an endpoint's peers or domain.
 * @npci: the device
 * @endpoint: which, below max_endpoints
 */
void npuwin_pci_ask_peers(struct npuwin_pci *npci, u32 endpoint)
{
	struct npuwin_pci_endpoint *ep = &npci->endpoints[endpoint];

	spin_lock(&npci->endpoint_lock);
	if (ep->member) {
		WRITE_ONCE(ep->ask, true);
		queue_work(system_unbound_wq, &npci->peers_work);
	}
	spin_unlock(&npci->endpoint_lock);
}

/* Apply what the device knows of the ranks elsewhere. */
static void npuwin_pci_apply_states(struct npuwin_domain *domain, const u8 *states)
{
	u32 rank;

	for (rank = 0; rank < domain->nranks; rank++) {
		const struct npuwin_member *member = &domain->members[rank];

		if (!npuwin_member_joined(member) || npuwin_member_local(member))
			continue;
		if (states[rank] == NPUWIN_RANK_LEFT || states[rank] == NPUWIN_RANK_DEAD)
			npuwin_domain_peer_gone(domain, rank, states[rank]);
	}
}

static void npuwin_pci_apply_abort(struct npuwin_pci *npci, struct npuwin_domain *domain,
				   u32 endpoint)
{
	const struct npuwin_hw_endpoint_state *state =
		npci->memory + npci->ident.endpoint_states.offset;
	u32 rank, error;

	state += endpoint;
	if (READ_ONCE(state->state) != NPUWIN_HW_EP_ABORTED)
		return;
	rank = READ_ONCE(state->abort_rank);
	error = READ_ONCE(state->abort_error);
	if (rank >= domain->nranks || !error || error > MAX_ERRNO)
		npuwin_pci_fail(npci, "an abort makes no sense");
	else
		npuwin_domain_abort(domain, rank, error, false);
}

static void npuwin_pci_ask(struct npuwin_pci *npci, struct npuwin_member *member, u32 endpoint)
{
	struct npuwin_domain *domain = member->domain;
	struct npuwin_hw_request request = {
		.opcode = NPUWIN_HW_CMD_PEER_STATES,
		.id = endpoint,
		.table = {
			.offset = npci->scratch - npci->memory,
			.count = domain->nranks,
		},
	};

	int ret;

	mutex_lock(&domain->lock);
	/* It may have left meanwhile, and somebody else have the endpoint. */
	if (READ_ONCE(npci->endpoints[endpoint].member) != member ||
	    !npuwin_pci_has_remote(domain) || domain->state != NPUWIN_DOMAIN_READY)
		goto out_unlock;
	npuwin_pci_apply_abort(npci, domain, endpoint);
	mutex_lock(&npci->admin_lock);
	ret = npuwin_pci_admin_locked(npci, &request, NULL);
	memcpy(npci->states, npci->scratch, domain->nranks);
	mutex_unlock(&npci->admin_lock);
	if (!ret)
		npuwin_pci_apply_states(domain, npci->states);
out_unlock:
	mutex_unlock(&domain->lock);
}

/**
 * npuwin_pci_peers_work() - Ask the device what has become of peers.
 * @work: in struct npuwin_pci
 */
void npuwin_pci_peers_work(struct work_struct *work)
{
	struct npuwin_pci *npci = container_of(work, struct npuwin_pci, peers_work);
	u32 endpoint;

	for (endpoint = 0; endpoint < npci->ident.max_endpoints; endpoint++) {
		struct npuwin_member *member =
			npuwin_pci_marked(npci, endpoint, &npci->endpoints[endpoint].ask);

		if (!member)
			continue;
		npuwin_pci_ask(npci, member, endpoint);
		npuwin_domain_put(member->domain);
	}
}
