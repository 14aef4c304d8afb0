"""The socket server: listens on the endpoints, accepts, and gives each connection to a processor.

Accepting happens on the broker loop and connections go to the processors in turn. Limits are
those of connection_quotas.py. When no slot is free, when connections come too fast, or when the
process is out of file descriptors, the listening socket is not watched and clients wait in the
kernel's backlog.

Life: start() -> stop_accepting() -> drain() -> close(). All of it is called on the broker loop.
"""

from __future__ import annotations

import errno
import logging
import socket
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import count
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

from tidelog.config.listeners import Endpoint
from tidelog.errors import StartupError
from tidelog.network.channel import CloseReason
from tidelog.network.connection_quotas import ConnectionQuotas, look_up
from tidelog.network.processor import Counters, Processor, ProcessorThread
from tidelog.network.request_channel import Mailbox, RequestChannel
from tidelog.network.session import Session
from tidelog.network.settings import NetworkSettings
from tidelog.network.tls_listeners import TlsListeners

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future

    from tidelog.clock import Clock, TimerHandle
    from tidelog.network.connection import Connection, RequestHandler
    from tidelog.sasl.server_authenticator import SaslServerAuthenticator

NewAuthenticator: TypeAlias = "Callable[[], SaslServerAuthenticator]"

logger = logging.getLogger(__name__)

ACCEPTS_PER_TURN = 32
# Kafka's default backlog of 50 overflows when clients come in a rush, and each connection request
# that is dropped costs its client a second.
BACKLOG_MIN = 1024
ACCEPT_RETRY_SECONDS = 0.5
HELD_BACK_MAX = 1_000  # sockets of addresses over their quota; one more ends the wait of the oldest
_OUT_OF_RESOURCES = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))


class PortTaken(StartupError):
    """Another process listens on the port."""


class Acceptor:
    """The listening socket of one endpoint."""

    def __init__(self, server: SocketServer, endpoint: Endpoint, sock: socket.socket) -> None:
        self._server = server
        self.endpoint = endpoint
        self._socket = sock
        self._watched = False
        self._retry: TimerHandle | None = None
        self._closed = False

    @property
    def port(self) -> int:
        port: int = self._socket.getsockname()[1]
        return port

    @property
    def is_watched(self) -> bool:
        return self._watched

    def watch(self) -> None:
        if not self._watched and not self._closed:
            self._watched = True
            self._server.loop.add_reader(self._socket.fileno(), self._on_connectable)

    def close(self) -> None:
        self._closed = True
        self._unwatch()
        if self._retry is not None:
            self._retry.cancel()
        self._socket.close()

    def _unwatch(self) -> None:
        if self._watched:
            self._watched = False
            self._server.loop.remove_reader(self._socket.fileno())

    def _on_connectable(self) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            if not self._server.quotas.slot_available(self.endpoint.listener_name):
                logger.debug(
                    "no more connections on %s until one closes", self.endpoint.listener_name
                )
                self._unwatch()
                return
            pause_s = self._server.quotas.creation_pause_s(self.endpoint.listener_name)
            if pause_s:
                self._pause(pause_s)
                return
            try:
                sock, address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _OUT_OF_RESOURCES:
                    raise
                logger.error(
                    "cannot accept connections on %s: %s", self.endpoint.listener_name, error
                )
                self._pause(ACCEPT_RETRY_SECONDS)
                return
            if self._server.holds_back(sock, address):
                continue
            self._server.quotas.created(self.endpoint.listener_name)
            self._server.accept(sock, address, self.endpoint)

    def _pause(self, seconds: float) -> None:
        self._unwatch()
        if self._retry is not None:
            self._retry.cancel()
        self._retry = self._server.loop.call_later(seconds, self.watch)


