// SPDX-License-Identifier: MIT
/*
 * put, notify, wait, test and barrier.
 */
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "collective.h"

/* How often a wait looks before it yields, and yields before it sleeps. Ranks usually
 * outnumber cores: who is waited for needs this one.
 */
#define WAIT_SPINS	200
#define WAIT_YIELDS	20

/* Run a program of this rank to its end. */
static int primitive_run(struct npuwin_domain *domain, const char *what, uint32_t rail,
			 struct npuwin_desc *descs, uint32_t count, struct npuwin_error *err)
{
	struct job job = {
		.ep = domain->ep,
		.rail = rail,
		.descs = descs,
		.count = count,
		.event_fd = -1,
	};
	struct job *jobs[1] = { &job };
	int rc;

	descs[count - 1].flags |= NPUWIN_DESC_F_CQE;
	rc = job_run(jobs, 1, err);
	if (rc)
		return rc;
	if (job.cqe.status == NPUWIN_ST_OK) {
		rc = npuwin_ok(err, 0);
	} else {
		rc = outcome_status(domain, what, &job.cqe, err);
		outcome_stop(domain, &job.cqe, rc);
	}
	job_fini(&job);
	return rc;
}

/* A rank that can be written to. Found out here, it does not stop the queue. */
static int check_dest(const struct npuwin_domain *domain, const char *what, uint32_t rank,
		      struct npuwin_error *err)
{
	const struct endpoint *ep = domain->ep;
	struct npuwin_cqe gone = { .status = NPUWIN_ST_PEER, .rank = rank };
	int rc;

	if (rank >= ep->nranks)
		return npuwin_fail(err, -EINVAL, ep->rank, NPUWIN_NOBODY,
				   "%s: dst_rank is %u, want less than %u", what, rank,
				   ep->nranks);
	rc = outcome_domain(domain, what, err);
	if (rc)
		return rc;
	if (__atomic_load_n(&ep->status->rank[rank].state, __ATOMIC_RELAXED) !=
	    NPUWIN_RANK_JOINED)
		return outcome_status(domain, what, &gone, err);
	return 0;
}

/* Bytes from the first of @rows to the end of the last. */
static int rows_extent(const struct npuwin_domain *domain, const char *name, uint64_t rows,
		       uint64_t row_bytes, uint64_t stride, uint64_t *bytes,
		       struct npuwin_error *err)
{
	*bytes = 0;
	if (!rows || !row_bytes)
		return 0;
	if (rows > 1 && stride < row_bytes)
		return npuwin_fail(err, -EINVAL, domain->ep->rank, NPUWIN_NOBODY,
				   "put: %s_stride is %" PRIu64 ", less than the row of %" PRIu64
				   " bytes", name, stride, row_bytes);
	if (__builtin_mul_overflow(rows - 1, stride, bytes) ||
	    __builtin_add_overflow(*bytes, row_bytes, bytes))
		return npuwin_fail(err, -EOVERFLOW, domain->ep->rank, NPUWIN_NOBODY,
				   "put: %" PRIu64 " rows at a %s_stride of %" PRIu64
				   " overflow 64 bits", rows, name, stride);
	return 0;
}

/* What an adding put wants of its int32 or fp32. */
static int put_aligned(const struct npuwin_domain *domain, const struct npuwin_put *put,
		       struct npuwin_error *err)
{
	const struct {
		const char *name;
		uint64_t value;
	} fields[] = {
		{ "src_offset", put->src_offset },
		{ "dst_offset", put->dst_offset },
		{ "row_bytes", put->row_bytes },
		{ "src_stride", put->rows > 1 ? put->src_stride : 0 },
		{ "dst_stride", put->rows > 1 ? put->dst_stride : 0 },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(fields); i++)
		if (fields[i].value % sizeof(int32_t))
			return npuwin_fail(err, -EINVAL, domain->ep->rank, NPUWIN_NOBODY,
					   "put: %s is %" PRIu64 ", not a multiple of 4, as adding wants",
					   fields[i].name, fields[i].value);
	return 0;
}

static int put_check(const struct npuwin_domain *domain, const struct npuwin_put *put,
		     struct npuwin_error *err)
{
	uint32_t rank = domain->ep->rank;
	uint64_t src_bytes, dst_bytes;
	int rc;

