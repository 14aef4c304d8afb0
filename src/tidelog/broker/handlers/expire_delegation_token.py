"""ExpireDelegationToken v0-v2: let a delegation token expire sooner, or at once.

Behaviour
- A negative period removes the token. Connections that logged in with it stay open until they have
  to authenticate again, at the latest when the token would have expired.
- Otherwise it expires after the period; never beyond its longest life.
Checks, in order: a client that is known and has no token itself (64); delegation.token.secret.key
is set (61); the HMAC is one of a token (62), whose owner or renewer the client is (63), and which
has not expired unless it is to be removed (66).
Versions: v2 flexible.
"""

from __future__ import annotations

from tidelog.broker.context import RequestContext
from tidelog.broker.security.token_requests import NO_TIMESTAMP, must_be_known, must_have_tokens
from tidelog.errors import KafkaError
from tidelog.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)


async def handle(
    context: RequestContext, request: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponse:
    try:
        must_be_known(context)
        tokens = must_have_tokens(context)
        expires_at_ms = await tokens.expire(
            context.session.principal, bytes(request.hmac), request.expiry_time_period_ms
        )
    except KafkaError as error:
        return ExpireDelegationTokenResponse(
            error_code=error.code, expiry_timestamp_ms=NO_TIMESTAMP
        )
    return ExpireDelegationTokenResponse(expiry_timestamp_ms=expires_at_ms)
