// SPDX-License-Identifier: MIT
/*
 * Meeting by name, on an abstract UNIX socket of the user.
 *
 * Whoever binds the name hands the domain out, in the thread that called, for as long as ranks
 * are missing. A joiner says what he expects, gets the descriptor or what differs, joins, and
 * closes. Nobody can hold the others up: messages have one size, sockets do not block, and of
 * too many clients the oldest that has said nothing goes.
 */
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "rendezvous.h"

#define RV_MAGIC	0x7672776eU
#define RV_VERSION	1U
/* How often the server looks whether ranks have come another way or have died. */
#define SLICE_NS	20000000
#define RETRY_NS	5000000
#define BACKLOG		4096
#define SPARE_CLIENTS	32

/**
 * struct rv_request - What a joiner expects.
 * @magic: RV_MAGIC
 * @version: RV_VERSION
 * @provider: name
 * @nranks: ranks
 * @rank: his
 * @window_size: bytes, the runtime's own part included
 * @flags: NPUWIN_DOMAIN_*
 * @reserved: zero
 */
struct rv_request {
	uint32_t magic;
	uint32_t version;
	char provider[8];
	uint32_t nranks;
	uint32_t rank;
	uint64_t window_size;
	uint32_t flags;
	uint32_t reserved;
};

/**
 * struct rv_reply - What the domain is; with its descriptor where @code is 0.
 * @magic: RV_MAGIC
 * @version: RV_VERSION
 * @provider: name
 * @nranks: ranks
 * @rank: the server's
 * @window_size: bytes, the runtime's own part included
 * @code: 0; -EINVAL something differs; -EAGAIN not this one, come again; -EBUSY successors only
 * @reserved: zero
 */
struct rv_reply {
	uint32_t magic;
	uint32_t version;
	char provider[8];
	uint32_t nranks;
	uint32_t rank;
	uint64_t window_size;
	int32_t code;
	uint32_t reserved;
};

/**
 * struct rv_server - Handing a domain out.
 * @ep: the rank that does
 * @replace: to successors only
 * @room: elements of @polls
 * @count: of them in use: the listener, then clients from the oldest
 * @polls: sockets
 * @served: by client: has been answered
 */
struct rv_server {
	struct endpoint *ep;
	bool replace;
	uint32_t room;
	uint32_t count;
	struct pollfd *polls;
	bool *served;
};

static socklen_t make_address(struct sockaddr_un *address, const char *name)
{
	int length;

	memset(address, 0, sizeof(*address));
	address->sun_family = AF_UNIX;
	length = snprintf(address->sun_path + 1, sizeof(address->sun_path) - 1,
			  "npuwin/%u/%s", (unsigned int)geteuid(), name);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

static int make_socket(struct npuwin_error *err)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return npuwin_fail(err, -errno, NPUWIN_NOBODY, NPUWIN_NOBODY,
				   "cannot make a socket: %s", strerror(errno));
	return fd;
}

static bool same_user(int fd, uid_t *uid)
{
	socklen_t length = sizeof(struct ucred);
	struct ucred peer;

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length))
		return false;
	*uid = peer.uid;
	return peer.uid == geteuid();
}

/* Wait for an event of the sockets, until the deadline at most. */
static int wait_for(struct pollfd *polls, uint32_t count, int64_t deadline_ns)
{
	int64_t left = deadline_ns - npuwin_now();
	struct timespec time;

	if (left < 0)
		left = 0;
	time.tv_sec = left / 1000000000;
	time.tv_nsec = left % 1000000000;
	return ppoll(polls, count, deadline_ns == NPUWIN_NO_DEADLINE ? NULL : &time, NULL);
}

static void pause_until(int64_t deadline_ns)
{
	int64_t now = npuwin_now();

	wait_for(NULL, 0, deadline_ns - now < RETRY_NS ? deadline_ns : now + RETRY_NS);
}

/*
 * The one who hands out
 */

