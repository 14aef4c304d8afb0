"""The session with a server whose every byte is the test's, on a clock that the test moves."""

from __future__ import annotations

import logging
import socket
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from tests.support.clock import FakeClock
from tests.support.socket_news import is_readable, socket_news
from tidelog.controller.metadata_store import EventType, Stat, WatchedEvent, Watcher
from tidelog.controller.zookeeper import jute
from tidelog.controller.zookeeper.connect_string import ConnectString
from tidelog.controller.zookeeper.jute import Code, Exists, GetChildren, GetData, Reader, Request
from tidelog.controller.zookeeper.session import (
    RECONNECT_DELAY_S_MAX,
    State,
    WatchKind,
    WatchTable,
    ZooKeeperSession,
)

TIMEOUT_MS = 6_000
SESSION_ID = 0x1234
PASSWORD = bytes(range(16))
PATIENCE_S = 60.0
STAT = struct.pack(">qqqqiiiqiiq", 1, 2, 0, 0, 3, 0, 0, 0, 0, 0, 1)


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def text(value: str) -> bytes:
    return frame(value.encode())


def greeting(
    timeout_ms: int = TIMEOUT_MS, session_id: int = SESSION_ID, password: bytes = PASSWORD
) -> bytes:
    return frame(struct.pack(">iiq", 0, timeout_ms, session_id) + frame(password) + b"\0")


def answer(xid: int, body: bytes = b"", *, zxid: int = 9, code: int = 0) -> bytes:
    return frame(struct.pack(">iqi", xid, zxid, code) + body)


def event(kind: int, path: str) -> bytes:
    return answer(jute.WATCH_EVENT_XID, struct.pack(">ii", kind, 3) + text(path), zxid=-1)


class Server:
    """A listening socket, and the connection to it that the session has now."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(PATIENCE_S)
        self.port: int = self._listener.getsockname()[1]
        self._peer: socket.socket | None = None

    def accept(self) -> None:
        self.hang_up()
        self._peer, _ = self._listener.accept()
        self._peer.settimeout(PATIENCE_S)

    @property
    def peer(self) -> socket.socket:
        assert self._peer is not None
        return self._peer

    def receive(self) -> bytes:
        """The next frame."""
        size: int = struct.unpack(">i", self._exactly(4))[0]
        return self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        received = b""
        while len(received) < size:
            chunk = self.peer.recv(size - len(received))
            assert chunk, "the session has hung up"
            received += chunk
        return received

    def has_been_left(self) -> bool:
        """What was sent before is thrown away."""
        try:
            while self.peer.recv(65536):
                pass
        except ConnectionResetError:
            pass
        return True

    def hang_up(self) -> None:
        if self._peer is not None:
            self._peer.close()

    def close(self) -> None:
        self.hang_up()
        self._listener.close()


class Stage:
    """The session's driver and listener."""

    def __init__(self, server: Server, chroot: str = "") -> None:
        self.server = server
        self.clock = FakeClock()
        self.told: list[object] = []
        self.answers: list[tuple[Any, int]] = []
        hosts = (("127.0.0.1", server.port),)
        self.session = ZooKeeperSession(ConnectString(hosts, chroot), TIMEOUT_MS, self, self.clock)

    def session_connected(self) -> None:
        self.told.append("connected")

    def session_lost(self) -> None:
        self.told.append("lost")

    def session_expired(self) -> None:
        self.told.append("expired")

    def session_closed(self) -> None:
        self.told.append("closed")

    def watches_fired(self, watchers: Sequence[Watcher], event: WatchedEvent) -> None:
        for watcher in watchers:
            watcher(event)

    def socket_closing(self, sock: socket.socket) -> None:
        assert sock.fileno() >= 0

    def send(self, request: Request, watcher: Watcher | None = None) -> None:
        self.session.send(request, self._answered, watcher)

    def _answered(self, value: Any, code: int) -> None:
        self.answers.append((value, code))
        self.told.append(code)

    def drive(self, until: Callable[[], bool]) -> None:
        """Time stands still: only the socket has news."""
        while not until():
            self.session.tick()
            sock = self.session.socket
            if sock is None or until():
                self.pass_time(ms=round(RECONNECT_DELAY_S_MAX * 1000))
                continue
            readable, writable = socket_news(
                sock, PATIENCE_S, with_room=self.session.wants_to_write
            )
            assert readable or writable, "the server says nothing"
            if writable:
                self.session.writable()
            if readable:
                self.session.readable()

    def wait_until_readable(self) -> None:
        assert self.session.socket is not None
        assert is_readable(self.session.socket, PATIENCE_S)

    def pass_time(self, ms: int) -> None:
        """With a tick at each deadline, as a driver does it."""
        until = self.clock.monotonic() + ms / 1000
        while (deadline := self.session.deadline) is not None and deadline <= until:
            self.clock.advance(ms=max(round((deadline - self.clock.monotonic()) * 1000), 1))
            self.session.tick()
        self.clock.advance(ms=max(round((until - self.clock.monotonic()) * 1000), 0))

    def greet(self, bytes_sent: bytes | None = None) -> bytes:
        """What the session says first; it has got its answer then."""
        self.drive(lambda: self.session.state is State.GREETING and not self.session.wants_to_write)
        self.server.accept()
        said = self.server.receive()
        self.server.peer.sendall(greeting() if bytes_sent is None else bytes_sent)
        state = self.session.state
        self.drive(lambda: self.session.state is not state)
        return said

    def say(self, *frames: bytes) -> None:
        """The session has taken all of it, or has had enough."""
        before = self.session.socket
        news = len(self.told)
        self.server.peer.sendall(b"".join(frames))
        self.drive(lambda: len(self.told) > news or self.session.socket is not before)


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


