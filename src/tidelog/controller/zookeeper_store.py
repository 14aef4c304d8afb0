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
broker that must not act without its session asks `session_left_s`.

The broker's loop drives the session (`zookeeper/session.py`), with no thread between them. A call
that blocks drives it itself until it has its answer. While something else holds the loop, nobody
pings: a broker whose loop is held for the session timeout is gone for the cluster.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import select
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from tidelog.clock import Clock, SystemClock, TimerHandle
from tidelog.controller.metadata_store import (
    Create,
    MetadataStore,
    NodeExists,
    NoNode,
    Operation,
    Outcome,
    SessionState,
    Stat,
    StoreClosed,
    StoreError,
    WatchedEvent,
    Watcher,
    require_valid_path,
)
from tidelog.controller.zookeeper import jute
from tidelog.controller.zookeeper.call_queue import CallQueue, ReadCall, WriteCall
from tidelog.controller.zookeeper.connect_string import (
    Chroot,
    ConnectString,
    parse_connect_string,
)
from tidelog.controller.zookeeper.jute import Exists, GetChildren, GetData, Read
from tidelog.controller.zookeeper.session import ZooKeeperSession
from tidelog.errors import StartupError
from tidelog.supervisor import tell_each

logger = logging.getLogger(__name__)

IN_FLIGHT_MAX: Final = 10
SESSION_TIMEOUT_MS: Final = 18_000
CLOSE_TIMEOUT_S: Final = 5.0
DIAGNOSIS_TIMEOUT_S: Final = 1.0

SessionWatcher = Callable[[SessionState], None]


