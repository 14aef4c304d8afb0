"""Transactions of tidelog's own client and of foreign ones.

Commits, aborts, fencing, time, and killed brokers.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import aiokafka
import aiokafka.errors
import kafka
import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from tests.conftest import SharedBroker, StartBroker
from tests.support.broker_process import BrokerProcess
from tests.support.eventually import eventually
from tests.support.raw_client import RawClient, create_topic
from tests.support.transactional_clients import (
    TRANSACTIONAL_CLIENTS,
    ConfluentTransactions,
    OpenClient,
    TidelogAsyncTransactions,
    TidelogTransactions,
    TransactionalClient,
    TransactionFailed,
)

WITHIN_S = 30.0
SMALL = {"offsets.topic.num.partitions": "3", "transaction.state.log.num.partitions": "3"}


def make_topic(bootstrap: str, name: str, partitions: int = 1) -> None:
    with RawClient(bootstrap) as client:
        create_topic(client, name, partitions)


class Opener:
    """Opens producers of one library; the end of the test closes them."""

    def __init__(self, open_one: OpenClient) -> None:
        self._open = open_one
        self.opened: list[TransactionalClient] = []

    def __call__(
        self, bootstrap: str, transactional_id: str, timeout_ms: int = 60_000
    ) -> TransactionalClient:
        self.opened.append(self._open(bootstrap, transactional_id, timeout_ms))
        return self.opened[-1]

    def close(self) -> None:
        for producer in self.opened:
            producer.close()


@pytest.fixture(params=TRANSACTIONAL_CLIENTS, ids=lambda library: library.__name__)
def producer_of(request: pytest.FixtureRequest) -> Iterator[Opener]:
    opener = Opener(request.param)
    yield opener
    opener.close()


def read(
    bootstrap: str, topic: str, partition: int = 0, *, isolation: str = "read_committed"
) -> list[bytes]:
    """Everything up to the end that this isolation level may read."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
        }
    )
    values: list[bytes] = []
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        deadline = time.monotonic() + WITHIN_S
        while time.monotonic() < deadline:
            message = consumer.poll(0.5)
            if message is None:
                continue
            error = message.error()
            if error is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    return values
                continue
            values.append(message.value() or b"")
        raise AssertionError(f"no end of {topic} in {WITHIN_S} s, {len(values)} records")
    finally:
        consumer.close()


def with_confluent(bootstrap: str, topic: str) -> None:
    write_with(ConfluentTransactions(bootstrap, f"confluent-{topic}", 60_000), topic)


def with_tidelog(bootstrap: str, topic: str) -> None:
    write_with(TidelogTransactions(bootstrap, f"tidelog-{topic}", 60_000), topic)


def with_tidelog_async(bootstrap: str, topic: str) -> None:
    write_with(TidelogAsyncTransactions(bootstrap, f"tidelog-async-{topic}", 60_000), topic)


def write_with(producer: TransactionalClient, topic: str) -> None:
    for number in range(4):
        producer.begin()
        for partition in (0, 1):
            for row in range(3):
                producer.send(topic, b"%d-%d" % (number, row), partition)
        (producer.abort if number % 2 else producer.commit)()
    producer.close()


def with_kafka_python(bootstrap: str, topic: str) -> None:
    producer = kafka.KafkaProducer(
        bootstrap_servers=bootstrap, transactional_id=f"kafka-python-{topic}"
    )
    producer.init_transactions()
    for number in range(4):
        producer.begin_transaction()
        for partition in (0, 1):
            for row in range(3):
                producer.send(topic, b"%d-%d" % (number, row), partition=partition)
        producer.flush()
        (producer.abort_transaction if number % 2 else producer.commit_transaction)()
    producer.close()


def with_aiokafka(bootstrap: str, topic: str) -> None:
    async def story() -> None:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap, transactional_id=f"aiokafka-{topic}"
        )
        await producer.start()
        try:
            for number in range(4):
                await producer.begin_transaction()
                for partition in (0, 1):
                    for row in range(3):
                        value = b"%d-%d" % (number, row)
                        await producer.send_and_wait(topic, value, partition=partition)
                if number % 2:
                    await producer.abort_transaction()
                else:
                    await producer.commit_transaction()
        finally:
            await producer.stop()

    asyncio.run(story())


