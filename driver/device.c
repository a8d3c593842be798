// SPDX-License-Identifier: GPL-2.0-only
/*
 * Devices, their open files, what a file's ids name, and unplugging.
 */
#include <linux/module.h>
#include <linux/poll.h>
#include <linux/slab.h>

#include "npuwin.h"

/**
 * npuwin_obj_reserve() - Take an id for an object that is being made.
 * @file: in this file
 * @obj: out: its type and id
 * @type: what it will be
 * @limit: how many of that type the file may have
 *
 * Nobody finds the object by the id before npuwin_obj_finalize(). The pair
 * npuwin_obj_remove() undoes both.
 *
 * Return: 0, -EMFILE or -ENOMEM.
 */
int npuwin_obj_reserve(struct npuwin_file *file, struct npuwin_obj *obj,
		       enum npuwin_obj_type type, u32 limit)
{
	int ret = -EMFILE;

	obj->type = type;
	xa_lock(&file->objs);
	if (file->nobjs[type] < limit) {
		/* Counted first: where this needs memory, it lets go of the lock. */
		file->nobjs[type]++;
		ret = __xa_alloc(&file->objs, &obj->id, NULL, xa_limit_31b,
				 GFP_KERNEL_ACCOUNT);
		if (ret)
			file->nobjs[type]--;
	}
	xa_unlock(&file->objs);
	return ret;
}

/**
 * npuwin_obj_finalize() - Let a complete object be found by its id.
 * @file: in this file
 * @obj: the object
 */
void npuwin_obj_finalize(struct npuwin_file *file, struct npuwin_obj *obj)
{
	/* Its place has been reserved, so this needs no memory. */
	xa_store(&file->objs, obj->id, obj, GFP_KERNEL_ACCOUNT);
}

/**
 * npuwin_obj_remove() - Give up an object's id.
 * @file: in this file
 * @obj: the object, finalized or only reserved
 */
void npuwin_obj_remove(struct npuwin_file *file, struct npuwin_obj *obj)
{
	xa_lock(&file->objs);
	__xa_erase(&file->objs, obj->id);
	file->nobjs[obj->type]--;
	xa_unlock(&file->objs);
}

/*
 * The ranks of a file die: with the file, or with its device. Queues first: once the
 * others can know of a death, nothing of this rank writes any more.
 */
static void npuwin_file_kill_members(struct npuwin_file *file, bool unplug)
{
	struct npuwin_member *member, *tmp;
	struct npuwin_queue *queue, *next;

	lockdep_assert_held(&file->lock);

	list_for_each_entry_safe(member, tmp, &file->members, file_link) {
		list_for_each_entry_safe(queue, next, &member->queues, link) {
			/* An unplugged device's completions can still be taken. */
			if (unplug)
				npuwin_queue_fail(queue, NPUWIN_ST_DEVICE);
			else
				npuwin_queue_destroy(queue);
		}
		npuwin_member_detach(member, NPUWIN_RANK_DEAD);
	}
}

static void npuwin_file_free(struct kref *ref)
{
	struct npuwin_file *file = container_of(ref, struct npuwin_file, ref);
	struct npuwin_device *ndev = file->ndev;

	list_del(&file->link);
	mutex_unlock(&ndev->lock);
	xa_destroy(&file->objs);
	npuwin_user_put(file->user);
	kfree(file);
	put_device(&ndev->dev);
}

/* A file is in its device's list for as long as there is a reference. */
static void npuwin_file_put(struct npuwin_file *file)
{
	kref_put_mutex(&file->ref, npuwin_file_free, &file->ndev->lock);
}

