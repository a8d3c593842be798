// SPDX-License-Identifier: GPL-2.0-only
/* Many times, and many at once: nothing is left, nothing is hurt. */
#include "common.h"

#include <dirent.h>
#include <stdatomic.h>

#define SIZE	(64 * 1024)

static int open_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int n = 0;

	while (dir && readdir(dir))
		n++;
	if (dir)
		closedir(dir);
	return n;
}

static int mappings(void)
{
	FILE *file = fopen("/proc/self/maps", "re");
	int c, n = 0;

	while (file && (c = fgetc(file)) != EOF)
		n += c == '\n';
	if (file)
		fclose(file);
	return n;
}

FIXTURE(stress)
{
	uint64_t used[2];
	uint64_t queues[2];
	uint64_t domains[2];
};

FIXTURE_SETUP(stress)
{
	int i;

	if (!have_devices())
		SKIP(LEAVE_TEST, NEEDS_DEVICES);
	for (i = 0; i < 2; i++) {
		self->used[i] = device_attr(i, "memory_used");
		self->queues[i] = device_attr(i, "queues");
		self->domains[i] = device_attr(i, "domains");
	}
}

FIXTURE_TEARDOWN(stress)
{
	int i;

	for (i = 0; i < 2; i++) {
		EXPECT_EQ(self->used[i], device_attr(i, "memory_used"));
		EXPECT_EQ(self->queues[i], device_attr(i, "queues"));
		EXPECT_EQ(self->domains[i], device_attr(i, "domains"));
	}
}

/* A whole life, a thousand times: in order, and by closing everything. */
TEST_F_TIMEOUT(stress, a_thousand_lives, 120)
{
	struct npuwin_desc descs[2] = { put(1, 0, 0, 4096), notify(1, 8192, 1) };
	struct npuwin_cqe cqes[2];
	struct team team;
	int i, k, fds, maps;

	/* What the C library makes once. */
	ASSERT_EQ(0, team_make(&team, 2, SIZE));
	team_free(&team);
	fds = open_fds();
	maps = mappings();
	for (i = 0; i < 1000; i++) {
		uint32_t n = 2;

		ASSERT_EQ(0, team_make(&team, 2, SIZE)) TH_LOG("life %d", i);
		ASSERT_EQ(0, submit_wait(team.rank[0].fd, team.rank[0].queue, descs, 2, cqes,
					 &n, in_ms(10000)));
		ASSERT_EQ(2, n);
		for (k = 0; k < 2 && i % 2; k++) {
			ASSERT_EQ(0, destroy(team.rank[k].fd, team.rank[k].queue));
			ASSERT_EQ(0, domain_leave(team.rank[k].fd, team.domain, k));
			ASSERT_EQ(0, destroy(team.rank[k].fd, team.rank[k].window));
		}
		team_free(&team);
	}
	EXPECT_EQ(fds, open_fds());
	EXPECT_EQ(maps, mappings());
}

struct resetter {
	int fd;
	uint32_t queue;
	pthread_barrier_t *barrier;
	pthread_t thread;
	int last;
};

/* Reset a queue for as long as there is one. */
static void *resetter_thread(void *arg)
{
	struct resetter *resetter = arg;

	pthread_barrier_wait(resetter->barrier);
	do
		resetter->last = queue_reset(resetter->fd, resetter->queue);
	while (!resetter->last);
	return NULL;
}

/* A queue goes while others are about to reset it. */
TEST_F_TIMEOUT(stress, reset_while_it_goes, 120)
{
	struct resetter resetters[3];
	pthread_barrier_t barrier;
	struct team team;
	uint32_t queue;
	size_t k;
	int i;

	ASSERT_EQ(0, team_make(&team, 2, SIZE));
	pthread_barrier_init(&barrier, NULL, ARRAY_LEN(resetters) + 1);
	for (i = 0; i < 100; i++) {
		ASSERT_EQ(0, queue_create(team.rank[0].fd, team.domain, 0, 4, -1, &queue));
		for (k = 0; k < ARRAY_LEN(resetters); k++) {
			resetters[k] = (struct resetter) {
				.fd = team.rank[0].fd, .queue = queue, .barrier = &barrier,
			};
			pthread_create(&resetters[k].thread, NULL, resetter_thread,
				       &resetters[k]);
		}
		pthread_barrier_wait(&barrier);
		EXPECT_EQ(0, destroy(team.rank[0].fd, queue));
		for (k = 0; k < ARRAY_LEN(resetters); k++) {
			pthread_join(resetters[k].thread, NULL);
			EXPECT_EQ(-ENOENT, resetters[k].last);
		}
	}
	pthread_barrier_destroy(&barrier);
	team_free(&team);
}

