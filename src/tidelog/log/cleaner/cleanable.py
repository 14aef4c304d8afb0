"""How far a log may be cleaned, and how much it needs to be. Decisions only; nothing changes.

A log is cleaned from its first dirty offset (where the last round ended) up to the first segment
that holds any of: the last stable offset, the end of the log (the active segment), or, with
min.compaction.lag.ms, a record that is too young. How dirty it is: the share of dirty bytes among
all below that. With max.compaction.lag.ms a dirty segment that is old enough makes the log due
whatever its ratio.
"""

from __future__ import annotations

import logging
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from tidelog.config.definition import LONG_MAX
from tidelog.log.partition_log import PartitionLog
from tidelog.log.segment import LogSegment

logger = logging.getLogger(__name__)


class DirtyLog(NamedTuple):
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


def examine(log: PartitionLog, now_ms: int) -> DirtyLog:
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
    return DirtyLog(
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
