/* SPDX-License-Identifier: MIT */
/* One broken rule of the contract at a time. */
#ifndef CONFORMANCE_VIOLATIONS_H
#define CONFORMANCE_VIOLATIONS_H

#include "conformance.h"

#define VIOLATION_RANKS	2
/* Bytes of a buffer that has room for any two operands. */
#define BIG		4096

/**
 * struct scene - What a violation can be made of.
 * @set: valid operands
 * @other: the same in another domain
 * @big: another buffer of the domain
 */
struct scene {
	struct set set;
	struct set other;
	struct npuwin_buffer *big;
};

/**
 * struct violation - A rule and how it is broken.
 * @apply: breaks it in valid operands
 * @words: that the sentence says
 * @over: what the variants are: operands, or pairs of them
 * @a: operand; where there are variants: the first
 * @b: operand
 * @value: of @apply
 */
struct violation {
	void (*apply)(struct scene *s, struct npuwin_a2av *op, const struct violation *v);
	const char *words[3];
	enum { ITSELF, OPERANDS, PAIRS } over;
	enum operand a;
	enum operand b;
	uint64_t value;
};

void violation_run(const struct config *cfg);

extern const char *const count_names[];

/* The sentence says @x and @y, each of which may be NULL. */
#define VIOLATION(text, fn, x, y, ...)						\
	{ text, violation_run, A_ALL | A_EACH, 0, &(const struct violation){	\
		.apply = (fn), .words = { (x), (y) }, __VA_ARGS__ } }
/* One for each operand, which the sentence names. */
#define EACH_OPERAND(text, fn, ...)						\
	{ text, violation_run, A_ALL | A_EACH, 0, &(const struct violation){	\
		.apply = (fn), .over = OPERANDS, .a = INPUT, __VA_ARGS__ }, operand_names }
/* One for each of the operands that are int32. */
#define EACH_COUNTS(text, fn, ...)						\
	{ text, violation_run, A_ALL | A_EACH, 0, &(const struct violation){	\
		.apply = (fn), .over = OPERANDS, .a = SIGNAL, __VA_ARGS__ }, count_names }

#endif /* CONFORMANCE_VIOLATIONS_H */
