"""Leader-side validation: what is accepted, what it becomes, and the code of every refusal."""

from __future__ import annotations

import zlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.memory_records import MemoryRecords as KafkaPythonRecords

from tests.support.batches import (
    NOW,
    batches,
    damaged,
    records_of,
    simple_batch,
    timestamps,
    with_fields,
    with_payload_bytes,
)
from tests.support.compiled_modules import fields_of
from tests.support.message_sets import message_set_of
from tests.support.stored_columns import read_columns
from tidelog.config.topic import LogConfig
from tidelog.errors import ErrorCode, KafkaError
from tidelog.log.log_validator import AppendOrigin, ValidBatch, validate_for_append
from tidelog.record import kernel
from tidelog.record.batch import BatchHeader, Codec, TimestampType
from tidelog.record.builder import batch_of
from tidelog.record.compression import compress
from tidelog.record.control import ControlType, EndTransactionMarker, marker_batch
from tidelog.record.errors import InvalidRecords
from tidelog.record.inflation import InflationBudget
from tidelog.record.legacy import LegacyRecord, encode_message

COMPRESSED = [codec for codec in Codec if codec != Codec.NONE]
COORDINATOR = AppendOrigin.COORDINATOR

every_codec = pytest.mark.parametrize("codec", list(Codec))


def validate(records: Any, config: LogConfig | None = None, **changes: Any) -> ValidBatch:
    arguments: dict[str, Any] = {
        "config": config or LogConfig(),
        "next_offset": 1000,
        "now_ms": NOW + 500,
        "leader_epoch": 7,
    } | changes
    return validate_for_append(records, **arguments)


def refusal(records: Any, config: LogConfig | None = None, **changes: Any) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        validate(records, config, **changes)
    return caught.value.code


def assert_sound(valid: ValidBatch) -> None:
    """The batch is what the fields say, and foreign clients read it."""
    data = bytes(valid.data)
    header = BatchHeader(data)
    assert kernel.check_batch(data)[0] == kernel.OK
    assert header.size == valid.size == len(data)
    assert (header.base_offset, header.last_offset) == (valid.base_offset, valid.last_offset)
    assert (header.attributes, header.max_timestamp) == (valid.attributes, valid.max_timestamp)
    assert (header.producer_id, header.producer_epoch) == (valid.producer_id, valid.producer_epoch)
    assert header.base_sequence == valid.base_sequence
    assert header.records_count == valid.records_count
    assert header.last_sequence == valid.last_sequence
    assert header.partition_leader_epoch == 7
    assert header.codec_id == valid.codec
    assert (valid.magic, header.is_control) == (2, valid.is_control)
    foreign = KafkaPythonRecords(data).next_batch()
    assert foreign.validate_crc()
    assert [record.offset for record in foreign] == list(
        range(valid.base_offset, valid.last_offset + 1)
    )


class TestCommonBatch:
    def test_it_is_stamped_in_place_and_not_copied(self) -> None:
        buffer = simple_batch(3)
        valid = validate(memoryview(buffer))
        assert_sound(valid)
        assert (valid.base_offset, valid.last_offset, valid.records_count) == (1000, 1002, 3)
        assert (valid.max_timestamp, valid.offset_of_max_timestamp) == (NOW + 2, 1002)
        assert valid.log_append_time_ms == -1
        buffer[-1] ^= 1
        assert bytes(valid.data) == bytes(buffer)

    def test_read_only_records_are_copied_first(self) -> None:
        records = bytes(simple_batch(3))
        assert_sound(validate(memoryview(records)))
        assert records == bytes(simple_batch(3))

    def test_producer_fields_come_along(self) -> None:
        valid = validate(
            simple_batch(
                3,
                producer_id=5,
                producer_epoch=2,
                base_sequence=(1 << 31) - 2,
                is_transactional=True,
            )
        )
        assert_sound(valid)
        assert (valid.producer_id, valid.producer_epoch) == (5, 2)
        assert (valid.base_sequence, valid.last_sequence) == ((1 << 31) - 2, 0)
        assert valid.is_transactional

    def test_a_slow_way_gives_the_same(self) -> None:
        quick = validate(simple_batch(3))
        slow = validate(simple_batch(3) + b"tail")
        assert bytes(quick.data) == bytes(slow.data)
        assert fields_of(quick) | {"data": None} == fields_of(slow) | {"data": None}
        assert "last_offset" in fields_of(quick)


