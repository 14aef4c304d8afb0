"""The metadata log of an Apache Kafka in KRaft mode, as it lies on disk. Only read, never written.

    __cluster_metadata-0/
      <end offset>-<epoch>.checkpoint   a snapshot: what all records below the end offset led to
      <base offset>.log                 batches of records, without gaps from file to file
      quorum-state, *.index, ...        not needed

A snapshot is a file of batches too. Its first record is a snapshot header, its last one a footer;
Kafka gives it its name only when it is complete. The newest one counts, and of the log what comes
after it.

    record value    frame version uvarint (1), record type uvarint, version uvarint, message
    control record  key: version int16, type int16; they tell of the quorum and are passed over

What counts as committed: Kafka does not store how far the quorum has agreed. A lone controller
takes up all that its log holds, and so does this reader. Where the quorum has more voters, the
last records may be ones that the others never saw (`voters` says how many there are).

A log may end in a batch that was cut off by a crash; Kafka drops it, this reader passes it over.
Any other damage, a gap, and a record that is not understood are `UnreadableMetadata`.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path
from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple

from tidelog.errors import KafkaError, StartupError
from tidelog.protocol.errors import DecodeError
from tidelog.protocol.messages.control_records import LeaderChangeMessage, VotersRecord
from tidelog.protocol.primitives import read_uvarint
from tidelog.record.batch import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_POSITION,
    BatchHeader,
    crc_holds,
    size_at,
)
from tidelog.record.columns import StoredRecord, columns_of, part_of

logger = logging.getLogger(__name__)

FRAME_VERSION: Final = 1
BATCH_LENGTH_MAX: Final = 1 << 30

_SNAPSHOT = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_SEGMENT = re.compile(r"(\d{20})\.log")
_CONTROL_KEY = Struct(">hh")
_VERSION = Struct(">h")


class UnreadableMetadata(StartupError):
    """Nobody can tell from this log what the cluster's topics are."""


class ControlType(IntEnum):
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class MetadataRecord(NamedTuple):
    place: str  # for messages: file and offset
    type: int
    version: int
    body: memoryview


class Snapshot(NamedTuple):
    end_offset: int
    epoch: int
    path: Path


class _Batch(NamedTuple):
    header: BatchHeader
    records: list[StoredRecord]


