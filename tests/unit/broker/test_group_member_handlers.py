from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from tests.support.group_scenario import subscription
from tests.support.handlers import HandlerStage, at_once, handler_stage
from tests.support.new_offsets import new_offset
from tests.support.pending import unexpected
from tidelog.broker.handlers import (
    delete_groups,
    describe_groups,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    sync_group,
)
from tidelog.coordinator.group.classic.classic_group import ClassicGroup
from tidelog.errors import ErrorCode
from tidelog.pending import Pending
from tidelog.protocol.messages.delete_groups import DeleteGroupsRequest
from tidelog.protocol.messages.describe_groups import DescribeGroupsRequest
from tidelog.protocol.messages.heartbeat import HeartbeatRequest
from tidelog.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from tidelog.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tidelog.protocol.messages.list_groups import ListGroupsRequest
from tidelog.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

READ_DELETE_DESCRIBE = 1 << 3 | 1 << 6 | 1 << 8
ITS_CONFIGURATION = 1 << 10 | 1 << 11  # described and altered, since Kafka 4.0


class MemberStage:
    def __init__(self, stage: HandlerStage) -> None:
        self.stage = stage

    def join(self, version: int = 3, **fields: Any) -> JoinGroupResponse:
        """The answer, once the initial delay of nothing is over; always as it would be sent."""
        request = JoinGroupRequest(
            **{
                "group_id": "g",
                "session_timeout_ms": 10_000,
                "rebalance_timeout_ms": 20_000 if version else -1,
                "protocol_type": "consumer",
                "protocols": [JoinGroupRequestProtocol(name="range", metadata=subscription("t"))],
                **fields,
            }
        )
        answer = join_group.handle(self.stage.context(version), request)
        return self._final(answer, version, JoinGroupResponse)

    def sync(self, joined: JoinGroupResponse, version: int = 3, **fields: Any) -> SyncGroupResponse:
        request = SyncGroupRequest(
            **{
                "group_id": "g",
                "generation_id": joined.generation_id,
                "member_id": joined.member_id,
                "assignments": [
                    SyncGroupRequestAssignment(member_id=row.member_id, assignment=b"mine")
                    for row in joined.members
                ],
                **fields,
            }
        )
        answer = sync_group.handle(self.stage.context(version), request)
        return self._final(answer, version, SyncGroupResponse)

    def _final(self, answer: Any, version: int, kind: Any) -> Any:
        if isinstance(answer, Pending):
            found: list[Any] = []
            answer.then(found.append, unexpected)
            self.stage.clock.advance(ms=0)
            (answer,) = found
        return kind.decode(memoryview(bytes(answer.encode(version))), 0, version)

    def leave(self, version: int, **fields: Any) -> Any:
        request = LeaveGroupRequest(**{"group_id": "g", **fields})
        response = leave_group.handle(self.stage.context(version), request)
        response.encode(version)
        return response

    def describe(self, version: int = 5, group_id: str = "g", **fields: Any) -> Any:
        request = DescribeGroupsRequest(groups=[group_id], **fields)
        response = at_once(describe_groups.handle(self.stage.context(version), request))
        response.encode(version)
        return response.groups[0]

    def listed(self, **filters: list[str]) -> list[str]:
        response = at_once(list_groups.handle(self.stage.context(5), ListGroupsRequest(**filters)))
        response.encode(5)
        assert response.error_code == 0
        return sorted(
            f"{row.group_id} {row.group_state} {row.group_type}" for row in response.groups
        )

    def delete(self, *group_ids: str) -> list[tuple[str, int]]:
        request = DeleteGroupsRequest(groups_names=list(group_ids))
        response = at_once(delete_groups.handle(self.stage.context(2), request))
        response.encode(2)
        return [(row.group_id, row.error_code) for row in response.results]


def play(tmp_path: Path, story: Any) -> None:
    async def run() -> None:
        async with handler_stage(
            tmp_path, offsets_topic_num_partitions="3", group_initial_rebalance_delay_ms="0"
        ) as stage:
            await stage.broker.topics.auto_create("__consumer_offsets")
            story(MemberStage(stage))

    asyncio.run(run())


