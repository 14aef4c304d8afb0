"""The segment that will replace a group of segments: its files, and the names they go through.

    .cleaned    being written                       on a crash: removed
    .swap       whole and synced, to replace        on a crash: replaces what it covers
    (live)      in place

Each of the files (.log, .index, .timeindex and, with aborted transactions, .txnindex) carries the
name; they are renamed one after another, the log first. As long as one is still called .cleaned,
the segment does not count. Written in the cleaner's thread, renamed on the broker loop.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from typing import Final

from tidelog.log.log_errors import CannotClean
from tidelog.log.producer_snapshots import SnapshotFiles
from tidelog.log.segment.log_file import LogFile
from tidelog.log.segment.log_segment import (
    CLEANED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    LogSegment,
)
from tidelog.log.segment.offset_index import OffsetIndex
from tidelog.log.segment.segment_scan import WHY_STOPPED
from tidelog.log.segment.time_index import ENTRY as TIME_INDEX_ENTRY
from tidelog.log.segment.time_index import TimeIndex
from tidelog.log.segment.transaction_index import ENTRY as TXN_INDEX_ENTRY
from tidelog.log.segment.transaction_index import AbortedTxn
from tidelog.record import kernel

_NO_LIMIT: Final = 1 << 62
_LARGEST_EPOCH: Final = (1 << 31) - 1


class CleanedSegment:
    """`append` what stays, then `finish`; or `discard` at any time before the swap."""

    def __init__(
        self, directory: str, base_offset: int, *, index_interval_bytes: int, index_bytes_max: int
    ) -> None:
        self.base_offset = base_offset
        self.size = 0
        self._directory = directory
        self._index_bytes_max = index_bytes_max
        # The epochs of what is cleaned are known already.
        self._state = kernel.ScanState.at_start(base_offset, index_interval_bytes, _LARGEST_EPOCH)
        self._offset_index = bytearray()
        self._time_index = bytearray()
        self._suffixes: list[str] = []
        self.discard()
        self._file = LogFile.create(self._path(LOG_SUFFIX, CLEANED_SUFFIX))
        self._suffixes.append(LOG_SUFFIX)

    def append(self, batches: bytes | bytearray | memoryview) -> None:
        """Whole batches, in order."""
        scan = kernel.scan_log(batches, len(batches), self._state, False, _NO_LIMIT, _NO_LIMIT)
        if scan.why != kernel.AT_END:
            raise CannotClean(
                f"{self._file.path} would hold {WHY_STOPPED[scan.why]} at {scan.position}"
            )
        self._state = scan.state
        self._file.write_at(self.size, batches)
        self.size += len(batches)
        self._offset_index += scan.offset_index
        self._time_index += scan.time_index

    def finish(self, aborted: Sequence[AbortedTxn], modified_ns: int) -> None:
        """Write the indexes and sync everything. The log's time is that of what it replaces."""
        state = self._state
        if state.max_timestamp > state.last_time_index_timestamp:
            relative_offset = state.offset_of_max_timestamp - self.base_offset
            self._time_index += TIME_INDEX_ENTRY.pack(state.max_timestamp, relative_offset)
        self._write_index(INDEX_SUFFIX, self._clipped(self._offset_index, OffsetIndex))
        self._write_index(TIME_INDEX_SUFFIX, self._clipped(self._time_index, TimeIndex))
        if aborted:
            entries = b"".join(TXN_INDEX_ENTRY.pack(0, *entry) for entry in aborted)
            self._write_index(TXN_INDEX_SUFFIX, entries)
        os.utime(self._file.fileno(), ns=(modified_ns, modified_ns))
        os.fsync(self._file.fileno())

    def _clipped(self, entries: bytearray, index: type[OffsetIndex] | type[TimeIndex]) -> bytearray:
        return entries[: self._index_bytes_max // index.ENTRY_BYTES * index.ENTRY_BYTES]

    def _write_index(self, suffix: str, content: bytes | bytearray) -> None:
        self._suffixes.append(suffix)
        with open(self._path(suffix, CLEANED_SUFFIX), "wb", buffering=0) as file:
            file.write(content)
            os.fsync(file.fileno())

    def discard(self) -> None:
        """Remove what is called .cleaned, from this cleaning or an earlier one."""
        for suffix in SEGMENT_SUFFIXES:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path(suffix, CLEANED_SUFFIX))

    def swap_in(
        self, replaced: Sequence[LogSegment], snapshots: SnapshotFiles, created_ms: int
    ) -> tuple[LogSegment, list[str]]:
        """Take the place of the segments this one was made from, one rename after another.

        .cleaned -> .swap      of the new files; from here on the next start finishes after a crash
        live -> .deleted       of the old files and of the producer snapshots between them
        .swap -> live          of the new files

        Gives the segment in its place, and the paths that are to be removed later. Readers in the
        middle of an old segment keep its open file; `.deleted` files stay for file.delete.delay.ms
        for those that have yet to open it.
        """
        self._become_swap()
        paths: list[str] = []
        for segment in replaced:
            paths += segment.mark_deleted()
            if segment.base_offset != self.base_offset:
                paths += snapshots.mark_deleted(segment.base_offset)
        return self._go_live(created_ms), paths

    def _become_swap(self) -> None:
        for suffix in self._suffixes:
            os.rename(self._path(suffix, CLEANED_SUFFIX), self._path(suffix, SWAP_SUFFIX))

    def _go_live(self, created_ms: int) -> LogSegment:
        """The segment in place; the names must be free by now."""
        for suffix in self._suffixes:
            os.rename(self._path(suffix, SWAP_SUFFIX), self._path(suffix, ""))
        segment = LogSegment(
            self._directory,
            self.base_offset,
            LogFile(self._path(LOG_SUFFIX, "")),
            self.size,
            index_interval_bytes=self._state.index_interval_bytes,
            created_ms=created_ms,
        )
        segment.max_timestamp = self._state.max_timestamp
        segment.offset_of_max_timestamp = max(self._state.offset_of_max_timestamp, self.base_offset)
        segment.indexes_synced = True
        return segment

    def _path(self, suffix: str, stage: str) -> str:
        return f"{self._directory}/{self.base_offset:020d}{suffix}{stage}"
