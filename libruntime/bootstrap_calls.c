// SPDX-License-Identifier: MIT
/*
 * Bootstraps: the calls of members. Each gets one answer: all that was given, or why not. A
 * call that has failed has given nothing.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "bootstrap_hub.h"

static void gather_put(struct gather *gather)
{
	if (gather && !--gather->refs)
		free(gather);
}

static struct gather *gather_create(size_t bytes)
{
	struct gather *gather = calloc(1, sizeof(*gather) + bytes);

	if (gather) {
		gather->refs = 1;
		gather->bytes = bytes;
	}
	return gather;
}

/*
 * What a client is owed
 */

bool client_owed(const struct client *client)
{
	return !channel_free(&client->ch) || client->result || client->failed ||
	       client->tell_abort;
}

void client_put(struct boot_hub *hub, struct client *client, enum boot_type type,
		const void *payload, size_t length)
{
	channel_put(&client->ch, &(struct boot_message) {
		.type = (uint16_t)type,
		.rank = client->greeting.rank,
		.nranks = hub->nranks,
		.sequence = client->sequence,
		.length = (uint32_t)length,
		.payload = payload,
	});
}

static void put_result(struct boot_hub *hub, struct client *client)
{
	struct gather *gather = client->result;
	size_t n = gather->bytes - client->sent;

	if (n > BOOT_CHUNK)
		n = BOOT_CHUNK;
	client_put(hub, client, BOOT_RESULT, gather->data + client->sent, n);
	client->sent += n;
	if (client->sent < gather->bytes)
		return;
	gather_put(gather);
	client->result = NULL;
}

static void put_failed(struct boot_hub *hub, struct client *client)
{
	uint8_t payload[BOOT_FAILED_ARGS + BOOT_SENTENCE];
	size_t length = strlen(client->text);

	boot_put32(payload, (uint32_t)client->code);
	boot_put32(payload + 4, client->peer);
	memcpy(payload + BOOT_FAILED_ARGS, client->text, length);
	client_put(hub, client, BOOT_FAILED, payload, BOOT_FAILED_ARGS + length);
	client->failed = false;
}

static void put_aborted(struct boot_hub *hub, struct client *client)
{
	uint8_t payload[8];

	boot_put32(payload, hub->abort_rank);
	boot_put32(payload + 4, hub->abort_error);
	client_put(hub, client, BOOT_ABORTED, payload, sizeof(payload));
	client->tell_abort = false;
}

int client_pay(struct boot_hub *hub, struct client *client)
{
	int rc;

	for (;;) {
		rc = channel_send(&client->ch);
		if (rc)
			return rc;
		if (client->result)
			put_result(hub, client);
		else if (client->failed)
			put_failed(hub, client);
		else if (client->tell_abort)
			put_aborted(hub, client);
		else
			return 0;
	}
}

void client_drop(struct client *client)
{
	gather_put(client->result);
	client->result = NULL;
}

/*
 * Calls
 */

/* Its call gives nothing any more. */
static void withdraw(struct boot_hub *hub, struct client *client)
{
	if (!client->calling)
		return;
	client->calling = false;
	if (--hub->ncalling)
		return;
	gather_put(hub->gather);
	hub->gather = NULL;
}

static void __attribute__((format(printf, 5, 6)))
fail(struct boot_hub *hub, struct client *client, int code, uint32_t peer, const char *fmt, ...)
{
	va_list args;

	withdraw(hub, client);
	client->failed = true;
	client->code = code;
	client->peer = peer;
	va_start(args, fmt);
	vsnprintf(client->text, sizeof(client->text), fmt, args);
	va_end(args);
}

static const char *describe(uint32_t kind, uint32_t bytes, char *text, size_t room)
{
	if (kind == BOOT_BARRIER)
		return "barrier";
	snprintf(text, room, "allgather of %" PRIu32 " bytes", bytes);
	return text;
}

static void complete(struct boot_hub *hub)
{
	uint32_t rank;

	for (rank = 0; rank < hub->nranks; rank++) {
		struct client *client = hub->members[rank];

		client->calling = false;
		client->gave_up = false;
		client->took_part = true;
		client->result = hub->gather;
		client->sent = 0;
		hub->gather->refs++;
	}
	gather_put(hub->gather);
	hub->gather = NULL;
	hub->ncalling = 0;
}

/* Those who wait, and who has come with another call, learn what is wrong. */
static void fail_differing(struct boot_hub *hub, struct client *client, uint32_t kind,
			   uint32_t bytes)
{
	uint32_t rank = client->greeting.rank, i, first = 0;
	char was[40], is[40];
	const char *call = describe(hub->kind, hub->bytes, was, sizeof(was));

	while (!hub->members[first] || !hub->members[first]->calling)
		first++;
	for (i = 0; i < hub->nranks; i++) {
		struct client *other = hub->members[i];

		if (other && (other->calling || other == client))
			fail(hub, other, -EPROTO, other == client ? first : rank,
			     "rank %" PRIu32 " calls %s, but rank %" PRIu32 " calls %s", first,
			     call, rank, describe(kind, bytes, is, sizeof(is)));
	}
}

/* The first to call says what the call is. */
static bool begin(struct boot_hub *hub, uint32_t kind, uint32_t bytes)
{
	uint32_t rank;

	for (rank = 0; rank < hub->nranks; rank++)
		if (hub->members[rank])
			hub->members[rank]->gave_up = false;
	hub->kind = kind;
	hub->bytes = bytes;
	hub->gather = gather_create((size_t)bytes * hub->nranks);
	return hub->gather;
}

