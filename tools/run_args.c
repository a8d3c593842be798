// SPDX-License-Identifier: MIT
#include "ranks.h"

const char *const run_rails[] = {
	[NPUWIN_RAIL_HOST] = "host",
	[NPUWIN_RAIL_DIRECT] = "direct",
	NULL
};

const char *const run_modes[] = {
	[NPUWIN_MODE_BLOCK] = "block",
	[NPUWIN_MODE_ROWS] = "rows",
	NULL
};

const char *const run_forms[] = {
	[FORM_THREADS] = "threads",
	[FORM_PROCESSES] = "processes",
	[FORM_GROUP] = "group",
};

struct run_args run_args = {
	.iterations = 1,
	.timeout = 120,
	.form = -1,
};

const struct opt run_opts[] = {
	{ "mode", "block|rows", "what crosses of a block: all of it (default), or only\n"
	  "the counted rows", OPT_CHOICE, &run_args.mode, 0, 0, run_modes },
	{ "rail", "host|direct", "who moves the bytes: the engine (default), or the\n"
	  "calling core", OPT_CHOICE, &run_args.rail, 0, 0, run_rails },
	{ "provider", "shm|dev", "software NPUs in memory, or the driver; by default the\n"
	  "driver where it is usable", OPT_STRING, &run_args.provider, 0, 0,
	  provider_names },
	{ "bootstrap", "ADDR", "only some of the ranks run here; they meet the others at\n"
	  "tcp:HOST:PORT or unix:PATH, where rank 0 listens", OPT_STRING,
	  &run_args.bootstrap },
	{ "secret-file", "FILE", "the secret of who meets there, 16 to 4096 bytes", OPT_STRING,
	  &run_args.secret_file },
	{ "local", "FIRST-LAST", "the ranks that run here", OPT_STRING, &run_args.local },
	{ "threads", NULL, "ranks are threads of this process (default)", OPT_SET,
	  &run_args.form, FORM_THREADS },
	{ "processes", NULL, "ranks are processes", OPT_SET, &run_args.form, FORM_PROCESSES },
	{ "group", NULL, "one thread drives all ranks", OPT_SET, &run_args.form, FORM_GROUP },
	{ "iterations", "K", "do it K times and verify each (default 1)", OPT_UINT,
	  &run_args.iterations, 1, RANKS_MAX_ITERATIONS },
	{ "timeout", "SECONDS", "how long a call waits for other ranks (default 120)",
	  OPT_SECONDS, &run_args.timeout },
	{ "json", NULL, "print JSON", OPT_FLAG, &run_args.json },
	{ "quiet", NULL, "no lines on progress, no summary", OPT_FLAG, &run_args.quiet },
	{ NULL }
};
