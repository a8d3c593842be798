/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the parts of the npuwin driver know of each other.
 *
 * Lock order, outermost first:
 *
 *	npuwin_device.lock
 *	npuwin_file.lock
 *	npuwin_queue.submit_lock
 *	npuwin_domain.lock
 *	npuwin_device.mem_lock, the cookies' lock (mmap.c): innermost mutexes
 *	npuwin_member.wq.lock
 *	npuwin_queue.lock
 *	npuwin_queue.wq.lock, npuwin_domain.wq.lock, npuwin_file.poll_wq.lock, and the lock of
 *	a user (turns.c), which is taken in any context
 *
 * None of them is held while bulk data is copied or while somebody waits for a rank, a
 * signal or a completion. npuwin_srcu, which is read-held over each step of an engine,
 * can be waited for under all mutexes.
 */
#ifndef NPUWIN_H
#define NPUWIN_H

#include <linux/cdev.h>
#include <linux/device.h>
#include <linux/eventfd.h>
#include <linux/fs.h>
#include <linux/hrtimer.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/rwsem.h>
#include <linux/sched/signal.h>
#include <linux/spinlock.h>
#include <linux/srcu.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>

#include "npuwin_ioctl.h"
#include "engine.h"

/** NPUWIN_ABI_LEVEL: grows when the uAPI gets something new; shown in sysfs. */
#define NPUWIN_ABI_LEVEL	1

/** NPUWIN_REG_BYTES: size of a rank's notify registers, as an engine sees them. */
#define NPUWIN_REG_BYTES	(NPUWIN_NOTIFY_REGS * sizeof(s32))

struct npuwin_device;
struct npuwin_domain;
struct npuwin_file;
struct npuwin_mem;
struct npuwin_member;
struct npuwin_queue;
struct npuwin_until;
struct npuwin_user;

/*
 * Read-held, by npuwin_read_lock(), by whoever touches a member's memory. Who has marked a rank
 * as gone and then waits for a grace period knows that nobody reads or writes its memory any
 * more.
 */
extern struct srcu_struct npuwin_srcu;

/* Where queues are executed whose submitter does not wait, by turns, in the order of these. */
extern struct workqueue_struct *npuwin_wq;

/* ---- backends ---------------------------------------------------------- */

/**
 * struct npuwin_backend_ops - What a kind of device does its own way.
 * @name: "soft" or "pci"
 * @release: the last reference of @ndev is gone; NULL if there is nothing to do
 * @mem_alloc: give @mem, whose size, align and kind are set, memory: vaddr, and pages or
 *	pfn. A window's is zeroed. May sleep for long; ends with -EINTR where a fatal signal
 *	is pending
 * @mem_free: take it back; nobody can reach it any more
 * @queue_init: make a new queue's other half; may sleep
 * @queue_exit: undo that; the queue is quiesced for good, or its device goes. Somebody may
 *	still be in @queue_wait. Nothing else of the queue is called after it
 * @queue_room: see that @count descriptors fit behind the head, which they do by the
 *	queue's own account: 0, or -EAGAIN or -ENODEV. submit_lock is held, the queue is not
 *	locked. NULL where the own account is all there is
 * @queue_kick: see that what has been posted is executed; the queue is locked. @flags are
 *	NPUWIN_SUBMIT_F_* of who posted it
 * @queue_quiesce: stop execution. On return nobody executes the queue, and nobody begins to
 *	until its cancel is cleared. submit_lock is held
 * @queue_turn: do in a worker what npuwin_turn_wanted() was called for, for about a tick. The
 *	queue is referenced, but may have been through @queue_exit
 * @queue_wait: wait for something at a queue: 0 when it has come; -ERESTARTSYS, -ETIMEDOUT,
 *	-EAGAIN (@deadline zero); -ECANCELED, -EPIPE or -ENODEV when it cannot come
 * @member_join: a rank joins, with mem and notify; fills in what others need to know of it.
 *	The domain is locked for this and all that follow
 * @member_leave: it leaves or dies (@state), its queues are gone: the device lets go of its
 *	memory
 * @member_connect: all ranks have committed: let it reach them. 0 or a negative errno
 * @member_abort: the domain is aborted: what waits in the device for it fails
 * @member_reset: the domain's reset is complete: it begins anew, with nothing of the old
 * @member_arm: somebody is about to sleep for a cell of this rank: have the device's writes
 *	wake him. Any context; inside npuwin_srcu or by who keeps the rank joined
 * @member_look: cells were written by a processor: the device looks at its waits again.
 *	Inside npuwin_srcu
 *
 * A @member_* that is NULL is not needed: where all are, memory is all that ranks share.
 */
