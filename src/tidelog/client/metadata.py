"""What Metadata answers say of a cluster: brokers, topics, partitions, leaders. No I/O.

A `ClusterView` grows by the answers merged into it: the brokers are always those of the last
answer, topics are replaced one by one, and a topic that was asked for and is not there is kept with
its error code, so that "unknown" and "never asked" differ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.config.client import Address
from tidelog.errors import ErrorCode
from tidelog.types import ZERO_UUID, Uuid

if TYPE_CHECKING:
    from tidelog.protocol.messages.metadata import MetadataResponse, MetadataResponseTopic


class PartitionView(NamedTuple):
    partition: int
    leader_id: int  # NO_LEADER while there is none
    leader_epoch: int  # -1 where the broker does not say
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


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


class ClusterView:
    __slots__ = ("brokers", "cluster_id", "controller_id", "topics")

    def __init__(self) -> None:
        self.brokers: dict[int, Address] = {}
        self.topics: dict[str, TopicView] = {}
        self.cluster_id: str | None = None
        self.controller_id = -1

    def merge(self, response: MetadataResponse) -> dict[str, TopicView]:
        """Takes in an answer; gives the topics it spoke of."""
        self.cluster_id = response.cluster_id
        self.controller_id = response.controller_id
        self.brokers = {row.node_id: Address(row.host, row.port) for row in response.brokers}
        told = {row.name: topic_view(row) for row in response.topics if row.name is not None}
        self.topics.update(told)
        return told

    def forget(self, topic: str) -> None:
        self.topics.pop(topic, None)


def topic_view(row: MetadataResponseTopic) -> TopicView:
    partitions = {
        partition.partition_index: PartitionView(
            partition.partition_index,
            partition.leader_id,
            partition.leader_epoch,
            tuple(partition.replica_nodes),
            tuple(partition.isr_nodes),
        )
        for partition in row.partitions
    }
    return TopicView(
        row.name or "", row.topic_id or ZERO_UUID, row.is_internal, row.error_code, partitions
    )
