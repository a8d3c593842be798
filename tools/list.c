// SPDX-License-Identifier: MIT
#include <stdio.h>

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

static void print_json(const struct devices *devs)
{
	struct json_object *o = json_object_new_object(), *list = json_object_new_array();

	json_add_string(o, "command", "list");
	json_add_string(o, "provider", npuwin_provider_name(devs->ctx));
	json_add_string(o, "provider_reason", npuwin_provider_reason(devs->ctx));
	for (uint32_t i = 0; i < devs->n; i++)
		json_object_array_add(list, device_json(&devs->info[i]));
	json_object_object_add(o, "devices", list);
	json_print(o);
}

static void print_table(const struct devices *devs)
{
	char text[320], total[32], used[32], node[16];

	provider_text(text, sizeof(text), npuwin_provider_name(devs->ctx),
		      npuwin_provider_reason(devs->ctx));
	printf("provider %s\n\n", text);
	printf("%-12s %-8s %4s %12s %12s  %s\n", "DEVICE", "BACKEND", "NODE", "MEMORY", "USED",
	       "DIRECT RAIL");
	for (uint32_t i = 0; i < devs->n; i++) {
		const struct npuwin_device_info *info = &devs->info[i];

		snprintf(node, sizeof(node), "%d", info->numa_node);
		printf("%-12s %-8s %4s %12s %12s  %s\n", info->name, info->backend,
		       info->numa_node < 0 ? "any" : node,
		       human_bytes(total, sizeof(total), (double)info->memory_total),
		       human_bytes(used, sizeof(used), (double)info->memory_used),
		       info->peer_map ? "yes" : "no");
	}
}

static int run(int argc, char **argv)
{
	struct devices devs;
	int rc = opt_no_arguments(argc, argv);

	if (rc)
		return rc;
	rc = devices_open(&devs, provider);
	if (rc)
		return rc;
	if (json)
		print_json(&devs);
	else
		print_table(&devs);
	devices_close(&devs);
	return CLI_OK;
}

const struct command cmd_list = {
	.name = "list",
	.summary = "list devices, their backend, memory and NUMA node",
	.usage = "[OPTIONS]",
	.text = "Without the driver there is one device, shm: software NPUs in this process.\n",
	.example = "  npuwin list --json\n",
	.opts = { opts },
	.run = run,
};
