/* SPDX-License-Identifier: MIT */
/* Inside of a bootstrap's hub: connections (bootstrap_hub.c) and calls (bootstrap_calls.c). */
#ifndef NPUWIN_BOOTSTRAP_HUB_H
#define NPUWIN_BOOTSTRAP_HUB_H

#include <poll.h>

#include "bootstrap.h"

enum client_state {
	CLIENT_NEW,
	CLIENT_CHALLENGED,
	CLIENT_MEMBER,
	CLIENT_GONE,
};

/**
 * struct gather - What the members give in one call.
 * @refs: those that it is still to be sent to, and the hub while it is gathered
 * @bytes: of all of them
 * @data: by rank
 */
struct gather {
	uint32_t refs;
	size_t bytes;
	uint8_t data[];
};

/**
 * struct client - A connection.
 * @ch: its channel
 * @state: enum client_state
 * @greeting: what it has to prove, or has proved
 * @until: when it has to have proved it
 * @calling: a member: its call waits for the others
 * @sequence: of its last call
 * @deadline_ns: of that call
 * @gave_up: it had called, until its deadline, what the others still wait in
 * @took_part: a call of it was completed
 * @lost: a rank that took part with it, and is lost since: the next barrier is for
 *	nothing; or %NPUWIN_NO_RANK
 * @result: what it is to be sent, or NULL
 * @sent: bytes of that
 * @failed: it is to be told @code
 * @code: negative errno
 * @peer: rank that it is about, or %NPUWIN_NO_RANK
 * @tell_abort: it is to be told that the bootstrap is aborted
 * @text: the sentence for @code
 */
struct client {
	struct boot_channel ch;
	enum client_state state;
	struct boot_greeting greeting;
	int64_t until;
	bool calling;
	uint32_t sequence;
	int64_t deadline_ns;
	bool gave_up;
	bool took_part;
	uint32_t lost;
	struct gather *result;
	size_t sent;
	bool failed;
	int32_t code;
	uint32_t peer;
	bool tell_abort;
	char text[BOOT_SENTENCE];
};

/**
 * struct boot_hub - The hub.
 * @nranks: members
 * @secret: that they know
 * @listener: listening socket, or -1
 * @stop: eventfd: end the thread
 * @started: there is a thread
 * @thread: the one that serves
 * @room: elements of @clients
 * @count: of them in use, from the oldest
 * @clients: connections
 * @members: by rank: its connection, or NULL
 * @polls: for @clients, and two more
 * @kind: enum boot_kind of the call that is going on
 * @bytes: that each gives in it
 * @ncalling: members that wait in it
 * @gather: what they gave
 * @aborted: nothing works any more
 * @abort_rank: who has aborted
 * @abort_error: with which errno
 * @refusal: enum boot_refusal of the last one that was refused, or 0
 * @refused_rank: the rank that it wanted to be
 */
struct boot_hub {
	uint32_t nranks;
	struct boot_secret secret;
	int listener;
	int stop;
	bool started;
	pthread_t thread;
	uint32_t room;
	uint32_t count;
	struct client **clients;
	struct client **members;
	struct pollfd *polls;
	uint32_t kind;
	uint32_t bytes;
	uint32_t ncalling;
	struct gather *gather;
	bool aborted;
	uint32_t abort_rank;
	uint32_t abort_error;
	uint32_t refusal;
	uint32_t refused_rank;
};

/* bootstrap_calls.c */

/* Whether there is something to be sent to it. */
bool client_owed(const struct client *client);
/* Send as much of it as goes without waiting. 0, -EAGAIN or -EPIPE. */
int client_pay(struct boot_hub *hub, struct client *client);
/* Put a message, of its last call, into its channel. */
void client_put(struct boot_hub *hub, struct client *client, enum boot_type type,
		const void *payload, size_t length);
/* What it is owed, and nobody else is, is not needed any more. */
void client_drop(struct client *client);
/* A member's messages. 0, or -EPROTO for what no member says. */
int call_take(struct boot_hub *hub, struct client *client, const struct boot_message *msg);
int call_take_abort(struct boot_hub *hub, struct client *client, const struct boot_message *msg);
/* A member whose deadline has passed learns who is missing. */
void call_late(struct boot_hub *hub, struct client *client);
/* A member is gone: what it gave is withdrawn. */
void call_lose(struct boot_hub *hub, struct client *client);

#endif /* NPUWIN_BOOTSTRAP_HUB_H */
