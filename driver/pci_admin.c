// SPDX-License-Identifier: GPL-2.0-only
/*
 * Telling the device what to do: reset and enable, and the admin ring.
 */
#include <linux/delay.h>
#include <linux/random.h>

#include "pci.h"

/* How long an answer may take of a device whose heart beats. */
#define NPUWIN_PCI_ANSWER_MS	10000
/* How often who waits for the device looks by himself: an interrupt may be lost. */
#define NPUWIN_PCI_LOOK_MS	20
/* How long to look before sleeping for an answer, which is mostly there at once. */
#define NPUWIN_PCI_SPIN_US	20
/* A clock read is repeated while it took longer than that, up to so often. */
#define NPUWIN_PCI_CLOCK_NS	(20 * NSEC_PER_USEC)
#define NPUWIN_PCI_CLOCK_TRIES	8
#define NPUWIN_PCI_CLOCK_AGAIN	(60LL * NSEC_PER_SEC)
/* How far the device's may get ahead until then: more than clocks drift. */
#define NPUWIN_PCI_CLOCK_AHEAD	(20 * NSEC_PER_MSEC)

/**
 * npuwin_pci_patience() - How long a heartbeat may be missing.
 * @npci: the device
 *
 * It is counted in looks at the device and not by a clock: where host and device were both
 * short of processors for that long, neither has had the time.
 *
 * Return: ms.
 */
u32 npuwin_pci_patience(const struct npuwin_pci *npci)
{
	return max(20 * npci->ident.heartbeat_ms, 2000U);
}

/**
 * npuwin_pci_present() - Whether there is still a device behind the memory.
 * @npci: the device
 *
 * Return: false where the function has been pulled out.
 */
bool npuwin_pci_present(struct npuwin_pci *npci)
{
	const struct npuwin_hw_ident *ident = npci->memory + NPUWIN_HW_IDENT;

	return READ_ONCE(ident->fabric_id) == npci->ident.fabric_id;
}

/* Who waits for the device: how often he has looked, and how often without a beat. */
struct npuwin_pci_wait {
	u32 looks;
	u32 missed;
	u64 heartbeat;
};

static void npuwin_pci_wait_begin(struct npuwin_pci *npci, struct npuwin_pci_wait *wait)
{
	wait->looks = 0;
	wait->missed = 0;
	wait->heartbeat = READ_ONCE(npuwin_pci_status(npci)->heartbeat);
}

/* Whether it is worth to go on waiting; every NPUWIN_PCI_LOOK_MS. */
static bool npuwin_pci_wait_more(struct npuwin_pci *npci, struct npuwin_pci_wait *wait)
{
	u64 heartbeat = READ_ONCE(npuwin_pci_status(npci)->heartbeat);

	if (heartbeat != wait->heartbeat) {
		wait->heartbeat = heartbeat;
		wait->missed = 0;
	}
	return npuwin_pci_present(npci) &&
	       ++wait->looks <= NPUWIN_PCI_ANSWER_MS / NPUWIN_PCI_LOOK_MS &&
	       ++wait->missed <= npuwin_pci_patience(npci) / NPUWIN_PCI_LOOK_MS;
}

/* Wait until the device has published @value in @word, or seems to be unable to. */
static bool npuwin_pci_await(struct npuwin_pci *npci, const u32 *word, u32 value)
{
	bool failed = npuwin_pci_failed(npci);
	struct npuwin_pci_wait wait;

	npuwin_pci_wait_begin(npci, &wait);
	while (!wait_event_timeout(npci->admin_wq, npuwin_pci_acquire(word) == value,
				   msecs_to_jiffies(NPUWIN_PCI_LOOK_MS))) {
		/* Where it fails meanwhile, others wait for who waits here. */
		if (npuwin_pci_failed(npci) != failed || !npuwin_pci_wait_more(npci, &wait))
			return false;
	}
	return true;
}

/* Whether the device's heart beats. */
static bool npuwin_pci_beats(struct npuwin_pci *npci)
{
	const struct npuwin_hw_status *status = npuwin_pci_status(npci);
	u64 heartbeat = READ_ONCE(status->heartbeat);
	struct npuwin_pci_wait wait;

	npuwin_pci_wait_begin(npci, &wait);
	while (READ_ONCE(status->heartbeat) == heartbeat) {
		if (!npuwin_pci_wait_more(npci, &wait))
			return false;
		msleep(NPUWIN_PCI_LOOK_MS);
	}
	return true;
}

