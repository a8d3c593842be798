// SPDX-License-Identifier: MIT
/*
 * Which ranks run here, and by what they meet those that do not.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "counts.h"
#include "run.h"

static int read_secret(struct run_args *args)
{
	size_t length = 0;
	ssize_t n = 1;
	int fd = open(args->secret_file, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return complain(CLI_FILE, "cannot read %s: %s", args->secret_file,
				strerror(errno));
	while (n > 0 && length < sizeof(args->secret)) {
		n = read(fd, args->secret + length, sizeof(args->secret) - length);
		if (n > 0)
			length += (size_t)n;
	}
	if (n < 0)
		cli_complain("cannot read %s: %s", args->secret_file, strerror(errno));
	close(fd);
	if (n < 0)
		return CLI_FILE;
	if (length < NPUWIN_BOOTSTRAP_MIN_SECRET || length == sizeof(args->secret))
		return complain(CLI_FILE, "cannot use %s as a secret: it has %s%zu bytes, not %d..%zu",
				args->secret_file, length == sizeof(args->secret) ?
				"at least " : "", length, NPUWIN_BOOTSTRAP_MIN_SECRET,
				sizeof(args->secret) - 1);
	args->secret_bytes = length;
	return 0;
}

/* Digits, and what comes after them. */
static bool take_rank(const char **text, uint64_t *rank)
{
	char *end;

	if (**text < '0' || **text > '9')
		return false;
	errno = 0;
	*rank = strtoull(*text, &end, 10);
	*text = end;
	return !errno;
}

static int parse_local(struct run_args *args)
{
	const char *text = args->local;
	uint64_t first = 0, last;
	bool good = take_rank(&text, &first);

	last = first;
	if (good && *text == '-') {
		text++;
		good = take_rank(&text, &last);
	}
	if (!good || *text)
		return complain(CLI_USAGE, "--local takes ranks, FIRST-LAST, not '%s'",
				args->local);
	if (first > last || last >= args->ranks)
		return complain(CLI_USAGE, "--local %s is not within ranks 0-%llu", args->local,
				(unsigned long long)args->ranks - 1);
	args->first = (uint32_t)first;
	args->count = (uint32_t)(last - first + 1);
	return 0;
}

int run_args_place(struct run_args *args)
{
	int rc;

	args->first = 0;
	args->count = (uint32_t)args->ranks;
	if (!args->bootstrap && args->local)
		return complain(CLI_USAGE, "--local needs --bootstrap, to meet the other ranks");
	if (!args->bootstrap && args->secret_file)
		return complain(CLI_USAGE, "--secret-file needs --bootstrap, whose secret it has");
	if (!args->bootstrap)
		return 0;
	if (!args->local)
		return complain(CLI_USAGE, "--bootstrap needs --local, the ranks that run here");
	if (args->form == FORM_GROUP)
		return complain(CLI_USAGE, "--bootstrap and --group exclude each other");
	if (args->rail == NPUWIN_RAIL_DIRECT)
		return complain(CLI_USAGE, "--bootstrap and --rail direct exclude each other");
	if (strncmp(args->bootstrap, "unix:", 5) && strncmp(args->bootstrap, "tcp:", 4))
		return complain(CLI_USAGE, "--bootstrap takes unix:PATH or tcp:HOST:PORT, not '%s'",
				args->bootstrap);
	if (!strncmp(args->bootstrap, "tcp:", 4) && !args->secret_file)
		return complain(CLI_USAGE, "--bootstrap %s needs --secret-file", args->bootstrap);
	rc = parse_local(args);
	if (!rc && args->secret_file)
		rc = read_secret(args);
	return rc;
}

uint64_t rows_here(const struct run_args *args, const struct counts *c)
{
	return counts_of(c, args->first, args->count);
}

void place_print(const struct run_args *args, const struct counts *c)
{
	if (args->bootstrap)
		printf("  here      ranks %u-%u, which sent %llu rows; the others at %s\n",
		       args->first, args->first + args->count - 1,
		       (unsigned long long)rows_here(args, c),
		       args->bootstrap);
}

int join_elsewhere(const struct run_args *args, struct npuwin *ctx,
		   const struct npuwin_domain_attr *attr, struct npuwin_bootstrap **bootstrap,
		   struct npuwin_domain **domain, struct npuwin_error *err)
{
	const struct npuwin_bootstrap_attr bs = {
		.address = args->bootstrap,
		.nranks = attr->nranks,
		.rank = attr->rank,
		.secret = args->secret_bytes ? args->secret : NULL,
		.secret_bytes = args->secret_bytes,
		.deadline_ns = attr->deadline_ns,
	};
	int rc;

	rc = npuwin_bootstrap_connect(&bs, bootstrap, err);
	if (rc)
		return rc;
	rc = npuwin_domain_join_bootstrap(ctx, attr, *bootstrap, domain, err);
	if (rc) {
		npuwin_bootstrap_free(*bootstrap);
		*bootstrap = NULL;
	}
	return rc;
}
