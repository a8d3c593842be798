// SPDX-License-Identifier: MIT
/*
 * npuwin a2av: all_to_all_v of what is in files.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "counts.h"
#include "json.h"
#include "layout.h"
#include "npy.h"
#include "outfile.h"
#include "ranks.h"

static const char *input_path, *counts_path, *output_path, *recv_counts_path;

static const struct opt opts[] = {
	{ "ranks", "N", "number of ranks", OPT_UINT, &run_args.ranks, 1, NPUWIN_MAX_RANKS },
	{ "input", "IN.npy", "[N, N*MAX_RECV, SIZE...]: what each rank sends; block d of\n"
	  "MAX_RECV rows is for rank d", OPT_STRING, &input_path },
	{ "counts", "C.npy", "[N, N] or [N, N, 1], int32 or int64: C[s, d] rows of block d\n"
	  "of rank s are for rank d", OPT_STRING, &counts_path },
	{ "output", "OUT.npy", "written: what each rank here received, as IN; zero past the\n"
	  "counted rows", OPT_STRING, &output_path },
	{ "recv-counts", "R.npy", "written: [N, N] int32: rank r got R[r, s] rows from rank s;\n"
	  "of the ranks here", OPT_STRING, &recv_counts_path },
	{ NULL }
};

enum { OUT, RECV, NFILES };

/**
 * struct a2av_job - What is exchanged.
 * @in: IN
 * @counts: C, and what becomes of it
 * @layout: sizes
 * @files: OUT and R
 */
struct a2av_job {
	struct npy in;
	struct counts counts;
	struct layout layout;
	struct outfile files[NFILES];
};

/* Block @dst of part @src of IN; the same of OUT is what that rank received from @dst. */
static uint64_t block_offset(const struct layout *l, uint32_t src, uint32_t dst)
{
	return src * l->rank_bytes + dst * l->block_bytes;
}

static int setup(struct rank *rk)
{
	const struct a2av_job *job = rk->prog->job;
	const struct layout *l = &job->layout;
	struct npuwin_a2av *op = &rk->op[0];
	const uint8_t *from = job->in.data + block_offset(l, rk->id, 0);
	int32_t *counts;
	uint8_t *to;
	int rc;

	op->mode = (uint32_t)rk->prog->args->mode;
	op->rail = (uint32_t)rk->prog->args->rail;
	rc = layout_rows(l, rk, &op->input);
	if (!rc)
		rc = layout_rows(l, rk, &op->target);
	if (!rc)
		rc = layout_cells(l, rk, &op->signal);
	if (!rc)
		rc = layout_cells(l, rk, &op->send_counts);
	if (!rc)
		rc = layout_cells(l, rk, &op->recv_counts);
	if (rc)
		return rc;

	to = tensor_ptr(&op->input);
	counts = tensor_ptr(&op->send_counts);
	for (uint32_t d = 0; d < l->nranks; d++) {
		counts[d] = count_int32(&job->counts, rk->id, d);
		if (op->mode == NPUWIN_MODE_ROWS)
			memcpy(to + d * l->block_bytes, from + d * l->block_bytes,
			       count_sent(&job->counts, rk->id, d) * l->row_bytes);
	}
	if (op->mode == NPUWIN_MODE_BLOCK)
		memcpy(to, from, l->rank_bytes);
	return 0;
}

/* What is there before must not pass for what arrives. */
static void fill(struct rank *rk, uint64_t iteration)
{
	const struct a2av_job *job = rk->prog->job;
	const struct layout *l = &job->layout;
	const struct npuwin_a2av *op = &rk->op[0];
	uint8_t *to = tensor_ptr(&op->target);

	for (uint32_t s = 0; s < l->nranks; s++)
		memset(to + s * l->block_bytes, (int)(0xa5 ^ (iteration & 0xff)),
		       count_sent(&job->counts, s, rk->id) * l->row_bytes);
	memset(tensor_ptr(&op->recv_counts), 0xff, l->nranks * sizeof(int32_t));
}

static void check_block(struct rank *rk, uint32_t src, const uint8_t *got, uint32_t rows)
{
	const struct a2av_job *job = rk->prog->job;
	const struct layout *l = &job->layout;
	const uint8_t *sent = job->in.data + block_offset(l, src, rk->id);
	uint64_t at = 0;

	if (!memcmp(got, sent, rows * l->row_bytes))
		return;
	while (got[at] == sent[at])
		at++;
	rank_mismatch(rk, "row %llu from rank %u arrived with other bytes than were sent, from byte %llu on",
		      (unsigned long long)(at / l->row_bytes), src,
		      (unsigned long long)(at % l->row_bytes));
}

