// SPDX-License-Identifier: MIT
/* Jobs: descriptor programs of a rank, and how a driven rail executes them. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "job.h"

/* What a step may cost before the queue is let go for a moment. */
#define STEP_BUDGET	(1U << 20)
/* Looks before a waiter yields: where every rank can have a processor, and where not. */
#define SPINS_ALONE	400
#define SPINS_CROWDED	20

static uint32_t rank_state(const struct endpoint *ep, uint32_t rank)
{
	return __atomic_load_n(&ep->status->rank[rank].state, __ATOMIC_ACQUIRE);
}

static uint32_t resolve(void *priv, uint32_t rank, enum npuwin_space space,
			struct npuwin_span *span)
{
	const struct endpoint *ep = priv;

	if (rank_state(ep, rank) != NPUWIN_RANK_JOINED)
		return NPUWIN_ST_PEER;
	if (space == NPUWIN_SPACE_WINDOW) {
		span->base = ep->window[rank];
		span->size = ep->window_size;
	} else {
		span->base = ep->regs[rank];
		span->size = NPUWIN_NOTIFY_REGS * sizeof(int32_t);
	}
	return span->base ? NPUWIN_ST_OK : NPUWIN_ST_DEVICE;
}

static void notified(void *priv, uint32_t rank)
{
	struct endpoint *ep = priv;

	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (__atomic_load_n(&ep->status->rank[rank].sleepers, __ATOMIC_SEQ_CST))
		ep->ctx->ops->signal_wake(ep, rank);
}

static const struct npuwin_engine_ops engine_ops = {
	.resolve = resolve,
	.notified = notified,
};

int job_queue_create(struct endpoint *ep, struct npuwin_error *err)
{
	pthread_condattr_t attr;
	struct job_queue *q;

	q = calloc(1, sizeof(*q));
	if (!q)
		goto no_memory;
	q->ep = ep;
	q->engine.ops = &engine_ops;
	q->engine.priv = ep;
	q->engine.rank = ep->rank;
	q->engine.nranks = ep->nranks;
	q->spins = ep->nranks <= (uint32_t)sysconf(_SC_NPROCESSORS_ONLN) ? SPINS_ALONE :
									  SPINS_CROWDED;
	pthread_mutex_init(&q->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&q->changed, &attr);
	pthread_condattr_destroy(&attr);
	if (progress_attach(q)) {
		pthread_cond_destroy(&q->changed);
		pthread_mutex_destroy(&q->lock);
		free(q);
		goto no_memory;
	}
	ep->jobs = q;
	return 0;

no_memory:
	return npuwin_fail(err, -ENOMEM, (int32_t)ep->rank, NPUWIN_NOBODY,
			   "no memory for the queues of rank %" PRIu32, ep->rank);
}

void job_queue_destroy(struct endpoint *ep)
{
	struct job_queue *q = ep->jobs;

	job_queue_flush(ep);
	pthread_mutex_lock(&q->lock);
	while (q->sleepers || q->listed)
		pthread_cond_wait(&q->changed, &q->lock);
	pthread_mutex_unlock(&q->lock);
	progress_detach(q);
	pthread_cond_destroy(&q->changed);
	pthread_mutex_destroy(&q->lock);
	free(q);
	ep->jobs = NULL;
}

void job_queue_flush(struct endpoint *ep)
{
	struct job_queue *q = ep->jobs;
	uint32_t rail;

	pthread_mutex_lock(&q->lock);
	/* Where the domain is aborted the engine has stopped already. */
	if (ep->ctx->ops->queue_reset)
		ep->ctx->ops->queue_reset(ep);
	q->flushes++;
	for (rail = 0; rail < JOB_RAILS; rail++) {
		job_finish_all(q, rail, NPUWIN_ST_CANCELLED);
		q->rail[rail].stopped = false;
	}
	job_kick(q);
	pthread_mutex_unlock(&q->lock);
}

void job_append(struct job_queue *q, struct job *job)
{
	struct job_rail *rail = &q->rail[job->rail];

	job->done = false;
	job->next = NULL;
	job->pos = 0;
	job->cursor = (struct npuwin_cursor){ 0 };
	job->event_fd = -1;
	job->posted = false;
	job->loose = false;
	if (rail->head)
		rail->tail->next = job;
	else
		rail->head = job;
	rail->tail = job;
}

static void unlink_job(struct job_rail *rail, struct job *job)
{
	struct job *before;

	if (rail->head == job) {
		rail->head = job->next;
		return;
	}
	for (before = rail->head; before->next != job; before = before->next)
		;
	before->next = job->next;
	if (rail->tail == job)
		rail->tail = before;
}

