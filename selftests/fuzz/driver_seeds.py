#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Make the seeds of fuzz_driver: what is right, and what is just wrong.

usage: driver_seeds.py DIR
"""

import pathlib
import struct
import sys

IDENT, GOOD_IDENT, CQE, STATE = range(4)
NO_RANK = 0xffffffff
PAGE = 4096


def ident(sizes=(PAGE, PAGE, PAGE, PAGE, PAGE, PAGE, PAGE, 8 * PAGE, 4 * PAGE, 16 * PAGE),
          first=2 * PAGE, bar=1 << 18, magic=b"NPUWIN-H", align=PAGE):
    regions, at = b"", first
    for size in sizes:
        regions += struct.pack("<QQ", at, size)
        at += -(-size // PAGE) * PAGE
    return bytes([IDENT]) + struct.pack("<Q", bar) + magic \
        + struct.pack("<IIQQ12I", 0x10000, 320, 3, 0xf00d0000, 1, 4, 4, 8, 64, 8, 16, 1024,
                      16, 16, 100, align) \
        + b"fuzz".ljust(80, b"\0") + regions


def recipe(order=0, gaps=(0,) * 10, queues=7, endpoints=7, depths=(6, 3, 3), align=0,
           rest=(0, 0, 0, 15, 99), changes=()):
    data = struct.pack("<I10BHH3BB5I", order, *gaps, queues, endpoints, *depths, align, *rest)
    for where, size, value in changes:
        data += struct.pack("<HQ", (size - 1) << 13 | where, value)[:2 + size]
    return bytes([GOOD_IDENT]) + data


def cqe(opcode=0, flags=1, rank=0, rows=0, nranks=4, seq=0, status=0, cqe_rank=NO_RANK,
        cell=0, value=0):
    desc = struct.pack("<BBBBIQQQIiQQQ", opcode, flags, 0, 0, rank, 0, 0, 0, rows, 0, 0, 0, 0)
    return bytes([CQE]) + struct.pack("<I", nranks - 1) + desc \
        + struct.pack("<QQIIIi", 0, seq, status, cqe_rank, cell, value)


def state(posted, behind, retired, taken, log_size, sq_head, cq_tail, seq, status=0):
    return bytes([STATE]) + struct.pack("<QQQIIII", posted, behind, retired, taken, log_size,
                                        sq_head, cq_tail) \
        + struct.pack("<QQIIIi", 0, seq, status, NO_RANK, 0, 0)


# Where the regions are in the identification, from admin_requests on.
OFFSETS = [0xa0 + 16 * i for i in range(10)]

SEEDS = {
    "ident": ident(),
    "ident-exact": ident(bar=37 * PAGE),
    "ident-short": ident(bar=36 * PAGE),
    "ident-low": ident(first=PAGE),
    "ident-magic": ident(magic=b"npuwin-h"),
    "ident-align": ident(align=2 * PAGE),
    "ident-huge": ident(sizes=(PAGE,) * 9 + (2**64 - 11 * PAGE,), bar=2**64 - 1),
    "recipe": recipe(),
    "recipe-order": recipe(order=3628799, gaps=range(10), align=9),
    "recipe-most": recipe(queues=4095, endpoints=4095, depths=(16, 15, 15),
                          rest=(0xffffffff,) * 5),
    "recipe-overlap": recipe(changes=[(OFFSETS[i], 8, 2 * PAGE) for i in range(10)]),
    "recipe-wrap": recipe(changes=[(OFFSETS[i] + 8, 8, 2**64 - PAGE) for i in range(10)]),
    "recipe-numbers": recipe(changes=[(where, 4, 0xffffffff)
                                      for where in range(0x20, 0x50, 4)]),
    "nop": cqe(),
    "silent": cqe(flags=0),
    "put-peer": cqe(opcode=1, rank=3, status=7, cqe_rank=3),
    "rank-of-desc": cqe(opcode=1, rank=70000, status=4, cqe_rank=70000),
    "wait-cell": cqe(opcode=3, rows=8, status=9, cqe_rank=2, cell=7, value=-1),
    "cell-end": cqe(opcode=3, rows=8, status=9, cell=8),
    "state": state(10, 4, 1, 3, 4, 8, 4, 7),
    "state-wrap": state(2**32 + 2, 6, 0, 0xfffffffe, 3, 1, 3, 2**32),
    "state-ahead": state(10, 4, 4, 0, 4, 11, 17, 10),
    "state-void": state(10, 4, 3, 0, 4, 6, 1, 7, 10),
}


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in SEEDS.items():
        (folder / name).write_bytes(data)


if __name__ == "__main__":
    main()
