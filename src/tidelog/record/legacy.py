"""Message sets of the formats before v2: magic 0 (to 0.9) and magic 1 (0.10), read and written.

A message set is a sequence of entries, without a count before it:

    at  size  field
     0     8  offset        of the message; of its last inner message if it is compressed
     8     4  size          bytes after this field
    12     4  crc           CRC-32 (not 32C) of everything from magic to the end
    16     1  magic         0 or 1
    17     1  attributes    0-2 codec (never zstd), 3 timestamp type (magic 1)
    18     8  timestamp     magic 1 only
     -     4  key length    -1 = null
     -     -  key
     -     4  value length  -1 = null
     -     -  value

Compression is by recursion: a wrapper with a null key holds a compressed message set as its value.
Inner offsets are absolute in magic 0 and relative to the first in magic 1, where the wrapper's
offset is the last record's. A magic 1 wrapper with LogAppendTime gives its timestamp to all inside.
Wrappers in wrappers are refused.

What the broker serves goes through the kernel in one call a message set: `run_of` and `inner_of`
give the records of old formats as those of a v2 batch. `read_messages` and `records_of` loop in
Python, for searches and readers of single messages.
"""

from __future__ import annotations

import zlib
from struct import Struct
from struct import error as StructError
from typing import TYPE_CHECKING, NamedTuple

from tidelog.record import kernel
from tidelog.record.batch import (
    APPEND_TIME_BIT,
    CODEC_MASK,
    LOG_OVERHEAD,
    NO_TIMESTAMP,
    Codec,
    TimestampType,
)
from tidelog.record.compression import codec_of, compress
from tidelog.record.errors import CorruptRecords, InvalidRecords
from tidelog.record.inflation import InflationBudget

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog.record.kernel import Buffer, MessagesCheck, RecordsPart

_ENTRY = Struct(">qiIbB")  # offset, size, crc, magic, attributes
_TIMESTAMP = Struct(">q")
_LENGTH = Struct(">i")
_CRC = Struct(">I")
_MAGIC_POSITION = 16
_FAST_GZIP = 1  # what is converted is sent once, and compressed while others wait
_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1
_SIZE_MIN = 14  # of a message of magic 0 without key and value


