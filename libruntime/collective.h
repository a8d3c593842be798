/* SPDX-License-Identifier: MIT */
/*
 * What the parts of the upper half of the runtime owe each other: buffers, the contract
 * checker, the handshake of collectives, plans and requests.
 *
 * A collective of a rank is one descriptor program, the same on every rail and provider
 * (NR ranks, d counts from the own rank + 1 and wraps):
 *
 *	0 .. 2*NR-1	 for each d: TPUT of the own signature; TNOTIFY of the entry credit
 *	2*NR		 TWAIT for every rank's entry credit, which it consumes
 *	2*NR+1		 TWAIT, one look: every rank's signature has the own checksum
 *	2*NR+2 .. 5*NR+1 for each d: TPUT of block d; TNOTIFY of its count; TNOTIFY of the
 *			 delivery credit, which is the caller's signal
 *	5*NR+2		 TWAIT for every rank's delivery credit, which it consumes
 *
 * A barrier ends with the signatures. Every rank has entered before the first byte of a
 * block moves, and has compared all signatures before it moves one itself; where any two
 * signatures differ, every rank sees one that differs from its own. Where buffers have been
 * allocated since peers were last told, a TPUT of the newest allocations to each of them comes
 * before all that.
 *
 * Lock order: npuwin_domain.lock is innermost but for what a provider or job.c holds
 * inside a call. It is not held while waiting for peers. Who starts collectives holds the
 * domain's turn (collective_turn_take()), several of them in the order of their ranks.
 */
#ifndef NPUWIN_COLLECTIVE_H
#define NPUWIN_COLLECTIVE_H

#include "internal.h"

/*
 * buffer.c
 */

/**
 * struct signal_cells - Cells that a collective has used as its signal.
 * @offset: of the first of nranks int32 in the window
 * @next: next of the same buffer
 */
struct signal_cells {
	uint64_t offset;
	struct signal_cells *next;
};

/**
 * struct npuwin_buffer - A symmetric allocation.
 * @domain: of this rank
 * @offset: in the window
 * @size: bytes
 * @prev: the one before it in the window
 * @next: the one after it in the window
 * @signals: what of it has been used as a signal
 */
struct npuwin_buffer {
	struct npuwin_domain *domain;
	uint64_t offset;
	uint64_t size;
	struct npuwin_buffer *prev;
	struct npuwin_buffer *next;
	struct signal_cells *signals;
};

/* Allocations of a rank that its peers know of: the newest ones. Not for the comparison, but for
 * what is said where it fails.
 */
#define HISTORY		32

/**
 * struct allocation - A buffer as it was made.
 * @offset: in the window
 * @size: bytes; 0: there is none
 */
struct allocation {
	uint64_t offset;
	uint64_t size;
};

/**
 * struct alloc_difference - The first allocation in which two ranks differ.
 * @number: counted from 1, or 0: it is not known
 * @own: the caller's
 * @peer: the other rank's
 */
struct alloc_difference {
	uint32_t number;
	struct allocation own;
	struct allocation peer;
};

struct signature;

/* An allocator of [start, end) of @domain's window; NULL without memory. */
struct heap *heap_create(struct npuwin_domain *domain, uint64_t start, uint64_t end);
/* Frees every buffer too. */
void heap_destroy(struct heap *heap);
/* Whether @buffer is one of this heap's; it need not be valid memory. */
bool heap_owns(const struct heap *heap, const struct npuwin_buffer *buffer);
/* How many allocations were made, and a digest of their sizes and places. */
void heap_history(const struct heap *heap, uint32_t *count, uint32_t *digest);
/* Whether there are allocations that peers have not been told of. */
bool heap_has_news(const struct heap *heap);
/* Write the history to where it is sent from. */
void heap_tell(struct heap *heap);
/* Peers may not have been told, or have forgotten. */
void heap_tell_again(struct heap *heap);
/**
 * heap_difference() - Find the first allocation in which two ranks differ.
 * @heap: the own one
 * @own: signature of the caller, of now or of an earlier call
 * @peer: a private copy of the peer's signature
 * @told: a private copy of the history that the peer has sent, HISTORY elements
 * @difference: out
 *
 * What was sent is believed only if it leads to the digest in the peer's signature: it may be
 * damaged, or of another call, or not reach back far enough.
 */
void heap_difference(const struct heap *heap, const struct signature *own,
		     const struct signature *peer, const struct allocation *told,
		     struct alloc_difference *difference);
/* Remember a signal, so that heap_zero_signals() finds its cells. */
int heap_add_signal(struct npuwin_buffer *buffer, uint64_t offset);
void heap_zero_signals(struct heap *heap);

/*
 * handshake.c and signature.c
 */

/* Calls whose signatures can be told apart in a window. Two would do for the handshake: a
 * rank enters a call only after all have entered the one before. More of them let a
 * mismatch that is looked at late still be explained.
 */
