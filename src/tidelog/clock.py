"""Time as an argument: whoever needs the time or a timer is handed one of these."""

from __future__ import annotations

import asyncio
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


async def pause(timer: Timer, seconds: float) -> None:
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def wake() -> None:
        if not over.done():
            over.set_result(None)

    handle = timer.call_later(seconds, wake)
    try:
        await over
    finally:
        handle.cancel()
