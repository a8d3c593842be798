#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Output files of npuwin a2av: all of them or none, whatever happens, and nothing else."""

import ctypes
import errno
import os
import platform
import resource
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "lib"))

from tap import NPUWIN, Skip, Tests, exchange, np, npuwin  # noqa: E402

FAILED, FILE = 1, 3
RANKS = 4
WITHIN = 60

tests = Tests()

# --- Runs ----------------------------------------------------------------------


def prepare(directory):
    array = np.arange(RANKS * RANKS * 8 * 64, dtype=np.float32).reshape(RANKS, RANKS * 8, 64)
    counts = np.full((RANKS, RANKS), 7, np.int32)
    np.save(directory / "in.npy", array)
    np.save(directory / "counts.npy", counts)
    return exchange(array, counts)


def arguments(*options, iterations=2, output="out.npy", recv="recv.npy"):
    return ["a2av", "--ranks", str(RANKS), "--input", "in.npy", "--counts", "counts.npy",
            "--output", output, "--recv-counts", recv, "--iterations", str(iterations),
            "--provider", "shm", *options]


def start(directory, *options, before=None, **kwargs):
    return subprocess.Popen([NPUWIN, *arguments(*options, **kwargs)], cwd=directory, text=True,
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, preexec_fn=before)


def endless(directory, *options, before=None):
    """A run that has told of its progress."""
    prepare(directory)
    process = start(directory, *options, before=before, iterations=10000000)
    line = process.stderr.readline()
    assert "iterations done" in line, line
    return process


def only(directory, *names):
    found = sorted(os.listdir(directory))
    assert found == sorted(("in.npy", "counts.npy") + names), found


def same(path, array):
    found = np.load(path)
    assert found.dtype == array.dtype and np.array_equal(found, array), path


# --- Where a file system or a call is not as usual -------------------------------

AUDIT = {"x86_64": (0xc000003e, 257, 316, 82), "aarch64": (0xc00000b7, 56, 276, 38),
         "riscv64": (0xc00000f3, 56, 276, 276)}
LOAD, EQUAL, AND, RETURN = 0x20, 0x15, 0x54, 0x06
ALLOW, ERRNO, KILL = 0x7fff0000, 0x00050000, 0x80000000
PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, SECCOMP_MODE_FILTER = 22, 38, 2


def refuse(call, argument, mask, value, error):
    """A function for a child: @call fails where @argument, masked, is @value. Without an
    error to fail with the child is killed."""
    if platform.machine() not in AUDIT:
        raise Skip(f"no numbers of system calls for {platform.machine()}")
    audit, *numbers = AUDIT[platform.machine()]
    number = dict(zip(("openat", "renameat2", "rename"), numbers))[call]
    program = ((LOAD, 0, 0, 4), (EQUAL, 0, 6, audit), (LOAD, 0, 0, 0), (EQUAL, 0, 4, number),
               (LOAD, 0, 0, 16 + 8 * argument), (AND, 0, 0, mask), (EQUAL, 0, 1, value),
               (RETURN, 0, 0, ERRNO | error if error else KILL), (RETURN, 0, 0, ALLOW))
    code = b"".join(struct.pack("HBBI", *line) for line in program)
    filters = ctypes.create_string_buffer(code)
    fprog = ctypes.create_string_buffer(
        struct.pack("HxxxxxxP", len(program), ctypes.addressof(filters)))
    libc = ctypes.CDLL(None, use_errno=True)

    def before():
        if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or \
                libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, fprog, 0, 0):
            raise OSError(ctypes.get_errno(), "seccomp")
    before.keep = filters
    return before


def no_tmpfile():
    return refuse("openat", 2, os.O_TMPFILE, os.O_TMPFILE, errno.EOPNOTSUPP)


def no_exchange():
    return refuse("renameat2", 4, 2, 2, errno.EINVAL)


def killed_by_rename():
    return refuse("rename", 0, 0, 0, 0)


