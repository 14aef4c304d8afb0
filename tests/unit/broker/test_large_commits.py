"""OffsetCommit and TxnOffsetCommit of very many partitions: checked in slices, written at once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.support.clock import BusyClock
from tests.support.handlers import HandlerStage, handler_stage, settled
from tests.support.loop_turns import LoopTurns
from tests.support.metadata import in_loop
from tests.support.txn_stage import Producer, txn_stage
from tidelog.broker import offset_rows
from tidelog.broker.broker import Broker
from tidelog.broker.handlers import offset_commit, txn_offset_commit
from tidelog.broker.offset_rows import ROWS_AT_ONCE, ROWS_PER_STEP
from tidelog.coordinator.group.coordinator import GroupCoordinator
from tidelog.coordinator.group.offsets import CommittedOffset
from tidelog.errors import ErrorCode
from tidelog.log.partition_log import PartitionLog
from tidelog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tidelog.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from tidelog.slices import SlicedWork

PARTITIONS = ROWS_AT_ONCE + 3 * ROWS_PER_STEP
UNKNOWN = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
VERSION = 8


def slow_down(broker: Broker) -> None:
    """From now on a turn of the loop does one step."""
    broker.work = SlicedWork(BusyClock(), asyncio.get_running_loop(), 0.0015)


class HeldWork:
    """Of a broker: done when the test says so."""

    def __init__(self, broker: Broker) -> None:
        self._clock = BusyClock()
        broker.work = SlicedWork(self._clock, self._clock, 0.0015)

    def step(self) -> None:
        assert self._clock.pending_timers() == 1
        self._clock.advance(ms=1)

    def finish(self) -> None:
        while self._clock.pending_timers():
            self.step()


async def stage_topics(stage: HandlerStage) -> None:
    await stage.topic("a", PARTITIONS)
    await stage.topic("b", 2)
    await stage.broker.topics.auto_create("__consumer_offsets")
    slow_down(stage.broker)


def large_commit() -> OffsetCommitRequest:
    """Of two topics, with one partition of each that does not exist."""
    return OffsetCommitRequest(
        group_id="g",
        topics=[
            OffsetCommitRequestTopic(
                name=name,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=n, committed_offset=10 * n, committed_metadata=f"m{n}"
                    )
                    for n in range(count + 1)
                ],
            )
            for name, count in (("a", PARTITIONS), ("b", 2))
        ],
    )


async def answer_of(stage: HandlerStage, request: OffsetCommitRequest) -> dict[str, list[int]]:
    """The errors of each topic."""
    encoded = await settled(offset_commit.handle(stage.context(VERSION), request))
    response = OffsetCommitResponse.decode(memoryview(encoded.encode(VERSION)), 0, VERSION)
    return {topic.name: [row.error_code for row in topic.partitions] for topic in response.topics}


def stored(log: PartitionLog, offset: int) -> bytes:
    read = log.read(offset, 1 << 20, up_to_offset=log.log_end_offset, min_one_batch=True)
    assert read.records is not None
    return bytes(read.records.read())


def kept(groups: GroupCoordinator) -> dict[tuple[str, int], CommittedOffset]:
    return {(topic, n): committed for topic, n, committed in groups.offsets_of("g") or ()}


@in_loop
async def test_a_large_commit_is_looked_at_in_slices_and_written_as_one_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        handler_stage(tmp_path, offsets_topic_num_partitions="1") as stage,
        LoopTurns() as turns,
    ):
        await stage_topics(stage)
        request = large_commit()
        metadata = OffsetCommitRequestPartition.__dict__["committed_metadata"]
        appends = []
        log = stage.partition("__consumer_offsets").log
        append = PartitionLog.append_as_leader

        def noted(row: OffsetCommitRequestPartition) -> str:
            turns.note()
            return str(metadata.__get__(row))

        def counted(self: PartitionLog, *arguments: Any, **named: Any) -> Any:
            appends.append(self)
            return append(self, *arguments, **named)

        monkeypatch.setattr(OffsetCommitRequestPartition, "committed_metadata", property(noted))
        monkeypatch.setattr(PartitionLog, "append_as_leader", counted)

        assert await answer_of(stage, request) == {
            "a": [0] * PARTITIONS + [UNKNOWN],
            "b": [0, 0, UNKNOWN],
        }

        assert appends == [log]
        assert log.log_end_offset == turns.total == PARTITIONS + 2
        assert turns.most <= 2 * ROWS_PER_STEP
        offsets = kept(stage.broker.groups)
        assert list(offsets) == [("a", n) for n in range(PARTITIONS)] + [("b", 0), ("b", 1)]
        for place, ((_, n), committed) in enumerate(offsets.items()):
            assert (committed.offset, committed.metadata) == (10 * n, f"m{n}")
            assert committed.log_offset == place


@in_loop
async def test_the_records_of_a_large_commit_are_those_of_small_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with handler_stage(tmp_path, offsets_topic_num_partitions="1") as stage:
        await stage_topics(stage)
        await answer_of(stage, large_commit())
        log = stage.partition("__consumer_offsets").log
        first = stored(log, 0)
        end = log.log_end_offset
        monkeypatch.setattr(offset_rows, "ROWS_AT_ONCE", 10 * PARTITIONS)
        offset_commit.handle(stage.context(VERSION), large_commit())
        # But for the base offset. The crc, which covers all that follows it, is the same.
        assert first[8:] == stored(log, end)[8:]


@in_loop
async def test_offsets_of_a_topic_that_goes_while_a_large_commit_is_looked_at_are_not_kept(
    tmp_path: Path,
) -> None:
    async with handler_stage(tmp_path, offsets_topic_num_partitions="1") as stage:
        await stage_topics(stage)
        work = HeldWork(stage.broker)
        under_way = asyncio.ensure_future(answer_of(stage, large_commit()))
        await asyncio.sleep(0)
        work.step()
        await stage.broker.topics.delete("a")
        work.finish()
        assert await under_way == {"a": [UNKNOWN] * (PARTITIONS + 1), "b": [0, 0, UNKNOWN]}
        assert list(kept(stage.broker.groups)) == [("b", 0), ("b", 1)]


@in_loop
async def test_a_large_commit_is_checked_when_it_is_written(tmp_path: Path) -> None:
    async with handler_stage(tmp_path, offsets_topic_num_partitions="1") as stage:
        await stage_topics(stage)
        work = HeldWork(stage.broker)
        under_way = asyncio.ensure_future(answer_of(stage, large_commit()))
        await asyncio.sleep(0)
        stage.broker.groups.runtime.resign_all()
        work.finish()
        code = int(ErrorCode.NOT_COORDINATOR)
        assert await under_way == {
            "a": [code] * PARTITIONS + [UNKNOWN],
            "b": [code, code, UNKNOWN],
        }


@in_loop
async def test_metadata_that_no_record_can_hold_fails_a_large_commit(tmp_path: Path) -> None:
    async with handler_stage(
        tmp_path, offsets_topic_num_partitions="1", offset_metadata_max_bytes="100000"
    ) as stage:
        await stage_topics(stage)
        request = large_commit()
        request.topics[0].partitions[1].committed_metadata = "x" * 40_000
        assert set((await answer_of(stage, request))["b"]) == {
            int(ErrorCode.UNKNOWN_SERVER_ERROR),
            UNKNOWN,
        }
        assert not kept(stage.broker.groups)


async def commit_many(stage: HandlerStage, producer: Producer) -> list[int]:
    rows = [
        TxnOffsetCommitRequestPartition(partition_index=n, committed_offset=n + 5)
        for n in range(PARTITIONS + 1)
    ]
    request = TxnOffsetCommitRequest(
        transactional_id=producer.transactional_id,
        group_id="g",
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        topics=[TxnOffsetCommitRequestTopic(name="a", partitions=rows)],
    )
    encoded = await settled(txn_offset_commit.handle(stage.context(3), request))
    response = TxnOffsetCommitResponse.decode(memoryview(encoded.encode(3)), 0, 3)
    return [row.error_code for row in response.topics[0].partitions]


@in_loop
async def test_a_large_commit_of_a_transaction_counts_when_that_is_committed(
    tmp_path: Path,
) -> None:
    async with txn_stage(tmp_path) as stage:
        await stage.stage.topic("a", PARTITIONS)
        producer = await stage.producer()
        assert await producer.add_offsets() == 0
        slow_down(stage.broker)
        codes = await commit_many(stage.stage, producer)
        assert codes == [0] * PARTITIONS + [UNKNOWN]
        assert not kept(stage.broker.groups)
        assert await producer.end(committed=True) == 0
        offsets = kept(stage.broker.groups)
        assert [committed.offset for committed in offsets.values()] == [
            n + 5 for n in range(PARTITIONS)
        ]


@in_loop
async def test_a_large_commit_is_not_part_of_a_transaction_that_has_ended_meanwhile(
    tmp_path: Path,
) -> None:
    async with txn_stage(tmp_path) as stage:
        await stage.stage.topic("a", PARTITIONS)
        producer = await stage.producer()
        assert await producer.add_offsets() == 0
        work = HeldWork(stage.broker)
        under_way = asyncio.ensure_future(commit_many(stage.stage, producer))
        await asyncio.sleep(0)
        assert await producer.end(committed=True) == 0
        work.finish()
        codes = await under_way
        assert 0 not in codes
        assert not kept(stage.broker.groups)
