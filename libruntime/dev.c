// SPDX-License-Identifier: MIT
/* The dev provider: finding and describing the driver's devices, and making domains. */
#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "dev.h"

#define PREFIX		"npuwin"

static bool is_device(const char *name, unsigned int *number)
{
	const char *digits = name + strlen(PREFIX);
	char *end;

	if (strncmp(name, PREFIX, strlen(PREFIX)) || !isdigit((unsigned char)*digits))
		return false;
	*number = (unsigned int)strtoul(digits, &end, 10);
	return !*end;
}

static int query(const struct dev_device *device, struct npuwin_ioc_query *info)
{
	memset(info, 0, sizeof(*info));
	info->size = sizeof(*info);
	return dev_result(ioctl(device->fd, NPUWIN_IOC_QUERY, info));
}

static int open_device(unsigned int number, struct dev_device *device, struct npuwin_error *err)
{
	struct npuwin_ioc_query info;
	char path[32];
	int rc;

	snprintf(path, sizeof(path), "/dev/" PREFIX "%u", number);
	device->number = number;
	device->fd = open(path, O_RDWR | O_CLOEXEC);
	if (device->fd < 0) {
		rc = -errno;
		return npuwin_fail(err, rc == -EACCES || rc == -EPERM ? -EACCES : -ENODEV,
				   NPUWIN_NOBODY, NPUWIN_NOBODY, "%s cannot be opened: %s%s",
				   path, strerror(-rc), rc == -EACCES ?
				   " (is this user in the group render?)" : "");
	}
	rc = query(device, &info);
	if (!rc && (!info.window_align || info.window_align & (info.window_align - 1)))
		rc = -EPROTO;
	if (rc) {
		close(device->fd);
		return npuwin_fail(err, -ENODEV, NPUWIN_NOBODY, NPUWIN_NOBODY,
				   "%s does not answer as a device of npuwin.ko: %s", path,
				   strerror(-rc));
	}
	device->soft = !strncmp((const char *)info.backend, "soft", sizeof(info.backend));
	device->align = info.window_align;
	device->max_queue_depth = info.max_queue_depth;
	return 0;
}

static int by_kind_and_number(const void *a, const void *b)
{
	const struct dev_device *left = a, *right = b;

	if (left->soft != right->soft)
		return left->soft ? 1 : -1;
	return left->number < right->number ? -1 : left->number > right->number;
}

static int add_device(struct dev *dev, const struct dev_device *device)
{
	struct dev_device *more;

	more = realloc(dev->devices, (dev->count + 1) * sizeof(*more));
	if (!more)
		return -ENOMEM;
	more[dev->count++] = *device;
	dev->devices = more;
	if (device->align > dev->align)
		dev->align = device->align;
	return 0;
}

/* Open what can be used. Of what cannot, the last sentence stays in @err. */
static int find_devices(struct dev *dev, struct npuwin_error *err)
{
	struct dev_device device;
	struct dirent *entry;
	unsigned int number;
	int rc = -ENODEV;
	DIR *dir;

	npuwin_fail(err, rc, NPUWIN_NOBODY, NPUWIN_NOBODY,
		    "/dev/npuwin0 does not exist (is npuwin.ko loaded? see npuwin doctor)");
	dir = opendir("/dev");
	if (!dir)
		return rc;
	while ((entry = readdir(dir))) {
		if (!is_device(entry->d_name, &number))
			continue;
		rc = open_device(number, &device, err);
		if (!rc && add_device(dev, &device)) {
			close(device.fd);
			break;
		}
	}
	closedir(dir);
	if (!dev->count)
		return rc ? rc : -ENODEV;
	qsort(dev->devices, dev->count, sizeof(*dev->devices), by_kind_and_number);
	while (dev->placed < dev->count &&
	       dev->devices[dev->placed].soft == dev->devices[0].soft)
		dev->placed++;
	return 0;
}

