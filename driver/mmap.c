// SPDX-License-Identifier: GPL-2.0-only
/*
 * Mapping window memory, notify registers and status pages.
 *
 * All mappings of all files of the module are in one address space, that of an inode of
 * its own, and each piece of memory has a page range there that is its alone: its cookie.
 * So one call finds whatever maps a piece of memory, by whichever file, in whichever
 * process, and takes it away.
 */
#include <linux/fs_context.h>
#include <linux/huge_mm.h>
#include <linux/magic.h>
#include <linux/maple_tree.h>
#include <linux/mount.h>
#include <linux/pfn_t.h>
#include <linux/pseudo_fs.h>
#include <linux/sched/mm.h>
#include <linux/sizes.h>

#include "npuwin.h"

/*
 * Cookies: 32-bit callers give mmap2() 32 bits of page number. Nothing has cookie 0, so
 * that an offset which nobody has set maps nothing.
 */
#define NPUWIN_COOKIE_MIN	512UL
#define NPUWIN_COOKIE_MAX	(BIT_ULL(44) / PAGE_SIZE - 1)

/*
 * Read-held over faults. Not npuwin_srcu: a fault may wait for memory, and who leaves a domain
 * does not wait for that.
 */
DEFINE_STATIC_SRCU(npuwin_faults);

/* As the kernel's own default for files. */
#define NPUWIN_FAULT_AROUND	(SZ_64K / PAGE_SIZE)

#define NPUWIN_FS_MAGIC		0x4e505557

static struct maple_tree npuwin_cookies = MTREE_INIT(npuwin_cookies, MT_FLAGS_ALLOC_RANGE);
/* Protects the tree, npuwin_mem.owner, and a reference taken by way of the tree. */
static DEFINE_MUTEX(npuwin_cookies_lock);

static struct vfsmount *npuwin_mount;
static struct inode *npuwin_inode;

static int npuwin_init_fs_context(struct fs_context *fc)
{
	return init_pseudo(fc, NPUWIN_FS_MAGIC) ? 0 : -ENOMEM;
}

/* No owner: the module's own mount must not keep the module. */
static struct file_system_type npuwin_fs_type = {
	.name = "npuwin",
	.init_fs_context = npuwin_init_fs_context,
	.kill_sb = kill_anon_super,
};

/**
 * npuwin_mmap_init() - Make the inode of all mappings.
 *
 * Return: 0 or a negative errno.
 */
int npuwin_mmap_init(void)
{
	npuwin_mount = kern_mount(&npuwin_fs_type);
	if (IS_ERR(npuwin_mount))
		return PTR_ERR(npuwin_mount);
	npuwin_inode = alloc_anon_inode(npuwin_mount->mnt_sb);
	if (IS_ERR(npuwin_inode)) {
		kern_unmount(npuwin_mount);
		return PTR_ERR(npuwin_inode);
	}
	return 0;
}

/**
 * npuwin_mmap_exit() - Undo npuwin_mmap_init().
 */
void npuwin_mmap_exit(void)
{
	iput(npuwin_inode);
	kern_unmount(npuwin_mount);
	mtree_destroy(&npuwin_cookies);
}

/**
 * npuwin_mmap_setup_file() - Have a new file's mappings in the module's address space.
 * @filp: the file
 */
void npuwin_mmap_setup_file(struct file *filp)
{
	filp->f_mapping = npuwin_inode->i_mapping;
}

/**
 * npuwin_cookie_alloc() - Give memory its place in the address space.
 * @mem: the memory, with its size and alignment
 *
 * Return: 0 or -ENOMEM.
 */
int npuwin_cookie_alloc(struct npuwin_mem *mem)
{
	unsigned long step = max_t(u64, mem->align, mem->size >= PMD_SIZE ? PMD_SIZE : 0) >>
			     PAGE_SHIFT;
	unsigned long count = (mem->size >> PAGE_SHIFT) + step - 1;
	int ret;

	MA_STATE(mas, &npuwin_cookies, 0, 0);

	mutex_lock(&npuwin_cookies_lock);
	mas_lock(&mas);
	ret = mas_empty_area(&mas, NPUWIN_COOKIE_MIN, NPUWIN_COOKIE_MAX, count);
	if (!ret) {
		mem->cookie_base = mas.index;
		mem->cookie = ALIGN(mas.index, step);
		mas_set_range(&mas, mem->cookie_base, mem->cookie_base + count - 1);
		ret = mas_store_gfp(&mas, mem, GFP_KERNEL_ACCOUNT);
	}
	mas_unlock(&mas);
	mutex_unlock(&npuwin_cookies_lock);
	return ret ? -ENOMEM : 0;
}

