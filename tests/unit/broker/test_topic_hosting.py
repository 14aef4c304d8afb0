"""Topics of many partitions come and go while the loop serves others."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.support.batches import simple_batch
from tests.support.handlers import HandlerStage, handler_stage
from tests.support.loop_turns import LoopTurns, counted_slices
from tests.support.metadata import in_loop
from tests.support.new_offsets import new_offset
from tidelog.broker.handlers import create_topics, produce
from tidelog.controller.topics import TopicChange, TopicImage
from tidelog.errors import ErrorCode
from tidelog.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tidelog.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tidelog.replication.replica_manager import ReplicaManager

MANY = 450
PER_SLICE = 20


async def create(stage: HandlerStage, name: str = "t", timeout_ms: int = 60_000) -> int:
    row = CreatableTopic(name=name, num_partitions=MANY, replication_factor=1)
    request = CreateTopicsRequest(topics=[row], timeout_ms=timeout_ms)
    response = await create_topics.handle(stage.context(7), request)
    return response.topics[0].error_code


def produce_to(stage: HandlerStage, index: int) -> int:
    data = PartitionProduceData(index=index, records=memoryview(bytearray(simple_batch(1))))
    request = ProduceRequest(
        acks=1, timeout_ms=1000, topic_data=[TopicProduceData(name="t", partition_data=[data])]
    )
    response: Any = produce.handle(stage.context(9), request)
    code: int = response.responses[0].partition_responses[0].error_code
    return code


async def until_some_are_hosted(stage: HandlerStage) -> None:
    while not len(stage.broker.replicas):
        await asyncio.sleep(0)


@in_loop
async def test_partitions_are_hosted_and_dropped_a_slice_a_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with handler_stage(tmp_path) as stage, LoopTurns() as hosted, LoopTurns() as dropped:
        stage.broker.slices = counted_slices(PER_SLICE)
        host, drop = ReplicaManager.host, ReplicaManager.drop

        def counted_host(self: ReplicaManager, *args: Any, **options: Any) -> None:
            hosted.note()
            host(self, *args, **options)

        def counted_drop(self: ReplicaManager, *args: Any) -> None:
            dropped.note()
            drop(self, *args)

        monkeypatch.setattr(ReplicaManager, "host", counted_host)
        monkeypatch.setattr(ReplicaManager, "drop", counted_drop)

        assert await create(stage) == ErrorCode.NONE
        assert len(stage.broker.replicas) == MANY
        await stage.broker.topics.delete("t")

        assert len(stage.broker.replicas) == 0
        assert (hosted.total, dropped.total) == (MANY, MANY)
        assert max(hosted.most, dropped.most) <= PER_SLICE


@in_loop
async def test_no_folder_of_a_new_partition_is_made_on_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    makers: list[threading.Thread] = []
    mkdir = os.mkdir

    def noted_mkdir(path: str, *args: Any) -> None:
        makers.append(threading.current_thread())
        mkdir(path, *args)

    async with handler_stage(tmp_path) as stage:
        monkeypatch.setattr(os, "mkdir", noted_mkdir)

        await create(stage)

        assert len(makers) == MANY
        assert threading.main_thread() not in makers


@in_loop
async def test_a_partition_that_is_not_hosted_yet_is_asked_for_again(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        stage.broker.slices = counted_slices(PER_SLICE)
        creation = asyncio.ensure_future(create(stage))
        await until_some_are_hosted(stage)

        assert produce_to(stage, 0) == ErrorCode.NONE
        assert produce_to(stage, MANY - 1) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert produce_to(stage, MANY) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert not creation.done()

        assert await creation == ErrorCode.NONE
        assert produce_to(stage, MANY - 1) == ErrorCode.NONE


@in_loop
async def test_a_creation_that_outlasts_its_timeout_goes_on(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        assert await create(stage, timeout_ms=0) == ErrorCode.REQUEST_TIMED_OUT
        assert len(stage.broker.replicas) < MANY

        await stage.broker.topics.delete("t")  # comes after the creation

        assert len(stage.broker.replicas) == 0
        assert not [
            name for name in os.listdir(tmp_path) if name.startswith("t-") and "." not in name
        ]


@in_loop
async def test_a_deletion_waits_for_the_creation_and_a_creation_for_the_deletion(
    tmp_path: Path,
) -> None:
    async with handler_stage(tmp_path) as stage:
        creation = asyncio.ensure_future(create(stage))
        await until_some_are_hosted(stage)
        deletion = asyncio.ensure_future(stage.broker.topics.delete("t"))
        await asyncio.sleep(0)
        again = asyncio.ensure_future(
            stage.broker.topics.create("t", stage.broker.topics.place(7, 1))
        )

        assert await creation == ErrorCode.NONE
        await deletion
        await again

        assert len(stage.broker.replicas) == 7


@in_loop
async def test_the_offsets_of_a_topic_are_gone_before_its_partitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash in between would leave them to a new topic of that name."""
    async with handler_stage(tmp_path, offsets_topic_num_partitions="1") as stage:
        assert await create(stage) == ErrorCode.NONE
        await stage.broker.topics.auto_create("__consumer_offsets")
        groups = stage.broker.groups
        groups.commit_offsets(
            "g",
            [new_offset("t", 7, 5, 0, "", stage.clock.time_ms())],
            generation_id=-1,
            member_id="",
            group_instance_id=None,
            knows_member_epochs=True,
        )
        left: list[int] = []
        drop = ReplicaManager.drop

        def noted(self: ReplicaManager, *args: Any) -> None:
            left.append(len(groups.offsets_of("g") or ()))
            drop(self, *args)

        monkeypatch.setattr(ReplicaManager, "drop", noted)
        await stage.broker.topics.delete("t")
        assert left == [0] * MANY


