"""A process that dies at its n-th file operation, and a disk that keeps only what was synced.

Counted are the operations that change something: making, writing, renaming, removing, syncing files
and setting their times. At the chosen one the process dies: a write is half done, anything else not
at all, nothing after it happens, and of files that were written since their last sync half is lost,
as far as they have grown since.
"""

from __future__ import annotations

import builtins
import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

COUNTED = (
    "open",
    "pwrite",
    "fsync",
    "fdatasync",
    "rename",
    "replace",
    "unlink",
    "utime",
    "truncate",
)


class Died(BaseException):
    """Not an Exception: nobody gets to clean up."""


class CrashingDisk:
    """A context; `die_at` None only counts."""

    def __init__(self, folder: Path, die_at: int | None = None) -> None:
        self._folder = folder
        self._die_at = die_at
        self._real: dict[str, Callable[..., Any]] = {}
        self._unsynced: set[int] = set()  # inodes
        self._synced_bytes: dict[int, int] = {}  # by inode
        self.operations: list[str] = []
        self.is_dead = False

    def __enter__(self) -> CrashingDisk:
        self._real = {name: getattr(os, name) for name in COUNTED}
        self._real["builtin"] = builtins.open
        os.open = self._open
        os.pwrite = self._pwrite
        for name in ("fsync", "fdatasync"):
            setattr(os, name, self._fsync)
        for name in ("rename", "replace", "unlink", "utime", "truncate"):
            setattr(os, name, self._plain(name))
        builtins.open = self._builtin_open  # type: ignore[assignment]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        builtins.open = self._real.pop("builtin")
        for name, function in self._real.items():
            setattr(os, name, function)
        if self.is_dead:
            self._lose_unsynced()
        return isinstance(error, Died)

    def _count(self, what: str) -> bool:
        """Whether this is the operation to die in."""
        if self.is_dead:
            raise Died
        self.operations.append(what)
        return self._die_at == len(self.operations) - 1

    def _die(self) -> None:
        self.is_dead = True
        raise Died

    def _plain(self, name: str) -> Callable[..., Any]:
        def operation(*arguments: Any, **options: Any) -> Any:
            if self._count(f"{name} {arguments[0]}"):
                self._die()
            return self._real[name](*arguments, **options)

        return operation

    def _open(self, path: Any, flags: int, *rest: Any, **options: Any) -> int:
        if flags & os.O_CREAT and self._count(f"create {path}"):
            self._die()
        descriptor: int = self._real["open"](path, flags, *rest, **options)
        if flags & os.O_CREAT:
            self._written(descriptor, anew=True)
        return descriptor

    def _builtin_open(self, path: Any, mode: str = "r", *rest: Any, **options: Any) -> Any:
        writes = "w" in mode
        if writes and self._count(f"create {path}"):
            self._die()
        file = self._real["builtin"](path, mode, *rest, **options)
        if writes:
            self._written(file.fileno(), anew=True)
        return file

    def _written(self, descriptor: int, *, anew: bool = False) -> None:
        inode = os.fstat(descriptor).st_ino
        self._unsynced.add(inode)
        if anew:
            self._synced_bytes.pop(inode, None)

    def _pwrite(self, descriptor: int, data: Any, position: int) -> int:
        if self._count("write"):
            self._real["pwrite"](descriptor, memoryview(data)[: len(data) // 2], position)
            self._written(descriptor)
            self._die()
        self._written(descriptor)
        written: int = self._real["pwrite"](descriptor, data, position)
        return written

    def _fsync(self, descriptor: int) -> None:
        if self._count("sync"):
            self._die()
        self._real["fsync"](descriptor)
        status = os.fstat(descriptor)
        self._unsynced.discard(status.st_ino)
        self._synced_bytes[status.st_ino] = status.st_size

    def _lose_unsynced(self) -> None:
        for path in self._folder.rglob("*"):
            status = path.stat()
            if path.is_file() and status.st_ino in self._unsynced:
                kept = min(self._synced_bytes.get(status.st_ino, 0), status.st_size)
                os.truncate(path, kept + (status.st_size - kept) // 2)