struct npuwin_backend_ops {
	const char *name;
	void (*release)(struct npuwin_device *ndev);
	int (*mem_alloc)(struct npuwin_device *ndev, struct npuwin_mem *mem);
	void (*mem_free)(struct npuwin_mem *mem);
	int (*queue_init)(struct npuwin_queue *queue);
	void (*queue_exit)(struct npuwin_queue *queue);
	int (*queue_room)(struct npuwin_queue *queue, u32 count);
	void (*queue_kick)(struct npuwin_queue *queue, u32 flags);
	void (*queue_quiesce)(struct npuwin_queue *queue);
	void (*queue_turn)(struct npuwin_queue *queue);
	int (*queue_wait)(struct npuwin_queue *queue, const struct npuwin_until *until,
			  s64 deadline);
	int (*member_join)(struct npuwin_member *member);
	void (*member_leave)(struct npuwin_member *member, u32 state);
	int (*member_connect)(struct npuwin_member *member);
	void (*member_abort)(struct npuwin_member *member);
	void (*member_reset)(struct npuwin_member *member);
	void (*member_arm)(struct npuwin_member *member);
	void (*member_look)(struct npuwin_member *member);
};

/* ---- devices and files ------------------------------------------------- */

/**
 * enum npuwin_stat - Counters of a device, shown in sysfs.
 * @NPUWIN_STAT_DOORBELLS: batches posted
 * @NPUWIN_STAT_INTERRUPTS: interrupts taken
 * @NPUWIN_STAT_DESCRIPTORS: descriptors completed, in whatever way
 * @NPUWIN_STAT_BYTES: bytes written by completed TPUTs
 * @NPUWIN_STAT_TIMEOUTS: TWAITs whose deadline passed
 * @NPUWIN_STAT_BOUNDS: descriptors that pointed outside a window
 * @NPUWIN_STAT_PEER_DEATHS: ranks of this device that died
 * @NPUWIN_STAT_ABORTS: domains that a rank of this device aborted
 * @NPUWIN_STAT_COUNT: how many there are
 */
enum npuwin_stat {
	NPUWIN_STAT_DOORBELLS,
	NPUWIN_STAT_INTERRUPTS,
	NPUWIN_STAT_DESCRIPTORS,
	NPUWIN_STAT_BYTES,
	NPUWIN_STAT_TIMEOUTS,
	NPUWIN_STAT_BOUNDS,
	NPUWIN_STAT_PEER_DEATHS,
	NPUWIN_STAT_ABORTS,
	NPUWIN_STAT_COUNT,
};

/**
 * struct npuwin_device - One NPU.
 * @dev: class device; its reference count is the object's
 * @cdev: /dev/npuwinN
 * @id: N
 * @ops: the backend
 * @priv: the backend's
 * @label: what the backend calls it, for sysfs
 * @firmware: what runs it, for sysfs
 * @caps: NPUWIN_CAP_*
 * @window_align: sizes of windows are multiples of it; a multiple of PAGE_SIZE
 * @max_depth: of queues
 * @max_ranks: of domains
 * @numa_node: where its memory is, or NUMA_NO_NODE
 * @memory_total: capacity for windows
 * @memory_used: of it in windows, those that only mappings keep alive included
 * @gone: unplugged. Written once, with @alive held for writing
 * @alive: held for reading over calls of the backend that are not steps, so that an
 *	unplug waits for them
 * @lock: protects @files
 * @files: open files
 * @mem_lock: protects @mems
 * @mems: memory that has to be zapped when the device goes
 * @stats: counters
 * @nqueues: queues that exist
 * @nmembers: ranks joined with this device's windows
 */
