"""What an assignor is told and what it answers. Assignors are pure functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from tidelog.coordinator.group.consumer.assignment import NOTHING, Partitions
from tidelog.types import Uuid


class MemberSpec(NamedTuple):
    topics: frozenset[Uuid]  # it is subscribed to; all of them exist
    target: Partitions = NOTHING  # what it was to have so far
    instance_id: str | None = None


Members = Mapping[str, MemberSpec]  # by member id
PartitionCounts = Mapping[Uuid, int]  # of all subscribed topics
Targets = dict[str, dict[Uuid, frozenset[int]]]  # for every member, by member id

Assignor = Callable[[Members, PartitionCounts], Targets]


def is_homogeneous(members: Members) -> bool:
    """Whether all members are subscribed to the same topics."""
    return len({member.topics for member in members.values()}) <= 1


class Shares:
    """A target assignment in the making: whose each partition is."""

    def __init__(self, members: Members, counts: PartitionCounts) -> None:
        self.held: dict[str, dict[Uuid, set[int]]] = {member_id: {} for member_id in members}
        self.sizes: dict[str, int] = dict.fromkeys(members, 0)
        self._is_assigned = {topic_id: [False] * count for topic_id, count in counts.items()}
        for member_id, member in members.items():
            self._keep(member_id, member)

    def _keep(self, member_id: str, member: MemberSpec) -> None:
        """What a member had, as far as it exists, is subscribed to, and is nobody else's."""
        for topic_id, numbers in member.target.items():
            if topic_id not in member.topics:
                continue
            is_assigned = self._is_assigned[topic_id]
            for number in sorted(numbers):
                if number < len(is_assigned) and not is_assigned[number]:
                    self.give(member_id, topic_id, number)

    def give(self, member_id: str, topic_id: Uuid, number: int) -> None:
        self.held[member_id].setdefault(topic_id, set()).add(number)
        self.sizes[member_id] += 1
        self._is_assigned[topic_id][number] = True

    def take(self, member_id: str, topic_id: Uuid, number: int) -> None:
        self.held[member_id][topic_id].discard(number)
        self.sizes[member_id] -= 1
        self._is_assigned[topic_id][number] = False

    def unassigned(self, topic_id: Uuid) -> list[int]:
        return [number for number, taken in enumerate(self._is_assigned[topic_id]) if not taken]

    def targets(self) -> Targets:
        return {
            member_id: {
                topic_id: frozenset(numbers) for topic_id, numbers in held.items() if numbers
            }
            for member_id, held in self.held.items()
        }
