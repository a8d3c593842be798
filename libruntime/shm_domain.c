// SPDX-License-Identifier: MIT
/* The shm provider: making a domain's memfd, and opening somebody else's with distrust. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shm.h"

#define SHM_SEALS	(F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

static uint64_t page_size(void)
{
	return (uint64_t)sysconf(_SC_PAGESIZE);
}

uint64_t shm_round(uint64_t size)
{
	uint64_t mask = page_size() - 1;

	return (size + mask) & ~mask;
}

static bool append(uint64_t *at, uint64_t *end, uint64_t size, uint64_t count)
{
	uint64_t bytes, mask = page_size() - 1;

	*at = *end;
	return !__builtin_mul_overflow(size, count, &bytes) &&
	       !__builtin_add_overflow(bytes, mask, &bytes) &&
	       !__builtin_add_overflow(*end, bytes & ~mask, end);
}

/**
 * shm_layout_of() - Where things are in a domain's memfd.
 * @nranks: 1..NPUWIN_MAX_RANKS
 * @window_size: a multiple of the page size
 * @layout: out
 *
 * Return: 0 or -EOVERFLOW.
 */
int shm_layout_of(uint32_t nranks, uint64_t window_size, struct shm_layout *layout)
{
	uint64_t end = page_size();
	uint64_t status = sizeof(struct npuwin_domain_status) +
			  nranks * sizeof(struct npuwin_rank_status);

	if (!append(&layout->status, &end, status, 1) ||
	    !append(&layout->ranks, &end, sizeof(struct shm_rank), nranks) ||
	    !append(&layout->slots, &end, sizeof(struct shm_slot), nranks) ||
	    !append(&layout->regs, &end, SHM_REGS_SIZE, nranks) ||
	    !append(&layout->windows, &end, window_size, nranks) || end > INT64_MAX)
		return -EOVERFLOW;
	layout->total = end;
	return 0;
}

static int check_size(struct shm *shm, uint32_t nranks, uint64_t *window_size,
		      struct shm_layout *layout, struct npuwin_error *err)
{
	uint64_t asked = *window_size;
	struct rlimit limit;

	if (!nranks || nranks > NPUWIN_MAX_RANKS)
		return npuwin_fail(err, -EINVAL, NPUWIN_NOBODY, NPUWIN_NOBODY,
				   "nranks is %" PRIu32 ", not in 1..%d", nranks,
				   NPUWIN_MAX_RANKS);
	*window_size = shm_round(asked);
	if (*window_size < asked)
		return npuwin_fail(err, -EOVERFLOW, NPUWIN_NOBODY, NPUWIN_NOBODY,
				   "a window of %" PRIu64 " bytes is too large", asked);
	if (*window_size > shm->memory_total)
		return npuwin_fail(err, -ENOSPC, NPUWIN_NOBODY, NPUWIN_NOBODY,
				   "a window of %" PRIu64
				   " bytes is larger than the memory of this machine, %" PRIu64
				   " bytes", asked, shm->memory_total);
	if (shm_layout_of(nranks, *window_size, layout))
		return npuwin_fail(err, -EOVERFLOW, NPUWIN_NOBODY, NPUWIN_NOBODY,
				   "%" PRIu32 " windows of %" PRIu64 " bytes are too large",
				   nranks, asked);
	/* Past this limit ftruncate() ends the process with SIGXFSZ. */
	if (!getrlimit(RLIMIT_FSIZE, &limit) && limit.rlim_cur != RLIM_INFINITY &&
	    layout->total > limit.rlim_cur)
		return npuwin_fail(err, -ENOSPC, NPUWIN_NOBODY, NPUWIN_NOBODY,
				   "a domain of %" PRIu64
				   " bytes is over the file size limit of %" PRIu64
				   " bytes (ulimit -f)", layout->total,
				   (uint64_t)limit.rlim_cur);
	return 0;
}

int shm_domain_create(struct npuwin *ctx, uint32_t nranks, uint64_t window_size,
		      struct npuwin_error *err)
{
	struct npuwin_domain_status status = {
		.state = NPUWIN_DOMAIN_FORMING,
		.abort_rank = NPUWIN_NO_RANK,
		.nranks = nranks,
	};
	struct shm_header header = {
		.magic = SHM_MAGIC,
		.version = SHM_VERSION,
		.nranks = nranks,
	};
	struct shm_layout layout = { 0 };
	int fd, rc;

	rc = check_size(ctx->priv, nranks, &window_size, &layout, err);
	if (rc)
		return rc;
	header.window_size = window_size;

