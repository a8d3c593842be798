/* SPDX-License-Identifier: MIT */
/*
 * The library's own bootstraps: members that talk to a hub, which is a thread of rank 0's.
 *
 *  wire	messages on a stream, in the clear until both sides have proved the secret, sealed
 *		from then on (bootstrap_wire.c)
 *  auth	how a member and the hub prove it to each other (bootstrap_auth.c)
 *  net		addresses, listening, connecting (bootstrap_net.c)
 *  hub		who has come (bootstrap_hub.c), what they give, and who waits
 *		(bootstrap_calls.c)
 *  member	the operations of a rank (bootstrap.c)
 *
 * A message is a header of BOOT_HEADER bytes and a payload. All numbers are little-endian:
 *
 *	 0 magic	u32	BOOT_MAGIC
 *	 4 version	u16	BOOT_VERSION
 *	 6 type		u16	enum boot_type
 *	 8 rank		u32	the member's
 *	12 nranks	u32	members
 *	16 sequence	u32	of the member's call; 0 where it is about none
 *	20 length	u32	bytes of payload
 *
 * Sealed, header and payload are one ciphertext of XChaCha20-Poly1305 (libsodium's
 * secretstream, which also refuses what is repeated, left out or out of order), and its
 * length, a u32 in the clear, comes before it. No length leads to an allocation: what is
 * longer than BOOT_CHUNK is sent in several messages.
 *
 *	member				hub
 *	HELLO nonce		->
 *				<-	CHALLENGE nonce			or REFUSED
 *	PROOF mac, stream	->
 *				<-	WELCOME mac, stream		or REFUSED
 *	and, sealed:
 *	CALL kind, time, bytes	->
 *				<-	RESULT bytes (as often as needed) or FAILED
 *	ABORT error		->
 *				<-	ABORTED error, to all
 */
#ifndef NPUWIN_BOOTSTRAP_H
#define NPUWIN_BOOTSTRAP_H

#include <endian.h>
#include <sodium.h>
#include <string.h>
#include <sys/socket.h>

#include "internal.h"

#define BOOT_MAGIC	0x6277706eU
#define BOOT_VERSION	1
#define BOOT_HEADER	24
/* What comes before the bytes of a CALL: kind, zero, and the time that is left in ns. */
#define BOOT_CALL_ARGS	16
#define BOOT_CHUNK	(NPUWIN_BOOTSTRAP_MAX_BYTES + BOOT_CALL_ARGS)
#define BOOT_NONCE	32
#define BOOT_MAC	crypto_auth_hmacsha256_BYTES
#define BOOT_STREAM	crypto_secretstream_xchacha20poly1305_HEADERBYTES
#define BOOT_SEAL	crypto_secretstream_xchacha20poly1305_ABYTES
/* Payload of what is not sealed at most. */
#define BOOT_CLEAR	256
#define BOOT_SECRET_MAX	4096

enum boot_type {
	BOOT_HELLO = 1,
	BOOT_CHALLENGE,
	BOOT_PROOF,
	BOOT_WELCOME,
	BOOT_REFUSED,
	BOOT_CALL,
	BOOT_RESULT,
	BOOT_FAILED,
	BOOT_ABORT,
	BOOT_ABORTED,
};

/* What comes before the sentence of a FAILED: the errno, and the rank that it is about. */
#define BOOT_FAILED_ARGS	8
#define BOOT_SENTENCE		200

enum boot_kind {
	BOOT_ALLGATHER = 1,
	BOOT_BARRIER,
};

/* Why a member is refused: the first u32 of REFUSED; the second is what the hub has instead. */
enum boot_refusal {
	BOOT_BAD_VERSION = 1,
	BOOT_BAD_NRANKS,
	BOOT_BAD_RANK,
	BOOT_BAD_SECRET,
	BOOT_TAKEN,
};

/**
 * struct boot_message - A message, its numbers in the order of this machine.
 * @version: see above
 * @type: enum boot_type, not checked
 * @rank: see above
 * @nranks: see above
 * @sequence: see above
 * @length: bytes at @payload
 * @payload: valid until the next message is taken
 */
struct boot_message {
	uint16_t version;
	uint16_t type;
	uint32_t rank;
	uint32_t nranks;
	uint32_t sequence;
	uint32_t length;
	const uint8_t *payload;
};

/**
 * struct boot_channel - One end of a connection.
 * @fd: socket, does not block
 * @sealed: keys are agreed
 * @push: seals what is sent
 * @pull: opens what is received
 * @have: bytes in @in
 * @held: bytes in @out
 * @sent: of those
 * @in: a message that arrives
 * @out: a message that is sent
 * @text: the message that was opened last
 */
struct boot_channel {
	int fd;
	bool sealed;
	crypto_secretstream_xchacha20poly1305_state push;
	crypto_secretstream_xchacha20poly1305_state pull;
	size_t have;
	size_t held;
	size_t sent;
	uint8_t in[4 + BOOT_HEADER + BOOT_CHUNK + BOOT_SEAL];
	uint8_t out[4 + BOOT_HEADER + BOOT_CHUNK + BOOT_SEAL];
	uint8_t text[BOOT_HEADER + BOOT_CHUNK];
};

static inline void boot_put32(uint8_t *to, uint32_t value)
{
	value = htole32(value);
	memcpy(to, &value, sizeof(value));
}

static inline void boot_put64(uint8_t *to, uint64_t value)
{
	value = htole64(value);
	memcpy(to, &value, sizeof(value));
}

