"""What the broker does by the clock."""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.clock import BusyClock, FakeClock
from tests.support.failing_disk import FailingDisk
from tests.support.log_broker import LogBroker, close_abruptly
from tests.support.log_builder import fill
from tidelog.broker.housekeeping import Duty, write_checkpoints
from tidelog.slices import SlicedWork
from tidelog.types import TopicPartition, Uuid


def test_duty_runs_at_its_interval_until_stopped() -> None:
    clock = FakeClock()
    turns: list[int] = []
    duty = Duty("count", lambda: 100, lambda: turns.append(clock.time_ms()), clock)
    duty.start()
    clock.advance(ms=350)
    assert len(turns) == 3
    duty.stop()
    clock.advance(ms=1000)
    assert len(turns) == 3


def test_interval_is_asked_for_each_turn() -> None:
    clock = FakeClock()
    interval_ms = 100
    turns: list[int] = []
    duty = Duty("count", lambda: interval_ms, lambda: turns.append(1), clock)
    duty.start()
    clock.advance(ms=100)
    interval_ms = 1000
    clock.advance(ms=100)
    clock.advance(ms=900)
    assert len(turns) == 2
    clock.advance(ms=1000)
    assert len(turns) == 3


def test_failing_duty_is_logged_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()

    def fail() -> None:
        raise OSError("disk full")

    Duty("broken", lambda: 100, fail, clock).start()
    with caplog.at_level(logging.ERROR):
        clock.advance(ms=200)
    assert len(caplog.records) == 2


def test_steps_of_a_duty_are_done_in_slices(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    done: list[int] = []

    def steps() -> Iterator[None]:
        for number in range(3):
            done.append(number)
            yield
        raise OSError("disk full")

    work = SlicedWork(BusyClock(), clock, 0.0015)  # one step a turn
    Duty("long", lambda: 100, steps, clock, work).start()
    with caplog.at_level(logging.ERROR):
        clock.advance(ms=100)
    assert done == [0, 1, 2]
    assert len(caplog.records) == 1
    clock.advance(ms=100)
    assert done == [0, 1, 2] * 2


def test_steps_that_are_not_done_yet_are_not_begun_again() -> None:
    clock, later = FakeClock(), FakeClock()
    done: list[int] = []

    def steps() -> Iterator[None]:
        for number in range(3):
            done.append(number)
            yield

    work = SlicedWork(BusyClock(), later, 0.0015)
    Duty("long", lambda: 100, steps, clock, work).start()
    clock.advance(ms=300)
    assert done == [0]
    later.advance(ms=0)
    assert done == [0, 1, 2]


def test_checkpoints_of_a_dead_disk_do_not_keep_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = LogBroker(tmp_path, directories=2)
    manager = broker.start()
    for number in range(2):
        fill(manager.get_or_create(TopicPartition("t", number), Uuid(bytes(range(16)))), 3)
    FailingDisk(broker.paths[0], monkeypatch).fail(errno.EIO)
    write_checkpoints(manager.pending_checkpoints(), manager.failures.report)
    assert str(broker.paths[0]) in manager.failures
    assert "t 1 3" in (broker.paths[1] / "replication-offset-checkpoint").read_text()
    close_abruptly(manager)
