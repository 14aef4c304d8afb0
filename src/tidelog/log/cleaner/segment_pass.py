"""One walk of the cleaner over the batches of a segment, in pieces of log.cleaner.io.buffer.size.

The kernel does the work on each piece; here is what it cannot do: reading, inflating compressed
batches one by one, judging batches of transactions, and saying what is wrong with a segment. A
batch that is damaged or out of order ends the cleaning of its log; rewriting it would hide the
damage behind a right checksum.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Final

from tidelog.errors import KafkaError
from tidelog.log.cleaner.errors import CannotClean
from tidelog.log.cleaner.source_segment import SourceSegment
from tidelog.log.cleaner.throttle import IoThrottle
from tidelog.log.segment_scan import WHY_STOPPED
from tidelog.record import kernel
from tidelog.record.batch import (
    CONTROL_BIT,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_POSITION,
    TRANSACTIONAL_BIT,
    BatchHeader,
    base_offset_at,
    size_at,
)
from tidelog.record.kernel import TransactionalBatch

_PROBLEMS: Final = {**WHY_STOPPED, kernel.BAD_RECORDS: "a batch with malformed records"}


class SegmentPass(ABC):
    """What is common to building the map and to filtering. One thread, one log, one round."""

    def __init__(
        self, buffer: bytearray, throttle: IoThrottle, check: Callable[[], object]
    ) -> None:
        self._buffer = buffer
        self._throttle = throttle
        self._check = check  # raises CleaningAborted
        self._verdicts = b""  # on the transactional batches of the piece that are not passed yet
        self._next_offset = 0
        self.bytes_read = 0

    def run(self, source: SourceSegment, position: int = 0) -> bool:
        """From `position` on; False when it ended early, because there is no room for more."""
        self._next_offset = source.base_offset
        with source.open() as descriptor:
            while position < source.size:
                self._check()
                filled = self._fill(descriptor, position, source.size)
                self._throttle.take(filled)
                passed, why = self._pass_piece(filled)
                self.bytes_read += passed
                if why == kernel.MAP_FULL:
                    return False
                if why not in (kernel.AT_END, kernel.INCOMPLETE):
                    raise _damaged(source, position + passed, why)
                if self._next_offset > source.end_offset:
                    raise _damaged(source, position + passed, kernel.BAD_OFFSET)
                if passed == 0:
                    self._make_room(source, position, filled)
                position += passed
        return True

    def _fill(self, descriptor: int, position: int, size: int) -> int:
        wanted = min(len(self._buffer), size - position)
        with memoryview(self._buffer) as view:
            filled = 0
            while filled < wanted:
                count = os.preadv(descriptor, [view[filled:wanted]], position + filled)
                if count == 0:
                    break
                filled += count
        return filled

    def _make_room(self, source: SourceSegment, position: int, filled: int) -> None:
        """For the batch at `position`, which is longer than the buffer."""
        if filled < LOG_OVERHEAD:
            raise _damaged(source, position, kernel.INCOMPLETE)
        size = size_at(self._buffer)
        if size <= len(self._buffer) or position + size > source.size:
            raise _damaged(source, position, kernel.INCOMPLETE)
        self._buffer = bytearray(size)

    def _pass_piece(self, end: int) -> tuple[int, int]:
        """(bytes passed, why it stopped) of the first `end` bytes in the buffer."""
        self._verdicts = self._judge(kernel.list_transactional(self._buffer, 0, end))
        position = 0
        while True:
            position, why = self._take(position, end)
            if why != kernel.NEEDS_INFLATION:
                return position, why
            size = size_at(self._buffer, position)
            with memoryview(self._buffer)[position : position + size] as batch:
                why = self._take_compressed(batch)
                if why != kernel.AT_END:
                    return position, why
                self._step_over(batch)
            position += size

    def _step_over(self, batch: memoryview) -> None:
        last_offset = base_offset_at(batch)
        if batch[MAGIC_POSITION] == MAGIC:
            header = BatchHeader(batch)
            last_offset = header.last_offset
            if header.attributes & (TRANSACTIONAL_BIT | CONTROL_BIT):
                self._verdicts = self._verdicts[1:]
        self._next_offset = last_offset + 1

    @abstractmethod
    def _judge(self, batches: Sequence[TransactionalBatch]) -> bytes:
        """A verdict for each, in their order."""

    @abstractmethod
    def _take(self, position: int, end: int) -> tuple[int, int]:
        """Batches from `position` on: (where it stopped, why)."""

    @abstractmethod
    def _take_compressed(self, batch: memoryview) -> int:
        """One batch that the kernel has left to us: why it cannot be taken, or AT_END."""


def _damaged(source: SourceSegment, position: int, why: int) -> CannotClean:
    return CannotClean(f"{source.path} holds {_PROBLEMS[why]} at position {position}")


def unreadable(error: KafkaError) -> CannotClean:
    return CannotClean(f"a compressed batch cannot be read: {error.message}")
