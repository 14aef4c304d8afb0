"""Time as an argument: whoever needs the time or a timer is handed one of these."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    def time_ms(self) -> int:
        """Wall-clock milliseconds since the epoch."""

    def monotonic(self) -> float:
        """Seconds that never go backwards."""


class SystemClock:
    def time_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()


class TimerHandle(Protocol):
    def cancel(self) -> None: ...


class Timer(Protocol):
    """What the asyncio loop offers for one-shot timers; tests pass a fake that is advanced."""

    def call_later(self, delay: float, callback: Callable[[], object], /) -> TimerHandle: ...
