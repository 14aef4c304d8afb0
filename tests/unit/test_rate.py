"""Rates: a debt that is paid off in time, and Kafka's average over a window."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.clock import FakeClock
from tidelog.rate import RateLimiter, WindowedRate

# A debt


def test_what_is_spent_is_paid_for_in_time() -> None:
    clock = FakeClock()
    limiter = RateLimiter(1000, clock)
    assert limiter.wait_s() == 0
    limiter.spend(500)
    limiter.spend(1000)
    assert limiter.wait_s() == pytest.approx(1.5)
    clock.advance(ms=1000)
    assert limiter.wait_s() == pytest.approx(0.5)


def test_idle_time_is_not_saved_up() -> None:
    clock = FakeClock()
    limiter = RateLimiter(1000, clock)
    clock.advance(ms=60_000)
    limiter.spend(1000)
    assert limiter.wait_s() == pytest.approx(1.0)


def test_a_new_rate_holds_at_once() -> None:
    limiter = RateLimiter(1, FakeClock())
    limiter.spend(1_000_000)
    limiter.change(1000)
    assert limiter.wait_s() == 0
    limiter.spend(1000)
    limiter.change(1000)
    assert limiter.wait_s() == pytest.approx(1.0)


def test_at_a_rate_of_nothing_nothing_passes() -> None:
    limiter = RateLimiter(0, FakeClock())
    limiter.spend(1000)
    assert limiter.wait_s() > 86_400


def test_a_credit_lets_a_burst_through_and_grows_to_the_burst_only() -> None:
    clock = FakeClock()
    limiter = RateLimiter(4, clock, burst_s=1.0, credit_s=1.0)
    for _ in range(2):
        for _ in range(4):
            assert limiter.wait_s(1) == 0
            limiter.spend(1)
        assert limiter.wait_s(1) == pytest.approx(0.25)
        clock.advance(ms=100_000)


def test_without_a_credit_to_begin_with_the_first_unit_waits() -> None:
    clock = FakeClock()
    limiter = RateLimiter(4, clock, burst_s=1.0)
    assert limiter.wait_s(1) == pytest.approx(0.25)
    clock.advance(ms=250)
    assert limiter.wait_s(1) == 0


def test_a_restart_forgets_debt_and_credit() -> None:
    clock = FakeClock()
    limiter = RateLimiter(10, clock, burst_s=inf)
    limiter.spend(100)
    limiter.restart()
    assert limiter.wait_s() == 0
    clock.advance(ms=100_000)
    limiter.restart()
    limiter.spend(5)
    assert limiter.wait_s() == pytest.approx(0.5)


def test_short_waits_are_put_off_and_not_lost() -> None:
    limiter = RateLimiter(10_000, FakeClock())
    waits = []
    for _ in range(20):
        limiter.spend(1)
        waits.append(limiter.wait_s())
    assert waits[:9] == [0.0] * 9
    assert waits[-1] == pytest.approx(0.002)


@given(
    rate=st.integers(1, 1000),
    burst_s=st.sampled_from([0.0, 0.5, 1.0]),
    asks=st.lists(st.tuples(st.integers(0, 2000), st.integers(1, 50)), max_size=60),
)
def test_no_more_passes_than_the_rate_and_one_burst(
    rate: int, burst_s: float, asks: list[tuple[int, int]]
) -> None:
    clock = FakeClock()
    limiter = RateLimiter(rate, clock, burst_s=burst_s, credit_s=burst_s)
    begun = clock.monotonic()
    passed = largest = 0
    for pause_ms, units in asks:
        clock.advance(ms=pause_ms)
        if limiter.wait_s():
            continue
        limiter.spend(units)
        passed += units
        largest = max(largest, units)
        elapsed_s = clock.monotonic() - begun + burst_s
        assert passed <= elapsed_s * rate + largest + 0.001 * rate + 1e-6


# A window


def window_of(clock: FakeClock, rate: float = 1000) -> WindowedRate:
    window = WindowedRate(clock, sample_count=11, sample_s=1)
    window.rate = rate
    return window


def test_a_burst_counts_until_the_time_it_should_have_taken_is_over() -> None:
    clock = FakeClock()
    window = window_of(clock)
    assert not window.is_exceeded
    window.spend(5000)
    assert window.is_exceeded
    assert window.wait_s() == pytest.approx(4.0)
    clock.advance(ms=4_900)
    assert window.is_exceeded
    clock.advance(ms=100)
    assert not window.is_exceeded
    assert window.wait_s() == 0.0


def test_the_rate_itself_is_not_too_much() -> None:
    clock = FakeClock()
    window = window_of(clock)
    for _ in range(100):
        window.spend(500)
        clock.advance(ms=500)
        assert not window.is_exceeded


def test_what_is_older_than_the_window_does_not_count() -> None:
    clock = FakeClock()
    window = window_of(clock)
    window.spend(1_000_000)
    assert window.wait_s() == pytest.approx(11.0)
    clock.advance(ms=10_999)
    assert window.is_exceeded
    clock.advance(ms=1)
    assert not window.is_exceeded


def test_a_rate_of_zero_lets_nothing_more_through_within_the_window() -> None:
    clock = FakeClock()
    window = window_of(clock, rate=0)
    assert not window.is_exceeded
    window.spend(1)
    assert window.is_exceeded
    assert window.wait_s() == pytest.approx(11.0)


def test_without_a_rate_nothing_is_ever_too_much() -> None:
    window = window_of(FakeClock(), inf)
    window.spend(1 << 60)
    assert not window.is_exceeded
