"""tidelog's clients against Apache Kafka 0.10.2 and 2.8: what they have works.

What 0.10.2 lacks is said; 2.8 has idempotence and transactions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from bench.maven import OLDEST_KAFKA_VERSION, ZOOKEEPER_KAFKA_VERSION
from tests.interop.old_kafka import running_old_kafka
from tests.support.eventually import eventually
from tidelog.client import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    Admin,
    AlterConfig,
    ConfigResource,
    ConfigResourceType,
    Consumer,
    ConsumerRecord,
    NewTopic,
    OffsetAndMetadata,
    Producer,
    TopicPartition,
    UnknownTopic,
    UnsupportedByBroker,
)

CODECS = ("none", "gzip", "snappy", "lz4")


class OldKafka(NamedTuple):
    version: str
    bootstrap: str


@pytest.fixture(scope="module", params=[OLDEST_KAFKA_VERSION, ZOOKEEPER_KAFKA_VERSION])
def kafka(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OldKafka]:
    with running_old_kafka(tmp_path_factory.mktemp("old"), request.param) as address:
        yield OldKafka(request.param, address)


@pytest.fixture
def bootstrap(kafka: OldKafka) -> str:
    return kafka.bootstrap


@pytest.fixture
def oldest(kafka: OldKafka) -> None:
    if kafka.version != OLDEST_KAFKA_VERSION:
        pytest.skip("only the oldest lacks it")


@pytest.fixture
def admin(bootstrap: str) -> Iterator[Admin]:
    with Admin(bootstrap_servers=bootstrap) as made:
        yield made


def test_topics_and_offsets_are_administered(admin: Admin) -> None:
    assert [node.id for node in admin.describe_cluster().nodes] == [1]
    assert admin.create_topics([NewTopic("t", 2, 1)])["t"].is_ok

    def has_leaders() -> bool:
        found = admin.describe_topics(["t"])["t"].value
        return found is not None and len(found.partitions) == 2

    eventually(has_leaders)
    assert isinstance(admin.describe_topics(["none"])["none"].error, UnknownTopic)
    assert "none" not in {row.name for row in admin.list_topics()}
    first = TopicPartition("t", 0)
    found = admin.list_offsets({first: LATEST, TopicPartition("t", 1): EARLIEST})
    assert [result.get().offset for result in found.values()] == [0, 0]
    assert admin.alter_group_offsets("g", {first: 0})[first].is_ok
    assert admin.list_group_offsets("g") == {first: OffsetAndMetadata(0)}
    assert "g" in {row.group_id for row in admin.list_groups()}
    assert admin.delete_topics(["t"])["t"].is_ok


@pytest.mark.usefixtures("oldest")
def test_what_it_lacks_is_said(admin: Admin) -> None:
    topic = ConfigResource(ConfigResourceType.TOPIC, "t")
    changed = admin.incremental_alter_configs({topic: [AlterConfig("retention.ms", "1")]})
    assert isinstance(changed[topic].error, UnsupportedByBroker)
    assert isinstance(admin.create_topics(["u"])["u"].error, UnsupportedByBroker)
    assert isinstance(admin.delete_groups(["g"])["g"].error, UnsupportedByBroker)
    admin.create_topics([NewTopic("lacks", 1, 1)])["lacks"].get()
    partition = TopicPartition("lacks", 0)

    def is_refused() -> bool:
        found = admin.list_offsets({partition: MAX_TIMESTAMP})[partition]
        return isinstance(found.error, UnsupportedByBroker)

    eventually(is_refused)
    with pytest.raises(UnsupportedByBroker, match="LIST_TRANSACTIONS"):
        admin.list_transactions()


@pytest.mark.usefixtures("oldest")
def test_an_idempotent_producer_is_refused(bootstrap: str) -> None:
    with (
        pytest.raises(UnsupportedByBroker, match="INIT_PRODUCER_ID"),
        Producer(bootstrap_servers=bootstrap) as producer,
    ):
        producer.send("refused", b"v").result(60)


def test_records_of_every_codec_come_back(bootstrap: str) -> None:
    for codec in CODECS:
        options = {"compression.type": codec, "enable.idempotence": False}
        with Producer({"bootstrap.servers": bootstrap, **options}) as producer:
            for number in range(50):
                producer.send("codecs", f"{codec}-{number}".encode(), key=b"k")
    expected = [f"{codec}-{number}".encode() for codec in CODECS for number in range(50)]
    records: list[ConsumerRecord] = []
    options = {"group.id": "readers", "auto.offset.reset": "earliest"}
    with Consumer({"bootstrap.servers": bootstrap, **options}) as consumer:
        consumer.subscribe(["codecs"])

        def are_all_there() -> bool:
            records.extend(consumer.poll(1.0))
            return len(records) >= len(expected)

        eventually(are_all_there)
        consumer.commit()
        partition = TopicPartition("codecs", 0)
        committed = consumer.committed([partition])[partition]
        assert committed is not None
        assert committed.offset == len(expected)
    assert [record.value for record in records] == expected
    assert [record.offset for record in records] == list(range(len(expected)))


def test_idempotent_records_and_transactions_come_back(kafka: OldKafka) -> None:
    if kafka.version == OLDEST_KAFKA_VERSION:
        pytest.skip("it has none")
    bootstrap, source = kafka.bootstrap, TopicPartition("source", 0)
    with Producer(bootstrap_servers=bootstrap) as producer:
        producer.send("transactions", b"idempotent").result(60)
        producer.send("source", b"v").result(60)
    with Producer(bootstrap_servers=bootstrap, transactional_id="tx") as producer:
        producer.init_transactions()
        for number in range(4):
            producer.begin_transaction()
            producer.send("transactions", b"%d" % number)
            producer.send_offsets_to_transaction({source: number}, "copying")
            (producer.abort_transaction if number % 2 else producer.commit_transaction)()
    values: list[bytes | None] = []
    options = {"isolation.level": "read_committed", "auto.offset.reset": "earliest"}
    with Consumer({"bootstrap.servers": bootstrap, "group.id": "copying", **options}) as consumer:
        consumer.assign([TopicPartition("transactions", 0)])

        def are_all_there() -> bool:
            values.extend(record.value for record in consumer.poll(1.0))
            return len(values) >= 3

        eventually(are_all_there)
        committed = consumer.committed([source])[source]
    assert values == [b"idempotent", b"0", b"2"]
    assert committed is not None
    assert committed.offset == 2
