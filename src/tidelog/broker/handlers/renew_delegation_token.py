"""RenewDelegationToken v0-v2: let a delegation token expire later.

Behaviour
- By the period asked for, or delegation.token.expiry.time.ms for a negative one; never beyond the
  token's longest life.
Checks, in order: a client that is known and has no token itself (64); delegation.token.secret.key
is set (61); the HMAC is one of a token (62), whose owner or renewer the client is (63), and which
has not expired (66).
Versions: v2 flexible.
"""

from __future__ import annotations

from tidelog.broker.context import RequestContext
from tidelog.broker.security.token_requests import NO_TIMESTAMP, must_be_known, must_have_tokens
from tidelog.errors import KafkaError
from tidelog.protocol.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)


async def handle(
    context: RequestContext, request: RenewDelegationTokenRequest
) -> RenewDelegationTokenResponse:
    try:
        must_be_known(context)
        tokens = must_have_tokens(context)
        expires_at_ms = await tokens.renew(
            context.session.principal, bytes(request.hmac), request.renew_period_ms
        )
    except KafkaError as error:
        return RenewDelegationTokenResponse(error_code=error.code, expiry_timestamp_ms=NO_TIMESTAMP)
    return RenewDelegationTokenResponse(expiry_timestamp_ms=expires_at_ms)
