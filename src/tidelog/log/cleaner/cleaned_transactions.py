"""What becomes of the batches of transactions, as the cleaner passes them in order.

    batch                                      verdict
    of an aborted transaction                  goes
    of another one                             its records are filtered as all others
    marker, records of its transaction seen    stays
    marker, none of them left                  stays until the delete horizon that it gets now, goes
                                               after it
    marker without content                     goes

What goes stays as an empty batch if a producer needs it for its last sequence or epoch, or if it is
the last batch of the round. A marker outlives its transaction's records by delete.retention.ms, so
that a reader that has seen some of them learns how it ended.

Transactions that are open do not occur: cleaning ends at the last stable offset.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tidelog.log.producer_state import ABORT_MARKER, COMMIT_MARKER
from tidelog.log.segment.transaction_index import AbortedTxn
from tidelog.record.batch import CONTROL_BIT, DELETE_HORIZON_BIT, TRANSACTIONAL_BIT
from tidelog.record.kernel import (
    DELETE_BATCH,
    EMPTY_BATCH,
    FILTER_RECORDS,
    KEEP_BATCH,
    SET_HORIZON,
    TransactionalBatch,
)


class LastRecord(NamedTuple):
    """Of an active producer: where its last data batch ends (-1 if a marker came after all)."""

    last_data_offset: int
    producer_epoch: int


class CleanedTransactionMetadata:
    """For one pass over a log, from a given offset on.

    `aborted`: those that may touch the pass; the ones that end before it must not be among them.
    """

    __slots__ = ("_aborted", "_committed", "_next", "_ongoing", "_retained")

    def __init__(self, aborted: Iterable[AbortedTxn]) -> None:
        self._aborted = sorted(aborted, key=lambda txn: txn.first_offset)
        self._next = 0  # the first of them that the pass has not reached
        self._ongoing: dict[int, tuple[AbortedTxn, bool]] = {}  # by producer; batches seen?
        self._committed: set[int] = set()  # producers with batches seen since their last marker
        self._retained: list[AbortedTxn] = []

    def is_aborted(self, batch: TransactionalBatch) -> bool:
        """A data batch that the pass comes to."""
        self._reach(batch.last_offset)
        if not batch.attributes & TRANSACTIONAL_BIT:
            return False
        found = self._ongoing.get(batch.producer_id)
        if found is None:
            self._committed.add(batch.producer_id)
            return False
        self._ongoing[batch.producer_id] = (found[0], True)
        return True

    def ends_empty(self, batch: TransactionalBatch) -> bool:
        """A control batch that the pass comes to: whether nothing of its transaction is left."""
        self._reach(batch.last_offset)
        if batch.records_count == 0:
            return True
        if batch.control_type == ABORT_MARKER:
            found = self._ongoing.pop(batch.producer_id, None)
            if found is None or not found[1]:
                return True
            self._retained.append(found[0])
            return False
        if batch.control_type == COMMIT_MARKER:
            if batch.producer_id not in self._committed:
                return True
            self._committed.remove(batch.producer_id)
        return False

    def _reach(self, offset: int) -> None:
        while self._next < len(self._aborted) and self._aborted[self._next].first_offset <= offset:
            aborted = self._aborted[self._next]
            self._ongoing.setdefault(aborted.producer_id, (aborted, False))
            self._next += 1

    def take_retained(self) -> list[AbortedTxn]:
        """For the transaction index: those whose markers have been passed since the last call."""
        retained, self._retained = self._retained, []
        return retained

    def mapping_verdicts(self, batches: Iterable[TransactionalBatch]) -> bytes:
        """For the offset map: keys of aborted records and of markers do not count."""
        return bytes(self._mapping_verdict(batch) for batch in batches)

    def _mapping_verdict(self, batch: TransactionalBatch) -> int:
        if batch.attributes & CONTROL_BIT:
            self.ends_empty(batch)
            return DELETE_BATCH
        return DELETE_BATCH if self.is_aborted(batch) else FILTER_RECORDS


class BatchRetention:
    """Which batches stay though they hold no record any more, and the verdicts that follow."""

    __slots__ = ("_end_offset", "_last_records", "_now_ms", "_tracker", "kept_offsets")

    def __init__(
        self,
        tracker: CleanedTransactionMetadata,
        last_records: Mapping[int, LastRecord],
        end_offset: int,
        now_ms: int,
    ) -> None:
        self._tracker = tracker
        self._last_records = last_records
        self._end_offset = end_offset  # of the round; its last batch shows that the log got there
        self._now_ms = now_ms
        offsets = {record.last_data_offset for record in last_records.values()}
        # Last offsets of data batches that stay, ascending.
        self.kept_offsets = sorted((offsets | {end_offset - 1}) - {-1})

    def verdicts(self, batches: Iterable[TransactionalBatch]) -> bytes:
        return bytes(self._verdict(batch) for batch in batches)

    def _verdict(self, batch: TransactionalBatch) -> int:
        if not batch.attributes & CONTROL_BIT:
            return self._gone(batch) if self._tracker.is_aborted(batch) else FILTER_RECORDS
        if not self._tracker.ends_empty(batch):
            return KEEP_BATCH
        if batch.records_count == 0:
            return self._gone(batch)
        if not batch.attributes & DELETE_HORIZON_BIT:
            return SET_HORIZON
        return self._gone(batch) if batch.base_timestamp <= self._now_ms else KEEP_BATCH

    def _gone(self, batch: TransactionalBatch) -> int:
        return EMPTY_BATCH if self._is_needed(batch) else DELETE_BATCH

    def _is_needed(self, batch: TransactionalBatch) -> bool:
        if batch.last_offset + 1 == self._end_offset:
            return True
        last = self._last_records.get(batch.producer_id)
        if last is None:
            return False
        if last.last_data_offset >= 0:
            return batch.last_offset == last.last_data_offset
        return batch.attributes & CONTROL_BIT != 0 and batch.producer_epoch == last.producer_epoch
