// SPDX-License-Identifier: GPL-2.0-only
/* What holds for every ioctl: commands, sizes, tails, flags, addresses. */
#include "common.h"

/* A structure of any command, with room for a tail. */
union any {
	uint8_t bytes[2 * 4096];
	uint32_t size;
};

struct command {
	const char *name;
	unsigned long nr;
	size_t size;
	bool on_domain;
	/* Place of a flags or reserved field, or 0. */
	size_t flags;
	size_t reserved;
};

#define ENTRY(_nr, _type, ...)	{ #_nr, _nr, sizeof(struct _type), __VA_ARGS__ }
#define FLAGS(_type)		.flags = offsetof(struct _type, flags)
#define RESERVED(_type)		.reserved = offsetof(struct _type, reserved)

static const struct command commands[] = {
	ENTRY(NPUWIN_IOC_QUERY, npuwin_ioc_query, FLAGS(npuwin_ioc_query)),
	ENTRY(NPUWIN_IOC_WINDOW_ALLOC, npuwin_ioc_window_alloc, FLAGS(npuwin_ioc_window_alloc),
	      RESERVED(npuwin_ioc_window_alloc)),
	ENTRY(NPUWIN_IOC_DESTROY, npuwin_ioc_destroy),
	ENTRY(NPUWIN_IOC_DOMAIN_CREATE, npuwin_ioc_domain_create,
	      FLAGS(npuwin_ioc_domain_create)),
	ENTRY(NPUWIN_IOC_DOMAIN_JOIN, npuwin_ioc_domain_join, FLAGS(npuwin_ioc_domain_join),
	      RESERVED(npuwin_ioc_domain_join)),
	ENTRY(NPUWIN_IOC_DOMAIN_COMMIT, npuwin_ioc_domain_sync, FLAGS(npuwin_ioc_domain_sync)),
	ENTRY(NPUWIN_IOC_DOMAIN_ABORT, npuwin_ioc_domain_leave, FLAGS(npuwin_ioc_domain_leave),
	      RESERVED(npuwin_ioc_domain_leave)),
	ENTRY(NPUWIN_IOC_DOMAIN_RESET, npuwin_ioc_domain_sync, FLAGS(npuwin_ioc_domain_sync)),
	ENTRY(NPUWIN_IOC_DOMAIN_LEAVE, npuwin_ioc_domain_leave, FLAGS(npuwin_ioc_domain_leave),
	      RESERVED(npuwin_ioc_domain_leave)),
	ENTRY(NPUWIN_IOC_DOMAIN_EXPORT, npuwin_ioc_domain_peer, FLAGS(npuwin_ioc_domain_peer),
	      RESERVED(npuwin_ioc_domain_peer)),
	ENTRY(NPUWIN_IOC_DOMAIN_IMPORT, npuwin_ioc_domain_peer, FLAGS(npuwin_ioc_domain_peer),
	      RESERVED(npuwin_ioc_domain_peer)),
	ENTRY(NPUWIN_IOC_QUEUE_CREATE, npuwin_ioc_queue_create, FLAGS(npuwin_ioc_queue_create),
	      RESERVED(npuwin_ioc_queue_create)),
	ENTRY(NPUWIN_IOC_QUEUE_RESET, npuwin_ioc_queue_reset),
	ENTRY(NPUWIN_IOC_SUBMIT, npuwin_ioc_submit, FLAGS(npuwin_ioc_submit)),
	ENTRY(NPUWIN_IOC_QUEUE_WAIT, npuwin_ioc_queue_wait, FLAGS(npuwin_ioc_queue_wait),
	      RESERVED(npuwin_ioc_queue_wait)),
	ENTRY(NPUWIN_IOC_DOMAIN_INFO, npuwin_ioc_domain_info, .on_domain = true,
	      FLAGS(npuwin_ioc_domain_info)),
	ENTRY(NPUWIN_IOC_SIGNAL_WAIT, npuwin_ioc_signal_wait, .on_domain = true,
	      FLAGS(npuwin_ioc_signal_wait), RESERVED(npuwin_ioc_signal_wait)),
	ENTRY(NPUWIN_IOC_SIGNAL_WAKE, npuwin_ioc_signal_wake, .on_domain = true),
};

FIXTURE(ioctls)
{
	struct team team;
	uint32_t spare;
	struct npuwin_signal signal;
	struct npuwin_desc desc;
	struct npuwin_cqe cqe;
	bool fabric;
};

