// SPDX-License-Identifier: MIT
/*
 * The shm provider: sleeping until a cell compares, without polling and without losing a wake.
 *
 * Who sleeps counts himself in the rank's sleepers, reads his event word, looks at the cells
 * and only then sleeps, unless the word has changed. Who has written a cell executes a full
 * barrier, reads sleepers and, where there are any, changes the word and wakes. Whatever the
 * order of the two, either the sleeper sees the cell or the waker sees the sleeper.
 *
 * The ranks of a context share a word, so that one thread can sleep for many of them. A rank
 * has one bit of the futex's 32, so that most threads of other ranks sleep on.
 */
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "shm.h"

#define NSEC_PER_SEC 1000000000LL

static uint32_t rank_bit(uint32_t rank)
{
	return 1U << (rank % 32);
}

static void wake(struct shm_domain *sd, uint32_t slot, uint32_t bits)
{
	uint32_t *event = &sd->slots[slot].event;

	__atomic_fetch_add(event, 1, __ATOMIC_SEQ_CST);
	syscall(SYS_futex, event, FUTEX_WAKE_BITSET, INT_MAX, NULL, NULL, bits);
}

void shm_wake_slot(struct shm_domain *sd, uint32_t slot)
{
	wake(sd, slot, FUTEX_BITSET_MATCH_ANY);
}

void shm_wake_all(struct shm_domain *sd)
{
	uint8_t woken[NPUWIN_MAX_RANKS / 8] = { 0 };
	uint32_t rank, slot;

	for (rank = 0; rank < sd->nranks; rank++) {
		if (shm_load(&sd->status->rank[rank].state) != NPUWIN_RANK_JOINED)
			continue;
		slot = shm_load(&sd->ranks[rank].slot);
		if (slot >= sd->nranks || woken[slot / 8] & (1 << (slot % 8)))
			continue;
		woken[slot / 8] |= (uint8_t)(1 << (slot % 8));
		shm_wake_slot(sd, slot);
	}
}

void shm_signal_wake(struct endpoint *ep, uint32_t rank)
{
	struct shm_domain *sd = shm_domain_of(ep);
	uint32_t slot = shm_load(&sd->ranks[rank].slot);

	if (slot < sd->nranks)
		wake(sd, slot, rank_bit(rank));
}

int shm_sleep(struct shm_domain *sd, uint32_t seen, uint32_t bits, int64_t deadline_ns)
{
	struct timespec until = {
		.tv_sec = deadline_ns / NSEC_PER_SEC,
		.tv_nsec = deadline_ns % NSEC_PER_SEC,
	};

	if (!syscall(SYS_futex, &sd->slots[sd->slot].event, FUTEX_WAIT_BITSET, seen,
		     deadline_ns == NPUWIN_NO_DEADLINE ? NULL : &until, NULL, bits))
		return 0;
	return errno == EAGAIN ? 0 : -errno;
}

static int cell_of(struct shm_domain *sd, const struct npuwin_signal *signal, const void **cell)
{
	uint64_t size = signal->flags & NPUWIN_SIGNAL_F_REG ? SHM_REGS_SIZE : sd->window_size;
	uint64_t base;

	if (signal->flags & ~NPUWIN_SIGNAL_F_REG || signal->cmp > NPUWIN_CMP_LE ||
	    signal->rank >= sd->nranks || signal->offset & 3 ||
	    (signal->peer >= sd->nranks && signal->peer != NPUWIN_NO_RANK))
		return -EINVAL;
	if (signal->offset >= size)
		return -EOVERFLOW;
	if (shm_load(&sd->status->rank[signal->rank].state) != NPUWIN_RANK_JOINED)
		return -ENOENT;
	/* A wake for another context's rank does not come here. */
	if (shm_load(&sd->ranks[signal->rank].slot) != sd->slot)
		return -EINVAL;
	base = signal->flags & NPUWIN_SIGNAL_F_REG ? sd->layout.regs : sd->layout.windows;
	*cell = sd->base + base + signal->rank * size + signal->offset;
	return 0;
}

/* 0 one holds; -EAGAIN none does; or what ends the wait. What ends it is read before the cells
 * are: who has left had written his cells by then.
 */
static int look(struct shm_domain *sd, uint32_t generation, struct npuwin_signal *signals,
		uint32_t count, uint32_t *index, uint32_t *gone)
{
	struct shm_state state = shm_state(sd);
	uint32_t i, peer, left = count;
	const void *cell;
	int rc;

	for (i = 0; i < count && left == count; i++) {
		peer = signals[i].peer;
		if (peer < sd->nranks &&
		    shm_load(&sd->status->rank[peer].state) != NPUWIN_RANK_JOINED)
			left = i;
	}
	for (i = 0; i < count; i++) {
		rc = cell_of(sd, &signals[i], &cell);
		if (rc)
			return rc;
		signals[i].observed = npuwin_cell_read(cell);
		if (npuwin_compare(signals[i].observed, signals[i].cmp, signals[i].value)) {
			*index = i;
			return 0;
		}
	}
	*index = left;
	if (state.generation != generation)
		return -ECANCELED;
	if (state.state == NPUWIN_DOMAIN_ABORTED) {
		rc = shm_abort_error(sd, gone);
		if (rc != -EPIPE)
			*gone = NPUWIN_NO_RANK;
		return rc;
	}
	if (left < count) {
		*gone = signals[left].peer;
		return -EPIPE;
	}
	return -EAGAIN;
}

static void count_sleepers(struct shm_domain *sd, const struct npuwin_signal *signals,
			   uint32_t count, uint32_t delta)
{
	uint32_t i;

	for (i = 0; i < count; i++)
		__atomic_fetch_add(&sd->status->rank[signals[i].rank].sleepers, delta,
				   __ATOMIC_SEQ_CST);
}

int shm_signal_wait(struct endpoint *ep, struct npuwin_signal *signals, uint32_t count,
		    int64_t deadline_ns, uint32_t *index, uint32_t *gone)
{
	struct shm_domain *sd = shm_domain_of(ep);
	uint32_t i, seen, bits = 0, generation = shm_state(sd).generation;
	int rc;

	*gone = NPUWIN_NO_RANK;
	*index = count;
	if (deadline_ns < 0)
		return -EINVAL;
	rc = look(sd, generation, signals, count, index, gone);
	if (rc != -EAGAIN || deadline_ns == 0)
		return rc;
	for (i = 0; i < count; i++)
		bits |= rank_bit(signals[i].rank);

	count_sleepers(sd, signals, count, 1);
	for (;;) {
		seen = shm_load(&sd->slots[sd->slot].event);
		rc = look(sd, generation, signals, count, index, gone);
		if (rc != -EAGAIN)
			break;
		rc = shm_sleep(sd, seen, bits, deadline_ns);
		if (rc)
			break;
	}
	count_sleepers(sd, signals, count, -1U);
	if (rc != -ETIMEDOUT)
		return rc;
	/* The cell may have changed while the deadline passed. */
	rc = look(sd, generation, signals, count, index, gone);
	return rc == -EAGAIN ? -ETIMEDOUT : rc;
}
