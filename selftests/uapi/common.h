/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the uAPI's tests have in common: each ioctl as a call that returns a negative
 * errno, and a rank with all that it needs.
 */
#ifndef NPUWIN_SELFTESTS_UAPI_COMMON_H
#define NPUWIN_SELFTESTS_UAPI_COMMON_H

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "npuwin_ioctl.h"
#include "kselftest_harness.h"

/* What ends a test is that it hangs, however slow an emulated processor with a debug kernel is. */
#undef TEST_TIMEOUT_DEFAULT
#define TEST_TIMEOUT_DEFAULT	120

/*
 * For SKIP() in a FIXTURE_SETUP(): the harness of 6.1 runs the test all the same. A test is a
 * process of its own there, whose status 255 says that it was skipped.
 */
#define LEAVE_TEST	_exit(255)

/* The harness makes functions of its own for each fixture. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

#define MIB		(1ULL << 20)
#define GIB		(1ULL << 30)
#define ARRAY_LEN(a)	(sizeof(a) / sizeof((a)[0]))
#define USER_PTR(p)	((uintptr_t)(p))

/* Outputs are filled with this, to see that a call which fails leaves them alone. */
#define POISON		0xa5

static inline int64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static inline int64_t in_ms(int64_t ms)
{
	return now_ns() + ms * 1000000;
}

static inline void sleep_ms(int ms)
{
	struct timespec delay = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L };

	while (nanosleep(&delay, &delay) && errno == EINTR)
		;
}

/* The ioctl's result as the kernel returns it. */
static inline int call(int fd, unsigned long cmd, void *arg)
{
	return ioctl(fd, cmd, arg) ? -errno : 0;
}

static inline int device_open(int n)
{
	char path[32];

	snprintf(path, sizeof(path), "/dev/npuwin%d", n);
	return open(path, O_RDWR | O_CLOEXEC);
}

/* The number that a file starts with, or UINT64_MAX. */
static inline uint64_t file_number(const char *path)
{
	uint64_t value = UINT64_MAX;
	char text[32] = "", *end;
	FILE *file;

	file = fopen(path, "re");
	if (!file)
		return value;
	if (fgets(text, sizeof(text), file)) {
		value = strtoull(text, &end, 10);
		if (end == text)
			value = UINT64_MAX;
	}
	fclose(file);
	return value;
}

/* An unsigned attribute of /sys/class/npuwin/npuwinN, or UINT64_MAX. */
static inline uint64_t device_attr(int n, const char *name)
{
	char path[96];

	snprintf(path, sizeof(path), "/sys/class/npuwin/npuwin%d/%s", n, name);
	return file_number(path);
}

/* Whether a device is software: its engine is the calling task, its windows host memory. */
static inline bool device_is_soft(int fd)
{
	struct npuwin_ioc_query query = { .size = sizeof(query) };

	return !call(fd, NPUWIN_IOC_QUERY, &query) &&
	       !strcmp((const char *)query.backend, "soft");
}

static inline int window_alloc(int fd, uint64_t length, uint32_t *id, uint64_t *map)
{
	struct npuwin_ioc_window_alloc cmd = { .size = sizeof(cmd), .length = length };
	int ret = call(fd, NPUWIN_IOC_WINDOW_ALLOC, &cmd);

	*id = cmd.window_id;
	if (map)
		*map = cmd.map_offset;
	return ret;
}

static inline int destroy(int fd, uint32_t id)
{
	struct npuwin_ioc_destroy cmd = { .size = sizeof(cmd), .id = id };

	return call(fd, NPUWIN_IOC_DESTROY, &cmd);
}

/* A new domain's descriptor, or a negative errno. */
static inline int domain_create(int fd, uint32_t nranks, uint64_t window_size)
{
	struct npuwin_ioc_domain_create cmd = {
		.size = sizeof(cmd), .nranks = nranks, .window_size = window_size,
	};
	int ret = call(fd, NPUWIN_IOC_DOMAIN_CREATE, &cmd);

	return ret ? ret : cmd.domain_fd;
}

static inline int domain_join(int fd, int domain, uint32_t rank, uint32_t window)
{
	struct npuwin_ioc_domain_join cmd = {
		.size = sizeof(cmd), .domain_fd = domain, .rank = rank, .window_id = window,
	};

	return call(fd, NPUWIN_IOC_DOMAIN_JOIN, &cmd);
}

static inline int domain_sync(int fd, unsigned long nr, int domain, uint32_t rank,
			      int64_t deadline, uint32_t *missing)
{
	struct npuwin_ioc_domain_sync cmd = {
		.size = sizeof(cmd), .domain_fd = domain, .rank = rank,
		.deadline_ns = deadline,
	};
	int ret = call(fd, nr, &cmd);

	if (missing)
		*missing = cmd.missing_rank;
	return ret;
}

static inline int domain_commit(int fd, int domain, uint32_t rank, int64_t deadline)
{
	return domain_sync(fd, NPUWIN_IOC_DOMAIN_COMMIT, domain, rank, deadline, NULL);
}

