"""DescribeDelegationToken v0-v3: the delegation tokens that a client may see, with their HMACs.

Behaviour
- All of them, or those whose owner or renewer is named; none for an empty list of owners.
- A client sees the tokens that it owns or may renew. It sees others with DESCRIBE on the token or
  DESCRIBE_TOKENS on the owner. What it may not see is left out.
- A token that has expired is there until it is removed.
Checks, in order: a client that is known and has no token itself (64); delegation.token.secret.key
is set (61).
Versions: v2 flexible; v3 requester (KIP-373).
"""

from __future__ import annotations

from tidelog.broker.authorized_operations import DELEGATION_TOKEN, DESCRIBE, DESCRIBE_TOKENS, USER
from tidelog.broker.context import RequestContext
from tidelog.broker.security.delegation_tokens import DelegationTokens
from tidelog.broker.security.token_requests import must_be_known, must_have_tokens
from tidelog.broker.security.token_znodes import TokenInformation
from tidelog.errors import KafkaError
from tidelog.network.session import Principal
from tidelog.protocol.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)


def handle(
    context: RequestContext, request: DescribeDelegationTokenRequest
) -> DescribeDelegationTokenResponse:
    try:
        must_be_known(context)
        tokens = must_have_tokens(context)
    except KafkaError as error:
        return DescribeDelegationTokenResponse(error_code=error.code)
    owners = request.owners
    wanted = (
        None
        if owners is None
        else [Principal(each.principal_type, each.principal_name) for each in owners]
    )
    rows = [
        _row(tokens, token)
        for token in tokens.all()
        if (wanted is None or any(map(token.is_owner_or_renewer, wanted)))
        and _may_see(context, token)
    ]
    return DescribeDelegationTokenResponse(tokens=rows)


def _may_see(context: RequestContext, token: TokenInformation) -> bool:
    return (
        token.is_owner_or_renewer(context.session.principal)
        or context.may_quietly(DESCRIBE, DELEGATION_TOKEN, token.token_id)
        or context.may_quietly(DESCRIBE_TOKENS, USER, str(token.owner))
    )


def _row(tokens: DelegationTokens, token: TokenInformation) -> DescribedDelegationToken:
    return DescribedDelegationToken(
        principal_type=token.owner.type,
        principal_name=token.owner.name,
        token_requester_principal_type=token.requester.type,
        token_requester_principal_name=token.requester.name,
        issue_timestamp=token.issue_timestamp,
        expiry_timestamp=token.expiry_timestamp,
        max_timestamp=token.max_timestamp,
        token_id=token.token_id,
        hmac=tokens.hmac_of(token.token_id),
        renewers=[
            DescribedDelegationTokenRenewer(principal_type=each.type, principal_name=each.name)
            for each in token.renewers
        ],
    )
