// SPDX-License-Identifier: GPL-2.0-only
/*
 * Waiting for int32 cells that others write, and waking who waits.
 *
 * No wake-up is lost because both sides make their mark before they look:
 *
 *	sleeper:	counts itself in sleepers and puts itself on the rank's wait queue,
 *			full barrier, looks at the cell
 *	engine:		writes the cell, full barrier, looks at the wait queue
 *	mapped writer:	writes the cell, full barrier, looks at sleepers
 *
 * Who is woken is decided by the wake functions, which look at the cells: a rank's wait
 * queue holds all that wait for anything there, and one notify wakes only those that it
 * concerns.
 */
#include <linux/nospec.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "npuwin.h"

/* Up to so many signals are kept on the stack. */
#define NPUWIN_SIGNALS_INLINE	4

struct npuwin_signal_wait;

/**
 * struct npuwin_signal_entry - A signal that somebody waits for.
 * @wait: the whole
 * @entry: on the wait queue of the rank whose cell it is
 * @member: that rank
 * @sig: kernel copy of what the caller gave
 */
struct npuwin_signal_entry {
	struct npuwin_signal_wait *wait;
	struct wait_queue_entry entry;
	struct npuwin_member *member;
	struct npuwin_signal sig;
};

/**
 * struct npuwin_signal_wait - A call of SIGNAL_WAIT.
 * @domain: in this domain
 * @generation: of the domain at the start
 * @count: signals
 * @entries: one for each
 * @inline_entries: place for few
 */
struct npuwin_signal_wait {
	struct npuwin_domain *domain;
	u32 generation;
	u32 count;
	struct npuwin_signal_entry *entries;
	struct npuwin_signal_entry inline_entries[NPUWIN_SIGNALS_INLINE];
};

/**
 * npuwin_member_wake() - What waits in a rank's memory looks again.
 * @member: the rank
 *
 * The caller's change comes before this in memory order only with a full barrier, which
 * is here.
 */
void npuwin_member_wake(struct npuwin_member *member)
{
	if (wq_has_sleeper(&member->wq))
		wake_up_all(&member->wq);
}

static atomic_t *npuwin_sleepers(const struct npuwin_member *member)
{
	u32 *sleepers = &member->domain->status->rank[member->rank].sleepers;

	/* Userspace only reads it: a plain 32-bit load there is enough. */
	BUILD_BUG_ON(sizeof(atomic_t) != sizeof(*sleepers));
	return (atomic_t *)sleepers;
}

/**
 * npuwin_sleepers_count() - How many waits there are in a rank's memory.
 * @member: the rank
 *
 * Return: so many, a moment ago.
 */
u32 npuwin_sleepers_count(const struct npuwin_member *member)
{
	return atomic_read(npuwin_sleepers(member));
}

/**
 * npuwin_sleepers_inc() - Let mapped writers know of a wait in a rank's memory.
 * @member: the rank, on whose wait queue the caller is before it looks at the cell
 *
 * What the caller reads after this is read after it in memory order.
 *
 * Return: how many waits there are now.
 */
u32 npuwin_sleepers_inc(struct npuwin_member *member)
{
	/* A full barrier: pairs with that of a mapped writer, between his cell and this. */
	return atomic_inc_return(npuwin_sleepers(member));
}

/**
 * npuwin_sleepers_dec() - The wait is over.
 * @member: the rank
 */
void npuwin_sleepers_dec(struct npuwin_member *member)
{
	atomic_dec(npuwin_sleepers(member));
}

/**
 * npuwin_sleep() - Sleep, in the task state that the caller has set before it looked.
 * @deadline: absolute CLOCK_MONOTONIC nanoseconds, or %NPUWIN_NO_DEADLINE
 *
 * Return: 0 when it is worth looking again; -ERESTARTSYS, -ETIMEDOUT, or -EAGAIN for a
 * @deadline of zero, without having slept.
 */
