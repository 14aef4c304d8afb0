from __future__ import annotations

from typing import Any

import pytest

from tests.support.clock import FakeClock
from tidelog.network.connection_quotas import ConnectionQuotas
from tidelog.network.settings import NetworkSettings


def new_quotas(
    *listener_names: str, clock: FakeClock | None = None, **settings: Any
) -> ConnectionQuotas:
    names = listener_names or ("PLAINTEXT",)
    return ConnectionQuotas(NetworkSettings(**settings), names, clock or FakeClock())


def test_an_address_may_have_as_many_connections_as_the_limit() -> None:
    quotas = new_quotas(max_connections_per_ip=2)
    quotas.increment("PLAINTEXT", "10.0.0.1")
    assert quotas.address_available("10.0.0.1")

    quotas.increment("PLAINTEXT", "10.0.0.1")

    assert not quotas.address_available("10.0.0.1")
    assert quotas.address_available("10.0.0.2")


def test_a_closed_connection_gives_its_place_back() -> None:
    quotas = new_quotas(max_connections_per_ip=1, max_connections=1)
    quotas.increment("PLAINTEXT", "10.0.0.1")

    quotas.decrement("PLAINTEXT", "10.0.0.1")

    assert quotas.address_available("10.0.0.1")
    assert quotas.slot_available("PLAINTEXT")
    assert quotas.total == 0


def test_an_override_replaces_the_limit_of_its_address() -> None:
    overrides = {"10.0.0.1": 0, "10.0.0.2": 2}
    quotas = new_quotas(max_connections_per_ip=1, max_connections_per_ip_overrides=overrides)
    quotas.increment("PLAINTEXT", "10.0.0.2")

    assert not quotas.address_available("10.0.0.1")
    assert quotas.address_available("10.0.0.2")


def test_a_listener_has_a_limit_of_its_own() -> None:
    quotas = new_quotas("A", "B", max_connections_per_listener={"A": 1})
    quotas.increment("A", "10.0.0.1")

    assert not quotas.slot_available("A")
    assert quotas.slot_available("B")


def test_the_inter_broker_listener_is_exempt_from_the_total_if_there_is_another() -> None:
    settings: dict[str, Any] = {"max_connections": 1, "inter_broker_listener_name": "INTERNAL"}
    quotas = new_quotas("INTERNAL", "EXTERNAL", **settings)
    alone = new_quotas("INTERNAL", **settings)
    for each, listener_name in ((quotas, "EXTERNAL"), (alone, "INTERNAL")):
        each.increment(listener_name, "10.0.0.1")

    assert quotas.slot_available("INTERNAL")
    assert not quotas.slot_available("EXTERNAL")
    assert not alone.slot_available("INTERNAL")


def test_new_settings_count_at_once() -> None:
    quotas = new_quotas(max_connections=1)
    quotas.increment("PLAINTEXT", "10.0.0.1")

    quotas.configure(NetworkSettings(max_connections=2))

    assert quotas.slot_available("PLAINTEXT")


def test_connections_come_no_faster_than_the_rate() -> None:
    clock = FakeClock()
    quotas = new_quotas(clock=clock, max_connection_creation_rate=4)
    for _ in range(4):
        assert quotas.creation_pause_s("PLAINTEXT") == 0.0
        quotas.created("PLAINTEXT")
    assert quotas.creation_pause_s("PLAINTEXT") == 0.25

    clock.advance(ms=250)
    assert quotas.creation_pause_s("PLAINTEXT") == 0.0
    quotas.created("PLAINTEXT")
    assert quotas.creation_pause_s("PLAINTEXT") == 0.25

    clock.advance(ms=100_000)
    for _ in range(4):
        assert quotas.creation_pause_s("PLAINTEXT") == 0.0
        quotas.created("PLAINTEXT")
    assert quotas.creation_pause_s("PLAINTEXT") > 0.0


