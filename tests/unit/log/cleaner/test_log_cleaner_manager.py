"""Which log the cleaner takes, how far it may go, and when it lets go."""

from __future__ import annotations

import logging
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest

from tests.support.cleaning import (
    SETTINGS,
    START_MS,
    Shelf,
    clean,
    clean_dirtiest,
    stored_pairs,
    write,
)
from tests.support.clock import FakeClock
from tests.support.log_builder import LogWorkshop
from tidelog.config.topic import LogConfig
from tidelog.log.cleaner.cleaner import Cleaner
from tidelog.log.cleaner.log_cleaner_manager import LogCleanerManager
from tidelog.log.cleaner.log_to_clean import examine
from tidelog.log.cleaner.segment_pass import IoThrottle
from tidelog.log.log_errors import CleaningAborted
from tidelog.log.log_loader import create_log
from tidelog.log.partition_log import PartitionLog
from tidelog.types import ZERO_UUID, TopicPartition

COMPACTED = LogConfig(compact=True)


@pytest.fixture
def workshop(tmp_path: Path) -> LogWorkshop:
    return LogWorkshop(tmp_path)


def log_with(
    workshop: LogWorkshop, partition: int, *segments: int, config: LogConfig
) -> PartitionLog:
    """Inactive segments of so many records of one size each."""
    log = create_log(
        str(workshop.root / f"t-{partition}"),
        TopicPartition("t", partition),
        ZERO_UUID,
        config,
        workshop.environment,
    )
    for count in segments:
        for _ in range(count):
            write(log, (b"k", b"v" * 100))
        log.roll()
    return log


def test_the_dirtiest_log_comes_first(workshop: LogWorkshop) -> None:
    half = log_with(workshop, 0, 6, 7, config=COMPACTED)
    half.cleaner_offset = 6
    most = log_with(workshop, 1, 1, 9, config=COMPACTED)
    most.cleaner_offset = 1
    manager = LogCleanerManager(Shelf().put(half, most), workshop.clock)
    chosen = [
        begun.log for _ in range(2) if (begun := manager.begin_dirtiest(manager.dirty_logs()))
    ]
    assert chosen == [most, half]
    assert manager.begin_dirtiest(manager.dirty_logs()) is None


def test_workers_that_have_looked_at_the_same_time_clean_different_logs(
    workshop: LogWorkshop,
) -> None:
    logs = [log_with(workshop, number, 1, 9, config=COMPACTED) for number in range(2)]
    manager = LogCleanerManager(Shelf().put(*logs), workshop.clock)
    looks = [list(manager.dirty_logs()) for _ in range(3)]
    begun = [manager.begin_dirtiest(found) for found in looks]
    assert {each.log for each in begun[:2] if each} == set(logs)
    assert begun[2] is None


def test_a_log_that_is_cut_after_the_look_is_looked_at_again(workshop: LogWorkshop) -> None:
    log = log_with(workshop, 0, 1, 9, config=COMPACTED)
    manager = LogCleanerManager(Shelf().put(log), workshop.clock)
    found = list(manager.dirty_logs())
    log.truncate_to(0)
    assert manager.begin_dirtiest(found) is None


def test_a_log_is_due_above_min_cleanable_dirty_ratio(workshop: LogWorkshop) -> None:
    log = log_with(workshop, 0, 5, 5, config=COMPACTED)
    log.cleaner_offset = 5
    assert not examine(log, START_MS).is_due
    log.update_config(replace(COMPACTED, min_cleanable_dirty_ratio=0.49))
    assert examine(log, START_MS).is_due


def test_only_compacted_logs_are_cleaned(workshop: LogWorkshop) -> None:
    log = log_with(workshop, 0, 5, config=LogConfig())
    manager = LogCleanerManager(Shelf().put(log), workshop.clock)
    assert manager.begin_dirtiest(manager.dirty_logs()) is None


def test_the_active_segment_is_never_cleaned(workshop: LogWorkshop) -> None:
    log = log_with(workshop, 0, config=COMPACTED)
    write(log, (b"k", b"1"))
    write(log, (b"k", b"2"))
    assert clean(log, workshop.clock) is None
    log.roll()
    assert clean(log, workshop.clock) is not None


def test_what_the_high_watermark_has_not_passed_is_not_cleaned(workshop: LogWorkshop) -> None:
    log = log_with(workshop, 0, 3, 3, config=COMPACTED)
    log.high_watermark = 4
    dirty = examine(log, START_MS)
    assert (dirty.first_dirty_offset, dirty.end_offset) == (0, 3)


def test_records_younger_than_min_compaction_lag_ms_stay(workshop: LogWorkshop) -> None:
    config = replace(COMPACTED, min_compaction_lag_ms=1000)
    log = log_with(workshop, 0, config=config)
    for timestamp in (START_MS - 5000, START_MS - 999, START_MS - 5000):
        write(log, (b"k", b"v"), timestamp=timestamp)
        log.roll()
    assert examine(log, START_MS).end_offset == 1
    assert examine(log, START_MS + 1).end_offset == 3


def test_records_older_than_max_compaction_lag_ms_are_due_whatever_the_ratio(
    workshop: LogWorkshop,
) -> None:
    config = replace(COMPACTED, min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=1000)
    log = log_with(workshop, 0, config=config)
    write(log, (b"k", b"v"), timestamp=START_MS - 1000)
    log.roll()
    assert not examine(log, START_MS).is_due
    assert examine(log, START_MS + 1).is_due


