"""Batches as a follower has fetched them from its leader: checked before they are appended.

Their offsets are the leader's and stay. The last batch may be cut off; those before it count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.log.log_errors import UnexpectedAppendOffset
from tidelog.log.segment import LogSegment
from tidelog.log.segment_scan import WHY_STOPPED
from tidelog.record import kernel
from tidelog.record.batch import base_offset_at
from tidelog.record.errors import CorruptRecords
from tidelog.types import TopicPartition

if TYPE_CHECKING:
    from tidelog.record.kernel import LogScan


class FetchedBatches:
    __slots__ = ("data", "first_offset", "topic_partition")

    def __init__(self, topic_partition: TopicPartition, data: memoryview) -> None:
        self.topic_partition = topic_partition
        self.data = data
        self.first_offset = base_offset_at(data) if len(data) >= 8 else -1

    def begin_around(self, log_end_offset: int) -> bool:
        """Whether the log would go on inside of a batch."""
        return 0 <= self.first_offset < log_end_offset <= self._last_offset()

    def must_continue(self, log_end_offset: int) -> None:
        if 0 <= self.first_offset < log_end_offset:
            raise UnexpectedAppendOffset(
                f"{self.topic_partition} was given offset {self.first_offset} "
                f"but goes on at {log_end_offset}",
                self.first_offset,
                -1,
            )

    def reach_beyond(self, segment: LogSegment, scan: LogScan) -> bool:
        """Whether the scan has failed because the segment's indexes cannot say their offsets."""
        return scan.why == kernel.BAD_OFFSET and not segment.has_room_for(self._last_offset())

    def _last_offset(self) -> int:
        """Of the last whole batch, by its header."""
        _, _, rows = kernel.list_batches(self.data, 0, len(self.data), 1 << 31)
        return rows[-1].last_offset if rows else -1

    def must_be_good(self, scan: LogScan) -> None:
        if scan.position == 0 or scan.why not in (kernel.AT_END, kernel.INCOMPLETE):
            raise CorruptRecords(
                f"{self.topic_partition} was given {WHY_STOPPED.get(scan.why, 'no batch')}"
            )
