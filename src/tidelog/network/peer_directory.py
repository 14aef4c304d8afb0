"""The other brokers, by id: where they are, and one connection to each, made when it is needed.

A connection that is lost is made anew by the next call. After a failure the next attempt waits:
RECONNECT_BACKOFF_S, doubled each time up to RECONNECT_BACKOFF_MAX_S; calls wait with it, each until
its own timeout. The time that a connection may take to open doubles as well, from `setup_timeout_s`
up to `setup_timeout_max_s`. A broker that moves (another host or port) gets a new connection.

Calls share the connection and are answered in order, so a directory is for requests of one kind:
one that waits long at the peer would hold up the others. The controller, the ISR, the markers of
transactions have a directory each; fetchers have connections of their own (`open_connection`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from tidelog.clock import Clock, Timer, pause
from tidelog.network.peer_connection import (
    PeerConnection,
    TransportTo,
    connect,
    plain_transport,
)
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.message import Message
from tidelog.sasl.client_authenticator import SaslLogin

RECONNECT_BACKOFF_S: Final = 0.05
RECONNECT_BACKOFF_MAX_S: Final = 1.0
SETUP_TIMEOUT_S: Final = 10.0
SETUP_TIMEOUT_MAX_S: Final = 30.0
DOUBLINGS_MAX: Final = 20

# What brokers speak among themselves: the versions of Kafka 3.9 (inter.broker.protocol.version).
INTER_BROKER_VERSIONS: Final[Mapping[int, int]] = {
    ApiKey.FETCH: 17,
    ApiKey.LIST_OFFSETS: 9,
    ApiKey.LEADER_AND_ISR: 7,
    ApiKey.STOP_REPLICA: 4,
    ApiKey.UPDATE_METADATA: 8,
    ApiKey.CONTROLLED_SHUTDOWN: 3,
    ApiKey.CREATE_TOPICS: 7,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: 4,
    ApiKey.ADD_PARTITIONS_TO_TXN: 5,
    ApiKey.WRITE_TXN_MARKERS: 1,
    ApiKey.ALTER_PARTITION: 3,
}


class Address(Protocol):
    """Any endpoint of a broker."""

    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int: ...


class _Peer:
    """One broker: its address, its connection, and how connecting has gone."""

    __slots__ = (
        "backoff_s",
        "connecting",
        "connection",
        "failures",
        "host",
        "is_gone",
        "not_before",
        "port",
    )

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port
        self.connection: PeerConnection | None = None
        self.connecting: asyncio.Task[PeerConnection] | None = None
        self.backoff_s = 0.0
        self.failures = 0  # to connect, one after another
        self.not_before = 0.0
        self.is_gone = False  # a connection under way is closed when it is there


class PeerDirectory:
    """Touched only on the broker loop."""

    def __init__(
        self,
        client_id: str,
        *,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        timer: Timer,
        receive_buffer_bytes: int = -1,
        setup_timeout_s: float = SETUP_TIMEOUT_S,
        setup_timeout_max_s: float = SETUP_TIMEOUT_MAX_S,
        transport_to: TransportTo = plain_transport,
        login: Callable[[], SaslLogin | None] = lambda: None,
    ) -> None:
        """`login` gives what new connections authenticate with, if anything."""
        self._login = login
        self._client_id = client_id
        self._loop = loop
        self._clock = clock
        self._timer = timer
        self._receive_buffer_bytes = receive_buffer_bytes
        self._setup_timeout_s = setup_timeout_s
        self._setup_timeout_max_s = setup_timeout_max_s
        self._transport_to = transport_to
        self._peers: dict[int, _Peer] = {}

    def update(self, brokers: Mapping[int, Address]) -> None:
        """These are the brokers now, each with its endpoint of the inter-broker listener."""
        for broker_id in [known for known in self._peers if known not in brokers]:
            self._drop(self._peers.pop(broker_id), "the broker has left")
        for broker_id, address in brokers.items():
            known = self._peers.get(broker_id)
            if known is not None and (known.host, known.port) != (address.host, address.port):
                self._drop(known, "the broker has moved")
                known = None
            if known is None:
                self._peers[broker_id] = _Peer(address.host, address.port)

    def knows(self, broker_id: int) -> bool:
        return broker_id in self._peers

    async def call(
        self, broker_id: int, request: Message, *, version: int | None = None, timeout_s: float
    ) -> Any:
        """The response; ConnectionError or TimeoutError if there is none."""
        if version is None:
            version = INTER_BROKER_VERSIONS.get(request.API_KEY, request.MAX_VERSION)
        deadline = self._clock.monotonic() + timeout_s
        connection = await self.connected(broker_id, timeout_s)
        remaining = max(deadline - self._clock.monotonic(), 0.001)
        return await connection.call(request, version, remaining)

    async def connected(self, broker_id: int, timeout_s: float) -> PeerConnection:
        """The shared connection to a broker, made if there is none."""
        peer = self._must_find(broker_id)
        if peer.connection is not None and peer.connection.open:
            return peer.connection
        if peer.connecting is None:
            peer.connecting = self._loop.create_task(self._connect(broker_id, peer))
            peer.connecting.add_done_callback(_mark_seen)
        async with asyncio.timeout(timeout_s):
            return await asyncio.shield(peer.connecting)

    async def open_connection(self, broker_id: int, timeout_s: float) -> PeerConnection:
        """A connection that is the caller's alone; without back-off."""
        return await self._open(self._must_find(broker_id), timeout_s)

    async def _open(self, peer: _Peer, timeout_s: float) -> PeerConnection:
        try:
            connection = await connect(
                peer.host,
                peer.port,
                loop=self._loop,
                clock=self._clock,
                timer=self._timer,
                client_id=self._client_id,
                timeout_s=min(timeout_s, self._setup_time_s(peer)),
                receive_buffer_bytes=self._receive_buffer_bytes,
                transport_to=self._transport_to,
                login=self._login(),
            )
        except OSError:
            peer.failures += 1
            raise
        peer.failures = 0
        return connection

    def _setup_time_s(self, peer: _Peer) -> float:
        doubled = self._setup_timeout_s * (1 << min(peer.failures, DOUBLINGS_MAX))
        return min(doubled, self._setup_timeout_max_s)

    def close(self) -> None:
        for peer in self._peers.values():
            self._drop(peer, "the broker stops")
        self._peers.clear()

    def _must_find(self, broker_id: int) -> _Peer:
        peer = self._peers.get(broker_id)
        if peer is None:
            raise ConnectionError(f"broker {broker_id} is not known")
        return peer

    async def _connect(self, broker_id: int, peer: _Peer) -> PeerConnection:
        try:
            wait_s = peer.not_before - self._clock.monotonic()
            if wait_s > 0:
                await pause(self._timer, wait_s)
            connection = await self._open(peer, self._setup_timeout_max_s)
        except OSError:
            peer.backoff_s = min(
                max(peer.backoff_s * 2, RECONNECT_BACKOFF_S), RECONNECT_BACKOFF_MAX_S
            )
            peer.not_before = self._clock.monotonic() + peer.backoff_s
            raise
        finally:
            peer.connecting = None
        if peer.is_gone:
            connection.close("the broker has left")
            raise ConnectionError(f"broker {broker_id} has left")
        peer.backoff_s = 0.0
        peer.connection = connection
        return connection

    def _drop(self, peer: _Peer, reason: str) -> None:
        peer.is_gone = True
        if peer.connection is not None:
            peer.connection.close(reason)


def _mark_seen(task: asyncio.Task[PeerConnection]) -> None:
    """Those who waited may all have given up."""
    if not task.cancelled():
        task.exception()
