"""The sparse offset index of a segment (`.index`).

An entry is 8 bytes, big-endian:

    at  size  field
     0     4  offset of the batch's last record, relative to the segment's base offset
     4     4  position of the batch in the .log file

Both fields grow from entry to entry. There is at most one entry per index.interval.bytes of log and
none for position 0. Entries have no checksum: `check` refuses an index whose fields do not grow,
and the segment compares the batch it finds with the entry that led to it.
"""

from __future__ import annotations

from array import array
from itertools import islice
from operator import ge
from struct import Struct
from sys import byteorder
from typing import ClassVar, Final

from tidelog.log.segment.index_file import CorruptIndex, IndexFile

ENTRY: Final = Struct(">II")
_FIELD: Final = Struct(">I")
RELATIVE_OFFSET_MAX: Final = 2**31 - 1


class OffsetIndex(IndexFile):
    __slots__ = ()

    ENTRY_BYTES: ClassVar[int] = 8

    def append(self, offset: int, position: int) -> None:
        """`reserve` comes first; it makes the room."""
        assert self._map is not None
        ENTRY.pack_into(self._map, self.entries * 8, offset - self.base_offset, position)
        self.entries += 1

    def entry(self, number: int) -> tuple[int, int]:
        """(offset, position)"""
        relative, position = ENTRY.unpack_from(self.view(), number * 8)
        return self.base_offset + relative, position

    def last_entry(self) -> tuple[int, int]:
        """(base offset, 0) when there is none."""
        if self.entries == 0:
            return self.base_offset, 0
        relative, position = ENTRY.unpack(self.entry_bytes(self.entries - 1))
        return self.base_offset + relative, position

    def lookup(self, offset: int) -> tuple[int, int]:
        """The last entry not above `offset`; (base offset, 0) when there is none."""
        number = self._slot(offset - self.base_offset, 0)
        return self.entry(number) if number >= 0 else (self.base_offset, 0)

    def lookup_position(self, position: int) -> tuple[int, int] | None:
        """The last entry whose position is not above `position`."""
        number = self._slot(position, 4)
        return self.entry(number) if number >= 0 else None

    def first_above_position(self, position: int) -> tuple[int, int] | None:
        """The first entry at or above `position`."""
        number = self._slot(position - 1, 4) + 1
        return self.entry(number) if number < self.entries else None

    def keep_below(self, offset: int) -> None:
        """Drop the entries at or above `offset`."""
        self.keep_entries(self._slot(offset - 1 - self.base_offset, 0) + 1)

    def _slot(self, target: int, field: int) -> int:
        """Number of the last entry whose field is not above `target`, or -1."""
        if self.entries == 0:
            return -1
        view = self.view()
        read = _FIELD.unpack_from
        low, high = 0, self.entries
        while low < high:
            middle = (low + high) >> 1
            if read(view, middle * 8 + field)[0] <= target:
                low = middle + 1
            else:
                high = middle
        return low - 1

    def check(self) -> None:
        assert self._map is not None
        fields = array("I", self._map[: self.entries * 8])
        assert fields.itemsize == 4
        if byteorder == "little":
            fields.byteswap()
        for column in (fields[0::2], fields[1::2]):
            if column[-1] > RELATIVE_OFFSET_MAX or any(map(ge, column, islice(column, 1, None))):
                raise CorruptIndex(f"the entries of {self.path} do not grow")
