"""The topics as the group coordinator sees them; the broker's catalogue is one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from tidelog.coordinator.group.consumer.records import SubscribedTopic
from tidelog.types import Uuid


class Topic(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def topic_id(self) -> Uuid: ...

    @property
    def partitions(self) -> Sequence[object]: ...


class Topics(Protocol):
    @property
    def topics(self) -> Mapping[str, Topic]: ...

    @property
    def by_id(self) -> Mapping[Uuid, Topic]: ...


def subscription_of(topics: Topics, names: Iterable[str]) -> dict[str, SubscribedTopic]:
    """What a group's record says of its topics: those that exist."""
    found = {}
    for name in names:
        topic = topics.topics.get(name)
        if topic is not None:
            found[name] = SubscribedTopic(topic.topic_id, len(topic.partitions))
    return found
