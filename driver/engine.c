// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * The window engine: what one descriptor means.
 *
 * Window memory is written by processes and by other engines at any time. Nothing read
 * from it is used as an offset, a count or a pointer; the descriptor itself lies in memory
 * that only the caller writes.
 */
#include "engine.h"

#ifdef __KERNEL__
#include <linux/atomic.h>
#include <linux/kernel.h>
#include <linux/overflow.h>
#include <linux/string.h>

/* Acquires: what was written before the value that is read is visible. */
#define cell_load(p)		smp_load_acquire(p)
#define cell_set(p, v)		((void)xchg((p), (v)))
#define cell_add(p, v)		((void)atomic_fetch_add((int)(v), (atomic_t *)(p)))

static inline bool cell_replace(u32 *p, u32 old, u32 new)
{
	return cmpxchg(p, old, new) == old;
}
#else
#include <string.h>

#define check_add_overflow(a, b, d)	__builtin_add_overflow(a, b, d)
#define check_mul_overflow(a, b, d)	__builtin_mul_overflow(a, b, d)

#define cell_load(p)		__atomic_load_n((p), __ATOMIC_ACQUIRE)
#define cell_set(p, v)		__atomic_store_n((p), (v), __ATOMIC_SEQ_CST)
#define cell_add(p, v)		((void)__atomic_fetch_add((p), (v), __ATOMIC_SEQ_CST))

static inline bool cell_replace(u32 *p, u32 old, u32 new)
{
	return __atomic_compare_exchange_n(p, &old, new, false, __ATOMIC_SEQ_CST,
					   __ATOMIC_SEQ_CST);
}
#endif

/* What a step charges to its budget, see npuwin_engine_step(). */
#define COST_ROW	64
#define COST_ATOMIC	16

#define FLAGS_ANY	(NPUWIN_DESC_F_CQE)
#define FLAGS_TNOTIFY	(FLAGS_ANY | NPUWIN_DESC_F_REG)
#define FLAGS_TWAIT	(FLAGS_TNOTIFY | NPUWIN_TWAIT_F_TEST | NPUWIN_TWAIT_F_CONSUME | \
			 NPUWIN_TWAIT_F_BY_RANK)

bool npuwin_compare(s32 cell, u32 cmp, s32 value)
{
	switch (cmp) {
	case NPUWIN_CMP_EQ:
		return cell == value;
	case NPUWIN_CMP_NE:
		return cell != value;
	case NPUWIN_CMP_GT:
		return cell > value;
	case NPUWIN_CMP_GE:
		return cell >= value;
	case NPUWIN_CMP_LT:
		return cell < value;
	case NPUWIN_CMP_LE:
		return cell <= value;
	default:
		return false;
	}
}

s32 npuwin_cell_read(const void *cell)
{
	return (s32)cell_load((const u32 *)cell);
}

u32 npuwin_f32_add(u32 a, u32 b)
{
	const u32 inf = 0x7f800000, nan = 0x7fc00000, sign_bit = 0x80000000, hidden = 1 << 23;
	u32 sign, ma, mb, shift, lost;
	s32 ea, eb;

	if ((a & ~sign_bit) < (b & ~sign_bit)) {
		u32 t = a;

		a = b;
		b = t;
	}
	/* Now |a| >= |b|, so a NaN or an infinity is in a. */
	if ((a & ~sign_bit) > inf)
		return nan;
	if ((a & ~sign_bit) == inf)
		return (b ^ a) == sign_bit ? nan : a;

	sign = a & sign_bit;
	ea = (a >> 23) & 0xff;
	eb = (b >> 23) & 0xff;
	/* Three bits below the last place: guard, round and sticky. */
	ma = ((a & (hidden - 1)) | (ea ? hidden : 0)) << 3;
	mb = ((b & (hidden - 1)) | (eb ? hidden : 0)) << 3;
	ea += !ea;
	eb += !eb;

	shift = (u32)(ea - eb);
	if (shift > 31) {
		mb = mb != 0;
	} else if (shift) {
		lost = mb << (32 - shift);
		mb = (mb >> shift) | (lost != 0);
	}

	if ((a ^ b) & sign_bit) {
		ma -= mb;
		if (!ma)
			return 0;
		while (ma < (hidden << 3) && ea > 1) {
			ma <<= 1;
			ea--;
		}
	} else {
		ma += mb;
		if (ma >= (hidden << 4)) {
			ma = (ma >> 1) | (ma & 1);
			ea++;
		}
	}
	if (ea >= 0xff)
		return sign | inf;

	lost = ma & 7;
	ma >>= 3;
	if (lost > 4 || (lost == 4 && (ma & 1)))
		ma++;
	/* The hidden bit, or a carry out of rounding, adds itself to the exponent. */
	return sign | (((u32)(ea - 1) << 23) + ma);
}

