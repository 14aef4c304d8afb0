"""AlterUserScramCredentials v0: set and delete the SCRAM credentials of users (KIP-554).

Behaviour
- In a cluster the active controller does it; everybody else answers NOT_CONTROLLER (41).
- All alterations of a user happen or none; users are independent of each other.
- The client sends the salted password, and what is stored is made from that without a costly hash.
- A deletion is effective for the next login; connections of the user go on until they
  re-authenticate.
Checks of a user, in order: ALTER on the cluster (31); an empty name, or one that no store can hold
(. and ..); fewer than 4,096 or more than 16,384 iterations; no salt or no salted password (93);
unknown mechanism (33); a mechanism altered twice (92); deletion of a credential that does not exist
(91).
Versions: v0 only, flexible.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tidelog.broker.authorized_operations import ALTER
from tidelog.broker.context import RequestContext
from tidelog.errors import ErrorCode, KafkaError
from tidelog.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from tidelog.sasl.scram_credential import (
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    ScramCredential,
    ScramMechanism,
)

Alteration = ScramCredentialDeletion | ScramCredentialUpsertion


async def handle(
    context: RequestContext, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    by_user: dict[str, list[Alteration]] = {}
    alterations: list[Alteration] = [*request.deletions, *request.upsertions]
    for each in alterations:
        by_user.setdefault(each.name, []).append(each)
    is_allowed = context.may_on_cluster(ALTER)
    rows = await context.broker.slices.gather(
        _row(context, user, wanted, is_allowed=is_allowed) for user, wanted in by_user.items()
    )
    return AlterUserScramCredentialsResponse(results=rows)


async def _row(
    context: RequestContext, user: str, alterations: list[Alteration], *, is_allowed: bool
) -> AlterUserScramCredentialsResult:
    def edit(texts: Mapping[str, str]) -> dict[str, str]:
        return _edited(texts, alterations)

    try:
        if not context.broker.may_administer_topics:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        if not is_allowed:
            raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        _must_be_acceptable(user, alterations)
        await context.broker.dynamic_config.alter_user(user, edit)
    except KafkaError as error:
        return AlterUserScramCredentialsResult(
            user=user, error_code=error.code, error_message=error.message
        )
    return AlterUserScramCredentialsResult(user=user, error_message=None)


def _must_be_acceptable(user: str, alterations: list[Alteration]) -> None:
    for problem in (_problem_or_none(user, each) for each in reversed(alterations)):
        if problem is not None:
            raise problem
    mechanisms = [each.mechanism for each in alterations]
    if len(set(mechanisms)) < len(mechanisms):
        raise KafkaError(
            ErrorCode.DUPLICATE_RESOURCE,
            "A user credential cannot be altered twice in the same request",
        )


def _problem_or_none(user: str, wanted: Alteration) -> KafkaError | None:
    if not user:
        return _unacceptable("Username must not be empty")
    if user in (".", ".."):
        return _unacceptable("Username must not be . or ..")
    if ScramMechanism(wanted.mechanism) is ScramMechanism.UNKNOWN:
        return KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if isinstance(wanted, ScramCredentialDeletion):
        return None
    if wanted.iterations < MIN_ITERATIONS:
        return _unacceptable("Too few iterations")
    if wanted.iterations > MAX_ITERATIONS:
        return _unacceptable("Too many iterations")
    if not wanted.salt or not wanted.salted_password:
        return _unacceptable("Salt and salted password must not be empty")
    return None


def _unacceptable(message: str) -> KafkaError:
    return KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, message)


def _edited(texts: Mapping[str, str], alterations: list[Alteration]) -> dict[str, str]:
    edited = dict(texts)
    for name in _deleted(alterations):
        if name not in texts:
            raise KafkaError(
                ErrorCode.RESOURCE_NOT_FOUND,
                "Attempt to delete a user credential that does not exist",
            )
        del edited[name]
    for each in alterations:
        if isinstance(each, ScramCredentialUpsertion):
            mechanism = ScramMechanism(each.mechanism)
            edited[mechanism.mechanism_name] = ScramCredential.of_salted_password(
                mechanism, each.salted_password, each.salt, each.iterations
            ).to_text()
    return edited


def _deleted(alterations: list[Alteration]) -> Iterator[str]:
    for each in alterations:
        if isinstance(each, ScramCredentialDeletion):
            yield ScramMechanism(each.mechanism).mechanism_name
