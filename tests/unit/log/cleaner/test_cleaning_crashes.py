"""Any log, compacted by a process that dies at any file operation, and loaded again.

Whatever happened: the last committed value of every key is readable, every record that is left has
the offset, value and time it was written with, nothing is gone before its time, aborted records do
not come back, the last sequence of every producer is known, and who was reading reads on.
TIDELOG_CLEANINGS sets how many random logs are tried; each dies at every file operation in turn.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support import raw_batch
from tests.support.cleaning import (
    SETTINGS,
    START_MS,
    StoredRecord,
    clean,
    stored,
    stored_batches,
    write,
)
from tests.support.crashing_disk import CrashingDisk
from tests.support.log_builder import ABORT, COMMIT, LogWorkshop, end_txn
from tidelog.config.topic import LogConfig
from tidelog.log.cleaner.cleaner import CleanerConfig
from tidelog.log.partition_log import PartitionLog
from tidelog.record.batch import Codec

COUNT = int(os.environ.get("TIDELOG_CLEANINGS", "12"))
RETENTION_MS = 10_000
CONFIG = LogConfig(
    compact=True,
    min_cleanable_dirty_ratio=0.0,
    index_interval_bytes=64,
    delete_retention_ms=RETENTION_MS,
    segment_bytes=2000,
)
KEYS = [b"a", b"b", b"c", b"d"]
PRODUCERS = [1, 2]
Step = tuple[Any, ...]

pairs = st.tuples(st.sampled_from(KEYS), st.none() | st.binary(min_size=1, max_size=30))
writes = st.tuples(
    st.just("write"),
    st.lists(pairs, min_size=1, max_size=4),
    st.sampled_from(list(Codec)),
    st.sampled_from([None, 0, *PRODUCERS]),
)
ends = st.tuples(st.just("end"), st.sampled_from(PRODUCERS), st.sampled_from([ABORT, COMMIT]))
rolls = st.tuples(st.just("roll"))
lives = st.lists(writes | writes | ends | rolls, min_size=2, max_size=14)


@dataclass
class Story:
    """A log and what has been written to it."""

    workshop: LogWorkshop
    log: PartitionLog
    written: dict[int, StoredRecord] = field(default_factory=dict)
    open_offsets: dict[int, list[int]] = field(default_factory=dict)  # by producer
    aborted: set[int] = field(default_factory=set)
    sequences: dict[int, int] = field(default_factory=dict)

    def live(self, steps: list[Step]) -> None:
        for kind, *rest in steps:
            getattr(self, f"_{kind}")(*rest)

    def _write(self, rows: list[tuple[bytes, bytes | None]], codec: Codec, producer: Any) -> None:
        timestamp = START_MS + len(self.written)
        options: dict[str, object] = {}
        if producer is not None:
            sequence = self.sequences.get(producer, -1) + 1
            options = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequence}
            options["is_transactional"] = producer in PRODUCERS
            self.sequences[producer] = sequence + len(rows) - 1
        base = write(self.log, *rows, timestamp=timestamp, codec=codec, **options)
        offsets = range(base, base + len(rows))
        for offset, (key, value) in zip(offsets, rows, strict=True):
            self.written[offset] = StoredRecord(offset, key, value, timestamp + offset - base)
        if producer in PRODUCERS:
            self.open_offsets.setdefault(producer, []).extend(offsets)

    def _end(self, producer: int, control_type: int) -> None:
        if producer in self.open_offsets:
            offsets = self.open_offsets.pop(producer)
            if control_type == ABORT:
                self.aborted.update(offsets)
            end_txn(self.log, control_type, producer_id=producer)

    def _roll(self) -> None:
        self.log.roll()

    def end_all(self) -> None:
        for producer in list(self.open_offsets):
            self._end(producer, COMMIT)
        self.log.roll()

    @property
    def open(self) -> set[int]:
        return {offset for offsets in self.open_offsets.values() for offset in offsets}

    def last_committed(self) -> dict[bytes, StoredRecord]:
        last: dict[bytes, StoredRecord] = {}
        for offset, record in sorted(self.written.items()):
            if offset not in self.aborted | self.open:
                assert record.key is not None
                last[record.key] = record
        return last


def read_committed(log: PartitionLog) -> dict[int, StoredRecord]:
    """What a consumer at read_committed keeps, by Kafka's rule for aborted transactions."""
    found: dict[int, StoredRecord] = {}
    offset = log.log_start_offset
    while offset < log.last_stable_offset:
        result = log.read(offset, 500, up_to_offset=log.last_stable_offset, min_one_batch=True)
        if result.records is None:
            break
        aborted = log.aborted_transactions(offset, result)
        batches = raw_batch.read_batches(result.records.read())
        for batch in batches:
            is_aborted = batch.attributes & 0x10 and any(
                txn.producer_id == batch.producer_id
                and txn.first_offset <= batch.base_offset <= txn.last_offset
                for txn in aborted
            )
            if not batch.attributes & 0x20 and not is_aborted:
                found.update({record.offset: record for record in stored(batch).records})
        offset = batches[-1].last_offset + 1
    return found


