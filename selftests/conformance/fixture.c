// SPDX-License-Identifier: MIT
/*
 * Ranks as threads, as processes or as a group, behind run_ranks(). Parties meet by a
 * barrier and by flags in shared memory.
 */
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conformance.h"

struct shared {
	pthread_barrier_t barrier;
	atomic_uint flag[NFLAGS];
};

struct team {
	const struct config *cfg;
	const struct run *run;
	struct shared *shared;
	char name[48];
	struct npuwin *ctx;
	struct party *parties;
	struct rank *ranks;
	uint32_t nparties;
};

static void futex(atomic_uint *word, int op, uint32_t value)
{
	syscall(SYS_futex, word, op, value, NULL, NULL, 0);
}

void flag_add(struct shared *shared, uint32_t flag, uint32_t value)
{
	CHECK(flag < NFLAGS);
	atomic_fetch_add(&shared->flag[flag], value);
	futex(&shared->flag[flag], FUTEX_WAKE, INT_MAX);
}

uint32_t flag_get(struct shared *shared, uint32_t flag)
{
	CHECK(flag < NFLAGS);
	return atomic_load(&shared->flag[flag]);
}

void flag_wait(struct shared *shared, uint32_t flag, uint32_t value)
{
	uint32_t seen;

	while ((seen = flag_get(shared, flag)) < value)
		futex(&shared->flag[flag], FUTEX_WAIT, seen);
}

void party_sync(struct party *p)
{
	int ret = pthread_barrier_wait(&p->shared->barrier);

	CHECK(ret == 0 || ret == PTHREAD_BARRIER_SERIAL_THREAD);
}

static struct npuwin *open_context(const struct config *cfg)
{
	struct npuwin_error err = fresh_error();
	struct npuwin *ctx = NULL;

	CHECK_OK(npuwin_open(cfg->provider, &ctx, &err), &err);
	return ctx;
}

struct joining {
	struct party *p;
	const char *name;
	uint32_t flags;
	uint32_t i;
};

bool in_processes(const struct config *cfg)
{
	return cfg->form == FORM_PROCESSES || cfg->form == FORM_BOOTSTRAP;
}

/* Over a bootstrap of the name's own. */
static int join_elsewhere(struct rank *r, const struct npuwin_domain_attr *attr,
			  struct npuwin_error *err)
{
	char address[100];
	struct npuwin_bootstrap_attr bs = {
		.address = address,
		.nranks = attr->nranks,
		.rank = attr->rank,
		.deadline_ns = attr->deadline_ns,
	};
	int ret;

	snprintf(address, sizeof(address), "unix:@%s", attr->name);
	ret = npuwin_bootstrap_connect(&bs, &r->bs, err);
	if (ret)
		return ret;
	return npuwin_domain_join_bootstrap(r->ctx, attr, r->bs, &r->domain, err);
}

static void *join_one(void *arg)
{
	struct joining *j = arg;
	struct rank *r = &j->p->ranks[j->i];
	struct npuwin_error err = fresh_error();
	struct npuwin_domain_attr attr = {
		.name = j->name,
		.nranks = j->p->nranks,
		.rank = r->rank,
		.window_size = j->p->window,
		.device = -1,
		.flags = j->flags,
		.deadline_ns = far(),
	};
	int ret;

	if (j->p->cfg->form == FORM_BOOTSTRAP)
		ret = join_elsewhere(r, &attr, &err);
	else
		ret = npuwin_domain_join(r->ctx, &attr, &r->domain, &err);
	if (ret == -ENOSPC && j->p->scarce)
		skip_case("%s", err.text);
	CHECK_OK(ret, &err);
	return NULL;
}

static void join_together(struct party *p, const char *name, uint32_t flags)
{
	struct joining j[MAX_TEST_RANKS];
	pthread_t thread[MAX_TEST_RANKS];
	uint32_t i;

	for (i = 0; i < p->n; i++) {
		j[i] = (struct joining){ .p = p, .name = name, .flags = flags, .i = i };
		CHECK_EQ(pthread_create(&thread[i], NULL, join_one, &j[i]), 0);
	}
	for (i = 0; i < p->n; i++)
		CHECK_EQ(pthread_join(thread[i], NULL), 0);
}

