"""The kernel's twin in plain Python, the part that compacts: offset map, mapping, filtering.

`kernel` documents the functions, csrc/offset_map.h the slots of the map.
"""

from __future__ import annotations

from bisect import bisect_left
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.record._pure import (
    _batch_crc_holds,
    _control_of,
    _Malformed,
    _require_range,
    _row_at,
    _signed,
    _skip_field,
    _walk,
    crc32c,
)
from tidelog.record._results import (
    AT_END,
    BAD_CRC,
    BAD_OFFSET,
    BAD_RECORDS,
    DELETE_BATCH,
    EMPTY_BATCH,
    FILTER_RECORDS,
    INCOMPLETE,
    KEEP_BATCH,
    MAP_FULL,
    NEEDS_INFLATION,
    OUTPUT_FULL,
    SET_HORIZON,
    BatchRow,
    BatchWalk,
    Filtered,
    KeyOffsets,
    Mapped,
    Retention,
    TransactionalBatch,
)
from tidelog.record.varint import encode_varint

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typing_extensions import Buffer

_APPEND_TIME, _TRANSACTION, _HORIZON = 0x08, 0x30, 0x40

_SLOT = Struct("=QQq")
_SLOT_BYTES: Final = 24
_WORD = Struct("<Q")
_HASH_KEY = Struct("<QQ")
_LENGTH = Struct(">i")
_CRC = Struct(">I")
_SEALED = Struct(">hiqq")  # attributes to max timestamp
_HEADER_SIZE = 61
_OVERHEAD = 12
_CRC_AT = 17
_ATTRIBUTES_AT = 21
_RECORDS_COUNT_AT = 57
_V0_FIELDS_AT, _V1_FIELDS_AT = 18, 26
_RECORD_GROWTH_MAX = 10
_INT64_MAX = (1 << 63) - 1
_MASK = (1 << 64) - 1


def _rotate(value: int, bits: int) -> int:
    return (value << bits | value >> (64 - bits)) & _MASK


def siphash128(key: Buffer, data: Buffer, /) -> tuple[int, int]:
    """SipHash-2-4 with 128 bits of output, as two words."""
    k0, k1 = _HASH_KEY.unpack(key)
    v0, v1 = k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D ^ 0xEE
    v2, v3 = k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573

    def rounds(count: int) -> None:
        nonlocal v0, v1, v2, v3
        for _ in range(count):
            v0 = (v0 + v1) & _MASK
            v1 = _rotate(v1, 13) ^ v0
            v0 = _rotate(v0, 32)
            v2 = (v2 + v3) & _MASK
            v3 = _rotate(v3, 16) ^ v2
            v0 = (v0 + v3) & _MASK
            v3 = _rotate(v3, 21) ^ v0
            v2 = (v2 + v1) & _MASK
            v1 = _rotate(v1, 17) ^ v2
            v2 = _rotate(v2, 32)

    view = memoryview(data).cast("B")
    length = len(view)
    whole = length & ~7
    words = [word for (word,) in _WORD.iter_unpack(view[:whole])]
    words.append(int.from_bytes(view[whole:], "little") | (length & 0xFF) << 56)
    for word in words:
        v3 ^= word
        rounds(2)
        v0 ^= word
    v2 ^= 0xEE
    rounds(4)
    low = v0 ^ v1 ^ v2 ^ v3
    v1 ^= 0xDD
    rounds(4)
    return low, v0 ^ v1 ^ v2 ^ v3


