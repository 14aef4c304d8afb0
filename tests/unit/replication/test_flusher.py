from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable
from typing import Any, cast

from tests.support.metadata import in_loop
from tidelog.replication.flusher import LogFlusher


class FakeTicket:
    def __init__(self, end_offset: int, run: Callable[[], None]) -> None:
        self.end_offset = end_offset
        self.run = run


class FakeLog:
    """Flushes when the test lets it; remembers what it was told."""

    def __init__(self) -> None:
        self.log_end_offset = 0
        self.gate = threading.Event()
        self.error: Exception | None = None
        self.begin_error: OSError | None = None
        self.done: list[int] = []
        self.failed: list[int] = []

    def flush_begin(self) -> FakeTicket:
        if self.begin_error is not None:
            raise self.begin_error
        return FakeTicket(self.log_end_offset, self._run)

    def _run(self) -> None:
        assert self.gate.wait(60)
        if self.error is not None:
            raise self.error

    def flush_done(self, ticket: FakeTicket) -> None:
        self.done.append(ticket.end_offset)

    def flush_failed(self, ticket: FakeTicket) -> None:
        self.failed.append(ticket.end_offset)


class Flushes:
    """A flusher and the order in which its callers were told."""

    def __init__(self, log: FakeLog) -> None:
        self.log = log
        self.failures: list[OSError] = []
        self.flusher = LogFlusher(
            asyncio.get_running_loop(), lambda _, error: self.failures.append(error)
        )
        self.told: list[tuple[str, OSError | None]] = []
        self.arrived = asyncio.Condition()

    def ask(self, name: str, end_offset: int) -> None:
        self.log.log_end_offset = end_offset
        self.flusher.flush(cast(Any, self.log), lambda error: self.told.append((name, error)))

    async def until_told(self, count: int) -> None:
        async def wait() -> None:
            while len(self.told) < count:
                await asyncio.sleep(0)

        await asyncio.wait_for(wait(), 10)


@in_loop
async def test_caller_is_told_once_its_records_are_on_disk() -> None:
    flushes = Flushes(FakeLog())
    flushes.ask("a", 5)
    await asyncio.sleep(0)
    assert flushes.told == []
    flushes.log.gate.set()
    await flushes.until_told(1)
    assert flushes.told == [("a", None)]
    assert flushes.log.done == [5]


@in_loop
async def test_those_who_ask_meanwhile_share_the_next_flush() -> None:
    flushes = Flushes(FakeLog())
    flushes.ask("a", 5)
    flushes.ask("b", 6)
    flushes.ask("c", 7)
    flushes.log.gate.set()
    await flushes.until_told(3)
    assert flushes.log.done == [5, 7]
    assert [name for name, _ in flushes.told] == ["a", "b", "c"]


@in_loop
async def test_failed_flush_is_told_to_all_who_wait_and_to_the_owner() -> None:
    log = FakeLog()
    flushes = Flushes(log)
    log.error = OSError(errno.EIO, "disk")
    flushes.ask("a", 5)
    flushes.ask("b", 6)
    log.gate.set()
    await flushes.until_told(2)
    assert [error for _, error in flushes.told] == [log.error, log.error]
    assert (log.failed, log.done) == ([5], [])
    assert flushes.failures == [log.error]


@in_loop
async def test_flush_that_cannot_begin_leaves_nobody_waiting() -> None:
    log = FakeLog()
    flushes = Flushes(log)
    log.begin_error = OSError(errno.EMFILE, "too many files")
    flushes.ask("a", 5)
    await flushes.until_told(1)
    assert flushes.told == [("a", log.begin_error)]
    log.begin_error = None
    log.gate.set()
    flushes.ask("b", 6)
    await flushes.until_told(2)
    assert flushes.told[1] == ("b", None)
    assert flushes.failures == []


@in_loop
async def test_an_unforeseen_error_leaves_nobody_waiting_and_the_log_can_be_flushed_again() -> None:
    log = FakeLog()
    flushes = Flushes(log)
    log.error = ValueError("I/O operation on closed file")
    log.gate.set()
    flushes.ask("a", 5)
    await flushes.until_told(1)
    assert isinstance(flushes.told[0][1], OSError)
    log.error = None
    flushes.ask("b", 6)
    await flushes.until_told(2)
    assert flushes.told[1] == ("b", None)


@in_loop
async def test_an_owner_that_fails_leaves_nobody_waiting() -> None:
    log = FakeLog()
    flushes = Flushes(log)

    def fail(*_: object) -> None:
        raise KeyError

    flushes.flusher = LogFlusher(asyncio.get_running_loop(), fail)
    log.error = OSError(errno.EIO, "disk")
    log.gate.set()
    flushes.ask("a", 5)
    await flushes.until_told(1)
    assert flushes.told == [("a", log.error)]
