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

		if (d < least && d < strlen(word)) {
			least = d;
			closest = *names;
		}
	}
	return closest;
}

static int unknown_option(const struct opt *opts, const char *arg, const char *name)
{
	const char *names[MAX_NAMES + 1];
	const char *closest;
	size_t n = 0;

	for (; opts->name && n < MAX_NAMES; opts++)
		names[n++] = opts->name;
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
			*(int *)o->value = i;
			return 0;
		}
		used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%s",
					 i ? " or " : "", o->choices[i]);
	}
	return complain(CLI_USAGE, "--%s is %s, not '%s'", o->name, list, text);
}

static int set_choice(const struct opt *opts, const struct opt *o)
{
	int *value = o->value;

	if (*value >= 0 && *value != (int)o->min) {
		const struct opt *other = opts;

		while (other->value != o->value || (int)other->min != *value)
			other++;
		return complain(CLI_USAGE, "--%s and --%s exclude each other", other->name,
				o->name);
	}
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
		*(const char **)o->value = text;
		return 0;
	}
}

static const struct opt *find_option(const struct opt *opts, const char *name, size_t len)
{
	for (; opts->name; opts++)
		if (!strncmp(opts->name, name, len) && !opts->name[len])
			return opts;
	return NULL;
}

int opt_parse(const struct opt *opts, int *argc, char **argv)
{
	int left = 0, rc;

	for (int i = 0; i < *argc; i++) {
		const char *arg = argv[i], *value;
		const struct opt *o;
		char name[64];

		if (arg[0] != '-' || !arg[1]) {
			argv[left++] = argv[i];
			continue;
		}
		if (!strcmp(arg, "--")) {
			while (++i < *argc)
				argv[left++] = argv[i];
			break;
		}
		value = strchr(arg, '=');
		snprintf(name, sizeof(name), "%.*s",
			 (int)(value ? (size_t)(value - arg) : strlen(arg)), arg);
		o = NULL;
		if (!strncmp(name, "--", 2))
			o = find_option(opts, name + 2, strlen(name) - 2);
		if (!o)
			return unknown_option(opts, name, name + strspn(name, "-"));
		if (o->kind == OPT_FLAG || o->kind == OPT_SET) {
			if (value)
				return complain(CLI_USAGE, "--%s takes no value", o->name);
			if (o->kind == OPT_FLAG)
				*(bool *)o->value = true;
			else if ((rc = set_choice(opts, o)))
				return rc;
			continue;
		}
		if (value)
			value++;
		else if (i + 1 < *argc)
			value = argv[++i];
		else
			return complain(CLI_USAGE, "--%s needs a value: --%s %s", o->name, o->name,
					o->arg);
		rc = parse_value(o, value);
		if (rc)
			return rc;
	}
	*argc = left;
	return 0;
}

int opt_no_arguments(int argc, char **argv)
{
	if (argc)
		return complain(CLI_USAGE, "unexpected argument '%s'", argv[0]);
	return 0;
}

void opt_print(const struct opt *opts)
{
	for (; opts->name; opts++) {
		char left[64];
		const char *line = opts->help;

		snprintf(left, sizeof(left), "--%s%s%s", opts->name, opts->arg ? " " : "",
			 opts->arg ? opts->arg : "");
		printf("  %-24s", left);
		while (line) {
			const char *end = strchr(line, '\n');

			printf("  %.*s\n", (int)(end ? end - line : (long)strlen(line)), line);
			line = end ? end + 1 : NULL;
			if (line)
				printf("%26s", "");
		}
	}
}
