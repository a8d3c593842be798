// SPDX-License-Identifier: MIT
/*
 * Contexts, and the ways into a domain: by name, by descriptor, and not at all.
 */
#include <sched.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "conformance.h"

static const struct layout layout = {
	.dtype = NPUWIN_INT16, .max_recv = 4, .ndim_size = 1, .size = { 9 },
};

static void open_run(const struct config *cfg)
{
	struct npuwin_error err = fresh_error();
	struct npuwin_device_info info;
	struct npuwin *ctx = NULL;
	int i;

	CHECK_ERR(npuwin_open("ofi-of-tomorrow", &ctx, &err), -EINVAL, &err, "ofi-of-tomorrow");
	CHECK(!ctx);
	CHECK_EQ(npuwin_open("", &ctx, NULL), -EINVAL);
	setenv("NPUWIN_PROVIDER", "nonsense", 1);
	err = fresh_error();
	CHECK_ERR(npuwin_open(NULL, &ctx, &err), -EINVAL, &err, "nonsense", "NPUWIN_PROVIDER");
	CHECK_OK(npuwin_open(cfg->provider, &ctx, &err), &err);
	npuwin_close(ctx);
	setenv("NPUWIN_PROVIDER", cfg->provider, 1);
	CHECK_OK(npuwin_open(NULL, &ctx, &err), &err);
	CHECK(!strcmp(npuwin_provider_name(ctx), cfg->provider));
	CHECK(says(npuwin_provider_reason(ctx), "NPUWIN_PROVIDER"));

	CHECK(npuwin_device_count(ctx) >= 1);
	for (i = 0; i < npuwin_device_count(ctx); i++) {
		memset(&info, 0x5a, sizeof(info));
		CHECK_OK(npuwin_device_info(ctx, i, &info, &err), &err);
		CHECK_EQ(info.index, i);
		CHECK(memchr(info.name, 0, sizeof(info.name)) && info.name[0]);
		CHECK(memchr(info.backend, 0, sizeof(info.backend)) && info.backend[0]);
		CHECK(info.max_ranks >= MAX_TEST_RANKS);
		CHECK(info.memory_used <= info.memory_total);
		CHECK(info.peer_map <= 1);
		check_filled("reserved of the info", info.reserved, 0, sizeof(info.reserved));
	}
	err = fresh_error();
	CHECK_ERR(npuwin_device_info(ctx, i, &info, &err), -ENOENT, &err, NULL);
	CHECK_EQ(npuwin_device_info(ctx, -1, &info, NULL), -ENOENT);
	npuwin_close(ctx);
	npuwin_close(NULL);
	CHECK(npuwin_version()[0]);
}

static void absent_run(const struct config *cfg)
{
	struct npuwin_error err = fresh_error();
	struct npuwin *ctx = NULL;
	int ret;

	if (!strcmp(cfg->provider, "dev") || !npuwin_open("dev", &ctx, NULL)) {
		npuwin_close(ctx);
		skip_case("the driver is there");
	}
	ret = npuwin_open("dev", &ctx, &err);
	CHECK(ret == -ENODEV || ret == -EACCES);
	CHECK_ERR(ret, ret, &err, "dev");
	unsetenv("NPUWIN_PROVIDER");
	CHECK_OK(npuwin_open(NULL, &ctx, &err), &err);
	CHECK(!strcmp(npuwin_provider_name(ctx), "shm"));
	CHECK(npuwin_provider_reason(ctx)[0]);
	npuwin_close(ctx);
}

static struct npuwin_domain_attr attr_of(const struct party *p, const char *name)
{
	return (struct npuwin_domain_attr){
		.name = name, .nranks = p->nranks, .rank = p->ranks[0].rank,
		.window_size = p->window, .device = -1, .deadline_ns = far(),
	};
}

