"""Conversion between formats in the kernel: right by the slow reader and writer, and both equal."""

from __future__ import annotations

from importlib import import_module
from struct import pack_into
from types import ModuleType
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.batches import NOW, fields, record_lists, timestamps
from tests.support.message_sets import message_set_of
from tidelog.record import _pure, kernel
from tidelog.record.batch import Codec
from tidelog.record.legacy import (
    LegacyRecord,
    encode_message,
    read_messages,
    records_of,
)

compiled: ModuleType | None
try:
    compiled = import_module("tidelog.record._kernel")
except ImportError:
    compiled = None

both = pytest.mark.parametrize(
    "module",
    [
        pytest.param(
            compiled, marks=pytest.mark.skipif(compiled is None, reason="not built"), id="compiled"
        ),
        pytest.param(_pure, id="pure"),
    ],
)
needs_compiled = pytest.mark.skipif(compiled is None, reason="the compiled kernel is not built")

NO_BOUND = (1 << 63) - 1
RECORDS = [
    LegacyRecord(10, NOW, b"key", b"value"),
    LegacyRecord(11, NOW + 5, None, b""),
    LegacyRecord(15, NOW - 5, b"", None),
]


def check(
    module: Any, data: bytes | bytearray, *, bytes_max: int = NO_BOUND, one_run: int = 0
) -> Any:
    return module.check_messages(data, 0, len(data), 1, bytes_max, one_run)


