/* SPDX-License-Identifier: MIT */
/*
 * libnpuwin: window memory of NPUs, one-sided writes and notifies between ranks, and
 * all_to_all_v on top of them.
 *
 * A function that can fail returns 0 (or what it says) or a negative errno, and fills @err,
 * which may be NULL, with a sentence. Nothing is printed, nothing is global, and the process is
 * never ended. A handle may be used by several threads. Calls of one rank that communicate are
 * started in the order in which they are made; that of its collectives (barriers and
 * all_to_all_v) must be the same on every rank.
 *
 * Times: every @deadline_ns is absolute, in nanoseconds of CLOCK_MONOTONIC;
 * NPUWIN_NO_DEADLINE is none; one that has passed means: do not wait.
 * npuwin_deadline_ms() makes one.
 */
#ifndef NPUWIN_H
#define NPUWIN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define NPUWIN_API __attribute__((visibility("default")))

#ifndef NPUWIN_NO_DEADLINE
/** NPUWIN_NO_DEADLINE: wait without a bound. */
#define NPUWIN_NO_DEADLINE	0x7fffffffffffffffLL
#endif

/** NPUWIN_NOBODY: in a rank field of struct npuwin_error, no rank. */
#define NPUWIN_NOBODY		(-1)

struct npuwin;
struct npuwin_domain;
struct npuwin_buffer;
struct npuwin_request;

/**
 * struct npuwin_error - Why a call failed.
 * @code: the negative errno that was returned, 0 if the call did not fail
 * @rank: rank of the caller, or NPUWIN_NOBODY
 * @peer: rank that the failure is about (dead, late, disagreeing), or NPUWIN_NOBODY
 * @text: a sentence that names the operand, the value and the rank; never empty on failure
 */
struct npuwin_error {
	int code;
	int32_t rank;
	int32_t peer;
	char text[244];
};

/*
 * Contexts
 */

/**
 * npuwin_open() - Open the provider of windows and engines.
 * @provider: "dev" (the driver), "shm" (software NPUs in this and other processes of the
 *	same user, no driver and no privilege needed), or NULL: what the environment variable
 *	NPUWIN_PROVIDER says, else dev where /dev/npuwin* is usable, else shm
 * @ctx: out: the context, closed with npuwin_close()
 * @err: out: may be NULL
 *
 * A program that runs with more rights than its caller does not look at the environment.
 *
 * Return: 0; -EINVAL for an unknown provider; -ENODEV or -EACCES where it was asked for by
 * name and cannot be used; -ENOMEM.
 */
NPUWIN_API int npuwin_open(const char *provider, struct npuwin **ctx, struct npuwin_error *err);

/**
 * npuwin_close() - Close a context.
 * @ctx: may be NULL; every domain of it has been left before
 */
NPUWIN_API void npuwin_close(struct npuwin *ctx);

/** npuwin_provider_name() - "dev" or "shm". Return: a string that lives with @ctx. */
NPUWIN_API const char *npuwin_provider_name(const struct npuwin *ctx);

/** npuwin_provider_reason() - A sentence: why this provider was taken. Lives with @ctx. */
NPUWIN_API const char *npuwin_provider_reason(const struct npuwin *ctx);

/** npuwin_version() - Return: the library's version, "major.minor.patch". */
NPUWIN_API const char *npuwin_version(void);

/** npuwin_deadline_ms() - Return: the deadline @ms milliseconds from now; negative: none. */
NPUWIN_API int64_t npuwin_deadline_ms(int64_t ms);

/**
 * struct npuwin_device_info - A device.
 * @index: its number among the context's, from 0; the shm provider has one, 0
 * @name: "npuwin0", or "shm"
 * @backend: "soft", "pci" or "shm"
 * @numa_node: NUMA node of its window memory, or -1
 * @memory_total: bytes of window memory
 * @memory_used: bytes of it that are allocated
 * @max_ranks: ranks in a domain at most
 * @notify_regs: notify registers of each rank
 * @peer_map: 1 if peer windows can be mapped (the direct rail), else 0
 * @reserved: zero
 */
struct npuwin_device_info {
	uint32_t index;
	char name[32];
	char backend[16];
	int32_t numa_node;
	uint64_t memory_total;
	uint64_t memory_used;
	uint32_t max_ranks;
	uint32_t notify_regs;
	uint32_t peer_map;
	uint32_t reserved[7];
};

/** npuwin_device_count() - Return: how many devices @ctx has, at least 1. */
NPUWIN_API int npuwin_device_count(const struct npuwin *ctx);

