"""Rates: a debt that is paid off in time, and Kafka's average over a window."""

from __future__ import annotations

from itertools import cycle
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.clock import FakeClock
from tidelog.rate import SENSORS_MAX, QuotaRate, RateLimiter, Sensors, WindowedRate

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


# Kafka's average for quotas of clients


def quota_rate(clock: FakeClock, rate: float, sample_count: int = 11) -> QuotaRate:
    made = QuotaRate(clock, sample_count=sample_count, sample_s=1)
    made.rate = rate
    return made


def test_a_quiet_client_may_spend_all_but_one_sample_at_once() -> None:
    rate = quota_rate(FakeClock(), 100)
    rate.spend(1000)
    assert rate.debt_s() == 0
    rate.spend(50)
    assert rate.debt_s() == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("elapsed_ms", "window_s"), [(0, 10.0), (900, 10.9), (1000, 10.0), (9500, 10.5), (10_900, 10.9)]
)
def test_the_window_is_counted_as_kafka_counts_it(elapsed_ms: int, window_s: float) -> None:
    """All samples but one, and what is over of the present one."""
    clock = FakeClock()
    rate = quota_rate(clock, 100)
    rate.spend(0)
    clock.advance(ms=elapsed_ms)
    rate.spend(2000)
    assert rate.debt_s() == pytest.approx(20 - window_s)


def test_after_its_debt_a_client_is_back_at_its_rate() -> None:
    clock = FakeClock()
    rate = quota_rate(clock, 100, sample_count=2)
    rate.spend(500)
    assert rate.debt_s() == pytest.approx(4.0)
    clock.advance(ms=2000)
    assert rate.debt_s() == 0, "the sample is forgotten, so whoever did not wait gets off"


def test_what_is_given_back_was_never_spent() -> None:
    rate = quota_rate(FakeClock(), 100)
    rate.spend(5000)
    rate.spend(-5000)
    assert rate.debt_s() == 0


@pytest.mark.parametrize(
    ("sample_count", "sizes"),
    [(2, (20,)), (2, (500,)), (5, (500,)), (11, (20,)), (11, (10, 3000)), (11, (4000, 20, 20))],
)
def test_a_client_that_waits_its_debts_out_keeps_its_rate(
    sample_count: int, sizes: tuple[int, ...]
) -> None:
    """Over ten minutes, if it sends as fast as it may, and nothing that is as large as a window."""
    clock = FakeClock()
    rate = quota_rate(clock, 1000, sample_count)
    spent = 0
    for size in cycle(sizes):
        rate.spend(size)
        spent += size
        clock.advance(ms=max(1, round(rate.debt_s() * 1000)))
        if clock.monotonic() > 600:
            break
    assert 0.95 <= spent / clock.monotonic() / 1000 <= 1.1


def test_sensors_that_nobody_uses_are_forgotten_after_an_hour() -> None:
    clock = FakeClock()
    sensors = Sensors(lambda: quota_rate(clock, 100), clock)
    used, idle = sensors.get("used"), sensors.get("idle")
    clock.advance(ms=1_800_000)
    assert sensors.get("used") is used
    clock.advance(ms=1_801_000)
    sensors.get("new")
    assert len(sensors) == 2
    assert sensors.get("used") is used
    assert sensors.get("idle") is not idle


def test_sensors_are_bounded_and_those_unused_longest_go_first() -> None:
    clock = FakeClock()
    sensors = Sensors(object, clock)
    first = sensors.get(0)
    for name in range(1, SENSORS_MAX):
        sensors.get(name)
    assert sensors.get(0) is first
    for name in range(SENSORS_MAX, 2 * SENSORS_MAX - 1):
        sensors.get(name)
    assert len(sensors) == SENSORS_MAX
    assert sensors.get(0) is first
    sensors.get("one more")
    assert len(sensors) == SENSORS_MAX