class SocketServer:
    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        handler: RequestHandler,
        *,
        loop: AbstractEventLoop,
        settings: NetworkSettings,
        clock: Clock,
        tls: TlsListeners | None = None,
        authenticators: Mapping[str, NewAuthenticator] = MappingProxyType({}),
    ) -> None:
        """`authenticators` has an entry for each listener whose clients use SASL. Raises
        TlsConfigError if `tls` is not given and cannot be had from the settings."""
        self.loop = loop
        self.tls = TlsListeners(settings) if tls is None else tls
        self._authenticators = authenticators
        self.quotas = ConnectionQuotas(
            settings, [endpoint.listener_name for endpoint in endpoints], clock
        )
        self.connections: set[Connection] = set()  # open ones, as the broker loop knows them
        self._endpoints = endpoints
        self._settings = settings
        self._acceptors: list[Acceptor] = []
        self._refused = Counters()
        self._request_counters = Counters()
        self._connection_numbers = count()
        self._held_back: dict[socket.socket, TimerHandle] = {}  # in the order they came
        self._all_closed: Future[None] | None = None
        self._mailbox = Mailbox(loop)
        self.processors = self._new_processors(handler, clock)

    def _new_processors(self, handler: RequestHandler, clock: Clock) -> Sequence[Processor]:
        settings, requests = self._settings, self._request_counters
        half_closed = handler.half_closed
        if settings.network_threads == 1:
            return [
                Processor(
                    0, self.loop, handler, settings, clock, requests, self._closed, half_closed
                )
            ]
        channel = RequestChannel(self._mailbox, settings.queued_max_requests)

        def post_half_closed(connection: Connection) -> None:
            self._mailbox.post(partial(half_closed, connection))

        return [
            ProcessorThread(
                i,
                self.loop,
                channel,
                handler,
                settings,
                clock,
                requests,
                self._post_closed,
                post_half_closed,
            )
            for i in range(settings.network_threads)
        ]

    def not_accepting(self) -> list[str]:
        """Listeners whose clients wait: too many connections, too fast, or no descriptors."""
        return [each.endpoint.listener_name for each in self._acceptors if not each.is_watched]

    @property
    def counters(self) -> Counters:
        """The totals of all processors at this moment."""
        totals = Counters()
        for part in (self._refused, self._request_counters):
            totals.add(part)
        for processor in self.processors:
            totals.add(processor.counters)
        return totals

    def start(self) -> dict[str, int]:
        """Binds all endpoints and serves them. Returns the bound port of each listener name."""
        try:
            for endpoint in self._endpoints:
                sock = _listening_socket(endpoint, self._settings)
                self._acceptors.append(Acceptor(self, endpoint, sock))
        except StartupError:
            self.close()
            raise
        for processor in self.processors:
            processor.start()
        for acceptor in self._acceptors:
            acceptor.watch()
        return {acceptor.endpoint.listener_name: acceptor.port for acceptor in self._acceptors}

    def stop_accepting(self) -> None:
        for acceptor in self._acceptors:
            acceptor.close()
        self._acceptors.clear()
        for sock in list(self._held_back):
            self._let_go(sock)

    async def drain(self, grace_seconds: float) -> bool:
        """Takes no further requests and waits until those in hand are answered and sent.

        False: not all were in time; `close()` cuts them off.
        """
        import asyncio

        self._all_closed = self.loop.create_future()
        for processor in self.processors:
            processor.call(processor.drain)
        if not self.connections:
            return True
        done, _ = await asyncio.wait([self._all_closed], timeout=grace_seconds)
        return bool(done)

    def close(self) -> None:
        self.stop_accepting()
        for processor in self.processors:
            processor.stop()
        self._mailbox.run()

    def configure(self, settings: NetworkSettings) -> None:
        """New connection limits and certificates; what else the settings hold stays as it was at
        the start.
        """
        self.quotas.configure(settings)
        self.tls.configure(settings)
        self._watch_acceptors()
        self._look_up_hosts()

    def configure_ip_rates(self, rates: Mapping[str | None, float]) -> None:
        """connection_creation_rate by address or host name; None has the default."""
        self.quotas.configure_ip_rates(rates)
        self._look_up_hosts()

    def _look_up_hosts(self) -> None:
        for host in self.quotas.hosts_to_look_up():
            lookup = self.loop.run_in_executor(None, look_up, host)
            lookup.add_done_callback(partial(self._looked_up, host))

    def _looked_up(self, host: str, lookup: Future[frozenset[str]]) -> None:
        if lookup.cancelled():
            return
        error = lookup.exception()
        if error is None:
            self.quotas.learn(host, lookup.result())
        else:
            logger.error("no limit of connections for %s alone: %s", host, error)

    def holds_back(self, sock: socket.socket, address: tuple[str, int]) -> bool:
        """From an acceptor: whether the address makes connections too fast.

        Closing this one at once would only make the client try again.
        """
        throttle_s = self.quotas.ip_throttle_s(_plain_host(address[0]))
        if not throttle_s:
            return False
        self._refused.closed_by[CloseReason.TOO_FAST_PER_IP] += 1
        if len(self._held_back) >= HELD_BACK_MAX:
            self._let_go(next(iter(self._held_back)))
        self._held_back[sock] = self.loop.call_later(throttle_s, self._let_go, sock)
        return True

    def _let_go(self, sock: socket.socket) -> None:
        self._held_back.pop(sock).cancel()
        sock.close()

    def accept(self, sock: socket.socket, address: tuple[str, int], endpoint: Endpoint) -> None:
        """From an acceptor: a client has connected."""
        host = _plain_host(address[0])
        if not self.quotas.address_available(host):
            logger.debug("refused a connection from %s: it has as many as it may", host)
            self._refused.closed_by[CloseReason.TOO_MANY_PER_IP] += 1
            sock.close()
            return
        try:
            _configure(sock, self._settings)
            local_host, local_port = sock.getsockname()[:2]
        except OSError as error:
            logger.debug("lost a connection from %s while accepting it: %s", host, error)
            sock.close()
            return
        number = next(self._connection_numbers)
        connection_id = f"{_plain_host(local_host)}:{local_port}-{host}:{address[1]}-{number}"
        processor = self.processors[number % len(self.processors)]
        session = Session(endpoint.listener_name, host, address[1])
        transport = self.tls.transport_of(endpoint, sock)
        connection = processor.new_connection(transport, connection_id, session)
        if endpoint.needs_sasl:
            connection.must_authenticate(self._authenticators[endpoint.listener_name]())
        self.quotas.increment(endpoint.listener_name, host)
        self.connections.add(connection)
        processor.call(partial(processor.adopt, connection))
        if self.quotas.is_exceeded():
            self._close_least_recently_used()

    def _close_least_recently_used(self) -> None:
        candidates = [
            connection
            for connection in self.connections
            if not self.quotas.is_protected(connection.session.listener_name)
        ]
        if candidates:
            oldest = min(candidates, key=lambda connection: connection.channel.last_active)
            oldest.channel.close_soon(CloseReason.TOO_MANY)

    def _post_closed(self, connection: Connection) -> None:
        """From a processor's thread."""
        self._mailbox.post(partial(self._closed, connection))

    def _closed(self, connection: Connection) -> None:
        self.connections.discard(connection)
        self.quotas.decrement(connection.session.listener_name, connection.session.client_host)
        connection.run_close_callbacks()
        self._watch_acceptors()
        if not self.connections and self._all_closed is not None and not self._all_closed.done():
            self._all_closed.set_result(None)

    def _watch_acceptors(self) -> None:
        for acceptor in self._acceptors:
            if self.quotas.slot_available(acceptor.endpoint.listener_name):
                acceptor.watch()


