"""The transaction indexes of old segments against the markers in the segments.

A transaction index has no checksum, and a lost one looks like one that was never needed. With a
wrong index a read_committed reader would see aborted records. So before a reader of that kind gets
old transactional batches, the index of their segment is compared with the segment's own markers,
and so are those of the next segments as long as transactions reach into them. That is one walk over
a segment in the life of the process; a thread makes it if the segment is large (`WalkDue`).

A replay of a segment's batches tells the entries that its index should hold. After a cleaning it
cannot tell all of them: the cleaner removes batches of aborted transactions while marker and entry
stay for a while. An entry may then begin before all that is left of its transaction, or have
nothing but its marker left. The batches bear it out if

    its marker          is in the segment,
    its first offset    lies above the producer's last marker before, and not behind what is left,
    its last stable     is not above what the transactions still seen to be open allow.

So no reader skips records of another transaction, or stops looking for aborted ones.
"""

from __future__ import annotations

import logging
import os
from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from tidelog.log.log_environment import LogEnvironment
from tidelog.log.producer_loading import producers_at
from tidelog.log.producer_snapshots import SnapshotFiles
from tidelog.log.producer_state import ABORT_MARKER, NO_OFFSET, ProducerStateTable
from tidelog.log.segment.index_file import CorruptIndex
from tidelog.log.segment.log_segment import LogSegment
from tidelog.log.segment.segment_scan import SegmentScan
from tidelog.log.segment.segment_walk import LOOP_BYTES_MAX, Walk, WalkDue, WalkedFile
from tidelog.log.segment.transaction_index import AbortedTxn
from tidelog.record.batch import (
    CONTROL_BIT,
    LOG_OVERHEAD,
    TRANSACTIONAL_BIT,
    base_offset_at,
)
from tidelog.record.errors import CorruptRecords
from tidelog.record.kernel import ProducerBatch
from tidelog.types import INT64_MAX

logger = logging.getLogger(__name__)


class _Bounds(NamedTuple):
    above_offset: int
    first_offset_max: int
    last_stable_offset_max: int


class TransactionReplay:
    """Replays the batches of one segment after another, and tells their aborted transactions.

    `table` is what is known of producers before the first segment.
    """

    __slots__ = ("_bounds", "_ended_at", "_table", "told")

    def __init__(self, table: ProducerStateTable) -> None:
        self._table = table
        self.told: list[AbortedTxn] = []
        self._bounds: dict[tuple[int, int], _Bounds] = {}  # by producer and offset of the marker
        # Where the last transaction of a producer ended, as far as that is known.
        self._ended_at = {
            producer_id: entry.batches[-1].last_offset
            if entry.current_txn_first_offset == NO_OFFSET
            else entry.current_txn_first_offset - 1
            for producer_id, entry in table.producers.items()
            if entry.batches or entry.current_txn_first_offset != NO_OFFSET
        }

    def begin_segment(self) -> None:
        self.told = []
        self._bounds.clear()

    def see(self, row: ProducerBatch) -> None:
        """A batch of a producer."""
        producer_id, offset = row.producer_id, row.base_offset
        aborted = self._table.replay(row)
        if aborted is not None:
            self.told.append(aborted)
        if not row.attributes & CONTROL_BIT:
            return
        if row.control_type == ABORT_MARKER:
            open_offset = self._table.first_open_offset
            self._bounds[producer_id, offset] = _Bounds(
                self._ended_at.get(producer_id, -1),
                offset if aborted is None else aborted.first_offset,
                offset + 1 if open_offset == NO_OFFSET else open_offset,
            )
        self._ended_at[producer_id] = offset

    def has_marker_of(self, entry: AbortedTxn) -> bool:
        return (entry.producer_id, entry.last_offset) in self._bounds

    def tells_end_of(self, entry: AbortedTxn) -> bool:
        return any(entry.last_offset == told.last_offset for told in self.told)

    def bears_out(self, entry: AbortedTxn) -> bool:
        """Though it may not tell the entry: right if the log has been cleaned."""
        bounds = self._bounds.get((entry.producer_id, entry.last_offset))
        return (
            bounds is not None
            and bounds.above_offset < entry.first_offset <= bounds.first_offset_max
            and entry.last_stable_offset <= bounds.last_stable_offset_max
        )


