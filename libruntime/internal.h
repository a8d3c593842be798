/* SPDX-License-Identifier: MIT */
/*
 * What the parts of the runtime owe each other. From the bottom:
 *
 *  provider	where windows and engines live (shm.c, dev.c): endpoints, signals, queues
 *  job		a descriptor program of one rank, executed on a rail (job.c)
 *  domain	a rank's membership, its buffers and plans (domain.c, buffer.c)
 *  collective	programs with a handshake, and requests for them (plan.c, a2av.c, …)
 *
 * Nothing above a provider asks which provider it is.
 */
#ifndef NPUWIN_INTERNAL_H
#define NPUWIN_INTERNAL_H

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "engine.h"
#include "npuwin.h"
#include "npuwin_desc.h"
#include "npuwin_ioctl.h"

#define ARRAY_SIZE(a)	(sizeof(a) / sizeof((a)[0]))

struct endpoint;

/**
 * struct provider_ops - Where windows and engines live.
 * @name: "dev" or "shm"
 * @open: make @ctx->priv; the sentence in @err says why it cannot be used
 * @close: undo open
 * @device_count: number of devices
 * @device_info: describe one
 * @domain_create: an empty domain of @nranks windows of @window_size bytes (all of it, the
 *	runtime's own part included); returns a close-on-exec descriptor
 * @join: bring a window of device @device as @rank. Checks @nranks and @window_size against
 *	the domain. Duplicates @fd. Does not wait. -EPIPE where the domain is aborted, so that
 *	it can be tried again; -EBUSY where the rank is taken or the domain complete
 * @commit: as NPUWIN_IOC_DOMAIN_COMMIT: -EAGAIN for deadline 0, -ETIMEDOUT, -ECANCELED,
 *	-EPIPE; @missing is a rank or NPUWIN_NO_RANK
 * @reset: as NPUWIN_IOC_DOMAIN_RESET
 * @map: after each commit: (re)map what changed, so that @window and @regs of the endpoint
 *	hold every joined rank that can be mapped, at unchanged addresses for those that stay
 * @abort: as NPUWIN_IOC_DOMAIN_ABORT
 * @leave: as NPUWIN_IOC_DOMAIN_LEAVE, and frees the endpoint
 * @export_peer: as NPUWIN_IOC_DOMAIN_EXPORT: what the endpoint's window is known by on its
 *	fabric, with a sentence where it is on none. NULL where no window of this provider is
 * @import_peer: as NPUWIN_IOC_DOMAIN_IMPORT. NULL where @export_peer is
 * @signal_wait: as NPUWIN_IOC_SIGNAL_WAIT, not restarted by the provider on -EINTR
 * @signal_wake: as NPUWIN_IOC_SIGNAL_WAKE; called only where sleepers were seen
 * @submit: post to the engine, as NPUWIN_IOC_SUBMIT: @wait true for the caller's time and
 *	up to @room completions. Returns completions taken (>= 0) or a negative errno. NULL
 *	where the engine is the runtime's own (job.c executes)
 * @collect: as NPUWIN_IOC_QUEUE_WAIT with min 1. Returns completions taken
 * @event_fd: eventfd that each completion of the queues of the endpoint's group is added to
 * @queue_reset: as NPUWIN_IOC_QUEUE_RESET; -ECANCELED where the domain's reset will do it
 *
 * @collect, @event_fd and @queue_reset are NULL where @submit is.
 */
struct provider_ops {
	const char *name;
	int (*open)(struct npuwin *ctx, struct npuwin_error *err);
	void (*close)(struct npuwin *ctx);
	int (*device_count)(const struct npuwin *ctx);
	int (*device_info)(struct npuwin *ctx, int index, struct npuwin_device_info *info,
			   struct npuwin_error *err);
	int (*domain_create)(struct npuwin *ctx, uint32_t nranks, uint64_t window_size,
			     struct npuwin_error *err);
	int (*join)(struct npuwin *ctx, int fd, uint32_t nranks, uint64_t window_size,
		    uint32_t rank, int device, struct endpoint **ep, struct npuwin_error *err);
	int (*commit)(struct endpoint *ep, int64_t deadline_ns, uint32_t *missing);
	int (*reset)(struct endpoint *ep, int64_t deadline_ns, uint32_t *missing);
	int (*map)(struct endpoint *ep, struct npuwin_error *err);
	void (*abort)(struct endpoint *ep, int error);
	void (*leave)(struct endpoint *ep);
	int (*export_peer)(struct endpoint *ep, struct npuwin_ioc_domain_peer *peer,
			   struct npuwin_error *err);
	int (*import_peer)(struct endpoint *ep, const struct npuwin_ioc_domain_peer *peer);
	int (*signal_wait)(struct endpoint *ep, struct npuwin_signal *signals, uint32_t count,
			   int64_t deadline_ns, uint32_t *index, uint32_t *gone);
	void (*signal_wake)(struct endpoint *ep, uint32_t rank);
	int (*submit)(struct endpoint *ep, const struct npuwin_desc *descs, uint32_t count,
		      bool wait, int64_t deadline_ns, struct npuwin_cqe *cqes, uint32_t room);
	int (*collect)(struct endpoint *ep, struct npuwin_cqe *cqes, uint32_t room,
		       int64_t deadline_ns);
	int (*event_fd)(struct endpoint *ep);
	int (*queue_reset)(struct endpoint *ep);
};

