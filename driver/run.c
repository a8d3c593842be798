// SPDX-License-Identifier: GPL-2.0-only
/*
 * Executing queues: in the calling task while it waits anyway, or in a worker.
 *
 *	IDLE --claim--> RUNNING --nothing to do--> IDLE
 *			RUNNING --TWAIT blocked--> PARKED --claim--> RUNNING
 *
 * Whoever makes the step to RUNNING alone executes, until it makes the step away. A
 * parked queue costs no task: it is an entry on its rank's wait queue, and its wake
 * function looks at the cell before it sends for somebody. That is the helper, a task
 * which waits for this queue, if there is one, and a worker otherwise.
 */
#include <linux/nospec.h>
#include <linux/sizes.h>

#include "npuwin.h"

/* What a step may cost, see npuwin_engine_step(), before anything else is looked at. */
#define NPUWIN_STEP_BYTES	SZ_256K
/* Descriptors that are executed in one read-side section of npuwin_srcu. */
#define NPUWIN_SLICE_DESCS	32
/* How late a deadline may be noticed, so that timers can be served together. */
#define NPUWIN_TIMER_SLACK_NS	(50 * NSEC_PER_USEC)

/**
 * enum npuwin_slice - Why a slice of execution has ended.
 * @NPUWIN_SLICE_MORE: it was long enough
 * @NPUWIN_SLICE_IDLE: there is nothing (more) to do for who executes
 * @NPUWIN_SLICE_BLOCKED: at a TWAIT
 */
enum npuwin_slice {
	NPUWIN_SLICE_MORE,
	NPUWIN_SLICE_IDLE,
	NPUWIN_SLICE_BLOCKED,
};

/* ---- what the engine asks of its surroundings -------------------------- */

static u32 npuwin_run_resolve(void *priv, u32 rank, enum npuwin_space space,
			      struct npuwin_span *span)
{
	struct npuwin_queue *queue = priv;
	struct npuwin_member *member =
		&queue->domain->members[array_index_nospec(rank, queue->domain->nranks)];
	const struct npuwin_mem *mem;

	if (!npuwin_member_joined(member))
		return NPUWIN_ST_PEER;
	if (space == NPUWIN_SPACE_REG) {
		mem = READ_ONCE(member->notify);
		span->size = NPUWIN_REG_BYTES;
	} else {
		mem = READ_ONCE(member->mem);
		span->size = mem->size;
	}
	span->base = mem->vaddr;
	return NPUWIN_ST_OK;
}

static void npuwin_run_notified(void *priv, u32 rank)
{
	struct npuwin_queue *queue = priv;

	npuwin_member_wake(&queue->domain->members[rank]);
}

static const struct npuwin_engine_ops npuwin_run_engine_ops = {
	.resolve = npuwin_run_resolve,
	.notified = npuwin_run_notified,
};

/* ---- who executes ------------------------------------------------------ */

/* Whether there is something that a task could do. */
static bool npuwin_run_claimable(const struct npuwin_queue *queue)
{
	lockdep_assert_held(&queue->lock);

	if (queue->cancel)
		return false;
	if (queue->state == NPUWIN_QUEUE_PARKED)
		return queue->resume;
	return queue->state == NPUWIN_QUEUE_IDLE && queue->tail != queue->head;
}

/**
 * npuwin_run_kick() - See that somebody executes what there is to execute.
 * @queue: the queue, locked
 * @flags: NPUWIN_SUBMIT_F_*
 */
void npuwin_run_kick(struct npuwin_queue *queue, u32 flags)
{
	if (!npuwin_run_claimable(queue))
		return;
	/* Who waits executes it himself, if nobody else does already. */
	if (flags & NPUWIN_SUBMIT_F_WAIT && !queue->helper)
		return;
	if (queue->helper)
		wake_up_process(queue->helper);
	else
		npuwin_turn_wanted(queue);
}

/* ---- parking ----------------------------------------------------------- */

