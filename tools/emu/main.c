// SPDX-License-Identifier: MIT
/*
 * npuwin-emu: NPU window devices as a process, for machines that QEMU runs.
 */
#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "emu.h"

#define EXIT_USAGE	2
/* Descriptors of the process, with some that its libraries may want. */
#define FILES		16
/* Of each device beside eventfds: five of its own, and a second machine to turn away. */
#define DEVICE_FILES	6

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the device is little-endian");

/**
 * struct options - What main() itself needs to know.
 * @dir: where the sockets go
 * @until_idle: end when the last machine has left
 * @stats: print counters at the end
 * @json: as JSON
 */
struct options {
	const char *dir;
	bool until_idle;
	bool stats;
	bool json;
};

static const struct option long_options[] = {
	{ "devices", required_argument, NULL, 'n' },
	{ "socket-dir", required_argument, NULL, 'd' },
	{ "memory", required_argument, NULL, 'm' },
	{ "queues", required_argument, NULL, 'q' },
	{ "endpoints", required_argument, NULL, 'e' },
	{ "vectors", required_argument, NULL, 'v' },
	{ "depth", required_argument, NULL, 'D' },
	{ "heartbeat", required_argument, NULL, 'b' },
	{ "seed", required_argument, NULL, 's' },
	{ "fault", required_argument, NULL, 'f' },
	{ "stats", optional_argument, NULL, 'S' },
	{ "until-idle", no_argument, NULL, 'u' },
	{ "log", no_argument, NULL, 'l' },
	{ "help", no_argument, NULL, 'h' },
	{ "version", no_argument, NULL, 'V' },
	{ NULL, 0, NULL, 0 },
};

static void print_help(void)
{
	printf("npuwin-emu - NPU window devices for machines under QEMU\n\n"
	       "Usage: npuwin-emu --socket-dir DIR [OPTIONS]\n\n"
	       "Device N is the socket DIR/npuN.sock. All devices are on one fabric; each has\n"
	       "memory of its own. It says \"ready\" when machines can connect.\n\n"
	       "Options:\n"
	       "  --socket-dir DIR   where the sockets go\n"
	       "  --devices N        number of devices (default 2, at most %d)\n"
	       "  --memory SIZE      memory of each device, a power of two (default 64M)\n"
	       "  --queues N         queues of each device (default 64)\n"
	       "  --endpoints N      endpoints of each device (default 64)\n"
	       "  --vectors N        interrupt vectors and doorbells (default 4); not more\n"
	       "                     than the machine's vectors=\n"
	       "  --depth N          entries of a ring at most, a power of two (default 8192)\n"
	       "  --heartbeat MS     period of the heartbeat (default 100)\n"
	       "  --seed N           seed of what is random (default 1)\n"
	       "  --fault RULE       make something go wrong, see below (repeatable)\n"
	       "  --stats[=json]     print counters at the end, and on SIGUSR1\n"
	       "  --until-idle       end when the last machine has left\n"
	       "  --log              say on stderr what happens\n"
	       "  --help, --version\n\n"
	       "A rule is NAME[:KEY=N[,KEY=N]...]. Names:\n", EMU_MAX_DEVICES);
	fault_print_kinds();
	printf("Keys: dev (which device; all), nth (from which occasion on, counted from 1;\n"
	       "without every, percent or count: only at that one), every, count, percent,\n"
	       "ms of those above that speak of it, status of fail (NPUWIN_ST_*, 1..12).\n\n"
	       "Example:\n"
	       "  npuwin-emu --socket-dir /tmp/npu --devices 1 --fault drop-irq:every=3 &\n"
	       "  qemu-system-x86_64 ... -chardev socket,path=/tmp/npu/npu0.sock,id=c0 \\\n"
	       "      -device ivshmem-doorbell,chardev=c0,vectors=4\n\n"
	       "Exit status: 0 told to stop or idle, 1 failed, 2 wrong usage, 3 --fault die.\n");
}

__attribute__((format(printf, 1, 2), noreturn))
static void usage(const char *format, ...)
{
	va_list args;

	fprintf(stderr, "npuwin-emu: ");
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fprintf(stderr, "\nTry: npuwin-emu --help\n");
	exit(EXIT_USAGE);
}

static u64 parse_number(const char *name, const char *text, u64 least, u64 most)
{
	char *end;
	u64 value;

	errno = 0;
	value = strtoull(text, &end, 0);
	if (*text < '0' || *text > '9' || errno || *end || value < least || value > most)
		usage("--%s: '%s' is not a number from %llu to %llu", name, text,
		      (unsigned long long)least, (unsigned long long)most);
	return value;
}

