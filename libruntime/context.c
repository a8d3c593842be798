// SPDX-License-Identifier: MIT
/* Contexts: which provider, why, and its devices. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

static const struct provider_ops *find_provider(const char *name)
{
	if (!strcmp(name, provider_dev.name))
		return &provider_dev;
	return strcmp(name, provider_shm.name) ? NULL : &provider_shm;
}

static int open_provider(struct npuwin *ctx, const struct provider_ops *ops,
			 struct npuwin_error *err)
{
	ctx->ops = ops;
	return ops->open(ctx, err);
}

static int open_named(struct npuwin *ctx, const char *name, const char *who,
		      struct npuwin_error *err)
{
	const struct provider_ops *ops = find_provider(name);

	if (!ops)
		return npuwin_fail(err, -EINVAL, NPUWIN_NOBODY, NPUWIN_NOBODY,
				   "provider \"%.32s\" (%s) is unknown: there are dev and shm",
				   name, who);
	snprintf(ctx->reason, sizeof(ctx->reason), "%s: %s", ops->name, who);
	return open_provider(ctx, ops, err);
}

/* The driver where it can be used; otherwise the sentence says why not. */
static int open_default(struct npuwin *ctx, struct npuwin_error *err)
{
	struct npuwin_error why;

	if (!open_provider(ctx, &provider_dev, &why)) {
		snprintf(ctx->reason, sizeof(ctx->reason), "dev: %d of /dev/npuwin* usable",
			 ctx->ops->device_count(ctx));
		return 0;
	}
	snprintf(ctx->reason, sizeof(ctx->reason), "shm: %s", why.text);
	return open_provider(ctx, &provider_shm, err);
}

int npuwin_open(const char *provider, struct npuwin **out, struct npuwin_error *err)
{
	const char *wanted = secure_getenv("NPUWIN_PROVIDER");
	struct npuwin *ctx;
	int rc;

	*out = NULL;
	ctx = calloc(1, sizeof(*ctx));
	if (!ctx)
		return npuwin_fail(err, -ENOMEM, NPUWIN_NOBODY, NPUWIN_NOBODY,
				   "no memory for a context");
	pthread_mutex_init(&ctx->lock, NULL);
	if (provider)
		rc = open_named(ctx, provider, "asked for by the caller", err);
	else if (wanted && *wanted)
		rc = open_named(ctx, wanted, "asked for by NPUWIN_PROVIDER", err);
	else
		rc = open_default(ctx, err);
	if (rc) {
		pthread_mutex_destroy(&ctx->lock);
		free(ctx);
		return rc;
	}
	*out = ctx;
	return npuwin_ok(err, 0);
}

void npuwin_close(struct npuwin *ctx)
{
	if (!ctx)
		return;
	ctx->ops->close(ctx);
	pthread_mutex_destroy(&ctx->lock);
	free(ctx);
}

const char *npuwin_provider_name(const struct npuwin *ctx)
{
	return ctx->ops->name;
}

const char *npuwin_provider_reason(const struct npuwin *ctx)
{
	return ctx->reason;
}

int npuwin_device_count(const struct npuwin *ctx)
{
	return ctx->ops->device_count(ctx);
}

int npuwin_device_info(struct npuwin *ctx, int index, struct npuwin_device_info *info,
		       struct npuwin_error *err)
{
	int rc = ctx->ops->device_info(ctx, index, info, err);

	return rc ? rc : npuwin_ok(err, 0);
}
