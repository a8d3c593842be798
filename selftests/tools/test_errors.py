#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Each wrong input: the exit code, a sentence that says what is wrong, and no file left."""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "lib"))

from tap import NPUWIN, Tests, np, npuwin  # noqa: E402

FAILED, USAGE, FILE = 1, 2, 3

tests = Tests()


def prepare(directory):
    np.save(directory / "in.npy", np.arange(48, dtype=np.float32).reshape(2, 6, 4))
    np.save(directory / "counts.npy", np.ones((2, 2), np.int32))
    np.save(directory / "routes.npy", np.array([[0, 1], [2, 3], [1, -1]], np.int32))
    np.save(directory / "tokens.npy", np.zeros((3, 5), np.float16))


def a2av_args(**changes):
    args = {"ranks": 2, "input": "in.npy", "counts": "counts.npy", "output": "out.npy",
            "recv-counts": "recv.npy"}
    args.update({key.replace("_", "-"): value for key, value in changes.items()})
    return ["a2av"] + [f"--{key}={value}" for key, value in args.items() if value is not None]


def moe_args(**changes):
    args = {"ranks": 2, "routes": "routes.npy", "experts": 4}
    args.update({key.replace("_", "-"): value for key, value in changes.items()})
    return ["moe"] + [f"--{key}={value}" for key, value in args.items() if value is not None]


def refused(directory, args, code, sentence, change=None, env=None):
    prepare(directory)
    if change:
        change(directory)
    before = sorted(os.listdir(directory))
    result = npuwin(*args, cwd=directory, env=env)
    assert result.code == code, result
    assert re.search(sentence, result.err), f"no {sentence!r}\n{result}"
    assert not result.out and len(result.err.splitlines()) == 1, result
    assert sorted(os.listdir(directory)) == before, os.listdir(directory)


def bad(name, args, code, sentence, change=None, env=None):
    tests.add(name, refused, args, code, sentence, change, env)


# --- Files that are no arrays ------------------------------------------------


def write(name, data):
    return lambda directory: (directory / name).write_bytes(data)


def save(name, array):
    return lambda directory: np.save(directory / name, array)


def npy(header, data=b"", version=b"\x01\x00", length=None):
    if isinstance(header, str):
        header = header.encode("latin1")
    length = len(header) if length is None else length
    size = length.to_bytes(2 if version == b"\x01\x00" else 4, "little")
    return b"\x93NUMPY" + version + size + header + data


def header(descr="'<f4'", order="False", shape="(2, 6, 4)"):
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}\n"


def remove(name):
    return lambda directory: (directory / name).unlink()


def make_directory(directory):
    (directory / "in.npy").unlink()
    (directory / "in.npy").mkdir()


def make_pipe(directory):
    (directory / "in.npy").unlink()
    os.mkfifo(directory / "in.npy")


def make_socket(directory):
    (directory / "in.npy").unlink()
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(directory / "in.npy"))


def shorten(directory):
    path = directory / "in.npy"
    path.write_bytes(path.read_bytes()[:-1])


def lengthen(directory):
    with open(directory / "in.npy", "ab") as file:
        file.write(b"\n")


def save_fortran(directory):
    np.save(directory / "in.npy", np.asfortranarray(np.load(directory / "in.npy")))


def save_objects(directory):
    np.save(directory / "in.npy", np.full((2, 6, 4), None, object), allow_pickle=True)


