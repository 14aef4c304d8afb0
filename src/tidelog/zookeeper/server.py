"""The server: its database, its sessions, its connections, and whose turn it is.

A turn of the loop begins requests for at most four milliseconds, some of each connection that has
any (`wants_turn`). None begins while a large transaction is being applied in slices, which nobody
may see half of. Work that may be long is cut up: a session that ends leaves its ephemeral nodes
in transactions of 200, the first of which also ends the session. A crash in between leaves nodes
without a session, which the next start deletes before it serves.

A session ends when its client says so or has been silent for its timeout. It does not end with a
connection, nor with the process: sessions and ephemeral nodes are in the journal, and after a
restart each client has its whole timeout to come back.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import os
import secrets
import time
from collections.abc import Callable, Coroutine
from itertools import count
from pathlib import Path
from typing import Final

from tidelog.clock import Clock, SystemClock
from tidelog.controller.metadata_store import Create, StoreError
from tidelog.controller.node_database import SMALL_TRANSACTION, NodeDatabase, Result
from tidelog.controller.outstanding_changes import CloseSession, DropEphemeral, OpenSession
from tidelog.controller.zookeeper.jute import PASSWORD_BYTES
from tidelog.errors import StartupError
from tidelog.slices import SLICE_S, Slices
from tidelog.supervisor import report
from tidelog.zookeeper.requests import RESERVED, RequestProcessor
from tidelog.zookeeper.server_connection import ServerConnection
from tidelog.zookeeper.session_tracker import TICK_S, Session, SessionTracker
from tidelog.zookeeper.watch_manager import WatchManager
from tidelog.zookeeper.wire import ConnectRequest

logger = logging.getLogger(__name__)

SESSION_TIMEOUT_MS_MIN: Final = 1_000
SESSION_TIMEOUT_MS_MAX: Final = 120_000
CONNECTIONS_MAX: Final = 1_000
RETRY_S: Final = 1.0  # after the disk has refused the end of a session


class EmbeddedZooKeeper:
    """Touched only on the loop."""

    def __init__(
        self, directory: Path, loop: asyncio.AbstractEventLoop, clock: Clock | None = None
    ) -> None:
        """Reads the data. Raises StartupError if it cannot."""
        self.directory = directory
        self.loop = loop
        self._clock = clock or SystemClock()
        directory.mkdir(parents=True, exist_ok=True)
        self.database = NodeDatabase.open(directory, clock=self._clock, keeps_sessions=True)
        self.watches = WatchManager(self.database.tree)
        self.database.fired = self.watches.applied
        self.database.readers_wait = True
        self.tracker = SessionTracker(self._clock)
        self.requests = RequestProcessor(self)
        self.connections: dict[ServerConnection, None] = {}
        self.port = 0
        self.received_count = 0  # of connections that have ended
        self.sent_count = 0
        self._session_numbers = count(1)
        self._ready: dict[ServerConnection, None] = {}  # in the order of their turns
        self._is_turn_due = False
        self._slices = Slices()
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener: asyncio.Server | None = None
        self._tick_handle: asyncio.TimerHandle | None = None

    # Life

    async def start(self, host: str, port: int) -> None:
        await self._make_reserved_nodes()
        await self._drop_orphans()
        for session_id, kept in self.database.tree.sessions.items():
            self.tracker.add(Session(session_id, kept.timeout_ms, kept.password))
        try:
            self._listener = await self.loop.create_server(
                lambda: ServerConnection(self), host, port, backlog=511
            )
        except OSError as error:
            raise StartupError(f"{host}:{port}: {_reason(error)}") from error
        self.port = self._listener.sockets[0].getsockname()[1]
        self._tick()

    async def _make_reserved_nodes(self) -> None:
        missing = [path for path in RESERVED if path not in self.database.tree.nodes]
        if missing:
            await self.database.write([Create(path) for path in missing], 0)

    async def _drop_orphans(self) -> None:
        tree = self.database.tree
        for owner in [owner for owner in tree.ephemerals if owner not in tree.sessions]:
            over = asyncio.Event()
            self._drop_ephemerals(owner, [], over.set)
            await over.wait()

    async def stop(self) -> None:
        """Sessions stay."""
        if self._tick_handle is not None:
            self._tick_handle.cancel()
        if self._listener is not None:
            self._listener.close()
        for connection in list(self.connections):
            connection.abort()
        await self.database.close()

    # Turns

    def wants_turn(self, connection: ServerConnection) -> None:
        """It may have requests that can begin."""
        self._ready[connection] = None
        if not self._is_turn_due:
            self._is_turn_due = True
            self.loop.call_soon(self._turn)

    def _turn(self) -> None:
        if self.database.is_applying:
            self.start_work(self._turn_when_settled())
            return
        until = time.perf_counter() + SLICE_S
        while self._ready and time.perf_counter() < until:
            connection = next(iter(self._ready))
            del self._ready[connection]
            if connection.work():
                self._ready[connection] = None
        if self._ready:
            self.loop.call_soon(self._turn)
        else:
            self._is_turn_due = False

    async def _turn_when_settled(self) -> None:
        await self.database.settled.wait()
        self._turn()

    async def breathe(self) -> None:
        """Between two steps of a work that reads the tree."""
        await self._slices.breathe()
        while self.database.is_applying:
            await self.database.settled.wait()

    # Connections

    def take(self, connection: ServerConnection) -> bool:
        """False if there are too many."""
        if len(self.connections) >= CONNECTIONS_MAX:
            return False
        self.connections[connection] = None
        return True

    def forget(self, connection: ServerConnection) -> None:
        if connection not in self.connections:
            return
        del self.connections[connection]
        self.received_count += connection.received_count
        self.sent_count += connection.sent_count
        session = connection.session
        if session is not None and session.connection is connection:
            session.connection = None
        if connection.watches:
            self.start_work(self._remove_watches(connection))

    async def _remove_watches(self, connection: ServerConnection) -> None:
        for _ in self.watches.remove_all(connection):
            await self._slices.breathe()

    def count_below(self, path: str, done: Callable[[int], None]) -> None:
        self.start_work(self._count_below(path, done))

    async def _count_below(self, path: str, done: Callable[[int], None]) -> None:
        nodes = self.database.tree.nodes
        found = 0
        waiting = [path]
        while waiting:
            await self.breathe()
            below = waiting.pop()
            node = nodes.get(below)
            if node is not None and node.children:
                found += len(node.children)
                prefix = "" if below == "/" else below
                waiting += [f"{prefix}/{name}" for name in node.children]
        done(found)

    def start_work(self, work: Coroutine[object, object, None]) -> None:
        task = self.loop.create_task(work)
        report("work of the server", task)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # Sessions

    def connect(self, connection: ServerConnection, request: ConnectRequest) -> None:
        if request.zxid_seen > self.database.tree.zxid:
            logger.warning(
                "refused a client that has seen zxid 0x%x, which this data has not reached",
                request.zxid_seen,
            )
            connection.abort()
            return
        timeout_ms = min(max(request.timeout_ms, SESSION_TIMEOUT_MS_MIN), SESSION_TIMEOUT_MS_MAX)
        if request.session_id:
            self._reopen(connection, request, timeout_ms)
            return
        session = Session(
            self.database.session_id(next(self._session_numbers)),
            timeout_ms,
            secrets.token_bytes(PASSWORD_BYTES),
        )

        def done(result: Result) -> None:
            if isinstance(result, StoreError):
                connection.abort()
                return
            self.tracker.add(session)
            session.connection = connection
            connection.opened(session, request.knows_read_only)

        opening = OpenSession(session.id, timeout_ms, session.password)
        self.database.submit([opening], session.id, done)

    def _reopen(
        self, connection: ServerConnection, request: ConnectRequest, timeout_ms: int
    ) -> None:
        session = self.tracker.sessions.get(request.session_id)
        if session is None or not hmac.compare_digest(session.password, request.password):
            connection.refused(request.knows_read_only)
            return
        if session.connection is not None:
            session.connection.close()
        session.connection = connection
        session.timeout_ms = timeout_ms
        self.tracker.touch(session)
        connection.opened(session, request.knows_read_only)

    def _tick(self) -> None:
        for session in self.tracker.due():
            logger.info("session 0x%x has expired", session.id)
            self.close_session(session, lambda: None)
            if session.connection is not None:
                session.connection.close()
        self._tick_handle = self.loop.call_later(TICK_S, self._tick)

    def close_session(self, session: Session, then: Callable[[], None]) -> None:
        """Takes no more requests of it; `then` is called when its ephemeral nodes are gone."""
        session.is_closing = True
        self.tracker.remove(session)

        def drop() -> None:
            self._drop_ephemerals(session.id, [CloseSession(session.id)], then)

        if session.writes_under_way:
            session.after_writes = drop
        else:
            drop()

    def _drop_ephemerals(
        self, session_id: int, first: list[CloseSession], then: Callable[[], None]
    ) -> None:
        drops = [DropEphemeral(p, session_id) for p in self.database.tree.ephemerals_of(session_id)]
        operations: list[CloseSession | DropEphemeral] = [*first, *drops]
        pieces = [
            operations[start : start + SMALL_TRANSACTION]
            for start in range(0, len(operations), SMALL_TRANSACTION)
        ]
        left = len(pieces)
        is_refused = False

        def done(result: Result) -> None:
            nonlocal left, is_refused
            left -= 1
            is_refused |= isinstance(result, StoreError)
            if left:
                return
            if is_refused and self.database.is_closed:
                return  # the next start drops what is left
            if is_refused:
                self.loop.call_later(RETRY_S, self._drop_ephemerals, session_id, first, then)
            else:
                then()

        async def submit() -> None:
            for piece in pieces:
                self.database.submit(piece, session_id, done)
                await self._slices.breathe()

        self.start_work(submit())


def _reason(error: OSError) -> str:
    """asyncio has words of its own for it."""
    return os.strerror(error.errno) if error.errno else str(error)
