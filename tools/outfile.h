/* SPDX-License-Identifier: MIT */
/*
 * Output files that appear whole or not at all.
 */
#ifndef NPUWIN_OUTFILE_H
#define NPUWIN_OUTFILE_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

/**
 * struct outfile - An array that is being made.
 * @path: where it goes
 * @tmp: where it is until then, in the same directory; empty when there is none
 * @fd: of @tmp
 * @map: all of the file, shared with child processes
 * @map_len: bytes of it
 * @data: the array in @map; reads as zero at first
 */
struct outfile {
	const char *path;
	char tmp[PATH_MAX];
	int fd;
	uint8_t *map;
	size_t map_len;
	uint8_t *data;
};

/**
 * outfile_create() - Make room for an array that is to be in a file.
 * @f: out
 * @path: the file, the caller's string
 * @descr: dtype as .npy files spell it
 * @ndim: number of dimensions
 * @shape: extents
 *
 * Return: 0, or CLI_FILE after a complaint that names @path.
 */
int outfile_create(struct outfile *f, const char *path, const char *descr, uint32_t ndim,
		   const uint64_t *shape);

/**
 * outfile_commit() - Put files where they go.
 * @files: array of them
 * @n: how many
 *
 * Return: 0, or CLI_FILE after a complaint; then none is there.
 */
int outfile_commit(struct outfile *files, size_t n);

/** outfile_discard() - Remove what was not committed; all zero is ignored. */
void outfile_discard(struct outfile *files, size_t n);

/** outfile_same() - Return: whether both paths are the same directory entry. */
int outfile_same(const char *a, const char *b);

#endif /* NPUWIN_OUTFILE_H */