/* Values that are wrong whatever the domain is. */
static void values_party(struct party *p)
{
	const struct npuwin_domain_attr good = attr_of(p, p->name);
	struct npuwin_domain *domain = (void *)0x5a5a;
	struct npuwin *ctx = p->ranks[0].ctx;
	struct npuwin_domain_attr attr;
	struct npuwin_error err;
	char name[66];

	memset(name, 'n', 65);
	name[65] = 0;
#define REFUSED(change, word) do {						\
	attr = good;								\
	change;									\
	err = fresh_error();							\
	CHECK_ERR(npuwin_domain_join(ctx, &attr, &domain, &err), -EINVAL, &err, word);	\
} while (0)
	REFUSED(attr.name = NULL, "name");
	REFUSED(attr.name = "", "name");
	REFUSED(attr.name = "a/b", "name");
	REFUSED(attr.name = name, "name");
	REFUSED(attr.nranks = 0, "nranks");
	REFUSED(attr.nranks = 1025, "1025");
	REFUSED(attr.rank = 1, "rank");
	REFUSED(attr.rank = UINT32_MAX, "rank");
	REFUSED(attr.flags = 1U << 1, "flags");
	REFUSED(attr.flags = 1U << 31, "flags");
	REFUSED(attr.reserved[0] = 1, "reserved[0] is 0x1, want 0");
	REFUSED(attr.reserved[3] = 1ULL << 63, "reserved[3] is 0x8000000000000000");
#undef REFUSED
	attr = good;
	attr.device = npuwin_device_count(ctx);
	err = fresh_error();
	CHECK_ERR(npuwin_domain_join(ctx, &attr, &domain, &err), -ENOENT, &err, "device");
	attr.device = -2;
	err = fresh_error();
	CHECK_ERR(npuwin_domain_join(ctx, &attr, &domain, &err), -ENOENT, &err, "device", "-2");
	name[64] = 0;
	attr = good;
	attr.name = name;
	CHECK_OK(npuwin_domain_join(ctx, &attr, &p->ranks[0].domain, &err), &err);
	party_barrier(p);
}

static void values_run(const struct config *cfg)
{
	const struct run run = { .nranks = 1, .bare = true, .fn = values_party };

	run_ranks(cfg, &run);
}

/* One rank waits in the domain while the other tries all that does not fit to it. */
static void differs_party(struct party *p)
{
	struct rank *r = &p->ranks[0];
	const struct npuwin_domain_attr good = attr_of(p, p->name);
	struct npuwin_domain_attr attr = good;
	struct npuwin_error err = fresh_error();
	struct npuwin_domain *domain = NULL;
	char size[24], twice[24];
	struct set set;

	if (r->rank == 0) {
		flag_add(p->shared, FLAG_USER, syscall(SYS_gettid));
	} else {
		flag_wait(p->shared, FLAG_USER, 1);
		wait_asleep(flag_get(p->shared, FLAG_USER));

		attr.rank = 0;
		CHECK_ERR(npuwin_domain_join(r->ctx, &attr, &domain, &err), -EBUSY, &err,
			  "rank 0");
		attr = good;
		attr.nranks = 3;
		err = fresh_error();
		CHECK_ERR(npuwin_domain_join(r->ctx, &attr, &domain, &err), -EINVAL, &err, "2",
			  "3");
		attr = good;
		attr.window_size *= 2;
		snprintf(size, sizeof(size), "%llu", (unsigned long long)good.window_size);
		snprintf(twice, sizeof(twice), "%llu", (unsigned long long)attr.window_size);
		err = fresh_error();
		CHECK_ERR(npuwin_domain_join(r->ctx, &attr, &domain, &err), -EINVAL, &err, size,
			  twice);
	}
	CHECK(!domain);
	party_join(p, p->name, 0);
	party_alloc(p, &layout, &set);
	party_exchange(p, &set, 1, count_random);
}

static void differs_run(const struct config *cfg)
{
	const struct run run = { .nranks = 2, .bare = true, .fn = differs_party };

	run_ranks(cfg, &run);
}

/* A rank that does not come is named; then all come and the name works. */
static void missing_party(struct party *p)
{
	struct npuwin_domain_attr attr = attr_of(p, p->name);
	struct npuwin_domain *domain = NULL;
	struct npuwin_error err = fresh_error();
	struct set set;

	if (p->ranks[0].rank == 0) {
		attr.deadline_ns = npuwin_deadline_ms(100);
		CHECK_ERR(npuwin_domain_join(p->ranks[0].ctx, &attr, &domain, &err), -ETIMEDOUT,
			  &err, "rank 1");
		CHECK_EQ(err.peer, 1);
		err = fresh_error();
		attr.deadline_ns = npuwin_deadline_ms(0);
		CHECK_ERR(npuwin_domain_join(p->ranks[0].ctx, &attr, &domain, &err), -ETIMEDOUT,
			  &err, "rank 1");
	}
	party_sync(p);
	party_join(p, p->name, 0);
	party_alloc(p, &layout, &set);
	party_exchange(p, &set, 1, count_random);
}

