# SPDX-License-Identifier: MIT
"""Ports for tests that listen."""

import contextlib
import random
import socket


def free_ports(count):
    """The first of COUNT ports in a row that nobody here has."""
    for _ in range(100):
        first = random.randrange(20000, 30000)
        with contextlib.ExitStack() as taken:
            try:
                for port in range(first, first + count):
                    taken.enter_context(socket.socket()).bind(("127.0.0.1", port))
                return first
            except OSError:
                pass
    raise RuntimeError(f"no {count} free ports in a row")
