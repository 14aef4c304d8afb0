from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.memory_records import MemoryRecords as KafkaPythonRecords

from tests.support.batches import NOW, batches, damaged, simple_batch
from tests.support.message_sets import message_set_of
from tests.support.stored_columns import read_columns
from tidelog.errors import ErrorCode, KafkaError
from tidelog.record import kernel
from tidelog.record.batch import BatchHeader, Codec, TimestampType
from tidelog.record.builder import batch_of
from tidelog.record.control import ControlType, EndTransactionMarker, marker_batch
from tidelog.record.conversion import (
    OVERFLOW_MESSAGE,
    down_convert_file,
    up_convert,
)
from tidelog.record.errors import InvalidRecords, UnsupportedCodec
from tidelog.record.file_records import FileRecords
from tidelog.record.legacy import LegacyRecord, read_messages

OLD_CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]
RECORDS: list[Any] = [
    (b"k", b"v", [("h", b"x")], NOW),
    (None, b"w", [], NOW + 9),
    (b"z", None, [], NOW + 3),
]

every_codec = pytest.mark.parametrize("codec", OLD_CODECS)
every_magic = pytest.mark.parametrize("magic", [0, 1])


def down_convert(
    data: bytes | bytearray,
    magic: int,
    first_offset: int,
    bytes_max: int = 1 << 40,
    *,
    cut_overflows: bool = False,
) -> bytes:
    with TemporaryFile(buffering=0) as file:
        file.write(data)
        records = FileRecords(file, 0, len(data))
        return down_convert_file(
            records, magic, first_offset, bytes_max, cut_overflows=cut_overflows
        )


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
    assert down_convert(plain, 1, 3) == OVERFLOW_MESSAGE


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
    messages = message_set_of([LegacyRecord(n, NOW + n, None, b"v%d" % n) for n in range(4)], 1)
    batch, max_timestamp = up_convert(messages, 4, codec=codec, base_offset=70, leader_epoch=2)
    assert kernel.check_batch(batch)[0] == kernel.OK
    assert rows(bytes(batch)) == [(70 + n, NOW + n, None, b"v%d" % n) for n in range(4)]
    assert max_timestamp == NOW + 3
    assert BatchHeader(batch).partition_leader_epoch == 2


def test_up_with_append_time() -> None:
    messages = message_set_of([LegacyRecord(0, -1, None, b"v")], 0)
    batch, max_timestamp = up_convert(messages, 1, append_time_ms=NOW)
    assert max_timestamp == NOW
    assert BatchHeader(batch).timestamp_type == TimestampType.LOG_APPEND_TIME


def test_up_with_the_time_of_a_wrapper() -> None:
    messages = message_set_of([LegacyRecord(n, NOW + n, None, b"v") for n in range(2)], 1)
    batch, max_timestamp = up_convert(messages, 2, messages_time=NOW - 7)
    assert [row[1] for row in rows(bytes(batch))] == [NOW - 7, NOW - 7]
    assert max_timestamp == NOW - 7


def test_what_is_no_message_set_does_not_go_up() -> None:
    with pytest.raises(InvalidRecords):
        up_convert(b"no messages at all here", 1)


def test_up_and_down_again_is_where_it_began() -> None:
    old = message_set_of([LegacyRecord(n, NOW + n, b"k", b"v") for n in range(3)], 1)
    batch, _ = up_convert(old, 3)
    assert down_convert(batch, 1, 0) == old


class TestBounds:
    DATA = bytes(b"".join(simple_batch(3, base_offset=3 * n) for n in range(200)))

    def offsets(self, data: bytes) -> list[int]:
        return [row[0] for row in rows(data)]

    def test_the_first_batch_goes_whole_whatever_the_bound(self) -> None:
        assert self.offsets(down_convert(self.DATA, 1, 0, 0)) == [0, 1, 2]

    def test_it_stops_with_the_batch_that_reaches_the_bound(self) -> None:
        one = len(down_convert(self.DATA, 1, 0, 1))
        assert len(down_convert(self.DATA, 1, 0, 2 * one)) == 2 * one
        assert len(down_convert(self.DATA, 1, 0, 2 * one + 1)) == 3 * one

    def test_the_answer_is_no_longer_than_the_slice_it_was_made_of(self) -> None:
        batches = [bytes(simple_batch(9, base_offset=9 * n)) for n in range(200)]
        data = b"".join(batches)
        for magic in (0, 1):
            unbounded = b"".join(down_convert(batch, magic, 0) for batch in batches)
            converted = down_convert(data, magic, 0)
            assert len(converted) == len(data) < len(unbounded)
            assert converted == unbounded[: len(data)]

    def test_inflated_bytes_count_too(self) -> None:
        headers = [("h", random.Random(1).randbytes(1000))]  # dropped, so that there is room
        batch = batch_of([(b"k", bytes(50_000), headers, NOW)], codec=Codec.GZIP)
        assert len(rows(down_convert(bytes(batch) * 3, 1, 0, 60_000))) == 2

    def test_runs_of_old_messages_are_bounded_too(self) -> None:
        old = message_set_of([LegacyRecord(n, NOW, None, bytes(10_000)) for n in range(100)], 1)
        for magic in (0, 1):
            converted = down_convert(old, magic, 0, 1)
            assert 100_000 < len(converted) < 140_000
            assert down_convert(old, magic, 0)[: len(converted)] == converted

    def test_what_precedes_zstd_is_answered_first(self) -> None:
        data = bytes(simple_batch(3) + simple_batch(3, base_offset=3, codec=Codec.ZSTD))
        assert self.offsets(down_convert(data, 1, 0)) == [0, 1, 2]