DATA = bytes(192)
IN = (
    ("a missing file", remove("in.npy"), "cannot read in.npy: No such file"),
    ("a directory", make_directory, "in.npy: it is a directory"),
    ("a pipe that nobody writes", make_pipe, "in.npy: it is a pipe"),
    ("a socket", make_socket, "cannot read in.npy"),
    ("an empty file", write("in.npy", b""), "in.npy: it is empty"),
    ("a text file", write("in.npy", b"1 2 3\n" * 9), "in.npy: it is not a .npy file"),
    ("a file that ends in the magic", write("in.npy", b"\x93NUM"), "it is not a .npy file"),
    ("format version 4.0", write("in.npy", npy(header(), DATA, b"\x04\x00")), "version"),
    ("format version 1.1", write("in.npy", npy(header(), DATA, b"\x01\x01")), "version"),
    ("a file that ends in its header's length", write("in.npy", b"\x93NUMPY\x01\x00\x46"),
     "truncated in its header"),
    ("a header longer than its file", write("in.npy", npy(header(), DATA, length=60000)),
     "truncated in its header"),
    ("a header of 4 GiB", write("in.npy", npy(header(), DATA, b"\x02\x00", 2**32 - 1)),
     "truncated in its header"),
    ("a header that is no dictionary", write("in.npy", npy("[1, 2]", DATA)), "dictionary"),
    ("an unended header", write("in.npy", npy("{'descr': '<f4'", DATA)), "dictionary"),
    ("a header with an unended string", write("in.npy", npy("{'descr': '<f4", DATA)), "dtype"),
    ("a header with more after it", write("in.npy", npy(header() + "x", DATA)), "goes on"),
    ("a header without a shape", write("in.npy", npy("{'descr': '<f4', 'fortran_order': False}",
                                                     DATA)), "lacks"),
    ("a header with a key twice", write("in.npy", npy("{'shape': (2,), 'shape': (2,)}", DATA)),
     "key twice"),
    ("a header with an unknown key", write("in.npy", npy("{'order': 'C'}", DATA)),
     "unknown key"),
    ("a header of NUL bytes", write("in.npy", npy(bytes(118), DATA)), "dictionary"),
    ("a header with a control character in its dtype", write("in.npy", npy(
        header(descr="'\x1b[31m'"), DATA)), "dtype '\\?\\[31m'"),
    ("Fortran order", save_fortran, "Fortran order"),
    ("a Fortran order that is no boolean", write("in.npy", npy(header(order="0"), DATA)),
     "no boolean"),
    ("a shape that is a list", write("in.npy", npy(header(shape="[2, 6, 4]"), DATA)), "tuple"),
    ("a shape of a negative extent", write("in.npy", npy(header(shape="(-2, 6)"), DATA)),
     "tuple"),
    ("a shape of a fraction", write("in.npy", npy(header(shape="(2.5, 6)"), DATA)), "tuple"),
    ("a shape that is a number in parentheses", write("in.npy", npy(header(shape="(2)"), DATA)),
     "tuple"),
    ("an extent over 64 bits", write("in.npy", npy(header(shape="(36893488147419103232, 1)"),
                                                   DATA)), "64 bits"),
    ("a shape whose product overflows", write("in.npy", npy(header(
        shape="(2, 4294967296, 4294967296)"), DATA)), "does not fit"),
    ("a shape whose product wraps to the file's size", write("in.npy", npy(header(
        shape="(2, 4611686018427387928)"), DATA)), "does not fit"),
    ("a shape of 33 dimensions", write("in.npy", npy(header(shape="(" + "1, " * 33 + ")"),
                                                     DATA)), "more than 32"),
    ("an extent of 0", save("in.npy", np.zeros((2, 6, 0), np.float32)), "extent .* is 0"),
    ("MAX_RECV 0", save("in.npy", np.zeros((2, 0, 3), np.float32)), "extent .* is 0"),
    ("a truncated file", shorten, "truncated: it has 191 of 192 bytes"),
    ("a file with bytes at its end", lengthen, "1 bytes follow the end"),
    ("Python objects", save_objects, "Python objects"),
    ("a structured dtype", save("in.npy", np.zeros((2, 6), [("a", "i4"), ("b", "i4")])),
     "structured"),
    ("a structured dtype of 4 bytes", save("in.npy", np.zeros((2, 6), [("a", "i4")])),
     "structured"),
    ("a structured dtype that is nested", save("in.npy", np.zeros((2, 6), [
        ("a", [("b", "i2"), ("c", "i2")])])), "structured"),
    ("elements of 16 bytes", save("in.npy", np.zeros((2, 6, 4), "c16")), "1, 2, 4 or 8 bytes"),
    ("big-endian elements of 16 bytes", save("in.npy", np.zeros((2, 6, 4), ">c16")),
     "1, 2, 4 or 8 bytes"),
    ("text of 12 bytes", save("in.npy", np.zeros((2, 6, 4), "U3")), "1, 2, 4 or 8 bytes"),
    ("elements of 3 bytes", save("in.npy", np.zeros((2, 6, 4), "S3")), "1, 2, 4 or 8 bytes"),
    ("elements of 0 bytes", write("in.npy", npy(header(descr="'|V0'"))), "1, 2, 4 or 8 bytes"),
    ("a dtype that is unknown", write("in.npy", npy(header(descr="'<q4'"), DATA)),
     "dtype is not known"),
    ("a dtype with rubbish after it", write("in.npy", npy(header(descr="'<f4x'"), DATA)),
     "dtype is not known"),
    ("a dtype without a byte order", write("in.npy", npy(header(descr="'f4'"), DATA)),
     "byte order"),
    ("a dtype of the byte order of the machine", write("in.npy", npy(header(descr="'=f4'"),
                                                                     DATA)), "byte order"),
    ("a dtype that is empty", write("in.npy", npy(header(descr="''"), DATA)), "byte order"),
    ("one dimension", save("in.npy", np.zeros(12, np.float32)), r"shape is \[12\], not"),
    ("no dimension", save("in.npy", np.float32(1)), r"shape is \[\], not"),
    ("parts of other ranks", save("in.npy", np.zeros((3, 6), np.float32)),
     r"shape is \[3, 6\], and --ranks is 2"),
    ("rows that are no multiple of the ranks", save("in.npy", np.zeros((2, 7), np.float32)),
     "7 rows are no multiple of 2 ranks"),
)
for _name, _change, _sentence in IN:
    bad(f"a2av refuses as input {_name}", a2av_args(), FILE, _sentence, _change)

