/* SPDX-License-Identifier: MIT */
/*
 * The conformance list: what every provider, rail, form and mode of libnpuwin owes its
 * users. One program, which sees nothing but npuwin.h.
 *
 *  main.c	command line, matrix, a child process and a watchdog for each case
 *  fixture.c	ranks as threads, processes or a group behind one function; processes share
 *		a domain, or each has its own and meets the others by a bootstrap
 *  data.c	operands, and every byte that they have to hold
 *  the rest	the cases, one concern each
 *
 * A check that fails prints why and ends its process, and with it the case: a case is a
 * process group of its own, so nothing has to be unwound.
 */
#ifndef CONFORMANCE_H
#define CONFORMANCE_H

#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "npuwin.h"

#define ARRAY_SIZE(a)	(sizeof(a) / sizeof((a)[0]))
#define KIB		1024ULL
#define MIB		(1024ULL * KIB)
#define GIB		(1024ULL * MIB)
#define MAX_TEST_RANKS	64

/* Exit codes of kselftest. */
#define EXIT_PASS	0
#define EXIT_FAIL	1
#define EXIT_SKIP	4

enum form {
	FORM_THREADS,
	FORM_PROCESSES,
	FORM_GROUP,
	FORM_BOOTSTRAP,
};

/* What a case varies over; the first eight bits are values of the axes. */
#define A_HOST		0x001U
#define A_DIRECT	0x002U
#define A_THREADS	0x004U
#define A_PROCESSES	0x008U
#define A_GROUP		0x010U
#define A_BOOTSTRAP	0x020U
#define A_BLOCK		0x040U
#define A_ROWS		0x080U
/* If brief, not the whole product: each pair of values of two axes once. */
#define A_PAIRS		0x100U
/* If brief, not the whole product: each value at least once. */
#define A_EACH		0x200U
#define A_RAILS		(A_HOST | A_DIRECT)
/* Each rank has a process, in a domain that all share or over a bootstrap. */
#define A_PROCESS_EACH	(A_PROCESSES | A_BOOTSTRAP)
#define A_FORMS		(A_THREADS | A_GROUP | A_PROCESS_EACH)
#define A_MODES		(A_BLOCK | A_ROWS)
#define A_ALL		(A_RAILS | A_FORMS | A_MODES)

/**
 * struct config - One cell of the matrix, and what the case was given.
 * @provider: name of the provider
 * @rail: enum npuwin_rail
 * @form: who the ranks are
 * @mode: enum npuwin_mode
 * @brief: fewer repetitions, and fewer cells
 * @arg: of the case
 * @data: of the case
 * @variant: index of the variant
 */
struct config {
	const char *provider;
	uint32_t rail;
	enum form form;
	uint32_t mode;
	bool brief;
	uint64_t arg;
	const void *data;
	uint32_t variant;
};

/**
 * struct test_case - An item of the list.
 * @name: what it shows
 * @run: shows it
 * @axes: what it varies over
 * @arg: for @run
 * @data: for @run
 * @variants: NULL, or names of its variants, each an item by itself; ends with NULL
 */
struct test_case {
	const char *name;
	void (*run)(const struct config *cfg);
	unsigned int axes;
	uint64_t arg;
	const void *data;
	const char *const *variants;
};

struct suite {
	const struct test_case *cases;
	size_t count;
};

extern const struct suite suite_golden;
extern const struct suite suite_counts;
extern const struct suite suite_violations;
extern const struct suite suite_shapes;
extern const struct suite suite_disagree;
extern const struct suite suite_stress;
extern const struct suite suite_plans;
extern const struct suite suite_requests;
extern const struct suite suite_primitives;
extern const struct suite suite_put;
extern const struct suite suite_death;
extern const struct suite suite_deadline;
extern const struct suite suite_domains;
extern const struct suite suite_lifecycle;
extern const struct suite suite_limits;
extern const struct suite suite_routing;
extern const struct suite suite_calls;

/*
 * Checks
 */

void fail_at(const char *file, int line, const char *fmt, ...)
	__attribute__((format(printf, 3, 4), noreturn));
void skip_case(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));

#define FAIL(...)	fail_at(__FILE__, __LINE__, __VA_ARGS__)

