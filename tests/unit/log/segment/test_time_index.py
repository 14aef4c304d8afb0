from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.log.segment.index_file import CorruptIndex
from tidelog.log.segment.time_index import TimeIndex


def filled(path: Path, *entries: tuple[int, int]) -> TimeIndex:
    index = TimeIndex(str(path), 100, 0)
    for timestamp, offset in entries:
        index.reserve(1200)
        index.maybe_append(timestamp, offset)
    return index


def test_an_entry_is_timestamp_and_relative_offset_in_big_endian(tmp_path: Path) -> None:
    filled(tmp_path / "x.timeindex", (1_700_000_000_000, 105)).trim()
    assert (tmp_path / "x.timeindex").read_bytes() == bytes.fromhex("0000018bcfe56800 00000005")


def test_only_a_larger_timestamp_makes_an_entry(tmp_path: Path) -> None:
    index = filled(tmp_path / "x.timeindex", (10, 101), (10, 102), (9, 103), (11, 104), (-1, 105))
    assert [index.entry(n) for n in range(index.entries)] == [(10, 101), (11, 104)]


def test_no_timestamp_makes_no_entry(tmp_path: Path) -> None:
    assert filled(tmp_path / "x.timeindex", (-1, 101)).entries == 0


def test_lookup_finds_the_last_entry_not_above(tmp_path: Path) -> None:
    index = filled(tmp_path / "x.timeindex", (10, 101), (20, 102))
    assert index.lookup(9) == (-1, 100)
    assert index.lookup(10) == (10, 101)
    assert index.lookup(19) == (10, 101)
    assert index.lookup(99) == (20, 102)
    assert index.last_entry() == (20, 102)


def test_an_empty_index_answers_with_the_base_offset(tmp_path: Path) -> None:
    index = TimeIndex(str(tmp_path / "none.timeindex"), 100, 0)
    assert index.last_entry() == index.lookup(5) == (-1, 100)


def test_truncation_goes_by_offset(tmp_path: Path) -> None:
    index = filled(tmp_path / "x.timeindex", (10, 101), (20, 102), (30, 108))
    index.keep_below(102)
    assert index.last_entry() == (10, 101)


@pytest.mark.parametrize(
    "entries", [[(10, 1), (10, 2)], [(10, 2), (11, 1)], [(-5, 1)], [(20, 1), (10, 2)]]
)
def test_entries_that_do_not_grow_are_refused_when_mapped(
    tmp_path: Path, entries: list[tuple[int, int]]
) -> None:
    path = tmp_path / "x.timeindex"
    path.write_bytes(
        b"".join(t.to_bytes(8, "big", signed=True) + o.to_bytes(4, "big") for t, o in entries)
    )
    with pytest.raises(CorruptIndex, match="do not grow"):
        TimeIndex(str(path), 0, len(entries)).lookup(5)
