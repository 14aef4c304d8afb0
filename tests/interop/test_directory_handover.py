"""A data directory changes hands, from Apache Kafka 3.9 to tidelog and back: nothing is lost.

Kafka over KRaft keeps topics in its metadata log, not in the directory. So for the way to Kafka a
fresh cluster gets topics of the same names first; then tidelog's files take the place of theirs, of
which only `partition.metadata`, with the id that this cluster has given the topic, stays.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from bench.peers import ApacheKafka
from bench.peers import BrokerProcess as KafkaProcess
from tests.interop.apache_kafka import SMALL, kafka_or_skip, running, wait_for_cleaning
from tests.support.broker_process import BrokerProcess
from tests.support.handover_story import create_topics, fill, read_everything, wait_for_markers
from tests.support.kafka_data import problems
from tidelog.log.directory.checkpoints import CHECKPOINT_FILES

NO_CLEANER = {"log.cleaner.enable": "false"}  # so that two reads have the same to find
FEW_PARTITIONS = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
GIVER = {**FEW_PARTITIONS, "log.cleaner.backoff.ms": "200"}
TAKER = {**FEW_PARTITIONS, **NO_CLEANER}


@pytest.fixture(scope="module")
def kafka() -> ApacheKafka:
    return kafka_or_skip()


def bootstrap_of(broker: KafkaProcess) -> str:
    return f"127.0.0.1:{broker.port}"


def test_tidelog_serves_what_kafka_wrote(kafka: ApacheKafka, tmp_path: Path) -> None:
    with running(kafka, tmp_path / "kafka") as broker:
        fill(bootstrap_of(broker))
        wait_for_cleaning(tmp_path / "kafka")
        before = read_everything(bootstrap_of(broker))
    taker = BrokerProcess(tmp_path / "tidelog", {"broker.id": "1", **TAKER})
    shutil.copytree(tmp_path / "kafka", taker.data_directory)
    assert problems(taker.data_directory) == []

    with taker:
        after = read_everything(taker.bootstrap)
        goes_on(taker.bootstrap)
        assert taker.stop() == 0

    assert after == before
    assert problems(taker.data_directory) == []


def test_kafka_serves_what_tidelog_wrote(kafka: ApacheKafka, tmp_path: Path) -> None:
    giver = BrokerProcess(tmp_path / "tidelog", GIVER)
    with giver:
        fill(giver.bootstrap)
        wait_for_cleaning(giver.data_directory)
        before = read_everything(giver.bootstrap)
        assert giver.stop() == 0
    assert problems(giver.data_directory) == []

    with prepared(kafka, tmp_path / "kafka") as broker:
        put_in_place(giver.data_directory, tmp_path / "kafka")
        broker.start()
        after = read_everything(bootstrap_of(broker))
        goes_on(bootstrap_of(broker))
        broker.stop()

    assert after == before


def test_a_directory_goes_to_kafka_and_comes_back(kafka: ApacheKafka, tmp_path: Path) -> None:
    giver = BrokerProcess(tmp_path / "tidelog", GIVER)
    with giver:
        fill(giver.bootstrap)
        wait_for_cleaning(giver.data_directory)
        assert giver.stop() == 0
    with prepared(kafka, tmp_path / "kafka") as broker:
        put_in_place(giver.data_directory, tmp_path / "kafka")
        broker.start()
        goes_on(bootstrap_of(broker))
        before = read_everything(bootstrap_of(broker))
        broker.stop()
    taker = BrokerProcess(tmp_path / "again", {"broker.id": "1", **TAKER})
    shutil.copytree(tmp_path / "kafka", taker.data_directory)

    with taker:
        after = read_everything(taker.bootstrap)
        assert taker.stop() == 0

    assert after == before


@contextmanager
def prepared(kafka: ApacheKafka, data: Path) -> Iterator[KafkaProcess]:
    """A Kafka that has the topics of the story and its internal ones, all empty; stopped."""
    broker = KafkaProcess(kafka, data, {**SMALL, **NO_CLEANER})
    try:
        broker.start()
        create_topics(bootstrap_of(broker))
        servers = {"bootstrap.servers": bootstrap_of(broker), "log_level": 0}
        Producer({**servers, "transactional.id": "first"}).init_transactions(30)
        consumer = Consumer({**servers, "group.id": "first"})
        consumer.commit(offsets=[TopicPartition("codecs", 0, 0)], asynchronous=False)
        consumer.close()
        broker.stop()
        yield broker
    finally:
        broker.kill()


def put_in_place(source: Path, target: Path) -> None:
    for folder in source.glob("*-*/"):
        if not folder.is_dir():
            continue
        place = target / folder.name
        for path in place.iterdir():
            if path.name != "partition.metadata":
                path.unlink()
        for path in folder.iterdir():
            if path.name != "partition.metadata":
                shutil.copy(path, place)
    for name in CHECKPOINT_FILES:
        shutil.copy(source / name, target)


def goes_on(bootstrap: str) -> None:
    """New records, a transaction of a known producer, a commit of a known group."""
    servers = {"bootstrap.servers": bootstrap, "log_level": 0}
    producer = Producer({**servers, "enable.idempotence": True})
    producer.produce("codecs", key="later", value="later", partition=0)
    assert producer.flush(30) == 0
    till = Producer({**servers, "transactional.id": "till"})
    till.init_transactions(30)
    till.begin_transaction()
    till.produce("orders", value="later", partition=0)
    till.commit_transaction(30)
    wait_for_markers(bootstrap)
    consumer = Consumer({**servers, "group.id": "simple"})
    (committed,) = consumer.committed([TopicPartition("codecs", 0)], 30)
    assert (committed.offset, committed.metadata) == (7, "seven")
    consumer.close()
