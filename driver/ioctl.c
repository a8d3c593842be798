// SPDX-License-Identifier: GPL-2.0-only
/*
 * How ioctls come in: sizes, copies, unknown commands. What they do is elsewhere.
 */
#include <linux/nospec.h>
#include <linux/uaccess.h>

#include "npuwin.h"

/* Room for whichever structure comes, so that no call allocates for it. */
union npuwin_ioc_any {
	struct npuwin_ioc_query query;
	struct npuwin_ioc_window_alloc window_alloc;
	struct npuwin_ioc_destroy destroy;
	struct npuwin_ioc_domain_create domain_create;
	struct npuwin_ioc_domain_join domain_join;
	struct npuwin_ioc_domain_sync domain_sync;
	struct npuwin_ioc_domain_leave domain_leave;
	struct npuwin_ioc_domain_peer domain_peer;
	struct npuwin_ioc_queue_create queue_create;
	struct npuwin_ioc_queue_reset queue_reset;
	struct npuwin_ioc_submit submit;
	struct npuwin_ioc_queue_wait queue_wait;
	struct npuwin_ioc_domain_info domain_info;
	struct npuwin_ioc_signal_wait signal_wait;
	struct npuwin_ioc_signal_wake signal_wake;
};

/**
 * struct npuwin_ioc_entry - An ioctl.
 * @cmd: its number
 * @size: of its structure
 * @min_size: of the first version of it
 * @handler: does it
 */
struct npuwin_ioc_entry {
	unsigned int cmd;
	u16 size;
	u16 min_size;
	int (*handler)(struct npuwin_ucmd *ucmd);
};

#define NPUWIN_IOC(_cmd, _type, _last, _handler)				\
	[_IOC_NR(_cmd) & 0x3f] = {						\
		.cmd = _cmd,							\
		.size = sizeof(_type) + BUILD_BUG_ON_ZERO(offsetof(_type, size)), \
		.min_size = offsetofend(_type, _last),				\
		.handler = _handler,						\
	}

static const struct npuwin_ioc_entry npuwin_device_iocs[] = {
	NPUWIN_IOC(NPUWIN_IOC_QUERY, struct npuwin_ioc_query, backend, npuwin_ioctl_query),
	NPUWIN_IOC(NPUWIN_IOC_WINDOW_ALLOC, struct npuwin_ioc_window_alloc, map_offset,
		   npuwin_ioctl_window_alloc),
	NPUWIN_IOC(NPUWIN_IOC_DESTROY, struct npuwin_ioc_destroy, id, npuwin_ioctl_destroy),
	NPUWIN_IOC(NPUWIN_IOC_DOMAIN_CREATE, struct npuwin_ioc_domain_create, window_size,
		   npuwin_ioctl_domain_create),
	NPUWIN_IOC(NPUWIN_IOC_DOMAIN_JOIN, struct npuwin_ioc_domain_join, reserved,
		   npuwin_ioctl_domain_join),
	NPUWIN_IOC(NPUWIN_IOC_DOMAIN_COMMIT, struct npuwin_ioc_domain_sync, missing_rank,
		   npuwin_ioctl_domain_commit),
	NPUWIN_IOC(NPUWIN_IOC_DOMAIN_ABORT, struct npuwin_ioc_domain_leave, reserved,
		   npuwin_ioctl_domain_abort),
	NPUWIN_IOC(NPUWIN_IOC_DOMAIN_RESET, struct npuwin_ioc_domain_sync, missing_rank,
		   npuwin_ioctl_domain_reset),
	NPUWIN_IOC(NPUWIN_IOC_DOMAIN_LEAVE, struct npuwin_ioc_domain_leave, reserved,
		   npuwin_ioctl_domain_leave),
	NPUWIN_IOC(NPUWIN_IOC_QUEUE_CREATE, struct npuwin_ioc_queue_create, reserved,
		   npuwin_ioctl_queue_create),
	NPUWIN_IOC(NPUWIN_IOC_QUEUE_RESET, struct npuwin_ioc_queue_reset, queue_id,
		   npuwin_ioctl_queue_reset),
	NPUWIN_IOC(NPUWIN_IOC_SUBMIT, struct npuwin_ioc_submit, deadline_ns,
		   npuwin_ioctl_submit),
	NPUWIN_IOC(NPUWIN_IOC_QUEUE_WAIT, struct npuwin_ioc_queue_wait, deadline_ns,
		   npuwin_ioctl_queue_wait),
	NPUWIN_IOC(NPUWIN_IOC_DOMAIN_EXPORT, struct npuwin_ioc_domain_peer, reserved,
		   npuwin_ioctl_domain_export),
	NPUWIN_IOC(NPUWIN_IOC_DOMAIN_IMPORT, struct npuwin_ioc_domain_peer, reserved,
		   npuwin_ioctl_domain_import),
};

