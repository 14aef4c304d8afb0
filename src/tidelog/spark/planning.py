"""Ranges of offsets into tasks: `minPartitions` and `maxRecordsPerPartition`. No I/O.

Without them a partition is one task. `maxRecordsPerPartition` comes first and splits every range
into equal pieces of at most that many offsets. When that leaves fewer tasks than `minPartitions`,
large ranges are split further in proportion to their size; the small ones, whose share rounds to
one task, are set aside first so that they do not take from the large. The number of tasks then is
about `minPartitions`, not exactly that. Empty ranges are no tasks.

Sizes are differences of offsets, so an estimate where compaction or transactions leave gaps.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import floor
from typing import NamedTuple

from tidelog.types import TopicPartition


class OffsetRange(NamedTuple):
    """start_offset <= offset < end_offset"""

    partition: TopicPartition
    start_offset: int
    end_offset: int

    @property
    def size(self) -> int:
        return self.end_offset - self.start_offset

    def __str__(self) -> str:
        return f"{self.partition} [{self.start_offset}, {self.end_offset})"


def split_ranges(
    ranges: Iterable[OffsetRange],
    min_partitions: int | None = None,
    max_records_per_partition: int | None = None,
) -> list[OffsetRange]:
    """Tasks in the order of their offsets."""
    pieces = sorted(row for row in ranges if row.size > 0)
    if max_records_per_partition is not None:
        pieces = [
            piece
            for row in pieces
            for piece in split_evenly(row, -(-row.size // max_records_per_partition))
        ]
    if min_partitions is not None and len(pieces) < min_partitions:
        pieces = _split_in_proportion(pieces, min_partitions)
    return pieces


def split_evenly(whole: OffsetRange, parts: int) -> list[OffsetRange]:
    """Pieces that differ by at most one offset; none of them empty."""
    pieces = []
    start = whole.start_offset
    for parts_left in range(min(parts, whole.size), 0, -1):
        end = start + (whole.end_offset - start) // parts_left
        pieces.append(OffsetRange(whole.partition, start, end))
        start = end
    return pieces


def _split_in_proportion(ranges: list[OffsetRange], min_partitions: int) -> list[OffsetRange]:
    total = sum(row.size for row in ranges)
    large = [row for row in ranges if _part_count(row.size, total, min_partitions) > 1]
    large_total = sum(row.size for row in large)
    parts_for_large = max(min_partitions - (len(ranges) - len(large)), 1)
    pieces = []
    for row in ranges:
        is_large = _part_count(row.size, total, min_partitions) > 1
        parts = _part_count(row.size, large_total, parts_for_large) if is_large else 1
        pieces += split_evenly(row, parts)
    return pieces


def _part_count(size: int, total: int, parts: int) -> int:
    return max(floor(size / total * parts + 0.5), 1)
