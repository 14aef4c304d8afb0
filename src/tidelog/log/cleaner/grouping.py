"""Which neighbouring segments are cleaned into one.

A group fits one segment as if nothing were removed: log, offset index and time index within their
limits, and no offset further than 2^31 - 1 from the first. So segments that shrink come together,
and what comes out never has to be split.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tidelog.log.offset_index import RELATIVE_OFFSET_MAX


class SegmentSize(NamedTuple):
    base_offset: int
    end_offset: int  # where the next segment begins
    log_bytes: int
    offset_index_bytes: int
    time_index_bytes: int


def group_lengths(
    segments: Sequence[SegmentSize], segment_bytes: int, index_bytes: int
) -> list[int]:
    """How many segments each group has, in order."""
    lengths: list[int] = []
    base_offset = log_bytes = offset_index_bytes = time_index_bytes = 0
    for segment in segments:
        joins = (
            lengths
            and log_bytes + segment.log_bytes <= segment_bytes
            and offset_index_bytes + segment.offset_index_bytes <= index_bytes
            and time_index_bytes + segment.time_index_bytes <= index_bytes
            # An empty segment has no offsets that could be too far away.
            and (
                segment.log_bytes == 0
                or segment.end_offset - 1 - base_offset <= RELATIVE_OFFSET_MAX
            )
        )
        if joins:
            lengths[-1] += 1
            log_bytes += segment.log_bytes
            offset_index_bytes += segment.offset_index_bytes
            time_index_bytes += segment.time_index_bytes
        else:
            lengths.append(1)
            base_offset, log_bytes = segment.base_offset, segment.log_bytes
            offset_index_bytes = segment.offset_index_bytes
            time_index_bytes = segment.time_index_bytes
    return lengths