def killed_by_directory():
    return refuse("openat", 2, os.O_TMPFILE | os.O_NONBLOCK, os.O_DIRECTORY, 0)


def no_directories():
    return refuse("openat", 2, os.O_TMPFILE | os.O_NONBLOCK, os.O_DIRECTORY, errno.EIO)


def plain():
    return None


def finish(process):
    out, err = process.communicate(timeout=WITHIN)
    return process.returncode, out, err


# --- All or none -----------------------------------------------------------------

UNUSUAL = (("", plain), (", without O_TMPFILE", no_tmpfile),
           (", without RENAME_EXCHANGE", no_exchange))


def replaced(directory, unusual):
    out, recv = prepare(directory)
    (directory / "out.npy").write_text("old")
    code, _, err = finish(start(directory, before=unusual()))
    assert code == 0, err
    same(directory / "out.npy", out)
    same(directory / "recv.npy", recv)
    mask = os.umask(0)
    os.umask(mask)
    for name in ("out.npy", "recv.npy"):
        assert (directory / name).stat().st_mode & 0o777 == 0o666 & ~mask
    code, _, err = finish(start(directory, before=unusual(), output="in.npy"))
    assert code == 0, err
    same(directory / "in.npy", out)
    only(directory, "out.npy", "recv.npy")


def held(process):
    """Whether both outputs have been begun."""
    try:
        links = [os.readlink(fd) for fd in Path(f"/proc/{process.pid}/fd").iterdir()]
    except OSError:
        return False
    return sum(os.path.basename(link).startswith(("#", ".")) for link in links) >= 2


def second_is_directory(directory, unusual):
    """Its place is taken by a directory while ranks run."""
    prepare(directory)
    data = (directory / "in.npy").read_bytes()
    for output in ("in.npy", "new.npy"):
        process = start(directory, before=unusual(), output=output, iterations=2000)
        while process.poll() is None and not held(process):
            time.sleep(0.002)
        (directory / "recv.npy").mkdir()
        code, out, err = finish(process)
        assert code == FILE and not out, (code, out, err)
        assert "cannot write recv.npy: Is a directory" in err, err
        assert (directory / "in.npy").read_bytes() == data
        only(directory, "recv.npy")
        (directory / "recv.npy").rmdir()


def second_is_mounted(directory, unusual):
    prepare(directory)
    data = (directory / "in.npy").read_bytes()
    recv = directory / "recv.npy"
    recv.write_text("old")
    if subprocess.run(["mount", "--bind", recv, recv], capture_output=True,
                      check=False).returncode:
        raise Skip("mount is not permitted")
    try:
        for output in ("in.npy", "new.npy"):
            code, out, err = finish(start(directory, before=unusual(), output=output))
            assert code == FILE and not out, (code, out, err)
            assert "cannot write recv.npy: Device or resource busy" in err, err
            assert (directory / "in.npy").read_bytes() == data and recv.read_text() == "old"
            only(directory, "recv.npy")
    finally:
        subprocess.run(["umount", recv], check=True)


for _name, _unusual in UNUSUAL:
    tests.add(f"outputs replace what was there, even the input{_name}", replaced, _unusual)
    tests.add(f"a second output that becomes a directory leaves all as it was{_name}",
              second_is_directory, _unusual)
    tests.add(f"a second output that is a mount leaves all as it was{_name}",
              second_is_mounted, _unusual)


@tests("a directory that cannot be synchronised leaves all as it was")
def unsynchronised(directory):
    prepare(directory)
    data = (directory / "in.npy").read_bytes()
    code, _, err = finish(start(directory, before=no_directories(), output="in.npy"))
    assert code == FILE and "cannot write in.npy: Input/output error" in err, (code, err)
    assert (directory / "in.npy").read_bytes() == data
    only(directory)