/* Have the device forget everything. */
static int npuwin_pci_reset(struct npuwin_pci *npci, u32 *number)
{
	const struct npuwin_hw_status *status = npuwin_pci_status(npci);

	/* The device ignores the number that it has, and what it says of that may be a lie. */
	do {
		*number = get_random_u32();
	} while (!*number || *number == READ_ONCE(status->reset_ack));
	/* One that somebody has left there may be the number of this reset. */
	WRITE_ONCE(npuwin_pci_control(npci)->enable, 0);
	npuwin_pci_publish(&npuwin_pci_control(npci)->reset, *number);
	npuwin_pci_ring(npci, 0);
	return npuwin_pci_await(npci, &status->reset_ack, *number) ? 0 : -EIO;
}

/**
 * npuwin_pci_start() - Take the device into use, in whatever state it is.
 * @npci: the device, of which nobody uses anything
 *
 * Return: 0 or a negative errno.
 */
int npuwin_pci_start(struct npuwin_pci *npci)
{
	struct npuwin_hw_control *control = npuwin_pci_control(npci);
	u32 number, id;
	int ret;

	ret = npuwin_pci_reset(npci, &number);
	if (ret)
		return ret;
	WRITE_ONCE(control->admin_tail, 0);
	WRITE_ONCE(control->event_head, 0);
	for (id = 0; id < npci->ident.max_queues; id++) {
		WRITE_ONCE(npuwin_pci_post(npci, id)->sq_tail, 0);
		WRITE_ONCE(npuwin_pci_post(npci, id)->cq_head, 0);
	}
	mutex_lock(&npci->event_lock);
	npci->event_head = 0;
	npci->event_lost = 0;
	mutex_unlock(&npci->event_lock);

	npuwin_pci_publish(&control->enable, number);
	npuwin_pci_ring(npci, 0);
	if (!npuwin_pci_await(npci, &npuwin_pci_status(npci)->state, NPUWIN_HW_READY))
		return -EIO;
	/* Where it has failed because its heart stood still, this is what the reset was for. */
	if (npci->life && !npuwin_pci_beats(npci))
		return -EIO;

	mutex_lock(&npci->admin_lock);
	npci->admin_tail = 0;
	npci->life++;
	npci->missed = 0;
	spin_lock(&npci->fail_lock);
	npci->starting = true;
	WRITE_ONCE(npci->failed, false);
	spin_unlock(&npci->fail_lock);
	mutex_unlock(&npci->admin_lock);

	ret = npuwin_pci_sync_clock(npci);
	spin_lock(&npci->fail_lock);
	npci->starting = false;
	if (npci->failed)
		ret = -EIO;
	else if (ret)
		WRITE_ONCE(npci->failed, true);
	spin_unlock(&npci->fail_lock);
	return ret;
}

/**
 * npuwin_pci_stop() - Give the device back. Its peers see its ranks die, if any are left.
 * @npci: the device
 */
void npuwin_pci_stop(struct npuwin_pci *npci)
{
	u32 number;

	WRITE_ONCE(npci->failed, true);
	/* Nobody is in the middle of a command. */
	mutex_lock(&npci->admin_lock);
	if (npuwin_pci_present(npci))
		npuwin_pci_reset(npci, &number);
	mutex_unlock(&npci->admin_lock);
}

static int npuwin_pci_errno(u32 status)
{
	return status == NPUWIN_HW_E_LIMIT ? -ENOSPC : -EIO;
}

/* Wait until the request before @tail has been answered. */
static int npuwin_pci_answer(struct npuwin_pci *npci, u32 tail)
{
	const u32 *done = &npuwin_pci_status(npci)->admin_done;
	unsigned int spins;

	for (spins = 0; spins < NPUWIN_PCI_SPIN_US; spins++) {
		if (npuwin_pci_acquire(done) == tail)
			return 0;
		udelay(1);
	}
	if (npuwin_pci_await(npci, done, tail))
		return 0;
	npuwin_pci_fail(npci, "it does not answer");
	return -ENODEV;
}

/**
 * npuwin_pci_admin_locked() - Have a command executed.
 * @npci: the device, with its admin_lock held
 * @request: the command; its tag is set here
 * @response: out: the answer, or NULL
 *
 * Return: 0, -ENODEV where the device does not work, -ENOSPC where it has no room left, or
 * -EIO where it refuses, which it should not.
 */
