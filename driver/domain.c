// SPDX-License-Identifier: GPL-2.0-only
/*
 * Domains: ranks that join, commit, leave, die, abort and reset.
 *
 *	FORMING --all committed--> READY
 *	FORMING, READY --abort, death--> ABORTED --all survivors reset--> FORMING
 */
#include <linux/anon_inodes.h>
#include <linux/file.h>
#include <linux/module.h>
#include <linux/overflow.h>
#include <linux/slab.h>

#include "npuwin.h"

static void npuwin_domain_release(struct kref *ref)
{
	struct npuwin_domain *domain = container_of(ref, struct npuwin_domain, ref);

	npuwin_mem_put(domain->status_mem);
	kvfree(domain);
}

/**
 * npuwin_domain_get() - Take a reference.
 * @domain: the domain
 */
void npuwin_domain_get(struct npuwin_domain *domain)
{
	kref_get(&domain->ref);
}

/**
 * npuwin_domain_put() - Drop a reference.
 * @domain: the domain
 */
void npuwin_domain_put(struct npuwin_domain *domain)
{
	kref_put(&domain->ref, npuwin_domain_release);
}

/**
 * npuwin_domain_get_fd() - Find the domain that a file descriptor is.
 * @fd: of the calling process
 *
 * Return: the domain with a reference, or -EBADF as an ERR_PTR().
 */
struct npuwin_domain *npuwin_domain_get_fd(int fd)
{
	struct npuwin_domain *domain = ERR_PTR(-EBADF);
	struct fd f = fdget(fd);

	if (!f.file)
		return ERR_PTR(-EBADF);
	if (f.file->f_op == &npuwin_domain_fops) {
		domain = f.file->private_data;
		npuwin_domain_get(domain);
	}
	fdput(f);
	return domain;
}

/**
 * npuwin_domain_error() - Why a domain does not take work.
 * @domain: the domain
 *
 * Context: with the domain's lock held, or where a state that is about to change does not
 * matter.
 *
 * Return: 0 where it does, -EAGAIN while it is forming, -EPIPE or -ECANCELED.
 */
int npuwin_domain_error(const struct npuwin_domain *domain)
{
	switch (npuwin_domain_state(domain)) {
	case NPUWIN_DOMAIN_READY:
		return 0;
	case NPUWIN_DOMAIN_FORMING:
		return -EAGAIN;
	default:
		return READ_ONCE(domain->abort_death) ? -EPIPE : -ECANCELED;
	}
}

/**
 * npuwin_member_find() - Find a rank that belongs to a file.
 * @domain: the domain, locked
 * @rank: the rank
 * @file: the file
 *
 * Return: the rank, joined, or an ERR_PTR(): -ENOENT or -EACCES.
 */
struct npuwin_member *npuwin_member_find(struct npuwin_domain *domain, u32 rank,
					 const struct npuwin_file *file)
{
	struct npuwin_member *member;

	lockdep_assert_held(&domain->lock);

	if (rank >= domain->nranks)
		return ERR_PTR(-ENOENT);
	member = &domain->members[rank];
	if (!npuwin_member_joined(member))
		return ERR_PTR(-ENOENT);
	if (member->file != file)
		return ERR_PTR(-EACCES);
	return member;
}

static void npuwin_domain_set_state(struct npuwin_domain *domain, u32 state)
{
	/*
	 * After what belongs to the state, for who reads it here (npuwin_domain_state()) and
	 * for userspace, which reads the status page.
	 */
	smp_store_release(&domain->state, state);
	smp_store_release(&domain->status->state, state); /* as above */
}

static void npuwin_member_set_state(struct npuwin_member *member, u32 state)
{
	struct npuwin_domain *domain = member->domain;

	lockdep_assert_held(&domain->lock);

	spin_lock_irq(&member->wq.lock);
	/* After the memory of who joins; pairs with npuwin_member_state(). */
	smp_store_release(&member->state, state);
	spin_unlock_irq(&member->wq.lock);
	/* For userspace, which may map the rank's memory when it sees this. */
	smp_store_release(&domain->status->rank[member->rank].state, state);
}

/* Something that a wait in some rank's memory may depend on has changed. */
static void npuwin_domain_wake_members(struct npuwin_domain *domain)
{
	u32 rank;

	for (rank = 0; rank < domain->nranks; rank++)
		npuwin_member_wake(&domain->members[rank]);
}

/* Something that a commit, a reset or a wait at a queue may depend on has changed. */
static void npuwin_domain_changed(struct npuwin_domain *domain)
{
	lockdep_assert_held(&domain->lock);

	WRITE_ONCE(domain->event, domain->event + 1);
	wake_up_all(&domain->wq);
}

static void npuwin_domain_abort(struct npuwin_domain *domain, u32 rank, u32 error, bool death)
{
	lockdep_assert_held(&domain->lock);

	if (domain->state == NPUWIN_DOMAIN_ABORTED)
		return;
	WRITE_ONCE(domain->abort_rank, rank);
	WRITE_ONCE(domain->abort_death, death);
	domain->abort_error = error;
	WRITE_ONCE(domain->status->abort_rank, rank);
	WRITE_ONCE(domain->status->abort_error, error);
	npuwin_domain_set_state(domain, NPUWIN_DOMAIN_ABORTED);
	npuwin_domain_wake_members(domain);
	npuwin_domain_changed(domain);
}

