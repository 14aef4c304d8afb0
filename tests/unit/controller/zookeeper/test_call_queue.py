"""The queue of calls over a line that answers when the test says so."""

from __future__ import annotations

import asyncio
import concurrent.futures
from typing import Any, cast

import pytest

from tests.support.clock import FakeClock
from tests.support.metadata import in_loop
from tidelog.controller.metadata_store import (
    BadVersion,
    Create,
    Operation,
    OutcomeUnknown,
    SetData,
    Stat,
    StoreClosed,
    StoreUnavailable,
    Watcher,
)
from tidelog.controller.zookeeper.call_queue import CallQueue, Future, ReadCall, WriteCall
from tidelog.controller.zookeeper.connect_string import Chroot
from tidelog.controller.zookeeper.jute import Code, Exists, GetData, Multi, Refused, Sync
from tidelog.controller.zookeeper.session import Answered

SESSION_TIMEOUT_MS = 6_000
SESSION_ID = 77
ZXID_SEEN = 100


def stat(*, czxid: int = 1, mzxid: int = 1, version: int = 0, ephemeral_owner: int = 0) -> Stat:
    return Stat(czxid, mzxid, czxid, 0, 0, version, 0, ephemeral_owner, 0, 0)


class FakeLine:
    """Keeps what was sent and not answered, oldest first."""

    def __init__(self) -> None:
        self.unanswered: list[tuple[Any, Answered]] = []
        self.dropped: list[str] = []
        self.session_id = SESSION_ID
        self.zxid_seen = ZXID_SEEN
        self.is_connected = False

    def send(self, request: Any, answered: Answered, watcher: Watcher | None = None) -> None:
        assert self.is_connected
        self.unanswered.append((request, answered))

    def drop(self, reason: str) -> None:
        self.is_connected = False
        self.dropped.append(reason)

    def answer(self, value: Any = None, code: int = Code.OK) -> Any:
        request, answered = self.unanswered.pop(0)
        answered(value, code)
        return request

    def lose_all(self) -> None:
        self.is_connected = False
        lost, self.unanswered = self.unanswered, []
        for _, answered in lost:
            answered(None, Code.CONNECTION_LOSS)

    def requests(self) -> list[Any]:
        return [request for request, _ in self.unanswered]


class Stage:
    def __init__(self, in_flight_max: int = 10) -> None:
        self.line = FakeLine()
        self.clock = FakeClock()
        self.queue = CallQueue(
            self.line,
            session_timeout_s=SESSION_TIMEOUT_MS / 1000,
            in_flight_max=in_flight_max,
            clock=self.clock,
        )

    def connect(self) -> None:
        self.line.is_connected = True
        self.queue.connected()

    def disconnect(self) -> None:
        self.line.lose_all()
        self.queue.disconnected()

    def pass_time(self, ms: int) -> None:
        """As the driver does it: `give_up` when the deadline has come."""
        until = self.clock.monotonic() + ms / 1000
        while (deadline := self.queue.deadline) is not None and deadline <= until:
            self.clock.advance(ms=round((deadline - self.clock.monotonic()) * 1000))
            self.queue.give_up()
        self.clock.advance(ms=round((until - self.clock.monotonic()) * 1000))

    def read(self, path: str) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.queue.submit(ReadCall(future, GetData(path), path))
        return future

    def write(self, *operations: Operation) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.queue.submit(WriteCall(future, operations, Chroot("")))
        return future


def connected(in_flight_max: int = 10) -> Stage:
    stage = Stage(in_flight_max)
    stage.connect()
    return stage


def error_of(future: Future) -> BaseException:
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
async def test_a_call_made_when_the_connection_breaks_keeps_its_place_and_counts_as_not_sent() -> (
    None
):
    stage = connected()
    stage.line.is_connected = False  # the session has noticed, and has not told it yet
    write = stage.write(Create("/a"))
    stage.read("/b")
    stage.disconnect()
    stage.connect()
    assert isinstance(stage.line.answer(["/a"]), Multi)
    assert write.result() == ["/a"]
    assert [r.path for r in stage.line.requests()] == ["/b"]


