/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
/*
 * The ioctl interface of /dev/npuwinN and of domain file descriptors.
 */
#ifndef _UAPI_NPUWIN_IOCTL_H
#define _UAPI_NPUWIN_IOCTL_H

#include <linux/ioctl.h>
#include <linux/types.h>

#include "npuwin_desc.h"

/**
 * DOC: General rules
 *
 * Every structure begins with @size, set by the caller to its sizeof. A larger
 * structure than the kernel knows is taken if the tail is zero; a smaller one down to
 * the first version's size is taken as if its tail were zero.
 *
 * Errors have one meaning everywhere:
 *
 *  - ENOTTY: unknown command
 *  - E2BIG: the structure has a non-zero tail that this kernel does not know, or @size is
 *    over a page
 *  - EINVAL: a value, flag or reserved field that is not valid, or too small a @size
 *  - EOPNOTSUPP: known, but not supported by this device
 *  - ENOENT: no such window, queue or rank, or an empty rank
 *  - EOVERFLOW: an offset, size, count or product does not fit
 *  - EBADF, EFAULT, ENOMEM, ERESTARTSYS/EINTR: as everywhere
 *  - ENOSPC: the device has no room for such a window, or for another queue
 *  - EMFILE: a documented limit of objects or waits is reached
 *  - EBUSY: the object is in use, or the rank is taken
 *  - EACCES: the rank belongs to another file
 *  - EAGAIN: not now, nothing was changed unless the command says so
 *  - ETIMEDOUT: the deadline passed
 *  - EPIPE: a rank of the domain is gone
 *  - ECANCELED: the domain is aborted or was reset meanwhile, or the queue is stopped
 *  - ENODEV: the device is gone
 *
 * Deadlines (@deadline_ns) are absolute CLOCK_MONOTONIC nanoseconds;
 * %NPUWIN_NO_DEADLINE means none, zero or anything past means do not sleep, negative is
 * EINVAL. A wait that a signal interrupts is restarted with the same deadline.
 *
 * Objects (windows, queues) belong to the open file that made them, and go with it.
 * Limits of each open file: %NPUWIN_MAX_WINDOWS windows, %NPUWIN_MAX_QUEUES queues. Of each
 * rank: %NPUWIN_MAX_WAITS signals of its window and registers that are waited for at a time,
 * queues that are parked at a TWAIT counted as well.
 */
#define NPUWIN_IOC_TYPE		0xB7

#define NPUWIN_MAX_WINDOWS	4096
#define NPUWIN_MAX_QUEUES	4096
#define NPUWIN_MAX_QUEUE_DEPTH	65536
#define NPUWIN_MAX_SIGNALS	1024
#define NPUWIN_MAX_WAITS	16384

/* Commands on a device. */
#define NPUWIN_IOC_QUERY		_IO(NPUWIN_IOC_TYPE, 0x00)
#define NPUWIN_IOC_WINDOW_ALLOC		_IO(NPUWIN_IOC_TYPE, 0x01)
#define NPUWIN_IOC_DESTROY		_IO(NPUWIN_IOC_TYPE, 0x02)
#define NPUWIN_IOC_DOMAIN_CREATE	_IO(NPUWIN_IOC_TYPE, 0x03)
#define NPUWIN_IOC_DOMAIN_JOIN		_IO(NPUWIN_IOC_TYPE, 0x04)
#define NPUWIN_IOC_DOMAIN_COMMIT	_IO(NPUWIN_IOC_TYPE, 0x05)
#define NPUWIN_IOC_DOMAIN_ABORT		_IO(NPUWIN_IOC_TYPE, 0x06)
#define NPUWIN_IOC_DOMAIN_RESET		_IO(NPUWIN_IOC_TYPE, 0x07)
#define NPUWIN_IOC_DOMAIN_LEAVE		_IO(NPUWIN_IOC_TYPE, 0x08)
#define NPUWIN_IOC_QUEUE_CREATE		_IO(NPUWIN_IOC_TYPE, 0x09)
#define NPUWIN_IOC_QUEUE_RESET		_IO(NPUWIN_IOC_TYPE, 0x0a)
#define NPUWIN_IOC_SUBMIT		_IO(NPUWIN_IOC_TYPE, 0x0b)
#define NPUWIN_IOC_QUEUE_WAIT		_IO(NPUWIN_IOC_TYPE, 0x0c)
#define NPUWIN_IOC_DOMAIN_EXPORT	_IO(NPUWIN_IOC_TYPE, 0x0d)
#define NPUWIN_IOC_DOMAIN_IMPORT	_IO(NPUWIN_IOC_TYPE, 0x0e)
/* Commands on a domain. */
#define NPUWIN_IOC_DOMAIN_INFO		_IO(NPUWIN_IOC_TYPE, 0x40)
#define NPUWIN_IOC_SIGNAL_WAIT		_IO(NPUWIN_IOC_TYPE, 0x41)
#define NPUWIN_IOC_SIGNAL_WAKE		_IO(NPUWIN_IOC_TYPE, 0x42)