static void drop_client(struct rv_server *server, uint32_t index)
{
	uint32_t after = server->count - index - 1;

	close(server->polls[index].fd);
	memmove(&server->polls[index], &server->polls[index + 1], after * sizeof(*server->polls));
	memmove(&server->served[index], &server->served[index + 1],
		after * sizeof(*server->served));
	server->count--;
}

static void accept_clients(struct rv_server *server)
{
	uint32_t victim;
	uid_t uid;
	int fd;

	for (;;) {
		fd = accept4(server->polls[0].fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (fd < 0)
			return;
		if (!same_user(fd, &uid)) {
			close(fd);
			continue;
		}
		if (server->count == server->room) {
			for (victim = 1; victim < server->count - 1; victim++)
				if (!server->served[victim])
					break;
			drop_client(server, victim);
		}
		server->polls[server->count] = (struct pollfd){ .fd = fd, .events = POLLIN };
		server->served[server->count++] = false;
	}
}

static int send_reply(int fd, const struct rv_reply *reply, int domain_fd)
{
	union {
		struct cmsghdr align;
		char space[CMSG_SPACE(sizeof(int))];
	} control = { 0 };
	struct iovec data = { (void *)reply, sizeof(*reply) };
	struct msghdr message = { .msg_iov = &data, .msg_iovlen = 1 };
	struct cmsghdr *header;

	if (!reply->code) {
		message.msg_control = &control;
		message.msg_controllen = sizeof(control);
		header = CMSG_FIRSTHDR(&message);
		header->cmsg_level = SOL_SOCKET;
		header->cmsg_type = SCM_RIGHTS;
		header->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(header), &domain_fd, sizeof(int));
	}
	return sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof(*reply) ? 0 : -EPIPE;
}

/* Answer a client. False where it has gone, or has said what nobody says. */
static bool serve_client(struct rv_server *server, uint32_t index)
{
	struct endpoint *ep = server->ep;
	int fd = server->polls[index].fd;
	struct rv_request request;
	struct rv_reply reply = {
		.magic = RV_MAGIC,
		.version = RV_VERSION,
		.nranks = ep->nranks,
		.rank = ep->rank,
		.window_size = ep->window_size,
	};
	ssize_t size;

	do {
		size = recv(fd, &request, sizeof(request), MSG_DONTWAIT | MSG_TRUNC);
	} while (size < 0 && errno == EINTR);
	if (size < 0 && errno == EAGAIN)
		return true;
	if (size != sizeof(request) || request.magic != RV_MAGIC || server->served[index])
		return false;
	strncpy(reply.provider, ep->ctx->ops->name, sizeof(reply.provider) - 1);
	if (request.version != RV_VERSION || request.nranks != ep->nranks ||
	    memcmp(request.provider, reply.provider, sizeof(reply.provider)) ||
	    request.window_size > ep->window_size)
		reply.code = -EINVAL;
	else if (server->replace && !(request.flags & NPUWIN_DOMAIN_REPLACE))
		reply.code = -EBUSY;
	else if (!server->replace && request.flags & NPUWIN_DOMAIN_REPLACE)
		reply.code = -EAGAIN;
	server->served[index] = true;
	return !send_reply(fd, &reply, ep->fd);
}

static bool all_joined(const struct endpoint *ep)
{
	uint32_t rank;

	for (rank = 0; rank < ep->nranks; rank++)
		if (__atomic_load_n(&ep->status->rank[rank].state, __ATOMIC_ACQUIRE) !=
		    NPUWIN_RANK_JOINED)
			return false;
	return true;
}

/* Serve until all have joined: 0; or until the commit says how it ended. */
static int serve_all(struct rv_server *server, int64_t deadline_ns, uint32_t *missing)
{
	struct endpoint *ep = server->ep;
	int64_t slice;
	uint32_t i;
	int rc;

	for (;;) {
		/* It also keeps the watch on those who have joined. */
		rc = ep->ctx->ops->commit(ep, 0, missing);
		if (rc != -EAGAIN || all_joined(ep))
			return rc == -EAGAIN ? 0 : rc;
		if (deadline_ns <= npuwin_now())
			return -ETIMEDOUT;
		slice = npuwin_now() + SLICE_NS;
		wait_for(server->polls, server->count, slice < deadline_ns ? slice : deadline_ns);
		for (i = server->count - 1; i; i--)
			if (server->polls[i].revents && !serve_client(server, i))
				drop_client(server, i);
		if (server->polls[0].revents)
			accept_clients(server);
	}
}