@pytest.mark.parametrize(
    "write",
    [with_confluent, with_kafka_python, with_aiokafka, with_tidelog, with_tidelog_async],
)
def test_committed_transactions_are_read_and_aborted_ones_are_not(
    broker: SharedBroker, topic_name: str, write: Callable[[str, str], None]
) -> None:
    topic = topic_name
    make_topic(broker.bootstrap, topic, 2)
    write(broker.bootstrap, topic)
    committed = [b"%d-%d" % (number, row) for number in (0, 2) for row in range(3)]
    for partition in (0, 1):
        eventually(lambda: read(broker.bootstrap, topic, partition) == committed)  # noqa: B023
        seen = read(broker.bootstrap, topic, partition, isolation="read_uncommitted")
        assert set(committed) <= set(seen)


def test_second_instance_fences_the_first(
    broker: SharedBroker, topic_name: str, producer_of: Opener
) -> None:
    topic = topic_name
    make_topic(broker.bootstrap, topic)
    first = producer_of(broker.bootstrap, topic)
    first.begin()
    first.send(topic, b"lost")
    first.flush()
    second = producer_of(broker.bootstrap, topic)
    second.begin()
    second.send(topic, b"kept")
    second.commit()
    with pytest.raises(TransactionFailed) as fenced:
        first.commit()
    assert fenced.value.is_fenced
    assert read(broker.bootstrap, topic) == [b"kept"]


def test_hanging_transaction_is_aborted_at_its_timeout(
    start_broker: StartBroker, producer_of: Opener
) -> None:
    broker = start_broker(
        SMALL | {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"}
    )
    make_topic(broker.bootstrap, "t")
    hanging = producer_of(broker.bootstrap, "hanging", 8_000)
    hanging.begin()
    hanging.send("t", b"lost")
    hanging.flush()
    plain = Producer({"bootstrap.servers": broker.bootstrap})
    plain.produce("t", b"behind it")
    assert plain.flush(WITHIN_S) == 0
    assert read(broker.bootstrap, "t") == []
    eventually(lambda: read(broker.bootstrap, "t") == [b"behind it"])
    with pytest.raises(TransactionFailed):
        hanging.commit()


def test_offsets_are_committed_with_the_transaction_or_not_at_all(
    broker: SharedBroker, topic_name: str, producer_of: Opener
) -> None:
    topic = topic_name
    make_topic(broker.bootstrap, topic)
    producer = producer_of(broker.bootstrap, topic)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": topic})
    place = TopicPartition(topic, 0)
    for offset, commits in ((5, True), (9, False)):
        producer.begin()
        producer.send(topic, b"v")
        producer.send_offset(topic, topic, offset)
        (producer.commit if commits else producer.abort)()
        assert consumer.committed([place], WITHIN_S)[0].offset == 5
    consumer.close()


def test_transactions_are_described_to_tools(
    broker: SharedBroker, topic_name: str, producer_of: Opener
) -> None:
    topic = topic_name
    make_topic(broker.bootstrap, topic)
    producer = producer_of(broker.bootstrap, topic)
    producer.begin()
    producer.send(topic, b"v")
    producer.flush()
    admin = kafka.KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    try:
        described = admin.describe_transactions([topic])
        assert "Ongoing" in str(described)
    finally:
        admin.close()
        producer.abort()


def fed_broker(start_broker: StartBroker, values: list[bytes]) -> BrokerProcess:
    broker: BrokerProcess = start_broker(SMALL)
    for name in ("in", "out"):
        make_topic(broker.bootstrap, name)
    feed = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    for value in values:
        feed.produce("in", value)
    assert feed.flush(WITHIN_S) == 0
    return broker


def test_one_producer_goes_on_through_kills_of_the_broker(
    start_broker: StartBroker, producer_of: Opener
) -> None:
    """Killed within the requests of a transaction, which the client repeats by itself."""
    values = [b"%04d" % number for number in range(200)]
    broker = fed_broker(start_broker, values)
    producer = producer_of(broker.bootstrap, "copying")
    kept: list[bytes] = []

    def copy(start: int) -> None:
        values_now = values[start : start + 20]
        producer.begin()
        for value in values_now:
            producer.send("out", value)
        try:
            producer.send_offset("copying", "in", start + 20)
            producer.commit()
        except TransactionFailed as error:
            if not error.requires_abort:
                raise
            producer.abort()
            return
        kept.extend(values_now)

    with ThreadPoolExecutor(1) as worker:
        for number, start in enumerate(range(0, len(values), 20)):
            copied = worker.submit(copy, start)
            if number % 2:
                time.sleep(0.001 * number)
                broker.kill()
                broker.start()
            copied.result(60)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "copying"})
    committed = consumer.committed([TopicPartition("in", 0)], WITHIN_S)[0].offset
    consumer.close()
    eventually(lambda: read(broker.bootstrap, "out") == kept)
    assert committed == int(kept[-1]) + 1
