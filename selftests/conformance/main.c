// SPDX-License-Identifier: MIT
/*
 * Runs the list: TAP on standard output, one process group and one deadline for each case.
 * After a case nothing of it may be left: no process, descriptor, name or window memory.
 */
#include <dirent.h>
#include <fnmatch.h>
#include <getopt.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conformance.h"

static const struct suite *const suites[] = {
	&suite_golden, &suite_counts, &suite_violations, &suite_shapes, &suite_disagree,
	&suite_stress, &suite_plans, &suite_requests, &suite_primitives, &suite_put,
	&suite_death, &suite_deadline, &suite_domains, &suite_lifecycle, &suite_limits,
	&suite_routing, &suite_calls,
};

static const char *const rail_names[] = { "host", "direct" };
static const char *const form_names[] = { "threads", "processes", "group", "bootstrap" };
static const char *const mode_names[] = { "block", "rows" };

struct options {
	char provider[8];
	int rail;
	int form;
	int mode;
	const char *filter;
	bool list;
	bool brief;
	int timeout_ms;
	bool peer_map;
	bool bootstrap;
};

struct tally {
	unsigned int pass;
	unsigned int fail;
	unsigned int skip;
};

/* Names in shared memory that hold @word. */
static unsigned int count_names(const char *word)
{
	DIR *dir = opendir("/dev/shm");
	struct dirent *entry;
	unsigned int n = 0;

	while (dir && (entry = readdir(dir)))
		n += !!strstr(entry->d_name, word);
	if (dir)
		closedir(dir);
	return n;
}

static unsigned int count_sockets(const char *word)
{
	FILE *f = fopen("/proc/net/unix", "r");
	unsigned int n = 0;
	char line[512];

	while (f && fgets(line, sizeof(line), f))
		n += !!strstr(line, word);
	if (f)
		fclose(f);
	return n;
}

static uint64_t memory_used(const struct options *opt)
{
	struct npuwin_device_info info;
	struct npuwin *ctx;
	uint64_t used = 0;
	int i;

	if (npuwin_open(opt->provider, &ctx, NULL))
		return 0;
	for (i = 0; i < npuwin_device_count(ctx); i++)
		if (!npuwin_device_info(ctx, i, &info, NULL))
			used += info.memory_used;
	npuwin_close(ctx);
	return used;
}

/* Nothing is left of case @pid. The kernel may still be ending what a killed one held. */
static bool clean_again(const struct options *opt, pid_t pid, uint64_t used_before)
{
	int64_t give_up = npuwin_deadline_ms(5000);
	unsigned int names, sockets;
	uint64_t used;
	char word[32];

	snprintf(word, sizeof(word), "conformance-%d-", (int)pid);
	for (;;) {
		used = memory_used(opt);
		names = count_names(word);
		sockets = count_sockets(word);
		if (used == used_before && !names && !sockets)
			return true;
		if (npuwin_deadline_ms(0) > give_up)
			break;
		sched_yield();
	}
	printf("# left: %lld bytes of window memory, %u names, %u sockets\n",
	       (long long)(used - used_before), names, sockets);
	return false;
}

static void child_main(const struct test_case *c, const struct config *cfg, int log)
{
	int fds;

	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	dup2(log, STDOUT_FILENO);
	dup2(log, STDERR_FILENO);
	close(log);
	signal(SIGPIPE, SIG_IGN);
	fds = count_fds();
	c->run(cfg);
	CHECK_EQ(count_fds(), fds);
	exit(EXIT_PASS);
}

/* Wait status of @pid; killed with its group when the time is up. */
static int wait_for_group(pid_t pid, int timeout_ms, bool *late)
{
	struct pollfd pfd = { .events = POLLIN };
	int status = 0, ret;

	pfd.fd = syscall(SYS_pidfd_open, pid, 0);
	do {
		ret = poll(&pfd, 1, timeout_ms);
	} while (ret < 0 && errno == EINTR);
	close(pfd.fd);
	*late = ret == 0;
	if (*late)
		kill(-pid, SIGKILL);
	waitpid(pid, &status, 0);
	return status;
}

