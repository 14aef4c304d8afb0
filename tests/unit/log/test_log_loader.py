from __future__ import annotations

import logging
import os
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
from tests.support.message_sets import message_set_of
from tidelog.config.topic import LogConfig
from tidelog.log.log_errors import OutOfOrderSequence
from tidelog.log.partition_log import PartitionLog
from tidelog.record.batch import Codec
from tidelog.record.legacy import LegacyRecord

SEGMENT = "00000000000000000000"
SMALL_INTERVAL = LogConfig(index_interval_bytes=150)


@pytest.fixture
def workshop(tmp_path: Path) -> LogWorkshop:
    return LogWorkshop(tmp_path)


def committed(log: PartitionLog) -> PartitionLog:
    log.update_high_watermark(log.log_end_offset)
    return log


def index_bytes(workshop: LogWorkshop, base_offset: int = 0) -> tuple[bytes, bytes]:
    stem = workshop.folder / f"{base_offset:020d}"
    return Path(f"{stem}.index").read_bytes(), Path(f"{stem}.timeindex").read_bytes()


# Tails


def test_a_tail_torn_at_any_byte_is_cut_to_the_last_whole_batch(workshop: LogWorkshop) -> None:
    log = workshop.create(SMALL_INTERVAL)
    fill(log, 6, lambda number: [b"%d" % number, b"x" * number])
    content = workshop.log_bytes()
    ends = [batch.position + batch.size_bytes for batch in raw_batch.read_batches(content)]
    path = workshop.folder / f"{SEGMENT}.log"
    for length in range(ends[2], len(content)):
        path.write_bytes(content[:length])
        recovered = committed(workshop.load(SMALL_INTERVAL))
        whole = sum(end <= length for end in ends)
        assert recovered.log_end_offset == whole * 2, length
        assert path.stat().st_size == ends[whole - 1], length
        assert offsets(recovered) == list(range(whole * 2)), length


