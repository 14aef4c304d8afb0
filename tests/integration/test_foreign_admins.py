"""The admin clients of confluent-kafka and kafka-python do their work."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import kafka
import kafka.errors
import pytest
from confluent_kafka import IsolationLevel, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from kafka.admin import ConfigResource as PythonConfigResource
from kafka.admin import ConfigResourceType as PythonResourceType
from kafka.admin import NewPartitions as PythonNewPartitions
from kafka.admin import NewTopic as PythonNewTopic

from tests.support.eventually import eventually
from tests.support.foreign_clients import ConfluentKafka, Message
from tests.support.raw_client import RawClient, list_offset, wait_for_leaders

TIMEOUT_S = 60
BASE_MS = 1_700_000_000_000


class TestConfluentAdmin:
    @pytest.fixture
    def admin(self, bootstrap: str) -> AdminClient:
        return AdminClient({"bootstrap.servers": bootstrap})

    @pytest.fixture
    def made(self, admin: AdminClient, client: RawClient, topic_name: str) -> str:
        topic = NewTopic(topic_name, 2, 1, config={"retention.ms": "60000"})
        admin.create_topics([topic])[topic_name].result(TIMEOUT_S)
        wait_for_leaders(client, topic_name, 2)
        return topic_name

    def test_topics_are_created_listed_grown_and_deleted(
        self, admin: AdminClient, client: RawClient, made: str
    ) -> None:
        assert made in admin.list_topics(timeout=TIMEOUT_S).topics
        admin.create_partitions([NewPartitions(made, 4)])[made].result(TIMEOUT_S)
        wait_for_leaders(client, made, 4)
        described = admin.describe_topics(TopicCollection([made]))[made].result(TIMEOUT_S)
        assert [p.id for p in described.partitions] == [0, 1, 2, 3]
        admin.delete_topics([made])[made].result(TIMEOUT_S)
        eventually(lambda: made not in admin.list_topics(timeout=TIMEOUT_S).topics)

    def test_creating_a_topic_twice_is_an_error(self, admin: AdminClient, made: str) -> None:
        with pytest.raises(KafkaException) as error:
            admin.create_topics([NewTopic(made, 1, 1)])[made].result(TIMEOUT_S)
        assert error.value.args[0].name() == "TOPIC_ALREADY_EXISTS"

    def test_configs_are_described_and_changed(self, admin: AdminClient, made: str) -> None:
        resource = ConfigResource(ResourceType.TOPIC, made)

        def value(key: str) -> Any:
            return admin.describe_configs([resource])[resource].result(TIMEOUT_S)[key].value

        assert value("retention.ms") == "60000"
        change = ConfigResource(
            ResourceType.TOPIC,
            made,
            incremental_configs=[
                ConfigEntry("retention.ms", "5000", incremental_operation=AlterConfigOpType.SET)
            ],
        )
        admin.incremental_alter_configs([change])[change].result(TIMEOUT_S)
        eventually(lambda: value("retention.ms") == "5000")
        broker = ConfigResource(ResourceType.BROKER, "0")
        rows = admin.describe_configs([broker])[broker].result(TIMEOUT_S)
        assert rows["log.segment.bytes"].value == "1073741824"

    def test_offsets_are_listed_and_records_deleted(
        self, bootstrap: str, admin: AdminClient, made: str
    ) -> None:
        stamps = [BASE_MS, BASE_MS + 5000, BASE_MS + 2000]
        messages = [Message(b"%d" % i, None, (), stamp) for i, stamp in enumerate(stamps)]
        ConfluentKafka().produce(bootstrap, made, 0, "none", messages)
        partition = TopicPartition(made, 0)

        def offset(spec: Any) -> int:
            futures = admin.list_offsets(
                {partition: spec}, isolation_level=IsolationLevel.READ_UNCOMMITTED
            )
            return int(futures[partition].result(TIMEOUT_S).offset)

        assert offset(OffsetSpec.earliest()) == 0
        assert offset(OffsetSpec.latest()) == 3
        assert offset(OffsetSpec.max_timestamp()) == 1
        assert offset(OffsetSpec.for_timestamp(BASE_MS + 1)) == 1
        target = TopicPartition(made, 0, 2)
        deleted = admin.delete_records([target])[target].result(TIMEOUT_S)
        assert deleted.low_watermark == 2
        assert offset(OffsetSpec.earliest()) == 2

    def test_the_cluster_is_described(self, admin: AdminClient, bootstrap: str) -> None:
        cluster = admin.describe_cluster().result(TIMEOUT_S)
        assert [f"{node.host}:{node.port}" for node in cluster.nodes] == [bootstrap]
        assert cluster.controller.id == cluster.nodes[0].id
        assert cluster.cluster_id


class TestKafkaPythonAdmin:
    @pytest.fixture
    def admin(self, bootstrap: str) -> Iterator[kafka.KafkaAdminClient]:
        admin = kafka.KafkaAdminClient(bootstrap_servers=bootstrap)
        yield admin
        admin.close()

    @pytest.fixture
    def made(self, admin: Any, client: RawClient, topic_name: str) -> str:
        admin.create_topics([PythonNewTopic(topic_name, 2, 1)])
        wait_for_leaders(client, topic_name, 2)
        return topic_name

    def test_topics_are_created_listed_grown_and_deleted(
        self, admin: Any, client: RawClient, made: str
    ) -> None:
        assert made in admin.list_topics()
        admin.create_partitions({made: PythonNewPartitions(3)})
        wait_for_leaders(client, made, 3)
        (described,) = admin.describe_topics([made])
        assert len(described["partitions"]) == 3
        admin.delete_topics([made])
        eventually(lambda: made not in admin.list_topics())

    def test_creating_a_topic_twice_is_an_error(self, admin: Any, made: str) -> None:
        with pytest.raises(kafka.errors.TopicAlreadyExistsError):
            admin.create_topics([PythonNewTopic(made, 1, 1)])

    def test_configs_are_changed_and_described(self, admin: Any, made: str) -> None:
        change = PythonConfigResource(PythonResourceType.TOPIC, made, {"retention.ms": "5000"})
        admin.alter_configs([change])
        resource = PythonConfigResource(PythonResourceType.TOPIC, made)
        eventually(lambda: "5000" in str(admin.describe_configs([resource])))

    def test_records_are_deleted(self, bootstrap: str, admin: Any, made: str) -> None:
        ConfluentKafka().produce(bootstrap, made, 1, "none", [Message(b"a"), Message(b"b")])
        admin.delete_records({kafka.TopicPartition(made, 1): 1})
        with RawClient(bootstrap) as client:
            assert list_offset(client, made, -2, partition=1).offset == 1

    def test_the_cluster_and_its_log_dirs_are_described(self, admin: Any, made: str) -> None:
        cluster = admin.describe_cluster()
        assert len(cluster["brokers"]) == 1
        assert made in str(admin.describe_log_dirs())


def test_a_producer_creates_the_topic_it_writes_to(bootstrap: str, topic_name: str) -> None:
    ConfluentKafka().produce(bootstrap, topic_name, 0, "none", [Message(b"first")])
    read = ConfluentKafka().consume(bootstrap, topic_name, {0: 1})[0]
    assert [m.value for m in read] == [b"first"]