/**
 * npuwin_device_info() - Describe a device.
 * @ctx: the context
 * @index: 0..npuwin_device_count() - 1
 * @info: out
 * @err: out: may be NULL
 *
 * Return: 0; -ENOENT; -ENODEV where it is gone.
 */
NPUWIN_API int npuwin_device_info(struct npuwin *ctx, int index,
				  struct npuwin_device_info *info, struct npuwin_error *err);

/*
 * Domains. A struct npuwin_domain is one rank's membership.
 */

/** NPUWIN_DOMAIN_REPLACE: join as the successor of a rank that died, never as a founder. */
#define NPUWIN_DOMAIN_REPLACE	(1U << 0)

/**
 * struct npuwin_domain_attr - How to join a domain.
 * @name: rendezvous name, the same on every rank: 1..64 bytes without '/' and NUL; shared
 *	by the processes of one user on one host. NULL for npuwin_domain_join_fd() and
 *	npuwin_domain_create_local()
 * @nranks: 1..NPUWIN_MAX_RANKS, the same on every rank
 * @rank: 0..nranks-1, each once
 * @window_size: bytes of every rank's window that buffers can be carved from, the same on
 *	every rank; the runtime adds what it needs for itself
 * @device: index of the device to bring a window of, or -1: rank modulo the number of
 *	devices, those of software left out where there is hardware
 * @flags: NPUWIN_DOMAIN_*
 * @deadline_ns: how long to wait for the other ranks
 * @reserved: zero
 */
struct npuwin_domain_attr {
	const char *name;
	uint32_t nranks;
	uint32_t rank;
	uint64_t window_size;
	int32_t device;
	uint32_t flags;
	int64_t deadline_ns;
	uint64_t reserved[4];
};

/**
 * npuwin_domain_join() - Join a domain by its rendezvous name and wait for all ranks.
 * @ctx: the context; ranks may share one or not, all of the same provider
 * @attr: how
 * @domain: out: this rank's membership, ended with npuwin_domain_leave()
 * @err: out: may be NULL
 *
 * Return: 0; -EINVAL (a value, or one that differs from what the domain has: the sentence
 * names both); -EBUSY (the rank is taken, or the domain is past forming and takes successors
 * only); -EACCES (another user holds the name); -ENOENT (no such device); -ETIMEDOUT (names a
 * rank that did not come); -EPIPE (a rank died meanwhile, or the domain was aborted);
 * -EOVERFLOW (@window_size is too large), -ENOSPC (the device has no room for it), -ENOMEM,
 * -ENODEV.
 */
NPUWIN_API int npuwin_domain_join(struct npuwin *ctx, const struct npuwin_domain_attr *attr,
				  struct npuwin_domain **domain, struct npuwin_error *err);

/**
 * npuwin_domain_create_local() - Make a domain with all ranks in this process.
 * @ctx: the context
 * @attr: @nranks, @window_size, @device, @deadline_ns; the rest zero or NULL
 * @domains: out: array of @nranks memberships, by rank
 * @err: out: may be NULL
 *
 * Return: as npuwin_domain_join(); on failure nothing is left behind.
 */
NPUWIN_API int npuwin_domain_create_local(struct npuwin *ctx,
					  const struct npuwin_domain_attr *attr,
					  struct npuwin_domain **domains,
					  struct npuwin_error *err);

/**
 * npuwin_domain_create_fd() - Make an empty domain, as a file descriptor.
 * @ctx: the context
 * @attr: @nranks and @window_size; the rest is not looked at
 * @err: out: may be NULL
 *
 * The descriptor (close-on-exec) can be sent to other processes over SCM_RIGHTS; who holds
 * it can join. The caller closes it.
 *
 * Return: the descriptor or a negative errno.
 */
NPUWIN_API int npuwin_domain_create_fd(struct npuwin *ctx, const struct npuwin_domain_attr *attr,
				       struct npuwin_error *err);

/**
 * npuwin_domain_join_fd() - Join a domain by its descriptor and wait for all ranks.
 * @ctx: the context
 * @fd: the domain; stays the caller's
 * @attr: as for npuwin_domain_join(), @name NULL
 * @domain: out: this rank's membership
 * @err: out: may be NULL
 *
 * Return: as npuwin_domain_join().
 */
NPUWIN_API int npuwin_domain_join_fd(struct npuwin *ctx, int fd,
				     const struct npuwin_domain_attr *attr,
				     struct npuwin_domain **domain, struct npuwin_error *err);

/** npuwin_domain_fd() - Return: the domain's descriptor, owned by @domain. */
NPUWIN_API int npuwin_domain_fd(const struct npuwin_domain *domain);
/** npuwin_domain_rank() - Return: this membership's rank. */
NPUWIN_API uint32_t npuwin_domain_rank(const struct npuwin_domain *domain);
/** npuwin_domain_nranks() - Return: the number of ranks. */
NPUWIN_API uint32_t npuwin_domain_nranks(const struct npuwin_domain *domain);

