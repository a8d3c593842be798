// SPDX-License-Identifier: MIT
/*
 * The emulator's own: faults on demand, counters, its end.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hw.h"

#define WITH(...)	((const char *const[]) { __VA_ARGS__, NULL })

static struct npuwin_desc d_seen(uint64_t user_data)
{
	return (struct npuwin_desc) {
		.opcode = NPUWIN_OP_NOP, .flags = NPUWIN_DESC_F_CQE, .user_data = user_data,
	};
}

static void fault_irq_dropped(void)
{
	struct guest *g = &guests[0];

	ranks_start(2, WITH("--fault", "drop-irq:dev=0"));
	for (uint64_t i = 0; i < 20; i++) {
		post_one(&queues[0], d_seen(i));
		/* Nothing is lost to who looks. */
		expect_cqe(&queues[0], i, NPUWIN_ST_OK);
	}
	settle(g);
	for (uint32_t v = 0; v < g->nvectors; v++)
		CHECK_EQ(irqs(g, v), 0);
	CHECK(irqs(&guests[1], 0) > 0);
}

static void fault_irq_late(void)
{
	struct guest *g = &guests[0];
	uint64_t before;

	ranks_start(2, WITH("--fault", "delay-irq:dev=0,ms=3"));
	before = irqs(g, queues[0].args.vector);
	post_one(&queues[0], d_seen(1));
	UNTIL(irqs(g, queues[0].args.vector) > before);
	expect_cqe(&queues[0], 1, NPUWIN_ST_OK);
}

static void fault_irq_reordered(void)
{
	struct guest *g = &guests[0];

	ranks_start(2, WITH("--fault", "reorder-irq:dev=0,every=2"));
	for (uint64_t i = 0; i < 20; i++) {
		post_one(&queues[0], d_seen(i));
		expect_cqe(&queues[0], i, NPUWIN_ST_OK);
	}
	/* Late is not never. */
	UNTIL(irqs(g, queues[0].args.vector) >= 1);
	UNTIL(irqs(g, 0) >= 1);
}

static void fault_stall(void)
{
	struct guest *g = &guests[0];
	uint64_t steps;

	ranks_start(2, WITH("--heartbeat", "10", "--fault", "stall:dev=0,nth=3"));
	for (uint64_t i = 0; i < 2; i++)
		CHECK_EQ(run_one(&queues[0], d_nop(), NULL), NPUWIN_ST_OK);
	post_one(&queues[0], d_seen(9));
	until_beats(g, 2);
	steps = READ(status_of(g)->steps);
	until_beats(g, 5);
	settle(g);
	CHECK(cq_empty(&queues[0]));
	CHECK_EQ(READ(status_of(g)->steps), steps);
	/* The engine stands, the rest does not; a reset starts it again. */
	guest_ready(g);
	CHECK_EQ(do_bind(g, 0, 0, 1, &keys[0]), NPUWIN_HW_OK);
	CHECK_EQ(do_queue_create(&queues[0], g, 0, 4), NPUWIN_HW_OK);
	CHECK_EQ(run_one(&queues[0], d_nop(), NULL), NPUWIN_ST_OK);
}

static void fault_stall_ends(void)
{
	ranks_start(2, WITH("--fault", "stall:dev=0,nth=2,ms=20"));
	for (uint64_t i = 0; i < 5; i++)
		CHECK_EQ(run_one(&queues[0], d_nop(), NULL), NPUWIN_ST_OK);
}

static void fault_fail(void)
{
	ranks_start(2, WITH("--fault", "fail:dev=0,nth=3,status=12"));
	memset(window_of(&guests[0], 0), 1, 64);
	for (uint32_t i = 0; i < 2; i++)
		CHECK_EQ(run_one(&queues[0], d_put(1, 0, 64 * i, 64), NULL), NPUWIN_ST_OK);
	CHECK_EQ(run_one(&queues[0], d_put(1, 0, 128, 64), NULL), NPUWIN_ST_DEVICE);
	CHECK(!window_of(&guests[1], 0)[128]);
	do_queue_reset(&queues[0]);
	CHECK_EQ(run_one(&queues[0], d_put(1, 0, 128, 64), NULL), NPUWIN_ST_OK);
}

