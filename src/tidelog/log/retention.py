"""Which segments of a log are too old, too many or below the log start: pure decisions, and
`retain`, which carries them out.

Only a run of segments from the oldest on can go. A segment at or above the high watermark stays,
and so does an empty active one. Time goes by the largest timestamp of a segment's records (by the
file's modification time only if they have none). Size retention drops a segment only if the log is
still at least retention.bytes long without it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tidelog.errors import KafkaError
from tidelog.supervisor import attempt

if TYPE_CHECKING:
    from tidelog.log.directory.log_dir_failures import LogDirFailures
    from tidelog.log.partition_log import PartitionLog
    from tidelog.log.segment.log_segment import LogSegment

logger = logging.getLogger(__name__)


class SegmentFacts(NamedTuple):
    base_offset: int
    end_offset: int  # base offset of the next segment, or the log end
    size: int
    largest_timestamp: Callable[[], int]
    is_active: bool


def facts_of(segments: Sequence[LogSegment], log_end_offset: int) -> list[SegmentFacts]:
    """The last segment is the active one."""
    ends = (*(segment.base_offset for segment in segments[1:]), log_end_offset)
    return [
        SegmentFacts(
            segment.base_offset,
            end,
            segment.size,
            segment.largest_timestamp,
            segment is segments[-1],
        )
        for segment, end in zip(segments, ends, strict=True)
    ]


def below_log_start_count(segments: Sequence[SegmentFacts], log_start_offset: int) -> int:
    count = 0
    while (
        count < len(segments)
        and not segments[count].is_active
        and segments[count].end_offset <= log_start_offset
    ):
        count += 1
    return count


def above_size_count(
    segments: Sequence[SegmentFacts], high_watermark: int, retention_bytes: int
) -> int:
    """retention_bytes -1 means no limit."""
    excess = sum(segment.size for segment in segments) - retention_bytes
    if retention_bytes < 0 or excess < 0:
        return 0
    count = 0
    for segment in segments:
        if not _may_go(segment, high_watermark) or excess < segment.size:
            break
        excess -= segment.size
        count += 1
    return count


def too_old_count(
    segments: Sequence[SegmentFacts], high_watermark: int, retention_ms: int, now_ms: int
) -> int:
    """retention_ms -1 means for ever."""
    if retention_ms < 0:
        return 0
    count = 0
    for segment in segments:
        if (
            not _may_go(segment, high_watermark)
            or now_ms - segment.largest_timestamp() <= retention_ms
        ):
            break
        count += 1
    return count


def _may_go(segment: SegmentFacts, high_watermark: int) -> bool:
    if segment.is_active and segment.size == 0:
        return False
    return segment.end_offset <= high_watermark


def retain(log: PartitionLog, failures: LogDirFailures) -> int:
    """Delete the old segments of a log; an error is logged and does not stop other logs."""
    deleted = 0

    def delete() -> None:
        nonlocal deleted
        try:
            deleted = log.delete_old_segments()
        except KafkaError as error:
            logger.error("retention of %s failed: %s", log.topic_partition, error)
        except OSError as error:
            logger.error("retention of %s failed: %s", log.topic_partition, error)
            failures.report(str(log.directory), "delete segments", error)

    attempt(f"retention of {log.topic_partition}", delete)
    return deleted
