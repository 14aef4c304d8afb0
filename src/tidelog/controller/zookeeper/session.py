"""The session with ZooKeeper: kazoo's connection, with what a broker needs of it made exact.

kazoo brings the wire format, the connection's thread, pings, the choice of servers and the life of
the session. Of its client this class uses the queue of requests and the notice of state changes,
not its methods, because four things must hold that those do not give:
- A request belongs to the connection it was made for. It is answered, or it fails with that
  connection; it is never sent on a later one.
- Answers, watch events and states of the session are handed on in the order of the wire, by the one
  thread that reads it. So a change is answered after its watches have fired.
- Watches outlive a connection: they are set again with what the server missed to tell (SetWatches,
  as the Java client does), before anything else is sent.
- A connection can be dropped from outside. kazoo pings only when it has nothing to send, so with
  requests it does not notice a server that is silent.
Besides, an attempt to connect is given up early. A silent server is noticed when a third of the
session timeout is left: the attempts share that, where kazoo would wait at one server for the whole
of it. (A ZooKeeper that is just starting may accept a connection and never answer.)

Members of KazooClient that are relied on: _call, _queue, _connection, _state, _session_id,
_session_callback, _reset_watchers, _data_watchers, _child_watchers, last_zxid.
"""

from __future__ import annotations

import logging
import struct
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import _CONNECTION_DROP
from kazoo.protocol.serialization import Exists, GetChildren, GetData, write_string
from kazoo.protocol.states import KeeperState
from kazoo.retry import KazooRetry

from tidelog.controller.metadata_store import EventType, SessionState, WatchedEvent, Watcher
from tidelog.controller.zookeeper.watch_table import WatchKind, WatchTable

logger = logging.getLogger(__name__)

RECONNECT_DELAY_S: Final = 0.05
RECONNECT_DELAY_S_MAX: Final = 1.0
ATTEMPT_TIMEOUT_S_MIN: Final = 1.0
SET_WATCHES_BYTES_MAX: Final = 128 * 1024  # of paths in one request; a server takes 1 MiB
_EVENT_TYPES: Final = {
    "CREATED": EventType.CREATED,
    "DELETED": EventType.DELETED,
    "CHANGED": EventType.CHANGED,
    "CHILD": EventType.CHILD,
}


class Reply(Protocol):
    """What a request's answer is given to, on the connection's thread."""

    def set(self, value: Any) -> None: ...

    def set_exception(self, error: Exception) -> None: ...


class Connection(NamedTuple):
    """Counted, so that a request can say which one it is meant for."""

    number: int
    session_id: int


class SessionListener(Protocol):
    """Called on the connection's thread; must not block."""

    def post(self, callback: Callable[..., object], *arguments: object) -> None: ...

    def session_changed(self, state: SessionState, connection: Connection) -> None: ...

    def session_closed(self) -> None:
        """By `end`, or because kazoo gave up."""


class Read(NamedTuple):
    """GetData, Exists or GetChildren, and the watch it leaves."""

    kind: type
    path: str
    watcher: Watcher | None = None


class SetWatches:
    """A request that kazoo does not have."""

    type = 101

    def __init__(self, relative_zxid: int, paths: Mapping[WatchKind, Sequence[str]]) -> None:
        self._relative_zxid = relative_zxid
        self._paths = paths

    def serialize(self) -> bytes:
        parts = [struct.pack("!q", self._relative_zxid)]
        for kind in (WatchKind.DATA, WatchKind.EXIST, WatchKind.CHILD):
            paths = self._paths.get(kind, ())
            parts.append(struct.pack("!i", len(paths)))
            parts += [write_string(path) for path in paths]
        return b"".join(parts)


class _InlineHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """Calls back on the connection's thread instead of two more that race each other."""

    def __init__(self, attempt_timeout_s: float) -> None:
        super().__init__()
        self.is_connected = False
        self._attempt_timeout_s = attempt_timeout_s

    def select(self, readers: Any, writers: Any, failed: Any, timeout: float) -> Any:
        if not self.is_connected:
            timeout = min(timeout, self._attempt_timeout_s)
        return super().select(readers, writers, failed, timeout)

    def create_connection(self, *, timeout: float, **options: Any) -> Any:
        return super().create_connection(timeout=min(timeout, self._attempt_timeout_s), **options)

    def start(self) -> None:
        self._running = True

    def stop(self) -> None:
        self._running = False

    def dispatch_callback(self, callback: Any) -> None:
        callback.func(*callback.args)


