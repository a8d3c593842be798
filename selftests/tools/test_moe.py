#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""npuwin moe: count matrices against numpy's, splits, clamps, what tokens hold."""

import json
import os
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "lib"))

from tap import PROVIDERS, TOP, Skip, Tests, np, random_array, succeed  # noqa: E402

DEMO = TOP / "tools/demo/qwen15-moe-gsm8k-6ranks.json"
SHARED = "qwen15-moe-a2.7b-gsm8k-layer0.routes.npy"

DTYPES = {"bf16": 2, "fp16": 2, "fp32": 4, "fp64": 8, "fp8-e4m3": 1, "fp8-e5m2": 1, "int64": 8,
          "int32": 4, "int16": 2, "int8": 1, "uint8": 1}

tests = Tests()


def owners(total, parts):
    split = np.array_split(np.arange(total), parts)
    return np.concatenate([np.full(len(part), i) for i, part in enumerate(split)]).astype(int)


def count_matrix(routes, ranks, experts):
    tokens, topk = routes.shape
    source = np.repeat(owners(tokens, ranks), topk)
    flat = routes.reshape(-1).astype(np.int64)
    there = flat >= 0
    matrix = np.zeros((ranks, ranks), np.int64)
    np.add.at(matrix, (source[there], owners(experts, ranks)[flat[there]]), 1)
    return matrix


def check(told, matrix):
    """What must hold of every run's JSON."""
    max_recv = told["max_recv"]
    crossed = np.minimum(matrix, max_recv)
    assert np.array_equal(np.array(told["count_matrix"]), matrix), told["count_matrix"]
    assert np.array_equal(np.array(told["recv_matrix"]), crossed.T), told["recv_matrix"]
    assert told["load"] == crossed.sum(axis=0).tolist(), told["load"]
    assert told["rows"] == int(crossed.sum())
    want = [(int(s), int(d), int(matrix[s, d])) for s, d in np.argwhere(matrix > max_recv)]
    assert [(c["rank"], c["dest"], c["count"]) for c in told["clamped"]] == want
    assert told["verified"] is True and told["ranks"] == len(matrix)
    rows = crossed.sum() if told["mode"] == "rows" else len(matrix) ** 2 * max_recv
    assert told["dispatch_bytes"] == told["combine_bytes"] == rows * told["row_bytes"], told
    assert told["bytes"] == 2 * told["dispatch_bytes"]


def run(directory, routes, ranks, experts, *options):
    path = directory / "routes.npy"
    np.save(path, routes)
    told = succeed("moe", "--ranks", ranks, "--routes", path, "--experts", experts, "--json",
                   *options).json()
    check(told, count_matrix(routes, ranks, experts))
    return told


def routing(rng, tokens, topk, experts, dtype=np.int32, lowest=0):
    return rng.integers(lowest, experts, size=(tokens, topk)).astype(dtype)


def shared_routes(_, ranks):
    folder = os.environ.get("NPUWIN_TEST_DATA")
    if not folder or not os.path.exists(os.path.join(folder, SHARED)):
        raise Skip(f"NPUWIN_TEST_DATA has no {SHARED}")
    path = os.path.join(folder, SHARED)
    told = succeed("moe", "--ranks", ranks, "--routes", path, "--experts", 60, "--json").json()
    check(told, count_matrix(np.load(path), ranks, 60))
    if ranks == 6:
        assert told["count_matrix"] == json.loads(DEMO.read_text())["count_matrix"]


for _ranks in (4, 6, 12):
    tests.add(f"moe of a real routing on {_ranks} ranks", shared_routes, _ranks)


def every_form(directory, provider, rail, mode, form):
    rng = np.random.default_rng(11)
    run(directory, routing(rng, 61, 3, 10, lowest=-1), 4, 10, "--hidden", 24, "--provider",
        provider, "--rail", rail, "--mode", mode, f"--{form}", "--iterations", 3)


for _provider in PROVIDERS:
    for _rail in ("host", "direct"):
        for _mode in ("block", "rows"):
            for _form in ("threads", "processes", "group"):
                tests.add(f"moe on {_provider}, {_rail}, {_mode}, {_form}", every_form,
                          _provider, _rail, _mode, _form)


def split(directory, ranks, tokens, experts):
    rng = np.random.default_rng(ranks)
    run(directory, routing(rng, tokens, 2, experts), ranks, experts, "--hidden", 8)


