// SPDX-License-Identifier: MIT
/* Bootstraps: addresses and sockets. */
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "bootstrap.h"

#define NSEC_PER_SEC	1000000000LL
/* An attempt that is not answered is made anew: the other host may have started since. */
#define ATTEMPT_NS	3000000000LL
#define BACKLOG		4096
/* A host that is gone says nothing: ask it after that many seconds, and believe it dead after. */
#define KEEP_IDLE	5
#define KEEP_INTERVAL	5
#define KEEP_COUNT	3
#define USER_TIMEOUT_MS	20000

bool net_wait(int fd, short events, int64_t deadline_ns)
{
	struct pollfd poll = { .fd = fd, .events = events };
	struct timespec time;
	int64_t left;
	int n;

	do {
		left = deadline_ns - npuwin_now();
		if (left < 0)
			left = 0;
		time.tv_sec = left / NSEC_PER_SEC;
		time.tv_nsec = left % NSEC_PER_SEC;
		n = ppoll(&poll, 1, deadline_ns == NPUWIN_NO_DEADLINE ? NULL : &time, NULL);
	} while (n < 0 && errno == EINTR);
	return n > 0;
}

void net_pause(int64_t deadline_ns, int64_t length_ns)
{
	int64_t now = npuwin_now();

	net_wait(-1, 0, deadline_ns - now < length_ns ? deadline_ns : now + length_ns);
}

static int parse_unix(const char *path, const char *text, struct boot_address *address,
		      struct npuwin_error *err)
{
	struct sockaddr_un *un = (struct sockaddr_un *)&address->at[0];
	size_t length = strlen(path);

	if (length < 2 || length >= sizeof(un->sun_path) || (path[0] != '/' && path[0] != '@'))
		return npuwin_fail(err, -EINVAL, NPUWIN_NOBODY, NPUWIN_NOBODY,
				   "bootstrap address \"%.100s\": unix: wants an absolute path or @NAME, of at most %zu bytes",
				   text, sizeof(un->sun_path) - 1);
	un->sun_family = AF_UNIX;
	memcpy(un->sun_path, path, length);
	address->count = 1;
	address->length[0] = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length);
	if (path[0] == '@')
		un->sun_path[0] = 0;
	else
		memcpy(address->unlink, path, length);
	return 0;
}

static bool is_port(const char *text)
{
	unsigned long port;

	if (!*text || strspn(text, "0123456789") != strlen(text))
		return false;
	port = strtoul(text, NULL, 10);
	return port && port <= UINT16_MAX;
}

/* HOST:PORT or [HOST]:PORT. */
static bool split_tcp(const char *text, char *host, size_t room, const char **port)
{
	const char *colon = strrchr(text, ':');
	size_t length;

	if (!colon || !is_port(colon + 1))
		return false;
	*port = colon + 1;
	length = (size_t)(colon - text);
	if (text[0] == '[') {
		if (length < 2 || text[length - 1] != ']')
			return false;
		text++;
		length -= 2;
	} else if (memchr(text, ':', length)) {
		return false;
	}
	if (!length || length >= room)
		return false;
	memcpy(host, text, length);
	host[length] = 0;
	return true;
}

static int parse_tcp(const char *where, const char *text, struct boot_address *address,
		     struct npuwin_error *err)
{
	const struct addrinfo hints = {
		.ai_socktype = SOCK_STREAM,
		.ai_flags = AI_NUMERICSERV,
	};
	struct addrinfo *list, *one;
	const char *port;
	char host[256];
	int rc;

	if (!split_tcp(where, host, sizeof(host), &port))
		return npuwin_fail(err, -EINVAL, NPUWIN_NOBODY, NPUWIN_NOBODY,
				   "bootstrap address \"%.100s\": tcp: wants HOST:PORT or [HOST]:PORT, with PORT in 1..65535",
				   text);
	rc = getaddrinfo(host, port, &hints, &list);
	if (rc)
		return npuwin_fail(err, rc == EAI_MEMORY ? -ENOMEM : -EINVAL, NPUWIN_NOBODY,
				   NPUWIN_NOBODY, "bootstrap address \"%.100s\": host %.64s: %s",
				   text, host, gai_strerror(rc));
	for (one = list; one && address->count < BOOT_PLACES; one = one->ai_next) {
		memcpy(&address->at[address->count], one->ai_addr, one->ai_addrlen);
		address->length[address->count++] = one->ai_addrlen;
	}
	freeaddrinfo(list);
	return 0;
}

int net_parse(const char *text, struct boot_address *address, struct npuwin_error *err)
{
	memset(address, 0, sizeof(*address));
	if (text && !strncmp(text, "unix:", 5))
		return parse_unix(text + 5, text, address, err);
	if (text && !strncmp(text, "tcp:", 4))
		return parse_tcp(text + 4, text, address, err);
	return npuwin_fail(err, -EINVAL, NPUWIN_NOBODY, NPUWIN_NOBODY,
			   "bootstrap address \"%.100s\" begins with neither unix: nor tcp:",
			   text ? text : "");
}

static int make_socket(sa_family_t family)
{
	int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	return fd < 0 ? -errno : fd;
}

static void set_option(int fd, int level, int option, int value)
{
	/* Connections are only slower to fail or to answer without them. */
	setsockopt(fd, level, option, &value, sizeof(value));
}