/* Why the TWAIT at the tail has no time left, whatever its cell reads; 0 if it has. */
static u32 npuwin_run_verdict(const struct npuwin_queue *queue, u32 writer, u32 *rank)
{
	const struct npuwin_domain *domain = queue->domain;

	*rank = NPUWIN_NO_RANK;
	if (npuwin_domain_state(domain) != NPUWIN_DOMAIN_READY) {
		*rank = READ_ONCE(domain->abort_rank);
		return READ_ONCE(domain->abort_death) ? NPUWIN_ST_PEER : NPUWIN_ST_ABORTED;
	}
	if (writer < domain->nranks && npuwin_member_left(&domain->members[writer])) {
		*rank = writer;
		return NPUWIN_ST_PEER;
	}
	return 0;
}

/* Called for whatever happens in the rank's memory, under the member's wq.lock. */
static int npuwin_park_wake(struct wait_queue_entry *entry, unsigned int mode, int flags,
			    void *key)
{
	struct npuwin_queue *queue = container_of(entry, struct npuwin_queue, park.entry);
	const struct npuwin_park *park = &queue->park;
	u32 rank;

	/* The queue goes before its rank's memory does, so the cell is there. */
	if (!npuwin_compare(npuwin_cell_read(park->cell), park->cmp, park->value) &&
	    !npuwin_run_verdict(queue, park->writer, &rank))
		return 0;
	spin_lock(&queue->lock);
	queue->resume = true;
	npuwin_run_kick(queue, 0);
	spin_unlock(&queue->lock);
	return 1;
}

static enum hrtimer_restart npuwin_park_timer(struct hrtimer *timer)
{
	struct npuwin_queue *queue = container_of(timer, struct npuwin_queue, timer);

	/* A worker may claim a parked queue at any time: it finds the deadline passed. */
	npuwin_turn_wanted(queue);
	return HRTIMER_NORESTART;
}

/* Undo a park. By who has claimed the queue. */
static void npuwin_unpark(struct npuwin_queue *queue)
{
	if (!queue->park.active)
		return;
	hrtimer_cancel(&queue->timer);
	remove_wait_queue(&queue->member->wq, &queue->park.entry);
	npuwin_sleepers_dec(queue->member);
	queue->park.active = false;
	/* Nobody but the wake function, which is through, sets it. */
	WRITE_ONCE(queue->resume, false);
}

/*
 * Park the queue at its TWAIT.
 * Return: whether it is parked; if not, there is something to look at.
 */
static bool npuwin_park(struct npuwin_queue *queue)
{
	const struct npuwin_desc *desc = npuwin_queue_desc(queue);
	struct npuwin_member *member = queue->member;
	struct npuwin_park *park = &queue->park;
	struct npuwin_span span;
	bool parked = false;
	u32 rank;

	if (npuwin_run_resolve(queue, member->rank, desc->flags & NPUWIN_DESC_F_REG ?
			       NPUWIN_SPACE_REG : NPUWIN_SPACE_WINDOW, &span))
		return false;
	/* The engine has found that all cells are inside. */
	park->cell = span.base + desc->src_off + queue->cqe.cell * desc->src_stride;
	park->value = desc->value;
	park->cmp = desc->sub;
	park->writer = desc->flags & NPUWIN_TWAIT_F_BY_RANK ? queue->cqe.cell : NPUWIN_NO_RANK;
	park->active = true;
	add_wait_queue(&member->wq, &park->entry);
	npuwin_sleepers_inc(member);
	if (npuwin_compare(npuwin_cell_read(park->cell), park->cmp, park->value) ||
	    npuwin_run_verdict(queue, park->writer, &rank))
		return false;

	spin_lock(&queue->lock);
	if (!queue->resume && !queue->cancel) {
		queue->state = NPUWIN_QUEUE_PARKED;
		/*
		 * Under the lock: not before it can be claimed, or the worker would find
		 * nothing to do, and not after somebody else has, who is to stop the timer.
		 */
		if (desc->deadline_ns != NPUWIN_NO_DEADLINE)
			hrtimer_start_range_ns(&queue->timer, desc->deadline_ns,
					       NPUWIN_TIMER_SLACK_NS, HRTIMER_MODE_ABS);
		parked = true;
	}
	spin_unlock(&queue->lock);
	return parked;
}

