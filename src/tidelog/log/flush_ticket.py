"""A flush on its way: made on the broker loop, run in a thread, handed back on the loop.

`run` only syncs files and touches no state of the log. The open files are held by reference and
the others by name, so that a roll, a deletion or a truncation meanwhile does no harm; after a
truncation the log ignores the ticket.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from tidelog.log.index_file import fsync_path
from tidelog.log.log_file import LogFile
from tidelog.log.segment import LogSegment


class FlushTicket:
    __slots__ = ("_files", "_paths", "end_offset", "generation", "segments")

    def __init__(
        self,
        end_offset: int,
        generation: int,
        segments: Sequence[LogSegment],
        files: Sequence[LogFile],
        paths: Sequence[str],
    ) -> None:
        self.end_offset = end_offset
        self.generation = generation
        self.segments = segments  # inactive ones, whose indexes are synced with them
        self._files = files
        self._paths = paths

    def run(self) -> None:
        """OSError when the disk refuses; the log then still counts as unflushed."""
        for file in self._files:
            os.fdatasync(file.fileno())
        for path in self._paths:
            fsync_path(path)
