"""A cluster as one client sees it: its brokers, its metadata, its coordinators.

`Cluster` is what a producer, a consumer or an admin client stands on. `call` and its kin make one
try each and raise ConnectionFailed, RequestTimedOut, UnsupportedByBroker or UnreadableAnswer; error
codes inside an answer are the caller's. Whoever retries asks for a `patience`.

Before the first metadata, and with metadata.recovery.strategy=rebootstrap whenever no known broker
answers, the brokers are those of bootstrap.servers, under negative ids.
"""

from __future__ import annotations

import asyncio
import random
from enum import Enum
from functools import partial
from types import EllipsisType
from typing import TYPE_CHECKING, Final, TypeVar

from tidelog.client.errors import (
    AuthenticationFailed,
    BrokerRefused,
    ClientError,
    Closed,
    ConnectionFailed,
    RequestTimedOut,
    UnknownTopic,
    UnreadableAnswer,
    UnsupportedByBroker,
    refused,
)
from tidelog.client.network.backoff import Backoff, Patience, may_pass
from tidelog.client.network.connection import Surroundings, addresses_of
from tidelog.client.network.coordinators import (
    CoordinatorKind,
    FoundCoordinator,
    found_coordinators,
    lookup_request,
)
from tidelog.client.network.frames import FrameMemory
from tidelog.client.network.metadata import Metadata, Node, TopicView
from tidelog.client.network.metadata_refresh import MetadataRefresh
from tidelog.client.network.peer import Peer
from tidelog.clock import SystemClock
from tidelog.config.client import Address
from tidelog.errors import ErrorCode
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.messages.find_coordinator import FindCoordinatorResponse
from tidelog.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from tidelog.sasl.client_authenticator import SaslLogin
from tidelog.tls.contexts import client_context
from tidelog.tls.settings import TlsSettings
from tidelog.types import NO_LEADER

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable

    from tidelog.client.network.connection import Connection
    from tidelog.client.network.versions import BrokerVersions
    from tidelog.clock import Clock, Timer
    from tidelog.config.client import KafkaConfig
    from tidelog.protocol.message import Message
    from tidelog.types import TopicPartition

T = TypeVar("T")

# Earlier versions make a topic that is asked for by name, so all are asked for.
CREATION_CAN_BE_FORBIDDEN_VERSION: Final = 4
_chance: Final = random.SystemRandom()


class Purpose(Enum):
    """Each purpose has a connection of its own to a broker, so that the heartbeats of a group never
    wait behind a long fetch."""

    DATA = "data"
    COORDINATION = "coordination"


