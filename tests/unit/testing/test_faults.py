"""Faults by their names, and which APIs an error can be planted in."""

from __future__ import annotations

import pytest

from tidelog.broker.api_table import API_TABLE
from tidelog.errors import ErrorCode
from tidelog.protocol.api_keys import ApiKey
from tidelog.testing.faults import (
    Effect,
    Fault,
    FaultRules,
    api_named,
    error_named,
)


@pytest.mark.parametrize("name", ["OffsetCommit", "offset_commit", "OFFSETCOMMIT"])
def test_an_api_is_found_by_its_name(name: str) -> None:
    assert api_named(name) is ApiKey.OFFSET_COMMIT


def test_a_name_that_kafka_does_not_have_is_refused_with_the_nearest() -> None:
    with pytest.raises(ValueError, match="no API 'Produse': Produce"):
        api_named("Produse")
    with pytest.raises(ValueError, match="no error 'NOT_LEADER'"):
        error_named("NOT_LEADER")


@pytest.mark.parametrize("error", ["not_leader_or_follower", 6, ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_an_error_is_found_by_name_or_number(error: str | int) -> None:
    assert error_named(error) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_every_api_of_clients_has_a_place_for_an_error_or_says_that_it_has_none() -> None:
    without = []
    for api in API_TABLE:
        try:
            FaultRules().add(Fault(Effect.FAIL, api.key, ErrorCode.UNKNOWN_SERVER_ERROR))
        except ValueError:
            without.append(api.key)
    assert ApiKey.PRODUCE not in without
    assert len(without) < len(API_TABLE) / 3, without
