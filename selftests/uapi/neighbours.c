// SPDX-License-Identifier: GPL-2.0-only
/* What one does with a device takes nothing but time from others who use it. */
#include <linux/securebits.h>
#include <sys/stat.h>

#include "common.h"

#define SIZE	(4 * MIB)
/* How long a test may be kept waiting before it is over whatever comes. */
#define PATIENCE_MS	60000

FIXTURE(neighbours)
{
	struct team team;
	struct stat node;
};

FIXTURE_SETUP(neighbours)
{
	if (!have_devices())
		SKIP(LEAVE_TEST, NEEDS_DEVICES);
	ASSERT_EQ(0, team_make(&self->team, 2, SIZE));
	ASSERT_EQ(0, fstat(self->team.rank[0].fd, &self->node));
}

FIXTURE_TEARDOWN(neighbours)
{
	/* A test may have let others in. */
	EXPECT_EQ(0, fchmod(self->team.rank[0].fd, self->node.st_mode & 07777));
	team_free(&self->team);
}

/*
 * Queues whose every descriptor takes longer than a device may stand still, all at once, and none
 * that has anything to wait for. The device is at work, and nobody must take it for dead.
 */
TEST_F_TIMEOUT(neighbours, long_descriptors, 300)
{
	enum { QUEUES = 64, SIZE_MIB = 64 };
	struct npuwin_desc desc = {
		.opcode = NPUWIN_OP_TWAIT, .sub = NPUWIN_CMP_EQ, .rows = SIZE_MIB * MIB / 4,
		.src_stride = 4, .flags = NPUWIN_TWAIT_F_TEST | NPUWIN_DESC_F_CQE,
	};
	struct rank *victim = &self->team.rank[0];
	uint32_t queues[QUEUES], i, n;
	struct npuwin_cqe cqe;
	struct rank rank;
	int domain;

	domain = domain_create(victim->fd, 1, SIZE_MIB * MIB);
	ASSERT_GE(domain, 0);
	ASSERT_EQ(0, rank_join(&rank, 0, domain, 0, SIZE_MIB * MIB));
	for (i = 0; i < QUEUES; i++)
		ASSERT_EQ(0, queue_create(rank.fd, domain, 0, 1, -1, &queues[i]));
	ASSERT_EQ(0, domain_commit(rank.fd, domain, 0, 0));

	ASSERT_EQ(0, rank_post(victim, twait(0, NPUWIN_CMP_EQ, 1, NPUWIN_NO_DEADLINE)));
	for (i = 0; i < QUEUES; i++)
		ASSERT_EQ(0, submit(rank.fd, queues[i], &desc, 1));
	for (i = 0; i < QUEUES; i++) {
		n = 1;
		ASSERT_EQ(0, queue_wait(rank.fd, queues[i], &cqe, 1, &n, NPUWIN_NO_DEADLINE));
		ASSERT_EQ(NPUWIN_ST_OK, cqe.status);
	}
	EXPECT_EQ(NPUWIN_ST_OK, rank_run(&self->team.rank[1], notify(0, 0, 1), NULL));
	ASSERT_EQ(0, rank_take(victim, &cqe));
	EXPECT_EQ(NPUWIN_ST_OK, cqe.status);
	rank_close(&rank, SIZE_MIB * MIB);
	close(domain);
}

enum { MANY_QUEUES = 1024, MANY_DEPTH = 8 };

/* How many completions there have been since the last look. */
static uint64_t events(int event_fd)
{
	uint64_t count;

	return read(event_fd, &count, sizeof(count)) == sizeof(count) ? count : 0;
}

/* The first completion of each queue says that it has had a turn. */
static void many_descs(struct npuwin_desc *descs, uint64_t bytes)
{
	uint32_t i;

	descs[0] = nop(NPUWIN_DESC_F_CQE);
	for (i = 1; i < MANY_DEPTH; i++) {
		descs[i] = put(0, 0, bytes, bytes);
		descs[i].flags = 0;
	}
}

/* How many of the queues have had a turn before a TPUT of the victim is done. */
static uint64_t turns_before(struct rank *victim, int event_fd)
{
	struct pollfd ready = { .fd = victim->fd, .events = POLLIN };
	struct npuwin_cqe cqe;

	/* Who waited in QUEUE_WAIT would execute it himself. */
	if (rank_post(victim, put(1, 0, 0, 64)) || poll(&ready, 1, -1) != 1 ||
	    rank_take(victim, &cqe) || cqe.status != NPUWIN_ST_OK)
		return UINT64_MAX;
	return events(event_fd);
}

