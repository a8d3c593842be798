// SPDX-License-Identifier: MIT
/* Meeting by name: parameters, taken ranks, garbage, dead founders, successors, leaks. */
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "procs.h"

struct joiner {
	char name[65];
	uint32_t nranks;
	uint32_t rank;
	uint64_t window_size;
	uint32_t flags;
	int64_t deadline_ns;
	int expected;
	/* What the sentence must hold. */
	const char *words[2];
	/* Told once it has joined; the process then waits for the other end to close. */
	int joined_fd;
	int go_fd;
};

static int join(struct npuwin *ctx, const struct joiner *joiner, struct npuwin_domain **domain,
		struct npuwin_error *err)
{
	struct npuwin_domain_attr attr = {
		.name = joiner->name,
		.nranks = joiner->nranks,
		.rank = joiner->rank,
		.window_size = joiner->window_size,
		.device = -1,
		.flags = joiner->flags,
		.deadline_ns = joiner->deadline_ns,
	};

	return npuwin_domain_join(ctx, &attr, domain, err);
}

static void join_process(void *p)
{
	const struct joiner *joiner = p;
	struct npuwin_domain *domain;
	struct npuwin_error err;
	struct npuwin *ctx;
	int i, rc;
	char c = 0;

	must(!npuwin_open("shm", &ctx, &err), "%s", err.text);
	rc = join(ctx, joiner, &domain, &err);
	must(rc == joiner->expected, "rank %u: %d: %s", joiner->rank, rc, err.text);
	for (i = 0; i < 2 && rc; i++)
		must(!joiner->words[i] || strstr(err.text, joiner->words[i]), "no \"%s\" in %s",
		     joiner->words[i], err.text);
	if (!rc && joiner->joined_fd) {
		must(write(joiner->joined_fd, &c, 1) == 1, "pipe");
		must(!read(joiner->go_fd, &c, 1), "pipe");
		rc = npuwin_barrier(domain, far(), &err);
		must(rc == -EPIPE || !rc, "%d: %s", rc, err.text);
		if (rc)
			must(!npuwin_domain_reset(domain, far(), &err), "%s", err.text);
	}
	if (!rc || joiner->joined_fd)
		must(!npuwin_barrier(domain, far(), &err), "%s", err.text);
	npuwin_domain_leave(domain);
	npuwin_close(ctx);
}

static struct joiner make_joiner(const char *what, uint32_t nranks, uint32_t rank)
{
	struct joiner joiner = {
		.nranks = nranks,
		.rank = rank,
		.window_size = WINDOW,
		.deadline_ns = far(),
	};

	snprintf(joiner.name, sizeof(joiner.name), "unit-%d-%s", (int)getpid(), what);
	return joiner;
}

static void test_many(void **state)
{
	struct joiner joiner[64];
	pid_t pids[64];
	uint32_t rank;

	for (rank = 0; rank < 64; rank++) {
		joiner[rank] = make_joiner("many", 64, rank);
		pids[rank] = spawn(join_process, &joiner[rank]);
	}
	for (rank = 0; rank < 64; rank++)
		reap(pids[rank], 0);
}

