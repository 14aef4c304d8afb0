"""Message sets of magic 0 and 1 for tests, written record by record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.record.batch import APPEND_TIME_BIT, Codec
from tidelog.record.compression import compress
from tidelog.record.legacy import LegacyRecord, encode_message

if TYPE_CHECKING:
    from collections.abc import Sequence


def message_set_of(
    records: Sequence[LegacyRecord],
    magic: int,
    *,
    codec: Codec = Codec.NONE,
    append_time_ms: int | None = None,
) -> bytes:
    """A message set of `records`, in one wrapper if compressed. append_time_ms: LogAppendTime."""
    attributes = APPEND_TIME_BIT if magic > 0 and append_time_ms is not None else 0
    is_relative = magic > 0 and codec != Codec.NONE
    base_offset = records[0].offset if is_relative and records else 0
    encoded = bytearray()
    for offset, timestamp, key, value in records:
        if append_time_ms is not None:
            timestamp = append_time_ms
        encoded += encode_message(magic, offset - base_offset, timestamp, key, value, attributes)
    if codec == Codec.NONE or not records:
        return bytes(encoded)
    timestamp = append_time_ms if append_time_ms is not None else max(r.timestamp for r in records)
    value = compress(codec, encoded, None, magic)
    return encode_message(magic, records[-1].offset, timestamp, None, value, attributes | codec)
