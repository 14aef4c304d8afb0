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
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tidelog.network.channel import Channel, CloseReason
from tidelog.network.connection import Connection
from tidelog.network.framing import ReceiveBuffers
from tidelog.network.memory_pool import MemoryPool
from tidelog.network.request_channel import (
    Mailbox,
    QueuedChannel,
    QueuedConnection,
    RequestChannel,
)

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from tidelog.clock import Clock, TimerHandle
    from tidelog.network.connection import RequestHandler
    from tidelog.network.session import Session
    from tidelog.network.settings import NetworkSettings
    from tidelog.transport import Transport

logger = logging.getLogger(__name__)

SWEEP_SECONDS: Final = 1.0
CLOSING_LINES_PER_SWEEP: Final = 20
# Refused clients: how long one reason of one address is told once, and how many of them are told
# and counted.
REFUSALS_S: Final = 60.0
REFUSAL_LINES: Final = 100
REFUSALS_MAX: Final = 10_000
_STREAM_ENDED: Final = getattr(select, "POLLRDHUP", 0)
_RESET: Final = select.POLLERR | select.POLLHUP  # reported whether asked for or not


class Counters:
    """What the network layer did: totals since the start, except `connections`, which is how many
    are open. Each object is written by one thread only.
    """

    __slots__ = (
        "accepted",
        "bytes_in",
        "bytes_out",
        "closed_by",
        "connections",
        "requests",
        "sendfile_bytes",
        "sendfile_calls",
    )

    def __init__(self) -> None:
        self.connections = 0
        self.accepted = 0
        self.requests = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.sendfile_calls = 0
        self.sendfile_bytes = 0
        self.closed_by: dict[CloseReason, int] = dict.fromkeys(CloseReason, 0)

    def add(self, other: Counters) -> None:
        self.connections += other.connections
        self.accepted += other.accepted
        self.requests += other.requests
        self.bytes_in += other.bytes_in
        self.bytes_out += other.bytes_out
        self.sendfile_calls += other.sendfile_calls
        self.sendfile_bytes += other.sendfile_bytes
        for reason, count in other.closed_by.items():
            self.closed_by[reason] += count


