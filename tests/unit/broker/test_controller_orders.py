"""LeaderAndIsr, StopReplica and UpdateMetadata: who is obeyed, and what becomes of partitions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from tests.support.batches import simple_batch
from tests.support.handlers import HandlerStage, handler_stage
from tests.support.loop_turns import LoopTurns, counted_slices
from tests.support.metadata import in_loop, refused
from tests.support.share_coordinator import SHARE_GROUP_STATE, ShareCoordinator
from tidelog.broker.context import CloseConnection
from tidelog.broker.handlers import leader_and_isr, stop_replica, update_metadata
from tidelog.broker.leadership_changes import LeadershipChanges
from tidelog.coordinator.registry import Coordinators
from tidelog.errors import ErrorCode, KafkaError
from tidelog.log import log_loader
from tidelog.log.directory.checkpoints import write_partition_metadata
from tidelog.protocol.messages.leader_and_isr import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicState,
)
from tidelog.protocol.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)
from tidelog.protocol.messages.update_metadata import UpdateMetadataRequest
from tidelog.replication.partition import Partition
from tidelog.replication.partition_host import PartitionHost
from tidelog.replication.replica_manager import ReplicaManager
from tidelog.types import TopicPartition, Uuid

TOPIC_ID = Uuid(bytes(range(16)))
OTHER_ID = Uuid(bytes(range(1, 17)))


class FakeFetchers:
    def __init__(self) -> None:
        self.followed: dict[Partition, int] = {}

    def follow(self, partition: Partition) -> None:
        self.followed[partition] = partition.leader_id

    def unfollow(self, partition: Partition) -> None:
        self.followed.pop(partition, None)

    def close_idle(self) -> None: ...

    def close(self) -> None: ...


class FakeCluster:
    """What the handlers see of a broker's place in its cluster."""

    def __init__(self, stage: HandlerStage) -> None:
        self.broker_epoch = 50
        self.controller_epoch = 3
        self.orders = asyncio.Lock()
        self.fetchers = FakeFetchers()
        self.host = PartitionHost(
            stage.broker.broker_id,
            stage.clock,
            lambda partition: None,
            replica_lag_time_max_ms=10_000,
        )
        self.leadership = LeadershipChanges(stage.broker, self.host, cast(Any, self.fetchers))
        self.learnt: set[str] = set()
        self.updates: list[UpdateMetadataRequest] = []
        self.heard = 0
        self.store_is_gone = False

    async def learn_topics(self, names: set[str]) -> None:
        if self.store_is_gone:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "The configuration cannot be read.")
        self.learnt |= names

    def learn_addresses(self, leaders: list[LeaderAndIsrLiveLeader]) -> None: ...

    async def update_metadata(
        self, request: UpdateMetadataRequest, must_go_on: Callable[[], object]
    ) -> None:
        self.updates.append(request)

    def heard_from_controller(self, broker_epoch: int) -> None:
        self.heard += broker_epoch == self.broker_epoch