/**
 * npuwin_cookie_free() - Take it back.
 * @mem: the memory, which nobody references
 */
void npuwin_cookie_free(struct npuwin_mem *mem)
{
	mutex_lock(&npuwin_cookies_lock);
	mtree_erase(&npuwin_cookies, mem->cookie_base);
	mutex_unlock(&npuwin_cookies_lock);
}

/**
 * npuwin_cookie_set_owner() - Say who can map some memory through /dev/npuwinN.
 * @mem: the memory; an owner holds a reference
 * @owner: the file, or NULL
 */
void npuwin_cookie_set_owner(struct npuwin_mem *mem, const struct npuwin_file *owner)
{
	mutex_lock(&npuwin_cookies_lock);
	mem->owner = owner;
	mutex_unlock(&npuwin_cookies_lock);
}

/* The memory that a file owns at a page of the address space, with a reference. */
static struct npuwin_mem *npuwin_cookie_get(const struct npuwin_file *file,
					    unsigned long pgoff)
{
	struct npuwin_mem *mem;

	mutex_lock(&npuwin_cookies_lock);
	mem = mtree_load(&npuwin_cookies, pgoff);
	if (mem && (mem->owner != file || pgoff < mem->cookie))
		mem = NULL;
	/* Where there is an owner, there is his reference. */
	if (mem)
		kref_get(&mem->ref);
	mutex_unlock(&npuwin_cookies_lock);
	return mem;
}

/**
 * npuwin_mem_zap() - Take all mappings of some memory away.
 * @mem: the memory; faults see that it is gone
 */
void npuwin_mem_zap(struct npuwin_mem *mem)
{
	unmap_mapping_range(npuwin_inode->i_mapping, (loff_t)mem->cookie << PAGE_SHIFT,
			    mem->size, 1);
}

static unsigned long npuwin_mem_pfn(const struct npuwin_mem *mem, unsigned long index)
{
	return mem->pages ? page_to_pfn(mem->pages[index]) : mem->pfn + index;
}

#ifdef CONFIG_TRANSPARENT_HUGEPAGE
/* Map a huge page whole, where the mapping covers it and is aligned as it is. */
static bool npuwin_fault_huge(struct vm_fault *vmf, const struct npuwin_mem *mem,
			      unsigned long index, vm_fault_t *ret)
{
	unsigned long start = vmf->address & PMD_MASK;
	struct vm_area_struct *vma = vmf->vma;
	struct page *page;

	if (!mem->pages || !has_transparent_hugepage() || start < vma->vm_start ||
	    vma->vm_end - start < PMD_SIZE)
		return false;
	page = mem->pages[index - ((vmf->address - start) >> PAGE_SHIFT)];
	if (!PageHead(page) || compound_order(page) != HPAGE_PMD_ORDER)
		return false;
	/*
	 * What this area maps here is always this page, so another fault can have put in
	 * nothing else. A page table that is there is left of an earlier mapping.
	 */
	if (!pmd_none(*vmf->pmd))
		return false;
	*ret = vmf_insert_pfn_pmd(vmf, page_to_pfn_t(page), vmf->flags & FAULT_FLAG_WRITE);
	return true;
}

static unsigned long npuwin_unmapped_area(struct file *filp, unsigned long addr,
					  unsigned long len, unsigned long pgoff,
					  unsigned long flags)
{
	return thp_get_unmapped_area(filp, addr, len, pgoff, flags);
}
#else
static bool npuwin_fault_huge(struct vm_fault *vmf, const struct npuwin_mem *mem,
			      unsigned long index, vm_fault_t *ret)
{
	return false;
}

static unsigned long npuwin_unmapped_area(struct file *filp, unsigned long addr,
					  unsigned long len, unsigned long pgoff,
					  unsigned long flags)
{
	return current->mm->get_unmapped_area(filp, addr, len, pgoff, flags);
}
#endif

