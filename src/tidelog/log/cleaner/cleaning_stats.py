"""What a round has done, for the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.types import TopicPartition

if TYPE_CHECKING:
    from tidelog.log.cleaner.filter_pass import FilterPass

MEGABYTE = 1_000_000


class CleaningStats:
    __slots__ = (
        "bytes_read",
        "bytes_written",
        "filter_s",
        "first_dirty_offset",
        "map_bytes_read",
        "map_s",
        "map_utilization",
        "records_kept",
        "records_read",
        "records_without_key",
        "topic_partition",
    )

    def __init__(self, topic_partition: TopicPartition, first_dirty_offset: int) -> None:
        self.topic_partition = topic_partition
        self.first_dirty_offset = first_dirty_offset
        self.map_s = self.filter_s = self.map_utilization = 0.0
        self.map_bytes_read = self.bytes_read = self.bytes_written = 0
        self.records_read = self.records_kept = self.records_without_key = 0

    def mapped(self, seconds: float, bytes_read: int, utilization: float) -> None:
        self.map_s = seconds
        self.map_bytes_read = bytes_read
        self.map_utilization = utilization

    def filtered(self, seconds: float, done: FilterPass) -> None:
        """One group more; the pass counts all groups together."""
        self.filter_s += seconds
        self.bytes_read, self.bytes_written = done.bytes_read, done.bytes_written
        self.records_read, self.records_kept = done.records_read, done.records_kept
        self.records_without_key = done.records_without_key

    def summary(self, end_offset: int) -> str:
        return (
            f"cleaned {self.topic_partition} from {self.first_dirty_offset} to {end_offset}: "
            f"mapped {self.map_bytes_read / MEGABYTE:.1f} MB in {self.map_s:.2f} s "
            f"(map {self.map_utilization:.0%} full), copied {self.bytes_read / MEGABYTE:.1f} MB "
            f"in {self.filter_s:.2f} s, {self.records_read} records to {self.records_kept}, "
            f"{self.bytes_read / MEGABYTE:.1f} MB to {self.bytes_written / MEGABYTE:.1f} MB"
        )
