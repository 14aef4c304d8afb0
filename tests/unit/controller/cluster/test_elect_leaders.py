"""ElectLeaders: preferred and unclean elections that somebody asks for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.support.fake_cluster import FakeCluster
from tests.support.metadata import in_loop
from tidelog.errors import ErrorCode
from tidelog.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from tidelog.types import TopicPartition

PREFERRED, UNCLEAN = 0, 1
T0 = TopicPartition("t", 0)


@asynccontextmanager
async def cluster_with_topic(tmp_path: Path) -> AsyncIterator[FakeCluster]:
    """Partition 0 of t is on 2 and 3; 1 is the controller."""
    cluster = FakeCluster(tmp_path)
    await cluster.start(1, 2, 3)
    await cluster.create_topic("t", [[2, 3]])
    try:
        yield cluster
    finally:
        await cluster.close()


async def elect(
    cluster: FakeCluster, election_type: int, *partitions: TopicPartition
) -> dict[TopicPartition, int]:
    named = [TopicPartitions(topic=topic, partitions=[number]) for topic, number in partitions]
    request = ElectLeadersRequest(
        election_type=election_type, topic_partitions=named if partitions else None
    )
    response = await cluster.active.elect_leaders(request)
    response.encode(2)
    await cluster.settle()
    assert response.error_code == ErrorCode.NONE
    return {
        TopicPartition(topic.topic, row.partition_id): row.error_code
        for topic in response.replica_election_results
        for row in topic.partition_result
    }


@in_loop
async def test_a_preferred_election_brings_the_leader_back(tmp_path: Path) -> None:
    async with cluster_with_topic(tmp_path) as cluster:
        await cluster.kill(2)
        await cluster.start(2)
        assert await elect(cluster, PREFERRED, T0) == {T0: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
        await cluster.alter_isr("t", [3, 2])
        assert await elect(cluster, PREFERRED, T0) == {T0: ErrorCode.NONE}
        state = await cluster.state("t")
        assert (state.leader, state.isr) == (2, [3, 2])
        assert cluster.brokers[3].hosted[T0].leader == 2
        assert await elect(cluster, PREFERRED, T0) == {T0: ErrorCode.ELECTION_NOT_NEEDED}


@in_loop
async def test_an_election_of_everything_tells_only_what_was_elected(tmp_path: Path) -> None:
    async with cluster_with_topic(tmp_path) as cluster:
        await cluster.create_topic("u", [[1]])
        await cluster.kill(2)
        await cluster.start(2)
        await cluster.alter_isr("t", [3, 2])
        assert await elect(cluster, PREFERRED) == {T0: ErrorCode.NONE}
        assert await elect(cluster, PREFERRED) == {}


@in_loop
async def test_an_unclean_election_asked_for_needs_no_configuration(tmp_path: Path) -> None:
    async with cluster_with_topic(tmp_path) as cluster:
        assert await elect(cluster, UNCLEAN, T0) == {T0: ErrorCode.ELECTION_NOT_NEEDED}
        await cluster.alter_isr("t", [2])
        await cluster.kill(2)
        assert await elect(cluster, UNCLEAN, T0) == {T0: ErrorCode.NONE}
        state = await cluster.state("t")
        assert (state.leader, state.isr, state.leader_recovery_state) == (3, [3], 1)
        await cluster.kill(3)
        assert await elect(cluster, UNCLEAN, T0) == {T0: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE}


@in_loop
async def test_what_is_not_there_or_on_its_way_out_is_not_elected(tmp_path: Path) -> None:
    async with cluster_with_topic(tmp_path) as cluster:
        missing = TopicPartition("none", 0)
        assert await elect(cluster, PREFERRED, missing) == {
            missing: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        }
        await cluster.kill(3)
        await cluster.delete_topic("t")
        assert await elect(cluster, PREFERRED, T0) == {T0: ErrorCode.INVALID_TOPIC_EXCEPTION}


@in_loop
async def test_an_unknown_election_type_is_refused(tmp_path: Path) -> None:
    async with cluster_with_topic(tmp_path) as cluster:
        response = await cluster.active.elect_leaders(ElectLeadersRequest(election_type=7))
        assert response.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("everything", [False, True])
@in_loop
async def test_who_is_not_the_controller_says_so(tmp_path: Path, everything: bool) -> None:
    async with cluster_with_topic(tmp_path) as cluster:
        named = None if everything else [TopicPartitions(topic="t", partitions=[0])]
        response = await cluster.controllers[2].elect_leaders(
            ElectLeadersRequest(topic_partitions=named)
        )
        assert response.error_code == ErrorCode.NOT_CONTROLLER
        codes = [
            r.error_code for t in response.replica_election_results for r in t.partition_result
        ]
        assert codes == ([] if everything else [ErrorCode.NOT_CONTROLLER])
