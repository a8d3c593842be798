// SPDX-License-Identifier: MIT
/*
 * The shm provider: ranks of software NPUs in this and other processes of the same user.
 * It needs no driver, no privilege and no names.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>

#include "shm.h"

static int shm_open_provider(struct npuwin *ctx, struct npuwin_error *err)
{
	struct sysinfo info;
	struct shm *shm;

	shm = calloc(1, sizeof(*shm));
	if (!shm)
		return npuwin_fail(err, -ENOMEM, NPUWIN_NOBODY, NPUWIN_NOBODY,
				   "no memory for the shm provider");
	pthread_mutex_init(&shm->lock, NULL);
	sysinfo(&info);
	shm->memory_total = (uint64_t)info.totalram * info.mem_unit;
	ctx->priv = shm;
	return 0;
}

static void shm_close_provider(struct npuwin *ctx)
{
	struct shm *shm = ctx->priv;

	pthread_mutex_destroy(&shm->lock);
	free(shm);
}

static int shm_device_count(const struct npuwin *ctx)
{
	(void)ctx;
	return 1;
}

static int shm_device_info(struct npuwin *ctx, int index, struct npuwin_device_info *info,
			   struct npuwin_error *err)
{
	struct shm *shm = ctx->priv;

	if (index != 0)
		return npuwin_fail(err, -ENOENT, NPUWIN_NOBODY, NPUWIN_NOBODY,
				   "device %d does not exist: the shm provider has device 0 only",
				   index);
	memset(info, 0, sizeof(*info));
	snprintf(info->name, sizeof(info->name), "shm");
	snprintf(info->backend, sizeof(info->backend), "shm");
	info->numa_node = -1;
	info->max_ranks = NPUWIN_MAX_RANKS;
	info->notify_regs = NPUWIN_NOTIFY_REGS;
	info->peer_map = 1;
	pthread_mutex_lock(&shm->lock);
	info->memory_total = shm->memory_total;
	info->memory_used = shm->memory_used;
	pthread_mutex_unlock(&shm->lock);
	return 0;
}

static void charge(struct shm *shm, uint64_t bytes)
{
	pthread_mutex_lock(&shm->lock);
	shm->memory_used += bytes;
	pthread_mutex_unlock(&shm->lock);
}

/* Lock the rank. A watcher may be holding the claim for a moment to bury the last owner. */
static int lock_claim(struct shm_domain *sd, uint32_t rank)
{
	int rc;

	if (sd->local[rank])
		return -EBUSY;
	do {
		rc = shm_lock(sd, F_WRLCK, SHM_LOCK_CLAIM(rank));
	} while ((rc == -EAGAIN || rc == -EACCES) &&
		 shm_lock_holder(sd, SHM_LOCK_CLAIM(rank)) != F_WRLCK);
	return rc == -EAGAIN || rc == -EACCES ? -EBUSY : rc;
}

/*
 * Become the owner of a rank: first the lock, which keeps others out, then clean memory, and
 * only then does the rank count as joined. Who dies in between has changed nothing.
 */
static int claim(struct shm_domain *sd, uint32_t rank, struct npuwin_error *err)
{
	struct npuwin_rank_status *status = &sd->status->rank[rank];
	struct shm_rank *words = &sd->ranks[rank];
	struct shm_state now;
	uint32_t state;
	int rc;

	pthread_mutex_lock(&sd->lock);
	/*
	 * The slot of this context may have come free by a death just now, and then who
	 * watched it goes on waiting, for us.
	 */
	shm_bury(sd, SHM_ANY_SLOT);
	rc = lock_claim(sd, rank);
	if (rc) {
		npuwin_fail(err, rc, (int32_t)rank, NPUWIN_NOBODY, "rank %" PRIu32 " is taken",
			    rank);
		goto unlock;
	}
	now = shm_state(sd);
	state = shm_load(&status->state);
	if (now.state == NPUWIN_DOMAIN_READY) {
		rc = npuwin_fail(err, -EBUSY, (int32_t)rank, NPUWIN_NOBODY,
				 "rank %" PRIu32 " cannot join: the domain is complete", rank);
		goto drop_claim;
	}
	if (now.state != NPUWIN_DOMAIN_FORMING) {
		rc = npuwin_fail(err, -EPIPE, (int32_t)rank, NPUWIN_NOBODY,
				 "rank %" PRIu32 " cannot join: the domain is aborted", rank);
		goto drop_claim;
	}
	if (state == NPUWIN_RANK_JOINED) {
		/* Its owner has died so recently that nobody has noticed. */
		shm_swap(&status->state, state, NPUWIN_RANK_DEAD);
		shm_abort_generation(sd, now.generation, rank, EPIPE);
		state = NPUWIN_RANK_DEAD;
	}
	if (state != NPUWIN_RANK_EMPTY && state != NPUWIN_RANK_LEFT) {
		rc = npuwin_fail(err, -EPIPE, (int32_t)rank, (int32_t)rank,
				 "rank %" PRIu32 " has died: the domain must be reset first",
				 rank);
		goto drop_claim;
	}
	shm_zero(sd, sd->layout.windows + rank * sd->window_size, sd->window_size);
	shm_zero(sd, sd->layout.regs + rank * SHM_REGS_SIZE, SHM_REGS_SIZE);
	shm_store(&status->sleepers, 0);
	shm_store(&words->slot, sd->slot);
	shm_store(&words->commit, 0);
	shm_store(&words->reset, 0);
	shm_store(&status->state, NPUWIN_RANK_JOINED);
	sd->local[rank] = true;
	goto unlock;

drop_claim:
	shm_lock(sd, F_UNLCK, SHM_LOCK_CLAIM(rank));
unlock:
	pthread_mutex_unlock(&sd->lock);
	return rc;
}

