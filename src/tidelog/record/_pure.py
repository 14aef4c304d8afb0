"""The kernel's twin in plain Python: the same answers, for machines without a C compiler.

It is also the readable statement of what the C does; `kernel` documents the functions. Bounds are
left to Python: every read past the end or past a record surfaces as IndexError or struct.error.
"""

from __future__ import annotations

import zlib
from array import array
from struct import Struct
from struct import error as StructError
from typing import TYPE_CHECKING, NamedTuple

from tidelog.record._results import (
    APPEND_TIME,
    AT_END,
    AT_LIMIT,
    BAD_CRC,
    BAD_MAGIC,
    BAD_OFFSET,
    BAD_RECORDS,
    BAD_SIZE,
    COMPRESSED,
    INCOMPLETE,
    MIXED_MAGIC,
    NEW_FORMAT,
    NO_BATCH,
    NO_TIMESTAMP,
    NULL_KEY,
    OK,
    OLD_FORMAT,
    SPARSE_OFFSETS,
    TOO_LARGE,
    WALKED,
    BatchRow,
    ConsumerRecord,
    LogScan,
    MessagesCheck,
    ProducerBatch,
    RecordColumns,
    ScanState,
)
from tidelog.record.varint import decode_varint, decode_varlong, encode_varint

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from typing_extensions import Buffer

    from tidelog.record._results import (
        BatchCheckTuple,
        OffsetCommitRow,
        Record,
        RecordsCheckTuple,
        RecordsPart,
        TypedPart,
    )

    Found = tuple[int, int, int, int, int]

_CUT = -1

_HEADER = Struct(">qiibIhiqqqhii")
_OFFSET_AND_SIZE = Struct(">qi")
_V1_TIMESTAMP = Struct(">q")
_CRC = Struct(">I")
_LENGTH = Struct(">i")
_OFFSET_ENTRY = Struct(">ii")
_TIME_ENTRY = Struct(">qI")
_CONTROL_KEY = Struct(">hh")
_CONTROL_VALUE = Struct(">hi")
_INT16 = Struct(">h")
_INT64 = Struct(">q")
_INT64_PAIR = Struct(">qq")
_COMMIT_KEY_TYPE = b"\0\1"
_COMMIT_VALUE = Struct(">hqi")  # version, offset, leader epoch
_EXPIRING_COMMIT_VALUE = Struct(">hq")
_STRING_BYTES_MAX = 32767
_OVERHEAD = 12
_MAGIC = 16
_V0_SIZE_MIN = 14
_V1_SIZE_MIN = 22
_HEADER_SIZE = 61
_V1_OVERHEAD = 34
_CRC_AT = 17
_CRC_START = 21
_INT32_MAX = (1 << 31) - 1
_UINT32_MAX = (1 << 32) - 1
_INT64_MAX = (1 << 63) - 1
_COLUMN_BYTES_MAX = _INT32_MAX


def _crc_tables() -> list[list[int]]:
    first = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        first.append(crc)
    tables = [first]
    for _ in range(7):
        tables.append([crc >> 8 ^ first[crc & 0xFF] for crc in tables[-1]])
    return tables


_TABLES: list[list[int]] = []
_WORDS = Struct("<II")


