/* SPDX-License-Identifier: MIT */
/* Members of bootstraps, for tests that look into the runtime and talk to it by hand. */
#ifndef BOOT_H
#define BOOT_H

#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "bootstrap.h"

#define MAX_MEMBERS	64

static const char secret[] = "a secret of more than 16 bytes";
static const char other_secret[] = "another one, as long as is wanted";

enum where { TCP, UNIX_PATH, UNIX_ABSTRACT, PLACES };

/*
 * An address that nobody else has: all of 127/8 is this host's, and the rest of it is made
 * from the process and a count.
 */
static inline void make_address(char *text, size_t size, enum where where)
{
	static unsigned int count;
	unsigned int pid = (unsigned int)getpid();

	count++;
	if (where == TCP)
		snprintf(text, size, "tcp:127.%u.%u.%u:%u", pid / 65536 % 128 + 64,
			 pid / 256 % 256, pid % 256, 20000 + count);
	else
		snprintf(text, size, "unix:%s-%u-%u", where == UNIX_PATH ?
			 "/tmp/npuwin-unit" : "@npuwin-unit", pid, count);
}

static inline struct npuwin_bootstrap_attr make_attr(const char *address, uint32_t nranks,
						     uint32_t rank)
{
	return (struct npuwin_bootstrap_attr) {
		.address = address,
		.nranks = nranks,
		.rank = rank,
		.secret = secret,
		.secret_bytes = sizeof(secret),
		.deadline_ns = npuwin_deadline_ms(60000),
	};
}

static inline int gather(struct npuwin_bootstrap *bs, const void *mine, void *all, size_t bytes,
			 int64_t deadline_ns, struct npuwin_error *err)
{
	return bs->ops->allgather(bs->priv, mine, all, bytes, deadline_ns, err);
}

static inline int barrier(struct npuwin_bootstrap *bs, int64_t deadline_ns,
			  struct npuwin_error *err)
{
	return bs->ops->barrier(bs->priv, deadline_ns, err);
}

/* What rank @rank gives in exchange @round. */
static inline uint8_t given(uint32_t rank, uint32_t round, size_t i)
{
	return (uint8_t)(rank * 31 + round * 7 + i * 3);
}

/* One exchange, every byte of which is looked at. The sentence of what is wrong, or NULL. */
static inline const char *exchange(struct npuwin_bootstrap *bs, uint32_t round, size_t bytes)
{
	static __thread char text[300];
	struct npuwin_error err;
	uint8_t *all = malloc(bs->nranks * bytes);
	uint8_t *mine = malloc(bytes);
	const char *wrong = NULL;
	uint32_t rank;
	size_t i;

	for (i = 0; i < bytes; i++)
		mine[i] = given(bs->rank, round, i);
	if (gather(bs, mine, all, bytes, npuwin_deadline_ms(60000), &err)) {
		snprintf(text, sizeof(text), "%s", err.text);
		wrong = text;
	}
	for (rank = 0; rank < bs->nranks && !wrong; rank++)
		for (i = 0; i < bytes && !wrong; i++)
			if (all[rank * bytes + i] != given(rank, round, i))
				wrong = "another byte than was given";
	free(mine);
	free(all);
	return wrong;
}

/* Open descriptors of this process; one more is always there while they are counted. */
static inline unsigned int open_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned int n = 0;

	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

#endif /* BOOT_H */
