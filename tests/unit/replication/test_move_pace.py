from __future__ import annotations

import pytest

from tests.support.clock import FakeClock
from tidelog.replication.move_pace import MovePace


def test_what_is_copied_is_paid_for_in_time() -> None:
    clock = FakeClock()
    pace = MovePace(1000, clock)
    assert pace.wait_s() == 0
    pace.spend(500)
    pace.spend(1000)
    assert pace.wait_s() == pytest.approx(1.5)
    clock.advance(ms=1000)
    assert pace.wait_s() == pytest.approx(0.5)


def test_idle_time_is_not_saved_up() -> None:
    clock = FakeClock()
    pace = MovePace(1000, clock)
    clock.advance(ms=60_000)
    pace.spend(1000)
    assert pace.wait_s() == pytest.approx(1.0)


def test_a_new_rate_holds_at_once() -> None:
    pace = MovePace(1, FakeClock())
    pace.spend(1_000_000)
    pace.change(1000)
    assert pace.wait_s() == 0
    pace.spend(1000)
    pace.change(1000)
    assert pace.wait_s() == pytest.approx(1.0)


def test_at_a_rate_of_nothing_nothing_moves() -> None:
    pace = MovePace(0, FakeClock())
    pace.spend(1000)
    assert pace.wait_s() > 86_400
