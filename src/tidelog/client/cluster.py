"""A cluster as one client process sees it: its metadata and the connections to its brokers.

`Cluster` is what readers and writers share. It finds the brokers from `bootstrap.servers`, asks
for metadata when something is unknown or out of date, and keeps idle connections for the next who
needs one. A connection belongs to who took it (`take`) until it is given back (`give_back`), so a
generator that is half way through its answers never meets the requests of another. `close` closes
all of them, also those that a producer or a generator has not given back.

Reading metadata never creates a topic; only `writable_topic` lets the broker do so, as Kafka's
producer does.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, TypeVar

from tidelog.client.backoff import Patience
from tidelog.client.connection import Connection
from tidelog.client.errors import (
    BrokerRefused,
    ClientError,
    ConnectionFailed,
    RequestTimedOut,
    UnknownTopic,
    refused,
)
from tidelog.client.network.backoff import may_pass
from tidelog.client.network.metadata import ClusterView, PartitionView, TopicView
from tidelog.clock import Clock, SystemClock
from tidelog.config.client import ClientConfig
from tidelog.errors import ErrorCode
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from tidelog.types import NO_LEADER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tidelog.client.backoff import OnWait
    from tidelog.config.client import Address
    from tidelog.types import TopicPartition

Answered = TypeVar("Answered")


class Cluster:
    """For one thread; close it, or use it as a context manager.

    `on_wait` is told before every wait for another try: what for, and why.
    """

    def __init__(
        self,
        config: ClientConfig | Mapping[str, object],
        clock: Clock | None = None,
        on_wait: OnWait | None = None,
    ) -> None:
        self.config = config if isinstance(config, ClientConfig) else ClientConfig(config)
        self.clock: Clock = SystemClock() if clock is None else clock
        self.view = ClusterView()
        self._on_wait = on_wait
        self._idle: dict[Address, list[Connection]] = {}
        self._opened: list[Connection] = []  # all that may be open
        self._told_at: dict[str, float] = {}

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        for connection in self._opened:
            connection.close()
        self._opened.clear()
        self._idle.clear()

    def patience(self, what: str, limit_key: str = "default.api.timeout.ms") -> Patience:
        return Patience(what, self.config, self.clock, limit_key=limit_key, on_wait=self._on_wait)

    # Connections

    def take(self, node_id: int) -> Connection:
        """A connection to a broker of the last metadata, with nothing in flight."""
        address = self.view.brokers.get(node_id)
        if address is None:
            raise ConnectionFailed(f"broker {node_id} is not among those the cluster names")
        return self.take_at(address)

    def give_back(self, connection: Connection) -> None:
        """Keeps it if it is usable, closes it if answers are still to come."""
        if not connection.is_open:
            return
        if connection.in_flight:
            connection.close()
            return
        self._idle.setdefault(connection.address, []).append(connection)

    def take_at(self, address: Address) -> Connection:
        """As `take`, for a broker that another answer named."""
        idle = self._idle.get(address, [])
        while idle:
            connection = idle.pop()
            # A broker that closed it meanwhile shows as readable.
            if not connection.is_readable(0):
                return connection
            connection.close()
        connection = Connection.open(address, self.config, self.clock)
        self._opened = [each for each in self._opened if each.is_open]
        self._opened.append(connection)
        return connection

    def ask_any(
        self,
        what: str,
        ask: Callable[[Connection], Answered],
        patience: Patience | None = None,
    ) -> Answered:
        """What `ask` gets from whichever broker can be reached, with retries."""
        patience = patience or self.patience(what)
        while True:
            try:
                return self._ask_each(ask)
            except ClientError as problem:
                if not may_pass(problem):
                    raise
                patience.wait_after(problem)

    def ask_node(self, node_id: int, ask: Callable[[Connection], Answered]) -> Answered:
        """What `ask` gets from one broker; one try."""
        connection = self.take(node_id)
        try:
            return ask(connection)
        finally:
            self.give_back(connection)

    def ask_broker(
        self, node_id: int, what: str, ask: Callable[[Connection], Answered]
    ) -> Answered:
        """As `ask_node`, with retries."""
        patience = self.patience(what)
        while True:
            try:
                return self.ask_node(node_id, ask)
            except ClientError as problem:
                if not may_pass(problem):
                    raise
                patience.wait_after(problem)

    def brokers(self) -> dict[int, Address]:
        """Those there are now, by id."""
        self.topics([])
        return self.view.brokers

    def _ask_each(self, ask: Callable[[Connection], Answered]) -> Answered:
        problem: ClientError = ConnectionFailed("no broker is known")
        for address in self._addresses():
            try:
                connection = self.take_at(address)
            except (ConnectionFailed, RequestTimedOut) as failed:
                problem = failed
                continue
            try:
                return ask(connection)
            except (ConnectionFailed, RequestTimedOut) as failed:
                problem = failed
            finally:
                self.give_back(connection)
        raise problem

    def _addresses(self) -> list[Address]:
        """Brokers with an idle connection first, then known ones, then where it all began."""
        known = list(self.view.brokers.values())
        random.shuffle(known)
        known.sort(key=lambda address: not self._idle.get(address))
        return list(dict.fromkeys([*known, *self.config.bootstrap_servers]))

    # Metadata

    def topics(self, names: Iterable[str] | None) -> dict[str, TopicView]:
        """Fresh views of the named topics, or of all (None). One that is not there has its code."""
        return self._ask_metadata(None if names is None else list(names), may_create=False)

    def topic(self, name: str) -> TopicView:
        """A view that may be as old as metadata.max.age.ms; raises UnknownTopic."""
        view = self.view.topics.get(name)
        if view is None or not view.exists or self._is_old(name):
            view = self._ask_metadata([name], may_create=False)[name]
        return must_exist(view)

    def writable_topic(self, name: str) -> TopicView:
        """As `topic`, but the broker may create it. Waits up to max.block.ms, for a broker too."""
        view = self.view.topics.get(name)
        patience: Patience | None = None
        while view is None or not view.exists or self._is_old(name):
            patience = patience or self.patience(f"topic {name}", "max.block.ms")
            view = self._ask_metadata([name], may_create=True, patience=patience)[name]
            if view.exists:
                break
            problem = refused(f"topic {name}", view.error_code)
            if not may_pass(problem):
                raise problem
            patience.wait_after(problem)
        return view

    def leader_of(self, partition: TopicPartition) -> PartitionView:
        """Raises UnknownTopic, or a BrokerRefused that may pass while there is no leader."""
        view = self.topic(partition.topic).partitions.get(partition.partition)
        if view is None:
            raise unknown_partition(partition, self.view.topics[partition.topic])
        if view.leader_id == NO_LEADER:
            self.view.forget(partition.topic)
            raise refused(f"partition {partition}", ErrorCode.LEADER_NOT_AVAILABLE)
        return view

    def refresh(self, topics: Iterable[str]) -> None:
        """The next look at these topics asks the brokers."""
        for topic in topics:
            self.view.forget(topic)

    def _is_old(self, name: str) -> bool:
        age_s = self.clock.monotonic() - self._told_at.get(name, 0.0)
        return age_s * 1000 > self.config.integer("metadata.max.age.ms")

    def _ask_metadata(
        self, names: list[str] | None, *, may_create: bool, patience: Patience | None = None
    ) -> dict[str, TopicView]:
        what = "metadata of all topics" if names is None else f"metadata of {', '.join(names)}"
        what = what if names != [] else "the brokers"

        def ask(connection: Connection) -> MetadataResponse:
            request = MetadataRequest(
                topics=None if names is None else [MetadataRequestTopic(name=n) for n in names],
                allow_auto_topic_creation=may_create,
            )
            response = connection.call(
                request, connection.versions.version(ApiKey.METADATA, at_least=4)
            )
            assert isinstance(response, MetadataResponse), response
            return response

        response = self.ask_any(what, ask, patience)
        told = self.view.merge(response)
        now = self.clock.monotonic()
        for name in told:
            self._told_at[name] = now
        missing = [name for name in names or () if name not in told]
        if missing:
            raise UnknownTopic(f"the broker's metadata leaves out topic {', '.join(missing)}")
        return told


def must_exist(topic: TopicView) -> TopicView:
    if not topic.exists:
        raise refused(f"topic {topic.name}", topic.error_code)
    return topic


def unknown_partition(partition: TopicPartition, topic: TopicView) -> BrokerRefused:
    return refused(
        f"partition {partition}",
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        f"topic {topic.name} has {len(topic.partitions)} partitions.",
    )
