// SPDX-License-Identifier: MIT
/* Errors, time, threads and the version: what every other part uses. */
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "internal.h"

#define NSEC_PER_SEC 1000000000LL
#define NSEC_PER_MSEC 1000000LL

#undef npuwin_fail	/* the analyzer's */

int npuwin_fail(struct npuwin_error *err, int code, int32_t rank, int32_t peer, const char *fmt,
		...)
{
	va_list args;

	if (!err)
		return code;
	err->code = code;
	err->rank = rank;
	err->peer = peer;
	va_start(args, fmt);
	vsnprintf(err->text, sizeof(err->text), fmt, args);
	va_end(args);
	return code;
}

int npuwin_ok(struct npuwin_error *err, int value)
{
	if (err) {
		memset(err, 0, sizeof(*err));
		err->rank = NPUWIN_NOBODY;
		err->peer = NPUWIN_NOBODY;
	}
	return value;
}

int64_t npuwin_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * NSEC_PER_SEC + now.tv_nsec;
}

int64_t npuwin_deadline_ms(int64_t ms)
{
	int64_t now = npuwin_now();

	if (ms < 0 || ms > (NPUWIN_NO_DEADLINE - now) / NSEC_PER_MSEC)
		return NPUWIN_NO_DEADLINE;
	return now + ms * NSEC_PER_MSEC;
}

int npuwin_thread(pthread_t *thread, void *(*run)(void *arg), void *arg)
{
	sigset_t all, old;
	int rc;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = pthread_create(thread, NULL, run, arg);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return -rc;
}

const char *npuwin_version(void)
{
	return NPUWIN_VERSION_STRING;
}
