// SPDX-License-Identifier: GPL-2.0-only
/* Windows and their mappings. */
#include "common.h"

#include <setjmp.h>
#include <sys/stat.h>

static sigjmp_buf touch_env;

static void touch_failed(int sig)
{
	siglongjmp(touch_env, sig);
}

/* Read and write a byte. Returns 0 or the signal that it gives. */
static int touch(uint8_t *byte, bool write)
{
	struct sigaction action = { .sa_handler = touch_failed }, segv, bus;
	int sig;

	sigaction(SIGSEGV, &action, &segv);
	sigaction(SIGBUS, &action, &bus);
	sig = sigsetjmp(touch_env, 1);
	if (!sig) {
		uint8_t value = __atomic_load_n(byte, __ATOMIC_RELAXED);

		if (write)
			__atomic_store_n(byte, value, __ATOMIC_RELAXED);
	}
	sigaction(SIGSEGV, &segv, NULL);
	sigaction(SIGBUS, &bus, NULL);
	return sig;
}

FIXTURE(windows)
{
	int fd;
	uint64_t align;
	uint64_t used;
	uint64_t free;
	bool host_memory;
};

FIXTURE_SETUP(windows)
{
	struct npuwin_ioc_query query = { .size = sizeof(query) };

	if (!have_devices())
		SKIP(LEAVE_TEST, NEEDS_DEVICES);
	self->fd = device_open(0);
	ASSERT_GE(self->fd, 0);
	ASSERT_EQ(0, call(self->fd, NPUWIN_IOC_QUERY, &query));
	self->align = query.window_align;
	self->used = query.memory_used;
	self->free = query.memory_total - query.memory_used;
	self->host_memory = device_is_soft(self->fd);
}

FIXTURE_TEARDOWN(windows)
{
	close(self->fd);
	EXPECT_EQ(self->used, device_attr(0, "memory_used"));
}

static int is_filled(const uint8_t *mem, size_t size, uint8_t value)
{
	return mem[0] == value && !memcmp(mem, mem + 1, size - 1);
}

TEST_F(windows, alloc)
{
	struct npuwin_ioc_window_alloc cmd;
	uint8_t *mem;

	memset(&cmd, POISON, sizeof(cmd));
	cmd.size = sizeof(cmd);
	cmd.flags = 0;
	cmd.reserved = 0;
	cmd.align = 0;
	cmd.length = 3 * self->align - 1;
	ASSERT_EQ(0, call(self->fd, NPUWIN_IOC_WINDOW_ALLOC, &cmd));
	EXPECT_EQ(3 * self->align - 1, cmd.length);
	EXPECT_EQ(0, cmd.map_offset % self->align);
	EXPECT_NE(0, cmd.map_offset);
	EXPECT_LT(cmd.map_offset, 1ULL << 44);
	EXPECT_EQ(self->used + 3 * self->align, device_attr(0, "memory_used"));

	mem = mmap(NULL, 3 * self->align, PROT_READ | PROT_WRITE, MAP_SHARED, self->fd,
		   cmd.map_offset);
	ASSERT_NE(MAP_FAILED, mem);
	EXPECT_TRUE(is_filled(mem, 3 * self->align, 0));
	memset(mem, 1, 3 * self->align);
	EXPECT_EQ(0, munmap(mem, 3 * self->align));
	EXPECT_EQ(0, destroy(self->fd, cmd.window_id));
	EXPECT_EQ(self->used, device_attr(0, "memory_used"));
	EXPECT_EQ(-ENOENT, destroy(self->fd, cmd.window_id));
}

