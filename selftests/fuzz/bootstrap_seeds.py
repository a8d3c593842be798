#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Make the seeds of fuzz_bootstrap: programs that get far, one for each thing to get to.

usage: bootstrap_seeds.py DIR
"""

import pathlib
import struct
import sys

SAY, HANG_UP, SEND, CALL, LEAVE = range(5)
(HELLO, CHALLENGE, PROOF, WELCOME, REFUSED, CALLS, RESULT, FAILED, ABORT, ABORTED) = range(1, 11)
ALLGATHER, BARRIER = 1, 2
MAGIC, VERSION = 0x6277706e, 1
NONCE, MAC, STREAM = 32, 32, 24


def message(kind, payload=b"", rank=1, nranks=3, version=VERSION, length=None):
    return struct.pack("<IHHIIII", MAGIC, version, kind, rank, nranks, 0,
                       len(payload) if length is None else length) + payload


def say(what, who=0):
    return bytes([SAY, who, len(what)]) + what


def send(kind, payload=b"", member=0, sequence=1):
    return bytes([SEND, member, kind, sequence, len(payload)]) + payload


def call(member, kind, payload=b""):
    return bytes([CALL, member, kind, len(payload)]) + payload


def all_call(kind, payload=b""):
    return b"".join(call(member, kind, payload) for member in range(3))


HELLOS = say(message(HELLO, b"n" * NONCE))
PROVED = HELLOS + say(message(PROOF, b"m" * (MAC + STREAM)))

SEEDS = {
    "hello": HELLOS,
    "hello-in-two": say(message(HELLO)[:10]) + say(message(HELLO)[10:] + b"n" * NONCE),
    "hello-version": say(message(HELLO, b"n" * NONCE, version=2)),
    "hello-long": say(message(HELLO, length=2**32 - 1)),
    "hello-short": say(message(HELLO, b"n")),
    "proof": PROVED,
    "proof-short": HELLOS + say(message(PROOF, b"m")),
    "proof-first": say(message(PROOF, b"m" * (MAC + STREAM))),
    "garbage": say(b"GET / HTTP/1.1\r\n\r\n" * 3),
    "hang-up": HELLOS + bytes([HANG_UP, 0]) + HELLOS,
    "gather": all_call(ALLGATHER, b"x" * 72) + all_call(BARRIER) + all_call(ALLGATHER, b"y"),
    "differ": call(0, ALLGATHER, b"x") + call(1, ALLGATHER, b"xy") + call(2, BARRIER),
    "lost-barrier": all_call(ALLGATHER, b"x") + call(0, BARRIER) + bytes([LEAVE, 2])
    + call(1, BARRIER) + all_call(ALLGATHER, b"z"),
    "lost-gather": all_call(ALLGATHER, b"x") + call(0, ALLGATHER, b"a") + call(2, ALLGATHER, b"c")
    + bytes([LEAVE, 2]) + call(1, ALLGATHER, b"b") + call(2, ALLGATHER, b"d"),
    "again": call(0, ALLGATHER, b"x") + call(0, ALLGATHER, b"y") + call(0, BARRIER),
    "late": send(CALLS, struct.pack("<IIq", BARRIER, 0, -1)) + send(CALLS, struct.pack(
        "<IIq", BARRIER, 0, 2**63 - 1), 1) + send(CALLS, struct.pack("<IIq", BARRIER, 0, 0), 2),
    "abort": call(0, BARRIER) + send(ABORT, struct.pack("<I", 5), 1) + all_call(BARRIER)
    + bytes([LEAVE, 1]) + call(1, BARRIER),
    "types": b"".join(send(kind, b"\0" * 16) for kind in range(14)),
    "short": send(CALLS) + send(CALLS, b"\1" * 15) + send(ABORT, b"\1") + send(ABORT),
}


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in SEEDS.items():
        (folder / name).write_bytes(data)


if __name__ == "__main__":
    main()