class MetadataLog:
    """One folder. `records` may be read once; the other fields are complete after that."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.voters = 0  # how many take part in the quorum, 0 if the log does not say
        self.end_offset = 0
        try:
            names = os.listdir(folder)
            self._sizes = {
                name: os.stat(folder / name).st_size
                for name in sorted(names)
                if _SNAPSHOT.fullmatch(name) or _SEGMENT.fullmatch(name)
            }
        except OSError as error:
            raise UnreadableMetadata(f"{folder} cannot be read: {error}") from error
        self.snapshot = max(filter(None, map(self._snapshot_or_none, names)), default=None)
        self._segments = sorted(
            (int(match[1]), folder / name)
            for name in names
            if (match := _SEGMENT.fullmatch(name)) is not None
        )

    def _snapshot_or_none(self, name: str) -> Snapshot | None:
        match = _SNAPSHOT.fullmatch(name)
        return match and Snapshot(int(match[1]), int(match[2]), self.folder / name)

    @property
    def fingerprint(self) -> str:
        """Changes whenever Kafka has written: names and sizes of the files that matter."""
        return ",".join(f"{name}:{size}" for name, size in self._sizes.items())

    def records(self) -> Iterator[MetadataRecord]:
        if self.snapshot is None and not self._segments:
            raise UnreadableMetadata(f"{self.folder} holds neither a snapshot nor a log")
        try:
            if self.snapshot is not None:
                yield from self._snapshot_records(self.snapshot)
                self.end_offset = self.snapshot.end_offset
            yield from self._log_records()
        except OSError as error:
            raise UnreadableMetadata(f"{self.folder} cannot be read: {error}") from error

    def _snapshot_records(self, snapshot: Snapshot) -> Iterator[MetadataRecord]:
        path, first, last = snapshot.path, None, None
        for batch in self._batches(path, may_be_cut=False):
            for record in batch.records:
                last = self._control(path, record) if batch.header.is_control else None
                first = first or last
                if first != ControlType.SNAPSHOT_HEADER:
                    raise UnreadableMetadata(f"{path} does not begin as a snapshot does")
                if not batch.header.is_control:
                    yield _metadata_record(path, record)
        if last != ControlType.SNAPSHOT_FOOTER:
            raise UnreadableMetadata(f"{path} does not end as a snapshot does")

    def _log_records(self) -> Iterator[MetadataRecord]:
        """Those at and above `end_offset`, which moves on with them."""
        if self._segments and self._segments[0][0] > self.end_offset:
            raise UnreadableMetadata(
                f"{self.folder}: the log begins at offset {self._segments[0][0]}, and there is no "
                "snapshot of what was before"
            )
        expected = None
        for base_offset, path in self._segments:
            if expected not in (None, base_offset):
                raise UnreadableMetadata(
                    f"{path}: the log goes on at offset {base_offset}, not at {expected}"
                )
            expected = base_offset
            is_last = path == self._segments[-1][1]
            for batch in self._batches(path, may_be_cut=is_last):
                if batch.header.base_offset != expected:
                    raise UnreadableMetadata(
                        f"{path}: offset {batch.header.base_offset} follows where {expected} should"
                    )
                expected = batch.header.last_offset + 1
                for record in batch.records:
                    if batch.header.is_control:
                        self._control(path, record)
                    elif record.offset >= self.end_offset:
                        yield _metadata_record(path, record)
        self.end_offset = max(self.end_offset, expected or 0)

    def _control(self, path: Path, record: StoredRecord) -> int:
        """Its type. What is not known yet is the quorum's own affair as well."""
        key, value = record.key or b"", memoryview(record.value or b"")
        try:
            control_type: int = _CONTROL_KEY.unpack_from(key)[1]
            if control_type == ControlType.LEADER_CHANGE:
                version = _VERSION.unpack_from(value)[0]
                self.voters = len(LeaderChangeMessage.decode(value, 0, version).voters)
            elif control_type == ControlType.KRAFT_VOTERS:
                version = _VERSION.unpack_from(value)[0]
                self.voters = len(VotersRecord.decode(value, 0, version).voters)
        except (DecodeError, StructError) as error:
            raise UnreadableMetadata(f"{path}: offset {record.offset}: {error}") from error
        return control_type

    def _batches(self, path: Path, *, may_be_cut: bool) -> Iterator[_Batch]:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            position = 0
            while position < size:
                head = file.read(LOG_OVERHEAD)
                length = size_at(head) - LOG_OVERHEAD if len(head) == LOG_OVERHEAD else 0
                data = memoryview(head + file.read(min(max(length, 0), BATCH_LENGTH_MAX)))
                problem = _problem_with(data, length)
                if problem is not None:
                    rest = memoryview(bytes(data) + file.read())
                    if not may_be_cut or _holds_batch(rest):
                        raise UnreadableMetadata(f"{path}: position {position}: {problem}")
                    logger.warning(
                        "%s ends in %d bytes that were not completely written: passed over",
                        path,
                        len(rest),
                    )
                    return
                yield _read_batch(path, position, data)
                position += len(data)


def _problem_with(data: memoryview, length: int) -> str | None:
    if len(data) < LOG_OVERHEAD + length or len(data) < HEADER_SIZE:
        return "a batch is cut off, or its length is wrong"
    if data[MAGIC_POSITION] != MAGIC:
        return f"a batch of format {data[MAGIC_POSITION]}"
    if not crc_holds(data):
        return "the checksum of a batch is wrong"
    return None


def _holds_batch(rest: memoryview) -> bool:
    """Whether a sound batch lies anywhere in there: then what is before it is damage, and no end
    of a log that a crash has cut.
    """
    content = bytes(rest)
    magic_position = content.find(MAGIC, MAGIC_POSITION)
    while magic_position >= 0:
        start = magic_position - MAGIC_POSITION
        length = size_at(content, start) - LOG_OVERHEAD
        end = start + LOG_OVERHEAD + length
        if length > 0 and end <= len(content) and _problem_with(rest[start:end], length) is None:
            return True
        magic_position = content.find(MAGIC, magic_position + 1)
    return False


def _read_batch(path: Path, position: int, data: memoryview) -> _Batch:
    header = BatchHeader(data)
    try:
        part = part_of(data, header.attributes, header.base_offset, header.records_count)
        return _Batch(header, list(columns_of([part])))
    except (KafkaError, ValueError) as error:
        raise UnreadableMetadata(f"{path}: position {position}: {error}") from error


def _metadata_record(path: Path, record: StoredRecord) -> MetadataRecord:
    place = f"{path}: offset {record.offset}"
    value = memoryview(record.value or b"")
    try:
        frame_version, position = read_uvarint(value, 0)
        record_type, position = read_uvarint(value, position)
        version, position = read_uvarint(value, position)
    except (DecodeError, IndexError) as error:
        raise UnreadableMetadata(f"{place}: not a metadata record: {error}") from error
    if frame_version != FRAME_VERSION:
        raise UnreadableMetadata(f"{place}: frame version {frame_version} is not known")
    return MetadataRecord(place, record_type, version, value[position:])
