// SPDX-License-Identifier: GPL-2.0-only
/* Queues: batches, completions, room, parking, and their end. */
#include "common.h"

#define SIZE	(4 * MIB)

FIXTURE(queues)
{
	struct team team;
	struct rank *a;
	struct rank *b;
};

FIXTURE_SETUP(queues)
{
	if (!have_devices())
		SKIP(LEAVE_TEST, NEEDS_DEVICES);
	ASSERT_EQ(0, team_make(&self->team, 2, SIZE));
	self->a = &self->team.rank[0];
	self->b = &self->team.rank[1];
}

FIXTURE_TEARDOWN(queues)
{
	team_free(&self->team);
}

TEST_F(queues, create_errors)
{
	struct npuwin_ioc_queue_create good = {
		.size = sizeof(good), .domain_fd = self->team.domain, .depth = 1,
		.event_fd = -1, .queue_id = 0xa5a5a5a5,
	};
	struct npuwin_ioc_queue_create cmd;

	cmd = good;
	cmd.depth = 0;
	EXPECT_EQ(-EINVAL, call(self->a->fd, NPUWIN_IOC_QUEUE_CREATE, &cmd));
	cmd.depth = NPUWIN_MAX_QUEUE_DEPTH + 1;
	EXPECT_EQ(-EINVAL, call(self->a->fd, NPUWIN_IOC_QUEUE_CREATE, &cmd));
	cmd = good;
	cmd.event_fd = 1000;
	EXPECT_EQ(-EBADF, call(self->a->fd, NPUWIN_IOC_QUEUE_CREATE, &cmd));
	cmd.event_fd = self->a->fd;
	EXPECT_EQ(-EBADF, call(self->a->fd, NPUWIN_IOC_QUEUE_CREATE, &cmd));
	cmd = good;
	cmd.domain_fd = self->a->fd;
	EXPECT_EQ(-EBADF, call(self->a->fd, NPUWIN_IOC_QUEUE_CREATE, &cmd));
	EXPECT_EQ(0xa5a5a5a5, cmd.queue_id);
	cmd = good;
	cmd.depth = NPUWIN_MAX_QUEUE_DEPTH;
	EXPECT_EQ(0, call(self->a->fd, NPUWIN_IOC_QUEUE_CREATE, &cmd));
	EXPECT_EQ(0, destroy(self->a->fd, cmd.queue_id));
	EXPECT_EQ(-ENOENT, queue_reset(self->a->fd, cmd.queue_id));
	/* A window's id is no queue's. */
	EXPECT_EQ(-ENOENT, queue_reset(self->a->fd, self->a->window));
}

TEST_F(queues, limit)
{
	uint32_t i, id, last = 0;

	/* One has been made by the set-up. */
	for (i = 1; i < NPUWIN_MAX_QUEUES; i++)
		ASSERT_EQ(0, queue_create(self->a->fd, self->team.domain, 0, 1, -1, &last));
	EXPECT_EQ(-EMFILE, queue_create(self->a->fd, self->team.domain, 0, 1, -1, &id));
	EXPECT_EQ(0, destroy(self->a->fd, last));
	EXPECT_EQ(0, queue_create(self->a->fd, self->team.domain, 0, 1, -1, &id));
}

