/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the parts of the PCI backend know of each other.
 *
 * Lock order, inside that of npuwin.h:
 *
 *	npuwin_pci.reset_lock		outside of all in npuwin.h
 *	npuwin_pci.admin_lock		inside all mutexes of npuwin.h
 *	npuwin_pci.event_lock, npuwin_pci_vector.lock	no other mutex inside
 *	npuwin_pci.endpoint_lock	outside npuwin_member.wq.lock
 *	npuwin_pci.fail_lock		inside all
 */
#ifndef NPUWIN_PCI_H
#define NPUWIN_PCI_H

#include <linux/genalloc.h>
#include <linux/idr.h>
#include <linux/io.h>
#include <linux/pci.h>

#include "npuwin.h"
#include "npuwin_hw.h"
#include "pci_check.h"

/* How often the device is looked after. */
#define NPUWIN_PCI_WATCH_MS	500

struct npuwin_pci;

/**
 * struct npuwin_pci_vector - An interrupt vector.
 * @npci: whose
 * @number: which
 * @lock: protects @queues; while it is held they are not destroyed
 * @queues: struct npuwin_pci_queue whose completions it signals
 */
struct npuwin_pci_vector {
	struct npuwin_pci *npci;
	unsigned int number;
	struct mutex lock;	/* @queues */
	struct list_head queues;
};

/**
 * struct npuwin_pci_endpoint - An endpoint of the device. All written under endpoint_lock.
 * @member: the rank that it is, or NULL
 * @arm: what was last written to its arm word
 * @armed: the event for that is still to come
 * @ask: the device is to be asked what has become of peers or of the domain
 * @wake: many who sleep there are to look again
 */
struct npuwin_pci_endpoint {
	struct npuwin_member *member;
	u32 arm;
	bool armed;
	bool ask;
	bool wake;
};

/**
 * struct npuwin_pci_queue - The device's half of a queue.
 * @queue: the queue
 * @link: in its vector's queues, under that one's lock
 * @vector: signals its completions
 * @doorbell: rung for it
 * @id: its number
 * @life: of the device in which it was made
 * @sq: submission ring
 * @cq: completion ring
 * @sq_tail: descriptors published; under the queue's lock, as all that follow
 * @sq_head: of these, how many the device says are through
 * @cq_head: completions taken
 * @last_wait: descriptors up to the last TWAIT
 * @waiting: its rank has been told of a TWAIT, by npuwin_sleepers_inc()
 * @untold: what npuwin_pci_queue_turn() is still to tell of
 * @telling: somebody does
 * @seen: the queue's tail when it was last looked after
 * @times: how often since then
 */
struct npuwin_pci_queue {
	struct npuwin_queue *queue;
	struct list_head link;
	struct npuwin_pci_vector *vector;
	u32 doorbell;
	u32 id;
	u32 life;
	struct npuwin_desc *sq;
	struct npuwin_cqe *cq;
	u64 sq_tail;
	u64 sq_head;
	u32 cq_head;
	u64 last_wait;
	bool waiting;
	struct npuwin_retired untold;
	bool telling;
	u64 seen;
	u32 times;
};

