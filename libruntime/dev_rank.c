// SPDX-License-Identifier: MIT
/* The dev provider: bringing a window to a domain as a rank, and what ranks do together. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "dev.h"

/* Calls in flight that a queue has room for, and descriptors of one, for each rank. */
#define QUEUE_CALLS	8
#define CALL_DESCS	5
#define QUEUE_MIN	1024U

static int check_same(struct dev *dev, const struct dev_domain *dd, uint32_t nranks,
		      uint64_t window_size, uint32_t rank, struct npuwin_error *err)
{
	if (nranks != dd->info.nranks)
		return npuwin_fail(err, -EINVAL, (int32_t)rank, NPUWIN_NOBODY,
				   "nranks is %" PRIu32 ", but the domain has %" PRIu32, nranks,
				   dd->info.nranks);
	if (rank >= nranks)
		return npuwin_fail(err, -EINVAL, NPUWIN_NOBODY, NPUWIN_NOBODY,
				   "rank %" PRIu32 " is not in 0..%" PRIu32, rank, nranks - 1);
	if (window_size > dd->info.window_size ||
	    dev_round(dev, window_size) != dd->info.window_size)
		return npuwin_fail(err, -EINVAL, (int32_t)rank, NPUWIN_NOBODY,
				   "the window has %" PRIu64 " bytes, but the domain's have %"
				   PRIu64 " (with the runtime's own part)", window_size,
				   (uint64_t)dd->info.window_size);
	return 0;
}

static int alloc_window(struct dev_rank *own, struct npuwin_error *err)
{
	struct npuwin_ioc_window_alloc alloc = {
		.size = sizeof(alloc),
		.length = own->domain->info.window_size,
	};
	struct npuwin_ioc_query info = { .size = sizeof(info) };
	unsigned int number = own->device->number;
	int rc;

	rc = dev_result(ioctl(own->device->fd, NPUWIN_IOC_WINDOW_ALLOC, &alloc));
	if (!rc) {
		own->window_id = alloc.window_id;
		own->window_map = alloc.map_offset;
		return 0;
	}
	if (rc == -ENOSPC && !ioctl(own->device->fd, NPUWIN_IOC_QUERY, &info))
		return npuwin_fail(err, rc, (int32_t)own->ep.rank, NPUWIN_NOBODY,
				   "/dev/npuwin%u has no room for a window of %" PRIu64
				   " bytes: %" PRIu64 " of %" PRIu64 " are in use", number,
				   (uint64_t)alloc.length, (uint64_t)info.memory_used,
				   (uint64_t)info.memory_total);
	if (rc == -ENODEV)
		return npuwin_fail(err, rc, (int32_t)own->ep.rank, NPUWIN_NOBODY,
				   "/dev/npuwin%u gives no window of %" PRIu64
				   " bytes: the device has failed or is gone, see /sys/class/npuwin/npuwin%u/state",
				   number, (uint64_t)alloc.length, number);
	return npuwin_fail(err, rc, (int32_t)own->ep.rank, NPUWIN_NOBODY,
			   "/dev/npuwin%u gives no window of %" PRIu64 " bytes: %s", number,
			   (uint64_t)alloc.length, strerror(-rc));
}

static void destroy_window(const struct dev_rank *own)
{
	struct npuwin_ioc_destroy destroy = {
		.size = sizeof(destroy),
		.id = own->window_id,
	};

	ioctl(own->device->fd, NPUWIN_IOC_DESTROY, &destroy);
}

