// SPDX-License-Identifier: MIT
/* Bootstraps: members, whose calls are answered by the hub. */
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include "bootstrap.h"

/*
 * How long past the deadline the hub's word on who is missing is waited for. It comes at the
 * deadline; not at all from a process that is stopped or a host that is cut off.
 */
#define ANSWER_NS	1000000000LL
/* How long an abort may take to be sent. */
#define ABORT_NS	1000000000LL
/* Between attempts, where rank 0 is not there, and where it has somebody in this rank's place. */
#define RETRY_NS	20000000
#define TAKEN_PAUSE_NS	100000000

#define TAKE_MORE	1

/**
 * struct member - A member.
 * @bs: what its user sees
 * @ch: to the hub
 * @lock: protects what is sent on @ch
 * @sequence: of the last call
 * @broken: nothing works any more, because of @why
 * @why: see @broken
 * @hub: of rank 0, for which it is served: ends with it
 * @address: of rank 0: where that listens
 */
struct member {
	struct npuwin_bootstrap bs;
	struct boot_channel ch;
	pthread_mutex_t lock;
	uint32_t sequence;
	bool broken;
	struct npuwin_error why;
	struct boot_hub *hub;
	struct boot_address address;
};

/**
 * struct call - A call that waits for its answer.
 * @kind: enum boot_kind
 * @all: where the result goes
 * @bytes: of all of it
 * @have: that have come
 * @deadline_ns: of the call
 * @err: as its caller gave it
 */
struct call {
	uint32_t kind;
	uint8_t *all;
	size_t bytes;
	size_t have;
	int64_t deadline_ns;
	struct npuwin_error *err;
};

static int fail_again(const struct member *member, struct npuwin_error *err)
{
	if (err)
		*err = member->why;
	return member->why.code;
}

/* The connection, or the whole bootstrap, is of no use any more. */
static int lose_hub(struct member *member, int rc, struct npuwin_error *err)
{
	int32_t rank = (int32_t)member->bs.rank;

	member->broken = true;
	if (rc == -EPROTO)
		npuwin_fail(&member->why, rc, rank, 0,
			    "bootstrap: what came from rank 0 is not what it sent, or no message");
	else
		npuwin_fail(&member->why, rc, rank, 0, "bootstrap: rank 0 is gone");
	return fail_again(member, err);
}

static int take_result(struct member *member, struct call *call, const struct boot_message *msg)
{
	if (msg->length > call->bytes - call->have || (!msg->length && call->bytes))
		return lose_hub(member, -EPROTO, call->err);
	if (msg->length)
		memcpy(call->all + call->have, msg->payload, msg->length);
	call->have += msg->length;
	return call->have == call->bytes ? npuwin_ok(call->err, 0) : TAKE_MORE;
}

static int take_failed(struct member *member, struct call *call, const struct boot_message *msg)
{
	char text[BOOT_SENTENCE];
	uint32_t length, peer;
	int32_t code;

	if (msg->length < BOOT_FAILED_ARGS || msg->length >= BOOT_FAILED_ARGS + sizeof(text))
		return lose_hub(member, -EPROTO, call->err);
	length = msg->length - BOOT_FAILED_ARGS;
	code = (int32_t)boot_get32(msg->payload);
	peer = boot_get32(msg->payload + 4);
	memcpy(text, msg->payload + BOOT_FAILED_ARGS, length);
	text[length] = 0;
	if (code >= 0 || code < -4095)
		return lose_hub(member, -EPROTO, call->err);
	return npuwin_fail(call->err, code, (int32_t)member->bs.rank,
			   peer < member->bs.nranks ? (int32_t)peer : NPUWIN_NOBODY,
			   "bootstrap: %s", text);
}

static int take_aborted(struct member *member, const struct boot_message *msg,
			struct npuwin_error *err)
{
	const char *name, *text;
	uint32_t rank;
	int error;

