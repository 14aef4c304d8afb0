"""A bound on the bytes a second that all cleaner threads read and write together."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from threading import Lock
from typing import Final

from tidelog.clock import Clock
from tidelog.rate import RateLimiter

CHECK_INTERVAL_S: Final = 0.3


class IoThrottle:
    """For any thread. `wait(seconds)` sleeps; whoever stops the cleaner cuts it short.

    Bytes are counted in periods of at least CHECK_INTERVAL_S, as Kafka's Throttler does. Whoever
    ends a period waits until its bytes are paid for; what a period leaves unused is lost.
    """

    def __init__(
        self, bytes_per_second: float, clock: Clock, wait: Callable[[float], object]
    ) -> None:
        self._limiter = RateLimiter(bytes_per_second, clock, burst_s=inf)
        self._clock = clock
        self._wait = wait
        self._lock = Lock()
        self._period_start_s = clock.monotonic()

    def change(self, bytes_per_second: float) -> None:
        """From the broker loop, which must not wait for the lock: a cleaner may sleep with it."""
        self._limiter.change(bytes_per_second)

    def take(self, count: int) -> None:
        """Before or after so many bytes are read or written."""
        with self._lock:
            self._limiter.spend(count)
            if self._clock.monotonic() - self._period_start_s <= CHECK_INTERVAL_S:
                return
            wait_s = self._limiter.wait_s()
            if wait_s > 0:
                self._wait(wait_s)
            self._period_start_s = self._clock.monotonic()
            self._limiter.restart()
