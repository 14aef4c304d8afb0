"""What a log knows of each producer: dedup of its last batches, fencing, open transactions.

Rules for a batch from a client (Kafka 3.9's):

    the producer is                   and the batch                        answer
    unknown                           any sequence                         accepted
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

To know the producers at an offset, `producers_at` loads the latest good snapshot below it and
replays the batches after that. Without a snapshot it replays the whole log.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from tidelog.log.log_errors import (
    CoordinatorFenced,
    InvalidProducerEpoch,
    InvalidTxnState,
    OutOfOrderSequence,
)
from tidelog.log.log_validator import ValidBatch
from tidelog.log.producer_snapshots import SnapshotFiles, SnapshotRow
from tidelog.log.segment.log_segment import LogSegment
from tidelog.log.segment.transaction_index import AbortedTxn
from tidelog.record import kernel
from tidelog.record.batch import CONTROL_BIT, SEQUENCES, is_sequence_after
from tidelog.record.kernel import ProducerBatch

logger = logging.getLogger(__name__)

BATCHES_KEPT: Final = 5
NO_OFFSET: Final = -1
ABORT_MARKER: Final = 0
COMMIT_MARKER: Final = 1
# Five batches of a megabyte, and what others wrote between them.
RECALLED_BYTES: Final = 8 << 20
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
        "producer_epoch",
    )

    def __init__(self, producer_epoch: int, coordinator_epoch: int, last_timestamp: int) -> None:
        self.producer_epoch = producer_epoch
        self.coordinator_epoch = coordinator_epoch  # -1 before the first marker
        self.last_timestamp = last_timestamp
        self.current_txn_first_offset = NO_OFFSET
        self.marker_count = 0  # since the entry was made; see `markers_of`
        self.batches: list[BatchMetadata] = []  # oldest first, at most BATCHES_KEPT, one epoch
        self.is_from_snapshot = False  # the log may hold older ones; see `find_duplicate`

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else -1

    def move_to_epoch(self, producer_epoch: int) -> None:
        if producer_epoch != self.producer_epoch:
            self.producer_epoch = producer_epoch
            self.batches.clear()

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
        if not attributes & 0x20:
            self.add_data_batch(
                producer_id,
                producer_epoch,
                base_sequence,
                last_sequence,
                base_offset,
                last_offset,
                timestamp,
                attributes & 0x10 != 0,
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
        """Changes when a transaction of the producer ends. Who has had to wait for leave to begin
        one can so tell whether it has ended meanwhile (KIP-890's verification guard).
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
            yield SnapshotRow(
                producer_id,
                entry.producer_epoch,
                last.last_sequence if last else -1,
                last.last_offset if last else NO_OFFSET,
                last.last_offset - last.base_offset if last else 0,
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


def load_producers(
    table: ProducerStateTable,
    snapshots: SnapshotFiles,
    segments: Sequence[LogSegment],
    *,
    log_start_offset: int,
    end_offset: int,
    now_ms: int,
    expiration_ms: int,
) -> None:
    """Make `table`, and a snapshot, hold what the log says of producers below `end_offset`."""
    snapshots.remove_outside(log_start_offset, end_offset)
    table.clear()
    known_offset = snapshots.load_latest(table, now_ms, expiration_ms)
    known_offset = max(known_offset, log_start_offset)
    if known_offset < end_offset:
        replay_producers(table, segments, known_offset, end_offset)
        snapshots.take(table, end_offset)


def load_producers_at(
    offset: int,
    table: ProducerStateTable,
    snapshots: SnapshotFiles,
    segments: Sequence[LogSegment],
    *,
    log_start_offset: int,
    now_ms: int,
    expiration_ms: int,
) -> None:
    """Fill `table` with what holds at `offset`, above which `snapshots` has none."""
    known_offset = snapshots.load_latest(table, now_ms, expiration_ms)
    known_offset = max(known_offset, log_start_offset)
    if known_offset < offset:
        replay_producers(table, segments, known_offset, offset)


def producers_at(
    end_offset: int,
    snapshots: SnapshotFiles,
    segments: Sequence[LogSegment],
    *,
    log_start_offset: int,
    now_ms: int,
    expiration_ms: int,
) -> ProducerStateTable:
    """What the log says of producers below `end_offset`; nothing is written."""
    older = [each for each in snapshots.offsets() if log_start_offset < each <= end_offset]
    table = ProducerStateTable()
    load_producers_at(
        end_offset,
        table,
        SnapshotFiles(snapshots.directory, older),
        segments,
        log_start_offset=log_start_offset,
        now_ms=now_ms,
        expiration_ms=expiration_ms,
    )
    return table


def replay_producers(
    table: ProducerStateTable, segments: Sequence[LogSegment], start_offset: int, end_offset: int
) -> None:
    """Batches that have a producer and end in [start_offset, end_offset)."""
    first = max(bisect_right([s.base_offset for s in segments], start_offset) - 1, 0)
    for segment in segments[first:]:
        if segment.base_offset >= end_offset or segment.size == 0:
            continue
        position = segment.indexed_position_of(start_offset)
        for piece in segment.scan(verify_crc=False, position=position):
            for row in piece.producers:
                if start_offset <= row.last_offset < end_offset:
                    table.replay(row)
            if piece.next_offset >= end_offset:
                break


def find_duplicate(
    batch: ValidBatch,
    producers: ProducerStateTable,
    segments: Sequence[LogSegment],
    check_sequence: bool,
) -> BatchMetadata | None:
    """As `ProducerStateTable.check_batch`, with what the log knows beyond the table.

    A snapshot holds only the last batch of each producer, but a producer may send its last five
    again: a client that lost its leader sends all that it had in flight. A leader that stopped
    cleanly meanwhile, and leads again, would take the older batches for a gap and answer 45, and
    the client would give up. So on the first such batch the log's end is read for the older ones,
    once for each producer of a snapshot.
    """
    try:
        return producers.check_batch(batch, check_sequence)
    except OutOfOrderSequence:
        entry = producers.producers[batch.producer_id]
        if not entry.is_from_snapshot:
            raise
        entry.is_from_snapshot = False
        entry.batches[:0] = _batches_before(entry, batch.producer_id, segments)
    return producers.check_batch(batch, check_sequence)


def _batches_before(
    entry: ProducerEntry, producer_id: int, segments: Sequence[LogSegment]
) -> Sequence[BatchMetadata]:
    """Of its epoch, the last ones before those it knows."""
    found: deque[BatchMetadata] = deque(maxlen=BATCHES_KEPT - len(entry.batches))
    if not entry.batches:
        return found
    end_offset = entry.batches[0].base_offset
    try:
        for segment, position in _last_stretch(segments, end_offset):
            for piece in segment.scan(verify_crc=True, position=position):
                found.extend(
                    BatchMetadata(
                        row.base_sequence,
                        row.last_sequence,
                        row.base_offset,
                        row.last_offset,
                        row.max_timestamp,
                    )
                    for row in piece.producers
                    if row.producer_id == producer_id
                    and row.producer_epoch == entry.producer_epoch
                    and row.base_offset < end_offset
                    and not row.attributes & CONTROL_BIT
                )
                if piece.next_offset > end_offset:
                    break
    except OSError as error:
        logger.warning("cannot look for batches of producer %d: %s", producer_id, error)
    return found


def _last_stretch(
    segments: Sequence[LogSegment], end_offset: int
) -> Iterator[tuple[LogSegment, int]]:
    """Where to begin in which segments, to read about RECALLED_BYTES up to that offset."""
    number = bisect_right([segment.base_offset for segment in segments], end_offset) - 1
    stretch: list[tuple[LogSegment, int]] = []
    wanted = RECALLED_BYTES
    while number >= 0 and wanted > 0:
        segment = segments[number]
        end = segment.size if stretch else segment.indexed_position_of(end_offset)
        stretch.append((segment, segment.indexed_position_before(max(end - wanted, 0))))
        wanted -= end
        number -= 1
    return reversed(stretch)