extern const struct provider_ops provider_dev;
extern const struct provider_ops provider_shm;

/**
 * struct npuwin - A context.
 * @ops: its provider
 * @priv: the provider's
 * @lock: protects @progress
 * @progress: what its domains' ranks have in common in job.c
 * @reason: why this provider was taken
 */
struct npuwin {
	const struct provider_ops *ops;
	void *priv;
	pthread_mutex_t lock;
	struct progress *progress;
	char reason[512];
};

/**
 * struct endpoint - One rank as its provider sees it.
 * @ctx: context
 * @rank: own rank
 * @nranks: ranks in the domain
 * @window_size: bytes of every window, the runtime's own part included
 * @fd: the domain, owned by the endpoint
 * @window: by rank: mapped window, NULL where it is not mapped
 * @regs: by rank: mapped notify registers, NULL where they are not mapped
 * @status: the domain's status page; peers or the kernel write it: read with atomics, and
 *	trust no value
 * @group: the same for endpoints of one context and one domain: one signal_wait() of any of
 *	them takes signals of all of them
 * @priv: the provider's
 * @jobs: job.c's state of this rank: its in-order queue of jobs
 */
struct endpoint {
	struct npuwin *ctx;
	uint32_t rank;
	uint32_t nranks;
	uint64_t window_size;
	int fd;
	uint8_t **window;
	int32_t **regs;
	const struct npuwin_domain_status *status;
	const void *group;
	void *priv;
	struct job_queue *jobs;
};

/**
 * struct job - A descriptor program of one rank.
 * @ep: whose
 * @rail: enum npuwin_rail
 * @descs: the program, stable until the job is done; the last one has %NPUWIN_DESC_F_CQE
 *	and no other has. @user_data of its descriptors is job.c's
 * @count: descriptors
 * @done: complete; read with job_test()
 * @cqe: valid once done: the only completion of the program: the failing descriptor's, or
 *	the last one's. @cqe.seq is the index of that descriptor in the program
 * @next: job.c's
 * @pos: job.c's: descriptor being executed
 * @cursor: job.c's
 * @event_fd: job.c's: -1, or made by job_fd()
 * @serial: job.c's: number that its completion is known by
 * @posted: job.c's: the engine has it
 * @loose: job.c's: started on the direct rail, to go on while its caller tests or waits
 *
 * Jobs of one endpoint execute in the order of their starts on each rail; a caller that
 * needs order between the rails waits in between.
 */
struct job {
	struct endpoint *ep;
	uint32_t rail;
	struct npuwin_desc *descs;
	uint32_t count;
	bool done;
	struct npuwin_cqe cqe;
	struct job *next;
	uint32_t pos;
	struct npuwin_cursor cursor;
	int event_fd;
	uint32_t serial;
	bool posted;
	bool loose;
};

/*
 * The last notify register of every rank is job.c's: it wakes threads that sleep for a queue
 * which another thread has moved on.
 */
#define JOB_KICK_REG	(NPUWIN_NOTIFY_REGS - 1)

int job_queue_create(struct endpoint *ep, struct npuwin_error *err);
/* Ends what is queued with %NPUWIN_ST_CANCELLED; on return nothing is executed any more, and a
 * queue that a failure had stopped takes jobs again.
 */
void job_queue_flush(struct endpoint *ep);
void job_queue_destroy(struct endpoint *ep);

