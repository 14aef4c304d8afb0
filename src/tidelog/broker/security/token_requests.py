"""Who may ask for delegation tokens, as Kafka 3.9 has it.

Nobody whom the broker does not know: on a PLAINTEXT listener, or by TLS without a certificate. And
nobody who has logged in with a token, for a token must not beget tokens that outlive it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.errors import ErrorCode, KafkaError
from tidelog.network.session import ANONYMOUS

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.security.delegation_tokens import DelegationTokens

NO_TIMESTAMP: Final = -1


def must_be_known(context: RequestContext) -> None:
    session = context.session
    is_known = session.authenticator is not None or session.principal != ANONYMOUS
    if session.is_token_authenticated or not is_known:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)


def must_have_tokens(context: RequestContext) -> DelegationTokens:
    tokens = context.broker.delegation_tokens
    if tokens is None:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    return tokens