static void create_group(struct party *p)
{
	struct npuwin_domain *domains[MAX_TEST_RANKS] = { NULL };
	struct npuwin_error err = fresh_error();
	struct npuwin_domain_attr attr = {
		.nranks = p->nranks,
		.window_size = p->window,
		.device = -1,
		.deadline_ns = far(),
	};
	uint32_t i;
	int ret;

	ret = npuwin_domain_create_local(p->ranks[0].ctx, &attr, domains, &err);
	if (ret == -ENOSPC && p->scarce)
		skip_case("%s", err.text);
	CHECK_OK(ret, &err);
	for (i = 0; i < p->n; i++)
		p->ranks[i].domain = domains[i];
}

void party_join(struct party *p, const char *name, uint32_t flags)
{
	struct joining j = { .p = p, .name = name, .flags = flags };
	uint32_t i;

	if (p->cfg->form == FORM_GROUP)
		create_group(p);
	else if (p->n > 1)
		join_together(p, name, flags);
	else
		join_one(&j);

	for (i = 0; i < p->n; i++) {
		CHECK_EQ(npuwin_domain_rank(p->ranks[i].domain), p->ranks[i].rank);
		CHECK_EQ(npuwin_domain_nranks(p->ranks[i].domain), p->nranks);
		CHECK(npuwin_domain_fd(p->ranks[i].domain) >= 0);
	}
}

void party_leave(struct party *p)
{
	uint32_t i;

	for (i = 0; i < p->n; i++) {
		npuwin_domain_leave(p->ranks[i].domain);
		npuwin_bootstrap_free(p->ranks[i].bs);
		p->ranks[i].domain = NULL;
		p->ranks[i].bs = NULL;
	}
}

static void domains_of(struct party *p, struct npuwin_domain **domains)
{
	uint32_t i;

	for (i = 0; i < p->n; i++)
		domains[i] = p->ranks[i].domain;
}

void party_reset(struct party *p)
{
	struct npuwin_domain *domains[MAX_TEST_RANKS];
	struct npuwin_error err = fresh_error();

	domains_of(p, domains);
	if (p->n == 1)
		CHECK_OK(npuwin_domain_reset(domains[0], far(), &err), &err);
	else
		CHECK_OK(npuwin_domain_reset_group(domains, p->n, far(), &err), &err);
}

void party_barrier(struct party *p)
{
	struct npuwin_domain *domains[MAX_TEST_RANKS];
	struct npuwin_error err = fresh_error();

	domains_of(p, domains);
	if (p->n == 1)
		CHECK_OK(npuwin_barrier(domains[0], far(), &err), &err);
	else
		CHECK_OK(npuwin_barrier_group(domains, p->n, far(), &err), &err);
}

int party_call(struct party *p, struct set *sets, int64_t deadline_ns,
	       struct npuwin_a2av_result *results, struct npuwin_error *err)
{
	struct npuwin_domain *domains[MAX_TEST_RANKS];
	struct npuwin_a2av ops[MAX_TEST_RANKS];
	uint32_t i;

	if (p->cfg->form != FORM_GROUP && p->n == 1)
		return npuwin_all_to_all_v(p->ranks[0].domain, &sets[0].op, deadline_ns,
					   results, err);

	domains_of(p, domains);
	for (i = 0; i < p->n; i++)
		ops[i] = sets[i].op;
	return npuwin_all_to_all_v_group(domains, ops, p->n, deadline_ns, results, err);
}

/* One party from its contexts to the closing of them. */
static void party_run(struct team *team, uint32_t index, bool successor)
{
	struct party *p = &team->parties[index];
	const struct run *run = team->run;
	uint32_t i;

	p->successor = successor;
	for (i = 0; i < p->n; i++) {
		struct rank *r = &p->ranks[i];

		r->own_ctx = !team->ctx || (p->cfg->form == FORM_THREADS && r->rank % 2);
		r->ctx = r->own_ctx ? open_context(p->cfg) : team->ctx;
	}
	if (!run->bare)
		party_join(p, p->name, successor ? NPUWIN_DOMAIN_REPLACE : 0);
	if (successor)
		run->successor(p);
	else
		run->fn(p);
	party_leave(p);
	for (i = 0; i < p->n; i++)
		if (p->ranks[i].own_ctx)
			npuwin_close(p->ranks[i].ctx);
}

static pid_t fork_party(struct team *team, uint32_t index, bool successor)
{
	pid_t pid;
	int fds;

	fflush(stdout);
	pid = fork();
	if (pid < 0)
		FAIL("fork: %s", strerror(errno));
	if (pid)
		return pid;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	fds = count_fds();
	party_run(team, index, successor);
	CHECK_EQ(count_fds(), fds);
	exit(EXIT_PASS);
}