/* Capabilities, struct npuwin_ioc_query.caps. */
#define NPUWIN_CAP_MAP_PEERS	(1ULL << 0)	/* peer windows can be mapped: the direct rail */
#define NPUWIN_CAP_ADD_I32	(1ULL << 1)	/* NPUWIN_PUT_ADD_I32 */
#define NPUWIN_CAP_ADD_F32	(1ULL << 2)	/* NPUWIN_PUT_ADD_F32 */
#define NPUWIN_CAP_HUGE		(1ULL << 3)	/* windows are huge-page backed where they can be */
#define NPUWIN_CAP_FABRIC	(1ULL << 4)	/* ranks elsewhere on the fabric: EXPORT, IMPORT */

/**
 * struct npuwin_ioc_query - ioctl(NPUWIN_IOC_QUERY): what this device is and can do.
 * @size: sizeof(struct npuwin_ioc_query)
 * @flags: in: zero
 * @caps: out: NPUWIN_CAP_*
 * @memory_total: out: bytes of window memory
 * @memory_used: out: bytes of it that are allocated
 * @window_align: out: every window's size and address are multiples of this
 * @device: out: N of /dev/npuwinN
 * @numa_node: out: NUMA node of the window memory, or -1
 * @max_ranks: out: ranks in a domain at most
 * @max_queue_depth: out: descriptors in a queue at most
 * @notify_regs: out: notify registers of each rank
 * @reserved: out: zero
 * @backend: out: "soft" or "pci", NUL-terminated
 */
struct npuwin_ioc_query {
	__u32	size;
	__u32	flags;
	__aligned_u64 caps;
	__aligned_u64 memory_total;
	__aligned_u64 memory_used;
	__aligned_u64 window_align;
	__u32	device;
	__s32	numa_node;
	__u32	max_ranks;
	__u32	max_queue_depth;
	__u32	notify_regs;
	__u32	reserved;
	__u8	backend[16];
};

/**
 * struct npuwin_ioc_window_alloc - ioctl(NPUWIN_IOC_WINDOW_ALLOC): allocate a window.
 * @size: sizeof(struct npuwin_ioc_window_alloc)
 * @flags: in: zero
 * @length: in: bytes, not zero; rounded up to the device's window_align
 * @align: in: alignment of its address in bytes, a power of two, or zero for the
 *	device's window_align; up to 2 MiB
 * @window_id: out: names it in this file
 * @reserved: in: zero
 * @map_offset: out: offset for mmap() on this file; the mapping is @length bytes at
 *	most and may be partial
 *
 * The window is zeroed and charged to the caller's memory cgroup. It exists until it
 * is destroyed or the file is released, and its memory until no mapping is left.
 *
 * Errors: EINVAL, EOVERFLOW (@length), ENOSPC (the device's capacity), ENOMEM, EMFILE,
 * ENODEV.
 */
struct npuwin_ioc_window_alloc {
	__u32	size;
	__u32	flags;
	__aligned_u64 length;
	__aligned_u64 align;
	__u32	window_id;
	__u32	reserved;
	__aligned_u64 map_offset;
};

/**
 * struct npuwin_ioc_destroy - ioctl(NPUWIN_IOC_DESTROY): destroy a window or queue.
 * @size: sizeof(struct npuwin_ioc_destroy)
 * @id: in: window_id or queue_id of this file
 *
 * A queue's descriptors that have not been executed never are. Errors: ENOENT; EBUSY
 * for a window that is joined to a domain.
 */