	if (put->op > NPUWIN_ADD_FP32)
		return npuwin_fail(err, -EINVAL, rank, NPUWIN_NOBODY,
				   "put: op is %u, want 0 (copy), 1 (add int32) or 2 (add fp32)",
				   put->op);
	if (put->reserved)
		return npuwin_fail(err, -EINVAL, rank, NPUWIN_NOBODY,
				   "put: reserved is 0x%x, want 0", put->reserved);
	rc = check_rail(domain, "put", put->rail, err);
	if (!rc)
		rc = rows_extent(domain, "src", put->rows, put->row_bytes, put->src_stride,
				 &src_bytes, err);
	if (!rc)
		rc = rows_extent(domain, "dst", put->rows, put->row_bytes, put->dst_stride,
				 &dst_bytes, err);
	if (!rc)
		rc = check_range(domain, "put", "src", put->src, put->src_offset, src_bytes, err);
	if (!rc)
		rc = check_range(domain, "put", "dst", put->dst, put->dst_offset, dst_bytes, err);
	if (!rc && put->op != NPUWIN_COPY)
		rc = put_aligned(domain, put, err);
	if (rc)
		return rc;
	return check_dest(domain, "put", put->dst_rank, err);
}

int npuwin_put(struct npuwin_domain *domain, const struct npuwin_put *put,
	       struct npuwin_error *err)
{
	struct npuwin_desc desc = { .opcode = NPUWIN_OP_TPUT };
	uint64_t rows = put->rows, row_bytes = put->row_bytes;
	int rc;

	pthread_mutex_lock(&domain->lock);
	rc = put_check(domain, put, err);
	if (!rc) {
		desc.src_off = put->src->offset + put->src_offset;
		desc.dst_off = put->dst->offset + put->dst_offset;
	}
	pthread_mutex_unlock(&domain->lock);
	if (rc)
		return rc;
	if (!rows || !row_bytes)
		return npuwin_ok(err, 0);
	/* Rows without gaps are one, whatever their number. */
	if (put->src_stride == row_bytes && put->dst_stride == row_bytes) {
		row_bytes *= rows;
		rows = 1;
	}
	if (rows > UINT32_MAX)
		return npuwin_fail(err, -EOVERFLOW, domain->ep->rank, NPUWIN_NOBODY,
				   "put: rows is %" PRIu64 ", more than %u that have gaps", rows,
				   UINT32_MAX);
	desc.sub = (uint8_t)put->op;
	desc.rank = put->dst_rank;
	desc.rows = (uint32_t)rows;
	desc.row_bytes = row_bytes;
	if (rows > 1) {
		desc.src_stride = put->src_stride;
		desc.dst_stride = put->dst_stride;
	}
	return primitive_run(domain, "put", put->rail, &desc, 1, err);
}

/* An int32 at @offset of @buffer; *at is its offset in the window. */
static int check_cell(struct npuwin_domain *domain, const char *what,
		      const struct npuwin_buffer *buffer, uint64_t offset, __u64 *at,
		      struct npuwin_error *err)
{
	int rc;

	pthread_mutex_lock(&domain->lock);
	rc = check_range(domain, what, "buffer", buffer, offset, sizeof(int32_t), err);
	if (!rc && offset % sizeof(int32_t))
		rc = npuwin_fail(err, -EINVAL, domain->ep->rank, NPUWIN_NOBODY,
				 "%s: offset is %" PRIu64 ", not a multiple of 4", what, offset);
	if (!rc)
		*at = buffer->offset + offset;
	pthread_mutex_unlock(&domain->lock);
	return rc;
}

int npuwin_notify(struct npuwin_domain *domain, uint32_t dst_rank,
		  const struct npuwin_buffer *buffer, uint64_t offset, uint32_t op,
		  int32_t value, uint32_t rail, struct npuwin_error *err)
{
	struct npuwin_desc desc = {
		.opcode = NPUWIN_OP_TNOTIFY,
		.sub = (uint8_t)op,
		.rank = dst_rank,
		.value = value,
	};
	int rc;

	if (op != NPUWIN_SET && op != NPUWIN_ADD)
		return npuwin_fail(err, -EINVAL, domain->ep->rank, NPUWIN_NOBODY,
				   "notify: op is %u, want 0 (set) or 1 (add)", op);
	rc = check_rail(domain, "notify", rail, err);
	if (!rc)
		rc = check_cell(domain, "notify", buffer, offset, &desc.dst_off, err);
	if (!rc)
		rc = check_dest(domain, "notify", dst_rank, err);
	if (rc)
		return rc;
	return primitive_run(domain, "notify", rail, &desc, 1, err);
}

static const char *const cmp_name[] = {
	[NPUWIN_EQ] = "==", [NPUWIN_NE] = "!=", [NPUWIN_GT] = ">",
	[NPUWIN_GE] = ">=", [NPUWIN_LT] = "<", [NPUWIN_LE] = "<=",
};