/* A user fills many queues, for workers. Another one's work does not wait until all had a turn. */
TEST_F_TIMEOUT(neighbours, many_queues, 300)
{
	struct rank *victim = &self->team.rank[0];
	struct npuwin_desc descs[MANY_DEPTH];
	int event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	uint32_t queues[MANY_QUEUES], i;
	uint64_t left;
	struct rank rank;
	int domain;

	/* In which order a device of its own works is its own. */
	if (!device_is_soft(victim->fd))
		SKIP(return, "needs a software NPU");
	/* Another user who may open the device all the same. */
	ASSERT_EQ(0, prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP));
	ASSERT_EQ(0, seteuid(65534));
	domain = domain_create(victim->fd, 1, SIZE);
	ASSERT_GE(domain, 0);
	ASSERT_EQ(0, rank_join(&rank, 0, domain, 0, SIZE));
	ASSERT_EQ(0, seteuid(0));
	for (i = 0; i < MANY_QUEUES; i++)
		ASSERT_EQ(0, queue_create(rank.fd, domain, 0, MANY_DEPTH, event_fd,
					  &queues[i]));
	ASSERT_EQ(0, domain_commit(rank.fd, domain, 0, 0));

	many_descs(descs, SIZE / 2);
	for (i = 0; i < MANY_QUEUES; i++)
		ASSERT_EQ(0, submit(rank.fd, queues[i], descs, MANY_DEPTH));
	left = MANY_QUEUES - events(event_fd);
	ASSERT_NE(0, left);
	EXPECT_LT(turns_before(victim, event_fd), left / 2);
	rank_close(&rank, SIZE);
	close(event_fd);
	close(domain);
}

enum { MANY_IDS = 256, FIRST_ID = 100000 };

/* Fills a queue by each id of a namespace of his own. Returns whether all is as it should be. */
static bool many_ids_fill(int go_fd, int done_fd, int event_fd)
{
	uint32_t queues[MANY_IDS], i;
	struct npuwin_desc descs[MANY_DEPTH];
	struct rank ranks[MANY_IDS];
	int fd = device_open(0);
	uint64_t word = 1;

	if (setresuid(65534, 65534, 65534) || unshare(CLONE_NEWUSER) ||
	    prctl(PR_SET_DUMPABLE, 1) ||
	    write(done_fd, &word, sizeof(word)) != sizeof(word) ||
	    read(go_fd, &word, sizeof(word)) != sizeof(word) || setresuid(0, 0, 0))
		return false;
	for (i = 0; i < MANY_IDS; i++) {
		int domain;

		if (setresuid(-1, i, -1))
			return false;
		domain = domain_create(fd, 1, MIB);
		if (domain < 0 || rank_join(&ranks[i], 0, domain, 0, MIB) ||
		    queue_create(ranks[i].fd, domain, 0, MANY_DEPTH, event_fd, &queues[i]) ||
		    domain_commit(ranks[i].fd, domain, 0, 0) || setresuid(-1, 0, -1))
			return false;
	}
	many_descs(descs, MIB / 2);
	for (i = 0; i < MANY_IDS; i++) {
		if (submit(ranks[i].fd, queues[i], descs, MANY_DEPTH))
			return false;
	}
	return write(done_fd, &word, sizeof(word)) == sizeof(word) &&
	       read(go_fd, &word, sizeof(word)) == sizeof(word);
}

/* Whether a user may make a namespace. */
static bool have_user_ns(void)
{
	pid_t child = fork();
	int status;

	if (!child)
		_exit(setresuid(65534, 65534, 65534) || unshare(CLONE_NEWUSER));
	return child > 0 && waitpid(child, &status, 0) == child && !status;
}