COUNTS = (
    ("a missing file", remove("counts.npy"), "cannot read counts.npy: No such file"),
    ("fractions", save("counts.npy", np.ones((2, 2))), "not int32 or int64"),
    ("int16", save("counts.npy", np.ones((2, 2), np.int16)), "not int32 or int64"),
    ("uint32", save("counts.npy", np.ones((2, 2), np.uint32)), "not int32 or int64"),
    ("one dimension", save("counts.npy", np.ones(4, np.int32)), r"shape is \[4\]"),
    ("a shape that is not square", save("counts.npy", np.ones((2, 3), np.int32)),
     r"shape is \[2, 3\]"),
    ("a shape of [N, N, 2]", save("counts.npy", np.ones((2, 2, 2), np.int32)),
     r"shape is \[2, 2, 2\]"),
    ("another number of ranks", save("counts.npy", np.ones((3, 3), np.int32)),
     "counts of 3 ranks, and --ranks is 2"),
    ("over 1024 ranks", save("counts.npy", np.ones((1025, 1025), np.int32)), "1024"),
    ("a truncated file", lambda d: (d / "counts.npy").write_bytes(
        (d / "counts.npy").read_bytes()[:-4]), "truncated"),
)
for _name, _change, _sentence in COUNTS:
    bad(f"a2av refuses as counts {_name}", a2av_args(), FILE, _sentence, _change)

# --- Output files ------------------------------------------------------------

bad("a2av refuses an output that is a directory", a2av_args(output="."), FILE,
    "cannot write .: it exists and is not a file")
bad("a2av refuses an output that is a device", a2av_args(output="/dev/null"), FILE,
    "cannot write /dev/null")
bad("a2av refuses an output in a missing folder", a2av_args(output="no/out.npy"), FILE,
    "cannot write no/out.npy: No such file")
bad("a2av leaves no output where that for the counts cannot be", a2av_args(
    recv_counts="no/recv.npy"), FILE, "cannot write no/recv.npy")
bad("a2av refuses a name that is too long", a2av_args(output="x" * 300), FILE,
    "cannot write x+: File name too long")
bad("a2av refuses one file for both outputs", a2av_args(recv_counts="./out.npy"), USAGE,
    "are the same file")


@tests("a2av that fails leaves the output that was there")
def keep_output(directory):
    prepare(directory)
    (directory / "out.npy").write_text("mine")
    (directory / "counts.npy").write_text("none")
    assert npuwin(*a2av_args(), cwd=directory).code == FILE
    assert (directory / "out.npy").read_text() == "mine"


# --- moe ---------------------------------------------------------------------