/**
 * npuwin_domain_reset() - Make an aborted domain usable again.
 * @domain: every surviving rank calls this
 * @deadline_ns: how long to wait for the other survivors and for successors
 * @err: out: may be NULL
 *
 * A domain is aborted by a death, by a collective that failed while it ran (deadline, peer
 * gone, device gone), or by npuwin_domain_abort(). Reset waits until all survivors have
 * stopped writing, clears every credit, and waits until each rank that died or left has a
 * successor that joins with %NPUWIN_DOMAIN_REPLACE (by name, or by the descriptor), or by the
 * bootstrap.
 * Buffers, their contents and pointers to them stay; requests in flight are ended with
 * -ECANCELED; a signal's cells are zero. A successor starts with zeroed memory and
 * allocates the same buffers in the same order.
 *
 * On a domain that is not aborted it does nothing and returns 0; over a bootstrap, once the
 * others have said that they know of nothing either, or at the deadline.
 *
 * Return: 0; -ETIMEDOUT (names who is missing; may be called again); -EPIPE where another
 * rank died meanwhile (may be called again); over a bootstrap -EPROTO where another rank has
 * begun anew (may be called again).
 */
NPUWIN_API int npuwin_domain_reset(struct npuwin_domain *domain, int64_t deadline_ns,
				   struct npuwin_error *err);

/** npuwin_domain_reset_group() - npuwin_domain_reset() of @n ranks of this process at once. */
NPUWIN_API int npuwin_domain_reset_group(struct npuwin_domain *const *domains, uint32_t n,
					 int64_t deadline_ns, struct npuwin_error *err);

/**
 * npuwin_domain_abort() - End every wait in the domain.
 * @domain: a rank of it
 * @error: positive errno that the others are told, up to 4095; anything else is ECANCELED
 */
NPUWIN_API void npuwin_domain_abort(struct npuwin_domain *domain, int error);

/**
 * npuwin_domain_leave() - End a membership.
 * @domain: may be NULL; its requests are freed with it, its buffers too
 *
 * To leave is not to die: what this rank has completed stays valid for the others, and only
 * calls that need this rank again fail, with -EPIPE. A collective that does so aborts the
 * domain, and npuwin_domain_reset() then wants a successor for this rank as for a dead one.
 * Waits for nobody. A process that ends without it has died as far as its peers can tell.
 */
NPUWIN_API void npuwin_domain_leave(struct npuwin_domain *domain);

/*
 * Bootstraps: how ranks that share a fabric, and maybe nothing else, learn of each other.
 */

/**
 * struct npuwin_bootstrap_ops - What a member of a bootstrap can do.
 * @allgather: give @bytes bytes at @mine, and get what every member gave, by rank, at @all
 *	(nranks * @bytes). Waits for the others, and for a member that takes the place of one
 *	that is lost. -ETIMEDOUT at @deadline_ns, naming a rank that has not come: nothing was
 *	given, and the call may be repeated
 * @barrier: wait until every member has called it. -EPIPE where a member that took part in
 *	the exchange before is lost; otherwise as @allgather
 * @abort: end this and every later call of every member with an error that names this rank
 *	and @error, a positive errno. May be called while another thread is in a call
 * @free: give @priv back; may be NULL
 *
 * All members make the same calls in the same order, each by one thread at a time. A failure
 * fills @err, which may be NULL, as those of the library do.
 */
struct npuwin_bootstrap_ops {
	int (*allgather)(void *priv, const void *mine, void *all, size_t bytes,
			 int64_t deadline_ns, struct npuwin_error *err);
	int (*barrier)(void *priv, int64_t deadline_ns, struct npuwin_error *err);
	void (*abort)(void *priv, int error);
	void (*free)(void *priv);
};

/**
 * struct npuwin_bootstrap - A member of a bootstrap: one rank's way to the others.
 * @ops: how; of the library's or of the caller's own, over whatever the job has
 * @priv: for @ops
 * @rank: 0..nranks-1
 * @nranks: members
 * @reserved: zero
 */
struct npuwin_bootstrap {
	const struct npuwin_bootstrap_ops *ops;
	void *priv;
	uint32_t rank;
	uint32_t nranks;
	uint64_t reserved[4];
};

