"""Eligible leader replicas (KIP-966) over a real ZooKeeper: two of three brokers, min ISR 2."""

from __future__ import annotations

import pytest
from kafka.protocol.admin import DescribeTopicPartitionsRequest

from tests.cluster.conftest import StartCluster
from tests.support.cluster import ClusterProcess, Writer, read_all, require_nothing_lost
from tests.support.eventually import eventually
from tests.support.raw_client import RawClient

pytestmark = pytest.mark.integration


def eligible(cluster: ClusterProcess, number: int) -> tuple[list[int], list[int]]:
    """As that broker says; the eligible ones, and those that were."""
    kind = DescribeTopicPartitionsRequest
    request = kind(
        version=0,
        topics=[kind.TopicRequest(name="t")],
        response_partition_limit=10,
        cursor=None,
    )
    with RawClient(cluster.brokers[number].bootstrap) as client:
        (row,) = client.call(request).topics[0].partitions
    return row.eligible_leader_replicas, row.last_known_elr


def produce_with_acks_1(cluster: ClusterProcess, value: bytes) -> bool:
    from confluent_kafka import Producer

    outcomes: list[bool] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": 1, "log_level": 0})
    producer.produce("t", value, on_delivery=lambda error, _: outcomes.append(error is None))
    producer.flush(60)
    return outcomes == [True]


def test_who_left_a_set_that_was_too_small_leads_when_the_last_one_in_sync_dies(
    start_cluster: StartCluster,
) -> None:
    cluster = start_cluster()
    cluster.assign_topic("t", [[1, 2]])
    eventually(lambda: cluster.view("t")[0].isr == (1, 2))
    writer = Writer(cluster, "t", 1).start()
    writer.stop()
    assert cluster.brokers[2].stop() == 0
    eventually(lambda: cluster.view("t")[0].isr == (1,))
    assert eligible(cluster, 3) == ([2], [])

    # Nothing is committed by the one that is left: readers do not see it, and it may go.
    assert produce_with_acks_1(cluster, b"unseen")
    assert b"unseen" not in {value for _, _, value in read_all(cluster, "t", 1)}

    cluster.brokers[1].kill()
    eventually(lambda: cluster.view("t")[0].leader == -1)
    cluster.brokers[2].start()
    eventually(lambda: cluster.view("t")[0] == (2, (2,)))

    cluster.brokers[1].start()
    eventually(lambda: set(cluster.view("t")[0].isr) == {1, 2})
    assert cluster.view("t")[0].leader == 2
    assert eligible(cluster, 3) == ([], [])
    found = read_all(cluster, "t", 1)
    require_nothing_lost(writer.acks, found)
    assert b"unseen" not in {value for _, _, value in found}
    for number in (3, 1, 2):  # the last one has nobody to hand over to, and knows it
        cluster.brokers[number].stop()
    assert cluster.log_bytes(1, "t") == cluster.log_bytes(2, "t")


def test_the_last_one_in_sync_that_crashed_leaves_the_lead_to_an_eligible_one(
    start_cluster: StartCluster,
) -> None:
    """What it had not flushed may be gone; the one that stopped cleanly has all of it."""
    cluster = start_cluster()
    cluster.assign_topic("t", [[1, 2]])
    eventually(lambda: cluster.view("t")[0].isr == (1, 2))
    writer = Writer(cluster, "t", 1).start()
    writer.stop()
    assert cluster.brokers[2].stop() == 0
    eventually(lambda: cluster.view("t")[0].isr == (1,))
    cluster.brokers[1].kill()
    cluster.brokers[1].start()
    eventually(lambda: cluster.view("t")[0] == (-1, (2,)))
    assert eligible(cluster, 3) == ([], [1])
    cluster.brokers[2].start()
    eventually(lambda: set(cluster.view("t")[0].isr) == {1, 2})
    assert cluster.view("t")[0].leader == 2
    require_nothing_lost(writer.acks, read_all(cluster, "t", 1))
