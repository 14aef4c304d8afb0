"""One broker as this client reaches it: a connection that is made when it is needed.

`send` puts requests on the wire in the order of its calls. While there is no connection they wait
for it, and one that cannot be made fails all of them. After a failure the next try waits as
reconnect.backoff.ms says, and each try in a row may take longer, as
socket.connection.setup.timeout.ms says. A connection that was unused for connections.max.idle.ms is
closed.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from tidelog.client.errors import ClientError, Closed, ConnectionFailed
from tidelog.client.network.backoff import Backoff
from tidelog.client.network.connection import open_connection
from tidelog.clock import pause
from tidelog.protocol.api_keys import ApiKey
from tidelog.supervisor import report

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.client.network.connection import Connection, Surroundings
    from tidelog.client.network.metadata import Node
    from tidelog.clock import TimerHandle
    from tidelog.protocol.message import Message


class _Queued(NamedTuple):
    request: Message
    at_most: int | None
    at_least: int
    timeout_s: float | None
    expects_answer: bool
    future: asyncio.Future[Message]


class Peer:
    """`find` gives where the broker is now, or raises; `on_lost` is told of lost connections."""

    def __init__(
        self,
        find: Callable[[], Node],
        around: Surroundings,
        on_lost: Callable[[ClientError], object],
    ) -> None:
        self.connection: Connection | None = None
        self._find = find
        self._around = around
        self._on_lost = on_lost
        self._queue: list[_Queued] = []
        self._waiters: list[asyncio.Future[Connection]] = []
        self._connecting: asyncio.Task[None] | None = None
        self._reconnect = Backoff.of(around.config, "reconnect.backoff.ms")
        self._setup = Backoff.of(around.config, "socket.connection.setup.timeout.ms")
        self._not_before = 0.0  # when the next try to connect may begin
        self._idle: TimerHandle | None = None
        self._is_closed = False

    def become(
        self, node: Node, find: Callable[[], Node], on_lost: Callable[[ClientError], object]
    ) -> None:
        """A bootstrap server turned out to be this broker."""
        self._find = find
        self._on_lost = on_lost
        if self.connection is not None:
            self.connection.broker = str(node)
            self.connection.versions.broker = str(node)

    @property
    def is_connected(self) -> bool:
        return self.connection is not None and self.connection.is_open

    @property
    def load(self) -> int:
        """Requests under way."""
        in_flight = 0 if self.connection is None else self.connection.in_flight
        return in_flight + len(self._queue)

    @property
    def backoff_left_s(self) -> float:
        return max(0.0, self._not_before - self._around.clock.monotonic())

    def send(
        self,
        request: Message,
        *,
        at_most: int | None = None,
        at_least: int = 0,
        timeout_s: float | None = None,
        expects_answer: bool = True,
    ) -> asyncio.Future[Message]:
        future: asyncio.Future[Message] = self._around.loop.create_future()
        queued = _Queued(request, at_most, at_least, timeout_s, expects_answer, future)
        if self.connection is not None and self.connection.is_open:
            self._put_on_wire(self.connection, queued)
        elif self._is_closed:
            _fail(future, Closed("the client is closed"))
        else:
            self._queue.append(queued)
            self._begin_connecting()
        return future

    async def connect(self) -> Connection:
        """The connection; the one that is being made, if one is."""
        if self.connection is not None and self.connection.is_open:
            return self.connection
        if self._is_closed:
            raise Closed("the client is closed")
        waiter: asyncio.Future[Connection] = self._around.loop.create_future()
        self._waiters.append(waiter)
        self._begin_connecting()
        return await waiter

    async def close(self) -> None:
        self._is_closed = True
        task = self._connecting
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        if self.connection is not None:
            self.connection.close()
        self._settle(Closed("the client is closed"))

    # Connecting

    def _begin_connecting(self) -> None:
        if self._connecting is None:
            self._connecting = self._around.loop.create_task(self._connect())
            report("connecting to a broker", self._connecting)

    async def _connect(self) -> None:
        try:
            connection = await self._try()
        except ClientError as problem:
            self._settle(problem)
            return
        finally:
            self._connecting = None
        self.connection = connection
        connection.on_closed = self._on_closed
        self._reconnect.reset()
        self._setup.reset()
        self._watch_idleness(connection)
        queue, self._queue = self._queue, []
        for queued in queue:
            self._put_on_wire(connection, queued)
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(connection)

    async def _try(self) -> Connection:
        left_s = self.backoff_left_s
        if left_s > 0:
            await pause(self._around.timer, left_s)
        node = self._find()
        try:
            return await open_connection(
                str(node.address) if node.id < 0 else str(node),
                node.address,
                self._around,
                self._setup.next_s(),
            )
        except ClientError as problem:
            self._back_off()
            if node.id >= 0 and isinstance(problem, ConnectionFailed):
                raise ConnectionFailed(
                    f"{problem} ({node.address} is the listener that the cluster names for broker "
                    f"{node.id}; if clients cannot reach it, correct its advertised.listeners)"
                ) from problem
            raise

    def _settle(self, problem: ClientError) -> None:
        queue, self._queue = self._queue, []
        for queued in queue:
            _fail(queued.future, problem)
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            _fail(waiter, problem)

    def _put_on_wire(self, connection: Connection, queued: _Queued) -> None:
        if queued.future.done():
            return
        try:
            version = connection.versions.version(
                ApiKey(queued.request.API_KEY), queued.at_most, queued.at_least
            )
        except ClientError as problem:
            _fail(queued.future, problem)
            return
        connection.send(
            queued.request,
            version,
            timeout_s=queued.timeout_s,
            expects_answer=queued.expects_answer,
            future=queued.future,
        )

    # The end of a connection

    def _on_closed(self, problem: ClientError) -> None:
        self.connection = None
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        if not isinstance(problem, Closed):
            self._back_off()
            self._on_lost(problem)

    def _back_off(self) -> None:
        self._not_before = self._around.clock.monotonic() + self._reconnect.next_s()

    def _watch_idleness(self, connection: Connection) -> None:
        limit_ms = self._around.config.integer("connections.max.idle.ms")
        if limit_ms < 0:
            return
        unused_s = self._around.clock.monotonic() - connection.last_used
        left_s = limit_ms / 1000 - unused_s
        if left_s <= 0 and connection.in_flight == 0:
            connection.close(Closed(f"broker {connection.broker}: closed because it was not used"))
            return
        again_s = left_s if left_s > 0 else limit_ms / 1000
        self._idle = self._around.timer.call_later(
            again_s, lambda: self._watch_idleness(connection)
        )


def _fail(
    future: asyncio.Future[Message] | asyncio.Future[Connection], problem: ClientError
) -> None:
    if not future.done():
        future.set_exception(problem)
        future.exception()  # whoever lost interest in it need not be told by a log line