struct npuwin_ioc_destroy {
	__u32	size;
	__u32	id;
};

/**
 * struct npuwin_ioc_domain_create - ioctl(NPUWIN_IOC_DOMAIN_CREATE): make a domain.
 * @size: sizeof(struct npuwin_ioc_domain_create)
 * @flags: in: zero
 * @nranks: in: 1..max_ranks
 * @domain_fd: out: the domain; close-on-exec
 * @window_size: in: size of every rank's window, a multiple of window_align
 *
 * The domain lives until its last descriptor, member and mapping are gone. Mapping it
 * is by offset, see struct npuwin_ioc_domain_info.
 */
struct npuwin_ioc_domain_create {
	__u32	size;
	__u32	flags;
	__u32	nranks;
	__s32	domain_fd;
	__aligned_u64 window_size;
};

/**
 * struct npuwin_ioc_domain_join - ioctl(NPUWIN_IOC_DOMAIN_JOIN): bring a window as a rank.
 * @size: sizeof(struct npuwin_ioc_domain_join)
 * @flags: in: zero
 * @domain_fd: in: the domain
 * @rank: in: 0..nranks-1
 * @window_id: in: a window of this file, of exactly the domain's window size, that is
 *	in no domain
 * @reserved: in: zero
 *
 * From now on the rank belongs to this open file: commit, reset, leave, abort and queues
 * for it are this file's alone, and the file's release while the rank is joined is the
 * rank's death. Errors: EBUSY (the rank is taken, or the window is in a domain; a domain
 * that is ready or aborted takes nobody), ENOENT (window), EINVAL (rank, window size),
 * EOPNOTSUPP (a device of another backend than the domain's), ENOSPC (a hardware device has
 * no endpoint left).
 */
struct npuwin_ioc_domain_join {
	__u32	size;
	__u32	flags;
	__s32	domain_fd;
	__u32	rank;
	__u32	window_id;
	__u32	reserved;
};

/**
 * struct npuwin_ioc_domain_sync - Argument of COMMIT and RESET.
 * @size: sizeof(struct npuwin_ioc_domain_sync)
 * @flags: in: zero
 * @domain_fd: in: the domain
 * @rank: in: a rank of this file
 * @deadline_ns: in: how long to wait for the others
 * @generation: out: the domain's
 * @missing_rank: out, on EAGAIN and ETIMEDOUT: the lowest rank that has not arrived; on
 *	EPIPE: the one that is gone; otherwise %NPUWIN_NO_RANK
 *
 * ioctl(NPUWIN_IOC_DOMAIN_COMMIT) says that this rank is ready and waits until all are;
 * then the domain is %NPUWIN_DOMAIN_READY. With @deadline_ns zero it does not wait: the
 * arrival stands, and EAGAIN says that others are missing. Calling again only waits.
 * On a ready domain it returns 0 at once. Errors: EAGAIN, ETIMEDOUT, ECANCELED (aborted),
 * EPIPE, EACCES.
 *
 * ioctl(NPUWIN_IOC_DOMAIN_RESET), on an aborted domain, says that this rank has stopped
 * writing and waits until every surviving rank has said so. The rank's queues are emptied
 * first. When all have arrived, queues run again, the dead and the departed are taken out
 * (their ranks are %NPUWIN_RANK_EMPTY and can be joined anew), notify registers are zero,
 * the generation grows by one and the domain is %NPUWIN_DOMAIN_FORMING: each rank cleans
 * its window and commits. @deadline_ns zero as above. ETIMEDOUT and EAGAIN leave the
 * arrival standing. EINVAL where the domain is not aborted.
 */
struct npuwin_ioc_domain_sync {
	__u32	size;
	__u32	flags;
	__s32	domain_fd;
	__u32	rank;
	__aligned_s64 deadline_ns;
	__u32	generation;
	__u32	missing_rank;
};