class _OffsetMap:
    def __init__(self, slots: memoryview, key: memoryview, entries: int, entries_max: int) -> None:
        if len(slots) < _SLOT_BYTES or len(slots) % _SLOT_BYTES or len(key) != 16:
            raise ValueError("no offset map and hash key")
        self._slots = slots
        self._count = len(slots) // _SLOT_BYTES
        self._key = key
        self.entries = entries
        self._entries_max = entries_max

    def _find(self, low: int, high: int) -> tuple[int, int] | None:
        """(position, offset + 1) of the slot that holds the hash, or of the empty one for it."""
        number = low % self._count
        for _ in range(self._count):
            position = number * _SLOT_BYTES
            slot_low, slot_high, offset_plus_one = _SLOT.unpack_from(self._slots, position)
            if offset_plus_one == 0 or (slot_low == low and slot_high == high):
                return position, offset_plus_one
            number = (number + 1) % self._count
        return None

    def get(self, key: memoryview) -> int:
        found = self._find(*siphash128(self._key, key))
        return -1 if found is None else found[1] - 1

    def put(self, key: memoryview, offset: int) -> bool:
        if self.entries >= self._entries_max:
            return False
        low, high = siphash128(self._key, key)
        found = self._find(low, high)
        if found is None:
            return False
        position, offset_plus_one = found
        self.entries += offset_plus_one == 0
        _SLOT.pack_into(self._slots, position, low, high, offset + 1)
        return True


class _Walker:
    """Whole batches of a buffer, in order, and the verdicts on those of transactions."""

    def __init__(self, walk: BatchWalk, view: memoryview, verdicts: memoryview) -> None:
        _require_range(view, walk.position, walk.end)
        self.view = view
        self.position = walk.position
        self.next_offset = walk.next_offset
        self.verdicts_used = 0
        self._end = walk.end
        self._verify_crc = walk.verify_crc
        self._verdicts = verdicts

    @property
    def is_at_end(self) -> bool:
        return self.position >= self._end

    def next_batch(self) -> tuple[int, BatchRow | None]:
        why, row = _row_at(self.view, self.position, self._end)
        if row is None:
            return why, None
        if row.size > self._end - self.position:
            return INCOMPLETE, None
        if self._verify_crc and not _batch_crc_holds(self.view, row):
            return BAD_CRC, None
        if (
            row.base_offset < self.next_offset
            or row.last_offset < row.base_offset
            or row.last_offset == _INT64_MAX
        ):
            return BAD_OFFSET, None
        return AT_END, row

    def verdict_on(self, row: BatchRow) -> int:
        if not _has_verdict(row):
            return FILTER_RECORDS
        if self.verdicts_used >= len(self._verdicts):
            raise ValueError("a transactional batch without a verdict")
        return self._verdicts[self.verdicts_used]

    def step_over(self, row: BatchRow) -> None:
        self.verdicts_used += _has_verdict(row)
        self.next_offset = row.last_offset + 1
        self.position += row.size


def _has_verdict(row: BatchRow) -> bool:
    return row.magic == 2 and row.attributes & _TRANSACTION != 0


class _RecordPlace(NamedTuple):
    timestamp_delta: int
    offset_delta: int
    key: memoryview | None
    value: memoryview | None
    headers_count: int
    headers: memoryview


def _places(payload: memoryview, records_count: int) -> Iterator[_RecordPlace]:
    for delta, offset_delta, key_at, key_end, value_at, value_end, count, headers_at in _walk(
        payload, records_count
    ):
        yield _RecordPlace(
            delta,
            offset_delta,
            None if key_at < 0 else payload[key_at:key_end],
            None if value_at < 0 else payload[value_at:value_end],
            count,
            payload[headers_at : _headers_end(payload, count, headers_at)],
        )


def _payload(view: memoryview, row: BatchRow) -> memoryview:
    return view[row.position + _HEADER_SIZE : row.position + row.size]


def _records_of(view: memoryview, row: BatchRow) -> Iterator[_RecordPlace]:
    """_Malformed at the first record that does not fit."""
    for record in _places(_payload(view, row), row.records_count):
        if not 0 <= record.offset_delta <= row.last_offset - row.base_offset:
            raise _Malformed("malformed records")
        yield record


def _headers_end(payload: memoryview, count: int, position: int) -> int:
    for _ in range(2 * count):
        _, position = _skip_field(payload, position, len(payload))
    return position