/** NPUWIN_BOOTSTRAP_MAX_BYTES: what a member of the library's can give in one call. */
#define NPUWIN_BOOTSTRAP_MAX_BYTES	16384
/** NPUWIN_BOOTSTRAP_MIN_SECRET: bytes of a secret at least; they should be random. */
#define NPUWIN_BOOTSTRAP_MIN_SECRET	16

/**
 * struct npuwin_bootstrap_attr - How to become a member.
 * @address: where rank 0 listens: "tcp:HOST:PORT" ("tcp:[HOST]:PORT" where HOST has colons)
 *	or "unix:PATH" ("unix:@NAME" for one without a file)
 * @nranks: 1..NPUWIN_MAX_RANKS, the same on every rank
 * @rank: 0..nranks-1, each once
 * @secret: what only members know; NULL with unix: means that members are processes of one
 *	user, which is checked there in any case
 * @secret_bytes: of @secret: 0, or NPUWIN_BOOTSTRAP_MIN_SECRET..4096
 * @deadline_ns: until when to try
 * @reserved: zero
 */
struct npuwin_bootstrap_attr {
	const char *address;
	uint32_t nranks;
	uint32_t rank;
	const void *secret;
	size_t secret_bytes;
	int64_t deadline_ns;
	uint64_t reserved[4];
};

/**
 * npuwin_bootstrap_connect() - Become a member of a job's bootstrap.
 * @attr: how
 * @bootstrap: out: given back with npuwin_bootstrap_free()
 * @err: out: may be NULL
 *
 * Rank 0 listens at @attr's address and returns; a thread of the library serves the others.
 * They try until rank 0 answers. Each proves to the other that it knows the secret, and
 * what they exchange is encrypted with keys made from it. Who does not know it is dropped.
 *
 * A rank whose connection is gone can come anew, from another process. A rank that is taken
 * is tried until the deadline: a host that lost its power is believed gone only after some
 * 20 seconds. Without rank 0's process there is no bootstrap: every call ends with -EPIPE.
 *
 * A name in the address is looked up without regard for the deadline.
 *
 * Return: 0; -EINVAL (a value, or nranks or version that differ from rank 0's: the sentence
 * names both); -EACCES (another secret, or another user); -EBUSY (the rank is connected
 * already, and still is at the deadline); -EADDRINUSE (another one listens there); -EPROTO
 * (what listens there is no bootstrap); -ETIMEDOUT; -ENOMEM.
 */
NPUWIN_API int npuwin_bootstrap_connect(const struct npuwin_bootstrap_attr *attr,
					struct npuwin_bootstrap **bootstrap,
					struct npuwin_error *err);

/**
 * npuwin_bootstrap_local() - Make all members of a bootstrap in this process.
 * @nranks: 1..NPUWIN_MAX_RANKS
 * @bootstraps: out: array of @nranks members, by rank, each given back with
 *	npuwin_bootstrap_free()
 * @err: out: may be NULL
 *
 * For threads. Processes of one host meet by npuwin_bootstrap_connect() at a unix: address.
 *
 * Return: 0; -EINVAL, -ENOMEM, -EMFILE.
 */
NPUWIN_API int npuwin_bootstrap_local(uint32_t nranks, struct npuwin_bootstrap **bootstraps,
				      struct npuwin_error *err);

/**
 * npuwin_bootstrap_free() - Give a member back; NULL is ignored.
 * @bootstrap: no domain is joined by it any more; without rank 0's the others end too
 */
NPUWIN_API void npuwin_bootstrap_free(struct npuwin_bootstrap *bootstrap);

/**
 * npuwin_domain_join_bootstrap() - Join a domain whose ranks are anywhere on one fabric.
 * @ctx: the context: its devices are on the fabric
 * @attr: as for npuwin_domain_join(), @name NULL; @rank and @nranks are the bootstrap's;
 *	%NPUWIN_DOMAIN_REPLACE makes no difference
 * @bootstrap: the rank's; stays the caller's, in use until the rank has left
 * @domain: out: this rank's membership
 * @err: out: may be NULL
 *
 * Ranks may be in other processes, guests and hosts. What each has to know of the others'
 * windows is exchanged by the bootstrap; every rank makes this call, and may join other
 * domains of the same bootstrap before or after it. The windows of the others are not
 * mapped: there is no direct rail. npuwin_domain_reset() uses the bootstrap too, and lets in
 * who joins by it in the place of a rank that is gone.
 *
 * Return: as npuwin_domain_join(); -EOPNOTSUPP where the device is on no fabric; what the
 * bootstrap returns.
 */
NPUWIN_API int npuwin_domain_join_bootstrap(struct npuwin *ctx,
					    const struct npuwin_domain_attr *attr,
					    struct npuwin_bootstrap *bootstrap,
					    struct npuwin_domain **domain,
					    struct npuwin_error *err);

