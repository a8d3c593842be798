/* SPDX-License-Identifier: MIT */
/*
 * What the parts of npuwin-emu owe each other.
 *
 *  main		options, signals, the end
 *  server	a device's socket: one machine at a time (server.c)
 *  device	states, doorbells, interrupts, events; one thread each (device.c)
 *  memory	what BAR2 looks like (memory.c)
 *  admin	requests (admin.c)
 *  endpoint	ranks, keys, and the fabric between devices (endpoint.c)
 *  queue	descriptors and completions (queue.c)
 *  fault	faults on demand (fault.c)
 *  stats	counters (stats.c)
 *
 * A device's thread alone touches the device. Two things are others' too: its windows and
 * notify registers, which engines of other devices write, and the part of its endpoints
 * that says whether they may. Those look at a device with its @lock held for reading, one
 * at a time, for no longer than a step of work; its own thread changes what they look at
 * with @lock held for writing, and reads it without.
 */
#ifndef NPUWIN_EMU_H
#define NPUWIN_EMU_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "engine.h"
#include "npuwin_hw.h"

#define EMU_MAX_DEVICES	256
#define EMU_MAX_RULES	32
#define EMU_PAGE	4096ULL

#define NSEC_PER_MSEC	1000000ULL
#define NEVER		UINT64_MAX

#define ARRAY_SIZE(a)	(sizeof(a) / sizeof((a)[0]))

struct device;
struct emu;

/* ---- words in shared memory ------------------------------------------------------ */