static inline uint32_t boot_get32(const uint8_t *from)
{
	uint32_t value;

	memcpy(&value, from, sizeof(value));
	return le32toh(value);
}

static inline uint64_t boot_get64(const uint8_t *from)
{
	uint64_t value;

	memcpy(&value, from, sizeof(value));
	return le64toh(value);
}

/*
 * bootstrap_wire.c
 */

/**
 * channel_get() - Take a message, without waiting.
 * @ch: the channel
 * @msg: out
 *
 * Return: 0; -EAGAIN: there is none yet; -EPIPE: the other end is gone; -EPROTO: what came is
 * none, or was not sealed by the other end; nothing more can be taken.
 */
int channel_get(struct boot_channel *ch, struct boot_message *msg);
/* Whether a message can be put: the one before has been sent. */
static inline bool channel_free(const struct boot_channel *ch)
{
	return ch->sent == ch->held;
}

/* Put a message, of what @msg says, into a free channel. */
void channel_put(struct boot_channel *ch, const struct boot_message *msg);
/* Send what was put, as far as it goes without waiting. 0, -EAGAIN or -EPIPE. */
int channel_send(struct boot_channel *ch);
/* Agree on keys without a word: both ends are in this process. */
void channel_pair(struct boot_channel *a, struct boot_channel *b);
/* Close the socket and forget the keys. */
void channel_close(struct boot_channel *ch);

/*
 * bootstrap_auth.c
 */

/**
 * struct boot_secret - What members and hub have in common.
 * @key: made from the secret
 */
struct boot_secret {
	uint8_t key[crypto_auth_hmacsha256_KEYBYTES];
};

/**
 * struct boot_greeting - What is proved: the secret, to this member and in this connection.
 * @rank: the member's
 * @nranks: members
 * @member: the member's nonce
 * @hub: the hub's nonce
 */
struct boot_greeting {
	uint32_t rank;
	uint32_t nranks;
	uint8_t member[BOOT_NONCE];
	uint8_t hub[BOOT_NONCE];
};

/* Make the key from @length bytes, of which there may be none. */
void auth_secret(struct boot_secret *secret, const void *bytes, size_t length);
/* PROOF of a member, or WELCOME of the hub, which also starts its stream. */
void auth_put(struct boot_channel *ch, const struct boot_secret *secret,
	      const struct boot_greeting *greeting, enum boot_type type);
/* Check a PROOF or WELCOME, and take the stream that it starts. 0, -EPROTO or -EACCES. */
int auth_check(struct boot_channel *ch, const struct boot_secret *secret,
	       const struct boot_greeting *greeting, const struct boot_message *msg);
/**
 * auth_member() - Greet the hub.
 * @ch: connected
 * @attr: of the member
 * @secret: its secret
 * @deadline_ns: when to give up
 * @err: out: may be NULL
 *
 * Return: 0; -EAGAIN: try with another connection; or what is wrong.
 */
int auth_member(struct boot_channel *ch, const struct npuwin_bootstrap_attr *attr,
		const struct boot_secret *secret, int64_t deadline_ns, struct npuwin_error *err);

/*
 * bootstrap_net.c
 */

#define BOOT_PLACES	8

/**
 * struct boot_address - Where a hub is.
 * @count: elements of @at
 * @unlink: path of the socket to be removed in the end, or ""
 * @length: by place: of the address
 * @at: places that a name stands for
 */
struct boot_address {
	uint32_t count;
	char unlink[108];
	socklen_t length[BOOT_PLACES];
	struct sockaddr_storage at[BOOT_PLACES];
};

/* Understand "unix:PATH" or "tcp:HOST:PORT". */
int net_parse(const char *text, struct boot_address *address, struct npuwin_error *err);
/* A socket that listens there, or a negative errno. @text is for the sentence. */
int net_listen(struct boot_address *address, const char *text, struct npuwin_error *err);
/* A client that may be listened to, or a negative errno. -EACCES: it was another user's. */
int net_accept(int listener);
/* One attempt at every place: a connected socket, -EAGAIN with @why it is none, or an error. */
int net_connect(const struct boot_address *address, const char *text, int64_t deadline_ns,
		int *why, struct npuwin_error *err);
/* Wait for @events until the deadline. Whether there were any. */
bool net_wait(int fd, short events, int64_t deadline_ns);
/* Sleep for that long before another attempt, or until the deadline. */
void net_pause(int64_t deadline_ns, int64_t length_ns);

/*
 * bootstrap_hub.c
 */

struct boot_hub;

/**
 * hub_create() - A hub that nobody serves yet.
 * @nranks: members
 * @secret: copied
 * @listener: listening socket, or -1; the hub's from now on, also on failure
 * @out: the hub
 * @err: out: may be NULL
 *
 * Return: 0 or a negative errno.
 */
int hub_create(uint32_t nranks, const struct boot_secret *secret, int listener,
	       struct boot_hub **out, struct npuwin_error *err);
/* A connection that has to prove itself. The socket is the hub's, also on failure. */
int hub_take(struct boot_hub *hub, int fd);
/* Connect a member of this process, whose end is @ch. 0 or a negative errno. */
int hub_pair(struct boot_hub *hub, uint32_t rank, struct boot_channel *ch);
/* Serve what there is, waiting at most until @deadline_ns. */
void hub_pass(struct boot_hub *hub, int64_t deadline_ns);
/* Start the thread that serves. */
int hub_start(struct boot_hub *hub, struct npuwin_error *err);
/* Send what is owed, end the thread, close every connection. */
void hub_destroy(struct boot_hub *hub);

#endif /* NPUWIN_BOOTSTRAP_H */
