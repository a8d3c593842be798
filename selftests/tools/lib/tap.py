# SPDX-License-Identifier: MIT
"""TAP for the tests of the command line: tests are functions in a temporary directory."""

import ast
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import traceback

TOP = pathlib.Path(__file__).resolve().parents[3]
NPUWIN = os.environ.get("NPUWIN", str(TOP / "build/bin/npuwin"))
SHORT = bool(os.environ.get("NPUWIN_TEST_SHORT"))
# Those that there are; NPUWIN_TEST_PROVIDERS in the environment leaves others out.
PROVIDERS = [provider for provider in os.environ.get("NPUWIN_TEST_PROVIDERS", "shm dev").split()
             if provider == "shm" or os.path.exists("/dev/npuwin0")]
SKIP_STATUS = 4

try:
    import numpy as np
except ImportError:
    print("1..0 # SKIP numpy is not there for " + sys.executable)
    sys.exit(SKIP_STATUS)

if not os.access(NPUWIN, os.X_OK):
    print(f"1..0 # SKIP {NPUWIN} is not built")
    sys.exit(SKIP_STATUS)


class Skip(Exception):
    """Raised by a test that cannot run here."""


class Tests:
    """A list of tests, run in order."""

    def __init__(self):
        self.tests = []

    def add(self, name, function, *args):
        self.tests.append((name, function, args))

    def __call__(self, name, *args):
        def decorate(function):
            self.add(name, function, *args)
            return function
        return decorate

    def run(self):
        names = [name for name, _, _ in self.tests]
        assert len(set(names)) == len(names), "two tests have one name"
        print(f"TAP version 13\n1..{len(names)}", flush=True)
        failed = False
        for number, (name, function, args) in enumerate(self.tests, 1):
            directory = pathlib.Path(tempfile.mkdtemp(prefix="npuwin-test-"))
            try:
                function(directory, *args)
                print(f"ok {number} - {name}", flush=True)
            except Skip as why:
                print(f"ok {number} - {name} # SKIP {why}", flush=True)
            except Exception:
                failed = True
                for line in traceback.format_exc().splitlines():
                    print(f"# {line}")
                print(f"not ok {number} - {name}", flush=True)
            finally:
                shutil.rmtree(directory, ignore_errors=True)
        sys.exit(1 if failed else 0)


class Result:
    """What a run of npuwin left."""

    def __init__(self, done):
        self.code = done.returncode
        self.out = done.stdout
        self.err = done.stderr

    def __str__(self):
        return f"exit code {self.code}\nstdout: {self.out}\nstderr: {self.err}"

    def json(self):
        return json.loads(self.out)


def npuwin(*args, cwd=None, env=None, timeout=120):
    done = subprocess.run([NPUWIN, *map(str, args)], cwd=cwd, timeout=timeout, text=True,
                          stdin=subprocess.DEVNULL, capture_output=True, check=False,
                          env=dict(os.environ, **(env or {})))
    return Result(done)


def succeed(*args, **kwargs):
    result = npuwin(*args, **kwargs)
    assert result.code == 0, f"npuwin {' '.join(map(str, args))}: {result}"
    return result


def random_array(rng, shape, dtype):
    """Any bytes: also those of NaNs."""
    dtype = np.dtype(dtype)
    count = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    data = rng.integers(0, 256, size=count, dtype=np.uint8)
    if dtype == np.dtype(bool):
        data &= 1
    return np.frombuffer(data.tobytes(), dtype=dtype).reshape(shape)


def descr_of(path):
    with open(path, "rb") as file:
        version = np.lib.format.read_magic(file)
        length = 2 if version == (1, 0) else 4
        header = file.read(int.from_bytes(file.read(length), "little"))
    return ast.literal_eval(header.decode("latin1"))["descr"]


def exchange(array, counts):
    """all_to_all_v by numpy: what is received, and how much."""
    ranks = array.shape[0]
    max_recv = array.shape[1] // ranks
    counts = np.clip(counts.reshape(ranks, ranks), 0, max_recv)
    out = np.zeros_like(array)
    for src in range(ranks):
        for dst in range(ranks):
            rows = int(counts[src, dst])
            out[dst, src * max_recv:src * max_recv + rows] = \
                array[src, dst * max_recv:dst * max_recv + rows]
    return out, np.ascontiguousarray(counts.T).astype(np.int32)