@pytest.mark.parametrize("tail", [b"\0" * 4096, b"\xff" * 500, os.urandom(3000), b"x"])
def test_zeros_and_garbage_after_the_last_batch_are_cut(
    workshop: LogWorkshop, tail: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    log = workshop.create()
    fill(log, 3)
    content = workshop.log_bytes()
    (workshop.folder / f"{SEGMENT}.log").write_bytes(content + tail)
    with caplog.at_level(logging.WARNING):
        recovered = committed(workshop.load())
    assert offsets(recovered) == [0, 1, 2]
    assert workshop.log_bytes() == content
    assert f"cutting {len(tail)} bytes" in caplog.text


def test_every_flipped_byte_that_is_protected_cuts_the_log_there(workshop: LogWorkshop) -> None:
    """Base offset and leader epoch are not, in Kafka's format."""
    log = workshop.create()
    fill(log, 3)
    content = workshop.log_bytes()
    second = raw_batch.read_batches(content)[1]
    path = workshop.folder / f"{SEGMENT}.log"
    for place in (*range(8, 12), *range(16, second.size_bytes)):
        damaged = bytearray(content)
        damaged[second.position + place] ^= 0x81
        path.write_bytes(damaged)
        assert workshop.load().log_end_offset == 1, place


def test_an_offset_that_goes_back_cuts_the_log_there(workshop: LogWorkshop) -> None:
    log = workshop.create()
    fill(log, 3)
    content = workshop.log_bytes()
    (workshop.folder / f"{SEGMENT}.log").write_bytes(content + content[:100])
    assert workshop.load().log_end_offset == 3


def test_writing_goes_on_after_a_cut(workshop: LogWorkshop) -> None:
    log = workshop.create()
    fill(log, 3)
    path = workshop.folder / f"{SEGMENT}.log"
    path.write_bytes(workshop.log_bytes()[:-1])
    log = workshop.load()
    produce(log, b"next")
    assert values(log) == [b"value 0", b"value 1", b"next"]


def test_damage_drops_all_later_segments(
    workshop: LogWorkshop, caplog: pytest.LogCaptureFixture
) -> None:
    log = workshop.create()
    for _ in range(3):
        fill(log, 2)
        log.roll()
    path = workshop.folder / "00000000000000000002.log"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    log = committed(workshop.load())
    assert offsets(log) == [0, 1, 2]
    assert [segment.base_offset for segment in log.segments] == [0, 2]
    remaining = {name for name in workshop.files() if not name.endswith(".deleted")}
    assert not {name for name in remaining if name.startswith(f"{4:020d}.log")}
    assert "checksum does not match" in caplog.text
    assert len(workshop.deletions) == 1


def test_a_batch_longer_than_a_piece_is_recovered(
    workshop: LogWorkshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.log.segment.segment_scan.PIECE_BYTES", 256)
    log = workshop.create()
    for size in (10, 100, 300, 1000, 5, 257, 256):
        produce(log, b"x" * size)
    assert workshop.load().log_end_offset == 7
    path = workshop.folder / f"{SEGMENT}.log"
    content = bytearray(workshop.log_bytes())
    content[raw_batch.read_batches(bytes(content))[3].position + 700] ^= 1
    path.write_bytes(content)
    assert workshop.load().log_end_offset == 3


def test_a_length_that_claims_the_rest_of_the_file_is_not_believed(
    workshop: LogWorkshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.log.segment.segment_scan.PIECE_BYTES", 256)
    log = workshop.create()
    fill(log, 20)
    content = bytearray(workshop.log_bytes())
    fifth = raw_batch.read_batches(bytes(content))[5]
    struct.pack_into(">i", content, fifth.position + 8, len(content) - fifth.position - 12)
    (workshop.folder / f"{SEGMENT}.log").write_bytes(content)
    assert workshop.load().log_end_offset == 5


# What is looked at


def test_only_segments_from_the_recovery_point_on_are_verified(workshop: LogWorkshop) -> None:
    log = workshop.create()
    for _ in range(3):
        fill(log, 2)
        log.roll()
    for base in (0, 2):
        path = workshop.folder / f"{base:020d}.log"
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)
    assert workshop.load(recovery_point=5).log_end_offset == 6
    assert workshop.load(recovery_point=3).log_end_offset == 3


def test_a_clean_stop_needs_no_verification(workshop: LogWorkshop) -> None:
    log = workshop.create()
    fill(log, 3)
    log.close()
    content = bytearray(workshop.log_bytes())
    content[-1] ^= 1
    (workshop.folder / f"{SEGMENT}.log").write_bytes(content)
    assert workshop.load(clean=True).log_end_offset == 3


def test_a_cut_tail_is_noticed_after_a_clean_stop_too(workshop: LogWorkshop) -> None:
    log = workshop.create()
    fill(log, 3)
    log.close()
    (workshop.folder / f"{SEGMENT}.log").write_bytes(workshop.log_bytes()[:-1])
    log = committed(workshop.load(clean=True))
    produce(log, b"next")
    assert values(log) == [b"value 0", b"value 1", b"next"]


def test_the_recovery_point_is_no_further_than_what_was_synced(workshop: LogWorkshop) -> None:
    log = workshop.create()
    fill(log, 3)
    assert workshop.load(recovery_point=1).recovery_point == 1
    assert workshop.load(recovery_point=9).recovery_point == 3


def test_the_high_watermark_is_taken_over_within_the_log(workshop: LogWorkshop) -> None:
    log = workshop.create()
    fill(log, 3)
    assert workshop.load(high_watermark=2).high_watermark == 2
    assert workshop.load(high_watermark=9).high_watermark == 3
    assert workshop.load(high_watermark=1, log_start_offset=2).high_watermark == 2


# Indexes


def test_recovery_writes_the_indexes_that_were_there(workshop: LogWorkshop) -> None:
    log = workshop.create(SMALL_INTERVAL)
    fill(log, 30)
    log.close()
    expected = index_bytes(workshop)
    assert len(expected[0]) > 80
    for suffix in (".index", ".timeindex"):
        (workshop.folder / (SEGMENT + suffix)).write_bytes(os.urandom(960))
    workshop.load(SMALL_INTERVAL)
    assert index_bytes(workshop) == expected


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", ["missing", "cut", "garbled"])
def test_a_damaged_index_is_rebuilt_after_a_clean_stop(
    workshop: LogWorkshop, suffix: str, damage: str
) -> None:
    log = workshop.create(SMALL_INTERVAL)
    fill(log, 15)
    log.roll()
    fill(log, 15)
    log.close()
    expected = index_bytes(workshop)
    path = workshop.folder / (SEGMENT + suffix)
    content = path.read_bytes()
    if damage == "missing":
        path.unlink()
    elif damage == "cut":
        path.write_bytes(content[:-1])
    else:
        path.write_bytes(bytes(reversed(content)))
    log = committed(workshop.load(SMALL_INTERVAL, clean=True))
    for offset in range(30):
        result = log.read(offset, 1, up_to_offset=30, min_one_batch=True)
        assert result.records is not None
        assert raw_batch.read_batches(result.records.read())[0].base_offset == offset
    found = log.offset_for_timestamp(1_700_000_000_007)
    assert found is not None
    assert found.offset == 7
    assert index_bytes(workshop) == expected


def test_recovery_leaves_indexes_alone_that_are_as_they_should_be(workshop: LogWorkshop) -> None:
    log = workshop.create(SMALL_INTERVAL)
    fill(log, 9)
    log.flush()
    log.close()
    paths = [workshop.folder / f"{SEGMENT}{suffix}" for suffix in (".index", ".timeindex")]
    before = [path.read_bytes() for path in paths]
    for path in paths:
        os.utime(path, (5, 5))
    workshop.load(SMALL_INTERVAL)
    assert [path.read_bytes() for path in paths] == before
    assert [path.stat().st_mtime for path in paths] == [5, 5]


def test_an_index_that_leads_to_the_wrong_place_is_rebuilt(workshop: LogWorkshop) -> None:
    log = workshop.create(SMALL_INTERVAL)
    fill(log, 30)
    log.roll()
    log.close()
    expected = index_bytes(workshop)
    path = workshop.folder / f"{SEGMENT}.index"
    rows = list(struct.iter_unpack(">ii", path.read_bytes()))
    path.write_bytes(b"".join(struct.pack(">ii", offset, at + 1) for offset, at in rows))
    log = committed(workshop.load(SMALL_INTERVAL, clean=True))
    for offset in reversed(range(30)):
        result = log.read(offset, 1, up_to_offset=30, min_one_batch=True)
        assert result.records is not None
        assert raw_batch.read_batches(result.records.read())[0].base_offset == offset
    assert index_bytes(workshop)[0] == expected[0]


def test_the_indexes_of_a_cut_segment_end_where_it_ends(workshop: LogWorkshop) -> None:
    log = workshop.create(SMALL_INTERVAL)
    fill(log, 30)
    path = workshop.folder / f"{SEGMENT}.log"
    cut = read_all(log)[10].position + 5
    path.write_bytes(workshop.log_bytes()[:cut])
    workshop.load(SMALL_INTERVAL)
    offset_index, time_index = index_bytes(workshop)
    assert max(offset for offset, _ in struct.iter_unpack(">ii", offset_index)) < 10
    assert struct.unpack(">qi", time_index[-12:]) == (1_700_000_000_009, 9)


def test_orphaned_indexes_go(workshop: LogWorkshop) -> None:
    produce(workshop.create())
    for suffix in (".index", ".timeindex", ".txnindex"):
        (workshop.folder / f"{77:020d}{suffix}").write_bytes(bytes(8))
    workshop.load()
    assert not [name for name in workshop.files() if name.startswith(f"{77:020d}")]


# Producers, epochs, transactions


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("snapshots", ["kept", "lost", "garbled"])
def test_duplicates_are_recognised_after_a_restart(
    workshop: LogWorkshop, clean: bool, snapshots: str
) -> None:
    log = workshop.create()
    for number in range(4):
        produce(log, producer_id=7, producer_epoch=0, sequence=number)
        if number == 1:
            log.roll()
    log.close()
    for path in workshop.folder.glob("*.snapshot"):
        if snapshots == "lost":
            path.unlink()
        elif snapshots == "garbled":
            path.write_bytes(b"\0\1garbage")
    log = workshop.load(clean=clean)
    again = produce(log, producer_id=7, producer_epoch=0, sequence=3)
    assert again.is_duplicate
    assert again.base_offset == 3
    with pytest.raises(OutOfOrderSequence):
        produce(log, producer_id=7, producer_epoch=0, sequence=5)
    assert produce(log, producer_id=7, producer_epoch=0, sequence=4).base_offset == 4


def test_producers_of_a_cut_tail_are_forgotten(workshop: LogWorkshop) -> None:
    log = workshop.create()
    produce(log, producer_id=7, producer_epoch=0, sequence=0)
    produce(log, producer_id=7, producer_epoch=0, sequence=1)
    log.close()
    (workshop.folder / f"{SEGMENT}.log").write_bytes(workshop.log_bytes()[:-1])
    log = workshop.load()
    assert produce(log, producer_id=7, producer_epoch=0, sequence=1).base_offset == 1


def test_recovery_takes_snapshots_at_segments_and_at_the_end(workshop: LogWorkshop) -> None:
    log = workshop.create()
    for number in range(3):
        produce(log, producer_id=7, producer_epoch=0, sequence=number)
        log.roll()
    for path in workshop.folder.glob("*.snapshot"):
        path.unlink()
    workshop.load()
    names = sorted(path.name for path in workshop.folder.glob("*.snapshot"))
    assert names == [f"{offset:020d}.snapshot" for offset in (1, 2, 3)]


def test_stray_snapshots_go(workshop: LogWorkshop) -> None:
    log = workshop.create()
    fill(log, 4)
    log.roll()
    fill(log, 4)
    log.close()
    good = (workshop.folder / f"{8:020d}.snapshot").read_bytes()
    for offset in (2, 6, 11):
        (workshop.folder / f"{offset:020d}.snapshot").write_bytes(good)
    workshop.load(clean=True)
    names = sorted(path.name for path in workshop.folder.glob("*.snapshot"))
    assert names == [f"{offset:020d}.snapshot" for offset in (4, 8)]


def test_epochs_are_rebuilt_where_the_file_lacks_them(workshop: LogWorkshop) -> None:
    log = workshop.create()
    for epoch in (0, 0, 2, 5):
        produce(log, leader_epoch=epoch)
    path = workshop.folder / "leader-epoch-checkpoint"
    for content in (None, b"garbage", b"0\n1\n0 0\n"):
        if content is None:
            path.unlink()
        else:
            path.write_bytes(content)
        assert workshop.load().epochs.entries == [(0, 0), (2, 2), (5, 3)]
        assert path.read_bytes() == b"0\n3\n0 0\n2 2\n5 3\n"


def test_a_lost_epoch_file_is_rebuilt_after_a_clean_stop(workshop: LogWorkshop) -> None:
    log = workshop.create()
    produce(log, leader_epoch=3)
    log.close()
    (workshop.folder / "leader-epoch-checkpoint").unlink()
    assert workshop.load(clean=True).epochs.entries == [(3, 0)]


@pytest.mark.parametrize("content", [b"", b"0\n0\n"])
def test_epochs_below_the_recovery_point_are_rebuilt_where_the_file_is_empty(
    workshop: LogWorkshop, content: bytes
) -> None:
    log = workshop.create()
    for epoch in (3, 5):
        produce(log, leader_epoch=epoch)
        log.roll()
    produce(log, leader_epoch=8)
    (workshop.folder / "leader-epoch-checkpoint").write_bytes(content)
    again = workshop.load(recovery_point=2)
    assert again.epochs.entries == [(3, 0), (5, 1), (8, 2)]


def test_epochs_behind_the_end_of_the_log_go(workshop: LogWorkshop) -> None:
    log = workshop.create()
    produce(log, leader_epoch=1)
    produce(log, leader_epoch=2)
    (workshop.folder / f"{SEGMENT}.log").write_bytes(workshop.log_bytes()[:-1])
    assert workshop.load().epochs.entries == [(1, 0)]


def test_open_and_aborted_transactions_are_found_again(workshop: LogWorkshop) -> None:
    log = workshop.create()
    produce(log, producer_id=1, producer_epoch=0, sequence=0, transactional=True)
    produce(log, producer_id=2, producer_epoch=0, sequence=0, transactional=True)
    log.roll()
    end_txn(log, ABORT, producer_id=1)
    index = workshop.folder / f"{2:020d}.txnindex"
    expected = index.read_bytes()
    index.unlink()
    log = committed(workshop.load())
    assert index.read_bytes() == expected
    assert log.last_stable_offset == 1
    end_txn(log, ABORT, producer_id=2)
    assert log.last_stable_offset == 4


@pytest.mark.parametrize("garbage", [b"x", b"x" * 34, b"\0" * 34])
def test_a_garbled_transaction_index_is_rebuilt_after_a_clean_stop(
    workshop: LogWorkshop, garbage: bytes
) -> None:
    log = workshop.create()
    produce(log, producer_id=1, producer_epoch=0, sequence=0, transactional=True)
    log.roll()
    end_txn(log, ABORT, producer_id=1)
    log.close()
    index = workshop.folder / f"{1:020d}.txnindex"
    expected = index.read_bytes()
    index.write_bytes(garbage)
    workshop.load(clean=True)
    assert index.read_bytes() == expected


# Offsets and leftovers


def test_the_log_start_of_the_checkpoint_counts(workshop: LogWorkshop) -> None:
    log = workshop.create()
    fill(log, 4)
    log = committed(workshop.load(log_start_offset=2))
    assert offsets(log) == [2, 3]
    assert log.epochs.entries == [(0, 2)]


def test_a_log_that_ends_before_its_start_begins_anew(workshop: LogWorkshop) -> None:
    log = workshop.create()
    fill(log, 2)
    log = workshop.load(log_start_offset=10)
    assert (log.log_start_offset, log.log_end_offset) == (10, 10)
    produce(log)
    assert offsets(log) == [10]


def test_an_empty_folder_is_an_empty_log(workshop: LogWorkshop) -> None:
    workshop.folder.mkdir()
    log = workshop.load(clean=True)
    produce(log)
    assert offsets(log) == [0]


def test_deleted_and_cleaned_files_go(workshop: LogWorkshop) -> None:
    produce(workshop.create())
    (workshop.folder / f"{SEGMENT}.log.deleted").write_bytes(b"x")
    (workshop.folder / f"{SEGMENT}.index.cleaned").write_bytes(b"x")
    workshop.load()
    assert set(workshop.files()) == {
        f"{SEGMENT}.log",
        f"{SEGMENT}.index",
        f"{SEGMENT}.timeindex",
        f"{1:020d}.snapshot",
        "leader-epoch-checkpoint",
        "partition.metadata",
    }


def test_a_finished_swap_replaces_the_segments_it_covers(workshop: LogWorkshop) -> None:
    log = workshop.create()
    for _ in range(3):
        fill(log, 2)
        log.roll()
    cleaned = raw_batch.batch(b"first", base_offset=0) + raw_batch.batch(b"last", base_offset=3)
    (workshop.folder / f"{SEGMENT}.log.swap").write_bytes(cleaned)
    for suffix in (".index", ".timeindex"):
        (workshop.folder / f"{SEGMENT}{suffix}.swap").write_bytes(b"")
    log = committed(workshop.load())
    assert values(log) == [b"first", b"last", b"value 0", b"value 1"]
    assert [segment.base_offset for segment in log.segments] == [0, 4, 6]


def test_an_unfinished_swap_is_dropped(workshop: LogWorkshop) -> None:
    log = workshop.create()
    fill(log, 2)
    (workshop.folder / f"{SEGMENT}.log.swap").write_bytes(raw_batch.batch(b"no"))
    (workshop.folder / f"{SEGMENT}.log.cleaned").write_bytes(b"")
    assert values(committed(workshop.load())) == [b"value 0", b"value 1"]


def test_a_preallocated_segment_is_trimmed_by_a_stop_and_cut_by_recovery(
    workshop: LogWorkshop,
) -> None:
    config = LogConfig(preallocate=True, segment_bytes=1 << 16)
    log = workshop.create(config)
    fill(log, 3)
    assert len(workshop.log_bytes()) == 1 << 16
    recovered = committed(workshop.load(config))
    assert offsets(recovered) == [0, 1, 2]
    log.close()
    assert offsets(committed(workshop.load(config, clean=True))) == [0, 1, 2]


def test_gaps_in_offsets_survive(workshop: LogWorkshop) -> None:
    log = workshop.create()
    for base in (3, 10, 500):
        log.append_as_follower(memoryview(raw_batch.batch(b"%d" % base, base_offset=base)))
    log = committed(workshop.load())
    assert offsets(log) == [3, 10, 500]
    assert log.log_start_offset == 0


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("has_snapshot", [False, True])
def test_a_finished_transaction_holds_nothing_back_where_the_high_watermark_is_the_log_end(
    workshop: LogWorkshop, clean: bool, has_snapshot: bool
) -> None:
    log = workshop.create()
    produce(log, b"a", producer_id=1, producer_epoch=0, sequence=0, transactional=True)
    if has_snapshot:
        log.roll()
    end_txn(log, COMMIT, producer_id=1)
    log.flush()
    log = workshop.load(clean=clean, high_watermark=2)
    assert (log.high_watermark, log.last_stable_offset) == (2, 2)


def test_a_transaction_whose_marker_is_not_replicated_is_held_back_after_a_start(
    workshop: LogWorkshop,
) -> None:
    log = workshop.create()
    produce(log, b"a", producer_id=1, producer_epoch=0, sequence=0, transactional=True)
    end_txn(log, COMMIT, producer_id=1)
    log.flush()
    log = workshop.load(high_watermark=1)
    assert (log.high_watermark, log.last_stable_offset) == (1, 0)
    log.update_high_watermark(2)
    assert log.last_stable_offset == 2


# Old formats


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "unclean"])
@pytest.mark.parametrize("magic", [0, 1])
def test_compressed_batches_of_old_formats_are_kept_and_served(
    workshop: LogWorkshop, magic: int, clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Their headers have the last offset only: that is no gap, and no foreign segment."""
    workshop.folder.mkdir(parents=True, exist_ok=True)
    contents = {}
    for base in (0, 6, 9):
        sets = [
            message_set_of(
                [
                    LegacyRecord(offset, 1_400_000_000_000, None, b"old")
                    for offset in range(at, at + 3)
                ],
                magic,
                codec=Codec.GZIP,
            )
            for at in range(base, 6 if base == 0 else base + 3, 3)
        ]
        contents[workshop.folder / f"{base:020d}.log"] = b"".join(sets)
    for path, content in contents.items():
        path.write_bytes(content)

    log = committed(workshop.load(clean=clean))

    assert log.log_end_offset == 12
    assert {path: path.read_bytes() for path in contents} == contents
    for offset in (0, 4, 6, 10):
        result = log.read(offset, 1 << 20, up_to_offset=12, min_one_batch=True)
        assert result.records is not None, offset
    assert [r for r in caplog.records if r.levelno >= logging.ERROR] == []
