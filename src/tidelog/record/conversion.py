"""Between the formats: up to v2 for Produce v0-v2, down to magic 1 or 0 for Fetch v0-v3.

Down-conversion works batch by batch, as Kafka's does
- batches already in the wanted magic or an older one pass as they are
- control batches are dropped, record headers too; zstd cannot be expressed (76), but what could be
  converted before it is answered first
- uncompressed batches become one message a record, those below the fetch offset are dropped (some
  old clients do not skip them); compressed ones one wrapper with the same codec, kept whole
- offsets, timestamps and timestamp type stay
- the answer is cut at the size of the slice of the log it was made of, so that it keeps the limits
  the client has set. Only the first converted batch is always whole. (Kafka pads a shorter answer
  up to that size. No client reads the padding, and it is left out here.)
- it stops with the batch that brings what was converted, or inflated for it, to bytes_max

Where there were batches but nothing of them can be said in the old format (transaction markers
alone), the answer is OVERFLOW_MESSAGE, as in Kafka: the beginning of a message that is not there.
Old clients take it for one larger than their fetch size and say so; nothing at all would have them
ask for the same offset for ever. With cut_overflows the same goes for a first batch that is cut
off, which Fetch v0-v2 meets when partition_max_bytes is too small for it. (Kafka, which sent the
cut bytes themselves before it converted lazily, answers nothing since.)

Records are walked by the kernel; Python loops over batches, and over runs of old messages.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from tidelog.record import kernel
from tidelog.record.batch import (
    APPEND_TIME_BIT,
    CODEC_MASK,
    CONTROL_BIT,
    HEADER_SIZE,
    LOG_OVERHEAD,
    NO_SEQUENCE,
    Codec,
)
from tidelog.record.builder import finish_batch
from tidelog.record.columns import legacy_part, part_of
from tidelog.record.compression import codec_of
from tidelog.record.errors import InvalidRecords, UnsupportedCodec
from tidelog.record.legacy import messages_of, run_end
from tidelog.types import NO_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID

if TYPE_CHECKING:
    from tidelog.record.file_records import FileRecords
    from tidelog.record.kernel import BatchRow, Buffer, RecordsPart

OVERFLOW_MESSAGE: Final = Struct(">qi").pack(-1, HEADER_SIZE)

_READ_BYTES = 128 * 1024
_DROPPED_BYTES_MAX = 16 * 1024 * 1024
_BATCHES_A_LIST = 64
_LENGTH_POSITION = 8


def up_convert(
    messages: Buffer,
    records_count: int,
    *,
    messages_time: int | None = None,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    append_time_ms: int | None = None,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> tuple[bytearray, int]:
    """One v2 batch, numbered from base_offset, and its max_timestamp.

    `messages` is a message set of records_count entries, checked and not compressed; messages_time
    is the timestamp of all where their wrapper gives one.
    """
    view = memoryview(messages)
    try:
        encoded, base_timestamp, max_timestamp = kernel.messages_to_records(
            view, 0, view.nbytes, None, messages_time, HEADER_SIZE
        )
    except ValueError as problem:
        raise InvalidRecords(f"Messages cannot be read: {problem}.") from None
    if append_time_ms is not None:
        max_timestamp = append_time_ms
    batch = finish_batch(
        encoded,
        codec=codec,
        level=level,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        attributes=0 if append_time_ms is None else APPEND_TIME_BIT,
        last_offset_delta=records_count - 1,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
        base_sequence=NO_SEQUENCE,
        records_count=records_count,
    )
    return batch, max_timestamp


def down_convert_file(
    records: FileRecords,
    to_magic: int,
    first_offset: int,
    bytes_max: int,
    *,
    cut_overflows: bool = False,
) -> bytes:
    """The whole batches of a slice of a segment, for a reader that knows `to_magic` and asked for
    first_offset; read only as far as bytes_max needs.
    """
    down = _DownConversion(to_magic, first_offset, bytes_max, len(records))
    position, wanted_bytes = 0, _READ_BYTES
    while position < len(records) and not down.is_full:
        chunk = records.read_part(position, wanted_bytes)
        taken_bytes = down.take(memoryview(chunk))
        position += taken_bytes
        wanted_bytes = _READ_BYTES
        if not taken_bytes:
            wanted_bytes = _batch_bytes(chunk)
            if not len(chunk) < wanted_bytes <= len(records) - position:
                break
    return down.answer(was_there=position > 0 or (cut_overflows and len(records) > 0))


def _batch_bytes(start: bytes) -> int:
    """What the batch that begins so would take; 0 if that cannot be seen."""
    if len(start) < LOG_OVERHEAD:
        return 0
    length = int.from_bytes(start[_LENGTH_POSITION:LOG_OVERHEAD], "big", signed=True)
    return LOG_OVERHEAD + length


class _DownConversion:
    """One partition's answer while it is made, fed with stretches of its log in order."""

    def __init__(
        self, to_magic: int, first_offset: int, bytes_max: int, original_bytes: int
    ) -> None:
        self._to_magic = to_magic
        self._first_offset = first_offset
        self._bytes_max = bytes_max
        self._answer_bytes_max = original_bytes
        self._converted = bytearray()
        self._inflated_bytes = 0
        self._dropped_bytes = 0  # before the first that can be converted
        self.is_full = False

    def take(self, view: memoryview) -> int:
        """Convert the whole batches of `view` until it is enough; how many bytes were taken."""
        position = 0
        while not self.is_full:
            _, _, batches = kernel.list_batches(view, position, len(view), _BATCHES_A_LIST)
            if not batches:
                break
            for batch in batches:
                if batch.position >= position and not self.is_full:
                    position = self._take_batch_or_end(view, batch)
        return position

    def _take_batch_or_end(self, view: memoryview, batch: BatchRow) -> int:
        """What comes before a batch that cannot be converted is answered first."""
        is_first = not self._converted
        try:
            position = self._take_batch(view, batch)
        except UnsupportedCodec:
            if not self._converted:
                raise
            self.is_full = True
            return batch.position
        if self._converted:
            self._count(is_first)
        else:
            self._dropped_bytes += position - batch.position
            self.is_full = self._dropped_bytes >= _DROPPED_BYTES_MAX
        return position

    def _count(self, is_first: bool) -> None:
        converted_bytes = len(self._converted)
        if is_first:
            self._answer_bytes_max = max(self._answer_bytes_max, converted_bytes)
        self.is_full = (
            max(converted_bytes, self._inflated_bytes) >= self._bytes_max
            or converted_bytes >= self._answer_bytes_max
        )

    def answer(self, *, was_there: bool) -> bytes:
        if was_there and not self._converted:
            return OVERFLOW_MESSAGE
        return bytes(memoryview(self._converted)[: self._answer_bytes_max])

    def _take_batch(self, view: memoryview, batch: BatchRow) -> int:
        """Where the next one begins."""
        position, magic, attributes = batch.position, batch.magic, batch.attributes
        end = position + batch.size
        if magic == 2 and attributes & CONTROL_BIT:
            return end
        codec = codec_of(attributes & CODEC_MASK)
        if codec == Codec.ZSTD:
            raise UnsupportedCodec("Batches compressed with zstd cannot be converted down.")
        if magic == 2:
            part = part_of(view[position:end], attributes, batch.base_offset, batch.records_count)
            self._add(part, codec)
            return end
        near = view[: max(end, position + _READ_BYTES)]
        if magic <= self._to_magic:
            if codec == Codec.NONE:
                end = run_end(near, position)
            self._converted += view[position:end]
            return end
        part, end = legacy_part(near, position, batch.size, attributes)
        self._add(part, codec)
        return end

    def _add(self, part: RecordsPart, codec: Codec) -> None:
        self._inflated_bytes += memoryview(part[0]).nbytes
        self._converted += messages_of(part, self._to_magic, codec, self._first_offset)
