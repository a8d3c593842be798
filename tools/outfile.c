// SPDX-License-Identifier: MIT
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli.h"
#include "npy.h"
#include "outfile.h"

/* The directory part of @path, "." if it has none. */
static int split_path(const char *path, char *dir, size_t len, const char **base)
{
	const char *slash = strrchr(path, '/');
	int n;

	*base = slash ? slash + 1 : path;
	if (!slash)
		n = snprintf(dir, len, ".");
	else
		n = snprintf(dir, len, "%.*s", (int)(slash - path + (slash == path)), path);
	return n < 0 || (size_t)n >= len ? -ENAMETOOLONG : 0;
}

int outfile_same(const char *a, const char *b)
{
	char dir_a[PATH_MAX], dir_b[PATH_MAX];
	const char *base_a, *base_b;
	struct stat st_a, st_b;

	if (split_path(a, dir_a, sizeof(dir_a), &base_a) ||
	    split_path(b, dir_b, sizeof(dir_b), &base_b) || strcmp(base_a, base_b))
		return 0;
	if (stat(dir_a, &st_a) || stat(dir_b, &st_b))
		return !strcmp(dir_a, dir_b);
	return st_a.st_dev == st_b.st_dev && st_a.st_ino == st_b.st_ino;
}

/* Return: whether it could be made; else errno says why not. */
static bool make_temporary(struct outfile *f)
{
	char dir[PATH_MAX];
	const char *base;
	mode_t mask;
	int n = -1;

	if (!split_path(f->path, dir, sizeof(dir), &base))
		n = snprintf(f->tmp, sizeof(f->tmp), "%s/.%.200s.XXXXXX", dir, base);
	if (n < 0 || (size_t)n >= sizeof(f->tmp)) {
		f->tmp[0] = '\0';
		errno = ENAMETOOLONG;
		return false;
	}
	f->fd = mkostemp(f->tmp, O_CLOEXEC);
	if (f->fd < 0) {
		f->tmp[0] = '\0';
		return false;
	}
	mask = umask(0);
	umask(mask);
	return !fchmod(f->fd, 0666 & ~mask);
}

static bool map_temporary(struct outfile *f)
{
	int rc = posix_fallocate(f->fd, 0, (off_t)f->map_len);

	if (rc) {
		errno = rc;
		return false;
	}
	f->map = mmap(NULL, f->map_len, PROT_READ | PROT_WRITE, MAP_SHARED, f->fd, 0);
	if (f->map == MAP_FAILED)
		f->map = NULL;
	return f->map;
}

int outfile_create(struct outfile *f, const char *path, const char *descr, uint32_t ndim,
		   const uint64_t *shape)
{
	char header[NPY_HEADER_MAX];
	size_t head = npy_header(header, descr, ndim, shape);
	uint64_t len = strtoul(descr + 2, NULL, 10) * (descr[1] == 'U' ? 4 : 1);
	struct stat st;

	memset(f, 0, sizeof(*f));
	f->path = path;
	f->fd = -1;
	for (uint32_t i = 0; i < ndim; i++)
		len *= shape[i];
	f->map_len = head + len;

	if (!stat(path, &st) && !S_ISREG(st.st_mode))
		return complain(CLI_FILE, "cannot write %s: it exists and is not a file", path);
	if (!make_temporary(f) || !map_temporary(f)) {
		int err = errno;

		outfile_discard(f, 1);
		return complain(CLI_FILE, "cannot write %s: %s", path, strerror(err));
	}
	memcpy(f->map, header, head);
	f->data = f->map + head;
	return 0;
}

static int sync_directory(const char *path)
{
	char dir[PATH_MAX];
	const char *base;
	int fd, rc;

	if (split_path(path, dir, sizeof(dir), &base))
		return -ENAMETOOLONG;
	fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	rc = fsync(fd) && errno != EINVAL ? -errno : 0;
	close(fd);
	return rc;
}

int outfile_commit(struct outfile *files, size_t n)
{
	size_t done = 0;
	int rc = 0;

	for (size_t i = 0; i < n && !rc; i++) {
		munmap(files[i].map, files[i].map_len);
		files[i].map = NULL;
		if (fsync(files[i].fd))
			rc = complain(CLI_FILE, "cannot write %s: %s", files[i].path,
				      strerror(errno));
	}
	for (; done < n && !rc; done++) {
		if (rename(files[done].tmp, files[done].path)) {
			rc = complain(CLI_FILE, "cannot write %s: %s", files[done].path,
				      strerror(errno));
			break;
		}
		files[done].tmp[0] = '\0';
	}
	for (size_t i = 0; i < n && !rc; i++) {
		int err = sync_directory(files[i].path);

		if (err)
			rc = complain(CLI_FILE, "cannot write %s: %s", files[i].path,
				      strerror(-err));
	}
	for (size_t i = 0; i < done && rc; i++)
		unlink(files[i].path);
	outfile_discard(files, n);
	return rc;
}

void outfile_discard(struct outfile *files, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct outfile *f = &files[i];

		if (!f->path)
			continue;
		if (f->map)
			munmap(f->map, f->map_len);
		if (f->fd >= 0)
			close(f->fd);
		if (f->tmp[0])
			unlink(f->tmp);
		memset(f, 0, sizeof(*f));
	}
}