ROUTES = (
    ("a missing file", remove("routes.npy"), "cannot read routes.npy"),
    ("fractions", save("routes.npy", np.ones((2, 2))), "not int32 or int64"),
    ("uint8", save("routes.npy", np.ones((2, 2), np.uint8)), "not int32 or int64"),
    ("one dimension", save("routes.npy", np.ones(4, np.int32)), r"shape is \[4\]"),
    ("three dimensions", save("routes.npy", np.ones((2, 2, 1), np.int32)), r"\[2, 2, 1\]"),
    ("no tokens", save("routes.npy", np.ones((0, 2), np.int32)), "extent .* is 0"),
    ("an expert that is not", save("routes.npy", np.array([[0, 1], [3, 4]], np.int32)),
     "choice 1 of token 1 is expert 4, and there are 4"),
    ("an expert over 32 bits", save("routes.npy", np.array([[2**40, 1]], np.int64)),
     "choice 0 of token 0 is expert 1099511627776"),
)
for _name, _change, _sentence in ROUTES:
    bad(f"moe refuses as routes {_name}", moe_args(), FILE, _sentence, _change)

bad("moe refuses tokens of another number", moe_args(tokens="tokens.npy"), FILE,
    r"shape is \[4, 5\], and routes.npy has 3", save("tokens.npy", np.zeros((4, 5))))
bad("moe refuses tokens without dimensions", moe_args(tokens="tokens.npy"), FILE,
    "no dimensions", save("tokens.npy", np.float64(1)))
bad("moe refuses a size over the address space", moe_args(hidden=2**40, max_recv=2**31 - 1),
    USAGE, "address space")

COUNTS_FROM = (
    ("a missing file", None, "cannot read c.json"),
    ("a folder", lambda d: (d / "c.json").mkdir(), "not a file"),
    ("an empty file", write("c.json", b""), "empty"),
    ("text", write("c.json", b"hello"), "neither JSON nor"),
    ("unended JSON", write("c.json", b'{"count_matrix": [[1]'), "neither JSON nor"),
    ("JSON and more", write("c.json", b'{"count_matrix": [[1]]}\n{}'), "neither JSON nor"),
    ("a JSON list", write("c.json", b"[[1]]"), "not a JSON object"),
    ("JSON without a matrix", write("c.json", b"{}"), "count_matrix"),
    ("a matrix of no ranks", write("c.json", b'{"count_matrix": []}'), "1 to 1024"),
    ("a matrix that is not square", write("c.json", b'{"count_matrix": [[1, 2]]}'),
     "not square"),
    ("a matrix of fractions", write("c.json", b'{"count_matrix": [[1.5]]}'), "whole numbers"),
    ("a negative count", write("c.json", b'{"count_matrix": [[0, 1], [-1, 0]]}'),
     "count of rank 1 for rank 0 is -1"),
    ("a count over int32", write("c.json", b'{"count_matrix": [[2147483648]]}'),
     "2147483648, out of"),
    ("an unknown dtype", write("c.json", b'{"count_matrix": [[1]], "dtype": "q7"}'), "'q7'"),
    ("a negative hidden", write("c.json", b'{"count_matrix": [[1]], "hidden": -1}'), "hidden"),
)
for _name, _change, _sentence in COUNTS_FROM:
    bad(f"moe refuses as --counts-from {_name}", ["moe", "--counts-from", "c.json"], FILE,
        _sentence, _change)
bad("moe refuses --counts-from of other ranks", ["moe", "--counts-from", "counts.npy",
                                                 "--ranks", 3], FILE, "--ranks is 3")

# --- Options -----------------------------------------------------------------

