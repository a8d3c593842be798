/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
/*
 * Registers, rings and commands of an NPU window device.
 *
 * Documentation/hardware.rst says what they mean; this header only has the places and
 * the numbers. All of it lies in the function's memory (BAR2), is little-endian and
 * naturally aligned. A word has one writer, the device or the host, for ever; neither
 * believes what it reads of the other's.
 */
#ifndef _UAPI_NPUWIN_HW_H
#define _UAPI_NPUWIN_HW_H

#include <linux/types.h>

#include "npuwin_desc.h"

/* The PCI function that carries it, and its BARs. */
#define NPUWIN_HW_PCI_VENDOR	0x1af4
#define NPUWIN_HW_PCI_DEVICE	0x1110
#define NPUWIN_HW_BAR_DOORBELL	0
#define NPUWIN_HW_BAR_MSIX	1
#define NPUWIN_HW_BAR_MEMORY	2

/* BAR0. 32-bit accesses only. */
#define NPUWIN_HW_REG_IVPOSITION	0x8	/* read: the host's own peer id */
#define NPUWIN_HW_REG_DOORBELL		0xc	/* write: NPUWIN_HW_DOORBELL() */
/** NPUWIN_HW_DOORBELL() - What rings doorbell @number of the device with peer id @peer. */
#define NPUWIN_HW_DOORBELL(peer, number)	((__u32)(peer) << 16 | (number))

/* BAR2. The first two pages have fixed places; struct npuwin_hw_ident names the rest. */
#define NPUWIN_HW_PAGE		4096
#define NPUWIN_HW_IDENT		0x0000	/* struct npuwin_hw_ident, written by the device */
#define NPUWIN_HW_STATUS	0x0400	/* struct npuwin_hw_status, written by the device */
#define NPUWIN_HW_CONTROL	0x1000	/* struct npuwin_hw_control, written by the host */

#define NPUWIN_HW_MAGIC		"NPUWIN-H"	/* 8 bytes, no NUL */
#define NPUWIN_HW_REVISION	0x00010000	/* major << 16 | minor */

/* Limits of this revision, whatever a device says of itself. */
#define NPUWIN_HW_MAX_VECTORS	64
#define NPUWIN_HW_MAX_QUEUES	4096
#define NPUWIN_HW_MAX_ENDPOINTS	4096
#define NPUWIN_HW_MAX_DEPTH	65536	/* of any ring */
#define NPUWIN_HW_RING_ALIGN	64	/* of rings and tables in the ring memory */

/* struct npuwin_hw_ident.caps */
#define NPUWIN_HW_CAP_ADD_I32	(1ULL << 0)	/* NPUWIN_PUT_ADD_I32 */
#define NPUWIN_HW_CAP_ADD_F32	(1ULL << 1)	/* NPUWIN_PUT_ADD_F32 */

/**
 * struct npuwin_hw_region - A stretch of BAR2.
 * @offset: of its first byte, a multiple of %NPUWIN_HW_PAGE
 * @size: bytes
 */
struct npuwin_hw_region {
	__aligned_u64 offset;
	__aligned_u64 size;
};

