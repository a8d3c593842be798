// SPDX-License-Identifier: MIT
/*
 * The dev provider: what the ranks of a context share of a domain, which are its mappings.
 * With one set of them for each rank a process with many ranks would run out of mappings.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <linux/kcmp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "dev.h"

/* Where the kernel cannot tell they are taken for different, which costs mappings only. */
static bool same_file(int a, int b)
{
	pid_t pid = getpid();

	return !syscall(SYS_kcmp, pid, pid, KCMP_FILE, a, b);
}

static int domain_open(int fd, struct dev_domain **domain, struct npuwin_error *err)
{
	struct dev_domain *dd;
	int rc;

	dd = calloc(1, sizeof(*dd));
	if (!dd)
		return npuwin_fail(err, -ENOMEM, NPUWIN_NOBODY, NPUWIN_NOBODY,
				   "no memory for a domain");
	dd->info.size = sizeof(dd->info);
	rc = dev_result(ioctl(fd, NPUWIN_IOC_DOMAIN_INFO, &dd->info));
	if (rc) {
		npuwin_fail(err, rc == -ENOTTY ? -EINVAL : rc, NPUWIN_NOBODY, NPUWIN_NOBODY,
			    "descriptor %d is no domain of the driver: %s", fd, strerror(-rc));
		rc = rc == -ENOTTY ? -EINVAL : rc;
		goto free_domain;
	}
	dd->window = calloc(dd->info.nranks, sizeof(*dd->window));
	dd->regs = calloc(dd->info.nranks, sizeof(*dd->regs));
	if (!dd->window || !dd->regs) {
		rc = npuwin_fail(err, -ENOMEM, NPUWIN_NOBODY, NPUWIN_NOBODY,
				 "no memory for a domain of %" PRIu32 " ranks", dd->info.nranks);
		goto free_arrays;
	}
	dd->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (dd->fd < 0) {
		rc = -errno;
		npuwin_fail(err, rc, NPUWIN_NOBODY, NPUWIN_NOBODY,
			    "cannot duplicate the domain's descriptor: %s", strerror(-rc));
		goto free_arrays;
	}
	dd->event_fd = eventfd(0, EFD_CLOEXEC);
	if (dd->event_fd < 0) {
		rc = -errno;
		npuwin_fail(err, rc, NPUWIN_NOBODY, NPUWIN_NOBODY, "cannot make an eventfd: %s",
			    strerror(-rc));
		goto close_fd;
	}
	dd->status = mmap(NULL, dd->info.status_length, PROT_READ, MAP_SHARED, dd->fd,
			  (off_t)dd->info.status_map);
	if (dd->status == MAP_FAILED) {
		rc = -errno;
		npuwin_fail(err, rc, NPUWIN_NOBODY, NPUWIN_NOBODY,
			    "cannot map the domain's status page: %s", strerror(-rc));
		goto close_event_fd;
	}
	pthread_mutex_init(&dd->lock, NULL);
	*domain = dd;
	return 0;

close_event_fd:
	close(dd->event_fd);
close_fd:
	close(dd->fd);
free_arrays:
	free(dd->regs);
	free(dd->window);
free_domain:
	free(dd);
	return rc;
}

/**
 * dev_domain_get() - Open a domain, or find it where this context has it open.
 * @dev: the context's provider
 * @fd: the domain; stays the caller's
 * @domain: out
 * @err: out: may be NULL
 *
 * Return: 0 or a negative errno.
 */
int dev_domain_get(struct dev *dev, int fd, struct dev_domain **domain, struct npuwin_error *err)
{
	struct dev_domain *dd;
	int rc = 0;

	pthread_mutex_lock(&dev->lock);
	for (dd = dev->domains; dd; dd = dd->next)
		if (same_file(dd->fd, fd))
			break;
	if (!dd) {
		rc = domain_open(fd, &dd, err);
		if (!dd)
			goto unlock;
		dd->next = dev->domains;
		dev->domains = dd;
	}
	dd->refs++;
	*domain = dd;
unlock:
	pthread_mutex_unlock(&dev->lock);
	return rc;
}

