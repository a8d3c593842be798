/* SPDX-License-Identifier: MIT */
/*
 * The workload that npuwin and its peer both run: counts that anybody can work out, and
 * the figures of one run.
 */
#ifndef BENCH_WORKLOAD_H
#define BENCH_WORKLOAD_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/**
 * struct workload - What is run.
 * @ranks: processes
 * @max_recv: rows of a block
 * @row_bytes: bytes of a row
 * @calls: timed calls
 */
struct workload {
	uint32_t ranks;
	uint32_t max_recv;
	uint32_t row_bytes;
	uint32_t calls;
};

/* Rows that @src sends to @dst: 0..max_recv, from a hash of both. */
static inline int32_t workload_count(const struct workload *w, uint32_t src, uint32_t dst)
{
	uint32_t h = (src * 2654435761u) ^ ((dst + 1) * 2246822519u);

	h ^= h >> 15;
	h *= 2654435761u;
	h ^= h >> 13;
	return (int32_t)(h % (w->max_recv + 1));
}

/* First byte of every row that @src sends to @dst. */
static inline uint8_t workload_mark(uint32_t src, uint32_t dst)
{
	return (uint8_t)(src * 31 + dst * 7 + 1);
}

static inline double workload_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static inline int workload_compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Print the median of @seconds in microseconds; sorts them. */
static inline void workload_report(double *seconds, uint32_t n)
{
	qsort(seconds, n, sizeof(*seconds), workload_compare);
	printf("%.2f\n", 1e6 * seconds[n / 2]);
}

/* Four decimal arguments: ranks, MAX_RECV, row bytes, calls. */
static inline int workload_parse(char **argv, struct workload *w)
{
	w->ranks = (uint32_t)strtoul(argv[0], NULL, 10);
	w->max_recv = (uint32_t)strtoul(argv[1], NULL, 10);
	w->row_bytes = (uint32_t)strtoul(argv[2], NULL, 10);
	w->calls = (uint32_t)strtoul(argv[3], NULL, 10);
	return w->ranks && w->max_recv && w->row_bytes && w->calls ? 0 : -1;
}

#endif /* BENCH_WORKLOAD_H */
