"""What an assignor is, and what goes in and out of it. No I/O.

Every member of a classic group has its assignors, in order of preference, and sends what
`subscription_user_data` gives with each JoinGroup. The broker picks one that all members have. The
member that leads the group calls `assign` of its own; then each member hears of its part through
`on_assignment`. The order of the subscriptions is that of the JoinGroup answer: Kafka's assignors
give the same answer for the same order, and so do these.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from tidelog.client.consumer.offset_and_metadata import ConsumerGroupMetadata
    from tidelog.types import TopicPartition

# For each topic, for each of its partitions from 0 on, the racks of its replicas where they are
# known. A topic that does not exist is left out.
PartitionRacks = Mapping[str, Sequence[Collection[str]]]


class RebalanceProtocol(IntEnum):
    EAGER = 0  # members give up everything before they join
    COOPERATIVE = 1  # members keep what they have, and give up what the assignment takes away


class Subscription(NamedTuple):
    """What a member says when it joins."""

    topics: Sequence[str]
    user_data: bytes | None = None
    owned_partitions: Sequence[TopicPartition] = ()
    generation: int | None = None  # in which it owned them; None where it does not say
    group_instance_id: str | None = None
    rack: str | None = None


class Assignment(NamedTuple):
    partitions: Sequence[TopicPartition]
    user_data: bytes | None = None


class Assignor(Protocol):
    """Instances belong to one consumer. Derive from it to have the defaults."""

    @property
    def name(self) -> str:
        """By which the members of a group know it; all must mean the same by it."""

    @property
    def protocols(self) -> Sequence[RebalanceProtocol]:
        """Those that it supports. A consumer uses the highest that all its assignors support."""
        return (RebalanceProtocol.EAGER,)

    @property
    def version(self) -> int:
        return 0

    def subscription_user_data(self, topics: Collection[str]) -> bytes | None:
        """For the assignor of the leader; `topics` are those that this member wants."""
        return None

    def assign(
        self, partitions: PartitionRacks, subscriptions: Mapping[str, Subscription]
    ) -> dict[str, Assignment]:
        """An assignment for every member id of `subscriptions`. `partitions` has the topics that
        any member wants and that exist."""

    def on_assignment(self, assignment: Assignment, metadata: ConsumerGroupMetadata) -> None:
        """The member has its assignment of the generation in `metadata`."""
        return None
