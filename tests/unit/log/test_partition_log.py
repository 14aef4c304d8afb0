from __future__ import annotations

import errno
import gc
import os
import resource
import struct
from pathlib import Path

import pytest

from tests.support import raw_batch
from tests.support.log_builder import (
    ABORT,
    COMMIT,
    LogWorkshop,
    end_txn,
    fill,
    offsets,
    produce,
    read_all,
    values,
)
from tests.support.metadata import no_space
from tests.support.syncs import record_syncs
from tidelog.config.topic import LogConfig
from tidelog.errors import ErrorCode, KafkaError
from tidelog.log.leader_epoch_cache import LeaderEpochCache
from tidelog.log.log_errors import (
    OffsetOutOfRange,
    OutOfOrderSequence,
    StorageError,
    UnexpectedAppendOffset,
)
from tidelog.log.partition_log import PartitionLog
from tidelog.log.producer_snapshots import SnapshotFiles
from tidelog.record.errors import BatchAboveSegment, CorruptRecords

BATCH_BYTES = len(raw_batch.batch(b"value"))


@pytest.fixture
def workshop(tmp_path: Path) -> LogWorkshop:
    return LogWorkshop(tmp_path)


# What a log looks like


def test_a_new_partition_is_a_folder_with_an_empty_segment(workshop: LogWorkshop) -> None:
    workshop.create()
    assert workshop.folder.name == "events-0"
    assert workshop.files() == {"00000000000000000000.log": 0, "partition.metadata": 43}


def test_the_first_batch_brings_the_other_files(workshop: LogWorkshop) -> None:
    produce(workshop.create())
    assert workshop.files() == {
        "00000000000000000000.index": 0,
        "00000000000000000000.log": BATCH_BYTES,
        "00000000000000000000.timeindex": 0,
        "leader-epoch-checkpoint": 8,
        "partition.metadata": 43,
    }


def test_a_clean_stop_leaves_trimmed_indexes_and_a_snapshot(workshop: LogWorkshop) -> None:
    log = workshop.create()
    produce(log)
    log.close()
    assert workshop.files() == {
        "00000000000000000000.index": 0,
        "00000000000000000000.log": BATCH_BYTES,
        "00000000000000000000.timeindex": 12,
        "00000000000000000001.snapshot": 10,
        "leader-epoch-checkpoint": 8,
        "partition.metadata": 43,
    }


def test_a_clean_stop_of_an_empty_log_takes_no_snapshot(workshop: LogWorkshop) -> None:
    log = workshop.create()
    log.close()
    assert "00000000000000000000.snapshot" not in workshop.files()


def test_the_log_file_holds_the_batch_with_offset_and_epoch_stamped(workshop: LogWorkshop) -> None:
    log = workshop.create(start_offset=100)
    produce(log, b"a", b"b", leader_epoch=5)
    sent = raw_batch.batch(b"a", b"b", base_timestamp=1_700_000_000_000)
    stored = workshop.log_bytes(100)
    assert stored[:8] == struct.pack(">q", 100)
    assert stored[8:12] == sent[8:12]
    assert stored[12:16] == struct.pack(">i", 5)
    assert stored[16:] == sent[16:]


def test_an_idle_partition_holds_one_descriptor(workshop: LogWorkshop) -> None:
    gc.collect()  # logs of other tests
    before = len(os.listdir("/proc/self/fd"))
    log = workshop.create()
    assert len(os.listdir("/proc/self/fd")) == before + 1
    fill(log, 3)
    assert len(os.listdir("/proc/self/fd")) == before + 1


# Appending


def test_offsets_are_dense_and_the_append_tells_them(workshop: LogWorkshop) -> None:
    log = workshop.create()
    first = produce(log, b"a", b"b")
    second = produce(log, b"c")
    assert (first.base_offset, first.last_offset) == (0, 1)
    assert (second.base_offset, second.last_offset) == (2, 2)
    assert log.log_end_offset == 3
    assert values(log) == [b"a", b"b", b"c"]
    assert first.log_append_time_ms == -1
    assert not first.is_duplicate


def test_log_append_time_is_told(workshop: LogWorkshop) -> None:
    log = workshop.create(LogConfig(message_timestamp_type="LogAppendTime"))
    assert produce(log, timestamp=5).log_append_time_ms == workshop.clock.time_ms()
    assert read_all(log)[0].max_timestamp == workshop.clock.time_ms()


def test_a_duplicate_gets_the_old_offset_and_timestamp_and_is_not_stored(
    workshop: LogWorkshop,
) -> None:
    log = workshop.create()
    produce(log, b"x")
    first = produce(log, b"a", b"b", producer_id=7, producer_epoch=0, sequence=0, timestamp=123456)
    again = produce(log, b"a", b"b", producer_id=7, producer_epoch=0, sequence=0, timestamp=123456)
    assert again.is_duplicate
    assert (again.base_offset, again.last_offset) == (first.base_offset, first.last_offset)
    assert again.log_append_time_ms == 123456
    assert again.size_bytes == 0
    assert log.log_end_offset == 3


