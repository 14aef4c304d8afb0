"""Waiting for what a broker does in its own time, bounded."""

from __future__ import annotations

import time
from collections.abc import Callable


def eventually(holds: Callable[[], bool], within_s: float = 20.0) -> None:
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline, f"did not come true within {within_s} s"
        time.sleep(0.02)
