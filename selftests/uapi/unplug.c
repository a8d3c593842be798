// SPDX-License-Identifier: GPL-2.0-only
/*
 * Hot unplug, idle and in the middle of everything: an NPU is unbound from its driver; or a PCI
 * function answers no more, as one that is pulled out, and is removed. Each test brings it back.
 */
#include "common.h"

#include <setjmp.h>
#include <stdatomic.h>

#define SIZE	(4 * MIB)

static sigjmp_buf touch_env;

static void touch_failed(int sig)
{
	siglongjmp(touch_env, sig);
}

/* Read a byte. Returns 0 or the signal that it gives. */
static int touch(const uint8_t *byte)
{
	struct sigaction action = { .sa_handler = touch_failed }, old;
	int sig;

	sigaction(SIGBUS, &action, &old);
	sig = sigsetjmp(touch_env, 1);
	if (!sig)
		__atomic_load_n(byte, __ATOMIC_RELAXED);
	sigaction(SIGBUS, &old, NULL);
	return sig;
}

static int write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return -errno;
	n = write(fd, text, strlen(text));
	close(fd);
	return n == (ssize_t)strlen(text) ? 0 : -EIO;
}

FIXTURE(unplug)
{
	/* The device that goes, what it is called on its bus, and the driver's folder. */
	int victim;
	char name[64];
	char driver[PATH_MAX];
	char bus_path[PATH_MAX];
	bool gone;
	/* Rank 0 stays, on device 0; rank 1 goes. */
	struct rank rank[2];
	int domain;
	uint8_t *peer;
};

enum how {
	UNBIND,
	VANISH,
};

FIXTURE_VARIANT(unplug)
{
	enum how how;
	/* How often it goes in again_and_again. */
	int times;
};

FIXTURE_VARIANT_ADD(unplug, unbound)
{
	.how = UNBIND,
	.times = 30,
};

FIXTURE_VARIANT_ADD(unplug, vanished)
{
	.how = VANISH,
	.times = 10,
};

/* The number of the device that is on the victim's place of its bus, or -1. */
static int victim_number(struct _test_data_unplug *self)
{
	int number;

	for (number = 0; number < 1024; number++) {
		char path[96], name[64] = "";
		FILE *file;

		snprintf(path, sizeof(path), "/sys/class/npuwin/npuwin%d/name", number);
		file = fopen(path, "re");
		if (!file)
			continue;
		if (fscanf(file, "%63s", name) != 1)
			name[0] = 0;
		fclose(file);
		if (!strcmp(name, self->name))
			return number;
	}
	return -1;
}

/* A function that has been pulled out decodes nothing any more. */
static int stop_decoding(struct _test_data_unplug *self)
{
	char path[PATH_MAX + 16];
	uint16_t command = 0;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "%s/config", self->bus_path);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	n = pwrite(fd, &command, sizeof(command), 4);
	close(fd);
	return n == sizeof(command) ? 0 : -EIO;
}

static int take_victim(struct _test_data_unplug *self,
		       const struct _fixture_variant_unplug *variant)
{
	char path[PATH_MAX + 16];
	int ret;

	self->gone = true;
	if (variant->how == UNBIND) {
		snprintf(path, sizeof(path), "%s/unbind", self->driver);
		return write_file(path, self->name);
	}
	ret = stop_decoding(self);
	snprintf(path, sizeof(path), "%s/remove", self->bus_path);
	return ret ? ret : write_file(path, "1");
}

static int return_victim(struct _test_data_unplug *self,
			 const struct _fixture_variant_unplug *variant)
{
	char path[PATH_MAX + 16];

	self->gone = false;
	if (variant->how == VANISH)
		return write_file("/sys/bus/pci/rescan", "1");
	snprintf(path, sizeof(path), "%s/bind", self->driver);
	return write_file(path, self->name);
}

/* Why the victim cannot go that way, or NULL. */
static const char *cannot_go(struct _test_data_unplug *self,
			     const struct _fixture_variant_unplug *variant)
{
	if (variant->how == VANISH && !strstr(self->driver, "/pci/"))
		return "needs a PCI function";
	/* There is hardware that takes an access which nobody answers for the end. */
	if (variant->how == VANISH && !getenv("NPUWIN_GUEST"))
		return "needs a guest";
	return NULL;
}