static void f32_add_to(u32 *cell, u32 value)
{
	u32 old;

	do {
		old = cell_load(cell);
	} while (!cell_replace(cell, old, npuwin_f32_add(old, value)));
}

/* Whether @rows rows of @bytes bytes, @stride apart, lie at @off within @size. */
static bool within(u64 off, u64 rows, u64 stride, u64 bytes, u64 size)
{
	u64 end;

	if (!rows || !bytes)
		return true;
	return !check_mul_overflow(rows - 1, stride, &end) &&
	       !check_add_overflow(end, bytes, &end) &&
	       !check_add_overflow(end, off, &end) && end <= size;
}

/* A TPUT checked and resolved: what is left is to move bytes. */
struct put {
	u8 *src;
	u8 *dst;
	u64 rows;
	u64 row_bytes;
	u64 src_stride;
	u64 dst_stride;
};

static u32 put_resolve(const struct npuwin_engine *engine, const struct npuwin_desc *desc,
		       struct put *put)
{
	struct npuwin_span src, dst;
	u32 status;

	if (desc->flags & ~FLAGS_ANY || desc->sub > NPUWIN_PUT_ADD_F32 || desc->reserved0 ||
	    desc->value)
		return NPUWIN_ST_FLAGS;
	if (desc->rank >= engine->nranks)
		return NPUWIN_ST_RANK;
	if (desc->rows > 1 &&
	    (desc->src_stride < desc->row_bytes || desc->dst_stride < desc->row_bytes))
		return NPUWIN_ST_RANGE;
	if (desc->sub != NPUWIN_PUT_COPY &&
	    (desc->src_off | desc->dst_off | desc->row_bytes |
	     (desc->rows > 1 ? desc->src_stride | desc->dst_stride : 0)) & 3)
		return NPUWIN_ST_ALIGN;

	status = engine->ops->resolve(engine->priv, engine->rank, NPUWIN_SPACE_WINDOW, &src);
	if (!status)
		status = engine->ops->resolve(engine->priv, desc->rank, NPUWIN_SPACE_WINDOW, &dst);
	if (status)
		return status;
	if (!within(desc->src_off, desc->rows, desc->src_stride, desc->row_bytes, src.size) ||
	    !within(desc->dst_off, desc->rows, desc->dst_stride, desc->row_bytes, dst.size))
		return NPUWIN_ST_BOUNDS;

	put->rows = desc->row_bytes ? desc->rows : 0;
	put->row_bytes = desc->row_bytes;
	put->src_stride = desc->src_stride;
	put->dst_stride = desc->dst_stride;
	if (!put->rows)
		return NPUWIN_ST_OK;
	put->src = (u8 *)src.base + desc->src_off;
	put->dst = (u8 *)dst.base + desc->dst_off;
	/* Rows without gaps are one row, unless they may overlap and their order matters. */
	if (desc->rank != engine->rank && put->src_stride == put->row_bytes &&
	    put->dst_stride == put->row_bytes) {
		put->row_bytes *= put->rows;
		put->rows = 1;
	}
	return NPUWIN_ST_OK;
}

static void put_bytes(u8 *dst, const u8 *src, u64 row_bytes, u64 done, u64 n)
{
	/* A row that overlaps forwards is moved from its end, chunk by chunk. */
	u64 at = dst > src && dst < src + row_bytes ? row_bytes - done - n : done;

	memmove(dst + at, src + at, n);
}

