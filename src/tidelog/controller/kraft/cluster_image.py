"""What the records of a KRaft metadata log lead to: topics, configurations, producer ids, access.

    replayed       TopicRecord, RemoveTopicRecord, PartitionRecord, PartitionChangeRecord,
                   ConfigRecord, ProducerIdsRecord, FeatureLevelRecord, ZkMigrationStateRecord,
                   and those of `security_image`
    transactions   records between Begin- and EndTransactionRecord count as of the end; those
                   before an abort, or without an end, never did (KIP-868)
    passed over    brokers and controllers coming and going, and the empty record of each half
                   second: they change neither topics nor configurations
    counted        delegation tokens, of which nothing is taken over; whoever adopts the directory
                   is told

Any other type, and any version of a replayed type that is newer than Kafka 4.3's, could change
what the others mean: `UnreadableMetadata`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tidelog.controller.kraft.metadata_log import MetadataRecord, UnreadableMetadata
from tidelog.controller.kraft.security_image import SECURITY_RECORDS, SecurityImage
from tidelog.controller.topic_names import reason_invalid
from tidelog.protocol.errors import DecodeError
from tidelog.protocol.message import Message
from tidelog.protocol.messages.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
    ZkMigrationStateRecord,
)
from tidelog.types import Uuid

REPLAYED_KINDS: Final[tuple[type[Message], ...]] = (
    TopicRecord,
    PartitionRecord,
    ConfigRecord,
    PartitionChangeRecord,
    RemoveTopicRecord,
    FeatureLevelRecord,
    ProducerIdsRecord,
    ZkMigrationStateRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    AbortTransactionRecord,
    *SECURITY_RECORDS,
)
REPLAYED: Final = {kind.RECORD_TYPE: kind for kind in REPLAYED_KINDS}
PASSED_OVER: Final = {
    0: "RegisterBrokerRecord",
    1: "UnregisterBrokerRecord",
    7: "FenceBrokerRecord",
    8: "UnfenceBrokerRecord",
    17: "BrokerRegistrationChangeRecord",
    20: "NoOpRecord",
    27: "RegisterControllerRecord",
    28: "ClearElrRecord",
}
TOKENS: Final = {10: 1, 26: -1}  # a record that adds a delegation token, one that removes it
TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4
LEADER_UNCHANGED: Final = -2
MIGRATION_NOT_BEGUN: Final = 2  # ZkMigrationState.PRE_MIGRATION: the topics are in ZooKeeper yet


class KraftPartition:
    __slots__ = ("directories", "elr", "isr", "leader_epoch", "replicas")

    def __init__(self, record: PartitionRecord) -> None:
        self.replicas = record.replicas
        self.isr = record.isr
        self.elr = record.eligible_leader_replicas or []  # as good as in sync (KIP-966)
        self.leader_epoch = record.leader_epoch
        self.directories = record.directories  # of each replica; empty before metadata.version 3.7

    def change(self, record: PartitionChangeRecord) -> None:
        if record.isr is not None:
            self.isr = record.isr
        if record.eligible_leader_replicas is not None:
            self.elr = record.eligible_leader_replicas
        if record.replicas is not None:
            self.replicas = record.replicas
        if record.directories is not None:
            self.directories = record.directories
        if record.leader != LEADER_UNCHANGED:
            self.leader_epoch += 1

    def directory_of(self, broker_id: int) -> Uuid | None:
        if len(self.directories) != len(self.replicas) or broker_id not in self.replicas:
            return None
        return self.directories[self.replicas.index(broker_id)]


class KraftTopic:
    __slots__ = ("name", "partitions", "topic_id")

    def __init__(self, name: str, topic_id: Uuid) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions: dict[int, KraftPartition] = {}


class ClusterImage:
    """Filled by `replay`, once."""

    def __init__(self) -> None:
        self.topics: dict[Uuid, KraftTopic] = {}
        self.topic_configs: dict[str, dict[str, str]] = {}
        self.broker_configs: dict[str, dict[str, str]] = {}  # "" is the default of all brokers
        self.next_producer_id = 0
        self.features: dict[str, int] = {}
        self.security = SecurityImage()
        self.tokens = 0
        self.unfinished = 0  # records of a transaction that has not ended
        self._migration_state = 0
        self._transaction: list[tuple[MetadataRecord, Message]] | None = None

    def replay(self, records: Iterable[MetadataRecord]) -> None:
        for record in records:
            if record.type in TOKENS:
                self.tokens += TOKENS[record.type]
            elif record.type not in PASSED_OVER:
                self._apply_or_hold(record, _decoded(record))
        self.unfinished = len(self._transaction or ())
        if self._migration_state == MIGRATION_NOT_BEGUN:
            raise UnreadableMetadata(
                "a migration from ZooKeeper to KRaft was prepared and has not begun, so the topics "
                "are in ZooKeeper: set zookeeper.connect, or let Kafka finish the migration"
            )

    def _apply_or_hold(self, record: MetadataRecord, message: Message) -> None:
        if isinstance(message, BeginTransactionRecord):
            self._transaction = []
        elif isinstance(message, AbortTransactionRecord):
            self._transaction = None
        elif isinstance(message, EndTransactionRecord):
            finished, self._transaction = self._transaction or [], None
            for earlier, inner in finished:
                self._apply(earlier, inner)
        elif self._transaction is not None:
            self._transaction.append((record, message))
        else:
            self._apply(record, message)

    def _apply(self, record: MetadataRecord, message: Message) -> None:
        if isinstance(message, TopicRecord):
            if (problem := reason_invalid(message.name)) is not None:
                raise UnreadableMetadata(f"{record.place}: the name of a topic: {problem}")
            self.topics[message.topic_id] = KraftTopic(message.name, message.topic_id)
        elif isinstance(message, RemoveTopicRecord):
            topic = self._topic(record, message.topic_id)
            del self.topics[topic.topic_id]
            self.topic_configs.pop(topic.name, None)
        elif isinstance(message, PartitionRecord):
            topic = self._topic(record, message.topic_id)
            topic.partitions[message.partition_id] = KraftPartition(message)
        elif isinstance(message, PartitionChangeRecord):
            partition = self._topic(record, message.topic_id).partitions.get(message.partition_id)
            if partition is None:
                raise UnreadableMetadata(f"{record.place}: changes a partition that is not there")
            partition.change(message)
        elif isinstance(message, ConfigRecord):
            self._configure(message)
        elif isinstance(message, ProducerIdsRecord):
            self.next_producer_id = message.next_producer_id
        elif isinstance(message, FeatureLevelRecord):
            self.features[message.name] = message.feature_level
        elif isinstance(message, ZkMigrationStateRecord):
            self._migration_state = message.zk_migration_state
        else:
            try:
                self.security.apply(message)
            except ValueError as error:
                raise UnreadableMetadata(f"{record.place}: {error}") from error

    def _topic(self, record: MetadataRecord, topic_id: Uuid) -> KraftTopic:
        topic = self.topics.get(topic_id)
        if topic is None:
            raise UnreadableMetadata(f"{record.place}: tells of a topic that is not there")
        return topic

    def _configure(self, record: ConfigRecord) -> None:
        by_type = {TOPIC_RESOURCE: self.topic_configs, BROKER_RESOURCE: self.broker_configs}
        configs = by_type.get(record.resource_type)
        if configs is None:  # of loggers, metrics, groups
            return
        texts = configs.setdefault(record.resource_name, {})
        if record.value is None:
            texts.pop(record.name, None)
        else:
            texts[record.name] = record.value


def _decoded(record: MetadataRecord) -> Message:
    kind = REPLAYED.get(record.type)
    if kind is None:
        raise UnreadableMetadata(
            f"{record.place}: records of type {record.type} are not known here; "
            "they come from a newer Apache Kafka"
        )
    try:
        return kind.decode(record.body, 0, record.version)
    except DecodeError as error:
        raise UnreadableMetadata(f"{record.place}: {error}") from error
