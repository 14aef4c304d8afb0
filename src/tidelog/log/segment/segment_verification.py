"""What has been checked of a segment that was there before this start.

A start after a clean stop reads no old batches, one after a kill only those from the recovery point
on. Damage that the rest of the files took in the meantime must not reach a reader as good data.
Therefore the first read of old bytes checks them: that checksums match, that offsets grow and stay
below those of the next segment. Later reads of the same bytes cost nothing, nor do bytes that this
process wrote. Compaction leaves gaps between offsets; in a log that was never compacted, a gap is
damage.

Base offsets are outside of the checksum. Where two batches contradict each other, one of them is
wrong: the earlier one if there is a gap before it, because then it was moved up; else the later.

A reader gets the good batches before damage, and CORRUPT_MESSAGE at it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.log.segment.segment_scan import WHY_STOPPED, SegmentScan
from tidelog.record import kernel
from tidelog.record.batch import (
    CODEC_MASK,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_POSITION,
    OLD_ATTRIBUTES_POSITION,
    OLD_HEADER_SIZE,
    TRANSACTIONAL_BIT,
    size_at,
)
from tidelog.record.errors import CorruptRecords

if TYPE_CHECKING:
    from tidelog.log.segment.log_segment import LogSegment
    from tidelog.log.segment.segment_scan import SegmentScan
    from tidelog.log.transaction_index_check import SegmentWalk

logger = logging.getLogger(__name__)

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


def false_offset_position(
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


class SegmentVerification:
    """Of one segment; None where the start has read it. Touched only on the broker loop."""

    __slots__ = (
        "_broken_at",
        "_checked_from",
        "_checked_next_offset",
        "_checked_to",
        "_end_offset",
        "_head_is_good",
        "_why",
        "end",
        "gaps_allowed",
        "has_open_transactions",
        "has_transactions",
        "is_searchable",
        "truncations",
        "txn_index_checked",
        "walk",
    )

    def __init__(self, end: int, *, gaps_allowed: bool) -> None:
        self.end = end  # bytes beyond it are this process's own
        self.gaps_allowed = gaps_allowed
        self._checked_from = 0  # what lies between these two is good
        self._checked_to = 0
        self._checked_next_offset = 0  # what the batch there must not lie below
        self._broken_at = -1  # the first damage met so far
        self._why = ""
        self._head_is_good: bool | None = None
        self.has_transactions = False  # among the batches checked so far
        self.txn_index_checked = False
        self.is_searchable = True  # for timestamps; not where damage has hidden some
        self._end_offset = -1  # after the last batch of the segment; -1 until looked for
        self.has_open_transactions = False  # at the end of the segment; known when it is checked
        self.walk: SegmentWalk | None = None  # over the whole segment, due or made
        self.truncations = 0

    def good_length(
        self, segment: LogSegment, position: int, length: int, limit_offset: int
    ) -> int:
        """How much of the batches from `position` on may be served: `length` or less.

        CorruptRecords when the first of them is damaged already. Offsets must stay below
        `limit_offset`. A batch cut off at the end of the slice is the next read's business, unless
        it is the only one.
        """
        end = position + length
        if self.is_checked(position, end):
            return length
        self._require_head(segment)
        # From the batch before on, so that a wrong offset of the first one shows.
        scan = self._scan_from_before(segment, position, end)
        good = self._good_end(segment, scan, limit_offset)
        if good < position:
            scan = self._scan(segment, position, end, segment.base_offset)
            good = self._good_end(segment, scan, limit_offset)
        self._note_checked(position, good, scan.next_offset)
        if good == scan.position and self._is_cut_off_only(segment, scan):
            if good <= position:
                self._require_batch(segment, position)
            return length
        if good <= position:
            raise CorruptRecords(f"{segment.file.path} holds {self._why} at position {good}")
        return good - position

    def is_checked(self, position: int, end: int) -> bool:
        return position >= self.end or (self._checked_from <= position and end <= self._checked_to)

    def _scan_from_before(self, segment: LogSegment, position: int, end: int) -> SegmentScan:
        if position == self._checked_to:
            return self._scan(segment, position, end, self._checked_next_offset)
        start = segment.indexed_position_before(position)
        return self._scan(segment, start, end, segment.base_offset)

    def _scan(self, segment: LogSegment, position: int, end: int, next_offset: int) -> SegmentScan:
        scan = SegmentScan(
            segment.file.fileno(),
            segment.base_offset,
            end,
            segment.index_interval_bytes,
            verify_crc=True,
            position=position,
            next_offset=next_offset,
        )
        for piece in scan:
            if any(row.attributes & TRANSACTIONAL_BIT for row in piece.producers):
                self.has_transactions = True
        return scan

    def _require_head(self, segment: LogSegment) -> None:
        """A segment that begins with another offset than its name says is not this segment."""
        if self._head_is_good is None:
            head = place_at(segment, 0)
            self._head_is_good = head is not None and (
                head.base_offset == segment.base_offset
                or (self.gaps_allowed and head.base_offset > segment.base_offset)
            )
            if not self._head_is_good:
                self.note_broken(segment, 0, "a batch that does not belong there")
        if not self._head_is_good:
            raise segment.no_batch_at(0)

    def require_whole(self, segment: LogSegment, limit_offset: int | None) -> None:
        """CorruptRecords if batches are lost; for those who pass over the segment as a whole.

        They must reach up to `limit_offset`, where the next segment begins.
        """
        if self._end_offset < 0:
            self._end_offset = segment.find_end()[0]
        is_short = limit_offset is not None and self._end_offset < limit_offset
        if self._broken_at >= 0 or not self.is_searchable or (is_short and not self.gaps_allowed):
            raise CorruptRecords(f"{segment.file.path} has lost records")

    def _good_end(self, segment: LogSegment, scan: SegmentScan, limit_offset: int) -> int:
        good = scan.position
        following = place_at(segment, good) if good < segment.size else None
        if scan.next_offset > limit_offset:
            good = min(
                moved_up(segment, good, limit_offset), first_reaching(segment, good, limit_offset)
            )
            self.note_broken(segment, good, "a batch whose offset belongs to the next segment")
        elif scan.why == kernel.BAD_OFFSET:
            good = min(good, culprit(segment, good))
            self.note_broken(segment, good, WHY_STOPPED[scan.why])
        elif not self._is_cut_off_only(segment, scan):
            self.note_broken(segment, good, WHY_STOPPED[scan.why])
        elif following is not None and following.base_offset < scan.next_offset:
            good = min(good, moved_up(segment, good, following.base_offset))
            if good < scan.position:
                self.note_broken(segment, good, WHY_STOPPED[kernel.BAD_OFFSET])
        return good

    def _is_cut_off_only(self, segment: LogSegment, scan: SegmentScan) -> bool:
        """Whether the scan ended with the slice, and not with damage."""
        if scan.position == scan.size:
            return True
        if scan.why != kernel.INCOMPLETE:
            return False
        head = segment.file.read_at(scan.position, LOG_OVERHEAD)
        return len(head) == LOG_OVERHEAD and scan.position + size_at(head) <= segment.size

    def _require_batch(self, segment: LogSegment, position: int) -> None:
        """A first batch that sticks out of its slice must be one: its length may be garbled."""
        size = segment.batch_at(position)[0]
        scan = self._scan(segment, position, position + size, segment.base_offset)
        if scan.position < position + size:
            self.note_broken(segment, position, WHY_STOPPED[scan.why])
            raise CorruptRecords(f"{segment.file.path} holds {self._why} at position {position}")

    def _note_checked(self, start: int, end: int, next_offset: int) -> None:
        if not self._checked_from <= start <= self._checked_to:
            self._checked_from = self._checked_to = start
        if end > self._checked_to:
            self._checked_to, self._checked_next_offset = end, next_offset

    def note_whole(self, end: int, next_offset: int, *, has_transactions: bool) -> None:
        """All batches up to there have been read and are good."""
        self._head_is_good = True
        self._note_checked(0, end, next_offset)
        self.has_transactions = self.has_transactions or has_transactions

    def truncated(self) -> None:
        """The segment was cut: forget what a walk learnt, because other batches may follow."""
        self.walk = None
        self.truncations += 1

    def note_no_batch(self, segment: LogSegment, position: int) -> None:
        """A look-up found no batch there. Only the first problem of a segment is noted."""
        if self._broken_at < 0:
            self.note_broken(segment, position, "no batch")

    def note_broken(self, segment: LogSegment, position: int, why: str) -> None:
        self._why = why
        if position != self._broken_at:
            self._broken_at = position
            logger.error(
                "%s holds %s at position %d; nothing is served from there. "
                "`tidelog verify-log` shows it, `tidelog repair-log --salvage` takes it out",
                segment.file.path,
                why,
                position,
            )
