"""One connection of a client: its handshake, its frames, and the order of its answers.

    greeting    the first frame is a ConnectRequest, or the first four bytes are a command
    opening     a new session is being made durable; whatever else has come waits
    open        requests begin in the order in which they came
    ended

Answers leave in the order of the requests. A write may begin while writes before it are not yet
durable, because the database finishes writes in their order. Anything else waits for the writes
before it: so a client sees what it wrote. While an answer is made piece by piece or in a thread,
nothing begins. Events wait for an answer that begins a watch: a client that hears of a change
before it has the answer would not know the watch.

Bounds: a frame of `jute.maxbuffer`, some megabytes of requests that have not begun, writes that
have not been answered, bytes that the client does not take. Reading stops at the first two, and the
connection ends at the last. Bytes that no ZooKeeper client sends end the connection, and only it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Final, cast

from tidelog.controller.access_lists import AccessList, Identity, Permission, permits
from tidelog.controller.metadata_store import EventType
from tidelog.controller.zookeeper.jute import (
    HANDSHAKE_BYTES_MAX,
    INT,
    REQUEST_BYTES_MAX,
    Malformed,
    take_frame,
)
from tidelog.zookeeper.commands import COMMAND_BYTES, answer_to
from tidelog.zookeeper.session_tracker import Session
from tidelog.zookeeper.watch_manager import WatchKind
from tidelog.zookeeper.wire import (
    OpCode,
    answer_frame,
    connected_frame,
    decode_connect,
    event_frame,
    session_over_frame,
)

if TYPE_CHECKING:
    from tidelog.zookeeper.server import EmbeddedZooKeeper

logger = logging.getLogger(__name__)

GREETING_TIMEOUT_S: Final = 30.0
CLOSING_TIMEOUT_S: Final = 5.0
BURST: Final = 16  # requests that begin before another connection has its turn
QUEUED_BYTES_MAX: Final = 2 * 1024 * 1024
WRITES_UNANSWERED_MAX: Final = 1000
UNSENT_BYTES_MAX: Final = 128 * 1024 * 1024
REQUEST_HEADER_BYTES: Final = 8
PIPELINED: Final = frozenset(
    {
        OpCode.CREATE,
        OpCode.CREATE2,
        OpCode.CREATE_CONTAINER,
        OpCode.CREATE_TTL,
        OpCode.DELETE,
        OpCode.SET_DATA,
        OpCode.SET_ACL,
        OpCode.MULTI,
        OpCode.SYNC,
    }
)


class ServerConnection(asyncio.Protocol):
    """Touched only on the loop."""

    def __init__(self, server: EmbeddedZooKeeper) -> None:
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._frames: deque[bytes] = deque()
        self._frame_bytes = 0
        self._is_clogged = False  # the client does not take what is sent
        self._is_opening = False
        self._is_ended = False
        self._held_events: list[bytes] = []
        self.session: Session | None = None
        self.is_answering_later = False
        self.is_holding_events = False
        self.writes_unanswered = 0
        self.watches: set[tuple[WatchKind, str]] = set()
        # Replaced when it grows, because a write under way looks at it.
        self.identities: dict[Identity, None] = {}
        self.peer = ("", 0)
        self.received_count = 0
        self.sent_count = 0

    # Called by the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast(
            asyncio.Transport, transport
        )  # uvloop's is none by class
        if not self._server.take(self):
            self._end()
            transport.abort()
            return
        host, port, *_ = transport.get_extra_info("peername") or ("", 0)
        self.peer = (host, port)
        self.identities = {self.address: None}
        self._server.loop.call_later(GREETING_TIMEOUT_S, self._give_up_greeting)

    def data_received(self, data: bytes) -> None:
        if self._is_ended:
            return
        self._received += data
        try:
            if self.session is not None:
                self._take_frames()
            elif not self._is_opening:
                self._greet()
            elif len(self._received) > REQUEST_BYTES_MAX:
                raise Malformed("too much before the answer to its greeting")
        except Malformed as reason:
            logger.info("closed the connection of %s:%s: %s", *self.peer, reason)
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()
        self._server.forget(self)

    def pause_writing(self) -> None:
        self._is_clogged = True
        self._pause_reading()

    def resume_writing(self) -> None:
        self._is_clogged = False
        self._read_on()
        self._server.wants_turn(self)

    @property
    def address(self) -> Identity:
        return Identity("ip", self.peer[0])

    @property
    def has_session(self) -> bool:
        """False if it has ended, or its session has or goes on elsewhere."""
        session = self.session
        if self._is_ended or session is None:
            return False
        return session.connection is self and not session.is_closing

    # The greeting

    def _greet(self) -> None:
        if len(self._received) < COMMAND_BYTES:
            return
        answer = answer_to(bytes(self._received[:COMMAND_BYTES]), self._server)
        if answer is not None:
            self.send(answer)
            self.close()
            return
        frame = take_frame(self._received, HANDSHAKE_BYTES_MAX)
        if frame is not None:
            self._is_opening = True
            self._server.connect(self, decode_connect(frame))

    def _give_up_greeting(self) -> None:
        if self.session is None and not self._is_ended:
            self.abort()

    def opened(self, session: Session, knows_read_only: bool) -> None:
        self.session = session
        self._is_opening = False
        self.send(
            connected_frame(session.timeout_ms, session.id, session.password, knows_read_only)
        )
        self.data_received(b"")

    def refused(self, knows_read_only: bool) -> None:
        """The session that it wants to go on with is over."""
        self.send(session_over_frame(knows_read_only))
        self.close()

    # Requests

    def _take_frames(self) -> None:
        assert self.session is not None
        while (frame := take_frame(self._received, REQUEST_BYTES_MAX)) is not None:
            if len(frame) < REQUEST_HEADER_BYTES:
                raise Malformed("a request without a header")
            self._frames.append(frame)
            self._frame_bytes += len(frame)
            self.received_count += 1
        self._server.tracker.touch(self.session)
        if self._frame_bytes > QUEUED_BYTES_MAX:
            self._pause_reading()
        if self._frames:
            self._server.wants_turn(self)

    def work(self) -> bool:
        """Begins some requests; true if more could begin."""
        for _ in range(BURST):
            if not self._may_begin():
                return False
            frame = self._frames.popleft()
            self._frame_bytes -= len(frame)
            self._server.requests.begin(self, frame)
        if self._frame_bytes < QUEUED_BYTES_MAX:
            self._read_on()
        return self._may_begin()

    def _may_begin(self) -> bool:
        if not self._frames or self._is_ended or self._is_clogged or self.is_answering_later:
            return False
        if not self.writes_unanswered:
            return True
        type = INT.unpack_from(self._frames[0], 4)[0]
        return type in PIPELINED and self.writes_unanswered < WRITES_UNANSWERED_MAX

    def _pause_reading(self) -> None:
        if self._transport is not None and self._transport.is_reading():
            self._transport.pause_reading()

    def _read_on(self) -> None:
        if (
            self._transport is not None
            and not self._is_ended
            and not self._is_clogged
            and not self._transport.is_reading()
        ):
            self._transport.resume_reading()

    # Answers

    def answer(self, xid: int, code: int, body: bytes = b"", zxid: int | None = None) -> None:
        """The zxid is that of the tree that it tells of; None: the present one."""
        if zxid is None:
            zxid = self._server.database.tree.zxid
        self.send(answer_frame(xid, zxid, code, body))
        if self._held_events and not self.is_holding_events:
            held, self._held_events = self._held_events, []
            for frame in held:
                self.send(frame)

    def may_read(self, access: AccessList) -> bool:
        return permits(access, Permission.READ, self.identities)

    def send_event(self, type: EventType, path: str) -> None:
        frame = event_frame(type, path)
        if self.is_holding_events:
            self._held_events.append(frame)
        else:
            self.send(frame)

    def send(self, frame: bytes) -> None:
        if self._is_ended or self._transport is None:
            return
        self._transport.write(frame)
        self.sent_count += 1
        if self._transport.get_write_buffer_size() > UNSENT_BYTES_MAX:
            self.abort()

    # The end

    def close(self) -> None:
        """When what was sent has left."""
        if self._transport is not None and not self._is_ended:
            self._transport.close()
            self._server.loop.call_later(CLOSING_TIMEOUT_S, self._transport.abort)
        self._end()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()
        self._end()

    def _end(self) -> None:
        self._is_ended = True
        self._frames.clear()
        self._received.clear()
        self._held_events.clear()
