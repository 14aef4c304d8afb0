"""Formats before v2 against foreign readers and writers, and by hand where those differ."""

from __future__ import annotations

import zlib
from typing import Any

import pytest
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder as AiokafkaBuilder
from aiokafka.record.memory_records import MemoryRecords as AiokafkaRecords
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.legacy_records import LegacyRecordBatchBuilder as KafkaPythonBuilder
from kafka.record.memory_records import MemoryRecords as KafkaPythonRecords

from tests.support.batches import NOW
from tests.support.message_sets import message_set_of
from tidelog.record.batch import Codec, TimestampType
from tidelog.record.compression import compress
from tidelog.record.errors import CorruptRecords, InvalidRecords
from tidelog.record.inflation import InflationBudget
from tidelog.record.legacy import (
    LegacyRecord,
    encode_message,
    read_messages,
    records_of,
)

CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]
RECORDS = [
    LegacyRecord(10, NOW, b"key", b"value"),
    LegacyRecord(11, NOW + 5, None, b"v" * 1000),
    LegacyRecord(12, NOW - 5, b"", None),
]

every_codec = pytest.mark.parametrize("codec", CODECS)
every_magic = pytest.mark.parametrize("magic", [0, 1])
# aiokafka refuses LZ4 in magic 0; the old header checksum is tested in test_compression.
every_format = pytest.mark.parametrize(
    ("codec", "magic"),
    [(codec, magic) for codec in CODECS for magic in (0, 1) if (codec, magic) != (Codec.LZ4, 0)],
)


def as_stored(records: list[LegacyRecord], magic: int) -> list[LegacyRecord]:
    return records if magic else [record._replace(timestamp=-1) for record in records]


def all_records(data: bytes) -> list[LegacyRecord]:
    messages = list(read_messages(data))
    for message in messages:
        message.require_valid()
    return [record for message in messages for record in records_of(message, verify_inner=True)]


@every_codec
@every_magic
def test_what_was_written_comes_back(codec: Codec, magic: int) -> None:
    assert all_records(message_set_of(RECORDS, magic, codec=codec)) == as_stored(RECORDS, magic)


@every_format
@pytest.mark.parametrize("reader", [KafkaPythonRecords, AiokafkaRecords])
def test_foreign_clients_read_ours(codec: Codec, magic: int, reader: Any) -> None:
    records = reader(message_set_of(RECORDS, magic, codec=codec))
    read = []
    while records.has_next():
        batch = records.next_batch()
        assert batch.validate_crc()
        read += [
            (r.offset, -1 if r.timestamp is None else r.timestamp, r.key, r.value) for r in batch
        ]
    assert read == [tuple(record) for record in as_stored(RECORDS, magic)]


@every_format
@pytest.mark.parametrize("builder", [KafkaPythonBuilder, AiokafkaBuilder])
def test_we_read_those_of_foreign_clients(codec: Codec, magic: int, builder: Any) -> None:
    made = builder(magic=magic, compression_type=codec, batch_size=1 << 20)
    expected = []
    for index, record in enumerate(RECORDS):
        made.append(index, record.timestamp, record.key, record.value)
        expected.append(record._replace(offset=index))
    assert all_records(bytes(made.build())) == as_stored(expected, magic)


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 3),
            st.integers(-1, 1 << 60),
            st.none() | st.binary(max_size=50),
            st.none() | st.binary(max_size=50),
        ),
        min_size=1,
        max_size=10,
    ),
    st.sampled_from(CODECS),
    st.integers(0, 1),
)
def test_any_records_with_any_gaps_come_back(rows: list[Any], codec: Codec, magic: int) -> None:
    offset, records = 5, []
    for gap, timestamp, key, value in rows:
        offset += 1 + gap
        records.append(LegacyRecord(offset, timestamp, key, value))
    data = message_set_of(records, magic, codec=codec)
    assert all_records(data) == as_stored(records, magic)


def test_golden_bytes_of_both_formats() -> None:
    body = bytes.fromhex("0000000000016b0000000176")
    assert encode_message(0, 7, -1, b"k", b"v") == (
        bytes.fromhex("000000000000000700000010") + zlib.crc32(body).to_bytes(4, "big") + body
    )
    body = bytes.fromhex("01000000018bcfe56800ffffffffffffffff")
    assert encode_message(1, 7, NOW, None, None) == (
        bytes.fromhex("000000000000000700000016") + zlib.crc32(body).to_bytes(4, "big") + body
    )


