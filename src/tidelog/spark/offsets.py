"""Offsets of partitions in the JSON of Spark's kafka source, and the ends a query may have.

    offsets      {"orders": {"0": 23, "1": -1}}    -1 is latest, -2 earliest
    partitions   {"orders": [0, 1]}

A stream's offset (what Spark keeps in its checkpoint) is such a mapping as well: the next offset to
read of every partition, and the id of every topic, so that one that was deleted and made anew is
told from the one that was read. Checkpoints of older releases, and brokers before Kafka 2.8, have
no ids.

    {"orders": {"0": 23, "1": 7, "id": "7uIfjXpdQ6eSVFYqlTB3mA"}}

Spark compares offsets by their text, so `StreamOffset.to_json` is canonical: topics and partitions
in order.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from typing import Final, NamedTuple

from tidelog.types import TopicPartition, Uuid

LATEST_OFFSET: Final = -1
EARLIEST_OFFSET: Final = -2

OFFSETS_EXAMPLE: Final = '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'
TIMESTAMPS_EXAMPLE: Final = '{"topicA":{"0":1700000000000},"topicB":{"0":1700000000000}}'
PARTITIONS_EXAMPLE: Final = '{"topicA":[0,1],"topicB":[2,4]}'

TOPIC_ID: Final = "id"  # no partition's number

PartitionOffsets = dict[TopicPartition, int]
TopicIds = dict[str, Uuid]
StreamOffsetJson = dict[str, dict[str, int | str]]


class MalformedOffsets(ValueError):
    """A text or value that is no mapping of this kind."""


class Word(Enum):
    EARLIEST = "earliest"
    LATEST = "latest"


class SpecificOffsets(NamedTuple):
    """An offset for every partition; may be LATEST_OFFSET or EARLIEST_OFFSET."""

    offsets: PartitionOffsets


class PartitionTimestamps(NamedTuple):
    """A timestamp for every partition, in milliseconds."""

    timestamps_ms: PartitionOffsets


class GlobalTimestamp(NamedTuple):
    timestamp_ms: int


OffsetLimit = Word | SpecificOffsets | PartitionTimestamps | GlobalTimestamp


def offsets_from_text(text: str, example: str = OFFSETS_EXAMPLE) -> PartitionOffsets:
    try:
        return offsets_from_json(json.loads(text))
    except ValueError:
        raise MalformedOffsets(f"expected e.g. {example}, got {text}") from None


def offsets_from_json(value: object) -> PartitionOffsets:
    """Raises MalformedOffsets."""
    if not isinstance(value, dict):
        raise MalformedOffsets(f"expected e.g. {OFFSETS_EXAMPLE}, got {value}")
    offsets: PartitionOffsets = {}
    for topic, partitions in value.items():
        if not isinstance(partitions, dict):
            raise MalformedOffsets(f"expected e.g. {OFFSETS_EXAMPLE}, got {value}")
        for partition, offset in partitions.items():
            if not str(partition).isdecimal() or type(offset) is not int:
                raise MalformedOffsets(f"expected e.g. {OFFSETS_EXAMPLE}, got {value}")
            offsets[TopicPartition(topic, int(partition))] = offset
    return offsets


class StreamOffset(NamedTuple):
    offsets: PartitionOffsets
    topic_ids: TopicIds  # of topics in `offsets`, as far as they are known

    @classmethod
    def of(cls, offsets: PartitionOffsets, topic_ids: Mapping[str, Uuid]) -> StreamOffset:
        topics = {partition.topic for partition in offsets}
        return cls(offsets, {name: topic_ids[name] for name in topics & topic_ids.keys()})

    @classmethod
    def from_json(cls, value: object) -> StreamOffset:
        """What a checkpoint holds; raises MalformedOffsets."""
        if not isinstance(value, dict):
            raise MalformedOffsets(f"expected e.g. {OFFSETS_EXAMPLE}, got {value}")
        topic_ids: TopicIds = {}
        plain: dict[str, object] = {}
        for topic, rows in value.items():
            plain[topic] = rows
            if isinstance(rows, dict) and TOPIC_ID in rows:
                plain[topic] = {name: row for name, row in rows.items() if name != TOPIC_ID}
                topic_ids[topic] = _topic_id(rows[TOPIC_ID])
        return cls(offsets_from_json(plain), topic_ids)

    def to_json(self) -> StreamOffsetJson:
        found: StreamOffsetJson = {}
        for partition in sorted(self.offsets):
            rows = found.setdefault(partition.topic, {})
            rows[str(partition.partition)] = self.offsets[partition]
        for topic, rows in found.items():
            if topic in self.topic_ids:
                rows[TOPIC_ID] = str(self.topic_ids[topic])
        return found

    def made_anew(self, topic_ids: Mapping[str, Uuid]) -> set[str]:
        """Topics that have other ids now."""
        return {
            name
            for name, topic_id in self.topic_ids.items()
            if topic_ids.get(name, topic_id) != topic_id
        }

    def offsets_outside(self, topics: Collection[str]) -> PartitionOffsets:
        return {row: offset for row, offset in self.offsets.items() if row.topic not in topics}


def _topic_id(value: object) -> Uuid:
    try:
        return Uuid.parse(str(value))
    except ValueError:
        raise MalformedOffsets(f"{value} is no topic id") from None


def partitions_from_text(text: str) -> frozenset[TopicPartition]:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict) or not all(_are_numbers(row) for row in value.values()):
        raise MalformedOffsets(f"expected e.g. {PARTITIONS_EXAMPLE}, got {text}")
    return frozenset(
        TopicPartition(topic, partition) for topic, row in value.items() for partition in row
    )


def _are_numbers(row: object) -> bool:
    return isinstance(row, list) and all(type(item) is int and item >= 0 for item in row)


def partitions_text(partitions: Iterable[TopicPartition]) -> str:
    """For messages: the first ten, in order."""
    names = [str(partition) for partition in sorted(partitions)]
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return ", ".join(names[:10]) + more
