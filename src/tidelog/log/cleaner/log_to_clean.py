"""How far a log may be cleaned, how much it needs to be, and what a round must know of it.

A log is cleaned from its first dirty offset (where the last round ended) up to the first segment
that holds any of: the last stable offset, the end of the log (the active segment), or, with
min.compaction.lag.ms, a record that is too young. How dirty it is: the share of dirty bytes among
all below that. With max.compaction.lag.ms a dirty segment that is old enough makes the log due
whatever its ratio.

Decisions only; nothing changes. `examine` and `plan_cleaning` run on the broker loop before the
cleaner's thread begins.
"""

from __future__ import annotations

import logging
import os
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import NamedTuple

from tidelog.config.definition import LONG_MAX
from tidelog.log.cleaner.cleaned_transactions import LastRecord
from tidelog.log.partition_log import PartitionLog
from tidelog.log.producer_state import ProducerStateTable
from tidelog.log.segment.log_segment import INDEX_SUFFIX, TIME_INDEX_SUFFIX, LogSegment
from tidelog.log.segment.offset_index import RELATIVE_OFFSET_MAX
from tidelog.log.segment.transaction_index import AbortedTxn
from tidelog.types import TopicPartition

logger = logging.getLogger(__name__)


class SegmentSize(NamedTuple):
    base_offset: int
    end_offset: int  # where the next segment begins
    log_bytes: int
    offset_index_bytes: int
    time_index_bytes: int


def group_lengths(
    segments: Sequence[SegmentSize], segment_bytes: int, index_bytes: int
) -> list[int]:
    """How many neighbouring segments are cleaned into one: the length of each group, in order.

    A group fits one segment as if nothing were removed: log, offset index and time index within
    their limits, and no offset further than 2^31 - 1 from the first. So segments that shrink come
    together, and the cleaned segment never has to be split.
    """
    lengths: list[int] = []
    base_offset = log_bytes = offset_index_bytes = time_index_bytes = 0
    for segment in segments:
        joins = (
            lengths
            and log_bytes + segment.log_bytes <= segment_bytes
            and offset_index_bytes + segment.offset_index_bytes <= index_bytes
            and time_index_bytes + segment.time_index_bytes <= index_bytes
            # An empty segment has no offsets that could be too far away.
            and (
                segment.log_bytes == 0
                or segment.end_offset - 1 - base_offset <= RELATIVE_OFFSET_MAX
            )
        )
        if joins:
            lengths[-1] += 1
            log_bytes += segment.log_bytes
            offset_index_bytes += segment.offset_index_bytes
            time_index_bytes += segment.time_index_bytes
        else:
            lengths.append(1)
            base_offset, log_bytes = segment.base_offset, segment.log_bytes
            offset_index_bytes = segment.offset_index_bytes
            time_index_bytes = segment.time_index_bytes
    return lengths


class SourceSegment:
    """A segment as the cleaner's thread reads it: by name, with a descriptor of its own.

    Segments that are cleaned are inactive, so their bytes do not change. Their files may be renamed
    or removed at any time; that is an OSError, which the round turns into an abort.
    """

    __slots__ = ("base_offset", "end_offset", "path", "segment", "size", "start_position")

    def __init__(self, segment: LogSegment, end_offset: int, start_position: int = 0) -> None:
        self.segment = segment  # for the swap, which belongs to the loop
        self.base_offset = segment.base_offset
        self.end_offset = end_offset  # where the next segment begins
        self.path = segment.file.path
        self.size = segment.size
        self.start_position = start_position  # before it nothing is dirty

    @contextmanager
    def open(self) -> Iterator[int]:
        descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def modified_ns(self) -> int:
        return os.stat(self.path).st_mtime_ns

    def measured(self) -> SegmentSize:
        return SegmentSize(
            self.base_offset,
            self.end_offset,
            self.size,
            self._size_of(INDEX_SUFFIX),
            self._size_of(TIME_INDEX_SUFFIX),
        )

    def _size_of(self, suffix: str) -> int:
        try:
            return os.stat(self.segment.path(suffix)).st_size
        except FileNotFoundError:
            return 0


class LogToClean(NamedTuple):
    """A log that could be cleaned in the range of offsets."""

    log: PartitionLog
    first_dirty_offset: int
    end_offset: int  # base offset of the first segment that is not cleaned
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool

    @property
    def dirty_ratio(self) -> float:
        total_bytes = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total_bytes if total_bytes else 0.0

    @property
    def is_due(self) -> bool:
        if self.is_overdue and self.dirty_bytes:
            return True
        return self.dirty_ratio > self.log.config.min_cleanable_dirty_ratio