FIXTURE_SETUP(ioctls)
{
	struct npuwin_ioc_query query = { .size = sizeof(query) };

	if (!have_devices())
		SKIP(LEAVE_TEST, NEEDS_DEVICES);
	ASSERT_EQ(0, team_make(&self->team, 2, MIB));
	ASSERT_EQ(0, window_alloc(self->team.rank[0].fd, MIB, &self->spare, NULL));
	self->signal = (struct npuwin_signal) { .peer = NPUWIN_NO_RANK };
	self->desc = nop(NPUWIN_DESC_F_CQE);
	ASSERT_EQ(0, call(self->team.rank[0].fd, NPUWIN_IOC_QUERY, &query));
	self->fabric = query.caps & NPUWIN_CAP_FABRIC;
}

FIXTURE_TEARDOWN(ioctls)
{
	team_free(&self->team);
}

/* A call that succeeds, or that fails for a reason of its own: what @expect says. */
static void good_call(struct _test_data_ioctls *self, const struct command *cmd, union any *any,
		      int *expect)
{
	int domain = self->team.domain;

	memset(any, 0, sizeof(*any));
	*expect = 0;
	switch (cmd->nr) {
	case NPUWIN_IOC_WINDOW_ALLOC:
		((struct npuwin_ioc_window_alloc *)any)->length = 1;
		break;
	case NPUWIN_IOC_DESTROY:
		*expect = -ENOENT;
		break;
	case NPUWIN_IOC_DOMAIN_CREATE:
		((struct npuwin_ioc_domain_create *)any)->nranks = 1;
		((struct npuwin_ioc_domain_create *)any)->window_size = MIB;
		break;
	case NPUWIN_IOC_DOMAIN_JOIN:
		((struct npuwin_ioc_domain_join *)any)->domain_fd = domain;
		((struct npuwin_ioc_domain_join *)any)->window_id = self->spare;
		*expect = -EBUSY;
		break;
	case NPUWIN_IOC_DOMAIN_COMMIT:
		((struct npuwin_ioc_domain_sync *)any)->domain_fd = domain;
		break;
	case NPUWIN_IOC_DOMAIN_RESET:
		((struct npuwin_ioc_domain_sync *)any)->domain_fd = domain;
		((struct npuwin_ioc_domain_sync *)any)->rank = 7;
		*expect = -ENOENT;
		break;
	case NPUWIN_IOC_DOMAIN_ABORT:
	case NPUWIN_IOC_DOMAIN_LEAVE:
		((struct npuwin_ioc_domain_leave *)any)->error =
			cmd->nr == NPUWIN_IOC_DOMAIN_ABORT ? EIO : 0;
		((struct npuwin_ioc_domain_leave *)any)->domain_fd = domain;
		((struct npuwin_ioc_domain_leave *)any)->rank = 7;
		*expect = -ENOENT;
		break;
	case NPUWIN_IOC_DOMAIN_EXPORT:
		((struct npuwin_ioc_domain_peer *)any)->domain_fd = domain;
		*expect = self->fabric ? 0 : -EOPNOTSUPP;
		break;
	case NPUWIN_IOC_DOMAIN_IMPORT:
		((struct npuwin_ioc_domain_peer *)any)->domain_fd = domain;
		((struct npuwin_ioc_domain_peer *)any)->fabric_id = 1;
		((struct npuwin_ioc_domain_peer *)any)->window_size = MIB;
		*expect = self->fabric ? -EBUSY : -EOPNOTSUPP;
		break;
	case NPUWIN_IOC_QUEUE_CREATE:
		((struct npuwin_ioc_queue_create *)any)->domain_fd = domain;
		((struct npuwin_ioc_queue_create *)any)->depth = 1;
		((struct npuwin_ioc_queue_create *)any)->event_fd = -1;
		break;
	case NPUWIN_IOC_QUEUE_RESET:
		((struct npuwin_ioc_queue_reset *)any)->queue_id = self->team.rank[0].queue;
		break;
	case NPUWIN_IOC_SUBMIT:
		((struct npuwin_ioc_submit *)any)->queue_id = self->team.rank[0].queue;
		((struct npuwin_ioc_submit *)any)->count = 1;
		((struct npuwin_ioc_submit *)any)->descs = USER_PTR(&self->desc);
		break;
	case NPUWIN_IOC_QUEUE_WAIT:
		/* Of the NOP that the SUBMIT before this one has left. */
		((struct npuwin_ioc_queue_wait *)any)->queue_id = self->team.rank[0].queue;
		((struct npuwin_ioc_queue_wait *)any)->min = 1;
		((struct npuwin_ioc_queue_wait *)any)->cqes = USER_PTR(&self->cqe);
		((struct npuwin_ioc_queue_wait *)any)->cqe_count = 1;
		((struct npuwin_ioc_queue_wait *)any)->deadline_ns = in_ms(5000);
		break;
	case NPUWIN_IOC_SIGNAL_WAIT:
		((struct npuwin_ioc_signal_wait *)any)->signals = USER_PTR(&self->signal);
		((struct npuwin_ioc_signal_wait *)any)->count = 1;
		break;
	default:
		break;
	}
	any->size = cmd->size;
}

