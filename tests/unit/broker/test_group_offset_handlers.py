from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.support.handlers import HandlerStage, at_once, handler_stage
from tidelog.broker.handlers import find_coordinator, offset_commit, offset_delete, offset_fetch
from tidelog.broker.metadata_cache import Node
from tidelog.errors import ErrorCode
from tidelog.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from tidelog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tidelog.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from tidelog.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from tidelog.types import Uuid

T = TypeVar("T")
GROUP, TRANSACTION, SHARE = 0, 1, 2


def on_stage(
    **overrides: str,
) -> Callable[[Callable[[HandlerStage], Coroutine[Any, Any, None]]], Callable[[Path], None]]:
    """A test with a broker that has topic t of two partitions and the offsets topic."""

    def decorate(
        test: Callable[[HandlerStage], Coroutine[Any, Any, None]],
    ) -> Callable[[Path], None]:
        def run(tmp_path: Path) -> None:
            async def with_stage() -> None:
                async with handler_stage(
                    tmp_path, offsets_topic_num_partitions="3", **overrides
                ) as stage:
                    await stage.topic("t", 2)
                    await stage.broker.topics.auto_create("__consumer_offsets")
                    await test(stage)

            asyncio.run(with_stage())

        run.__name__ = test.__name__
        return run

    return decorate


async def answered(answer: T | Coroutine[Any, Any, T]) -> T:
    return await answer if asyncio.iscoroutine(answer) else answer