	if (msg->length != 8)
		return lose_hub(member, -EPROTO, err);
	rank = boot_get32(msg->payload);
	error = (int)boot_get32(msg->payload + 4);
	name = strerrorname_np(error);
	text = strerrordesc_np(error);
	member->broken = true;
	npuwin_fail(&member->why, -ECANCELED, (int32_t)member->bs.rank,
		    rank < member->bs.nranks ? (int32_t)rank : NPUWIN_NOBODY,
		    "bootstrap: rank %" PRIu32 " has aborted: %s (%s)", rank,
		    name ? name : "error", text ? text : "unknown");
	return fail_again(member, err);
}

/* Take a message. TAKE_MORE: it does not end the call; -EAGAIN: there is none yet. */
static int take(struct member *member, struct call *call)
{
	struct boot_message msg;
	int rc = channel_get(&member->ch, &msg);

	if (rc == -EAGAIN)
		return rc;
	if (rc)
		return lose_hub(member, rc, call->err);
	if (msg.type == BOOT_ABORTED)
		return take_aborted(member, &msg, call->err);
	/* Of a call that gave up waiting for it. */
	if (msg.sequence != member->sequence)
		return TAKE_MORE;
	if (msg.type == BOOT_RESULT)
		return take_result(member, call, &msg);
	if (msg.type == BOOT_FAILED)
		return take_failed(member, call, &msg);
	return lose_hub(member, -EPROTO, call->err);
}

static int flush(struct boot_channel *ch, int64_t deadline_ns)
{
	int rc;

	for (;;) {
		rc = channel_send(ch);
		if (rc != -EAGAIN)
			return rc;
		if (!net_wait(ch->fd, POLLOUT, deadline_ns))
			return -ETIMEDOUT;
	}
}

/* Send a message, behind what is left of the one before. The channel is locked. */
static int send_message(struct member *member, enum boot_type type, const void *payload,
			size_t length, int64_t deadline_ns)
{
	struct boot_channel *ch = &member->ch;
	int rc = flush(ch, deadline_ns);

	if (rc)
		return rc;
	channel_put(ch, &(struct boot_message) {
		.type = (uint16_t)type,
		.rank = member->bs.rank,
		.nranks = member->bs.nranks,
		.sequence = member->sequence,
		.length = (uint32_t)length,
		.payload = payload,
	});
	return flush(ch, deadline_ns);
}

static int send_call(struct member *member, const struct call *call, const void *mine,
		     size_t bytes, int64_t until)
{
	uint8_t payload[BOOT_CHUNK];
	int64_t left = NPUWIN_NO_DEADLINE;
	int rc;

	if (call->deadline_ns != NPUWIN_NO_DEADLINE)
		left = call->deadline_ns - npuwin_now();
	boot_put32(payload, call->kind);
	boot_put32(payload + 4, 0);
	boot_put64(payload + 8, (uint64_t)(left > 0 ? left : 0));
	if (bytes)
		memcpy(payload + BOOT_CALL_ARGS, mine, bytes);
	pthread_mutex_lock(&member->lock);
	rc = send_message(member, BOOT_CALL, payload, BOOT_CALL_ARGS + bytes, until);
	pthread_mutex_unlock(&member->lock);
	sodium_memzero(payload, BOOT_CALL_ARGS + bytes);
	return rc;
}

static int fail_silent(const struct member *member, struct npuwin_error *err)
{
	return npuwin_fail(err, -ETIMEDOUT, (int32_t)member->bs.rank, 0,
			   "bootstrap: deadline: rank 0's process does not answer");
}

/* Take what is here. Whether the call goes on. */
static bool take_all(struct member *member, struct call *call, int *rc)
{
	do {
		*rc = take(member, call);
	} while (*rc == TAKE_MORE);
	return *rc == -EAGAIN;
}

