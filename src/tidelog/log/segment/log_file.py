"""The file of one segment: a descriptor that lives as long as anybody needs it.

Opened on first use, so that a broker with thousands of cold segments holds few descriptors. Whoever
reads (a Fetch answer on its way out) holds a reference to the LogFile; the descriptor closes when
the last reference dies, which may be long after retention has unlinked the file.

Writes go to an explicit position. Bytes after the segment's size, left by a failed write, are
overwritten by the next one, never served, and cut off on close.
"""

from __future__ import annotations

import contextlib
import os


class LogFile:
    __slots__ = ("_descriptor", "path")

    def __init__(self, path: str, descriptor: int = -1) -> None:
        self.path = path
        self._descriptor = descriptor

    @classmethod
    def create(cls, path: str) -> LogFile:
        """A new file; an old one of that name loses its content."""
        return cls(path, os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644))

    def fileno(self) -> int:
        if self._descriptor < 0:
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        return self._descriptor

    @property
    def is_open(self) -> bool:
        return self._descriptor >= 0

    def write_at(self, position: int, data: memoryview | bytearray | bytes) -> None:
        """All of `data` or OSError; after an error the file ends at `position` again if it can."""
        descriptor = self._descriptor if self._descriptor >= 0 else self.fileno()
        try:
            written = os.pwrite(descriptor, data, position)
            if written != len(data):
                self._write_rest(memoryview(data), position, written)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, position)
            raise

    def _write_rest(self, data: memoryview, position: int, written: int) -> None:
        while written < len(data):
            count = os.pwrite(self.fileno(), data[written:], position + written)
            if count == 0:
                raise OSError(f"{self.path} takes no more bytes at {position + written}")
            written += count

    def read_at(self, position: int, length: int) -> bytes:
        return os.pread(self.fileno(), length, position)

    def size_on_disk(self) -> int:
        return os.fstat(self.fileno()).st_size

    def truncate(self, size: int) -> None:
        os.ftruncate(self.fileno(), size)

    def preallocate(self, size: int) -> None:
        os.posix_fallocate(self.fileno(), 0, size)

    def rename(self, path: str) -> None:
        os.rename(self.path, path)
        self.path = path

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def read_into(buffer: bytearray, descriptor: int, position: int, end: int) -> int:
    """Fill `buffer` from `position` on, up to `end`; how many bytes there were."""
    wanted = min(len(buffer), end - position)
    filled = 0
    with memoryview(buffer) as view:
        while filled < wanted:
            count = os.preadv(descriptor, [view[filled:wanted]], position + filled)
            if count == 0:
                break
            filled += count
    return filled