int npuwin_sleep(s64 deadline)
{
	ktime_t expires = deadline;

	if (signal_pending(current))
		return -ERESTARTSYS;
	if (deadline == NPUWIN_NO_DEADLINE) {
		schedule();
		return 0;
	}
	if (!deadline)
		return -EAGAIN;
	if (ktime_get() >= deadline)
		return -ETIMEDOUT;
	schedule_hrtimeout_range(&expires, current->timer_slack_ns, HRTIMER_MODE_ABS);
	return 0;
}

/* Whether a signal holds. Inside npuwin_srcu or under the member's wq.lock. */
static bool npuwin_signal_holds(const struct npuwin_signal_entry *entry, s32 *observed)
{
	struct npuwin_member *member = entry->member;
	const struct npuwin_mem *mem;

	if (!npuwin_member_local(member))
		return false;
	mem = entry->sig.flags & NPUWIN_SIGNAL_F_REG ? READ_ONCE(member->notify) :
						       READ_ONCE(member->mem);
	*observed = npuwin_cell_read(mem->vaddr + entry->sig.offset);
	return npuwin_compare(*observed, entry->sig.cmp, entry->sig.value);
}

/* Whether a signal cannot come any more. Who is woken finds out why. */
static bool npuwin_signal_hopeless(const struct npuwin_signal_entry *entry)
{
	struct npuwin_domain *domain = entry->wait->domain;

	return npuwin_domain_state(domain) == NPUWIN_DOMAIN_ABORTED ||
	       READ_ONCE(domain->generation) != entry->wait->generation ||
	       !npuwin_member_local(entry->member) ||
	       (entry->sig.peer != NPUWIN_NO_RANK &&
		npuwin_member_left(&domain->members[entry->sig.peer]));
}

static int npuwin_signal_wake(struct wait_queue_entry *wq_entry, unsigned int mode, int flags,
			      void *key)
{
	struct npuwin_signal_entry *entry =
		container_of(wq_entry, struct npuwin_signal_entry, entry);
	s32 observed;

	if (!npuwin_signal_hopeless(entry) && !npuwin_signal_holds(entry, &observed))
		return 0;
	return default_wake_function(wq_entry, mode, flags, key);
}

/* The first signal that holds, or @count. */
static u32 npuwin_signals_look(struct npuwin_signal_wait *wait)
{
	u32 i, index = wait->count;
	int srcu;

	srcu = npuwin_read_lock();
	for (i = 0; i < wait->count; i++) {
		struct npuwin_signal_entry *entry = &wait->entries[i];

		if (npuwin_signal_holds(entry, &entry->sig.observed) && index == wait->count)
			index = i;
	}
	npuwin_read_unlock(srcu);
	return index;
}

/*
 * Why no signal can come.
 * Return: 0 if one can; -EPIPE with index and gone_rank set; -ECANCELED; -ENOENT.
 */
static int npuwin_signals_verdict(struct npuwin_signal_wait *wait,
				  struct npuwin_ioc_signal_wait *cmd)
{
	struct npuwin_domain *domain = wait->domain;
	int ret = 0;
	u32 i;

	mutex_lock(&domain->lock);
	if (domain->state == NPUWIN_DOMAIN_ABORTED) {
		ret = npuwin_domain_error(domain);
		if (ret == -EPIPE)
			cmd->gone_rank = domain->abort_rank;
		for (i = 0; ret == -EPIPE && i < wait->count; i++) {
			if (wait->entries[i].sig.peer == domain->abort_rank) {
				cmd->index = i;
				break;
			}
		}
		goto out;
	}
	if (domain->generation != wait->generation) {
		ret = -ECANCELED;
		goto out;
	}
	for (i = 0; i < wait->count; i++) {
		const struct npuwin_signal_entry *entry = &wait->entries[i];
		u32 peer = entry->sig.peer;

		if (npuwin_member_state(entry->member) == NPUWIN_RANK_EMPTY) {
			ret = -ENOENT;
			goto out;
		}
		if (npuwin_member_joined(entry->member) && entry->member->remote) {
			ret = -EOPNOTSUPP;
			goto out;
		}
		if (npuwin_member_left(entry->member)) {
			cmd->gone_rank = entry->sig.rank;
			ret = -EPIPE;
			goto out;
		}
		if (peer != NPUWIN_NO_RANK && npuwin_member_left(&domain->members[peer])) {
			cmd->gone_rank = peer;
			cmd->index = i;
			ret = -EPIPE;
			goto out;
		}
	}
out:
	mutex_unlock(&domain->lock);
	return ret;
}