/* Hand the domain out through a listening socket, which is closed in the end. */
static int serve(struct endpoint *ep, int listener, bool replace, int64_t deadline_ns,
		 uint32_t *missing)
{
	struct rv_server server = {
		.ep = ep,
		.replace = replace,
		.room = ep->nranks + SPARE_CLIENTS,
		.count = 1,
	};
	int rc = -ENOMEM;

	server.polls = calloc(server.room, sizeof(*server.polls));
	server.served = calloc(server.room, sizeof(*server.served));
	if (!server.polls || !server.served) {
		close(listener);
		goto free_arrays;
	}
	server.polls[0] = (struct pollfd){ .fd = listener, .events = POLLIN };
	rc = serve_all(&server, deadline_ns, missing);
	while (server.count)
		drop_client(&server, server.count - 1);
free_arrays:
	free(server.served);
	free(server.polls);
	return rc;
}

/* Become the one who hands out: a listening socket, or -EADDRINUSE. */
static int take_name(const char *name, struct npuwin_error *err)
{
	struct sockaddr_un address;
	socklen_t length = make_address(&address, name);
	int fd, rc;

	fd = make_socket(err);
	if (fd < 0)
		return fd;
	if (bind(fd, (struct sockaddr *)&address, length) || listen(fd, BACKLOG)) {
		rc = -errno;
		close(fd);
		if (rc == -EADDRINUSE)
			return rc;
		return npuwin_fail(err, rc, NPUWIN_NOBODY, NPUWIN_NOBODY,
				   "cannot take the name \"%s\": %s", name, strerror(-rc));
	}
	return fd;
}

static int fail_serving(const struct endpoint *ep, const char *name, int rc, uint32_t missing,
			struct npuwin_error *err)
{
	int32_t peer = missing < ep->nranks ? (int32_t)missing : NPUWIN_NOBODY;

	if (rc == -ETIMEDOUT)
		return npuwin_fail(err, rc, (int32_t)ep->rank, peer,
				   "deadline: rank %" PRId32
				   " has not joined the domain \"%s\" of %" PRIu32 " ranks",
				   peer, name, ep->nranks);
	if (rc == -EPIPE)
		return npuwin_fail(err, rc, (int32_t)ep->rank, peer,
				   "rank %" PRId32
				   " died before every rank had joined the domain \"%s\"",
				   peer, name);
	return npuwin_fail(err, rc, (int32_t)ep->rank, NPUWIN_NOBODY,
			   "handing out the domain \"%s\": %s", name, strerror(-rc));
}

static int found(struct npuwin *ctx, const struct npuwin_domain_attr *attr, uint64_t window_size,
		 int listener, struct endpoint **ep, struct npuwin_error *err)
{
	uint32_t missing = NPUWIN_NO_RANK;
	int fd, rc;

	fd = ctx->ops->domain_create(ctx, attr->nranks, window_size, err);
	if (fd < 0) {
		close(listener);
		return fd;
	}
	rc = ctx->ops->join(ctx, fd, attr->nranks, window_size, attr->rank, attr->device, ep,
			    err);
	close(fd);
	if (rc) {
		close(listener);
		return rc;
	}
	rc = serve(*ep, listener, false, attr->deadline_ns, &missing);
	if (rc) {
		fail_serving(*ep, attr->name, rc, missing, err);
		/* Nobody else can complete this domain: those who wait in it begin anew. */
		ctx->ops->abort(*ep, ECANCELED);
		ctx->ops->leave(*ep);
	}
	return rc;
}

int rendezvous_replace(struct endpoint *ep, const char *name, int64_t deadline_ns,
		       struct npuwin_error *err)
{
	uint32_t missing = NPUWIN_NO_RANK;
	int listener, rc;