def _message_fields(
    view: memoryview, row: BatchRow
) -> tuple[memoryview | None, memoryview | None] | None:
    """(key, value) of an uncompressed message of an old format; None if they do not fit."""
    message = view[row.position : row.position + row.size]
    position = _V0_FIELDS_AT if row.magic == 0 else _V1_FIELDS_AT
    fields: list[memoryview | None] = []
    for _ in range(2):
        if len(message) - position < 4:
            return None
        length = _LENGTH.unpack_from(message, position)[0]
        position += 4
        if length > len(message) - position:
            return None
        fields.append(None if length < 0 else message[position : position + length])
        position += max(length, 0)
    return fields[0], fields[1]


def list_transactional(buffer: Buffer, position: int, end: int, /) -> list[TransactionalBatch]:
    rows: list[TransactionalBatch] = []
    with memoryview(buffer) as raw, raw.cast("B") as view:
        _require_range(view, position, end)
        while position < end:
            _, row = _row_at(view, position, end)
            if row is None or row.size > end - position:
                break
            if _has_verdict(row):
                control_type = _control_of(view, row)[0]
                rows.append(
                    TransactionalBatch(
                        row.last_offset,
                        row.attributes,
                        row.producer_id,
                        row.producer_epoch,
                        row.base_timestamp,
                        row.records_count,
                        control_type,
                    )
                )
            position += row.size
    return rows


class _Mapping:
    def __init__(self, walker: _Walker, offsets: _OffsetMap, start: int, latest: int) -> None:
        self._walker = walker
        self._map = offsets
        self._start_offset = start
        self.latest_offset = latest
        self.records = 0

    def run(self) -> int:
        walker = self._walker
        while not walker.is_at_end:
            why, row = walker.next_batch()
            if row is not None:
                why = self._map_batch(row)
            if why != AT_END or row is None:
                return why
            if row.last_offset >= self._start_offset:
                self.latest_offset = row.last_offset
            walker.step_over(row)
        return AT_END

    def _map_batch(self, row: BatchRow) -> int:
        verdict = self._walker.verdict_on(row)
        if verdict != FILTER_RECORDS or row.last_offset < self._start_offset:
            return AT_END
        if row.attributes & 7:
            return NEEDS_INFLATION
        if row.magic < 2:
            fields = _message_fields(self._walker.view, row)
            if fields is None:
                return BAD_RECORDS
            self.records += 1
            return self._map_key(fields[0], row.base_offset)
        try:
            for record in _records_of(self._walker.view, row):
                why = self._map_key(record.key, row.base_offset + record.offset_delta)
                if why != AT_END:
                    return why
        except _Malformed:
            return BAD_RECORDS
        self.records += row.records_count
        return AT_END

    def _map_key(self, key: memoryview | None, offset: int) -> int:
        if key is None or offset < self._start_offset:
            return AT_END
        if not self._map.put(key, offset):
            return MAP_FULL
        self.latest_offset = offset
        return AT_END


def map_batches(walk: BatchWalk, keys: KeyOffsets, start_offset: int, /) -> Mapped:
    with (
        memoryview(walk.buffer) as view,
        memoryview(keys.slots) as slots,
        memoryview(keys.hash_key) as hash_key,
        memoryview(walk.verdicts) as given,
    ):
        walker = _Walker(walk, view.cast("B"), given.cast("B"))
        offsets = _OffsetMap(slots.cast("B"), hash_key.cast("B"), keys.entries, keys.entries_max)
        mapping = _Mapping(walker, offsets, start_offset, keys.latest_offset)
        why = mapping.run()
        return Mapped(
            walker.position,
            why,
            walker.next_offset,
            offsets.entries,
            mapping.latest_offset,
            walker.verdicts_used,
            mapping.records,
        )


