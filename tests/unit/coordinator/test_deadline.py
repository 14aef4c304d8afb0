from __future__ import annotations

from tests.support.clock import FakeClock
from tidelog.coordinator.deadline import Deadline


class Watched:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.fired_ms: list[float] = []
        self.deadline = Deadline(self.clock, self.clock, self._fired)

    def _fired(self) -> None:
        self.fired_ms.append(self.clock.monotonic() * 1000)


def test_fires_once_at_its_time() -> None:
    watched = Watched()
    watched.deadline.push_back(100)
    watched.clock.advance(ms=1000)
    assert watched.fired_ms == [100]


def test_pushed_back_again_and_again_it_runs_one_timer() -> None:
    watched = Watched()
    for _ in range(10):
        watched.deadline.push_back(100)
        watched.clock.advance(ms=60)
    assert watched.clock.pending_timers() == 1
    watched.clock.advance(ms=1000)
    assert watched.fired_ms == [640]


def test_a_shorter_time_counts_too() -> None:
    watched = Watched()
    watched.deadline.push_back(300_000)
    watched.deadline.push_back(100)
    watched.clock.advance(ms=1_000_000)
    assert watched.fired_ms == [100]


def test_cancelled_it_does_not_fire_until_pushed_again() -> None:
    watched = Watched()
    watched.deadline.push_back(100)
    watched.deadline.cancel()
    watched.clock.advance(ms=1000)
    assert watched.fired_ms == []
    watched.deadline.push_back(100)
    watched.clock.advance(ms=1000)
    assert watched.fired_ms == [1100]
