"""What a log is given by whoever hosts it: time, chance, and somebody to finish its work later."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import TYPE_CHECKING, Final

from tidelog.clock import Clock

if TYPE_CHECKING:
    from tidelog.log.partition_log import PartitionLog

PRODUCER_EXPIRATION_MS: Final = 86_400_000


def _ignore(*_: object) -> None:
    pass


class FlushTimes:
    """Flushes of all logs of a broker that succeeded, from their begin on the loop to their end."""

    __slots__ = ("count", "seconds")

    def __init__(self) -> None:
        self.count = 0
        self.seconds = 0.0

    def add(self, seconds: float) -> None:
        self.count += 1
        self.seconds += seconds


class LogEnvironment:
    """Shared by all logs of a broker; touched only on the broker loop. Of a log that is being made
    in a thread, that thread asks for the time, for chance, and reports errors.

    `delete_later(paths, delay_ms)` removes files that a log has renamed to `.deleted`.
    `rolled(log)` is called after a roll: the segment that became inactive is to be flushed.
    `io_failed(path, what, error)` is told of every I/O error, before whoever asked for the work.
    """

    __slots__ = (
        "clock",
        "delete_later",
        "flushes",
        "io_failed",
        "producer_expiration_ms",
        "random",
        "rolled",
    )

    def __init__(
        self,
        clock: Clock,
        *,
        random: Random | None = None,
        producer_expiration_ms: int = PRODUCER_EXPIRATION_MS,
        delete_later: Callable[[Sequence[str], int], object] = _ignore,
        rolled: Callable[[PartitionLog], object] = _ignore,
        io_failed: Callable[[str, str, OSError], object] = _ignore,
    ) -> None:
        self.clock = clock
        self.random = random if random is not None else Random()
        self.producer_expiration_ms = producer_expiration_ms
        self.delete_later = delete_later
        self.rolled = rolled
        self.io_failed = io_failed
        self.flushes = FlushTimes()
