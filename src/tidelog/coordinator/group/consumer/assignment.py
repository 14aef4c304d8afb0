"""Sets of partitions by topic id, as targets name them and as members hold them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Protocol, TypeVar

from tidelog.types import Uuid

Partitions = Mapping[Uuid, frozenset[int]]  # topic id -> partitions; no topic without partitions
Held = Mapping[Uuid, Mapping[int, int]]  # topic id -> partition -> epoch in which it was given

NOTHING: Final[Partitions] = {}
NOTHING_HELD: Final[Held] = {}


class TopicPartitionsRow(Protocol):
    """As requests and records list them."""

    topic_id: Uuid
    partitions: list[int]


Row = TypeVar("Row", bound=TopicPartitionsRow)


def partitions_of(rows: Iterable[TopicPartitionsRow]) -> dict[Uuid, frozenset[int]]:
    found: dict[Uuid, frozenset[int]] = {}
    for row in rows:
        if row.partitions:
            found[row.topic_id] = found.get(row.topic_id, frozenset()).union(row.partitions)
    return found


def held_in_epoch(partitions: Partitions, epoch: int) -> dict[Uuid, dict[int, int]]:
    return {
        topic_id: dict.fromkeys(sorted(numbers), epoch) for topic_id, numbers in partitions.items()
    }


def is_within(rows: Iterable[TopicPartitionsRow] | None, held: Held) -> bool:
    """Whether these partitions are among those held; False if they are not known."""
    if rows is None:
        return False
    return all(number in held.get(row.topic_id, ()) for row in rows for number in row.partitions)