struct npuwin_device {
	struct device dev;
	struct cdev cdev;
	int id;
	const struct npuwin_backend_ops *ops;
	void *priv;
	const char *label;
	const char *firmware;
	u64 caps;
	u64 window_align;
	u32 max_depth;
	u32 max_ranks;
	int numa_node;
	u64 memory_total;
	atomic64_t memory_used;
	bool gone;
	struct rw_semaphore alive;
	struct mutex lock;	/* @files */
	struct list_head files;
	struct mutex mem_lock;	/* @mems */
	struct list_head mems;
	atomic64_t stats[NPUWIN_STAT_COUNT];
	atomic_t nqueues;
	atomic_t nmembers;
};

/**
 * enum npuwin_obj_type - What an id of a file names.
 * @NPUWIN_OBJ_WINDOW: a struct npuwin_window
 * @NPUWIN_OBJ_QUEUE: a struct npuwin_queue
 * @NPUWIN_OBJ_TYPES: how many types there are
 */
enum npuwin_obj_type {
	NPUWIN_OBJ_WINDOW,
	NPUWIN_OBJ_QUEUE,
	NPUWIN_OBJ_TYPES,
};

/**
 * struct npuwin_obj - Head of everything that has an id.
 * @type: what it is
 * @id: its name in the file
 */
struct npuwin_obj {
	enum npuwin_obj_type type;
	u32 id;
};

/**
 * struct npuwin_file - An open /dev/npuwinN.
 * @ref: of the open file, and of who goes through the device's files
 * @ndev: the device, counted
 * @user: who has opened it
 * @link: in the device's files
 * @lock: serializes all that makes, joins or removes objects: protects @members, the
 *	members' queue lists, windows and whose member they are, and makes the unplug of
 *	the device one event between two such operations
 * @objs: windows and queues by id; an id that is reserved has no object yet. A queue
 *	found under its lock may be referenced
 * @nobjs: objects by type, reserved ones included; under @objs' lock
 * @members: ranks that belong to this file
 * @unread: completions that nobody has taken, of all queues
 * @poll_wq: who polls the file
 */
struct npuwin_file {
	struct kref ref;
	struct npuwin_device *ndev;
	struct npuwin_user *user;
	struct list_head link;
	struct mutex lock;	/* objects that are made, joined, removed */
	struct xarray objs;
	u32 nobjs[NPUWIN_OBJ_TYPES];
	struct list_head members;
	atomic_t unread;
	wait_queue_head_t poll_wq;
};

/* ---- memory ------------------------------------------------------------ */

/**
 * enum npuwin_mem_kind - What memory is for.
 * @NPUWIN_MEM_WINDOW: a window; takes the device's capacity
 * @NPUWIN_MEM_NOTIFY: a rank's notify registers
 * @NPUWIN_MEM_STATUS: a domain's status page, which is no device's
 */
enum npuwin_mem_kind {
	NPUWIN_MEM_WINDOW,
	NPUWIN_MEM_NOTIFY,
	NPUWIN_MEM_STATUS,
};

/**
 * struct npuwin_mem - Memory that can be mapped: window, notify registers, status page.
 * @ref: held by the window or domain and by each mapping
 * @ndev: device it belongs to, counted; NULL for a status page
 * @link: in the device's mems
 * @kind: what it is for
 * @size: bytes, a multiple of PAGE_SIZE
 * @align: of its address, a power of two, PAGE_SIZE at least
 * @vaddr: kernel address of all of it
 * @pages: its pages in order, or NULL where it is not made of pages
 * @pfn: the first page frame where @pages is NULL
 * @cookie: its first page in the module's one mapping
 * @cookie_base: what was reserved there, alignment included
 * @owner: file that can map it by its cookie, or NULL; under the cookies' lock
 */
struct npuwin_mem {
	struct kref ref;
	struct npuwin_device *ndev;
	struct list_head link;
	enum npuwin_mem_kind kind;
	u64 size;
	u64 align;
	void *vaddr;
	struct page **pages;
	unsigned long pfn;
	unsigned long cookie;
	unsigned long cookie_base;
	const struct npuwin_file *owner;
};

/**
 * struct npuwin_window - Window memory with a name. All under the file's lock.
 * @obj: head
 * @mem: the memory, counted
 * @member: rank that it has joined as, or NULL
 */
struct npuwin_window {
	struct npuwin_obj obj;
	struct npuwin_mem *mem;
	struct npuwin_member *member;
};

