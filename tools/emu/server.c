// SPDX-License-Identifier: MIT
/*
 * A device's socket, and its thread.
 *
 * Nothing here may block on what the machine on the other side shares: it holds the same
 * open files of the eventfds and could have taken their O_NONBLOCK away.
 */
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include "emu.h"

/* Peer ids of a connection. */
#define PEER_DEVICE	0
#define PEER_MACHINE	1

/* What an event of epoll is about; doorbell n is SOURCE_DOORBELL + n. */
#define SOURCE_LISTEN	0
#define SOURCE_CLIENT	1
#define SOURCE_KICK	2
#define SOURCE_DOORBELL	3

/* How long a machine waits for another look when there is no descriptor for it. */
#define ACCEPT_MS	100

static void server_changed(const struct emu *emu)
{
	u64 one = 1;

	if (write(emu->change_fd, &one, sizeof(one)) < 0)
		fprintf(stderr, "npuwin-emu: eventfd: %s\n", strerror(errno));
}

static int watch(const struct device *dev, int fd, u32 source)
{
	struct epoll_event event = { .events = EPOLLIN, .data.u32 = source };

	return epoll_ctl(dev->epoll_fd, EPOLL_CTL_ADD, fd, &event);
}

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

/* ---- the machine's side ---------------------------------------------------------- */

static int send_number(const struct device *dev, s64 number, int fd)
{
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(sizeof(int))];
	} control = { 0 };
	struct iovec iov = { .iov_base = &number, .iov_len = sizeof(number) };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (fd >= 0) {
		struct cmsghdr *header = &control.header;

		msg.msg_control = &control;
		msg.msg_controllen = sizeof(control);
		header->cmsg_level = SOL_SOCKET;
		header->cmsg_type = SCM_RIGHTS;
		header->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(header), &fd, sizeof(fd));
	}
	return sendmsg(dev->client_fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof(number) ? 0 :
											     -1;
}

static int send_greeting(const struct device *dev)
{
	int ret;

	ret = send_number(dev, 0, -1);
	ret |= send_number(dev, PEER_MACHINE, -1);
	ret |= send_number(dev, -1, dev->memory_fd);
	for (u32 i = 0; i < dev->ident.doorbells; i++)
		ret |= send_number(dev, PEER_DEVICE, dev->doorbell_fd[i]);
	for (u32 i = 0; i < dev->ident.vectors; i++)
		ret |= send_number(dev, PEER_MACHINE, dev->vector_fd[i]);
	return ret;
}

static int open_eventfds(struct device *dev)
{
	for (u32 i = 0; i < dev->ident.doorbells; i++) {
		dev->doorbell_fd[i] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		if (dev->doorbell_fd[i] < 0 ||
		    watch(dev, dev->doorbell_fd[i], SOURCE_DOORBELL + i))
			return -1;
	}
	for (u32 i = 0; i < dev->ident.vectors; i++) {
		dev->vector_fd[i] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		if (dev->vector_fd[i] < 0)
			return -1;
	}
	return 0;
}

static void machine_close(struct device *dev)
{
	/* The machine has them too, so epoll would go on to watch what is only closed. */
	for (u32 i = 0; i < NPUWIN_HW_MAX_VECTORS; i++) {
		if (dev->doorbell_fd[i] >= 0)
			epoll_ctl(dev->epoll_fd, EPOLL_CTL_DEL, dev->doorbell_fd[i], NULL);
		close_fd(&dev->doorbell_fd[i]);
		close_fd(&dev->vector_fd[i]);
	}
	close_fd(&dev->client_fd);
}

static void machine_leave(struct device *dev)
{
	machine_close(dev);
	device_disconnect(dev);
	__atomic_fetch_sub(&dev->emu->hosts, 1, __ATOMIC_SEQ_CST);
	emu_log(dev, "the machine is gone");
	server_changed(dev->emu);
}

/* Nobody can be taken for want of descriptors: the socket would stay readable. */
static void listener_pause(struct device *dev)
{
	epoll_ctl(dev->epoll_fd, EPOLL_CTL_DEL, dev->listen_fd, NULL);
	dev->listen_at = device_clock(dev) + ACCEPT_MS * NSEC_PER_MSEC;
}

static void listener_resume(struct device *dev)
{
	if (device_clock(dev) < dev->listen_at)
		return;
	dev->listen_at = NEVER;
	if (watch(dev, dev->listen_fd, SOURCE_LISTEN))
		listener_pause(dev);
}

