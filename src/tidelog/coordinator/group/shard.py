"""The groups and offsets of one partition of __consumer_offsets, and how its records make them.

A group is there when somebody joins it, or when it has committed offsets: a group without members
that only commits is a "simple" one, and needs no record of its own. It goes when its tombstone is
replayed, or, if it never had a record, with its last offset.

A group id names one group, and its records say of which kind (see `group`). Committed offsets are
the same for all kinds, and stay when a group becomes one of another kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, TypeVar

from tidelog.coordinator.group.classic.classic_group import ClassicGroup
from tidelog.coordinator.group.consumer.consumer_group import ConsumerGroup
from tidelog.coordinator.group.group import Group
from tidelog.coordinator.group.offsets import GroupOffsets, committed_offset, written_at
from tidelog.coordinator.stored_record import Classes, RecordTypes
from tidelog.protocol.messages.classic_group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from tidelog.types import NO_PRODUCER_ID

if TYPE_CHECKING:
    from tidelog.clock import Clock
    from tidelog.coordinator.group.offsets import NewOffset
    from tidelog.coordinator.stored_record import CoordinatorRecord


G = TypeVar("G", bound=Group)


def _consumer_group_types() -> Classes:
    from tidelog.coordinator.group.consumer.records import CONSUMER_GROUP_RECORD_TYPES

    return CONSUMER_GROUP_RECORD_TYPES


GROUP_RECORD_TYPES: Final = RecordTypes(
    {
        0: (OffsetCommitKey, OffsetCommitValue),
        1: (OffsetCommitKey, OffsetCommitValue),
        2: (GroupMetadataKey, GroupMetadataValue),
    },
    _consumer_group_types,
)

# Which kind of group a record makes, by its type.
KIND_OF_RECORD: Final[Mapping[int, type[Group]]] = {
    2: ClassicGroup,
    3: ConsumerGroup,
    4: ConsumerGroup,
    5: ConsumerGroup,
    6: ConsumerGroup,
    7: ConsumerGroup,
    8: ConsumerGroup,
    16: ConsumerGroup,
}


class GroupShard:
    """Touched only on the broker loop."""

    __slots__ = (
        "_clock",
        "_groups_of_producer",
        "_groups_of_topic",
        "groups",
        "index",
        "offsets",
    )

    def __init__(self, index: int, clock: Clock) -> None:
        self.index = index
        self._clock = clock
        self.groups: dict[str, Group] = {}
        self.offsets: dict[str, GroupOffsets] = {}  # none of them is empty
        self._groups_of_producer: dict[int, set[str]] = {}  # with an open transaction
        # Ids of the groups that have committed offsets of a topic, in the order of the commits.
        self._groups_of_topic: dict[str, dict[str, None]] = {}

    def groups_of_topic(self, topic: str) -> tuple[str, ...]:
        """Those that have committed offsets of it, and those that may with an open transaction."""
        group_ids = dict.fromkeys(self._groups_of_topic.get(topic, ()))
        for undecided in self._groups_of_producer.values():
            group_ids |= dict.fromkeys(undecided)
        return tuple(group_ids)

    def classic_or_new(self, group_id: str) -> ClassicGroup:
        """For a member that joins; the group is not kept unless `keep` follows."""
        group = self.of_kind(ClassicGroup, group_id)
        return ClassicGroup(group_id, self.index, self._clock.time_ms()) if group is None else group

    def of_kind(self, kind: type[G], group_id: str) -> G | None:
        """None if there is no such group, or one of another kind."""
        group = self.groups.get(group_id)
        return group if isinstance(group, kind) else None

    def keep(self, group: Group) -> None:
        self.groups[group.group_id] = group

    def forget(self, group: Group) -> None:
        """A group of which the log knows nothing."""
        self._remove(group)

    # Replaying

    def replay(self, record: CoordinatorRecord, offset: int, producer_id: int) -> None:
        key, value = record.key, record.value
        if type(key) is OffsetCommitKey:
            if value is None:
                self._replay_offset_tombstone(key, producer_id)
            else:
                assert isinstance(value, OffsetCommitValue)
                self._replay_offset(key, value, offset, producer_id)
        else:
            self._replay_group(record)

    def replay_marker(self, producer_id: int, *, committed: bool) -> None:
        for group_id in self._groups_of_producer.pop(producer_id, ()):
            offsets = self.offsets.get(group_id)
            if offsets is not None:
                for topic in offsets.end_transaction(producer_id, committed=committed):
                    self._has_topic(group_id, topic)
                self._forget_if_empty(group_id, offsets)

    def _replay_offset(
        self, key: OffsetCommitKey, value: OffsetCommitValue, log_offset: int, producer_id: int
    ) -> None:
        offsets = self._offsets_or_new(key.group)
        committed = committed_offset(value, log_offset)
        if producer_id == NO_PRODUCER_ID:
            if offsets.put(key.topic, key.partition, committed):
                self._has_topic(key.group, key.topic)
        else:
            offsets.stage(producer_id, key.topic, key.partition, committed)
            self._groups_of_producer.setdefault(producer_id, set()).add(key.group)

    def replay_commit(
        self, group_id: str, commit: list[NewOffset], log_offset: int, producer_id: int
    ) -> None:
        """The same as `replay` of the records of the commit, the first of them at `log_offset`."""
        offsets = self._offsets_or_new(group_id)
        if producer_id == NO_PRODUCER_ID:
            for topic in offsets.put_all(commit, log_offset):
                self._has_topic(group_id, topic)
        else:
            for new in commit:
                offsets.stage(producer_id, new[0], new[1], written_at(log_offset, new))
                log_offset += 1
            self._groups_of_producer.setdefault(producer_id, set()).add(group_id)

    def _offsets_or_new(self, group_id: str) -> GroupOffsets:
        """For an offset that follows."""
        offsets = self.offsets.get(group_id)
        if offsets is None:
            self.offsets[group_id] = offsets = GroupOffsets()
            if group_id not in self.groups:
                self.groups[group_id] = ClassicGroup(group_id, self.index, self._clock.time_ms())
        return offsets

    def _replay_offset_tombstone(self, key: OffsetCommitKey, producer_id: int) -> None:
        offsets = self.offsets.get(key.group)
        if offsets is None:
            return
        if producer_id == NO_PRODUCER_ID:
            if offsets.remove(key.topic, key.partition):
                self._lost_topic(key.group, key.topic)
        else:
            offsets.unstage(producer_id, key.topic, key.partition)
        self._forget_if_empty(key.group, offsets)

    def _has_topic(self, group_id: str, topic: str) -> None:
        self._groups_of_topic.setdefault(topic, {})[group_id] = None

    def _lost_topic(self, group_id: str, topic: str) -> None:
        group_ids = self._groups_of_topic[topic]
        del group_ids[group_id]
        if not group_ids:
            del self._groups_of_topic[topic]

    def _forget_if_empty(self, group_id: str, offsets: GroupOffsets) -> None:
        if not offsets.is_empty:
            return
        del self.offsets[group_id]
        group = self.groups.get(group_id)
        if group is not None and group.may_go and not group.has_record:
            self._remove(group)

    def _replay_group(self, record: CoordinatorRecord) -> None:
        """A record of another kind than the group's ends the group, unless it is a tombstone."""
        record_type = record.key.RECORD_TYPE
        kind = KIND_OF_RECORD[record_type]
        group_id = kind.id_in(record.key)
        group = self.groups.get(group_id)
        if type(group) is not kind:
            if record.value is None:
                return
            if group is not None:
                self._remove(group)
            group = kind.new(group_id, self.index, self._clock.time_ms())
            self.groups[group_id] = group
        assert group is not None
        if record.value is None and record_type == kind.last_record_type:
            self._remove_but_for_offsets(group)
        else:
            group.replay(record)

    def _remove_but_for_offsets(self, group: Group) -> None:
        group_id = group.group_id
        self._remove(group)
        if group_id in self.offsets:
            self.groups[group_id] = ClassicGroup(group_id, self.index, self._clock.time_ms())

    def _remove(self, group: Group) -> None:
        group.die(self._clock.time_ms())
        del self.groups[group.group_id]
