/* SPDX-License-Identifier: MIT */
/*
 * The shm provider: windows in a memfd, the runtime's own engine, futexes to sleep.
 *
 * A domain is one sealed memfd. Whoever holds it maps all of it, so that everything in it is
 * as good as its worst peer: indices read from it are bounded before they are used, and sizes
 * come from the copy of the header that was checked when it was opened.
 *
 * A process may be killed at any instruction. Nothing in the memfd is a lock, and a transition
 * takes effect with a single compare-and-swap of the state and the generation, so that what a
 * dead process left half done is done again by the next one. Who is alive is known from open
 * file description locks of the memfd, which the kernel drops:
 *
 *  claim(r)	held for write by the owner of rank r
 *  slot(s)	held for write by the one that sleeps on event word s: one per context
 *  reset	held for write by who completes a reset
 */
#ifndef NPUWIN_SHM_H
#define NPUWIN_SHM_H

#include <fcntl.h>

#include "internal.h"

/**
 * struct shm_header - Start of the memfd, written before it is sealed.
 * @magic: SHM_MAGIC
 * @version: SHM_VERSION
 * @nranks: ranks
 * @window_size: bytes of every window, a multiple of the page size
 */
struct shm_header {
	uint64_t magic;
	uint32_t version;
	uint32_t nranks;
	uint64_t window_size;
};

#define SHM_MAGIC	0x6d68732d6e69776eULL
#define SHM_VERSION	1U

/**
 * struct shm_rank - Words of a rank, written by its owner.
 * @slot: event word that its owner sleeps on
 * @commit: 1 + generation that it is ready for
 * @reset: 1 + generation in which it has stopped writing
 * @reserved: fills the cache line
 */
struct shm_rank {
	uint32_t slot;
	uint32_t commit;
	uint32_t reset;
	uint32_t reserved[13];
};

/**
 * struct shm_slot - What a context sleeps on.
 * @event: futex; grows with every event
 * @reserved: fills the cache line
 */
struct shm_slot {
	uint32_t event;
	uint32_t reserved[15];
};

/**
 * struct shm_layout - Byte offsets in the memfd; the header is at 0.
 * @status: struct npuwin_domain_status
 * @ranks: struct shm_rank, by rank
 * @slots: struct shm_slot, by slot
 * @regs: notify registers, by rank
 * @windows: windows, by rank
 * @total: size of the memfd
 */
struct shm_layout {
	uint64_t status;
	uint64_t ranks;
	uint64_t slots;
	uint64_t regs;
	uint64_t windows;
	uint64_t total;
};

/* Byte ranges that locks are taken on. Locks need no memory behind them. */
#define SHM_LOCK_CLAIM(rank)	(rank)
#define SHM_LOCK_SLOT(slot)	(NPUWIN_MAX_RANKS + (slot))
#define SHM_LOCK_RESET		(2 * NPUWIN_MAX_RANKS)
#define SHM_ANY_SLOT		UINT32_MAX

#define SHM_REGS_SIZE		(NPUWIN_NOTIFY_REGS * sizeof(int32_t))

/**
 * struct shm - The provider of a context.
 * @lock: protects the rest
 * @domains: domains that ranks of this context are in
 * @memory_total: bytes of memory of this machine
 * @memory_used: bytes of windows of this context's ranks
 */
struct shm {
	pthread_mutex_t lock;
	struct shm_domain *domains;
	uint64_t memory_total;
	uint64_t memory_used;
};

/**
 * struct shm_domain - A domain as a context has opened it, shared by its ranks in there.
 * @next: in the context's list
 * @dev: with @ino, identity of the memfd
 * @ino: see @dev
 * @refs: endpoints; under the provider's lock
 * @fd: own open file description, holder of the locks: never leaves this file's hands, since
 *	who holds it keeps the ranks alive
 * @domain_fd: the description that was handed in, for passing on
 * @nranks: ranks
 * @slot: own event slot
 * @window_size: bytes of every window
 * @layout: where things are
 * @base: all of it, mapped
 * @status: in the mapping
 * @ranks: in the mapping
 * @slots: in the mapping
 * @lock: protects @local, the claim locks and the fields below, except @aim_lock's
 * @local: by rank: claimed through @fd
 * @watching: the watcher's thread was started and not yet joined; under @aim_lock too
 * @watched: slot that the watcher waits for, or NPUWIN_NO_RANK when it has ended
 * @stop: the watcher must end
 * @shunned: by slot: its lock is free although a rank claims to be in it
 * @aim_lock: serialises starting and stopping the watcher; taken before @lock
 * @watcher: thread; under @aim_lock
 * @wait: the watcher's: what it waits for
 */
