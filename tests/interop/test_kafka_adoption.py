"""Directories of Apache Kafka 3.9 and 4.3 are adopted by tidelog and given back: nothing is lost.

Kafka tells the adoption story and is stopped. On one copy of its directory Kafka itself deletes and
compacts what is due; on another one tidelog must come to the same records, describe the topics as
Kafka did, and go on writing. Then Kafka opens tidelog's copy and reads all of it.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from bench.maven import KAFKA_VERSION, NEWEST_KAFKA_VERSION
from bench.peers import BrokerProcess as KafkaProcess
from bench.peers import Peer
from tests.interop.adoptable_kafka import (
    KEEPER,
    OWN,
    OverData,
    OverZooKeeper,
    adoptable_kafka_or_skip,
    served,
)
from tests.support.adoption_story import (
    DAY_MS,
    INTERNAL,
    STATIC,
    TOPICS,
    Described,
    describe,
    read,
    servers,
    tell,
)
from tests.support.broker_process import BrokerProcess
from tests.support.eventually import eventually
from tests.support.kafka_data import problems
from tests.support.zookeeper import require_zookeeper, start_fresh

Records = dict[str, list[list[Any]]]
SETTLE_S = 12
SETTLE_TIMEOUT_S = 60
HASTE = {
    **STATIC,
    "broker.id": "1",
    "log.retention.check.interval.ms": "300",
    "log.segment.delete.delay.ms": "60000",
}
# Kafka 4 has other defaults of these, and tidelog has those of 3.9.
OTHER_DEFAULTS = {"message.timestamp.after.max.ms"}


def told(kafka: Peer, data: Path) -> tuple[Described, Records]:
    """The story, as of yesterday."""
    with served(KafkaProcess(kafka, data, OWN)) as bootstrap:
        tell(bootstrap, int(time.time() * 1000) - DAY_MS)
        described = describe(bootstrap)
        return described, read(bootstrap, described.partition_counts)


def adopted_copy(data: Path, home: Path) -> BrokerProcess:
    broker = BrokerProcess(home, HASTE)
    shutil.copytree(data, broker.data_directory)
    return broker


def goes_on(bootstrap: str) -> None:
    """A record for each topic that has no bound of size, a transaction of a known producer, and
    the commit of a known group is there.
    """
    producer = Producer({**servers(bootstrap), "enable.idempotence": True})
    for topic in TOPICS.keys() - {"by-size"}:
        producer.produce(topic, key="later", value="later", partition=0)
    assert producer.flush(60) == 0
    till = Producer({**servers(bootstrap), "transactional.id": "till"})
    till.init_transactions(60)
    till.begin_transaction()
    till.produce("for-ever", key="paid", value="2", partition=0)
    till.commit_transaction(60)
    consumer = Consumer({**servers(bootstrap), "group.id": "readers"})
    (committed,) = consumer.committed([TopicPartition("wide", 2)], 60)
    assert committed.offset == 4
    consumer.close()


@pytest.mark.parametrize("version", [KAFKA_VERSION, NEWEST_KAFKA_VERSION])
def test_a_kraft_directory_is_adopted_and_given_back(version: str, tmp_path: Path) -> None:
    kafka = adoptable_kafka_or_skip(version)
    data = tmp_path / "kafka"
    described, _ = told(kafka, data)
    kept_data = Path(shutil.copytree(data, tmp_path / "kept"))
    with served(KafkaProcess(OverData(kafka), kept_data, KEEPER)) as bootstrap:
        time.sleep(SETTLE_S)
        kept = read(bootstrap, described.partition_counts)

    with adopted_copy(data, tmp_path / "tidelog") as broker:
        ours = describe(broker.bootstrap)
        assert ours.topic_ids == described.topic_ids
        assert ours.partition_counts == described.partition_counts
        for topic, theirs in described.configs.items():
            keys = theirs.keys() & ours.configs[topic].keys() - OTHER_DEFAULTS
            assert {k: ours.configs[topic][k] for k in keys} == {k: theirs[k] for k in keys}
        eventually(lambda: read(broker.bootstrap, ours.partition_counts) == kept, SETTLE_TIMEOUT_S)
        goes_on(broker.bootstrap)
        before = read(broker.bootstrap, ours.partition_counts)
        assert broker.stop() == 0
    assert problems(broker.data_directory) == []

    # Deleting and compacting stand still, so that Kafka has the same to read.
    with served(KafkaProcess(OverData(kafka), broker.data_directory, LAZY)) as bootstrap:
        assert read(bootstrap, described.partition_counts) == before
        assert describe(bootstrap).topic_ids == described.topic_ids
        goes_on(bootstrap)
        after = read(bootstrap, described.partition_counts)
    assert list(broker.data_directory.glob("*-stray")) == []

    # And back: Kafka has written since, so its word counts again.
    with BrokerProcess(tmp_path / "tidelog", {**HASTE, **QUIET}) as broker:
        assert read(broker.bootstrap, described.partition_counts) == after
        assert broker.stop() == 0


QUIET = {"log.cleaner.enable": "false", "log.retention.check.interval.ms": "3600000"}
LAZY = {**OWN, **QUIET}


def test_a_directory_of_kafka_over_zookeeper_is_adopted_and_given_back(tmp_path: Path) -> None:
    require_zookeeper()
    kafka = adoptable_kafka_or_skip(KAFKA_VERSION)
    zookeeper = start_fresh(tmp_path)
    try:
        peer = OverZooKeeper(kafka, zookeeper.address)
        data = tmp_path / "kafka"
        described, records = told(peer, data)

        with adopted_copy(data, tmp_path / "tidelog") as broker:
            ours = describe(broker.bootstrap)
            assert ours.topic_ids == described.topic_ids
            for topic in TOPICS:
                rows = ours.configs[topic].items()
                overrides = {k: row[0] for k, row in rows if row[1] == "DYNAMIC_TOPIC_CONFIG"}
                assert overrides == {
                    "cleanup.policy": "delete",
                    "retention.ms": "-1",
                    "retention.bytes": "-1",
                }
            for topic in INTERNAL:
                assert ours.configs[topic]["cleanup.policy"][0] == "compact"
            time.sleep(2)  # several checks of retention
            found = read(broker.bootstrap, ours.partition_counts)
            # Kafka may have compacted after it was read
            assert {k: v for k, v in found.items() if k not in compacted(described)} == {
                k: v for k, v in records.items() if k not in compacted(described)
            }
            goes_on(broker.bootstrap)
            before = read(broker.bootstrap, ours.partition_counts)
            assert broker.stop() == 0

        with served(KafkaProcess(peer, broker.data_directory, LAZY)) as bootstrap:
            assert read(bootstrap, described.partition_counts) == before
    finally:
        zookeeper.kill()


def compacted(described: Described) -> set[str]:
    return {
        f"{topic}-{number}"
        for topic, rows in described.configs.items()
        if "compact" in rows["cleanup.policy"][0]
        for number in range(described.partition_counts[topic])
    }
