"""Offsets by timestamp: the first record at or after a time, and the record with the largest one.

The time index leads near the batch, the batch headers to it, and the records inside, decompressed
if need be, to the exact offset. A batch with LogAppendTime has one timestamp for all its records;
the first of them may have been compacted away.

A batch may inflate to 100 MiB. A request on the event loop therefore asks with `BatchLookups`: what
takes too long inside a batch is a walk for a thread, of which `WalkDue` tells.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final, NamedTuple

from tidelog.errors import KafkaError
from tidelog.log.segment.log_segment import FoundBatch, LogSegment
from tidelog.log.segment.segment_walk import Walk, WalkDue
from tidelog.record import kernel
from tidelog.record.batch import HEADER_SIZE, MAGIC, MAGIC_POSITION, BatchHeader, TimestampType
from tidelog.record.errors import CorruptRecords
from tidelog.record.inflation import LOOP_NS_MAX, HeavyRecords, InflationBudget
from tidelog.types import INT64_MAX

ANY_TIMESTAMP: Final = -(1 << 63)
WRAPPER_NS: Final = LOOP_NS_MAX + 1  # old messages are looked at one by one: not on the loop


class TimestampOffset(NamedTuple):
    timestamp: int
    offset: int


class BatchLookup(Walk):
    """Inside of one batch. `found` or `problem` is there once it `is_clean`."""

    def __init__(
        self, segment: LogSegment, batch: FoundBatch, timestamp: int, start_offset: int
    ) -> None:
        super().__init__(segment.file.path)
        self._file = segment.file  # held, so that it stays open
        self._descriptor = segment.file.fileno()
        self._batch = batch
        self._timestamp = timestamp
        self._start_offset = start_offset
        self.found: TimestampOffset | None = None
        self.problem: KafkaError | None = None

    def _walk(self) -> bool:
        content = os.pread(self._descriptor, self._batch.size, self._batch.position)
        if len(content) < self._batch.size:
            return False
        try:
            self.found = _first_in_content(
                content, self.path, self._batch, self._timestamp, self._start_offset, None
            )
        except KafkaError as error:
            self.problem = error
        return True


class BatchLookups:
    """Of one request, which may take LOOP_NS_MAX on the loop for all of them.

    What a thread has found is kept: whoever asks again is led to the same batches.
    """

    __slots__ = ("_inflation", "_made")

    def __init__(self) -> None:
        self._inflation: InflationBudget | None = None
        self._made: dict[tuple[str, FoundBatch, int, int], BatchLookup] = {}

    def find(
        self, segment: LogSegment, batch: FoundBatch, timestamp: int, start_offset: int
    ) -> TimestampOffset | None:
        key = (segment.file.path, batch, timestamp, start_offset)
        made = self._made.get(key)
        if made is None:
            if self._inflation is None:
                self._inflation = InflationBudget(INT64_MAX, LOOP_NS_MAX)
            try:
                return _first_in_batch(segment, batch, timestamp, start_offset, self._inflation)
            except HeavyRecords:
                made = self._made[key] = BatchLookup(segment, batch, timestamp, start_offset)
        if not made.has_run:
            raise WalkDue(made)
        if not made.is_clean:
            return _first_in_batch(segment, batch, timestamp, start_offset, None)
        if made.problem is not None:
            raise made.problem
        return made.found


def segment_starts(segments: Sequence[LogSegment], log_start_offset: int) -> list[tuple[int, int]]:
    """Their first offsets, with the time of their files."""
    return [
        (max(segment.base_offset, log_start_offset), segment.modified_ms()) for segment in segments
    ]


def first_at_or_after(
    segments: Sequence[LogSegment],
    timestamp: int,
    log_start_offset: int,
    lookups: BatchLookups | None = None,
) -> TimestampOffset | None:
    """In the first segment whose largest timestamp is not below the one looked for, unless all its
    records of that time lie below the log start."""
    for number, segment in enumerate(segments):
        if segment.size and segment.largest_timestamp() >= timestamp:
            found = _first_in(segments, number, timestamp, log_start_offset, lookups)
            if found is not None:
                return found
        if segment.size and segment.verification is not None:
            segment.verification.require_whole(segment, _end_of(segments, number))
    return None


def _first_in(
    segments: Sequence[LogSegment],
    number: int,
    timestamp: int,
    start_offset: int,
    lookups: BatchLookups | None,
) -> TimestampOffset | None:
    segment = segments[number]
    position = segment.position_for_timestamp(timestamp, start_offset)
    while True:
        batch = segment.find_batch_by_timestamp(timestamp, position, start_offset)
        if segment.verification is not None:
            _require_good(segment, position, batch, _end_of(segments, number))
        if batch is None:
            return None
        if lookups is None:
            found = _first_in_batch(segment, batch, timestamp, start_offset, None)
        else:
            found = lookups.find(segment, batch, timestamp, start_offset)
        if found is not None:
            return found
        position = batch.position + batch.size


def _end_of(segments: Sequence[LogSegment], number: int) -> int | None:
    return segments[number + 1].base_offset if number + 1 < len(segments) else None


def _require_good(
    segment: LogSegment, position: int, batch: FoundBatch | None, end_offset: int | None
) -> None:
    """What was passed over and what was found, by headers that nobody has checked yet."""
    assert segment.verification is not None
    end = segment.size if batch is None else batch.position + batch.size
    length = end - position
    limit_offset = INT64_MAX if end_offset is None else end_offset
    if segment.verification.good_length(segment, position, length, limit_offset) < length:
        raise segment.no_batch_at(position)


def with_max_timestamp(
    segments: Sequence[LogSegment], log_start_offset: int, lookups: BatchLookups | None = None
) -> TimestampOffset | None:
    """The first record that has the largest timestamp of the log (KIP-734)."""
    filled = [segment for segment in segments if segment.size]
    for number, segment in enumerate(filled):
        segment.largest_timestamp()
        if segment.verification is not None:
            segment.verification.require_whole(segment, _end_of(filled, number))
    if not filled:
        return None
    latest = max(filled, key=lambda segment: segment.max_timestamp)
    if latest.max_timestamp < 0:
        return None
    number = filled.index(latest)
    return _first_in(filled, number, latest.max_timestamp, log_start_offset, lookups)


def _first_in_batch(
    segment: LogSegment,
    batch: FoundBatch,
    timestamp: int,
    start_offset: int,
    inflation: InflationBudget | None,
) -> TimestampOffset | None:
    """HeavyRecords if that takes longer than `inflation` allows."""
    if inflation is not None:
        inflation.take_time(batch.size)
    content = segment.file.read_at(batch.position, batch.size)
    if len(content) < batch.size:
        raise segment.no_batch_at(batch.position)
    path = segment.file.path
    return _first_in_content(content, path, batch, timestamp, start_offset, inflation)


def _first_in_content(
    content: bytes,
    path: str,
    batch: FoundBatch,
    timestamp: int,
    start_offset: int,
    inflation: InflationBudget | None,
) -> TimestampOffset | None:
    if content[MAGIC_POSITION] < MAGIC:
        return _first_in_message(content, timestamp, start_offset, inflation)
    header = BatchHeader(content)
    if header.records_count == 0:
        return None
    has_append_time = header.timestamp_type == TimestampType.LOG_APPEND_TIME
    payload = _payload(header, memoryview(content)[HEADER_SIZE:], inflation)
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
            f"{path} holds malformed records at position {batch.position}"
        ) from error
    if found is None:
        return None
    offset, record_timestamp = found
    return TimestampOffset(header.max_timestamp if has_append_time else record_timestamp, offset)


def _payload(
    header: BatchHeader, payload: memoryview, inflation: InflationBudget | None
) -> memoryview | bytes | bytearray:
    if not header.codec_id:
        return payload
    from tidelog.record.compression import codec_of

    return (inflation or InflationBudget()).decompress(codec_of(header.attributes), payload)


def _first_in_message(
    content: bytes, timestamp: int, start_offset: int, inflation: InflationBudget | None
) -> TimestampOffset | None:
    """Of an old message or the messages inside a wrapper."""
    from tidelog.record.legacy import read_messages, records_of

    for message in read_messages(content):
        if message.is_compressed and inflation is not None:
            inflation.take_time(WRAPPER_NS)
        for record in records_of(message, inflation):
            if record.timestamp >= timestamp and record.offset >= start_offset:
                return TimestampOffset(record.timestamp, record.offset)
    return None