void job_end(struct job_queue *q, struct job *job, uint64_t seq)
{
	unlink_job(&q->rail[job->rail], job);
	if (job->loose)
		progress_loose(q, -1);
	job->cqe.user_data = job->descs[seq].user_data;
	job->cqe.seq = seq;
	job->done = true;
	if (job->event_fd >= 0)
		eventfd_write(job->event_fd, 1);
	pthread_cond_broadcast(&q->changed);
}

void job_finish(struct job_queue *q, struct job *job, uint32_t status, uint32_t rank)
{
	memset(&job->cqe, 0, sizeof(job->cqe));
	job->cqe.status = status;
	job->cqe.rank = rank;
	job_end(q, job, job->count - 1);
}

void job_finish_all(struct job_queue *q, uint32_t rail, uint32_t status)
{
	while (q->rail[rail].head)
		job_finish(q, q->rail[rail].head, status, NPUWIN_NO_RANK);
	q->rail[rail].blocked = false;
}

uint32_t job_domain_status(const struct endpoint *ep, uint32_t *rank)
{
	const struct npuwin_domain_status *status = ep->status;

	*rank = __atomic_load_n(&status->abort_rank, __ATOMIC_ACQUIRE);
	if (*rank >= ep->nranks)
		*rank = NPUWIN_NO_RANK;
	if (__atomic_load_n(&status->abort_error, __ATOMIC_ACQUIRE) == EPIPE)
		return NPUWIN_ST_PEER;
	return NPUWIN_ST_ABORTED;
}

bool job_domain_ready(const struct endpoint *ep)
{
	return __atomic_load_n(&ep->status->state, __ATOMIC_ACQUIRE) == NPUWIN_DOMAIN_READY;
}

/* Whether a wait that was found blocked has to end, and how. */
static bool wait_ends(const struct endpoint *ep, const struct npuwin_desc *desc,
		      struct npuwin_cqe *cqe)
{
	if (!job_domain_ready(ep)) {
		cqe->status = job_domain_status(ep, &cqe->rank);
		return true;
	}
	if (desc->flags & NPUWIN_TWAIT_F_BY_RANK &&
	    rank_state(ep, cqe->rank) != NPUWIN_RANK_JOINED) {
		cqe->status = NPUWIN_ST_PEER;
		return true;
	}
	if (desc->deadline_ns <= npuwin_now()) {
		cqe->status = NPUWIN_ST_TIMEOUT;
		return true;
	}
	return false;
}

/*
 * One step of the job. What ends a wait counts only if the cell does not compare after it was
 * seen: who has left had written his cells before.
 */
static enum npuwin_exec step(struct job_queue *q, struct job *job)
{
	const struct npuwin_desc *desc = &job->descs[job->pos];
	enum npuwin_exec exec;
	struct npuwin_cqe end;

	if (desc->opcode != NPUWIN_OP_TWAIT && !job_domain_ready(q->ep)) {
		job->cqe = (struct npuwin_cqe){ .rank = NPUWIN_NO_RANK };
		job->cqe.status = job_domain_status(q->ep, &job->cqe.rank);
		return NPUWIN_EXEC_DONE;
	}
	exec = npuwin_engine_step(&q->engine, desc, &job->cursor, STEP_BUDGET, &job->cqe);
	if (exec != NPUWIN_EXEC_BLOCKED)
		return exec;
	end = job->cqe;
	if (!wait_ends(q->ep, desc, &end))
		return exec;
	exec = npuwin_engine_step(&q->engine, desc, &job->cursor, STEP_BUDGET, &job->cqe);
	if (exec != NPUWIN_EXEC_BLOCKED || job->cqe.cell != end.cell)
		return exec == NPUWIN_EXEC_BLOCKED ? NPUWIN_EXEC_AGAIN : exec;
	job->cqe.status = end.status;
	job->cqe.rank = end.rank;
	return NPUWIN_EXEC_DONE;
}

static void note_blocked(struct job_rail *rail, const struct endpoint *ep, const struct job *job)
{
	const struct npuwin_desc *desc = &job->descs[job->pos];

	rail->blocked = true;
	rail->deadline_ns = desc->deadline_ns;
	rail->signal = (struct npuwin_signal){
		.offset = desc->src_off + job->cqe.cell * desc->src_stride,
		.rank = ep->rank,
		.flags = desc->flags & NPUWIN_DESC_F_REG ? NPUWIN_SIGNAL_F_REG : 0,
		.value = desc->value,
		.cmp = desc->sub,
		.peer = desc->flags & NPUWIN_TWAIT_F_BY_RANK ? job->cqe.cell : NPUWIN_NO_RANK,
	};
}

