"""A Fetch that waits in the purgatory until enough bytes have arrived or its time is over.

It is registered with every partition it reads. A partition whose high watermark moves tells each
of its waiting fetches how many bytes readers can see now; that is a subtraction, so a produce pays
the same however many partitions the waiting fetch names. The answer itself is put together from
the timer, not inside the append: the producer is answered first, and a pipelined run of appends
wakes the reader once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from tidelog.clock import Timer, TimerHandle


class Watched(Protocol):
    """A partition, as the fetch sees it."""

    def watch(self, fetch: DelayedFetch) -> None: ...
    def unwatch(self, fetch: DelayedFetch) -> None: ...


class DelayedFetch:
    """Lives from `park` until it wakes, once: by bytes, by a change of a partition, by time or
    by `cancel`.
    """

    __slots__ = ("_bytes_missing", "_handle", "_partitions", "_timer", "_wake")

    def __init__(
        self,
        partitions: Sequence[Watched],
        bytes_missing: int,
        timer: Timer,
        wake: Callable[[], object],
    ) -> None:
        self._partitions = partitions
        self._bytes_missing = bytes_missing
        self._timer = timer
        self._wake: Callable[[], object] | None = wake
        self._handle: TimerHandle | None = None

    def park(self, wait_ms: float) -> None:
        for partition in self._partitions:
            partition.watch(self)
        self._handle = self._timer.call_later(wait_ms / 1000.0, self._fire)

    def bytes_became_visible(self, size_bytes: int) -> None:
        """In one of its partitions the high watermark has moved over so many bytes, at the most."""
        self._bytes_missing -= size_bytes
        if self._bytes_missing <= 0:
            self.wake_soon()

    def wake_soon(self) -> None:
        """Answer on the next turn of the loop; further calls until then change nothing."""
        if self._handle is not None:
            self._handle.cancel()
        self._leave()
        self._handle = self._timer.call_later(0.0, self._fire)

    def cancel(self) -> None:
        """The reader is gone: wake nobody."""
        self._wake = None
        if self._handle is not None:
            self._handle.cancel()
        self._leave()

    def _leave(self) -> None:
        for partition in self._partitions:
            partition.unwatch(self)
        self._partitions = ()

    def _fire(self) -> None:
        self._leave()
        wake, self._wake = self._wake, None
        if wake is not None:
            wake()
