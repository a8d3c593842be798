// SPDX-License-Identifier: MIT
/* Jobs on both rails: order, failures and what they stop, threads that share a queue. */
#include <poll.h>

#include "procs.h"

#define RANKS	4
#define CELL	8192
#define DATA	16384

struct group {
	struct npuwin *ctx;
	struct npuwin_domain *domain[RANKS];
	struct npuwin_error err;
};

static struct group *group_open(void)
{
	struct npuwin_domain_attr attr = {
		.nranks = RANKS, .window_size = 1 << 20, .device = -1, .deadline_ns = far(),
	};
	struct group *group = calloc(1, sizeof(*group));

	assert_non_null(group);
	assert_int_equal(npuwin_open("shm", &group->ctx, &group->err), 0);
	assert_int_equal(npuwin_domain_create_local(group->ctx, &attr, group->domain,
						    &group->err), 0);
	return group;
}

static void group_close(struct group *group)
{
	uint32_t rank;

	for (rank = 0; rank < RANKS; rank++)
		npuwin_domain_leave(group->domain[rank]);
	npuwin_close(group->ctx);
	free(group);
}

/* Past what the runtime keeps for itself. */
static uint64_t at(uint64_t offset)
{
	return handshake_size(RANKS) + offset;
}

static int32_t *cell(struct group *group, uint32_t rank, uint32_t index)
{
	return (int32_t *)(group->domain[rank]->ep->window[rank] + at(CELL)) + index;
}

static struct npuwin_desc put(uint32_t rank, uint64_t bytes)
{
	return (struct npuwin_desc){
		.opcode = NPUWIN_OP_TPUT, .rank = rank, .src_off = at(DATA), .dst_off = at(DATA),
		.rows = 1, .row_bytes = bytes, .src_stride = bytes, .dst_stride = bytes,
	};
}

static struct npuwin_desc notify(uint32_t rank, uint32_t index, int32_t value)
{
	return (struct npuwin_desc){
		.opcode = NPUWIN_OP_TNOTIFY, .sub = NPUWIN_NOTIFY_ADD, .rank = rank,
		.dst_off = at(CELL) + 4 * index, .value = value,
	};
}

/* Until @cells cells, from the first, are @value; consumes. */
static struct npuwin_desc await(uint32_t cells, int32_t value, uint8_t flags)
{
	return (struct npuwin_desc){
		.opcode = NPUWIN_OP_TWAIT, .flags = flags | NPUWIN_TWAIT_F_CONSUME,
		.sub = NPUWIN_CMP_GE, .src_off = at(CELL), .rows = cells, .value = value,
		.src_stride = 4, .deadline_ns = NPUWIN_NO_DEADLINE,
	};
}

static void make_job(struct job *job, struct group *group, uint32_t rank, uint32_t rail,
		     struct npuwin_desc *descs, uint32_t count)
{
	*job = (struct job){
		.ep = group->domain[rank]->ep, .rail = rail, .descs = descs, .count = count,
		.event_fd = -1,
	};
	descs[count - 1].flags |= NPUWIN_DESC_F_CQE;
}

static void run_one(struct group *group, uint32_t rank, uint32_t rail, struct npuwin_desc *descs,
		    uint32_t count, uint32_t status, uint32_t seq)
{
	struct job job, *jobs = &job;

	make_job(&job, group, rank, rail, descs, count);
	assert_int_equal(job_run(&jobs, 1, &group->err), 0);
	assert_int_equal(job_test(&job), 0);
	assert_int_equal(job.cqe.status, status);
	assert_int_equal(job.cqe.seq, seq);
	job_fini(&job);
}

