from __future__ import annotations

import struct

import pytest

from tests.support.batches import NOW, simple_batch
from tidelog.record import kernel
from tidelog.record.batch import (
    BatchHeader,
    TimestampType,
    increment_sequence,
    stamp_timestamps,
)


def test_the_header_is_read_field_by_field() -> None:
    batch = simple_batch(
        3,
        base_offset=100,
        leader_epoch=4,
        producer_id=9,
        producer_epoch=2,
        base_sequence=50,
        is_transactional=True,
    )
    header = BatchHeader(b"junk" + batch, 4)
    assert header.size == len(batch)
    assert (header.base_offset, header.last_offset, header.last_offset_delta) == (100, 102, 2)
    assert (header.partition_leader_epoch, header.magic, header.records_count) == (4, 2, 3)
    assert (header.base_timestamp, header.max_timestamp) == (NOW, NOW + 2)
    assert (header.producer_id, header.producer_epoch) == (9, 2)
    assert (header.base_sequence, header.last_sequence) == (50, 52)
    assert header.is_transactional
    assert not header.is_control
    assert header.codec_id == 0
    assert header.timestamp_type == TimestampType.CREATE_TIME


def test_a_cut_header_is_refused() -> None:
    with pytest.raises(struct.error):
        BatchHeader(simple_batch()[:60])


def test_sequences_wrap_to_zero() -> None:
    assert increment_sequence((1 << 31) - 1, 1) == 0
    assert increment_sequence((1 << 31) - 2, 5) == 3
    assert BatchHeader(simple_batch()).last_sequence == -1


def test_append_time_changes_type_timestamp_and_checksum() -> None:
    batch = simple_batch(is_transactional=True)
    stamp_timestamps(batch, TimestampType.LOG_APPEND_TIME, NOW + 99)
    header = BatchHeader(batch)
    assert header.timestamp_type == TimestampType.LOG_APPEND_TIME
    assert header.max_timestamp == NOW + 99
    assert header.is_transactional
    assert kernel.check_batch(batch)[0] == kernel.OK


def test_create_time_takes_the_type_back() -> None:
    batch = simple_batch(append_time_ms=5)
    stamp_timestamps(batch, TimestampType.CREATE_TIME, NOW + 2)
    assert bytes(batch) == bytes(simple_batch())