class Stage:
    def __init__(self, handlers: HandlerStage) -> None:
        self.broker = handlers.broker
        self.handlers = handlers
        self.cluster = FakeCluster(handlers)
        handlers.broker.cluster = cast(Any, self.cluster)

    async def order(
        self,
        leader: int,
        epoch: int,
        *,
        index: int = 0,
        topic: str = "t",
        topic_id: Uuid = TOPIC_ID,
        replicas: tuple[int, ...] = (0, 1),
        isr: tuple[int, ...] | None = None,
        controller_epoch: int = 3,
        broker_epoch: int = 50,
        version: int = 7,
    ) -> LeaderAndIsrResponse:
        row = LeaderAndIsrPartitionState(
            topic_name=topic,
            partition_index=index,
            leader=leader,
            leader_epoch=epoch,
            replicas=list(replicas),
            isr=list(replicas if isr is None else isr),
            partition_epoch=epoch,
        )
        request = LeaderAndIsrRequest(
            controller_id=1,
            controller_epoch=controller_epoch,
            broker_epoch=broker_epoch,
            topic_states=[
                LeaderAndIsrTopicState(topic_name=topic, topic_id=topic_id, partition_states=[row])
            ],
        )
        response = await leader_and_isr.handle(self.handlers.context(version), request)
        if isinstance(response, CloseConnection):
            raise ConnectionError(response.reason)
        return response

    async def order_many(self, leader: int, count: int) -> LeaderAndIsrResponse:
        rows = [
            LeaderAndIsrPartitionState(
                partition_index=n, leader=leader, leader_epoch=1, replicas=[0, 1], isr=[0, 1]
            )
            for n in range(count)
        ]
        states = [LeaderAndIsrTopicState(topic_name="t", topic_id=TOPIC_ID, partition_states=rows)]
        request = LeaderAndIsrRequest(
            controller_id=1, controller_epoch=3, broker_epoch=50, topic_states=states
        )
        response = await leader_and_isr.handle(self.handlers.context(7), request)
        assert isinstance(response, LeaderAndIsrResponse)
        return response

    async def stop_many(self, count: int) -> Any:
        rows = [
            StopReplicaPartitionState(partition_index=n, leader_epoch=-2, delete_partition=True)
            for n in range(count)
        ]
        request = StopReplicaRequest(
            controller_epoch=3,
            broker_epoch=50,
            topic_states=[StopReplicaTopicState(topic_name="t", partition_states=rows)],
        )
        return await stop_replica.handle(self.handlers.context(4), request)

    async def stop(self, epoch: int, *, delete: bool = False, **fields: int) -> Any:
        row = StopReplicaPartitionState(
            partition_index=0, leader_epoch=epoch, delete_partition=delete
        )
        request = StopReplicaRequest(
            controller_epoch=fields.get("controller_epoch", 3),
            broker_epoch=fields.get("broker_epoch", 50),
            topic_states=[StopReplicaTopicState(topic_name="t", partition_states=[row])],
        )
        return await stop_replica.handle(self.handlers.context(4), request)

    @property
    def partition(self) -> Partition:
        return self.handlers.partition("t")


@asynccontextmanager
async def cluster_stage(directory: Path) -> AsyncIterator[Stage]:
    async with handler_stage(directory) as handlers:
        yield Stage(handlers)


def code_of(response: LeaderAndIsrResponse) -> int:
    return response.topics[0].partition_errors[0].error_code


@in_loop
async def test_a_broker_leads_what_it_is_told_to_lead(tmp_path: Path) -> None:
    async with cluster_stage(tmp_path) as stage:
        response = await stage.order(leader=0, epoch=4)
        assert (response.error_code, code_of(response)) == (0, 0)
        assert response.topics[0].topic_id == TOPIC_ID
        assert stage.partition.is_leader
        assert stage.partition.leader_epoch == 4
        assert stage.cluster.learnt == {"t"}
        assert stage.cluster.heard == 1


@in_loop
async def test_a_broker_copies_from_the_leader_it_is_told(tmp_path: Path) -> None:
    async with cluster_stage(tmp_path) as stage:
        await stage.order(leader=1, epoch=4)
        assert not stage.partition.is_leader
        assert stage.cluster.fetchers.followed == {stage.partition: 1}
        await stage.order(leader=0, epoch=5)
        assert stage.cluster.fetchers.followed == {}
        assert stage.partition.is_leader


@in_loop
async def test_a_new_leader_flushes_what_it_holds_where_that_is_demanded(tmp_path: Path) -> None:
    async with cluster_stage(tmp_path) as stage:
        await stage.order(leader=1, epoch=4)
        log = stage.partition.log
        log.update_config(replace(log.config, flush_messages=1))
        stage.partition.append_from_leader(memoryview(simple_batch(3)), 0)
        await stage.order(leader=0, epoch=5, replicas=(0,))
        assert log.high_watermark == 0
        await stage.broker.flusher.drain()
        assert log.high_watermark == 3