static void test_failures(void **state)
{
	uint32_t rail;

	for (rail = 0; rail < 2; rail++) {
		struct group *group = group_open();
		struct npuwin_desc descs[3] = { notify(1, 0, 1), put(1, 64), notify(1, 1, 1) };

		run_one(group, 0, rail, descs, 3, NPUWIN_ST_OK, 2);
		/* One look that fails ends the job, and the next one runs. */
		descs[0] = await(1, 5, NPUWIN_TWAIT_F_TEST);
		run_one(group, 0, rail, descs, 3, NPUWIN_ST_MISMATCH, 0);
		descs[0] = notify(1, 2, 1);
		run_one(group, 0, rail, descs, 3, NPUWIN_ST_OK, 2);
		/* Anything else stops the queue, until it is flushed. */
		descs[1].dst_off = UINT64_MAX;
		run_one(group, 0, rail, descs, 3, NPUWIN_ST_BOUNDS, 1);
		descs[1] = put(1, 64);
		run_one(group, 0, rail, descs, 3, NPUWIN_ST_CANCELLED, 2);
		job_queue_flush(group->domain[0]->ep);
		run_one(group, 0, rail, descs, 3, NPUWIN_ST_OK, 2);
		descs[0] = await(1, 1, 0);
		descs[0].deadline_ns = npuwin_deadline_ms(5);
		run_one(group, 0, rail, descs, 3, NPUWIN_ST_TIMEOUT, 0);
		job_queue_flush(group->domain[0]->ep);
		/* Who has left is missed at once; what he did before counts. */
		*cell(group, 0, 1) = 1;
		npuwin_domain_leave(group->domain[1]);
		group->domain[1] = NULL;
		*cell(group, 0, 0) = *cell(group, 0, 2) = *cell(group, 0, 3) = 1;
		descs[0] = await(RANKS, 1, NPUWIN_TWAIT_F_BY_RANK);
		descs[1] = notify(2, 0, 1);
		run_one(group, 0, rail, descs, 3, NPUWIN_ST_PEER, 2);
		job_queue_flush(group->domain[0]->ep);
		*cell(group, 0, 0) = 1;
		run_one(group, 0, rail, descs, 2, NPUWIN_ST_PEER, 0);
		job_queue_flush(group->domain[0]->ep);
		npuwin_domain_abort(group->domain[2], EIO);
		run_one(group, 0, rail, descs, 2, NPUWIN_ST_ABORTED, 0);
		group_close(group);
	}
}

/* Every rank tells the next one and waits for the one before, over and over. */
static void fill_ring(struct npuwin_desc *descs, uint32_t rank, uint32_t rounds)
{
	uint32_t i;

	for (i = 0; i < rounds; i++) {
		descs[3 * i] = put((rank + 1) % RANKS, 256);
		descs[3 * i + 1] = notify((rank + 1) % RANKS, 0, 1);
		descs[3 * i + 2] = await(1, 1, 0);
	}
}

static void test_group(void **state)
{
	struct group *group = group_open();
	struct npuwin_desc descs[RANKS][300];
	struct job job[RANKS], *jobs[RANKS];
	uint32_t rail, rank;

	for (rail = 0; rail < 2; rail++) {
		for (rank = 0; rank < RANKS; rank++) {
			fill_ring(descs[rank], rank, 100);
			make_job(&job[rank], group, rank, (rail + rank) % 2, descs[rank], 300);
			jobs[rank] = &job[rank];
		}
		assert_int_equal(job_run(jobs, RANKS, &group->err), 0);
		for (rank = 0; rank < RANKS; rank++)
			assert_int_equal(job[rank].cqe.status, NPUWIN_ST_OK);
	}
	group_close(group);
}

static void test_fd(void **state)
{
	struct group *group = group_open();
	struct npuwin_desc descs[RANKS][300];
	struct job job[RANKS];
	struct pollfd fd = { .events = POLLIN };
	uint32_t rail, rank;

	for (rail = 0; rail < 2; rail++) {
		for (rank = 0; rank < RANKS; rank++) {
			fill_ring(descs[rank], rank, 100);
			make_job(&job[rank], group, rank, rail, descs[rank], 300);
			assert_int_equal(job_start(&job[rank], &group->err), 0);
			if (rail == NPUWIN_RAIL_DIRECT || rank % 2)
				assert_true(job_fd(&job[rank], &group->err) >= 0);
		}
		for (rank = 0; rank < RANKS; rank++) {
			fd.fd = job_fd(&job[rank], &group->err);
			assert_int_equal(poll(&fd, 1, 120000), 1);
			assert_int_equal(job_test(&job[rank]), 0);
			assert_int_equal(job[rank].cqe.status, NPUWIN_ST_OK);
			job_fini(&job[rank]);
		}
	}
	group_close(group);
}

#define THREADS	3
#define JOBS	200

struct sharer {
	struct group *group;
	uint32_t rank;
	uint32_t rail;
};

