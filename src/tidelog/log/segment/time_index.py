"""The time index of a segment (`.timeindex`).

An entry is 12 bytes, big-endian:

    at  size  field
     0     8  the largest timestamp in the segment so far
     8     4  last offset of the first batch that has it, relative to the segment's base offset

An entry is written together with an offset index entry, and at roll and close, but only when the
timestamp is larger than that of the entry before. Segments without timestamps have an empty index.
It counts as full one entry early, so that the entry at roll always fits.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import islice
from operator import ge, gt
from struct import Struct
from typing import ClassVar, Final

from tidelog.log.segment.index_file import CorruptIndex, IndexFile

ENTRY: Final = Struct(">qI")
CHECKED_MAX: Final = 4096  # of a longer index only every n-th entry is compared with the next
_TIMESTAMP: Final = Struct(">q")


class TimeIndex(IndexFile):
    __slots__ = ()

    ENTRY_BYTES: ClassVar[int] = 12

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """`reserve` comes first. Nothing happens unless the timestamp is a new maximum."""
        if timestamp > self.last_timestamp():
            assert self._map is not None
            ENTRY.pack_into(self._map, self.entries * 12, timestamp, offset - self.base_offset)
            self.entries += 1

    def append_last(self, timestamp: int, offset: int) -> None:
        """The entry with which an index is closed."""
        self.append_written(ENTRY.pack(timestamp, offset - self.base_offset))

    def last_timestamp(self) -> int:
        if self.entries == 0:
            return -1
        return int(_TIMESTAMP.unpack_from(self.view(), (self.entries - 1) * 12)[0])

    def entry(self, number: int) -> tuple[int, int]:
        """(timestamp, offset)"""
        timestamp, relative = ENTRY.unpack_from(self.view(), number * 12)
        return timestamp, self.base_offset + relative

    def last_entry(self) -> tuple[int, int]:
        """(-1, base offset) when there is none."""
        if self.entries == 0:
            return -1, self.base_offset
        timestamp, relative = ENTRY.unpack(self.entry_bytes(self.entries - 1))
        if timestamp < 0:
            raise CorruptIndex(f"{self.path} ends with timestamp {timestamp}")
        return timestamp, self.base_offset + relative

    def lookup(self, timestamp: int) -> tuple[int, int]:
        """The last entry not above `timestamp`; (-1, base offset) when there is none."""
        low, high = 0, self.entries
        if high == 0:
            return -1, self.base_offset
        view = self.view()
        read = _TIMESTAMP.unpack_from
        while low < high:
            middle = (low + high) >> 1
            if read(view, middle * 12)[0] <= timestamp:
                low = middle + 1
            else:
                high = middle
        return self.entry(low - 1) if low else (-1, self.base_offset)

    def keep_below(self, offset: int) -> None:
        """Drop the entries whose offset is at or above `offset`."""
        self.keep_entries(self._count_below(offset))

    def last_entry_below(self, offset: int) -> tuple[int, int]:
        """The last one whose offset is below `offset`; (-1, base offset) when there is none."""
        count = self._count_below(offset)
        return self.entry(count - 1) if count else (-1, self.base_offset)

    def _count_below(self, offset: int) -> int:
        return bisect_left(range(self.entries), offset, key=lambda number: self.entry(number)[1])

    def check(self) -> None:
        assert self._map is not None
        step = self.entries // CHECKED_MAX + 1
        rows = [ENTRY.unpack_from(self._map, n * 12) for n in range(0, self.entries, step)]
        timestamps = [row[0] for row in rows]
        offsets = [row[1] for row in rows]
        if (
            timestamps[0] < 0
            or any(map(ge, timestamps, islice(timestamps, 1, None)))
            or any(map(gt, offsets, islice(offsets, 1, None)))
        ):
            raise CorruptIndex(f"the entries of {self.path} do not grow")
