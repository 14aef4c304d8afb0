"""Kafka requests packed by hand, and the few answers the benchmark has to read.

Nothing of tidelog's codec is used: a fault shared by broker and client would go unseen, and the
client would cost what the codec costs. Every function here runs before a clock starts; the timed
loops of raw_client only send and count bytes.

Versions are those both peers speak: Produce 9, Fetch 12 (flexible, topic by name), ListOffsets 4,
Metadata 4, ApiVersions 0, CreateTopics 4, DeleteTopics 3.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import crc32c
import lz4.frame as lz4_frame

PRODUCE, FETCH, LIST_OFFSETS, METADATA, API_VERSIONS = 0, 1, 2, 3, 18
CREATE_TOPICS, DELETE_TOPICS = 19, 20
CLIENT_ID = b"bench"
TIMESTAMP_MS = time.time_ns() // 1_000_000

# 0 base_offset, 8 batch_length, 12 partition_leader_epoch, 16 magic, 17 crc
BATCH_HEAD = struct.Struct(">qiibI")
# 21 attributes, 23 last_offset_delta, 27 base_timestamp, 35 max_timestamp, 43 producer_id,
# 51 producer_epoch, 53 base_sequence, 57 records_count
BATCH_BODY = struct.Struct(">hiqqqhii")
BATCH_HEADER_BYTES = BATCH_HEAD.size + BATCH_BODY.size
assert BATCH_HEADER_BYTES == 61
LZ4_CODEC = 3


class BadAnswer(Exception):
    """A broker answered with an error code, or with something the benchmark cannot read."""


@dataclass(frozen=True, slots=True)
class Batch:
    """One v2 record batch, ready to send, and what it counts for."""

    data: bytes
    records_count: int
    value_bytes: int  # of all values together


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def varint(value: int) -> bytes:
    return uvarint(value << 1 ^ value >> 63)


def string(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack(">h", len(encoded)) + encoded


def compact_string(text: str) -> bytes:
    encoded = text.encode()
    return uvarint(len(encoded) + 1) + encoded


def record_batch(value_bytes: int, records_count: int, *, lz4: bool = False) -> Batch:
    """A batch of equal records: no key, no headers, create time."""
    data = _batch_of([varint(-1)] * records_count, value_bytes, lz4=lz4)
    return Batch(data, records_count, value_bytes * records_count)


def keyed_batch(keys: Sequence[bytes], value_bytes: int) -> bytes:
    """The same with a key for each record."""
    return _batch_of([varint(len(key)) + key for key in keys], value_bytes, lz4=False)


def _batch_of(encoded_keys: Sequence[bytes], value_bytes: int, *, lz4: bool) -> bytes:
    value = varint(value_bytes) + _letters(value_bytes) + b"\0"
    records = bytearray()
    for delta, key in enumerate(encoded_keys):
        body = b"\0\0" + varint(delta) + key + value
        records += varint(len(body)) + body
    stored = lz4_frame.compress(records, block_linked=False) if lz4 else bytes(records)
    attributes, count = LZ4_CODEC if lz4 else 0, len(encoded_keys)
    body = (
        BATCH_BODY.pack(attributes, count - 1, TIMESTAMP_MS, TIMESTAMP_MS, -1, -1, -1, count)
        + stored
    )
    length = BATCH_HEADER_BYTES - 12 + len(stored)
    return BATCH_HEAD.pack(0, length, -1, 2, crc32c.crc32c(body)) + body


@cache
def _letters(count: int) -> bytes:
    return bytes(65 + position % 26 for position in range(count))


def keys_and_offsets(segment: bytes) -> Iterator[tuple[bytes, int]]:
    """Of every record in a segment of uncompressed batches."""
    position = 0
    while position < len(segment):
        (base_offset, length) = struct.unpack_from(">qi", segment, position)
        (count,) = struct.unpack_from(">i", segment, position + BATCH_HEADER_BYTES - 4)
        at = position + BATCH_HEADER_BYTES
        for _ in range(count):
            size, at = read_varint(segment, at)
            _, place = read_varint(segment, at + 1)
            delta, place = read_varint(segment, place)
            key_bytes, place = read_varint(segment, place)
            yield segment[place : place + key_bytes], base_offset + delta
            at += size
        position += 12 + length


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    value, position = read_uvarint(data, position)
    return value >> 1 ^ -(value & 1), position


def batch_filling(value_bytes: int, batch_bytes: int, *, lz4: bool = False) -> Batch:
    """As many records of value_bytes as fit into batch_bytes before compression."""
    one = len(record_batch(value_bytes, 1).data) - BATCH_HEADER_BYTES
    # a record's own varints grow by up to two bytes with its delta
    return record_batch(
        value_bytes, max(1, (batch_bytes - BATCH_HEADER_BYTES) // (one + 2)), lz4=lz4
    )


def frame(api_key: int, version: int, body: bytes, *, flexible: bool, correlation_id: int) -> bytes:
    header = struct.pack(">hhih", api_key, version, correlation_id, len(CLIENT_ID)) + CLIENT_ID
    if flexible:
        header += b"\0"
    return struct.pack(">i", len(header) + len(body)) + header + body


def produce_request(
    topic: str, partition: int, records: bytes, *, acks: int = 1, correlation_id: int = 1
) -> bytes:
    return produce_many_request(
        topic, {partition: records}, acks=acks, correlation_id=correlation_id
    )


def produce_many_request(
    topic: str, records: Mapping[int, bytes], *, acks: int, correlation_id: int = 1
) -> bytes:
    """One batch for each partition."""
    body = (
        b"\0"
        + struct.pack(">hi", acks, 30_000)
        + b"\x02"
        + compact_string(topic)
        + uvarint(len(records) + 1)
        + b"".join(
            struct.pack(">i", partition) + uvarint(len(batch) + 1) + batch + b"\0"
            for partition, batch in records.items()
        )
        + b"\0\0"
    )
    return frame(PRODUCE, 9, body, flexible=True, correlation_id=correlation_id)


@dataclass(frozen=True, slots=True)
class ProduceAnswer:
    """Where the two values of interest lie in a Produce v9 answer for one partition.

    Frame: length 4, correlation id 4, tags 1, array 1, topic name, array 1, index 4, error 2,
    base offset 8, ...
    """

    error_position: int
    offset_position: int

    @classmethod
    def for_topic(cls, topic: str) -> ProduceAnswer:
        error_position = 4 + 4 + 1 + 1 + len(compact_string(topic)) + 1 + 4
        return cls(error_position, error_position + 2)

    def base_offset(self, answer: bytes | bytearray | memoryview) -> int:
        (error,) = struct.unpack_from(">h", answer, self.error_position)
        if error:
            raise BadAnswer(f"Produce answered error code {error}")
        (offset,) = struct.unpack_from(">q", answer, self.offset_position)
        return int(offset)


def fetch_request(
    topic: str,
    partition: int,
    offset: int,
    *,
    max_bytes: int,
    min_bytes: int = 1,
    max_wait_ms: int = 500,
    read_committed: bool = False,
    correlation_id: int = 1,
) -> bytes:
    body = (
        struct.pack(">iiiibii", -1, max_wait_ms, min_bytes, max_bytes, read_committed, 0, -1)
        + b"\x02"
        + compact_string(topic)
        + b"\x02"
        + struct.pack(">iiqiqi", partition, -1, offset, -1, -1, max_bytes)
        + b"\0\0"
        + b"\x01\x01\0"
    )
    return frame(FETCH, 12, body, flexible=True, correlation_id=correlation_id)


@dataclass(frozen=True, slots=True)
class FetchAnswer:
    """The head of a Fetch v12 answer for one partition, up to where the records begin."""

    high_watermark: int
    records_position: int
    records_bytes: int

    @classmethod
    def parse(cls, answer: bytes | bytearray | memoryview, topic: str) -> FetchAnswer:
        (top_error,) = struct.unpack_from(">h", answer, 4 + 4 + 1 + 4)
        if top_error:
            raise BadAnswer(f"Fetch answered error code {top_error}")
        position = 4 + 4 + 1 + 4 + 2 + 4 + 1 + len(compact_string(topic)) + 1
        _index, error, high_watermark = struct.unpack_from(">ihq", answer, position)
        if error:
            raise BadAnswer(f"Fetch answered error code {error} for the partition")
        position += 4 + 2 + 8 + 8 + 8
        aborted, position = read_uvarint(answer, position)
        if aborted > 1:
            raise BadAnswer("Fetch answered aborted transactions")
        records_length, position = read_uvarint(answer, position + 4)
        return cls(high_watermark, position, max(0, records_length - 1))


def read_uvarint(data: bytes | bytearray | memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7


def last_offset_of(records: bytes | bytearray | memoryview) -> int:
    """The last offset of the last whole batch; checks each whole batch's CRC on the way."""
    position, last = 0, -1
    while position + BATCH_HEADER_BYTES <= len(records):
        base, length, _epoch, _magic, crc = BATCH_HEAD.unpack_from(records, position)
        end = position + 12 + length
        if end > len(records):
            break
        if crc32c.crc32c(bytes(records[position + BATCH_HEAD.size : end])) != crc:
            raise BadAnswer(f"batch at offset {base} has a wrong CRC")
        (delta,) = struct.unpack_from(">i", records, position + 23)
        last, position = base + delta, end
    return last