@pytest.mark.parametrize("version", range(10))
def test_every_version_joins_syncs_and_leaves(tmp_path: Path, version: int) -> None:
    def story(stage: MemberStage) -> None:
        joined = stage.join(version)
        if version >= 4:
            assert joined.error_code == ErrorCode.MEMBER_ID_REQUIRED
            joined = stage.join(version, member_id=joined.member_id)
        assert joined.error_code == 0
        assert joined.leader == joined.member_id
        assert joined.protocol_name == "range"
        assert [row.metadata for row in joined.members] == [subscription("t")]
        assert joined.member_id.startswith("test-")
        fields = {"protocol_type": "consumer", "protocol_name": "range"} if version >= 5 else {}
        assert stage.sync(joined, min(version, 5), **fields).assignment == b"mine"
        group = stage.stage.broker.groups.group_or_none("g")
        assert isinstance(group, ClassicGroup)
        expected_ms = 20_000 if version else 10_000
        assert group.rebalance_timeout_ms == expected_ms
        if version >= 3:
            leaving = [MemberIdentity(member_id=joined.member_id), MemberIdentity(member_id="x")]
            left = stage.leave(min(version, 5), members=leaving)
            unknown = ErrorCode.UNKNOWN_MEMBER_ID
            assert [row.error_code for row in left.members] == [0, unknown]
            assert left.error_code == 0
        else:
            assert stage.leave(version, member_id="x").error_code == ErrorCode.UNKNOWN_MEMBER_ID
            assert stage.leave(version, member_id=joined.member_id).error_code == 0

    play(tmp_path, story)


@pytest.mark.parametrize("version", [0, 6, 7, 9])
def test_a_refused_join_can_be_sent_in_every_version(tmp_path: Path, version: int) -> None:
    def story(stage: MemberStage) -> None:
        refused = stage.join(version, session_timeout_ms=1, member_id="m")
        assert refused.error_code == ErrorCode.INVALID_SESSION_TIMEOUT
        assert (refused.generation_id, refused.leader, refused.member_id) == (-1, "", "m")
        assert refused.protocol_name == (None if version >= 7 else "")

    play(tmp_path, story)


@pytest.mark.parametrize("version", [0, 3, 9])
def test_a_protocol_named_twice_is_refused_to_a_member_with_an_id(
    tmp_path: Path, version: int
) -> None:
    def story(stage: MemberStage) -> None:
        row = JoinGroupRequestProtocol(name="range", metadata=b"")
        refused = stage.join(version, protocols=[row, row])
        if version >= 4:
            assert refused.error_code == ErrorCode.MEMBER_ID_REQUIRED
            refused = stage.join(version, protocols=[row, row], member_id=refused.member_id)
        assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        stranger = stage.join(version, protocols=[row, row], member_id="stranger")
        assert stranger.error_code == ErrorCode.UNKNOWN_MEMBER_ID

    play(tmp_path, story)


def test_sync_v5_must_name_the_protocol(tmp_path: Path) -> None:
    def story(stage: MemberStage) -> None:
        joined = stage.join(3)
        wrong = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert stage.sync(joined, 5).error_code == wrong
        fields = {"protocol_type": "consumer", "protocol_name": "sticky"}
        assert stage.sync(joined, 5, **fields).error_code == wrong

    play(tmp_path, story)


def test_the_empty_group_id_is_refused_but_not_for_deletion(tmp_path: Path) -> None:
    def story(stage: MemberStage) -> None:
        invalid = ErrorCode.INVALID_GROUP_ID
        assert stage.join(3, group_id="").error_code == invalid
        assert stage.sync(JoinGroupResponse(), 3, group_id="").error_code == invalid
        assert stage.leave(3, group_id="").error_code == invalid
        beat = heartbeat.handle(stage.stage.context(4), HeartbeatRequest(group_id=""))
        assert beat.error_code == invalid
        assert stage.delete("") == [("", ErrorCode.GROUP_ID_NOT_FOUND)]

    play(tmp_path, story)


