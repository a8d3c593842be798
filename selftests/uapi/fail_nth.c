// SPDX-License-Identifier: GPL-2.0-only
/*
 * Whatever fails inside the kernel: a whole life of a domain is tried with the first
 * allocation (or copy) failing, then with the second, and so on until none is left. Each
 * try ends with an error that is documented or with success, and nothing remains.
 *
 * Needs a kernel with fault injection (FAILSLAB, FAIL_PAGE_ALLOC, FAULT_INJECTION_USERCOPY,
 * with ignore-gfp-wait off).
 */
#include "common.h"

#define SIZE	(64 * 1024)

/* Make this thread's nth failure point fail; 0: none. */
static int fail_nth(int n)
{
	char text[16];
	int fd, ret = 0;

	snprintf(text, sizeof(text), "%d", n);
	fd = open("/proc/thread-self/fail-nth", O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (write(fd, text, strlen(text)) < 0)
		ret = -errno;
	close(fd);
	return ret;
}

/* Failure points that are still ahead of the one that was asked for; 0: it has failed. */
static int fail_left(void)
{
	char text[16] = "";
	int fd = open("/proc/thread-self/fail-nth", O_RDONLY | O_CLOEXEC), left = -1;

	if (fd < 0)
		return -1;
	if (read(fd, text, sizeof(text) - 1) > 0)
		left = (int)strtol(text, NULL, 10);
	close(fd);
	return left;
}

static void write_debugfs(const char *name, const char *file, const char *text)
{
	char path[96];
	int fd;

	snprintf(path, sizeof(path), "/sys/kernel/debug/%s/%s", name, file);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	if (write(fd, text, strlen(text)) < 0)
		perror(path);
	close(fd);
}

/* Errors that a failing allocation or copy may turn into. */
static bool expected(int ret)
{
	return ret == -ENOMEM || ret == -EFAULT || ret == -EAGAIN || ret == -EINTR;
}

/* One life. Returns 0 or the first error; what there was is gone on return. */
static int live(void)
{
	struct npuwin_signal sigs[8];
	struct npuwin_desc descs[2] = { put(1, 0, 4096, 4096), notify(1, 0, 1) };
	int fd[2] = { -1, -1 }, domain = -1, event = -1, ret, i;
	struct npuwin_ioc_query query = { .size = sizeof(query) };
	struct npuwin_ioc_domain_info info;
	uint8_t *mem = MAP_FAILED, *peer = MAP_FAILED;
	uint32_t window[2], queue[2], n = 2;
	struct npuwin_cqe cqes[2];
	uint64_t map[2];

	for (i = 0; i < 8; i++)
		sigs[i] = (struct npuwin_signal) { .peer = NPUWIN_NO_RANK };
	for (i = 0; i < 2; i++) {
		fd[i] = device_open(i);
		ret = fd[i] < 0 ? -errno : 0;
		if (ret)
			goto out;
	}
	event = eventfd(0, EFD_CLOEXEC);
	ret = event < 0 ? -errno : 0;
	if (ret)
		goto out;
	ret = call(fd[0], NPUWIN_IOC_QUERY, &query);
	if (ret)
		goto out;
	domain = domain_create(fd[0], 2, SIZE);
	ret = domain < 0 ? domain : 0;
	for (i = 0; i < 2 && !ret; i++) {
		ret = window_alloc(fd[i], SIZE, &window[i], &map[i]);
		if (!ret)
			ret = domain_join(fd[i], domain, i, window[i]);
		if (!ret)
			ret = queue_create(fd[i], domain, i, 4, i ? -1 : event, &queue[i]);
	}
	if (ret)
		goto out;
	mem = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd[0], map[0]);
	ret = mem == MAP_FAILED ? -errno : 0;
	if (ret)
		goto out;
	info = domain_info(domain);
	ret = info.state == UINT32_MAX ? -EFAULT : 0;
	if (ret)
		goto out;
	peer = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, domain,
		    info.window_map + SIZE);
	ret = peer == MAP_FAILED ? -errno : 0;
	if (ret)
		goto out;
	ret = domain_commit(fd[0], domain, 0, 0);
	if (ret != -EAGAIN)
		goto out;
	ret = domain_commit(fd[1], domain, 1, 0);
	if (!ret)
		ret = submit_wait(fd[0], queue[0], descs, 2, cqes, &n, in_ms(5000));
	if (!ret)
		ret = signal_wait(domain, sigs, 8, 0, NULL, NULL);
	if (!ret)
		ret = domain_leave(fd[1], domain, 1);
out:
	/* Taking a mapping away may need memory, too: what fails is tried again. */
	while (mem != MAP_FAILED && munmap(mem, SIZE))
		;
	while (peer != MAP_FAILED && munmap(peer, SIZE))
		;
	for (i = 0; i < 2; i++) {
		if (fd[i] >= 0)
			close(fd[i]);
	}
	if (event >= 0)
		close(event);
	if (domain >= 0)
		close(domain);
	return ret;
}

TEST(sweep)
{
	static const char * const kinds[] = { "failslab", "fail_page_alloc", "fail_usercopy" };
	uint64_t used[2];
	int n, left, ret;
	size_t i;

	if (!have_devices())
		SKIP(return, NEEDS_DEVICES);
	if (fail_nth(0))
		SKIP(return, "needs a kernel with fault injection");
	for (i = 0; i < ARRAY_LEN(kinds); i++) {
		write_debugfs(kinds[i], "ignore-gfp-wait", "N");
		write_debugfs(kinds[i], "ignore-gfp-highmem", "N");
		write_debugfs(kinds[i], "min-order", "0");
		write_debugfs(kinds[i], "verbose", "0");
	}
	for (i = 0; i < 2; i++)
		used[i] = device_attr(i, "memory_used");
	ASSERT_EQ(0, live());
	for (n = 1; n < 5000; n++) {
		ASSERT_EQ(0, fail_nth(n));
		ret = live();
		left = fail_left();
		ASSERT_EQ(0, fail_nth(0));
		EXPECT_TRUE(!ret || expected(ret)) TH_LOG("failure %d gives %d", n, ret);
		for (i = 0; i < 2; i++) {
			ASSERT_EQ(used[i], device_attr(i, "memory_used"));
			ASSERT_EQ(0, device_attr(i, "queues"));
			ASSERT_EQ(0, device_attr(i, "domains"));
		}
		if (left) {
			TH_LOG("%d failures", n - 1);
			break;
		}
	}
	EXPECT_LT(n, 5000);
	EXPECT_EQ(0, live());
}

TEST_HARNESS_MAIN