	for (;;) {
		listener = take_name(name, err);
		if (listener != -EADDRINUSE)
			break;
		if (deadline_ns <= npuwin_now())
			return npuwin_fail(err, -ETIMEDOUT, (int32_t)ep->rank, NPUWIN_NOBODY,
					   "deadline: the name \"%s\" is taken by another domain that is forming",
					   name);
		pause_until(deadline_ns);
	}
	if (listener < 0)
		return listener;
	rc = serve(ep, listener, true, deadline_ns, &missing);
	if (rc == -EPIPE || rc == -ECANCELED)
		return 0;
	return rc ? fail_serving(ep, name, rc, missing, err) : 0;
}

/*
 * The one who comes
 */

static int connect_name(const char *name, struct npuwin_error *err)
{
	struct sockaddr_un address;
	socklen_t length = make_address(&address, name);
	uid_t uid = 0;
	int fd, rc;

	fd = make_socket(err);
	if (fd < 0)
		return fd;
	if (connect(fd, (struct sockaddr *)&address, length)) {
		rc = -errno;
		close(fd);
		if (rc == -ECONNREFUSED || rc == -EAGAIN || rc == -EINTR)
			return -EAGAIN;
		return npuwin_fail(err, rc, NPUWIN_NOBODY, NPUWIN_NOBODY,
				   "cannot connect to the name \"%s\": %s", name, strerror(-rc));
	}
	if (same_user(fd, &uid))
		return fd;
	close(fd);
	return npuwin_fail(err, -EACCES, NPUWIN_NOBODY, NPUWIN_NOBODY,
			   "the name \"%s\" is held by another user, %u", name,
			   (unsigned int)uid);
}

/* The descriptor that came along, if it is one; what else came is closed. */
static int take_descriptor(struct msghdr *message)
{
	struct cmsghdr *header = CMSG_FIRSTHDR(message);
	int fds[2] = { -1, -1 };
	size_t i, count;

	if (!header || header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS ||
	    header->cmsg_len > CMSG_LEN(sizeof(fds)))
		return -1;
	count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
	memcpy(fds, CMSG_DATA(header), count * sizeof(int));
	if (count == 1)
		return fds[0];
	for (i = 0; i < count; i++)
		close(fds[i]);
	return -1;
}

