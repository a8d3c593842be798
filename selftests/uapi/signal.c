// SPDX-License-Identifier: GPL-2.0-only
/* Waiting for cells: what ends a wait, who is woken, and that no wake-up is lost. */
#include "common.h"

#include <stdatomic.h>

#define SIZE	(64 * 1024)

FIXTURE(waits)
{
	struct team team;
	struct rank *rank;
	int domain;
	struct npuwin_domain_status *status;
	uint64_t length;
};

FIXTURE_SETUP(waits)
{
	struct npuwin_ioc_domain_info info;

	if (!have_devices())
		SKIP(LEAVE_TEST, NEEDS_DEVICES);
	ASSERT_EQ(0, team_make(&self->team, 3, SIZE));
	self->rank = self->team.rank;
	self->domain = self->team.domain;
	info = domain_info(self->domain);
	self->length = info.status_length;
	self->status = mmap(NULL, self->length, PROT_READ, MAP_SHARED, self->domain,
			    info.status_map);
	ASSERT_NE(MAP_FAILED, self->status);
}

FIXTURE_TEARDOWN(waits)
{
	uint32_t i;

	for (i = 0; i < self->team.n; i++)
		EXPECT_EQ(0, self->status->rank[i].sleepers);
	munmap(self->status, self->length);
	team_free(&self->team);
}

static struct npuwin_signal signal_of(uint32_t rank, uint64_t offset, uint32_t cmp,
				      int32_t value)
{
	return (struct npuwin_signal) {
		.rank = rank, .offset = offset, .cmp = cmp, .value = value,
		.peer = NPUWIN_NO_RANK, .observed = 0x5a5a5a5a,
	};
}

static uint32_t sleepers_of(struct _test_data_waits *self, uint32_t rank)
{
	return __atomic_load_n(&self->status->rank[rank].sleepers, __ATOMIC_RELAXED);
}

/* What a rank that writes through a mapping has to do. */
static void mapped_add(struct _test_data_waits *self, uint32_t rank, uint64_t offset, int32_t value)
{
	atomic_int *cell = (atomic_int *)cell_at(&self->rank[rank], offset);

	atomic_fetch_add_explicit(cell, value, memory_order_release);
	atomic_thread_fence(memory_order_seq_cst);
	if (sleepers_of(self, rank))
		signal_wake(self->domain, rank);
}

static int engine_add(struct rank *from, uint32_t rank, uint64_t offset, int32_t value)
{
	struct npuwin_desc desc = notify(rank, offset, value);

	return execute(from->fd, from->queue, &desc, 1, NULL);
}

TEST_F(waits, errors)
{
	const struct npuwin_signal good = signal_of(1, 0, NPUWIN_CMP_EQ, 1);
	const uint64_t regs = NPUWIN_NOTIFY_REGS * 4;
	struct npuwin_signal sig;

	EXPECT_EQ(-EAGAIN, signal_wait(self->domain, (sig = good, &sig), 1, 0, NULL, NULL));
	EXPECT_EQ(0, sig.observed);
#define REFUSED(_error, _field, _value) do {						\
		sig = good;								\
		sig._field = _value;							\
		EXPECT_EQ(_error, signal_wait(self->domain, &sig, 1, 0, NULL, NULL));	\
		EXPECT_EQ(0x5a5a5a5a, sig.observed);					\
	} while (0)
	REFUSED(-EINVAL, flags, 2);
	REFUSED(-EINVAL, flags, 1U << 31);
	REFUSED(-EINVAL, cmp, 6);
	REFUSED(-EINVAL, cmp, UINT32_MAX);
	REFUSED(-EINVAL, offset, 2);
	REFUSED(-EINVAL, peer, 3);
	REFUSED(-ENOENT, rank, 3);
	REFUSED(-ENOENT, rank, NPUWIN_NO_RANK);
	REFUSED(-EOVERFLOW, offset, SIZE);
	REFUSED(-EOVERFLOW, offset, UINT64_MAX - 3);
