// SPDX-License-Identifier: MIT
/* Members of bootstraps as processes: those that are killed or stopped, and other users. */
#include <sys/resource.h>

#include "boot.h"
#include "procs.h"

struct process {
	char address[100];
	uint32_t nranks;
	uint32_t rank;
	/* Told once it is connected; it then goes on when the other end is closed, or at once. */
	int told;
	int go;
	/* Descriptors that it may have beside those that it has; or 0. */
	unsigned int spare;
	/* How its exchange ends. */
	int expected;
	int64_t deadline_ns;
	const char *words;
};

static void run(void *arg)
{
	const struct process *process = arg;
	struct npuwin_bootstrap_attr attr = make_attr(process->address, process->nranks,
						      process->rank);
	uint8_t mine = given(process->rank, 0, 0), all[MAX_MEMBERS];
	struct npuwin_bootstrap *bs;
	struct npuwin_error err;
	const char *wrong;
	struct rlimit limit;
	char c = 0;
	int rc;

	if (process->spare) {
		must(!getrlimit(RLIMIT_NOFILE, &limit), "getrlimit");
		limit.rlim_cur = open_fds() + process->spare;
		must(!setrlimit(RLIMIT_NOFILE, &limit), "setrlimit");
	}
	must(!npuwin_bootstrap_connect(&attr, &bs, &err), "%s", err.text);
	if (process->told)
		must(write(process->told, &c, 1) == 1, "pipe");
	if (process->go)
		must(!read(process->go, &c, 1), "pipe");
	rc = gather(bs, &mine, all, 1, process->deadline_ns, &err);
	must(rc == process->expected, "rank %u: %d: %s", process->rank, rc, err.text);
	if (rc) {
		must(strstr(err.text, process->words), "%s", err.text);
	} else {
		must(!barrier(bs, far(), &err), "%s", err.text);
		wrong = exchange(bs, 1, 1000);
		must(!wrong, "%s", wrong);
	}
	npuwin_bootstrap_free(bs);
}

static void make_processes(struct process *processes, enum where where, uint32_t n)
{
	uint32_t r;

	memset(processes, 0, n * sizeof(*processes));
	make_address(processes[0].address, sizeof(processes[0].address), where);
	for (r = 0; r < n; r++) {
		memcpy(processes[r].address, processes[0].address, sizeof(processes[0].address));
		processes[r].nranks = n;
		processes[r].rank = r;
		processes[r].deadline_ns = far();
	}
}

static void test_exchange(void **state)
{
	struct process processes[8];
	pid_t pids[8];
	uint32_t r;
	int where;

	for (where = TCP; where < PLACES; where++) {
		make_processes(processes, where, 8);
		for (r = 8; r--;)
			pids[r] = spawn(run, &processes[r]);
		for (r = 0; r < 8; r++)
			reap(pids[r], 0);
	}
}

/* Killed while it waits, with what it gave; another process gives in its place. */
static void test_killed(void **state)
{
	struct process processes[4];
	pid_t pids[4];
	int where, told[2];
	uint32_t r;
	char c;

	for (where = TCP; where < PLACES; where++) {
		assert_int_equal(pipe(told), 0);
		make_processes(processes, where, 4);
		for (r = 0; r < 3; r++) {
			processes[r].told = told[1];
			pids[r] = spawn(run, &processes[r]);
		}
		for (r = 0; r < 3; r++)
			assert_int_equal(read(told[0], &c, 1), 1);
		/* Without rank 3 none of them can be through. */
		kill_and_reap(pids[2]);
		processes[2].told = 0;
		pids[2] = spawn(run, &processes[2]);
		pids[3] = spawn(run, &processes[3]);
		for (r = 0; r < 4; r++)
			reap(pids[r], 0);
		close(told[0]);
		close(told[1]);
	}
}

static void test_first_killed(void **state)
{
	struct process processes[4];
	int where, told[2];
	pid_t pids[3];
	uint32_t r;
	char c;

	for (where = TCP; where < PLACES; where++) {
		assert_int_equal(pipe(told), 0);
		make_processes(processes, where, 4);
		for (r = 0; r < 3; r++) {
			processes[r].told = told[1];
			processes[r].expected = -EPIPE;
			processes[r].deadline_ns = NPUWIN_NO_DEADLINE;
			processes[r].words = "rank 0 is gone";
			pids[r] = spawn(run, &processes[r]);
		}
		for (r = 0; r < 3; r++)
			assert_int_equal(read(told[0], &c, 1), 1);
		kill_and_reap(pids[0]);
		reap(pids[1], 0);
		reap(pids[2], 0);
		if (where == UNIX_PATH)
			assert_int_equal(unlink(processes[0].address + 5), 0);
		close(told[0]);
		close(told[1]);
	}
}

