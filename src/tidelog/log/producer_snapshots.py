"""The producer snapshots in a partition's folder (`<offset>.snapshot`), and what one holds.

A log takes a snapshot at every roll, on a clean stop and after recovery. The file name is the
offset up to which the snapshot holds. Its bytes, big-endian:

    at  size  field
     0     2  version 1
     2     4  crc     CRC-32C of everything from the count on
     6     4  count
    10    46  per producer: producer_id i64, producer_epoch i16, last_sequence i32, last_offset i64,
              offset_delta i32, timestamp i64, coordinator_epoch i32, current_txn_first_offset i64

A snapshot keeps only the last batch of each producer; -1 stands for no sequence, no offset, no open
transaction. Without a last offset, an offset delta of -1 says that a marker is the first that is
known of the producer, and that batches before it may have been deleted. Kafka writes 0 there and
reads it only with a last offset.
"""

from __future__ import annotations

import contextlib
import logging
import os
from bisect import insort
from collections.abc import Iterable, Sequence
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.log.segment.log_segment import DELETED_SUFFIX, SNAPSHOT_SUFFIX
from tidelog.record.kernel import crc32c

if TYPE_CHECKING:
    from tidelog.log.producer_state import ProducerStateTable

logger = logging.getLogger(__name__)

HEAD: Final = Struct(">hIi")
ROW: Final = Struct(">qhiqiqiq")
assert ROW.size == 46
VERSION: Final = 1
MAY_LACK_BATCHES: Final = -1
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


class SnapshotFiles:
    __slots__ = ("_offsets", "directory")

    def __init__(self, directory: str, offsets: Iterable[int] = ()) -> None:
        self.directory = directory
        self._offsets = sorted(offsets)

    def offsets(self) -> list[int]:
        return list(self._offsets)

    @property
    def latest_offset(self) -> int:
        """-1 when there is none."""
        return self._offsets[-1] if self._offsets else -1

    def path(self, offset: int) -> str:
        return f"{self.directory}/{offset:020d}{SNAPSHOT_SUFFIX}"

    def take(self, table: ProducerStateTable, offset: int) -> None:
        """Write what is known of the producers below `offset`; not synced."""
        content = encode_snapshot(table.rows())
        with open(self.path(offset), "wb", buffering=0) as file:
            file.write(content)
        if offset not in self._offsets:
            insort(self._offsets, offset)

    def remove(self, offset: int) -> None:
        self._offsets.remove(offset)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path(offset))

    def mark_deleted(self, offset: int) -> list[str]:
        """Rename the snapshot at `offset`, if there is one; the path to be removed later."""
        if offset not in self._offsets:
            return []
        self._offsets.remove(offset)
        path = self.path(offset)
        with contextlib.suppress(FileNotFoundError):
            os.rename(path, path + DELETED_SUFFIX)
            return [path + DELETED_SUFFIX]
        return []

    def remove_all(self) -> None:
        for offset in list(self._offsets):
            self.remove(offset)

    def remove_outside(self, log_start_offset: int, log_end_offset: int) -> None:
        for offset in list(self._offsets):
            if not log_start_offset < offset <= log_end_offset:
                self.remove(offset)

    def remove_strays(self, segment_base_offsets: Sequence[int]) -> None:
        """Keep those at a segment's base offset, and the last other one if it lies behind all."""
        bases = set(segment_base_offsets)
        strays = [offset for offset in self._offsets if offset not in bases]
        if strays and segment_base_offsets and strays[-1] >= segment_base_offsets[-1]:
            strays.pop()
        for offset in strays:
            self.remove(offset)

    def load_latest(self, table: ProducerStateTable, now_ms: int, expiration_ms: int) -> int:
        """The offset up to which the table then holds; -1 if there is no good snapshot."""
        while self._offsets:
            offset = self._offsets[-1]
            try:
                with open(self.path(offset), "rb", buffering=0) as file:
                    rows = decode_snapshot(file.read())
            except (CorruptSnapshot, FileNotFoundError) as problem:
                logger.warning("ignoring the producer snapshot %s: %s", self.path(offset), problem)
                self.remove(offset)
                continue
            table.load(rows, now_ms, expiration_ms)
            return offset
        return -1
