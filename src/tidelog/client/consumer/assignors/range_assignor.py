"""range: each topic by itself is cut into ranges, one for each of its members in order.

The first members get one partition more where the division leaves a rest. With racks (KIP-881), a
member first gets partitions that have a replica in its rack, within the same limits; topics with
the same members and as many partitions stay aligned, partition n of all of them at one member.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from tidelog.client.consumer.assignors.assignor import Assignment, Assignor
from tidelog.client.consumer.assignors.java_order import hash_order, members_in_order
from tidelog.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from tidelog.client.consumer.assignors.assignor import PartitionRacks, Subscription

    Shares = dict[str, list[TopicPartition]]

NAME: Final = "range"


class RangeAssignor(Assignor):
    @property
    def name(self) -> str:
        return NAME

    def assign(
        self, partitions: PartitionRacks, subscriptions: Mapping[str, Subscription]
    ) -> dict[str, Assignment]:
        topics = _topic_states(partitions, subscriptions)
        shares: Shares = {member: [] for member in subscriptions}
        is_rack_aware = any(topic.needs_racks for topic in topics)
        if is_rack_aware:
            _assign_within_racks(topics, shares)
        for topic in topics:
            topic.assign_ranges(shares)
        if is_rack_aware:
            for share in shares.values():
                share.sort()
        return {member: Assignment(share) for member, share in shares.items()}


class _TopicState:
    """One topic while it is shared out.

    A member may get `quota` partitions, and `extra_members` of them may get one more.
    """

    def __init__(
        self, topic: str, racks: Sequence[Collection[str]], member_racks: dict[str, str | None]
    ) -> None:
        self.topic = topic
        self.member_racks = member_racks  # in the order in which members are served
        self.partition_racks = racks if any(member_racks.values()) else ()
        self.needs_racks = needs_racks(
            {rack for rack in member_racks.values() if rack}, self.partition_racks
        )
        self._unassigned = dict.fromkeys(range(len(racks)))
        self._counts = dict.fromkeys(member_racks, 0)
        self._quota, self._extra_members = divmod(len(racks), len(member_racks))

    def racks_match(self, member: str, partition: int) -> bool:
        rack = self.member_racks[member]
        return not rack or rack in self.partition_racks[partition]

    def room(self, member: str) -> int:
        quota = self._quota + 1 if self._extra_members > 0 else self._quota
        return max(0, quota - self._counts[member])

    def assign_ranges(
        self, shares: Shares, may_assign: Callable[[str, int], bool] | None = None
    ) -> None:
        for member in self.member_racks:
            fitting = (
                partition
                for partition in self._unassigned
                if may_assign is None or may_assign(member, partition)
            )
            chosen = list(islice(fitting, self.room(member)))
            if chosen:
                self.give(member, chosen, shares)

    def give(self, member: str, partitions: list[int], shares: Shares) -> None:
        shares[member] += [TopicPartition(self.topic, partition) for partition in partitions]
        self._counts[member] += len(partitions)
        if self._counts[member] > self._quota:
            self._extra_members -= 1
        for partition in partitions:
            del self._unassigned[partition]


def needs_racks(member_racks: set[str], partition_racks: Collection[Collection[str]]) -> bool:
    """Whether racks can make a difference: some match, and some partitions are not in all."""
    every_rack = {rack for racks in partition_racks for rack in racks}
    if member_racks.isdisjoint(every_rack):
        return False
    return any(set(racks) != every_rack for racks in partition_racks)


def _topic_states(
    partitions: PartitionRacks, subscriptions: Mapping[str, Subscription]
) -> list[_TopicState]:
    members_of: dict[str, dict[str, None]] = {}
    for member in hash_order(subscriptions):
        for topic in subscriptions[member].topics:
            members_of.setdefault(topic, {})[member] = None
    topics = hash_order(topic for topic in hash_order(members_of) if partitions.get(topic))
    return [
        _TopicState(
            topic,
            partitions[topic],
            {
                member: subscriptions[member].rack or None
                for member in members_in_order(subscriptions, members_of[topic])
            },
        )
        for topic in topics
    ]


def _assign_within_racks(topics: list[_TopicState], shares: Shares) -> None:
    alike: dict[tuple[tuple[str, ...], int], list[_TopicState]] = {}
    for topic in topics:
        alike.setdefault((tuple(topic.member_racks), len(topic.partition_racks)), []).append(topic)
    for group in alike.values():
        if len(group) > 1:
            _assign_aligned(group, shares)
        elif group[0].needs_racks:
            group[0].assign_ranges(shares, group[0].racks_match)


def _assign_aligned(topics: list[_TopicState], shares: Shares) -> None:
    members = list(topics[0].member_racks)
    for partition in range(len(topics[0].partition_racks)):
        for member in members:
            if all(topic.racks_match(member, partition) and topic.room(member) for topic in topics):
                break
        else:
            continue
        for topic in topics:
            topic.give(member, [partition], shares)
        if not any(topic.room(member) for topic in topics):
            members.remove(member)
