/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
/*
 * Descriptors and completions of an NPU window engine.
 *
 * One 64-byte descriptor serves the SUBMIT ioctl, the runtime's software
 * engine and a device's submission ring; one 32-byte completion serves them on
 * the way back. All fields are little-endian. Every reserved byte must be zero:
 * an engine rejects a descriptor that has one set, so that it can get a meaning
 * later.
 */
#ifndef _UAPI_NPUWIN_DESC_H
#define _UAPI_NPUWIN_DESC_H

#include <linux/types.h>

/* Older kernels have the unsigned one only. */
#ifndef __aligned_s64
#define __aligned_s64 __s64 __attribute__((aligned(8)))
#endif

/**
 * DOC: Opcodes
 *
 * A queue executes its descriptors in order: when a descriptor is complete, the
 * effects of all earlier ones of that queue are visible to every rank. There is
 * no order between queues other than the one that TNOTIFY and TWAIT make: what
 * a queue wrote before a TNOTIFY is visible to whoever saw that TNOTIFY's value.
 *
 * NPUWIN_OP_NOP: does nothing, in order. With %NPUWIN_DESC_F_CQE it is the fence
 * that tells when everything before it is complete.
 *
 * NPUWIN_OP_TPUT: writes @rows rows of @row_bytes bytes from the queue's own
 * window into the window of @rank. Row i is read at @src_off + i * @src_stride
 * and written at @dst_off + i * @dst_stride. Zero rows or zero bytes are valid
 * and move nothing. Strides may be smaller than a row only for @rows <= 1. Where
 * source and destination overlap (same rank), each row is moved as by memmove,
 * in ascending order of rows.
 *
 * NPUWIN_OP_TNOTIFY: stores or atomically adds @value to the int32 at @dst_off of
 * @rank, after all earlier writes of the queue, and wakes who waits there.
 *
 * NPUWIN_OP_TWAIT: waits until each of @rows int32 cells of the queue's own window,
 * cell i at @src_off + i * @src_stride, compares @sub with @value. Cells are
 * looked at in ascending order, and one that has compared is not looked at again.
 * @deadline_ns bounds it.
 */
#define NPUWIN_OP_NOP		0
#define NPUWIN_OP_TPUT		1
#define NPUWIN_OP_TNOTIFY	2
#define NPUWIN_OP_TWAIT		3

/* Descriptor flags, any opcode. */
/** NPUWIN_DESC_F_CQE: post a completion on success too. Failures always post one. */
#define NPUWIN_DESC_F_CQE	0x01
/**
 * NPUWIN_DESC_F_REG: the int32 is a notify register, not window memory: the offset
 * (@dst_off of TNOTIFY, @src_off of TWAIT) is 4 * register number. TNOTIFY and
 * TWAIT only.
 */
#define NPUWIN_DESC_F_REG	0x02

/* Descriptor flags of TWAIT. */
/**
 * NPUWIN_TWAIT_F_TEST: look once. A cell that does not compare ends the batch with
 * %NPUWIN_ST_MISMATCH; later batches of the queue still run.
 */
#define NPUWIN_TWAIT_F_TEST	0x10
/**
 * NPUWIN_TWAIT_F_CONSUME: when a cell compares, atomically subtract @value from it:
 * a credit taken. What others add meanwhile is kept. On failure the cells before
 * the failing one have been consumed.
 */
#define NPUWIN_TWAIT_F_CONSUME	0x20
/**
 * NPUWIN_TWAIT_F_BY_RANK: cell i is written by rank i, so @rows is the domain's
 * number of ranks. If rank i has left or died and cell i does not compare, the
 * wait ends with %NPUWIN_ST_PEER at once.
 */
#define NPUWIN_TWAIT_F_BY_RANK	0x40