#undef REFUSED
	sig = good;
	sig.flags = NPUWIN_SIGNAL_F_REG;
	sig.offset = regs;
	EXPECT_EQ(-EOVERFLOW, signal_wait(self->domain, &sig, 1, 0, NULL, NULL));
	sig.offset = regs - 4;
	EXPECT_EQ(-EAGAIN, signal_wait(self->domain, &sig, 1, 0, NULL, NULL));
	EXPECT_EQ(-EINVAL, signal_wait(self->domain, &sig, 0, 0, NULL, NULL));
	EXPECT_EQ(-EINVAL, signal_wait(self->domain, &sig, NPUWIN_MAX_SIGNALS + 1, 0, NULL,
				       NULL));
	EXPECT_EQ(-EINVAL, signal_wait(self->domain, &sig, 1, -1, NULL, NULL));
	EXPECT_EQ(-EFAULT, signal_wait(self->domain, NULL, 1, 0, NULL, NULL));
	EXPECT_EQ(-EFAULT, signal_wait(self->domain, NULL, NPUWIN_MAX_SIGNALS, 0, NULL, NULL));
	EXPECT_EQ(-ENOENT, signal_wake(self->domain, 3));
	EXPECT_EQ(-ENOENT, signal_wake(self->domain, UINT32_MAX));
	EXPECT_EQ(0, signal_wake(self->domain, 2));
}

TEST_F(waits, compares)
{
	/* By comparison: whether it holds for a cell that is less, equal, greater. */
	static const bool holds[6][3] = {
		[NPUWIN_CMP_EQ] = { false, true, false },
		[NPUWIN_CMP_NE] = { true, false, true },
		[NPUWIN_CMP_GT] = { false, false, true },
		[NPUWIN_CMP_GE] = { false, true, true },
		[NPUWIN_CMP_LT] = { true, false, false },
		[NPUWIN_CMP_LE] = { true, true, false },
	};
	static const int32_t values[] = { INT32_MIN + 1, -1, 0, 1, INT32_MAX - 1 };
	uint32_t cmp, index;
	size_t i;
	int d;

	for (cmp = 0; cmp < 6; cmp++) {
		for (i = 0; i < ARRAY_LEN(values); i++) {
			for (d = -1; d <= 1; d++) {
				struct npuwin_signal sig = signal_of(1, 8, cmp, values[i]);

				*cell_at(&self->rank[1], 8) = values[i] + d;
				EXPECT_EQ(holds[cmp][d + 1] ? 0 : -EAGAIN,
					  signal_wait(self->domain, &sig, 1, 0, &index, NULL));
				EXPECT_EQ(holds[cmp][d + 1] ? 0 : 1, index);
				EXPECT_EQ(values[i] + d, sig.observed);
			}
		}
	}
}

/* The first of several is told, and all are looked at. */
TEST_F(waits, several)
{
	struct npuwin_signal *sigs = calloc(NPUWIN_MAX_SIGNALS, sizeof(*sigs));
	uint32_t index, i;

	ASSERT_NE(NULL, sigs);
	for (i = 0; i < NPUWIN_MAX_SIGNALS; i++) {
		sigs[i] = signal_of(i % 3, 4 * i, NPUWIN_CMP_EQ, 1);
		*cell_at(&self->rank[i % 3], 4 * i) = -(int32_t)i - 5;
	}
	EXPECT_EQ(-ETIMEDOUT, signal_wait(self->domain, sigs, NPUWIN_MAX_SIGNALS, in_ms(20),
					  &index, NULL));
	EXPECT_EQ(NPUWIN_MAX_SIGNALS, index);
	for (i = 0; i < NPUWIN_MAX_SIGNALS; i++)
		EXPECT_EQ(-(int32_t)i - 5, sigs[i].observed);
	*cell_at(&self->rank[700 % 3], 4 * 700) = 1;
	*cell_at(&self->rank[801 % 3], 4 * 801) = 1;
	EXPECT_EQ(0, signal_wait(self->domain, sigs, NPUWIN_MAX_SIGNALS, 0, &index, NULL));
	EXPECT_EQ(700, index);
	free(sigs);
}

struct sleeper {
	pthread_t thread;
	int domain;
	struct npuwin_signal sig;
	int64_t deadline;
	int ret;
	uint32_t index;
	uint32_t gone;
	long switches;
	long cpu_us;
	atomic_int tid;
};

