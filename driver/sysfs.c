// SPDX-License-Identifier: GPL-2.0-only
/*
 * /sys/class/npuwin/npuwinN/, see Documentation/ABI/testing/sysfs-class-npuwin.
 */
#include <linux/sysfs.h>

#include "npuwin.h"

static ssize_t name_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%s\n", to_npuwin_device(dev)->label);
}
static DEVICE_ATTR_RO(name);

static ssize_t backend_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%s\n", to_npuwin_device(dev)->ops->name);
}
static DEVICE_ATTR_RO(backend);

static ssize_t firmware_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%s\n", to_npuwin_device(dev)->firmware);
}
static DEVICE_ATTR_RO(firmware);

static ssize_t abi_level_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%d\n", NPUWIN_ABI_LEVEL);
}
static DEVICE_ATTR_RO(abi_level);

static ssize_t memory_total_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%llu\n", to_npuwin_device(dev)->memory_total);
}
static DEVICE_ATTR_RO(memory_total);

static ssize_t memory_used_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%llu\n",
			  (u64)atomic64_read(&to_npuwin_device(dev)->memory_used));
}
static DEVICE_ATTR_RO(memory_used);

static ssize_t numa_node_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%d\n", to_npuwin_device(dev)->numa_node);
}
static DEVICE_ATTR_RO(numa_node);

static ssize_t queues_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%d\n", atomic_read(&to_npuwin_device(dev)->nqueues));
}
static DEVICE_ATTR_RO(queues);

static ssize_t domains_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%d\n", atomic_read(&to_npuwin_device(dev)->nmembers));
}
static DEVICE_ATTR_RO(domains);

static struct attribute *npuwin_device_attrs[] = {
	&dev_attr_name.attr,
	&dev_attr_backend.attr,
	&dev_attr_firmware.attr,
	&dev_attr_abi_level.attr,
	&dev_attr_memory_total.attr,
	&dev_attr_memory_used.attr,
	&dev_attr_numa_node.attr,
	&dev_attr_queues.attr,
	&dev_attr_domains.attr,
	NULL
};

static const struct attribute_group npuwin_device_group = {
	.attrs = npuwin_device_attrs,
};

#define NPUWIN_STAT_ATTR(_name, _stat)							\
static ssize_t _name##_show(struct device *dev, struct device_attribute *attr, char *buf) \
{											\
	return sysfs_emit(buf, "%llu\n",						\
			  (u64)atomic64_read(&to_npuwin_device(dev)->stats[_stat]));	\
}											\
static DEVICE_ATTR_RO(_name)

NPUWIN_STAT_ATTR(doorbells, NPUWIN_STAT_DOORBELLS);
NPUWIN_STAT_ATTR(interrupts, NPUWIN_STAT_INTERRUPTS);
NPUWIN_STAT_ATTR(descriptors, NPUWIN_STAT_DESCRIPTORS);
NPUWIN_STAT_ATTR(bytes, NPUWIN_STAT_BYTES);

static struct attribute *npuwin_stats_attrs[] = {
	&dev_attr_doorbells.attr,
	&dev_attr_interrupts.attr,
	&dev_attr_descriptors.attr,
	&dev_attr_bytes.attr,
	NULL
};

static const struct attribute_group npuwin_stats_group = {
	.name = "stats",
	.attrs = npuwin_stats_attrs,
};

NPUWIN_STAT_ATTR(timeouts, NPUWIN_STAT_TIMEOUTS);
NPUWIN_STAT_ATTR(bounds, NPUWIN_STAT_BOUNDS);
NPUWIN_STAT_ATTR(peer_deaths, NPUWIN_STAT_PEER_DEATHS);
NPUWIN_STAT_ATTR(aborts, NPUWIN_STAT_ABORTS);

static struct attribute *npuwin_errors_attrs[] = {
	&dev_attr_timeouts.attr,
	&dev_attr_bounds.attr,
	&dev_attr_peer_deaths.attr,
	&dev_attr_aborts.attr,
	NULL
};

static const struct attribute_group npuwin_errors_group = {
	.name = "errors",
	.attrs = npuwin_errors_attrs,
};

const struct attribute_group *npuwin_device_groups[] = {
	&npuwin_device_group,
	&npuwin_stats_group,
	&npuwin_errors_group,
	NULL
};
