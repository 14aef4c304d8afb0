"""What the files of a log say of its producers.

To know the producers at an offset, load the latest good snapshot below it and replay the batches
after that; without a snapshot, replay the whole log. `load_producers` does so at a start,
`producers_at` for a table of its own.

`check_producer` stands before every append of a producer's batch. It asks the table, and reads the
end of the log only where a snapshot has left out what the log knows.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

from tidelog.log.log_environment import LogEnvironment
from tidelog.log.log_errors import OutOfOrderSequence
from tidelog.log.log_validator import ValidBatch
from tidelog.log.producer_snapshots import SnapshotFiles
from tidelog.log.producer_state import (
    BATCHES_KEPT,
    BatchMetadata,
    ProducerEntry,
    ProducerStateTable,
)
from tidelog.log.segment.log_segment import LogSegment
from tidelog.record.batch import CONTROL_BIT

logger = logging.getLogger(__name__)

# Five batches of a megabyte, and what others wrote between them.
RECALLED_BYTES: Final = 8 << 20


def load_producers(
    end_offset: int,
    table: ProducerStateTable,
    snapshots: SnapshotFiles,
    segments: Sequence[LogSegment],
    log_start_offset: int,
    environment: LogEnvironment,
) -> None:
    """Make `table`, and a snapshot, hold what the log says of producers below `end_offset`."""
    snapshots.remove_outside(log_start_offset, end_offset)
    table.clear()
    if load_producers_at(end_offset, table, snapshots, segments, log_start_offset, environment):
        snapshots.take(table, end_offset)


def load_producers_at(
    offset: int,
    table: ProducerStateTable,
    snapshots: SnapshotFiles,
    segments: Sequence[LogSegment],
    log_start_offset: int,
    environment: LogEnvironment,
) -> bool:
    """Fill `table` with what holds at `offset`, above which `snapshots` has none; whether batches
    had to be replayed.
    """
    known_offset = snapshots.load_latest(
        table, environment.clock.time_ms(), environment.producer_expiration_ms
    )
    known_offset = max(known_offset, log_start_offset)
    if known_offset >= offset:
        return False
    replay_producers(table, segments, known_offset, offset)
    return True


def producers_at(
    offset: int,
    snapshots: SnapshotFiles,
    segments: Sequence[LogSegment],
    log_start_offset: int,
    environment: LogEnvironment,
) -> ProducerStateTable:
    """What the log says of producers below `offset`; nothing is written."""
    older = [each for each in snapshots.offsets() if log_start_offset < each <= offset]
    table = ProducerStateTable()
    load_producers_at(
        offset,
        table,
        SnapshotFiles(snapshots.directory, older),
        segments,
        log_start_offset,
        environment,
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


def check_producer(
    batch: ValidBatch,
    producers: ProducerStateTable,
    segments: Sequence[LogSegment],
    check_sequence: bool,
    log_start_offset: int,
) -> BatchMetadata | None:
    """The batch this one repeats, None to append it, or an error: as
    `ProducerStateTable.check_batch`, with what the log knows beyond the table.

    A snapshot holds only the last batch of each producer, but a producer may send its last five
    again: a client that lost its leader sends all that it had in flight. A leader that stopped
    cleanly meanwhile, and leads again, would take the older batches for a gap and answer 45, and
    the client would give up. So on the first such batch the log's end is read for the older ones,
    once for each producer of a snapshot.

    Retention or DeleteRecords may have taken the batches of a transaction before its marker, and
    who reads the log after that, in a recovery or as a follower, learns no sequence from it. The
    producer may then go on with any, as one of which nothing is left. (Kafka answers 45.)
    """
    try:
        return producers.check_batch(batch, check_sequence)
    except OutOfOrderSequence:
        entry = producers.producers[batch.producer_id]
        lacks_batches = entry.may_lack_batches and not entry.batches and log_start_offset > 0
        if lacks_batches and batch.producer_epoch == entry.producer_epoch:
            return None
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
