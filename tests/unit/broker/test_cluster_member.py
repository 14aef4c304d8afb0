"""What a broker in a cluster says of who leads, and how it asks them for markers."""

from __future__ import annotations

import asyncio
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.support.metadata import in_loop
from tidelog.broker.cluster_member import ClusterMember
from tidelog.controller.topics import PartitionImage, TopicImage
from tidelog.protocol.messages.write_txn_markers import (
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tidelog.types import ZERO_UUID


@pytest.mark.parametrize(
    ("index", "leader_id"), [(0, 3), (1, 4), (2, None), (-1, None), (-3, None)]
)
def test_only_partitions_that_there_are_have_a_leader(index: int, leader_id: int | None) -> None:
    partitions = [PartitionImage(i, 3 + i, 0, [3, 4], [3, 4], 0) for i in range(2)]
    images = SimpleNamespace(topics={"t": TopicImage("t", ZERO_UUID, partitions, {})})
    cluster = cast(Any, SimpleNamespace(topics=images))
    assert ClusterMember.leader_of(cluster, "t", index) == leader_id
    assert ClusterMember.leader_of(cluster, "none", index) is None


@pytest.mark.parametrize("error", [ConnectionError("gone"), LookupError("nobody expected this")])
@in_loop
async def test_a_transaction_is_told_when_its_markers_cannot_be_written(error: Exception) -> None:
    async def call(*arguments: object, **named: object) -> WriteTxnMarkersResponse:
        raise error

    cluster = cast(Any, SimpleNamespace(_markers=SimpleNamespace(call=call), _request_timeout_s=1))
    cluster._ask_for_markers = partial(ClusterMember._ask_for_markers, cluster)
    cluster._loop, cluster._tasks = asyncio.get_running_loop(), set()
    answer = ClusterMember.write_markers(cluster, 2, WriteTxnMarkersRequest())
    if isinstance(error, OSError):
        assert await answer is None
    else:
        with pytest.raises(LookupError):
            await answer
