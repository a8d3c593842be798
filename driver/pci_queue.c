// SPDX-License-Identifier: GPL-2.0-only
/*
 * Rings: handing descriptors to the device and taking completions from it.
 *
 * The queue's own ring keeps what has been posted until it is retired, so nothing is ever
 * read back from the submission ring, and the device's completions are checked against it.
 * What becomes of a descriptor is decided in queue.c, as for any engine: this only feeds it.
 */
#include <linux/delay.h>

#include "pci.h"

/* How often to look for room at least, however long it takes. */
#define NPUWIN_PCI_ROOM_LOOKS	100
/*
 * An interrupt's thread is before everybody else. Where it has taken longer than this to tell and
 * wake who waits for completions, workers do it on this device for some time, in users' turns.
 */
#define NPUWIN_PCI_TELL_NS	NSEC_PER_MSEC
#define NPUWIN_PCI_SLOW		(10 * HZ)
/* How long a waiting task sleeps before it looks by itself: an interrupt may be lost. */
#define NPUWIN_PCI_RELOOK_NS	NSEC_PER_SEC

static u32 npuwin_pci_size(const struct npuwin_queue *queue)
{
	return queue->mask + 1;
}

/* ---- making ------------------------------------------------------------ */

static int npuwin_pci_queue_create(struct npuwin_pci *npci, struct npuwin_pci_queue *pq,
				   u32 endpoint)
{
	u32 size = npuwin_pci_size(pq->queue);
	struct npuwin_hw_request request = {
		.opcode = NPUWIN_HW_CMD_QUEUE_CREATE,
		.id = pq->id,
		.queue = {
			.sq_offset = (void *)pq->sq - npci->memory,
			.cq_offset = (void *)pq->cq - npci->memory,
			.sq_depth = size,
			.cq_depth = size,
			.endpoint = endpoint,
			.vector = pq->vector->number,
			.doorbell = pq->doorbell,
		},
	};

	WRITE_ONCE(npuwin_pci_post(npci, pq->id)->sq_tail, 0);
	WRITE_ONCE(npuwin_pci_post(npci, pq->id)->cq_head, 0);
	/* A device that is started anew in between does not know the queue. */
	pq->life = READ_ONCE(npci->life);
	return npuwin_pci_admin(npci, &request, NULL);
}

/* The first of @count is for what concerns the whole device. */
static u32 npuwin_pci_share(u32 id, u32 count)
{
	return count > 1 ? 1 + id % (count - 1) : 0;
}

/**
 * npuwin_pci_queue_init() - Make a queue in the device.
 * @queue: the queue, whose rank is joined
 *
 * Return: 0 or a negative errno.
 */
int npuwin_pci_queue_init(struct npuwin_queue *queue)
{
	struct npuwin_pci *npci = npuwin_pci_of(queue->file->ndev);
	size_t size = npuwin_pci_size(queue);
	struct npuwin_pci_queue *pq;
	int id, ret = -ENOSPC;
	u32 endpoint;

	pq = kzalloc(sizeof(*pq), GFP_KERNEL_ACCOUNT);
	if (!pq)
		return -ENOMEM;
	id = ida_alloc_max(&npci->queue_ids, npci->ident.max_queues - 1, GFP_KERNEL);
	if (id < 0) {
		ret = id;
		goto err_free;
	}
	pq->queue = queue;
	pq->id = id;
	pq->vector = &npci->vectors[npuwin_pci_share(id, npci->nvectors)];
	pq->doorbell = npuwin_pci_share(id, npci->ndoorbells);
	pq->sq = (void *)gen_pool_alloc(npci->rings, size * sizeof(*pq->sq));
	if (!pq->sq)
		goto err_id;
	pq->cq = (void *)gen_pool_alloc(npci->rings, size * sizeof(*pq->cq));
	if (!pq->cq)
		goto err_sq;
	npuwin_pci_endpoint(queue->member, &endpoint);
	ret = npuwin_pci_queue_create(npci, pq, endpoint);
	if (ret)
		goto err_cq;
	queue->priv = pq;
	mutex_lock(&pq->vector->lock);
	list_add_tail(&pq->link, &pq->vector->queues);
	mutex_unlock(&pq->vector->lock);
	return 0;

err_cq:
	gen_pool_free(npci->rings, (unsigned long)pq->cq, size * sizeof(*pq->cq));
err_sq:
	gen_pool_free(npci->rings, (unsigned long)pq->sq, size * sizeof(*pq->sq));
err_id:
	ida_free(&npci->queue_ids, id);
err_free:
	kfree(pq);
	return ret;
}