bool job_drive(struct job_queue *q, uint32_t which)
{
	struct job_rail *rail = &q->rail[which];
	uint64_t moved_bytes = 0;
	bool moved = false;
	struct job *job;

	rail->blocked = false;
	while ((job = rail->head) && moved_bytes < STEP_BUDGET) {
		const struct npuwin_desc *desc = &job->descs[job->pos];
		uint64_t row = job->cursor.row;
		enum npuwin_exec exec;

		if (rail->stopped) {
			job_finish_all(q, which, NPUWIN_ST_CANCELLED);
			moved = true;
			break;
		}
		exec = step(q, job);
		if (exec == NPUWIN_EXEC_BLOCKED) {
			moved |= job->cursor.row != row;
			note_blocked(rail, q->ep, job);
			break;
		}
		moved = true;
		if (exec == NPUWIN_EXEC_AGAIN)
			break;
		moved_bytes += desc->rows * desc->row_bytes;
		if (!job->cqe.status && ++job->pos < job->count) {
			job->cursor = (struct npuwin_cursor){ 0 };
			continue;
		}
		rail->stopped = job->cqe.status && job->cqe.status != NPUWIN_ST_MISMATCH;
		job_end(q, job, job->cqe.status ? job->pos : job->count - 1);
	}
	if (moved)
		job_kick(q);
	return moved;
}

void job_kick(struct job_queue *q)
{
	int32_t *regs = q->ep->regs[q->ep->rank];

	if (!q->sleepers || !regs)
		return;
	__atomic_fetch_add(&regs[JOB_KICK_REG], 1, __ATOMIC_SEQ_CST);
	notified(q->ep, q->ep->rank);
}

bool job_waits_for(struct job *job, uint64_t *desc, uint32_t *rank)
{
	const struct npuwin_desc *at;
	bool waits = false;

	if (!job_driven(job))
		return false;
	pthread_mutex_lock(&job->ep->jobs->lock);
	if (!job->done) {
		at = &job->descs[job->pos];
		waits = at->opcode == NPUWIN_OP_TWAIT && at->flags & NPUWIN_TWAIT_F_BY_RANK;
		*desc = job->pos;
		*rank = (uint32_t)job->cursor.row;
	}
	pthread_mutex_unlock(&job->ep->jobs->lock);
	return waits;
}

int job_start(struct job *job, struct npuwin_error *err)
{
	struct job_queue *q = job->ep->jobs;
	bool driven = job_driven(job);
	bool by_thread = driven && job->rail == NPUWIN_RAIL_HOST;
	int rc;

	if (by_thread) {
		rc = progress_start(q, job->rail, err);
		if (rc)
			return rc;
	}
	pthread_mutex_lock(&q->lock);
	if (!driven)
		job_post(q, job, false);
	else
		job_append(q, job);
	if (driven && !by_thread) {
		job->loose = true;
		progress_loose(q, 1);
	}
	pthread_mutex_unlock(&q->lock);
	if (by_thread)
		progress_want(q, job->rail);
	return 0;
}

int job_run(struct job **jobs, uint32_t n, struct npuwin_error *err)
{
	bool any_driven = false;
	uint32_t i;

	(void)err;
	for (i = 0; i < n; i++) {
		struct job_queue *q = jobs[i]->ep->jobs;

		any_driven |= job_driven(jobs[i]);
		pthread_mutex_lock(&q->lock);
		/* The last one may wait in its post: all others are on their way by themselves. */
		if (job_driven(jobs[i]))
			job_append(q, jobs[i]);
		else
			job_post(q, jobs[i], i == n - 1 && !any_driven);
		pthread_mutex_unlock(&q->lock);
	}
	return job_wait(jobs, n, NPUWIN_NO_DEADLINE);
}

int job_test(struct job *job)
{
	struct job_queue *q = job->ep->jobs;
	bool done;

	pthread_mutex_lock(&q->lock);
	if (!job->done) {
		if (!job_driven(job))
			job_collect(q);
		else
			job_drive(q, job->rail);
	}
	done = job->done;
	pthread_mutex_unlock(&q->lock);
	if (!done && job_driven(job))
		progress_drive_loose(q);
	return done ? 0 : -EAGAIN;
}

int job_fd(struct job *job, struct npuwin_error *err)
{
	struct job_queue *q = job->ep->jobs;
	bool done;
	int rc;

	rc = progress_start(q, job->rail, err);
	if (rc)
		return rc;
	pthread_mutex_lock(&q->lock);
	if (job->event_fd < 0)
		job->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	rc = job->event_fd;
	if (rc < 0)
		rc = npuwin_fail(err, -errno, (int32_t)q->ep->rank, NPUWIN_NOBODY,
				 "cannot make an eventfd: %s", strerror(errno));
	done = job->done;
	if (rc >= 0 && done)
		eventfd_write(rc, 1);
	pthread_mutex_unlock(&q->lock);
	if (rc >= 0 && !done && job_driven(job))
		progress_want(q, job->rail);
	return rc;
}

void job_fini(struct job *job)
{
	if (job->event_fd >= 0)
		close(job->event_fd);
	job->event_fd = -1;
}
