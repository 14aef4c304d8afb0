"""What the members of a group had before, as the two sticky assignors see it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.client.consumer.assignors.java_order import hash_order
from tidelog.client.consumer.assignors.range_assignor import needs_racks
from tidelog.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tidelog.client.consumer.assignors.assignor import PartitionRacks, Subscription

DEFAULT_GENERATION: Final = -1


class MemberClaim(NamedTuple):
    """What a member says that it had, and in which generation."""

    partitions: Sequence[TopicPartition]
    generation: int | None


class History(NamedTuple):
    """Members are in the order of Kafka's hash map."""

    claims: dict[str, MemberClaim]
    owned: dict[str, dict[TopicPartition, None]]  # what each may keep, in order
    claimed_twice: set[TopicPartition]  # by members of one generation: nobody may keep it
    max_generation: int

    @classmethod
    def of(
        cls,
        partitions: PartitionRacks,
        subscriptions: Mapping[str, Subscription],
        claim_of: Callable[[Subscription], MemberClaim],
    ) -> History:
        """Where two claim a partition, the later generation has it. Kafka compares the generation
        of the later claim with what the other's subscription says, so that is done here too.

        Partitions that are gone are left out. Kafka keeps those whose topic exists still, and then
        takes all partitions after them for free ones.
        """
        claims = {member: claim_of(subscriptions[member]) for member in hash_order(subscriptions)}
        owned: dict[str, dict[TopicPartition, None]] = {}
        claimed_twice: set[TopicPartition] = set()
        owner_of: dict[TopicPartition, str] = {}
        max_generation = DEFAULT_GENERATION
        for member, claim in claims.items():
            generation = _known(claim.generation)
            max_generation = max(max_generation, generation)
            kept = owned[member] = {}
            for partition in claim.partitions:
                if not 0 <= partition.partition < len(partitions.get(partition.topic, ())):
                    continue
                other = owner_of.get(partition)
                if other is None:
                    kept[partition] = None
                    owner_of[partition] = member
                    continue
                other_generation = _known(subscriptions[other].generation)
                if generation >= other_generation:
                    owned[other].pop(partition, None)
                    owner_of[partition] = member
                if generation > other_generation:
                    kept[partition] = None
                elif generation == other_generation:
                    claimed_twice.add(partition)
        return cls(claims, owned, claimed_twice, max_generation)


def _known(generation: int | None) -> int:
    return DEFAULT_GENERATION if generation is None else generation


class Racks:
    """Where members and partitions are; empty where that can make no difference."""

    def __init__(
        self, partitions: PartitionRacks, subscriptions: Mapping[str, Subscription]
    ) -> None:
        self.of_member: dict[str, str] = {}
        self.of_partition: dict[TopicPartition, frozenset[str]] = {}
        of_member = {member: row.rack for member, row in subscriptions.items() if row.rack}
        if not of_member:
            return
        of_partition = {
            TopicPartition(topic, partition): frozenset(racks)
            for topic, rows in partitions.items()
            for partition, racks in enumerate(rows)
        }
        if needs_racks(set(of_member.values()), of_partition.values()):
            self.of_member, self.of_partition = of_member, of_partition

    def mismatch(self, member: str, partition: TopicPartition) -> bool:
        rack = self.of_member.get(member)
        return rack is not None and rack not in self.of_partition[partition]

    def by_nearby_members(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Those that the fewest members have in their rack come first."""
        members_in: dict[str, int] = {}
        for rack in self.of_member.values():
            members_in[rack] = members_in.get(rack, 0) + 1

        def nearby(partition: TopicPartition) -> int:
            return sum(members_in.get(rack, 0) for rack in self.of_partition.get(partition, ()))

        return sorted(partitions, key=nearby)

    def next_nearby(self, partition: TopicPartition, members: Sequence[str], first: int) -> int:
        """The place of the next member in a rack of the partition, from `first` on and around; -1
        if there is none."""
        racks = self.of_partition[partition]
        for step in range(len(members)):
            place = (first + step) % len(members)
            if self.of_member.get(members[place]) in racks:
                return place
        return -1