/* A user's ids in a namespace that he has made himself are his: he has no more turns for them. */
TEST_F_TIMEOUT(neighbours, many_ids, 300)
{
	int go_fd = eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC), done_fd = eventfd(0, EFD_CLOEXEC);
	int event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC), map_fd, status;
	struct rank *victim = &self->team.rank[0];
	char path[64], map[64];
	uint64_t left;
	pid_t child;

	if (!device_is_soft(victim->fd))
		SKIP(return, "needs a software NPU");
	if (!have_user_ns())
		SKIP(return, "needs user namespaces");
	ASSERT_EQ(0, fchmod(victim->fd, 0666));
	child = fork();
	ASSERT_NE(-1, child);
	if (!child) {
		bool well = many_ids_fill(go_fd, done_fd, event_fd);

		eventfd_write(done_fd, 1);
		_exit(!well);
	}
	ASSERT_EQ(0, eventfd_read(done_fd, &left));
	snprintf(path, sizeof(path), "/proc/%d/uid_map", child);
	snprintf(map, sizeof(map), "0 %d %d", FIRST_ID, MANY_IDS);
	map_fd = open(path, O_WRONLY | O_CLOEXEC);
	ASSERT_EQ((ssize_t)strlen(map), write(map_fd, map, strlen(map)));
	close(map_fd);
	ASSERT_EQ(0, eventfd_write(go_fd, 1));
	ASSERT_EQ(0, eventfd_read(done_fd, &left));
	left = MANY_IDS - events(event_fd);
	EXPECT_NE(0, left);
	EXPECT_LT(turns_before(victim, event_fd), left / 2);
	ASSERT_EQ(0, eventfd_write(go_fd, 1));
	ASSERT_EQ(child, waitpid(child, &status, 0));
	EXPECT_EQ(0, status);
	close(event_fd);
	close(done_fd);
	close(go_fd);
}

enum { POLLERS = 4, POLLS = 25000, TOLD = 200 };

struct pollers {
	pthread_t thread[POLLERS];
	struct pollfd fds[POLLS];
	uint32_t asleep;
	int stop_fd;
};

/* Waits for what does not come, so that it is asked at each event whether that is it. */
static void *poller_thread(void *arg)
{
	struct pollers *pollers = arg;

	__atomic_fetch_add(&pollers->asleep, 1, __ATOMIC_RELEASE);
	poll(pollers->fds, POLLS, -1);
	return NULL;
}

static bool pollers_start(struct pollers *pollers, int event_fd)
{
	const struct rlimit limit = { POLLS + 100, POLLS + 100 };
	uint32_t i;

	pollers->stop_fd = eventfd(0, EFD_CLOEXEC);
	if (pollers->stop_fd < 0 || setrlimit(RLIMIT_NOFILE, &limit))
		return false;
	for (i = 0; i < POLLS; i++)
		pollers->fds[i] = (struct pollfd) { .fd = event_fd, .events = POLLPRI };
	pollers->fds[0] = (struct pollfd) { .fd = pollers->stop_fd, .events = POLLIN };
	for (i = 0; i < POLLERS; i++) {
		if (pthread_create(&pollers->thread[i], NULL, poller_thread, pollers))
			return false;
	}
	while (__atomic_load_n(&pollers->asleep, __ATOMIC_ACQUIRE) != POLLERS)
		sched_yield();
	return true;
}

static void pollers_stop(struct pollers *pollers)
{
	uint32_t i;

	eventfd_write(pollers->stop_fd, 1);
	for (i = 0; i < POLLERS; i++)
		pthread_join(pollers->thread[i], NULL);
	close(pollers->stop_fd);
}

/* Where it takes long to tell of completions, all are told of, also of a queue that goes. */
TEST_F_TIMEOUT(neighbours, many_pollers, 120)
{
	int event_fd = eventfd(0, EFD_CLOEXEC);
	struct rank *rank = &self->team.rank[0];
	struct pollers *pollers = calloc(1, sizeof(*pollers));
	struct npuwin_desc desc = nop(NPUWIN_DESC_F_CQE);
	struct npuwin_cqe cqes[TOLD];
	uint64_t told = 0, count;
	uint32_t queue, i, n;

	ASSERT_NE(NULL, pollers);
	ASSERT_EQ(0, queue_create(rank->fd, self->team.domain, 0, TOLD, event_fd, &queue));
	ASSERT_TRUE(pollers_start(pollers, event_fd));
	for (i = 0; i < TOLD; i++)
		ASSERT_EQ(0, submit(rank->fd, queue, &desc, 1));
	while (told < TOLD) {
		ASSERT_EQ(sizeof(count), read(event_fd, &count, sizeof(count)));
		told += count;
	}
	EXPECT_EQ(TOLD, told);
	n = TOLD;
	ASSERT_EQ(0, queue_wait(rank->fd, queue, cqes, TOLD, &n, NPUWIN_NO_DEADLINE));
	/* What is complete when a queue goes has been, and whoever polls for it is told. */
	for (i = 0; i < TOLD; i++)
		ASSERT_EQ(0, submit(rank->fd, queue, &desc, 1));
	n = TOLD;
	ASSERT_EQ(0, queue_wait(rank->fd, queue, cqes, TOLD, &n, NPUWIN_NO_DEADLINE));
	ASSERT_EQ(0, destroy(rank->fd, queue));
	ASSERT_EQ(sizeof(count), read(event_fd, &count, sizeof(count)));
	EXPECT_EQ(TOLD, count);
	pollers_stop(pollers);
	free(pollers);
	close(event_fd);
}

