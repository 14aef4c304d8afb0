"""Offsets of partitions in the JSON of Spark's kafka source, and the ends a query may have.

    offsets      {"orders": {"0": 23, "1": -1}}    -1 is latest, -2 earliest
    partitions   {"orders": [0, 1]}

A stream's offset (what Spark keeps in its checkpoint) is such a mapping as well: the next offset to
read of every partition. Spark compares offsets by their text, so `offsets_to_json` is canonical:
topics and partitions in order.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final, NamedTuple

from tidelog.types import TopicPartition

LATEST_OFFSET: Final = -1
EARLIEST_OFFSET: Final = -2

OFFSETS_EXAMPLE: Final = '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'
TIMESTAMPS_EXAMPLE: Final = '{"topicA":{"0":1700000000000},"topicB":{"0":1700000000000}}'
PARTITIONS_EXAMPLE: Final = '{"topicA":[0,1],"topicB":[2,4]}'

PartitionOffsets = dict[TopicPartition, int]
OffsetsJson = dict[str, dict[str, int]]


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
    """What a text or a checkpoint holds; raises MalformedOffsets."""
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


def offsets_to_json(offsets: Mapping[TopicPartition, int]) -> OffsetsJson:
    found: OffsetsJson = {}
    for partition in sorted(offsets):
        found.setdefault(partition.topic, {})[str(partition.partition)] = offsets[partition]
    return found


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