class LegacyRecord(NamedTuple):
    """A record as a reader sees it, out of its wrapper; the timestamp is -1 in magic 0."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


class Message:
    """One entry of a message set, a wrapper or a record; its checksum is checked when asked."""

    __slots__ = ("attributes", "crc", "magic", "offset", "size", "view")

    attributes: int
    crc: int
    magic: int
    offset: int

    def __init__(self, view: memoryview) -> None:
        """`view` is exactly one entry."""
        self.view = view
        self.size = len(view)
        self.offset, _, self.crc, self.magic, self.attributes = _ENTRY.unpack_from(view)

    @property
    def is_compressed(self) -> bool:
        return self.attributes & CODEC_MASK != 0

    @property
    def timestamp_type(self) -> TimestampType:
        has_append_time = self.magic > 0 and self.attributes & APPEND_TIME_BIT
        return TimestampType.LOG_APPEND_TIME if has_append_time else TimestampType.CREATE_TIME

    @property
    def timestamp(self) -> int:
        if self.magic == 0:
            return NO_TIMESTAMP
        timestamp: int = _TIMESTAMP.unpack_from(self.view, 18)[0]
        return timestamp

    def require_valid(self) -> None:
        if zlib.crc32(self.view[_MAGIC_POSITION:]) != self.crc:
            raise CorruptRecords(f"The message at offset {self.offset} fails its checksum.")

    def key_and_value(self) -> tuple[bytes | None, bytes | None]:
        try:
            key, position = self._field(18 if self.magic == 0 else 26)
            value, _ = self._field(position)
        except StructError:
            raise InvalidRecords("A message ends before its key and value.") from None
        return key, value

    def _field(self, position: int) -> tuple[bytes | None, int]:
        length = _LENGTH.unpack_from(self.view, position)[0]
        position += 4
        if length < 0:
            return None, position
        if length > self.size - position:
            raise InvalidRecords("A message is shorter than its key or value.")
        return bytes(self.view[position : position + length]), position + length


def read_messages(data: Buffer) -> Iterator[Message]:
    """The whole entries of a message set; what follows the last of them is left aside."""
    view = memoryview(data).cast("B")
    position, end = 0, len(view)
    while end - position >= LOG_OVERHEAD:
        size = _LENGTH.unpack_from(view, position + 8)[0]
        if size < _SIZE_MIN:
            raise CorruptRecords(f"A message of {size} bytes is smaller than its header.")
        if end - position <= _MAGIC_POSITION:
            return
        magic = view[position + _MAGIC_POSITION]
        if magic > 2:
            raise CorruptRecords(f"There is no magic {magic}.")
        if magic == 2:
            raise InvalidRecords("A v2 batch follows messages of an old format.")
        if size + LOG_OVERHEAD > end - position:
            return
        if magic == 1 and size < _SIZE_MIN + 8:
            raise CorruptRecords(f"A message of {size} bytes is smaller than its header.")
        yield Message(view[position : position + LOG_OVERHEAD + size])
        position += LOG_OVERHEAD + size


def records_of(
    message: Message, inflation: InflationBudget | None = None, *, verify_inner: bool = False
) -> list[LegacyRecord]:
    """The records of one entry: itself, or what its value holds when it is a wrapper.

    verify_inner also checks magic and checksum of inner messages, which a stored log has behind it.
    """
    if not message.is_compressed:
        key, value = message.key_and_value()
        return [LegacyRecord(message.offset, message.timestamp, key, value)]
    inner = list(read_messages(inner_set(message, inflation or InflationBudget())))
    if not inner:
        raise InvalidRecords("A compressed message holds no records.")
    base_offset = _base_offset(message, inner[-1].offset)
    return [_inner_record(message, entry, base_offset, verify_inner) for entry in inner]


def inner_set(wrapper: Message, inflation: InflationBudget) -> bytes | bytearray:
    """The message set in a wrapper's value."""
    codec = codec_of(wrapper.attributes)
    if codec == Codec.ZSTD:
        raise InvalidRecords("zstd is not known to the old formats.")
    _, value = wrapper.key_and_value()
    if value is None:
        raise InvalidRecords("A compressed message has no value.")
    return inflation.decompress(codec, value, wrapper.magic)


def _base_offset(wrapper: Message, last_inner_offset: int) -> int:
    """What to add to inner offsets. A wrapper at 0 is a producer's that did not number it."""
    if wrapper.magic == 0 or wrapper.offset == 0:
        return 0
    if wrapper.offset < last_inner_offset:
        raise InvalidRecords("A compressed message lies before its last inner record.")
    return wrapper.offset - last_inner_offset


def _inner_record(
    wrapper: Message, message: Message, base_offset: int, verify: bool
) -> LegacyRecord:
    if message.is_compressed:
        raise InvalidRecords("An inner message is compressed itself.")
    if verify:
        if message.magic != wrapper.magic:
            raise InvalidRecords("An inner message has another magic than its wrapper.")
        message.require_valid()
    key, value = message.key_and_value()
    timestamp = message.timestamp
    if wrapper.timestamp_type == TimestampType.LOG_APPEND_TIME:
        timestamp = wrapper.timestamp
    return LegacyRecord(base_offset + message.offset, timestamp, key, value)


def require_whole(check: MessagesCheck) -> None:
    """That nothing but entries of the old formats was met, and none with a wrong checksum."""
    if check.status == kernel.BAD_CRC:
        raise CorruptRecords(f"Message number {check.messages_count} fails its checksum.")
    if check.status == kernel.NEW_FORMAT:
        raise InvalidRecords("A v2 batch follows messages of an old format.")
    if check.status in (kernel.BAD_SIZE, kernel.BAD_MAGIC):
        raise CorruptRecords("A message has an impossible size or magic.")


def require_fields(check: MessagesCheck) -> None:
    if check.status == kernel.BAD_RECORDS:
        raise InvalidRecords("A message is shorter than its key or value.")


def check_messages(data: Buffer, *, verify: bool, message_bytes_max: int) -> MessagesCheck:
    view = memoryview(data)
    return kernel.check_messages(view, 0, view.nbytes, verify, message_bytes_max, False)


