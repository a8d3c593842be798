// SPDX-License-Identifier: GPL-2.0-only
/*
 * Queues: making and emptying them, and retiring descriptors.
 */
#include <linux/log2.h>
#include <linux/nospec.h>
#include <linux/poll.h>
#include <linux/slab.h>

#include "npuwin.h"

static void npuwin_queue_release(struct kref *ref)
{
	struct npuwin_queue *queue = container_of(ref, struct npuwin_queue, ref);

	if (queue->eventfd)
		eventfd_ctx_put(queue->eventfd);
	kvfree(queue->ring);
	kvfree(queue->slots);
	kvfree(queue->cring);
	npuwin_domain_put(queue->domain);
	kfree(queue);
}

/**
 * npuwin_queue_put() - Drop a reference.
 * @queue: the queue
 */
void npuwin_queue_put(struct npuwin_queue *queue)
{
	kref_put(&queue->ref, npuwin_queue_release);
}

/**
 * npuwin_queue_get() - Find a queue of a file.
 * @file: the file
 * @id: its id
 *
 * Return: the queue with a reference, or NULL.
 */
struct npuwin_queue *npuwin_queue_get(struct npuwin_file *file, u32 id)
{
	struct npuwin_queue *queue = NULL;
	struct npuwin_obj *obj;

	xa_lock(&file->objs);
	obj = xa_load(&file->objs, id);
	if (obj && obj->type == NPUWIN_OBJ_QUEUE) {
		queue = container_of(obj, struct npuwin_queue, obj);
		kref_get(&queue->ref);
	}
	xa_unlock(&file->objs);
	return queue;
}

/* ---- retiring ---------------------------------------------------------- */

static void npuwin_queue_post(struct npuwin_queue *queue, const struct npuwin_cqe *cqe,
			      struct npuwin_retired *retired)
{
	queue->cring[queue->cq_head & queue->mask] = *cqe;
	queue->cq_head++;
	atomic_inc(&queue->file->unread);
	retired->posted++;
}

/* A descriptor has failed for good: what is left completes with its batch's last one. */
static void npuwin_queue_stop(struct npuwin_queue *queue, struct npuwin_retired *retired)
{
	struct npuwin_device *ndev = queue->file->ndev;

	queue->stopped = true;
	while (queue->tail != queue->head) {
		const struct npuwin_slot *slot = &queue->slots[queue->tail & queue->mask];
		u64 last = queue->tail + slot->left;
		struct npuwin_cqe cqe = {
			.user_data = queue->ring[last & queue->mask].user_data,
			.seq = last,
			.status = NPUWIN_ST_CANCELLED,
			.rank = NPUWIN_NO_RANK,
		};

		queue->reserved -= slot->cqes;
		queue->tail = last + 1;
		npuwin_stat_add(ndev, NPUWIN_STAT_DESCRIPTORS, slot->left + 1);
		npuwin_queue_post(queue, &cqe, retired);
		retired->batches++;
	}
}

/**
 * npuwin_queue_retire() - The descriptor at the tail is through.
 * @queue: the queue, locked, that the caller executes; its cqe says how it went
 * @retired: what came of it is added here, for npuwin_queue_notify()
 */
void npuwin_queue_retire(struct npuwin_queue *queue, struct npuwin_retired *retired)
{
	const struct npuwin_slot *slot = &queue->slots[queue->tail & queue->mask];
	const struct npuwin_desc *desc = npuwin_queue_desc(queue);
	struct npuwin_device *ndev = queue->file->ndev;
	struct npuwin_cqe *cqe = &queue->cqe;
	u64 bytes;

	lockdep_assert_held(&queue->lock);

	memset(&queue->cursor, 0, sizeof(queue->cursor));
	cqe->user_data = desc->user_data;
	cqe->seq = queue->tail;
	if (!slot->left || cqe->status != NPUWIN_ST_OK)
		retired->batches++;

	if (cqe->status == NPUWIN_ST_OK) {
		bytes = desc->opcode == NPUWIN_OP_TPUT ? desc->rows * desc->row_bytes : 0;
		/* A last one that posts nothing has kept room for its failure. */
		if (desc->flags & NPUWIN_DESC_F_CQE || !slot->left)
			queue->reserved--;
		if (desc->flags & NPUWIN_DESC_F_CQE)
			npuwin_queue_post(queue, cqe, retired);
		queue->tail++;
		npuwin_stat_add(ndev, NPUWIN_STAT_DESCRIPTORS, 1);
		npuwin_stat_add(ndev, NPUWIN_STAT_BYTES, bytes);
		retired->bytes += bytes;
		return;
	}

	if (cqe->status == NPUWIN_ST_TIMEOUT)
		npuwin_stat_add(ndev, NPUWIN_STAT_TIMEOUTS, 1);
	else if (cqe->status == NPUWIN_ST_BOUNDS)
		npuwin_stat_add(ndev, NPUWIN_STAT_BOUNDS, 1);
	npuwin_stat_add(ndev, NPUWIN_STAT_DESCRIPTORS, slot->left + 1);
	queue->reserved -= slot->cqes;
	queue->tail += slot->left + 1;
	npuwin_queue_post(queue, cqe, retired);
	if (cqe->status != NPUWIN_ST_MISMATCH)
		npuwin_queue_stop(queue, retired);
}