static void machine_accept(struct device *dev)
{
	int fd = accept4(dev->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (fd < 0) {
		if (errno == EAGAIN || errno == ECONNABORTED || errno == EINTR)
			return;
		emu_log(dev, "cannot take a machine yet: %s", strerror(errno));
		listener_pause(dev);
		return;
	}
	if (dev->client_fd >= 0) {
		emu_log(dev, "refused a second machine");
		close(fd);
		return;
	}
	dev->client_fd = fd;
	if (open_eventfds(dev) || device_connect(dev)) {
		emu_log(dev, "cannot serve a machine: %s", strerror(errno));
		machine_close(dev);
		return;
	}
	__atomic_fetch_add(&dev->emu->hosts, 1, __ATOMIC_SEQ_CST);
	emu_log(dev, "a machine has connected");
	if (send_greeting(dev) || watch(dev, fd, SOURCE_CLIENT)) {
		machine_leave(dev);
		return;
	}
	server_changed(dev->emu);
}

/* ---- the thread ------------------------------------------------------------------ */

/* The counter of an eventfd, without ever waiting for one. */
static u64 take(int fd)
{
	u64 value = 0;
	struct iovec iov = { .iov_base = &value, .iov_len = sizeof(value) };

	return preadv2(fd, &iov, 1, -1, RWF_NOWAIT) == sizeof(value) ? value : 0;
}

static void serve(struct device *dev, u32 source)
{
	u64 n;

	if (source == SOURCE_LISTEN) {
		machine_accept(dev);
		return;
	}
	if (source == SOURCE_KICK) {
		take(dev->kick_fd);
		return;
	}
	if (dev->client_fd < 0)
		return;
	if (source == SOURCE_CLIENT) {
		/* It has nothing to say: it has left, or is none. */
		machine_leave(dev);
		return;
	}
	n = take(dev->doorbell_fd[source - SOURCE_DOORBELL]);
	if (!n)
		return;
	count(&dev->counters.doorbells, n);
	device_doorbell(dev, source - SOURCE_DOORBELL);
}

static int wait_ms(struct device *dev, bool more)
{
	u64 now, next, ms;

	if (more)
		return 0;
	next = dev->base ? device_next(dev) : NEVER;
	if (dev->listen_at < next)
		next = dev->listen_at;
	if (next == NEVER)
		return -1;
	now = device_clock(dev);
	if (next <= now)
		return 0;
	ms = (next - now - 1) / NSEC_PER_MSEC + 1;
	return ms < INT_MAX ? (int)ms : INT_MAX;
}

/**
 * server_run() - A device's thread.
 * @arg: the device
 *
 * Return: NULL.
 */
void *server_run(void *arg)
{
	struct epoll_event events[16];
	struct device *dev = arg;
	bool more = false;

	while (!__atomic_load_n(&dev->emu->stop, __ATOMIC_SEQ_CST)) {
		int n = epoll_wait(dev->epoll_fd, events, ARRAY_SIZE(events),
				   wait_ms(dev, more));

		for (int i = 0; i < n; i++)
			serve(dev, events[i].data.u32);
		listener_resume(dev);
		more = dev->base && device_pass(dev);
	}
	if (dev->base)
		machine_leave(dev);
	return NULL;
}

/* ---- starting -------------------------------------------------------------------- */

/* Take away a socket that nobody listens to any more. Return: 0 if the name is free. */
static int clear_path(const struct sockaddr_un *address)
{
	struct stat st;
	int fd, error;

	if (lstat(address->sun_path, &st))
		return errno == ENOENT ? 0 : -1;
	errno = EEXIST;
	if (!S_ISSOCK(st.st_mode))
		return -1;
	/* Who listens there would take a stream for his machine. This is only told that he does. */
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -1;
	error = connect(fd, (const struct sockaddr *)address, sizeof(*address)) ? errno : 0;
	close(fd);
	if (error == ECONNREFUSED)
		return unlink(address->sun_path);
	errno = !error || error == EPROTOTYPE ? EADDRINUSE : error;
	return -1;
}

/**
 * server_start() - Listen for a device's machine.
 * @dev: the device
 * @dir: where the socket goes
 *
 * Return: 0, or -1 with errno.
 */
int server_start(struct device *dev, const char *dir)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };

	if (asprintf(&dev->path, "%s/npu%u.sock", dir, dev->index) < 0) {
		dev->path = NULL;
		return -1;
	}
	if (strlen(dev->path) >= sizeof(address.sun_path)) {
		errno = ENAMETOOLONG;
		goto err_path;
	}
	memcpy(address.sun_path, dev->path, strlen(dev->path));
	if (clear_path(&address))
		goto err_path;

	dev->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (dev->listen_fd < 0 ||
	    bind(dev->listen_fd, (struct sockaddr *)&address, sizeof(address)))
		goto err_path;
	dev->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (dev->epoll_fd < 0 || listen(dev->listen_fd, 4) ||
	    watch(dev, dev->listen_fd, SOURCE_LISTEN) || watch(dev, dev->kick_fd, SOURCE_KICK)) {
		server_stop(dev);
		return -1;
	}
	return 0;

err_path:
	/* The name is somebody else's. */
	free(dev->path);
	dev->path = NULL;
	close_fd(&dev->listen_fd);
	return -1;
}

/**
 * server_stop() - Undo server_start(). Its thread has ended.
 * @dev: the device
 */
void server_stop(struct device *dev)
{
	if (dev->path)
		unlink(dev->path);
	free(dev->path);
	dev->path = NULL;
	close_fd(&dev->listen_fd);
	close_fd(&dev->epoll_fd);
}

/**
 * emu_log() - Say what happens to a device, if somebody wants to know.
 * @dev: the device
 * @format: as of printf()
 */
void emu_log(const struct device *dev, const char *format, ...)
{
	char line[256];
	va_list args;

	if (!dev->emu->log)
		return;
	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	fprintf(stderr, "npu%u: %s\n", dev->index, line);
}
