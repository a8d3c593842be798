// SPDX-License-Identifier: GPL-2.0-only
/*
 * A 32-bit caller: the system calls of i386, made from a 64-bit program, so that no 32-bit
 * library is needed. All that the kernel is given lies below 4 GiB.
 */
#include "common.h"

#ifdef __x86_64__

#define SIZE		(4 * MIB)
#define I386_IOCTL	54
#define I386_MUNMAP	91
#define I386_MMAP2	192

static long i386(long nr, long a, long b, long c, long d, long e, long f)
{
	long ret;

	/*
	 * The sixth argument is in %ebp, which the compiler may be using, as it may the 128
	 * bytes below the stack.
	 */
	asm volatile("lea -128(%%rsp), %%rsp\n\t"
		     "push %%rbp\n\t"
		     "mov %[f], %%rbp\n\t"
		     "int $0x80\n\t"
		     "pop %%rbp\n\t"
		     "lea 128(%%rsp), %%rsp"
		     : "=a" (ret)
		     : "a" (nr), "b" (a), "c" (b), "d" (c), "S" (d), "D" (e), [f] "r" (f)
		     : "memory", "cc", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15");
	return (int)ret;
}

static int compat_call(int fd, unsigned long cmd, void *arg)
{
	return i386(I386_IOCTL, fd, cmd, (long)arg, 0, 0, 0);
}

static void *compat_mmap(size_t size, int prot, int fd, uint64_t offset)
{
	return (void *)(uintptr_t)(uint32_t)i386(I386_MMAP2, 0, size, prot, MAP_SHARED, fd,
						 offset >> 12);
}

/* What is shared with the kernel. */
struct low {
	struct npuwin_ioc_query query;
	struct npuwin_ioc_window_alloc window;
	struct npuwin_ioc_domain_create create;
	struct npuwin_ioc_domain_join join;
	struct npuwin_ioc_domain_sync commit;
	struct npuwin_ioc_domain_info info;
	struct npuwin_ioc_queue_create queue;
	struct npuwin_ioc_submit submit;
	struct npuwin_ioc_queue_wait wait;
	struct npuwin_ioc_signal_wait signal_wait;
	struct npuwin_ioc_domain_leave leave;
	struct npuwin_ioc_destroy destroy;
	struct npuwin_signal signal;
	struct npuwin_desc descs[2];
	struct npuwin_cqe cqes[2];
};

/* Run in a child: without the emulation the first call gives ENOSYS or a signal. */
static bool have_i386(void)
{
	int status;
	pid_t pid = fork();

	if (!pid) {
		signal(SIGSEGV, SIG_DFL);
		/* getpid */
		_exit(i386(20, 0, 0, 0, 0, 0, 0) != getpid());
	}
	return pid > 0 && waitpid(pid, &status, 0) == pid && !status;
}

TEST(a_whole_life)
{
	struct low *low;
	uint32_t *mem, *peer;
	int fd;

	if (!have_devices())
		SKIP(return, NEEDS_DEVICES);
	if (!have_i386())
		SKIP(return, "needs the system calls of i386");
	low = mmap(NULL, sizeof(*low), PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
	ASSERT_NE(MAP_FAILED, low);
	fd = device_open(0);
	ASSERT_GE(fd, 0);

	low->query.size = sizeof(low->query);
	ASSERT_EQ(0, compat_call(fd, NPUWIN_IOC_QUERY, &low->query));
	EXPECT_EQ(device_attr(0, "memory_total"), low->query.memory_total);
	EXPECT_EQ(-ENOTTY, compat_call(fd, NPUWIN_IOC_DOMAIN_INFO, &low->query));
	EXPECT_EQ(-EFAULT, compat_call(fd, NPUWIN_IOC_QUERY, NULL));

	low->window = (struct npuwin_ioc_window_alloc) {
		.size = sizeof(low->window), .length = SIZE,
	};
	ASSERT_EQ(0, compat_call(fd, NPUWIN_IOC_WINDOW_ALLOC, &low->window));
	low->create = (struct npuwin_ioc_domain_create) {
		.size = sizeof(low->create), .nranks = 1, .window_size = SIZE,
	};
	ASSERT_EQ(0, compat_call(fd, NPUWIN_IOC_DOMAIN_CREATE, &low->create));
	low->join = (struct npuwin_ioc_domain_join) {
		.size = sizeof(low->join), .domain_fd = low->create.domain_fd,
		.window_id = low->window.window_id,
	};
	ASSERT_EQ(0, compat_call(fd, NPUWIN_IOC_DOMAIN_JOIN, &low->join));
	low->commit = (struct npuwin_ioc_domain_sync) {
		.size = sizeof(low->commit), .domain_fd = low->create.domain_fd,
		.deadline_ns = NPUWIN_NO_DEADLINE,
	};
	ASSERT_EQ(0, compat_call(fd, NPUWIN_IOC_DOMAIN_COMMIT, &low->commit));
	low->queue = (struct npuwin_ioc_queue_create) {
		.size = sizeof(low->queue), .domain_fd = low->create.domain_fd, .depth = 8,
		.event_fd = -1,
	};
	ASSERT_EQ(0, compat_call(fd, NPUWIN_IOC_QUEUE_CREATE, &low->queue));
	low->info.size = sizeof(low->info);
	ASSERT_EQ(0, compat_call(low->create.domain_fd, NPUWIN_IOC_DOMAIN_INFO, &low->info));
	EXPECT_EQ(NPUWIN_DOMAIN_READY, low->info.state);

	/* Offsets fit into what mmap2() takes. */
	mem = compat_mmap(SIZE, PROT_READ | PROT_WRITE, fd, low->window.map_offset);
	ASSERT_LT((uintptr_t)mem, 0xfffff000);
	peer = compat_mmap(SIZE, PROT_READ | PROT_WRITE, low->create.domain_fd,
			   low->info.window_map);
	ASSERT_LT((uintptr_t)peer, 0xfffff000);
	mem[SIZE / 4 - 1] = 99;
	EXPECT_EQ(99, peer[SIZE / 4 - 1]);

	low->descs[0] = put(0, SIZE - 4, 0, 4);
	low->descs[1] = twait(0, NPUWIN_CMP_EQ, 99, in_ms(10000));
	low->submit = (struct npuwin_ioc_submit) {
		.size = sizeof(low->submit), .flags = NPUWIN_SUBMIT_F_WAIT,
		.queue_id = low->queue.queue_id, .count = 2, .descs = USER_PTR(low->descs),
		.cqes = USER_PTR(low->cqes), .cqe_count = 1, .deadline_ns = in_ms(10000),
	};
	ASSERT_EQ(0, compat_call(fd, NPUWIN_IOC_SUBMIT, &low->submit));
	EXPECT_EQ(1, low->submit.cqe_count);
	EXPECT_EQ(NPUWIN_ST_OK, low->cqes[0].status);
	EXPECT_EQ(99, mem[0]);
	low->wait = (struct npuwin_ioc_queue_wait) {
		.size = sizeof(low->wait), .queue_id = low->queue.queue_id, .min = 1,
		.cqes = USER_PTR(low->cqes), .cqe_count = 2, .deadline_ns = in_ms(10000),
	};
	ASSERT_EQ(0, compat_call(fd, NPUWIN_IOC_QUEUE_WAIT, &low->wait));
	EXPECT_EQ(1, low->wait.cqe_count);
	EXPECT_EQ(1, low->cqes[0].seq);

	low->signal = (struct npuwin_signal) { .value = 99, .peer = NPUWIN_NO_RANK };
	low->signal_wait = (struct npuwin_ioc_signal_wait) {
		.size = sizeof(low->signal_wait), .signals = USER_PTR(&low->signal), .count = 1,
		.deadline_ns = in_ms(10000),
	};
	ASSERT_EQ(0, compat_call(low->create.domain_fd, NPUWIN_IOC_SIGNAL_WAIT,
				 &low->signal_wait));
	EXPECT_EQ(99, low->signal.observed);

	low->leave = (struct npuwin_ioc_domain_leave) {
		.size = sizeof(low->leave), .domain_fd = low->create.domain_fd,
	};
	EXPECT_EQ(0, compat_call(fd, NPUWIN_IOC_DOMAIN_LEAVE, &low->leave));
	low->destroy = (struct npuwin_ioc_destroy) {
		.size = sizeof(low->destroy), .id = low->window.window_id,
	};
	EXPECT_EQ(0, compat_call(fd, NPUWIN_IOC_DESTROY, &low->destroy));
	EXPECT_EQ(0, i386(I386_MUNMAP, (long)mem, SIZE, 0, 0, 0, 0));
	EXPECT_EQ(0, i386(I386_MUNMAP, (long)peer, SIZE, 0, 0, 0, 0));
	close(low->create.domain_fd);
	close(fd);
}

#else

TEST(a_whole_life)
{
	SKIP(return, "needs the system calls of i386");
}

#endif

TEST_HARNESS_MAIN