#define CHECK(cond) do {							\
	if (!(cond))								\
		FAIL("%s", #cond);						\
} while (0)

#define CHECK_EQ(a, b) do {							\
	long long a_ = (long long)(a), b_ = (long long)(b);			\
										\
	if (a_ != b_)								\
		FAIL("%s is %lld, expected %lld (%s)", #a, a_, b_, #b);		\
} while (0)

/* Succeeded; otherwise the sentence is printed. */
#define CHECK_OK(ret, err)	check_ok(__FILE__, __LINE__, #ret, ret, err)

/* Failed with @code, and the sentence holds each of the words. */
#define CHECK_ERR(ret, code, err, ...)						\
	check_err(__FILE__, __LINE__, #ret, ret, code, err,			\
		  (const char *const[]){ __VA_ARGS__, NULL })

void check_ok(const char *file, int line, const char *what, int ret,
	      const struct npuwin_error *err);
void check_err(const char *file, int line, const char *what, int ret, int code,
	       const struct npuwin_error *err, const char *const *words);
/* Whether @text holds @word; a number in @word is not a part of a longer one. */
bool says(const char *text, const char *word);
/* Every byte of @got is as in @want. */
void check_bytes(const char *what, const void *got, const void *want, size_t n);
/* Every byte of @got is @byte. */
void check_filled(const char *what, const void *got, int byte, size_t n);

/* A deadline that only a hang reaches. */
int64_t far(void);
/* @full repetitions, or @brief in a short run. */
uint32_t times(const struct config *cfg, uint32_t full, uint32_t brief);
/* Open descriptors of this process. */
int count_fds(void);
/* Next of a reproducible sequence of random numbers. */
uint64_t rnd(uint64_t *state);
/* Until the task @tid (a process or a thread) sleeps and stays asleep. */
void wait_asleep(pid_t tid);
/* Let others run: up to @most turns, random. */
void dawdle(uint64_t *state, uint32_t most);

/*
 * Ranks
 */

struct shared;

struct rank {
	struct npuwin *ctx;
	struct npuwin_bootstrap *bs;
	struct npuwin_domain *domain;
	uint32_t rank;
	bool own_ctx;
};

/**
 * struct party - What acts by itself: a thread or a process with one rank (or some), or
 * the one thread that drives them all.
 * @cfg: configuration
 * @name: rendezvous name, of this case only
 * @shared: memory that all parties see
 * @nranks: ranks in the domain
 * @window: window size
 * @n: own ranks, consecutive
 * @index: number of the party
 * @nparties: number of parties
 * @ranks: own ranks
 * @arg: of the run
 * @scarce: as in struct run
 * @successor: the party took the place of one that was killed
 */
struct party {
	const struct config *cfg;
	const char *name;
	struct shared *shared;
	uint32_t nranks;
	uint64_t window;
	uint32_t n;
	uint32_t index;
	uint32_t nparties;
	struct rank *ranks;
	const void *arg;
	bool scarce;
	bool successor;
};

/**
 * struct run - How to run ranks.
 * @nranks: ranks in the domain
 * @window: window size, 0 for 1 MiB
 * @per_process: ranks of a process in the form of processes, 0 for 1
 * @bare: the function joins by itself
 * @scarce: skip the case where the devices have no room for the windows
 * @fn: run by each party
 * @arg: handed to it
 * @dies: the party @victim is killed in the course of this; only with processes
 * @victim: party
 * @control: run beside the parties, with the processes' ids; only with processes
 * @successor: run by a successor of the victim, after it was reaped
 */
struct run {
	uint32_t nranks;
	uint64_t window;
	uint32_t per_process;
	bool bare;
	bool scarce;
	void (*fn)(struct party *p);
	const void *arg;
	bool dies;
	uint32_t victim;
	void (*control)(struct shared *shared, const pid_t *pids);
	void (*successor)(struct party *p);
};

void run_ranks(const struct config *cfg, const struct run *run);
/* Whether the parties are processes. */
bool in_processes(const struct config *cfg);

/* Every party comes here before any goes on. */
void party_sync(struct party *p);
/* Flags that all parties see; waits until @flag is at least @value. */
void flag_add(struct shared *shared, uint32_t flag, uint32_t value);
uint32_t flag_get(struct shared *shared, uint32_t flag);
void flag_wait(struct shared *shared, uint32_t flag, uint32_t value);
/* Set once the victim has been reaped. */
#define FLAG_DEAD	0
#define FLAG_USER	1
#define NFLAGS		256

