"""A clock that a test can move forward, and the timers that go by it.

A jump is like the sleep of a laptop: when it is over, every timer that is due runs once, the
earliest first, and one that sets itself again counts from the new time.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import Callable
from itertools import count


class WarpTimer:
    """A timer that was set; the heap holds it until it is due, cancelled or not."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        self.callback = None


class WarpClock:
    """A Clock and a Timer. Touched on its loop only, but for reading the time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, ahead_s: float = 0.0) -> None:
        self._loop = loop
        self._ahead_ns = round(ahead_s * 1e9)
        self._heap: list[tuple[float, int, WarpTimer]] = []
        self._numbers = count()
        self._wake: asyncio.TimerHandle | None = None
        self._wakes_at = float("inf")

    def time_ms(self) -> int:
        return (time.time_ns() + self._ahead_ns) // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic() + self._ahead_ns / 1e9

    def call_later(
        self, delay: float, callback: Callable[[], object], /
    ) -> WarpTimer | asyncio.TimerHandle:
        if delay <= 0:
            return self._loop.call_later(0, callback)
        timer = WarpTimer(callback)
        due = self.monotonic() + delay
        heapq.heappush(self._heap, (due, next(self._numbers), timer))
        self._arm()
        return timer

    def jump(self, seconds: float) -> None:
        """The timers that are due run before this returns."""
        if seconds < 0:
            raise ValueError("time does not go backwards: brokers and clients rely on that")
        self._ahead_ns += round(seconds * 1e9)
        self._run_due()

    def _run_due(self) -> None:
        now = self.monotonic()
        due: list[WarpTimer] = []
        while self._heap and self._heap[0][0] <= now:
            due.append(heapq.heappop(self._heap)[2])
        for timer in due:
            if timer.callback is not None:
                timer.callback()
        self._wakes_at = float("inf")
        self._arm()

    def _arm(self) -> None:
        while self._heap and self._heap[0][2].callback is None:
            heapq.heappop(self._heap)
        if not self._heap or self._heap[0][0] >= self._wakes_at:
            return
        if self._wake is not None:
            self._wake.cancel()
        self._wakes_at = self._heap[0][0]
        self._wake = self._loop.call_later(
            max(self._wakes_at - self.monotonic(), 0.0), self._run_due
        )
