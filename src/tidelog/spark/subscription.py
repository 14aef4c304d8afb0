"""Which partitions a source reads: `assign`, `subscribe` or `subscribePattern`. No I/O.

`topic_names` says which topics must be there (None: whatever there is), `choose` picks from what is
there.

    assign             the named partitions; those that a known topic does not have are left out
    subscribe          all partitions of the named topics
    subscribePattern   all partitions of the topics in whose name the pattern is found, anywhere in
                       it, as Spark's own connector does; never of internal topics
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tidelog.types import TopicPartition


class KnownTopic(NamedTuple):
    partitions: Iterable[int]
    is_internal: bool = False


class Assign(NamedTuple):
    partitions: frozenset[TopicPartition]

    def topic_names(self) -> frozenset[str] | None:
        return frozenset(partition.topic for partition in self.partitions)

    def choose(self, topics: Mapping[str, KnownTopic]) -> set[TopicPartition]:
        return all_partitions(topics) & self.partitions


class Subscribe(NamedTuple):
    topics: frozenset[str]

    def topic_names(self) -> frozenset[str] | None:
        return self.topics

    def choose(self, topics: Mapping[str, KnownTopic]) -> set[TopicPartition]:
        return all_partitions({name: topics[name] for name in self.topics & topics.keys()})


class SubscribePattern(NamedTuple):
    pattern: str

    def topic_names(self) -> frozenset[str] | None:
        return None

    def choose(self, topics: Mapping[str, KnownTopic]) -> set[TopicPartition]:
        found = re.compile(self.pattern).search
        return all_partitions(
            {name: topic for name, topic in topics.items() if not topic.is_internal and found(name)}
        )


Subscription = Assign | Subscribe | SubscribePattern


def all_partitions(topics: Mapping[str, KnownTopic]) -> set[TopicPartition]:
    return {
        TopicPartition(name, partition)
        for name, topic in topics.items()
        for partition in topic.partitions
    }