/* ---- executing --------------------------------------------------------- */

static enum npuwin_exec npuwin_run_engine(struct npuwin_queue *queue)
{
	return npuwin_engine_step(&queue->engine, npuwin_queue_desc(queue), &queue->cursor,
				  NPUWIN_STEP_BYTES, &queue->cqe);
}

/* Execute a step of the descriptor at the tail. Inside npuwin_srcu. */
static enum npuwin_exec npuwin_run_step(struct npuwin_queue *queue)
{
	const struct npuwin_desc *desc = npuwin_queue_desc(queue);
	bool wait = desc->opcode == NPUWIN_OP_TWAIT;
	enum npuwin_exec exec;
	u32 status, rank;

	status = npuwin_run_verdict(queue, NPUWIN_NO_RANK, &rank);
	if (!status || wait) {
		exec = npuwin_run_engine(queue);
		/* A wait that is fulfilled is, even when all else is lost. */
		if (!status || exec == NPUWIN_EXEC_AGAIN ||
		    (exec == NPUWIN_EXEC_DONE && queue->cqe.status == NPUWIN_ST_OK))
			return exec;
	} else {
		queue->cqe = (struct npuwin_cqe) { .user_data = desc->user_data };
	}
	queue->cqe.status = status;
	queue->cqe.rank = rank;
	return NPUWIN_EXEC_DONE;
}

/*
 * A TWAIT is blocked. Inside npuwin_srcu.
 * Return: NPUWIN_EXEC_DONE when it is over all the same, or complete after all;
 * NPUWIN_EXEC_AGAIN when it has got further.
 */
static enum npuwin_exec npuwin_run_give_up(struct npuwin_queue *queue)
{
	const struct npuwin_desc *desc = npuwin_queue_desc(queue);
	u32 cell = queue->cqe.cell;
	u32 writer = desc->flags & NPUWIN_TWAIT_F_BY_RANK ? cell : NPUWIN_NO_RANK;
	enum npuwin_exec exec;
	u32 status, rank;

	status = npuwin_run_verdict(queue, writer, &rank);
	if (!status && desc->deadline_ns != NPUWIN_NO_DEADLINE &&
	    ktime_get() >= desc->deadline_ns) {
		status = NPUWIN_ST_TIMEOUT;
		rank = writer;
	}
	if (!status)
		return NPUWIN_EXEC_BLOCKED;
	/* It may have come just before that, and then the next cell has its turn. */
	exec = npuwin_run_engine(queue);
	if (exec != NPUWIN_EXEC_BLOCKED)
		return exec;
	if (queue->cqe.cell != cell)
		return NPUWIN_EXEC_AGAIN;
	queue->cqe.status = status;
	queue->cqe.rank = rank;
	return NPUWIN_EXEC_DONE;
}

/* Whether somebody polls for completions: how many do is up to them. */
static bool npuwin_run_polled(struct npuwin_queue *queue)
{
	return queue->eventfd || wq_has_sleeper(&queue->file->poll_wq);
}

static enum npuwin_slice npuwin_run_slice(struct npuwin_queue *queue,
					  const struct npuwin_until *until)
{
	enum npuwin_slice slice = NPUWIN_SLICE_MORE;
	struct npuwin_retired retired = {};
	unsigned long tick = jiffies;
	unsigned int descs = 0;
	int srcu;

	srcu = npuwin_read_lock();
	/*
	 * A descriptor that wakes thousands takes long: whether others wait is asked after each.
	 * So can it take to tell who polls, which is done when nobody waits for it.
	 */
	while (slice == NPUWIN_SLICE_MORE && descs < NPUWIN_SLICE_DESCS &&
	       retired.bytes < NPUWIN_STEP_BYTES &&
	       !(retired.posted && npuwin_run_polled(queue)) &&
	       !(descs && (need_resched() || time_after(jiffies, tick)))) {
		enum npuwin_exec exec = npuwin_run_step(queue);

		descs++;
		if (exec == NPUWIN_EXEC_BLOCKED)
			exec = npuwin_run_give_up(queue);
		if (exec == NPUWIN_EXEC_BLOCKED) {
			slice = NPUWIN_SLICE_BLOCKED;
			break;
		}
		if (exec == NPUWIN_EXEC_AGAIN)
			break;

		spin_lock(&queue->lock);
		npuwin_queue_retire(queue, &retired);
		if (queue->cancel || queue->tail == queue->head ||
		    (until && npuwin_until_check(queue, until)))
			slice = NPUWIN_SLICE_IDLE;
		spin_unlock(&queue->lock);
	}
	npuwin_read_unlock(srcu);
	npuwin_queue_notify(queue, &retired);
	return slice;
}

