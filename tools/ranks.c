// SPDX-License-Identifier: MIT
/*
 * Who runs what: the first thread only watches (signals, progress, ends of processes); one
 * more thread makes the domain and drives the ranks or starts a thread for each; or each
 * rank is a process. What ranks tell is in memory that all of them share, so that the three
 * forms end in one report.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "run.h"

/* How long ranks may take to tell why they failed, once one did. */
#define GRACE_NS	2000000000ULL

/* Those that a terminal sends are for who watches; the others may be for a rank. */
static const int terminal_signals[] = { SIGINT, SIGHUP, SIGQUIT };
static const int other_signals[] = { SIGTERM, SIGALRM, SIGUSR1, SIGUSR2, SIGXCPU };

/* What is ignored from the start, as nohup does, stays so: blocked, it would be seen. */
static void add_signals(sigset_t *set, const int *signals, size_t n)
{
	struct sigaction sa;

	for (size_t i = 0; i < n; i++)
		if (!sigaction(signals[i], NULL, &sa) && sa.sa_handler != SIG_IGN)
			sigaddset(set, signals[i]);
}

static sigset_t watched_signals(void)
{
	sigset_t set;

	sigemptyset(&set);
	add_signals(&set, terminal_signals, ARRAY_SIZE(terminal_signals));
	add_signals(&set, other_signals, ARRAY_SIZE(other_signals));
	sigaddset(&set, SIGCHLD);
	return set;
}

void ranks_block_signals(void)
{
	sigset_t set = watched_signals();

	/* What cannot be written is told, and files are put away. */
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN);
	signal(SIGCHLD, SIG_DFL);
	sigprocmask(SIG_BLOCK, &set, NULL);
}

static void die_of(int signo)
{
	sigset_t set;

	signal(signo, SIG_DFL);
	sigemptyset(&set);
	sigaddset(&set, signo);
	raise(signo);
	sigprocmask(SIG_UNBLOCK, &set, NULL);
	_exit(128 + signo);
}

void ranks_interrupted(const struct program *prog)
{
	sigset_t set = watched_signals();
	const struct timespec now = { 0 };
	int signo;

	sigdelset(&set, SIGCHLD);
	signo = sigtimedwait(&set, NULL, &now);
	if (signo > 0) {
		prog->interrupted(prog->job);
		die_of(signo);
	}
}

struct rank_thread {
	pthread_t thread;
	struct run *run;
	struct npuwin *ctx;
	struct npuwin_domain *domain;
	uint32_t id;
};

static struct npuwin_domain_attr attr_of(const struct run *run, uint32_t id)
{
	return (struct npuwin_domain_attr) {
		.name = run->prog->args->bootstrap ? NULL : run->name,
		.nranks = (uint32_t)run->prog->args->ranks,
		.rank = id,
		.window_size = run->prog->window_size,
		.device = -1,
		.deadline_ns = run_deadline(run->prog),
	};
}

/* A rank that joins, and leaves, by itself. */
static int rank_alone(struct run *run, uint32_t id, struct npuwin *ctx)
{
	const struct npuwin_domain_attr attr = attr_of(run, id);
	struct npuwin_error err = { .rank = NPUWIN_NOBODY };
	struct npuwin_bootstrap *bootstrap = NULL;
	struct npuwin_domain *domain;
	int rc;

	if (run->prog->args->bootstrap)
		rc = join_elsewhere(run->prog->args, ctx, &attr, &bootstrap, &domain, &err);
	else
		rc = npuwin_domain_join(ctx, &attr, &domain, &err);
	if (rc) {
		record_failure(run->shared, id, &err);
		return rc;
	}
	rc = rank_main(run, id, domain);
	npuwin_domain_leave(domain);
	npuwin_bootstrap_free(bootstrap);
	return rc;
}

static void *thread_main(void *arg)
{
	struct rank_thread *t = arg;

	if (t->domain)
		rank_main(t->run, t->id, t->domain);
	else
		rank_alone(t->run, t->id, t->ctx);
	return NULL;
}