static void put_add(u8 *dst, const u8 *src, u64 n, u32 sub)
{
	const u32 *from = (const u32 *)src;
	u32 *to = (u32 *)dst;
	u64 i;

	for (i = 0; i < n / 4; i++) {
		if (sub == NPUWIN_PUT_ADD_I32)
			cell_add(&to[i], cell_load(&from[i]));
		else
			f32_add_to(&to[i], cell_load(&from[i]));
	}
}

static enum npuwin_exec do_put(const struct npuwin_engine *engine,
			       const struct npuwin_desc *desc, struct npuwin_cursor *cursor,
			       u64 budget, struct npuwin_cqe *cqe)
{
	struct put put;

	cqe->rank = desc->rank;
	cqe->status = put_resolve(engine, desc, &put);
	if (cqe->status)
		return NPUWIN_EXEC_DONE;

	while (cursor->row < put.rows) {
		const u8 *src = put.src + cursor->row * put.src_stride;
		u8 *dst = put.dst + cursor->row * put.dst_stride;
		u64 left = put.row_bytes - cursor->byte;
		u64 n, cost;

		if (!budget)
			return NPUWIN_EXEC_AGAIN;
		if (desc->sub == NPUWIN_PUT_COPY) {
			n = left < budget ? left : budget;
			put_bytes(dst, src, put.row_bytes, cursor->byte, n);
			cost = n;
		} else {
			n = budget / COST_ATOMIC * 4;
			if (n < 4)
				n = 4;
			if (n > left)
				n = left;
			put_add(dst + cursor->byte, src + cursor->byte, n, desc->sub);
			cost = n / 4 * COST_ATOMIC;
		}
		if (n < left) {
			cursor->byte += n;
			return NPUWIN_EXEC_AGAIN;
		}
		cursor->row++;
		cursor->byte = 0;
		if (cost < COST_ROW)
			cost = COST_ROW;
		budget = budget > cost ? budget - cost : 0;
	}
	return NPUWIN_EXEC_DONE;
}

static enum npuwin_exec do_notify(const struct npuwin_engine *engine,
				  const struct npuwin_desc *desc, struct npuwin_cqe *cqe)
{
	enum npuwin_space space = desc->flags & NPUWIN_DESC_F_REG ? NPUWIN_SPACE_REG :
								    NPUWIN_SPACE_WINDOW;
	struct npuwin_span dst;
	u32 *cell;

	cqe->rank = desc->rank;
	if (desc->flags & ~FLAGS_TNOTIFY || desc->sub > NPUWIN_NOTIFY_ADD || desc->reserved0 ||
	    desc->src_off || desc->rows || desc->row_bytes || desc->src_stride ||
	    desc->dst_stride)
		cqe->status = NPUWIN_ST_FLAGS;
	else if (desc->rank >= engine->nranks)
		cqe->status = NPUWIN_ST_RANK;
	else if (desc->dst_off & 3)
		cqe->status = NPUWIN_ST_ALIGN;
	else
		cqe->status = engine->ops->resolve(engine->priv, desc->rank, space, &dst);
	if (cqe->status)
		return NPUWIN_EXEC_DONE;
	if (!within(desc->dst_off, 1, 0, sizeof(*cell), dst.size)) {
		cqe->status = NPUWIN_ST_BOUNDS;
		return NPUWIN_EXEC_DONE;
	}

	cell = (u32 *)((u8 *)dst.base + desc->dst_off);
	if (desc->sub == NPUWIN_NOTIFY_SET)
		cell_set(cell, (u32)desc->value);
	else
		cell_add(cell, (u32)desc->value);
	engine->ops->notified(engine->priv, desc->rank);
	return NPUWIN_EXEC_DONE;
}

/* Whether the cell compares; takes the credit if it is one. @seen is what it read. */
static bool wait_cell(u32 *cell, const struct npuwin_desc *desc, s32 *seen)
{
	u32 old;

	do {
		old = cell_load(cell);
		*seen = (s32)old;
		if (!npuwin_compare((s32)old, desc->sub, desc->value))
			return false;
		if (!(desc->flags & NPUWIN_TWAIT_F_CONSUME))
			return true;
	} while (!cell_replace(cell, old, old - (u32)desc->value));
	return true;
}

