// SPDX-License-Identifier: MIT
/*
 * The runtime's own part of a window, and the handshake that opens every collective.
 *
 *	offset 0	ready	int32 [HANDSHAKE_SLOTS][nranks]	entry credits, by rank
 *	then		slot	128 bytes [HANDSHAKE_SLOTS][nranks]	signatures, by rank
 *	then		stage	128 bytes [HANDSHAKE_STAGES]	own signatures, to be sent
 *	then		history	16 bytes [nranks][HISTORY]	allocations, by rank
 *
 * Call n uses row n % HANDSHAKE_SLOTS of the first two. A rank enters call n + 1 only after
 * call n told it that every rank has entered n, so no row is used by two calls at once. A
 * history is not of a call: it stays until its rank sends a newer one.
 */
#include <stddef.h>
#include <string.h>

#include "collective.h"

#define PAGE		4096
#define SLOT_SIZE	sizeof(struct signature)

_Static_assert(sizeof(struct signature) == 128, "a signature is two cache lines");
_Static_assert((HISTORY & (HISTORY - 1)) == 0, "the number of allocations wraps");
_Static_assert((HANDSHAKE_SLOTS & (HANDSHAKE_SLOTS - 1)) == 0, "seq wraps");

static uint64_t align_up(uint64_t value, uint64_t align)
{
	return (value + align - 1) & ~(align - 1);
}

static uint64_t slots_start(uint32_t nranks)
{
	return align_up((uint64_t)HANDSHAKE_SLOTS * nranks * sizeof(int32_t), SLOT_SIZE);
}

static uint64_t stages_start(uint32_t nranks)
{
	return slots_start(nranks) + (uint64_t)HANDSHAKE_SLOTS * nranks * SLOT_SIZE;
}

uint64_t handshake_size(uint32_t nranks)
{
	return align_up(handshake_history(nranks, nranks), PAGE);
}

uint64_t handshake_ready(uint32_t nranks, uint32_t seq, uint32_t from)
{
	return ((uint64_t)(seq % HANDSHAKE_SLOTS) * nranks + from) * sizeof(int32_t);
}

uint64_t handshake_slot(uint32_t nranks, uint32_t seq, uint32_t from)
{
	return slots_start(nranks) +
	       ((uint64_t)(seq % HANDSHAKE_SLOTS) * nranks + from) * SLOT_SIZE;
}

uint64_t handshake_stage(uint32_t nranks, uint32_t stage)
{
	return stages_start(nranks) + stage * SLOT_SIZE;
}

uint64_t handshake_history(uint32_t nranks, uint32_t from)
{
	return stages_start(nranks) + HANDSHAKE_STAGES * SLOT_SIZE +
	       (uint64_t)from * HISTORY * sizeof(struct allocation);
}

void handshake_zero_cells(const struct endpoint *ep, uint64_t offset, uint32_t count)
{
	int32_t *cell = (int32_t *)(ep->window[ep->rank] + offset);

	while (count--)
		__atomic_store_n(cell++, 0, __ATOMIC_RELAXED);
}

void handshake_reset(const struct endpoint *ep)
{
	uint64_t slots = slots_start(ep->nranks);

	handshake_zero_cells(ep, 0, HANDSHAKE_SLOTS * ep->nranks);
	memset(ep->window[ep->rank] + slots, 0, handshake_size(ep->nranks) - slots);
}

uint32_t handshake_news_count(uint32_t nranks)
{
	return nranks - 1;
}

void handshake_build_news(const struct endpoint *ep, struct npuwin_desc *descs)
{
	uint64_t at = handshake_history(ep->nranks, ep->rank);
	uint32_t i;

	for (i = 0; i < handshake_news_count(ep->nranks); i++)
		descs[i] = (struct npuwin_desc) {
			.opcode = NPUWIN_OP_TPUT,
			.sub = NPUWIN_PUT_COPY,
			.rank = (ep->rank + 1 + i) % ep->nranks,
			.src_off = at,
			.dst_off = at,
			.rows = 1,
			.row_bytes = HISTORY * sizeof(struct allocation),
		};
}

uint32_t handshake_count(uint32_t nranks)
{
	return 2 * nranks + 2;
}

void handshake_build(const struct endpoint *ep, struct npuwin_desc *descs)
{
	uint32_t i;

	for (i = 0; i < ep->nranks; i++) {
		uint32_t dest = (ep->rank + 1 + i) % ep->nranks;

		descs[2 * i] = (struct npuwin_desc) {
			.opcode = NPUWIN_OP_TPUT,
			.sub = NPUWIN_PUT_COPY,
			.rank = dest,
			.rows = 1,
			.row_bytes = sizeof(struct signature),
		};
		descs[2 * i + 1] = (struct npuwin_desc) {
			.opcode = NPUWIN_OP_TNOTIFY,
			.sub = NPUWIN_NOTIFY_ADD,
			.rank = dest,
			.value = 1,
		};
	}
	descs[2 * i] = (struct npuwin_desc) {
		.opcode = NPUWIN_OP_TWAIT,
		.flags = NPUWIN_TWAIT_F_CONSUME | NPUWIN_TWAIT_F_BY_RANK,
		.sub = NPUWIN_CMP_GE,
		.rows = ep->nranks,
		.value = 1,
		.src_stride = sizeof(int32_t),
	};
	descs[2 * i + 1] = (struct npuwin_desc) {
		.opcode = NPUWIN_OP_TWAIT,
		.flags = NPUWIN_TWAIT_F_TEST,
		.sub = NPUWIN_CMP_EQ,
		.rows = ep->nranks,
		.src_stride = sizeof(struct signature),
	};
}

void handshake_patch(const struct endpoint *ep, struct npuwin_desc *descs,
		     const struct signature *signature, uint32_t stage, int64_t deadline_ns)
{
	uint64_t at = handshake_stage(ep->nranks, stage);
	uint64_t slot = handshake_slot(ep->nranks, signature->seq, ep->rank);
	uint64_t ready = handshake_ready(ep->nranks, signature->seq, ep->rank);
	uint32_t i;

	memcpy(ep->window[ep->rank] + at, signature, sizeof(*signature));
	for (i = 0; i < ep->nranks; i++) {
		descs[2 * i].src_off = at;
		descs[2 * i].dst_off = slot;
		descs[2 * i + 1].dst_off = ready;
	}
	descs[2 * i].src_off = handshake_ready(ep->nranks, signature->seq, 0);
	descs[2 * i].deadline_ns = deadline_ns;
	descs[2 * i + 1].src_off = handshake_slot(ep->nranks, signature->seq, 0) +
				   offsetof(struct signature, crc);
	descs[2 * i + 1].value = (int32_t)signature->crc;
}