/* ---- domains ----------------------------------------------------------- */

/**
 * struct npuwin_peer - Where a rank's window is on a fabric.
 * @fabric_id: its device, or zero where there is no fabric
 * @offset: of the window in that device's memory
 * @key: opens it
 * @endpoint: its number at the device
 */
struct npuwin_peer {
	u64 fabric_id;
	u64 offset;
	u64 key;
	u32 endpoint;
};

/**
 * struct npuwin_member - A rank of a domain.
 * @domain: whose; counted while the rank is joined
 * @rank: which
 * @state: NPUWIN_RANK_*. Written with the domain's lock and @wq.lock held. To be read with
 *	either of them or with acquire semantics inside npuwin_srcu; while it is
 *	NPUWIN_RANK_JOINED, @mem and @notify are valid
 * @remote: it has joined elsewhere on a fabric: @mem, @notify, @file and @window mean nothing.
 *	Written before @state says that it is joined
 * @mem: its window's memory, counted
 * @notify: its notify registers, counted
 * @peer: where that is on the fabric; under the domain's lock
 * @file: whom the rank belongs to while it is joined; under the domain's lock
 * @window: the window, under the file's lock
 * @file_link: in the file's members, under the file's lock
 * @queues: queues of the rank, under the file's lock
 * @committed: has arrived at the commit; under the domain's lock
 * @reset: has arrived at the reset; under the domain's lock
 * @reset_due: a reset that it had arrived at is complete and it has not been told yet;
 *	under the domain's lock
 * @wq: who waits for something in its memory: callers of SIGNAL_WAIT and parked queues.
 *	Their wake functions look at the memory themselves
 */
struct npuwin_member {
	struct npuwin_domain *domain;
	u32 rank;
	u32 state;
	bool remote;
	struct npuwin_mem *mem;
	struct npuwin_mem *notify;
	struct npuwin_peer peer;
	struct npuwin_file *file;
	struct npuwin_window *window;
	struct list_head file_link;
	struct list_head queues;
	bool committed;
	bool reset;
	bool reset_due;
	wait_queue_head_t wq;
};

/**
 * struct npuwin_domain - An ordered set of ranks.
 * @ref: held by the domain's file, joined members and queues
 * @ops: of its devices, all of one kind
 * @lock: protects the states below and the members'
 * @nranks: number of members
 * @window_size: of each member's window
 * @state: NPUWIN_DOMAIN_*; written under @lock, read anywhere with acquire semantics
 * @generation: completed resets; written under @lock
 * @abort_rank: who died or aborted, valid while aborted
 * @abort_error: errno, positive
 * @abort_death: the reason was a death
 * @event: grows with each change that a commit or reset may wait for; under @lock
 * @wq: who waits for @event
 * @status_mem: the status page
 * @status: its content, which userspace can read
 * @members: by rank
 */
struct npuwin_domain {
	struct kref ref;
	const struct npuwin_backend_ops *ops;
	struct mutex lock;	/* states, the members' too */
	u32 nranks;
	u64 window_size;
	u32 state;
	u32 generation;
	u32 abort_rank;
	u32 abort_error;
	bool abort_death;
	u32 event;
	wait_queue_head_t wq;
	struct npuwin_mem *status_mem;
	struct npuwin_domain_status *status;
	struct npuwin_member members[];
};

/* ---- queues ------------------------------------------------------------ */

/**
 * enum npuwin_queue_state - Who executes a queue.
 * @NPUWIN_QUEUE_IDLE: nobody
 * @NPUWIN_QUEUE_RUNNING: one task, which alone may touch cursor, cqe and park
 * @NPUWIN_QUEUE_PARKED: nobody, until the TWAIT at its tail has something to look at
 */
enum npuwin_queue_state {
	NPUWIN_QUEUE_IDLE,
	NPUWIN_QUEUE_RUNNING,
	NPUWIN_QUEUE_PARKED,
};

/**
 * struct npuwin_slot - What the queue notes beside a descriptor.
 * @left: descriptors that follow it in its batch
 * @cqes: completions that it and those can post
 */
struct npuwin_slot {
	u32 left;
	u32 cqes;
};

