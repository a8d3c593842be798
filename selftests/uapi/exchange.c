// SPDX-License-Identifier: GPL-2.0-only
/*
 * Two ranks exchange a row each, with the headers of uapi/ and libc alone.
 *
 *	exchange [DEVICE [DEVICE]]
 *
 * The parent is rank 0 on the first device, its child rank 1 on the second (default:
 * /dev/npuwin0 and the same again). The child gets the domain over a socket, as an
 * unrelated process would.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "npuwin_ioctl.h"

#define WINDOW_SIZE	(1 << 20)
#define ROW_SIZE	4096
/* Where things are in a window: the row to send, the one received, the cell. */
#define SEND_OFFSET	0
#define RECV_OFFSET	ROW_SIZE
#define CELL_OFFSET	(2 * ROW_SIZE)

#define KSFT_SKIP	4

static void fail(const char *what)
{
	fprintf(stderr, "exchange: %s: %s\n", what, strerror(errno));
	exit(1);
}

static int64_t in_seconds(int seconds)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (now.tv_sec + seconds) * 1000000000LL + now.tv_nsec;
}

static void send_fd(int sock, int fd)
{
	char control[CMSG_SPACE(sizeof(fd))] = { 0 };
	char byte = 0;
	struct iovec iov = { .iov_base = &byte, .iov_len = 1 };
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1,
		.msg_control = control, .msg_controllen = sizeof(control),
	};
	struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg);

	cmsg->cmsg_level = SOL_SOCKET;
	cmsg->cmsg_type = SCM_RIGHTS;
	cmsg->cmsg_len = CMSG_LEN(sizeof(fd));
	memcpy(CMSG_DATA(cmsg), &fd, sizeof(fd));
	if (sendmsg(sock, &msg, 0) != 1)
		fail("sendmsg");
}

static int recv_fd(int sock)
{
	char control[CMSG_SPACE(sizeof(int))] = { 0 };
	char byte;
	struct iovec iov = { .iov_base = &byte, .iov_len = 1 };
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1,
		.msg_control = control, .msg_controllen = sizeof(control),
	};
	int fd;

	if (recvmsg(sock, &msg, MSG_CMSG_CLOEXEC) != 1 || !CMSG_FIRSTHDR(&msg))
		fail("recvmsg");
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(fd));
	return fd;
}

