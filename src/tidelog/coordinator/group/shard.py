"""The groups and offsets of one partition of __consumer_offsets, and how its records make them.

A group is there when somebody joins it, or when it has committed offsets: a group without members
that only commits is a "simple" one, and needs no record of its own. It goes when its tombstone is
replayed, or, if it never had a record, with its last offset.

Groups are classic ones or consumer groups (KIP-848); a group id names one of them, and its records
say which. Committed offsets are the same for both, and stay when one becomes the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.coordinator.group.classic.classic_group import ClassicGroup
from tidelog.coordinator.group.classic.classic_states import ClassicGroupState
from tidelog.coordinator.group.consumer.consumer_group import GROUP_EPOCH_RECORD, ConsumerGroup
from tidelog.coordinator.group.offsets import GroupOffsets
from tidelog.coordinator.group.records import committed_offset
from tidelog.protocol.messages.classic_group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from tidelog.types import NO_PRODUCER_ID

if TYPE_CHECKING:
    from tidelog.clock import Clock
    from tidelog.coordinator.stored_record import CoordinatorRecord


AnyGroup = ClassicGroup | ConsumerGroup


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
        self.groups: dict[str, AnyGroup] = {}
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
        group = self.groups.get(group_id)
        if isinstance(group, ClassicGroup):
            return group
        assert group is None, "consumer groups have members of their own"
        return ClassicGroup(group_id, self.index, self._clock.time_ms())

    def keep(self, group: ClassicGroup) -> None:
        self.groups[group.group_id] = group

    def forget(self, group: AnyGroup) -> None:
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
        elif type(key) is GroupMetadataKey:
            assert value is None or isinstance(value, GroupMetadataValue)
            self._replay_group(key.group, value)
        else:
            self._replay_consumer_group(record)

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
        group_id = key.group
        offsets = self.offsets.get(group_id)
        if offsets is None:
            self.offsets[group_id] = offsets = GroupOffsets()
            if group_id not in self.groups:
                self.groups[group_id] = ClassicGroup(group_id, self.index, self._clock.time_ms())
        committed = committed_offset(value, log_offset)
        if producer_id == NO_PRODUCER_ID:
            if offsets.put(key.topic, key.partition, committed):
                self._has_topic(group_id, key.topic)
        else:
            offsets.stage(producer_id, key.topic, key.partition, committed)
            self._groups_of_producer.setdefault(producer_id, set()).add(group_id)

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
        if (
            isinstance(group, ClassicGroup)
            and group.state is ClassicGroupState.EMPTY
            and group.generation_id == 0
            and not group.pending_members
        ):
            self._remove(group)

    def _replay_group(self, group_id: str, value: GroupMetadataValue | None) -> None:
        group = self.groups.get(group_id)
        if value is None:
            if isinstance(group, ClassicGroup):
                self._remove_but_for_offsets(group)
            return
        if not isinstance(group, ClassicGroup):
            if group is not None:
                self._remove(group)
            group = ClassicGroup(group_id, self.index, self._clock.time_ms())
            self.groups[group_id] = group
        group.restore(value)

    def _replay_consumer_group(self, record: CoordinatorRecord) -> None:
        key, value = record.key, record.value
        group_id: str = key.group_id  # type: ignore[attr-defined]  # all of them have it
        group = self.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            if value is None:
                return
            if group is not None:
                self._remove(group)
            self.groups[group_id] = group = ConsumerGroup(group_id, self.index)
        if value is None and key.RECORD_TYPE == GROUP_EPOCH_RECORD:
            self._remove_but_for_offsets(group)
        else:
            group.replay(record)

    def _remove_but_for_offsets(self, group: AnyGroup) -> None:
        group_id = group.group_id
        self._remove(group)
        if group_id in self.offsets:
            self.groups[group_id] = ClassicGroup(group_id, self.index, self._clock.time_ms())

    def _remove(self, group: AnyGroup) -> None:
        if isinstance(group, ClassicGroup):
            group.die(self._clock.time_ms())
        else:
            group.die()
        del self.groups[group.group_id]