static int npuwin_open(struct inode *inode, struct file *filp)
{
	struct npuwin_device *ndev = container_of(inode->i_cdev, struct npuwin_device, cdev);
	struct npuwin_file *file;

	file = kzalloc(sizeof(*file), GFP_KERNEL_ACCOUNT);
	if (!file)
		return -ENOMEM;
	file->user = npuwin_user_get();
	if (!file->user) {
		kfree(file);
		return -ENOMEM;
	}
	kref_init(&file->ref);
	file->ndev = ndev;
	mutex_init(&file->lock);
	xa_init_flags(&file->objs, XA_FLAGS_ALLOC1 | XA_FLAGS_ACCOUNT);
	INIT_LIST_HEAD(&file->members);
	init_waitqueue_head(&file->poll_wq);

	mutex_lock(&ndev->lock);
	if (npuwin_device_gone(ndev)) {
		mutex_unlock(&ndev->lock);
		npuwin_user_put(file->user);
		kfree(file);
		return -ENODEV;
	}
	get_device(&ndev->dev);
	list_add(&file->link, &ndev->files);
	mutex_unlock(&ndev->lock);

	filp->private_data = file;
	npuwin_mmap_setup_file(filp);
	return nonseekable_open(inode, filp);
}

static int npuwin_release(struct inode *inode, struct file *filp)
{
	struct npuwin_file *file = filp->private_data;
	struct npuwin_obj *obj;
	unsigned long id;

	mutex_lock(&file->lock);
	npuwin_file_kill_members(file, false);
	xa_for_each(&file->objs, id, obj) {
		if (obj->type == NPUWIN_OBJ_QUEUE)
			npuwin_queue_destroy(container_of(obj, struct npuwin_queue, obj));
		else
			npuwin_window_destroy(file, container_of(obj, struct npuwin_window,
								 obj));
	}
	mutex_unlock(&file->lock);
	npuwin_file_put(file);
	return 0;
}

static __poll_t npuwin_poll(struct file *filp, poll_table *wait)
{
	struct npuwin_file *file = filp->private_data;
	__poll_t mask = 0;

	poll_wait(filp, &file->poll_wq, wait);
	if (atomic_read(&file->unread))
		mask |= EPOLLIN | EPOLLRDNORM;
	if (npuwin_device_gone(file->ndev))
		mask |= EPOLLERR | EPOLLHUP;
	return mask;
}

static const struct file_operations npuwin_device_fops = {
	.owner = THIS_MODULE,
	.open = npuwin_open,
	.release = npuwin_release,
	.poll = npuwin_poll,
	.mmap = npuwin_device_mmap,
	.get_unmapped_area = npuwin_device_unmapped_area,
	.unlocked_ioctl = npuwin_device_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.llseek = no_llseek,
};

/**
 * npuwin_ioctl_query() - NPUWIN_IOC_QUERY.
 * @ucmd: the call
 *
 * Return: 0 or a negative errno.
 */
int npuwin_ioctl_query(struct npuwin_ucmd *ucmd)
{
	struct npuwin_device *ndev = ucmd->file->ndev;
	struct npuwin_ioc_query *cmd = ucmd->cmd;

	if (cmd->flags)
		return -EINVAL;
	*cmd = (struct npuwin_ioc_query) {
		.size = cmd->size,
		.caps = ndev->caps,
		.memory_total = ndev->memory_total,
		.memory_used = atomic64_read(&ndev->memory_used),
		.window_align = ndev->window_align,
		.device = ndev->id,
		.numa_node = ndev->numa_node,
		.max_ranks = ndev->max_ranks,
		.max_queue_depth = ndev->max_depth,
		.notify_regs = NPUWIN_NOTIFY_REGS,
	};
	strscpy((char *)cmd->backend, ndev->ops->name, sizeof(cmd->backend));
	return npuwin_respond(ucmd);
}

static void npuwin_device_release(struct device *dev)
{
	struct npuwin_device *ndev = to_npuwin_device(dev);

	if (ndev->ops && ndev->ops->release)
		ndev->ops->release(ndev);
	npuwin_id_free(ndev->id);
	kfree(ndev);
}

/**
 * npuwin_device_alloc() - Prepare /dev/npuwinN.
 * @parent: the function that it is
 * @ops: the backend
 *
 * The caller sets what is the backend's to say (priv, label, firmware, caps, memory_total,
 * and what else is not as usual), and then calls npuwin_device_register(), or put_device().
 *
 * Return: the device or an ERR_PTR().
 */