def test_inner_offsets_are_relative_in_magic_1_and_absolute_in_magic_0() -> None:
    for magic, expected in ((0, [10, 11, 12]), (1, [0, 1, 2])):
        wrapper = next(read_messages(message_set_of(RECORDS, magic, codec=Codec.GZIP)))
        assert wrapper.offset == 12
        assert wrapper.timestamp == (NOW + 5 if magic else -1)
        _, value = wrapper.key_and_value()
        assert value is not None
        inner = read_messages(zlib.decompress(value, 31))
        assert [message.offset for message in inner] == expected


def test_a_wrapper_that_was_not_numbered_keeps_inner_offsets() -> None:
    inner = b"".join(encode_message(1, n, NOW, None, b"v") for n in range(3))
    data = encode_message(1, 0, NOW, None, compress(Codec.GZIP, inner), Codec.GZIP)
    assert [record.offset for record in all_records(data)] == [0, 1, 2]


@every_codec
def test_append_time_of_the_wrapper_counts_for_all(codec: Codec) -> None:
    data = message_set_of(RECORDS, 1, codec=codec, append_time_ms=NOW + 99)
    assert {record.timestamp for record in all_records(data)} == {NOW + 99}
    first = next(read_messages(data))
    assert first.timestamp_type == TimestampType.LOG_APPEND_TIME


def test_a_flipped_bit_fails_the_checksum() -> None:
    data = bytearray(message_set_of(RECORDS[:1], 1))
    data[-1] ^= 1
    with pytest.raises(CorruptRecords):
        next(read_messages(data)).require_valid()


def test_an_inner_message_is_verified_when_asked() -> None:
    inner = bytearray(encode_message(1, 0, NOW, None, b"v"))
    inner[-1] ^= 1
    data = encode_message(1, 0, NOW, None, compress(Codec.GZIP, inner), Codec.GZIP)
    message = next(read_messages(data))
    assert len(records_of(message)) == 1
    with pytest.raises(CorruptRecords):
        records_of(message, verify_inner=True)


def test_a_cut_message_at_the_end_is_left_aside() -> None:
    data = message_set_of(RECORDS, 1)
    assert len(list(read_messages(data[:-1]))) == 2
    assert list(read_messages(data[:16])) == []


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (encode_message(1, 0, NOW, None, None, Codec.GZIP), "no value"),
        (encode_message(1, 0, NOW, None, compress(Codec.GZIP, b""), Codec.GZIP), "no records"),
        (encode_message(1, 0, NOW, None, b"x", Codec.ZSTD), "zstd"),
        (
            encode_message(
                1,
                0,
                NOW,
                None,
                compress(Codec.GZIP, encode_message(1, 0, NOW, None, b"x", Codec.GZIP)),
                Codec.GZIP,
            ),
            "compressed itself",
        ),
        (
            encode_message(
                1,
                1,
                NOW,
                None,
                compress(Codec.GZIP, encode_message(1, 2, NOW, None, b"x")),
                Codec.GZIP,
            ),
            "before its last",
        ),
        (
            encode_message(
                1,
                0,
                NOW,
                None,
                compress(Codec.GZIP, encode_message(0, 0, NOW, None, b"x")),
                Codec.GZIP,
            ),
            "another magic",
        ),
    ],
)
def test_wrappers_that_are_refused(data: bytes, problem: str) -> None:
    with pytest.raises(InvalidRecords, match=problem):
        records_of(next(read_messages(data)), verify_inner=True)


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (bytes(8) + (13).to_bytes(4, "big") + bytes(40), CorruptRecords),
        (bytes(8) + (21).to_bytes(4, "big") + b"\0\0\0\0\x01" + bytes(40), CorruptRecords),
        (bytes(8) + (21).to_bytes(4, "big") + b"\0\0\0\0\x05" + bytes(40), CorruptRecords),
        (bytes(8) + (21).to_bytes(4, "big") + b"\0\0\0\0\x02" + bytes(40), InvalidRecords),
    ],
)
def test_headers_that_cannot_be(data: bytes, error: type[Exception]) -> None:
    with pytest.raises(error):
        list(read_messages(data))


def test_lengths_beyond_the_message_are_refused() -> None:
    for position in (26, 30):
        data = bytearray(encode_message(1, 0, NOW, None, None))
        data[position : position + 4] = (1000).to_bytes(4, "big")
        with pytest.raises(InvalidRecords):
            next(read_messages(data)).key_and_value()


@settings(deadline=None, max_examples=200)
@given(st.sampled_from(CODECS), st.integers(0, 1), st.data())
def test_damage_never_surprises(codec: Codec, magic: int, data: st.DataObject) -> None:
    from tidelog.errors import KafkaError

    damaged = bytearray(message_set_of(RECORDS, magic, codec=codec))
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    try:
        for message in read_messages(damaged):
            records_of(message, InflationBudget(100_000))
    except KafkaError:
        pass
