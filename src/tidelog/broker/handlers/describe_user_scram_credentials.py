"""DescribeUserScramCredentials v0: which SCRAM credentials users have, and their iterations.

Behaviour
- Without names: every user that has a credential, in the order of names.
- Salts and keys are never told.
Checks, in order: DESCRIBE on the cluster (31).
Per user: no credential, or an empty name (91); named twice in the request (92); a stored credential
that is not readable (-1).
Versions: v0 only, flexible.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from tidelog.broker.authorized_operations import DESCRIBE
from tidelog.broker.context import RequestContext
from tidelog.errors import ErrorCode, KafkaError
from tidelog.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from tidelog.sasl.scram_credential import SCRAM_MECHANISMS, ScramCredential


async def handle(
    context: RequestContext, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    if not context.may_on_cluster(DESCRIBE):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return DescribeUserScramCredentialsResponse(error_code=code, error_message=code.text)
    times = Counter(user.name for user in request.users or ())
    try:
        names = list(times) if times else await context.broker.dynamic_config.users()
    except KafkaError as error:
        return DescribeUserScramCredentialsResponse(
            error_code=error.code, error_message=error.message
        )
    rows = await context.broker.slices.gather(_row(context, name, times[name]) for name in names)
    if not times:
        rows = [row for row in rows if row.error_code != ErrorCode.RESOURCE_NOT_FOUND]
    return DescribeUserScramCredentialsResponse(error_message=None, results=rows)


async def _row(
    context: RequestContext, name: str, times: int
) -> DescribeUserScramCredentialsResult:
    try:
        if not name:
            raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, "Username must not be empty")
        if times > 1:
            raise KafkaError(
                ErrorCode.DUPLICATE_RESOURCE,
                "Cannot describe SCRAM credentials for the same user twice in a single request: "
                f"{name}",
            )
        infos = _infos(await context.broker.dynamic_config.describe_user(name))
        if not infos:
            raise KafkaError(
                ErrorCode.RESOURCE_NOT_FOUND,
                f"Attempt to describe a user credential that does not exist: {name}",
            )
    except KafkaError as error:
        return DescribeUserScramCredentialsResult(
            user=name, error_code=error.code, error_message=error.message
        )
    return DescribeUserScramCredentialsResult(user=name, error_message=None, credential_infos=infos)


def _infos(texts: Mapping[str, str]) -> list[CredentialInfo]:
    try:
        return [
            CredentialInfo(mechanism=mechanism, iterations=ScramCredential.parse(text).iterations)
            for mechanism in SCRAM_MECHANISMS
            if (text := texts.get(mechanism.mechanism_name)) is not None
        ]
    except ValueError:
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR, "The stored credential is not readable."
        ) from None