static void missing_run(const struct config *cfg)
{
	const struct run run = { .nranks = 2, .bare = true, .fn = missing_party };

	run_ranks(cfg, &run);
}

static void send_fd(int sock, int fd)
{
	char control[CMSG_SPACE(sizeof(int))] = { 0 }, byte = 'f';
	struct iovec iov = { .iov_base = &byte, .iov_len = 1 };
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1,
		.msg_control = control, .msg_controllen = sizeof(control),
	};
	struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg);

	cmsg->cmsg_level = SOL_SOCKET;
	cmsg->cmsg_type = SCM_RIGHTS;
	cmsg->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(cmsg), &fd, sizeof(fd));
	CHECK_EQ(sendmsg(sock, &msg, 0), 1);
}

static int receive_fd(int sock)
{
	char control[CMSG_SPACE(sizeof(int))], byte;
	struct iovec iov = { .iov_base = &byte, .iov_len = 1 };
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1,
		.msg_control = control, .msg_controllen = sizeof(control),
	};
	struct cmsghdr *cmsg;
	int fd;

	CHECK_EQ(recvmsg(sock, &msg, MSG_CMSG_CLOEXEC), 1);
	cmsg = CMSG_FIRSTHDR(&msg);
	CHECK(cmsg && cmsg->cmsg_type == SCM_RIGHTS);
	memcpy(&fd, CMSG_DATA(cmsg), sizeof(fd));
	return fd;
}

/* The first party makes the domain and hands it to the second. */
static void rights_party(struct party *p)
{
	const int *sock = p->arg;
	struct rank *r = &p->ranks[0];
	struct npuwin_domain_attr attr = attr_of(p, NULL), wrong;
	struct npuwin_domain *domain = NULL;
	struct npuwin_error err = fresh_error();
	struct set set;
	int fd;

	if (r->rank == 0) {
		fd = npuwin_domain_create_fd(r->ctx, &attr, &err);
		CHECK_OK(fd, &err);
		send_fd(sock[0], fd);
	} else {
		fd = receive_fd(sock[1]);
		wrong = attr;
		wrong.nranks = 3;
		CHECK_ERR(npuwin_domain_join_fd(r->ctx, fd, &wrong, &domain, &err), -EINVAL,
			  &err, "2", "3");
		wrong = attr;
		wrong.rank = 2;
		err = fresh_error();
		CHECK_ERR(npuwin_domain_join_fd(r->ctx, fd, &wrong, &domain, &err), -EINVAL,
			  &err, "rank", "2");
		wrong = attr;
		wrong.window_size += 4096;
		err = fresh_error();
		CHECK_ERR(npuwin_domain_join_fd(r->ctx, fd, &wrong, &domain, &err), -EINVAL,
			  &err, "window");
		CHECK(npuwin_domain_join_fd(r->ctx, sock[1], &attr, &domain, &err) < 0);
		CHECK(npuwin_domain_join_fd(r->ctx, -1, &attr, &domain, &err) < 0);
	}
	CHECK_OK(npuwin_domain_join_fd(r->ctx, fd, &attr, &r->domain, &err), &err);
	close(fd);
	party_alloc(p, &layout, &set);
	party_exchange(p, &set, 1, count_random);
	party_sync(p);
}

static void rights_run(const struct config *cfg)
{
	int sock[2];
	const struct run run = { .nranks = 2, .bare = true, .fn = rights_party, .arg = sock };

	CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sock), 0);
	run_ranks(cfg, &run);
	close(sock[0]);
	close(sock[1]);
}