static int fd_of(struct _test_data_ioctls *self, const struct command *cmd)
{
	return cmd->on_domain ? self->team.domain : self->team.rank[0].fd;
}

TEST_F(ioctls, good)
{
	union any any;
	size_t i;
	int expect;

	for (i = 0; i < ARRAY_LEN(commands); i++) {
		good_call(self, &commands[i], &any, &expect);
		EXPECT_EQ(expect, call(fd_of(self, &commands[i]), commands[i].nr, &any))
			TH_LOG("%s", commands[i].name);
		EXPECT_EQ(commands[i].size, any.size);
	}
}

TEST_F(ioctls, unknown_command)
{
	struct npuwin_ioc_query query = { .size = sizeof(query) };
	const unsigned long unknown[] = {
		_IO(NPUWIN_IOC_TYPE, 0x0f), _IO(NPUWIN_IOC_TYPE, 0x3f),
		_IO(NPUWIN_IOC_TYPE, 0x43), _IO(NPUWIN_IOC_TYPE, 0x80),
		_IO(NPUWIN_IOC_TYPE, 0xff), _IO(NPUWIN_IOC_TYPE + 1, 0x00),
		_IOWR(NPUWIN_IOC_TYPE, 0x00, struct npuwin_ioc_query),
		_IOR(NPUWIN_IOC_TYPE, 0x40, struct npuwin_ioc_query), 0,
	};
	size_t i;

	for (i = 0; i < ARRAY_LEN(unknown); i++) {
		EXPECT_EQ(-ENOTTY, call(self->team.rank[0].fd, unknown[i], &query))
			TH_LOG("%#lx", unknown[i]);
		EXPECT_EQ(-ENOTTY, call(self->team.domain, unknown[i], &query))
			TH_LOG("%#lx", unknown[i]);
	}
	/* Each kind of file has its own. */
	for (i = 0; i < ARRAY_LEN(commands); i++) {
		int other = commands[i].on_domain ? self->team.rank[0].fd : self->team.domain;

		EXPECT_EQ(-ENOTTY, call(other, commands[i].nr, &query))
			TH_LOG("%s", commands[i].name);
	}
}

TEST_F(ioctls, short_size)
{
	union any any, before;
	size_t i, k;
	int expect;

	for (i = 0; i < ARRAY_LEN(commands); i++) {
		const struct command *cmd = &commands[i];
		const uint32_t sizes[] = { 0, 4, cmd->size - 4, cmd->size - 1 };

		for (k = 0; k < ARRAY_LEN(sizes); k++) {
			good_call(self, cmd, &any, &expect);
			any.size = sizes[k];
			before = any;
			EXPECT_EQ(-EINVAL, call(fd_of(self, cmd), cmd->nr, &any))
				TH_LOG("%s size %u", cmd->name, sizes[k]);
			EXPECT_EQ(0, memcmp(any.bytes, before.bytes, sizeof(any.bytes)));
		}
	}
}

