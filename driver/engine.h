/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The window engine: what one descriptor means.
 *
 * Compiled into the driver's soft backend, into the runtime and into the device
 * emulator, so that there is one meaning. It knows nothing of clocks, locks or
 * sleeping: who calls it does.
 */
#ifndef NPUWIN_ENGINE_H
#define NPUWIN_ENGINE_H

#ifdef __KERNEL__
#include <linux/types.h>
#else
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
typedef uint8_t u8;
typedef uint32_t u32;
typedef int32_t s32;
typedef uint64_t u64;
typedef int64_t s64;
#endif

#include "npuwin_desc.h"

/**
 * enum npuwin_space - What an offset counts in.
 * @NPUWIN_SPACE_WINDOW: the rank's window
 * @NPUWIN_SPACE_REG: the rank's notify registers
 */
enum npuwin_space {
	NPUWIN_SPACE_WINDOW,
	NPUWIN_SPACE_REG,
};

/**
 * struct npuwin_span - A stretch of memory.
 * @base: first byte, aligned to 4 at least
 * @size: bytes
 */
struct npuwin_span {
	void *base;
	u64 size;
};

/**
 * struct npuwin_engine_ops - What the engine needs of its surroundings.
 * @resolve: find the memory of @rank, which is less than the engine's nranks. Returns
 *	NPUWIN_ST_OK, or NPUWIN_ST_PEER where the rank is gone, or another NPUWIN_ST_*.
 *	The span must stay valid until the step returns
 * @notified: an int32 of @rank has been written by a TNOTIFY, fully ordered before this
 *	call: wake who waits there
 */
struct npuwin_engine_ops {
	u32 (*resolve)(void *priv, u32 rank, enum npuwin_space space, struct npuwin_span *span);
	void (*notified)(void *priv, u32 rank);
};

/**
 * struct npuwin_engine - An engine as one rank's queue sees it.
 * @ops: its surroundings
 * @priv: passed to @ops
 * @rank: own rank, whose window is the source of TPUT and the place of TWAIT
 * @nranks: ranks in the domain
 */
struct npuwin_engine {
	const struct npuwin_engine_ops *ops;
	void *priv;
	u32 rank;
	u32 nranks;
};

/**
 * struct npuwin_cursor - How far a descriptor has been executed. All zero at the start.
 * @row: TPUT: rows written; TWAIT: cells that have compared
 * @byte: TPUT: bytes of the current row written
 */
struct npuwin_cursor {
	u64 row;
	u64 byte;
};

/**
 * enum npuwin_exec - What became of a step.
 * @NPUWIN_EXEC_DONE: the descriptor is complete; the completion's status says how
 * @NPUWIN_EXEC_AGAIN: the budget is used up: step again with the same cursor
 * @NPUWIN_EXEC_BLOCKED: a TWAIT's cell does not compare: the completion's cell and value
 *	name it. Step again when that rank has been notified, or end it
 */
enum npuwin_exec {
	NPUWIN_EXEC_DONE,
	NPUWIN_EXEC_AGAIN,
	NPUWIN_EXEC_BLOCKED,
};

/**
 * npuwin_compare() - Whether "cell cmp value" holds.
 * @cell: left side
 * @cmp: NPUWIN_CMP_*; anything else never holds
 * @value: right side
 *
 * Return: true if it holds.
 */
bool npuwin_compare(s32 cell, u32 cmp, s32 value);

/**
 * npuwin_cell_read() - Read an int32 that others write.
 * @cell: aligned to 4
 *
 * Return: its value; what was written before that value was stored is visible.
 */
s32 npuwin_cell_read(const void *cell);

/**
 * npuwin_engine_step() - Execute a descriptor, or go on with it.
 * @engine: whose
 * @desc: the descriptor, in memory that nobody else can write
 * @cursor: how far it is; zeroed by the caller before the first step
 * @budget: bytes that a TPUT may write in this step, not zero; one atomic int32 or fp32
 *	counts 16 bytes and a row at least 64, as does a cell that a TWAIT looks at
 * @cqe: out: status, rank, cell and value; user_data from @desc; seq is left alone
 *
 * Everything is checked before the first byte of the first step moves. Deadlines,
 * departures and aborts are the caller's to look at when it is blocked.
 *
 * Return: see enum npuwin_exec.
 */
enum npuwin_exec npuwin_engine_step(const struct npuwin_engine *engine,
				    const struct npuwin_desc *desc,
				    struct npuwin_cursor *cursor, u64 budget,
				    struct npuwin_cqe *cqe);

/**
 * npuwin_f32_add() - Add two fp32 in their bit patterns.
 * @a: IEEE 754 binary32
 * @b: IEEE 754 binary32
 *
 * Round to nearest, ties to even, subnormals kept; any NaN gives the quiet NaN
 * 0x7fc00000, as does infinity minus infinity. In integers, since a kernel has no FPU to
 * itself, and so that every engine gives the same bits.
 *
 * Return: the sum.
 */
u32 npuwin_f32_add(u32 a, u32 b);

#endif /* NPUWIN_ENGINE_H */
