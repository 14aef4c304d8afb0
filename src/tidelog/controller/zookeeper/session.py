"""The session with ZooKeeper: one connection at a time, to whichever server takes it.

    waiting --> resolving --> connecting --> greeting --> connected --> closing --> closed
       ^            |             |             |             |
       +------------+-------------+-------------+-------------+   the next server is tried

What holds
- A request belongs to the connection that it was sent on. It is answered, or it fails with
  CONNECTION_LOSS when that connection goes; it is never sent on a later one.
- Answers, watch events and changes of the session are told in the order of the wire. So a change is
  answered after its watches have fired.
- Watches outlive a connection: they are set again, first thing on the next one, and fire for what
  was missed. They end with the session.
- A connection is pinged when a third of the session timeout has passed without a request. It is
  dropped when nothing was heard for two thirds, as ZooKeeper's own client does it, or when a
  request is unanswered for as long. A driver that was held for that time finds it so too: whether
  the session is over, the server says on the next connection.
- An attempt to connect ends early. A silent server is noticed when a third of the session timeout
  is left, and the attempts at all servers share that. (A ZooKeeper that is just starting may accept
  a connection and never answer.)
- Whether a session has expired only a server can tell. Then a new one begins.
- Bytes that no ZooKeeper sends end the connection.

The session owns a socket that never blocks, and no loop, no timer and no thread. Its driver calls
`readable` and `writable` when the socket is, and `tick` when `deadline` has come. So the broker's
loop can drive it, and at start-up whoever waits for an answer can. (A name is looked up in a thread
of its own, because the system's resolver blocks.)
"""

from __future__ import annotations

import errno
import logging
import random
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple, Protocol

from tidelog.clock import Clock
from tidelog.controller.metadata_store import EventType, WatchedEvent, Watcher
from tidelog.controller.zookeeper import jute
from tidelog.controller.zookeeper.connect_string import ConnectString
from tidelog.controller.zookeeper.jute import (
    Code,
    Exists,
    GetChildren,
    Malformed,
    Request,
    SetWatches,
)

logger = logging.getLogger(__name__)

PING_SHARE: Final = 1 / 3  # of the session timeout
SILENCE_SHARE: Final = 2 / 3
RECONNECT_DELAY_S: Final = 0.05
RECONNECT_DELAY_S_MAX: Final = 1.0
ATTEMPT_TIMEOUT_S_MIN: Final = 1.0
LOOKUP_POLL_S: Final = 0.005
RECEIVE_BYTES: Final = 256 * 1024
XID_MAX: Final = 2**31 - 1

Answered = Callable[[Any, int], None]  # the answer, and ZooKeeper's error code
Address = tuple[socket.AddressFamily, tuple[Any, ...]]


class State(Enum):
    WAITING = "waiting"  # until the next attempt
    RESOLVING = "resolving"
    CONNECTING = "connecting"
    GREETING = "greeting"
    CONNECTED = "connected"
    CLOSING = "closing"
    CLOSED = "closed"


class SessionListener(Protocol):
    """Told from within `readable`, `writable`, `tick` and `close`."""

    def session_connected(self) -> None: ...

    def session_lost(self) -> None:
        """The connection is gone. All that was unanswered has failed."""

    def session_expired(self) -> None: ...

    def session_closed(self) -> None: ...

    def watches_fired(self, watchers: Sequence[Watcher], event: WatchedEvent) -> None: ...

    def socket_closing(self, sock: socket.socket) -> None:
        """For whoever waits for it."""


class _Unanswered(NamedTuple):
    xid: int
    request: Request
    answered: Answered
    watcher: Watcher | None
    sent_at: float


class WatchKind(Enum):
    """What the server keeps a watch for."""

    DATA = "data"  # the node was there: waits for its change or deletion
    EXIST = "exist"  # it was not: waits for its creation
    CHILD = "child"  # waits for children added or removed, and for the node's deletion


_FIRED_BY: Final = {
    EventType.CREATED: (WatchKind.DATA, WatchKind.EXIST),
    EventType.CHANGED: (WatchKind.DATA, WatchKind.EXIST),
    EventType.DELETED: (WatchKind.DATA, WatchKind.EXIST, WatchKind.CHILD),
    EventType.CHILD: (WatchKind.CHILD,),
}