/* With @domains, the ranks' memberships; without, each joins by itself. */
static void drive_threads(struct run *run, struct npuwin *ctx, struct npuwin_domain **domains)
{
	uint32_t n = run->prog->args->count, started = 0;
	struct rank_thread *threads = calloc(n, sizeof(*threads));
	int rc;

	if (!threads) {
		fail_run(run, -ENOMEM, "cannot start the ranks");
		return;
	}
	for (; started < n; started++) {
		struct rank_thread *t = &threads[started];

		t->run = run;
		t->ctx = ctx;
		t->domain = domains ? domains[started] : NULL;
		t->id = run->prog->args->first + started;
		rc = pthread_create(&t->thread, NULL, thread_main, t);
		if (rc) {
			fail_run(run, -rc, "cannot start a thread for each rank");
			if (domains)
				npuwin_domain_abort(domains[0], rc);
			break;
		}
	}
	while (started)
		pthread_join(threads[--started].thread, NULL);
	free(threads);
}

static void tell_provider(struct run_shared *sh, const struct npuwin *ctx)
{
	snprintf(sh->reason, sizeof(sh->reason), "%s", npuwin_provider_reason(ctx));
	snprintf(sh->provider, sizeof(sh->provider), "%s", npuwin_provider_name(ctx));
}

/* All ranks are here: make a domain of them. */
static void drive_all(struct run *run, struct npuwin *ctx)
{
	const struct program *prog = run->prog;
	uint32_t n = (uint32_t)prog->args->ranks;
	struct npuwin_domain_attr attr = attr_of(run, 0);
	struct npuwin_error err = { .rank = NPUWIN_NOBODY };
	struct npuwin_domain **domains;

	attr.name = NULL;
	domains = calloc(n, sizeof(struct npuwin_domain *));
	if (!domains) {
		fail_run(run, -ENOMEM, "cannot start the ranks");
	} else if (npuwin_domain_create_local(ctx, &attr, domains, &err)) {
		record_failure(run->shared, n, &err);
	} else {
		if (prog->args->form == FORM_GROUP)
			drive_group(run, domains);
		else
			drive_threads(run, ctx, domains);
		for (uint32_t r = 0; r < n; r++)
			npuwin_domain_leave(domains[r]);
	}
	free(domains);
}

static void drive(struct run *run)
{
	const struct run_args *args = run->prog->args;
	struct npuwin_error err = { .rank = NPUWIN_NOBODY };
	struct npuwin *ctx;

	if (npuwin_open(args->provider, &ctx, &err)) {
		record_failure(run->shared, (uint32_t)args->ranks, &err);
		return;
	}
	tell_provider(run->shared, ctx);
	if (args->bootstrap)
		drive_threads(run, ctx, NULL);
	else
		drive_all(run, ctx);
	npuwin_close(ctx);
}

static void *drive_main(void *arg)
{
	struct run *run = arg;

	drive(run);
	eventfd_write(run->done, 1);
	return NULL;
}

static int process_main(struct run *run, uint32_t id)
{
	const struct run_args *args = run->prog->args;
	struct npuwin_error err = { .rank = NPUWIN_NOBODY };
	struct npuwin *ctx;
	int rc;

	rc = npuwin_open(args->provider, &ctx, &err);
	if (rc) {
		record_failure(run->shared, id, &err);
		return rc;
	}
	if (id == args->first)
		tell_provider(run->shared, ctx);
	rc = rank_alone(run, id, ctx);
	npuwin_close(ctx);
	return rc;
}

static void child(struct run *run, uint32_t id)
{
	char title[16];
	sigset_t set;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != run->parent)
		_exit(CLI_FAILED);
	snprintf(title, sizeof(title), "npuwin-rank%u", id);
	prctl(PR_SET_NAME, title);

	sigemptyset(&set);
	add_signals(&set, other_signals, ARRAY_SIZE(other_signals));
	sigaddset(&set, SIGCHLD);
	sigprocmask(SIG_UNBLOCK, &set, NULL);
	_exit(process_main(run, id) ? CLI_FAILED : CLI_OK);
}

