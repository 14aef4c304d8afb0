"""Ranges of offsets: which of the wanted ones the logs hold, and how they become tasks. No I/O.

What a batch query wants, against what a log holds:

    start past the log's end          an error, whatever failOnDataLoss says
    start before the log's start      data loss; with failOnDataLoss=false from the log's start
    end past the log's end            data loss; with failOnDataLoss=false up to the log's end
    start after end                   an error

`minPartitions` and `maxRecordsPerPartition` make several tasks of a range; without them a partition
is one task. `maxRecordsPerPartition` comes first and splits every range into equal pieces of at
most that many offsets. When that leaves fewer tasks than `minPartitions`, large ranges are split
further in proportion to their size; the small ones, whose share rounds to one task, are set aside
first so that they do not take from the large. The number of tasks then is about `minPartitions`,
not exactly that. Empty ranges are no tasks.

Sizes are differences of offsets, so an estimate where compaction or transactions leave gaps.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import floor
from typing import TYPE_CHECKING, NamedTuple

from tidelog.spark.offsets import PartitionOffsets, partitions_text
from tidelog.spark.options import InvalidOption
from tidelog.types import TopicPartition

if TYPE_CHECKING:
    from tidelog.spark.options import DataLossPolicy


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


def ranges_within(
    start: PartitionOffsets,
    end: PartitionOffsets,
    earliest: PartitionOffsets,
    latest: PartitionOffsets,
    data_loss: DataLossPolicy,
) -> list[OffsetRange]:
    """What of the wanted offsets the logs hold."""
    ranges = []
    for partition, start_offset in start.items():
        end_offset, log_end = end[partition], latest[partition]
        if start_offset > log_end:
            raise InvalidOption(
                "startingOffsets",
                f"{start_offset} of {partition} lies beyond the end of its log, {log_end}",
            )
        if start_offset > end_offset:
            raise InvalidOption(
                "startingOffsets",
                f"{partition} would start at {start_offset}, after its end at {end_offset}",
            )
        if start_offset < earliest[partition]:
            data_loss.report(
                f"{partition} cannot be read from {start_offset}: its log begins at "
                f"{earliest[partition]}"
            )
            start_offset = earliest[partition]
        if end_offset > log_end:
            data_loss.report(
                f"{partition} cannot be read up to {end_offset}: its log ends at {log_end}"
            )
            end_offset = log_end
        ranges.append(OffsetRange(partition, start_offset, end_offset))
    return ranges


def require_all(option: str, given: PartitionOffsets, partitions: set[TopicPartition]) -> None:
    if given.keys() == partitions:
        return
    left_out, unknown = partitions - given.keys(), given.keys() - partitions
    problems = [
        f"leaves out {partitions_text(left_out)}" if left_out else "",
        f"names {partitions_text(unknown)}, not read by this query" if unknown else "",
    ]
    raise InvalidOption(
        option,
        f"must name every partition (-1 for latest, -2 for earliest), but "
        f"{' and '.join(filter(None, problems))}",
    )


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
