"""Ports for brokers whose address a test must know before they start."""

from __future__ import annotations

import random
import socket
from typing import Final

# Below those that the system gives to connections, so that none takes them meanwhile.
CANDIDATES: Final = range(16000, 20000)


def unused_ports(count: int) -> list[int]:
    found: list[int] = []
    for port in random.sample(CANDIDATES, 100):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                found.append(port)
        if len(found) == count:
            break
    return found