def create_topic_request(
    topic: str, partitions: int, configs: Mapping[str, str], timeout_ms: int
) -> bytes:
    body = (
        struct.pack(">i", 1) + string(topic) + struct.pack(">ihii", partitions, 1, 0, len(configs))
    )
    for name, value in configs.items():
        body += string(name) + string(value)
    body += struct.pack(">ib", timeout_ms, 0)
    return frame(CREATE_TOPICS, 4, body, flexible=False, correlation_id=1)


def delete_topics_request(topics: Sequence[str]) -> bytes:
    body = struct.pack(">i", len(topics)) + b"".join(string(topic) for topic in topics)
    return frame(
        DELETE_TOPICS, 3, body + struct.pack(">i", 60_000), flexible=False, correlation_id=1
    )


def topic_error(answer: bytes) -> int:
    """The error code of the first topic in a CreateTopics v4 or DeleteTopics v3 answer."""
    (name_length,) = struct.unpack_from(">h", answer, 4 + 4 + 4 + 4)
    (error,) = struct.unpack_from(">h", answer, 4 + 4 + 4 + 4 + 2 + name_length)
    return int(error)


def metadata_request(topics: Sequence[str], *, auto_create: bool) -> bytes:
    body = struct.pack(">i", len(topics)) + b"".join(string(topic) for topic in topics)
    return frame(METADATA, 4, body + bytes([auto_create]), flexible=False, correlation_id=1)


