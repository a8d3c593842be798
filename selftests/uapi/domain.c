// SPDX-License-Identifier: GPL-2.0-only
/* Domains: who may do what in which state, and what is left when somebody goes. */
#include "common.h"

#define SIZE	(64 * 1024)

FIXTURE(domains)
{
	int fd[3];
	uint32_t window[3];
	int domain;
	uint64_t used[2];
};

FIXTURE_SETUP(domains)
{
	int i;

	if (!have_devices())
		SKIP(LEAVE_TEST, NEEDS_DEVICES);
	for (i = 0; i < 2; i++)
		self->used[i] = device_attr(i, "memory_used");
	for (i = 0; i < 3; i++) {
		self->fd[i] = device_open(i % 2);
		ASSERT_GE(self->fd[i], 0);
		ASSERT_EQ(0, window_alloc(self->fd[i], SIZE, &self->window[i], NULL));
	}
	self->domain = domain_create(self->fd[0], 3, SIZE);
	ASSERT_GE(self->domain, 0);
}

FIXTURE_TEARDOWN(domains)
{
	int i;

	for (i = 0; i < 3; i++) {
		if (self->fd[i] >= 0)
			close(self->fd[i]);
	}
	close(self->domain);
	for (i = 0; i < 2; i++)
		EXPECT_EQ(self->used[i], device_attr(i, "memory_used"));
}

static int join(struct _test_data_domains *self, int i)
{
	return domain_join(self->fd[i], self->domain, i, self->window[i]);
}

static int commit(struct _test_data_domains *self, int i, int64_t deadline, uint32_t *missing)
{
	return domain_sync(self->fd[i], NPUWIN_IOC_DOMAIN_COMMIT, self->domain, i, deadline,
			   missing);
}

static int reset(struct _test_data_domains *self, int i, int64_t deadline, uint32_t *missing)
{
	return domain_sync(self->fd[i], NPUWIN_IOC_DOMAIN_RESET, self->domain, i, deadline,
			   missing);
}

static int make_ready(struct _test_data_domains *self)
{
	int i, ret = 0;

	for (i = 0; i < 3 && !ret; i++)
		ret = join(self, i);
	for (i = 0; i < 3 && (!ret || ret == -EAGAIN); i++)
		ret = commit(self, i, 0, NULL);
	return ret;
}

TEST_F(domains, create)
{
	struct npuwin_ioc_domain_info info = domain_info(self->domain);

	EXPECT_EQ(FD_CLOEXEC, fcntl(self->domain, F_GETFD));
	EXPECT_EQ(3, info.nranks);
	EXPECT_EQ(NPUWIN_DOMAIN_FORMING, info.state);
	EXPECT_EQ(0, info.generation);
	EXPECT_EQ(0, info.joined);
	EXPECT_EQ(NPUWIN_NO_RANK, info.abort_rank);
	EXPECT_EQ(0, info.abort_error);
	EXPECT_EQ(SIZE, info.window_size);
	EXPECT_GE(info.notify_stride, NPUWIN_NOTIFY_REGS * 4);
	EXPECT_GE(info.status_length, 64 + 3 * sizeof(struct npuwin_rank_status));
}

TEST_F(domains, create_errors)
{
	const struct {
		uint32_t nranks;
		uint64_t size;
		int error;
	} tests[] = {
		{ 0, SIZE, -EINVAL },
		{ NPUWIN_MAX_RANKS + 1, SIZE, -EINVAL },
		{ UINT32_MAX, SIZE, -EINVAL },
		{ 1, 0, -EINVAL },
		{ 1, SIZE + 1, -EINVAL },
		{ 1, UINT64_MAX, -EINVAL },
		{ 2, 1ULL << 63, -EOVERFLOW },
		{ NPUWIN_MAX_RANKS, 1ULL << 56, -EOVERFLOW },
	};
	size_t i;

	for (i = 0; i < ARRAY_LEN(tests); i++) {
		struct npuwin_ioc_domain_create cmd, before;

		memset(&cmd, POISON, sizeof(cmd));
		cmd.size = sizeof(cmd);
		cmd.flags = 0;
		cmd.nranks = tests[i].nranks;
		cmd.window_size = tests[i].size;
		before = cmd;
		EXPECT_EQ(tests[i].error, call(self->fd[0], NPUWIN_IOC_DOMAIN_CREATE, &cmd))
			TH_LOG("%zu", i);
		EXPECT_EQ(0, memcmp(&cmd, &before, sizeof(cmd)));
	}
}

