// SPDX-License-Identifier: MIT
/*
 * Operands and their contents. Every byte that a call may write, must write or must leave
 * alone is known here from the call's number, the ranks and the row.
 */
#include "conformance.h"

const char *const operand_names[NOPERANDS + 1] = {
	"input", "target", "signal", "send_counts", "recv_counts", NULL,
};

static uint64_t mix(uint64_t x)
{
	x ^= x >> 31;
	x *= 0x9e3779b97f4a7c15ULL;
	x ^= x >> 29;
	x *= 0xd6e8feb86659fd93ULL;
	return x ^ (x >> 32);
}

static uint64_t mix4(uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
	return mix(mix(mix(mix(a + 1) + b + 1) + c + 1) + d + 1);
}

uint64_t rnd(uint64_t *state)
{
	*state += 0x632be59bd9b4e019ULL;
	return mix(*state);
}

int32_t count_random(uint64_t seed, uint32_t src, uint32_t dst, uint32_t nranks,
		     uint32_t max_recv)
{
	return (int32_t)(mix4(seed, src, dst, 77) % ((uint64_t)max_recv + 1));
}

int32_t count_zero(uint64_t seed, uint32_t src, uint32_t dst, uint32_t nranks,
		   uint32_t max_recv)
{
	return 0;
}

int32_t count_full(uint64_t seed, uint32_t src, uint32_t dst, uint32_t nranks,
		   uint32_t max_recv)
{
	return (int32_t)max_recv;
}

uint32_t clamped(int32_t count, uint32_t max_recv)
{
	if (count < 0)
		return 0;
	return (uint32_t)count > max_recv ? max_recv : (uint32_t)count;
}

struct npuwin_tensor *tensor_of(struct npuwin_a2av *op, enum operand which)
{
	switch (which) {
	case INPUT:
		return &op->input;
	case TARGET:
		return &op->target;
	case SIGNAL:
		return &op->signal;
	case SEND:
		return &op->send_counts;
	case RECV:
		return &op->recv_counts;
	default:
		FAIL("no operand %d", (int)which);
	}
}

void *set_ptr(const struct set *set, enum operand which)
{
	return (uint8_t *)npuwin_buffer_ptr(set->buffer[which]) + GUARD;
}

void set_alloc(const struct party *p, const struct rank *r, const struct layout *layout,
	       struct set *set)
{
	struct npuwin_error err = fresh_error();
	struct npuwin_tensor *t;
	uint32_t i, k;

	memset(set, 0, sizeof(*set));
	set->rank = r->rank;
	set->nranks = p->nranks;
	set->max_recv = layout->max_recv;
	set->row = npuwin_dtype_size(layout->dtype);
	for (k = 0; k < layout->ndim_size; k++)
		set->row *= layout->size[k];
	set->op.mode = p->cfg->mode;
	set->op.rail = p->cfg->rail;

	for (i = 0; i < NOPERANDS; i++) {
		t = tensor_of(&set->op, i);
		t->offset = GUARD;
		if (i == INPUT || i == TARGET) {
			t->dtype = layout->dtype;
			t->ndim = 1 + layout->ndim_size;
			t->shape[0] = (uint64_t)p->nranks * layout->max_recv;
			for (k = 0; k < layout->ndim_size; k++)
				t->shape[1 + k] = layout->size[k];
			set->bytes[i] = t->shape[0] * set->row;
		} else {
			t->dtype = NPUWIN_INT32;
			t->ndim = layout->column ? 2 : 1;
			t->shape[0] = p->nranks;
			t->shape[1] = layout->column ? 1 : 0;
			set->bytes[i] = 4ULL * p->nranks;
		}
		CHECK_OK(npuwin_buffer_alloc(r->domain, set->bytes[i] + 2 * GUARD, 0,
					     &set->buffer[i], &err), &err);
		t->buffer = set->buffer[i];
		CHECK_EQ(npuwin_buffer_size(set->buffer[i]), set->bytes[i] + 2 * GUARD);
		check_filled("new buffer", npuwin_buffer_ptr(set->buffer[i]), 0,
			     set->bytes[i] + 2 * GUARD);
	}
}

void set_free(struct set *set)
{
	uint32_t i;

	for (i = NOPERANDS; i--;)
		npuwin_buffer_free(set->buffer[i]);
	memset(set, 0, sizeof(*set));
}

void row_fill(uint8_t *to, uint64_t bytes, uint64_t seed, uint32_t src, uint32_t dst,
	      uint32_t row)
{
	uint64_t x = mix4(seed, src, dst, row), i;

	for (i = 0; i + 8 <= bytes; i += 8) {
		memcpy(to + i, &x, 8);
		x = x * 0xd1342543de82ef95ULL + 1;
	}
	if (i < bytes)
		memcpy(to + i, &x, bytes - i);
}

/* As fill and as expected of an input: block d of rank @src. */
static void fill_block(uint8_t *to, const struct set *set, uint64_t seed, uint32_t src,
		       uint32_t dst)
{
	uint32_t i;

	for (i = 0; i < set->max_recv; i++)
		row_fill(to + i * set->row, set->row, seed, src, dst, i);
}

