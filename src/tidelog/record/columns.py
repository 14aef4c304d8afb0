"""Records of any format as columns: the way out for readers that want the records themselves.

`part_of` and `legacy_part` make parts of batches, decompressing where needed; `columns_of` decodes
all of them with one call of the kernel. `Columns` gives rows of it one at a time for the small
readers (dump, coordinators loading their topics); others take the buffers as they are, laid out as
Arrow does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.record import kernel
from tidelog.record.batch import APPEND_TIME_BIT, CODEC_MASK, HEADER_SIZE, BatchHeader
from tidelog.record.errors import InvalidRecords

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog.record.kernel import Buffer, RecordColumns, RecordsPart


class StoredRecord(NamedTuple):
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


class Columns:
    """`raw` is what the kernel gave; the views are over it."""

    __slots__ = ("_header_offsets", "_keys", "_names", "_values", "offsets", "raw", "timestamps")

    def __init__(self, raw: RecordColumns) -> None:
        self.raw = raw
        self.offsets = memoryview(raw.offsets).cast("q")
        self.timestamps = memoryview(raw.timestamps).cast("q")
        self._keys = memoryview(raw.key_offsets).cast("i")
        self._values = memoryview(raw.value_offsets).cast("i")
        self._header_offsets = memoryview(raw.header_offsets).cast("i")
        self._names = memoryview(raw.header_key_offsets).cast("i")

    def __len__(self) -> int:
        return self.raw.records_count

    def has_key(self, row: int) -> bool:
        return self.raw.key_validity[row >> 3] >> (row & 7) & 1 != 0

    def key(self, row: int) -> bytes | None:
        if not self.has_key(row):
            return None
        return bytes(self.raw.key_data[self._keys[row] : self._keys[row + 1]])

    def value(self, row: int) -> bytes | None:
        if not self.raw.value_validity[row >> 3] >> (row & 7) & 1:
            return None
        return bytes(self.raw.value_data[self._values[row] : self._values[row + 1]])

    def headers(self, row: int) -> list[tuple[str, bytes | None]]:
        first, last = self._header_offsets[row], self._header_offsets[row + 1]
        return [
            (self._header_name(header), self._header_value(header)) for header in range(first, last)
        ]

    def _header_name(self, header: int) -> str:
        name = self.raw.header_key_data[self._names[header] : self._names[header + 1]]
        return name.decode(errors="replace")

    def _header_value(self, header: int) -> bytes | None:
        if not self.raw.header_value_validity[header >> 3] >> (header & 7) & 1:
            return None
        ends = memoryview(self.raw.header_value_offsets).cast("i")
        return bytes(self.raw.header_value_data[ends[header] : ends[header + 1]])

    def __iter__(self) -> Iterator[StoredRecord]:
        for row in range(len(self)):
            yield StoredRecord(
                self.offsets[row],
                self.timestamps[row],
                self.key(row),
                self.value(row),
                self.headers(row),
            )


def columns_of(parts: list[RecordsPart]) -> Columns:
    try:
        return Columns(kernel.records_to_columns(parts))
    except ValueError as problem:
        raise InvalidRecords(f"Records cannot be read: {problem}.") from None


def part_of(
    batch: memoryview, attributes: int, base_offset: int, records_count: int
) -> RecordsPart:
    """A v2 batch as the kernel wants it: uncompressed, with what its timestamps are relative to."""
    header = BatchHeader(batch)
    append_time = header.max_timestamp if attributes & APPEND_TIME_BIT else None
    payload = payload_of(batch, attributes)
    return payload, records_count, base_offset, header.base_timestamp, append_time


def payload_of(batch: memoryview, attributes: int) -> Buffer:
    """The record bytes of a v2 batch, decompressed."""
    if not attributes & CODEC_MASK:
        return batch[HEADER_SIZE:]
    from tidelog.record.compression import codec_of, decompress

    return decompress(codec_of(attributes), batch[HEADER_SIZE:])


def legacy_part(
    view: memoryview, position: int, size: int, attributes: int
) -> tuple[RecordsPart, int]:
    """Old messages from `position` on, and where they end: a wrapper, or a run of plain ones."""
    from tidelog.record.inflation import InflationBudget
    from tidelog.record.legacy import Message, inner_of, run_of

    if not attributes & CODEC_MASK:
        return run_of(view, position)
    end = position + size
    return inner_of(Message(view[position:end]), InflationBudget()), end
