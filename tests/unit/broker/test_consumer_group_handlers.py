"""The handlers of the consumer protocol, and what the other group APIs say of consumer groups."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.handlers import HandlerStage, at_once, handler_stage
from tests.support.new_offsets import new_offset
from tidelog.broker.handlers import (
    api_versions,
    consumer_group_describe,
    consumer_group_heartbeat,
    delete_groups,
    describe_groups,
    list_groups,
    offset_delete,
    offset_fetch,
)
from tidelog.config.group import HEARTBEAT_INTERVAL, SESSION_TIMEOUT
from tidelog.errors import ErrorCode
from tidelog.pending import Pending
from tidelog.protocol.messages.api_versions import ApiVersionsRequest
from tidelog.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    DescribedGroup,
)
from tidelog.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tidelog.protocol.messages.delete_groups import DeleteGroupsRequest
from tidelog.protocol.messages.describe_groups import DescribeGroupsRequest
from tidelog.protocol.messages.list_groups import ListGroupsRequest
from tidelog.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from tidelog.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)

Story = Callable[["ConsumerStage"], Awaitable[None]]


class ConsumerStage:
    def __init__(self, stage: HandlerStage) -> None:
        self.stage = stage
        self.broker = stage.broker

    def beat(self, version: int = 1, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        """As it would be sent."""
        request = ConsumerGroupHeartbeatRequest(**{"group_id": "g", "member_id": "m", **fields})
        answer = consumer_group_heartbeat.handle(self.stage.context(version), request)
        assert not isinstance(answer, Pending)
        data = memoryview(bytes(answer.encode(version)))
        return ConsumerGroupHeartbeatResponse.decode(data, 0, version)

    def join(self, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        joining = {
            "rebalance_timeout_ms": 5000,
            "subscribed_topic_names": ["t"],
            "topic_partitions": [],
        }
        return self.beat(**{**joining, **fields})

    def describe(self, *group_ids: str, version: int = 1, **fields: Any) -> list[DescribedGroup]:
        request = ConsumerGroupDescribeRequest(group_ids=list(group_ids), **fields)
        answer = consumer_group_describe.handle(self.stage.context(version), request)
        answer.encode(version)
        return answer.groups


def on_stage(**overrides: str) -> Callable[[Story], Callable[[Path], None]]:
    def wrap(story: Story) -> Callable[[Path], None]:
        def test(tmp_path: Path) -> None:
            async def run() -> None:
                async with handler_stage(tmp_path, **overrides) as stage:
                    await stage.topic("__consumer_offsets", 2)
                    await stage.topic("t", 3)
                    await story(ConsumerStage(stage))

            asyncio.run(run())

        test.__name__ = story.__name__
        return test

    return wrap


@on_stage()
async def test_a_member_joins_and_is_told_epoch_interval_and_partitions(
    stage: ConsumerStage,
) -> None:
    answer = stage.join()
    assert (answer.error_code, answer.error_message) == (0, None)
    assert (answer.member_id, answer.member_epoch) == ("m", 2)
    assert answer.heartbeat_interval_ms == 5000
    assert answer.assignment is not None
    (row,) = answer.assignment.topic_partitions
    assert row.topic_id == stage.broker.topics.topics["t"].topic_id
    assert row.partitions == [0, 1, 2]
    assert stage.beat(member_epoch=2, topic_partitions=[]).assignment is None


@on_stage()
async def test_a_groups_own_settings_hold_from_the_next_heartbeat_on(stage: ConsumerStage) -> None:
    alter = stage.broker.dynamic_config.alter_group
    stage.join()
    await alter("g", lambda before: {HEARTBEAT_INTERVAL: "9000", SESSION_TIMEOUT: "60000"})
    assert stage.beat(member_epoch=2).heartbeat_interval_ms == 9_000
    assert stage.join(group_id="other").heartbeat_interval_ms == 5_000
    stage.stage.clock.advance(ms=59_000)
    assert [len(row.members) for row in stage.describe("g", "other")] == [1, 0]
    stage.stage.clock.advance(ms=1_001)
    assert [len(row.members) for row in stage.describe("g")] == [0]
    await alter("g", lambda before: {})
    assert stage.join().heartbeat_interval_ms == 5_000


def test_a_groups_own_settings_outlive_a_restart(tmp_path: Path) -> None:
    async def alter() -> None:
        async with handler_stage(tmp_path) as stage:
            await stage.topic("__consumer_offsets", 2)
            await stage.topic("t", 3)
            dynamic_config = stage.broker.dynamic_config
            await dynamic_config.alter_group("g", lambda before: {HEARTBEAT_INTERVAL: "9000"})

    async def join() -> None:
        async with handler_stage(tmp_path) as stage:
            assert ConsumerStage(stage).join().heartbeat_interval_ms == 9_000

    asyncio.run(alter())
    asyncio.run(join())


@on_stage()
async def test_version_0_is_given_its_member_id(stage: ConsumerStage) -> None:
    given = stage.join(version=0, member_id="").member_id
    assert given
    assert stage.beat(version=0, member_id=given, member_epoch=2).error_code == 0


@on_stage()
async def test_a_refusal_has_a_code_and_a_message(stage: ConsumerStage) -> None:
    answer = stage.beat(member_epoch=7)
    assert answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert answer.error_message == "Group g not found."
    assert answer.assignment is None


@on_stage(group_coordinator_rebalance_protocols="classic")
async def test_a_protocol_that_is_switched_off_is_an_unsupported_version(
    stage: ConsumerStage,
) -> None:
    assert stage.join().error_code == ErrorCode.UNSUPPORTED_VERSION
    assert stage.describe("g")[0].error_code == ErrorCode.UNSUPPORTED_VERSION
    request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    answer = api_versions.handle(stage.stage.context(4), request)
    assert "group.version" not in {row.name for row in answer.finalized_features}


@on_stage()
async def test_the_feature_that_stands_for_the_protocol_is_finalized(stage: ConsumerStage) -> None:
    request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    answer = api_versions.handle(stage.stage.context(4), request)
    levels = {row.name: row.max_version_level for row in answer.finalized_features}
    assert levels == {"transaction.version": 2, "group.version": 1}


@on_stage()
async def test_a_group_is_described_with_epochs_members_and_assignments(
    stage: ConsumerStage,
) -> None:
    stage.join(rack_id="r")
    stage.join(member_id="n", instance_id="i")
    (group,) = stage.describe("g", include_authorized_operations=True)
    assert (group.error_code, group.group_id, group.group_state) == (0, "g", "Reconciling")
    assert (group.group_epoch, group.assignment_epoch, group.assignor_name) == (3, 3, "uniform")
    assert group.authorized_operations > 0
    first, second = group.members
    assert (first.member_id, first.member_epoch, first.rack_id) == ("m", 2, "r")
    assert (first.client_id, first.client_host) == ("test", "/127.0.0.1")
    assert (first.subscribed_topic_names, first.subscribed_topic_regex) == (["t"], "")
    assert first.member_type == 1
    (held,) = first.assignment.topic_partitions
    assert (held.topic_name, held.partitions) == ("t", [0, 1, 2])
    (wanted,) = first.target_assignment.topic_partitions
    assert wanted.partitions == [0, 1]
    assert (second.instance_id, second.assignment.topic_partitions) == ("i", [])


@on_stage()
async def test_what_is_not_a_consumer_group_is_not_described_as_one(stage: ConsumerStage) -> None:
    stage.broker.groups.commit_offsets(
        "simple",
        [],
        generation_id=-1,
        member_id="",
        group_instance_id=None,
        knows_member_epochs=False,
    )
    codes = [row.error_code for row in stage.describe("none", "")]
    assert codes == [ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.INVALID_GROUP_ID]


@on_stage()
async def test_groups_are_listed_by_type_and_state(stage: ConsumerStage) -> None:
    stage.join()

    def listed(**filters: list[str]) -> list[tuple[str, str, str, str]]:
        answer = at_once(list_groups.handle(stage.stage.context(5), ListGroupsRequest(**filters)))
        return [
            (row.group_id, row.protocol_type, row.group_state, row.group_type)
            for row in answer.groups
        ]

    row = ("g", "consumer", "Stable", "consumer")
    assert listed() == [row]
    assert listed(types_filter=["Consumer"]) == [row]
    assert listed(types_filter=["classic"]) == []
    assert listed(states_filter=["stable"]) == [row]
    assert listed(states_filter=["Assigning", "Reconciling"]) == []


@pytest.mark.parametrize(
    ("version", "code"), [(5, ErrorCode.NONE), (6, ErrorCode.GROUP_ID_NOT_FOUND)]
)
def test_describe_groups_does_not_know_consumer_groups(
    tmp_path: Path, version: int, code: ErrorCode
) -> None:
    @on_stage()
    async def story(stage: ConsumerStage) -> None:
        stage.join()
        request = DescribeGroupsRequest(groups=["g"])
        (row,) = at_once(describe_groups.handle(stage.stage.context(version), request)).groups
        assert (row.error_code, row.group_state) == (code, "Dead")
        if code:
            assert row.error_message == "Group g is not a classic group."

    story(tmp_path)


@on_stage()
async def test_a_group_named_twice_is_described_once(stage: ConsumerStage) -> None:
    stage.join()
    assert [row.group_id for row in stage.describe("g", "h", "g")] == ["g", "h"]
    request = DescribeGroupsRequest(groups=["g", "h", "g"])
    rows = at_once(describe_groups.handle(stage.stage.context(5), request)).groups
    assert [row.group_id for row in rows] == ["g", "h"]


@on_stage()
async def test_an_empty_group_is_deleted_with_its_offsets(stage: ConsumerStage) -> None:
    stage.join()

    def delete() -> int:
        request = DeleteGroupsRequest(groups_names=["g"])
        response = at_once(delete_groups.handle(stage.stage.context(2), request))
        (row,) = response.results
        return row.error_code

    assert delete() == ErrorCode.NON_EMPTY_GROUP
    stage.beat(member_epoch=-1)
    assert delete() == ErrorCode.NONE
    assert stage.broker.groups.group_or_none("g") is None


@on_stage()
async def test_offsets_of_subscribed_topics_are_not_deleted(stage: ConsumerStage) -> None:
    stage.join()
    rows = [
        OffsetDeleteRequestTopic(
            name=name, partitions=[OffsetDeleteRequestPartition(partition_index=0)]
        )
        for name in ("t", "__consumer_offsets")
    ]
    request = OffsetDeleteRequest(group_id="g", topics=rows)
    answer = at_once(offset_delete.handle(stage.stage.context(0), request))
    codes = [row.partitions[0].error_code for row in answer.topics]
    assert codes == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE]


@on_stage()
async def test_an_empty_group_outlives_its_last_offset_until_offsets_are_expired(
    stage: ConsumerStage,
) -> None:
    stage.join()
    groups = stage.broker.groups
    now_ms = stage.stage.clock.time_ms()
    groups.commit_offsets(
        "g",
        [new_offset("t", 0, 5, -1, "", now_ms)],
        generation_id=2,
        member_id="m",
        group_instance_id=None,
        knows_member_epochs=True,
    )
    stage.beat(member_epoch=-1)
    assert groups.delete_offsets("g", [("t", 0)]) == {("t", 0): ErrorCode.NONE}
    assert groups.offsets_of("g") is None
    assert groups.group_or_none("g") is not None
    groups.expire_offsets()
    stage.stage.clock.advance(ms=0)
    assert groups.group_or_none("g") is None


@pytest.mark.parametrize(
    ("member_id", "epoch", "code"),
    [
        ("m", 2, ErrorCode.NONE),
        (None, -1, ErrorCode.NONE),
        ("m", 3, ErrorCode.STALE_MEMBER_EPOCH),
        ("x", 2, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_offsets_are_read_with_the_members_epoch(
    tmp_path: Path, member_id: str | None, epoch: int, code: ErrorCode
) -> None:
    @on_stage()
    async def story(stage: ConsumerStage) -> None:
        stage.join()
        topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
        group = OffsetFetchRequestGroup(
            group_id="g", member_id=member_id, member_epoch=epoch, topics=topics
        )
        request = OffsetFetchRequest(groups=[group])
        (row,) = at_once(offset_fetch.handle(stage.stage.context(9), request)).groups
        assert row.error_code == code

    story(tmp_path)


@on_stage()
async def test_topics_that_are_made_grown_and_deleted_reach_the_members(
    stage: ConsumerStage,
) -> None:
    stage.join(subscribed_topic_names=["t", "later"])
    await stage.stage.topic("later", 2)
    answer = stage.beat(member_epoch=2, topic_partitions=[])
    assert answer.member_epoch == 3
    assert answer.assignment is not None
    assert sum(len(row.partitions) for row in answer.assignment.topic_partitions) == 5
    await stage.broker.topics.delete("later")
    answer = stage.beat(member_epoch=3, topic_partitions=[])
    assert answer.assignment is not None
    assert [len(row.partitions) for row in answer.assignment.topic_partitions] == [3]