static inline int domain_reset(int fd, int domain, uint32_t rank, int64_t deadline)
{
	return domain_sync(fd, NPUWIN_IOC_DOMAIN_RESET, domain, rank, deadline, NULL);
}

static inline int domain_leave(int fd, int domain, uint32_t rank)
{
	struct npuwin_ioc_domain_leave cmd = {
		.size = sizeof(cmd), .domain_fd = domain, .rank = rank,
	};

	return call(fd, NPUWIN_IOC_DOMAIN_LEAVE, &cmd);
}

static inline int domain_abort(int fd, int domain, uint32_t rank, uint32_t error)
{
	struct npuwin_ioc_domain_leave cmd = {
		.size = sizeof(cmd), .domain_fd = domain, .rank = rank, .error = error,
	};

	return call(fd, NPUWIN_IOC_DOMAIN_ABORT, &cmd);
}

static inline struct npuwin_ioc_domain_info domain_info(int domain)
{
	struct npuwin_ioc_domain_info cmd = { .size = sizeof(cmd) };

	if (call(domain, NPUWIN_IOC_DOMAIN_INFO, &cmd))
		cmd.state = UINT32_MAX;
	return cmd;
}

static inline int queue_create(int fd, int domain, uint32_t rank, uint32_t depth, int event_fd,
			       uint32_t *id)
{
	struct npuwin_ioc_queue_create cmd = {
		.size = sizeof(cmd), .domain_fd = domain, .rank = rank, .depth = depth,
		.event_fd = event_fd,
	};
	int ret = call(fd, NPUWIN_IOC_QUEUE_CREATE, &cmd);

	*id = cmd.queue_id;
	return ret;
}

static inline int queue_reset(int fd, uint32_t id)
{
	struct npuwin_ioc_queue_reset cmd = { .size = sizeof(cmd), .queue_id = id };

	return call(fd, NPUWIN_IOC_QUEUE_RESET, &cmd);
}

static inline int submit(int fd, uint32_t queue, const struct npuwin_desc *descs,
			 uint32_t count)
{
	struct npuwin_ioc_submit cmd = {
		.size = sizeof(cmd), .queue_id = queue, .count = count,
		.descs = USER_PTR(descs),
	};

	return call(fd, NPUWIN_IOC_SUBMIT, &cmd);
}

/* Submit and wait. *cqe_count is room for completions, and then how many there were. */
static inline int submit_wait(int fd, uint32_t queue, const struct npuwin_desc *descs,
			      uint32_t count, struct npuwin_cqe *cqes, uint32_t *cqe_count,
			      int64_t deadline)
{
	struct npuwin_ioc_submit cmd = {
		.size = sizeof(cmd), .flags = NPUWIN_SUBMIT_F_WAIT, .queue_id = queue,
		.count = count, .descs = USER_PTR(descs), .cqes = USER_PTR(cqes),
		.cqe_count = *cqe_count, .deadline_ns = deadline,
	};
	int ret = call(fd, NPUWIN_IOC_SUBMIT, &cmd);

	*cqe_count = cmd.cqe_count;
	return ret;
}

/* Submit, wait up to ten seconds, and return the status of the one completion expected. */
static inline int execute(int fd, uint32_t queue, const struct npuwin_desc *descs,
			  uint32_t count, struct npuwin_cqe *cqe)
{
	struct npuwin_cqe local;
	uint32_t n = 1;
	int ret;

	if (!cqe)
		cqe = &local;
	ret = submit_wait(fd, queue, descs, count, cqe, &n, in_ms(10000));
	if (ret)
		return ret;
	return n == 1 ? (int)cqe->status : -EBADE;
}

static inline int queue_wait(int fd, uint32_t queue, struct npuwin_cqe *cqes, uint32_t min,
			     uint32_t *count, int64_t deadline)
{
	struct npuwin_ioc_queue_wait cmd = {
		.size = sizeof(cmd), .queue_id = queue, .min = min, .cqes = USER_PTR(cqes),
		.cqe_count = *count, .deadline_ns = deadline,
	};
	int ret = call(fd, NPUWIN_IOC_QUEUE_WAIT, &cmd);

	*count = cmd.cqe_count;
	return ret;
}

static inline int signal_wait(int domain, struct npuwin_signal *signals, uint32_t count,
			      int64_t deadline, uint32_t *index, uint32_t *gone)
{
	struct npuwin_ioc_signal_wait cmd = {
		.size = sizeof(cmd), .signals = USER_PTR(signals), .count = count,
		.deadline_ns = deadline,
	};
	int ret = call(domain, NPUWIN_IOC_SIGNAL_WAIT, &cmd);

	if (index)
		*index = cmd.index;
	if (gone)
		*gone = cmd.gone_rank;
	return ret;
}

static inline int signal_wake(int domain, uint32_t rank)
{
	struct npuwin_ioc_signal_wake cmd = { .size = sizeof(cmd), .rank = rank };

	return call(domain, NPUWIN_IOC_SIGNAL_WAKE, &cmd);
}

/* Descriptors. */
static inline struct npuwin_desc nop(uint8_t flags)
{
	return (struct npuwin_desc) { .opcode = NPUWIN_OP_NOP, .flags = flags };
}

