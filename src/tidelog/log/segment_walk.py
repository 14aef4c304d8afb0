"""Walks over large segments, made in a thread.

A walk over a large segment takes seconds if it is not in memory. So whoever asks on the event loop
for what takes one gets `WalkDue` instead of an answer, has a thread `run` the walk, calls `settle`
on the loop, and asks again.

    walk             is due
    SegmentWalk      before a read_committed reader sees transactional batches of a segment that
                     was there before this start: for its markers (`txn_index_check.py`)
    BatchLookup      before a time look-up inside a batch that takes long to inflate
                     (`time_lookup.py`)
    TruncationWalk   before a follower cuts its log (`truncation_walk.py`)

The thread touches nothing but files. A walk that meets anything unusual decides nothing: the loop
then does all of it, with the means it has for damage. Whoever asks while a walk is under way gets
the same one, so that hundreds of readers that start together cost one walk.
"""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.log.abort_evidence import AbortEvidence
from tidelog.log.producer_state import ProducerStateTable
from tidelog.log.segment_scan import SegmentScan
from tidelog.log.snapshot_files import SnapshotFiles

if TYPE_CHECKING:
    from tidelog.log.log_file import LogFile
    from tidelog.log.segment import LogSegment

LOOP_BYTES_MAX: Final = 4 << 20  # a walk over more is for a thread

_TRANSACTIONAL_BIT = 0x10


class WalkDue(Exception):
    """A walk over a segment comes first."""

    def __init__(self, walk: Walk) -> None:
        super().__init__(walk.path)
        self.walk = walk


class Walk(ABC):
    def __init__(self, path: str) -> None:
        self.path = path
        self.is_clean = False  # it has been made, and nothing was unusual
        self._running = threading.Lock()
        self._has_run = False

    @property
    def has_run(self) -> bool:
        return self._has_run

    def run(self) -> None:
        """For any thread. If another one is at it, this waits until that one is done."""
        with self._running:
            if self._has_run:
                return
            try:
                self.is_clean = self._walk()
            except OSError:
                self.is_clean = False  # the loop will meet it, and report it
            self._has_run = True

    @abstractmethod
    def _walk(self) -> bool:
        """In the thread; whether nothing was unusual."""

    def settle(self) -> None:  # noqa: B027
        """On the loop, after `run`; nothing for a walk whose asker takes what it found."""


class WalkedFile(NamedTuple):
    file: LogFile  # held, so that it stays open
    descriptor: int
    base_offset: int
    size: int
    index_interval_bytes: int

    @classmethod
    def of(cls, segment: LogSegment) -> WalkedFile:
        return cls(
            segment.file,
            segment.file.fileno(),
            segment.base_offset,
            segment.size,
            segment.index_interval_bytes,
        )

    def scan(self, *, verify_crc: bool, position: int = 0) -> SegmentScan:
        return SegmentScan(
            self.descriptor,
            self.base_offset,
            self.size,
            self.index_interval_bytes,
            verify_crc=verify_crc,
            position=position,
        )


class SegmentWalk(Walk):
    """`evidence` and `next_offset` are there once it `is_clean`: up to `end`, the segment is."""

    def __init__(
        self,
        segment: LogSegment,
        earlier: Sequence[LogSegment],
        snapshots: SnapshotFiles,
        *,
        limit_offset: int,
        log_start_offset: int,
        now_ms: int,
        expiration_ms: int,
    ) -> None:
        assert segment.unverified is not None
        super().__init__(segment.file.path)
        self._segment = segment
        self._truncations = segment.unverified.truncations
        self._gaps_allowed = segment.unverified.gaps_allowed
        self._file = WalkedFile.of(segment)
        self.end = self._file.size
        older = [
            offset
            for offset in snapshots.offsets()
            if log_start_offset < offset <= segment.base_offset
        ]
        self._snapshots = SnapshotFiles(snapshots.directory, older)
        known_offset = max(self._snapshots.latest_offset, log_start_offset)
        first = max(bisect_right([each.base_offset for each in earlier], known_offset) - 1, 0)
        self._earlier = [WalkedFile.of(each) for each in earlier[first:] if each.size]
        self._known_from = known_offset
        self._limit_offset = limit_offset
        self._log_start_offset = log_start_offset
        self._now_ms = now_ms
        self._expiration_ms = expiration_ms
        self._has_transactions = False
        self.table = ProducerStateTable()
        self.evidence: AbortEvidence
        self.next_offset = -1
        self.is_settled = False

    def _walk(self) -> bool:
        return self._load_producers() and self._look_over()

    def _load_producers(self) -> bool:
        """What is known of producers where the segment begins."""
        base_offset = self._file.base_offset
        table = self.table
        known_offset = self._snapshots.load_latest(table, self._now_ms, self._expiration_ms)
        known_offset = max(known_offset, self._log_start_offset)
        if known_offset != self._known_from:
            return False  # a snapshot is damaged
        if known_offset >= base_offset:
            return True
        for file in self._earlier:
            for piece in file.scan(verify_crc=False):
                for row in piece.producers:
                    if known_offset <= row.last_offset < base_offset:
                        table.replay(row)
        return True

    def _look_over(self) -> bool:
        file = self._file
        head = os.pread(file.descriptor, 8, 0)
        first_offset = int.from_bytes(head, "big", signed=True)
        if first_offset != file.base_offset and not (
            self._gaps_allowed and first_offset > file.base_offset
        ):
            return False
        self.evidence = evidence = AbortEvidence(self.table)
        scan = file.scan(verify_crc=True)
        for piece in scan:
            for row in piece.producers:
                self._has_transactions |= bool(row.attributes & _TRANSACTIONAL_BIT)
                evidence.see(row)
        self.next_offset = scan.next_offset
        return scan.position == file.size and scan.next_offset <= self._limit_offset

    def settle(self) -> None:
        unverified = self._segment.unverified
        if self.is_settled or unverified is None or unverified.truncations != self._truncations:
            return
        self.is_settled = True
        if self.is_clean:
            unverified.note_whole(
                self.end, self.next_offset, has_transactions=self._has_transactions
            )
