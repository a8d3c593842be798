// SPDX-License-Identifier: MIT
/*
 * What each device has done, as a table or as JSON.
 */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>

#include "emu.h"

static const struct {
	const char *name;
	size_t offset;
} columns[] = {
	{ "hosts", offsetof(struct counters, hosts) },
	{ "doorbells", offsetof(struct counters, doorbells) },
	{ "interrupts", offsetof(struct counters, interrupts) },
	{ "requests", offsetof(struct counters, requests) },
	{ "descriptors", offsetof(struct counters, descriptors) },
	{ "completions", offsetof(struct counters, completions) },
	{ "events", offsetof(struct counters, events) },
	{ "bytes", offsetof(struct counters, bytes) },
	{ "errors", offsetof(struct counters, errors) },
	{ "steps", offsetof(struct counters, steps) },
};

static u64 read_counter(const struct device *dev, size_t column)
{
	const u8 *counters = (const u8 *)&dev->counters;

	return __atomic_load_n((const u64 *)(counters + columns[column].offset),
			       __ATOMIC_RELAXED);
}

static void print_json(const struct emu *emu)
{
	printf("{\"devices\": [");
	for (u32 i = 0; i < emu->config.devices; i++) {
		printf("%s{\"device\": %u", i ? ", " : "", i);
		for (size_t c = 0; c < ARRAY_SIZE(columns); c++)
			printf(", \"%s\": %" PRIu64, columns[c].name,
			       read_counter(&emu->devices[i], c));
		printf("}");
	}
	printf("]}\n");
}

static void print_table(const struct emu *emu)
{
	printf("device");
	for (size_t c = 0; c < ARRAY_SIZE(columns); c++)
		printf(" %12s", columns[c].name);
	printf("\n");
	for (u32 i = 0; i < emu->config.devices; i++) {
		printf("%6u", i);
		for (size_t c = 0; c < ARRAY_SIZE(columns); c++)
			printf(" %12" PRIu64, read_counter(&emu->devices[i], c));
		printf("\n");
	}
}

/**
 * stats_print() - Print the counters of all devices.
 * @emu: all devices
 * @json: as JSON
 */
void stats_print(const struct emu *emu, bool json)
{
	if (json)
		print_json(emu);
	else
		print_table(emu);
	fflush(stdout);
}