class ZooKeeperSession(KazooClient):  # type: ignore[misc]
    """`submit` and `end` may be called from any thread."""

    def __init__(self, servers: str, session_timeout_ms: int, listener: SessionListener) -> None:
        self._gate = threading.RLock()  # a state changes as a whole, or a request is queued
        self._listener = listener
        self._watches = WatchTable()
        self._connection_number = 0
        self._earlier_zxid = 0
        self._ending = False
        kazoo_logger = logger.getChild("kazoo")
        kazoo_logger.setLevel(logging.ERROR)  # it tells of every attempt to connect
        attempt_timeout_s = session_timeout_ms / 1000 / 3 / (servers.count(",") + 1)
        handler = _InlineHandler(max(attempt_timeout_s, ATTEMPT_TIMEOUT_S_MIN))
        super().__init__(
            hosts=servers,
            timeout=session_timeout_ms / 1000,
            handler=handler,
            connection_retry=KazooRetry(
                max_tries=-1,
                delay=RECONNECT_DELAY_S,
                max_delay=RECONNECT_DELAY_S_MAX,
                sleep_func=handler.sleep_func,
            ),
            logger=kazoo_logger,
        )

    def connection_or_none(self) -> Connection | None:
        with self._gate:
            return self._current() if self.connected else None

    def wait_until_connected(self, timeout_s: float) -> bool:
        return bool(self._live.wait(timeout_s))

    @property
    def zxid_seen(self) -> int:
        """The newest transaction that any answer has shown; 0 before the first."""
        return max(self._earlier_zxid, int(self.last_zxid))

    def submit(self, request: Any, reply: Reply, connection_number: int) -> bool:
        """False if that connection is gone: nothing was sent, and there will be no reply."""
        with self._gate:
            if not self.connected or connection_number != self._connection_number:
                return False
            if isinstance(request, Read):
                self._submit_read(request, reply)
            else:
                self._call(request, reply)
            return True

    def drop_connection(self, connection_number: int) -> None:
        """As if it had broken: what is under way fails, and another server is tried."""
        with self._gate:
            if self.connected and connection_number == self._connection_number:
                self._queue.append((_CONNECTION_DROP, None))
                self._connection._write_sock.send(b"\0")

    def end(self) -> None:
        """Closes the session at the server if there is a connection. Blocks."""
        with self._gate:
            self._ending = True
            self._watches.clear()
        self.stop()
        self.close()

    def _submit_read(self, read: Read, reply: Reply) -> None:
        if read.watcher is None:
            self._call(read.kind(read.path, None), reply)
        else:
            self._call(
                read.kind(read.path, self._fired), _WatchingReply(read, reply, self._watches)
            )

    def _fired(self, event: Any) -> None:
        kind = _EVENT_TYPES.get(event.type)
        if kind is None:  # kazoo's notice that the session is over
            return
        for watcher in self._watches.take(kind, event.path):
            self._listener.post(watcher, WatchedEvent(kind, event.path))

    def _session_callback(self, state: str) -> None:
        with self._gate:
            before = self._state
            self.handler.is_connected = state == KeeperState.CONNECTED
            self._earlier_zxid = self.zxid_seen  # kazoo forgets it with the session
            super()._session_callback(state)
            if state == before:
                return
            if state == KeeperState.CONNECTED:
                self._connection_number += 1
                self._restore_watches()
                self._tell(SessionState.CONNECTED)
            elif state == KeeperState.CONNECTING and before == KeeperState.CONNECTED:
                self._tell(SessionState.DISCONNECTED)
            elif state == KeeperState.EXPIRED_SESSION:
                self._watches.clear()
                self._tell(SessionState.EXPIRED)
            elif state in (KeeperState.CLOSED, KeeperState.AUTH_FAILED):
                self._watches.clear()
                if not self._ending:
                    logger.critical("the connection to ZooKeeper has ended for good: %s", state)
                self._listener.session_closed()

    def _tell(self, state: SessionState) -> None:
        self._listener.session_changed(state, self._current())

    def _current(self) -> Connection:
        return Connection(self._connection_number, self._session_id or 0)

    def _reset_watchers(self) -> None:
        """kazoo forgets watches with the connection; here they go with the session."""
        if self._state != KeeperState.CONNECTING:
            self._data_watchers: dict[str, set[Any]] = defaultdict(set)
            self._child_watchers: dict[str, set[Any]] = defaultdict(set)

    def _restore_watches(self) -> None:
        """The queue is empty: all that was in it failed with the connection before."""
        for request in _set_watches(self._watches, self.zxid_seen):
            self._call(request, None)


class _WatchingReply:
    """Keeps the watch once the server has it, and passes the answer on."""

    __slots__ = ("_read", "_reply", "_watches")

    def __init__(self, read: Read, reply: Reply, watches: WatchTable) -> None:
        self._read = read
        self._reply = reply
        self._watches = watches

    def set(self, value: Any) -> None:
        kind, path, watcher = self._read
        assert watcher is not None
        if kind is GetChildren:
            self._watches.add(WatchKind.CHILD, path, watcher)
        elif kind is Exists and value is None:
            self._watches.add(WatchKind.EXIST, path, watcher)
        else:
            assert kind in (Exists, GetData), kind
            self._watches.add(WatchKind.DATA, path, watcher)
        self._reply.set(value)

    def set_exception(self, error: Exception) -> None:
        self._reply.set_exception(error)


def _set_watches(table: WatchTable, relative_zxid: int) -> Iterator[SetWatches]:
    for chunk in _chunks(table):
        by_kind: dict[WatchKind, list[str]] = {kind: [] for kind in WatchKind}
        for kind, path in chunk:
            by_kind[kind].append(path)
        yield SetWatches(relative_zxid, by_kind)


def _chunks(table: WatchTable) -> Iterator[list[tuple[WatchKind, str]]]:
    chunk: list[tuple[WatchKind, str]] = []
    size = 0
    for kind in WatchKind:
        for path in table.paths(kind):
            size += len(path.encode()) + 4
            if chunk and size > SET_WATCHES_BYTES_MAX:
                yield chunk
                chunk, size = [], len(path.encode()) + 4
            chunk.append((kind, path))
    if chunk:
        yield chunk
