"""Compacted topics of a real broker, seen by an unmodified client and by another process."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from tests.conftest import StartBroker
from tests.support.broker_process import BrokerProcess
from tests.support.eventually import eventually
from tests.support.raw_client import RawClient, create_topic

CLEANER = {
    "log.cleaner.backoff.ms": "50",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.segment.delete.delay.ms": "200",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
COMPACTED = {"cleanup.policy": "compact", "segment.bytes": "20000", "delete.retention.ms": "0"}
WITHIN_S = 30.0


def read(bootstrap: str, topic: str) -> list[tuple[int, bytes, bytes | None]]:
    """(offset, key, value) of every committed record up to the end."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "check.crcs": True,
        }
    )
    found: list[tuple[int, bytes, bytes | None]] = []
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        deadline = time.monotonic() + WITHIN_S
        while time.monotonic() < deadline:
            message = consumer.poll(0.5)
            if message is None:
                continue
            error = message.error()
            if error is None:
                found.append((message.offset() or 0, message.key() or b"", message.value()))
            elif error.code() == KafkaError._PARTITION_EOF:
                return found
            else:
                raise AssertionError(error)
        raise AssertionError(f"no end of {topic}")
    finally:
        consumer.close()


def cleaned_to(broker: BrokerProcess, topic: str) -> int:
    content = (broker.data_directory / "cleaner-offset-checkpoint").read_text()
    rows = [line.split() for line in content.splitlines()[2:]]
    return max((int(offset) for name, _, offset in rows if name == topic), default=-1)


def active_offset(broker: BrokerProcess, topic: str) -> int:
    folder = broker.data_directory / f"{topic}-0"
    return max(int(path.stem) for path in folder.glob("[0-9]*.log"))


def wait_until_cleaned(broker: BrokerProcess, topic: str) -> None:
    eventually(lambda: cleaned_to(broker, topic) >= active_offset(broker, topic) > 0, WITHIN_S)


def killed(broker: BrokerProcess) -> None:
    broker.kill()
    broker.start()


def fill(
    bootstrap: str, topic: str, count: int, keys: int, seed: int, **options: Any
) -> dict[bytes, tuple[int, bytes | None]]:
    """Random writes and deletes; of each key the last (offset, value)."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 5, "batch.num.messages": 20, **options}
    )
    last: dict[bytes, tuple[int, bytes | None]] = {}

    def delivered(error: Any, message: Any) -> None:
        assert error is None, error
        last[message.key()] = (message.offset(), message.value())

    chance = random.Random(seed)
    for number in range(count):
        key = b"key-%d" % chance.randrange(keys)
        value = None if chance.random() < 0.1 else b"%d " % number * 10
        producer.produce(topic, value, key, on_delivery=delivered)
        producer.poll(0)
    producer.flush(WITHIN_S)
    return last


def same_state(
    found: list[tuple[int, bytes, bytes | None]], last: dict[bytes, tuple[int, bytes | None]]
) -> None:
    seen = {key: (offset, value) for offset, key, value in found}
    for key, (offset, value) in last.items():
        if value is not None:
            assert seen[key] == (offset, value)
        else:
            assert seen.get(key, (offset, None)) == (offset, None)
    assert [offset for offset, _, _ in found] == sorted({offset for offset, _, _ in found})


def test_a_client_finds_the_last_value_of_every_key_before_and_after(
    start_broker: StartBroker,
) -> None:
    broker = start_broker(CLEANER)
    with RawClient(broker.bootstrap) as client:
        create_topic(client, "state", configs=COMPACTED)
    last: dict[bytes, tuple[int, bytes | None]] = {}
    for seed, codec in enumerate(["none", "gzip", "snappy", "lz4", "zstd"]):
        last |= fill(broker.bootstrap, "state", 2000, 50, seed, **{"compression.type": codec})
        same_state(read(broker.bootstrap, "state"), last)
    wait_until_cleaned(broker, "state")
    found = read(broker.bootstrap, "state")
    same_state(found, last)
    assert len(found) < 5000
    assert "cannot be cleaned" not in broker.log_text()
    broker.kill()
    broker.start()
    same_state(read(broker.bootstrap, "state"), last)
    broker.restart()
    same_state(read(broker.bootstrap, "state"), last)


def test_readers_and_writers_meet_no_error_while_it_cleans(start_broker: StartBroker) -> None:
    broker = start_broker(CLEANER)
    with RawClient(broker.bootstrap) as client:
        create_topic(client, "busy", configs={**COMPACTED, "segment.bytes": "5000"})
    last: dict[bytes, tuple[int, bytes | None]] = {}
    for seed in range(8):
        last |= fill(broker.bootstrap, "busy", 400, 20, seed)
        same_state(read(broker.bootstrap, "busy"), last)
    wait_until_cleaned(broker, "busy")
    same_state(read(broker.bootstrap, "busy"), last)


def test_aborted_transactions_stay_invisible_and_committed_ones_stay(
    start_broker: StartBroker,
) -> None:
    broker = start_broker(CLEANER)
    with RawClient(broker.bootstrap) as client:
        create_topic(client, "txns", configs={**COMPACTED, "segment.bytes": "1000"})
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": "t", "linger.ms": 0}
    )
    producer.init_transactions(WITHIN_S)
    for number in range(40):
        producer.begin_transaction()
        for key in range(3):
            producer.produce("txns", b"%d" % number, b"%d" % key)
        if number % 2:
            producer.abort_transaction(WITHIN_S)
        else:
            producer.commit_transaction(WITHIN_S)
    fill(broker.bootstrap, "txns", 30, 1, 1)
    wait_until_cleaned(broker, "txns")
    for restart in (lambda: None, broker.restart, lambda: killed(broker)):
        restart()
        values = {key: value for _, key, value in read(broker.bootstrap, "txns")}
        assert {key: values[key] for key in (b"0", b"1", b"2")} == dict.fromkeys(
            (b"0", b"1", b"2"), b"38"
        )


def test_committed_offsets_and_transactions_load_from_cleaned_topics(
    start_broker: StartBroker,
) -> None:
    broker = start_broker(
        {
            **CLEANER,
            "offsets.topic.segment.bytes": "5000",
            "transaction.state.log.segment.bytes": "5000",
        }
    )
    with RawClient(broker.bootstrap) as client:
        create_topic(client, "input")
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "mover"})
    producer.init_transactions(WITHIN_S)
    commit = committer(broker.bootstrap)
    for number in range(150):
        commit(number)
        producer.begin_transaction()
        producer.produce("input", b"%d" % number)
        producer.commit_transaction(WITHIN_S)
    for topic in ("__consumer_offsets", "__transaction_state"):
        wait_until_cleaned(broker, topic)
    for restart in (broker.restart, lambda: killed(broker)):
        restart()
        assert committer(broker.bootstrap)(None) == 149
        again = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "mover"})
        again.init_transactions(WITHIN_S)
        again.begin_transaction()
        again.produce("input", b"again")
        again.commit_transaction(WITHIN_S)


def committer(bootstrap: str) -> Callable[[int | None], int]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "g", "enable.auto.commit": False}
    )

    def commit(offset: int | None) -> int:
        if offset is not None:
            consumer.commit(offsets=[TopicPartition("input", 0, offset)], asynchronous=False)
        return int(consumer.committed([TopicPartition("input", 0)], WITHIN_S)[0].offset)

    return commit
