"""A cluster of which one broker loses one of its two disks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.conftest import StartCluster
from tests.support.cluster import Writer, read_all, require_nothing_lost
from tests.support.eventually import eventually
from tests.support.log_dirs import home, replicas
from tests.support.mounted_disk import MountedDisk, mounted_disk_or_skip
from tests.support.raw_client import RawClient


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[MountedDisk]:
    disk = mounted_disk_or_skip(tmp_path)
    yield disk
    disk.discard()


def test_others_lead_what_was_on_a_disk_that_died(
    start_cluster: StartCluster, disk: MountedDisk
) -> None:
    cluster = start_cluster()
    broker = cluster.brokers[1]
    broker.stop()
    broker.overrides["log.dirs"] = f"{broker.data_directory},{disk.path}"
    broker.start()
    cluster.assign_topic("t", [[1, 2, 3], [1, 2, 3]])
    with RawClient(broker.bootstrap) as client:
        eventually(lambda: all(replicas(client, "t", index) for index in (0, 1)))
        lost = next(index for index in (0, 1) if home(client, "t", index) == disk.path.name)
    kept = 1 - lost
    writer = Writer(cluster, "t", 2).start()
    disk.die()
    eventually(lambda: cluster.view("t")[lost].leader in (2, 3))
    assert cluster.view("t")[kept].leader == 1
    assert 1 not in cluster.view("t")[lost].isr
    count = len(writer.acks)
    eventually(lambda: len(writer.acks) > count + 100)

    broker.stop()
    disk.revive()
    broker.start()
    cluster.wait_for_full_isr(["t"])
    writer.stop()
    assert not writer.errors
    require_nothing_lost(writer.acks, read_all(cluster, "t", 2))
