from __future__ import annotations

from typing import Any

import pytest
from kafka.record.memory_records import MemoryRecords as KafkaPythonRecords

from tests.support.batches import NOW, simple_batch
from tidelog.errors import ErrorCode
from tidelog.record import kernel
from tidelog.record.batch import BatchHeader, Codec, TimestampType
from tidelog.record.builder import batch_of
from tidelog.record.columns import read_columns
from tidelog.record.control import ControlType, EndTransactionMarker, marker_batch
from tidelog.record.conversion import down_convert, up_convert
from tidelog.record.errors import UnsupportedCodec
from tidelog.record.legacy import LegacyRecord, message_set_of, read_messages

OLD_CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]
RECORDS: list[Any] = [
    (b"k", b"v", [("h", b"x")], NOW),
    (None, b"w", [], NOW + 9),
    (b"z", None, [], NOW + 3),
]

every_codec = pytest.mark.parametrize("codec", OLD_CODECS)
every_magic = pytest.mark.parametrize("magic", [0, 1])


def rows(data: bytes) -> list[tuple[int, int, bytes | None, bytes | None]]:
    return [
        (offset, timestamp, key, value) for offset, timestamp, key, value, _ in read_columns(data)
    ]


def expected(magic: int, base_offset: int = 0) -> list[Any]:
    return [
        (base_offset + index, timestamp if magic else -1, key, value)
        for index, (key, value, _, timestamp) in enumerate(RECORDS)
    ]


@every_codec
@every_magic
def test_down_keeps_offsets_and_drops_headers(codec: Codec, magic: int) -> None:
    data = down_convert(batch_of(RECORDS, base_offset=500, codec=codec), magic, 0)
    assert rows(data) == expected(magic, 500)
    assert {message.magic for message in read_messages(data)} == {magic}
    assert len(list(read_messages(data))) == (1 if codec else 3)


@every_codec
@every_magic
def test_old_clients_read_what_went_down(codec: Codec, magic: int) -> None:
    converted = KafkaPythonRecords(down_convert(batch_of(RECORDS, codec=codec), magic, 0))
    read = []
    while converted.has_next():
        batch = converted.next_batch()
        assert batch.validate_crc()
        read += [(record.offset, record.key, record.value) for record in batch]
    assert read == [(row[0], row[2], row[3]) for row in expected(magic)]


def test_records_before_the_fetch_offset_go_only_when_uncompressed() -> None:
    plain, gzipped = batch_of(RECORDS), batch_of(RECORDS, codec=Codec.GZIP)
    assert [row[0] for row in rows(down_convert(plain, 1, 2))] == [2]
    assert [row[0] for row in rows(down_convert(gzipped, 1, 2))] == [0, 1, 2]
    assert down_convert(plain, 1, 3) == b""


def test_control_batches_are_dropped() -> None:
    marker = marker_batch(
        EndTransactionMarker(ControlType.COMMIT, 0),
        producer_id=1,
        producer_epoch=0,
        timestamp=NOW,
        base_offset=3,
    )
    data = simple_batch(3) + marker + simple_batch(2, base_offset=4)
    assert [row[0] for row in rows(down_convert(data, 1, 0))] == [0, 1, 2, 4, 5]


def test_zstd_cannot_go_down() -> None:
    with pytest.raises(UnsupportedCodec) as caught:
        down_convert(simple_batch(codec=Codec.ZSTD), 1, 0)
    assert caught.value.code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_a_cut_batch_at_the_end_is_left_out() -> None:
    data = simple_batch(3) + simple_batch(3, base_offset=3)[:-1]
    assert len(rows(down_convert(data, 1, 0))) == 3


def test_batches_already_old_enough_pass_unchanged() -> None:
    old = message_set_of([LegacyRecord(0, NOW, b"k", b"v")], 1, codec=Codec.GZIP)
    assert down_convert(old, 1, 0) == old
    assert down_convert(old + simple_batch(1, base_offset=1), 1, 0).startswith(old)


@every_codec
def test_magic_1_goes_down_to_0(codec: Codec) -> None:
    records = [LegacyRecord(n, NOW + n, b"k", b"v") for n in range(5, 9)]
    data = down_convert(message_set_of(records, 1, codec=codec), 0, 6)
    kept = records if codec else records[1:]
    assert rows(data) == [(r.offset, -1, r.key, r.value) for r in kept]
    assert {message.magic for message in read_messages(data)} == {0}


@every_codec
def test_append_time_stays_append_time(codec: Codec) -> None:
    data = down_convert(batch_of(RECORDS, codec=codec, append_time_ms=NOW + 50), 1, 0)
    assert {row[1] for row in rows(data)} == {NOW + 50}
    assert next(read_messages(data)).timestamp_type == TimestampType.LOG_APPEND_TIME


@pytest.mark.parametrize("codec", list(Codec))
def test_up_makes_one_sound_batch(codec: Codec) -> None:
    records = [LegacyRecord(n, NOW + n, None, b"v%d" % n) for n in range(4)]
    batch, max_timestamp = up_convert(records, codec=codec, base_offset=70, leader_epoch=2)
    assert kernel.check_batch(batch)[0] == kernel.OK
    assert rows(bytes(batch)) == [(70 + n, NOW + n, None, b"v%d" % n) for n in range(4)]
    assert max_timestamp == NOW + 3
    assert BatchHeader(batch).partition_leader_epoch == 2


def test_up_with_append_time() -> None:
    batch, max_timestamp = up_convert([LegacyRecord(0, -1, None, b"v")], append_time_ms=NOW)
    assert max_timestamp == NOW
    assert BatchHeader(batch).timestamp_type == TimestampType.LOG_APPEND_TIME


def test_up_and_down_again_is_where_it_began() -> None:
    old = message_set_of([LegacyRecord(n, NOW + n, b"k", b"v") for n in range(3)], 1)
    batch, _ = up_convert([LegacyRecord(*row) for row in rows(old)])
    assert down_convert(batch, 1, 0) == old
