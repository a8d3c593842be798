// SPDX-License-Identifier: MIT
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "cli.h"

static const char *command_name;

const char *const provider_names[] = { "shm", "dev", NULL };

void cli_set_command(const char *name)
{
	command_name = name;
}

const char *cli_command(void)
{
	return command_name ? command_name : "";
}

void cli_complain(const char *fmt, ...)
{
	char line[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	for (char *p = line; *p; p++)
		if (iscntrl((unsigned char)*p))
			*p = '?';
	fprintf(stderr, "npuwin%s%s: %s\n", command_name ? " " : "", cli_command(), line);
}

const char *cli_exit_codes(void)
{
	return "Exit codes:\n"
	       "  0  done, and verified where there is something to verify\n"
	       "  1  the operation failed, or what arrived is not what was sent\n"
	       "  2  a wrong option or argument\n"
	       "  3  a file cannot be read or written, or does not hold what it must\n";
}

int cli_flush(int code)
{
	if (fflush(stdout) || ferror(stdout))
		return complain(CLI_FAILED, "cannot write to standard output: %s",
				strerror(errno));
	return code;
}

const char *human_bytes(char *buf, size_t len, double bytes)
{
	static const char *const units[] = { "bytes", "kB", "MB", "GB", "TB", "PB" };
	size_t u = 0;

	while (bytes >= 1000 && u + 1 < ARRAY_SIZE(units)) {
		bytes /= 1000;
		u++;
	}
	snprintf(buf, len, u ? "%.1f %s" : "%.0f %s", bytes, units[u]);
	return buf;
}

const char *human_seconds(char *buf, size_t len, double seconds)
{
	if (seconds * 1000 < 1)
		snprintf(buf, len, "%.1f us", seconds * 1e6);
	else if (seconds < 1)
		snprintf(buf, len, "%.2f ms", seconds * 1e3);
	else
		snprintf(buf, len, "%.2f s", seconds);
	return buf;
}

const char *provider_text(char *buf, size_t len, const char *name, const char *reason)
{
	size_t n = strlen(name);

	/* The reason begins with the name. */
	if (!strncmp(reason, name, n) && !strncmp(reason + n, ": ", 2))
		reason += n + 2;
	snprintf(buf, len, "%s, %s%s", name, strncmp(reason, "asked ", 6) ? "because " : "",
		 reason);
	return buf;
}

uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}
