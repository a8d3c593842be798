/* SPDX-License-Identifier: MIT */
/*
 * JSON output, by json-c.
 */
#ifndef NPUWIN_JSON_H
#define NPUWIN_JSON_H

#include <stdint.h>
#include <json-c/json.h>

#include "layout.h"

void json_add_string(struct json_object *o, const char *key, const char *value);
void json_add_uint(struct json_object *o, const char *key, uint64_t value);
void json_add_int(struct json_object *o, const char *key, int64_t value);
void json_add_bool(struct json_object *o, const char *key, bool value);

/** json_add_seconds() - With nanoseconds as decimals. */
void json_add_seconds(struct json_object *o, const char *key, double value);

/** json_add_shape() - A list of extents. */
void json_add_shape(struct json_object *o, const char *key, uint32_t ndim, const uint64_t *shape);

/** json_add_run() - What a2av and moe both tell of a run. */
void json_add_run(struct json_object *o, const struct run_args *args, const struct layout *l,
		  const struct run_report *report);

/** json_print() - Print to stdout and free. */
void json_print(struct json_object *o);

#endif /* NPUWIN_JSON_H */
