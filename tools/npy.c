// SPDX-License-Identifier: MIT
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli.h"
#include "npy.h"

static const char magic[6] = { '\x93', 'N', 'U', 'M', 'P', 'Y' };

/**
 * struct cursor - Where in a header the parser is.
 * @at: next character
 * @end: first character past the header
 * @why: what is wrong, once something is
 */
struct cursor {
	const char *at;
	const char *end;
	const char *why;
};

static bool wrong(struct cursor *c, const char *why)
{
	if (!c->why)
		c->why = why;
	return false;
}

static void skip_space(struct cursor *c)
{
	while (c->at < c->end && strchr(" \t\r\n", *c->at) && *c->at)
		c->at++;
}

static bool take(struct cursor *c, char ch)
{
	skip_space(c);
	if (c->at >= c->end || *c->at != ch)
		return false;
	c->at++;
	return true;
}

static bool take_word(struct cursor *c, const char *word)
{
	size_t len = strlen(word);

	skip_space(c);
	if ((size_t)(c->end - c->at) < len || memcmp(c->at, word, len))
		return false;
	c->at += len;
	return true;
}

static bool take_string(struct cursor *c, char *buf, size_t len)
{
	const char *start;
	char quote;
	size_t n;

	skip_space(c);
	if (c->at >= c->end || (*c->at != '\'' && *c->at != '"'))
		return false;
	quote = *c->at++;
	start = c->at;
	while (c->at < c->end && *c->at != quote)
		c->at++;
	n = (size_t)(c->at - start);
	if (c->at >= c->end || n >= len || memchr(start, '\0', n))
		return false;
	c->at++;
	memcpy(buf, start, n);
	buf[n] = '\0';
	return true;
}

static bool take_extent(struct cursor *c, uint64_t *value)
{
	uint64_t v = 0;
	const char *start;

	skip_space(c);
	start = c->at;
	while (c->at < c->end && *c->at >= '0' && *c->at <= '9') {
		if (__builtin_mul_overflow(v, 10, &v) ||
		    __builtin_add_overflow(v, (uint64_t)(*c->at - '0'), &v))
			return wrong(c, "its shape has an extent that does not fit 64 bits");
		c->at++;
	}
	if (c->at == start)
		return wrong(c, "its header has a shape that is not a tuple of whole numbers");
	if (c->at < c->end && *c->at == 'L')
		c->at++;
	*value = v;
	return true;
}

static bool take_shape(struct cursor *c, struct npy *a)
{
	static const char no_tuple[] =
		"its header has a shape that is not a tuple of whole numbers";

	if (!take(c, '('))
		return wrong(c, no_tuple);
	while (!take(c, ')')) {
		if (a->ndim == NPY_MAX_DIMS)
			return wrong(c, "its array has more than 32 dimensions");
		if (!take_extent(c, &a->shape[a->ndim]))
			return false;
		a->ndim++;
		if (!take(c, ',')) {
			if (a->ndim > 1 && take(c, ')'))
				return true;
			return wrong(c, no_tuple);
		}
	}
	return true;
}

static bool take_descr(struct cursor *c, struct npy *a)
{
	skip_space(c);
	if (c->at < c->end && *c->at == '[')
		return wrong(c, "its dtype is structured; view it as raw bytes, for instance V8");
	if (!take_string(c, a->descr, sizeof(a->descr)))
		return wrong(c, "its header has a dtype that is not a short string");
	return true;
}

static bool take_header(struct cursor *c, struct npy *a)
{
	enum { DESCR = 1, ORDER = 2, SHAPE = 4 };
	unsigned int seen = 0, key;
	char name[16];

	if (!take(c, '{'))
		return wrong(c, "its header is not a dictionary");
	while (!take(c, '}')) {
		if (!take_string(c, name, sizeof(name)) || !take(c, ':'))
			return wrong(c, "its header is not a dictionary");
		if (!strcmp(name, "descr")) {
			key = DESCR;
			if (!take_descr(c, a))
				return false;
		} else if (!strcmp(name, "fortran_order")) {
			key = ORDER;
			if (take_word(c, "True"))
				return wrong(c, "it is in Fortran order; save it in C order, with numpy.ascontiguousarray");
			if (!take_word(c, "False"))
				return wrong(c, "its header's fortran_order is no boolean");
		} else if (!strcmp(name, "shape")) {
			key = SHAPE;
			if (seen & SHAPE)
				return wrong(c, "its header has a key twice");
			if (!take_shape(c, a))
				return false;
		} else {
			return wrong(c, "its header has an unknown key");
		}
		if (seen & key)
			return wrong(c, "its header has a key twice");
		seen |= key;
		if (!take(c, ',')) {
			if (take(c, '}'))
				break;
			return wrong(c, "its header is not a dictionary");
		}
	}
	skip_space(c);
	if (c->at != c->end)
		return wrong(c, "its header goes on after the dictionary");
	if (seen != (DESCR | ORDER | SHAPE))
		return wrong(c, "its header lacks descr, fortran_order or shape");
	return true;
}

