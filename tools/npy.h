/* SPDX-License-Identifier: MIT */
/*
 * Arrays in NumPy's .npy format, versions 1.0 to 3.0, in C order.
 */
#ifndef NPUWIN_NPY_H
#define NPUWIN_NPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NPY_MAX_DIMS	32
#define NPY_DESCR_LEN	32

/**
 * struct npy - An array in a file, mapped read-only.
 * @path: the file, the caller's string
 * @descr: dtype as the file spells it, for instance "<f4"
 * @kind: its letter: b i u f c m M S U V
 * @swapped: elements are big-endian
 * @itemsize: bytes of an element: 1, 2, 4 or 8
 * @ndim: number of dimensions
 * @shape: extents, none of them zero
 * @bytes: bytes of all elements
 * @data: the first element, of any alignment
 * @map: what npy_close() unmaps
 * @map_len: bytes of it
 */
struct npy {
	const char *path;
	char descr[NPY_DESCR_LEN];
	char kind;
	bool swapped;
	uint32_t itemsize;
	uint32_t ndim;
	uint64_t shape[NPY_MAX_DIMS];
	uint64_t bytes;
	const uint8_t *data;
	void *map;
	size_t map_len;
};

/** npy_open() - Map an array. Return: 0, or CLI_FILE after a complaint that names @path. */
int npy_open(struct npy *a, const char *path);

/** npy_close() - Unmap it; an @a that is all zero is ignored. */
void npy_close(struct npy *a);

/** npy_is_int() - Return: whether elements are int32 or int64, what npy_int() can read. */
bool npy_is_int(const struct npy *a);

/** npy_int() - Return: element @i of an int32 or int64 array. */
int64_t npy_int(const struct npy *a, uint64_t i);

/** npy_shape_text() - "[2, 3]". Return: @buf. */
const char *npy_shape_text(char *buf, size_t len, uint32_t ndim, const uint64_t *shape);

#define NPY_HEADER_MAX	1024

/**
 * npy_header() - Make the header of a file.
 * @buf: out: the bytes, up to NPY_HEADER_MAX
 * @descr: dtype as the file is to spell it
 * @ndim: number of dimensions
 * @shape: extents
 *
 * Return: bytes of it, a multiple of 64; what follows is the data.
 */
size_t npy_header(char *buf, const char *descr, uint32_t ndim, const uint64_t *shape);

#endif /* NPUWIN_NPY_H */
