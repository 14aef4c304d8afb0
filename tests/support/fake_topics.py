"""Topics that a test makes, grows and deletes."""

from __future__ import annotations

from hashlib import md5

from tidelog.types import Uuid


class FakeTopic:
    def __init__(self, name: str, topic_id: Uuid, partition_count: int) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions = [object()] * partition_count


class FakeTopics:
    """What `coordinator.group.group.Topics` asks for."""

    def __init__(self, **partition_counts: int) -> None:
        self.topics: dict[str, FakeTopic] = {}
        self.by_id: dict[Uuid, FakeTopic] = {}
        self._made = 0
        for name, count in partition_counts.items():
            self.make(name, count)

    def make(self, name: str, partition_count: int) -> FakeTopic:
        self._made += 1
        digest = md5(f"{name}{self._made}".encode(), usedforsecurity=False).digest()
        return self._put(FakeTopic(name, Uuid(digest), partition_count))

    def grow(self, name: str, partition_count: int) -> FakeTopic:
        return self._put(FakeTopic(name, self.topics[name].topic_id, partition_count))

    def delete(self, name: str) -> None:
        del self.by_id[self.topics.pop(name).topic_id]

    def _put(self, topic: FakeTopic) -> FakeTopic:
        self.topics[topic.name] = self.by_id[topic.topic_id] = topic
        return topic
