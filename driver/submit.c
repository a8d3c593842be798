// SPDX-License-Identifier: GPL-2.0-only
/*
 * Posting batches and taking completions.
 *
 * A queue never loses a completion, and posting never allocates: at the submission of a
 * batch there is room for all the completions that it can lead to.
 */
#include <linux/pagemap.h>
#include <linux/uaccess.h>

#include "npuwin.h"

/*
 * Copy a batch into the ring, behind the head.
 * Return: 0, or -EFAULT where its pages are not there at the moment: a user can make a
 * page take for ever, and an unplug needs the lock that is held.
 */
static int npuwin_queue_copy(struct npuwin_queue *queue, const struct npuwin_desc __user *user,
			     u32 count)
{
	u32 first = queue->head & queue->mask;
	u32 part = min(count, queue->mask + 1 - first);
	u32 i, cqes = 0;
	bool fault;

	pagefault_disable();
	fault = copy_from_user(&queue->ring[first], user, part * sizeof(*user)) ||
		copy_from_user(queue->ring, user + part, (count - part) * sizeof(*user));
	pagefault_enable();
	if (fault)
		return -EFAULT;

	/* From the end: how many completions can what is left of the batch post? */
	for (i = count; i--; ) {
		u32 at = (first + i) & queue->mask;

		if (i == count - 1 || queue->ring[at].flags & NPUWIN_DESC_F_CQE)
			cqes++;
		queue->slots[at].left = count - 1 - i;
		queue->slots[at].cqes = cqes;
	}
	return 0;
}

/* Why a queue takes nothing now; 0 if it does. */
static int npuwin_queue_refusal(const struct npuwin_queue *queue)
{
	int ret;

	if (queue->dead)
		return -ENOENT;
	if (queue->gone)
		return -ENODEV;
	ret = npuwin_domain_error(queue->domain);
	if (ret)
		return ret;
	return queue->stopped ? -ECANCELED : 0;
}

/* Post a batch whose pages are there. Sets @until to its end. */
static int npuwin_queue_try_submit(struct npuwin_queue *queue,
				   const struct npuwin_ioc_submit *cmd,
				   struct npuwin_until *until)
{
	u32 cqes;
	int ret;

	if (mutex_lock_interruptible(&queue->submit_lock))
		return -ERESTARTSYS;
	spin_lock(&queue->lock);
	ret = npuwin_queue_refusal(queue);
	if (!ret && queue->head - queue->tail + cmd->count > queue->depth)
		ret = -EAGAIN;
	spin_unlock(&queue->lock);
	if (!ret && npuwin_queue_ops(queue)->queue_room)
		ret = npuwin_queue_ops(queue)->queue_room(queue, cmd->count);
	if (!ret)
		ret = npuwin_queue_copy(queue, u64_to_user_ptr(cmd->descs), cmd->count);
	if (ret)
		goto out_unlock;

	spin_lock(&queue->lock);
	ret = npuwin_queue_refusal(queue);
	cqes = queue->slots[queue->head & queue->mask].cqes;
	if (!ret && queue->cq_head - queue->cq_tail + queue->reserved + cqes > queue->depth)
		ret = -EAGAIN;
	if (!ret) {
		queue->reserved += cqes;
		queue->head += cmd->count;
		until->seq = queue->head;
		until->epoch = queue->epoch;
		npuwin_queue_ops(queue)->queue_kick(queue, cmd->flags);
	}
	spin_unlock(&queue->lock);
out_unlock:
	mutex_unlock(&queue->submit_lock);
	return ret;
}

static int npuwin_queue_submit(struct npuwin_queue *queue, const struct npuwin_ioc_submit *cmd,
			       struct npuwin_until *until)
{
	size_t size = cmd->count * sizeof(struct npuwin_desc);
	int ret;

	for (;;) {
		ret = npuwin_queue_try_submit(queue, cmd, until);
		if (ret != -EFAULT)
			return ret;
		if (fault_in_readable(u64_to_user_ptr(cmd->descs), size))
			return -EFAULT;
		if (signal_pending(current))
			return -ERESTARTSYS;
	}
}

/*
 * Take up to @room completions, where there are at least @min, into pages that are there.
 * Return: how many, or -EFAULT, and then none is taken; @size is what it takes.
 */
