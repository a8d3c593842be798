// SPDX-License-Identifier: GPL-2.0-only
/*
 * The states of domains and ranks, and who is told when they change.
 *
 *	FORMING --all committed--> READY
 *	FORMING, READY --abort, death--> ABORTED --all survivors reset--> FORMING
 *
 *	EMPTY --join--> JOINED --leave--> LEFT (EMPTY while forming)
 *			JOINED --death--> DEAD
 *	LEFT, DEAD --reset complete--> EMPTY
 */
#include "npuwin.h"

/**
 * npuwin_domain_set_state() - A domain gets into another state.
 * @domain: the domain, locked
 * @state: NPUWIN_DOMAIN_*
 */
void npuwin_domain_set_state(struct npuwin_domain *domain, u32 state)
{
	/*
	 * After what belongs to the state, for who reads it here (npuwin_domain_state()) and
	 * for userspace, which reads the status page.
	 */
	smp_store_release(&domain->state, state);
	smp_store_release(&domain->status->state, state); /* as above */
}

/**
 * npuwin_member_set_state() - A rank gets into another state.
 * @member: the rank, whose domain is locked
 * @state: NPUWIN_RANK_*
 */
void npuwin_member_set_state(struct npuwin_member *member, u32 state)
{
	struct npuwin_domain *domain = member->domain;

	lockdep_assert_held(&domain->lock);

	spin_lock_irq(&member->wq.lock);
	/* After the memory of who joins; pairs with npuwin_member_state(). */
	smp_store_release(&member->state, state);
	spin_unlock_irq(&member->wq.lock);
	/* For userspace, which may map the rank's memory when it sees this. */
	smp_store_release(&domain->status->rank[member->rank].state, state);
}

/**
 * npuwin_domain_wake_members() - Have waits in all ranks' memory look again.
 * @domain: the domain
 */
void npuwin_domain_wake_members(struct npuwin_domain *domain)
{
	u32 rank;

	for (rank = 0; rank < domain->nranks; rank++)
		npuwin_member_wake(&domain->members[rank]);
}

/**
 * npuwin_domain_changed() - Have commits, resets and waits at queues look again.
 * @domain: the domain, locked
 */
void npuwin_domain_changed(struct npuwin_domain *domain)
{
	lockdep_assert_held(&domain->lock);

	WRITE_ONCE(domain->event, domain->event + 1);
	wake_up_all(&domain->wq);
}

/**
 * npuwin_domain_abort() - Abort a domain that is not aborted yet.
 * @domain: the domain, locked
 * @rank: who died or asked for it
 * @error: what the others are told, a positive errno
 * @death: whether @rank died
 */
void npuwin_domain_abort(struct npuwin_domain *domain, u32 rank, u32 error, bool death)
{
	u32 i;

	lockdep_assert_held(&domain->lock);

	if (domain->state == NPUWIN_DOMAIN_ABORTED)
		return;
	WRITE_ONCE(domain->abort_rank, rank);
	WRITE_ONCE(domain->abort_death, death);
	domain->abort_error = error;
	WRITE_ONCE(domain->status->abort_rank, rank);
	WRITE_ONCE(domain->status->abort_error, error);
	npuwin_domain_set_state(domain, NPUWIN_DOMAIN_ABORTED);
	for (i = 0; domain->ops->member_abort && i < domain->nranks; i++) {
		if (npuwin_member_local(&domain->members[i]))
			domain->ops->member_abort(&domain->members[i]);
	}
	npuwin_domain_wake_members(domain);
	npuwin_domain_changed(domain);
}

/**
 * npuwin_domain_missing() - Who is waited for.
 * @domain: the domain, locked
 * @reset: at the reset; otherwise at the commit
 *
 * Return: the lowest rank that has not arrived, or %NPUWIN_NO_RANK.
 */
u32 npuwin_domain_missing(const struct npuwin_domain *domain, bool reset)
{
	u32 rank;

	for (rank = 0; rank < domain->nranks; rank++) {
		const struct npuwin_member *member = &domain->members[rank];

		if (reset ? npuwin_member_local(member) && !member->reset : !member->committed)
			return rank;
	}
	return NPUWIN_NO_RANK;
}

/**
 * npuwin_domain_try_complete() - Make a domain ready if every rank has committed.
 * @domain: the domain, locked and forming
 */
