// SPDX-License-Identifier: MIT
#include <inttypes.h>
#include <stdio.h>

#include "json.h"
#include "moe.h"

#define MAX_PRINTED_RANKS	16
/* Of the ranks whose matrix is left out, on a line. */
#define LOADS_ON_A_LINE		8

/* Rows that rank @d has received from all; of one elsewhere, those that are sent to it. */
static uint64_t load(const struct moe_job *job, uint32_t d)
{
	uint32_t n = job->layout.nranks;
	uint64_t rows = 0;

	for (uint32_t s = 0; s < n; s++)
		rows += is_local(&run_args, d) ? (uint64_t)job->recv_matrix[(uint64_t)d * n + s] :
						 count_sent(&job->plan.counts, s, d);
	return rows;
}

static struct json_object *count_matrix(const struct counts *c)
{
	struct json_object *rows = json_object_new_array();

	for (uint32_t s = 0; s < c->nranks; s++) {
		struct json_object *row = json_object_new_array();

		for (uint32_t d = 0; d < c->nranks; d++)
			json_object_array_add(row, json_object_new_int64(count_asked(c, s, d)));
		json_object_array_add(rows, row);
	}
	return rows;
}

static struct json_object *recv_matrix(const struct moe_job *job)
{
	struct json_object *rows = json_object_new_array();
	uint32_t n = job->layout.nranks;

	for (uint32_t r = run_args.first; is_local(&run_args, r); r++) {
		const int32_t *got = job->recv_matrix + (uint64_t)r * n;
		struct json_object *row = json_object_new_array();

		for (uint32_t s = 0; s < n; s++)
			json_object_array_add(row, json_object_new_int(got[s]));
		json_object_array_add(rows, row);
	}
	return rows;
}

void moe_print_json(const struct moe_job *job, const struct run_args *args,
		    const struct run_report *report)
{
	const struct moe_plan *p = &job->plan;
	struct json_object *o = json_object_new_object(), *loads = json_object_new_array();

	json_add_string(o, "command", "moe");
	json_add_run(o, args, &job->layout, report);
	json_add_string(o, "dtype", job->dtype);
	if (p->tokens)
		json_add_uint(o, "tokens", p->tokens);
	if (p->topk)
		json_add_uint(o, "topk", p->topk);
	if (p->experts)
		json_add_uint(o, "experts", p->experts);
	if (p->model[0])
		json_add_string(o, "model", p->model);
	if (p->source[0])
		json_add_string(o, "source", p->source);
	json_add_uint(o, "rows", rows_here(args, &p->counts));
	json_add_uint(o, "bytes", report->bytes[0] + report->bytes[1]);
	json_add_uint(o, "dispatch_bytes", report->bytes[0]);
	json_add_uint(o, "combine_bytes", report->bytes[1]);
	json_add_seconds(o, "dispatch_seconds", report->call_seconds[0]);
	json_add_seconds(o, "combine_seconds", report->call_seconds[1]);
	for (uint32_t d = 0; d < job->layout.nranks; d++)
		json_object_array_add(loads, json_object_new_uint64(load(job, d)));
	json_object_object_add(o, "load", loads);
	json_object_object_add(o, "count_matrix", count_matrix(&p->counts));
	json_object_object_add(o, "recv_matrix", recv_matrix(job));
	json_object_object_add(o, "clamped", counts_json(&p->counts));
	json_print(o);
}

static int digits(uint64_t v)
{
	return snprintf(NULL, 0, "%" PRIu64, v);
}

/* Who has how many rows for whom, with what each rank has and gets in all. */
static void print_matrix(const struct moe_job *job)
{
	const struct counts *c = &job->plan.counts;
	uint32_t n = c->nranks;
	int width = digits(job->plan.start[(uint64_t)n * n]) + 2;
	int label = digits(n) + 7;

	if (width < digits(n) + 5)
		width = digits(n) + 5;
	printf("\n  rows that a rank (line) has for a rank (column)%s\n  %*s",
	       counts_clamped(c) ? ", before clamping; received: after it" : "", label, "");
	for (uint32_t d = 0; d < n; d++)
		printf("%*s%-*u", width - digits(n), "to ", digits(n), d);
	printf("%*s\n", width, "all");
	for (uint32_t s = 0; s < n; s++) {
		printf("  rank %-*u", label - 5, s);
		for (uint32_t d = 0; d < n; d++)
			printf("%*" PRId64, width, count_asked(c, s, d));
		printf("%*" PRIu64 "\n", width, job->plan.start[(uint64_t)(s + 1) * n] -
		       job->plan.start[(uint64_t)s * n]);
	}
	printf("  %-*s", label, "received");
	for (uint32_t d = 0; d < n; d++)
		printf("%*" PRIu64, width, load(job, d));
	printf("%*" PRIu64 "\n\n", width, counts_total(c));
}

