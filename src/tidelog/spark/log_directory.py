"""The files of a data directory, found and measured without a broker. Reads only.

    <directory>/<topic>-<partition>/<base offset, 20 digits>.log     record batches
                                   /....index      8 bytes an entry: last offset of a batch less the
                                                   base offset, position of the batch; big-endian,
                                                   zeros after the last entry while it is written
                                   /....timeindex  12 bytes an entry; the first 8 are the largest
                                                   timestamp so far
                                   /....txnindex   34 bytes an entry: version, producer id, first
                                                   offset, offset of the abort marker, and another
    <directory>/log-start-offset-checkpoint        text: version, number of rows, then rows of
                                                   topic, partition, offset

The directory may also be that of one partition. Partitions and segments that are being deleted or
cleaned have other names and are left out. Indexes are hints: what they lead to is checked, and a
missing or damaged one costs time only.

A broker may be writing. The log ends after the last whole batch with a right checksum; whatever
follows (a batch half written, room set aside) is not read.
"""

from __future__ import annotations

import os
import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from struct import Struct, error
from sys import byteorder
from typing import Final, NamedTuple

from tidelog.record import kernel
from tidelog.record.batch import LOG_OVERHEAD, MAGIC, MAGIC_POSITION, base_offset_at, size_at
from tidelog.record.kernel import BatchCheck, BatchRow
from tidelog.types import TopicPartition

SCAN_BYTES: Final = 4 * 1024 * 1024
LOG_START_FILE: Final = "log-start-offset-checkpoint"

_PARTITION = re.compile(r"(?P<topic>.+)-(?P<partition>\d+)")
_SEGMENT = re.compile(r"(?P<base_offset>\d{20})\.log")
_TIME_ENTRY = Struct(">qi")
_TXN_ENTRY = Struct(">hqqqq")
_NO_LIMIT = 1 << 62
_BATCHES_MAX = 1 << 31


class NoLog(ValueError):
    """The path holds no partition."""


class Segment(NamedTuple):
    path: str
    base_offset: int
    size_bytes: int  # when it was found

    def beside(self, suffix: str) -> str:
        return self.path.removesuffix(".log") + suffix


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int  # its abort marker


class PartitionLog(NamedTuple):
    """Segments in order, at least one."""

    partition: TopicPartition
    segments: tuple[Segment, ...]
    log_start_offset: int

    def segment_of(self, offset: int) -> int:
        """Number of the segment that would hold the offset."""
        return max(bisect_right(self.segments, offset, key=lambda row: row.base_offset) - 1, 0)

    def aborted_transactions(self) -> list[AbortedTransaction]:
        return [row for segment in self.segments for row in _aborted_in(segment)]


def find_logs(path: str) -> dict[TopicPartition, PartitionLog]:
    """Raises NoLog, or OSError when the path cannot be read."""
    path = os.path.abspath(path.removeprefix("file://"))
    starts = _log_starts(path) or _log_starts(os.path.dirname(path))
    folders = [path, *(row.path for row in os.scandir(path) if row.is_dir())]
    logs = {}
    for folder in folders:
        match = _PARTITION.fullmatch(os.path.basename(folder))
        segments = _segments_in(folder) if match else ()
        if match and segments:
            partition = TopicPartition(match["topic"], int(match["partition"]))
            start = max(segments[0].base_offset, starts.get(partition, 0))
            logs[partition] = PartitionLog(partition, segments, start)
    if not logs:
        raise NoLog(f"{path} holds no <topic>-<partition> folder with segment files")
    return logs


def _segments_in(folder: str) -> tuple[Segment, ...]:
    found = []
    for row in os.scandir(folder):
        match = _SEGMENT.fullmatch(row.name)
        if match:
            found.append(Segment(row.path, int(match["base_offset"]), row.stat().st_size))
    return tuple(sorted(found, key=lambda segment: segment.base_offset))


def _log_starts(directory: str) -> dict[TopicPartition, int]:
    try:
        with open(os.path.join(directory, LOG_START_FILE), encoding="utf-8") as file:
            rows = [line.split() for line in file.read().splitlines()[2:]]
        return {TopicPartition(topic, int(number)): int(start) for topic, number, start in rows}
    except (OSError, ValueError):
        return {}


class OffsetPositions:
    """An offset index: places to begin and to stop."""

    __slots__ = ("_base_offset", "_positions", "_relative_offsets")

    def __init__(self, segment: Segment) -> None:
        self._base_offset = segment.base_offset
        fields = array("I", _used_entries(segment.beside(".index")))
        if byteorder == "little":
            fields.byteswap()
        self._relative_offsets = fields[0::2]
        self._positions = fields[1::2]

    def before(self, offset: int) -> int:
        """A position whose batch begins at or before the offset, as far as the index says."""
        number = bisect_left(self._relative_offsets, max(offset - self._base_offset, 0)) - 1
        return self._positions[number] if number >= 0 else 0

    def after(self, offset: int, size_bytes: int) -> int:
        """A position behind every batch that begins before the offset."""
        number = bisect_left(self._relative_offsets, max(offset - self._base_offset, 0)) + 1
        return self._positions[number] if number < len(self._positions) else size_bytes

    def last(self) -> int:
        return self._positions[-1] if self._positions else 0