static void kill_processes(struct run *run)
{
	run->killed = true;
	for (uint32_t r = 0; r < run->prog->args->ranks; r++)
		if (run->pids[r] > 0)
			kill(run->pids[r], SIGKILL);
}

static void start_processes(struct run *run)
{
	const struct run_args *args = run->prog->args;

	for (uint32_t r = args->first; is_local(args, r); r++) {
		pid_t pid = fork();

		if (!pid)
			child(run, r);
		if (pid < 0) {
			fail_run(run, -errno, "cannot start a process for each rank");
			kill_processes(run);
			return;
		}
		run->pids[r] = pid;
		run->alive++;
	}
}

static void note_end_of_process(struct run *run, uint32_t r, int status)
{
	struct npuwin_error err = { .rank = (int32_t)r, .peer = NPUWIN_NOBODY };
	pid_t pid = run->pids[r];

	run->pids[r] = 0;
	run->alive--;
	if (run->killed || run->shared->rank[r].failed)
		return;
	if (WIFSIGNALED(status))
		snprintf(err.text, sizeof(err.text), "its process %d was killed by signal %d (%s)",
			 (int)pid, WTERMSIG(status), strsignal(WTERMSIG(status)));
	else if (WEXITSTATUS(status))
		snprintf(err.text, sizeof(err.text), "its process %d ended with exit code %d",
			 (int)pid, WEXITSTATUS(status));
	else
		return;
	err.code = -ESRCH;
	record_failure(run->shared, r, &err);
}

static void reap_processes(struct run *run, int flags)
{
	int status;

	for (uint32_t r = 0; r < run->prog->args->ranks; r++)
		if (run->pids[r] > 0 && waitpid(run->pids[r], &status, flags) == run->pids[r])
			note_end_of_process(run, r, status);
}

static void show_progress(const struct run *run, uint64_t seconds)
{
	const struct run_args *args = run->prog->args;
	uint64_t least = UINT64_MAX;

	for (uint32_t r = args->first; is_local(args, r); r++)
		if (run->shared->rank[r].iterations < least)
			least = run->shared->rank[r].iterations;
	fprintf(stderr, "npuwin %s: %llu s, %llu of %llu iterations done by all ranks%s\n",
		cli_command(), (unsigned long long)seconds, (unsigned long long)least,
		(unsigned long long)args->iterations, args->bootstrap ? " here" : "");
}

static void interrupt(struct run *run, int signo)
{
	if (run->pids) {
		kill_processes(run);
		reap_processes(run, 0);
	}
	run->prog->interrupted(run->prog->job);
	die_of(signo);
}

/* Until every rank has ended. */
static void watch(struct run *run, int signals)
{
	struct pollfd fds[2] = {
		{ .fd = signals, .events = POLLIN },
		{ .fd = run->pids ? -1 : run->done, .events = POLLIN },
	};
	uint64_t begun = now_ns(), failed = 0, shown = 0;
	struct signalfd_siginfo info;

	for (;;) {
		uint64_t now, seconds;

		if (run->pids) {
			reap_processes(run, WNOHANG);
			if (!run->alive)
				return;
		}
		poll(fds, 2, 200);
		if ((fds[0].revents & POLLIN) && read(signals, &info, sizeof(info)) > 0 &&
		    info.ssi_signo != SIGCHLD)
			interrupt(run, (int)info.ssi_signo);
		if (fds[1].revents & POLLIN)
			return;

		now = now_ns();
		if (run->pids && run->shared->failures && !run->killed) {
			if (!failed)
				failed = now;
			else if (now - failed > GRACE_NS)
				kill_processes(run);
		}
		seconds = (now - begun) / 1000000000;
		if (seconds > shown && (seconds <= 5 || seconds % 5 == 0) &&
		    !run->prog->args->quiet) {
			show_progress(run, seconds);
			shown = seconds;
		}
	}
}

