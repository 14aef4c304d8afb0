"""Compressed batches as the kernel can filter them, and back.

A compressed v2 batch becomes the same batch without compression; a wrapper of an old format becomes
a v2 batch of its records. Neither has a right checksum: the original's has been verified.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.record.batch import (
    APPEND_TIME_BIT,
    CODEC_MASK,
    DELETE_HORIZON_BIT,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC_POSITION,
    NO_SEQUENCE,
    BatchHeader,
    stamp_attributes,
    stamp_crc,
)
from tidelog.record.compression import codec_of, compress, decompress
from tidelog.record.errors import InvalidRecords
from tidelog.record.inflation import InflationBudget
from tidelog.record.legacy import Message, inner_of, messages_of
from tidelog.types import NO_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID

if TYPE_CHECKING:
    from tidelog.record.kernel import Buffer, RecordsPart

_INT64_MIN = -(1 << 63)


class InflatedBatch(NamedTuple):
    content: bytearray
    original: memoryview

    @property
    def is_old(self) -> bool:
        return self.original[MAGIC_POSITION] < 2

    def compressed(self, rewritten: Buffer) -> bytes | bytearray:
        """What filtering has left of `content`, in the format and codec of the original."""
        view = memoryview(rewritten)
        if self.is_old:
            return self._as_wrapper(view)
        codec = codec_of(BatchHeader(self.original).attributes)
        batch = bytearray(view[:HEADER_SIZE]) + compress(codec, view[HEADER_SIZE:])
        stamp_attributes(batch, BatchHeader(view).attributes | codec)
        stamp_crc(batch)
        return batch

    def _as_wrapper(self, view: memoryview) -> bytes | bytearray:
        header = BatchHeader(view)
        wrapper = Message(self.original)
        append_time = wrapper.timestamp if header.attributes & APPEND_TIME_BIT else None
        part: RecordsPart = (
            view[HEADER_SIZE:],
            header.records_count,
            header.base_offset,
            header.base_timestamp,
            append_time,
        )
        codec = codec_of(wrapper.attributes)
        return messages_of(part, wrapper.magic, codec, first_offset=_INT64_MIN)


def inflate(batch: memoryview, *, keep_old_tombstones: bool) -> InflatedBatch:
    """`batch` is exactly one compressed batch or wrapper; KafkaError if it cannot be read."""
    if batch[MAGIC_POSITION] == 2:
        return InflatedBatch(_inflated(batch), batch)
    return InflatedBatch(_from_wrapper(batch, keep_old_tombstones), batch)


def _inflated(batch: memoryview) -> bytearray:
    attributes = BatchHeader(batch).attributes
    content = bytearray(batch[:HEADER_SIZE])
    content += decompress(codec_of(attributes), batch[HEADER_SIZE:])
    stamp_attributes(content, attributes & ~CODEC_MASK)
    return content


def _from_wrapper(batch: memoryview, keep_old_tombstones: bool) -> bytearray:
    """Old formats know no delete horizon; here the mark says that tombstones are past it."""
    wrapper = Message(batch)
    payload, count, base_offset, base_timestamp, append_time = inner_of(wrapper, InflationBudget())
    if wrapper.offset < base_offset:
        raise InvalidRecords("A compressed message lies before its first inner record.")
    attributes = 0 if keep_old_tombstones else DELETE_HORIZON_BIT
    if append_time is not None:
        attributes |= APPEND_TIME_BIT
    payload_view = memoryview(payload)
    header = HEADER.pack(
        base_offset,
        HEADER_SIZE - LOG_OVERHEAD + payload_view.nbytes,
        NO_LEADER_EPOCH,
        2,
        0,
        attributes,
        wrapper.offset - base_offset,
        base_timestamp,
        base_timestamp if append_time is None else append_time,
        NO_PRODUCER_ID,
        NO_PRODUCER_EPOCH,
        NO_SEQUENCE,
        count,
    )
    return bytearray(header) + payload_view