@in_loop
async def test_a_broker_without_a_session_leads_only_what_nobody_else_has(tmp_path: Path) -> None:
    async with cluster_stage(tmp_path) as stage:
        await stage.order(leader=0, epoch=4)
        await stage.order(leader=0, epoch=4, topic="alone", topic_id=OTHER_ID, replicas=(0,))
        stage.cluster.leadership.resign_all(50)
        assert not stage.partition.is_leader
        assert stage.handlers.partition("alone").is_leader


@in_loop
async def test_a_broker_leads_again_in_the_old_epoch_where_nobody_has_seen_it_go(
    tmp_path: Path,
) -> None:
    """A Kafka controller that is elected after this broker has registered anew goes by the state
    nodes as they are.
    """
    async with cluster_stage(tmp_path) as stage:
        await stage.order(leader=0, epoch=4)
        stage.cluster.leadership.resign_all(50)
        late = await stage.order(leader=0, epoch=4)
        assert code_of(late) == ErrorCode.STALE_CONTROLLER_EPOCH, "for the life that is over"
        assert not stage.partition.is_leader
        older = await stage.order(leader=0, epoch=3, broker_epoch=51)
        assert code_of(older) == ErrorCode.STALE_CONTROLLER_EPOCH
        again = await stage.order(leader=0, epoch=4, broker_epoch=51)
        assert code_of(again) == ErrorCode.NONE
        assert stage.partition.is_leader
        assert stage.partition.leadership is not None
        once_more = await stage.order(leader=0, epoch=4, broker_epoch=51)
        assert code_of(once_more) == ErrorCode.STALE_CONTROLLER_EPOCH


@in_loop
async def test_a_partition_without_leader_is_not_copied(tmp_path: Path) -> None:
    async with cluster_stage(tmp_path) as stage:
        await stage.order(leader=1, epoch=4)
        await stage.order(leader=-1, epoch=5)
        assert stage.cluster.fetchers.followed == {}


@in_loop
async def test_a_partition_without_leader_takes_no_records(tmp_path: Path) -> None:
    async with cluster_stage(tmp_path) as stage:
        await stage.order(leader=0, epoch=4)
        await stage.order(leader=-1, epoch=5)
        with refused(ErrorCode.NOT_LEADER_OR_FOLLOWER):
            stage.broker.replicas.leader("t", 0)


@in_loop
async def test_a_broker_that_leaves_does_not_follow_what_it_has_given_away(
    tmp_path: Path,
) -> None:
    async with cluster_stage(tmp_path) as stage:
        await stage.order(leader=0, epoch=4)
        stage.cluster.leadership.is_leaving = True
        await stage.order(leader=1, epoch=5, isr=(1,))
        assert not stage.partition.is_leader
        assert stage.cluster.fetchers.followed == {}


@in_loop
async def test_a_broker_that_leaves_follows_where_it_is_waited_for(tmp_path: Path) -> None:
    async with cluster_stage(tmp_path) as stage:
        stage.cluster.leadership.is_leaving = True
        await stage.order(leader=1, epoch=4, isr=(0, 1))
        assert stage.cluster.fetchers.followed == {stage.partition: 1}


@pytest.mark.parametrize("epoch", [3, 4])
@in_loop
async def test_an_epoch_that_is_not_newer_is_refused(tmp_path: Path, epoch: int) -> None:
    async with cluster_stage(tmp_path) as stage:
        await stage.order(leader=0, epoch=4)
        response = await stage.order(leader=1, epoch=epoch)
        assert code_of(response) == ErrorCode.STALE_CONTROLLER_EPOCH
        assert stage.partition.is_leader


