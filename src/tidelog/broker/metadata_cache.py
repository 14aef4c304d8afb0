"""What clients are told of the cluster: its brokers, its controller, its topics.

A view over the topic catalogue, and the brokers: this one, or in a cluster those that the
controller has named.

UpdateMetadata tells of some partitions of a topic; `apply_update` leaves the others as they were.
The leader -2 says that a partition is being deleted; a topic goes with its last one.

A client that has come to the wrong broker is told who leads (`current_leader`, KIP-951). It saves
the client a Metadata request, which matters most when leadership has just moved.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.controller.topics import NO_STATE, PartitionImage, TopicImage, TopicImages
from tidelog.errors import ErrorCode
from tidelog.types import NO_LEADER, NO_LEADER_EPOCH, ZERO_UUID

if TYPE_CHECKING:
    from tidelog.broker.broker import Broker
    from tidelog.controller.cluster.cluster_topics import ClusterTopics
    from tidelog.protocol.messages.update_metadata import (
        UpdateMetadataPartitionState,
        UpdateMetadataTopicState,
    )


LEADER_DURING_DELETE: Final = -2


class Node(NamedTuple):
    broker_id: int
    host: str
    port: int
    rack: str | None


class MetadataCache:
    def __init__(self, cluster_id: str, controller_id: int, topics: TopicImages) -> None:
        self.cluster_id: Final = cluster_id
        self._controller_id = controller_id
        self._topics = topics
        self._nodes: dict[str, list[Node]] = {}
        self._changes = 0  # of brokers and controller
        # (topic, partition) of logs here that cannot be used, of which nobody else would tell.
        self.offline: Set[tuple[str, int]] = frozenset()
        # A broker that others have replaced without its news being here: neither it nor what it
        # leads is told of, so that clients ask elsewhere.
        self.hidden_id: int | None = None

    @property
    def revision(self) -> int | None:
        """Grows with every change of what clients are told. None while that may change without
        being counted: logs here are offline, or a broker is hidden.
        """
        if self.offline or self.hidden_id is not None:
            return None
        return self._changes + self._topics.changes

    @property
    def controller_id(self) -> int:
        return self._controller_id

    @controller_id.setter
    def controller_id(self, controller_id: int) -> None:
        self._controller_id = controller_id
        self._changes += 1

    def advertise(self, listener_name: str, nodes: list[Node]) -> None:
        """Clients are told of brokers by the listener they came by."""
        self._nodes[listener_name] = nodes
        self._changes += 1

    def replace_nodes(self, nodes: dict[str, list[Node]]) -> None:
        """All brokers that live, by listener."""
        self._nodes = nodes
        self._changes += 1

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


def apply_update(topics: ClusterTopics, update: UpdateMetadataTopicState) -> None:
    image = _updated(topics.topics.get(update.topic_name), update)
    if image is not None:
        topics.put(image)
    else:
        topics.drop(update.topic_name)


def _updated(before: TopicImage | None, update: UpdateMetadataTopicState) -> TopicImage | None:
    """None if no partition is left."""
    if before is not None and update.topic_id not in (ZERO_UUID, before.topic_id):
        before = None
    partitions = dict(enumerate(before.partitions)) if before else {}
    for row in update.partition_states:
        if row.leader == LEADER_DURING_DELETE:
            partitions.pop(row.partition_index, None)
        else:
            partitions[row.partition_index] = _image_of(row)
    if not partitions:
        return None
    topic_id = update.topic_id if before is None else before.topic_id
    images = [partitions.get(n) or _unknown(n) for n in range(max(partitions) + 1)]
    return TopicImage(update.topic_name, topic_id, images, {})


def _image_of(row: UpdateMetadataPartitionState) -> PartitionImage:
    return PartitionImage(
        row.partition_index,
        row.leader,
        row.leader_epoch,
        row.replicas,
        row.isr,
        row.zk_version,
        tuple(row.offline_replicas),
    )


def _unknown(partition: int) -> PartitionImage:
    """A partition that the controller has not told of yet, below one that it has."""
    return PartitionImage(partition, NO_LEADER, NO_LEADER_EPOCH, [], [], NO_STATE)


class CurrentLeader(NamedTuple):
    leader_id: int
    leader_epoch: int


def current_leader(broker: Broker, topic: str, index: int) -> CurrentLeader | None:
    """As this broker knows it: by the controller's order if it hosts the partition, else by
    metadata; of both what is newer.
    """
    known: list[CurrentLeader] = []
    partition = broker.replicas.get(topic, index)
    if partition is not None and not partition.is_leader:
        known.append(CurrentLeader(partition.leader_id, partition.leader_epoch))
    image = broker.topics.topics.get(topic)
    if image is not None and 0 <= index < len(image.partitions):
        row = image.partitions[index]
        known.append(CurrentLeader(row.leader, row.leader_epoch))
    newest = max(known, key=lambda leader: leader.leader_epoch, default=None)
    if newest is None or newest.leader_id in (NO_LEADER, broker.broker_id):
        return None
    return newest


def leader_endpoints(broker: Broker, leader_ids: Iterable[int], listener_name: str) -> list[Node]:
    wanted = set(leader_ids)
    return [node for node in broker.metadata.nodes(listener_name) if node.broker_id in wanted]
