// SPDX-License-Identifier: MIT
/*
 * What the emulator takes of its system: processor, descriptors, memory; and what it does
 * when there is none.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hw.h"

/* ---- processor -------------------------------------------------------------------- */

/* A heartbeat takes far less of a processor than this, and who spins far more. */
static void expect_asleep(struct guest *g)
{
	enum { BEATS = 4 };
	int64_t from;

	settle(g);
	until_beats(g, 1);
	from = emu_cpu_ns();
	until_beats(g, BEATS);
	CHECK(emu_cpu_ns() - from < BEATS * 10 * NSEC_PER_MSEC);
}

static void emu_idle_sleeps(void)
{
	struct guest *g = &guests[0];
	struct npuwin_hw_request clock = { .opcode = NPUWIN_HW_CMD_CLOCK };
	struct npuwin_hw_response now;
	struct npuwin_desc desc = d_wait(0, NPUWIN_CMP_EQ, 1, NEVER);
	/* Device 1 has no machine. */
	static const char *const options[] = {
		"--memory", "16M", "--devices", "2", "--heartbeat", "400", NULL,
	};

	emu_start(options);
	guest_connect(g, 0);
	guest_ready(g);
	expect_asleep(g);
	CHECK_EQ(do_bind(g, 0, 0, 1, &keys[0]), NPUWIN_HW_OK);
	for (uint32_t i = 0; i < 2; i++)
		CHECK_EQ(do_queue_create(&queues[i], g, i, 4), NPUWIN_HW_OK);
	CHECK_EQ(run_one(&queues[0], d_nop(), NULL), NPUWIN_ST_OK);
	expect_asleep(g);
	/* Blocked for ever, and for an hour. */
	post_one(&queues[0], desc);
	CHECK_EQ(admin(g, &clock, &now), NPUWIN_HW_OK);
	desc.deadline_ns = (int64_t)now.value[0] + 3600 * 1000 * NSEC_PER_MSEC;
	post_one(&queues[1], desc);
	expect_asleep(g);
	/* Stopped. */
	CHECK_EQ(do_abort(g, 0, 0, 5, false), NPUWIN_HW_OK);
	expect_cqe(&queues[0], 0, NPUWIN_ST_ABORTED);
	expect_cqe(&queues[1], 0, NPUWIN_ST_ABORTED);
	expect_asleep(g);
}

/* ---- descriptors ----------------------------------------------------------------- */

/* Set the emulator's soft limit of a resource. Returns what it was. */
static rlim_t set_limit(__rlimit_resource_t resource, rlim_t value)
{
	struct rlimit limit;
	rlim_t before;

	CHECK(!prlimit(emu_pid(), resource, NULL, &limit));
	before = limit.rlim_cur;
	limit.rlim_cur = value;
	CHECK(!prlimit(emu_pid(), resource, &limit, NULL));
	return before;
}

static void emu_no_files(void)
{
	static const char *const options[] = {
		"--memory", "16M", "--devices", "2", "--heartbeat", "400", NULL,
	};
	struct guest *g = &guests[0];
	rlim_t before;
	int waiting;

	emu_start(options);
	guest_connect(g, 0);
	guest_ready(g);
	before = set_limit(RLIMIT_NOFILE, 3);
	waiting = guest_knock(1);
	expect_asleep(g);
	/* Also at a device that has a machine. */
	CHECK(close(guest_knock(0)) == 0);
	expect_asleep(g);
	CHECK_EQ(do_bind(g, 0, 0, 1, &keys[0]), NPUWIN_HW_OK);
	/* Who waits is served when there are some again, and so is who comes then. */
	set_limit(RLIMIT_NOFILE, before);
	guest_greet(&guests[1], waiting);
	guest_ready(&guests[1]);
	CHECK(!guest_try_connect(&guests[2], 0));
	settle(g);
}

/*
 * The exit status of an emulator that may have @files open files and no more. What it says
 * has @said.
 */