def led_partitions(answer: bytes) -> int:
    """How many partitions of the first topic of a Metadata v4 answer have a leader; 0 on errors."""
    (brokers,) = struct.unpack_from(">i", answer, 12)
    position = 16
    for _ in range(brokers):
        position += 4
        (length,) = struct.unpack_from(">h", answer, position)
        position += 2 + length + 4
        position = _skip_nullable_string(answer, position)
    position = _skip_nullable_string(answer, position) + 4
    topics, error = struct.unpack_from(">ih", answer, position)
    if not topics or error:
        return 0
    position = _skip_nullable_string(answer, position + 6) + 1
    (partitions,) = struct.unpack_from(">i", answer, position)
    position += 4
    led = 0
    for _ in range(partitions):
        error, _index, leader, replicas = struct.unpack_from(">hiii", answer, position)
        position += 14 + 4 * replicas
        (in_sync,) = struct.unpack_from(">i", answer, position)
        position += 4 + 4 * in_sync
        led += error == 0 and leader >= 0
    return led


def _skip_nullable_string(answer: bytes, position: int) -> int:
    (length,) = struct.unpack_from(">h", answer, position)
    return position + 2 + max(0, int(length))


def end_offset_request(topic: str, partition: int) -> bytes:
    body = (
        struct.pack(">ibi", -1, 0, 1) + string(topic) + struct.pack(">iiiq", 1, partition, -1, -1)
    )
    return frame(LIST_OFFSETS, 4, body, flexible=False, correlation_id=1)


def end_offset(answer: bytes) -> int:
    (name_length,) = struct.unpack_from(">h", answer, 16)
    _count, _index, error, _timestamp, offset = struct.unpack_from(
        ">iihqq", answer, 18 + name_length
    )
    if error:
        raise BadAnswer(f"ListOffsets answered error code {error}")
    return int(offset)


def api_versions_request() -> bytes:
    return frame(API_VERSIONS, 0, b"", flexible=False, correlation_id=1)


def api_keys(answer: bytes) -> frozenset[int]:
    _error, count = struct.unpack_from(">hi", answer, 8)
    return frozenset(struct.unpack_from(">h", answer, 14 + 6 * row)[0] for row in range(count))