/**
 * npuwin_queue_notify() - Tell who waits for what has been retired.
 * @queue: the queue, not locked
 * @retired: what has been
 *
 * How many wait is up to them: this may take long.
 */
void npuwin_queue_notify(struct npuwin_queue *queue, const struct npuwin_retired *retired)
{
	if (retired->posted) {
		if (queue->eventfd)
			eventfd_signal(queue->eventfd, retired->posted);
		if (wq_has_sleeper(&queue->file->poll_wq))
			wake_up_interruptible_poll(&queue->file->poll_wq,
						   EPOLLIN | EPOLLRDNORM);
	}
	if ((retired->posted || retired->batches) && wq_has_sleeper(&queue->wq))
		wake_up_all(&queue->wq);
}

/* Forget all completions that nobody has taken. */
static void npuwin_queue_drop_cqes(struct npuwin_queue *queue)
{
	lockdep_assert_held(&queue->lock);

	atomic_sub(queue->cq_head - queue->cq_tail, &queue->file->unread);
	queue->cq_tail = queue->cq_head;
}

/**
 * npuwin_queue_empty() - Reset a queue.
 * @queue: the queue
 *
 * Return: 0, -ENODEV where its device is gone, or -ENOENT where it is itself.
 */
int npuwin_queue_empty(struct npuwin_queue *queue)
{
	int ret = 0;

	mutex_lock(&queue->submit_lock);
	/* Once it is gone or destroyed, the backend knows nothing of it. */
	if (!queue->gone && !queue->dead)
		npuwin_queue_ops(queue)->queue_quiesce(queue);
	/* Nobody may be copying the completions out that are dropped here. */
	mutex_lock(&queue->take_lock);
	spin_lock(&queue->lock);
	if (queue->dead) {
		ret = -ENOENT;
	} else if (queue->gone) {
		ret = -ENODEV;
	} else {
		npuwin_queue_drop_cqes(queue);
		queue->tail = queue->head;
		queue->reserved = 0;
		queue->stopped = false;
		queue->epoch++;
		queue->cancel = false;
	}
	spin_unlock(&queue->lock);
	mutex_unlock(&queue->take_lock);
	mutex_unlock(&queue->submit_lock);
	wake_up_all(&queue->wq);
	return ret;
}

/**
 * npuwin_queue_fail() - A queue's device goes away.
 * @queue: the queue; its file is locked
 * @status: what the descriptor at the tail completes with
 *
 * What has been completed can still be taken. The queue is its rank's no more, and the
 * backend has nothing to do with it any more: what is in a device's hands is given back before
 * the rank's window is.
 */
void npuwin_queue_fail(struct npuwin_queue *queue, u32 status)
{
	struct npuwin_retired retired = {};

	lockdep_assert_held(&queue->file->lock);

	list_del_init(&queue->link);
	mutex_lock(&queue->submit_lock);
	npuwin_queue_ops(queue)->queue_quiesce(queue);
	spin_lock(&queue->lock);
	queue->gone = true;
	if (queue->tail != queue->head) {
		queue->cqe = (struct npuwin_cqe) {
			.status = status,
			.rank = NPUWIN_NO_RANK,
		};
		npuwin_queue_retire(queue, &retired);
	}
	spin_unlock(&queue->lock);
	npuwin_queue_ops(queue)->queue_exit(queue);
	mutex_unlock(&queue->submit_lock);
	npuwin_queue_notify(queue, &retired);
	wake_up_all(&queue->wq);
}