/* The last device, which nothing else here uses, if it is not the first or the second. */
static int find_victim(struct _test_data_unplug *self)
{
	char path[96];
	FILE *file;
	int n;

	for (n = 2; ; n++) {
		char name[64];

		snprintf(path, sizeof(path), "/sys/class/npuwin/npuwin%d/name", n);
		file = fopen(path, "re");
		if (!file)
			break;
		if (fscanf(file, "%63s", name) == 1) {
			strcpy(self->name, name);
			self->victim = n;
		}
		fclose(file);
	}
	/* The folder stays when the link to it goes. */
	snprintf(path, sizeof(path), "/sys/class/npuwin/npuwin%d/device/driver", self->victim);
	if (!self->victim || !realpath(path, self->driver))
		return 0;
	snprintf(path, sizeof(path), "/sys/class/npuwin/npuwin%d/device", self->victim);
	return realpath(path, self->bus_path) ? self->victim : 0;
}

FIXTURE_SETUP(unplug)
{
	struct npuwin_ioc_domain_info info;
	int fd, i;

	self->domain = -1;
	if (getuid() || !find_victim(self))
		SKIP(LEAVE_TEST, "needs root and three NPUs");
	if (cannot_go(self, variant))
		SKIP(LEAVE_TEST, "%s", cannot_go(self, variant));
	fd = device_open(0);
	ASSERT_GE(fd, 0);
	self->domain = domain_create(fd, 2, SIZE);
	ASSERT_GE(self->domain, 0);
	close(fd);
	for (i = 0; i < 2; i++) {
		ASSERT_EQ(0, rank_join(&self->rank[i], i ? self->victim : 0, self->domain, i,
				       SIZE));
		ASSERT_EQ(i ? 0 : -EAGAIN,
			  domain_commit(self->rank[i].fd, self->domain, i, 0));
	}
	info = domain_info(self->domain);
	self->peer = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, self->domain,
			  info.window_map + SIZE);
	ASSERT_NE(MAP_FAILED, self->peer);
	memset(self->peer, 1, SIZE);
	memset(self->rank[0].mem, 2, SIZE);
}

FIXTURE_TEARDOWN(unplug)
{
	int bound = 0;

	if (self->domain < 0)
		return;
	munmap(self->peer, SIZE);
	rank_close(&self->rank[0], SIZE);
	rank_close(&self->rank[1], SIZE);
	close(self->domain);
	/* All has been released, so it comes back under its old number. */
	if (self->gone)
		bound = return_victim(self, variant);
	EXPECT_EQ(0, bound);
	EXPECT_EQ(0, device_attr(self->victim, "memory_used"));
	EXPECT_EQ(0, device_attr(self->victim, "queues"));
}