def check_inner(wrapper: Message, inner: Buffer, *, verify: bool) -> MessagesCheck:
    """Of the message set that inner_set gave; `verify` as in records_of."""
    check = check_messages(inner, verify=verify, message_bytes_max=_INT64_MAX)
    require_whole(check)
    if not check.messages_count:
        raise InvalidRecords("A compressed message holds no records.")
    if check.flags & kernel.COMPRESSED:
        raise InvalidRecords("An inner message is compressed itself.")
    if verify and (check.flags & kernel.MIXED_MAGIC or check.magic != wrapper.magic):
        raise InvalidRecords("An inner message has another magic than its wrapper.")
    require_fields(check)
    _base_offset(wrapper, check.last_offset)
    return check


def inner_of(wrapper: Message, inflation: InflationBudget, *, verify: bool = False) -> RecordsPart:
    """The records in a wrapper as those of one v2 batch."""
    inner = inner_set(wrapper, inflation)
    check = check_inner(wrapper, inner, verify=verify)
    append_time = None
    if wrapper.timestamp_type == TimestampType.LOG_APPEND_TIME:
        append_time = wrapper.timestamp
    base_offset = _base_offset(wrapper, check.last_offset)
    return _part(inner, 0, check, base_offset, append_time)


def run_of(view: memoryview, position: int) -> tuple[RecordsPart, int]:
    """The uncompressed entries of one magic at `position`, up to the first that is none, as the
    records of one v2 batch; and where they end."""
    check = _check_run(view, position)
    require_fields(check)
    return _part(view, position, check, 0, None), check.position


def run_end(view: memoryview, position: int) -> int:
    return _check_run(view, position).position


def _check_run(view: memoryview, position: int) -> MessagesCheck:
    return kernel.check_messages(view, position, len(view), False, _INT64_MAX, True)


def _part(
    data: Buffer, position: int, check: MessagesCheck, base_offset: int, append_time: int | None
) -> RecordsPart:
    try:
        encoded, base_timestamp, _ = kernel.messages_to_records(
            data, position, check.position, check.first_offset, None, 0
        )
    except ValueError as problem:
        raise InvalidRecords(f"Messages cannot be read: {problem}.") from None
    first_offset = base_offset + check.first_offset
    if not _INT64_MIN <= first_offset <= _INT64_MAX:
        raise InvalidRecords("A compressed message has offsets beyond 64 bits.")
    return encoded, check.messages_count, first_offset, base_timestamp, append_time


def encode_message(
    magic: int,
    offset: int,
    timestamp: int,
    key: Buffer | None,
    value: Buffer | None,
    attributes: int = 0,
) -> bytes:
    body = bytearray((magic, attributes))
    if magic > 0:
        body += _TIMESTAMP.pack(timestamp)
    for field in (key, value):
        if field is None:
            body += _LENGTH.pack(-1)
        else:
            content = bytes(field)
            body += _LENGTH.pack(len(content))
            body += content
    header = _TIMESTAMP.pack(offset) + _LENGTH.pack(4 + len(body)) + _CRC.pack(zlib.crc32(body))
    return header + body


def messages_of(
    part: RecordsPart, magic: int, codec: Codec, first_offset: int
) -> bytes | bytearray:
    """The records of a v2 batch in an old format: from first_offset on as one message each, or all
    in one wrapper if compressed."""
    is_relative = magic > 0 and codec != Codec.NONE
    try:
        encoded, count, last_offset, max_timestamp = kernel.records_to_messages(
            part, magic, is_relative, first_offset if codec == Codec.NONE else _INT64_MIN
        )
    except ValueError as problem:
        raise InvalidRecords(f"Records cannot be read: {problem}.") from None
    if codec == Codec.NONE or not count:
        return encoded
    *_, append_time = part
    attributes = codec | (APPEND_TIME_BIT if magic > 0 and append_time is not None else 0)
    value = compress(codec, encoded, _FAST_GZIP if codec == Codec.GZIP else None, magic)
    return encode_message(magic, last_offset, max_timestamp, None, value, attributes)
