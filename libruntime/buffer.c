// SPDX-License-Identifier: MIT
/*
 * Symmetric buffers: first fit over the user's part of the window.
 *
 * The allocator sees nothing but the order of its calls, so ranks that allocate and free
 * alike get the same offsets without talking to each other. Whether they did is in every
 * collective's signature.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "collective.h"

#define ALIGN_DEFAULT	64
#define ALIGN_MIN	8	/* any element type, at any multiple of its size */
#define ALIGN_MAX	4096

/**
 * struct heap - The user's part of a window.
 * @domain: the rank
 * @start: offset of its first byte
 * @end: offset behind its last byte
 * @used: offset up to which memory has ever been in a buffer: what is above reads as zero
 *	as it came, and is not touched before its user does
 * @first: buffer of the lowest offset
 * @count: allocations made
 * @digest: of their sizes and offsets
 * @told: @count when peers were last told, 0 if they know of none
 * @made: the newest allocations: number n, counted from 0, is element n % HISTORY
 * @before: @digest before each of them
 */
struct heap {
	struct npuwin_domain *domain;
	uint64_t start;
	uint64_t end;
	uint64_t used;
	struct npuwin_buffer *first;
	uint32_t count;
	uint32_t digest;
	uint32_t told;
	struct allocation made[HISTORY];
	uint32_t before[HISTORY];
};

struct heap *heap_create(struct npuwin_domain *domain, uint64_t start, uint64_t end)
{
	struct heap *heap = calloc(1, sizeof(*heap));

	if (!heap)
		return NULL;
	heap->domain = domain;
	heap->start = start;
	heap->used = start;
	heap->end = end;
	return heap;
}

static void buffer_destroy(struct npuwin_buffer *buffer)
{
	while (buffer->signals) {
		struct signal_cells *next = buffer->signals->next;

		free(buffer->signals);
		buffer->signals = next;
	}
	free(buffer);
}

void heap_destroy(struct heap *heap)
{
	if (!heap)
		return;
	while (heap->first) {
		struct npuwin_buffer *next = heap->first->next;

		buffer_destroy(heap->first);
		heap->first = next;
	}
	free(heap);
}

bool heap_owns(const struct heap *heap, const struct npuwin_buffer *buffer)
{
	const struct npuwin_buffer *b;

	for (b = heap->first; b; b = b->next)
		if (b == buffer)
			return true;
	return false;
}

void heap_history(const struct heap *heap, uint32_t *count, uint32_t *digest)
{
	*count = heap->count;
	*digest = heap->digest;
}

int heap_add_signal(struct npuwin_buffer *buffer, uint64_t offset)
{
	struct signal_cells *cells;

	for (cells = buffer->signals; cells; cells = cells->next)
		if (cells->offset == offset)
			return 0;
	cells = malloc(sizeof(*cells));
	if (!cells)
		return -ENOMEM;
	cells->offset = offset;
	cells->next = buffer->signals;
	buffer->signals = cells;
	return 0;
}

void heap_zero_signals(struct heap *heap)
{
	const struct endpoint *ep = heap->domain->ep;
	struct npuwin_buffer *b;
	struct signal_cells *cells;

	for (b = heap->first; b; b = b->next)
		for (cells = b->signals; cells; cells = cells->next)
			handshake_zero_cells(ep, cells->offset, ep->nranks);
}

static void heap_record(struct heap *heap, const struct npuwin_buffer *buffer)
{
	struct allocation *made = &heap->made[heap->count % HISTORY];

	made->offset = buffer->offset;
	made->size = buffer->size;
	heap->before[heap->count % HISTORY] = heap->digest;
	heap->digest = signature_crc(heap->digest, made, sizeof(*made));
	heap->count++;
}

bool heap_has_news(const struct heap *heap)
{
	return heap->told != heap->count;
}

void heap_tell(struct heap *heap)
{
	const struct endpoint *ep = heap->domain->ep;

	memcpy(ep->window[ep->rank] + handshake_history(ep->nranks, ep->rank), heap->made,
	       sizeof(heap->made));
	heap->told = heap->count;
}

void heap_tell_again(struct heap *heap)
{
	heap->told = 0;
}

void heap_difference(const struct heap *heap, const struct signature *own,
		     const struct signature *peer, const struct allocation *told,
		     struct alloc_difference *difference)
{
	uint32_t newest = heap->count > peer->allocs ? heap->count : peer->allocs;
	uint32_t first = newest > HISTORY ? newest - HISTORY : 0, i;
	uint32_t digest = heap->digest;