/**
 * struct npuwin_park - What a parked queue waits for. Written by who runs the queue.
 * @entry: on the member's wait queue
 * @cell: the int32
 * @value: operand
 * @cmp: NPUWIN_CMP_*
 * @writer: rank that is to write it, or %NPUWIN_NO_RANK
 * @active: @entry is on the wait queue
 */
struct npuwin_park {
	struct wait_queue_entry entry;
	const void *cell;
	s32 value;
	u32 cmp;
	u32 writer;
	bool active;
};

/**
 * struct npuwin_queue - Where descriptors are posted.
 * @obj: head
 * @ref: held by the file's table and by calls that use the queue
 * @file: whose; valid until the queue is destroyed
 * @domain: domain, counted
 * @member: rank that it works for
 * @link: in the member's queues, under the file's lock
 * @eventfd: gets one for each completion, or NULL
 * @priv: the backend's
 * @depth: descriptors, and completions, that it holds at most
 * @mask: size of the rings minus one
 * @ring: descriptors
 * @slots: beside them
 * @cring: completions
 * @submit_lock: serializes posting, reset and destruction
 * @take_lock: serializes taking completions; nests in @submit_lock
 * @lock: protects all that follows, up to @helper
 * @state: who executes
 * @cancel: nobody may start to execute, and who executes stops after the step
 * @stopped: a descriptor failed: takes nothing until it is reset
 * @gone: the device is gone
 * @dead: destroyed
 * @resume: parked (or about to be), and there is something to look at
 * @epoch: resets of the queue
 * @head: descriptors posted so far
 * @tail: descriptors that are through
 * @cq_head: completions posted
 * @cq_tail: completions taken
 * @reserved: completions that what is between @tail and @head can post
 * @helper: a task that sleeps for this queue and will execute it when woken, or NULL
 * @wq: who waits for completions, for a batch or for the queue to stop running
 * @turn_link: where it waits for a worker's turn when there is no helper, see turns.c
 * @timer: deadline of the TWAIT that it is parked on
 * @engine: as the engine sees the queue
 * @cursor: how far the descriptor at @tail is
 * @cqe: its completion
 * @park: what it waits for
 */
struct npuwin_queue {
	struct npuwin_obj obj;
	struct kref ref;
	struct npuwin_file *file;
	struct npuwin_domain *domain;
	struct npuwin_member *member;
	struct list_head link;
	struct eventfd_ctx *eventfd;
	void *priv;
	u32 depth;
	u32 mask;
	struct npuwin_desc *ring;
	struct npuwin_slot *slots;
	struct npuwin_cqe *cring;
	struct mutex submit_lock;	/* who posts, resets, destroys */
	struct mutex take_lock;		/* who takes completions */

	spinlock_t lock;		/* all from here to @helper */
	enum npuwin_queue_state state;
	bool cancel;
	bool stopped;
	bool gone;
	bool dead;
	bool resume;
	u32 epoch;
	u64 head;
	u64 tail;
	u64 cq_head;
	u64 cq_tail;
	u32 reserved;
	struct task_struct *helper;

	wait_queue_head_t wq;
	struct list_head turn_link;
	struct hrtimer timer;
	struct npuwin_engine engine;
	struct npuwin_cursor cursor;
	struct npuwin_cqe cqe;
	struct npuwin_park park;
};

/**
 * struct npuwin_until - What a task waits for at a queue.
 * @epoch: of the queue when it began
 * @seq: that @tail gets there; where zero, @min counts instead
 * @min: that there are so many completions
 */
struct npuwin_until {
	u32 epoch;
	u64 seq;
	u32 min;
};

/**
 * struct npuwin_retired - What has come of retiring descriptors.
 * @posted: completions posted
 * @batches: batches that ended
 * @bytes: bytes that they had written
 */
struct npuwin_retired {
	u32 posted;
	u32 batches;
	u64 bytes;
};

/* ---- ioctl ------------------------------------------------------------- */

/**
 * struct npuwin_ucmd - An ioctl being served.
 * @file: on a device
 * @domain: on a domain
 * @cmd: kernel copy of the structure, zero where the caller's was shorter
 * @user: the caller's
 * @size: bytes of it that both sides know
 */