struct shm_domain {
	struct shm_domain *next;
	uint64_t dev;
	uint64_t ino;
	unsigned int refs;
	int fd;
	int domain_fd;
	uint32_t nranks;
	uint32_t slot;
	uint64_t window_size;
	struct shm_layout layout;
	uint8_t *base;
	struct npuwin_domain_status *status;
	struct shm_rank *ranks;
	struct shm_slot *slots;
	pthread_mutex_t lock;
	bool *local;
	bool watching;
	uint32_t watched;
	bool stop;
	bool *shunned;
	pthread_mutex_t aim_lock;
	pthread_t watcher;
	struct flock wait;
};

/**
 * struct shm_state - State and generation of a domain, which change together.
 * @state: NPUWIN_DOMAIN_*
 * @generation: completed resets
 */
struct shm_state {
	uint32_t state;
	uint32_t generation;
};

static inline struct shm_domain *shm_domain_of(const struct endpoint *ep)
{
	return ep->priv;
}

static inline uint32_t shm_load(const uint32_t *word)
{
	return __atomic_load_n(word, __ATOMIC_SEQ_CST);
}

static inline void shm_store(uint32_t *word, uint32_t value)
{
	__atomic_store_n(word, value, __ATOMIC_SEQ_CST);
}

static inline bool shm_swap(uint32_t *word, uint32_t from, uint32_t to)
{
	return __atomic_compare_exchange_n(word, &from, to, false, __ATOMIC_SEQ_CST,
					   __ATOMIC_SEQ_CST);
}

/* shm_domain.c: the memfd. */
/* @size rounded up to pages; 0 where that overflows. */
uint64_t shm_round(uint64_t size);
int shm_layout_of(uint32_t nranks, uint64_t window_size, struct shm_layout *layout);
int shm_domain_create(struct npuwin *ctx, uint32_t nranks, uint64_t window_size,
		      struct npuwin_error *err);
int shm_domain_get(struct shm *shm, int fd, struct shm_domain **domain,
		   struct npuwin_error *err);
void shm_domain_put(struct shm *shm, struct shm_domain *sd);
/* Take or drop (F_UNLCK) the lock of a byte without waiting. Returns 0 or a negative errno. */
int shm_lock(const struct shm_domain *sd, short type, uint32_t byte);
/* Who holds the lock of a byte against a write lock: F_UNLCK, F_RDLCK or F_WRLCK. */
short shm_lock_holder(const struct shm_domain *sd, uint32_t byte);
/* Zero a page-aligned stretch, for every mapping of it, and give its memory back. */
void shm_zero(const struct shm_domain *sd, uint64_t offset, uint64_t size);

/* shm_sync.c: states of the domain. */
struct shm_state shm_state(const struct shm_domain *sd);
int shm_commit(struct endpoint *ep, int64_t deadline_ns, uint32_t *missing);
int shm_reset(struct endpoint *ep, int64_t deadline_ns, uint32_t *missing);
/* Abort the given generation; nothing if the domain has moved on. */
void shm_abort_generation(struct shm_domain *sd, uint32_t generation, uint32_t rank, int error);
void shm_abort(struct endpoint *ep, int error);
/* The errno of an aborted domain, and who it is about. */
int shm_abort_error(const struct shm_domain *sd, uint32_t *rank);

/* shm_signal.c: sleeping and waking. */
int shm_signal_wait(struct endpoint *ep, struct npuwin_signal *signals, uint32_t count,
		    int64_t deadline_ns, uint32_t *index, uint32_t *gone);
void shm_signal_wake(struct endpoint *ep, uint32_t rank);
/* Wake all that sleep on a slot, or on any: something other than a cell has changed. */
void shm_wake_slot(struct shm_domain *sd, uint32_t slot);
void shm_wake_all(struct shm_domain *sd);
/* Sleep until an event after @seen. 0, -ETIMEDOUT or -EINTR. */
int shm_sleep(struct shm_domain *sd, uint32_t seen, uint32_t bits, int64_t deadline_ns);

/* shm_watch.c: deaths. */
/* Mark the ranks of @slot (or SHM_ANY_SLOT) dead that have no owner any more, and abort. Under
 * @lock.
 */
void shm_bury(struct shm_domain *sd, uint32_t slot);
/* See to it that the next one in the ring is watched. */
void shm_watch_aim(struct shm_domain *sd);
void shm_watch_stop(struct shm_domain *sd);
/* Somebody came to @slot: let the one before it look again whom to watch. */
void shm_watch_arrived(struct shm_domain *sd, uint32_t slot);

#endif /* NPUWIN_SHM_H */