static inline u32 load_acquire(const u32 *word)
{
	return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static inline void store_release(u32 *word, u32 value)
{
	__atomic_store_n(word, value, __ATOMIC_RELEASE);
}

static inline void store64(__u64 *word, u64 value)
{
	__atomic_store_n(word, value, __ATOMIC_RELAXED);
}

/**
 * copy_in() - Copy what a host can change at any time.
 * @to: private memory
 * @from: in BAR2
 * @size: bytes
 *
 * What is checked afterwards is the copy: the compiler may not look at @from again.
 */
static inline void copy_in(void *to, const void *from, size_t size)
{
	__builtin_memcpy(to, from, size);
	__asm__ volatile("" : : "r"(to) : "memory");
}

/* ---- faults ---------------------------------------------------------------------- */

/**
 * enum fault_kind - What can be made to go wrong.
 * @FAULT_DROP_IRQ: an interrupt is not signalled
 * @FAULT_DELAY_IRQ: it is signalled later
 * @FAULT_REORDER_IRQ: it is signalled after the next one
 * @FAULT_STALL: the engine stops before a descriptor
 * @FAULT_FAIL: a descriptor fails without being executed
 * @FAULT_CORRUPT: a completion is garbage
 * @FAULT_NO_HEARTBEAT: the heartbeat stops for good
 * @FAULT_DEVICE: the device goes to FAULT before a descriptor
 * @FAULT_DIE: the process ends before a descriptor
 * @FAULT_KINDS: how many there are
 */
enum fault_kind {
	FAULT_DROP_IRQ,
	FAULT_DELAY_IRQ,
	FAULT_REORDER_IRQ,
	FAULT_STALL,
	FAULT_FAIL,
	FAULT_CORRUPT,
	FAULT_NO_HEARTBEAT,
	FAULT_DEVICE,
	FAULT_DIE,
	FAULT_KINDS,
};

/**
 * struct fault_rule - When something goes wrong, and how.
 * @kind: what
 * @device: on which device, or -1 for every one
 * @nth: first of the occasions (from 1) that it happens at
 * @every: and at every so many after it
 * @count: how often at most
 * @percent: with that probability
 * @ms: FAULT_DELAY_IRQ, FAULT_STALL, FAULT_NO_HEARTBEAT: how long; zero for ever
 * @status: FAULT_FAIL: NPUWIN_ST_*
 */
struct fault_rule {
	enum fault_kind kind;
	int device;
	u64 nth;
	u64 every;
	u64 count;
	u32 percent;
	u32 ms;
	u32 status;
};

/**
 * struct faults - What has become of the rules on one device.
 * @random: state of its random numbers
 * @seen: occasions, by rule
 * @hits: times that it happened, by rule
 */
struct faults {
	u64 random;
	u64 seen[EMU_MAX_RULES];
	u64 hits[EMU_MAX_RULES];
};

int fault_parse(const char *text, struct fault_rule *rule, const char **why);
const struct fault_rule *fault_hit(struct device *dev, enum fault_kind kind);
u64 fault_random(struct device *dev);
void fault_print_kinds(void);

/* ---- the devices ----------------------------------------------------------------- */

/**
 * struct config - What was asked for on the command line.
 * @devices: number of devices
 * @memory: bytes of BAR2
 * @queues: queues of each device
 * @endpoints: endpoints of each device
 * @vectors: interrupt vectors, and doorbells
 * @depth: entries of a ring at most
 * @heartbeat_ms: period of the heartbeat
 * @seed: of what is random, but for keys
 * @nrules: number of @rules
 * @rules: faults
 */
struct config {
	u32 devices;
	u64 memory;
	u32 queues;
	u32 endpoints;
	u32 vectors;
	u32 depth;
	u32 heartbeat_ms;
	u64 seed;
	u32 nrules;
	struct fault_rule rules[EMU_MAX_RULES];
};

/* Why an endpoint's owner has to look at it: bits of struct endpoint.pending. */
#define PENDING_NOTIFIED	0x1
#define PENDING_GONE		0x2
#define PENDING_ABORT		0x4

/**
 * struct endpoint - A rank of a domain.
 * @state: NPUWIN_HW_EP_*
 * @rank: own rank
 * @nranks: ranks of the domain
 * @offset: of the window
 * @size: of the window
 * @key: that peers must show
 * @gone: by rank, NPUWIN_RANK_LEFT or NPUWIN_RANK_DEAD once it has been told; atomic
 * @pending: PENDING_*; atomic
 * @told_abort: rank << 32 | error of an abort that it has been told, or zero; atomic
 * @parked: queues that are blocked in a TWAIT; atomic
 * @answered: value of the host's arm word that has had its event; atomic
 * @seen: what the owner has made of @gone
 * @peers: where the other ranks are
 * @generation: resets
 * @abort_rank: who aborted or died
 * @abort_error: errno
 * @queues: queues that work for it
 *
 * Up to @answered it is looked at by other devices, see above; the rest is its owner's.
 */
struct endpoint {
	u32 state;
	u32 rank;
	u32 nranks;
	u64 offset;
	u64 size;
	u64 key;
	u8 *gone;
	u32 pending;
	u64 told_abort;
	u32 parked;
	u32 answered;

	u8 *seen;
	struct npuwin_hw_peer *peers;
	u32 generation;
	u32 abort_rank;
	u32 abort_error;
	u32 queues;
};

/**
 * struct queue - A submission ring and a completion ring.
 * @dev: whose
 * @state: NPUWIN_HW_Q_*
 * @fault: NPUWIN_HW_Q_FAULT_*
 * @args: as it was created
 * @engine: for the engine
 * @sq_head: descriptors that are through
 * @cq_tail: completions posted
 * @seq: number of the descriptor at @sq_head
 * @look: there may be something to do
 * @active: @desc is being executed
 * @blocked: it is a TWAIT that was blocked
 * @skip: its batch has ended early
 * @unsignalled: completions were posted that no interrupt was signalled for
 * @ring: ring byte of @desc
 * @deadline: of the TWAIT, in the device's time
 * @desc: copy of the descriptor at @sq_head
 * @cursor: how far it is
 * @cqe: its completion
 */
struct queue {
	struct device *dev;
	u32 state;
	u32 fault;
	struct npuwin_hw_queue_create args;
	struct npuwin_engine engine;
	u32 sq_head;
	u32 cq_tail;
	u64 seq;
	bool look;
	bool active;
	bool blocked;
	bool skip;
	bool unsignalled;
	u8 ring;
	u64 deadline;
	struct npuwin_desc desc;
	struct npuwin_cursor cursor;
	struct npuwin_cqe cqe;
};

/**
 * struct counters - What a device has done. Written by its thread, read by anybody.
 * @hosts: machines that have connected
 * @doorbells: doorbells received
 * @interrupts: interrupts signalled
 * @requests: requests answered
 * @descriptors: descriptors that are through
 * @bytes: bytes written by TPUTs
 * @errors: descriptors that failed
 * @steps: steps that have brought a descriptor on, or to its end
 * @completions: completions posted
 * @events: events posted
 */
struct counters {
	u64 hosts;
	u64 doorbells;
	u64 interrupts;
	u64 requests;
	u64 descriptors;
	u64 bytes;
	u64 errors;
	u64 steps;
	u64 completions;
	u64 events;
};

static inline void count(u64 *counter, u64 n)
{
	__atomic_fetch_add(counter, n, __ATOMIC_RELAXED);
}

/**
 * struct device - One function.
 * @emu: all of it
 * @index: its number
 * @ident: its identification, as the host should see it
 * @lock: see the top of this file
 * @base: BAR2, or NULL while there is no host
 * @endpoints: config.endpoints of them
 * @queues: config.queues of them
 * @state: NPUWIN_HW_RESET and its like
 * @fault: NPUWIN_HW_FAULT_*
 * @reset_ack: last reset
 * @admin_done: requests answered
 * @event_tail: events posted
 * @event_lost: events lost
 * @heartbeat: the heartbeat
 * @beat_at: when it grows next, in the device's time
 * @silent_until: when it grows again, in the device's time
 * @clock_base: device clock minus CLOCK_MONOTONIC
 * @clock_offset: device clock minus the host's clock, as the host has said
 * @due: vectors to be signalled, one bit each
 * @held: vectors that FAULT_REORDER_IRQ holds back
 * @signal_at: when vectors that are held back or late are signalled; NEVER for the others
 * @stalled_until: when the engine goes on
 * @turn: the queue that has its turn next
 * @cost: what queues have done in this pass, about: bytes as npuwin_engine_step() counts
 * @reading: the device whose @lock this device's engine holds for reading
 * @faults: faults
 * @counters: counters
 * @thread: its thread
 * @path: its socket's
 * @listen_fd: the socket
 * @listen_at: when it is looked at again, in the device's time; NEVER while it is anyway
 * @client_fd: its machine, or -1
 * @epoll_fd: all that the thread waits for
 * @kick_fd: eventfd by which other threads wake it
 * @memory_fd: BAR2
 * @doorbell_fd: eventfds, or -1
 * @vector_fd: eventfds, or -1
 * @attention: others want something of it: look at all endpoints; atomic
 */
struct device {
	struct emu *emu;
	u32 index;
	struct npuwin_hw_ident ident;
	pthread_rwlock_t lock;
	u8 *base;
	struct endpoint *endpoints;
	struct queue *queues;
	u32 state;
	u32 fault;
	u32 reset_ack;
	u32 admin_done;
	u32 event_tail;
	u32 event_lost;
	u64 heartbeat;
	u64 beat_at;
	u64 silent_until;
	u64 clock_base;
	u64 clock_offset;
	u64 due;
	u64 held;
	u64 signal_at[NPUWIN_HW_MAX_VECTORS];
	u64 stalled_until;
	u32 turn;
	u64 cost;
	struct device *reading;
	struct faults faults;
	struct counters counters;

	pthread_t thread;
	char *path;
	int listen_fd;
	u64 listen_at;
	int client_fd;
	int epoll_fd;
	int kick_fd;
	int memory_fd;
	int doorbell_fd[NPUWIN_HW_MAX_VECTORS];
	int vector_fd[NPUWIN_HW_MAX_VECTORS];
	u32 attention;
};

/**
 * struct emu - All devices of a fabric.
 * @config: as asked for
 * @fabric: upper bits of the fabric ids of this run
 * @devices: config.devices of them
 * @log: say on stderr what happens
 * @stop: the threads are to end; atomic
 * @hosts: machines that are connected; atomic
 * @change_fd: eventfd that tells main() of each machine that comes or goes
 */
struct emu {
	struct config config;
	u64 fabric;
	struct device *devices;
	bool log;
	u32 stop;
	u32 hosts;
	int change_fd;
};

__attribute__((format(printf, 2, 3)))
void emu_log(const struct device *dev, const char *format, ...);

/* ---- memory.c -------------------------------------------------------------------- */

int memory_layout(const struct config *config, struct npuwin_hw_ident *ident);
u64 memory_least(const struct config *config);
int memory_create(struct device *dev);
void memory_publish(struct device *dev);
void memory_destroy(struct device *dev);
bool memory_within(const struct npuwin_hw_region *region, u64 offset, u64 size);

static inline struct npuwin_hw_status *device_status(struct device *dev)
{
	return (struct npuwin_hw_status *)(dev->base + NPUWIN_HW_STATUS);
}

static inline struct npuwin_hw_control *device_control(struct device *dev)
{
	return (struct npuwin_hw_control *)(dev->base + NPUWIN_HW_CONTROL);
}

static inline struct npuwin_hw_endpoint_state *endpoint_words(struct device *dev, u32 id)
{
	return (struct npuwin_hw_endpoint_state *)
		(dev->base + dev->ident.endpoint_states.offset) + id;
}

static inline const u32 *endpoint_arm(struct device *dev, u32 id)
{
	return &((struct npuwin_hw_endpoint_arm *)
		 (dev->base + dev->ident.endpoint_arms.offset))[id].arm;
}

static inline struct npuwin_hw_queue_state *queue_words(struct device *dev, u32 id)
{
	return (struct npuwin_hw_queue_state *)(dev->base + dev->ident.queue_states.offset) + id;
}

static inline struct npuwin_hw_queue_post *queue_posts(struct device *dev, u32 id)
{
	return (struct npuwin_hw_queue_post *)(dev->base + dev->ident.queue_posts.offset) + id;
}

static inline u8 *endpoint_regs(struct device *dev, u32 id)
{
	return dev->base + dev->ident.notify.offset + (u64)id * 4 * NPUWIN_NOTIFY_REGS;
}

/* ---- device.c -------------------------------------------------------------------- */

int device_create(struct device *dev, struct emu *emu, u32 index);
void device_destroy(struct device *dev);
int device_connect(struct device *dev);
void device_disconnect(struct device *dev);
void device_doorbell(struct device *dev, u32 number);
bool device_pass(struct device *dev);
u64 device_next(struct device *dev);
u64 device_clock(const struct device *dev);
void device_wake(struct device *dev);
void device_kick(struct device *dev);
void device_signal(struct device *dev, u32 vector);
void device_event(struct device *dev, u32 type, u32 id, u32 rank, u32 value);
void device_fail(struct device *dev, u32 fault);

/* ---- server.c -------------------------------------------------------------------- */

int server_start(struct device *dev, const char *dir);
void server_stop(struct device *dev);
void *server_run(void *arg);

/* ---- admin.c --------------------------------------------------------------------- */

void admin_run(struct device *dev);

/* ---- endpoint.c ------------------------------------------------------------------ */

extern const struct npuwin_engine_ops endpoint_engine_ops;

struct endpoint *endpoint_find(struct device *dev, u32 id);
u32 endpoint_bind(struct device *dev, u32 id, const struct npuwin_hw_bind *args, __u64 *key);
u32 endpoint_unbind(struct device *dev, struct endpoint *ep, u8 how);
u32 endpoint_peers(struct device *dev, struct endpoint *ep, const struct npuwin_hw_table *args);
u32 endpoint_peer_states(struct device *dev, struct endpoint *ep,
			 const struct npuwin_hw_table *args);
u32 endpoint_abort(struct device *dev, struct endpoint *ep, const struct npuwin_hw_abort *args,
		   bool tell);
u32 endpoint_reset(struct device *dev, struct endpoint *ep, __u64 *key);
void endpoint_attend(struct device *dev, struct endpoint *ep);
u32 endpoint_verdict(const struct endpoint *ep, u32 writer, u32 *rank);
void endpoint_release(struct device *dev);
void endpoint_let_go(struct device *dev);

/* An endpoint's number on its device. */
static inline u32 endpoint_id(const struct device *dev, const struct endpoint *ep)
{
	return (u32)(ep - dev->endpoints);
}

/* ---- queue.c --------------------------------------------------------------------- */

u32 queue_create(struct device *dev, u32 id, const struct npuwin_hw_queue_create *args);
struct queue *queue_find(struct device *dev, u32 id);
void queue_destroy(struct device *dev, struct queue *queue);
void queue_reset(struct device *dev, struct queue *queue);
void queue_look(struct device *dev, u32 endpoint);
bool queue_run(struct device *dev, struct queue *queue);

/* ---- stats.c --------------------------------------------------------------------- */

void stats_print(const struct emu *emu, bool json);

#endif /* NPUWIN_EMU_H */
