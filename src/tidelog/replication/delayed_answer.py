"""Answers that wait for what other replicas do, or until their time is over.

`DelayedAnswer` is where Produce requests with acks=all wait for the high watermark (Kafka's
DelayedProduce), and DeleteRecords for the log start of every replica (DelayedDeleteRecords).
The outcome of each partition is told on its own; what has not come in time is REQUEST_TIMED_OUT,
and may come later.

`await_commit` is the outcome of one append by a coordinator: when all in-sync replicas have it, or
cannot. A log that demands a flush (flush.messages) is flushed on the way. Without another replica
and without a flush there is nothing to wait for.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from tidelog.clock import Timer, TimerHandle
from tidelog.errors import ErrorCode
from tidelog.pending import Pending
from tidelog.supervisor import tell_each

if TYPE_CHECKING:
    from tidelog.replication.flusher import LogFlusher
    from tidelog.replication.partition import Partition

Settle = Callable[[ErrorCode], object]


class DelayedAnswer:
    """Made, given what to wait for, then `park`ed once; ends with `finished`."""

    __slots__ = ("_asked", "_finished", "_handle", "_is_parked", "_timer", "_waiting")

    def __init__(self, timer: Timer, finished: Callable[[], object]) -> None:
        self._timer = timer
        self._finished: Callable[[], object] | None = finished
        self._asked = 0  # numbers what is waited for
        self._waiting: dict[int, Settle] = {}
        self._handle: TimerHandle | None = None
        self._is_parked = False

    def wait_for(self, ask: Callable[[Settle], object], settle: Settle) -> None:
        """`ask` is given whom to tell the outcome; `settle` is told it, if it comes in time."""
        number = self._asked
        self._asked += 1
        self._waiting[number] = settle
        ask(lambda code: self._settled(number, code))

    @property
    def is_waiting(self) -> bool:
        return bool(self._waiting)

    def park(self, timeout_ms: int) -> None:
        self._is_parked = True
        if self._waiting:
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
        if self._is_parked and not self._waiting:
            self._finish()

    def _time_is_over(self) -> None:
        waiting, self._waiting = self._waiting, {}
        tell_each("telling of a time-out", waiting.values(), ErrorCode.REQUEST_TIMED_OUT)
        self._finish()

    def _finish(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
        finished, self._finished = self._finished, None
        if finished is not None:
            finished()


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
    outcome: Pending[ErrorCode] = Pending()
    timeout: TimerHandle | None = None

    def settle(code: ErrorCode) -> None:
        if outcome.is_settled:
            return  # somebody came first
        if timeout is not None:
            timeout.cancel()
        outcome.complete(code)

    if timer is not None:
        timeout = timer.call_later(timeout_ms / 1000, partial(settle, ErrorCode.REQUEST_TIMED_OUT))
    if partition.must_flush_before_ack:

        def flushed(error: OSError | None) -> None:
            if error is None:
                partition.flushed()
            else:
                settle(ErrorCode.KAFKA_STORAGE_ERROR)

        flusher.flush(partition.log, flushed)
    partition.when_committed(end_offset, settle)
    return outcome
