// SPDX-License-Identifier: MIT
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli.h"
#include "npy.h"
#include "outfile.h"

#define FD_PATH_MAX	32	/* /proc/self/fd/N */

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

/* A name next to @f->path that nothing has. */
static int spare_name(const struct outfile *f, char *name, size_t len)
{
	char dir[PATH_MAX];
	const char *base;
	uint64_t salt;
	int n;

	if (getrandom(&salt, sizeof(salt), 0) != sizeof(salt))
		return -EIO;
	if (split_path(f->path, dir, sizeof(dir), &base))
		return -ENAMETOOLONG;
	n = snprintf(name, len, "%s/.%.200s.%016llx", dir, base, (unsigned long long)salt);
	return n < 0 || (size_t)n >= len ? -ENAMETOOLONG : 0;
}

/* A file without a name, that /proc can give one. */
static int open_unnamed(const char *path)
{
	char dir[PATH_MAX], proc[FD_PATH_MAX];
	const char *base;
	int fd;

	if (split_path(path, dir, sizeof(dir), &base))
		return -1;
	fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0666);
	if (fd < 0)
		return -1;
	snprintf(proc, sizeof(proc), "/proc/self/fd/%d", fd);
	if (access(proc, F_OK)) {
		close(fd);
		return -1;
	}
	return fd;
}

/* Those that a fault must remove. */
static struct outfile *named;

static void unlist(const struct outfile *f)
{
	for (struct outfile **p = &named; *p; p = &(*p)->next) {
		if (*p == f) {
			*p = f->next;
			return;
		}
	}
}

/* An input that somebody cut short while it was read, perhaps by several threads. */
static void on_fault(int signo)
{
	for (const struct outfile *f = named; f; f = f->next)
		if (f->state == OUTFILE_NAMED)
			unlink(f->tmp);
	signal(signo, SIG_DFL);
	raise(signo);
}