/*
 * Execute a queue that the caller has claimed, until it is parked or there is no more to
 * do: for a worker (no @until) up to a tick, for a waiting task what it waits for.
 *
 * A task may be of so low a priority that it does not get its processor back for minutes.
 * It gives up the queue before it gives up the processor, for npuwin_run_quiesce().
 *
 * Return: 0, or why a waiting task should give up: -ERESTARTSYS, -ETIMEDOUT, -EAGAIN.
 */
static int npuwin_run(struct npuwin_queue *queue, const struct npuwin_until *until,
		      s64 deadline)
{
	unsigned long tick = jiffies;
	int ret = 0;

	for (;;) {
		enum npuwin_slice slice;

		npuwin_unpark(queue);
		slice = READ_ONCE(queue->cancel) ? NPUWIN_SLICE_IDLE :
						   npuwin_run_slice(queue, until);
		if (slice == NPUWIN_SLICE_IDLE)
			break;
		if (slice == NPUWIN_SLICE_BLOCKED && npuwin_park(queue))
			return 0;
		if (!until) {
			cond_resched();
			if (time_after(jiffies, tick))
				break;
		} else if (signal_pending(current)) {
			ret = -ERESTARTSYS;
			break;
		} else if (ktime_get() >= deadline) {
			ret = deadline ? -ETIMEDOUT : -EAGAIN;
			break;
		} else if (need_resched()) {
			break;
		}
	}

	npuwin_unpark(queue);
	spin_lock(&queue->lock);
	queue->state = NPUWIN_QUEUE_IDLE;
	/* A waiting task sees to it itself when it is done. */
	if (queue->helper != current)
		npuwin_run_kick(queue, 0);
	spin_unlock(&queue->lock);
	if (wq_has_sleeper(&queue->wq))
		wake_up_all(&queue->wq);
	return ret;
}

/**
 * npuwin_run_turn() - Execute a queue in a worker, until it has had its turn.
 * @queue: the queue, of which somebody else may be the executor by now
 */
void npuwin_run_turn(struct npuwin_queue *queue)
{
	bool claimed = false;

	spin_lock(&queue->lock);
	if (!queue->cancel && (queue->state == NPUWIN_QUEUE_PARKED ||
			       npuwin_run_claimable(queue))) {
		queue->state = NPUWIN_QUEUE_RUNNING;
		claimed = true;
	}
	spin_unlock(&queue->lock);
	if (claimed)
		npuwin_run(queue, NULL, NPUWIN_NO_DEADLINE);
}

/*
 * Execute if there is something to execute and nobody else does.
 * Return: 1 when what the caller waits for has come, 0 when it can sleep for it,
 * -EINPROGRESS when it has to look again first, another errno when it is over.
 */
static int npuwin_run_help(struct npuwin_queue *queue, const struct npuwin_until *until,
			   s64 deadline)
{
	int ret;

	npuwin_hold_cpu();
	spin_lock(&queue->lock);
	if (!queue->helper)
		queue->helper = current;
	ret = npuwin_until_check(queue, until);
	if (ret || queue->helper != current || !npuwin_run_claimable(queue)) {
		spin_unlock(&queue->lock);
		npuwin_release_cpu();
		return ret;
	}
	queue->state = NPUWIN_QUEUE_RUNNING;
	spin_unlock(&queue->lock);
	__set_current_state(TASK_RUNNING);
	ret = npuwin_run(queue, until, deadline);
	npuwin_release_cpu();
	cond_resched();
	return ret ? ret : -EINPROGRESS;
}

