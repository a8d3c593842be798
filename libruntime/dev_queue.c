// SPDX-License-Identifier: MIT
/* The dev provider: posting descriptors, taking completions, and waiting for cells. */
#include <sys/ioctl.h>

#include "dev.h"

int dev_submit(struct endpoint *ep, const struct npuwin_desc *descs, uint32_t count, bool wait,
	       int64_t deadline_ns, struct npuwin_cqe *cqes, uint32_t room)
{
	struct dev_rank *own = dev_rank_of(ep);
	struct npuwin_ioc_submit submit = {
		.size = sizeof(submit),
		.flags = wait ? NPUWIN_SUBMIT_F_WAIT : 0,
		.queue_id = own->queue_id,
		.count = count,
		.descs = (uintptr_t)descs,
		.cqes = wait ? (uintptr_t)cqes : 0,
		.cqe_count = wait ? room : 0,
		.deadline_ns = wait ? deadline_ns : 0,
	};
	int rc;

	/* What is interrupted has not been taken. */
	do {
		rc = dev_result(ioctl(own->device->fd, NPUWIN_IOC_SUBMIT, &submit));
	} while (rc == -EINTR);
	return rc ? rc : (int)submit.cqe_count;
}

int dev_collect(struct endpoint *ep, struct npuwin_cqe *cqes, uint32_t room, int64_t deadline_ns)
{
	struct dev_rank *own = dev_rank_of(ep);
	struct npuwin_ioc_queue_wait wait = {
		.size = sizeof(wait),
		.queue_id = own->queue_id,
		.min = 1,
		.cqes = (uintptr_t)cqes,
		.cqe_count = room,
		.deadline_ns = deadline_ns < 0 ? 0 : deadline_ns,
	};
	int rc = dev_result(ioctl(own->device->fd, NPUWIN_IOC_QUEUE_WAIT, &wait));

	return rc ? rc : (int)wait.cqe_count;
}

int dev_event_fd(struct endpoint *ep)
{
	return dev_rank_of(ep)->domain->event_fd;
}

int dev_queue_reset(struct endpoint *ep)
{
	struct dev_rank *own = dev_rank_of(ep);
	struct npuwin_ioc_queue_reset reset = {
		.size = sizeof(reset),
		.queue_id = own->queue_id,
	};

	return dev_result(ioctl(own->device->fd, NPUWIN_IOC_QUEUE_RESET, &reset));
}

int dev_signal_wait(struct endpoint *ep, struct npuwin_signal *signals, uint32_t count,
		    int64_t deadline_ns, uint32_t *index, uint32_t *gone)
{
	struct npuwin_ioc_signal_wait wait = {
		.size = sizeof(wait),
		.signals = (uintptr_t)signals,
		.count = count,
		.index = count,
		.deadline_ns = deadline_ns,
		.gone_rank = NPUWIN_NO_RANK,
	};
	int rc = dev_result(ioctl(ep->fd, NPUWIN_IOC_SIGNAL_WAIT, &wait));

	*index = wait.index;
	*gone = wait.gone_rank;
	return rc;
}

void dev_signal_wake(struct endpoint *ep, uint32_t rank)
{
	struct npuwin_ioc_signal_wake wake = {
		.size = sizeof(wake),
		.rank = rank,
	};

	ioctl(ep->fd, NPUWIN_IOC_SIGNAL_WAKE, &wake);
}