TEST_F(windows, alloc_errors)
{
	struct npuwin_ioc_query query = { .size = sizeof(query) };
	const struct {
		uint64_t length, align;
		int error;
	} tests[] = {
		{ 0, 0, -EINVAL },
		{ 4096, 3, -EINVAL },
		{ 4096, 4096 + 1, -EINVAL },
		{ 4096, 4 * MIB, -EINVAL },
		{ 4096, 1ULL << 63, -EINVAL },
		{ UINT64_MAX, 0, -EOVERFLOW },
		{ UINT64_MAX - 4094, 0, -EOVERFLOW },
		{ 1ULL << 63, 0, -EOVERFLOW },
		{ 1ULL << 62, 0, -ENOSPC },
	};
	struct npuwin_ioc_window_alloc cmd, before;
	size_t i;

	for (i = 0; i < ARRAY_LEN(tests); i++) {
		memset(&cmd, POISON, sizeof(cmd));
		cmd.size = sizeof(cmd);
		cmd.flags = 0;
		cmd.reserved = 0;
		cmd.length = tests[i].length;
		cmd.align = tests[i].align;
		before = cmd;
		EXPECT_EQ(tests[i].error, call(self->fd, NPUWIN_IOC_WINDOW_ALLOC, &cmd))
			TH_LOG("length %#" PRIx64 " align %#" PRIx64, tests[i].length,
			       tests[i].align);
		EXPECT_EQ(0, memcmp(&cmd, &before, sizeof(cmd)));
	}

	/* A byte more than there is. */
	ASSERT_EQ(0, call(self->fd, NPUWIN_IOC_QUERY, &query));
	cmd.length = query.memory_total - query.memory_used + 1;
	cmd.align = 0;
	before = cmd;
	EXPECT_EQ(-ENOSPC, call(self->fd, NPUWIN_IOC_WINDOW_ALLOC, &cmd));
	EXPECT_EQ(0, memcmp(&cmd, &before, sizeof(cmd)));
	EXPECT_EQ(self->used, device_attr(0, "memory_used"));
}

/* Small alignments are those that every window has. */
TEST_F(windows, alignment)
{
	uint64_t align;

	for (align = 1; align <= 2 * MIB; align *= 2) {
		struct npuwin_ioc_window_alloc cmd = {
			.size = sizeof(cmd), .length = 4096, .align = align,
		};

		ASSERT_EQ(0, call(self->fd, NPUWIN_IOC_WINDOW_ALLOC, &cmd));
		EXPECT_EQ(0, cmd.map_offset % align);
	}
}

TEST_F(windows, limit)
{
	uint32_t i, id;

	for (i = 0; i < NPUWIN_MAX_WINDOWS; i++)
		ASSERT_EQ(0, window_alloc(self->fd, 1, &id, NULL)) TH_LOG("%u", i);
	EXPECT_EQ(-EMFILE, window_alloc(self->fd, 1, &i, NULL));
	EXPECT_EQ(self->used + NPUWIN_MAX_WINDOWS * self->align, device_attr(0, "memory_used"));
	EXPECT_EQ(0, destroy(self->fd, id));
	EXPECT_EQ(0, window_alloc(self->fd, 1, &i, NULL));
	EXPECT_EQ(-EMFILE, window_alloc(self->fd, 1, &i, NULL));
}

TEST_F(windows, zeroed_when_reused)
{
	const size_t size = 16 * MIB + 4096;
	int i;

	for (i = 0; i < 8; i++) {
		uint64_t map;
		uint32_t id;
		uint8_t *mem;

		ASSERT_EQ(0, window_alloc(self->fd, size, &id, &map));
		mem = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, self->fd, map);
		ASSERT_NE(MAP_FAILED, mem);
		EXPECT_TRUE(is_filled(mem, size, 0));
		memset(mem, POISON, size);
		munmap(mem, size);
		ASSERT_EQ(0, destroy(self->fd, id));
	}
}