def test_a_sequence_gap_leaves_the_log_as_it_was(workshop: LogWorkshop) -> None:
    log = workshop.create()
    produce(log, producer_id=7, producer_epoch=0, sequence=0)
    with pytest.raises(OutOfOrderSequence):
        produce(log, producer_id=7, producer_epoch=0, sequence=2)
    assert log.log_end_offset == 1
    produce(log, producer_id=7, producer_epoch=0, sequence=1)


@pytest.mark.parametrize("written", [0, 1, 30, 60])
def test_a_full_disk_leaves_nothing_half_written(
    workshop: LogWorkshop, monkeypatch: pytest.MonkeyPatch, written: int
) -> None:
    log = workshop.create()
    produce(log, b"before", producer_id=7, producer_epoch=0, sequence=0)
    stored = workshop.log_bytes()
    real_pwrite = os.pwrite

    def disk_fills_up(descriptor: int, data: memoryview, position: int) -> int:
        if position > len(stored) or written == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real_pwrite(descriptor, bytes(data)[:written], position)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", disk_fills_up)
        with pytest.raises(StorageError, match="No space left") as error:
            produce(log, b"lost", producer_id=7, producer_epoch=0, sequence=1)
    assert error.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert workshop.log_bytes() == stored
    assert log.log_end_offset == 1
    produce(log, b"after", producer_id=7, producer_epoch=0, sequence=1)
    assert values(log) == [b"before", b"after"]


def test_a_write_that_the_system_cuts_short_is_taken_back(workshop: LogWorkshop) -> None:
    """The real thing: the kernel writes up to the file size limit, then refuses."""
    log = workshop.create()
    produce(log, b"before")
    stored = workshop.log_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(stored) + 40, hard))
    try:
        with pytest.raises(StorageError, match="File too large"):
            produce(log, b"lost")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert workshop.log_bytes() == stored
    produce(log, b"after")
    assert values(log) == [b"before", b"after"]


