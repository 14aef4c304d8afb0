"""The header of a record batch: where each field lies, and everything that reads or writes one.

BatchHeader reads a whole v2 header; the functions below it read single fields where the batch may
be cut off, of another magic, or no batch at all. Many headers at once: kernel.list_batches.

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

Messages of magic 0 and 1 share base_offset (of a compressed one: of its last record), the length
and the place of the magic. Then:

12     4  crc                     CRC-32 of everything from magic to the end
17     1  attributes              0-2 codec, 3 timestamp type
18     8  timestamp               magic 1 only
"""

from __future__ import annotations

import zlib
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
LENGTH_POSITION: Final = 8
LEADER_EPOCH_POSITION: Final = 12
MAGIC_POSITION: Final = 16
MAGIC: Final = 2
CRC_POSITION: Final = 17
ATTRIBUTES_POSITION: Final = 21
ATTRIBUTE_BITS_POSITION: Final = 22  # the low byte, which holds all that are in use
MAX_TIMESTAMP_POSITION: Final = 35
PRODUCER_POSITION: Final = 43
OLD_CRC_POSITION: Final = 12
OLD_ATTRIBUTES_POSITION: Final = 17
OLD_TIMESTAMP_POSITION: Final = 18
OLD_HEADER_SIZE: Final = 18  # without the timestamp of magic 1

CODEC_MASK: Final = 0x07
APPEND_TIME_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
DELETE_HORIZON_BIT: Final = 0x40

NO_TIMESTAMP: Final = -1
NO_SEQUENCE: Final = -1
SEQUENCES: Final = 1 << 31  # then they begin anew

_CRC: Final = Struct(">I")
_ATTRIBUTES: Final = Struct(">h")
_INT32: Final = Struct(">i")
_INT64: Final = Struct(">q")
_PRODUCER: Final = Struct(">qhi")


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
    _INT64.pack_into(batch, 0, base_offset)
    _INT32.pack_into(batch, LEADER_EPOCH_POSITION, leader_epoch)


def stamp_timestamps(
    batch: bytearray | memoryview, timestamp_type: TimestampType, max_timestamp: int
) -> None:
    """Set timestamp type, max_timestamp and the checksum of a buffer that is exactly one batch."""
    attributes = _ATTRIBUTES.unpack_from(batch, ATTRIBUTES_POSITION)[0] & 0x77
    if timestamp_type == TimestampType.LOG_APPEND_TIME:
        attributes |= APPEND_TIME_BIT
    _ATTRIBUTES.pack_into(batch, ATTRIBUTES_POSITION, attributes)
    _INT64.pack_into(batch, MAX_TIMESTAMP_POSITION, max_timestamp)
    stamp_crc(batch)


def stamp_crc(batch: bytearray | memoryview) -> None:
    _CRC.pack_into(batch, CRC_POSITION, kernel.crc32c(memoryview(batch)[ATTRIBUTES_POSITION:]))


def stamp_attributes(batch: bytearray, attributes: int) -> None:
    """And the length that the batch now has; the checksum is left to `stamp_crc`."""
    _INT32.pack_into(batch, LENGTH_POSITION, len(batch) - LOG_OVERHEAD)
    _ATTRIBUTES.pack_into(batch, ATTRIBUTES_POSITION, attributes)


def base_offset_at(buffer: Buffer, position: int = 0) -> int:
    """Of any magic; there must be 8 bytes."""
    offset: int = _INT64.unpack_from(buffer, position)[0]
    return offset


def size_at(buffer: Buffer, position: int = 0) -> int:
    """What the batch at `position`, of any magic, takes by its own account.

    There must be LOG_OVERHEAD bytes. What is no batch may say anything, less than that too.
    """
    length: int = _INT32.unpack_from(buffer, position + LENGTH_POSITION)[0]
    return LOG_OVERHEAD + length


def holds_whole_batch(records: memoryview) -> bool:
    """Whether the first batch, of any magic, is not cut off."""
    return len(records) >= LOG_OVERHEAD and len(records) >= size_at(records)


def stored_crc(batch: Buffer, position: int = 0) -> int:
    """Of a v2 batch."""
    crc: int = _CRC.unpack_from(batch, position + CRC_POSITION)[0]
    return crc


def crc_holds(batch: memoryview) -> bool:
    """Of exactly one whole batch of any magic."""
    if batch[MAGIC_POSITION] >= MAGIC:
        return kernel.crc32c(batch[ATTRIBUTES_POSITION:]) == stored_crc(batch)
    stored: int = _CRC.unpack_from(batch, OLD_CRC_POSITION)[0]
    return zlib.crc32(batch[MAGIC_POSITION:]) == stored


def max_timestamp_of(head: bytes) -> int:
    """Of the batch of any magic that begins with these bytes; -1 for none."""
    if len(head) < OLD_TIMESTAMP_POSITION + 8 or head[MAGIC_POSITION] == 0:
        return NO_TIMESTAMP
    at = OLD_TIMESTAMP_POSITION if head[MAGIC_POSITION] == 1 else MAX_TIMESTAMP_POSITION
    timestamp: int = _INT64.unpack_from(head, at)[0]
    return timestamp


def is_v2(records: memoryview) -> bool:
    """Whether a v2 header is there."""
    return len(records) >= HEADER_SIZE and records[MAGIC_POSITION] == MAGIC


def is_transactional(records: memoryview) -> bool:
    """Whether a v2 batch with records is there that belongs to a transaction."""
    return (
        len(records) > HEADER_SIZE
        and records[MAGIC_POSITION] == MAGIC
        and records[ATTRIBUTE_BITS_POSITION] & TRANSACTIONAL_BIT != 0
    )


def producer_of(batch: memoryview) -> tuple[int, int, int]:
    """(producer id, its epoch, base sequence) of a v2 batch."""
    return _PRODUCER.unpack_from(batch, PRODUCER_POSITION)


def is_sequence_after(sequence: int, other: int) -> bool:
    return 0 < (sequence - other) % SEQUENCES < SEQUENCES // 2
