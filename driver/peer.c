// SPDX-License-Identifier: GPL-2.0-only
/*
 * Ranks of a domain that have joined elsewhere on the fabric.
 *
 * The driver believes nothing of what it is told of them: the device of their window checks
 * each write. Here such a rank is only a name, which may be in use or not.
 */
#include <linux/nospec.h>

#include "npuwin.h"

static int npuwin_domain_export(struct npuwin_ucmd *ucmd, struct npuwin_domain *domain)
{
	struct npuwin_ioc_domain_peer *cmd = ucmd->cmd;
	struct npuwin_member *member;
	int ret;

	mutex_lock(&domain->lock);
	member = npuwin_member_find(domain, cmd->rank, ucmd->file);
	ret = PTR_ERR_OR_ZERO(member);
	if (!ret && domain->state == NPUWIN_DOMAIN_ABORTED)
		ret = npuwin_domain_error(domain);
	if (!ret) {
		cmd->fabric_id = member->peer.fabric_id;
		cmd->offset = member->peer.offset;
		cmd->window_size = domain->window_size;
		cmd->key = member->peer.key;
		cmd->endpoint = member->peer.endpoint;
	}
	mutex_unlock(&domain->lock);
	return ret ? ret : npuwin_respond(ucmd);
}

static int npuwin_domain_import(struct npuwin_ucmd *ucmd, struct npuwin_domain *domain)
{
	const struct npuwin_ioc_domain_peer *cmd = ucmd->cmd;
	struct npuwin_member *member;
	int ret = 0;

	if (cmd->rank >= domain->nranks || !cmd->fabric_id ||
	    cmd->window_size != domain->window_size)
		return -EINVAL;
	member = &domain->members[array_index_nospec(cmd->rank, domain->nranks)];
	mutex_lock(&domain->lock);
	if (domain->state != NPUWIN_DOMAIN_FORMING || member->state != NPUWIN_RANK_EMPTY) {
		ret = -EBUSY;
		goto out_unlock;
	}
	/* Memory of an earlier rank may still be looked at: mem and notify stay. */
	WRITE_ONCE(member->remote, true);
	member->peer = (struct npuwin_peer) {
		.fabric_id = cmd->fabric_id,
		.offset = cmd->offset,
		.key = cmd->key,
		.endpoint = cmd->endpoint,
	};
	member->committed = true;
	npuwin_member_set_state(member, NPUWIN_RANK_JOINED);
	npuwin_domain_try_complete(domain);
	npuwin_domain_changed(domain);
out_unlock:
	mutex_unlock(&domain->lock);
	return ret;
}

static int npuwin_ioctl_domain_peer(struct npuwin_ucmd *ucmd,
				    int (*act)(struct npuwin_ucmd *ucmd,
					       struct npuwin_domain *domain))
{
	const struct npuwin_ioc_domain_peer *cmd = ucmd->cmd;
	struct npuwin_domain *domain;
	int ret = -EOPNOTSUPP;

	if (cmd->flags || cmd->reserved)
		return -EINVAL;
	domain = npuwin_domain_get_fd(cmd->domain_fd);
	if (IS_ERR(domain))
		return PTR_ERR(domain);
	if (ucmd->file->ndev->caps & NPUWIN_CAP_FABRIC && ucmd->file->ndev->ops == domain->ops)
		ret = act(ucmd, domain);
	npuwin_domain_put(domain);
	return ret;
}

/**
 * npuwin_ioctl_domain_export() - NPUWIN_IOC_DOMAIN_EXPORT.
 * @ucmd: the call
 *
 * Return: 0 or a negative errno.
 */
int npuwin_ioctl_domain_export(struct npuwin_ucmd *ucmd)
{
	return npuwin_ioctl_domain_peer(ucmd, npuwin_domain_export);
}

/**
 * npuwin_ioctl_domain_import() - NPUWIN_IOC_DOMAIN_IMPORT.
 * @ucmd: the call
 *
 * Return: 0 or a negative errno.
 */
int npuwin_ioctl_domain_import(struct npuwin_ucmd *ucmd)
{
	return npuwin_ioctl_domain_peer(ucmd, npuwin_domain_import);
}

/**
 * npuwin_domain_peer_gone() - Word has come that a rank elsewhere is gone.
 * @domain: the domain, locked
 * @rank: the rank, joined elsewhere
 * @state: %NPUWIN_RANK_LEFT or %NPUWIN_RANK_DEAD
 */
void npuwin_domain_peer_gone(struct npuwin_domain *domain, u32 rank, u32 state)
{
	lockdep_assert_held(&domain->lock);

	npuwin_member_set_state(&domain->members[rank], state);
	if (state == NPUWIN_RANK_DEAD)
		npuwin_domain_abort(domain, rank, EPIPE, true);
	npuwin_domain_wake_members(domain);
	npuwin_domain_changed(domain);
}