/* The failure that explains the others: not that of a rank that only lost a peer. */
static int explain_failure(const struct run *run)
{
	uint32_t n = (uint32_t)run->prog->args->ranks;
	const struct rank_shared *cause = NULL;
	uint64_t least = UINT64_MAX;
	uint32_t slot = 0;

	for (uint32_t r = 0; r <= n; r++) {
		const struct rank_shared *rs = &run->shared->rank[r];
		uint64_t order = rs->failed;

		if (!order)
			continue;
		if (rs->err.code == -EPIPE || rs->err.code == -ECANCELED)
			order += UINT32_MAX;
		if (order < least) {
			least = order;
			cause = rs;
			slot = r;
		}
	}
	if (!cause)
		return 0;
	if (slot < n)
		return complain(CLI_FAILED, "rank %u: %s", slot, cause->err.text);
	return complain(CLI_FAILED, "%s", cause->err.text);
}

static void make_report(const struct run *run, struct run_report *report)
{
	const struct run_args *args = run->prog->args;
	const struct run_shared *sh = run->shared;
	uint32_t last = run->prog->ncalls - 1;

	memset(report, 0, sizeof(*report));
	memcpy(report->provider, sh->provider, sizeof(report->provider));
	memcpy(report->reason, sh->reason, sizeof(report->reason));
	for (uint32_t r = 0; r < args->ranks; r++) {
		for (uint32_t c = 0; c <= last; c++)
			report->bytes[c] += sh->rank[r].bytes[c];
		if (sh->rank[r].mismatch[0] && !report->mismatch[0])
			snprintf(report->mismatch, sizeof(report->mismatch), "rank %u: %s", r,
				 sh->rank[r].mismatch);
	}
	for (uint64_t it = 0; it < args->iterations; it++) {
		const struct times *t = &sh->times[it];
		double all = (double)(t->end[last] - t->start[0]) / 1e9;

		report->seconds += all / (double)args->iterations;
		if (!it || all < report->best)
			report->best = all;
		for (uint32_t c = 0; c <= last; c++)
			report->call_seconds[c] += (double)(t->end[c] - t->start[c]) / 1e9 /
						   (double)args->iterations;
	}
}

static void *shared_memory(size_t len)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

static int start_forms(struct run *run)
{
	uint64_t salt;
	int rc;

	if (run->prog->args->form != FORM_PROCESSES) {
		run->done = eventfd(0, EFD_CLOEXEC);
		if (run->done < 0)
			return -errno;
		rc = pthread_create(&run->driver, NULL, drive_main, run);
		if (rc)
			close(run->done);
		return -rc;
	}
	run->pids = calloc(run->prog->args->ranks, sizeof(*run->pids));
	if (!run->pids)
		return -ENOMEM;
	if (getrandom(&salt, sizeof(salt), 0) != sizeof(salt))
		return -EIO;
	run->parent = getpid();
	snprintf(run->name, sizeof(run->name), "npuwin-cli-%d-%016llx", (int)run->parent,
		 (unsigned long long)salt);
	start_processes(run);
	return 0;
}

int ranks_run(const struct program *prog, struct run_report *report)
{
	size_t ranks_len = sizeof(struct run_shared) +
			   (prog->args->ranks + 1) * sizeof(struct rank_shared);
	size_t times_len = prog->args->iterations * sizeof(struct times);
	sigset_t set = watched_signals();
	struct run run = { .prog = prog, .done = -1 };
	struct times *times = shared_memory(times_len);
	int signals, rc;

	run.shared = shared_memory(ranks_len);
	signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (!times || !run.shared || signals < 0) {
		rc = complain(CLI_FAILED, "cannot start the ranks: %s", strerror(errno));
		goto out;
	}
	run.shared->times = times;

	rc = start_forms(&run);
	if (rc) {
		rc = complain(CLI_FAILED, "cannot start the ranks: %s", strerror(-rc));
		goto out;
	}
	watch(&run, signals);
	if (!run.pids) {
		pthread_join(run.driver, NULL);
		close(run.done);
	}
	rc = explain_failure(&run);
	if (!rc)
		make_report(&run, report);
out:
	free(run.pids);
	if (signals >= 0)
		close(signals);
	if (run.shared)
		munmap(run.shared, ranks_len);
	if (times)
		munmap(times, times_len);
	return rc;
}