@in_loop
async def test_a_topic_deleted_right_after_a_start_leaves_no_offsets_to_its_next_life(
    tmp_path: Path,
) -> None:
    """Its offsets are still being loaded then."""

    def commit_for_t(stage: HandlerStage) -> None:
        stage.broker.groups.commit_offsets(
            "g",
            [new_offset("t", 0, 5, 0, "", stage.clock.time_ms())],
            generation_id=-1,
            member_id="",
            group_instance_id=None,
            knows_member_epochs=True,
        )

    async with handler_stage(tmp_path, offsets_topic_num_partitions="1") as stage:
        await stage.topic("t", 1)
        await stage.broker.topics.auto_create("__consumer_offsets")
        commit_for_t(stage)

    async with handler_stage(tmp_path, offsets_topic_num_partitions="1") as stage:
        groups = stage.broker.groups
        deletion = asyncio.ensure_future(stage.broker.topics.delete("t"))
        while "t" in stage.broker.topics.topics:
            await asyncio.sleep(0)
        assert groups.runtime.is_loading
        while not deletion.done():
            stage.clock.advance(ms=0)
            await asyncio.sleep(0)
        await stage.topic("t", 1)
        assert groups.offsets_of("g") is None


@in_loop
async def test_a_stop_waits_for_the_partitions_that_are_being_made(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        creation = asyncio.ensure_future(create(stage))
        await until_some_are_hosted(stage)
    assert await creation == ErrorCode.NONE
    async with handler_stage(tmp_path) as stage:
        assert len(stage.broker.replicas) == MANY


@in_loop
async def test_a_start_makes_the_partitions_that_a_crash_left_out(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:

        async def crash(change: TopicChange, image: TopicImage) -> None:
            raise SystemError("killed")

        stage.broker.topics.carry_out = crash  # type: ignore[union-attr]
        with pytest.raises(SystemError):
            await stage.topic("t", MANY)

    async with handler_stage(tmp_path) as stage:
        assert len(stage.broker.replicas) == MANY
        assert produce_to(stage, MANY - 1) == ErrorCode.NONE