def examine(log: PartitionLog, now_ms: int) -> LogToClean:
    """OSError when a timestamp that is needed cannot be read."""
    first_dirty_offset = _first_dirty_offset(log)
    active_offset = log.active_segment.base_offset
    dirty = _between(log.segments, first_dirty_offset, active_offset)
    limit = max(first_dirty_offset, _limit(log, dirty, now_ms))
    # Segments are cleaned as a whole or not at all.
    beyond = _between(log.segments, limit, active_offset)
    end_offset = beyond[0].base_offset if beyond else active_offset
    clean = [each for each in log.segments if each.base_offset < first_dirty_offset]
    cleanable = _between(log.segments, min(first_dirty_offset, end_offset), end_offset)
    return LogToClean(
        log,
        first_dirty_offset,
        end_offset,
        sum(segment.size for segment in clean),
        sum(segment.size for segment in cleanable),
        _is_overdue(log, dirty, now_ms),
    )


def _first_dirty_offset(log: PartitionLog) -> int:
    """Where the last round ended, or the log start if that cannot be."""
    offset = log.cleaner_offset
    if offset < 0:
        return log.log_start_offset
    if offset > log.log_end_offset or (offset < log.log_start_offset and not log.config.delete):
        logger.warning(
            "the last cleaning of %s ended at %d, outside of the log (%d to %d): "
            "its first dirty offset is the log start",
            log.topic_partition,
            offset,
            log.log_start_offset,
            log.log_end_offset,
        )
    if not log.log_start_offset <= offset <= log.log_end_offset:
        log.cleaner_offset = log.log_start_offset
        return log.log_start_offset
    return offset


def _limit(log: PartitionLog, dirty: Sequence[LogSegment], now_ms: int) -> int:
    limit = min(log.last_stable_offset, log.active_segment.base_offset)
    lag_ms = log.config.min_compaction_lag_ms
    if lag_ms > 0:
        young = (each for each in dirty if each.largest_timestamp() > now_ms - lag_ms)
        limit = min(limit, next((each.base_offset for each in young), limit))
    return limit


def _is_overdue(log: PartitionLog, dirty: Sequence[LogSegment], now_ms: int) -> bool:
    lag_ms = log.config.max_compaction_lag_ms
    if lag_ms >= LONG_MAX:
        return False
    first_timestamps = [segment.first_timestamp() for segment in dirty if segment.size]
    return any(0 < timestamp < now_ms - lag_ms for timestamp in first_timestamps)


def _between(segments: Sequence[LogSegment], start: int, end: int) -> Sequence[LogSegment]:
    """From the segment that may hold offset `start` on, those that begin below `end`."""
    if start >= end:
        return ()
    first = max(bisect_right(segments, start, key=_base_offset) - 1, 0)
    return segments[first : bisect_left(segments, end, key=_base_offset)]


def _base_offset(segment: LogSegment) -> int:
    return segment.base_offset


class CleaningPlan(NamedTuple):
    topic_partition: TopicPartition
    directory: str
    first_dirty_offset: int
    end_offset: int
    sources: Sequence[SourceSegment]  # all below end_offset
    aborted: Sequence[AbortedTxn]  # that begin below end_offset
    last_records: Mapping[int, LastRecord]  # by producer id
    now_ms: int
    segment_bytes: int
    index_bytes: int
    index_interval_bytes: int
    delete_retention_ms: int

    @property
    def dirty_sources(self) -> list[SourceSegment]:
        return [each for each in self.sources if each.end_offset > self.first_dirty_offset]


def plan_cleaning(dirty: LogToClean, now_ms: int) -> CleaningPlan:
    """OSError or StorageError when an index that is needed cannot be read."""
    log, config = dirty.log, dirty.log.config
    sources = []
    for segment, following in pairwise(log.segments):
        if segment.base_offset >= dirty.end_offset:
            break
        start_position = 0
        if segment.base_offset < dirty.first_dirty_offset < following.base_offset:
            start_position = segment.indexed_position_of(dirty.first_dirty_offset)
        sources.append(SourceSegment(segment, following.base_offset, start_position))
    return CleaningPlan(
        log.topic_partition,
        str(log.directory),
        dirty.first_dirty_offset,
        dirty.end_offset,
        sources,
        log.aborted_before(dirty.end_offset),
        last_records_of(log.producers),
        now_ms,
        config.segment_bytes,
        config.segment_index_bytes,
        config.index_interval_bytes,
        config.delete_retention_ms,
    )


def last_records_of(table: ProducerStateTable) -> dict[int, LastRecord]:
    return {
        producer_id: LastRecord(
            entry.batches[-1].last_offset if entry.batches else -1, entry.producer_epoch
        )
        for producer_id, entry in table.producers.items()
    }