/**
 * struct npuwin_hw_ident - What the device is. At %NPUWIN_HW_IDENT; never changes while a
 * host is connected.
 * @magic: %NPUWIN_HW_MAGIC; written last
 * @revision: %NPUWIN_HW_REVISION
 * @ident_size: bytes of this structure that the device has filled in
 * @caps: NPUWIN_HW_CAP_*
 * @fabric_id: names the device on its fabric, not zero
 * @peer: peer id for %NPUWIN_HW_DOORBELL()
 * @doorbells: doorbells that the device listens to, 1..%NPUWIN_HW_MAX_VECTORS
 * @vectors: interrupt vectors that it can signal, 1..%NPUWIN_HW_MAX_VECTORS
 * @max_queues: queues
 * @max_depth: entries of a queue's ring, a power of two
 * @max_endpoints: endpoints
 * @max_ranks: ranks of a domain, up to %NPUWIN_MAX_RANKS
 * @notify_regs: notify registers of an endpoint, always %NPUWIN_NOTIFY_REGS
 * @admin_depth: slots of the admin ring, a power of two
 * @event_depth: slots of the event queue, a power of two
 * @heartbeat_ms: how often @heartbeat of struct npuwin_hw_status grows, at least
 * @window_align: sizes and offsets of windows are multiples of it; a power of two, not
 *	below %NPUWIN_HW_PAGE
 * @firmware: what runs the device, NUL-padded text
 * @reserved: zero
 * @admin_requests: @admin_depth struct npuwin_hw_request, written by the host
 * @admin_responses: @admin_depth struct npuwin_hw_response, written by the device
 * @events: @event_depth struct npuwin_hw_event, written by the device
 * @queue_posts: @max_queues struct npuwin_hw_queue_post, written by the host
 * @queue_states: @max_queues struct npuwin_hw_queue_state, written by the device
 * @endpoint_arms: @max_endpoints struct npuwin_hw_endpoint_arm, written by the host
 * @endpoint_states: @max_endpoints struct npuwin_hw_endpoint_state, written by the device
 * @notify: notify registers, 4 * @notify_regs bytes for each endpoint
 * @rings: where the host places rings and tables, and nothing a peer can write
 * @windows: where the host places windows
 */
struct npuwin_hw_ident {
	__u8	magic[8];
	__u32	revision;
	__u32	ident_size;
	__aligned_u64 caps;
	__aligned_u64 fabric_id;
	__u32	peer;
	__u32	doorbells;
	__u32	vectors;
	__u32	max_queues;
	__u32	max_depth;
	__u32	max_endpoints;
	__u32	max_ranks;
	__u32	notify_regs;
	__u32	admin_depth;
	__u32	event_depth;
	__u32	heartbeat_ms;
	__u32	window_align;
	__u8	firmware[32];
	__u8	reserved[48];
	struct npuwin_hw_region admin_requests;
	struct npuwin_hw_region admin_responses;
	struct npuwin_hw_region events;
	struct npuwin_hw_region queue_posts;
	struct npuwin_hw_region queue_states;
	struct npuwin_hw_region endpoint_arms;
	struct npuwin_hw_region endpoint_states;
	struct npuwin_hw_region notify;
	struct npuwin_hw_region rings;
	struct npuwin_hw_region windows;
};

/* struct npuwin_hw_status.state */
#define NPUWIN_HW_RESET		0	/* waits to be enabled; does nothing */
#define NPUWIN_HW_READY		1	/* takes commands and executes queues */
#define NPUWIN_HW_FAULT		2	/* failed: only a reset helps */
#define NPUWIN_HW_RESETTING	3	/* a reset is going on */

/* struct npuwin_hw_status.fault */
#define NPUWIN_HW_FAULT_NONE	0
#define NPUWIN_HW_FAULT_ADMIN	1	/* more requests posted than the admin ring has slots */
#define NPUWIN_HW_FAULT_DEVICE	2	/* the device itself */

/**
 * struct npuwin_hw_status - What goes on. At %NPUWIN_HW_STATUS, written by the device.
 * @state: NPUWIN_HW_RESET and its like
 * @fault: NPUWIN_HW_FAULT_*, why @state is %NPUWIN_HW_FAULT
 * @reset_ack: the reset of struct npuwin_hw_control that was done last; zero before the
 *	first
 * @reserved0: zero
 * @heartbeat: grows while the device lives, in whatever state
 * @clock: the device's clock when @heartbeat last grew, ns
 * @reserved1: zero
 * @admin_done: requests that have been answered, free-running
 * @reserved2: zero
 * @event_tail: events posted, free-running
 * @event_lost: events for which there was no room, free-running
 * @reserved3: zero
 * @doorbells: doorbells received
 * @interrupts: interrupts signalled
 * @descriptors: descriptors that are through, in whatever way
 * @bytes: bytes of TPUTs that succeeded
 * @errors: descriptors that failed, %NPUWIN_ST_MISMATCH and cancelled ones not counted
 * @steps: steps that have brought a descriptor on, or to its end
 * @reserved4: zero
 *
 * The counters run on over resets. They may lag behind what they count, up to one
 * heartbeat.
 */
