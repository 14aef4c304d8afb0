"""The metadata store over a ZooKeeper ensemble, for clusters of several brokers.

What it adds to the contract of `metadata_store.py`
- `connect` blocks until there is a session and makes the chroot. `zookeeper.connect` may name
  several servers; any of them will do.
- Session events, on the loop: DISCONNECTED when the connection is lost, CONNECTED when there is one
  again, EXPIRED when the server has ended the session meanwhile. Then the ephemeral nodes and the
  watches are gone, calls made before fail with StoreClosed, and CONNECTED of a new session follows.
- Calls outlive a connection that is lost and comes back: see `zookeeper/call_queue.py`. Watches do
  too, and fire for what changed meanwhile.
- A read may be older than another broker's write: servers follow their leader. It is never older
  than what this session has seen or written.

A session that expires does so at the server: while there is no connection, nobody here can know. A
broker that must not act without its session counts from DISCONNECTED: by then up to two thirds of
the session timeout have passed without a sign of the server.

Threads: kazoo's one, which reads the connection and posts to the loop, in the order of the wire.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from kazoo.protocol.serialization import Exists, GetChildren, GetData

from tidelog.clock import Clock, SystemClock
from tidelog.controller.metadata_store import (
    ANY_VERSION,
    Create,
    Delete,
    NodeExists,
    Operation,
    Outcome,
    SessionState,
    SetData,
    Stat,
    StoreClosed,
    StoreError,
    Watcher,
    require_valid_path,
)
from tidelog.controller.zookeeper import requests
from tidelog.controller.zookeeper.blocking_calls import BlockingCalls
from tidelog.controller.zookeeper.call_queue import CallQueue, ReadCall, WriteCall
from tidelog.controller.zookeeper.connect_string import ConnectString, parse_connect_string
from tidelog.controller.zookeeper.loop_bridge import LoopBridge, LoopLine
from tidelog.controller.zookeeper.requests import Chroot
from tidelog.controller.zookeeper.session import Connection, Read, ZooKeeperSession
from tidelog.errors import StartupError
from tidelog.supervisor import tell_each

logger = logging.getLogger(__name__)

IN_FLIGHT_MAX: Final = 10
SESSION_TIMEOUT_MS: Final = 18_000
CLOSE_TIMEOUT_S: Final = 5.0
DIAGNOSIS_TIMEOUT_S: Final = 1.0

SessionWatcher = Callable[[SessionState], None]


class ZooKeeperStore:
    """One session at a time. Touched only on the broker's loop."""

    def __init__(
        self,
        connect_string: ConnectString,
        *,
        session_timeout_ms: int,
        in_flight_max: int,
        clock: Clock,
    ) -> None:
        self._chroot = Chroot(connect_string.chroot)
        self._session_timeout_s = session_timeout_ms / 1000
        self._in_flight_max = in_flight_max
        self._clock = clock
        self._bridge = LoopBridge(self._session_changed, self._session_closed)
        self._session = ZooKeeperSession(connect_string.servers, session_timeout_ms, self._bridge)
        self._blocking = BlockingCalls(
            self._session,
            chroot=self._chroot,
            timeout_s=self._session_timeout_s,
            in_flight_max=in_flight_max,
            clock=clock,
        )
        self._queue: CallQueue | None = None  # made when the loop is known
        self._listeners: list[SessionWatcher] = []
        self._session_id = 0
        self._is_connected = False
        self._closed = False
        self._ended: asyncio.Future[None]  # done when the connection's thread is

    @classmethod
    def connect(
        cls,
        connect_string: str,
        *,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        connection_timeout_ms: int | None = None,
        in_flight_max: int = IN_FLIGHT_MAX,
        loop: asyncio.AbstractEventLoop | None = None,
        clock: Clock | None = None,
    ) -> ZooKeeperStore:
        """Blocks until there is a session. Raises StartupError if there is none in time.

        Without a loop, events are kept until the first awaited call shows which one it is.
        """
        parsed = parse_connect_string(connect_string)
        store = cls(
            parsed,
            session_timeout_ms=session_timeout_ms,
            in_flight_max=in_flight_max,
            clock=clock or SystemClock(),
        )
        timeout_ms = session_timeout_ms if connection_timeout_ms is None else connection_timeout_ms
        try:
            store._open(parsed, timeout_ms)
        except BaseException:
            store._end_session()
            raise
        if loop is not None:
            store._bind(loop)
        return store

    @property
    def session_id(self) -> int:
        return self._session_id

    @property
    def is_connected(self) -> bool:
        return self._is_connected

    def on_session(self, listener: SessionWatcher) -> None:
        """Called on the loop with every change from now on."""
        self._listeners.append(listener)

    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequence: bool = False,
        make_parents: bool = False,
    ) -> str:
        made = await self.multi([Create(path, data, ephemeral, sequence, make_parents)])
        assert isinstance(made[0], str)
        return made[0]

    async def get(self, path: str, *, watch: Watcher | None = None) -> tuple[bytes, Stat]:
        found: tuple[bytes, Stat] = await self._read(GetData, path, watch, _data_and_stat)
        return found

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> int:
        made = await self.multi([SetData(path, data, version)])
        assert isinstance(made[0], int)
        return made[0]

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self.multi([Delete(path, version)])

    async def exists(self, path: str, *, watch: Watcher | None = None) -> Stat | None:
        found: Stat | None = await self._read(Exists, path, watch, _stat_or_none)
        return found

    async def children(self, path: str, *, watch: Watcher | None = None) -> list[str]:
        names: list[str] = await self._read(GetChildren, path, watch, sorted)
        return names

    async def multi(self, operations: Sequence[Operation]) -> list[Outcome]:
        queue = self._open_queue("/")
        requests.require_valid(operations)
        future: asyncio.Future[list[Outcome]] = asyncio.get_running_loop().create_future()
        queue.submit(WriteCall(future, operations, self._chroot))
        return await future

    def multi_now(self, operations: Sequence[Operation]) -> list[Outcome]:
        self._require_open("/")
        requests.require_valid(operations)
        return self._blocking.write(operations)

    def subtree(self, path: str) -> Iterator[tuple[str, bytes, Stat]]:
        self._require_open(path)
        require_valid_path(path)
        return self._blocking.subtree(path)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._bind(asyncio.get_running_loop())
        self._end_session()
        if self._is_connected:
            await asyncio.wait([self._ended], timeout=CLOSE_TIMEOUT_S)

    def _open(self, servers: ConnectString, timeout_ms: int) -> None:
        self._session.start_async()
        if not self._session.wait_until_connected(timeout_ms / 1000):
            reasons = "; ".join(_diagnosis(host, port) for host, port in servers.hosts)
            raise StartupError(
                f"zookeeper.connect: no session with ZooKeeper at {servers.servers} within "
                f"{timeout_ms} ms (zookeeper.connection.timeout.ms): {reasons}"
            )
        try:
            self._make_chroot()
            self._session_id = self._blocking.connection().session_id
        except StoreError as error:
            raise StartupError(
                f"zookeeper.connect: the chroot {servers.chroot or '/'} at {servers.servers} "
                f"cannot be used: {type(error).__name__}"
            ) from error

    def _end_session(self) -> None:
        """On a thread of its own: with no server to answer, it takes as long as it likes."""
        threading.Thread(target=self._session.end, daemon=True).start()

    def _make_chroot(self) -> None:
        if not self._chroot.path:
            return
        outside = BlockingCalls(
            self._session,
            chroot=Chroot(""),
            timeout_s=self._session_timeout_s,
            in_flight_max=1,
            clock=self._clock,
        )
        with contextlib.suppress(NodeExists):
            outside.write([Create(self._chroot.path, make_parents=True)])

    def _bind(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._queue is None:
            self._ended = loop.create_future()
            self._queue = CallQueue(
                LoopLine(self._session, self._bridge),
                session_timeout_s=self._session_timeout_s,
                in_flight_max=self._in_flight_max,
                clock=self._clock,
                timer=loop,
            )
            self._bridge.bind(loop)

    def _open_queue(self, path: str) -> CallQueue:
        self._require_open(path)
        self._bind(asyncio.get_running_loop())
        assert self._queue is not None
        return self._queue

    def _require_open(self, path: str) -> None:
        if self._closed:
            raise StoreClosed(path)

    async def _read(
        self, kind: type, path: str, watch: Watcher | None, decode: Callable[[Any], Any]
    ) -> Any:
        queue = self._open_queue(path)
        require_valid_path(path)
        watcher = None if watch is None else self._chroot.watcher(watch)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        read = Read(kind, self._chroot.full(path), watcher)
        queue.submit(ReadCall(future, read, path, decode))
        return await future

    def _session_changed(self, state: SessionState, connection: Connection) -> None:
        assert self._queue is not None
        self._is_connected = state is SessionState.CONNECTED
        if state is SessionState.CONNECTED:
            logger.info("ZooKeeper session 0x%x connected", connection.session_id & 2**64 - 1)
            self._session_id = connection.session_id
            self._queue.connected(connection)
        elif state is SessionState.DISCONNECTED:
            logger.warning("the connection to ZooKeeper is lost")
            self._queue.disconnected()
        else:
            logger.warning("the ZooKeeper session has expired")
            self._queue.ended()
        tell_each(f"a listener to {state}", list(self._listeners), state)

    def _session_closed(self) -> None:
        assert self._queue is not None
        self._is_connected = False
        self._closed = True
        self._queue.ended()
        if not self._ended.done():
            self._ended.set_result(None)


def _data_and_stat(answer: Any) -> tuple[bytes, Stat]:
    data, stat = answer
    return data or b"", requests.stat_of(stat)


def _stat_or_none(answer: Any) -> Stat | None:
    return None if answer is None else requests.stat_of(answer)


def _diagnosis(host: str, port: int) -> str:
    try:
        with socket.create_connection((host, port), timeout=DIAGNOSIS_TIMEOUT_S):
            return f"{host}:{port} accepts connections but gives no session"
    except OSError as error:
        return f"{host}:{port} {error.strerror or error}"