TEST_F(unplug, everything_is_enodev)
{
	struct rank *gone = &self->rank[1];
	struct pollfd pollfd = { .fd = gone->fd, .events = POLLIN };
	struct npuwin_ioc_query query = { .size = sizeof(query) };
	struct npuwin_desc descs[2] = {
		twait(0, NPUWIN_CMP_EQ, 5, NPUWIN_NO_DEADLINE), nop(0),
	};
	struct npuwin_desc done = nop(NPUWIN_DESC_F_CQE);
	struct npuwin_ioc_domain_info info;
	struct npuwin_cqe cqes[4];
	uint32_t id, n;
	uint64_t map;
	void *mem;

	ASSERT_EQ(0, window_alloc(gone->fd, SIZE, &id, &map));
	mem = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, gone->fd, map);
	ASSERT_NE(MAP_FAILED, mem);
	munmap(mem, SIZE);
	/* One completion that nobody has taken, one batch that waits, one behind it. */
	ASSERT_EQ(0, submit(gone->fd, gone->queue, &done, 1));
	ASSERT_EQ(0, submit(gone->fd, gone->queue, descs, 2));
	ASSERT_EQ(0, submit(gone->fd, gone->queue, descs, 2));
	sleep_ms(20);
	ASSERT_EQ(0, take_victim(self, variant));
	EXPECT_EQ(-1, device_open(self->victim));
	EXPECT_EQ(ENOENT, errno);

	EXPECT_EQ(1, poll(&pollfd, 1, 0));
	EXPECT_EQ(POLLIN | POLLERR | POLLHUP, pollfd.revents);
	/* What is in the queue can still be taken. */
	n = 4;
	ASSERT_EQ(0, queue_wait(gone->fd, gone->queue, cqes, 4, &n, in_ms(10000)));
	ASSERT_EQ(3, n);
	EXPECT_EQ(NPUWIN_ST_OK, cqes[0].status);
	EXPECT_EQ(NPUWIN_ST_DEVICE, cqes[1].status);
	EXPECT_EQ(1, cqes[1].seq);
	EXPECT_EQ(NPUWIN_ST_CANCELLED, cqes[2].status);
	EXPECT_EQ(4, cqes[2].seq);
	n = 1;
	EXPECT_EQ(-ENODEV, queue_wait(gone->fd, gone->queue, cqes, 1, &n, in_ms(10000)));
	EXPECT_EQ(1, poll(&pollfd, 1, 0));
	EXPECT_EQ(POLLERR | POLLHUP, pollfd.revents);

	EXPECT_EQ(-ENODEV, call(gone->fd, NPUWIN_IOC_QUERY, &query));
	EXPECT_EQ(-ENODEV, window_alloc(gone->fd, SIZE, &id, NULL));
	EXPECT_EQ(-ENODEV, destroy(gone->fd, gone->queue));
	EXPECT_EQ(-ENODEV, domain_create(gone->fd, 1, SIZE));
	EXPECT_EQ(-ENODEV, domain_join(gone->fd, self->domain, 1, id));
	EXPECT_EQ(-ENODEV, domain_commit(gone->fd, self->domain, 1, 0));
	EXPECT_EQ(-ENODEV, domain_reset(gone->fd, self->domain, 1, 0));
	EXPECT_EQ(-ENODEV, domain_abort(gone->fd, self->domain, 1, EIO));
	EXPECT_EQ(-ENODEV, domain_leave(gone->fd, self->domain, 1));
	EXPECT_EQ(-ENODEV, queue_create(gone->fd, self->domain, 1, 1, -1, &id));
	EXPECT_EQ(-ENODEV, queue_reset(gone->fd, gone->queue));
	EXPECT_EQ(-ENODEV, submit(gone->fd, gone->queue, descs, 1));
	EXPECT_EQ(MAP_FAILED, mmap(NULL, SIZE, PROT_READ, MAP_SHARED, gone->fd, map));
	EXPECT_EQ(ENODEV, errno);

	/* Every mapping is revoked, that of the domain too; what else there is stays. */
	EXPECT_EQ(SIGBUS, touch(gone->mem));
	EXPECT_EQ(SIGBUS, touch(gone->mem + SIZE - 1));
	EXPECT_EQ(SIGBUS, touch(self->peer));
	EXPECT_EQ(0, touch(self->rank[0].mem));
	EXPECT_EQ(2, self->rank[0].mem[SIZE - 1]);

	/* The survivor knows who it was, and goes on without it. */
	info = domain_info(self->domain);
	EXPECT_EQ(NPUWIN_DOMAIN_ABORTED, info.state);
	EXPECT_EQ(1, info.abort_rank);
	EXPECT_EQ(EPIPE, info.abort_error);
	EXPECT_EQ(-EPIPE, submit(self->rank[0].fd, self->rank[0].queue, &done, 1));
	EXPECT_EQ(0, domain_reset(self->rank[0].fd, self->domain, 0, 0));
	EXPECT_EQ(NPUWIN_DOMAIN_FORMING, domain_info(self->domain).state);
}

struct sleeper {
	int domain;
	struct npuwin_signal sig;
	pthread_t thread;
	int ret;
};

static void *sleeper_thread(void *arg)
{
	struct sleeper *sleeper = arg;

	/* At a deadline it would look once more, and see what did not wake it. */
	sleeper->ret = signal_wait(sleeper->domain, &sleeper->sig, 1, NPUWIN_NO_DEADLINE, NULL,
				   NULL);
	return NULL;
}

