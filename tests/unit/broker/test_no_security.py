"""A login where none is due is answered, as Kafka 3.9 answers it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from tests.support.handlers import FakeConnection
from tidelog.broker.api_table import served
from tidelog.broker.context import RequestContext
from tidelog.broker.handlers import no_security
from tidelog.errors import ErrorCode
from tidelog.protocol.header import RequestHeader
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
    assert advertised == {17: (0, 1), 36: (0, 2)}


def test_nobody_authenticates_on_a_plain_listener() -> None:
    handshake = ask(SaslHandshakeRequest(mechanism="PLAIN"))
    assert (handshake.error_code, handshake.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])
    assert ask(SaslAuthenticateRequest()).error_code == ErrorCode.ILLEGAL_SASL_STATE
