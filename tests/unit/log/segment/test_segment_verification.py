"""Segments from before a start are checked when they are first read, and then no more."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from tests.support.log_builder import ABORT, LogWorkshop, end_txn, fill, offsets, produce
from tidelog.config.topic import LogConfig
from tidelog.errors import ErrorCode, KafkaError
from tidelog.log.partition_log import PartitionLog
from tidelog.log.segment import segment_verification

SMALL = LogConfig(segment_bytes=400, index_interval_bytes=100)


@pytest.fixture
def workshop(tmp_path: Path) -> LogWorkshop:
    return LogWorkshop(tmp_path)


def reopened(workshop: LogWorkshop, log: PartitionLog, config: LogConfig = SMALL) -> PartitionLog:
    log.flush()
    log.close()
    return workshop.load(
        config, clean=True, recovery_point=log.log_end_offset, high_watermark=log.log_end_offset
    )


def flip(path: Path | str, position: int, mask: int = 1) -> None:
    descriptor = os.open(path, os.O_RDWR)
    byte = os.pread(descriptor, 1, position)[0]
    os.pwrite(descriptor, bytes([byte ^ mask]), position)
    os.close(descriptor)


def read_error(log: PartitionLog, offset: int) -> ErrorCode:
    with pytest.raises(KafkaError) as error:
        log.read(offset, 10_000, up_to_offset=log.high_watermark, min_one_batch=True)
    return error.value.code


def test_own_segments_are_not_checked(workshop: LogWorkshop) -> None:
    log = workshop.create(SMALL)
    fill(log, 10)
    assert [segment.verification for segment in log.segments] == [None] * len(log.segments)


def test_recovered_segments_are_not_checked_again(workshop: LogWorkshop) -> None:
    log = workshop.create(SMALL)
    fill(log, 10)
    recovered = workshop.load(SMALL, clean=False)
    assert [segment.verification for segment in recovered.segments] == [None] * len(log.segments)


def test_a_second_read_checks_nothing(
    workshop: LogWorkshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = workshop.create(SMALL)
    fill(log, 10)
    log = reopened(workshop, log)
    assert offsets(log) == list(range(10))

    monkeypatch.setattr(segment_verification, "SegmentScan", None)

    assert offsets(log) == list(range(10))


def test_bytes_written_after_the_start_are_not_checked(
    workshop: LogWorkshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = workshop.create()
    fill(log, 3)
    log = reopened(workshop, log, LogConfig())
    produce(log, b"new")

    monkeypatch.setattr(segment_verification, "SegmentScan", None)

    result = log.read(3, 10_000, up_to_offset=4, min_one_batch=True)
    assert result.records is not None


def test_readers_get_what_is_before_the_damage_and_then_an_error(
    workshop: LogWorkshop, caplog: pytest.LogCaptureFixture
) -> None:
    log = workshop.create()
    fill(log, 5)
    size = log.active_segment.size // 5
    path = log.active_segment.file.path
    log = reopened(workshop, log, LogConfig())
    flip(path, 3 * size + 70)

    result = log.read(0, 10_000, up_to_offset=5, min_one_batch=True)

    assert result.records is not None
    assert len(result.records) == 3 * size
    assert read_error(log, 3) == ErrorCode.CORRUPT_MESSAGE
    assert f"{path} holds a batch whose checksum does not match" in caplog.text
    assert "repair-log" in caplog.text


@pytest.mark.parametrize("mask", [0x01, 0x02, 0x40], ids=["near", "next", "far"])
def test_a_batch_with_a_wrong_offset_is_not_served(workshop: LogWorkshop, mask: int) -> None:
    """Its checksum holds: the offset lies outside of it."""
    log = workshop.create()
    fill(log, 6)
    size = log.active_segment.size // 6
    path = log.active_segment.file.path
    log.roll()
    produce(log, b"end")
    log = reopened(workshop, log, LogConfig())
    flip(path, 2 * size + 7, mask)

    for max_bytes in (size, 10_000):
        result = log.read(0, max_bytes, up_to_offset=7, min_one_batch=True)
        assert result.records is not None
        assert len(result.records) <= 2 * size
    assert read_error(log, 2) == ErrorCode.CORRUPT_MESSAGE


def test_a_lost_tail_of_an_old_segment_is_not_passed_over(workshop: LogWorkshop) -> None:
    log = workshop.create()
    fill(log, 4)
    size = log.active_segment.size // 4
    path = log.active_segment.file.path
    log.roll()
    produce(log, b"end")
    log.flush()
    log.close()
    os.truncate(path, 3 * size)
    log = workshop.load(clean=True, recovery_point=5, high_watermark=5)

    assert read_error(log, 3) == ErrorCode.CORRUPT_MESSAGE
    with pytest.raises(KafkaError):
        log.offset_for_timestamp(1_700_000_000_003)


def test_where_a_cleaner_has_been_gaps_are_no_damage(workshop: LogWorkshop) -> None:
    log = workshop.create()
    fill(log, 4)
    size = log.active_segment.size // 4
    path = log.active_segment.file.path
    log.roll()
    produce(log, b"end")
    log.flush()
    log.close()
    os.truncate(path, 3 * size)
    config = LogConfig(compact=True, delete=False)
    log = workshop.load(config, clean=True, recovery_point=5, high_watermark=5)

    assert offsets(log) == [0, 1, 2, 4]


def test_a_segment_under_another_name_is_not_served(workshop: LogWorkshop) -> None:
    log = workshop.create()
    fill(log, 3)
    log.roll()
    fill(log, 3)
    log.roll()
    produce(log, b"end")
    first, second, _ = (Path(segment.file.path) for segment in log.segments)
    log.flush()
    log.close()
    swapped = first.read_bytes(), second.read_bytes()
    second.write_bytes(swapped[0])
    first.write_bytes(swapped[1])
    log = workshop.load(clean=True, recovery_point=7, high_watermark=7)

    for offset in range(6):
        assert read_error(log, offset) == ErrorCode.CORRUPT_MESSAGE


def test_a_batch_whose_length_leads_over_the_next_one_is_not_served_in_part(
    workshop: LogWorkshop,
) -> None:
    config = LogConfig(index_interval_bytes=1)
    log = workshop.create(config)
    fill(log, 4)
    path, size = log.segments[0].path(".log"), log.segments[0].size // 4
    log = reopened(workshop, log, config)
    length = size - 12
    flip(path, 2 * size + 11, ~length & (length + 1))

    with pytest.raises(KafkaError) as error:
        log.read(2, size + 4, up_to_offset=4, min_one_batch=True)
    assert error.value.code is ErrorCode.CORRUPT_MESSAGE


def test_a_batch_that_cannot_even_be_found_is_told_in_the_log(
    workshop: LogWorkshop, caplog: pytest.LogCaptureFixture
) -> None:
    log = workshop.create()
    fill(log, 4)
    log = reopened(workshop, log, LogConfig())
    flip(log.segments[0].path(".log"), 16, 0x40)  # the magic of the first one

    assert read_error(log, 0) == ErrorCode.CORRUPT_MESSAGE
    assert read_error(log, 0) == ErrorCode.CORRUPT_MESSAGE
    assert caplog.text.count("holds no batch at position 0; nothing is served from there") == 1


def test_a_lost_transaction_index_is_written_anew_before_committed_reads(
    workshop: LogWorkshop, caplog: pytest.LogCaptureFixture
) -> None:
    log = workshop.create()
    produce(log, b"a", producer_id=7, producer_epoch=0, sequence=0, transactional=True)
    end_txn(log, ABORT, producer_id=7)
    log.roll()
    produce(log, b"b")
    path = Path(log.segments[0].txn_index.path)
    expected = path.read_bytes()
    log.flush()
    log.close()
    path.unlink()
    log = workshop.load(clean=True, recovery_point=3, high_watermark=3)

    result = log.read(0, 10_000, up_to_offset=3, min_one_batch=True)
    aborted = log.aborted_transactions(0, result)

    assert [(entry.producer_id, entry.first_offset) for entry in aborted] == [(7, 0)]
    assert path.read_bytes() == expected
    assert "writing it anew" in caplog.text


def test_a_plain_log_costs_committed_readers_no_walk(
    workshop: LogWorkshop, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    log = workshop.create(SMALL)
    fill(log, 10)
    log = reopened(workshop, log)

    result = log.read(0, 10_000, up_to_offset=10, min_one_batch=True)

    assert log.aborted_transactions(0, result) == []
    assert result.segment is not None
    assert result.segment.verification is not None
    assert not result.segment.verification.txn_index_checked
    assert caplog.text == ""


def test_a_shortened_time_index_is_noticed(workshop: LogWorkshop) -> None:
    log = workshop.create(LogConfig(index_interval_bytes=100))
    fill(log, 8)
    log.roll()
    produce(log, b"end", timestamp=1_700_000_000_900)
    path = log.segments[0].path(".timeindex")
    log.flush()
    log.close()
    os.truncate(path, os.path.getsize(path) - 12)
    log = workshop.load(clean=True, recovery_point=9, high_watermark=9)

    found = log.offset_for_timestamp(1_700_000_000_007)

    assert found is not None
    assert found.offset == 7


def test_a_log_that_does_not_end_where_it_was_closed_is_recovered(
    workshop: LogWorkshop, caplog: pytest.LogCaptureFixture
) -> None:
    log = workshop.create()
    fill(log, 4)
    size = log.active_segment.size // 4
    log.flush()
    log.close()
    os.truncate(log.active_segment.file.path, 3 * size)

    loaded = workshop.load(clean=True, recovery_point=4, clean_end=4)

    assert loaded.log_end_offset == 3
    assert "ends at 3, but its clean stop left it at 4" in caplog.text
    assert "had been synced up to 4: records are lost" in caplog.text
