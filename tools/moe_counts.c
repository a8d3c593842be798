// SPDX-License-Identifier: MIT
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <json-c/json.h>

#include "moe.h"

/* A matrix of NPUWIN_MAX_RANKS ranks takes less. */
#define MAX_JSON_BYTES	(32 << 20)

uint32_t moe_dtype(const char *name)
{
	const char *known;

	for (uint32_t d = 1; (known = npuwin_dtype_name(d)); d++)
		if (!strcmp(name, known))
			return d;
	return 0;
}

static int bad_file(const char *path, const char *why)
{
	return complain(CLI_FILE, "cannot use %s: %s", path, why);
}

static int load_matrix(struct moe_plan *p, const char *path, struct json_object *matrix)
{
	size_t n;
	int rc;

	if (!json_object_is_type(matrix, json_type_array))
		return bad_file(path, "it has no list count_matrix");
	n = json_object_array_length(matrix);
	if (!n || n > NPUWIN_MAX_RANKS)
		return bad_file(path, "its count_matrix is not of 1 to 1024 ranks");
	rc = counts_alloc(&p->counts, (uint32_t)n);
	for (size_t s = 0; s < n && !rc; s++) {
		struct json_object *row = json_object_array_get_idx(matrix, s);

		if (!json_object_is_type(row, json_type_array) ||
		    json_object_array_length(row) != n)
			return bad_file(path, "its count_matrix is not square");
		for (size_t d = 0; d < n; d++) {
			struct json_object *cell = json_object_array_get_idx(row, d);

			if (!json_object_is_type(cell, json_type_int))
				return bad_file(path, "its count_matrix is not of whole numbers");
			p->counts.count[s * n + d] = json_object_get_int64(cell);
		}
	}
	return rc;
}

static int get_uint(struct json_object *root, const char *path, const char *key, uint64_t *value)
{
	struct json_object *o;

	if (!json_object_object_get_ex(root, key, &o))
		return 0;
	if (!json_object_is_type(o, json_type_int) || json_object_get_int64(o) < 1)
		return complain(CLI_FILE, "cannot use %s: its %s is not a number above 0", path,
				key);
	*value = (uint64_t)json_object_get_int64(o);
	return 0;
}

static void get_string(struct json_object *root, const char *key, char *buf, size_t len)
{
	struct json_object *o;

	if (json_object_object_get_ex(root, key, &o) && json_object_is_type(o, json_type_string))
		snprintf(buf, len, "%s", json_object_get_string(o));
}

static int load_facts(struct moe_plan *p, const char *path, struct json_object *root,
		      uint64_t *hidden, uint32_t *dtype)
{
	uint64_t file_hidden = 0;
	char name[32] = "";
	int rc;

	rc = get_uint(root, path, "tokens", &p->tokens);
	if (!rc)
		rc = get_uint(root, path, "topk", &p->topk);
	if (!rc)
		rc = get_uint(root, path, "experts", &p->experts);
	if (!rc)
		rc = get_uint(root, path, "hidden", &file_hidden);
	if (rc)
		return rc;
	get_string(root, "model", p->model, sizeof(p->model));
	get_string(root, "source", p->source, sizeof(p->source));
	get_string(root, "dtype", name, sizeof(name));
	if (!*hidden)
		*hidden = file_hidden;
	if (!*dtype && name[0]) {
		*dtype = moe_dtype(name);
		if (!*dtype)
			return complain(CLI_FILE, "cannot use %s: its dtype '%s' is not known",
					path, name);
	}
	return 0;
}

/* All of a file, or NULL. A file may have nothing behind the value. */
static struct json_object *read_json(const char *path)
{
	struct json_tokener *tokener = json_tokener_new();
	FILE *file = fopen(path, "re");
	struct json_object *root = NULL;
	char *text = NULL;
	size_t size = 0, end;
	ssize_t length;

	if (!tokener || !file)
		goto out;
	length = getdelim(&text, &size, 0, file);
	/* With its NUL, since a number has no other end. */
	if (length < 0 || length >= INT_MAX)
		goto out;
	root = json_tokener_parse_ex(tokener, text, (int)length + 1);
	end = json_tokener_get_parse_end(tokener);
	if (root && end + strspn(text + end, " \t\r\n") < (size_t)length) {
		json_object_put(root);
		root = NULL;
	}
out:
	free(text);
	if (file)
		fclose(file);
	if (tokener)
		json_tokener_free(tokener);
	return root;
}

static int load_json(struct moe_plan *p, const char *path, uint64_t *hidden, uint32_t *dtype)
{
	struct json_object *root = read_json(path), *matrix = NULL;
	int rc;

	if (!root)
		return bad_file(path, "it is neither JSON nor a .npy file");
	if (!json_object_is_type(root, json_type_object)) {
		rc = bad_file(path, "it is not a JSON object");
	} else {
		json_object_object_get_ex(root, "count_matrix", &matrix);
		rc = load_matrix(p, path, matrix);
		if (!rc)
			rc = load_facts(p, path, root, hidden, dtype);
	}
	json_object_put(root);
	return rc;
}

static int load_npy(struct moe_plan *p, const char *path)
{
	struct npy a;
	int rc = npy_open(&a, path);

	if (!rc) {
		rc = counts_load(&p->counts, &a);
		npy_close(&a);
	}
	return rc;
}

static int first_byte(const char *path, uint8_t *byte)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), rc = 0;
	struct stat st;

	if (fd < 0)
		return complain(CLI_FILE, "cannot read %s: %s", path, strerror(errno));
	if (fstat(fd, &st) || !S_ISREG(st.st_mode))
		rc = bad_file(path, "it is not a file");
	else if (st.st_size > MAX_JSON_BYTES)
		rc = bad_file(path, "it is too large for a count matrix");
	else if (read(fd, byte, 1) != 1)
		rc = bad_file(path, "it is empty");
	close(fd);
	return rc;
}

int moe_plan_load(struct moe_plan *p, const char *path, uint64_t *hidden, uint32_t *dtype)
{
	uint32_t n;
	uint8_t byte = 0;
	int rc = first_byte(path, &byte);

	if (!rc)
		rc = byte == 0x93 ? load_npy(p, path) : load_json(p, path, hidden, dtype);
	if (rc)
		return rc;
	n = p->counts.nranks;
	for (uint32_t s = 0; s < n; s++) {
		for (uint32_t d = 0; d < n; d++) {
			int64_t count = count_asked(&p->counts, s, d);

			if (count < 0 || count > INT32_MAX)
				return complain(CLI_FILE, "cannot use %s: the count of rank %u for rank %u is %lld, out of 0..%d",
						path, s, d,
						(long long)count, INT32_MAX);
		}
	}
	return moe_plan_start(p);
}
