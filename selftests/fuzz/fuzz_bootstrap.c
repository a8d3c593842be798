// SPDX-License-Identifier: MIT
/*
 * A libFuzzer target: what may come to the hub of a bootstrap.
 *
 * The input is a program of steps, see enum step: connections that say anything, and members
 * that know the secret and send anything. What the hub answers to members must always be
 * messages that it sealed.
 *
 *	make fuzz				builds it
 *	build/fuzz/fuzz_bootstrap FILE		runs one input again
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bootstrap.h"
#include "fuzz.h"

#define MEMBERS		3
#define STRANGERS	4

/**
 * enum step - A step of the input.
 * @STEP_SAY: stranger (1), length (1), bytes: it comes, if it is not there, and says them
 * @STEP_HANG_UP: stranger (1): it goes
 * @STEP_SEND: member (1), type (1), sequence (1), length (1), bytes: a sealed message
 * @STEP_CALL: member (1), kind (1), length (1), bytes: a call that makes sense
 * @STEP_LEAVE: member (1): it goes, and another one comes
 * @STEP_COUNT: number of steps
 */
enum step {
	STEP_SAY,
	STEP_HANG_UP,
	STEP_SEND,
	STEP_CALL,
	STEP_LEAVE,
	STEP_COUNT,
};

struct input {
	const uint8_t *at;
	size_t left;
};

static struct boot_hub *hub;
static struct boot_channel members[MEMBERS];
static int strangers[STRANGERS];

static uint8_t take_byte(struct input *in)
{
	if (!in->left)
		return 0;
	in->left--;
	return *in->at++;
}

static size_t take_bytes(struct input *in, uint8_t *to)
{
	size_t n = take_byte(in);

	if (n > in->left)
		n = in->left;
	memcpy(to, in->at, n);
	in->at += n;
	in->left -= n;
	return n;
}

/* Let the hub serve all that there is, and look at its answers. */
static void pass(void)
{
	struct boot_message msg;
	int rc;

	for (int i = 0; i < 4; i++)
		hub_pass(hub, 0);
	for (int i = 0; i < MEMBERS; i++) {
		while (members[i].fd >= 0) {
			rc = channel_get(&members[i], &msg);
			if (rc == -EPROTO)
				abort();
			if (rc == -EPIPE)
				channel_close(&members[i]);
			if (rc)
				break;
		}
	}
}

static void leave(unsigned int rank)
{
	if (members[rank].fd >= 0)
		channel_close(&members[rank]);
	/* The hub has to hear of it before another one can come. */
	pass();
	if (hub_pair(hub, rank, &members[rank]))
		abort();
}

static void send_message(unsigned int rank, const struct boot_message *msg)
{
	struct boot_channel *ch = &members[rank];

	if (ch->fd < 0)
		leave(rank);
	if (channel_free(ch))
		channel_put(ch, msg);
	channel_send(ch);
}

static void say(unsigned int who, const uint8_t *bytes, size_t n)
{
	int fds[2];

	if (strangers[who] < 0) {
		if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) ||
		    hub_take(hub, fds[0]))
			abort();
		strangers[who] = fds[1];
	}
	if (send(strangers[who], bytes, n, MSG_NOSIGNAL) < 0) {
		close(strangers[who]);
		strangers[who] = -1;
	}
}

static void do_step(struct input *in)
{
	uint8_t what = take_byte(in) % STEP_COUNT, who = take_byte(in);
	uint8_t bytes[BOOT_CALL_ARGS + 255] = { 0 };
	struct boot_message msg = { .nranks = MEMBERS, .payload = bytes };

	switch (what) {
	case STEP_SAY:
		say(who % STRANGERS, bytes, take_bytes(in, bytes));
		break;
	case STEP_HANG_UP:
		who %= STRANGERS;
		if (strangers[who] >= 0)
			close(strangers[who]);
		strangers[who] = -1;
		break;
	case STEP_SEND:
		msg.type = take_byte(in);
		msg.sequence = take_byte(in);
		msg.length = (uint32_t)take_bytes(in, bytes);
		send_message(who % MEMBERS, &msg);
		break;
	case STEP_CALL:
		msg.type = BOOT_CALL;
		bytes[0] = take_byte(in);
		bytes[14] = 1;
		msg.length = BOOT_CALL_ARGS + (uint32_t)take_bytes(in, bytes + BOOT_CALL_ARGS);
		send_message(who % MEMBERS, &msg);
		break;
	default:
		leave(who % MEMBERS);
	}
	pass();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct boot_secret secret = { 0 };
	struct input in = { .at = data, .left = size };
	unsigned int i;

	if (sodium_init() < 0 || hub_create(MEMBERS, &secret, -1, &hub, NULL))
		abort();
	for (i = 0; i < MEMBERS; i++)
		if (hub_pair(hub, i, &members[i]))
			abort();
	for (i = 0; i < STRANGERS; i++)
		strangers[i] = -1;
	while (in.left)
		do_step(&in);
	for (i = 0; i < STRANGERS; i++)
		if (strangers[i] >= 0)
			close(strangers[i]);
	for (i = 0; i < MEMBERS; i++)
		if (members[i].fd >= 0)
			channel_close(&members[i]);
	memset(members, 0, sizeof(members));
	hub_destroy(hub);
	return 0;
}
