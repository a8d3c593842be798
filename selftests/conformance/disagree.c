// SPDX-License-Identifier: MIT
/*
 * Ranks that make different calls: each is told with whom it disagrees and about what,
 * nothing has moved, and the domain stays usable.
 */
#include "conformance.h"

#define MAX_RANKS	4

static const struct layout usual = {
	.dtype = NPUWIN_INT16, .max_recv = 4, .ndim_size = 2, .size = { 2, 6 },
};

/**
 * struct difference - What the odd rank does otherwise.
 * @apply: to its operands
 * @ours: what the sentence says of the others
 * @theirs: and of the odd one
 * @field: what differs, where all of the sentence is known
 * @nranks: ranks; the odd one is the last but one
 */
struct difference {
	void (*apply)(struct set *set);
	const char *ours;
	const char *theirs;
	const char *field;
	uint32_t nranks;
};

static uint32_t odd_rank(const struct party *p)
{
	const struct difference *d = p->arg;

	return d->nranks == 2 ? 1 : d->nranks - 2;
}

static void fewer_rows(struct set *set)
{
	set->op.input.shape[0] = 2ULL * set->nranks;
	set->op.target.shape[0] = 2ULL * set->nranks;
}

static void set_size(struct set *set, uint32_t n, uint64_t first, uint64_t second)
{
	struct npuwin_tensor *t[] = { &set->op.input, &set->op.target };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(t); i++) {
		t[i]->ndim = 1 + n;
		t[i]->shape[1] = first;
		t[i]->shape[2] = second;
	}
}

static void other_size(struct set *set)
{
	set_size(set, 2, 2, 3);
}

/* As many bytes, in another shape. */
static void other_shape(struct set *set)
{
	set_size(set, 2, 3, 4);
}

static void other_dimensions(struct set *set)
{
	set_size(set, 1, 12, 0);
}

static void other_dtype(struct set *set)
{
	set->op.input.dtype = NPUWIN_BF16;
	set->op.target.dtype = NPUWIN_BF16;
}

static void other_mode(struct set *set)
{
	set->op.mode = set->op.mode == NPUWIN_MODE_ROWS ? NPUWIN_MODE_BLOCK : NPUWIN_MODE_ROWS;
}

/* The peers would write to another place than where this rank looks. */
static void other_target(struct set *set)
{
	set->op.target.offset = GUARD / 2;
}

static void other_signal(struct set *set)
{
	set->op.signal.offset = GUARD / 2;
}

static void other_recv_counts(struct set *set)
{
	set->op.recv_counts.offset = GUARD / 2;
}

static void check_disagreement(struct party *p, int ret, const struct npuwin_error *err,
			       uint32_t caller)
{
	const struct difference *d = p->arg;
	uint32_t odd = odd_rank(p);
	char own[16], peer[16], sentence[120];

	CHECK_EQ(err->rank, caller);
	if (caller == odd)
		CHECK(err->peer >= 0 && err->peer < (int32_t)p->nranks && err->peer != (int)odd);
	else
		CHECK_EQ(err->peer, odd);
	snprintf(own, sizeof(own), "rank %u", caller);
	snprintf(peer, sizeof(peer), "rank %d", err->peer);
	CHECK_ERR(ret, -EPROTO, err, own, peer, d->ours, d->theirs);
	if (!d->field)
		return;
	/* All say the same: the lower rank comes first. */
	if (caller < (uint32_t)err->peer)
		snprintf(sentence, sizeof(sentence),
			 "all_to_all_v: %s differs: %s has %s, %s has %s", d->field, own,
			 caller == odd ? d->theirs : d->ours, peer,
			 caller == odd ? d->ours : d->theirs);
	else
		snprintf(sentence, sizeof(sentence),
			 "all_to_all_v: %s differs: %s has %s, %s has %s", d->field, peer,
			 caller == odd ? d->ours : d->theirs, own,
			 caller == odd ? d->theirs : d->ours);
	if (strcmp(err->text, sentence))
		FAIL("\"%s\", want \"%s\"", err->text, sentence);
}

static void disagree_party(struct party *p)
{
	const struct difference *d = p->arg;
	struct npuwin_error err;
	struct set sets[MAX_RANKS], used[MAX_RANKS];
	uint32_t i, round;
	int ret;

	party_alloc(p, &usual, sets);
	for (round = 0; round < 3; round++) {
		for (i = 0; i < p->n; i++) {
			set_fill(&sets[i], round, count_full);
			used[i] = sets[i];
			if (p->ranks[i].rank == odd_rank(p))
				d->apply(&used[i]);
		}
		party_sync(p);
		err = fresh_error();
		ret = party_call(p, used, far(), NULL, &err);
		check_disagreement(p, ret, &err, p->n == 1 ? p->ranks[0].rank
							   : (uint32_t)err.rank);
		party_sync(p);
		for (i = 0; i < p->n; i++) {
			set_unmoved(&sets[i], round, count_full);
			set_settled(&sets[i]);
		}
		party_sync(p);
		party_exchange(p, sets, 100 + round, count_random);
	}
	party_free(p, sets);
}