class Handshakes:
    """The channels of a processor that shake hands.

    A step may take a millisecond of signing. So a turn of the loop makes one step, however many
    clients come at once, and requests of others come between. A client that leaves the broker
    waiting for its part longer than `timeout_s` is closed; time in the queue does not count.
    """

    def __init__(self, loop: AbstractEventLoop, clock: Clock, timeout_s: float) -> None:
        self._loop = loop
        self._clock = clock
        self._timeout_s = timeout_s
        self._since: dict[Channel, float] = {}
        self._ready: deque[tuple[Channel, float]] = deque()  # for their turn, since then

    def __len__(self) -> int:
        return len(self._since)

    def join(self, channel: Channel) -> None:
        self._since[channel] = self._clock.monotonic()

    def leave(self, channel: Channel) -> None:
        self._since.pop(channel, None)

    def has_turn(self, channel: Channel) -> None:
        """Its socket is ready for the next step."""
        if not self._ready:
            self._loop.call_soon(self._take_turn)
        self._ready.append((channel, self._clock.monotonic()))

    def _take_turn(self) -> None:
        channel, ready_at = self._ready.popleft()
        if self._ready:
            self._loop.call_soon(self._take_turn)
        if channel.open:
            self._since[channel] += self._clock.monotonic() - ready_at
            channel.take_handshake_turn()

    def late(self, now: float) -> list[Channel]:
        """Those whose clients have taken too long."""
        if not self._since:
            return []
        ready = {channel for channel, _ in self._ready}
        since = now - self._timeout_s
        return [
            channel for channel, at in self._since.items() if at < since and channel not in ready
        ]


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
        self.channels: set[Channel] = set()
        self.handshakes = Handshakes(loop, clock, settings.handshake_timeout_ms / 1000)
        # Told, on this loop, of every connection that has closed, and of those that wait for an
        # answer when the peer ends its stream.
        self._closed = closed
        self._half_closed = half_closed
        self._sweep_timer: TimerHandle | None = None
        self._closing_lines = 0
        self._refusals: dict[tuple[str, str, str], int] = {}  # how often, since `_refusals_until`
        self._refusals_until = 0.0

    def start(self) -> None:
        self._arm_sweep()

    def call(self, action: Callable[[], object]) -> None:
        """Does it on the processor's loop."""
        action()

    def call_broker(self, action: Callable[[], object]) -> None:
        """Does it on the broker loop."""
        action()

    def thread_ident(self) -> int | None:
        """None: the processor's loop is the broker's."""
        return None

    def new_connection(
        self, transport: Transport, connection_id: str, session: Session
    ) -> Connection:
        return Connection(Channel(transport, self, connection_id), self, session)

    def adopt(self, connection: Connection) -> None:
        self.channels.add(connection.channel)
        self.counters.accepted += 1
        self.counters.connections += 1
        connection.channel.start()

    def forget(self, channel: Channel, reason: CloseReason) -> None:
        """A channel has closed itself."""
        self.channels.discard(channel)
        self.counters.connections -= 1
        self.counters.closed_by[reason] += 1
        logger.debug("closed %s: %s", channel.id, reason)
        self._closed(channel.connection)

    def sweep(self) -> None:
        now = self.clock.monotonic()
        self.buffers.trim()
        if self._closing_lines > CLOSING_LINES_PER_SWEEP:
            logger.warning(
                "%d more connections closed", self._closing_lines - CLOSING_LINES_PER_SWEEP
            )
        self._closing_lines = 0
        if self.pool.used > self.pool.limit:
            self.pool.evict_stalled(list(self.channels), now)
        self._look_for_deserted()
        for channel in self.handshakes.late(now):
            session = channel.connection.session
            why = f"it took longer than {self.settings.handshake_timeout_ms} ms for its handshake"
            self.log_refused(session.listener_name, session.client_host, why)
            channel.close(CloseReason.HANDSHAKE_TIMEOUT)
        if self._refusals and now >= self._refusals_until:
            self._sum_up_refusals()
        if self.settings.connections_max_idle_ms >= 0:
            self._close_idle(now - self.settings.connections_max_idle_ms / 1000)

    def drain(self) -> None:
        """Every connection closes as soon as it owes nothing; see Channel.drain."""
        for channel in list(self.channels):
            channel.drain()

    def stop(self) -> None:
        """Closes all connections at once."""
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
            self._sweep_timer = None
        for channel in list(self.channels):
            channel.close(CloseReason.SHUTDOWN)

    def log_closing(self, connection_id: str, why: str) -> None:
        """A line that says why a connection is closed, unless too many say so already."""
        self._closing_lines += 1
        if self._closing_lines <= CLOSING_LINES_PER_SWEEP:
            logger.warning(
                "closing %s: %s",
                connection_id,
                why,
                extra={
                    "event": "request-refused",
                    "connection": connection_id,
                    "reason": why,
                },
            )

    def log_refused(self, listener_name: str, host: str, why: str) -> None:
        """A client was not let in. A line for each address and reason, then silence for a while."""
        if not self._refusals:
            self._refusals_until = self.clock.monotonic() + REFUSALS_S
        key = (listener_name, host, why)
        count = self._refusals.get(key, 0)
        if count == 0 and len(self._refusals) < REFUSAL_LINES:
            logger.warning(
                "refused a connection of %s on %s: %s",
                host,
                listener_name,
                why,
                extra={
                    "event": "client-refused",
                    "listener": listener_name,
                    "client": host,
                    "reason": why,
                },
            )
        if count or len(self._refusals) < REFUSALS_MAX:
            self._refusals[key] = count + 1

    def _sum_up_refusals(self) -> None:
        lines = max(0, len(self._refusals) - REFUSAL_LINES)
        more = sum(self._refusals.values()) - len(self._refusals) + lines
        if more:
            logger.warning("%d more connections were refused for such reasons", more)
        self._refusals.clear()

    def _look_for_deserted(self) -> None:
        if not self.channels:
            return
        open_ones = {each.fileno(): each for each in self.channels}
        poll = select.poll()
        for descriptor, channel in open_ones.items():
            poll.register(descriptor, _STREAM_ENDED if channel.is_unread() else 0)
        for descriptor, event in poll.poll(0):
            channel = open_ones[descriptor]
            if not channel.open:
                continue  # the end of one may have ended another
            if event & _RESET:
                channel.close(CloseReason.PEER_RESET)
            elif channel.is_beyond_completion():
                channel.close(CloseReason.PEER_CLOSED)
            elif not channel.connection.half_closed:
                channel.connection.half_closed = True
                self._half_closed(channel.connection)

    def _close_idle(self, since: float) -> None:
        for channel in [each for each in self.channels if each.is_idle(since)]:
            channel.close(CloseReason.IDLE)

    def _arm_sweep(self) -> None:
        self._sweep_timer = self.loop.call_later(SWEEP_SECONDS, self._sweep_and_arm)

    def _sweep_and_arm(self) -> None:
        self.sweep()
        self._arm_sweep()


class ProcessorThread(Processor):
    """A processor on a thread and an event loop of its own, for num.network.threads > 1.

    The loop is of the broker loop's kind. Other threads reach it by `call` only.
    """

    def __init__(
        self,
        index: int,
        broker_loop: AbstractEventLoop,
        channel: RequestChannel,
        handler: RequestHandler,
        settings: NetworkSettings,
        clock: Clock,
        request_counters: Counters,
        closed: Callable[[Connection], None],
        half_closed: Callable[[Connection], None],
    ) -> None:
        loop = type(broker_loop)()
        super().__init__(
            index, loop, handler, settings, clock, request_counters, closed, half_closed
        )
        self.channel = channel
        self.mailbox = Mailbox(loop)
        self._runner = threading.Thread(target=self._run, name=f"network-{index}", daemon=True)

    def start(self) -> None:
        self._runner.start()

    def call(self, action: Callable[[], object]) -> None:
        self.mailbox.post(action)

    def call_broker(self, action: Callable[[], object]) -> None:
        self.channel.post(action)

    def thread_ident(self) -> int | None:
        return self._runner.ident

    def stop(self) -> None:
        """Closes all connections and waits for the thread to end."""
        if self._runner.is_alive():
            self.mailbox.post(self.loop.stop)
            self._runner.join()
            self.mailbox.close()
        elif not self.loop.is_closed():
            self.loop.close()

    def new_connection(
        self, transport: Transport, connection_id: str, session: Session
    ) -> Connection:
        channel = QueuedChannel(transport, self, connection_id)
        return QueuedConnection(channel, self, session)

    def _run(self) -> None:
        super().start()
        try:
            self.loop.run_forever()
        finally:
            super().stop()
            self.loop.close()
