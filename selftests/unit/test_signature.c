// SPDX-License-Identifier: MIT
/* Signatures: that any difference is seen, and which one is named. */
#include "local.h"

static void test_crc(void **state)
{
	/* The check value of CRC-32/ISO-HDLC. */
	assert_int_equal(signature_crc(0, "123456789", 9), 0xcbf43926);
	assert_int_equal(signature_crc(signature_crc(0, "1234", 4), "56789", 5), 0xcbf43926);
	assert_int_equal(signature_crc(0, "", 0), 0);
}

static const struct signature base = {
	.version = SIGNATURE_VERSION,
	.kind = COLLECTIVE_A2AV,
	.mode = NPUWIN_MODE_BLOCK,
	.dtype = NPUWIN_BF16,
	.ndim = NPUWIN_MAX_DIMS,
	.seq = 7,
	.max_recv = 8,
	.size = { 2, 4, 1, 8, 1, 16, 2 },
	.row_bytes = 4096,
	.target = 65536,
	.signal = 4096,
	.recv_counts = 8192,
	.allocs = 5,
	.alloc_digest = 0xabcdef,
};

static const struct alloc_difference unknown;

static void seal(struct signature *signature)
{
	signature_begin(signature);
	signature_seal(signature);
}

/* Each bit counts: one that differs gives another checksum and a sentence that says so. */
static void test_every_bit(void **state)
{
	struct signature a = base, b;
	struct npuwin_error err;
	uint32_t bit;

	seal(&a);
	for (bit = 32; bit < 8 * sizeof(b); bit++) {
		b = base;
		((uint8_t *)&b)[bit / 8] ^= (uint8_t)(1U << bit % 8);
		seal(&b);
		assert_int_not_equal(a.crc, b.crc);
		/* It has no meaning, and so no name. */
		if (bit / 8 >= offsetof(struct signature, reserved) &&
		    bit / 8 < offsetof(struct signature, seq))
			continue;
		assert_int_equal(signature_explain(&a, 1, &b, 5, &unknown, &err), -EPROTO);
		assert_int_equal(err.code, -EPROTO);
		assert_int_equal(err.rank, 1);
		assert_int_equal(err.peer, 5);
		assert_memory_equal(err.text, "all_to_all_v: ", 14);
		assert_non_null(strstr(err.text, " differs: rank 1 has "));
		assert_non_null(strstr(err.text, ", rank 5 has "));
	}
}

static void test_sentences(void **state)
{
	struct signature a = base, b = base;
	struct npuwin_error err;

	b.max_recv = 16;
	signature_explain(&a, 0, &b, 3, &unknown, &err);
	assert_string_equal(err.text,
			    "all_to_all_v: MAX_RECV differs: rank 0 has 8, rank 3 has 16");
	/* The other side says the same. */
	signature_explain(&b, 3, &a, 0, &unknown, &err);
	assert_string_equal(err.text,
			    "all_to_all_v: MAX_RECV differs: rank 0 has 8, rank 3 has 16");
	assert_int_equal(err.rank, 3);
	assert_int_equal(err.peer, 0);
	/* What differs most is named first. */
	b.mode = NPUWIN_MODE_ROWS;
	b.dtype = 77;
	signature_explain(&a, 0, &b, 3, &unknown, &err);
	assert_non_null(strstr(err.text, "MAX_RECV differs"));
	b.max_recv = a.max_recv;
	signature_explain(&a, 0, &b, 3, &unknown, &err);
	assert_non_null(strstr(err.text, "dtype differs: rank 0 has bf16, rank 3 has 77"));
	b.dtype = a.dtype;
	signature_explain(&a, 0, &b, 3, &unknown, &err);
	assert_non_null(strstr(err.text, "mode differs: rank 0 has block, rank 3 has rows"));
	b.kind = 200;
	signature_explain(&a, 0, &b, 3, &unknown, &err);
	assert_non_null(strstr(err.text, "rank 3 has an unknown collective"));
	/* A peer that lies about its checksum. */
	assert_int_equal(signature_explain(&a, 0, &base, 3, &unknown, &err), -EPROTO);
	assert_non_null(strstr(err.text, "rank 0 and rank 3 have not made the same call"));
	assert_int_equal(signature_explain(&a, 0, &b, 3, &unknown, NULL), -EPROTO);
}

/* SIZE is told as both have it, however many dimensions that are. */
static void test_sizes(void **state)
{
	static const uint64_t most = UINT64_MAX;
	struct signature a = base, b = base;
	struct npuwin_error err;
	uint32_t i;

	a.ndim = 3;
	b.ndim = 3;
	memcpy(a.size, (const uint64_t[SIGNATURE_DIMS]) { 2, 6 }, sizeof(a.size));
	memcpy(b.size, (const uint64_t[SIGNATURE_DIMS]) { 3, 4 }, sizeof(b.size));
	signature_explain(&a, 0, &b, 3, &unknown, &err);
	assert_string_equal(err.text,
			    "all_to_all_v: SIZE differs: rank 0 has [2,6], rank 3 has [3,4]");
	signature_explain(&b, 3, &a, 0, &unknown, &err);
	assert_string_equal(err.text,
			    "all_to_all_v: SIZE differs: rank 0 has [2,6], rank 3 has [3,4]");
	/* Of as many bytes or not. */
	b.row_bytes *= 2;
	b.ndim = 2;
	signature_explain(&a, 0, &b, 3, &unknown, &err);
	assert_string_equal(err.text,
			    "all_to_all_v: SIZE differs: rank 0 has [2,6], rank 3 has [3]");
	b.ndim = 1;
	signature_explain(&a, 0, &b, 3, &unknown, &err);
	assert_string_equal(err.text, "all_to_all_v: SIZE differs: rank 0 has [2,6], rank 3 has []");
	/* What no rank may have. */
	for (b.ndim = 0; ; b.ndim = NPUWIN_MAX_DIMS + 1) {
		char text[64];

		snprintf(text, sizeof(text), "rank 3 has a target of %u dimensions", b.ndim);
		signature_explain(&a, 0, &b, 3, &unknown, &err);
		assert_non_null(strstr(err.text, text));
		if (b.ndim)
			break;
	}
	b = base;
	for (i = 0; i < SIGNATURE_DIMS; i++)
		b.size[i] = most;
	a = base;
	signature_explain(&a, 0, &b, 3, &unknown, &err);
	assert_non_null(strstr(err.text, "rank 0 has [2,4,1,8,1,16,2], rank 3 has [18446744073"));
}