TEST_F(queues, submit_errors)
{
	struct npuwin_desc desc = nop(NPUWIN_DESC_F_CQE);
	struct npuwin_ioc_submit good = {
		.size = sizeof(good), .queue_id = self->a->queue, .count = 1,
		.descs = USER_PTR(&desc), .submitted = 0xa5a5a5a5,
	};
	struct npuwin_ioc_submit cmd;
	struct npuwin_cqe cqe;
	uint32_t n = 1;

	cmd = good;
	cmd.queue_id = 9999;
	EXPECT_EQ(-ENOENT, call(self->a->fd, NPUWIN_IOC_SUBMIT, &cmd));
	cmd.queue_id = self->a->window;
	EXPECT_EQ(-ENOENT, call(self->a->fd, NPUWIN_IOC_SUBMIT, &cmd));
	cmd = good;
	cmd.count = 0;
	EXPECT_EQ(-EINVAL, call(self->a->fd, NPUWIN_IOC_SUBMIT, &cmd));
	cmd.count = RANK_DEPTH + 1;
	EXPECT_EQ(-EINVAL, call(self->a->fd, NPUWIN_IOC_SUBMIT, &cmd));
	cmd.count = UINT32_MAX;
	EXPECT_EQ(-EINVAL, call(self->a->fd, NPUWIN_IOC_SUBMIT, &cmd));
	/* What only a waiting call has. */
	cmd = good;
	cmd.deadline_ns = 1;
	EXPECT_EQ(-EINVAL, call(self->a->fd, NPUWIN_IOC_SUBMIT, &cmd));
	cmd = good;
	cmd.cqe_count = 1;
	EXPECT_EQ(-EINVAL, call(self->a->fd, NPUWIN_IOC_SUBMIT, &cmd));
	cmd = good;
	cmd.cqes = USER_PTR(&cqe);
	EXPECT_EQ(-EINVAL, call(self->a->fd, NPUWIN_IOC_SUBMIT, &cmd));
	cmd = good;
	cmd.flags = NPUWIN_SUBMIT_F_WAIT;
	cmd.deadline_ns = -1;
	EXPECT_EQ(-EINVAL, call(self->a->fd, NPUWIN_IOC_SUBMIT, &cmd));
	/* Descriptors that cannot be read, all or the last. */
	cmd = good;
	cmd.descs = 0;
	EXPECT_EQ(-EFAULT, call(self->a->fd, NPUWIN_IOC_SUBMIT, &cmd));
	cmd.descs = UINT64_MAX - 4095;
	EXPECT_EQ(-EFAULT, call(self->a->fd, NPUWIN_IOC_SUBMIT, &cmd));
	EXPECT_EQ(0xa5a5a5a5, cmd.submitted);
	EXPECT_EQ(-EAGAIN, queue_wait(self->a->fd, self->a->queue, &cqe, 1, &n, 0));
	/* None of them has been posted. */
	EXPECT_EQ(NPUWIN_ST_OK, rank_run(self->a, desc, &cqe));
	EXPECT_EQ(0, cqe.seq);
}

