// SPDX-License-Identifier: MIT
#include <stdio.h>
#include <string.h>

#include "json.h"

void json_add_string(struct json_object *o, const char *key, const char *value)
{
	json_object_object_add(o, key, json_object_new_string(value));
}

void json_add_uint(struct json_object *o, const char *key, uint64_t value)
{
	json_object_object_add(o, key, json_object_new_uint64(value));
}

void json_add_int(struct json_object *o, const char *key, int64_t value)
{
	json_object_object_add(o, key, json_object_new_int64(value));
}

void json_add_bool(struct json_object *o, const char *key, bool value)
{
	json_object_object_add(o, key, json_object_new_boolean(value));
}

void json_add_seconds(struct json_object *o, const char *key, double value)
{
	char text[40];

	snprintf(text, sizeof(text), "%.9f", value);
	json_object_object_add(o, key, json_object_new_double_s(value, text));
}

void json_add_shape(struct json_object *o, const char *key, uint32_t ndim, const uint64_t *shape)
{
	struct json_object *list = json_object_new_array();

	for (uint32_t i = 0; i < ndim; i++)
		json_object_array_add(list, json_object_new_uint64(shape[i]));
	json_object_object_add(o, key, list);
}

void json_add_run(struct json_object *o, const struct run_args *args, const struct layout *l,
		  const struct run_report *report)
{
	const uint64_t local[2] = { args->first, args->first + args->count - 1 };

	json_add_uint(o, "ranks", args->ranks);
	json_add_shape(o, "local", 2, local);
	json_add_string(o, "run_as", run_forms[args->form]);
	json_add_string(o, "provider", report->provider);
	json_add_string(o, "provider_reason", report->reason);
	json_add_string(o, "rail", run_rails[args->rail]);
	json_add_string(o, "mode", run_modes[args->mode]);
	json_add_uint(o, "iterations", args->iterations);
	json_add_uint(o, "max_recv", l->max_recv);
	json_add_shape(o, "row_shape", l->ndim - 1, l->shape + 1);
	json_add_uint(o, "row_bytes", l->row_bytes);
	json_add_seconds(o, "seconds", report->seconds);
	json_add_seconds(o, "seconds_best", report->best);
	json_add_bool(o, "verified", !report->mismatch[0]);
	if (report->mismatch[0])
		json_add_string(o, "mismatch", report->mismatch);
}

void json_print(struct json_object *o)
{
	puts(json_object_to_json_string_ext(o, JSON_C_TO_STRING_PRETTY |
					    JSON_C_TO_STRING_NOSLASHESCAPE));
	json_object_put(o);
}
