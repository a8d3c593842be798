#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""npuwin a2av and moe whose ranks are in several commands, which meet by a bootstrap."""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "lib"))

from tap import NPUWIN, SHORT, Skip, Tests, exchange, np, npuwin, random_array  # noqa: E402

tests = Tests()


def prepare(directory, ranks=4):
    """What a2av reads, and the secret; returns the arrays."""
    rng = np.random.default_rng(ranks)
    array = random_array(rng, (ranks, ranks * 5, 7), "i2")
    counts = rng.integers(-1, 7, size=(ranks, ranks)).astype(np.int32)
    np.save(directory / "in.npy", array)
    np.save(directory / "counts.npy", counts)
    (directory / "secret").write_bytes(os.urandom(32))
    (directory / "short").write_bytes(b"123456789012345")
    (directory / "long").write_bytes(b"x" * 4097)
    return array, counts


def a2av(ranks, local, address, *options, out="out"):
    return ["a2av", "--ranks", ranks, "--input", "in.npy", "--counts", "counts.npy", "--output",
            f"{out}.npy", "--recv-counts", f"{out}-recv.npy", "--bootstrap", address, "--local",
            local, *options]


def start(directory, args):
    return subprocess.Popen([NPUWIN, *map(str, args)], cwd=directory, text=True,
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE)


def finish(commands):
    """Waits for all; returns exit codes, outputs and complaints."""
    told = [command.communicate(timeout=120) for command in commands]
    return [(command.returncode, *what) for command, what in zip(commands, told)]


def addresses(directory):
    return [f"tcp:127.{os.getpid() >> 8 & 127}.{os.getpid() & 255}.1:7777",
            f"unix:{directory}/socket", f"unix:@npuwin-test-{os.getpid()}"]


def why_no_fabric():
    """Why ranks in several commands cannot work here, or nothing."""
    with tempfile.TemporaryDirectory() as directory:
        np.save(f"{directory}/probe.npy", np.zeros((1, 1), np.int32))
        result = npuwin("moe", "--ranks", 1, "--routes", "probe.npy", "--experts", 1,
                        "--bootstrap", f"unix:@npuwin-test-{os.getpid()}-probe", "--local", 0,
                        cwd=directory)
        return result.err.strip() if "fabric" in result.err else None


# --- What is refused ---------------------------------------------------------


def refused(directory, args, code, sentence):
    prepare(directory, 2)
    result = npuwin(*args, cwd=directory)
    assert result.code == code, result
    assert re.search(sentence, result.err), f"no {sentence!r}\n{result}"
    assert len(result.err.splitlines()) == 1 and not result.out, result
    assert not list(directory.glob("out*")), list(directory.iterdir())


ADDRESS = "tcp:127.0.0.1:7777"
SECRET = ("--secret-file", "secret")
for _local in ("", "x", "-1", "0-", "0-x", "1-0", "0-2", "2", "0-1-1", "0x0",
               "99999999999999999999"):
    tests.add(f"--local '{_local}'", refused, a2av(2, _local, ADDRESS, *SECRET), 2, "--local")
for _name, _args, _code, _sentence in (
        ("--bootstrap without --local", a2av(2, "0", ADDRESS)[:-2], 2,
         "--bootstrap needs --local, the ranks that run here"),
        ("--local without --bootstrap", a2av(2, "0", ADDRESS)[:-4] + ["--local", "0"], 2,
         "--local needs --bootstrap"),
        ("--secret-file without --bootstrap", a2av(2, "0", ADDRESS)[:-4] + [*SECRET], 2,
         "--secret-file needs --bootstrap"),
        ("--bootstrap and --rail direct", a2av(2, "0", ADDRESS, "--rail", "direct"), 2,
         "--bootstrap and --rail direct exclude each other"),
        ("--bootstrap of no kind", a2av(2, "0", "7777", *SECRET), 2,
         "--bootstrap takes unix:PATH or tcp:HOST:PORT, not '7777'"),
        ("--bootstrap tcp: without --secret-file", a2av(2, "0", "tcp:127.0.0.1:7"), 2,
         "--bootstrap tcp:127.0.0.1:7 needs --secret-file"),
        ("--bootstrap and --group", a2av(2, "0", ADDRESS, "--group"), 2,
         "--bootstrap and --group exclude each other"),
        ("a secret that is not there", a2av(2, "0", ADDRESS, "--secret-file", "absent"), 3,
         "cannot read absent: No such file"),
        ("a secret that is a folder", a2av(2, "0", ADDRESS, "--secret-file", "."), 3,
         r"cannot read \.: Is a directory"),
        ("a secret that is short", a2av(2, "0", ADDRESS, "--secret-file", "short"), 3,
         "cannot use short as a secret: it has 15 bytes, not 16..4096"),
        ("a secret that is long", a2av(2, "0", ADDRESS, "--secret-file", "long"), 3,
         "cannot use long as a secret: it has at least 4097 bytes, not 16..4096"),
        ("rank 0 does not come", a2av(2, "1", "unix:@npuwin-nobody", "--timeout", "0.1"), 1,
         "rank 1: deadline: bootstrap unix:@npuwin-nobody: rank 0 does not listen there")):
    tests.add(_name, refused, _args, _code, _sentence)


