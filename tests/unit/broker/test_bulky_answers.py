"""Large requests and answers: the loop serves others while they are decoded, made and encoded."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.clock import BusyClock
from tests.support.handlers import HandlerStage, at_once, handler_stage
from tests.support.metadata import in_loop
from tests.support.new_offsets import new_offset
from tests.unit.broker.test_dispatcher import Dispatch
from tidelog.broker.bulky_answers import EncodedAnswer
from tidelog.broker.dispatcher import DECODED_AT_ONCE_BYTES
from tidelog.broker.handlers import (
    delete_groups,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    list_groups,
    metadata,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
)
from tidelog.pending import Pending
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from tidelog.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from tidelog.protocol.messages.describe_groups import DescribeGroupsRequest
from tidelog.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from tidelog.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from tidelog.protocol.messages.list_groups import ListGroupsRequest
from tidelog.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from tidelog.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from tidelog.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tidelog.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tidelog.slices import SlicedWork

GROUPS = 600


async def groups_and_topics(stage: HandlerStage) -> None:
    for number in range(5):
        await stage.topic(f"t{number}", 3)
    await stage.broker.topics.auto_create("__consumer_offsets")
    for number in range(GROUPS):
        commit(stage, f"g{number}", 1)


def commit(stage: HandlerStage, group_id: str, partitions: int) -> None:
    now_ms = stage.clock.time_ms()
    stage.broker.groups.commit_offsets(
        group_id,
        [new_offset("t0", number, 7, 0, "", now_ms) for number in range(partitions)],
        generation_id=-1,
        member_id="",
        group_instance_id=None,
        knows_member_epochs=False,
    )


def slow_down(stage: HandlerStage) -> None:
    """From now on a turn of the loop does one step of an answer."""
    stage.broker.work = SlicedWork(BusyClock(), asyncio.get_running_loop(), 0.0015)


async def completed(answer: Any) -> EncodedAnswer:
    assert isinstance(answer, Pending)
    encoded = await asyncio.wait_for(answer, 30)
    assert isinstance(encoded, EncodedAnswer)
    return encoded


QUESTIONS: dict[str, tuple[Callable[..., Any], int, Callable[[], Any]]] = {
    "ListGroups": (list_groups.handle, 5, ListGroupsRequest),
    "DescribeGroups": (
        describe_groups.handle,
        5,
        lambda: DescribeGroupsRequest(groups=[f"g{number}" for number in range(GROUPS)]),
    ),
    "OffsetFetch": (
        offset_fetch.handle,
        8,
        lambda: OffsetFetchRequest(
            groups=[
                OffsetFetchRequestGroup(group_id=f"g{number}", topics=None)
                for number in range(GROUPS)
            ]
        ),
    ),
    "Metadata": (metadata.handle, 12, lambda: MetadataRequest(topics=None)),
    "DescribeLogDirs": (describe_log_dirs.handle, 1, lambda: DescribeLogDirsRequest(topics=None)),
    "OffsetForLeaderEpoch": (
        offset_for_leader_epoch.handle,
        4,
        lambda: OffsetForLeaderEpochRequest(
            topics=[
                OffsetForLeaderTopic(
                    topic=name,
                    partitions=[OffsetForLeaderPartition(partition=n) for n in range(4)],
                )
                for name in ("t0", "t1")
            ]
        ),
    ),
    "DescribeProducers": (
        describe_producers.handle,
        0,
        lambda: DescribeProducersRequest(
            topics=[
                TopicRequest(name=name, partition_indexes=[0, 1, 2, 3]) for name in ("t0", "t1")
            ]
        ),
    ),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_an_answer_made_in_slices_is_the_one_made_at_once(question: str, tmp_path: Path) -> None:
    handle, version, request = QUESTIONS[question]

    async def story() -> None:
        async with handler_stage(tmp_path, offsets_topic_num_partitions="3") as stage:
            await groups_and_topics(stage)
            context = stage.context(version)
            expected = at_once(handle(context, request())).encode(version)
            slow_down(stage)
            encoded = await completed(handle(context, request()))
            assert encoded.encode(version) == expected

    asyncio.run(story())


@pytest.mark.parametrize("count", [150, offset_fetch.ROWS_AT_ONCE + 100])
@pytest.mark.parametrize("version", [7, 8])
def test_all_offsets_of_a_group_are_of_one_moment(tmp_path: Path, version: int, count: int) -> None:
    async def story() -> None:
        async with handler_stage(tmp_path, offsets_topic_num_partitions="3") as stage:
            await stage.topic("t0", count)
            await stage.broker.topics.auto_create("__consumer_offsets")
            commit(stage, "g", count)
            request = OffsetFetchRequest(group_id="g", topics=None)
            if version == 8:
                request = OffsetFetchRequest(
                    groups=[OffsetFetchRequestGroup(group_id="g", topics=None)]
                )
            context = stage.context(version)
            expected = at_once(offset_fetch.handle(context, request)).encode(version)
            slow_down(stage)
            answer = offset_fetch.handle(context, request)
            for _ in range(2):
                assert stage.broker.groups.delete_group("g") is None  # some are gone, and some not
            encoded = await completed(answer) if isinstance(answer, Pending) else answer
            assert encoded.encode(version) == expected

    asyncio.run(story())


@in_loop
async def test_groups_that_are_deleted_in_slices_are_all_gone(tmp_path: Path) -> None:
    async with handler_stage(tmp_path, offsets_topic_num_partitions="3") as stage:
        await groups_and_topics(stage)
        slow_down(stage)
        names = [f"g{number}" for number in range(GROUPS)]
        answer = delete_groups.handle(stage.context(2), DeleteGroupsRequest(groups_names=names))
        encoded = await completed(answer)
        response = DeleteGroupsResponse.decode(memoryview(encoded.encode(2)), 0, 2)
        assert [row.group_id for row in response.results] == names
        assert not any(row.error_code for row in response.results)
        assert not stage.broker.groups.list_groups()


@in_loop
async def test_offsets_that_are_deleted_in_slices_take_the_group_with_them(tmp_path: Path) -> None:
    async with handler_stage(tmp_path, offsets_topic_num_partitions="3") as stage:
        await stage.topic("t0", 120)
        await stage.broker.topics.auto_create("__consumer_offsets")
        commit(stage, "g", 60)
        slow_down(stage)
        partitions = [OffsetDeleteRequestPartition(partition_index=n) for n in range(121)]
        topic = OffsetDeleteRequestTopic(name="t0", partitions=partitions)
        request = OffsetDeleteRequest(group_id="g", topics=[topic])
        encoded = await completed(offset_delete.handle(stage.context(0), request))
        response = OffsetDeleteResponse.decode(memoryview(encoded.encode(0)), 0, 0)
        codes = [row.error_code for row in response.topics[0].partitions]
        assert (response.error_code, codes) == (0, [0] * 120 + [3])
        assert stage.broker.groups.group_or_none("g") is None


@in_loop
async def test_configs_of_many_topics_are_encoded_in_a_thread(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        names = [f"t{number}" for number in range(12)]
        for name in names:
            await stage.topic(name)
        resources = [DescribeConfigsResource(resource_type=2, resource_name=n) for n in names]
        request = DescribeConfigsRequest(resources=resources)
        answer = await describe_configs.handle(stage.context(4), request)
        assert isinstance(answer, EncodedAnswer)
        response = DescribeConfigsResponse.decode(memoryview(answer.encode(4)), 0, 4)
        assert [row.resource_name for row in response.results] == names


def large_request() -> bytearray:
    topics = [MetadataRequestTopic(name="x" * 200) for _ in range(DECODED_AT_ONCE_BYTES // 200)]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=False).encode(12)


@in_loop
async def test_a_large_request_is_decoded_in_a_thread(tmp_path: Path) -> None:
    decode = MetadataRequest.decode
    threads = []

    def noted(*arguments: Any) -> MetadataRequest:
        threads.append(threading.get_ident())
        return decode(*arguments)

    async with handler_stage(tmp_path) as stage:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(MetadataRequest, "decode", noted)
            request = Dispatch(stage).message(ApiKey.METADATA, 12, large_request())
            await asyncio.wait_for(request.answered.wait(), 30)
        assert request.answer is not None
        response = MetadataResponse.decode(memoryview(request.answer), 5, 12)
        assert [topic.name for topic in response.topics] == ["x" * 200]
        assert threads
        assert threading.get_ident() not in threads


@in_loop
async def test_a_large_request_that_does_not_parse_closes_the_connection(tmp_path: Path) -> None:
    async with handler_stage(tmp_path) as stage:
        request = Dispatch(stage).message(ApiKey.METADATA, 12, large_request()[:-300])
        await asyncio.wait_for(request.answered.wait(), 30)
        assert request.answer is None
        assert request.closed is not None
        assert "does not parse" in request.closed