class WatchTable:
    """A watch enters with the answer that set it and leaves with its event.

    The server forgets watches with the connection: this is what they are set again from.
    """

    def __init__(self) -> None:
        self._watchers: dict[WatchKind, dict[str, dict[Watcher, None]]] = {
            kind: {} for kind in WatchKind
        }

    def add(self, kind: WatchKind, path: str, watcher: Watcher) -> None:
        self._watchers[kind].setdefault(path, {})[watcher] = None

    def take(self, event: EventType, path: str) -> list[Watcher]:
        """Those that the event fires, each once; they are watches no more."""
        fired: dict[Watcher, None] = {}
        for kind in _FIRED_BY[event]:
            fired.update(self._watchers[kind].pop(path, {}))
        return list(fired)

    def paths(self, kind: WatchKind) -> list[str]:
        return list(self._watchers[kind])

    def clear(self) -> None:
        for by_path in self._watchers.values():
            by_path.clear()

    def requests(self, zxid_seen: int) -> Iterator[SetWatches]:
        """That set all of them again, none larger than a server takes."""
        for chunk in self._chunks():
            by_kind: dict[WatchKind, list[str]] = {kind: [] for kind in WatchKind}
            for kind, path in chunk:
                by_kind[kind].append(path)
            yield SetWatches(zxid_seen, *(by_kind[kind] for kind in WatchKind))

    def _chunks(self) -> Iterator[list[tuple[WatchKind, str]]]:
        chunk: list[tuple[WatchKind, str]] = []
        size = 0
        for kind in WatchKind:
            for path in self.paths(kind):
                size += len(path.encode()) + 4
                if chunk and size > jute.SET_WATCHES_BYTES_MAX:
                    yield chunk
                    chunk, size = [], len(path.encode()) + 4
                chunk.append((kind, path))
        if chunk:
            yield chunk