struct npuwin_hw_status {
	__u32	state;
	__u32	fault;
	__u32	reset_ack;
	__u32	reserved0;
	__aligned_u64 heartbeat;
	__aligned_u64 clock;
	__u32	reserved1[8];
	__u32	admin_done;
	__u32	reserved2[15];
	__u32	event_tail;
	__u32	event_lost;
	__u32	reserved3[14];
	__aligned_u64 doorbells;
	__aligned_u64 interrupts;
	__aligned_u64 descriptors;
	__aligned_u64 bytes;
	__aligned_u64 errors;
	__aligned_u64 steps;
	__aligned_u64 reserved4[2];
};

/**
 * struct npuwin_hw_control - What the host wants. At %NPUWIN_HW_CONTROL, written by the
 * host.
 * @reset: a number that is not zero and differs from @reset_ack of struct npuwin_hw_status
 *	asks for a reset
 * @enable: the number of the reset just done lets the device go to %NPUWIN_HW_READY
 * @reserved0: not read
 * @admin_tail: requests posted, free-running
 * @reserved1: not read
 * @event_head: events taken, free-running
 * @reserved2: not read
 */
struct npuwin_hw_control {
	__u32	reset;
	__u32	enable;
	__u32	reserved0[14];
	__u32	admin_tail;
	__u32	reserved1[15];
	__u32	event_head;
	__u32	reserved2[15];
};

/* ---- the admin ring ------------------------------------------------------------- */

/* struct npuwin_hw_request.opcode */
#define NPUWIN_HW_CMD_NOP		0
#define NPUWIN_HW_CMD_CLOCK		1
#define NPUWIN_HW_CMD_BIND		2
#define NPUWIN_HW_CMD_UNBIND		3
#define NPUWIN_HW_CMD_PEERS		4
#define NPUWIN_HW_CMD_PEER_STATES	5
#define NPUWIN_HW_CMD_ABORT		6
#define NPUWIN_HW_CMD_ENDPOINT_RESET	7
#define NPUWIN_HW_CMD_QUEUE_CREATE	8
#define NPUWIN_HW_CMD_QUEUE_DESTROY	9
#define NPUWIN_HW_CMD_QUEUE_RESET	10

/** NPUWIN_HW_CLOCK_F_SET: CLOCK also sets the offset. */
#define NPUWIN_HW_CLOCK_F_SET	0x0001
/** NPUWIN_HW_ABORT_F_TELL: ABORT also aborts the domain's other endpoints. */
#define NPUWIN_HW_ABORT_F_TELL	0x0001
/** NPUWIN_HW_UNBIND_F_DEAD: the rank has died; without it, it leaves in order. */
#define NPUWIN_HW_UNBIND_F_DEAD	0x0001

/**
 * struct npuwin_hw_queue_create - Argument of %NPUWIN_HW_CMD_QUEUE_CREATE.
 * @sq_offset: of the submission ring in BAR2, within the ring memory
 * @cq_offset: of the completion ring
 * @sq_depth: struct npuwin_desc in the submission ring, a power of two
 * @cq_depth: struct npuwin_cqe in the completion ring, a power of two
 * @endpoint: the endpoint whose window descriptors read and wait in
 * @vector: the interrupt vector of its completions
 * @doorbell: the doorbell that is rung for it
 * @reserved: zero
 */
struct npuwin_hw_queue_create {
	__aligned_u64 sq_offset;
	__aligned_u64 cq_offset;
	__u32	sq_depth;
	__u32	cq_depth;
	__u32	endpoint;
	__u16	vector;
	__u16	doorbell;
	__u32	reserved[4];
};

/**
 * struct npuwin_hw_bind - Argument of %NPUWIN_HW_CMD_BIND.
 * @offset: of the window in BAR2, within the window memory
 * @size: of the window
 * @rank: own rank
 * @nranks: ranks of the domain
 * @reserved: zero
 */
struct npuwin_hw_bind {
	__aligned_u64 offset;
	__aligned_u64 size;
	__u32	rank;
	__u32	nranks;
	__u32	reserved[6];
};

/**
 * struct npuwin_hw_table - Argument of %NPUWIN_HW_CMD_PEERS and %NPUWIN_HW_CMD_PEER_STATES.
 * @offset: of the table in BAR2, within the ring memory: struct npuwin_hw_peer for PEERS,
 *	bytes NPUWIN_RANK_* for PEER_STATES
 * @first: rank of its first element
 * @count: elements, not zero
 * @reserved: zero
 */