class TestWholeBatches:
    @pytest.mark.parametrize("cut", [0, 5, 12, 60, 100])
    def test_no_whole_batch(self, cut: int) -> None:
        assert refusal(simple_batch(3)[:cut]) == ErrorCode.INVALID_RECORD

    def test_two_batches(self) -> None:
        assert refusal(simple_batch(1) + simple_batch(1)) == ErrorCode.INVALID_RECORD

    @pytest.mark.parametrize("tail", [b"x", bytes(11), bytes(simple_batch(1))[:-1]])
    def test_what_is_too_short_to_be_a_second_batch_is_cut_off(self, tail: bytes) -> None:
        valid = validate(simple_batch(3) + tail)
        assert_sound(valid)
        assert valid.size == len(simple_batch(3))

    def test_garbage_after_the_batch(self) -> None:
        assert refusal(simple_batch(3) + bytes(20)) == ErrorCode.CORRUPT_MESSAGE
        tail = with_fields(simple_batch(1), magic=9)
        assert refusal(simple_batch(3) + tail) == ErrorCode.CORRUPT_MESSAGE

    @pytest.mark.parametrize("field", [{"batch_length": 13}, {"batch_length": 20}, {"magic": 3}])
    def test_impossible_size_or_magic(self, field: dict[str, int]) -> None:
        assert refusal(with_fields(simple_batch(1), **field)) == ErrorCode.CORRUPT_MESSAGE

    def test_a_failed_checksum(self) -> None:
        assert refusal(with_fields(simple_batch(1), crc=1)) == ErrorCode.CORRUPT_MESSAGE

    def test_a_base_offset_is_only_for_coordinators(self) -> None:
        assert refusal(simple_batch(1, base_offset=1)) == ErrorCode.INVALID_RECORD
        assert_sound(validate(simple_batch(1, base_offset=1), origin=COORDINATOR))

    def test_size_is_judged_before_the_checksum(self) -> None:
        config = LogConfig(max_message_bytes=100)
        broken = with_fields(simple_batch(9), crc=1)
        assert refusal(broken, config) == ErrorCode.MESSAGE_TOO_LARGE

    def test_max_message_bytes_is_inclusive(self) -> None:
        size = len(simple_batch(3))
        assert_sound(validate(simple_batch(3), LogConfig(max_message_bytes=size)))
        too_small = LogConfig(max_message_bytes=size - 1)
        assert refusal(simple_batch(3), too_small) == ErrorCode.MESSAGE_TOO_LARGE

    def test_a_batch_above_segment_bytes(self) -> None:
        size = len(simple_batch(3))
        assert_sound(validate(simple_batch(3), LogConfig(segment_bytes=size)))
        too_small = LogConfig(segment_bytes=size - 1)
        assert refusal(simple_batch(3), too_small) == ErrorCode.RECORD_LIST_TOO_LARGE


