/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * What a device says is checked before it is believed. For the driver, and for a fuzzer that
 * runs in userspace.
 */
#ifndef NPUWIN_PCI_CHECK_H
#define NPUWIN_PCI_CHECK_H

#ifdef __KERNEL__
#include <linux/types.h>
#else
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#endif

#include "npuwin_hw.h"

/**
 * npuwin_hw_ident_wrong() - What is wrong with an identification.
 * @ident: a copy of it
 * @bar: bytes of BAR2
 *
 * Return: words for a log, or NULL if nothing is.
 */
const char *npuwin_hw_ident_wrong(const struct npuwin_hw_ident *ident, __u64 bar);

/**
 * struct npuwin_hw_progress - How far a queue is, as the driver knows it.
 * @posted: descriptors published
 * @through: of these, how many the device has said are through
 * @tail: of these, how many have been retired; ahead of @through behind a failure
 * @taken: completions taken, free-running
 * @size: slots of either ring
 */
struct npuwin_hw_progress {
	__u64 posted;
	__u64 through;
	__u64 tail;
	__u32 taken;
	__u32 size;
};

/**
 * npuwin_hw_state_wrong() - What is wrong with how far a queue says that it is.
 * @known: what is known
 * @sq_head: what its state says
 * @cq_tail: the same
 *
 * Return: words for a log, or NULL if nothing is.
 */
const char *npuwin_hw_state_wrong(const struct npuwin_hw_progress *known, __u32 sq_head,
				  __u32 cq_tail);

/**
 * npuwin_hw_seq_wrong() - What is wrong with the number of a completion.
 * @known: what is known
 * @cqe: a copy of it
 * @void_now: out, where nothing is: the driver has completed that one itself
 *
 * Return: words for a log, or NULL if nothing is.
 */
const char *npuwin_hw_seq_wrong(const struct npuwin_hw_progress *known,
				const struct npuwin_cqe *cqe, bool *void_now);

/**
 * npuwin_hw_cqe_wrong() - What is wrong with a completion.
 * @cqe: a copy of it
 * @desc: the descriptor with its number
 * @nranks: ranks in the domain
 *
 * For its number see npuwin_hw_seq_wrong(); its user_data is not to be used.
 *
 * Return: words for a log, or NULL if nothing is.
 */
const char *npuwin_hw_cqe_wrong(const struct npuwin_cqe *cqe, const struct npuwin_desc *desc,
				__u32 nranks);

#endif /* NPUWIN_PCI_CHECK_H */
