"""Replicas that move from broker to broker, at the pace that is asked for."""

from __future__ import annotations

import time

import pytest
from kafka.protocol.admin import AlterPartitionReassignmentsRequest

from tests.cluster.conftest import StartCluster
from tests.support.cluster import ClusterProcess, Writer, read_all, require_nothing_lost
from tests.support.eventually import eventually
from tests.support.raw_client import RawClient

pytestmark = pytest.mark.integration

BACKLOG_BYTES = 10_000_000
RATE = 2_000_000


def fill(cluster: ClusterProcess) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "log_level": 0})
    for number in range(BACKLOG_BYTES // 1_000):
        producer.produce("t", b"%d" % number + b"x" * 1_000, partition=0)
        if number % 1_000 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0


def configure(cluster: ClusterProcess, kind: str, name: str, **configs: str | int) -> None:
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

    entries = [
        ConfigEntry(key.replace("_", "."), str(value), incremental_operation=AlterConfigOpType.SET)
        for key, value in configs.items()
    ]
    resource = ConfigResource(ResourceType[kind], name, incremental_configs=entries)
    for done in cluster.admin.incremental_alter_configs([resource]).values():
        done.result(60)


def reassign(cluster: ClusterProcess, replicas: list[int]) -> None:
    kind = AlterPartitionReassignmentsRequest
    topic = kind.ReassignableTopic
    row = topic.ReassignablePartition(partition_index=0, replicas=replicas)
    request = kind(version=0, timeout_ms=10_000, topics=[topic(name="t", partitions=[row])])
    with RawClient(cluster.brokers[cluster.controller_id()].bootstrap) as client:
        response = client.call(request)
    assert (response.error_code, response.responses[0].partitions[0].error_code) == (0, 0)


def seconds_until_moved(cluster: ClusterProcess, replicas: set[int]) -> float:
    started = time.monotonic()
    eventually(lambda: set(replicas_of(cluster)) == replicas, within_s=120)
    return time.monotonic() - started


def replicas_of(cluster: ClusterProcess) -> list[int]:
    partition = cluster.admin.list_topics("t", timeout=60).topics["t"].partitions[0]
    return list(partition.replicas)


def test_a_throttled_replica_moves_at_its_pace_while_others_write(
    start_cluster: StartCluster,
) -> None:
    cluster = start_cluster()
    cluster.assign_topic("t", [[1, 2]])
    eventually(lambda: cluster.view("t")[0].isr == (1, 2))
    fill(cluster)
    for number in cluster.brokers:
        configure(
            cluster,
            "BROKER",
            str(number),
            leader_replication_throttled_rate=RATE,
            follower_replication_throttled_rate=RATE,
        )
    configure(
        cluster,
        "TOPIC",
        "t",
        leader_replication_throttled_replicas="0:1,0:2",
        follower_replication_throttled_replicas="0:3",
    )
    writer = Writer(cluster, "t", 1, **{"linger.ms": 50}).start()
    reassign(cluster, [3, 1])
    taken_s = seconds_until_moved(cluster, {1, 3})
    writer.stop()
    assert taken_s > 0.5 * BACKLOG_BYTES / RATE, "it was let through faster than was asked for"
    assert not writer.errors
    require_nothing_lost(writer.acks, read_all(cluster, "t", 1), duplicates=True)
    eventually(lambda: set(cluster.view("t")[0].isr) == {1, 3})
    eventually(lambda: not list(cluster.brokers[2].data_directory.glob("t-0")))
