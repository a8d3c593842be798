// SPDX-License-Identifier: GPL-2.0-only
/*
 * A batch that its caller executes against one that a worker does.
 *
 *	bench_submit [ROUNDS [CALLS]]
 *
 * inline is one SUBMIT with NPUWIN_SUBMIT_F_WAIT. worker is a SUBMIT without it, and a
 * QUEUE_WAIT for the completion. Both post the same batch to the same queue, in turns: CALLS
 * calls of the one, CALLS of the other, ROUNDS times. Printed are the medians of the rounds.
 * TPUTs go to the other rank, on the second device.
 */
#include <sys/utsname.h>

#include "../uapi/common.h"
#include "workload.h"

#define BATCH		8
#define LARGEST		8192
#define WINDOW		(2 * BATCH * LARGEST)
#define MAX_ROUNDS	1000
#define MAX_CALLS	1000000

/**
 * struct work - What a batch is made of.
 * @name: in the table
 * @bytes: of each TPUT; 0: NOPs
 */
struct work {
	const char *name;
	uint64_t bytes;
};

static const struct work works[] = {
	{ "NOP", 0 },
	{ "TPUT 64 B", 64 },
	{ "TPUT 8 KiB", LARGEST },
};

static void fill(struct npuwin_desc *batch, const struct work *work)
{
	uint32_t i;

	for (i = 0; i < BATCH; i++) {
		batch[i] = work->bytes ? put(1, i * work->bytes, i * work->bytes, work->bytes)
				       : nop(0);
		batch[i].flags = i == BATCH - 1 ? NPUWIN_DESC_F_CQE : 0;
	}
}

static int call_inline(const struct rank *rank, const struct npuwin_desc *batch,
		       struct npuwin_cqe *cqe)
{
	uint32_t n = 1;
	int ret = submit_wait(rank->fd, rank->queue, batch, BATCH, cqe, &n, NPUWIN_NO_DEADLINE);

	return ret ? ret : n - 1;
}

static int call_worker(const struct rank *rank, const struct npuwin_desc *batch,
		       struct npuwin_cqe *cqe)
{
	uint32_t n = 1;
	int ret = submit(rank->fd, rank->queue, batch, BATCH);

	if (!ret)
		ret = queue_wait(rank->fd, rank->queue, cqe, 1, &n, NPUWIN_NO_DEADLINE);
	return ret ? ret : n - 1;
}

/* Microseconds of a call, the mean of @calls, or negative. */
static double measure(const struct rank *rank, const struct npuwin_desc *batch, uint32_t calls,
		      int (*one)(const struct rank *rank, const struct npuwin_desc *batch,
				 struct npuwin_cqe *cqe))
{
	struct npuwin_cqe cqe = { 0 };
	double start = workload_now();
	uint32_t i;

	for (i = 0; i < calls; i++) {
		if (one(rank, batch, &cqe) || cqe.status != NPUWIN_ST_OK) {
			fprintf(stderr, "bench_submit: status %u: %s\n", cqe.status,
				strerror(errno));
			return -1;
		}
	}
	return 1e6 * (workload_now() - start) / calls;
}

static double median(double *values, uint32_t n)
{
	qsort(values, n, sizeof(*values), workload_compare);
	return values[n / 2];
}

static int bench(const struct rank *rank, const struct work *work, uint32_t rounds,
		 uint32_t calls)
{
	static double inlined[MAX_ROUNDS], worked[MAX_ROUNDS];
	struct npuwin_desc batch[BATCH];
	double a, b;
	uint32_t i;

	fill(batch, work);
	if (measure(rank, batch, calls / 10 + 1, call_inline) < 0 ||
	    measure(rank, batch, calls / 10 + 1, call_worker) < 0)
		return -1;
	for (i = 0; i < rounds; i++) {
		inlined[i] = measure(rank, batch, calls, call_inline);
		worked[i] = measure(rank, batch, calls, call_worker);
		if (inlined[i] < 0 || worked[i] < 0)
			return -1;
	}
	a = median(inlined, rounds);
	b = median(worked, rounds);
	printf("%-12s %10.2f %10.2f %6.2f\n", work->name, a, b, a / b);
	return 0;
}

static int describe(const struct rank *rank, uint32_t rounds, uint32_t calls)
{
	struct npuwin_ioc_query info = { .size = sizeof(info) };
	struct utsname name;
	char date[16];
	time_t now = time(NULL);
	struct tm tm;

	if (call(rank->fd, NPUWIN_IOC_QUERY, &info) || uname(&name))
		return -1;
	strftime(date, sizeof(date), "%F", localtime_r(&now, &tm));
	printf("# %s, %ld processors, %s; backend %.16s, batches of %d, %u rounds of %u calls, medians\n",
	       name.release, sysconf(_SC_NPROCESSORS_ONLN), date, info.backend, BATCH, rounds,
	       calls);
	printf("%-12s %10s %10s %6s\n", "work", "inline_us", "worker_us", "ratio");
	return 0;
}

int main(int argc, char **argv)
{
	uint32_t rounds = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 11;
	uint32_t calls = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 500;
	struct team team;
	size_t i;
	int ret;

	if (argc > 3 || !rounds || rounds > MAX_ROUNDS || !calls || calls > MAX_CALLS) {
		fprintf(stderr, "usage: bench_submit [ROUNDS [CALLS]], up to %d and %d\n",
			MAX_ROUNDS, MAX_CALLS);
		return 2;
	}
	if (!have_devices()) {
		fprintf(stderr, "bench_submit: " NEEDS_DEVICES "\n");
		return 1;
	}
	ret = team_make(&team, 2, WINDOW);
	if (ret) {
		fprintf(stderr, "bench_submit: no domain of two ranks: %s\n", strerror(-ret));
		return 1;
	}
	ret = describe(&team.rank[0], rounds, calls);
	for (i = 0; !ret && i < ARRAY_LEN(works); i++)
		ret = bench(&team.rank[0], &works[i], rounds, calls);
	team_free(&team);
	return ret ? 1 : 0;
}