static void *sleeper_thread(void *arg)
{
	struct sleeper *sleeper = arg;
	struct rusage before, after;

	getrusage(RUSAGE_THREAD, &before);
	sleeper->ret = signal_wait(sleeper->domain, &sleeper->sig, 1, sleeper->deadline,
				   &sleeper->index, &sleeper->gone);
	getrusage(RUSAGE_THREAD, &after);
	sleeper->switches = after.ru_nvcsw - before.ru_nvcsw;
	sleeper->cpu_us = (after.ru_utime.tv_sec + after.ru_stime.tv_sec -
			   before.ru_utime.tv_sec - before.ru_stime.tv_sec) * 1000000 +
			  after.ru_utime.tv_usec + after.ru_stime.tv_usec -
			  before.ru_utime.tv_usec - before.ru_stime.tv_usec;
	return NULL;
}

static void sleeper_start(struct sleeper *sleeper, struct _test_data_waits *self,
			  struct npuwin_signal sig, int64_t deadline)
{
	uint32_t before = sleepers_of(self, sig.rank);

	*sleeper = (struct sleeper) {
		.domain = self->domain, .sig = sig, .deadline = deadline,
	};
	pthread_create(&sleeper->thread, NULL, sleeper_thread, sleeper);
	while (sleepers_of(self, sig.rank) == before)
		sched_yield();
	/* From the count to the bed. */
	sleep_ms(20);
}

TEST_F(waits, deadline)
{
	struct npuwin_signal sig = signal_of(0, 0, NPUWIN_CMP_EQ, 1);
	uint32_t index, gone;
	int64_t start = now_ns();

	EXPECT_EQ(-ETIMEDOUT,
		  signal_wait(self->domain, &sig, 1, start + 50000000, &index, &gone));
	EXPECT_GE(now_ns(), start + 50000000);
	EXPECT_EQ(1, index);
	EXPECT_EQ(NPUWIN_NO_RANK, gone);
	EXPECT_EQ(0, sig.observed);
	EXPECT_EQ(-ETIMEDOUT, signal_wait(self->domain, &sig, 1, 1, &index, &gone));
	EXPECT_EQ(-EAGAIN, signal_wait(self->domain, &sig, 1, 0, &index, &gone));
}

TEST_F(waits, woken_by_engine)
{
	struct sleeper sleeper;
	struct npuwin_signal sig = signal_of(1, 4, NPUWIN_CMP_GE, 2);

	sleeper_start(&sleeper, self, sig, in_ms(20000));
	EXPECT_EQ(NPUWIN_ST_OK, engine_add(&self->rank[0], 1, 4, 1));
	EXPECT_EQ(NPUWIN_ST_OK, engine_add(&self->rank[2], 1, 4, 1));
	pthread_join(sleeper.thread, NULL);
	EXPECT_EQ(0, sleeper.ret);
	EXPECT_EQ(0, sleeper.index);
	EXPECT_EQ(2, sleeper.sig.observed);

	sig = signal_of(2, 4 * 5, NPUWIN_CMP_NE, 0);
	sig.flags = NPUWIN_SIGNAL_F_REG;
	sleeper_start(&sleeper, self, sig, in_ms(20000));
	struct npuwin_desc desc = notify(2, 4 * 5, 9);

	desc.flags |= NPUWIN_DESC_F_REG;
	EXPECT_EQ(NPUWIN_ST_OK,
		  execute(self->rank[0].fd, self->rank[0].queue, &desc, 1, NULL));
	pthread_join(sleeper.thread, NULL);
	EXPECT_EQ(0, sleeper.ret);
	EXPECT_EQ(9, sleeper.sig.observed);
}

TEST_F(waits, woken_by_mapped_writer)
{
	struct sleeper sleeper;

	sleeper_start(&sleeper, self, signal_of(1, 4, NPUWIN_CMP_GE, 2), in_ms(20000));
	mapped_add(self, 1, 4, 1);
	mapped_add(self, 1, 4, 1);
	pthread_join(sleeper.thread, NULL);
	EXPECT_EQ(0, sleeper.ret);
	EXPECT_EQ(2, sleeper.sig.observed);
}