/*
 * What goes wrong with a job is in its completion, even where it could not be started because
 * the domain is aborted or not ready (%NPUWIN_ST_ABORTED, or %NPUWIN_ST_PEER with the rank
 * whose death did it), the queue is stopped (%NPUWIN_ST_CANCELLED) or the device is gone
 * (%NPUWIN_ST_DEVICE): the job is then done. job_start() and job_run() return errors only for
 * what no job of the call can be blamed for (-ENOMEM, -EINVAL); then none of them is queued.
 *
 * Start without waiting. On the host rail it goes on by itself.
 */
int job_start(struct job *job, struct npuwin_error *err);
/* Start all and wait for all in the caller's time. Where the engine is the kernel's, that is one
 * system call for the last job, and for each of the others one to post it and one to take its
 * completion. Deadlines are in the descriptors.
 */
int job_run(struct job **jobs, uint32_t n, struct npuwin_error *err);
/* Look; drives the job where it needs the caller (direct rail), and all others of the context's
 * ranks in the domain that nobody waits for: they may be what it waits for. So does a wait.
 * 0 done, -EAGAIN not.
 */
int job_test(struct job *job);
/* Whether @job, if it is one that the library executes, is at a TWAIT by rank: its descriptor's
 * index, and for whom.
 */
bool job_waits_for(struct job *job, uint64_t *desc, uint32_t *rank);
/* 0 all done, -EAGAIN when the deadline passes. */
int job_wait(struct job **jobs, uint32_t n, int64_t deadline_ns);
/* Descriptor that is readable once the job is done; the job then needs no caller. */
int job_fd(struct job *job, struct npuwin_error *err);
/* Release what the job holds; it is done. */
void job_fini(struct job *job);

/* error.c: fill @err (may be NULL) and return @code, a negative errno. */
int npuwin_fail(struct npuwin_error *err, int code, int32_t rank, int32_t peer,
		const char *fmt, ...) __attribute__((format(printf, 5, 6)));
#ifdef __clang_analyzer__
/* The analyzer sees one file at a time: this is what it needs to know of error.c. */
static inline int npuwin_failure(int code)
{
	if (code >= 0)
		__builtin_unreachable();
	return code;
}

#define npuwin_fail(...) npuwin_failure((npuwin_fail)(__VA_ARGS__))
#endif
/* Success: @err (may be NULL) says that nothing failed. Returns @value. */
int npuwin_ok(struct npuwin_error *err, int value);
/* Current CLOCK_MONOTONIC time. */
int64_t npuwin_now(void);
/* Start a thread of the library's own: the program's signals do not go to it. 0 or -errno. */
int npuwin_thread(pthread_t *thread, void *(*run)(void *arg), void *arg);

/*
 * The runtime's own part at the start of every window: cells and slots that the handshake
 * of collectives uses (handshake.c). window size of the provider = that + the user's.
 */
uint64_t handshake_size(uint32_t nranks);

struct heap;	/* buffer.c: the symmetric allocator */
struct plans;	/* plan.c: prepared programs and their requests */

/**
 * struct npuwin_domain - A rank's membership.
 * @ctx: context
 * @ep: the provider's side
 * @name: rendezvous name, or ""
 * @bootstrap: the ranks are elsewhere on the fabric, and are met by this; or NULL
 * @lock: protects @heap, @plans, @seq and the order in which jobs are started
 * @heap: symmetric allocator over the user's part of the window
 * @plans: prepared programs
 * @seq: collective calls started since the last commit
 * @generation: domain.c's: reset that this rank has cleaned its window for
 */
struct npuwin_domain {
	struct npuwin *ctx;
	struct endpoint *ep;
	char name[65];
	struct npuwin_bootstrap *bootstrap;
	pthread_mutex_t lock;
	struct heap *heap;
	struct plans *plans;
	uint32_t seq;
	uint32_t generation;
};

/* Hooks of the upper layer that domain.c calls. */
/* After the first commit of a membership: buffers and plans come to exist. The window is
 * zeroed already, and peers may be writing to it: nothing may be cleared here.
 */
int collective_init(struct npuwin_domain *domain, struct npuwin_error *err);
/* Between reset and commit: end requests with -ECANCELED, zero the handshake part and every
 * signal's cells in the own window, restart @seq.
 */
void collective_reset(struct npuwin_domain *domain);
/* Before leave: free requests, plans, buffers. */
void collective_fini(struct npuwin_domain *domain);

#endif /* NPUWIN_INTERNAL_H */