@in_loop
async def test_another_topic_of_the_same_name_is_refused(tmp_path: Path) -> None:
    async with cluster_stage(tmp_path) as stage:
        await stage.order(leader=0, epoch=4)
        response = await stage.order(leader=1, epoch=5, topic_id=OTHER_ID)
        assert code_of(response) == ErrorCode.INCONSISTENT_TOPIC_ID


@in_loop
async def test_a_partition_that_is_not_assigned_here_is_refused(tmp_path: Path) -> None:
    async with cluster_stage(tmp_path) as stage:
        response = await stage.order(leader=1, epoch=4, replicas=(1, 2))
        assert code_of(response) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert stage.broker.replicas.get("t", 0) is None


@in_loop
async def test_a_replaced_controller_is_not_obeyed(tmp_path: Path) -> None:
    async with cluster_stage(tmp_path) as stage:
        response = await stage.order(leader=0, epoch=4, controller_epoch=2)
        assert response.error_code == ErrorCode.STALE_CONTROLLER_EPOCH
        assert stage.broker.replicas.get("t", 0) is None
        stopped = await stage.stop(4, controller_epoch=2)
        assert stopped.error_code == ErrorCode.STALE_CONTROLLER_EPOCH
        update = UpdateMetadataRequest(controller_epoch=2, broker_epoch=50)
        updated = await update_metadata.handle(stage.handlers.context(8), update)
        assert updated.error_code == ErrorCode.STALE_CONTROLLER_EPOCH
        assert stage.cluster.updates == []


@in_loop
async def test_an_order_that_cannot_be_carried_out_now_is_sent_again(tmp_path: Path) -> None:
    """An error would be an answer: the controller would take the partition for hosted."""
    async with cluster_stage(tmp_path) as stage:
        stage.cluster.store_is_gone = True
        with pytest.raises(ConnectionError):
            await stage.order(leader=0, epoch=4)
        assert stage.broker.replicas.get("t", 0) is None
        stage.cluster.store_is_gone = False
        assert code_of(await stage.order(leader=0, epoch=4)) == ErrorCode.NONE


@in_loop
async def test_a_newer_controller_is_remembered(tmp_path: Path) -> None:
    async with cluster_stage(tmp_path) as stage:
        await stage.order(leader=0, epoch=4, controller_epoch=5)
        response = await stage.order(leader=0, epoch=5, controller_epoch=4)
        assert response.error_code == ErrorCode.STALE_CONTROLLER_EPOCH


@in_loop
async def test_orders_for_a_former_life_are_not_obeyed(tmp_path: Path) -> None:
    async with cluster_stage(tmp_path) as stage:
        response = await stage.order(leader=0, epoch=4, broker_epoch=49)
        assert response.error_code == ErrorCode.STALE_BROKER_EPOCH
        stopped = await stage.stop(4, broker_epoch=49)
        assert stopped.error_code == ErrorCode.STALE_BROKER_EPOCH
        update = UpdateMetadataRequest(controller_epoch=3, broker_epoch=49)
        updated = await update_metadata.handle(stage.handlers.context(8), update)
        assert updated.error_code == ErrorCode.STALE_BROKER_EPOCH
        assert stage.cluster.heard == 0


@in_loop
async def test_old_versions_answer_by_topic_name(tmp_path: Path) -> None:
    async with cluster_stage(tmp_path) as stage:
        response = await stage.order(leader=0, epoch=4, version=4)
        (row,) = response.partition_errors
        assert (row.topic_name, row.partition_index, row.error_code) == ("t", 0, 0)


@in_loop
async def test_a_stopped_replica_serves_nothing_and_keeps_its_log(tmp_path: Path) -> None:
    async with cluster_stage(tmp_path) as stage:
        await stage.order(leader=0, epoch=4)
        stopped = await stage.stop(5)
        assert [row.error_code for row in stopped.partition_errors] == [0]
        assert not stage.partition.is_leader
        assert stage.broker.logs.get(TopicPartition("t", 0)) is not None