#define HANDSHAKE_SLOTS		8
/* Calls of a rank that can be in flight. */
#define HANDSHAKE_STAGES	256

#define SIGNATURE_VERSION	3
/* Extents of a row. */
#define SIGNATURE_DIMS		(NPUWIN_MAX_DIMS - 1)

enum collective_kind {
	COLLECTIVE_BARRIER = 1,
	COLLECTIVE_A2AV,
};

/**
 * struct signature - What a rank is about to do, as it tells its peers.
 * @crc: CRC-32 of the rest: signatures that differ in one field only never have the same
 * @version: SIGNATURE_VERSION
 * @kind: enum collective_kind
 * @mode: enum npuwin_mode
 * @dtype: enum npuwin_dtype
 * @ndim: of the target
 * @max_recv: MAX_RECV
 * @row_bytes: bytes of a row
 * @target: offset of the target in the window
 * @signal: offset of the signal in the window
 * @recv_counts: offset of the receive counts in the window
 * @size: SIZE: extents of a row, the @ndim - 1 first of them
 * @reserved: zero
 * @seq: number of the call
 * @allocs: buffers allocated so far
 * @alloc_digest: digest of their sizes and places
 *
 * A barrier leaves zero what it does not have. The rail is not part of it: the bytes are
 * the same on both. What depends on the call is last, so that the checksum of the rest can be
 * kept in a plan.
 */
struct signature {
	uint32_t crc;
	uint32_t version;
	uint8_t kind;
	uint8_t mode;
	uint8_t dtype;
	uint8_t ndim;
	uint32_t max_recv;
	uint64_t row_bytes;
	uint64_t target;
	uint64_t signal;
	uint64_t recv_counts;
	uint64_t size[SIGNATURE_DIMS];
	uint32_t reserved[3];
	uint32_t seq;
	uint32_t allocs;
	uint32_t alloc_digest;
};

/* CRC-32 (IEEE 802.3) of @size bytes at @data, going on from @crc; 0 at the start. */
uint32_t signature_crc(uint32_t crc, const void *data, size_t size);
/* Fill in the checksum as far as it does not depend on the call. */
void signature_begin(struct signature *signature);
/* Fill in the rest of it, once. */
void signature_seal(struct signature *signature);
/**
 * signature_explain() - Say in which field two signatures differ first.
 * @own: signature of the caller
 * @rank: the caller
 * @peer: a private copy of the signature of @peer_rank
 * @peer_rank: the rank it is compared with
 * @difference: in their allocations
 * @err: out: may be NULL
 *
 * Return: -EPROTO.
 */
int signature_explain(const struct signature *own, uint32_t rank, const struct signature *peer,
		      uint32_t peer_rank, const struct alloc_difference *difference,
		      struct npuwin_error *err);

/* Offset of the int32 that rank @from credits in call @seq. */
uint64_t handshake_ready(uint32_t nranks, uint32_t seq, uint32_t from);
/* Offset of the signature of rank @from in call @seq. */
uint64_t handshake_slot(uint32_t nranks, uint32_t seq, uint32_t from);
/* Offset of the own signature of a call in flight, @stage < HANDSHAKE_STAGES. */
uint64_t handshake_stage(uint32_t nranks, uint32_t stage);
/* Offset of the history of rank @from: as it is sent, or as it was received. */
uint64_t handshake_history(uint32_t nranks, uint32_t from);

/* Clear @count int32 at @offset of the own window, at which somebody may still look. */
void handshake_zero_cells(const struct endpoint *ep, uint64_t offset, uint32_t count);
/* Clear the runtime's own part of the own window. */
void handshake_reset(const struct endpoint *ep);

/* Descriptors that tell peers of allocations, in front of a program that needs them. */
uint32_t handshake_news_count(uint32_t nranks);
void handshake_build_news(const struct endpoint *ep, struct npuwin_desc *descs);
/* Descriptors of a handshake. */
uint32_t handshake_count(uint32_t nranks);
/* Write what of them does not depend on the call. The last one has no F_CQE yet. */
void handshake_build(const struct endpoint *ep, struct npuwin_desc *descs);
/* Write the rest: for the call of @signature, whose copy in the window is @stage. */
void handshake_patch(const struct endpoint *ep, struct npuwin_desc *descs,
		     const struct signature *signature, uint32_t stage, int64_t deadline_ns);

/*
 * check.c
 */

/**
 * struct a2av_shape - What the operands of an all_to_all_v come down to.
 * @max_recv: rows of a block
 * @row_bytes: bytes of a row
 */
struct a2av_shape {
	uint32_t max_recv;
	uint64_t row_bytes;
};

