// SPDX-License-Identifier: MIT
/*
 * npuwin moe: tokens go to the ranks of their experts and come back. The experts leave rows
 * as they are, so that all that went through two all_to_all_v can be compared.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "moe.h"

#define DEFAULT_HIDDEN	2048
#define MAX_EXPERTS	(1ULL << 31)

static const char *routes_path, *counts_path, *tokens_path, *dtype_name;
static uint64_t experts, hidden, max_recv;

static const struct opt opts[] = {
	{ "ranks", "N", "number of ranks", OPT_UINT, &run_args.ranks, 1, NPUWIN_MAX_RANKS },
	{ "routes", "R.npy", "[T, K], int32 or int64: the K experts of each of T tokens;\n"
	  "negative: none", OPT_STRING, &routes_path },
	{ "experts", "E", "number of experts", OPT_UINT, &experts, 1, MAX_EXPERTS },
	{ "counts-from", "FILE", "in place of routes: a count matrix, .npy or JSON", OPT_STRING,
	  &counts_path },
	{ "tokens", "T.npy", "[T, SIZE...]: what the tokens hold; by default bytes made from\n"
	  "their number", OPT_STRING, &tokens_path },
	{ "hidden", "H", "elements of a token (default 2048)", OPT_UINT, &hidden, 1,
	  1ULL << 40 },
	{ "dtype", "D", "their type: bf16 (default), fp64, fp32, fp16, fp8-e4m3, fp8-e5m2,\n"
	  "int64, int32, int16, int8 or uint8", OPT_STRING, &dtype_name },
	{ "max-recv", "M", "rows that a rank may send to another (default: what is needed)",
	  OPT_UINT, &max_recv, 1, INT32_MAX },
	{ NULL }
};

static void pack(struct rank *rk, uint8_t *to)
{
	const struct moe_job *job = rk->prog->job;
	const struct layout *l = &job->layout;

	for (uint32_t d = 0; d < l->nranks; d++) {
		uint32_t rows = count_sent(&job->plan.counts, rk->id, d);

		for (uint32_t i = 0; i < rows; i++)
			memcpy(to + d * l->block_bytes + i * l->row_bytes,
			       moe_row(job, rk->id, d, i, rk->scratch), l->row_bytes);
	}
}

static int setup(struct rank *rk)
{
	const struct moe_job *job = rk->prog->job;
	const struct layout *l = &job->layout;
	struct npuwin_a2av *dispatch = &rk->op[0], *combine = &rk->op[1];
	int32_t *counts;
	int rc;

	rk->scratch = malloc(l->row_bytes);
	if (!rk->scratch) {
		rk->err.code = -ENOMEM;
		strcpy(rk->err.text, "out of memory");
		return -ENOMEM;
	}
	rc = layout_rows(l, rk, &dispatch->input);
	if (!rc)
		rc = layout_rows(l, rk, &dispatch->target);
	if (!rc)
		rc = layout_rows(l, rk, &combine->target);
	if (!rc)
		rc = layout_cells(l, rk, &dispatch->signal);
	if (!rc)
		rc = layout_cells(l, rk, &dispatch->send_counts);
	if (!rc)
		rc = layout_cells(l, rk, &dispatch->recv_counts);
	if (!rc)
		rc = layout_cells(l, rk, &combine->recv_counts);
	if (rc)
		return rc;

	/* Experts work in place: what was received goes back, as many rows as came. */
	combine->input = dispatch->target;
	combine->send_counts = dispatch->recv_counts;
	combine->signal = dispatch->signal;
	dispatch->mode = (uint32_t)rk->prog->args->mode;
	dispatch->rail = (uint32_t)rk->prog->args->rail;
	combine->mode = dispatch->mode;
	combine->rail = dispatch->rail;

	counts = tensor_ptr(&dispatch->send_counts);
	for (uint32_t d = 0; d < l->nranks; d++)
		counts[d] = count_int32(&job->plan.counts, rk->id, d);
	pack(rk, tensor_ptr(&dispatch->input));
	return 0;
}

/* What is there before must not pass for what arrives. */
static void fill(struct rank *rk, uint64_t iteration)
{
	const struct moe_job *job = rk->prog->job;
	const struct layout *l = &job->layout;
	uint8_t *there = tensor_ptr(&rk->op[0].target), *back = tensor_ptr(&rk->op[1].target);
	int poison = (int)(0xa5 ^ (iteration & 0xff));

	for (uint32_t p = 0; p < l->nranks; p++) {
		memset(there + p * l->block_bytes, poison,
		       count_sent(&job->plan.counts, p, rk->id) * l->row_bytes);
		memset(back + p * l->block_bytes, poison,
		       count_sent(&job->plan.counts, rk->id, p) * l->row_bytes);
	}
	memset(tensor_ptr(&rk->op[0].recv_counts), 0xff, l->nranks * sizeof(int32_t));
	memset(tensor_ptr(&rk->op[1].recv_counts), 0xff, l->nranks * sizeof(int32_t));
}