/* One sleep at rank 1, that a TNOTIFY of rank 0 ends. Returns what the sleeper got. */
static int sleep_once(struct _test_data_unplug *self)
{
	struct sleeper sleeper = {
		.domain = self->domain,
		.sig = {
			.rank = 1, .offset = 4096, .cmp = NPUWIN_CMP_EQ, .value = 1,
			.peer = NPUWIN_NO_RANK,
		},
	};
	struct npuwin_ioc_domain_info info = domain_info(self->domain);
	const struct npuwin_domain_status *status = mmap(NULL, info.status_length, PROT_READ,
							 MAP_SHARED, self->domain,
							 info.status_map);
	struct npuwin_desc desc = notify(1, 4096, 1);

	if (status == MAP_FAILED)
		return -errno;
	pthread_create(&sleeper.thread, NULL, sleeper_thread, &sleeper);
	while (!__atomic_load_n(&status->rank[1].sleepers, __ATOMIC_RELAXED))
		sched_yield();
	sleep_ms(50);
	execute(self->rank[0].fd, self->rank[0].queue, &desc, 1, NULL);
	pthread_join(sleeper.thread, NULL);
	munmap((void *)status, info.status_length);
	return sleeper.ret;
}

TEST_F(unplug, comes_back_while_in_use)
{
	struct npuwin_signal sig = { .rank = 1, .value = -1, .peer = NPUWIN_NO_RANK };
	struct npuwin_desc desc;
	struct rank again;
	int number;

	/* Somebody has asked to be woken, and was not. */
	EXPECT_EQ(-ETIMEDOUT, signal_wait(self->domain, &sig, 1, in_ms(20), NULL, NULL));
	ASSERT_EQ(0, take_victim(self, variant));
	/* The old one's file is open, so the new one has another number. */
	ASSERT_EQ(0, return_victim(self, variant));
	number = victim_number(self);
	ASSERT_GE(number, 0);
	EXPECT_NE(self->victim, number);
	/* It takes the dead rank's place. */
	ASSERT_EQ(0, domain_reset(self->rank[0].fd, self->domain, 0, 0));
	ASSERT_EQ(0, rank_join(&again, number, self->domain, 1, SIZE));
	EXPECT_EQ(-EAGAIN, domain_commit(self->rank[0].fd, self->domain, 0, 0));
	EXPECT_EQ(0, domain_commit(again.fd, self->domain, 1, 0));
	/* The device may remember that. */
	EXPECT_EQ(0, sleep_once(self));
	desc = put(1, 0, 0, SIZE);
	EXPECT_EQ(NPUWIN_ST_OK,
		  execute(self->rank[0].fd, self->rank[0].queue, &desc, 1, NULL));
	EXPECT_EQ(2, again.mem[SIZE - 1]);
	EXPECT_EQ(SIGBUS, touch(self->peer));
	/* Back to its old number for the next test. */
	rank_close(&again, SIZE);
	rank_close(&self->rank[1], SIZE);
	self->rank[1] = (struct rank) { .fd = -1, .mem = MAP_FAILED };
	munmap(self->peer, SIZE);
	self->peer = mmap(NULL, SIZE, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ASSERT_EQ(0, take_victim(self, variant));
}

struct load {
	struct _test_data_unplug *self;
	pthread_t thread;
	int kind;
	atomic_int *stop;
	atomic_long loops;
	int last;
};

static bool gone_for_good(int ret)
{
	return ret == -ENODEV || ret == -EPIPE || ret == -ECANCELED;
}

/* Each kind does its thing for ever, or until it is told that somebody is gone. */
static void *load_thread(void *arg)
{
	struct load *load = arg;
	struct _test_data_unplug *self = load->self;
	struct rank *gone = &self->rank[1], *stays = &self->rank[0];
	struct npuwin_signal sig = { .rank = 0, .value = -1, .peer = 1, .cmp = NPUWIN_CMP_EQ };
	struct npuwin_desc desc;
	struct npuwin_cqe cqe;
	uint32_t id, n = 1;
	uint64_t map;
	void *mem;
	int ret;

	do {
		switch (load->kind) {
		case 0:	/* puts from the device that goes, waited for */
			desc = put(0, 0, 0, SIZE);
			ret = execute(gone->fd, gone->queue, &desc, 1, &cqe);
			break;
		case 1:	/* puts to it */
			desc = put(1, 0, 0, SIZE);
			ret = execute(stays->fd, stays->queue, &desc, 1, &cqe);
			break;
		case 2:	/* windows that come and go */
			ret = window_alloc(gone->fd, SIZE, &id, &map);
			if (ret)
				break;
			mem = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, gone->fd,
				   map);
			if (mem != MAP_FAILED) {
				touch((uint8_t *)mem + 4096);
				munmap(mem, SIZE);
			}
			ret = destroy(gone->fd, id);
			break;
		case 3:	/* queues with a wait that never ends */
			ret = queue_create(gone->fd, self->domain, 1, 4, -1, &id);
			if (ret)
				break;
			desc = twait(0, NPUWIN_CMP_EQ, -1, NPUWIN_NO_DEADLINE);
			ret = submit(gone->fd, id, &desc, 1);
			if (!ret)
				ret = destroy(gone->fd, id);
			break;
		case 4:	/* a call that sleeps at the survivor */
			ret = signal_wait(self->domain, &sig, 1, in_ms(20000), NULL, NULL);
			break;
		case 5:	/* a call that sleeps in the device that goes */
			ret = queue_create(gone->fd, self->domain, 1, 4, -1, &id);
			if (!ret)
				ret = queue_wait(gone->fd, id, &cqe, 1, &n, in_ms(20000));
			break;
		default: /* opening and closing it */
			ret = device_open(self->victim);
			if (ret >= 0) {
				close(ret);
				ret = 0;
			} else {
				ret = -ENODEV;
			}
			break;
		}
		if (ret > 0)
			ret = ret == NPUWIN_ST_PEER || ret == NPUWIN_ST_DEVICE ? -ENODEV : 0;
		atomic_fetch_add(&load->loops, 1);
		load->last = ret;
	} while (!gone_for_good(ret) && !atomic_load(load->stop));
	return NULL;
}