/* End what is left of the group. */
static bool reap_group(pid_t pgid)
{
	bool left = !kill(-pgid, SIGKILL);

	while (waitpid(-pgid, NULL, 0) > 0)
		;
	return left;
}

static void print_log(int log, const char *prefix)
{
	char line[1024];
	FILE *f;

	lseek(log, 0, SEEK_SET);
	f = fdopen(log, "r");
	while (f && fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\n")] = 0;
		printf("%s%s\n", prefix, line);
	}
	if (f)
		fclose(f);
}

static void first_line(int log, char *line, size_t size)
{
	ssize_t n = pread(log, line, size - 1, 0);

	line[n > 0 ? n : 0] = 0;
	line[strcspn(line, "\n")] = 0;
}

static void run_case(const struct options *opt, const struct test_case *c,
		     const struct config *cfg, const char *name, unsigned int number,
		     struct tally *tally)
{
	uint64_t used = memory_used(opt);
	int log = memfd_create("log", MFD_CLOEXEC);
	bool late, left, passed;
	char reason[256];
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (!pid)
		child_main(c, cfg, log);
	setpgid(pid, pid);
	status = wait_for_group(pid, opt->timeout_ms, &late);
	left = reap_group(pid);

	if (!late && WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SKIP) {
		first_line(log, reason, sizeof(reason));
		close(log);
		printf("ok %u - %s # SKIP %s\n", number, name, reason);
		tally->skip++;
		return;
	}
	passed = !late && !left && WIFEXITED(status) && WEXITSTATUS(status) == EXIT_PASS;
	if (late)
		printf("# not done after %d ms\n", opt->timeout_ms);
	else if (left && WIFEXITED(status) && WEXITSTATUS(status) == EXIT_PASS)
		printf("# processes left\n");
	else if (!passed)
		printf("# wait status %#x\n", status);
	passed = clean_again(opt, pid, used) && passed;
	print_log(log, "# ");
	printf("%s %u - %s\n", passed ? "ok" : "not ok", number, name);
	if (passed)
		tally->pass++;
	else
		tally->fail++;
}

/* Whether a case that varies over @axes has the cell, or @brief leaves it out. */
static bool in_axes(unsigned int axes, bool brief, int rail, int form, int mode)
{
	unsigned int bits = A_HOST << rail | A_THREADS << form | A_BLOCK << mode;

	if (!(axes & A_RAILS))
		bits &= ~A_RAILS;
	if (!(axes & A_FORMS))
		bits &= ~A_FORMS;
	if (!(axes & A_MODES))
		bits &= ~A_MODES;
	if ((axes & bits) != bits)
		return false;
	/* It has one rail. */
	if (form == FORM_BOOTSTRAP && rail == NPUWIN_RAIL_DIRECT)
		return false;
	if (!brief)
		return true;
	if (form == FORM_BOOTSTRAP && axes & A_EACH)
		return mode == NPUWIN_MODE_ROWS;
	if (axes & A_PAIRS)
		return (rail + mode + (form == FORM_PROCESSES)) % 2 == 0;
	if (axes & A_EACH)
		return rail == (form != FORM_THREADS) && mode == (form == FORM_PROCESSES);
	return true;
}

static bool wanted(int option, unsigned int axis, unsigned int axes, int value)
{
	if (!(axes & axis))
		return value == 0;
	return option < 0 || option == value;
}

typedef void (*cell_fn)(const struct options *opt, const struct test_case *c,
			const struct config *cfg, const char *name, unsigned int number,
			struct tally *tally);

static void visit_cell(const struct options *opt, const struct test_case *c,
		       const struct config *cfg, cell_fn fn, unsigned int *number,
		       struct tally *tally)
{
	unsigned int a = c->axes;
	char name[256];

