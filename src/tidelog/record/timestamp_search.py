"""The record inside a batch that a timestamp look-up means, exact to the record.

Batches are found by their headers (`kernel.find_timestamp`); this opens the one that was found.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.record import kernel
from tidelog.record.batch import BatchHeader, TimestampType
from tidelog.record.columns import payload_of
from tidelog.record.errors import InvalidRecords

if TYPE_CHECKING:
    from tidelog.record.kernel import Buffer

_INT64_MIN = -(1 << 63)


class TimestampOffset(NamedTuple):
    timestamp: int
    offset: int


def first_at_or_after(
    batch: Buffer, target_timestamp: int, starting_offset: int = 0
) -> TimestampOffset | None:
    """The first record of `batch` (one batch or message of any format) that is not older."""
    view = memoryview(batch).cast("B")
    if view[16] < 2:
        return _first_legacy(view, target_timestamp, starting_offset)
    header = BatchHeader(view)
    has_append_time = header.timestamp_type == TimestampType.LOG_APPEND_TIME
    if has_append_time and header.max_timestamp < target_timestamp:
        return None
    try:
        found = kernel.find_record(
            payload_of(view[: header.size], header.attributes),
            header.records_count,
            header.base_offset,
            header.base_timestamp,
            _INT64_MIN if has_append_time else target_timestamp,
            starting_offset,
        )
    except ValueError:
        raise InvalidRecords("A batch of the log holds malformed records.") from None
    if found is None:
        return None
    offset, timestamp = found
    return TimestampOffset(header.max_timestamp if has_append_time else timestamp, offset)


def _first_legacy(
    view: memoryview, target_timestamp: int, starting_offset: int
) -> TimestampOffset | None:
    from tidelog.record.legacy import Message, records_of

    for offset, timestamp, _, _ in records_of(Message(view)):
        if timestamp >= target_timestamp and offset >= starting_offset:
            return TimestampOffset(timestamp, offset)
    return None
