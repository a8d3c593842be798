// SPDX-License-Identifier: MIT
/*
 * Bootstraps: the hub, which members connect to.
 *
 * It believes nobody. Who has not proved to know the secret can make it wait for nothing and
 * keep nothing for long; who has can only spoil its own part.
 */
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "bootstrap_hub.h"

#define NSEC_PER_SEC	1000000000LL
/* How long a connection may take to prove itself, and how many may be at it. */
#define GREETING_NS	(5 * NSEC_PER_SEC)
#define SPARE_CLIENTS	64
/* Those that are let in at a time. */
#define ACCEPTS		64
/* How long to wait for a descriptor to be had. */
#define STARVED_NS	20000000
/* How long the end waits for what is owed to be taken. */
#define LINGER_NS	(2 * NSEC_PER_SEC)
/* What is polled beside the clients. */
enum { POLL_STOP, POLL_LISTENER, POLL_CLIENTS };

/*
 * Coming
 */

static void refuse(struct boot_hub *hub, struct client *client, enum boot_refusal why,
		   uint32_t value)
{
	uint8_t payload[8];

	hub->refusal = why;
	hub->refused_rank = client->greeting.rank;
	boot_put32(payload, why);
	boot_put32(payload + 4, value);
	client_put(hub, client, BOOT_REFUSED, payload, sizeof(payload));
	/* It is small, and the first that is sent after what was taken: there is room. */
	channel_send(&client->ch);
	client->state = CLIENT_GONE;
}

static int take_hello(struct boot_hub *hub, struct client *client, const struct boot_message *msg)
{
	if (msg->type != BOOT_HELLO)
		return -EPROTO;
	client->greeting.rank = msg->rank;
	client->greeting.nranks = msg->nranks;
	if (msg->version != BOOT_VERSION) {
		refuse(hub, client, BOOT_BAD_VERSION, BOOT_VERSION);
		return 0;
	}
	if (msg->length != BOOT_NONCE)
		return -EPROTO;
	memcpy(client->greeting.member, msg->payload, BOOT_NONCE);
	randombytes_buf(client->greeting.hub, BOOT_NONCE);
	client_put(hub, client, BOOT_CHALLENGE, client->greeting.hub, BOOT_NONCE);
	client->state = CLIENT_CHALLENGED;
	return 0;
}

static void enroll(struct boot_hub *hub, struct client *client)
{
	client->state = CLIENT_MEMBER;
	client->lost = NPUWIN_NO_RANK;
	client->tell_abort = hub->aborted;
	hub->members[client->greeting.rank] = client;
}

static int take_proof(struct boot_hub *hub, struct client *client, const struct boot_message *msg)
{
	const struct boot_greeting *greeting = &client->greeting;
	int rc;

	if (msg->type != BOOT_PROOF || !channel_free(&client->ch))
		return -EPROTO;
	rc = auth_check(&client->ch, &hub->secret, greeting, msg);
	if (rc == -EACCES) {
		refuse(hub, client, BOOT_BAD_SECRET, 0);
		return 0;
	}
	if (rc)
		return rc;
	if (greeting->nranks != hub->nranks) {
		refuse(hub, client, BOOT_BAD_NRANKS, hub->nranks);
	} else if (greeting->rank >= hub->nranks) {
		refuse(hub, client, BOOT_BAD_RANK, hub->nranks);
	} else if (hub->members[greeting->rank]) {
		refuse(hub, client, BOOT_TAKEN, 0);
	} else {
		auth_put(&client->ch, &hub->secret, greeting, BOOT_WELCOME);
		client->ch.sealed = true;
		enroll(hub, client);
	}
	return 0;
}

static int take(struct boot_hub *hub, struct client *client, const struct boot_message *msg)
{
	switch (client->state) {
	case CLIENT_NEW:
		return take_hello(hub, client, msg);
	case CLIENT_CHALLENGED:
		return take_proof(hub, client, msg);
	default:
		if (msg->type == BOOT_CALL)
			return call_take(hub, client, msg);
		if (msg->type == BOOT_ABORT)
			return call_take_abort(hub, client, msg);
		return -EPROTO;
	}
}

/*
 * Going
 */

static void lose(struct boot_hub *hub, struct client *client)
{
	if (client->state == CLIENT_MEMBER) {
		hub->members[client->greeting.rank] = NULL;
		call_lose(hub, client);
	}
	client->state = CLIENT_GONE;
}