/**
 * check_a2av() - The contract of all_to_all_v, as far as one rank can see it.
 * @domain: the rank, locked
 * @op: operands
 * @shape: out
 * @err: out: may be NULL
 *
 * Return: 0, -EINVAL, or -EOPNOTSUPP for a rail that this domain does not have.
 */
int check_a2av(const struct npuwin_domain *domain, const struct npuwin_a2av *op,
	       struct a2av_shape *shape, struct npuwin_error *err);
/* Whether calls named @what can use @rail here. */
int check_rail(const struct npuwin_domain *domain, const char *what, uint32_t rail,
	       struct npuwin_error *err);
/* @bytes at @offset of @buffer, called @name in @what, are within it. Locked. */
int check_range(const struct npuwin_domain *domain, const char *what, const char *name,
		const struct npuwin_buffer *buffer, uint64_t offset, uint64_t bytes,
		struct npuwin_error *err);

/*
 * plan.c
 */

/* Plans that are kept while no request uses them. */
#define PLANS_IDLE	64

/**
 * struct plan - A collective that has been checked, and its requests.
 * @kind: enum collective_kind
 * @rail: enum npuwin_rail
 * @op: operands, of an all_to_all_v
 * @shape: what they come down to
 * @signature: what of the signature does not depend on the call
 * @count: descriptors in the program
 * @active: requests in use
 * @dropped: a buffer of it was freed: it is in no list, and goes with its last request
 * @idle: requests not in use, linked by @next
 * @prev: the plan used after this one
 * @next: the plan used before this one
 *
 * Everything that shapes the program is in @kind, @rail and @op, so a plan that is found
 * needs no check: buffers that it uses cannot have been freed.
 */
struct plan {
	uint32_t kind;
	uint32_t rail;
	struct npuwin_a2av op;
	struct a2av_shape shape;
	struct signature signature;
	uint32_t count;
	uint32_t active;
	bool dropped;
	struct npuwin_request *idle;
	struct plan *prev;
	struct plan *next;
};

/**
 * struct plans - The collectives of a rank.
 * @first: plan used last
 * @last: plan used longest ago
 * @count: plans in that list
 * @live: requests in use, newest first
 * @stages: free signature stages, a stack
 * @nstages: how many
 * @turn: somebody is starting collectives
 * @turned: @turn or a request's pins have changed
 * @current: the request of who has the turn
 * @jobs: room for the jobs of a group, of who has the turn
 * @jobs_room: elements
 */
struct plans {
	struct plan *first;
	struct plan *last;
	uint32_t count;
	struct npuwin_request *live;
	uint16_t stages[HANDSHAKE_STAGES];
	uint32_t nstages;
	bool turn;
	pthread_cond_t turned;
	struct npuwin_request *current;
	struct job **jobs;
	uint32_t jobs_room;
};

struct plans *plans_create(struct npuwin_domain *domain);
/* Frees every request, in use or not: nothing is executed any more. */
void plans_destroy(struct npuwin_domain *domain);
/**
 * plan_get() - Find or make the plan of a call.
 * @domain: the rank, locked
 * @kind: enum collective_kind
 * @rail: enum npuwin_rail
 * @op: operands of an all_to_all_v, not checked yet; NULL for a barrier
 * @plan: out: valid while the lock is held or a request of it is in use
 * @err: out: may be NULL
 *
 * Return: 0; -ENOMEM; as check_a2av().
 */
int plan_get(struct npuwin_domain *domain, uint32_t kind, uint32_t rail,
	     const struct npuwin_a2av *op, struct plan **plan, struct npuwin_error *err);
/* Forget the plans that use @buffer. Locked. */
void plans_drop(struct npuwin_domain *domain, const struct npuwin_buffer *buffer);
/* A request of @plan is no longer in use. Locked. */
void plan_put(struct npuwin_domain *domain, struct plan *plan);

/*
 * request.c
 */

/**
 * struct npuwin_request - A call, from its start until it is freed.
 * @job: its program in execution
 * @domain: the rank
 * @plan: what it does
 * @prev: the next newer one of the domain's live requests
 * @next: the next older one; of an idle one: the plan's next
 * @signature: its own
 * @stage: where that is in the window
 * @staged: @stage is taken
 * @armed: @job has been started, or is about to be
 * @tells: @job tells peers of allocations
 * @pins: threads that wait for @job to make way for another
 * @settled: @code and @error are valid
 * @code: 0 or a negative errno
 * @error: what is behind @code
 * @nclamped: elements of @clamps
 * @bytes: bytes of rows that the program writes
 * @clamps: send counts that were out of range, nranks elements
 * @descs: the telling of allocations, and then the program
 */