struct npuwin_device *npuwin_device_alloc(struct device *parent,
					  const struct npuwin_backend_ops *ops)
{
	struct npuwin_device *ndev;
	int ret;

	ndev = kzalloc(sizeof(*ndev), GFP_KERNEL);
	if (!ndev)
		return ERR_PTR(-ENOMEM);
	ndev->id = npuwin_id_alloc();
	if (ndev->id < 0) {
		ret = ndev->id;
		kfree(ndev);
		return ERR_PTR(ret);
	}
	ndev->window_align = PAGE_SIZE;
	ndev->max_depth = NPUWIN_MAX_QUEUE_DEPTH;
	ndev->max_ranks = NPUWIN_MAX_RANKS;
	ndev->numa_node = NUMA_NO_NODE;
	init_rwsem(&ndev->alive);
	mutex_init(&ndev->lock);
	INIT_LIST_HEAD(&ndev->files);
	mutex_init(&ndev->mem_lock);
	INIT_LIST_HEAD(&ndev->mems);

	device_initialize(&ndev->dev);
	ndev->dev.class = &npuwin_class;
	ndev->dev.parent = parent;
	ndev->dev.devt = npuwin_devt(ndev->id);
	ndev->dev.release = npuwin_device_release;
	ret = dev_set_name(&ndev->dev, "npuwin%d", ndev->id);
	if (ret) {
		put_device(&ndev->dev);
		return ERR_PTR(ret);
	}
	/* From here on the backend has something to release. */
	ndev->ops = ops;
	return ndev;
}

/**
 * npuwin_device_register() - Make /dev/npuwinN.
 * @ndev: the device; its label must live until it is unregistered
 *
 * Return: 0, then npuwin_device_unregister() is to be called once; or a negative errno, then
 * the reference is gone.
 */
int npuwin_device_register(struct npuwin_device *ndev)
{
	int ret;

	cdev_init(&ndev->cdev, &npuwin_device_fops);
	ndev->cdev.owner = THIS_MODULE;
	ret = cdev_device_add(&ndev->cdev, &ndev->dev);
	if (ret)
		put_device(&ndev->dev);
	return ret;
}

/**
 * npuwin_device_fail() - What a device was doing is lost, and it begins anew.
 * @ndev: the device
 *
 * Its ranks die. Files and windows stay, and can be used in new ranks once the backend takes
 * any. By the backend, while its device executes nothing.
 */
void npuwin_device_fail(struct npuwin_device *ndev)
{
	struct npuwin_file *file, *done = NULL;

	mutex_lock(&ndev->lock);
	list_for_each_entry(file, &ndev->files, link) {
		kref_get(&file->ref);
		/* What one file's tasks make this wait for is no matter of the others'. */
		mutex_unlock(&ndev->lock);
		if (done)
			npuwin_file_put(done);
		done = file;
		mutex_lock(&file->lock);
		npuwin_file_kill_members(file, true);
		mutex_unlock(&file->lock);
		wake_up_all(&file->poll_wq);
		mutex_lock(&ndev->lock);
	}
	mutex_unlock(&ndev->lock);
	if (done)
		npuwin_file_put(done);
}

/**
 * npuwin_device_unregister() - The device goes away, whoever uses it.
 * @ndev: the device
 *
 * On return nobody calls the backend for it any more, and no mapping of its memory is
 * left; memory and files that are still referenced go when they are released.
 */
void npuwin_device_unregister(struct npuwin_device *ndev)
{
	struct npuwin_mem *mem;

	cdev_device_del(&ndev->cdev, &ndev->dev);

	down_write(&ndev->alive);
	WRITE_ONCE(ndev->gone, true);
	up_write(&ndev->alive);

	npuwin_device_fail(ndev);

	npuwin_faults_wait();
	mutex_lock(&ndev->mem_lock);
	list_for_each_entry(mem, &ndev->mems, link)
		npuwin_mem_zap(mem);
	mutex_unlock(&ndev->mem_lock);

	put_device(&ndev->dev);
}
