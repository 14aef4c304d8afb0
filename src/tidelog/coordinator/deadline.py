"""A deadline that is pushed back again and again, as heartbeats do.

Pushing it back only notes the new time: the timer that runs finds out when it fires, and sleeps
on. So a heartbeat costs no timer.
"""

from __future__ import annotations

from collections.abc import Callable

from tidelog.clock import Clock, Timer, TimerHandle


class Deadline:
    __slots__ = ("_armed_until", "_callback", "_clock", "_deadline", "_handle", "_timer")

    def __init__(self, clock: Clock, timer: Timer, callback: Callable[[], object]) -> None:
        self._clock = clock
        self._timer = timer
        self._callback = callback
        self._deadline = 0.0
        self._armed_until = 0.0  # when the timer fires; never after the deadline
        self._handle: TimerHandle | None = None

    def push_back(self, timeout_ms: int) -> None:
        """The callback comes that long from now, unless pushed again; it may come sooner too."""
        self._deadline = deadline = self._clock.monotonic() + timeout_ms / 1000
        if self._handle is not None:
            if self._armed_until <= deadline:
                return
            self._handle.cancel()
        self._arm(timeout_ms / 1000)

    def cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _arm(self, delay: float) -> None:
        self._armed_until = self._deadline
        self._handle = self._timer.call_later(delay, self._fire)

    def _fire(self) -> None:
        remaining = self._deadline - self._clock.monotonic()
        if remaining > 0.001:
            self._arm(remaining)
            return
        self._handle = None
        self._callback()
