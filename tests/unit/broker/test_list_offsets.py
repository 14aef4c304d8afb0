from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.support.batches import NOW, simple_batch
from tests.support.handlers import HandlerStage, handler_stage
from tests.support.loop_turns import LoopTurns, counted_slices
from tests.support.metadata import in_loop
from tidelog.broker.handlers import list_offsets
from tidelog.errors import ErrorCode
from tidelog.log.time_lookup import BatchLookup
from tidelog.protocol.listed_timestamps import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
)
from tidelog.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tidelog.record import compression
from tidelog.record.batch import Codec
from tidelog.record.builder import batch_of
from tidelog.replication.partition import Partition

MIB = 1 << 20


def ask(
    stage: HandlerStage, timestamp: int, *, version: int = 9, times: int = 1, **fields: Any
) -> ListOffsetsPartitionResponse:
    row = ListOffsetsPartition(partition_index=0, timestamp=timestamp, max_num_offsets=10)
    request = ListOffsetsRequest(
        replica_id=-1,
        topics=[ListOffsetsTopic(name="t", partitions=[row] * times)],
        **fields,
    )
    answer = list_offsets.handle(stage.context(version), request)
    assert isinstance(answer, ListOffsetsResponse)
    return answer.topics[0].partitions[0]


async def asked_in_thread(stage: HandlerStage, timestamp: int) -> ListOffsetsPartitionResponse:
    row = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[row])]
    )
    answer = list_offsets.handle(stage.context(9), request)
    assert not isinstance(answer, ListOffsetsResponse)
    return (await answer).topics[0].partitions[0]


def append(stage: HandlerStage, count: int, **fields: Any) -> None:
    stage.partition("t").append(memoryview(simple_batch(count, **fields)), 11)


@in_loop
async def test_positions_and_times(tmp_path: Path) -> None:
    """Record n of each batch of three has timestamp NOW + n."""
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t")
        append(stage, 3)
        append(stage, 3)
        found = {
            wanted: (row.offset, row.timestamp)
            for wanted in (LATEST, EARLIEST, MAX_TIMESTAMP, NOW - 5, NOW + 1, NOW + 3)
            for row in [ask(stage, wanted)]
        }
        assert found == {
            LATEST: (6, -1),
            EARLIEST: (0, -1),
            MAX_TIMESTAMP: (2, NOW + 2),
            NOW - 5: (0, NOW),
            NOW + 1: (1, NOW + 1),
            NOW + 3: (-1, -1),
        }


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.ZSTD])
@in_loop
async def test_a_thread_looks_into_batches_that_inflate_far(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: Codec
) -> None:
    """10 MiB each, which would be 20 to 50 ms of the loop."""
    inflated: list[tuple[threading.Thread, int]] = []
    decompress = compression.decompress

    def noted(*place: Any) -> bytes | bytearray:
        content = decompress(*place)
        inflated.append((threading.current_thread(), len(content)))
        return content

    async with handler_stage(tmp_path) as stage:
        await stage.topic("t")
        for number in range(2):
            records = [(None, bytes(MIB), (), NOW + 100 * number + n) for n in range(10)]
            batch = batch_of(records, codec=codec)
            stage.partition("t").append(memoryview(batch), 11)
        append(stage, 3)
        monkeypatch.setattr(compression, "decompress", noted)
        found = [await asked_in_thread(stage, each) for each in (NOW + 104, NOW + 4, MAX_TIMESTAMP)]
        assert [(row.error_code, row.offset) for row in found] == [(0, 14), (0, 4), (0, 19)]
        on_loop = [size for thread, size in inflated if thread is threading.main_thread()]
        assert sum(on_loop) <= 4 * MIB
        assert [size >= 10 * MIB for thread, size in inflated] == [True] * 3


@in_loop
async def test_a_thread_that_finds_a_batch_damaged_tells_of_it(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t")
        records = [(None, bytes(MIB), (), NOW + n) for n in range(10)]
        stage.partition("t").append(memoryview(batch_of(records, codec=Codec.GZIP)), 11)
        segment = stage.partition("t").log.active_segment
        middle = segment.size // 2
        segment.file.write_at(middle, bytes(segment.size - middle))
        row = await asked_in_thread(stage, NOW + 4)
        assert row.error_code == ErrorCode.UNKNOWN_SERVER_ERROR


@in_loop
async def test_a_thread_that_fails_unexpectedly_fails_the_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: BatchLookup) -> None:
        raise MemoryError

    monkeypatch.setattr(BatchLookup, "run", fail)
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t")
        records = [(None, bytes(MIB), (), NOW + n) for n in range(10)]
        stage.partition("t").append(memoryview(batch_of(records, codec=Codec.GZIP)), 11)
        with pytest.raises(MemoryError):
            await asked_in_thread(stage, NOW + 4)