static int npuwin_queue_try_take(struct npuwin_queue *queue, struct npuwin_cqe __user *user,
				 u32 room, u32 min, size_t *size)
{
	u32 first, part, count;
	int ret = 0;
	bool fault;

	mutex_lock(&queue->take_lock);
	spin_lock(&queue->lock);
	count = min_t(u64, queue->cq_head - queue->cq_tail, room);
	first = queue->cq_tail & queue->mask;
	spin_unlock(&queue->lock);
	if (!count || count < min)
		goto out_unlock;

	*size = count * sizeof(*user);
	part = min(count, queue->mask + 1 - first);
	pagefault_disable();
	fault = copy_to_user(user, &queue->cring[first], part * sizeof(*user)) ||
		copy_to_user(user + part, queue->cring, (count - part) * sizeof(*user));
	pagefault_enable();
	if (fault) {
		ret = -EFAULT;
		goto out_unlock;
	}
	spin_lock(&queue->lock);
	queue->cq_tail += count;
	spin_unlock(&queue->lock);
	atomic_sub(count, &queue->file->unread);
	ret = count;
out_unlock:
	mutex_unlock(&queue->take_lock);
	return ret;
}

static int npuwin_queue_take(struct npuwin_queue *queue, struct npuwin_cqe __user *user,
			     u32 room, u32 min)
{
	size_t size;
	int ret;

	for (;;) {
		ret = npuwin_queue_try_take(queue, user, room, min, &size);
		if (ret != -EFAULT)
			return ret;
		if (fault_in_safe_writeable((char __user *)user, size) ||
		    fatal_signal_pending(current))
			return -EFAULT;
	}
}

/**
 * npuwin_ioctl_submit() - NPUWIN_IOC_SUBMIT.
 * @ucmd: the call
 *
 * Return: 0 or a negative errno.
 */
int npuwin_ioctl_submit(struct npuwin_ucmd *ucmd)
{
	struct npuwin_ioc_submit *cmd = ucmd->cmd;
	struct npuwin_until until = {};
	struct npuwin_queue *queue;
	int ret;

	if (cmd->flags & ~NPUWIN_SUBMIT_F_WAIT)
		return -EINVAL;
	if (cmd->flags & NPUWIN_SUBMIT_F_WAIT) {
		if (cmd->deadline_ns < 0)
			return -EINVAL;
	} else if (cmd->deadline_ns || cmd->cqes || cmd->cqe_count) {
		return -EINVAL;
	}
	queue = npuwin_queue_get(ucmd->file, cmd->queue_id);
	if (!queue)
		return -ENOENT;
	if (!cmd->count || cmd->count > queue->depth) {
		ret = -EINVAL;
		goto out_put;
	}

	ret = npuwin_queue_submit(queue, cmd, &until);
	if (ret)
		goto out_put;
	npuwin_stat_add(ucmd->file->ndev, NPUWIN_STAT_DOORBELLS, 1);
	cmd->submitted = cmd->count;
	if (cmd->flags & NPUWIN_SUBMIT_F_WAIT) {
		/* Whatever ends the wait, the batch has been taken: that is success. */
		npuwin_queue_ops(queue)->queue_wait(queue, &until, cmd->deadline_ns);
		ret = npuwin_queue_take(queue, u64_to_user_ptr(cmd->cqes), cmd->cqe_count, 0);
		cmd->cqe_count = max(ret, 0);
		ret = min(ret, 0);
	}
	if (npuwin_respond(ucmd))
		ret = -EFAULT;
out_put:
	npuwin_queue_put(queue);
	return ret;
}

/**
 * npuwin_ioctl_queue_wait() - NPUWIN_IOC_QUEUE_WAIT.
 * @ucmd: the call
 *
 * Return: 0 or a negative errno.
 */
int npuwin_ioctl_queue_wait(struct npuwin_ucmd *ucmd)
{
	struct npuwin_ioc_queue_wait *cmd = ucmd->cmd;
	struct npuwin_until until = { .min = cmd->min };
	struct npuwin_queue *queue;
	int ret, taken = 0;

	if (cmd->flags || cmd->reserved || cmd->deadline_ns < 0 || !cmd->min ||
	    cmd->min > cmd->cqe_count)
		return -EINVAL;
	queue = npuwin_queue_get(ucmd->file, cmd->queue_id);
	if (!queue)
		return npuwin_device_gone(ucmd->file->ndev) ? -ENODEV : -ENOENT;
	if (cmd->cqe_count > queue->depth) {
		ret = -EINVAL;
		goto out_put;
	}

	spin_lock(&queue->lock);
	until.epoch = queue->epoch;
	spin_unlock(&queue->lock);
	for (;;) {
		ret = npuwin_queue_ops(queue)->queue_wait(queue, &until, cmd->deadline_ns);
		if (ret)
			break;
		/* Another task may have been quicker to take them. */
		taken = npuwin_queue_take(queue, u64_to_user_ptr(cmd->cqes), cmd->cqe_count,
					  READ_ONCE(queue->gone) ? 1 : cmd->min);
		if (taken)
			break;
	}
	if (taken < 0) {
		ret = taken;
	} else if (!ret || ret == -EAGAIN || ret == -ETIMEDOUT) {
		cmd->cqe_count = taken;
		if (npuwin_respond(ucmd))
			ret = -EFAULT;
	}
out_put:
	npuwin_queue_put(queue);
	return ret;
}