static u64 parse_size(const char *name, const char *text)
{
	static const char units[] = "KMGT";
	const char *unit;
	u64 value;
	char *end;

	errno = 0;
	value = strtoull(text, &end, 0);
	unit = *end ? strchr(units, *end) : NULL;
	if (*text < '0' || *text > '9' || errno || (*end && (!unit || end[1])))
		usage("--%s: '%s' is not a size such as 64M", name, text);
	if (unit && __builtin_mul_overflow(value, 1ULL << (10 * (unit - units + 1)), &value))
		usage("--%s: '%s' is too large", name, text);
	if (!value || value & (value - 1) || value > 1ULL << 46)
		usage("--%s: '%s' is not a power of two up to 64T", name, text);
	return value;
}

static void add_rule(struct config *config, const char *text)
{
	const char *why;

	if (config->nrules == EMU_MAX_RULES)
		usage("--fault: at most %d rules", EMU_MAX_RULES);
	if (fault_parse(text, &config->rules[config->nrules], &why))
		usage("--fault: '%s': %s", text, why);
	config->nrules++;
}

/* See that the process may have as many descriptors as its devices need. */
static void allow_files(const struct config *config)
{
	const rlim_t need = FILES + (rlim_t)config->devices * (DEVICE_FILES + 2 * config->vectors);
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur >= need)
		return;
	if (limit.rlim_max < need)
		usage("%u devices of %u vectors need %llu open files, and %llu are allowed",
		      config->devices, config->vectors, (unsigned long long)need,
		      (unsigned long long)limit.rlim_max);
	limit.rlim_cur = need;
	if (setrlimit(RLIMIT_NOFILE, &limit))
		usage("cannot have %llu open files: %s", (unsigned long long)need,
		      strerror(errno));
}

static void parse(int argc, char **argv, struct emu *emu, struct options *options)
{
	struct config *config = &emu->config;
	struct npuwin_hw_ident ident;
	int c, which;

	*config = (struct config) {
		.devices = 2, .memory = 64ULL << 20, .queues = 64, .endpoints = 64, .vectors = 4,
		.depth = 8192, .heartbeat_ms = 100, .seed = 1,
	};
	*options = (struct options) { 0 };
	while ((c = getopt_long(argc, argv, "", long_options, &which)) != -1) {
		const char *name = c == '?' ? "" : long_options[which].name;
		const char *value = optarg ? optarg : "";

		switch (c) {
		case 'n':
			config->devices = (u32)parse_number(name, value, 1, EMU_MAX_DEVICES);
			break;
		case 'd':
			options->dir = value;
			break;
		case 'm':
			config->memory = parse_size(name, value);
			break;
		case 'q':
			config->queues = (u32)parse_number(name, value, 1, NPUWIN_HW_MAX_QUEUES);
			break;
		case 'e':
			config->endpoints = (u32)parse_number(name, value, 1,
							NPUWIN_HW_MAX_ENDPOINTS);
			break;
		case 'v':
			config->vectors = (u32)parse_number(name, value, 1, NPUWIN_HW_MAX_VECTORS);
			break;
		case 'D':
			config->depth = (u32)parse_number(name, value, 1, NPUWIN_HW_MAX_DEPTH);
			if (config->depth & (config->depth - 1))
				usage("--depth: %u is not a power of two", config->depth);
			break;
		case 'b':
			config->heartbeat_ms = (u32)parse_number(name, value, 1, 10000);
			break;
		case 's':
			config->seed = parse_number(name, value, 0, UINT64_MAX);
			break;
		case 'f':
			add_rule(config, value);
			break;
		case 'S':
			options->stats = true;
			options->json = !strcmp(value, "json");
			if (*value && !options->json)
				usage("--stats: '%s' is not json", value);
			break;
		case 'u':
			options->until_idle = true;
			break;
		case 'l':
			emu->log = true;
			break;
		case 'h':
			print_help();
			exit(EXIT_SUCCESS);
		case 'V':
			printf("npuwin-emu %s\n", NPUWIN_VERSION_STRING);
			exit(EXIT_SUCCESS);
		default:
			usage("unknown option, or one without its value");
		}
	}
	if (optind < argc)
		usage("'%s' is too much", argv[optind]);
	if (!options->dir)
		usage("--socket-dir is missing");
	for (u32 i = 0; i < config->nrules; i++) {
		if (config->rules[i].device >= (int)config->devices)
			usage("--fault: dev=%d, but there are %u devices", config->rules[i].device,
			      config->devices);
	}
	if (memory_layout(config, &ident))
		usage("--memory: %u queues and %u endpoints need %lluK", config->queues,
		      config->endpoints, (unsigned long long)memory_least(config) >> 10);
	allow_files(config);
}

