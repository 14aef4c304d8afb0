"""Flushes logs off the broker loop.

fsync blocks for milliseconds, so it runs in a thread. One flush of a log runs at a time; whoever
asks meanwhile shares the next one (group commit). Callers are told on the loop, with the error if
the disk refused.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from tidelog.log.partition_log import PartitionLog
from tidelog.supervisor import attempt

logger = logging.getLogger(__name__)

FlushCallback = Callable[[OSError | None], object]
FailureCallback = Callable[[PartitionLog, OSError], object]


class LogFlusher:
    """Touched only on the broker loop; `FlushTicket.run` is the one thing that runs in a thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, failed: FailureCallback) -> None:
        self._loop = loop
        self._failed = failed  # told of every flush that failed, before those who wait for it
        self._waiting: dict[PartitionLog, list[tuple[int, FlushCallback]]] = {}
        self._running: set[asyncio.Future[None]] = set()

    def flush(self, log: PartitionLog, callback: FlushCallback) -> None:
        """Call back once everything now in the log is on disk."""
        waiting = self._waiting.get(log)
        if waiting is not None:
            waiting.append((log.log_end_offset, callback))
            return
        self._waiting[log] = [(log.log_end_offset, callback)]
        self._start(log)

    def is_flushing(self, log: PartitionLog) -> bool:
        return log in self._waiting

    async def drain(self) -> None:
        """Wait for the flushes under way, so that no failure at the stop passes for a success."""
        while self._running:
            await asyncio.wait(list(self._running))
            await asyncio.sleep(0)

    def _start(self, log: PartitionLog) -> None:
        try:
            ticket = log.flush_begin()
        except OSError as error:
            self._finish(log, -1, error)
            return
        future = self._loop.run_in_executor(None, ticket.run)
        self._running.add(future)

        def finished(done: asyncio.Future[None]) -> None:
            self._running.discard(done)
            error = _as_os_error(done.exception())
            if error is None:
                log.flush_done(ticket)
            else:
                log.flush_failed(ticket)
                attempt("telling of a failed flush", partial(self._failed, log, error))
            self._finish(log, ticket.end_offset, error)

        future.add_done_callback(finished)

    def _finish(self, log: PartitionLog, flushed_offset: int, error: OSError | None) -> None:
        waiting = self._waiting.pop(log)
        later = [] if error else [entry for entry in waiting if entry[0] > flushed_offset]
        if later:
            self._waiting[log] = later
            self._start(log)
        for offset, callback in waiting:
            if error or offset <= flushed_offset:
                self._loop.call_soon(callback, error)


def _as_os_error(error: BaseException | None) -> OSError | None:
    """Whatever went wrong, the records are not on disk: callers handle it as an I/O error."""
    if error is None or isinstance(error, OSError):
        return error
    logger.error("a flush failed: %r", error, exc_info=error)
    return OSError(f"cannot flush: {error!r}")