int npuwin_pci_admin_locked(struct npuwin_pci *npci, struct npuwin_hw_request *request,
			    struct npuwin_hw_response *response)
{
	u32 slot = npci->admin_tail & (npci->ident.admin_depth - 1);
	struct npuwin_hw_request *requests =
		npci->memory + npci->ident.admin_requests.offset;
	const struct npuwin_hw_response *responses =
		npci->memory + npci->ident.admin_responses.offset;
	struct npuwin_hw_response answer;
	int ret;

	lockdep_assert_held(&npci->admin_lock);

	if (npuwin_pci_failed(npci))
		return -ENODEV;
	request->tag = npci->admin_tail;
	requests[slot] = *request;
	npci->admin_tail++;
	npuwin_pci_publish(&npuwin_pci_control(npci)->admin_tail, npci->admin_tail);
	npuwin_pci_ring(npci, 0);
	ret = npuwin_pci_answer(npci, npci->admin_tail);
	if (ret)
		return ret;

	memcpy(&answer, &responses[slot], sizeof(answer));
	/* The device can write there at any time: what counts is what has been copied. */
	barrier();
	if (answer.tag != request->tag) {
		npuwin_pci_fail(npci, "an answer has a wrong tag");
		return -ENODEV;
	}
	if (response)
		*response = answer;
	if (answer.status == NPUWIN_HW_OK)
		return 0;
	dev_warn_ratelimited(&npci->pdev->dev, "command %u is refused: status %u\n",
			     request->opcode, answer.status);
	return npuwin_pci_errno(answer.status);
}

/**
 * npuwin_pci_admin() - Have a command executed.
 * @npci: the device
 * @request: the command; its tag is set here
 * @response: out: the answer, or NULL
 *
 * Return: as npuwin_pci_admin_locked().
 */
int npuwin_pci_admin(struct npuwin_pci *npci, struct npuwin_hw_request *request,
		     struct npuwin_hw_response *response)
{
	int ret;

	mutex_lock(&npci->admin_lock);
	ret = npuwin_pci_admin_locked(npci, request, response);
	mutex_unlock(&npci->admin_lock);
	return ret;
}

/**
 * npuwin_pci_sync_clock() - Tell the device what our clock says.
 * @npci: the device
 *
 * The offset is too large by the time that the reading took, never too small, so that no
 * deadline is taken for past before its time.
 *
 * Return: 0 or a negative errno.
 */
int npuwin_pci_sync_clock(struct npuwin_pci *npci)
{
	struct npuwin_hw_request request = { .opcode = NPUWIN_HW_CMD_CLOCK };
	struct npuwin_hw_response response;
	s64 best = S64_MAX;
	u64 offset = 0;
	int i, ret;

	for (i = 0; i < NPUWIN_PCI_CLOCK_TRIES && best > NPUWIN_PCI_CLOCK_NS; i++) {
		s64 before = ktime_get_ns(), took;

		ret = npuwin_pci_admin(npci, &request, &response);
		if (ret)
			return ret;
		took = ktime_get_ns() - before;
		if (took < best) {
			best = took;
			offset = response.value[0] - (u64)before;
		}
	}
	request.flags = NPUWIN_HW_CLOCK_F_SET;
	request.clock.offset = offset;
	npci->clock_offset = offset;
	npci->clock_due = ktime_get_ns() + NPUWIN_PCI_CLOCK_AGAIN;
	return npuwin_pci_admin(npci, &request, NULL);
}

/**
 * npuwin_pci_clock_is_due() - Whether the clocks are to be compared again.
 * @npci: the device
 *
 * From time to time, since they drift; and where the device's has run ahead, since ours stood
 * still: a virtual machine may be stopped. Deadlines would be too early then.
 *
 * Return: whether they are.
 */
bool npuwin_pci_clock_is_due(const struct npuwin_pci *npci)
{
	u64 now = ktime_get_ns();
	/* Of one heartbeat ago at most, so never ahead of what it is now. */
	u64 clock = READ_ONCE(npuwin_pci_status(npci)->clock);

	return (s64)now >= npci->clock_due ||
	       (s64)(clock - npci->clock_offset - now) > NPUWIN_PCI_CLOCK_AHEAD;
}