/**
 * npuwin_queue_destroy() - A queue goes. On return nothing executes it.
 * @queue: the queue; its file is locked
 */
void npuwin_queue_destroy(struct npuwin_queue *queue)
{
	struct npuwin_file *file = queue->file;

	lockdep_assert_held(&file->lock);

	npuwin_obj_remove(file, &queue->obj);
	list_del_init(&queue->link);
	mutex_lock(&queue->submit_lock);
	if (!queue->gone) {
		npuwin_queue_ops(queue)->queue_quiesce(queue);
		npuwin_queue_ops(queue)->queue_exit(queue);
	}
	mutex_lock(&queue->take_lock);
	spin_lock(&queue->lock);
	queue->dead = true;
	npuwin_queue_drop_cqes(queue);
	spin_unlock(&queue->lock);
	mutex_unlock(&queue->take_lock);
	mutex_unlock(&queue->submit_lock);
	wake_up_all(&queue->wq);
	atomic_dec(&file->ndev->nqueues);
	npuwin_queue_put(queue);
}

/**
 * npuwin_until_check() - Whether what a task waits for at a queue has come.
 * @queue: the queue, locked
 * @until: what that is
 *
 * Return: 1 if it has, 0 if not, or why it cannot come: -ECANCELED, -EPIPE, -ENODEV.
 */
int npuwin_until_check(const struct npuwin_queue *queue, const struct npuwin_until *until)
{
	u64 ready = queue->cq_head - queue->cq_tail;
	int ret;

	lockdep_assert_held(&queue->lock);

	if (queue->dead || queue->epoch != until->epoch)
		return -ECANCELED;
	if (until->seq)
		return queue->tail >= until->seq;
	if (ready >= until->min)
		return 1;
	if (queue->gone)
		return ready ? 1 : -ENODEV;
	if (queue->tail != queue->head)
		return 0;
	ret = npuwin_domain_error(queue->domain);
	if (ret && ret != -EAGAIN)
		return ret;
	return queue->stopped ? -ECANCELED : 0;
}

/* ---- creating ---------------------------------------------------------- */

static struct npuwin_queue *npuwin_queue_new(struct npuwin_file *file,
					     struct npuwin_domain *domain, u32 rank, u32 depth)
{
	u32 size = roundup_pow_of_two(depth);
	struct npuwin_queue *queue;

	queue = kzalloc(sizeof(*queue), GFP_KERNEL_ACCOUNT);
	if (!queue)
		return NULL;
	queue->ring = kvcalloc(size, sizeof(*queue->ring), GFP_KERNEL_ACCOUNT);
	queue->slots = kvcalloc(size, sizeof(*queue->slots), GFP_KERNEL_ACCOUNT);
	queue->cring = kvcalloc(size, sizeof(*queue->cring), GFP_KERNEL_ACCOUNT);
	if (!queue->ring || !queue->slots || !queue->cring) {
		kvfree(queue->ring);
		kvfree(queue->slots);
		kvfree(queue->cring);
		kfree(queue);
		return NULL;
	}
	kref_init(&queue->ref);
	npuwin_domain_get(domain);
	queue->domain = domain;
	queue->file = file;
	queue->member = &domain->members[rank];
	queue->depth = depth;
	queue->mask = size - 1;
	INIT_LIST_HEAD(&queue->link);
	INIT_LIST_HEAD(&queue->turn_link);
	mutex_init(&queue->submit_lock);
	mutex_init(&queue->take_lock);
	spin_lock_init(&queue->lock);
	init_waitqueue_head(&queue->wq);
	return queue;
}

/* Whether a file may have a queue for a rank now. */
static int npuwin_queue_permitted(struct npuwin_file *file, struct npuwin_domain *domain,
				  u32 rank)
{
	struct npuwin_member *member;
	int ret;

	if (npuwin_device_gone(file->ndev))
		return -ENODEV;
	mutex_lock(&domain->lock);
	member = npuwin_member_find(domain, rank, file);
	ret = PTR_ERR_OR_ZERO(member);
	if (!ret) {
		ret = npuwin_domain_error(domain);
		/* It can be made before it can be used. */
		if (ret == -EAGAIN)
			ret = 0;
	}
	mutex_unlock(&domain->lock);
	return ret;
}

