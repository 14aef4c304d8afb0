"""sticky and cooperative-sticky: even shares, with as few partitions moved as that allows.

Both come to the same shares. `sticky` is for eager rebalances. Its members have given everything up
when they join, so they tell the leader in their user data what they had:

    previous_assignment  array of (topic string, partitions array of int32)
    generation           int32; version 0 does not have it

With `cooperative-sticky` members keep what they have while they join. A partition that is to move
is given to nobody in the first rebalance; its old owner gives it up and joins again, and the second
rebalance hands it over. Its user data is a generation, for leaders that know no newer subscription.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from tidelog.client.consumer.assignors.assignor import Assignment, Assignor, RebalanceProtocol
from tidelog.client.consumer.assignors.equal_subscriptions import EqualSubscriptions
from tidelog.client.consumer.assignors.java_order import hash_order
from tidelog.client.consumer.assignors.sticky_history import (
    DEFAULT_GENERATION,
    History,
    MemberClaim,
    Racks,
)
from tidelog.client.consumer.assignors.unequal_subscriptions import assign_unequal
from tidelog.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from tidelog.client.consumer.assignors.assignor import PartitionRacks, Subscription
    from tidelog.client.consumer.offset_and_metadata import ConsumerGroupMetadata

    Shares = dict[str, list[TopicPartition]]

STICKY: Final = "sticky"
COOPERATIVE_STICKY: Final = "cooperative-sticky"

_INT16 = Struct(">h")
_INT32 = Struct(">i")


class StickyAssignor(Assignor):
    def __init__(self) -> None:
        self._assignment: Sequence[TopicPartition] | None = None
        self._generation = DEFAULT_GENERATION

    @property
    def name(self) -> str:
        return STICKY

    def subscription_user_data(self, topics: Collection[str]) -> bytes | None:
        if self._assignment is None:
            return None
        return encode_user_data(self._assignment, self._generation)

    def on_assignment(self, assignment: Assignment, metadata: ConsumerGroupMetadata) -> None:
        self._assignment = tuple(assignment.partitions)
        self._generation = metadata.generation_id

    def assign(
        self, partitions: PartitionRacks, subscriptions: Mapping[str, Subscription]
    ) -> dict[str, Assignment]:
        shares, _ = _shares(partitions, subscriptions, _claim_in_user_data)
        return {member: Assignment(share) for member, share in shares.items()}


class CooperativeStickyAssignor(Assignor):
    def __init__(self) -> None:
        self._generation = DEFAULT_GENERATION

    @property
    def name(self) -> str:
        return COOPERATIVE_STICKY

    @property
    def protocols(self) -> Sequence[RebalanceProtocol]:
        return (RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER)

    def subscription_user_data(self, topics: Collection[str]) -> bytes | None:
        return _INT32.pack(self._generation)

    def on_assignment(self, assignment: Assignment, metadata: ConsumerGroupMetadata) -> None:
        self._generation = metadata.generation_id

    def assign(
        self, partitions: PartitionRacks, subscriptions: Mapping[str, Subscription]
    ) -> dict[str, Assignment]:
        shares, changing_owner = _shares(partitions, subscriptions, _claim_of_owner)
        if changing_owner is None:
            changing_owner = _changing_owner(shares, subscriptions)
        return {
            member: Assignment([row for row in share if changing_owner.get(row) != member])
            for member, share in shares.items()
        }


def _shares(
    partitions: PartitionRacks,
    subscriptions: Mapping[str, Subscription],
    claim_of: Callable[[Subscription], MemberClaim],
) -> tuple[Shares, dict[TopicPartition, str] | None]:
    """And the new owners of partitions that others may still own; None where nobody kept track."""
    if not subscriptions:
        return {}, {}
    wanted = {topic for row in subscriptions.values() for topic in row.topics}
    partitions = {topic: racks for topic, racks in partitions.items() if racks and topic in wanted}
    history = History.of(partitions, subscriptions, claim_of)
    racks = Racks(partitions, subscriptions)
    if len({frozenset(row.topics) for row in subscriptions.values()}) == 1:
        equal = EqualSubscriptions(partitions, history, racks)
        return equal.assign(), equal.changing_owner
    return assign_unequal(partitions, subscriptions, history, racks), None


def _changing_owner(
    shares: Shares, subscriptions: Mapping[str, Subscription]
) -> dict[TopicPartition, str]:
    """Partitions that somebody gets and somebody else has to give up."""
    added: dict[TopicPartition, str] = {}
    revoked: set[TopicPartition] = set()
    for member, share in shares.items():
        owned = set(subscriptions[member].owned_partitions)
        added.update(dict.fromkeys(set(share) - owned, member))
        revoked |= owned.difference(share)
    return {partition: member for partition, member in added.items() if partition in revoked}


def _claim_of_owner(subscription: Subscription) -> MemberClaim:
    generation = subscription.generation
    if generation is None and subscription.user_data is not None:
        if len(subscription.user_data) >= _INT32.size:
            (generation,) = _INT32.unpack_from(subscription.user_data)
        else:
            generation = DEFAULT_GENERATION
    return MemberClaim(subscription.owned_partitions, generation)


def _claim_in_user_data(subscription: Subscription) -> MemberClaim:
    if not subscription.user_data:
        return MemberClaim((), None)
    try:
        return decode_user_data(subscription.user_data)
    except ValueError:
        return MemberClaim((), DEFAULT_GENERATION)


def encode_user_data(partitions: Sequence[TopicPartition], generation: int) -> bytes:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, []).append(partition)
    encoded = bytearray(_INT32.pack(len(by_topic)))
    for topic in hash_order(by_topic):
        name = topic.encode()
        encoded += _INT16.pack(len(name)) + name + _INT32.pack(len(by_topic[topic]))
        for partition in by_topic[topic]:
            encoded += _INT32.pack(partition)
    return bytes(encoded + _INT32.pack(generation))


def decode_user_data(data: bytes) -> MemberClaim:
    """ValueError for bytes of neither version."""
    reader = _Reader(data)
    partitions = []
    for _ in range(reader.count()):
        topic = reader.string()
        partitions += [TopicPartition(topic, reader.int32()) for _ in range(reader.count())]
    generation = reader.int32() if reader.left >= _INT32.size else None
    return MemberClaim(partitions, generation)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._position

    def int32(self) -> int:
        return int(_INT32.unpack(self._take(_INT32.size))[0])

    def count(self) -> int:
        count = self.int32()
        if not 0 <= count <= self.left:
            raise ValueError(f"{count} items in {self.left} bytes")
        return count

    def string(self) -> str:
        (length,) = _INT16.unpack(self._take(_INT16.size))
        return self._take(length).decode(errors="replace")

    def _take(self, length: int) -> bytes:
        if not 0 <= length <= self.left:
            raise ValueError(f"{length} bytes wanted, {self.left} left")
        start = self._position
        self._position += length
        return self._data[start : self._position]
