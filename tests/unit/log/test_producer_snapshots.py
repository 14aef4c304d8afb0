from __future__ import annotations

import pytest
from crc32c import crc32c

from tidelog.log.producer_snapshots import (
    CorruptSnapshot,
    SnapshotRow,
    decode_snapshot,
    encode_snapshot,
)

ROWS = [
    SnapshotRow(7, 1, 41, 99, 3, 1_700_000_000_000, -1, -1),
    SnapshotRow(2**40, 0, -1, -1, 0, 5, 2, 50),
]


def test_a_snapshot_without_producers_has_ten_bytes() -> None:
    count = bytes(4)
    assert encode_snapshot([]) == b"\0\1" + crc32c(count).to_bytes(4, "big") + count


def test_the_bytes_are_those_of_kafkas_producer_snapshot() -> None:
    content = encode_snapshot(ROWS[:1])
    body = bytes.fromhex(
        "00000001 0000000000000007 0001 00000029 0000000000000063 00000003"
        "0000018bcfe56800 ffffffff ffffffffffffffff"
    )
    assert content == b"\0\1" + crc32c(body).to_bytes(4, "big") + body


def test_rows_survive() -> None:
    assert decode_snapshot(encode_snapshot(ROWS)) == ROWS


def test_every_flipped_byte_is_noticed() -> None:
    content = encode_snapshot(ROWS)
    for position in range(len(content)):
        damaged = bytearray(content)
        damaged[position] ^= 0x40
        with pytest.raises(CorruptSnapshot):
            decode_snapshot(bytes(damaged))


def test_every_cut_is_noticed() -> None:
    content = encode_snapshot(ROWS)
    for length in range(len(content)):
        with pytest.raises(CorruptSnapshot):
            decode_snapshot(content[:length])