/* Groups that cannot be made leave nothing behind. */
static void local_run(const struct config *cfg)
{
	struct npuwin_domain *domains[2] = { NULL };
	struct npuwin_error err = fresh_error();
	struct npuwin_domain_attr attr = {
		.nranks = 2, .window_size = 64 * KIB, .device = -1, .deadline_ns = far(),
	};
	struct npuwin *ctx;

	CHECK_OK(npuwin_open(cfg->provider, &ctx, &err), &err);
	attr.nranks = 0;
	CHECK_ERR(npuwin_domain_create_local(ctx, &attr, domains, &err), -EINVAL, &err,
		  "nranks");
	attr.nranks = 2;
	attr.window_size = UINT64_MAX;
	err = fresh_error();
	CHECK(npuwin_domain_create_local(ctx, &attr, domains, &err) < 0);
	CHECK(says(err.text, "18446744073709551615"));
	CHECK(!domains[0] && !domains[1]);
	attr.window_size = 64 * KIB;
	attr.device = 1000;
	err = fresh_error();
	CHECK_ERR(npuwin_domain_create_local(ctx, &attr, domains, &err), -ENOENT, &err,
		  "device", "1000");
	attr.device = 0;
	CHECK_OK(npuwin_domain_create_local(ctx, &attr, domains, &err), &err);
	npuwin_domain_leave(domains[0]);
	npuwin_domain_leave(domains[1]);
	npuwin_domain_leave(NULL);
	npuwin_close(ctx);
}

/* Every call that succeeds says so in its error, too. */
static void success_run(const struct config *cfg)
{
	struct npuwin_domain *domain = NULL, *local = NULL;
	char name[32];
	struct npuwin_domain_attr attr = {
		.name = name, .nranks = 1, .window_size = 64 * KIB,
		.device = -1, .deadline_ns = far(),
	};
	struct npuwin_put self = { .op = NPUWIN_COPY };
	struct npuwin_device_info info;
	struct npuwin_request *request;
	struct npuwin_error err;
	struct npuwin_buffer *b;
	struct party p = { .cfg = cfg, .nranks = 1, .n = 1 };
	struct rank rank = { 0 };
	struct npuwin *ctx;
	struct set set;
	int fd;

	snprintf(name, sizeof(name), "conformance-%d-", (int)getpid());
#define SUCCEEDS(call) do {							\
	err = fresh_error();							\
	CHECK_OK(call, &err);							\
	if (err.code)								\
		FAIL("%s succeeds, but its error says %d", #call, err.code);	\
} while (0)
	SUCCEEDS(npuwin_open(cfg->provider, &ctx, &err));
	SUCCEEDS(npuwin_device_info(ctx, 0, &info, &err));
	SUCCEEDS(npuwin_domain_join(ctx, &attr, &domain, &err));
	attr.name = NULL;
	SUCCEEDS(npuwin_domain_create_local(ctx, &attr, &local, &err));
	npuwin_domain_leave(local);
	SUCCEEDS(fd = npuwin_domain_create_fd(ctx, &attr, &err));
	SUCCEEDS(npuwin_domain_join_fd(ctx, fd, &attr, &local, &err));
	close(fd);
	SUCCEEDS(npuwin_domain_reset(local, far(), &err));
	SUCCEEDS(npuwin_domain_reset_group(&local, 1, far(), &err));
	npuwin_domain_abort(local, EIO);
	SUCCEEDS(npuwin_domain_reset(local, far(), &err));
	npuwin_domain_leave(local);
	SUCCEEDS(npuwin_buffer_alloc(domain, 64, 0, &b, &err));
	self.src = b;
	self.dst = b;
	SUCCEEDS(npuwin_put(domain, &self, &err));
	self.rows = 1;
	self.row_bytes = 8;
	SUCCEEDS(npuwin_put(domain, &self, &err));
	SUCCEEDS(npuwin_notify(domain, 0, b, 0, NPUWIN_ADD, 1, NPUWIN_RAIL_HOST, &err));
	SUCCEEDS(npuwin_wait(domain, b, 0, NPUWIN_EQ, 1, far(), NULL, &err));
	SUCCEEDS(npuwin_test(domain, b, 0, NPUWIN_EQ, 1, NULL, &err));
	SUCCEEDS(npuwin_barrier(domain, far(), &err));
	SUCCEEDS(npuwin_barrier_group(&domain, 1, far(), &err));
	rank.domain = domain;
	set_alloc(&p, &rank, &layout, &set);
	SUCCEEDS(npuwin_all_to_all_v(domain, &set.op, far(), NULL, &err));
	SUCCEEDS(npuwin_all_to_all_v_group(&domain, &set.op, 1, far(), NULL, &err));
	SUCCEEDS(npuwin_all_to_all_v_start(domain, &set.op, far(), &request, &err));
	SUCCEEDS(npuwin_request_fd(request, &err));
	SUCCEEDS(npuwin_request_wait(request, far(), NULL, &err));
	SUCCEEDS(npuwin_request_test(request, NULL, &err));
#undef SUCCEEDS
	npuwin_request_free(request);
	npuwin_domain_leave(domain);
	npuwin_close(ctx);
}

