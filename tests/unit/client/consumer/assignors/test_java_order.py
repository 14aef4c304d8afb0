from __future__ import annotations

import pytest

from tidelog.client.consumer.assignors.assignor import Subscription
from tidelog.client.consumer.assignors.java_order import (
    PartitionSet,
    hash_order,
    members_in_order,
    partition_hash,
    string_hash,
    utf16,
)
from tidelog.types import TopicPartition


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", 0), ("member-37", 1342170743), ("mémbér-\N{GRINNING FACE}", -411422986)],
)
def test_strings_hash_as_in_java(text: str, expected: int) -> None:
    assert string_hash(text) == expected % (1 << 32)


def test_partitions_hash_as_in_java() -> None:
    assert partition_hash(TopicPartition("topic", 7)) == 110547401


def test_keys_are_in_the_order_of_a_hash_map() -> None:
    """What Java prints for the keys of a HashMap with these fourteen."""
    numbers = [296, 111, 222, 370, 481, 185, 37, 74, 407, 0, 333, 444, 148, 259]
    keys = [f"member-{number}" for number in sorted(numbers)]
    assert hash_order(keys) == [f"member-{number}" for number in numbers]


def test_the_first_of_a_set_is_that_of_a_hash_set() -> None:
    partitions = PartitionSet()
    for number in range(20):
        partitions.add(TopicPartition("t", number))
    assert partitions.first() == TopicPartition("t", 19)
    partitions.remove(TopicPartition("t", 19))
    assert len(partitions) == 19


def test_surrogates_sort_below_the_last_of_the_basic_plane() -> None:
    assert sorted(["\uffee", "\N{GRINNING FACE}"], key=utf16) == ["\N{GRINNING FACE}", "\uffee"]


def test_static_members_come_first_in_the_order_of_their_instances() -> None:
    subscriptions = {
        "a": Subscription(["t"]),
        "b": Subscription(["t"], group_instance_id="2"),
        "c": Subscription(["t"], group_instance_id="1"),
        "d": Subscription(["t"]),
    }
    assert members_in_order(subscriptions, subscriptions) == ["c", "b", "a", "d"]