static bool valid_size(char kind, uint64_t size)
{
	switch (kind) {
	case 'b':
		return size == 1;
	case 'f':
		return size == 2 || size == 4 || size == 8;
	case 'c':
	case 'm':
	case 'M':
		return size == 8;
	default:
		return size == 1 || size == 2 || size == 4 || size == 8;
	}
}

/* The unit of a datetime64 or timedelta64: "[ns]", "[25s]". */
static bool valid_unit(const char *s)
{
	size_t n = 0;

	if (*s++ != '[')
		return false;
	while ((s[n] >= 'a' && s[n] <= 'z') || (s[n] >= 'A' && s[n] <= 'Z') ||
	       (s[n] >= '0' && s[n] <= '9') || s[n] == '/')
		n++;
	return n && !strcmp(s + n, "]");
}

static bool take_dtype(struct cursor *c, struct npy *a)
{
	const char *d = a->descr;
	uint64_t size = 0;

	if (d[0] != '<' && d[0] != '>' && d[0] != '|')
		return wrong(c, "its dtype has no byte order that is known");
	if (d[1] == 'O')
		return wrong(c, "it holds Python objects, not numbers");
	if (!d[1] || !strchr("biufcmMSUV", d[1]))
		return wrong(c, "its dtype is not known");
	a->kind = d[1];
	a->swapped = d[0] == '>';
	for (d += 2; *d >= '0' && *d <= '9' && size < 1000; d++)
		size = size * 10 + (uint64_t)(*d - '0');
	if (*d && !((a->kind == 'm' || a->kind == 'M') && valid_unit(d)))
		return wrong(c, "its dtype is not known");
	if (a->kind == 'U')
		size *= 4;
	if (!valid_size(a->kind, size))
		return wrong(c, "its elements are not of 1, 2, 4 or 8 bytes");
	if (a->descr[0] == '|' && size > 1 && a->kind != 'S' && a->kind != 'V')
		return wrong(c, "its dtype has no byte order");
	a->itemsize = (uint32_t)size;
	return true;
}

static bool count_bytes(struct cursor *c, struct npy *a)
{
	uint64_t bytes = a->itemsize;

	for (uint32_t i = 0; i < a->ndim; i++) {
		if (!a->shape[i])
			return wrong(c, "it has no elements: an extent of its shape is 0");
		if (__builtin_mul_overflow(bytes, a->shape[i], &bytes) || bytes > INT64_MAX)
			return wrong(c, "its shape times its element size does not fit 63 bits");
	}
	a->bytes = bytes;
	return true;
}

/* Locates the header text in the mapped file; the data begins where it ends. */
static bool find_header(struct cursor *c, const struct npy *a)
{
	const uint8_t *p = a->map;
	size_t head, len;

	if (a->map_len < sizeof(magic) + 2 || memcmp(p, magic, sizeof(magic)))
		return wrong(c, "it is not a .npy file");
	if (p[6] < 1 || p[6] > 3 || p[7])
		return wrong(c, "its format version is not 1.0, 2.0 or 3.0");
	head = p[6] == 1 ? 10 : 12;
	if (a->map_len < head)
		return wrong(c, "it is truncated in its header");
	len = p[8] | (size_t)p[9] << 8;
	if (p[6] > 1)
		len |= (size_t)p[10] << 16 | (size_t)p[11] << 24;
	if (len > a->map_len - head)
		return wrong(c, "it is truncated in its header");
	c->at = (const char *)p + head;
	c->end = c->at + len;
	return true;
}

static const char *file_kind(mode_t mode)
{
	if (S_ISDIR(mode))
		return "a directory";
	if (S_ISFIFO(mode))
		return "a pipe";
	if (S_ISSOCK(mode))
		return "a socket";
	return "a device";
}

