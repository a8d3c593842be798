/* SPDX-License-Identifier: MIT */
/*
 * Inside of job.c, job_wait.c, job_post.c and progress.c: the queues of a rank.
 *
 * A rail is either driven, by the threads of this process that step its descriptors through
 * the engine, or posted, to an engine that goes on by itself. Whoever holds a queue's lock may
 * drive it: the caller that waits, any other thread that does, and the progress thread. Each
 * goes on where the last one stopped.
 *
 * Lock order: progress.lock, then job_queue.lock.
 */
#ifndef NPUWIN_JOB_H
#define NPUWIN_JOB_H

#include "internal.h"

#define JOB_RAILS	2

/**
 * struct job_rail - Jobs of a rank on one rail, oldest first.
 * @head: the one that is executed
 * @tail: the newest
 * @stopped: a job has failed: what follows is cancelled, until the queue is flushed
 * @blocked: driven: @head waits for a cell; @signal and @deadline_ns are valid
 * @signal: driven: that cell
 * @deadline_ns: driven: of that wait
 */
struct job_rail {
	struct job *head;
	struct job *tail;
	bool stopped;
	bool blocked;
	struct npuwin_signal signal;
	int64_t deadline_ns;
};

/**
 * struct job_queue - What a rank has to do.
 * @ep: the rank
 * @engine: executes on driven rails
 * @spins: how often a waiter looks before it yields
 * @lock: protects the rest, and is held while descriptors are stepped
 * @changed: a posted job is done, nobody collects or sleeps any more, or the progress thread
 *	has let go
 * @rail: by enum npuwin_rail
 * @waiters: threads that drive it until a job of theirs is done
 * @sleepers: threads that sleep for what a driven rail waits for
 * @serial: number of the next posted job
 * @collecting: a thread waits for completions of the posted rail; only it takes them
 * @missed: another one wanted to take them meanwhile, and did not
 * @flushes: how often the rails were emptied
 * @progress: of the domain's ranks in this context
 * @wanted: by rail: the progress thread is to drive it until it is empty
 * @listed: in a list of the progress thread
 * @next: in that list
 * @next_rank: in the list of all queues of @progress
 */
struct job_queue {
	struct endpoint *ep;
	struct npuwin_engine engine;
	uint32_t spins;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct job_rail rail[JOB_RAILS];
	uint32_t waiters;
	uint32_t sleepers;
	uint32_t serial;
	bool collecting;
	bool missed;
	uint32_t flushes;
	struct progress *progress;
	bool wanted[JOB_RAILS];
	bool listed;
	struct job_queue *next;
	struct job_queue *next_rank;
};

/* Whether @rail of @ep is executed by the runtime. */
static inline bool rail_driven(const struct endpoint *ep, uint32_t rail)
{
	return rail == NPUWIN_RAIL_DIRECT || !ep->ctx->ops->submit;
}

static inline bool job_driven(const struct job *job)
{
	return rail_driven(job->ep, job->rail);
}

/* job.c. The queue is locked. */
void job_append(struct job_queue *q, struct job *job);
/* End a job, wherever in its rail it is, whose completion is in it but for user_data and seq. */
void job_end(struct job_queue *q, struct job *job, uint64_t seq);
/* End a job with a completion of its last descriptor. */
void job_finish(struct job_queue *q, struct job *job, uint32_t status, uint32_t rank);
/* End all of a rail with @status. */
void job_finish_all(struct job_queue *q, uint32_t rail, uint32_t status);
/* Execute as far as it goes without waiting. Whether anything was executed. */
bool job_drive(struct job_queue *q, uint32_t rail);
bool job_domain_ready(const struct endpoint *ep);
/* The status of work that finds the domain not ready: ABORTED, or PEER and who it is. */
uint32_t job_domain_status(const struct endpoint *ep, uint32_t *rank);
/* Let the sleepers of a driven rail look again. */
void job_kick(struct job_queue *q);

/**
 * struct job_sleep - What a thread is going to sleep for.
 * @deadline_ns: when it has to look again at the latest
 * @count: elements of @signals
 * @nqueues: elements of @queues
 * @signals: cells
 * @queues: whose sleepers it is counted in
 */
struct job_sleep {
	int64_t deadline_ns;
	uint32_t count;
	uint32_t nqueues;
	struct npuwin_signal signals[NPUWIN_MAX_SIGNALS];
	struct job_queue *queues[NPUWIN_MAX_SIGNALS / 2];
};

/* job_wait.c */
void job_sleep_start(struct job_sleep *sleep, int64_t deadline_ns);
/* Add a rail, with its queue locked. False where there is something to do instead. */
bool job_sleep_add(struct job_sleep *sleep, struct job_queue *q, uint32_t rail);
/* Sleep until something may have changed; without rails to sleep for, not at all. */
void job_sleep_end(struct job_sleep *sleep, bool sleep_now);
/* Spin or yield for the @round-th time; false when it is time to sleep. */
bool job_pause(const struct job_queue *q, uint32_t round);

/* job_post.c. The queue is locked, and is unlocked while they wait. */
/* Post a job; with @wait in the caller's time where that can be. */
void job_post(struct job_queue *q, struct job *job, bool wait);
/* Take the completions that there are, or have who takes them look once more. */
void job_collect(struct job_queue *q);
/* Wait for a posted job. 0 or -EAGAIN. */
int job_wait_posted(struct job_queue *q, struct job *job, int64_t deadline_ns);

/* progress.c. The queue is not locked. */
/* Bring a queue to those of its context and domain. 0 or -ENOMEM. */
int progress_attach(struct job_queue *q);
/* Its queue is empty for good: let go of it. */
void progress_detach(struct job_queue *q);
/* Start the thread that drives @rail or takes its completions, where it is not running. */
int progress_start(struct job_queue *q, uint32_t rail, struct npuwin_error *err);
/* See to it that the thread drives @rail until it is empty. */
void progress_want(struct job_queue *q, uint32_t rail);
/* Jobs of the direct rail that need somebody to drive them have come or gone. */
void progress_loose(struct job_queue *q, int change);
/* Drive those of the other ranks, where nobody waits for them. Whether anything moved. */
bool progress_drive_loose(struct job_queue *q);
/* Sleep for them too. False where there is something to do instead. */
bool progress_sleep_loose(struct job_queue *q, struct job_sleep *sleep);

#endif /* NPUWIN_JOB_H */