@in_loop
async def test_time_lookup_is_exact_inside_a_compressed_batch(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t", compression_type="zstd")
        append(stage, 10)
        row = ask(stage, NOW + 4)
        assert (row.offset, row.timestamp) == (4, NOW + 4)


@in_loop
async def test_earliest_moves_with_the_log_start(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t")
        append(stage, 5)
        stage.partition("t").log.maybe_increment_log_start_offset(3)
        assert ask(stage, EARLIEST).offset == 3
        assert ask(stage, EARLIEST_LOCAL).offset == 3
        assert ask(stage, NOW).offset == 3


@in_loop
async def test_tiers_are_unknown_without_tiered_storage(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t")
        append(stage, 5)
        assert ask(stage, LATEST_TIERED).offset == -1
        assert ask(stage, EARLIEST_PENDING_UPLOAD, version=11).offset == -1


@in_loop
async def test_read_committed_latest_is_the_last_stable_offset(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t")
        append(stage, 2)
        append(stage, 2, producer_id=5, producer_epoch=0, base_sequence=0, is_transactional=True)
        assert ask(stage, LATEST, isolation_level=1).offset == 2
        assert ask(stage, LATEST, isolation_level=0).offset == 4


@pytest.mark.parametrize(
    ("timestamp", "version"),
    [(MAX_TIMESTAMP, 6), (EARLIEST_LOCAL, 7), (LATEST_TIERED, 8), (-9, 9), (-3, 0)],
)
def test_position_unknown_to_the_version_is_refused(
    tmp_path: Path, timestamp: int, version: int
) -> None:
    @in_loop
    async def story() -> None:
        async with handler_stage(tmp_path) as stage:
            await stage.topic("t")
            row = ask(stage, timestamp, version=version)
            assert row.error_code == ErrorCode.UNSUPPORTED_VERSION

    story()


@in_loop
async def test_partition_named_twice_is_an_invalid_request(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t")
        assert ask(stage, LATEST, times=2).error_code == ErrorCode.INVALID_REQUEST


@in_loop
async def test_old_style_list_is_newest_first(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t")
        append(stage, 5)
        stage.partition("t").log.roll()
        append(stage, 2)
        assert ask(stage, LATEST, version=0).old_style_offsets == [7, 5, 0]
        assert ask(stage, EARLIEST, version=0).old_style_offsets == [0]


@in_loop
async def test_old_style_list_has_the_log_end_for_times_that_have_passed(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t")
        append(stage, 5)
        stage.partition("t").log.roll()
        append(stage, 2)
        now_ms = stage.clock.time_ms()
        for number, path in enumerate(sorted((tmp_path / "t-0").glob("*.log"))):
            os.utime(path, (now_ms // 1000 - 20 + 10 * number,) * 2)
        found = {
            age_s: ask(stage, now_ms - 1000 * age_s, version=0).old_style_offsets
            for age_s in (-99, 5, 15, 99)
        }
        assert found == {-99: [7, 5, 0], 5: [5, 0], 15: [0], 99: []}


@in_loop
async def test_old_style_list_of_fewer_than_no_offsets_is_an_unknown_error(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t")
        row = ListOffsetsPartition(partition_index=0, timestamp=LATEST, max_num_offsets=-1)
        answer = answer_to(stage, 0, ListOffsetsTopic(name="t", partitions=[row]))
        assert answer.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR


@in_loop
async def test_old_style_request_may_name_a_partition_twice(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t")
        assert ask(stage, LATEST, version=0, times=2).error_code == ErrorCode.NONE


@pytest.mark.parametrize("level", [-1, 2])
@in_loop
async def test_unknown_isolation_level_is_an_unknown_error(tmp_path: Path, level: int) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t")
        row = ask(stage, LATEST, isolation_level=level)
        assert (row.error_code, row.offset) == (ErrorCode.UNKNOWN_SERVER_ERROR, -1)


def answer_to(stage: HandlerStage, version: int, *topics: ListOffsetsTopic) -> ListOffsetsResponse:
    request = ListOffsetsRequest(replica_id=-1, topics=list(topics))
    answer = list_offsets.handle(stage.context(version), request)
    assert isinstance(answer, ListOffsetsResponse)
    return answer


@in_loop
async def test_very_many_partitions_are_looked_up_a_slice_a_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with handler_stage(tmp_path) as stage, LoopTurns() as turns:
        await stage.topic("t", partitions=200)
        stage.broker.slices = counted_slices(20)
        look_up = Partition.require_leader_epoch

        def counted(self: Partition, epoch: int) -> None:
            turns.note()
            look_up(self, epoch)

        monkeypatch.setattr(Partition, "require_leader_epoch", counted)
        rows = [ListOffsetsPartition(partition_index=n, timestamp=LATEST) for n in range(201)]
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=rows)])
        answering = list_offsets.handle(stage.context(7), request)
        assert not isinstance(answering, ListOffsetsResponse)
        (topic,) = (await answering).topics
        codes = [row.error_code for row in topic.partitions]
        assert codes == [0] * 200 + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert turns.most <= 20


@in_loop
async def test_each_partition_is_answered_once_from_v10_on(tmp_path: Path) -> None:
    def topic(*indexes: int) -> ListOffsetsTopic:
        rows = [ListOffsetsPartition(partition_index=index, timestamp=LATEST) for index in indexes]
        return ListOffsetsTopic(name="t", partitions=rows)

    async with handler_stage(tmp_path) as stage:
        await stage.topic("t", 2)
        for version, sizes in ((9, [2, 0, 1]), (10, [2])):
            answer = answer_to(stage, version, topic(0, 1), topic(), topic(0))
            assert [len(row.partitions) for row in answer.topics] == sizes
            codes = [row.error_code for row in answer.topics[0].partitions]
            assert codes == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE]
        assert answer_to(stage, 10, topic()).topics == []
