// SPDX-License-Identifier: GPL-2.0-only
/*
 * The PCI backend: an NPU window device as Documentation/hardware.rst specifies it.
 *
 * A device that fails is given one reset. Its ranks die, its files and windows stay. Where
 * the reset does not help, it takes nothing until it is reset from sysfs.
 */
#include <linux/ctype.h>
#include <linux/module.h>

#include "pci.h"

/* ---- failing ----------------------------------------------------------- */

/**
 * npuwin_pci_fail() - The device does not do what it must.
 * @npci: the device
 * @why: words for the log
 *
 * Context: any but interrupts.
 */
void npuwin_pci_fail(struct npuwin_pci *npci, const char *why)
{
	bool known;

	spin_lock(&npci->fail_lock);
	known = npci->failed;
	WRITE_ONCE(npci->failed, true);
	if (!known && !npci->removed) {
		dev_err(&npci->pdev->dev, "device has failed: %s\n", why);
		if (!npci->starting)
			queue_work(system_unbound_wq, &npci->reset_work);
	}
	spin_unlock(&npci->fail_lock);
	wake_up_all(&npci->admin_wq);
}

/* Nobody starts the device anew from here on. What has failed by now has been seen to. */
static void npuwin_pci_end_resets(struct npuwin_pci *npci)
{
	spin_lock(&npci->fail_lock);
	npci->removed = true;
	spin_unlock(&npci->fail_lock);
	cancel_work_sync(&npci->reset_work);
}

/* All ranks die, and the device begins anew. */
static int npuwin_pci_restart(struct npuwin_pci *npci)
{
	int ret;

	mutex_lock(&npci->reset_lock);
	WRITE_ONCE(npci->failed, true);
	npuwin_device_fail(npci->ndev);
	ret = npuwin_pci_start(npci);
	mutex_unlock(&npci->reset_lock);
	if (ret)
		dev_err(&npci->pdev->dev, "device does not come back: error %d\n", ret);
	else
		dev_info(&npci->pdev->dev, "device has been reset\n");
	return ret;
}

static void npuwin_pci_reset_work(struct work_struct *work)
{
	npuwin_pci_restart(container_of(work, struct npuwin_pci, reset_work));
}

/* Why the device is to be taken for dead, or NULL. */
static const char *npuwin_pci_ailing(struct npuwin_pci *npci)
{
	const struct npuwin_hw_status *status = npuwin_pci_status(npci);
	u64 heartbeat = READ_ONCE(status->heartbeat);

	if (!npuwin_pci_present(npci))
		return "it has gone";
	if (READ_ONCE(status->state) != NPUWIN_HW_READY)
		return "it is not ready any more";
	if (heartbeat != npci->heartbeat) {
		npci->heartbeat = heartbeat;
		npci->missed = 0;
	}
	if (++npci->missed > npuwin_pci_patience(npci) / NPUWIN_PCI_WATCH_MS)
		return "its heart has stopped";
	return NULL;
}

static void npuwin_pci_watch(struct work_struct *work)
{
	struct npuwin_pci *npci = container_of(work, struct npuwin_pci, watch.work);
	const char *why;

	if (!npuwin_pci_failed(npci) && mutex_trylock(&npci->reset_lock)) {
		why = npuwin_pci_ailing(npci);
		if (!why) {
			/* An interrupt may have been lost. */
			npuwin_pci_look(npci);
			if (npuwin_pci_stuck(npci))
				why = "its engine stands still";
		}
		if (why)
			npuwin_pci_fail(npci, why);
		else if (npuwin_pci_clock_is_due(npci))
			npuwin_pci_sync_clock(npci);
		mutex_unlock(&npci->reset_lock);
	}
	schedule_delayed_work(&npci->watch, msecs_to_jiffies(NPUWIN_PCI_WATCH_MS));
}

/* ---- sysfs ------------------------------------------------------------- */

static ssize_t state_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	struct npuwin_pci *npci = npuwin_pci_of(to_npuwin_device(dev));

	return sysfs_emit(buf, "%s\n", npuwin_pci_failed(npci) ? "failed" : "ready");
}
static DEVICE_ATTR_RO(state);