@in_loop
async def test_a_session_that_has_moved_drops_its_connection() -> None:
    stage = connected()
    read = stage.read("/a")
    stage.line.answer(code=Code.SESSION_MOVED)
    assert len(stage.line.dropped) == 1
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
    stage.line.answer([Refused(Code.OK), Refused(Code.BAD_VERSION)])
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
async def test_a_lost_write_that_is_not_found_is_sent_again(data: bytes, found: Stat) -> None:
    stage = connected()
    write = stage.write(SetData("/a", b"new", 4))
    stage.disconnect()
    stage.connect()
    stage.line.answer("/")
    stage.line.answer((data, found))
    assert isinstance(stage.line.answer([Refused(Code.BAD_VERSION)]), Multi)
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
    assert isinstance(stage.line.requests()[0], Multi)


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
    stage.line.answer(code=Code.NO_NODE)
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
    stage.line.answer([Refused(Code.NODE_EXISTS), Refused(Code.RUNTIME_INCONSISTENCY)])
    assert isinstance(stage.line.answer(stat()), Exists)
    stage.line.answer(["/a/b"])
    assert write.result() == ["/a/b"]


@in_loop
async def test_without_a_connection_a_call_gives_up_after_the_session_timeout() -> None:
    stage = connected()
    sent = stage.write(Create("/a"))
    stage.disconnect()
    stage.pass_time(1_000)
    waiting = stage.write(Create("/b"))
    stage.pass_time(SESSION_TIMEOUT_MS - 1_000)
    assert isinstance(error_of(sent), OutcomeUnknown)
    assert not waiting.done()
    stage.pass_time(1_000)
    assert type(error_of(waiting)) is StoreUnavailable
    assert stage.queue.deadline is None


@in_loop
async def test_a_call_that_is_lost_again_and_again_counts_from_the_first_time() -> None:
    stage = connected()
    write = stage.write(Create("/a"))
    for _ in range(3):
        stage.disconnect()
        stage.pass_time(SESSION_TIMEOUT_MS // 4)
        stage.connect()
        assert not write.done()
    stage.disconnect()
    stage.pass_time(SESSION_TIMEOUT_MS // 4)
    assert isinstance(error_of(write), OutcomeUnknown)


@in_loop
async def test_with_a_connection_a_call_waits_for_its_answer() -> None:
    stage = connected(in_flight_max=1)
    reads = [stage.read("/a"), stage.read("/b")]
    assert stage.queue.deadline is None
    stage.pass_time(10 * SESSION_TIMEOUT_MS)
    for read in reads:
        stage.line.answer("data")
        assert read.result() == "data"


@in_loop
async def test_when_the_session_expires_its_calls_fail_and_later_ones_wait_for_the_next() -> None:
    stage = connected(in_flight_max=1)
    in_flight, waiting = stage.write(Create("/a")), stage.read("/b")
    stage.disconnect()
    stage.queue.expired()
    for old in (in_flight, waiting):
        assert isinstance(error_of(old), StoreClosed)
    new = stage.read("/c")
    stage.connect()
    stage.line.answer("data")
    assert new.result() == "data"


@in_loop
async def test_a_call_of_start_up_goes_on_in_the_next_session() -> None:
    stage = connected(in_flight_max=1)
    lost: concurrent.futures.Future[Any] = concurrent.futures.Future()
    waiting: concurrent.futures.Future[Any] = concurrent.futures.Future()
    stage.queue.submit(ReadCall(lost, GetData("/a"), "/a"))
    stage.queue.submit(ReadCall(waiting, GetData("/b"), "/b"))
    stage.disconnect()
    stage.queue.expired()
    stage.connect()
    assert stage.line.answer("data").path == "/a"
    assert stage.line.answer("data").path == "/b"
    assert (lost.result(0), waiting.result(0)) == ("data", "data")


@in_loop
async def test_when_the_store_closes_all_that_is_not_sent_fails_and_the_rest_is_answered() -> None:
    stage = connected(in_flight_max=1)
    sent, waiting = stage.read("/a"), stage.read("/b")
    stage.queue.closed()
    assert isinstance(error_of(waiting), StoreClosed)
    stage.line.answer("data")
    assert sent.result() == "data"
    assert stage.line.requests() == []


@in_loop
async def test_a_session_that_expires_under_a_search_ends_it() -> None:
    stage = connected()
    write = stage.write(Create("/a"))
    stage.disconnect()
    stage.connect()
    stage.line.answer(code=Code.SESSION_EXPIRED)
    assert isinstance(error_of(write), StoreClosed)


@in_loop
async def test_a_caller_that_has_gone_does_not_stop_the_others() -> None:
    stage = connected()
    gone, other = stage.read("/a"), stage.read("/b")
    gone.cancel()
    stage.line.answer("data")
    stage.line.answer("data")
    assert other.result() == "data"
