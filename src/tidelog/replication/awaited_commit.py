"""The outcome of an append by a coordinator: when all in-sync replicas have it, or cannot.

A log that demands a flush (flush.messages) is flushed on the way. Without another replica and
without a flush there is nothing to wait for.
"""

from __future__ import annotations

from functools import partial
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
    if partition.flush_due:

        def flushed(error: OSError | None) -> None:
            if error is None:
                partition.flushed()
            else:
                settle(ErrorCode.KAFKA_STORAGE_ERROR)

        flusher.flush(partition.log, flushed)
    partition.when_committed(end_offset, settle)
    return outcome