static ssize_t fabric_id_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	struct npuwin_pci *npci = npuwin_pci_of(to_npuwin_device(dev));

	return sysfs_emit(buf, "%#llx\n", npci->ident.fabric_id);
}
static DEVICE_ATTR_RO(fabric_id);

static ssize_t reset_store(struct device *dev, struct device_attribute *attr, const char *buf,
			   size_t count)
{
	struct npuwin_pci *npci = npuwin_pci_of(to_npuwin_device(dev));
	bool yes;
	int ret = kstrtobool(buf, &yes);

	if (ret || !yes)
		return -EINVAL;
	ret = npuwin_pci_restart(npci);
	return ret ? ret : count;
}
static DEVICE_ATTR_WO(reset);

static struct attribute *npuwin_pci_attrs[] = {
	&dev_attr_state.attr,
	&dev_attr_fabric_id.attr,
	&dev_attr_reset.attr,
	NULL
};
ATTRIBUTE_GROUPS(npuwin_pci);

/* ---- the device -------------------------------------------------------- */

static void npuwin_pci_release(struct npuwin_device *ndev)
{
	struct npuwin_pci *npci = npuwin_pci_of(ndev);

	npuwin_pci_memory_exit(npci);
	kfree(npci);
}

static const struct npuwin_backend_ops npuwin_pci_ops = {
	.name = "pci",
	.release = npuwin_pci_release,
	.mem_alloc = npuwin_pci_mem_alloc,
	.mem_free = npuwin_pci_mem_free,
	.queue_init = npuwin_pci_queue_init,
	.queue_exit = npuwin_pci_queue_exit,
	.queue_room = npuwin_pci_queue_room,
	.queue_kick = npuwin_pci_queue_kick,
	.queue_quiesce = npuwin_pci_queue_quiesce,
	.queue_turn = npuwin_pci_queue_turn,
	.queue_wait = npuwin_pci_queue_wait,
	.member_join = npuwin_pci_member_join,
	.member_leave = npuwin_pci_member_leave,
	.member_connect = npuwin_pci_member_connect,
	.member_abort = npuwin_pci_member_abort,
	.member_reset = npuwin_pci_member_reset,
	.member_arm = npuwin_pci_member_arm,
	.member_look = npuwin_pci_member_look,
};

/*
 * Map the function and see whether it is one of ours. Nothing is written to it before.
 * Return: 0, or -ENODEV for something else.
 */
static int npuwin_pci_identify(struct npuwin_pci *npci)
{
	const u64 page = NPUWIN_HW_PAGE, fixed = NPUWIN_HW_CONTROL + page;
	const u64 registers = NPUWIN_HW_REG_DOORBELL + sizeof(u32);
	struct pci_dev *pdev = npci->pdev;
	u64 size = pci_resource_len(pdev, NPUWIN_HW_BAR_MEMORY);
	phys_addr_t start = pci_resource_start(pdev, NPUWIN_HW_BAR_MEMORY);
	const char *wrong;
	int ret;

	/* A rank's notify registers are mapped alone. */
	if (page != PAGE_SIZE || size < fixed ||
	    pci_resource_len(pdev, NPUWIN_HW_BAR_DOORBELL) < registers)
		return -ENODEV;
	ret = pcim_enable_device(pdev);
	if (ret)
		return ret;
	ret = pci_request_region(pdev, NPUWIN_HW_BAR_MEMORY, "npuwin");
	if (ret)
		return ret;
	npci->memory = devm_memremap(&pdev->dev, start, size, MEMREMAP_WB);
	if (IS_ERR(npci->memory))
		return PTR_ERR(npci->memory);
	npci->pfn = start >> PAGE_SHIFT;

	if (memcmp(npci->memory + NPUWIN_HW_IDENT, NPUWIN_HW_MAGIC, strlen(NPUWIN_HW_MAGIC)))
		return -ENODEV;
	/* What was published with the magic. */
	dma_rmb();
	memcpy(&npci->ident, npci->memory + NPUWIN_HW_IDENT, sizeof(npci->ident));
	/* What is checked is the copy. */
	barrier();
	wrong = npuwin_hw_ident_wrong(&npci->ident, size);
	if (wrong) {
		dev_err(&pdev->dev, "identification: %s\n", wrong);
		return -ENODEV;
	}
	ret = pcim_iomap_regions(pdev, BIT(NPUWIN_HW_BAR_DOORBELL), "npuwin");
	if (ret)
		return ret;
	npci->regs = pcim_iomap_table(pdev)[NPUWIN_HW_BAR_DOORBELL];
	return 0;
}