/**
 * struct npuwin_ioc_domain_leave - Argument of LEAVE and ABORT.
 * @size: sizeof(struct npuwin_ioc_domain_leave)
 * @flags: in: zero
 * @domain_fd: in: the domain
 * @rank: in: a rank of this file
 * @error: in: ABORT: positive errno that the others are told, 1..4095; LEAVE: zero
 * @reserved: in: zero
 *
 * ioctl(NPUWIN_IOC_DOMAIN_LEAVE) takes the rank out in order: its queues are destroyed,
 * its window is free again, and only waits that are known to need this rank
 * (%NPUWIN_TWAIT_F_BY_RANK) fail. In a domain that is forming the rank is empty again.
 *
 * ioctl(NPUWIN_IOC_DOMAIN_ABORT) aborts the domain: every wait in it ends (ECANCELED,
 * %NPUWIN_ST_ABORTED), queues stop, and nothing but reset and leave works until reset.
 * Aborting an aborted domain changes nothing and returns 0.
 */
struct npuwin_ioc_domain_leave {
	__u32	size;
	__u32	flags;
	__s32	domain_fd;
	__u32	rank;
	__u32	error;
	__u32	reserved;
};

/**
 * struct npuwin_ioc_domain_peer - Argument of EXPORT and IMPORT.
 * @size: sizeof(struct npuwin_ioc_domain_peer)
 * @flags: in: zero
 * @domain_fd: in: the domain
 * @rank: in: EXPORT: a rank of this file; IMPORT: an empty rank
 * @fabric_id: the device on its fabric, not zero
 * @offset: of the window in that device's memory
 * @window_size: of the window: the domain's
 * @key: opens the window to who has it. A secret
 * @endpoint: the window's number at its device
 * @reserved: in: zero
 *
 * A domain can have ranks that joined another domain file descriptor, on this host or on
 * another one that shares the fabric. Each side says where its ranks are
 * (ioctl(NPUWIN_IOC_DOMAIN_EXPORT): @fabric_id to @endpoint are out), they exchange that by
 * means of their own, and each takes in those of the others
 * (ioctl(NPUWIN_IOC_DOMAIN_IMPORT): all are in) before it commits. An imported rank is
 * %NPUWIN_RANK_JOINED and needs no commit here. It cannot be mapped or waited at, nobody
 * can act for it, and its departure or death arrives by way of the fabric.
 *
 * Nothing of what is imported is believed: the device of the window checks it with every
 * write, and what does not match writes nothing and completes with %NPUWIN_ST_PEER. A
 * reset of the domain makes the exported key void and takes all imported ranks out: both
 * are done anew before the next commit. A rank that is exported is not known to have been
 * imported anywhere; who posts before the others have committed may fail.
 *
 * Errors: EOPNOTSUPP (no %NPUWIN_CAP_FABRIC), ENOENT and EACCES (EXPORT), EBUSY (IMPORT: the
 * rank is taken or the domain is not forming), EINVAL (IMPORT: rank, @fabric_id,
 * @window_size), ENODEV.
 */
struct npuwin_ioc_domain_peer {
	__u32	size;
	__u32	flags;
	__s32	domain_fd;
	__u32	rank;
	__aligned_u64 fabric_id;
	__aligned_u64 offset;
	__aligned_u64 window_size;
	__aligned_u64 key;
	__u32	endpoint;
	__u32	reserved;
};

/**
 * struct npuwin_ioc_queue_create - ioctl(NPUWIN_IOC_QUEUE_CREATE): make a queue.
 * @size: sizeof(struct npuwin_ioc_queue_create)
 * @flags: in: zero
 * @domain_fd: in: the domain
 * @rank: in: a rank of this file: descriptors read and wait in its window
 * @depth: in: descriptors it can hold, 1..max_queue_depth; as many completions
 * @event_fd: in: eventfd that each new completion is added to, or -1
 * @queue_id: out: names it in this file
 * @reserved: in: zero
 *
 * It can be made before the domain is committed. Errors: EINVAL (@depth over the device's),
 * EBADF (@domain_fd, @event_fd), ENOENT and EACCES (@rank), EMFILE, ENOSPC (the device has no
 * queue left), ENOMEM, EPIPE and ECANCELED (the domain is aborted), ENODEV.
 */
struct npuwin_ioc_queue_create {
	__u32	size;
	__u32	flags;
	__s32	domain_fd;
	__u32	rank;
	__u32	depth;
	__s32	event_fd;
	__u32	queue_id;
	__u32	reserved;
};

