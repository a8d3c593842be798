// SPDX-License-Identifier: GPL-2.0-only
/*
 * What lies where in BAR2: windows, rings and notify registers.
 */
#include <linux/log2.h>
#include <linux/sizes.h>

#include "pci.h"

/* Bytes that are zeroed before anything else is looked at. */
#define NPUWIN_PCI_ZERO_BYTES	SZ_1M

static struct gen_pool *npuwin_pci_pool(struct npuwin_pci *npci,
					const struct npuwin_hw_region *region, u32 unit)
{
	int node = dev_to_node(&npci->pdev->dev);
	struct gen_pool *pool = gen_pool_create(ilog2(unit), node);

	if (!pool)
		return NULL;
	if (gen_pool_add(pool, (unsigned long)npci->memory + region->offset,
			 round_down(region->size, unit), node)) {
		gen_pool_destroy(pool);
		return NULL;
	}
	return pool;
}

/**
 * npuwin_pci_memory_init() - Make the allocators.
 * @npci: the device
 *
 * Return: 0 or -ENOMEM; what there is goes with npuwin_pci_memory_exit() in any case.
 */
int npuwin_pci_memory_init(struct npuwin_pci *npci)
{
	const struct npuwin_hw_ident *ident = &npci->ident;
	size_t table = ident->max_ranks * sizeof(struct npuwin_hw_peer);

	npci->windows = npuwin_pci_pool(npci, &ident->windows,
					max_t(u32, ident->window_align, PAGE_SIZE));
	npci->rings = npuwin_pci_pool(npci, &ident->rings, NPUWIN_HW_RING_ALIGN);
	npci->endpoints = kvcalloc(ident->max_endpoints, sizeof(*npci->endpoints), GFP_KERNEL);
	if (!npci->windows || !npci->rings || !npci->endpoints)
		return -ENOMEM;
	npci->scratch = (void *)gen_pool_alloc(npci->rings, table);
	return npci->scratch ? 0 : -ENOMEM;
}

/**
 * npuwin_pci_memory_exit() - Undo npuwin_pci_memory_init().
 * @npci: the device, of whose memory nothing is in use
 */
void npuwin_pci_memory_exit(struct npuwin_pci *npci)
{
	if (npci->scratch)
		gen_pool_free(npci->rings, (unsigned long)npci->scratch,
			      npci->ident.max_ranks * sizeof(struct npuwin_hw_peer));
	if (npci->rings)
		gen_pool_destroy(npci->rings);
	if (npci->windows)
		gen_pool_destroy(npci->windows);
	kvfree(npci->endpoints);
	ida_destroy(&npci->endpoint_ids);
	ida_destroy(&npci->queue_ids);
}

static int npuwin_pci_zero(struct npuwin_mem *mem)
{
	u64 done;

	for (done = 0; done < mem->size; done += NPUWIN_PCI_ZERO_BYTES) {
		if (fatal_signal_pending(current))
			return -EINTR;
		memset(mem->vaddr + done, 0, min_t(u64, mem->size - done,
						   NPUWIN_PCI_ZERO_BYTES));
		cond_resched();
	}
	return 0;
}

static int npuwin_pci_window_alloc(struct npuwin_pci *npci, struct npuwin_mem *mem)
{
	struct genpool_data_align data = { .align = mem->align };
	int ret;

	mem->vaddr = (void *)gen_pool_alloc_algo(npci->windows, mem->size,
						 gen_pool_first_fit_align, &data);
	if (!mem->vaddr)
		return -ENOSPC;
	ret = npuwin_pci_zero(mem);
	if (ret)
		gen_pool_free(npci->windows, (unsigned long)mem->vaddr, mem->size);
	return ret;
}

static int npuwin_pci_notify_alloc(struct npuwin_pci *npci, struct npuwin_mem *mem)
{
	int id = ida_alloc_max(&npci->endpoint_ids, npci->ident.max_endpoints - 1, GFP_KERNEL);

	if (id < 0)
		return id;
	/* The device zeroes them when the endpoint is bound. */
	mem->vaddr = npci->memory + npci->ident.notify.offset + (u64)id * NPUWIN_REG_BYTES;
	return 0;
}

/**
 * npuwin_pci_mem_alloc() - Place a window or a rank's notify registers.
 * @ndev: the device
 * @mem: what is to be placed
 *
 * Return: 0, -ENOSPC, -ENOMEM, -EINTR, or -ENODEV where the device does not work.
 */
int npuwin_pci_mem_alloc(struct npuwin_device *ndev, struct npuwin_mem *mem)
{
	struct npuwin_pci *npci = npuwin_pci_of(ndev);
	int ret;

	if (npuwin_pci_failed(npci))
		return -ENODEV;
	if (mem->kind == NPUWIN_MEM_NOTIFY)
		ret = npuwin_pci_notify_alloc(npci, mem);
	else
		ret = npuwin_pci_window_alloc(npci, mem);
	if (!ret)
		mem->pfn = npci->pfn + ((mem->vaddr - npci->memory) >> PAGE_SHIFT);
	return ret;
}

/**
 * npuwin_pci_mem_free() - Undo npuwin_pci_mem_alloc().
 * @mem: what was placed
 */
void npuwin_pci_mem_free(struct npuwin_mem *mem)
{
	struct npuwin_pci *npci = npuwin_pci_of(mem->ndev);
	u64 offset = ((u64)mem->pfn - npci->pfn) << PAGE_SHIFT;

	if (mem->kind == NPUWIN_MEM_NOTIFY)
		ida_free(&npci->endpoint_ids,
			 (offset - npci->ident.notify.offset) / NPUWIN_REG_BYTES);
	else
		gen_pool_free(npci->windows, (unsigned long)mem->vaddr, mem->size);
}
