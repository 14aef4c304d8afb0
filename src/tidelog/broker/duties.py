"""What a broker does by the clock: each duty is a function run again and again on the loop.

A duty that fails is logged (`supervisor`) and tried again at its next turn; one failing duty stops
neither the broker nor the other duties.
"""

from __future__ import annotations

from collections.abc import Callable

from tidelog.clock import Timer, TimerHandle
from tidelog.supervisor import attempt


class Duty:
    def __init__(
        self, name: str, interval_ms: Callable[[], int], run: Callable[[], object], timer: Timer
    ) -> None:
        self.name = name
        self._interval_ms = interval_ms  # asked before each turn: it may be configured anew
        self._run = run
        self._timer = timer
        self._handle: TimerHandle | None = None

    def start(self) -> None:
        self._handle = self._timer.call_later(self._interval_ms() / 1000, self._turn)

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _turn(self) -> None:
        attempt(self.name, self._run)
        if self._handle is not None:
            self.start()