struct npuwin_request {
	struct job job;
	struct npuwin_domain *domain;
	struct plan *plan;
	struct npuwin_request *prev;
	struct npuwin_request *next;
	struct signature signature;
	uint32_t stage;
	bool staged;
	bool armed;
	bool tells;
	uint32_t pins;
	bool settled;
	int code;
	struct npuwin_error error;
	uint32_t nclamped;
	uint64_t bytes;
	struct npuwin_clamp *clamps;
	struct npuwin_desc descs[];
};

/* The program, without the telling of allocations. */
static inline struct npuwin_desc *request_program(struct npuwin_request *request)
{
	return request->descs + handshake_news_count(request->domain->ep->nranks);
}

/* Take a request of @plan. Locked. -ENOMEM, or -EBUSY for too many in flight. */
int request_get(struct npuwin_domain *domain, struct plan *plan,
		struct npuwin_request **request, struct npuwin_error *err);
/* Give it back: nothing executes its job any more. Locked. */
void request_put(struct npuwin_request *request);
/* Write what depends on the call into the program, and count the call. Locked. */
void request_arm(struct npuwin_request *request, int64_t deadline_ns);
/* Undo the count: the job was not started. Locked. */
void request_disarm(struct npuwin_request *request);
/* Keep what became of its job, which is done, unless that is settled. A failure that stops
 * the queue aborts the domain, so that peers do not wait for their deadlines. Locked.
 */
void request_settle(struct npuwin_request *request);
/* The same where the domain is about to be reset. Locked. */
void request_end(struct npuwin_request *request);
/* The code of a settled request; fills @result and @err, which may be NULL. */
int request_result(const struct npuwin_request *request, struct npuwin_a2av_result *result,
		   struct npuwin_error *err);

/*
 * a2av.c
 */

/* Descriptors of a program of @kind. */
uint32_t collective_count(uint32_t kind, uint32_t nranks);
/* Write what of the program does not depend on the call. */
void collective_build(const struct endpoint *ep, const struct plan *plan,
		      struct npuwin_desc *descs);
/* Read the send counts, once, and write them and the deadline into the program. */
void collective_patch(struct npuwin_request *request, int64_t deadline_ns);

/*
 * collective.c
 */

/**
 * collective_turn_take() - Become the one who starts collectives of a rank.
 * @domain: the rank, locked
 * @deadline_ns: when to give up
 *
 * A call that is executed while its caller waits keeps the turn until it is complete,
 * because until then nobody can tell whether it has been posted.
 *
 * Return: 0 or -ETIMEDOUT.
 */
int collective_turn_take(struct npuwin_domain *domain, int64_t deadline_ns);
void collective_turn_give(struct npuwin_domain *domain);
/**
 * collective_run() - Run a collective of several ranks of this process and wait for it.
 * @domains: @n ranks
 * @kind: enum collective_kind
 * @ops: @n operands of an all_to_all_v; NULL for a barrier
 * @n: how many
 * @deadline_ns: of the operation
 * @results: in/out: @n elements, or NULL
 * @err: out: may be NULL
 *
 * Return: as npuwin_all_to_all_v_group().
 */
int collective_run(struct npuwin_domain *const *domains, uint32_t kind,
		   const struct npuwin_a2av *ops, uint32_t n, int64_t deadline_ns,
		   struct npuwin_a2av_result *results, struct npuwin_error *err);
/* Start an all_to_all_v of one rank. */
int collective_start(struct npuwin_domain *domain, const struct npuwin_a2av *op,
		     int64_t deadline_ns, struct npuwin_request **request,
		     struct npuwin_error *err);

/*
 * outcome.c
 */

/* "all_to_all_v" or "barrier". */
const char *collective_name(uint32_t kind);
/* Abort the domain with @code, a negative errno, if it is ready. */
void outcome_abort(const struct npuwin_domain *domain, int code);
/* The same where @cqe is of a failure that has stopped the queue, and that no abort made. */
void outcome_stop(const struct npuwin_domain *domain, const struct npuwin_cqe *cqe, int code);
/* 0 if @domain can be used; otherwise why not, in the name of the call @what. */
int outcome_domain(const struct npuwin_domain *domain, const char *what,
		   struct npuwin_error *err);
/* What a program's completion that is neither OK, TIMEOUT nor MISMATCH means for @what. */
int outcome_status(const struct npuwin_domain *domain, const char *what,
		   const struct npuwin_cqe *cqe, struct npuwin_error *err);
/* The deadline of a call of @kind on @domains passed while an earlier one, "@which", was in the
 * way. Returns -ETIMEDOUT, and tells for whom that one waits, where it shows. Not locked.
 */
int outcome_earlier(struct npuwin_domain *const *domains, uint32_t n, uint32_t kind,
		    const char *which, struct npuwin_error *err);
/* What became of the call of @request, whose job is done. */
int outcome_request(const struct npuwin_request *request, struct npuwin_error *err);

#endif /* NPUWIN_COLLECTIVE_H */