/**
 * struct npuwin_pci - A function.
 * @ndev: the device that it is
 * @pdev: the function; valid until it is removed
 * @ident: checked copy of the identification
 * @firmware: from there, as text
 * @regs: BAR0
 * @memory: BAR2; mapped until the function is removed
 * @pfn: first page frame of BAR2
 * @windows: allocator of window memory, by kernel address
 * @rings: allocator of ring memory, by kernel address
 * @endpoint_ids: numbers of endpoints
 * @queue_ids: numbers of queues
 * @nvectors: vectors in use
 * @ndoorbells: doorbells in use
 * @fail_lock: protects @starting and @removed, and @failed on its way up
 * @failed: takes no commands and executes nothing that the driver knows of
 * @starting: is being started: what fails now has had its reset
 * @removed: is not to be started any more
 * @life: how often it has been started
 * @admin_lock: serializes commands; protects @scratch
 * @admin_wq: who waits for the device to answer or to change its state
 * @admin_tail: requests posted
 * @scratch: ring memory for tables
 * @clock_due: when the clocks are to be compared again, ktime
 * @clock_offset: the device's clock minus ktime, as it has been told
 * @endpoint_lock: see struct npuwin_pci_endpoint
 * @endpoints: by number
 * @event_lock: serializes taking events
 * @event_head: events taken
 * @event_lost: losses that have been dealt with
 * @slow_until: jiffies until which workers tell who waits for completions
 * @peers_work: asks the device what has become of peers
 * @wakes_work: wakes where many sleep
 * @states: what it says; the work's
 * @reset_lock: serializes starting and stopping
 * @reset_work: deals with a failure
 * @watch: looks after the device
 * @heartbeat: last seen by @watch
 * @steps: likewise
 * @missed: how often since then
 * @vectors: as many as @nvectors
 */
struct npuwin_pci {
	struct npuwin_device *ndev;
	struct pci_dev *pdev;
	struct npuwin_hw_ident ident;
	char firmware[33];
	void __iomem *regs;
	void *memory;
	unsigned long pfn;
	struct gen_pool *windows;
	struct gen_pool *rings;
	struct ida endpoint_ids;
	struct ida queue_ids;
	unsigned int nvectors;
	unsigned int ndoorbells;
	spinlock_t fail_lock;	/* @failed, @starting, @removed */
	bool failed;
	bool starting;
	bool removed;
	u32 life;
	struct mutex admin_lock;	/* commands */
	wait_queue_head_t admin_wq;
	u32 admin_tail;
	void *scratch;
	s64 clock_due;
	u64 clock_offset;
	spinlock_t endpoint_lock;	/* @endpoints */
	struct npuwin_pci_endpoint *endpoints;
	struct mutex event_lock;	/* events */
	u32 event_head;
	u32 event_lost;
	unsigned long slow_until;
	struct work_struct peers_work;
	struct work_struct wakes_work;
	u8 states[NPUWIN_MAX_RANKS];
	struct mutex reset_lock;	/* start, stop */
	struct work_struct reset_work;
	struct delayed_work watch;
	u64 heartbeat;
	u64 steps;
	u32 missed;
	struct npuwin_pci_vector vectors[NPUWIN_HW_MAX_VECTORS];
};

static inline struct npuwin_pci *npuwin_pci_of(const struct npuwin_device *ndev)
{
	return ndev->priv;
}

static inline const struct npuwin_hw_status *npuwin_pci_status(const struct npuwin_pci *npci)
{
	return npci->memory + NPUWIN_HW_STATUS;
}

static inline struct npuwin_hw_control *npuwin_pci_control(const struct npuwin_pci *npci)
{
	return npci->memory + NPUWIN_HW_CONTROL;
}

static inline struct npuwin_hw_queue_post *npuwin_pci_post(const struct npuwin_pci *npci, u32 id)
{
	return (struct npuwin_hw_queue_post *)(npci->memory + npci->ident.queue_posts.offset) + id;
}

static inline const struct npuwin_hw_queue_state *
npuwin_pci_state(const struct npuwin_pci *npci, u32 id)
{
	return (const struct npuwin_hw_queue_state *)(npci->memory +
						      npci->ident.queue_states.offset) + id;
}

/**
 * npuwin_pci_failed() - Whether the device is not to be asked anything.
 * @npci: the device
 *
 * Return: whether it is not.
 */
static inline bool npuwin_pci_failed(const struct npuwin_pci *npci)
{
	return READ_ONCE(npci->failed);
}

/**
 * npuwin_pci_acquire() - Read a word of the device.
 * @word: the word
 *
 * Return: it; what the device wrote before it is visible.
 */
static inline u32 npuwin_pci_acquire(const u32 *word)
{
	u32 value = READ_ONCE(*word);

	dma_rmb();
	return value;
}

