"""How far the reading of one range of offsets has come, and how much to ask for next. No I/O.

A range is [start_offset, end_offset) of one partition. Its position moves over whole batches, so
over the gaps that compaction, control batches and aborted transactions leave, and the range is done
when the position reaches the end, wherever the last record lies.

How many bytes to ask for is guessed from the range's own records, so that a short range does not
bring megabytes from beyond its end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from tidelog.types import TopicPartition

FIRST_GUESS_BYTES_PER_OFFSET: Final = 1024
REQUEST_BYTES_MIN: Final = 64 * 1024


class FetchRange(NamedTuple):
    partition: TopicPartition
    start_offset: int
    end_offset: int

    def __str__(self) -> str:
        return f"{self.partition} [{self.start_offset}, {self.end_offset})"


class RangeProgress:
    """Mutable state of one range.

    start_offset <= position; all offsets below position are dealt with.
    """

    __slots__ = ("_bytes_read", "_offsets_read", "end_offset", "partition", "position", "size_min")

    def __init__(self, wanted: FetchRange) -> None:
        self.partition = wanted.partition
        self.position = wanted.start_offset
        self.end_offset = wanted.end_offset
        # What the broker must be allowed to send for its next batch to be whole.
        self.size_min = 0
        self._bytes_read = 0
        self._offsets_read = 0

    @property
    def is_done(self) -> bool:
        return self.position >= self.end_offset

    def request_bytes(self, limit_bytes: int) -> int:
        """What to ask for: a little more than the rest of the range is expected to take."""
        left = self.end_offset - self.position
        if self._offsets_read:
            expected = left * self._bytes_read // self._offsets_read * 9 // 8
        else:
            expected = left * FIRST_GUESS_BYTES_PER_OFFSET
        return max(self.size_min, min(limit_bytes, max(expected, REQUEST_BYTES_MIN)))

    def advance(self, position: int, bytes_read: int) -> None:
        """All offsets below `position` came, or are known not to be there."""
        assert position > self.position, (position, self.position)
        self._offsets_read += position - self.position
        self._bytes_read += bytes_read
        self.position = position
        self.size_min = 0
