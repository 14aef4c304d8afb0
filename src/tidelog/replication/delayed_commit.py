"""An answer that waits until records are committed: by all in-sync replicas, or its time is over.

This is where Produce requests with acks=all wait (Kafka's produce purgatory). Each partition's
outcome is told on its own; what is not committed in time is REQUEST_TIMED_OUT, and may be later.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tidelog.clock import Timer, TimerHandle
from tidelog.errors import ErrorCode

if TYPE_CHECKING:
    from tidelog.replication.partition import Partition

Settle = Callable[[ErrorCode], object]


class DelayedCommit:
    """Made, given its partitions by `wait_for`, then `park`ed once; ends with `finished`."""

    __slots__ = ("_finished", "_handle", "_timer", "_waiting")

    def __init__(self, timer: Timer, finished: Callable[[], object]) -> None:
        self._timer = timer
        self._finished: Callable[[], object] | None = finished
        self._waiting: dict[int, Settle] = {}
        self._handle: TimerHandle | None = None

    def wait_for(self, partition: Partition, offset: int, settle: Settle) -> None:
        """`settle` is told the outcome once everything below `offset` is committed."""
        number = len(self._waiting)
        self._waiting[number] = settle
        partition.when_committed(offset, lambda code: self._settled(number, code))

    def park(self, timeout_ms: int) -> None:
        if self._finished is not None and self._waiting:
            self._handle = self._timer.call_later(max(timeout_ms, 0) / 1000, self._time_is_over)
        else:
            self._finish()

    def hurry(self) -> None:
        """The broker stops: say now what is known."""
        self._time_is_over()

    def _settled(self, number: int, code: ErrorCode) -> None:
        settle = self._waiting.pop(number, None)
        if settle is None:
            return  # its time was over
        settle(code)
        if not self._waiting and self._handle is not None:
            self._handle.cancel()
            self._finish()

    def _time_is_over(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for settle in waiting.values():
            settle(ErrorCode.REQUEST_TIMED_OUT)
        if self._handle is not None:
            self._handle.cancel()
        self._finish()

    def _finish(self) -> None:
        finished, self._finished = self._finished, None
        if finished is not None:
            finished()