static int run_refused(rlim_t files, const char *const *args, const char *said)
{
	struct rlimit limit = { .rlim_cur = files, .rlim_max = files };
	const char *program = getenv("NPUWIN_EMU");
	char text[512] = "";
	int status, fds[2];
	pid_t pid;

	if (!program)
		program = "build/bin/npuwin-emu";
	CHECK(!pipe2(fds, O_CLOEXEC));
	fflush(stdout);
	pid = fork();
	if (!pid) {
		dup2(fds[1], STDERR_FILENO);
		if (!setrlimit(RLIMIT_NOFILE, &limit))
			execv(program, (char *const *)args);
		_exit(127);
	}
	close(fds[1]);
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK(read(fds[0], text, sizeof(text) - 1) > 0);
	close(fds[0]);
	if (!strstr(text, said))
		fail(__FILE__, __LINE__, "not '%s' but '%s'", said, text);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

#define ARGS(...) \
	((const char *const[]) { "npuwin-emu", "--socket-dir", "/nowhere", __VA_ARGS__, NULL })

static void emu_file_limit(void)
{
	static const char *const options[] = {
		"--memory", "16M", "--devices", "4", "--vectors", "16", NULL,
	};
	struct rlimit own, low;

	/* More than it may have is wrong usage; where it is not, the directory is missing. */
	CHECK_EQ(run_refused(1024, ARGS("--devices", "8", "--vectors", "64"),
			     "8 devices of 64 vectors need 1088 open files, and 1024 are allowed"),
		 2);
	CHECK_EQ(run_refused(1088, ARGS("--devices", "8", "--vectors", "64"), "/nowhere"), 1);
	CHECK_EQ(run_refused(64, ARGS("--devices", "1", "--vectors", "1"), "/nowhere"), 1);
	/* More than it has, and may have, it takes. */
	CHECK(!getrlimit(RLIMIT_NOFILE, &own));
	low = own;
	low.rlim_cur = 48;
	CHECK(!setrlimit(RLIMIT_NOFILE, &low));
	emu_start(options);
	CHECK(!setrlimit(RLIMIT_NOFILE, &own));
	for (uint32_t i = 0; i < 4; i++) {
		guest_connect(&guests[i], i);
		guest_ready(&guests[i]);
	}
	for (uint32_t i = 0; i < 4; i++)
		settle(&guests[i]);
}

/* ---- memory ---------------------------------------------------------------------- */

static void emu_memory_least(void)
{
	/* The smallest that is taken is looked at by ident_regions. */
	CHECK_EQ(run_refused(1024, ARGS("--memory", "64K", "--queues", "1", "--endpoints", "1"),
			     "1 queues and 1 endpoints need 128K"), 2);
	CHECK_EQ(run_refused(1024, ARGS("--memory", "16M", "--queues", "4096",
					"--endpoints", "4096"),
			     "4096 queues and 4096 endpoints need 32768K"), 2);
	CHECK_EQ(run_refused(1024, ARGS("--memory", "32M", "--queues", "4096",
					"--endpoints", "4096"), "/nowhere"), 1);
}

static uint64_t resident(struct guest *g)
{
	struct stat st;

	CHECK(!fstat(g->memory_fd, &st));
	return (uint64_t)st.st_blocks * 512;
}

static void emu_memory_lazy(void)
{
	static const char *const options[] = { "--memory", "1G", "--endpoints", "512", NULL };
	struct guest *g = &guests[0];

	emu_start(options);
	guest_connect(g, 0);
	/* What the device writes by itself cannot be missing later; the rest is only used. */
	CHECK(resident(g) >= g->ident.rings.offset);
	guest_ready(g);
	*window_of(g, 0) = 1;
	/* However large the system's pages are. */
	CHECK(resident(g) < g->ident.rings.offset + (64 << 20));
}

/* Bytes of address space that the emulator has. */
static rlim_t address_space(void)
{
	unsigned long long pages;
	char path[64], text[256];
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/statm", (int)emu_pid());
	file = fopen(path, "r");
	CHECK(file);
	CHECK(fgets(text, sizeof(text), file));
	fclose(file);
	pages = strtoull(text, NULL, 10);
	CHECK(pages);
	return (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE);
}

static void emu_no_memory(void)
{
	static const char *const options[] = { "--memory", "256M", "--devices", "2", NULL };
	struct guest *g = &guests[0];
	rlim_t before;

	emu_start(options);
	guest_connect(g, 0);
	guest_ready(g);
	before = set_limit(RLIMIT_AS, address_space() + (64 << 20));
	for (int i = 0; i < 5; i++)
		CHECK(!guest_try_connect(&guests[1], 1));
	CHECK(emu_alive());
	CHECK_EQ(do_bind(g, 0, 0, 1, &keys[0]), NPUWIN_HW_OK);
	set_limit(RLIMIT_AS, before);
	guest_connect(&guests[1], 1);
	guest_ready(&guests[1]);
	settle(g);
}

static const struct test tests[] = {
	{ "emu_idle_sleeps", "without work it takes no processor", emu_idle_sleeps },
	{ "emu_no_files", "without descriptors a machine waits, and the others do not notice",
	  emu_no_files },
	{ "emu_file_limit", "it takes the descriptors that it needs, or says that it may not",
	  emu_file_limit },
	{ "emu_memory_least", "memory that is too small is refused, with what is needed",
	  emu_memory_least },
	{ "emu_memory_lazy", "what a device needs is taken at once, the rest as it is used",
	  emu_memory_lazy },
	{ "emu_no_memory", "a machine without memory is turned away, and the others go on",
	  emu_no_memory },
};

const struct group group_limits = { tests, ARRAY_SIZE(tests) };
