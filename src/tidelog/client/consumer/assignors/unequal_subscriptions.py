"""The sticky assignment of members that want different topics.

Members keep what they had and still want. Free partitions go to whoever has the fewest. Then
partitions move, one by one, from members with at least two more than another that wants the topic.
If that made nothing better, all stays as it was before the moves.

A partition goes rather back to the member that had it in an earlier generation. And if one of the
same topic has moved the other way, that one goes back instead.

Kafka does not ask whether the earlier owner still wants the topic. Mostly the partition moves on
from there, and the result is sound but differs from one without the detour; to agree with Kafka,
the detour is made here too. Where it would end badly, with a partition left at such a member or
Kafka's assignor failing, earlier owners that do not want the topic are left aside.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from tidelog.client.consumer.assignors.java_order import PartitionSet, utf16
from tidelog.client.consumer.assignors.sticky_history import DEFAULT_GENERATION
from tidelog.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tidelog.client.consumer.assignors.assignor import PartitionRacks, Subscription
    from tidelog.client.consumer.assignors.sticky_history import History, Racks

    Shares = dict[str, dict[TopicPartition, None]]  # in the order in which they were given


class _Move(NamedTuple):
    source: str
    target: str


class _Moves:
    """Where partitions have moved to, from where they were before the first move."""

    def __init__(self) -> None:
        self._of_partition: dict[TopicPartition, _Move] = {}
        self._by_topic: dict[tuple[str, _Move], PartitionSet] = {}

    def note(self, partition: TopicPartition, source: str, target: str) -> None:
        earlier = self._of_partition.pop(partition, None)
        if earlier is not None:
            self._by_topic[partition.topic, earlier].remove(partition)
            source = earlier.source
        if source != target:
            move = self._of_partition[partition] = _Move(source, target)
            self._by_topic.setdefault((partition.topic, move), PartitionSet()).add(partition)
        if earlier is not None and not self._by_topic[partition.topic, earlier]:
            del self._by_topic[partition.topic, earlier]

    def better_choice(self, partition: TopicPartition, source: str, target: str) -> TopicPartition:
        """One of the topic that went from target to source, if there is any."""
        if partition in self._of_partition:
            source = self._of_partition[partition].source
        came = self._by_topic.get((partition.topic, _Move(target, source)))
        return partition if came is None else came.first()


class _Crowd:
    """The members that take part, those with the fewest partitions first."""

    def __init__(self, members: list[str]) -> None:
        self._names = sorted(members, key=utf16)
        self._rank = {member: rank for rank, member in enumerate(self._names)}
        self._order: list[tuple[int, int]] = []

    def __iter__(self) -> Iterator[str]:
        return (self._names[rank] for _, rank in self._order)

    def add(self, member: str, count: int) -> None:
        insort(self._order, (count, self._rank[member]))

    def remove(self, member: str, count: int) -> None:
        del self._order[bisect_left(self._order, (count, self._rank[member]))]

    def is_even(self) -> bool:
        """Whether nobody has two more than another."""
        return self._order[0][0] >= self._order[-1][0] - 1


class _DeadEnd(Exception):
    """The earlier owner of a partition takes no part in the moves."""


def assign_unequal(
    partitions: PartitionRacks,
    subscriptions: Mapping[str, Subscription],
    history: History,
    racks: Racks,
) -> dict[str, list[TopicPartition]]:
    wanted = {
        member: frozenset(partitions.keys() & set(row.topics))
        for member, row in subscriptions.items()
    }
    earlier = _earlier_owners(history)
    welcome = {row: member for row, member in earlier.items() if row.topic in wanted[member]}
    if len(welcome) < len(earlier):
        try:
            shares = _UnequalSubscriptions(partitions, wanted, history, racks, earlier).assign()
        except _DeadEnd:
            pass
        else:
            if all(row.topic in wanted[member] for member in shares for row in shares[member]):
                return shares
    return _UnequalSubscriptions(partitions, wanted, history, racks, welcome).assign()


class _UnequalSubscriptions:
    def __init__(
        self,
        partitions: PartitionRacks,
        wanted: dict[str, frozenset[str]],
        history: History,
        racks: Racks,
        earlier_owner: dict[TopicPartition, str],
    ) -> None:
        self._racks = racks
        self._wanted = wanted
        self._wanted_count = {
            member: sum(len(partitions[topic]) for topic in topics)
            for member, topics in self._wanted.items()
        }
        self._members_of: dict[str, list[str]] = {topic: [] for topic in partitions}
        for member, topics in self._wanted.items():
            for topic in topics:
                self._members_of[topic].append(member)
        self._all = [
            TopicPartition(topic, partition)
            for topic in sorted(partitions, key=lambda topic: (len(self._members_of[topic]), topic))
            for partition in range(len(partitions[topic]))
        ]
        self._earlier_owner = earlier_owner
        self._must_revoke = False
        self._shares: Shares = {}
        for member, owned in history.owned.items():
            kept = {partition: None for partition in owned if self._fits(member, partition)}
            self._must_revoke = self._must_revoke or len(kept) < len(owned)
            self._shares[member] = kept
        self._owner_of = {
            partition: member for member, share in self._shares.items() for partition in share
        }
        self._crowd = _Crowd(list(wanted))
        self._moves = _Moves()

    def _fits(self, member: str, partition: TopicPartition) -> bool:
        return partition.topic in self._wanted[member] and not self._racks.mismatch(
            member, partition
        )

    def assign(self) -> dict[str, list[TopicPartition]]:
        for member, share in self._shares.items():
            self._crowd.add(member, len(share))
        is_first_time = not any(self._shares.values())
        free = [partition for partition in self._all if partition not in self._owner_of]
        self._give_free(free)
        fixed = self._set_fixed_apart()
        free = [partition for partition in free if self._is_movable(partition.topic)]
        movable = [partition for partition in self._all if self._is_movable(partition.topic)]
        before = {member: dict(share) for member, share in self._shares.items()}
        if not self._must_revoke:
            self._even_out(free)
        has_moved = self._even_out(movable)
        if not is_first_time and has_moved and _unevenness(self._shares) >= _unevenness(before):
            self._shares = before
        return {member: list(share) for member, share in (self._shares | fixed).items()}

    def _give_free(self, free: list[TopicPartition]) -> None:
        if self._racks.of_member:
            free = [row for row in free if not self._give_to_first(row, within_racks=True)]
        for partition in free:
            self._give_to_first(partition, within_racks=False)

    def _give_to_first(self, partition: TopicPartition, *, within_racks: bool) -> bool:
        for member in self._crowd:
            if partition.topic in self._wanted[member] and not (
                within_racks and self._racks.mismatch(member, partition)
            ):
                share = self._shares[member]
                self._crowd.remove(member, len(share))
                share[partition] = None
                self._owner_of[partition] = member
                self._crowd.add(member, len(share))
                return True
        return False

    def _is_movable(self, topic: str) -> bool:
        return len(self._members_of[topic]) >= 2

    def _set_fixed_apart(self) -> Shares:
        """The shares of members that have all they want and of which nobody else wants any."""
        fixed = [
            member
            for member, share in self._shares.items()
            if len(share) >= self._wanted_count[member]
            and not any(self._is_movable(partition.topic) for partition in share)
        ]
        for member in fixed:
            self._crowd.remove(member, len(self._shares[member]))
        return {member: self._shares.pop(member) for member in fixed}

    def _even_out(self, partitions: list[TopicPartition]) -> bool:
        """Whether anything moved. Every round but the last moves something; a bound on them makes
        sure of an end, though no group is known that comes near it."""
        has_moved = False
        is_balanced = not partitions or self._is_balanced()
        for _ in range(len(self._owner_of) + len(self._shares)):
            moved_in_round = False
            for partition in partitions:
                if is_balanced:
                    return has_moved
                target = self._better_owner_or_none(partition)
                if target is not None:
                    self._move(partition, target)
                    moved_in_round = has_moved = True
                    is_balanced = self._is_balanced()
            if not moved_in_round:
                break
        return has_moved

    def _better_owner_or_none(self, partition: TopicPartition) -> str | None:
        limit = len(self._shares[self._owner_of[partition]]) - 1
        earlier = self._earlier_owner.get(partition)
        if earlier is not None:
            if earlier not in self._shares:
                raise _DeadEnd
            if len(self._shares[earlier]) < limit:
                return earlier
        for member in self._crowd:
            if partition.topic in self._wanted[member]:
                return member if len(self._shares[member]) < limit else None
        return None

    def _move(self, partition: TopicPartition, target: str) -> None:
        partition = self._moves.better_choice(partition, self._owner_of[partition], target)
        source = self._owner_of[partition]
        for member in {source, target}:
            self._crowd.remove(member, len(self._shares[member]))
        self._moves.note(partition, source, target)
        del self._shares[source][partition]
        self._shares[target][partition] = None
        self._owner_of[partition] = target
        for member in {source, target}:
            self._crowd.add(member, len(self._shares[member]))

    def _is_balanced(self) -> bool:
        """Whether no member could take a partition of one that has at least two more."""
        if self._crowd.is_even():
            return True
        largest: dict[str, int] = {}
        for share in self._shares.values():
            for topic in Counter(partition.topic for partition in share):
                largest[topic] = max(largest.get(topic, 0), len(share))
        return not any(
            largest[topic] > len(share) + 1
            for member, share in self._shares.items()
            if len(share) != self._wanted_count[member]
            for topic in self._wanted[member]
        )


def _earlier_owners(history: History) -> dict[TopicPartition, str]:
    """The members with the latest generation that is not the latest of all."""
    found: dict[TopicPartition, tuple[int, str]] = {}
    for member, claim in history.claims.items():
        generation = DEFAULT_GENERATION if claim.generation is None else claim.generation
        if generation < history.max_generation:
            for partition in claim.partitions:
                if partition not in found or generation > found[partition][0]:
                    found[partition] = generation, member
    return {partition: member for partition, (_, member) in found.items()}


def _unevenness(shares: Shares) -> int:
    """The sum of the differences of all pairs of members."""
    counts = sorted(map(len, shares.values()))
    return sum(count * (2 * place - len(counts) + 1) for place, count in enumerate(counts))