@dataclass
class Expectation:
    story: Story
    tombstones_may_be_gone: bool  # of the first life
    first_life_end: int
    untouched_from: int  # the first offset that may not be cleaned

    def check(self, log: PartitionLog) -> None:
        story = self.story
        found = {
            r.offset: r for b in stored_batches(log) for r in b.records if not b.header.is_control
        }
        for offset, record in found.items():
            assert record == story.written[offset]
        committed = read_committed(log)
        assert not story.aborted & committed.keys()
        latest = {record.key: record for _, record in sorted(committed.items())}
        for key, record in story.last_committed().items():
            if record.offset >= log.last_stable_offset:
                continue
            if record.value is not None or not self._may_be_gone(record):
                assert latest[key] == record
            else:
                assert latest.get(key, record) == record
        for offset, record in story.written.items():
            if offset >= self.untouched_from:
                assert found[offset] == record
        for producer, sequence in story.sequences.items():
            assert log.producers.producers[producer].last_sequence == sequence
        assert log.log_end_offset == story.log.log_end_offset

    def _may_be_gone(self, record: StoredRecord) -> bool:
        return self.tombstones_may_be_gone and record.offset < self.first_life_end


@contextmanager
def story() -> Iterator[Story]:
    with tempfile.TemporaryDirectory() as folder:
        workshop = LogWorkshop(Path(folder) / "origin")
        workshop.root.mkdir()
        yield Story(workshop, workshop.create(CONFIG))


def reload(origin: Story, name: str, recovery_point: int) -> tuple[LogWorkshop, PartitionLog]:
    """Another process over a copy of the files."""
    root = origin.workshop.root.with_name(name)
    shutil.copytree(origin.workshop.root, root)
    workshop = LogWorkshop(root, clock=origin.workshop.clock)
    return workshop, load(workshop, origin, recovery_point)


def load(workshop: LogWorkshop, origin: Story, recovery_point: int) -> PartitionLog:
    end = origin.log.log_end_offset
    log = workshop.load(CONFIG, recovery_point=recovery_point, high_watermark=end)
    log.cleaner_offset = origin.log.cleaner_offset
    log.update_high_watermark(end)
    return log


def readers_of(log: PartitionLog) -> list[tuple[int, Any]]:
    """Fetches on their way, one a segment."""
    return [
        (segment.base_offset, result)
        for segment in log.segments
        if segment.size
        and (
            result := log.read(
                segment.base_offset, 1 << 20, up_to_offset=log.log_end_offset, min_one_batch=True
            )
        )
    ]


@pytest.mark.timeout(1800)
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=COUNT)
@given(lives, lives, st.booleans(), st.booleans(), st.sampled_from([SETTINGS, None]))
def test_a_crash_at_any_file_operation_of_a_cleaning_loses_nothing(
    first: list[Step],
    second: list[Step],
    past_horizon: bool,
    all_flushed: bool,
    chosen: CleanerConfig | None,
) -> None:
    cleaner = chosen or SETTINGS._replace(map_bytes=24 * 6, map_load_factor=0.5)
    with story() as origin:
        origin.live(first)
        origin.end_all()
        clean(origin.log, origin.workshop.clock, cleaner)
        first_life_end = origin.log.log_end_offset
        origin.live(second)
        origin.log.roll()
        origin.workshop.clock.advance(ms=RETENTION_MS if past_horizon else RETENTION_MS - 1)
        untouched_from = min(origin.log.last_stable_offset, origin.log.active_segment.base_offset)
        expectation = Expectation(origin, past_horizon, first_life_end, untouched_from)
        recovery_point = origin.log.log_end_offset if all_flushed else 0
        expectation.check(origin.log)
        died_at = 0
        while _crash(origin, cleaner, expectation, recovery_point, died_at):
            died_at += 1


def test_every_step_of_a_cleaning_is_a_file_operation_to_die_in(tmp_path: Path) -> None:
    workshop = LogWorkshop(tmp_path)
    log = workshop.create(CONFIG)
    for number in range(3):
        write(log, (b"a", b"%d" % number), producer_id=1, producer_epoch=0, base_sequence=number)
        log.roll()
    with CrashingDisk(tmp_path) as disk:
        clean(log, workshop.clock)
    kinds = [operation.partition(" ")[0] for operation in disk.operations]
    assert [kinds.count(kind) for kind in ("create", "write", "sync")] == [3, 1, 4]
    # 3 files to .swap and from it; of 3 segments 4 (one is not there) and 2 snapshots to .deleted
    assert kinds.count("rename") == 3 + 3 + 12 + 2


def _crash(
    origin: Story,
    cleaner: CleanerConfig,
    expectation: Expectation,
    recovery_point: int,
    die_at: int,
) -> bool:
    """Whether there was a file operation of that number."""
    name = f"crash-{die_at}"
    workshop, log = reload(origin, name, recovery_point)
    reading = readers_of(log)
    with CrashingDisk(workshop.root, die_at) as disk:
        clean(log, workshop.clock, cleaner)
    for base_offset, result in reading:
        batches = raw_batch.read_batches(result.records.read())
        assert batches[0].base_offset >= base_offset
    if not disk.is_dead:
        expectation.check(log)
    again = load(workshop, origin, recovery_point)
    expectation.check(again)
    assert not [path for path in workshop.folder.iterdir() if path.suffix in (".swap", ".cleaned")]
    clean(again, workshop.clock, cleaner)
    expectation.check(again)
    shutil.rmtree(workshop.root)
    return disk.is_dead