def crc32c(data: Buffer, crc: int = 0, /) -> int:
    if not _TABLES:
        _TABLES.extend(_crc_tables())
    t0, t1, t2, t3, t4, t5, t6, t7 = _TABLES
    view = memoryview(data).cast("B")
    crc = crc & 0xFFFFFFFF ^ 0xFFFFFFFF
    whole = len(view) & ~7
    for low, high in _WORDS.iter_unpack(view[:whole]):
        low ^= crc
        crc = (
            t7[low & 0xFF]
            ^ t6[low >> 8 & 0xFF]
            ^ t5[low >> 16 & 0xFF]
            ^ t4[low >> 24]
            ^ t3[high & 0xFF]
            ^ t2[high >> 8 & 0xFF]
            ^ t1[high >> 16 & 0xFF]
            ^ t0[high >> 24]
        )
    for byte in view[whole:]:
        crc = t0[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def _signed(value: int) -> int:
    value &= 0xFFFFFFFFFFFFFFFF
    return value - (1 << 64) if value >> 63 else value


class _Malformed(ValueError):
    pass


def _skip_field(payload: memoryview, position: int, body_end: int) -> tuple[int, int]:
    """(start or -1 for null, end) of a length-prefixed field that must lie inside its record."""
    length, position = decode_varint(payload, position)
    if length < 0:
        return -1, position
    if length > body_end - position:
        raise _Malformed
    return position, position + length


def _walk(
    payload: memoryview, records_count: int
) -> Iterator[tuple[int, int, int, int, int, int, int, int]]:
    """Each record's timestamp delta, offset delta, key start and end, value start and end, headers
    count and headers start. _Malformed unless all fields, headers too, fit exactly."""
    if records_count < 0:
        raise _Malformed("malformed records")
    end = len(payload)
    position = 0
    for _ in range(records_count):
        try:
            length, position = decode_varint(payload, position)
            if length < 1 or length > end - position:
                raise _Malformed
            body = payload[: position + length]
            body_end = position + length
            timestamp_delta, position = decode_varlong(body, position + 1)
            offset_delta, position = decode_varint(body, position)
            key_start, key_end = _skip_field(body, position, body_end)
            value_start, value_end = _skip_field(body, key_end, body_end)
            headers_count, headers_start = decode_varint(body, value_end)
            if headers_count < 0 or headers_count > body_end - headers_start:
                raise _Malformed
            position = headers_start
            for _ in range(headers_count):
                header_key_start, position = _skip_field(body, position, body_end)
                if header_key_start < 0:
                    raise _Malformed
                _, position = _skip_field(body, position, body_end)
        except (IndexError, ValueError) as problem:
            raise _Malformed("malformed records") from problem
        if position != body_end:
            raise _Malformed("malformed records")
        yield (
            timestamp_delta,
            offset_delta,
            key_start,
            key_end,
            value_start,
            value_end,
            headers_count,
            headers_start,
        )
    if position != end:
        raise _Malformed("malformed records")


def check_records(payload: Buffer, records_count: int, base_timestamp: int, /) -> RecordsCheckTuple:
    min_timestamp, largest_timestamp, delta_of_largest, flags = -1, -1, -1, WALKED
    view = memoryview(payload).cast("B")
    try:
        for index, (timestamp_delta, offset_delta, key_start, *_) in enumerate(
            _walk(view, records_count)
        ):
            timestamp = _signed(base_timestamp + timestamp_delta)
            if timestamp != -1 and (min_timestamp == -1 or timestamp < min_timestamp):
                min_timestamp = timestamp
            if timestamp > largest_timestamp:
                largest_timestamp, delta_of_largest = timestamp, offset_delta
            if key_start < 0:
                flags |= NULL_KEY
            if offset_delta != index:
                flags |= SPARSE_OFFSETS
    except _Malformed:
        return BAD_RECORDS, -1, -1, -1, 0
    return OK, min_timestamp, largest_timestamp, delta_of_largest, flags


def check_batch(data: Buffer, /) -> BatchCheckTuple:
    view = memoryview(data).cast("B")
    length = len(view)
    if length < _OVERHEAD:
        return _header_problem(NO_BATCH)
    size = int.from_bytes(view[8:12], "big", signed=True)
    if size < _V0_SIZE_MIN:
        return _header_problem(BAD_SIZE)
    size += _OVERHEAD
    if length <= _MAGIC:
        return _header_problem(NO_BATCH)
    magic = view[_MAGIC]
    if magic > 2:
        return _header_problem(BAD_MAGIC)
    if length < size:
        return _header_problem(NO_BATCH)
    if magic < 2:
        return OLD_FORMAT, size, 0, magic, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
    if size < _HEADER_SIZE:
        return _header_problem(BAD_SIZE)
    return _check_v2(view[:size], size)


def _header_problem(status: int) -> BatchCheckTuple:
    return status, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0


def _check_v2(batch: memoryview, size: int) -> BatchCheckTuple:
    (
        base_offset,
        _,
        _,
        magic,
        crc,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        records_count,
    ) = _HEADER.unpack_from(batch)
    status, minimum, largest, delta, flags = OK, -1, -1, -1, 0
    if crc32c(batch[_CRC_START:]) != crc:
        status = BAD_CRC
    elif attributes & 7 == 0:
        status, minimum, largest, delta, flags = check_records(
            batch[_HEADER_SIZE:], records_count, base_timestamp
        )
    return (
        status,
        size,
        base_offset,
        magic,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        records_count,
        minimum,
        largest,
        delta,
        flags,
    )


def _row_at(view: memoryview, position: int, end: int) -> tuple[int, BatchRow | None]:
    """(why there is no header, None) or (AT_END, the header) of the batch at `position`."""
    left = end - position
    if left < _MAGIC + 1:
        return INCOMPLETE, None
    offset, size = _OFFSET_AND_SIZE.unpack_from(view, position)
    if size < _V0_SIZE_MIN:
        return BAD_SIZE, None
    magic = view[position + _MAGIC]
    if magic > 2:
        return BAD_MAGIC, None
    if magic == 2:
        return _v2_row(view, position, left, size + _OVERHEAD)
    timestamp = -1
    if magic == 1:
        if size < _V1_SIZE_MIN:
            return BAD_SIZE, None
        if left < 26:
            return INCOMPLETE, None
        timestamp = _V1_TIMESTAMP.unpack_from(view, position + 18)[0]
    elif left < 18:
        return INCOMPLETE, None
    attributes = view[position + 17]
    count = -1 if attributes & 7 else 1
    return AT_END, BatchRow(
        position,
        size + _OVERHEAD,
        magic,
        attributes,
        offset,
        offset,
        -1,
        timestamp,
        timestamp,
        -1,
        -1,
        -1,
        count,
    )


def _v2_row(view: memoryview, position: int, left: int, size: int) -> tuple[int, BatchRow | None]:
    if size < _HEADER_SIZE:
        return BAD_SIZE, None
    if left < _HEADER_SIZE:
        return INCOMPLETE, None
    (
        base_offset,
        _,
        leader_epoch,
        magic,
        _,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        records_count,
    ) = _HEADER.unpack_from(view, position)
    return AT_END, BatchRow(
        position,
        size,
        magic,
        attributes,
        base_offset,
        _signed(base_offset + last_offset_delta),
        leader_epoch,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        records_count,
    )


def _require_range(view: memoryview, position: int, end: int) -> None:
    if not 0 <= position <= end <= len(view):
        raise ValueError("position and end do not lie inside the buffer")


def list_batches(
    buffer: Buffer, position: int, end: int, batches_max: int, /
) -> tuple[int, int, list[BatchRow]]:
    with memoryview(buffer) as raw, raw.cast("B") as view:
        _require_range(view, position, end)
        rows: list[BatchRow] = []
        while position < end:
            if len(rows) >= batches_max:
                return position, AT_LIMIT, rows
            why, row = _row_at(view, position, end)
            if row is None:
                return position, why, rows
            if row.size > end - position:
                return position, INCOMPLETE, rows
            rows.append(row)
            position += row.size
        return position, AT_END, rows


def find_offset(buffer: Buffer, position: int, end: int, target_offset: int, /) -> Found:
    return _find(buffer, position, end, target_offset, None)


def find_timestamp(
    buffer: Buffer, position: int, end: int, target_timestamp: int, starting_offset: int, /
) -> Found:
    return _find(buffer, position, end, starting_offset, target_timestamp)


def _find(
    buffer: Buffer, position: int, end: int, target_offset: int, target_timestamp: int | None
) -> Found:
    with memoryview(buffer) as raw, raw.cast("B") as view:
        _require_range(view, position, end)
        while position < end:
            why, row = _row_at(view, position, end)
            if row is None:
                return (0 if why == INCOMPLETE else -1), position, 0, 0, 0
            if row.last_offset >= target_offset and (
                target_timestamp is None or row.max_timestamp >= target_timestamp
            ):
                return 1, position, row.size, row.base_offset, row.last_offset
            position += row.size
        return 0, position, 0, 0, 0


def find_record(
    payload: Buffer,
    records_count: int,
    base_offset: int,
    base_timestamp: int,
    target_timestamp: int,
    starting_offset: int,
    /,
) -> tuple[int, int] | None:
    view = memoryview(payload).cast("B")
    for timestamp_delta, offset_delta, *_ in _walk(view, records_count):
        timestamp = _signed(base_timestamp + timestamp_delta)
        offset = _signed(base_offset + offset_delta)
        if timestamp >= target_timestamp and offset >= starting_offset:
            return offset, timestamp
    return None


def _batch_crc_holds(view: memoryview, row: BatchRow) -> bool:
    batch = view[row.position : row.position + row.size]
    if row.magic == 2:
        stored: int = _CRC.unpack_from(batch, 17)[0]
        return crc32c(batch[_CRC_START:]) == stored
    stored = _CRC.unpack_from(batch, _OVERHEAD)[0]
    return zlib.crc32(batch[_MAGIC:]) == stored


def _control_of(view: memoryview, row: BatchRow) -> tuple[int, int]:
    """(control type, coordinator epoch) of a control batch's first record; -1 what is not there."""
    if row.attributes & 0x27 != 0x20 or row.records_count < 1:
        return -1, -1
    payload = view[row.position + _HEADER_SIZE : row.position + row.size]
    try:
        _, place = decode_varint(payload, 0)
        _, place = decode_varlong(payload, place + 1)
        _, place = decode_varint(payload, place)
        key_start, place = _skip_field(payload, place, len(payload))
        key_length = place - key_start
        value_start, place = _skip_field(payload, place, len(payload))
    except (IndexError, ValueError):
        return -1, -1
    if key_start < 0 or key_length < 4:
        return -1, -1
    control_type: int = _CONTROL_KEY.unpack_from(payload, key_start)[1]
    if value_start < 0 or place - value_start < 6:
        return control_type, -1
    return control_type, _CONTROL_VALUE.unpack_from(payload, value_start)[1]


def _producer_batch(view: memoryview, row: BatchRow, file_position: int) -> ProducerBatch:
    control_type, coordinator_epoch = _control_of(view, row)
    last_sequence = -1
    if row.base_sequence != -1:
        last_sequence = (row.base_sequence + row.last_offset - row.base_offset) & _INT32_MAX
    return ProducerBatch(
        row.producer_id,
        row.producer_epoch,
        row.base_sequence,
        last_sequence,
        row.base_offset,
        row.last_offset,
        row.max_timestamp,
        row.attributes,
        file_position + row.position,
        control_type,
        coordinator_epoch,
    )


def scan_log(
    buffer: Buffer,
    end: int,
    state: ScanState,
    verify_crc: int,
    batches_max: int,
    bytes_max: int,
    /,
) -> LogScan:
    (
        segment_base_offset,
        index_interval_bytes,
        file_position,
        next_offset,
        max_timestamp,
        offset_of_max_timestamp,
        bytes_since_last_index_entry,
        last_time_index_timestamp,
        leader_epoch,
    ) = state
    if file_position < 0:
        raise ValueError("file_position is negative")
    offset_index, time_index = bytearray(), bytearray()
    epochs: list[tuple[int, int]] = []
    producers: list[ProducerBatch] = []
    position = batches_count = 0
    with memoryview(buffer) as raw, raw.cast("B") as view:
        _require_range(view, position, end)
        why = AT_END
        while position < end:
            if batches_count >= batches_max or position >= bytes_max:
                why = AT_LIMIT
                break
            why, row = _row_at(view, position, end)
            if row is None:
                break
            if row.size > end - position:
                why = INCOMPLETE
                break
            if verify_crc and not _batch_crc_holds(view, row):
                why = BAD_CRC
                break
            place = file_position + position
            if (
                not next_offset <= row.base_offset <= row.last_offset < _INT64_MAX
                or not 0 <= row.last_offset - segment_base_offset <= _INT32_MAX
                or place > _INT32_MAX
            ):
                why = BAD_OFFSET
                break
            if row.max_timestamp > max_timestamp:
                max_timestamp, offset_of_max_timestamp = row.max_timestamp, row.last_offset
            if bytes_since_last_index_entry > index_interval_bytes:
                offset_index += _OFFSET_ENTRY.pack(row.last_offset - segment_base_offset, place)
                if max_timestamp > last_time_index_timestamp:
                    time_index += _TIME_ENTRY.pack(
                        max_timestamp, (offset_of_max_timestamp - segment_base_offset) & 0xFFFFFFFF
                    )
                    last_time_index_timestamp = max_timestamp
                bytes_since_last_index_entry = 0
            bytes_since_last_index_entry += row.size
            if row.magic == 2 and row.leader_epoch > leader_epoch:
                leader_epoch = row.leader_epoch
                epochs.append((leader_epoch, row.base_offset))
            if row.producer_id >= 0:
                producers.append(_producer_batch(view, row, file_position))
            next_offset = row.last_offset + 1
            batches_count += 1
            position += row.size
            why = AT_END
    state = state._replace(
        file_position=_signed(file_position + position),
        next_offset=next_offset,
        max_timestamp=max_timestamp,
        offset_of_max_timestamp=offset_of_max_timestamp,
        bytes_since_last_index_entry=bytes_since_last_index_entry,
        last_time_index_timestamp=last_time_index_timestamp,
        leader_epoch=leader_epoch,
    )
    indexes = bytes(offset_index), bytes(time_index)
    return LogScan(position, why, state, batches_count, *indexes, epochs, producers)


class _BinaryColumn:
    """Arrow's layout of a nullable binary column, grown row by row."""

    def __init__(self) -> None:
        self.offsets = array("i", [0])
        self.valid = bytearray()
        self.data = bytearray()

    def append(self, value: Buffer | None) -> None:
        self.valid.append(value is not None)
        if value is not None:
            self.data += value
        if len(self.data) > _COLUMN_BYTES_MAX:
            raise ValueError("records beyond 2 GiB")
        self.offsets.append(len(self.data))

    def validity(self) -> bytearray:
        bitmap = bytearray((len(self.valid) + 7) // 8)
        for row, valid in enumerate(self.valid):
            bitmap[row >> 3] |= valid << (row & 7)
        return bitmap


def _bytes_of(column: array[int]) -> bytearray:
    return bytearray(column.tobytes())


def _field(payload: memoryview, start: int, end: int) -> memoryview | None:
    return None if start < 0 else payload[start:end]


def records_to_columns(
    parts: Sequence[RecordsPart], spare: RecordColumns | None = None, /
) -> RecordColumns:
    if spare is not None and not (isinstance(spare, tuple) and len(spare) == 15):
        raise ValueError("spare is an earlier answer")
    offsets, timestamps, header_offsets = array("q"), array("q"), array("i", [0])
    keys, values, header_keys, header_values = (_BinaryColumn() for _ in range(4))
    for data, records_count, base_offset, base_timestamp, append_time in parts:
        payload = memoryview(data).cast("B")
        for record in _walk(payload, records_count):
            timestamp_delta, offset_delta, key_start, key_end, value_start, value_end = record[:6]
            headers_count, position = record[6:]
            offsets.append(_signed(base_offset + offset_delta))
            if append_time is None:
                timestamps.append(_signed(base_timestamp + timestamp_delta))
            else:
                timestamps.append(append_time)
            keys.append(_field(payload, key_start, key_end))
            values.append(_field(payload, value_start, value_end))
            for _ in range(headers_count):
                start, position = _skip_field(payload, position, len(payload))
                header_keys.append(payload[start:position])
                start, position = _skip_field(payload, position, len(payload))
                header_values.append(_field(payload, start, position))
            header_offsets.append(header_offsets[-1] + headers_count)
    return RecordColumns(
        len(offsets),
        _bytes_of(offsets),
        _bytes_of(timestamps),
        _bytes_of(keys.offsets),
        keys.validity(),
        keys.data,
        _bytes_of(values.offsets),
        values.validity(),
        values.data,
        _bytes_of(header_offsets),
        _bytes_of(header_keys.offsets),
        header_keys.data,
        _bytes_of(header_values.offsets),
        header_values.validity(),
        header_values.data,
    )


def records_to_tuples(
    parts: Sequence[TypedPart], topic: str, partition: int, first_offset: int, /
) -> list[ConsumerRecord]:
    rows = []
    total = 0
    for part, timestamp_type, leader_epoch in parts:
        data, records_count, base_offset, base_timestamp, append_time = part
        payload = memoryview(data).cast("B")
        for record in _walk(payload, records_count):
            timestamp_delta, offset_delta, key_start, key_end, value_start, value_end = record[:6]
            offset = _signed(base_offset + offset_delta)
            if offset < first_offset:
                continue
            if append_time is None:
                timestamp = _signed(base_timestamp + timestamp_delta)
            else:
                timestamp = append_time
            row = ConsumerRecord(
                topic,
                partition,
                offset,
                timestamp,
                timestamp_type,
                _bytes_or_none(payload, key_start, key_end),
                _bytes_or_none(payload, value_start, value_end),
                tuple(_header_pairs(payload, *record[6:])),
                leader_epoch,
            )
            rows.append(row)
        total += len(payload)
        if total > _COLUMN_BYTES_MAX:
            raise ValueError("records beyond 2 GiB")
    return rows


def _bytes_or_none(payload: memoryview, start: int, end: int) -> bytes | None:
    return None if start < 0 else bytes(payload[start:end])


def _header_pairs(
    payload: memoryview, headers_count: int, position: int
) -> Iterator[tuple[str, bytes | None]]:
    for _ in range(headers_count):
        start, position = _skip_field(payload, position, len(payload))
        name = str(payload[start:position], "utf-8", "replace")
        start, position = _skip_field(payload, position, len(payload))
        yield name, _bytes_or_none(payload, start, position)


def _append_field(body: bytearray, field: Buffer | None) -> None:
    if field is None:
        body.append(1)
        return
    content = bytes(field)
    body += encode_varint(len(content))
    body += content


def _append_record(
    encoded: bytearray,
    timestamp_delta: int,
    offset_delta: int,
    key: Buffer | None,
    value: Buffer | None,
    headers: Sequence[tuple[str | bytes, Buffer | None]],
) -> None:
    body = bytearray(1)
    body += encode_varint(_signed(timestamp_delta))
    body += encode_varint(offset_delta)
    _append_field(body, key)
    _append_field(body, value)
    body += encode_varint(len(headers))
    for name, content in headers:
        _append_field(body, name.encode() if isinstance(name, str) else name)
        _append_field(body, content)
    encoded += encode_varint(len(body))
    encoded += body


def encode_records(records: Sequence[Record], reserve_bytes: int, /) -> tuple[bytearray, int, int]:
    encoded = bytearray(reserve_bytes)
    base_timestamp = max_timestamp = -1
    for index, (key, value, headers, timestamp) in enumerate(records):
        if index == 0:
            base_timestamp = timestamp
        max_timestamp = max(max_timestamp, timestamp)
        _append_record(encoded, timestamp - base_timestamp, index, key, value, headers)
    return encoded, base_timestamp, max_timestamp


def encode_offset_commits(
    group_id: str, rows: Sequence[OffsetCommitRow], first_delta: int, reserve_bytes: int, /
) -> bytearray:
    if not -(1 << 30) <= first_delta < 1 << 30:
        raise ValueError("a number beyond 31 bits")
    encoded = bytearray(reserve_bytes)
    group = _short_string(group_id)
    last_topic: str | None = None
    try:
        for offset_delta, row in enumerate(rows, first_delta):
            topic, partition, offset, leader_epoch, text, commit_timestamp, expire_timestamp = row
            if topic != last_topic:
                key_start = _COMMIT_KEY_TYPE + group + _short_string(topic)
                last_topic = topic
            metadata = _short_string(text)
            if expire_timestamp == -1:
                value = _COMMIT_VALUE.pack(3, offset, leader_epoch) + metadata
                value += _INT64.pack(commit_timestamp)
            else:
                _LENGTH.pack(leader_epoch)  # left out, but checked
                value = _EXPIRING_COMMIT_VALUE.pack(1, offset) + metadata
                value += _INT64_PAIR.pack(commit_timestamp, expire_timestamp)
            _append_record(encoded, 0, offset_delta, key_start + _LENGTH.pack(partition), value, ())
    except StructError as error:
        raise ValueError(f"a number is too large: {error}") from error
    return encoded


def _short_string(text: str) -> bytes:
    raw = text.encode()
    if len(raw) > _STRING_BYTES_MAX:
        raise ValueError(f"a string of {len(raw)} bytes")
    return _INT16.pack(len(raw)) + raw


def seal_batch(
    batch: bytearray | memoryview,
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
    /,
) -> None:
    with memoryview(batch) as view:
        size = view.nbytes
        if size < _HEADER_SIZE or size - _OVERHEAD > _INT32_MAX:
            raise ValueError(f"a batch of {size} bytes")
        try:
            _HEADER.pack_into(
                view,
                0,
                base_offset,
                size - _OVERHEAD,
                leader_epoch,
                2,
                0,
                attributes,
                last_offset_delta,
                base_timestamp,
                max_timestamp,
                producer_id,
                producer_epoch,
                base_sequence,
                records_count,
            )
        except StructError as error:
            raise ValueError(f"a number is too large: {error}") from error
        _CRC.pack_into(view, _CRC_AT, crc32c(view[_CRC_START:]))


def _ints(code: str, column: Buffer) -> array[int]:
    """A column's whole numbers; odd bytes at its end are left aside."""
    numbers = array(code)
    raw = bytes(column)
    numbers.frombytes(raw[: len(raw) // numbers.itemsize * numbers.itemsize])
    return numbers


class _Rows:
    """Rows of a binary column, bounds checked as the compiled kernel does."""

    def __init__(self, offsets: Buffer, validity: Buffer | None, data: Buffer) -> None:
        self.offsets = _ints("i", offsets)
        self.validity = validity if validity is None else memoryview(validity).cast("B")
        self.data = memoryview(data).cast("B")

    def __getitem__(self, row: int) -> memoryview | None:
        start, end = self.offsets[row], self.offsets[row + 1]
        if not 0 <= start <= end <= len(self.data):
            raise IndexError
        if self.validity is not None and not self.validity[row >> 3] >> (row & 7) & 1:
            return None
        return self.data[start:end]

    def must_get(self, row: int) -> memoryview:
        value = self[row]
        assert value is not None
        return value


def _columns_fit(columns: RecordColumns) -> bool:
    rows = columns.records_count
    headers = len(columns.header_key_offsets) // 4 - 1
    least = (
        rows * 8,
        rows * 8,
        rows * 4 + 4,
        (rows + 7) // 8,
        0,
        rows * 4 + 4,
        (rows + 7) // 8,
        0,
        rows * 4 + 4,
        4,
        0,
        headers * 4 + 4,
        (headers + 7) // 8,
        0,
    )
    return 0 <= rows < _INT32_MAX and all(
        len(column) >= length for column, length in zip(columns[1:], least, strict=True)
    )


def encode_columns(
    columns: RecordColumns, start: int, stop: int, base_offset: int | None, reserve_bytes: int, /
) -> tuple[bytearray, int, int]:
    if not _columns_fit(columns):
        raise ValueError("columns do not fit together")
    if not 0 <= start <= stop <= columns.records_count:
        raise ValueError("rows outside the columns")
    return _encode_picked(columns, range(start, stop), base_offset, reserve_bytes)


def encode_rows(
    columns: RecordColumns, order: Buffer, start: int, stop: int, reserve_bytes: int, /
) -> tuple[bytearray, int, int]:
    if not _columns_fit(columns):
        raise ValueError("columns do not fit together")
    numbers = _ints("q", order)
    if not 0 <= start <= stop <= len(numbers):
        raise ValueError("rows outside the columns")
    picked = numbers[start:stop]
    if picked and not 0 <= min(picked) <= max(picked) < columns.records_count:
        raise ValueError("rows outside the columns")
    return _encode_picked(columns, picked, None, reserve_bytes)


def _encode_picked(
    columns: RecordColumns, rows: Sequence[int], base_offset: int | None, reserve_bytes: int
) -> tuple[bytearray, int, int]:
    offsets, timestamps = _ints("q", columns.offsets), _ints("q", columns.timestamps)
    keys = _Rows(columns.key_offsets, columns.key_validity, columns.key_data)
    values = _Rows(columns.value_offsets, columns.value_validity, columns.value_data)
    header_offsets = _ints("i", columns.header_offsets)
    header_keys = _Rows(columns.header_key_offsets, None, columns.header_key_data)
    header_values = _Rows(
        columns.header_value_offsets, columns.header_value_validity, columns.header_value_data
    )
    encoded = bytearray(reserve_bytes)
    base_timestamp = max_timestamp = -1
    try:
        for index, row in enumerate(rows):
            timestamp = timestamps[row]
            if index == 0:
                base_timestamp = timestamp
            max_timestamp = max(max_timestamp, timestamp)
            delta = index if base_offset is None else offsets[row] - base_offset
            if not -(1 << 31) <= delta <= _INT32_MAX:
                raise ValueError("offset delta beyond 32 bits")
            first, last = header_offsets[row], header_offsets[row + 1]
            if not 0 <= first <= last < len(header_keys.offsets):
                raise IndexError
            headers = [
                (bytes(header_keys.must_get(i)), header_values[i]) for i in range(first, last)
            ]
            _append_record(
                encoded, timestamp - base_timestamp, delta, keys[row], values[row], headers
            )
    except IndexError as problem:
        raise ValueError("columns do not fit together") from problem
    return encoded, base_timestamp, max_timestamp


_MURMUR_WORD = Struct("<I")
_MURMUR_MIX = 0x5BD1E995
_MURMUR_SEED = 0x9747B28C


def murmur2(data: Buffer, /) -> int:
    """MurmurHash2 with the seed of Kafka's producers, as an unsigned number."""
    content = bytes(data)
    whole = len(content) & ~3
    digest = _MURMUR_SEED ^ len(content)
    for (word,) in _MURMUR_WORD.iter_unpack(content[:whole]):
        mixed = word * _MURMUR_MIX & _UINT32_MAX
        mixed = (mixed ^ mixed >> 24) * _MURMUR_MIX & _UINT32_MAX
        digest = digest * _MURMUR_MIX & _UINT32_MAX ^ mixed
    if rest := content[whole:]:
        digest = (digest ^ int.from_bytes(rest, "little")) * _MURMUR_MIX & _UINT32_MAX
    digest = (digest ^ digest >> 13) * _MURMUR_MIX & _UINT32_MAX
    return digest ^ digest >> 15


def key_partitions(
    offsets: Buffer,
    validity: Buffer | None,
    data: Buffer,
    start: int,
    count: int,
    partitions_count: int,
    /,
) -> bytearray:
    ends, keys = _ints("i", offsets), _Rows(offsets, validity, data)
    if (
        not 0 <= start <= _INT32_MAX
        or not 0 <= count <= _INT32_MAX
        or not 1 <= partitions_count <= _INT32_MAX
        or len(ends) <= start + count
        or (keys.validity is not None and len(keys.validity) < (start + count + 7) // 8)
    ):
        raise ValueError("keys do not fit together")
    partitions = array("i", [-1]) * count
    for index in range(count):
        row = start + index
        if keys.validity is None or keys.validity[row >> 3] >> (row & 7) & 1:
            try:
                key = keys.must_get(row)
            except IndexError as problem:
                raise ValueError("keys do not fit together") from problem
            partitions[index] = (murmur2(key) & _INT32_MAX) % partitions_count
    return _bytes_of(partitions)


class _Entry(NamedTuple):
    """A whole entry of a message set of magic 0 or 1."""

    view: memoryview
    magic: int
    attributes: int
    offset: int
    timestamp: int

    def key_and_value(self) -> tuple[memoryview | None, memoryview | None]:
        key, position = self._field(26 if self.magic else 18)
        value, _ = self._field(position)
        return key, value

    def _field(self, position: int) -> tuple[memoryview | None, int]:
        if len(self.view) - position < 4:
            raise _Malformed("malformed messages")
        length: int = _LENGTH.unpack_from(self.view, position)[0]
        position += 4
        if length < 0:
            return None, position
        if length > len(self.view) - position:
            raise _Malformed("malformed messages")
        return self.view[position : position + length], position + length


def _entry_at(view: memoryview, position: int, end: int) -> tuple[int, _Entry | None]:
    """(OK, entry); (_CUT, None) when less than a whole one is left; or what is wrong with it."""
    left = end - position
    if left < _OVERHEAD:
        return _CUT, None
    offset, size = _OFFSET_AND_SIZE.unpack_from(view, position)
    if size < _V0_SIZE_MIN:
        return BAD_SIZE, None
    if left <= _MAGIC:
        return _CUT, None
    magic = view[position + _MAGIC]
    if magic > 1:
        return (NEW_FORMAT if magic == 2 else BAD_MAGIC), None
    if size > left - _OVERHEAD:
        return _CUT, None
    if magic == 1 and size < _V1_SIZE_MIN:
        return BAD_SIZE, None
    timestamp = _V1_TIMESTAMP.unpack_from(view, position + 18)[0] if magic else -1
    entry = view[position : position + _OVERHEAD + size]
    return OK, _Entry(entry, magic, entry[17], offset, timestamp)


class _MessagesCheck:
    """What check_messages found so far."""

    def __init__(self) -> None:
        self.count = self.flags = 0
        self.magic = self.first_offset = self.last_offset = -1
        self.min_timestamp = self.largest_timestamp = -1
        self.fits = True

    def take(self, entry: _Entry) -> None:
        if self.count == 0:
            self.magic, self.first_offset = entry.magic, entry.offset
        elif entry.magic != self.magic:
            self.flags |= MIXED_MAGIC
        self.count += 1
        self.last_offset = entry.offset
        if entry.attributes & 7:
            self.flags |= COMPRESSED
        if entry.magic and entry.attributes & 8:
            self.flags |= APPEND_TIME
        if entry.timestamp == -1:
            self.flags |= NO_TIMESTAMP
        elif self.min_timestamp == -1 or entry.timestamp < self.min_timestamp:
            self.min_timestamp = entry.timestamp
        self.largest_timestamp = max(self.largest_timestamp, entry.timestamp)
        try:
            key, _ = entry.key_and_value()
        except _Malformed:
            self.fits = False
            return
        if key is None:
            self.flags |= NULL_KEY


def check_messages(
    buffer: Buffer,
    position: int,
    end: int,
    verify_crc: int,
    message_bytes_max: int,
    one_run: int,
    /,
) -> MessagesCheck:
    check = _MessagesCheck()
    view = memoryview(buffer).cast("B")
    _require_range(view, position, end)
    while True:
        status, entry = _entry_at(view, position, end)
        if entry is None:
            break
        if one_run and (entry.attributes & 7 or (check.count and entry.magic != check.magic)):
            break
        if len(entry.view) > message_bytes_max:
            status = TOO_LARGE
            break
        crc = _CRC.unpack_from(entry.view, _OVERHEAD)[0]
        if verify_crc and zlib.crc32(entry.view[_MAGIC:]) != crc:
            status = BAD_CRC
            break
        check.take(entry)
        position += len(entry.view)
    if one_run or status == _CUT:
        status = OK
    if status == OK and not check.fits:
        status = BAD_RECORDS
    return MessagesCheck(
        status,
        position,
        check.count,
        check.magic,
        check.first_offset,
        check.last_offset,
        check.min_timestamp,
        check.largest_timestamp,
        check.flags,
    )


def messages_to_records(
    buffer: Buffer,
    position: int,
    end: int,
    base_offset: int | None,
    append_time: int | None,
    reserve_bytes: int,
    /,
) -> tuple[bytearray, int, int]:
    view = memoryview(buffer).cast("B")
    _require_range(view, position, end)
    encoded = bytearray(reserve_bytes)
    base_timestamp = max_timestamp = -1
    index = 0
    while position < end:
        _, entry = _entry_at(view, position, end)
        if entry is None or entry.attributes & 7:
            raise _Malformed("malformed messages")
        key, value = entry.key_and_value()
        timestamp = entry.timestamp if append_time is None else append_time
        if index == 0:
            base_timestamp = timestamp
        max_timestamp = max(max_timestamp, timestamp)
        delta = index if base_offset is None else _signed(entry.offset - base_offset)
        if not -(1 << 31) <= delta <= _INT32_MAX:
            raise ValueError("offset delta beyond 32 bits")
        _append_record(encoded, timestamp - base_timestamp, delta, key, value, ())
        position += len(entry.view)
        index += 1
    return encoded, base_timestamp, max_timestamp


def _sized(field: memoryview | None) -> bytes:
    return _LENGTH.pack(-1) if field is None else _LENGTH.pack(len(field)) + bytes(field)


def records_to_messages(
    part: RecordsPart, magic: int, is_relative: int, first_offset: int, /
) -> tuple[bytearray, int, int, int]:
    payload, records_count, base_offset, base_timestamp, append_time = part
    view = memoryview(payload).cast("B")
    encoded = bytearray()
    count = start_offset = 0
    last_offset = max_timestamp = -1
    prefix = bytes((magic != 0, 8 if magic and append_time is not None else 0))
    for record in _walk(view, records_count):
        timestamp_delta, offset_delta, key_start, key_end, value_start, value_end = record[:6]
        key, value = _field(view, key_start, key_end), _field(view, value_start, value_end)
        if len(key or b"") + len(value or b"") > _INT32_MAX - _V1_OVERHEAD:
            raise ValueError("a record beyond 2 GiB")
        offset = _signed(base_offset + offset_delta)
        if offset < first_offset:
            continue
        timestamp = append_time
        if timestamp is None:
            timestamp = _signed(base_timestamp + timestamp_delta)
        if count == 0 and is_relative:
            start_offset = offset
        count += 1
        last_offset = offset
        max_timestamp = max(max_timestamp, timestamp)
        body = prefix + (_V1_TIMESTAMP.pack(timestamp) if magic else b"")
        body += _sized(key) + _sized(value)
        encoded += _OFFSET_AND_SIZE.pack(_signed(offset - start_offset), len(body) + 4)
        encoded += _CRC.pack(zlib.crc32(body))
        encoded += body
    return encoded, count, last_offset, max_timestamp


_PRIME_1, _PRIME_2, _PRIME_3, _PRIME_4, _PRIME_5 = (
    0x9E3779B1,
    0x85EBCA77,
    0xC2B2AE3D,
    0x27D4EB2F,
    0x165667B1,
)
_LANES = Struct("<4I")


def xxh32(data: Buffer, /) -> int:
    view = memoryview(data).cast("B")
    length = len(view)
    whole = length & ~15
    if whole:
        lanes = [
            (_PRIME_1 + _PRIME_2) & 0xFFFFFFFF,
            _PRIME_2,
            0,
            -_PRIME_1 & 0xFFFFFFFF,
        ]
        for words in _LANES.iter_unpack(view[:whole]):
            for lane in range(4):
                mixed = (lanes[lane] + words[lane] * _PRIME_2) & 0xFFFFFFFF
                lanes[lane] = _rotate(mixed, 13) * _PRIME_1 & 0xFFFFFFFF
        digest = sum(_rotate(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True))
    else:
        digest = _PRIME_5
    digest += length
    position = whole
    while length - position >= 4:
        digest = (digest + _MURMUR_WORD.unpack_from(view, position)[0] * _PRIME_3) & 0xFFFFFFFF
        digest = _rotate(digest, 17) * _PRIME_4
        position += 4
    for byte in view[position:]:
        digest = (digest + byte * _PRIME_5) & 0xFFFFFFFF
        digest = _rotate(digest, 11) * _PRIME_1
    digest &= 0xFFFFFFFF
    digest = (digest ^ digest >> 15) * _PRIME_2 & 0xFFFFFFFF
    digest = (digest ^ digest >> 13) * _PRIME_3 & 0xFFFFFFFF
    return digest ^ digest >> 16


def _rotate(value: int, by: int) -> int:
    return (value << by | value >> (32 - by)) & 0xFFFFFFFF
