from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.support.batches import NOW, simple_batch, with_fields
from tests.support.handlers import HandlerStage, handler_stage
from tests.support.metadata import in_loop
from tests.support.pending import unexpected
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
from tidelog.record.batch import Codec
from tidelog.record.builder import batch_of
from tidelog.types import Uuid


def request(
    records: Any, *, topic: str = "t", index: int = 0, acks: int = 1, **fields: Any
) -> ProduceRequest:
    view = None if records is None else memoryview(records)
    row = PartitionProduceData(index=index, records=view)
    return ProduceRequest(
        acks=acks,
        timeout_ms=1000,
        topic_data=[TopicProduceData(name=topic, partition_data=[row])],
        **fields,
    )


def only_row(answer: Any) -> PartitionProduceResponse:
    assert isinstance(answer, ProduceResponse)
    return answer.responses[0].partition_responses[0]


def send(
    stage: HandlerStage, records: Any, *, version: int = 9, **fields: Any
) -> PartitionProduceResponse:
    return only_row(produce.handle(stage.context(version), request(records, **fields)))


@in_loop
async def test_records_get_the_next_offsets(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t")
        assert send(stage, simple_batch(3)).base_offset == 0
        row = send(stage, simple_batch(2))
        assert (row.error_code, row.base_offset, row.log_start_offset) == (0, 3, 0)
        assert stage.partition("t").log.high_watermark == 5


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"topic": "nowhere"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"index": 9}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"acks": 2}, ErrorCode.INVALID_REQUIRED_ACKS),
        ({"acks": 2, "topic": "nowhere"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"acks": 2, "index": 9}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_refusals(tmp_path: Path, fields: dict[str, Any], code: ErrorCode) -> None:
    @in_loop
    async def story() -> None:
        async with handler_stage(tmp_path) as stage:
            await stage.topic("t")
            row = send(stage, simple_batch(1), **fields)
            assert (row.error_code, row.base_offset) == (code, -1)
            assert stage.partition("t").log.log_end_offset == 0

    story()


@in_loop
async def test_only_the_admin_client_writes_to_internal_topics(tmp_path: Path) -> None:
    async with handler_stage(tmp_path, offsets_topic_num_partitions="1") as stage:
        await stage.broker.topics.auto_create("__consumer_offsets")
        internal = request(batch_of([(b"k", b"v", (), NOW)]), topic="__consumer_offsets")
        codes = [
            only_row(produce.handle(stage.context(9, client_id), internal)).error_code
            for client_id in ("test", None, "__admin_client")
        ]
        refused = ErrorCode.INVALID_TOPIC_EXCEPTION
        assert codes == [refused, refused, ErrorCode.NONE]


@in_loop
async def test_records_that_are_no_batch_are_told_before_bad_acks(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t")
        zstd = simple_batch(1, codec=Codec.ZSTD)
        unknown = with_fields(simple_batch(1), attributes=5)
        for records, version, code in (
            (b"", 9, ErrorCode.INVALID_RECORD),
            (simple_batch(1) + simple_batch(1), 9, ErrorCode.INVALID_RECORD),
            (zstd, 6, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
            (zstd, 7, ErrorCode.INVALID_REQUIRED_ACKS),
            (unknown, 6, ErrorCode.UNKNOWN_SERVER_ERROR),
            (unknown, 7, ErrorCode.INVALID_REQUIRED_ACKS),
            (b"", 2, ErrorCode.INVALID_REQUIRED_ACKS),
        ):
            row = send(stage, records, version=version, acks=2)
            assert (row.error_code, row.base_offset) == (code, -1)


@in_loop
async def test_records_of_a_transaction_need_a_transactional_id(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t")

        def batch() -> bytearray:
            return simple_batch(
                1, producer_id=5, producer_epoch=0, base_sequence=0, is_transactional=True
            )

        nameless = send(stage, batch())
        assert nameless.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        named = send(stage, batch(), transactional_id="x")
        assert named.error_code == ErrorCode.NOT_ENOUGH_REPLICAS  # there is no coordinator yet
        assert stage.partition("t").log.log_end_offset == 0


@in_loop
async def test_topic_named_twice_is_appended_once(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t")
        topics = [request(simple_batch(n)).topic_data[0] for n in (1, 4)]
        answer = produce.handle(stage.context(9), ProduceRequest(acks=1, topic_data=topics))
        assert isinstance(answer, ProduceResponse)
        assert len(answer.responses) == 1
        assert stage.partition("t").log.log_end_offset == 4


@in_loop
async def test_null_records_are_answered_with_an_error(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t")
        assert send(stage, None).error_code == ErrorCode.INVALID_RECORD


@in_loop
async def test_bad_crc_is_corrupt_and_nothing_is_appended(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t")
        row = send(stage, with_fields(simple_batch(1), crc=1))
        assert row.error_code == ErrorCode.CORRUPT_MESSAGE
        assert stage.partition("t").log.log_end_offset == 0


@in_loop
async def test_records_at_fault_are_named(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t", cleanup_policy="compact")
        batch = batch_of([(b"k", b"v", (), NOW), (None, b"v", (), NOW)])
        row = send(stage, batch)
        assert row.error_code == ErrorCode.INVALID_RECORD
        assert [error.batch_index for error in row.record_errors] == [1]


@in_loop
async def test_acks_zero_has_no_answer_and_an_error_closes(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t")
        assert produce.handle(stage.context(9), request(simple_batch(1), acks=0)) is None
        bad = produce.handle(stage.context(9), request(simple_batch(1), acks=0, topic="nowhere"))
        assert isinstance(bad, CloseConnection)


@in_loop
async def test_partition_named_twice_is_appended_once(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t")
        rows = [PartitionProduceData(index=0, records=memoryview(simple_batch(n))) for n in (1, 4)]
        message = ProduceRequest(
            acks=1, topic_data=[TopicProduceData(name="t", partition_data=rows)]
        )
        answer = produce.handle(stage.context(9), message)
        assert isinstance(answer, ProduceResponse)
        assert len(answer.responses[0].partition_responses) == 1
        assert stage.partition("t").log.log_end_offset == 4


@in_loop
async def test_topics_are_named_by_id_from_v13_on(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t")
        message = request(simple_batch(1))
        message.topic_data[0].topic_id = stage.broker.topics.topics["t"].topic_id
        assert only_row(produce.handle(stage.context(13), message)).error_code == 0
        message.topic_data[0].topic_id = Uuid.random()
        row = only_row(produce.handle(stage.context(13), message))
        assert row.error_code == ErrorCode.UNKNOWN_TOPIC_ID


@in_loop
async def test_idempotent_duplicate_answers_the_first_offsets(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t")

        def batch(sequence: int) -> bytearray:
            return simple_batch(2, producer_id=7, producer_epoch=0, base_sequence=sequence)

        assert send(stage, batch(0)).base_offset == 0
        assert send(stage, batch(2)).base_offset == 2
        again = send(stage, batch(0))
        assert (again.error_code, again.base_offset) == (0, 0)
        assert send(stage, batch(9)).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert stage.partition("t").log.log_end_offset == 4


@in_loop
async def test_readers_see_only_what_is_flushed(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t", flush_messages="1")
        log = stage.partition("t").log
        seen: list[tuple[int, int]] = []
        both = asyncio.Event()

        def answered(_: Any) -> None:
            seen.append((log.high_watermark, log.recovery_point))
            if len(seen) == 2:
                both.set()

        for _ in range(2):
            answer = produce.handle(stage.context(9), request(simple_batch(1)))
            assert isinstance(answer, Pending)
            answer.then(answered, unexpected)
        assert log.log_end_offset == 2
        await asyncio.wait_for(both.wait(), 10)
        assert seen == [(1, 1), (2, 2)]


@in_loop
async def test_with_flush_messages_the_answer_waits_for_the_flush(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t", flush_messages="1")
        log = stage.partition("t").log
        answer = produce.handle(stage.context(9), request(simple_batch(3)))
        assert isinstance(answer, Pending)
        assert (log.log_end_offset, log.high_watermark) == (3, 0)
        row = only_row(await answer)
        assert (row.error_code, row.base_offset) == (0, 0)
        assert (log.recovery_point, log.high_watermark) == (3, 3)


@in_loop
async def test_topic_without_partitions_is_not_in_the_answer(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t")
        for version in (0, 2, 9):
            empty = TopicProduceData(name="t", partition_data=[])
            asked = ProduceRequest(acks=1, timeout_ms=1000, topic_data=[empty])
            answer = produce.handle(stage.context(version), asked)
            assert isinstance(answer, ProduceResponse)
            assert answer.responses == []


@pytest.mark.parametrize(
    ("records", "code", "log_start_offset"),
    [
        (with_fields(simple_batch(3), records_count=9), ErrorCode.INVALID_RECORD, 2),
        (simple_batch(3, base_offset=5), ErrorCode.INVALID_RECORD, 2),
        (with_fields(simple_batch(3), attributes=7), ErrorCode.UNKNOWN_SERVER_ERROR, 2),
        (with_fields(simple_batch(3), crc=1), ErrorCode.CORRUPT_MESSAGE, -1),
        (batch_of([(None, bytes(2000), (), NOW)]), ErrorCode.MESSAGE_TOO_LARGE, -1),
        (b"", ErrorCode.INVALID_RECORD, -1),
        (simple_batch(1) + simple_batch(1), ErrorCode.INVALID_RECORD, -1),
    ],
)
@in_loop
async def test_records_refused_by_the_log_are_answered_with_its_start(
    tmp_path: Path, records: bytearray, code: ErrorCode, log_start_offset: int
) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t", max_message_bytes="1000")
        send(stage, simple_batch(3))
        stage.partition("t").log.maybe_increment_log_start_offset(2)
        row = send(stage, bytearray(records))
        assert (row.error_code, row.log_start_offset) == (code, log_start_offset)


@pytest.mark.parametrize(("version", "log_start_offset"), [(5, -1), (6, -1), (7, 2)])
@in_loop
async def test_an_unknown_codec_is_refused_before_the_log_is_asked_until_v6(
    tmp_path: Path, version: int, log_start_offset: int
) -> None:
    """Kafka asks v3-v6 for zstd before it looks for a log, and fails on a codec it cannot name."""
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t")
        send(stage, simple_batch(3))
        stage.partition("t").log.maybe_increment_log_start_offset(2)
        unknown = with_fields(simple_batch(3), attributes=5)
        row = send(stage, bytearray(unknown), version=version)
        assert row.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert row.log_start_offset == log_start_offset
