/* SPDX-License-Identifier: MIT */
/*
 * What the subcommands of npuwin share: exit codes, complaints, options, figures.
 */
#ifndef NPUWIN_CLI_H
#define NPUWIN_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ARRAY_SIZE(a)	(sizeof(a) / sizeof((a)[0]))

/* Exit codes; they are part of the interface. */
#define CLI_OK		0
#define CLI_FAILED	1	/* the operation failed, or what arrived is not what was sent */
#define CLI_USAGE	2	/* an option or argument is wrong */
#define CLI_FILE	3	/* a file cannot be read or written, or holds the wrong thing */

/**
 * enum opt_kind - What an option takes.
 * @OPT_FLAG: nothing; @value is a bool
 * @OPT_STRING: a string, of @choices if there are any; @value is a const char *
 * @OPT_UINT: a number in @min..@max; @value is a uint64_t
 * @OPT_SECONDS: seconds, fractions allowed; @value is a double
 * @OPT_CHOICE: one of @choices; @value is an int, its index
 * @OPT_SET: nothing; @value is an int that becomes @min; another @OPT_SET option of the
 *	same @value excludes it
 */
enum opt_kind {
	OPT_FLAG,
	OPT_STRING,
	OPT_UINT,
	OPT_SECONDS,
	OPT_CHOICE,
	OPT_SET,
};

/* An option of a subcommand; a table ends with a NULL @name. */
struct opt {
	const char *name;
	const char *arg;
	const char *help;
	enum opt_kind kind;
	void *value;
	uint64_t min;
	uint64_t max;
	const char *const *choices;
};

#define OPT_TABLES	2

/* A subcommand; its unused tables of options are NULL. */
struct command {
	const char *name;
	const char *summary;
	const char *usage;
	const char *text;
	const char *example;
	const struct opt *opts[OPT_TABLES];
	int (*run)(int argc, char **argv);
};

/* What --provider takes. */
extern const char *const provider_names[];

extern const struct command cmd_a2av;
extern const struct command cmd_doctor;
extern const struct command cmd_info;
extern const struct command cmd_list;
extern const struct command cmd_moe;

/* complain() - Write a sentence to stderr, after the command's name; its value is @code. */
#define complain(code, ...)	(cli_complain(__VA_ARGS__), (code))
void cli_complain(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/** cli_set_command() - Whose complaints these are. */
void cli_set_command(const char *name);
const char *cli_command(void);

/** cli_exit_codes() - The text on exit codes that every --help ends with. */
const char *cli_exit_codes(void);

/** cli_flush() - Return: @code, or CLI_FAILED if stdout could not be written. */
int cli_flush(int code);

/**
 * opt_parse() - Take options out of @argv.
 * @tables: OPT_TABLES of them
 * @argc: in/out: number of arguments, then of those that are no options
 * @argv: arguments; those that are no options are moved to the front
 *
 * Return: 0, or CLI_USAGE after a complaint that names the option.
 */
int opt_parse(const struct opt *const *tables, int *argc, char **argv);

/** opt_print() - Print the tables for people. */
void opt_print(const struct opt *const *tables);

/** opt_no_arguments() - Complain of what opt_parse() left over. Return: 0 or CLI_USAGE. */
int opt_no_arguments(int argc, char **argv);

/** opt_closest() - Return: the name in @names (NULL-terminated) that @word may mean, or NULL. */
const char *opt_closest(const char *word, const char *const *names);

/** human_bytes() - "1.5 MB", powers of 1000. Return: @buf. */
const char *human_bytes(char *buf, size_t len, double bytes);

/** human_seconds() - "12.3 ms". Return: @buf. */
const char *human_seconds(char *buf, size_t len, double seconds);

/**
 * provider_text() - The provider and why it was taken: "shm, because ...".
 * @buf: where it is written to
 * @len: size of @buf
 * @name: as of npuwin_provider_name()
 * @reason: as of npuwin_provider_reason()
 *
 * Return: @buf.
 */
const char *provider_text(char *buf, size_t len, const char *name, const char *reason);

/** now_ns() - Nanoseconds of CLOCK_MONOTONIC. */
uint64_t now_ns(void);

#endif /* NPUWIN_CLI_H */
