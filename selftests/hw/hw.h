/* SPDX-License-Identifier: MIT */
/*
 * A host process that plays the machine: it connects to npuwin-emu as QEMU would, maps the
 * memory, writes rings and rings eventfds. The tests are the rules of
 * Documentation/hardware.rst.
 */
#ifndef NPUWIN_SELFTESTS_HW_H
#define NPUWIN_SELFTESTS_HW_H

#include <setjmp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "npuwin_hw.h"

#define ARRAY_SIZE(a)	(sizeof(a) / sizeof((a)[0]))
#define MAX_GUESTS	4
#define NEVER		NPUWIN_NO_DEADLINE
#define NSEC_PER_MSEC	1000000LL

/* ---- tests ----------------------------------------------------------------------- */

/**
 * struct test - What shows a rule.
 * @name: its name
 * @rule: the rule, in short
 * @run: comes back if the rule holds
 */
struct test {
	const char *name;
	const char *rule;
	void (*run)(void);
};

/**
 * struct group - Tests of a file, in the order of their rules.
 * @tests: the tests
 * @count: how many
 */
struct group {
	const struct test *tests;
	size_t count;
};

extern const struct group group_transport, group_states, group_admin, group_queues,
	group_batches, group_descs, group_waits, group_peers, group_domains, group_events,
	group_hostile, group_faults, group_turns, group_corners, group_limits, group_order,
	group_progress, group_names;

__attribute__((noreturn, format(printf, 3, 4)))
void fail(const char *file, int line, const char *format, ...);

#define CHECK(condition) do { \
	if (!(condition)) \
		fail(__FILE__, __LINE__, "%s", #condition); \
} while (0)

#define CHECK_EQ(a, b) do { \
	unsigned long long a_ = (a), b_ = (b); \
	if (a_ != b_) \
		fail(__FILE__, __LINE__, "%s is %#llx, not %s, %#llx", #a, a_, #b, b_); \
} while (0)

/* Looks until the condition holds; fails after a time that no working machine takes. */
#define UNTIL(condition) do { \
	struct patience patience_ = patience_begin(); \
	while (!(condition)) { \
		if (!patience_wait(&patience_)) \
			fail(__FILE__, __LINE__, "never: %s", #condition); \
	} \
} while (0)

/**
 * struct patience - A bounded wait.
 * @end: when it is over, CLOCK_MONOTONIC ns
 */
struct patience {
	int64_t end;
};

struct patience patience_begin(void);
bool patience_wait(struct patience *patience);
int64_t now_ns(void);

/* Number of repetitions of a test that looks at chance: fewer under NPUWIN_TEST_SHORT. */
unsigned int repeat(unsigned int full);

/* Splitmix64. */
uint64_t next_random(uint64_t *state);

/* ---- the emulator and its guests ------------------------------------------------- */

/**
 * struct guest - A machine that is connected to a device.
 * @sock: connection
 * @memory_fd: BAR2
 * @base: BAR2
 * @size: of BAR2
 * @ident: copy of the identification
 * @version: of the protocol, as the server said
 * @own_id: own peer id, as the server said
 * @device_id: peer id of the other
 * @ndoorbells: doorbells received
 * @nvectors: vectors received
 * @doorbell: eventfds
 * @vector: eventfds
 * @irqs: interrupts taken, by vector
 * @admin_tail: requests posted
 * @event_head: events taken
 * @resets: number of the last reset
 * @rings_used: bytes of ring memory given to queues and tables
 */
struct guest {
	int sock;
	int memory_fd;
	uint8_t *base;
	size_t size;
	struct npuwin_hw_ident ident;
	int64_t version;
	int64_t own_id;
	int64_t device_id;
	uint32_t ndoorbells;
	uint32_t nvectors;
	int doorbell[NPUWIN_HW_MAX_VECTORS];
	int vector[NPUWIN_HW_MAX_VECTORS];
	uint64_t irqs[NPUWIN_HW_MAX_VECTORS];
	uint32_t admin_tail;
	uint32_t event_head;
	uint32_t resets;
	uint64_t rings_used;
};

/**
 * struct queue - A queue of a guest.
 * @g: whose
 * @id: its number
 * @args: as it was created
 * @tail: descriptors written
 * @cq_head: completions taken
 */
struct queue {
	struct guest *g;
	uint32_t id;
	struct npuwin_hw_queue_create args;
	uint32_t tail;
	uint32_t cq_head;
};

/* What a test has; all of it goes when the test ends, however it ends. */
extern struct guest guests[MAX_GUESTS];
/* Queue 0 of each guest, where there is one. */
extern struct queue queues[MAX_GUESTS];
/* Keys of endpoint 0 of each guest. */
extern uint64_t keys[MAX_GUESTS];

void emu_start(const char *const *options);
int emu_stop(void);
int emu_wait(void);
bool emu_alive(void);
pid_t emu_pid(void);
/* Processor time that it has taken. */
int64_t emu_cpu_ns(void);
const char *emu_output(void);
const char *emu_dir(void);
void world_end(void);

