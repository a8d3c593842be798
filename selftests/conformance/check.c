// SPDX-License-Identifier: MIT
/*
 * Checks. What fails is said on standard output, which the parent of the case keeps, and
 * ends the process.
 */
#include <ctype.h>
#include <dirent.h>
#include <sched.h>
#include <stdarg.h>
#include <unistd.h>

#include "conformance.h"

static void say(const char *where, const char *fmt, va_list ap)
	__attribute__((format(printf, 2, 0)));

static void say(const char *where, const char *fmt, va_list ap)
{
	char line[1024];
	size_t n = snprintf(line, sizeof(line), "%s", where);

	vsnprintf(line + n, sizeof(line) - 1 - n, fmt, ap);
	n = strlen(line);
	line[n++] = '\n';
	if (write(STDOUT_FILENO, line, n) < 0)
		_exit(EXIT_FAIL);
}

void fail_at(const char *file, int line, const char *fmt, ...)
{
	const char *base = strrchr(file, '/');
	char where[128];
	va_list ap;

	snprintf(where, sizeof(where), "%s:%d: ", base ? base + 1 : file, line);
	va_start(ap, fmt);
	say(where, fmt, ap);
	va_end(ap);
	_exit(EXIT_FAIL);
}

void skip_case(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say("", fmt, ap);
	va_end(ap);
	_exit(EXIT_SKIP);
}

struct npuwin_error fresh_error(void)
{
	struct npuwin_error err;

	memset(&err, 0x5a, sizeof(err));
	return err;
}

void check_ok(const char *file, int line, const char *what, int ret,
	      const struct npuwin_error *err)
{
	if (ret < 0)
		fail_at(file, line, "%s is %d (%s): %.*s", what, ret, strerror(-ret),
			(int)sizeof(err->text), err->text);
}

bool says(const char *text, const char *word)
{
	size_t n = strlen(word);
	const char *at;

	for (at = strstr(text, word); at; at = strstr(at + 1, word)) {
		if (isdigit((unsigned char)word[0]) && at > text &&
		    (isdigit((unsigned char)at[-1]) || at[-1] == '-'))
			continue;
		if (isdigit((unsigned char)word[n - 1]) && isdigit((unsigned char)at[n]))
			continue;
		return true;
	}
	return false;
}

void check_err(const char *file, int line, const char *what, int ret, int code,
	       const struct npuwin_error *err, const char *const *words)
{
	if (ret != code)
		fail_at(file, line, "%s is %d, expected %d (%s): %.*s", what, ret, code,
			strerror(-code), (int)sizeof(err->text), ret < 0 ? err->text : "");
	if (err->code != code)
		fail_at(file, line, "%s is %d, but its error says %d", what, ret, err->code);
	if (!memchr(err->text, 0, sizeof(err->text)) || !err->text[0])
		fail_at(file, line, "%s fails without a sentence", what);
	for (; *words; words++)
		if (!says(err->text, *words))
			fail_at(file, line, "%s: the sentence does not say \"%s\": %s", what,
				*words, err->text);
}

void check_bytes(const char *what, const void *got, const void *want, size_t n)
{
	const uint8_t *g = got, *w = want;
	size_t i;

	if (!n || !memcmp(g, w, n))
		return;
	for (i = 0; g[i] == w[i]; i++)
		;
	FAIL("%s: byte %zu of %zu is %#x, expected %#x", what, i, n, g[i], w[i]);
}

void check_filled(const char *what, const void *got, int byte, size_t n)
{
	const uint8_t *g = got;
	size_t i;

	if (!n || (g[0] == byte && !memcmp(g, g + 1, n - 1)))
		return;
	for (i = 0; g[i] == byte; i++)
		;
	FAIL("%s: byte %zu of %zu is %#x, expected %#x", what, i, n, g[i], byte);
}

int64_t far(void)
{
	return npuwin_deadline_ms(90000);
}

uint32_t times(const struct config *cfg, uint32_t full, uint32_t brief)
{
	return cfg->brief ? brief : full;
}

int count_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int n = 0;

	CHECK(dir);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

static char task_state(pid_t tid)
{
	char path[64], line[512], *at;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)tid);
	f = fopen(path, "r");
	if (!f)
		FAIL("task %d is gone", (int)tid);
	if (!fgets(line, sizeof(line), f))
		FAIL("task %d is going", (int)tid);
	fclose(f);
	at = strrchr(line, ')');
	CHECK(at && at[1] == ' ');
	return at[2];
}

void wait_asleep(pid_t tid)
{
	int in_a_row = 0;

	while (in_a_row < 20) {
		in_a_row = task_state(tid) == 'S' ? in_a_row + 1 : 0;
		sched_yield();
	}
}

void dawdle(uint64_t *state, uint32_t most)
{
	uint32_t n = rnd(state) % (most + 1), i, spin;

	for (i = 0; i < n; i++) {
		if (rnd(state) % 4 == 0)
			sched_yield();
		for (spin = 0; spin < 50; spin++)
			atomic_signal_fence(memory_order_seq_cst);
	}
}