struct npuwin_ucmd {
	struct npuwin_file *file;
	struct npuwin_domain *domain;
	void *cmd;
	void __user *user;
	u32 size;
};

int npuwin_respond(struct npuwin_ucmd *ucmd);
long npuwin_device_ioctl(struct file *filp, unsigned int cmd, unsigned long arg);
long npuwin_domain_ioctl(struct file *filp, unsigned int cmd, unsigned long arg);

int npuwin_ioctl_query(struct npuwin_ucmd *ucmd);
int npuwin_ioctl_window_alloc(struct npuwin_ucmd *ucmd);
int npuwin_ioctl_destroy(struct npuwin_ucmd *ucmd);
int npuwin_ioctl_domain_create(struct npuwin_ucmd *ucmd);
int npuwin_ioctl_domain_join(struct npuwin_ucmd *ucmd);
int npuwin_ioctl_domain_commit(struct npuwin_ucmd *ucmd);
int npuwin_ioctl_domain_abort(struct npuwin_ucmd *ucmd);
int npuwin_ioctl_domain_reset(struct npuwin_ucmd *ucmd);
int npuwin_ioctl_domain_leave(struct npuwin_ucmd *ucmd);
int npuwin_ioctl_domain_export(struct npuwin_ucmd *ucmd);
int npuwin_ioctl_domain_import(struct npuwin_ucmd *ucmd);
int npuwin_ioctl_domain_info(struct npuwin_ucmd *ucmd);
int npuwin_ioctl_queue_create(struct npuwin_ucmd *ucmd);
int npuwin_ioctl_queue_reset(struct npuwin_ucmd *ucmd);
int npuwin_ioctl_submit(struct npuwin_ucmd *ucmd);
int npuwin_ioctl_queue_wait(struct npuwin_ucmd *ucmd);
int npuwin_ioctl_signal_wait(struct npuwin_ucmd *ucmd);
int npuwin_ioctl_signal_wake(struct npuwin_ucmd *ucmd);

/* ---- main.c ------------------------------------------------------------ */

extern struct class npuwin_class;
dev_t npuwin_devt(int id);
int npuwin_id_alloc(void);
void npuwin_id_free(int id);

/* ---- device.c ---------------------------------------------------------- */

struct npuwin_device *npuwin_device_alloc(struct device *parent,
					  const struct npuwin_backend_ops *ops);
int npuwin_device_register(struct npuwin_device *ndev);
void npuwin_device_fail(struct npuwin_device *ndev);
void npuwin_device_unregister(struct npuwin_device *ndev);
int npuwin_obj_reserve(struct npuwin_file *file, struct npuwin_obj *obj,
		       enum npuwin_obj_type type, u32 limit);
void npuwin_obj_finalize(struct npuwin_file *file, struct npuwin_obj *obj);
void npuwin_obj_remove(struct npuwin_file *file, struct npuwin_obj *obj);

static inline struct npuwin_device *to_npuwin_device(struct device *dev)
{
	return container_of(dev, struct npuwin_device, dev);
}

static inline bool npuwin_device_gone(const struct npuwin_device *ndev)
{
	return READ_ONCE(ndev->gone);
}

static inline void npuwin_stat_add(struct npuwin_device *ndev, enum npuwin_stat stat, u64 n)
{
	atomic64_add(n, &ndev->stats[stat]);
}

/* ---- window.c ---------------------------------------------------------- */

struct npuwin_mem *npuwin_mem_create(struct npuwin_device *ndev, enum npuwin_mem_kind kind,
				     u64 size, u64 align);
struct npuwin_mem *npuwin_mem_create_status(u64 size);
void npuwin_mem_put(struct npuwin_mem *mem);
int npuwin_pages_alloc(struct npuwin_mem *mem, int node);
void npuwin_pages_free(struct npuwin_mem *mem);
void npuwin_window_destroy(struct npuwin_file *file, struct npuwin_window *window);

/* ---- mmap.c ------------------------------------------------------------ */

