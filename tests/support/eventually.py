"""Waiting for what a broker does in its own time, bounded."""

from __future__ import annotations

import time
from collections.abc import Callable

WITHIN_S = 90.0  # it only bounds a failure: other work may have the processors


def eventually(holds: Callable[[], bool], within_s: float = WITHIN_S) -> None:
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline, f"did not come true within {within_s} s"
        time.sleep(0.02)
