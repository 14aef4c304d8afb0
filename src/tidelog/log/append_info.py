"""What a log tells of an append."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.log.producer_state import BatchMetadata


class AppendInfo:
    """What became of an append. Of a duplicate: the offsets and timestamp of the first time."""

    __slots__ = (
        "base_offset",
        "duplicate",
        "last_offset",
        "leader_epoch",
        "log_append_time_ms",
        "log_start_offset",
        "records_count",
        "size_bytes",
    )

    def __init__(
        self,
        base_offset: int,
        last_offset: int,
        log_append_time_ms: int,
        log_start_offset: int,
        size_bytes: int,
        duplicate: bool,
        leader_epoch: int,
        records_count: int,
    ) -> None:
        self.base_offset = base_offset
        self.last_offset = last_offset
        self.log_append_time_ms = log_append_time_ms  # -1 with CreateTime
        self.log_start_offset = log_start_offset
        self.size_bytes = size_bytes  # what the log grew by: 0 for a duplicate
        self.duplicate = duplicate
        self.leader_epoch = leader_epoch
        self.records_count = records_count

    @classmethod
    def of_duplicate(
        cls, first: BatchMetadata, log_start_offset: int, leader_epoch: int
    ) -> AppendInfo:
        """For a batch that is in the log already, as `first`."""
        return cls(
            first.base_offset,
            first.last_offset,
            first.timestamp,
            log_start_offset,
            0,
            True,
            leader_epoch,
            first.last_offset - first.base_offset + 1,
        )