/* Without a descriptor to have it in. */
TEST_F(domains, create_without_fd)
{
	struct rlimit old, none;

	ASSERT_EQ(0, getrlimit(RLIMIT_NOFILE, &old));
	none = old;
	none.rlim_cur = 3;
	ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &none));
	EXPECT_EQ(-EMFILE, domain_create(self->fd[0], 1, SIZE));
	ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &old));
}

TEST_F(domains, join)
{
	uint64_t joined = device_attr(0, "domains");
	uint32_t small, other;
	int pipes[2];

	ASSERT_EQ(0, pipe(pipes));
	ASSERT_EQ(0, window_alloc(self->fd[0], SIZE / 2, &small, NULL));
	ASSERT_EQ(0, window_alloc(self->fd[0], SIZE, &other, NULL));
	EXPECT_EQ(-EBADF, domain_join(self->fd[0], -1, 0, self->window[0]));
	EXPECT_EQ(-EBADF, domain_join(self->fd[0], 1000, 0, self->window[0]));
	EXPECT_EQ(-EBADF, domain_join(self->fd[0], pipes[0], 0, self->window[0]));
	EXPECT_EQ(-EBADF, domain_join(self->fd[0], self->fd[0], 0, self->window[0]));
	EXPECT_EQ(-ENOENT, domain_join(self->fd[0], self->domain, 0, 9999));
	EXPECT_EQ(-EINVAL, domain_join(self->fd[0], self->domain, 3, self->window[0]));
	EXPECT_EQ(-EINVAL, domain_join(self->fd[0], self->domain, 0, small));
	EXPECT_EQ(0, domain_info(self->domain).joined);

	ASSERT_EQ(0, join(self, 0));
	EXPECT_EQ(1, domain_info(self->domain).joined);
	/* The rank is taken; the window is. */
	EXPECT_EQ(-EBUSY, domain_join(self->fd[0], self->domain, 0, other));
	EXPECT_EQ(-EBUSY, domain_join(self->fd[1], self->domain, 0, self->window[1]));
	EXPECT_EQ(-EBUSY, domain_join(self->fd[0], self->domain, 1, self->window[0]));
	EXPECT_EQ(-EBUSY, destroy(self->fd[0], self->window[0]));
	/* One file can be several ranks. */
	EXPECT_EQ(0, domain_join(self->fd[0], self->domain, 2, other));
	EXPECT_EQ(2, domain_info(self->domain).joined);
	EXPECT_EQ(joined + 2, device_attr(0, "domains"));
	close(pipes[0]);
	close(pipes[1]);
}

TEST_F(domains, belongs_to_file)
{
	uint32_t queue;

	ASSERT_EQ(0, join(self, 0));
	EXPECT_EQ(-EACCES, domain_commit(self->fd[1], self->domain, 0, 0));
	EXPECT_EQ(-EACCES, domain_reset(self->fd[1], self->domain, 0, 0));
	EXPECT_EQ(-EACCES, domain_leave(self->fd[1], self->domain, 0));
	EXPECT_EQ(-EACCES, domain_abort(self->fd[1], self->domain, 0, EIO));
	EXPECT_EQ(-EACCES, queue_create(self->fd[1], self->domain, 0, 1, -1, &queue));
	/* Ranks that nobody has, and that there are not. */
	EXPECT_EQ(-ENOENT, domain_commit(self->fd[0], self->domain, 1, 0));
	EXPECT_EQ(-ENOENT, domain_reset(self->fd[0], self->domain, 1, 0));
	EXPECT_EQ(-ENOENT, domain_leave(self->fd[0], self->domain, 1));
	EXPECT_EQ(-ENOENT, domain_abort(self->fd[0], self->domain, 1, EIO));
	EXPECT_EQ(-ENOENT, queue_create(self->fd[0], self->domain, 1, 1, -1, &queue));
	EXPECT_EQ(-ENOENT, domain_commit(self->fd[0], self->domain, 3, 0));
	EXPECT_EQ(-ENOENT, domain_commit(self->fd[0], self->domain, UINT32_MAX, 0));
	EXPECT_EQ(NPUWIN_DOMAIN_FORMING, domain_info(self->domain).state);
}