TEST_F(ioctls, long_size)
{
	union any any, before;
	size_t i, k;
	int expect;

	for (i = 0; i < ARRAY_LEN(commands); i++) {
		const struct command *cmd = &commands[i];
		const uint32_t good[] = { cmd->size + 1, cmd->size + 8, 4096 };
		const uint32_t bad[] = { 4097, 8192, UINT32_MAX };

		/* A tail of zeros is nothing. */
		for (k = 0; k < ARRAY_LEN(good); k++) {
			/* What the queue had has been taken. */
			if (cmd->nr == NPUWIN_IOC_QUEUE_WAIT) {
				ASSERT_EQ(0, submit(self->team.rank[0].fd,
						    self->team.rank[0].queue,
						    &self->desc, 1));
			}
			good_call(self, cmd, &any, &expect);
			any.size = good[k];
			EXPECT_EQ(expect, call(fd_of(self, cmd), cmd->nr, &any))
				TH_LOG("%s size %u", cmd->name, good[k]);
			EXPECT_EQ(good[k], any.size);
		}
		/* Anything else there is not understood, wherever it is. */
		for (k = 0; k < 2; k++) {
			good_call(self, cmd, &any, &expect);
			any.size = cmd->size + 32;
			any.bytes[cmd->size + 31 * k] = 1;
			before = any;
			EXPECT_EQ(-E2BIG, call(fd_of(self, cmd), cmd->nr, &any))
				TH_LOG("%s", cmd->name);
			EXPECT_EQ(0, memcmp(any.bytes, before.bytes, sizeof(any.bytes)));
		}
		for (k = 0; k < ARRAY_LEN(bad); k++) {
			good_call(self, cmd, &any, &expect);
			any.size = bad[k];
			EXPECT_EQ(-E2BIG, call(fd_of(self, cmd), cmd->nr, &any))
				TH_LOG("%s size %u", cmd->name, bad[k]);
		}
	}
}

TEST_F(ioctls, unknown_flags)
{
	union any any, before;
	size_t i;
	int expect, bit;

	for (i = 0; i < ARRAY_LEN(commands); i++) {
		const struct command *cmd = &commands[i];

		for (bit = 0; bit < 32; bit++) {
			if (cmd->nr == NPUWIN_IOC_SUBMIT && bit == 0)
				continue;
			good_call(self, cmd, &any, &expect);
			if (cmd->flags) {
				*(uint32_t *)(any.bytes + cmd->flags) |= 1U << bit;
				before = any;
				EXPECT_EQ(-EINVAL, call(fd_of(self, cmd), cmd->nr, &any))
					TH_LOG("%s flag %d", cmd->name, bit);
				EXPECT_EQ(0, memcmp(any.bytes, before.bytes, sizeof(any.bytes)));
			}
			good_call(self, cmd, &any, &expect);
			if (cmd->reserved) {
				*(uint32_t *)(any.bytes + cmd->reserved) |= 1U << bit;
				before = any;
				EXPECT_EQ(-EINVAL, call(fd_of(self, cmd), cmd->nr, &any))
					TH_LOG("%s reserved %d", cmd->name, bit);
				EXPECT_EQ(0, memcmp(any.bytes, before.bytes, sizeof(any.bytes)));
			}
		}
	}
}

TEST_F(ioctls, bad_address)
{
	uint8_t *page = mmap(NULL, 2 * 4096, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	union any any;
	size_t i;
	int expect;

	ASSERT_NE(MAP_FAILED, page);
	ASSERT_EQ(0, munmap(page + 4096, 4096));
	for (i = 0; i < ARRAY_LEN(commands); i++) {
		const struct command *cmd = &commands[i];
		int fd = fd_of(self, cmd);

		EXPECT_EQ(-EFAULT, call(fd, cmd->nr, NULL)) TH_LOG("%s", cmd->name);
		EXPECT_EQ(-EFAULT, call(fd, cmd->nr, (void *)-4096L)) TH_LOG("%s", cmd->name);
		/* The size is there, the rest is not. */
		good_call(self, cmd, &any, &expect);
		memcpy(page + 4096 - 4, &any, 4);
		EXPECT_EQ(-EFAULT, call(fd, cmd->nr, page + 4096 - 4)) TH_LOG("%s", cmd->name);
	}
	munmap(page, 4096);
}

/* Outputs that cannot be written: the call fails, and what it had made is gone. */
TEST_F(ioctls, read_only_structure)
{
	uint8_t *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			     -1, 0);
	struct rank *rank = &self->team.rank[0];
	uint64_t used = device_attr(0, "memory_used");
	uint64_t queues = device_attr(0, "queues");
	union any any;
	size_t i;
	int expect, fd, probe;

	ASSERT_NE(MAP_FAILED, page);
	probe = dup(0);
	close(probe);
	for (i = 0; i < ARRAY_LEN(commands); i++) {
		const struct command *cmd = &commands[i];

		switch (cmd->nr) {
		case NPUWIN_IOC_QUERY:
		case NPUWIN_IOC_WINDOW_ALLOC:
		case NPUWIN_IOC_DOMAIN_CREATE:
		case NPUWIN_IOC_DOMAIN_COMMIT:
		case NPUWIN_IOC_QUEUE_CREATE:
		case NPUWIN_IOC_DOMAIN_INFO:
		case NPUWIN_IOC_SIGNAL_WAIT:
			break;
		case NPUWIN_IOC_DOMAIN_EXPORT:
			if (self->fabric)
				break;
			continue;
		default:
			continue;
		}
		good_call(self, cmd, &any, &expect);
		ASSERT_EQ(0, mprotect(page, 4096, PROT_READ | PROT_WRITE));
		memcpy(page, &any, cmd->size);
		ASSERT_EQ(0, mprotect(page, 4096, PROT_READ));
		EXPECT_EQ(-EFAULT, call(fd_of(self, cmd), cmd->nr, page))
			TH_LOG("%s", cmd->name);
	}
	EXPECT_EQ(used, device_attr(0, "memory_used"));
	EXPECT_EQ(queues, device_attr(0, "queues"));
	/* No descriptor is left of the domain. */
	fd = dup(rank->fd);
	EXPECT_EQ(probe, fd);
	close(fd);
	munmap(page, 4096);
}

