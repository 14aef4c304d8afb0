"""What the coordinator asks of any group, and that another kind can join."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.fake_topics import FakeTopics
from tests.support.group_scenario import GROUP
from tests.support.group_stage import GroupStage
from tests.support.new_offsets import new_offset
from tidelog.coordinator.group.classic.classic_group import ClassicGroup
from tidelog.coordinator.group.consumer.consumer_group import ConsumerGroup
from tidelog.coordinator.group.group import (
    Group,
    GroupType,
    OffsetExpiry,
    Topics,
)
from tidelog.coordinator.group.offsets import NewOffset, OffsetCommitter
from tidelog.coordinator.group.results import commit_error, member_error
from tidelog.coordinator.group.shard import GroupShard
from tidelog.coordinator.runtime import write_error
from tidelog.coordinator.stored_record import CoordinatorRecord
from tidelog.errors import ErrorCode, KafkaError
from tidelog.protocol.message import Message

SIMPLE = OffsetCommitter("", None, -1, False)
OFFSETS = [new_offset("t", 0, 5, -1, "", 1_000)]
STRANGER = OffsetCommitter("m", None, 1, True)


@pytest.mark.parametrize("kind", [ClassicGroup, ConsumerGroup])
class TestEveryKind:
    def test_new_group_is_empty_and_may_go(self, kind: type[Group]) -> None:
        group = kind.new("g", 3, 1_000)

        assert (group.group_id, group.shard_index) == ("g", 3)
        assert group.state_name == "Empty"
        assert group.is_empty
        assert group.may_go
        assert not group.is_subscribed_to("t")
        group.require_deletion()
        group.require_offset_deletion()

    def test_empty_group_takes_commits_from_outside_but_of_no_unknown_member(
        self, kind: type[Group]
    ) -> None:
        group = kind.new("g", 0, 1_000)

        group.require_commit(SIMPLE, OFFSETS, FakeTopics())
        with pytest.raises(KafkaError) as refusal:
            group.require_commit(STRANGER, OFFSETS, FakeTopics())
        assert refusal.value.code is ErrorCode.UNKNOWN_MEMBER_ID

    def test_dead_group_says_so(self, kind: type[Group]) -> None:
        group = kind.new("g", 0, 1_000)

        group.die(2_000)

        assert group.state_name == "Dead"


class ShareGroup(Group):
    """A kind that the coordinator has never heard of; it has one member and no records."""

    type = GroupType.CONSUMER
    last_record_type = -1
    goes_with_deleted_offsets = True
    protocol_type = "share"
    state_name = "Stable"
    is_empty = False
    is_dead = False

    @classmethod
    def new(cls, group_id: str, shard_index: int, now_ms: int) -> ShareGroup:
        return cls(group_id, shard_index)

    @staticmethod
    def id_in(key: Message) -> str:
        raise AssertionError(key)

    def is_subscribed_to(self, topic: str) -> bool:
        return topic == "shared"

    def replay(self, record: CoordinatorRecord) -> None:
        raise AssertionError(record)

    def require_commit(
        self, committer: OffsetCommitter, offsets: Sequence[NewOffset], topics: Topics
    ) -> None:
        if committer.member_id != "sharer":
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)

    def offset_expiry(self) -> OffsetExpiry | None:
        return OffsetExpiry(frozenset({"shared"}), 0)

    def tombstones(self) -> list[CoordinatorRecord]:
        return []

    def die(self, now_ms: int, code: ErrorCode = ErrorCode.REBALANCE_IN_PROGRESS) -> None:
        self.is_dead = True


def shard_of(stage: GroupStage) -> GroupShard:
    return stage.groups.runtime.shard_for(GROUP)


def commit(stage: GroupStage, member_id: str, topic: str) -> None:
    stage.groups.commit_offsets(
        GROUP,
        [new_offset(topic, 0, 5, -1, "", stage.clock.time_ms())],
        generation_id=-1,
        member_id=member_id,
        group_instance_id=None,
        knows_member_epochs=True,
    )


class TestAnotherKind:
    def test_says_who_may_commit_and_which_offsets_may_go(self, tmp_path: Path) -> None:
        stage = GroupStage(tmp_path)
        shard = shard_of(stage)
        shard.keep(ShareGroup.new(GROUP, shard.index, 0))

        with pytest.raises(KafkaError):
            commit(stage, "stranger", "shared")
        commit(stage, "sharer", "shared")
        commit(stage, "sharer", "other")

        assert stage.groups.delete_offsets(GROUP, [("shared", 0), ("other", 0)]) == {
            ("shared", 0): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
            ("other", 0): ErrorCode.NONE,
        }
        assert stage.groups.delete_group(GROUP) is ErrorCode.NON_EMPTY_GROUP

    def test_says_which_offsets_expire(self, tmp_path: Path) -> None:
        stage = GroupStage(tmp_path, {"offsets.retention.minutes": "1"})
        shard = shard_of(stage)
        shard.keep(ShareGroup.new(GROUP, shard.index, 0))
        commit(stage, "sharer", "shared")
        commit(stage, "sharer", "other")

        stage.groups.expire_offsets()
        stage.clock.advance(ms=0)

        assert list(shard.offsets[GROUP].topics()) == ["shared"]

    def test_is_not_taken_for_a_group_of_another_kind(self, tmp_path: Path) -> None:
        stage = GroupStage(tmp_path)
        shard = shard_of(stage)
        shard.keep(ShareGroup.new(GROUP, shard.index, 0))

        assert shard.of_kind(ClassicGroup, GROUP) is None
        assert shard.of_kind(ConsumerGroup, GROUP) is None
        assert isinstance(shard.of_kind(ShareGroup, GROUP), ShareGroup)

    def test_dies_when_the_shard_goes_to_another_broker(self, tmp_path: Path) -> None:
        stage = GroupStage(tmp_path)
        shard = shard_of(stage)
        group = ShareGroup.new(GROUP, shard.index, 0)
        shard.keep(group)

        stage.groups.runtime.resign_all()

        assert group.is_dead


def test_what_is_told_of_a_failed_write_differs_where_kafkas_does() -> None:
    changed = {
        code: (commit_error(code), member_error(code))
        for code in ErrorCode
        if commit_error(code) is not write_error(code)
        or member_error(code) is not write_error(code)
    }

    assert changed == {
        ErrorCode.REQUEST_TIMED_OUT: (
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            ErrorCode.REBALANCE_IN_PROGRESS,
        ),
        ErrorCode.MESSAGE_TOO_LARGE: (
            ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
            ErrorCode.UNKNOWN_SERVER_ERROR,
        ),
        ErrorCode.RECORD_LIST_TOO_LARGE: (
            ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
            ErrorCode.UNKNOWN_SERVER_ERROR,
        ),
    }