int npuwin_mmap_init(void);
void npuwin_mmap_exit(void);
void npuwin_mmap_setup_file(struct file *filp);
int npuwin_cookie_alloc(struct npuwin_mem *mem);
void npuwin_cookie_free(struct npuwin_mem *mem);
void npuwin_cookie_set_owner(struct npuwin_mem *mem, const struct npuwin_file *owner);
void npuwin_mem_zap(struct npuwin_mem *mem);
void npuwin_faults_wait(void);
int npuwin_device_mmap(struct file *filp, struct vm_area_struct *vma);
int npuwin_domain_mmap(struct file *filp, struct vm_area_struct *vma);
unsigned long npuwin_device_unmapped_area(struct file *filp, unsigned long addr,
					  unsigned long len, unsigned long pgoff,
					  unsigned long flags);
unsigned long npuwin_domain_unmapped_area(struct file *filp, unsigned long addr,
					  unsigned long len, unsigned long pgoff,
					  unsigned long flags);

/* Offsets of what a domain's file maps. Windows come last, since they have no end. */
#define NPUWIN_MAP_STATUS	0ULL
#define NPUWIN_MAP_NOTIFY	BIT_ULL(30)
#define NPUWIN_MAP_WINDOW	BIT_ULL(32)

/* ---- domain.c ---------------------------------------------------------- */

extern const struct file_operations npuwin_domain_fops;
struct npuwin_domain *npuwin_domain_get_fd(int fd);
void npuwin_domain_get(struct npuwin_domain *domain);
void npuwin_domain_put(struct npuwin_domain *domain);
struct npuwin_member *npuwin_member_find(struct npuwin_domain *domain, u32 rank,
					 const struct npuwin_file *file);
int npuwin_domain_error(const struct npuwin_domain *domain);

/* ---- state.c ----------------------------------------------------------- */

void npuwin_domain_set_state(struct npuwin_domain *domain, u32 state);
void npuwin_member_set_state(struct npuwin_member *member, u32 state);
void npuwin_domain_changed(struct npuwin_domain *domain);
void npuwin_domain_wake_members(struct npuwin_domain *domain);
void npuwin_domain_abort(struct npuwin_domain *domain, u32 rank, u32 error, bool death);
u32 npuwin_domain_missing(const struct npuwin_domain *domain, bool reset);
void npuwin_domain_try_complete(struct npuwin_domain *domain);
void npuwin_domain_try_reset(struct npuwin_domain *domain);
void npuwin_member_detach(struct npuwin_member *member, u32 state);

/**
 * npuwin_member_state() - What has become of a rank.
 * @member: the rank
 *
 * Return: NPUWIN_RANK_*.
 */
static inline u32 npuwin_member_state(const struct npuwin_member *member)
{
	/* Before what a joined rank has is used; pairs with npuwin_member_set_state(). */
	return smp_load_acquire(&member->state);
}

/**
 * npuwin_member_joined() - Whether a rank's memory may be looked at.
 * @member: the rank
 *
 * Context: inside npuwin_srcu, or under the domain's lock or member->wq.lock.
 *
 * Return: whether it may.
 */
static inline bool npuwin_member_joined(const struct npuwin_member *member)
{
	return npuwin_member_state(member) == NPUWIN_RANK_JOINED;
}

/**
 * npuwin_member_local() - Whether a rank has joined here, and not elsewhere on a fabric.
 * @member: the rank
 *
 * Context: as npuwin_member_joined().
 *
 * Return: whether it has.
 */
static inline bool npuwin_member_local(const struct npuwin_member *member)
{
	/* Acquires where its memory is. */
	return npuwin_member_joined(member) && !smp_load_acquire(&member->remote);
}

/**
 * npuwin_member_left() - Whether a rank has left or died.
 * @member: the rank
 *
 * Return: whether it has.
 */
static inline bool npuwin_member_left(const struct npuwin_member *member)
{
	u32 state = npuwin_member_state(member);

	return state == NPUWIN_RANK_LEFT || state == NPUWIN_RANK_DEAD;
}

/**
 * npuwin_domain_state() - What state a domain is in.
 * @domain: the domain
 *
 * Return: NPUWIN_DOMAIN_*.
 */
static inline u32 npuwin_domain_state(const struct npuwin_domain *domain)
{
	/* Before why it was aborted is read; pairs with npuwin_domain_set_state(). */
	return smp_load_acquire(&domain->state);
}