class TestOverflow:
    def test_old_clients_find_a_message_that_is_not_there(self) -> None:
        records = KafkaPythonRecords(OVERFLOW_MESSAGE)
        assert not records.has_next()
        assert records.size_in_bytes() > 0

    def test_markers_alone_overflow(self) -> None:
        assert down_convert(bytes(simple_batch(1, is_control=True)), 1, 0) == OVERFLOW_MESSAGE

    def test_a_cut_first_batch_overflows_when_asked(self) -> None:
        data = bytes(simple_batch(3))[:-1]
        assert down_convert(data, 1, 0) == b""
        assert down_convert(data, 1, 0, cut_overflows=True) == OVERFLOW_MESSAGE

    def test_nothing_is_nothing(self) -> None:
        assert down_convert(b"", 1, 0, cut_overflows=True) == b""

    def test_more_markers_than_are_read_through_overflow(self) -> None:
        markers = bytes(simple_batch(1, is_control=True)) * (1 << 18)
        data = markers + bytes(simple_batch(1))
        assert down_convert(data, 1, 0) == OVERFLOW_MESSAGE
        assert down_convert(data[-100 * 1024 :], 1, 0) != OVERFLOW_MESSAGE


class TestFiles:
    @pytest.fixture
    def slice_of(self, tmp_path: Path) -> Iterator[Callable[[bytes], FileRecords]]:
        with (tmp_path / "segment").open("w+b", buffering=0) as file:

            def slice_of(data: bytes) -> FileRecords:
                file.write(b"before" + data + b"after")
                return FileRecords(file, 6, len(data))

            yield slice_of

    @pytest.mark.parametrize("cut", [0, 1, 70])
    def test_a_slice_larger_than_a_read_converts_batch_by_batch(
        self, slice_of: Callable[[bytes], FileRecords], cut: int
    ) -> None:
        small = [(b"k", b"v", [("h", bytes(40))], NOW)] * 500  # headers are dropped: there is room
        batches = [batch_of(small, base_offset=500 * n) for n in range(50)]
        large = batch_of([(None, bytes(300_000), (), NOW)], base_offset=25_000)
        last = simple_batch(500, base_offset=25_001)
        data = bytes(b"".join(batches) + large + last)
        records = slice_of(data[: len(data) - cut])
        end_offset = 25_001 if cut else 25_501
        offsets = [row[0] for row in rows(down_convert_file(records, 1, 700, 1 << 40))]
        assert offsets == list(range(700, end_offset))

    def test_it_is_read_as_far_as_needed(
        self, slice_of: Callable[[bytes], FileRecords], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        data = bytes(simple_batch(500)) * 200
        records = slice_of(data)
        read: list[tuple[int, int]] = []
        read_part = FileRecords.read_part

        def counted(self: FileRecords, start: int, length: int) -> bytes:
            read.append((start, length))
            return read_part(self, start, length)

        monkeypatch.setattr(FileRecords, "read_part", counted)
        assert len(rows(down_convert_file(records, 1, 0, 1))) == 500
        assert len(read) == 1

    def test_bytes_that_are_no_batch_end_it(self, slice_of: Callable[[bytes], FileRecords]) -> None:
        records = slice_of(bytes(simple_batch(3)) + b"\xff" * 300_000)
        assert len(rows(down_convert_file(records, 1, 0, 1 << 40))) == 3


@settings(deadline=None, max_examples=150)
@given(damaged(batches()), st.integers(0, 1), st.integers(0, 5))
def test_damaged_batches_never_surprise(data: bytes, magic: int, first_offset: int) -> None:
    with suppress(KafkaError):
        down_convert(data, magic, first_offset, 1000)