/* Returns the descriptor that came along, or -1 where none did. */
static int receive(int fd, struct rv_reply *reply, ssize_t *size)
{
	union {
		struct cmsghdr align;
		char space[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec data = { reply, sizeof(*reply) };
	struct msghdr message = {
		.msg_iov = &data,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control),
	};

	*size = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	return *size < 0 ? -1 : take_descriptor(&message);
}

static int explain(const struct npuwin *ctx, const struct npuwin_domain_attr *attr,
		   uint64_t window_size, const struct rv_reply *reply, struct npuwin_error *err)
{
	int32_t rank = (int32_t)attr->rank;
	uint64_t own = window_size - attr->window_size;

	if (reply->code == -EBUSY)
		return npuwin_fail(err, -EBUSY, rank, NPUWIN_NOBODY,
				   "the domain \"%s\" exists: only a successor of a rank that died can join it (NPUWIN_DOMAIN_REPLACE)",
				   attr->name);
	if (reply->version != RV_VERSION)
		return npuwin_fail(err, -EINVAL, rank, NPUWIN_NOBODY,
				   "the domain \"%s\" is of another version of the library",
				   attr->name);
	if (strncmp(reply->provider, ctx->ops->name, sizeof(reply->provider)))
		return npuwin_fail(err, -EINVAL, rank, NPUWIN_NOBODY,
				   "the provider is %s, but the domain \"%s\" has %.8s",
				   ctx->ops->name, attr->name, reply->provider);
	if (reply->nranks != attr->nranks)
		return npuwin_fail(err, -EINVAL, rank, NPUWIN_NOBODY,
				   "nranks is %" PRIu32 ", but the domain \"%s\" has %" PRIu32,
				   attr->nranks, attr->name, reply->nranks);
	return npuwin_fail(err, -EINVAL, rank, NPUWIN_NOBODY,
			   "window_size is %" PRIu64 ", but the domain \"%s\" has %" PRIu64,
			   attr->window_size, attr->name, reply->window_size - own);
}

/* Ask for the descriptor. Returns it; -EAGAIN to come again; or what is wrong. */
static int ask(struct npuwin *ctx, const struct npuwin_domain_attr *attr, uint64_t window_size,
	       int fd, uint32_t *founder, struct npuwin_error *err)
{
	struct pollfd poll = { .fd = fd, .events = POLLIN };
	struct rv_request request = {
		.magic = RV_MAGIC,
		.version = RV_VERSION,
		.nranks = attr->nranks,
		.rank = attr->rank,
		.window_size = window_size,
		.flags = attr->flags,
	};
	struct rv_reply reply;
	ssize_t size;
	int domain_fd;

	strncpy(request.provider, ctx->ops->name, sizeof(request.provider) - 1);
	if (send(fd, &request, sizeof(request), MSG_NOSIGNAL) != sizeof(request))
		return -EAGAIN;
	do {
		if (wait_for(&poll, 1, attr->deadline_ns) == 0)
			return -EAGAIN;
		domain_fd = receive(fd, &reply, &size);
	} while (size < 0 && (errno == EAGAIN || errno == EINTR));
	if (size != sizeof(reply) || reply.magic != RV_MAGIC || reply.code == -EAGAIN ||
	    (!reply.code && domain_fd < 0)) {
		if (domain_fd >= 0)
			close(domain_fd);
		return -EAGAIN;
	}
	if (reply.code) {
		if (domain_fd >= 0)
			close(domain_fd);
		return explain(ctx, attr, window_size, &reply, err);
	}
	*founder = reply.rank;
	return domain_fd;
}

static int come(struct npuwin *ctx, const struct npuwin_domain_attr *attr, uint64_t window_size,
		struct endpoint **ep, uint32_t *founder, struct npuwin_error *err)
{
	struct npuwin_error why;
	uint32_t missing;
	int fd, domain_fd, rc;

	fd = connect_name(attr->name, err);
	if (fd < 0)
		return fd;
	domain_fd = ask(ctx, attr, window_size, fd, founder, err);
	if (domain_fd < 0) {
		close(fd);
		return domain_fd;
	}
	rc = ctx->ops->join(ctx, domain_fd, attr->nranks, window_size, attr->rank, attr->device,
			    ep, &why);
	if (rc)
		rc = npuwin_fail(err, rc, (int32_t)attr->rank, why.peer, "domain \"%s\": %.150s",
				 attr->name, why.text);
	else
		ctx->ops->commit(*ep, 0, &missing);
	close(domain_fd);
	close(fd);
	return rc;
}

int rendezvous_join(struct npuwin *ctx, const struct npuwin_domain_attr *attr,
		    uint64_t window_size, struct endpoint **ep, uint32_t *founder,
		    struct npuwin_error *err)
{
	bool replace = attr->flags & NPUWIN_DOMAIN_REPLACE;
	int listener, rc;

	for (;;) {
		listener = replace ? -EADDRINUSE : take_name(attr->name, err);
		if (listener >= 0) {
			*founder = attr->rank;
			return found(ctx, attr, window_size, listener, ep, err);
		}
		if (listener != -EADDRINUSE)
			return listener;
		rc = come(ctx, attr, window_size, ep, founder, err);
		/* A domain that is already dying is left to those in it. */
		if (rc != -EAGAIN && rc != -EPIPE)
			return rc;
		if (attr->deadline_ns <= npuwin_now())
			break;
		pause_until(attr->deadline_ns);
	}
	if (replace)
		return npuwin_fail(err, -ETIMEDOUT, (int32_t)attr->rank, NPUWIN_NOBODY,
				   "deadline: nobody lets a successor of rank %" PRIu32
				   " into the domain \"%s\"", attr->rank, attr->name);
	return npuwin_fail(err, -ETIMEDOUT, (int32_t)attr->rank, NPUWIN_NOBODY,
			   "deadline: rank %" PRIu32
			   " got no answer from who forms the domain \"%s\"", attr->rank,
			   attr->name);
}
