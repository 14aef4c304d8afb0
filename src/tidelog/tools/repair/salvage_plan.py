"""What is good in a damaged log, what is lost for good, and what a cut would cost besides.

Every segment is walked. One without damage is left as it is, and only counted; of the others
`batch_finder` finds the batches and `offset_settlement` says which stay. Files that hold each
other's batches are told by their offsets. Nothing is changed here.

A loss is what lies between two batches that stay. Its offsets are known where the log goes on
behind it, or where a clean stop has noted the end of the log.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final, NamedTuple

from tidelog.clock import SystemClock
from tidelog.config.topic import LogConfig
from tidelog.log.directory.checkpoints import LEADER_EPOCH_FILE, read_epochs
from tidelog.log.leader_epoch_cache import LeaderEpochCache
from tidelog.log.log_errors import CorruptCheckpoint
from tidelog.log.segment.index_file import CorruptIndex
from tidelog.log.segment.log_file import LogFile
from tidelog.log.segment.log_segment import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SWAP_SUFFIX,
    TXN_INDEX_SUFFIX,
    LogSegment,
)
from tidelog.log.segment.offset_index import ENTRY as INDEX_ENTRY
from tidelog.log.segment.offset_index import RELATIVE_OFFSET_MAX
from tidelog.log.segment.segment_verification import false_offset_position
from tidelog.log.segment.transaction_index import AbortedTxn, TransactionIndex
from tidelog.record.batch import CONTROL_BIT
from tidelog.record.control import ControlType, read_marker
from tidelog.record.errors import InvalidRecords
from tidelog.tools.repair.batch_finder import BatchFinder, FoundBatch
from tidelog.tools.repair.offset_settlement import SegmentPlace, settle_epochs, settle_offsets
from tidelog.tools.verify.good_batches import GoodBatches
from tidelog.tools.verify.partition_check import Expectations

ALL_MAGICS: Final = frozenset((0, 1, 2))
TRANSACTIONAL_BIT: Final = 0x10


class Loss(NamedTuple):
    """Bytes of a file that hold no batch that can be kept."""

    path: str
    position: int
    bytes_count: int
    first_offset: int
    end_offset: int | None  # None: nobody can tell how many there were

    @property
    def offsets_count(self) -> int | None:
        return None if self.end_offset is None else self.end_offset - self.first_offset


class LostMarker(NamedTuple):
    """A transaction that was open where offsets were lost: its marker may have been there."""

    producer_id: int
    first_offset: int
    loss: Loss
    is_known_aborted: bool  # the transaction index tells of the marker
    ended_by: str  # what ends it now
    ended_at: int | None


class Cut(NamedTuple):
    """What recovery takes away, and a repair without --salvage."""

    path: str
    position: int
    offset: int
    bytes_count: int
    segments_count: int  # that are dropped whole
    good_records: int  # that would go with the damage
    end_offset: int  # where the good records end


class PlannedSegment(NamedTuple):
    base_offset: int
    path: str
    source: str  # the file that holds the batches
    size: int
    batches: list[FoundBatch] | None  # None: all of the file, as it is
    records_count: int  # that are good
    next_offset: int  # behind the last batch that stays; the base offset if none does
    losses: list[Loss]

    @property
    def is_changed(self) -> bool:
        return self.batches is not None


class SalvagePlan(NamedTuple):
    folder: str
    segments: list[PlannedSegment]
    cut: Cut | None
    lost_markers: list[LostMarker]
    gaps_allowed: bool

    @property
    def losses(self) -> list[Loss]:
        return [loss for segment in self.segments for loss in segment.losses]

    @property
    def has_changes(self) -> bool:
        return any(segment.is_changed for segment in self.segments)

    @property
    def good_records(self) -> int:
        return sum(segment.records_count for segment in self.segments)

    @property
    def bytes_lost(self) -> int:
        return sum(loss.bytes_count for loss in self.losses)

    @property
    def restored_batches(self) -> int:
        return sum(bool(b.head) for each in self.segments for b in each.batches or ())


class _Walked(NamedTuple):
    """A segment as it is, up to its first damage."""

    base_offset: int
    path: str
    size: int
    is_sound: bool
    records_count: int
    next_offset: int
    first_epoch: int | None
    last_epoch: int | None
    magics: frozenset[int]
    has_transactions: bool


class SalvagePlanner:
    def __init__(self, folder: str, expected: Expectations) -> None:
        self._folder = folder
        self._expected = expected
        self._gaps_allowed = expected.may_have_gaps
        names = sorted(os.listdir(folder))
        self.is_interrupted = any(name.endswith(SWAP_SUFFIX) for name in names)
        self._bases = [
            int(name.removesuffix(LOG_SUFFIX))
            for name in names
            if name.endswith(LOG_SUFFIX) and name.removesuffix(LOG_SUFFIX).isdecimal()
        ]
        self._epochs = self._read_epochs()

    def plan(self) -> SalvagePlan:
        walked = [self._walk(number) for number in range(len(self._bases))]
        magics = frozenset[int]().union(*(each.magics for each in walked))
        segments: list[PlannedSegment] = []
        sources = self._sources(walked)
        for number, each in enumerate(walked):
            if each.is_sound and sources[number] == each.path:
                segments.append(_as_it_is(each))
            else:
                around = _epochs_around(walked, number)
                segments.append(self._plan_segment(each, sources[number], magics, around))
        segments = [
            segment._replace(losses=list(self._losses(segments, number)))
            if segment.is_changed
            else segment
            for number, segment in enumerate(segments)
        ]
        markers = []
        if any(each.has_transactions for each in walked):
            markers = list(_lost_markers(segments))
        cut = self._cut(segments)
        return SalvagePlan(self._folder, segments, cut, markers, self._gaps_allowed)

    # Segments

    def _path(self, base_offset: int, suffix: str = LOG_SUFFIX) -> str:
        return f"{self._folder}/{base_offset:020d}{suffix}"

    def _walk(self, number: int) -> _Walked:
        base_offset = self._bases[number]
        walk = GoodBatches(self._path(base_offset), base_offset)
        epochs: list[int] = []
        magics: set[int] = set()
        records, has_gaps, has_disorder, has_transactions = 0, False, False, False
        expected = base_offset
        for batch in walk:
            has_gaps = has_gaps or (batch.base_offset != expected and batch.records_count >= 0)
            expected = batch.last_offset + 1
            records += max(batch.records_count, 1)
            magics.add(batch.magic)
            has_transactions = has_transactions or bool(batch.attributes & TRANSACTIONAL_BIT)
            if batch.magic == 2:
                has_disorder = has_disorder or batch.leader_epoch < (epochs[-1] if epochs else -1)
                epochs[1:] = [batch.leader_epoch] if epochs else []
                epochs = epochs or [batch.leader_epoch]
        is_sound = (
            walk.position == os.path.getsize(walk.path)
            and not (has_gaps and not self._gaps_allowed)
            and not has_disorder
            and walk.next_offset <= self._limit(number)
        )
        return _Walked(
            base_offset,
            walk.path,
            os.path.getsize(walk.path),
            is_sound,
            records,
            walk.next_offset,
            epochs[0] if epochs else None,
            epochs[-1] if epochs else None,
            frozenset(magics),
            has_transactions,
        )

    def _limit(self, number: int) -> int:
        if number + 1 < len(self._bases):
            return self._bases[number + 1]
        return self._bases[number] + RELATIVE_OFFSET_MAX + 1

    def _end(self, number: int) -> int | None:
        """Where the batches of the segment end, if they end where the next one begins."""
        if number + 1 < len(self._bases):
            return self._bases[number + 1]
        if self._gaps_allowed or not self._expected.is_clean:
            return None
        return self._expected.recovery_point

    def _place(self, number: int) -> SegmentPlace:
        base_offset = self._bases[number]
        return SegmentPlace(
            base_offset,
            self._limit(number),
            self._end(number),
            number == 0,
            self._gaps_allowed,
            self._indexed(base_offset),
        )

    def _plan_segment(
        self, walked: _Walked, source: str, magics: frozenset[int], around: tuple[int, int | None]
    ) -> PlannedSegment:
        content = _read(source)
        place = self._place(self._bases.index(walked.base_offset))
        found = self._find(content, place, magics)
        batches = settle_offsets(found, content, place)
        before, after = around
        batches = settle_epochs(batches, content, before=before, after=after, known=self._epochs)
        is_same = (
            source == walked.path
            and sum(batch.size for batch in batches) == len(content)
            and not any(batch.head for batch in batches)
        )
        return PlannedSegment(
            walked.base_offset,
            walked.path,
            source,
            len(content),
            None if is_same else batches,
            sum(max(batch.records_count, 1) for batch in batches),
            batches[-1].last_offset + 1 if batches else walked.base_offset,
            [],
        )

    def _find(
        self, content: bytes, place: SegmentPlace, magics: frozenset[int]
    ) -> list[FoundBatch]:
        return BatchFinder(
            content,
            range(place.base_offset, place.limit_offset),
            magics=(magics | {2}) if magics else ALL_MAGICS,
            indexed=place.indexed,
            gaps_allowed=place.gaps_allowed,
        ).run()

    def _sources(self, walked: list[_Walked]) -> list[str]:
        """The file of each segment: its own, or each other's for two that were swapped."""
        sources = [each.path for each in walked]
        odd = [number for number, each in enumerate(walked) if not each.is_sound and each.size]
        for number in odd:
            for other in odd:
                if number < other and self._are_swapped(walked[number], walked[other]):
                    sources[number], sources[other] = walked[other].path, walked[number].path
        return sources

    def _are_swapped(self, one: _Walked, other: _Walked) -> bool:
        return self._belongs(one, other.base_offset) and self._belongs(other, one.base_offset)

    def _belongs(self, walked: _Walked, base_offset: int) -> bool:
        """Whether all batches of the file are those of another segment, from its first on."""
        number = self._bases.index(base_offset)
        walk = GoodBatches(walked.path, base_offset)
        first = next(iter(walk), None)
        if first is None or (first.base_offset != base_offset and not self._gaps_allowed):
            return False
        for _ in (walk := GoodBatches(walked.path, base_offset)):
            pass
        return walk.position == walked.size and walk.next_offset <= self._limit(number)

    def _indexed(self, base_offset: int) -> dict[int, int]:
        """Last offsets by position, as far as the offset index can be read."""
        try:
            with open(self._path(base_offset, INDEX_SUFFIX), "rb") as file:
                content = file.read()
        except FileNotFoundError:
            return {}
        whole = content[: len(content) - len(content) % INDEX_ENTRY.size]
        return {
            position: base_offset + relative
            for relative, position in INDEX_ENTRY.iter_unpack(whole)
            if position
        }

    def _read_epochs(self) -> LeaderEpochCache:
        try:
            return LeaderEpochCache(read_epochs(f"{self._folder}/{LEADER_EPOCH_FILE}") or ())
        except CorruptCheckpoint:
            return LeaderEpochCache()

    # Losses

    def _losses(self, segments: list[PlannedSegment], number: int) -> Iterator[Loss]:
        segment = segments[number]
        assert segment.batches is not None
        position, next_offset = 0, segment.base_offset
        for before in segments[:number]:
            next_offset = max(next_offset, before.next_offset)
        for batch in segment.batches:
            if batch.position > position:
                lost = batch.position - position
                yield Loss(segment.source, position, lost, next_offset, batch.base_offset)
            position, next_offset = batch.end, batch.last_offset + 1
        if position < segment.size:
            end = self._end(number)
            if end is not None and end < next_offset:
                end = None
            yield Loss(segment.source, position, segment.size - position, next_offset, end)

    # What recovery would do

    def _cut(self, segments: list[PlannedSegment]) -> Cut | None:
        for number, planned in enumerate(segments):
            size = os.path.getsize(planned.path)
            segment = LogSegment(
                self._folder,
                planned.base_offset,
                LogFile(planned.path),
                size,
                index_interval_bytes=LogConfig().index_interval_bytes,
                created_ms=SystemClock().time_ms(),
            )
            scan = segment.scan(verify_crc=True).run()
            limit = self._limit(number) if number + 1 < len(segments) else (1 << 63) - 1
            cut_at = false_offset_position(
                segment, scan, limit, gaps_allowed=self._gaps_allowed, is_first=number == 0
            )
            position = scan.position if cut_at is None else cut_at
            if position < size or scan.next_offset > limit:
                return self._cut_at(segments, number, position)
        return None

    def _cut_at(self, segments: list[PlannedSegment], number: int, position: int) -> Cut:
        planned, later = segments[number], segments[number + 1 :]
        staying = 0
        offset = planned.base_offset
        walk = GoodBatches(planned.path, planned.base_offset)
        for batch in walk:
            if batch.position >= position:
                break
            staying += max(batch.records_count, 1)
            offset = batch.last_offset + 1
        good = planned.records_count + sum(each.records_count for each in later)
        return Cut(
            planned.path,
            position,
            offset,
            sum(os.path.getsize(each.path) for each in segments[number:]) - position,
            len(later),
            max(good - staying, 0),
            max(each.next_offset for each in segments),
        )


