// SPDX-License-Identifier: MIT
/*
 * Calls that break the contract in one way, with everything else valid: refused by a
 * sentence that names the operand, before anything moves, and a correct call then works.
 */
#include "violations.h"

static const struct layout layout = {
	.dtype = NPUWIN_INT16, .max_recv = 4, .ndim_size = 2, .size = { 3, 2 },
};

/* A copy of all that this rank's windows hold. */
struct snapshot {
	uint8_t *bytes[2 * NOPERANDS + 1];
};

static struct npuwin_buffer *nth_buffer(const struct scene *s, uint32_t k)
{
	if (k < NOPERANDS)
		return s->set.buffer[k];
	if (k < 2 * NOPERANDS)
		return s->other.buffer[k - NOPERANDS];
	return s->big;
}

static void snapshot_take(const struct scene *s, struct snapshot *shot)
{
	uint32_t k;

	for (k = 0; k < ARRAY_SIZE(shot->bytes); k++) {
		size_t n = npuwin_buffer_size(nth_buffer(s, k));

		shot->bytes[k] = malloc(n);
		CHECK(shot->bytes[k]);
		memcpy(shot->bytes[k], npuwin_buffer_ptr(nth_buffer(s, k)), n);
	}
}

static void snapshot_check(const struct scene *s, struct snapshot *shot)
{
	uint32_t k;

	for (k = 0; k < ARRAY_SIZE(shot->bytes); k++) {
		check_bytes("window after a refused call", npuwin_buffer_ptr(nth_buffer(s, k)),
			    shot->bytes[k], npuwin_buffer_size(nth_buffer(s, k)));
		free(shot->bytes[k]);
	}
}

/* One rank makes the bad call alone; as a request too. */
static void refuse_rank(struct party *p, uint32_t i, const struct npuwin_a2av *op)
{
	const struct violation *v = p->arg;
	struct npuwin_request *request = (void *)0x5a5a;
	struct npuwin_error err = fresh_error();
	int ret;

	ret = npuwin_all_to_all_v(p->ranks[i].domain, op, far(), NULL, &err);
	check_err(__FILE__, __LINE__, "the call", ret, -EINVAL, &err, v->words);
	CHECK_EQ(err.rank, p->ranks[i].rank);
	CHECK_EQ(npuwin_all_to_all_v(p->ranks[i].domain, op, far(), NULL, NULL), -EINVAL);

	err = fresh_error();
	ret = npuwin_all_to_all_v_start(p->ranks[i].domain, op, far(), &request, &err);
	check_err(__FILE__, __LINE__, "the start", ret, -EINVAL, &err, v->words);
}

/* The last one's operands are bad: nothing of the others' may be started either. */
static void refuse_group(struct party *p, struct scene *scenes, const struct npuwin_a2av *bad)
{
	const struct violation *v = p->arg;
	struct npuwin_domain *domains[VIOLATION_RANKS];
	struct npuwin_a2av ops[VIOLATION_RANKS];
	struct npuwin_error err = fresh_error();
	uint32_t i;
	int ret;

	for (i = 0; i < p->n; i++) {
		domains[i] = p->ranks[i].domain;
		ops[i] = i == p->n - 1 ? *bad : scenes[i].set.op;
	}
	ret = npuwin_all_to_all_v_group(domains, ops, p->n, far(), NULL, &err);
	check_err(__FILE__, __LINE__, "the group call", ret, -EINVAL, &err, v->words);
	CHECK_EQ(err.rank, p->n - 1);
}

static void scenes_make(struct party *p, struct party *q, struct scene *scenes)
{
	struct npuwin_error err = fresh_error();
	struct set sets[VIOLATION_RANKS];
	uint32_t i;

	for (i = 0; i < p->n; i++) {
		set_alloc(p, &p->ranks[i], &layout, &scenes[i].set);
		set_alloc(q, &q->ranks[i], &layout, &scenes[i].other);
		CHECK_OK(npuwin_buffer_alloc(p->ranks[i].domain, BIG, 0, &scenes[i].big, &err),
			 &err);
		set_fill(&scenes[i].set, 7, count_random);
		set_fill(&scenes[i].other, 8, count_random);
		sets[i] = scenes[i].set;
	}
	party_exchange(p, sets, 6, count_random);
	for (i = 0; i < p->n; i++)
		set_fill(&scenes[i].set, 7, count_random);
}

