"""What the batches of a segment say of the aborted transactions that its index should hold.

A replay of the batches `tells` the entries. Where a cleaner has been it cannot tell all: batches of
aborted transactions go, while marker and entry stay for a while. An entry then begins before all
that is left of its transaction, or has nothing but its marker left. It is borne out if

    its marker          is in the segment,
    its first offset    lies above the producer's last marker before, and not behind what is left,
    its last stable     is not above what the transactions still seen to be open allow.

So no reader is made to skip records of another transaction, or to stop looking for aborted ones.
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog.log.producer_state import ABORT_MARKER, NO_OFFSET, ProducerStateTable
from tidelog.log.txn_index import AbortedTxn
from tidelog.record.batch import CONTROL_BIT
from tidelog.record.kernel import ProducerBatch


class _Bounds(NamedTuple):
    above_offset: int
    first_offset_max: int
    last_stable_offset_max: int


class AbortEvidence:
    """Of one segment after the other; `table` is what is known of producers before the first."""

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
