// SPDX-License-Identifier: MIT
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

#define MAX_NAMES	64
#define MAX_WORD	32

static size_t edit_distance(const char *a, const char *b)
{
	size_t row[MAX_WORD + 1];
	size_t la = strlen(a), lb = strlen(b);

	if (la > MAX_WORD || lb > MAX_WORD)
		return MAX_WORD;
	for (size_t j = 0; j <= lb; j++)
		row[j] = j;
	for (size_t i = 1; i <= la; i++) {
		size_t diagonal = row[0];

		row[0] = i;
		for (size_t j = 1; j <= lb; j++) {
			size_t best = diagonal + (a[i - 1] != b[j - 1]);

			if (row[j] + 1 < best)
				best = row[j] + 1;
			if (row[j - 1] + 1 < best)
				best = row[j - 1] + 1;
			diagonal = row[j];
			row[j] = best;
		}
	}
	return row[lb];
}

const char *opt_closest(const char *word, const char *const *names)
{
	const char *closest = NULL;
	size_t least = 3;

	for (; *names; names++) {
		size_t d = edit_distance(word, *names);

		if (d < least && 2 * d < strlen(word)) {
			least = d;
			closest = *names;
		}
	}
	return closest;
}

static int unknown_option(const struct opt *const *tables, const char *arg, const char *name)
{
	const char *names[MAX_NAMES + 1];
	const char *closest;
	size_t n = 0;

	for (int t = 0; t < OPT_TABLES && tables[t]; t++)
		for (const struct opt *o = tables[t]; o->name && n < MAX_NAMES; o++)
			names[n++] = o->name;
	names[n] = NULL;
	closest = opt_closest(name, names);
	if (closest)
		return complain(CLI_USAGE, "unknown option %s; did you mean --%s?", arg, closest);
	return complain(CLI_USAGE, "unknown option %s; see npuwin %s --help", arg, cli_command());
}

static int parse_uint(const struct opt *o, const char *text)
{
	unsigned long long v;
	char *end;

	errno = 0;
	v = strtoull(text, &end, 10);
	if (*text < '0' || *text > '9' || *end)
		return complain(CLI_USAGE, "--%s takes a whole number, not '%s'", o->name, text);
	if (errno || v < o->min || v > o->max)
		return complain(CLI_USAGE, "--%s %s is out of %llu..%llu", o->name, text,
				(unsigned long long)o->min, (unsigned long long)o->max);
	*(uint64_t *)o->value = v;
	return 0;
}

static int parse_seconds(const struct opt *o, const char *text)
{
	char *end;
	double v = strtod(text, &end);

	if (end == text || *end || !isfinite(v) || v <= 0 || v > 1e9)
		return complain(CLI_USAGE, "--%s takes seconds above 0, not '%s'", o->name, text);
	*(double *)o->value = v;
	return 0;
}

static int parse_choice(const struct opt *o, const char *text)
{
	char list[128] = "";
	size_t used = 0;

	for (int i = 0; o->choices[i]; i++) {
		if (!strcmp(text, o->choices[i])) {
			if (o->kind == OPT_STRING)
				*(const char **)o->value = text;
			else
				*(int *)o->value = i;
			return 0;
		}
		used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%s",
					 i ? " or " : "", o->choices[i]);
	}
	return complain(CLI_USAGE, "--%s is %s, not '%s'", o->name, list, text);
}

static int set_choice(const struct opt *const *tables, const struct opt *o)
{
	int *value = o->value;

	for (int t = 0; t < OPT_TABLES && tables[t]; t++)
		for (const struct opt *other = tables[t]; other->name; other++)
			if (other->value == value && *value >= 0 && *value != (int)o->min &&
			    *value == (int)other->min)
				return complain(CLI_USAGE, "--%s and --%s exclude each other",
						other->name, o->name);
	*value = (int)o->min;
	return 0;
}

static int parse_value(const struct opt *o, const char *text)
{
	switch (o->kind) {
	case OPT_UINT:
		return parse_uint(o, text);
	case OPT_SECONDS:
		return parse_seconds(o, text);
	case OPT_CHOICE:
		return parse_choice(o, text);
	default:
		if (!*text)
			return complain(CLI_USAGE, "--%s needs a value that is not empty", o->name);
		if (o->choices)
			return parse_choice(o, text);
		*(const char **)o->value = text;
		return 0;
	}
}

static const struct opt *find_option(const struct opt *const *tables, const char *arg)
{
	size_t len = strcspn(arg, "=");

	if (strncmp(arg, "--", 2))
		return NULL;
	for (int t = 0; t < OPT_TABLES && tables[t]; t++)
		for (const struct opt *o = tables[t]; o->name; o++)
			if (strlen(o->name) == len - 2 && !strncmp(o->name, arg + 2, len - 2))
				return o;
	return NULL;
}

/* Take the option at @argv[0]. Return: how many elements it took, or -CLI_USAGE. */
static int take_option(const struct opt *const *tables, int argc, char **argv)
{
	const struct opt *o = find_option(tables, argv[0]);
	const char *value = strchr(argv[0], '=');
	int taken = 1, rc = 0;

	if (!o) {
		char name[64];

		snprintf(name, sizeof(name), "%.*s", (int)strcspn(argv[0], "="), argv[0]);
		return -unknown_option(tables, name, name + strspn(name, "-"));
	}
	if (o->kind == OPT_FLAG || o->kind == OPT_SET) {
		if (value)
			return -complain(CLI_USAGE, "--%s takes no value", o->name);
		if (o->kind == OPT_FLAG)
			*(bool *)o->value = true;
		else
			rc = set_choice(tables, o);
		return rc ? -rc : taken;
	}
	if (value)
		value++;
	else if (argc > 1)
		value = argv[taken++];
	else
		return -complain(CLI_USAGE, "--%s needs a value: --%s %s", o->name, o->name,
				 o->arg);
	rc = parse_value(o, value);
	return rc ? -rc : taken;
}

int opt_parse(const struct opt *const *tables, int *argc, char **argv)
{
	int left = 0, i = 0;

	while (i < *argc && strcmp(argv[i], "--")) {
		int taken;

		if (argv[i][0] != '-' || !argv[i][1]) {
			argv[left++] = argv[i++];
			continue;
		}
		taken = take_option(tables, *argc - i, argv + i);
		if (taken < 0)
			return -taken;
		i += taken;
	}
	while (++i < *argc)
		argv[left++] = argv[i];
	*argc = left;
	return 0;
}

int opt_no_arguments(int argc, char **argv)
{
	if (argc)
		return complain(CLI_USAGE, "unexpected argument '%s'", argv[0]);
	return 0;
}

static void print_option(const struct opt *o)
{
	const char *line = o->help;
	char left[64];

	snprintf(left, sizeof(left), "--%s%s%s", o->name, o->arg ? " " : "", o->arg ? o->arg : "");
	printf("  %-24s", left);
	while (line) {
		const char *end = strchr(line, '\n');

		printf("  %.*s\n", (int)(end ? end - line : (long)strlen(line)), line);
		line = end ? end + 1 : NULL;
		if (line)
			printf("%26s", "");
	}
}

void opt_print(const struct opt *const *tables)
{
	for (int t = 0; t < OPT_TABLES && tables[t]; t++)
		for (const struct opt *o = tables[t]; o->name; o++)
			print_option(o);
}
