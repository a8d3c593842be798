// SPDX-License-Identifier: GPL-2.0-only
/*
 * Ranks that have joined another domain descriptor: EXPORT and IMPORT, keys, and what is
 * told of departures. Both sides are in this process; the fabric does not know that.
 */
#include "common.h"

#define SIZE	(64 * 1024ULL)

static int peer_call(int fd, unsigned long nr, int domain, uint32_t rank,
		     struct npuwin_ioc_domain_peer *peer)
{
	peer->size = sizeof(*peer);
	peer->domain_fd = domain;
	peer->rank = rank;
	return call(fd, nr, peer);
}

static int export(int fd, int domain, uint32_t rank, struct npuwin_ioc_domain_peer *peer)
{
	memset(peer, 0, sizeof(*peer));
	return peer_call(fd, NPUWIN_IOC_DOMAIN_EXPORT, domain, rank, peer);
}

static int import(int fd, int domain, uint32_t rank, const struct npuwin_ioc_domain_peer *from)
{
	struct npuwin_ioc_domain_peer peer = *from;

	return peer_call(fd, NPUWIN_IOC_DOMAIN_IMPORT, domain, rank, &peer);
}

/* ---- without a fabric ---------------------------------------------------- */

FIXTURE(none)
{
	struct team team;
	bool fabric;
};

FIXTURE_SETUP(none)
{
	struct npuwin_ioc_query query = { .size = sizeof(query) };

	if (!have_devices())
		SKIP(LEAVE_TEST, NEEDS_DEVICES);
	ASSERT_EQ(0, team_make(&self->team, 2, SIZE));
	ASSERT_EQ(0, call(self->team.rank[0].fd, NPUWIN_IOC_QUERY, &query));
	self->fabric = query.caps & NPUWIN_CAP_FABRIC;
}

FIXTURE_TEARDOWN(none)
{
	team_free(&self->team);
}

TEST_F(none, is_not_supported)
{
	struct npuwin_ioc_domain_peer peer;

	if (self->fabric)
		SKIP(return, "needs a device without NPUWIN_CAP_FABRIC");
	EXPECT_EQ(-EOPNOTSUPP, export(self->team.rank[0].fd, self->team.domain, 0, &peer));
	EXPECT_EQ(0, peer.key);
	peer = (struct npuwin_ioc_domain_peer) { .fabric_id = 1, .window_size = SIZE };
	EXPECT_EQ(-EOPNOTSUPP, import(self->team.rank[0].fd, self->team.domain, 1, &peer));
}

/* ---- two sides ----------------------------------------------------------- */

/* Rank r of two is local to domain[r], and imported into the other one. */
FIXTURE(fabric)
{
	int domain[2];
	struct rank rank[2];
	struct npuwin_ioc_domain_peer peer[2];
};

static int fabric_exchange(struct _test_data_fabric *self)
{
	int i, ret = 0;

	for (i = 0; i < 2 && !ret; i++)
		ret = export(self->rank[i].fd, self->domain[i], i, &self->peer[i]);
	return ret;
}

/* Import on both sides and commit. */
static int fabric_connect(struct _test_data_fabric *self)
{
	int i, ret = fabric_exchange(self);

	for (i = 0; i < 2 && !ret; i++)
		ret = import(self->rank[i].fd, self->domain[i], !i, &self->peer[!i]);
	for (i = 0; i < 2 && !ret; i++)
		ret = domain_commit(self->rank[i].fd, self->domain[i], i, 0);
	return ret;
}

