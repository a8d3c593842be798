#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Devices, emulators and guests that go while ranks exchange, and come back.

What becomes of a process that uses a device which goes is for selftests/uapi/unplug.c. A function
that QEMU itself takes away is in neither: QEMU 7.2 does not survive that without KVM, since it
goes on polling eventfds that it has closed.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "lib"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools/lib"))

from machines import Tests, until  # noqa: E402
from ports import free_ports  # noqa: E402

DEVICES = 4
GUEST_PORT = 7000

tests = Tests()


def goes_and_comes(scene, goes, comes):
    """Take the device of rank 2, $name, away from a busy guest, and give it back."""
    emulator = scene.emulator(DEVICES)
    guest = scene.guest(f"""
        load 4
        busy 2 'rank 2'
        name=$(name_of 2)
        {goes} || fail 'it does not go'
        ended
        within device_count 3
        {comes} || fail 'it does not come'
        within device_count 4
        correct
        farewell
        """, emulator.sockets)
    guest.ended()


@tests("a device is unbound from the driver, and bound again")
def unbound(scene):
    goes_and_comes(scene, 'echo "$name" >/sys/bus/pci/drivers/npuwin/unbind',
                   'echo "$name" >/sys/bus/pci/drivers/npuwin/bind')


@tests("a function is removed, and found again")
def removed(scene):
    goes_and_comes(scene, 'echo 1 >"/sys/bus/pci/devices/$name/remove"',
                   'echo 1 >/sys/bus/pci/rescan')


# The machine connects once: for it, devices that have lost their emulator stay as they are.
@tests("the emulator is killed, and another one takes its place")
def emulator_killed(scene):
    emulator = scene.emulator(DEVICES)
    guest = scene.guest("""
        load 4
        busy 2 'rank [0-3]'
        mark busy
        ended
        for n in 0 1 2 3; do
            within failed $n
        done
        broken npuwin
        for n in 0 1 2 3; do
            reset_device $n && fail 'a device without an emulator takes a reset'
        done
        farewell
        """, emulator.sockets)
    guest.until("busy")
    emulator.kill()
    emulator.start()
    guest.ended()
    guest = scene.guest("load 4; correct; farewell", emulator.sockets)
    guest.ended()


@tests("the emulator is killed, and the module goes at once")
def emulator_killed_module_goes(scene):
    emulator = scene.emulator(DEVICES)
    guest = scene.guest("""
        load 4
        busy 2 'rank [0-3]'
        mark busy
        ended
        farewell
        """, emulator.sockets)
    guest.until("busy")
    emulator.kill()
    guest.ended()


@tests("a guest is killed and comes back while another goes on")
def guest_killed(scene):
    emulator = scene.emulator(2 * DEVICES)
    stays = scene.guest("""
        load 4
        correct
        mark busy
        until told enough; do
            correct --iterations 20
        done
        farewell
        """, emulator.sockets[:DEVICES])
    stays.until("busy")
    victim = scene.guest("load 4; busy 2 never; mark busy; ended", emulator.sockets[DEVICES:])
    victim.until("busy")
    victim.killed()
    victim = scene.guest("load 4; correct; farewell", emulator.sockets[DEVICES:])
    victim.ended()
    stays.tell("enough")
    stays.ended()


def meet(who, number, port):
    """Options by which guest WHO brings two ranks of four."""
    address = f"10.0.2.2:{port + number}" if who else f"0.0.0.0:{GUEST_PORT + number}"
    return f"--bootstrap tcp:{address} --secret-file secret --local {'2-3' if who else '0-1'}"


@tests("a guest is killed, its peers are told, and it comes back to them")
def peer_killed(scene):
    emulator = scene.emulator(DEVICES)
    # The first guest listens; the host hands on what comes from the second one.
    port = free_ports(2)
    net = ["--net"]
    for number in range(2):
        net += ["--forward", f"{port + number}:{GUEST_PORT + number}"]

    def guest(who, script):
        options = net if not who else net[:1]
        one = scene.guest("within told go; " + script,
                          emulator.sockets[2 * who:2 * who + 2], *options)
        (one.folder / "secret").write_bytes(b"0123456789abcdef" * 2)
        one.tell("go")
        return one

    stays = guest(0, f"""
        load 2
        busy 1 'rank [23] is dead' {meet(0, 0, port)}
        mark busy
        ended
        mark told
        within told back
        correct {meet(0, 1, port)}
        farewell
        """)
    victim = guest(1, f"load 2; busy 1 never {meet(1, 0, port)}; mark busy; ended")
    victim.until("busy")
    stays.until("busy")
    victim.killed()
    stays.until("told")
    victim = guest(1, f"load 2; mark back; correct {meet(1, 1, port)}; farewell")
    victim.until("back")
    stays.tell("back")
    victim.ended()
    stays.ended()


@tests("a guest is killed, and the next one finds nothing of it")
def guest_replaced(scene):
    emulator = scene.emulator(DEVICES)
    for _ in range(3):
        guest = scene.guest("load 4; correct; busy 1 never; mark busy; ended",
                            emulator.sockets)
        guest.until("busy")
        guest.killed()
    guest = scene.guest("load 4; correct; farewell", emulator.sockets)
    guest.ended()
    until(lambda: all(device["hosts"] == 4 for device in emulator.stats()), "four hosts")


@tests("the module is loaded again and again, on devices in any state")
def loaded_again(scene):
    emulator = scene.emulator(DEVICES)
    guest = scene.guest("""
        for round in 1 2 3 4 5; do
            load 4
            correct
            unload_module || fail unload
        done
        quiet_dmesg 'has failed' || fail dmesg
        """, emulator.sockets)
    guest.ended()


tests.run()