struct npuwin_hw_table {
	__aligned_u64 offset;
	__u32	first;
	__u32	count;
	__u32	reserved[8];
};

/**
 * struct npuwin_hw_abort - Argument of %NPUWIN_HW_CMD_ABORT.
 * @rank: who aborts
 * @error: why, an errno 1..4095
 * @reserved: zero
 */
struct npuwin_hw_abort {
	__u32	rank;
	__u32	error;
	__u32	reserved[10];
};

/**
 * struct npuwin_hw_clock - Argument of %NPUWIN_HW_CMD_CLOCK with %NPUWIN_HW_CLOCK_F_SET.
 * @offset: device clock minus the host's CLOCK_MONOTONIC in ns, two's complement
 * @reserved: zero
 */
struct npuwin_hw_clock {
	__aligned_u64 offset;
	__u32	reserved[10];
};

/**
 * struct npuwin_hw_request - A slot of the admin ring, 64 bytes.
 * @opcode: NPUWIN_HW_CMD_*
 * @flags: NPUWIN_HW_*_F_* of the opcode
 * @tag: comes back in the response
 * @id: endpoint or queue, where the command is about one; otherwise zero
 * @reserved: zero
 * @queue: of QUEUE_CREATE
 * @bind: of BIND
 * @table: of PEERS and PEER_STATES
 * @abort: of ABORT
 * @clock: of CLOCK
 * @raw: all of it; what a command does not use is zero
 */
struct npuwin_hw_request {
	__u16	opcode;
	__u16	flags;
	__u32	tag;
	__u32	id;
	__u32	reserved;
	union {
		struct npuwin_hw_queue_create queue;
		struct npuwin_hw_bind bind;
		struct npuwin_hw_table table;
		struct npuwin_hw_abort abort;
		struct npuwin_hw_clock clock;
		__u8	raw[48];
	};
};

/* struct npuwin_hw_response.status */
#define NPUWIN_HW_OK		0
#define NPUWIN_HW_E_OPCODE	1	/* unknown command */
#define NPUWIN_HW_E_FIELD	2	/* unknown flag, unused byte set, or value out of range */
#define NPUWIN_HW_E_ID		3	/* no such endpoint or queue */
#define NPUWIN_HW_E_BUSY	4	/* exists already, is in use, or would overlap */
#define NPUWIN_HW_E_BOUNDS	5	/* not within its region */
#define NPUWIN_HW_E_ALIGN	6	/* misaligned */
#define NPUWIN_HW_E_STATE	7	/* the endpoint is aborted or lost */
#define NPUWIN_HW_E_LIMIT	8	/* no resources left in the device */

/**
 * struct npuwin_hw_response - Answer to the request in the same slot, 32 bytes.
 * @tag: of the request
 * @status: %NPUWIN_HW_OK or NPUWIN_HW_E_*
 * @value: by command, zero where it says nothing and where it has failed
 */
struct npuwin_hw_response {
	__u32	tag;
	__u32	status;
	__aligned_u64 value[3];
};

/* ---- endpoints and peers -------------------------------------------------------- */

/**
 * struct npuwin_hw_peer - Where a rank's window is and what opens it, 48 bytes.
 * @fabric_id: its device; zero for "no such peer", the rest is then zero too
 * @offset: of the window in that device's BAR2
 * @size: of the window
 * @key: that the device gave at the bind
 * @endpoint: of that device
 * @reserved0: zero
 * @reserved1: zero
 */
struct npuwin_hw_peer {
	__aligned_u64 fabric_id;
	__aligned_u64 offset;
	__aligned_u64 size;
	__aligned_u64 key;
	__u32	endpoint;
	__u32	reserved0;
	__aligned_u64 reserved1;
};

/* struct npuwin_hw_endpoint_state.state */
#define NPUWIN_HW_EP_FREE	0	/* not bound */
#define NPUWIN_HW_EP_BOUND	1
#define NPUWIN_HW_EP_ABORTED	2	/* the domain was aborted */
#define NPUWIN_HW_EP_LOST	3	/* a rank of the domain died */