TEST_F(domains, commit)
{
	struct npuwin_ioc_domain_sync cmd;
	uint32_t missing;
	int64_t start;

	ASSERT_EQ(0, join(self, 0));
	ASSERT_EQ(0, join(self, 2));
	memset(&cmd, POISON, sizeof(cmd));
	cmd.size = sizeof(cmd);
	cmd.flags = 0;
	cmd.domain_fd = self->domain;
	cmd.rank = 0;
	cmd.deadline_ns = -1;
	EXPECT_EQ(-EINVAL, call(self->fd[0], NPUWIN_IOC_DOMAIN_COMMIT, &cmd));
	EXPECT_EQ(0xa5a5a5a5, cmd.missing_rank);
	EXPECT_EQ(0xa5a5a5a5, cmd.generation);

	cmd.deadline_ns = 0;
	EXPECT_EQ(-EAGAIN, call(self->fd[0], NPUWIN_IOC_DOMAIN_COMMIT, &cmd));
	EXPECT_EQ(1, cmd.missing_rank);
	EXPECT_EQ(0, cmd.generation);
	start = now_ns();
	EXPECT_EQ(-ETIMEDOUT, commit(self, 0, in_ms(50), &missing));
	EXPECT_GE(now_ns() - start, 50 * 1000000);
	EXPECT_EQ(1, missing);
	EXPECT_EQ(-ETIMEDOUT, commit(self, 0, 1, &missing));
	ASSERT_EQ(0, join(self, 1));
	EXPECT_EQ(-EAGAIN, commit(self, 2, 0, &missing));
	EXPECT_EQ(1, missing);
	EXPECT_EQ(NPUWIN_DOMAIN_FORMING, domain_info(self->domain).state);
	EXPECT_EQ(0, commit(self, 1, 0, &missing));
	EXPECT_EQ(NPUWIN_NO_RANK, missing);
	EXPECT_EQ(NPUWIN_DOMAIN_READY, domain_info(self->domain).state);
	EXPECT_EQ(0, commit(self, 0, 0, NULL));
	EXPECT_EQ(0, commit(self, 2, NPUWIN_NO_DEADLINE, NULL));
	/* Ready: nobody joins, and there is nothing to reset. */
	EXPECT_EQ(-EINVAL, reset(self, 0, 0, NULL));
}

struct sync_call {
	int fd;
	int domain;
	uint32_t rank;
	unsigned long nr;
	int64_t deadline;
	int ret;
	uint32_t missing;
	pthread_t thread;
};

static void *sync_thread(void *arg)
{
	struct sync_call *sync = arg;

	sync->ret = domain_sync(sync->fd, sync->nr, sync->domain, sync->rank, sync->deadline,
				&sync->missing);
	return NULL;
}

static void sync_start(struct sync_call *sync, struct _test_data_domains *self, int i,
		       unsigned long nr)
{
	*sync = (struct sync_call) {
		.fd = self->fd[i], .domain = self->domain, .rank = i, .nr = nr,
		.deadline = in_ms(20000),
	};
	pthread_create(&sync->thread, NULL, sync_thread, sync);
}

TEST_F(domains, commit_waits)
{
	struct sync_call first, second;
	int i;

	for (i = 0; i < 3; i++)
		ASSERT_EQ(0, join(self, i));
	sync_start(&first, self, 0, NPUWIN_IOC_DOMAIN_COMMIT);
	sync_start(&second, self, 1, NPUWIN_IOC_DOMAIN_COMMIT);
	sleep_ms(50);
	EXPECT_EQ(0, commit(self, 2, 0, NULL));
	pthread_join(first.thread, NULL);
	pthread_join(second.thread, NULL);
	EXPECT_EQ(0, first.ret);
	EXPECT_EQ(0, second.ret);
	EXPECT_EQ(NPUWIN_NO_RANK, first.missing);
}

