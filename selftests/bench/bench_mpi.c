// SPDX-License-Identifier: MIT
/*
 * The peer: what an MPI program does for a dispatch whose counts only the senders know,
 * MPI_Alltoall of the counts and MPI_Alltoallv of the rows.
 * Usage: mpirun -n RANKS bench_mpi RANKS MAX_RECV ROW_BYTES CALLS; prints the median
 * microseconds of a call on rank 0.
 */
#include <mpi.h>
#include <string.h>

#include "workload.h"

static int run(const struct workload *w, uint32_t rank)
{
	const size_t block = (size_t)w->max_recv * w->row_bytes;
	uint8_t *input = malloc(block * w->ranks), *target = malloc(block * w->ranks);
	int *send = calloc(5 * (size_t)w->ranks, sizeof(int));
	int *send_bytes, *recv_bytes, *at, *recv;
	double *seconds = calloc(w->calls, sizeof(double));
	uint32_t i, d;
	int err = -1;

	if (!input || !target || !send || !seconds)
		goto out;
	recv = send + w->ranks;
	send_bytes = recv + w->ranks;
	recv_bytes = send_bytes + w->ranks;
	at = recv_bytes + w->ranks;
	for (d = 0; d < w->ranks; d++) {
		send[d] = workload_count(w, rank, d);
		at[d] = (int)(d * block);
		memset(input + d * block, workload_mark(rank, d), block);
	}
	for (i = 0; i < w->calls + 10; i++) {
		double start = workload_now();

		MPI_Alltoall(send, 1, MPI_INT, recv, 1, MPI_INT, MPI_COMM_WORLD);
		for (d = 0; d < w->ranks; d++) {
			send_bytes[d] = send[d] * (int)w->row_bytes;
			recv_bytes[d] = recv[d] * (int)w->row_bytes;
		}
		MPI_Alltoallv(input, send_bytes, at, MPI_BYTE, target, recv_bytes, at, MPI_BYTE,
			      MPI_COMM_WORLD);
		if (i >= 10)
			seconds[i - 10] = workload_now() - start;
	}
	for (d = 0; d < w->ranks; d++) {
		if (recv[d] != workload_count(w, d, rank) ||
		    (recv[d] && target[d * block] != workload_mark(d, rank)))
			goto out;
	}
	err = 0;
	if (!rank)
		workload_report(seconds, w->calls);
out:
	free(seconds);
	free(send);
	free(target);
	free(input);
	return err;
}

int main(int argc, char **argv)
{
	struct workload w;
	int rank, size, err = 2;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	if (argc == 5 && !workload_parse(argv + 1, &w) && (uint32_t)size == w.ranks)
		err = run(&w, (uint32_t)rank) ? 1 : 0;
	if (err)
		MPI_Abort(MPI_COMM_WORLD, err);
	MPI_Finalize();
	return err;
}
