"""A round of the cleaner over one log: what stays, under which offsets, in which files."""

from __future__ import annotations

import os
import struct
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support import raw_batch
from tests.support.cleaning import (
    SETTINGS,
    START_MS,
    clean,
    stored_batches,
    stored_pairs,
    write,
)
from tests.support.log_builder import ABORT, COMMIT, LogWorkshop, end_txn
from tests.support.message_sets import message_set_of
from tidelog.config.topic import LogConfig
from tidelog.log.log_errors import CannotClean
from tidelog.log.partition_log import PartitionLog
from tidelog.log.producer_snapshots import decode_snapshot
from tidelog.record.batch import DELETE_HORIZON_BIT, Codec
from tidelog.record.legacy import LegacyRecord, read_messages, records_of

COMPACTED = LogConfig(
    compact=True, min_cleanable_dirty_ratio=0.0, index_interval_bytes=100, delete_retention_ms=5000
)
HORIZON = START_MS + 5000


@pytest.fixture
def workshop(tmp_path: Path) -> LogWorkshop:
    return LogWorkshop(tmp_path)


def test_of_each_key_the_last_record_stays_under_its_own_offset(workshop: LogWorkshop) -> None:
    log = workshop.create(COMPACTED)
    write(log, (b"a", b"1"), (b"b", b"1"), (b"c", b"1"))
    write(log, (b"a", b"2"))
    log.roll()
    write(log, (b"b", b"2"))
    log.roll()
    write(log, (b"c", b"active"))
    clean(log, workshop.clock)
    assert stored_pairs(log) == [
        (2, b"c", b"1"),
        (3, b"a", b"2"),
        (4, b"b", b"2"),
        (5, b"c", b"active"),
    ]
    assert log.cleaner_offset == 5


def test_keys_are_compared_with_the_clean_head_too(workshop: LogWorkshop) -> None:
    log = workshop.create(COMPACTED)
    write(log, (b"a", b"1"), (b"b", b"1"))
    log.roll()
    clean(log, workshop.clock)
    write(log, (b"a", b"2"))
    log.roll()
    clean(log, workshop.clock)
    assert stored_pairs(log) == [(1, b"b", b"1"), (2, b"a", b"2")]


def test_small_segments_come_together_and_the_names_are_kafkas(workshop: LogWorkshop) -> None:
    log = workshop.create(COMPACTED)
    for number in range(4):
        write(log, (b"k", b"%d" % number))
        log.roll()
    clean(log, workshop.clock)
    assert [segment.base_offset for segment in log.segments] == [0, 4]
    live = [name for name in workshop.files() if not name.endswith(".deleted")]
    assert live == [
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
        "00000000000000000004.log",
        "00000000000000000004.snapshot",
        "leader-epoch-checkpoint",
        "partition.metadata",
    ]
    deleted = {name for paths, _ in workshop.deletions for name in map(os.path.basename, paths)}
    assert "00000000000000000002.log.deleted" in deleted
    assert "00000000000000000002.snapshot.deleted" in deleted


@pytest.mark.parametrize("codec", list(Codec))
def test_compressed_batches_are_cleaned_in_their_codec(workshop: LogWorkshop, codec: Codec) -> None:
    log = workshop.create(COMPACTED)
    write(log, *[(b"k%d" % n, b"value" * 20) for n in range(50)], codec=codec)
    write(log, *[(b"k%d" % n, b"new" * 20) for n in range(0, 50, 2)], codec=codec)
    log.roll()
    clean(log, workshop.clock)
    batches = stored_batches(log)
    assert [batch.header.codec_id for batch in batches] == [codec, codec]
    assert [record.offset for record in batches[0].records] == list(range(1, 50, 2))
    assert (batches[0].header.base_offset, batches[0].header.last_offset) == (0, 49)


def test_a_batch_that_stays_whole_keeps_its_bytes(workshop: LogWorkshop) -> None:
    log = workshop.create(COMPACTED)
    for codec in Codec:
        write(log, (b"k%d" % codec, b"v" * 100), codec=codec)
    log.roll()
    before = workshop.log_bytes()
    clean(log, workshop.clock)
    assert workshop.log_bytes() == before


