from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.log.segment.index_file import CorruptIndex
from tidelog.log.segment.transaction_index import AbortedTxn, TransactionIndex


def test_the_file_appears_with_the_first_abort_and_has_kafkas_bytes(tmp_path: Path) -> None:
    path = tmp_path / "x.txnindex"
    index = TransactionIndex(str(path), 100)
    assert index.entries() == []
    assert not path.exists()
    index.append(AbortedTxn(7, 90, 105, 106))
    assert path.read_bytes() == bytes.fromhex(
        "0000 0000000000000007 000000000000005a 0000000000000069 000000000000006a"
    )


def test_entries_are_read_back(tmp_path: Path) -> None:
    path = str(tmp_path / "x.txnindex")
    written = [AbortedTxn(7, 90, 105, 106), AbortedTxn(8, 101, 110, 111)]
    for aborted in written:
        TransactionIndex(path, 100).append(aborted)
    assert TransactionIndex(path, 100).entries() == written


def test_collect_gives_what_touches_the_range_and_says_when_that_is_all(tmp_path: Path) -> None:
    index = TransactionIndex(str(tmp_path / "x.txnindex"), 0)
    first, second = AbortedTxn(7, 10, 15, 12), AbortedTxn(8, 12, 20, 21)
    index.append(first)
    index.append(second)
    assert index.collect(0, 11) == ([first], True)
    assert index.collect(16, 21) == ([second], True)
    assert index.collect(0, 50) == ([first, second], False)
    assert index.collect(30, 50) == ([], False)


def test_truncation_drops_markers_at_and_above_the_offset(tmp_path: Path) -> None:
    path = str(tmp_path / "x.txnindex")
    index = TransactionIndex(path, 0)
    index.append(AbortedTxn(7, 10, 15, 16))
    index.append(AbortedTxn(8, 12, 20, 21))
    index.keep_below(20)
    assert TransactionIndex(path, 0).entries() == [AbortedTxn(7, 10, 15, 16)]


@pytest.mark.parametrize("damage", ["cut", "version", "order"])
def test_a_damaged_index_is_refused(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "x.txnindex"
    index = TransactionIndex(str(path), 100)
    index.append(AbortedTxn(7, 90, 105, 106))
    content = path.read_bytes()
    damaged = {
        "cut": content[:-1],
        "version": b"\1" + content[1:],
        "order": content + content,
    }[damage]
    path.write_bytes(damaged)
    with pytest.raises(CorruptIndex):
        TransactionIndex(str(path), 100).entries()