FIXTURE_SETUP(fabric)
{
	struct npuwin_ioc_query query = { .size = sizeof(query) };
	int fd, i;

	if (!have_devices())
		SKIP(LEAVE_TEST, NEEDS_DEVICES);
	fd = device_open(0);
	ASSERT_GE(fd, 0);
	ASSERT_EQ(0, call(fd, NPUWIN_IOC_QUERY, &query));
	if (!(query.caps & NPUWIN_CAP_FABRIC)) {
		close(fd);
		SKIP(LEAVE_TEST, "needs NPUWIN_CAP_FABRIC");
	}
	for (i = 0; i < 2; i++) {
		self->domain[i] = domain_create(fd, 2, SIZE);
		ASSERT_GE(self->domain[i], 0);
		ASSERT_EQ(0, rank_join(&self->rank[i], i, self->domain[i], i, SIZE));
		memset(self->rank[i].mem, 0x10 + i, SIZE);
	}
	close(fd);
}

FIXTURE_TEARDOWN(fabric)
{
	int i;

	for (i = 0; i < 2; i++) {
		rank_close(&self->rank[i], SIZE);
		close(self->domain[i]);
		EXPECT_EQ(0, device_attr(i, "memory_used"));
		EXPECT_EQ(0, device_attr(i, "domains"));
		EXPECT_EQ(0, device_attr(i, "queues"));
	}
}

/* Wait until a domain is aborted. Returns the rank that is to blame, or NPUWIN_NO_RANK. */
static uint32_t await_abort(int domain)
{
	struct npuwin_ioc_domain_info info;
	int64_t end = in_ms(20000);

	do {
		info = domain_info(domain);
		sched_yield();
	} while (info.state != NPUWIN_DOMAIN_ABORTED && now_ns() < end);
	return info.abort_rank;
}

TEST_F(fabric, exchanges)
{
	struct npuwin_desc descs[3];
	struct npuwin_cqe cqe;

	ASSERT_EQ(0, fabric_connect(self));
	EXPECT_EQ(NPUWIN_DOMAIN_READY, domain_info(self->domain[0]).state);
	EXPECT_EQ(2, domain_info(self->domain[0]).joined);
	descs[0] = put(1, 0, 4096, 1000);
	descs[0].flags = 0;
	descs[1] = notify(1, 8192, 0);
	descs[1].sub = NPUWIN_NOTIFY_SET;
	descs[1].value = 77;
	EXPECT_EQ(NPUWIN_ST_OK, execute(self->rank[0].fd, self->rank[0].queue, descs, 2, NULL));
	descs[2] = twait(8192, NPUWIN_CMP_EQ, 77, in_ms(10000));
	EXPECT_EQ(NPUWIN_ST_OK, execute(self->rank[1].fd, self->rank[1].queue, &descs[2], 1,
					&cqe));
	EXPECT_EQ(0x11, self->rank[1].mem[4095]);
	EXPECT_EQ(0x10, self->rank[1].mem[4096]);
	EXPECT_EQ(0x10, self->rank[1].mem[4096 + 999]);
	EXPECT_EQ(0x11, self->rank[1].mem[4096 + 1000]);
}

/* A sleeper is woken by a rank of another domain descriptor. */
TEST_F(fabric, wakes_sleepers)
{
	struct npuwin_signal sig = {
		.offset = 0, .rank = 1, .value = 5, .cmp = NPUWIN_CMP_EQ, .peer = 0,
		.flags = NPUWIN_SIGNAL_F_REG,
	};
	struct npuwin_desc desc = notify(1, 0, 5);
	pid_t pid;
	int status;

	ASSERT_EQ(0, fabric_connect(self));
	desc.flags |= NPUWIN_DESC_F_REG;
	pid = fork();
	ASSERT_GE(pid, 0);
	if (!pid)
		_exit(-signal_wait(self->domain[1], &sig, 1, in_ms(20000), NULL, NULL));
	EXPECT_EQ(NPUWIN_ST_OK, execute(self->rank[0].fd, self->rank[0].queue, &desc, 1, NULL));
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	EXPECT_EQ(0, status);
}