void npuwin_domain_try_complete(struct npuwin_domain *domain)
{
	u32 rank;

	lockdep_assert_held(&domain->lock);

	if (npuwin_domain_missing(domain, false) != NPUWIN_NO_RANK)
		return;
	for (rank = 0; domain->ops->member_connect && rank < domain->nranks; rank++) {
		struct npuwin_member *member = &domain->members[rank];

		if (npuwin_member_local(member) && domain->ops->member_connect(member)) {
			npuwin_domain_abort(domain, rank, EIO, false);
			return;
		}
	}
	npuwin_domain_set_state(domain, NPUWIN_DOMAIN_READY);
	npuwin_domain_changed(domain);
}

/**
 * npuwin_domain_try_reset() - Complete a reset if every survivor has arrived.
 * @domain: the domain, locked
 *
 * Their queues are empty and take nothing, those of the dead and departed do not exist: no
 * engine writes here. What ranks elsewhere on a fabric still write their keys do not allow
 * any more.
 */
void npuwin_domain_try_reset(struct npuwin_domain *domain)
{
	u32 rank, survivors = 0;

	if (domain->state != NPUWIN_DOMAIN_ABORTED ||
	    npuwin_domain_missing(domain, true) != NPUWIN_NO_RANK)
		return;
	for (rank = 0; rank < domain->nranks; rank++)
		survivors += npuwin_member_local(&domain->members[rank]);
	if (!survivors)
		return;

	for (rank = 0; rank < domain->nranks; rank++) {
		struct npuwin_member *member = &domain->members[rank];

		member->committed = false;
		member->reset_due = member->reset;
		member->reset = false;
		if (!npuwin_member_local(member)) {
			npuwin_member_set_state(member, NPUWIN_RANK_EMPTY);
			continue;
		}
		memset(member->notify->vaddr, 0, member->notify->size);
		if (domain->ops->member_reset)
			domain->ops->member_reset(member);
	}
	WRITE_ONCE(domain->generation, domain->generation + 1);
	WRITE_ONCE(domain->status->generation, domain->generation);
	WRITE_ONCE(domain->status->abort_rank, NPUWIN_NO_RANK);
	WRITE_ONCE(domain->status->abort_error, 0);
	npuwin_domain_set_state(domain, NPUWIN_DOMAIN_FORMING);
	/* A wait that slept through the abort and the reset sees another generation. */
	npuwin_domain_wake_members(domain);
	npuwin_domain_changed(domain);
}

/**
 * npuwin_member_detach() - A rank leaves or dies.
 * @member: the rank, joined, whose queues execute no more; its file is locked
 * @state: %NPUWIN_RANK_LEFT or %NPUWIN_RANK_DEAD
 *
 * Others may be looking at its memory or writing to it until the grace period is over.
 */
void npuwin_member_detach(struct npuwin_member *member, u32 state)
{
	struct npuwin_domain *domain = member->domain;
	struct npuwin_mem *mem, *notify;
	struct npuwin_device *ndev;

	lockdep_assert_held(&member->file->lock);

	mutex_lock(&domain->lock);
	mem = member->mem;
	notify = member->notify;
	ndev = member->file->ndev;
	member->window->member = NULL;
	list_del(&member->file_link);
	member->file = NULL;
	if (state == NPUWIN_RANK_LEFT && domain->state == NPUWIN_DOMAIN_FORMING)
		state = NPUWIN_RANK_EMPTY;
	member->committed = false;
	member->reset = false;
	member->reset_due = false;
	npuwin_member_set_state(member, state);
	if (domain->ops->member_leave)
		domain->ops->member_leave(member, state);
	if (state == NPUWIN_RANK_DEAD) {
		npuwin_stat_add(ndev, NPUWIN_STAT_PEER_DEATHS, 1);
		npuwin_domain_abort(domain, member->rank, EPIPE, true);
	}
	npuwin_domain_try_reset(domain);
	npuwin_domain_wake_members(domain);
	npuwin_domain_changed(domain);
	mutex_unlock(&domain->lock);

	synchronize_srcu_expedited(&npuwin_srcu);
	npuwin_mem_put(mem);
	npuwin_mem_put(notify);
	atomic_dec(&ndev->nmembers);
	npuwin_domain_put(domain);
}
