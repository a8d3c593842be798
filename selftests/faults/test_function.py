#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""PCI functions as the kernel and its administrator see them: which are taken and which are left
alone, how few vectors do, how their memory is mapped, reset, sleep, and a machine that stops."""

import array
import json
import os
import socket
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "lib"))

from machines import Tests, WITHIN  # noqa: E402

DEVICES = 4
MEMORY = 1 << 20

tests = Tests()


class Stranger:
    """An ivshmem-doorbell function with a memory of its own, for one machine."""

    def __init__(self, folder, name, content):
        self.path = folder / name
        self.content = content.ljust(MEMORY, b"\0")
        self.memory = os.memfd_create(name)
        os.write(self.memory, self.content)
        self.server = socket.socket(socket.AF_UNIX)
        self.server.bind(str(self.path))
        self.server.listen()
        self.machine = None
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        self.machine, _ = self.server.accept()
        for number, fds in ((0, []), (7, []), (-1, [self.memory])):
            message = number.to_bytes(8, "little", signed=True)
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
            self.machine.sendmsg([message], rights if fds else [])

    def untouched(self):
        return os.pread(self.memory, MEMORY + 1, 0) == self.content


@tests("functions that are something else are left alone")
def strangers(scene):
    emulator = scene.emulator(1)
    folder = scene.new_folder()
    others = [
        Stranger(folder, "zeroes", b""),
        Stranger(folder, "text", b"an inter-VM log\n" * 4096),
        # One of ours by its first words, and by no other.
        Stranger(folder, "half", b"NPUWIN-H" + (0x10000).to_bytes(4, "little")),
        Stranger(folder, "later", b"NPUWIN-H" + (0x20000).to_bytes(4, "little") + b"\1" * 800),
    ]
    guest = scene.guest(
        "load 1; [[ $(cat /sys/bus/pci/devices/*/device | grep -c 0x1110) == 5 ]] || fail count; "
        "[[ $(find /sys/bus/pci/drivers/npuwin/ -name '0000:*' | wc -l) == 1 ]] || fail bound; "
        "farewell",
        [*emulator.sockets, *(other.path for other in others)])
    guest.ended()
    for other in others:
        assert other.machine, f"{other.path.name}: nobody has connected"
        assert other.untouched(), f"{other.path.name}: has been written to"


@tests("one vector is enough")
def one_vector(scene):
    emulator = scene.emulator(DEVICES, "--vectors", "1")
    guest = scene.guest(f"""
        load {DEVICES}
        for device in /sys/class/npuwin/npuwin*/device; do
            [[ $(ls "$device/msi_irqs" | wc -l) == 1 ]] || fail "vectors of $device"
        done
        correct --iterations 20 --processes
        "$top/build/tests/uapi/signal" >/dev/null || fail signal
        correct
        farewell
        """, emulator.sockets, "--vectors", "1")
    guest.ended()


@tests("all mappings of the memory have one attribute")
def attribute(scene):
    emulator = scene.emulator(DEVICES)
    guest = scene.guest(f"""
        load {DEVICES}
        busy 1 'rank [0-3]' --rail direct
        list=/sys/kernel/debug/x86/pat_memtype_list
        [[ -e $list ]] || fail "no $list"
        for device in /sys/class/npuwin/npuwin*/device; do
            read -r first last _ < <(sed -n 3p "$device/resource")
            mapped=
            while read -r _ _ range kind; do
                range=${{range%]}}
                ((0x${{range#*-0x}} <= first || ${{range%-*}} > last)) && continue
                [[ ${{mapped:=$kind}} == "$kind" ]] || fail "$device: $mapped and $kind"
            done < <(grep "\\[mem" $list)
            [[ $mapped ]] || fail "$device: not mapped"
        done
        reset_device 1
        ended
        farewell
        """, emulator.sockets)
    guest.ended()


@tests("a device that works is reset")
def reset(scene):
    emulator = scene.emulator(DEVICES)
    guest = scene.guest(f"""
        load {DEVICES}
        for n in 0 1 2; do
            busy 1 'rank [0-3]'
            reset_device 1 || fail reset
            ended
            ready 1 || fail state
            correct --iterations 3
        done
        for word in 0 2 x ''; do
            echo "$word" 2>/dev/null >/sys/class/npuwin/npuwin1/reset && fail "reset: $word"
        done
        farewell
        """, emulator.sockets)
    guest.ended()


@tests("a machine with NPUs does not sleep")
def sleeps(scene):
    emulator = scene.emulator(DEVICES)
    guest = scene.guest(f"""
        load {DEVICES}
        grep -q freeze /sys/power/state || fail 'a kernel that cannot sleep'
        for n in 1 2; do
            {{ echo freeze >/sys/power/state; }} 2>/dev/null && fail slept
            dmesg | grep -q 'an NPU cannot sleep' || fail 'another reason'
            correct --iterations 3
        done
        farewell
        """, emulator.sockets)
    guest.ended()


class Monitor:
    """QEMU's own control of a machine."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(WITHIN)
        self.socket.connect(str(path))
        self.file = self.socket.makefile("rw")
        self.file.readline()
        self.do("qmp_capabilities")

    def do(self, command):
        self.file.write(json.dumps({"execute": command}) + "\n")
        self.file.flush()
        while "return" not in (answer := json.loads(self.file.readline())):
            assert "error" not in answer, answer


@tests("deadlines of a machine that was stopped")
def stopped(scene):
    emulator = scene.emulator(1)
    path = scene.new_folder() / "monitor"
    guest = scene.guest("""
        load 1
        "$top/build/tests/faults/late" || fail late
        mark before
        within told after
        # The clocks are compared twice a second where that is needed, else once a minute.
        bound=20 within "$top/build/tests/faults/late"
        farewell
        """, emulator.sockets, "--qemu", f"-qmp unix:{path},server=on,wait=off")
    guest.until("before")
    monitor = Monitor(path)
    monitor.do("stop")
    # The device's clock goes on, the machine's does not.
    time.sleep(3)
    monitor.do("cont")
    guest.tell("after")
    guest.ended()


tests.run()