/* An import can be what a commit waits for. */
TEST_F(fabric, import_completes_a_commit)
{
	pid_t pid;
	int status;

	ASSERT_EQ(0, fabric_exchange(self));
	EXPECT_EQ(-EAGAIN, domain_commit(self->rank[0].fd, self->domain[0], 0, 0));
	pid = fork();
	ASSERT_GE(pid, 0);
	if (!pid)
		_exit(-domain_commit(self->rank[0].fd, self->domain[0], 0, in_ms(20000)));
	EXPECT_EQ(0, import(self->rank[0].fd, self->domain[0], 1, &self->peer[1]));
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	EXPECT_EQ(0, status);
	EXPECT_EQ(NPUWIN_DOMAIN_READY, domain_info(self->domain[0]).state);
}

/* Whatever of an import is wrong: nothing is written, and the completion names the rank. */
TEST_F(fabric, wrong_peers)
{
	int what;

	for (what = 0; what < 4; what++) {
		struct npuwin_ioc_domain_peer wrong;
		struct npuwin_desc desc = put(1, 0, 0, SIZE);
		struct npuwin_cqe cqe = {};
		uint32_t i;

		ASSERT_EQ(0, fabric_exchange(self));
		wrong = self->peer[1];
		if (what == 0)
			wrong.key ^= 1;
		else if (what == 1)
			wrong.offset += SIZE;
		else if (what == 2)
			wrong.endpoint++;
		else
			wrong.fabric_id = ~0ULL;
		ASSERT_EQ(0, import(self->rank[0].fd, self->domain[0], 1, &wrong));
		ASSERT_EQ(0, domain_commit(self->rank[0].fd, self->domain[0], 0, 0));
		EXPECT_EQ(NPUWIN_ST_PEER, execute(self->rank[0].fd, self->rank[0].queue, &desc, 1,
						  &cqe));
		EXPECT_EQ(1, cqe.rank);
		for (i = 0; i < SIZE && self->rank[1].mem[i] == 0x11; i++)
			;
		EXPECT_EQ(SIZE, i);
		/* Begin anew. */
		ASSERT_EQ(0, domain_abort(self->rank[0].fd, self->domain[0], 0, ECANCELED));
		ASSERT_EQ(0, domain_reset(self->rank[0].fd, self->domain[0], 0, 0));
	}
}

/* A reset makes keys void, here and for who still has them. */
TEST_F(fabric, stale_keys)
{
	struct npuwin_ioc_domain_peer old;
	struct npuwin_desc desc = put(1, 0, 0, 64);

	ASSERT_EQ(0, fabric_connect(self));
	old = self->peer[1];
	ASSERT_EQ(0, domain_abort(self->rank[1].fd, self->domain[1], 1, EIO));
	EXPECT_EQ(1, await_abort(self->domain[0]));
	EXPECT_EQ(EIO, domain_info(self->domain[0]).abort_error);
	ASSERT_EQ(0, domain_reset(self->rank[1].fd, self->domain[1], 1, 0));
	ASSERT_EQ(0, domain_reset(self->rank[0].fd, self->domain[0], 0, 0));
	EXPECT_EQ(1, domain_info(self->domain[0]).joined);

	ASSERT_EQ(0, import(self->rank[0].fd, self->domain[0], 1, &old));
	ASSERT_EQ(0, domain_commit(self->rank[0].fd, self->domain[0], 0, 0));
	EXPECT_EQ(NPUWIN_ST_PEER, execute(self->rank[0].fd, self->rank[0].queue, &desc, 1, NULL));
	EXPECT_EQ(0x11, self->rank[1].mem[0]);
	/* And with the new ones all is well again. */
	ASSERT_EQ(0, domain_abort(self->rank[0].fd, self->domain[0], 0, EIO));
	ASSERT_EQ(0, domain_reset(self->rank[0].fd, self->domain[0], 0, 0));
	ASSERT_EQ(0, fabric_connect(self));
	EXPECT_NE(old.key, self->peer[1].key);
	EXPECT_EQ(NPUWIN_ST_OK, execute(self->rank[0].fd, self->rank[0].queue, &desc, 1, NULL));
	EXPECT_EQ(0x10, self->rank[1].mem[0]);
}