/**
 * npuwin_run_wait() - Wait for something at a queue, and execute it meanwhile.
 * @queue: the queue
 * @until: for what
 * @deadline: how long
 *
 * Return: 0 when it has come; -ERESTARTSYS, -ETIMEDOUT, -EAGAIN (@deadline zero);
 * -ECANCELED, -EPIPE or -ENODEV when it cannot come.
 */
int npuwin_run_wait(struct npuwin_queue *queue, const struct npuwin_until *until,
		    s64 deadline)
{
	DECLARE_WAITQUEUE(domain_wait, current);
	DEFINE_WAIT(wait);
	int ret;

	do {
		ret = npuwin_run_help(queue, until, deadline);
	} while (ret == -EINPROGRESS);
	if (ret)
		goto out;

	add_wait_queue(&queue->domain->wq, &domain_wait);
	do {
		prepare_to_wait(&queue->wq, &wait, TASK_INTERRUPTIBLE);
		ret = npuwin_run_help(queue, until, deadline);
		if (!ret)
			ret = npuwin_sleep(deadline);
	} while (!ret || ret == -EINPROGRESS);
	finish_wait(&queue->wq, &wait);
	remove_wait_queue(&queue->domain->wq, &domain_wait);
out:
	spin_lock(&queue->lock);
	if (queue->helper == current) {
		queue->helper = NULL;
		npuwin_run_kick(queue, 0);
	}
	/* It may have come while giving up. */
	if (ret < 0 && npuwin_until_check(queue, until) == 1)
		ret = 1;
	spin_unlock(&queue->lock);
	return ret < 0 ? ret : 0;
}

/**
 * npuwin_run_quiesce() - Stop execution.
 * @queue: the queue, whose submit_lock is held
 *
 * On return nobody executes the queue, and nobody begins to until its cancel is cleared.
 * Takes a step at most.
 */
void npuwin_run_quiesce(struct npuwin_queue *queue)
{
	bool parked;

	lockdep_assert_held(&queue->submit_lock);

	spin_lock(&queue->lock);
	queue->cancel = true;
	parked = queue->state == NPUWIN_QUEUE_PARKED;
	if (parked)
		queue->state = NPUWIN_QUEUE_RUNNING;
	spin_unlock(&queue->lock);
	if (parked) {
		npuwin_unpark(queue);
		spin_lock(&queue->lock);
		queue->state = NPUWIN_QUEUE_IDLE;
		spin_unlock(&queue->lock);
	}
	wait_event(queue->wq, READ_ONCE(queue->state) != NPUWIN_QUEUE_RUNNING);
	/* Who set the state has let go of the lock before we go on. */
	spin_lock(&queue->lock);
	memset(&queue->cursor, 0, sizeof(queue->cursor));
	spin_unlock(&queue->lock);
}

/**
 * npuwin_run_init() - Prepare a new queue for execution.
 * @queue: the queue
 *
 * Return: 0.
 */
int npuwin_run_init(struct npuwin_queue *queue)
{
	hrtimer_init(&queue->timer, CLOCK_MONOTONIC, HRTIMER_MODE_ABS);
	queue->timer.function = npuwin_park_timer;
	init_waitqueue_func_entry(&queue->park.entry, npuwin_park_wake);
	queue->engine = (struct npuwin_engine) {
		.ops = &npuwin_run_engine_ops,
		.priv = queue,
		.rank = queue->member->rank,
		.nranks = queue->domain->nranks,
	};
	return 0;
}

/**
 * npuwin_run_exit() - A queue that has been quiesced is never executed again.
 * @queue: the queue
 */
void npuwin_run_exit(struct npuwin_queue *queue)
{
	hrtimer_cancel(&queue->timer);
	npuwin_turn_unwanted(queue);
}