@tests("a provider without a fabric says so in every command")
def no_fabric(directory):
    prepare(directory)
    for form in ("--threads", "--processes"):
        address = addresses(directory)[2]
        done = finish([start(directory, a2av(4, local, address, form, "--provider", "shm",
                                             out=f"out{local}")) for local in ("0-1", "2-3")])
        for code, out, err in done:
            assert code == 1 and not out, done
            assert "provider shm: its windows are on no fabric" in err or \
                "cannot join: EOPNOTSUPP" in err, done


@tests("another secret")
def another_secret(directory):
    prepare(directory, 2)
    (directory / "other").write_bytes(os.urandom(32))
    address = addresses(directory)[0]
    done = finish([start(directory, a2av(2, rank, address, "--secret-file", secret, "--timeout",
                                         2, out=f"out{rank}"))
                   for rank, secret in (("0", "secret"), ("1", "other"))])
    assert done[0][0] == done[1][0] == 1, done
    assert "the secret is not the one that rank 0 has" in done[1][2], done
    assert "rank 1 of 2 has not connected" in done[0][2] or "fabric" in done[0][2], done


# --- What is done ------------------------------------------------------------


def verify(directory, parts, array, counts, done):
    want, want_recv = exchange(array, counts)
    told = []
    for (first, last), (code, out, err) in zip(parts, done):
        assert code == 0, err
        told.append(json.loads(out))
        got = np.load(directory / f"out{first}.npy")
        recv = np.load(directory / f"out{first}-recv.npy")
        assert got.tobytes() == want[first:last + 1].tobytes(), "other bytes than numpy's"
        assert got.shape == (last + 1 - first, *array.shape[1:]), got.shape
        assert np.array_equal(recv, want_recv[first:last + 1]), recv
        assert told[-1]["local"] == [first, last] and told[-1]["verified"], told[-1]
        assert told[-1]["rows"] == int(want_recv.sum()), told[-1]
    return told


def several(directory, ranks, parts, where, form, mode):
    array, counts = prepare(directory, ranks)
    address = addresses(directory)[where]
    commands = [start(directory, a2av(ranks, f"{first}-{last}", address, *SECRET, form, "--mode",
                                      mode, "--iterations", 3, "--json", out=f"out{first}"))
                for first, last in parts]
    told = verify(directory, parts, array, counts, finish(commands))
    block = array[0].nbytes
    if mode == "block":
        assert [t["bytes"] for t in told] == [(last + 1 - first) * block
                                              for first, last in parts], told


def moe(directory):
    prepare(directory)
    rng = np.random.default_rng(5)
    routes = rng.integers(0, 8, size=(40 if SHORT else 400, 2)).astype(np.int32)
    np.save(directory / "routes.npy", routes)
    address = addresses(directory)[0]
    done = finish([start(directory, ["moe", "--ranks", 4, "--routes", "routes.npy", "--experts",
                                     8, "--hidden", 64, "--bootstrap", address, *SECRET,
                                     "--local", local, "--json"]) for local in ("0-2", "3")])
    told = []
    for code, out, err in done:
        assert code == 0, err
        told.append(json.loads(out))
    matrix = np.array(told[0]["count_matrix"])
    for what, first, last in ((told[0], 0, 2), (told[1], 3, 3)):
        assert what["verified"] and what["local"] == [first, last], what
        assert what["count_matrix"] == matrix.tolist()
        assert what["recv_matrix"] == matrix.T[first:last + 1].tolist()
        assert what["load"] == matrix.sum(axis=0).tolist()
        assert what["rows"] == matrix[first:last + 1].sum()


def for_people(directory):
    prepare(directory)
    address = addresses(directory)[1]
    done = finish([start(directory, a2av(4, local, address, out=f"out{local}"))
                   for local in ("0-1", "2-3")])
    for local, (code, out, err) in zip(("0-1", "2-3"), done):
        assert code == 0 and f"here      ranks {local}, which sent " in out, (out, err)
        assert "verified  every row" in out


def killed(directory):
    prepare(directory)
    address = addresses(directory)[0]
    commands = [start(directory, a2av(4, local, address, *SECRET, "--iterations", 10**7,
                                      "--timeout", 60, out=f"out{local}"))
                for local in ("0-1", "2-3")]
    # It tells of its progress; without any it may not have met the other one.
    while not re.search(" [1-9][0-9]* of ", commands[0].stderr.readline()):
        assert commands[0].poll() is None
    commands[1].kill()
    done = finish(commands)
    assert done[0][0] == 1 and re.search("rank [23] is dead", done[0][2]), done
    assert not list(directory.glob("out*")), list(directory.iterdir())


def no_exchange(_, why):
    raise Skip(why)


_WHY = why_no_fabric()
if _WHY:
    tests.add("ranks in several commands exchange", no_exchange, _WHY)
else:
    for _where, _place in enumerate(("tcp", "unix", "an abstract socket")):
        for _form in ("--threads", "--processes"):
            for _mode in ("block", "rows"):
                tests.add(f"a2av of 2 commands over {_place}, {_form}, {_mode}", several, 4,
                          [(0, 1), (2, 3)], _where, _form, _mode)
    tests.add("a2av of 1 command with all ranks", several, 3, [(0, 2)], 0, "--threads", "rows")
    tests.add("a2av of commands with one rank each", several, 4, [(r, r) for r in range(4)], 0,
              "--threads", "rows")
    tests.add("a2av of uneven parts", several, 7, [(0, 0), (1, 4), (5, 6)], 1, "--threads", "block")
    tests.add("moe of 2 commands tells of its ranks and of all", moe)
    tests.add("a2av for people says which ranks are here", for_people)
    tests.add("a command that is killed takes the others along", killed)

tests.run()
