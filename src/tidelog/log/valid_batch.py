"""One v2 batch as the leader's checks leave it: what is written, and what producer state needs."""

from __future__ import annotations

from typing import Final

from tidelog.record.batch import (
    CODEC_MASK,
    CONTROL_BIT,
    NO_SEQUENCE,
    TRANSACTIONAL_BIT,
    Codec,
    TimestampType,
    increment_sequence,
    stamp_offset,
    stamp_timestamps,
)


class ValidBatch:
    """One v2 batch, offsets and epoch in place, ready to be written. Lives for one append."""

    __slots__ = (
        "attributes",
        "base_offset",
        "base_sequence",
        "data",
        "last_offset",
        "log_append_time_ms",
        "max_timestamp",
        "offset_of_max_timestamp",
        "producer_epoch",
        "producer_id",
        "records_count",
        "size",
    )

    magic: Final = 2

    def __init__(
        self,
        data: memoryview | bytearray,
        size: int,
        attributes: int,
        base_offset: int,
        last_offset: int,
        records_count: int,
        max_timestamp: int,
        offset_of_max_timestamp: int,
        log_append_time_ms: int,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
    ) -> None:
        self.data = data
        self.size = size
        self.attributes = attributes
        self.base_offset = base_offset
        self.last_offset = last_offset
        self.records_count = records_count
        self.max_timestamp = max_timestamp
        self.offset_of_max_timestamp = offset_of_max_timestamp
        self.log_append_time_ms = log_append_time_ms  # -1 with CreateTime
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence

    def place(self, next_offset: int, leader_epoch: int, now_ms: int) -> None:
        """Number a batch that was checked before its place in the log was known."""
        data = memoryview(self.data)
        if self.log_append_time_ms not in (-1, now_ms):
            stamp_timestamps(data, TimestampType.LOG_APPEND_TIME, now_ms)
            self.log_append_time_ms = self.max_timestamp = now_ms
        stamp_offset(data, next_offset, leader_epoch)
        shift = next_offset - self.base_offset
        self.base_offset += shift
        self.last_offset += shift
        if self.offset_of_max_timestamp >= 0:
            self.offset_of_max_timestamp += shift

    @property
    def last_sequence(self) -> int:
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return increment_sequence(self.base_sequence, self.last_offset - self.base_offset)

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_BIT != 0

    @property
    def codec(self) -> Codec:
        return Codec(self.attributes & CODEC_MASK)