TEST_F(queues, half_readable)
{
	uint8_t *page = mmap(NULL, 2 * 4096, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct npuwin_desc *descs = (struct npuwin_desc *)(page + 4096) - 1;
	struct npuwin_cqe cqe;

	ASSERT_NE(MAP_FAILED, page);
	ASSERT_EQ(0, mprotect(page + 4096, 4096, PROT_NONE));
	*descs = nop(NPUWIN_DESC_F_CQE);
	EXPECT_EQ(-EFAULT, submit(self->a->fd, self->a->queue, descs, 2));
	/* Pages that are not there yet are no error. */
	ASSERT_EQ(0, mprotect(page + 4096, 4096, PROT_READ | PROT_WRITE));
	EXPECT_EQ(0, submit(self->a->fd, self->a->queue, descs, 2));
	EXPECT_EQ(0, rank_take(self->a, &cqe));
	EXPECT_EQ(0, cqe.seq);
	ASSERT_EQ(0, munmap(page, 2 * 4096));
}

/* Completions that cannot be returned stay in the queue. */
TEST_F(queues, unwritable_completions)
{
	struct npuwin_desc desc = nop(NPUWIN_DESC_F_CQE);
	struct npuwin_ioc_submit cmd = {
		.size = sizeof(cmd), .flags = NPUWIN_SUBMIT_F_WAIT, .queue_id = self->a->queue,
		.count = 1, .descs = USER_PTR(&desc), .cqes = 8, .cqe_count = 1,
		.deadline_ns = in_ms(1000),
	};
	struct npuwin_cqe cqe, *far;
	uint32_t n = 1;

	EXPECT_EQ(-EFAULT, call(self->a->fd, NPUWIN_IOC_SUBMIT, &cmd));
	EXPECT_EQ(1, cmd.submitted);
	EXPECT_EQ(0, cmd.cqe_count);
	EXPECT_EQ(-EFAULT, queue_wait(self->a->fd, self->a->queue, NULL, 1, &n, 0));
	EXPECT_EQ(0, rank_take(self->a, &cqe));
	EXPECT_EQ(NPUWIN_ST_OK, cqe.status);
	/* A page that nobody has touched yet can be written. */
	far = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	EXPECT_EQ(NPUWIN_ST_OK, rank_run(self->a, desc, far));
	EXPECT_EQ(1, far->seq);
	munmap(far, 4096);
}

TEST_F(queues, before_commit)
{
	struct npuwin_desc desc = nop(NPUWIN_DESC_F_CQE);
	int domain = domain_create(self->a->fd, 1, SIZE);
	struct rank rank;

	ASSERT_GE(domain, 0);
	ASSERT_EQ(0, rank_join(&rank, 0, domain, 0, SIZE));
	EXPECT_EQ(-EAGAIN, rank_post(&rank, desc));
	ASSERT_EQ(0, domain_commit(rank.fd, domain, 0, 0));
	EXPECT_EQ(NPUWIN_ST_OK, rank_run(&rank, desc, NULL));
	rank_close(&rank, SIZE);
	close(domain);
}

/* Batches that are behind a failure are cancelled, one completion each. */
TEST_F(queues, cancelled)
{
	struct npuwin_desc wait = twait(0, NPUWIN_CMP_EQ, 1, in_ms(200));
	struct npuwin_desc descs[3] = { nop(NPUWIN_DESC_F_CQE), nop(NPUWIN_DESC_F_CQE), nop(0) };
	struct npuwin_cqe cqes[8];
	uint32_t n = 8, i;

	for (i = 0; i < 3; i++)
		descs[i].user_data = 100 + i;
	ASSERT_EQ(0, rank_post(self->a, wait));
	ASSERT_EQ(0, submit(self->a->fd, self->a->queue, descs, 3));
	ASSERT_EQ(0, submit(self->a->fd, self->a->queue, descs, 1));
	ASSERT_EQ(0, queue_wait(self->a->fd, self->a->queue, cqes, 3, &n, in_ms(10000)));
	ASSERT_EQ(3, n);
	EXPECT_EQ(NPUWIN_ST_TIMEOUT, cqes[0].status);
	EXPECT_EQ(0, cqes[0].seq);
	EXPECT_EQ(NPUWIN_ST_CANCELLED, cqes[1].status);
	EXPECT_EQ(3, cqes[1].seq);
	EXPECT_EQ(102, cqes[1].user_data);
	EXPECT_EQ(NPUWIN_ST_CANCELLED, cqes[2].status);
	EXPECT_EQ(4, cqes[2].seq);
	EXPECT_EQ(100, cqes[2].user_data);
}

/* Room: of descriptors, of completions that are there, and of those that may come. */
TEST_F(queues, room)
{
	struct npuwin_desc descs[8], blocked = twait(0, NPUWIN_CMP_EQ, 1, NPUWIN_NO_DEADLINE);
	struct npuwin_cqe cqes[8];
	uint32_t queue, n, i;
	int fd = self->a->fd;

	ASSERT_EQ(0, queue_create(fd, self->team.domain, 0, 8, -1, &queue));
	/* Descriptors. */
	for (i = 0; i < 8; i++)
		descs[i] = nop(0);
	blocked.flags = 0;
	ASSERT_EQ(0, submit(fd, queue, &blocked, 1));
	EXPECT_EQ(-EAGAIN, submit(fd, queue, descs, 8));
	EXPECT_EQ(0, submit(fd, queue, descs, 7));
	EXPECT_EQ(-EAGAIN, submit(fd, queue, descs, 1));
	*cell_at(self->a, 0) = 1;
	EXPECT_EQ(0, signal_wake(self->team.domain, 0));
	/* They have posted nothing, and what was kept for them is free again. */
	for (i = 0; i < 100 && submit(fd, queue, descs, 8); i++)
		sleep_ms(10);
	EXPECT_LT(i, 100);
	n = 1;
	EXPECT_EQ(-ETIMEDOUT, queue_wait(fd, queue, cqes, 1, &n, in_ms(50)));
	EXPECT_EQ(0, n);

	/* Completions that nobody takes. */
	for (i = 0; i < 8; i++)
		descs[i] = nop(NPUWIN_DESC_F_CQE);
	ASSERT_EQ(0, submit(fd, queue, descs, 8));
	n = 8;
	EXPECT_EQ(0, queue_wait(fd, queue, cqes, 8, &n, in_ms(10000)));
	ASSERT_EQ(0, submit(fd, queue, descs, 7));
	n = 8;
	EXPECT_EQ(-ETIMEDOUT, queue_wait(fd, queue, cqes, 8, &n, in_ms(50)));
	EXPECT_EQ(0, n);
	EXPECT_EQ(-EAGAIN, submit(fd, queue, descs, 2));
	EXPECT_EQ(0, submit(fd, queue, descs, 1));
	/* Even one that posts nothing could fail. */
	descs[0] = nop(0);
	EXPECT_EQ(-EAGAIN, submit(fd, queue, descs, 1));
	n = 8;
	EXPECT_EQ(0, queue_wait(fd, queue, cqes, 8, &n, in_ms(10000)));
	EXPECT_EQ(8, n);
	for (i = 1; i < 8; i++)
		EXPECT_EQ(cqes[i - 1].seq + 1, cqes[i].seq);
	EXPECT_EQ(0, submit(fd, queue, descs, 1));
}

TEST_F(queues, wait_errors)
{
	struct npuwin_cqe cqe;
	struct npuwin_ioc_queue_wait good = {
		.size = sizeof(good), .queue_id = self->a->queue, .min = 1,
		.cqes = USER_PTR(&cqe), .cqe_count = 1,
	};
	struct npuwin_ioc_queue_wait cmd;
	int64_t start;

	cmd = good;
	cmd.queue_id = 9999;
	EXPECT_EQ(-ENOENT, call(self->a->fd, NPUWIN_IOC_QUEUE_WAIT, &cmd));
	cmd = good;
	cmd.min = 0;
	EXPECT_EQ(-EINVAL, call(self->a->fd, NPUWIN_IOC_QUEUE_WAIT, &cmd));
	cmd.min = 2;
	EXPECT_EQ(-EINVAL, call(self->a->fd, NPUWIN_IOC_QUEUE_WAIT, &cmd));
	cmd.min = 1;
	cmd.cqe_count = RANK_DEPTH + 1;
	EXPECT_EQ(-EINVAL, call(self->a->fd, NPUWIN_IOC_QUEUE_WAIT, &cmd));
	cmd = good;
	cmd.deadline_ns = -1;
	EXPECT_EQ(-EINVAL, call(self->a->fd, NPUWIN_IOC_QUEUE_WAIT, &cmd));
	cmd = good;
	EXPECT_EQ(-EAGAIN, call(self->a->fd, NPUWIN_IOC_QUEUE_WAIT, &cmd));
	EXPECT_EQ(0, cmd.cqe_count);
	cmd = good;
	start = now_ns();
	cmd.deadline_ns = start + 50000000;
	EXPECT_EQ(-ETIMEDOUT, call(self->a->fd, NPUWIN_IOC_QUEUE_WAIT, &cmd));
	EXPECT_GE(now_ns(), start + 50000000);
	EXPECT_EQ(0, cmd.cqe_count);
}

TEST_F(queues, eventfd_and_poll)
{
	int event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	struct pollfd fds[2];
	struct npuwin_desc descs[3] = { nop(NPUWIN_DESC_F_CQE), nop(0), nop(NPUWIN_DESC_F_CQE) };
	struct npuwin_cqe cqes[4];
	uint32_t queue, n;
	uint64_t count;

	fds[0] = (struct pollfd) { .fd = event, .events = POLLIN };
	fds[1] = (struct pollfd) { .fd = self->a->fd, .events = POLLIN };
	ASSERT_EQ(0, queue_create(self->a->fd, self->team.domain, 0, 8, event, &queue));
	EXPECT_EQ(0, poll(fds, 2, 0));
	ASSERT_EQ(0, submit(self->a->fd, queue, descs, 3));
	EXPECT_EQ(1, poll(&fds[1], 1, 10000));
	EXPECT_EQ(POLLIN, fds[1].revents);
	n = 2;
	EXPECT_EQ(0, queue_wait(self->a->fd, queue, cqes, 2, &n, in_ms(10000)));
	ASSERT_EQ(sizeof(count), read(event, &count, sizeof(count)));
	EXPECT_EQ(2, count);
	EXPECT_EQ(0, poll(fds, 2, 0));
	/* A poller that sleeps already, and a TWAIT that comes later. */
	descs[0] = twait(0, NPUWIN_CMP_EQ, 1, NPUWIN_NO_DEADLINE);
	ASSERT_EQ(0, submit(self->a->fd, queue, descs, 1));
	EXPECT_EQ(0, poll(fds, 2, 50));
	descs[0] = notify(0, 0, 1);
	EXPECT_EQ(NPUWIN_ST_OK, execute(self->b->fd, self->b->queue, descs, 1, NULL));
	EXPECT_EQ(1, poll(fds, 1, 10000));
	EXPECT_EQ(1, poll(&fds[1], 1, 10000));
	/* Dropped completions are not there any more. */
	ASSERT_EQ(0, queue_reset(self->a->fd, queue));
	EXPECT_EQ(0, poll(&fds[1], 1, 0));
	close(event);
}

/* However many wait, others run: parked queues hold no task. */
TEST_F(queues, parked_block_nobody)
{
	enum { PARKED = 1500 };
	uint32_t queue[PARKED], i, n;
	struct npuwin_desc desc = twait(0, NPUWIN_CMP_EQ, 1, NPUWIN_NO_DEADLINE);
	struct npuwin_cqe cqe;

	for (i = 0; i < PARKED; i++) {
		ASSERT_EQ(0, queue_create(self->a->fd, self->team.domain, 0, 1, -1, &queue[i]));
		ASSERT_EQ(0, submit(self->a->fd, queue[i], &desc, 1));
	}
	/* By a worker, too. */
	ASSERT_EQ(0, rank_post(self->a, put(1, 4, 4, 4)));
	n = 1;
	ASSERT_EQ(0, queue_wait(self->a->fd, self->a->queue, &cqe, 1, &n, in_ms(10000)));
	ASSERT_EQ(NPUWIN_ST_OK, rank_run(self->b, notify(0, 8, 1), NULL));
	ASSERT_EQ(NPUWIN_ST_OK, rank_run(self->b, notify(0, 0, 1), NULL));
	for (i = 0; i < PARKED; i++) {
		n = 1;
		ASSERT_EQ(0, queue_wait(self->a->fd, queue[i], &cqe, 1, &n, in_ms(20000)));
		ASSERT_EQ(NPUWIN_ST_OK, cqe.status);
	}
}

/* A call's deadline bounds the call; the batch goes on by itself. */
TEST_F(queues, call_deadline)
{
	struct npuwin_desc desc = twait(0, NPUWIN_CMP_EQ, 1, NPUWIN_NO_DEADLINE);
	struct npuwin_cqe cqe;
	int64_t start = now_ns();
	uint32_t n = 1;

	ASSERT_EQ(0, submit_wait(self->a->fd, self->a->queue, &desc, 1, &cqe, &n,
				 start + 50000000));
	EXPECT_EQ(0, n);
	EXPECT_GE(now_ns(), start + 50000000);
	EXPECT_LT(now_ns(), start + 5000000000);
	/* Without sleeping. */
	n = 1;
	ASSERT_EQ(0, submit_wait(self->b->fd, self->b->queue, &desc, 1, &cqe, &n, 0));
	EXPECT_EQ(0, n);
	*cell_at(self->b, 0) = 1;
	ASSERT_EQ(0, signal_wake(self->team.domain, 1));
	EXPECT_EQ(0, rank_take(self->b, &cqe));
	EXPECT_EQ(NPUWIN_ST_OK, cqe.status);
	ASSERT_EQ(NPUWIN_ST_OK, rank_run(self->b, notify(0, 0, 1), NULL));
	EXPECT_EQ(0, rank_take(self->a, &cqe));
	EXPECT_EQ(NPUWIN_ST_OK, cqe.status);
	/* A short batch is complete all the same, where nobody else has to execute it. */
	desc = nop(NPUWIN_DESC_F_CQE);
	n = 1;
	ASSERT_EQ(0, submit_wait(self->b->fd, self->b->queue, &desc, 1, &cqe, &n, 0));
	EXPECT_TRUE(n || !device_is_soft(self->b->fd));
	if (!n)
		ASSERT_EQ(0, rank_take(self->b, &cqe));
	EXPECT_EQ(NPUWIN_ST_OK, cqe.status);
}

/* A batch that takes a while: 256 MiB, unless it is executed on something fast. */
enum { LONG_BATCH = 64 };

static void long_batch(struct npuwin_desc *descs)
{
	int i;

	for (i = 0; i < LONG_BATCH; i++) {
		descs[i] = put(1, 0, 0, SIZE);
		descs[i].flags = 0;
	}
	descs[i - 1].flags = NPUWIN_DESC_F_CQE;
}

struct submitter {
	pthread_t thread;
	struct rank *rank;
	int ret;
	uint32_t n;
	struct npuwin_cqe cqe;
};

static void *submit_thread(void *arg)
{
	struct submitter *submitter = arg;
	struct npuwin_desc descs[LONG_BATCH];

	long_batch(descs);
	submitter->n = 1;
	submitter->ret = submit_wait(submitter->rank->fd, submitter->rank->queue, descs,
				     LONG_BATCH, &submitter->cqe, &submitter->n,
				     in_ms(60000));
	return NULL;
}

/* What is left when who executed has what it came for goes on by itself. */
TEST_F_TIMEOUT(queues, hand_over, 60)
{
	struct pollfd pollfd = { .fd = self->a->fd, .events = POLLIN };
	struct submitter submitter = { .rank = self->a };
	struct npuwin_desc descs[LONG_BATCH], tail = notify(1, 0, 1);
	int32_t *cell = cell_at(self->b, 4), i;
	struct npuwin_cqe cqe;
	uint32_t n = 1;

	/* Somebody else's batch, behind the one that is executed by its submitter. */
	*cell_at(self->a, 4) = 5;
	pthread_create(&submitter.thread, NULL, submit_thread, &submitter);
	while (__atomic_load_n(cell, __ATOMIC_ACQUIRE) != 5)
		sched_yield();
	tail.dst_off = 8;
	tail.flags = 0;
	cell = cell_at(self->b, 8);
	ASSERT_EQ(0, rank_post(self->a, tail));
	pthread_join(submitter.thread, NULL);
	EXPECT_EQ(0, submitter.ret);
	EXPECT_EQ(1, submitter.n);
	for (i = 0; i < 1000 && __atomic_load_n(cell, __ATOMIC_ACQUIRE) != 1; i++)
		sleep_ms(10);
	EXPECT_EQ(1, *cell);

	/* The rest of the batch when the call has no time left. */
	long_batch(descs);
	ASSERT_EQ(0, submit_wait(self->a->fd, self->a->queue, descs, LONG_BATCH, &cqe, &n,
				 now_ns() + 100000));
	if (!n) {
		n = 1;
		EXPECT_EQ(1, poll(&pollfd, 1, 30000));
		EXPECT_EQ(0, queue_wait(self->a->fd, self->a->queue, &cqe, 1, &n, 0));
	}
	EXPECT_EQ(NPUWIN_ST_OK, cqe.status);
}

static void on_alarm(int sig)
{
}

/* A signal ends the call and not the batch, and nothing is posted twice. */
TEST_F(queues, interrupted)
{
	struct sigaction action = { .sa_handler = on_alarm, .sa_flags = SA_RESTART };
	struct npuwin_desc desc = twait(0, NPUWIN_CMP_GE, 1, NPUWIN_NO_DEADLINE);
	struct itimerval timer = { .it_value.tv_usec = 50000 };
	struct npuwin_cqe cqes[2];
	uint32_t n = 1;

	desc.flags |= NPUWIN_TWAIT_F_CONSUME;
	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &timer, NULL);
	ASSERT_EQ(0, submit_wait(self->a->fd, self->a->queue, &desc, 1, cqes, &n, in_ms(10000)));
	EXPECT_EQ(0, n);
	ASSERT_EQ(NPUWIN_ST_OK, rank_run(self->b, notify(0, 0, 2), NULL));
	EXPECT_EQ(0, rank_take(self->a, cqes));
	EXPECT_EQ(0, cqes[0].seq);
	n = 1;
	EXPECT_EQ(-ETIMEDOUT,
		  queue_wait(self->a->fd, self->a->queue, cqes, 1, &n, in_ms(100)));
	EXPECT_EQ(1, *cell_at(self->a, 0));
}

