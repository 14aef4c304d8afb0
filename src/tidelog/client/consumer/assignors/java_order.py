"""The orders in which Java's collections hold strings and partitions.

Kafka's assignors walk hash maps of member ids and of topics, and who comes first may get the odd
partition. A group whose members lead it in turn, some in Java and some here, must come to the same
result, or partitions would move whenever the leader changes. So the order of a HashMap is rebuilt:
by bucket, and within one in the order of insertion. (Java makes a tree of a bucket of more than 8,
which has another order. That takes ids that were made for it.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from tidelog.protocol.java_hash import java_hash

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from tidelog.client.consumer.assignors.assignor import Subscription
    from tidelog.types import TopicPartition

Key = TypeVar("Key")

_CAPACITY_MIN: Final = 16


def utf16(text: str) -> bytes:
    """Sorts as Java's String.compareTo does."""
    return text.encode("utf-16-be", "surrogatepass")


def string_hash(text: str) -> int:
    """String.hashCode, unsigned."""
    return java_hash(text) & 0xFFFFFFFF


def partition_hash(partition: TopicPartition) -> int:
    """TopicPartition.hashCode, unsigned."""
    return (31 * (31 + partition.partition) + string_hash(partition.topic)) & 0xFFFFFFFF


def hash_order(keys: Iterable[str]) -> list[str]:
    """Distinct strings, given in the order of their insertion, in that of a HashMap."""
    distinct = dict.fromkeys(keys)
    return sorted(distinct, key=bucket_of(string_hash, _capacity(len(distinct))))


def bucket_of(hash_code: Callable[[Key], int], capacity: int) -> Callable[[Key], int]:
    def bucket(key: Key) -> int:
        value = hash_code(key)
        return (value ^ value >> 16) & (capacity - 1)

    return bucket


def _capacity(count: int) -> int:
    capacity = _CAPACITY_MIN
    while count > capacity * 3 // 4:
        capacity *= 2
    return capacity


class PartitionSet:
    """A HashSet of partitions. Its table grows and never shrinks."""

    def __init__(self) -> None:
        self._partitions: dict[TopicPartition, None] = {}
        self._capacity = _CAPACITY_MIN

    def __len__(self) -> int:
        return len(self._partitions)

    def add(self, partition: TopicPartition) -> None:
        self._partitions[partition] = None
        self._capacity = max(self._capacity, _capacity(len(self._partitions)))

    def remove(self, partition: TopicPartition) -> None:
        del self._partitions[partition]

    def first(self) -> TopicPartition:
        return min(self._partitions, key=bucket_of(partition_hash, self._capacity))


def members_in_order(
    subscriptions: Mapping[str, Subscription], members: Collection[str]
) -> list[str]:
    """Static members by their instance id, then the others by their member id."""

    def place(member: str) -> tuple[bool, bytes]:
        instance_id = subscriptions[member].group_instance_id
        return instance_id is None, utf16(member if instance_id is None else instance_id)

    return sorted(members, key=place)