static void violation_party(struct party *p)
{
	const struct violation *v = p->arg;
	struct rank others[VIOLATION_RANKS];
	struct scene scenes[VIOLATION_RANKS];
	struct snapshot shots[VIOLATION_RANKS] = { 0 };
	struct set sets[VIOLATION_RANKS];
	struct npuwin_a2av bad = { 0 };
	struct party q = *p;
	char name[64];
	uint32_t i;

	memcpy(others, p->ranks, p->n * sizeof(others[0]));
	q.ranks = others;
	snprintf(name, sizeof(name), "%s-other", p->name);
	party_join(&q, name, 0);
	scenes_make(p, &q, scenes);
	for (i = 0; i < p->n; i++)
		snapshot_take(&scenes[i], &shots[i]);
	party_sync(p);

	for (i = 0; i < p->n; i++) {
		bad = scenes[i].set.op;
		v->apply(&scenes[i], &bad, v);
		refuse_rank(p, i, &bad);
	}
	if (p->cfg->form == FORM_GROUP)
		refuse_group(p, scenes, &bad);
	party_sync(p);
	for (i = 0; i < p->n; i++)
		snapshot_check(&scenes[i], &shots[i]);
	party_sync(p);
	for (i = 0; i < p->n; i++)
		sets[i] = scenes[i].set;
	party_exchange(p, sets, 9, count_random);
	for (i = 0; i < p->n; i++)
		sets[i] = scenes[i].other;
	party_exchange(&q, sets, 10, count_random);
	party_leave(&q);
}

/* The ten pairs, in the order of their names. */
static const uint8_t pair_of[][2] = {
	{ INPUT, TARGET }, { INPUT, SIGNAL }, { INPUT, SEND }, { INPUT, RECV },
	{ TARGET, SIGNAL }, { TARGET, SEND }, { TARGET, RECV },
	{ SIGNAL, SEND }, { SIGNAL, RECV }, { SEND, RECV },
};

static const char *const pair_names[] = {
	"input and target", "input and signal", "input and send_counts",
	"input and recv_counts", "target and signal", "target and send_counts",
	"target and recv_counts", "signal and send_counts", "signal and recv_counts",
	"send_counts and recv_counts", NULL,
};

const char *const count_names[] = { "signal", "send_counts", "recv_counts", NULL };

void violation_run(const struct config *cfg)
{
	struct violation v = *(const struct violation *)cfg->data;
	const struct run run = { .nranks = VIOLATION_RANKS, .fn = violation_party, .arg = &v };

	if (v.over == PAIRS) {
		v.a = pair_of[cfg->variant][0];
		v.b = pair_of[cfg->variant][1];
		v.words[1] = operand_names[v.b];
	} else if (v.over == OPERANDS) {
		v.a += cfg->variant;
	}
	if (v.over != ITSELF)
		v.words[0] = operand_names[v.a];
	run_ranks(cfg, &run);
}

/* Both in one buffer, in ranges that do not touch. */
static void alias(struct scene *s, struct npuwin_a2av *op, const struct violation *v)
{
	tensor_of(op, v->a)->buffer = s->big;
	tensor_of(op, v->a)->offset = 0;
	tensor_of(op, v->b)->buffer = s->big;
	tensor_of(op, v->b)->offset = BIG / 2;
}

/* The very same memory. */
static void alias_exact(struct scene *s, struct npuwin_a2av *op, const struct violation *v)
{
	tensor_of(op, v->b)->buffer = tensor_of(op, v->a)->buffer;
	tensor_of(op, v->b)->offset = tensor_of(op, v->a)->offset;
}

static void unbound(struct scene *s, struct npuwin_a2av *op, const struct violation *v)
{
	tensor_of(op, v->a)->buffer = NULL;
}

static void foreign(struct scene *s, struct npuwin_a2av *op, const struct violation *v)
{
	tensor_of(op, v->a)->buffer = s->other.buffer[v->a];
}

