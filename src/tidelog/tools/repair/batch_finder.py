"""The batches of a segment file that are whole, before, between and behind damage.

A batch counts as whole if its checksum holds. The checksum leaves out the first bytes: base
offset, length, leader epoch and (in format 2) the magic byte. If those alone are damaged, the
length is found again: it is the one that makes the checksum hold and ends at the next batch.

Behind damage the file is searched for the next batch. A checksum that holds is not enough there: a
record may carry whole batches as its value, and in a damaged batch nothing says where such a value
ends. So the batches found must lead somewhere, in one unbroken chain:

    to the end of the file, or
    to a header that goes on with the next offset,

or something else must point at them: the length of the damaged batch at the first one, or an entry
of the offset index at any. A value in a batch of format 2 is followed by its headers and so never
leads anywhere. In formats 0 and 1 it may: there the length of the damaged batch is believed if it
leads to a batch. What may be a batch but may be a value as well is not taken.

The file is held in memory. Which offsets are right is not decided here, see `offset_settlement`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from struct import Struct
from typing import Final, NamedTuple

from tidelog.record import kernel
from tidelog.record.batch import (
    ATTRIBUTES_POSITION,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_POSITION,
    OLD_HEADER_SIZE,
    BatchHeader,
    base_offset_at,
    crc_holds,
    size_at,
)
from tidelog.tools.verify.good_batches import BATCH_BYTES_MAX

UNSUMMED_BYTES: Final = 17  # base offset, length, epoch or checksum, magic

_OFFSET: Final = Struct(">q")
_LENGTH: Final = Struct(">i")
_BATCHES_AT_ONCE: Final = 512


class FoundBatch(NamedTuple):
    """Where it is, what its header says, and the first bytes as they should be (empty if so)."""

    position: int
    size: int
    magic: int
    attributes: int
    base_offset: int
    last_offset: int
    leader_epoch: int
    producer_id: int
    records_count: int  # -1 in a compressed batch of format 0 or 1
    head: bytes = b""

    @property
    def end(self) -> int:
        return self.position + self.size

    @property
    def offsets_count(self) -> int:
        return self.last_offset - self.base_offset + 1

    def moved_to(self, base_offset: int, content: bytes) -> FoundBatch:
        head = self.head or content[self.position : self.position + UNSUMMED_BYTES]
        return self._replace(
            base_offset=base_offset,
            last_offset=base_offset + self.offsets_count - 1,
            head=_OFFSET.pack(base_offset) + head[8:],
        )

    def of_epoch(self, epoch: int, content: bytes) -> FoundBatch:
        head = self.head or content[self.position : self.position + UNSUMMED_BYTES]
        head = head[:LOG_OVERHEAD] + _LENGTH.pack(epoch) + head[16:]
        return self._replace(leader_epoch=epoch, head=head)

    def bytes_of(self, content: bytes) -> bytes:
        return self.head + content[self.position + len(self.head) : self.end]


class BatchFinder:
    """Of one file. `offsets` are those that the segment may hold, `indexed` the last offsets of
    batches by their position, `magics` the formats to look for behind damage."""

    def __init__(
        self,
        content: bytes,
        offsets: range,
        *,
        magics: frozenset[int],
        indexed: Mapping[int, int],
        gaps_allowed: bool,
    ) -> None:
        self._content = content
        self._view = memoryview(content)
        self._offsets = offsets
        self._magics = magics
        self._is_old = min(magics) < 2
        self._indexed = indexed
        self._gaps_allowed = gaps_allowed
        self._header = _header_pattern(offsets, magics)
        # No header lies in the zeros of a file that was made longer than what is in it.
        self._headers_end = len(content.rstrip(b"\0")) + UNSUMMED_BYTES

    def run(self) -> list[FoundBatch]:
        """In order of position; the bytes between them are lost."""
        found: list[FoundBatch] = []
        position = 0
        while position < len(self._content):
            for batch in self._chain(position):
                found.append(batch)
                position = batch.end
            if position < len(self._content):
                restored, position = self._pass_damage(position)
                if restored is not None:
                    found.append(restored)
        return found

    def _chain(self, position: int) -> Iterator[FoundBatch]:
        """Batches whose checksums hold, one behind the other, whatever their offsets."""
        view, size = self._view, len(self._content)
        while position < size:
            _, _, rows = kernel.list_batches(view, position, size, _BATCHES_AT_ONCE)
            for row in rows:
                end = row.position + row.size
                if row.base_offset > row.last_offset or not crc_holds(view[row.position : end]):
                    return
                yield FoundBatch(
                    row.position,
                    row.size,
                    row.magic,
                    row.attributes,
                    row.base_offset,
                    row.last_offset,
                    row.leader_epoch,
                    row.producer_id,
                    row.records_count,
                )
                position = end
            if not rows:
                return

    def _pass_damage(self, position: int) -> tuple[FoundBatch | None, int]:
        """The damaged batch, if it can be restored, and where to go on."""
        claimed_end = self._claimed_end(position)
        restored = self._restored(position, claimed_end)
        if restored is not None:
            return restored, restored.end
        match = self._header.search(self._content, position + 1, self._headers_end)
        while match is not None:
            start = match.start()
            chain = list(self._chain(start)) if self._is_plausible(start) else []
            if chain:
                restored = self._restored(position, start)
                if restored is not None:
                    return restored, restored.end
                if self._is_real(chain, claimed_end):
                    return None, start
            # A chain that leads nowhere is passed over; an old one may go on with real ones.
            next_start = start + 1 if not chain else chain[0 if self._is_old else -1].end
            match = self._header.search(self._content, next_start, self._headers_end)
        restored = self._restored(position, len(self._content))
        return restored, len(self._content)

    def _claimed_end(self, position: int) -> int:
        """-1 if the length cannot be."""
        if position + LOG_OVERHEAD > len(self._content):
            return -1
        size = size_at(self._content, position)
        end = position + size
        return (
            end if 0 < size - LOG_OVERHEAD <= BATCH_BYTES_MAX and end <= len(self._content) else -1
        )

    def _is_plausible(self, position: int) -> bool:
        if not self._claimed_end(position) - position > OLD_HEADER_SIZE - LOG_OVERHEAD:
            return False
        _, _, rows = kernel.list_batches(self._view, position, len(self._content), 1)
        return bool(rows) and self._fits(rows[0].magic, rows[0].base_offset, rows[0].last_offset)

    def _fits(self, magic: int, base_offset: int, last_offset: int) -> bool:
        offsets = self._offsets
        return magic in self._magics and offsets.start <= base_offset <= last_offset < offsets.stop

    def _is_real(self, chain: list[FoundBatch], claimed_end: int) -> bool:
        start, end = chain[0].position, chain[-1].end
        if self._is_old and start < claimed_end and self._leads_on(claimed_end):
            return False
        if start == claimed_end or end == len(self._content):
            return True
        if any(self._indexed.get(each.position) == each.last_offset for each in chain):
            return True
        return self._goes_on(chain[-1])

    def _leads_on(self, position: int) -> bool:
        return position == len(self._content) or next(self._chain(position), None) is not None

    def _goes_on(self, last: FoundBatch) -> bool:
        """Whether the bytes behind it are the header of the batch that follows it."""
        position = last.end
        if position + OLD_HEADER_SIZE > len(self._content) or self._claimed_end(position) < 0:
            return False
        offset = base_offset_at(self._content, position)
        is_next = offset == last.last_offset + 1
        if self._gaps_allowed:
            is_next = last.last_offset < offset < self._offsets.stop
        return is_next and self._content[position + MAGIC_POSITION] in self._magics

    def _restored(self, position: int, end: int) -> FoundBatch | None:
        """The batch in these bytes, if nothing but its first ones is damaged."""
        content = self._content
        size = end - position
        if size < OLD_HEADER_SIZE or size > BATCH_BYTES_MAX + LOG_OVERHEAD:
            return None
        head = content[position : position + 8] + _LENGTH.pack(size - LOG_OVERHEAD)
        if size >= HEADER_SIZE:
            header = BatchHeader(content, position)  # whatever its magic says
            if kernel.crc32c(self._view[position + ATTRIBUTES_POSITION : end]) == header.crc:
                return FoundBatch(
                    position,
                    size,
                    MAGIC,
                    header.attributes,
                    header.base_offset,
                    header.last_offset,
                    header.partition_leader_epoch,
                    header.producer_id,
                    header.records_count,
                    head + _LENGTH.pack(header.partition_leader_epoch) + b"\2",
                )
        base_offset = base_offset_at(content, position)
        magic = content[position + MAGIC_POSITION]
        if magic < 2 and crc_holds(self._view[position:end]):
            attributes = content[position + UNSUMMED_BYTES]
            return FoundBatch(
                position,
                size,
                magic,
                attributes,
                base_offset,
                base_offset,
                -1,
                -1,
                -1 if attributes & 7 else 1,
                head + content[position + LOG_OVERHEAD : position + UNSUMMED_BYTES],
            )
        return None


def _header_pattern(offsets: range, magics: frozenset[int]) -> re.Pattern[bytes]:
    """Bytes that may be a header: one of these offsets, a length that can be, one of the magics."""
    first, last = _OFFSET.pack(offsets.start), _OFFSET.pack(max(offsets.stop - 1, offsets.start))
    common = next((n for n in range(8) if first[n] != last[n]), 8)
    return re.compile(
        re.escape(first[:common])
        + b".{%d}" % (8 - common)
        + rb"(?!\0{4})[\0-\x10].{3}.{4}["
        + b"".join(b"\\x%02x" % magic for magic in sorted(magics))
        + b"]",
        re.DOTALL,
    )