/**
 * struct npuwin_ioc_queue_reset - ioctl(NPUWIN_IOC_QUEUE_RESET): empty a queue.
 * @size: sizeof(struct npuwin_ioc_queue_reset)
 * @queue_id: in: a queue of this file
 *
 * What has not been executed never is, unread completions are dropped, and a stopped
 * queue takes work again. On return no engine writes for what was in it. ECANCELED where
 * the domain is aborted (the domain's reset is what helps there).
 */
struct npuwin_ioc_queue_reset {
	__u32	size;
	__u32	queue_id;
};

/** NPUWIN_SUBMIT_F_WAIT: return when the batch is complete, see struct npuwin_ioc_submit. */
#define NPUWIN_SUBMIT_F_WAIT	(1U << 0)

/**
 * struct npuwin_ioc_submit - ioctl(NPUWIN_IOC_SUBMIT): post a batch of descriptors.
 * @size: sizeof(struct npuwin_ioc_submit)
 * @flags: in: NPUWIN_SUBMIT_F_*
 * @queue_id: in: a queue of this file
 * @count: in: descriptors in the batch, 1..depth
 * @descs: in: user address of @count struct npuwin_desc
 * @cqes: in: with WAIT: user address of room for @cqe_count completions
 * @cqe_count: in: with WAIT: that room, may be zero; out: completions returned
 * @submitted: out: descriptors taken: @count or 0
 * @deadline_ns: in: with WAIT: bounds this call, not the descriptors; otherwise zero
 *
 * All or nothing is taken. The array is copied once; descriptors are checked when they
 * are executed, and what is wrong with one is in its completion. The domain must have
 * been committed: EAGAIN before. EAGAIN too where the queue has no room for @count
 * descriptors and their completions (a queue never loses a completion: unread ones
 * count). ECANCELED: the queue is stopped or the domain aborted; EPIPE: aborted by the
 * death of a rank.
 *
 * With %NPUWIN_SUBMIT_F_WAIT the caller's time may be used to execute. The call returns 0
 * when the batch has been executed or ended early, with up to @cqe_count completions
 * taken from the queue, oldest first. Where a signal or the deadline comes first it
 * returns 0 all the same, with fewer completions than asked for: the batch goes on by
 * itself and NPUWIN_IOC_QUEUE_WAIT gets the rest. A signal before anything was posted
 * ends the call with EINTR, or restarts it; after that it is never restarted, so nothing
 * is posted twice.
 */
struct npuwin_ioc_submit {
	__u32	size;
	__u32	flags;
	__u32	queue_id;
	__u32	count;
	__aligned_u64 descs;
	__aligned_u64 cqes;
	__u32	cqe_count;
	__u32	submitted;
	__aligned_s64 deadline_ns;
};

/**
 * struct npuwin_ioc_queue_wait - ioctl(NPUWIN_IOC_QUEUE_WAIT): take completions.
 * @size: sizeof(struct npuwin_ioc_queue_wait)
 * @flags: in: zero
 * @queue_id: in: a queue of this file
 * @min: in: return when there are that many, 1..@cqe_count
 * @cqes: in: user address of room for @cqe_count completions
 * @cqe_count: in: that room, 1..depth; out: completions returned
 * @reserved: in: zero
 * @deadline_ns: in: how long to wait for @min
 *
 * ETIMEDOUT (EAGAIN for a deadline of zero) where fewer than @min came: those are not
 * taken, @cqe_count is 0. ENODEV once the device is gone and nothing is left to take.
 * poll() on the device file is readable while a queue of the file has completions, and
 * reports an error once the device is gone.
 */
struct npuwin_ioc_queue_wait {
	__u32	size;
	__u32	flags;
	__u32	queue_id;
	__u32	min;
	__aligned_u64 cqes;
	__u32	cqe_count;
	__u32	reserved;
	__aligned_s64 deadline_ns;
};