def test_a_full_disk_under_the_index_is_met_before_anything_is_written(
    workshop: LogWorkshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = workshop.create(LogConfig(index_interval_bytes=1))
    produce(log, b"before")
    stored = workshop.log_bytes()

    def no_space(*_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", no_space)
        with pytest.raises(StorageError):
            produce(log, b"lost")
    assert workshop.log_bytes() == stored
    produce(log, b"after")
    assert values(log) == [b"before", b"after"]


def test_a_roll_that_fails_leaves_no_second_segment(
    workshop: LogWorkshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = workshop.create()
    produce(log, b"before")
    real_open = os.open

    def no_new_log(path: str, flags: int, *mode: int) -> int:
        if path.endswith(".log") and flags & os.O_CREAT:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real_open(path, flags, *mode)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", no_new_log)
        with pytest.raises(StorageError):
            log.roll()
    assert [name for name in workshop.files() if name.endswith(".log")] == [
        "00000000000000000000.log"
    ]
    produce(log, b"after")
    assert values(workshop.reopen_cleanly(log)) == [b"before", b"after"]


def test_a_refused_batch_changes_nothing(workshop: LogWorkshop) -> None:
    log = workshop.create()
    bad = bytearray(raw_batch.batch(b"x", crc=1))
    with pytest.raises(CorruptRecords):
        log.append_as_leader(memoryview(bad), 0)
    assert log.log_end_offset == 0
    assert workshop.log_bytes() == b""


# Followers


def test_a_follower_keeps_the_leaders_bytes(workshop: LogWorkshop, tmp_path: Path) -> None:
    leader = LogWorkshop(tmp_path / "leader")
    leader.root.mkdir()
    source = leader.create(LogConfig(index_interval_bytes=100))
    for number in range(20):
        produce(
            source,
            b"value %d" % number,
            leader_epoch=number // 8,
            producer_id=7,
            producer_epoch=0,
            sequence=number,
            timestamp=1_700_000_000_000 + number,
        )
    follower = workshop.create(source.config)
    content = leader.log_bytes()
    cut = read_all(source)[12].position
    follower.append_as_follower(memoryview(content[:cut]))
    info = follower.append_as_follower(memoryview(content[cut:]))
    assert (info.base_offset, info.last_offset) == (12, 19)
    source.close()
    follower.close()
    for name in ("00000000000000000000.log", "00000000000000000000.timeindex"):
        assert (workshop.folder / name).read_bytes() == (leader.folder / name).read_bytes()
    index = "00000000000000000000.index"
    assert (workshop.folder / index).read_bytes() == (leader.folder / index).read_bytes()
    assert follower.epochs.entries == source.epochs.entries == [(0, 0), (1, 8), (2, 16)]
    assert follower.producers.producers[7].last_sequence == 19


def test_a_follower_takes_whole_batches_only(workshop: LogWorkshop) -> None:
    log = workshop.create()
    one, two = raw_batch.batch(b"a"), raw_batch.batch(b"b", base_offset=1)
    log.append_as_follower(memoryview(one + two[:-1]))
    assert log.log_end_offset == 1


def test_a_follower_refuses_what_does_not_continue_its_log(workshop: LogWorkshop) -> None:
    log = workshop.create(start_offset=5)
    with pytest.raises(UnexpectedAppendOffset) as error:
        log.append_as_follower(memoryview(raw_batch.batch(b"a", base_offset=4)))
    assert error.value.first_offset == 4
    log.append_as_follower(memoryview(raw_batch.batch(b"a", base_offset=9)))
    assert log.log_end_offset == 10


def test_a_follower_refuses_damaged_batches(workshop: LogWorkshop) -> None:
    log = workshop.create()
    with pytest.raises(CorruptRecords):
        log.append_as_follower(memoryview(raw_batch.batch(b"a", crc=1)))
    assert workshop.log_bytes() == b""


# Reading


def test_reading_stops_below_the_bound(workshop: LogWorkshop) -> None:
    log = workshop.create()
    fill(log, 5)
    result = log.read(1, 1 << 20, up_to_offset=3, min_one_batch=True)
    assert result.records is not None
    batches = raw_batch.read_batches(result.records.read())
    assert [batch.base_offset for batch in batches] == [1, 2]


def test_reading_at_the_bound_gives_nothing(workshop: LogWorkshop) -> None:
    log = workshop.create()
    fill(log, 5)
    for offset, bound in ((3, 3), (4, 3), (5, 5)):
        result = log.read(offset, 1 << 20, up_to_offset=bound, min_one_batch=True)
        assert result.records is None


@pytest.mark.parametrize("offset", [-1, 1, 6])
def test_an_offset_outside_of_the_log_is_out_of_range(workshop: LogWorkshop, offset: int) -> None:
    log = workshop.create(start_offset=2)
    fill(log, 3)
    with pytest.raises(OffsetOutOfRange) as error:
        log.read(offset, 100, up_to_offset=5, min_one_batch=True)
    assert error.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_an_offset_inside_a_batch_gives_the_whole_batch(workshop: LogWorkshop) -> None:
    log = workshop.create()
    produce(log, b"a", b"b", b"c")
    result = log.read(1, 1 << 20, up_to_offset=3, min_one_batch=True)
    assert result.records is not None
    assert raw_batch.read_batches(result.records.read())[0].base_offset == 0


def test_the_first_batch_is_whole_if_asked_for(workshop: LogWorkshop) -> None:
    log = workshop.create()
    produce(log, b"a" * 500)
    produce(log, b"b" * 500)
    whole = log.read(0, 10, up_to_offset=2, min_one_batch=True)
    assert whole.records is not None
    assert len(raw_batch.read_batches(whole.records.read())) == 1
    part = log.read(0, 10, up_to_offset=2, min_one_batch=False)
    assert part.records is not None
    assert len(part.records) == 10
    assert part.records.is_piece
    assert log.read(0, 0, up_to_offset=2, min_one_batch=False).records is None


@pytest.mark.parametrize("max_bytes", [1, 100, 333, 5000, 1 << 20])
@pytest.mark.parametrize("interval", [1, 300, 4096])
def test_reading_on_and_on_gives_every_record_once(
    workshop: LogWorkshop, max_bytes: int, interval: int
) -> None:
    log = workshop.create(LogConfig(segment_bytes=3000, index_interval_bytes=interval))
    fill(log, 60, lambda number: [b"%d" % number] * (number % 4 + 1))
    found = [r.offset for batch in read_all(log, max_bytes=max_bytes) for r in batch.records()]
    assert found == list(range(log.log_end_offset))


def test_every_offset_can_be_read_in_any_order(workshop: LogWorkshop) -> None:
    log = workshop.create(LogConfig(segment_bytes=2000, index_interval_bytes=200))
    fill(log, 40, lambda number: [b"%d" % number] * (number % 3 + 1))
    for offset in sorted(range(log.log_end_offset), key=lambda o: o * 7919 % 101):
        result = log.read(offset, 400, up_to_offset=log.high_watermark, min_one_batch=True)
        assert result.records is not None
        first = raw_batch.read_batches(result.records.read())[0]
        assert first.base_offset <= offset <= first.last_offset


def test_a_reader_that_waits_at_the_end_goes_on_there(workshop: LogWorkshop) -> None:
    log = workshop.create(LogConfig(segment_bytes=400))
    for number in range(12):
        assert log.read(number, 1 << 20, up_to_offset=number, min_one_batch=True).records is None
        produce(log, b"%d" % number)
        result = log.read(number, 1 << 20, up_to_offset=number + 1, min_one_batch=True)
        assert result.records is not None
        assert raw_batch.read_batches(result.records.read())[0].base_offset == number


def test_a_slice_outlives_its_segment(workshop: LogWorkshop) -> None:
    log = workshop.create(LogConfig(retention_ms=1))
    produce(log, b"kept by its reader", timestamp=5)
    log.roll()
    result = log.read(0, 1000, up_to_offset=1, min_one_batch=True)
    assert result.records is not None
    assert log.delete_old_segments() == 1
    for paths, _ in workshop.deletions:
        for path in paths:
            os.unlink(path)
    batch = raw_batch.read_batches(result.records.read())[0]
    assert [record.value for record in batch.records()] == [b"kept by its reader"]


# Rolling


def segment_bases(log: PartitionLog) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def test_a_batch_that_does_not_fit_goes_to_a_new_segment(workshop: LogWorkshop) -> None:
    log = workshop.create(LogConfig(segment_bytes=2 * BATCH_BYTES))
    fill(log, 2, lambda _: [b"value"])
    assert segment_bases(log) == [0]
    produce(log, b"value")
    assert segment_bases(log) == [0, 2]
    assert workshop.rolled == [log]


def test_a_batch_larger_than_a_segment_is_refused(workshop: LogWorkshop) -> None:
    log = workshop.create(LogConfig(segment_bytes=200))
    with pytest.raises(BatchAboveSegment):
        produce(log, b"x" * 200)
    assert log.log_end_offset == 0


def test_time_of_roll_counts_from_the_first_batchs_timestamp(workshop: LogWorkshop) -> None:
    log = workshop.create(LogConfig(segment_ms=1000))
    produce(log, timestamp=50_000)
    workshop.clock.advance(ms=10_000_000)
    produce(log, timestamp=51_000)
    assert segment_bases(log) == [0]
    produce(log, timestamp=51_001)
    assert segment_bases(log) == [0, 2]
    produce(log, timestamp=40_000)
    assert segment_bases(log) == [0, 2]


def test_time_of_roll_is_kept_over_a_restart(workshop: LogWorkshop) -> None:
    log = workshop.create(LogConfig(segment_ms=1000))
    produce(log, timestamp=50_000)
    log = workshop.reopen_cleanly(log)
    produce(log, timestamp=51_001)
    assert segment_bases(log) == [0, 1]


def test_without_timestamps_the_clock_counts(workshop: LogWorkshop) -> None:
    log = workshop.create(LogConfig(segment_ms=1000))
    produce(log, timestamp=-1)
    workshop.clock.advance(ms=1000)
    produce(log, timestamp=-1)
    assert segment_bases(log) == [0]
    workshop.clock.advance(ms=1)
    produce(log, timestamp=-1)
    assert segment_bases(log) == [0, 2]


def test_jitter_makes_the_roll_come_earlier(workshop: LogWorkshop) -> None:
    config = LogConfig(segment_ms=1000, segment_jitter_ms=1000)
    log = workshop.create(config)
    jitter_ms = log.active_segment.jitter_ms
    assert 0 < jitter_ms < 1000
    produce(log, timestamp=5000)
    produce(log, timestamp=6000 - jitter_ms)
    assert segment_bases(log) == [0]
    produce(log, timestamp=6001 - jitter_ms)
    assert segment_bases(log) == [0, 2]


def test_a_full_offset_index_rolls(workshop: LogWorkshop) -> None:
    log = workshop.create(LogConfig(index_interval_bytes=1, segment_index_bytes=64))
    for _ in range(20):
        produce(log, timestamp=77)
    # The first batch has no entry, 8 fill the index, and the next one finds it full.
    assert segment_bases(log)[:2] == [0, 9]
    assert (workshop.folder / "00000000000000000000.index").stat().st_size == 64


def test_a_time_index_is_full_one_entry_early(workshop: LogWorkshop) -> None:
    log = workshop.create(LogConfig(index_interval_bytes=1, segment_index_bytes=64))
    fill(log, 20)
    # 64 bytes hold five entries: four by index interval, the fifth at roll.
    assert segment_bases(log)[:2] == [0, 5]
    assert (workshop.folder / "00000000000000000000.timeindex").stat().st_size == 48


def test_an_offset_too_far_from_the_base_rolls(workshop: LogWorkshop) -> None:
    log = workshop.create()
    log.append_as_follower(memoryview(raw_batch.batch(b"a")))
    far = 2**31 - 1
    log.append_as_follower(memoryview(raw_batch.batch(b"b", base_offset=far)))
    assert segment_bases(log) == [0]
    log.append_as_follower(memoryview(raw_batch.batch(b"c", base_offset=far + 1)))
    assert segment_bases(log) == [0, far + 1]
    log.update_high_watermark(log.log_end_offset)
    assert [batch.base_offset for batch in read_all(log)] == [0, far, far + 1]


def test_every_roll_takes_a_snapshot_even_without_producers(workshop: LogWorkshop) -> None:
    log = workshop.create()
    produce(log)
    log.roll()
    assert workshop.files()["00000000000000000001.snapshot"] == 10


def test_rolling_an_empty_segment_changes_nothing(workshop: LogWorkshop) -> None:
    log = workshop.create()
    log.roll()
    assert segment_bases(log) == [0]


def test_a_rolled_segment_has_its_largest_timestamp_in_the_index(workshop: LogWorkshop) -> None:
    log = workshop.create()
    produce(log, timestamp=1_700_000_000_500)
    produce(log, timestamp=1_700_000_000_100)
    log.roll()
    assert (workshop.folder / "00000000000000000000.timeindex").read_bytes() == struct.pack(
        ">qi", 1_700_000_000_500, 0
    )


def test_index_entries_are_made_per_interval_and_never_for_position_0(
    workshop: LogWorkshop,
) -> None:
    log = workshop.create(LogConfig(index_interval_bytes=3 * BATCH_BYTES))
    for number in range(10):
        produce(log, timestamp=1_700_000_000_000 + number)
    log.close()
    index = (workshop.folder / "00000000000000000000.index").read_bytes()
    # An entry is due when more than the interval lies since the last indexed batch.
    assert list(struct.iter_unpack(">ii", index)) == [(4, 4 * BATCH_BYTES), (8, 8 * BATCH_BYTES)]
    times = (workshop.folder / "00000000000000000000.timeindex").read_bytes()
    assert [offset for _, offset in struct.iter_unpack(">qi", times)] == [4, 8, 9]


def test_indexes_that_are_removed_under_a_running_log_come_back(workshop: LogWorkshop) -> None:
    config = LogConfig(index_interval_bytes=1, segment_index_bytes=1 << 16)
    log = workshop.create(config)
    fill(log, 5)
    for suffix in ("index", "timeindex"):
        (workshop.folder / f"00000000000000000000.{suffix}").unlink()
    fill(log, 5)
    log.roll()
    log.close()
    assert workshop.files()["00000000000000000000.index"] == 9 * 8
    assert offsets(workshop.reopen_cleanly(log)) == list(range(10))


def test_reading_from_a_segment_with_garbage_inside_is_an_error_of_its_own(
    workshop: LogWorkshop,
) -> None:
    log = workshop.create()
    fill(log, 6)
    content = bytearray(workshop.log_bytes())
    third = raw_batch.read_batches(bytes(content))[3]
    content[third.position + 8 : third.position + 12] = bytes(4)
    (workshop.folder / "00000000000000000000.log").write_bytes(content)
    assert log.read(2, 1, up_to_offset=6, min_one_batch=True).records is not None
    with pytest.raises(CorruptRecords, match="no batch"):
        log.read(5, 1, up_to_offset=6, min_one_batch=True)


# Shortening


def test_delete_records_moves_the_log_start_and_the_epochs(workshop: LogWorkshop) -> None:
    log = workshop.create()
    fill(log, 4)
    produce(log, leader_epoch=1)
    assert log.maybe_increment_log_start_offset(3)
    assert log.log_start_offset == 3
    assert log.epochs.entries == [(0, 3), (1, 4)]
    assert not log.maybe_increment_log_start_offset(2)
    with pytest.raises(OffsetOutOfRange):
        log.read(2, 100, up_to_offset=5, min_one_batch=True)
    assert offsets(log) == [3, 4]
    assert len(log.segments) == 1


def test_the_log_start_cannot_pass_the_high_watermark(workshop: LogWorkshop) -> None:
    log = workshop.create()
    produce(log, committed=False)
    with pytest.raises(OffsetOutOfRange):
        log.maybe_increment_log_start_offset(1)


def test_segments_below_the_log_start_go_with_retention(workshop: LogWorkshop) -> None:
    log = workshop.create(LogConfig(delete=False, compact=True))
    for _ in range(3):
        log.append_as_leader(memoryview(bytearray(raw_batch.batch(b"v", key=b"k"))), 0)
        log.update_high_watermark(log.log_end_offset)
        log.roll()
    log.maybe_increment_log_start_offset(2)
    assert log.delete_old_segments() == 2
    assert segment_bases(log) == [2, 3]


def test_deleted_segments_are_renamed_and_removed_later(workshop: LogWorkshop) -> None:
    log = workshop.create(LogConfig(retention_ms=1000, file_delete_delay_ms=60_000))
    produce(log, timestamp=workshop.clock.time_ms())
    log.roll()
    produce(log, timestamp=workshop.clock.time_ms() + 5000)
    workshop.clock.advance(ms=1001)
    assert log.delete_old_segments() == 1
    assert log.log_start_offset == 1
    [(paths, delay_ms)] = workshop.deletions
    assert delay_ms == 60_000
    assert {Path(path).name for path in paths} == {
        "00000000000000000000.log.deleted",
        "00000000000000000000.index.deleted",
        "00000000000000000000.timeindex.deleted",
    }
    assert all(Path(path).exists() for path in paths)


def test_retention_can_take_everything_and_leaves_an_empty_segment(workshop: LogWorkshop) -> None:
    log = workshop.create(LogConfig(retention_ms=1000))
    produce(log, b"a", b"b", timestamp=workshop.clock.time_ms())
    workshop.clock.advance(ms=1001)
    assert log.delete_old_segments() == 1
    assert segment_bases(log) == [2]
    assert (log.log_start_offset, log.log_end_offset) == (2, 2)
    assert log.delete_old_segments() == 0


def test_without_timestamps_retention_goes_by_the_files_time(workshop: LogWorkshop) -> None:
    log = workshop.create(LogConfig(retention_ms=1000))
    produce(log, timestamp=-1)
    log.roll()
    path = workshop.folder / "00000000000000000000.log"
    now = workshop.clock.time_ms() / 1000
    os.utime(path, (now, now))
    assert log.delete_old_segments() == 0
    os.utime(path, (now - 2, now - 2))
    assert log.delete_old_segments() == 1


def test_retention_spares_what_is_not_committed(workshop: LogWorkshop) -> None:
    log = workshop.create(LogConfig(retention_ms=1))
    produce(log, timestamp=5, committed=False)
    log.roll()
    assert log.delete_old_segments() == 0


def test_size_retention_drops_the_oldest(workshop: LogWorkshop) -> None:
    log = workshop.create(LogConfig(retention_bytes=2 * BATCH_BYTES, retention_ms=-1))
    for _ in range(4):
        produce(log)
        log.roll()
    assert log.delete_old_segments() == 2
    assert segment_bases(log) == [2, 3, 4]


def test_truncation_drops_records_epochs_and_producers(workshop: LogWorkshop) -> None:
    log = workshop.create(LogConfig(segment_bytes=3 * BATCH_BYTES))
    for number in range(8):
        produce(log, leader_epoch=number // 4, producer_id=7, producer_epoch=0, sequence=number)
    assert log.truncate_to(4)
    assert log.log_end_offset == log.high_watermark == 4
    assert offsets(log) == [0, 1, 2, 3]
    assert log.epochs.entries == [(0, 0)]
    assert produce(log, producer_id=7, producer_epoch=0, sequence=4).base_offset == 4
    assert workshop.log_bytes(3)[:8] == struct.pack(">q", 3)


def test_an_epoch_that_was_truncated_away_comes_back_with_its_next_batch(
    workshop: LogWorkshop,
) -> None:
    log = workshop.create()
    produce(log, leader_epoch=1)
    produce(log, leader_epoch=2)
    log.truncate_to(1)
    produce(log, leader_epoch=2)
    assert log.epochs.entries == [(1, 0), (2, 1)]


def test_truncation_at_the_end_changes_nothing(workshop: LogWorkshop) -> None:
    log = workshop.create()
    fill(log, 3)
    assert not log.truncate_to(3)
    assert offsets(log) == [0, 1, 2]


def test_truncation_finds_the_largest_timestamp_that_is_left(workshop: LogWorkshop) -> None:
    log = workshop.create()
    for timestamp in (1000, 3000, 2000, 9000):
        produce(log, timestamp=timestamp)
    log.truncate_to(3)
    assert log.max_timestamp() == (3000, 1)


def test_truncation_below_the_log_starts_anew(workshop: LogWorkshop) -> None:
    log = workshop.create(start_offset=100)
    fill(log, 3)
    assert log.truncate_to(50)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (50, 50, 50)
    assert segment_bases(log) == [50]
    assert log.epochs.entries == []
    produce(log)
    assert offsets(workshop.reopen_cleanly(log)) == [50]


def test_a_log_can_start_anew_at_its_own_base(workshop: LogWorkshop) -> None:
    log = workshop.create()
    fill(log, 3)
    log.truncate_fully_and_start_at(0)
    assert workshop.log_bytes() == b""
    produce(log, b"new")
    assert values(log) == [b"new"]


# Transactions


@pytest.mark.parametrize("high_watermark", [2, 3, 4])
def test_a_finished_transaction_holds_nothing_back_after_a_truncation(
    workshop: LogWorkshop, high_watermark: int
) -> None:
    log = workshop.create()
    produce(log, b"a", producer_id=7, producer_epoch=0, sequence=0, transactional=True)
    end_txn(log, COMMIT, producer_id=7)
    produce(log, b"b", committed=False)
    produce(log, b"c", committed=False)
    log.update_high_watermark(high_watermark)
    log.truncate_to(3)
    assert log.last_stable_offset == log.high_watermark == min(high_watermark, 3)


def test_a_truncation_whose_snapshot_cannot_be_written_leaves_the_log_as_it_is_to_be(
    workshop: LogWorkshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = workshop.create()
    produce(log, b"a", producer_id=7, producer_epoch=0, sequence=0, transactional=True)
    end_txn(log, COMMIT, producer_id=7)
    produce(log, b"b", producer_id=8, producer_epoch=0, sequence=0, transactional=True)
    with monkeypatch.context() as patch:
        patch.setattr(SnapshotFiles, "take", no_space)
        with pytest.raises(StorageError):
            log.truncate_to(2)
    assert (log.log_end_offset, log.last_stable_offset) == (2, 2)
    assert set(log.producers.producers) == {7}
    produce(log, b"c", producer_id=8, producer_epoch=0, sequence=0)
    assert workshop.load().log_end_offset == 3


def test_epochs_that_a_truncation_could_not_write_are_written_with_the_next_batch(
    workshop: LogWorkshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = workshop.create()
    batch = raw_batch.batch(b"a", base_offset=1, leader_epoch=1)
    produce(log, leader_epoch=1)
    produce(log, leader_epoch=2)
    with monkeypatch.context() as patch:
        patch.setattr(LeaderEpochCache, "save", no_space)
        with pytest.raises(StorageError):
            log.truncate_to(1)
    log.append_as_follower(memoryview(batch))
    assert workshop.load().epochs.entries == [(1, 0)]


def test_a_truncation_that_cannot_read_changes_nothing(
    workshop: LogWorkshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = workshop.create()
    fill(log, 3)
    with monkeypatch.context() as patch:
        patch.setattr("tidelog.log.partition_log.producers_at", no_space)
        with pytest.raises(StorageError):
            log.truncate_to(1)
    assert offsets(log) == [0, 1, 2]


def test_an_open_transaction_holds_the_last_stable_offset(workshop: LogWorkshop) -> None:
    log = workshop.create()
    produce(log)
    produce(log, producer_id=7, producer_epoch=0, sequence=0, transactional=True)
    produce(log)
    assert (log.last_stable_offset, log.high_watermark) == (1, 3)
    end_txn(log, COMMIT, producer_id=7, committed=False)
    assert log.last_stable_offset == 1
    log.update_high_watermark(4)
    assert log.last_stable_offset == 4


def test_an_abort_is_indexed_and_told_to_readers(workshop: LogWorkshop) -> None:
    log = workshop.create()
    produce(log, producer_id=7, producer_epoch=0, sequence=0, transactional=True)
    end_txn(log, ABORT, producer_id=7)
    produce(log)
    assert workshop.files()["00000000000000000000.txnindex"] == 34
    result = log.read(0, 1 << 20, up_to_offset=3, min_one_batch=True)
    [aborted] = log.aborted_transactions(0, result)
    assert (aborted.producer_id, aborted.first_offset) == (7, 0)
    later = log.read(2, 1 << 20, up_to_offset=3, min_one_batch=True)
    assert log.aborted_transactions(2, later) == []


def test_an_abort_in_a_later_segment_is_found(workshop: LogWorkshop) -> None:
    log = workshop.create()
    produce(log, producer_id=7, producer_epoch=0, sequence=0, transactional=True)
    log.roll()
    end_txn(log, ABORT, producer_id=7)
    result = log.read(0, 1 << 20, up_to_offset=2, min_one_batch=True)
    assert [entry.producer_id for entry in log.aborted_transactions(0, result)] == [7]


# Flushing


def test_a_log_without_aborts_looks_for_none(workshop: LogWorkshop) -> None:
    log = workshop.create()
    for _ in range(3):
        produce(log)
        log.roll()
    produce(log)
    result = log.read(0, 1000, up_to_offset=4, min_one_batch=True)
    assert log.aborted_transactions(0, result) == []
    for path in workshop.folder.iterdir():
        path.unlink()
    log.release_maps()
    assert log.aborted_transactions(0, result) == []
    assert list(workshop.folder.iterdir()) == []


def test_an_abort_is_told_although_readers_have_asked_before(workshop: LogWorkshop) -> None:
    log = workshop.create()
    produce(log, producer_id=7, producer_epoch=0, sequence=0, transactional=True)
    result = log.read(0, 1000, up_to_offset=1, min_one_batch=True)
    assert log.aborted_transactions(0, result) == []
    log.roll()
    end_txn(log, ABORT, producer_id=7)
    [aborted] = log.aborted_transactions(0, result)
    assert (aborted.producer_id, aborted.first_offset, aborted.last_offset) == (7, 0, 1)
    log.truncate_to(1)
    assert log.aborted_transactions(0, result) == []


def test_a_transaction_index_that_is_garbled_under_a_running_log_is_rebuilt(
    workshop: LogWorkshop,
) -> None:
    log = workshop.create()
    produce(log, producer_id=7, producer_epoch=0, sequence=0, transactional=True)
    log.roll()
    end_txn(log, ABORT, producer_id=7)
    result = log.read(0, 1000, up_to_offset=2, min_one_batch=True)
    [expected] = log.aborted_transactions(0, result)
    segment = log.segments[1]
    Path(segment.path(".txnindex")).write_bytes(bytes(35))
    segment.move_to(segment.directory)
    assert log.aborted_transactions(0, result) == [expected]
    assert Path(segment.path(".txnindex")).stat().st_size == 34


def test_an_unreadable_transaction_index_is_a_storage_error(
    workshop: LogWorkshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = workshop.create()
    produce(log, producer_id=7, producer_epoch=0, sequence=0, transactional=True)
    end_txn(log, ABORT, producer_id=7)
    result = log.read(0, 1000, up_to_offset=2, min_one_batch=True)
    path = Path(log.segments[0].path(".txnindex"))
    path.unlink()
    path.mkdir()
    log.segments[0].move_to(log.segments[0].directory)
    with pytest.raises(StorageError):
        log.aborted_transactions(0, result)


def test_a_flush_moves_the_recovery_point(workshop: LogWorkshop) -> None:
    log = workshop.create()
    fill(log, 3)
    ticket = log.flush_begin()
    produce(log)
    ticket.run()
    log.flush_done(ticket)
    assert (log.recovery_point, log.unflushed_messages) == (3, 1)


def test_a_flush_overtaken_by_a_truncation_counts_for_nothing(workshop: LogWorkshop) -> None:
    log = workshop.create()
    fill(log, 3)
    ticket = log.flush_begin()
    log.truncate_to(1)
    produce(log)
    produce(log)
    ticket.run()
    log.flush_done(ticket)
    assert log.recovery_point == 0


def test_a_flush_reaches_rolled_segments_and_survives_their_deletion(
    workshop: LogWorkshop,
) -> None:
    log = workshop.create(LogConfig(retention_ms=1))
    produce(log, timestamp=5)
    log.roll()
    ticket = log.flush_begin()
    log.delete_old_segments()
    for paths, _ in workshop.deletions:
        for path in paths:
            os.unlink(path)
    ticket.run()
    log.flush_done(ticket)
    assert log.recovery_point == 1


@pytest.mark.parametrize(
    ("config", "due"),
    [
        (LogConfig(flush_messages=2), False),
        (LogConfig(flush_messages=1), True),
        (LogConfig(flush_ms=1001), False),
        (LogConfig(flush_ms=1000), True),
    ],
)
def test_a_flush_is_due_by_messages_or_time(
    workshop: LogWorkshop, config: LogConfig, due: bool
) -> None:
    log = workshop.create(config)
    workshop.clock.advance(ms=1000)
    assert not log.is_flush_due()
    produce(log)
    assert log.is_flush_due() is due


def test_the_first_flush_syncs_the_topic_id_and_the_folder(
    workshop: LogWorkshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = workshop.create()
    produce(log)
    synced = record_syncs(monkeypatch)
    log.flush()
    names = [Path(path).name for path in synced]
    assert {"partition.metadata", "events-0", "leader-epoch-checkpoint"} < set(names)
    synced.clear()
    produce(log)
    log.flush()
    assert [Path(path).name for path in synced] == [f"{0:020d}.log"]


def test_a_flush_after_a_roll_reaches_a_segment_from_before_the_restart(
    workshop: LogWorkshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = workshop.create()
    produce(log)
    log = workshop.reopen_cleanly(log)
    produce(log)
    log.roll()
    synced = record_syncs(monkeypatch)
    log.flush()
    names = [Path(path).name for path in synced]
    assert {f"{0:020d}.log", f"{0:020d}.index", f"{0:020d}.timeindex"} < set(names)


def test_a_stop_survives_an_index_that_was_removed_meanwhile(workshop: LogWorkshop) -> None:
    log = workshop.create()
    fill(log, 3)
    log = workshop.reopen_cleanly(log)
    fill(log, 3)
    (workshop.folder / f"{0:020d}.timeindex").unlink()
    log.close()
    assert workshop.files()[f"{0:020d}.timeindex"] == 12


def test_a_failed_flush_leaves_the_recovery_point(
    workshop: LogWorkshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = workshop.create()
    produce(log)

    def broken(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", broken)
        with pytest.raises(KafkaError, match="Input/output error"):
            log.flush()
    assert log.recovery_point == 0
    log.flush()
    assert log.recovery_point == 1


# Leader epochs


def test_an_epoch_reaches_the_disk_with_its_first_batch(workshop: LogWorkshop) -> None:
    log = workshop.create()
    log.enter_leader_epoch(4)
    assert log.latest_epoch == 4
    assert "leader-epoch-checkpoint" not in workshop.files()
    produce(log, leader_epoch=4)
    path = workshop.folder / "leader-epoch-checkpoint"
    assert path.read_bytes() == b"0\n1\n4 0\n"


def test_the_end_of_an_epoch_is_told(workshop: LogWorkshop) -> None:
    log = workshop.create()
    produce(log, leader_epoch=1)
    produce(log, leader_epoch=3)
    assert log.epoch_end_offset(1) == (1, 1)
    assert log.epoch_end_offset(2) == (1, 1)
    assert log.epoch_end_offset(3) == (3, 2)
    assert log.epoch_end_offset(4) == (-1, -1)
    assert [log.epoch_at(offset) for offset in (0, 1)] == [1, 3]


def test_the_segments_of_an_old_offset_request_go_by_file_time(workshop: LogWorkshop) -> None:
    log = workshop.create()
    produce(log)
    log.roll()
    produce(log)
    os.utime(workshop.folder / "00000000000000000000.log", (1000, 1000))
    (start, written_ms), (second, _), end = log.offsets_by_time(now_ms=77)
    assert (start, written_ms, second, end) == (0, 1_000_000, 1, (2, 77))
