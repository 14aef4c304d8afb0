"""Record batches and old message sets packed by hand, right or deliberately wrong.

Independent of tidelog.record on purpose: what these functions build and read is what strangers
send and expect.

    v2 batch: base_offset i64, batch_length i32, leader_epoch i32, magic i8, crc u32 (CRC-32C from
    here on),
              attributes i16, last_offset_delta i32, base_timestamp i64, max_timestamp i64,
              producer_id i64, producer_epoch i16, base_sequence i32, records_count i32, records
    v0/v1 entry: offset i64, size i32, crc u32 (CRC-32 from here on), magic i8, attributes i8,
    [timestamp i64],
              key bytes, value bytes
"""

from __future__ import annotations

import struct
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from crc32c import crc32c

Header = tuple[str, bytes | None]

PREFIX = struct.Struct(">qiibI")
AFTER_CRC = struct.Struct(">hiqqqhii")
BATCH_HEADER_BYTES = PREFIX.size + AFTER_CRC.size
LOG_OVERHEAD_BYTES = 12


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def varint(value: int) -> bytes:
    unsigned = (value << 1) ^ (value >> 63)
    out = bytearray()
    while unsigned > 0x7F:
        out.append(unsigned & 0x7F | 0x80)
        unsigned >>= 7
    out.append(unsigned)
    return bytes(out)


