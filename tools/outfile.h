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
 * enum outfile_state - Where an array is.
 * @OUTFILE_UNNAMED: nowhere that a name leads to; gone with the process
 * @OUTFILE_NAMED: at struct outfile.tmp
 * @OUTFILE_ADDED: at its path, where nothing was
 * @OUTFILE_REPLACED: at its path; what was there is at struct outfile.tmp
 */
enum outfile_state {
	OUTFILE_UNNAMED,
	OUTFILE_NAMED,
	OUTFILE_ADDED,
	OUTFILE_REPLACED,
};

/**
 * struct outfile - An array that is being made.
 * @path: where it goes
 * @tmp: another name in the same directory, see @state
 * @state: where it is
 * @next: another that is at its @tmp while ranks run
 * @fd: of the file
 * @map: all of the file, shared with child processes
 * @map_len: bytes of it
 * @data: the array in @map; reads as zero at first
 */
struct outfile {
	const char *path;
	char tmp[PATH_MAX];
	enum outfile_state state;
	struct outfile *next;
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
 * Return: 0, or CLI_FILE after a complaint; then what was there before still is.
 */
int outfile_commit(struct outfile *files, size_t n);

/** outfile_discard() - Remove what was not committed; all zero is ignored. */
void outfile_discard(struct outfile *files, size_t n);

/** outfile_same() - Return: whether both paths are the same directory entry. */
int outfile_same(const char *a, const char *b);

#endif /* NPUWIN_OUTFILE_H */