@pytest.fixture
def stage(server: Server) -> Iterator[Stage]:
    stage = Stage(server)
    yield stage
    stage.session.abandon()


@pytest.fixture
def connected(stage: Stage) -> Stage:
    stage.greet()
    assert stage.told == ["connected"]
    stage.told.clear()
    return stage


class TestGreeting:
    def test_a_new_session_has_no_number_yet_and_later_shows_its_number_and_password(
        self, stage: Stage
    ) -> None:
        said = stage.greet()
        assert said == struct.pack(">iqiq", 0, 0, TIMEOUT_MS, 0) + frame(bytes(16)) + b"\0"
        stage.send(GetData("/a"))
        stage.say(answer(1, frame(b"x") + STAT, zxid=500))
        stage.server.hang_up()
        stage.drive(lambda: "lost" in stage.told)
        said = stage.greet()
        assert (
            said == struct.pack(">iqiq", 0, 500, TIMEOUT_MS, SESSION_ID) + frame(PASSWORD) + b"\0"
        )
        assert stage.told == ["connected", 0, "lost", "connected"]

    def test_a_server_that_grants_no_time_has_ended_the_session_and_a_new_one_begins(
        self, connected: Stage
    ) -> None:
        connected.send(Exists("/a", watch=True), lambda event: None)
        connected.say(answer(1, zxid=700, code=Code.NO_NODE))
        connected.server.hang_up()
        connected.drive(lambda: "lost" in connected.told)
        connected.greet(greeting(timeout_ms=0, session_id=0))
        assert connected.told == [0, "lost", "expired"]
        said = connected.greet(greeting(session_id=SESSION_ID + 1))
        assert said[4:24] == struct.pack(">qiq", 0, TIMEOUT_MS, 0)
        assert connected.session.session_id == SESSION_ID + 1
        assert connected.session.zxid_seen == 700
        connected.send(GetData("/a"))
        assert connected.server.receive()[:8] == struct.pack(">ii", 1, 4), "no watches are set"

    def test_a_server_that_accepts_and_says_nothing_is_left_before_the_session_would_end(
        self, stage: Stage
    ) -> None:
        stage.drive(lambda: stage.session.state is State.GREETING)
        stage.server.accept()
        stage.pass_time(TIMEOUT_MS // 3 - 1)
        assert stage.session.state is State.GREETING
        stage.pass_time(1)
        assert stage.session.socket is None
        stage.greet()
        assert stage.told == ["connected"]

    def test_where_nobody_listens_attempts_come_less_and_less_often(self, server: Server) -> None:
        stage = Stage(server)
        server.close()
        waits: list[float] = []
        for _ in range(20):
            stage.drive(lambda: stage.session.state is State.WAITING)
            deadline = stage.session.deadline
            assert deadline is not None
            waits.append(deadline - stage.clock.monotonic())
            stage.pass_time(round(RECONNECT_DELAY_S_MAX * 1000))
        assert all(0 <= wait <= RECONNECT_DELAY_S_MAX for wait in waits)
        assert waits[1] < 0.06
        assert waits[-1] > RECONNECT_DELAY_S_MAX / 2
        stage.session.abandon()

    def test_a_name_that_is_not_known_is_an_attempt_that_failed(self, server: Server) -> None:
        stage = Stage(server)
        stage.session._hosts[:] = [("a" * 70, 1), ("127.0.0.1", server.port)]
        # The label is too long for any resolver to be asked.
        while stage.session.state is not State.CONNECTING:
            stage.pass_time(5)
        stage.greet()
        assert stage.told == ["connected"]
        stage.session.abandon()


class TestOrder:
    def test_answers_go_to_the_requests_in_their_order(self, connected: Stage) -> None:
        connected.send(GetData("/a"))
        connected.send(Exists("/b"))
        connected.send(GetChildren("/c"))
        connected.say(answer(1, frame(b"data") + STAT))
        connected.say(answer(2, code=Code.NO_NODE))
        connected.say(answer(3, struct.pack(">i", 2) + text("y") + text("x")))
        stat = Stat(1, 2, 1, 0, 0, 3, 0, 0, 0, 0)
        assert connected.answers == [((b"data", stat), 0), (None, 0), (["x", "y"], 0)]

    def test_an_event_that_comes_before_an_answer_is_told_before_it(self, connected: Stage) -> None:
        connected.send(GetData("/a", watch=True), connected.told.append)
        connected.say(answer(1, frame(b"") + STAT))
        connected.send(GetData("/a"))
        connected.say(event(3, "/a") + answer(2, frame(b"") + STAT))
        connected.drive(lambda: len(connected.told) == 3)
        assert connected.told == [0, WatchedEvent(EventType.CHANGED, "/a"), 0]

    def test_a_frame_may_come_in_any_pieces(self, connected: Stage) -> None:
        connected.send(GetData("/a"))
        for piece in answer(1, frame(b"data") + STAT):
            connected.server.peer.sendall(bytes([piece]))
            if not connected.answers:
                connected.wait_until_readable()
                connected.session.readable()
        assert connected.answers[0][0][0] == b"data"

    def test_what_is_unanswered_fails_with_its_connection_in_order_and_then_the_loss_is_told(
        self, connected: Stage
    ) -> None:
        connected.send(GetData("/a"))
        connected.send(GetData("/b"))
        connected.server.hang_up()
        connected.drive(lambda: "lost" in connected.told)
        assert connected.told == [Code.CONNECTION_LOSS, Code.CONNECTION_LOSS, "lost"]
        connected.greet()
        connected.send(GetData("/c"))
        assert connected.server.receive()[8:] == text("/c") + b"\0", "nothing is sent again"

    def test_a_connection_that_is_dropped_takes_no_more_answers(self, connected: Stage) -> None:
        connected.send(GetData("/a"))
        connected.send(GetData("/b"))
        connected.session.drop("as the test likes it")
        assert not connected.session.is_connected
        connected.session.tick()
        assert connected.told == [Code.CONNECTION_LOSS, Code.CONNECTION_LOSS, "lost"]
        assert connected.server.has_been_left()


class TestWatches:
    def test_they_are_set_again_first_thing_on_the_next_connection(self, connected: Stage) -> None:
        watcher = connected.told.append
        connected.send(GetData("/data", watch=True), watcher)
        connected.say(answer(1, frame(b"") + STAT, zxid=41))
        connected.send(Exists("/absent", watch=True), watcher)
        connected.say(answer(2, code=Code.NO_NODE, zxid=42))
        connected.send(GetChildren("/parent", watch=True), watcher)
        connected.say(answer(3, struct.pack(">i", 0), zxid=43))
        connected.send(GetData("/missing", watch=True), watcher)
        connected.say(answer(4, code=Code.NO_NODE, zxid=44))
        connected.server.hang_up()
        connected.drive(lambda: "lost" in connected.told)
        connected.greet()
        one = struct.pack(">i", 1)
        assert connected.server.receive() == (
            struct.pack(">iiq", 1, 101, 44)
            + (one + text("/data"))
            + (one + text("/absent"))
            + (one + text("/parent"))
        )
        connected.told.clear()
        connected.say(event(1, "/absent") + answer(1))
        connected.say(event(2, "/parent") + event(4, "/parent"))
        assert connected.told == [
            WatchedEvent(EventType.CREATED, "/absent"),
            WatchedEvent(EventType.DELETED, "/parent"),
        ]

    def test_an_event_has_the_path_below_the_chroot(self, server: Server) -> None:
        stage = Stage(server, "/kafka")
        stage.greet()
        stage.send(Exists("/kafka", watch=True), stage.told.append)
        stage.say(answer(1, STAT))
        stage.send(Exists("/kafka/a", watch=True), stage.told.append)
        stage.say(answer(2, STAT))
        stage.told.clear()
        stage.say(event(3, "/kafka/a"))
        stage.say(event(3, "/kafka"))
        assert stage.told == [
            WatchedEvent(EventType.CHANGED, "/a"),
            WatchedEvent(EventType.CHANGED, "/"),
        ]
        stage.session.abandon()

    def test_events_that_nobody_waits_for_and_those_of_no_node_are_passed_over(
        self, connected: Stage
    ) -> None:
        connected.send(GetData("/a"))
        connected.say(event(3, "/a"), event(-1, ""), event(77, "/a"), answer(1, frame(b"") + STAT))
        assert connected.told == [0]


class TestSilence:
    def test_an_idle_connection_is_pinged_and_left_after_two_thirds_of_the_timeout(
        self, connected: Stage
    ) -> None:
        connected.pass_time(TIMEOUT_MS // 3 - 1)
        assert not is_readable(connected.server.peer, 0)
        connected.pass_time(1)
        assert connected.server.receive() == struct.pack(">ii", -2, 11)
        connected.pass_time(TIMEOUT_MS // 3 - 1)
        assert connected.session.is_connected
        connected.pass_time(1)
        assert connected.told == ["lost"]

    def test_a_ping_that_is_answered_keeps_it(self, connected: Stage) -> None:
        for _ in range(5):
            connected.pass_time(TIMEOUT_MS // 3)
            assert connected.server.receive() == struct.pack(">ii", -2, 11)
            connected.send(Exists("/a"))  # so that the test knows when the session has read
            xid = struct.unpack(">i", connected.server.receive()[:4])[0]
            connected.say(answer(jute.PING_XID), answer(xid, STAT))
        assert connected.told == [0] * 5

    def test_the_session_is_sure_to_live_from_when_the_last_answered_request_was_sent(
        self, connected: Stage
    ) -> None:
        connected.send(Exists("/a"))
        xid = struct.unpack(">i", connected.server.receive()[:4])[0]
        connected.clock.advance(ms=TIMEOUT_MS // 2)  # the answer lies in the socket
        connected.say(answer(xid, STAT))
        assert connected.session.left_s() == pytest.approx(TIMEOUT_MS / 2000)

    def test_an_answered_ping_prolongs_the_session_from_when_it_was_sent(
        self, connected: Stage
    ) -> None:
        connected.pass_time(TIMEOUT_MS // 3)
        assert connected.server.receive() == struct.pack(">ii", -2, 11)
        assert connected.session.left_s() == pytest.approx(TIMEOUT_MS * 2 / 3000, abs=0.01)
        connected.clock.advance(ms=TIMEOUT_MS // 10)
        connected.send(Exists("/a"))
        connected.server.receive()
        connected.server.peer.sendall(answer(jute.PING_XID))
        connected.wait_until_readable()
        connected.session.readable()
        assert connected.session.left_s() == pytest.approx(TIMEOUT_MS * 9 / 10000, abs=0.01)

    def test_a_server_that_answers_no_request_is_left_though_there_is_always_something_to_ask(
        self, connected: Stage
    ) -> None:
        for _ in range(4):
            connected.send(GetData("/a"))
            connected.pass_time(TIMEOUT_MS // 6 - 1)
        assert connected.session.is_connected
        connected.pass_time(4)
        assert connected.told == [Code.CONNECTION_LOSS] * 4 + ["lost"]

    def test_nor_does_a_server_stay_that_answers_pings_alone(self, connected: Stage) -> None:
        connected.send(GetData("/a"))
        connected.pass_time(TIMEOUT_MS // 3)
        connected.server.peer.sendall(answer(jute.PING_XID))
        connected.wait_until_readable()
        connected.session.readable()
        connected.pass_time(TIMEOUT_MS // 3 - 1)
        assert connected.session.is_connected
        connected.pass_time(1)
        assert connected.told == [Code.CONNECTION_LOSS, "lost"]

    def test_a_call_waits_as_long_as_others_are_answered(self, connected: Stage) -> None:
        for xid in range(1, 10):
            connected.send(GetData("/a"))
            connected.pass_time(TIMEOUT_MS // 4)
            connected.say(answer(xid, frame(b"") + STAT))
        assert connected.told == [0] * 9

    def test_an_answer_that_is_here_counts_though_the_driver_comes_late(
        self, connected: Stage
    ) -> None:
        connected.send(GetData("/a"))
        connected.server.peer.sendall(answer(1, frame(b"") + STAT))
        connected.wait_until_readable()
        connected.clock.advance(ms=10 * TIMEOUT_MS)
        connected.session.tick()
        assert connected.told == [0]
        assert connected.session.is_connected

    def test_a_driver_that_was_held_for_so_long_asks_on_a_new_connection_whether_it_is_over(
        self, connected: Stage
    ) -> None:
        connected.clock.advance(ms=TIMEOUT_MS * 2 // 3)
        connected.session.tick()
        assert connected.told == ["lost"]
        connected.greet()
        assert connected.told == ["lost", "connected"]

    def test_what_the_server_grants_counts_and_not_what_was_asked_for(self, stage: Stage) -> None:
        stage.greet(greeting(timeout_ms=TIMEOUT_MS // 2))
        stage.pass_time(TIMEOUT_MS // 6)
        assert stage.server.receive() == struct.pack(">ii", -2, 11)


class TestClosing:
    def test_it_is_over_when_the_server_has_said_so(self, connected: Stage) -> None:
        connected.send(GetData("/a"))
        connected.session.close()
        connected.server.receive()
        assert connected.server.receive() == struct.pack(">ii", 2, -11)
        connected.say(answer(1, frame(b"") + STAT))
        connected.say(answer(2))
        assert connected.told == [0, "closed"]
        assert connected.session.deadline is None

    def test_it_is_over_too_when_the_server_goes_or_says_nothing(self, connected: Stage) -> None:
        connected.send(GetData("/a"))
        connected.session.close()
        connected.pass_time(TIMEOUT_MS)
        assert connected.told == [Code.SESSION_EXPIRED, "closed"]

    def test_whoever_does_not_wait_for_the_server_fails_what_is_unanswered(
        self, connected: Stage
    ) -> None:
        connected.send(GetData("/a"))
        connected.session.abandon()
        assert connected.told == [Code.SESSION_EXPIRED, "closed"]
        connected.server.receive()
        assert connected.server.receive() == struct.pack(">ii", 2, -11)
        connected.session.abandon()
        assert connected.told == [Code.SESSION_EXPIRED, "closed"]

    def test_without_a_connection_it_is_over_at_once(self, stage: Stage) -> None:
        stage.session.close()
        assert stage.told == ["closed"]
        stage.session.close()
        assert stage.told == ["closed"]


HOSTILE = {
    "a frame of negative length": struct.pack(">i", -1),
    "a frame that is too long": struct.pack(">i", jute.ANSWER_BYTES_MAX + 1),
    "an empty frame": frame(b""),
    "half a header": frame(b"\0" * 15),
    "an answer that nobody asked for": answer(7, frame(b"") + STAT),
    "data longer than the frame": answer(1, struct.pack(">i", 1000) + STAT),
    "data of negative length": answer(1, struct.pack(">i", -2) + STAT),
    "half a stat": answer(1, frame(b"data") + STAT[:-1]),
    "an event without a path": frame(struct.pack(">iqiii", -1, -1, 0, 1, 3)),
    "a path that is not UTF-8": frame(struct.pack(">iqiii", -1, -1, 0, 1, 3) + frame(b"\xff\xfe")),
    "another protocol": b"HTTP/1.1 400 Bad Request\r\n\r\n",
}


class TestHostileServer:
    @pytest.mark.parametrize("sent", HOSTILE.values(), ids=HOSTILE.keys())
    def test_bytes_that_no_zookeeper_sends_end_the_connection_and_no_more(
        self, connected: Stage, sent: bytes, caplog: pytest.LogCaptureFixture
    ) -> None:
        connected.send(GetData("/a"))
        with caplog.at_level(logging.WARNING):
            connected.say(sent)
        assert connected.told == [Code.CONNECTION_LOSS, "lost"]
        assert "is no ZooKeeper" in caplog.text
        connected.greet()
        connected.send(GetData("/a"))
        connected.say(answer(1, frame(b"data") + STAT))
        assert connected.answers[-1][0][0] == b"data"

    @pytest.mark.parametrize(
        "sent",
        [
            struct.pack(">i", jute.HANDSHAKE_BYTES_MAX + 1),
            frame(b""),
            frame(struct.pack(">iiq", 0, TIMEOUT_MS, 1) + struct.pack(">i", 999)),
            b"HTTP/1.1 400 Bad Request\r\n\r\n",
        ],
    )
    def test_nor_do_they_make_a_session(self, stage: Stage, sent: bytes) -> None:
        stage.greet(sent)
        assert stage.session.state is State.WAITING
        assert stage.told == []
        stage.greet()
        assert stage.told == ["connected"]

    def test_a_server_that_breaks_every_connection_is_asked_less_and_less_often(
        self, stage: Stage
    ) -> None:
        waits: list[float] = []
        for _ in range(8):
            stage.greet()
            stage.say(struct.pack(">i", -1))
            deadline = stage.session.deadline
            assert deadline is not None
            waits.append(deadline - stage.clock.monotonic())
        assert waits[-1] > RECONNECT_DELAY_S_MAX / 2

    @pytest.mark.parametrize("count", [26, 2**31 - 1, -2, -(2**31)])
    def test_a_list_is_no_longer_than_its_bytes_allow(self, count: int) -> None:
        with pytest.raises(jute.Malformed, match=f"a list of {count}"):
            Reader(struct.pack(">i", count) + bytes(100)).texts()


def first(event: WatchedEvent) -> None:
    raise AssertionError("the table does not call")


def second(event: WatchedEvent) -> None:
    raise AssertionError("the table does not call")


class TestWatchTable:
    def test_a_watch_is_taken_once(self) -> None:
        table = WatchTable()
        table.add(WatchKind.DATA, "/a", first)
        assert table.take(EventType.CHANGED, "/a") == [first]
        assert table.take(EventType.CHANGED, "/a") == []

    def test_a_child_watch_is_not_for_data_nor_the_other_way_round(self) -> None:
        table = WatchTable()
        table.add(WatchKind.DATA, "/a", first)
        table.add(WatchKind.CHILD, "/a", second)
        assert table.take(EventType.CHILD, "/a") == [second]
        assert table.paths(WatchKind.DATA) == ["/a"]
        assert table.paths(WatchKind.CHILD) == []

    def test_a_deletion_takes_all_kinds_and_each_watcher_once(self) -> None:
        table = WatchTable()
        table.add(WatchKind.DATA, "/a", first)
        table.add(WatchKind.CHILD, "/a", first)
        table.add(WatchKind.CHILD, "/a", second)
        assert table.take(EventType.DELETED, "/a") == [first, second]
        assert [table.paths(kind) for kind in WatchKind] == [[], [], []]

    def test_a_creation_takes_the_watches_for_it(self) -> None:
        table = WatchTable()
        table.add(WatchKind.EXIST, "/a", first)
        assert table.take(EventType.CREATED, "/b") == []
        assert table.take(EventType.CREATED, "/a") == [first]

    def test_a_session_that_is_over_has_none(self) -> None:
        table = WatchTable()
        table.add(WatchKind.EXIST, "/a", first)
        table.clear()
        assert table.paths(WatchKind.EXIST) == []

    def test_requests_that_set_them_again_are_no_larger_than_a_server_takes(self) -> None:
        table = WatchTable()
        paths = [f"/{'x' * 1000}-{number}" for number in range(1000)]
        for path in paths:
            table.add(WatchKind.CHILD, path, first)
        requests = list(table.requests(zxid_seen=5))
        assert all(len(request.encode()) < 200_000 for request in requests)
        assert [path for request in requests for path in request.child] == paths
