"""Segment files written by hand, as a broker would leave them."""

from __future__ import annotations

from pathlib import Path
from struct import pack
from typing import Any

from tests.support.batches import records_of
from tidelog.record.builder import batch_of
from tidelog.types import TopicPartition


class SegmentWriter:
    """One partition's folder; a batch a call, each but the first with an index entry."""

    def __init__(self, directory: Path, partition: TopicPartition) -> None:
        self.partition = partition
        self.folder = directory / str(partition)
        self.folder.mkdir(parents=True)
        self.next_offset = 0
        self.roll()

    def roll(self) -> None:
        self.base_offset = self.next_offset
        self.log = self.folder / f"{self.base_offset:020d}.log"
        self.log.touch()

    def append(self, count: int = 10, **fields: Any) -> None:
        records = records_of(count, timestamp=1_000 * (self.next_offset + 1))
        self.append_bytes(batch_of(records, base_offset=self.next_offset, **fields), count)

    def append_bytes(self, batch: bytes | bytearray, count: int) -> None:
        position = self.log.stat().st_size
        last_offset = self.next_offset + count - 1
        if position:
            with self.log.with_suffix(".index").open("ab") as index:
                index.write(pack(">II", last_offset - self.base_offset, position))
        with self.log.open("ab") as log:
            log.write(batch)
        self.next_offset += count

    def abort_entry(self, producer_id: int, first_offset: int, last_offset: int) -> None:
        with self.log.with_suffix(".txnindex").open("ab") as index:
            index.write(pack(">hqqqq", 0, producer_id, first_offset, last_offset, last_offset + 1))
