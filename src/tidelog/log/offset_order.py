"""Which batch of a segment lies about its offset.

Base offsets are outside of the checksum. Where two batches contradict each other, one of them is
wrong: the earlier one if there is a gap before it, for then it has been moved up; else the later.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.record import kernel
from tidelog.record.batch import (
    CODEC_MASK,
    HEADER_SIZE,
    MAGIC,
    MAGIC_POSITION,
    OLD_ATTRIBUTES_POSITION,
    OLD_HEADER_SIZE,
)

if TYPE_CHECKING:
    from tidelog.log.segment import LogSegment
    from tidelog.log.segment_scan import SegmentScan

WINDOW_BYTES: Final = 1 << 18
_BATCHES_MAX: Final = 1 << 31


class BatchPlace(NamedTuple):
    position: int
    base_offset: int
    last_offset: int


def batch_places(segment: LogSegment, end: int, position: int = 0) -> Iterator[BatchPlace]:
    """By the headers alone, up to `end` or to what is no batch.

    A batch whose header has its last offset only is taken to begin behind the batch before it.
    """
    expected = segment.base_offset if position == 0 else None
    while position < end:
        window = segment.file.read_at(position, min(WINDOW_BYTES, end - position))
        walked, _, rows = kernel.list_batches(window, 0, len(window), _BATCHES_MAX)
        for row in rows:
            base_offset, last_offset = row.base_offset, row.last_offset
            if row.magic < 2 and row.records_count < 0 and expected is not None:
                base_offset = min(expected, last_offset)
            yield BatchPlace(position + row.position, base_offset, last_offset)
            expected = last_offset + 1
        if walked == 0:
            found, _, size, base_offset, last_offset = kernel.find_offset(window, 0, len(window), 0)
            if found != 1 or position + size > end:
                return
            yield BatchPlace(position, base_offset, last_offset)
            expected = last_offset + 1
            walked = size
        position += walked


def has_last_offset_only(head: bytes) -> bool:
    """The header of a compressed batch of format 0 or 1."""
    return (
        len(head) >= OLD_HEADER_SIZE
        and head[MAGIC_POSITION] < MAGIC
        and head[OLD_ATTRIBUTES_POSITION] & CODEC_MASK != 0
    )


def place_at(segment: LogSegment, position: int) -> BatchPlace | None:
    head = segment.file.read_at(position, HEADER_SIZE)
    found, _, _, base_offset, last_offset = kernel.find_offset(head, 0, len(head), -(1 << 63))
    if found == 1 and position == 0 and has_last_offset_only(head):
        base_offset = min(segment.base_offset, last_offset)
    return BatchPlace(position, base_offset, last_offset) if found == 1 else None


def moved_up(segment: LogSegment, end: int, limit_offset: int) -> int:
    """Position of the first batch before `end` that follows a gap and reaches `limit_offset`, where
    something else begins; `end` if there is none."""
    expected = segment.base_offset
    for place in batch_places(segment, end):
        if place.base_offset != expected and place.last_offset >= limit_offset:
            return place.position
        expected = place.last_offset + 1
    return end


def culprit(segment: LogSegment, position: int) -> int:
    """The batch at `position` begins below the end of the one before it: which of them is wrong."""
    place = place_at(segment, position)
    return position if place is None else moved_up(segment, position, place.base_offset)


def first_reaching(segment: LogSegment, end: int, limit_offset: int) -> int:
    for place in batch_places(segment, end):
        if place.last_offset >= limit_offset:
            return place.position
    return end


def only_gap(segment: LogSegment, end: int, position: int) -> int | None:
    """Position of the batch after the only gap in offsets, if that is the segment's first batch or
    its last; a segment with other gaps has them by right.

    The last batch is looked for from the one at `position` on.
    """
    head = place_at(segment, 0)
    has_gap = head is not None and head.base_offset != segment.base_offset
    if not has_gap:
        expected = None
        for place in batch_places(segment, end, position):
            has_gap = expected is not None and place.base_offset != expected
            expected = place.last_offset + 1
    return _single_gap(segment, end) if has_gap else None


def _single_gap(segment: LogSegment, end: int) -> int | None:
    gaps = []
    expected = segment.base_offset
    for place in batch_places(segment, end):
        if place.base_offset != expected:
            gaps.append(place.position)
            if len(gaps) > 1:
                return None
        expected = place.last_offset + 1
    return gaps[0] if gaps else None


def lie_in(
    segment: LogSegment,
    scan: SegmentScan,
    limit_offset: int,
    *,
    gaps_allowed: bool,
    is_first: bool,
) -> int | None:
    """Position of a batch in the scanned part that claims an offset that is not its own.

    The next segment begins at `limit_offset`; `is_first` means the first segment of the log.
    """
    position = scan.position
    reaches_too_far = scan.next_offset > limit_offset
    if not gaps_allowed and position and (reaches_too_far or not is_first):
        # A segment is made for the batch that it begins with; the first one of a log may have
        # been made before.
        head = place_at(segment, 0)
        if head is not None and head.base_offset != segment.base_offset:
            return 0
    if scan.why == kernel.BAD_OFFSET:
        position = min(position, culprit(segment, position))
    if reaches_too_far:
        position = min(position, moved_up(segment, scan.position, limit_offset))
    if not gaps_allowed and position:
        last_but_one = int.from_bytes(scan.offset_index[-12:-8], "big")
        gap = only_gap(segment, position, last_but_one)
        position = position if gap is None else gap
    return position if position < scan.position else None
