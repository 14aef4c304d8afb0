"""A disk that fails: system calls on files below a path raise an OSError, and no others."""

from __future__ import annotations

import builtins
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

BY_DESCRIPTOR = ("pwrite", "fsync", "fdatasync", "ftruncate", "posix_fallocate")
READS_BY_DESCRIPTOR = ("pread", "preadv")
BY_PATH = ("rename", "replace", "unlink", "truncate", "mkdir", "rmdir")


class FailingDisk:
    """Healthy until `fail`. Opening a file in order to make or write it fails as well."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder = str(folder)
        self._monkeypatch = monkeypatch

    def fail(self, code: int, *only: str, reads: bool = False) -> None:
        """All calls that change something, or `only` those named; reading too with `reads`."""
        descriptor_calls = BY_DESCRIPTOR + (READS_BY_DESCRIPTOR if reads else ())
        for name in only or descriptor_calls + BY_PATH:
            where = self._of_path if name in BY_PATH else self._of_descriptor
            self._monkeypatch.setattr(os, name, self._failing(getattr(os, name), where, code))
        if not only:
            self._monkeypatch.setattr(os, "open", self._opening(os.open, code))
            self._monkeypatch.setattr(builtins, "open", self._file_opening(builtins.open, code))

    def _failing(
        self, real: Callable[..., Any], where: Callable[[Any], str], code: int
    ) -> Callable[..., Any]:
        def call(target: Any, *arguments: Any, **options: Any) -> Any:
            if where(target).startswith(self._folder):
                raise OSError(code, os.strerror(code))
            return real(target, *arguments, **options)

        return call

    def _opening(self, real: Callable[..., int], code: int) -> Callable[..., int]:
        def call(path: Any, flags: int, *arguments: Any, **options: Any) -> int:
            if str(path).startswith(self._folder) and flags & (os.O_CREAT | os.O_RDWR):
                raise OSError(code, os.strerror(code))
            return real(path, flags, *arguments, **options)

        return call

    def _file_opening(self, real: Callable[..., Any], code: int) -> Callable[..., Any]:
        def call(path: Any, mode: str = "r", *arguments: Any, **options: Any) -> Any:
            if str(path).startswith(self._folder) and "w" in mode:
                raise OSError(code, os.strerror(code))
            return real(path, mode, *arguments, **options)

        return call

    @staticmethod
    def _of_path(path: Any) -> str:
        return str(path)

    @staticmethod
    def _of_descriptor(descriptor: Any) -> str:
        return os.readlink(f"/proc/self/fd/{descriptor}")
