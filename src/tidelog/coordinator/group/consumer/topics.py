"""What consumer groups remember of topics."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tidelog.coordinator.group.group import Topics
from tidelog.types import Uuid


class SubscribedTopic(NamedTuple):
    topic_id: Uuid
    partition_count: int


class ResolvedPattern(NamedTuple):
    """The topics that a pattern stood for when it was last looked at."""

    topics: frozenset[str]
    version: int  # of the topics, counted by the broker
    timestamp_ms: int


def subscription_of(topics: Topics, names: Iterable[str]) -> dict[str, SubscribedTopic]:
    """What a group's record says of its topics: those that exist."""
    found = {}
    for name in names:
        topic = topics.topics.get(name)
        if topic is not None:
            found[name] = SubscribedTopic(topic.topic_id, len(topic.partitions))
    return found