OPTIONS = (
    ([], "which command? see npuwin --help"),
    (["--version", "extra"], "unexpected argument 'extra'"),
    (["--nonsense"], "unknown option '--nonsense'"),
    (["nonsense"], "unknown command 'nonsense'"),
    (["infos"], "did you mean info"),
    (["foo"], "unknown command 'foo'; see npuwin --help"),
    (["list", "--nonsense"], "unknown option --nonsense"),
    (["list", "-j"], "unknown option -j"),
    (["list", "extra"], "unexpected argument 'extra'"),
    (["list", "--json=yes"], "--json takes no value"),
    (["info", "a", "b"], "unexpected argument 'b'"),
    (["doctor", "extra"], "unexpected argument 'extra'"),
    (["doctor", "--nonsense=1"], "unknown option --nonsense;"),
    (a2av_args() + ["--iteration", "1"], "did you mean --iterations"),
    (a2av_args() + ["extra"], "unexpected argument 'extra'"),
    (a2av_args() + ["--mode"], "--mode needs a value"),
    (a2av_args(mode="blocks"), "--mode is block or rows, not 'blocks'"),
    (a2av_args(rail="hosts"), "--rail is host or direct, not 'hosts'"),
    (a2av_args(ranks=0), "--ranks 0 is out of 1..1024"),
    (a2av_args(ranks=1025), "--ranks 1025 is out of"),
    (a2av_args(ranks="99999999999999999999"), "--ranks 99999999999999999999 is out of"),
    (a2av_args(ranks="two"), "whole number, not 'two'"),
    (a2av_args(ranks="-1"), "whole number, not '-1'"),
    (a2av_args(ranks="1.5"), "whole number, not '1.5'"),
    (a2av_args(iterations=0), "--iterations 0 is out of"),
    (a2av_args(timeout=0), "--timeout takes seconds above 0, not '0'"),
    (a2av_args(timeout="nan"), "--timeout takes seconds above 0, not 'nan'"),
    (a2av_args(timeout="soon"), "--timeout takes seconds above 0, not 'soon'"),
    (a2av_args(output=""), "--output needs a value that is not empty"),
    (a2av_args() + ["--threads", "--processes"], "--threads and --processes exclude"),
    (a2av_args(ranks=None), "--ranks is missing"),
    (a2av_args(input=None), "--input is missing"),
    (a2av_args(counts=None), "--counts is missing"),
    (a2av_args(output=None), "--output is missing"),
    (a2av_args(recv_counts=None), "--recv-counts is missing"),
    (moe_args(ranks=None), "--ranks is missing"),
    (moe_args(routes=None), "--routes or --counts-from is missing"),
    (moe_args(experts=None), "--experts is missing"),
    (moe_args(experts=0), "--experts 0 is out of"),
    (moe_args(max_recv=0), "--max-recv 0 is out of"),
    (moe_args(dtype="float"), "--dtype 'float' is not known"),
    (moe_args(tokens="tokens.npy", hidden=4), "--tokens and --hidden exclude"),
    (moe_args(tokens="tokens.npy", dtype="bf16"), "--tokens and --dtype exclude"),
    (moe_args(counts_from="counts.npy"), "--counts-from and --routes exclude"),
)
for _args, _sentence in OPTIONS:
    bad(f"npuwin says: {_sentence} ({_args[0] if _args else ''})", _args, USAGE,
        re.escape(_sentence))

# --- Providers and devices ---------------------------------------------------

for _args in (a2av_args(provider="tcp"), moe_args(provider="tcp"), ["list", "--provider", "tcp"],
              ["info", "--provider=tcp"]):
    bad(f"{_args[0]} refuses a provider that is none", _args, USAGE,
        "--provider is shm or dev, not 'tcp'")
bad("an unknown provider of the environment is named", a2av_args(), FAILED, "tcp",
    env={"NPUWIN_PROVIDER": "tcp"})
bad("an unknown provider of the environment is named where ranks are processes", a2av_args() +
    ["--processes"], FAILED, "tcp", env={"NPUWIN_PROVIDER": "tcp"})
bad("a device that is not is named", ["info", "npuwin77", "--provider", "shm"], FAILED,
    "no device 'npuwin77'")
if not os.path.exists("/dev/npuwin0"):
    bad("provider dev without the driver fails", a2av_args(provider="dev"), FAILED, "npuwin")


@tests("output that cannot be written is a failure")
def full(directory):
    prepare(directory)
    for args in (["list"], ["--version"], ["moe", "--help"]):
        with open("/dev/full", "w", encoding="ascii") as out:
            done = subprocess.run([NPUWIN, *args], stdout=out, stderr=subprocess.PIPE,
                                  check=False)
        assert done.returncode == FAILED and b"standard output" in done.stderr, done


tests.run()