class TestConsistency:
    @every_codec
    @pytest.mark.parametrize(
        "fields",
        [
            {"last_offset_delta": 1},
            {"last_offset_delta": -1},
            {"records_count": 2},
            {"records_count": 0},
            {"records_count": -3, "last_offset_delta": -4},
            {"records_count": 4, "last_offset_delta": 3},
            {"records_count": 2, "last_offset_delta": 1},
            {"records_count": 1 << 30, "last_offset_delta": (1 << 30) - 1},
        ],
    )
    def test_counts_that_disagree(self, codec: Codec, fields: dict[str, int]) -> None:
        batch = with_fields(simple_batch(3, codec=codec), **fields)
        assert refusal(batch) == ErrorCode.INVALID_RECORD

    def test_control_batches_are_for_coordinators(self) -> None:
        marker = marker_batch(
            EndTransactionMarker(ControlType.COMMIT, 1),
            producer_id=3,
            producer_epoch=0,
            timestamp=NOW,
        )
        assert refusal(bytearray(marker)) == ErrorCode.INVALID_RECORD
        valid = validate(bytearray(marker), LogConfig(compression_type="gzip"), origin=COORDINATOR)
        assert_sound(valid)
        assert (valid.is_control, valid.codec, valid.size) == (True, Codec.NONE, 78)

    def test_a_producer_id_needs_a_sequence(self) -> None:
        assert refusal(simple_batch(1, producer_id=0)) == ErrorCode.INVALID_RECORD
        assert_sound(validate(simple_batch(1, producer_id=0), origin=COORDINATOR))

    @every_codec
    def test_malformed_records(self, codec: Codec) -> None:
        payload = bytes(kernel.encode_records(records_of(3), 0)[0])
        for broken in (payload[:-1], payload + b"\0", b""):
            data = compress(codec, broken)
            batch = with_payload_bytes(simple_batch(3, codec=codec), data)
            assert refusal(batch) == ErrorCode.INVALID_RECORD