/*
 * Buffers and tensors
 */

/**
 * npuwin_buffer_alloc() - Carve a symmetric buffer from every rank's window.
 * @domain: each rank allocates the same sizes and alignments (and frees them) in the same
 *	order; a difference is found by the next collective, which names two ranks, the first
 *	allocation in which they differ, and its size on both
 * @size: bytes, not zero
 * @align: of its offset and address, a power of two up to 4096, or 0 for 64
 * @buffer: out: freed with npuwin_buffer_free() or by leaving
 * @err: out: may be NULL
 *
 * A new buffer reads as zero. Local: waits for nobody.
 *
 * Return: 0; -EINVAL; -ENOSPC (the window has no such room: the sentence says how much).
 */
NPUWIN_API int npuwin_buffer_alloc(struct npuwin_domain *domain, uint64_t size, uint64_t align,
				   struct npuwin_buffer **buffer, struct npuwin_error *err);

/** npuwin_buffer_free() - Give a buffer back; NULL is ignored. No call may be using it. */
NPUWIN_API void npuwin_buffer_free(struct npuwin_buffer *buffer);
/** npuwin_buffer_ptr() - Return: this rank's memory of @buffer, mapped. */
NPUWIN_API void *npuwin_buffer_ptr(const struct npuwin_buffer *buffer);
/** npuwin_buffer_size() - Return: bytes. */
NPUWIN_API uint64_t npuwin_buffer_size(const struct npuwin_buffer *buffer);

/**
 * enum npuwin_dtype - Element types. Only their size matters to moving them.
 * @NPUWIN_FP64: IEEE 754 binary64
 * @NPUWIN_FP32: IEEE 754 binary32
 * @NPUWIN_FP16: IEEE 754 binary16
 * @NPUWIN_BF16: bfloat16
 * @NPUWIN_FP8_E4M3: 8 bits, 4 of exponent
 * @NPUWIN_FP8_E5M2: 8 bits, 5 of exponent
 * @NPUWIN_INT64: signed, 8 bytes
 * @NPUWIN_INT32: signed, 4 bytes
 * @NPUWIN_INT16: signed, 2 bytes
 * @NPUWIN_INT8: signed, 1 byte
 * @NPUWIN_UINT8: unsigned, 1 byte
 */
enum npuwin_dtype {
	NPUWIN_FP64 = 1,
	NPUWIN_FP32,
	NPUWIN_FP16,
	NPUWIN_BF16,
	NPUWIN_FP8_E4M3,
	NPUWIN_FP8_E5M2,
	NPUWIN_INT64,
	NPUWIN_INT32,
	NPUWIN_INT16,
	NPUWIN_INT8,
	NPUWIN_UINT8,
};

/** npuwin_dtype_size() - Return: bytes of an element, 0 for an unknown dtype. */
NPUWIN_API uint32_t npuwin_dtype_size(uint32_t dtype);
/** npuwin_dtype_name() - Return: "fp64", "bf16", "fp8-e4m3", …, NULL for an unknown one. */
NPUWIN_API const char *npuwin_dtype_name(uint32_t dtype);

/** NPUWIN_MAX_DIMS: dimensions of a tensor at most. */
#define NPUWIN_MAX_DIMS		8

/**
 * struct npuwin_tensor - A dense C-order array over a buffer.
 * @buffer: where; NULL makes a tensor that is not window-bound, which every call refuses
 * @offset: bytes from the buffer's start, a multiple of the element size
 * @dtype: enum npuwin_dtype
 * @ndim: 1..NPUWIN_MAX_DIMS
 * @shape: @ndim extents
 */
struct npuwin_tensor {
	struct npuwin_buffer *buffer;
	uint64_t offset;
	uint32_t dtype;
	uint32_t ndim;
	uint64_t shape[NPUWIN_MAX_DIMS];
};

/*
 * Primitives
 */

/**
 * enum npuwin_rail - Who moves the bytes.
 * @NPUWIN_RAIL_HOST: the host posts descriptors to the engine
 * @NPUWIN_RAIL_DIRECT: the calling core stores into mapped peer windows
 */
enum npuwin_rail {
	NPUWIN_RAIL_HOST,
	NPUWIN_RAIL_DIRECT,
};

/**
 * enum npuwin_cmp - Comparisons of an int32 cell with a value: cell OP value.
 * @NPUWIN_EQ: equal
 * @NPUWIN_NE: not equal
 * @NPUWIN_GT: greater
 * @NPUWIN_GE: greater or equal
 * @NPUWIN_LT: less
 * @NPUWIN_LE: less or equal
 */
