"""Between the formats: up to v2 for Produce v0-v2, down to magic 1 or 0 for Fetch v0-v3.

Down-conversion works batch by batch, as Kafka's does
- batches already in the wanted magic or an older one pass as they are
- control batches are dropped, record headers too; zstd cannot be expressed (76)
- uncompressed batches become one message a record, those below the fetch offset are dropped (some
  old clients do not skip them); compressed ones one wrapper with the same codec, kept whole
- offsets, timestamps and timestamp type stay

Both directions loop over records in Python: only clients of Kafka 0.10 and older come here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.record import kernel
from tidelog.record.batch import (
    APPEND_TIME_BIT,
    CODEC_MASK,
    CONTROL_BIT,
    HEADER_SIZE,
    NO_LEADER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    Codec,
    TimestampType,
)
from tidelog.record.builder import finish_batch
from tidelog.record.columns import columns_of, part_of
from tidelog.record.compression import codec_of
from tidelog.record.errors import UnsupportedCodec
from tidelog.record.legacy import LegacyRecord, Message, message_set_of, records_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.record.kernel import Buffer

_BATCHES_MAX = 1 << 31


def up_convert(
    records: Sequence[LegacyRecord],
    *,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    append_time_ms: int | None = None,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> tuple[bytearray, int]:
    """One v2 batch of `records`, numbered from base_offset, and its max_timestamp."""
    rows = [(record.key, record.value, (), record.timestamp) for record in records]
    encoded, base_timestamp, max_timestamp = kernel.encode_records(rows, HEADER_SIZE)
    if append_time_ms is not None:
        max_timestamp = append_time_ms
    batch = finish_batch(
        encoded,
        codec=codec,
        level=level,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        attributes=0 if append_time_ms is None else APPEND_TIME_BIT,
        last_offset_delta=len(records) - 1,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=-1,
        base_sequence=NO_SEQUENCE,
        records_count=len(records),
    )
    return batch, max_timestamp


def down_convert(data: Buffer, to_magic: int, first_offset: int) -> bytes:
    """The whole batches of `data` for a reader that knows `to_magic` and asked for first_offset."""
    view = memoryview(data).cast("B")
    converted = bytearray()
    _, _, batches = kernel.list_batches(view, 0, len(view), _BATCHES_MAX)
    for position, size, magic, attributes, base_offset, *_, records_count in batches:
        batch = view[position : position + size]
        if magic == 2 and attributes & CONTROL_BIT:
            continue
        codec = codec_of(attributes & CODEC_MASK)
        if codec == Codec.ZSTD:
            raise UnsupportedCodec("Batches compressed with zstd cannot be converted down.")
        if magic <= to_magic:
            converted += batch
        elif magic == 1:
            converted += _v1_down(batch, codec, first_offset)
        else:
            converted += _v2_down(
                batch, attributes, base_offset, records_count, to_magic, codec, first_offset
            )
    return bytes(converted)


def _v1_down(batch: memoryview, codec: Codec, first_offset: int) -> bytes:
    message = Message(batch)
    records = _asked_for(records_of(message), codec, first_offset)
    append_time = (
        message.timestamp if message.timestamp_type == TimestampType.LOG_APPEND_TIME else None
    )
    return message_set_of(records, 0, codec=codec, append_time_ms=append_time)


def _v2_down(
    batch: memoryview,
    attributes: int,
    base_offset: int,
    records_count: int,
    to_magic: int,
    codec: Codec,
    first_offset: int,
) -> bytes:
    part = part_of(batch, attributes, base_offset, records_count)
    records = [
        LegacyRecord(offset, timestamp, key, value)
        for offset, timestamp, key, value, _ in columns_of([part])
    ]
    return message_set_of(
        _asked_for(records, codec, first_offset), to_magic, codec=codec, append_time_ms=part[4]
    )


def _asked_for(records: list[LegacyRecord], codec: Codec, first_offset: int) -> list[LegacyRecord]:
    if codec != Codec.NONE:
        return records
    return [record for record in records if record.offset >= first_offset]
