"""A slice of a segment file that is sent without being read: the records of a Fetch answer.

The slice keeps a reference to the open file, so that retention may unlink the segment while an
answer is still on its way: the descriptor closes when the last slice is gone.
"""

from __future__ import annotations

import os
from typing import Protocol


class OpenFile(Protocol):
    def fileno(self) -> int: ...


class FileRecords:
    __slots__ = ("file", "is_piece", "length", "position")

    def __init__(
        self, file: OpenFile, position: int, length: int, *, is_piece: bool = False
    ) -> None:
        self.file = file
        self.position = position
        self.length = length
        self.is_piece = is_piece  # it ends before its first batch does

    def __len__(self) -> int:
        return self.length

    def fileno(self) -> int:
        return self.file.fileno()

    def read(self) -> bytes:
        """The bytes themselves; shorter than `length` only if the file was cut meanwhile."""
        return os.pread(self.file.fileno(), self.length, self.position)

    def read_part(self, start: int, length: int) -> bytes:
        """At most `length` of the slice's bytes from its byte `start` on."""
        length = min(length, self.length - start)
        return os.pread(self.file.fileno(), length, self.position + start)
