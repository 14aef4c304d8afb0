"""Transaction indexes and producer snapshots against what the batches say of producers.

The batches are replayed from the first one on. A transaction that began before it, and a producer
last heard of before it, are not known; entries and rows about those are believed. So are those
about batches that a cleaner has taken, as far as what is left does not speak against them.
"""

from __future__ import annotations

import os

from tidelog.log.producer_snapshots import CorruptSnapshot, SnapshotRow, decode_snapshot
from tidelog.log.producer_state import ProducerStateTable
from tidelog.log.segment.index_file import CorruptIndex
from tidelog.log.segment.transaction_index import AbortedTxn, TransactionIndex
from tidelog.log.transaction_index_check import TransactionReplay
from tidelog.record.batch import CONTROL_BIT
from tidelog.record.control import read_marker
from tidelog.record.errors import InvalidRecords
from tidelog.record.kernel import ProducerBatch
from tidelog.tools.verify.finding import Finding, Kind, Report
from tidelog.tools.verify.good_batches import GoodBatch

REBUILT = "it is rebuilt from the segment"
REPLAYED = "it is removed; an older snapshot is taken and the batches after it are replayed"
_SEQUENCE_MASK = (1 << 31) - 1


class ProducerCheck:
    """Of one log, segment after segment."""

    def __init__(
        self, folder: str, snapshot_offsets: list[int], report: Report, *, gaps_allowed: bool
    ) -> None:
        self._folder = folder
        self._report = report
        self._gaps_allowed = gaps_allowed
        self._table = ProducerStateTable()
        self._replay = TransactionReplay(self._table)
        self._first_seen: dict[int, int] = {}  # producer -> its first batch in this log
        self._log_first_offset: int | None = None
        self._waiting = sorted(snapshot_offsets)
        self._txn_index: TransactionIndex | None = None
        self.is_whole = True  # no damage so far

    def begin_segment(self, stem: str, base_offset: int) -> None:
        self.reach(base_offset)
        if self._log_first_offset is None:
            self._log_first_offset = base_offset
        self._txn_index = TransactionIndex(f"{stem}.txnindex", base_offset)
        self._replay.begin_segment()

    def batch(self, batch: GoodBatch) -> None:
        if batch.producer_id < 0:
            return
        if self._waiting and self._waiting[0] <= batch.base_offset:
            self.reach(batch.base_offset)
        control_type, coordinator_epoch = _marker_of(batch)
        last_sequence = -1
        if batch.base_sequence != -1:
            delta = batch.last_offset - batch.base_offset
            last_sequence = (batch.base_sequence + delta) & _SEQUENCE_MASK
        self._first_seen.setdefault(batch.producer_id, batch.base_offset)
        self._replay.see(
            ProducerBatch(
                batch.producer_id,
                batch.producer_epoch,
                batch.base_sequence,
                last_sequence,
                batch.base_offset,
                batch.last_offset,
                batch.max_timestamp,
                batch.attributes,
                batch.position,
                control_type,
                coordinator_epoch,
            )
        )

    def end_segment(self, *, is_whole: bool) -> None:
        """Compare the transaction index with what was seen."""
        self.is_whole = self.is_whole and is_whole
        assert self._txn_index is not None
        try:
            entries = self._txn_index.entries()
        except CorruptIndex as problem:
            text = str(problem).removeprefix(self._txn_index.path).strip()
            self._say_index(text)
            return
        if not self.is_whole:
            return
        wrong = [entry for entry in entries if not self._is_right(entry)]
        ends = {entry.last_offset for entry in entries if entry not in wrong}
        missing = [told for told in self._replay.told if told.last_offset not in ends]
        if missing:
            self._say_index(f"it lacks the aborted transaction {tuple(missing[0])}")
        elif wrong:
            self._say_index(f"it holds {tuple(wrong[0])}, which the segment does not")

    def _is_right(self, entry: AbortedTxn) -> bool:
        replay = self._replay
        if entry in replay.told or (self._gaps_allowed and replay.bears_out(entry)):
            return True
        began_before = entry.first_offset < self._first_seen.get(entry.producer_id, 1 << 62)
        if began_before and replay.has_marker_of(entry) and not replay.tells_end_of(entry):
            return True
        return any(self._agrees_with(entry, told) for told in replay.told)

    def _agrees_with(self, entry: AbortedTxn, told: AbortedTxn) -> bool:
        """Retention may have taken the beginning of a transaction: the rest tells too little."""
        first_offset = self._log_first_offset or 0
        if (entry.producer_id, entry.last_offset) != (told.producer_id, told.last_offset):
            return False
        is_begun_before = entry.first_offset < first_offset
        has_open_before = entry.last_stable_offset < first_offset
        return (
            entry.first_offset == told.first_offset
            or (is_begun_before and told.first_offset == self._first_seen[told.producer_id])
        ) and (entry.last_stable_offset == told.last_stable_offset or has_open_before)

    def reach(self, offset: int) -> None:
        """Everything below `offset` has been replayed: compare the snapshots taken there."""
        while self._waiting and self._waiting[0] <= offset:
            taken_at = self._waiting.pop(0)
            self._check_snapshot(taken_at, is_comparable=self.is_whole and taken_at == offset)

    def finish(self, end_offset: int) -> None:
        self.reach(end_offset)
        for offset in self._waiting:
            if self.is_whole:
                self._say_snapshot(offset, "it lies behind the end of the log")
            else:
                self._check_snapshot(offset, is_comparable=False)

    def _check_snapshot(self, offset: int, *, is_comparable: bool) -> None:
        try:
            with open(self._snapshot_path(offset), "rb") as file:
                rows = decode_snapshot(file.read())
        except CorruptSnapshot as problem:
            self._say_snapshot(offset, str(problem))
            return
        for row in rows:
            if row.last_offset >= offset or (is_comparable and not self._agrees(row)):
                self._say_snapshot(offset, f"it tells of producer {row.producer_id} what is not so")
                return

    def _agrees(self, row: SnapshotRow) -> bool:
        known = self._table.producers.get(row.producer_id)
        if known is None or not known.batches:
            return True
        last = known.batches[-1]
        if row.last_offset < 0 or (self._gaps_allowed and row.last_offset > last.last_offset):
            return True
        return (row.last_offset, row.last_sequence) == (last.last_offset, last.last_sequence)

    def _snapshot_path(self, offset: int) -> str:
        return os.path.join(self._folder, f"{offset:020d}.snapshot")

    def _say_snapshot(self, offset: int, problem: str) -> None:
        self._report(Finding(Kind.LOG, self._snapshot_path(offset), problem, REPLAYED))

    def _say_index(self, problem: str) -> None:
        assert self._txn_index is not None
        self._report(Finding(Kind.LOG, self._txn_index.path, problem, REBUILT))


def _marker_of(batch: GoodBatch) -> tuple[int, int]:
    if not batch.attributes & CONTROL_BIT or batch.records_count < 1:
        return -1, -1
    try:
        marker = read_marker(batch.view)
    except InvalidRecords:
        return -1, -1
    return (-1, -1) if marker is None else (int(marker.control_type), marker.coordinator_epoch)
