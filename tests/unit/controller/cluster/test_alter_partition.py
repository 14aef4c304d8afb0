"""AlterPartition: what a leader may make of its in-sync set, and every way to be refused."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.fake_cluster import FakeCluster
from tests.support.metadata import in_loop
from tidelog.errors import ErrorCode
from tidelog.protocol.messages.alter_partition import AlterPartitionRequest
from tidelog.types import TopicPartition, Uuid

T0 = TopicPartition("t", 0)


@asynccontextmanager
async def cluster_with_topic(tmp_path: Path) -> AsyncIterator[FakeCluster]:
    """Partition 0 of t is on 2 (its leader) and 3, both in sync; 1 is the controller."""
    cluster = FakeCluster(tmp_path)
    await cluster.start(1, 2, 3)
    await cluster.create_topic("t", [[2, 3]])
    try:
        yield cluster
    finally:
        await cluster.close()


@pytest.mark.parametrize("version", [0, 1, 2, 3])
@in_loop
async def test_a_leader_shrinks_and_expands_its_in_sync_set(tmp_path: Path, version: int) -> None:
    async with cluster_with_topic(tmp_path) as cluster:
        for isr in ([2], [2, 3]):
            row = await cluster.alter_isr("t", isr, version=version)
            state = await cluster.state("t")
            assert row.error_code == ErrorCode.NONE
            assert row.isr == state.isr == isr
            assert (row.leader_id, row.leader_epoch) == (2, 0), "the leader goes on as before"
            assert row.partition_epoch == await cluster.version("t")
            for broker in cluster.brokers.values():
                assert broker.metadata[T0].isr == isr
                assert broker.metadata[T0].zk_version == row.partition_epoch


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"leader_epoch": -1}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"leader_epoch": 1}, ErrorCode.NOT_CONTROLLER),
        ({"partition_epoch": 9}, ErrorCode.NOT_CONTROLLER),
        ({"partition_epoch": -1}, ErrorCode.INVALID_UPDATE_VERSION),
        ({"topic_id": Uuid.random()}, ErrorCode.UNKNOWN_TOPIC_ID),
        ({"recovery": 1}, ErrorCode.INVALID_REQUEST),
        ({"broker_id": 3}, ErrorCode.INVALID_REQUEST),
        ({"isr": [3]}, ErrorCode.INVALID_REQUEST),
        ({"isr": [2, 1]}, ErrorCode.INVALID_REQUEST),
        ({"isr": []}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": 1}, ErrorCode.INELIGIBLE_REPLICA),
    ],
)
@in_loop
async def test_refused(tmp_path: Path, changed: dict[str, Any], code: ErrorCode) -> None:
    async with cluster_with_topic(tmp_path) as cluster:
        before = await cluster.version("t")
        response = await cluster.ask_for_isr("t", changed.pop("isr", [2]), **changed)
        assert response.error_code == ErrorCode.NONE
        assert response.topics[0].partitions[0].error_code == code
        assert await cluster.version("t") == before


@pytest.mark.parametrize(
    ("version", "code"),
    [(1, ErrorCode.OPERATION_NOT_ATTEMPTED), (2, ErrorCode.INELIGIBLE_REPLICA)],
)
@in_loop
async def test_a_dead_broker_is_not_eligible(tmp_path: Path, version: int, code: ErrorCode) -> None:
    async with cluster_with_topic(tmp_path) as cluster:
        await cluster.kill(3)
        response = await cluster.ask_for_isr("t", [2, 3], version=version)
        assert response.topics[0].partitions[0].error_code == code


@pytest.mark.parametrize("broker_epoch", [0, 1 << 60])
@in_loop
async def test_another_life_of_the_broker_is_refused(tmp_path: Path, broker_epoch: int) -> None:
    async with cluster_with_topic(tmp_path) as cluster:
        response = await cluster.ask_for_isr("t", [2], broker_epoch=broker_epoch)
        assert response.error_code == ErrorCode.STALE_BROKER_EPOCH


@in_loop
async def test_a_broker_that_is_not_registered_is_refused(tmp_path: Path) -> None:
    async with cluster_with_topic(tmp_path) as cluster:
        request = AlterPartitionRequest(broker_id=7, broker_epoch=1)
        response = await cluster.active.alter_partition(request)
        assert response.error_code == ErrorCode.STALE_BROKER_EPOCH


@in_loop
async def test_who_is_not_the_controller_says_so(tmp_path: Path) -> None:
    async with cluster_with_topic(tmp_path) as cluster:
        response = await cluster.ask_for_isr("t", [2], to=cluster.controllers[2])
        assert response.error_code == ErrorCode.NOT_CONTROLLER


@in_loop
async def test_a_repeated_request_is_harmless(tmp_path: Path) -> None:
    async with cluster_with_topic(tmp_path) as cluster:
        first = await cluster.alter_isr("t", [2])
        again = await cluster.alter_isr("t", [2], partition_epoch=0)
        assert again == first or again.partition_epoch == first.partition_epoch
        assert await cluster.version("t") == first.partition_epoch


@in_loop
async def test_an_unknown_partition_is_refused(tmp_path: Path) -> None:
    async with cluster_with_topic(tmp_path) as cluster:
        await cluster.create_topic("u", [[9]])
        request = AlterPartitionRequest(broker_id=2, broker_epoch=cluster.brokers[2].epoch)
        request.topics = (await _request_for(cluster, "u")).topics
        response = await cluster.active.alter_partition(request)
        code = response.topics[0].partitions[0].error_code
        assert code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def _request_for(cluster: FakeCluster, topic: str) -> AlterPartitionRequest:
    from tidelog.protocol.messages.alter_partition import (
        AlterPartitionRequestPartitionData,
        AlterPartitionRequestTopicData,
    )

    topic_id = (await cluster.assignment(topic)).topic_id
    assert topic_id is not None
    row = AlterPartitionRequestPartitionData(partition_index=0)
    return AlterPartitionRequest(
        topics=[AlterPartitionRequestTopicData(topic_id=topic_id, partitions=[row])]
    )
