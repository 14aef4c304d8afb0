"""The compiled kernel and its twin: right by outside oracles, and equal to each other."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any

import crc32c as crc32c_oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.batches import (
    NOW,
    batches,
    damaged,
    record_lists,
    records_of,
    simple_batch,
    with_fields,
    with_payload_bytes,
)
from tests.support.message_sets import message_set_of
from tidelog.record import _pure, _results, kernel
from tidelog.record.batch import Codec
from tidelog.record.builder import batch_of
from tidelog.record.legacy import LegacyRecord

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

# Mostly what fits, sometimes what does not.
some_numbers = st.integers(-(2**15), 2**15 - 1) | st.integers(-(2**64), 2**64)
names = st.text(max_size=20) | st.sampled_from(["", "t", "x" * 32_767, "x" * 32_768, "\ud800"])
commit_rows = st.tuples(
    names, some_numbers, some_numbers, some_numbers, names, some_numbers, st.just(-1) | some_numbers
)

WHOLE_SEGMENT = kernel.ScanState.at_start(0, index_interval_bytes=4096)


def scan(
    module: Any,
    data: bytes,
    *,
    verify_crc: int = 1,
    batches_max: int = 1 << 30,
    bytes_max: int = 1 << 40,
    **changes: int,
) -> Any:
    state = WHOLE_SEGMENT._replace(**changes)
    return module.scan_log(data, len(data), state, verify_crc, batches_max, bytes_max)


def checked(module: Any, data: bytes | bytearray) -> kernel.BatchCheck:
    return kernel.BatchCheck(*module.check_batch(data))


def progress(answer: Any) -> tuple[int, int, int]:
    return answer.position, answer.why, answer.state.next_offset


def outcome(function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except ValueError:
        return ValueError


def test_tidelog_pure_forces_the_twin() -> None:
    code = "from tidelog.record import kernel; raise SystemExit(kernel.COMPILED)"
    environment = os.environ | {"TIDELOG_PURE": "1"}
    assert subprocess.run([sys.executable, "-c", code], env=environment).returncode == 0


class TestCrc32c:
    @both
    @pytest.mark.parametrize(
        "length", [0, 1, 7, 8, 9, 255, 767, 768, 769, 3000, 12287, 12288, 30011]
    )
    def test_agrees_with_the_crc32c_package(self, module: Any, length: int) -> None:
        data = os.urandom(length + 3)
        for start in (0, 1, 3):
            piece = memoryview(data)[start : start + length]
            assert module.crc32c(piece) == crc32c_oracle.crc32c(bytes(piece))

    @both
    def test_check_value_of_the_standard(self, module: Any) -> None:
        assert module.crc32c(b"123456789") == 0xE3069283

    @both
    def test_goes_on_from_an_earlier_checksum(self, module: Any) -> None:
        data = os.urandom(5000)
        assert module.crc32c(data[1234:], module.crc32c(data[:1234])) == module.crc32c(data)

    @needs_compiled
    @given(st.binary(max_size=3000), st.integers(0, (1 << 32) - 1))
    def test_table_and_instruction_agree(self, data: bytes, crc: int) -> None:
        assert compiled is not None
        assert compiled.crc32c_by_table(data, crc) == compiled.crc32c(data, crc)

    @needs_compiled
    def test_large_input_agrees_with_the_oracle(self) -> None:
        assert compiled is not None
        data = os.urandom(300_001)
        assert compiled.crc32c(data) == crc32c_oracle.crc32c(data)
        assert compiled.crc32c_by_table(data) == crc32c_oracle.crc32c(data)


class TestCheckBatch:
    @both
    def test_gives_the_header_and_what_the_records_say(self, module: Any) -> None:
        batch = batch_of(
            [(b"k", b"v", (), NOW), (None, b"v", (), NOW + 7), (b"k", None, (), NOW + 7)],
            producer_id=9,
            producer_epoch=2,
            base_sequence=40,
            is_transactional=True,
        )
        answer = module.check_batch(batch)
        assert answer[:12] == (kernel.OK, len(batch), 0, 2, 0x10, 2, NOW, NOW + 7, 9, 2, 40, 3)
        assert answer[12:] == (NOW, NOW + 7, 1, kernel.WALKED | kernel.NULL_KEY)

    @both
    @pytest.mark.parametrize("cut", [0, 11, 12, 16, 17, 60])
    def test_too_few_bytes_are_no_batch(self, module: Any, cut: int) -> None:
        assert module.check_batch(bytes(simple_batch())[:cut]) == (kernel.NO_BATCH,) + (0,) * 15

    @both
    @pytest.mark.parametrize("length", [-1, 0, 13, 48, -(1 << 31)])
    def test_an_impossible_length_is_a_bad_size(self, module: Any, length: int) -> None:
        batch = with_fields(simple_batch(), batch_length=length)
        assert checked(module, batch).status == kernel.BAD_SIZE

    @both
    @pytest.mark.parametrize("magic", [3, 127, -1])
    def test_an_unknown_magic(self, module: Any, magic: int) -> None:
        batch = with_fields(simple_batch(), magic=magic)
        assert checked(module, batch).status == kernel.BAD_MAGIC

    @both
    def test_an_old_message_gives_size_and_magic(self, module: Any) -> None:
        messages = message_set_of([LegacyRecord(0, NOW, b"k", b"v")], 1)
        assert module.check_batch(messages + b"tail")[:4] == (
            kernel.OLD_FORMAT,
            len(messages),
            0,
            1,
        )

    @both
    def test_every_flipped_bit_below_the_checksum_is_found(self, module: Any) -> None:
        batch = simple_batch(1)
        for position in range(17, len(batch)):
            damaged_batch = bytearray(batch)
            damaged_batch[position] ^= 0x10
            assert checked(module, damaged_batch).status == kernel.BAD_CRC

    @both
    def test_offset_and_leader_epoch_lie_outside_the_checksum(self, module: Any) -> None:
        batch = simple_batch()
        assert module.check_batch(
            with_fields(batch, base_offset=77, partition_leader_epoch=5, crc=_crc_of(batch))
        )[:3] == (kernel.OK, len(batch), 77)

    @both
    @pytest.mark.parametrize("count", [2, 4, -1, 0, (1 << 31) - 1])
    def test_a_wrong_count_is_bad_records(self, module: Any, count: int) -> None:
        batch = with_fields(simple_batch(3), records_count=count)
        assert checked(module, batch).status == kernel.BAD_RECORDS

    @both
    @pytest.mark.parametrize(
        "record",
        [
            "00",  # no body
            "0c0000000101",  # body longer than the payload
            "0a0000000101",  # body ends before the header count
            "0c000000026100",  # value runs out of its record
            "0e00000001010000",  # a byte left in the record
            "0c000000010102",  # one header announced, none there
            "10000000010102010000",  # header without a name
            "0cffffffffffffffffffff",  # a varlong that does not end
            "ffffffffff01",  # a varint that does not end
            "0c00000001010100",  # negative header count
        ],
    )
    def test_malformed_records(self, module: Any, record: str) -> None:
        batch = with_payload_bytes(simple_batch(1), bytes.fromhex(record))
        assert checked(module, batch).status == kernel.BAD_RECORDS

    @both
    def test_gaps_in_offset_deltas_are_flagged(self, module: Any) -> None:
        payload = bytes.fromhex("0c000000010100") + bytes.fromhex("0c000004010100")
        batch = with_fields(
            with_payload_bytes(simple_batch(2), payload), records_count=2, base_timestamp=-1
        )
        assert checked(module, batch).flags & kernel.SPARSE_OFFSETS

    @both
    def test_records_without_timestamps_give_minus_one(self, module: Any) -> None:
        batch = batch_of([(b"k", b"v", (), -1)])
        assert module.check_batch(batch)[12:15] == (-1, -1, -1)

    @both
    def test_compressed_records_are_left_alone(self, module: Any) -> None:
        batch = simple_batch(codec=Codec.ZSTD)
        assert module.check_batch(batch)[12:] == (-1, -1, -1, 0)


def _crc_of(batch: bytearray) -> int:
    return int.from_bytes(batch[17:21], "big")


def _log(*sizes: int, gap: int = 0) -> bytes:
    data, offset = bytearray(), 0
    for index, size in enumerate(sizes):
        data += batch_of(
            records_of(size, value_bytes=100, timestamp=NOW + 1000 * index),
            base_offset=offset,
            leader_epoch=index // 2,
        )
        offset += size + gap
    return bytes(data)


class TestScanLog:
    @both
    def test_a_clean_log_is_walked_to_its_end(self, module: Any) -> None:
        data = _log(10, 20, 30)
        answer = scan(module, data)
        assert progress(answer) == (len(data), kernel.AT_END, 60)
        assert answer.state.max_timestamp == NOW + 2029
        assert answer.state.offset_of_max_timestamp == 59
        assert answer.batches_count == 3
        assert answer.epochs == [(0, 0), (1, 30)]

    @both
    def test_index_entries_are_kafkas(self, module: Any) -> None:
        data = _log(*[10] * 20)
        size = len(data) // 20
        answer = scan(module, data, index_interval_bytes=2 * size)
        positions = list(range(3, 20, 3))
        assert answer.offset_index == b"".join(
            (10 * n + 9).to_bytes(4, "big") + (n * size).to_bytes(4, "big") for n in positions
        )
        assert answer.time_index == b"".join(
            (NOW + 1000 * n + 9).to_bytes(8, "big") + (10 * n + 9).to_bytes(4, "big")
            for n in positions
        )

    @both
    def test_a_scan_in_pieces_equals_one_in_one_go(self, module: Any) -> None:
        data = _log(*[7] * 30)
        whole = scan(module, data, index_interval_bytes=1000)
        position, state = 0, WHOLE_SEGMENT._replace(index_interval_bytes=1000)
        offset_index = time_index = b""
        epochs: list[tuple[int, int]] = []
        for _ in range(100):
            rest = data[position:]
            answer = module.scan_log(rest, len(rest), state, 1, 4, 1 << 40)
            position, state = position + answer.position, answer.state
            offset_index += answer.offset_index
            time_index += answer.time_index
            epochs += answer.epochs
            if answer.why == kernel.AT_END:
                break
            assert answer.why == kernel.AT_LIMIT
        assert (offset_index, time_index, epochs) == (
            whole.offset_index,
            whole.time_index,
            whole.epochs,
        )
        assert state == whole.state
        assert position == whole.position

    @both
    def test_a_limit_of_bytes_stops_it_too(self, module: Any) -> None:
        data = _log(*[7] * 10)
        size = len(data) // 10
        assert scan(module, data, bytes_max=size + 1)[:2] == (2 * size, kernel.AT_LIMIT)

    @both
    def test_a_cut_batch_ends_the_log(self, module: Any) -> None:
        data = _log(5, 5)
        assert progress(scan(module, data[:-1])) == (len(data) // 2, kernel.INCOMPLETE, 5)

    @both
    def test_damage_ends_the_log_at_the_batch_before(self, module: Any) -> None:
        data = bytearray(_log(5, 5, 5))
        size = len(data) // 3
        data[size + 100] ^= 1
        assert progress(scan(module, bytes(data))) == (size, kernel.BAD_CRC, 5)
        assert scan(module, bytes(data), verify_crc=0)[:2] == (3 * size, kernel.AT_END)

    @both
    def test_zeros_after_the_last_batch_end_the_log(self, module: Any) -> None:
        data = _log(5)
        assert scan(module, data + bytes(1000))[:2] == (len(data), kernel.BAD_SIZE)

    @both
    def test_offsets_that_go_back_end_the_log(self, module: Any) -> None:
        data = _log(5, 5)
        assert progress(scan(module, data + data[: len(data) // 2])) == (
            len(data),
            kernel.BAD_OFFSET,
            10,
        )

    @both
    def test_offsets_may_have_gaps(self, module: Any) -> None:
        _, why, next_offset = progress(scan(module, _log(5, 5, 5, gap=100)))
        assert (why, next_offset) == (kernel.AT_END, 215)

    @both
    def test_an_offset_beyond_what_an_index_can_say_ends_the_log(self, module: Any) -> None:
        data = bytes(simple_batch(base_offset=1 << 31))
        assert scan(module, data)[:2] == (0, kernel.BAD_OFFSET)

    @both
    def test_old_messages_are_checked_and_counted(self, module: Any) -> None:
        first = message_set_of([LegacyRecord(n, NOW + n, b"k", b"v") for n in range(3)], 1)
        second = message_set_of(
            [LegacyRecord(n, -1, None, b"v") for n in range(3, 6)], 0, codec=Codec.GZIP
        )
        answer = scan(module, first + second)
        assert progress(answer) == (len(first + second), kernel.AT_END, 6)
        assert answer.state.max_timestamp == NOW + 2
        assert answer.state.offset_of_max_timestamp == 2
        broken = bytearray(first)
        broken[-1] ^= 1
        assert progress(scan(module, bytes(broken))) == (2 * len(first) // 3, kernel.BAD_CRC, 2)

    @both
    def test_producers_are_listed_with_their_markers(self, module: Any) -> None:
        from tidelog.record.control import ControlType, EndTransactionMarker, marker_batch

        data = simple_batch(
            3, producer_id=7, producer_epoch=1, base_sequence=(1 << 31) - 2, is_transactional=True
        )
        position = len(data)
        data += marker_batch(
            EndTransactionMarker(ControlType.ABORT, 12),
            producer_id=7,
            producer_epoch=1,
            timestamp=NOW,
            base_offset=3,
        )
        assert scan(module, bytes(data), file_position=1000).producers == [
            (7, 1, (1 << 31) - 2, 0, 0, 2, NOW + 2, 0x10, 1000, -1, -1),
            (7, 1, -1, -1, 3, 3, NOW, 0x30, 1000 + position, 0, 12),
        ]

    @both
    def test_a_place_outside_the_buffer_is_refused(self, module: Any) -> None:
        for end in (-1, 101):
            with pytest.raises(ValueError, match="buffer"):
                module.scan_log(bytes(100), end, WHOLE_SEGMENT, 1, 1, 1)

    @both
    def test_a_state_of_other_size_is_refused(self, module: Any) -> None:
        for state in (WHOLE_SEGMENT[:-1], (*WHOLE_SEGMENT, 0)):
            with pytest.raises(ValueError, match="9"):
                module.scan_log(bytes(100), 100, state, 1, 1, 1)


class TestFind:
    @both
    def test_the_first_batch_that_reaches_the_offset(self, module: Any) -> None:
        data = _log(5, 5, 5)
        size = len(data) // 3
        for offset in (0, 4, 5, 9, 14):
            batch = offset // 5
            assert module.find_offset(data, 0, len(data), offset) == (
                (1, batch * size, size, batch * 5, batch * 5 + 4)
            )

    @both
    def test_no_batch_gives_the_place_to_go_on(self, module: Any) -> None:
        data = _log(5, 5, 5)
        size = len(data) // 3
        assert module.find_offset(data, 0, len(data), 15) == (0, len(data), 0, 0, 0)
        assert module.find_offset(data, 0, size + 61, 12) == (0, 2 * size, 0, 0, 0)
        assert module.find_offset(data, 0, size + 60, 12) == (0, size, 0, 0, 0)

    @both
    def test_bytes_that_are_no_batch(self, module: Any) -> None:
        data = _log(5)
        assert module.find_offset(data + bytes(100), 0, len(data) + 100, 9)[:2] == (-1, len(data))

    @both
    def test_the_first_batch_with_a_late_enough_timestamp(self, module: Any) -> None:
        data = _log(5, 5, 5)
        size = len(data) // 3
        assert module.find_timestamp(data, 0, len(data), NOW + 5, 0)[:2] == (1, size)
        assert module.find_timestamp(data, 0, len(data), NOW, 10)[:2] == (1, 2 * size)
        assert module.find_timestamp(data, 0, len(data), NOW + 9999, 0)[0] == 0

    @both
    def test_a_record_by_timestamp_and_offset(self, module: Any) -> None:
        payload = simple_batch(5)[61:]
        assert module.find_record(payload, 5, 100, NOW, NOW + 2, 0) == (102, NOW + 2)
        assert module.find_record(payload, 5, 100, NOW, NOW + 2, 104) == (104, NOW + 4)
        assert module.find_record(payload, 5, 100, NOW, NOW + 5, 0) is None

    @both
    def test_a_record_in_malformed_bytes(self, module: Any) -> None:
        payload = simple_batch(5)[61:]
        with pytest.raises(ValueError, match="malformed"):
            module.find_record(payload[:-1], 5, 100, NOW, NOW + 9, 0)


@needs_compiled
class TestEquality:
    """Whatever is put in, both kernels give the same answer."""

    @settings(max_examples=300, deadline=None)
    @given(damaged(batches()))
    def test_check_batch(self, data: bytes) -> None:
        assert compiled is not None
        assert compiled.check_batch(data) == _pure.check_batch(data)

    @settings(max_examples=300, deadline=None)
    @given(
        st.binary(max_size=80) | record_lists.map(lambda r: bytes(_pure.encode_records(r, 0)[0])),
        st.integers(-1, 25),
        st.integers(-(1 << 63), (1 << 63) - 1),
    )
    def test_record_walks(self, payload: bytes, count: int, base: int) -> None:
        assert compiled is not None
        assert compiled.check_records(payload, count, base) == _pure.check_records(
            payload, count, base
        )
        part = (payload, count, base, base, None)
        assert outcome(compiled.records_to_columns, [part]) == outcome(
            _pure.records_to_columns, [part]
        )
        rows = ([(part, 0, None)], "topic", 3, base)
        assert outcome(compiled.records_to_tuples, *rows) == outcome(_pure.records_to_tuples, *rows)
        search = (payload, count, base, base, base, base)
        assert outcome(compiled.find_record, *search) == outcome(_pure.find_record, *search)

    @settings(max_examples=200, deadline=None)
    @given(st.lists(damaged(batches()), max_size=4), st.integers(-1, 3), st.data())
    def test_log_walks(self, pieces: list[bytes], epoch: int, data: st.DataObject) -> None:
        assert compiled is not None
        log = b"".join(pieces)
        end = data.draw(st.integers(0, len(log)))
        position = data.draw(st.integers(0, end))
        changes = dict(
            index_interval_bytes=data.draw(st.integers(0, 300)),
            leader_epoch=epoch,
            verify_crc=data.draw(st.integers(0, 1)),
            batches_max=data.draw(st.integers(0, 5)),
            bytes_max=data.draw(st.integers(0, 2000)),
            segment_base_offset=data.draw(st.integers(0, 2)),
            file_position=data.draw(st.integers(0, 1 << 33)),
        )
        assert scan(compiled, log, **changes) == scan(_pure, log, **changes)
        for name, arguments in (
            ("list_batches", (3,)),
            ("find_offset", (data.draw(st.integers(-1, 20)),)),
            ("find_timestamp", (NOW, 0)),
        ):
            assert getattr(compiled, name)(log, position, end, *arguments) == getattr(_pure, name)(
                log, position, end, *arguments
            )

    @settings(max_examples=200, deadline=None)
    @given(st.lists(record_lists, max_size=3), st.data())
    def test_encoding(self, lists: list[Any], data: st.DataObject) -> None:
        assert compiled is not None
        parts = []
        for index, records in enumerate(lists):
            encoded = _pure.encode_records(records, 61)
            assert compiled.encode_records(records, 61) == encoded
            parts.append((encoded[0][61:], len(records), 10 * index, encoded[1], None))
        columns = compiled.records_to_columns(parts)
        assert columns == _pure.records_to_columns(parts)
        stop = data.draw(st.integers(0, columns.records_count))
        start = data.draw(st.integers(0, stop))
        base = data.draw(st.none() | st.integers(-5, 5))
        arguments = (columns, start, stop, base, 3)
        assert compiled.encode_columns(*arguments) == _pure.encode_columns(*arguments)

    @settings(max_examples=200, deadline=None)
    @given(names, st.lists(commit_rows, max_size=5), st.integers(0, 9000), st.integers(-1, 70))
    def test_encoding_offset_commits(
        self, group_id: str, rows: list[Any], first_delta: int, reserve_bytes: int
    ) -> None:
        assert compiled is not None
        arguments = (group_id, rows, first_delta, reserve_bytes)
        assert outcome(compiled.encode_offset_commits, *arguments) == outcome(
            _pure.encode_offset_commits, *arguments
        )

    @settings(max_examples=200, deadline=None)
    @given(st.binary(min_size=55, max_size=200), st.lists(some_numbers, min_size=10, max_size=10))
    def test_sealing(self, records: bytes, numbers: list[int]) -> None:
        assert compiled is not None
        sealed = []
        for module in (compiled, _pure):
            batch = bytearray(records)
            answer = outcome(module.seal_batch, batch, *numbers)
            sealed.append(answer if answer is ValueError else (answer, batch))
        assert sealed[0] == sealed[1]

    @settings(max_examples=300, deadline=None)
    @given(st.lists(record_lists, max_size=3), st.integers(-1, 40), st.data())
    def test_rows_of_whole_and_of_damaged_records(
        self, lists: list[Any], first_offset: int, data: st.DataObject
    ) -> None:
        assert compiled is not None
        parts = []
        for index, records in enumerate(lists):
            payload, base_timestamp, _ = _pure.encode_records(records, 0)
            if payload and data.draw(st.booleans()):
                payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(
                    st.integers(0, 255)
                )
            append_time = data.draw(st.none() | st.just(NOW))
            part = (payload, len(records), 10 * index, base_timestamp, append_time)
            parts.append((part, data.draw(st.integers(-1, 1)), data.draw(st.none() | st.just(4))))
        arguments = (parts, "topic", 3, first_offset)
        expected = outcome(_pure.records_to_tuples, *arguments)
        answer = outcome(compiled.records_to_tuples, *arguments)
        assert answer == expected
        assert str(answer) == str(expected)

    @settings(max_examples=200, deadline=None)
    @given(record_lists, st.data())
    def test_encoding_of_columns_that_do_not_fit(self, records: Any, data: st.DataObject) -> None:
        assert compiled is not None
        payload = _pure.encode_records(records, 0)[0]
        columns: list[Any] = list(_pure.records_to_columns([(payload, len(records), 0, 0, None)]))
        victim = data.draw(st.integers(1, 14))
        column = columns[victim]
        assert isinstance(column, bytearray)
        if column:
            column[data.draw(st.integers(0, len(column) - 1))] = data.draw(st.integers(0, 255))
        if data.draw(st.booleans()):
            del column[len(column) // 8 * 4 :]
        arguments = (kernel.RecordColumns(*columns), 0, len(records), 0, 0)
        assert outcome(compiled.encode_columns, *arguments) == outcome(
            _pure.encode_columns, *arguments
        )


class TestColumns:
    @both
    def test_rows_come_out_as_they_went_in(self, module: Any) -> None:
        records = [
            (b"key", b"value", (("a", b"1"), ("b", None)), 5),
            (None, b"", (), 6),
            (b"", None, (("c", b""),), 4),
        ]
        encoded, base_timestamp, max_timestamp = module.encode_records(records, 0)
        assert (base_timestamp, max_timestamp) == (5, 6)
        columns = module.records_to_columns([(encoded, 3, 100, 5, None)])
        assert columns.records_count == 3
        assert memoryview(columns.offsets).cast("q").tolist() == [100, 101, 102]
        assert memoryview(columns.timestamps).cast("q").tolist() == [5, 6, 4]
        assert memoryview(columns.key_offsets).cast("i").tolist() == [0, 3, 3, 3]
        assert (columns.key_validity, columns.key_data) == (b"\x05", b"key")
        assert memoryview(columns.value_offsets).cast("i").tolist() == [0, 5, 5, 5]
        assert (columns.value_validity, columns.value_data) == (b"\x03", b"value")
        assert memoryview(columns.header_offsets).cast("i").tolist() == [0, 2, 2, 3]
        assert memoryview(columns.header_key_offsets).cast("i").tolist() == [0, 1, 2, 3]
        assert columns.header_key_data == b"abc"
        assert memoryview(columns.header_value_offsets).cast("i").tolist() == [0, 1, 1, 1]
        assert (columns.header_value_validity, columns.header_value_data) == (b"\x05", b"1")

    @both
    def test_append_time_replaces_the_records_own(self, module: Any) -> None:
        encoded, base_timestamp, _ = module.encode_records(records_of(3), 0)
        columns = module.records_to_columns([(encoded, 3, 0, base_timestamp, 99)])
        assert memoryview(columns.timestamps).cast("q").tolist() == [99, 99, 99]

    @both
    def test_spare_buffers_do_not_change_the_answer(self, module: Any) -> None:
        large, base_timestamp, _ = module.encode_records(records_of(40), 0)
        small, small_base, _ = module.encode_records(records_of(3), 0)
        parts = [(small, 3, 7, small_base, None)]
        spare = module.records_to_columns([(large, 40, 0, base_timestamp, None)])
        assert module.records_to_columns(parts, spare) == module.records_to_columns(parts)

    @both
    def test_a_spare_buffer_that_is_in_use_stays_as_it_is(self, module: Any) -> None:
        encoded, base_timestamp, _ = module.encode_records(records_of(9), 0)
        spare = module.records_to_columns([(encoded, 9, 0, base_timestamp, None)])
        in_use = [(column, bytes(column)) for column in spare[1:]]
        seen = memoryview(spare.value_data)
        again = module.records_to_columns([(encoded, 9, 100, base_timestamp, None)], spare)
        assert all(column == content for column, content in in_use)
        assert again.value_data == seen
        assert all(new is not old for new, old in zip(again[1:], spare[1:], strict=True))

    @needs_compiled
    def test_a_spare_buffer_that_is_free_is_used_again(self) -> None:
        assert compiled is not None
        encoded, base_timestamp, _ = compiled.encode_records(records_of(9), 0)
        parts = [(encoded, 9, 0, base_timestamp, None)]
        spare = compiled.records_to_columns(parts)
        again = compiled.records_to_columns(parts, spare)
        assert again.value_data is spare.value_data

    @both
    def test_a_spare_is_an_earlier_answer(self, module: Any) -> None:
        with pytest.raises(ValueError, match="earlier answer"):
            module.records_to_columns([], (1, 2))

    @both
    def test_no_parts_give_no_rows(self, module: Any) -> None:
        columns = module.records_to_columns([])
        assert columns.records_count == 0
        assert columns.key_offsets == bytes(4)

    @both
    def test_a_count_beyond_the_bytes_takes_no_memory(self, module: Any) -> None:
        with pytest.raises(ValueError, match="malformed"):
            module.records_to_columns([(bytes(100), (1 << 31) - 1, 0, 0, None)])

    @both
    def test_rows_keep_their_offsets_relative_to_a_base(self, module: Any) -> None:
        encoded, base_timestamp, _ = module.encode_records(records_of(6), 0)
        columns = module.records_to_columns([(encoded, 6, 100, base_timestamp, None)])
        rows, first_timestamp, _ = module.encode_columns(columns, 3, 6, 100, 0)
        again = module.records_to_columns([(rows, 3, 100, first_timestamp, None)])
        assert memoryview(again.offsets).cast("q").tolist() == [103, 104, 105]

    @both
    @pytest.mark.parametrize("bad", [(1,), (None, None, (), 0, 0), (None, None, [("n",)], 0)])
    def test_tuples_of_a_wrong_size_are_refused(self, module: Any, bad: Any) -> None:
        with pytest.raises(ValueError, match=r"tuple|unpack"):
            module.encode_records([bad], 0)


class TestRows:
    @both
    def test_a_row_has_all_that_a_consumer_wants(self, module: Any) -> None:
        records = [
            (b"key", b"value", (("a", b"1"), ("b", None)), 5),
            (None, b"", (), 6),
            (b"", None, ((b"\xff", b""),), 4),
        ]
        encoded, base_timestamp, _ = module.encode_records(records, 0)
        part = (encoded, 3, 100, base_timestamp, None)
        rows = module.records_to_tuples([(part, 0, 7)], "topic", 2, 0)
        assert all(type(row) is kernel.ConsumerRecord for row in rows)
        assert rows == [
            ("topic", 2, 100, 5, 0, b"key", b"value", (("a", b"1"), ("b", None)), 7),
            ("topic", 2, 101, 6, 0, None, b"", (), 7),
            ("topic", 2, 102, 4, 0, b"", None, (("\N{REPLACEMENT CHARACTER}", b""),), 7),
        ]
        assert rows[0].headers[1] == ("b", None)
        assert rows[1]._replace(value=b"new").value == b"new"

    @both
    def test_rows_below_the_first_offset_are_left_out(self, module: Any) -> None:
        encoded, base_timestamp, _ = module.encode_records(records_of(6), 0)
        parts = [
            ((encoded, 6, 10, base_timestamp, None), 0, 1),
            ((encoded, 6, 20, base_timestamp, 99), 1, 2),
        ]
        rows = module.records_to_tuples(parts, "topic", 0, 14)
        assert [row.offset for row in rows] == [14, 15, 20, 21, 22, 23, 24, 25]
        assert {(row.timestamp_type, row.leader_epoch) for row in rows} == {(0, 1), (1, 2)}
        assert {row.timestamp for row in rows[2:]} == {99}

    @both
    def test_a_malformed_part_spoils_all(self, module: Any) -> None:
        encoded, base_timestamp, _ = module.encode_records(records_of(2), 0)
        good = ((encoded, 2, 0, base_timestamp, None), 0, None)
        for bad in ((encoded, 3, 2, base_timestamp, None), (bytes(100), 1 << 40, 2, 0, None)):
            with pytest.raises(ValueError, match="malformed"):
                module.records_to_tuples([good, (bad, 0, None)], "topic", 0, 0)

    @both
    @pytest.mark.parametrize("count", [1, 8, 9, 300])
    @pytest.mark.parametrize("kind", [tuple, list])
    def test_any_number_of_headers_comes_back(self, module: Any, count: int, kind: Any) -> None:
        headers = kind((f"name-{n}", b"%d" % n if n % 3 else None) for n in range(count))
        encoded, base_timestamp, _ = module.encode_records([(None, None, headers, NOW)] * 2, 0)
        part = (encoded, 2, 0, base_timestamp, None)
        one, two = module.records_to_tuples([(part, 0, 0)], "topic", 0, 0)
        assert one.headers == two.headers == tuple(headers)

    @both
    def test_no_parts_give_no_rows(self, module: Any) -> None:
        assert module.records_to_tuples([], "topic", 0, 0) == []

    @needs_compiled
    def test_rows_share_what_is_equal(self) -> None:
        assert compiled is not None
        records = [(None, b"v", (("name", b"1"),), NOW), (None, b"v", (("name", b"2"),), NOW)]
        encoded, base_timestamp, _ = compiled.encode_records(records, 0)
        part = (encoded, 2, 0, base_timestamp, None)
        one, two = compiled.records_to_tuples([(part, 0, 0)], "topic", 0, 0)
        assert one.timestamp is two.timestamp
        assert one.headers[0][0] is two.headers[0][0]

    @needs_compiled
    def test_rows_do_not_occupy_the_garbage_collector(self) -> None:
        assert compiled is not None
        records = [(b"k", b"v", (("name", b"1"),), NOW)]
        encoded, base_timestamp, _ = compiled.encode_records(records, 0)
        part = (encoded, 1, 0, base_timestamp, None)
        (row,) = compiled.records_to_tuples([(part, 0, 0)], "topic", 0, 0)
        assert not gc.is_tracked(row)
        assert not gc.is_tracked(row.headers)

    @needs_compiled
    def test_rows_let_go_of_what_they_shared(self) -> None:
        assert compiled is not None
        records = [(b"k", b"v", (("name", b"1"),), NOW + n) for n in range(9)]
        encoded, base_timestamp, _ = compiled.encode_records(records, 0)
        topic = "".join(["top", "ic"])
        before = sys.getrefcount(topic), sys.getrefcount(kernel.ConsumerRecord)
        part = (encoded, 9, 0, base_timestamp, None)
        for parts in ([(part, 0, 0)], [(part, 0, 0), ((encoded, 8, 0, 0, None), 0, 0)]):
            rows = outcome(compiled.records_to_tuples, parts, topic, 0, 3)
            assert rows is ValueError or len(rows) == 6
            del rows
        assert (sys.getrefcount(topic), sys.getrefcount(kernel.ConsumerRecord)) == before

    @both
    @pytest.mark.parametrize("bad", [(1,), ((b"", 0, 0, 0), 0, 0), ((b"", 0, 0, 0, None), 0)])
    def test_parts_of_a_wrong_size_are_refused(self, module: Any, bad: Any) -> None:
        with pytest.raises(ValueError, match=r"tuple|unpack"):
            module.records_to_tuples([bad], "topic", 0, 0)


@needs_compiled
def test_answers_of_both_have_the_same_names() -> None:
    assert compiled is not None
    named = [_results.__dict__[name] for name in dir(compiled) if name[0].isupper()]
    assert len(named) == 9
    for result in named:
        assert getattr(compiled, result.__name__).__match_args__ == result._fields
