#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Two hosts on one fabric: two guests under QEMU, with devices of one npuwin-emu.

usage: selftests/hosts/test_hosts.py

Each guest has a kernel, a driver and two devices of its own. The ranks meet over TCP. What the
guests have written is compared here. Needs driver/npuwin.ko and build/bin.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "selftests/tools/lib"))

from ports import free_ports  # noqa: E402
from tap import NPUWIN, exchange, np, random_array  # noqa: E402

SKIP_STATUS = 4
GUEST_SECONDS = 280
# At the first guest, rank 0's; the second one sees the host, which hands connections on.
FIRST, HOST = "0.0.0.0", "10.0.2.2"
GUEST_PORT = 7000
# Each of them meets at a port of its own.
MAX_STEPS = 16


class Step:
    """Commands of both hosts that run together, and what is to be seen of them."""

    def __init__(self, name, commands, check):
        self.name = name
        self.commands = commands
        self.check = check


class Run:
    """The files of a run; DIRECTORY is the same folder in both guests."""

    def __init__(self, directory):
        self.directory = directory
        self.rng = np.random.default_rng(1)
        self.port = free_ports(MAX_STEPS)
        self.steps = []
        for name, data in (("secret", os.urandom(32)), ("other", os.urandom(32))):
            (directory / name).write_bytes(data)

    def meet(self, who, local, secret="secret"):
        """The options by which host WHO meets the other one in this step."""
        number = len(self.steps)
        address = f"{FIRST}:{GUEST_PORT + number}" if not who else f"{HOST}:{self.port + number}"
        return f"--bootstrap tcp:{address} --secret-file {secret} --local {local}"

    def a2av(self, ranks, local, options="", secrets=("secret", "secret")):
        """Two commands of an exchange, and its arrays."""
        number = len(self.steps)
        array = random_array(self.rng, (ranks, ranks * 6, 33), "f4")
        counts = self.rng.integers(0, 7, size=(ranks, ranks)).astype(np.int32)
        np.save(self.directory / f"in{number}.npy", array)
        np.save(self.directory / f"counts{number}.npy", counts)
        commands = [f"{NPUWIN} a2av --ranks {ranks} --input in{number}.npy "
                    f"--counts counts{number}.npy --output out{number}-{who}.npy "
                    f"--recv-counts recv{number}-{who}.npy --json {options} "
                    + self.meet(who, local[who], secrets[who]) for who in (0, 1)]
        return commands, array, counts

    def add(self, name, commands, check):
        self.steps.append(Step(name, commands, check))
        assert len(self.steps) <= MAX_STEPS

    def script(self, who):
        """What host WHO does, one step after the other."""
        lines = [f"cd {self.directory}"]
        for number, step in enumerate(self.steps):
            lines += [f"( {step.commands[who]} ) >{number}-{who}.out 2>{number}-{who}.err",
                      f"echo $? >{number}-{who}.rc"]
        return "\n".join(lines) + "\n"

    def told(self, number, who):
        """Exit code, output and complaint of a step."""
        def read(kind):
            path = self.directory / f"{number}-{who}.{kind}"
            return path.read_text() if path.exists() else ""
        return read("rc").strip(), read("out"), read("err")


def ranks_of(local):
    first, _, last = local.partition("-")
    return int(first), int(last or first)


def add_exchange(run, ranks, local, options=""):
    number = len(run.steps)
    commands, array, counts = run.a2av(ranks, local, options)

    def check():
        want, want_recv = exchange(array, counts)
        for who in (0, 1):
            code, out, err = run.told(number, who)
            assert code == "0", (who, code, err)
            first, last = ranks_of(local[who])
            got = np.load(run.directory / f"out{number}-{who}.npy")
            recv = np.load(run.directory / f"recv{number}-{who}.npy")
            assert got.tobytes() == want[first:last + 1].tobytes(), f"host {who}: other bytes"
            assert np.array_equal(recv, want_recv[first:last + 1]), (who, recv)
            what = json.loads(out)
            assert what["verified"] and what["local"] == [first, last], what
            assert what["provider"] == "dev", what

    run.add(f"a2av of ranks {local[0]} and {local[1]} {options}".strip(), commands, check)


def add_moe(run):
    number = len(run.steps)
    routes = run.rng.integers(0, 12, size=(300, 2)).astype(np.int32)
    np.save(run.directory / "routes.npy", routes)
    local = ("0-2", "3-5")
    commands = [f"{NPUWIN} moe --ranks 6 --routes routes.npy --experts 12 --hidden 256 --json "
                + run.meet(who, local[who]) for who in (0, 1)]

    def check():
        for who in (0, 1):
            code, out, err = run.told(number, who)
            assert code == "0", (who, code, err)
            what = json.loads(out)
            matrix = np.array(what["count_matrix"])
            first, last = ranks_of(local[who])
            assert matrix.sum() == routes.size and what["verified"], what
            assert what["recv_matrix"] == matrix.T[first:last + 1].tolist(), what

    run.add("moe of ranks 0-2 and 3-5", commands, check)


