"""The outcome of an append by a coordinator: when all in-sync replicas have it, or cannot.

A log that demands a flush (flush.messages) is flushed on the way. Without another replica and
without a flush there is nothing to wait for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.errors import ErrorCode
from tidelog.pending import Pending

if TYPE_CHECKING:
    from tidelog.clock import Timer, TimerHandle
    from tidelog.replication.flusher import LogFlusher
    from tidelog.replication.partition import Partition


def await_commit(
    partition: Partition,
    end_offset: int,
    flusher: LogFlusher,
    timer: Timer | None = None,
    timeout_ms: int = 0,
) -> Pending[ErrorCode] | None:
    """None: everything below `end_offset` is committed; else the outcome comes later.

    With a timer it is REQUEST_TIMED_OUT at the latest after `timeout_ms`; the append may be
    committed all the same.
    """
    if partition.log.high_watermark >= end_offset:
        return None
    waiting = _Waiting()
    if timer is not None:
        waiting.start(timer, timeout_ms)
    if partition.flush_due:

        def flushed(error: OSError | None) -> None:
            if error is None:
                partition.flushed()
            else:
                waiting.settle(ErrorCode.KAFKA_STORAGE_ERROR)

        flusher.flush(partition.log, flushed)
    partition.when_committed(end_offset, waiting.settle)
    return waiting.outcome


class _Waiting:
    """Settled once, by whoever comes first."""

    __slots__ = ("_handle", "_settled", "outcome")

    def __init__(self) -> None:
        self.outcome: Pending[ErrorCode] = Pending()
        self._handle: TimerHandle | None = None
        self._settled = False

    def start(self, timer: Timer, timeout_ms: int) -> None:
        self._handle = timer.call_later(
            timeout_ms / 1000, lambda: self.settle(ErrorCode.REQUEST_TIMED_OUT)
        )

    def settle(self, code: ErrorCode) -> None:
        if self._settled:
            return
        self._settled = True
        if self._handle is not None:
            self._handle.cancel()
        self.outcome.complete(code)
