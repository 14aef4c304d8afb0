"""A walk over the batches of one segment file, in pieces of bounded size.

The file is read, not mapped: a bad disk sector must be an OSError, not a SIGBUS. The kernel does
the work on each piece; the state it needs to go on is kept here, together with what adds up to the
segment's indexes. A batch longer than a piece has its checksum verified in pieces first, so that a
garbled length cannot make the broker allocate what it claims.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from tidelog.log.segment.log_file import read_into
from tidelog.log.segment.time_index import ENTRY as TIME_INDEX_ENTRY
from tidelog.record import kernel
from tidelog.record.batch import (
    ATTRIBUTES_POSITION,
    MAGIC,
    MAGIC_POSITION,
    size_at,
    stored_crc,
)

PIECE_BYTES: Final = 4 << 20
BATCHES_MAX: Final = 1 << 16


WHY_STOPPED: Final = {
    kernel.AT_END: "the end of the file",
    kernel.INCOMPLETE: "a batch that is not whole",
    kernel.BAD_SIZE: "a batch of impossible size",
    kernel.BAD_MAGIC: "an unknown batch format",
    kernel.BAD_CRC: "a batch whose checksum does not match",
    kernel.BAD_OFFSET: "a batch whose offset does not follow",
}

if TYPE_CHECKING:
    from tidelog.record.kernel import ProducerBatch


class SegmentScan:
    """Iterate to the end; afterwards the fields describe the valid part of the segment."""

    __slots__ = (
        "_buffer",
        "_descriptor",
        "_state",
        "_verify_crc",
        "epochs",
        "offset_index",
        "position",
        "producers",
        "size",
        "time_index",
        "why",
    )

    def __init__(
        self,
        descriptor: int,
        base_offset: int,
        size: int,
        index_interval_bytes: int,
        *,
        verify_crc: bool,
        position: int = 0,
        next_offset: int = 0,
    ) -> None:
        """No batch from `position` on may begin before `next_offset`."""
        self._descriptor = descriptor
        self.size = size
        self._verify_crc = verify_crc
        self.position = position
        self.why = kernel.AT_END
        state = kernel.ScanState.at_start(base_offset, index_interval_bytes)
        self._state = state._replace(
            file_position=position, next_offset=max(next_offset, base_offset)
        )
        self.offset_index = bytearray()
        self.time_index = bytearray()
        self.epochs: list[tuple[int, int]] = []
        self.producers: list[ProducerBatch] = []  # of the last piece only
        self._buffer = bytearray(min(PIECE_BYTES, max(size - position, 0)))

    @property
    def next_offset(self) -> int:
        return self._state.next_offset

    @property
    def max_timestamp(self) -> int:
        return self._state.max_timestamp

    @property
    def offset_of_max_timestamp(self) -> int:
        return self._state.offset_of_max_timestamp

    def run(self) -> SegmentScan:
        for _ in self:
            pass
        return self

    def whole_time_index(self) -> bytes:
        """With the entry for the largest timestamp that an inactive segment has; after `run`."""
        state = self._state
        if state.max_timestamp <= state.last_time_index_timestamp:
            return bytes(self.time_index)
        relative_offset = state.offset_of_max_timestamp - state.segment_base_offset
        last_entry = TIME_INDEX_ENTRY.pack(state.max_timestamp, relative_offset)
        return bytes(self.time_index) + last_entry

    def __iter__(self) -> Iterator[SegmentScan]:
        """Yields itself after each piece, with that piece's producers."""
        while self.position < self.size:
            filled = read_into(self._buffer, self._descriptor, self.position, self.size)
            before = self.position
            self._scan(filled)
            yield self
            if self.why == kernel.INCOMPLETE and self.position == before:
                if not self._make_room(filled):
                    return
            elif self.why not in (kernel.INCOMPLETE, kernel.AT_LIMIT, kernel.AT_END):
                return

    def _scan(self, filled: int) -> None:
        scan = kernel.scan_log(
            self._buffer, filled, self._state, self._verify_crc, BATCHES_MAX, PIECE_BYTES
        )
        self._state = scan.state
        self.why = scan.why
        self.producers = scan.producers
        self.offset_index += scan.offset_index
        self.time_index += scan.time_index
        self.epochs += scan.epochs
        self.position = scan.state.file_position

    def _make_room(self, filled: int) -> bool:
        """For the batch at `position`, which is longer than the buffer; False if it is cut off."""
        if filled < ATTRIBUTES_POSITION:
            return False
        size = size_at(self._buffer)
        if size <= len(self._buffer) or self.position + size > self.size:
            return False
        if self._verify_crc and self._buffer[MAGIC_POSITION] == MAGIC and not self._crc_holds(size):
            self.why = kernel.BAD_CRC
            return False
        self._buffer = bytearray(size)
        return True

    def _crc_holds(self, size: int) -> bool:
        stored = stored_crc(self._buffer)
        crc, at = 0, self.position + ATTRIBUTES_POSITION
        end = self.position + size
        while at < end:
            piece = os.pread(self._descriptor, min(PIECE_BYTES, end - at), at)
            if not piece:
                return False
            crc = kernel.crc32c(piece, crc)
            at += len(piece)
        return crc == stored
