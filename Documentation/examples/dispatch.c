// SPDX-License-Identifier: MIT
/* Four ranks in one process: rank r sends r + d rows to rank d. Prints what rank 3 got. */
#include <err.h>
#include <npuwin.h>
#include <stdio.h>

enum { NR = 4, MAX_RECV = 8, WIDTH = 16 };
static struct npuwin_error e;

static int *tensor(struct npuwin_domain *rank, struct npuwin_tensor *t, int rows, int width)
{
	*t = (struct npuwin_tensor){ .dtype = NPUWIN_INT32, .ndim = 2, .shape = { rows, width } };
	if (npuwin_buffer_alloc(rank, 4ULL * rows * width, 0, &t->buffer, &e))
		errx(1, "%s", e.text);
	return npuwin_buffer_ptr(t->buffer);
}

int main(void)
{
	struct npuwin_domain_attr attr = { .nranks = NR, .window_size = 1 << 20, .device = -1,
					   .deadline_ns = npuwin_deadline_ms(5000) };
	struct npuwin_domain *rank[NR];
	struct npuwin_a2av op[NR] = { 0 };
	struct npuwin *ctx;
	int *input, *target, *send, *recv;

	if (npuwin_open(NULL, &ctx, &e) || npuwin_domain_create_local(ctx, &attr, rank, &e))
		errx(1, "%s", e.text);
	for (int r = 0; r < NR; r++) {
		input = tensor(rank[r], &op[r].input, NR * MAX_RECV, WIDTH);
		target = tensor(rank[r], &op[r].target, NR * MAX_RECV, WIDTH);
		tensor(rank[r], &op[r].signal, NR, 1);
		send = tensor(rank[r], &op[r].send_counts, NR, 1);
		recv = tensor(rank[r], &op[r].recv_counts, NR, 1);
		for (int d = 0; d < NR; d++)
			send[d] = r + d;
		for (int i = 0; i < NR * MAX_RECV * WIDTH; i++)
			input[i] = 100 + r;
	}
	if (npuwin_all_to_all_v_group(rank, op, NR, npuwin_deadline_ms(5000), NULL, &e))
		errx(1, "%s", e.text);
	for (int s = 0; s < NR; s++)	/* target and recv are those of the last rank, 3 */
		printf("from rank %d: %d rows of %d\n", s, recv[s], target[s * MAX_RECV * WIDTH]);
	for (int r = 0; r < NR; r++)
		npuwin_domain_leave(rank[r]);
	npuwin_close(ctx);
}