class TestCodecs:
    @every_codec
    def test_compressed_batches_are_kept_as_they_are(self, codec: Codec) -> None:
        buffer = simple_batch(3, codec=codec)
        payload = bytes(buffer[61:])
        valid = validate(buffer)
        assert_sound(valid)
        assert bytes(valid.data[61:]) == payload
        assert (valid.max_timestamp, valid.offset_of_max_timestamp) == (NOW + 2, 1002)

    @pytest.mark.parametrize("produce_version", [3, 6])
    def test_zstd_needs_produce_v7(self, produce_version: int) -> None:
        batch = simple_batch(codec=Codec.ZSTD)
        assert (
            refusal(batch, produce_version=produce_version)
            == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        )
        assert_sound(validate(batch, produce_version=7))
        # Kafka looks into the records of v3 and later only
        assert_sound(validate(simple_batch(codec=Codec.ZSTD), produce_version=2))

    @pytest.mark.parametrize("codec", [5, 6, 7])
    def test_unknown_codecs(self, codec: int) -> None:
        batch = with_fields(simple_batch(), attributes=codec)
        assert refusal(batch) == ErrorCode.UNKNOWN_SERVER_ERROR

    @pytest.mark.parametrize("codec", COMPRESSED)
    def test_data_that_does_not_decompress(self, codec: Codec) -> None:
        batch = with_payload_bytes(simple_batch(codec=codec), b"garbage" * 10)
        assert refusal(batch) == ErrorCode.UNKNOWN_SERVER_ERROR

    @pytest.mark.parametrize("codec", COMPRESSED)
    def test_a_bomb_is_too_large(self, codec: Codec) -> None:
        batch = batch_of([(b"k", bytes(3 << 20), (), NOW)], codec=codec)
        budget = InflationBudget(2 << 20)
        assert refusal(batch, inflation=budget) == ErrorCode.MESSAGE_TOO_LARGE
        assert budget.bytes_left == 0

    @pytest.mark.parametrize("codec", COMPRESSED)
    def test_batches_of_one_request_share_a_budget(self, codec: Codec) -> None:
        batch = bytes(batch_of([(b"k", bytes(3 << 20), (), NOW)], codec=codec))
        budget = InflationBudget(5 << 20)
        assert_sound(validate(batch, inflation=budget))
        assert refusal(batch, inflation=budget) == ErrorCode.MESSAGE_TOO_LARGE
        assert_sound(validate(batch))

    @pytest.mark.parametrize("codec", COMPRESSED)
    def test_an_honest_batch_passes_when_the_budget_is_gone(self, codec: Codec) -> None:
        batch = batch_of([(b"k", bytes(1_000_000), (), NOW)], codec=codec)
        assert_sound(validate(batch, inflation=InflationBudget(0)))

    def test_uncompressed_batches_cost_nothing(self) -> None:
        budget = InflationBudget(1 << 20)
        assert_sound(validate(simple_batch(3), inflation=budget))
        assert budget.bytes_left == 1 << 20

    @pytest.mark.parametrize("target", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
    @every_codec
    def test_compression_type_of_the_topic_wins(self, codec: Codec, target: str) -> None:
        records = [
            (b"k", b"v" * 100, [("h", b"x"), ("n", None)], NOW + index) for index in range(20)
        ]
        fields: dict[str, Any] = {
            "producer_id": 5,
            "producer_epoch": 1,
            "base_sequence": 9,
            "is_transactional": True,
        }
        valid = validate(
            batch_of(records, codec=codec, **fields), LogConfig(compression_type=target)
        )
        assert_sound(valid)
        expected = Codec.NONE if target == "uncompressed" else Codec[target.upper()]
        assert valid.codec == expected
        assert valid.is_transactional
        assert (valid.max_timestamp, valid.offset_of_max_timestamp) == (NOW + 19, 1019)
        assert [tuple(record) for record in read_columns(valid.data)] == [
            (1000 + index, timestamp, key, value, headers)
            for index, (key, value, headers, timestamp) in enumerate(records)
        ]

    def test_negative_timestamps_are_kept_but_not_rewritten(self) -> None:
        records = [(b"k", b"v", (), -5)]
        assert_sound(validate(batch_of(records)))
        config = LogConfig(compression_type="gzip")
        assert refusal(batch_of(records), config) == ErrorCode.UNKNOWN_SERVER_ERROR

    def test_the_rewritten_batch_must_fit_too(self) -> None:
        batch = batch_of([(b"k", bytes(5000), (), NOW)], codec=Codec.GZIP)
        config = LogConfig(compression_type="uncompressed", max_message_bytes=1000)
        assert refusal(batch, config) == ErrorCode.MESSAGE_TOO_LARGE
        config = LogConfig(compression_type="uncompressed", segment_bytes=1000)
        assert refusal(batch, config) == ErrorCode.RECORD_LIST_TOO_LARGE

    def test_levels_come_from_the_topic(self) -> None:
        records = [(b"", b" ".join(b"%d" % (n * n % 9973) for n in range(20_000)), (), NOW)]
        sizes = {
            validate(
                batch_of(records),
                LogConfig(compression_type="gzip", compression_gzip_level=level),
            ).size
            for level in (1, 9)
        }
        assert len(sizes) == 2


class TestOffsets:
    @every_codec
    def test_gaps_between_offset_deltas_are_closed(self, codec: Codec) -> None:
        encoded, base_timestamp, _ = kernel.encode_records(records_of(6), 0)
        columns = kernel.records_to_columns([(encoded, 6, 0, base_timestamp, None)])
        sparse = bytes(kernel.encode_columns(columns, 3, 6, 0, 0)[0])
        batch = with_fields(
            with_payload_bytes(simple_batch(3, codec=codec), compress(codec, sparse)),
            base_timestamp=NOW + 3,
        )
        valid = validate(batch)
        assert_sound(valid)
        assert [(r.offset, r.timestamp, r.key) for r in read_columns(valid.data)] == [
            (1000, NOW + 3, b"k3"),
            (1001, NOW + 4, b"k4"),
            (1002, NOW + 5, b"k5"),
        ]


class TestKeys:
    @every_codec
    def test_compacted_topics_need_keys(self, codec: Codec) -> None:
        records = [(b"k", b"v", (), NOW), (None, b"v", (), NOW), (None, b"v", (), NOW)]
        with pytest.raises(KafkaError) as caught:
            validate(batch_of(records, codec=codec), LogConfig(compact=True))
        assert caught.value.code == ErrorCode.INVALID_RECORD
        blamed = getattr(caught.value, "record_errors", ())
        assert [index for index, _ in blamed] == [1, 2]

    def test_an_empty_key_is_a_key(self) -> None:
        assert_sound(validate(batch_of([(b"", b"v", (), NOW)]), LogConfig(compact=True)))

    def test_other_topics_take_null_keys(self) -> None:
        assert_sound(validate(batch_of([(None, b"v", (), NOW)])))


class TestTimestamps:
    @every_codec
    @pytest.mark.parametrize(
        ("timestamp", "allowed"),
        [(NOW - 10, True), (NOW - 11, False), (NOW + 20, True), (NOW + 21, False), (-1, True)],
    )
    def test_bounds_are_inclusive(self, codec: Codec, timestamp: int, allowed: bool) -> None:
        config = LogConfig(message_timestamp_before_max_ms=10, message_timestamp_after_max_ms=20)
        batch = batch_of([(b"k", b"v", (), NOW), (b"k", b"v", (), timestamp)], codec=codec)
        if allowed:
            assert_sound(validate(batch, config, now_ms=NOW))
        else:
            assert refusal(batch, config, now_ms=NOW) == ErrorCode.INVALID_TIMESTAMP

    def test_by_default_any_timestamp_goes(self) -> None:
        for timestamp in (0, 1, NOW * 1000, (1 << 63) - 1):
            assert_sound(validate(batch_of([(b"k", b"v", (), timestamp)])))

    def test_the_records_at_fault_are_named(self) -> None:
        config = LogConfig(message_timestamp_before_max_ms=10, compact=True)
        records = [(b"k", b"v", (), NOW), (None, b"v", (), NOW), (b"k", b"v", (), 5)]
        with pytest.raises(KafkaError) as caught:
            validate(batch_of(records), config, now_ms=NOW)
        assert caught.value.code == ErrorCode.INVALID_TIMESTAMP
        blamed = getattr(caught.value, "record_errors", ())
        assert [index for index, _ in blamed] == [1, 2]

    @every_codec
    def test_a_wrong_max_timestamp_is_put_right(self, codec: Codec) -> None:
        valid = validate(with_fields(simple_batch(3, codec=codec), max_timestamp=5))
        assert_sound(valid)
        assert valid.max_timestamp == NOW + 2

    def test_records_without_timestamp_have_no_offset_of_max(self) -> None:
        records = [(b"k", b"v", (), -1)]
        plain = validate(batch_of(records))
        assert_sound(plain)
        assert (plain.max_timestamp, plain.offset_of_max_timestamp) == (-1, -1)
        gzipped = validate(batch_of(records, codec=Codec.GZIP))
        assert (gzipped.max_timestamp, gzipped.offset_of_max_timestamp) == (-1, 1000)
        rebuilt = validate(batch_of(records), LogConfig(compression_type="gzip"))
        assert (rebuilt.max_timestamp, rebuilt.offset_of_max_timestamp) == (-1, -1)

    @pytest.mark.parametrize("target", ["producer", "uncompressed", "zstd"])
    @every_codec
    def test_append_time_is_the_brokers(self, codec: Codec, target: str) -> None:
        config = LogConfig(
            message_timestamp_type="LogAppendTime",
            compression_type=target,
            message_timestamp_before_max_ms=1,
        )
        valid = validate(batch_of([(b"k", b"v", (), 5)] * 3, codec=codec), config)
        assert_sound(valid)
        assert BatchHeader(valid.data).timestamp_type == TimestampType.LOG_APPEND_TIME
        assert valid.log_append_time_ms == valid.max_timestamp == NOW + 500
        assert valid.offset_of_max_timestamp == 1002
        assert {record.timestamp for record in read_columns(valid.data)} == {NOW + 500}

    def test_clients_may_not_set_append_time_where_it_counts(self) -> None:
        config = LogConfig(message_timestamp_type="LogAppendTime")
        assert refusal(simple_batch(append_time_ms=NOW), config) == ErrorCode.INVALID_TIMESTAMP
        assert refusal(simple_batch(append_time_ms=-1)) == ErrorCode.INVALID_TIMESTAMP

    @pytest.mark.parametrize("target", ["producer", "gzip"])
    def test_append_time_by_a_client_becomes_create_time(self, target: str) -> None:
        batch = simple_batch(3, append_time_ms=NOW + 99)
        valid = validate(batch, LogConfig(compression_type=target))
        assert_sound(valid)
        assert BatchHeader(valid.data).timestamp_type == TimestampType.CREATE_TIME
        assert valid.max_timestamp == NOW + 99


class TestOldFormats:
    @pytest.mark.parametrize("magic", [0, 1])
    @pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
    @pytest.mark.parametrize("target", ["producer", "uncompressed", "zstd"])
    def test_they_become_one_v2_batch(self, magic: int, codec: Codec, target: str) -> None:
        records = [LegacyRecord(n, NOW + n, b"k%d" % n, b"v") for n in range(3)]
        data = message_set_of(records, magic, codec=codec)
        valid = validate(data, LogConfig(compression_type=target), produce_version=2)
        assert_sound(valid)
        expected = {"producer": codec, "uncompressed": Codec.NONE, "zstd": Codec.ZSTD}[target]
        assert valid.codec == expected
        assert [(r.offset, r.timestamp, r.key) for r in read_columns(valid.data)] == [
            (1000 + n, NOW + n if magic else -1, b"k%d" % n) for n in range(3)
        ]
        if magic:
            assert (valid.max_timestamp, valid.offset_of_max_timestamp) == (NOW + 2, 1002)
        else:
            assert (valid.max_timestamp, valid.offset_of_max_timestamp) == (-1, -1)
        assert (valid.producer_id, valid.base_sequence, valid.last_sequence) == (-1, -1, -1)

    def test_append_time(self) -> None:
        config = LogConfig(message_timestamp_type="LogAppendTime")
        data = message_set_of([LegacyRecord(0, -1, b"k", b"v")], 0)
        valid = validate(data, config, produce_version=0)
        assert_sound(valid)
        assert valid.log_append_time_ms == valid.max_timestamp == NOW + 500

    def test_produce_v3_takes_v2_only(self) -> None:
        data = message_set_of([LegacyRecord(0, NOW, b"k", b"v")], 1)
        assert refusal(data, produce_version=3) == ErrorCode.INVALID_RECORD

    def test_v2_in_old_requests_is_taken(self) -> None:
        assert_sound(validate(simple_batch(3), produce_version=2))

    def test_inner_offsets_need_not_be_right(self) -> None:
        inner = encode_message(1, 5, NOW, None, b"a") + encode_message(1, 9, NOW, None, b"b")
        data = encode_message(1, 9, NOW, None, compress(Codec.GZIP, inner), Codec.GZIP)
        valid = validate(data, produce_version=2)
        assert read_columns(valid.data).offsets.tolist() == [1000, 1001]

    @pytest.mark.parametrize(
        ("data", "code"),
        [
            (
                message_set_of([LegacyRecord(0, NOW, None, b"v")], 0)
                + message_set_of([LegacyRecord(1, NOW, None, b"v")], 1),
                ErrorCode.INVALID_RECORD,
            ),
            (
                message_set_of([LegacyRecord(0, NOW, None, b"v")], 1, codec=Codec.GZIP) * 2,
                ErrorCode.INVALID_RECORD,
            ),
            (
                message_set_of([LegacyRecord(0, NOW, None, b"v")], 1) + bytes(simple_batch(1)),
                ErrorCode.INVALID_RECORD,
            ),
            (
                message_set_of([LegacyRecord(0, NOW, None, b"v")], 1)[:-1] + b"w",
                ErrorCode.CORRUPT_MESSAGE,
            ),
            (
                encode_message(1, 0, NOW, None, b"garbage" * 9, Codec.SNAPPY),
                ErrorCode.UNKNOWN_SERVER_ERROR,
            ),
            (
                message_set_of([LegacyRecord(0, NOW, None, b"v")], 1, append_time_ms=-1),
                ErrorCode.INVALID_TIMESTAMP,
            ),
        ],
    )
    def test_refusals(self, data: bytes, code: ErrorCode) -> None:
        assert refusal(data, produce_version=2) == code

    @pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
    def test_negative_timestamps_cannot_be_converted(self, codec: Codec) -> None:
        for timestamp in (-2, -5):
            records = [LegacyRecord(n, [NOW, timestamp][n], None, b"v") for n in range(2)]
            data = message_set_of(records, 1, codec=codec)
            assert refusal(data, produce_version=2) == ErrorCode.UNKNOWN_SERVER_ERROR

    def test_the_time_of_a_wrapper_is_that_of_all(self) -> None:
        records = [LegacyRecord(n, NOW - 50, b"k", b"v") for n in range(3)]
        data = message_set_of(records, 1, codec=Codec.GZIP, append_time_ms=NOW + 3)
        valid = validate(data, produce_version=2)
        assert {record.timestamp for record in read_columns(valid.data)} == {NOW + 3}

    def test_a_wrapper_takes_from_the_budget(self) -> None:
        records = [LegacyRecord(0, NOW, b"k", bytes(3 << 20))]
        data = message_set_of(records, 1, codec=Codec.GZIP)
        budget = InflationBudget(2 << 20)
        assert refusal(data, produce_version=2, inflation=budget) == ErrorCode.MESSAGE_TOO_LARGE

    def test_records_at_fault_are_named(self) -> None:
        records = [LegacyRecord(n, NOW, b"k" if n % 2 else None, b"v") for n in range(4)]
        data = message_set_of(records, 1, codec=Codec.SNAPPY)
        with pytest.raises(InvalidRecords) as caught:
            validate(data, LogConfig(compact=True), produce_version=2)
        assert [index for index, _ in caught.value.record_errors] == [0, 2]

    def test_a_cut_message_at_the_end_is_dropped(self) -> None:
        data = message_set_of([LegacyRecord(n, NOW, b"k", b"v") for n in range(3)], 1)
        assert validate(data[:-1], produce_version=2).records_count == 2

    def test_rules_of_the_topic_hold_for_them_too(self) -> None:
        data = message_set_of([LegacyRecord(0, NOW - 100, None, b"v")], 1)
        assert refusal(data, LogConfig(compact=True), produce_version=2) == (
            ErrorCode.INVALID_RECORD
        )
        config = LogConfig(message_timestamp_before_max_ms=1)
        assert refusal(data, config, produce_version=2) == ErrorCode.INVALID_TIMESTAMP
        config = LogConfig(max_message_bytes=20)
        assert refusal(data, config, produce_version=2) == ErrorCode.MESSAGE_TOO_LARGE


@settings(deadline=None, max_examples=300)
@given(
    damaged(batches()),
    st.sampled_from(["producer", "uncompressed", "gzip", "zstd"]),
    st.sampled_from(["CreateTime", "LogAppendTime"]),
    st.booleans(),
    st.sampled_from([2, 3, 11]),
)
def test_whatever_comes_is_sound_or_refused_with_a_code(
    data: bytes, compression_type: str, timestamp_type: str, compact: bool, produce_version: int
) -> None:
    config = LogConfig(
        compression_type=compression_type, message_timestamp_type=timestamp_type, compact=compact
    )
    try:
        valid = validate(data, config, produce_version=produce_version)
    except KafkaError:
        return
    assert kernel.check_batch(valid.data)[0] == kernel.OK
    assert BatchHeader(valid.data).base_offset == 1000


@settings(deadline=None, max_examples=200)
@given(
    st.lists(st.tuples(st.none() | st.binary(max_size=9), timestamps), min_size=1, max_size=4),
    st.integers(0, 1),
    st.sampled_from([Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]),
    st.booleans(),
    st.data(),
)
def test_whatever_comes_in_old_formats_is_sound_or_refused_with_a_code(
    rows: list[tuple[bytes | None, int]],
    magic: int,
    codec: Codec,
    compact: bool,
    data: st.DataObject,
) -> None:
    records = [LegacyRecord(n, timestamp, key, b"v") for n, (key, timestamp) in enumerate(rows)]
    spoilt = bytearray(message_set_of(records, magic, codec=codec))
    for _ in range(data.draw(st.integers(0, 3))):
        spoilt[data.draw(st.integers(17, len(spoilt) - 1))] = data.draw(st.integers(0, 255))
    if codec != Codec.NONE or len(rows) == 1:
        spoilt[12:16] = zlib.crc32(spoilt[16:]).to_bytes(4, "big")
    try:
        valid = validate(spoilt, LogConfig(compact=compact), produce_version=2)
    except KafkaError:
        return
    assert kernel.check_batch(valid.data)[0] == kernel.OK
    assert BatchHeader(valid.data).base_offset == 1000