/**
 * npuwin_hold_cpu() - Not to be preempted until npuwin_release_cpu().
 *
 * For a task that holds what others wait for: its priority may be so low that it does not get
 * its processor back for minutes. Under PREEMPT_RT, where the locks that are taken meanwhile
 * sleep, it is preempted all the same.
 */
static inline void npuwin_hold_cpu(void)
{
	if (!IS_ENABLED(CONFIG_PREEMPT_RT))
		preempt_disable();
}

/**
 * npuwin_release_cpu() - Undo npuwin_hold_cpu().
 */
static inline void npuwin_release_cpu(void)
{
	if (!IS_ENABLED(CONFIG_PREEMPT_RT))
		preempt_enable();
}

/**
 * npuwin_read_lock() - What ranks that are joined have stays until npuwin_read_unlock().
 *
 * Who leaves waits for it: it must be for a moment, and nothing may sleep.
 *
 * Return: for npuwin_read_unlock().
 */
static inline int npuwin_read_lock(void)
{
	npuwin_hold_cpu();
	return srcu_read_lock(&npuwin_srcu);
}

/**
 * npuwin_read_unlock() - Undo npuwin_read_lock().
 * @srcu: what that has returned
 */
static inline void npuwin_read_unlock(int srcu)
{
	srcu_read_unlock(&npuwin_srcu, srcu);
	npuwin_release_cpu();
}

/* ---- peer.c ------------------------------------------------------------ */

void npuwin_domain_peer_gone(struct npuwin_domain *domain, u32 rank, u32 state);

/* ---- queue.c ----------------------------------------------------------- */

struct npuwin_queue *npuwin_queue_get(struct npuwin_file *file, u32 id);
void npuwin_queue_put(struct npuwin_queue *queue);
void npuwin_queue_destroy(struct npuwin_queue *queue);
int npuwin_queue_empty(struct npuwin_queue *queue);
void npuwin_queue_fail(struct npuwin_queue *queue, u32 status);
void npuwin_queue_retire(struct npuwin_queue *queue, struct npuwin_retired *retired);
void npuwin_queue_notify(struct npuwin_queue *queue, const struct npuwin_retired *retired);
int npuwin_until_check(const struct npuwin_queue *queue, const struct npuwin_until *until);

static inline struct npuwin_desc *npuwin_queue_desc(struct npuwin_queue *queue)
{
	return &queue->ring[queue->tail & queue->mask];
}

static inline const struct npuwin_backend_ops *
npuwin_queue_ops(const struct npuwin_queue *queue)
{
	return queue->domain->ops;
}

/* ---- run.c ------------------------------------------------------------- */

int npuwin_run_init(struct npuwin_queue *queue);
void npuwin_run_kick(struct npuwin_queue *queue, u32 flags);
void npuwin_run_quiesce(struct npuwin_queue *queue);
void npuwin_run_exit(struct npuwin_queue *queue);
void npuwin_run_turn(struct npuwin_queue *queue);
int npuwin_run_wait(struct npuwin_queue *queue, const struct npuwin_until *until,
		    s64 deadline);

/* ---- turns.c ----------------------------------------------------------- */

void npuwin_turn_wanted(struct npuwin_queue *queue);
void npuwin_turn_unwanted(struct npuwin_queue *queue);
struct npuwin_user *npuwin_user_get(void);
void npuwin_user_put(struct npuwin_user *user);

/* ---- signal.c ---------------------------------------------------------- */

void npuwin_member_wake(struct npuwin_member *member);
u32 npuwin_sleepers_count(const struct npuwin_member *member);
u32 npuwin_sleepers_inc(struct npuwin_member *member);
void npuwin_sleepers_dec(struct npuwin_member *member);
int npuwin_sleep(s64 deadline);

/* ---- sysfs.c ----------------------------------------------------------- */

extern const struct attribute_group *npuwin_device_groups[];

/* ---- soft.c ------------------------------------------------------------ */

int npuwin_soft_init(void);
void npuwin_soft_exit(void);

/* ---- pci.c ------------------------------------------------------------- */

#ifdef CONFIG_PCI
int npuwin_pci_init(void);
void npuwin_pci_exit(void);
#else
static inline int npuwin_pci_init(void)
{
	return 0;
}

static inline void npuwin_pci_exit(void)
{
}
#endif

#endif /* NPUWIN_H */