static void beyond(struct scene *s, struct npuwin_a2av *op, const struct violation *v)
{
	struct npuwin_tensor *t = tensor_of(op, v->a);

	t->offset = npuwin_buffer_size(t->buffer) - s->set.bytes[v->a] +
		    npuwin_dtype_size(t->dtype);
}

static void wraps(struct scene *s, struct npuwin_a2av *op, const struct violation *v)
{
	tensor_of(op, v->a)->offset = 0 - (uint64_t)GUARD;
}

static void misaligned(struct scene *s, struct npuwin_a2av *op, const struct violation *v)
{
	struct npuwin_tensor *t = tensor_of(op, v->a);

	t->offset += npuwin_dtype_size(t->dtype) / 2;
}

static void mode(struct scene *s, struct npuwin_a2av *op, const struct violation *v)
{
	op->mode = v->value;
}

static void rail(struct scene *s, struct npuwin_a2av *op, const struct violation *v)
{
	op->rail = v->value;
}

static void reserved(struct scene *s, struct npuwin_a2av *op, const struct violation *v)
{
	op->reserved[v->value] = 1ULL << 40;
}

/* Groups that are none, and results that ask for what there is not. */
static void groups_party(struct party *p)
{
	struct npuwin_a2av_result results[VIOLATION_RANKS];
	struct npuwin_domain *domains[VIOLATION_RANKS];
	struct npuwin_a2av ops[VIOLATION_RANKS];
	struct set sets[VIOLATION_RANKS];
	struct npuwin_error err;
	uint32_t i;

	party_alloc(p, &layout, sets);
	for (i = 0; i < p->n; i++) {
		set_fill(&sets[i], 1, count_full);
		ops[i] = sets[i].op;
		domains[i] = p->ranks[i].domain;
	}
#define REFUSED(n, ...) do {							\
	err = fresh_error();							\
	CHECK_ERR(npuwin_all_to_all_v_group(domains, ops, n, far(), results, &err),	\
		  -EINVAL, &err, __VA_ARGS__);					\
} while (0)
	memset(results, 0, sizeof(results));
	REFUSED(0, NULL);
	domains[1] = domains[0];
	REFUSED(2, "rank 0");
	domains[1] = NULL;
	REFUSED(2, "domains[1]");
	domains[1] = p->ranks[1].domain;
	results[1].reserved0 = 1;
	REFUSED(2, "reserved");
	results[1].reserved0 = 0;
	results[1].reserved[3] = 1;
	REFUSED(2, "reserved");
#undef REFUSED
	for (i = 0; i < p->n; i++) {
		set_unmoved(&sets[i], 1, count_full);
		set_settled(&sets[i]);
	}
	party_exchange(p, sets, 2, count_random);
}

static void groups_run(const struct config *cfg)
{
	const struct run run = { .nranks = VIOLATION_RANKS, .fn = groups_party };

	run_ranks(cfg, &run);
}

#define EACH_PAIR(text, fn)							\
	{ text, violation_run, A_ALL | A_EACH, 0,				\
	  &(const struct violation){ .apply = (fn), .over = PAIRS }, pair_names }

static const struct test_case cases[] = {
	EACH_PAIR("alias", alias),
	EACH_PAIR("same memory", alias_exact),
	EACH_OPERAND("not window-bound", unbound),
	EACH_OPERAND("of another domain", foreign),
	EACH_OPERAND("beyond its buffer", beyond),
	EACH_OPERAND("offset that wraps", wraps),
	EACH_OPERAND("misaligned offset", misaligned),
	VIOLATION("unknown mode", mode, "mode", "2", .value = 2),
	VIOLATION("mode -1", mode, "mode", NULL, .value = UINT32_MAX),
	VIOLATION("unknown rail", rail, "rail", "2", .value = 2),
	VIOLATION("rail -1", rail, "rail", NULL, .value = UINT32_MAX),
	VIOLATION("reserved[0]", reserved, "reserved", NULL, .value = 0),
	VIOLATION("reserved[1]", reserved, "reserved", NULL, .value = 1),
	{ "groups and results that are wrong", groups_run, A_RAILS | A_GROUP | A_MODES, 0, NULL },
};

const struct suite suite_violations = { cases, ARRAY_SIZE(cases) };
