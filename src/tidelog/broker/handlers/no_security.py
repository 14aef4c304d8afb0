"""What a broker answers that has no quotas and no tokens, as Kafka 3.9 without them.

    SaslHandshake v0-v1                 ILLEGAL_SASL_STATE (34): on a PLAINTEXT listener, or when
                                        the client has authenticated
    SaslAuthenticate v0-v2              ILLEGAL_SASL_STATE (34)
    CreateDelegationToken v0-v3         DELEGATION_TOKEN_REQUEST_NOT_ALLOWED (64) on a PLAINTEXT
    RenewDelegationToken v0-v2          listener, else DELEGATION_TOKEN_AUTH_DISABLED (61)
    ExpireDelegationToken v0-v2
    DescribeDelegationToken v0-v3
    DescribeClientQuotas v0-v1          none, where the client may DESCRIBE_CONFIGS of the cluster
                                        (31) and the filter is one that Kafka takes (42, 35)

A client library that asks, or a tool that lists everything, is told so instead of being cut off.
What would change quotas (AlterClientQuotas) is not served.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import singledispatch
from typing import Final

from tidelog.broker.authorized_operations import DESCRIBE_CONFIGS
from tidelog.broker.context import RequestContext
from tidelog.errors import ErrorCode, KafkaError
from tidelog.protocol.message import Message
from tidelog.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from tidelog.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from tidelog.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from tidelog.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from tidelog.protocol.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from tidelog.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from tidelog.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

USER, CLIENT_ID, IP = "user", "client-id", "ip"  # what quotas are for
NO_TIMESTAMP: Final = -1
FIRST_VERSION_WITH_REQUESTER: Final = 3  # of CreateDelegationToken


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


def _no_token(context: RequestContext) -> ErrorCode:
    if context.session.authenticator is None:
        return ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    return ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


@_answer.register
def _create_token(
    request: CreateDelegationTokenRequest, context: RequestContext
) -> CreateDelegationTokenResponse:
    requester = context.session.principal
    owner_type, owner = requester
    if request.owner_principal_name:
        owner_type, owner = request.owner_principal_type or "", request.owner_principal_name
    has_requester = context.api_version >= FIRST_VERSION_WITH_REQUESTER
    return CreateDelegationTokenResponse(
        error_code=_no_token(context),
        principal_type=owner_type,
        principal_name=owner,
        token_requester_principal_type=requester.type if has_requester else "",
        token_requester_principal_name=requester.name if has_requester else "",
        issue_timestamp_ms=NO_TIMESTAMP,
        expiry_timestamp_ms=NO_TIMESTAMP,
        max_timestamp_ms=NO_TIMESTAMP,
    )


@_answer.register
def _renew_token(
    request: RenewDelegationTokenRequest, context: RequestContext
) -> RenewDelegationTokenResponse:
    return RenewDelegationTokenResponse(
        error_code=_no_token(context), expiry_timestamp_ms=NO_TIMESTAMP
    )


@_answer.register
def _expire_token(
    request: ExpireDelegationTokenRequest, context: RequestContext
) -> ExpireDelegationTokenResponse:
    return ExpireDelegationTokenResponse(
        error_code=_no_token(context), expiry_timestamp_ms=NO_TIMESTAMP
    )


@_answer.register
def _describe_tokens(
    request: DescribeDelegationTokenRequest, context: RequestContext
) -> DescribeDelegationTokenResponse:
    return DescribeDelegationTokenResponse(error_code=_no_token(context))


@_answer.register
def _describe_quotas(
    request: DescribeClientQuotasRequest, context: RequestContext
) -> DescribeClientQuotasResponse:
    try:
        if not context.may_on_cluster(DESCRIBE_CONFIGS):
            raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        _must_be_a_quota_filter(request.components)
    except KafkaError as error:
        return DescribeClientQuotasResponse(
            error_code=error.code, error_message=error.message, entries=None
        )
    return DescribeClientQuotasResponse()


def _must_be_a_quota_filter(components: Iterable[ComponentData]) -> None:
    seen: set[str] = set()
    for kind in (component.entity_type for component in components):
        if not kind:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "A filter names no entity type.")
        if kind not in (USER, CLIENT_ID, IP):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"There is no entity type '{kind}'.")
        if kind in seen:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"There are two filters for {kind}.")
        seen.add(kind)
    if IP in seen and len(seen) > 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "A filter for ip stands alone.")
