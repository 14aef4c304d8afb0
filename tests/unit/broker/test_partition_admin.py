"""DeleteRecords, OffsetForLeaderEpoch, DescribeLogDirs and DescribeTopicPartitions."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from tests.support.batches import simple_batch
from tests.support.handlers import HandlerStage, at_once, handler_stage
from tests.support.metadata import in_loop
from tidelog.broker.authorized_operations import TOPIC_OPERATIONS
from tidelog.broker.handlers import (
    delete_records,
    describe_log_dirs,
    describe_topic_partitions,
    offset_for_leader_epoch,
)
from tidelog.controller import znodes
from tidelog.controller.topics import TopicImage
from tidelog.errors import ErrorCode
from tidelog.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from tidelog.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from tidelog.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from tidelog.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)


def append(stage: HandlerStage, count: int) -> int:
    batch = simple_batch(count)
    stage.partition("t").append(memoryview(batch), 11)
    return len(batch)


def delete_before(stage: HandlerStage, offset: int) -> DeleteRecordsPartitionResult:
    row = DeleteRecordsPartition(partition_index=0, offset=offset)
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=[row])])
    return answered(stage, request).topics[0].partitions[0]


def answered(stage: HandlerStage, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    """At once: no other replica is waited for."""
    response = delete_records.handle(stage.context(2), request)
    assert isinstance(response, DeleteRecordsResponse)
    return response


@in_loop
async def test_delete_records_moves_the_log_start_and_never_back(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t")
        append(stage, 10)
        assert delete_before(stage, 4).low_watermark == 4
        assert delete_before(stage, 2).low_watermark == 4
        assert delete_before(stage, -1).low_watermark == 10


@pytest.mark.parametrize("offset", [11, -2])
def test_delete_records_beyond_the_high_watermark_is_out_of_range(
    tmp_path: Path, offset: int
) -> None:
    @in_loop
    async def story() -> None:
        async with handler_stage(tmp_path) as stage:
            await stage.topic("t")
            append(stage, 10)
            result = delete_before(stage, offset)
            assert result.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
            assert result.low_watermark == -1

    story()


@in_loop
async def test_records_of_an_internal_topic_cannot_be_deleted(tmp_path: Path) -> None:
    async with handler_stage(tmp_path, offsets_topic_num_partitions="1") as stage:
        await stage.broker.topics.auto_create("__consumer_offsets")
        row = DeleteRecordsPartition(partition_index=0, offset=-1)
        topic = DeleteRecordsTopic(name="__consumer_offsets", partitions=[row])
        answer = answered(stage, DeleteRecordsRequest(topics=[topic]))
        code = answer.topics[0].partitions[0].error_code
        assert code == ErrorCode.INVALID_TOPIC_EXCEPTION


@in_loop
async def test_missing_partition_of_an_internal_topic_is_unknown(tmp_path: Path) -> None:
    async with handler_stage(tmp_path, offsets_topic_num_partitions="1") as stage:
        await stage.broker.topics.auto_create("__consumer_offsets")
        rows = [DeleteRecordsPartition(partition_index=9, offset=-1)]
        for name in ("__consumer_offsets", "__transaction_state"):
            topic = DeleteRecordsTopic(name=name, partitions=rows)
            answer = answered(stage, DeleteRecordsRequest(topics=[topic]))
            code = answer.topics[0].partitions[0].error_code
            assert code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@in_loop
async def test_of_a_partition_named_twice_the_last_offset_counts(tmp_path: Path) -> None:
    def topic(*rows: tuple[int, int]) -> DeleteRecordsTopic:
        partitions = [
            DeleteRecordsPartition(partition_index=i, offset=offset) for i, offset in rows
        ]
        return DeleteRecordsTopic(name="t", partitions=partitions)

    async with handler_stage(tmp_path) as stage:
        await stage.topic("t", partitions=2)
        append(stage, 10)
        asked = DeleteRecordsRequest(topics=[topic((0, 5), (0, 3)), topic(), topic((1, 0))])
        (row,) = answered(stage, asked).topics
        assert [(p.partition_index, p.low_watermark) for p in row.partitions] == [(0, 3), (1, 0)]
        assert answered(stage, DeleteRecordsRequest(topics=[topic()])).topics == []


@pytest.mark.parametrize("policy", ["compact", ""])
@in_loop
async def test_records_of_a_topic_without_retention_cannot_be_deleted(
    tmp_path: Path, policy: str
) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t", cleanup_policy=policy)
        append(stage, 1)
        assert delete_before(stage, 1).error_code == ErrorCode.POLICY_VIOLATION


def end_of(stage: HandlerStage, epoch: int, current: int = -1) -> EpochEndOffset:
    row = OffsetForLeaderPartition(partition=0, leader_epoch=epoch, current_leader_epoch=current)
    request = OffsetForLeaderEpochRequest(
        topics=[OffsetForLeaderTopic(topic="t", partitions=[row])]
    )
    answer = at_once(offset_for_leader_epoch.handle(stage.context(4), request))
    return answer.topics[0].partitions[0]


@in_loop
async def test_present_epoch_ends_at_the_log_end(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t")
        append(stage, 3)
        end = end_of(stage, 0)
        assert (end.error_code, end.leader_epoch, end.end_offset) == (0, 0, 3)
        unknown = end_of(stage, 5)
        assert (unknown.leader_epoch, unknown.end_offset) == (-1, -1)
        assert end_of(stage, 0, current=3).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_restart_begins_a_new_epoch_where_the_old_one_ended(tmp_path: Path) -> None:
    @in_loop
    async def before() -> None:
        async with handler_stage(tmp_path) as stage:
            await stage.topic("t")
            append(stage, 3)

    @in_loop
    async def after() -> None:
        async with handler_stage(tmp_path) as stage:
            append(stage, 2)
            assert stage.partition("t").leader_epoch == 1
            first, second = end_of(stage, 0), end_of(stage, 1)
            assert (first.leader_epoch, first.end_offset) == (0, 3)
            assert (second.leader_epoch, second.end_offset) == (1, 5)
            assert end_of(stage, 0, current=0).error_code == ErrorCode.FENCED_LEADER_EPOCH

    before()
    after()


@in_loop
async def test_log_dirs_show_sizes_and_room(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t", partitions=2)
        size = append(stage, 3)
        everything = at_once(
            describe_log_dirs.handle(stage.context(4), DescribeLogDirsRequest(topics=None))
        )
        (directory,) = everything.results
        assert directory.log_dir == str(tmp_path)
        assert [p.partition_size for p in directory.topics[0].partitions] == [size, 0]
        assert directory.total_bytes > directory.usable_bytes > 0
        one = DescribableLogDirTopic(topic="t", partitions=[1, 7])
        named = at_once(
            describe_log_dirs.handle(stage.context(4), DescribeLogDirsRequest(topics=[one]))
        )
        assert [p.partition_index for p in named.results[0].topics[0].partitions] == [1]


async def pages(
    stage: HandlerStage, limit: int, *names: str, cursor: Cursor | None = None
) -> DescribeTopicPartitionsResponse:
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=cursor,
    )
    return await describe_topic_partitions.handle(stage.context(0), request)


@in_loop
async def test_topic_partitions_come_page_by_page(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("a", partitions=3)
        await stage.topic("b", partitions=2)
        seen: list[tuple[str | None, int]] = []
        cursor = None
        for _ in range(10):
            page = await pages(stage, 2, cursor=cursor)
            seen += [(t.name, p.partition_index) for t in page.topics for p in t.partitions]
            cursor = page.next_cursor
            if cursor is None:
                break
        assert seen == [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1)]


@pytest.mark.parametrize("limit", [0, -1])
@in_loop
async def test_a_page_holds_at_least_one_partition(tmp_path: Path, limit: int) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("a", partitions=3)
        page = await pages(stage, limit, "a")
        assert [p.partition_index for p in page.topics[0].partitions] == [0]
        assert page.next_cursor == Cursor(topic_name="a", partition_index=1)


@in_loop
async def test_cursor_must_name_one_of_the_topics_asked_for(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("a")
        await stage.topic("c")
        for cursor in (
            Cursor(topic_name="b", partition_index=0),
            Cursor(topic_name="a", partition_index=-1),
        ):
            page = await pages(stage, 9, "a", "c", cursor=cursor)
            assert [(row.name, row.error_code) for row in page.topics] == [
                ("a", ErrorCode.INVALID_REQUEST),
                ("c", ErrorCode.INVALID_REQUEST),
            ]
        everything = await pages(stage, 9, cursor=Cursor(topic_name="b", partition_index=0))
        assert [row.name for row in everything.topics] == ["c"]


@in_loop
async def test_cursor_on_an_unknown_topic_skips_no_partition_of_the_next(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        await stage.topic("b", partitions=2)
        cursor = Cursor(topic_name="a", partition_index=1)
        unknown, known = (await pages(stage, 9, "a", "b", cursor=cursor)).topics
        assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert [p.partition_index for p in known.partitions] == [0, 1]


@in_loop
async def test_unknown_topics_carry_authorised_operations(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        (row,) = (await pages(stage, 10, "gone")).topics
        assert row.topic_authorized_operations == TOPIC_OPERATIONS


@in_loop
async def test_topic_partitions_of_unknown_and_invalid_topics(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        codes = {t.name: t.error_code for t in (await pages(stage, 10, "gone", "no good")).topics}
        assert codes == {
            "gone": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "no good": ErrorCode.INVALID_TOPIC_EXCEPTION,
        }


@in_loop
async def test_in_a_cluster_eligible_leader_replicas_are_shown(tmp_path: Path) -> None:
    """KIP-966; as they are in the metadata store."""
    async with handler_stage(tmp_path) as stage:
        await stage.topic("t")
        await stage.topic("full")
        image = stage.broker.topics.topics["t"]
        behind = image.partitions[0]._replace(replicas=[0, 1, 2], isr=[0])
        stage.broker.topics.topics["t"] = TopicImage("t", image.topic_id, [behind], {})
        state = znodes.encode_state(0, 4, 1, [0], elr=[1], last_known_elr=[2])
        await stage.broker.store.set(znodes.state_path("t", 0), state)
        stage.broker.cluster = cast(Any, object())
        full, row = [topic.partitions[0] for topic in (await pages(stage, 10)).topics]
        stage.broker.cluster = None
        assert (row.eligible_leader_replicas, row.last_known_elr) == ([1], [2])
        assert (full.eligible_leader_replicas, full.last_known_elr) == ([], [])