int call_take(struct boot_hub *hub, struct client *client, const struct boot_message *msg)
{
	int64_t left, now = npuwin_now();
	uint32_t kind, bytes;

	if (msg->length < BOOT_CALL_ARGS)
		return -EPROTO;
	bytes = msg->length - BOOT_CALL_ARGS;
	kind = boot_get32(msg->payload);
	left = (int64_t)boot_get64(msg->payload + 8);
	if (kind == BOOT_ALLGATHER ? !bytes : kind != BOOT_BARRIER || bytes)
		return -EPROTO;
	/* Who has given up waiting for an answer calls anew. */
	withdraw(hub, client);
	client_drop(client);
	client->failed = false;
	client->gave_up = false;
	client->sequence = msg->sequence;
	if (__builtin_add_overflow(now, left, &client->deadline_ns))
		client->deadline_ns = left < 0 ? now : NPUWIN_NO_DEADLINE;
	if (hub->aborted) {
		client->tell_abort = true;
		return 0;
	}
	if (kind == BOOT_BARRIER && client->lost != NPUWIN_NO_RANK) {
		fail(hub, client, -EPIPE, client->lost, "rank %" PRIu32 " of %" PRIu32 " is gone",
		     client->lost, hub->nranks);
		client->lost = NPUWIN_NO_RANK;
		return 0;
	}
	client->lost = NPUWIN_NO_RANK;
	if (hub->ncalling && (hub->kind != kind || hub->bytes != bytes)) {
		fail_differing(hub, client, kind, bytes);
		return 0;
	}
	if (!hub->ncalling && !begin(hub, kind, bytes)) {
		fail(hub, client, -ENOMEM, 0, "rank 0 has no memory for %" PRIu32
		     " bytes of %" PRIu32 " ranks", bytes, hub->nranks);
		return 0;
	}
	memcpy(hub->gather->data + (size_t)client->greeting.rank * bytes,
	       msg->payload + BOOT_CALL_ARGS, bytes);
	client->calling = true;
	if (++hub->ncalling == hub->nranks)
		complete(hub);
	return 0;
}

int call_take_abort(struct boot_hub *hub, struct client *client, const struct boot_message *msg)
{
	uint32_t rank;

	if (msg->length != 4)
		return -EPROTO;
	if (hub->aborted)
		return 0;
	hub->aborted = true;
	hub->abort_rank = client->greeting.rank;
	hub->abort_error = boot_get32(msg->payload);
	for (rank = 0; rank < hub->nranks; rank++) {
		if (!hub->members[rank])
			continue;
		withdraw(hub, hub->members[rank]);
		hub->members[rank]->tell_abort = true;
	}
	return 0;
}

/* What those who were refused have to do with who is missing is for people to see. */
static const char *refusal_text(const struct boot_hub *hub, char *text, size_t room)
{
	static const char *const why[] = {
		[BOOT_BAD_VERSION] = "speaks another version of the protocol",
		[BOOT_BAD_NRANKS] = "has another nranks",
		[BOOT_BAD_RANK] = "is no rank of this job",
		[BOOT_BAD_SECRET] = "does not know the secret",
		[BOOT_TAKEN] = "was connected already",
	};

	text[0] = 0;
	if (hub->refusal)
		snprintf(text, room, " (refused: one that says it is rank %" PRIu32 " and %s)",
			 hub->refused_rank, why[hub->refusal]);
	return text;
}

/* The lowest rank that is waited for; those who have given up only where there is no other. */
static uint32_t missing_rank(const struct boot_hub *hub)
{
	uint32_t rank, fallback = 0;

	for (rank = 0; rank < hub->nranks; rank++) {
		const struct client *client = hub->members[rank];

		if (!client || (!client->calling && !client->gave_up))
			return rank;
		if (!client->calling)
			fallback = rank;
	}
	return fallback;
}

void call_late(struct boot_hub *hub, struct client *client)
{
	uint32_t rank = missing_rank(hub);
	const struct client *missing = hub->members[rank];
	const char *what = "has not connected";
	char text[100];

	if (missing && missing->gave_up)
		what = "has given up waiting";
	else if (missing)
		what = hub->kind == BOOT_BARRIER ? "has not called barrier" :
						   "has not called allgather";
	client->gave_up = true;
	fail(hub, client, -ETIMEDOUT, rank, "deadline: rank %" PRIu32 " of %" PRIu32 " %s%s", rank,
	     hub->nranks, what, refusal_text(hub, text, sizeof(text)));
}

/* Those who took part with it cannot count on it any more; those who gather wait for another. */
void call_lose(struct boot_hub *hub, struct client *client)
{
	uint32_t rank = client->greeting.rank, i;
	bool barrier;

	withdraw(hub, client);
	barrier = hub->ncalling && hub->kind == BOOT_BARRIER;
	if (!client->took_part || hub->aborted)
		return;
	for (i = 0; i < hub->nranks; i++) {
		struct client *other = hub->members[i];

		if (!other)
			continue;
		if (!other->calling)
			other->lost = rank;
		else if (barrier)
			fail(hub, other, -EPIPE, rank, "rank %" PRIu32 " of %" PRIu32 " is gone",
			     rank, hub->nranks);
	}
}