TEST_F(fabric, death_is_told)
{
	struct npuwin_desc desc = twait(0, NPUWIN_CMP_EQ, -1, NPUWIN_NO_DEADLINE);
	struct npuwin_cqe cqe = {};
	uint32_t n = 1;

	ASSERT_EQ(0, fabric_connect(self));
	ASSERT_EQ(0, submit(self->rank[0].fd, self->rank[0].queue, &desc, 1));
	/* The last mapping keeps the file. */
	munmap(self->rank[1].mem, SIZE);
	self->rank[1].mem = MAP_FAILED;
	close(self->rank[1].fd);
	self->rank[1].fd = -1;
	EXPECT_EQ(0, queue_wait(self->rank[0].fd, self->rank[0].queue, &cqe, 1, &n,
				in_ms(20000)));
	EXPECT_EQ(NPUWIN_ST_PEER, cqe.status);
	EXPECT_EQ(1, cqe.rank);
	EXPECT_EQ(1, await_abort(self->domain[0]));
	EXPECT_EQ(EPIPE, domain_info(self->domain[0]).abort_error);
}

TEST_F(fabric, departure_is_told)
{
	struct npuwin_desc desc = twait(0, NPUWIN_CMP_EQ, 0x11111111, NPUWIN_NO_DEADLINE);
	struct npuwin_signal sig = { .rank = 0, .value = -1, .cmp = NPUWIN_CMP_EQ, .peer = 1 };
	struct npuwin_cqe cqe = {};
	uint32_t n = 1, gone = 0;

	ASSERT_EQ(0, fabric_connect(self));
	memset(self->rank[0].mem, 0x11, 4);
	desc.flags |= NPUWIN_TWAIT_F_BY_RANK;
	desc.rows = 2;
	desc.src_stride = 8;
	ASSERT_EQ(0, submit(self->rank[0].fd, self->rank[0].queue, &desc, 1));
	ASSERT_EQ(0, domain_leave(self->rank[1].fd, self->domain[1], 1));
	EXPECT_EQ(0, queue_wait(self->rank[0].fd, self->rank[0].queue, &cqe, 1, &n,
				in_ms(20000)));
	EXPECT_EQ(NPUWIN_ST_PEER, cqe.status);
	EXPECT_EQ(1, cqe.rank);
	EXPECT_EQ(1, cqe.cell);
	EXPECT_EQ(-EPIPE, signal_wait(self->domain[0], &sig, 1, in_ms(20000), NULL, &gone));
	EXPECT_EQ(1, gone);
	EXPECT_EQ(NPUWIN_DOMAIN_READY, domain_info(self->domain[0]).state);
}

TEST_F(fabric, export_errors)
{
	struct npuwin_ioc_domain_peer peer, good;

	EXPECT_EQ(-ENOENT, export(self->rank[0].fd, self->domain[0], 1, &peer));
	EXPECT_EQ(-ENOENT, export(self->rank[0].fd, self->domain[0], 2, &peer));
	EXPECT_EQ(-EACCES, export(self->rank[1].fd, self->domain[0], 0, &peer));
	EXPECT_EQ(-EBADF, export(self->rank[0].fd, -1, 0, &peer));
	EXPECT_EQ(-EBADF, export(self->rank[0].fd, self->rank[0].fd, 0, &peer));
	ASSERT_EQ(0, export(self->rank[0].fd, self->domain[0], 0, &good));
	EXPECT_NE(0, good.fabric_id);
	EXPECT_NE(0, good.key);
	EXPECT_EQ(SIZE, good.window_size);
	memset(&peer, 0, sizeof(peer));
	peer.flags = 1;
	EXPECT_EQ(-EINVAL, peer_call(self->rank[0].fd, NPUWIN_IOC_DOMAIN_EXPORT,
				     self->domain[0], 0, &peer));
	EXPECT_EQ(0, peer.key);
	peer.flags = 0;
	peer.reserved = 1;
	EXPECT_EQ(-EINVAL, peer_call(self->rank[0].fd, NPUWIN_IOC_DOMAIN_EXPORT,
				     self->domain[0], 0, &peer));
	EXPECT_EQ(0, peer.key);
}