@tests("new outputs have no other names that a kill could leave")
def new_names(directory):
    out, recv = prepare(directory)
    code, _, err = finish(start(directory, before=killed_by_rename()))
    assert code == 0, (code, err)
    only(directory, "out.npy", "recv.npy")
    for name in ("out.npy", "recv.npy"):
        (directory / name).unlink()
    code, _, err = finish(start(directory, before=killed_by_directory()))
    assert code == -signal.SIGSYS, (code, err)
    same(directory / "out.npy", out)
    same(directory / "recv.npy", recv)
    only(directory, "out.npy", "recv.npy")


@tests("outputs may be in a directory that cannot be listed")
def unlisted(directory):
    prepare(directory)
    (directory / "d").mkdir(mode=0o333)
    result = npuwin(*arguments(output="d/out.npy", recv="d/recv.npy"), cwd=directory)
    (directory / "d").chmod(0o755)
    assert result.code == 0, result
    assert sorted(os.listdir(directory / "d")) == ["out.npy", "recv.npy"]


@tests("outputs over the limit for files are refused")
def limited(directory):
    prepare(directory)
    code, _, err = finish(start(directory, before=lambda: resource.setrlimit(
        resource.RLIMIT_FSIZE, (4096, 4096))))
    assert code == FILE and "cannot write out.npy: File too large" in err, (code, err)
    only(directory)


# --- Signals -----------------------------------------------------------------------

SIGNALS = (signal.SIGQUIT, signal.SIGALRM, signal.SIGUSR1, signal.SIGBUS)


def no_core():
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)


def killed(directory, signo, unusual):
    more = unusual()

    def before():
        no_core()
        if more:
            more()
    process = endless(directory, "--threads", before=before)
    if not more:
        only(directory)
    process.send_signal(signo)
    code, _, err = finish(process)
    assert code == -signo, (code, err)
    only(directory)


for _signo in SIGNALS + (signal.SIGKILL,):
    tests.add(f"{_signo.name} leaves nothing", killed, _signo, plain)
for _signo in SIGNALS + (signal.SIGINT,):
    tests.add(f"{_signo.name} leaves nothing, without O_TMPFILE", killed, _signo, no_tmpfile)


def cut_short(directory, unusual):
    process = endless(directory, "--threads", before=unusual())
    os.truncate(directory / "in.npy", 4096)
    code, _, err = finish(process)
    assert code in (FAILED, -signal.SIGBUS), (code, err)
    only(directory)


tests.add("an input cut short while it is read leaves nothing", cut_short, plain)
tests.add("an input cut short while it is read leaves nothing, without O_TMPFILE", cut_short,
          no_tmpfile)


@tests("progress that nobody reads does not end a run")
def closed_pipe(directory):
    process = endless(directory)
    process.stderr.close()
    time.sleep(1.5)
    assert process.poll() is None, process.returncode
    process.terminate()
    assert process.wait(timeout=WITHIN) == -signal.SIGTERM
    process.stdout.close()
    only(directory)


@tests("a summary that nobody reads is a failure, and outputs are there")
def closed_output(directory):
    out, recv = prepare(directory)
    process = start(directory)
    process.stdout.close()
    code, err = process.wait(timeout=WITHIN), process.stderr.read()
    assert code == FAILED and "cannot write to standard output: Broken pipe" in err, (code, err)
    same(directory / "out.npy", out)
    same(directory / "recv.npy", recv)
    only(directory, "out.npy", "recv.npy")


def ignored(directory, form):
    signals = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1)

    def before():
        for signo in signals:
            signal.signal(signo, signal.SIG_IGN)
    process = endless(directory, form, before=before)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text(
        encoding="ascii").split()
    for signo in signals:
        for pid in [process.pid, *map(int, children)]:
            os.kill(pid, signo)
    time.sleep(0.5)
    assert process.poll() is None, process.returncode
    process.terminate()
    code, _, err = finish(process)
    assert code == -signal.SIGTERM and "killed" not in err, (code, err)
    only(directory)


for _form in ("--threads", "--processes"):
    tests.add(f"signals that are ignored from the start stay so with {_form}", ignored, _form)

tests.run()