/* Make a new queue known to its file and rank. Nobody finds it by its id yet. */
static int npuwin_queue_add(struct npuwin_queue *queue)
{
	struct npuwin_file *file = queue->file;
	int ret;

	lockdep_assert_held(&file->lock);

	ret = npuwin_queue_permitted(file, queue->domain, queue->member->rank);
	if (ret)
		return ret;
	ret = npuwin_obj_reserve(file, &queue->obj, NPUWIN_OBJ_QUEUE, NPUWIN_MAX_QUEUES);
	if (ret)
		return ret;
	ret = npuwin_queue_ops(queue)->queue_init(queue);
	if (ret) {
		npuwin_obj_remove(file, &queue->obj);
		return ret;
	}
	list_add_tail(&queue->link, &queue->member->queues);
	atomic_inc(&file->ndev->nqueues);
	kref_get(&queue->ref);
	return 0;
}

/*
 * Neither memory nor a user's page is waited for under the file's lock, which an unplug
 * needs: either may take its time.
 */
static int npuwin_queue_create(struct npuwin_ucmd *ucmd, struct npuwin_domain *domain)
{
	struct npuwin_ioc_queue_create *cmd = ucmd->cmd;
	struct npuwin_file *file = ucmd->file;
	struct npuwin_queue *queue;
	int ret;

	if (cmd->depth > file->ndev->max_depth)
		return -EINVAL;
	if (cmd->rank >= domain->nranks)
		return -ENOENT;
	queue = npuwin_queue_new(file, domain, array_index_nospec(cmd->rank, domain->nranks),
				 cmd->depth);
	if (!queue)
		return -ENOMEM;
	if (cmd->event_fd != -1) {
		queue->eventfd = eventfd_ctx_fdget(cmd->event_fd);
		if (IS_ERR(queue->eventfd)) {
			/* Also where it is something else than an eventfd. */
			queue->eventfd = NULL;
			ret = -EBADF;
			goto out_put;
		}
	}

	mutex_lock(&file->lock);
	ret = npuwin_queue_add(queue);
	mutex_unlock(&file->lock);
	if (ret)
		goto out_put;
	cmd->queue_id = queue->obj.id;
	ret = npuwin_respond(ucmd);
	mutex_lock(&file->lock);
	/* Its rank may have left meanwhile, and taken it along. */
	if (!queue->dead) {
		if (ret)
			npuwin_queue_destroy(queue);
		else
			npuwin_obj_finalize(file, &queue->obj);
	}
	mutex_unlock(&file->lock);
out_put:
	npuwin_queue_put(queue);
	return ret;
}

/**
 * npuwin_ioctl_queue_create() - NPUWIN_IOC_QUEUE_CREATE.
 * @ucmd: the call
 *
 * Return: 0 or a negative errno.
 */
int npuwin_ioctl_queue_create(struct npuwin_ucmd *ucmd)
{
	struct npuwin_ioc_queue_create *cmd = ucmd->cmd;
	struct npuwin_domain *domain;
	int ret;

	if (cmd->flags || cmd->reserved || !cmd->depth || cmd->depth > NPUWIN_MAX_QUEUE_DEPTH)
		return -EINVAL;
	domain = npuwin_domain_get_fd(cmd->domain_fd);
	if (IS_ERR(domain))
		return PTR_ERR(domain);
	ret = npuwin_queue_create(ucmd, domain);
	npuwin_domain_put(domain);
	return ret;
}

/**
 * npuwin_ioctl_queue_reset() - NPUWIN_IOC_QUEUE_RESET.
 * @ucmd: the call
 *
 * Return: 0 or a negative errno.
 */
int npuwin_ioctl_queue_reset(struct npuwin_ucmd *ucmd)
{
	struct npuwin_ioc_queue_reset *cmd = ucmd->cmd;
	struct npuwin_queue *queue = npuwin_queue_get(ucmd->file, cmd->queue_id);
	int ret;

	if (!queue)
		return -ENOENT;
	ret = npuwin_domain_error(queue->domain);
	if (!ret || ret == -EAGAIN)
		ret = npuwin_queue_empty(queue);
	else
		ret = -ECANCELED;
	npuwin_queue_put(queue);
	return ret;
}