for _ranks, _tokens, _experts in ((1, 5, 3), (5, 61, 60), (7, 100, 60), (7, 3, 60), (8, 1, 8),
                                  (4, 50, 3), (6, 7, 1), (3, 1000, 8)):
    tests.add(f"moe of {_tokens} tokens and {_experts} experts over {_ranks} ranks", split,
              _ranks, _tokens, _experts)


@tests("moe of int64 routes, some of no expert")
def no_expert(directory):
    rng = np.random.default_rng(12)
    routes = routing(rng, 90, 4, 16, np.int64, lowest=-5)
    routes[0, 0] = np.iinfo(np.int64).min
    run(directory, routes, 5, 16, "--hidden", 16)


@tests("moe of routes where no token has an expert")
def no_expert_at_all(directory):
    told = run(directory, np.full((9, 2), -1, np.int32), 3, 6, "--hidden", 4)
    assert told["max_recv"] == 1 and told["rows"] == 0, told


@tests("moe of tokens that have an expert twice")
def twice(directory):
    run(directory, np.full((10, 3), 4, np.int32), 2, 5, "--hidden", 4, "--mode", "rows")


@tests("moe with a smaller --max-recv tells who was clamped, and succeeds")
def clamped(directory):
    rng = np.random.default_rng(13)
    told = run(directory, routing(rng, 200, 2, 8), 4, 8, "--hidden", 8, "--max-recv", 20)
    assert told["clamped"] and told["max_recv"] == 20
    result = succeed("moe", "--ranks", 4, "--routes", directory / "routes.npy", "--experts", 8,
                     "--hidden", 8, "--max-recv", 20)
    first = told["clamped"][0]
    assert f"rank {first['rank']} for rank {first['dest']}: {first['count']} asked, 20 sent" \
        in result.out, result
    assert "clamped to 0..20 (MAX_RECV)" in result.err, result
    assert "before clamping; received: after it" in result.out, result


@tests("moe with a larger --max-recv")
def roomy(directory):
    told = run(directory, routing(np.random.default_rng(14), 20, 2, 8), 4, 8, "--hidden", 8,
               "--max-recv", 1000)
    assert told["max_recv"] == 1000 and not told["clamped"]


def given_tokens(directory, shape, dtype):
    rng = np.random.default_rng(15)
    np.save(directory / "tokens.npy", random_array(rng, shape, dtype))
    told = run(directory, routing(rng, shape[0], 2, 6), 3, 6, "--tokens",
               directory / "tokens.npy", "--processes")
    assert told["row_bytes"] == int(np.prod(shape[1:])) * np.dtype(dtype).itemsize, told
    assert told["dtype"] == np.dtype(dtype).str


for _shape, _dtype in (((31,), "f8"), ((31, 16), "f2"), ((31, 3, 5), "u1"), ((31, 7), "V2"), ((31, 3), ">f4"),
                       ((31, 3), "c8")):
    tests.add(f"moe of tokens of shape {list(_shape)} and dtype {_dtype}", given_tokens, _shape,
              _dtype)


def made_tokens(directory, dtype, size):
    told = run(directory, routing(np.random.default_rng(16), 20, 2, 6), 3, 6, "--hidden", 5,
               "--dtype", dtype)
    assert told["row_bytes"] == 5 * size and told["dtype"] == dtype, told


for _dtype, _size in DTYPES.items():
    tests.add(f"moe of --dtype {_dtype}", made_tokens, _dtype, _size)


@tests("moe of 2048 bf16 where nothing is said of tokens")
def default_tokens(directory):
    told = run(directory, routing(np.random.default_rng(17), 12, 2, 6), 3, 6)
    assert told["row_shape"] == [2048] and told["dtype"] == "bf16", told
    assert (told["tokens"], told["topk"], told["experts"]) == (12, 2, 6), told


@tests("moe of the count matrix that comes along")
def demo_counts(_):
    told = succeed("moe", "--counts-from", DEMO, "--json").json()
    check(told, np.array(json.loads(DEMO.read_text())["count_matrix"]))
    assert told["rows"] == 2434 * 4 and told["row_bytes"] == 4096 and told["source"], told


