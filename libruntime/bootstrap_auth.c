// SPDX-License-Identifier: MIT
/*
 * Bootstraps: how a member and the hub prove to each other that they know the secret.
 *
 * The member proves it first: who only comes and asks learns nothing that guesses could be
 * tried on. All that is proved or made into a key depends on the nonces of both sides, so
 * nothing that was said in another connection is of any use.
 */
#include <inttypes.h>
#include <poll.h>

#include "bootstrap.h"

/* What a value that is made from the secret is for. */
static const char member_proof[] = "npuwin bootstrap: member";
static const char hub_proof[] = "npuwin bootstrap: hub";
static const char member_key[] = "npuwin bootstrap: key of the member";
static const char hub_key[] = "npuwin bootstrap: key of the hub";

void auth_secret(struct boot_secret *secret, const void *bytes, size_t length)
{
	/* To HMAC, zeros at the end of a short key would make no difference. */
	_Static_assert(sizeof(secret->key) == crypto_hash_sha256_BYTES, "a hash is a key");
	crypto_hash_sha256(secret->key, bytes, length);
}

static void derive(const struct boot_secret *secret, const struct boot_greeting *greeting,
		   const char *purpose, uint8_t *out)
{
	crypto_auth_hmacsha256_state state;
	uint8_t numbers[12];

	boot_put32(numbers, BOOT_VERSION);
	boot_put32(numbers + 4, greeting->rank);
	boot_put32(numbers + 8, greeting->nranks);
	crypto_auth_hmacsha256_init(&state, secret->key, sizeof(secret->key));
	/* With its NUL, no purpose is the beginning of another. */
	crypto_auth_hmacsha256_update(&state, (const uint8_t *)purpose, strlen(purpose) + 1);
	crypto_auth_hmacsha256_update(&state, numbers, sizeof(numbers));
	crypto_auth_hmacsha256_update(&state, greeting->member, BOOT_NONCE);
	crypto_auth_hmacsha256_update(&state, greeting->hub, BOOT_NONCE);
	crypto_auth_hmacsha256_final(&state, out);
	sodium_memzero(&state, sizeof(state));
}

void auth_put(struct boot_channel *ch, const struct boot_secret *secret,
	      const struct boot_greeting *greeting, enum boot_type type)
{
	bool member = type == BOOT_PROOF;
	uint8_t payload[BOOT_MAC + BOOT_STREAM];
	uint8_t key[BOOT_MAC];

	_Static_assert(sizeof(key) == crypto_secretstream_xchacha20poly1305_KEYBYTES, "a key");
	derive(secret, greeting, member ? member_proof : hub_proof, payload);
	derive(secret, greeting, member ? member_key : hub_key, key);
	crypto_secretstream_xchacha20poly1305_init_push(&ch->push, payload + BOOT_MAC, key);
	sodium_memzero(key, sizeof(key));
	channel_put(ch, &(struct boot_message) {
		.type = (uint16_t)type,
		.rank = greeting->rank,
		.nranks = greeting->nranks,
		.length = sizeof(payload),
		.payload = payload,
	});
}

int auth_check(struct boot_channel *ch, const struct boot_secret *secret,
	       const struct boot_greeting *greeting, const struct boot_message *msg)
{
	bool member = msg->type == BOOT_PROOF;
	uint8_t expected[BOOT_MAC], key[BOOT_MAC];
	int rc;

	if (msg->length != BOOT_MAC + BOOT_STREAM)
		return -EPROTO;
	derive(secret, greeting, member ? member_proof : hub_proof, expected);
	if (sodium_memcmp(expected, msg->payload, BOOT_MAC))
		return -EACCES;
	derive(secret, greeting, member ? member_key : hub_key, key);
	rc = crypto_secretstream_xchacha20poly1305_init_pull(&ch->pull, msg->payload + BOOT_MAC,
							     key);
	sodium_memzero(key, sizeof(key));
	return rc ? -EPROTO : 0;
}

static int refused(const struct npuwin_bootstrap_attr *attr, const struct boot_message *msg,
		   struct npuwin_error *err)
{
	int32_t rank = (int32_t)attr->rank;
	uint32_t value;