static int open_named(struct outfile *f)
{
	const struct sigaction fault = { .sa_handler = on_fault };

	f->fd = open(f->tmp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	if (f->fd < 0)
		return -errno;
	f->state = OUTFILE_NAMED;
	f->next = named;
	named = f;
	sigaction(SIGBUS, &fault, NULL);
	return 0;
}

static int make_temporary(struct outfile *f)
{
	int rc = spare_name(f, f->tmp, sizeof(f->tmp));

	if (rc)
		return rc;
	f->fd = open_unnamed(f->path);
	return f->fd < 0 ? open_named(f) : 0;
}

static int map_temporary(struct outfile *f)
{
	int rc = posix_fallocate(f->fd, 0, (off_t)f->map_len);
	void *map;

	if (rc)
		return -rc;
	map = mmap(NULL, f->map_len, PROT_READ | PROT_WRITE, MAP_SHARED, f->fd, 0);
	if (map == MAP_FAILED)
		return -errno;
	f->map = map;
	return 0;
}

int outfile_create(struct outfile *f, const char *path, const char *descr, uint32_t ndim,
		   const uint64_t *shape)
{
	char header[NPY_HEADER_MAX];
	size_t head = npy_header(header, descr, ndim, shape);
	uint64_t len = strtoul(descr + 2, NULL, 10) * (descr[1] == 'U' ? 4 : 1);
	struct stat st;
	int rc;

	memset(f, 0, sizeof(*f));
	f->path = path;
	f->fd = -1;
	for (uint32_t i = 0; i < ndim; i++)
		len *= shape[i];
	f->map_len = head + len;

	rc = stat(path, &st) ? -errno : 0;
	if (!rc && !S_ISREG(st.st_mode))
		return complain(CLI_FILE, "cannot write %s: it exists and is not a file", path);
	if (rc != -ENAMETOOLONG)
		rc = make_temporary(f);
	if (!rc)
		rc = map_temporary(f);
	if (rc) {
		outfile_discard(f, 1);
		return complain(CLI_FILE, "cannot write %s: %s", path, strerror(-rc));
	}
	memcpy(f->map, header, head);
	f->data = f->map + head;
	return 0;
}

static int sync_directory(struct outfile *f)
{
	char dir[PATH_MAX];
	const char *base;
	int fd, rc;

	if (split_path(f->path, dir, sizeof(dir), &base))
		return -ENAMETOOLONG;
	fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	/* A directory may be one to write to only. */
	if (fd < 0)
		return errno == EACCES ? 0 : -errno;
	rc = fsync(fd) && errno != EINVAL ? -errno : 0;
	close(fd);
	return rc;
}

static int finish(struct outfile *f)
{
	munmap(f->map, f->map_len);
	f->map = NULL;
	return fsync(f->fd) ? -errno : 0;
}

/* Give a file without a name one that nothing has. */
static int give_name(struct outfile *f, const char *name, enum outfile_state state)
{
	char proc[FD_PATH_MAX];

	snprintf(proc, sizeof(proc), "/proc/self/fd/%d", f->fd);
	if (linkat(AT_FDCWD, proc, AT_FDCWD, name, AT_SYMLINK_FOLLOW))
		return -errno;
	f->state = state;
	return 0;
}

/* Where the file system cannot exchange two files. */
static int move_aside(struct outfile *f)
{
	char old[PATH_MAX];
	int rc = spare_name(f, old, sizeof(old));
	bool linked;

	if (rc)
		return rc;
	linked = !link(f->path, old);
	if (!linked && rename(f->path, old))
		return -errno;
	if (rename(f->tmp, f->path)) {
		rc = -errno;
		if (linked)
			unlink(old);
		else
			rename(old, f->path);
		return rc;
	}
	memcpy(f->tmp, old, sizeof(old));
	f->state = OUTFILE_REPLACED;
	return 0;
}

/*
 * A new file comes to be under its own name, so that there is no other which a process that is
 * killed could leave. To replace one takes a second name, until the directory is synchronised.
 */
static int put(struct outfile *f)
{
	struct stat st;
	int rc;

	if (f->state == OUTFILE_UNNAMED) {
		rc = give_name(f, f->path, OUTFILE_ADDED);
		if (rc == -EEXIST)
			rc = give_name(f, f->tmp, OUTFILE_NAMED);
		if (rc || f->state == OUTFILE_ADDED)
			return rc;
	}
	if (lstat(f->path, &st)) {
		if (errno != ENOENT || rename(f->tmp, f->path))
			return -errno;
		f->state = OUTFILE_ADDED;
		return 0;
	}
	if (S_ISDIR(st.st_mode))
		return -EISDIR;
	if (renameat2(AT_FDCWD, f->tmp, AT_FDCWD, f->path, RENAME_EXCHANGE)) {
		if (errno == EINVAL || errno == EOPNOTSUPP)
			return move_aside(f);
		return -errno;
	}
	f->state = OUTFILE_REPLACED;
	return 0;
}

static void take_back(struct outfile *f)
{
	if (f->state == OUTFILE_ADDED) {
		unlink(f->path);
	} else if (f->state == OUTFILE_REPLACED && rename(f->tmp, f->path)) {
		cli_complain("cannot restore %s: %s; what it was is in %s", f->path,
			     strerror(errno), f->tmp);
	} else if (f->state == OUTFILE_NAMED) {
		unlink(f->tmp);
	}
	f->state = OUTFILE_UNNAMED;
}

int outfile_commit(struct outfile *files, size_t n)
{
	int (*const steps[])(struct outfile *f) = { finish, put, sync_directory };
	int rc = 0;

	for (size_t step = 0; step < ARRAY_SIZE(steps) && !rc; step++) {
		for (size_t i = 0; i < n && !rc; i++) {
			int err = steps[step](&files[i]);

			if (err)
				rc = complain(CLI_FILE, "cannot write %s: %s", files[i].path,
					      strerror(-err));
		}
	}
	for (size_t i = 0; i < n && !rc; i++) {
		if (files[i].state == OUTFILE_REPLACED)
			unlink(files[i].tmp);
		files[i].state = OUTFILE_UNNAMED;
	}
	outfile_discard(files, n);
	return rc;
}

void outfile_discard(struct outfile *files, size_t n)
{
	while (n--) {
		struct outfile *f = &files[n];

		if (!f->path)
			continue;
		take_back(f);
		unlist(f);
		if (f->map)
			munmap(f->map, f->map_len);
		if (f->fd >= 0)
			close(f->fd);
		memset(f, 0, sizeof(*f));
	}
}