static u32 wait_resolve(const struct npuwin_engine *engine, const struct npuwin_desc *desc,
			struct npuwin_span *span)
{
	enum npuwin_space space = desc->flags & NPUWIN_DESC_F_REG ? NPUWIN_SPACE_REG :
								    NPUWIN_SPACE_WINDOW;
	u32 status;

	if (desc->flags & ~FLAGS_TWAIT || desc->sub > NPUWIN_CMP_LE || desc->reserved0 ||
	    desc->rank || desc->dst_off || desc->row_bytes)
		return NPUWIN_ST_FLAGS;
	if (!desc->rows || desc->deadline_ns < 0 || (desc->rows > 1 && desc->src_stride < 4))
		return NPUWIN_ST_RANGE;
	if (desc->flags & NPUWIN_TWAIT_F_BY_RANK && desc->rows != engine->nranks)
		return NPUWIN_ST_RANGE;
	if ((desc->src_off | desc->src_stride) & 3)
		return NPUWIN_ST_ALIGN;
	status = engine->ops->resolve(engine->priv, engine->rank, space, span);
	if (status)
		return status;
	if (!within(desc->src_off, desc->rows, desc->src_stride, 4, span->size))
		return NPUWIN_ST_BOUNDS;
	return NPUWIN_ST_OK;
}

static enum npuwin_exec do_wait(const struct npuwin_engine *engine,
				const struct npuwin_desc *desc, struct npuwin_cursor *cursor,
				u64 budget, struct npuwin_cqe *cqe)
{
	struct npuwin_span span;
	u8 *cells;
	s32 seen;

	cqe->status = wait_resolve(engine, desc, &span);
	if (cqe->status)
		return NPUWIN_EXEC_DONE;

	cells = (u8 *)span.base + desc->src_off;
	for (; cursor->row < desc->rows; cursor->row++) {
		if (!budget)
			return NPUWIN_EXEC_AGAIN;
		budget = budget > COST_ROW ? budget - COST_ROW : 0;
		if (wait_cell((u32 *)(cells + cursor->row * desc->src_stride), desc, &seen))
			continue;
		cqe->cell = (u32)cursor->row;
		cqe->value = seen;
		if (desc->flags & NPUWIN_TWAIT_F_BY_RANK)
			cqe->rank = (u32)cursor->row;
		if (!(desc->flags & NPUWIN_TWAIT_F_TEST))
			return NPUWIN_EXEC_BLOCKED;
		cqe->status = NPUWIN_ST_MISMATCH;
		return NPUWIN_EXEC_DONE;
	}
	return NPUWIN_EXEC_DONE;
}

static enum npuwin_exec do_nop(const struct npuwin_desc *desc, struct npuwin_cqe *cqe)
{
	if (desc->flags & ~FLAGS_ANY || desc->sub || desc->reserved0 || desc->rank ||
	    desc->src_off || desc->dst_off || desc->rows || desc->value || desc->row_bytes ||
	    desc->src_stride || desc->dst_stride)
		cqe->status = NPUWIN_ST_FLAGS;
	return NPUWIN_EXEC_DONE;
}

enum npuwin_exec npuwin_engine_step(const struct npuwin_engine *engine,
				    const struct npuwin_desc *desc,
				    struct npuwin_cursor *cursor, u64 budget,
				    struct npuwin_cqe *cqe)
{
	cqe->user_data = desc->user_data;
	cqe->status = NPUWIN_ST_OK;
	cqe->rank = NPUWIN_NO_RANK;
	cqe->cell = 0;
	cqe->value = 0;

	switch (desc->opcode) {
	case NPUWIN_OP_NOP:
		return do_nop(desc, cqe);
	case NPUWIN_OP_TPUT:
		return do_put(engine, desc, cursor, budget, cqe);
	case NPUWIN_OP_TNOTIFY:
		return do_notify(engine, desc, cqe);
	case NPUWIN_OP_TWAIT:
		return do_wait(engine, desc, cursor, budget, cqe);
	default:
		cqe->status = NPUWIN_ST_OPCODE;
		return NPUWIN_EXEC_DONE;
	}
}
