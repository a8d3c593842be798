# SPDX-License-Identifier: MIT
"""Devices and guests as processes that a test starts, disturbs and ends.

A guest runs a script; what it prints comes line by line. A line "@NAME" tells the test how
far it is, so that what the test does meanwhile is done at the right time.
"""

import json
import os
import pathlib
import queue
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time

TOP = pathlib.Path(__file__).resolve().parents[3]
EMU = TOP / "build/bin/npuwin-emu"
MODULE = TOP / "driver/npuwin.ko"
SKIP_STATUS = 4

# A bound for what takes a second or two on an idle machine.
WITHIN = 180


# Operands of an exchange: each rank has so many rows for each, of so many bytes.
RANKS, ROWS, ROW_BYTES = 4, 8, 256


def write_npy(path, descr, shape, data):
    header = repr({"descr": descr, "fortran_order": False, "shape": shape}).encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data)


def write_operands(folder):
    size = RANKS * RANKS * ROWS * ROW_BYTES
    write_npy(folder / "in.npy", "|u1", (RANKS, RANKS * ROWS, ROW_BYTES),
              bytes(n * 131 >> 3 & 0xff for n in range(size)))
    counts = [1 + (src + dst) % ROWS for src in range(RANKS) for dst in range(RANKS)]
    write_npy(folder / "counts.npy", "<i4", (RANKS, RANKS),
              struct.pack(f"<{len(counts)}i", *counts))


def until(condition, what, within=WITHIN):
    """Polls for a state that comes by itself."""
    end = time.monotonic() + within
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end, f"not within {within} s: {what}"
        time.sleep(0.05)


class Lines:
    """Lines of a process's output, kept and waited for."""

    def __init__(self, stream):
        self.seen = []
        self.queue = queue.Queue()
        self.thread = threading.Thread(target=self.read, args=(stream,), daemon=True)
        self.thread.start()

    def read(self, stream):
        with stream:
            for line in stream:
                self.queue.put(line.rstrip("\r\n"))
        self.queue.put(None)

    def next(self, within):
        """The next line; None at the end."""
        try:
            line = self.queue.get(timeout=within)
        except queue.Empty:
            raise AssertionError(f"no line within {within} s after: {self.tail()}") from None
        if line is None:
            self.queue.put(None)
        else:
            self.seen.append(line)
        return line

    def until(self, wanted, within=WITHIN):
        """Returns the lines before the one that is wanted."""
        end, before = time.monotonic() + within, []
        while True:
            line = self.next(max(0, end - time.monotonic()))
            assert line is not None, f"ended without {wanted}: {self.tail()}"
            if line == wanted:
                return before
            before.append(line)

    def rest(self, within):
        end = time.monotonic() + within
        while self.next(max(0, end - time.monotonic())) is not None:
            pass

    def tail(self):
        return "\n" + "\n".join(self.seen[-60:])


class Emulator:
    """A running npuwin-emu, and its devices' sockets."""

    def __init__(self, folder, devices, *options):
        self.log = folder / "log"
        self.sockets = [folder / f"npu{n}.sock" for n in range(devices)]
        self.command = [EMU, "--socket-dir", folder, "--devices", str(devices),
                        "--stats=json", "--log", *options]
        self.start()

    def start(self):
        with open(self.log, "a", encoding="ascii") as log:
            self.process = subprocess.Popen(self.command, text=True, stdin=subprocess.DEVNULL,
                                            stdout=subprocess.PIPE, stderr=log)
        self.lines = Lines(self.process.stdout)
        self.lines.until("npuwin-emu: ready")

    def hits(self, fault):
        """How often a fault has happened."""
        return self.log.read_text(encoding="ascii").count(f"fault: {fault}\n")

    def stats(self):
        """Counters, by device."""
        self.process.send_signal(signal.SIGUSR1)
        return json.loads(self.lines.next(WITHIN))["devices"]

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        """Ends it in order; its sockets go."""
        if self.process.poll() is None:
            self.process.terminate()
        return self.process.wait(WITHIN)


class Guest:
    """A guest that runs a script with the functions of guest.sh."""

    def __init__(self, folder, script, sockets, *options):
        self.folder = folder
        self.pid = folder / "pid"
        write_operands(folder)
        command = [TOP / "scripts/guest", "run", "--mem", "1G", "--timeout", "600",
                   "--pid", self.pid, "--console", folder / "console.log",
                   "--share", folder]
        for path in sockets:
            command += ["--npu", path]
        command += options
        command += ["--", "bash", "-c", '. "$0"; cd "$1"; ' + script,
                    TOP / "selftests/faults/guest.sh", folder]
        self.process = subprocess.Popen(command, text=True, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                        start_new_session=True)
        self.lines = Lines(self.process.stdout)

    def until(self, mark, within=WITHIN):
        return self.lines.until("@" + mark, within)

    def tell(self, name):
        (self.folder / f"told.{name}").touch()

    def ended(self, within=WITHIN):
        """It ends by itself, and has found everything as it must be."""
        self.lines.rest(within)
        status = self.process.wait(WITHIN)
        assert status == 0, f"exit status {status}: {self.lines.tail()}"

    def killed(self):
        """Ends it as a power failure does."""
        os.kill(int(self.pid.read_text(encoding="ascii")), signal.SIGKILL)
        self.lines.rest(WITHIN)
        assert self.process.wait(WITHIN) == 125

    def stop(self):
        """Ends what is left of it, whatever it does."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()


class Scene:
    """Folder, emulators and guests of one test."""

    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="npuwin-", dir="/tmp"))
        self.parts = []
        self.count = 0

    def new_folder(self):
        self.count += 1
        path = self.folder / str(self.count)
        path.mkdir()
        return path

    def emulator(self, devices, *options):
        self.parts.append(Emulator(self.new_folder(), devices, *options))
        return self.parts[-1]

    def guest(self, script, sockets, *options):
        self.parts.append(Guest(self.new_folder(), script, sockets, *options))
        return self.parts[-1]

    def close(self):
        # Guests first: those that come later.
        for part in reversed(self.parts):
            part.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


class Tests:
    """A list of tests, run in order; or those whose names have a word of the command line."""

    def __init__(self):
        self.tests = []

    def __call__(self, name, *args):
        def decorate(function):
            self.add(name, function, *args)
            return function
        return decorate

    def add(self, name, function, *args):
        self.tests.append((name, function, args))

    def run(self):
        for path in (EMU, MODULE):
            if not path.exists():
                print(f"1..0 # SKIP {path.relative_to(TOP)} is not built")
                sys.exit(SKIP_STATUS)
        words = sys.argv[1:]
        tests = [test for test in self.tests
                 if not words or any(word in test[0] for word in words)]
        print(f"TAP version 13\n1..{len(tests)}", flush=True)
        failed = False
        for number, (name, function, args) in enumerate(tests, 1):
            failed |= self.run_one(number, name, function, args)
        sys.exit(1 if failed else 0)

    @staticmethod
    def run_one(number, name, function, args):
        scene, start = Scene(), time.monotonic()
        try:
            function(scene, *args)
        except Exception as why:  # pylint: disable=broad-except
            for line in f"{type(why).__name__}: {why}".splitlines():
                print(f"# {line}")
            print(f"not ok {number} - {name}", flush=True)
            return True
        finally:
            scene.close()
        print(f"# {time.monotonic() - start:.1f} s")
        print(f"ok {number} - {name}", flush=True)
        return False
