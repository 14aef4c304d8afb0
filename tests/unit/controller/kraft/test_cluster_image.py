"""What the records of a KRaft metadata log lead to."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.kraft_log import (
    KraftLogFolder,
    broker_config,
    config,
    framed,
    raw_record,
    topic,
)
from tidelog.controller.kraft.metadata_log import UnreadableMetadata
from tidelog.protocol.messages.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    ZkMigrationStateRecord,
)
from tidelog.types import Uuid

A, B, HOME, AWAY = (Uuid(bytes([number]) * 16) for number in (1, 2, 8, 9))


@pytest.fixture
def log(tmp_path: Path) -> KraftLogFolder:
    return KraftLogFolder(tmp_path)


def test_a_config_that_is_removed_is_gone(log: KraftLogFolder) -> None:
    log.append(*topic("a", A, retention_ms="1", segment_bytes="2000000"))
    log.append(config("a", "retention.ms", None), config("a", "segment.bytes", "3000000"))
    assert log.image().topic_configs == {"a": {"segment.bytes": "3000000"}}


def test_a_deleted_topic_takes_its_configs_along(log: KraftLogFolder) -> None:
    log.append(*topic("a", A, retention_ms="1"), framed(RemoveTopicRecord(topic_id=A)))
    log.append(*topic("a", B))
    image = log.image()
    assert list(image.topics) == [B]
    assert image.topic_configs == {}


@pytest.mark.parametrize("version", [0, 1, 2])
def test_every_version_of_a_partition_is_read(log: KraftLogFolder, version: int) -> None:
    log.append(*topic("a", A))
    directories = [HOME, AWAY] if version else []
    partition = PartitionRecord(
        partition_id=1, topic_id=A, replicas=[1, 2], isr=[1], directories=directories
    )
    change = PartitionChangeRecord(partition_id=1, topic_id=A, isr=[2], leader=2)
    log.append(framed(partition, version), framed(change, version))
    read = log.image().topics[A].partitions[1]
    assert (read.replicas, read.isr, read.leader_epoch) == ([1, 2], [2], 0)
    assert read.directory_of(2) == (AWAY if version else None)


def test_a_change_keeps_what_it_does_not_name(log: KraftLogFolder) -> None:
    log.append(*topic("a", A, [[1, 2]], directories=[HOME, AWAY], leader_epoch=7))
    log.append(framed(PartitionChangeRecord(partition_id=0, topic_id=A, isr=[1])))
    read = log.image().topics[A].partitions[0]
    assert (read.replicas, read.isr, read.leader_epoch) == ([1, 2], [1], 7)
    assert read.directory_of(1) == HOME


def test_records_of_a_transaction_count_when_it_ends(log: KraftLogFolder) -> None:
    log.append(framed(BeginTransactionRecord(name="bootstrap")), *topic("a", A))
    assert (log.image().topics, log.image().unfinished) == ({}, 2)
    log.append(framed(EndTransactionRecord()))
    assert (list(log.image().topics), log.image().unfinished) == ([A], 0)


def test_records_of_an_aborted_transaction_never_count(log: KraftLogFolder) -> None:
    log.append(framed(BeginTransactionRecord()), *topic("a", A))
    log.append(framed(AbortTransactionRecord(reason="a new controller")), *topic("b", B))
    assert list(log.image().topics) == [B]


def test_producer_ids_features_and_configs_of_brokers_are_read(log: KraftLogFolder) -> None:
    log.append(
        framed(ProducerIdsRecord(broker_id=1, broker_epoch=3, next_producer_id=5000)),
        framed(FeatureLevelRecord(name="metadata.version", feature_level=21)),
        broker_config("", "log.retention.ms", "-1"),
        broker_config("1", "log.cleaner.threads", "2"),
        config("group", "consumer.session.timeout.ms", "1", kind=32),
    )
    image = log.image()
    assert image.next_producer_id == 5000
    assert image.features == {"metadata.version": 21}
    assert image.broker_configs == {
        "": {"log.retention.ms": "-1"},
        "1": {"log.cleaner.threads": "2"},
    }


def test_what_is_not_taken_over_is_counted(log: KraftLogFolder) -> None:
    log.append(raw_record(18, 0, b"x"), raw_record(18, 0, b"y"), raw_record(19, 0, b"x"))
    log.append(raw_record(14, 0, b"quota"))
    assert log.image().counts == {"access control entries": 1, "client quotas": 1}


@pytest.mark.parametrize(
    "record",
    [
        framed(RemoveTopicRecord(topic_id=B)),
        framed(PartitionRecord(partition_id=0, topic_id=B)),
        framed(PartitionChangeRecord(partition_id=4, topic_id=A)),
    ],
)
def test_records_of_what_is_not_there_are_refused(log: KraftLogFolder, record: bytes) -> None:
    log.append(*topic("a", A), record)
    with pytest.raises(UnreadableMetadata, match="offset 2"):
        log.image()


def test_a_topic_that_would_leave_its_directory_is_refused(log: KraftLogFolder) -> None:
    log.append(*topic("../a", A))
    with pytest.raises(UnreadableMetadata, match="the name of a topic"):
        log.image()


def test_a_migration_that_has_not_begun_is_refused(log: KraftLogFolder) -> None:
    log.append(framed(ZkMigrationStateRecord(zk_migration_state=2)))
    with pytest.raises(UnreadableMetadata, match="topics are in ZooKeeper"):
        log.image()
    log.append(*topic("a", A), framed(ZkMigrationStateRecord(zk_migration_state=1)))
    assert list(log.image().topics) == [A]