/* Block from rank @peer in the target of @call, against rows of @src for @dst. */
static void check_block(struct rank *rk, unsigned int call, uint32_t peer, uint32_t src,
			uint32_t dst)
{
	const struct moe_job *job = rk->prog->job;
	const struct layout *l = &job->layout;
	const uint8_t *got = tensor_ptr(&rk->op[call].target);
	const int32_t *counts = tensor_ptr(&rk->op[call].recv_counts);
	uint32_t rows = count_sent(&job->plan.counts, src, dst);
	const char *what = call ? "combine" : "dispatch";

	if (counts[peer] != (int32_t)rows)
		rank_mismatch(rk, "in the %s it was told %d rows from rank %u, which sent %u",
			      what, counts[peer], peer, rows);
	got += peer * l->block_bytes;
	for (uint32_t i = 0; i < rows; i++, got += l->row_bytes) {
		if (memcmp(got, moe_row(job, src, dst, i, rk->scratch), l->row_bytes)) {
			rank_mismatch(rk, "in the %s row %u from rank %u arrived with other bytes than were sent",
				      what, i, peer);
			return;
		}
	}
}

static void check(struct rank *rk, uint64_t iteration)
{
	const struct moe_job *job = rk->prog->job;
	uint32_t n = job->layout.nranks;

	(void)iteration;
	counts_check_result(rk, &job->plan.counts);
	if (rk->result[1].nclamped)
		rank_mismatch(rk, "the combine clamped %u counts that were within bounds",
			      rk->result[1].nclamped);
	for (uint32_t p = 0; p < n; p++) {
		check_block(rk, 0, p, p, rk->id);
		check_block(rk, 1, p, rk->id, p);
	}
	memcpy(job->recv_matrix + (uint64_t)rk->id * n, tensor_ptr(&rk->op[0].recv_counts),
	       n * sizeof(int32_t));
}

static void interrupted(void *job)
{
	(void)job;
}

static int lacks(const char *name)
{
	return complain(CLI_USAGE, "--%s is missing; see npuwin moe --help", name);
}

static int not_both(const char *a, const char *b)
{
	return complain(CLI_USAGE, "--%s and --%s exclude each other", a, b);
}

static int check_arguments(int argc, char **argv, uint32_t *dtype)
{
	if (opt_no_arguments(argc, argv))
		return CLI_USAGE;
	if (counts_path && routes_path)
		return not_both("counts-from", "routes");
	if (counts_path && experts)
		return not_both("counts-from", "experts");
	if (counts_path && tokens_path)
		return not_both("counts-from", "tokens");
	if (tokens_path && hidden)
		return not_both("tokens", "hidden");
	if (tokens_path && dtype_name)
		return not_both("tokens", "dtype");
	if (!counts_path && !routes_path)
		return complain(CLI_USAGE, "--routes or --counts-from is missing; see npuwin moe --help");
	if (!counts_path && !run_args.ranks)
		return lacks("ranks");
	if (!counts_path && !experts)
		return lacks("experts");
	if (dtype_name) {
		*dtype = moe_dtype(dtype_name);
		if (!*dtype)
			return complain(CLI_USAGE, "--dtype '%s' is not known; see npuwin moe --help",
					dtype_name);
	}
	if (run_args.form < 0)
		run_args.form = FORM_THREADS;
	return 0;
}

static int make_plan(struct moe_job *job, uint32_t *dtype)
{
	struct npy routes;
	int rc;

	if (routes_path) {
		rc = npy_open(&routes, routes_path);
		if (rc)
			return rc;
		rc = moe_plan_routes(&job->plan, &routes, (uint32_t)run_args.ranks, experts);
		npy_close(&routes);
		return rc;
	}
	rc = moe_plan_load(&job->plan, counts_path, &hidden, dtype);
	if (rc)
		return rc;
	if (run_args.ranks && run_args.ranks != job->plan.counts.nranks)
		return complain(CLI_FILE, "cannot use %s: it has counts of %u ranks, and --ranks is %llu",
				counts_path, job->plan.counts.nranks,
				(unsigned long long)run_args.ranks);
	run_args.ranks = job->plan.counts.nranks;
	return 0;
}