def test_a_listener_has_a_rate_of_its_own_and_that_of_brokers_no_other() -> None:
    quotas = new_quotas(
        "INTERNAL",
        "EXTERNAL",
        inter_broker_listener_name="INTERNAL",
        max_connection_creation_rate=1,
        max_connection_creation_rate_per_listener={"INTERNAL": 2},
    )
    quotas.created("EXTERNAL")
    assert quotas.creation_pause_s("EXTERNAL") == 1.0
    quotas.created("INTERNAL")
    assert quotas.creation_pause_s("INTERNAL") == 0.0
    quotas.created("INTERNAL")
    assert quotas.creation_pause_s("INTERNAL") == 0.5


def test_a_rate_changes_while_the_broker_runs() -> None:
    quotas = new_quotas(max_connection_creation_rate=1)
    quotas.created("PLAINTEXT")
    quotas.configure(NetworkSettings(max_connection_creation_rate=1, max_connections=7))
    assert quotas.creation_pause_s("PLAINTEXT") == 1.0
    quotas.configure(NetworkSettings(max_connection_creation_rate=3))
    assert quotas.creation_pause_s("PLAINTEXT") == 0.0
    quotas.configure(NetworkSettings(max_connection_creation_rate=0))
    assert quotas.creation_pause_s("PLAINTEXT") > 0.0
    quotas.configure(NetworkSettings())
    assert quotas.creation_pause_s("PLAINTEXT") == 0.0


def test_a_host_name_is_looked_up_by_others_once_the_broker_serves() -> None:
    quotas = new_quotas()
    overrides = {"kafka.example": 1, "10.0.0.2": 1}
    quotas.configure(NetworkSettings(max_connections_per_ip_overrides=overrides))
    assert quotas.hosts_to_look_up() == ["kafka.example"]
    quotas.increment("PLAINTEXT", "10.0.0.1")
    quotas.increment("PLAINTEXT", "10.0.0.2")
    assert quotas.address_available("10.0.0.1")
    assert not quotas.address_available("10.0.0.2")

    quotas.learn("kafka.example", frozenset(("10.0.0.1", "10.0.0.3")))

    assert quotas.hosts_to_look_up() == []
    assert not quotas.address_available("10.0.0.1")
    assert quotas.address_available("10.0.0.3")


def test_an_address_makes_connections_no_faster_than_its_quota() -> None:
    clock = FakeClock()
    quotas = new_quotas(clock=clock, quota_window_num=3)
    quotas.configure_ip_rates({None: 100.0, "10.0.0.1": 5.0})
    assert [quotas.ip_throttle_s("10.0.0.1") for _ in range(10)] == [0.0] * 10
    assert quotas.ip_throttle_s("10.0.0.1") == pytest.approx(0.2)
    assert quotas.ip_throttle_s("10.0.0.1") == pytest.approx(0.2), "a refused one does not count"
    assert [quotas.ip_throttle_s("10.0.0.2") for _ in range(200)] == [0.0] * 200
    assert quotas.ip_throttle_s("10.0.0.2") == pytest.approx(0.01)
    clock.advance(ms=3000)
    assert quotas.ip_throttle_s("10.0.0.1") == 0.0


def test_an_address_waits_one_sample_at_most() -> None:
    quotas = new_quotas(quota_window_num=2)
    quotas.configure_ip_rates({None: 0.1})
    assert quotas.ip_throttle_s("10.0.0.1") == 1.0


def test_addresses_without_a_quota_come_as_they_like() -> None:
    quotas = new_quotas()
    quotas.configure_ip_rates({"10.0.0.1": 1.0})
    assert not any(quotas.ip_throttle_s("10.0.0.2") for _ in range(100))
    assert any(quotas.ip_throttle_s("10.0.0.1") for _ in range(100))
    quotas.configure_ip_rates({})
    assert quotas.ip_throttle_s("10.0.0.1") == 0.0


def test_a_quota_of_a_host_holds_for_its_addresses_once_they_are_known() -> None:
    quotas = new_quotas(quota_window_num=2)
    quotas.configure_ip_rates({"kafka.example": 1.0})
    assert quotas.hosts_to_look_up() == ["kafka.example"]
    assert not any(quotas.ip_throttle_s("10.0.0.1") for _ in range(10))
    quotas.learn("kafka.example", frozenset(("10.0.0.1",)))
    assert any(quotas.ip_throttle_s("10.0.0.1") for _ in range(10))
