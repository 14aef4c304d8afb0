"""A sorted file of fixed-size entries beside a segment: what offset and time index have in common.

    state      file                                 map
    unused     any size                             none; entries are counted by the size
    readable   trimmed to its entries               read-only
    writable   stretched to segment.index.bytes     read-write

The map is made on first use and dropped by `trim` and `close`, so an idle partition holds none.
A store into a hole of a mapped file kills the process when the disk is full; therefore `reserve`
allocates the blocks of the next entries first, where a full disk is an ordinary OSError.
Touched only on the broker loop; `fsync` works on the path and may run in a thread.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
from abc import ABC, abstractmethod
from typing import ClassVar, Final

RESERVE_STEP_BYTES: Final = 16384
# Without it the first store into a page reads megabytes of nothing behind it into the page cache.
_ACCESS_AT_RANDOM: Final[int] = getattr(mmap, "MADV_RANDOM", -1)  # -1: there is no such advice


class CorruptIndex(Exception):
    """The entries cannot be right; the index is to be rebuilt from the segment."""


class IndexFile(ABC):
    __slots__ = (
        "_longer_than_entries",
        "_map",
        "_reserved_bytes",
        "_writable",
        "base_offset",
        "entries",
        "path",
    )

    ENTRY_BYTES: ClassVar[int]

    def __init__(self, path: str, base_offset: int, entries: int) -> None:
        self.path = path
        self.base_offset = base_offset
        self.entries = entries
        self._map: mmap.mmap | None = None
        self._writable = False
        # Bytes from the start of the file whose blocks exist; a store beyond needs `reserve`.
        self._reserved_bytes = 0
        self._longer_than_entries = False  # whether there is something for `trim` to do

    def reserve(self, capacity_bytes: int, count: int = 1) -> None:
        """Make room for `count` more entries; OSError when the disk is full."""
        needed = (self.entries + count) * self.ENTRY_BYTES
        if needed > self._reserved_bytes:
            if self._map is None or not self._writable or needed > len(self._map):
                self._stretch(max(capacity_bytes, needed))
            self._allocate(needed)

    def extend(self, content: bytes) -> None:
        """Whole entries, made elsewhere; `reserve` comes first."""
        assert self._map is not None
        start = self.entries * self.ENTRY_BYTES
        self._map[start : start + len(content)] = content
        self.entries += len(content) // self.ENTRY_BYTES

    def append_written(self, content: bytes) -> None:
        """Whole entries, by a system call and not through the map: a disk that is dead or full is
        then an OSError, where a store into the map might kill the process.
        """
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            written = os.pwrite(descriptor, content, self.entries * self.ENTRY_BYTES)
        finally:
            os.close(descriptor)
        if written < len(content):
            raise OSError(errno.ENOSPC, f"{self.path} takes no more bytes")
        self.entries += len(content) // self.ENTRY_BYTES
        if self._map is not None and len(self._map) < self.entries * self.ENTRY_BYTES:
            self._unmap()

    def _stretch(self, capacity_bytes: int) -> None:
        capacity_bytes -= capacity_bytes % self.ENTRY_BYTES
        self._unmap()
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            size = os.fstat(descriptor).st_size
            if size < capacity_bytes:
                os.ftruncate(descriptor, capacity_bytes)
            self._map = mmap.mmap(descriptor, max(size, capacity_bytes))
            if _ACCESS_AT_RANDOM >= 0:
                self._map.madvise(_ACCESS_AT_RANDOM)
        finally:
            os.close(descriptor)
        self._writable = True
        self._longer_than_entries = True
        self._reserved_bytes = 0

    def _allocate(self, needed: int) -> None:
        assert self._map is not None
        until = min(needed + RESERVE_STEP_BYTES, len(self._map))
        descriptor = self._open(os.O_RDWR)
        try:
            os.posix_fallocate(descriptor, 0, until)
        finally:
            os.close(descriptor)
        self._reserved_bytes = until

    def _open(self, mode: int = os.O_RDONLY) -> int:
        try:
            return os.open(self.path, mode | os.O_CLOEXEC)
        except FileNotFoundError:
            raise CorruptIndex(f"{self.path} has been removed") from None

    def view(self) -> mmap.mmap:
        """The map, at least `entries` long. There must be entries."""
        if self._map is None:
            length = self.entries * self.ENTRY_BYTES
            descriptor = self._open()
            try:
                if os.fstat(descriptor).st_size < length:
                    raise CorruptIndex(f"{self.path} is shorter than its {self.entries} entries")
                self._map = mmap.mmap(descriptor, length, access=mmap.ACCESS_READ)
            finally:
                os.close(descriptor)
            try:
                self.check()
            except CorruptIndex:
                self._unmap()
                raise
        return self._map

    def entry_bytes(self, number: int) -> bytes:
        """One entry, without a map if there is none yet: what loading and retention need."""
        start = number * self.ENTRY_BYTES
        if self._map is not None:
            return self._map[start : start + self.ENTRY_BYTES]
        descriptor = self._open()
        try:
            found = os.pread(descriptor, self.ENTRY_BYTES, start)
        finally:
            os.close(descriptor)
        if len(found) < self.ENTRY_BYTES:
            raise CorruptIndex(f"{self.path} is shorter than its {self.entries} entries")
        return found

    @abstractmethod
    def check(self) -> None:
        """CorruptIndex unless the entries are sorted; called once for every map of an old file."""

    def keep_entries(self, count: int) -> None:
        """Forget the entries from `count` on; the file stays as long as it is."""
        assert count <= self.entries, (count, self.entries)
        self._longer_than_entries = self._longer_than_entries or count < self.entries
        self.entries = count

    def trim(self) -> None:
        """Cut the file to its entries; what a roll and a clean stop do."""
        length = self.entries * self.ENTRY_BYTES
        if self._longer_than_entries:
            try:
                os.truncate(self.path, length)
            except FileNotFoundError:
                self.replace(self._map[:length] if self._map is not None else b"")
        self._longer_than_entries = False
        self._unmap()

    def replace(self, content: bytes) -> None:
        """Write the whole index anew, as recovery has computed it, unless it is there already.

        To empty a file costs more than to read it, and most indexes are what they should be.
        """
        self._unmap()
        self.entries = len(content) // self.ENTRY_BYTES
        self._longer_than_entries = False
        if self._holds(content):
            return
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            view = memoryview(content)
            while view:
                written = os.write(descriptor, view)
                view = view[written:]
        finally:
            os.close(descriptor)

    def _holds(self, content: bytes) -> bool:
        try:
            descriptor = self._open()
        except CorruptIndex:
            return False
        try:
            return (
                os.fstat(descriptor).st_size == len(content)
                and os.pread(descriptor, len(content), 0) == content
            )
        finally:
            os.close(descriptor)

    def _unmap(self) -> None:
        if self._map is not None:
            self._map.close()
            self._map = None
        self._writable = False
        self._reserved_bytes = 0

    def close(self) -> None:
        self._unmap()


def fsync_path(path: str) -> None:
    """fsync a file or folder by name; a file that is gone needs none."""
    with contextlib.suppress(FileNotFoundError):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