/* Whether the device knows the queue. */
static bool npuwin_pci_queue_alive(const struct npuwin_pci *npci,
				   const struct npuwin_pci_queue *pq)
{
	return !npuwin_pci_failed(npci) && pq->life == READ_ONCE(npci->life);
}

/**
 * npuwin_pci_queue_exit() - Undo npuwin_pci_queue_init().
 * @queue: the queue, quiesced for good
 */
void npuwin_pci_queue_exit(struct npuwin_queue *queue)
{
	struct npuwin_pci *npci = npuwin_pci_of(queue->file->ndev);
	struct npuwin_pci_queue *pq = queue->priv;
	size_t size = npuwin_pci_size(queue);
	struct npuwin_hw_request request = {
		.opcode = NPUWIN_HW_CMD_QUEUE_DESTROY,
		.id = pq->id,
	};

	mutex_lock(&pq->vector->lock);
	list_del(&pq->link);
	mutex_unlock(&pq->vector->lock);
	npuwin_turn_unwanted(queue);
	spin_lock(&queue->lock);
	queue->priv = NULL;
	spin_unlock(&queue->lock);

	/* What a device that has failed still does with the rings ends when it is reset. */
	if (npuwin_pci_queue_alive(npci, pq) && npuwin_pci_admin(npci, &request, NULL) == -EIO)
		npuwin_pci_fail(npci, "it does not destroy a queue");
	gen_pool_free(npci->rings, (unsigned long)pq->cq, size * sizeof(*pq->cq));
	gen_pool_free(npci->rings, (unsigned long)pq->sq, size * sizeof(*pq->sq));
	ida_free(&npci->queue_ids, pq->id);
	kfree(pq);
}

/* ---- posting ----------------------------------------------------------- */

/* What the ring's byte of a descriptor is, see NPUWIN_HW_SQE_*. */
static u8 npuwin_pci_ring_byte(const struct npuwin_desc *desc, const struct npuwin_slot *slot,
			       u32 flags)
{
	u8 byte = desc->reserved0 ? NPUWIN_HW_SQE_REJECT : 0;

	if (slot->left)
		return byte;
	byte |= NPUWIN_HW_SQE_END;
	/* With a completion it signals anyway. */
	if (flags & NPUWIN_SUBMIT_F_WAIT && !(desc->flags & NPUWIN_DESC_F_CQE))
		byte |= NPUWIN_HW_SQE_IRQ;
	return byte;
}

/**
 * npuwin_pci_queue_kick() - Hand what has been posted to the device.
 * @queue: the queue, locked
 * @flags: NPUWIN_SUBMIT_F_*
 */
void npuwin_pci_queue_kick(struct npuwin_queue *queue, u32 flags)
{
	struct npuwin_pci *npci = npuwin_pci_of(queue->file->ndev);
	struct npuwin_pci_queue *pq = queue->priv;

	lockdep_assert_held(&queue->lock);

	/* Who has set cancel completes what is posted, one way or the other. */
	if (queue->cancel || !npuwin_pci_queue_alive(npci, pq))
		return;
	for (; pq->sq_tail != queue->head; pq->sq_tail++) {
		u32 at = pq->sq_tail & queue->mask;
		struct npuwin_desc desc = queue->ring[at];

		desc.reserved0 = npuwin_pci_ring_byte(&desc, &queue->slots[at], flags);
		if (desc.opcode == NPUWIN_OP_TWAIT)
			pq->last_wait = pq->sq_tail + 1;
		pq->sq[at] = desc;
	}
	if (pq->last_wait > queue->tail && !pq->waiting) {
		/* From now on, who writes to a cell by himself says so. */
		pq->waiting = true;
		npuwin_sleepers_inc(queue->member);
	}
	npuwin_pci_publish(&npuwin_pci_post(npci, pq->id)->sq_tail, (u32)pq->sq_tail);
	npuwin_pci_ring(npci, pq->doorbell);
}