/* Destruction and reset while something is parked, running, or waited for. */
TEST_F(queues, reset_and_destroy)
{
	struct npuwin_desc blocked = twait(0, NPUWIN_CMP_EQ, 1, NPUWIN_NO_DEADLINE);
	struct npuwin_desc big = put(1, 0, 0, SIZE / 1024);
	struct npuwin_cqe cqe;
	uint32_t queue, i;

	ASSERT_EQ(0, rank_post(self->a, blocked));
	ASSERT_EQ(0, rank_post(self->a, nop(NPUWIN_DESC_F_CQE)));
	sleep_ms(10);
	ASSERT_EQ(0, queue_reset(self->a->fd, self->a->queue));
	*cell_at(self->a, 0) = 1;
	ASSERT_EQ(0, signal_wake(self->team.domain, 0));
	ASSERT_EQ(NPUWIN_ST_OK, rank_run(self->a, nop(NPUWIN_DESC_F_CQE), &cqe));
	EXPECT_EQ(2, cqe.seq);

	big.rows = 1024;
	big.src_stride = SIZE / 1024;
	big.dst_stride = SIZE / 1024;
	for (i = 0; i < 50; i++) {
		struct npuwin_desc batch[4] = { big, big, big, big };

		ASSERT_EQ(0, queue_create(self->a->fd, self->team.domain, 0, 8, -1, &queue));
		ASSERT_EQ(0, submit(self->a->fd, queue, batch, 4));
		if (i % 2)
			sched_yield();
		ASSERT_EQ(0, i % 3 ? queue_reset(self->a->fd, queue) : 0);
		ASSERT_EQ(0, destroy(self->a->fd, queue));
		/* From here on, nothing is written. */
		memset(self->b->mem, i, SIZE);
		EXPECT_TRUE(!memcmp(self->b->mem, self->b->mem + 1, SIZE - 1));
	}
}

