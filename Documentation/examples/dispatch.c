// SPDX-License-Identifier: MIT
/* Four ranks in one process: rank r sends r + d rows to rank d. Prints what rank 3 got. */
#include <err.h>
#include <npuwin.h>
#include <stdio.h>

enum { NR = 4, MAX_RECV = 8, ROWS = NR * MAX_RECV };
#define T(rows)		{ .dtype = NPUWIN_INT32, .ndim = 1, .shape = { rows } }
#define ALLOC(t)	npuwin_buffer_alloc(rank[r], 4 * op[r].t.shape[0], 0, &op[r].t.buffer, &e)
#define INTS(r, t)	((int *)npuwin_buffer_ptr(op[r].t.buffer))

int main(void)
{
	struct npuwin_domain_attr attr = { .nranks = NR, .window_size = 1 << 20, .device = -1 };
	struct npuwin_a2av op[] = { [0 ... NR - 1] = { T(ROWS), T(ROWS), T(NR), T(NR), T(NR) } };
	struct npuwin_domain *rank[NR];
	struct npuwin_error e;
	struct npuwin *ctx;
	int rc = npuwin_open(NULL, &ctx, &e) ?: npuwin_domain_create_local(ctx, &attr, rank, &e);

	for (int r = 0; !rc && r < NR; r++) {
		rc = ALLOC(input) ?: ALLOC(target) ?: ALLOC(signal) ?: ALLOC(send_counts) ?:
		     ALLOC(recv_counts);
		for (int i = 0; !rc && i < ROWS; i++)
			INTS(r, input)[i] = INTS(r, send_counts)[i / MAX_RECV] = r + i / MAX_RECV;
	}
	if (rc || npuwin_all_to_all_v_group(rank, op, NR, npuwin_deadline_ms(5000), NULL, &e))
		errx(1, "%s", e.text);
	for (int s = 0; s < NR; s++)
		printf("from rank %d: %d rows of %d\n", s, INTS(3, recv_counts)[s],
		       INTS(3, target)[s * MAX_RECV]);
	for (int r = 0; r < NR; r++)
		npuwin_domain_leave(rank[r]);
	npuwin_close(ctx);
}