static int join_rank(struct dev_rank *own, struct npuwin_error *err)
{
	struct npuwin_ioc_domain_join join = {
		.size = sizeof(join),
		.domain_fd = own->domain->fd,
		.rank = own->ep.rank,
		.window_id = own->window_id,
	};
	const struct npuwin_domain_status *status = own->domain->status;
	int32_t rank = (int32_t)own->ep.rank;
	int rc;

	rc = dev_result(ioctl(own->device->fd, NPUWIN_IOC_DOMAIN_JOIN, &join));
	if (rc == -EOPNOTSUPP)
		return npuwin_fail(err, rc, rank, NPUWIN_NOBODY,
				   "rank %" PRId32 " cannot join: /dev/npuwin%u is not of the kind of device that the domain is on",
				   rank, own->device->number);
	if (rc != -EBUSY)
		return rc ? npuwin_fail(err, rc, rank, NPUWIN_NOBODY,
					"rank %" PRId32 " cannot join: %s", rank, strerror(-rc))
			  : 0;
	switch (__atomic_load_n(&status->state, __ATOMIC_ACQUIRE)) {
	case NPUWIN_DOMAIN_FORMING:
		return npuwin_fail(err, rc, rank, NPUWIN_NOBODY, "rank %" PRId32 " is taken",
				   rank);
	case NPUWIN_DOMAIN_READY:
		return npuwin_fail(err, rc, rank, NPUWIN_NOBODY,
				   "rank %" PRId32 " cannot join: the domain is complete", rank);
	default:
		return npuwin_fail(err, -EPIPE, rank, NPUWIN_NOBODY,
				   "rank %" PRId32 " cannot join: the domain is aborted", rank);
	}
}

static int leave_rank(const struct dev_rank *own)
{
	struct npuwin_ioc_domain_leave leave = {
		.size = sizeof(leave),
		.domain_fd = own->domain->fd,
		.rank = own->ep.rank,
	};

	return ioctl(own->device->fd, NPUWIN_IOC_DOMAIN_LEAVE, &leave);
}

static int create_queue(struct dev_rank *own, struct npuwin_error *err)
{
	struct npuwin_ioc_queue_create create = {
		.size = sizeof(create),
		.domain_fd = own->domain->fd,
		.rank = own->ep.rank,
		.depth = QUEUE_CALLS * (CALL_DESCS * own->ep.nranks + CALL_DESCS),
		.event_fd = own->domain->event_fd,
	};
	int rc;

	if (create.depth < QUEUE_MIN)
		create.depth = QUEUE_MIN;
	if (create.depth > own->device->max_queue_depth)
		create.depth = own->device->max_queue_depth;
	rc = dev_result(ioctl(own->device->fd, NPUWIN_IOC_QUEUE_CREATE, &create));
	if (rc)
		return npuwin_fail(err, rc, (int32_t)own->ep.rank, NPUWIN_NOBODY,
				   "/dev/npuwin%u makes no queue of %" PRIu32
				   " descriptors: %s", own->device->number,
				   (uint32_t)create.depth, strerror(-rc));
	own->queue_id = create.queue_id;
	return 0;
}

int dev_join(struct npuwin *ctx, int fd, uint32_t nranks, uint64_t window_size, uint32_t rank,
	     int device, struct endpoint **ep, struct npuwin_error *err)
{
	struct dev *dev = ctx->priv;
	struct dev_rank *own;
	int rc;

	if (device < -1 || (device >= 0 && (uint32_t)device >= dev->count))
		return npuwin_fail(err, -ENOENT, (int32_t)rank, NPUWIN_NOBODY,
				   "device %d does not exist: there are %" PRIu32, device,
				   dev->count);
	own = calloc(1, sizeof(*own));
	if (!own)
		return npuwin_fail(err, -ENOMEM, (int32_t)rank, NPUWIN_NOBODY,
				   "no memory for a membership of rank %" PRIu32, rank);
	rc = dev_domain_get(dev, fd, &own->domain, err);
	if (rc)
		goto free_rank;
	rc = check_same(dev, own->domain, nranks, window_size, rank, err);
	if (rc)
		goto put_domain;
	own->device = &dev->devices[device < 0 ? rank % dev->placed : (uint32_t)device];
	own->ep.ctx = ctx;
	own->ep.rank = rank;
	own->ep.nranks = nranks;
	own->ep.window_size = own->domain->info.window_size;
	own->ep.fd = own->domain->fd;
	own->ep.window = own->domain->window;
	own->ep.regs = own->domain->regs;
	own->ep.status = own->domain->status;
	own->ep.group = own->domain;
	own->ep.priv = own;
	rc = alloc_window(own, err);
	if (rc)
		goto put_domain;
	rc = join_rank(own, err);
	if (rc)
		goto destroy_window;
	rc = create_queue(own, err);
	if (rc)
		goto leave;
	*ep = &own->ep;
	return 0;

leave:
	leave_rank(own);
destroy_window:
	destroy_window(own);
put_domain:
	dev_domain_put(dev, own->domain);
free_rank:
	free(own);
	return rc;
}