static const struct npuwin_ioc_entry npuwin_domain_iocs[] = {
	NPUWIN_IOC(NPUWIN_IOC_DOMAIN_INFO, struct npuwin_ioc_domain_info, status_length,
		   npuwin_ioctl_domain_info),
	NPUWIN_IOC(NPUWIN_IOC_SIGNAL_WAIT, struct npuwin_ioc_signal_wait, reserved,
		   npuwin_ioctl_signal_wait),
	NPUWIN_IOC(NPUWIN_IOC_SIGNAL_WAKE, struct npuwin_ioc_signal_wake, rank,
		   npuwin_ioctl_signal_wake),
};

/**
 * npuwin_respond() - Copy an ioctl's structure, outputs included, to the caller.
 * @ucmd: the call
 *
 * Return: 0 or -EFAULT.
 */
int npuwin_respond(struct npuwin_ucmd *ucmd)
{
	return copy_to_user(ucmd->user, ucmd->cmd, ucmd->size) ? -EFAULT : 0;
}

static long npuwin_ioctl(struct npuwin_ucmd *ucmd, const struct npuwin_ioc_entry *table,
			 unsigned int entries, unsigned int cmd, unsigned long arg)
{
	const struct npuwin_ioc_entry *entry;
	union npuwin_ioc_any any;
	unsigned int nr = _IOC_NR(cmd) & 0x3f;
	u32 size;
	int ret;

	if (nr >= entries || table[nr].cmd != cmd)
		return -ENOTTY;
	entry = &table[array_index_nospec(nr, entries)];
	ucmd->user = (void __user *)arg;
	ucmd->cmd = &any;

	if (get_user(size, (u32 __user *)ucmd->user))
		return -EFAULT;
	if (size < entry->min_size)
		return -EINVAL;
	/* Nobody needs as much, and looking for zeros in gigabytes takes its time. */
	if (size > PAGE_SIZE)
		return -E2BIG;
	ret = copy_struct_from_user(&any, entry->size, ucmd->user, size);
	if (ret)
		return ret;
	ucmd->size = min_t(u32, size, entry->size);
	/* The caller may have changed it in between: what counts is what was checked. */
	*(u32 *)&any = size;
	return entry->handler(ucmd);
}

/**
 * npuwin_device_ioctl() - Serve an ioctl on /dev/npuwinN.
 * @filp: the file
 * @cmd: which
 * @arg: user address of its structure
 *
 * Return: 0 or a negative errno.
 */
long npuwin_device_ioctl(struct file *filp, unsigned int cmd, unsigned long arg)
{
	struct npuwin_ucmd ucmd = { .file = filp->private_data };

	/* What is left in a queue can be taken even then. */
	if (npuwin_device_gone(ucmd.file->ndev) && cmd != NPUWIN_IOC_QUEUE_WAIT)
		return -ENODEV;
	return npuwin_ioctl(&ucmd, npuwin_device_iocs, ARRAY_SIZE(npuwin_device_iocs), cmd,
			    arg);
}

/**
 * npuwin_domain_ioctl() - Serve an ioctl on a domain.
 * @filp: the file
 * @cmd: which
 * @arg: user address of its structure
 *
 * Return: 0 or a negative errno.
 */
long npuwin_domain_ioctl(struct file *filp, unsigned int cmd, unsigned long arg)
{
	struct npuwin_ucmd ucmd = { .domain = filp->private_data };

	return npuwin_ioctl(&ucmd, npuwin_domain_iocs, ARRAY_SIZE(npuwin_domain_iocs), cmd,
			    arg);
}