/* Text from the device, made fit to be shown. */
static void npuwin_pci_firmware(const struct npuwin_hw_ident *ident, char *text, size_t size)
{
	size_t i;

	for (i = 0; i + 1 < size && i < sizeof(ident->firmware) && ident->firmware[i]; i++)
		text[i] = isascii(ident->firmware[i]) && isprint(ident->firmware[i]) ?
			  ident->firmware[i] : '?';
	text[i] = '\0';
}

static struct npuwin_pci *npuwin_pci_new(struct pci_dev *pdev)
{
	struct npuwin_pci *npci = kzalloc(sizeof(*npci), GFP_KERNEL);
	unsigned int i;

	if (!npci)
		return NULL;
	npci->pdev = pdev;
	npci->slow_until = jiffies;
	spin_lock_init(&npci->fail_lock);
	npci->failed = true;
	ida_init(&npci->endpoint_ids);
	ida_init(&npci->queue_ids);
	mutex_init(&npci->admin_lock);
	init_waitqueue_head(&npci->admin_wq);
	spin_lock_init(&npci->endpoint_lock);
	mutex_init(&npci->event_lock);
	INIT_WORK(&npci->peers_work, npuwin_pci_peers_work);
	INIT_WORK(&npci->wakes_work, npuwin_pci_wakes_work);
	mutex_init(&npci->reset_lock);
	INIT_WORK(&npci->reset_work, npuwin_pci_reset_work);
	INIT_DELAYED_WORK(&npci->watch, npuwin_pci_watch);
	for (i = 0; i < NPUWIN_HW_MAX_VECTORS; i++) {
		npci->vectors[i].npci = npci;
		npci->vectors[i].number = i;
		mutex_init(&npci->vectors[i].lock);
		INIT_LIST_HEAD(&npci->vectors[i].queues);
	}
	return npci;
}

/* From here on @npci belongs to the device. */
static struct npuwin_device *npuwin_pci_device(struct npuwin_pci *npci)
{
	const struct npuwin_hw_ident *ident = &npci->ident;
	struct npuwin_device *ndev = npuwin_device_alloc(&npci->pdev->dev, &npuwin_pci_ops);

	if (IS_ERR(ndev))
		return ndev;
	npci->ndev = ndev;
	npuwin_pci_firmware(ident, npci->firmware, sizeof(npci->firmware));
	ndev->priv = npci;
	ndev->dev.groups = npuwin_pci_groups;
	ndev->label = dev_name(&npci->pdev->dev);
	ndev->firmware = npci->firmware;
	ndev->caps = NPUWIN_CAP_MAP_PEERS | NPUWIN_CAP_FABRIC;
	if (ident->caps & NPUWIN_HW_CAP_ADD_I32)
		ndev->caps |= NPUWIN_CAP_ADD_I32;
	if (ident->caps & NPUWIN_HW_CAP_ADD_F32)
		ndev->caps |= NPUWIN_CAP_ADD_F32;
	ndev->window_align = max_t(u64, ident->window_align, PAGE_SIZE);
	ndev->max_depth = min_t(u32, ident->max_depth, NPUWIN_MAX_QUEUE_DEPTH);
	ndev->max_ranks = ident->max_ranks;
	ndev->numa_node = dev_to_node(&npci->pdev->dev);
	ndev->memory_total = round_down(ident->windows.size, ndev->window_align);
	return ndev;
}

