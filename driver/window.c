// SPDX-License-Identifier: GPL-2.0-only
/*
 * Window memory: where it comes from, what it is charged to, where it goes.
 */
#include <linux/overflow.h>
#include <linux/sizes.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "npuwin.h"

/* Pages of what one entry of a page middle directory maps. */
#define NPUWIN_HUGE_ORDER	(PMD_SHIFT - PAGE_SHIFT)
#define NPUWIN_HUGE_PAGES	(1UL << NPUWIN_HUGE_ORDER)

/*
 * A window may be as large as the machine: rather no window than a process killed for it.
 */
#define NPUWIN_GFP	(GFP_KERNEL_ACCOUNT | __GFP_ZERO | __GFP_NOWARN | __GFP_RETRY_MAYFAIL)

/* What some memory takes of its device's capacity. */
static u64 npuwin_mem_charge(const struct npuwin_mem *mem)
{
	return mem->kind == NPUWIN_MEM_WINDOW ? mem->size : 0;
}

static bool npuwin_charge(struct npuwin_device *ndev, u64 bytes)
{
	s64 used = atomic64_read(&ndev->memory_used);
	u64 sum;

	do {
		if (check_add_overflow((u64)used, bytes, &sum) || sum > ndev->memory_total)
			return false;
	} while (!atomic64_try_cmpxchg(&ndev->memory_used, &used, sum));
	return true;
}

/**
 * npuwin_pages_free() - Free what npuwin_pages_alloc() has allocated, all or a part.
 * @mem: the memory
 */
void npuwin_pages_free(struct npuwin_mem *mem)
{
	unsigned long count = mem->size >> PAGE_SHIFT;
	unsigned long i = 0;

	if (is_vmalloc_addr(mem->vaddr))
		vunmap(mem->vaddr);
	mem->vaddr = NULL;
	if (!mem->pages)
		return;
	while (i < count && mem->pages[i]) {
		struct page *page = mem->pages[i];
		unsigned int order = compound_order(page);

		__free_pages(page, order);
		i += 1UL << order;
		cond_resched();
	}
	kvfree(mem->pages);
	mem->pages = NULL;
}

/**
 * npuwin_pages_alloc() - Back memory with zeroed pages of the host.
 * @mem: the memory, with its size
 * @node: NUMA node, or NUMA_NO_NODE
 *
 * Huge pages where they can be had without much effort. They stay compound: what maps
 * them with a huge entry may have them pinned by get_user_pages_fast(), which cannot see
 * that the mapping is special, and a pin of a compound page is counted right.
 *
 * Return: 0, -ENOMEM, or -EINTR where the caller is being killed.
 */
