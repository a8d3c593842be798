// SPDX-License-Identifier: GPL-2.0-only
/* /sys/class/npuwin: what a device says of itself, and that its counters count exactly. */
#include "common.h"

#include <sys/stat.h>

#define SIZE	MIB

FIXTURE(sysfs)
{
	struct team team;
};

FIXTURE_SETUP(sysfs)
{
	if (!have_devices())
		SKIP(LEAVE_TEST, NEEDS_DEVICES);
	ASSERT_EQ(0, team_make(&self->team, 2, SIZE));
}

FIXTURE_TEARDOWN(sysfs)
{
	team_free(&self->team);
}

/* The first line of an attribute of a device, or "". */
static const char *text_of(int n, const char *name, char *text, int size)
{
	char path[96];
	FILE *file;

	*text = 0;
	snprintf(path, sizeof(path), "/sys/class/npuwin/npuwin%d/%s", n, name);
	file = fopen(path, "re");
	if (file) {
		if (fgets(text, size, file))
			text[strcspn(text, "\n")] = 0;
		fclose(file);
	}
	return text;
}

TEST_F(sysfs, agrees_with_query)
{
	struct npuwin_ioc_query query = { .size = sizeof(query) };
	char text[64];

	ASSERT_EQ(0, call(self->team.rank[0].fd, NPUWIN_IOC_QUERY, &query));
	EXPECT_STREQ((char *)query.backend, text_of(0, "backend", text, sizeof(text)));
	EXPECT_EQ(query.numa_node,
		  strtol(text_of(0, "numa_node", text, sizeof(text)), NULL, 10));
	EXPECT_EQ(query.memory_total, device_attr(0, "memory_total"));
	EXPECT_EQ(query.memory_used, device_attr(0, "memory_used"));
	EXPECT_NE(0, strlen(text_of(0, "name", text, sizeof(text))));
	EXPECT_NE(0, strlen(text_of(0, "firmware", text, sizeof(text))));
	EXPECT_GE(strtol(text_of(0, "abi_level", text, sizeof(text)), NULL, 10), 1);
	if (query.caps & NPUWIN_CAP_FABRIC) {
		EXPECT_STREQ("ready", text_of(0, "state", text, sizeof(text)));
		EXPECT_NE(0, strtoull(text_of(0, "fabric_id", text, sizeof(text)), NULL, 16));
	}
}

/* Nobody but root and, by the udev rule, a group opens a device; nobody writes to an attribute. */
TEST_F(sysfs, modes)
{
	static const char *const names[] = {
		"name", "backend", "firmware", "abi_level", "memory_total", "memory_used",
		"numa_node", "queues", "domains", "stats/doorbells", "stats/interrupts",
		"stats/descriptors", "stats/bytes", "errors/timeouts", "errors/bounds",
		"errors/peer_deaths", "errors/aborts",
	};
	struct stat st;
	char path[96];
	size_t i;

	ASSERT_EQ(0, stat("/dev/npuwin0", &st));
	EXPECT_EQ(S_IFCHR | 0660, st.st_mode);
	for (i = 0; i < ARRAY_LEN(names); i++) {
		snprintf(path, sizeof(path), "/sys/class/npuwin/npuwin0/%s", names[i]);
		ASSERT_EQ(0, stat(path, &st)) TH_LOG("%s", path);
		EXPECT_EQ(S_IFREG | 0444, st.st_mode) TH_LOG("%s", path);
	}
}

TEST_F(sysfs, objects)
{
	uint32_t id, queue;

	EXPECT_EQ(SIZE, device_attr(0, "memory_used"));
	EXPECT_EQ(1, device_attr(0, "queues"));
	EXPECT_EQ(1, device_attr(0, "domains"));
	ASSERT_EQ(0, window_alloc(self->team.rank[0].fd, 2 * SIZE, &id, NULL));
	EXPECT_EQ(3 * SIZE, device_attr(0, "memory_used"));
	ASSERT_EQ(0, queue_create(self->team.rank[0].fd, self->team.domain, 0, 1, -1, &queue));
	EXPECT_EQ(2, device_attr(0, "queues"));
	ASSERT_EQ(0, destroy(self->team.rank[0].fd, queue));
	ASSERT_EQ(0, destroy(self->team.rank[0].fd, id));
	EXPECT_EQ(SIZE, device_attr(0, "memory_used"));
	EXPECT_EQ(1, device_attr(0, "queues"));
	ASSERT_EQ(0, domain_leave(self->team.rank[0].fd, self->team.domain, 0));
	EXPECT_EQ(0, device_attr(0, "domains"));
	EXPECT_EQ(1, device_attr(1, "domains"));
}

