"""When a broker is live, and when it is ready."""

from __future__ import annotations

from tests.support.clock import FakeClock
from tidelog.broker.observation.health import Health


def test_a_broker_that_loads_logs_is_live_and_not_ready() -> None:
    clock = FakeClock()
    health = Health(clock, 30_000)
    clock.advance(ms=600_000)
    assert health.sick() is None
    assert health.not_ready() == "starting"


def test_a_broker_that_serves_is_ready_until_it_is_to_stop() -> None:
    health = Health(FakeClock(), 30_000)
    health.serves()
    assert health.sick() is None
    assert health.not_ready() is None
    health.stops()
    assert health.sick() is None
    assert health.not_ready() == "stopping"


def test_a_loop_that_does_not_turn_is_neither_live_nor_ready() -> None:
    clock = FakeClock()
    health = Health(clock, 30_000)
    health.serves()
    clock.advance(ms=29_000)
    assert health.sick() is None
    clock.advance(ms=1_000)
    assert health.sick() == "the event loop has not turned for 30 s"
    assert health.not_ready() == health.sick()
    health.beat((), ())
    assert health.not_ready() is None


def test_an_offline_directory_ends_health_and_a_closed_listener_readiness() -> None:
    health = Health(FakeClock(), 30_000)
    health.serves()
    health.beat((), ["PLAINTEXT"])
    assert health.sick() is None
    assert health.not_ready() == "listeners do not accept: PLAINTEXT"
    health.beat(["/data/a"], ())
    assert health.sick() == "log directories are offline: /data/a"
    assert health.not_ready() == health.sick()