class _Filter:
    def __init__(
        self,
        walker: _Walker,
        offsets: _OffsetMap,
        latest_offset: int,
        kept_offsets: list[int],
        retention: Retention,
        output: memoryview,
    ) -> None:
        self._walker = walker
        self._map = offsets
        self._latest_offset = latest_offset
        self._kept_offsets = kept_offsets
        self._now_ms = retention.now_ms
        self._horizon_ms = retention.horizon_ms
        self._keep_old_tombstones = retention.keep_old_tombstones
        self._output = output
        self.output_used = 0
        self.records_read = 0
        self.records_kept = 0
        self.batches_rewritten = 0
        self.records_without_key = 0

    def run(self) -> int:
        walker = self._walker
        while not walker.is_at_end:
            why, row = walker.next_batch()
            if row is not None:
                why = self._filter_batch(row)
            if why != AT_END or row is None:
                return why
            self.records_read += row.records_count
            walker.step_over(row)
        return AT_END

    def _filter_batch(self, row: BatchRow) -> int:
        verdict = self._walker.verdict_on(row)
        if verdict == DELETE_BATCH:
            return AT_END
        if verdict == EMPTY_BATCH:
            return self._empty(row)
        if verdict == KEEP_BATCH:
            return self._copy(row, row.records_count)
        if row.attributes & 7:
            return NEEDS_INFLATION
        if verdict == SET_HORIZON:
            return self._keep_with_horizon(row)
        return self._filter_records(row) if row.magic == 2 else self._filter_message(row)

    def _write(self, content: Buffer) -> int:
        size = len(memoryview(content))
        if size > len(self._output) - self.output_used:
            return OUTPUT_FULL
        self._output[self.output_used : self.output_used + size] = content
        self.output_used += size
        return AT_END

    def _copy(self, row: BatchRow, records: int) -> int:
        why = self._write(self._walker.view[row.position : row.position + row.size])
        if why == AT_END:
            self.records_kept += records
        return why

    def _empty(self, row: BatchRow) -> int:
        attributes = row.attributes & (_APPEND_TIME | _TRANSACTION)
        why = self._write(self._sealed(row, b"", attributes, -1, row.max_timestamp, 0))
        self.batches_rewritten += why == AT_END
        return why

    def _maybe_empty(self, row: BatchRow) -> int:
        at = bisect_left(self._kept_offsets, row.last_offset)
        if at < len(self._kept_offsets) and self._kept_offsets[at] == row.last_offset:
            return self._empty(row)
        return AT_END

    def _sealed(
        self,
        row: BatchRow,
        records: bytes | bytearray,
        attributes: int,
        base_timestamp: int,
        max_timestamp: int,
        records_count: int,
    ) -> bytearray:
        batch = bytearray(self._walker.view[row.position : row.position + _HEADER_SIZE])
        batch += records
        last_offset_delta = _LENGTH.unpack_from(batch, _ATTRIBUTES_AT + 2)[0]
        _LENGTH.pack_into(batch, 8, len(batch) - _OVERHEAD)
        _SEALED.pack_into(
            batch, _ATTRIBUTES_AT, attributes, last_offset_delta, base_timestamp, max_timestamp
        )
        _LENGTH.pack_into(batch, _RECORDS_COUNT_AT, records_count)
        _CRC.pack_into(batch, _CRC_AT, crc32c(memoryview(batch)[_ATTRIBUTES_AT:]))
        return batch

    def _key_stays(self, key: memoryview | None, offset: int) -> bool:
        if key is None:
            self.records_without_key += 1
            return False
        return offset >= self._map.get(key)

    def _filter_message(self, row: BatchRow) -> int:
        fields = _message_fields(self._walker.view, row)
        if fields is None:
            return BAD_RECORDS
        without_key = self.records_without_key
        stays = row.base_offset > self._latest_offset or (
            self._key_stays(fields[0], row.base_offset)
            and (fields[1] is not None or self._keep_old_tombstones != 0)
        )
        why = self._copy(row, 1) if stays else AT_END
        if why != AT_END:
            self.records_without_key = without_key
        return why

    def _filter_records(self, row: BatchRow) -> int:
        try:
            records = list(_records_of(self._walker.view, row))
        except _Malformed:
            return BAD_RECORDS
        without_key = self.records_without_key
        kept = [record for record in records if self._stays(row, record)]
        has_horizon = row.attributes & _HORIZON != 0
        needs_horizon = (
            not has_horizon
            and self._horizon_ms >= 0
            and any(record.value is None for record in kept)
        )
        if not kept:
            why = self._maybe_empty(row)
        elif len(kept) == len(records) and not needs_horizon:
            why = self._copy(row, len(kept))
        else:
            horizon_ms = row.base_timestamp if has_horizon else -1
            why = self._rewrite(row, kept, self._horizon_ms if needs_horizon else horizon_ms)
        if why != AT_END:
            self.records_without_key = without_key
        return why

    def _keep_with_horizon(self, row: BatchRow) -> int:
        if row.records_count <= 0:
            why = self._maybe_empty(row)
            self.records_kept += row.records_count if why == AT_END else 0
            return why
        if row.attributes & _HORIZON or self._horizon_ms < 0:
            return self._copy(row, row.records_count)
        room = len(self._output) - self.output_used
        if row.size + row.records_count * _RECORD_GROWTH_MAX > room:
            return OUTPUT_FULL
        try:
            records = list(_places(_payload(self._walker.view, row), row.records_count))
        except _Malformed:
            return BAD_RECORDS
        return self._rewrite(row, records, self._horizon_ms)

    def _stays(self, row: BatchRow, record: _RecordPlace) -> bool:
        offset = row.base_offset + record.offset_delta
        if offset > self._latest_offset:
            return True
        keep_tombstones = not row.attributes & _HORIZON or self._now_ms < row.base_timestamp
        return self._key_stays(record.key, offset) and (record.value is not None or keep_tombstones)

    def _rewrite(self, row: BatchRow, kept: list[_RecordPlace], horizon_ms: int) -> int:
        if row.size + len(kept) * _RECORD_GROWTH_MAX > len(self._output) - self.output_used:
            return OUTPUT_FULL
        is_append_time = row.attributes & _APPEND_TIME != 0
        base_timestamp, max_timestamp = horizon_ms, -1
        content = bytearray()
        for number, record in enumerate(kept):
            timestamp = (
                row.max_timestamp
                if is_append_time
                else _signed(row.base_timestamp + record.timestamp_delta)
            )
            if number == 0 and horizon_ms < 0:
                base_timestamp = timestamp
            max_timestamp = max(max_timestamp, timestamp)
            content += _encoded(record, _signed(timestamp - base_timestamp))
        attributes = row.attributes & ~_HORIZON | (_HORIZON if horizon_ms >= 0 else 0)
        batch = self._sealed(
            row,
            content,
            attributes,
            base_timestamp,
            row.max_timestamp if is_append_time else max_timestamp,
            len(kept),
        )
        why = self._write(batch)
        self.records_kept += len(kept)
        self.batches_rewritten += 1
        return why


