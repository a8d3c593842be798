// SPDX-License-Identifier: GPL-2.0-only
/*
 * What a rank asks of its domain: join, commit, reset, abort, leave.
 */
#include "npuwin.h"

/* Join, with the file locked. */
static int npuwin_domain_join(struct npuwin_domain *domain, struct npuwin_file *file,
			      const struct npuwin_ioc_domain_join *cmd,
			      struct npuwin_mem *notify)
{
	struct npuwin_window *window;
	struct npuwin_member *member;
	struct npuwin_obj *obj;
	int ret = 0;

	if (npuwin_device_gone(file->ndev))
		return -ENODEV;
	if (file->ndev->ops != domain->ops || domain->nranks > file->ndev->max_ranks)
		return -EOPNOTSUPP;
	obj = xa_load(&file->objs, cmd->window_id);
	if (!obj || obj->type != NPUWIN_OBJ_WINDOW)
		return -ENOENT;
	window = container_of(obj, struct npuwin_window, obj);
	if (cmd->rank >= domain->nranks || window->mem->size != domain->window_size)
		return -EINVAL;
	if (window->member)
		return -EBUSY;

	member = &domain->members[cmd->rank];
	mutex_lock(&domain->lock);
	if (domain->state != NPUWIN_DOMAIN_FORMING || member->state != NPUWIN_RANK_EMPTY) {
		ret = -EBUSY;
		goto out_unlock;
	}
	WRITE_ONCE(member->mem, window->mem);
	WRITE_ONCE(member->notify, notify);
	memset(&member->peer, 0, sizeof(member->peer));
	if (domain->ops->member_join) {
		ret = domain->ops->member_join(member);
		if (ret)
			goto err_memory;
	}
	/* Who has known the rank as one from elsewhere may look at its memory from here on. */
	smp_store_release(&member->remote, false);
	kref_get(&window->mem->ref);
	npuwin_domain_get(domain);
	window->member = member;
	member->window = window;
	member->file = file;
	list_add_tail(&member->file_link, &file->members);
	atomic_inc(&file->ndev->nmembers);
	npuwin_member_set_state(member, NPUWIN_RANK_JOINED);
out_unlock:
	mutex_unlock(&domain->lock);
	return ret;

err_memory:
	mutex_unlock(&domain->lock);
	/* Who has seen the rank that was here before may have found this memory. */
	synchronize_srcu_expedited(&npuwin_srcu);
	return ret;
}

/**
 * npuwin_ioctl_domain_join() - NPUWIN_IOC_DOMAIN_JOIN.
 * @ucmd: the call
 *
 * Return: 0 or a negative errno.
 */
int npuwin_ioctl_domain_join(struct npuwin_ucmd *ucmd)
{
	struct npuwin_ioc_domain_join *cmd = ucmd->cmd;
	struct npuwin_file *file = ucmd->file;
	struct npuwin_domain *domain;
	struct npuwin_mem *notify;
	int ret;

	if (cmd->flags || cmd->reserved)
		return -EINVAL;
	domain = npuwin_domain_get_fd(cmd->domain_fd);
	if (IS_ERR(domain))
		return PTR_ERR(domain);
	notify = npuwin_mem_create(file->ndev, NPUWIN_MEM_NOTIFY, PAGE_ALIGN(NPUWIN_REG_BYTES),
				   PAGE_SIZE);
	if (IS_ERR(notify)) {
		ret = PTR_ERR(notify);
		goto out_domain;
	}

	mutex_lock(&file->lock);
	ret = npuwin_domain_join(domain, file, cmd, notify);
	mutex_unlock(&file->lock);
	if (ret)
		npuwin_mem_put(notify);
out_domain:
	npuwin_domain_put(domain);
	return ret;
}

static int npuwin_domain_lock(struct npuwin_domain *domain)
{
	return mutex_lock_interruptible(&domain->lock) ? -ERESTARTSYS : 0;
}

/*
 * Sleep until something has changed in the domain, whose lock is dropped meanwhile.
 * Return: 0, or why it is time to give up.
 */