def _listening_socket(endpoint: Endpoint, settings: NetworkSettings) -> socket.socket:
    where = f"{endpoint.host or '*'}:{endpoint.port} ({endpoint.listener_name})"
    try:
        family, address = _bind_address(endpoint)
        sock = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise StartupError(f"cannot listen on {where}: {error}") from error
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6 and not endpoint.host:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        if settings.receive_buffer_bytes != -1:
            # Inherited by accepted sockets; must be set before the handshake to open the window.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, settings.receive_buffer_bytes)
        sock.bind(address)
        sock.listen(max(settings.backlog, BACKLOG_MIN))
        sock.setblocking(False)
    except OSError as error:
        sock.close()
        if error.errno == errno.EADDRINUSE:
            raise PortTaken(
                f"cannot listen on {where}: the port is taken by another process"
            ) from error
        raise StartupError(f"cannot listen on {where}: {error}") from error
    return sock


def _bind_address(endpoint: Endpoint) -> tuple[int, tuple[str, int]]:
    if not endpoint.host:
        if socket.has_dualstack_ipv6():
            return socket.AF_INET6, ("::", endpoint.port)
        return socket.AF_INET, ("0.0.0.0", endpoint.port)
    rows = socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)
    family, _, _, _, address = rows[0]
    return family, (str(address[0]), endpoint.port)


def _configure(sock: socket.socket, settings: NetworkSettings) -> None:
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if settings.send_buffer_bytes != -1:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, settings.send_buffer_bytes)


def _plain_host(host: str) -> str:
    """An IPv4 client of a dual-stack socket is known by its IPv4 address."""
    return host.removeprefix("::ffff:")
