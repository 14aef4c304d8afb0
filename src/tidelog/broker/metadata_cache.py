"""What clients are told of the cluster: its brokers, its controller, its topics.

A view over the topic catalogue, and the brokers: this one, or in a cluster those that the
controller has named.
"""

from __future__ import annotations

from collections.abc import Set
from typing import NamedTuple

from tidelog.controller.topics import PartitionImage, TopicImage, TopicImages
from tidelog.errors import ErrorCode
from tidelog.types import NO_LEADER


class Node(NamedTuple):
    broker_id: int
    host: str
    port: int
    rack: str | None


class MetadataCache:
    def __init__(self, cluster_id: str, controller_id: int, topics: TopicImages) -> None:
        self.cluster_id = cluster_id
        self.controller_id = controller_id
        self._topics = topics
        self._nodes: dict[str, list[Node]] = {}
        # (topic, partition) of logs here that cannot be used, of which nobody else would tell.
        self.offline: Set[tuple[str, int]] = frozenset()
        # A broker that others have replaced without its news being here: neither it nor what it
        # leads is told of, so that clients ask elsewhere.
        self.hidden_id: int | None = None

    def advertise(self, listener_name: str, nodes: list[Node]) -> None:
        """Clients are told of brokers by the listener they came by."""
        self._nodes[listener_name] = nodes

    def replace_nodes(self, nodes: dict[str, list[Node]]) -> None:
        """All brokers that live, by listener."""
        self._nodes = nodes

    def nodes(self, listener_name: str) -> list[Node]:
        nodes = self._nodes.get(listener_name, [])
        if self.hidden_id is None:
            return nodes
        return [node for node in nodes if node.broker_id != self.hidden_id]

    def leader_errors(self, listener_name: str, without_listener: ErrorCode) -> dict[int, int]:
        """By broker, the error of partitions it leads, for clients of this listener: none, or that
        it lives without the listener. Brokers that do not live are not in it.
        """
        alive = (node.broker_id for nodes in self._nodes.values() for node in nodes)
        errors = dict.fromkeys(alive, int(without_listener))
        errors.update((node.broker_id, 0) for node in self._nodes.get(listener_name, ()))
        return errors

    def topic(self, name: str) -> TopicImage | None:
        image = self._topics.topics.get(name)
        return None if image is None else self.as_seen(image)

    def images(self) -> list[TopicImage]:
        """Of all topics there are now; `as_seen` says what clients are told of one."""
        return list(self._topics.topics.values())

    def as_seen(self, image: TopicImage) -> TopicImage:
        """The image, without leaders where there is none to be had: logs that are offline, and
        what a hidden broker leads.
        """
        if self.hidden_id is None and not (
            self.offline
            and any((image.name, each.partition) in self.offline for each in image.partitions)
        ):
            return image
        partitions = [self._partition_as_seen(image.name, each) for each in image.partitions]
        return TopicImage(image.name, image.topic_id, partitions, image.configs)

    def _partition_as_seen(self, topic: str, partition: PartitionImage) -> PartitionImage:
        if (topic, partition.partition) in self.offline:
            return partition._replace(leader=NO_LEADER, offline_replicas=partition.replicas)
        if partition.leader == self.hidden_id:
            return partition._replace(leader=NO_LEADER)
        return partition