/* What does not concern a wait does not wake it, and a sleeping wait costs nothing. */
TEST_F(waits, nobody_else_is_woken)
{
	struct sleeper sleepers[8], target;
	size_t i;

	for (i = 0; i < ARRAY_LEN(sleepers); i++)
		sleeper_start(&sleepers[i], self, signal_of(1, 64 + 4 * i, NPUWIN_CMP_EQ, 1),
			      in_ms(20000));
	sleeper_start(&target, self, signal_of(1, 0, NPUWIN_CMP_EQ, 500), in_ms(20000));
	for (i = 0; i < 500; i++)
		EXPECT_EQ(NPUWIN_ST_OK, engine_add(&self->rank[0], 1, 0, 1));
	pthread_join(target.thread, NULL);
	EXPECT_EQ(0, target.ret);
	EXPECT_LE(target.switches, 5);
	for (i = 0; i < ARRAY_LEN(sleepers); i++) {
		mapped_add(self, 1, 64 + 4 * i, 1);
		pthread_join(sleepers[i].thread, NULL);
		EXPECT_EQ(0, sleepers[i].ret);
		EXPECT_LE(sleepers[i].switches, 5);
		EXPECT_LE(sleepers[i].cpu_us, 50000);
	}
}

static void *many_thread(void *arg)
{
	struct sleeper *sleeper = arg;
	struct npuwin_signal *sigs = calloc(NPUWIN_MAX_SIGNALS, sizeof(*sigs));
	uint32_t i;

	sleeper->ret = -ENOMEM;
	for (i = 0; sigs && i < NPUWIN_MAX_SIGNALS; i++)
		sigs[i] = sleeper->sig;
	if (sigs)
		sleeper->ret = signal_wait(sleeper->domain, sigs, NPUWIN_MAX_SIGNALS,
					   sleeper->deadline, &sleeper->index, NULL);
	free(sigs);
	return NULL;
}

/* So many that a notify would take long are refused, and the others wait on. */
TEST_F(waits, limit)
{
	struct sleeper sleepers[NPUWIN_MAX_WAITS / NPUWIN_MAX_SIGNALS];
	struct npuwin_signal pair[2] = {
		signal_of(0, 0, NPUWIN_CMP_EQ, 1), signal_of(1, 0, NPUWIN_CMP_EQ, 1),
	};
	uint32_t i, index;

	for (i = 0; i < ARRAY_LEN(sleepers); i++) {
		sleepers[i] = (struct sleeper) {
			.domain = self->domain, .sig = pair[1], .deadline = NPUWIN_NO_DEADLINE,
		};
		ASSERT_EQ(0, pthread_create(&sleepers[i].thread, NULL, many_thread,
					    &sleepers[i]));
	}
	while (sleepers_of(self, 1) != NPUWIN_MAX_WAITS)
		sched_yield();
	EXPECT_EQ(-EMFILE, signal_wait(self->domain, &pair[1], 1, NPUWIN_NO_DEADLINE, NULL, NULL));
	EXPECT_EQ(-EMFILE, signal_wait(self->domain, pair, 2, NPUWIN_NO_DEADLINE, NULL, NULL));
	EXPECT_EQ(NPUWIN_MAX_WAITS, sleepers_of(self, 1));
	EXPECT_EQ(0, sleepers_of(self, 0));
	/* Who need not sleep can have what he waits for, and other ranks have room. */
	EXPECT_EQ(-EAGAIN, signal_wait(self->domain, &pair[1], 1, 0, NULL, NULL));
	EXPECT_EQ(-ETIMEDOUT, signal_wait(self->domain, pair, 1, in_ms(1), NULL, NULL));
	EXPECT_EQ(NPUWIN_ST_OK, engine_add(&self->rank[0], 1, 0, 1));
	for (i = 0; i < ARRAY_LEN(sleepers); i++) {
		pthread_join(sleepers[i].thread, NULL);
		EXPECT_EQ(0, sleepers[i].ret);
		EXPECT_EQ(0, sleepers[i].index);
	}
	EXPECT_EQ(0, signal_wait(self->domain, &pair[1], 1, 0, &index, NULL));
}