enum npuwin_cmp {
	NPUWIN_EQ,
	NPUWIN_NE,
	NPUWIN_GT,
	NPUWIN_GE,
	NPUWIN_LT,
	NPUWIN_LE,
};

/**
 * enum npuwin_notify_op - What a notify does to an int32 cell.
 * @NPUWIN_SET: stores
 * @NPUWIN_ADD: adds atomically, modulo 2^32
 */
enum npuwin_notify_op {
	NPUWIN_SET,
	NPUWIN_ADD,
};

/**
 * enum npuwin_put_op - How a put writes.
 * @NPUWIN_COPY: as bytes
 * @NPUWIN_ADD_INT32: adds each int32 atomically, modulo 2^32
 * @NPUWIN_ADD_FP32: adds each fp32 atomically, rounded to nearest even
 *
 * Adding wants offsets, strides and bytes of a row to be multiples of 4.
 */
enum npuwin_put_op {
	NPUWIN_COPY,
	NPUWIN_ADD_INT32,
	NPUWIN_ADD_FP32,
};

/**
 * struct npuwin_put - A one-sided write of rows.
 * @src: buffer read, this rank's memory of it
 * @src_offset: bytes from its start
 * @src_stride: bytes from row to row; of several, @row_bytes at least
 * @dst: buffer written, @dst_rank's memory of it; may be @src
 * @dst_offset: bytes from its start
 * @dst_stride: bytes from row to row; of several, @row_bytes at least
 * @rows: number of rows; 0 moves nothing
 * @row_bytes: bytes of each
 * @dst_rank: destination, may be the own rank
 * @op: enum npuwin_put_op
 * @rail: enum npuwin_rail
 * @reserved: zero
 */
struct npuwin_put {
	const struct npuwin_buffer *src;
	uint64_t src_offset;
	uint64_t src_stride;
	const struct npuwin_buffer *dst;
	uint64_t dst_offset;
	uint64_t dst_stride;
	uint64_t rows;
	uint64_t row_bytes;
	uint32_t dst_rank;
	uint32_t op;
	uint32_t rail;
	uint32_t reserved;
};

/**
 * npuwin_put() - Write rows into a peer's window; complete on return.
 * @domain: this rank
 * @put: what
 * @err: out: may be NULL
 *
 * Return: 0; -EINVAL, -EOVERFLOW, -ERANGE (outside the buffer), -EOPNOTSUPP (rail): nothing has
 * moved; -EPIPE (a rank has died, or @dst_rank has left), -ECANCELED (the domain was aborted),
 * -ENODEV (the device is gone).
 */
NPUWIN_API int npuwin_put(struct npuwin_domain *domain, const struct npuwin_put *put,
			  struct npuwin_error *err);

/**
 * npuwin_notify() - Store or add an int32 in a peer's window, and wake who waits there.
 * @domain: this rank
 * @dst_rank: whose window
 * @buffer: buffer of the cell
 * @offset: bytes from its start, a multiple of 4
 * @op: enum npuwin_notify_op
 * @value: operand
 * @rail: enum npuwin_rail
 * @err: out: may be NULL
 *
 * What this rank has written with earlier calls is visible to who sees the new value.
 *
 * Return: as npuwin_put().
 */
NPUWIN_API int npuwin_notify(struct npuwin_domain *domain, uint32_t dst_rank,
			     const struct npuwin_buffer *buffer, uint64_t offset, uint32_t op,
			     int32_t value, uint32_t rail, struct npuwin_error *err);

/**
 * npuwin_wait() - Wait until an int32 of the own window compares.
 * @domain: this rank
 * @buffer: buffer of the cell
 * @offset: bytes from its start, a multiple of 4
 * @cmp: enum npuwin_cmp: until cell @cmp @value holds
 * @value: operand
 * @deadline_ns: when to give up
 * @observed: out: what the cell last read; may be NULL
 * @err: out: may be NULL
 *
 * Spins briefly, then yields, then sleeps. An expired deadline aborts nothing.
 *
 * Return: 0; -EINVAL, -ERANGE (outside the buffer); -ETIMEDOUT (names the expected and the
 * observed value); -EPIPE (a rank has died), -ECANCELED (the domain was aborted), -ENODEV (the
 * device is gone).
 */
NPUWIN_API int npuwin_wait(struct npuwin_domain *domain, const struct npuwin_buffer *buffer,
			   uint64_t offset, uint32_t cmp, int32_t value, int64_t deadline_ns,
			   int32_t *observed, struct npuwin_error *err);

