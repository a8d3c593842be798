// SPDX-License-Identifier: GPL-2.0-only
/*
 * Whose turn it is where workers execute: users take turns, and in a user's turns his queues do.
 *
 * A user has as many turns as there are processors. Each is a work item that executes one queue
 * for a tick at most and goes to the end of the line, in which it meets the other users' turns
 * alone: npuwin_wq serves its items in order, on each NUMA node. So how many queues somebody
 * fills is no matter of others, nor how many wait to be told of their completions.
 */
#include <linux/cred.h>
#include <linux/mm.h>
#include <linux/user_namespace.h>

#include "npuwin.h"

/**
 * struct npuwin_turn - A place of a user in the line.
 * @work: on npuwin_wq, or running, unless the turn is idle
 * @user: whose
 * @link: in the user's idle turns
 */
struct npuwin_turn {
	struct work_struct work;
	struct npuwin_user *user;
	struct list_head link;
};

/**
 * struct npuwin_user - A user with open files.
 * @link: in npuwin_users
 * @uid: who
 * @files: open files; under npuwin_users_lock
 * @lock: protects all that follows; taken in any context
 * @queues: queues with something to do, in order
 * @idle: turns that are not needed
 * @nturns: how many turns, one for each processor
 * @turns: all of them
 */
struct npuwin_user {
	struct list_head link;
	kuid_t uid;
	unsigned int files;
	spinlock_t lock;		/* all from here */
	struct list_head queues;
	struct list_head idle;
	unsigned int nturns;
	struct npuwin_turn turns[];
};

static DEFINE_SPINLOCK(npuwin_users_lock);
static LIST_HEAD(npuwin_users);

static void npuwin_turn_work(struct work_struct *work)
{
	struct npuwin_turn *turn = container_of(work, struct npuwin_turn, work);
	const struct npuwin_backend_ops *ops = NULL;
	struct npuwin_user *user = turn->user;
	struct npuwin_queue *queue;

	spin_lock_irq(&user->lock);
	queue = list_first_entry_or_null(&user->queues, struct npuwin_queue, turn_link);
	if (queue) {
		list_del_init(&queue->turn_link);
		/* It is not destroyed before it is off the list; its file may go then. */
		kref_get(&queue->ref);
		ops = queue->file->ndev->ops;
	} else {
		list_add(&turn->link, &user->idle);
	}
	spin_unlock_irq(&user->lock);
	if (!queue)
		return;
	ops->queue_turn(queue);
	npuwin_queue_put(queue);
	queue_work(npuwin_wq, &turn->work);
}

/**
 * npuwin_turn_wanted() - A queue has something to do, and nobody may be there to do it.
 * @queue: the queue, which npuwin_turn_unwanted() will be called for
 *
 * Context: any.
 */
void npuwin_turn_wanted(struct npuwin_queue *queue)
{
	struct npuwin_user *user = queue->file->user;
	struct npuwin_turn *turn;
	unsigned long flags;

	spin_lock_irqsave(&user->lock, flags);
	if (list_empty(&queue->turn_link)) {
		list_add_tail(&queue->turn_link, &user->queues);
		turn = list_first_entry_or_null(&user->idle, struct npuwin_turn, link);
		if (turn) {
			list_del_init(&turn->link);
			queue_work(npuwin_wq, &turn->work);
		}
	}
	spin_unlock_irqrestore(&user->lock, flags);
}

/**
 * npuwin_turn_unwanted() - A queue is quiesced for good.
 * @queue: the queue
 */
void npuwin_turn_unwanted(struct npuwin_queue *queue)
{
	struct npuwin_user *user = queue->file->user;

	spin_lock_irq(&user->lock);
	list_del_init(&queue->turn_link);
	spin_unlock_irq(&user->lock);
}

static struct npuwin_user *npuwin_user_new(kuid_t uid)
{
	unsigned int i, nturns = num_online_cpus();
	struct npuwin_user *user;

	user = kvzalloc(struct_size(user, turns, nturns), GFP_KERNEL_ACCOUNT);
	if (!user)
		return NULL;
	user->uid = uid;
	spin_lock_init(&user->lock);
	INIT_LIST_HEAD(&user->queues);
	INIT_LIST_HEAD(&user->idle);
	user->nturns = nturns;
	for (i = 0; i < nturns; i++) {
		struct npuwin_turn *turn = &user->turns[i];

		INIT_WORK(&turn->work, npuwin_turn_work);
		turn->user = user;
		list_add_tail(&turn->link, &user->idle);
	}
	return user;
}

/*
 * Who the caller is, for others: the ids of a user namespace are as many as somebody likes, and
 * are all his who has made it. Those that root has made keep users apart as it has decided. Who
 * takes such an id on outside of it, by a set-user-ID file, is not seen through.
 */
static kuid_t npuwin_user_id(void)
{
	const struct user_namespace *ns = current_user_ns();
	kuid_t uid = current_euid();

	for (; ns->parent; ns = ns->parent) {
		if (!uid_eq(ns->owner, GLOBAL_ROOT_UID))
			uid = ns->owner;
	}
	return uid;
}

/**
 * npuwin_user_get() - The caller's user opens a file.
 *
 * Return: the user, for npuwin_user_put(), or NULL where there is no memory.
 */
struct npuwin_user *npuwin_user_get(void)
{
	/* Made before it is known whether it is needed: who waits for memory holds up nobody. */
	struct npuwin_user *made = npuwin_user_new(npuwin_user_id());
	struct npuwin_user *user;

	if (!made)
		return NULL;
	spin_lock(&npuwin_users_lock);
	list_for_each_entry(user, &npuwin_users, link) {
		if (uid_eq(user->uid, made->uid))
			goto found;
	}
	user = made;
	made = NULL;
	list_add(&user->link, &npuwin_users);
found:
	user->files++;
	spin_unlock(&npuwin_users_lock);
	kvfree(made);
	return user;
}

/**
 * npuwin_user_put() - A user's file is gone, and its queues with it.
 * @user: the user
 */
void npuwin_user_put(struct npuwin_user *user)
{
	unsigned int i;
	bool last;

	spin_lock(&npuwin_users_lock);
	last = !--user->files;
	if (last)
		list_del(&user->link);
	spin_unlock(&npuwin_users_lock);
	if (!last)
		return;
	for (i = 0; i < user->nturns; i++)
		cancel_work_sync(&user->turns[i].work);
	kvfree(user);
}
