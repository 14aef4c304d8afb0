from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from tests.support.batches import simple_batch
from tests.support.handlers import HandlerStage, handler_stage, settled
from tests.support.log_builder import ABORT, end_txn, produce
from tests.support.metadata import in_loop
from tests.support.pending import unexpected
from tidelog.broker.handlers import fetch
from tidelog.errors import ErrorCode
from tidelog.log import transaction_index_check
from tidelog.log.transaction_index_check import SegmentWalk
from tidelog.pending import Pending
from tidelog.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from tidelog.record import conversion
from tidelog.record.batch import Codec
from tidelog.record.conversion import down_convert_file
from tidelog.record.file_records import FileRecords
from tidelog.types import Uuid

MIB = 1 << 20


def request(
    offset: int = 0,
    *,
    topic: str = "t",
    partitions: tuple[int, ...] = (0,),
    partition_max_bytes: int = MIB,
    row: dict[str, Any] | None = None,
    **fields: Any,
) -> FetchRequest:
    rows = [
        FetchPartition(
            partition=index,
            fetch_offset=offset,
            partition_max_bytes=partition_max_bytes,
            **(row or {}),
        )
        for index in partitions
    ]
    fields = {"min_bytes": 1, "max_wait_ms": 0, "max_bytes": 50 * MIB, "session_epoch": -1} | fields
    return FetchRequest(topics=[FetchTopic(topic=topic, partitions=rows)], **fields)


def rows_of(answer: Any) -> list[PartitionData]:
    assert isinstance(answer, FetchResponse)
    return [row for topic in answer.responses for row in topic.partitions]


def read(stage: HandlerStage, *args: Any, version: int = 12, **fields: Any) -> PartitionData:
    return rows_of(fetch.handle(stage.context(version), request(*args, **fields)))[0]


def append(stage: HandlerStage, count: int = 3, index: int = 0, **fields: Any) -> int:
    batch = simple_batch(count, **fields)
    stage.partition("t", index).append(memoryview(batch), 11)
    return len(batch)


def parked(stage: HandlerStage, *args: Any, **fields: Any) -> tuple[Pending[Any], list[Any]]:
    fields = {"max_wait_ms": 500} | fields
    answer = fetch.handle(stage.context(12), request(*args, **fields))
    assert isinstance(answer, Pending)
    answers: list[Any] = []
    answer.then(answers.append, unexpected)
    return answer, answers


@in_loop
async def test_records_are_a_slice_of_the_segment_file(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t")
        size = append(stage, 3)
        row = read(stage, 0)
        assert isinstance(row.records, FileRecords)
        assert (len(row.records), row.high_watermark, row.last_stable_offset) == (size, 3, 3)


@in_loop
async def test_end_is_empty_and_beyond_it_is_out_of_range(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t")
        append(stage, 3)
        at_end = read(stage, 3)
        assert (at_end.error_code, at_end.records) == (0, b"")
        beyond = read(stage, 4)
        assert beyond.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert (beyond.high_watermark, beyond.log_start_offset) == (-1, -1)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"topic": "nowhere"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"partitions": (5,)}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"row": {"current_leader_epoch": 7}}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ({"replica_id": 3}, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ({"row": {"last_fetched_epoch": 99}}, ErrorCode.OFFSET_OUT_OF_RANGE),
    ],
)
def test_refusals(tmp_path: Path, fields: dict[str, Any], code: ErrorCode) -> None:
    @in_loop
    async def story() -> None:
        async with handler_stage(tmp_path) as stage:
            await stage.topic("t")
            append(stage, 1)
            assert read(stage, 0, **fields).error_code == code

    story()