struct waiter {
	pthread_t thread;
	int fd;
	uint32_t queue;
	int ret;
};

static void *wait_thread(void *arg)
{
	struct waiter *waiter = arg;
	struct npuwin_cqe cqe;
	uint32_t n = 1;

	waiter->ret = queue_wait(waiter->fd, waiter->queue, &cqe, 1, &n, in_ms(20000));
	return NULL;
}

TEST_F(queues, waiters_are_told)
{
	struct waiter waiter = { .fd = self->a->fd };
	int i, ret;

	for (i = 0; i < 3; i++) {
		ASSERT_EQ(0, queue_create(self->a->fd, self->team.domain, 0, 8, -1,
					  &waiter.queue));
		pthread_create(&waiter.thread, NULL, wait_thread, &waiter);
		sleep_ms(30);
		if (i == 0)
			ret = queue_reset(self->a->fd, waiter.queue);
		else if (i == 1)
			ret = destroy(self->a->fd, waiter.queue);
		else
			ret = domain_abort(self->b->fd, self->team.domain, 1, EIO);
		ASSERT_EQ(0, ret);
		pthread_join(waiter.thread, NULL);
		EXPECT_EQ(-ECANCELED, waiter.ret) TH_LOG("%d", i);
	}
}

/* An abort stops queues, parked or not; what holds is still success. */
TEST_F(queues, aborted)
{
	struct npuwin_desc blocked = twait(0, NPUWIN_CMP_EQ, 1, NPUWIN_NO_DEADLINE);
	struct npuwin_cqe cqe;

	ASSERT_EQ(0, rank_post(self->a, blocked));
	ASSERT_EQ(0, rank_post(self->a, nop(0)));
	sleep_ms(20);
	ASSERT_EQ(0, domain_abort(self->b->fd, self->team.domain, 1, EIO));
	ASSERT_EQ(0, rank_take(self->a, &cqe));
	EXPECT_EQ(NPUWIN_ST_ABORTED, cqe.status);
	EXPECT_EQ(1, cqe.rank);
	ASSERT_EQ(0, rank_take(self->a, &cqe));
	EXPECT_EQ(NPUWIN_ST_CANCELLED, cqe.status);
	EXPECT_EQ(-ECANCELED, rank_post(self->a, blocked));
}