static void tune(int fd, sa_family_t family)
{
	if (family == AF_UNIX)
		return;
	set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
	set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
	set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, KEEP_IDLE);
	set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, KEEP_INTERVAL);
	set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, KEEP_COUNT);
	set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, USER_TIMEOUT_MS);
}

/* On a socket with a file: whether the other side is of this user. On others it is. */
static bool same_user(int fd, sa_family_t family)
{
	socklen_t length = sizeof(struct ucred);
	struct ucred peer;

	if (family != AF_UNIX)
		return true;
	return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) &&
	       peer.uid == geteuid();
}

/* Whether the path is of a socket that nobody listens at any more. */
static bool is_stale(const struct boot_address *address)
{
	struct stat st;
	bool stale;
	int fd;

	if (!address->unlink[0] || lstat(address->unlink, &st) || !S_ISSOCK(st.st_mode))
		return false;
	fd = make_socket(AF_UNIX);
	if (fd < 0)
		return false;
	stale = connect(fd, (const struct sockaddr *)&address->at[0], address->length[0]) &&
		errno == ECONNREFUSED;
	close(fd);
	return stale;
}

static int bind_at(int fd, const struct boot_address *address)
{
	const struct sockaddr *at = (const struct sockaddr *)&address->at[0];

	if (!bind(fd, at, address->length[0]))
		return 0;
	if (errno != EADDRINUSE || !is_stale(address))
		return -errno;
	unlink(address->unlink);
	return bind(fd, at, address->length[0]) ? -errno : 0;
}

int net_listen(struct boot_address *address, const char *text, struct npuwin_error *err)
{
	sa_family_t family = address->at[0].ss_family;
	int fd, rc;

	fd = make_socket(family);
	rc = fd < 0 ? fd : 0;
	/* What earlier connections leave behind for a while is no reason. */
	if (!rc && family != AF_UNIX)
		set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
	if (!rc)
		rc = bind_at(fd, address);
	if (rc)
		address->unlink[0] = 0;
	if (!rc && listen(fd, BACKLOG))
		rc = -errno;
	if (!rc)
		return fd;
	if (fd >= 0)
		close(fd);
	return npuwin_fail(err, rc, 0, NPUWIN_NOBODY, "bootstrap %.100s: rank 0 cannot listen there: %s",
			   text, strerror(-rc));
}

int net_accept(int listener)
{
	struct sockaddr_storage from = { 0 };
	socklen_t length = sizeof(from);
	int fd;

	fd = accept4(listener, (struct sockaddr *)&from, &length, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd < 0)
		return -errno;
	if (!same_user(fd, from.ss_family)) {
		close(fd);
		return -EACCES;
	}
	tune(fd, from.ss_family);
	return fd;
}

/* With nobody at a port of its own host, a socket may get that port and find itself. */
static bool is_self(int fd, sa_family_t family)
{
	struct sockaddr_storage own = { 0 }, peer = { 0 };
	socklen_t own_length = sizeof(own), peer_length = sizeof(peer);

	return family != AF_UNIX && !getsockname(fd, (struct sockaddr *)&own, &own_length) &&
	       !getpeername(fd, (struct sockaddr *)&peer, &peer_length) &&
	       own_length == peer_length && !memcmp(&own, &peer, own_length);
}

static int connect_one(const struct boot_address *address, uint32_t i, int64_t deadline_ns)
{
	sa_family_t family = address->at[i].ss_family;
	int fd = make_socket(family), rc = 0, soon;
	socklen_t length = sizeof(soon);

	if (fd < 0)
		return fd;
	if (connect(fd, (const struct sockaddr *)&address->at[i], address->length[i]))
		rc = -errno;
	if (rc == -EINPROGRESS || rc == -EINTR) {
		rc = -ETIMEDOUT;
		if (net_wait(fd, POLLOUT, deadline_ns) &&
		    !getsockopt(fd, SOL_SOCKET, SO_ERROR, &soon, &length))
			rc = -soon;
	}
	if (!rc && is_self(fd, family))
		rc = -ECONNREFUSED;
	if (!rc && !same_user(fd, family))
		rc = -EACCES;
	if (rc) {
		close(fd);
		return rc;
	}
	tune(fd, family);
	return fd;
}

/* What may be otherwise in a moment: rank 0, or its host, has yet to come. */
static bool may_come(int rc)
{
	switch (rc) {
	case -ECONNREFUSED:
	case -ECONNRESET:
	case -EHOSTUNREACH:
	case -ENETUNREACH:
	case -ENETDOWN:
	case -ETIMEDOUT:
	case -ENOENT:
	case -EAGAIN:
		return true;
	default:
		return false;
	}
}

int net_connect(const struct boot_address *address, const char *text, int64_t deadline_ns,
		int *why, struct npuwin_error *err)
{
	int64_t until = npuwin_now() + ATTEMPT_NS;
	uint32_t i;
	int rc = -EAGAIN;

	if (until > deadline_ns)
		until = deadline_ns;
	for (i = 0; i < address->count; i++) {
		rc = connect_one(address, i, until);
		if (rc >= 0)
			return rc;
		if (!may_come(rc))
			break;
	}
	*why = rc;
	if (may_come(rc))
		return -EAGAIN;
	if (rc == -EACCES)
		return npuwin_fail(err, rc, NPUWIN_NOBODY, 0,
				   "bootstrap %.100s: it is another user's, or not open to this one",
				   text);
	return npuwin_fail(err, rc, NPUWIN_NOBODY, 0, "bootstrap %.100s: cannot connect: %s", text,
			   strerror(-rc));
}
