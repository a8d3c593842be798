// SPDX-License-Identifier: MIT
/*
 * Element types.
 */
#include "internal.h"

static const struct {
	const char *name;
	uint32_t size;
} dtypes[] = {
	[NPUWIN_FP64] = { "fp64", 8 },
	[NPUWIN_FP32] = { "fp32", 4 },
	[NPUWIN_FP16] = { "fp16", 2 },
	[NPUWIN_BF16] = { "bf16", 2 },
	[NPUWIN_FP8_E4M3] = { "fp8-e4m3", 1 },
	[NPUWIN_FP8_E5M2] = { "fp8-e5m2", 1 },
	[NPUWIN_INT64] = { "int64", 8 },
	[NPUWIN_INT32] = { "int32", 4 },
	[NPUWIN_INT16] = { "int16", 2 },
	[NPUWIN_INT8] = { "int8", 1 },
	[NPUWIN_UINT8] = { "uint8", 1 },
};

uint32_t npuwin_dtype_size(uint32_t dtype)
{
	return dtype < ARRAY_SIZE(dtypes) ? dtypes[dtype].size : 0;
}

const char *npuwin_dtype_name(uint32_t dtype)
{
	return dtype < ARRAY_SIZE(dtypes) ? dtypes[dtype].name : NULL;
}
