"""The queue of calls over a line that answers when the test says so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest
from kazoo.exceptions import (
    BadVersionError,
    ConnectionLoss,
    NodeExistsError,
    NoNodeError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
    SessionMovedError,
)
from kazoo.protocol.serialization import Exists, GetData, Sync, Transaction
from kazoo.protocol.states import ZnodeStat

from tests.support.clock import FakeClock
from tests.support.metadata import in_loop
from tidelog.controller.metadata_store import (
    BadVersion,
    Create,
    Operation,
    OutcomeUnknown,
    SetData,
    StoreClosed,
    StoreUnavailable,
)
from tidelog.controller.zookeeper.call_queue import CallQueue, ReadCall, WriteCall
from tidelog.controller.zookeeper.requests import Chroot
from tidelog.controller.zookeeper.session import Connection, Read

SESSION_TIMEOUT_MS = 6_000
SESSION_ID = 77
ZXID_SEEN = 100


def stat(
    *, czxid: int = 1, mzxid: int = 1, version: int = 0, ephemeral_owner: int = 0
) -> ZnodeStat:
    return ZnodeStat(czxid, mzxid, 0, 0, version, 0, 0, ephemeral_owner, 0, 0, czxid)


class FakeLine:
    """Keeps what was sent and not answered, oldest first."""

    def __init__(self) -> None:
        self.unanswered: list[tuple[Any, Callable[[Any, Exception | None], None]]] = []
        self.dropped: list[int] = []
        self.zxid_seen = ZXID_SEEN
        self.is_open = True

    def send(
        self, request: Any, answered: Callable[[Any, Exception | None], None], number: int
    ) -> bool:
        if self.is_open:
            self.unanswered.append((request, answered))
        return self.is_open

    def drop_connection(self, connection_number: int) -> None:
        self.dropped.append(connection_number)

    def answer(self, value: Any = None, error: Exception | None = None) -> Any:
        request, answered = self.unanswered.pop(0)
        answered(value, error)
        return request

    def lose_all(self) -> None:
        self.is_open = False
        lost, self.unanswered = self.unanswered, []
        for _, answered in lost:
            answered(None, ConnectionLoss())

    def requests(self) -> list[Any]:
        return [request for request, _ in self.unanswered]


class Stage:
    def __init__(self, in_flight_max: int = 10) -> None:
        self.line = FakeLine()
        self.clock = FakeClock()
        self.connections = 0
        self.queue = CallQueue(
            self.line,
            session_timeout_s=SESSION_TIMEOUT_MS / 1000,
            in_flight_max=in_flight_max,
            clock=self.clock,
            timer=self.clock,
        )

    def connect(self) -> None:
        self.connections += 1
        self.line.is_open = True
        self.queue.connected(Connection(self.connections, SESSION_ID))

    def disconnect(self) -> None:
        self.line.lose_all()
        self.queue.disconnected()

    def read(self, path: str) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.queue.submit(ReadCall(future, Read(GetData, path), path, lambda answer: answer))
        return future

    def write(self, *operations: Operation) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.queue.submit(WriteCall(future, operations, Chroot("")))
        return future


def connected(in_flight_max: int = 10) -> Stage:
    stage = Stage(in_flight_max)
    stage.connect()
    return stage


def error_of(future: asyncio.Future[Any]) -> BaseException:
    return cast(BaseException, future.exception())


@in_loop
async def test_no_more_than_the_bound_are_in_flight_and_the_rest_follows_in_order() -> None:
    stage = connected(in_flight_max=2)
    reads = [stage.read(f"/{n}") for n in range(4)]
    assert [r.path for r in stage.line.requests()] == ["/0", "/1"]
    stage.line.answer("first")
    assert [r.path for r in stage.line.requests()] == ["/1", "/2"]
    assert reads[0].result() == "first"


@in_loop
async def test_calls_wait_for_a_connection() -> None:
    stage = Stage()
    read = stage.read("/a")
    assert stage.line.requests() == []
    stage.connect()
    stage.line.answer("data")
    assert read.result() == "data"


@in_loop
async def test_a_read_that_was_lost_is_sent_again_before_those_behind_it() -> None:
    stage = connected(in_flight_max=2)
    for path in ("/a", "/b", "/c"):
        stage.read(path)
    stage.disconnect()
    stage.connect()
    assert [r.path for r in stage.line.requests()] == ["/a", "/b"]


@in_loop
async def test_a_call_made_before_the_loss_is_told_keeps_its_place_and_counts_as_not_sent() -> None:
    stage = connected()
    stage.line.is_open = False
    write = stage.write(Create("/a"))
    stage.read("/b")
    stage.disconnect()
    stage.connect()
    assert isinstance(stage.line.answer(["/a"]), Transaction)
    assert write.result() == ["/a"]
    assert [r.path for r in stage.line.requests()] == ["/b"]


@in_loop
async def test_a_session_that_has_moved_drops_its_connection() -> None:
    stage = connected()
    read = stage.read("/a")
    stage.line.answer(error=SessionMovedError())
    assert stage.line.dropped == [1]
    stage.disconnect()
    stage.connect()
    stage.line.answer("data")
    assert read.result() == "data"


@in_loop
async def test_one_call_in_flight_writes_a_node() -> None:
    stage = connected()
    stage.write(SetData("/a", b"1"))
    stage.write(SetData("/b", b"1"))
    stage.write(SetData("/a", b"2"))
    stage.read("/c")
    assert len(stage.line.unanswered) == 2
    stage.line.answer([stat(version=1)])
    assert len(stage.line.unanswered) == 3


@in_loop
async def test_a_refusal_names_the_operation() -> None:
    stage = connected()
    write = stage.write(Create("/a"), SetData("/b", b"", 3))
    stage.line.answer([RolledBackError(), BadVersionError()])
    error = error_of(write)
    assert isinstance(error, BadVersion)
    assert (error.path, error.index) == ("/b", 1)


@in_loop
async def test_a_lost_write_that_is_found_is_not_sent_again() -> None:
    stage = connected()
    write = stage.write(SetData("/a", b"new", 4))
    stage.disconnect()
    stage.connect()
    assert isinstance(stage.line.answer("/"), Sync)
    request = stage.line.answer((b"new", stat(mzxid=ZXID_SEEN + 1, version=5)))
    assert isinstance(request, GetData)
    assert write.result() == [5]
    assert stage.line.requests() == []


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"new", stat(mzxid=ZXID_SEEN, version=5)),
        (b"new", stat(mzxid=ZXID_SEEN + 1, version=6)),
        (b"other", stat(mzxid=ZXID_SEEN + 1, version=5)),
    ],
    ids=["older than the write", "changed again", "another's"],
)
@in_loop
async def test_a_lost_write_that_is_not_found_is_sent_again(data: bytes, found: ZnodeStat) -> None:
    stage = connected()
    write = stage.write(SetData("/a", b"new", 4))
    stage.disconnect()
    stage.connect()
    stage.line.answer("/")
    stage.line.answer((data, found))
    assert isinstance(stage.line.answer([BadVersionError()]), Transaction)
    assert isinstance(error_of(write), BadVersion)


@in_loop
async def test_an_ephemeral_node_of_another_session_is_not_ours() -> None:
    stage = connected()
    stage.write(Create("/controller", b"me", ephemeral=True))
    stage.disconnect()
    stage.connect()
    stage.line.answer("/")
    theirs = stat(czxid=ZXID_SEEN + 1, ephemeral_owner=SESSION_ID + 1)
    stage.line.answer((b"me", theirs))
    assert isinstance(stage.line.requests()[0], Transaction)


@in_loop
async def test_lost_writes_are_looked_for_one_after_the_other_and_nothing_overtakes_them() -> None:
    stage = connected()
    first, second = stage.write(Create("/a")), stage.write(Create("/b"))
    third = stage.write(Create("/c"))
    stage.disconnect()
    stage.connect()
    for path, future in (("/a", first), ("/b", second)):
        assert len(stage.line.unanswered) == 1
        stage.line.answer("/")
        request = stage.line.answer((b"", stat(czxid=ZXID_SEEN + 1)))
        assert request.path == path
        assert future.result() == [path]
    stage.line.answer("/")
    stage.line.answer(error=NoNodeError())
    stage.line.answer(["/c"])
    assert third.result() == ["/c"]


@in_loop
async def test_a_search_that_is_lost_itself_begins_again() -> None:
    stage = connected()
    write = stage.write(Create("/a"))
    for _ in range(3):
        stage.disconnect()
        stage.connect()
        assert isinstance(stage.line.answer("/"), Sync)
    stage.line.answer((b"", stat(czxid=ZXID_SEEN + 1)))
    assert write.result() == ["/a"]


@in_loop
async def test_missing_parents_are_read_and_made_in_the_same_multi() -> None:
    stage = connected()
    write = stage.write(Create("/a/b/c", make_parents=True))
    other = stage.read("/x")
    assert stage.line.answer(None).path == "/a/b"
    assert stage.line.answer(stat()).path == "/a"
    request = stage.line.answer(["/a/b", "/a/b/c"])
    assert [each.path for each in request.operations] == ["/a/b", "/a/b/c"]
    assert write.result() == ["/a/b/c"]
    stage.line.answer("data")
    assert other.result() == "data"


@in_loop
async def test_a_parent_that_another_has_made_meanwhile_is_no_error() -> None:
    stage = connected()
    write = stage.write(Create("/a/b", make_parents=True))
    stage.line.answer(None)
    stage.line.answer([NodeExistsError(), RuntimeInconsistency()])
    assert isinstance(stage.line.answer(stat()), Exists)
    stage.line.answer(["/a/b"])
    assert write.result() == ["/a/b"]


@in_loop
async def test_without_a_connection_a_call_gives_up_after_the_session_timeout() -> None:
    stage = connected()
    sent = stage.write(Create("/a"))
    stage.disconnect()
    stage.clock.advance(ms=1_000)
    waiting = stage.write(Create("/b"))
    stage.clock.advance(ms=SESSION_TIMEOUT_MS - 1_000)
    assert isinstance(error_of(sent), OutcomeUnknown)
    assert not waiting.done()
    stage.clock.advance(ms=1_000)
    assert type(error_of(waiting)) is StoreUnavailable
    assert stage.clock.pending_timers() == 0


@in_loop
async def test_a_call_that_is_lost_again_and_again_counts_from_the_first_time() -> None:
    stage = connected()
    write = stage.write(Create("/a"))
    for _ in range(3):
        stage.disconnect()
        stage.clock.advance(ms=SESSION_TIMEOUT_MS // 4)
        stage.connect()
        assert not write.done()
    stage.disconnect()
    stage.clock.advance(ms=SESSION_TIMEOUT_MS // 4)
    assert isinstance(error_of(write), OutcomeUnknown)


@in_loop
async def test_with_a_connection_a_call_waits_as_long_as_others_are_answered() -> None:
    stage = connected(in_flight_max=1)
    reads = [stage.read(f"/{n}") for n in range(10)]
    for read in reads:
        stage.clock.advance(ms=SESSION_TIMEOUT_MS // 2)
        stage.line.answer("data")
        assert read.result() == "data"
    assert stage.line.dropped == []


@in_loop
async def test_a_server_that_is_silent_for_two_thirds_of_the_timeout_is_left() -> None:
    stage = connected()
    stage.read("/a")
    stage.clock.advance(ms=3_000)
    stage.read("/b")
    stage.clock.advance(ms=999)
    assert stage.line.dropped == []
    stage.clock.advance(ms=1)
    assert stage.line.dropped == [1]


@in_loop
async def test_when_the_session_expires_its_calls_fail_and_later_ones_wait_for_the_next() -> None:
    stage = connected(in_flight_max=1)
    in_flight, waiting = stage.write(Create("/a")), stage.read("/b")
    stage.disconnect()
    stage.queue.ended()
    for old in (in_flight, waiting):
        assert isinstance(error_of(old), StoreClosed)
    new = stage.read("/c")
    stage.connect()
    stage.line.answer("data")
    assert new.result() == "data"


@in_loop
async def test_a_session_that_expires_under_a_search_ends_it() -> None:
    stage = connected()
    write = stage.write(Create("/a"))
    stage.disconnect()
    stage.connect()
    stage.line.answer(error=SessionExpiredError())
    assert isinstance(error_of(write), StoreClosed)


@in_loop
async def test_a_caller_that_has_gone_does_not_stop_the_others() -> None:
    stage = connected()
    gone, other = stage.read("/a"), stage.read("/b")
    gone.cancel()
    stage.line.answer("data")
    stage.line.answer("data")
    assert other.result() == "data"