	if (cfg->form == FORM_BOOTSTRAP && !opt->bootstrap)
		return;
	if (!wanted(opt->rail, A_RAILS, a, cfg->rail) ||
	    !wanted(opt->form, A_FORMS, a, cfg->form) ||
	    !wanted(opt->mode, A_MODES, a, cfg->mode) ||
	    !in_axes(a, cfg->brief, cfg->rail, cfg->form, cfg->mode))
		return;
	snprintf(name, sizeof(name), "%s/%s/%s/%s: %s%s%s", opt->provider,
		 a & A_RAILS ? rail_names[cfg->rail] : "-",
		 a & A_FORMS ? form_names[cfg->form] : "-",
		 a & A_MODES ? mode_names[cfg->mode] : "-", c->name,
		 c->variants ? ": " : "", c->variants ? c->variants[cfg->variant] : "");
	if (!opt->filter || !fnmatch(opt->filter, name, 0))
		fn(opt, c, cfg, name, ++*number, tally);
}

static void visit_variant(const struct options *opt, const struct test_case *c,
			  uint32_t variant, cell_fn fn, unsigned int *number,
			  struct tally *tally)
{
	struct config cfg = {
		.provider = opt->provider, .brief = opt->brief, .arg = c->arg, .data = c->data,
		.variant = variant,
	};

	for (cfg.rail = 0; cfg.rail < ARRAY_SIZE(rail_names); cfg.rail++)
		for (cfg.form = 0; cfg.form < ARRAY_SIZE(form_names); cfg.form++)
			for (cfg.mode = 0; cfg.mode < ARRAY_SIZE(mode_names); cfg.mode++)
				visit_cell(opt, c, &cfg, fn, number, tally);
}

static void visit_case(const struct options *opt, const struct test_case *c, cell_fn fn,
		       unsigned int *number, struct tally *tally)
{
	uint32_t variant = 0;

	do {
		visit_variant(opt, c, variant++, fn, number, tally);
	} while (c->variants && c->variants[variant]);
}

static unsigned int visit(const struct options *opt, cell_fn fn, struct tally *tally)
{
	unsigned int number = 0;
	size_t s, i;

	for (s = 0; s < ARRAY_SIZE(suites); s++)
		for (i = 0; i < suites[s]->count; i++)
			visit_case(opt, &suites[s]->cases[i], fn, &number, tally);
	return number;
}

static void count_cell(const struct options *opt, const struct test_case *c,
		       const struct config *cfg, const char *name, unsigned int number,
		       struct tally *tally)
{
	if (opt->list)
		puts(name);
}

static void run_cell(const struct options *opt, const struct test_case *c,
		     const struct config *cfg, const char *name, unsigned int number,
		     struct tally *tally)
{
	if (cfg->rail == NPUWIN_RAIL_DIRECT && !opt->peer_map) {
		printf("ok %u - %s # SKIP the device does not map peer windows\n", number, name);
		tally->skip++;
		return;
	}
	run_case(opt, c, cfg, name, number, tally);
	fflush(stdout);
}

static int pick(const char *what, const char *value, const char *const *names, int n)
{
	int i;

	for (i = 0; i < n; i++)
		if (!strcmp(value, names[i]))
			return i;
	fprintf(stderr, "conformance: unknown %s \"%s\"\n", what, value);
	exit(EXIT_FAIL);
}

static void print_help(FILE *to)
{
	fputs("usage: conformance [--provider shm|dev] [--rail host|direct]\n"
	      "\t[--form threads|processes|group|bootstrap] [--mode block|rows]\n"
	      "\t[--filter GLOB] [--list] [--short]\n"
	      "The form bootstrap needs devices on a fabric. --short: fewer repetitions, and of\n"
	      "most items not the whole product of rails, forms and modes.\n"
	      "NPUWIN_TEST_SHORT=1 is --short; NPUWIN_TEST_TIMEOUT is the time of a case in\n"
	      "seconds (120); NPUWIN_TEST_DATA is the folder of the real routing.\n", to);
}

