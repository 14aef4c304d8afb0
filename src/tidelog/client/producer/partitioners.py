"""Which partition a record goes to, one record at a time.

    partition given with the record      that one
    a partitioner of the application     what it says
    a key, keys not ignored              murmur2 of the key, as every Kafka client computes it
    no key                               the built-in partitioner (KIP-794)

The built-in partitioner stays with one partition for about `batch.size` bytes and then picks
another at random. With adaptive partitioning a partition is picked the more often the fewer batches
wait for it, and one whose broker has taken nothing for `partitioner.availability.timeout.ms` is not
picked at all.
"""

from __future__ import annotations

import random
from array import array
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from struct import Struct
from typing import Final, NamedTuple, TypeAlias

from tidelog.record import kernel

_INT32 = Struct("=i").unpack
_SHORT_KEY_BYTES: Final = 256
_ENDS: Final = [array("i", [0, size]).tobytes() for size in range(_SHORT_KEY_BYTES)]


class TopicPartitions(NamedTuple):
    """What a partitioner may choose from. `available` are those that have a leader now."""

    total: int
    available: Sequence[int]


# topic, key and value as they are sent, partitions -> partition
Partitioner: TypeAlias = Callable[[str, bytes | None, bytes | None, TopicPartitions], int]


def partition_for_key(key: bytes, partitions_count: int) -> int:
    """murmur2 without its sign bit, modulo the number of partitions."""
    size = len(key)
    ends = _ENDS[size] if size < _SHORT_KEY_BYTES else array("i", [0, size]).tobytes()
    partition: int = _INT32(kernel.key_partitions(ends, None, key, 0, 1, partitions_count))[0]
    return partition


class RoundRobinPartitioner:
    """Kafka's RoundRobinPartitioner: the next partition with every record, keys ignored."""

    __slots__ = ("_next",)

    def __init__(self) -> None:
        self._next: dict[str, int] = {}

    def __call__(
        self, topic: str, key: bytes | None, value: bytes | None, partitions: TopicPartitions
    ) -> int:
        turn = self._next.get(topic, 0)
        self._next[topic] = turn + 1
        if partitions.available:
            return partitions.available[turn % len(partitions.available)]
        return turn % partitions.total


class PartitionLoads(NamedTuple):
    """Batches that wait for each partition that may be picked; `left_out` says whether some may
    not."""

    partitions: Sequence[int]
    queue_sizes: Sequence[int]
    left_out: bool


class StickyPartitioner:
    """The built-in partitioner of one topic. Touched under the producer's lock."""

    __slots__ = ("_batch_bytes", "_random", "partition", "produced_bytes")

    def __init__(self, batch_bytes: int, chance: random.Random | None = None) -> None:
        self._batch_bytes = max(1, batch_bytes)
        self._random = chance or random.Random()
        self.partition = -1  # where records without a key go now; -1: to be picked
        self.produced_bytes = 0

    def must_switch(self, may_switch: bool) -> bool:
        """Whether enough went to this partition.

        A batch that is not full yet is better filled than left behind, so before twice the size
        the caller may say that the switch has to wait.
        """
        if may_switch:
            return self.produced_bytes >= self._batch_bytes
        return self.produced_bytes >= 2 * self._batch_bytes

    def pick(self, partitions: TopicPartitions, loads: PartitionLoads | None) -> int:
        """Moves on to a random partition; `loads` is None without adaptive partitioning."""
        self.produced_bytes = 0
        if loads is not None and _are_uneven(loads):
            self.partition = self._weighted(loads)
        elif partitions.available:
            self.partition = self._random.choice(partitions.available)
        else:
            self.partition = self._random.randrange(partitions.total)
        return self.partition

    def _weighted(self, loads: PartitionLoads) -> int:
        """The longest queue gets weight 1, one that is n batches shorter 1 + n."""
        heaviest = max(loads.queue_sizes) + 1
        sums = list(accumulate(heaviest - size for size in loads.queue_sizes))
        return loads.partitions[bisect_right(sums, self._random.randrange(sums[-1]))]


def _are_uneven(loads: PartitionLoads) -> bool:
    if not loads.partitions:
        return False
    return loads.left_out or len(set(loads.queue_sizes)) > 1