static int npuwin_domain_sleep(struct npuwin_domain *domain, s64 deadline)
{
	u32 event = domain->event;
	DEFINE_WAIT(wait);
	int ret = 0;

	mutex_unlock(&domain->lock);
	for (;;) {
		prepare_to_wait(&domain->wq, &wait, TASK_INTERRUPTIBLE);
		if (READ_ONCE(domain->event) != event)
			break;
		ret = npuwin_sleep(deadline);
		if (ret)
			break;
	}
	finish_wait(&domain->wq, &wait);
	mutex_lock(&domain->lock);
	return ret;
}

/* What the caller of a commit or reset is told, whether it has succeeded or not. */
static int npuwin_domain_sync_respond(struct npuwin_ucmd *ucmd, struct npuwin_domain *domain,
				      bool reset, int ret)
{
	struct npuwin_ioc_domain_sync *cmd = ucmd->cmd;

	lockdep_assert_held(&domain->lock);

	cmd->generation = domain->generation;
	cmd->missing_rank = NPUWIN_NO_RANK;
	if (ret == -EAGAIN || ret == -ETIMEDOUT)
		cmd->missing_rank = npuwin_domain_missing(domain, reset);
	else if (ret == -EPIPE)
		cmd->missing_rank = domain->abort_rank;
	else if (ret && ret != -ECANCELED)
		return ret;
	return 0;
}

static int npuwin_domain_commit(struct npuwin_domain *domain, struct npuwin_file *file,
				const struct npuwin_ioc_domain_sync *cmd)
{
	struct npuwin_member *member = npuwin_member_find(domain, cmd->rank, file);
	u32 generation = domain->generation;
	int gone = 0;

	if (IS_ERR(member))
		return PTR_ERR(member);
	if (domain->state == NPUWIN_DOMAIN_FORMING) {
		member->committed = true;
		member->reset_due = false;
		npuwin_domain_try_complete(domain);
	}
	for (;;) {
		int ret = npuwin_domain_error(domain);

		if (ret != -EAGAIN)
			return ret;
		if (domain->generation != generation || member->file != file)
			return -ECANCELED;
		if (gone)
			return gone;
		gone = npuwin_domain_sleep(domain, cmd->deadline_ns);
	}
}

/* @generation is the one whose queues have been emptied. */
static int npuwin_domain_reset(struct npuwin_domain *domain, struct npuwin_file *file,
			       const struct npuwin_ioc_domain_sync *cmd, u32 generation)
{
	struct npuwin_member *member = npuwin_member_find(domain, cmd->rank, file);
	int gone = 0;

	if (IS_ERR(member))
		return PTR_ERR(member);
	if (domain->generation == generation && domain->state != NPUWIN_DOMAIN_ABORTED) {
		/* It had arrived, and was interrupted or gave up before the others came. */
		if (!member->reset_due)
			return -EINVAL;
		member->reset_due = false;
		return 0;
	}
	if (domain->generation == generation) {
		member->reset = true;
		npuwin_domain_try_reset(domain);
	}
	for (;;) {
		if (member->file != file)
			return -ECANCELED;
		if (domain->generation != generation) {
			member->reset_due = false;
			return 0;
		}
		if (gone)
			return gone;
		gone = npuwin_domain_sleep(domain, cmd->deadline_ns);
	}
}

/**
 * npuwin_ioctl_domain_commit() - NPUWIN_IOC_DOMAIN_COMMIT.
 * @ucmd: the call
 *
 * Return: 0 or a negative errno.
 */
int npuwin_ioctl_domain_commit(struct npuwin_ucmd *ucmd)
{
	struct npuwin_ioc_domain_sync *cmd = ucmd->cmd;
	struct npuwin_domain *domain;
	int ret, err;

	if (cmd->flags || cmd->deadline_ns < 0)
		return -EINVAL;
	domain = npuwin_domain_get_fd(cmd->domain_fd);
	if (IS_ERR(domain))
		return PTR_ERR(domain);
	ret = npuwin_domain_lock(domain);
	if (ret)
		goto out;
	ret = npuwin_domain_commit(domain, ucmd->file, cmd);
	err = npuwin_domain_sync_respond(ucmd, domain, false, ret);
	mutex_unlock(&domain->lock);
	if (!err && npuwin_respond(ucmd))
		ret = -EFAULT;
out:
	npuwin_domain_put(domain);
	return ret;
}

/**
 * npuwin_ioctl_domain_reset() - NPUWIN_IOC_DOMAIN_RESET.
 * @ucmd: the call
 *
 * Return: 0 or a negative errno.
 */