static void check(struct rank *rk, uint64_t iteration)
{
	const struct a2av_job *job = rk->prog->job;
	const struct layout *l = &job->layout;
	const struct npuwin_a2av *op = &rk->op[0];
	const uint8_t *target = tensor_ptr(&op->target);
	const int32_t *recv = tensor_ptr(&op->recv_counts);
	uint32_t part = rk->id - rk->prog->args->first;
	bool last = iteration + 1 == rk->prog->args->iterations;

	counts_check_result(rk, &job->counts);
	for (uint32_t s = 0; s < l->nranks; s++) {
		uint32_t rows = count_sent(&job->counts, s, rk->id);
		const uint8_t *got = target + s * l->block_bytes;

		if (recv[s] != (int32_t)rows)
			rank_mismatch(rk, "was told %d rows from rank %u, which sent %u", recv[s],
				      s, rows);
		check_block(rk, s, got, rows);
		if (last)
			memcpy(job->files[OUT].data + block_offset(l, part, s), got,
			       rows * l->row_bytes);
	}
	if (last)
		memcpy(job->files[RECV].data + part * l->nranks * sizeof(int32_t), recv,
		       l->nranks * sizeof(int32_t));
}

static void interrupted(void *arg)
{
	struct a2av_job *job = arg;

	outfile_discard(job->files, NFILES);
}

static int check_arguments(int argc, char **argv)
{
	const struct {
		const char *name;
		bool given;
	} needed[] = {
		{ "ranks", run_args.ranks },
		{ "input", input_path },
		{ "counts", counts_path },
		{ "output", output_path },
		{ "recv-counts", recv_counts_path },
	};

	if (opt_no_arguments(argc, argv))
		return CLI_USAGE;
	for (size_t i = 0; i < ARRAY_SIZE(needed); i++)
		if (!needed[i].given)
			return complain(CLI_USAGE, "--%s is missing; see npuwin a2av --help",
					needed[i].name);
	if (outfile_same(output_path, recv_counts_path))
		return complain(CLI_USAGE, "--output and --recv-counts are the same file, %s",
				output_path);
	if (run_args.form < 0)
		run_args.form = FORM_THREADS;
	return run_args_place(&run_args);
}

static int open_input(struct a2av_job *job)
{
	struct npy *in = &job->in;
	uint64_t n = run_args.ranks, max_recv;
	char shape[160];
	int rc = npy_open(in, input_path);

	if (rc)
		return rc;
	npy_shape_text(shape, sizeof(shape), in->ndim, in->shape);
	if (in->ndim < 2)
		return complain(CLI_FILE, "cannot use %s: its shape is %s, not [N, N*MAX_RECV, SIZE...]",
				in->path, shape);
	if (in->shape[0] != n)
		return complain(CLI_FILE, "cannot use %s: its shape is %s, and --ranks is %llu",
				in->path, shape, (unsigned long long)n);
	if (in->shape[1] % n)
		return complain(CLI_FILE, "cannot use %s: its shape is %s, and %llu rows are no multiple of %llu ranks",
				in->path, shape,
				(unsigned long long)in->shape[1], (unsigned long long)n);
	max_recv = in->shape[1] / n;
	if (max_recv > INT32_MAX)
		return complain(CLI_FILE, "cannot use %s: its shape is %s, so that MAX_RECV would be %llu, over %d",
				in->path, shape,
				(unsigned long long)max_recv, INT32_MAX);
	job->counts.max_recv = (uint32_t)max_recv;
	return layout_init(&job->layout, n, max_recv, array_dtype(in), in->ndim - 2,
			   in->shape + 2);
}

static int open_counts(struct a2av_job *job)
{
	struct npy a;
	int rc = npy_open(&a, counts_path);

	if (rc)
		return rc;
	rc = counts_load(&job->counts, &a);
	npy_close(&a);
	if (!rc && job->counts.nranks != run_args.ranks)
		rc = complain(CLI_FILE, "cannot use %s: it has counts of %u ranks, and --ranks is %llu",
			      counts_path, job->counts.nranks,
			      (unsigned long long)run_args.ranks);
	return rc;
}

static void print_json(const struct a2av_job *job, const struct run_report *report)
{
	struct json_object *o = json_object_new_object();

	json_add_string(o, "command", "a2av");
	json_add_run(o, &run_args, &job->layout, report);
	json_add_string(o, "dtype", job->in.descr);
	json_add_shape(o, "shape", job->in.ndim, job->in.shape);
	json_add_uint(o, "rows", rows_here(&run_args, &job->counts));
	json_add_uint(o, "bytes", report->bytes[0]);
	json_object_object_add(o, "clamped", counts_json(&job->counts));
	json_print(o);
}