TEST_F(windows, map_refused)
{
	const int rw = PROT_READ | PROT_WRITE;
	const size_t size = 4 * 4096;
	int other = device_open(0);
	uint64_t map;
	uint32_t id;
	void *mem;

	ASSERT_EQ(0, window_alloc(self->fd, size, &id, &map));
	/* Private, executable. */
	EXPECT_EQ(MAP_FAILED, mmap(NULL, size, rw, MAP_PRIVATE, self->fd, map));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(MAP_FAILED, mmap(NULL, size, PROT_READ, MAP_PRIVATE, self->fd, map));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(MAP_FAILED, mmap(NULL, size, PROT_READ | PROT_EXEC, MAP_SHARED, self->fd, map));
	EXPECT_EQ(EINVAL, errno);
	/* Beyond the end, from a place inside and from outside. */
	EXPECT_EQ(MAP_FAILED, mmap(NULL, size + 4096, rw, MAP_SHARED, self->fd, map));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(MAP_FAILED, mmap(NULL, 2 * 4096, rw, MAP_SHARED, self->fd, map + 3 * 4096));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(MAP_FAILED, mmap(NULL, 4096, rw, MAP_SHARED, self->fd, map + size));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(MAP_FAILED, mmap(NULL, 4096, rw, MAP_SHARED, self->fd, map - 4096));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(MAP_FAILED, mmap(NULL, 4096, rw, MAP_SHARED, self->fd, 0));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(MAP_FAILED, mmap(NULL, 4096, rw, MAP_SHARED, self->fd, 1ULL << 62));
	EXPECT_EQ(EINVAL, errno);
	/* Through a file that does not own it. */
	EXPECT_EQ(MAP_FAILED, mmap(NULL, size, rw, MAP_SHARED, other, map));
	EXPECT_EQ(EINVAL, errno);
	/* What could not be had at first cannot be had later. */
	mem = mmap(NULL, size, rw, MAP_SHARED, self->fd, map);
	ASSERT_NE(MAP_FAILED, mem);
	EXPECT_EQ(-1, mprotect(mem, size, PROT_READ | PROT_EXEC));
	EXPECT_EQ(EACCES, errno);
	EXPECT_EQ(MAP_FAILED, mremap(mem, size, 2 * size, MREMAP_MAYMOVE));
	munmap(mem, size);
	/* Destroyed: not again. */
	ASSERT_EQ(0, destroy(self->fd, id));
	EXPECT_EQ(MAP_FAILED, mmap(NULL, size, rw, MAP_SHARED, self->fd, map));
	EXPECT_EQ(EINVAL, errno);
	close(other);
}

/* Any part can be mapped, by pages, and all mappings show the same memory. */
TEST_F(windows, map_parts)
{
	const size_t size = 5 * 2 * MIB + 3 * 4096, pages = size / 4096;
	const int rw = PROT_READ | PROT_WRITE;
	unsigned int seed = 1;
	uint8_t *whole, *part;
	uint64_t map;
	uint32_t id;
	size_t i, k;

	ASSERT_EQ(0, window_alloc(self->fd, size, &id, &map));
	whole = mmap(NULL, size, rw, MAP_SHARED, self->fd, map);
	ASSERT_NE(MAP_FAILED, whole);
	/* Where a huge page can be used, the address suits it. */
	EXPECT_EQ(0, ((uintptr_t)whole - map) % (2 * MIB));
	for (i = 0; i < pages; i++)
		*(uint32_t *)(whole + i * 4096) = i;
	for (i = 0; i < 300; i++) {
		size_t first = rand_r(&seed) % pages;
		size_t count = 1 + rand_r(&seed) % (pages - first);

		part = mmap(NULL, count * 4096, rw, MAP_SHARED, self->fd, map + first * 4096);
		ASSERT_NE(MAP_FAILED, part);
		for (k = 0; k < count; k++) {
			uint32_t *word = (uint32_t *)(part + k * 4096);

			if (*word != first + k)
				break;
			word[1] = first + k + i;
		}
		ASSERT_EQ(count, k);
		EXPECT_EQ(first + i, ((uint32_t *)(whole + first * 4096))[1]);
		/* A hole, in what may be a huge page. */
		if (count > 2) {
			k = 1 + rand_r(&seed) % (count - 2);
			ASSERT_EQ(0, munmap(part + k * 4096, 4096));
			EXPECT_EQ(SIGSEGV, touch(part + k * 4096, false));
			EXPECT_EQ(first, *(uint32_t *)part);
			EXPECT_EQ(first + k + 1, *(uint32_t *)(part + (k + 1) * 4096));
			/* A part that is read-only meanwhile. */
			ASSERT_EQ(0, mprotect(part, 4096, PROT_READ));
			EXPECT_EQ(0, touch(part, false));
			EXPECT_EQ(SIGSEGV, touch(part, true));
			EXPECT_EQ(0, touch(part + (k + 1) * 4096, true));
		}
		ASSERT_EQ(0, munmap(part, count * 4096));
	}
	/* Moved. */
	part = mmap(NULL, size + 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, part);
	ASSERT_EQ(part + 4096,
		  mremap(whole, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, part + 4096));
	for (i = 0; i < pages; i++) {
		if (*(uint32_t *)(part + 4096 + i * 4096) != i)
			break;
	}
	EXPECT_EQ(pages, i);
	munmap(part, size + 4096);
}