static void unmap_rank(struct dev_domain *dd, uint32_t rank)
{
	if (dd->window[rank])
		munmap(dd->window[rank], dd->info.window_size);
	if (dd->regs[rank])
		munmap(dd->regs[rank], dd->info.notify_stride);
	dd->window[rank] = NULL;
	dd->regs[rank] = NULL;
}

void dev_domain_put(struct dev *dev, struct dev_domain *dd)
{
	struct dev_domain **link;
	uint32_t rank;

	pthread_mutex_lock(&dev->lock);
	if (--dd->refs) {
		pthread_mutex_unlock(&dev->lock);
		return;
	}
	for (link = &dev->domains; *link; link = &(*link)->next)
		if (*link == dd)
			break;
	*link = dd->next;
	pthread_mutex_unlock(&dev->lock);

	for (rank = 0; rank < dd->info.nranks; rank++)
		unmap_rank(dd, rank);
	munmap(dd->status, dd->info.status_length);
	pthread_mutex_destroy(&dd->lock);
	close(dd->event_fd);
	close(dd->fd);
	free(dd->regs);
	free(dd->window);
	free(dd);
}

/* Map @size bytes, in the place of what is mapped there; NULL where that failed. */
static int map_at(int fd, uint64_t offset, uint64_t size, void **mapped)
{
	void *p = mmap(*mapped, size, PROT_READ | PROT_WRITE,
		       MAP_SHARED | (*mapped ? MAP_FIXED : 0), fd, (off_t)offset);

	/* A failure has unmapped what was there, and another thread may have mapped since. */
	*mapped = p == MAP_FAILED ? NULL : p;
	return *mapped ? 0 : -errno;
}

/*
 * Map a rank's memory, anew where it is mapped: behind the same rank there may be a successor,
 * and the address stays. What cannot be mapped is no error: the rail that needs it says so.
 */
static int map_rank(struct dev_domain *dd, uint32_t rank)
{
	const struct npuwin_ioc_domain_info *info = &dd->info;
	void *window = dd->window[rank], *regs = dd->regs[rank];
	int rc;

	rc = map_at(dd->fd, info->window_map + rank * info->window_size, info->window_size,
		    &window);
	if (!rc)
		rc = map_at(dd->fd, info->notify_map + rank * info->notify_stride,
			    info->notify_stride, &regs);
	dd->window[rank] = window;
	dd->regs[rank] = regs;
	if (!rc)
		return 0;
	unmap_rank(dd, rank);
	return rc == -EOPNOTSUPP || rc == -ENOENT || rc == -ENODEV ? 0 : rc;
}

/* A device that does not let peers in lets its owner. */
static int map_own(struct dev_rank *own)
{
	struct dev_domain *dd = own->domain;
	uint32_t rank = own->ep.rank;
	void *window = NULL;
	int rc;

	if (dd->window[rank])
		return 0;
	rc = map_at(own->device->fd, own->window_map, dd->info.window_size, &window);
	if (!rc)
		dd->window[rank] = window;
	return rc;
}

int dev_map(struct endpoint *ep, struct npuwin_error *err)
{
	struct dev_rank *own = dev_rank_of(ep);
	struct dev_domain *dd = own->domain;
	uint32_t generation = __atomic_load_n(&dd->status->generation, __ATOMIC_ACQUIRE);
	uint32_t rank, state;
	int rc = 0;

	pthread_mutex_lock(&dd->lock);
	if (dd->mapped && dd->generation == generation)
		goto own_window;
	for (rank = 0; rank < dd->info.nranks && !rc; rank++) {
		state = __atomic_load_n(&dd->status->rank[rank].state, __ATOMIC_ACQUIRE);
		if (state == NPUWIN_RANK_JOINED)
			rc = map_rank(dd, rank);
		else
			unmap_rank(dd, rank);
	}
	if (rc) {
		rank--;
		goto unlock;
	}
	dd->mapped = true;
	dd->generation = generation;
own_window:
	rank = ep->rank;
	rc = map_own(own);
unlock:
	pthread_mutex_unlock(&dd->lock);
	if (rc)
		npuwin_fail(err, rc, (int32_t)ep->rank, (int32_t)rank,
			    "cannot map the window of rank %" PRIu32 ", %" PRIu64 " bytes: %s",
			    rank, (uint64_t)dd->info.window_size, strerror(-rc));
	return rc;
}