static inline struct npuwin_desc put(uint32_t rank, uint64_t src, uint64_t dst, uint64_t bytes)
{
	return (struct npuwin_desc) {
		.opcode = NPUWIN_OP_TPUT, .rank = rank, .src_off = src, .dst_off = dst,
		.rows = 1, .row_bytes = bytes, .flags = NPUWIN_DESC_F_CQE,
	};
}

static inline struct npuwin_desc notify(uint32_t rank, uint64_t off, int32_t add)
{
	return (struct npuwin_desc) {
		.opcode = NPUWIN_OP_TNOTIFY, .sub = NPUWIN_NOTIFY_ADD, .rank = rank,
		.dst_off = off, .value = add, .flags = NPUWIN_DESC_F_CQE,
	};
}

static inline struct npuwin_desc twait(uint64_t off, uint8_t cmp, int32_t value,
				       int64_t deadline)
{
	return (struct npuwin_desc) {
		.opcode = NPUWIN_OP_TWAIT, .sub = cmp, .src_off = off, .rows = 1,
		.value = value, .deadline_ns = deadline, .flags = NPUWIN_DESC_F_CQE,
	};
}

/* A rank: a file with a window that has joined, its mapping and a queue. */
struct rank {
	int fd;
	uint32_t window;
	uint32_t queue;
	uint8_t *mem;
};

#define RANK_DEPTH	256

/* Returns 0 or a negative errno; what has been made is in @rank. */
static inline int rank_join(struct rank *rank, int device, int domain, uint32_t nr,
			    uint64_t window_size)
{
	uint64_t map;
	int ret;

	*rank = (struct rank) { .fd = device_open(device), .mem = MAP_FAILED };
	if (rank->fd < 0)
		return -errno;
	ret = window_alloc(rank->fd, window_size, &rank->window, &map);
	if (!ret)
		ret = domain_join(rank->fd, domain, nr, rank->window);
	if (!ret)
		ret = queue_create(rank->fd, domain, nr, RANK_DEPTH, -1, &rank->queue);
	if (ret)
		return ret;
	rank->mem = mmap(NULL, window_size, PROT_READ | PROT_WRITE, MAP_SHARED, rank->fd, map);
	return rank->mem == MAP_FAILED ? -errno : 0;
}

static inline void rank_close(struct rank *rank, uint64_t window_size)
{
	if (rank->mem != MAP_FAILED)
		munmap(rank->mem, window_size);
	if (rank->fd >= 0)
		close(rank->fd);
}

/* One descriptor on a rank's own queue, see execute(). */
static inline int rank_run(struct rank *rank, struct npuwin_desc desc, struct npuwin_cqe *cqe)
{
	return execute(rank->fd, rank->queue, &desc, 1, cqe);
}

static inline int rank_post(struct rank *rank, struct npuwin_desc desc)
{
	return submit(rank->fd, rank->queue, &desc, 1);
}

/* Take one completion, within ten seconds. */
static inline int rank_take(struct rank *rank, struct npuwin_cqe *cqe)
{
	uint32_t n = 1;

	return queue_wait(rank->fd, rank->queue, cqe, 1, &n, in_ms(10000));
}

/* A ready domain of @n ranks, all in this process. */
struct team {
	int domain;
	uint32_t n;
	uint64_t size;
	struct rank *rank;
};

/* Commit all ranks of a forming domain. */
static inline int team_commit(struct team *team)
{
	int ret = 0;
	uint32_t i;

	for (i = 0; i < team->n && (!ret || ret == -EAGAIN); i++)
		ret = domain_commit(team->rank[i].fd, team->domain, i, 0);
	return ret;
}

static inline int team_make(struct team *team, uint32_t n, uint64_t size)
{
	int fd = device_open(0);
	uint32_t i;
	int ret;

	*team = (struct team) { .n = n, .size = size };
	team->rank = calloc(n, sizeof(*team->rank));
	if (fd < 0 || !team->rank)
		return -errno;
	team->domain = domain_create(fd, n, size);
	close(fd);
	if (team->domain < 0)
		return team->domain;
	for (i = 0; i < n; i++) {
		ret = rank_join(&team->rank[i], i % 2, team->domain, i, size);
		if (ret)
			return ret;
	}
	return team_commit(team);
}

static inline void team_free(struct team *team)
{
	uint32_t i;

	for (i = 0; i < team->n; i++)
		rank_close(&team->rank[i], team->size);
	free(team->rank);
	close(team->domain);
}

static inline int32_t *cell_at(struct rank *rank, uint64_t off)
{
	return (int32_t *)(rank->mem + off);
}

/* The first two devices must be there; they are what most tests use. */
static inline bool have_devices(void)
{
	return !access("/dev/npuwin0", R_OK | W_OK) && !access("/dev/npuwin1", R_OK | W_OK);
}

#define NEEDS_DEVICES	"needs /dev/npuwin0 and /dev/npuwin1"

#endif /* NPUWIN_SELFTESTS_UAPI_COMMON_H */
