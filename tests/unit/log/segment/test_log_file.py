from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from tidelog.log.segment.log_file import LogFile


def test_a_file_is_opened_with_its_first_use(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(b"hello")
    file = LogFile(str(tmp_path / "a.log"))
    assert not file.is_open
    assert file.read_at(1, 3) == b"ell"
    assert file.is_open


def test_the_descriptor_closes_with_the_last_reference(tmp_path: Path) -> None:
    file = LogFile.create(str(tmp_path / "a.log"))
    descriptor = file.fileno()
    reader = file
    del file
    os.fstat(descriptor)
    del reader
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_an_unlinked_file_can_still_be_read(tmp_path: Path) -> None:
    file = LogFile.create(str(tmp_path / "a.log"))
    file.write_at(0, b"records")
    os.unlink(file.path)
    assert file.read_at(0, 7) == b"records"


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = LogFile.create(str(tmp_path / "a.log"))
    real_pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: real_pwrite(fd, bytes(data)[:3], at))
    file.write_at(0, b"0123456789")
    assert file.read_at(0, 20) == b"0123456789"


def test_a_full_disk_leaves_the_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = LogFile.create(str(tmp_path / "a.log"))
    file.write_at(0, b"good")
    real_pwrite = os.pwrite

    def nearly_full(descriptor: int, data: bytes, position: int) -> int:
        if position > 4:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real_pwrite(descriptor, bytes(data)[:2], position)

    monkeypatch.setattr(os, "pwrite", nearly_full)
    with pytest.raises(OSError, match="No space left"):
        file.write_at(4, b"more than fits")
    assert (tmp_path / "a.log").read_bytes() == b"good"