TEST_F(fabric, import_errors)
{
	struct npuwin_ioc_domain_peer peer;
	struct npuwin_signal sig = { .rank = 1, .value = 1, .cmp = NPUWIN_CMP_EQ,
				     .peer = NPUWIN_NO_RANK };
	struct npuwin_ioc_domain_info info;

	ASSERT_EQ(0, fabric_exchange(self));
	EXPECT_EQ(-EINVAL, import(self->rank[0].fd, self->domain[0], 2, &self->peer[1]));
	EXPECT_EQ(-EBUSY, import(self->rank[0].fd, self->domain[0], 0, &self->peer[1]));
	EXPECT_EQ(-EBADF, import(self->rank[0].fd, -1, 1, &self->peer[1]));
	peer = self->peer[1];
	peer.fabric_id = 0;
	EXPECT_EQ(-EINVAL, import(self->rank[0].fd, self->domain[0], 1, &peer));
	peer = self->peer[1];
	peer.window_size += 4096;
	EXPECT_EQ(-EINVAL, import(self->rank[0].fd, self->domain[0], 1, &peer));
	peer = self->peer[1];
	peer.flags = 1;
	EXPECT_EQ(-EINVAL, import(self->rank[0].fd, self->domain[0], 1, &peer));
	peer = self->peer[1];
	peer.reserved = 1;
	EXPECT_EQ(-EINVAL, import(self->rank[0].fd, self->domain[0], 1, &peer));
	EXPECT_EQ(1, domain_info(self->domain[0]).joined);

	ASSERT_EQ(0, import(self->rank[0].fd, self->domain[0], 1, &self->peer[1]));
	EXPECT_EQ(-EBUSY, import(self->rank[0].fd, self->domain[0], 1, &self->peer[1]));
	EXPECT_EQ(-EBUSY, domain_join(self->rank[0].fd, self->domain[0], 1,
				      self->rank[0].window));
	/* A rank elsewhere is nobody's here, and has nothing to look at. */
	EXPECT_EQ(-EACCES, domain_commit(self->rank[0].fd, self->domain[0], 1, 0));
	EXPECT_EQ(-EACCES, domain_leave(self->rank[0].fd, self->domain[0], 1));
	EXPECT_EQ(-EACCES, domain_abort(self->rank[0].fd, self->domain[0], 1, EIO));
	EXPECT_EQ(-EACCES, export(self->rank[0].fd, self->domain[0], 1, &peer));
	EXPECT_EQ(-EOPNOTSUPP, signal_wait(self->domain[0], &sig, 1, in_ms(1000), NULL, NULL));
	info = domain_info(self->domain[0]);
	EXPECT_EQ(MAP_FAILED, mmap(NULL, 4096, PROT_READ, MAP_SHARED, self->domain[0],
				   info.window_map + SIZE));
	EXPECT_EQ(EOPNOTSUPP, errno);
	EXPECT_EQ(MAP_FAILED, mmap(NULL, 4096, PROT_READ, MAP_SHARED, self->domain[0],
				   info.notify_map + info.notify_stride));
	EXPECT_EQ(EOPNOTSUPP, errno);
	/* Too late once it is ready. */
	ASSERT_EQ(0, domain_commit(self->rank[0].fd, self->domain[0], 0, 0));
	EXPECT_EQ(-EBUSY, import(self->rank[0].fd, self->domain[0], 1, &self->peer[1]));
}

TEST_HARNESS_MAIN