@in_loop
async def test_a_deleted_replica_goes_with_its_log(tmp_path: Path) -> None:
    async with cluster_stage(tmp_path) as stage:
        await stage.order(leader=1, epoch=4)
        await stage.stop(-2, delete=True)
        assert stage.broker.replicas.get("t", 0) is None
        assert stage.broker.logs.get(TopicPartition("t", 0)) is None
        assert stage.cluster.fetchers.followed == {}


@in_loop
async def test_a_stop_of_an_older_epoch_is_fenced(tmp_path: Path) -> None:
    async with cluster_stage(tmp_path) as stage:
        await stage.order(leader=0, epoch=4)
        stopped = await stage.stop(3, delete=True)
        assert [row.error_code for row in stopped.partition_errors] == [
            ErrorCode.FENCED_LEADER_EPOCH
        ]
        assert stage.partition.is_leader


@in_loop
async def test_coordinators_move_with_their_partitions(tmp_path: Path) -> None:
    async with cluster_stage(tmp_path) as stage:
        groups = stage.broker.groups
        groups.runtime.partition_count = 1
        await stage.order(leader=0, epoch=0, topic="__consumer_offsets")
        assert groups.runtime.shard_for("any") is not None
        await stage.order(leader=1, epoch=1, topic="__consumer_offsets")
        from tests.support.metadata import refused

        with refused(ErrorCode.NOT_COORDINATOR):
            groups.runtime.shard_for("any")


@in_loop
async def test_a_coordinator_that_was_added_moves_with_its_partitions(tmp_path: Path) -> None:
    async with cluster_stage(tmp_path) as stage:
        third = ShareCoordinator(stage.broker)
        stage.broker.coordinators = Coordinators(*stage.broker.coordinators, third)
        await stage.order(leader=0, epoch=0, topic=SHARE_GROUP_STATE)
        assert third.led == [0]
        await stage.order(leader=1, epoch=1, topic=SHARE_GROUP_STATE)
        assert (third.led, third.unloaded) == ([], [0])


