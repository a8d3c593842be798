#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""npuwin a2av against numpy: every form, rail, mode and provider, dtypes, shapes, counts."""

import sys
import zlib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "lib"))

from tap import PROVIDERS, SHORT, Tests, descr_of, exchange, np, random_array, succeed  # noqa: E402

DTYPES = ["?", "i1", "u1", "i2", "u2", "f2", "i4", "u4", "f4", "i8", "u8", "f8", "c8",
          "V1", "V2", "V4", "V8", "S1", "S2", "S4", "S8", "U1", "U2", "M8", "M8[ns]", "M8[25s]",
          "m8", "m8[us]", ">i2", ">u2", ">f2", ">i4", ">u4", ">f4", ">i8", ">u8", ">f8", ">c8",
          ">U1", ">U2", ">M8[D]", ">m8[ms]"]
RANDOM = ((2, 2), (5, 3)) if SHORT else ((1, 2), (2, 3), (3, 4), (5, 5), (8, 3))
MANY = 16 if SHORT else 64
INT32 = np.iinfo(np.int32)
INT64 = np.iinfo(np.int64)

tests = Tests()


def files(directory):
    return [directory / name for name in ("in.npy", "counts.npy", "out.npy", "recv.npy")]


def run(directory, array, counts, *options):
    """Returns what --json says; the arrays must be those that numpy makes."""
    inp, cnt, out, recv = files(directory)
    np.save(inp, array)
    np.save(cnt, counts)
    told = succeed("a2av", "--ranks", array.shape[0], "--input", inp, "--counts", cnt,
                   "--output", out, "--recv-counts", recv, "--json", *options).json()
    want, want_recv = exchange(array, counts)
    got, got_recv = np.load(out), np.load(recv)
    assert descr_of(out) == descr_of(inp), (descr_of(out), descr_of(inp))
    assert got.dtype == array.dtype and got.shape == array.shape, (got.dtype, got.shape)
    assert got_recv.dtype == np.int32, got_recv.dtype
    assert np.array_equal(got_recv, want_recv), (got_recv, want_recv)
    assert got.tobytes() == want.tobytes(), "other bytes than numpy's"
    assert told["verified"] is True
    assert sorted(path.name for path in directory.iterdir()) == \
        sorted(path.name for path in files(directory)), list(directory.iterdir())
    check_clamps(told, counts, array.shape[1] // array.shape[0])
    return told


def check_clamps(told, counts, max_recv):
    ranks = counts.shape[0]
    want = [(s, d, int(counts.reshape(ranks, ranks)[s, d])) for s in range(ranks)
            for d in range(ranks) if not 0 <= counts.reshape(ranks, ranks)[s, d] <= max_recv]
    got = [(c["rank"], c["dest"], c["count"]) for c in told["clamped"]]
    assert got == want, (got, want)


def random_case(rng, ranks, ndim):
    max_recv = int(rng.integers(1, 9))
    size = [int(n) for n in rng.integers(1, 7, size=ndim - 2)]
    array = random_array(rng, (ranks, ranks * max_recv, *size), str(rng.choice(DTYPES)))
    counts = rng.integers(-1, max_recv + 2, size=(ranks, ranks))
    counts = counts.astype(rng.choice(["i4", "i8"]))
    return array, counts.reshape(ranks, ranks, 1) if rng.integers(2) else counts


def random_cases(directory, provider, rail, mode, form):
    rng = np.random.default_rng(zlib.crc32(f"{provider} {rail} {mode} {form}".encode()))
    for ranks, ndim in RANDOM:
        told = run(directory, *random_case(rng, ranks, ndim), "--provider", provider, "--rail",
                   rail, "--mode", mode, f"--{form}", "--iterations", 3)
        assert (told["provider"], told["rail"], told["mode"], told["run_as"]) == \
            (provider, rail, mode, form), told


for _provider in PROVIDERS:
    for _rail in ("host", "direct"):
        for _mode in ("block", "rows"):
            for _form in ("threads", "processes", "group"):
                tests.add(f"a2av on {_provider}, {_rail}, {_mode}, {_form} agrees with numpy "
                          f"in {len(RANDOM)} cases", random_cases, _provider, _rail, _mode, _form)


def one_dtype(directory, dtype):
    rng = np.random.default_rng(3)
    array = random_array(rng, (3, 12, 5), dtype)
    run(directory, array, rng.integers(0, 5, size=(3, 3)))


for _dtype in DTYPES:
    tests.add(f"a2av of dtype {_dtype}", one_dtype, _dtype)


def one_shape(directory, shape):
    rng = np.random.default_rng(len(shape))
    run(directory, random_array(rng, shape, "f4"),
        rng.integers(0, shape[1] // shape[0] + 1, size=(shape[0], shape[0])))


for _shape in ((1, 1), (1, 7), (2, 2), (4, 8), (2, 6, 1), (2, 4, 3, 5), (2, 4, 2, 3, 4),
               (2, 4, 1, 2, 1, 2, 1, 2, 1, 3, 2, 1), (3, 3, 4099)):
    tests.add(f"a2av of shape {list(_shape)}", one_shape, _shape)


def one_count(directory, count, dtype):
    rng = np.random.default_rng(7)
    counts = np.full((3, 3), 2, dtype=dtype)
    counts[1, 2] = count
    counts[0, 0] = count
    for mode in ("block", "rows"):
        for rail in ("host", "direct"):
            run(directory, random_array(rng, (3, 12, 4), "i2"), counts, "--mode", mode,
                "--rail", rail)


for _name, _count, _dtype in (
        ("0", 0, "i4"), ("MAX_RECV", 4, "i4"), ("MAX_RECV + 1", 5, "i4"), ("-1", -1, "i4"),
        ("INT32_MIN", INT32.min, "i4"), ("INT32_MAX", INT32.max, "i4"),
        ("INT32_MAX + 1", INT32.max + 1, "i8"), ("INT32_MIN - 1", INT32.min - 1, "i8"),
        ("2**32 + 2", 2**32 + 2, "i8"), ("INT64_MIN", INT64.min, "i8"),
        ("INT64_MAX", INT64.max, "i8"), ("3", 3, ">i4"), ("-2", -2, ">i4"), ("3", 3, ">i8"),
        ("-2", -2, ">i8"), ("2**32 + 2", 2**32 + 2, ">i8")):
    tests.add(f"a2av with a count of {_name} as {_dtype}", one_count, _count, _dtype)


@tests("a2av where nobody sends anything")
def nothing_sent(directory):
    array = random_array(np.random.default_rng(1), (4, 8, 3), "u1")
    for mode in ("block", "rows"):
        told = run(directory, array, np.zeros((4, 4), np.int32), "--mode", mode)
        assert told["rows"] == 0
    assert told["bytes"] == 0, told


@tests("a2av where all send to one rank")
def all_to_one(directory):
    counts = np.zeros((5, 5), np.int64)
    counts[:, 3] = 6
    run(directory, random_array(np.random.default_rng(2), (5, 30, 2), "f8"), counts,
        "--mode", "rows")


@tests("a2av in Python 2's spelling and in versions 2.0 and 3.0 of the format")
def other_headers(directory):
    rng = np.random.default_rng(5)
    array = random_array(rng, (2, 4, 3), "i4")
    counts = np.full((2, 2), 1, np.int32)
    inp, cnt, out, recv = files(directory)
    want = exchange(array, counts)[0]
    np.save(cnt, counts)
    python2 = b"{\"shape\": (2L, 4L, 3L), 'fortran_order': False,\n'descr': '<i4'}\n"
    for version, header in ((1, python2), (2, None), (3, None)):
        with open(inp, "wb") as file:
            if header:
                file.write(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
                file.write(array.tobytes())
            else:
                np.lib.format.write_array(file, array, version=(version, 0))
        succeed("a2av", "--ranks", 2, "--input", inp, "--counts", cnt, "--output", out,
                "--recv-counts", recv)
        assert np.load(out).tobytes() == want.tobytes(), version


@tests("a2av replaces its output files and may replace its input")
def replaced(directory):
    rng = np.random.default_rng(6)
    array = random_array(rng, (3, 9, 2), "u2")
    counts = rng.integers(0, 4, size=(3, 3)).astype(np.int32)
    inp, cnt, _, _ = files(directory)
    np.save(inp, array)
    np.save(cnt, counts)
    succeed("a2av", "--ranks", 3, "--input", inp, "--counts", cnt, "--output", inp,
            "--recv-counts", cnt)
    want, want_recv = exchange(array, counts)
    assert np.load(inp).tobytes() == want.tobytes()
    assert np.array_equal(np.load(cnt), want_recv)


def many_ranks(directory, ranks):
    rng = np.random.default_rng(64)
    array = random_array(rng, (ranks, ranks * 2, 16), "f2")
    counts = rng.integers(0, 3, size=(ranks, ranks))
    for form in ("--processes", "--threads", "--group"):
        run(directory, array, counts, form, "--mode", "rows")


tests.add(f"a2av of {MANY} ranks as processes, as threads and as a group", many_ranks, MANY)


@tests("a2av of 100 iterations")
def many_iterations(directory):
    rng = np.random.default_rng(100)
    told = run(directory, random_array(rng, (4, 16, 64), "u1"),
               rng.integers(0, 5, size=(4, 4)), "--iterations", 100)
    assert told["iterations"] == 100 and 0 < told["seconds_best"] <= told["seconds"], told


@tests("a2av without --json tells for people, and with --quiet nothing")
def for_people(directory):
    inp, cnt, out, recv = files(directory)
    np.save(inp, np.arange(16, dtype=np.int32).reshape(2, 8))
    np.save(cnt, np.array([[1, 9], [-3, 4]], np.int64))
    args = ("a2av", "--ranks", 2, "--input", inp, "--counts", cnt, "--output", out,
            "--recv-counts", recv)
    result = succeed(*args)
    for part in ("rank 0 for rank 1: 9 asked, 4 sent", "rank 1 for rank 0: -3 asked, 0 sent",
                 "verified  every row"):
        assert part in result.out, result
    assert not succeed(*args, "--quiet").out


@tests("a2av tells of clamped counts on standard error, whatever is on standard output")
def clamps_told(directory):
    inp, cnt, out, recv = files(directory)
    args = ("a2av", "--ranks", 2, "--input", inp, "--counts", cnt, "--output", out,
            "--recv-counts", recv)
    np.save(inp, np.arange(16, dtype=np.int32).reshape(2, 8))
    for counts, sentence in (([[1, 9], [-3, 4]], "2 counts were clamped to 0..4 (MAX_RECV)"),
                             ([[1, 9], [3, 4]], "1 count was clamped to 0..4 (MAX_RECV)"),
                             ([[1, 2], [3, 4]], None)):
        np.save(cnt, np.array(counts, np.int64))
        for options in ((), ("--json",), ("--quiet",)):
            result = succeed(*args, *options)
            assert (sentence in result.err) if sentence else not result.err, result
            assert len(result.err.splitlines()) == bool(sentence), result


@tests("a2av of the JSON keys that are promised")
def json_keys(directory):
    told = run(directory, random_array(np.random.default_rng(8), (2, 4, 3), "i8"),
               np.ones((2, 2), np.int32))
    for key in ("command", "clamped", "verified", "provider", "provider_reason", "rail", "mode",
                "seconds", "ranks", "max_recv", "iterations", "bytes", "rows", "dtype", "shape",
                "row_bytes", "run_as", "local"):
        assert key in told, key
    assert told["bytes"] == 2 * 4 * 3 * 8 and told["rows"] == 4 and told["max_recv"] == 2, told


tests.run()