static bool npuwin_signals_hopeless(const struct npuwin_signal_wait *wait)
{
	u32 i;

	for (i = 0; i < wait->count; i++) {
		if (npuwin_signal_hopeless(&wait->entries[i]))
			return true;
	}
	return false;
}

/*
 * Each notify looks at all that wait, and whoever executes it has others to serve. Counted before
 * they are on the wait queue, so that it is never longer than that and the rank's queues, which
 * are few.
 *
 * Return: 0, or -EMFILE.
 */
static int npuwin_signals_count(struct npuwin_signal_wait *wait)
{
	u32 i;

	for (i = 0; i < wait->count; i++) {
		if (npuwin_sleepers_inc(wait->entries[i].member) > NPUWIN_MAX_WAITS)
			goto err_full;
	}
	return 0;

err_full:
	do {
		npuwin_sleepers_dec(wait->entries[i].member);
	} while (i--);
	return -EMFILE;
}

static int npuwin_signals_begin(struct npuwin_signal_wait *wait)
{
	int srcu, ret;
	u32 i;

	ret = npuwin_signals_count(wait);
	if (ret)
		return ret;
	for (i = 0; i < wait->count; i++) {
		struct npuwin_signal_entry *entry = &wait->entries[i];

		init_waitqueue_func_entry(&entry->entry, npuwin_signal_wake);
		entry->entry.private = current;
		add_wait_queue(&entry->member->wq, &entry->entry);
	}
	if (!wait->domain->ops->member_arm)
		return 0;
	srcu = npuwin_read_lock();
	for (i = 0; i < wait->count; i++) {
		if (npuwin_member_local(wait->entries[i].member))
			wait->domain->ops->member_arm(wait->entries[i].member);
	}
	npuwin_read_unlock(srcu);
	return 0;
}

static void npuwin_signals_end(struct npuwin_signal_wait *wait)
{
	u32 i;

	for (i = 0; i < wait->count; i++) {
		struct npuwin_signal_entry *entry = &wait->entries[i];

		remove_wait_queue(&entry->member->wq, &entry->entry);
		npuwin_sleepers_dec(entry->member);
	}
}

static int npuwin_signals_wait(struct npuwin_signal_wait *wait,
			       struct npuwin_ioc_signal_wait *cmd)
{
	int ret = 0;

	cmd->index = npuwin_signals_look(wait);
	if (cmd->index < wait->count)
		return 0;
	ret = npuwin_signals_verdict(wait, cmd);
	if (ret)
		return ret;
	if (!cmd->deadline_ns)
		return -EAGAIN;

	ret = npuwin_signals_begin(wait);
	if (ret)
		return ret;
	for (;;) {
		set_current_state(TASK_INTERRUPTIBLE);
		cmd->index = npuwin_signals_look(wait);
		if (cmd->index < wait->count)
			break;
		if (npuwin_signals_hopeless(wait)) {
			__set_current_state(TASK_RUNNING);
			ret = npuwin_signals_verdict(wait, cmd);
			if (ret)
				break;
			continue;
		}
		ret = npuwin_sleep(cmd->deadline_ns);
		if (ret)
			break;
	}
	__set_current_state(TASK_RUNNING);
	npuwin_signals_end(wait);
	return ret;
}

static int npuwin_signal_check(const struct npuwin_domain *domain,
			       const struct npuwin_signal *sig)
{
	u64 size = sig->flags & NPUWIN_SIGNAL_F_REG ? NPUWIN_REG_BYTES : domain->window_size;

	if (sig->flags & ~NPUWIN_SIGNAL_F_REG || sig->cmp > NPUWIN_CMP_LE ||
	    sig->offset % sizeof(s32))
		return -EINVAL;
	if (sig->peer != NPUWIN_NO_RANK && sig->peer >= domain->nranks)
		return -EINVAL;
	if (sig->rank >= domain->nranks)
		return -ENOENT;
	if (sig->offset > size - sizeof(s32))
		return -EOVERFLOW;
	return 0;
}

