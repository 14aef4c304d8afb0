"""A walk over an old segment in a thread finds what a walk on the loop would find."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.support.log_builder import ABORT, COMMIT, LogWorkshop, end_txn, offsets, produce
from tidelog.config.topic import LogConfig
from tidelog.errors import KafkaError
from tidelog.log import log_reader, transaction_index_check
from tidelog.log.partition_log import PartitionLog
from tidelog.log.segment import segment_walk
from tidelog.log.segment.segment_scan import SegmentScan
from tidelog.log.segment.segment_walk import Walk, WalkDue
from tidelog.log.segment.transaction_index import AbortedTxn

CONFIG = LogConfig(segment_bytes=1500, index_interval_bytes=200)


@pytest.fixture
def walks_are_due(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_index_check, "LOOP_BYTES_MAX", 0)


def load(workshop: LogWorkshop, end_offset: int) -> PartitionLog:
    return workshop.load(CONFIG, clean=True, recovery_point=end_offset, high_watermark=end_offset)


def aborted_at(log: PartitionLog, offset: int) -> list[AbortedTxn]:
    result = log.read(offset, 1 << 20, up_to_offset=log.high_watermark, min_one_batch=True)
    return log.aborted_transactions(offset, result)


def after_walks(log: PartitionLog, offset: int) -> list[AbortedTxn]:
    with ThreadPoolExecutor(1) as thread:
        while True:
            try:
                return aborted_at(log, offset)
            except WalkDue as due:
                thread.submit(due.walk.run).result()
                due.walk.note_result()


def a_history(log: PartitionLog, dice: Random, count: int = 60) -> None:
    sequences = dict.fromkeys((5, 6, 7), 0)
    is_open: set[int] = set()
    for _ in range(count):
        producer_id = dice.choice([-1, 5, 6, 7])
        if producer_id < 0:
            produce(log, b"plain")
        elif producer_id in is_open and dice.random() < 0.4:
            end_txn(log, dice.choice([ABORT, COMMIT]), producer_id=producer_id)
            is_open.discard(producer_id)
        else:
            produce(
                log,
                b"in a transaction",
                producer_id=producer_id,
                producer_epoch=0,
                sequence=sequences[producer_id],
                transactional=True,
            )
            sequences[producer_id] += 1
            is_open.add(producer_id)
    for producer_id in is_open:
        end_txn(log, ABORT, producer_id=producer_id)


def damage(folder: Path, dice: Random) -> None:
    kind = dice.choice(["none", "none", "txnindex", "snapshot", "log"])
    files = sorted(folder.glob(f"*.{kind}"))
    if not files:
        return
    path = dice.choice(files)
    if kind == "log":
        content = bytearray(path.read_bytes())
        if content:
            content[dice.randrange(len(content))] ^= 1 << dice.randrange(8)
            path.write_bytes(content)
    elif dice.random() < 0.5:
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-20] + bytes(dice.randrange(40)))


@pytest.mark.usefixtures("walks_are_due")
@pytest.mark.parametrize("seed", range(60))
def test_a_thread_finds_what_the_loop_finds(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = Random(seed)
    (tmp_path / "threads").mkdir()
    workshop = LogWorkshop(tmp_path / "threads")
    log = workshop.create(CONFIG)
    a_history(log, dice)
    log.flush()
    log.close()
    damage(workshop.folder, dice)
    shutil.copytree(tmp_path / "threads", tmp_path / "loop")
    places = [dice.randrange(log.log_end_offset) for _ in range(10)]
    found: dict[str, list[object]] = {}
    for name in ("threads", "loop"):
        if name == "loop":
            monkeypatch.setattr(transaction_index_check, "LOOP_BYTES_MAX", 1 << 40)
        other = LogWorkshop(tmp_path / name)
        loaded = load(other, log.log_end_offset)
        found[name] = []
        for offset in places:
            try:
                found[name].append(after_walks(loaded, offset))
            except KafkaError as error:
                found[name].append(error.code)
        found[name] += [
            (path.name, path.read_bytes()) for path in sorted(other.folder.glob("*.txnindex"))
        ]
    assert found["threads"] == found["loop"]


@pytest.mark.usefixtures("walks_are_due")
def test_what_is_appended_during_the_walk_is_seen(tmp_path: Path) -> None:
    workshop = LogWorkshop(tmp_path)
    log = workshop.create()
    produce(log, producer_id=7, producer_epoch=0, sequence=0, transactional=True)
    log.flush()
    log.close()
    log = workshop.load(clean=True, recovery_point=1, high_watermark=1)
    with pytest.raises(WalkDue) as due:
        aborted_at(log, 0)
    walk = due.value.walk
    walk.run()
    end_txn(log, ABORT, producer_id=7)
    walk.note_result()
    [aborted] = after_walks(log, 0)
    assert (aborted.first_offset, aborted.last_offset) == (0, 1)


@pytest.mark.usefixtures("walks_are_due")
def test_a_walk_over_what_has_been_cut_meanwhile_counts_for_nothing(tmp_path: Path) -> None:
    workshop = LogWorkshop(tmp_path)
    log = workshop.create()
    produce(log)
    produce(log, producer_id=7, producer_epoch=0, sequence=0, transactional=True)
    end_txn(log, ABORT, producer_id=7)
    log.flush()
    log.close()
    log = workshop.load(clean=True, recovery_point=3, high_watermark=3)
    with pytest.raises(WalkDue) as due:
        aborted_at(log, 0)
    due.value.walk.run()
    log.truncate_to(1)
    produce(log, producer_id=8, producer_epoch=0, sequence=0, transactional=True)
    end_txn(log, ABORT, producer_id=8)
    due.value.walk.note_result()
    assert [entry.producer_id for entry in after_walks(log, 0)] == [8]


@pytest.mark.usefixtures("walks_are_due")
def test_a_segment_is_walked_over_once(tmp_path: Path) -> None:
    workshop = LogWorkshop(tmp_path)
    log = workshop.create(CONFIG)
    a_history(log, Random(1))
    log.flush()
    log.close()
    log = load(workshop, log.log_end_offset)
    for offset in range(log.log_end_offset):
        after_walks(log, offset)
    for offset in range(log.log_end_offset):
        aborted_at(log, offset)  # no WalkDue


@pytest.mark.usefixtures("walks_are_due")
def test_readers_that_come_together_share_one_walk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workshop = LogWorkshop(tmp_path)
    log = workshop.create(CONFIG)
    a_history(log, Random(1))
    log.flush()
    log.close()
    log = load(workshop, log.log_end_offset)
    scans: list[object] = []

    def counted(*place: Any, **how: Any) -> SegmentScan:
        scans.append(place)
        return SegmentScan(*place, **how)

    monkeypatch.setattr(segment_walk, "SegmentScan", counted)

    def a_reader_is_told_to_wait() -> Walk:
        with pytest.raises(WalkDue) as due:
            aborted_at(log, 0)
        return due.value.walk

    waiting = [a_reader_is_told_to_wait() for _ in range(3)]
    with ThreadPoolExecutor(3) as threads:
        list(threads.map(Walk.run, waiting))
    assert len(scans) == 1
    waiting[0].note_result()
    first = log.segments[0].verification
    assert first is not None
    assert first.walk is waiting[0]
    after_walks(log, 0)
    for walk in waiting[1:]:
        walk.note_result()
    assert first.walk is None  # and holds no memory


def test_small_segments_are_looked_over_at_once(tmp_path: Path) -> None:
    workshop = LogWorkshop(tmp_path)
    log = workshop.create(CONFIG)
    a_history(log, Random(2))
    log.flush()
    log.close()
    aborted_at(load(workshop, log.log_end_offset), 0)


def test_a_first_read_of_old_bytes_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_reader, "FIRST_READ_BYTES_MAX", 500)
    workshop = LogWorkshop(tmp_path)
    log = workshop.create()
    for _ in range(20):
        produce(log, b"x" * 100)
    log.flush()
    log.close()
    log = workshop.load(clean=True, recovery_point=20, high_watermark=20)

    def read(offset: int) -> int:
        result = log.read(offset, 1 << 20, up_to_offset=20, min_one_batch=True)
        assert result.records is not None
        return len(result.records)

    assert read(0) <= 500
    assert len(offsets(log)) == 20
    assert read(0) > 500