TEST_F(waits, peer_leaves)
{
	struct npuwin_signal sig = signal_of(0, 0, NPUWIN_CMP_EQ, 1);
	struct sleeper concerned, other;

	sig.peer = 2;
	sleeper_start(&concerned, self, sig, in_ms(20000));
	sig.peer = 1;
	sleeper_start(&other, self, sig, in_ms(20000));
	ASSERT_EQ(0, domain_leave(self->rank[2].fd, self->domain, 2));
	pthread_join(concerned.thread, NULL);
	EXPECT_EQ(-EPIPE, concerned.ret);
	EXPECT_EQ(2, concerned.gone);
	EXPECT_EQ(0, concerned.index);
	/* A signal that holds wins. */
	mapped_add(self, 0, 0, 1);
	pthread_join(other.thread, NULL);
	EXPECT_EQ(0, other.ret);
	sig.peer = 2;
	EXPECT_EQ(0, signal_wait(self->domain, &sig, 1, in_ms(20000), NULL, NULL));
	/* The memory of who has left is not there. */
	sig = signal_of(2, 0, NPUWIN_CMP_EQ, 0);
	EXPECT_EQ(-EPIPE, signal_wait(self->domain, &sig, 1, 0, NULL, &sig.peer));
	EXPECT_EQ(2, sig.peer);
}

TEST_F(waits, rank_dies)
{
	struct npuwin_signal sigs[3] = {
		signal_of(0, 0, NPUWIN_CMP_EQ, 1), signal_of(0, 0, NPUWIN_CMP_EQ, 1),
		signal_of(0, 0, NPUWIN_CMP_EQ, 1),
	};
	struct sleeper own, foreign;
	uint32_t index, gone;

	sleeper_start(&foreign, self, sigs[0], in_ms(20000));
	sleeper_start(&own, self, signal_of(1, 0, NPUWIN_CMP_EQ, 1), in_ms(20000));
	munmap(self->rank[1].mem, SIZE);
	self->rank[1].mem = MAP_FAILED;
	close(self->rank[1].fd);
	self->rank[1].fd = -1;
	pthread_join(own.thread, NULL);
	pthread_join(foreign.thread, NULL);
	EXPECT_EQ(-EPIPE, own.ret);
	EXPECT_EQ(1, own.gone);
	EXPECT_EQ(-EPIPE, foreign.ret);
	EXPECT_EQ(1, foreign.gone);
	EXPECT_EQ(1, foreign.index);
	sigs[2].peer = 1;
	EXPECT_EQ(-EPIPE, signal_wait(self->domain, sigs, 3, 0, &index, &gone));
	EXPECT_EQ(1, gone);
	EXPECT_EQ(2, index);
	*cell_at(&self->rank[0], 0) = 1;
	EXPECT_EQ(0, signal_wait(self->domain, sigs, 3, 0, &index, &gone));
	EXPECT_EQ(0, index);
	EXPECT_EQ(NPUWIN_NO_RANK, gone);
}

TEST_F(waits, aborted)
{
	struct sleeper sleeper;

	sleeper_start(&sleeper, self, signal_of(0, 0, NPUWIN_CMP_EQ, 1), in_ms(20000));
	ASSERT_EQ(0, domain_abort(self->rank[1].fd, self->domain, 1, EIO));
	pthread_join(sleeper.thread, NULL);
	EXPECT_EQ(-ECANCELED, sleeper.ret);
	EXPECT_EQ(1, sleeper.index);
	EXPECT_EQ(NPUWIN_NO_RANK, sleeper.gone);
}

TEST_F(waits, empty_rank)
{
	int domain = domain_create(self->rank[0].fd, 2, SIZE);
	struct npuwin_signal sig = signal_of(1, 0, NPUWIN_CMP_EQ, 0);

	ASSERT_GE(domain, 0);
	EXPECT_EQ(-ENOENT, signal_wait(domain, &sig, 1, in_ms(20000), NULL, NULL));
	EXPECT_EQ(0, signal_wake(domain, 1));
	close(domain);
}

static atomic_int alarms;

static void on_alarm(int sig)
{
	alarms++;
}

