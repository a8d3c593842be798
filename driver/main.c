// SPDX-License-Identifier: GPL-2.0-only
/*
 * npuwin - NPU window memory and its doorbell and notify registers.
 *
 * The module: its class, its device numbers and what all devices share.
 */
#include <linux/idr.h>
#include <linux/module.h>

#include "npuwin.h"

/* Device numbers are cheap; the count of devices is bounded by the backends. */
#define NPUWIN_MINORS	1024

DEFINE_SRCU(npuwin_srcu);
struct workqueue_struct *npuwin_wq;

static dev_t npuwin_dev_base;
static DEFINE_IDA(npuwin_ids);

static char *npuwin_devnode(struct device *dev, umode_t *mode)
{
	/* Until udev gives the node to a group, it is root's. */
	if (mode)
		*mode = 0660;
	return NULL;
}

struct class npuwin_class = {
	.name = "npuwin",
	.owner = THIS_MODULE,
	.devnode = npuwin_devnode,
	.dev_groups = npuwin_device_groups,
};

/**
 * npuwin_id_alloc() - Take the lowest free N of /dev/npuwinN.
 *
 * Return: it, or a negative errno.
 */
int npuwin_id_alloc(void)
{
	return ida_alloc_max(&npuwin_ids, NPUWIN_MINORS - 1, GFP_KERNEL);
}

/**
 * npuwin_id_free() - Give it back.
 * @id: it
 */
void npuwin_id_free(int id)
{
	ida_free(&npuwin_ids, id);
}

/**
 * npuwin_devt() - The device number of /dev/npuwinN.
 * @id: N
 *
 * Return: the number.
 */
dev_t npuwin_devt(int id)
{
	return MKDEV(MAJOR(npuwin_dev_base), MINOR(npuwin_dev_base) + id);
}

static int __init npuwin_init(void)
{
	int ret;

	/* However many queues have work, the machine has more to do than that. */
	npuwin_wq = alloc_workqueue("npuwin", WQ_UNBOUND, num_online_cpus());
	if (!npuwin_wq)
		return -ENOMEM;
	ret = npuwin_mmap_init();
	if (ret)
		goto err_wq;
	ret = alloc_chrdev_region(&npuwin_dev_base, 0, NPUWIN_MINORS, "npuwin");
	if (ret)
		goto err_mmap;
	ret = class_register(&npuwin_class);
	if (ret)
		goto err_chrdev;
	ret = npuwin_soft_init();
	if (ret)
		goto err_class;
	ret = npuwin_pci_init();
	if (ret)
		goto err_soft;
	return 0;

err_soft:
	npuwin_soft_exit();
err_class:
	class_unregister(&npuwin_class);
err_chrdev:
	unregister_chrdev_region(npuwin_dev_base, NPUWIN_MINORS);
err_mmap:
	npuwin_mmap_exit();
err_wq:
	destroy_workqueue(npuwin_wq);
	return ret;
}

static void __exit npuwin_exit(void)
{
	npuwin_pci_exit();
	npuwin_soft_exit();
	class_unregister(&npuwin_class);
	unregister_chrdev_region(npuwin_dev_base, NPUWIN_MINORS);
	npuwin_mmap_exit();
	destroy_workqueue(npuwin_wq);
	ida_destroy(&npuwin_ids);
}

module_init(npuwin_init);
module_exit(npuwin_exit);

MODULE_DESCRIPTION("NPU window memory, doorbells and notify registers");
MODULE_AUTHOR("npuwin developers");
MODULE_LICENSE("GPL");
