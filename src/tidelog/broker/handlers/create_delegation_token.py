"""CreateDelegationToken v0-v3: make a delegation token for the client, or for another user.

Behaviour
- The answer has the HMAC, with which SCRAM logs in as the owner; it is not logged.
- The token lives as long as is asked for, at most delegation.token.max.lifetime.ms, and expires
  after delegation.token.expiry.time.ms unless it is renewed.
- Any broker makes tokens, and all brokers know them soon.
Checks, in order: a client that is known and has no token itself (64); CREATE_TOKENS on another
owner (65); renewers, and the owner, of type User (67); delegation.token.secret.key is set (61).
Versions: v2 flexible; v3 owner and requester (KIP-373).
Unlike Kafka: an owner of another type than User is refused. Whoever logs in is of type User, so in
Kafka such a token is good for the user of that name.
"""

from __future__ import annotations

from typing import Final

from tidelog.broker.authorized_operations import CREATE_TOKENS, USER
from tidelog.broker.context import RequestContext
from tidelog.broker.security.token_requests import NO_TIMESTAMP, must_be_known, must_have_tokens
from tidelog.broker.security.token_znodes import TokenInformation
from tidelog.errors import ErrorCode, KafkaError
from tidelog.network.session import Principal
from tidelog.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)

USER_TYPE: Final = "User"
FIRST_VERSION_WITH_REQUESTER: Final = 3


async def handle(
    context: RequestContext, request: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse:
    requester = owner = context.session.principal
    if request.owner_principal_name:
        owner = Principal(request.owner_principal_type or "", request.owner_principal_name)
    has_requester = context.api_version >= FIRST_VERSION_WITH_REQUESTER
    response = CreateDelegationTokenResponse(
        principal_type=owner.type,
        principal_name=owner.name,
        token_requester_principal_type=requester.type if has_requester else "",
        token_requester_principal_name=requester.name if has_requester else "",
        issue_timestamp_ms=NO_TIMESTAMP,
        expiry_timestamp_ms=NO_TIMESTAMP,
        max_timestamp_ms=NO_TIMESTAMP,
    )
    try:
        token = await _create(context, request, owner)
    except KafkaError as error:
        response.error_code = error.code
        return response
    response.issue_timestamp_ms = token.issue_timestamp
    response.expiry_timestamp_ms = token.expiry_timestamp
    response.max_timestamp_ms = token.max_timestamp
    response.token_id = token.token_id
    response.hmac = must_have_tokens(context).hmac_of(token.token_id)
    return response


async def _create(
    context: RequestContext, request: CreateDelegationTokenRequest, owner: Principal
) -> TokenInformation:
    must_be_known(context)
    requester = context.session.principal
    if owner != requester and not context.may(CREATE_TOKENS, USER, str(owner)):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
    renewers = [Principal(each.principal_type, each.principal_name) for each in request.renewers]
    if any(each.type != USER_TYPE for each in (owner, *renewers)):
        raise KafkaError(ErrorCode.INVALID_PRINCIPAL_TYPE)
    tokens = must_have_tokens(context)
    return await tokens.create(owner, requester, renewers, request.max_lifetime_ms)