static void fault_corrupt(void)
{
	struct npuwin_cqe cqe;

	ranks_start(2, WITH("--fault", "corrupt:dev=0,nth=2"));
	post_one(&queues[0], d_seen(1));
	expect_cqe(&queues[0], 1, NPUWIN_ST_OK);
	post_one(&queues[0], d_seen(2));
	next_cqe(&queues[0], &cqe);
	CHECK(cqe.user_data != 2 && cqe.status > NPUWIN_ST_DEVICE);
	post_one(&queues[0], d_seen(3));
	expect_cqe(&queues[0], 3, NPUWIN_ST_OK);
}

static void fault_heartbeat(void)
{
	struct guest *g = &guests[0];
	uint64_t last;

	ranks_start(2, WITH("--heartbeat", "10", "--fault", "no-heartbeat:dev=0,nth=20",
			    "--fault", "no-heartbeat:dev=1,nth=20,ms=20"));
	UNTIL(READ(status_of(g)->heartbeat) >= 19);
	until_beats(&guests[1], 10);
	last = READ(status_of(g)->heartbeat);
	until_beats(&guests[1], 10);
	CHECK_EQ(READ(status_of(g)->heartbeat), last);
	CHECK_EQ(run_one(&queues[0], d_nop(), NULL), NPUWIN_ST_OK);
}

static void fault_device(void)
{
	struct guest *g = &guests[0];

	ranks_start(2, WITH("--fault", "fault:dev=0,nth=2"));
	CHECK_EQ(run_one(&queues[0], d_nop(), NULL), NPUWIN_ST_OK);
	post_one(&queues[0], d_seen(1));
	UNTIL(READ(status_of(g)->state) == NPUWIN_HW_FAULT);
	CHECK_EQ(READ(status_of(g)->fault), NPUWIN_HW_FAULT_DEVICE);
	expect_event(&guests[1], NPUWIN_HW_EV_PEER, 0, 0, NPUWIN_RANK_DEAD);
	guest_ready(g);
	settle(g);
}

static void fault_die(void)
{
	ranks_start(2, WITH("--fault", "die:dev=1,nth=3"));
	for (uint32_t i = 0; i < 2; i++)
		CHECK_EQ(run_one(&queues[1], d_nop(), NULL), NPUWIN_ST_OK);
	post_one(&queues[1], d_nop());
	CHECK_EQ(emu_wait(), 3);
}

static uint64_t counter_of(uint32_t device, const char *name)
{
	char key[64];
	const char *at = strstr(emu_output(), "{\"devices\"");

	for (uint32_t i = 0; at && i <= device; i++)
		at = strstr(at + 1, "{\"device\"");
	snprintf(key, sizeof(key), "\"%s\": ", name);
	at = at ? strstr(at, key) : NULL;
	CHECK(at);
	return strtoull(at + strlen(key), NULL, 10);
}

static void emu_counts(void)
{
	struct npuwin_desc descs[3];
	uint64_t requests, doorbells;

	ranks_start(2, WITH("--stats=json"));
	requests = guests[0].admin_tail;
	/* Each request rang once, and so did the reset and the enabling. */
	doorbells = requests + 2;
	for (uint32_t i = 0; i < 3; i++) {
		descs[i] = d_put(1, 0, 0, 100);
		descs[i].flags = NPUWIN_DESC_F_CQE;
	}
	post(&queues[0], descs, 3);
	for (int i = 0; i < 3; i++)
		expect_cqe(&queues[0], 0, NPUWIN_ST_OK);
	CHECK_EQ(run_one(&queues[0], d_put(1, WINDOW_SIZE, 0, 1), NULL), NPUWIN_ST_BOUNDS);
	UNTIL(irqs(&guests[0], queues[0].args.vector) == 2);
	CHECK_EQ(emu_stop(), 0);
	CHECK_EQ(counter_of(0, "hosts"), 1);
	CHECK_EQ(counter_of(0, "requests"), requests);
	CHECK_EQ(counter_of(0, "doorbells"), doorbells + 2);
	CHECK_EQ(counter_of(0, "descriptors"), 4);
	CHECK_EQ(counter_of(0, "completions"), 4);
	CHECK_EQ(counter_of(0, "bytes"), 300);
	CHECK_EQ(counter_of(0, "errors"), 1);
	CHECK_EQ(counter_of(1, "descriptors"), 0);
}

