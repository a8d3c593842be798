// SPDX-License-Identifier: MIT
/* The dev provider: devices of the driver. */
#include "internal.h"

static int dev_open(struct npuwin *ctx, struct npuwin_error *err)
{
	return npuwin_fail(err, -ENODEV, NPUWIN_NOBODY, NPUWIN_NOBODY,
			   "/dev/npuwin0 does not exist (is npuwin.ko loaded? see npuwin doctor)");
}

const struct provider_ops provider_dev = {
	.name = "dev",
	.open = dev_open,
};
