// SPDX-License-Identifier: MIT
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "devices.h"
#include "json.h"

static const char *provider;
static bool json;

static const struct opt opts[] = {
	{ "provider", "shm|dev", "software NPUs in memory, or the driver; by default the\n"
	  "driver where it is usable", OPT_STRING, &provider, 0, 0, provider_names },
	{ "json", NULL, "print JSON", OPT_FLAG, &json },
	{ NULL }
};

/* DEV is an index, a name or a path in /dev. */
static bool is_named(const struct npuwin_device_info *info, const char *dev)
{
	char index[16];

	snprintf(index, sizeof(index), "%u", info->index);
	if (!strncmp(dev, "/dev/", 5))
		dev += 5;
	return !strcmp(dev, index) || !strcmp(dev, info->name);
}

static void print_attributes(struct json_object *o, const char *prefix)
{
	json_object_object_foreach(o, key, value) {
		char name[96];

		snprintf(name, sizeof(name), "%s%s", prefix, key);
		if (json_object_is_type(value, json_type_object)) {
			snprintf(name, sizeof(name), "%s%s/", prefix, key);
			print_attributes(value, name);
		} else {
			printf("  %-18s %s\n", name, json_object_get_string(value));
		}
	}
}

static void print_bytes(const char *name, uint64_t bytes)
{
	char text[32];

	printf("  %-18s %s", name, human_bytes(text, sizeof(text), (double)bytes));
	if (bytes >= 1000)
		printf(" (%llu bytes)", (unsigned long long)bytes);
	printf("\n");
}

static void print_device(const struct npuwin_device_info *info)
{
	struct json_object *attributes = device_attributes(info);

	printf("%s\n", info->name);
	printf("  %-18s %s\n", "backend", info->backend);
	if (info->numa_node < 0)
		printf("  %-18s any\n", "NUMA node");
	else
		printf("  %-18s %d\n", "NUMA node", info->numa_node);
	print_bytes("window memory", info->memory_total);
	print_bytes("of it used", info->memory_used);
	printf("  %-18s %u\n", "ranks in a domain", info->max_ranks);
	printf("  %-18s %u for each rank\n", "notify registers", info->notify_regs);
	printf("  %-18s %s\n", "rails", info->peer_map ? "host, direct" : "host");
	print_attributes(attributes, "");
	json_object_put(attributes);
}

static int no_such_device(const struct devices *devs, const char *dev)
{
	char names[256] = "";
	size_t used = 0;

	for (uint32_t i = 0; i < devs->n && used < sizeof(names); i++)
		used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%s",
					 i ? ", " : "", devs->info[i].name);
	return complain(CLI_FAILED, "there is no device '%s'; provider %s has %s", dev,
			npuwin_provider_name(devs->ctx), names);
}

static int show(const struct devices *devs, const char *dev)
{
	struct json_object *list = json_object_new_array(), *root;
	uint32_t shown = 0;

	for (uint32_t i = 0; i < devs->n; i++) {
		struct json_object *o;

		if (dev && !is_named(&devs->info[i], dev))
			continue;
		shown++;
		if (!json) {
			print_device(&devs->info[i]);
			continue;
		}
		o = device_json(&devs->info[i]);
		json_object_object_add(o, "attributes", device_attributes(&devs->info[i]));
		json_object_array_add(list, o);
	}
	if (!shown) {
		json_object_put(list);
		return no_such_device(devs, dev);
	}
	if (!json) {
		json_object_put(list);
		return CLI_OK;
	}
	root = json_object_new_object();
	json_add_string(root, "command", "info");
	json_add_string(root, "provider", npuwin_provider_name(devs->ctx));
	json_add_string(root, "provider_reason", npuwin_provider_reason(devs->ctx));
	json_object_object_add(root, "devices", list);
	json_print(root);
	return CLI_OK;
}

static int run(int argc, char **argv)
{
	struct devices devs;
	int rc;

	if (argc > 1)
		return opt_no_arguments(argc - 1, argv + 1);
	rc = devices_open(&devs, provider);
	if (rc)
		return rc;
	rc = show(&devs, argc ? argv[0] : NULL);
	devices_close(&devs);
	return rc;
}

const struct command cmd_info = {
	.name = "info",
	.summary = "describe a device, with the driver's counters",
	.usage = "[DEV] [OPTIONS]",
	.text = "DEV is a name, a path or an index: npuwin0, /dev/npuwin0 or 0. Without it all\n"
		"devices are described.\n",
	.example = "  npuwin info npuwin0 --json\n",
	.opts = { opts },
	.run = run,
};