/* A connection that may have to wait for its greeting, and what comes of it. */
int guest_knock(uint32_t device);
bool guest_greet(struct guest *g, int sock);
bool guest_try_connect(struct guest *g, uint32_t device);
void guest_connect(struct guest *g, uint32_t device);
void guest_close(struct guest *g);
void guest_reset(struct guest *g);
void guest_enable(struct guest *g);
void guest_ready(struct guest *g);
void ring(struct guest *g, uint32_t number);
uint64_t irqs(struct guest *g, uint32_t vector);
uint64_t rings_alloc(struct guest *g, uint64_t size);

static inline struct npuwin_hw_status *status_of(struct guest *g)
{
	return (struct npuwin_hw_status *)(g->base + NPUWIN_HW_STATUS);
}

static inline struct npuwin_hw_control *control_of(struct guest *g)
{
	return (struct npuwin_hw_control *)(g->base + NPUWIN_HW_CONTROL);
}

#define READ(word)		__atomic_load_n(&(word), __ATOMIC_ACQUIRE)
#define WRITE(word, value)	__atomic_store_n(&(word), (value), __ATOMIC_RELEASE)

struct npuwin_hw_endpoint_state *ep_state(struct guest *g, uint32_t id);
uint32_t *ep_arm(struct guest *g, uint32_t id);
struct npuwin_hw_queue_state *q_state(struct guest *g, uint32_t id);
struct npuwin_hw_queue_post *q_post(struct guest *g, uint32_t id);
int32_t *reg_of(struct guest *g, uint32_t endpoint, uint32_t number);

/* Endpoint @e of a guest made by two_ranks() or bind_ranks() has this window. */
#define WINDOW_SIZE	65536
uint64_t window_offset(struct guest *g, uint32_t endpoint);
uint8_t *window_of(struct guest *g, uint32_t endpoint);
int32_t *cell_of(struct guest *g, uint32_t offset);

/* ---- commands -------------------------------------------------------------------- */

uint32_t admin(struct guest *g, const struct npuwin_hw_request *request,
	       struct npuwin_hw_response *response);
uint32_t do_bind(struct guest *g, uint32_t endpoint, uint32_t rank, uint32_t nranks,
		 uint64_t *key);
uint32_t do_unbind(struct guest *g, uint32_t endpoint, bool dead);
uint32_t do_peers(struct guest *g, uint32_t endpoint, uint32_t first,
		  const struct npuwin_hw_peer *peers, uint32_t n);
uint32_t do_abort(struct guest *g, uint32_t endpoint, uint32_t rank, uint32_t error,
		  bool tell);
uint32_t do_endpoint_reset(struct guest *g, uint32_t endpoint, uint64_t *key);
uint32_t do_queue_create(struct queue *q, struct guest *g, uint32_t id, uint32_t depth);
uint32_t do_queue_simple(struct guest *g, uint16_t opcode, uint32_t id);
void do_queue_reset(struct queue *q);
/* What endpoint 0 knows of a rank: NPUWIN_RANK_*. */
uint8_t peer_state(struct guest *g, uint32_t rank);
struct npuwin_hw_peer peer_of(struct guest *g, uint32_t endpoint, uint64_t key);
bool next_event(struct guest *g, struct npuwin_hw_event *event);
void expect_event(struct guest *g, uint32_t type, uint32_t id, uint32_t rank, uint32_t value);

/* @n devices, a guest each, endpoint 0 of guest i is rank i of n, and queue 0. */
void ranks_start(uint32_t n, const char *const *options);
void ranks_bind(uint32_t n);
/* ranks_start(2, NULL) */
void two_ranks(void);

/* ---- descriptors ----------------------------------------------------------------- */

struct npuwin_desc d_nop(void);
struct npuwin_desc d_put(uint32_t rank, uint64_t src, uint64_t dst, uint64_t bytes);
struct npuwin_desc d_notify(uint32_t rank, uint64_t dst, uint8_t sub, int32_t value);
struct npuwin_desc d_wait(uint64_t src, uint8_t cmp, int32_t value, int64_t deadline);
/* Waits for a 1 of each rank, with F_CQE. */
struct npuwin_desc d_wait_by_rank(uint32_t nranks);

void put_slot(struct queue *q, const struct npuwin_desc *desc, uint8_t ring_byte);
void publish(struct queue *q);
void post(struct queue *q, const struct npuwin_desc *descs, uint32_t n);
void post_one(struct queue *q, struct npuwin_desc desc);
void next_cqe(struct queue *q, struct npuwin_cqe *cqe);
void expect_cqe(struct queue *q, uint64_t user_data, uint32_t status);
bool cq_empty(struct queue *q);
void until_through(struct queue *q);
/* Posts one descriptor with F_CQE alone in a batch and gives its status. */
uint32_t run_one(struct queue *q, struct npuwin_desc desc, struct npuwin_cqe *cqe);
/* Whatever is posted has been looked at: a request has gone around. */
void settle(struct guest *g);
/* The device has looked around @n times, in whatever state it is. */
void until_beats(struct guest *g, uint64_t n);

#endif /* NPUWIN_SELFTESTS_HW_H */
