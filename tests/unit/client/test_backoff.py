"""Waiting between tries, and giving up."""

from __future__ import annotations

import pytest

from tests.support.clock import FakeClock
from tidelog.client.backoff import Patience
from tidelog.client.errors import ConnectionFailed, RequestTimedOut, UnknownTopic
from tidelog.client.network.backoff import JITTER, Backoff
from tidelog.config.client import ClientConfig


def test_waits_double_up_to_the_longest() -> None:
    backoff = Backoff(100, 1000)
    for expected_ms in (100, 200, 400, 800, 1000, 1000):
        wait_ms = backoff.next_s() * 1000
        assert expected_ms * (1 - JITTER) <= wait_ms <= expected_ms * (1 + JITTER)


def test_progress_starts_the_waits_anew() -> None:
    backoff = Backoff(100, 1000)
    for _ in range(9):
        backoff.next_s()
    backoff.reset()
    assert backoff.next_s() <= 0.12


def patience_on(clock: FakeClock, **options: object) -> Patience:
    config = ClientConfig({"bootstrap.servers": "a:1", "default.api.timeout.ms": 1000, **options})
    return Patience(
        "fetch of t-0", config, clock, sleep=lambda s: clock.advance(ms=max(1, round(s * 1000)))
    )


def test_patience_ends_with_the_last_problem_named() -> None:
    clock = FakeClock()
    patience = patience_on(clock)
    problem = ConnectionFailed("broker a:1: cannot connect")

    def try_on() -> None:
        for _ in range(1000):
            patience.wait_after(problem)

    with pytest.raises(
        RequestTimedOut, match=r"fetch of t-0.*1000 ms \(default.api.timeout.ms\).*cannot connect"
    ):
        try_on()
    assert 1.0 <= clock.monotonic() < 1.1


def test_progress_extends_patience() -> None:
    clock = FakeClock()
    patience = patience_on(clock)
    for _ in range(10):
        clock.advance(ms=900)
        patience.progressed()
        patience.wait_after(ConnectionFailed("x"))


def test_a_missing_topic_is_reported_as_such_when_patience_ends() -> None:
    clock = FakeClock()
    patience = patience_on(clock)
    clock.advance(ms=1000)
    with pytest.raises(UnknownTopic):
        patience.wait_after(UnknownTopic("topic t", 3))
