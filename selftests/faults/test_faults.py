#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Devices that do not do what they must, while ranks exchange: for each fault that
npuwin-emu can make, a run in a guest ends in a correct result or in an error that says what
has happened, and after what helps against the fault the next one is correct."""

import mmap
import os
import random
import struct
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "lib"))

from machines import Tests  # noqa: E402

DEVICES = 4

tests = Tests()


def faulty(scene, rules, script):
    """Runs a script against devices with faults, which must have happened."""
    options = [word for rule in rules for word in ("--fault", rule)]
    emulator = scene.emulator(DEVICES, *options)
    guest = scene.guest(f"load {DEVICES}\n{script}\nfarewell", emulator.sockets)
    guest.ended()
    for rule in rules:
        assert emulator.hits(rule.partition(":")[0]), f"no {rule}"


def add(name, rules, script):
    tests.add(name, faulty, rules, script)


# Interrupts are hints.
add("interrupts that are lost now and then", ["drop-irq:percent=30"], "correct --iterations 30")
add("all interrupts are lost", ["drop-irq"], "correct --iterations 3")
add("interrupts that are late", ["delay-irq:percent=50,ms=30"], "correct --iterations 30")
add("interrupts that change places", ["reorder-irq:percent=50"], "correct --iterations 30")

# What lasts for less than is allowed is no fault.
add("an engine that pauses", ["stall:dev=1,nth=100,ms=500"], "correct --iterations 30")
add("a heart that pauses", ["no-heartbeat:dev=1,every=60,ms=1000"],
    "while ((SECONDS < 10)); do correct --iterations 30; done; ready 1 || fail state; "
    "quiet_dmesg 'device has failed' || fail 'it has been taken for dead'")

# A descriptor fails, and nothing else.
for _status, _pattern in ((12, "rank 2"), (4, "rank 2")):
    add(f"a descriptor that fails with status {_status}",
        [f"fail:dev=2,nth=100,status={_status}"], f"broken '{_pattern}'; correct")

# The driver resets the device by itself.
RECOVERS = "within ready {0}; correct --iterations 3"
add("an engine that stands still", ["stall:dev=1,nth=100"],
    "broken 'rank 1' --timeout 3; " + RECOVERS.format(1))
add("a completion that is garbage", ["corrupt:dev=3,nth=50"],
    "broken 'rank 3'; " + RECOVERS.format(3))
add("a device that goes to FAULT", ["fault:dev=0,nth=100"],
    "broken 'rank 0'; " + RECOVERS.format(0))
add("a heart that stands still for a while", ["no-heartbeat:dev=1,every=400,ms=3000"],
    "broken 'rank 1|npuwin1'; within ready 1; within exchange --iterations 3")

# Nothing helps.
add("a heart that stands still", ["no-heartbeat:dev=1,nth=200"],
    "broken 'rank 1|npuwin1'; within failed 1; "
    "reset_device 1 && fail 'a dead device takes a reset'; "
    "broken '/dev/npuwin1 gives no window .* has failed or is gone'; failed 1; "
    "$top/build/bin/npuwin doctor | grep 'MISSING.*npuwin1/state is' || fail 'doctor'")
add("devices that die", ["die:dev=2,nth=100"],
    "broken 'rank [0-3]'; for n in 0 1 2 3; do within failed $n; done; "
    "reset_device 2 && fail 'a dead device takes a reset'; broken 'npuwin'")


# Whatever it says, for as long as NPUWIN_TEST_SECONDS: nothing is to be seen of it but errors.
SECONDS = int(os.environ.get("NPUWIN_TEST_SECONDS", 20))
add("a device that lies all the time",
    ["corrupt:percent=10", "drop-irq:percent=10", "delay-irq:percent=10,ms=20",
     "fail:percent=1,status=7", "fault:every=100"],
    f"""
    timeout -k 5 {SECONDS + 60} "$top/build/tests/uapi/stress" >/dev/null &
    stress=$!
    end=$((SECONDS + {SECONDS}))
    while ((SECONDS < end)); do
        exchange --iterations 100 --processes
    done
    wait $stress
    """)


# Identification, where in it the regions begin, and status: see hardware.rst.
MAGIC, REGIONS = b"NPUWIN-H", 0xa0
STATUS = (0x400, 0x100)
RESET_ACK = 0x408


def memories(emulator):
    """The memory of each device of an emulator."""
    for fd in Path(f"/proc/{emulator.process.pid}/fd").iterdir():
        if os.readlink(fd).startswith("/memfd:"):
            with open(fd, "r+b") as file:
                memory = mmap.mmap(file.fileno(), 0)
            if memory[:8] == MAGIC:
                yield memory


@tests("a device that lies about its last reset")
def last_reset(scene):
    emulator = scene.emulator(1)
    guest = scene.guest("""
        load 1
        for n in 1 2 3; do
            mark loaded$n
            within told lied$n
            reset_device 0 || fail 'the device does not come back'
        done
        ready 0 || fail state
        farewell
        """, emulator.sockets)
    for number, lie in enumerate((-1, 1, 0), 1):
        guest.until(f"loaded{number}")
        memory, = memories(emulator)
        ack, = struct.unpack_from("<I", memory, RESET_ACK)
        struct.pack_into("<I", memory, RESET_ACK, ack + lie & 0xffffffff if lie else 0)
        guest.tell(f"lied{number}")
    guest.ended()


class Scribbler:
    """Writes garbage over what the devices of an emulator write, until it is stopped."""

    # Responses, events, states of queues and of endpoints, rings.
    WRITTEN = (1, 2, 4, 6, 8)

    def __init__(self, emulator, seed):
        self.random = random.Random(seed)
        self.memories = [(memory, self.places(memory)) for memory in memories(emulator)]
        self.going = True
        self.thread = threading.Thread(target=self.scribble, daemon=True)
        self.thread.start()

    def places(self, memory):
        regions = [struct.unpack_from("<QQ", memory, REGIONS + 16 * n) for n in range(10)]
        # What is in use of a region is mostly at its begin.
        return [STATUS] + [(offset, min(size, 4096))
                           for offset, size in (regions[n] for n in self.WRITTEN)]

    def scribble(self):
        values = (0, 1, 2, 0xffffffff, 0x80000000)
        while self.going:
            memory, places = self.random.choice(self.memories)
            offset, size = self.random.choice(places)
            at = offset + 4 * self.random.randrange(size // 4)
            value = self.random.choice((*values, self.random.getrandbits(32),
                                        (struct.unpack_from("<I", memory, at)[0] + 1) & 0xffffffff))
            struct.pack_into("<I", memory, at, value)
            time.sleep(0.001)

    def stop(self):
        self.going = False
        self.thread.join()


@tests("devices whose every word may lie")
def words(scene):
    emulator = scene.emulator(DEVICES)
    guest = scene.guest(f"""
        load {DEVICES}
        correct
        mark loaded
        "$top/build/tests/uapi/stress" >/dev/null &
        while ! told end; do
            exchange --iterations 100 --processes
            exchange --iterations 100 --rail direct
        done
        wait
        dmesg | grep -q 'device has failed' || fail 'no lie was found out'
        for n in 0 1 2 3; do
            reset_device $n || fail "device $n does not come back"
        done
        correct --iterations 3
        farewell
        """, emulator.sockets)
    guest.until("loaded")
    scribbler = Scribbler(emulator, 1)
    assert len(scribbler.memories) == DEVICES
    time.sleep(SECONDS)
    scribbler.stop()
    guest.tell("end")
    guest.ended(600)


tests.run()