static int call(struct member *member, uint32_t kind, const void *mine, void *all, size_t bytes,
		int64_t deadline_ns, struct npuwin_error *err)
{
	struct call call = {
		.kind = kind,
		.all = all,
		.bytes = bytes * member->bs.nranks,
		.deadline_ns = deadline_ns,
		.err = err,
	};
	int64_t until = npuwin_now();
	int rc;

	if (member->broken)
		return fail_again(member, err);
	if (until < deadline_ns)
		until = deadline_ns;
	if (__builtin_add_overflow(until, ANSWER_NS, &until))
		until = NPUWIN_NO_DEADLINE;
	pthread_mutex_lock(&member->lock);
	member->sequence++;
	pthread_mutex_unlock(&member->lock);
	/* An abort may have come while nobody looked, and its sender be gone since. */
	if (!take_all(member, &call, &rc))
		return rc;
	if (send_call(member, &call, mine, bytes, until) == -ETIMEDOUT)
		return fail_silent(member, err);
	/* What was not sent, because nobody is there, is found out here too. */
	while (take_all(member, &call, &rc))
		if (!net_wait(member->ch.fd, POLLIN, until))
			return fail_silent(member, err);
	return rc;
}

static int member_allgather(void *priv, const void *mine, void *all, size_t bytes,
			    int64_t deadline_ns, struct npuwin_error *err)
{
	struct member *member = priv;

	if (!bytes || bytes > NPUWIN_BOOTSTRAP_MAX_BYTES)
		return npuwin_fail(err, -EINVAL, (int32_t)member->bs.rank, NPUWIN_NOBODY,
				   "bootstrap: allgather of %zu bytes, not in 1..%d", bytes,
				   NPUWIN_BOOTSTRAP_MAX_BYTES);
	return call(member, BOOT_ALLGATHER, mine, all, bytes, deadline_ns, err);
}

static int member_barrier(void *priv, int64_t deadline_ns, struct npuwin_error *err)
{
	return call(priv, BOOT_BARRIER, NULL, NULL, 0, deadline_ns, err);
}

static void member_abort(void *priv, int error)
{
	struct member *member = priv;
	uint8_t payload[4];

	boot_put32(payload, (uint32_t)(error >= 1 && error <= 4095 ? error : ECANCELED));
	pthread_mutex_lock(&member->lock);
	send_message(member, BOOT_ABORT, payload, sizeof(payload), npuwin_now() + ABORT_NS);
	pthread_mutex_unlock(&member->lock);
}

static void member_free(void *priv)
{
	struct member *member = priv;

	if (member->hub)
		hub_destroy(member->hub);
	if (member->address.unlink[0])
		unlink(member->address.unlink);
	if (member->ch.fd >= 0)
		channel_close(&member->ch);
	pthread_mutex_destroy(&member->lock);
	free(member);
}

static const struct npuwin_bootstrap_ops member_ops = {
	.allgather = member_allgather,
	.barrier = member_barrier,
	.abort = member_abort,
	.free = member_free,
};

static int member_create(uint32_t rank, uint32_t nranks, struct member **out,
			 struct npuwin_error *err)
{
	struct member *member;

	/* Without random numbers there are no keys. */
	if (sodium_init() < 0)
		return npuwin_fail(err, -EIO, (int32_t)rank, NPUWIN_NOBODY,
				   "bootstrap: libsodium cannot be used");
	member = calloc(1, sizeof(*member));
	if (!member)
		return npuwin_fail(err, -ENOMEM, (int32_t)rank, NPUWIN_NOBODY,
				   "bootstrap: no memory for a member");
	member->bs.ops = &member_ops;
	member->bs.priv = member;
	member->bs.rank = rank;
	member->bs.nranks = nranks;
	member->ch.fd = -1;
	pthread_mutex_init(&member->lock, NULL);
	*out = member;
	return 0;
}

