"""What a broker answers to a login where none is due, as Kafka 3.9.

    SaslHandshake v0-v1       ILLEGAL_SASL_STATE (34): on a listener without SASL, or when the
                              client has authenticated
    SaslAuthenticate v0-v2    ILLEGAL_SASL_STATE (34)

A client library that asks is told so instead of being cut off.
"""

from __future__ import annotations

from functools import singledispatch

from tidelog.broker.context import RequestContext
from tidelog.errors import ErrorCode
from tidelog.protocol.message import Message
from tidelog.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from tidelog.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


def handle(context: RequestContext, request: Message) -> Message:
    return _answer(request, context)


@singledispatch
def _answer(request: Message, context: RequestContext) -> Message:
    raise AssertionError(f"no row of the API table leads here: {type(request).__name__}")


@_answer.register
def _sasl_handshake(
    request: SaslHandshakeRequest, context: RequestContext
) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)


@_answer.register
def _sasl_authenticate(
    request: SaslAuthenticateRequest, context: RequestContext
) -> SaslAuthenticateResponse:
    asks_nobody = context.session.authenticator is None
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="This listener asks nobody to authenticate."
        if asks_nobody
        else "SaslAuthenticate request received after successful authentication",
    )