/**
 * struct npuwin_hw_endpoint_state - Of one endpoint, 64 bytes, written by the device.
 * @state: NPUWIN_HW_EP_*
 * @generation: 0 at the bind, one more for each ENDPOINT_RESET
 * @abort_rank: who aborted or died; %NPUWIN_NO_RANK while bound
 * @abort_error: errno, positive; zero while bound
 * @reserved: zero
 */
struct npuwin_hw_endpoint_state {
	__u32	state;
	__u32	generation;
	__u32	abort_rank;
	__u32	abort_error;
	__u32	reserved[12];
};

/**
 * struct npuwin_hw_endpoint_arm - Of one endpoint, 64 bytes, written by the host.
 * @arm: a new value asks for one event at the next TNOTIFY here
 * @reserved: not read
 */
struct npuwin_hw_endpoint_arm {
	__u32	arm;
	__u32	reserved[15];
};

/* ---- queues --------------------------------------------------------------------- */

/*
 * On a submission ring, @reserved0 of struct npuwin_desc belongs to the ring and not to
 * who made the descriptor. Any other bit fails the descriptor with NPUWIN_ST_FLAGS.
 */
#define NPUWIN_HW_SQE_END	0x01	/* last of its batch */
#define NPUWIN_HW_SQE_IRQ	0x02	/* with END: an interrupt when the batch is through */
#define NPUWIN_HW_SQE_REJECT	0x80	/* reserved0 was not zero: fail it */

/**
 * struct npuwin_hw_queue_post - Of one queue, 64 bytes, written by the host.
 * @sq_tail: descriptors posted, free-running
 * @cq_head: completions taken, free-running
 * @reserved: not read
 */
struct npuwin_hw_queue_post {
	__u32	sq_tail;
	__u32	cq_head;
	__u32	reserved[14];
};

/* struct npuwin_hw_queue_state.state */
#define NPUWIN_HW_Q_NONE	0	/* does not exist */
#define NPUWIN_HW_Q_RUNNING	1
#define NPUWIN_HW_Q_STOPPED	2	/* a descriptor failed: cancels all later batches */
#define NPUWIN_HW_Q_FAULT	3	/* its indices are wrong: reads and posts nothing */

/* struct npuwin_hw_queue_state.fault */
#define NPUWIN_HW_Q_FAULT_NONE	0
#define NPUWIN_HW_Q_FAULT_SQ	1	/* more posted than the submission ring holds */
#define NPUWIN_HW_Q_FAULT_CQ	2	/* no room for a completion, or more taken than posted */

/**
 * struct npuwin_hw_queue_state - Of one queue, 64 bytes, written by the device.
 * @sq_head: descriptors that are through, free-running
 * @cq_tail: completions posted, free-running
 * @state: NPUWIN_HW_Q_*
 * @fault: NPUWIN_HW_Q_FAULT_*
 * @reserved: zero
 */
struct npuwin_hw_queue_state {
	__u32	sq_head;
	__u32	cq_tail;
	__u32	state;
	__u32	fault;
	__u32	reserved[12];
};

/* ---- events --------------------------------------------------------------------- */

/* struct npuwin_hw_event.type */
#define NPUWIN_HW_EV_NOTIFIED	1	/* endpoint: a TNOTIFY came; value: the arm it answers */
#define NPUWIN_HW_EV_PEER	2	/* endpoint: the rank has gone; value: NPUWIN_RANK_* */
#define NPUWIN_HW_EV_ABORTED	3	/* endpoint: the rank aborted the domain; value: errno */
#define NPUWIN_HW_EV_QUEUE	4	/* queue: has faulted; value: NPUWIN_HW_Q_FAULT_* */

/**
 * struct npuwin_hw_event - A slot of the event queue, 32 bytes.
 * @type: NPUWIN_HW_EV_*
 * @id: endpoint or queue
 * @rank: %NPUWIN_NO_RANK where there is none
 * @value: by type
 * @reserved: zero
 */
struct npuwin_hw_event {
	__u32	type;
	__u32	id;
	__u32	rank;
	__u32	value;
	__aligned_u64 reserved[2];
};

#endif /* _UAPI_NPUWIN_HW_H */
