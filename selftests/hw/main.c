// SPDX-License-Identifier: MIT
/*
 * usage: hw [--list] [NAME]...
 *
 * Runs the tests of all rules, or those named, and prints TAP. To be run in the top of the
 * tree. The emulator is build/bin/npuwin-emu or what NPUWIN_EMU names.
 */
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "hw.h"

/* A wait that takes longer has failed. */
#define PATIENCE_NS	(20 * 1000 * NSEC_PER_MSEC)
#define GLANCE_NS	50000

static const struct group *const groups[] = {
	&group_transport, &group_states, &group_admin, &group_queues, &group_batches,
	&group_descs, &group_waits, &group_peers, &group_domains, &group_events,
	&group_hostile, &group_faults, &group_turns, &group_corners,
	&group_limits, &group_order, &group_progress, &group_names,
};

static jmp_buf out;

void fail(const char *file, int line, const char *format, ...)
{
	va_list args;

	printf("# %s:%d: ", file, line);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	printf("\n");
	longjmp(out, 1);
}

int64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 * NSEC_PER_MSEC + now.tv_nsec;
}

struct patience patience_begin(void)
{
	return (struct patience) { .end = now_ns() + PATIENCE_NS };
}

bool patience_wait(struct patience *patience)
{
	const struct timespec glance = { .tv_nsec = GLANCE_NS };

	nanosleep(&glance, NULL);
	return now_ns() < patience->end;
}

unsigned int repeat(unsigned int full)
{
	unsigned int few = full / 10;

	if (!getenv("NPUWIN_TEST_SHORT"))
		return full;
	return few ? few : 1;
}

uint64_t next_random(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15ULL;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
	return z ^ (z >> 31);
}

static bool run(const struct test *test)
{
	bool good = !setjmp(out);

	if (good)
		test->run();
	world_end();
	return good;
}

static bool named(const struct test *test, int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], test->name))
			return true;
	}
	return argc == 1;
}

static size_t count_tests(int argc, char **argv)
{
	size_t n = 0;

	for (size_t g = 0; g < ARRAY_SIZE(groups); g++) {
		for (size_t t = 0; t < groups[g]->count; t++)
			n += named(&groups[g]->tests[t], argc, argv);
	}
	return n;
}

static bool documents(const char *text, size_t rule, const char *name)
{
	char number[32], quoted[64];
	const char *at;

	snprintf(number, sizeof(number), "\nHW-%zu ", rule);
	snprintf(quoted, sizeof(quoted), "``%s`` ", name);
	at = strstr(text, number);
	if (!at)
		return false;
	at += strlen(number);
	at += strspn(at, " ");
	return !strncmp(at, quoted, strlen(quoted));
}

/* Whether the document has each rule beside its test. */
static bool documented(void)
{
	static char text[1 << 18];
	FILE *file = fopen("Documentation/hardware.rst", "r");
	size_t rule = 0, wrong = 0;

	if (!file)
		return false;
	text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
	fclose(file);
	for (size_t g = 0; g < ARRAY_SIZE(groups); g++) {
		for (size_t t = 0; t < groups[g]->count; t++) {
			const char *name = groups[g]->tests[t].name;

			if (documents(text, ++rule, name))
				continue;
			printf("# HW-%zu is not there, or not %s\n", rule, name);
			wrong++;
		}
	}
	return !wrong;
}

static int list(void)
{
	size_t rule = 0;

	for (size_t g = 0; g < ARRAY_SIZE(groups); g++) {
		for (size_t t = 0; t < groups[g]->count; t++)
			printf("HW-%zu %s %s\n", ++rule, groups[g]->tests[t].name,
			       groups[g]->tests[t].rule);
	}
	return EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
	size_t rule = 0, n = 0, failed = 0;
	bool all = argc == 1;

	if (argc == 2 && !strcmp(argv[1], "--list"))
		return list();
	setvbuf(stdout, NULL, _IOLBF, 0);
	signal(SIGPIPE, SIG_IGN);
	printf("1..%zu\n", count_tests(argc, argv) + all);
	for (size_t g = 0; g < ARRAY_SIZE(groups); g++) {
		for (size_t t = 0; t < groups[g]->count; t++) {
			const struct test *test = &groups[g]->tests[t];
			bool good;

			rule++;
			if (!named(test, argc, argv))
				continue;
			good = run(test);
			failed += !good;
			printf("%sok %zu - HW-%zu: %s: %s\n", good ? "" : "not ", ++n, rule,
			       test->name, test->rule);
		}
	}
	if (all) {
		bool good = documented();

		failed += !good;
		printf("%sok %zu - Documentation/hardware.rst has these rules and tests\n",
		       good ? "" : "not ", ++n);
	}
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