	if (msg->length != 8)
		return -EPROTO;
	value = boot_get32(msg->payload + 4);
	switch (boot_get32(msg->payload)) {
	case BOOT_BAD_VERSION:
		return npuwin_fail(err, -EINVAL, rank, 0,
				   "bootstrap %.100s: rank 0 speaks version %" PRIu32
				   " of the protocol, this library version %d", attr->address,
				   value, BOOT_VERSION);
	case BOOT_BAD_NRANKS:
		return npuwin_fail(err, -EINVAL, rank, 0,
				   "bootstrap %.100s: nranks is %" PRIu32 ", but rank 0 has %"
				   PRIu32, attr->address, attr->nranks, value);
	case BOOT_BAD_SECRET:
		return npuwin_fail(err, -EACCES, rank, 0,
				   "bootstrap %.100s: the secret is not the one that rank 0 has",
				   attr->address);
	case BOOT_TAKEN:
		return npuwin_fail(err, -EBUSY, rank, rank,
				   "bootstrap %.100s: rank %" PRId32 " is connected already",
				   attr->address, rank);
	default:
		return npuwin_fail(err, -EINVAL, rank, 0,
				   "bootstrap %.100s: rank 0 refuses rank %" PRId32, attr->address,
				   rank);
	}
}

/* Say @msg, and wait for the answer. */
static int ask(struct boot_channel *ch, int64_t deadline_ns, struct boot_message *msg)
{
	int rc;

	for (;;) {
		rc = channel_send(ch);
		if (rc == -EPIPE)
			return rc;
		if (!rc)
			rc = channel_get(ch, msg);
		if (rc != -EAGAIN)
			return rc;
		if (!net_wait(ch->fd, channel_free(ch) ? POLLIN : POLLOUT, deadline_ns))
			return -ETIMEDOUT;
	}
}

static int greet(struct boot_channel *ch, const struct npuwin_bootstrap_attr *attr,
		 const struct boot_secret *secret, int64_t deadline_ns, struct npuwin_error *err)
{
	struct boot_greeting greeting = { .rank = attr->rank, .nranks = attr->nranks };
	struct boot_message msg;
	int rc;

	randombytes_buf(greeting.member, BOOT_NONCE);
	channel_put(ch, &(struct boot_message) {
		.type = BOOT_HELLO,
		.rank = attr->rank,
		.nranks = attr->nranks,
		.length = BOOT_NONCE,
		.payload = greeting.member,
	});
	rc = ask(ch, deadline_ns, &msg);
	if (rc)
		return rc;
	if (msg.type == BOOT_REFUSED)
		return refused(attr, &msg, err);
	if (msg.type != BOOT_CHALLENGE || msg.length != BOOT_NONCE)
		return -EPROTO;
	memcpy(greeting.hub, msg.payload, BOOT_NONCE);
	auth_put(ch, secret, &greeting, BOOT_PROOF);
	rc = ask(ch, deadline_ns, &msg);
	if (rc)
		return rc;
	if (msg.type == BOOT_REFUSED)
		return refused(attr, &msg, err);
	if (msg.type != BOOT_WELCOME)
		return -EPROTO;
	rc = auth_check(ch, secret, &greeting, &msg);
	if (rc == -EACCES)
		return npuwin_fail(err, rc, (int32_t)attr->rank, 0,
				   "bootstrap %.100s: who answers does not know the secret",
				   attr->address);
	ch->sealed = !rc;
	return rc;
}

int auth_member(struct boot_channel *ch, const struct npuwin_bootstrap_attr *attr,
		const struct boot_secret *secret, int64_t deadline_ns, struct npuwin_error *err)
{
	int rc = greet(ch, attr, secret, deadline_ns, err);

	switch (rc) {
	case -EPIPE:
		return -EAGAIN;
	case -EPROTO:
		return npuwin_fail(err, rc, (int32_t)attr->rank, 0,
				   "bootstrap %.100s: what answers there is no bootstrap of npuwin",
				   attr->address);
	case -ETIMEDOUT:
		return npuwin_fail(err, rc, (int32_t)attr->rank, 0,
				   "deadline: bootstrap %.100s: rank 0 has been reached, but has not answered",
				   attr->address);
	default:
		return rc;
	}
}
