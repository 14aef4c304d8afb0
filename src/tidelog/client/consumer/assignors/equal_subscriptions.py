"""The sticky assignment of members that all want the same topics.

Everybody gets the quota, the number of partitions divided by that of members, and some get one
more. Members keep what they had up to that, then the free partitions go round: within racks first,
then to anybody who has room.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from tidelog.client.consumer.assignors.java_order import utf16
from tidelog.types import TopicPartition

if TYPE_CHECKING:
    from tidelog.client.consumer.assignors.assignor import PartitionRacks
    from tidelog.client.consumer.assignors.sticky_history import History, Racks


class EqualSubscriptions:
    def __init__(self, partitions: PartitionRacks, history: History, racks: Racks) -> None:
        self._all = [
            TopicPartition(topic, partition)
            for topic in sorted(partitions)
            for partition in range(len(partitions[topic]))
        ]
        self._history = history
        self._racks = racks
        self._quota, self._extra_members = divmod(len(self._all), len(history.owned))
        self._over_quota = 0  # members with more than the quota; never above _extra_members
        self._quota_max = self._quota + 1 if self._extra_members else self._quota
        self._below: list[str] = []  # members with less than the quota
        self._at_quota: list[str] = []  # members with the quota that may get one more
        self._maybe_revoked: dict[TopicPartition, str] = {}
        self.shares: dict[str, list[TopicPartition]] = {member: [] for member in history.owned}
        # Their new owners must not have them before their old ones gave them up.
        self.changing_owner: dict[TopicPartition, str] = {}

    def assign(self) -> dict[str, list[TopicPartition]]:
        for member in self._history.owned:
            self._keep_owned(member)
        kept = {partition for share in self.shares.values() for partition in share}
        free = [partition for partition in self._all if partition not in kept]
        self._below.sort(key=utf16)
        self._at_quota.sort(key=utf16)
        if self._racks.of_member:
            free = self._give_within_racks(self._racks.by_nearby_members(free))
        self._give_in_turn(free)
        return self.shares

    def _keep_owned(self, member: str) -> None:
        owned = []
        for partition in self._history.owned[member]:
            if self._racks.mismatch(member, partition):
                self._maybe_revoked[partition] = member
            elif partition not in self._history.claimed_twice:
                owned.append(partition)
        owned.sort(key=lambda row: (row.partition, row.topic))
        if len(owned) < self._quota:
            self.shares[member] += owned
            self._below.append(member)
            return
        may_exceed = self._over_quota < self._extra_members
        if may_exceed and len(owned) >= self._quota_max:
            self._exceed()
            kept_count = self._quota_max
        else:
            kept_count = self._quota
            if may_exceed:
                self._at_quota.append(member)
        self.shares[member] += owned[:kept_count]
        self._maybe_revoked.update(dict.fromkeys(owned[kept_count:], member))

    def _exceed(self) -> None:
        self._over_quota += 1
        if self._over_quota == self._extra_members:
            self._at_quota.clear()

    def _give_within_racks(self, free: list[TopicPartition]) -> list[TopicPartition]:
        """What is left: partitions without a member in their racks that has room."""
        turn = 0
        left = []
        for partition in free:
            place = self._racks.next_nearby(partition, self._below, turn)
            if place >= 0:
                turn = self._give_below(partition, place)
                continue
            place = self._racks.next_nearby(partition, self._at_quota, 0)
            if place < 0:
                left.append(partition)
                continue
            self._give(partition, self._at_quota.pop(place))
            self._exceed()
        return left

    def _give_below(self, partition: TopicPartition, place: int) -> int:
        """The place of the member whose turn it is next."""
        member = self._below[place]
        if self._give(partition, member) < self._quota:
            place += 1
        else:
            del self._below[place]
            if self._over_quota < self._extra_members:
                self._at_quota.append(member)
        return place % len(self._below) if self._below else 0

    def _give_in_turn(self, free: list[TopicPartition]) -> None:
        below = deque(self._below)
        at_quota = deque(self._at_quota)
        for partition in free:
            if not below:
                self._give(partition, at_quota.popleft())
                continue
            member = below.popleft()
            if self._give(partition, member) < self._quota:
                below.append(member)
            else:
                at_quota.append(member)

    def _give(self, partition: TopicPartition, member: str) -> int:
        share = self.shares[member]
        share.append(partition)
        old_owner = self._maybe_revoked.get(partition, member)
        if old_owner != member or partition in self._history.claimed_twice:
            self.changing_owner[partition] = member
        return len(share)
