#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""How runs of npuwin end before they are done: killed ranks, signals, ranks that stop."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "lib"))

from tap import NPUWIN, PROVIDERS, Tests, np  # noqa: E402

RANKS = 4
WITHIN = 60

tests = Tests()


def attentive():
    """Also where these tests run in the background of a shell, which ignores SIGINT."""
    for signo in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(signo, signal.SIG_DFL)


def start(directory, *options, provider="shm"):
    np.save(directory / "in.npy", np.zeros((RANKS, RANKS * 8, 64), np.float32))
    np.save(directory / "counts.npy", np.full((RANKS, RANKS), 8, np.int32))
    return subprocess.Popen(
        [NPUWIN, "a2av", "--ranks", str(RANKS), "--input", "in.npy", "--counts", "counts.npy",
         "--output", "out.npy", "--recv-counts", "recv.npy", "--iterations", "10000000",
         "--provider", provider, *options], cwd=directory, text=True, preexec_fn=attentive,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def until(condition, what):
    end = time.monotonic() + WITHIN
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(f"not within {WITHIN} s: {what}")


def comm(pid):
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def rank_pids(process):
    """Processes by rank, once all have taken their names."""
    assert process.poll() is None, process.communicate()
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text(
        encoding="ascii")
    pids = {comm(pid): int(pid) for pid in children.split()}
    if len([name for name in pids if name.startswith("npuwin-rank")]) < RANKS:
        return None
    return [pids[f"npuwin-rank{rank}"] for rank in range(RANKS)]


def running_ranks(process):
    pids = until(lambda: rank_pids(process), "processes for all ranks")
    at_work(process)
    return pids


def at_work(process):
    """It tells of iterations after a second."""
    line = process.stderr.readline()
    assert "iterations done" in line, line


def nothing_left(directory, pids):
    for pid in pids:
        until(lambda pid=pid: not comm(pid).startswith("npuwin"), f"end of process {pid}")
    assert sorted(os.listdir(directory)) == ["counts.npy", "in.npy"], os.listdir(directory)


def ended(process):
    out, err = process.communicate(timeout=WITHIN)
    assert not out, out
    return err


def killed_rank(directory, provider, rank, signo):
    process = start(directory, "--processes", provider=provider)
    pids = running_ranks(process)
    os.kill(pids[rank], signo)
    err = ended(process)
    assert process.returncode == 1, (process.returncode, err)
    assert f"rank {rank}: its process {pids[rank]} was killed by signal {int(signo)}" in err, err
    nothing_left(directory, pids)


for _provider in PROVIDERS:
    for _rank, _signo in ((0, signal.SIGKILL), (2, signal.SIGKILL), (3, signal.SIGSEGV),
                          (1, signal.SIGTERM)):
        tests.add(f"rank {_rank} on {_provider} that dies of {_signo.name} is named, and "
                  "nothing is left", killed_rank, _provider, _rank, _signo)


def interrupted(directory, provider, form, signo):
    process = start(directory, form, provider=provider)
    if form == "--processes":
        pids = running_ranks(process)
    else:
        pids = []
        at_work(process)
    os.kill(process.pid, signo)
    ended(process)
    assert process.returncode == -signo, process.returncode
    nothing_left(directory, pids)


for _provider in PROVIDERS:
    for _form, _signo in (("--processes", signal.SIGINT), ("--processes", signal.SIGTERM),
                          ("--processes", signal.SIGHUP), ("--threads", signal.SIGINT),
                          ("--group", signal.SIGTERM)):
        tests.add(f"{_signo.name} ends a run on {_provider} with {_form}, and nothing is left",
                  interrupted, _provider, _form, _signo)


@tests("ranks end with the process that watches them")
def parent_killed(directory):
    process = start(directory, "--processes")
    pids = running_ranks(process)
    process.kill()
    process.communicate(timeout=WITHIN)
    for pid in pids:
        until(lambda pid=pid: not comm(pid).startswith("npuwin"), f"end of process {pid}")
    assert not (directory / "out.npy").exists() and not (directory / "recv.npy").exists()


@tests("a rank that stops is named when --timeout has passed")
def stopped_rank(directory):
    process = start(directory, "--processes", "--timeout", "1.5")
    pids = running_ranks(process)
    os.kill(pids[1], signal.SIGSTOP)
    began = time.monotonic()
    err = ended(process)
    assert process.returncode == 1, (process.returncode, err)
    assert "rank 1" in err.splitlines()[-1], err
    assert time.monotonic() - began < 15
    nothing_left(directory, pids)


@tests("lines on progress come once a second, and --quiet has none")
def progress(directory):
    for options, least in (((), 2), (("--quiet",), 0)):
        process = start(directory, *options)
        time.sleep(3.5)
        process.terminate()
        lines = ended(process).splitlines()
        assert len(lines) >= least and (least or not lines), lines
        assert all("iterations done by all ranks" in line for line in lines), lines


tests.run()