class SegmentWalk(Walk):
    """For the check of one segment, in a thread.

    `transactions` and `next_offset` are there once it `is_clean`: up to `end`, the segment is.
    """

    def __init__(
        self,
        segment: LogSegment,
        earlier: Sequence[LogSegment],
        snapshots: SnapshotFiles,
        *,
        limit_offset: int,
        log_start_offset: int,
        now_ms: int,
        expiration_ms: int,
    ) -> None:
        assert segment.verification is not None
        super().__init__(segment.file.path)
        self._segment = segment
        self._truncations = segment.verification.truncations
        self._gaps_allowed = segment.verification.gaps_allowed
        self._file = WalkedFile.of(segment)
        self.end = self._file.size
        older = [
            offset
            for offset in snapshots.offsets()
            if log_start_offset < offset <= segment.base_offset
        ]
        self._snapshots = SnapshotFiles(snapshots.directory, older)
        known_offset = max(self._snapshots.latest_offset, log_start_offset)
        first = max(bisect_right([each.base_offset for each in earlier], known_offset) - 1, 0)
        self._earlier = [WalkedFile.of(each) for each in earlier[first:] if each.size]
        self._known_from = known_offset
        self._limit_offset = limit_offset
        self._log_start_offset = log_start_offset
        self._now_ms = now_ms
        self._expiration_ms = expiration_ms
        self._has_transactions = False
        self.table = ProducerStateTable()
        self.transactions: TransactionReplay
        self.next_offset = -1
        self.is_noted = False

    def _walk(self) -> bool:
        return self._load_producers() and self._look_over()

    def _load_producers(self) -> bool:
        """What is known of producers where the segment begins."""
        base_offset = self._file.base_offset
        table = self.table
        known_offset = self._snapshots.load_latest(table, self._now_ms, self._expiration_ms)
        known_offset = max(known_offset, self._log_start_offset)
        if known_offset != self._known_from:
            return False  # a snapshot is damaged
        if known_offset >= base_offset:
            return True
        for file in self._earlier:
            for piece in file.scan(verify_crc=False):
                for row in piece.producers:
                    if known_offset <= row.last_offset < base_offset:
                        table.replay(row)
        return True

    def _look_over(self) -> bool:
        file = self._file
        head = os.pread(file.descriptor, LOG_OVERHEAD, 0)
        if len(head) < LOG_OVERHEAD:
            return False
        first_offset = base_offset_at(head)
        if first_offset != file.base_offset and not (
            self._gaps_allowed and first_offset > file.base_offset
        ):
            return False
        self.transactions = transactions = TransactionReplay(self.table)
        scan = file.scan(verify_crc=True)
        for piece in scan:
            for row in piece.producers:
                self._has_transactions |= bool(row.attributes & TRANSACTIONAL_BIT)
                transactions.see(row)
        self.next_offset = scan.next_offset
        return scan.position == file.size and scan.next_offset <= self._limit_offset

    def note_result(self) -> None:
        verification = self._segment.verification
        if self.is_noted or verification is None or verification.truncations != self._truncations:
            return
        self.is_noted = True
        if self.is_clean:
            verification.note_whole(
                self.end, self.next_offset, has_transactions=self._has_transactions
            )


