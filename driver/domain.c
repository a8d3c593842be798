// SPDX-License-Identifier: GPL-2.0-only
/*
 * Domains as objects: making them, finding them, looking at them. What happens in them is
 * in state.c, what ranks ask for in rank.c.
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

static struct npuwin_domain *npuwin_domain_new(const struct npuwin_backend_ops *ops, u32 nranks,
					       u64 window_size)
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
	domain->ops = ops;
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
	struct npuwin_device *ndev = ucmd->file->ndev;
	struct npuwin_domain *domain;
	struct file *filp;
	u64 length;
	int fd, ret;

	if (cmd->flags || !cmd->nranks || cmd->nranks > ndev->max_ranks ||
	    !cmd->window_size || cmd->window_size % ndev->window_align)
		return -EINVAL;
	/* Every place of every window needs an offset. */
	if (check_mul_overflow(cmd->window_size, (u64)cmd->nranks, &length) ||
	    length > LONG_MAX - NPUWIN_MAP_WINDOW)
		return -EOVERFLOW;

	domain = npuwin_domain_new(ndev->ops, cmd->nranks, cmd->window_size);
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
