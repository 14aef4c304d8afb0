"""A cut for which a thread has read ahead leaves the log as one that reads by itself."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest

from tests.support.log_builder import ABORT, LogWorkshop, end_txn, produce
from tidelog.config.topic import LogConfig
from tidelog.log import truncation_walk
from tidelog.log.partition_log import PartitionLog
from tidelog.log.producer_loading import replay_producers
from tidelog.log.producer_state import ProducerStateTable
from tidelog.log.segment.log_segment import LogSegment
from tidelog.log.segment.segment_scan import SegmentScan
from tidelog.log.truncation_walk import TruncationWalk

CONFIG = LogConfig(segment_bytes=3000, index_interval_bytes=300)


@pytest.fixture
def walks_are_due(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(truncation_walk, "LOOP_BYTES_MAX", 0)


@pytest.fixture
def scanned(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The positions at which segments are scanned from here on, other than by walks."""
    positions: list[int] = []
    scan = LogSegment.scan

    def noted(segment: LogSegment, *, verify_crc: bool, position: int = 0) -> SegmentScan:
        positions.append(position)
        return scan(segment, verify_crc=verify_crc, position=position)

    monkeypatch.setattr(LogSegment, "scan", noted)
    return positions


def a_history(log: PartitionLog, dice: Random, count: int = 80) -> None:
    sequences = dict.fromkeys((5, 6), 0)
    for number in range(count):
        producer_id = dice.choice([-1, 5, 6])
        timestamp = 1_700_000_000_000 + dice.choice([number, -number, 50])
        if producer_id < 0:
            produce(log, b"plain", timestamp=timestamp)
            continue
        produce(
            log,
            b"in a transaction",
            timestamp=timestamp,
            producer_id=producer_id,
            producer_epoch=0,
            sequence=sequences[producer_id],
            transactional=True,
        )
        sequences[producer_id] += 1
        if dice.random() < 0.2:
            end_txn(log, ABORT, producer_id=producer_id, timestamp=timestamp)


def made_walk(log: PartitionLog, offset: int) -> TruncationWalk | None:
    walk = log.walk_before_truncation(offset, None)
    if walk is not None:
        with ThreadPoolExecutor(1) as thread:
            thread.submit(walk.run).result()
    return walk


def state_of(workshop: LogWorkshop, log: PartitionLog) -> dict[str, object]:
    active = log.active_segment
    state: dict[str, object] = {
        "end": (log.log_start_offset, log.log_end_offset, log.high_watermark),
        "unstable": log.producers.first_unstable_offset,
        "producers": sorted(log.producers.rows(), key=repr),
        "timestamps": (active.max_timestamp, active.offset_of_max_timestamp),
    }
    log.flush()
    log.close()
    files = sorted(workshop.folder.iterdir())
    return state | {path.name: path.read_bytes() for path in files}


@pytest.mark.usefixtures("walks_are_due")
@pytest.mark.parametrize("seed", range(40))
def test_a_thread_finds_what_the_loop_finds(tmp_path: Path, seed: int) -> None:
    dice = Random(seed)
    (tmp_path / "threads").mkdir()
    workshop = LogWorkshop(tmp_path / "threads")
    log = workshop.create(CONFIG)
    a_history(log, dice)
    if dice.random() < 0.3:
        log.maybe_increment_log_start_offset(dice.randrange(log.log_end_offset))
    if dice.random() < 0.3:
        for path in sorted(workshop.folder.glob("*.snapshot"))[-2:]:
            dice.choice([path.unlink, lambda path=path: path.write_bytes(b"damaged")])()
    log.flush()
    offset = dice.randrange(log.log_start_offset, log.log_end_offset)
    shutil.copytree(tmp_path / "threads", tmp_path / "loop")
    is_reopened = dice.random() < 0.5
    found = []
    for name in ("threads", "loop"):
        other = LogWorkshop(tmp_path / name)
        one = other.load(
            CONFIG,
            clean=is_reopened,
            recovery_point=log.log_end_offset,
            log_start_offset=log.log_start_offset,
            high_watermark=log.high_watermark,
        )
        walk = made_walk(one, offset) if name == "threads" else None
        assert one.truncate_to(offset, walk)
        found.append(state_of(other, one))
    assert found[0] == found[1]


@pytest.mark.usefixtures("walks_are_due")
def test_a_cut_reads_nothing_that_a_thread_has_read(tmp_path: Path, scanned: list[int]) -> None:
    log = LogWorkshop(tmp_path).create(LogConfig(index_interval_bytes=300))
    a_history(log, Random(1))
    walk = made_walk(log, 40)
    assert walk is not None
    assert log.truncate_to(40, walk)
    assert scanned == []


@pytest.mark.usefixtures("walks_are_due")
def test_a_walk_does_not_hold_for_another_cut_nor_after_one(
    tmp_path: Path, scanned: list[int]
) -> None:
    log = LogWorkshop(tmp_path).create(LogConfig(index_interval_bytes=300))
    a_history(log, Random(1))
    walk = made_walk(log, 40)
    assert log.walk_before_truncation(40, walk) is None
    assert log.walk_before_truncation(39, walk) is not None
    log.truncate_to(20)
    for _ in range(30):
        produce(log, producer_id=8, producer_epoch=0, sequence=log.log_end_offset - 20)
    scanned.clear()
    assert log.truncate_to(40, walk)
    assert scanned != []
    assert 8 in log.producers.producers


def test_small_logs_are_cut_at_once(tmp_path: Path) -> None:
    log = LogWorkshop(tmp_path).create(CONFIG)
    a_history(log, Random(1))
    assert log.walk_before_truncation(40, None) is None


def test_producers_are_looked_for_below_the_cut_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = LogWorkshop(tmp_path).create()
    a_history(log, Random(1), 200)
    monkeypatch.setattr("tidelog.log.segment.segment_scan.PIECE_BYTES", 500)
    pieces = 0
    scan = SegmentScan.__iter__

    def counted(self: SegmentScan) -> Iterator[SegmentScan]:
        nonlocal pieces
        for piece in scan(self):
            pieces += 1
            yield piece

    monkeypatch.setattr(SegmentScan, "__iter__", counted)
    table = ProducerStateTable()
    replay_producers(table, log.segments, 0, 5)
    assert pieces <= 3
