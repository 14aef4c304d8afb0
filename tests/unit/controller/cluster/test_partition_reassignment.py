"""Partitions that are given other replicas: how it goes, and how it is stopped."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.support.fake_cluster import FakeCluster
from tests.support.metadata import in_loop
from tidelog.controller import znodes
from tidelog.errors import ErrorCode
from tidelog.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from tidelog.protocol.messages.elect_leaders import ElectLeadersRequest
from tidelog.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from tidelog.types import TopicPartition

T0 = TopicPartition("t", 0)


@asynccontextmanager
async def cluster_with_topic(tmp_path: Path) -> AsyncIterator[FakeCluster]:
    """Partition 0 of t is on 1 and 2; there are four brokers, 4 being the controller."""
    cluster = FakeCluster(tmp_path)
    await cluster.start(4, 1, 2, 3)
    await cluster.create_topic("t", [[1, 2]])
    try:
        yield cluster
    finally:
        await cluster.close()


async def reassign(
    cluster: FakeCluster,
    replicas: Sequence[int] | None,
    partition: int = 0,
    topic: str = "t",
    *,
    may_change_factor: bool = True,
) -> int:
    row = ReassignablePartition(
        partition_index=partition, replicas=None if replicas is None else list(replicas)
    )
    request = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name=topic, partitions=[row])],
        allow_replication_factor_change=may_change_factor,
    )
    response = await cluster.active.alter_partition_reassignments(request)
    response.encode(1)
    await cluster.settle()
    assert response.error_code == ErrorCode.NONE
    return response.responses[0].partitions[0].error_code


async def listed(
    cluster: FakeCluster, *partitions: int
) -> dict[TopicPartition, tuple[list[int], list[int], list[int]]]:
    topics = [ListPartitionReassignmentsTopics(name="t", partition_indexes=list(partitions))]
    request = ListPartitionReassignmentsRequest(topics=topics if partitions else None)
    response = await cluster.active.list_partition_reassignments(request)
    response.encode(0)
    return {
        TopicPartition(topic.name, row.partition_index): (
            row.replicas,
            row.adding_replicas,
            row.removing_replicas,
        )
        for topic in response.topics
        for row in topic.partitions
    }


@in_loop
async def test_replicas_are_added_and_the_old_ones_go_once_the_new_are_in_sync(
    tmp_path: Path,
) -> None:
    async with cluster_with_topic(tmp_path) as cluster:
        assert await reassign(cluster, [3, 4]) == ErrorCode.NONE
        assignment = await cluster.assignment("t")
        assert assignment.partitions == {0: [3, 4, 1, 2]}
        assert assignment.adding_replicas == {0: [3, 4]}
        assert assignment.removing_replicas == {0: [1, 2]}
        assert await listed(cluster) == {T0: ([3, 4, 1, 2], [3, 4], [1, 2])}
        leader = cluster.brokers[1].hosted[T0]
        assert (leader.leader, leader.leader_epoch) == (1, 1)
        assert leader.adding_replicas == [3, 4]
        assert cluster.brokers[3].hosted[T0].is_new
        assert not cluster.brokers[1].hosted[T0].is_new

        await cluster.alter_isr("t", [1, 2, 3])
        assert (await cluster.assignment("t")).adding_replicas == {0: [3, 4]}
        await cluster.alter_isr("t", [1, 2, 3, 4])
        assignment = await cluster.assignment("t")
        assert assignment.partitions == {0: [3, 4]}
        assert assignment.adding_replicas == assignment.removing_replicas == {}
        state = await cluster.state("t")
        assert (state.leader, state.isr) == (3, [3, 4])
        for old in (1, 2):
            assert cluster.brokers[old].deleted == [T0]
        assert cluster.brokers[4].hosted[T0].leader == 3
        assert cluster.brokers[1].metadata[T0].replicas == [3, 4]
        assert await listed(cluster) == {}


@in_loop
async def test_a_leader_that_stays_keeps_leading_with_a_new_epoch(tmp_path: Path) -> None:
    async with cluster_with_topic(tmp_path) as cluster:
        await reassign(cluster, [1, 3])
        before = (await cluster.state("t")).leader_epoch
        await cluster.alter_isr("t", [1, 2, 3])
        state = await cluster.state("t")
        assert (state.leader, state.isr) == (1, [1, 3])
        assert state.leader_epoch > before
        assert cluster.brokers[2].deleted == [T0]


@in_loop
async def test_another_order_of_the_same_replicas_needs_no_copying(tmp_path: Path) -> None:
    async with cluster_with_topic(tmp_path) as cluster:
        assert await reassign(cluster, [2, 1]) == ErrorCode.NONE
        assert (await cluster.assignment("t")).partitions == {0: [2, 1]}
        assert (await cluster.state("t")).leader == 1, "moving it is another matter"
        assert cluster.brokers[1].deleted == []


@in_loop
async def test_a_reassignment_is_cancelled(tmp_path: Path) -> None:
    async with cluster_with_topic(tmp_path) as cluster:
        await reassign(cluster, [3, 1])
        assert await reassign(cluster, None) == ErrorCode.NONE
        assignment = await cluster.assignment("t")
        assert sorted(assignment.partitions[0]) == [1, 2]
        assert assignment.adding_replicas == {}
        assert cluster.brokers[3].deleted == [T0]
        assert (await cluster.state("t")).leader == 1
        assert await reassign(cluster, None) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


@in_loop
async def test_a_later_reassignment_supersedes_the_first(tmp_path: Path) -> None:
    async with cluster_with_topic(tmp_path) as cluster:
        await reassign(cluster, [3])
        await reassign(cluster, [4, 2])
        assert cluster.brokers[3].deleted == [T0]
        assert await listed(cluster, 0, 5) == {T0: ([4, 2, 1], [4], [1])}
        await cluster.alter_isr("t", [1, 2, 4])
        assert (await cluster.assignment("t")).partitions == {0: [4, 2]}


@asynccontextmanager
async def led_by_an_added_replica(tmp_path: Path) -> AsyncIterator[FakeCluster]:
    """t moves to 3 and 4; 3 is in sync already and leads."""
    async with cluster_with_topic(tmp_path) as cluster:
        await reassign(cluster, [3, 4])
        await cluster.alter_isr("t", [1, 2, 3])
        await cluster.active.elect_leaders(ElectLeadersRequest(topic_partitions=None))
        await cluster.settle()
        assert (await cluster.state("t")).leader == 3
        yield cluster


@in_loop
async def test_superseding_a_reassignment_whose_new_replica_leads_elects_another_leader(
    tmp_path: Path,
) -> None:
    async with led_by_an_added_replica(tmp_path) as cluster:
        assert await reassign(cluster, [4, 2]) == ErrorCode.NONE
        state = await cluster.state("t")
        assert (state.leader, state.isr) == (2, [1, 2])
        assert cluster.brokers[3].deleted == [T0]
        assert cluster.brokers[4].hosted[T0].leader == 2
        await cluster.alter_isr("t", [1, 2, 4])
        assert (await cluster.assignment("t")).partitions == {0: [4, 2]}


@pytest.mark.parametrize("target", [None, [4, 2]])
@in_loop
async def test_the_last_replica_in_sync_is_not_dropped_by_a_cancelled_or_later_reassignment(
    tmp_path: Path, target: list[int] | None
) -> None:
    async with led_by_an_added_replica(tmp_path) as cluster:
        await cluster.kill(1, 2)
        await cluster.start(1, 2)
        assert (await cluster.state("t")).isr == [3]
        assert await reassign(cluster, target) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
        if target is not None:
            await cluster.store.create(
                "/admin/reassign_partitions", znodes.encode_reassignment({T0: target})
            )
            await cluster.settle()
            assert await cluster.store.exists("/admin/reassign_partitions") is None
        assert await listed(cluster) == {T0: ([3, 4, 1, 2], [3, 4], [1, 2])}
        assert (cluster.brokers[3].deleted, (await cluster.state("t")).leader) == ([], 3)
        await cluster.alter_isr("t", [3, 1])
        assert await reassign(cluster, target) == ErrorCode.NONE
        assert (await cluster.state("t")).leader == 1


@pytest.mark.parametrize(
    ("replicas", "may_change_factor", "code"),
    [
        ([], True, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([1, 1], True, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([-1], True, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([1, 9], True, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([1], False, ErrorCode.INVALID_REPLICATION_FACTOR),
        ([3, 4], False, ErrorCode.NONE),
    ],
)
@in_loop
async def test_refused(
    tmp_path: Path, replicas: list[int], may_change_factor: bool, code: ErrorCode
) -> None:
    async with cluster_with_topic(tmp_path) as cluster:
        assert await reassign(cluster, replicas, may_change_factor=may_change_factor) == code


@in_loop
async def test_what_does_not_exist_or_is_on_its_way_out_cannot_be_reassigned(
    tmp_path: Path,
) -> None:
    async with cluster_with_topic(tmp_path) as cluster:
        missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await reassign(cluster, [3], partition=7) == missing
        assert await reassign(cluster, [3], topic="none") == missing
        await cluster.kill(2)
        await cluster.delete_topic("t")
        assert await reassign(cluster, [3]) == missing


@in_loop
async def test_who_is_not_the_controller_says_so(tmp_path: Path) -> None:
    async with cluster_with_topic(tmp_path) as cluster:
        other = cluster.controllers[1]
        altered = await other.alter_partition_reassignments(AlterPartitionReassignmentsRequest())
        assert altered.error_code == ErrorCode.NOT_CONTROLLER
        shown = await other.list_partition_reassignments(ListPartitionReassignmentsRequest())
        assert shown.error_code == ErrorCode.NOT_CONTROLLER


@in_loop
async def test_a_new_controller_goes_on_with_reassignments(tmp_path: Path) -> None:
    async with cluster_with_topic(tmp_path) as cluster:
        await reassign(cluster, [3])
        await cluster.kill(4)
        assert await listed(cluster) == {T0: ([3, 1, 2], [3], [1, 2])}
        await cluster.alter_isr("t", [1, 2, 3])
        assert (await cluster.assignment("t")).partitions == {0: [3]}
        assert (await cluster.state("t")).leader == 3


@in_loop
async def test_a_reassignment_goes_on_when_a_broker_it_waits_for_comes_back(
    tmp_path: Path,
) -> None:
    async with cluster_with_topic(tmp_path) as cluster:
        await reassign(cluster, [3])
        await cluster.kill(3)
        await cluster.start(3)
        assert cluster.brokers[3].hosted[T0].leader == 1
        await cluster.alter_isr("t", [1, 2, 3])
        assert (await cluster.assignment("t")).partitions == {0: [3]}


@in_loop
async def test_the_reassignment_node_of_old_tools_is_worked_off_and_goes(tmp_path: Path) -> None:
    async with cluster_with_topic(tmp_path) as cluster:
        await cluster.create_topic("u", [[1, 2]])
        for target in ([3], [4]):
            wanted = {T0: target, TopicPartition("u", 0): target, TopicPartition("no", 0): [1]}
            await cluster.store.create(
                "/admin/reassign_partitions", znodes.encode_reassignment(wanted)
            )
            await cluster.settle()
            data, _ = await cluster.store.get("/admin/reassign_partitions")
            assert znodes.decode_reassignment(data).keys() == {T0, ("u", 0)}
            leaders = []
            for topic in ("t", "u"):
                state = await cluster.state(topic)
                epoch_before = state.leader_epoch
                await cluster.alter_isr(topic, [*state.isr, *target])
                leaders.append((await cluster.state(topic)).leader)
                assert (await cluster.state(topic)).leader_epoch > epoch_before
            assert leaders == [*target, *target]
            assert await cluster.store.exists("/admin/reassign_partitions") is None


@in_loop
async def test_a_reassignment_by_request_takes_a_partition_out_of_the_node(tmp_path: Path) -> None:
    async with cluster_with_topic(tmp_path) as cluster:
        await cluster.store.create(
            "/admin/reassign_partitions", znodes.encode_reassignment({T0: [3]})
        )
        await cluster.settle()
        await reassign(cluster, [4])
        assert await cluster.store.exists("/admin/reassign_partitions") is None
        assert await listed(cluster) == {T0: ([4, 1, 2], [4], [1, 2])}


@in_loop
async def test_deletion_waits_for_a_reassignment(tmp_path: Path) -> None:
    async with cluster_with_topic(tmp_path) as cluster:
        await reassign(cluster, [3, 1])
        await cluster.delete_topic("t")
        assert await cluster.topic_exists("t")
        await cluster.alter_isr("t", [1, 2, 3])
        assert not await cluster.topic_exists("t")


@in_loop
async def test_partitions_added_while_others_are_reassigned_are_kept(tmp_path: Path) -> None:
    """Kafka's controller would overwrite them."""
    async with cluster_with_topic(tmp_path) as cluster:
        cluster.sessions[4].deaf = True
        stored = await cluster.assignment("t")
        grown = stored._replace(partitions={**stored.partitions, 1: [2]})
        await cluster.store.set("/brokers/topics/t", znodes.encode_assignment(grown))
        assert await reassign(cluster, [3, 1]) == ErrorCode.NONE
        assert (await cluster.assignment("t")).partitions == {0: [3, 1, 2], 1: [2]}


@in_loop
async def test_a_new_replica_is_online_where_an_earlier_one_lost_its_directory(
    tmp_path: Path,
) -> None:
    async with cluster_with_topic(tmp_path) as cluster:
        cluster.brokers[1].lost_dirs.add(T0)
        event = f"{znodes.LOG_DIR_EVENTS}/log_dir_event_"
        await cluster.store.create(event, znodes.encode_log_dir_event(1), sequence=True)
        await cluster.settle()
        assert (await cluster.state("t")).isr == [2]
        assert await reassign(cluster, [2]) == ErrorCode.NONE
        await cluster.delete_topic("t")
        cluster.brokers[1].lost_dirs.clear()  # other directories of the broker are fine
        await cluster.create_topic("t", [[1, 2]])
        state = await cluster.state("t")
        assert (state.leader, state.isr) == (1, [1, 2])
