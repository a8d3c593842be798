// SPDX-License-Identifier: MIT
/*
 * The shm provider: the states of a domain.
 *
 * Arrivals are words that each rank writes for itself and that carry the generation they are
 * meant for. Whoever finds that all have arrived makes the transition; any number may try.
 */
#include <fcntl.h>

#include "shm.h"

/* Two neighbouring words that change together. */
typedef uint64_t __attribute__((may_alias)) pair_word;

union pair {
	uint64_t word;
	uint32_t half[2];
};

static pair_word *state_word(const struct shm_domain *sd)
{
	return (pair_word *)&sd->status->state;
}

static pair_word *abort_word(const struct shm_domain *sd)
{
	return (pair_word *)&sd->status->abort_rank;
}

static uint64_t pair_load(const pair_word *word)
{
	return __atomic_load_n(word, __ATOMIC_SEQ_CST);
}

static bool pair_swap(pair_word *word, uint64_t from, uint64_t to)
{
	return __atomic_compare_exchange_n(word, &from, to, false, __ATOMIC_SEQ_CST,
					   __ATOMIC_SEQ_CST);
}

static uint64_t make_pair(uint32_t first, uint32_t second)
{
	union pair pair = { .half = { first, second } };

	return pair.word;
}

static bool change_state(struct shm_domain *sd, struct shm_state from, struct shm_state to)
{
	return pair_swap(state_word(sd), make_pair(from.state, from.generation),
			 make_pair(to.state, to.generation));
}

struct shm_state shm_state(const struct shm_domain *sd)
{
	union pair pair = { .word = pair_load(state_word(sd)) };

	return (struct shm_state){ .state = pair.half[0], .generation = pair.half[1] };
}

int shm_abort_error(const struct shm_domain *sd, uint32_t *rank)
{
	union pair pair = { .word = pair_load(abort_word(sd)) };

	*rank = pair.half[0] < sd->nranks ? pair.half[0] : NPUWIN_NO_RANK;
	return pair.half[1] == EPIPE ? -EPIPE : -ECANCELED;
}

/*
 * Who and why is told first, by the first who aborts; then the state changes. Where the domain
 * has gone on meanwhile, what was told is taken back.
 */
void shm_abort_generation(struct shm_domain *sd, uint32_t generation, uint32_t rank, int error)
{
	uint64_t none = make_pair(NPUWIN_NO_RANK, 0);
	uint64_t mine = make_pair(rank, (uint32_t)error);
	struct shm_state to = { NPUWIN_DOMAIN_ABORTED, generation };
	struct shm_state from;

	for (;;) {
		from = shm_state(sd);
		if (from.state == NPUWIN_DOMAIN_ABORTED || from.generation != generation)
			return;
		pair_swap(abort_word(sd), none, mine);
		if (change_state(sd, from, to))
			break;
		if (shm_state(sd).generation != generation)
			pair_swap(abort_word(sd), mine, none);
	}
	shm_wake_all(sd);
}

void shm_abort(struct endpoint *ep, int error)
{
	struct shm_domain *sd = shm_domain_of(ep);

	shm_abort_generation(sd, shm_state(sd).generation, ep->rank, error);
}

/* The lowest rank that is not ready for this generation, or NPUWIN_NO_RANK. */
static uint32_t missing_commit(const struct shm_domain *sd, uint32_t generation)
{
	uint32_t rank;

	for (rank = 0; rank < sd->nranks; rank++)
		if (shm_load(&sd->status->rank[rank].state) != NPUWIN_RANK_JOINED ||
		    shm_load(&sd->ranks[rank].commit) != generation + 1)
			return rank;
	return NPUWIN_NO_RANK;
}

/* The lowest surviving rank that may still write in this generation, or NPUWIN_NO_RANK. */
static uint32_t missing_reset(const struct shm_domain *sd, uint32_t generation)
{
	uint32_t rank;

	for (rank = 0; rank < sd->nranks; rank++)
		if (shm_load(&sd->status->rank[rank].state) == NPUWIN_RANK_JOINED &&
		    shm_load(&sd->ranks[rank].reset) != generation + 1)
			return rank;
	return NPUWIN_NO_RANK;
}

