// SPDX-License-Identifier: MIT
/*
 * The emulator as a child, and connections to it.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "hw.h"

#define MAX_OPTIONS	24
#define OUTPUT_SIZE	16384
#define DEVICES_MAX	8
#define READY		"npuwin-emu: ready\n"

struct guest guests[MAX_GUESTS];

/**
 * struct child - The emulator as a child.
 * @pid: of the child, or 0
 * @dir: of its sockets; empty where there is none
 * @out: pipe from its standard output
 * @output: what has come from it
 * @length: bytes of @output
 */
struct child {
	pid_t pid;
	char dir[64];
	int out;
	char output[OUTPUT_SIZE];
	size_t length;
};

static struct child emu = { .out = -1 };

/* ---- the child ------------------------------------------------------------------- */

static void take_output(void)
{
	ssize_t n;

	while (emu.length < sizeof(emu.output) - 1) {
		n = read(emu.out, emu.output + emu.length,
			 sizeof(emu.output) - 1 - emu.length);
		if (n <= 0)
			break;
		emu.length += (size_t)n;
	}
	emu.output[emu.length] = '\0';
}

static bool is_ready(void)
{
	take_output();
	return strstr(emu.output, READY);
}

void emu_start(const char *const *options)
{
	const char *program = getenv("NPUWIN_EMU");
	const char *args[MAX_OPTIONS + 4];
	size_t n = 0;
	int fds[2];

	if (!program)
		program = "build/bin/npuwin-emu";
	strcpy(emu.dir, "/tmp/npuwin-hw-XXXXXX");
	CHECK(mkdtemp(emu.dir));
	args[n++] = program;
	args[n++] = "--socket-dir";
	args[n++] = emu.dir;
	for (; options && *options; options++) {
		CHECK(n < MAX_OPTIONS);
		args[n++] = *options;
	}
	args[n] = NULL;

	CHECK(!pipe2(fds, O_CLOEXEC | O_NONBLOCK));
	emu.out = fds[0];
	emu.length = 0;
	fflush(stdout);
	emu.pid = fork();
	if (!emu.pid) {
		dup2(fds[1], STDOUT_FILENO);
		execv(program, (char *const *)args);
		_exit(127);
	}
	close(fds[1]);
	CHECK(emu.pid > 0);
	UNTIL(is_ready());
}

static int reap(int flags)
{
	int status;
	pid_t pid = waitpid(emu.pid, &status, flags);

	if (!pid)
		return -1;
	emu.pid = 0;
	take_output();
	if (pid < 0)
		return 255;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int emu_wait(void)
{
	int status;

	UNTIL((status = reap(WNOHANG)) >= 0);
	return status;
}

int emu_stop(void)
{
	kill(emu.pid, SIGTERM);
	return emu_wait();
}

bool emu_alive(void)
{
	return emu.pid && reap(WNOHANG) < 0;
}

pid_t emu_pid(void)
{
	return emu.pid;
}

int64_t emu_cpu_ns(void)
{
	struct timespec time;
	clockid_t clock;

	CHECK(!clock_getcpuclockid(emu.pid, &clock) && !clock_gettime(clock, &time));
	return (int64_t)time.tv_sec * 1000 * NSEC_PER_MSEC + time.tv_nsec;
}

const char *emu_output(void)
{
	return emu.output;
}

const char *emu_dir(void)
{
	return emu.dir;
}

void world_end(void)
{
	char path[128];

	for (size_t i = 0; i < MAX_GUESTS; i++)
		guest_close(&guests[i]);
	if (emu.pid) {
		kill(emu.pid, SIGKILL);
		reap(0);
	}
	if (emu.out >= 0)
		close(emu.out);
	emu.out = -1;
	for (int i = 0; emu.dir[0] && i < DEVICES_MAX; i++) {
		snprintf(path, sizeof(path), "%s/npu%d.sock", emu.dir, i);
		unlink(path);
	}
	if (emu.dir[0])
		rmdir(emu.dir);
	emu.dir[0] = '\0';
}

/* ---- connections ----------------------------------------------------------------- */

/* Return: whether a message came. @fd is -1 where none came with it. */
static bool receive(int sock, int64_t *number, int *fd)
{
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec iov = { .iov_base = number, .iov_len = sizeof(*number) };
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1,
		.msg_control = &control, .msg_controllen = sizeof(control),
	};
	struct pollfd poll_fd = { .fd = sock, .events = POLLIN };
	struct cmsghdr *header;

	*fd = -1;
	if (poll(&poll_fd, 1, 20000) != 1 ||
	    recvmsg(sock, &msg, MSG_CMSG_CLOEXEC | MSG_WAITALL) != sizeof(*number))
		return false;
	header = CMSG_FIRSTHDR(&msg);
	if (header && header->cmsg_type == SCM_RIGHTS)
		memcpy(fd, CMSG_DATA(header), sizeof(*fd));
	return true;
}

int guest_knock(uint32_t device)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "%s/npu%u.sock", emu.dir, device);
	CHECK(sock >= 0);
	CHECK(!connect(sock, (struct sockaddr *)&address, sizeof(address)));
	return sock;
}