/* 64 ranks as processes, each of which tells every other. */
TEST_F_TIMEOUT(stress, many_ranks, 120)
{
	enum { RANKS = 64, ROUNDS = 10 };
	int fd = device_open(0), domain, i, status, failed = 0;

	domain = domain_create(fd, RANKS, SIZE);
	ASSERT_GE(domain, 0);
	close(fd);
	for (i = 0; i < RANKS; i++) {
		struct npuwin_desc descs[RANKS + 1];
		struct rank rank;
		int round, k;

		if (fork())
			continue;
		if (rank_join(&rank, i % 2, domain, i, SIZE) ||
		    domain_commit(rank.fd, domain, i, in_ms(60000)))
			_exit(1);
		for (k = 0; k < RANKS; k++) {
			descs[k] = notify(k, 4 * i, 1);
			descs[k].flags = 0;
		}
		descs[k] = twait(0, NPUWIN_CMP_GE, 1, in_ms(60000));
		descs[k].flags |= NPUWIN_TWAIT_F_CONSUME | NPUWIN_TWAIT_F_BY_RANK;
		descs[k].rows = RANKS;
		descs[k].src_stride = 4;
		for (round = 0; round < ROUNDS; round++) {
			struct npuwin_cqe cqe;
			uint32_t n = 1;

			if (submit_wait(rank.fd, rank.queue, descs, RANKS + 1, &cqe, &n,
					in_ms(60000)) || n != 1 || cqe.status)
				_exit(2);
		}
		_exit(domain_leave(rank.fd, domain, i) ? 3 : 0);
	}
	for (i = 0; i < RANKS; i++) {
		ASSERT_LT(0, wait(&status));
		failed += status != 0;
	}
	EXPECT_EQ(0, failed);
	close(domain);
}

/*
 * Threads that share two files and do whatever comes to mind, also what makes no sense.
 * There is nothing to expect of a call; all there is to see is that the kernel is well and
 * that nothing is left.
 */
struct chaos {
	pthread_t thread;
	int fd[2];
	atomic_int *domain;
	int64_t end;
	unsigned int seed;
	atomic_long *calls;
};

static uint32_t pick(struct chaos *chaos, uint32_t n)
{
	return rand_r(&chaos->seed) % n;
}

static struct npuwin_desc random_desc(struct chaos *chaos)
{
	struct npuwin_desc desc = {
		.opcode = pick(chaos, 5), .sub = pick(chaos, 7), .rank = pick(chaos, 4),
		.src_off = pick(chaos, 32) * 4096, .dst_off = pick(chaos, 32) * 4096,
		.rows = pick(chaos, 4), .value = pick(chaos, 3),
		.row_bytes = pick(chaos, 4) * 4096, .src_stride = pick(chaos, 4) * 4096,
		.flags = pick(chaos, 256),
	};

	switch (desc.opcode) {
	case NPUWIN_OP_TPUT:
		desc.value = 0;
		desc.flags &= NPUWIN_DESC_F_CQE;
		desc.dst_stride = desc.src_stride;
		break;
	case NPUWIN_OP_TNOTIFY:
		desc.rows = 0;
		desc.src_off = 0;
		desc.src_stride = 0;
		desc.row_bytes = 0;
		desc.flags &= NPUWIN_DESC_F_CQE | NPUWIN_DESC_F_REG;
		desc.dst_off %= 4096 * 16;
		break;
	case NPUWIN_OP_TWAIT:
		desc.rank = 0;
		desc.row_bytes = 0;
		desc.dst_off = 0;
		desc.deadline_ns = in_ms(pick(chaos, 20));
		break;
	default:
		break;
	}
	return desc;
}