static int check_ranks(uint32_t rank, uint32_t nranks, struct npuwin_error *err)
{
	if (!nranks || nranks > NPUWIN_MAX_RANKS)
		return npuwin_fail(err, -EINVAL, NPUWIN_NOBODY, NPUWIN_NOBODY,
				   "bootstrap: nranks is %" PRIu32 ", not in 1..%d", nranks,
				   NPUWIN_MAX_RANKS);
	if (rank >= nranks)
		return npuwin_fail(err, -EINVAL, NPUWIN_NOBODY, NPUWIN_NOBODY,
				   "bootstrap: rank %" PRIu32 " is not in 0..%" PRIu32, rank,
				   nranks - 1);
	return 0;
}

static int check_attr(const struct npuwin_bootstrap_attr *attr, struct boot_address *address,
		      struct npuwin_error *err)
{
	int32_t rank = (int32_t)attr->rank;
	size_t i;
	int rc;

	rc = check_ranks(attr->rank, attr->nranks, err);
	if (rc)
		return rc;
	for (i = 0; i < ARRAY_SIZE(attr->reserved); i++)
		if (attr->reserved[i])
			return npuwin_fail(err, -EINVAL, rank, NPUWIN_NOBODY,
					   "bootstrap: reserved[%zu] is 0x%" PRIx64 ", want 0", i,
					   attr->reserved[i]);
	if (attr->secret_bytes && !attr->secret)
		return npuwin_fail(err, -EINVAL, rank, NPUWIN_NOBODY,
				   "bootstrap: the secret is NULL, but has %zu bytes",
				   attr->secret_bytes);
	if (attr->secret_bytes > BOOT_SECRET_MAX ||
	    (attr->secret_bytes && attr->secret_bytes < NPUWIN_BOOTSTRAP_MIN_SECRET))
		return npuwin_fail(err, -EINVAL, rank, NPUWIN_NOBODY,
				   "bootstrap: the secret has %zu bytes, not %d..%d",
				   attr->secret_bytes, NPUWIN_BOOTSTRAP_MIN_SECRET,
				   BOOT_SECRET_MAX);
	rc = net_parse(attr->address, address, err);
	if (!rc && !attr->secret_bytes && address->at[0].ss_family != AF_UNIX)
		rc = npuwin_fail(err, -EINVAL, rank, NPUWIN_NOBODY,
				 "bootstrap %.100s: tcp: wants a secret", attr->address);
	return rc;
}

static int pair(struct boot_hub *hub, struct member *member, struct npuwin_error *err)
{
	int rc = hub_pair(hub, member->bs.rank, &member->ch);

	if (rc)
		npuwin_fail(err, rc, (int32_t)member->bs.rank, NPUWIN_NOBODY,
			    "bootstrap: cannot connect rank %" PRIu32 ": %s", member->bs.rank,
			    strerror(-rc));
	return rc;
}

/* Rank 0: listen, serve, and be the first that is served. */
static int found(struct member *member, const struct npuwin_bootstrap_attr *attr,
		 const struct boot_secret *secret, struct npuwin_error *err)
{
	int listener, rc;

	listener = net_listen(&member->address, attr->address, err);
	if (listener < 0)
		return listener;
	rc = hub_create(attr->nranks, secret, listener, &member->hub, err);
	if (rc)
		return rc;
	rc = pair(member->hub, member, err);
	return rc ? rc : hub_start(member->hub, err);
}

static int fail_alone(const struct npuwin_bootstrap_attr *attr, int why, struct npuwin_error *err)
{
	return npuwin_fail(err, -ETIMEDOUT, (int32_t)attr->rank, 0,
			   "deadline: bootstrap %.100s: rank 0 does not listen there: %s",
			   attr->address, strerror(-why));
}