TEST_F_TIMEOUT(unplug, in_the_middle_of_everything, 120)
{
	struct load loads[7];
	atomic_int stop = 0;
	int64_t start;
	size_t i;

	for (i = 0; i < ARRAY_LEN(loads); i++) {
		loads[i] = (struct load) { .self = self, .kind = i, .stop = &stop };
		pthread_create(&loads[i].thread, NULL, load_thread, &loads[i]);
	}
	/* Until all are at it. */
	for (i = 0; i < ARRAY_LEN(loads); i++) {
		while (i != 4 && i != 5 && atomic_load(&loads[i].loops) < 3)
			sched_yield();
	}
	sleep_ms(50);
	start = now_ns();
	ASSERT_EQ(0, take_victim(self, variant));
	EXPECT_LT(now_ns() - start, 10000000000);
	for (i = 0; i < ARRAY_LEN(loads); i++) {
		pthread_join(loads[i].thread, NULL);
		EXPECT_TRUE(gone_for_good(loads[i].last))
			TH_LOG("%zu: %d", i, loads[i].last);
	}
	EXPECT_LT(now_ns() - start, 15000000000);
	EXPECT_EQ(SIGBUS, touch(self->peer));
	EXPECT_EQ(SIGBUS, touch(self->rank[1].mem));
}

TEST_F_TIMEOUT(unplug, again_and_again, 120)
{
	uint64_t used = device_attr(0, "memory_used");
	int i;

	for (i = 0; i < variant->times; i++) {
		munmap(self->peer, SIZE);
		rank_close(&self->rank[0], SIZE);
		rank_close(&self->rank[1], SIZE);
		close(self->domain);
		ASSERT_EQ(0, i ? return_victim(self, variant) : 0);
		unplug_setup(_metadata, self, variant);
		ASSERT_EQ(used, device_attr(0, "memory_used"));
		ASSERT_EQ(0, take_victim(self, variant));
		EXPECT_EQ(SIGBUS, touch(self->peer));
	}
}

TEST_HARNESS_MAIN