def add_other_secret(run):
    number = len(run.steps)
    commands, _, _ = run.a2av(4, ("0-1", "2-3"), "--timeout 4", ("secret", "other"))

    def check():
        code, _, err = run.told(number, 0)
        assert code == "1" and "rank 2 of 4 has not connected" in err, (code, err)
        assert "does not know the secret" in err, err
        code, _, err = run.told(number, 1)
        assert code == "1" and "the secret is not the one that rank 0 has" in err, (code, err)

    run.add("another secret is refused, and both sides say so", commands, check)


def add_end(run, name, end):
    """The second host's ranks end, by END, while they exchange."""
    number = len(run.steps)
    commands, _, _ = run.a2av(4, ("0-1", "2-3"), "--iterations 10000000 --timeout 120")
    commands[1] = f"{commands[1]} & until grep -q ' [1-9][0-9]* of ' {number}-1.err; " \
                  f"do sleep 0.2; done; {end}"

    def check():
        code, _, err = run.told(number, 0)
        assert code == "1" and re.search(r"rank [23] is dead", err), (code, err)
        assert not (run.directory / f"out{number}-0.npy").exists()

    run.add(name, commands, check)


def guest(run, who, sockets):
    (run.directory / f"host{who}").write_text(run.script(who))
    command = [TOP / "scripts/guest", "run", "--mem", "2G", "--timeout", GUEST_SECONDS,
               "--insmod", TOP / "driver/npuwin.ko", "--share-rw", run.directory, "--net",
               "--console", run.directory / f"console{who}"]
    for i in range(len(run.steps) * (not who)):
        command += ["--forward", f"{run.port + i}:{GUEST_PORT + i}"]
    for path in sockets[2 * who:2 * who + 2]:
        command += ["--npu", path]
    command += ["--", "bash", run.directory / f"host{who}"]
    return subprocess.Popen(list(map(str, command)), cwd=TOP, stdin=subprocess.DEVNULL,
                            stdout=open(run.directory / f"guest{who}", "wb"),
                            stderr=subprocess.STDOUT)


def run_guests(run):
    emulator = subprocess.Popen([TOP / "build/bin/npuwin-emu", "--socket-dir", run.directory,
                                 "--devices", "4"], stdout=subprocess.PIPE, text=True)
    try:
        assert "ready" in emulator.stdout.readline()
        sockets = [run.directory / f"npu{i}.sock" for i in range(4)]
        guests = [guest(run, who, sockets) for who in (0, 1)]
        return [one.wait(GUEST_SECONDS + 60) for one in guests]
    finally:
        emulator.terminate()
        emulator.wait()


def report(run, codes):
    failed = False
    print(f"TAP version 13\n1..{len(run.steps)}", flush=True)
    for number, step in enumerate(run.steps):
        try:
            step.check()
            print(f"ok {number + 1} - {step.name}", flush=True)
        except Exception as why:
            failed = True
            print(f"# {why!r}".replace("\\n", "\n# "))
            print(f"not ok {number + 1} - {step.name}", flush=True)
    if failed:
        for who in (0, 1):
            print(f"# guest {who} ended with {codes[who]}:")
            for line in (run.directory / f"guest{who}").read_text().splitlines()[-30:]:
                print(f"# {line}")
    return failed


def main():
    for path in (TOP / "driver/npuwin.ko", TOP / "build/bin/npuwin-emu"):
        if not path.exists():
            print(f"1..0 # SKIP {path.relative_to(TOP)} is not built")
            sys.exit(SKIP_STATUS)
    with tempfile.TemporaryDirectory(prefix="npuwin-hosts-") as directory:
        run = Run(Path(directory))
        add_exchange(run, 4, ("0-1", "2-3"))
        add_exchange(run, 4, ("0-1", "2-3"), "--mode rows --processes --iterations 20")
        add_exchange(run, 7, ("0", "1-6"), "--iterations 5")
        add_moe(run)
        add_other_secret(run)
        add_end(run, "ranks that are killed there are named here", "kill -9 $!; wait")
        add_exchange(run, 4, ("0-1", "2-3"), "--mode rows")
        # The last, since nothing can follow it.
        add_end(run, "a host that goes is named here", "/guest/busybox reboot -f")
        sys.exit(1 if report(run, run_guests(run)) else 0)


if __name__ == "__main__":
    main()
