"""The producer snapshots in a partition's folder, and the producer table they lead to.

A snapshot is taken at every roll, on a clean stop and after recovery, and named by the offset up to
which it holds. To know the producers at the end of the log: load the latest good snapshot, then
replay the batches after it. Without any snapshot the whole log is replayed.
"""

from __future__ import annotations

import contextlib
import logging
import os
from bisect import bisect_right, insort
from collections.abc import Iterable, Sequence

from tidelog.log.producer_snapshot import CorruptSnapshot, decode_snapshot, encode_snapshot
from tidelog.log.producer_state import ProducerStateTable
from tidelog.log.segment import DELETED_SUFFIX, SNAPSHOT_SUFFIX, LogSegment

logger = logging.getLogger(__name__)


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


def load_producers(
    table: ProducerStateTable,
    snapshots: SnapshotFiles,
    segments: Sequence[LogSegment],
    *,
    log_start_offset: int,
    end_offset: int,
    now_ms: int,
    expiration_ms: int,
) -> None:
    """Make `table`, and a snapshot, hold what the log says of producers below `end_offset`."""
    snapshots.remove_outside(log_start_offset, end_offset)
    table.clear()
    known_offset = snapshots.load_latest(table, now_ms, expiration_ms)
    known_offset = max(known_offset, log_start_offset)
    if known_offset < end_offset:
        replay_producers(table, segments, known_offset, end_offset)
        snapshots.take(table, end_offset)


def load_producers_at(
    offset: int,
    table: ProducerStateTable,
    snapshots: SnapshotFiles,
    segments: Sequence[LogSegment],
    *,
    log_start_offset: int,
    now_ms: int,
    expiration_ms: int,
) -> None:
    """Fill `table` with what holds at `offset`, above which `snapshots` has none."""
    known_offset = snapshots.load_latest(table, now_ms, expiration_ms)
    known_offset = max(known_offset, log_start_offset)
    if known_offset < offset:
        replay_producers(table, segments, known_offset, offset)


def producers_at(
    end_offset: int,
    snapshots: SnapshotFiles,
    segments: Sequence[LogSegment],
    *,
    log_start_offset: int,
    now_ms: int,
    expiration_ms: int,
) -> ProducerStateTable:
    """What the log says of producers below `end_offset`; nothing is written."""
    older = [each for each in snapshots.offsets() if log_start_offset < each <= end_offset]
    table = ProducerStateTable()
    load_producers_at(
        end_offset,
        table,
        SnapshotFiles(snapshots.directory, older),
        segments,
        log_start_offset=log_start_offset,
        now_ms=now_ms,
        expiration_ms=expiration_ms,
    )
    return table


def replay_producers(
    table: ProducerStateTable, segments: Sequence[LogSegment], start_offset: int, end_offset: int
) -> None:
    """Batches that have a producer and end in [start_offset, end_offset)."""
    first = max(bisect_right([s.base_offset for s in segments], start_offset) - 1, 0)
    for segment in segments[first:]:
        if segment.base_offset >= end_offset or segment.size == 0:
            continue
        position = segment.indexed_position_of(start_offset)
        for piece in segment.scan(verify_crc=False, position=position):
            for row in piece.producers:
                if start_offset <= row.last_offset < end_offset:
                    table.replay(row)
            if piece.next_offset >= end_offset:
                break