/* ---- running --------------------------------------------------------------------- */

static void on_wake(int signo)
{
}

/* Which signals are to end it or to report, as a descriptor that polls. */
static int open_signals(void)
{
	struct sigaction action = { .sa_handler = on_wake };
	sigset_t set;

	sigaction(SIGUSR2, &action, NULL);
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	return signalfd(-1, &set, SFD_CLOEXEC);
}

static void join(struct device *dev)
{
	struct timespec until;

	/* A machine could have made a system call of the thread block; a signal ends it. */
	do {
		device_wake(dev);
		pthread_kill(dev->thread, SIGUSR2);
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_sec++;
	} while (pthread_timedjoin_np(dev->thread, NULL, &until));
}

static void wait_for_end(struct emu *emu, const struct options *options, int signal_fd)
{
	struct pollfd fds[] = {
		{ .fd = signal_fd, .events = POLLIN },
		{ .fd = emu->change_fd, .events = POLLIN },
	};
	struct signalfd_siginfo info;
	u64 changes;

	for (;;) {
		if (poll(fds, ARRAY_SIZE(fds), -1) < 0)
			continue;
		if (fds[0].revents && read(signal_fd, &info, sizeof(info)) == sizeof(info)) {
			if (info.ssi_signo != SIGUSR1)
				return;
			stats_print(emu, options->json);
		}
		/* Before the first machine comes there is no change. */
		if (fds[1].revents && read(emu->change_fd, &changes, sizeof(changes)) > 0 &&
		    options->until_idle && !__atomic_load_n(&emu->hosts, __ATOMIC_SEQ_CST))
			return;
	}
}

static int start(struct emu *emu, const char *dir)
{
	for (u32 i = 0; i < emu->config.devices; i++) {
		struct device *dev = &emu->devices[i];

		if (device_create(dev, emu, i)) {
			fprintf(stderr, "npuwin-emu: device %u: %s\n", i, strerror(errno));
			return -1;
		}
		if (server_start(dev, dir)) {
			fprintf(stderr, "npuwin-emu: %s/npu%u.sock: %s\n", dir, i,
				strerror(errno));
			return -1;
		}
	}
	for (u32 i = 0; i < emu->config.devices; i++) {
		struct device *dev = &emu->devices[i];
		int error = pthread_create(&dev->thread, NULL, server_run, dev);

		if (error) {
			fprintf(stderr, "npuwin-emu: thread: %s\n", strerror(error));
			return -1;
		}
	}
	return 0;
}

#ifdef __SANITIZE_THREAD__
const char *__tsan_default_suppressions(void);

/* Window memory is the hosts': where they race on it, it is they who do. */
const char *__tsan_default_suppressions(void)
{
	return "race:put_bytes\n";
}
#endif

int main(int argc, char **argv)
{
	static struct emu emu;
	struct options options;
	int signal_fd;

	parse(argc, argv, &emu, &options);
	signal_fd = open_signals();
	emu.change_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	emu.devices = calloc(emu.config.devices, sizeof(*emu.devices));
	if (signal_fd < 0 || emu.change_fd < 0 || !emu.devices ||
	    getrandom(&emu.fabric, sizeof(emu.fabric), 0) != sizeof(emu.fabric)) {
		fprintf(stderr, "npuwin-emu: %s\n", strerror(errno));
		return EXIT_FAILURE;
	}
	emu.fabric &= ~0xffffULL;
	/* What has been started goes with the process. */
	if (start(&emu, options.dir))
		return EXIT_FAILURE;
	printf("npuwin-emu: ready\n");
	fflush(stdout);

	wait_for_end(&emu, &options, signal_fd);

	__atomic_store_n(&emu.stop, 1, __ATOMIC_SEQ_CST);
	for (u32 i = 0; i < emu.config.devices; i++) {
		join(&emu.devices[i]);
		server_stop(&emu.devices[i]);
	}
	if (options.stats)
		stats_print(&emu, options.json);
	for (u32 i = 0; i < emu.config.devices; i++)
		device_destroy(&emu.devices[i]);
	free(emu.devices);
	close(emu.change_fd);
	close(signal_fd);
	return EXIT_SUCCESS;
}
