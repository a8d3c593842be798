// SPDX-License-Identifier: MIT
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "devices.h"
#include "json.h"

#define CLASS_DIR	"/sys/class/npuwin"

/* Those that a device does not have are left out. */
static const char *const attributes[] = {
	"name", "firmware", "abi_level", "queues", "domains", "state", "fabric_id",
};

static const char *const groups[] = { "stats", "errors" };

int devices_open(struct devices *devs, const char *provider)
{
	struct npuwin_error err;
	int n;

	memset(devs, 0, sizeof(*devs));
	if (npuwin_open(provider, &devs->ctx, &err))
		return complain(CLI_FAILED, "%s", err.text);
	n = npuwin_device_count(devs->ctx);
	devs->info = calloc((size_t)n, sizeof(*devs->info));
	if (!devs->info) {
		devices_close(devs);
		return complain(CLI_FAILED, "out of memory");
	}
	for (; devs->n < (uint32_t)n; devs->n++) {
		if (npuwin_device_info(devs->ctx, (int)devs->n, &devs->info[devs->n], &err)) {
			devices_close(devs);
			return complain(CLI_FAILED, "%s", err.text);
		}
	}
	return 0;
}

void devices_close(struct devices *devs)
{
	free(devs->info);
	npuwin_close(devs->ctx);
}

struct json_object *device_json(const struct npuwin_device_info *info)
{
	struct json_object *o = json_object_new_object();

	json_add_uint(o, "index", info->index);
	json_add_string(o, "name", info->name);
	json_add_string(o, "backend", info->backend);
	json_add_int(o, "numa_node", info->numa_node);
	json_add_uint(o, "memory_total", info->memory_total);
	json_add_uint(o, "memory_used", info->memory_used);
	json_add_uint(o, "max_ranks", info->max_ranks);
	json_add_uint(o, "notify_regs", info->notify_regs);
	json_add_bool(o, "peer_map", info->peer_map);
	return o;
}

/* A number where it is one, else a string. */
static void add_attribute(struct json_object *o, const char *dir, const char *name)
{
	char path[512], line[256];
	long long number;
	char *end;
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "re");
	if (!f)
		return;
	if (fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\n")] = '\0';
		number = strtoll(line, &end, 10);
		if (end != line && !*end)
			json_add_int(o, name, number);
		else
			json_add_string(o, name, line);
	}
	fclose(f);
}

static void add_group(struct json_object *o, const char *device_dir, const char *group)
{
	struct json_object *members = json_object_new_object();
	struct dirent **names;
	char dir[320];
	int n;

	snprintf(dir, sizeof(dir), "%s/%s", device_dir, group);
	n = scandir(dir, &names, NULL, alphasort);
	for (int i = 0; i < n; i++) {
		if (names[i]->d_name[0] != '.')
			add_attribute(members, dir, names[i]->d_name);
		free(names[i]);
	}
	if (n >= 0)
		free(names);
	if (json_object_object_length(members))
		json_object_object_add(o, group, members);
	else
		json_object_put(members);
}

struct json_object *device_attributes(const struct npuwin_device_info *info)
{
	struct json_object *o = json_object_new_object();
	char dir[64 + sizeof(info->name)];

	snprintf(dir, sizeof(dir), "%s/%s", CLASS_DIR, info->name);
	for (size_t i = 0; i < ARRAY_SIZE(attributes); i++)
		add_attribute(o, dir, attributes[i]);
	for (size_t i = 0; i < ARRAY_SIZE(groups); i++)
		add_group(o, dir, groups[i]);
	return o;
}