class Cluster:
    """Used on one event loop, which is that of its first use. Close it.

    Raises TlsConfigError if the stores that security.protocol needs cannot be used.
    """

    def __init__(
        self, config: KafkaConfig, *, clock: Clock | None = None, timer: Timer | None = None
    ) -> None:
        self.config = config
        self.clock: Clock = SystemClock() if clock is None else clock
        self.metadata = Metadata()
        self._given_timer = timer
        self._tls = client_context(TlsSettings.of(config.values)) if config.is_encrypted else None
        self._surroundings: Surroundings | None = None
        self._memory = FrameMemory()
        self._peers: dict[tuple[int, Purpose], Peer] = {}
        self._bootstrap: dict[int, Node] = {}
        self._coordinators: dict[tuple[CoordinatorKind, str], int] = {}
        self._coordinator_nodes: dict[int, Node] = {}
        self._lookups: dict[tuple[CoordinatorKind, str], asyncio.Task[FoundCoordinator]] = {}
        self._answered_at = self.clock.monotonic()  # when metadata was last told
        self._refresh = MetadataRefresh(self)
        self.is_closed = False

    async def close(self) -> None:
        """Everything that waits fails with Closed."""
        self.is_closed = True
        await self._refresh.close()
        for task in list(self._lookups.values()):
            task.cancel()
        if self._lookups:
            await asyncio.wait(list(self._lookups.values()))
        await asyncio.gather(*(peer.close() for peer in self._peers.values()))
        self._peers.clear()

    @property
    def timer(self) -> Timer:
        return self._around.timer

    @property
    def _around(self) -> Surroundings:
        loop = asyncio.get_running_loop()
        if self._surroundings is None:
            timer: Timer = loop if self._given_timer is None else self._given_timer
            login = self.config.login
            self._surroundings = Surroundings(
                self.config,
                loop,
                self.clock,
                timer,
                self._memory,
                self._tls,
                None if login is None else SaslLogin(login),
            )
        assert self._surroundings.loop is loop, "the client belongs to another event loop"
        return self._surroundings

    def patience(
        self, what: str, limit_key: str | None = None, timeout_s: float | None = None
    ) -> Patience:
        """For work that may take `timeout_s`, or as long as the key says: unless it is given,
        default.api.timeout.ms, or max.block.ms of a producer."""
        if limit_key is None:
            has_own = "default.api.timeout.ms" in self.config
            limit_key = "default.api.timeout.ms" if has_own else "max.block.ms"
        limit_s = self.config.seconds(limit_key) if timeout_s is None else timeout_s
        return Patience(
            what,
            limit_key if timeout_s is None else "its timeout",
            limit_s,
            backoff=Backoff.of(self.config, "retry.backoff.ms"),
            clock=self.clock,
            timer=self.timer,
        )

    # Requests

    def send(
        self,
        node_id: int,
        request: Message,
        *,
        at_most: int | None = None,
        at_least: int = 0,
        timeout_s: float | None = None,
        purpose: Purpose = Purpose.DATA,
        expects_answer: bool = True,
    ) -> asyncio.Future[Message]:
        """Sends a request and returns the future of its answer. Requests go out in the order of the
        calls."""
        return self._peer(node_id, purpose).send(
            request,
            at_most=at_most,
            at_least=at_least,
            timeout_s=timeout_s,
            expects_answer=expects_answer,
        )

    async def call(
        self,
        node_id: int,
        request: Message,
        *,
        at_most: int | None = None,
        at_least: int = 0,
        timeout_s: float | None = None,
        purpose: Purpose = Purpose.DATA,
    ) -> Message:
        """Sends a request in the highest version that both know, within the bounds, and returns the
        answer."""
        return await self.send(
            node_id,
            request,
            at_most=at_most,
            at_least=at_least,
            timeout_s=timeout_s,
            purpose=purpose,
        )

    async def connect(self, node_id: int, purpose: Purpose = Purpose.DATA) -> Connection:
        return await self._peer(node_id, purpose).connect()

    async def versions(self, node_id: int, purpose: Purpose = Purpose.DATA) -> BrokerVersions:
        return (await self.connect(node_id, purpose)).versions

    def connection_or_none(self, node_id: int) -> Connection | None:
        """The one that is open now."""
        connection = self._peer(node_id, Purpose.DATA).connection
        return connection if connection is not None and connection.is_open else None

    async def call_any(
        self, request: Message, *, at_most: int | None = None, at_least: int = 0
    ) -> Message:
        """Asks any broker that can be reached; tries each one once."""
        return await self._from_any(
            partial(self.call, request=request, at_most=at_most, at_least=at_least)
        )

    async def call_controller(
        self, request: Message, *, at_most: int | None = None, at_least: int = 0
    ) -> Message:
        """Asks the broker that metadata calls the controller. With KRaft any broker passes the
        request on."""
        if self.metadata.controller_id not in self.metadata.brokers:
            await self.refresh(())
        node_id = self.metadata.controller_id
        if node_id not in self.metadata.brokers:
            raise refused("the controller", ErrorCode.BROKER_NOT_AVAILABLE, "there is none now.")
        return await self.call(node_id, request, at_most=at_most, at_least=at_least)

    async def any_node(self, but: Collection[int] = ()) -> int:
        """A broker that is connected now: the one with the least to do, if there are several."""
        if self.is_closed:
            raise Closed("the client is closed")
        problem: ClientError | None = None
        known = [node_id for node_id in self.metadata.brokers if node_id not in but]
        if known:
            try:
                return await self._reachable(known)
            except ClientError as failed:
                problem = failed
        if self.metadata.brokers and not self.config.rebootstraps:
            raise problem or ConnectionFailed("no other broker is known")
        first = [node_id for node_id in await self._bootstrap_nodes() if node_id not in but]
        try:
            return await self._reachable(first)
        except ClientError as failed:
            if problem is None:
                raise
            raise problem from failed

    async def _from_any(self, ask: Callable[[int], Awaitable[T]]) -> T:
        tried: set[int] = set()
        problem: ClientError | None = None
        while True:
            try:
                node_id = await self.any_node(tried)
            except ClientError as failed:
                if problem is None:
                    raise  # from itself it would be its own cause
                raise problem from failed
            try:
                return await ask(node_id)
            except (ConnectionFailed, RequestTimedOut, UnreadableAnswer) as failed:
                problem = failed
                tried.add(node_id)

    async def _reachable(self, node_ids: list[int]) -> int:
        """The first broker that accepts a connection; tries those first that will probably be
        quick."""
        _chance.shuffle(node_ids)
        peers = {node_id: self._peer(node_id, Purpose.DATA) for node_id in node_ids}
        node_ids.sort(
            key=lambda node_id: (
                not peers[node_id].is_connected,
                peers[node_id].backoff_left_s,
                peers[node_id].load,
            )
        )
        problem: ClientError = ConnectionFailed("no broker is known")
        for node_id in node_ids:
            try:
                await peers[node_id].connect()
            except (AuthenticationFailed, Closed):
                raise
            except ClientError as failed:
                problem = failed
            else:
                return node_id
        raise problem

    # Brokers

    def _peer(self, node_id: int, purpose: Purpose) -> Peer:
        peer = self._peers.get((node_id, purpose))
        if peer is None:
            if self.is_closed:
                raise Closed("the client is closed")
            find, on_lost = partial(self.node, node_id), partial(self._on_lost, node_id)
            peer = self._bootstrap_peer_or_none(node_id, purpose)
            if peer is None:
                peer = Peer(find, self._around, on_lost)
            else:
                peer.become(self.node(node_id), find, on_lost)
            self._peers[node_id, purpose] = peer
        return peer

    def _bootstrap_peer_or_none(self, node_id: int, purpose: Purpose) -> Peer | None:
        """The peer of a bootstrap server at the broker's address, so that its connection is used
        again."""
        node = self.metadata.brokers.get(node_id)
        if node is None or purpose is not Purpose.DATA:
            return None
        for first_id, first in self._bootstrap.items():
            peer = self._peers.get((first_id, purpose))
            if first.address == node.address and peer is not None and peer.is_connected:
                return self._peers.pop((first_id, purpose))
        return None

    def node(self, node_id: int) -> Node:
        """The address of a broker that metadata or a coordinator look-up named."""
        node = (
            self.metadata.brokers.get(node_id)
            or self._coordinator_nodes.get(node_id)
            or self._bootstrap.get(node_id)
        )
        if node is None:
            raise ConnectionFailed(f"broker {node_id} is not among those the cluster names")
        return node

    def _on_lost(self, node_id: int, problem: ClientError) -> None:
        """Leaders and coordinators may have moved off a broker that went away."""
        gone = [key for key, found in self._coordinators.items() if found == node_id]
        for key in gone:
            del self._coordinators[key]
        self.refresh_soon()

    async def _bootstrap_nodes(self) -> dict[int, Node]:
        """Looked up each time, because names may stand for other addresses by now."""
        addresses = self.config.bootstrap_servers
        if self.config.text("client.dns.lookup") == "resolve_canonical_bootstrap_servers_only":
            addresses = await self._canonical(addresses)
        self._bootstrap = {
            -1 - index: Node(-1 - index, address.host, address.port)
            for index, address in enumerate(addresses)
        }
        return self._bootstrap

    async def _canonical(self, addresses: Iterable[Address]) -> list[Address]:
        """The names of all hosts that a name stands for."""
        loop = self._around.loop
        found: list[Address] = []
        for address in addresses:
            try:
                for _, where in await addresses_of(str(address), address, loop):
                    name, _ = await loop.getnameinfo(where)
                    found.append(Address(name, address.port))
            except (OSError, ConnectionFailed):
                found.append(address)
        return list(dict.fromkeys(found))

    # Metadata

    def watch(self, topics: Iterable[str] | None, *, may_create: bool = False) -> None:
        """Keeps the metadata of these topics fresh in the background (None: of all topics)."""
        watched = None if topics is None else set(topics)
        self._refresh.watch(watched, may_create=may_create)

    async def refresh(
        self, names: Iterable[str] | EllipsisType | None = ..., *, may_create: bool = False
    ) -> None:
        """A fresh answer on these topics (None: all) and on the brokers, in one try.

        Without names it is on what is watched. Concurrent callers share a request.
        """
        if isinstance(names, EllipsisType):
            await self._refresh.watched_now()
            return
        await self._refresh.now(None if names is None else set(names), may_create=may_create)

    def raise_refusal(self) -> None:
        """Raises AuthenticationFailed once, where the background has met it."""
        refusal = self._refresh.take_refusal()
        if refusal is not None:
            raise refusal

    def refresh_soon(self) -> None:
        """Asks anew for what is watched, after retry.backoff.ms."""
        self._refresh.soon()

    async def topic(
        self,
        name: str,
        *,
        may_create: bool = False,
        limit_key: str | None = None,
        timeout_s: float | None = None,
    ) -> TopicView:
        """A view, from memory if there is one. Retries until the limit.

        One that a fresh answer does not know is waited for if it may be created, otherwise it is
        UnknownTopic at once.
        """
        view = self.metadata.topic_or_none(name)
        if view is not None:
            return view
        patience = self.patience(f"metadata of topic {name}", limit_key, timeout_s)
        last: ClientError | None = None
        while True:
            try:
                await patience.within(self.refresh([name], may_create=may_create), last)
                return self._must_exist(name)
            except ClientError as problem:
                last = problem
                is_final = isinstance(problem, UnknownTopic) and not may_create
                if is_final or not may_pass(problem):
                    raise
                await patience.wait_after(problem)

    def _must_exist(self, name: str) -> TopicView:
        view = self.metadata.topics.get(name)
        if view is None:
            raise refused(f"topic {name}", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if not view.exists:
            raise refused(f"topic {name}", view.error_code)
        return view

    async def ask_metadata(self, names: Collection[str] | None, *, may_create: bool) -> None:
        """One try; for `MetadataRefresh`."""
        trigger_s = self.config.seconds("metadata.recovery.rebootstrap.trigger.ms")
        out_of_reach_s = self.clock.monotonic() - self._answered_at
        if self.config.rebootstraps and self.metadata.brokers and out_of_reach_s > trigger_s:
            self._forget_brokers()
        response, is_of_all = await self._from_any(
            partial(self._ask_metadata_of, names=names, may_create=may_create)
        )
        if response.error_code == ErrorCode.REBOOTSTRAP_REQUIRED:
            self._forget_brokers()
        if response.error_code:
            raise refused("metadata", response.error_code)
        if not response.brokers:
            raise BrokerRefused(
                "metadata: the answer names no broker",
                ErrorCode.LEADER_NOT_AVAILABLE,
            )
        self._answered_at = self.clock.monotonic()
        self.metadata.merge(response, is_of_all_topics=is_of_all)

    async def _ask_metadata_of(
        self, node_id: int, names: Collection[str] | None, may_create: bool
    ) -> tuple[MetadataResponse, bool]:
        """The answer, and whether it is of all topics."""
        connection = await self.connect(node_id)
        version = connection.versions.version(ApiKey.METADATA)
        is_forbidding = version >= CREATION_CAN_BE_FORBIDDEN_VERSION and not may_create
        if version < CREATION_CAN_BE_FORBIDDEN_VERSION and not may_create and names:
            names = None
        request = MetadataRequest(
            topics=None if names is None else [MetadataRequestTopic(name=name) for name in names],
            allow_auto_topic_creation=not is_forbidding,
        )
        response = await connection.send(request, version)
        assert isinstance(response, MetadataResponse), response
        return response, names is None

    def _forget_brokers(self) -> None:
        """The next request goes to bootstrap.servers."""
        self.metadata.brokers = {}
        self._answered_at = self.clock.monotonic()

    # Coordinators

    async def coordinator(self, kind: CoordinatorKind, key: str) -> int:
        """The broker that coordinates the group or transactional id; one try.

        What was found is kept until `forget_coordinator`.
        """
        known = self._coordinators.get((kind, key))
        if known is not None:
            return known
        found = await self._shared_lookup(kind, key)
        if found.problem is not None:
            raise found.problem
        return found.node.id

    async def coordinators(
        self, kind: CoordinatorKind, keys: Iterable[str]
    ) -> dict[str, FoundCoordinator]:
        """Looks up the coordinators of many keys afresh, in one request if the broker can."""
        wanted = list(dict.fromkeys(keys))
        if not wanted:
            return {}
        connection = await self.connect(await self.any_node())
        if not connection.versions.offers(ApiKey.FIND_COORDINATOR):
            raise UnsupportedByBroker(
                f"broker {connection.broker} has no {kind.name.lower()} coordinator (it does not "
                f"offer FIND_COORDINATOR) for {kind.text} {wanted[0]}"
            )
        version = connection.versions.version(ApiKey.FIND_COORDINATOR)
        steps = [wanted] if version >= 4 else [[key] for key in wanted]
        found: dict[str, FoundCoordinator] = {}
        for some in steps:
            response = await connection.send(lookup_request(kind, some, version), version)
            assert isinstance(response, FindCoordinatorResponse), response
            found |= found_coordinators(kind, some, response)
        for key, row in found.items():
            if row.problem is None:
                self._coordinators[kind, key] = row.node.id
                self._coordinator_nodes[row.node.id] = row.node
        return found

    async def _shared_lookup(self, kind: CoordinatorKind, key: str) -> FoundCoordinator:
        task = self._lookups.get((kind, key))
        if task is None:

            async def look_up() -> FoundCoordinator:
                try:
                    return (await self.coordinators(kind, [key]))[key]
                finally:
                    del self._lookups[kind, key]

            task = self._around.loop.create_task(look_up())
            task.add_done_callback(_retrieve)
            self._lookups[kind, key] = task
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise Closed("the client is closed") from None
            raise

    def forget_coordinator(self, kind: CoordinatorKind, key: str) -> None:
        self._coordinators.pop((kind, key), None)


def must_be_led(topic: TopicView, partition: TopicPartition) -> int:
    """The leader; raises UnknownTopic, or a BrokerRefused that may pass where there is none."""
    view = topic.partitions.get(partition.partition)
    if view is None:
        raise unknown_partition(partition, topic)
    if view.leader_id == NO_LEADER:
        raise refused(f"partition {partition}", ErrorCode.LEADER_NOT_AVAILABLE)
    return view.leader_id


def unknown_partition(partition: TopicPartition, topic: TopicView) -> BrokerRefused:
    return refused(
        f"partition {partition}",
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        f"topic {topic.name} has {len(topic.partitions)} partitions.",
    )


def _retrieve(task: asyncio.Task[FoundCoordinator]) -> None:
    """Marks the failure as seen, because asyncio logs one that no caller has asked for, and every
    caller may have given up by now."""
    if not task.cancelled():
        task.exception()
