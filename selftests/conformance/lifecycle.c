// SPDX-License-Identifier: MIT
/*
 * The end of memberships: in order, early, a thousand times over, with nothing left.
 */
#include <unistd.h>

#include "conformance.h"

static const struct layout layout = {
	.dtype = NPUWIN_INT16, .max_recv = 4, .ndim_size = 1, .size = { 9 },
};

/* Everyone leaves when its own call is complete, whatever the others are at. */
static void leave_party(struct party *p)
{
	uint32_t i, round, rounds = times(p->cfg, 100, 20);
	uint64_t random = 50 + p->index;
	struct npuwin_error err = fresh_error();
	struct set sets[4];
	char name[64];

	for (round = 0; round < rounds; round++) {
		snprintf(name, sizeof(name), "%s-%u", p->name, round);
		party_join(p, name, 0);
		party_alloc(p, &layout, sets);
		for (i = 0; i < p->n; i++)
			set_fill(&sets[i], round, count_random);
		dawdle(&random, 20);
		CHECK_OK(party_call(p, sets, NPUWIN_NO_DEADLINE, NULL, &err), &err);
		for (i = 0; i < p->n; i++)
			set_verify(&sets[i], round, count_random);
		party_leave(p);
	}
}

static void leave_run(const struct config *cfg)
{
	const struct run run = { .nranks = 4, .bare = true, .fn = leave_party };

	run_ranks(cfg, &run);
}

/* A rank that has left is missed by the next call, at once and by name. */
static void early_party(struct party *p)
{
	struct npuwin_error err = fresh_error();
	struct set set;

	party_alloc(p, &layout, &set);
	set_fill(&set, 1, count_random);
	CHECK_OK(party_call(p, &set, NPUWIN_NO_DEADLINE, NULL, &err), &err);
	if (p->ranks[0].rank == 2) {
		party_leave(p);
		party_sync(p);
		party_sync(p);
		return;
	}
	set_verify(&set, 1, count_random);
	party_sync(p);
	set_fill(&set, 2, count_random);
	CHECK_ERR(party_call(p, &set, NPUWIN_NO_DEADLINE, NULL, &err), -EPIPE, &err, "rank 2");
	CHECK_EQ(err.peer, 2);
	set_unmoved(&set, 2, count_random);
	err = fresh_error();
	CHECK_ERR(npuwin_barrier(p->ranks[0].domain, NPUWIN_NO_DEADLINE, &err), -EPIPE, &err,
		  "rank 2");
	party_sync(p);
}

static void early_run(const struct config *cfg)
{
	const struct run run = { .nranks = 4, .fn = early_party };

	run_ranks(cfg, &run);
}

/* The same, with the others asleep in the call when it leaves. */
static void asleep_party(struct party *p)
{
	struct npuwin_error err = fresh_error();
	struct set set;
	uint32_t i;

	party_alloc(p, &layout, &set);
	set_fill(&set, 2, count_random);
	party_sync(p);
	if (p->ranks[0].rank == 2) {
		for (i = 0; i < p->nparties; i++) {
			if (i == 2)
				continue;
			flag_wait(p->shared, FLAG_USER + i, 1);
			wait_asleep(flag_get(p->shared, FLAG_USER + i));
		}
		party_leave(p);
		party_sync(p);
		return;
	}
	flag_add(p->shared, FLAG_USER + p->index, gettid());
	CHECK_ERR(party_call(p, &set, NPUWIN_NO_DEADLINE, NULL, &err), -EPIPE, &err, "rank 2");
	CHECK_EQ(err.peer, 2);
	set_unmoved(&set, 2, count_random);
	party_sync(p);
}

static void asleep_run(const struct config *cfg)
{
	const struct run run = { .nranks = 4, .fn = asleep_party };

	run_ranks(cfg, &run);
}

/*
 * Sanitizers map memory of their own: the thread sanitizer all the time, the other one because
 * it does not use again what was freed. Then only windows count.
 */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define COUNTED_MAPS	"memfd:npuwin"