TEST_F(domains, leave)
{
	uint64_t joined = device_attr(0, "domains"), queues = device_attr(0, "queues");
	uint32_t queue, missing, gone, index;
	struct npuwin_signal signal = {
		.rank = 1, .peer = 0, .value = 1, .cmp = NPUWIN_CMP_EQ,
	};

	/* While it is forming, the place is free again. */
	ASSERT_EQ(0, join(self, 0));
	EXPECT_EQ(-EAGAIN, commit(self, 0, 0, NULL));
	ASSERT_EQ(0, domain_leave(self->fd[0], self->domain, 0));
	EXPECT_EQ(-ENOENT, domain_leave(self->fd[0], self->domain, 0));
	EXPECT_EQ(0, domain_info(self->domain).joined);
	EXPECT_EQ(joined, device_attr(0, "domains"));
	ASSERT_EQ(0, join(self, 1));
	ASSERT_EQ(0, join(self, 2));
	EXPECT_EQ(-EAGAIN, commit(self, 1, 0, NULL));
	EXPECT_EQ(-EAGAIN, commit(self, 2, 0, &missing));
	EXPECT_EQ(0, missing);
	ASSERT_EQ(0, join(self, 0));
	ASSERT_EQ(0, queue_create(self->fd[0], self->domain, 0, 8, -1, &queue));
	/* Its earlier arrival does not count. */
	EXPECT_EQ(NPUWIN_DOMAIN_FORMING, domain_info(self->domain).state);
	EXPECT_EQ(0, commit(self, 0, 0, NULL));

	/* When it is ready, only those that wait for it are disturbed. */
	ASSERT_EQ(0, domain_leave(self->fd[0], self->domain, 0));
	EXPECT_EQ(NPUWIN_DOMAIN_READY, domain_info(self->domain).state);
	EXPECT_EQ(-ENOENT, destroy(self->fd[0], queue));
	EXPECT_EQ(queues, device_attr(0, "queues"));
	EXPECT_EQ(-EBUSY, join(self, 0));
	EXPECT_EQ(-EPIPE, signal_wait(self->domain, &signal, 1, in_ms(1000), &index, &gone));
	EXPECT_EQ(0, gone);
	EXPECT_EQ(0, index);
	signal.peer = 2;
	EXPECT_EQ(-EAGAIN, signal_wait(self->domain, &signal, 1, 0, NULL, NULL));
	EXPECT_EQ(0, commit(self, 1, 0, NULL));
	/* The window is free. */
	EXPECT_EQ(0, destroy(self->fd[0], self->window[0]));
	ASSERT_EQ(0, window_alloc(self->fd[0], SIZE, &self->window[0], NULL));
}

TEST_F(domains, abort)
{
	struct npuwin_ioc_domain_leave cmd = {
		.size = sizeof(cmd), .domain_fd = self->domain,
	};
	struct npuwin_signal signal = {
		.rank = 1, .peer = 0, .value = 1, .cmp = NPUWIN_CMP_EQ,
	};
	struct npuwin_desc desc = nop(NPUWIN_DESC_F_CQE);
	uint64_t aborts = device_attr(0, "errors/aborts");
	struct npuwin_ioc_domain_info info;
	uint32_t queue, other, missing, gone, index;

	ASSERT_EQ(0, make_ready(self));
	ASSERT_EQ(0, queue_create(self->fd[1], self->domain, 1, 8, -1, &queue));
	EXPECT_EQ(-EINVAL, call(self->fd[0], NPUWIN_IOC_DOMAIN_ABORT, &cmd));
	cmd.error = 4096;
	EXPECT_EQ(-EINVAL, call(self->fd[0], NPUWIN_IOC_DOMAIN_ABORT, &cmd));
	EXPECT_EQ(NPUWIN_DOMAIN_READY, domain_info(self->domain).state);

	ASSERT_EQ(0, domain_abort(self->fd[2], self->domain, 2, EIO));
	info = domain_info(self->domain);
	EXPECT_EQ(NPUWIN_DOMAIN_ABORTED, info.state);
	EXPECT_EQ(2, info.abort_rank);
	EXPECT_EQ(EIO, info.abort_error);
	EXPECT_EQ(3, info.joined);
	EXPECT_EQ(aborts + 1, device_attr(0, "errors/aborts"));
	/* The first one is told. */
	EXPECT_EQ(0, domain_abort(self->fd[0], self->domain, 0, EPERM));
	EXPECT_EQ(2, domain_info(self->domain).abort_rank);

	EXPECT_EQ(-ECANCELED, commit(self, 0, 0, &missing));
	EXPECT_EQ(NPUWIN_NO_RANK, missing);
	EXPECT_EQ(-ECANCELED, queue_create(self->fd[0], self->domain, 0, 8, -1, &other));
	EXPECT_EQ(-ECANCELED, submit(self->fd[1], queue, &desc, 1));
	EXPECT_EQ(-ECANCELED, queue_reset(self->fd[1], queue));
	EXPECT_EQ(-ECANCELED,
		  signal_wait(self->domain, &signal, 1, in_ms(1000), &index, &gone));
	EXPECT_EQ(NPUWIN_NO_RANK, gone);
	EXPECT_EQ(1, index);
	EXPECT_EQ(-EBUSY, domain_join(self->fd[0], self->domain, 0, self->window[0]));
	EXPECT_EQ(0, domain_leave(self->fd[0], self->domain, 0));
}

TEST_F(domains, abort_wakes)
{
	struct sync_call first;
	int i;

	for (i = 0; i < 3; i++)
		ASSERT_EQ(0, join(self, i));
	sync_start(&first, self, 0, NPUWIN_IOC_DOMAIN_COMMIT);
	sleep_ms(50);
	/* A forming domain can be aborted, too. */
	ASSERT_EQ(0, domain_abort(self->fd[1], self->domain, 1, EIO));
	pthread_join(first.thread, NULL);
	EXPECT_EQ(-ECANCELED, first.ret);
}

