"""Which files are synced, and in which order."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest


def record_syncs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths that are synced from now on."""
    synced: list[str] = []

    def noting(sync: Callable[[int], None]) -> Callable[[int], None]:
        def note_and_sync(descriptor: int) -> None:
            synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
            sync(descriptor)

        return note_and_sync

    monkeypatch.setattr(os, "fsync", noting(os.fsync))
    monkeypatch.setattr(os, "fdatasync", noting(os.fdatasync))
    return synced