/* Page faults that writing to each page of some memory takes. */
static long faults_of(uint8_t *mem, size_t size)
{
	struct rusage before, after;
	size_t i;

	getrusage(RUSAGE_SELF, &before);
	for (i = 0; i < size; i += 4096)
		mem[i] = 1;
	getrusage(RUSAGE_SELF, &after);
	return after.ru_minflt - before.ru_minflt;
}

/* Huge pages are mapped as such, by the window's file and by the domain's. */
TEST_F(windows, map_huge)
{
	const uint64_t size = 8 * MIB;
	struct npuwin_ioc_query query = { .size = sizeof(query) };
	int domain = domain_create(self->fd, 3, size);
	struct npuwin_ioc_domain_info info;
	long faults = LONG_MAX;
	struct rank rank;
	uint8_t *peer;
	int i;

	ASSERT_GE(domain, 0);
	ASSERT_EQ(0, call(self->fd, NPUWIN_IOC_QUERY, &query));
	if (!(query.caps & NPUWIN_CAP_HUGE))
		SKIP(return, "needs NPUWIN_CAP_HUGE");
	info = domain_info(domain);
	/* Free memory may be in pieces, but hardly all of it. */
	for (i = 0; i < 16 && faults > (long)(size / (2 * MIB) + 1); i++) {
		ASSERT_EQ(0, rank_join(&rank, 0, domain, 2, size));
		faults = faults_of(rank.mem, size);
		peer = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, domain,
			    info.window_map + 2 * size);
		ASSERT_NE(MAP_FAILED, peer);
		faults += faults_of(peer, size) - size / (2 * MIB);
		munmap(peer, size);
		ASSERT_EQ(0, domain_leave(rank.fd, domain, 2));
		rank_close(&rank, size);
	}
	EXPECT_LE(faults, (long)(size / (2 * MIB) + 1));
	close(domain);
}

static int write_text(const char *dir, const char *name, const char *text)
{
	char path[160];
	int fd, ret = 0;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (write(fd, text, strlen(text)) < 0)
		ret = -errno;
	close(fd);
	return ret;
}

static uint64_t read_number(const char *dir, const char *name)
{
	char path[160];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return file_number(path);
}