static int pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	return sched_setaffinity(0, sizeof(set), &set);
}

#define RT_RUNTIME	"/proc/sys/kernel/sched_rt_runtime_us"

/* How much of each second real-time tasks may take, in us; -1: all. Returns whether it is so. */
static bool rt_runtime_set(const char *us)
{
	int fd = open(RT_RUNTIME, O_WRONLY | O_CLOEXEC);
	bool set = fd >= 0 && write(fd, us, strlen(us)) == (ssize_t)strlen(us);

	if (fd >= 0)
		close(fd);
	return set;
}

/*
 * A task that waits at a queue, and one that takes its processor from it.
 * rank: whose queue
 * ret, cqes: how the wait has ended, with how many completions
 * go, taken, over: the processor shall be taken, it is, and it can be given back
 */
struct starved {
	struct rank *rank;
	int ret;
	uint32_t cqes;
	int go;
	int taken;
	int over;
};

static void *starved_thread(void *arg)
{
	struct starved *starved = arg;
	struct npuwin_desc descs[RANK_DEPTH];
	struct npuwin_cqe cqe;
	uint32_t i, n = 1;

	starved->cqes = UINT32_MAX;
	if (pin(0))
		return NULL;
	for (i = 0; i < RANK_DEPTH; i++) {
		descs[i] = put(1, 0, 0, SIZE);
		descs[i].flags = i == RANK_DEPTH - 1 ? NPUWIN_DESC_F_CQE : 0;
	}
	starved->ret = submit_wait(starved->rank->fd, starved->rank->queue, descs, RANK_DEPTH,
				   &cqe, &n, NPUWIN_NO_DEADLINE);
	starved->cqes = n;
	return NULL;
}

static void *robber_thread(void *arg)
{
	const struct sched_param first = { .sched_priority = 1 };
	struct starved *starved = arg;
	int64_t end;

	if (pin(0) || sched_setscheduler(0, SCHED_FIFO, &first))
		return NULL;
	while (!__atomic_load_n(&starved->go, __ATOMIC_ACQUIRE))
		sleep_ms(1);
	__atomic_store_n(&starved->taken, 1, __ATOMIC_RELEASE);
	end = in_ms(PATIENCE_MS);
	while (!__atomic_load_n(&starved->over, __ATOMIC_ACQUIRE) && now_ns() < end)
		;
	return NULL;
}

/* A queue can be had from a task that executes it and does not get its processor back. */
TEST_F_TIMEOUT(neighbours, starved_task, 120)
{
	struct starved starved = { .rank = &self->team.rank[0] };
	struct rank *rank = starved.rank;
	pthread_t waiter, robber;
	char runtime[24];
	int64_t end;

	if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
		SKIP(return, "needs two processors");
	snprintf(runtime, sizeof(runtime), "%" PRIu64, file_number(RT_RUNTIME));
	if (!rt_runtime_set("-1"))
		SKIP(return, "needs " RT_RUNTIME);
	ASSERT_EQ(0, pin(1));
	ASSERT_EQ(0, pthread_create(&robber, NULL, robber_thread, &starved));
	*cell_at(rank, 0) = 1;
	ASSERT_EQ(0, pthread_create(&waiter, NULL, starved_thread, &starved));
	while (!__atomic_load_n(cell_at(&self->team.rank[1], 0), __ATOMIC_ACQUIRE))
		sched_yield();
	__atomic_store_n(&starved.go, 1, __ATOMIC_RELEASE);
	while (!__atomic_load_n(&starved.taken, __ATOMIC_ACQUIRE))
		sched_yield();
	end = in_ms(PATIENCE_MS / 2);
	EXPECT_EQ(0, destroy(rank->fd, rank->queue));
	EXPECT_LT(now_ns(), end);
	__atomic_store_n(&starved.over, 1, __ATOMIC_RELEASE);
	ASSERT_EQ(0, pthread_join(robber, NULL));
	ASSERT_EQ(0, pthread_join(waiter, NULL));
	EXPECT_TRUE(rt_runtime_set(runtime));
	/* It had not come to the end. */
	EXPECT_EQ(0, starved.ret);
	EXPECT_EQ(0, starved.cqes);
}

TEST_HARNESS_MAIN