static void *share(void *p)
{
	struct sharer *sharer = p;
	struct npuwin_desc descs[2];
	struct job job, *jobs = &job;
	uint32_t i, to = (sharer->rank + 1) % RANKS;

	for (i = 0; i < JOBS; i++) {
		descs[0] = notify(to, 0, 1);
		descs[1] = await(1, 1, 0);
		make_job(&job, sharer->group, sharer->rank, sharer->rail, descs, 2);
		if (i % 3 == 1) {
			must(!job_start(&job, NULL), "start");
			must(!job_wait(&jobs, 1, NPUWIN_NO_DEADLINE), "wait");
		} else if (i % 3 == 2) {
			must(!job_start(&job, NULL), "start");
			must(job_fd(&job, NULL) >= 0, "fd");
			while (job_test(&job))
				sched_yield();
		} else {
			must(!job_run(&jobs, 1, NULL), "run");
		}
		must(job.cqe.status == NPUWIN_ST_OK, "status %u", job.cqe.status);
		job_fini(&job);
	}
	return NULL;
}

/* Threads take credits that others sleep for: none of them may be forgotten. */
static void test_shared_queue(void **state)
{
	struct sharer sharers[RANKS * THREADS];
	pthread_t threads[RANKS * THREADS];
	struct group *group = group_open();
	uint32_t rail, i;

	for (rail = 0; rail < 2; rail++) {
		for (i = 0; i < RANKS * THREADS; i++) {
			sharers[i] = (struct sharer){ group, i % RANKS, rail };
			assert_int_equal(pthread_create(&threads[i], NULL, share, &sharers[i]), 0);
		}
		for (i = 0; i < RANKS * THREADS; i++)
			pthread_join(threads[i], NULL);
	}
	group_close(group);
}

struct waiter {
	struct job job;
	int rc;
};

static void *wait_for_job(void *p)
{
	struct waiter *waiter = p;
	struct job *jobs = &waiter->job;

	waiter->rc = job_wait(&jobs, 1, NPUWIN_NO_DEADLINE);
	return NULL;
}

/* A flush ends what a thread sleeps for, on the engine's rail and on its own. */
static void test_flush(void **state)
{
	uint32_t rail;

	for (rail = 0; rail < 2; rail++) {
		struct group *group = group_open();
		struct npuwin_desc descs[1] = { await(1, 1, 0) };
		const struct endpoint *ep = group->domain[0]->ep;
		struct waiter waiter;
		pthread_t thread;

		make_job(&waiter.job, group, 0, rail, descs, 1);
		assert_int_equal(job_start(&waiter.job, &group->err), 0);
		assert_int_equal(pthread_create(&thread, NULL, wait_for_job, &waiter), 0);
		while (!shm_load(&ep->status->rank[0].sleepers))
			sched_yield();
		job_queue_flush(group->domain[0]->ep);
		pthread_join(thread, NULL);
		assert_int_equal(waiter.rc, 0);
		assert_int_equal(waiter.job.cqe.status, NPUWIN_ST_CANCELLED);
		group_close(group);
	}
}

/* A wait that gives up leaves the job as it is. */
static void test_deadline(void **state)
{
	struct group *group = group_open();
	struct npuwin_desc descs[1] = { await(1, 1, 0) };
	struct job job, *jobs = &job;

	make_job(&job, group, 0, NPUWIN_RAIL_DIRECT, descs, 1);
	assert_int_equal(job_start(&job, &group->err), 0);
	assert_int_equal(job_wait(&jobs, 1, 0), -EAGAIN);
	assert_int_equal(job_wait(&jobs, 1, npuwin_deadline_ms(5)), -EAGAIN);
	__atomic_store_n(cell(group, 0, 0), 1, __ATOMIC_SEQ_CST);
	assert_int_equal(job_wait(&jobs, 1, 0), 0);
	assert_int_equal(job.cqe.status, NPUWIN_ST_OK);
	assert_int_equal(*cell(group, 0, 0), 0);
	group_close(group);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_failures),
		cmocka_unit_test(test_group),
		cmocka_unit_test(test_fd),
		cmocka_unit_test(test_shared_queue),
		cmocka_unit_test(test_flush),
		cmocka_unit_test(test_deadline),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
