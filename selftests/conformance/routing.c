// SPDX-License-Identifier: MIT
/*
 * A real routing: the experts that layer 0 of Qwen1.5-MoE-A2.7B chose for the tokens of
 * GSM8K prompts, 60 experts, top-4. Tokens and experts are block-partitioned over the
 * ranks; every chosen expert is one row to the rank that has it.
 */
#include "conformance.h"

#define FILE_NAME	"qwen15-moe-a2.7b-gsm8k-layer0.routes.npy"
#define EXPERTS		60
#define TOP_K		4
#define HIDDEN		64
#define MAX_RANKS	12

struct routing {
	uint32_t nranks;
	uint32_t max_recv;
	uint32_t ntokens;
	int32_t *experts;
	int32_t counts[MAX_RANKS][MAX_RANKS];
};

/* What cannot be handed to a count_fn. */
static struct routing routing;

/* An int32 array [n, TOP_K] in C order; anything else is refused. */
static void npy_read(const char *path)
{
	unsigned int header, n, k;
	char *end;
	uint8_t start[10];
	char text[1024];
	const char *at;
	FILE *f = fopen(path, "rb");

	if (!f)
		FAIL("%s: %s", path, strerror(errno));
	CHECK_EQ(fread(start, 1, 10, f), 10);
	CHECK(!memcmp(start, "\x93NUMPY\x01", 7));
	header = start[8] | start[9] << 8;
	CHECK(header < sizeof(text));
	CHECK_EQ(fread(text, 1, header, f), header);
	text[header] = 0;
	CHECK(strstr(text, "'<i4'") && strstr(text, "'fortran_order': False"));
	at = strstr(text, "'shape': (");
	CHECK(at);
	n = strtoul(at + strlen("'shape': ("), &end, 10);
	CHECK(*end == ',');
	k = strtoul(end + 1, &end, 10);
	CHECK(*end == ')' && n && n < 1000000 && k == TOP_K);
	routing.ntokens = n;
	routing.experts = malloc((size_t)n * k * 4);
	CHECK(routing.experts);
	CHECK_EQ(fread(routing.experts, 4, (size_t)n * k, f), (size_t)n * k);
	fclose(f);
}

static uint32_t first_token(uint32_t rank)
{
	uint32_t each = routing.ntokens / routing.nranks, more = routing.ntokens % routing.nranks;

	return rank * each + (rank < more ? rank : more);
}

static uint32_t rank_of_expert(int32_t expert)
{
	CHECK(expert >= 0 && expert < EXPERTS);
	return expert / (EXPERTS / routing.nranks);
}

static void count_rows(void)
{
	uint32_t src, d, k;

	for (src = 0; src < routing.nranks; src++)
		for (k = TOP_K * first_token(src); k < TOP_K * first_token(src + 1); k++)
			routing.counts[src][rank_of_expert(routing.experts[k])]++;
	for (src = 0; src < routing.nranks; src++)
		for (d = 0; d < routing.nranks; d++)
			if (routing.counts[src][d] > (int32_t)routing.max_recv)
				routing.max_recv = routing.counts[src][d];
}

static int32_t count_routed(uint64_t seed, uint32_t src, uint32_t dst, uint32_t nranks,
			    uint32_t max_recv)
{
	return seed % 2 ? routing.counts[dst][src] : routing.counts[src][dst];
}

/* Out to the experts and back to the tokens. */
static void routing_party(struct party *p)
{
	struct layout layout = {
		.dtype = NPUWIN_BF16, .max_recv = routing.max_recv, .ndim_size = 1,
		.size = { HIDDEN },
	};
	struct set sets[MAX_RANKS];

	party_alloc(p, &layout, sets);
	party_exchange(p, sets, 0, count_routed);
	party_exchange(p, sets, 1, count_routed);
	party_free(p, sets);
}

static void routing_run(const struct config *cfg)
{
	const char *dir = getenv("NPUWIN_TEST_DATA");
	struct run run = { .nranks = cfg->arg, .fn = routing_party };
	uint64_t total = 0;
	char path[1024];
	uint32_t i, k;

	if (!dir || !dir[0])
		skip_case("NPUWIN_TEST_DATA is not set");
	routing.nranks = cfg->arg;
	snprintf(path, sizeof(path), "%s/" FILE_NAME, dir);
	npy_read(path);
	count_rows();
	for (i = 0; i < routing.nranks; i++)
		for (k = 0; k < routing.nranks; k++)
			total += routing.counts[i][k];
	CHECK_EQ(total, (uint64_t)routing.ntokens * TOP_K);
	run.window = MIB + 2ULL * routing.nranks * routing.max_recv * HIDDEN * 2;
	run_ranks(cfg, &run);
	free(routing.experts);
}

static const struct test_case cases[] = {
	{ "real routing over 4 ranks", routing_run, A_ALL | A_PAIRS, 4, NULL },
	{ "real routing over 6 ranks", routing_run, A_ALL | A_PAIRS, 6, NULL },
	{ "real routing over 12 ranks", routing_run, A_ALL | A_PAIRS, 12, NULL },
};

const struct suite suite_routing = { cases, ARRAY_SIZE(cases) };