TEST_F(ioctls, query)
{
	struct npuwin_ioc_query query;

	memset(&query, POISON, sizeof(query));
	query.size = sizeof(query);
	query.flags = 0;
	ASSERT_EQ(0, call(self->team.rank[1].fd, NPUWIN_IOC_QUERY, &query));
	EXPECT_EQ(sizeof(query), query.size);
	EXPECT_EQ(0, query.flags);
	EXPECT_EQ(1, query.device);
	EXPECT_EQ(0, query.reserved);
	EXPECT_EQ(device_attr(1, "memory_total"), query.memory_total);
	EXPECT_EQ(device_attr(1, "memory_used"), query.memory_used);
	EXPECT_EQ(MIB, query.memory_used);
	EXPECT_GE(query.window_align, 4096);
	EXPECT_EQ(0, query.window_align & (query.window_align - 1));
	EXPECT_GE(query.numa_node, -1);
	EXPECT_GE(query.max_ranks, 64);
	EXPECT_LE(query.max_ranks, NPUWIN_MAX_RANKS);
	EXPECT_GE(query.max_queue_depth, 256);
	EXPECT_LE(query.max_queue_depth, NPUWIN_MAX_QUEUE_DEPTH);
	EXPECT_EQ(NPUWIN_NOTIFY_REGS, query.notify_regs);
	ASSERT_NE(NULL, memchr(query.backend, 0, sizeof(query.backend)));
	EXPECT_TRUE(!strcmp((char *)query.backend, "soft") ||
		    !strcmp((char *)query.backend, "pci"));
}

/* Both ABIs see the same structures, and no compiler pads them. */
TEST(layout)
{
	EXPECT_EQ(64, sizeof(struct npuwin_desc));
	EXPECT_EQ(32, sizeof(struct npuwin_cqe));
	EXPECT_EQ(64, sizeof(struct npuwin_domain_status));
	EXPECT_EQ(80, sizeof(struct npuwin_ioc_query));
	EXPECT_EQ(40, sizeof(struct npuwin_ioc_window_alloc));
	EXPECT_EQ(8, sizeof(struct npuwin_ioc_destroy));
	EXPECT_EQ(24, sizeof(struct npuwin_ioc_domain_create));
	EXPECT_EQ(24, sizeof(struct npuwin_ioc_domain_join));
	EXPECT_EQ(32, sizeof(struct npuwin_ioc_domain_sync));
	EXPECT_EQ(24, sizeof(struct npuwin_ioc_domain_leave));
	EXPECT_EQ(56, sizeof(struct npuwin_ioc_domain_peer));
	EXPECT_EQ(32, sizeof(struct npuwin_ioc_queue_create));
	EXPECT_EQ(8, sizeof(struct npuwin_ioc_queue_reset));
	EXPECT_EQ(48, sizeof(struct npuwin_ioc_submit));
	EXPECT_EQ(40, sizeof(struct npuwin_ioc_queue_wait));
	EXPECT_EQ(80, sizeof(struct npuwin_ioc_domain_info));
	EXPECT_EQ(32, sizeof(struct npuwin_signal));
	EXPECT_EQ(40, sizeof(struct npuwin_ioc_signal_wait));
	EXPECT_EQ(8, sizeof(struct npuwin_ioc_signal_wake));
}

TEST_HARNESS_MAIN