static int dev_open(struct npuwin *ctx, struct npuwin_error *err)
{
	struct dev *dev;
	int rc;

	dev = calloc(1, sizeof(*dev));
	if (!dev)
		return npuwin_fail(err, -ENOMEM, NPUWIN_NOBODY, NPUWIN_NOBODY,
				   "no memory for the dev provider");
	rc = find_devices(dev, err);
	if (rc) {
		free(dev->devices);
		free(dev);
		return rc;
	}
	pthread_mutex_init(&dev->lock, NULL);
	ctx->priv = dev;
	return 0;
}

static void dev_close(struct npuwin *ctx)
{
	struct dev *dev = ctx->priv;
	uint32_t i;

	for (i = 0; i < dev->count; i++)
		close(dev->devices[i].fd);
	pthread_mutex_destroy(&dev->lock);
	free(dev->devices);
	free(dev);
}

static int dev_device_count(const struct npuwin *ctx)
{
	const struct dev *dev = ctx->priv;

	return (int)dev->count;
}

static int dev_device_info(struct npuwin *ctx, int index, struct npuwin_device_info *info,
			   struct npuwin_error *err)
{
	struct dev *dev = ctx->priv;
	struct npuwin_ioc_query answer;
	int rc;

	if (index < 0 || (uint32_t)index >= dev->count)
		return npuwin_fail(err, -ENOENT, NPUWIN_NOBODY, NPUWIN_NOBODY,
				   "device %d does not exist: there are %" PRIu32, index,
				   dev->count);
	rc = query(&dev->devices[index], &answer);
	if (rc)
		return npuwin_fail(err, rc, NPUWIN_NOBODY, NPUWIN_NOBODY,
				   "/dev/npuwin%u does not answer: %s",
				   dev->devices[index].number, strerror(-rc));
	memset(info, 0, sizeof(*info));
	info->index = (uint32_t)index;
	snprintf(info->name, sizeof(info->name), PREFIX "%u", dev->devices[index].number);
	memcpy(info->backend, answer.backend, sizeof(info->backend) - 1);
	info->numa_node = answer.numa_node;
	info->memory_total = answer.memory_total;
	info->memory_used = answer.memory_used;
	info->max_ranks = answer.max_ranks;
	info->notify_regs = answer.notify_regs;
	info->peer_map = !!(answer.caps & NPUWIN_CAP_MAP_PEERS);
	return 0;
}

uint64_t dev_round(const struct dev *dev, uint64_t size)
{
	return (size + dev->align - 1) & ~(dev->align - 1);
}

static int dev_domain_create(struct npuwin *ctx, uint32_t nranks, uint64_t window_size,
			     struct npuwin_error *err)
{
	struct dev *dev = ctx->priv;
	struct npuwin_ioc_domain_create create = {
		.size = sizeof(create),
		.nranks = nranks,
		.window_size = dev_round(dev, window_size),
	};
	int rc = -EOVERFLOW;

	if (create.window_size >= window_size)
		rc = dev_result(ioctl(dev->devices[0].fd, NPUWIN_IOC_DOMAIN_CREATE, &create));
	if (!rc)
		return create.domain_fd;
	if (rc == -EOVERFLOW)
		return npuwin_fail(err, rc, NPUWIN_NOBODY, NPUWIN_NOBODY,
				   "%" PRIu32 " windows of %" PRIu64 " bytes are too large",
				   nranks, window_size);
	return npuwin_fail(err, rc, NPUWIN_NOBODY, NPUWIN_NOBODY,
			   "/dev/npuwin%u makes no domain of %" PRIu32 " ranks with windows of %"
			   PRIu64 " bytes: %s", dev->devices[0].number, nranks, window_size,
			   strerror(-rc));
}

const struct provider_ops provider_dev = {
	.name = "dev",
	.open = dev_open,
	.close = dev_close,
	.device_count = dev_device_count,
	.device_info = dev_device_info,
	.domain_create = dev_domain_create,
	.join = dev_join,
	.commit = dev_commit,
	.reset = dev_reset,
	.map = dev_map,
	.abort = dev_abort,
	.leave = dev_leave,
	.export_peer = dev_export_peer,
	.import_peer = dev_import_peer,
	.signal_wait = dev_signal_wait,
	.signal_wake = dev_signal_wake,
	.submit = dev_submit,
	.collect = dev_collect,
	.event_fd = dev_event_fd,
	.queue_reset = dev_queue_reset,
};