/* Describe the wait to the provider; what it reads is put in @observed of the signal. */
static int wait_prepare(struct npuwin_domain *domain, const char *what,
			const struct npuwin_buffer *buffer, uint64_t offset, uint32_t cmp,
			int32_t value, struct npuwin_signal *signal, struct npuwin_error *err)
{
	if (cmp > NPUWIN_LE)
		return npuwin_fail(err, -EINVAL, domain->ep->rank, NPUWIN_NOBODY,
				   "%s: cmp is %u, want 0..%d", what, cmp, NPUWIN_LE);
	*signal = (struct npuwin_signal) {
		.rank = domain->ep->rank,
		.value = value,
		.cmp = cmp,
		.peer = NPUWIN_NO_RANK,
	};
	return check_cell(domain, what, buffer, offset, &signal->offset, err);
}

static bool wait_holds(const struct npuwin_domain *domain, struct npuwin_signal *signal)
{
	const struct endpoint *ep = domain->ep;

	signal->observed = npuwin_cell_read(ep->window[ep->rank] + signal->offset);
	return npuwin_compare(signal->observed, signal->cmp, signal->value);
}

static int wait_end(const struct npuwin_domain *domain, const char *what, int rc,
		    uint64_t offset, const struct npuwin_signal *signal, int32_t *observed,
		    struct npuwin_error *err)
{
	if (observed)
		*observed = signal->observed;
	if (!rc)
		return npuwin_ok(err, 0);
	return npuwin_fail(err, rc, domain->ep->rank, NPUWIN_NOBODY,
			   "%s: int32 at offset %" PRIu64 " is %d, expected %s %d", what, offset,
			   signal->observed, cmp_name[signal->cmp], signal->value);
}

int npuwin_test(struct npuwin_domain *domain, const struct npuwin_buffer *buffer,
		uint64_t offset, uint32_t cmp, int32_t value, int32_t *observed,
		struct npuwin_error *err)
{
	struct npuwin_signal signal;
	int rc = wait_prepare(domain, "test", buffer, offset, cmp, value, &signal, err);

	if (rc)
		return rc;
	rc = wait_holds(domain, &signal) ? 0 : -EAGAIN;
	return wait_end(domain, "test", rc, offset, &signal, observed, err);
}

/* The provider could not wait on: @rc is why, @gone who is gone. */
static int wait_broken(const struct npuwin_domain *domain, int rc, uint32_t gone,
		       struct npuwin_error *err)
{
	struct npuwin_cqe cqe = { .rank = gone };

	switch (rc) {
	case -EPIPE:
		cqe.status = NPUWIN_ST_PEER;
		break;
	case -ECANCELED:
		cqe.status = NPUWIN_ST_ABORTED;
		break;
	case -ENODEV:
		cqe.status = NPUWIN_ST_DEVICE;
		break;
	default:
		return npuwin_fail(err, rc, domain->ep->rank, NPUWIN_NOBODY,
				   "wait: the provider failed: %s", strerrordesc_np(-rc));
	}
	return outcome_status(domain, "wait", &cqe, err);
}

int npuwin_wait(struct npuwin_domain *domain, const struct npuwin_buffer *buffer,
		uint64_t offset, uint32_t cmp, int32_t value, int64_t deadline_ns,
		int32_t *observed, struct npuwin_error *err)
{
	struct npuwin_signal signal;
	uint32_t looks = 0, index, gone;
	int rc = wait_prepare(domain, "wait", buffer, offset, cmp, value, &signal, err);

	if (rc)
		return rc;
	if (deadline_ns < 0)
		deadline_ns = 0;
	while (!wait_holds(domain, &signal)) {
		if (looks++ < WAIT_SPINS)
			continue;
		if (looks < WAIT_SPINS + WAIT_YIELDS) {
			sched_yield();
			continue;
		}
		gone = NPUWIN_NO_RANK;
		rc = domain->ctx->ops->signal_wait(domain->ep, &signal, 1, deadline_ns, &index,
						   &gone);
		if (rc == -EINTR)
			continue;
		if (!rc)
			break;
		if (observed)
			*observed = signal.observed;
		if (rc == -ETIMEDOUT || rc == -EAGAIN)
			return wait_end(domain, "wait: deadline", -ETIMEDOUT, offset, &signal,
					observed, err);
		return wait_broken(domain, rc, gone, err);
	}
	return wait_end(domain, "wait", 0, offset, &signal, observed, err);
}

int npuwin_barrier(struct npuwin_domain *domain, int64_t deadline_ns, struct npuwin_error *err)
{
	return collective_run(&domain, COLLECTIVE_BARRIER, NULL, 1, deadline_ns, NULL, err);
}

int npuwin_barrier_group(struct npuwin_domain *const *domains, uint32_t n, int64_t deadline_ns,
			 struct npuwin_error *err)
{
	return collective_run(domains, COLLECTIVE_BARRIER, NULL, n, deadline_ns, NULL, err);
}