static void assert_says(const struct npuwin_error *err, const char *words)
{
	if (!strstr(err->text, words))
		fail_msg("want \"%s\": %s", words, err->text);
}

static void test_allocations(void **state)
{
	struct signature a = base, b = base;
	struct alloc_difference d = {
		.number = 3,
		.own = { .offset = 4096, .size = 1000 },
		.peer = { .offset = 4096, .size = 3000 },
	};
	struct npuwin_error err;

	b.alloc_digest++;
	signature_explain(&a, 0, &b, 3, &d, &err);
	assert_string_equal(err.text,
			    "all_to_all_v: buffer allocation 3 differs: rank 0 has 1000 bytes, rank 3 has 3000 bytes");
	signature_explain(&a, 3, &b, 0, &d, &err);
	assert_string_equal(err.text,
			    "all_to_all_v: buffer allocation 3 differs: rank 0 has 3000 bytes, rank 3 has 1000 bytes");
	d.peer.size = 1000;
	d.peer.offset = 8192;
	signature_explain(&a, 0, &b, 3, &d, &err);
	assert_says(&err,
		    "allocation 3 differs: rank 0 has 1000 bytes at offset 4096, rank 3 has 1000 bytes at offset 8192");
	b.allocs++;
	d.own.size = 0;
	signature_explain(&a, 0, &b, 3, &d, &err);
	assert_says(&err, "allocation 3 differs: rank 0 has none, rank 3 has 1000 bytes");
	/* What differs before it is what is said. */
	b.seq++;
	signature_explain(&a, 0, &b, 3, &d, &err);
	assert_says(&err, "the number of the call differs");
	b.seq--;
	/* What is not known is not told as one. */
	signature_explain(&a, 0, &b, 3, &unknown, &err);
	assert_says(&err,
		    "the number of buffers allocated differs: rank 0 has 5, rank 3 has 6");
	b.allocs = a.allocs;
	signature_explain(&a, 0, &b, 3, &unknown, &err);
	assert_string_equal(err.text,
			    "all_to_all_v: the sequence of buffer allocations differs: rank 0 has made 5, digest 00abcdef, rank 3 has made 5, digest 00abcdf0");
	/* The longest there can be is not cut off. */
	d = (struct alloc_difference) {
		.number = UINT32_MAX,
		.own = { UINT64_MAX, UINT64_MAX },
		.peer = { UINT64_MAX - 1, UINT64_MAX },
	};
	signature_explain(&a, 1022, &b, 1023, &d, &err);
	assert_says(&err,
		    "18446744073709551615 bytes at offset 18446744073709551615, rank 1023 has 18446744073709551615 bytes at offset 18446744073709551614");
}

/* The runtime's own part: nothing overlaps, and what the user asked for is left. */
static void test_layout(void **state)
{
	static const uint32_t ranks[] = { 1, 2, 3, 17, 64, 1000, NPUWIN_MAX_RANKS };
	uint32_t i;

	for (i = 0; i < ARRAY_SIZE(ranks); i++) {
		uint32_t n = ranks[i], last = HANDSHAKE_SLOTS - 1;

		assert_int_equal(handshake_ready(n, 0, 0), 0);
		assert_int_equal(handshake_ready(n, 1, 0), n * sizeof(int32_t));
		assert_int_equal(handshake_ready(n, HANDSHAKE_SLOTS, 0), 0);
		assert_true(handshake_slot(n, 0, 0) >=
			    handshake_ready(n, last, n - 1) + sizeof(int32_t));
		assert_int_equal(handshake_slot(n, 0, 0) % sizeof(struct signature), 0);
		assert_int_equal(handshake_slot(n, UINT32_MAX, 0), handshake_slot(n, last, 0));
		assert_int_equal(handshake_stage(n, 0),
				 handshake_slot(n, last, n - 1) + sizeof(struct signature));
		assert_int_equal(handshake_history(n, 0), handshake_stage(n, HANDSHAKE_STAGES));
		assert_true(handshake_size(n) >= handshake_history(n, n - 1) +
			    HISTORY * sizeof(struct allocation));
		assert_int_equal(handshake_size(n) % 4096, 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_crc),
		cmocka_unit_test(test_every_bit),
		cmocka_unit_test(test_sentences),
		cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_allocations),
		cmocka_unit_test(test_layout),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
