/* SPDX-License-Identifier: MIT */
/*
 * Running a program of collective calls on N ranks, or on those of them that are here: as
 * threads or processes of this host, or driven by one thread.
 */
#ifndef NPUWIN_RANKS_H
#define NPUWIN_RANKS_H

#include <stdbool.h>
#include <stdint.h>

#include "cli.h"
#include "npuwin.h"
#include "npuwin_desc.h"

#define RANKS_MAX_CALLS		2
#define RANKS_MAX_ITERATIONS	10000000

enum run_form {
	FORM_THREADS,
	FORM_PROCESSES,
	FORM_GROUP,
};

/**
 * struct run_args - The options that every command with ranks has.
 * @ranks: their number, 0 until it is known
 * @iterations: of the program
 * @timeout: seconds that a call may wait for other ranks
 * @provider: as for npuwin_open()
 * @bootstrap: address at which the ranks meet, where not all are here; or NULL
 * @secret_file: holds the secret of that; or NULL
 * @local: the ranks that are here, as text; or NULL
 * @first: the first of them
 * @count: how many are here
 * @secret: what is in @secret_file; one more byte than there may be
 * @secret_bytes: bytes of that
 * @rail: enum npuwin_rail
 * @mode: enum npuwin_mode
 * @form: enum run_form, -1 until it is known
 * @json: print JSON
 * @quiet: print neither progress nor a summary
 */
struct run_args {
	uint64_t ranks;
	uint64_t iterations;
	double timeout;
	const char *provider;
	const char *bootstrap;
	const char *secret_file;
	const char *local;
	uint32_t first;
	uint32_t count;
	uint8_t secret[4097];
	size_t secret_bytes;
	int rail;
	int mode;
	int form;
	bool json;
	bool quiet;
};

/* Names, by @rail, @mode and @form of struct run_args. */
extern const char *const run_rails[];
extern const char *const run_modes[];
extern const char *const run_forms[];

/* What run_opts, a table of options, sets. */
extern struct run_args run_args;
extern const struct opt run_opts[];

/**
 * run_args_place() - Work out which ranks are here.
 * @args: in/out: @ranks, @form and @rail are known
 *
 * Return: 0, or CLI_USAGE or CLI_FILE after a complaint.
 */
int run_args_place(struct run_args *args);

struct counts;
/** rows_here() - Return: rows that the ranks here send. */
uint64_t rows_here(const struct run_args *args, const struct counts *c);

/** place_print() - For people: which ranks are here, where not all are. */
void place_print(const struct run_args *args, const struct counts *c);

/** is_local() - Whether @rank runs here. */
static inline bool is_local(const struct run_args *args, uint32_t rank)
{
	return rank >= args->first && rank - args->first < args->count;
}

struct rank;

/**
 * struct program - What every rank does: set up, then in each iteration fill, call, check.
 * @args: how it runs
 * @ncalls: calls of all_to_all_v in an iteration, in the order of struct rank.op
 * @window_size: bytes of window that @setup allocates from
 * @setup: allocate, fill in struct rank.op; returns 0 or a negative errno with struct
 *	rank.err filled
 * @fill: local; before the calls of an iteration
 * @check: local; after them; says what is wrong by rank_mismatch()
 * @interrupted: remove files; the process is about to die of a signal
 * @job: the program's own
 */
struct program {
	const struct run_args *args;
	uint32_t ncalls;
	uint64_t window_size;
	int (*setup)(struct rank *rk);
	void (*fill)(struct rank *rk, uint64_t iteration);
	void (*check)(struct rank *rk, uint64_t iteration);
	void (*interrupted)(void *job);
	void *job;
};

/** struct rank - One rank of a program that runs. */
struct rank {
	const struct program *prog;
	struct run_shared *shared;
	uint32_t id;
	struct npuwin_domain *domain;
	struct npuwin_a2av op[RANKS_MAX_CALLS];
	struct npuwin_a2av_result result[RANKS_MAX_CALLS];
	struct npuwin_clamp *clamps;
	uint8_t *scratch;
	struct npuwin_error err;
};

/**
 * struct run_report - How a program ran.
 * @provider: name
 * @reason: why that one
 * @mismatch: first thing that a check found wrong, or empty
 * @seconds: of an iteration, the mean: from the first rank's start to the last one's end
 * @best: of the fastest iteration
 * @call_seconds: the same mean of each call
 * @bytes: bytes of rows that the ranks here wrote in an iteration, by call
 */
struct run_report {
	char provider[16];
	char reason[256];
	char mismatch[320];
	double seconds;
	double best;
	double call_seconds[RANKS_MAX_CALLS];
	uint64_t bytes[RANKS_MAX_CALLS];
};

/** ranks_block_signals() - From here on only ranks_run() and ranks_interrupted() look. */
void ranks_block_signals(void);

/** ranks_interrupted() - Where a signal asks to end: call @prog->interrupted and die of it. */
void ranks_interrupted(const struct program *prog);

/**
 * ranks_run() - Run a program on all its ranks.
 * @prog: what each does
 * @report: out: how it went
 *
 * Return: 0 (see @report->mismatch), or CLI_FAILED after a complaint.
 */
int ranks_run(const struct program *prog, struct run_report *report);

/** rank_mismatch() - In a check: what arrived is wrong. Only a rank's first is kept. */
void rank_mismatch(struct rank *rk, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif /* NPUWIN_RANKS_H */