/**
 * struct npuwin_ioc_domain_info - ioctl(NPUWIN_IOC_DOMAIN_INFO): what a domain is.
 * @size: sizeof(struct npuwin_ioc_domain_info)
 * @flags: in: zero
 * @nranks: out: number of ranks
 * @state: out: NPUWIN_DOMAIN_*
 * @generation: out: completed resets
 * @joined: out: ranks that are %NPUWIN_RANK_JOINED
 * @abort_rank: out: of an aborted domain; otherwise %NPUWIN_NO_RANK
 * @abort_error: out: of an aborted domain: positive errno; otherwise 0
 * @window_size: out: of every rank
 * @window_map: out: mmap offset of rank 0's window; rank r's is at
 *	@window_map + r * @window_size. Shared, readable and writable
 * @notify_map: out: mmap offset of rank 0's notify registers; rank r's is at
 *	@notify_map + r * @notify_stride. Shared, readable and writable
 * @notify_stride: out: bytes
 * @status_map: out: mmap offset of struct npuwin_domain_status; shared, read-only
 * @status_length: out: bytes of that mapping
 *
 * A mapping lies within one rank's window or registers and needs the rank to be joined
 * (ENOENT from mmap). It keeps the memory until it is unmapped; it is not inherited by
 * fork. When a device goes away its mappings give SIGBUS.
 */
struct npuwin_ioc_domain_info {
	__u32	size;
	__u32	flags;
	__u32	nranks;
	__u32	state;
	__u32	generation;
	__u32	joined;
	__u32	abort_rank;
	__u32	abort_error;
	__aligned_u64 window_size;
	__aligned_u64 window_map;
	__aligned_u64 notify_map;
	__aligned_u64 notify_stride;
	__aligned_u64 status_map;
	__aligned_u64 status_length;
};

/** NPUWIN_SIGNAL_F_REG: the cell is a notify register, @offset is 4 * its number. */
#define NPUWIN_SIGNAL_F_REG	(1U << 0)

/**
 * struct npuwin_signal - One thing to wait for.
 * @offset: byte offset of an int32 in @rank's window or notify registers, aligned to 4
 * @rank: whose
 * @flags: NPUWIN_SIGNAL_F_*
 * @value: operand
 * @cmp: NPUWIN_CMP_*: the wait ends when the cell compares so with @value
 * @peer: rank that is to write the cell: the wait ends with EPIPE if it has left; or
 *	%NPUWIN_NO_RANK
 * @observed: out: what the cell last read
 */
struct npuwin_signal {
	__aligned_u64 offset;
	__u32	rank;
	__u32	flags;
	__s32	value;
	__u32	cmp;
	__u32	peer;
	__s32	observed;
};

/**
 * struct npuwin_ioc_signal_wait - ioctl(NPUWIN_IOC_SIGNAL_WAIT): sleep until one holds.
 * @size: sizeof(struct npuwin_ioc_signal_wait)
 * @flags: in: zero
 * @signals: in: user address of @count struct npuwin_signal; only @observed is written
 * @count: in: 1..%NPUWIN_MAX_SIGNALS
 * @index: out: the first that holds; on EPIPE the one whose peer is gone, if it is one
 *	of them; otherwise @count
 * @deadline_ns: in: when to give up: ETIMEDOUT (EAGAIN for a deadline of zero)
 * @gone_rank: out, on EPIPE: who is gone; otherwise %NPUWIN_NO_RANK
 * @reserved: in: zero
 *
 * A signal that holds wins over everything else. Otherwise: EPIPE when a rank of the
 * domain died (or a @peer left), ECANCELED when the domain is aborted, ENOENT for a rank
 * that nobody has joined, EOPNOTSUPP for one that was imported (its cells are elsewhere),
 * EOVERFLOW for an offset outside the window, EMFILE where so many wait in a rank's memory
 * already that its engine would take long to look at them all (%NPUWIN_MAX_WAITS).
 */
struct npuwin_ioc_signal_wait {
	__u32	size;
	__u32	flags;
	__aligned_u64 signals;
	__u32	count;
	__u32	index;
	__aligned_s64 deadline_ns;
	__u32	gone_rank;
	__u32	reserved;
};

/**
 * struct npuwin_ioc_signal_wake - ioctl(NPUWIN_IOC_SIGNAL_WAKE): look again.
 * @size: sizeof(struct npuwin_ioc_signal_wake)
 * @rank: in: whose waits, sleeping callers and parked queues alike, look at their cells
 *	again
 *
 * For who has written to @rank's window through a mapping, see
 * struct npuwin_rank_status.
 */
struct npuwin_ioc_signal_wake {
	__u32	size;
	__u32	rank;
};

#endif /* _UAPI_NPUWIN_IOCTL_H */