static int npuwin_pci_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct npuwin_pci *npci = npuwin_pci_new(pdev);
	struct npuwin_device *ndev;
	int ret;

	if (!npci)
		return -ENOMEM;
	ret = npuwin_pci_identify(npci);
	if (ret)
		goto err_free;
	ndev = npuwin_pci_device(npci);
	if (IS_ERR(ndev)) {
		ret = PTR_ERR(ndev);
		goto err_free;
	}
	pci_set_drvdata(pdev, npci);
	pci_set_master(pdev);
	ret = npuwin_pci_memory_init(npci);
	if (ret)
		goto err_put;
	ret = npuwin_pci_irq_init(npci);
	if (ret)
		goto err_put;
	ret = npuwin_pci_start(npci);
	if (ret)
		goto err_stop;
	/* One reference for the function, until it is removed. */
	get_device(&ndev->dev);
	ret = npuwin_device_register(ndev);
	if (ret)
		goto err_stop;
	schedule_delayed_work(&npci->watch, msecs_to_jiffies(NPUWIN_PCI_WATCH_MS));
	return 0;

err_stop:
	npuwin_pci_irq_exit(npci);
	npuwin_pci_end_resets(npci);
	npuwin_pci_stop(npci);
err_put:
	put_device(&ndev->dev);
	return ret;
err_free:
	kfree(npci);
	return ret;
}

static void npuwin_pci_remove(struct pci_dev *pdev)
{
	struct npuwin_pci *npci = pci_get_drvdata(pdev);
	struct npuwin_device *ndev = npci->ndev;

	npuwin_device_unregister(ndev);
	cancel_delayed_work_sync(&npci->watch);
	npuwin_pci_irq_exit(npci);
	npuwin_pci_end_resets(npci);
	cancel_work_sync(&npci->peers_work);
	cancel_work_sync(&npci->wakes_work);
	npuwin_pci_stop(npci);
	put_device(&ndev->dev);
}

static void npuwin_pci_shutdown(struct pci_dev *pdev)
{
	npuwin_pci_stop(pci_get_drvdata(pdev));
}

static void npuwin_pci_reset_prepare(struct pci_dev *pdev)
{
	struct npuwin_pci *npci = pci_get_drvdata(pdev);

	WRITE_ONCE(npci->failed, true);
	npuwin_device_fail(npci->ndev);
}

static void npuwin_pci_reset_done(struct pci_dev *pdev)
{
	npuwin_pci_restart(pci_get_drvdata(pdev));
}

static const struct pci_error_handlers npuwin_pci_error_handlers = {
	.reset_prepare = npuwin_pci_reset_prepare,
	.reset_done = npuwin_pci_reset_done,
};

/* Windows are memory that peers write to: there is no moment at which they could sleep. */
static int npuwin_pci_suspend_prepare(struct device *dev)
{
	dev_info(dev, "an NPU cannot sleep: unbind it first\n");
	return -EBUSY;
}

static const struct dev_pm_ops npuwin_pci_pm_ops = {
	.prepare = npuwin_pci_suspend_prepare,
};

static const struct pci_device_id npuwin_pci_ids[] = {
	{ PCI_DEVICE(NPUWIN_HW_PCI_VENDOR, NPUWIN_HW_PCI_DEVICE) },
	{ }
};
MODULE_DEVICE_TABLE(pci, npuwin_pci_ids);

static struct pci_driver npuwin_pci_driver = {
	.name = "npuwin",
	.id_table = npuwin_pci_ids,
	.probe = npuwin_pci_probe,
	.remove = npuwin_pci_remove,
	.shutdown = npuwin_pci_shutdown,
	.err_handler = &npuwin_pci_error_handlers,
	.driver.pm = &npuwin_pci_pm_ops,
};

/**
 * npuwin_pci_init() - Look for functions.
 *
 * Return: 0 or a negative errno.
 */
int __init npuwin_pci_init(void)
{
	return pci_register_driver(&npuwin_pci_driver);
}

/**
 * npuwin_pci_exit() - Undo npuwin_pci_init().
 */
void npuwin_pci_exit(void)
{
	pci_unregister_driver(&npuwin_pci_driver);
}