static vm_fault_t npuwin_fault_pages(struct vm_fault *vmf, const struct npuwin_mem *mem,
				     unsigned long index)
{
	struct vm_area_struct *vma = vmf->vma;
	unsigned long address = vmf->address & PAGE_MASK;
	unsigned long end = min(vma->vm_end, (address & PMD_MASK) + PMD_SIZE);
	unsigned long i, count;
	vm_fault_t ret;

	ret = vmf_insert_pfn(vma, address, npuwin_mem_pfn(mem, index));
	count = min_t(unsigned long, (end - address) >> PAGE_SHIFT, NPUWIN_FAULT_AROUND);
	for (i = 1; i < count && ret == VM_FAULT_NOPAGE; i++) {
		/* These are a favour: without them there is one more fault. */
		if (vmf_insert_pfn(vma, address + i * PAGE_SIZE,
				   npuwin_mem_pfn(mem, index + i)) != VM_FAULT_NOPAGE)
			break;
	}
	return ret;
}

/**
 * npuwin_faults_wait() - Wait for faults that have not seen that their device is gone.
 *
 * No mapping of its memory gets another page after this.
 */
void npuwin_faults_wait(void)
{
	synchronize_srcu_expedited(&npuwin_faults);
}

static vm_fault_t npuwin_fault(struct vm_fault *vmf)
{
	struct npuwin_mem *mem = vmf->vma->vm_private_data;
	unsigned long index = vmf->pgoff - mem->cookie;
	vm_fault_t ret = VM_FAULT_SIGBUS;
	int srcu;

	srcu = srcu_read_lock(&npuwin_faults);
	if (!mem->ndev || !npuwin_device_gone(mem->ndev)) {
		if (!npuwin_fault_huge(vmf, mem, index, &ret))
			ret = npuwin_fault_pages(vmf, mem, index);
	}
	srcu_read_unlock(&npuwin_faults, srcu);
	return ret;
}

static void npuwin_vma_open(struct vm_area_struct *vma)
{
	struct npuwin_mem *mem = vma->vm_private_data;

	kref_get(&mem->ref);
}

static void npuwin_vma_close(struct vm_area_struct *vma)
{
	npuwin_mem_put(vma->vm_private_data);
}

/* For debuggers, which cannot get at the pages of such a mapping. */
static int npuwin_vma_access(struct vm_area_struct *vma, unsigned long addr, void *buf,
			     int len, int write)
{
	struct npuwin_mem *mem = vma->vm_private_data;
	u64 offset = addr - vma->vm_start + ((u64)(vma->vm_pgoff - mem->cookie) << PAGE_SHIFT);
	int srcu;

	len = min_t(u64, len, vma->vm_end - addr);
	if (write && !(vma->vm_flags & VM_WRITE))
		return -EACCES;
	srcu = srcu_read_lock(&npuwin_faults);
	if (mem->ndev && npuwin_device_gone(mem->ndev))
		len = -ENODEV;
	else if (write)
		memcpy(mem->vaddr + offset, buf, len);
	else
		memcpy(buf, mem->vaddr + offset, len);
	srcu_read_unlock(&npuwin_faults, srcu);
	return len;
}

static const struct vm_operations_struct npuwin_vm_ops = {
	.open = npuwin_vma_open,
	.close = npuwin_vma_close,
	.fault = npuwin_fault,
	.access = npuwin_vma_access,
};

/* Map pages of @mem from @index on. Takes over the reference where it succeeds. */
static int npuwin_mem_mmap(struct npuwin_mem *mem, unsigned long index,
			   struct vm_area_struct *vma)
{
	unsigned long pages = mem->size >> PAGE_SHIFT;

	if (!(vma->vm_flags & VM_SHARED) || vma->vm_flags & VM_EXEC)
		return -EINVAL;
	if (mem->kind == NPUWIN_MEM_STATUS && vma->vm_flags & VM_WRITE)
		return -EINVAL;
	if (index >= pages || vma_pages(vma) > pages - index)
		return -EINVAL;

	vma->vm_flags &= ~VM_MAYEXEC;
	if (mem->kind == NPUWIN_MEM_STATUS)
		vma->vm_flags &= ~VM_MAYWRITE;
	vma->vm_flags |= VM_PFNMAP | VM_DONTCOPY | VM_DONTEXPAND | VM_DONTDUMP;
	vma->vm_pgoff = mem->cookie + index;
	vma->vm_private_data = mem;
	vma->vm_ops = &npuwin_vm_ops;
	return 0;
}

/**
 * npuwin_device_mmap() - Map a window of this file.
 * @filp: /dev/npuwinN
 * @vma: where
 *
 * Return: 0 or a negative errno.
 */