TEST_F(domains, reset)
{
	struct npuwin_desc desc = nop(NPUWIN_DESC_F_CQE);
	struct sync_call first;
	uint32_t queue, missing, n;
	struct npuwin_cqe cqe;

	ASSERT_EQ(0, make_ready(self));
	ASSERT_EQ(0, queue_create(self->fd[0], self->domain, 0, 8, -1, &queue));
	ASSERT_EQ(0, submit(self->fd[0], queue, &desc, 1));
	ASSERT_EQ(0, domain_abort(self->fd[2], self->domain, 2, EIO));
	EXPECT_EQ(-EAGAIN, reset(self, 0, 0, &missing));
	EXPECT_EQ(1, missing);
	/* Its queues are empty now. */
	n = 1;
	EXPECT_EQ(-ECANCELED, queue_wait(self->fd[0], queue, &cqe, 1, &n, 0));
	EXPECT_EQ(-ETIMEDOUT, reset(self, 0, in_ms(20), &missing));
	EXPECT_EQ(1, missing);
	EXPECT_EQ(NPUWIN_DOMAIN_ABORTED, domain_info(self->domain).state);
	sync_start(&first, self, 1, NPUWIN_IOC_DOMAIN_RESET);
	sleep_ms(50);
	EXPECT_EQ(0, reset(self, 2, 0, NULL));
	pthread_join(first.thread, NULL);
	EXPECT_EQ(0, first.ret);
	/* Who gave up waiting is told when he asks again, and only once. */
	EXPECT_EQ(0, reset(self, 0, 0, NULL));
	EXPECT_EQ(-EINVAL, reset(self, 0, 0, NULL));
	EXPECT_EQ(-EINVAL, reset(self, 1, 0, NULL));

	EXPECT_EQ(NPUWIN_DOMAIN_FORMING, domain_info(self->domain).state);
	EXPECT_EQ(1, domain_info(self->domain).generation);
	EXPECT_EQ(NPUWIN_NO_RANK, domain_info(self->domain).abort_rank);
	EXPECT_EQ(0, domain_info(self->domain).abort_error);
	/* All commit again. */
	EXPECT_EQ(-EAGAIN, submit(self->fd[0], queue, &desc, 1));
	EXPECT_EQ(-EAGAIN, commit(self, 0, 0, NULL));
	EXPECT_EQ(-EAGAIN, commit(self, 1, 0, &missing));
	EXPECT_EQ(2, missing);
	EXPECT_EQ(0, commit(self, 2, 0, NULL));
	EXPECT_EQ(NPUWIN_ST_OK, execute(self->fd[0], queue, &desc, 1, &cqe));
	/* Descriptors are counted from the queue's creation. */
	EXPECT_EQ(1, cqe.seq);
}

/* Death in any state, by closing the file. */
TEST_F(domains, death)
{
	struct npuwin_desc desc = nop(NPUWIN_DESC_F_CQE);
	uint64_t deaths = device_attr(1, "errors/peer_deaths");
	struct npuwin_ioc_domain_info info;
	uint32_t queue, missing;
	struct sync_call first;
	int spare;

	ASSERT_EQ(0, make_ready(self));
	ASSERT_EQ(0, queue_create(self->fd[0], self->domain, 0, 8, -1, &queue));
	close(self->fd[1]);
	self->fd[1] = -1;
	info = domain_info(self->domain);
	EXPECT_EQ(NPUWIN_DOMAIN_ABORTED, info.state);
	EXPECT_EQ(1, info.abort_rank);
	EXPECT_EQ(EPIPE, info.abort_error);
	EXPECT_EQ(2, info.joined);
	EXPECT_EQ(deaths + 1, device_attr(1, "errors/peer_deaths"));
	EXPECT_EQ(self->used[1], device_attr(1, "memory_used"));
	EXPECT_EQ(-EPIPE, commit(self, 0, 0, &missing));
	EXPECT_EQ(1, missing);
	EXPECT_EQ(-EPIPE, submit(self->fd[0], queue, &desc, 1));

	/* Only survivors are waited for. One of them dies meanwhile. */
	EXPECT_EQ(-EAGAIN, reset(self, 0, 0, &missing));
	EXPECT_EQ(2, missing);
	sync_start(&first, self, 0, NPUWIN_IOC_DOMAIN_RESET);
	sleep_ms(20);
	close(self->fd[2]);
	self->fd[2] = -1;
	pthread_join(first.thread, NULL);
	EXPECT_EQ(0, first.ret);
	info = domain_info(self->domain);
	EXPECT_EQ(NPUWIN_DOMAIN_FORMING, info.state);
	EXPECT_EQ(1, info.joined);
	EXPECT_EQ(1, info.generation);

	/* Their places can be taken anew. */
	EXPECT_EQ(-EAGAIN, commit(self, 0, 0, &missing));
	EXPECT_EQ(1, missing);
	spare = device_open(1);
	ASSERT_GE(spare, 0);
	self->fd[1] = spare;
	ASSERT_EQ(0, window_alloc(spare, SIZE, &self->window[1], NULL));
	ASSERT_EQ(0, join(self, 1));
	self->fd[2] = device_open(0);
	ASSERT_EQ(0, window_alloc(self->fd[2], SIZE, &self->window[2], NULL));
	ASSERT_EQ(0, join(self, 2));
	EXPECT_EQ(-EAGAIN, commit(self, 1, 0, NULL));
	EXPECT_EQ(0, commit(self, 2, 0, NULL));
	EXPECT_EQ(NPUWIN_ST_OK, execute(self->fd[0], queue, &desc, 1, NULL));
}

