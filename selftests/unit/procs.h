/* SPDX-License-Identifier: MIT */
/*
 * Ranks as processes, for tests that look into the runtime and kill some of them. The test
 * itself never makes a thread, so that it can fork under any sanitizer.
 */
#ifndef PROCS_H
#define PROCS_H

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "shm.h"

#define WINDOW		65536

static inline int64_t far(void)
{
	return npuwin_deadline_ms(120000);
}

/* In a child: end it with a sentence unless @condition holds. */
#define must(condition, ...) do {						\
	if (!(condition)) {							\
		fprintf(stderr, "%s:%d: %s: ", __func__, __LINE__, #condition);	\
		fprintf(stderr, "" __VA_ARGS__);				\
		fputc('\n', stderr);						\
		_exit(1);							\
	}									\
} while (0)

static inline pid_t spawn(void (*run)(void *arg), void *arg)
{
	pid_t pid = fork();

	if (pid)
		return pid;
	run(arg);
	_exit(0);
}

static inline void reap(pid_t pid, int expected)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, expected);
}

static inline void kill_and_reap(pid_t pid)
{
	kill(pid, SIGKILL);
	reap(pid, SIGKILL);
}

/* A domain's memfd as the test sees it, without being a member. */
struct view {
	int fd;
	struct shm_layout layout;
	uint8_t *base;
	struct npuwin_domain_status *status;
	struct shm_rank *ranks;
};

static inline void view_open(struct view *view, int fd, uint32_t nranks)
{
	struct shm_header header;

	assert_int_equal(pread(fd, &header, sizeof(header), 0), sizeof(header));
	assert_int_equal(shm_layout_of(nranks, header.window_size, &view->layout), 0);
	view->fd = fd;
	view->base = mmap(NULL, view->layout.windows, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(view->base, MAP_FAILED);
	view->status = (void *)(view->base + view->layout.status);
	view->ranks = (void *)(view->base + view->layout.ranks);
}

static inline void view_close(struct view *view)
{
	munmap(view->base, view->layout.windows);
	close(view->fd);
}

/* Until a word that others write has a value. A hang is the test runner's to end. */
static inline void until(const uint32_t *word, uint32_t value)
{
	while (__atomic_load_n(word, __ATOMIC_SEQ_CST) != value)
		sched_yield();
}

static inline int make_domain(uint32_t nranks)
{
	struct npuwin_domain_attr attr = { .nranks = nranks, .window_size = WINDOW };
	struct npuwin_error err;
	struct npuwin *ctx;
	int fd;

	assert_int_equal(npuwin_open("shm", &ctx, &err), 0);
	fd = npuwin_domain_create_fd(ctx, &attr, &err);
	assert_true(fd >= 0);
	npuwin_close(ctx);
	return fd;
}

/* Open descriptors of this process; one more is always there while they are counted. */
static inline unsigned int count_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned int n = 0;

	assert_non_null(dir);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

static inline unsigned int count_maps(void)
{
	FILE *f = fopen("/proc/self/maps", "r");
	unsigned int n = 0;
	int c;

	assert_non_null(f);
	while ((c = getc(f)) != EOF)
		n += c == '\n';
	fclose(f);
	return n;
}

#endif /* PROCS_H */
