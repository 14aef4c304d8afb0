"""The producer table on disk (`<offset>.snapshot`): all producers below that offset.

Big-endian:

    at  size  field
     0     2  version 1
     2     4  crc     CRC-32C of everything from the count on
     6     4  count
    10    46  per producer: producer_id i64, producer_epoch i16, last_sequence i32, last_offset i64,
              offset_delta i32, timestamp i64, coordinator_epoch i32, current_txn_first_offset i64

Only a producer's last batch is kept; -1 stands for no sequence, no offset, no open transaction.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Final, NamedTuple

from tidelog.record.kernel import crc32c

HEAD: Final = Struct(">hIi")
ROW: Final = Struct(">qhiqiqiq")
assert ROW.size == 46
VERSION: Final = 1
_CRC = Struct(">I")
_CRC_FROM = 6


class CorruptSnapshot(Exception):
    pass


class SnapshotRow(NamedTuple):
    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    current_txn_first_offset: int


def encode_snapshot(rows: Iterable[SnapshotRow]) -> bytes:
    packed = [ROW.pack(*row) for row in rows]
    content = bytearray(HEAD.pack(VERSION, 0, len(packed)) + b"".join(packed))
    _CRC.pack_into(content, 2, crc32c(memoryview(content)[_CRC_FROM:]))
    return bytes(content)


def decode_snapshot(content: bytes) -> list[SnapshotRow]:
    if len(content) < HEAD.size:
        raise CorruptSnapshot(f"{len(content)} bytes are too few")
    version, crc, count = HEAD.unpack_from(content)
    if version != VERSION:
        raise CorruptSnapshot(f"version {version} is not known")
    if crc32c(memoryview(content)[_CRC_FROM:]) != crc:
        raise CorruptSnapshot("the checksum does not match")
    if len(content) != HEAD.size + count * ROW.size:
        raise CorruptSnapshot(f"{count} producers do not fit {len(content)} bytes")
    return [SnapshotRow(*row) for row in ROW.iter_unpack(content[HEAD.size :])]
