"""What a page says where the cluster does not tell: a calm sentence in place of the figures.

A cluster may be of a version that does not serve a call, may have no authorizer or no SCRAM users
at all, or may not allow it to the user who asks. None of that is a fault of the console.
"""

from __future__ import annotations

from tidelog.client.errors import (
    AuthenticationFailed,
    ClientError,
    ConnectionFailed,
    RequestTimedOut,
    UnsupportedByBroker,
)
from tidelog.errors import ErrorCode

NOT_THERE = {
    ErrorCode.SECURITY_DISABLED: (
        "This cluster has no authorizer, so there are no ACLs and everybody may do everything. "
        "Set authorizer.class.name in the brokers' configuration to have one."
    ),
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: (
        "The cluster does not allow you to see this: it takes DESCRIBE on the cluster."
    ),
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "The coordinator is not there yet. Load the page again.",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "The coordinator still loads. Load the page again.",
}


def calm(error: ClientError) -> str:
    known = NOT_THERE.get(error.code)
    if known is not None:
        return known
    text = str(error).rstrip(".")
    if isinstance(error, UnsupportedByBroker):
        return f"The brokers of this cluster do not serve this: {text}."
    if isinstance(error, AuthenticationFailed) or "AUTHORIZATION" in error.code.name:
        return f"The cluster does not allow you to see this: {text}."
    if isinstance(error, ConnectionFailed | RequestTimedOut):
        return f"The cluster did not answer: {text}."
    return f"The cluster does not tell this: {text}."
