"""Apache Kafka 3.9 over `tidelog zookeeper`: three brokers, and one beside a broker of tidelog."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from bench.cluster import KafkaOverZooKeeper
from bench.peers import ApacheKafka
from bench.peers import BrokerProcess as PeerBroker
from tests.interop.apache_kafka import kafka_or_skip
from tests.interop.test_cluster_tools import RECORDS, WITHIN_S, fill, values
from tests.support.cluster import (
    SETTINGS,
    ClusterProcess,
    Writer,
    read_all,
    require_nothing_lost,
)
from tests.support.embedded_zookeeper import EmbeddedZooKeeperProcess
from tests.support.eventually import eventually
from tests.support.zookeeper import zookeeper_client

pytestmark = pytest.mark.integration

PARTITIONS = 3
JVM_WITHIN_S = 120.0  # brokers of Kafka take their time on a busy machine


class KafkaCluster:
    """Three brokers of Apache Kafka, and the coordination."""

    def __init__(self, kafka: ApacheKafka, directory: Path) -> None:
        self.zookeeper = EmbeddedZooKeeperProcess(directory / "zookeeper")
        settings = {
            **SETTINGS,
            "zookeeper.connect": self.zookeeper.address,
            "zookeeper.session.timeout.ms": "6000",
        }
        self.brokers = {
            number: PeerBroker(
                KafkaOverZooKeeper(kafka),
                directory / f"kafka-{number}",
                {**settings, "broker.id": str(number)},
            )
            for number in (1, 2, 3)
        }

    def start(self) -> None:
        self.zookeeper.start()
        for broker in self.brokers.values():
            broker.spawn()
        eventually(lambda: self.live() == {1, 2, 3}, JVM_WITHIN_S)

    def close(self) -> None:
        for broker in self.brokers.values():
            broker.discard()
        self.zookeeper.kill()

    @property
    def client_keys(self) -> dict[str, Any]:
        ports = [broker.port for broker in self.brokers.values()]
        return {"bootstrap.servers": ",".join(f"127.0.0.1:{port}" for port in ports)}

    @cached_property
    def admin(self) -> Any:
        return AdminClient({**self.client_keys, "log_level": 0})

    def live(self) -> set[int]:
        """By their nodes in the coordination, as the controller sees them."""
        return set(self.sessions())

    def sessions(self) -> dict[int, int]:
        with zookeeper_client(self.zookeeper.address) as client:
            if client.exists("/brokers/ids") is None:
                return {}
            numbers = client.get_children("/brokers/ids")
            found = {number: client.exists(f"/brokers/ids/{number}") for number in numbers}
        return {int(number): stat.ephemeralOwner for number, stat in found.items() if stat}

    def create_topic(self, name: str) -> None:
        new = NewTopic(name, PARTITIONS, 3)
        self.admin.create_topics([new], operation_timeout=JVM_WITHIN_S)[name].result(JVM_WITHIN_S)

    def partitions(self, topic: str) -> dict[int, Any]:
        found: dict[int, Any] = self.admin.list_topics(topic, timeout=30).topics[topic].partitions
        return found

    def is_in_sync(self, topic: str) -> bool:
        found = self.partitions(topic).values()
        return len(found) == PARTITIONS and all(len(each.isrs) == 3 for each in found)

    def restart_coordination(self) -> None:
        self.zookeeper.kill()
        self.zookeeper.start()


@pytest.fixture(scope="module")
def kafka() -> ApacheKafka:
    return kafka_or_skip()


@pytest.fixture
def three(kafka: ApacheKafka, tmp_path: Path) -> Iterator[KafkaCluster]:
    cluster = KafkaCluster(kafka, tmp_path)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


def test_three_kafkas_lose_nothing_over_kills_of_a_broker_and_of_the_coordination(
    three: KafkaCluster,
) -> None:
    three.create_topic("t")
    eventually(lambda: three.is_in_sync("t"), JVM_WITHIN_S)
    writer = Writer(three, "t", PARTITIONS).start()
    before = three.sessions()
    three.restart_coordination()
    acked = len(writer.acks)
    eventually(lambda: len(writer.acks) > acked + 100, JVM_WITHIN_S)
    assert three.sessions() == before, "all kept their sessions"

    dead = three.partitions("t")[0].leader
    three.brokers[dead].kill()
    three.restart_coordination()
    eventually(lambda: three.partitions("t")[0].leader not in (dead, -1), JVM_WITHIN_S)
    acked = len(writer.acks)
    eventually(lambda: len(writer.acks) > acked + 100, JVM_WITHIN_S)

    three.brokers[dead].start()
    eventually(lambda: three.is_in_sync("t"), JVM_WITHIN_S)
    three.create_topic("later")
    writer.stop()
    assert not writer.errors
    require_nothing_lost(writer.acks, read_all(three, "t", PARTITIONS))


def test_kafka_joins_leads_follows_and_keeps_its_session_over_a_kill_of_the_coordination(
    kafka: ApacheKafka, tmp_path: Path
) -> None:
    cluster = ClusterProcess(tmp_path, broker_count=1, embedded_zookeeper=True)
    settings = {**SETTINGS, "broker.id": "2", "zookeeper.connect": cluster.zookeeper.address}
    second = PeerBroker(KafkaOverZooKeeper(kafka), tmp_path / "kafka", settings)
    try:
        cluster.start()
        second.start()
        eventually(lambda: len(cluster.admin.list_topics(timeout=10).brokers) == 2, WITHIN_S)
        cluster.zookeeper.kill()
        cluster.zookeeper.start()
        cluster.assign_topic("t", [[1, 2], [2, 1]])
        for partition in range(2):
            fill(cluster.bootstrap, "t", partition)
            assert values(cluster.bootstrap, "t", partition) == list(range(RECORDS))
        cluster.brokers[1].kill()
        cluster.brokers[1].start()
        eventually(lambda: all(len(p.isr) == 2 for p in cluster.view("t").values()), WITHIN_S)
    finally:
        cluster.close()
        second.discard()