static int map_file(struct npy *a)
{
	struct stat st;
	int fd, rc = 0;

	fd = open(a->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return complain(CLI_FILE, "cannot read %s: %s", a->path, strerror(errno));
	if (fstat(fd, &st)) {
		rc = complain(CLI_FILE, "cannot read %s: %s", a->path, strerror(errno));
	} else if (!S_ISREG(st.st_mode)) {
		rc = complain(CLI_FILE, "cannot use %s: it is %s, not a file", a->path,
			      file_kind(st.st_mode));
	} else if (!st.st_size) {
		rc = complain(CLI_FILE, "cannot use %s: it is empty", a->path);
	} else {
		a->map_len = (size_t)st.st_size;
		a->map = mmap(NULL, a->map_len, PROT_READ, MAP_SHARED, fd, 0);
		if (a->map == MAP_FAILED) {
			a->map = NULL;
			rc = complain(CLI_FILE, "cannot map %s: %s", a->path, strerror(errno));
		}
	}
	close(fd);
	return rc;
}

int npy_open(struct npy *a, const char *path)
{
	struct cursor c = { 0 };
	uint64_t there;
	int rc;

	memset(a, 0, sizeof(*a));
	a->path = path;
	rc = map_file(a);
	if (rc)
		return rc;

	if (!find_header(&c, a) || !take_header(&c, a) || !take_dtype(&c, a) ||
	    !count_bytes(&c, a)) {
		rc = complain(CLI_FILE, "cannot use %s: %s%s%s%s", path, c.why,
			      a->descr[0] ? " (dtype '" : "", a->descr, a->descr[0] ? "')" : "");
		goto fail;
	}
	a->data = (const uint8_t *)c.end;
	there = a->map_len - (uint64_t)(a->data - (const uint8_t *)a->map);
	if (there < a->bytes) {
		rc = complain(CLI_FILE,
			      "cannot use %s: it is truncated: it has %llu of %llu bytes of data",
			      path, (unsigned long long)there, (unsigned long long)a->bytes);
		goto fail;
	}
	if (there > a->bytes) {
		rc = complain(CLI_FILE, "cannot use %s: %llu bytes follow the end of its array",
			      path, (unsigned long long)(there - a->bytes));
		goto fail;
	}
	return 0;

fail:
	npy_close(a);
	return rc;
}

void npy_close(struct npy *a)
{
	if (a->map)
		munmap(a->map, a->map_len);
	memset(a, 0, sizeof(*a));
}

bool npy_is_int(const struct npy *a)
{
	return a->kind == 'i' && (a->itemsize == 4 || a->itemsize == 8);
}

int64_t npy_int(const struct npy *a, uint64_t i)
{
	int64_t wide;
	int32_t narrow;

	if (a->itemsize == 8) {
		memcpy(&wide, a->data + i * 8, sizeof(wide));
		return a->swapped ? (int64_t)be64toh((uint64_t)wide) : wide;
	}
	memcpy(&narrow, a->data + i * 4, sizeof(narrow));
	return a->swapped ? (int32_t)be32toh((uint32_t)narrow) : narrow;
}

const char *npy_shape_text(char *buf, size_t len, uint32_t ndim, const uint64_t *shape)
{
	size_t n = (size_t)snprintf(buf, len, "[");

	for (uint32_t i = 0; i < ndim && n < len; i++)
		n += (size_t)snprintf(buf + n, len - n, "%s%llu", i ? ", " : "",
				      (unsigned long long)shape[i]);
	if (n < len)
		snprintf(buf + n, len - n, "]");
	return buf;
}

size_t npy_header(char *buf, const char *descr, uint32_t ndim, const uint64_t *shape)
{
	const size_t head = sizeof(magic) + 4;
	size_t n, total;

	n = head;
	n += (size_t)snprintf(buf + n, NPY_HEADER_MAX - n,
			      "{'descr': '%s', 'fortran_order': False, 'shape': (", descr);
	for (uint32_t i = 0; i < ndim; i++)
		n += (size_t)snprintf(buf + n, NPY_HEADER_MAX - n, "%llu%s",
				      (unsigned long long)shape[i],
				      ndim == 1 || i + 1 < ndim ? ", " : "");
	n += (size_t)snprintf(buf + n, NPY_HEADER_MAX - n, "), }");

	total = (n + 1 + 63) / 64 * 64;
	memset(buf + n, ' ', total - n - 1);
	buf[total - 1] = '\n';
	memcpy(buf, magic, sizeof(magic));
	buf[6] = 1;
	buf[7] = 0;
	buf[8] = (char)((total - head) & 0xff);
	buf[9] = (char)((total - head) >> 8);
	return total;
}
