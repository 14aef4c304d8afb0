"""Apache Kafka 3.9 in ZooKeeper mode over `tidelog zookeeper`, beside a broker of tidelog."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.cluster import KafkaOverZooKeeper
from bench.peers import ApacheKafka
from bench.peers import BrokerProcess as PeerBroker
from tests.interop.apache_kafka import kafka_or_skip
from tests.interop.test_cluster_tools import RECORDS, WITHIN_S, fill, values
from tests.support.cluster import SETTINGS, ClusterProcess
from tests.support.eventually import eventually

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def kafka() -> ApacheKafka:
    return kafka_or_skip()


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
