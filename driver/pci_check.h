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
 * npuwin_hw_cqe_wrong() - What is wrong with a completion.
 * @cqe: a copy of it
 * @desc: the descriptor with its number
 * @nranks: ranks in the domain
 *
 * Its number and user_data are the caller's to look at.
 *
 * Return: words for a log, or NULL if nothing is.
 */
const char *npuwin_hw_cqe_wrong(const struct npuwin_cqe *cqe, const struct npuwin_desc *desc,
				__u32 nranks);

#endif /* NPUWIN_PCI_CHECK_H */