void set_fill(struct set *set, uint64_t seed, count_fn count)
{
	uint64_t block = set->row * set->max_recv;
	uint32_t i, d;
	int32_t *send = set_ptr(set, SEND), *recv = set_ptr(set, RECV);

	for (i = 0; i < NOPERANDS; i++) {
		uint8_t *p = npuwin_buffer_ptr(set->buffer[i]);

		memset(p, GUARD_BYTE, GUARD);
		memset(p + GUARD + set->bytes[i], GUARD_BYTE, GUARD);
	}
	memset(set_ptr(set, TARGET), POISON_BYTE, set->bytes[TARGET]);
	for (d = 0; d < set->nranks; d++) {
		fill_block((uint8_t *)set_ptr(set, INPUT) + d * block, set, seed, set->rank, d);
		send[d] = count(seed, set->rank, d, set->nranks, set->max_recv);
		recv[d] = POISON_COUNT;
	}
}

static void check_local(const struct set *set, uint64_t seed, count_fn count)
{
	uint64_t block = set->row * set->max_recv;
	uint8_t *want = malloc(block + 1);
	const int32_t *send = set_ptr(set, SEND);
	uint32_t i, d;

	CHECK(want);
	for (i = 0; i < NOPERANDS; i++) {
		const uint8_t *p = npuwin_buffer_ptr(set->buffer[i]);

		check_filled("before a tensor", p, GUARD_BYTE, GUARD);
		check_filled("after a tensor", p + GUARD + set->bytes[i], GUARD_BYTE, GUARD);
	}
	for (d = 0; d < set->nranks; d++) {
		fill_block(want, set, seed, set->rank, d);
		check_bytes("input", (uint8_t *)set_ptr(set, INPUT) + d * block, want, block);
		CHECK_EQ(send[d], count(seed, set->rank, d, set->nranks, set->max_recv));
	}
	free(want);
}

void set_verify(const struct set *set, uint64_t seed, count_fn count)
{
	uint64_t block = set->row * set->max_recv, there;
	const uint8_t *target = set_ptr(set, TARGET);
	const int32_t *recv = set_ptr(set, RECV);
	uint8_t *want = malloc(block + 1);
	char what[64];
	uint32_t s, n;

	CHECK(want);
	check_local(set, seed, count);
	for (s = 0; s < set->nranks; s++) {
		n = clamped(count(seed, s, set->rank, set->nranks, set->max_recv),
			    set->max_recv);
		if ((uint32_t)recv[s] != n)
			FAIL("rank %u: recv_counts[%u] is %d, expected %u (call %llu)",
			     set->rank, s, recv[s], n, (unsigned long long)seed);
		there = set->op.mode == NPUWIN_MODE_ROWS ? n * set->row : block;
		fill_block(want, set, seed, s, set->rank);
		snprintf(what, sizeof(what), "rank %u: block from %u (call %llu)", set->rank, s,
			 (unsigned long long)seed);
		check_bytes(what, target + s * block, want, there);
		snprintf(what, sizeof(what), "rank %u: tail of block from %u", set->rank, s);
		check_filled(what, target + s * block + there, POISON_BYTE, block - there);
	}
	free(want);
}

void set_unmoved(const struct set *set, uint64_t seed, count_fn count)
{
	const int32_t *recv = set_ptr(set, RECV);
	uint32_t s;

	check_local(set, seed, count);
	check_filled("target of a call that failed", set_ptr(set, TARGET), POISON_BYTE,
		     set->bytes[TARGET]);
	for (s = 0; s < set->nranks; s++)
		CHECK_EQ(recv[s], POISON_COUNT);
}

void set_settled(const struct set *set)
{
	const int32_t *signal = set_ptr(set, SIGNAL);
	uint32_t i;

	for (i = 0; i < set->nranks; i++)
		if (signal[i])
			FAIL("rank %u: signal[%u] is %d after the call", set->rank, i,
			     signal[i]);
}

void party_alloc(struct party *p, const struct layout *layout, struct set *sets)
{
	uint32_t i;

	for (i = 0; i < p->n; i++)
		set_alloc(p, &p->ranks[i], layout, &sets[i]);
}

void party_free(struct party *p, struct set *sets)
{
	uint32_t i;

	for (i = p->n; i--;)
		set_free(&sets[i]);
}

void party_exchange(struct party *p, struct set *sets, uint64_t seed, count_fn count)
{
	struct npuwin_error err = fresh_error();
	uint32_t i;

	for (i = 0; i < p->n; i++)
		set_fill(&sets[i], seed, count);
	CHECK_OK(party_call(p, sets, far(), NULL, &err), &err);
	for (i = 0; i < p->n; i++)
		set_verify(&sets[i], seed, count);
	party_sync(p);
	for (i = 0; i < p->n; i++)
		set_settled(&sets[i]);
	party_sync(p);
}
