"""How far a scan has come: a stretch of offsets left in each partition, as text for an address.

    version, direction, flags   a byte each
    records                     gone through so far
    total_offsets               of all partitions when the scan began
    partitions                  how many in all; how many with something left, and of each of these:
                                partition, first offset left, how many offsets are left

Numbers are varints; all of it is compressed and base64. A cursor comes from an address, so `decode`
takes nothing for granted and raises BadCursor.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

VERSION: Final = 1
TEXT_CHARACTERS_MAX: Final = 60_000
PLAIN_BYTES_MAX: Final = 1 << 20
OFFSET_MAX: Final = (1 << 63) - 1
PARTITION_MAX: Final = (1 << 31) - 1


class BadCursor(ValueError):
    pass


class Direction(Enum):
    OLDEST_FIRST = 0
    NEWEST_FIRST = 1


@dataclass(frozen=True, slots=True)
class Span:
    """Offsets from `start` on, before `stop`."""

    start: int
    stop: int

    def __post_init__(self) -> None:
        assert 0 <= self.start <= self.stop <= OFFSET_MAX, self

    @property
    def size(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True, slots=True)
class Cursor:
    """`left` has only partitions of which there is something left."""

    direction: Direction
    left: Mapping[int, Span]
    total_offsets: int
    records: int = 0
    partitions_total: int = 0

    @property
    def is_done(self) -> bool:
        return not self.left

    @property
    def offsets_left(self) -> int:
        return sum(span.size for span in self.left.values())

    @property
    def offsets_done(self) -> int:
        return max(0, self.total_offsets - self.offsets_left)

    def encode(self) -> str:
        numbers = [
            VERSION,
            self.direction.value,
            self.records,
            self.total_offsets,
            self.partitions_total,
            len(self.left),
        ]
        for partition, span in sorted(self.left.items()):
            numbers += (partition, span.start, span.size)
        plain = bytearray()
        for number in numbers:
            _put(plain, number)
        return base64.urlsafe_b64encode(zlib.compress(plain, 9)).decode().rstrip("=")


def decode(text: str) -> Cursor:
    if len(text) > TEXT_CHARACTERS_MAX:
        raise BadCursor("the place to go on from is too long")
    try:
        packed = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        inflater = zlib.decompressobj()
        plain = inflater.decompress(packed, PLAIN_BYTES_MAX)
    except (binascii.Error, ValueError, zlib.error):
        raise BadCursor("the place to go on from cannot be read") from None
    if not inflater.eof:
        raise BadCursor("the place to go on from is cut off or too long")
    numbers = _Numbers(plain)
    if numbers.next(VERSION) != VERSION:
        raise BadCursor("the place to go on from is of another console")
    direction = Direction(numbers.next(1))
    records, total = numbers.next(OFFSET_MAX), numbers.next(OFFSET_MAX)
    partitions_total = numbers.next(PARTITION_MAX)
    left: dict[int, Span] = {}
    for _ in range(numbers.next(PARTITION_MAX)):
        partition = numbers.next(PARTITION_MAX)
        start = numbers.next(OFFSET_MAX)
        size_left = numbers.next(OFFSET_MAX - start)
        if partition in left or not size_left:
            raise BadCursor("the place to go on from cannot be read")
        left[partition] = Span(start, start + size_left)
    numbers.must_end()
    return Cursor(direction, left, total, records, partitions_total)


def _put(out: bytearray, number: int) -> None:
    assert number >= 0, number
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)


class _Numbers:
    def __init__(self, plain: bytes) -> None:
        self._plain = plain
        self._at = 0

    def next(self, most: int) -> int:
        number = shift = 0
        while self._at < len(self._plain) and shift < 70:
            byte = self._plain[self._at]
            self._at += 1
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                if number > most:
                    break
                return number
        raise BadCursor("the place to go on from cannot be read")

    def must_end(self) -> None:
        if self._at != len(self._plain):
            raise BadCursor("the place to go on from cannot be read")
