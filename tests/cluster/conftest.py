"""Clusters of this directory's tests: one each, because they are killed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.cluster import ClusterProcess

StartCluster = Callable[..., ClusterProcess]


@pytest.fixture
def start_cluster(tmp_path: Path) -> Iterator[StartCluster]:
    """Starts a cluster of this test's own: start_cluster({"key": "value"}, broker_count=3)."""
    started: list[ClusterProcess] = []

    def start(overrides: dict[str, str] | None = None, broker_count: int = 3) -> ClusterProcess:
        cluster = ClusterProcess(tmp_path, broker_count, overrides)
        started.append(cluster)
        return cluster.start()

    yield start
    for cluster in started:
        cluster.close()
