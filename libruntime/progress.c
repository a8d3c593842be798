// SPDX-License-Identifier: MIT
/*
 * Driving jobs that nobody waits for: one thread for each context and domain, made when it is
 * first needed. For the shm provider it is the engine of the host rail.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "job.h"

/**
 * struct progress - A thread and what it drives.
 * @next: in the context's list
 * @group: of the endpoints
 * @users: queues attached; under the context's lock
 * @thread: the thread
 * @lock: protects the rest
 * @work: @incoming or @stop has changed
 * @incoming: queues that are to be driven
 * @asleep: a queue that the thread sleeps for, or NULL
 * @stop: end when there is nothing to do
 */
struct progress {
	struct progress *next;
	const void *group;
	uint32_t users;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t work;
	struct job_queue *incoming;
	struct job_queue *asleep;
	bool stop;
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
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->work, NULL);
	if (!npuwin_thread(&p->thread, progress_run, p))
		return p;
	pthread_cond_destroy(&p->work);
	pthread_mutex_destroy(&p->lock);
	free(p);
	return NULL;
}

int progress_attach(struct job_queue *q, struct npuwin_error *err)
{
	struct npuwin *ctx = q->ep->ctx;
	struct progress *p;
	int rc = 0;

	pthread_mutex_lock(&ctx->lock);
	if (q->progress)
		goto unlock;
	for (p = ctx->progress; p; p = p->next)
		if (p->group == q->ep->group)
			break;
	if (!p) {
		p = progress_create(q->ep->group);
		if (!p) {
			rc = npuwin_fail(err, -ENOMEM, (int32_t)q->ep->rank, NPUWIN_NOBODY,
					 "cannot start a progress thread for rank %" PRIu32,
					 q->ep->rank);
			goto unlock;
		}
		p->next = ctx->progress;
		ctx->progress = p;
	}
	p->users++;
	q->progress = p;
unlock:
	pthread_mutex_unlock(&ctx->lock);
	return rc;
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

void progress_detach(struct job_queue *q)
{
	struct npuwin *ctx = q->ep->ctx;
	struct progress *p = q->progress, **link;
	bool last;

	if (!p)
		return;
	pthread_mutex_lock(&q->lock);
	while (q->listed)
		pthread_cond_wait(&q->changed, &q->lock);
	pthread_mutex_unlock(&q->lock);

	pthread_mutex_lock(&ctx->lock);
	last = !--p->users;
	if (last) {
		for (link = &ctx->progress; *link != p; link = &(*link)->next)
			;
		*link = p->next;
	}
	pthread_mutex_unlock(&ctx->lock);
	if (!last)
		return;
	pthread_mutex_lock(&p->lock);
	p->stop = true;
	pthread_cond_signal(&p->work);
	pthread_mutex_unlock(&p->lock);
	pthread_join(p->thread, NULL);
	pthread_cond_destroy(&p->work);
	pthread_mutex_destroy(&p->lock);
	free(p);
}
