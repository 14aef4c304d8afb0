"""Finding and slicing what a Fetch asks for, over the segments of one log.

Readers mostly go on where they stopped, so the places of the last few next offsets are remembered:
for them no index is searched. A slice lies in one segment and ends at a batch where the index knows
one, otherwise anywhere; a reader takes a batch that is cut off as not sent. What was on disk
before this start is checked when it is first read.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Final

from tidelog.errors import ErrorCode, KafkaError
from tidelog.log.segment.log_segment import FoundBatch, LogSegment
from tidelog.log.segment.segment_verification import has_last_offset_only
from tidelog.log.segment.transaction_index import AbortedTxn
from tidelog.record.errors import CorruptRecords
from tidelog.record.file_records import FileRecords
from tidelog.types import INT64_MAX

HINTS_MAX: Final = 16
FIRST_READ_BYTES_MAX: Final = 4 << 20  # of old bytes, which are checked on the event loop


class ReadResult:
    """`records` is None when there is nothing to read."""

    __slots__ = ("position", "records", "segment")

    def __init__(
        self, records: FileRecords | None, segment: LogSegment | None, position: int
    ) -> None:
        self.records = records
        self.segment = segment
        self.position = position


class LogReader:
    """Made anew whenever the log's segments change."""

    __slots__ = ("_aborting", "_active", "_base_offsets", "_hints", "segments")

    def __init__(self, segments: tuple[LogSegment, ...]) -> None:
        self.segments = segments
        self._base_offsets = tuple(segment.base_offset for segment in segments)
        self._active = segments[-1]
        # Those with aborted transactions; None until asked for.
        self._aborting: list[LogSegment] | None = None
        # Offsets that readers are likely to ask for next, with their places.
        self._hints: dict[int, tuple[LogSegment, int]] = {}

    def nothing_at(self, offset: int, log_end_offset: int) -> ReadResult:
        """A reader waits at `offset`; if that is the log's end, what comes next begins here."""
        if offset == log_end_offset:
            self._remember(offset, self._active, self._active.size)
        return ReadResult(None, None, 0)

    def read(
        self,
        offset: int,
        max_bytes: int,
        up_to_offset: int,
        log_end_offset: int,
        min_one_batch: bool,
    ) -> ReadResult:
        """From the batch that holds `offset`, which lies below `up_to_offset`."""
        place = self._hints.get(offset) or self._locate(offset)
        if place is None:
            return ReadResult(None, None, 0)
        segment, position = place
        if up_to_offset >= log_end_offset:
            end = segment.size
            if segment is self._active:
                self._remember(log_end_offset, segment, end)
        else:
            end = self._end_within(segment, up_to_offset)
        length = end - position
        verification = segment.verification
        if verification is not None and length > FIRST_READ_BYTES_MAX < max_bytes:
            end_wanted = position + min(length, max_bytes)
            if not verification.is_checked(position, end_wanted):
                max_bytes = FIRST_READ_BYTES_MAX
        if length > max_bytes:
            return self._read_part(segment, position, end, max_bytes, log_end_offset, min_one_batch)
        if length <= 0:
            return ReadResult(None, segment, position)
        if segment.verification is not None:
            length = self._good_length(segment, position, length, log_end_offset)
        segment.file.fileno()
        return ReadResult(FileRecords(segment.file, position, length), segment, position)

    def _read_part(
        self,
        segment: LogSegment,
        position: int,
        end: int,
        max_bytes: int,
        log_end_offset: int,
        min_one_batch: bool,
    ) -> ReadResult:
        if max_bytes < 0:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{max_bytes} bytes cannot be read")
        length = max_bytes
        is_piece = False
        aligned = segment.aligned_end(position, position + length)
        if aligned is not None:
            aligned_position, next_offset = aligned
            length = aligned_position - position
            self._remember(next_offset, segment, aligned_position)
        else:
            batch_size, next_offset = segment.batch_at(position)
            if batch_size > length:
                is_piece = not min_one_batch
                if min_one_batch:
                    length = min(batch_size, end - position)
                    self._remember(next_offset, segment, position + batch_size)
        if length == 0:
            return ReadResult(None, segment, position)
        if segment.verification is not None:
            length = self._good_length(segment, position, length, log_end_offset)
        segment.file.fileno()
        records = FileRecords(segment.file, position, length, is_piece=is_piece)
        return ReadResult(records, segment, position)

    def _remember(self, offset: int, segment: LogSegment, position: int) -> None:
        """Not the end of an old segment: what follows it lies in the next one."""
        if position >= segment.size and segment is not self._active:
            return
        hints = self._hints
        if len(hints) >= HINTS_MAX:
            del hints[next(iter(hints))]
        hints[offset] = (segment, position)

    def _locate(self, offset: int) -> tuple[LogSegment, int] | None:
        for segment in self._segments_from(offset):
            found = segment.find_batch(offset)
            if segment.verification is not None:
                self._check_gap(segment, max(offset, segment.base_offset), found)
            if found is not None:
                self._remember(offset, segment, found.position)
                return segment, found.position
        return None

    def _good_length(
        self, segment: LogSegment, position: int, length: int, log_end_offset: int
    ) -> int:
        assert segment.verification is not None
        limit_offset = self._end_offset_of(segment, log_end_offset)
        return segment.verification.good_length(segment, position, length, limit_offset)

    def _end_offset_of(self, segment: LogSegment, log_end_offset: int) -> int:
        """Where the next segment begins, or the log ends."""
        above = bisect_right(self._base_offsets, segment.base_offset)
        return self._base_offsets[above] if above < len(self.segments) else log_end_offset

    def _check_gap(self, segment: LogSegment, offset: int, found: FoundBatch | None) -> None:
        """An old segment has no batch at `offset`: the batches before the gap must be good ones.

        A length that was garbled leads past batches; a tail that was lost leaves none.
        """
        if found is not None and found.base_offset <= offset:
            return
        start = segment.indexed_position_of(offset)
        end = segment.size if found is None else found.position
        if end > start and self._good_length(segment, start, end - start, INT64_MAX) < end - start:
            raise segment.no_batch_at(start)
        assert segment.verification is not None
        if found is not None and has_last_offset_only(segment.file.read_at(found.position, 18)):
            return  # it may well begin at `offset`
        if not segment.verification.gaps_allowed:
            raise CorruptRecords(f"{segment.file.path} has no record at offset {offset}")

    def _end_within(self, segment: LogSegment, up_to_offset: int) -> int:
        """Where the batch that holds `up_to_offset` begins, or the segment's end."""
        place = self._hints.get(up_to_offset)
        if place is not None and place[0] is segment:
            return place[1]
        if segment is not self._segment_of(up_to_offset):
            return segment.size
        found = segment.find_batch(up_to_offset)
        end = segment.size if found is None else found.position
        self._remember(up_to_offset, segment, end)
        return end

    def _segment_of(self, offset: int) -> LogSegment:
        return self.segments[max(bisect_right(self._base_offsets, offset) - 1, 0)]

    def _segments_from(self, offset: int) -> Iterator[LogSegment]:
        """The segment that may hold `offset`, and those after it."""
        for number in range(
            max(bisect_right(self._base_offsets, offset) - 1, 0), len(self.segments)
        ):
            yield self.segments[number]

    def aborted_transactions(
        self, offset: int, result: ReadResult, log_end_offset: int
    ) -> list[AbortedTxn]:
        """Those that touch the records of `result`, which a read at `offset` gave."""
        if result.records is None or result.segment is None:
            return []
        segment = result.segment
        aborting = self._aborting_segments()
        first = bisect_left(aborting, segment.base_offset, key=_base_offset)
        if first == len(aborting):
            return []
        upper_bound_offset = segment.upper_bound_offset(result.position + len(result.records))
        if upper_bound_offset is None:
            upper_bound_offset = self._end_offset_of(segment, log_end_offset)
        found: list[AbortedTxn] = []
        for number in range(first, len(aborting)):
            some, complete = aborting[number].txn_index.collect(offset, upper_bound_offset)
            found += some
            if complete:
                break
        return found

    def aborted_before(self, offset: int) -> list[AbortedTxn]:
        """All that begin below `offset`."""
        return [
            aborted
            for segment in self._aborting_segments()
            for aborted in segment.txn_index.entries()
            if aborted.first_offset < offset
        ]

    def _aborting_segments(self) -> list[LogSegment]:
        if self._aborting is None:
            self._aborting = [each for each in self.segments if each.txn_index.entries()]
        return self._aborting

    def forget_aborted(self) -> None:
        """Transaction indexes have been written anew."""
        self._aborting = None

    def note_aborted(self) -> None:
        """The active segment has an aborted transaction more."""
        aborting = self._aborting
        if aborting is not None and (not aborting or aborting[-1] is not self._active):
            aborting.append(self._active)


def _base_offset(segment: LogSegment) -> int:
    return segment.base_offset
