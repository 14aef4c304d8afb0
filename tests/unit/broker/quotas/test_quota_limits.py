"""Which quota holds for whom: the precedence of Kafka's ClientQuotaManager."""

from __future__ import annotations

import pytest

from tidelog.broker.quotas.quota_entity import QuotaEntity
from tidelog.broker.quotas.quota_limits import Limit, QuotaLimits

KEY = "producer_byte_rate"
PAIR, USER_ALONE, CLIENT_ALONE = ("alice", "app"), ("alice", ""), ("", "app")

# From the most specific one on, and who shares it.
PRECEDENCE = [
    (QuotaEntity(user="alice", client_id="app"), PAIR),
    (QuotaEntity(user="alice", client_id=None), PAIR),
    (QuotaEntity(user="alice"), USER_ALONE),
    (QuotaEntity(user=None, client_id="app"), PAIR),
    (QuotaEntity(user=None, client_id=None), PAIR),
    (QuotaEntity(user=None), USER_ALONE),
    (QuotaEntity(client_id="app"), CLIENT_ALONE),
    (QuotaEntity(client_id=None), CLIENT_ALONE),
]


def limits_with(quotas: dict[QuotaEntity, int], key: str = KEY) -> QuotaLimits:
    limits = QuotaLimits()
    for entity, rate in quotas.items():
        limits.take_over(entity, {key: str(rate)})
    return limits


@pytest.mark.parametrize("first", range(len(PRECEDENCE)))
def test_the_most_specific_quota_holds(first: int) -> None:
    """Of those from `first` on; without it, the next one does."""
    limits = limits_with({entity: 100 + i for i, (entity, _) in enumerate(PRECEDENCE[first:])})
    assert limits.of(KEY).find("alice", "app") == Limit(PRECEDENCE[first][1], 100)


def test_others_have_the_quotas_of_everybody() -> None:
    limits = limits_with({entity: i for i, (entity, _) in enumerate(PRECEDENCE)})
    find = limits.of(KEY).find
    assert find("alice", "other") == Limit(("alice", "other"), 1)
    assert find("bob", "app") == Limit(("bob", "app"), 3)
    assert find("bob", "other") == Limit(("bob", "other"), 4)


def test_a_client_that_does_not_tell_its_name_falls_under_the_default() -> None:
    """In Kafka it would go free."""
    assert limits_with({QuotaEntity(client_id=None): 7}).of(KEY).find("bob", "") == Limit(
        ("", ""), 7
    )
    both = limits_with({QuotaEntity(user="bob"): 1, QuotaEntity(user="bob", client_id=None): 2})
    assert both.of(KEY).find("bob", "") == Limit(("bob", ""), 2)


def test_a_user_called_default_is_a_user_like_others() -> None:
    limits = limits_with({QuotaEntity(user="<default>"): 7})
    assert limits.of(KEY).find("bob", "app") is None
    assert limits.of(KEY).find("<default>", "app") == Limit(("<default>", ""), 7)


def test_each_kind_of_quota_has_its_own_precedence() -> None:
    limits = limits_with({QuotaEntity(user="alice"): 1})
    limits.take_over(QuotaEntity(client_id="app"), {"request_percentage": "12.5"})
    assert limits.of("request_percentage").find("alice", "app") == Limit(("", "app"), 12.5)
    assert limits.of(KEY).find("alice", "app") == Limit(("alice", ""), 1)
    assert limits.of("consumer_byte_rate").find("alice", "app") is None


def test_clients_are_bound_while_a_quota_of_theirs_is_set() -> None:
    limits = QuotaLimits()
    assert not limits.binds_clients
    assert not limits.take_over(QuotaEntity(user="alice"), {"SCRAM-SHA-256": "..."})
    assert limits.take_over(QuotaEntity(ip=None), {"connection_creation_rate": "5"})
    assert not limits.binds_clients
    assert limits.take_over(QuotaEntity(user="alice"), {KEY: "5", "SCRAM-SHA-256": "..."})
    assert limits.binds_clients
    assert not limits.take_over(QuotaEntity(user="alice"), {KEY: "5"})
    assert limits.take_over(QuotaEntity(user="alice"), {})
    assert not limits.binds_clients
    assert list(limits.all()) == [(QuotaEntity(ip=None), {"connection_creation_rate": 5.0})]
    assert limits.of_addresses("connection_creation_rate") == {None: 5.0}


def test_a_quota_that_is_no_number_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    limits = QuotaLimits()
    limits.take_over(QuotaEntity(user="alice"), {KEY: "fast", "consumer_byte_rate": "5"})
    assert list(limits.all()) == [(QuotaEntity(user="alice"), {"consumer_byte_rate": 5.0})]
    assert "producer_byte_rate=fast" in caplog.text