def _as_it_is(walked: _Walked) -> PlannedSegment:
    return PlannedSegment(
        walked.base_offset,
        walked.path,
        walked.path,
        walked.size,
        None,
        walked.records_count,
        walked.next_offset,
        [],
    )


def _epochs_around(walked: list[_Walked], number: int) -> tuple[int, int | None]:
    before = [each.last_epoch for each in walked[:number] if each.is_sound]
    after = [each.first_epoch for each in walked[number + 1 :] if each.is_sound]
    return (
        next((epoch for epoch in reversed(before) if epoch is not None), -1),
        next((epoch for epoch in after if epoch is not None), None),
    )


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


# Transactions


class _Seen(NamedTuple):
    base_offset: int
    producer_id: int
    is_transactional: bool
    marker: ControlType | None


def _lost_markers(segments: list[PlannedSegment]) -> Iterator[LostMarker]:
    """Transactions that were open at a loss, with the marker that ends them now."""
    open_from: dict[int, int] = {}
    waiting: dict[int, list[tuple[Loss, int]]] = {}  # by producer: loss and first offset
    aborted = {loss: _aborts_in(segment, loss) for segment in segments for loss in segment.losses}
    for event in _events(segments):
        if isinstance(event, Loss):
            for producer_id, first_offset in open_from.items():
                waiting.setdefault(producer_id, []).append((event, first_offset))
            continue
        if event.marker is None:
            if event.is_transactional:
                open_from.setdefault(event.producer_id, event.base_offset)
            continue
        open_from.pop(event.producer_id, None)
        for loss, first_offset in waiting.pop(event.producer_id, []):
            ended_by = "aborts" if event.marker == ControlType.ABORT else "commits"
            is_known = (event.producer_id, first_offset) in aborted[loss]
            yield LostMarker(
                event.producer_id, first_offset, loss, is_known, ended_by, event.base_offset
            )
    for producer_id, losses in waiting.items():
        for loss, first_offset in losses:
            is_known = (producer_id, first_offset) in aborted[loss]
            yield LostMarker(producer_id, first_offset, loss, is_known, "nothing", None)