@in_loop
async def test_a_lone_broker_takes_no_orders(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as handlers:
        request = UpdateMetadataRequest(controller_epoch=1, broker_epoch=1)
        response = await update_metadata.handle(handlers.context(8), request)
        assert response.error_code == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize("leader", [0, 1])
@in_loop
async def test_an_order_about_many_partitions_is_carried_out_a_slice_a_turn(
    tmp_path: Path, leader: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster_stage(tmp_path) as stage, LoopTurns() as turns:
        stage.broker.slices = counted_slices(20)
        for owner, name in (
            (Partition, "make_leader"),
            (Partition, "make_follower"),
            (ReplicaManager, "drop"),
        ):
            monkeypatch.setattr(owner, name, counted(turns, getattr(owner, name)))

        response = await stage.order_many(leader, 250)
        assert {row.error_code for row in response.topics[0].partition_errors} == {0}
        assert [each.leader_id for each in stage.broker.replicas] == [leader] * 250
        stopped = await stage.stop_many(250)

        assert {row.error_code for row in stopped.partition_errors} == {0}
        assert len(stage.broker.replicas) == 0
        assert turns.total == 500
        assert turns.most <= 20


def counted(turns: LoopTurns, method: Any) -> Any:
    def call(*args: Any) -> Any:
        turns.note()
        return method(*args)

    return call


@in_loop
async def test_an_order_for_a_life_that_ends_meanwhile_goes_no_further(tmp_path: Path) -> None:
    async with cluster_stage(tmp_path) as stage:
        stage.broker.slices = counted_slices(20)
        order = asyncio.ensure_future(stage.order_many(0, 250))
        while not len(stage.broker.replicas):
            await asyncio.sleep(0)
        stage.cluster.broker_epoch = 51

        response = await order

        assert response.error_code == ErrorCode.STALE_BROKER_EPOCH
        assert 0 < len(stage.broker.replicas) < 250


@in_loop
async def test_a_broker_that_stops_obeys_no_order_any_more(tmp_path: Path) -> None:
    async with cluster_stage(tmp_path) as stage:
        stage.broker.slices = counted_slices(20)
        order = asyncio.ensure_future(stage.order_many(1, 250))
        while not len(stage.broker.replicas):
            await asyncio.sleep(0)
        stage.cluster.leadership.stop_all()
        followed = len(stage.cluster.fetchers.followed)

        response = await order

        assert response.error_code == ErrorCode.STALE_BROKER_EPOCH
        assert len(stage.cluster.fetchers.followed) == followed


def failing_for(index: int, method: Any) -> Any:
    def call(self: Any, *args: Any) -> Any:
        topic_partition = self.topic_partition if isinstance(self, Partition) else args[0]
        if topic_partition.partition == index:
            raise KeyError("a bug")
        return method(self, *args)

    return call


def logged_bugs(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        record.message.partition(" failed")[0]
        for record in caplog.records
        if record.exc_info and isinstance(record.exc_info[1], KeyError)
    ]


@pytest.mark.parametrize(("leader", "method"), [(0, "make_leader"), (1, "make_follower")])
@in_loop
async def test_a_partition_that_fails_unexpectedly_fails_alone(
    tmp_path: Path,
    leader: int,
    method: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(Partition, method, failing_for(1, getattr(Partition, method)))
    async with cluster_stage(tmp_path) as stage:
        response = await stage.order_many(leader, 3)
        codes = [row.error_code for row in response.topics[0].partition_errors]
        assert codes == [0, ErrorCode.KAFKA_STORAGE_ERROR, 0]
        assert [each.leader_id for each in stage.broker.replicas] == [leader, -1, leader]
        assert logged_bugs(caplog) == ["the controller's order for t-1"]


@in_loop
async def test_a_partition_is_not_led_without_its_coordinator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster_stage(tmp_path) as stage:
        runtime = stage.broker.groups.runtime

        def fail(partition: Partition) -> None:
            raise KeyError("a bug")

        with monkeypatch.context() as broken:
            broken.setattr(runtime, "lead", fail)
            response = await stage.order(leader=0, epoch=1, topic="__consumer_offsets")
        assert code_of(response) == ErrorCode.KAFKA_STORAGE_ERROR
        partition = stage.handlers.partition("__consumer_offsets")
        assert not partition.is_leader
        assert code_of(await stage.order(leader=0, epoch=2, topic="__consumer_offsets")) == 0
        assert partition.is_leader


@in_loop
async def test_a_log_that_cannot_be_made_for_an_unexpected_reason_is_missed_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(directory: str, topic_id: Uuid) -> None:
        if directory.endswith("t-1"):
            raise KeyError("a bug")
        write_partition_metadata(directory, topic_id)

    async with cluster_stage(tmp_path) as stage:
        with monkeypatch.context() as broken:
            broken.setattr(log_loader, "write_partition_metadata", write)
            response = await stage.order_many(0, 3)
        codes = [row.error_code for row in response.topics[0].partition_errors]
        assert codes == [0, ErrorCode.KAFKA_STORAGE_ERROR, 0]
        assert code_of(await stage.order(leader=0, epoch=2, index=1)) == 0


@in_loop
async def test_a_replica_whose_stop_fails_unexpectedly_fails_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(ReplicaManager, "drop", failing_for(1, ReplicaManager.drop))
    async with cluster_stage(tmp_path) as stage:
        await stage.order_many(0, 3)
        stopped = await stage.stop_many(3)
        codes = [row.error_code for row in stopped.partition_errors]
        assert codes == [0, ErrorCode.UNKNOWN_SERVER_ERROR, 0]
        assert logged_bugs(caplog) == ["stopping t-1"]