static void run_processes(struct team *team)
{
	const struct run *run = team->run;
	uint32_t left = team->nparties, i;
	pid_t pids[MAX_TEST_RANKS];
	bool died = false;
	int status;
	pid_t pid;

	for (i = 0; i < team->nparties; i++)
		pids[i] = fork_party(team, i, false);
	if (run->control)
		run->control(team->shared, pids);

	while (left) {
		pid = wait(&status);
		if (pid < 0)
			FAIL("wait: %s", strerror(errno));
		if (run->dies && !died && pid == pids[run->victim]) {
			if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
				FAIL("the victim ended with status %#x instead", status);
			died = true;
			if (run->successor)
				pids[run->victim] = fork_party(team, run->victim, true);
			else
				left--;
			flag_add(team->shared, FLAG_DEAD, 1);
			continue;
		}
		if (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SKIP)
			exit(EXIT_SKIP);
		if (!WIFEXITED(status) || WEXITSTATUS(status) != EXIT_PASS) {
			for (i = 0; i < team->nparties && pids[i] != pid; i++)
				;
			FAIL("the process of party %u ended with status %#x", i, status);
		}
		left--;
	}
	if (run->dies)
		CHECK(died);
}

struct thread_arg {
	struct team *team;
	uint32_t index;
};

static void *thread_main(void *arg)
{
	struct thread_arg *a = arg;

	party_run(a->team, a->index, false);
	return NULL;
}

static void run_threads(struct team *team)
{
	struct thread_arg arg[MAX_TEST_RANKS];
	pthread_t thread[MAX_TEST_RANKS];
	uint32_t i;

	team->ctx = open_context(team->cfg);
	for (i = 0; i < team->nparties; i++) {
		arg[i] = (struct thread_arg){ .team = team, .index = i };
		CHECK_EQ(pthread_create(&thread[i], NULL, thread_main, &arg[i]), 0);
	}
	for (i = 0; i < team->nparties; i++)
		CHECK_EQ(pthread_join(thread[i], NULL), 0);
	npuwin_close(team->ctx);
}

static void run_group(struct team *team)
{
	team->ctx = open_context(team->cfg);
	party_run(team, 0, false);
	npuwin_close(team->ctx);
}

static uint32_t ranks_per_party(const struct config *cfg, const struct run *run)
{
	if (cfg->form == FORM_GROUP)
		return run->nranks;
	if (in_processes(cfg) && run->per_process)
		return run->per_process;
	return 1;
}

static struct shared *make_shared(uint32_t nparties)
{
	pthread_barrierattr_t attr;
	struct shared *shared;

	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(shared != MAP_FAILED);
	pthread_barrierattr_init(&attr);
	pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	CHECK_EQ(pthread_barrier_init(&shared->barrier, &attr, nparties), 0);
	pthread_barrierattr_destroy(&attr);
	return shared;
}

void run_ranks(const struct config *cfg, const struct run *run)
{
	static unsigned int runs;
	uint32_t per_party = ranks_per_party(cfg, run);
	struct team team = { .cfg = cfg, .run = run };
	uint32_t i;

	CHECK(run->nranks >= 1 && run->nranks <= MAX_TEST_RANKS);
	CHECK(run->nranks % per_party == 0);
	if (run->dies || run->control)
		CHECK(in_processes(cfg));

	team.nparties = run->nranks / per_party;
	team.shared = make_shared(team.nparties);
	snprintf(team.name, sizeof(team.name), "conformance-%d-%u", (int)getpid(), runs++);
	team.ranks = calloc(run->nranks, sizeof(*team.ranks));
	team.parties = calloc(team.nparties, sizeof(*team.parties));
	CHECK(team.ranks && team.parties);
	for (i = 0; i < run->nranks; i++)
		team.ranks[i].rank = i;
	for (i = 0; i < team.nparties; i++)
		team.parties[i] = (struct party){
			.cfg = cfg,
			.name = team.name,
			.shared = team.shared,
			.nranks = run->nranks,
			.window = run->window ? run->window : MIB,
			.n = per_party,
			.index = i,
			.nparties = team.nparties,
			.ranks = &team.ranks[i * per_party],
			.arg = run->arg,
			.scarce = run->scarce,
		};

	if (in_processes(cfg))
		run_processes(&team);
	else if (cfg->form == FORM_THREADS)
		run_threads(&team);
	else
		run_group(&team);

	free(team.parties);
	free(team.ranks);
	munmap(team.shared, sizeof(*team.shared));
}
