"""A consumer group as it would be with records that are not written yet.

A request is decided step by step; what one step decides, the next one must see. Each step adds its
records to the draft, and replays them on a copy of the group by the code that will replay them on
the group itself. A draft that nothing was added to has copied nothing, which is the case of nearly
all heartbeats.

The steps, shared by ConsumerGroupHeartbeat and by JoinGroup of classic members:

    admit, replace, update   the member and what it says of itself
    refresh                  the subscribed topics; a change of anything raises the group epoch,
                             for a reason that is told once the records are written
    retarget                 the target assignment, if it is behind the group epoch
    reconcile                the member's own partitions
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from tidelog.coordinator.group.consumer import records
from tidelog.coordinator.group.consumer.assignors import Assignor, MemberSpec
from tidelog.coordinator.group.consumer.consumer_group import (
    ConsumerGroup,
    preferred_assignor,
    subscription_of,
)
from tidelog.coordinator.group.consumer.consumer_group_member import (
    JOIN_EPOCH,
    NO_REGEX,
    NOTHING,
    ConsumerGroupMember,
)
from tidelog.coordinator.group.consumer.reconciliation import Owned, reconcile
from tidelog.coordinator.group.group import Topics

if TYPE_CHECKING:
    from tidelog.coordinator.stored_record import CoordinatorRecord

FIRST_EPOCH: Final = 1  # of a new group: a member is never in epoch 0
TOLD_TOPICS_MAX: Final = 5


class ConsumerGroupDraft:
    __slots__ = ("_is_copy", "epoch_reason", "group", "records")

    def __init__(self, group: ConsumerGroup) -> None:
        self.group = group  # with the records below
        self.records: list[CoordinatorRecord] = []
        self.epoch_reason: str | None = None  # why the records raise the group epoch, if they do
        self._is_copy = False

    @classmethod
    def of_new_group(
        cls, group_id: str, shard_index: int, before: Iterable[CoordinatorRecord] = ()
    ) -> ConsumerGroupDraft:
        """A group that is not there yet; `before` ends what has its name so far."""
        draft = cls(ConsumerGroup(group_id, shard_index))
        draft._is_copy = True
        draft.records.extend(before)
        return draft

    def add(self, record: CoordinatorRecord) -> None:
        if not self._is_copy:
            self.group = self.group.copy()
            self._is_copy = True
        self.records.append(record)
        self.group.replay(record)

    # Members

    def update(self, before: ConsumerGroupMember, after: ConsumerGroupMember) -> None:
        """What the member says of itself, if it says anything new."""
        if after != before or after.member_id not in self.group.members:
            self.add(records.member_metadata(self.group.group_id, after))
        self._forget_pattern(before.subscribed_topic_regex)

    def replace(self, before: ConsumerGroupMember, member_id: str) -> ConsumerGroupMember:
        """A static member goes on under a new id, with the partitions of its former self."""
        group_id = self.group.group_id
        target = self.group.target.get(before.member_id, NOTHING)
        after = before._replace(
            member_id=member_id, member_epoch=JOIN_EPOCH, previous_member_epoch=JOIN_EPOCH
        )
        for tombstone in records.member_tombstones(group_id, [before.member_id]):
            self.add(tombstone)
        self.add(records.member_metadata(group_id, after))
        self.add(records.target_assignment(group_id, member_id, target))
        self.add(records.current_assignment(group_id, after))
        return after

    def remove(self, members: Iterable[ConsumerGroupMember]) -> None:
        for member in members:
            for tombstone in records.member_tombstones(self.group.group_id, [member.member_id]):
                self.add(tombstone)
            self._forget_pattern(member.subscribed_topic_regex)

    def _forget_pattern(self, regex: str) -> None:
        """Once nobody is subscribed to it."""
        group = self.group
        if regex != NO_REGEX and regex in group.patterns and regex not in group.regexes:
            self.add(records.pattern_tombstone(group.group_id, regex))

    # Epochs and assignments

    def refresh(self, topics: Topics, reason: str, *, raise_epoch: bool) -> None:
        """`reason` is why the caller asks. Topics that changed by themselves are one of their
        own."""
        group = self.group
        known = group.subscription_metadata
        subscription = subscription_of(topics, group.subscribed_topics)
        if subscription != known:
            self.add(records.subscription_metadata(group.group_id, subscription))
            if not raise_epoch:
                reason = f"topics changed: {_changed(known, subscription)}"
            raise_epoch = True
        epoch = max(group.group_epoch, FIRST_EPOCH) + raise_epoch
        if epoch != group.group_epoch:
            self.add(records.group_epoch(group.group_id, epoch))
            self.epoch_reason = reason

    def retarget(self, assignors: Mapping[str, Assignor]) -> None:
        """`assignors` has the default first."""
        group = self.group
        if group.group_epoch <= group.target_epoch:
            return
        name = preferred_assignor(group.members, next(iter(assignors)))
        assign = assignors.get(name) or next(iter(assignors.values()))
        known = group.subscription_metadata
        specs = {
            member_id: MemberSpec(
                group.topic_ids_of(member),
                group.target.get(member_id, NOTHING),
                member.instance_id,
            )
            for member_id, member in group.members.items()
        }
        counts = {topic.topic_id: topic.partition_count for topic in known.values()}
        targets = assign(specs, counts)
        for member_id, target in targets.items():
            if target != self.group.target.get(member_id):
                self.add(records.target_assignment(group.group_id, member_id, target))
        self.add(records.target_epoch(group.group_id, group.group_epoch))

    def reconcile(self, member_id: str, owned: Owned) -> ConsumerGroupMember:
        group = self.group
        member = group.members[member_id]
        if not self.records and member.is_reconciled_to(group.target_epoch):
            return member  # nothing is new: nearly always
        target = group.target.get(member_id, NOTHING)
        subscribed = group.topic_ids_of(member)
        after = reconcile(member, group.target_epoch, target, subscribed, group.is_held, owned)
        if after != member:
            self.add(records.current_assignment(group.group_id, after))
        return after


def _changed(before: Mapping[str, object], after: Mapping[str, object]) -> str:
    """Names of the topics that came, went or have other partitions."""
    names = sorted(
        name for name in before.keys() | after.keys() if before.get(name) != after.get(name)
    )
    told = ", ".join(names[:TOLD_TOPICS_MAX])
    left_out = len(names) - TOLD_TOPICS_MAX
    return told if left_out <= 0 else f"{told} and {left_out} more"
