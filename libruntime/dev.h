/* SPDX-License-Identifier: MIT */
/* The dev provider: windows and engines of the driver's devices. */
#ifndef NPUWIN_DEV_H
#define NPUWIN_DEV_H

#include "internal.h"

/**
 * struct dev_device - A device as a context has opened it: its ranks die with this file.
 * @fd: of /dev/npuwinN
 * @number: N
 * @soft: it is a software NPU
 * @align: window sizes are multiples of this
 * @max_queue_depth: descriptors in a queue at most
 */
struct dev_device {
	int fd;
	unsigned int number;
	bool soft;
	uint64_t align;
	uint32_t max_queue_depth;
};

/**
 * struct dev - The provider of a context.
 * @count: elements of @devices
 * @devices: usable ones: hardware first, of each kind by number
 * @placed: how many are of the first one's kind. A domain's ranks are all on one kind, and
 *	who does not choose gets these
 * @align: of all of them
 * @lock: protects @domains and their references
 * @domains: domains that ranks of this context are in
 */
struct dev {
	uint32_t count;
	struct dev_device *devices;
	uint32_t placed;
	uint64_t align;
	pthread_mutex_t lock;
	struct dev_domain *domains;
};

/**
 * struct dev_domain - A domain as its ranks in a context share it.
 * @next: in the context's list
 * @refs: endpoints
 * @fd: the domain
 * @event_fd: grows with every completion of the queues of these ranks
 * @info: of the domain
 * @status: mapped
 * @lock: protects the rest
 * @mapped: windows have been mapped for @generation
 * @generation: see @mapped
 * @window: by rank: mapped, or NULL
 * @regs: by rank: mapped, or NULL
 */
struct dev_domain {
	struct dev_domain *next;
	unsigned int refs;
	int fd;
	int event_fd;
	struct npuwin_ioc_domain_info info;
	struct npuwin_domain_status *status;
	pthread_mutex_t lock;
	bool mapped;
	uint32_t generation;
	uint8_t **window;
	int32_t **regs;
};

/**
 * struct dev_rank - What the provider knows of an endpoint.
 * @ep: the endpoint
 * @domain: its domain
 * @device: brings its window
 * @window_id: that window
 * @window_map: mmap offset of it
 * @queue_id: its queue
 */
struct dev_rank {
	struct endpoint ep;
	struct dev_domain *domain;
	struct dev_device *device;
	uint32_t window_id;
	uint64_t window_map;
	uint32_t queue_id;
};

static inline struct dev_rank *dev_rank_of(const struct endpoint *ep)
{
	return ep->priv;
}

/* 0 or a negative errno. */
static inline int dev_result(int rc)
{
	return rc < 0 ? -errno : 0;
}

/* dev.c: sizes of windows are multiples of what all devices want; 0 where that overflows. */
uint64_t dev_round(const struct dev *dev, uint64_t size);

/* dev_map.c */
int dev_domain_get(struct dev *dev, int fd, struct dev_domain **domain,
		   struct npuwin_error *err);
void dev_domain_put(struct dev *dev, struct dev_domain *dd);
int dev_map(struct endpoint *ep, struct npuwin_error *err);

/* dev_rank.c */
int dev_join(struct npuwin *ctx, int fd, uint32_t nranks, uint64_t window_size, uint32_t rank,
	     int device, struct endpoint **ep, struct npuwin_error *err);
void dev_leave(struct endpoint *ep);
int dev_commit(struct endpoint *ep, int64_t deadline_ns, uint32_t *missing);
int dev_reset(struct endpoint *ep, int64_t deadline_ns, uint32_t *missing);
void dev_abort(struct endpoint *ep, int error);
int dev_export_peer(struct endpoint *ep, struct npuwin_ioc_domain_peer *peer,
		    struct npuwin_error *err);
int dev_import_peer(struct endpoint *ep, const struct npuwin_ioc_domain_peer *peer);

/* dev_queue.c */
int dev_signal_wait(struct endpoint *ep, struct npuwin_signal *signals, uint32_t count,
		    int64_t deadline_ns, uint32_t *index, uint32_t *gone);
void dev_signal_wake(struct endpoint *ep, uint32_t rank);
int dev_submit(struct endpoint *ep, const struct npuwin_desc *descs, uint32_t count, bool wait,
	       int64_t deadline_ns, struct npuwin_cqe *cqes, uint32_t room);
int dev_collect(struct endpoint *ep, struct npuwin_cqe *cqes, uint32_t room,
		int64_t deadline_ns);
int dev_event_fd(struct endpoint *ep);
int dev_queue_reset(struct endpoint *ep);

#endif /* NPUWIN_DEV_H */
