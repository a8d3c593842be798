// SPDX-License-Identifier: GPL-2.0-only
/*
 * The soft backend: NPUs of host memory and processor time, any number of them on any
 * machine. Each is a platform device, so that it can be unplugged like a real one:
 *
 *	echo npuwin-soft.3 >/sys/bus/platform/drivers/npuwin-soft/unbind
 */
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/platform_device.h>
#include <linux/sizes.h>

#include "npuwin.h"

/* As many as a domain has ranks. */
#define NPUWIN_SOFT_MAX	NPUWIN_MAX_RANKS

static unsigned int soft_devices;
module_param(soft_devices, uint, 0444);
MODULE_PARM_DESC(soft_devices, "Number of software NPUs, 0 to 1024 (default 0)");

static unsigned long soft_memory_mb;
module_param(soft_memory_mb, ulong, 0444);
MODULE_PARM_DESC(soft_memory_mb,
		 "Window memory of each software NPU in MiB, or 0 for what the machine has (default 0); allocated on demand");

static int soft_numa_node = NUMA_NO_NODE;
module_param(soft_numa_node, int, 0444);
MODULE_PARM_DESC(soft_numa_node, "NUMA node of their memory, or -1 for any (default -1)");

static struct platform_device **npuwin_soft_devices;

static int npuwin_soft_mem_alloc(struct npuwin_device *ndev, struct npuwin_mem *mem)
{
	return npuwin_pages_alloc(mem, ndev->numa_node);
}

static const struct npuwin_backend_ops npuwin_soft_ops = {
	.name = "soft",
	.mem_alloc = npuwin_soft_mem_alloc,
	.mem_free = npuwin_pages_free,
	.queue_init = npuwin_run_init,
	.queue_exit = npuwin_run_exit,
	.queue_kick = npuwin_run_kick,
	.queue_quiesce = npuwin_run_quiesce,
	.queue_turn = npuwin_run_turn,
	.queue_wait = npuwin_run_wait,
};

static int npuwin_soft_probe(struct platform_device *pdev)
{
	struct npuwin_device *ndev = npuwin_device_alloc(&pdev->dev, &npuwin_soft_ops);
	int ret;

	if (IS_ERR(ndev))
		return PTR_ERR(ndev);
	ndev->label = dev_name(&pdev->dev);
	ndev->firmware = "none";
	ndev->caps = NPUWIN_CAP_MAP_PEERS | NPUWIN_CAP_ADD_I32 | NPUWIN_CAP_ADD_F32 |
		     NPUWIN_CAP_HUGE;
	ndev->memory_total = soft_memory_mb ? (u64)soft_memory_mb * SZ_1M :
					      (u64)totalram_pages() << PAGE_SHIFT;
	ndev->numa_node = soft_numa_node;
	ret = npuwin_device_register(ndev);
	if (ret)
		return ret;
	platform_set_drvdata(pdev, ndev);
	return 0;
}

static int npuwin_soft_remove(struct platform_device *pdev)
{
	npuwin_device_unregister(platform_get_drvdata(pdev));
	return 0;
}

static struct platform_driver npuwin_soft_driver = {
	.probe = npuwin_soft_probe,
	.remove = npuwin_soft_remove,
	.driver = {
		.name = "npuwin-soft",
	},
};

static void npuwin_soft_remove_devices(unsigned int count)
{
	while (count--)
		platform_device_unregister(npuwin_soft_devices[count]);
	kfree(npuwin_soft_devices);
}

/**
 * npuwin_soft_init() - Make the software NPUs that the module's parameters ask for.
 *
 * Return: 0 or a negative errno.
 */
int __init npuwin_soft_init(void)
{
	unsigned int i;
	int ret;

	if (soft_devices > NPUWIN_SOFT_MAX) {
		pr_err("npuwin: soft_devices %u is above %d\n", soft_devices, NPUWIN_SOFT_MAX);
		return -EINVAL;
	}
	if (soft_memory_mb > U64_MAX / SZ_1M) {
		pr_err("npuwin: soft_memory_mb %lu is out of range\n", soft_memory_mb);
		return -EINVAL;
	}
	if (soft_numa_node != NUMA_NO_NODE &&
	    (soft_numa_node < 0 || soft_numa_node >= MAX_NUMNODES ||
	     !node_online(soft_numa_node))) {
		pr_err("npuwin: soft_numa_node %d is not online\n", soft_numa_node);
		return -EINVAL;
	}

	npuwin_soft_devices = kcalloc(soft_devices, sizeof(*npuwin_soft_devices), GFP_KERNEL);
	if (!npuwin_soft_devices)
		return -ENOMEM;
	ret = platform_driver_register(&npuwin_soft_driver);
	if (ret)
		goto err_free;
	for (i = 0; i < soft_devices; i++) {
		npuwin_soft_devices[i] = platform_device_register_simple("npuwin-soft", i,
									 NULL, 0);
		if (IS_ERR(npuwin_soft_devices[i])) {
			ret = PTR_ERR(npuwin_soft_devices[i]);
			goto err_devices;
		}
	}
	return 0;

err_devices:
	npuwin_soft_remove_devices(i);
	platform_driver_unregister(&npuwin_soft_driver);
	return ret;
err_free:
	kfree(npuwin_soft_devices);
	return ret;
}

/**
 * npuwin_soft_exit() - Undo npuwin_soft_init().
 */
void npuwin_soft_exit(void)
{
	npuwin_soft_remove_devices(soft_devices);
	platform_driver_unregister(&npuwin_soft_driver);
}
