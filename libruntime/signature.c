// SPDX-License-Identifier: MIT
/*
 * Signatures: whether ranks are about to do the same, and if not, what differs.
 */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "collective.h"

uint32_t signature_crc(uint32_t crc, const void *data, size_t size)
{
	/* The remainders of the sixteen values of four bits. */
	static const uint32_t nibble[16] = {
		0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4,
		0x4db26158, 0x5005713c, 0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c,
		0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c,
	};
	const uint8_t *byte = data;

	crc = ~crc;
	while (size--) {
		crc ^= *byte++;
		crc = (crc >> 4) ^ nibble[crc & 15];
		crc = (crc >> 4) ^ nibble[crc & 15];
	}
	return ~crc;
}

void signature_begin(struct signature *signature)
{
	signature->crc = signature_crc(0, &signature->version, offsetof(struct signature, seq) -
				       offsetof(struct signature, version));
}

void signature_seal(struct signature *signature)
{
	signature->crc = signature_crc(signature->crc, &signature->seq,
				       sizeof(*signature) - offsetof(struct signature, seq));
}

static void say_number(char *text, size_t size, const struct signature *signature, uint64_t value)
{
	snprintf(text, size, "%" PRIu64, value);
}

/* As many were made on both sides, so what is left to tell them apart is the digest. */
static void say_allocs(char *text, size_t size, const struct signature *signature, uint64_t value)
{
	snprintf(text, size, "made %u, digest %08" PRIx64, signature->allocs, value);
}

static void say_size(char *text, size_t size, const struct signature *signature, uint64_t value)
{
	uint32_t dims = signature->ndim - 1U, i;
	size_t n = 1;

	if (dims > SIGNATURE_DIMS) {
		snprintf(text, size, "a target of %u dimensions", signature->ndim);
		return;
	}
	snprintf(text, size, "[");
	for (i = 0; i < dims; i++)
		n += (size_t)snprintf(text + n, size - n, i ? ",%" PRIu64 : "%" PRIu64,
				      signature->size[i]);
	snprintf(text + n, size - n, "]");
}

static void say_kind(char *text, size_t size, const struct signature *signature, uint64_t value)
{
	snprintf(text, size, "%s", collective_name((uint32_t)value));
}

static void say_mode(char *text, size_t size, const struct signature *signature, uint64_t value)
{
	if (value == NPUWIN_MODE_BLOCK)
		snprintf(text, size, "block");
	else if (value == NPUWIN_MODE_ROWS)
		snprintf(text, size, "rows");
	else
		say_number(text, size, signature, value);
}

static void say_dtype(char *text, size_t size, const struct signature *signature, uint64_t value)
{
	const char *name = npuwin_dtype_name((uint32_t)value);

	if (name)
		snprintf(text, size, "%s", name);
	else
		say_number(text, size, signature, value);
}

/**
 * struct field - A field of a signature.
 * @name: in a sentence
 * @offset: where
 * @size: bytes: 1, 4, 8 or those of an array
 * @say: how its value reads, in that signature; of an array that is the first element
 */
struct field {
	const char *name;
	size_t offset;
	size_t size;
	void (*say)(char *text, size_t size, const struct signature *signature, uint64_t value);
};

#define FIELD(name, member, say) \
	{ name, offsetof(struct signature, member), \
	  sizeof(((struct signature *)NULL)->member), say }

/* From what explains most to what follows from it. */
static const struct field fields[] = {
	FIELD("the runtime's version of signatures", version, say_number),
	FIELD("the collective", kind, say_kind),
	FIELD("the number of the call", seq, say_number),
	FIELD("the number of buffers allocated", allocs, say_number),
	FIELD("the sequence of buffer allocations", alloc_digest, say_allocs),
	FIELD("MAX_RECV", max_recv, say_number),
	FIELD("dtype", dtype, say_dtype),
	FIELD("SIZE", ndim, say_size),
	FIELD("SIZE", size, say_size),
	FIELD("the number of bytes of a row", row_bytes, say_number),
	FIELD("mode", mode, say_mode),
	FIELD("offset of target in the window", target, say_number),
	FIELD("offset of signal in the window", signal, say_number),
	FIELD("offset of recv_counts in the window", recv_counts, say_number),
};

static bool field_differs(const struct signature *a, const struct signature *b,
			  const struct field *field)
{
	return memcmp((const uint8_t *)a + field->offset, (const uint8_t *)b + field->offset,
		      field->size);
}

static uint64_t field_get(const struct signature *signature, const struct field *field)
{
	const uint8_t *p = (const uint8_t *)signature + field->offset;

	switch (field->size) {
	case 1:
		return *p;
	case 4:
		return *(const uint32_t *)p;
	default:
		return *(const uint64_t *)p;
	}
}

/* Where it lies is said where sizes are the same. */
static void say_allocation(char *text, size_t size, const struct allocation *made, bool place)
{
	if (!made->size)
		snprintf(text, size, "none");
	else if (place)
		snprintf(text, size, "%" PRIu64 " bytes at offset %" PRIu64, made->size,
			 made->offset);
	else
		snprintf(text, size, "%" PRIu64 " bytes", made->size);
}

static bool is_of_allocations(const struct field *field)
{
	return field->offset == offsetof(struct signature, allocs) ||
	       field->offset == offsetof(struct signature, alloc_digest);
}

int signature_explain(const struct signature *own, uint32_t rank, const struct signature *peer,
		      uint32_t peer_rank, const struct alloc_difference *difference,
		      struct npuwin_error *err)
{
	/* Both sides say the same sentence: the lower rank comes first. */
	bool own_first = rank < peer_rank;
	bool same_size = difference->own.size == difference->peer.size;
	const char *what = collective_name(own->kind);
	char name[64], text_own[160], text_peer[160];
	const struct field *field = fields, *end = fields + ARRAY_SIZE(fields);

	while (field < end && !field_differs(own, peer, field))
		field++;
	if (field == end)
		return npuwin_fail(err, -EPROTO, rank, peer_rank,
				   "%s: rank %u and rank %u have not made the same call", what,
				   own_first ? rank : peer_rank, own_first ? peer_rank : rank);
	if (difference->number && is_of_allocations(field)) {
		snprintf(name, sizeof(name), "buffer allocation %u", difference->number);
		say_allocation(text_own, sizeof(text_own), &difference->own, same_size);
		say_allocation(text_peer, sizeof(text_peer), &difference->peer, same_size);
	} else {
		snprintf(name, sizeof(name), "%s", field->name);
		field->say(text_own, sizeof(text_own), own, field_get(own, field));
		field->say(text_peer, sizeof(text_peer), peer, field_get(peer, field));
	}
	return npuwin_fail(err, -EPROTO, rank, peer_rank,
			   "%s: %s differs: rank %u has %s, rank %u has %s", what, name,
			   own_first ? rank : peer_rank, own_first ? text_own : text_peer,
			   own_first ? peer_rank : rank, own_first ? text_peer : text_own);
}
