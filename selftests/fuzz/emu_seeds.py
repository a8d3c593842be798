#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Make the seeds of fuzz_emu: programs that get far, one for each thing to get to.

usage: emu_seeds.py DIR
"""

import pathlib
import struct
import sys

(WRITE, DOORBELL, REQUEST, BIND, QUEUE, PEERS, DESC, TAKE, RESET, HOST,
 PEER_DESC) = range(11)
NOP, TPUT, TNOTIFY, TWAIT = range(4)
END, IRQ, REJECT = 0x01, 0x02, 0x80
NO_DEADLINE = 0x7fffffffffffffff
# What fuzz_emu's devices have: see its config.
CONTROL, ADMIN_TAIL, EVENT_HEAD = 0x1000, 0x1040, 0x1080
ARMS, RINGS, WINDOWS = 0x7000, 0x11000, 0x21000


def desc(opcode, flags=1, sub=0, ring=END, rank=0, src=0, dst=0, rows=0, value=0, row_bytes=0,
         src_stride=0, last=0):
    return struct.pack("<BBBBIQQQIiQQQ", opcode, flags, sub, ring, rank, 0x75736572, src, dst,
                       rows, value, row_bytes, src_stride, last)


def request(opcode, ident=0, args=b"", flags=0):
    return bytes([REQUEST]) + struct.pack("<HHIII", opcode, flags, 7, ident, 0) \
        + args.ljust(48, b"\0")


def write(offset, data):
    return bytes([WRITE]) + struct.pack("<IB", offset, len(data)) + data


def post(queue, what):
    return bytes([DESC, queue]) + what


READY = bytes([RESET])
RANK = READY + bytes([BIND, 0, 0, 2, QUEUE, 0, 0, 4, PEERS, 0])
PUT = desc(TPUT, rank=1, src=16, dst=32, rows=3, row_bytes=100, src_stride=128, last=256)
NOTIFY = desc(TNOTIFY, rank=1, dst=8, value=5)
WAIT = desc(TWAIT, rows=2, src_stride=4, value=1, last=NO_DEADLINE)

SEEDS = {
    "reset": READY + bytes([DOORBELL, 0, RESET, HOST]) + READY,
    "admin": READY + b"".join(request(op, 1) for op in range(12)),
    "admin-overrun": READY + write(ADMIN_TAIL, b"\xff\xff\0\0") + bytes([DOORBELL, 0]) + READY,
    "clock": READY + request(1, flags=1, args=struct.pack("<q", -1)),
    "bind-edge": READY + request(2, 1, struct.pack("<QQII", WINDOWS + 0x1e000, 0x1000, 0, 1)),
    "put": RANK + post(0, PUT) + bytes([TAKE, 0]),
    "put-self": RANK + post(0, desc(TPUT, src=0, dst=8, rows=1, row_bytes=4096)),
    "put-add": RANK + post(0, desc(TPUT, sub=2, rank=1, rows=1, row_bytes=64)),
    "put-huge": RANK + post(0, desc(TPUT, rank=1, src=2**64 - 8, rows=2**32 - 1,
                                    row_bytes=2**63, src_stride=2**63, last=2**63)),
    "notify": RANK + post(0, NOTIFY) + post(0, desc(TNOTIFY, flags=3, sub=1, rank=1, value=-1)),
    "wait": RANK + post(0, WAIT) + write(WINDOWS, b"\1\0\0\0" * 4) + bytes([DOORBELL, 0]),
    "wait-deadline": RANK + post(0, desc(TWAIT, rows=1, value=1)),
    "wait-woken": RANK + post(0, WAIT) + bytes([PEER_DESC])
    + desc(TNOTIFY, rank=0, dst=0, value=1) + bytes([PEER_DESC])
    + desc(TNOTIFY, rank=0, dst=4, value=1),
    "wait-by-rank": RANK + post(0, desc(TWAIT, flags=0x41, rows=2, src_stride=4, value=1,
                                        last=NO_DEADLINE)) + request(6, 0, struct.pack("<II", 1, 5)),
    "test-mismatch": RANK + post(0, desc(TWAIT, flags=0x11, ring=0, rows=1, value=1))
    + post(0, desc(NOP)) + post(0, desc(NOP)),
    "stop": RANK + post(0, desc(TPUT, rank=7)) + post(0, PUT) + request(10, 0) + post(0, PUT),
    "ring-byte": RANK + post(0, desc(NOP, ring=REJECT)) + request(10, 0)
    + post(0, desc(NOP, flags=0, ring=END | IRQ)),
    "cq-full": READY + bytes([BIND, 0, 0, 1, QUEUE, 0, 0, 0])
    + post(0, desc(NOP)) + post(0, desc(NOP)) + bytes([TAKE, 0]) + request(10, 0)
    + post(0, desc(NOP)),
    "abort": RANK + post(0, WAIT) + request(6, 0, struct.pack("<II", 0, 110), flags=1)
    + request(7, 0) + bytes([PEERS, 0]) + post(0, PUT),
    "unbind": RANK + request(9, 0) + request(3, 0, flags=1) + RANK,
    "peer-states": RANK + request(5, 0, struct.pack("<QII", RINGS, 0, 2)),
    "peer-states-far": RANK + request(5, 0, struct.pack("<QII", 2**64 - 2**48, 0, 2)),
    "host": RANK + post(0, WAIT) + bytes([HOST]) + RANK + post(0, PUT),
    "events": RANK + b"".join(write(ARMS, bytes([n])) + bytes([PEER_DESC])
                              + desc(TNOTIFY, rank=0, dst=0, value=n) for n in range(1, 6))
    + write(EVENT_HEAD, b"\xff") + bytes([DOORBELL, 0]),
    "control": write(CONTROL, b"\1\0\0\0\1\0\0\0") + bytes([DOORBELL, 0, DOORBELL, 3]),
}


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in SEEDS.items():
        (folder / name).write_bytes(data)


if __name__ == "__main__":
    main()
