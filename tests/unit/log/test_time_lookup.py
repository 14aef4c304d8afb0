from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import raw_batch
from tests.support.log_builder import LogWorkshop, produce
from tidelog.config.topic import LogConfig
from tidelog.log.partition_log import PartitionLog
from tidelog.record.batch import Codec
from tidelog.record.builder import batch_of
from tidelog.record.errors import CorruptRecords


@pytest.fixture
def workshop(tmp_path: Path) -> LogWorkshop:
    return LogWorkshop(tmp_path)


def append(log: PartitionLog, *timestamps: int, codec: Codec = Codec.NONE) -> None:
    no_headers: list[tuple[str, bytes]] = []
    records = [(None, b"value", no_headers, timestamp) for timestamp in timestamps]
    log.append_as_leader(memoryview(batch_of(records, codec=codec)), 0)
    log.update_high_watermark(log.log_end_offset)


@pytest.mark.parametrize("codec", list(Codec))
def test_a_look_up_is_exact_inside_a_batch(workshop: LogWorkshop, codec: Codec) -> None:
    log = workshop.create()
    append(log, 100, 110, 120, codec=codec)
    append(log, 130, 125, 140, codec=codec)
    expected = {0: (100, 0), 100: (100, 0), 101: (110, 1), 111: (120, 2), 121: (130, 3)}
    expected |= {126: (130, 3), 131: (140, 5), 140: (140, 5)}
    assert {ts: log.offset_for_timestamp(ts) for ts in expected} == expected
    assert log.offset_for_timestamp(141) is None


def test_timestamps_may_go_back(workshop: LogWorkshop) -> None:
    log = workshop.create(LogConfig(index_interval_bytes=1))
    for timestamp in (500, 300, 700, 200, 900):
        append(log, timestamp)
    assert log.offset_for_timestamp(250) == (500, 0)
    assert log.offset_for_timestamp(600) == (700, 2)
    assert log.offset_for_timestamp(701) == (900, 4)


def test_a_look_up_crosses_segments(workshop: LogWorkshop) -> None:
    log = workshop.create(LogConfig(segment_bytes=300, index_interval_bytes=100))
    for number in range(30):
        append(log, 1000 + number * 10)
    assert len(log.segments) > 5
    for number in range(30):
        assert log.offset_for_timestamp(1000 + number * 10 - 5) == (1000 + number * 10, number)


def test_records_below_the_log_start_are_not_found(workshop: LogWorkshop) -> None:
    log = workshop.create()
    append(log, 100, 200, 300)
    log.maybe_increment_log_start_offset(2)
    assert log.offset_for_timestamp(100) == (300, 2)


def test_with_log_append_time_all_records_of_a_batch_have_one(workshop: LogWorkshop) -> None:
    log = workshop.create(LogConfig(message_timestamp_type="LogAppendTime"))
    append(log, 5, 6)
    first_ms = workshop.clock.time_ms()
    workshop.clock.advance(ms=100)
    append(log, 7, 8)
    assert log.offset_for_timestamp(first_ms) == (first_ms, 0)
    assert log.offset_for_timestamp(first_ms + 1) == (first_ms + 100, 2)


def test_the_record_with_the_largest_timestamp_is_found(workshop: LogWorkshop) -> None:
    log = workshop.create(LogConfig(index_interval_bytes=1))
    assert log.max_timestamp() is None
    append(log, 100, 900, 300)
    log.roll()
    append(log, 400, 900, 500)
    assert log.max_timestamp() == (900, 1)
    append(log, 901, 20)
    assert log.max_timestamp() == (901, 6)


def test_the_largest_timestamp_survives_a_restart(workshop: LogWorkshop) -> None:
    log = workshop.create()
    append(log, 100, 900, 300)
    assert workshop.reopen_cleanly(log).max_timestamp() == (900, 1)
    assert workshop.load().max_timestamp() == (900, 1)


def test_a_log_without_timestamps_has_no_largest(workshop: LogWorkshop) -> None:
    log = workshop.create()
    produce(log, timestamp=-1)
    assert log.max_timestamp() is None


def test_old_messages_are_searched_too(workshop: LogWorkshop) -> None:
    log = workshop.create()
    messages = b"".join(
        raw_batch.message(b"v", magic=1, offset=n, timestamp=100 * n) for n in range(1, 5)
    )
    log.append_as_follower(memoryview(messages))
    assert log.offset_for_timestamp(150) == (200, 2)
    assert log.max_timestamp() == (400, 4)


@pytest.mark.parametrize("position", [61, 63])
def test_malformed_records_in_the_log_are_corrupt(workshop: LogWorkshop, position: int) -> None:
    log = workshop.create()
    append(log, 100, 110, 120)
    log.segments[0].file.write_at(position, b"\xff" * 8)
    with pytest.raises(CorruptRecords, match="position 0"):
        log.offset_for_timestamp(115)
    with pytest.raises(CorruptRecords):
        log.max_timestamp()


def test_a_batch_that_the_file_no_longer_holds_is_corrupt(workshop: LogWorkshop) -> None:
    log = workshop.create()
    append(log, 100, 110, 120)
    log.segments[0].file.truncate(70)
    with pytest.raises(CorruptRecords, match="position 0"):
        log.offset_for_timestamp(115)
