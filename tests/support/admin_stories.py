"""What an administrator does with tidelog's own `Admin`, told once for every broker.

Each story is given an `AdminStage`: a cluster of one broker, and names that nobody else uses.
tests/integration tells them to tidelog, tests/interop to Apache Kafka.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import confluent_kafka

from tests.support.eventually import eventually
from tests.support.raw_batch import batch
from tests.support.raw_client import RawClient, produce
from tidelog.client import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    Admin,
    AlterConfig,
    AlterOp,
    ConfigResource,
    ConfigResourceType,
    ConfigSource,
    LogDirDescription,
    NewPartitions,
    NewTopic,
    Result,
    TopicPartitionReplica,
    UnknownTopic,
)
from tidelog.client.consumer.offset_and_metadata import OffsetAndMetadata
from tidelog.client.errors import CommitRefused
from tidelog.errors import ErrorCode
from tidelog.types import TopicPartition

T = TypeVar("T")


def code_of(result: Result[T]) -> ErrorCode:
    return ErrorCode.NONE if result.error is None else result.error.code


class AdminStage:
    def __init__(self, admin: Admin, bootstrap: str) -> None:
        self.admin = admin
        self.bootstrap = bootstrap
        self._mark = uuid.uuid4().hex[:12]

    def name(self, kind: str) -> str:
        return f"{kind}-{self._mark}"

    def topic(self, partitions: int = 1, kind: str = "topic") -> str:
        """A new one whose partitions all have leaders."""
        name = self.name(kind)
        self.admin.create_topics([NewTopic(name, partitions, 1)])[name].get()
        self.wait_for_leaders(name, partitions)
        return name

    def wait_for_leaders(self, topic: str, partitions: int) -> None:
        def has_leaders() -> bool:
            found = self.admin.describe_topics([topic])[topic].value
            rows = found.partitions if found is not None else ()
            return len(rows) == partitions and all(row.leader_id >= 0 for row in rows)

        eventually(has_leaders)

    def write(self, topic: str, values: list[bytes], partition: int = 0) -> None:
        def written() -> bool:
            # A broker may take a moment to learn that it leads a new partition.
            row = produce(client, topic, batch(*values), partition)
            assert row.error_code in (0, ErrorCode.NOT_LEADER_OR_FOLLOWER), row
            return bool(row.error_code == 0)

        with RawClient(self.bootstrap) as client:
            eventually(written)

    def latest(self, partition: TopicPartition) -> int:
        return self.admin.list_offsets({partition: LATEST})[partition].get().offset

    @contextmanager
    def member(self, group: str, topic: str, protocol: str, **options: str) -> Iterator[None]:
        """A member of a group that has got its partitions."""
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": group,
                "group.protocol": protocol,
                "client.id": "the-member",
                "auto.offset.reset": "earliest",
                **options,
            }
        )
        try:
            consumer.subscribe([topic])
            deadline = time.monotonic() + 90
            while not consumer.assignment():
                consumer.poll(0.1)
                assert time.monotonic() < deadline
            yield
        finally:
            consumer.close()


def topics_are_made_listed_described_and_removed(stage: AdminStage) -> None:
    admin, plain, assigned = stage.admin, stage.name("plain"), stage.name("assigned")
    (broker,) = (node.id for node in admin.describe_cluster().nodes)
    made = admin.create_topics(
        [
            NewTopic(plain, 3, 1, configs={"retention.ms": "1234567"}),
            NewTopic(assigned, assignments={0: [broker], 1: [broker]}),
            NewTopic("no/such name"),
        ]
    )
    assert (made[plain].get().num_partitions, made[plain].get().replication_factor) == (3, 1)
    assert made[assigned].get().num_partitions == 2
    assert code_of(made["no/such name"]) == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert code_of(admin.create_topics([plain])[plain]) == ErrorCode.TOPIC_ALREADY_EXISTS
    stage.wait_for_leaders(plain, 3)
    listed = {row.name: row for row in admin.list_topics()}
    assert {plain, assigned} <= set(listed)
    assert listed[plain].topic_id == made[plain].get().topic_id

    described = admin.describe_topics([plain, "none"], include_authorized_operations=True)
    rows = described[plain].get().partitions
    assert [row.partition for row in rows] == [0, 1, 2]
    assert {(row.leader_id, row.replicas, row.isr) for row in rows} == {
        (broker, (broker,), (broker,))
    }
    assert isinstance(described["none"].error, UnknownTopic)
    by_id = admin.describe_topics([listed[plain].topic_id])[listed[plain].topic_id].get()
    assert by_id.name == plain
    in_pieces = admin.describe_topics([plain], partition_limit=1)[plain].get()
    assert [row.partition for row in in_pieces.partitions] == [0, 1, 2]

    removed = admin.delete_topics([plain, "none"])
    assert removed[plain].is_ok
    assert isinstance(removed["none"].error, UnknownTopic)
    topic_id = listed[assigned].topic_id
    assert admin.delete_topics([topic_id])[topic_id].is_ok
    eventually(lambda: not {plain, assigned} & {row.name for row in admin.list_topics()})


def a_trial_creates_nothing(stage: AdminStage) -> None:
    name = stage.name("trial")
    assert stage.admin.create_topics([NewTopic(name, 2, 1)], validate_only=True)[name].is_ok
    assert name not in {row.name for row in stage.admin.list_topics()}
    topic = stage.topic()
    assert stage.admin.create_partitions({topic: 4}, validate_only=True)[topic].is_ok
    assert len(stage.admin.describe_topics([topic])[topic].get().partitions) == 1


def a_topic_grows(stage: AdminStage) -> None:
    topic = stage.topic()
    (broker,) = (node.id for node in stage.admin.describe_cluster().nodes)
    assert stage.admin.create_partitions({topic: 3})[topic].is_ok
    stage.wait_for_leaders(topic, 3)
    assert stage.admin.create_partitions({topic: NewPartitions(4, [[broker]])})[topic].is_ok
    stage.wait_for_leaders(topic, 4)
    assert code_of(stage.admin.create_partitions({topic: 2})[topic]) == ErrorCode.INVALID_PARTITIONS


def offsets_are_found_and_records_deleted(stage: AdminStage) -> None:
    topic = stage.topic(2)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    nowhere = TopicPartition("none", 0)
    stage.write(topic, [b"a", b"b", b"c"])
    found = stage.admin.list_offsets({first: LATEST, second: EARLIEST, nowhere: LATEST})
    assert [found[first].get().offset, found[second].get().offset] == [3, 0]
    assert isinstance(found[nowhere].error, UnknownTopic)
    newest = stage.admin.list_offsets({first: MAX_TIMESTAMP})[first].get()
    assert newest.offset in (0, 2)
    assert newest.timestamp > 0
    by_time = stage.admin.list_offsets({first: newest.timestamp, second: 0})
    assert by_time[first].get().offset in (0, 2)
    assert by_time[second].get().offset == -1
    committed = stage.admin.list_offsets({first: LATEST}, isolation_level="read_committed")
    assert committed[first].get().offset == 3

    deleted = stage.admin.delete_records({first: 2, second: 9, nowhere: 1})
    assert deleted[first].get() == 2
    assert code_of(deleted[second]) == ErrorCode.OFFSET_OUT_OF_RANGE
    assert isinstance(deleted[nowhere].error, UnknownTopic)
    assert stage.admin.list_offsets({first: EARLIEST})[first].get().offset == 2


def configurations_are_read_and_changed(stage: AdminStage) -> None:
    admin, topic = stage.admin, stage.topic()
    resource = ConfigResource(ConfigResourceType.TOPIC, topic)
    nowhere = ConfigResource(ConfigResourceType.TOPIC, "none")
    change = [AlterConfig("retention.ms", "77777"), AlterConfig("cleanup.policy", "compact")]

    def value_of(name: str) -> str | None:
        return admin.describe_configs({resource: [name]})[resource].get()[name].value

    before = value_of("retention.ms")
    assert admin.incremental_alter_configs({resource: change}, validate_only=True)[resource].is_ok
    assert admin.incremental_alter_configs({resource: change})[resource].is_ok
    eventually(lambda: value_of("retention.ms") == "77777")
    added = [AlterConfig("cleanup.policy", "delete", AlterOp.APPEND)]
    assert admin.incremental_alter_configs({resource: added})[resource].is_ok
    eventually(lambda: value_of("cleanup.policy") == "compact,delete")
    undone = [AlterConfig("retention.ms", op=AlterOp.DELETE)]
    assert admin.incremental_alter_configs({resource: undone})[resource].is_ok
    eventually(lambda: value_of("retention.ms") == before)

    found = admin.describe_configs(
        [resource, nowhere], include_synonyms=True, include_documentation=True
    )
    entry = found[resource].get()["cleanup.policy"]
    assert entry.source is ConfigSource.DYNAMIC_TOPIC
    assert entry.synonyms
    assert entry.documentation
    assert found[resource].get()["retention.ms"].source is not ConfigSource.DYNAMIC_TOPIC
    assert found[resource].get()["preallocate"].is_default
    assert isinstance(found[nowhere].error, UnknownTopic)
    wrong = {resource: [AlterConfig("no.such.key", "1")]}
    assert code_of(admin.incremental_alter_configs(wrong)[resource]) == ErrorCode.INVALID_CONFIG


def a_broker_is_asked_for_its_own_configuration(stage: AdminStage) -> None:
    (node,) = stage.admin.describe_cluster().nodes
    resource = ConfigResource(ConfigResourceType.BROKER, str(node.id))
    entries = stage.admin.describe_configs([resource])[resource].get()
    assert entries["num.partitions"].is_read_only
    default = ConfigResource(ConfigResourceType.BROKER, "")
    change = [AlterConfig("log.cleaner.threads", "2")]
    assert stage.admin.incremental_alter_configs({default: change})[default].is_ok

    def source() -> ConfigSource:
        found = stage.admin.describe_configs({resource: ["log.cleaner.threads"]})
        return found[resource].get()["log.cleaner.threads"].source

    eventually(lambda: source() is ConfigSource.DYNAMIC_DEFAULT_BROKER)
    undone = [AlterConfig("log.cleaner.threads", op=AlterOp.DELETE)]
    assert stage.admin.incremental_alter_configs({default: undone})[default].is_ok


def offsets_of_a_group_without_members_are_kept(stage: AdminStage) -> None:
    admin, topic, group = stage.admin, stage.topic(2), stage.name("group")
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    committed = admin.alter_group_offsets(
        group, {first: 3, second: OffsetAndMetadata(5, 0, "by hand")}
    )
    assert all(result.is_ok for result in committed.values())
    assert admin.list_group_offsets(group) == {
        first: OffsetAndMetadata(3),
        second: OffsetAndMetadata(5, 0, "by hand"),
    }
    absent = TopicPartition(topic, 9)
    some = admin.list_group_offsets(group, [first, absent], require_stable=True)
    assert some == {first: OffsetAndMetadata(3), absent: None}
    listed = {row.group_id: row for row in admin.list_groups()}
    assert listed[group].is_simple
    assert listed[group].state == "Empty"
    assert group in {row.group_id for row in admin.list_groups(states=["Empty"])}
    assert group not in {row.group_id for row in admin.list_groups(types=["consumer"])}
    described = admin.describe_groups([group])[group].get()
    assert (described.type, described.state, described.members) == ("classic", "Empty", ())
    assert described.coordinator in admin.describe_cluster().nodes

    assert admin.delete_group_offsets(group, [first])[first].is_ok
    assert admin.list_group_offsets(group) == {second: OffsetAndMetadata(5, 0, "by hand")}
    removed = admin.delete_groups([group, "no-such-group"])
    assert removed[group].is_ok
    assert code_of(removed["no-such-group"]) == ErrorCode.GROUP_ID_NOT_FOUND
    assert code_of(admin.describe_groups([group])[group]) == ErrorCode.GROUP_ID_NOT_FOUND


def a_group_with_members_is_described_and_keeps_its_offsets(stage: AdminStage) -> None:
    admin, topic, group = stage.admin, stage.topic(2), stage.name("group")
    partitions = {TopicPartition(topic, 0), TopicPartition(topic, 1)}
    instance = {"group.instance.id": "static-one"}
    with stage.member(group, topic, "classic", **instance):
        described = admin.describe_groups([group])[group].get()
        assert (described.type, described.state) == ("classic", "Stable")
        (member,) = described.members
        assert set(member.assignment) == partitions
        assert member.client_id == "the-member"
        assert member.group_instance_id == "static-one"
        assert member.subscribed_topics == (topic,)
        refused = admin.alter_group_offsets(group, {TopicPartition(topic, 0): 1})
        assert isinstance(refused[TopicPartition(topic, 0)].error, CommitRefused)
        assert code_of(admin.delete_groups([group])[group]) == ErrorCode.NON_EMPTY_GROUP
        assert not admin.remove_group_members(group, ["nobody"])["nobody"].is_ok
        assert admin.remove_group_members(group, reason="story")["static-one"].is_ok


def a_group_of_the_consumer_protocol_is_described(stage: AdminStage) -> None:
    admin, topic, group = stage.admin, stage.topic(2), stage.name("group")
    partitions = {TopicPartition(topic, 0), TopicPartition(topic, 1)}
    with stage.member(group, topic, "consumer"):

        def has_all() -> bool:
            members = admin.describe_groups([group])[group].get().members
            return len(members) == 1 and set(members[0].assignment) == partitions

        eventually(has_all)
        described = admin.describe_groups([group])[group].get()
        assert (described.type, described.state) == ("consumer", "Stable")
        (member,) = described.members
        assert set(member.target_assignment or ()) == partitions
        assert member.subscribed_topics == (topic,)
        assert not member.uses_classic_protocol
        assert described.group_epoch is not None
        listed = {row.group_id: row for row in admin.list_groups(types=["consumer"])}
        assert listed[group].type.lower() == "consumer"


def transactions_are_watched_fenced_and_aborted(stage: AdminStage) -> None:
    admin, topic, name = stage.admin, stage.topic(), stage.name("txn")
    partition = TopicPartition(topic, 0)
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": stage.bootstrap, "transactional.id": name}
    )
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"open")
    producer.flush(60)
    described = admin.describe_transactions([name, "no-such-id"])
    row = described[name].get()
    assert (row.state, row.partitions) == ("Ongoing", (partition,))
    assert code_of(described["no-such-id"]) == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert name in {each.transactional_id for each in admin.list_transactions(states=["Ongoing"])}
    assert name in {
        each.transactional_id for each in admin.list_transactions(producer_ids=[row.producer_id])
    }
    (active,) = admin.describe_producers([partition])[partition].get()
    assert (active.producer_id, active.txn_start_offset) == (row.producer_id, 0)

    fenced = admin.fence_producers([name])[name].get()
    assert fenced.producer_epoch > row.producer_epoch or fenced.producer_id != row.producer_id
    eventually(
        lambda: admin.describe_producers([partition])[partition].get()[0].txn_start_offset == -1
    )


def a_transaction_is_aborted_past_its_coordinator(stage: AdminStage) -> None:
    admin, topic, name = stage.admin, stage.topic(), stage.name("txn")
    partition = TopicPartition(topic, 0)
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": stage.bootstrap, "transactional.id": name}
    )
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"open")
    producer.flush(60)
    (active,) = admin.describe_producers([partition])[partition].get()
    admin.abort_transaction(
        partition,
        producer_id=active.producer_id,
        producer_epoch=active.producer_epoch,
        coordinator_epoch=active.coordinator_epoch,
    )
    stable = admin.list_offsets({partition: LATEST}, isolation_level="read_committed")
    assert stable[partition].get().offset == stage.latest(partition)


def the_cluster_tells_of_itself(stage: AdminStage) -> None:
    admin, topic = stage.admin, stage.topic()
    cluster = admin.describe_cluster(include_authorized_operations=True)
    assert cluster.cluster_id
    assert cluster.controller in cluster.nodes
    assert cluster.authorized_operations
    (node,) = cluster.nodes
    partition = TopicPartition(topic, 0)
    held: list[str] = []

    def is_there() -> bool:
        """Kafka makes the log some time after the topic."""
        directories.update(admin.describe_log_dirs()[node.id].get())
        held[:] = [path for path, row in directories.items() if partition in row.replicas]
        return bool(held)

    directories: dict[str, LogDirDescription] = {}
    eventually(is_there)
    assert len(held) == 1
    assert directories[held[0]].error is None
    assert directories[held[0]].total_bytes
    replica = TopicPartitionReplica(topic, 0, node.id)
    assert admin.alter_replica_log_dirs({replica: held[0]})[replica].is_ok
    assert (
        code_of(admin.alter_replica_log_dirs({replica: "/no/such/directory"})[replica])
        == ErrorCode.LOG_DIR_NOT_FOUND
    )
    assert admin.describe_features().supported


def leaders_and_replicas_of_one_broker_stay(stage: AdminStage) -> None:
    admin, topic = stage.admin, stage.topic()
    partition, nowhere = TopicPartition(topic, 0), TopicPartition("none", 0)
    (node,) = admin.describe_cluster().nodes
    elected = admin.elect_leaders([partition, nowhere])
    assert code_of(elected[partition]) == ErrorCode.ELECTION_NOT_NEEDED
    assert isinstance(elected[nowhere].error, UnknownTopic)
    assert admin.elect_leaders() == {}
    moved = admin.alter_partition_reassignments({partition: [node.id], nowhere: [node.id]})
    assert moved[partition].is_ok
    assert isinstance(moved[nowhere].error, UnknownTopic)
    eventually(lambda: not admin.list_partition_reassignments([partition]))
    assert (
        code_of(admin.alter_partition_reassignments({partition: None})[partition])
        == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    )


STORIES: tuple[Callable[[AdminStage], None], ...] = (
    topics_are_made_listed_described_and_removed,
    a_trial_creates_nothing,
    a_topic_grows,
    offsets_are_found_and_records_deleted,
    configurations_are_read_and_changed,
    a_broker_is_asked_for_its_own_configuration,
    offsets_of_a_group_without_members_are_kept,
    a_group_with_members_is_described_and_keeps_its_offsets,
    a_group_of_the_consumer_protocol_is_described,
    transactions_are_watched_fenced_and_aborted,
    a_transaction_is_aborted_past_its_coordinator,
    the_cluster_tells_of_itself,
    leaders_and_replicas_of_one_broker_stay,
)