def read_varint(data: bytes | memoryview, position: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        byte = data[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (result >> 1) ^ -(result & 1), position
        shift += 7


def varbytes(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def encode_record(
    value: bytes | None,
    key: bytes | None = None,
    headers: Sequence[Header] = (),
    *,
    offset_delta: int = 0,
    timestamp_delta: int = 0,
) -> bytes:
    body = bytearray(b"\0")
    body += varint(timestamp_delta) + varint(offset_delta) + varbytes(key) + varbytes(value)
    body += varint(len(headers))
    for name, content in headers:
        body += varbytes(name.encode()) + varbytes(content)
    return varint(len(body)) + bytes(body)


def encode_records(values: Iterable[bytes | None], key: bytes | None = None) -> bytes:
    return b"".join(encode_record(value, key, offset_delta=i) for i, value in enumerate(values))


def batch(
    *values: bytes | None,
    key: bytes | None = None,
    records: bytes | None = None,
    count: int | None = None,
    base_offset: int = 0,
    leader_epoch: int = -1,
    magic: int = 2,
    crc: int | None = None,
    attributes: int = 0,
    last_offset_delta: int | None = None,
    base_timestamp: int | None = None,
    max_timestamp: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    length: int | None = None,
) -> bytes:
    """A v2 batch of the values; `records` replaces the packed (or compressed) records, the rest
    the header fields."""
    count = len(values) if count is None else count
    base_timestamp = now_ms() if base_timestamp is None else base_timestamp
    packed = encode_records(values, key) if records is None else records
    checked = (
        AFTER_CRC.pack(
            attributes,
            count - 1 if last_offset_delta is None else last_offset_delta,
            base_timestamp,
            base_timestamp if max_timestamp is None else max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            count,
        )
        + packed
    )
    size = PREFIX.size - LOG_OVERHEAD_BYTES + len(checked)
    prefix = PREFIX.pack(
        base_offset,
        size if length is None else length,
        leader_epoch,
        magic,
        crc32c(checked) if crc is None else crc,
    )
    return prefix + checked


def message(
    value: bytes | None,
    key: bytes | None = None,
    *,
    magic: int = 1,
    offset: int = 0,
    attributes: int = 0,
    timestamp: int | None = None,
) -> bytes:
    """One entry of a v0 or v1 message set."""
    body = struct.pack(">bb", magic, attributes)
    if magic == 1:
        body += struct.pack(">q", now_ms() if timestamp is None else timestamp)
    for part in (key, value):
        body += struct.pack(">i", -1) if part is None else struct.pack(">i", len(part)) + part
    checked = struct.pack(">I", zlib.crc32(body)) + body
    return struct.pack(">qi", offset, len(checked)) + checked


@dataclass(slots=True)
class ReadRecord:
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[Header] = field(default_factory=list)


@dataclass(slots=True)
class ReadBatch:
    """A v2 batch found in a fetch answer or a segment; `position` counts from the start of the
    bytes given."""

    position: int
    size_bytes: int
    base_offset: int
    last_offset: int
    leader_epoch: int
    attributes: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int
    payload: bytes

    def records(self) -> Iterator[ReadRecord]:
        assert self.attributes & 0x07 == 0, "compressed"
        position = 0
        for _ in range(self.records_count):
            length, position = read_varint(self.payload, position)
            end = position + length
            yield self._record(position + 1)
            position = end
        assert position == len(self.payload), "bytes after the last record"

    def _record(self, position: int) -> ReadRecord:
        timestamp_delta, position = read_varint(self.payload, position)
        offset_delta, position = read_varint(self.payload, position)
        key, position = self._bytes(position)
        value, position = self._bytes(position)
        count, position = read_varint(self.payload, position)
        headers: list[Header] = []
        for _ in range(count):
            name, position = self._bytes(position)
            content, position = self._bytes(position)
            assert name is not None
            headers.append((name.decode(), content))
        return ReadRecord(
            self.base_offset + offset_delta,
            self.base_timestamp + timestamp_delta,
            key,
            value,
            headers,
        )

    def _bytes(self, position: int) -> tuple[bytes | None, int]:
        length, position = read_varint(self.payload, position)
        if length < 0:
            return None, position
        return bytes(self.payload[position : position + length]), position + length


class DamagedBatch(AssertionError):
    """A batch whose size, magic or checksum is wrong."""


def read_batches(data: bytes | memoryview) -> list[ReadBatch]:
    """All whole batches; a cut one at the end is left out (fetch answers may end so), a damaged
    one raises."""
    found, position = [], 0
    while position + LOG_OVERHEAD_BYTES <= len(data):
        length = struct.unpack_from(">i", data, position + 8)[0]
        end = position + LOG_OVERHEAD_BYTES + length
        if length < BATCH_HEADER_BYTES - LOG_OVERHEAD_BYTES:
            raise DamagedBatch(f"length {length} at {position}")
        if end > len(data):
            break
        found.append(_read_batch(bytes(data[position:end]), position))
        position = end
    return found


def _read_batch(data: bytes, position: int) -> ReadBatch:
    base_offset, _, leader_epoch, magic, crc = PREFIX.unpack_from(data)
    if magic != 2:
        raise DamagedBatch(f"magic {magic} at {position}")
    if crc32c(data[PREFIX.size :]) != crc:
        raise DamagedBatch(f"checksum at {position}")
    attributes, last_delta, base_ts, max_ts, pid, epoch, sequence, count = AFTER_CRC.unpack_from(
        data, PREFIX.size
    )
    return ReadBatch(
        position,
        len(data),
        base_offset,
        base_offset + last_delta,
        leader_epoch,
        attributes,
        base_ts,
        max_ts,
        pid,
        epoch,
        sequence,
        count,
        data[BATCH_HEADER_BYTES:],
    )


def read_messages(data: bytes | memoryview) -> list[tuple[int, int, bytes | None, bytes | None]]:
    """(offset, magic, key, value) of the uncompressed entries of a v0/v1 message set."""
    found, position = [], 0
    while position + LOG_OVERHEAD_BYTES <= len(data):
        offset, size = struct.unpack_from(">qi", data, position)
        entry = bytes(data[position + LOG_OVERHEAD_BYTES : position + LOG_OVERHEAD_BYTES + size])
        if len(entry) < size:
            break
        crc, magic, attributes = struct.unpack_from(">Ibb", entry)
        if zlib.crc32(entry[4:]) != crc:
            raise DamagedBatch(f"checksum at {position}")
        assert attributes & 0x07 == 0, "compressed"
        at = 6 + (8 if magic == 1 else 0)
        parts: list[bytes | None] = []
        for _ in range(2):
            length = struct.unpack_from(">i", entry, at)[0]
            at += 4
            parts.append(None if length < 0 else entry[at : at + length])
            at += max(length, 0)
        found.append((offset, magic, parts[0], parts[1]))
        position += LOG_OVERHEAD_BYTES + size
    return found