/* ---- completing -------------------------------------------------------- */

static void npuwin_pci_waited(struct npuwin_queue *queue, struct npuwin_pci_queue *pq)
{
	if (pq->waiting && queue->tail >= pq->last_wait) {
		pq->waiting = false;
		npuwin_sleepers_dec(queue->member);
	}
}

/*
 * The domain knows why it is aborted better than the device, which may have been told of one
 * death as an abort.
 */
static void npuwin_pci_translate(const struct npuwin_queue *queue, struct npuwin_cqe *cqe)
{
	const struct npuwin_domain *domain = queue->domain;

	if (cqe->status != NPUWIN_ST_ABORTED ||
	    npuwin_domain_state(domain) != NPUWIN_DOMAIN_ABORTED)
		return;
	cqe->rank = READ_ONCE(domain->abort_rank);
	if (READ_ONCE(domain->abort_death))
		cqe->status = NPUWIN_ST_PEER;
}

/* Retire what is through without having said so, up to descriptor @seq. */
static const char *npuwin_pci_retire_silent(struct npuwin_queue *queue, u64 seq,
					    struct npuwin_retired *retired)
{
	while (queue->tail < seq) {
		if (npuwin_queue_desc(queue)->flags & NPUWIN_DESC_F_CQE)
			return "a completion is missing";
		queue->cqe = (struct npuwin_cqe) { .rank = NPUWIN_NO_RANK };
		npuwin_queue_retire(queue, retired);
	}
	return NULL;
}

static struct npuwin_hw_progress npuwin_pci_progress(const struct npuwin_queue *queue)
{
	const struct npuwin_pci_queue *pq = queue->priv;

	return (struct npuwin_hw_progress) {
		.posted = pq->sq_tail,
		.through = pq->sq_head,
		.tail = queue->tail,
		.taken = pq->cq_head,
		.size = npuwin_pci_size(queue),
	};
}

static const char *npuwin_pci_complete(struct npuwin_queue *queue, struct npuwin_cqe *cqe,
				       struct npuwin_retired *retired)
{
	struct npuwin_hw_progress known = npuwin_pci_progress(queue);
	const char *wrong;
	bool void_now;

	wrong = npuwin_hw_seq_wrong(&known, cqe, &void_now);
	if (wrong || void_now)
		return wrong;
	wrong = npuwin_pci_retire_silent(queue, cqe->seq, retired);
	if (!wrong)
		wrong = npuwin_hw_cqe_wrong(cqe, npuwin_queue_desc(queue),
					    queue->domain->nranks);
	if (wrong)
		return wrong;
	npuwin_pci_translate(queue, cqe);
	queue->cqe = *cqe;
	npuwin_queue_retire(queue, retired);
	return NULL;
}

static const char *npuwin_pci_take(struct npuwin_pci *npci, struct npuwin_queue *queue,
				   struct npuwin_pci_queue *pq, struct npuwin_retired *retired)
{
	const struct npuwin_hw_queue_state *state = npuwin_pci_state(npci, pq->id);
	struct npuwin_hw_progress known = npuwin_pci_progress(queue);
	/* In this order: what is through has its completion on the ring by then. */
	u32 sq_head = npuwin_pci_acquire(&state->sq_head);
	u32 cq_tail = npuwin_pci_acquire(&state->cq_tail);
	const char *wrong = npuwin_hw_state_wrong(&known, sq_head, cq_tail);

