"""Which slices of which segment files a query reads. Reads indexes, headers at both ends, no data.

Segments are cut at places their index knows into pieces of 16 to 128 MiB, as few as the driver has
processors if those suffice, and small ones share a task up to that size. `minPartitions` makes the
pieces smaller, `maxRecordsPerPartition` bounds them by offsets, as when reading through a broker.

The ends of a query mean what they mean there. "latest" is the end of the files: what was written
and not yet replicated is seen too. With isolation.level=read_committed it is the first offset of a
transaction that is still open.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.client.columns.batch_selection import Selection, parts_of
from tidelog.config.client import READ_COMMITTED
from tidelog.record import kernel
from tidelog.record.batch import CONTROL_BIT, TRANSACTIONAL_BIT
from tidelog.spark.log_directory import (
    AbortedTransaction,
    LogEnd,
    OffsetPositions,
    PartitionLog,
    Segment,
    begin_position,
    find_end,
    find_logs,
    largest_timestamp,
    walk_batches,
)
from tidelog.spark.offset_ranges import (
    OffsetRange,
    ranges_within,
    require_all,
    split_evenly,
    split_ranges,
)
from tidelog.spark.offsets import (
    EARLIEST_OFFSET,
    LATEST_OFFSET,
    GlobalTimestamp,
    OffsetLimit,
    PartitionOffsets,
    PartitionTimestamps,
    SpecificOffsets,
    Word,
)
from tidelog.spark.options import InvalidOption, start_too_late
from tidelog.spark.subscription import KnownTopic
from tidelog.types import TopicPartition

if TYPE_CHECKING:
    from tidelog.spark.options import SourceOptions

SLICE_BYTES_MIN: Final = 16 * 1024 * 1024
SLICE_BYTES_MAX: Final = 128 * 1024 * 1024


class LogSlice(NamedTuple):
    """A range of offsets, and the bytes of a segment file that hold them."""

    partition: TopicPartition
    path: str
    start_offset: int
    end_offset: int
    position: int
    end_position: int
    aborted: tuple[AbortedTransaction, ...] | None  # None: read_uncommitted

    @property
    def size_bytes(self) -> int:
        return self.end_position - self.position


def plan_slices(options: SourceOptions) -> list[list[LogSlice]]:
    """The slices of each task."""
    assert options.path is not None
    logs = _chosen(find_logs(options.path), options)
    is_committed = options.driver_config().isolation_level == READ_COMMITTED
    file_ends = {partition: find_end(log) for partition, log in logs.items()}
    latest = {
        partition: _last_stable_offset(log, file_ends[partition])
        if is_committed
        else file_ends[partition].offset
        for partition, log in logs.items()
    }
    earliest = {
        partition: min(log.log_start_offset, latest[partition]) for partition, log in logs.items()
    }
    resolver = _Resolver(logs, file_ends, earliest, latest)
    start = resolver.resolve(options.batch_start(), "starting")
    unmatched = [partition for partition, offset in start.items() if offset is None]
    if unmatched and not options.latest_if_no_match:
        raise start_too_late(options.batch_start(), unmatched)
    end = resolver.resolve(options.batch_end(), "ending")
    ranges = ranges_within(
        _or_latest(start, latest), _or_latest(end, latest), earliest, latest, options.data_loss
    )
    slices = [
        row
        for wanted in ranges
        for row in _slices(
            logs[wanted.partition], file_ends[wanted.partition], wanted, is_committed
        )
    ]
    return _tasks(_cut(slices, logs, options), options)


def _chosen(
    logs: dict[TopicPartition, PartitionLog], options: SourceOptions
) -> dict[TopicPartition, PartitionLog]:
    if options.subscription is None:
        return logs
    topics: dict[str, list[int]] = {}
    for partition in logs:
        topics.setdefault(partition.topic, []).append(partition.partition)
    missing = (options.subscription.topic_names() or frozenset()) - topics.keys()
    if missing:
        raise InvalidOption("path", f"holds no topic {', '.join(sorted(missing))}")
    known = {name: KnownTopic(rows, name.startswith("__")) for name, rows in topics.items()}
    chosen = options.subscription.choose(known)
    return {partition: log for partition, log in logs.items() if partition in chosen}


class _Resolver:
    """Limits to offsets; None where no record is as late as the timestamp."""

    def __init__(
        self,
        logs: dict[TopicPartition, PartitionLog],
        file_ends: dict[TopicPartition, LogEnd],
        earliest: PartitionOffsets,
        latest: PartitionOffsets,
    ) -> None:
        self._logs = logs
        self._file_ends = file_ends
        self._words = {EARLIEST_OFFSET: earliest, LATEST_OFFSET: latest}

    def resolve(self, limit: OffsetLimit, end: str) -> dict[TopicPartition, int | None]:
        if limit is Word.EARLIEST:
            return dict(self._words[EARLIEST_OFFSET])
        if limit is Word.LATEST:
            return dict(self._words[LATEST_OFFSET])
        if isinstance(limit, SpecificOffsets):
            require_all(f"{end}Offsets", limit.offsets, set(self._logs))
            return {
                partition: self._words[offset][partition] if offset < 0 else offset
                for partition, offset in limit.offsets.items()
            }
        if isinstance(limit, PartitionTimestamps):
            require_all(f"{end}OffsetsByTimestamp", limit.timestamps_ms, set(self._logs))
            wanted = limit.timestamps_ms
        else:
            assert isinstance(limit, GlobalTimestamp), limit
            wanted = dict.fromkeys(self._logs, limit.timestamp_ms)
        return {
            partition: offset_for_timestamp(
                self._logs[partition], self._file_ends[partition], timestamp_ms
            )
            for partition, timestamp_ms in wanted.items()
        }


def _or_latest(
    offsets: dict[TopicPartition, int | None], latest: PartitionOffsets
) -> PartitionOffsets:
    return {
        partition: latest[partition] if offset is None else offset
        for partition, offset in offsets.items()
    }


def offset_for_timestamp(log: PartitionLog, file_end: LogEnd, timestamp_ms: int) -> int | None:
    """The first offset, from the log's start on, whose timestamp is at least that."""
    last = len(log.segments) - 1
    for number, segment in enumerate(log.segments):
        if number < last and (largest_timestamp(segment) or timestamp_ms) < timestamp_ms:
            continue
        end = file_end.position if number == last else segment.size_bytes
        for _, view, rows in walk_batches(segment.path, 0, end):
            for row in rows:
                if row.max_timestamp >= timestamp_ms and row.last_offset >= log.log_start_offset:
                    selection = Selection(view, [row], None, 0, row.leader_epoch)
                    for part in parts_of(log.partition, selection, check_crcs=False):
                        payload, count, base_offset, base_timestamp, append_time = part.records
                        if append_time is not None:
                            return max(base_offset, log.log_start_offset)
                        found = kernel.find_record(
                            payload,
                            count,
                            base_offset,
                            base_timestamp,
                            timestamp_ms,
                            log.log_start_offset,
                        )
                        if found is not None:
                            offset, _ = found
                            return offset
    return None