#else
#define COUNTED_MAPS	""
#endif

static unsigned int count_maps(void)
{
	FILE *f = fopen("/proc/self/maps", "r");
	unsigned int n = 0;
	char line[512];

	CHECK(f);
	while (fgets(line, sizeof(line), f))
		n += strchr(line, '\n') && strstr(line, COUNTED_MAPS);
	fclose(f);
	return n;
}

static uint64_t memory_used(struct npuwin *ctx)
{
	struct npuwin_device_info info;
	uint64_t used = 0;
	int i;

	for (i = 0; i < npuwin_device_count(ctx); i++) {
		CHECK_EQ(npuwin_device_info(ctx, i, &info, NULL), 0);
		used += info.memory_used;
	}
	return used;
}

/* Under the same name each time: it is free once the last has left. */
static void cycles_party(struct party *p)
{
	uint32_t cycles = times(p->cfg, 1000, 60), warm = 5, k;
	/* Of a process one counts, alone. */
	bool counts = p->cfg->form != FORM_THREADS || p->index == 0;
	uint64_t used = memory_used(p->ranks[0].ctx);
	unsigned int fds = 0, maps = 0;
	struct set sets[2];

	party_sync(p);
	for (k = 0; k < cycles + warm; k++) {
		party_join(p, p->name, 0);
		party_alloc(p, &layout, sets);
		if (k % 50 == 0)
			party_exchange(p, sets, k, count_random);
		party_leave(p);
		party_sync(p);
		CHECK_EQ(memory_used(p->ranks[0].ctx), used);
		party_sync(p);
		if (k == warm && counts) {
			fds = count_fds();
			maps = count_maps();
		}
		party_sync(p);
	}
	if (counts) {
		CHECK_EQ(count_fds(), fds);
		if (count_maps() > maps + 2)
			FAIL("%u maps after %u cycles, %u before", count_maps(), cycles, maps);
	}
	party_sync(p);
}

static void cycles_run(const struct config *cfg)
{
	const struct run run = {
		.nranks = 2, .window = 64 * KIB, .bare = true, .fn = cycles_party,
	};

	run_ranks(cfg, &run);
}

/* Contexts too. */
static void contexts_run(const struct config *cfg)
{
	uint32_t k, n = times(cfg, 200, 30);
	struct npuwin_error err = fresh_error();
	struct npuwin_domain_attr attr = {
		.nranks = 2, .window_size = 64 * KIB, .device = -1, .deadline_ns = far(),
	};
	struct npuwin_domain *domains[2];
	unsigned int fds = 0, maps = 0;
	struct npuwin *ctx;

	for (k = 0; k < n + 5; k++) {
		CHECK_OK(npuwin_open(cfg->provider, &ctx, &err), &err);
		CHECK_OK(npuwin_domain_create_local(ctx, &attr, domains, &err), &err);
		CHECK_OK(npuwin_barrier_group(domains, 2, far(), &err), &err);
		npuwin_domain_leave(domains[1]);
		npuwin_domain_leave(domains[0]);
		npuwin_close(ctx);
		if (k == 5) {
			fds = count_fds();
			maps = count_maps();
		}
	}
	CHECK_EQ(count_fds(), fds);
	if (count_maps() > maps + 2)
		FAIL("%u maps after %u contexts, %u before", count_maps(), n, maps);
}

#define ONE_RANK_EACH	(A_RAILS | A_THREADS | A_PROCESS_EACH | A_MODES)

static const struct test_case cases[] = {
	{ "leave right after the call", leave_run, A_ALL | A_PAIRS, 0, NULL },
	{ "left before the next call", early_run, ONE_RANK_EACH, 0, NULL },
	{ "left while others sleep in the call", asleep_run, ONE_RANK_EACH, 0, NULL },
	{ "1000 domains made and ended", cycles_run, A_FORMS, 0, NULL },
	{ "200 contexts opened and closed", contexts_run, 0, 0, NULL },
};

const struct suite suite_lifecycle = { cases, ARRAY_SIZE(cases) };
