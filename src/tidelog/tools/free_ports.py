"""Ports for servers that start a while after their port was chosen.

The kernel gives port 0, and every outgoing connection, a port of its ephemeral range. A port of
that range may be somebody's by the time the server binds it, so the ports here lie below it.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Iterable
from typing import Final

from tidelog.errors import StartupError

HOST: Final = "127.0.0.1"
FIRST_ANY: Final = 10_240
EPHEMERAL_FROM: Final = 32_768  # Linux' default; other systems begin later
PORTS_TRIED: Final = 1000


def free_port() -> int:
    return free_ports(0, 1)[0]


def free_ports(first: int, count: int) -> list[int]:
    """The first ports from `first` on that nobody listens on; 0: any such ports."""
    if first:
        candidates: Iterable[int] = range(first, min(first + PORTS_TRIED, 65_536))
    else:
        candidates = random.sample(range(FIRST_ANY, EPHEMERAL_FROM), PORTS_TRIED)
    found: list[int] = []
    for port in candidates:
        if is_free(port):
            found.append(port)
            if len(found) == count:
                return found
    raise StartupError(f"there are no {count} free ports from {first or FIRST_ANY} on")


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
