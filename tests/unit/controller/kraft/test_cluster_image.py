"""What the records of a KRaft metadata log lead to."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.kraft_log import (
    KraftLogFolder,
    acl_record,
    broker_config,
    config,
    framed,
    quota_record,
    raw_record,
    scram_record,
    topic,
)
from tidelog.acls import AclBinding, AclOperation, ResourceType
from tidelog.controller.kraft.metadata_log import UnreadableMetadata
from tidelog.protocol.message import Message
from tidelog.protocol.messages.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveAccessControlEntryRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
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


def test_delegation_tokens_are_counted(log: KraftLogFolder) -> None:
    log.append(raw_record(10, 0, b"x"), raw_record(10, 0, b"y"), raw_record(26, 0, b"x"))
    assert log.image().tokens == 1


def test_an_access_control_entry_that_is_removed_is_gone(log: KraftLogFolder) -> None:
    kept = AclBinding(ResourceType.TOPIC, "a", "User:ann", AclOperation.READ)
    log.append(framed(acl_record(A, kept)), framed(acl_record(B, kept)))
    log.append(framed(RemoveAccessControlEntryRecord(id=B)))
    assert log.image().security.acls == {A: kept}


def test_a_user_has_the_last_credential_of_each_mechanism(log: KraftLogFolder) -> None:
    first, second = (scram_record("ann@a/b", 1, iterations=each) for each in (4096, 8192))
    other = scram_record("ann@a/b", 2, iterations=4096)
    log.append(framed(first), framed(other), framed(second))
    log.append(framed(RemoveUserScramCredentialRecord(name="ann@a/b", mechanism=2)))
    assert log.image().security.credentials == {
        "ann%40a%2Fb": {
            "SCRAM-SHA-256": "salt=c2FsdA==,stored_key=c3RvcmVk,server_key=c2VydmVy,iterations=8192"
        }
    }


def test_quotas_have_the_names_of_the_store(log: KraftLogFolder) -> None:
    log.append(
        framed(quota_record({"user": "ann b"}, "producer_byte_rate", 1024.0)),
        framed(quota_record({"user": None}, "request_percentage", 12.5)),
        framed(quota_record({"client-id": "c", "user": "ann b"}, "consumer_byte_rate", 7.0)),
        framed(quota_record({"client-id": None}, "controller_mutation_rate", 1.5)),
        framed(quota_record({"ip": "10.0.0.1"}, "connection_creation_rate", 9.0)),
        framed(quota_record({"ip": "10.0.0.2"}, "connection_creation_rate", 9.0)),
        framed(quota_record({"ip": "10.0.0.2"}, "connection_creation_rate", 0.0, remove=True)),
    )
    assert log.image().security.quotas == {
        ("users", "ann%20b"): {"producer_byte_rate": "1024"},
        ("users", "<default>"): {"request_percentage": "12.5"},
        ("users", "ann%20b/clients/c"): {"consumer_byte_rate": "7"},
        ("clients", "<default>"): {"controller_mutation_rate": "1.5"},
        ("ips", "10.0.0.1"): {"connection_creation_rate": "9"},
        ("ips", "10.0.0.2"): {},
    }


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (RemoveAccessControlEntryRecord(id=A), "an access control entry that is not there"),
        (RemoveUserScramCredentialRecord(name="a", mechanism=1), "a SCRAM credential that is not"),
        (scram_record("a", 9), "9 is no SCRAM mechanism"),
        (quota_record({"group": "g"}, "producer_byte_rate", 1.0), "a quota of group"),
    ],
)
def test_access_that_is_not_understood_is_refused(
    log: KraftLogFolder, record: Message, why: str
) -> None:
    log.append(framed(record))
    with pytest.raises(UnreadableMetadata, match=why):
        log.image()


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
