"""A segment as the cleaner's thread reads it: by name, with a descriptor of its own.

Segments that are cleaned are inactive, so their bytes do not change. Their files may be renamed or
go at any time; that is an OSError, which the round turns into an abort.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from tidelog.log.cleaner.grouping import SegmentSize
from tidelog.log.segment import INDEX_SUFFIX, TIME_INDEX_SUFFIX, LogSegment


class SourceSegment:
    __slots__ = ("base_offset", "end_offset", "path", "segment", "size", "start_position")

    def __init__(self, segment: LogSegment, end_offset: int, start_position: int = 0) -> None:
        self.segment = segment  # for the swap, which belongs to the loop
        self.base_offset = segment.base_offset
        self.end_offset = end_offset  # where the next segment begins
        self.path = segment.file.path
        self.size = segment.size
        self.start_position = start_position  # before it nothing is dirty

    @contextmanager
    def open(self) -> Iterator[int]:
        descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def modified_ns(self) -> int:
        return os.stat(self.path).st_mtime_ns

    def measured(self) -> SegmentSize:
        return SegmentSize(
            self.base_offset,
            self.end_offset,
            self.size,
            self._size_of(INDEX_SUFFIX),
            self._size_of(TIME_INDEX_SUFFIX),
        )

    def _size_of(self, suffix: str) -> int:
        try:
            return os.stat(self.segment.path(suffix)).st_size
        except FileNotFoundError:
            return 0