	if (wrong || (sq_head == (u32)pq->sq_head && cq_tail == pq->cq_head))
		return wrong;
	pq->sq_head += sq_head - (u32)pq->sq_head;
	while (pq->cq_head != cq_tail && !wrong) {
		struct npuwin_cqe cqe;

		memcpy(&cqe, &pq->cq[pq->cq_head & queue->mask], sizeof(cqe));
		/* The device can write there at any time: the copy is what is checked. */
		barrier();
		pq->cq_head++;
		wrong = npuwin_pci_complete(queue, &cqe, retired);
	}
	if (!wrong)
		wrong = npuwin_pci_retire_silent(queue, pq->sq_head, retired);
	npuwin_pci_publish(&npuwin_pci_post(npci, pq->id)->cq_head, pq->cq_head);
	npuwin_pci_waited(queue, pq);
	return wrong;
}

static void npuwin_pci_collect(struct npuwin_queue *queue, struct npuwin_retired *retired,
			       bool later)
{
	struct npuwin_pci *npci = npuwin_pci_of(queue->file->ndev);
	struct npuwin_pci_queue *pq;
	const char *wrong = NULL;

	spin_lock(&queue->lock);
	pq = queue->priv;
	/* Once it is cancelled or destroyed, what the device says counts no more. */
	if (!queue->cancel && pq && npuwin_pci_queue_alive(npci, pq))
		wrong = npuwin_pci_take(npci, queue, pq, retired);
	if (later && (retired->posted || retired->batches)) {
		pq->untold.posted += retired->posted;
		pq->untold.batches += retired->batches;
		npuwin_turn_wanted(queue);
	}
	spin_unlock(&queue->lock);
	if (wrong)
		npuwin_pci_fail(npci, wrong);
}

/**
 * npuwin_pci_harvest() - Take what the device has completed. By who has business with the queue.
 * @queue: the queue, not locked
 */
void npuwin_pci_harvest(struct npuwin_queue *queue)
{
	struct npuwin_retired retired = {};

	npuwin_pci_collect(queue, &retired, false);
	npuwin_queue_notify(queue, &retired);
}

/**
 * npuwin_pci_harvest_all() - Take what the device has completed in a vector's queues.
 * @vector: the vector
 */
void npuwin_pci_harvest_all(struct npuwin_pci_vector *vector)
{
	struct npuwin_pci *npci = vector->npci;
	struct npuwin_pci_queue *pq;
	u64 took = 0;

	mutex_lock(&vector->lock);
	list_for_each_entry(pq, &vector->queues, link) {
		bool slow = time_before(jiffies, READ_ONCE(npci->slow_until));
		struct npuwin_retired retired = {};

		npuwin_pci_collect(pq->queue, &retired, slow);
		if (slow || (!retired.posted && !retired.batches))
			continue;
		took -= ktime_get_ns();
		npuwin_queue_notify(pq->queue, &retired);
		took += ktime_get_ns();
		if (took > NPUWIN_PCI_TELL_NS)
			WRITE_ONCE(npci->slow_until, jiffies + NPUWIN_PCI_SLOW);
	}
	mutex_unlock(&vector->lock);
}

/**
 * npuwin_pci_queue_turn() - Tell and wake who waits for what is new.
 * @queue: the queue
 */
void npuwin_pci_queue_turn(struct npuwin_queue *queue)
{
	struct npuwin_retired untold = {};
	struct npuwin_pci_queue *pq;
	bool cancel;

	spin_lock(&queue->lock);
	pq = queue->priv;
	if (pq && !pq->telling) {
		untold = pq->untold;
		pq->untold = (struct npuwin_retired) {};
		pq->telling = untold.posted || untold.batches;
	}
	spin_unlock(&queue->lock);
	if (!untold.posted && !untold.batches)
		return;
	npuwin_queue_notify(queue, &untold);
	spin_lock(&queue->lock);
	pq->telling = false;
	cancel = queue->cancel;
	/* What came meanwhile has found nobody else; who has set cancel tells of it himself. */
	if (!cancel && (pq->untold.posted || pq->untold.batches))
		npuwin_turn_wanted(queue);
	spin_unlock(&queue->lock);
	if (cancel)
		wake_up_all(&queue->wq);
}