int npuwin_ioctl_domain_reset(struct npuwin_ucmd *ucmd)
{
	struct npuwin_ioc_domain_sync *cmd = ucmd->cmd;
	struct npuwin_file *file = ucmd->file;
	struct npuwin_domain *domain;
	struct npuwin_member *member;
	struct npuwin_queue *queue;
	u32 generation;
	bool aborted;
	int ret, err;

	if (cmd->flags || cmd->deadline_ns < 0)
		return -EINVAL;
	domain = npuwin_domain_get_fd(cmd->domain_fd);
	if (IS_ERR(domain))
		return PTR_ERR(domain);

	/* Empty the queues before anybody can believe that this rank writes no more. */
	mutex_lock(&file->lock);
	mutex_lock(&domain->lock);
	member = npuwin_member_find(domain, cmd->rank, file);
	ret = PTR_ERR_OR_ZERO(member);
	aborted = domain->state == NPUWIN_DOMAIN_ABORTED;
	generation = domain->generation;
	mutex_unlock(&domain->lock);
	if (!ret && aborted) {
		list_for_each_entry(queue, &member->queues, link)
			npuwin_queue_empty(queue);
	}
	mutex_unlock(&file->lock);
	if (ret)
		goto out;

	ret = npuwin_domain_lock(domain);
	if (ret)
		goto out;
	ret = npuwin_domain_reset(domain, file, cmd, generation);
	err = npuwin_domain_sync_respond(ucmd, domain, true, ret);
	mutex_unlock(&domain->lock);
	if (!err && npuwin_respond(ucmd))
		ret = -EFAULT;
out:
	npuwin_domain_put(domain);
	return ret;
}

/**
 * npuwin_ioctl_domain_abort() - NPUWIN_IOC_DOMAIN_ABORT.
 * @ucmd: the call
 *
 * Return: 0 or a negative errno.
 */
int npuwin_ioctl_domain_abort(struct npuwin_ucmd *ucmd)
{
	struct npuwin_ioc_domain_leave *cmd = ucmd->cmd;
	struct npuwin_domain *domain;
	struct npuwin_member *member;
	int ret;

	if (cmd->flags || cmd->reserved || !cmd->error || cmd->error > MAX_ERRNO)
		return -EINVAL;
	domain = npuwin_domain_get_fd(cmd->domain_fd);
	if (IS_ERR(domain))
		return PTR_ERR(domain);
	mutex_lock(&domain->lock);
	member = npuwin_member_find(domain, cmd->rank, ucmd->file);
	ret = PTR_ERR_OR_ZERO(member);
	if (!ret && domain->state != NPUWIN_DOMAIN_ABORTED) {
		npuwin_stat_add(ucmd->file->ndev, NPUWIN_STAT_ABORTS, 1);
		npuwin_domain_abort(domain, cmd->rank, cmd->error, false);
	}
	mutex_unlock(&domain->lock);
	npuwin_domain_put(domain);
	return ret;
}

/**
 * npuwin_ioctl_domain_leave() - NPUWIN_IOC_DOMAIN_LEAVE.
 * @ucmd: the call
 *
 * Return: 0 or a negative errno.
 */
int npuwin_ioctl_domain_leave(struct npuwin_ucmd *ucmd)
{
	struct npuwin_ioc_domain_leave *cmd = ucmd->cmd;
	struct npuwin_file *file = ucmd->file;
	struct npuwin_queue *queue, *tmp;
	struct npuwin_domain *domain;
	struct npuwin_member *member;
	int ret;

	if (cmd->flags || cmd->reserved || cmd->error)
		return -EINVAL;
	domain = npuwin_domain_get_fd(cmd->domain_fd);
	if (IS_ERR(domain))
		return PTR_ERR(domain);

	mutex_lock(&file->lock);
	mutex_lock(&domain->lock);
	member = npuwin_member_find(domain, cmd->rank, file);
	mutex_unlock(&domain->lock);
	ret = PTR_ERR_OR_ZERO(member);
	if (!ret) {
		/* The file's lock keeps the rank joined. */
		list_for_each_entry_safe(queue, tmp, &member->queues, link)
			npuwin_queue_destroy(queue);
		npuwin_member_detach(member, NPUWIN_RANK_LEFT);
	}
	mutex_unlock(&file->lock);
	npuwin_domain_put(domain);
	return ret;
}