/* Windows are charged to who allocates them, and nobody is killed for one that is too large. */
TEST_F_TIMEOUT(windows, charged, 60)
{
	const char *root = "/sys/fs/cgroup";
	char dir[96], pid_text[16];
	int status;
	pid_t pid;

	if (!self->host_memory)
		SKIP(return, "needs windows in the host's memory");
	snprintf(dir, sizeof(dir), "%s/npuwin-test.%d", root, getpid());
	write_text(root, "cgroup.subtree_control", "+memory");
	if (mkdir(dir, 0755) || write_text(dir, "memory.max", "67108864")) {
		rmdir(dir);
		SKIP(return, "needs root and the memory controller of cgroup v2");
	}
	pid = fork();
	if (!pid) {
		uint64_t before, after;
		uint32_t id;

		snprintf(pid_text, sizeof(pid_text), "%d", getpid());
		if (write_text(dir, "cgroup.procs", pid_text))
			_exit(1);
		before = read_number(dir, "memory.current");
		if (window_alloc(self->fd, 32 * MIB, &id, NULL))
			_exit(2);
		after = read_number(dir, "memory.current");
		if (after - before < 32 * MIB || after - before > 34 * MIB)
			_exit(3);
		if (window_alloc(self->fd, 256 * MIB, &id, NULL) != -ENOMEM)
			_exit(4);
		if (read_number(dir, "memory.current") - after > MIB)
			_exit(5);
		_exit(0);
	}
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	EXPECT_EQ(0, status);
	EXPECT_EQ(self->used + 32 * MIB, device_attr(0, "memory_used"));
	close(self->fd);
	self->fd = device_open(0);
	EXPECT_GT(4 * MIB, read_number(dir, "memory.current"));
	EXPECT_EQ(0, rmdir(dir));
}

TEST_F(windows, survives_in_mapping)
{
	const size_t size = 4 * MIB;
	uint64_t map;
	uint32_t id;
	uint8_t *mem;

	ASSERT_EQ(0, window_alloc(self->fd, size, &id, &map));
	mem = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, self->fd, map);
	ASSERT_NE(MAP_FAILED, mem);
	memset(mem, 7, size);
	ASSERT_EQ(0, destroy(self->fd, id));
	EXPECT_EQ(self->used + size, device_attr(0, "memory_used"));
	/* Nobody else gets the memory meanwhile. */
	ASSERT_EQ(0, window_alloc(self->fd, size, &id, &map));
	EXPECT_TRUE(is_filled(mem, size, 7));
	ASSERT_EQ(0, munmap(mem, size - 4096));
	EXPECT_EQ(7, mem[size - 1]);
	/* A mapping is a reference of the file, too: its windows stay until it is gone. */
	close(self->fd);
	self->fd = device_open(0);
	EXPECT_EQ(7, mem[size - 1]);
	EXPECT_EQ(self->used + 2 * size, device_attr(0, "memory_used"));
	ASSERT_EQ(0, munmap(mem + size - 4096, 4096));
	EXPECT_EQ(self->used, device_attr(0, "memory_used"));
}

TEST_F(windows, not_inherited)
{
	uint64_t map;
	uint32_t id;
	uint8_t *mem;
	int status;
	pid_t pid;

	ASSERT_EQ(0, window_alloc(self->fd, 4 * MIB, &id, &map));
	mem = mmap(NULL, 4 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, self->fd, map);
	ASSERT_NE(MAP_FAILED, mem);
	mem[0] = 1;
	pid = fork();
	ASSERT_GE(pid, 0);
	if (!pid)
		_exit(touch(mem, false) != SIGSEGV);
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	EXPECT_EQ(0, status);
	EXPECT_EQ(1, mem[0]);
	munmap(mem, 4 * MIB);
}

/* A debugger reads and writes what the program can, and nothing else. */
TEST_F(windows, debuggers)
{
	const size_t size = 2 * self->align;
	int memory = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
	uint8_t bytes[16], other[16];
	uint64_t map;
	uint32_t id;
	uint8_t *mem;

	ASSERT_GE(memory, 0);
	ASSERT_EQ(0, window_alloc(self->fd, size, &id, &map));
	mem = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, self->fd, map);
	ASSERT_NE(MAP_FAILED, mem);
	memset(mem, 7, size);
	memset(bytes, 9, sizeof(bytes));
	ASSERT_EQ(sizeof(bytes), pwrite(memory, bytes, sizeof(bytes), (off_t)(mem + 100)));
	EXPECT_TRUE(is_filled(mem + 100, sizeof(bytes), 9));
	ASSERT_EQ(sizeof(other), pread(memory, other, sizeof(other), (off_t)(mem + 92)));
	EXPECT_EQ(0, memcmp(other, mem + 92, sizeof(other)));

	memset(mem, 7, size);
	ASSERT_EQ(0, mprotect(mem, size, PROT_READ));
	ASSERT_EQ(sizeof(other), pread(memory, other, sizeof(other), (off_t)mem));
	EXPECT_TRUE(is_filled(other, sizeof(other), 7));
	EXPECT_EQ(-1, pwrite(memory, bytes, sizeof(bytes), (off_t)(mem + 100)));
	EXPECT_EQ(EIO, errno);
	EXPECT_TRUE(is_filled(mem, size, 7));
	munmap(mem, size);
	close(memory);
}