def _aborts_in(segment: PlannedSegment, loss: Loss) -> set[tuple[int, int]]:
    """Producer and first offset of transactions whose abort marker the index places in the loss."""
    stem = segment.path.removesuffix(LOG_SUFFIX)
    try:
        entries: list[AbortedTxn] = TransactionIndex(
            stem + TXN_INDEX_SUFFIX, segment.base_offset
        ).entries()
    except CorruptIndex:
        return set()
    end = loss.end_offset if loss.end_offset is not None else 1 << 63
    return {
        (entry.producer_id, entry.first_offset)
        for entry in entries
        if loss.first_offset <= entry.last_offset < end
    }


def _events(segments: list[PlannedSegment]) -> Iterator[_Seen | Loss]:
    for segment in segments:
        if segment.batches is None:
            for batch in GoodBatches(segment.path, segment.base_offset):
                if batch.producer_id >= 0:
                    yield _seen(batch.base_offset, batch.producer_id, batch.attributes, batch.view)
            continue
        content = _read(segment.source)
        losses = list(segment.losses)
        for found in segment.batches:
            while losses and losses[0].position < found.position:
                yield losses.pop(0)
            if found.producer_id >= 0:
                view = memoryview(found.bytes_of(content))
                yield _seen(found.base_offset, found.producer_id, found.attributes, view)
        yield from losses


def _seen(base_offset: int, producer_id: int, attributes: int, view: memoryview) -> _Seen:
    marker = None
    if attributes & CONTROL_BIT:
        try:
            read = read_marker(view)
            marker = None if read is None else read.control_type
        except InvalidRecords:
            marker = None
    is_transactional = bool(attributes & TRANSACTIONAL_BIT) and not attributes & CONTROL_BIT
    return _Seen(base_offset, producer_id, is_transactional, marker)
