"""Offsets by timestamp: the first record at or after a time, and the record with the largest one.

The time index leads near the batch, the batch headers to it, and the records inside, decompressed
if need be, to the exact offset. A batch with LogAppendTime has one timestamp for all its records;
the first of them may have been compacted away.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from tidelog.log.segment import FoundBatch, LogSegment
from tidelog.record import kernel
from tidelog.record.batch import HEADER_SIZE, BatchHeader, TimestampType
from tidelog.record.errors import CorruptRecords

_INT64_MAX: Final = (1 << 63) - 1
ANY_TIMESTAMP: Final = -(1 << 63)


class TimestampOffset(NamedTuple):
    timestamp: int
    offset: int


def segment_starts(segments: Sequence[LogSegment], log_start_offset: int) -> list[tuple[int, int]]:
    """Their first offsets, with the time of their files."""
    return [
        (max(segment.base_offset, log_start_offset), segment.modified_ms()) for segment in segments
    ]


def first_at_or_after(
    segments: Sequence[LogSegment], timestamp: int, log_start_offset: int
) -> TimestampOffset | None:
    """In the first segment whose largest timestamp is not below the one looked for, unless all its
    records of that time lie below the log start."""
    for number, segment in enumerate(segments):
        if segment.size and segment.largest_timestamp() >= timestamp:
            found = _first_in(segments, number, timestamp, log_start_offset)
            if found is not None:
                return found
        if segment.size and segment.unverified is not None:
            segment.unverified.require_whole(segment, _end_of(segments, number))
    return None


def _first_in(
    segments: Sequence[LogSegment], number: int, timestamp: int, start_offset: int
) -> TimestampOffset | None:
    segment = segments[number]
    position = segment.position_for_timestamp(timestamp, start_offset)
    while True:
        batch = segment.find_batch_by_timestamp(timestamp, position, start_offset)
        if segment.unverified is not None:
            _require_good(segment, position, batch, _end_of(segments, number))
        if batch is None:
            return None
        found = _first_in_batch(segment, batch, timestamp, start_offset)
        if found is not None:
            return found
        position = batch.position + batch.size


def _end_of(segments: Sequence[LogSegment], number: int) -> int | None:
    return segments[number + 1].base_offset if number + 1 < len(segments) else None


def _require_good(
    segment: LogSegment, position: int, batch: FoundBatch | None, end_offset: int | None
) -> None:
    """What was passed over and what was found, by headers that nobody has checked yet."""
    assert segment.unverified is not None
    end = segment.size if batch is None else batch.position + batch.size
    length = end - position
    limit_offset = _INT64_MAX if end_offset is None else end_offset
    if segment.unverified.good_length(segment, position, length, limit_offset) < length:
        raise segment.no_batch_at(position)


def with_max_timestamp(
    segments: Sequence[LogSegment], log_start_offset: int
) -> TimestampOffset | None:
    """The first record that has the largest timestamp of the log (KIP-734)."""
    filled = [segment for segment in segments if segment.size]
    for number, segment in enumerate(filled):
        segment.largest_timestamp()
        if segment.unverified is not None:
            segment.unverified.require_whole(segment, _end_of(filled, number))
    if not filled:
        return None
    latest = max(filled, key=lambda segment: segment.max_timestamp)
    if latest.max_timestamp < 0:
        return None
    return _first_in(filled, filled.index(latest), latest.max_timestamp, log_start_offset)


def _first_in_batch(
    segment: LogSegment, batch: FoundBatch, timestamp: int, start_offset: int
) -> TimestampOffset | None:
    content = segment.file.read_at(batch.position, batch.size)
    if len(content) < batch.size:
        raise segment.no_batch_at(batch.position)
    if content[16] < 2:
        return _first_in_message(content, timestamp, start_offset)
    header = BatchHeader(content)
    if header.records_count == 0:
        return None
    has_append_time = header.timestamp_type == TimestampType.LOG_APPEND_TIME
    payload = _payload(header, memoryview(content)[HEADER_SIZE:])
    try:
        found = kernel.find_record(
            payload,
            header.records_count,
            header.base_offset,
            header.base_timestamp,
            ANY_TIMESTAMP if has_append_time else timestamp,
            start_offset,
        )
    except ValueError as error:
        raise CorruptRecords(
            f"{segment.file.path} holds malformed records at position {batch.position}"
        ) from error
    if found is None:
        return None
    offset, record_timestamp = found
    return TimestampOffset(header.max_timestamp if has_append_time else record_timestamp, offset)


def _payload(header: BatchHeader, payload: memoryview) -> memoryview | bytes | bytearray:
    if not header.codec_id:
        return payload
    from tidelog.record.compression import codec_of, decompress

    return decompress(codec_of(header.attributes), payload)


def _first_in_message(content: bytes, timestamp: int, start_offset: int) -> TimestampOffset | None:
    """Of an old message or the messages inside a wrapper."""
    from tidelog.record.legacy import read_messages, records_of

    for message in read_messages(content):
        for record in records_of(message):
            if record.timestamp >= timestamp and record.offset >= start_offset:
                return TimestampOffset(record.timestamp, record.offset)
    return None