@in_loop
async def test_unknown_topic_id_has_its_own_error(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t")
        append(stage, 1)
        message = request(0)
        message.topics[0].topic_id = stage.broker.topics.topics["t"].topic_id
        assert rows_of(fetch.handle(stage.context(13), message))[0].error_code == 0
        message.topics[0].topic_id = Uuid.random()
        row = rows_of(fetch.handle(stage.context(13), message))[0]
        assert row.error_code == ErrorCode.UNKNOWN_TOPIC_ID


@in_loop
async def test_first_batch_is_whole_even_above_the_limits(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t")
        size = append(stage, 3)
        append(stage, 3)
        row = read(stage, 0, partition_max_bytes=1, max_bytes=1)
        assert len(row.records or b"") == size
        assert len(read(stage, 0, version=2, partition_max_bytes=0).records or b"") == 0


@in_loop
async def test_max_bytes_bounds_the_whole_answer(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t", partitions=2)
        size = append(stage, 3, 0)
        append(stage, 3, 1)
        message = request(0, partitions=(0, 1), max_bytes=size)
        rows = rows_of(fetch.handle(stage.context(12), message))
        assert [len(row.records or b"") for row in rows] == [size, 0]


@in_loop
async def test_waits_until_min_bytes_arrived(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t")
        _, answers = parked(stage, 0, min_bytes=100)
        append(stage, 1)
        stage.clock.advance(ms=1)
        assert answers == []
        append(stage, 5)
        stage.clock.advance(ms=1)
        assert len(rows_of(answers[0])[0].records or b"") >= 100


@in_loop
async def test_answers_with_what_there_is_at_the_deadline(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t")
        size = append(stage, 1)
        _, answers = parked(stage, 0, min_bytes=10_000, max_wait_ms=500)
        stage.clock.advance(ms=499)
        assert answers == []
        stage.clock.advance(ms=1)
        assert len(rows_of(answers[0])[0].records or b"") == size


@in_loop
async def test_what_cannot_be_sent_is_not_waited_for(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t")
        for _ in range(5):
            append(stage, 3)
        row = read(stage, 0, min_bytes=MIB, max_bytes=200, max_wait_ms=500)
        assert len(row.records or b"") > 0


@in_loop
async def test_one_deleted_topic_of_several_wakes_a_waiting_fetch(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t")
        await stage.topic("u")
        message = request(0, max_wait_ms=500)
        message.topics = [*message.topics, request(0, topic="u").topics[0]]
        answer = fetch.handle(stage.context(12), message)
        assert isinstance(answer, Pending)
        answers: list[Any] = []
        answer.then(answers.append, unexpected)
        await stage.broker.topics.delete("u")
        stage.clock.advance(ms=0)
        codes = [row.error_code for row in rows_of(answers[0])]
        assert codes == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


@in_loop
async def test_failure_while_waiting_is_told_to_whoever_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t")
        answer = fetch.handle(stage.context(12), request(0, max_wait_ms=500))
        assert isinstance(answer, Pending)
        failures: list[BaseException] = []
        answer.then(print, failures.append)
        monkeypatch.setattr(type(stage.partition("t")), "read", lambda *_, **__: 1 / 0)
        stage.clock.advance(ms=500)
        assert [type(cause) for cause in failures] == [ZeroDivisionError]


@in_loop
async def test_stopping_broker_answers_a_waiting_fetch_with_what_there_is(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t")
        size = append(stage, 1)
        answer, answers = parked(stage, 0, min_bytes=10_000, max_wait_ms=60_000)
        answer.hurry()
        stage.clock.advance(ms=0)
        assert len(rows_of(answers[0])[0].records or b"") == size


@in_loop
async def test_deleted_topic_wakes_a_waiting_fetch_with_an_error(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t")
        _, answers = parked(stage, 0)
        await stage.broker.topics.delete("t")
        stage.clock.advance(ms=0)
        assert rows_of(answers[0])[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@in_loop
async def test_a_deletion_of_records_does_not_wake_a_waiting_fetch(tmp_path: Path) -> None:
    """As in Kafka: only its own deadline, or new records, show it that its offset is gone."""
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t")
        append(stage, 3)
        _, answers = parked(stage, 0, min_bytes=10_000, max_wait_ms=500)
        assert stage.partition("t").delete_records(2) == 2
        stage.clock.advance(ms=499)
        assert answers == []
        stage.clock.advance(ms=1)
        assert rows_of(answers[0])[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE


@in_loop
async def test_abandoned_fetch_leaves_no_timer_and_no_watch(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t")
        before = stage.clock.pending_timers()
        answer, answers = parked(stage, 0)
        answer.abandon()
        assert stage.clock.pending_timers() == before
        append(stage, 1)
        stage.clock.advance(ms=1000)
        assert answers == []


@in_loop
async def test_read_committed_stops_at_an_open_transaction(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t")
        append(stage, 2)
        append(stage, 2, producer_id=5, producer_epoch=0, base_sequence=0, is_transactional=True)
        append(stage, 2)
        row = read(stage, 0, isolation_level=1)
        assert (row.high_watermark, row.last_stable_offset) == (6, 2)
        assert read(stage, 2, isolation_level=1).records == b""
        assert len(read(stage, 2).records or b"") > 0


@in_loop
async def test_old_clients_get_old_message_sets(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t")
        append(stage, 2)
        for version, magic in ((0, 0), (1, 0), (2, 1), (3, 1)):
            (row,) = rows_of(await settled(fetch.handle(stage.context(version), request(0))))
            assert isinstance(row.records, bytes)
            assert row.records[16] == magic


@in_loop
async def test_a_thread_converts_for_old_clients(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    converters: list[threading.Thread] = []

    def convert(*args: Any, **options: Any) -> bytes:
        converters.append(threading.current_thread())
        return down_convert_file(*args, **options)

    monkeypatch.setattr(conversion, "down_convert_file", convert)
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t", partitions=3)
        append(stage, 2, 0, codec=Codec.GZIP)
        append(stage, 2, 1, codec=Codec.ZSTD)
        message = request(0, partitions=(0, 1, 2, 9))
        rows = rows_of(await settled(fetch.handle(stage.context(3), message)))
        assert [row.partition_index for row in rows] == [0, 1, 2, 9]
        assert [row.error_code for row in rows] == [
            0,
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            0,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        assert isinstance(rows[0].records, bytes)
        assert len(converters) == 2
        assert threading.main_thread() not in converters


@in_loop
async def test_an_old_client_that_waits_gets_what_arrives(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t")
        answer = fetch.handle(stage.context(2), request(0, max_wait_ms=500))
        append(stage, 2)
        stage.clock.advance(ms=1)
        (row,) = rows_of(await settled(answer))
        assert isinstance(row.records, bytes)
        assert row.records[16] == 1


@in_loop
async def test_a_thread_looks_over_an_old_segment_before_a_committed_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t")
        log = stage.partition("t").log
        produce(log, producer_id=7, producer_epoch=0, sequence=0, transactional=True)
        end_txn(log, ABORT, producer_id=7)
        produce(log)
    monkeypatch.setattr(transaction_index_check, "LOOP_BYTES_MAX", 0)
    walkers: list[threading.Thread] = []
    run = SegmentWalk.run

    def noted_run(self: SegmentWalk) -> None:
        walkers.append(threading.current_thread())
        run(self)

    monkeypatch.setattr(SegmentWalk, "run", noted_run)
    async with handler_stage(tmp_path) as stage:
        committed = request(0, isolation_level=1)
        gone = fetch.handle(stage.context(12), committed)
        assert isinstance(gone, Pending)
        gone.abandon()
        (row,) = rows_of(await settled(fetch.handle(stage.context(12), committed)))
        assert row.aborted_transactions is not None
        assert [each.producer_id for each in row.aborted_transactions] == [7]
        assert row.high_watermark == 3
        assert isinstance(row.records, FileRecords)
        assert threading.main_thread() not in walkers
        assert 1 <= len(walkers) <= 2
        again = rows_of(fetch.handle(stage.context(12), committed))[0]
        assert again.aborted_transactions == row.aborted_transactions


@in_loop
async def test_zstd_topic_is_refused_to_clients_that_cannot_read_it(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t", compression_type="zstd")
        append(stage, 2)
        code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        assert read(stage, 0, version=9).error_code == code
        assert read(stage, 0, version=10).error_code == 0


def in_session(stage: HandlerStage, answer: FetchResponse, **fields: Any) -> FetchResponse:
    """The next fetch of a session, which names what it is given."""
    session = {"session_id": answer.session_id, "max_wait_ms": 0, "min_bytes": 1} | fields
    response = fetch.handle(stage.context(12), FetchRequest(max_bytes=50 * MIB, **session))
    assert isinstance(response, FetchResponse)
    return response


@in_loop
async def test_a_batch_above_partition_max_bytes_comes_while_another_has_a_backlog(
    tmp_path: Path,
) -> None:
    """Apache Kafka delivers it with the third fetch of the session."""
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t", partitions=2)
        for _ in range(20):
            append(stage, 1, 0)
        large = append(stage, 50, 1)
        limit: dict[str, Any] = {"partition_max_bytes": large // 2}
        answer = fetch.handle(
            stage.context(12), request(0, partitions=(0, 1), session_epoch=0, **limit)
        )
        sizes = []
        for epoch in (1, 2):
            assert isinstance(answer, FetchResponse)
            held = [row for row in rows_of(answer) if row.records]
            assert [row.partition_index for row in held] == [0]
            rows = [FetchPartition(partition=0, fetch_offset=epoch, **limit)]
            named = [FetchTopic(topic="t", partitions=rows)]
            answer = in_session(stage, answer, session_epoch=epoch, topics=named)
            sizes = [(row.partition_index, len(row.records or b"")) for row in rows_of(answer)]
        assert sizes[0] == (1, large)


@in_loop
async def test_no_piece_of_a_batch_is_sent_to_those_who_get_one_whole(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t", partitions=2)
        append(stage, 1, 0)
        large = append(stage, 50, 1)
        for version, is_sent in ((2, True), (3, False), (12, False)):
            message = request(0, partitions=(0, 1), partition_max_bytes=large - 1)
            answer: Any = fetch.handle(stage.context(version), message)
            rows = rows_of(await settled(answer) if version <= 3 else answer)
            assert len(rows[0].records or b"") > 0
            assert (len(rows[1].records or b"") > 0) is is_sent, version


@in_loop
async def test_a_batch_without_room_counts_as_arrived(tmp_path: Path) -> None:
    """The fetch is answered with what it has; the next one begins with that batch."""
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t", partitions=2)
        small = append(stage, 1, 0)
        large = append(stage, 50, 1)
        message = request(
            0,
            partitions=(0, 1),
            partition_max_bytes=large - 1,
            min_bytes=small + 100,
            max_wait_ms=500,
        )
        rows = rows_of(fetch.handle(stage.context(12), message))
        assert [len(row.records or b"") for row in rows] == [small, 0]


@in_loop
async def test_what_could_not_be_read_has_no_list_of_aborted_transactions(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t")
        assert read(stage, 99).aborted_transactions is None
        assert read(stage, 99, isolation_level=1).aborted_transactions is None
        assert read(stage, 0, isolation_level=1).aborted_transactions == []
        assert read(stage, 0, topic="unknown").aborted_transactions == []


@in_loop
async def test_unknown_partitions_come_last(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t", 2)
        answer = fetch.handle(stage.context(12), request(0, partitions=(7, 1, 0)))
        assert [(row.partition_index, row.error_code) for row in rows_of(answer)] == [
            (1, 0),
            (0, 0),
            (7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]


@pytest.mark.parametrize("level", [-1, 2])
@in_loop
async def test_unknown_isolation_level_refuses_the_request(tmp_path: Path, level: int) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t")
        append(stage)
        asked = request(0, isolation_level=level, session_epoch=0)
        by_name = fetch.handle(stage.context(12), asked)
        assert isinstance(by_name, FetchResponse)
        assert (by_name.error_code, by_name.session_id) == (ErrorCode.UNKNOWN_SERVER_ERROR, 0)
        (row,) = rows_of(by_name)
        assert (row.error_code, row.records) == (ErrorCode.UNKNOWN_SERVER_ERROR, None)
        asked.topics[0].topic_id = stage.broker.topics.topics["t"].topic_id
        by_id = fetch.handle(stage.context(13), asked)
        assert isinstance(by_id, FetchResponse)
        assert (by_id.error_code, by_id.responses) == (ErrorCode.UNKNOWN_SERVER_ERROR, [])


@in_loop
async def test_negative_limit_is_an_error_where_there_is_something_to_read(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t", 2)
        for index in (0, 1):
            append(stage, 3, index)
        assert read(stage, 0, partition_max_bytes=-1).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert read(stage, 3, partition_max_bytes=-1).error_code == ErrorCode.NONE
        assert read(stage, 9, partition_max_bytes=-1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        answer = fetch.handle(stage.context(12), request(0, partitions=(0, 1), max_bytes=-1))
        first, second = rows_of(answer)  # Kafka takes the limit for 0 from the second on
        assert first.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert second.error_code == ErrorCode.NONE
        assert second.records