static const char *const counters[] = {
	"stats/doorbells", "stats/descriptors", "stats/bytes", "errors/timeouts",
	"errors/bounds", "errors/peer_deaths", "errors/aborts",
};

enum { DOORBELLS, DESCRIPTORS, BYTES, TIMEOUTS, BOUNDS, DEATHS, ABORTS, COUNTERS };

static void read_counters(int n, uint64_t *values)
{
	int i;

	for (i = 0; i < COUNTERS; i++)
		values[i] = device_attr(n, counters[i]);
}

/* What has been counted since @before, against what should have been. */
static int counted(int n, const uint64_t *before, const uint64_t *expect)
{
	uint64_t now[COUNTERS];
	int i, wrong = 0;

	read_counters(n, now);
	for (i = 0; i < COUNTERS; i++) {
		if (now[i] - before[i] == expect[i])
			continue;
		printf("# device %d: %s grew by %" PRIu64 ", not %" PRIu64 "\n", n, counters[i],
		       now[i] - before[i], expect[i]);
		wrong = 1;
	}
	return wrong;
}

TEST_F(sysfs, counters)
{
	const struct rank *a = &self->team.rank[0];
	/* Of each kind: completions in the middle, and none but of the last. */
	struct npuwin_desc descs[6] = {
		put(1, 0, 0, 100), notify(1, 4096, 1), put(1, 0, 0, 1000), nop(0),
		put(1, 0, 0, 10000), nop(NPUWIN_DESC_F_CQE),
	};
	uint64_t before[2][COUNTERS], idle[COUNTERS] = { 0 };
	struct npuwin_desc bad = put(1, SIZE, 0, 8);
	struct npuwin_desc late = twait(0, NPUWIN_CMP_EQ, 77, 0);
	struct npuwin_cqe cqes[6];
	uint32_t n;
	int i;

	read_counters(0, before[0]);
	read_counters(1, before[1]);
	for (i = 0; i < 5; i++)
		descs[i].flags = i == 2 ? NPUWIN_DESC_F_CQE : 0;
	for (i = 0; i < 3; i++) {
		n = 2;
		ASSERT_EQ(0, submit_wait(a->fd, a->queue, descs, 6, cqes, &n, in_ms(10000)));
		ASSERT_EQ(2, n);
	}
	EXPECT_EQ(0, counted(0, before[0], (uint64_t [COUNTERS]) {
		[DOORBELLS] = 3, [DESCRIPTORS] = 18, [BYTES] = 3 * 11100,
	}));
	EXPECT_EQ(0, counted(1, before[1], idle));

	read_counters(0, before[0]);
	EXPECT_EQ(NPUWIN_ST_BOUNDS, execute(a->fd, a->queue, &bad, 1, NULL));
	ASSERT_EQ(0, queue_reset(a->fd, a->queue));
	EXPECT_EQ(NPUWIN_ST_TIMEOUT, execute(a->fd, a->queue, &late, 1, NULL));
	ASSERT_EQ(0, queue_reset(a->fd, a->queue));
	EXPECT_EQ(0, counted(0, before[0], (uint64_t [COUNTERS]) {
		[DOORBELLS] = 2, [DESCRIPTORS] = 2, [TIMEOUTS] = 1, [BOUNDS] = 1,
	}));

	read_counters(0, before[0]);
	ASSERT_EQ(0, domain_abort(a->fd, self->team.domain, 0, EIO));
	EXPECT_EQ(0, counted(0, before[0], (uint64_t [COUNTERS]) { [ABORTS] = 1 }));
	EXPECT_EQ(0, counted(1, before[1], idle));
}

/* Whose file is released while it is a rank has died. */
TEST_F(sysfs, deaths)
{
	uint64_t before[COUNTERS];
	int fd = device_open(1), domain;
	uint32_t window;

	ASSERT_GE(fd, 0);
	domain = domain_create(fd, 1, SIZE);
	ASSERT_GE(domain, 0);
	ASSERT_EQ(0, window_alloc(fd, SIZE, &window, NULL));
	ASSERT_EQ(0, domain_join(fd, domain, 0, window));
	read_counters(1, before);
	close(fd);
	EXPECT_EQ(0, counted(1, before, (uint64_t [COUNTERS]) { [DEATHS] = 1 }));
	close(domain);
}

TEST_HARNESS_MAIN
