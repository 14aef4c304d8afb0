"""Batches of a producer that its snapshot does not name.

A snapshot holds the last batch of each producer, but five of them are to be known when they are
sent again. A client that was cut off from its leader sends again all that it had in flight, and a
leader that stopped cleanly meanwhile, and leads again, would take the older ones for a gap: error
45, after which the client gives up. So the end of the log is looked through for them, when the
first such batch comes, once for each producer of a snapshot.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

from tidelog.log.producer_state import BATCHES_KEPT, BatchMetadata, ProducerEntry
from tidelog.log.segment import LogSegment
from tidelog.record.batch import CONTROL_BIT

# Five batches of a megabyte, and what others wrote between them.
RECALLED_BYTES: Final = 8 << 20


def recall_batches(segments: Sequence[LogSegment], producer_id: int, entry: ProducerEntry) -> None:
    """Give the entry its batches before those it knows, as far as the end of the log has them."""
    if not entry.batches:
        return
    known_from = entry.batches[0].base_offset
    found: deque[BatchMetadata] = deque(maxlen=BATCHES_KEPT - len(entry.batches))
    for segment, position in _last_stretch(segments, known_from):
        for piece in segment.scan(verify_crc=True, position=position):
            for row in piece.producers:
                is_data = not row[7] & CONTROL_BIT
                if row[:2] == (producer_id, entry.producer_epoch) and is_data:
                    if row[4] >= known_from:
                        break
                    found.append(BatchMetadata(*row[2:7]))
            if piece.next_offset > known_from:
                break
    entry.batches[:0] = found


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