/* Whether nobody tells of completions. With cancel set, nobody begins to once all is told. */
static bool npuwin_pci_queue_quiet(struct npuwin_queue *queue)
{
	const struct npuwin_pci_queue *pq = queue->priv;
	bool quiet;

	spin_lock(&queue->lock);
	quiet = !pq->telling;
	spin_unlock(&queue->lock);
	return quiet;
}

/* Whether the descriptor at the tail is for the device to get done, and not to wait for. */
static bool npuwin_pci_due(const struct npuwin_queue *queue)
{
	const struct npuwin_desc *desc = &queue->ring[queue->tail & queue->mask];

	if (queue->tail == queue->head)
		return false;
	/* Where its domain is aborted the device has been told to fail it. */
	return desc->opcode != NPUWIN_OP_TWAIT || desc->deadline_ns <= ktime_get_ns() ||
	       npuwin_domain_state(queue->domain) == NPUWIN_DOMAIN_ABORTED;
}

/**
 * npuwin_pci_queue_stuck() - Whether a queue should have got on and has not.
 * @queue: the queue, not locked; every NPUWIN_PCI_WATCH_MS
 * @works: whether the device has made steps since it was last looked at
 *
 * One engine may serve all queues, in any order, and what is in them may take any time. So it
 * does not stand still while it makes steps for any of them.
 *
 * Return: whether that is so.
 */
bool npuwin_pci_queue_stuck(struct npuwin_queue *queue, bool works)
{
	struct npuwin_pci *npci = npuwin_pci_of(queue->file->ndev);
	u64 patience = npuwin_pci_patience(npci);
	struct npuwin_pci_queue *pq;
	bool stuck = false;

	spin_lock(&queue->lock);
	pq = queue->priv;
	if (!pq || queue->cancel || !npuwin_pci_queue_alive(npci, pq))
		goto out_unlock;
	if (works || queue->tail != pq->seen || !npuwin_pci_due(queue)) {
		pq->seen = queue->tail;
		pq->times = 0;
		goto out_unlock;
	}
	pq->times++;
	stuck = (u64)pq->times * NPUWIN_PCI_WATCH_MS > patience;
	if (stuck)
		dev_err(&npci->pdev->dev, "queue %u: nothing is done for descriptor %llu of %llu, opcode %u, for %llu ms\n",
			pq->id, queue->tail, queue->head, npuwin_queue_desc(queue)->opcode,
			patience);
out_unlock:
	spin_unlock(&queue->lock);
	return stuck;
}

/**
 * npuwin_pci_queue_room() - See that descriptors fit on the submission ring.
 * @queue: the queue, whose submit_lock is held and whose own ring has the room
 * @count: descriptors
 *
 * The device may still be skipping what is behind a failure, and does that in no time.
 *
 * Return: 0, -EINTR for who is to die, or -ENODEV.
 */
int npuwin_pci_queue_room(struct npuwin_queue *queue, u32 count)
{
	struct npuwin_pci *npci = npuwin_pci_of(queue->file->ndev);
	unsigned long until = jiffies + msecs_to_jiffies(npuwin_pci_patience(npci));
	struct npuwin_pci_queue *pq = queue->priv;
	const u64 *steps = &npuwin_pci_status(npci)->steps;
	u64 seen = READ_ONCE(*steps);
	unsigned int looks;

	for (looks = 0; ; looks++) {
		u64 used;

		/* What it does for others it has to do first. */
		if (READ_ONCE(*steps) != seen) {
			seen = READ_ONCE(*steps);
			until = jiffies + msecs_to_jiffies(npuwin_pci_patience(npci));
			looks = 0;
		}
		if (fatal_signal_pending(current))
			return -EINTR;
		if (!npuwin_pci_queue_alive(npci, pq))
			return -ENODEV;
		spin_lock(&queue->lock);
		used = queue->head - pq->sq_head;
		spin_unlock(&queue->lock);
		if (used + count <= npuwin_pci_size(queue))
			return 0;
		if (time_after(jiffies, until) && looks > NPUWIN_PCI_ROOM_LOOKS) {
			npuwin_pci_fail(npci, "a queue does not go on");
			return -ENODEV;
		}
		npuwin_pci_harvest(queue);
		usleep_range(20, 100);
	}
}

