"""Brokers of tidelog and of Apache Kafka 3.9 in one cluster, all listeners SASL over TLS."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from bench.cluster import KafkaOverZooKeeper
from bench.peers import ApacheKafka
from bench.peers import BrokerProcess as PeerBroker
from tests.interop.apache_kafka import kafka_or_skip
from tests.support.cluster import ClusterProcess, Writer, read_all, require_nothing_lost
from tests.support.cluster_security import secure
from tests.support.eventually import eventually

LISTENER = "SECURED"
WITHIN_S = 90
PARTITIONS = 3
OURS, THEIRS = (1, 2), 3


@pytest.fixture(scope="module")
def kafka() -> ApacheKafka:
    return kafka_or_skip()


@pytest.mark.timeout(600)
def test_nothing_is_lost_when_leaders_and_controller_change_over(
    kafka: ApacheKafka, tmp_path: Path
) -> None:
    cluster = ClusterProcess(
        tmp_path,
        3,
        {"listeners": f"{LISTENER}://127.0.0.1:0", "inter.broker.listener.name": LISTENER},
    )
    secure(cluster, (LISTENER,), tmp_path / "certificates")
    # The third one's settings serve Kafka: both understand the same keys.
    settings = dict(cluster.brokers.pop(THEIRS).overrides)
    for key in ("log.dirs", "tidelog.loop.stall.warn.ms"):
        del settings[key]
    third = PeerBroker(KafkaOverZooKeeper(kafka), tmp_path / "kafka", settings)
    settings["listeners"] = f"{LISTENER}://127.0.0.1:{third.port}"
    try:
        cluster.start()
        third.spawn()
        eventually(lambda: len(cluster.live_broker_ids()) == len(OURS) + 1, WITHIN_S)
        assert cluster.controller_id() in OURS
        cluster.assign_topic("t", [[1, 2, 3], [3, 1, 2], [2, 3, 1]])
        cluster.wait_for_full_isr(["t"], WITHIN_S)
        writer = Writer(cluster, "t", PARTITIONS).start()
        for number in OURS:
            cluster.brokers[number].restart()
            cluster.wait_for_full_isr(["t"], WITHIN_S)
        make_kafka_controller(cluster)
        eventually(lambda: cluster.controller_id() == THEIRS, WITHIN_S)
        third.stop()
        third.spawn()
        eventually(lambda: cluster.controller_id() in OURS, WITHIN_S)
        cluster.wait_for_full_isr(["t"], WITHIN_S)
        writer.stop()
        assert writer.errors == []
        require_nothing_lost(writer.acks, read_all(cluster, "t", PARTITIONS))
    finally:
        cluster.close()
        third.discard()


def make_kafka_controller(cluster: ClusterProcess) -> None:
    """Ours are faster in an election, so they stand still during this one."""
    zookeeper = KazooClient(f"127.0.0.1:{cluster.zookeeper.port}")
    zookeeper.start()
    pids = [broker.pid for broker in cluster.brokers.values()]
    try:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        zookeeper.delete("/controller")
        eventually(lambda: zookeeper.exists("/controller") is not None, WITHIN_S)
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        zookeeper.stop()
        zookeeper.close()
