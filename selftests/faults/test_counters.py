#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""What an exchange costs the devices, by their own counters and by the driver's: of a rank, one
SUBMIT, one doorbell, and no more than two interrupts."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "lib"))

from machines import Tests  # noqa: E402

DEVICES = 4
CALLS = 100

tests = Tests()


@tests("what an exchange on the host rail costs a rank")
def costs(scene):
    emulator = scene.emulator(DEVICES)
    guest = scene.guest(f"""
        load {DEVICES}
        "$top/build/tests/faults/calls" {CALLS} told.go told.end || fail calls
        farewell
        """, emulator.sockets)
    guest.until("before")
    before = emulator.stats()
    guest.tell("go")
    counted = [[int(word) for word in line.split()] for line in guest.until("after")]
    after = emulator.stats()
    guest.tell("end")
    guest.ended()

    assert [line[0] for line in counted] == list(range(DEVICES)), counted
    for device, submits, interrupts, descriptors in counted:
        grown = {name: after[device][name] - before[device][name] for name in after[device]}
        # Each request rings once and signals once at most: the clock is compared now and then.
        rung = grown["doorbells"] - grown["requests"]
        signalled = grown["interrupts"] - grown["requests"]
        said = f"device {device}: driver: {submits} SUBMITs, {interrupts} interrupts; " \
            f"device: {grown}"
        print(f"# {said}")
        assert submits == CALLS and rung == CALLS, said
        assert signalled <= 2 * CALLS, said
        assert interrupts <= 2 * CALLS + grown["requests"], said
        assert grown["descriptors"] == descriptors, said


tests.run()