static void emu_idle(void)
{
	ranks_start(2, WITH("--until-idle"));
	guest_close(&guests[0]);
	settle(&guests[1]);
	CHECK(emu_alive());
	guest_close(&guests[1]);
	CHECK_EQ(emu_wait(), 0);
}

/* Run another emulator to its end. Return: its exit status. */
static int run_in(const char *dir, const char *option)
{
	const char *program = getenv("NPUWIN_EMU");
	int status;
	pid_t pid;

	if (!program)
		program = "build/bin/npuwin-emu";
	fflush(stdout);
	pid = fork();
	if (!pid) {
		if (freopen("/dev/null", "w", stderr) && freopen("/dev/null", "w", stdout))
			execl(program, program, "--socket-dir", dir, option, NULL);
		_exit(127);
	}
	CHECK(waitpid(pid, &status, 0) == pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Whose name is taken gives up, and who has it does not notice. */
static void emu_name_taken(void)
{
	emu_start(WITH("--until-idle", "--stats=json"));
	CHECK_EQ(run_in(emu_dir(), "--devices=1"), 1);
	guest_connect(&guests[0], 0);
	guest_close(&guests[0]);
	CHECK_EQ(emu_wait(), 0);
	CHECK_EQ(counter_of(0, "hosts"), 1);
}

static void emu_told_to_stop(void)
{
	char path[128];

	ranks_start(2, NULL);
	post_one(&queues[0], d_wait(0, NPUWIN_CMP_EQ, 1, NEVER));
	settle(&guests[0]);
	CHECK_EQ(emu_stop(), 0);
	snprintf(path, sizeof(path), "%s/npu0.sock", emu_dir());
	CHECK(access(path, F_OK));
}

static void emu_usage(void)
{
	static const char *const wrong[] = {
		"--devices=0", "--devices=many", "--devices=-1", "--memory=3M", "--memory=64Q",
		"--memory=4K", "--memory=256K", "--vectors=65", "--depth=100", "--fault=no-such",
		"--fault=drop-irq:nth=0", "--fault=drop-irq:percent=101", "--fault=fail:foo=1",
		"--fault=fail:nth", "--fault=fail:status=13", "--fault=fail:status=0",
		"--fault=drop-irq:status=2", "--fault=die:ms=4", "--fault=drop-irq:dev=2",
		"--fault=drop-irq:every=0", "--stats=xml", "--nonsense", "more",
	};

	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		if (run_in("/nowhere", wrong[i]) != 2)
			fail(__FILE__, __LINE__, "%s was taken", wrong[i]);
	}
	CHECK_EQ(run_in("/nowhere", "--devices=1"), 1);
	CHECK_EQ(run_in("/nowhere", "--help"), 0);
}

static const struct test tests[] = {
	{ "fault_irq_dropped", "a dropped interrupt loses nothing in the rings",
	  fault_irq_dropped },
	{ "fault_irq_late", "a late interrupt comes", fault_irq_late },
	{ "fault_irq_reordered", "interrupts may change places", fault_irq_reordered },
	{ "fault_stall", "an engine that stands still is revived by a reset", fault_stall },
	{ "fault_stall_ends", "a stall may end by itself", fault_stall_ends },
	{ "fault_fail", "a descriptor that is made to fail writes nothing",
	  fault_fail },
	{ "fault_corrupt", "a corrupt completion is one slot, not more", fault_corrupt },
	{ "fault_heartbeat", "the heartbeat can stop, or pause, while the rest goes on",
	  fault_heartbeat },
	{ "fault_device", "a device in FAULT tells its peers and takes a reset", fault_device },
	{ "fault_die", "the device can die", fault_die },
	{ "emu_counts", "counters say what was done", emu_counts },
	{ "emu_idle", "with --until-idle it ends with its last machine", emu_idle },
	{ "emu_told_to_stop", "told to stop it ends in order and takes its sockets away",
	  emu_told_to_stop },
	{ "emu_usage", "wrong options are exit status 2", emu_usage },
};

const struct group group_faults = { tests, ARRAY_SIZE(tests) };

static const struct test name_tests[] = {
	{ "emu_name_taken", "who finds its socket's name taken disturbs nobody", emu_name_taken },
};

const struct group group_names = { name_tests, ARRAY_SIZE(name_tests) };