	fd = memfd_create("npuwin", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0) {
		rc = -errno;
		return npuwin_fail(err, rc, NPUWIN_NOBODY, NPUWIN_NOBODY,
				   "cannot make a memfd: %s", strerror(-rc));
	}
	if (ftruncate(fd, (off_t)layout.total) ||
	    pwrite(fd, &header, sizeof(header), 0) != sizeof(header) ||
	    pwrite(fd, &status, sizeof(status), (off_t)layout.status) != sizeof(status) ||
	    fcntl(fd, F_ADD_SEALS, SHM_SEALS)) {
		rc = errno ? -errno : -EIO;
		close(fd);
		return npuwin_fail(err, rc, NPUWIN_NOBODY, NPUWIN_NOBODY,
				   "cannot lay out a domain of %" PRIu64 " bytes: %s",
				   layout.total, strerror(-rc));
	}
	return fd;
}

int shm_lock(const struct shm_domain *sd, short type, uint32_t byte)
{
	struct flock lock = {
		.l_type = type,
		.l_whence = SEEK_SET,
		.l_start = byte,
		.l_len = 1,
	};

	return fcntl(sd->fd, F_OFD_SETLK, &lock) ? -errno : 0;
}

short shm_lock_holder(const struct shm_domain *sd, uint32_t byte)
{
	struct flock lock = {
		.l_type = F_WRLCK,
		.l_whence = SEEK_SET,
		.l_start = byte,
		.l_len = 1,
	};

	return fcntl(sd->fd, F_OFD_GETLK, &lock) ? F_WRLCK : lock.l_type;
}

void shm_zero(const struct shm_domain *sd, uint64_t offset, uint64_t size)
{
	if (fallocate(sd->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset,
		      (off_t)size))
		memset(sd->base + offset, 0, size);
}

/* Check a descriptor that somebody handed in; its header is read once, into @sd. */
static int inspect(struct shm_domain *sd, int fd, struct npuwin_error *err)
{
	struct shm_header header;
	struct stat st;
	int seals;

	/* Only memfds have seals; without them a peer could shrink it under our feet. */
	seals = fcntl(fd, F_GET_SEALS);
	if (seals < 0 || (seals & (F_SEAL_SHRINK | F_SEAL_WRITE)) != F_SEAL_SHRINK ||
	    fstat(fd, &st) || pread(fd, &header, sizeof(header), 0) != sizeof(header) ||
	    header.magic != SHM_MAGIC)
		return npuwin_fail(err, -EINVAL, NPUWIN_NOBODY, NPUWIN_NOBODY,
				   "descriptor %d is no domain of the shm provider", fd);
	if (header.version != SHM_VERSION)
		return npuwin_fail(err, -EINVAL, NPUWIN_NOBODY, NPUWIN_NOBODY,
				   "the domain has layout version %" PRIu32
				   ", this library has %u", header.version, SHM_VERSION);
	if (!header.nranks || header.nranks > NPUWIN_MAX_RANKS ||
	    header.window_size & (page_size() - 1) ||
	    shm_layout_of(header.nranks, header.window_size, &sd->layout) ||
	    sd->layout.total != (uint64_t)st.st_size)
		return npuwin_fail(err, -EINVAL, NPUWIN_NOBODY, NPUWIN_NOBODY,
				   "the domain's header is damaged: %" PRIu32
				   " ranks with windows of %" PRIu64 " bytes in %jd bytes",
				   header.nranks, header.window_size, (intmax_t)st.st_size);
	sd->dev = st.st_dev;
	sd->ino = st.st_ino;
	sd->nranks = header.nranks;
	sd->window_size = header.window_size;
	return 0;
}

/* Contexts of a domain are never more than its ranks, so that there is a slot for each; one
 * that is just leaving may still be in the way.
 */
static int take_slot(struct shm_domain *sd, struct npuwin_error *err)
{
	uint32_t slot;
	int rc;

	for (slot = 0; slot < sd->nranks; slot++) {
		rc = shm_lock(sd, F_WRLCK, SHM_LOCK_SLOT(slot));
		if (!rc) {
			sd->slot = slot;
			return 0;
		}
		if (rc != -EAGAIN && rc != -EACCES)
			return npuwin_fail(err, rc, NPUWIN_NOBODY, NPUWIN_NOBODY,
					   "cannot lock the domain's memfd: %s", strerror(-rc));
	}
	return npuwin_fail(err, -EBUSY, NPUWIN_NOBODY, NPUWIN_NOBODY,
			   "all %" PRIu32 " places of the domain are taken", sd->nranks);
}

