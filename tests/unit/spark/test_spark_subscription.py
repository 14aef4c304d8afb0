from __future__ import annotations

from tidelog.spark.subscription import Assign, KnownTopic, Subscribe, SubscribePattern
from tidelog.types import TopicPartition

TOPICS = {
    "orders": KnownTopic((0, 1)),
    "late-orders": KnownTopic((0,)),
    "payments": KnownTopic((0,)),
    "__orders_offsets": KnownTopic((0,), is_internal=True),
}


def test_subscribe_takes_all_partitions_of_its_topics() -> None:
    chosen = Subscribe(frozenset({"orders"})).choose(TOPICS)
    assert chosen == {TopicPartition("orders", 0), TopicPartition("orders", 1)}


def test_assign_leaves_out_partitions_that_are_not_there() -> None:
    wanted = frozenset({TopicPartition("orders", 1), TopicPartition("orders", 7)})
    assert Assign(wanted).choose(TOPICS) == {TopicPartition("orders", 1)}
    assert Assign(wanted).topic_names() == frozenset({"orders"})


def test_a_pattern_is_found_anywhere_in_the_name_but_not_in_internal_topics() -> None:
    topics = {row.topic for row in SubscribePattern("ord.rs").choose(TOPICS)}
    assert topics == {"orders", "late-orders"}


def test_an_anchored_pattern_is_matched_in_full() -> None:
    assert {row.topic for row in SubscribePattern("^orders$").choose(TOPICS)} == {"orders"}
    assert SubscribePattern("x").topic_names() is None