/* struct npuwin_desc.sub of TPUT: how a row is written. */
#define NPUWIN_PUT_COPY		0	/* bytes, any alignment */
#define NPUWIN_PUT_ADD_I32	1	/* atomic add of each int32, wrapping */
#define NPUWIN_PUT_ADD_F32	2	/* atomic add of each fp32, IEEE 754, to nearest even */

/* struct npuwin_desc.sub of TNOTIFY. */
#define NPUWIN_NOTIFY_SET	0
#define NPUWIN_NOTIFY_ADD	1	/* wraps modulo 2^32 */

/* struct npuwin_desc.sub of TWAIT, and wherever an int32 is compared: cell OP value. */
#define NPUWIN_CMP_EQ		0
#define NPUWIN_CMP_NE		1
#define NPUWIN_CMP_GT		2
#define NPUWIN_CMP_GE		3
#define NPUWIN_CMP_LT		4
#define NPUWIN_CMP_LE		5

/** NPUWIN_NO_DEADLINE: a wait without a bound. */
#define NPUWIN_NO_DEADLINE	0x7fffffffffffffffLL

/**
 * struct npuwin_desc - One piece of work for an engine, 64 bytes.
 * @opcode: NPUWIN_OP_*
 * @flags: NPUWIN_DESC_F_* and, for TWAIT, NPUWIN_TWAIT_F_*
 * @sub: NPUWIN_PUT_* for TPUT, NPUWIN_NOTIFY_* for TNOTIFY, NPUWIN_CMP_* for TWAIT
 * @reserved0: zero
 * @rank: destination rank of TPUT and TNOTIFY (may be the own one); otherwise zero
 * @user_data: comes back in the completion
 * @src_off: byte offset in the own window: first row of TPUT, first cell of TWAIT
 *	(with %NPUWIN_DESC_F_REG: in the own notify registers); otherwise zero
 * @dst_off: byte offset in @rank's window: first row of TPUT, cell of TNOTIFY
 *	(with %NPUWIN_DESC_F_REG: in @rank's notify registers); otherwise zero
 * @rows: rows of TPUT, cells of TWAIT (at least 1); otherwise zero
 * @value: operand of TNOTIFY and TWAIT; otherwise zero
 * @row_bytes: bytes in a row of TPUT; otherwise zero
 * @src_stride: bytes from row to row (TPUT) or cell to cell (TWAIT; a multiple of
 *	4, and at least 4 where @rows > 1); otherwise zero
 * @dst_stride: bytes from row to row at the destination (TPUT)
 * @deadline_ns: of TWAIT, in the place of @dst_stride: absolute CLOCK_MONOTONIC
 *	time, %NPUWIN_NO_DEADLINE for none; negative is invalid. Zero for the rest
 *
 * int32 and fp32 operands (cells, and rows of the adding TPUTs: offsets, strides and
 * row bytes) are aligned to 4 bytes.
 */
struct npuwin_desc {
	__u8	opcode;
	__u8	flags;
	__u8	sub;
	__u8	reserved0;
	__u32	rank;
	__aligned_u64 user_data;
	__aligned_u64 src_off;
	__aligned_u64 dst_off;
	__u32	rows;
	__s32	value;
	__aligned_u64 row_bytes;
	__aligned_u64 src_stride;
	union {
		__aligned_u64 dst_stride;
		__aligned_s64 deadline_ns;
	};
};

/**
 * DOC: Completion status
 *
 * A descriptor that fails ends its batch: what is left of the batch is not executed.
 * After %NPUWIN_ST_MISMATCH the queue goes on with the next batch. After any other
 * failure the queue stops until it is reset: all that is in it completes with
 * %NPUWIN_ST_CANCELLED. SUBMIT takes nothing more then; what still comes on a device's
 * submission ring is cancelled likewise. Of a batch that ended early only the failing
 * descriptor posts a completion; of each cancelled batch its last descriptor does.
 */
