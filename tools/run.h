/* SPDX-License-Identifier: MIT */
/*
 * What ranks.c, which starts and watches ranks, and rank.c, which is one, owe each other.
 */
#ifndef NPUWIN_RUN_H
#define NPUWIN_RUN_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "ranks.h"

/**
 * struct rank_shared - What a rank tells.
 * @failed: 0, or which in the order of failures its failure was
 * @err: then why
 * @mismatch: what its check found, or empty
 * @bytes: of its last iteration, by call
 * @iterations: that it has finished
 */
struct rank_shared {
	_Atomic uint32_t failed;
	struct npuwin_error err;
	char mismatch[256];
	uint64_t bytes[RANKS_MAX_CALLS];
	_Atomic uint64_t iterations;
};

/** struct times - When an iteration's calls first started (0: not yet) and last ended. */
struct times {
	_Atomic uint64_t start[RANKS_MAX_CALLS];
	_Atomic uint64_t end[RANKS_MAX_CALLS];
};

/**
 * struct run_shared - What the ranks and who watches them share.
 * @failures: how many have failed
 * @provider: name, told by the first rank that is here
 * @reason: why that one
 * @times: by iteration
 * @rank: by rank; one more for failures that are of no rank
 */
struct run_shared {
	_Atomic uint32_t failures;
	char provider[16];
	char reason[256];
	struct times *times;
	struct rank_shared rank[];
};

/**
 * struct run - A program that runs.
 * @prog: the program
 * @shared: see there
 * @pids: of the processes, 0 once reaped; NULL for the other forms
 * @alive: processes that are not reaped
 * @killed: time at which the rest were killed, or 0
 * @done: eventfd: the driving thread is done
 * @name: rendezvous of the processes
 * @parent: process that watches
 * @driver: the driving thread
 */
struct run {
	const struct program *prog;
	struct run_shared *shared;
	pid_t *pids;
	uint32_t alive;
	bool killed;
	int done;
	char name[64];
	pid_t parent;
	pthread_t driver;
};

/** run_deadline() - Return: until when a call that is made now may wait. */
int64_t run_deadline(const struct program *prog);

/** record_failure() - Tell that @slot failed: a rank, or the number of ranks for none. */
void record_failure(struct run_shared *sh, uint32_t slot, const struct npuwin_error *err);

/** fail_run() - Tell of a failure that is of no rank. */
void fail_run(struct run *run, int code, const char *what);

/** rank_main() - Run the program as rank @id. Return: 0 or a negative errno, recorded. */
int rank_main(struct run *run, uint32_t id, struct npuwin_domain *domain);

/**
 * join_elsewhere() - Join a domain whose other ranks are not all here.
 * @args: with a bootstrap
 * @ctx: context
 * @attr: how to join
 * @bootstrap: out: freed after leaving
 * @domain: out
 * @err: out
 *
 * Return: 0 or a negative errno.
 */
int join_elsewhere(const struct run_args *args, struct npuwin *ctx,
		   const struct npuwin_domain_attr *attr, struct npuwin_bootstrap **bootstrap,
		   struct npuwin_domain **domain, struct npuwin_error *err);

/** drive_group() - Run the program as all ranks. */
void drive_group(struct run *run, struct npuwin_domain **domains);

#endif /* NPUWIN_RUN_H */