def test_a_checkpoint_outside_of_the_log_begins_at_its_start(
    workshop: LogWorkshop, caplog: pytest.LogCaptureFixture
) -> None:
    log = log_with(workshop, 0, 3, config=COMPACTED)
    log.cleaner_offset = 99
    assert examine(log, START_MS).first_dirty_offset == 0
    assert "ended at 99, outside of the log" in caplog.text
    assert log.cleaner_offset == 0


def test_a_checkpoint_below_the_log_start_is_nothing_new_when_retention_deletes(
    workshop: LogWorkshop, caplog: pytest.LogCaptureFixture
) -> None:
    log = log_with(workshop, 0, 3, 3, config=replace(COMPACTED, delete=True))
    log.cleaner_offset = 1
    log.maybe_increment_log_start_offset(3)
    assert examine(log, START_MS).first_dirty_offset == 3
    assert not caplog.records


def test_a_deleted_log_gives_the_round_up(workshop: LogWorkshop) -> None:
    log = log_with(workshop, 0, 3, config=COMPACTED)
    shelf = Shelf().put(log)
    manager = LogCleanerManager(shelf, workshop.clock)
    begun = manager.begin_dirtiest(manager.dirty_logs())
    assert begun is not None
    assert manager.is_current(begun)
    del shelf.logs[log.topic_partition]
    assert not manager.is_current(begun)


def test_a_truncated_log_gives_the_round_up_and_is_dirty_from_there(
    workshop: LogWorkshop,
) -> None:
    log = log_with(workshop, 0, 3, 3, config=COMPACTED)
    clean(log, workshop.clock)
    assert log.cleaner_offset == 6
    write(log, *[(b"k", b"v")] * 20)
    log.roll()
    manager = LogCleanerManager(Shelf().put(log), workshop.clock)
    begun = manager.begin_dirtiest(manager.dirty_logs())
    assert begun is not None
    log.truncate_to(5)
    assert not manager.is_current(begun)
    with pytest.raises(CleaningAborted):
        manager.swap(begun, begun.plan.sources, _Discarded())  # type: ignore[arg-type]
    manager.gave_up(begun)
    assert log.cleaner_offset == 5


def test_a_round_that_ends_early_leaves_it_known_that_the_log_has_gaps(
    workshop: LogWorkshop,
) -> None:
    """Else they are damage once the topic is not compacted any more."""
    log = log_with(workshop, 0, 3, 3, config=COMPACTED)
    manager = LogCleanerManager(Shelf().put(log), workshop.clock)
    begun = manager.begin_dirtiest(manager.dirty_logs())
    assert begun is not None
    throttle = IoThrottle(inf, workshop.clock, lambda _: None)
    cleaning = Cleaner(begun.plan, SETTINGS, throttle, workshop.clock, lambda: None)
    cleaning.build_map()
    group = cleaning.groups[0]
    manager.swap(begun, group, cleaning.clean(group))
    manager.gave_up(begun)
    assert log.cleaner_offset == 0
    assert examine(log, START_MS).first_dirty_offset == 0


class _Discarded:
    def discard(self) -> None:
        pass


def test_a_failing_log_is_marked_named_and_left_alone(
    workshop: LogWorkshop, caplog: pytest.LogCaptureFixture
) -> None:
    log = log_with(workshop, 0, 3, config=COMPACTED)
    shelf = Shelf().put(log)
    manager = LogCleanerManager(shelf, workshop.clock)
    manager.mark_uncleanable(log, "a batch is damaged")
    assert "t-0 cannot be cleaned" in caplog.text
    assert manager.begin_dirtiest(manager.dirty_logs()) is None
    del shelf.logs[log.topic_partition]
    manager.begin_dirtiest(manager.dirty_logs())
    assert not manager.uncleanable


def test_compact_and_delete_together_clean_and_delete(workshop: LogWorkshop) -> None:
    config = replace(COMPACTED, delete=True, retention_ms=1000, file_delete_delay_ms=0)
    log = log_with(workshop, 0, config=config)
    write(log, (b"old", b"v"), timestamp=START_MS - 2000)
    log.roll()
    write(log, (b"k", b"1"), timestamp=START_MS)
    write(log, (b"k", b"2"), timestamp=START_MS)
    log.roll()
    manager = LogCleanerManager(Shelf().put(log), workshop.clock)
    begun = manager.begin_dirtiest(manager.dirty_logs())
    assert begun is not None
    list(manager.delete_old_segments())
    assert log.log_start_offset == 0, "retention keeps off a log that is being cleaned"
    manager.gave_up(begun)
    list(manager.delete_old_segments())
    assert log.log_start_offset == 1
    clean_dirtiest(manager, workshop.clock)
    assert stored_pairs(log) == [(2, b"k", b"2")]


def test_retention_by_the_clock_passes_over_a_log_that_is_being_cleaned(
    workshop: LogWorkshop, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    log = log_with(workshop, 0, 3, config=COMPACTED)
    manager = LogCleanerManager(Shelf().put(log), FakeClock())
    begun = manager.begin_dirtiest(manager.dirty_logs())
    assert begun is not None
    assert log.is_being_cleaned
    manager.done(begun, 3)
    assert not log.is_being_cleaned
    assert log.cleaner_offset == 3
