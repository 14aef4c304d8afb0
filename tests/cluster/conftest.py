"""Clusters of this directory's tests: one each, because they are killed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.support.cluster import ClusterProcess

StartCluster = Callable[..., ClusterProcess]


@pytest.fixture
def start_cluster(tmp_path: Path) -> Iterator[StartCluster]:
    """Starts a cluster of this test's own: start_cluster({"key": "value"}, broker_count=3). With
    racks, one for each broker.
    """
    started: list[ClusterProcess] = []

    def start(
        overrides: dict[str, str] | None = None, broker_count: int = 3, racks: Sequence[str] = ()
    ) -> ClusterProcess:
        cluster = ClusterProcess(tmp_path, broker_count, overrides)
        started.append(cluster)
        for broker, rack in zip(cluster.brokers.values(), racks, strict=False):
            broker.overrides["broker.rack"] = rack
        return cluster.start()

    yield start
    for cluster in started:
        cluster.close()