/* Join the own ranks to the domain @name; a group makes its own. */
void party_join(struct party *p, const char *name, uint32_t flags);
void party_leave(struct party *p);
void party_reset(struct party *p);
void party_barrier(struct party *p);
/* Ready to be given to the library: what must not be read or kept is poison. */
struct npuwin_error fresh_error(void);

/*
 * Operands
 */

enum operand {
	INPUT,
	TARGET,
	SIGNAL,
	SEND,
	RECV,
	NOPERANDS,
};

/* By enum operand, then NULL. */
extern const char *const operand_names[NOPERANDS + 1];

/**
 * struct layout - Of the operands.
 * @dtype: enum npuwin_dtype
 * @max_recv: rows in a block
 * @ndim_size: number of extents in SIZE
 * @size: SIZE
 * @column: counts and signal are [NR,1]
 */
struct layout {
	uint32_t dtype;
	uint32_t max_recv;
	uint32_t ndim_size;
	uint64_t size[NPUWIN_MAX_DIMS];
	bool column;
};

/* Bytes around every tensor that nobody may touch. */
#define GUARD		64U
#define GUARD_BYTE	0xc3
#define POISON_BYTE	0xa5
#define POISON_COUNT	0x5a5a5a5a

/**
 * struct set - The five operands of one rank.
 * @op: for the call
 * @buffer: by enum operand
 * @bytes: bytes of each tensor
 * @rank: whose
 * @nranks: ranks
 * @max_recv: rows in a block
 * @row: bytes in a row
 */
struct set {
	struct npuwin_a2av op;
	struct npuwin_buffer *buffer[NOPERANDS];
	uint64_t bytes[NOPERANDS];
	uint32_t rank;
	uint32_t nranks;
	uint32_t max_recv;
	uint64_t row;
};

/* Rows from @src to @dst in call @seed, before they are clamped. */
typedef int32_t (*count_fn)(uint64_t seed, uint32_t src, uint32_t dst, uint32_t nranks,
			    uint32_t max_recv);

int32_t count_random(uint64_t seed, uint32_t src, uint32_t dst, uint32_t nranks,
		     uint32_t max_recv);
int32_t count_zero(uint64_t seed, uint32_t src, uint32_t dst, uint32_t nranks,
		   uint32_t max_recv);
int32_t count_full(uint64_t seed, uint32_t src, uint32_t dst, uint32_t nranks,
		   uint32_t max_recv);
uint32_t clamped(int32_t count, uint32_t max_recv);

struct npuwin_tensor *tensor_of(struct npuwin_a2av *op, enum operand which);
void *set_ptr(const struct set *set, enum operand which);
void set_alloc(const struct party *p, const struct rank *r, const struct layout *layout,
	       struct set *set);
/* The last first, so that who allocates again may get the same handles. */
void set_free(struct set *set);
/* The row that @src sends to @dst as number @row of call @seed. */
void row_fill(uint8_t *to, uint64_t bytes, uint64_t seed, uint32_t src, uint32_t dst,
	      uint32_t row);
/* Inputs of call @seed; outputs and what lies around all of them are poisoned. */
void set_fill(struct set *set, uint64_t seed, count_fn count);
/* All that call @seed had to do to this rank was done, and nothing else. */
void set_verify(const struct set *set, uint64_t seed, count_fn count);
/* As filled: call @seed has not moved anything. */
void set_unmoved(const struct set *set, uint64_t seed, count_fn count);
/* Every credit was taken. Only where every rank is done. */
void set_settled(const struct set *set);

/* The collective on the own ranks, in the party's form. */
int party_call(struct party *p, struct set *sets, int64_t deadline_ns,
	       struct npuwin_a2av_result *results, struct npuwin_error *err);
/* Fill, call, verify, and look at the credits, on all ranks. */
void party_exchange(struct party *p, struct set *sets, uint64_t seed, count_fn count);
/* Operands for the own ranks. */
void party_alloc(struct party *p, const struct layout *layout, struct set *sets);
void party_free(struct party *p, struct set *sets);

#endif /* CONFORMANCE_H */