/**
 * npuwin_test() - Look once whether an int32 of the own window compares.
 * @domain: this rank
 * @buffer: buffer of the cell
 * @offset: bytes from its start, a multiple of 4
 * @cmp: enum npuwin_cmp
 * @value: operand
 * @observed: out: what the cell read; may be NULL
 * @err: out: may be NULL
 *
 * Looks at memory alone: it tells nothing of ranks that are gone.
 *
 * Return: 0; -EAGAIN if it does not compare; -EINVAL, -ERANGE (outside the buffer).
 */
NPUWIN_API int npuwin_test(struct npuwin_domain *domain, const struct npuwin_buffer *buffer,
			   uint64_t offset, uint32_t cmp, int32_t value, int32_t *observed,
			   struct npuwin_error *err);

/**
 * npuwin_barrier() - Wait until every rank has called it.
 * @domain: this rank
 * @deadline_ns: -ETIMEDOUT when it passes, and the domain is aborted
 * @err: out: may be NULL
 *
 * A collective: ranks that call different ones at the same time get an error.
 *
 * Return: as npuwin_all_to_all_v().
 */
NPUWIN_API int npuwin_barrier(struct npuwin_domain *domain, int64_t deadline_ns,
			      struct npuwin_error *err);

/** npuwin_barrier_group() - npuwin_barrier() of @n ranks of this process at once. */
NPUWIN_API int npuwin_barrier_group(struct npuwin_domain *const *domains, uint32_t n,
				    int64_t deadline_ns, struct npuwin_error *err);

/*
 * all_to_all_v
 */

/**
 * enum npuwin_mode - What crosses of each block.
 * @NPUWIN_MODE_BLOCK: all MAX_RECV rows, whatever the count
 * @NPUWIN_MODE_ROWS: the counted rows; a count of zero moves nothing
 */
enum npuwin_mode {
	NPUWIN_MODE_BLOCK,
	NPUWIN_MODE_ROWS,
};

/**
 * struct npuwin_a2av - Operands of all_to_all_v on NR ranks.
 * @input: [NR*MAX_RECV, SIZE…], any dtype; block d goes to rank d
 * @target: same shape and dtype; block s comes from rank s. MAX_RECV = shape[0] / NR
 * @signal: int32 [NR] or [NR,1], credits: all cells are 0 before the first call, and again once
 *	every rank has returned
 * @send_counts: int32 [NR] or [NR,1]: rows for each destination, read when the call starts
 * @recv_counts: int32 [NR] or [NR,1]: rows that each source sent here
 * @mode: enum npuwin_mode
 * @rail: enum npuwin_rail
 * @reserved: zero
 *
 * The five are window-bound, of this domain and in pairwise distinct buffers. @target, @signal
 * and @recv_counts, which peers write, are at the same place of the same buffers on every rank;
 * @input and @send_counts, which only their rank reads, need not be.
 */
struct npuwin_a2av {
	struct npuwin_tensor input;
	struct npuwin_tensor target;
	struct npuwin_tensor signal;
	struct npuwin_tensor send_counts;
	struct npuwin_tensor recv_counts;
	uint32_t mode;
	uint32_t rail;
	uint64_t reserved[2];
};

/**
 * struct npuwin_clamp - A send count that was out of 0..MAX_RECV.
 * @dest: its destination rank
 * @requested: what send_counts said
 * @sent: what was published
 */
struct npuwin_clamp {
	uint32_t dest;
	int32_t requested;
	int32_t sent;
};

/**
 * struct npuwin_a2av_result - What a call did.
 * @clamps: in: room for @clamps_room elements, or NULL; out: filled, by destination
 * @clamps_room: in: elements of @clamps
 * @nclamped: out: how many counts were clamped, even if there was no room to tell which
 * @max_recv: out: MAX_RECV
 * @reserved0: zero
 * @bytes: out: bytes of rows that this rank wrote, its own block included
 * @reserved: zero
 */
struct npuwin_a2av_result {
	struct npuwin_clamp *clamps;
	uint32_t clamps_room;
	uint32_t nclamped;
	uint32_t max_recv;
	uint32_t reserved0;
	uint64_t bytes;
	uint64_t reserved[4];
};