TEST_F(waits, interrupted)
{
	struct sigaction action = { .sa_handler = on_alarm, .sa_flags = SA_RESTART };
	struct itimerval timer = { .it_value.tv_usec = 20000, .it_interval.tv_usec = 20000 };
	struct npuwin_signal sig = signal_of(0, 0, NPUWIN_CMP_EQ, 1);
	int64_t start = now_ns();
	uint32_t index = 77;

	/* Restarted, with the same deadline. */
	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &timer, NULL);
	EXPECT_EQ(-ETIMEDOUT, signal_wait(self->domain, &sig, 1, start + 200000000, NULL, NULL));
	EXPECT_GE(now_ns(), start + 200000000);
	EXPECT_LT(now_ns(), start + 5000000000);
	EXPECT_GE(atomic_load(&alarms), 2);
	/* Not restarted where the handler says so; nothing is written. */
	action.sa_flags = 0;
	sigaction(SIGALRM, &action, NULL);
	sig.observed = 0x5a5a5a5a;
	EXPECT_EQ(-EINTR, signal_wait(self->domain, &sig, 1, in_ms(20000), &index, NULL));
	EXPECT_EQ(0, index);
	EXPECT_EQ(0x5a5a5a5a, sig.observed);
	timer = (struct itimerval) { 0 };
	setitimer(ITIMER_REAL, &timer, NULL);
}

/*
 * The hammer: two sides take turns at two cells, as fast as they can, each sleeping until
 * the other's turn is over. A wake-up that is lost stops both, up to the deadline.
 */
struct hammer {
	struct _test_data_waits *self;
	uint32_t me;
	bool engine;
	bool queue;
	int rounds;
	int failed;
	pthread_t thread;
};

static int hammer_wait(struct hammer *hammer, int value)
{
	struct rank *rank = &hammer->self->rank[hammer->me];
	struct npuwin_signal sig = signal_of(hammer->me, 0, NPUWIN_CMP_GE, value);
	struct npuwin_desc desc = twait(0, NPUWIN_CMP_GE, value, in_ms(10000));

	if (hammer->queue)
		return execute(rank->fd, rank->queue, &desc, 1, NULL);
	return signal_wait(hammer->self->domain, &sig, 1, in_ms(10000), NULL, NULL);
}

static void *hammer_thread(void *arg)
{
	struct hammer *hammer = arg;
	unsigned int seed = hammer->me;
	uint32_t peer = 1 - hammer->me;
	int i, spin;

	for (i = 1; i <= hammer->rounds && !hammer->failed; i++) {
		if (hammer->me && hammer_wait(hammer, i))
			hammer->failed = i;
		/* So that it happens at every distance from the other's sleep. */
		for (spin = rand_r(&seed) % 400; spin; spin--)
			atomic_signal_fence(memory_order_seq_cst);
		if (!hammer->engine)
			mapped_add(hammer->self, peer, 0, 1);
		else if (engine_add(&hammer->self->rank[hammer->me], peer, 0, 1))
			hammer->failed = i;
		if (!hammer->me && hammer_wait(hammer, i))
			hammer->failed = i;
	}
	return NULL;
}

static void hammer_run(struct __test_metadata *_metadata, struct _test_data_waits *self,
		       bool engine, bool queue)
{
	struct hammer sides[2];
	uint32_t i;

	for (i = 0; i < 2; i++) {
		sides[i] = (struct hammer) {
			.self = self, .me = i, .engine = engine, .queue = queue,
			.rounds = 2000,
		};
		pthread_create(&sides[i].thread, NULL, hammer_thread, &sides[i]);
	}
	for (i = 0; i < 2; i++) {
		pthread_join(sides[i].thread, NULL);
		EXPECT_EQ(0, sides[i].failed);
		EXPECT_EQ(2000, *cell_at(&self->rank[i], 0));
	}
}

TEST_F_TIMEOUT(waits, hammer_engine, 120)
{
	hammer_run(_metadata, self, true, false);
}

TEST_F_TIMEOUT(waits, hammer_mapped, 120)
{
	hammer_run(_metadata, self, false, false);
}

TEST_F_TIMEOUT(waits, hammer_engine_parked, 120)
{
	hammer_run(_metadata, self, true, true);
}

TEST_F_TIMEOUT(waits, hammer_mapped_parked, 120)
{
	hammer_run(_metadata, self, false, true);
}

TEST_HARNESS_MAIN