static bool greet(struct guest *g)
{
	int64_t number;
	int fd;

	if (!receive(g->sock, &g->version, &fd))
		return false;
	CHECK(fd < 0 && receive(g->sock, &g->own_id, &fd));
	CHECK(fd < 0 && receive(g->sock, &number, &g->memory_fd));
	CHECK(number == -1 && g->memory_fd >= 0);
	do {
		CHECK(receive(g->sock, &number, &fd));
		CHECK(fd >= 0);
		if (number == g->own_id) {
			g->vector[g->nvectors++] = fd;
		} else {
			CHECK(!g->nvectors && g->ndoorbells < NPUWIN_HW_MAX_VECTORS);
			g->device_id = number;
			g->doorbell[g->ndoorbells++] = fd;
		}
		/* As many vectors as doorbells are what this emulator has. */
	} while (g->nvectors < g->ndoorbells || !g->nvectors);
	return true;
}

bool guest_greet(struct guest *g, int sock)
{
	struct stat st;

	*g = (struct guest) { .sock = sock, .memory_fd = -1 };
	if (!greet(g)) {
		guest_close(g);
		return false;
	}
	CHECK(!fstat(g->memory_fd, &st));
	g->size = (size_t)st.st_size;
	g->base = mmap(NULL, g->size, PROT_READ | PROT_WRITE, MAP_SHARED, g->memory_fd, 0);
	CHECK(g->base != MAP_FAILED);
	memcpy(&g->ident, g->base + NPUWIN_HW_IDENT, sizeof(g->ident));
	return true;
}

bool guest_try_connect(struct guest *g, uint32_t device)
{
	return guest_greet(g, guest_knock(device));
}

void guest_connect(struct guest *g, uint32_t device)
{
	/* The device may not have noticed yet that the last machine has left. */
	UNTIL(guest_try_connect(g, device));
}

void guest_close(struct guest *g)
{
	if (g->sock <= 0)
		return;
	if (g->base)
		munmap(g->base, g->size);
	for (uint32_t i = 0; i < g->ndoorbells; i++)
		close(g->doorbell[i]);
	for (uint32_t i = 0; i < g->nvectors; i++)
		close(g->vector[i]);
	if (g->memory_fd >= 0)
		close(g->memory_fd);
	close(g->sock);
	*g = (struct guest) { 0 };
}

/* ---- what a machine does --------------------------------------------------------- */

void ring(struct guest *g, uint32_t number)
{
	uint64_t one = 1;

	CHECK(number < g->ndoorbells);
	CHECK(write(g->doorbell[number], &one, sizeof(one)) == sizeof(one));
}

uint64_t irqs(struct guest *g, uint32_t vector)
{
	uint64_t n;

	CHECK(vector < g->nvectors);
	if (read(g->vector[vector], &n, sizeof(n)) == sizeof(n))
		g->irqs[vector] += n;
	return g->irqs[vector];
}

uint64_t rings_alloc(struct guest *g, uint64_t size)
{
	uint64_t at = g->rings_used;

	g->rings_used += (size + 4095) & ~4095ULL;
	CHECK(g->rings_used <= g->ident.rings.size);
	return g->ident.rings.offset + at;
}

void guest_reset(struct guest *g)
{
	if (!++g->resets)
		g->resets = 1;
	WRITE(control_of(g)->reset, g->resets);
	ring(g, 0);
	UNTIL(READ(status_of(g)->reset_ack) == g->resets);
	control_of(g)->admin_tail = 0;
	control_of(g)->event_head = 0;
	g->admin_tail = 0;
	g->event_head = 0;
	g->rings_used = 0;
	memset(g->base + g->ident.queue_posts.offset, 0, g->ident.queue_posts.size);
}

void guest_enable(struct guest *g)
{
	WRITE(control_of(g)->enable, g->resets);
	ring(g, 0);
	UNTIL(READ(status_of(g)->state) == NPUWIN_HW_READY);
}

void guest_ready(struct guest *g)
{
	guest_reset(g);
	guest_enable(g);
}

struct npuwin_hw_endpoint_state *ep_state(struct guest *g, uint32_t id)
{
	return (struct npuwin_hw_endpoint_state *)
		(g->base + g->ident.endpoint_states.offset) + id;
}

uint32_t *ep_arm(struct guest *g, uint32_t id)
{
	return &((struct npuwin_hw_endpoint_arm *)
		 (g->base + g->ident.endpoint_arms.offset))[id].arm;
}

struct npuwin_hw_queue_state *q_state(struct guest *g, uint32_t id)
{
	return (struct npuwin_hw_queue_state *)(g->base + g->ident.queue_states.offset) + id;
}

struct npuwin_hw_queue_post *q_post(struct guest *g, uint32_t id)
{
	return (struct npuwin_hw_queue_post *)(g->base + g->ident.queue_posts.offset) + id;
}

int32_t *reg_of(struct guest *g, uint32_t endpoint, uint32_t number)
{
	return (int32_t *)(g->base + g->ident.notify.offset) +
	       (uint64_t)endpoint * NPUWIN_NOTIFY_REGS + number;
}

uint64_t window_offset(struct guest *g, uint32_t endpoint)
{
	return g->ident.windows.offset + (uint64_t)endpoint * WINDOW_SIZE;
}

uint8_t *window_of(struct guest *g, uint32_t endpoint)
{
	return g->base + window_offset(g, endpoint);
}

int32_t *cell_of(struct guest *g, uint32_t offset)
{
	return (int32_t *)(window_of(g, 0) + offset);
}
