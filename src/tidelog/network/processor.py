"""A processor owns a set of connections, and serves them on one event loop.

With one processor that loop is the broker's, and requests are handled where they are received.
With more, each has a thread and a loop of its own (see request_channel.py). Everything here is
touched on the processor's loop only, except `request_counters`, which belongs to the broker loop.

Once a second `sweep` closes idle connections and those whose peer has gone, evicts stalled ones
while memory is short and lets spare memory go; there are no timers per connection or request.

A peer that resets its connection has gone. The sweep asks the kernel about every socket, because
uvloop reports an error of a socket once: a reader that finds bytes before the error is not called
again. A peer that ends its stream may have gone too, or it may wait for its answer. The sweep
cannot tell, so it keeps the connection and asks the handler to answer with what there is.
"""

from __future__ import annotations

import logging
import select
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from tidelog.network.connection import Connection
from tidelog.network.counters import CloseReason, Counters
from tidelog.network.framing import ReceiveBuffers
from tidelog.network.memory_pool import MemoryPool

if TYPE_CHECKING:
    import socket
    from asyncio import AbstractEventLoop

    from tidelog.clock import Clock, TimerHandle
    from tidelog.network.request import RequestHandler
    from tidelog.network.session import Session
    from tidelog.network.settings import NetworkSettings

logger = logging.getLogger(__name__)

SWEEP_SECONDS = 1.0
CLOSING_LINES_PER_SWEEP = 20
_STREAM_ENDED = getattr(select, "POLLRDHUP", 0)
_RESET = select.POLLERR | select.POLLHUP  # reported whether asked for or not


class Processor:
    def __init__(
        self,
        index: int,
        loop: AbstractEventLoop,
        handler: RequestHandler,
        settings: NetworkSettings,
        clock: Clock,
        request_counters: Counters,
        closed: Callable[[Connection], None],
        half_closed: Callable[[Connection], None],
    ) -> None:
        self.index = index
        self.loop = loop
        self.handler = handler
        self.settings = settings
        self.clock = clock
        self.request_counters = request_counters
        self.counters = Counters()
        self.buffers = ReceiveBuffers()
        bytes_max = settings.bytes_in_flight_max
        self.pool = MemoryPool(
            bytes_max // settings.network_threads if bytes_max >= 0 else sys.maxsize,
            settings.memory_stall_ms,
            settings.memory_favour_ms,
        )
        self.connections: set[Connection] = set()
        # Told, on this loop, of every connection that has closed, and of those that wait for an
        # answer when the peer ends its stream.
        self._closed = closed
        self._half_closed = half_closed
        self._sweep_timer: TimerHandle | None = None
        self._closing_lines = 0

    def start(self) -> None:
        self._arm_sweep()

    def call(self, action: Callable[[], object]) -> None:
        """Does it on the processor's loop."""
        action()

    def new_connection(
        self, sock: socket.socket, connection_id: str, session: Session
    ) -> Connection:
        return Connection(sock, self, connection_id, session)

    def adopt(self, connection: Connection) -> None:
        self.connections.add(connection)
        self.counters.accepted += 1
        self.counters.connections += 1
        connection.start()

    def forget(self, connection: Connection, reason: CloseReason) -> None:
        """A connection has closed itself."""
        self.connections.discard(connection)
        self.counters.connections -= 1
        self.counters.closed_by[reason] += 1
        logger.debug("closed %s: %s", connection.id, reason)
        self._closed(connection)

    def sweep(self) -> None:
        now = self.clock.monotonic()
        self.buffers.trim()
        if self._closing_lines > CLOSING_LINES_PER_SWEEP:
            logger.warning(
                "%d more connections closed", self._closing_lines - CLOSING_LINES_PER_SWEEP
            )
        self._closing_lines = 0
        if self.pool.used > self.pool.limit:
            self.pool.evict_stalled(list(self.connections), now)
        self._look_for_deserted()
        if self.settings.connections_max_idle_ms >= 0:
            self._close_idle(now - self.settings.connections_max_idle_ms / 1000)

    def drain(self) -> None:
        """Every connection closes as soon as it owes nothing; see Connection.drain."""
        for connection in list(self.connections):
            connection.drain()

    def stop(self) -> None:
        """Closes all connections at once."""
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
            self._sweep_timer = None
        for connection in list(self.connections):
            connection.close(CloseReason.SHUTDOWN)

    def log_closing(self, connection: Connection, why: str) -> None:
        """A line that says why a connection is closed, unless too many say so already."""
        self._closing_lines += 1
        if self._closing_lines <= CLOSING_LINES_PER_SWEEP:
            logger.warning("closing %s: %s", connection.id, why)

    def _look_for_deserted(self) -> None:
        if not self.connections:
            return
        open_ones = {each.fileno(): each for each in self.connections}
        poll = select.poll()
        for descriptor, connection in open_ones.items():
            poll.register(descriptor, _STREAM_ENDED if connection.is_unread() else 0)
        for descriptor, event in poll.poll(0):
            connection = open_ones[descriptor]
            if event & _RESET:
                connection.close(CloseReason.PEER_RESET)
            elif connection.is_beyond_completion():
                connection.close(CloseReason.PEER_CLOSED)
            elif not connection.half_closed:
                connection.half_closed = True
                self._half_closed(connection)

    def _close_idle(self, since: float) -> None:
        for connection in [each for each in self.connections if each.is_idle(since)]:
            connection.close(CloseReason.IDLE)

    def _arm_sweep(self) -> None:
        self._sweep_timer = self.loop.call_later(SWEEP_SECONDS, self._sweep_and_arm)

    def _sweep_and_arm(self) -> None:
        self.sweep()
        self._arm_sweep()
