"""Errors of the client: typed by code, readable, and whole after pickling."""

from __future__ import annotations

import pickle

import pytest

from tidelog.client.errors import (
    BrokerRefused,
    ClientError,
    ConnectionFailed,
    MessageTooLarge,
    NotAuthorized,
    OffsetOutOfRange,
    RequestTimedOut,
    UnknownTopic,
    refused,
)
from tidelog.client.network.backoff import may_pass
from tidelog.errors import ErrorCode


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, UnknownTopic),
        (ErrorCode.UNKNOWN_TOPIC_ID, UnknownTopic),
        (ErrorCode.OFFSET_OUT_OF_RANGE, OffsetOutOfRange),
        (ErrorCode.MESSAGE_TOO_LARGE, MessageTooLarge),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, NotAuthorized),
        (ErrorCode.INVALID_RECORD, BrokerRefused),
    ],
)
def test_a_code_gives_its_own_error(code: ErrorCode, kind: type[ClientError]) -> None:
    problem = refused("fetch of t-0", code)
    assert type(problem) is kind
    assert str(problem) == f"fetch of t-0: {code.name}: {code.text}"


def test_a_code_of_the_future_is_shown_as_a_number() -> None:
    problem = refused("fetch", 9999)
    assert "error 9999" in str(problem)
    assert problem.code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_errors_survive_pickling() -> None:
    problem = pickle.loads(pickle.dumps(refused("fetch of t-0", 1, "why")))
    assert problem.broker_message == "why"
    assert isinstance(problem, OffsetOutOfRange)
    assert (str(problem), problem.code) == ("fetch of t-0: OFFSET_OUT_OF_RANGE: why", 1)


def test_lost_connections_timeouts_and_retriable_codes_may_pass() -> None:
    assert may_pass(ConnectionFailed("x"))
    assert may_pass(RequestTimedOut("x"))
    assert may_pass(refused("x", ErrorCode.NOT_LEADER_OR_FOLLOWER))
    assert not may_pass(refused("x", ErrorCode.MESSAGE_TOO_LARGE))