def test_tombstones_stay_for_delete_retention_ms_after_they_are_first_cleaned(
    workshop: LogWorkshop,
) -> None:
    log = workshop.create(COMPACTED)
    write(log, (b"a", b"1"), (b"a", None), (b"b", b"1"))
    log.roll()
    clean(log, workshop.clock)
    (batch,) = stored_batches(log)
    assert [record.value for record in batch.records] == [None, b"1"]
    assert batch.header.attributes & DELETE_HORIZON_BIT
    assert batch.header.base_timestamp == HORIZON
    for elapsed, left in ((4999, 2), (1, 1)):
        workshop.clock.advance(ms=elapsed)
        write(log, (b"c", b"%d" % elapsed))
        log.roll()
        clean(log, workshop.clock)
        assert len(stored_batches(log)[0].records) == left


def test_nothing_above_the_last_stable_offset_is_touched(workshop: LogWorkshop) -> None:
    log = workshop.create(COMPACTED)
    write(log, (b"a", b"1"))
    log.roll()
    write(
        log, (b"a", b"2"), producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    log.roll()
    write(log, (b"a", b"3"))
    log.roll()
    clean(log, workshop.clock)
    assert len(stored_pairs(log)) == 3
    assert log.cleaner_offset == 1
    end_txn(log, COMMIT, producer_id=1)
    log.roll()
    clean(log, workshop.clock)
    assert stored_pairs(log) == [(2, b"a", b"3")]


def test_records_of_aborted_transactions_go_and_their_keys_do_not_count(
    workshop: LogWorkshop,
) -> None:
    log = workshop.create(COMPACTED)
    write(log, (b"a", b"kept"))
    write(
        log,
        (b"a", b"aborted"),
        producer_id=1,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    end_txn(log, ABORT, producer_id=1)
    write(
        log, (b"b", b"1"), producer_id=1, producer_epoch=0, base_sequence=1, is_transactional=True
    )
    end_txn(log, COMMIT, producer_id=1)
    log.roll()
    clean(log, workshop.clock)
    assert stored_pairs(log) == [(0, b"a", b"kept"), (3, b"b", b"1")]
    assert [batch.header.base_offset for batch in stored_batches(log)] == [0, 2, 3, 4]


def test_a_marker_outlives_its_records_by_delete_retention_ms(workshop: LogWorkshop) -> None:
    log = workshop.create(COMPACTED)
    write(
        log, (b"a", b"x"), producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    end_txn(log, ABORT, producer_id=1)
    write(
        log, (b"a", b"y"), producer_id=1, producer_epoch=0, base_sequence=1, is_transactional=True
    )
    end_txn(log, COMMIT, producer_id=1)
    write(log, (b"a", b"z"))
    offsets = []
    horizons = []
    for _ in range(4):
        log.roll()
        clean(log, workshop.clock)
        batches = [batch.header for batch in stored_batches(log) if batch.header.base_offset < 4]
        offsets.append([header.base_offset for header in batches])
        horizons.append([bool(header.attributes & DELETE_HORIZON_BIT) for header in batches])
        workshop.clock.advance(ms=3000)
        write(log, (b"other", b"v"))
    # 2 is the producer's last data batch, which stays as an empty one
    assert offsets == [[1, 2, 3], [1, 2, 3], [1, 2, 3], [2, 3]]
    assert horizons == [
        [False, False, False],
        [True, False, False],
        [True, False, False],
        [False, False],
    ]


def test_the_transaction_index_holds_what_is_left(workshop: LogWorkshop) -> None:
    log = workshop.create(COMPACTED)
    for number in range(2):
        write(
            log,
            (b"a", b"x"),
            producer_id=number,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=True,
        )
        end_txn(log, ABORT, producer_id=number)
        log.roll()
    clean(log, workshop.clock)
    assert [txn.producer_id for txn in log.aborted_before(1 << 40)] == [0, 1]
    write(log, (b"b", b"x"))
    log.roll()
    clean(log, workshop.clock)
    assert [txn.producer_id for txn in log.aborted_before(1 << 40)] == [0, 1]


def test_an_empty_batch_keeps_the_last_sequence_of_an_active_producer(
    workshop: LogWorkshop,
) -> None:
    log = workshop.create(COMPACTED)
    write(log, (b"a", b"1"), producer_id=7, producer_epoch=2, base_sequence=41)
    write(log, (b"a", b"2"))
    log.roll()
    clean(log, workshop.clock)
    first, second = stored_batches(log)
    assert (first.header.records_count, first.header.last_sequence) == (0, 41)
    assert first.header.base_timestamp == -1
    assert second.records[0].offset == 1
    for path in workshop.folder.glob("*.snapshot"):
        path.unlink()
    again = workshop.load(COMPACTED, high_watermark=2)
    assert again.producers.producers[7].last_sequence == 41


def test_a_producer_that_has_expired_leaves_no_batch(workshop: LogWorkshop) -> None:
    log = workshop.create(COMPACTED)
    write(log, (b"a", b"1"), producer_id=7, producer_epoch=2, base_sequence=41)
    write(log, (b"a", b"2"))
    log.roll()
    workshop.clock.advance(ms=86_400_000)
    log.remove_expired_producers()
    clean(log, workshop.clock)
    assert [batch.header.base_offset for batch in stored_batches(log)] == [1]


def test_the_last_batch_of_a_round_stays_to_tell_how_far_the_log_came(
    workshop: LogWorkshop,
) -> None:
    log = workshop.create(COMPACTED)
    write(log, (b"a", b"1"))
    write(log, (b"a", None))
    log.roll()
    clean(log, workshop.clock)
    workshop.clock.advance(ms=5000)
    log.cleaner_offset = 0
    clean(log, workshop.clock)
    (batch,) = stored_batches(log)
    assert (batch.header.base_offset, batch.header.records_count) == (1, 0)


def test_a_map_that_fills_takes_several_rounds(workshop: LogWorkshop) -> None:
    log = workshop.create(COMPACTED)
    for number in range(3):
        write(log, *[(b"k%d" % key, b"%d" % number) for key in range(20)])
        log.roll()
    small = SETTINGS._replace(map_bytes=24 * 16, map_load_factor=0.5)
    rounds = 0
    while clean(log, workshop.clock, small) is not None and log.cleaner_offset < 60:
        rounds += 1
        assert rounds < 20
    assert rounds > 4
    assert [offset for offset, _, value in stored_pairs(log) if value == b"2"] == list(
        range(40, 60)
    )
    latest = {key: value for _, key, value in stored_pairs(log)}
    assert latest == {b"k%d" % key: b"2" for key in range(20)}


def test_a_batch_longer_than_the_buffer_is_read_whole(workshop: LogWorkshop) -> None:
    log = workshop.create(COMPACTED)
    write(log, (b"a", os.urandom(50_000)), (b"b", os.urandom(50_000)))
    write(log, (b"a", b"2"))
    log.roll()
    clean(log, workshop.clock)
    assert [offset for offset, _, _ in stored_pairs(log)] == [1, 2]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
@pytest.mark.parametrize("magic", [0, 1])
def test_messages_of_old_formats_are_cleaned_in_their_format(
    workshop: LogWorkshop, magic: int, codec: Codec
) -> None:
    log = _old_log(workshop, magic, codec)
    clean(log, workshop.clock)
    messages = list(read_messages(workshop.log_bytes()))
    assert {message.magic for message in messages} == {magic}
    assert [
        (record.offset, record.key, record.value)
        for message in messages
        for record in records_of(message)
    ] == [(1, b"b", b"1"), (3, b"a", b"2"), (4, b"c", None)]
    for message in messages:
        message.require_valid()


def test_tombstones_of_old_formats_go_with_the_age_of_their_segment(
    workshop: LogWorkshop,
) -> None:
    log = _old_log(workshop, 1, Codec.GZIP)
    clean(log, workshop.clock)
    os.utime(workshop.folder / f"{0:020d}.log", (1000, 1000))
    write(log, (b"z", b"1"))
    log.roll()
    os.utime(workshop.folder / f"{5:020d}.log", (1000, 1000))
    log.update_config(replace(COMPACTED, delete_retention_ms=0))
    clean(log, workshop.clock)
    (message,) = read_messages(workshop.log_bytes()[: log.segments[0].find_batch(5).position])  # type: ignore[union-attr]
    assert [record.offset for record in records_of(message)] == [1, 3]


def _old_log(workshop: LogWorkshop, magic: int, codec: Codec) -> PartitionLog:
    records = [
        LegacyRecord(0, START_MS, b"a", b"1"),
        LegacyRecord(1, START_MS, b"b", b"1"),
        LegacyRecord(2, START_MS, None, b"no key"),
        LegacyRecord(3, START_MS, b"a", b"2"),
        LegacyRecord(4, START_MS, b"c", None),
    ]
    workshop.folder.mkdir()
    (workshop.folder / f"{0:020d}.log").write_bytes(message_set_of(records, magic, codec=codec))
    log = workshop.load(COMPACTED, high_watermark=5)
    log.update_high_watermark(5)
    log.roll()
    return log


def test_indexes_of_a_cleaned_segment_are_those_that_a_rebuild_would_give(
    workshop: LogWorkshop,
) -> None:
    log = workshop.create(COMPACTED)
    for number in range(60):
        write(log, (b"k%d" % (number % 7), b"v" * 40), timestamp=START_MS + number)
    for number in range(60, 120):
        write(log, (b"k%d" % number, b"v" * 40), timestamp=START_MS + number)
    log.roll()
    clean(log, workshop.clock)
    base = workshop.folder / f"{0:020d}"
    stored = [base.with_suffix(suffix).read_bytes() for suffix in (".index", ".timeindex")]
    log.segments[0].rebuild_indexes("test")
    assert stored == [base.with_suffix(suffix).read_bytes() for suffix in (".index", ".timeindex")]
    assert len(stored[0]) > 80
    assert log.offset_for_timestamp(START_MS + 90) == (START_MS + 90, 90)


def test_a_time_is_found_at_a_record_that_is_there(workshop: LogWorkshop) -> None:
    config = replace(COMPACTED, message_timestamp_type="LogAppendTime")
    log = workshop.create(config)
    write(log, (b"a", b"1"), (b"b", b"1"))
    write(log, (b"c", b"1"), producer_id=1, producer_epoch=0, base_sequence=0)
    workshop.clock.advance(ms=10)
    write(log, (b"a", b"2"), (b"c", b"2"))
    log.roll()
    clean(log, workshop.clock)
    assert [batch.header.records_count for batch in stored_batches(log)] == [1, 0, 2]
    assert log.offset_for_timestamp(START_MS) == (START_MS, 1)
    assert log.offset_for_timestamp(START_MS + 1) == (START_MS + 10, 3)


def test_a_cleaned_segment_has_the_modification_time_of_the_last_it_replaces(
    workshop: LogWorkshop,
) -> None:
    log = workshop.create(COMPACTED)
    for number in range(2):
        write(log, (b"k", b"v"))
        log.roll()
        os.utime(workshop.folder / f"{number:020d}.log", (1000 + number, 1000 + number))
    clean(log, workshop.clock)
    assert os.stat(workshop.folder / f"{0:020d}.log").st_mtime == 1001


def test_records_without_key_go_and_are_counted(workshop: LogWorkshop) -> None:
    log = workshop.create(replace(COMPACTED, compact=False))
    write(log, (None, b"1"), (b"a", b"1"))
    log.roll()
    log.update_config(COMPACTED)
    stats = clean(log, workshop.clock)
    assert stats is not None
    assert stats.records_without_key == 1
    assert stored_pairs(log) == [(1, b"a", b"1")]


def test_a_damaged_batch_is_not_cleaned_away(workshop: LogWorkshop) -> None:
    log = workshop.create(COMPACTED)
    write(log, (b"a", b"1"))
    place = log.segments[0].size
    write(log, (b"a", b"2"))
    log.roll()
    content = bytearray(workshop.log_bytes())
    content[-1] ^= 1
    (workshop.folder / f"{0:020d}.log").write_bytes(content)
    with pytest.raises(CannotClean, match=f"checksum does not match at position {place}"):
        clean(log, workshop.clock)
    assert workshop.log_bytes() == content
    assert not list(workshop.folder.glob("*.cleaned"))


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        ((0, ">q"), 77, "offset does not follow"),
        ((8, ">i"), 1 << 20, "not whole"),
        ((16, ">b"), 9, "unknown batch format"),
    ],
)
def test_what_lies_outside_of_the_checksum_is_checked_too(
    workshop: LogWorkshop, field: tuple[int, str], value: int, why: str
) -> None:
    log = workshop.create(COMPACTED)
    write(log, (b"a", b"1"))
    log.roll()
    content = bytearray(workshop.log_bytes())
    struct.pack_into(field[1], content, field[0], value)
    (workshop.folder / f"{0:020d}.log").write_bytes(content)
    with pytest.raises(CannotClean, match=why):
        clean(log, workshop.clock)


def test_a_compressed_batch_that_does_not_inflate_is_not_cleaned(workshop: LogWorkshop) -> None:
    log = workshop.create(COMPACTED)
    write(log, (b"a", b"1"))
    log.roll()
    broken = raw_batch.batch(records=b"no gzip", count=1, attributes=1)
    (workshop.folder / f"{0:020d}.log").write_bytes(broken)
    log.segments[0].size = len(broken)
    with pytest.raises(CannotClean, match="gzip"):
        clean(log, workshop.clock)


def test_a_reader_in_the_middle_of_an_old_segment_reads_on(workshop: LogWorkshop) -> None:
    log = workshop.create(COMPACTED)
    for number in range(3):
        write(log, (b"k", b"%d" % number))
    log.roll()
    result = log.read(1, 1 << 20, up_to_offset=3, min_one_batch=True)
    clean(log, workshop.clock)
    assert result.records is not None
    assert [b.base_offset for b in raw_batch.read_batches(result.records.read())] == [1, 2]
    after = log.read(1, 1 << 20, up_to_offset=3, min_one_batch=True)
    assert after.records is not None
    assert [b.base_offset for b in raw_batch.read_batches(after.records.read())] == [2]


def test_a_cleaned_log_loads_after_a_crash_and_after_a_clean_stop(workshop: LogWorkshop) -> None:
    log = workshop.create(COMPACTED)
    for number in range(40):
        write(
            log,
            (b"k%d" % (number % 5), b"%d" % number),
            producer_id=3,
            producer_epoch=0,
            base_sequence=number,
        )
        if number % 10 == 9:
            log.roll()
    clean(log, workshop.clock)
    expected = stored_pairs(log)
    producers = decode_snapshot(workshop.folder.joinpath(f"{40:020d}.snapshot").read_bytes())
    crashed = workshop.load(COMPACTED, high_watermark=40)
    assert (stored_pairs(crashed), crashed.log_end_offset) == (expected, 40)
    closed = workshop.reopen_cleanly(crashed)
    assert stored_pairs(closed) == expected
    assert closed.producers.producers[3].last_sequence == producers[0].last_sequence == 39


def test_a_second_cleaning_of_the_same_range_changes_nothing(workshop: LogWorkshop) -> None:
    log = workshop.create(COMPACTED)
    for number in range(30):
        write(log, (b"k%d" % (number % 4), b"%d" % number), codec=Codec(number % 5))
    log.roll()
    clean(log, workshop.clock)
    before = workshop.log_bytes()
    log.cleaner_offset = 0
    clean(log, workshop.clock)
    assert workshop.log_bytes() == before


def test_the_round_is_summed_up_in_one_line(workshop: LogWorkshop) -> None:
    log = workshop.create(COMPACTED)
    write(log, (b"a", b"1"), (b"a", b"2"))
    log.roll()
    stats = clean(log, workshop.clock)
    assert stats is not None
    assert "2 records to 1" in stats.summary(2)
