"""What `send` gives back: a promise that is kept when the record's batch is answered.

A Delivery is as light as it can be, for there is one for every record: a tuple of the batch, the
record's place in it and its timestamp. Only who waits for one makes a future or a lock.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from tidelog.client.errors import ClientError, RequestTimedOut
from tidelog.record.batch import NO_TIMESTAMP
from tidelog.types import TopicPartition

if TYPE_CHECKING:
    from tidelog.client.producer.batch import ProducerBatch

NO_OFFSET = -1


class RecordMetadata(NamedTuple):
    """Where a record is. `offset` is -1 where nobody says: with acks=0, or when a retry finds the
    record written and its offset forgotten."""

    topic: str
    partition: int
    offset: int
    timestamp: int


# The record's place, with offset -1 if it was not written; and the error if there was one.
OnDelivery: TypeAlias = Callable[[RecordMetadata, "ClientError | None"], object]


class Outcome:
    """A result that somebody waits for, on an event loop or in a thread.

    It is completed under the producer's lock, so whoever is told may only take note: set an event
    or schedule something.
    """

    __slots__ = ("_waiters", "error", "is_done")

    def __init__(self) -> None:
        self.is_done = False
        self.error: ClientError | None = None
        self._waiters: list[Callable[[], object]] = []

    def when_done(self, wake: Callable[[], object]) -> None:
        """Calls `wake` once, from any thread; at once if it is done already."""
        self._waiters.append(wake)
        if self.is_done:
            self._tell()

    def forget(self, wake: Callable[[], object]) -> None:
        with suppress(ValueError):  # another thread may call it at this moment
            self._waiters.remove(wake)

    def done(self, error: ClientError | None = None) -> None:
        """The first word counts."""
        if not self.is_done:
            self.error = error
            self.is_done = True
            self._tell()

    def _tell(self) -> None:
        while True:
            try:
                wake = self._waiters.pop()
            except IndexError:  # another thread may be here too, so looking first proves nothing
                return
            wake()

    async def wait(self, timeout_s: float | None = None) -> bool:
        """Whether it is done; False when the time is up."""
        if self.is_done:
            return True
        loop = asyncio.get_running_loop()
        told: asyncio.Future[None] = loop.create_future()

        def set_told() -> None:
            if not told.done():
                told.set_result(None)

        def wake() -> None:
            loop.call_soon_threadsafe(set_told)

        self.when_done(wake)
        try:
            async with asyncio.timeout(timeout_s):
                await told
        except TimeoutError:
            return self.is_done
        finally:
            self.forget(wake)
        return True

    def wait_in_thread(self, timeout_s: float | None = None) -> bool:
        if self.is_done:
            return True
        told = threading.Lock()  # a bare one, since an interrupt can break an Event
        told.acquire()
        wake = told.release
        self.when_done(wake)
        try:
            told.acquire(timeout=-1 if timeout_s is None else max(timeout_s, 0))
            return self.is_done
        finally:
            self.forget(wake)


class Delivery(tuple["ProducerBatch", int, int]):
    """Awaitable, on any event loop: gives the RecordMetadata or raises the reason why not."""

    __slots__ = ()

    def done(self) -> bool:
        return self._leaf()[0].outcome.is_done

    def exception(self) -> ClientError | None:
        """Why the record was not written; None if it was, or is not answered yet."""
        batch, index = self._leaf()
        return batch.error_of(index)

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Waits in this thread, at most `timeout` seconds. Not for use on an event loop."""
        while not self.done():
            if not self._leaf()[0].outcome.wait_in_thread(timeout):
                raise RequestTimedOut(
                    f"a record for {self[0].partition} is not acknowledged after {timeout} s"
                )
        return self._metadata()

    def __await__(self) -> Generator[object, None, RecordMetadata]:
        while not self.done():
            yield from self._leaf()[0].outcome.wait().__await__()
        return self._metadata()

    def __repr__(self) -> str:
        state = "pending" if not self.done() else self.exception() or self._metadata()
        return f"Delivery({self[0].partition}, {state})"

    def _leaf(self) -> tuple[ProducerBatch, int]:
        """The batch that holds the record now: batches that are too large are cut in two."""
        batch, index, _ = self
        while batch.halves is not None:
            first, second = batch.halves
            if index < first.records_count:
                batch = first
            else:
                batch, index = second, index - first.records_count
        return batch, index

    def _metadata(self) -> RecordMetadata:
        batch, index = self._leaf()
        error = batch.error_of(index)
        if error is not None:
            raise raised_anew(error)
        return batch.metadata_of(index, self[2])


class ArrowDelivery:
    """What `send_arrow` gives back: awaitable, gives the last offset of each partition."""

    __slots__ = ("_batches",)

    def __init__(self, batches: list[ProducerBatch]) -> None:
        self._batches = batches

    def done(self) -> bool:
        return all(batch.outcome.is_done for batch in self._batches)

    def exception(self) -> ClientError | None:
        """Of the first batch that was not written, if one was not."""
        errors = (batch.first_error() for batch in self._batches)
        return next((error for error in errors if error is not None), None)

    def result(self, timeout: float | None = None) -> dict[TopicPartition, int]:
        """Waits in this thread, at most `timeout` seconds in all."""
        deadline = None if timeout is None else time.monotonic() + timeout
        for batch in self._batches:
            left_s = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not batch.outcome.wait_in_thread(left_s):
                raise RequestTimedOut(
                    f"rows for {batch.partition} are not acknowledged after {timeout} s"
                )
        return self._last_offsets()

    def __await__(self) -> Generator[object, None, dict[TopicPartition, int]]:
        for batch in self._batches:
            yield from batch.outcome.wait().__await__()
        return self._last_offsets()

    def _last_offsets(self) -> dict[TopicPartition, int]:
        error = self.exception()
        if error is not None:
            raise raised_anew(error)
        last_offsets: dict[TopicPartition, int] = {}
        for batch in self._batches:
            offset = batch.last_offset()
            last_offsets[batch.partition] = max(last_offsets.get(batch.partition, -1), offset)
        return last_offsets


def timestamp_of(record_timestamp: int, log_append_time_ms: int) -> int:
    return record_timestamp if log_append_time_ms == NO_TIMESTAMP else log_append_time_ms


def raised_anew(error: ClientError) -> ClientError:
    """A copy of an error that several callers wait for, because each needs a traceback of its
    own."""
    anew = type(error)(error.message, error.code)
    anew.broker_message = error.broker_message
    anew.__cause__ = error.__cause__
    return anew