/* A process that does not run says nothing, not even who is missing. */
static void test_first_stopped(void **state)
{
	struct process processes[2];
	struct npuwin_bootstrap_attr attr;
	struct npuwin_bootstrap *bs;
	int told[2], go[2], status;
	struct npuwin_error err;
	pid_t pids[2];
	uint32_t r;
	char c;

	assert_int_equal(pipe(told), 0);
	assert_int_equal(pipe2(go, O_CLOEXEC), 0);
	make_processes(processes, TCP, 2);
	for (r = 0; r < 2; r++) {
		processes[r].told = told[1];
		processes[r].go = go[0];
	}
	processes[1].expected = -ETIMEDOUT;
	processes[1].words = "rank 0's process does not answer";
	for (r = 0; r < 2; r++) {
		pids[r] = fork();
		if (pids[r])
			continue;
		close(go[1]);
		/* From when it starts. */
		processes[r].deadline_ns = npuwin_deadline_ms(r ? 100 : 60000);
		run(&processes[r]);
		_exit(0);
	}
	for (r = 0; r < 2; r++)
		assert_int_equal(read(told[0], &c, 1), 1);
	kill(pids[0], SIGSTOP);
	assert_int_equal(waitpid(pids[0], &status, WUNTRACED), pids[0]);
	close(go[1]);
	reap(pids[1], 0);
	attr = make_attr(processes[0].address, 2, 1);
	attr.deadline_ns = npuwin_deadline_ms(100);
	assert_int_equal(npuwin_bootstrap_connect(&attr, &bs, &err), -ETIMEDOUT);
	assert_non_null(strstr(err.text, "rank 0 has been reached, but has not answered"));
	kill_and_reap(pids[0]);
	close(go[0]);
	close(told[0]);
	close(told[1]);
}

static void come_as_other(void *arg)
{
	const struct process *process = arg;
	struct npuwin_bootstrap_attr attr = make_attr(process->address, 2, 1);
	struct npuwin_bootstrap *bs;
	struct npuwin_error err;

	must(!setgid(65534) && !setuid(65534), "setuid");
	must(npuwin_bootstrap_connect(&attr, &bs, &err) == -EACCES, "%s", err.text);
	must(strstr(err.text, "another user's"), "%s", err.text);
}

static void test_other_user(void **state)
{
	struct process processes[2];
	pid_t pids[2];
	char c;
	int where, told[2];

	if (geteuid())
		skip();
	for (where = UNIX_PATH; where < PLACES; where++) {
		assert_int_equal(pipe(told), 0);
		make_processes(processes, where, 2);
		processes[0].told = told[1];
		pids[0] = spawn(run, &processes[0]);
		assert_int_equal(read(told[0], &c, 1), 1);
		reap(spawn(come_as_other, &processes[1]), 0);
		pids[1] = spawn(run, &processes[1]);
		reap(pids[0], 0);
		reap(pids[1], 0);
		close(told[0]);
		close(told[1]);
	}
}

static void connect_as_other(void *arg)
{
	const struct boot_address *place = arg;
	int fds[8], why;
	size_t i;

	must(!setgid(65534) && !setuid(65534), "setuid");
	/* It sees whose the socket is, and goes; rank 0 finds it in its queue all the same. */
	for (i = 0; i < ARRAY_SIZE(fds); i++)
		must(net_connect(place, "", far(), &why, NULL) == -EACCES, "connected");
}

/* However many of others come, each look at the queue is one connection's worth of work. */
static void test_other_users(void **state)
{
	struct boot_address place;
	struct npuwin_error err;
	char address[100];
	int listener, i;

	if (geteuid())
		skip();
	make_address(address, sizeof(address), UNIX_ABSTRACT);
	assert_int_equal(net_parse(address, &place, &err), 0);
	listener = net_listen(&place, address, &err);
	assert_true(listener >= 0);
	reap(spawn(connect_as_other, &place), 0);
	for (i = 0; i < 8; i++)
		assert_int_equal(net_accept(listener), -EACCES);
	assert_int_equal(net_accept(listener), -EAGAIN);
	close(listener);
}

/* Where rank 0 has no descriptors left, those who have proved nothing give way. */
static void test_descriptors(void **state)
{
	struct process processes[2];
	struct boot_address place;
	int told[2], fds[40], i, why;
	pid_t pids[2];
	char c;

	assert_int_equal(pipe(told), 0);
	make_processes(processes, UNIX_ABSTRACT, 2);
	processes[0].told = told[1];
	processes[0].spare = 12;
	pids[0] = spawn(run, &processes[0]);
	assert_int_equal(read(told[0], &c, 1), 1);
	assert_int_equal(net_parse(processes[0].address, &place, NULL), 0);
	for (i = 0; i < 40; i++) {
		fds[i] = net_connect(&place, processes[0].address, far(), &why, NULL);
		assert_true(fds[i] >= 0);
	}
	pids[1] = spawn(run, &processes[1]);
	reap(pids[0], 0);
	reap(pids[1], 0);
	for (i = 0; i < 40; i++)
		close(fds[i]);
	close(told[0]);
	close(told[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_exchange),
		cmocka_unit_test(test_killed),
		cmocka_unit_test(test_first_killed),
		cmocka_unit_test(test_first_stopped),
		cmocka_unit_test(test_other_user),
		cmocka_unit_test(test_other_users),
		cmocka_unit_test(test_descriptors),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
