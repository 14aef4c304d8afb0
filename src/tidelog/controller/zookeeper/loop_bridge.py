"""From the connection's thread to the broker's loop, in the order of the wire."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any

from tidelog.controller.metadata_store import SessionState
from tidelog.controller.zookeeper.call_queue import Answered
from tidelog.controller.zookeeper.session import Connection, ZooKeeperSession


class LoopBridge:
    """The session's listener. What comes before the loop is known is kept until it is."""

    def __init__(
        self,
        session_changed: Callable[[SessionState, Connection], None],
        session_closed: Callable[[], None],
    ) -> None:
        self._session_changed = session_changed
        self._session_closed = session_closed
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._backlog: list[tuple[Callable[..., object], tuple[object, ...]]] = []

    def bind(self, loop: asyncio.AbstractEventLoop) -> None:
        """On the loop's thread."""
        with self._lock:
            self._loop = loop
            backlog, self._backlog = self._backlog, []
        for callback, arguments in backlog:
            callback(*arguments)

    def post(self, callback: Callable[..., object], *arguments: object) -> None:
        with self._lock:
            if self._loop is None:
                self._backlog.append((callback, arguments))
                return
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(callback, *arguments)

    def session_changed(self, state: SessionState, connection: Connection) -> None:
        self.post(self._session_changed, state, connection)

    def session_closed(self) -> None:
        self.post(self._session_closed)


class LoopLine:
    """The session as the queue of calls sees it: answers come on the loop."""

    def __init__(self, session: ZooKeeperSession, bridge: LoopBridge) -> None:
        self._session = session
        self._bridge = bridge

    @property
    def zxid_seen(self) -> int:
        return self._session.zxid_seen

    def send(self, request: Any, answered: Answered, connection_number: int) -> bool:
        return self._session.submit(request, _LoopReply(self._bridge, answered), connection_number)

    def drop_connection(self, connection_number: int) -> None:
        self._session.drop_connection(connection_number)


class _LoopReply:
    __slots__ = ("_answered", "_bridge")

    def __init__(self, bridge: LoopBridge, answered: Answered) -> None:
        self._bridge = bridge
        self._answered = answered

    def set(self, value: Any) -> None:
        self._bridge.post(self._answered, value, None)

    def set_exception(self, error: Exception) -> None:
        self._bridge.post(self._answered, None, error)