/* More than 32 bits of everything: allocation, mapping, and an engine's offsets. */
TEST_F_TIMEOUT(windows, beyond_4gib, 300)
{
	const uint64_t size = 4 * GIB + 2 * MIB;
	struct npuwin_desc desc;
	struct rank rank;
	long pages = sysconf(_SC_AVPHYS_PAGES);
	int domain;

	if ((uint64_t)pages * sysconf(_SC_PAGESIZE) < size + 512 * MIB ||
	    device_attr(0, "memory_total") < size)
		SKIP(return, "needs 4.5 GiB of free memory");
	domain = domain_create(self->fd, 1, size);
	ASSERT_GE(domain, 0);
	ASSERT_EQ(0, rank_join(&rank, 0, domain, 0, size));
	ASSERT_EQ(0, domain_commit(rank.fd, domain, 0, 0));
	EXPECT_EQ(self->used + size, device_attr(0, "memory_used"));
	rank.mem[0] = 1;
	rank.mem[4 * GIB] = 2;
	rank.mem[size - 1] = 3;
	EXPECT_EQ(1, rank.mem[0]);
	desc = put(0, size - 8, 4 * GIB + 8, 8);
	EXPECT_EQ(NPUWIN_ST_OK, execute(rank.fd, rank.queue, &desc, 1, NULL));
	EXPECT_EQ(3, rank.mem[4 * GIB + 15]);
	EXPECT_EQ(0, rank.mem[15]);
	/* Rows that are far apart. */
	desc = put(0, 0, 8, 4);
	desc.rows = 2;
	desc.src_stride = 4 * GIB;
	desc.dst_stride = 4 * GIB + 8;
	EXPECT_EQ(NPUWIN_ST_OK, execute(rank.fd, rank.queue, &desc, 1, NULL));
	EXPECT_EQ(1, rank.mem[8]);
	EXPECT_EQ(2, rank.mem[4 * GIB + 16]);
	rank_close(&rank, size);
	close(domain);
}

/* Killed in the middle of a large allocation: it ends, and all comes back. */
TEST_F_TIMEOUT(windows, killed_while_allocating, 60)
{
	const uint64_t size = 2 * GIB;
	int i, status;

	if (!self->host_memory || self->free < size ||
	    (uint64_t)sysconf(_SC_AVPHYS_PAGES) * sysconf(_SC_PAGESIZE) < size + 256 * MIB)
		SKIP(return, "needs a window of 2 GiB in the host's memory, 2.25 GiB of it free");
	for (i = 0; i < 4; i++) {
		uint32_t id;
		pid_t pid = fork();

		ASSERT_GE(pid, 0);
		if (!pid)
			_exit(window_alloc(self->fd, size, &id, NULL) ? 1 : 0);
		sleep_ms(5 + 20 * i);
		kill(pid, SIGKILL);
		ASSERT_EQ(pid, waitpid(pid, &status, 0));
		EXPECT_TRUE(WIFSIGNALED(status) || !WEXITSTATUS(status));
	}
	/* Those that were quicker belong to this file, too. */
	close(self->fd);
	EXPECT_EQ(self->used, device_attr(0, "memory_used"));
	self->fd = device_open(0);
}

TEST_HARNESS_MAIN
