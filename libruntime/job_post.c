// SPDX-License-Identifier: MIT
/*
 * Jobs on a rail whose engine goes on by itself: posting them and taking their completions.
 *
 * A job is known by a number in the user_data of its descriptors, so that whoever takes a
 * completion finds its owner. Only one thread at a time waits for completions; when it stops,
 * another one of those that still wait takes over.
 */
#include <time.h>

#include "job.h"

#define NSEC_PER_SEC	1000000000LL
#define CQES		16

static struct job_rail *posted_rail(struct job_queue *q)
{
	return &q->rail[NPUWIN_RAIL_HOST];
}

static void dispatch(struct job_queue *q, const struct npuwin_cqe *cqes, int count)
{
	struct job_rail *rail = posted_rail(q);
	struct job *job;
	int i;

	for (i = 0; i < count; i++) {
		uint32_t serial = (uint32_t)(cqes[i].user_data >> 32);
		uint32_t pos = (uint32_t)cqes[i].user_data;

		for (job = rail->head; job; job = job->next)
			if (job->posted && job->serial == serial && pos < job->count)
				break;
		if (!job)
			continue;
		job->cqe = cqes[i];
		job_end(q, job, pos);
	}
}

/* What a refusal to take a job means for it. */
static void refuse(struct job_queue *q, struct job *job, int rc)
{
	uint32_t rank = NPUWIN_NO_RANK, status;

	switch (rc) {
	case -ENODEV:
		status = NPUWIN_ST_DEVICE;
		break;
	case -EINVAL:
	case -EOVERFLOW:
		status = NPUWIN_ST_RANGE;
		break;
	default:
		status = NPUWIN_ST_CANCELLED;
		if (!job_domain_ready(q->ep))
			status = job_domain_status(q->ep, &rank);
	}
	job_finish(q, job, status, rank);
}

/* Post what waits for room, oldest first. */
static void post_waiting(struct job_queue *q)
{
	struct endpoint *ep = q->ep;
	struct job *job, *next;
	int rc;

	for (job = posted_rail(q)->head; job; job = next) {
		next = job->next;
		if (job->posted)
			continue;
		do {
			rc = ep->ctx->ops->submit(ep, job->descs, job->count, false, 0, NULL, 0);
		} while (rc == -EINTR);
		if (rc == -EAGAIN && job_domain_ready(ep))
			return;
		if (rc < 0)
			refuse(q, job, rc);
		else
			job->posted = true;
	}
}

static void stamp(struct job_queue *q, struct job *job)
{
	uint32_t i;

	job->serial = q->serial++;
	for (i = 0; i < job->count; i++)
		job->descs[i].user_data = (uint64_t)job->serial << 32 | i;
}

/*
 * What is posted cannot complete any more, unless it has been posted since: the queue was
 * emptied, or has stopped, or its device is gone.
 */
static void give_up(struct job_queue *q, int rc, uint32_t flushes)
{
	uint32_t rank, status = NPUWIN_ST_CANCELLED;

	if (rc == -ENODEV)
		status = NPUWIN_ST_DEVICE;
	else if (!job_domain_ready(q->ep))
		status = job_domain_status(q->ep, &rank);
	if (rc != -EINTR && rc != -EAGAIN && rc != -ETIMEDOUT && q->flushes == flushes)
		job_finish_all(q, NPUWIN_RAIL_HOST, status);
}

/* Wait for completions, alone. Returns how many there were, or a negative errno. */
static int collect(struct job_queue *q, int64_t deadline_ns)
{
	struct endpoint *ep = q->ep;
	struct npuwin_cqe cqes[CQES];
	uint32_t flushes = q->flushes;
	int rc;

	q->collecting = true;
	pthread_mutex_unlock(&q->lock);
	rc = ep->ctx->ops->collect(ep, cqes, CQES, deadline_ns);
	pthread_mutex_lock(&q->lock);
	if (rc > 0)
		dispatch(q, cqes, rc);
	else
		give_up(q, rc, flushes);
	post_waiting(q);
	q->collecting = false;
	pthread_cond_broadcast(&q->changed);
	return rc;
}

void job_collect(struct job_queue *q)
{
	int rc;

	/* Who collects may just have found nothing. */
	q->missed = q->collecting;
	if (q->collecting || !posted_rail(q)->head)
		return;
	do {
		q->missed = false;
		rc = collect(q, 0);
	} while (rc == CQES || q->missed);
}

static void collect_missed(struct job_queue *q)
{
	if (q->missed && !q->collecting)
		job_collect(q);
}

void job_post(struct job_queue *q, struct job *job, bool wait)
{
	struct endpoint *ep = q->ep;
	struct npuwin_cqe cqe;
	bool first = !posted_rail(q)->head;
	int rc;

	job_append(q, job);
	stamp(q, job);
	if (!wait || !first || q->collecting) {
		post_waiting(q);
		return;
	}
	job->posted = true;
	q->collecting = true;
	pthread_mutex_unlock(&q->lock);
	rc = ep->ctx->ops->submit(ep, job->descs, job->count, true, NPUWIN_NO_DEADLINE, &cqe, 1);
	pthread_mutex_lock(&q->lock);
	if (rc > 0)
		dispatch(q, &cqe, rc);
	else if (rc < 0 && !job->done)
		refuse(q, job, rc);
	post_waiting(q);
	q->collecting = false;
	pthread_cond_broadcast(&q->changed);
	collect_missed(q);
}

int job_wait_posted(struct job_queue *q, struct job *job, int64_t deadline_ns)
{
	struct timespec until = {
		.tv_sec = deadline_ns / NSEC_PER_SEC,
		.tv_nsec = deadline_ns % NSEC_PER_SEC,
	};
	int rc;

	while (!job->done) {
		rc = 0;
		if (!q->collecting) {
			rc = collect(q, deadline_ns);
			collect_missed(q);
		} else if (deadline_ns == NPUWIN_NO_DEADLINE) {
			pthread_cond_wait(&q->changed, &q->lock);
		} else if (pthread_cond_timedwait(&q->changed, &q->lock, &until)) {
			rc = -ETIMEDOUT;
		}
		if ((rc == -ETIMEDOUT || rc == -EAGAIN) && !job->done)
			return -EAGAIN;
	}
	return 0;
}