#define NPUWIN_ST_OK		0	/* done and visible */
#define NPUWIN_ST_OPCODE	1	/* unknown opcode */
#define NPUWIN_ST_FLAGS		2	/* unknown flag or sub, or reserved field set */
#define NPUWIN_ST_RANK		3	/* rank out of range */
#define NPUWIN_ST_BOUNDS	4	/* source or destination outside its window */
#define NPUWIN_ST_ALIGN		5	/* int32 or fp32 operand misaligned */
#define NPUWIN_ST_RANGE		6	/* count, stride or deadline out of range */
#define NPUWIN_ST_MISMATCH	7	/* TEST: a cell did not compare */
#define NPUWIN_ST_TIMEOUT	8	/* deadline passed */
#define NPUWIN_ST_PEER		9	/* the rank named in the completion is gone */
#define NPUWIN_ST_ABORTED	10	/* the domain was aborted or is being reset */
#define NPUWIN_ST_CANCELLED	11	/* not executed: an earlier one failed */
#define NPUWIN_ST_DEVICE	12	/* the device is gone or failed */

/** NPUWIN_NO_RANK: in a rank field, no rank at all. */
#define NPUWIN_NO_RANK		0xffffffffU

/**
 * struct npuwin_cqe - Completion of one descriptor, 32 bytes.
 * @user_data: of the descriptor
 * @seq: number of the descriptor in its queue, counted from 0 at creation
 * @status: NPUWIN_ST_*
 * @rank: rank that the status is about (destination, or the one that is gone or that
 *	did not arrive), or %NPUWIN_NO_RANK
 * @cell: TWAIT: the cell that did not compare; TPUT: zero
 * @value: TWAIT: what that cell last read; otherwise zero
 */
struct npuwin_cqe {
	__aligned_u64 user_data;
	__aligned_u64 seq;
	__u32	status;
	__u32	rank;
	__u32	cell;
	__s32	value;
};

/* States of a rank in a domain. */
#define NPUWIN_RANK_EMPTY	0	/* nobody has joined */
#define NPUWIN_RANK_JOINED	1
#define NPUWIN_RANK_LEFT	2	/* left in order: had nothing more to do */
#define NPUWIN_RANK_DEAD	3	/* its process or device went away */

/* States of a domain. */
#define NPUWIN_DOMAIN_FORMING	0	/* not every rank has joined and committed */
#define NPUWIN_DOMAIN_READY	1
#define NPUWIN_DOMAIN_ABORTED	2	/* until every surviving rank has called reset */

/**
 * struct npuwin_rank_status - What everybody may know of a rank.
 * @state: NPUWIN_RANK_*
 * @sleepers: how many waits sleep on this rank's window or notify registers. Who has
 *	written there himself (not through an engine) executes a full memory barrier,
 *	reads this and, where it is not zero, calls the wake of his provider.
 */
struct npuwin_rank_status {
	__u32	state;
	__u32	sleepers;
};

/**
 * struct npuwin_domain_status - The domain's status page, mapped read-only.
 * @state: NPUWIN_DOMAIN_*
 * @generation: 0 at creation, one more for each completed reset
 * @abort_rank: of an aborted domain: the rank that died or that called abort
 * @abort_error: of an aborted domain: errno (positive); EPIPE for a death
 * @nranks: number of ranks, and of elements of @rank
 * @reserved: zero
 * @rank: by rank
 *
 * It lets a spinning wait see an abort without a system call.
 */
struct npuwin_domain_status {
	__u32	state;
	__u32	generation;
	__u32	abort_rank;
	__s32	abort_error;
	__u32	nranks;
	__u32	reserved[11];
	struct npuwin_rank_status rank[];
};

/** NPUWIN_NOTIFY_REGS: int32 notify registers of each rank (4096 bytes). */
#define NPUWIN_NOTIFY_REGS	1024
/** NPUWIN_MAX_RANKS: ranks in a domain at most. */
#define NPUWIN_MAX_RANKS	1024

#endif /* _UAPI_NPUWIN_DESC_H */