static socklen_t address_of(struct sockaddr_un *address, const char *name)
{
	int length;

	memset(address, 0, sizeof(*address));
	address->sun_family = AF_UNIX;
	length = snprintf(address->sun_path + 1, sizeof(address->sun_path) - 1, "npuwin/%u/%s",
			  (unsigned int)geteuid(), name);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

static int connect_to(const char *name)
{
	struct sockaddr_un address;
	socklen_t length = address_of(&address, name);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	while (connect(fd, (struct sockaddr *)&address, length)) {
		assert_true(errno == ECONNREFUSED);
		sched_yield();
	}
	return fd;
}

/* Parameters that differ are told with both values, and hold nobody up. */
static void test_differ(void **state)
{
	struct joiner founder = make_joiner("differ", 2, 0), other;
	pid_t pid = spawn(join_process, &founder);

	close(connect_to(founder.name));
	other = make_joiner("differ", 3, 1);
	other.expected = -EINVAL;
	other.words[0] = "nranks is 3";
	other.words[1] = "has 2";
	reap(spawn(join_process, &other), 0);
	other = make_joiner("differ", 2, 1);
	other.window_size = 2 * WINDOW;
	other.expected = -EINVAL;
	other.words[0] = "131072";
	other.words[1] = "65536";
	reap(spawn(join_process, &other), 0);
	other = make_joiner("differ", 2, 0);
	other.expected = -EBUSY;
	other.words[0] = "rank 0 is taken";
	reap(spawn(join_process, &other), 0);
	other = make_joiner("differ", 2, 1);
	reap(spawn(join_process, &other), 0);
	reap(pid, 0);
}

static void test_garbage(void **state)
{
	struct joiner founder = make_joiner("garbage", 2, 0);
	struct joiner other = make_joiner("garbage", 2, 1);
	static const char junk[4096] = { 1, 2, 3 };
	pid_t pid = spawn(join_process, &founder);
	int fds[200], i;

	/* More silent ones than there is room for, and some that talk nonsense. */
	for (i = 0; i < 200; i++) {
		fds[i] = connect_to(founder.name);
		if (i % 3)
			send(fds[i], junk, (size_t)i * 20, MSG_NOSIGNAL);
	}
	reap(spawn(join_process, &other), 0);
	reap(pid, 0);
	for (i = 0; i < 200; i++)
		close(fds[i]);
}

static void test_late(void **state)
{
	struct joiner founder = make_joiner("late", 3, 1);

	founder.deadline_ns = npuwin_deadline_ms(50);
	founder.expected = -ETIMEDOUT;
	founder.words[0] = "rank 0 has not joined";
	founder.words[1] = "late";
	reap(spawn(join_process, &founder), 0);
	founder.flags = NPUWIN_DOMAIN_REPLACE;
	founder.deadline_ns = npuwin_deadline_ms(50);
	founder.words[0] = "successor of rank 1";
	reap(spawn(join_process, &founder), 0);
}

static bool name_is_served(const char *name)
{
	struct sockaddr_un address;
	socklen_t length = address_of(&address, name);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	bool served = !connect(fd, (struct sockaddr *)&address, length);

	close(fd);
	return served;
}

/* The others begin anew, and the founder's place can be taken again. */
static void test_founder_dies(void **state)
{
	struct joiner joiner[3];
	pid_t pids[3];
	uint32_t round, rank;

	for (round = 0; round < 10; round++) {
		joiner[0] = make_joiner("founder", 3, 0);
		pids[0] = spawn(join_process, &joiner[0]);
		while (!name_is_served(joiner[0].name))
			sched_yield();
		joiner[1] = make_joiner("founder", 3, 1);
		pids[1] = spawn(join_process, &joiner[1]);
		for (rank = 0; rank < round * 20; rank++)
			sched_yield();
		kill_and_reap(pids[0]);
		pids[0] = spawn(join_process, &joiner[0]);
		joiner[2] = make_joiner("founder", 3, 2);
		pids[2] = spawn(join_process, &joiner[2]);
		for (rank = 0; rank < 3; rank++)
			reap(pids[rank], 0);
	}
}

/* A rank dies when all are there; the survivors reset, and let a successor in by name. */
static void test_successor(void **state)
{
	struct joiner joiner[3], heir, stranger;
	int joined[2], go[2];
	pid_t pids[3];
	uint32_t rank;
	char c;

	assert_int_equal(pipe(joined), 0);
	assert_int_equal(pipe(go), 0);
	for (rank = 0; rank < 3; rank++) {
		joiner[rank] = make_joiner("heir", 3, rank);
		joiner[rank].joined_fd = joined[1];
		joiner[rank].go_fd = go[0];
		pids[rank] = fork();
		if (!pids[rank]) {
			close(go[1]);
			join_process(&joiner[rank]);
			_exit(0);
		}
	}
	for (rank = 0; rank < 3; rank++)
		assert_int_equal(read(joined[0], &c, 1), 1);
	kill_and_reap(pids[0]);
	close(go[1]);
	while (!name_is_served(joiner[0].name))
		sched_yield();
	/* Who does not come as a successor is told how. */
	stranger = make_joiner("heir", 3, 0);
	stranger.expected = -EBUSY;
	stranger.words[0] = "NPUWIN_DOMAIN_REPLACE";
	reap(spawn(join_process, &stranger), 0);
	heir = make_joiner("heir", 3, 0);
	heir.flags = NPUWIN_DOMAIN_REPLACE;
	reap(spawn(join_process, &heir), 0);
	reap(pids[1], 0);
	reap(pids[2], 0);
	close(joined[0]);
	close(joined[1]);
	close(go[0]);
}

static void cycles(void *p)
{
	struct joiner joiner = make_joiner("cycle", 1, 0);
	unsigned int i, fds = 0, maps = 0;
	struct npuwin_domain *domain;
	struct npuwin_error err;
	struct npuwin *ctx;

	for (i = 0; i < 1000; i++) {
		must(!npuwin_open("shm", &ctx, &err), "%s", err.text);
		joiner.deadline_ns = far();
		must(!join(ctx, &joiner, &domain, &err), "%s", err.text);
		npuwin_domain_leave(domain);
		npuwin_close(ctx);
		if (i == 10) {
			fds = count_fds();
			maps = count_maps();
		}
	}
	must(count_fds() == fds, "descriptors leak");
	/* The allocator may keep some. */
	must(count_maps() < maps + 10, "mappings leak");
}

static void test_cycles(void **state)
{
	reap(spawn(cycles, NULL), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_many),
		cmocka_unit_test(test_differ),
		cmocka_unit_test(test_garbage),
		cmocka_unit_test(test_late),
		cmocka_unit_test(test_founder_dies),
		cmocka_unit_test(test_successor),
		cmocka_unit_test(test_cycles),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