class TransactionIndexCheck:
    """For the segments of one log, as they are now."""

    __slots__ = ("_environment", "_is_on_loop", "_log_start_offset", "_segments", "_snapshots")

    def __init__(
        self,
        segments: Sequence[LogSegment],
        snapshots: SnapshotFiles,
        environment: LogEnvironment,
        log_start_offset: int,
        *,
        is_on_loop: bool = True,
    ) -> None:
        self._is_on_loop = is_on_loop  # not at start-up, when nobody is served
        self._segments = segments
        self._snapshots = snapshots
        self._environment = environment
        self._log_start_offset = log_start_offset

    def before_reading(self, segment: LogSegment | None) -> bool:
        """Of a segment whose records are about to be read; whether an index had to be written."""
        if (
            segment is None
            or segment.verification is None
            or not segment.verification.has_transactions
        ):
            return False
        changed = False
        for each in self._segments[self._segments.index(segment) :]:
            if each.verification is None:
                break
            if not each.verification.txn_index_checked:
                changed = self.repair(each) or changed
            if not each.verification.has_open_transactions:
                break
        return changed

    def before_cleaning(self, offset: int) -> bool:
        """Of the old segments below `offset`: what a cleaner takes for committed stays so."""
        changed = False
        for segment in self._segments:
            if segment.base_offset >= offset:
                break
            if segment.verification is not None and not segment.verification.txn_index_checked:
                changed = self.repair(segment) or changed
        return changed

    def rebuild_damaged(self) -> None:
        """Those whose entries cannot be."""
        for segment in self._segments:
            try:
                segment.txn_index.entries()
            except CorruptIndex as problem:
                logger.warning("rebuilding a transaction index: %s", problem)
                self.repair(segment)

    def repair(self, segment: LogSegment) -> bool:
        """Whether the index was other than the segment says; it is right afterwards.

        CorruptRecords when segment and index are damaged both, WalkDue when the segment is large.
        """
        replay = self._replay(segment)
        try:
            found = segment.txn_index.entries()
        except CorruptIndex as problem:
            if replay.is_damaged:
                raise CorruptRecords(f"{segment.file.path} is damaged, and so {problem}") from None
            found = None
        expected = replay.expected(found or (), self._log_start_offset)
        if segment.verification is not None:
            segment.verification.txn_index_checked = True
            segment.verification.has_open_transactions = replay.is_open
        if found == expected:
            return False
        if found is not None:
            logger.warning(
                "%s is not what %s says: writing it anew", segment.txn_index.path, segment.file.path
            )
        segment.txn_index.reset()
        for aborted in expected:
            segment.add_aborted(aborted)
        return True

    def _replay(self, segment: LogSegment) -> _SegmentReplay:
        limit_offset = self._limit_of(segment)
        walk = None
        is_heavy = self._is_on_loop and segment.size > LOOP_BYTES_MAX
        if segment.verification is not None and is_heavy:
            walk = segment.verification.walk or self._walk_over(segment, limit_offset)
            segment.verification.walk = None if walk.is_noted else walk
            if not walk.is_noted:
                raise WalkDue(walk)
        if walk is not None and walk.is_clean:
            return _SegmentReplay(
                segment, walk.transactions, walk.table, segment.size, limit_offset, walk
            )
        good_end = self._good_end(segment, limit_offset)
        table = self._producers_before(segment)
        return _SegmentReplay(segment, TransactionReplay(table), table, good_end, limit_offset)

    def _walk_over(self, segment: LogSegment, limit_offset: int) -> SegmentWalk:
        return SegmentWalk(
            segment,
            self._segments[: self._segments.index(segment)],
            self._snapshots,
            limit_offset=limit_offset,
            log_start_offset=self._log_start_offset,
            now_ms=self._environment.clock.time_ms(),
            expiration_ms=self._environment.producer_expiration_ms,
        )

    def _producers_before(self, segment: LogSegment) -> ProducerStateTable:
        return producers_at(
            segment.base_offset,
            self._snapshots,
            self._segments,
            self._log_start_offset,
            self._environment,
        )

    def _good_end(self, segment: LogSegment, limit_offset: int) -> int:
        if segment.verification is None:
            return segment.size
        return segment.verification.good_length(segment, 0, segment.size, limit_offset)

    def _limit_of(self, segment: LogSegment) -> int:
        """Where the next segment begins."""
        number = self._segments.index(segment) + 1
        is_last = number == len(self._segments)
        return INT64_MAX if is_last else self._segments[number].base_offset


class _SegmentReplay:
    """What the batches of a segment say of transactions, as far as they are good."""

    def __init__(
        self,
        segment: LogSegment,
        transactions: TransactionReplay,
        table: ProducerStateTable,
        good_end: int,
        limit_offset: int,
        walk: SegmentWalk | None = None,
    ) -> None:
        """After a walk, what has been appended since it began is still to be seen."""
        self._transactions = transactions
        scan = SegmentScan(
            segment.file.fileno(),
            segment.base_offset,
            good_end,
            segment.index_interval_bytes,
            verify_crc=False,
            position=0 if walk is None else walk.end,
            next_offset=segment.base_offset if walk is None else walk.next_offset,
        )
        for piece in scan:
            for row in piece.producers:
                self._transactions.see(row)
        self._gaps_allowed = segment.verification is None or segment.verification.gaps_allowed
        is_short = scan.next_offset < limit_offset < INT64_MAX
        self.is_damaged = good_end < segment.size or (is_short and not self._gaps_allowed)
        self._unknown_offsets = range(scan.next_offset, limit_offset)
        self.is_open = table.has_open_transactions

    def expected(self, found: Sequence[AbortedTxn], log_start_offset: int) -> list[AbortedTxn]:
        """What the batches tell, and what of `found` is to be believed without."""
        believed = [entry for entry in found if self._is_believed(entry, log_start_offset)]
        ends = {entry.last_offset for entry in believed}
        told = [entry for entry in self._transactions.told if entry.last_offset not in ends]
        return sorted(believed + told, key=lambda aborted: aborted.last_offset)

    def _is_believed(self, entry: AbortedTxn, log_start_offset: int) -> bool:
        """If its transaction began before all that is known of its producer, if it ends where the
        segment has lost its batches, or if a cleaner has taken what would tell of it."""
        if self.is_damaged and entry.last_offset in self._unknown_offsets:
            return True
        if self._gaps_allowed and self._transactions.bears_out(entry):
            return True
        return (
            entry.first_offset < log_start_offset
            and self._transactions.has_marker_of(entry)
            and not self._transactions.tells_end_of(entry)
        )
