// SPDX-License-Identifier: MIT
/*
 * The shm provider: noticing deaths.
 *
 * The slots in use form a ring. Each context has one thread that waits, in the kernel, for a
 * read lock on the next one's slot: it comes when that one is gone, orderly or not, and then
 * the thread goes on to the one after. So everybody is watched by somebody, nothing polls, and
 * any number may die at once. A newcomer is noticed by the one before it in the ring when that
 * one looks again, which it does while it waits for the domain to be ready.
 */

#include "shm.h"

static bool in_ring(const struct shm_domain *sd, uint32_t slot)
{
	uint32_t rank;

	for (rank = 0; rank < sd->nranks; rank++)
		if (!sd->local[rank] && shm_load(&sd->ranks[rank].slot) == slot &&
		    shm_load(&sd->status->rank[rank].state) == NPUWIN_RANK_JOINED)
			return true;
	return false;
}

/*
 * The nearest slot in use by others above or below @slot in the ring, or NPUWIN_NO_RANK.
 * Under @lock.
 */
static uint32_t nearest(const struct shm_domain *sd, uint32_t slot, bool upwards)
{
	uint32_t rank, other, distance, best = UINT32_MAX, found = NPUWIN_NO_RANK;

	for (rank = 0; rank < sd->nranks; rank++) {
		other = shm_load(&sd->ranks[rank].slot);
		if (sd->local[rank] || other >= sd->nranks || sd->shunned[other] ||
		    shm_load(&sd->status->rank[rank].state) != NPUWIN_RANK_JOINED)
			continue;
		distance = (upwards ? other - slot : slot - other) + sd->nranks - 1;
		distance %= sd->nranks;
		if (distance < best) {
			best = distance;
			found = other;
		}
	}
	return found;
}

/*
 * A rank whose claim is free has no owner any more. While its claim is held here for reading
 * no successor can take it, so that it is the dead one that is marked. Own claims must not be
 * touched: the lock would be converted.
 */
static bool bury_rank(struct shm_domain *sd, uint32_t rank)
{
	bool dead;

	if (shm_lock(sd, F_RDLCK, SHM_LOCK_CLAIM(rank)))
		return false;
	dead = shm_swap(&sd->status->rank[rank].state, NPUWIN_RANK_JOINED, NPUWIN_RANK_DEAD);
	shm_lock(sd, F_UNLCK, SHM_LOCK_CLAIM(rank));
	return dead;
}

void shm_bury(struct shm_domain *sd, uint32_t slot)
{
	uint32_t generation = shm_state(sd).generation;
	uint32_t rank, first = NPUWIN_NO_RANK;

	for (rank = 0; rank < sd->nranks; rank++) {
		if (sd->local[rank] ||
		    (slot != SHM_ANY_SLOT && shm_load(&sd->ranks[rank].slot) != slot) ||
		    shm_load(&sd->status->rank[rank].state) != NPUWIN_RANK_JOINED)
			continue;
		if (bury_rank(sd, rank) && first == NPUWIN_NO_RANK)
			first = rank;
	}
	if (first == NPUWIN_NO_RANK)
		return;
	shm_abort_generation(sd, generation, first, EPIPE);
	/* Who waits in a reset has to count again, though the domain was aborted before. */
	shm_wake_all(sd);
}

/*
 * Wait for the lock: the only place where the thread can be cancelled. It is cancelled out of
 * this frame, so the frame holds nothing whose address is taken.
 */
static bool wait_gone(struct shm_domain *sd, uint32_t slot)
{
	int rc;

	sd->wait.l_type = F_RDLCK;
	sd->wait.l_whence = SEEK_SET;
	sd->wait.l_start = SHM_LOCK_SLOT(slot);
	sd->wait.l_len = 1;
	pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
	do {
		rc = fcntl(sd->fd, F_OFD_SETLKW, &sd->wait);
	} while (rc && errno == EINTR);
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
	return !rc;
}

static void *watch(void *arg)
{
	struct shm_domain *sd = arg;
	uint32_t slot;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
	pthread_mutex_lock(&sd->lock);
	while (!sd->stop && sd->watched != NPUWIN_NO_RANK) {
		slot = sd->watched;
		pthread_mutex_unlock(&sd->lock);
		if (!wait_gone(sd, slot)) {
			pthread_mutex_lock(&sd->lock);
			sd->watched = NPUWIN_NO_RANK;
			break;
		}
		pthread_mutex_lock(&sd->lock);
		shm_bury(sd, slot);
		shm_lock(sd, F_UNLCK, SHM_LOCK_SLOT(slot));
		sd->shunned[slot] = in_ring(sd, slot);
		sd->watched = nearest(sd, sd->slot, true);
	}
	pthread_mutex_unlock(&sd->lock);
	return NULL;
}

/* Under @aim_lock. */
static void stop_watcher(struct shm_domain *sd)
{
	if (!sd->watching)
		return;
	pthread_mutex_lock(&sd->lock);
	sd->stop = true;
	pthread_mutex_unlock(&sd->lock);
	pthread_cancel(sd->watcher);
	pthread_join(sd->watcher, NULL);
	/* It may have been cancelled with the lock just taken. */
	if (sd->watched != NPUWIN_NO_RANK)
		shm_lock(sd, F_UNLCK, SHM_LOCK_SLOT(sd->watched));
	sd->watched = NPUWIN_NO_RANK;
	sd->stop = false;
	sd->watching = false;
}

void shm_watch_stop(struct shm_domain *sd)
{
	pthread_mutex_lock(&sd->aim_lock);
	stop_watcher(sd);
	pthread_mutex_unlock(&sd->aim_lock);
}

void shm_watch_aim(struct shm_domain *sd)
{
	uint32_t next;
	bool same;

	pthread_mutex_lock(&sd->aim_lock);
	pthread_mutex_lock(&sd->lock);
	next = nearest(sd, sd->slot, true);
	same = sd->watched == next;
	pthread_mutex_unlock(&sd->lock);
	if (!same) {
		stop_watcher(sd);
		sd->watched = next;
		if (next != NPUWIN_NO_RANK)
			sd->watching = !npuwin_thread(&sd->watcher, watch, sd);
		if (!sd->watching)
			sd->watched = NPUWIN_NO_RANK;
	}
	pthread_mutex_unlock(&sd->aim_lock);
}

void shm_watch_arrived(struct shm_domain *sd, uint32_t slot)
{
	uint32_t before;

	pthread_mutex_lock(&sd->lock);
	before = nearest(sd, slot, false);
	pthread_mutex_unlock(&sd->lock);
	if (before != NPUWIN_NO_RANK)
		shm_wake_slot(sd, before);
}