def test_while_it_loads_members_are_spared(tmp_path: Path) -> None:
    async def run() -> None:
        async with handler_stage(tmp_path, group_initial_rebalance_delay_ms="0") as stage:
            await stage.broker.topics.auto_create("__consumer_offsets")
            joined = MemberStage(stage).join(3)
            MemberStage(stage).sync(joined)
        async with handler_stage(tmp_path) as stage:
            members = MemberStage(stage)
            request = HeartbeatRequest(
                group_id="g", generation_id=joined.generation_id, member_id=joined.member_id
            )
            context = stage.context(4)
            assert heartbeat.handle(context, request).error_code == 0
            assert members.sync(joined).error_code == ErrorCode.REBALANCE_IN_PROGRESS
            loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            assert members.join(3).error_code == loading
            assert members.describe().error_code == loading
            listing = at_once(list_groups.handle(context, ListGroupsRequest()))
            assert listing.error_code == loading
            while stage.broker.groups.runtime.is_loading:
                stage.clock.advance(ms=0)
            assert heartbeat.handle(context, request).error_code == 0
            assert members.sync(joined).assignment == b"mine"

    asyncio.run(run())


def test_description_shows_assignments_of_a_stable_group_only(tmp_path: Path) -> None:
    def story(stage: MemberStage) -> None:
        joined = stage.join(3)
        row = stage.describe()
        assert (row.group_state, row.protocol_data) == ("CompletingRebalance", "")
        assert (row.members[0].member_metadata, row.members[0].member_assignment) == (b"", b"")
        stage.sync(joined)
        row = stage.describe(include_authorized_operations=True)
        assert (row.group_state, row.protocol_type, row.protocol_data) == (
            "Stable",
            "consumer",
            "range",
        )
        assert row.authorized_operations == READ_DELETE_DESCRIBE
        row = stage.describe(6, include_authorized_operations=True)
        assert row.authorized_operations == READ_DELETE_DESCRIBE | ITS_CONFIGURATION
        (member,) = row.members
        assert (member.client_id, member.client_host) == ("test", "/127.0.0.1")
        assert member.member_metadata == subscription("t")
        assert member.member_assignment == b"mine"

    play(tmp_path, story)


def test_an_unknown_group_is_dead_and_from_v6_on_an_error(tmp_path: Path) -> None:
    def story(stage: MemberStage) -> None:
        row = stage.describe(5, "nope")
        assert (row.group_state, row.error_code) == ("Dead", 0)
        row = stage.describe(6, "nope")
        assert (row.group_state, row.error_code) == ("Dead", ErrorCode.GROUP_ID_NOT_FOUND)

    play(tmp_path, story)


def test_groups_are_listed_by_state_and_type(tmp_path: Path) -> None:
    def story(stage: MemberStage) -> None:
        stage.sync(stage.join(3))
        stage.stage.broker.groups.commit_offsets(
            "simple",
            [new_offset("t", 0, 1, -1, "", 1)],
            generation_id=-1,
            member_id="",
            group_instance_id=None,
            knows_member_epochs=False,
        )
        both = ["g Stable classic", "simple Empty classic"]
        assert stage.listed() == both
        assert stage.listed(states_filter=["stable"]) == both[:1]
        assert stage.listed(states_filter=["Nowhere"]) == []
        assert stage.listed(types_filter=["Classic"]) == both
        assert stage.listed(types_filter=["consumer"]) == []

    play(tmp_path, story)


def test_groups_without_members_can_be_deleted(tmp_path: Path) -> None:
    def story(stage: MemberStage) -> None:
        joined = stage.join(3)
        full, missing = ErrorCode.NON_EMPTY_GROUP, ErrorCode.GROUP_ID_NOT_FOUND
        assert stage.delete("g", "nope", "g") == [("g", full), ("nope", missing)]
        stage.leave(2, member_id=joined.member_id)
        assert stage.delete("g") == [("g", 0)]
        assert stage.delete("g") == [("g", missing)]

    play(tmp_path, story)


def test_who_waits_is_sent_away_when_the_broker_stops(tmp_path: Path) -> None:
    def story(stage: MemberStage) -> None:
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range")],
        )
        waiting = cast(
            Pending[JoinGroupResponse], join_group.handle(stage.stage.context(3), request)
        )
        found: list[JoinGroupResponse] = []
        waiting.then(found.append, unexpected)
        stage.stage.broker.groups.runtime.resign_all()
        assert [answer.error_code for answer in found] == [ErrorCode.NOT_COORDINATOR]
        assert stage.stage.clock.pending_timers() == 0

    play(tmp_path, story)