/* The mapping stays until the last rank of the context leaves: another one may be writing. */
void dev_leave(struct endpoint *ep)
{
	struct dev_rank *own = dev_rank_of(ep);

	leave_rank(own);
	destroy_window(own);
	dev_domain_put(ep->ctx->priv, own->domain);
	free(own);
}

static int sync_ranks(struct endpoint *ep, unsigned long command, int64_t deadline_ns,
		      uint32_t *missing)
{
	struct dev_rank *own = dev_rank_of(ep);
	struct npuwin_ioc_domain_sync sync = {
		.size = sizeof(sync),
		.domain_fd = own->domain->fd,
		.rank = ep->rank,
		.deadline_ns = deadline_ns < 0 ? 0 : deadline_ns,
		.missing_rank = NPUWIN_NO_RANK,
	};
	int rc;

	do {
		rc = dev_result(ioctl(own->device->fd, command, &sync));
	} while (rc == -EINTR);
	*missing = sync.missing_rank;
	return rc;
}

int dev_commit(struct endpoint *ep, int64_t deadline_ns, uint32_t *missing)
{
	return sync_ranks(ep, NPUWIN_IOC_DOMAIN_COMMIT, deadline_ns, missing);
}

int dev_reset(struct endpoint *ep, int64_t deadline_ns, uint32_t *missing)
{
	return sync_ranks(ep, NPUWIN_IOC_DOMAIN_RESET, deadline_ns, missing);
}

void dev_abort(struct endpoint *ep, int error)
{
	struct dev_rank *own = dev_rank_of(ep);
	struct npuwin_ioc_domain_leave abort = {
		.size = sizeof(abort),
		.domain_fd = own->domain->fd,
		.rank = ep->rank,
		.error = (uint32_t)error,
	};

	ioctl(own->device->fd, NPUWIN_IOC_DOMAIN_ABORT, &abort);
}

int dev_export_peer(struct endpoint *ep, struct npuwin_ioc_domain_peer *peer,
		    struct npuwin_error *err)
{
	struct dev_rank *own = dev_rank_of(ep);
	unsigned int number = own->device->number;
	int32_t rank = (int32_t)ep->rank;
	int rc;

	*peer = (struct npuwin_ioc_domain_peer) {
		.size = sizeof(*peer),
		.domain_fd = own->domain->fd,
		.rank = ep->rank,
	};
	rc = dev_result(ioctl(own->device->fd, NPUWIN_IOC_DOMAIN_EXPORT, peer));
	if (rc == -EOPNOTSUPP || rc == -ENOTTY)
		return npuwin_fail(err, -EOPNOTSUPP, rank, NPUWIN_NOBODY,
				   "/dev/npuwin%u is on no fabric, where ranks of other processes could reach its windows without sharing the domain",
				   number);
	return rc ? npuwin_fail(err, rc, rank, NPUWIN_NOBODY,
				"/dev/npuwin%u does not say where the window of rank %" PRId32
				" is on the fabric: %s", number, rank, strerror(-rc)) : 0;
}

int dev_import_peer(struct endpoint *ep, const struct npuwin_ioc_domain_peer *peer)
{
	struct dev_rank *own = dev_rank_of(ep);
	struct npuwin_ioc_domain_peer arg = *peer;
	int rc;

	arg.size = sizeof(arg);
	arg.domain_fd = own->domain->fd;
	rc = dev_result(ioctl(own->device->fd, NPUWIN_IOC_DOMAIN_IMPORT, &arg));
	explicit_bzero(&arg, sizeof(arg));
	return rc;
}