int shm_commit(struct endpoint *ep, int64_t deadline_ns, uint32_t *missing)
{
	struct shm_domain *sd = shm_domain_of(ep);
	struct shm_state now, ready;
	uint32_t seen;
	int rc = 0;

	for (;;) {
		seen = shm_load(&sd->slots[sd->slot].event);
		/* Whatever the state is: somebody may have come before it was reached. */
		shm_watch_aim(sd);
		now = shm_state(sd);
		*missing = NPUWIN_NO_RANK;
		if (now.state == NPUWIN_DOMAIN_ABORTED) {
			rc = shm_abort_error(sd, missing);
			if (rc != -EPIPE)
				*missing = NPUWIN_NO_RANK;
			return rc;
		}
		if (now.state == NPUWIN_DOMAIN_READY)
			return 0;
		shm_store(&sd->ranks[ep->rank].commit, now.generation + 1);
		*missing = missing_commit(sd, now.generation);
		if (*missing == NPUWIN_NO_RANK) {
			ready = now;
			ready.state = NPUWIN_DOMAIN_READY;
			if (change_state(sd, now, ready))
				shm_wake_all(sd);
			continue;
		}
		if (deadline_ns == 0)
			return -EAGAIN;
		if (rc)
			return rc;
		do {
			rc = shm_sleep(sd, seen, UINT32_MAX, deadline_ns);
		} while (rc == -EINTR);
	}
}

/*
 * Make the domain forming again. The reset lock keeps a second one out, and goes with a holder
 * that dies: everything before the last step can be done twice.
 */
static void complete_reset(struct shm_domain *sd, struct shm_state now)
{
	struct shm_state next = { NPUWIN_DOMAIN_FORMING, now.generation + 1 };
	struct shm_state still;
	uint32_t rank, state;

	pthread_mutex_lock(&sd->lock);
	if (shm_lock(sd, F_WRLCK, SHM_LOCK_RESET))
		goto unlock;
	still = shm_state(sd);
	if (still.state != now.state || still.generation != now.generation ||
	    missing_reset(sd, now.generation) != NPUWIN_NO_RANK)
		goto drop_lock;
	for (rank = 0; rank < sd->nranks; rank++) {
		state = shm_load(&sd->status->rank[rank].state);
		if (state != NPUWIN_RANK_JOINED)
			shm_swap(&sd->status->rank[rank].state, state, NPUWIN_RANK_EMPTY);
	}
	shm_zero(sd, sd->layout.regs, SHM_REGS_SIZE * sd->nranks);
	__atomic_store_n(abort_word(sd), make_pair(NPUWIN_NO_RANK, 0), __ATOMIC_SEQ_CST);
	change_state(sd, now, next);
	shm_wake_all(sd);
drop_lock:
	shm_lock(sd, F_UNLCK, SHM_LOCK_RESET);
unlock:
	pthread_mutex_unlock(&sd->lock);
}

int shm_reset(struct endpoint *ep, int64_t deadline_ns, uint32_t *missing)
{
	struct shm_domain *sd = shm_domain_of(ep);
	struct shm_state first = shm_state(sd);
	struct shm_state now;
	uint32_t seen;
	int rc = 0;

	*missing = NPUWIN_NO_RANK;
	if (first.state != NPUWIN_DOMAIN_ABORTED)
		return -EINVAL;
	shm_store(&sd->ranks[ep->rank].reset, first.generation + 1);
	for (;;) {
		seen = shm_load(&sd->slots[sd->slot].event);
		shm_watch_aim(sd);
		now = shm_state(sd);
		if (now.state != first.state || now.generation != first.generation) {
			*missing = NPUWIN_NO_RANK;
			return 0;
		}
		*missing = missing_reset(sd, now.generation);
		if (*missing == NPUWIN_NO_RANK) {
			complete_reset(sd, now);
			now = shm_state(sd);
			if (now.generation != first.generation)
				continue;
		}
		if (deadline_ns == 0)
			return -EAGAIN;
		if (rc)
			return rc;
		do {
			rc = shm_sleep(sd, seen, UINT32_MAX, deadline_ns);
		} while (rc == -EINTR);
	}
}