TEST_F(domains, death_while_forming)
{
	struct sync_call first;
	uint32_t missing;

	ASSERT_EQ(0, join(self, 0));
	ASSERT_EQ(0, join(self, 1));
	sync_start(&first, self, 0, NPUWIN_IOC_DOMAIN_COMMIT);
	sleep_ms(50);
	close(self->fd[1]);
	self->fd[1] = -1;
	pthread_join(first.thread, NULL);
	EXPECT_EQ(-EPIPE, first.ret);
	EXPECT_EQ(1, first.missing);
	EXPECT_EQ(0, reset(self, 0, 0, &missing));
	EXPECT_EQ(NPUWIN_DOMAIN_FORMING, domain_info(self->domain).state);
}

static int send_fd(int sock, int fd)
{
	char control[CMSG_SPACE(sizeof(fd))] = { 0 };
	char byte = 0;
	struct iovec iov = { .iov_base = &byte, .iov_len = 1 };
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1,
		.msg_control = control, .msg_controllen = sizeof(control),
	};
	struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg);

	cmsg->cmsg_level = SOL_SOCKET;
	cmsg->cmsg_type = SCM_RIGHTS;
	cmsg->cmsg_len = CMSG_LEN(sizeof(fd));
	memcpy(CMSG_DATA(cmsg), &fd, sizeof(fd));
	return sendmsg(sock, &msg, 0) == 1 ? 0 : -errno;
}

static int recv_fd(int sock)
{
	char control[CMSG_SPACE(sizeof(int))] = { 0 };
	char byte;
	struct iovec iov = { .iov_base = &byte, .iov_len = 1 };
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1,
		.msg_control = control, .msg_controllen = sizeof(control),
	};
	int fd;

	if (recvmsg(sock, &msg, MSG_CMSG_CLOEXEC) != 1)
		return -errno;
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(fd));
	return fd;
}