static void print_summary(const struct a2av_job *job, const struct run_report *report)
{
	const struct layout *l = &job->layout;
	uint64_t rows = rows_here(&run_args, &job->counts);
	double row_bytes = (double)rows * (double)l->row_bytes;
	char shape[160], provider[320], a[32], b[32], c[32];

	printf("all_to_all_v of %u ranks (%s), rail %s, mode %s\n", l->nranks,
	       run_forms[run_args.form], run_rails[run_args.rail], run_modes[run_args.mode]);
	printf("  provider  %s\n", provider_text(provider, sizeof(provider), report->provider,
						 report->reason));
	printf("  input     %s of dtype %s: MAX_RECV %u, rows of %llu bytes\n",
	       npy_shape_text(shape, sizeof(shape), job->in.ndim, job->in.shape), job->in.descr,
	       l->max_recv, (unsigned long long)l->row_bytes);
	counts_print(&job->counts);
	place_print(&run_args, &job->counts);
	printf("  moved     %llu counted row%s%s: %s", (unsigned long long)rows,
	       rows == 1 ? "" : "s", run_args.bootstrap ? " of the ranks here" : "",
	       human_bytes(a, sizeof(a), row_bytes));
	if (run_args.mode == NPUWIN_MODE_BLOCK)
		printf(", in blocks of %s in all",
		       human_bytes(b, sizeof(b), (double)report->bytes[0]));
	printf("\n");
	printf("  time      %s", human_seconds(a, sizeof(a), report->seconds));
	if (run_args.iterations > 1)
		printf(" (mean of %llu, best %s)", (unsigned long long)run_args.iterations,
		       human_seconds(b, sizeof(b), report->best));
	printf(", %s/s of counted rows\n",
	       human_bytes(c, sizeof(c), row_bytes / report->seconds));
	if (report->mismatch[0])
		printf("  verified  NO: %s\n", report->mismatch);
	else
		printf("  verified  every row and count arrived as it was sent\n"
		       "  written   %s, %s\n", output_path, recv_counts_path);
}

static int exchange(struct a2av_job *job)
{
	const struct layout *l = &job->layout;
	const uint64_t matrix[2] = { run_args.count, run_args.ranks };
	uint64_t shape[NPY_MAX_DIMS];
	const struct program prog = {
		.args = &run_args,
		.ncalls = 1,
		.window_size = layout_window(l, 2, 3),
		.setup = setup,
		.fill = fill,
		.check = check,
		.interrupted = interrupted,
		.job = job,
	};
	struct run_report report;
	int rc;

	ranks_block_signals();
	memcpy(shape, job->in.shape, sizeof(shape));
	shape[0] = run_args.count;
	rc = outfile_create(&job->files[OUT], output_path, job->in.descr, job->in.ndim, shape);
	if (!rc)
		rc = outfile_create(&job->files[RECV], recv_counts_path, "<i4", 2, matrix);
	if (!rc)
		rc = ranks_run(&prog, &report);
	if (rc)
		return rc;
	if (report.mismatch[0]) {
		rc = complain(CLI_FAILED, "not verified: %s", report.mismatch);
	} else {
		ranks_interrupted(&prog);
		rc = outfile_commit(job->files, NFILES);
		if (rc)
			return rc;
	}
	if (run_args.json)
		print_json(job, &report);
	else if (!run_args.quiet)
		print_summary(job, &report);
	counts_warn(&job->counts);
	return rc;
}

static int run(int argc, char **argv)
{
	struct a2av_job job = { 0 };
	int rc = check_arguments(argc, argv);

	if (!rc)
		rc = open_input(&job);
	if (!rc)
		rc = open_counts(&job);
	if (!rc)
		rc = exchange(&job);
	outfile_discard(job.files, NFILES);
	counts_free(&job.counts);
	npy_close(&job.in);
	return rc;
}

const struct command cmd_a2av = {
	.name = "a2av",
	.summary = "exchange what is in .npy files by all_to_all_v",
	.usage = "--ranks N --input IN.npy --counts C.npy --output OUT.npy\n"
		 "                   --recv-counts R.npy [OPTIONS]",
	.text = "Each of N ranks brings its part of IN and sends C[s, d] rows of its block d to\n"
		"rank d. Counts out of 0..MAX_RECV are clamped, and told. Elements may be of any\n"
		"NumPy dtype of 1, 2, 4 or 8 bytes but objects and structures, in either byte\n"
		"order; the array is in C order. OUT has the dtype of IN. What arrives is\n"
		"compared with IN, byte by byte. Both output files appear whole, or neither does.\n"
		"With --bootstrap the ranks of --local run here, and the others in commands\n"
		"elsewhere that are given the same IN and C. Devices of all are on one fabric.\n"
		"Times and bytes are those of one iteration.\n",
	.example = "  npuwin a2av --ranks 4 --input in.npy --counts counts.npy \\\n"
		   "    --output out.npy --recv-counts recv.npy --mode rows --processes\n",
	.opts = { opts, run_opts },
	.run = run,
};