int npuwin_device_mmap(struct file *filp, struct vm_area_struct *vma)
{
	struct npuwin_file *file = filp->private_data;
	struct npuwin_mem *mem;
	int ret;

	if (npuwin_device_gone(file->ndev))
		return -ENODEV;
	mem = npuwin_cookie_get(file, vma->vm_pgoff);
	if (!mem)
		return -EINVAL;
	ret = npuwin_mem_mmap(mem, vma->vm_pgoff - mem->cookie, vma);
	if (ret)
		npuwin_mem_put(mem);
	return ret;
}

/**
 * struct npuwin_place - What an offset of a domain's file means.
 * @kind: NPUWIN_MAP_*
 * @rank: whose
 * @index: page in it
 */
struct npuwin_place {
	u64 kind;
	u32 rank;
	unsigned long index;
};

static int npuwin_domain_place(const struct npuwin_domain *domain, unsigned long pgoff,
			       struct npuwin_place *place)
{
	u64 offset = (u64)pgoff << PAGE_SHIFT;
	u64 unit, rank = 0, rest;

	if (offset >> PAGE_SHIFT != pgoff)
		return -EINVAL;
	if (offset >= NPUWIN_MAP_WINDOW) {
		place->kind = NPUWIN_MAP_WINDOW;
		unit = domain->window_size;
	} else if (offset >= NPUWIN_MAP_NOTIFY) {
		place->kind = NPUWIN_MAP_NOTIFY;
		unit = PAGE_ALIGN(NPUWIN_REG_BYTES);
	} else {
		place->kind = NPUWIN_MAP_STATUS;
		unit = NPUWIN_MAP_NOTIFY;
	}
	rank = div64_u64_rem(offset - place->kind, unit, &rest);
	if (rank >= domain->nranks)
		return -EINVAL;
	place->rank = rank;
	place->index = rest >> PAGE_SHIFT;
	return 0;
}

/**
 * npuwin_domain_mmap() - Map a window or the registers of a rank, or the status.
 * @filp: the domain's file
 * @vma: where
 *
 * Return: 0 or a negative errno.
 */
int npuwin_domain_mmap(struct file *filp, struct vm_area_struct *vma)
{
	struct npuwin_domain *domain = filp->private_data;
	struct npuwin_mem *mem = domain->status_mem;
	struct npuwin_place place;
	int ret;

	ret = npuwin_domain_place(domain, vma->vm_pgoff, &place);
	if (ret)
		return ret;

	mutex_lock(&domain->lock);
	if (place.kind != NPUWIN_MAP_STATUS) {
		struct npuwin_member *member = &domain->members[place.rank];

		if (!npuwin_member_joined(member))
			ret = -ENOENT;
		else if (member->remote || !(member->mem->ndev->caps & NPUWIN_CAP_MAP_PEERS))
			ret = -EOPNOTSUPP;
		mem = place.kind == NPUWIN_MAP_WINDOW ? member->mem : member->notify;
	}
	if (!ret)
		kref_get(&mem->ref);
	mutex_unlock(&domain->lock);
	if (ret)
		return ret;

	ret = npuwin_mem_mmap(mem, place.index, vma);
	if (ret)
		npuwin_mem_put(mem);
	return ret;
}

/**
 * npuwin_device_unmapped_area() - Find an address that a huge page can be mapped at.
 * @filp: /dev/npuwinN
 * @addr: hint
 * @len: length
 * @pgoff: offset in pages
 * @flags: MAP_*
 *
 * Return: the address or a negative errno.
 */
unsigned long npuwin_device_unmapped_area(struct file *filp, unsigned long addr,
					  unsigned long len, unsigned long pgoff,
					  unsigned long flags)
{
	return npuwin_unmapped_area(filp, addr, len, pgoff, flags);
}

/**
 * npuwin_domain_unmapped_area() - Find an address that a huge page can be mapped at.
 * @filp: the domain's file
 * @addr: hint
 * @len: length
 * @pgoff: offset in pages
 * @flags: MAP_*
 *
 * What has to be aligned is the place in the window, which its cookie is congruent to.
 *
 * Return: the address or a negative errno.
 */
unsigned long npuwin_domain_unmapped_area(struct file *filp, unsigned long addr,
					  unsigned long len, unsigned long pgoff,
					  unsigned long flags)
{
	struct npuwin_place place;

	if (!npuwin_domain_place(filp->private_data, pgoff, &place))
		pgoff = place.index;
	return npuwin_unmapped_area(filp, addr, len, pgoff, flags);
}
