// SPDX-License-Identifier: MIT
/* Bootstraps: messages on a stream socket. */
#include <unistd.h>

#include "bootstrap.h"

/* Read until @want bytes of the message are here. */
static int fill(struct boot_channel *ch, size_t want)
{
	ssize_t n;

	while (ch->have < want) {
		n = recv(ch->fd, ch->in + ch->have, want - ch->have, MSG_DONTWAIT);
		if (n > 0)
			ch->have += (size_t)n;
		else if (n < 0 && errno == EAGAIN)
			return -EAGAIN;
		else if (!n || errno != EINTR)
			return -EPIPE;
	}
	return 0;
}

static int parse(struct boot_message *msg, const uint8_t *header)
{
	uint32_t kind = boot_get32(header + 4);

	if (boot_get32(header) != BOOT_MAGIC)
		return -EPROTO;
	*msg = (struct boot_message) {
		.version = (uint16_t)kind,
		.type = (uint16_t)(kind >> 16),
		.rank = boot_get32(header + 8),
		.nranks = boot_get32(header + 12),
		.sequence = boot_get32(header + 16),
		.length = boot_get32(header + 20),
		.payload = header + BOOT_HEADER,
	};
	return 0;
}

static int get_clear(struct boot_channel *ch, struct boot_message *msg)
{
	int rc = fill(ch, BOOT_HEADER);

	if (!rc)
		rc = parse(msg, ch->in);
	if (!rc && msg->length > BOOT_CLEAR)
		rc = -EPROTO;
	if (!rc)
		rc = fill(ch, BOOT_HEADER + msg->length);
	return rc;
}

static int get_sealed(struct boot_channel *ch, struct boot_message *msg)
{
	unsigned long long opened;
	uint32_t length;
	uint8_t tag;
	int rc;

	rc = fill(ch, 4);
	if (rc)
		return rc;
	length = boot_get32(ch->in);
	if (length < BOOT_HEADER + BOOT_SEAL || length > BOOT_HEADER + BOOT_CHUNK + BOOT_SEAL)
		return -EPROTO;
	rc = fill(ch, 4 + length);
	if (rc)
		return rc;
	if (crypto_secretstream_xchacha20poly1305_pull(&ch->pull, ch->text, &opened, &tag,
						       ch->in + 4, length, ch->in, 4))
		return -EPROTO;
	rc = parse(msg, ch->text);
	if (!rc && (msg->version != BOOT_VERSION || msg->length != opened - BOOT_HEADER))
		rc = -EPROTO;
	return rc;
}

int channel_get(struct boot_channel *ch, struct boot_message *msg)
{
	int rc = ch->sealed ? get_sealed(ch, msg) : get_clear(ch, msg);

	if (!rc)
		ch->have = 0;
	return rc;
}

void channel_put(struct boot_channel *ch, const struct boot_message *msg)
{
	uint8_t plain[BOOT_HEADER + BOOT_CHUNK];
	unsigned long long sealed = 0;

	boot_put32(plain, BOOT_MAGIC);
	boot_put32(plain + 4, (uint32_t)msg->type << 16 | BOOT_VERSION);
	boot_put32(plain + 8, msg->rank);
	boot_put32(plain + 12, msg->nranks);
	boot_put32(plain + 16, msg->sequence);
	boot_put32(plain + 20, msg->length);
	if (msg->length)
		memcpy(plain + BOOT_HEADER, msg->payload, msg->length);
	ch->sent = 0;
	ch->held = BOOT_HEADER + msg->length;
	if (!ch->sealed) {
		memcpy(ch->out, plain, ch->held);
		goto wipe;
	}
	boot_put32(ch->out, (uint32_t)(ch->held + BOOT_SEAL));
	crypto_secretstream_xchacha20poly1305_push(&ch->push, ch->out + 4, &sealed, plain, ch->held,
						   ch->out, 4, 0);
	ch->held = 4 + (size_t)sealed;
wipe:
	sodium_memzero(plain, BOOT_HEADER + msg->length);
}

int channel_send(struct boot_channel *ch)
{
	ssize_t n;

	while (ch->sent < ch->held) {
		n = send(ch->fd, ch->out + ch->sent, ch->held - ch->sent,
			 MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n >= 0)
			ch->sent += (size_t)n;
		else if (errno == EAGAIN)
			return -EAGAIN;
		else if (errno != EINTR)
			return -EPIPE;
	}
	return 0;
}

static void pair_stream(crypto_secretstream_xchacha20poly1305_state *push,
			crypto_secretstream_xchacha20poly1305_state *pull)
{
	uint8_t key[crypto_secretstream_xchacha20poly1305_KEYBYTES], header[BOOT_STREAM];

	crypto_secretstream_xchacha20poly1305_keygen(key);
	crypto_secretstream_xchacha20poly1305_init_push(push, header, key);
	crypto_secretstream_xchacha20poly1305_init_pull(pull, header, key);
	sodium_memzero(key, sizeof(key));
}

void channel_pair(struct boot_channel *a, struct boot_channel *b)
{
	pair_stream(&a->push, &b->pull);
	pair_stream(&b->push, &a->pull);
	a->sealed = true;
	b->sealed = true;
}

void channel_close(struct boot_channel *ch)
{
	close(ch->fd);
	sodium_memzero(ch, sizeof(*ch));
	ch->fd = -1;
}