def _last_stable_offset(log: PartitionLog, file_end: LogEnd) -> int:
    """First offset of the first transaction without a marker, else the end of the log."""
    unfinished: dict[int, int] = {}
    for number, segment in enumerate(log.segments):
        is_last = number == len(log.segments) - 1
        end = file_end.position if is_last else segment.size_bytes
        for _, _, rows in walk_batches(segment.path, 0, end):
            for row in rows:
                if row.magic < 2 or not row.attributes & TRANSACTIONAL_BIT:
                    continue
                if row.attributes & CONTROL_BIT:
                    unfinished.pop(row.producer_id, None)
                else:
                    unfinished.setdefault(row.producer_id, row.base_offset)
    return min(unfinished.values(), default=file_end.offset)


def _slices(
    log: PartitionLog, file_end: LogEnd, wanted: OffsetRange, is_committed: bool
) -> Iterable[LogSlice]:
    """One a segment."""
    aborted = tuple(log.aborted_transactions()) if is_committed else None
    if wanted.size <= 0:
        return
    last = len(log.segments) - 1
    first_number = log.segment_of(wanted.start_offset)
    for number, segment in enumerate(log.segments[first_number:], first_number):
        if segment.base_offset >= wanted.end_offset:
            return
        is_last = number == last
        next_base = file_end.offset if is_last else log.segments[number + 1].base_offset
        start = max(wanted.start_offset, segment.base_offset)
        end = min(wanted.end_offset, next_base)
        if start >= end:
            continue
        positions = OffsetPositions(segment)
        size = file_end.position if is_last else segment.size_bytes
        yield LogSlice(
            log.partition,
            segment.path,
            start,
            end,
            begin_position(segment, positions, start),
            min(positions.after(end, size), size),
            aborted,
        )


def _cut(
    slices: list[LogSlice], logs: dict[TopicPartition, PartitionLog], options: SourceOptions
) -> list[LogSlice]:
    """Large slices into several, by offsets."""
    limit_bytes = _slice_bytes(slices, options)
    wholes = {OffsetRange(row.partition, row.start_offset, row.end_offset): row for row in slices}
    pieces = [
        piece
        for whole, row in wholes.items()
        for piece in split_evenly(whole, -(-row.size_bytes // limit_bytes))
    ]
    pieces = split_ranges(pieces, options.min_partitions, options.max_records_per_partition)
    by_start = sorted(wholes)
    cut = []
    number = 0
    for piece in pieces:
        while (
            by_start[number].partition != piece.partition
            or by_start[number].end_offset <= piece.start_offset
        ):
            number += 1
        log = logs[piece.partition]
        segment = log.segments[log.segment_of(piece.start_offset)]
        cut.append(_part_of(wholes[by_start[number]], piece, segment))
    return cut


def _part_of(whole: LogSlice, piece: OffsetRange, segment: Segment) -> LogSlice:
    if piece[1:] == (whole.start_offset, whole.end_offset):
        return whole
    positions = OffsetPositions(segment)
    return whole._replace(
        start_offset=piece.start_offset,
        end_offset=piece.end_offset,
        position=max(begin_position(segment, positions, piece.start_offset), whole.position),
        end_position=min(positions.after(piece.end_offset, whole.end_position), whole.end_position),
    )


def _tasks(slices: list[LogSlice], options: SourceOptions) -> list[list[LogSlice]]:
    """Small slices together, unless the options say how small a task is to be."""
    if options.max_records_per_partition is not None:
        return [[row] for row in slices]
    limit_bytes = _slice_bytes(slices, options)
    tasks: list[list[LogSlice]] = []
    size_bytes = limit_bytes
    for row in slices:
        if size_bytes + row.size_bytes > limit_bytes:
            tasks.append([])
            size_bytes = 0
        tasks[-1].append(row)
        size_bytes += row.size_bytes
    return tasks


def _slice_bytes(slices: list[LogSlice], options: SourceOptions) -> int:
    total_bytes = sum(row.size_bytes for row in slices)
    if options.min_partitions is not None:
        return max(min(total_bytes // options.min_partitions, SLICE_BYTES_MAX), 1)
    return min(max(-(-total_bytes // (os.cpu_count() or 1)), SLICE_BYTES_MIN), SLICE_BYTES_MAX)
