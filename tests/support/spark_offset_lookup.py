"""A cluster in memory that answers the driver's questions of a streaming query."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from tidelog.client.errors import UnknownTopic
from tidelog.spark.offsets import OffsetLimit, PartitionOffsets, TopicIds, Word
from tidelog.types import TopicPartition


class FakeOffsetLookup:
    """`logs` holds (earliest, latest) of every partition there is, `ids` the topics' ids; tests
    change them as they go.
    """

    def __init__(self, logs: dict[TopicPartition, tuple[int, int]], topics: Collection[str]):
        self.logs = logs
        self.topics = topics
        self.ids: TopicIds = {}

    def close(self) -> None:
        pass

    def assigned(self, may_be_gone: Collection[str] = ()) -> set[TopicPartition]:
        there = {partition.topic for partition in self.logs}
        for topic in self.topics:
            if topic not in there and topic not in may_be_gone:
                raise UnknownTopic(f"topic {topic}", 3)
        return {partition for partition in self.logs if partition.topic in self.topics}

    def topic_ids(self) -> TopicIds:
        return self.ids

    def earliest(self, partitions: Iterable[TopicPartition]) -> PartitionOffsets:
        return {partition: self.logs[partition][0] for partition in partitions}

    def latest(self, partitions: Iterable[TopicPartition]) -> PartitionOffsets:
        return {partition: self.logs[partition][1] for partition in partitions}

    def still_there(self, partitions: Iterable[TopicPartition]) -> set[TopicPartition]:
        return set(partitions) & self.logs.keys()

    def latest_not_before(
        self, known: PartitionOffsets, partitions: set[TopicPartition]
    ) -> PartitionOffsets:
        return self.latest(partitions)

    def resolve_start(
        self, limit: OffsetLimit, partitions: set[TopicPartition]
    ) -> PartitionOffsets:
        assert limit in (Word.EARLIEST, Word.LATEST)
        return self.earliest(partitions) if limit is Word.EARLIEST else self.latest(partitions)
