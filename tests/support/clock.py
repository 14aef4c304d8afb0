"""A clock that moves only when a test says so, and the timers that hang on it."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count
from math import ceil, inf, nextafter


class FakeTimerHandle:
    __slots__ = ("callback", "cancelled")

    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class FakeClock:
    """Clock and Timer in one: `advance` moves both and runs the timers that fall due, in order."""

    def __init__(self, time_ms: int = 1_700_000_000_000) -> None:
        self._start_ms = time_ms
        self._elapsed_ms = 0
        self._timers: list[tuple[float, int, FakeTimerHandle]] = []
        self._numbers = count()

    def time_ms(self) -> int:
        return self._start_ms + self._elapsed_ms

    def monotonic(self) -> float:
        return self._elapsed_ms / 1000

    def call_later(self, delay: float, callback: Callable[[], object], /) -> FakeTimerHandle:
        handle = FakeTimerHandle(callback)
        due_ms = self._elapsed_ms + delay * 1000
        if delay > 0:  # however short: time passes
            due_ms = max(due_ms, nextafter(self._elapsed_ms, inf))
        heapq.heappush(self._timers, (due_ms, next(self._numbers), handle))
        return handle

    def advance(self, *, ms: int) -> None:
        """Time stands at each timer's own moment while its callback runs."""
        assert ms >= 0, ms
        until_ms = self._elapsed_ms + ms
        while self._timers and self._timers[0][0] <= until_ms:
            due_ms, _, handle = heapq.heappop(self._timers)
            # Never before the timer's own moment: who finds that he is early sets it again.
            self._elapsed_ms = max(self._elapsed_ms, ceil(due_ms))
            if not handle.cancelled:
                handle.callback()
        self._elapsed_ms = until_ms

    def jump(self, *, ms: int) -> None:
        """Somebody sets the wall clock: nothing else notices."""
        self._start_ms += ms

    def pending_timers(self) -> int:
        return sum(not handle.cancelled for _, _, handle in self._timers)


class BusyClock(FakeClock):
    """Whoever looks at it takes a millisecond of its time."""

    def monotonic(self) -> float:
        self._elapsed_ms += 1
        return super().monotonic()
