"""The header of a v2 record batch, and the few fields of it that a leader may rewrite.

at  size  field
 0     8  base_offset             stamped by the leader
 8     4  batch_length            bytes after this field
12     4  partition_leader_epoch  stamped by the leader; outside the crc for that reason
16     1  magic                   2
17     4  crc                     CRC-32C of everything from attributes to the end
21     2  attributes              0-2 codec, 3 timestamp type, 4 transactional, 5 control,
                                  6 delete horizon (then base_timestamp holds it)
23     4  last_offset_delta
27     8  base_timestamp
35     8  max_timestamp           with LogAppendTime: the timestamp of every record
43     8  producer_id
51     2  producer_epoch
53     4  base_sequence
57     4  records_count           0 is legal in a compacted log
61     -  records, compressed as a whole if the codec says so
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import Final

from tidelog.record import kernel
from tidelog.record.kernel import Buffer

HEADER: Final = Struct(
    ">"
    "q"  # 0 base_offset
    "i"  # 8 batch_length
    "i"  # 12 partition_leader_epoch
    "b"  # 16 magic
    "I"  # 17 crc
    "h"  # 21 attributes
    "i"  # 23 last_offset_delta
    "q"  # 27 base_timestamp
    "q"  # 35 max_timestamp
    "q"  # 43 producer_id
    "h"  # 51 producer_epoch
    "i"  # 53 base_sequence
    "i"  # 57 records_count
)
HEADER_SIZE: Final = 61
assert HEADER.size == HEADER_SIZE

LOG_OVERHEAD: Final = 12  # base_offset and batch_length, which every magic has
MAGIC_POSITION: Final = 16
MAGIC: Final = 2
CRC_POSITION: Final = 17
ATTRIBUTES_POSITION: Final = 21

CODEC_MASK: Final = 0x07
APPEND_TIME_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
DELETE_HORIZON_BIT: Final = 0x40

NO_TIMESTAMP: Final = -1
NO_SEQUENCE: Final = -1
SEQUENCES: Final = 1 << 31  # then they begin anew

_CRC = Struct(">I")
_ATTRIBUTES = Struct(">h")
_TIMESTAMP = Struct(">q")
_BASE_OFFSET = Struct(">q")
_LEADER_EPOCH = Struct(">i")
_MAX_TIMESTAMP_POSITION = 35
_PRODUCER = Struct(">qhi")
_PRODUCER_POSITION = 43


class Codec(IntEnum):
    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class TimestampType(IntEnum):
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class BatchHeader:
    """The header, read once; changing a field does not change the bytes."""

    __slots__ = (
        "attributes",
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "batch_length",
        "crc",
        "last_offset_delta",
        "magic",
        "max_timestamp",
        "partition_leader_epoch",
        "producer_epoch",
        "producer_id",
        "records_count",
    )

    attributes: int
    base_offset: int
    base_sequence: int
    base_timestamp: int
    batch_length: int
    crc: int
    last_offset_delta: int
    magic: int
    max_timestamp: int
    partition_leader_epoch: int
    producer_epoch: int
    producer_id: int
    records_count: int

    def __init__(self, buffer: Buffer, position: int = 0) -> None:
        """Reads the 61 bytes at `position`; struct.error when they are not all there."""
        (
            self.base_offset,
            self.batch_length,
            self.partition_leader_epoch,
            self.magic,
            self.crc,
            self.attributes,
            self.last_offset_delta,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.records_count,
        ) = HEADER.unpack_from(buffer, position)

    @property
    def size(self) -> int:
        return LOG_OVERHEAD + self.batch_length

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def last_sequence(self) -> int:
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return increment_sequence(self.base_sequence, self.last_offset_delta)

    @property
    def codec_id(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def timestamp_type(self) -> TimestampType:
        return TimestampType((self.attributes & APPEND_TIME_BIT) >> 3)

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_BIT != 0


def increment_sequence(sequence: int, increment: int) -> int:
    """Sequences wrap to 0 after 2^31 - 1."""
    return (sequence + increment) % SEQUENCES


def stamp_offset(batch: bytearray | memoryview, base_offset: int, leader_epoch: int) -> None:
    """Neither is under the checksum."""
    _BASE_OFFSET.pack_into(batch, 0, base_offset)
    _LEADER_EPOCH.pack_into(batch, LOG_OVERHEAD, leader_epoch)


def stamp_timestamps(
    batch: bytearray | memoryview, timestamp_type: TimestampType, max_timestamp: int
) -> None:
    """Set timestamp type, max_timestamp and the checksum of a buffer that is exactly one batch."""
    attributes = _ATTRIBUTES.unpack_from(batch, ATTRIBUTES_POSITION)[0] & 0x77
    if timestamp_type == TimestampType.LOG_APPEND_TIME:
        attributes |= APPEND_TIME_BIT
    _ATTRIBUTES.pack_into(batch, ATTRIBUTES_POSITION, attributes)
    _TIMESTAMP.pack_into(batch, _MAX_TIMESTAMP_POSITION, max_timestamp)
    stamp_crc(batch)


def stamp_crc(batch: bytearray | memoryview) -> None:
    _CRC.pack_into(batch, CRC_POSITION, kernel.crc32c(memoryview(batch)[ATTRIBUTES_POSITION:]))


def producer_of(batch: memoryview) -> tuple[int, int, int]:
    """(producer id, its epoch, base sequence); of what is as long as a header."""
    return _PRODUCER.unpack_from(batch, _PRODUCER_POSITION)


def is_sequence_after(sequence: int, other: int) -> bool:
    return 0 < (sequence - other) % SEQUENCES < SEQUENCES // 2