static void client_free(struct client *client)
{
	client_drop(client);
	channel_close(&client->ch);
	free(client);
}

static void sweep(struct boot_hub *hub)
{
	uint32_t i, left = 0;

	for (i = 0; i < hub->count; i++) {
		if (hub->clients[i]->state == CLIENT_GONE)
			client_free(hub->clients[i]);
		else
			hub->clients[left++] = hub->clients[i];
	}
	hub->count = left;
}

/* Of those that have proved nothing the oldest makes room. */
static void make_room(struct boot_hub *hub)
{
	uint32_t i;

	for (i = 0; i < hub->count; i++)
		if (hub->clients[i]->state < CLIENT_MEMBER)
			break;
	if (i < hub->count)
		lose(hub, hub->clients[i]);
	sweep(hub);
}

int hub_take(struct boot_hub *hub, int fd)
{
	struct client *client;

	if (hub->count == hub->room)
		make_room(hub);
	client = calloc(1, sizeof(*client));
	if (!client) {
		close(fd);
		return -ENOMEM;
	}
	client->ch.fd = fd;
	client->until = npuwin_now() + GREETING_NS;
	hub->clients[hub->count++] = client;
	return 0;
}

int hub_pair(struct boot_hub *hub, uint32_t rank, struct boot_channel *ch)
{
	struct client *client;
	int fds[2], rc;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds))
		return -errno;
	rc = hub_take(hub, fds[0]);
	if (rc) {
		close(fds[1]);
		return rc;
	}
	ch->fd = fds[1];
	client = hub->clients[hub->count - 1];
	client->greeting.rank = rank;
	client->greeting.nranks = hub->nranks;
	channel_pair(&client->ch, ch);
	enroll(hub, client);
	return 0;
}

/*
 * Serving
 */

/* When a client has to be told that it is late. */
static int64_t late_at(const struct client *client)
{
	if (client->state == CLIENT_GONE || (client->state == CLIENT_MEMBER && !client->calling))
		return NPUWIN_NO_DEADLINE;
	return client->state == CLIENT_MEMBER ? client->deadline_ns : client->until;
}

static void expire(struct boot_hub *hub)
{
	int64_t now = npuwin_now();
	uint32_t i;

	for (i = 0; i < hub->count; i++) {
		struct client *client = hub->clients[i];

		if (late_at(client) > now)
			continue;
		if (client->state == CLIENT_MEMBER)
			call_late(hub, client);
		else
			lose(hub, client);
	}
}

static void serve(struct boot_hub *hub, struct client *client, short events)
{
	struct boot_message msg;
	int rc = 0;

	if (events & ~POLLOUT)
		rc = channel_get(&client->ch, &msg);
	if (!rc && events & ~POLLOUT)
		rc = take(hub, client, &msg);
	if (rc && rc != -EAGAIN)
		lose(hub, client);
}

/* Not all at once, for the sake of those who are here. */
static void accept_some(struct boot_hub *hub)
{
	uint32_t i;
	int fd;

	for (i = 0; i < ACCEPTS; i++) {
		fd = net_accept(hub->listener);
		if (fd >= 0) {
			hub_take(hub, fd);
			continue;
		}
		if (fd == -EACCES)
			continue;
		/* Without descriptors to be had it stays readable, and the processor busy. */
		if (fd == -EMFILE || fd == -ENFILE) {
			make_room(hub);
			net_pause(NPUWIN_NO_DEADLINE, STARVED_NS);
		}
		return;
	}
}

/* Pay everybody. Whether somebody was lost in it, which may have made more to pay. */
static bool pay_all(struct boot_hub *hub)
{
	bool lost = false;
	uint32_t i;

	for (i = 0; i < hub->count; i++) {
		struct client *client = hub->clients[i];

		if (client->state == CLIENT_GONE || client_pay(hub, client) != -EPIPE)
			continue;
		lose(hub, client);
		lost = true;
	}
	return lost;
}

/* Do what can be done at once. Returns when there will be something to do in any case. */
static int64_t settle(struct boot_hub *hub)
{
	int64_t next = NPUWIN_NO_DEADLINE;
	uint32_t i;

	expire(hub);
	while (pay_all(hub))
		;
	sweep(hub);
	for (i = 0; i < hub->count; i++) {
		struct client *client = hub->clients[i];

		hub->polls[POLL_CLIENTS + i] = (struct pollfd) {
			.fd = client->ch.fd,
			.events = POLLIN | (client_owed(client) ? POLLOUT : 0),
		};
		if (late_at(client) < next)
			next = late_at(client);
	}
	return next;
}