/* In place of a matrix that no line has room for. */
static void print_received(const struct moe_job *job)
{
	uint32_t n = job->layout.nranks;
	int width = digits(counts_total(&job->plan.counts)) + 2;

	printf("\n  rows that each rank received; the count matrix of %u ranks is left out here,\n"
	       "  --json has it", n);
	for (uint32_t d = 0; d < n; d++) {
		if (d % LOADS_ON_A_LINE == 0)
			printf("\n  from rank %-*u", digits(n), d);
		printf("%*" PRIu64, width, load(job, d));
	}
	printf("\n\n");
}

static void print_load(const struct moe_job *job)
{
	uint32_t n = job->layout.nranks, most = 0, least = 0;
	double mean = (double)counts_total(&job->plan.counts) / n;

	for (uint32_t d = 1; d < n; d++) {
		if (load(job, d) > load(job, most))
			most = d;
		if (load(job, d) < load(job, least))
			least = d;
	}
	printf("  load      most at rank %u: %" PRIu64 " rows", most, load(job, most));
	if (mean > 0)
		printf(", %.2f times the mean", (double)load(job, most) / mean);
	printf("; least at rank %u: %" PRIu64 "\n", least, load(job, least));
}

static void print_routing(const struct moe_plan *p)
{
	const char *sep = "  routing   ";

	if (p->model[0]) {
		printf("%s%s", sep, p->model);
		sep = ", ";
	}
	if (p->tokens) {
		printf("%s%" PRIu64 " tokens", sep, p->tokens);
		sep = ", ";
	}
	if (p->experts && p->topk) {
		printf("%stop-%" PRIu64 " of %" PRIu64 " experts", sep, p->topk, p->experts);
		sep = ", ";
	}
	if (sep[0] == ',')
		printf("\n");
	if (p->source[0])
		printf("  source    %s\n", p->source);
}

/* Of calls, from the first rank's start to the last one's end: they overlap. */
static void print_time(const struct run_args *args, const struct run_report *report,
		       double row_bytes)
{
	char a[32], b[32];

	printf("  time      dispatch %s", human_seconds(a, sizeof(a), report->call_seconds[0]));
	printf(", combine %s, both %s\n", human_seconds(a, sizeof(a), report->call_seconds[1]),
	       human_seconds(b, sizeof(b), report->seconds));
	printf("            each from its first rank's start to its last rank's end: they overlap\n"
	       "            %s/s of counted rows\n",
	       human_bytes(a, sizeof(a), row_bytes / report->seconds));
	if (args->iterations > 1)
		printf("            mean of %" PRIu64 " iterations; the best took %s\n",
		       args->iterations, human_seconds(a, sizeof(a), report->best));
}

void moe_print_summary(const struct moe_job *job, const struct run_args *args,
		       const struct run_report *report)
{
	const struct layout *l = &job->layout;
	uint64_t rows = rows_here(args, &job->plan.counts);
	double row_bytes = 2.0 * (double)rows * (double)l->row_bytes;
	char a[32], b[32], shape[160], provider[320];

	printf("MoE dispatch and combine on %u ranks (%s), rail %s, mode %s\n", l->nranks,
	       run_forms[args->form], run_rails[args->rail], run_modes[args->mode]);
	printf("  provider  %s\n", provider_text(provider, sizeof(provider), report->provider,
						 report->reason));
	print_routing(&job->plan);
	printf("  rows      %s %s: %" PRIu64 " bytes each; MAX_RECV is %u\n", job->dtype,
	       npy_shape_text(shape, sizeof(shape), l->ndim - 1, l->shape + 1), l->row_bytes,
	       l->max_recv);
	if (l->nranks <= MAX_PRINTED_RANKS)
		print_matrix(job);
	else
		print_received(job);
	print_load(job);
	counts_print(&job->plan.counts);
	place_print(args, &job->plan.counts);
	printf("  moved     %" PRIu64 " row%s%s there and back: %s", rows, rows == 1 ? "" : "s",
	       args->bootstrap ? " of the ranks here" : "",
	       human_bytes(a, sizeof(a), row_bytes));
	if (args->mode == NPUWIN_MODE_BLOCK)
		printf(", in blocks of %s in all",
		       human_bytes(b, sizeof(b), (double)(report->bytes[0] + report->bytes[1])));
	printf("\n");
	print_time(args, report, row_bytes);
	if (report->mismatch[0])
		printf("  verified  NO: %s\n", report->mismatch);
	else
		printf("  verified  every byte of every row, at its expert and back at its rank\n");
}
