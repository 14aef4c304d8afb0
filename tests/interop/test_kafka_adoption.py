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
from confluent_kafka.admin import AdminClient, NewTopic

from bench.maven import KAFKA_VERSION, NEWEST_KAFKA_VERSION
from bench.peers import BrokerProcess as KafkaProcess
from bench.peers import Peer
from tests.interop.adoptable_kafka import (
    KEEPER,
    OWN,
    OneOfTwo,
    OverData,
    OverZooKeeper,
    adoptable_kafka_or_skip,
    served,
)
from tests.support.adoption_story import (
    DAY_MS,
    INTERNAL,
    OLD_MS,
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
from tidelog.tools.free_ports import free_port

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


def test_one_broker_of_two_is_adopted_as_far_as_its_data_goes(tmp_path: Path) -> None:
    kafka = adoptable_kafka_or_skip(KAFKA_VERSION)
    controller_port = free_port()
    first, second = (
        KafkaProcess(OneOfTwo(kafka, number, controller_port), tmp_path / f"node-{number}", OWN)
        for number in (1, 2)
    )
    with served(first) as bootstrap, served(second):
        admin = AdminClient(servers(bootstrap))
        eventually(lambda: len(admin.list_topics(timeout=60).brokers) == 2, 60)
        told_to_two(bootstrap)
        described = describe(bootstrap)
        eventually(lambda: in_sync(admin), 60)
    taker = BrokerProcess(tmp_path / "tidelog", {**HASTE, "broker.id": "2"})
    shutil.copytree(second.data, taker.data_directory)
    with taker as broker:
        topics = AdminClient(servers(broker.bootstrap)).list_topics(timeout=60).topics
        leaders = {
            name: [topics[name].partitions[n].leader for n in sorted(topics[name].partitions)]
            for name in ("spread", "twice")
        }
        assert leaders == {"spread": [-1, 2, -1, 2], "twice": [2, 2]}
        ours = describe(broker.bootstrap)
        for name in leaders:
            assert ours.topic_ids[name] == described.topic_ids[name]
            assert ours.configs[name]["retention.ms"] == described.configs[name]["retention.ms"]
        consumer = Consumer({**servers(broker.bootstrap), "group.id": "g"})
        for name, number in (("spread", 1), ("spread", 3), ("twice", 0), ("twice", 1)):
            offsets = consumer.get_watermark_offsets(TopicPartition(name, number), 60)
            assert offsets == (0, 5)
        consumer.close()
        assert "spread: partitions [0, 2] have no leader" in broker.log_text()
        assert broker.stop() == 0
    assert not list(taker.data_directory.glob("spread-0*"))


def told_to_two(bootstrap: str) -> None:
    """Old records in partitions of one broker, of the other, and of both."""
    admin = AdminClient(servers(bootstrap))
    kept = {"retention.ms": "-1"}
    new = [
        NewTopic("spread", 4, replica_assignment=[[1], [2], [1], [2]], config=kept),
        NewTopic("twice", 2, replica_assignment=[[1, 2], [2, 1]], config=kept),
    ]
    for future in admin.create_topics(new).values():
        future.result(60)
    producer = Producer({**servers(bootstrap), "acks": "all"})
    for topic, count in (("spread", 4), ("twice", 2)):
        for row in range(5 * count):
            timestamp = int(time.time() * 1000) - OLD_MS
            producer.produce(topic, value=str(row), partition=row % count, timestamp=timestamp)
    assert producer.flush(60) == 0
    Producer({**servers(bootstrap), "transactional.id": "t"}).init_transactions(60)
    consumer = Consumer({**servers(bootstrap), "group.id": "readers"})
    consumer.commit(offsets=[TopicPartition("twice", 1, 3)], asynchronous=False)
    consumer.close()


def in_sync(admin: AdminClient) -> bool:
    partitions = admin.list_topics("twice", timeout=60).topics["twice"].partitions.values()
    return all(len(each.isrs) == 2 for each in partitions)


def compacted(described: Described) -> set[str]:
    return {
        f"{topic}-{number}"
        for topic, rows in described.configs.items()
        if "compact" in rows["cleanup.policy"][0]
        for number in range(described.partition_counts[topic])
    }