static const char *parse(int argc, char **argv, struct options *opt)
{
	static const struct option longs[] = {
		{ "provider", required_argument, NULL, 'p' },
		{ "rail", required_argument, NULL, 'r' },
		{ "form", required_argument, NULL, 'f' },
		{ "mode", required_argument, NULL, 'm' },
		{ "filter", required_argument, NULL, 'F' },
		{ "list", no_argument, NULL, 'l' },
		{ "short", no_argument, NULL, 's' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	const char *env = getenv("NPUWIN_TEST_SHORT"), *provider = NULL;
	long seconds;
	int c;

	opt->brief = env && strcmp(env, "0");
	env = getenv("NPUWIN_TEST_TIMEOUT");
	seconds = env ? strtol(env, NULL, 10) : 0;
	opt->timeout_ms = seconds > 0 && seconds < 100000 ? seconds * 1000 : 120000;
	while ((c = getopt_long(argc, argv, "", longs, NULL)) >= 0) {
		switch (c) {
		case 'p':
			provider = optarg;
			break;
		case 'r':
			opt->rail = pick("rail", optarg, rail_names, 2);
			break;
		case 'f':
			opt->form = pick("form", optarg, form_names, 4);
			break;
		case 'm':
			opt->mode = pick("mode", optarg, mode_names, 2);
			break;
		case 'F':
			opt->filter = optarg;
			break;
		case 'l':
			opt->list = true;
			break;
		case 's':
			opt->brief = true;
			break;
		default:
			print_help(c == 'h' ? stdout : stderr);
			exit(c == 'h' ? EXIT_PASS : EXIT_FAIL);
		}
	}
	if (optind < argc) {
		print_help(stderr);
		exit(EXIT_FAIL);
	}
	return provider;
}

/* Whether there can be ranks that do not share a domain; otherwise @err says why not. */
static bool probe_bootstrap(struct npuwin *ctx, struct npuwin_error *err)
{
	const struct npuwin_domain_attr attr = {
		.nranks = 1, .window_size = MIB, .device = -1, .deadline_ns = far(),
	};
	struct npuwin_domain *domain;
	struct npuwin_bootstrap *bs;
	int ret;

	if (npuwin_bootstrap_local(1, &bs, err))
		return false;
	ret = npuwin_domain_join_bootstrap(ctx, &attr, bs, &domain, err);
	npuwin_domain_leave(domain);
	npuwin_bootstrap_free(bs);
	return !ret;
}

/* Take the provider; false where there is none, or not what was asked for. */
static bool probe(const char *provider, struct options *opt)
{
	struct npuwin_device_info info;
	struct npuwin_error err;
	struct npuwin *ctx;
	int ret, i;

	ret = npuwin_open(provider, &ctx, &err);
	if (ret) {
		printf("1..0 # SKIP %s\n", err.text);
		return false;
	}
	snprintf(opt->provider, sizeof(opt->provider), "%s", npuwin_provider_name(ctx));
	if (!opt->list)
		printf("# %s\n", npuwin_provider_reason(ctx));
	opt->peer_map = true;
	for (i = 0; i < npuwin_device_count(ctx); i++)
		if (npuwin_device_info(ctx, i, &info, &err) || !info.peer_map)
			opt->peer_map = false;
	opt->bootstrap = probe_bootstrap(ctx, &err);
	npuwin_close(ctx);
	if (opt->form == FORM_BOOTSTRAP && !opt->bootstrap) {
		printf("1..0 # SKIP %s\n", err.text);
		return false;
	}
	return true;
}

int main(int argc, char **argv)
{
	struct options opt = { .rail = -1, .form = -1, .mode = -1 };
	struct tally tally = { 0 };
	const char *provider = parse(argc, argv, &opt);
	unsigned int n;
	bool list;

	/* Results that are out survive what comes after them. */
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (!opt.list)
		puts("TAP version 13");
	if (!probe(provider, &opt))
		return EXIT_SKIP;
	list = opt.list;
	n = visit(&opt, count_cell, &tally);
	if (list)
		return EXIT_PASS;
	printf("1..%u\n", n);
	fflush(stdout);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	visit(&opt, run_cell, &tally);
	printf("# Totals: pass:%u fail:%u xfail:0 xpass:0 skip:%u error:0\n", tally.pass,
	       tally.fail, tally.skip);
	if (tally.fail)
		return EXIT_FAIL;
	return tally.pass ? EXIT_PASS : EXIT_SKIP;
}