@tests("moe of a count matrix in an array")
def array_counts(directory):
    matrix = np.random.default_rng(18).integers(0, 9, size=(5, 5))
    np.save(directory / "counts.npy", matrix)
    told = succeed("moe", "--counts-from", directory / "counts.npy", "--hidden", 3, "--dtype",
                   "fp32", "--ranks", 5, "--json").json()
    check(told, matrix)
    assert told["row_bytes"] == 12


@tests("moe of a count matrix in the least JSON that is one")
def json_counts(directory):
    (directory / "c.json").write_text('{"count_matrix": [[0, 3], [1, 0]]}')
    check(succeed("moe", "--counts-from", directory / "c.json", "--json").json(),
          np.array([[0, 3], [1, 0]]))


@tests("moe prints the matrix, the load and that all was verified")
def for_people(directory):
    routes = routing(np.random.default_rng(19), 40, 2, 6)
    np.save(directory / "routes.npy", routes)
    result = succeed("moe", "--ranks", 3, "--routes", directory / "routes.npy", "--experts", 6)
    lines = [line.split() for line in result.out.splitlines()]
    matrix = count_matrix(routes, 3, 6)
    for rank, row in enumerate(matrix):
        assert ["rank", str(rank), *map(str, row), str(row.sum())] in lines, result
    assert ["received", *map(str, matrix.sum(axis=0)), "80"] in lines, result
    assert "verified  every byte" in result.out, result


def received(result, ranks):
    """Of more ranks than a matrix is printed for: the numbers behind "from rank"."""
    loads = []
    for line in result.out.splitlines():
        if line.startswith("  from rank "):
            first, *numbers = map(int, line.split()[2:])
            assert first == len(loads), line
            loads += numbers
    assert len(loads) == ranks, result
    return loads


def matrix_left_out(directory, ranks):
    routes = routing(np.random.default_rng(21), 300, 3, 2 * ranks)
    np.save(directory / "routes.npy", routes)
    args = ("moe", "--ranks", ranks, "--routes", directory / "routes.npy", "--experts",
            2 * ranks, "--hidden", 4)
    result = succeed(*args)
    matrix = count_matrix(routes, ranks, 2 * ranks)
    assert received(result, ranks) == matrix.sum(axis=0).tolist(), result
    assert f"the count matrix of {ranks} ranks is left out here,\n  --json has it" in result.out, \
        result
    assert "rank (column)" not in result.out, result
    assert f"most at rank {matrix.sum(axis=0).argmax()}:" in result.out, result
    check(succeed(*args, "--json").json(), matrix)


for _ranks in (17, 20, 24, 33):
    tests.add(f"moe of {_ranks} ranks prints what each received, and that the matrix is left out",
              matrix_left_out, _ranks)


@tests("moe of 16 ranks prints the matrix")
def matrix_of_16(directory):
    routes = routing(np.random.default_rng(22), 100, 2, 32)
    np.save(directory / "routes.npy", routes)
    result = succeed("moe", "--ranks", 16, "--routes", directory / "routes.npy", "--experts", 32,
                     "--hidden", 4)
    lines = [line.split() for line in result.out.splitlines()]
    matrix = count_matrix(routes, 16, 32)
    for rank, row in enumerate(matrix):
        assert ["rank", str(rank), *map(str, row), str(row.sum())] in lines, result
    assert ["received", *map(str, matrix.sum(axis=0)), "200"] in lines, result
    assert "left out" not in result.out, result


@tests("moe --help has every dtype that there is")
def all_dtypes(_):
    text = succeed("moe", "--help").out
    for dtype in DTYPES:
        assert re.search(rf"[ (]{dtype}[,. )\n]", text), (dtype, text)


@tests("moe of big-endian routes")
def big_endian(directory):
    rng = np.random.default_rng(23)
    for dtype in (">i4", ">i8"):
        run(directory, routing(rng, 40, 2, 6, dtype, lowest=-1), 3, 6, "--hidden", 4)


@tests("moe of the JSON keys that are promised")
def json_keys(directory):
    told = run(directory, routing(np.random.default_rng(20), 12, 2, 6), 3, 6)
    for key in ("ranks", "max_recv", "count_matrix", "recv_matrix", "clamped", "bytes",
                "verified", "provider", "rail", "mode", "seconds", "experts", "tokens", "topk"):
        assert key in told, key


tests.run()
