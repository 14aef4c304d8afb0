from __future__ import annotations

import logging

import pytest

from tests.support.clock import FakeClock
from tidelog.broker.duties import Duty


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
