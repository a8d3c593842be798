// SPDX-License-Identifier: MIT
/*
 * What the ranks of a context have in common in a domain. A thread that drives jobs nobody
 * waits for; for the shm provider it is the engine of the host rail. One that takes completions
 * nobody waits for, where the engine is not the runtime's. Both are made when they are first
 * needed. And the jobs of the direct rail that go on while anybody waits.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

#include "job.h"

/**
 * struct progress - Ranks of a context in a domain.
 * @next: in the context's list
 * @group: of the endpoints
 * @users: queues attached; under the context's lock
 * @loose: jobs that somebody has to drive; atomic
 * @ranks_lock: protects @ranks; taken before a queue's lock
 * @ranks: queues attached
 * @started: @thread runs; under @lock
 * @thread: the thread
 * @lock: protects the rest
 * @work: @incoming or @stop has changed
 * @incoming: queues that are to be driven
 * @asleep: a queue that the thread sleeps for, or NULL
 * @stop: end when there is nothing to do
 * @collects: @collector runs
 * @collector: thread that takes completions
 * @event_fd: what it waits for
 */
struct progress {
	struct progress *next;
	const void *group;
	uint32_t users;
	int loose;
	pthread_mutex_t ranks_lock;
	struct job_queue *ranks;
	bool started;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t work;
	struct job_queue *incoming;
	struct job_queue *asleep;
	bool stop;
	bool collects;
	pthread_t collector;
	int event_fd;
};

/* Drive the wanted rails of a queue. False once it is empty and let go. */
static bool drive_queue(struct job_queue *q, bool *moved)
{
	bool busy = false;
	uint32_t rail;

	pthread_mutex_lock(&q->lock);
	for (rail = 0; rail < JOB_RAILS; rail++) {
		if (!q->wanted[rail])
			continue;
		*moved |= job_drive(q, rail);
		if (!q->rail[rail].head)
			q->wanted[rail] = false;
		busy |= q->wanted[rail];
	}
	if (!busy) {
		q->listed = false;
		pthread_cond_broadcast(&q->changed);
	}
	pthread_mutex_unlock(&q->lock);
	return busy;
}

/* Returns whether anything was moved. */
static bool drive_list(struct job_queue **list)
{
	struct job_queue **link = list;
	bool moved = false;

	while (*link) {
		struct job_queue *next = (*link)->next;

		if (drive_queue(*link, &moved))
			link = &(*link)->next;
		else
			*link = next;
	}
	return moved;
}

static void sleep_for_list(struct progress *p, struct job_queue *list)
{
	struct job_sleep sleep;
	bool all_blocked = true;
	struct job_queue *q;
	uint32_t rail;

	job_sleep_start(&sleep, NPUWIN_NO_DEADLINE);
	for (q = list; q && all_blocked; q = q->next) {
		pthread_mutex_lock(&q->lock);
		for (rail = 0; rail < JOB_RAILS && all_blocked; rail++)
			if (q->wanted[rail])
				all_blocked = job_sleep_add(&sleep, q, rail);
		pthread_mutex_unlock(&q->lock);
	}
	pthread_mutex_lock(&p->lock);
	if (p->incoming)
		all_blocked = false;
	else
		p->asleep = list;
	pthread_mutex_unlock(&p->lock);
	job_sleep_end(&sleep, all_blocked);
	pthread_mutex_lock(&p->lock);
	p->asleep = NULL;
	pthread_mutex_unlock(&p->lock);
}

/* Move what has come to the thread's own list; wait for it where there is nothing else. */
static bool take_incoming(struct progress *p, struct job_queue **list)
{
	pthread_mutex_lock(&p->lock);
	while (!*list && !p->incoming && !p->stop)
		pthread_cond_wait(&p->work, &p->lock);
	while (p->incoming) {
		struct job_queue *q = p->incoming;

		p->incoming = q->next;
		q->next = *list;
		*list = q;
	}
	pthread_mutex_unlock(&p->lock);
	return *list;
}

static void *progress_run(void *arg)
{
	struct progress *p = arg;
	struct job_queue *list = NULL;
	uint32_t round = 0;

	while (take_incoming(p, &list)) {
		if (drive_list(&list))
			round = 0;
		else if (list && !job_pause(list, round++))
			sleep_for_list(p, list);
	}
	return NULL;
}

static struct progress *progress_create(const void *group)
{
	struct progress *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->group = group;
	pthread_mutex_init(&p->ranks_lock, NULL);
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->work, NULL);
	return p;
}

static void progress_free(struct progress *p)
{
	pthread_mutex_lock(&p->lock);
	p->stop = true;
	pthread_cond_signal(&p->work);
	pthread_mutex_unlock(&p->lock);
	if (p->started)
		pthread_join(p->thread, NULL);
	if (p->collects) {
		eventfd_write(p->event_fd, 1);
		pthread_join(p->collector, NULL);
	}
	pthread_cond_destroy(&p->work);
	pthread_mutex_destroy(&p->lock);
	pthread_mutex_destroy(&p->ranks_lock);
	free(p);
}

