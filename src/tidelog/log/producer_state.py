"""What a log knows of each producer: dedup of its last batches, fencing, open transactions.

Rules for a batch from a client (Kafka 3.9's):

    the producer is                   and the batch                        answer
    unknown                           any sequence                         accepted
    known, its batches deleted        any sequence                         accepted
    known, same epoch                 one of the last five batches         duplicate, old offsets
                                      continues the last sequence          accepted
                                      anything else                        45 OUT_OF_ORDER_SEQUENCE
    known, batch of a newer epoch     starts at sequence 0                 accepted, history dropped
                                      anything else                        45
    known, batch of an older epoch    any                                  47 INVALID_PRODUCER_EPOCH
    inside a transaction              not transactional                    48 INVALID_TXN_STATE

Sequences wrap from 2^31 - 1 to 0. Coordinators' own appends skip the sequence checks; replication
and recovery skip all. A `check_*` method changes nothing, so that a failed write leaves no trace;
the matching `add_*` follows once the batch is in the log.

A transaction is open from its first batch to its marker, and unreplicated from there until the
high watermark passes the marker; the first offset of either kind bounds the last stable offset.

The table knows no files: `producer_loading` fills it from snapshots and segments.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from tidelog.log.log_errors import (
    CoordinatorFenced,
    InvalidProducerEpoch,
    InvalidTxnState,
    OutOfOrderSequence,
)
from tidelog.log.log_validator import ValidBatch
from tidelog.log.producer_snapshots import MAY_LACK_BATCHES, SnapshotRow
from tidelog.log.segment.transaction_index import AbortedTxn
from tidelog.record import kernel
from tidelog.record.batch import CONTROL_BIT, SEQUENCES, TRANSACTIONAL_BIT, is_sequence_after
from tidelog.record.kernel import ProducerBatch

BATCHES_KEPT: Final = 5
NO_OFFSET: Final = -1
ABORT_MARKER: Final = 0
COMMIT_MARKER: Final = 1
_NO_INDEX: Final = 1 << 30  # an interval of index entries that no marker reaches


class BatchMetadata(NamedTuple):
    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp: int


class ProducerEntry:
    __slots__ = (
        "batches",
        "coordinator_epoch",
        "current_txn_first_offset",
        "is_from_snapshot",
        "last_timestamp",
        "marker_count",
        "may_lack_batches",
        "producer_epoch",
    )

    def __init__(self, producer_epoch: int, coordinator_epoch: int, last_timestamp: int) -> None:
        self.producer_epoch = producer_epoch
        self.coordinator_epoch = coordinator_epoch  # -1 before the first marker
        self.last_timestamp = last_timestamp
        self.current_txn_first_offset = NO_OFFSET
        self.marker_count = 0  # since the entry was made; see `markers_of`
        self.batches: list[BatchMetadata] = []  # oldest first, at most BATCHES_KEPT, one epoch
        self.is_from_snapshot = False  # the log may hold older ones; see `check_producer`
        # A marker is the first that is known of it, and there may have been batches before; see
        # `check_producer`.
        self.may_lack_batches = False

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else -1

    def move_to_epoch(self, producer_epoch: int) -> None:
        if producer_epoch != self.producer_epoch:
            self.producer_epoch = producer_epoch
            self.batches.clear()
            self.may_lack_batches = False

    def duplicate_of(self, base_sequence: int, last_sequence: int) -> BatchMetadata | None:
        for batch in self.batches:
            if batch.base_sequence == base_sequence and batch.last_sequence == last_sequence:
                return batch
        return None


class ProducerStateTable:
    """Touched only on the broker loop."""

    __slots__ = ("_open_txns", "_unreplicated_txns", "first_unstable_offset", "producers")

    def __init__(self) -> None:
        self.producers: dict[int, ProducerEntry] = {}
        # First offset -> producer id; keys grow, because transactions begin at the log's end.
        self._open_txns: dict[int, int] = {}
        # First offset -> offset of the marker, which the high watermark has not passed yet.
        self._unreplicated_txns: dict[int, int] = {}
        # The smallest key of both, NO_OFFSET when there is none.
        self.first_unstable_offset = NO_OFFSET

    def check_batch(self, batch: ValidBatch, check_sequence: bool) -> BatchMetadata | None:
        """The batch this one repeats, None to append it, or an error."""
        if batch.is_control:
            _, coordinator_epoch = marker_fields(batch.data)
            self.check_marker(batch.producer_id, batch.producer_epoch, coordinator_epoch)
            return None
        return self.check_data_batch(
            batch.producer_id,
            batch.producer_epoch,
            batch.base_sequence,
            batch.last_sequence,
            batch.is_transactional,
            check_sequence,
        )

    def add_batch(self, batch: ValidBatch) -> AbortedTxn | None:
        """A batch that is in the log now; what the transaction index must hold of it."""
        if batch.is_control:
            control_type, coordinator_epoch = marker_fields(batch.data)
            return self.add_marker(
                batch.producer_id,
                batch.producer_epoch,
                coordinator_epoch,
                control_type,
                batch.base_offset,
                batch.max_timestamp,
            )
        self.add_data_batch(
            batch.producer_id,
            batch.producer_epoch,
            batch.base_sequence,
            batch.last_sequence,
            batch.base_offset,
            batch.last_offset,
            batch.max_timestamp,
            batch.is_transactional,
        )
        return None

    def check_data_batch(
        self,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        last_sequence: int,
        is_transactional: bool,
        check_sequence: bool,
    ) -> BatchMetadata | None:
        entry = self.producers.get(producer_id)
        if entry is None:
            return None
        if producer_epoch != entry.producer_epoch:
            if producer_epoch < entry.producer_epoch:
                raise _older_epoch(producer_id, producer_epoch, entry)
            if check_sequence and base_sequence != 0:
                raise OutOfOrderSequence(
                    f"producer {producer_id} begins epoch {producer_epoch} with sequence "
                    f"{base_sequence}, not 0 (its last epoch was {entry.producer_epoch})"
                )
        elif check_sequence and base_sequence != (entry.last_sequence + 1) % SEQUENCES:
            duplicate = entry.duplicate_of(base_sequence, last_sequence)
            if duplicate is None:
                raise OutOfOrderSequence(
                    f"producer {producer_id} sent sequence {base_sequence}, "
                    f"but its last one was {entry.last_sequence}"
                )
            return duplicate
        if entry.current_txn_first_offset != NO_OFFSET and not is_transactional:
            raise InvalidTxnState(
                f"producer {producer_id} has a transaction open and sent a batch outside of it"
            )
        return None

    def check_marker(self, producer_id: int, producer_epoch: int, coordinator_epoch: int) -> None:
        entry = self.producers.get(producer_id)
        if entry is None:
            return
        if producer_epoch < entry.producer_epoch:
            raise _older_epoch(producer_id, producer_epoch, entry)
        if coordinator_epoch < entry.coordinator_epoch:
            raise CoordinatorFenced(
                f"a marker for producer {producer_id} comes from coordinator epoch "
                f"{coordinator_epoch}, but {entry.coordinator_epoch} has been seen"
            )

    def add_data_batch(
        self,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        last_sequence: int,
        base_offset: int,
        last_offset: int,
        timestamp: int,
        is_transactional: bool,
    ) -> None:
        entry = self.producers.get(producer_id)
        if entry is None:
            entry = self.producers[producer_id] = ProducerEntry(producer_epoch, -1, timestamp)
        elif producer_epoch != entry.producer_epoch:
            entry.move_to_epoch(producer_epoch)
        batches = entry.batches
        batches.append(
            BatchMetadata(base_sequence, last_sequence, base_offset, last_offset, timestamp)
        )
        if len(batches) > BATCHES_KEPT:
            del batches[0]
        entry.last_timestamp = timestamp
        if is_transactional and entry.current_txn_first_offset == NO_OFFSET:
            entry.current_txn_first_offset = base_offset
            self._open_txns[base_offset] = producer_id
            self._find_first_unstable()

    def add_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        control_type: int,
        marker_offset: int,
        timestamp: int,
    ) -> AbortedTxn | None:
        """Ends the producer's transaction, if any; what the transaction index must hold of it."""
        entry = self.producers.get(producer_id)
        if entry is None:
            entry = ProducerEntry(producer_epoch, coordinator_epoch, timestamp)
            self.producers[producer_id] = entry
            entry.may_lack_batches = True
        entry.move_to_epoch(producer_epoch)
        entry.coordinator_epoch = coordinator_epoch
        entry.last_timestamp = timestamp
        entry.marker_count += 1
        first_offset = entry.current_txn_first_offset
        if first_offset == NO_OFFSET:
            return None
        entry.current_txn_first_offset = NO_OFFSET
        del self._open_txns[first_offset]
        self._unreplicated_txns[first_offset] = marker_offset
        self._find_first_unstable()
        if control_type != ABORT_MARKER:
            return None
        last_stable_offset = next(iter(self._open_txns), marker_offset + 1)
        return AbortedTxn(producer_id, first_offset, marker_offset, last_stable_offset)

    def replay(self, row: ProducerBatch) -> AbortedTxn | None:
        """A batch that is already in the log."""
        (
            producer_id,
            producer_epoch,
            base_sequence,
            last_sequence,
            base_offset,
            last_offset,
            timestamp,
            attributes,
            _,
            control_type,
            coordinator_epoch,
        ) = row
        if not attributes & CONTROL_BIT:
            self.add_data_batch(
                producer_id,
                producer_epoch,
                base_sequence,
                last_sequence,
                base_offset,
                last_offset,
                timestamp,
                attributes & TRANSACTIONAL_BIT != 0,
            )
            return None
        if control_type not in (ABORT_MARKER, COMMIT_MARKER):
            return None  # emptied by the cleaner, or no transaction marker
        return self.add_marker(
            producer_id, producer_epoch, coordinator_epoch, control_type, base_offset, timestamp
        )

    def has_passed(self, producer_id: int, producer_epoch: int, sequence: int) -> bool:
        """Whether the log holds that of the producer, or anything later."""
        entry = self.producers.get(producer_id)
        if entry is None:
            return False
        if producer_epoch != entry.producer_epoch:
            return producer_epoch < entry.producer_epoch
        return bool(entry.batches) and not is_sequence_after(sequence, entry.last_sequence)

    @property
    def first_open_offset(self) -> int:
        """Of the oldest transaction that no marker has ended."""
        return next(iter(self._open_txns), NO_OFFSET)

    @property
    def has_open_transactions(self) -> bool:
        return bool(self._open_txns)

    @property
    def knows_transactions(self) -> bool:
        """Whether any of the producers has ended one."""
        return any(entry.coordinator_epoch >= 0 for entry in self.producers.values())

    def has_open_transaction(self, producer_id: int) -> bool:
        entry = self.producers.get(producer_id)
        return entry is not None and entry.current_txn_first_offset != NO_OFFSET

    def markers_of(self, producer_id: int) -> int:
        """Changes when a transaction of the producer ends. A request that had to wait before it may
        begin one compares it before and after (KIP-890's verification guard).
        """
        entry = self.producers.get(producer_id)
        return 0 if entry is None else entry.marker_count

    def is_in_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether a transaction of this very epoch is open."""
        entry = self.producers.get(producer_id)
        return (
            entry is not None
            and entry.current_txn_first_offset != NO_OFFSET
            and entry.producer_epoch == producer_epoch
        )

    def high_watermark_moved(self, high_watermark: int) -> None:
        """Transactions whose marker lies below it are decided for every replica."""
        replicated = [
            first for first, marker in self._unreplicated_txns.items() if marker < high_watermark
        ]
        for first_offset in replicated:
            del self._unreplicated_txns[first_offset]
        if replicated:
            self._find_first_unstable()

    def _find_first_unstable(self) -> None:
        first = next(iter(self._open_txns), NO_OFFSET)
        if self._unreplicated_txns:
            unreplicated = min(self._unreplicated_txns)
            first = unreplicated if first == NO_OFFSET else min(first, unreplicated)
        self.first_unstable_offset = first

    def remove_expired(self, now_ms: int, expiration_ms: int) -> None:
        """Producers with an open transaction stay."""
        expired = [
            producer_id
            for producer_id, entry in self.producers.items()
            if entry.current_txn_first_offset == NO_OFFSET
            and now_ms - entry.last_timestamp >= expiration_ms
        ]
        for producer_id in expired:
            del self.producers[producer_id]

    def rows(self) -> Iterator[SnapshotRow]:
        for producer_id, entry in self.producers.items():
            last = entry.batches[-1] if entry.batches else None
            no_delta = MAY_LACK_BATCHES if entry.may_lack_batches else 0
            yield SnapshotRow(
                producer_id,
                entry.producer_epoch,
                last.last_sequence if last else -1,
                last.last_offset if last else NO_OFFSET,
                last.last_offset - last.base_offset if last else no_delta,
                entry.last_timestamp,
                entry.coordinator_epoch,
                entry.current_txn_first_offset,
            )

    def load(self, rows: Iterable[SnapshotRow], now_ms: int, expiration_ms: int) -> None:
        """Replace everything by a snapshot."""
        self.clear()
        open_txns = {}
        for row in rows:
            entry = ProducerEntry(row.producer_epoch, row.coordinator_epoch, row.timestamp)
            entry.is_from_snapshot = True
            entry.current_txn_first_offset = max(row.current_txn_first_offset, NO_OFFSET)
            if row.last_offset >= 0:
                entry.batches.append(_batch_of(row))
            else:
                entry.may_lack_batches = row.offset_delta == MAY_LACK_BATCHES
            self.producers[row.producer_id] = entry
            if entry.current_txn_first_offset != NO_OFFSET:
                open_txns[entry.current_txn_first_offset] = row.producer_id
        self._open_txns = dict(sorted(open_txns.items()))
        self.remove_expired(now_ms, expiration_ms)
        self._find_first_unstable()

    def clear(self) -> None:
        self.producers.clear()
        self._open_txns.clear()
        self._unreplicated_txns.clear()
        self.first_unstable_offset = NO_OFFSET


def _batch_of(row: SnapshotRow) -> BatchMetadata:
    return BatchMetadata(
        (row.last_sequence - row.offset_delta) % SEQUENCES,
        row.last_sequence,
        row.last_offset - row.offset_delta,
        row.last_offset,
        row.timestamp,
    )


def _older_epoch(
    producer_id: int, producer_epoch: int, entry: ProducerEntry
) -> InvalidProducerEpoch:
    return InvalidProducerEpoch(
        f"producer {producer_id} uses epoch {producer_epoch}, "
        f"but epoch {entry.producer_epoch} has been seen"
    )


def marker_fields(data: memoryview | bytearray) -> tuple[int, int]:
    """(control type, coordinator epoch) of a marker."""
    state = kernel.ScanState.at_start(0, _NO_INDEX)
    scan = kernel.scan_log(data, len(data), state, False, 1, len(data))
    if not scan.producers:
        return -1, -1
    marker = scan.producers[0]
    return marker.control_type, marker.coordinator_epoch