def _used_entries(path: str) -> bytes:
    """Entries up to the first without a position: an index that is written is mostly room."""
    try:
        with open(path, "rb", buffering=0) as file:
            entries = os.fstat(file.fileno()).st_size // 8
            used = bisect_left(
                range(entries),
                True,
                key=lambda number: os.pread(file.fileno(), 4, 8 * number + 4) == bytes(4),
            )
            return os.pread(file.fileno(), 8 * used, 0)
    except FileNotFoundError:
        return b""


def begin_position(segment: Segment, positions: OffsetPositions, offset: int) -> int:
    """Where to begin reading for an offset; 0 when the index leads astray."""
    position = positions.before(offset)
    return position if position and _is_batch_before(segment, position, offset) else 0


def _is_batch_before(segment: Segment, position: int, offset: int) -> bool:
    try:
        with open(segment.path, "rb") as file:
            head = os.pread(file.fileno(), MAGIC_POSITION + 1, position)
        return (
            segment.base_offset <= base_offset_at(head) <= offset
            and size_at(head) > LOG_OVERHEAD
            and head[MAGIC_POSITION] <= MAGIC
        )
    except (OSError, error, IndexError):
        return False


class LogEnd(NamedTuple):
    offset: int  # after the last record
    position: int  # after the last batch in the last segment


def find_end(log: PartitionLog) -> LogEnd:
    """Reads the last segment from its last index entry on."""
    segment = log.segments[-1]
    start = OffsetPositions(segment).last()
    if start and not _is_batch_before(segment, start, _NO_LIMIT):
        start = 0
    end = _scan_end(segment, start)
    if end is None:
        end = _scan_end(segment, 0)
    return LogEnd(segment.base_offset, 0) if end is None else end


def _scan_end(segment: Segment, position: int) -> LogEnd | None:
    """None when there is no good batch from there on."""
    end = None
    for start, view, rows in walk_batches(segment.path, position, segment.size_bytes):
        for row in rows:
            batch = view[row.position : row.position + row.size]
            if row.magic == 2 and BatchCheck(*kernel.check_batch(batch)).status != kernel.OK:
                return end
            end = LogEnd(row.last_offset + 1, start + row.position + row.size)
    return end


def walk_batches(
    path: str, position: int, end: int, piece_bytes: int = SCAN_BYTES
) -> Iterator[tuple[int, memoryview, list[BatchRow]]]:
    """Whole batches of a file, a piece at a time: (where the piece begins, its bytes, rows of
    kernel.list_batches). Ends where there is no whole batch. The bytes are good until the next
    piece is asked for."""
    buffer = memoryview(bytearray(min(piece_bytes, max(end - position, 0))))
    with open(path, "rb", buffering=0) as file:
        while position < end:
            view = buffer[: _fill(file.fileno(), buffer[: end - position], position)]
            consumed, why, rows = kernel.list_batches(view, 0, len(view), _BATCHES_MAX)
            if rows:
                yield position, view, rows
                position += consumed
            elif why == kernel.INCOMPLETE and _size_at(view) > len(buffer):
                if position + _size_at(view) > end:
                    return
                buffer = memoryview(bytearray(_size_at(view)))
            else:
                return


def _fill(fileno: int, buffer: memoryview, position: int) -> int:
    filled = 0
    while filled < len(buffer):
        got = os.preadv(fileno, [buffer[filled:]], position + filled)
        if not got:
            break
        filled += got
    return filled


def _size_at(view: memoryview) -> int:
    return size_at(view) if len(view) >= LOG_OVERHEAD else 0


def largest_timestamp(segment: Segment) -> int | None:
    """Of a segment that is no longer written; None when its index does not say."""
    content = _content(segment.beside(".timeindex"), _TIME_ENTRY.size)
    if not content:
        return None
    timestamp: int = _TIME_ENTRY.unpack_from(content, len(content) - _TIME_ENTRY.size)[0]
    return timestamp if timestamp > 0 else None


def _aborted_in(segment: Segment) -> list[AbortedTransaction]:
    content = _content(segment.beside(".txnindex"), _TXN_ENTRY.size)
    return [AbortedTransaction(*row[1:4]) for row in _TXN_ENTRY.iter_unpack(content)]


def _content(path: str, entry_bytes: int) -> bytes:
    """Whole entries; none when there is no such file."""
    try:
        with open(path, "rb") as file:
            content = file.read()
    except FileNotFoundError:
        return b""
    return content[: len(content) // entry_bytes * entry_bytes]
