// SPDX-License-Identifier: GPL-2.0-only
/*
 * Interrupts and events. An interrupt is a hint to look; what has happened is in memory.
 */
#include <linux/interrupt.h>

#include "pci.h"

/* ---- events ------------------------------------------------------------ */

static void npuwin_pci_event(struct npuwin_pci *npci, const struct npuwin_hw_event *event)
{
	switch (event->type) {
	case NPUWIN_HW_EV_NOTIFIED:
		if (event->id < npci->ident.max_endpoints)
			npuwin_pci_notified(npci, event->id);
		break;
	case NPUWIN_HW_EV_PEER:
	case NPUWIN_HW_EV_ABORTED:
		if (event->id < npci->ident.max_endpoints)
			npuwin_pci_ask_peers(npci, event->id);
		break;
	case NPUWIN_HW_EV_QUEUE:
		npuwin_pci_fail(npci, "it says that a queue has faulted");
		break;
	}
}

/* Events were lost: each endpoint may have missed any. */
static void npuwin_pci_events_lost(struct npuwin_pci *npci)
{
	u32 endpoint;

	for (endpoint = 0; endpoint < npci->ident.max_endpoints; endpoint++) {
		npuwin_pci_notified(npci, endpoint);
		npuwin_pci_ask_peers(npci, endpoint);
	}
}

static void npuwin_pci_events(struct npuwin_pci *npci)
{
	const struct npuwin_hw_status *status = npuwin_pci_status(npci);
	const struct npuwin_hw_event *events = npci->memory + npci->ident.events.offset;
	u32 depth = npci->ident.event_depth, tail, lost;

	mutex_lock(&npci->event_lock);
	if (npuwin_pci_failed(npci))
		goto out_unlock;
	/* Once: a device that goes on posting goes on interrupting, too. */
	tail = npuwin_pci_acquire(&status->event_tail);
	if (tail - npci->event_head > depth) {
		npuwin_pci_fail(npci, "event_tail is wrong");
		goto out_unlock;
	}
	while (npci->event_head != tail) {
		struct npuwin_hw_event event;

		memcpy(&event, &events[npci->event_head & (depth - 1)], sizeof(event));
		/* The device can write there at any time. */
		barrier();
		npci->event_head++;
		npuwin_pci_event(npci, &event);
	}
	npuwin_pci_publish(&npuwin_pci_control(npci)->event_head, npci->event_head);
	lost = npuwin_pci_acquire(&status->event_lost);
	if (lost != npci->event_lost) {
		npci->event_lost = lost;
		npuwin_pci_events_lost(npci);
	}
out_unlock:
	mutex_unlock(&npci->event_lock);
}

/* ---- interrupts -------------------------------------------------------- */

/**
 * npuwin_pci_look() - Look at everything, as if all interrupts had come.
 * @npci: the device
 */
void npuwin_pci_look(struct npuwin_pci *npci)
{
	unsigned int i;

	npuwin_pci_events(npci);
	for (i = 0; i < npci->nvectors; i++)
		npuwin_pci_harvest_all(&npci->vectors[i]);
}

/**
 * npuwin_pci_stuck() - Whether an engine stands still.
 * @npci: the device, after npuwin_pci_look()
 *
 * Return: whether there is a queue that should have got on and has not.
 */
bool npuwin_pci_stuck(struct npuwin_pci *npci)
{
	u64 steps = READ_ONCE(npuwin_pci_status(npci)->steps);
	bool works = steps != npci->steps, stuck = false;
	struct npuwin_pci_queue *pq;
	unsigned int i;

	npci->steps = steps;
	for (i = 0; i < npci->nvectors; i++) {
		mutex_lock(&npci->vectors[i].lock);
		list_for_each_entry(pq, &npci->vectors[i].queues, link)
			stuck |= npuwin_pci_queue_stuck(pq->queue, works);
		mutex_unlock(&npci->vectors[i].lock);
	}
	return stuck;
}

static irqreturn_t npuwin_pci_interrupt(int irq, void *data)
{
	struct npuwin_pci_vector *vector = data;

	npuwin_stat_add(vector->npci->ndev, NPUWIN_STAT_INTERRUPTS, 1);
	/* Here, since who waits may hold what the thread has to wait for. */
	if (!vector->number)
		wake_up_all(&vector->npci->admin_wq);
	return IRQ_WAKE_THREAD;
}

static irqreturn_t npuwin_pci_thread(int irq, void *data)
{
	struct npuwin_pci_vector *vector = data;

	if (!vector->number)
		npuwin_pci_events(vector->npci);
	npuwin_pci_harvest_all(vector);
	return IRQ_HANDLED;
}

/**
 * npuwin_pci_irq_init() - Enable interrupts.
 * @npci: the device, with what its vectors hold initialized
 *
 * Return: 0 or a negative errno.
 */
int npuwin_pci_irq_init(struct npuwin_pci *npci)
{
	struct pci_dev *pdev = npci->pdev;
	int count = pci_msix_vec_count(pdev), i, ret;

	if (count < 0)
		return count;
	count = min_t(int, count, npci->ident.vectors);
	count = pci_alloc_irq_vectors(pdev, 1, count, PCI_IRQ_MSIX);
	if (count < 0)
		return count;
	npci->nvectors = count;
	npci->ndoorbells = min_t(u32, count, npci->ident.doorbells);
	for (i = 0; i < count; i++) {
		ret = request_threaded_irq(pci_irq_vector(pdev, i), npuwin_pci_interrupt,
					   npuwin_pci_thread, 0, dev_name(&pdev->dev),
					   &npci->vectors[i]);
		if (ret)
			goto err_free;
	}
	return 0;

err_free:
	while (i--)
		free_irq(pci_irq_vector(pdev, i), &npci->vectors[i]);
	pci_free_irq_vectors(pdev);
	return ret;
}

/**
 * npuwin_pci_irq_exit() - Undo npuwin_pci_irq_init().
 * @npci: the device
 */
void npuwin_pci_irq_exit(struct npuwin_pci *npci)
{
	unsigned int i;

	for (i = 0; i < npci->nvectors; i++)
		free_irq(pci_irq_vector(npci->pdev, i), &npci->vectors[i]);
	pci_free_irq_vectors(npci->pdev);
}
