from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from tidelog.log.segment.index_file import CorruptIndex
from tidelog.log.segment.offset_index import OffsetIndex

CAPACITY = 1024


def filled(path: Path, *entries: tuple[int, int]) -> OffsetIndex:
    index = OffsetIndex(str(path), 1000, 0)
    for offset, position in entries:
        index.reserve(CAPACITY)
        index.append(offset, position)
    return index


def test_an_entry_is_relative_offset_and_position_in_big_endian(tmp_path: Path) -> None:
    path = tmp_path / "x.index"
    filled(path, (1005, 4200), (1300, 70_000)).trim()
    assert path.read_bytes() == bytes.fromhex("0000000500001068 0000012c00011170")


def test_the_file_is_stretched_with_the_first_entry_and_trimmed_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "x.index"
    index = filled(path, (1005, 4200))
    assert path.stat().st_size == CAPACITY
    index.trim()
    assert path.stat().st_size == 8
    assert index.lookup(2000) == (1005, 4200)


def test_the_stretched_size_is_a_whole_number_of_entries(tmp_path: Path) -> None:
    path = tmp_path / "x.index"
    OffsetIndex(str(path), 0, 0).reserve(100)
    assert path.stat().st_size == 96


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        (999, (1000, 0)),
        (1004, (1000, 0)),
        (1005, (1005, 4200)),
        (1006, (1005, 4200)),
        (1300, (1300, 70_000)),
        (9999, (1310, 80_000)),
    ],
)
def test_lookup_finds_the_last_entry_not_above(
    tmp_path: Path, offset: int, expected: tuple[int, int]
) -> None:
    index = filled(tmp_path / "x.index", (1005, 4200), (1300, 70_000), (1310, 80_000))
    assert index.lookup(offset) == expected


def test_entries_are_found_by_position_too(tmp_path: Path) -> None:
    index = filled(tmp_path / "x.index", (1005, 4200), (1300, 70_000))
    assert index.lookup_position(4199) is None
    assert index.lookup_position(69_999) == (1005, 4200)
    assert index.first_above_position(4201) == (1300, 70_000)
    assert index.first_above_position(70_000) == (1300, 70_000)
    assert index.first_above_position(70_001) is None


def test_truncation_drops_entries_at_and_above_the_offset(tmp_path: Path) -> None:
    index = filled(tmp_path / "x.index", (1005, 4200), (1300, 70_000), (1310, 80_000))
    index.keep_below(1300)
    assert index.entries == 1
    index.trim()
    assert (tmp_path / "x.index").stat().st_size == 8


@pytest.mark.parametrize(
    "entries",
    [
        "00000005 00001068 00000005 00002068",
        "00000005 00001068 00000006 00001068",
        "00000006 00001068 00000005 00002068",
        "80000005 00001068",
    ],
)
def test_entries_that_do_not_grow_are_refused_when_mapped(tmp_path: Path, entries: str) -> None:
    path = tmp_path / "x.index"
    path.write_bytes(bytes.fromhex(entries))
    index = OffsetIndex(str(path), 1000, path.stat().st_size // 8)
    with pytest.raises(CorruptIndex, match="do not grow"):
        index.lookup(1005)


def test_an_index_shorter_than_its_entries_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.index"
    path.write_bytes(bytes(8))
    with pytest.raises(CorruptIndex, match="shorter"):
        OffsetIndex(str(path), 0, 2).lookup(5)


def test_a_full_disk_is_met_before_an_entry_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = filled(tmp_path / "x.index", (1005, 4200))

    def no_space(*_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", no_space)
    many = OffsetIndex(str(tmp_path / "y.index"), 0, 0)
    with pytest.raises(OSError, match="No space left"):
        many.reserve(CAPACITY)
    index.reserve(CAPACITY)
    assert index.entries == 1


def test_more_entries_than_were_planned_stretch_the_file(tmp_path: Path) -> None:
    index = OffsetIndex(str(tmp_path / "x.index"), 0, 0)
    for number in range(1, 10):
        index.reserve(16)
        index.append(number, number * 100)
    assert [index.entry(n) for n in (0, 8)] == [(1, 100), (9, 900)]
