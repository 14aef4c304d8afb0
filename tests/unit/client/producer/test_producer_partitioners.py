"""Which partition a record goes to."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tidelog.client.producer.partitioners import (
    PartitionLoads,
    RoundRobinPartitioner,
    StickyPartitioner,
    TopicPartitions,
    partition_for_key,
)

ALL_LED = TopicPartitions(4, (0, 1, 2, 3))


# Hashes that Kafka's own test of Utils.murmur2 expects.
@pytest.mark.parametrize(
    ("key", "murmur2"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_a_key_goes_where_kafka_sends_it(key: bytes, murmur2: int) -> None:
    positive = murmur2 & 0x7FFFFFFF
    assert [partition_for_key(key, total) for total in (1, 7, 1000)] == [
        positive % total for total in (1, 7, 1000)
    ]


def test_keys_of_every_length_have_a_partition() -> None:
    assert all(0 <= partition_for_key(b"k" * size, 5) < 5 for size in (0, 1, 255, 256, 257, 5000))


def test_round_robin_takes_the_partitions_with_a_leader_in_turn() -> None:
    partitioner = RoundRobinPartitioner()
    some_led = TopicPartitions(4, (1, 3))
    assert [partitioner("t", b"k", None, some_led) for _ in range(4)] == [1, 3, 1, 3]
    assert [partitioner("u", None, None, TopicPartitions(3, ())) for _ in range(4)] == [0, 1, 2, 0]


def test_a_sticky_partition_lasts_for_a_batch() -> None:
    sticky = StickyPartitioner(100, random.Random(1))
    sticky.pick(ALL_LED, None)
    sticky.produced_bytes = 99
    assert not sticky.must_switch(may_switch=True)
    sticky.produced_bytes = 100
    assert sticky.must_switch(may_switch=True)


def test_a_batch_that_is_not_full_holds_the_sticky_partition_up_to_twice_the_size() -> None:
    sticky = StickyPartitioner(100, random.Random(1))
    sticky.produced_bytes = 199
    assert not sticky.must_switch(may_switch=False)
    sticky.produced_bytes = 200
    assert sticky.must_switch(may_switch=False)


def test_without_loads_partitions_with_a_leader_are_picked_evenly() -> None:
    sticky = StickyPartitioner(1, random.Random(1))
    picked = Counter(sticky.pick(TopicPartitions(4, (0, 2, 3)), None) for _ in range(3000))
    assert set(picked) == {0, 2, 3}
    assert all(900 < count < 1100 for count in picked.values())


def test_a_topic_without_leaders_still_gets_its_records() -> None:
    sticky = StickyPartitioner(1, random.Random(1))
    assert {sticky.pick(TopicPartitions(3, ()), None) for _ in range(100)} == {0, 1, 2}


def test_a_short_queue_is_picked_more_often_by_what_it_is_shorter() -> None:
    """Sizes 0, 3 and 1 become the weights 4, 1 and 3, as KIP-794 has it."""
    sticky = StickyPartitioner(1, random.Random(1))
    loads = PartitionLoads([0, 1, 2], [0, 3, 1], left_out=False)
    picked = Counter(sticky.pick(ALL_LED, loads) for _ in range(8000))
    assert {partition: round(count / 1000) for partition, count in picked.items()} == {
        0: 4,
        1: 1,
        2: 3,
    }


def test_even_queues_are_picked_as_without_loads() -> None:
    sticky = StickyPartitioner(1, random.Random(1))
    loads = PartitionLoads([0, 1], [5, 5], left_out=False)
    assert {sticky.pick(ALL_LED, loads) for _ in range(100)} == {0, 1, 2, 3}


def test_a_partition_that_is_left_out_is_not_picked() -> None:
    sticky = StickyPartitioner(1, random.Random(1))
    loads = PartitionLoads([1, 2], [0, 0], left_out=True)
    assert {sticky.pick(ALL_LED, loads) for _ in range(100)} == {1, 2}