static void buffers_party(struct party *p)
{
	struct npuwin_error err = fresh_error();
	struct npuwin_buffer *b[3] = { NULL };
	struct npuwin_domain *domain = p->ranks[0].domain;
	uint64_t align;

	CHECK_ERR(npuwin_buffer_alloc(domain, 0, 0, &b[0], &err), -EINVAL, &err, "size");
	err = fresh_error();
	CHECK_ERR(npuwin_buffer_alloc(domain, 64, 3, &b[0], &err), -EINVAL, &err, "align", "3");
	err = fresh_error();
	CHECK_ERR(npuwin_buffer_alloc(domain, 64, 8192, &b[0], &err), -EINVAL, &err, "align",
		  "8192");
	err = fresh_error();
	CHECK_ERR(npuwin_buffer_alloc(domain, p->window + 1, 0, &b[0], &err), -ENOSPC, &err,
		  NULL);
	err = fresh_error();
	CHECK_ERR(npuwin_buffer_alloc(domain, UINT64_MAX, 0, &b[0], &err), -ENOSPC, &err, NULL);
	CHECK(!b[0]);
	for (align = 1; align <= 4096; align *= 2) {
		CHECK_OK(npuwin_buffer_alloc(domain, 1, 1, &b[0], &err), &err);
		CHECK_OK(npuwin_buffer_alloc(domain, 100, align, &b[1], &err), &err);
		CHECK_OK(npuwin_buffer_alloc(domain, 100, 0, &b[2], &err), &err);
		CHECK_EQ((uintptr_t)npuwin_buffer_ptr(b[1]) % align, 0);
		CHECK_EQ((uintptr_t)npuwin_buffer_ptr(b[2]) % 64, 0);
		check_filled("new buffer", npuwin_buffer_ptr(b[1]), 0, 100);
		check_filled("new buffer", npuwin_buffer_ptr(b[2]), 0, 100);
		*(uint8_t *)npuwin_buffer_ptr(b[0]) = POISON_BYTE;
		memset(npuwin_buffer_ptr(b[1]), POISON_BYTE, 100);
		memset(npuwin_buffer_ptr(b[2]), POISON_BYTE, 100);
		npuwin_buffer_free(b[1]);
		npuwin_buffer_free(b[0]);
		npuwin_buffer_free(b[2]);
	}
	npuwin_buffer_free(NULL);
	/* All of the window can be had, in one piece, and again. */
	for (align = 0; align < 3; align++) {
		CHECK_OK(npuwin_buffer_alloc(domain, p->window, 0, &b[0], &err), &err);
		check_filled("the whole window", npuwin_buffer_ptr(b[0]), 0, p->window);
		memset(npuwin_buffer_ptr(b[0]), POISON_BYTE, p->window);
		CHECK_EQ(npuwin_buffer_alloc(domain, 1, 1, &b[1], NULL), -ENOSPC);
		npuwin_buffer_free(b[0]);
	}
	party_barrier(p);
}

static void buffers_run(const struct config *cfg)
{
	const struct run run = { .nranks = 2, .window = 64 * KIB, .fn = buffers_party };

	run_ranks(cfg, &run);
}

#define ONE_RANK_EACH	(A_THREADS | A_PROCESSES)

static const struct test_case cases[] = {
	{ "open", open_run, 0, 0, NULL },
	{ "open without a driver", absent_run, 0, 0, NULL },
	{ "join: values", values_run, ONE_RANK_EACH, 0, NULL },
	{ "join: taken, or differs from the domain", differs_run, ONE_RANK_EACH, 0, NULL },
	{ "join: a rank is missing", missing_run, ONE_RANK_EACH, 0, NULL },
	{ "join by a descriptor that was sent", rights_run, ONE_RANK_EACH, 0, NULL },
	{ "errors of calls that succeed", success_run, 0, 0, NULL },
	{ "create_local: values", local_run, 0, 0, NULL },
	{ "buffers", buffers_run, ONE_RANK_EACH, 0, NULL },
};

const struct suite suite_domains = { cases, ARRAY_SIZE(cases) };
