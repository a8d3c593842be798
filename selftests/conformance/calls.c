// SPDX-License-Identifier: MIT
/*
 * System calls of a repeated call. What the library asks of a driver goes by ioctl(), which this
 * file defines, in the place of libc's.
 */
#include <stdarg.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "conformance.h"

#define NRANKS	4

static _Thread_local uint32_t calls_made;

int ioctl(int fd, unsigned long request, ...)
{
	va_list args;
	void *arg;

	va_start(args, request);
	arg = va_arg(args, void *);
	va_end(args);
	calls_made++;
	return (int)syscall(SYS_ioctl, fd, request, arg);
}

/*
 * For one rank a SUBMIT that waits. For a group a SUBMIT for each rank, of which only the last
 * can wait, and one more to take the completion of each of the others.
 */
static uint32_t calls_expected(const struct party *p)
{
	return strcmp(p->cfg->provider, "dev") ? 0 : 2 * p->n - 1;
}

static void calls_party(struct party *p)
{
	const struct layout layout = {
		.dtype = NPUWIN_BF16, .max_recv = 4, .ndim_size = 1, .size = { 32 },
	};
	struct npuwin_error err = fresh_error();
	struct set sets[NRANKS];
	uint32_t i, round, before;

	party_alloc(p, &layout, sets);
	/* It makes the plan, and tells peers of the buffers. */
	party_exchange(p, sets, 0, count_random);
	for (round = 1; round < times(p->cfg, 50, 10); round++) {
		for (i = 0; i < p->n; i++)
			set_fill(&sets[i], round, count_random);
		before = calls_made;
		CHECK_OK(party_call(p, sets, far(), NULL, &err), &err);
		CHECK_EQ(calls_made - before, calls_expected(p));
		for (i = 0; i < p->n; i++)
			set_verify(&sets[i], round, count_random);
	}
	party_sync(p);
	party_free(p, sets);
}

static void calls_run(const struct config *cfg)
{
	const struct run run = { .nranks = NRANKS, .fn = calls_party };

	run_ranks(cfg, &run);
}

static const struct test_case cases[] = {
	{ "system calls of a repeated call", calls_run, A_HOST | A_FORMS | A_MODES, 0, NULL },
};

const struct suite suite_calls = { cases, ARRAY_SIZE(cases) };
