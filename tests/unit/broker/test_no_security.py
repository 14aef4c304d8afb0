"""Requests about security on a broker that has none are answered, as Kafka 3.9 answers them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.support.handlers import FakeConnection
from tidelog.broker.api_table import served
from tidelog.broker.context import RequestContext
from tidelog.broker.handlers import no_security
from tidelog.errors import ErrorCode
from tidelog.protocol.header import RequestHeader
from tidelog.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from tidelog.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
)
from tidelog.protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from tidelog.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from tidelog.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from tidelog.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from tidelog.protocol.messages.sasl_handshake import SaslHandshakeRequest


def ask(request: Any) -> Any:
    """The answer of the latest version; each version has one that can be written."""
    answer = None
    broker: Any = SimpleNamespace(authorizer=None)
    for version in range(request.MIN_VERSION, request.MAX_VERSION + 1):
        header = RequestHeader(request.API_KEY, version, 1, "test", 0)
        context = RequestContext(broker, cast(Any, FakeConnection()), header)
        answer = no_security.handle(context, request)
        answer.encode(version)
    return answer


def test_the_versions_are_those_of_kafka_3_9() -> None:
    advertised = {
        int(api.key): (api.min_version, api.max_version)
        for api in served(in_cluster=False)
        if api.handler_module.endswith("no_security")
    }
    assert advertised == {
        17: (0, 1),
        36: (0, 2),
        38: (0, 3),
        39: (0, 2),
        40: (0, 2),
        41: (0, 3),
        48: (0, 1),
    }
    assert 49 not in {api.key for api in served(in_cluster=True)}


def test_nobody_authenticates_on_a_plain_listener() -> None:
    handshake = ask(SaslHandshakeRequest(mechanism="PLAIN"))
    assert (handshake.error_code, handshake.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])
    assert ask(SaslAuthenticateRequest()).error_code == ErrorCode.ILLEGAL_SASL_STATE


@pytest.mark.parametrize(
    ("owner", "shown"), [((None, None), ("User", "ANONYMOUS")), (("User", "eve"), ("User", "eve"))]
)
def test_tokens_are_not_given_to_those_whom_nobody_knows(
    owner: tuple[str | None, str | None], shown: tuple[str, str]
) -> None:
    request = CreateDelegationTokenRequest(
        owner_principal_type=owner[0], owner_principal_name=owner[1]
    )
    answer = ask(request)
    assert answer.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    assert (answer.principal_type, answer.principal_name) == shown
    assert answer.token_requester_principal_name == "ANONYMOUS"
    assert answer.issue_timestamp_ms == answer.expiry_timestamp_ms == answer.max_timestamp_ms == -1


def test_tokens_are_neither_renewed_nor_expired_nor_described() -> None:
    for request in (RenewDelegationTokenRequest(), ExpireDelegationTokenRequest()):
        answer = ask(request)
        assert answer.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        assert answer.expiry_timestamp_ms == -1
    answer = ask(DescribeDelegationTokenRequest())
    assert answer.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    assert answer.tokens == []


@pytest.mark.parametrize(
    ("kinds", "code"),
    [
        ([], ErrorCode.NONE),
        (["user", "client-id"], ErrorCode.NONE),
        (["ip"], ErrorCode.NONE),
        (["user", "user"], ErrorCode.INVALID_REQUEST),
        (["ip", "user"], ErrorCode.INVALID_REQUEST),
        ([""], ErrorCode.INVALID_REQUEST),
        (["planet"], ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_there_are_no_quotas_for_a_filter_that_is_one(kinds: list[str], code: ErrorCode) -> None:
    components = [ComponentData(entity_type=kind) for kind in kinds]
    answer = ask(DescribeClientQuotasRequest(components=components))
    assert (answer.error_code, answer.entries) == (code, None if code else [])
