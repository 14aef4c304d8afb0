"""Who gets which partitions of a consumer group: the assignors `uniform` and `range`.

They are pure functions. group.consumer.assignors names them, in short or by the class Kafka has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple

from tidelog.coordinator.group.consumer.consumer_group_member import NOTHING, Partitions
from tidelog.types import Uuid

ROUNDS_MAX: Final = 16


class MemberSpec(NamedTuple):
    topics: frozenset[Uuid]  # it is subscribed to; all of them exist
    target: Partitions = NOTHING  # what it was to have so far
    instance_id: str | None = None


Members = Mapping[str, MemberSpec]  # by member id
PartitionCounts = Mapping[Uuid, int]  # of all subscribed topics
Targets = dict[str, dict[Uuid, frozenset[int]]]  # for every member, by member id

Assignor = Callable[[Members, PartitionCounts], Targets]


def _is_homogeneous(members: Members) -> bool:
    """Whether all members are subscribed to the same topics."""
    return len({member.topics for member in members.values()}) <= 1


class _Shares:
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


def assign_range(members: Members, counts: PartitionCounts) -> Targets:
    """Of every topic, each subscriber gets a run of partitions.

    Subscribers stand in the order of their instance ids, then of their member ids; the first ones
    get one partition more where they do not come out even. So the same numbers of topics with
    equally many partitions and the same subscribers go to the same member (co-partitioning, for
    joins). It is not sticky; instance ids make it so over restarts.
    """
    targets: Targets = {member_id: {} for member_id in members}
    subscribers: dict[Uuid, list[str]] = {}
    for member_id in _static_first(members):
        for topic_id in members[member_id].topics:
            subscribers.setdefault(topic_id, []).append(member_id)
    for topic_id, member_ids in sorted(subscribers.items()):
        share, extra = divmod(counts[topic_id], len(member_ids))
        start = 0
        for position, member_id in enumerate(member_ids):
            end = start + share + (position < extra)
            if start < end:
                targets[member_id][topic_id] = frozenset(range(start, end))
            start = end
    return targets


def _static_first(members: Members) -> list[str]:
    """Static members first."""
    return sorted(
        members,
        key=lambda member_id: (
            members[member_id].instance_id is None,
            members[member_id].instance_id or member_id,
        ),
    )


def assign_uniform(members: Members, counts: PartitionCounts) -> Targets:
    """Everybody gets equally many partitions, and keeps what it had.

    Balance comes before stickiness. If all members are subscribed to the same topics, the numbers
    of partitions differ by one at most; else as little as subscriptions and a bounded effort allow.
    """
    if _is_homogeneous(members):
        return _assign_homogeneous(members, counts)
    return _assign_heterogeneous(members, counts)


def _assign_homogeneous(members: Members, counts: PartitionCounts) -> Targets:
    """For members that are all subscribed to the same topics.

    Each member's quota is the number of partitions by the number of members; what is left over
    goes, one each, to those who have most already, so that a balanced assignment stays as it is.
    (Kafka gives it to those who come first, and moves partitions for it.) Then everybody gives up
    what is above its quota, and gets what is free up to it.
    """
    if not members:
        return {}
    shares = _Shares(members, counts)
    topic_ids = sorted(next(iter(members.values())).topics)
    quotas = _quotas(shares, sum(counts[topic_id] for topic_id in topic_ids))
    for member_id, quota in quotas.items():
        _give_up_surplus(shares, member_id, quota)
    free = [(topic_id, number) for topic_id in topic_ids for number in shares.unassigned(topic_id)]
    _share_out(shares, free, quotas)
    return shares.targets()


def _quotas(shares: _Shares, partition_count: int) -> dict[str, int]:
    quota, extra = divmod(partition_count, len(shares.sizes))
    by_size = sorted(shares.sizes, key=lambda member_id: -shares.sizes[member_id])
    return {member_id: quota + (place < extra) for place, member_id in enumerate(by_size)}


def _give_up_surplus(shares: _Shares, member_id: str, quota: int) -> None:
    surplus = shares.sizes[member_id] - quota
    if surplus <= 0:
        return
    held = [
        (topic_id, number)
        for topic_id, numbers in sorted(shares.held[member_id].items())
        for number in sorted(numbers)
    ]
    for topic_id, number in held[-surplus:]:
        shares.take(member_id, topic_id, number)


def _share_out(shares: _Shares, free: list[tuple[Uuid, int]], quotas: dict[str, int]) -> None:
    remaining = iter(free)
    for member_id in shares.sizes:
        for _ in range(quotas[member_id] - shares.sizes[member_id]):
            shares.give(member_id, *next(remaining))


Subscribers = dict[Uuid, list[str]]  # in the members' order


def _assign_heterogeneous(members: Members, counts: PartitionCounts) -> Targets:
    """For members with different subscriptions.

    Everybody keeps what it had of the topics it is still subscribed to. Free partitions go, topic
    by topic, to the subscriber with the fewest; topics with many partitions for few subscribers
    come first, since they leave the least choice. Then partitions move, again topic by topic, from
    the subscriber with the most to the one with the fewest, until no topic can be improved.

    Where subscriptions overlap without being equal, a topic at a time does not always find the
    best assignment, and may need several rounds; there are at most ROUNDS_MAX of them, as in Kafka.
    """
    shares = _Shares(members, counts)
    subscribers: Subscribers = {}
    for member_id, member in members.items():
        for topic_id in member.topics:
            subscribers.setdefault(topic_id, []).append(member_id)
    topic_ids = sorted(
        subscribers,
        key=lambda topic_id: (
            -counts[topic_id] / len(subscribers[topic_id]),
            len(subscribers[topic_id]),
            topic_id,
        ),
    )
    for topic_id in topic_ids:
        _give_free(shares, topic_id, subscribers[topic_id])
    shared = [topic_id for topic_id in topic_ids if len(subscribers[topic_id]) > 1]
    for _ in range(ROUNDS_MAX):
        moves = [_balance(shares, topic_id, subscribers[topic_id]) for topic_id in shared]
        if not any(moves):
            break
    return shares.targets()


def _give_free(shares: _Shares, topic_id: Uuid, subscribers: list[str]) -> None:
    fewest_first = [(shares.sizes[name], place) for place, name in enumerate(subscribers)]
    heapify(fewest_first)
    for number in shares.unassigned(topic_id):
        size, place = heappop(fewest_first)
        shares.give(subscribers[place], topic_id, number)
        heappush(fewest_first, (size + 1, place))


def _balance(shares: _Shares, topic_id: Uuid, subscribers: list[str]) -> int:
    """Moves the topic's partitions until its subscribers are even; how many it moved."""
    fewest_first = [(shares.sizes[name], place) for place, name in enumerate(subscribers)]
    most_first = [
        (-shares.sizes[name], place)
        for place, name in enumerate(subscribers)
        if shares.held[name].get(topic_id)
    ]
    heapify(fewest_first)
    heapify(most_first)
    moves = 0
    while most_first:
        giver = subscribers[most_first[0][1]]
        taker = subscribers[fewest_first[0][1]]
        if _is_outdated(most_first[0], -shares.sizes[giver]):
            _, place = heappop(most_first)
            heappush(most_first, (-shares.sizes[giver], place))
            continue
        if _is_outdated(fewest_first[0], shares.sizes[taker]):
            _, place = heappop(fewest_first)
            heappush(fewest_first, (shares.sizes[taker], place))
            continue
        if shares.sizes[giver] - shares.sizes[taker] <= 1:
            break
        number = max(shares.held[giver][topic_id])
        shares.take(giver, topic_id, number)
        shares.give(taker, topic_id, number)
        moves += 1
        if not shares.held[giver][topic_id]:
            heappop(most_first)
    return moves


def _is_outdated(entry: tuple[int, int], size: int) -> bool:
    """A move changed the member's size since it was put into the heap."""
    return entry[0] != size


ASSIGNORS: Final[Mapping[str, Assignor]] = {
    "uniform": assign_uniform,
    "range": assign_range,
}
_KAFKA_PACKAGE: Final = "org.apache.kafka.coordinator.group.assignor."
_SHORT_NAMES: Final = {
    _KAFKA_PACKAGE + "UniformAssignor": "uniform",
    _KAFKA_PACKAGE + "RangeAssignor": "range",
}


def assignors_of(names: Sequence[str]) -> dict[str, Assignor]:
    """By short name, the default first. The configuration admits no others."""
    short = [_SHORT_NAMES.get(name, name) for name in names]
    return {name: ASSIGNORS[name] for name in short}