/**
 * npuwin_pci_publish() - Write a word for the device.
 * @word: the word
 * @value: for it; what was written or read before is visible, and has been read, by then
 */
static inline void npuwin_pci_publish(u32 *word, u32 value)
{
	dma_mb();
	WRITE_ONCE(*word, value);
}

/**
 * npuwin_pci_ring() - Ring a doorbell. What was written before is seen by who hears it.
 * @npci: the device
 * @doorbell: which
 */
static inline void npuwin_pci_ring(struct npuwin_pci *npci, u32 doorbell)
{
	writel(NPUWIN_HW_DOORBELL(npci->ident.peer, doorbell),
	       npci->regs + NPUWIN_HW_REG_DOORBELL);
}

/* pci.c */
void npuwin_pci_fail(struct npuwin_pci *npci, const char *why);

/* pci_admin.c */
u32 npuwin_pci_patience(const struct npuwin_pci *npci);
bool npuwin_pci_present(struct npuwin_pci *npci);
int npuwin_pci_start(struct npuwin_pci *npci);
void npuwin_pci_stop(struct npuwin_pci *npci);
int npuwin_pci_admin(struct npuwin_pci *npci, struct npuwin_hw_request *request,
		     struct npuwin_hw_response *response);
int npuwin_pci_admin_locked(struct npuwin_pci *npci, struct npuwin_hw_request *request,
			    struct npuwin_hw_response *response);
int npuwin_pci_sync_clock(struct npuwin_pci *npci);
bool npuwin_pci_clock_is_due(const struct npuwin_pci *npci);

/* pci_irq.c */
int npuwin_pci_irq_init(struct npuwin_pci *npci);
void npuwin_pci_irq_exit(struct npuwin_pci *npci);
void npuwin_pci_look(struct npuwin_pci *npci);
bool npuwin_pci_stuck(struct npuwin_pci *npci);

/* pci_memory.c */
int npuwin_pci_memory_init(struct npuwin_pci *npci);
void npuwin_pci_memory_exit(struct npuwin_pci *npci);
int npuwin_pci_mem_alloc(struct npuwin_device *ndev, struct npuwin_mem *mem);
void npuwin_pci_mem_free(struct npuwin_mem *mem);

/* pci_queue.c */
int npuwin_pci_queue_init(struct npuwin_queue *queue);
void npuwin_pci_queue_exit(struct npuwin_queue *queue);
int npuwin_pci_queue_room(struct npuwin_queue *queue, u32 count);
void npuwin_pci_queue_kick(struct npuwin_queue *queue, u32 flags);
void npuwin_pci_queue_quiesce(struct npuwin_queue *queue);
void npuwin_pci_queue_turn(struct npuwin_queue *queue);
int npuwin_pci_queue_wait(struct npuwin_queue *queue, const struct npuwin_until *until,
			  s64 deadline);
void npuwin_pci_harvest(struct npuwin_queue *queue);
void npuwin_pci_harvest_all(struct npuwin_pci_vector *vector);
bool npuwin_pci_queue_stuck(struct npuwin_queue *queue, bool works);

/* pci_rank.c */
struct npuwin_pci *npuwin_pci_endpoint(const struct npuwin_member *member, u32 *endpoint);
int npuwin_pci_member_join(struct npuwin_member *member);
void npuwin_pci_member_leave(struct npuwin_member *member, u32 state);
int npuwin_pci_member_connect(struct npuwin_member *member);
void npuwin_pci_member_abort(struct npuwin_member *member);
void npuwin_pci_member_reset(struct npuwin_member *member);
void npuwin_pci_member_arm(struct npuwin_member *member);
void npuwin_pci_member_look(struct npuwin_member *member);
void npuwin_pci_notified(struct npuwin_pci *npci, u32 endpoint);
void npuwin_pci_ask_peers(struct npuwin_pci *npci, u32 endpoint);
void npuwin_pci_peers_work(struct work_struct *work);
void npuwin_pci_wakes_work(struct work_struct *work);

#endif /* NPUWIN_PCI_H */