static int open_tokens(struct moe_job *job)
{
	char shape[160];
	int rc = npy_open(&job->values, tokens_path);

	if (rc)
		return rc;
	if (!job->values.ndim)
		return complain(CLI_FILE, "cannot use %s: it has no dimensions", tokens_path);
	if (job->values.shape[0] != job->plan.tokens)
		return complain(CLI_FILE, "cannot use %s: its shape is %s, and %s has %llu tokens",
				tokens_path, npy_shape_text(shape, sizeof(shape),
							    job->values.ndim, job->values.shape),
				routes_path, (unsigned long long)job->plan.tokens);
	return 0;
}

static int make_layout(struct moe_job *job, uint32_t dtype)
{
	struct counts *c = &job->plan.counts;
	uint64_t needed = 1;
	int rc;

	for (uint32_t s = 0; s < c->nranks; s++)
		for (uint32_t d = 0; d < c->nranks; d++)
			if ((uint64_t)count_asked(c, s, d) > needed)
				needed = (uint64_t)count_asked(c, s, d);
	if (needed > INT32_MAX && !max_recv)
		return complain(CLI_FILE, "a rank has %llu rows for another; %d are possible",
				(unsigned long long)needed, INT32_MAX);
	c->max_recv = (uint32_t)(max_recv ? max_recv : needed);

	if (tokens_path) {
		rc = open_tokens(job);
		if (rc)
			return rc;
		job->dtype = job->values.descr;
		return layout_init(&job->layout, run_args.ranks, c->max_recv,
				   array_dtype(&job->values), job->values.ndim - 1,
				   job->values.shape + 1);
	}
	if (!dtype)
		dtype = NPUWIN_BF16;
	if (!hidden)
		hidden = DEFAULT_HIDDEN;
	job->dtype = npuwin_dtype_name(dtype);
	return layout_init(&job->layout, run_args.ranks, c->max_recv, dtype, 1, &hidden);
}

static int dispatch_and_combine(struct moe_job *job)
{
	const struct program prog = {
		.args = &run_args,
		.ncalls = 2,
		.window_size = layout_window(&job->layout, 3, 4),
		.setup = setup,
		.fill = fill,
		.check = check,
		.interrupted = interrupted,
		.job = job,
	};
	size_t matrix_len = run_args.ranks * run_args.ranks * sizeof(int32_t);
	struct run_report report;
	int rc;

	job->recv_matrix = mmap(NULL, matrix_len, PROT_READ | PROT_WRITE,
				MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (job->recv_matrix == MAP_FAILED)
		return complain(CLI_FAILED, "out of memory");
	ranks_block_signals();
	rc = ranks_run(&prog, &report);
	if (!rc) {
		if (run_args.json)
			moe_print_json(job, &run_args, &report);
		else if (!run_args.quiet)
			moe_print_summary(job, &run_args, &report);
		counts_warn(&job->plan.counts);
		if (report.mismatch[0])
			rc = complain(CLI_FAILED, "not verified: %s", report.mismatch);
	}
	munmap(job->recv_matrix, matrix_len);
	return rc;
}

static int run(int argc, char **argv)
{
	struct moe_job job = { 0 };
	uint32_t dtype = 0;
	int rc = check_arguments(argc, argv, &dtype);

	if (!rc)
		rc = make_plan(&job, &dtype);
	if (!rc)
		rc = run_args_place(&run_args);
	if (!rc)
		rc = make_layout(&job, dtype);
	if (!rc)
		rc = dispatch_and_combine(&job);
	npy_close(&job.values);
	moe_plan_free(&job.plan);
	return rc;
}

const struct command cmd_moe = {
	.name = "moe",
	.summary = "send tokens to their experts and back, and compare every byte",
	.usage = "--ranks N --routes R.npy --experts E [OPTIONS]\n"
		 "       npuwin moe --counts-from FILE [OPTIONS]",
	.text = "Tokens and experts are cut into as many parts as there are ranks, in order, as\n"
		"numpy.array_split does. Each expert of a token gets a copy of it: a row, sent to\n"
		"the expert's rank by all_to_all_v (dispatch) and sent back by another (combine).\n"
		"Rows over --max-recv are not sent; that is told by rank, and is no failure.\n"
		"Times and bytes are those of one iteration. With --bootstrap the ranks of\n"
		"--local run here, and the others in commands elsewhere that are given the same.\n\n"
		"A JSON FILE of --counts-from is an object with count_matrix: N lists of N, list\n"
		"s holding what rank s has for each rank; it may say tokens, topk, experts,\n"
		"hidden, dtype, model and source.\n",
	.example = "  npuwin moe --ranks 6 --routes routes.npy --experts 60 --hidden 2048\n"
		   "  npuwin moe --counts-from counts.json --json\n",
	.opts = { opts, run_opts },
	.run = run,
};