static int npuwin_signals_copy(struct npuwin_signal_wait *wait,
			       const struct npuwin_signal __user *user)
{
	struct npuwin_domain *domain = wait->domain;
	u32 i;

	for (i = 0; i < wait->count; i++) {
		struct npuwin_signal_entry *entry = &wait->entries[i];
		int ret;

		if (copy_from_user(&entry->sig, &user[i], sizeof(entry->sig)))
			return -EFAULT;
		ret = npuwin_signal_check(domain, &entry->sig);
		if (ret)
			return ret;
		entry->wait = wait;
		entry->member = &domain->members[array_index_nospec(entry->sig.rank,
								    domain->nranks)];
	}
	return 0;
}

static int npuwin_signals_respond(const struct npuwin_signal_wait *wait,
				  struct npuwin_signal __user *user)
{
	u32 i;

	for (i = 0; i < wait->count; i++) {
		if (put_user(wait->entries[i].sig.observed, &user[i].observed))
			return -EFAULT;
	}
	return 0;
}

/**
 * npuwin_ioctl_signal_wait() - NPUWIN_IOC_SIGNAL_WAIT.
 * @ucmd: the call
 *
 * Return: 0 or a negative errno.
 */
int npuwin_ioctl_signal_wait(struct npuwin_ucmd *ucmd)
{
	struct npuwin_ioc_signal_wait *cmd = ucmd->cmd;
	struct npuwin_signal __user *user = u64_to_user_ptr(cmd->signals);
	struct npuwin_domain *domain = ucmd->domain;
	struct npuwin_signal_wait wait = { .domain = domain, .count = cmd->count };
	int ret;

	if (cmd->flags || cmd->reserved || cmd->deadline_ns < 0 || !cmd->count ||
	    cmd->count > NPUWIN_MAX_SIGNALS)
		return -EINVAL;
	wait.entries = wait.inline_entries;
	if (cmd->count > NPUWIN_SIGNALS_INLINE) {
		wait.entries = kvcalloc(cmd->count, sizeof(*wait.entries), GFP_KERNEL_ACCOUNT);
		if (!wait.entries)
			return -ENOMEM;
	}
	ret = npuwin_signals_copy(&wait, user);
	if (ret)
		goto out_free;

	mutex_lock(&domain->lock);
	wait.generation = domain->generation;
	mutex_unlock(&domain->lock);
	cmd->gone_rank = NPUWIN_NO_RANK;
	ret = npuwin_signals_wait(&wait, cmd);
	if (!ret || ret == -EAGAIN || ret == -ETIMEDOUT || ret == -EPIPE || ret == -ECANCELED) {
		if (npuwin_signals_respond(&wait, user) || npuwin_respond(ucmd))
			ret = -EFAULT;
	}
out_free:
	if (wait.entries != wait.inline_entries)
		kvfree(wait.entries);
	return ret;
}

/**
 * npuwin_ioctl_signal_wake() - NPUWIN_IOC_SIGNAL_WAKE.
 * @ucmd: the call
 *
 * Return: 0 or a negative errno.
 */
int npuwin_ioctl_signal_wake(struct npuwin_ucmd *ucmd)
{
	struct npuwin_ioc_signal_wake *cmd = ucmd->cmd;
	struct npuwin_domain *domain = ucmd->domain;
	struct npuwin_member *member;
	int srcu;

	if (cmd->rank >= domain->nranks)
		return -ENOENT;
	member = &domain->members[array_index_nospec(cmd->rank, domain->nranks)];
	npuwin_member_wake(member);
	if (domain->ops->member_look) {
		srcu = npuwin_read_lock();
		if (npuwin_member_local(member))
			domain->ops->member_look(member);
		npuwin_read_unlock(srcu);
	}
	return 0;
}