class ZooKeeperStore(MetadataStore):
    """One session at a time. Touched only on the broker's loop, and before it runs."""

    def __init__(
        self,
        servers: ConnectString,
        *,
        session_timeout_ms: int,
        in_flight_max: int,
        clock: Clock,
    ) -> None:
        self._servers = servers
        self._chroot = Chroot(servers.chroot)
        self._clock = clock
        self._session = ZooKeeperSession(servers, session_timeout_ms, self, clock)
        self._queue = CallQueue(
            self._session,
            session_timeout_s=session_timeout_ms / 1000,
            in_flight_max=in_flight_max,
            clock=clock,
        )
        self._driver = _LoopDriver(self._session, self._tick, self._deadline, clock)
        self._listeners: list[SessionWatcher] = []
        self.session_changes: Counter[SessionState] = Counter()  # told so far
        self._session_id = 0  # of the last session that there was
        self._closed = False
        self._over: asyncio.Future[None] | None = None  # done when the closed session is over

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
        store = cls(
            parse_connect_string(connect_string),
            session_timeout_ms=session_timeout_ms,
            in_flight_max=in_flight_max,
            clock=clock or SystemClock(),
        )
        timeout_ms = session_timeout_ms if connection_timeout_ms is None else connection_timeout_ms
        try:
            store._open(timeout_ms)
        except BaseException:
            store._session.abandon()
            raise
        if loop is not None:
            store._driver.bind(loop)
        return store

    @property
    def session_id(self) -> int:
        return self._session_id

    @property
    def is_connected(self) -> bool:
        return self._session.is_connected

    def on_session(self, listener: SessionWatcher) -> None:
        """Called on the loop with every change from now on."""
        self._listeners.append(listener)

    async def get(self, path: str, *, watch: Watcher | None = None) -> tuple[bytes, Stat]:
        found: tuple[bytes, Stat] = await self._read(GetData, path, watch)
        return found

    async def exists(self, path: str, *, watch: Watcher | None = None) -> Stat | None:
        found: Stat | None = await self._read(Exists, path, watch)
        return found

    async def children(self, path: str, *, watch: Watcher | None = None) -> list[str]:
        names: list[str] = await self._read(GetChildren, path, watch)
        return names

    async def multi(self, operations: Sequence[Operation]) -> list[Outcome]:
        self._require_open("/")
        jute.require_valid(operations)
        future: asyncio.Future[list[Outcome]] = asyncio.get_running_loop().create_future()
        self._submit(WriteCall(future, operations, self._chroot))
        return await future

    def multi_now(self, operations: Sequence[Operation]) -> list[Outcome]:
        self._require_open("/")
        jute.require_valid(operations)
        return self._write_now(operations, self._chroot)

    def subtree(self, path: str) -> Iterator[tuple[str, bytes, Stat]]:
        """Level by level from the server, parents first and siblings by name to the caller."""
        self._require_open(path)
        require_valid_path(path)
        nodes: dict[str, tuple[bytes, Stat]] = {}
        children: dict[str, list[str]] = {}
        level = [path]
        while level:
            found: dict[str, tuple[bytes, Stat]] = self._read_now(GetData, level)
            nodes |= found
            parents = [each for each, (_, stat) in found.items() if stat.num_children]
            level = []
            for parent, names in self._read_now(GetChildren, parents).items():
                prefix = "" if parent == "/" else parent
                children[parent] = [f"{prefix}/{name}" for name in names]
                level += children[parent]
        return _in_order(path, nodes, children)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._driver.bind(asyncio.get_running_loop())
        self._over = asyncio.get_running_loop().create_future()
        self._session.close()
        self._queue.closed()
        self._driver.rearm()
        await asyncio.wait([self._over], timeout=CLOSE_TIMEOUT_S)
        self._session.abandon()

    def _submit(self, call: ReadCall | WriteCall) -> None:
        self._driver.bind(asyncio.get_running_loop())
        self._queue.submit(call)
        self._driver.rearm()

    async def _read(self, kind: type[Read], path: str, watch: Watcher | None) -> Any:
        self._require_open(path)
        require_valid_path(path)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        read = kind(self._chroot.full(path), watch is not None)
        self._submit(ReadCall(future, read, path, watch))
        return await future

    def _require_open(self, path: str) -> None:
        if self._closed:
            raise StoreClosed(path)

    # What blocks

    def _open(self, timeout_ms: int) -> None:
        servers = self._servers
        deadline = self._clock.monotonic() + timeout_ms / 1000
        self._drive_until(lambda: self._session.is_connected, deadline)
        if not self._session.is_connected:
            reasons = "; ".join(_diagnosis(host, port) for host, port in servers.hosts)
            raise StartupError(
                f"zookeeper.connect: no session with ZooKeeper at {servers.servers} within "
                f"{timeout_ms} ms (zookeeper.connection.timeout.ms): {reasons}"
            )
        if not self._chroot.path:
            return
        try:
            with contextlib.suppress(NodeExists):
                self._write_now([Create(self._chroot.path, make_parents=True)], Chroot(""))
        except StoreError as error:
            raise StartupError(
                f"zookeeper.connect: the chroot {servers.chroot or '/'} at {servers.servers} "
                f"cannot be used: {type(error).__name__}"
            ) from error

    def _write_now(self, operations: Sequence[Operation], chroot: Chroot) -> list[Outcome]:
        future: concurrent.futures.Future[list[Outcome]] = concurrent.futures.Future()
        self._queue.submit(WriteCall(future, operations, chroot))
        self._drive_until(future.done)
        return future.result()

    def _read_now(self, kind: type[Read], paths: Sequence[str]) -> dict[str, Any]:
        """Of those that are there."""
        futures: dict[str, concurrent.futures.Future[Any]] = {}
        for path in paths:
            futures[path] = concurrent.futures.Future()
            self._queue.submit(ReadCall(futures[path], kind(self._chroot.full(path)), path))
        found: dict[str, Any] = {}
        for path, future in futures.items():
            self._drive_until(future.done)
            with contextlib.suppress(NoNode):
                found[path] = future.result()
        return found

    def _drive_until(self, done: Callable[[], bool], deadline: float | None = None) -> None:
        """Instead of the loop, which may not run yet, and does not while this does."""
        try:
            while not done() and (deadline is None or self._clock.monotonic() < deadline):
                self._wait_for_the_session(deadline)
                self._tick()
        finally:
            self._driver.rearm()

    def _wait_for_the_session(self, deadline: float | None) -> None:
        deadlines = [each for each in (deadline, self._deadline()) if each is not None]
        delay_s = max(min(deadlines) - self._clock.monotonic(), 0)
        sock = self._session.socket
        if sock is None:
            time.sleep(delay_s)
            return
        poll = select.poll()
        poll.register(sock, select.POLLIN | select.POLLOUT * self._session.wants_to_write)
        for _, events in poll.poll(delay_s * 1000):
            if events & (select.POLLOUT | select.POLLERR | select.POLLHUP):
                self._session.writable()
            if events & ~select.POLLOUT:
                self._session.readable()

    def _tick(self) -> None:
        self._session.tick()
        self._queue.give_up()

    def _deadline(self) -> float | None:
        """When `_tick` has something to do."""
        deadlines = (self._session.deadline, self._queue.deadline)
        return min((each for each in deadlines if each is not None), default=None)

    def session_left_s(self) -> float:
        """How long the session lives at least; not above 0 if it may have expired."""
        return self._session.left_s()

    # What the session tells

    def session_connected(self) -> None:
        self._session_id = self._session.session_id
        logger.info("ZooKeeper session 0x%x connected", self._session_id & 2**64 - 1)
        self._tell(SessionState.CONNECTED)
        self._queue.connected()

    def session_lost(self) -> None:
        logger.warning("the connection to ZooKeeper is lost")
        self._tell(SessionState.DISCONNECTED)
        self._queue.disconnected()

    def session_expired(self) -> None:
        logger.warning("the ZooKeeper session has expired")
        self._tell(SessionState.EXPIRED)
        self._queue.expired()

    def session_closed(self) -> None:
        if self._over is not None and not self._over.done():
            self._over.set_result(None)

    def watches_fired(self, watchers: Sequence[Watcher], event: WatchedEvent) -> None:
        for watcher in watchers:
            self._driver.post(watcher, event)

    def socket_closing(self, sock: socket.socket) -> None:
        self._driver.forget(sock)

    def _tell(self, state: SessionState) -> None:
        """Before those are answered whom it concerns."""
        self.session_changes[state] += 1
        self._driver.post(self._tell_listeners, state)

    def _tell_listeners(self, state: SessionState) -> None:
        tell_each(f"a listener to {state}", list(self._listeners), state)


