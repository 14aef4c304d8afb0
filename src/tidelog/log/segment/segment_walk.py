"""Walks over large segments, made in a thread.

A walk over a large segment takes seconds if it is not in memory. So whoever asks on the event loop
for what takes one gets `WalkDue` instead of an answer, has a thread `run` the walk, calls
`note_result` on the loop, and asks again.

    walk             is due
    SegmentWalk      before a read_committed reader sees transactional batches of a segment that
                     was there before this start: for its markers (`transaction_index_check.py`)
    BatchLookup      before a time look-up inside a batch that takes long to inflate
                     (`time_lookup.py`)
    TruncationWalk   before a follower cuts its log (`truncation_walk.py`)

The thread touches nothing but files. A walk that meets anything unusual decides nothing: the loop
then does all of it, with the means it has for damage. Whoever asks while a walk is under way gets
the same one, so that hundreds of readers that start together cost one walk.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.log.segment.segment_scan import SegmentScan

if TYPE_CHECKING:
    from tidelog.log.segment.log_file import LogFile
    from tidelog.log.segment.log_segment import LogSegment

LOOP_BYTES_MAX: Final = 4 << 20  # a walk over more is for a thread


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

    def note_result(self) -> None:  # noqa: B027
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
