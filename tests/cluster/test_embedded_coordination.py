"""Three brokers over `tidelog zookeeper`: no Java, and nothing acked is lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster import ClusterProcess, Writer, read_all, require_nothing_lost
from tests.support.eventually import eventually
from tests.support.fault_harness import FaultHarness
from tests.support.zookeeper import zookeeper_client

pytestmark = pytest.mark.integration

FAULTS = ("zookeeper_killed", "killed", "zookeeper_paused")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterProcess]:
    made = ClusterProcess(tmp_path, embedded_zookeeper=True)
    try:
        yield made.start()
    finally:
        made.close()


def test_nothing_acked_is_lost_when_the_controller_a_leader_and_the_coordination_are_killed(
    cluster: ClusterProcess,
) -> None:
    cluster.create_topic("t", 3)
    writer = Writer(cluster, "t", 3).start()
    controller = cluster.brokers[cluster.controller_id()]
    controller.kill()
    eventually(lambda: cluster.controller_id() not in (-1, controller.broker_id))
    controller.start()
    cluster.wait_for_full_isr(["t"])
    cluster.zookeeper.kill()
    acked = len(writer.acks)
    eventually(lambda: len(writer.acks) > acked + 10)
    cluster.zookeeper.start()
    leader = cluster.leader_of("t")
    leader.kill()
    eventually(lambda: all(p.leader != leader.broker_id for p in cluster.view("t").values()))
    leader.start()
    cluster.wait_for_full_isr(["t"])
    writer.stop()
    assert not writer.errors
    require_nothing_lost(writer.acks, read_all(cluster, "t", 3))


def test_brokers_keep_their_sessions_over_a_kill_of_the_coordination(
    cluster: ClusterProcess,
) -> None:
    with zookeeper_client(cluster.zookeeper.address) as client:
        before = {number: client.get(f"/brokers/ids/{number}")[1].czxid for number in (1, 2, 3)}
    cluster.zookeeper.kill()
    cluster.zookeeper.start()
    with zookeeper_client(cluster.zookeeper.address) as client:
        after = {number: client.get(f"/brokers/ids/{number}")[1].czxid for number in (1, 2, 3)}
    assert after == before


def test_random_faults_lose_nothing(tmp_path: Path) -> None:
    harness = FaultHarness(
        tmp_path, seed=11, records=1_500, minutes=0.4, only=FAULTS, embedded_zookeeper=True
    )
    try:
        harness.run(4)
    finally:
        harness.close()
