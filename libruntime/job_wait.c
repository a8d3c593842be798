// SPDX-License-Identifier: MIT
/* Jobs: waiting for them. Spin briefly, then yield, then sleep. */
#include <sched.h>

#include "job.h"

#define YIELDS		3
/* How long to sleep at most where one wait cannot cover all. */
#define SLICE_NS	1000000

/* Tell the core that this is a spin, and the compiler to look again in any case. */
static void relax_once(void)
{
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
#if __has_builtin(__builtin_ia32_pause)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

static void relax(void)
{
	int i;

	for (i = 0; i < 8; i++)
		relax_once();
}

bool job_pause(const struct job_queue *q, uint32_t round)
{
	if (round < q->spins)
		relax();
	else if (round < q->spins + YIELDS)
		sched_yield();
	else
		return false;
	return true;
}

void job_sleep_start(struct job_sleep *sleep, int64_t deadline_ns)
{
	sleep->deadline_ns = deadline_ns;
	sleep->count = 0;
	sleep->nqueues = 0;
}

static void wake_by(struct job_sleep *sleep, int64_t deadline_ns)
{
	if (deadline_ns < sleep->deadline_ns)
		sleep->deadline_ns = deadline_ns;
}

/*
 * Beside its cell a rail is waited for by the queue's kick register: another thread may take
 * the credit that this one sleeps for.
 */
bool job_sleep_add(struct job_sleep *sleep, struct job_queue *q, uint32_t which)
{
	const struct job_rail *rail = &q->rail[which];
	const int32_t *regs = q->ep->regs[q->ep->rank];

	if (!rail->head)
		return true;
	if (!rail->blocked)
		return false;
	wake_by(sleep, rail->deadline_ns);
	if (sleep->count + 2 > NPUWIN_MAX_SIGNALS || !regs ||
	    (sleep->nqueues && sleep->queues[0]->ep->group != q->ep->group)) {
		wake_by(sleep, npuwin_now() + SLICE_NS);
		return true;
	}
	sleep->signals[sleep->count++] = rail->signal;
	sleep->signals[sleep->count++] = (struct npuwin_signal){
		.offset = JOB_KICK_REG * sizeof(int32_t),
		.rank = q->ep->rank,
		.flags = NPUWIN_SIGNAL_F_REG,
		.value = npuwin_cell_read(&regs[JOB_KICK_REG]),
		.cmp = NPUWIN_CMP_NE,
		.peer = NPUWIN_NO_RANK,
	};
	sleep->queues[sleep->nqueues++] = q;
	q->sleepers++;
	return true;
}

void job_sleep_end(struct job_sleep *sleep, bool sleep_now)
{
	uint32_t i, rail, index, gone;
	struct endpoint *ep;
	int rc = 0;

	/* What ended the wait is found by looking at the jobs. */
	if (sleep_now && sleep->nqueues) {
		ep = sleep->queues[0]->ep;
		rc = ep->ctx->ops->signal_wait(ep, sleep->signals, sleep->count,
					       sleep->deadline_ns, &index, &gone);
	} else if (sleep_now) {
		sched_yield();
	}
	for (i = 0; i < sleep->nqueues; i++) {
		struct job_queue *q = sleep->queues[i];

		pthread_mutex_lock(&q->lock);
		if (!--q->sleepers)
			pthread_cond_broadcast(&q->changed);
		for (rail = 0; rc == -ENODEV && rail < JOB_RAILS; rail++)
			if (rail_driven(q->ep, rail))
				job_finish_all(q, rail, NPUWIN_ST_DEVICE);
		pthread_mutex_unlock(&q->lock);
	}
}

/* Drive what is not done. Returns how many of the driven ones are not. */
static uint32_t drive_all(struct job **jobs, uint32_t n, bool *moved)
{
	uint32_t i, left = 0;

	*moved = false;
	for (i = 0; i < n; i++) {
		struct job_queue *q = jobs[i]->ep->jobs;

		if (!job_driven(jobs[i]))
			continue;
		pthread_mutex_lock(&q->lock);
		if (!jobs[i]->done)
			*moved |= job_drive(q, jobs[i]->rail);
		left += !jobs[i]->done;
		pthread_mutex_unlock(&q->lock);
	}
	return left;
}

static void sleep_for_all(struct job **jobs, uint32_t n, int64_t deadline_ns)
{
	struct job_sleep sleep;
	bool all_blocked = true;
	uint32_t i;

	job_sleep_start(&sleep, deadline_ns);
	for (i = 0; i < n && all_blocked; i++) {
		struct job_queue *q = jobs[i]->ep->jobs;

		if (!job_driven(jobs[i]))
			continue;
		pthread_mutex_lock(&q->lock);
		if (!jobs[i]->done)
			all_blocked = job_sleep_add(&sleep, q, jobs[i]->rail);
		pthread_mutex_unlock(&q->lock);
	}
	all_blocked = all_blocked && progress_sleep_loose(jobs[0]->ep->jobs, &sleep);
	job_sleep_end(&sleep, all_blocked);
}

static void count_waiters(struct job **jobs, uint32_t n, uint32_t change)
{
	uint32_t i;

	for (i = 0; i < n; i++) {
		struct job_queue *q = jobs[i]->ep->jobs;

		pthread_mutex_lock(&q->lock);
		q->waiters += change;
		pthread_mutex_unlock(&q->lock);
	}
}

/* Wait for those of the jobs that are driven. 0 or -EAGAIN. */
static int wait_driven(struct job **jobs, uint32_t n, int64_t deadline_ns)
{
	struct job_queue *q = jobs[0]->ep->jobs;
	uint32_t round = 0;
	bool moved;

	while (drive_all(jobs, n, &moved)) {
		if (moved || progress_drive_loose(q)) {
			round = 0;
			continue;
		}
		if (deadline_ns != NPUWIN_NO_DEADLINE && deadline_ns <= npuwin_now())
			return -EAGAIN;
		if (!job_pause(q, round++))
			sleep_for_all(jobs, n, deadline_ns);
	}
	return 0;
}

int job_wait(struct job **jobs, uint32_t n, int64_t deadline_ns)
{
	uint32_t i;
	int rc;

	count_waiters(jobs, n, 1);
	rc = wait_driven(jobs, n, deadline_ns);
	count_waiters(jobs, n, -1U);
	for (i = 0; i < n && !rc; i++) {
		struct job_queue *q = jobs[i]->ep->jobs;

		if (job_driven(jobs[i]))
			continue;
		pthread_mutex_lock(&q->lock);
		rc = job_wait_posted(q, jobs[i], deadline_ns);
		pthread_mutex_unlock(&q->lock);
	}
	return rc;
}
