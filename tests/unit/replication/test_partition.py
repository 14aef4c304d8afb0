from __future__ import annotations

from pathlib import Path

from tests.support.batches import simple_batch
from tests.support.handlers import handler_stage
from tests.support.metadata import in_loop, refused
from tidelog.errors import ErrorCode


@in_loop
async def test_other_leader_epochs_are_fenced_or_unknown(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t")
        partition = stage.partition("t")
        partition.leader_epoch = 5
        for fine in (-1, 5):
            partition.require_leader_epoch(fine)
        with refused(ErrorCode.FENCED_LEADER_EPOCH):
            partition.require_leader_epoch(4)
        with refused(ErrorCode.FENCED_LEADER_EPOCH):
            partition.require_leader_epoch(-2)
        with refused(ErrorCode.UNKNOWN_LEADER_EPOCH):
            partition.require_leader_epoch(6)


@in_loop
async def test_reader_that_diverged_is_told_where_its_epoch_ended(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t")
        partition = stage.partition("t")
        partition.append(memoryview(simple_batch(3)), 11)
        partition.leader_epoch = 4
        partition.append(memoryview(simple_batch(3)), 11)
        row = partition.read(5, 1000, min_one_batch=True, last_fetched_epoch=0)
        assert row.diverging_epoch is not None
        assert (row.diverging_epoch.epoch, row.diverging_epoch.end_offset) == (0, 3)
        assert row.records == b""
        agreeing = partition.read(3, 1000, min_one_batch=True, last_fetched_epoch=0)
        assert agreeing.diverging_epoch is None


@in_loop
async def test_partition_that_is_not_led_here_is_refused(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t")
        stage.partition("t").is_leader = False
        with refused(ErrorCode.NOT_LEADER_OR_FOLLOWER):
            stage.broker.replicas.leader("t", 0)


@in_loop
async def test_partition_taken_offline_answers_a_storage_error(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t")
        stage.broker.replicas.take_offline(stage.partition("t").topic_partition, "disk")
        assert stage.broker.replicas.get("t", 0) is None
        with refused(ErrorCode.KAFKA_STORAGE_ERROR):
            stage.broker.replicas.leader("t", 0)