/* What a rank does, once it has a device and the domain. */
static void run_rank(int device, int domain, uint32_t me)
{
	uint32_t peer = 1 - me;
	struct npuwin_ioc_window_alloc window = {
		.size = sizeof(window), .length = WINDOW_SIZE,
	};
	struct npuwin_ioc_domain_join join = {
		.size = sizeof(join), .domain_fd = domain, .rank = me,
	};
	struct npuwin_ioc_queue_create queue = {
		.size = sizeof(queue), .domain_fd = domain, .rank = me, .depth = 8,
		.event_fd = -1,
	};
	struct npuwin_ioc_domain_sync commit = {
		.size = sizeof(commit), .domain_fd = domain, .rank = me,
		.deadline_ns = in_seconds(10),
	};
	struct npuwin_ioc_domain_leave leave = {
		.size = sizeof(leave), .domain_fd = domain, .rank = me,
	};
	struct npuwin_desc batch[3] = {
		{ .opcode = NPUWIN_OP_TPUT, .sub = NPUWIN_PUT_COPY, .rank = peer,
		  .src_off = SEND_OFFSET, .dst_off = RECV_OFFSET,
		  .rows = 1, .row_bytes = ROW_SIZE },
		{ .opcode = NPUWIN_OP_TNOTIFY, .sub = NPUWIN_NOTIFY_ADD, .rank = peer,
		  .dst_off = CELL_OFFSET, .value = 1 },
		{ .opcode = NPUWIN_OP_TWAIT, .sub = NPUWIN_CMP_GE,
		  .flags = NPUWIN_DESC_F_CQE | NPUWIN_TWAIT_F_CONSUME,
		  .src_off = CELL_OFFSET, .rows = 1, .value = 1,
		  .deadline_ns = in_seconds(10) },
	};
	struct npuwin_cqe cqe = { 0 };
	struct npuwin_ioc_submit submit = {
		.size = sizeof(submit), .flags = NPUWIN_SUBMIT_F_WAIT,
		.count = 3, .descs = (uintptr_t)batch,
		.cqes = (uintptr_t)&cqe, .cqe_count = 1,
		.deadline_ns = NPUWIN_NO_DEADLINE,
	};
	unsigned char *mem;
	int i;

	/* A window, as a rank of the domain, with a queue. */
	if (ioctl(device, NPUWIN_IOC_WINDOW_ALLOC, &window))
		fail("WINDOW_ALLOC");
	join.window_id = window.window_id;
	if (ioctl(device, NPUWIN_IOC_DOMAIN_JOIN, &join))
		fail("DOMAIN_JOIN");
	if (ioctl(device, NPUWIN_IOC_QUEUE_CREATE, &queue))
		fail("QUEUE_CREATE");
	if (ioctl(device, NPUWIN_IOC_DOMAIN_COMMIT, &commit))
		fail("DOMAIN_COMMIT");

	/* The row to send. */
	mem = mmap(NULL, WINDOW_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, device,
		   window.map_offset);
	if (mem == MAP_FAILED)
		fail("mmap");
	memset(mem + SEND_OFFSET, 'a' + me, ROW_SIZE);

	/* Put it, count it there, and wait for the other's. */
	submit.queue_id = queue.queue_id;
	if (ioctl(device, NPUWIN_IOC_SUBMIT, &submit))
		fail("SUBMIT");
	if (submit.cqe_count != 1 || cqe.status != NPUWIN_ST_OK) {
		fprintf(stderr, "exchange: rank %u: %u completions, status %u\n", me,
			submit.cqe_count, cqe.status);
		exit(1);
	}
	for (i = 0; i < ROW_SIZE; i++) {
		if (mem[RECV_OFFSET + i] != 'a' + peer) {
			fprintf(stderr, "exchange: rank %u: wrong byte %d\n", me, i);
			exit(1);
		}
	}

	if (ioctl(device, NPUWIN_IOC_DOMAIN_LEAVE, &leave))
		fail("DOMAIN_LEAVE");
	munmap(mem, WINDOW_SIZE);
}

int main(int argc, char **argv)
{
	const char *path0 = argc > 1 ? argv[1] : "/dev/npuwin0";
	const char *path1 = argc > 2 ? argv[2] : path0;
	struct npuwin_ioc_domain_create create = {
		.size = sizeof(create), .nranks = 2, .window_size = WINDOW_SIZE,
	};
	int sock[2], device, status;
	pid_t child;

	printf("TAP version 13\n1..1\n");
	if (access(path0, R_OK | W_OK)) {
		printf("ok 1 exchange # SKIP %s: %s\n", path0, strerror(errno));
		return KSFT_SKIP;
	}
	fflush(stdout);
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sock))
		fail("socketpair");
	child = fork();
	if (child < 0)
		fail("fork");
	if (!child) {
		device = open(path1, O_RDWR | O_CLOEXEC);
		if (device < 0)
			fail(path1);
		run_rank(device, recv_fd(sock[1]), 1);
		_exit(0);
	}

	device = open(path0, O_RDWR | O_CLOEXEC);
	if (device < 0)
		fail(path0);
	if (ioctl(device, NPUWIN_IOC_DOMAIN_CREATE, &create))
		fail("DOMAIN_CREATE");
	send_fd(sock[0], create.domain_fd);
	run_rank(device, create.domain_fd, 0);
	if (waitpid(child, &status, 0) != child || status) {
		printf("not ok 1 exchange\n");
		return 1;
	}
	printf("ok 1 exchange\n");
	return 0;
}
