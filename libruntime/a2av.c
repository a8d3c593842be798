// SPDX-License-Identifier: MIT
/*
 * The programs of collectives, and all_to_all_v's.
 */
#include "collective.h"

/* Descriptors for each destination of an all_to_all_v, behind its handshake. */
enum { BLOCK, COUNT, CREDIT, PER_DEST };

uint32_t collective_count(uint32_t kind, uint32_t nranks)
{
	uint32_t count = handshake_count(nranks);

	return kind == COLLECTIVE_A2AV ? count + PER_DEST * nranks + 1 : count;
}

void collective_build(const struct endpoint *ep, const struct plan *plan,
		      struct npuwin_desc *descs)
{
	const struct npuwin_a2av *op = &plan->op;
	uint64_t block = plan->shape.max_recv * plan->shape.row_bytes;
	uint32_t i;

	handshake_build(ep, descs);
	if (plan->kind != COLLECTIVE_A2AV)
		return;
	descs += handshake_count(ep->nranks);
	for (i = 0; i < ep->nranks; i++, descs += PER_DEST) {
		uint32_t dest = (ep->rank + 1 + i) % ep->nranks;

		descs[BLOCK] = (struct npuwin_desc) {
			.opcode = NPUWIN_OP_TPUT,
			.sub = NPUWIN_PUT_COPY,
			.rank = dest,
			.src_off = op->input.buffer->offset + op->input.offset + dest * block,
			.dst_off = plan->signature.target + ep->rank * block,
			.rows = 1,
			.row_bytes = block,
		};
		descs[COUNT] = (struct npuwin_desc) {
			.opcode = NPUWIN_OP_TNOTIFY,
			.sub = NPUWIN_NOTIFY_SET,
			.rank = dest,
			.dst_off = plan->signature.recv_counts + ep->rank * sizeof(int32_t),
		};
		descs[CREDIT] = (struct npuwin_desc) {
			.opcode = NPUWIN_OP_TNOTIFY,
			.sub = NPUWIN_NOTIFY_ADD,
			.rank = dest,
			.dst_off = plan->signature.signal + ep->rank * sizeof(int32_t),
			.value = 1,
		};
	}
	*descs = (struct npuwin_desc) {
		.opcode = NPUWIN_OP_TWAIT,
		.flags = NPUWIN_TWAIT_F_CONSUME | NPUWIN_TWAIT_F_BY_RANK,
		.sub = NPUWIN_CMP_GE,
		.src_off = plan->signature.signal,
		.rows = ep->nranks,
		.value = 1,
		.src_stride = sizeof(int32_t),
	};
}

void collective_patch(struct npuwin_request *request, int64_t deadline_ns)
{
	const struct plan *plan = request->plan;
	const struct endpoint *ep = request->domain->ep;
	const struct npuwin_tensor *tensor = &plan->op.send_counts;
	struct npuwin_desc *descs = request_program(request) + handshake_count(ep->nranks);
	int32_t max_recv = (int32_t)plan->shape.max_recv;
	const int32_t *counts;
	uint32_t dest;

	if (plan->kind != COLLECTIVE_A2AV)
		return;
	counts = (const int32_t *)(ep->window[ep->rank] + tensor->buffer->offset + tensor->offset);
	for (dest = 0; dest < ep->nranks; dest++) {
		uint32_t i = (dest + ep->nranks - ep->rank - 1) % ep->nranks;
		/* Whoever can write the counts now, one value is used for all. */
		int32_t count = __atomic_load_n(&counts[dest], __ATOMIC_RELAXED);
		int32_t sent = count < 0 ? 0 : count > max_recv ? max_recv : count;

		if (sent != count)
			request->clamps[request->nclamped++] = (struct npuwin_clamp) {
				.dest = dest,
				.requested = count,
				.sent = sent,
			};
		descs[PER_DEST * i + COUNT].value = sent;
		if (plan->op.mode == NPUWIN_MODE_ROWS)
			descs[PER_DEST * i + BLOCK].row_bytes =
				(uint64_t)sent * plan->shape.row_bytes;
		request->bytes += descs[PER_DEST * i + BLOCK].row_bytes;
	}
	descs[PER_DEST * ep->nranks].deadline_ns = deadline_ns;
}

int npuwin_all_to_all_v(struct npuwin_domain *domain, const struct npuwin_a2av *op,
			int64_t deadline_ns, struct npuwin_a2av_result *result,
			struct npuwin_error *err)
{
	return collective_run(&domain, COLLECTIVE_A2AV, op, 1, deadline_ns, result, err);
}

int npuwin_all_to_all_v_group(struct npuwin_domain *const *domains,
			      const struct npuwin_a2av *ops, uint32_t n, int64_t deadline_ns,
			      struct npuwin_a2av_result *results, struct npuwin_error *err)
{
	return collective_run(domains, COLLECTIVE_A2AV, ops, n, deadline_ns, results, err);
}

int npuwin_all_to_all_v_start(struct npuwin_domain *domain, const struct npuwin_a2av *op,
			      int64_t deadline_ns, struct npuwin_request **request,
			      struct npuwin_error *err)
{
	return collective_start(domain, op, deadline_ns, request, err);
}