static int check_same(const struct shm_domain *sd, uint32_t nranks, uint64_t window_size,
		      uint32_t rank, struct npuwin_error *err)
{
	if (nranks != sd->nranks)
		return npuwin_fail(err, -EINVAL, (int32_t)rank, NPUWIN_NOBODY,
				   "nranks is %" PRIu32 ", but the domain has %" PRIu32, nranks,
				   sd->nranks);
	if (rank >= nranks)
		return npuwin_fail(err, -EINVAL, NPUWIN_NOBODY, NPUWIN_NOBODY,
				   "rank %" PRIu32 " is not in 0..%" PRIu32, rank, nranks - 1);
	if (window_size > sd->window_size || shm_round(window_size) != sd->window_size)
		return npuwin_fail(err, -EINVAL, (int32_t)rank, NPUWIN_NOBODY,
				   "the window has %" PRIu64 " bytes, but the domain's have %"
				   PRIu64 " (with the runtime's own part)", window_size,
				   sd->window_size);
	return 0;
}

static struct endpoint *make_endpoint(struct npuwin *ctx, struct shm_domain *sd, uint32_t rank,
				      struct npuwin_error *err)
{
	struct endpoint *ep = calloc(1, sizeof(*ep));

	if (!ep)
		goto fail;
	ep->window = calloc(sd->nranks, sizeof(*ep->window));
	ep->regs = calloc(sd->nranks, sizeof(*ep->regs));
	if (!ep->window || !ep->regs)
		goto free_arrays;
	ep->ctx = ctx;
	ep->rank = rank;
	ep->nranks = sd->nranks;
	ep->window_size = sd->window_size;
	ep->fd = sd->domain_fd;
	ep->status = sd->status;
	ep->group = sd;
	ep->priv = sd;
	return ep;

free_arrays:
	free(ep->regs);
	free(ep->window);
	free(ep);
fail:
	npuwin_fail(err, -ENOMEM, (int32_t)rank, NPUWIN_NOBODY,
		    "no memory for a membership of rank %" PRIu32, rank);
	return NULL;
}

static void free_endpoint(struct endpoint *ep)
{
	free(ep->regs);
	free(ep->window);
	free(ep);
}

static int shm_join(struct npuwin *ctx, int fd, uint32_t nranks, uint64_t window_size,
		    uint32_t rank, int device, struct endpoint **endpoint,
		    struct npuwin_error *err)
{
	struct shm *shm = ctx->priv;
	struct shm_domain *sd;
	struct endpoint *ep;
	int rc;

	if (device < -1 || device > 0)
		return npuwin_fail(err, -ENOENT, (int32_t)rank, NPUWIN_NOBODY,
				   "device %d does not exist: the shm provider has device 0 only",
				   device);
	rc = shm_domain_get(shm, fd, &sd, err);
	if (rc)
		return rc;
	rc = check_same(sd, nranks, window_size, rank, err);
	if (rc)
		goto put_domain;
	ep = make_endpoint(ctx, sd, rank, err);
	if (!ep) {
		rc = -ENOMEM;
		goto put_domain;
	}
	rc = claim(sd, rank, err);
	if (rc)
		goto free_endpoint;
	charge(shm, sd->window_size);
	shm_watch_arrived(sd, sd->slot);
	*endpoint = ep;
	return 0;

free_endpoint:
	free_endpoint(ep);
put_domain:
	shm_domain_put(shm, sd);
	return rc;
}

/* All of it is mapped: what changes is who is there. */
static int shm_map(struct endpoint *ep, struct npuwin_error *err)
{
	struct shm_domain *sd = shm_domain_of(ep);
	uint32_t rank;

	(void)err;
	for (rank = 0; rank < ep->nranks; rank++) {
		bool joined = shm_load(&sd->status->rank[rank].state) == NPUWIN_RANK_JOINED;
		uint8_t *window = sd->base + sd->layout.windows + rank * sd->window_size;
		uint8_t *regs = sd->base + sd->layout.regs + rank * SHM_REGS_SIZE;

		/* Peers can write the state; the own memory is there whatever it says. */
		joined = joined || rank == ep->rank;
		if (joined == !!ep->window[rank])
			continue;
		ep->window[rank] = joined ? window : NULL;
		ep->regs[rank] = joined ? (int32_t *)regs : NULL;
	}
	return 0;
}

static void shm_leave(struct endpoint *ep)
{
	struct shm_domain *sd = shm_domain_of(ep);
	struct shm *shm = ep->ctx->priv;
	bool forming = shm_state(sd).state == NPUWIN_DOMAIN_FORMING;

	pthread_mutex_lock(&sd->lock);
	shm_swap(&sd->status->rank[ep->rank].state, NPUWIN_RANK_JOINED,
		 forming ? NPUWIN_RANK_EMPTY : NPUWIN_RANK_LEFT);
	sd->local[ep->rank] = false;
	shm_lock(sd, F_UNLCK, SHM_LOCK_CLAIM(ep->rank));
	pthread_mutex_unlock(&sd->lock);
	shm_wake_all(sd);
	charge(shm, -sd->window_size);
	shm_domain_put(shm, sd);
	free_endpoint(ep);
}

const struct provider_ops provider_shm = {
	.name = "shm",
	.open = shm_open_provider,
	.close = shm_close_provider,
	.device_count = shm_device_count,
	.device_info = shm_device_info,
	.domain_create = shm_domain_create,
	.join = shm_join,
	.commit = shm_commit,
	.reset = shm_reset,
	.map = shm_map,
	.abort = shm_abort,
	.leave = shm_leave,
	.signal_wait = shm_signal_wait,
	.signal_wake = shm_signal_wake,
};