int npuwin_pages_alloc(struct npuwin_mem *mem, int node)
{
	unsigned long count = mem->size >> PAGE_SHIFT;
	gfp_t huge = GFP_KERNEL_ACCOUNT | __GFP_ZERO | __GFP_COMP | __GFP_NOMEMALLOC |
		     __GFP_NOWARN | __GFP_NORETRY;
	unsigned long i = 0;
	int ret = -ENOMEM;

	mem->pages = kvcalloc(count, sizeof(*mem->pages), GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	if (!mem->pages)
		return -ENOMEM;

	while (i < count) {
		struct page *page = NULL;
		unsigned long n = 1;

		if (fatal_signal_pending(current)) {
			ret = -EINTR;
			goto err_free;
		}
		if (count - i >= NPUWIN_HUGE_PAGES && NPUWIN_HUGE_ORDER < MAX_ORDER &&
		    IS_ALIGNED(i, NPUWIN_HUGE_PAGES)) {
			page = alloc_pages_node(node, huge, NPUWIN_HUGE_ORDER);
			if (page)
				n = NPUWIN_HUGE_PAGES;
			else
				/* Look for others, but do not work for them again. */
				huge &= ~__GFP_DIRECT_RECLAIM;
		}
		if (!page)
			page = alloc_pages_node(node, NPUWIN_GFP, 0);
		if (!page)
			goto err_free;
		while (n--)
			mem->pages[i++] = page++;
		cond_resched();
	}

	if (compound_nr(mem->pages[0]) >= count)
		mem->vaddr = page_address(mem->pages[0]);
	else
		mem->vaddr = vmap(mem->pages, count, VM_MAP, PAGE_KERNEL);
	if (!mem->vaddr)
		goto err_free;
	return 0;

err_free:
	npuwin_pages_free(mem);
	return ret;
}

/**
 * npuwin_mem_create() - Allocate memory of a device.
 * @ndev: the device
 * @kind: what it is for, NPUWIN_MEM_WINDOW or NPUWIN_MEM_NOTIFY
 * @size: bytes, a multiple of PAGE_SIZE
 * @align: of its address, a power of two
 *
 * Return: the memory, with one reference, or an ERR_PTR(): -ENOSPC, -ENOMEM, -EINTR,
 * -ENODEV.
 */
struct npuwin_mem *npuwin_mem_create(struct npuwin_device *ndev, enum npuwin_mem_kind kind,
				     u64 size, u64 align)
{
	struct npuwin_mem *mem;
	int ret;

	mem = kzalloc(sizeof(*mem), GFP_KERNEL_ACCOUNT);
	if (!mem)
		return ERR_PTR(-ENOMEM);
	kref_init(&mem->ref);
	mem->ndev = ndev;
	mem->kind = kind;
	mem->size = size;
	mem->align = max_t(u64, align, PAGE_SIZE);

	ret = down_read_killable(&ndev->alive);
	if (ret)
		goto err_free;
	ret = -ENODEV;
	if (npuwin_device_gone(ndev))
		goto err_up;
	ret = -ENOSPC;
	if (!npuwin_charge(ndev, npuwin_mem_charge(mem)))
		goto err_up;
	ret = ndev->ops->mem_alloc(ndev, mem);
	if (ret)
		goto err_uncharge;
	ret = npuwin_cookie_alloc(mem);
	if (ret)
		goto err_mem;
	get_device(&ndev->dev);
	mutex_lock(&ndev->mem_lock);
	list_add(&mem->link, &ndev->mems);
	mutex_unlock(&ndev->mem_lock);
	up_read(&ndev->alive);
	return mem;

err_mem:
	ndev->ops->mem_free(mem);
err_uncharge:
	atomic64_sub(npuwin_mem_charge(mem), &ndev->memory_used);
err_up:
	up_read(&ndev->alive);
err_free:
	kfree(mem);
	return ERR_PTR(ret);
}

/**
 * npuwin_mem_create_status() - Allocate memory that belongs to no device.
 * @size: bytes, a multiple of PAGE_SIZE
 *
 * Return: the memory, read-only to userspace, with one reference, or an ERR_PTR().
 */
struct npuwin_mem *npuwin_mem_create_status(u64 size)
{
	struct npuwin_mem *mem;
	int ret;

	mem = kzalloc(sizeof(*mem), GFP_KERNEL_ACCOUNT);
	if (!mem)
		return ERR_PTR(-ENOMEM);
	kref_init(&mem->ref);
	mem->kind = NPUWIN_MEM_STATUS;
	mem->size = size;
	mem->align = PAGE_SIZE;
	ret = npuwin_pages_alloc(mem, NUMA_NO_NODE);
	if (ret)
		goto err_free;
	ret = npuwin_cookie_alloc(mem);
	if (ret)
		goto err_pages;
	return mem;

err_pages:
	npuwin_pages_free(mem);
err_free:
	kfree(mem);
	return ERR_PTR(ret);
}

static void npuwin_mem_release(struct kref *ref)
{
	struct npuwin_mem *mem = container_of(ref, struct npuwin_mem, ref);
	struct npuwin_device *ndev = mem->ndev;

	npuwin_cookie_free(mem);
	if (ndev) {
		mutex_lock(&ndev->mem_lock);
		list_del(&mem->link);
		mutex_unlock(&ndev->mem_lock);
		ndev->ops->mem_free(mem);
		atomic64_sub(npuwin_mem_charge(mem), &ndev->memory_used);
		put_device(&ndev->dev);
	} else {
		npuwin_pages_free(mem);
	}
	kfree(mem);
}

/**
 * npuwin_mem_put() - Drop a reference.
 * @mem: the memory, or NULL
 *
 * Context: may sleep.
 */
void npuwin_mem_put(struct npuwin_mem *mem)
{
	if (mem)
		kref_put(&mem->ref, npuwin_mem_release);
}

/**
 * npuwin_ioctl_window_alloc() - NPUWIN_IOC_WINDOW_ALLOC.
 * @ucmd: the call
 *
 * Return: 0 or a negative errno.
 */
int npuwin_ioctl_window_alloc(struct npuwin_ucmd *ucmd)
{
	struct npuwin_ioc_window_alloc *cmd = ucmd->cmd;
	struct npuwin_file *file = ucmd->file;
	u64 unit = file->ndev->window_align;
	struct npuwin_window *window;
	u64 size;
	int ret;

	if (cmd->flags || cmd->reserved || !cmd->length)
		return -EINVAL;
	if (cmd->align && (!is_power_of_2(cmd->align) || cmd->align > SZ_2M))
		return -EINVAL;
	if (check_add_overflow(cmd->length, unit - 1, &size))
		return -EOVERFLOW;
	size -= size % unit;
	/* What a kernel address and mmap() can express. */
	if (size > LONG_MAX)
		return -EOVERFLOW;

	window = kzalloc(sizeof(*window), GFP_KERNEL_ACCOUNT);
	if (!window)
		return -ENOMEM;
	ret = npuwin_obj_reserve(file, &window->obj, NPUWIN_OBJ_WINDOW, NPUWIN_MAX_WINDOWS);
	if (ret)
		goto err_free;
	window->mem = npuwin_mem_create(file->ndev, NPUWIN_MEM_WINDOW, size,
					max(cmd->align, unit));
	if (IS_ERR(window->mem)) {
		ret = PTR_ERR(window->mem);
		goto err_remove;
	}
	cmd->window_id = window->obj.id;
	cmd->map_offset = (u64)window->mem->cookie << PAGE_SHIFT;
	ret = npuwin_respond(ucmd);
	if (ret)
		goto err_put;

	mutex_lock(&file->lock);
	/* The device may have gone meanwhile; the file's release will find the window. */
	npuwin_cookie_set_owner(window->mem, file);
	npuwin_obj_finalize(file, &window->obj);
	mutex_unlock(&file->lock);
	return 0;

err_put:
	npuwin_mem_put(window->mem);
err_remove:
	npuwin_obj_remove(file, &window->obj);
err_free:
	kfree(window);
	return ret;
}

/**
 * npuwin_window_destroy() - A window that is in no domain goes.
 * @file: whose, locked
 * @window: the window
 */
void npuwin_window_destroy(struct npuwin_file *file, struct npuwin_window *window)
{
	lockdep_assert_held(&file->lock);

	npuwin_obj_remove(file, &window->obj);
	npuwin_cookie_set_owner(window->mem, NULL);
	npuwin_mem_put(window->mem);
	kfree(window);
}

/**
 * npuwin_ioctl_destroy() - NPUWIN_IOC_DESTROY.
 * @ucmd: the call
 *
 * Return: 0 or a negative errno.
 */
int npuwin_ioctl_destroy(struct npuwin_ucmd *ucmd)
{
	struct npuwin_ioc_destroy *cmd = ucmd->cmd;
	struct npuwin_file *file = ucmd->file;
	struct npuwin_window *window;
	struct npuwin_obj *obj;
	int ret = 0;

	mutex_lock(&file->lock);
	obj = xa_load(&file->objs, cmd->id);
	if (!obj) {
		ret = -ENOENT;
	} else if (obj->type == NPUWIN_OBJ_QUEUE) {
		npuwin_queue_destroy(container_of(obj, struct npuwin_queue, obj));
	} else {
		window = container_of(obj, struct npuwin_window, obj);
		if (window->member)
			ret = -EBUSY;
		else
			npuwin_window_destroy(file, window);
	}
	mutex_unlock(&file->lock);
	return ret;
}