/*
 * A long TPUT: killing who waits for it ends it at once, and nothing is written when the
 * death has been told.
 */
TEST_F(queues, killed_in_long_put)
{
	enum { BATCH = 128 };
	struct npuwin_signal signal = {
		.rank = 0, .peer = 1, .value = -1, .cmp = NPUWIN_CMP_EQ,
	};
	int domain = domain_create(self->a->fd, 2, SIZE);
	struct npuwin_desc batch[BATCH];
	struct npuwin_cqe cqe;
	uint32_t gone, n, i;
	struct rank rank;
	int64_t start;
	int status;
	pid_t pid;

	ASSERT_GE(domain, 0);
	ASSERT_EQ(0, rank_join(&rank, 0, domain, 0, SIZE));
	ASSERT_EQ(-EAGAIN, domain_commit(rank.fd, domain, 0, 0));
	pid = fork();
	ASSERT_GE(pid, 0);
	if (!pid) {
		struct rank own;

		/* Slow ones: by one atomic add after another. */
		for (i = 0; i < BATCH; i++) {
			batch[i] = put(0, 0, 0, SIZE);
			batch[i].sub = NPUWIN_PUT_ADD_F32;
		}
		close(rank.fd);
		if (rank_join(&own, 1, domain, 1, SIZE) ||
		    domain_commit(own.fd, domain, 1, 0))
			_exit(1);
		n = 1;
		submit_wait(own.fd, own.queue, batch, BATCH, &cqe, &n, NPUWIN_NO_DEADLINE);
		_exit(1);
	}
	ASSERT_EQ(0, domain_commit(rank.fd, domain, 0, in_ms(10000)));
	sleep_ms(50);
	start = now_ns();
	ASSERT_EQ(0, kill(pid, SIGKILL));
	EXPECT_EQ(-EPIPE, signal_wait(domain, &signal, 1, in_ms(20000), NULL, &gone));
	EXPECT_LT(now_ns() - start, 2000000000);
	EXPECT_EQ(1, gone);
	memset(rank.mem, 1, SIZE);
	sleep_ms(50);
	EXPECT_TRUE(!memcmp(rank.mem, rank.mem + 1, SIZE - 1));
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	EXPECT_TRUE(WIFSIGNALED(status));
	rank_close(&rank, SIZE);
	close(domain);
}

TEST_HARNESS_MAIN
