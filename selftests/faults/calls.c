// SPDX-License-Identifier: MIT
/*
 * Exchange a number of times, one rank on each device of the driver, and print by how much the
 * devices' counters have grown meanwhile.
 *
 * usage: calls COUNT GO END
 *
 * It prints "@before" when all ranks have exchanged a few times, and waits for a file GO; prints
 * for each device "DEVICE SUBMITS INTERRUPTS DESCRIPTORS", and "@after", and waits for a file END.
 * While it waits the devices have nothing to do, so that their other counters can be looked at.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "npuwin.h"

#define MOST_RANKS	64
#define WARM		5
#define MAX_RECV	16
#define ROW_BYTES	512

static const char *const names[] = { "doorbells", "interrupts", "descriptors" };

#define ARRAY_SIZE(a)	(sizeof(a) / sizeof((a)[0]))

/* What the ranks share. At the stage all of them and the first thread meet. */
static struct {
	uint32_t nranks;
	unsigned int count;
	pthread_barrier_t stage;
} shared;

static void die(const char *what, const char *why)
{
	printf("%s: %s\n", what, why);
	exit(EXIT_FAILURE);
}

static void operand(struct npuwin_domain *rank, struct npuwin_tensor *t, uint32_t dtype,
		    uint64_t rows, uint64_t cols)
{
	struct npuwin_error err;

	*t = (struct npuwin_tensor) { .dtype = dtype, .ndim = 2, .shape = { rows, cols } };
	if (npuwin_buffer_alloc(rank, rows * cols * npuwin_dtype_size(dtype), 0, &t->buffer,
				&err))
		die("buffer", err.text);
}

static void exchange(struct npuwin_domain *rank, struct npuwin_a2av *op, unsigned int times)
{
	struct npuwin_error err;

	while (times--) {
		if (npuwin_all_to_all_v(rank, op, npuwin_deadline_ms(60000), NULL, &err))
			die("exchange", err.text);
	}
}

static void *rank_main(void *arg)
{
	struct npuwin_domain *rank = arg;
	struct npuwin_a2av op = { .mode = NPUWIN_MODE_ROWS, .rail = NPUWIN_RAIL_HOST };
	uint32_t me = npuwin_domain_rank(rank), n = shared.nranks, i;
	int32_t *send, *recv;

	operand(rank, &op.input, NPUWIN_UINT8, n * MAX_RECV, ROW_BYTES);
	operand(rank, &op.target, NPUWIN_UINT8, n * MAX_RECV, ROW_BYTES);
	operand(rank, &op.signal, NPUWIN_INT32, n, 1);
	operand(rank, &op.send_counts, NPUWIN_INT32, n, 1);
	operand(rank, &op.recv_counts, NPUWIN_INT32, n, 1);
	memset(npuwin_buffer_ptr(op.input.buffer), me + 1, n * MAX_RECV * ROW_BYTES);
	send = npuwin_buffer_ptr(op.send_counts.buffer);
	for (i = 0; i < n; i++)
		send[i] = 1 + (me + i) % MAX_RECV;

	exchange(rank, &op, WARM);
	pthread_barrier_wait(&shared.stage);
	pthread_barrier_wait(&shared.stage);
	exchange(rank, &op, shared.count);
	pthread_barrier_wait(&shared.stage);
	pthread_barrier_wait(&shared.stage);

	recv = npuwin_buffer_ptr(op.recv_counts.buffer);
	for (i = 0; i < n; i++) {
		const uint8_t *block = npuwin_buffer_ptr(op.target.buffer);

		block += (size_t)i * MAX_RECV * ROW_BYTES;
		if (recv[i] != (int32_t)(1 + (me + i) % MAX_RECV) ||
		    block[recv[i] * ROW_BYTES - 1] != i + 1)
			die("exchange", "wrong bytes");
	}
	return NULL;
}

static uint64_t counter(uint32_t device, const char *name)
{
	char path[96], text[32], *end;
	uint64_t value;
	FILE *f;

	snprintf(path, sizeof(path), "/sys/class/npuwin/npuwin%" PRIu32 "/stats/%s", device,
		 name);
	f = fopen(path, "re");
	if (!f || !fgets(text, sizeof(text), f))
		die(path, "cannot be read");
	fclose(f);
	value = strtoull(text, &end, 10);
	if (end == text)
		die(path, "no number");
	return value;
}

static void wait_for(const char *file)
{
	while (access(file, F_OK))
		usleep(20000);
}

static void watch(const char *go, const char *end)
{
	uint64_t before[MOST_RANKS][ARRAY_SIZE(names)];
	uint32_t device;
	size_t i;

	pthread_barrier_wait(&shared.stage);
	for (device = 0; device < shared.nranks; device++)
		for (i = 0; i < ARRAY_SIZE(names); i++)
			before[device][i] = counter(device, names[i]);
	puts("@before");
	fflush(stdout);
	wait_for(go);
	pthread_barrier_wait(&shared.stage);

	pthread_barrier_wait(&shared.stage);
	for (device = 0; device < shared.nranks; device++) {
		printf("%" PRIu32, device);
		for (i = 0; i < ARRAY_SIZE(names); i++)
			printf(" %" PRIu64, counter(device, names[i]) - before[device][i]);
		puts("");
	}
	puts("@after");
	fflush(stdout);
	wait_for(end);
	pthread_barrier_wait(&shared.stage);
}

int main(int argc, char **argv)
{
	struct npuwin_domain_attr attr = { .window_size = 4 << 20, .device = -1 };
	struct npuwin_domain *ranks[MOST_RANKS];
	pthread_t threads[MOST_RANKS];
	struct npuwin_error err;
	struct npuwin *ctx;
	uint32_t i;

	if (argc != 4)
		die("usage", "calls COUNT GO END");
	if (npuwin_open("dev", &ctx, &err))
		die("open", err.text);
	shared.count = strtoul(argv[1], NULL, 10);
	shared.nranks = npuwin_device_count(ctx);
	if (shared.nranks > MOST_RANKS)
		die("devices", "too many");
	pthread_barrier_init(&shared.stage, NULL, shared.nranks + 1);
	attr.nranks = shared.nranks;
	attr.deadline_ns = npuwin_deadline_ms(60000);
	if (npuwin_domain_create_local(ctx, &attr, ranks, &err))
		die("domain", err.text);
	for (i = 0; i < shared.nranks; i++)
		pthread_create(&threads[i], NULL, rank_main, ranks[i]);
	watch(argv[2], argv[3]);
	for (i = 0; i < shared.nranks; i++)
		pthread_join(threads[i], NULL);
	for (i = 0; i < shared.nranks; i++)
		npuwin_domain_leave(ranks[i]);
	npuwin_close(ctx);
	return EXIT_SUCCESS;
}
