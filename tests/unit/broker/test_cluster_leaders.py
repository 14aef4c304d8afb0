"""What a broker in a cluster says of who leads."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from tidelog.broker.cluster import Cluster
from tidelog.controller.topics import PartitionImage, TopicImage
from tidelog.types import ZERO_UUID


@pytest.mark.parametrize(
    ("index", "leader_id"), [(0, 3), (1, 4), (2, None), (-1, None), (-3, None)]
)
def test_only_partitions_that_there_are_have_a_leader(index: int, leader_id: int | None) -> None:
    partitions = [PartitionImage(i, 3 + i, 0, [3, 4], [3, 4], 0) for i in range(2)]
    images = SimpleNamespace(topics={"t": TopicImage("t", ZERO_UUID, partitions, {})})
    cluster = cast(Any, SimpleNamespace(topics=images))
    assert Cluster.leader_of(cluster, "t", index) == leader_id
    assert Cluster.leader_of(cluster, "none", index) is None
