"""Making v2 batches: the header around records that the kernel encoded, compressed if asked for.

A record is (key, value, headers, timestamp); key and value are bytes or None, a header is
(name, bytes or None). Offsets inside a batch are dense.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.record import kernel
from tidelog.record.batch import (
    APPEND_TIME_BIT,
    CONTROL_BIT,
    HEADER_SIZE,
    NO_SEQUENCE,
    TRANSACTIONAL_BIT,
    Codec,
)
from tidelog.types import NO_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.record.kernel import Buffer, Record


def batch_of(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    append_time_ms: int | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
    is_control: bool = False,
) -> bytearray:
    """One batch of `records`. With append_time_ms its timestamp type is LogAppendTime."""
    encoded, base_timestamp, max_timestamp = kernel.encode_records(records, HEADER_SIZE)
    attributes = TRANSACTIONAL_BIT * is_transactional | CONTROL_BIT * is_control
    if append_time_ms is not None:
        attributes |= APPEND_TIME_BIT
        max_timestamp = append_time_ms
    return finish_batch(
        encoded,
        codec=codec,
        level=level,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        attributes=attributes,
        last_offset_delta=len(records) - 1,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        records_count=len(records),
    )


def finish_batch(
    encoded: bytearray,
    *,
    codec: Codec,
    level: int | None,
    base_offset: int,
    leader_epoch: int,
    attributes: int,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    records_count: int,
) -> bytearray:
    """Compress the records that follow 61 spare bytes in `encoded`, and fill in the header."""
    batch = encoded if codec == Codec.NONE else _compressed(codec, encoded, level)
    kernel.seal_batch(
        batch,
        base_offset,
        leader_epoch,
        attributes & ~7 | codec,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        records_count,
    )
    return batch


def with_payload(payload: Buffer) -> bytearray:
    """Records that are already encoded, behind 61 spare bytes, for finish_batch."""
    encoded = bytearray(HEADER_SIZE)
    encoded += payload
    return encoded


def _compressed(codec: Codec, encoded: bytearray, level: int | None) -> bytearray:
    from tidelog.record.compression import compress

    return with_payload(compress(codec, memoryview(encoded)[HEADER_SIZE:], level))
