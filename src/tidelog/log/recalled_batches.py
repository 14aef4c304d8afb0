"""Batches of a producer that its snapshot does not name.

A snapshot holds the last batch of each producer, but five of them are to be known when they are
sent again. A client that was cut off from its leader sends again all that it had in flight, and a
leader that stopped cleanly meanwhile, and leads again, would take the older ones for a gap: error
45, after which the client gives up. So the end of the log is looked through for them, when the
first such batch comes, once for each producer of a snapshot.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

from tidelog.log.log_errors import OutOfOrderSequence
from tidelog.log.producer_state import (
    BATCHES_KEPT,
    BatchMetadata,
    ProducerEntry,
    ProducerStateTable,
)
from tidelog.log.segment import LogSegment
from tidelog.log.valid_batch import ValidBatch
from tidelog.record.batch import CONTROL_BIT

logger = logging.getLogger(__name__)

# Five batches of a megabyte, and what others wrote between them.
RECALLED_BYTES: Final = 8 << 20


def find_duplicate(
    batch: ValidBatch,
    producers: ProducerStateTable,
    segments: Sequence[LogSegment],
    check_sequence: bool,
) -> BatchMetadata | None:
    """As `ProducerStateTable.check_batch`, with what the log knows beyond the table."""
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