void hub_pass(struct boot_hub *hub, int64_t deadline_ns)
{
	int64_t until = settle(hub), left;
	uint32_t i, count = hub->count;
	struct timespec time;

	if (until > deadline_ns)
		until = deadline_ns;
	left = until - npuwin_now();
	time.tv_sec = left > 0 ? left / NSEC_PER_SEC : 0;
	time.tv_nsec = left > 0 ? left % NSEC_PER_SEC : 0;
	if (ppoll(hub->polls, POLL_CLIENTS + count,
		  until == NPUWIN_NO_DEADLINE ? NULL : &time, NULL) <= 0)
		return;
	/* A deadline that has passed is not met by what is found only now. */
	expire(hub);
	for (i = 0; i < count; i++)
		if (hub->polls[POLL_CLIENTS + i].revents &&
		    hub->clients[i]->state != CLIENT_GONE)
			serve(hub, hub->clients[i], hub->polls[POLL_CLIENTS + i].revents);
	if (hub->polls[POLL_LISTENER].revents)
		accept_some(hub);
}

int hub_create(uint32_t nranks, const struct boot_secret *secret, int listener,
	       struct boot_hub **out, struct npuwin_error *err)
{
	struct boot_hub *hub = calloc(1, sizeof(*hub));
	int rc = -ENOMEM;

	if (!hub)
		goto close_listener;
	hub->nranks = nranks;
	hub->secret = *secret;
	hub->listener = listener;
	hub->room = nranks + SPARE_CLIENTS;
	hub->clients = calloc(hub->room, sizeof(struct client *));
	hub->members = calloc(nranks, sizeof(struct client *));
	hub->polls = calloc(POLL_CLIENTS + hub->room, sizeof(*hub->polls));
	if (!hub->clients || !hub->members || !hub->polls)
		goto free_hub;
	hub->stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (hub->stop < 0) {
		rc = -errno;
		goto free_hub;
	}
	hub->polls[POLL_STOP] = (struct pollfd){ .fd = hub->stop, .events = POLLIN };
	hub->polls[POLL_LISTENER] = (struct pollfd){ .fd = listener, .events = POLLIN };
	*out = hub;
	return 0;

free_hub:
	free(hub->polls);
	free(hub->members);
	free(hub->clients);
	free(hub);
close_listener:
	if (listener >= 0)
		close(listener);
	return npuwin_fail(err, rc, 0, NPUWIN_NOBODY, "bootstrap: rank 0 cannot serve: %s",
			   strerror(-rc));
}

static void *serve_main(void *arg)
{
	struct boot_hub *hub = arg;

	while (!hub->polls[POLL_STOP].revents)
		hub_pass(hub, NPUWIN_NO_DEADLINE);
	return NULL;
}

int hub_start(struct boot_hub *hub, struct npuwin_error *err)
{
	int rc = npuwin_thread(&hub->thread, serve_main, hub);

	if (rc)
		return npuwin_fail(err, rc, 0, NPUWIN_NOBODY,
				   "bootstrap: rank 0 cannot start a thread: %s", strerror(-rc));
	hub->started = true;
	return 0;
}

static bool owes(const struct boot_hub *hub)
{
	uint32_t i;

	for (i = 0; i < hub->count; i++)
		if (hub->clients[i]->state != CLIENT_GONE && client_owed(hub->clients[i]))
			return true;
	return false;
}

void hub_destroy(struct boot_hub *hub)
{
	int64_t until = npuwin_now() + LINGER_NS;
	uint32_t i;

	if (hub->started) {
		eventfd_write(hub->stop, 1);
		pthread_join(hub->thread, NULL);
	}
	hub->polls[POLL_STOP].fd = -1;
	hub->polls[POLL_LISTENER].fd = -1;
	if (hub->listener >= 0)
		close(hub->listener);
	settle(hub);
	while (owes(hub) && npuwin_now() < until)
		hub_pass(hub, until);
	for (i = 0; i < hub->count; i++)
		lose(hub, hub->clients[i]);
	sweep(hub);
	close(hub->stop);
	free(hub->polls);
	free(hub->members);
	free(hub->clients);
	sodium_memzero(&hub->secret, sizeof(hub->secret));
	free(hub);
}
