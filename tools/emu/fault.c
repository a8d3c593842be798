// SPDX-License-Identifier: MIT
/*
 * Faults on demand: rules from the command line, and whether one of them applies.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emu.h"

/* Keys that not every rule has. */
#define KEY_MS		1u
#define KEY_STATUS	2u

/* Names, what an occasion is, for the help, and which of these keys they have. */
static const struct {
	const char *name;
	const char *help;
	u32 keys;
} kinds[FAULT_KINDS] = {
	[FAULT_DROP_IRQ] = { "drop-irq", "do not signal an interrupt" },
	[FAULT_DELAY_IRQ] = { "delay-irq", "signal an interrupt ms later", KEY_MS },
	[FAULT_REORDER_IRQ] = { "reorder-irq", "signal an interrupt after the next one" },
	[FAULT_STALL] = { "stall", "stop the engine before a descriptor, for ms or for ever",
			  KEY_MS },
	[FAULT_FAIL] = { "fail", "fail a descriptor with status (default 12)", KEY_STATUS },
	[FAULT_CORRUPT] = { "corrupt", "post garbage instead of a completion" },
	[FAULT_NO_HEARTBEAT] = { "no-heartbeat", "stop the heartbeat, for ms or for ever",
				 KEY_MS },
	[FAULT_DEVICE] = { "fault", "go to FAULT before a descriptor" },
	[FAULT_DIE] = { "die", "end the process before a descriptor" },
};

/**
 * fault_print_kinds() - Print the lines about faults of the help.
 */
void fault_print_kinds(void)
{
	for (size_t i = 0; i < FAULT_KINDS; i++)
		printf("  %-14s%s\n", kinds[i].name, kinds[i].help);
}

static int parse_number(const char *text, u64 most, u64 *value)
{
	char *end;

	errno = 0;
	*value = strtoull(text, &end, 0);
	return *text < '0' || *text > '9' || errno || *end || *value > most ? -1 : 0;
}

static int parse_pair(char *pair, struct fault_rule *rule)
{
	const u32 keys = kinds[rule->kind].keys;
	char *value = strchr(pair, '=');
	u64 n;

	if (!value)
		return -1;
	*value++ = '\0';
	if (parse_number(value, UINT64_MAX - 1, &n))
		return -1;
	if (!strcmp(pair, "dev") && n < EMU_MAX_DEVICES)
		rule->device = (int)n;
	else if (!strcmp(pair, "nth") && n)
		rule->nth = n;
	else if (!strcmp(pair, "every") && n)
		rule->every = n;
	else if (!strcmp(pair, "count"))
		rule->count = n;
	else if (!strcmp(pair, "percent") && n <= 100)
		rule->percent = (u32)n;
	else if (!strcmp(pair, "ms") && keys & KEY_MS && n <= UINT32_MAX)
		rule->ms = (u32)n;
	else if (!strcmp(pair, "status") && keys & KEY_STATUS && n && n <= NPUWIN_ST_DEVICE)
		rule->status = (u32)n;
	else
		return -1;
	return 0;
}

/**
 * fault_parse() - Read a rule: NAME[:KEY=NUMBER[,KEY=NUMBER]...]
 * @text: the rule
 * @rule: out
 * @why: out, on failure: what is wrong with it
 *
 * Return: 0 or -1.
 */
int fault_parse(const char *text, struct fault_rule *rule, const char **why)
{
	bool has_nth, has_every, has_percent;
	char copy[256];
	char *pair, *next;

	*rule = (struct fault_rule) {
		.kind = FAULT_KINDS, .device = -1, .count = UINT64_MAX, .percent = 100,
		.status = NPUWIN_ST_DEVICE,
	};
	*why = "too long";
	if (strlen(text) >= sizeof(copy))
		return -1;
	memcpy(copy, text, strlen(text) + 1);
	next = strchr(copy, ':');
	if (next)
		*next++ = '\0';
	for (u32 i = 0; i < FAULT_KINDS; i++) {
		if (!strcmp(copy, kinds[i].name))
			rule->kind = i;
	}
	*why = "no such fault";
	if (rule->kind == FAULT_KINDS)
		return -1;
	*why = "not KEY=NUMBER with a key and a number that it can have, see --help";
	for (pair = next; pair; pair = next) {
		next = strchr(pair, ',');
		if (next)
			*next++ = '\0';
		if (parse_pair(pair, rule))
			return -1;
	}
	/* "nth" alone is one occasion; nothing, or "every" or "percent", is all of them. */
	has_nth = rule->nth;
	has_every = rule->every;
	has_percent = rule->percent < 100;
	if (has_nth && !has_every && !has_percent && rule->count == UINT64_MAX)
		rule->count = 1;
	if (!has_every)
		rule->every = 1;
	if (!has_nth)
		rule->nth = rule->every;
	return 0;
}

/**
 * fault_random() - The device's next random number.
 * @dev: the device
 *
 * Return: 64 bits that depend on the seed alone.
 */
u64 fault_random(struct device *dev)
{
	u64 z = dev->faults.random += 0x9e3779b97f4a7c15ULL;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
	return z ^ (z >> 31);
}

/**
 * fault_hit() - An occasion for a fault: whether it happens.
 * @dev: the device
 * @kind: which
 *
 * Return: the rule by which it happens, or NULL.
 */
const struct fault_rule *fault_hit(struct device *dev, enum fault_kind kind)
{
	const struct config *config = &dev->emu->config;
	struct faults *faults = &dev->faults;

	for (u32 i = 0; i < config->nrules; i++) {
		const struct fault_rule *rule = &config->rules[i];
		u64 n;

		if (rule->kind != kind ||
		    (rule->device >= 0 && (u32)rule->device != dev->index))
			continue;
		n = ++faults->seen[i];
		if (n < rule->nth || (n - rule->nth) % rule->every ||
		    faults->hits[i] >= rule->count ||
		    fault_random(dev) % 100 >= rule->percent)
			continue;
		faults->hits[i]++;
		emu_log(dev, "fault: %s", kinds[kind].name);
		return rule;
	}
	return NULL;
}