/* Another process gets the domain over a socket, joins, commits, and is killed. */
TEST_F(domains, killed)
{
	struct npuwin_signal signal = {
		.rank = 0, .peer = 1, .value = 1, .cmp = NPUWIN_CMP_EQ,
	};
	uint32_t index, gone, queue;
	struct npuwin_desc desc;
	struct npuwin_cqe cqe;
	int sock[2], status;
	int64_t start;
	pid_t pid;

	ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sock));
	pid = fork();
	ASSERT_GE(pid, 0);
	if (!pid) {
		int domain, fd, i;

		/* With nothing that it was born with. */
		for (i = 0; i < 3; i++)
			close(self->fd[i]);
		close(self->domain);
		close(sock[0]);
		domain = recv_fd(sock[1]);
		for (i = 1; i < 3; i++) {
			uint32_t window;

			fd = device_open(1);
			if (window_alloc(fd, SIZE, &window, NULL) ||
			    domain_join(fd, domain, i, window) ||
			    domain_commit(fd, domain, i, 0) != -EAGAIN)
				_exit(1);
		}
		if (write(sock[1], "", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	close(sock[1]);
	ASSERT_EQ(0, send_fd(sock[0], self->domain));
	ASSERT_EQ(1, read(sock[0], &status, 1));
	ASSERT_EQ(0, join(self, 0));
	ASSERT_EQ(0, queue_create(self->fd[0], self->domain, 0, 8, -1, &queue));
	ASSERT_EQ(0, commit(self, 0, 0, NULL));
	desc = twait(0, NPUWIN_CMP_EQ, 1, NPUWIN_NO_DEADLINE);
	ASSERT_EQ(0, submit(self->fd[0], queue, &desc, 1));
	/* Nobody waits up to the deadline for who is dead. */
	start = now_ns();
	ASSERT_EQ(0, kill(pid, SIGKILL));
	EXPECT_EQ(-EPIPE, signal_wait(self->domain, &signal, 1, in_ms(20000), &index, &gone));
	EXPECT_LT(now_ns() - start, 10000000000);
	EXPECT_TRUE(gone == 1 || gone == 2);
	EXPECT_EQ(gone == 1 ? 0 : 1, index);
	index = 1;
	ASSERT_EQ(0, queue_wait(self->fd[0], queue, &cqe, 1, &index, in_ms(20000)));
	EXPECT_EQ(NPUWIN_ST_PEER, cqe.status);
	EXPECT_EQ(gone, cqe.rank);
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	EXPECT_TRUE(WIFSIGNALED(status));
	close(sock[0]);
	EXPECT_EQ(1, domain_info(self->domain).joined);
}

/* The domain outlives the descriptor that it was made with. */
TEST_F(domains, lives_on)
{
	int other;

	ASSERT_EQ(0, make_ready(self));
	other = dup(self->domain);
	close(self->domain);
	self->domain = other;
	EXPECT_EQ(NPUWIN_DOMAIN_READY, domain_info(other).state);
	EXPECT_EQ(0, commit(self, 1, 0, NULL));
	close(self->domain);
	/* Without any descriptor, ranks still go in order. */
	close(self->fd[0]);
	self->fd[0] = device_open(0);
	self->domain = domain_create(self->fd[0], 1, SIZE);
}

TEST_F(domains, status)
{
	struct npuwin_ioc_domain_info info = domain_info(self->domain);
	const struct npuwin_domain_status *status;
	int i;

	EXPECT_EQ(MAP_FAILED, mmap(NULL, info.status_length, PROT_READ | PROT_WRITE, MAP_SHARED,
				   self->domain, info.status_map));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(MAP_FAILED, mmap(NULL, info.status_length, PROT_READ, MAP_PRIVATE,
				   self->domain, info.status_map));
	EXPECT_EQ(MAP_FAILED, mmap(NULL, info.status_length + 4096, PROT_READ, MAP_SHARED,
				   self->domain, info.status_map));
	status = mmap(NULL, info.status_length, PROT_READ, MAP_SHARED, self->domain,
		      info.status_map);
	ASSERT_NE(MAP_FAILED, status);
	EXPECT_EQ(-1, mprotect((void *)status, info.status_length, PROT_READ | PROT_WRITE));
	EXPECT_EQ(EACCES, errno);

	EXPECT_EQ(3, status->nranks);
	EXPECT_EQ(NPUWIN_DOMAIN_FORMING, status->state);
	EXPECT_EQ(NPUWIN_NO_RANK, status->abort_rank);
	for (i = 0; i < 11; i++)
		EXPECT_EQ(0, status->reserved[i]);
	EXPECT_EQ(NPUWIN_RANK_EMPTY, status->rank[0].state);
	ASSERT_EQ(0, make_ready(self));
	EXPECT_EQ(NPUWIN_DOMAIN_READY, status->state);
	EXPECT_EQ(NPUWIN_RANK_JOINED, status->rank[0].state);
	EXPECT_EQ(NPUWIN_RANK_JOINED, status->rank[2].state);
	ASSERT_EQ(0, domain_leave(self->fd[0], self->domain, 0));
	EXPECT_EQ(NPUWIN_RANK_LEFT, status->rank[0].state);
	EXPECT_EQ(NPUWIN_DOMAIN_READY, status->state);
	close(self->fd[2]);
	self->fd[2] = -1;
	EXPECT_EQ(NPUWIN_RANK_DEAD, status->rank[2].state);
	EXPECT_EQ(NPUWIN_DOMAIN_ABORTED, status->state);
	EXPECT_EQ(2, status->abort_rank);
	EXPECT_EQ(EPIPE, status->abort_error);
	EXPECT_EQ(0, status->generation);
	ASSERT_EQ(0, reset(self, 1, 0, NULL));
	EXPECT_EQ(1, status->generation);
	EXPECT_EQ(NPUWIN_DOMAIN_FORMING, status->state);
	EXPECT_EQ(NPUWIN_NO_RANK, status->abort_rank);
	EXPECT_EQ(0, status->abort_error);
	EXPECT_EQ(NPUWIN_RANK_EMPTY, status->rank[0].state);
	EXPECT_EQ(NPUWIN_RANK_JOINED, status->rank[1].state);
	EXPECT_EQ(NPUWIN_RANK_EMPTY, status->rank[2].state);
	for (i = 0; i < 3; i++)
		EXPECT_EQ(0, status->rank[i].sleepers);
	munmap((void *)status, info.status_length);
}

/* Peers' windows and registers: the same memory, in bounds, only while they are joined. */
TEST_F(domains, map_peers)
{
	const int rw = PROT_READ | PROT_WRITE;
	struct npuwin_ioc_domain_info info = domain_info(self->domain);
	uint64_t base = info.window_map, regs = info.notify_map, stride = info.notify_stride;
	uint32_t *window[3], *notify[3], *own;
	uint64_t map;
	uint32_t i;

	EXPECT_EQ(MAP_FAILED, mmap(NULL, SIZE, rw, MAP_SHARED, self->domain, base));
	EXPECT_EQ(ENOENT, errno);
	EXPECT_EQ(MAP_FAILED, mmap(NULL, 4096, rw, MAP_SHARED, self->domain, regs));
	EXPECT_EQ(ENOENT, errno);
	ASSERT_EQ(0, window_alloc(self->fd[0], SIZE, &self->window[0], &map));
	ASSERT_EQ(0, make_ready(self));
	for (i = 0; i < 3; i++) {
		window[i] = mmap(NULL, SIZE, rw, MAP_SHARED, self->domain, base + i * SIZE);
		ASSERT_NE(MAP_FAILED, window[i]);
		notify[i] = mmap(NULL, stride, rw, MAP_SHARED, self->domain, regs + i * stride);
		ASSERT_NE(MAP_FAILED, notify[i]);
		EXPECT_EQ(0, notify[i][i]);
		window[i][1023] = i + 10;
		notify[i][1023] = i + 20;
	}
	for (i = 0; i < 3; i++) {
		EXPECT_EQ(i + 10, window[i][1023]);
		EXPECT_EQ(i + 20, notify[i][1023]);
	}
	own = mmap(NULL, SIZE, rw, MAP_SHARED, self->fd[0], map);
	ASSERT_NE(MAP_FAILED, own);
	EXPECT_EQ(10, own[1023]);
	own[1] = 5;
	EXPECT_EQ(5, window[0][1]);
	/* Not across ranks, not past the last. */
	EXPECT_EQ(MAP_FAILED, mmap(NULL, 2 * SIZE, rw, MAP_SHARED, self->domain, base));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(MAP_FAILED, mmap(NULL, 8192, rw, MAP_SHARED, self->domain,
				   base + SIZE - 4096));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(MAP_FAILED, mmap(NULL, 4096, rw, MAP_SHARED, self->domain, base + 3 * SIZE));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(MAP_FAILED, mmap(NULL, 4096, rw, MAP_SHARED, self->domain, base - 4096));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(MAP_FAILED, mmap(NULL, 2 * stride, rw, MAP_SHARED, self->domain, regs));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(MAP_FAILED, mmap(NULL, stride, rw, MAP_SHARED, self->domain,
				   regs + 3 * stride));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(MAP_FAILED, mmap(NULL, 4096, rw, MAP_PRIVATE, self->domain, base));
	EXPECT_EQ(EINVAL, errno);
	EXPECT_EQ(MAP_FAILED, mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_SHARED, self->domain,
				   base));
	EXPECT_EQ(EINVAL, errno);

	/* A mapping survives who it belongs to; registers are zero after a reset. */
	close(self->fd[2]);
	self->fd[2] = -1;
	EXPECT_EQ(12, window[2][1023]);
	EXPECT_EQ(22, notify[2][1023]);
	window[2][0] = 1;
	EXPECT_EQ(MAP_FAILED, mmap(NULL, SIZE, rw, MAP_SHARED, self->domain, base + 2 * SIZE));
	EXPECT_EQ(ENOENT, errno);
	EXPECT_EQ(-EAGAIN, reset(self, 0, 0, NULL));
	EXPECT_EQ(0, reset(self, 1, 0, NULL));
	EXPECT_EQ(0, notify[0][1023]);
	EXPECT_EQ(0, notify[1][1023]);
	EXPECT_EQ(10, window[0][1023]);
	for (i = 0; i < 3; i++) {
		munmap(window[i], SIZE);
		munmap(notify[i], stride);
	}
	munmap(own, SIZE);
}

TEST_HARNESS_MAIN