static int map_all(struct shm_domain *sd, struct npuwin_error *err)
{
	int rc;

	sd->base = mmap(NULL, sd->layout.total, PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_NORESERVE, sd->fd, 0);
	if (sd->base == MAP_FAILED) {
		rc = -errno;
		return npuwin_fail(err, rc, NPUWIN_NOBODY, NPUWIN_NOBODY,
				   "cannot map a domain of %" PRIu64 " bytes: %s",
				   sd->layout.total, strerror(-rc));
	}
	/* A child is no member. */
	madvise(sd->base, sd->layout.total, MADV_DONTFORK);
	sd->status = (void *)(sd->base + sd->layout.status);
	sd->ranks = (void *)(sd->base + sd->layout.ranks);
	sd->slots = (void *)(sd->base + sd->layout.slots);
	return 0;
}

static int domain_open(int fd, struct shm_domain **domain, struct npuwin_error *err)
{
	struct shm_domain *sd;
	char path[32];
	int rc;

	sd = calloc(1, sizeof(*sd));
	if (!sd)
		return npuwin_fail(err, -ENOMEM, NPUWIN_NOBODY, NPUWIN_NOBODY,
				   "no memory for a domain");
	rc = inspect(sd, fd, err);
	if (rc)
		goto free_domain;
	sd->watched = NPUWIN_NO_RANK;
	sd->local = calloc(sd->nranks, sizeof(*sd->local));
	sd->shunned = calloc(sd->nranks, sizeof(*sd->shunned));
	if (!sd->local || !sd->shunned) {
		rc = npuwin_fail(err, -ENOMEM, NPUWIN_NOBODY, NPUWIN_NOBODY,
				 "no memory for a domain of %" PRIu32 " ranks", sd->nranks);
		goto free_arrays;
	}
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	sd->fd = open(path, O_RDWR | O_CLOEXEC);
	if (sd->fd < 0) {
		rc = -errno;
		npuwin_fail(err, rc, NPUWIN_NOBODY, NPUWIN_NOBODY,
			    "cannot open the domain's memfd again as %s: %s", path,
			    strerror(-rc));
		goto free_arrays;
	}
	sd->domain_fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (sd->domain_fd < 0) {
		rc = -errno;
		npuwin_fail(err, rc, NPUWIN_NOBODY, NPUWIN_NOBODY,
			    "cannot duplicate the domain's descriptor: %s", strerror(-rc));
		goto close_fd;
	}
	rc = map_all(sd, err);
	if (rc)
		goto close_domain_fd;
	rc = take_slot(sd, err);
	if (rc)
		goto unmap;
	pthread_mutex_init(&sd->lock, NULL);
	pthread_mutex_init(&sd->aim_lock, NULL);
	*domain = sd;
	return 0;

unmap:
	munmap(sd->base, sd->layout.total);
close_domain_fd:
	close(sd->domain_fd);
close_fd:
	close(sd->fd);
free_arrays:
	free(sd->shunned);
	free(sd->local);
free_domain:
	free(sd);
	return rc;
}

/**
 * shm_domain_get() - Open a domain, or find it where this context has it open.
 * @shm: the context's provider
 * @fd: the domain; stays the caller's
 * @domain: out
 * @err: out: may be NULL
 *
 * Return: 0 or a negative errno.
 */
int shm_domain_get(struct shm *shm, int fd, struct shm_domain **domain, struct npuwin_error *err)
{
	struct shm_domain *sd;
	struct stat st;
	int rc = 0;

	if (fstat(fd, &st)) {
		rc = -errno;
		return npuwin_fail(err, rc, NPUWIN_NOBODY, NPUWIN_NOBODY,
				   "descriptor %d cannot be used: %s", fd, strerror(-rc));
	}
	pthread_mutex_lock(&shm->lock);
	for (sd = shm->domains; sd; sd = sd->next)
		if (sd->dev == st.st_dev && sd->ino == st.st_ino)
			break;
	if (!sd) {
		rc = domain_open(fd, &sd, err);
		if (!sd)
			goto unlock;
		sd->next = shm->domains;
		shm->domains = sd;
	}
	sd->refs++;
	*domain = sd;
unlock:
	pthread_mutex_unlock(&shm->lock);
	return rc;
}

void shm_domain_put(struct shm *shm, struct shm_domain *sd)
{
	struct shm_domain **link;

	pthread_mutex_lock(&shm->lock);
	if (--sd->refs) {
		pthread_mutex_unlock(&shm->lock);
		return;
	}
	for (link = &shm->domains; *link; link = &(*link)->next)
		if (*link == sd)
			break;
	*link = sd->next;
	pthread_mutex_unlock(&shm->lock);

	shm_watch_stop(sd);
	munmap(sd->base, sd->layout.total);
	close(sd->domain_fd);
	close(sd->fd);
	pthread_mutex_destroy(&sd->aim_lock);
	pthread_mutex_destroy(&sd->lock);
	free(sd->shunned);
	free(sd->local);
	free(sd);
}
