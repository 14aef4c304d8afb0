"""The good batches of a segment, one by one, and why there are no more.

Every batch has passed its checksum, begins at or after the end of the one before, and not below the
segment's base offset. What follows the first that fails is not looked at, as in recovery.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final, NamedTuple

from tidelog.log.segment.offset_index import RELATIVE_OFFSET_MAX
from tidelog.log.segment.segment_scan import WHY_STOPPED
from tidelog.record import kernel
from tidelog.record.batch import LOG_OVERHEAD, crc_holds, size_at

WINDOW_BYTES: Final = 1 << 20
BATCH_BYTES_MAX: Final = 1 << 28
_BATCHES_MAX: Final = 1 << 31


class GoodBatch(NamedTuple):
    """The bytes of the batch, where it is, and the rest of the kernel's row for it."""

    view: memoryview
    position: int
    size: int
    magic: int
    attributes: int
    base_offset: int
    last_offset: int
    leader_epoch: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int


class GoodBatches:
    """Iterate once; afterwards the fields say how far it came and what stopped it."""

    def __init__(self, path: str, base_offset: int) -> None:
        self.path = path
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.position = 0
        self.size = 0
        self.problem: str | None = None

    def __iter__(self) -> Iterator[GoodBatch]:
        descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self.size = os.fstat(descriptor).st_size
            yield from self._walk(descriptor)
        finally:
            os.close(descriptor)

    def _walk(self, descriptor: int) -> Iterator[GoodBatch]:
        wanted = WINDOW_BYTES
        while self.position < self.size and self.problem is None:
            start = self.position
            window = memoryview(os.pread(descriptor, min(wanted, self.size - start), start))
            walked, why, rows = kernel.list_batches(window, 0, len(window), _BATCHES_MAX)
            for at, size, *fields in rows:
                batch = GoodBatch(window[at : at + size], start + at, size, *fields)
                self.problem = self._problem_of(batch)
                if self.problem is not None:
                    return
                self.position = batch.position + size
                self.next_offset = batch.last_offset + 1
                yield batch
            wanted = WINDOW_BYTES
            if why == kernel.INCOMPLETE and walked == 0:
                wanted = self._size_of_batch(window)
            elif why not in (kernel.AT_END, kernel.INCOMPLETE):
                self.problem = WHY_STOPPED[why]

    def _size_of_batch(self, window: memoryview) -> int:
        size = size_at(window) if len(window) >= LOG_OVERHEAD else LOG_OVERHEAD
        is_whole = len(window) >= LOG_OVERHEAD and self.position + size <= self.size
        if not is_whole or size > BATCH_BYTES_MAX or size <= len(window):
            self.problem = WHY_STOPPED[kernel.INCOMPLETE]
        return size

    def _problem_of(self, batch: GoodBatch) -> str | None:
        if not crc_holds(batch.view):
            return WHY_STOPPED[kernel.BAD_CRC]
        if not self.next_offset <= batch.base_offset <= batch.last_offset:
            return f"offset {batch.base_offset} follows offset {self.next_offset - 1}"
        if batch.last_offset - self.base_offset > RELATIVE_OFFSET_MAX:
            return f"offset {batch.last_offset} is too far from the segment's first"
        return None