/* The lowest rank that has not arrived: at the reset, or at the commit. */
static u32 npuwin_domain_missing(const struct npuwin_domain *domain, bool reset)
{
	u32 rank;

	for (rank = 0; rank < domain->nranks; rank++) {
		const struct npuwin_member *member = &domain->members[rank];

		if (reset ? npuwin_member_joined(member) && !member->reset : !member->committed)
			return rank;
	}
	return NPUWIN_NO_RANK;
}

/*
 * Complete a reset when every survivor has arrived. Their queues are empty and take
 * nothing, those of the dead and departed do not exist: no engine writes here.
 */
static void npuwin_domain_try_reset(struct npuwin_domain *domain)
{
	u32 rank, survivors = 0;

	if (domain->state != NPUWIN_DOMAIN_ABORTED ||
	    npuwin_domain_missing(domain, true) != NPUWIN_NO_RANK)
		return;
	for (rank = 0; rank < domain->nranks; rank++)
		survivors += npuwin_member_joined(&domain->members[rank]);
	if (!survivors)
		return;

	for (rank = 0; rank < domain->nranks; rank++) {
		struct npuwin_member *member = &domain->members[rank];

		member->committed = false;
		member->reset_due = member->reset;
		member->reset = false;
		if (npuwin_member_joined(member))
			memset(member->notify->vaddr, 0, member->notify->size);
		else
			npuwin_member_set_state(member, NPUWIN_RANK_EMPTY);
	}
	WRITE_ONCE(domain->generation, domain->generation + 1);
	WRITE_ONCE(domain->status->generation, domain->generation);
	WRITE_ONCE(domain->status->abort_rank, NPUWIN_NO_RANK);
	WRITE_ONCE(domain->status->abort_error, 0);
	npuwin_domain_set_state(domain, NPUWIN_DOMAIN_FORMING);
	/* A wait that slept through the abort and the reset sees another generation. */
	npuwin_domain_wake_members(domain);
	npuwin_domain_changed(domain);
}

/*
 * A rank is joined no more. Its queues do not execute any more; others may be looking at
 * its memory or writing to it until the grace period is over.
 */
static void npuwin_member_detach(struct npuwin_member *member, u32 state)
{
	struct npuwin_domain *domain = member->domain;
	struct npuwin_mem *mem, *notify;
	struct npuwin_device *ndev;

	lockdep_assert_held(&member->file->lock);

	mutex_lock(&domain->lock);
	mem = member->mem;
	notify = member->notify;
	ndev = member->file->ndev;
	member->window->member = NULL;
	list_del(&member->file_link);
	member->file = NULL;
	if (state == NPUWIN_RANK_LEFT && domain->state == NPUWIN_DOMAIN_FORMING)
		state = NPUWIN_RANK_EMPTY;
	member->committed = false;
	member->reset = false;
	member->reset_due = false;
	npuwin_member_set_state(member, state);
	if (state == NPUWIN_RANK_DEAD) {
		npuwin_stat_add(ndev, NPUWIN_STAT_PEER_DEATHS, 1);
		npuwin_domain_abort(domain, member->rank, EPIPE, true);
	}
	npuwin_domain_try_reset(domain);
	npuwin_domain_wake_members(domain);
	npuwin_domain_changed(domain);
	mutex_unlock(&domain->lock);

	synchronize_srcu_expedited(&npuwin_srcu);
	npuwin_mem_put(mem);
	npuwin_mem_put(notify);
	atomic_dec(&ndev->nmembers);
	npuwin_domain_put(domain);
}

/**
 * npuwin_member_kill() - A rank dies.
 * @member: the rank, joined, whose queues execute no more; its file is locked
 */
void npuwin_member_kill(struct npuwin_member *member)
{
	npuwin_member_detach(member, NPUWIN_RANK_DEAD);
}

static int npuwin_domain_file_release(struct inode *inode, struct file *filp)
{
	npuwin_domain_put(filp->private_data);
	return 0;
}

const struct file_operations npuwin_domain_fops = {
	.owner = THIS_MODULE,
	.release = npuwin_domain_file_release,
	.mmap = npuwin_domain_mmap,
	.get_unmapped_area = npuwin_domain_unmapped_area,
	.unlocked_ioctl = npuwin_domain_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.llseek = no_llseek,
};

static u64 npuwin_status_length(u32 nranks)
{
	return PAGE_ALIGN(struct_size((struct npuwin_domain_status *)NULL, rank, nranks));
}

static struct npuwin_domain *npuwin_domain_new(u32 nranks, u64 window_size)
{
	struct npuwin_domain *domain;
	u32 rank;

