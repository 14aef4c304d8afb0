"""Long work of duties: how much of it a turn of the loop does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.clock import FakeClock
from tidelog.slices import SlicedWork

STEP_MS = 1
SLICE_MS = 4


class SteppedClock(FakeClock):
    """Time also passes while a step runs."""

    def __init__(self) -> None:
        super().__init__()
        self.worked_ms = 0

    def monotonic(self) -> float:
        return super().monotonic() + self.worked_ms / 1000


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock()


@pytest.fixture
def work(clock: SteppedClock) -> SlicedWork:
    return SlicedWork(clock, clock, SLICE_MS / 1000)


def steps(clock: SteppedClock, done: list[str], name: str, count: int) -> Iterator[None]:
    for _ in range(count):
        clock.worked_ms += STEP_MS
        done.append(name)
        yield


def one_turn(clock: SteppedClock) -> None:
    """Runs what is due now, and not what that puts off."""
    due, clock._timers = clock._timers, []
    for _, _, handle in due:
        handle.callback()


def test_short_work_is_done_at_once(clock: SteppedClock, work: SlicedWork) -> None:
    done: list[str] = []
    work.start(steps(clock, done, "a", SLICE_MS - 1))
    assert len(done) == SLICE_MS - 1
    assert not clock.pending_timers()


def test_a_turn_does_one_slice_of_long_work(clock: SteppedClock, work: SlicedWork) -> None:
    done: list[str] = []
    work.start(steps(clock, done, "a", 10))
    assert len(done) == SLICE_MS
    one_turn(clock)
    assert len(done) == 2 * SLICE_MS
    one_turn(clock)
    assert len(done) == 10
    assert not clock.pending_timers()


def test_works_of_one_turn_share_its_slice(clock: SteppedClock, work: SlicedWork) -> None:
    done: list[str] = []
    for name in "abc":
        work.start(steps(clock, done, name, 3))
    assert done == ["a", "a", "a", "b"]
    one_turn(clock)
    assert done == ["a", "a", "a", "b", "b", "b", "c", "c"]


def test_work_that_starts_other_work_is_finished_first(
    clock: SteppedClock, work: SlicedWork
) -> None:
    done: list[str] = []

    def nested() -> Iterator[None]:
        work.start(steps(clock, done, "inner", 1))
        done.append("outer")
        yield
        done.append("outer")

    work.start(nested())
    assert done == ["outer", "outer", "inner"]


def test_work_that_fails_ends_alone(clock: SteppedClock, work: SlicedWork) -> None:
    done: list[str] = []

    def failing() -> Iterator[None]:
        work.start(steps(clock, done, "next", 1))
        yield
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work.start(failing())
    one_turn(clock)
    assert done == ["next"]


def test_a_duty_does_not_begin_again_before_it_has_ended(
    clock: SteppedClock, work: SlicedWork
) -> None:
    done: list[str] = []
    work.repeat("duty", steps(clock, done, "first", SLICE_MS + 1))
    work.repeat("duty", steps(clock, done, "too early", 1))
    one_turn(clock)
    work.repeat("duty", steps(clock, done, "second", 1))
    assert done == ["first"] * (SLICE_MS + 1) + ["second"]