int progress_attach(struct job_queue *q)
{
	struct npuwin *ctx = q->ep->ctx;
	struct progress *p;

	pthread_mutex_lock(&ctx->lock);
	for (p = ctx->progress; p; p = p->next)
		if (p->group == q->ep->group)
			break;
	if (!p) {
		p = progress_create(q->ep->group);
		if (!p) {
			pthread_mutex_unlock(&ctx->lock);
			return -ENOMEM;
		}
		p->next = ctx->progress;
		ctx->progress = p;
	}
	p->users++;
	pthread_mutex_unlock(&ctx->lock);

	q->progress = p;
	pthread_mutex_lock(&p->ranks_lock);
	q->next_rank = p->ranks;
	p->ranks = q;
	pthread_mutex_unlock(&p->ranks_lock);
	return 0;
}

void progress_detach(struct job_queue *q)
{
	struct npuwin *ctx = q->ep->ctx;
	struct progress *p = q->progress, **link;
	struct job_queue **rank;
	bool last;

	pthread_mutex_lock(&p->ranks_lock);
	for (rank = &p->ranks; *rank != q; rank = &(*rank)->next_rank)
		;
	*rank = q->next_rank;
	pthread_mutex_unlock(&p->ranks_lock);

	pthread_mutex_lock(&ctx->lock);
	last = !--p->users;
	if (last) {
		for (link = &ctx->progress; *link != p; link = &(*link)->next)
			;
		*link = p->next;
	}
	pthread_mutex_unlock(&ctx->lock);
	if (last)
		progress_free(p);
}

static bool stopping(struct progress *p)
{
	bool stop;

	pthread_mutex_lock(&p->lock);
	stop = p->stop;
	pthread_mutex_unlock(&p->lock);
	return stop;
}

static void *collector_run(void *arg)
{
	struct progress *p = arg;
	struct job_queue *q;
	eventfd_t count;

	while (!stopping(p)) {
		if (eventfd_read(p->event_fd, &count))
			continue;
		pthread_mutex_lock(&p->ranks_lock);
		for (q = p->ranks; q; q = q->next_rank) {
			pthread_mutex_lock(&q->lock);
			job_collect(q);
			pthread_mutex_unlock(&q->lock);
		}
		pthread_mutex_unlock(&p->ranks_lock);
	}
	return NULL;
}

int progress_start(struct job_queue *q, uint32_t rail, struct npuwin_error *err)
{
	struct progress *p = q->progress;
	int rc = 0;

	pthread_mutex_lock(&p->lock);
	if (!rail_driven(q->ep, rail)) {
		p->event_fd = q->ep->ctx->ops->event_fd(q->ep);
		if (!p->collects)
			rc = npuwin_thread(&p->collector, collector_run, p);
		p->collects |= !rc;
	} else {
		if (!p->started)
			rc = npuwin_thread(&p->thread, progress_run, p);
		p->started |= !rc;
	}
	pthread_mutex_unlock(&p->lock);
	if (!rc)
		return 0;
	return npuwin_fail(err, rc, (int32_t)q->ep->rank, NPUWIN_NOBODY,
			   "cannot start a progress thread for rank %" PRIu32 ": %s",
			   q->ep->rank, strerror(-rc));
}

void progress_want(struct job_queue *q, uint32_t rail)
{
	struct progress *p = q->progress;
	bool list;

	pthread_mutex_lock(&p->lock);
	pthread_mutex_lock(&q->lock);
	q->wanted[rail] = true;
	list = !q->listed;
	q->listed = true;
	/* Where it is listed the thread may be asleep without this rail. */
	job_kick(q);
	pthread_mutex_unlock(&q->lock);
	if (list) {
		q->next = p->incoming;
		p->incoming = q;
		pthread_cond_signal(&p->work);
		if (p->asleep) {
			pthread_mutex_lock(&p->asleep->lock);
			job_kick(p->asleep);
			pthread_mutex_unlock(&p->asleep->lock);
		}
	}
	pthread_mutex_unlock(&p->lock);
}

void progress_loose(struct job_queue *q, int change)
{
	__atomic_fetch_add(&q->progress->loose, change, __ATOMIC_RELAXED);
}

static bool any_loose(const struct progress *p)
{
	return __atomic_load_n(&p->loose, __ATOMIC_RELAXED);
}

static bool nobody_drives(const struct job_queue *q)
{
	return q->rail[NPUWIN_RAIL_DIRECT].head && !q->waiters && !q->wanted[NPUWIN_RAIL_DIRECT];
}

bool progress_drive_loose(struct job_queue *q)
{
	struct progress *p = q->progress;
	bool moved = false;

	if (!any_loose(p))
		return false;
	pthread_mutex_lock(&p->ranks_lock);
	for (q = p->ranks; q; q = q->next_rank) {
		pthread_mutex_lock(&q->lock);
		if (nobody_drives(q))
			moved |= job_drive(q, NPUWIN_RAIL_DIRECT);
		pthread_mutex_unlock(&q->lock);
	}
	pthread_mutex_unlock(&p->ranks_lock);
	return moved;
}

bool progress_sleep_loose(struct job_queue *q, struct job_sleep *sleep)
{
	struct progress *p = q->progress;
	bool all_blocked = true;

	if (!any_loose(p))
		return true;
	pthread_mutex_lock(&p->ranks_lock);
	for (q = p->ranks; q && all_blocked; q = q->next_rank) {
		pthread_mutex_lock(&q->lock);
		if (nobody_drives(q))
			all_blocked = job_sleep_add(sleep, q, NPUWIN_RAIL_DIRECT);
		pthread_mutex_unlock(&q->lock);
	}
	pthread_mutex_unlock(&p->ranks_lock);
	return all_blocked;
}
