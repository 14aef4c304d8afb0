"""Records that take long to check: a thread checks them, and nothing else changes."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from tests.support.batches import NOW, simple_batch, with_fields
from tests.support.handlers import HandlerStage, handler_stage, settled
from tests.support.loop_turns import LoopTurns
from tests.support.message_sets import message_set_of
from tests.support.metadata import in_loop
from tidelog.broker import record_threads
from tidelog.broker.context import CloseConnection
from tidelog.broker.handlers import produce
from tidelog.errors import ErrorCode
from tidelog.pending import Pending
from tidelog.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tidelog.record import compression
from tidelog.record.batch import Codec
from tidelog.record.builder import batch_of
from tidelog.record.inflation import LOOP_NS_MAX
from tidelog.record.legacy import LegacyRecord
from tidelog.replication.partition import Partition

COMPRESSED = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]


def heavy_batch(
    codec: Codec = Codec.GZIP, value_bytes: int = 6_000_000, **fields: Any
) -> bytearray:
    return batch_of([(b"k", b"v" * value_bytes, (), NOW)], codec=codec, **fields)


def handle(
    stage: HandlerStage, *rows: tuple[int, bytes | bytearray], version: int = 9, acks: int = 1
) -> Any:
    data = [PartitionProduceData(index=n, records=memoryview(bytearray(r))) for n, r in rows]
    topic = TopicProduceData(name="t", partition_data=data)
    request = ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[topic])
    answer = produce.handle(stage.context(version), request)
    for row in data:
        assert row.records is not None
        if isinstance(answer, Pending):
            row.records[:] = bytes(len(row.records))  # the frame is used again
    return answer


def rows_of(answer: Any) -> list[PartitionProduceResponse]:
    assert isinstance(answer, ProduceResponse)
    return answer.responses[0].partition_responses


@in_loop
async def test_records_that_inflate_far_are_inflated_in_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: dict[bool, list[int]] = {True: [], False: []}
    gunzip = compression._gunzip

    def noted(view: memoryview, limit_bytes: int, pieces_max: int) -> bytes | bytearray:
        limits[threading.current_thread() is threading.main_thread()].append(limit_bytes)
        return gunzip(view, limit_bytes, pieces_max)

    async with handler_stage(tmp_path) as stage:
        await stage.topic("t")
        monkeypatch.setattr(compression, "_gunzip", noted)

        (row,) = rows_of(await settled(handle(stage, (0, heavy_batch()))))

        assert (row.error_code, row.base_offset) == (0, 0)
        assert stage.partition("t").log.high_watermark == 1
        assert len(limits[False]) == 1
        assert all(limit * 4 <= LOOP_NS_MAX for limit in limits[True])


@in_loop
async def test_small_compressed_batches_are_answered_at_once(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t")
        for codec in COMPRESSED:
            rows_of(handle(stage, (0, simple_batch(100, codec=codec))))
        assert stage.partition("t").log.log_end_offset == 400


@in_loop
async def test_many_small_batches_that_take_long_together_go_to_a_thread(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t", partitions=20)
        rows = [(n, heavy_batch(value_bytes=500_000)) for n in range(20)]

        answers = rows_of(await settled(handle(stage, *rows)))

        assert [(row.index, row.error_code, row.base_offset) for row in answers] == [
            (n, 0, 0) for n in range(20)
        ]


@in_loop
async def test_the_rest_of_the_request_is_appended_at_once_and_answered_in_its_place(
    tmp_path: Path,
) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t", partitions=3)
        answer = handle(stage, (2, simple_batch(3)), (0, heavy_batch()), (1, simple_batch(2)))
        assert [stage.partition("t", n).log.log_end_offset for n in range(3)] == [0, 2, 3]

        rows = rows_of(await settled(answer))

        assert [(row.index, row.base_offset) for row in rows] == [(2, 0), (0, 0), (1, 0)]
        assert stage.partition("t", 0).log.log_end_offset == 1


@in_loop
async def test_what_comes_from_elsewhere_meanwhile_is_before_them(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t")
        answer = handle(stage, (0, heavy_batch()))
        rows_of(handle(stage, (0, simple_batch(5))))

        (row,) = rows_of(await settled(answer))

        assert row.base_offset == 5
        assert stage.partition("t").log.log_end_offset == 6


@in_loop
async def test_a_duplicate_is_recognised_and_a_gap_is_refused(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t")

        async def send(sequence: int) -> tuple[int, int]:
            batch = heavy_batch(producer_id=7, producer_epoch=0, base_sequence=sequence)
            (row,) = rows_of(await settled(handle(stage, (0, batch))))
            return row.error_code, row.base_offset

        assert await send(0) == (0, 0)
        assert await send(0) == (0, 0)
        assert await send(1) == (0, 1)
        assert await send(9) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
        assert stage.partition("t").log.log_end_offset == 2


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("target", ["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("timestamp_type", ["CreateTime", "LogAppendTime"])
def test_a_thread_writes_what_the_loop_would_write(
    tmp_path: Path,
    codec: Codec,
    target: str,
    timestamp_type: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    configs: dict[str, Any] = {
        "compression_type": target,
        "message_timestamp_type": timestamp_type,
        "max_message_bytes": "10000000",
    }

    @in_loop
    async def story() -> None:
        written = []
        for name in ("thread", "loop"):
            async with handler_stage(tmp_path / name) as stage:
                await stage.topic("t", **configs)
                rows_of(handle(stage, (0, simple_batch(3))))
                answer = handle(stage, (0, heavy_batch(codec)))
                if name == "thread":
                    stage.clock.advance(ms=50)
                    answer = await settled(answer)
                else:
                    assert isinstance(answer, ProduceResponse)
                (row,) = rows_of(answer)
                assert (row.error_code, row.base_offset) == (0, 3)
                segment = stage.partition("t").log.segments[-1]
                written.append((tmp_path / name / "t-0" / f"{0:020d}.log").read_bytes())
                assert segment.size == len(written[-1])
            monkeypatch.setattr(record_threads, "HELD_BYTES_MAX", 0)
        if timestamp_type == "CreateTime":
            assert written[0] == written[1]
        else:
            assert len(written[0]) == len(written[1])

    story()


@in_loop
async def test_append_time_is_when_they_are_appended(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t", message_timestamp_type="LogAppendTime")
        answer = handle(stage, (0, heavy_batch()))
        stage.clock.advance(ms=5000)

        (row,) = rows_of(await settled(answer))

        assert row.log_append_time_ms == stage.clock.time_ms()
    async with handler_stage(tmp_path) as stage:  # recovers, which checks the checksum
        assert stage.partition("t").log.log_end_offset == 1


@in_loop
async def test_records_that_must_be_compressed_anew_are_compressed_in_a_thread(
    tmp_path: Path,
) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t", compression_type="gzip")
        rows_of(handle(stage, (0, simple_batch(10))))

        (row,) = rows_of(
            await settled(handle(stage, (0, heavy_batch(Codec.NONE, value_bytes=900_000))))
        )

        assert (row.error_code, row.base_offset) == (0, 10)
        assert stage.partition("t").log.segments[-1].size < 100_000


@in_loop
async def test_messages_of_old_clients_are_converted_in_a_thread(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t", compression_type="gzip")
        records = [LegacyRecord(n, NOW, b"k", b"v" * 1000) for n in range(500)]

        (row,) = rows_of(await settled(handle(stage, (0, message_set_of(records, 1)), version=2)))

        assert (row.error_code, row.base_offset) == (0, 0)
        assert stage.partition("t").log.log_end_offset == 500


@in_loop
async def test_what_is_wrong_with_them_is_answered(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t")
        miscounted = with_fields(heavy_batch(), records_count=2, last_offset_delta=1)

        (row,) = rows_of(await settled(handle(stage, (0, miscounted))))

        assert (row.error_code, row.base_offset) == (ErrorCode.INVALID_RECORD, -1)
        assert stage.partition("t").log.log_end_offset == 0
        unanswered = await settled(handle(stage, (0, miscounted), acks=0))
        assert isinstance(unanswered, CloseConnection)


@in_loop
async def test_a_partition_that_is_led_elsewhere_by_then_takes_nothing(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t")
        answer = handle(stage, (0, heavy_batch()))
        stage.partition("t").is_leader = False

        (row,) = rows_of(await settled(answer))

        assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert stage.partition("t").log.log_end_offset == 0


@in_loop
async def test_a_configuration_that_changes_meanwhile_holds_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = threading.Event()
    gunzip = compression._gunzip

    def once_changed(view: memoryview, limit_bytes: int, pieces_max: int) -> bytes | bytearray:
        if threading.current_thread() is not threading.main_thread():
            assert changed.wait(60)
        return gunzip(view, limit_bytes, pieces_max)

    async with handler_stage(tmp_path) as stage:
        await stage.topic("t")
        monkeypatch.setattr(compression, "_gunzip", once_changed)
        answer = handle(stage, (0, heavy_batch()))
        await stage.broker.dynamic_config.alter_topic(
            "t", lambda texts: {**texts, "max.message.bytes": "100"}
        )
        changed.set()

        (row,) = rows_of(await settled(answer))

        assert row.error_code == ErrorCode.MESSAGE_TOO_LARGE
        assert stage.partition("t").log.log_end_offset == 0


@in_loop
async def test_what_finds_no_memory_to_wait_in_is_checked_on_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_threads, "HELD_BYTES_MAX", 10)
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t")
        (row,) = rows_of(handle(stage, (0, heavy_batch())))
        assert (row.error_code, row.base_offset) == (0, 0)


MANY = 450


async def send_many(stage: HandlerStage, *, acks: int = 1) -> list[PartitionProduceResponse]:
    rows = [(n, simple_batch(n % 3 + 1)) for n in range(MANY)]
    return rows_of(await settled(handle(stage, *rows, acks=acks)))


@in_loop
async def test_a_request_for_very_many_partitions_is_worked_through_in_slices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(produce, "SLICE_S", 0.0)
    async with handler_stage(tmp_path) as stage, LoopTurns() as turns:
        await stage.topic("t", partitions=MANY)
        append = Partition.append

        def counted(self: Partition, *args: Any, **options: Any) -> Any:
            turns.note()
            return append(self, *args, **options)

        monkeypatch.setattr(Partition, "append", counted)

        rows = await send_many(stage)

        assert [(row.index, row.error_code, row.base_offset) for row in rows] == [
            (n, 0, 0) for n in range(MANY)
        ]
        ends = [stage.partition("t", n).log.log_end_offset for n in range(MANY)]
        assert ends == [n % 3 + 1 for n in range(MANY)]
        assert turns.total == MANY
        assert turns.most <= produce.ROWS_AT_ONCE


@in_loop
async def test_what_is_refused_among_very_many_is_answered_in_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(produce, "SLICE_S", 0.0)
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t", partitions=MANY - 1)
        stage.partition("t", 50).is_leader = False
        codes = [row.error_code for row in await send_many(stage)]
        assert codes[50] == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert codes[-1] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert sum(code != 0 for code in codes) == 2


@in_loop
async def test_a_refusal_of_the_whole_request_holds_for_all_of_very_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One batch of a transaction without a transactional id refuses the others as well."""
    monkeypatch.setattr(produce, "SLICE_S", 0.0)
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t", partitions=MANY)
        transactional = simple_batch(
            1, producer_id=5, producer_epoch=0, base_sequence=0, is_transactional=True
        )
        rows = [(n, transactional if n == 0 else simple_batch(1)) for n in range(MANY)]
        answers = rows_of(await settled(handle(stage, *rows)))
        refusal = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert {row.error_code for row in answers} == {refusal}
        assert not any(stage.partition("t", n).log.log_end_offset for n in range(MANY))


@in_loop
async def test_heavy_records_among_very_many_go_to_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(produce, "SLICE_S", 0.0)
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t", partitions=60)
        rows = [(n, heavy_batch() if n % 20 == 0 else simple_batch(1)) for n in range(60)]
        answers = rows_of(await settled(handle(stage, *rows)))
        assert [(row.index, row.error_code, row.base_offset) for row in answers] == [
            (n, 0, 0) for n in range(60)
        ]


@in_loop
async def test_very_many_with_a_flush_are_answered_after_the_last_flush(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(produce, "SLICE_S", 0.0)
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t", partitions=MANY, flush_messages="1")
        rows = await send_many(stage)
        assert {row.error_code for row in rows} == {0}
        logs = [stage.partition("t", n).log for n in range(MANY)]
        assert all(log.recovery_point == log.log_end_offset for log in logs)