	domain = kvzalloc(struct_size(domain, members, nranks), GFP_KERNEL_ACCOUNT);
	if (!domain)
		return ERR_PTR(-ENOMEM);
	domain->status_mem = npuwin_mem_create_status(npuwin_status_length(nranks));
	if (IS_ERR(domain->status_mem)) {
		int ret = PTR_ERR(domain->status_mem);

		kvfree(domain);
		return ERR_PTR(ret);
	}
	kref_init(&domain->ref);
	mutex_init(&domain->lock);
	init_waitqueue_head(&domain->wq);
	domain->nranks = nranks;
	domain->window_size = window_size;
	domain->status = domain->status_mem->vaddr;
	domain->status->nranks = nranks;
	domain->status->abort_rank = NPUWIN_NO_RANK;
	for (rank = 0; rank < nranks; rank++) {
		struct npuwin_member *member = &domain->members[rank];

		member->domain = domain;
		member->rank = rank;
		INIT_LIST_HEAD(&member->queues);
		init_waitqueue_head(&member->wq);
	}
	return domain;
}

/**
 * npuwin_ioctl_domain_create() - NPUWIN_IOC_DOMAIN_CREATE.
 * @ucmd: the call
 *
 * Return: 0 or a negative errno.
 */
int npuwin_ioctl_domain_create(struct npuwin_ucmd *ucmd)
{
	struct npuwin_ioc_domain_create *cmd = ucmd->cmd;
	u64 unit = ucmd->file->ndev->ops->window_align;
	struct npuwin_domain *domain;
	struct file *filp;
	u64 length;
	int fd, ret;

	if (cmd->flags || !cmd->nranks || cmd->nranks > NPUWIN_MAX_RANKS ||
	    !cmd->window_size || cmd->window_size % unit)
		return -EINVAL;
	/* Every place of every window needs an offset. */
	if (check_mul_overflow(cmd->window_size, (u64)cmd->nranks, &length) ||
	    length > LONG_MAX - NPUWIN_MAP_WINDOW)
		return -EOVERFLOW;

	domain = npuwin_domain_new(cmd->nranks, cmd->window_size);
	if (IS_ERR(domain))
		return PTR_ERR(domain);
	fd = get_unused_fd_flags(O_CLOEXEC);
	if (fd < 0) {
		ret = fd;
		goto err_domain;
	}
	filp = anon_inode_getfile("[npuwin-domain]", &npuwin_domain_fops, domain, O_RDWR);
	if (IS_ERR(filp)) {
		ret = PTR_ERR(filp);
		goto err_fd;
	}
	npuwin_mmap_setup_file(filp);

	cmd->domain_fd = fd;
	ret = npuwin_respond(ucmd);
	if (ret) {
		/* It owns the domain. */
		fput(filp);
		put_unused_fd(fd);
		return ret;
	}
	fd_install(fd, filp);
	return 0;

err_fd:
	put_unused_fd(fd);
err_domain:
	npuwin_domain_put(domain);
	return ret;
}

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
	kref_get(&window->mem->ref);
	npuwin_domain_get(domain);
	window->member = member;
	member->window = window;
	member->mem = window->mem;
	member->notify = notify;
	member->file = file;
	list_add_tail(&member->file_link, &file->members);
	atomic_inc(&file->ndev->nmembers);
	npuwin_member_set_state(member, NPUWIN_RANK_JOINED);
out_unlock:
	mutex_unlock(&domain->lock);
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
	notify = npuwin_mem_create(file->ndev, PAGE_ALIGN(NPUWIN_REG_BYTES), PAGE_SIZE, false);
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
		if (npuwin_domain_missing(domain, false) == NPUWIN_NO_RANK) {
			npuwin_domain_set_state(domain, NPUWIN_DOMAIN_READY);
			npuwin_domain_changed(domain);
		}
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

/**
 * npuwin_ioctl_domain_info() - NPUWIN_IOC_DOMAIN_INFO.
 * @ucmd: the call
 *
 * Return: 0 or a negative errno.
 */
int npuwin_ioctl_domain_info(struct npuwin_ucmd *ucmd)
{
	struct npuwin_domain *domain = ucmd->domain;
	struct npuwin_ioc_domain_info *cmd = ucmd->cmd;
	u32 rank;

	if (cmd->flags)
		return -EINVAL;
	*cmd = (struct npuwin_ioc_domain_info) {
		.size = cmd->size,
		.nranks = domain->nranks,
		.abort_rank = NPUWIN_NO_RANK,
		.window_size = domain->window_size,
		.window_map = NPUWIN_MAP_WINDOW,
		.notify_map = NPUWIN_MAP_NOTIFY,
		.notify_stride = PAGE_ALIGN(NPUWIN_REG_BYTES),
		.status_map = NPUWIN_MAP_STATUS,
		.status_length = npuwin_status_length(domain->nranks),
	};
	mutex_lock(&domain->lock);
	cmd->state = domain->state;
	cmd->generation = domain->generation;
	for (rank = 0; rank < domain->nranks; rank++)
		cmd->joined += npuwin_member_joined(&domain->members[rank]);
	if (domain->state == NPUWIN_DOMAIN_ABORTED) {
		cmd->abort_rank = domain->abort_rank;
		cmd->abort_error = domain->abort_error;
	}
	mutex_unlock(&domain->lock);
	return npuwin_respond(ucmd);
}