async def find(
    stage: HandlerStage, version: int, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    response = await answered(find_coordinator.handle(stage.context(version), request))
    response.encode(version)
    return response


def commit(
    stage: HandlerStage,
    *rows: tuple[str, int, int],
    version: int = 9,
    group_id: str = "g",
    metadata: str | None = "",
    topic_id: Uuid | None = None,
    **fields: Any,
) -> list[int]:
    """The error of each row."""
    topics = []
    for topic, index, offset in rows:
        row = OffsetCommitRequestPartition(
            partition_index=index, committed_offset=offset, committed_metadata=metadata
        )
        made = OffsetCommitRequestTopic(name=topic, partitions=[row])
        if topic_id is not None:
            made.topic_id = topic_id
        topics.append(made)
    request = OffsetCommitRequest(group_id=group_id, topics=topics, **fields)
    request = OffsetCommitRequest.decode(memoryview(bytes(request.encode(version))), 0, version)
    response = offset_commit.handle(stage.context(version), request)
    assert isinstance(response, OffsetCommitResponse)
    response.encode(version)
    return [row.error_code for topic in response.topics for row in topic.partitions]


def fetch(
    stage: HandlerStage, version: int = 7, group_id: str = "g", topics: Any = (("t", [0, 1]),)
) -> Any:
    rows = None
    if topics is not None:
        rows = [
            OffsetFetchRequestTopic(name=name, partition_indexes=indexes)
            for name, indexes in topics
        ]
    request = OffsetFetchRequest(group_id=group_id, topics=rows)
    response = at_once(offset_fetch.handle(stage.context(version), request))
    response.encode(version)
    return response


def offsets(response: Any) -> dict[tuple[str, int], tuple[int, int]]:
    """Offset and error of each partition."""
    return {
        (topic.name, row.partition_index): (row.committed_offset, row.error_code)
        for topic in response.topics
        for row in topic.partitions
    }


class TestFindCoordinator:
    def test_first_request_makes_the_topic_and_is_answered(self, tmp_path: Path) -> None:
        async def story() -> None:
            async with handler_stage(tmp_path) as stage:
                stage.broker.metadata.advertise("PLAINTEXT", [Node(0, "h", 9, None)])
                response = await find(stage, 3, FindCoordinatorRequest(key="g"))
                assert (response.error_code, response.node_id, response.port) == (0, 0, 9)
                image = stage.broker.topics.topics["__consumer_offsets"]
                assert len(image.partitions) == 50
                assert image.configs["cleanup.policy"] == "compact"
                assert commit_ok(stage)

        def commit_ok(stage: HandlerStage) -> bool:
            return stage.broker.groups.offsets_of("g") is None

        asyncio.run(story())

    def test_every_key_has_its_own_row_from_v4_on(self, tmp_path: Path) -> None:
        async def story() -> None:
            async with handler_stage(tmp_path) as stage:
                stage.broker.metadata.advertise("PLAINTEXT", [Node(0, "h", 9, None)])
                request = FindCoordinatorRequest(key_type=GROUP, coordinator_keys=["a", "b"])
                response = await find(stage, 4, request)
                assert [(row.key, row.error_code) for row in response.coordinators] == [
                    ("a", 0),
                    ("b", 0),
                ]

        asyncio.run(story())

    @pytest.mark.parametrize(
        ("version", "key_type", "code"),
        [
            (1, TRANSACTION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
            (6, TRANSACTION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
            (5, SHARE, ErrorCode.INVALID_REQUEST),
            (6, SHARE, ErrorCode.COORDINATOR_NOT_AVAILABLE),
            (1, 7, ErrorCode.INVALID_REQUEST),
            (6, 7, ErrorCode.INVALID_REQUEST),
        ],
    )
    def test_other_coordinators_are_not_there(
        self, tmp_path: Path, version: int, key_type: int, code: ErrorCode
    ) -> None:
        async def story() -> None:
            async with handler_stage(tmp_path) as stage:
                stage.broker.metadata.replace_nodes({})  # nothing listens
                request = FindCoordinatorRequest(key_type=key_type)
                if version >= 4:
                    request.coordinator_keys = ["k"]
                response = await find(stage, version, request)
                row = response.coordinators[0] if version >= 4 else response
                assert row.error_code == code
                assert (row.node_id, row.host, row.port) == (-1, "", -1)

        asyncio.run(story())


@on_stage()
async def test_committed_offset_comes_back_in_every_version(stage: HandlerStage) -> None:
    topic_id = stage.broker.topics.topics["t"].topic_id
    for version in range(11):
        by_id = topic_id if version >= 10 else None
        assert commit(stage, ("t", 0, version), version=version, topic_id=by_id) == [0]
        read = fetch(stage, version=min(version, 7))
        assert offsets(read)["t", 0] == (version, 0)


@on_stage()
async def test_unknown_topics_and_partitions_are_refused_one_by_one(stage: HandlerStage) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    rows = (("t", 0, 1), ("t", 2, 1), ("t", -1, 1), ("nope", 0, 1))
    assert commit(stage, *rows) == [0, unknown, unknown, unknown]
    missing = Uuid.random()
    assert commit(stage, ("", 0, 1), version=10, topic_id=missing) == [ErrorCode.UNKNOWN_TOPIC_ID]


@on_stage()
async def test_a_partition_named_twice_in_version_1_is_answered_once(stage: HandlerStage) -> None:
    """Version 1 is Kafka 3.9's alone; later ones are answered row by row, as by Kafka 4."""
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    twice = (("t", 0, 5), ("t", 1, 6), ("t", 9, 1), ("t", 0, 7), ("t", 9, 1))
    assert commit(stage, *twice, version=1) == [0, unknown, 0, unknown]
    assert offsets(fetch(stage)) == {("t", 0): (7, 0), ("t", 1): (6, 0)}
    assert commit(stage, ("t", 0, 8), ("t", 0, 9), version=2) == [0, 0]
    assert offsets(fetch(stage))["t", 0] == (9, 0)


@on_stage()
async def test_the_empty_group_id_may_commit(stage: HandlerStage) -> None:
    assert commit(stage, ("t", 0, 4), group_id="") == [0]
    assert offsets(fetch(stage, group_id=""))["t", 0] == (4, 0)


@on_stage(offset_metadata_max_bytes="10")
async def test_metadata_that_is_too_large_is_refused_for_its_row(stage: HandlerStage) -> None:
    assert commit(stage, ("t", 0, 4), metadata="x" * 10) == [0]
    too_large = ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert commit(stage, ("t", 0, 5), metadata="x" * 11) == [too_large]
    assert offsets(fetch(stage))["t", 0] == (4, 0)


@on_stage()
async def test_a_generation_of_an_unknown_group_is_refused(stage: HandlerStage) -> None:
    known: dict[str, Any] = {"generation_id_or_member_epoch": 3, "member_id": "m"}
    assert commit(stage, ("t", 0, 4), version=8, **known) == [ErrorCode.ILLEGAL_GENERATION]
    assert commit(stage, ("t", 0, 4), version=9, **known) == [ErrorCode.GROUP_ID_NOT_FOUND]
    topic_id = stage.broker.topics.topics["t"].topic_id
    outcome = commit(stage, ("t", 0, 4), version=10, topic_id=topic_id, **known)
    assert outcome == [ErrorCode.GROUP_ID_NOT_FOUND]
    assert stage.broker.groups.group_or_none("g") is None


@on_stage()
async def test_retention_of_old_versions_is_an_expiry(stage: HandlerStage) -> None:
    commit(stage, ("t", 0, 4), version=4, retention_time_ms=5000)
    commit(stage, ("t", 1, 4), version=5)
    stage.clock.advance(ms=4999)
    stage.broker.groups.expire_offsets()
    assert offsets(fetch(stage))["t", 0] == (4, 0)
    stage.clock.advance(ms=1)
    stage.broker.groups.expire_offsets()
    assert offsets(fetch(stage)) == {("t", 0): (-1, 0), ("t", 1): (4, 0)}


@on_stage()
async def test_what_was_never_committed_is_minus_one_and_no_error(stage: HandlerStage) -> None:
    asked = (("t", [0]), ("nope", [7]))
    expected = {("t", 0): (-1, 0), ("nope", 7): (-1, 0)}
    assert offsets(fetch(stage, topics=asked)) == expected
    assert fetch(stage).error_code == 0


@on_stage()
async def test_version_0_has_an_error_for_what_was_never_committed(stage: HandlerStage) -> None:
    assert offsets(fetch(stage, version=0))["t", 0] == (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


@on_stage()
async def test_null_topics_are_all_that_the_group_has(stage: HandlerStage) -> None:
    commit(stage, ("t", 0, 4), ("t", 1, 5))
    assert offsets(fetch(stage, topics=None)) == {("t", 0): (4, 0), ("t", 1): (5, 0)}
    assert offsets(fetch(stage, group_id="other", topics=None)) == {}


@on_stage()
async def test_several_groups_are_answered_each_on_its_own(stage: HandlerStage) -> None:
    commit(stage, ("t", 0, 4), group_id="one")
    commit(stage, ("t", 1, 5), group_id="two")
    topic_id = stage.broker.topics.topics["t"].topic_id
    missing = Uuid.random()
    for version in (8, 9, 10):
        topics = [
            OffsetFetchRequestTopics(name="t", topic_id=topic_id, partition_indexes=[0]),
            OffsetFetchRequestTopics(name="nope", topic_id=missing, partition_indexes=[0]),
        ]
        request = OffsetFetchRequest(
            groups=[
                OffsetFetchRequestGroup(group_id="one", topics=topics),
                OffsetFetchRequestGroup(group_id="two", topics=None),
            ]
        )
        response = at_once(offset_fetch.handle(stage.context(version), request))
        response.encode(version)
        one, two = response.groups
        unknown = ErrorCode.UNKNOWN_TOPIC_ID if version == 10 else 0
        found = [
            (row.committed_offset, row.error_code)
            for topic in one.topics
            for row in topic.partitions
        ]
        assert found == [(4, 0), (-1, unknown)]
        assert [topic.topic_id for topic in two.topics] == [topic_id]
        assert [topic.partitions[0].committed_offset for topic in two.topics] == [5]


@on_stage()
async def test_what_is_named_twice_is_answered_once(stage: HandlerStage) -> None:
    commit(stage, ("t", 0, 4), ("t", 1, 5))
    repeated = fetch(stage, topics=[("t", [0, 0]), ("t", [1, 0])])
    (topic,) = repeated.topics
    assert [row.partition_index for row in topic.partitions] == [0, 1]

    def group(*indexes: int, member_id: str | None = None) -> OffsetFetchRequestGroup:
        topics = [OffsetFetchRequestTopics(name="t", partition_indexes=list(indexes))]
        return OffsetFetchRequestGroup(group_id="g", member_id=member_id, topics=topics)

    request = OffsetFetchRequest(groups=[group(0, 0), group(1, 0), group(1, member_id="m")])
    response = at_once(offset_fetch.handle(stage.context(9), request))
    found = [
        [row.committed_offset for topic in each.topics for row in topic.partitions]
        for each in response.groups
    ]
    assert found == [[4, 5], [5]]


@on_stage()
async def test_a_group_asked_for_partitions_and_for_all_is_answered_with_all(
    stage: HandlerStage,
) -> None:
    commit(stage, ("t", 0, 4), ("t", 1, 5))
    some = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    groups = [OffsetFetchRequestGroup(group_id="g", topics=topics) for topics in (some, None)]
    (row,) = at_once(
        offset_fetch.handle(stage.context(8), OffsetFetchRequest(groups=groups))
    ).groups
    assert len(row.topics[0].partitions) == 2


@on_stage()
async def test_no_groups_at_all_are_answered_with_none(stage: HandlerStage) -> None:
    assert at_once(offset_fetch.handle(stage.context(8), OffsetFetchRequest())).groups == []


def test_without_the_topic_nobody_coordinates(tmp_path: Path) -> None:
    async def story() -> None:
        async with handler_stage(tmp_path) as stage:
            await stage.topic("t", 2)
            code = ErrorCode.NOT_COORDINATOR
            assert commit(stage, ("t", 0, 1)) == [code]
            assert fetch(stage, version=2).error_code == code
            assert offsets(fetch(stage, version=1))["t", 1] == (-1, code)
            group = OffsetFetchRequestGroup(group_id="g", topics=None)
            several = OffsetFetchRequest(groups=[group])
            response = at_once(offset_fetch.handle(stage.context(8), several))
            assert [row.error_code for row in response.groups] == [code]

    asyncio.run(story())


def delete(stage: HandlerStage, group_id: str, *rows: tuple[str, int]) -> Any:
    request = OffsetDeleteRequest(
        group_id=group_id,
        topics=[
            OffsetDeleteRequestTopic(
                name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=index)]
            )
            for topic, index in rows
        ],
    )
    response = at_once(offset_delete.handle(stage.context(0), request))
    response.encode(0)
    return response


@on_stage()
async def test_topics_without_partitions_are_left_out_of_answers(stage: HandlerStage) -> None:
    context, topic_id = stage.context, stage.broker.topics.topics["t"].topic_id
    for version in range(11):
        empty = OffsetCommitRequestTopic(name="t", topic_id=topic_id, partitions=[])
        request = OffsetCommitRequest(group_id="g", topics=[empty])
        answer = offset_commit.handle(context(version), request)
        assert at_once(answer).topics == []
    unknown = OffsetCommitRequestTopic(name="nope", topic_id=Uuid.random(), partitions=[])
    for version in (9, 10):
        answer = offset_commit.handle(context(version), OffsetCommitRequest(topics=[unknown]))
        assert [topic.partitions for topic in at_once(answer).topics] == [[]]
    commit(stage, ("t", 0, 4))
    nothing = OffsetDeleteRequest(
        group_id="g", topics=[OffsetDeleteRequestTopic(name="t", partitions=[])]
    )
    deleted = at_once(offset_delete.handle(context(0), nothing))
    assert (deleted.error_code, deleted.topics) == (0, [])
    assert fetch(stage, 0, topics=(("t", []),)).topics == []
    assert [topic.name for topic in fetch(stage, 1, topics=(("t", []),)).topics] == ["t"]


@on_stage()
async def test_deleted_offsets_are_gone_and_the_group_with_the_last(stage: HandlerStage) -> None:
    commit(stage, ("t", 0, 4), ("t", 1, 5))
    response = delete(stage, "g", ("t", 0), ("t", 9), ("nope", 0))
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [topic.partitions[0].error_code for topic in response.topics] == [0, unknown, unknown]
    assert offsets(fetch(stage)) == {("t", 0): (-1, 0), ("t", 1): (5, 0)}
    delete(stage, "g", ("t", 1))
    assert delete(stage, "g", ("t", 1)).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert delete(stage, "", ("t", 1)).error_code == ErrorCode.INVALID_GROUP_ID


@on_stage()
async def test_offsets_go_with_their_topic(stage: HandlerStage) -> None:
    commit(stage, ("t", 0, 4))
    await stage.broker.topics.delete("t")
    await stage.topic("t", 2)
    assert offsets(fetch(stage))["t", 0] == (-1, 0)


@on_stage()
async def test_without_its_topic_the_coordinator_resigns(stage: HandlerStage) -> None:
    commit(stage, ("t", 0, 4))
    await stage.broker.topics.delete("__consumer_offsets")
    assert fetch(stage).error_code == ErrorCode.NOT_COORDINATOR
    await stage.broker.topics.auto_create("__consumer_offsets")
    assert offsets(fetch(stage))["t", 0] == (-1, 0)
