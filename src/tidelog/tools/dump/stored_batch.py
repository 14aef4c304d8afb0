"""The batches of a segment file, of any magic, as Kafka's own dump tool walks them.

A walk trusts nothing but sizes: batches with a wrong checksum are shown and passed over by their
length. It ends before a batch that is cut off; a length that no batch can have is an error. Unlike
the kernel's walks it goes batch by batch in Python: every batch becomes at least a line of output.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final, NamedTuple

from tidelog.record.batch import (
    APPEND_TIME_BIT,
    CODEC_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    TRANSACTIONAL_BIT,
    crc_holds,
    size_at,
)
from tidelog.record.columns import columns_of, part_of
from tidelog.record.errors import InvalidRecords
from tidelog.record.inflation import InflationBudget
from tidelog.record.legacy import Message, inner_set, read_messages
from tidelog.tools.dump.dump_errors import DumpError

CODEC_NAMES: Final = ("none", "gzip", "snappy", "lz4", "zstd")
HEADER_BYTES_UP_TO_MAGIC: Final = 17
SMALLEST_SIZE: Final = 14
CREATE_TIME: Final = "CreateTime"
APPEND_TIME: Final = "LogAppendTime"
NO_TIMESTAMP_TYPE: Final = "NoTimestampType"
_SEQUENCES = 1 << 31

Headers = list[tuple[str, bytes | None]]


class DumpedRecord(NamedTuple):
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    sequence: int
    legacy_crc: tuple[int, bool] | None = None  # of a message of magic 0 or 1: stored, and holds


class StoredBatch:
    """What a line of the dump says; `records` decodes what is inside."""

    __slots__ = (
        "attributes",
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "crc",
        "data",
        "last_offset",
        "leader_epoch",
        "magic",
        "max_timestamp",
        "position",
        "producer_epoch",
        "producer_id",
        "records_count",
        "size",
    )

    base_offset: int
    base_sequence: int
    base_timestamp: int
    crc: int
    last_offset: int

    def __init__(self, position: int, data: memoryview) -> None:
        self.position = position
        self.data = data
        self.size = len(data)
        self.magic: int = data[HEADER_BYTES_UP_TO_MAGIC - 1]
        if self.is_legacy:
            self._read_legacy(Message(data))
        else:
            self._read_header()

    def _read_header(self) -> None:
        if self.size < HEADER_SIZE:
            raise InvalidRecords(f"A batch of {self.size} bytes is smaller than its header.")
        (
            self.base_offset,
            _,
            self.leader_epoch,
            _,
            self.crc,
            self.attributes,
            last_offset_delta,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.records_count,
        ) = HEADER.unpack_from(self.data)
        self.last_offset = self.base_offset + last_offset_delta

    def _read_legacy(self, message: Message) -> None:
        self.base_offset = self.last_offset = message.offset
        self.crc = message.crc
        self.attributes = message.attributes
        self.base_timestamp = self.max_timestamp = message.timestamp
        self.leader_epoch = self.producer_id = self.producer_epoch = -1
        self.base_sequence = self.records_count = -1

    @property
    def is_legacy(self) -> bool:
        return self.magic < 2

    @property
    def is_valid(self) -> bool:
        return crc_holds(self.data)

    @property
    def last_sequence(self) -> int:
        if self.base_sequence == -1:
            return -1
        return (self.base_sequence + self.last_offset - self.base_offset) % _SEQUENCES

    @property
    def is_transactional(self) -> bool:
        return not self.is_legacy and self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def is_control(self) -> bool:
        return not self.is_legacy and self.attributes & CONTROL_BIT != 0

    @property
    def delete_horizon_ms(self) -> int | None:
        has_one = not self.is_legacy and self.attributes & DELETE_HORIZON_BIT
        return self.base_timestamp if has_one else None

    @property
    def timestamp_type(self) -> str:
        if self.magic == 0:
            return NO_TIMESTAMP_TYPE
        return APPEND_TIME if self.attributes & APPEND_TIME_BIT else CREATE_TIME

    @property
    def codec(self) -> str:
        number = self.attributes & CODEC_MASK
        return CODEC_NAMES[number] if number < len(CODEC_NAMES) else f"unknown({number})"

    def records(self) -> Iterator[DumpedRecord]:
        """KafkaError (corrupt or invalid records) where they cannot be read."""
        return self._messages() if self.is_legacy else self._records()

    def _records(self) -> Iterator[DumpedRecord]:
        part = part_of(self.data, self.attributes, self.base_offset, self.records_count)
        for offset, timestamp, key, value, headers in columns_of([part]):
            sequence = -1
            if self.base_sequence >= 0:
                sequence = (self.base_sequence + offset - self.base_offset) % _SEQUENCES
            yield DumpedRecord(offset, timestamp, key, value, headers, sequence)

    def _messages(self) -> Iterator[DumpedRecord]:
        outer = Message(self.data)
        if not outer.is_compressed:
            yield _record_of(outer, outer.offset, outer.timestamp)
            return
        inner = list(read_messages(inner_set(outer, InflationBudget())))
        if not inner:
            raise InvalidRecords("A compressed message holds no records.")
        first_offset = outer.offset - inner[-1].offset if outer.magic and outer.offset else 0
        has_append_time = outer.magic and outer.attributes & APPEND_TIME_BIT
        for message in inner:
            timestamp = outer.timestamp if has_append_time else message.timestamp
            yield _record_of(message, first_offset + message.offset, timestamp)


def _record_of(message: Message, offset: int, timestamp: int) -> DumpedRecord:
    key, value = message.key_and_value()
    holds = crc_holds(message.view)
    return DumpedRecord(offset, timestamp, key, value, [], -1, (message.crc, holds))


class BatchWalk:
    """The batches in the first bytes of a file; afterwards `position` is where they end."""

    __slots__ = ("_descriptor", "path", "position", "size")

    def __init__(self, path: str, max_bytes: int | None = None, position: int = 0) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.size = os.fstat(self._descriptor).st_size
        if max_bytes is not None:
            self.size = min(self.size, position + max_bytes)
        self.position = position

    def __enter__(self) -> BatchWalk:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def __iter__(self) -> Iterator[StoredBatch]:
        while (batch := self.next_or_none()) is not None:
            yield batch

    def next_or_none(self) -> StoredBatch | None:
        if self.position >= self.size - HEADER_BYTES_UP_TO_MAGIC:
            return None
        length = self._length()
        if self.position > self.size - LOG_OVERHEAD - length:
            return None
        data = os.pread(self._descriptor, LOG_OVERHEAD + length, self.position)
        try:
            batch = StoredBatch(self.position, memoryview(data))
        except InvalidRecords as problem:
            raise DumpError(f"{self.path}: position {self.position}: {problem.message}") from None
        self.position += batch.size
        return batch

    def _length(self) -> int:
        head = os.pread(self._descriptor, LOG_OVERHEAD, self.position)
        length = size_at(head) - LOG_OVERHEAD
        if length < SMALLEST_SIZE:
            raise DumpError(
                f"{self.path}: position {self.position}: a batch cannot be {length} bytes long; "
                "what follows is not shown (tidelog verify-log says what recovery would do)"
            )
        return length
