"""The part of the kernel that compacts: right by example, and equal to its twin."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import raw_batch
from tests.support.batches import NOW, batches, damaged, record_lists, with_fields
from tests.support.message_sets import message_set_of
from tidelog.record import _pure_cleaning, kernel
from tidelog.record.batch import Codec
from tidelog.record.builder import batch_of
from tidelog.record.control import ControlType, EndTransactionMarker, marker_batch
from tidelog.record.kernel import Filtered, Mapped
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
        pytest.param(_pure_cleaning, id="pure"),
    ],
)
needs_compiled = pytest.mark.skipif(compiled is None, reason="the compiled kernel is not built")

HASH_KEY = bytes(range(16))
HORIZON = NOW + 86_400_000
Pair = tuple[bytes | None, bytes | None]


def pairs(base_offset: int, *records: Pair, **fields: Any) -> bytearray:
    """A batch of (key, value), one millisecond apart."""
    rows = [(key, value, (), NOW + index) for index, (key, value) in enumerate(records)]
    return batch_of(rows, base_offset=base_offset, **fields)


def map_into(
    module: Any,
    slots: bytearray,
    data: bytes | bytearray,
    *,
    verdicts: Sequence[int] = (),
    entries_max: int = 1000,
    start_offset: int = 0,
    verify_crc: int = 1,
) -> Mapped:
    walk = kernel.BatchWalk(data, bytes(verdicts), 0, len(data), 0, verify_crc)
    keys = kernel.KeyOffsets(slots, HASH_KEY, 0, entries_max, latest_offset=-1)
    answer: Mapped = module.map_batches(walk, keys, start_offset)
    return answer


def filter_with(
    module: Any,
    slots: bytearray,
    data: bytes | bytearray,
    *,
    verdicts: Sequence[int] = (),
    kept_offsets: Sequence[int] = (),
    room: int = 1 << 16,
    latest_offset: int = 1 << 40,
    now_ms: int = NOW,
    horizon_ms: int = HORIZON,
    keep_old_tombstones: int = 1,
    verify_crc: int = 1,
) -> tuple[Filtered, bytes]:
    output = bytearray(room)
    answer: Filtered = module.filter_batches(
        kernel.BatchWalk(data, bytes(verdicts), 0, len(data), 0, verify_crc),
        kernel.KeyOffsets(slots, HASH_KEY, 0, 0, latest_offset),
        kernel.Retention(array("q", kept_offsets), now_ms, horizon_ms, keep_old_tombstones),
        output,
    )
    return answer, bytes(output[: answer.bytes_written])


def empty_map(slots: int = 64) -> bytearray:
    return bytearray(24 * slots)


def compacted(module: Any, data: bytes | bytearray, **options: Any) -> tuple[Filtered, bytes]:
    """Mapped and filtered in one go."""
    slots = empty_map()
    map_into(module, slots, data, verdicts=options.get("verdicts", ()))
    return filter_with(module, slots, data, **options)


def kept(output: bytes) -> list[tuple[int, bytes | None, bytes | None]]:
    return [
        (record.offset, record.key, record.value)
        for batch in raw_batch.read_batches(output)
        for record in batch.records()
    ]


class TestSipHash:
    def test_agrees_with_the_vectors_of_its_authors(self) -> None:
        key = bytes(range(16))
        expected = ["a3817f04ba25a8e66df67214c7550293", "da87c1d86b99af44347659119b22fc45"]
        for length, digest in enumerate(expected):
            low, high = _pure_cleaning.siphash128(key, bytes(range(length)))
            assert struct.pack("<QQ", low, high).hex() == digest


class TestMapBatches:
    @both
    def test_the_last_offset_of_each_key_is_kept(self, module: Any) -> None:
        data = pairs(0, (b"a", b"1"), (b"b", b"2")) + pairs(2, (b"a", b"3"))
        answer = map_into(module, empty_map(), data)
        assert answer == Mapped(len(data), kernel.AT_END, 3, 2, 2, 0, 3)

    @both
    def test_records_below_the_start_and_without_key_are_left_out(self, module: Any) -> None:
        data = pairs(0, (b"a", b"1"), (b"b", b"2"), (None, b"3"), (b"c", b"4"))
        assert map_into(module, empty_map(), data, start_offset=1).entries == 2

    @both
    def test_a_full_map_stops_at_the_next_record(self, module: Any) -> None:
        data = pairs(0, (b"a", b"1")) + pairs(1, (b"b", b"1"), (b"c", b"1"))
        answer = map_into(module, empty_map(), data, entries_max=2)
        assert answer.why == kernel.MAP_FULL
        assert answer.latest_offset == 1
        assert answer.position == len(pairs(0, (b"a", b"1")))

    @both
    def test_batches_of_aborted_transactions_are_passed_over(self, module: Any) -> None:
        data = pairs(0, (b"a", b"1"), producer_id=1, is_transactional=True)
        answer = map_into(module, empty_map(), data, verdicts=[kernel.DELETE_BATCH])
        assert (answer.entries, answer.latest_offset, answer.verdicts_used) == (0, 0, 1)

    @both
    def test_a_transactional_batch_needs_a_verdict(self, module: Any) -> None:
        data = pairs(0, (b"a", b"1"), producer_id=1, is_transactional=True)
        with pytest.raises(ValueError, match="verdict"):
            map_into(module, empty_map(), data)

    @both
    @pytest.mark.parametrize("magic", [0, 1])
    def test_old_messages_are_mapped_too(self, module: Any, magic: int) -> None:
        records = [LegacyRecord(offset, NOW, b"k%d" % offset, b"v") for offset in range(3)]
        assert map_into(module, empty_map(), message_set_of(records, magic)).entries == 3

    @both
    @pytest.mark.parametrize("magic", [1, 2])
    def test_compressed_batches_are_left_to_the_caller(self, module: Any, magic: int) -> None:
        if magic == 2:
            data: bytes | bytearray = pairs(0, (b"a", b"1"), codec=Codec.GZIP)
        else:
            data = message_set_of([LegacyRecord(0, NOW, b"a", b"1")], magic, codec=Codec.GZIP)
        assert map_into(module, empty_map(), data)[:2] == (0, kernel.NEEDS_INFLATION)

    @both
    def test_damage_and_disorder_stop_it(self, module: Any) -> None:
        good = pairs(5, (b"a", b"1"))
        flipped = bytearray(good)
        flipped[-1] ^= 1
        for bad, why in (
            (flipped, kernel.BAD_CRC),
            (pairs(4, (b"a", b"1")), kernel.BAD_OFFSET),
            (with_fields(good, base_offset=6, records_count=2), kernel.BAD_RECORDS),
            (good[:40], kernel.INCOMPLETE),
        ):
            answer = map_into(module, empty_map(), good + bad)
            if why == kernel.BAD_CRC:
                flipped[7] = 6
                answer = map_into(module, empty_map(), good + flipped)
            assert (answer.why, answer.position) == (why, len(good))

    @both
    def test_a_buffer_that_is_no_map_is_refused(self, module: Any) -> None:
        with pytest.raises(ValueError, match="offset map"):
            map_into(module, bytearray(25), pairs(0, (b"a", b"1")))


class TestFilterBatches:
    @both
    def test_only_the_last_record_of_a_key_stays(self, module: Any) -> None:
        data = pairs(0, (b"a", b"1"), (b"b", b"2")) + pairs(2, (b"a", b"3"))
        answer, output = compacted(module, data)
        assert kept(output) == [(1, b"b", b"2"), (2, b"a", b"3")]
        assert answer[1:] == (0, 3, len(output), 0, 3, 2, 1, 0)

    @both
    def test_a_batch_that_stays_whole_is_copied_byte_for_byte(self, module: Any) -> None:
        data = pairs(0, (b"a", b"1"), (b"b", b"2"), producer_id=4, base_sequence=7, leader_epoch=3)
        answer, output = compacted(module, data)
        assert output == data
        assert answer.batches_rewritten == 0

    @both
    def test_a_rewritten_batch_keeps_offsets_sequences_and_producer(self, module: Any) -> None:
        data = pairs(
            10,
            (b"a", b"1"),
            (b"b", b"2"),
            (b"a", b"3"),
            (b"b", None),
            producer_id=4,
            producer_epoch=2,
            base_sequence=7,
            leader_epoch=3,
        ) + pairs(14, (b"b", b"4"))
        _, output = compacted(module, data)
        first = raw_batch.read_batches(output)[0]
        assert (first.base_offset, first.last_offset, first.records_count) == (10, 13, 1)
        assert (first.producer_id, first.producer_epoch, first.base_sequence) == (4, 2, 7)
        assert first.leader_epoch == 3
        assert first.base_timestamp == first.max_timestamp == NOW + 2
        assert [(r.offset, r.timestamp) for r in first.records()] == [(12, NOW + 2)]

    @both
    def test_headers_stay_with_their_record(self, module: Any) -> None:
        rows = [(b"a", b"1", (), NOW), (b"b", b"2", [("h", b"x"), ("n", None)], NOW + 5)]
        data = batch_of(rows, base_offset=0) + pairs(2, (b"a", b"3"))
        _, output = compacted(module, data)
        (record,) = raw_batch.read_batches(output)[0].records()
        assert record.headers == [("h", b"x"), ("n", None)]

    @both
    def test_a_tombstone_gets_a_delete_horizon_in_place_of_the_base_timestamp(
        self, module: Any
    ) -> None:
        data = pairs(0, (b"a", b"1"), (b"b", None))
        answer, output = compacted(module, data)
        (batch,) = raw_batch.read_batches(output)
        assert batch.attributes == 0x40
        assert (batch.base_timestamp, batch.max_timestamp) == (HORIZON, NOW + 1)
        assert [r.timestamp for r in batch.records()] == [NOW, NOW + 1]
        assert (answer.records_kept, answer.batches_rewritten) == (2, 1)

    @both
    def test_a_batch_with_a_horizon_is_left_alone_until_then(self, module: Any) -> None:
        _, once = compacted(module, pairs(0, (b"a", b"1"), (b"b", None)))
        answer, again = compacted(module, once, now_ms=HORIZON - 1, horizon_ms=HORIZON + 99)
        assert again == once
        assert answer.batches_rewritten == 0

    @both
    def test_tombstones_go_at_their_horizon_and_the_horizon_stays(self, module: Any) -> None:
        _, once = compacted(module, pairs(0, (b"a", b"1"), (b"b", None)))
        _, later = compacted(module, once, now_ms=HORIZON)
        (batch,) = raw_batch.read_batches(later)
        assert kept(later) == [(0, b"a", b"1")]
        assert (batch.attributes, batch.base_timestamp) == (0x40, HORIZON)

    @both
    def test_append_time_of_a_batch_is_that_of_the_records_left(self, module: Any) -> None:
        data = with_fields(
            pairs(0, (b"a", b"1"), (b"b", b"2")), attributes=8, max_timestamp=NOW + 50
        )
        _, output = compacted(module, data + pairs(2, (b"a", b"3")))
        batch = raw_batch.read_batches(output)[0]
        assert (batch.attributes, batch.base_timestamp) == (8, NOW + 50)
        assert batch.max_timestamp == NOW + 50

    @both
    def test_an_emptied_batch_goes_unless_its_last_offset_is_to_be_kept(self, module: Any) -> None:
        data = pairs(0, (b"a", b"1"), producer_id=4, producer_epoch=1, base_sequence=9) + pairs(
            1, (b"a", b"2")
        )
        _, output = compacted(module, data)
        assert [batch.base_offset for batch in raw_batch.read_batches(output)] == [1]
        _, output = compacted(module, data, kept_offsets=[-3, 0, 7])
        first = raw_batch.read_batches(output)[0]
        assert (first.size_bytes, first.records_count, first.last_offset) == (61, 0, 0)
        assert (first.producer_id, first.producer_epoch, first.base_sequence) == (4, 1, 9)
        assert (first.base_timestamp, first.max_timestamp) == (-1, NOW)

    @both
    def test_records_above_the_map_stay(self, module: Any) -> None:
        data = pairs(0, (b"a", b"1"), (None, b"2"), (b"a", b"3"))
        slots = empty_map()
        map_into(module, slots, data)
        answer, output = filter_with(module, slots, data, latest_offset=0)
        assert [offset for offset, _, _ in kept(output)] == [1, 2]
        assert answer.records_without_key == 0

    @both
    def test_records_without_key_go_and_are_counted(self, module: Any) -> None:
        answer, output = compacted(module, pairs(0, (None, b"1"), (b"a", b"2")))
        assert kept(output) == [(1, b"a", b"2")]
        assert answer.records_without_key == 1

    @both
    def test_verdicts_decide_on_transactional_batches(self, module: Any) -> None:
        data = b"".join(
            pairs(offset, (b"k%d" % offset, b"v"), producer_id=1, is_transactional=True)
            for offset in range(3)
        )
        marker = EndTransactionMarker(ControlType.COMMIT, 5)
        for offset in (3, 4):
            data += marker_batch(
                marker, producer_id=1, producer_epoch=0, timestamp=NOW, base_offset=offset
            )
        verdicts = [
            kernel.FILTER_RECORDS,
            kernel.DELETE_BATCH,
            kernel.EMPTY_BATCH,
            kernel.KEEP_BATCH,
            kernel.SET_HORIZON,
        ]
        answer, output = compacted(module, data, verdicts=verdicts)
        found = raw_batch.read_batches(output)
        assert [(b.base_offset, b.records_count, b.attributes) for b in found] == [
            (0, 1, 0x10),
            (2, 0, 0x10),
            (3, 1, 0x30),
            (4, 1, 0x70),
        ]
        assert found[3].base_timestamp == HORIZON
        assert [r.timestamp for r in found[3].records()] == [NOW]
        assert answer.verdicts_used == 5
        assert [row.control_type for row in module.list_transactional(output, 0, len(output))] == [
            -1,
            -1,
            1,
            1,
        ]

    @both
    def test_it_stops_before_a_batch_that_has_no_room(self, module: Any) -> None:
        one = pairs(0, (b"a", b"1"))
        answer, output = compacted(module, one + pairs(1, (b"b", b"1")), room=len(one))
        assert (answer.why, answer.position) == (kernel.OUTPUT_FULL, len(one))
        assert output == one

    @both
    @pytest.mark.parametrize("magic", [0, 1])
    def test_old_messages_stay_or_go_one_by_one(self, module: Any, magic: int) -> None:
        records = [
            LegacyRecord(0, NOW, b"a", b"1"),
            LegacyRecord(1, NOW, b"b", None),
            LegacyRecord(2, NOW, b"a", b"2"),
        ]
        data = message_set_of(records, magic)
        _, output = compacted(module, data)
        assert [row[0] for row in raw_batch.read_messages(output)] == [1, 2]
        _, output = compacted(module, data, keep_old_tombstones=0)
        assert [row[0] for row in raw_batch.read_messages(output)] == [2]


key_choices = st.none() | st.sampled_from(
    [b"", b"a", b"b", b"a longer key of some kind", b"c" * 40]
)
pair_lists = st.lists(st.tuples(key_choices, st.none() | st.binary(max_size=20)), max_size=8)


@st.composite
def logs(draw: st.DrawFn) -> bytes:
    """Batches of any sort, one after another, as a log or as a mess."""
    data = bytearray()
    offset = 0
    for _ in range(draw(st.integers(1, 5))):
        kind = draw(st.sampled_from(["plain", "any", "old", "damaged"]))
        if kind == "old":
            found = [
                LegacyRecord(offset + index, NOW, key, value)
                for index, (key, value) in enumerate(draw(pair_lists))
            ]
            data += message_set_of(found, draw(st.integers(0, 1)))
            offset += len(found)
            continue
        if kind == "plain":
            rows = [
                (key, value, (), NOW + draw(st.integers(-3, 3))) for key, value in draw(pair_lists)
            ]
            batch = batch_of(
                rows,
                base_offset=offset,
                is_transactional=draw(st.booleans()),
                is_control=draw(st.booleans()),
                producer_id=draw(st.integers(-1, 2)),
            )
            flags = draw(st.sampled_from([0, 8, 0x40, 0x48]))
            batch = with_fields(batch, attributes=int.from_bytes(batch[21:23], "big") | flags)
            offset += max(len(rows), 1)
        else:
            whole = batches(base_offset=offset)
            batch = bytearray(draw(damaged(whole) if kind == "damaged" else whole))
            offset += 25
        data += batch
    return bytes(data)


@needs_compiled
class TestTwins:
    @given(
        logs(),
        st.lists(st.integers(0, 4), max_size=8),
        st.integers(0, 8),
        st.integers(0, 30),
        st.integers(0, 1),
    )
    def test_mapping_gives_the_same_answer_and_the_same_bytes(
        self, data: bytes, verdicts: list[int], entries_max: int, start: int, verify_crc: int
    ) -> None:
        answers = []
        for module in (compiled, _pure_cleaning):
            slots = empty_map(9)
            try:
                answer: Any = map_into(
                    module,
                    slots,
                    data,
                    verdicts=verdicts,
                    entries_max=entries_max,
                    start_offset=start,
                    verify_crc=verify_crc,
                )
            except ValueError:
                answer = ValueError
            answers.append((answer, bytes(slots)))
        assert answers[0] == answers[1]

    @given(
        logs(),
        st.lists(st.integers(0, 4), max_size=8),
        st.lists(st.integers(0, 60), max_size=4).map(sorted),
        st.sampled_from([0, 61, 300, 1 << 16]),
        st.integers(-1, 60),
        st.sampled_from([NOW - 1, NOW + 1]),
        st.sampled_from([-1, HORIZON]),
        st.integers(0, 1),
        st.integers(0, 1),
    )
    def test_filtering_gives_the_same_answer_and_the_same_bytes(
        self,
        data: bytes,
        verdicts: list[int],
        kept_offsets: list[int],
        room: int,
        latest_offset: int,
        now_ms: int,
        horizon_ms: int,
        keep_old_tombstones: int,
        verify_crc: int,
    ) -> None:
        slots = empty_map(11)
        assert compiled is not None
        map_into(compiled, slots, data, verdicts=[0] * 99, entries_max=10, verify_crc=0)
        answers = []
        for module in (compiled, _pure_cleaning):
            try:
                answer: Any = filter_with(
                    module,
                    slots,
                    data,
                    verdicts=verdicts,
                    kept_offsets=kept_offsets,
                    room=room,
                    latest_offset=latest_offset,
                    now_ms=now_ms,
                    horizon_ms=horizon_ms,
                    keep_old_tombstones=keep_old_tombstones,
                    verify_crc=verify_crc,
                )
            except ValueError:
                answer = ValueError
            answers.append(answer)
        assert answers[0] == answers[1]

    @given(logs())
    def test_listing_transactional_batches_gives_the_same_rows(self, data: bytes) -> None:
        assert compiled is not None
        assert compiled.list_transactional(data, 0, len(data)) == (
            _pure_cleaning.list_transactional(data, 0, len(data))
        )

    @given(record_lists, record_lists)
    def test_compacting_twice_changes_nothing_more(self, first: Any, second: Any) -> None:
        data = batch_of(first, base_offset=0) + batch_of(second, base_offset=len(first) + 1)
        _, once = compacted(compiled, data, now_ms=0)
        _, twice = compacted(compiled, once, now_ms=0)
        assert once == twice