def outcome(function: Any, *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except ValueError:
        return ValueError


@both
class TestCheckMessages:
    def test_gives_what_the_entries_say(self, module: Any) -> None:
        data = message_set_of(RECORDS, 1)
        assert check(module, data) == (
            *(kernel.OK, len(data), 3, 1, 10, 15, NOW - 5, NOW + 5),
            kernel.NULL_KEY,
        )

    def test_magic_0_has_no_timestamps(self, module: Any) -> None:
        data = message_set_of(RECORDS[:1], 0)
        assert check(module, data)[3:] == (0, 10, 10, -1, -1, kernel.NO_TIMESTAMP)

    def test_nothing_is_no_entries(self, module: Any) -> None:
        assert check(module, b"") == (kernel.OK, 0, 0, -1, -1, -1, -1, -1, 0)

    @pytest.mark.parametrize("cut", [1, 10, 27])
    def test_a_cut_entry_ends_the_set(self, module: Any, cut: int) -> None:
        data = message_set_of(RECORDS, 1)
        assert check(module, data[:-cut])[:3] == (kernel.OK, len(data) - 34, 2)

    def test_entries_are_flagged(self, module: Any) -> None:
        data = (
            message_set_of(RECORDS[:1], 1)
            + message_set_of(RECORDS, 0, codec=Codec.GZIP)
            + message_set_of(RECORDS[:1], 1, append_time_ms=NOW)
        )
        flags = kernel.COMPRESSED | kernel.MIXED_MAGIC | kernel.APPEND_TIME | kernel.NO_TIMESTAMP
        assert check(module, data)[2] == 3
        assert check(module, data)[8] == flags | kernel.NULL_KEY

    @pytest.mark.parametrize("next_codec", [Codec.NONE, Codec.GZIP])
    def test_a_run_ends_before_what_is_different(self, module: Any, next_codec: Codec) -> None:
        first = message_set_of(RECORDS, 1)
        second = message_set_of(RECORDS, 0 if next_codec == Codec.NONE else 1, codec=next_codec)
        assert check(module, first + second, one_run=1)[:3] == (kernel.OK, len(first), 3)
        assert check(module, first + b"\xff" * 40, one_run=1)[:3] == (kernel.OK, len(first), 3)

    @pytest.mark.parametrize(
        ("position", "value", "status"),
        [
            (8, (13).to_bytes(4, "big"), kernel.BAD_SIZE),
            (8, (21).to_bytes(4, "big"), kernel.BAD_SIZE),
            (16, b"\x03", kernel.BAD_MAGIC),
            (16, b"\x02", kernel.NEW_FORMAT),
            (20, b"\x7f", kernel.BAD_CRC),
        ],
    )
    def test_what_is_wrong_is_told(
        self, module: Any, position: int, value: bytes, status: int
    ) -> None:
        sound = message_set_of(RECORDS[:1], 1)
        wrong = bytearray(sound)
        wrong[position : position + len(value)] = value
        assert check(module, sound + wrong)[:3] == (status, len(sound), 1)

    def test_an_entry_above_the_bound(self, module: Any) -> None:
        data = message_set_of(RECORDS, 1)
        assert check(module, data, bytes_max=41)[:3] == (kernel.TOO_LARGE, 0, 0)

    @pytest.mark.parametrize("position", [26, 33])
    def test_a_length_beyond_the_entry(self, module: Any, position: int) -> None:
        data = bytearray(message_set_of(RECORDS[:1], 1))
        pack_into(">i", data, position, 6)
        pack_into(">I", data, 12, crc32(data[16:]))
        assert check(module, data)[0] == kernel.BAD_RECORDS
        with pytest.raises(ValueError, match="malformed messages"):
            module.messages_to_records(data, 0, len(data), None, None, 0)


@both
def test_places_outside_the_buffer_are_refused(module: Any) -> None:
    for position, end in ((-1, 3), (2, 1), (0, 9)):
        with pytest.raises(ValueError, match="inside the buffer"):
            module.check_messages(b"12345678", position, end, 1, 100, 0)
        with pytest.raises(ValueError, match="inside the buffer"):
            module.messages_to_records(b"12345678", position, end, None, None, 0)


@both
def test_compressed_entries_do_not_become_records(module: Any) -> None:
    data = message_set_of(RECORDS, 1, codec=Codec.GZIP)
    with pytest.raises(ValueError, match="malformed messages"):
        module.messages_to_records(data, 0, len(data), None, None, 0)


@both
def test_offsets_too_far_apart_for_a_batch_are_refused(module: Any) -> None:
    data = encode_message(1, 0, NOW, None, None) + encode_message(1, 1 << 31, NOW, None, None)
    assert module.messages_to_records(data, 0, len(data), None, None, 0)
    with pytest.raises(ValueError, match="beyond 32 bits"):
        module.messages_to_records(data, 0, len(data), 0, None, 0)


@both
def test_a_count_beyond_the_bytes_is_refused(module: Any) -> None:
    for count in (-1, 1, 1 << 40):
        with pytest.raises(ValueError, match="malformed records"):
            module.records_to_messages((b"", count, 0, 0, None), 1, 0, 0)


gapped = st.lists(
    st.tuples(st.integers(0, 3), timestamps, fields, fields), min_size=1, max_size=12
).map(
    lambda rows: [
        LegacyRecord(5 + index * 4 + gap, timestamp, key, value)
        for index, (gap, timestamp, key, value) in enumerate(rows)
    ]
)


@both
@settings(deadline=None)
@given(gapped, st.integers(0, 1), st.none() | timestamps, st.booleans())
def test_up_and_down_are_what_the_slow_writer_writes(
    module: Any,
    records: list[LegacyRecord],
    magic: int,
    append_time: int | None,
    is_relative: bool,
) -> None:
    data = message_set_of(records, magic, append_time_ms=append_time)
    payload, base_timestamp, max_timestamp = module.messages_to_records(
        data, 0, len(data), records[0].offset, append_time, 7
    )
    stamped = records
    if append_time is not None:
        stamped = [record._replace(timestamp=append_time) for record in records]
    elif magic == 0:
        stamped = [record._replace(timestamp=-1) for record in records]
    assert payload[:7] == bytes(7)
    assert max_timestamp == max(record.timestamp for record in stamped)
    columns = module.records_to_columns(
        [(payload[7:], len(records), records[0].offset, base_timestamp, None)]
    )
    assert memoryview(columns.offsets).cast("q").tolist() == [record.offset for record in records]
    assert memoryview(columns.timestamps).cast("q").tolist() == [
        record.timestamp for record in stamped
    ]
    first = records[len(records) // 2].offset
    kept = [record for record in stamped if record.offset >= first]
    base = first if is_relative else 0
    back = module.records_to_messages(
        (payload[7:], len(records), records[0].offset, base_timestamp, append_time),
        *(magic, is_relative, first),
    )
    assert back == (
        message_set_of(
            [record._replace(offset=record.offset - base) for record in kept],
            magic,
            append_time_ms=append_time,
        ),
        len(kept),
        records[-1].offset,
        max(record.timestamp for record in kept),
    )


@st.composite
def damaged_sets(draw: st.DrawFn) -> bytes:
    pieces = draw(
        st.lists(
            st.tuples(gapped, st.integers(0, 1), st.sampled_from([Codec.NONE, Codec.GZIP])),
            min_size=1,
            max_size=3,
        )
    )
    data = bytearray(
        b"".join(message_set_of(records, magic, codec=codec) for records, magic, codec in pieces)
    )
    for _ in range(draw(st.integers(0, 3))):
        data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return bytes(data[: len(data) - draw(st.integers(0, 30))])


@needs_compiled
class TestEquality:
    @settings(deadline=None, max_examples=300)
    @given(damaged_sets() | st.binary(max_size=80), st.integers(0, 1), st.integers(0, 1), st.data())
    def test_of_message_sets(
        self, data: bytes, verify: int, one_run: int, more: st.DataObject
    ) -> None:
        assert compiled is not None
        bytes_max = more.draw(st.sampled_from([60, NO_BOUND]))
        arguments = (data, 0, len(data), verify, bytes_max, one_run)
        found = compiled.check_messages(*arguments)
        assert found == _pure.check_messages(*arguments)
        base_offset = more.draw(st.sampled_from([None, 0, -(1 << 63), found.first_offset]))
        append_time = more.draw(st.sampled_from([None, -1, NOW, -(1 << 63)]))
        for end in {found.position, len(data)}:
            converting = (data, 0, end, base_offset, append_time, 3)
            assert outcome(compiled.messages_to_records, *converting) == outcome(
                _pure.messages_to_records, *converting
            )

    @settings(deadline=None, max_examples=300)
    @given(record_lists, st.data())
    def test_of_records(self, records: list[Any], data: st.DataObject) -> None:
        assert compiled is not None
        payload, base_timestamp, _ = kernel.encode_records(records, 0)
        count = len(records)
        if payload and data.draw(st.booleans()):
            payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
            count += data.draw(st.integers(-1, 1))
        part = (
            payload,
            count,
            data.draw(st.sampled_from([0, 500, (1 << 63) - 2, -(1 << 63)])),
            data.draw(st.sampled_from([base_timestamp, (1 << 63) - 1, -(1 << 63)])),
            data.draw(st.sampled_from([None, -1, NOW])),
        )
        arguments = (
            part,
            data.draw(st.integers(0, 1)),
            data.draw(st.integers(0, 1)),
            data.draw(st.sampled_from([0, 505, -(1 << 63)])),
        )
        assert outcome(compiled.records_to_messages, *arguments) == outcome(
            _pure.records_to_messages, *arguments
        )


@both
@settings(deadline=None, max_examples=150)
@given(data=damaged_sets())
def test_sound_entries_are_those_of_the_slow_reader(module: Any, data: bytes) -> None:
    status, position, count, *_ = module.check_messages(data, 0, len(data), 0, NO_BOUND, 0)
    if status == kernel.OK:
        messages = list(read_messages(data))
        assert (sum(m.size for m in messages), len(messages)) == (position, count)
        if not any(message.is_compressed for message in messages):
            records = [record for message in messages for record in records_of(message)]
            encoded, *_ = module.messages_to_records(data, 0, position, None, None, 0)
            rows = [(r.key, r.value, (), r.timestamp) for r in records]
            assert encoded == module.encode_records(rows, 0)[0]


@needs_compiled
@given(st.binary(max_size=200))
def test_both_hash_alike(data: bytes) -> None:
    assert compiled is not None
    assert compiled.xxh32(data) == _pure.xxh32(data)


@needs_compiled
def test_long_input_is_hashed_alike() -> None:
    assert compiled is not None
    data = bytes(range(251)) * 300
    assert compiled.xxh32(data) == _pure.xxh32(data)
