"""One segment of a log: a `.log` file and its indexes, all named by the segment's base offset.

The active segment is the last of its log and the only one that is written. Its index files are
stretched with the first entry and trimmed when it becomes inactive or the log is closed.

An index entry is due for a batch when more than index.interval.bytes lie between it and the last
indexed batch; after a restart the count begins anew. Indexes carry no checksum. A look-up that
finds a damaged one (wrong size, fields that do not grow, an entry that leads to another batch)
rebuilds both from the batch headers and goes on.

A segment that a start finds on disk and does not recover has a `verification`: its batches are
checked when they are first read, and its index entries against them.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from tidelog.config.topic import LogConfig
from tidelog.log.log_environment import LogEnvironment
from tidelog.log.segment.index_file import CorruptIndex
from tidelog.log.segment.log_file import LogFile
from tidelog.log.segment.offset_index import RELATIVE_OFFSET_MAX, OffsetIndex
from tidelog.log.segment.segment_scan import WHY_STOPPED, SegmentScan
from tidelog.log.segment.time_index import TimeIndex
from tidelog.log.segment.transaction_index import AbortedTxn, TransactionIndex
from tidelog.record import kernel
from tidelog.record.batch import HEADER_SIZE, max_timestamp_of
from tidelog.record.errors import CorruptRecords

if TYPE_CHECKING:
    from tidelog.log.log_validator import ValidBatch
    from tidelog.log.segment.segment_verification import SegmentVerification
    from tidelog.record.kernel import LogScan

logger = logging.getLogger(__name__)

LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
TXN_INDEX_SUFFIX: Final = ".txnindex"
SNAPSHOT_SUFFIX: Final = ".snapshot"
DELETED_SUFFIX: Final = ".deleted"
CLEANED_SUFFIX: Final = ".cleaned"
SWAP_SUFFIX: Final = ".swap"
SEGMENT_SUFFIXES: Final = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)

T = TypeVar("T")

UNKNOWN: Final = -2
WINDOW_BYTES: Final = 8192


class FoundBatch(NamedTuple):
    position: int
    size: int
    base_offset: int
    last_offset: int


class LogSegment:
    __slots__ = (
        "_offset_index",
        "_time_index",
        "_txn_index",
        "base_offset",
        "created_ms",
        "directory",
        "file",
        "index_full",
        "index_interval_bytes",
        "indexed_position",
        "indexes_synced",
        "jitter_ms",
        "max_timestamp",
        "offset_of_max_timestamp",
        "rolling_timestamp",
        "size",
        "verification",
    )

    def __init__(
        self,
        directory: str,
        base_offset: int,
        file: LogFile,
        size: int,
        *,
        index_interval_bytes: int,
        created_ms: int,
        jitter_ms: int = 0,
    ) -> None:
        self.directory = directory
        self.base_offset = base_offset
        self.file = file
        self.size = size  # bytes that hold batches; the file may be longer after a failed write
        self.index_interval_bytes = index_interval_bytes
        self.created_ms = created_ms
        self.jitter_ms = jitter_ms
        # The largest timestamp and the last offset of the first batch that has it; UNKNOWN until
        # read from the time index, -1 if there is none.
        self.max_timestamp = UNKNOWN if size else -1
        self.offset_of_max_timestamp = base_offset
        # Largest timestamp of the first batch, from which segment.ms counts; UNKNOWN until read.
        self.rolling_timestamp = UNKNOWN
        self.indexed_position = size
        self.index_full = False
        self.indexes_synced = False  # nothing was written to them since their last sync
        self.verification: SegmentVerification | None = None
        self._offset_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self._txn_index: TransactionIndex | None = None

    @classmethod
    def create(
        cls,
        directory: str,
        base_offset: int,
        *,
        index_interval_bytes: int,
        created_ms: int,
        jitter_ms: int = 0,
        preallocate_bytes: int = 0,
    ) -> LogSegment:
        """A new, empty segment in place of any old files; none are left when that fails.

        The index files come with the first batch: making files is what costs most when thousands
        of partitions are created.
        """
        stem = f"{directory}/{base_offset:020d}"
        try:
            file = LogFile.create(stem + LOG_SUFFIX)
            if preallocate_bytes:
                file.preallocate(preallocate_bytes)
            for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(stem + suffix)
        except OSError:
            for suffix in SEGMENT_SUFFIXES:
                with contextlib.suppress(OSError):
                    os.unlink(stem + suffix)
            raise
        segment = cls(
            directory,
            base_offset,
            file,
            0,
            index_interval_bytes=index_interval_bytes,
            created_ms=created_ms,
            jitter_ms=jitter_ms,
        )
        return segment

    def path(self, suffix: str) -> str:
        return f"{self.directory}/{self.base_offset:020d}{suffix}"

    def index_paths(self) -> list[str]:
        return [self.path(suffix) for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)]

    # Writing

    def append(
        self,
        data: memoryview | bytearray | bytes,
        last_offset: int,
        max_timestamp: int,
        index_bytes_max: int,
    ) -> None:
        """One batch. After an OSError the segment is as it was."""
        if self.max_timestamp == UNKNOWN:
            self.load_max_timestamp()
        position = self.size
        index_due = position - self.indexed_position > self.index_interval_bytes
        if index_due:
            self._reserve_index_entries(index_bytes_max)
        elif position == 0:
            self._create_index_files()
        self.file.write_at(position, data)
        self.size = position + len(data)
        if position == 0:
            self.rolling_timestamp = max_timestamp
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.offset_of_max_timestamp = last_offset
        if index_due:
            self._append_index_entries(last_offset, position, index_bytes_max)

    def append_all(
        self, batches: Sequence[ValidBatch], entries_due: int, index_bytes_max: int
    ) -> None:
        """As `append` of each, in one write, to a segment that is not empty. So many index entries
        are due, and there is room for them. After an OSError the segment is as it was.

        The batches are small: to copy them together costs less than a vector of them.
        """
        if self.max_timestamp == UNKNOWN:
            self.load_max_timestamp()
        if entries_due:
            self._reserve_index_entries(index_bytes_max, entries_due)
        self.file.write_at(self.size, b"".join([batch.data for batch in batches]))
        for batch in batches:
            position = self.size
            self.size = position + batch.size
            if batch.max_timestamp > self.max_timestamp:
                self.max_timestamp = batch.max_timestamp
                self.offset_of_max_timestamp = batch.last_offset
            if position - self.indexed_position > self.index_interval_bytes:
                self._append_index_entries(batch.last_offset, position, index_bytes_max)

    def _create_index_files(self) -> None:
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
            os.close(os.open(self.path(suffix), flags, 0o644))

    def _reserve_index_entries(self, index_bytes_max: int, count: int = 1) -> None:
        self.indexes_synced = False
        self._with_indexes(lambda: self.offset_index.reserve(index_bytes_max, count))
        self._with_indexes(lambda: self.time_index.reserve(index_bytes_max, count))

    def _append_index_entries(self, last_offset: int, position: int, index_bytes_max: int) -> None:
        self.offset_index.append(last_offset, position)
        self.time_index.maybe_append(self.max_timestamp, self.offset_of_max_timestamp)
        self.indexed_position = position
        self._note_index_full(index_bytes_max)

    def _note_index_full(self, index_bytes_max: int) -> None:
        self.index_full = self.index_room(index_bytes_max) <= 0

    def index_room(self, index_bytes_max: int) -> int:
        """How many entries more make one of the indexes full."""
        return min(
            index_bytes_max // OffsetIndex.ENTRY_BYTES - self.offset_index.entries,
            index_bytes_max // TimeIndex.ENTRY_BYTES - 1 - self.time_index.entries,
        )

    def scan_for_append(self, data: memoryview, next_offset: int, leader_epoch: int) -> LogScan:
        """What the kernel finds in batches that are about to be appended."""
        if self.max_timestamp == UNKNOWN:
            self.load_max_timestamp()
        state = kernel.ScanState(
            segment_base_offset=self.base_offset,
            index_interval_bytes=self.index_interval_bytes,
            file_position=self.size,
            next_offset=next_offset,
            max_timestamp=self.max_timestamp,
            offset_of_max_timestamp=self.offset_of_max_timestamp,
            bytes_since_last_index_entry=self.size - self.indexed_position,
            last_time_index_timestamp=self._with_indexes(lambda: self.time_index.last_timestamp()),
            leader_epoch=leader_epoch,
        )
        return kernel.scan_log(data, len(data), state, True, 1 << 31, 1 << 31)

    def append_scanned(self, data: memoryview, scan: LogScan, index_bytes_max: int) -> None:
        """Whole batches and the index entries that `scan_for_append` found due for them."""
        offset_entries = self._clip(scan.offset_index, self.offset_index, index_bytes_max)
        time_entries = self._clip(scan.time_index, self.time_index, index_bytes_max)
        self.indexes_synced = False
        if offset_entries:
            self.offset_index.reserve(index_bytes_max, len(offset_entries) // 8)
        if time_entries:
            self.time_index.reserve(index_bytes_max, len(time_entries) // 12)
        position = self.size
        if position == 0:
            self._create_index_files()
        self.file.write_at(position, data)
        self.size = position + len(data)
        if position == 0:
            self.rolling_timestamp = max_timestamp_of(bytes(data[:HEADER_SIZE]))
        self.max_timestamp = scan.state.max_timestamp
        self.offset_of_max_timestamp = scan.state.offset_of_max_timestamp
        if offset_entries:
            self.offset_index.extend(offset_entries)
        if time_entries:
            self.time_index.extend(time_entries)
        self.indexed_position = self.size - scan.state.bytes_since_last_index_entry
        self._note_index_full(index_bytes_max)

    @staticmethod
    def _clip(entries: bytes, index: OffsetIndex | TimeIndex, index_bytes_max: int) -> bytes:
        room = max(index_bytes_max // index.ENTRY_BYTES - index.entries, 0)
        return entries[: room * index.ENTRY_BYTES]

    def has_room_for(self, last_offset: int) -> bool:
        return last_offset - self.base_offset <= RELATIVE_OFFSET_MAX

    def waited_for_roll_ms(self, now_ms: int, max_timestamp: int) -> int:
        """How long the segment has been filling, by its records' clock if they have one."""
        rolling = self.rolling_timestamp
        if rolling == UNKNOWN:
            rolling = self.first_timestamp()
        return max_timestamp - rolling if rolling >= 0 else now_ms - self.created_ms

    def should_roll(
        self,
        size: int,
        last_offset: int,
        max_timestamp: int,
        now_ms: int,
        segment_bytes: int,
        max_segment_ms: int,
    ) -> bool:
        """Whether so many bytes more, up to that offset and timestamp, belong to a new segment."""
        return (
            size > segment_bytes - self.size
            or self.index_full
            or last_offset - self.base_offset > RELATIVE_OFFSET_MAX
            or (
                self.size > 0
                and self.waited_for_roll_ms(now_ms, max_timestamp) > max_segment_ms - self.jitter_ms
            )
        )

    def first_timestamp(self) -> int:
        """The largest one of the first batch, from which segment.ms counts; -1 if there is none."""
        if self.rolling_timestamp == UNKNOWN:
            if self.size == 0:
                return -1
            self.rolling_timestamp = max_timestamp_of(self.file.read_at(0, HEADER_SIZE))
        return self.rolling_timestamp

    def become_inactive(self) -> None:
        """The largest timestamp goes into the time index, and the files are cut to their size."""
        self.indexes_synced = False
        self._with_indexes(self._append_last_time_entry)
        self._trim()

    def _append_last_time_entry(self) -> None:
        if self.max_timestamp >= 0 and self.max_timestamp > self.time_index.last_timestamp():
            self.indexes_synced = False
            self.time_index.append_last(self.max_timestamp, self.offset_of_max_timestamp)

    def _trim(self) -> None:
        for index in (self._offset_index, self._time_index):
            if index is not None:
                index.trim()
        if self.file.is_open and self.file.size_on_disk() != self.size:
            self.file.truncate(self.size)

    def truncate_to(
        self, offset: int, index_bytes_max: int, max_timestamp: tuple[int, int] | None = None
    ) -> int:
        """Drop the batch that holds `offset` and all after it; the number of bytes dropped.

        The largest timestamp of what is kept, with its offset, is looked for if it is not given.
        """
        found = self.find_batch(offset)
        self.indexes_synced = False
        self._with_indexes(lambda: self.offset_index.keep_below(offset))
        self._with_indexes(lambda: self.time_index.keep_below(offset))
        self.txn_index.keep_below(offset)
        dropped = 0
        if found is not None:
            dropped = self.size - found.position
            self.file.truncate(found.position)
            self.size = found.position
            if self.verification is not None:
                self.verification.truncated()
        if self.size == 0:
            self.rolling_timestamp = UNKNOWN
        self.indexed_position = self.size
        self._note_index_full(index_bytes_max)
        self.max_timestamp = UNKNOWN if self.size else -1
        self.offset_of_max_timestamp = self.base_offset
        if self.size:
            self.max_timestamp, self.offset_of_max_timestamp = (
                max_timestamp or self._find_max_timestamp(offset)
            )
        return dropped

    def timestamps_known_below(self, offset: int) -> tuple[tuple[int, int], int]:
        """The last time index entry below `offset`, and the position from which on the batches
        themselves tell."""
        entry = self._with_indexes(lambda: self.time_index.last_entry_below(offset))
        return entry, self.indexed_position_of(entry[1])

    def _find_max_timestamp(self, below_offset: int) -> tuple[int, int]:
        entry, position = self.timestamps_known_below(below_offset)
        scan = self.scan(verify_crc=False, position=position).run()
        if scan.max_timestamp > entry[0]:
            return scan.max_timestamp, scan.offset_of_max_timestamp
        return entry

    # Reading

    def find_batch(self, offset: int) -> FoundBatch | None:
        """The first batch whose last offset is at or above `offset`."""
        return self._walk_to(offset, self.indexed_position_of(offset))

    def indexed_position_of(self, offset: int) -> int:
        """Position of a batch at or before the one that holds `offset`, by the index."""
        if offset <= self.base_offset:
            return 0
        return self._with_indexes(lambda: self._verified(self.offset_index.lookup(offset)))

    def indexed_position_before(self, position: int) -> int:
        """Of a batch that begins before `position`, by the index; 0 if it knows none."""
        if position == 0:
            return 0
        return self._with_indexes(
            lambda: self._verified(self.offset_index.lookup_position(position - 1) or (0, 0))
        )

    def _verified(self, entry: tuple[int, int]) -> int:
        """The position of an index entry, if the batch there is the one it means."""
        offset, position = entry
        if position and self._last_offset_at(position) != offset:
            raise CorruptIndex(f"an entry of {self.path(INDEX_SUFFIX)} leads astray")
        return position

    def _with_indexes(self, look: Callable[[], T]) -> T:
        """What `look` finds in the indexes, which are rebuilt if it finds them damaged."""
        try:
            return look()
        except CorruptIndex as problem:
            self.rebuild_indexes(str(problem))
        try:
            return look()
        except CorruptIndex as problem:
            raise CorruptRecords(f"{self.file.path} contradicts itself: {problem}") from problem

    def batch_at(self, position: int) -> tuple[int, int]:
        """(size, offset after it) of the batch that begins at `position`."""
        head = self.file.read_at(position, HEADER_SIZE)
        found, _, size, _, last_offset = kernel.find_offset(head, 0, len(head), 0)
        if found != 1:
            raise self.no_batch_at(position)
        return size, last_offset + 1

    def no_batch_at(self, position: int) -> CorruptRecords:
        if self.verification is not None:
            self.verification.note_no_batch(self, position)
        return CorruptRecords(f"{self.file.path} holds no batch at position {position}")

    def _last_offset_at(self, position: int) -> int:
        """Of the batch at `position`; -1 if none is there."""
        if position >= self.size:
            return -1
        head = self.file.read_at(position, HEADER_SIZE)
        found, _, _, _, last_offset = kernel.find_offset(head, 0, len(head), 0)
        return last_offset if found == 1 else -1

    def _walk_to(self, offset: int, position: int) -> FoundBatch | None:
        while position < self.size:
            window = self.file.read_at(position, min(WINDOW_BYTES, self.size - position))
            found, at, size, base_offset, last_offset = kernel.find_offset(
                window, 0, len(window), offset
            )
            if found == 1:
                return FoundBatch(position + at, size, base_offset, last_offset)
            if found < 0 or at == 0:
                raise self.no_batch_at(position + at)
            position += at
        return None

    def find_batch_by_timestamp(
        self, timestamp: int, position: int, offset: int
    ) -> FoundBatch | None:
        """The first batch from `position` on with a record that may be what is looked for."""
        while position < self.size:
            window = self.file.read_at(position, min(8 * WINDOW_BYTES, self.size - position))
            found, at, size, base_offset, last_offset = kernel.find_timestamp(
                window, 0, len(window), timestamp, offset
            )
            if found == 1:
                return FoundBatch(position + at, size, base_offset, last_offset)
            if found < 0 or at == 0:
                raise self.no_batch_at(position + at)
            position += at
        return None

    def position_for_timestamp(self, timestamp: int, start_offset: int) -> int:
        """A position from which no record that is looked for has been passed."""
        entry = self._with_indexes(lambda: self._verified_time(self.time_index.lookup(timestamp)))
        return self.indexed_position_of(max(entry[1], start_offset))

    def _verified_time(self, entry: tuple[int, int]) -> tuple[int, int]:
        """A time index entry, if the batch that it means has that timestamp."""
        timestamp, offset = entry
        if timestamp >= 0 and self.verification is not None:
            batch = self.find_batch(offset)
            if (
                batch is None
                or batch.last_offset != offset
                or max_timestamp_of(self.file.read_at(batch.position, HEADER_SIZE)) != timestamp
            ):
                raise CorruptIndex(f"an entry of {self.path(TIME_INDEX_SUFFIX)} leads astray")
        return entry

    def _verified_last_time(self) -> tuple[int, int]:
        """The last time index entry, if nothing after it has a larger timestamp."""
        entry = self._verified_time(self.time_index.last_entry())
        if self.verification is not None and entry[0] >= 0:
            position = self.indexed_position_of(entry[1])
            if self.scan(verify_crc=False, position=position).run().max_timestamp > entry[0]:
                raise CorruptIndex(f"{self.path(TIME_INDEX_SUFFIX)} lacks its last entries")
        return entry

    def aligned_end(self, position: int, end: int) -> tuple[int, int] | None:
        """(position, base offset) of the last indexed batch in (position, end], if there is one."""
        if self._offset_index is None and self.size <= self.index_interval_bytes:
            return None
        entry = self._with_indexes(lambda: self.offset_index.lookup_position(end))
        if entry is None or entry[1] <= position:
            return None
        head = self.file.read_at(entry[1], HEADER_SIZE)
        found, _, _, base_offset, last_offset = kernel.find_offset(head, 0, len(head), 0)
        if found != 1 or last_offset != entry[0]:
            return None
        return entry[1], base_offset

    def largest_timestamp(self) -> int:
        """By the file's modification time if the records have none."""
        if self.max_timestamp == UNKNOWN:
            self.load_max_timestamp()
        if self.max_timestamp >= 0:
            return self.max_timestamp
        return self.modified_ms()

    def modified_ms(self) -> int:
        return os.stat(self.file.path).st_mtime_ns // 1_000_000

    def load_max_timestamp(self) -> None:
        """From the time index; rebuilt first if it is empty though the segment is not.

        Of a damaged segment, the largest of what can be read.
        """
        try:
            entry = self._with_indexes(self._verified_last_time)
        except CorruptRecords:
            entry = self.time_index.last_entry()
            if self.verification is not None:
                self.verification.is_searchable = False
        if entry[0] < 0 and self.size:
            self.rebuild_indexes(f"{self.path(TIME_INDEX_SUFFIX)} is empty")
            entry = self.time_index.last_entry()
        self.max_timestamp, self.offset_of_max_timestamp = entry

    def find_end(self) -> tuple[int, int]:
        """(offset, position) after the last whole batch, found through the index."""
        if self.size == 0:
            return self.base_offset, 0
        position = self._with_indexes(lambda: self._verified(self.offset_index.last_entry()))
        scan = self.scan(verify_crc=False, position=position).run()
        return scan.next_offset, scan.position

    def upper_bound_offset(self, position: int) -> int | None:
        """Of the first indexed batch at or after `position`."""
        return self._with_indexes(lambda: self._verified_offset_above(position))

    def _verified_offset_above(self, position: int) -> int | None:
        entry = self.offset_index.first_above_position(position)
        if entry is None:
            return None
        self._verified(entry)
        return entry[0]

    def scan(self, *, verify_crc: bool, position: int = 0) -> SegmentScan:
        return SegmentScan(
            self.file.fileno(),
            self.base_offset,
            self.size,
            self.index_interval_bytes,
            verify_crc=verify_crc,
            position=position,
        )

    # Indexes

    @property
    def offset_index(self) -> OffsetIndex:
        if self._offset_index is None:
            path = self.path(INDEX_SUFFIX)
            entries = self._entries_in(path, OffsetIndex.ENTRY_BYTES)
            self._offset_index = OffsetIndex(path, self.base_offset, entries)
        return self._offset_index

    @property
    def time_index(self) -> TimeIndex:
        if self._time_index is None:
            path = self.path(TIME_INDEX_SUFFIX)
            entries = self._entries_in(path, TimeIndex.ENTRY_BYTES)
            self._time_index = TimeIndex(path, self.base_offset, entries)
        return self._time_index

    def _entries_in(self, path: str, entry_bytes: int) -> int:
        try:
            size = os.stat(path).st_size
        except FileNotFoundError:
            if self.size == 0:
                return 0
            raise CorruptIndex(f"{path} is missing") from None
        if size % entry_bytes:
            raise CorruptIndex(f"{path} does not end with a whole entry")
        return size // entry_bytes

    @property
    def txn_index(self) -> TransactionIndex:
        if self._txn_index is None:
            self._txn_index = TransactionIndex(self.path(TXN_INDEX_SUFFIX), self.base_offset)
        return self._txn_index

    def rebuild_indexes(self, why: str) -> None:
        logger.warning("rebuilding the indexes of %s: %s", self.file.path, why)
        scan = self.scan(verify_crc=False).run()
        if scan.why != kernel.AT_END:
            if self.verification is not None:
                self.verification.note_broken(self, scan.position, WHY_STOPPED[scan.why])
            else:
                logger.error(
                    "%s holds %s at position %d",
                    self.file.path,
                    WHY_STOPPED[scan.why],
                    scan.position,
                )
        self.install_indexes(scan)

    def install_indexes(self, scan: SegmentScan) -> None:
        """Write the indexes that a scan of the whole segment has computed."""
        self.release()
        offset_index = OffsetIndex(self.path(INDEX_SUFFIX), self.base_offset, 0)
        offset_index.replace(bytes(scan.offset_index))
        time_index = TimeIndex(self.path(TIME_INDEX_SUFFIX), self.base_offset, 0)
        time_index.replace(scan.whole_time_index())
        self._offset_index, self._time_index = offset_index, time_index
        self.max_timestamp = scan.max_timestamp
        self.offset_of_max_timestamp = max(scan.offset_of_max_timestamp, self.base_offset)
        self.indexed_position = self.size
        self.indexes_synced = False

    # End of life

    def close(self) -> list[str]:
        """Leave the files as a clean stop leaves them; the index files that are to be synced."""
        if self._offset_index is None and self._time_index is None and not self.file.is_open:
            return []
        if self.max_timestamp != UNKNOWN:
            self._with_indexes(self._append_last_time_entry)
        self._trim()
        return self.index_paths() if self.size and not self.indexes_synced else []

    def add_aborted(self, aborted: AbortedTxn) -> None:
        self.indexes_synced = False
        self.txn_index.append(aborted)

    def release(self) -> None:
        """Give back maps until they are needed again; an idle partition holds one descriptor."""
        for index in (self._offset_index, self._time_index):
            if index is not None:
                index.close()

    def let_go_of_file(self) -> None:
        """It stays open for who still reads it. The next use of the segment opens it anew."""
        self.file = LogFile(self.file.path)

    def move_to(self, directory: str) -> None:
        """The log's folder has been renamed."""
        self.release()
        self.directory = directory
        self.file.path = self.path(LOG_SUFFIX)
        if self._offset_index is not None:
            self._offset_index.path = self.path(INDEX_SUFFIX)
        if self._time_index is not None:
            self._time_index.path = self.path(TIME_INDEX_SUFFIX)
        self._txn_index = None  # read again when it is needed; the others may be stretched

    def mark_deleted(self) -> list[str]:
        """Rename the files; the paths that are to be removed later. Readers keep the open file."""
        self.release()
        self._offset_index = self._time_index = self._txn_index = None
        renamed = []
        for suffix in SEGMENT_SUFFIXES:
            path = self.path(suffix)
            with contextlib.suppress(FileNotFoundError):
                os.rename(path, path + DELETED_SUFFIX)
                renamed.append(path + DELETED_SUFFIX)
        self.file.path = self.path(LOG_SUFFIX) + DELETED_SUFFIX
        return renamed


def new_segment(
    directory: str, base_offset: int, config: LogConfig, environment: LogEnvironment
) -> LogSegment:
    return LogSegment.create(
        directory,
        base_offset,
        index_interval_bytes=config.index_interval_bytes,
        created_ms=environment.clock.time_ms(),
        jitter_ms=roll_jitter_ms(config, environment),
        preallocate_bytes=config.segment_bytes if config.preallocate else 0,
    )


def roll_jitter_ms(config: LogConfig, environment: LogEnvironment) -> int:
    """So that the segments of many partitions do not all roll at once."""
    if config.segment_jitter_ms <= 0:
        return 0
    return environment.random.randrange(min(config.segment_jitter_ms, config.segment_ms))
