/* SPDX-License-Identifier: MIT */
/*
 * What list and info show of devices.
 */
#ifndef NPUWIN_DEVICES_H
#define NPUWIN_DEVICES_H

#include <stdint.h>
#include <json-c/json.h>

#include "npuwin.h"

/**
 * struct devices - The devices of a provider.
 * @ctx: the provider
 * @n: how many
 * @info: by index
 */
struct devices {
	struct npuwin *ctx;
	uint32_t n;
	struct npuwin_device_info *info;
};

/** devices_open() - Look at all. Return: 0, or CLI_FAILED after a complaint. */
int devices_open(struct devices *devs, const char *provider);

void devices_close(struct devices *devs);

/** device_json() - An object with what is in struct npuwin_device_info. */
struct json_object *device_json(const struct npuwin_device_info *info);

/** device_attributes() - What sysfs has beyond that, as an object; empty where it has not. */
struct json_object *device_attributes(const struct npuwin_device_info *info);

#endif /* NPUWIN_DEVICES_H */
