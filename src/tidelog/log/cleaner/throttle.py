"""A bound on the bytes a second that all cleaner threads read and write together."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Final

from tidelog.clock import Clock

CHECK_INTERVAL_S: Final = 0.3


class IoThrottle:
    """For any thread. `wait(seconds)` sleeps; whoever stops the cleaner cuts it short.

    Bytes are counted in periods of CHECK_INTERVAL_S; at the end of one, whoever comes waits for as
    long as the bytes were too many.
    """

    def __init__(
        self, bytes_per_second: float, clock: Clock, wait: Callable[[float], object]
    ) -> None:
        self.bytes_per_second = bytes_per_second
        self._clock = clock
        self._wait = wait
        self._lock = Lock()
        self._period_start_s = clock.monotonic()
        self._period_bytes = 0

    def take(self, count: int) -> None:
        """Before or after so many bytes are read or written."""
        with self._lock:
            self._period_bytes += count
            now_s = self._clock.monotonic()
            elapsed_s = now_s - self._period_start_s
            if elapsed_s <= CHECK_INTERVAL_S or self._period_bytes == 0:
                return
            behind_s = self._period_bytes / self.bytes_per_second - elapsed_s
            if behind_s > 0:
                self._wait(behind_s)
                now_s = self._clock.monotonic()
            self._period_start_s = now_s
            self._period_bytes = 0
