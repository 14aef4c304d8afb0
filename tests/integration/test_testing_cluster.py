"""`tidelog.testing.Cluster` and the fixture `tidelog_cluster`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Producer

from tests.support.eventually import eventually
from tidelog.testing import Cluster

pytestmark = pytest.mark.integration

WITHIN_S = 120


def send(bootstrap_servers: str, topic: str, values: list[str]) -> None:
    """With acks=all; returns when all are acknowledged."""
    keys = {"bootstrap.servers": bootstrap_servers, "acks": "all", "log_level": 0}
    producer = Producer({**keys, "enable.idempotence": True, "message.timeout.ms": 120_000})
    errors: list[object] = []
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(WITHIN_S) == 0
    assert errors == [None] * len(values)


@pytest.mark.tidelog(log_retention_hours=7)
def test_nothing_acked_is_lost_by_a_broker_and_the_coordination_that_are_killed(
    tidelog_cluster: Cluster,
) -> None:
    cluster = tidelog_cluster
    topic = cluster.create_topic("orders")
    values = [str(n) for n in range(100)]
    send(cluster.bootstrap_servers, topic, values[:25])
    cluster.zookeeper.kill()
    cluster.zookeeper.start()
    send(cluster.bootstrap_servers, topic, values[25:75])
    cluster.brokers[0].kill()
    send(cluster.bootstrap_servers, topic, values[75:])
    cluster.brokers[0].restart()
    cluster.brokers[1].pause()
    cluster.brokers[1].resume()
    cluster.expect("orders").exactly_once(values=values)


def test_a_broker_of_a_cluster_meets_faults_but_keeps_its_time_and_its_state() -> None:
    with Cluster(2) as cluster:
        topic = cluster.create_topic("t")
        for broker in cluster.brokers:
            broker.fail("Produce", "NOT_LEADER_OR_FOLLOWER")
        send(cluster.bootstrap_servers, topic, ["x"])
        cluster.expect("t").count(1)
        with pytest.raises(ValueError, match="a broker on its own"):
            cluster.brokers[0].clock.advance(hours=1)
        with pytest.raises(ValueError, match="a broker on its own"):
            cluster.brokers[0].snapshot()
        servers = [cluster.zookeeper.pid, *(broker.pid for broker in cluster.brokers)]
    assert not any(map(psutil.pid_exists, servers))


PROGRAM = """
import sys
from tidelog.testing import Cluster
cluster = Cluster(2).start()
cluster.brokers[0].pause()
pids = [cluster.zookeeper.pid, *(broker.pid for broker in cluster.brokers)]
print(*pids, cluster.brokers[1].data_directory, flush=True)
sys.stdin.read()
"""


def test_a_cluster_ends_with_its_process_though_that_is_killed() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout is not None
        *pids, directory = process.stdout.readline().split()
        os.kill(process.pid, signal.SIGKILL)
    eventually(lambda: not any(psutil.pid_exists(int(pid)) for pid in pids))
    eventually(lambda: not Path(directory).exists())