static void disagree_run(const struct config *cfg)
{
	struct difference d = *(const struct difference *)cfg->data;
	const struct run run = {
		.nranks = cfg->variant ? 2 : MAX_RANKS, .fn = disagree_party, .arg = &d,
	};

	d.nranks = run.nranks;
	run_ranks(cfg, &run);
}

/* One rank comes with a barrier, the others with an all_to_all_v. */
static void order_party(struct party *p)
{
	static const struct difference d = { .ours = "all_to_all_v", .theirs = "barrier",
					     .nranks = MAX_RANKS };
	struct npuwin_error err = fresh_error();
	struct set sets[MAX_RANKS];
	int ret;

	p->arg = &d;
	party_alloc(p, &usual, sets);
	set_fill(&sets[0], 1, count_full);
	party_sync(p);
	if (p->ranks[0].rank == odd_rank(p))
		ret = npuwin_barrier(p->ranks[0].domain, far(), &err);
	else
		ret = party_call(p, sets, far(), NULL, &err);
	check_disagreement(p, ret, &err, p->ranks[0].rank);
	party_sync(p);
	set_unmoved(&sets[0], 1, count_full);
	party_barrier(p);
	party_exchange(p, sets, 2, count_random);
	party_free(p, sets);
}

static void order_run(const struct config *cfg)
{
	const struct run run = { .nranks = MAX_RANKS, .fn = order_party };

	run_ranks(cfg, &run);
}

/* One rank has allocated the same buffers in another order. */
static void allocation_party(struct party *p)
{
	struct npuwin_buffer *extra[MAX_RANKS] = { NULL }, *other[MAX_RANKS] = { NULL };
	struct npuwin_error err = fresh_error();
	struct set sets[MAX_RANKS];
	uint64_t size[2] = { 1000, 3000 };
	uint32_t i, odd = 2;
	bool swap;
	int ret;

	for (i = 0; i < p->n; i++) {
		swap = p->ranks[i].rank == odd;
		CHECK_OK(npuwin_buffer_alloc(p->ranks[i].domain, size[swap], 0, &extra[i], &err),
			 &err);
		CHECK_OK(npuwin_buffer_alloc(p->ranks[i].domain, size[!swap], 0, &other[i],
					     &err), &err);
	}
	party_alloc(p, &usual, sets);
	for (i = 0; i < p->n; i++)
		set_fill(&sets[i], 1, count_full);
	party_sync(p);
	err = fresh_error();
	ret = party_call(p, sets, far(), NULL, &err);
	CHECK_ERR(ret, -EPROTO, &err, "buffer allocation 1", "rank 2 has 3000 bytes",
		  " has 1000 bytes");
	CHECK(err.rank == 2 || err.peer == 2);
	CHECK(err.rank >= 0 && err.peer >= 0 && err.rank != err.peer);
	party_sync(p);
	for (i = 0; i < p->n; i++)
		set_unmoved(&sets[i], 1, count_full);
	party_sync(p);
	err = fresh_error();
	ret = party_call(p, sets, far(), NULL, &err);
	CHECK_ERR(ret, -EPROTO, &err, "buffer allocation 1", "rank 2 has 3000 bytes");
	party_sync(p);

	party_free(p, sets);
	for (i = 0; i < p->n; i++) {
		npuwin_buffer_free(extra[i]);
		npuwin_buffer_free(other[i]);
	}
}

static void allocation_run(const struct config *cfg)
{
	const struct run run = { .nranks = MAX_RANKS, .fn = allocation_party };

	run_ranks(cfg, &run);
}

static const char *const numbers[] = { "one of four", "one of two", NULL };

#define DIFFERS(text, fn, x, y, ...)						\
	{ text, disagree_run, A_ALL | A_PAIRS, 0,				\
	  &(const struct difference){ fn, x, y, __VA_ARGS__ }, numbers }

static const struct test_case cases[] = {
	DIFFERS("ranks differ in MAX_RECV", fewer_rows, "4", "2", "MAX_RECV"),
	DIFFERS("ranks differ in SIZE", other_size, "[2,6]", "[2,3]", "SIZE"),
	DIFFERS("ranks differ in the shape of SIZE", other_shape, "[2,6]", "[3,4]", "SIZE"),
	DIFFERS("ranks differ in the dimensions of SIZE", other_dimensions, "[2,6]", "[12]",
		"SIZE"),
	DIFFERS("ranks differ in dtype", other_dtype, "int16", "bf16", "dtype"),
	DIFFERS("ranks differ in mode", other_mode, "block", "rows"),
	DIFFERS("ranks differ in the target's place", other_target, "target", "target"),
	DIFFERS("ranks differ in the signal's place", other_signal, "signal", "signal"),
	DIFFERS("ranks differ in the recv_counts' place", other_recv_counts, "recv_counts",
		"recv_counts"),
	{ "ranks differ in the order of calls", order_run,
	  A_RAILS | A_MODES | A_THREADS | A_PROCESS_EACH | A_PAIRS, 0, NULL },
	{ "ranks differ in the order of allocations", allocation_run, A_ALL | A_EACH, 0, NULL },
};

const struct suite suite_disagree = { cases, ARRAY_SIZE(cases) };