/**
 * npuwin_all_to_all_v() - Exchange rows of variable number with every rank.
 * @domain: this rank; every rank makes the same call
 * @op: operands
 * @deadline_ns: when to give up; the domain is then aborted
 * @result: in/out: may be NULL
 * @err: out: may be NULL
 *
 * On return every peer's counted rows and counts are in @op's target and recv_counts, and
 * the input may be written again. No peer writes the target of this rank before this call
 * or after it. Published counts are clamped to 0..MAX_RECV. Rows past the count are
 * unspecified.
 *
 * Return: 0. Before anything moves: -EINVAL (operand, shape, dtype, alias, mode, rail),
 * -EOPNOTSUPP (rail), -EPROTO (ranks disagree: names both ranks and both values; the domain
 * stays usable), -EBUSY (too many requests of this rank are in flight), -ENOMEM (first call
 * with these operands). -ETIMEDOUT (names the rank that did not arrive and the expected and
 * observed counter), -EPIPE (a rank is gone), -ECANCELED (another rank aborted), -ENODEV (the
 * device is gone), -EIO (the engine refused a descriptor): the domain is aborted until
 * npuwin_domain_reset().
 */
NPUWIN_API int npuwin_all_to_all_v(struct npuwin_domain *domain, const struct npuwin_a2av *op,
				   int64_t deadline_ns, struct npuwin_a2av_result *result,
				   struct npuwin_error *err);

/**
 * npuwin_all_to_all_v_group() - npuwin_all_to_all_v() of several ranks of this process.
 * @domains: @n memberships, in distinct ranks
 * @ops: @n operands, by the same index
 * @n: at least 1
 * @deadline_ns: when to give up; the domain is then aborted
 * @results: in/out: @n elements, by the same index, or NULL
 * @err: out: of the first that failed; may be NULL
 *
 * The host-orchestrated form: the calling thread drives all of them, whatever @n. An argument
 * error of one prevents all.
 *
 * Return: as npuwin_all_to_all_v(), of the first that failed.
 */
NPUWIN_API int npuwin_all_to_all_v_group(struct npuwin_domain *const *domains,
					 const struct npuwin_a2av *ops, uint32_t n,
					 int64_t deadline_ns,
					 struct npuwin_a2av_result *results,
					 struct npuwin_error *err);

/**
 * npuwin_all_to_all_v_start() - Start an npuwin_all_to_all_v() without waiting for it.
 * @domain: this rank
 * @op: operands; copied, but the tensors' memory is in use until completion
 * @deadline_ns: of the operation
 * @request: out: freed with npuwin_request_free()
 * @err: out: may be NULL
 *
 * Several may be in flight; they execute in the order of their starts. On the host rail it
 * goes on by itself; on the direct rail it goes on while somebody tests or waits, for it or for
 * another request of the same context and domain, and by itself once npuwin_request_fd() was
 * called.
 *
 * A start waits, at most until @deadline_ns, for a blocking call that another thread is in for
 * this rank, and for requests in flight on the other rail.
 *
 * Return: 0, or what npuwin_all_to_all_v() returns before anything moves; -EBUSY where 256
 * requests of this rank are in flight; -ETIMEDOUT, and the domain is aborted, where such a wait
 * came to its end; -EPIPE or -ECANCELED where the domain was aborted before. Whether the ranks
 * agree, and how the call ended, is told by npuwin_request_test() and npuwin_request_wait().
 */
NPUWIN_API int npuwin_all_to_all_v_start(struct npuwin_domain *domain,
					 const struct npuwin_a2av *op, int64_t deadline_ns,
					 struct npuwin_request **request,
					 struct npuwin_error *err);

/**
 * npuwin_request_test() - Look whether a request is complete.
 * @request: the request
 * @result: in/out: filled once it is complete; may be NULL
 * @err: out: may be NULL
 *
 * Return: 0 complete; -EAGAIN not yet; else the operation's error.
 */
NPUWIN_API int npuwin_request_test(struct npuwin_request *request,
				   struct npuwin_a2av_result *result, struct npuwin_error *err);

/**
 * npuwin_request_wait() - Wait for a request.
 * @request: the request
 * @deadline_ns: of this wait: -EAGAIN when it passes and the operation goes on
 * @result: in/out: may be NULL
 * @err: out: may be NULL
 *
 * Return: 0 complete; -EAGAIN; else the operation's error.
 */
NPUWIN_API int npuwin_request_wait(struct npuwin_request *request, int64_t deadline_ns,
				   struct npuwin_a2av_result *result, struct npuwin_error *err);

/**
 * npuwin_request_fd() - A descriptor that polls readable once the request is complete.
 * @request: the request
 * @err: out: may be NULL
 *
 * Return: the descriptor, owned by the request; or a negative errno.
 */
NPUWIN_API int npuwin_request_fd(struct npuwin_request *request, struct npuwin_error *err);

/**
 * npuwin_request_free() - Give a request back; NULL is ignored.
 * @request: if it is not complete, the domain is aborted, since its peers cannot complete
 */
NPUWIN_API void npuwin_request_free(struct npuwin_request *request);

#ifdef __cplusplus
}
#endif

#endif /* NPUWIN_H */