/* Go to rank 0 once. -EAGAIN with @why: it is not there; otherwise it has answered. */
static int knock(struct member *member, const struct npuwin_bootstrap_attr *attr,
		 const struct boot_secret *secret, int *why, struct npuwin_error *err)
{
	int fd, rc;

	fd = net_connect(&member->address, attr->address, attr->deadline_ns, why, err);
	if (fd < 0)
		return fd;
	member->ch.fd = fd;
	rc = auth_member(&member->ch, attr, secret, attr->deadline_ns, err);
	if (!rc)
		return 0;
	channel_close(&member->ch);
	if (rc == -EAGAIN)
		*why = -ECONNRESET;
	return rc;
}

/*
 * Another rank: go to rank 0, until it answers. That the rank is taken is no answer before the
 * deadline: who has it may be on a host that is gone, and of that nobody is told.
 */
static int come(struct member *member, const struct npuwin_bootstrap_attr *attr,
		const struct boot_secret *secret, struct npuwin_error *err)
{
	struct npuwin_error said, taken = { 0 };
	int rc, why = -ECONNREFUSED;

	for (;;) {
		rc = knock(member, attr, secret, &why, &said);
		if (rc == -EBUSY)
			taken = said;
		if (rc != -EBUSY && rc != -EAGAIN)
			break;
		if (rc == -EBUSY)
			net_pause(attr->deadline_ns, TAKEN_PAUSE_NS);
		else
			net_pause(attr->deadline_ns, RETRY_NS);
		if (attr->deadline_ns <= npuwin_now())
			break;
	}
	if (rc == -EAGAIN && !taken.code)
		return fail_alone(attr, why, err);
	/* The deadline may have ended another attempt. */
	if ((rc == -EAGAIN || rc == -ETIMEDOUT) && taken.code)
		said = taken;
	if (rc && err)
		*err = said;
	return rc ? said.code : 0;
}

int npuwin_bootstrap_connect(const struct npuwin_bootstrap_attr *attr,
			     struct npuwin_bootstrap **bootstrap, struct npuwin_error *err)
{
	struct boot_secret secret;
	struct boot_address address;
	struct member *member;
	int rc;

	*bootstrap = NULL;
	rc = check_attr(attr, &address, err);
	if (rc)
		return rc;
	rc = member_create(attr->rank, attr->nranks, &member, err);
	if (rc)
		return rc;
	member->address = address;
	/* The file of the socket is rank 0's to remove. */
	if (attr->rank)
		member->address.unlink[0] = 0;
	auth_secret(&secret, attr->secret, attr->secret_bytes);
	rc = attr->rank ? come(member, attr, &secret, err) : found(member, attr, &secret, err);
	sodium_memzero(&secret, sizeof(secret));
	if (rc) {
		member_free(member);
		return rc;
	}
	*bootstrap = &member->bs;
	return npuwin_ok(err, 0);
}

int npuwin_bootstrap_local(uint32_t nranks, struct npuwin_bootstrap **bootstraps,
			   struct npuwin_error *err)
{
	const struct boot_secret none = { 0 };
	struct boot_hub *hub = NULL;
	struct member *member;
	uint32_t rank;
	int rc;

	rc = check_ranks(0, nranks, err);
	if (rc)
		return rc;
	memset(bootstraps, 0, nranks * sizeof(struct npuwin_bootstrap *));
	for (rank = 0; rank < nranks && !rc; rank++) {
		rc = member_create(rank, nranks, &member, err);
		if (rc)
			break;
		bootstraps[rank] = &member->bs;
		if (!rank) {
			rc = hub_create(nranks, &none, -1, &member->hub, err);
			hub = member->hub;
		}
		if (!rc)
			rc = pair(hub, member, err);
	}
	if (!rc)
		rc = hub_start(hub, err);
	for (rank = 0; rank < nranks && rc; rank++) {
		npuwin_bootstrap_free(bootstraps[rank]);
		bootstraps[rank] = NULL;
	}
	return rc ? rc : npuwin_ok(err, 0);
}

void npuwin_bootstrap_free(struct npuwin_bootstrap *bootstrap)
{
	if (bootstrap && bootstrap->ops->free)
		bootstrap->ops->free(bootstrap->priv);
}