class _LoopDriver:
    """Has the broker's loop call the session. What is told before the loop is known is kept.

    Watchers and listeners are called by the loop and not from within the session: they may block
    for an answer of their own, and what one fails with is nobody else's.
    """

    def __init__(
        self,
        session: ZooKeeperSession,
        tick: Callable[[], None],
        deadline: Callable[[], float | None],
        clock: Clock,
    ) -> None:
        self._session = session
        self._tick = tick
        self._deadline = deadline
        self._clock = clock
        self._loop: asyncio.AbstractEventLoop | None = None
        self._backlog: list[tuple[Callable[..., object], tuple[object, ...]]] = []
        self._registered: socket.socket | None = None
        self._is_writing = False
        self._timer: TimerHandle | None = None
        self._timer_at = 0.0

    def bind(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._loop is not None:
            return
        self._loop = loop
        backlog, self._backlog = self._backlog, []
        for callback, arguments in backlog:
            callback(*arguments)
        self.rearm()

    def post(self, callback: Callable[..., object], *arguments: object) -> None:
        if self._loop is None:
            self._backlog.append((callback, arguments))
        else:
            self._loop.call_soon(callback, *arguments)

    def rearm(self) -> None:
        """After anything that the session was asked or told."""
        if self._loop is None:
            return
        sock = self._session.socket
        if sock is not None:
            if self._registered is None:
                self._registered = sock
                self._loop.add_reader(sock.fileno(), self._call, self._session.readable)
            wants_to_write = self._session.wants_to_write
            if wants_to_write and not self._is_writing:
                self._loop.add_writer(sock.fileno(), self._call, self._session.writable)
            elif self._is_writing and not wants_to_write:
                self._loop.remove_writer(sock.fileno())
            self._is_writing = wants_to_write
        self._rearm_timer(self._loop)

    def _rearm_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        """A timer that is early does no harm, and most that are set would never run."""
        due_at = self._deadline()
        if due_at is None or (self._timer is not None and self._timer_at <= due_at):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = due_at
        self._timer = loop.call_later(max(due_at - self._clock.monotonic(), 0), self._timer_ran)

    def forget(self, sock: socket.socket) -> None:
        if self._registered is sock and self._loop is not None:
            self._loop.remove_reader(sock.fileno())
            if self._is_writing:
                self._loop.remove_writer(sock.fileno())
        self._registered = None
        self._is_writing = False

    def _timer_ran(self) -> None:
        self._timer = None
        self._call(self._tick)

    def _call(self, step: Callable[[], None]) -> None:
        try:
            step()
        finally:
            self.rearm()


def _in_order(
    path: str, nodes: dict[str, tuple[bytes, Stat]], children: dict[str, list[str]]
) -> Iterator[tuple[str, bytes, Stat]]:
    waiting = [path]
    while waiting:
        each = waiting.pop()
        if each in nodes:
            yield (each, *nodes[each])
            waiting += reversed(children.get(each, ()))


def _diagnosis(host: str, port: int) -> str:
    try:
        with socket.create_connection((host, port), timeout=DIAGNOSIS_TIMEOUT_S):
            return f"{host}:{port} accepts connections but gives no session"
    except OSError as error:
        return f"{host}:{port} {error.strerror or error}"
