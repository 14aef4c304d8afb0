"""An assignment is handed out once it is committed, and not at all if it cannot be kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.group_scenario import GROUP
from tests.support.group_stage import GroupStage
from tests.support.new_offsets import new_offset
from tests.support.pending import unexpected
from tidelog.coordinator.group.classic.classic_group import ClassicGroupState
from tidelog.coordinator.group.classic.classic_group_membership import Joining
from tidelog.coordinator.group.results import JoinGroupResult, SyncGroupResult
from tidelog.errors import ErrorCode, KafkaError
from tidelog.pending import Pending
from tidelog.protocol.messages.heartbeat import HeartbeatRequest
from tidelog.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from tidelog.replication.partition import Partition

SETTINGS = {"group.initial.rebalance.delay.ms": "0"}


class Answers:
    """What came for one request, if anything."""

    def __init__(self, answer: Any) -> None:
        self.found: list[Any] = []
        if isinstance(answer, Pending):
            answer.then(self.found.append, unexpected)
        else:
            self.found.append(answer)

    @property
    def codes(self) -> list[ErrorCode]:
        return [ErrorCode.of(answer.error_code) for answer in self.found]


def join(stage: GroupStage, name: str, **fields: Any) -> Answers:
    joining = Joining(
        requires_known_member_id=False,
        supports_skipping_assignment=False,
        member_id="",
        group_instance_id=None,
        client_id=name,
        client_host="/h",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=[("range", b"")],
    )
    return Answers(stage.groups.join_group(GROUP, joining._replace(**fields)))


def sync(stage: GroupStage, joined: JoinGroupResult, assignment: bytes = b"p") -> Answers:
    rows = [
        SyncGroupRequestAssignment(member_id=member.member_id, assignment=assignment)
        for member in joined.members
    ]
    request = SyncGroupRequest(
        group_id=GROUP,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        assignments=rows,
    )
    return Answers(stage.groups.sync_group(request))


def two_joined(stage: GroupStage) -> tuple[JoinGroupResult, JoinGroupResult]:
    first, second = join(stage, "a"), join(stage, "b")
    stage.clock.advance(ms=0)
    return first.found[0], second.found[0]


def state(stage: GroupStage) -> ClassicGroupState:
    group = stage.classic_or_none(GROUP)
    assert group is not None
    return group.state


def test_members_get_their_assignment_when_it_is_flushed(tmp_path: Path) -> None:
    stage = GroupStage(tmp_path, SETTINGS, flush_messages=1)
    leader, follower = two_joined(stage)
    early = sync(stage, follower)
    first = sync(stage, leader)
    late = sync(stage, follower)
    assert (first.codes, late.codes) == ([], [])
    assert early.codes == [ErrorCode.REBALANCE_IN_PROGRESS], "the later request took its place"
    stage.flusher.end()
    assert first.codes == late.codes == [ErrorCode.NONE]
    assert sync(stage, follower).codes == [ErrorCode.NONE]


def test_members_are_sent_away_when_the_flush_fails(tmp_path: Path) -> None:
    stage = GroupStage(tmp_path, SETTINGS, flush_messages=1)
    leader, follower = two_joined(stage)
    waiting = [sync(stage, follower), sync(stage, leader)]
    stage.flusher.end(OSError("disk"))
    assert [answer.codes for answer in waiting] == [[ErrorCode.NOT_COORDINATOR]] * 2


def test_a_member_that_leaves_before_the_flush_is_answered(tmp_path: Path) -> None:
    stage = GroupStage(tmp_path, SETTINGS, flush_messages=1)
    leader, follower = two_joined(stage)
    waiting = sync(stage, follower)
    first = sync(stage, leader)
    stage.groups.leave_group(GROUP, [(follower.member_id, None, None)])
    assert waiting.codes == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert first.codes == [ErrorCode.REBALANCE_IN_PROGRESS], "the assignment is out of date"
    stage.flusher.end()
    assert state(stage) is ClassicGroupState.PREPARING_REBALANCE


@pytest.mark.parametrize("instance_id", [None, "static"])
def test_a_sync_that_waits_for_the_flush_is_answered_when_a_rebalance_begins(
    tmp_path: Path, instance_id: str | None
) -> None:
    """Its member does not rejoin, and the generation is over before the flush is."""
    stage = GroupStage(tmp_path, SETTINGS, flush_messages=1)
    short = {"rebalance_timeout_ms": 3_000}
    first = join(stage, "a", **short)
    second = join(stage, "b", group_instance_id=instance_id, **short)
    stage.clock.advance(ms=0)
    leader, follower = first.found[0], second.found[0]
    waiting = [sync(stage, follower), sync(stage, leader)]
    newcomer = join(stage, "c", **short)
    assert [answer.codes for answer in waiting] == [[ErrorCode.REBALANCE_IN_PROGRESS]] * 2
    again = join(stage, "a", member_id=leader.member_id, **short)
    stage.clock.advance(ms=3_000)
    assert newcomer.codes == again.codes == [ErrorCode.NONE]
    stage.flusher.end()
    assert state(stage) is ClassicGroupState.COMPLETING_REBALANCE


@pytest.mark.parametrize("wait", ["join", "sync"])
def test_a_member_that_is_removed_is_answered_whoever_removes_it(tmp_path: Path, wait: str) -> None:
    stage = GroupStage(tmp_path, SETTINGS)
    _, follower = two_joined(stage)
    if wait == "join":
        waiting = join(stage, "b", member_id=follower.member_id, protocols=[("range", b"new")])
    else:
        waiting = sync(stage, follower)
    group = stage.classic_or_none(GROUP)
    assert group is not None
    assert waiting.codes == []
    group.remove(follower.member_id)
    assert waiting.codes == [ErrorCode.UNKNOWN_MEMBER_ID]


@pytest.mark.parametrize("wait", ["join", "sync"])
def test_members_of_a_group_that_dies_are_answered(tmp_path: Path, wait: str) -> None:
    stage = GroupStage(tmp_path, SETTINGS)
    _, follower = two_joined(stage)
    if wait == "join":
        waiting = join(stage, "b", member_id=follower.member_id, protocols=[("range", b"new")])
    else:
        waiting = sync(stage, follower)
    group = stage.classic_or_none(GROUP)
    assert group is not None
    stage.groups.runtime.shard_for(GROUP).forget(group)
    assert waiting.codes == [ErrorCode.REBALANCE_IN_PROGRESS]


def test_an_assignment_that_is_too_large_begins_a_new_rebalance(tmp_path: Path) -> None:
    stage = GroupStage(tmp_path, SETTINGS)
    leader, follower = two_joined(stage)
    waiting = [sync(stage, follower), sync(stage, leader, b"x" * 600_000)]
    failed: list[ErrorCode] = [ErrorCode.UNKNOWN_SERVER_ERROR]
    assert [answer.codes for answer in waiting] == [failed, failed]
    assert state(stage) is ClassicGroupState.PREPARING_REBALANCE
    beat = HeartbeatRequest(
        group_id=GROUP, generation_id=leader.generation_id, member_id=leader.member_id
    )
    assert stage.groups.heartbeat(beat) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_second_join_of_a_member_takes_the_place_of_the_first(tmp_path: Path) -> None:
    stage = GroupStage(tmp_path, SETTINGS)
    leader, _ = two_joined(stage)
    first = join(stage, "a", member_id=leader.member_id, protocols=[("range", b"new")])
    second = join(stage, "a", member_id=leader.member_id, protocols=[("range", b"new")])
    assert first.codes == [ErrorCode.REBALANCE_IN_PROGRESS]
    assert second.codes == []


@pytest.mark.parametrize("error", [None, OSError("disk")])
def test_a_static_member_is_back_when_its_record_is_flushed(
    tmp_path: Path, error: OSError | None
) -> None:
    stage = GroupStage(tmp_path, SETTINGS, flush_messages=1)
    joined = join(stage, "a", group_instance_id="one")
    stage.clock.advance(ms=0)
    answer: JoinGroupResult = joined.found[0]
    synced = sync(stage, answer)
    stage.flusher.end()
    assert synced.codes == [ErrorCode.NONE]
    again = join(stage, "a", group_instance_id="one")
    assert again.codes == []
    stage.flusher.end(error)
    expected = ErrorCode.NONE if error is None else ErrorCode.NOT_COORDINATOR
    assert again.codes == [expected]


def test_answers_of_a_sync_hold_the_protocol(tmp_path: Path) -> None:
    stage = GroupStage(tmp_path, SETTINGS)
    leader, _ = two_joined(stage)
    (answer,) = sync(stage, leader).found
    assert answer == SyncGroupResult(
        protocol_type="consumer", protocol_name="range", assignment=b"p"
    )


def test_an_empty_group_without_offsets_goes_when_offsets_of_it_are_deleted(tmp_path: Path) -> None:
    """As in Kafka 3.9, whether or not those were there."""
    stage = GroupStage(tmp_path, SETTINGS)
    leader, follower = two_joined(stage)
    for joined in (follower, leader):
        stage.groups.leave_group(GROUP, [(joined.member_id, None, None)])
    assert state(stage) is ClassicGroupState.EMPTY
    assert stage.groups.delete_offsets(GROUP, []) == {}
    assert state(stage) is ClassicGroupState.EMPTY
    assert stage.groups.delete_offsets(GROUP, [("t", 0)]) == {("t", 0): ErrorCode.NONE}
    assert stage.classic_or_none(GROUP) is None
    stage.restart()
    assert stage.classic_or_none(GROUP) is None


def test_an_offset_that_waits_for_its_transaction_is_deleted_too(tmp_path: Path) -> None:
    stage = GroupStage(tmp_path, SETTINGS)
    stage.groups.commit_transactional_offsets(
        GROUP,
        [new_offset("t", 0, 5, -1, "", stage.clock.time_ms())],
        producer_id=7,
        producer_epoch=0,
        generation_id=-1,
        member_id="",
        group_instance_id=None,
    )
    assert stage.groups.delete_offsets(GROUP, [("t", 0)]) == {("t", 0): ErrorCode.NONE}
    assert stage.groups.offsets_of(GROUP) is None
    stage.restart()
    assert stage.groups.offsets_of(GROUP) is None


@pytest.mark.parametrize("is_written", [True, False])
def test_a_group_that_loses_its_last_member_is_empty_whether_that_is_written_or_not(
    tmp_path: Path, is_written: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = GroupStage(tmp_path, SETTINGS)
    first, second = two_joined(stage)
    sync(stage, first)
    records = len(stage.records())
    if not is_written:

        def refused(*args: Any, **kwargs: Any) -> None:
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)

        monkeypatch.setattr(Partition, "append_as_coordinator", refused)

    stage.groups.leave_group(GROUP, [(each.member_id, None, None) for each in (first, second)])

    group = stage.classic_or_none(GROUP)
    assert group is not None
    assert (group.state, group.generation_id) == (
        ClassicGroupState.EMPTY,
        first.generation_id + 1,
    )
    assert (group.leader_id, group.protocol_name, group.protocol_type) == (None, None, "consumer")
    assert len(stage.records()) == records + is_written
