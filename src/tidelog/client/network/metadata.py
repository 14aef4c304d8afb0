"""What Metadata answers say of a cluster: brokers, topics, partitions, leaders. No I/O.

`Metadata` grows by the answers merged into it. The brokers are always those of the last answer,
topics are replaced one by one, and one that was asked for and is not there is kept with its error
code, so that "unknown" and "never asked" differ. A broker that lags behind may tell of a leader
that has been replaced; so a partition never goes back to an older leader epoch, unless its topic
was made anew (KIP-320).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.config.client import Address
from tidelog.errors import ErrorCode
from tidelog.supervisor import tell_each
from tidelog.types import NO_CONTROLLER, NO_LEADER, NO_LEADER_EPOCH, ZERO_UUID, TopicPartition, Uuid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tidelog.protocol.messages.metadata import MetadataResponse, MetadataResponseTopic


class Node(NamedTuple):
    """A broker. `host` and `port` are the listener that it names for clients."""

    id: int
    host: str
    port: int
    rack: str | None = None

    @property
    def address(self) -> Address:
        return Address(self.host, self.port)

    def __str__(self) -> str:
        return f"{self.id} ({self.address})"


class LeaderAndEpoch(NamedTuple):
    leader_id: int
    leader_epoch: int  # -1 where the broker does not say


class PartitionView(NamedTuple):
    partition: int
    leader_id: int  # NO_LEADER while there is none
    leader_epoch: int  # -1 where the broker does not say
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...] = ()


class TopicView(NamedTuple):
    """`partitions` by index; empty when `error_code` is not NONE."""

    name: str
    topic_id: Uuid  # ZERO_UUID before Kafka 2.8
    is_internal: bool
    error_code: int
    partitions: dict[int, PartitionView]

    @property
    def exists(self) -> bool:
        return self.error_code == ErrorCode.NONE


class Metadata:
    """Touched on the event loop only. Views are replaced, never altered."""

    __slots__ = ("_listeners", "_names", "brokers", "cluster_id", "controller_id", "topics")

    def __init__(self) -> None:
        self.brokers: dict[int, Node] = {}
        self.topics: dict[str, TopicView] = {}  # also those that turned out not to exist
        self.cluster_id: str | None = None
        self.controller_id = NO_CONTROLLER
        self._names: dict[Uuid, str] = {}  # of the topics that exist and have an id
        self._listeners: list[Callable[[Metadata], object]] = []

    def add_listener(self, listener: Callable[[Metadata], object]) -> None:
        """It is called after every change."""
        self._listeners.append(listener)

    def topic_or_none(self, name: str) -> TopicView | None:
        view = self.topics.get(name)
        return view if view is not None and view.exists else None

    def name_or_none(self, topic_id: Uuid) -> str | None:
        return self._names.get(topic_id)

    def topic_id(self, name: str) -> Uuid:
        """ZERO_UUID where it is not known."""
        view = self.topics.get(name)
        return ZERO_UUID if view is None else view.topic_id

    def partition_or_none(self, partition: TopicPartition) -> PartitionView | None:
        view = self.topics.get(partition.topic)
        return None if view is None else view.partitions.get(partition.partition)

    def leader_or_none(self, partition: TopicPartition) -> LeaderAndEpoch | None:
        view = self.partition_or_none(partition)
        if view is None or view.leader_id == NO_LEADER:
            return None
        return LeaderAndEpoch(view.leader_id, view.leader_epoch)

    def merge(self, response: MetadataResponse, *, is_of_all_topics: bool = False) -> None:
        self.cluster_id = response.cluster_id
        self.controller_id = response.controller_id
        self.brokers = {
            row.node_id: Node(row.node_id, row.host, row.port, row.rack) for row in response.brokers
        }
        told = {row.name: topic_view(row) for row in response.topics if row.name is not None}
        if is_of_all_topics:
            for gone in self.topics.keys() - told.keys():
                self._forget(gone)
        for name, view in told.items():
            self._replace(name, view)
        tell_each("a listener of the metadata", self._listeners, self)

    def learn_leader(self, partition: TopicPartition, leader: LeaderAndEpoch) -> bool:
        """A leader that another answer named (KIP-951). True if that is news."""
        topic = self.topic_or_none(partition.topic)
        view = self.partition_or_none(partition)
        if topic is None or view is None or leader.leader_epoch <= view.leader_epoch:
            return False
        changed = view._replace(leader_id=leader.leader_id, leader_epoch=leader.leader_epoch)
        partitions = {**topic.partitions, partition.partition: changed}
        self.topics[partition.topic] = topic._replace(partitions=partitions)
        tell_each("a listener of the metadata", self._listeners, self)
        return True

    def learn_nodes(self, nodes: Iterable[Node]) -> None:
        """Brokers that another answer named (KIP-951)."""
        self.brokers = {**self.brokers, **{node.id: node for node in nodes}}

    def forget(self, topics: Iterable[str]) -> None:
        """Drops the views of these topics, so that the next caller asks the brokers."""
        for topic in topics:
            self._forget(topic)

    def _forget(self, topic: str) -> None:
        view = self.topics.pop(topic, None)
        if view is not None:
            self._names.pop(view.topic_id, None)

    def _replace(self, name: str, told: TopicView) -> None:
        known = self.topics.get(name)
        self._forget(name)
        if known is not None and known.topic_id == told.topic_id:
            partitions = {
                index: later_of(known.partitions.get(index), view)
                for index, view in told.partitions.items()
            }
            told = told._replace(partitions=partitions)
        self.topics[name] = told
        if told.topic_id != ZERO_UUID:
            self._names[told.topic_id] = name


def later_of(known: PartitionView | None, told: PartitionView) -> PartitionView:
    if known is None or told.leader_epoch == NO_LEADER_EPOCH:
        return told
    return known if known.leader_epoch > told.leader_epoch else told


def topic_view(row: MetadataResponseTopic) -> TopicView:
    partitions = {
        partition.partition_index: PartitionView(
            partition.partition_index,
            partition.leader_id,
            partition.leader_epoch,
            tuple(partition.replica_nodes),
            tuple(partition.isr_nodes),
            tuple(partition.offline_replicas),
        )
        for partition in row.partitions
    }
    return TopicView(
        row.name or "", row.topic_id or ZERO_UUID, row.is_internal, row.error_code, partitions
    )