/**
 * npuwin_pci_queue_quiesce() - Stop execution.
 * @queue: the queue, whose submit_lock is held
 */
void npuwin_pci_queue_quiesce(struct npuwin_queue *queue)
{
	struct npuwin_pci *npci = npuwin_pci_of(queue->file->ndev);
	struct npuwin_pci_queue *pq = queue->priv;
	struct npuwin_hw_request request = {
		.opcode = NPUWIN_HW_CMD_QUEUE_RESET,
		.id = pq->id,
	};
	struct npuwin_hw_response response = {};
	int ret = 0;

	lockdep_assert_held(&queue->submit_lock);

	/* What is complete is complete. */
	npuwin_pci_harvest(queue);
	spin_lock(&queue->lock);
	queue->cancel = true;
	spin_unlock(&queue->lock);

	if (npuwin_pci_queue_alive(npci, pq)) {
		ret = npuwin_pci_admin(npci, &request, &response);
		if (ret == -EIO || (!ret && (u32)response.value[0] != (u32)pq->sq_tail))
			npuwin_pci_fail(npci, "it does not reset a queue");
	}

	spin_lock(&queue->lock);
	pq->sq_head = pq->sq_tail;
	pq->cq_head = (u32)response.value[1];
	pq->last_wait = 0;
	npuwin_pci_waited(queue, pq);
	spin_unlock(&queue->lock);
	if (npuwin_pci_queue_alive(npci, pq))
		WRITE_ONCE(npuwin_pci_post(npci, pq->id)->cq_head, (u32)response.value[1]);
	/* A turn that has begun needs the queue's file, and may have left something to tell. */
	wait_event(queue->wq, npuwin_pci_queue_quiet(queue));
	npuwin_pci_queue_turn(queue);
	wait_event(queue->wq, npuwin_pci_queue_quiet(queue));
}

/* Whether what a task waits for has come; as npuwin_until_check(). */
static int npuwin_pci_queue_check(struct npuwin_queue *queue, const struct npuwin_until *until)
{
	int ret;

	npuwin_pci_harvest(queue);
	spin_lock(&queue->lock);
	ret = npuwin_until_check(queue, until);
	spin_unlock(&queue->lock);
	return ret;
}

/* As npuwin_sleep(), but not for long. */
static int npuwin_pci_sleep(s64 deadline)
{
	s64 relook = ktime_get_ns() + NPUWIN_PCI_RELOOK_NS;
	int ret = npuwin_sleep(min(deadline, relook));

	return ret == -ETIMEDOUT && ktime_get_ns() < deadline ? 0 : ret;
}

/**
 * npuwin_pci_queue_wait() - Wait for something at a queue.
 * @queue: the queue
 * @until: for what
 * @deadline: how long
 *
 * Return: as struct npuwin_backend_ops says.
 */
int npuwin_pci_queue_wait(struct npuwin_queue *queue, const struct npuwin_until *until,
			  s64 deadline)
{
	DECLARE_WAITQUEUE(domain_wait, current);
	DEFINE_WAIT(wait);
	int ret = npuwin_pci_queue_check(queue, until);

	if (ret)
		goto out;
	add_wait_queue(&queue->domain->wq, &domain_wait);
	do {
		prepare_to_wait(&queue->wq, &wait, TASK_INTERRUPTIBLE);
		ret = npuwin_pci_queue_check(queue, until);
		if (!ret)
			ret = npuwin_pci_sleep(deadline);
	} while (!ret);
	finish_wait(&queue->wq, &wait);
	remove_wait_queue(&queue->domain->wq, &domain_wait);
	/* It may have come while giving up. */
	if (ret < 0 && npuwin_pci_queue_check(queue, until) == 1)
		ret = 1;
out:
	return ret < 0 ? ret : 0;
}
