// SPDX-License-Identifier: MIT
/* Whether a TWAIT of the first device ends at its deadline, and not before: exit status 0. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <time.h>

#include "npuwin_ioctl.h"

#define SIZE		(1 << 16)
#define WAIT_NS		500000000

static int64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

int main(void)
{
	struct npuwin_ioc_window_alloc window = { .size = sizeof(window), .length = SIZE };
	struct npuwin_ioc_domain_create domain = {
		.size = sizeof(domain), .nranks = 1, .window_size = SIZE,
	};
	struct npuwin_ioc_domain_join join = { .size = sizeof(join) };
	struct npuwin_ioc_domain_sync commit = { .size = sizeof(commit) };
	struct npuwin_ioc_queue_create queue = {
		.size = sizeof(queue), .depth = 1, .event_fd = -1,
	};
	struct npuwin_desc desc = {
		.opcode = NPUWIN_OP_TWAIT, .sub = NPUWIN_CMP_EQ, .rows = 1, .value = 1,
	};
	struct npuwin_cqe cqe;
	struct npuwin_ioc_submit submit = {
		.size = sizeof(submit), .flags = NPUWIN_SUBMIT_F_WAIT, .count = 1,
		.descs = (uintptr_t)&desc, .cqes = (uintptr_t)&cqe, .cqe_count = 1,
		.deadline_ns = NPUWIN_NO_DEADLINE,
	};
	int fd = open("/dev/npuwin0", O_RDWR | O_CLOEXEC);
	int64_t ended;

	if (ioctl(fd, NPUWIN_IOC_WINDOW_ALLOC, &window) ||
	    ioctl(fd, NPUWIN_IOC_DOMAIN_CREATE, &domain))
		goto err;
	join.domain_fd = domain.domain_fd;
	join.window_id = window.window_id;
	commit.domain_fd = domain.domain_fd;
	queue.domain_fd = domain.domain_fd;
	if (ioctl(fd, NPUWIN_IOC_DOMAIN_JOIN, &join) ||
	    ioctl(fd, NPUWIN_IOC_DOMAIN_COMMIT, &commit) ||
	    ioctl(fd, NPUWIN_IOC_QUEUE_CREATE, &queue))
		goto err;
	submit.queue_id = queue.queue_id;
	desc.deadline_ns = now_ns() + WAIT_NS;
	if (ioctl(fd, NPUWIN_IOC_SUBMIT, &submit))
		goto err;
	ended = now_ns();
	if (submit.cqe_count != 1 || cqe.status != NPUWIN_ST_TIMEOUT) {
		printf("%u completions, status %u\n", submit.cqe_count, cqe.status);
		return 1;
	}
	if (ended < desc.deadline_ns) {
		printf("%lld ns before its deadline\n", (long long)(desc.deadline_ns - ended));
		return 1;
	}
	return 0;

err:
	perror("late");
	return 1;
}