def _encoded(record: _RecordPlace, timestamp_delta: int) -> bytes:
    body = bytearray(1)
    body += encode_varint(timestamp_delta)
    body += encode_varint(record.offset_delta)
    for field in (record.key, record.value):
        body += encode_varint(-1 if field is None else len(field))
        body += field or b""
    body += encode_varint(record.headers_count)
    body += record.headers
    return encode_varint(len(body)) + bytes(body)


def filter_batches(
    walk: BatchWalk, keys: KeyOffsets, retention: Retention, output: Buffer, /
) -> Filtered:
    with (
        memoryview(walk.buffer) as view,
        memoryview(keys.slots) as slots,
        memoryview(keys.hash_key) as hash_key,
        memoryview(walk.verdicts) as given,
        memoryview(retention.kept_offsets) as kept,
        memoryview(output) as room,
    ):
        walker = _Walker(walk, view.cast("B"), given.cast("B"))
        filtering = _Filter(
            walker,
            _OffsetMap(slots.cast("B"), hash_key.cast("B"), 0, 0),
            keys.latest_offset,
            kept.cast("B").cast("q").tolist(),
            retention,
            room.cast("B"),
        )
        why = filtering.run()
        return Filtered(
            walker.position,
            why,
            walker.next_offset,
            filtering.output_used,
            walker.verdicts_used,
            filtering.records_read,
            filtering.records_kept,
            filtering.batches_rewritten,
            filtering.records_without_key,
        )