class ZooKeeperSession:
    """Touched by one thread at a time."""

    def __init__(
        self, servers: ConnectString, timeout_ms: int, listener: SessionListener, clock: Clock
    ) -> None:
        self._hosts = list(servers.hosts)
        random.shuffle(self._hosts)  # brokers with one list do not all choose the same server
        self._chroot = servers.chroot
        self._listener = listener
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._timeout_s = timeout_ms / 1000  # what the server has granted, once it has
        self._attempt_s = max(self._timeout_s / 3 / len(self._hosts), ATTEMPT_TIMEOUT_S_MIN)
        self._watches = WatchTable()
        self.state = State.WAITING
        self.session_id = 0  # 0 while the next one is a new one
        self.zxid_seen = 0  # the newest transaction that any answer has shown
        self._password = bytes(jute.PASSWORD_BYTES)
        self._session_zxid = 0  # the same, of this session: servers behind it refuse it
        self._attempts = 0  # since the last answer
        self._next_at = clock.monotonic()  # when this state is to be left
        self._lookup: Lookup | None = None
        self._addresses: deque[Address] = deque()  # of the host that is tried, those not yet tried
        self.socket: socket.socket | None = None
        self._received = bytearray()
        self._to_send = bytearray()
        self._unanswered: deque[_Unanswered] = deque()
        self._xid = 0
        self._sent_at = 0.0
        self._heard_at = 0.0
        self._greeted_at = 0.0
        self._pings: deque[float] = deque()  # when those were sent that are not answered
        self._alive_at = 0.0  # the server has heard of this session at that time, or later
        self._broken: str | None = None  # why the connection is to be dropped

    @property
    def is_connected(self) -> bool:
        return self.state is State.CONNECTED and self._broken is None

    def left_s(self) -> float:
        """How long the session lives at least, as far as anybody here can know.

        That counts from when the last answered request was sent, not from when its answer was read:
        the answer may have lain in the socket for as long as something held the driver.
        """
        return self._alive_at + self._timeout_s - self._clock.monotonic()

    @property
    def wants_to_write(self) -> bool:
        return self.state is State.CONNECTING or bool(self._to_send)

    @property
    def deadline(self) -> float | None:
        """When `tick` has something to do; None once the session is closed."""
        if self._broken is not None:
            return self._clock.monotonic()
        if self.state is State.CONNECTED:
            return min(self._silent_at(), self._sent_at + self._timeout_s * PING_SHARE)
        return None if self.state is State.CLOSED else self._next_at

    def send(self, request: Request, answered: Answered, watcher: Watcher | None = None) -> None:
        """While `is_connected`. A watcher is kept once the server has its watch."""
        assert self.is_connected, self.state
        self._xid = self._xid % XID_MAX + 1
        now = self._clock.monotonic()
        self._unanswered.append(_Unanswered(self._xid, request, answered, watcher, now))
        self._transmit(jute.request_frame(self._xid, request))

    def drop(self, reason: str) -> None:
        """As if the connection had broken, at the next tick; nothing more is sent on it."""
        self._broken = reason

    def close(self) -> None:
        """Ends the session, at the server too if there is a connection; then the listener hears."""
        self._watches.clear()
        if self.is_connected:
            self.send(jute.CloseSession(), lambda answer, code: None)
            self.state = State.CLOSING
            self._next_at = self._clock.monotonic() + self._timeout_s
        else:
            self._end(None)

    def abandon(self) -> None:
        """As `close`, without waiting for the server."""
        if self.state is not State.CLOSING:
            self.close()
        self._end(None)

    def readable(self) -> None:
        if self.socket is None:
            return
        try:
            received = self.socket.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            self._end(error)
            return
        if not received:
            self._end("closed by the server")
            return
        self._received += received
        self._handle_frames()

    def writable(self) -> None:
        if self.socket is None:
            return
        if self.state is State.CONNECTING:
            code = self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                self._end(OSError(code, errno.errorcode.get(code, "")))
                return
            self._greet()
        self._flush()

    def tick(self) -> None:
        now = self._clock.monotonic()
        if self._broken is not None:
            self._end(self._broken)
        elif self.state is State.CONNECTED:
            if now >= self._silent_at():
                # The driver may be late, and the answer be here.
                self.readable()
                if self.state is State.CONNECTED and now >= self._silent_at():
                    self._end("the server is silent")
            elif now >= self._sent_at + self._timeout_s * PING_SHARE:
                self._pings.append(now)
                self._transmit(jute.PING_FRAME)
        elif self.state is State.RESOLVING:
            self._maybe_resolved(now)
        elif self.state is not State.CLOSED and now >= self._next_at:
            if self.state is State.WAITING:
                self._try_next()
            else:
                self._end("no answer in time")

    # Connecting

    def _try_next(self) -> None:
        """The next address of this host, or the first of the next host."""
        now = self._clock.monotonic()
        if self._addresses:
            self._connect(*self._addresses.popleft())
            return
        self._hosts.append(self._hosts.pop(0))
        self._lookup = Lookup(*self._hosts[-1], give_up_at=now + self._attempt_s)
        self.state = State.RESOLVING
        self._maybe_resolved(now)

    def _maybe_resolved(self, now: float) -> None:
        assert self._lookup is not None
        if self._lookup.addresses is None and now < self._lookup.give_up_at:
            self._next_at = now + LOOKUP_POLL_S
            return
        self._addresses = deque(self._lookup.addresses or ())
        self._lookup = None
        if self._addresses:
            self._connect(*self._addresses.popleft())
        else:
            self._end("the name is not known")

    def _connect(self, family: socket.AddressFamily, address: tuple[Any, ...]) -> None:
        self.state = State.CONNECTING
        self._next_at = self._clock.monotonic() + self._attempt_s
        try:
            self.socket = socket.socket(family, socket.SOCK_STREAM)
            self.socket.setblocking(False)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.socket.connect(address)
        except BlockingIOError:
            return
        except OSError as error:
            self._end(error)
            return
        self.writable()

    def _greet(self) -> None:
        self.state = State.GREETING
        self._greeted_at = self._clock.monotonic()
        self._to_send += jute.connect_frame(
            self._session_zxid, self._timeout_ms, self.session_id, self._password
        )

    def _greeted(self, frame: bytes) -> None:
        answer = jute.decode_connected(frame)
        if answer.timeout_ms <= 0:
            self._expired()
            return
        self.session_id, self._password = answer.session_id, answer.password
        self._timeout_s = answer.timeout_ms / 1000
        self._xid = 0
        self._addresses.clear()
        self.state = State.CONNECTED
        for request in self._watches.requests(self.zxid_seen):
            self.send(request, lambda answer, code: None)
        self._sent_at = self._heard_at = self._clock.monotonic()
        self._alive_at = self._greeted_at
        self._pings.clear()
        self._listener.session_connected()

    def _expired(self) -> None:
        self.session_id = self._session_zxid = 0
        self._password = bytes(jute.PASSWORD_BYTES)
        self._timeout_s = self._timeout_ms / 1000
        self._watches.clear()
        self._attempts = 0
        self._hosts.insert(0, self._hosts.pop())  # the same server: it has answered
        self._end("the session has expired")
        self._listener.session_expired()

    # Connected

    def _transmit(self, frame: bytes) -> None:
        self._sent_at = self._clock.monotonic()
        self._to_send += frame
        self._flush()

    def _flush(self) -> None:
        """A failure is for the next tick: the sender may be in the middle of something."""
        if self.socket is None or not self._to_send or self.state is State.CONNECTING:
            return
        try:
            del self._to_send[: self.socket.send(self._to_send)]
        except BlockingIOError:
            return
        except OSError as error:
            self.drop(str(error))

    def _handle_frames(self) -> None:
        try:
            while self._broken is None and self.socket is not None:
                is_greeting = self.state is State.GREETING
                bytes_max = jute.HANDSHAKE_BYTES_MAX if is_greeting else jute.ANSWER_BYTES_MAX
                frame = jute.take_frame(self._received, bytes_max)
                if frame is None:
                    break
                if is_greeting:
                    self._greeted(frame)
                else:
                    self._handle_frame(frame)
        except Malformed as error:
            logger.warning("what answers at %s is no ZooKeeper: %s", self._peer(), error)
            self._end(error)
        if self._broken is not None:
            self._end(self._broken)

    def _handle_frame(self, frame: bytes) -> None:
        header, reader = jute.decode_answer_header(frame)
        self._attempts = 0
        self._heard_at = self._clock.monotonic()
        if header.xid == jute.WATCH_EVENT_XID:
            self._fire(*jute.decode_event(reader))
        elif header.xid != jute.PING_XID:
            self._answer(header, reader)
        elif self._pings:
            self._alive_at = max(self._alive_at, self._pings.popleft())

    def _fire(self, kind: EventType | None, path: str) -> None:
        watchers = self._watches.take(kind, path) if kind is not None else ()
        if kind is not None and watchers:
            event = WatchedEvent(kind, path.removeprefix(self._chroot) or "/")
            self._listener.watches_fired(watchers, event)

    def _answer(self, header: jute.AnswerHeader, reader: jute.Reader) -> None:
        if not self._unanswered or self._unanswered[0].xid != header.xid:
            raise Malformed(f"an answer to request {header.xid}, which is not the next")
        oldest = self._unanswered[0]
        code = header.code
        answer = None
        if code == Code.NO_NODE and isinstance(oldest.request, Exists):
            code = Code.OK
        elif code == Code.OK:
            answer = oldest.request.decode(reader)
        self._unanswered.popleft()
        self._alive_at = max(self._alive_at, oldest.sent_at)
        if header.zxid > 0:
            self._session_zxid = header.zxid
            self.zxid_seen = max(self.zxid_seen, header.zxid)
        if oldest.watcher is not None and code == Code.OK:
            self._keep_watch(oldest.request, answer, oldest.watcher)
        oldest.answered(answer, code)
        if isinstance(oldest.request, jute.CloseSession):
            self._end(None)

    def _keep_watch(self, request: Request, answer: Any, watcher: Watcher) -> None:
        assert isinstance(request, jute.Read), request
        kind = WatchKind.CHILD if isinstance(request, GetChildren) else WatchKind.DATA
        if isinstance(request, Exists) and answer is None:
            kind = WatchKind.EXIST
        self._watches.add(kind, request.path, watcher)

    def _silent_at(self) -> float:
        """When the server will have been silent for too long, or have owed an answer."""
        since = self._heard_at
        if self._unanswered:
            since = min(since, self._unanswered[0].sent_at)
        return since + self._timeout_s * SILENCE_SHARE

    # Leaving a connection

    def _end(self, reason: object) -> None:
        """Of the connection or the attempt; of the session too, if that is being closed."""
        before = self.state
        logger.debug("%s: %s", self._peer(), reason)
        self._close_socket()
        self._broken = None
        is_over = before is State.CLOSING or reason is None
        unanswered = list(self._unanswered)
        self._unanswered.clear()
        self.state = State.CLOSED if is_over else State.WAITING
        self._next_at = self._clock.monotonic() + (0 if is_over else self._delay_s())
        for each in unanswered:
            each.answered(None, Code.SESSION_EXPIRED if is_over else Code.CONNECTION_LOSS)
        if is_over:
            if before is not State.CLOSED:
                self._listener.session_closed()
        elif before is State.CONNECTED:
            self._listener.session_lost()

    def _delay_s(self) -> float:
        """None as long as there are addresses that were not tried since the last answer."""
        self._attempts += 1
        rounds = self._attempts // len(self._hosts)
        if self._addresses or rounds == 0:
            return 0.0
        longest_s = min(RECONNECT_DELAY_S * (1 << min(rounds - 1, 10)), RECONNECT_DELAY_S_MAX)
        return random.uniform(0.6, 1.0) * longest_s

    def _close_socket(self) -> None:
        if self.socket is not None:
            self._listener.socket_closing(self.socket)
            self.socket.close()
            self.socket = None
        self._received.clear()
        self._to_send.clear()

    def _peer(self) -> str:
        return "{}:{}".format(*self._hosts[-1])


class Lookup:
    """The addresses of a host, found in a thread of its own unless it is an address itself."""

    def __init__(self, host: str, port: int, *, give_up_at: float) -> None:
        self.give_up_at = give_up_at
        self.addresses: list[Address] | None = None  # None until they are known
        try:
            self.addresses = _addresses(host, port, socket.AI_NUMERICHOST)
        except (OSError, UnicodeError):
            threading.Thread(target=self._look_up, args=(host, port), daemon=True).start()

    def _look_up(self, host: str, port: int) -> None:
        try:
            self.addresses = _addresses(host, port, 0)
        except (OSError, UnicodeError):
            self.addresses = []


def _addresses(host: str, port: int, flags: int) -> list[Address]:
    found = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP, flags=flags
    )
    return [(family, address) for family, _, _, _, address in found]