	*difference = (struct alloc_difference) { 0 };
	if (first > own->allocs || first > peer->allocs)
		return;
	if (first < heap->count)
		digest = heap->before[first % HISTORY];
	for (i = first; i < peer->allocs; i++)
		digest = signature_crc(digest, &told[i % HISTORY], sizeof(*told));
	if (digest != peer->alloc_digest)
		return;
	for (i = first; i < own->allocs || i < peer->allocs; i++) {
		struct allocation a = { 0 }, b = { 0 };

		if (i < own->allocs)
			a = heap->made[i % HISTORY];
		if (i < peer->allocs)
			b = told[i % HISTORY];
		if (a.offset == b.offset && a.size == b.size)
			continue;
		difference->number = i + 1;
		difference->own = a;
		difference->peer = b;
		return;
	}
}

/*
 * Find the lowest gap with room for @size bytes at @align: *prev is the buffer before it.
 * Where there is none, *largest is what a single allocation could have got.
 */
static bool heap_find(const struct heap *heap, uint64_t size, uint64_t align, uint64_t *offset,
		      struct npuwin_buffer **prev, uint64_t *largest)
{
	uint64_t from = heap->start;
	struct npuwin_buffer *next = heap->first;

	*prev = NULL;
	*largest = 0;
	for (;;) {
		uint64_t to = next ? next->offset : heap->end;
		uint64_t at = (from + align - 1) & ~(align - 1);

		if (at <= to && to - at > *largest)
			*largest = to - at;
		if (at <= to && to - at >= size) {
			*offset = at;
			return true;
		}
		if (!next)
			return false;
		from = next->offset + next->size;
		*prev = next;
		next = next->next;
	}
}

int npuwin_buffer_alloc(struct npuwin_domain *domain, uint64_t size, uint64_t align,
			struct npuwin_buffer **buffer, struct npuwin_error *err)
{
	struct heap *heap = domain->heap;
	const struct endpoint *ep = domain->ep;
	struct npuwin_buffer *b, *prev;
	uint64_t offset, largest, dirty;

	if (!size)
		return npuwin_fail(err, -EINVAL, ep->rank, NPUWIN_NOBODY,
				   "buffer_alloc: size is 0");
	if (align > ALIGN_MAX || (align & (align - 1)))
		return npuwin_fail(err, -EINVAL, ep->rank, NPUWIN_NOBODY,
				   "buffer_alloc: align is %" PRIu64
				   ", not a power of two up to %d", align, ALIGN_MAX);
	if (!align)
		align = ALIGN_DEFAULT;
	else if (align < ALIGN_MIN)
		align = ALIGN_MIN;
	b = calloc(1, sizeof(*b));
	if (!b)
		return npuwin_fail(err, -ENOMEM, ep->rank, NPUWIN_NOBODY,
				   "buffer_alloc: out of memory for a buffer's record");

	pthread_mutex_lock(&domain->lock);
	if (!heap_find(heap, size, align, &offset, &prev, &largest)) {
		pthread_mutex_unlock(&domain->lock);
		free(b);
		return npuwin_fail(err, -ENOSPC, ep->rank, NPUWIN_NOBODY,
				   "buffer_alloc: no room for %" PRIu64
				   " bytes: the largest free range is %" PRIu64 " of %" PRIu64,
				   size, largest, heap->end - heap->start);
	}
	b->domain = domain;
	b->offset = offset;
	b->size = size;
	b->prev = prev;
	b->next = prev ? prev->next : heap->first;
	if (b->next)
		b->next->prev = b;
	if (prev)
		prev->next = b;
	else
		heap->first = b;
	heap_record(heap, b);
	dirty = heap->used > offset ? heap->used - offset : 0;
	if (heap->used < offset + size)
		heap->used = offset + size;
	memset(npuwin_buffer_ptr(b), 0, dirty < size ? dirty : size);
	pthread_mutex_unlock(&domain->lock);

	*buffer = b;
	return npuwin_ok(err, 0);
}

void npuwin_buffer_free(struct npuwin_buffer *buffer)
{
	struct npuwin_domain *domain;

	if (!buffer)
		return;
	domain = buffer->domain;
	pthread_mutex_lock(&domain->lock);
	plans_drop(domain, buffer);
	if (buffer->next)
		buffer->next->prev = buffer->prev;
	if (buffer->prev)
		buffer->prev->next = buffer->next;
	else
		domain->heap->first = buffer->next;
	pthread_mutex_unlock(&domain->lock);
	buffer_destroy(buffer);
}

void *npuwin_buffer_ptr(const struct npuwin_buffer *buffer)
{
	const struct endpoint *ep = buffer->domain->ep;

	return ep->window[ep->rank] + buffer->offset;
}

uint64_t npuwin_buffer_size(const struct npuwin_buffer *buffer)
{
	return buffer->size;
}