static void chaos_step(struct chaos *chaos)
{
	int fd = chaos->fd[pick(chaos, 2)], domain = *chaos->domain;
	/* Low ids are those that exist. */
	uint32_t id = 1 + pick(chaos, 12), rank = pick(chaos, 3), n;
	int64_t deadline = pick(chaos, 2) ? 0 : in_ms(pick(chaos, 5));
	struct npuwin_signal sigs[3];
	struct npuwin_desc descs[8];
	struct npuwin_cqe cqes[8];
	uint64_t map;
	void *mem;
	int i;

	switch (pick(chaos, 18)) {
	case 0:
	case 1:
		if (!window_alloc(fd, SIZE, &id, &map)) {
			mem = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, map);
			if (mem != MAP_FAILED) {
				__atomic_store_n((char *)mem, 1, __ATOMIC_RELAXED);
				munmap(mem, SIZE);
			}
		}
		break;
	case 2:
		destroy(fd, id);
		break;
	case 3:
	case 4:
		domain_join(fd, domain, rank, id);
		break;
	case 5:
	case 6:
		domain_commit(fd, domain, rank, deadline);
		break;
	case 7:
		if (!pick(chaos, 4))
			domain_abort(fd, domain, rank, EIO);
		break;
	case 8:
	case 9:
		domain_reset(fd, domain, rank, deadline);
		break;
	case 10:
		if (!pick(chaos, 8))
			domain_leave(fd, domain, rank);
		break;
	case 11:
		queue_create(fd, domain, rank, 16, -1, &id);
		break;
	case 12:
		queue_reset(fd, id);
		break;
	case 13:
		for (i = 0; i < 8; i++)
			descs[i] = random_desc(chaos);
		submit(fd, id, descs, 1 + pick(chaos, 8));
		break;
	case 14:
		for (i = 0; i < 8; i++)
			descs[i] = random_desc(chaos);
		n = pick(chaos, 9);
		submit_wait(fd, id, descs, 1 + pick(chaos, 8), cqes, &n, deadline);
		break;
	case 15:
		n = 1 + pick(chaos, 8);
		queue_wait(fd, id, cqes, 1 + pick(chaos, n), &n, deadline);
		break;
	case 16:
		for (i = 0; i < 3; i++) {
			sigs[i] = (struct npuwin_signal) {
				.rank = pick(chaos, 3), .offset = 4 * pick(chaos, 4),
				.value = 1 + pick(chaos, 3), .cmp = pick(chaos, 6),
				.peer = pick(chaos, 2) ? pick(chaos, 3) : NPUWIN_NO_RANK,
			};
		}
		signal_wait(domain, sigs, 1 + pick(chaos, 3), deadline, NULL, NULL);
		break;
	default:
		signal_wake(domain, rank);
		mem = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, domain,
			   domain_info(domain).window_map + rank * SIZE);
		if (mem != MAP_FAILED) {
			__atomic_store_n((char *)mem, 1, __ATOMIC_RELAXED);
			munmap(mem, SIZE);
		}
		break;
	}
	atomic_fetch_add(chaos->calls, 1);
}

static void *chaos_thread(void *arg)
{
	struct chaos *chaos = arg;

	while (now_ns() < chaos->end)
		chaos_step(chaos);
	return NULL;
}

TEST_F_TIMEOUT(stress, chaos, 120)
{
	enum { THREADS = 8, ROUNDS = 6, MS = 1500 };
	struct chaos threads[THREADS];
	atomic_int domain;
	atomic_long calls = 0;
	int fd[2], round, i;

	for (round = 0; round < ROUNDS; round++) {
		fd[0] = device_open(0);
		fd[1] = device_open(1);
		domain = domain_create(fd[0], 3, SIZE);
		ASSERT_GE(atomic_load(&domain), 0);
		for (i = 0; i < THREADS; i++) {
			threads[i] = (struct chaos) {
				.fd = { fd[0], fd[1] }, .domain = &domain,
				.end = in_ms(MS), .seed = round * 1000 + i, .calls = &calls,
			};
			pthread_create(&threads[i].thread, NULL, chaos_thread, &threads[i]);
		}
		for (i = 0; i < THREADS; i++)
			pthread_join(threads[i].thread, NULL);
		close(fd[0]);
		close(fd[1]);
		close(domain);
	}
	EXPECT_LT(1000, atomic_load(&calls));
	TH_LOG("%ld calls", (long)calls);
}

/* The same from processes that are killed at any point. */
TEST_F_TIMEOUT(stress, chaos_killed, 120)
{
	enum { CHILDREN = 60 };
	atomic_long calls = 0;
	unsigned int seed = 1;
	int i, status;

	for (i = 0; i < CHILDREN; i++) {
		pid_t pid = fork();

		ASSERT_GE(pid, 0);
		if (!pid) {
			struct chaos threads[3];
			atomic_int domain;
			int fd[2] = { device_open(0), device_open(1) }, k;

			domain = domain_create(fd[0], 3, SIZE);
			for (k = 0; k < 3; k++) {
				threads[k] = (struct chaos) {
					.fd = { fd[0], fd[1] }, .domain = &domain,
					.end = in_ms(20000), .seed = i * 100 + k,
					.calls = &calls,
				};
				pthread_create(&threads[k].thread, NULL, chaos_thread,
					       &threads[k]);
			}
			pthread_join(threads[0].thread, NULL);
			_exit(0);
		}
		sleep_ms(20 + rand_r(&seed) % 60);
		ASSERT_EQ(0, kill(pid, SIGKILL));
		ASSERT_EQ(pid, waitpid(pid, &status, 0));
	}
}

TEST_HARNESS_MAIN
