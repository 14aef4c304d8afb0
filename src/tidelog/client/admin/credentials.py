"""What users authenticate with: SCRAM credentials (KIP-554) and delegation tokens (KIP-48).

A password never leaves this process: the broker gets the salted password, as RFC 5802 makes it.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from typing import Final, NamedTuple

from tidelog.client.admin.asking import Asking, Found, Result, problem_of
from tidelog.client.errors import ClientError
from tidelog.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from tidelog.protocol.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from tidelog.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from tidelog.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)
from tidelog.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from tidelog.protocol.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from tidelog.sasl.scram_credential import SALT_BYTES, ScramMechanism

BROKERS_CHOICE: Final = -1
_OWNER_VERSION: Final = 3


class ScramCredential(NamedTuple):
    mechanism: ScramMechanism
    iterations: int


class ScramUpsertion(NamedTuple):
    """A random salt is made unless one is given."""

    user: str
    mechanism: ScramMechanism
    password: str | bytes
    iterations: int = 4096
    salt: bytes | None = None

    def __repr__(self) -> str:
        return f"ScramUpsertion({self.user!r}, {self.mechanism.name}, [hidden])"


class ScramDeletion(NamedTuple):
    user: str
    mechanism: ScramMechanism


class Principal(NamedTuple):
    type: str
    name: str


class DelegationToken(NamedTuple):
    token_id: str
    owner: Principal
    requester: Principal | None  # None where the broker does not say (before 3.3)
    renewers: tuple[Principal, ...]
    issue_timestamp: int
    expiry_timestamp: int
    max_timestamp: int
    hmac: bytes

    def __repr__(self) -> str:
        return f"DelegationToken({self.token_id!r}, {self.owner}, hmac=[hidden])"


class CredentialCalls(Asking):
    async def describe_user_scram_credentials(
        self, users: Iterable[str] | None = None, *, timeout: float | None = None
    ) -> dict[str, Result[list[ScramCredential]]]:
        """Of these users, or of all that have some (None)."""
        wanted = None if users is None else list(users)

        async def ask(_: int) -> DescribeUserScramCredentialsResponse:
            request = DescribeUserScramCredentialsRequest(
                users=None if wanted is None else [UserName(name=user) for user in wanted]
            )
            answer = await self.of_any(request, DescribeUserScramCredentialsResponse)
            problem = problem_of("SCRAM credentials", answer.error_code, answer.error_message)
            if problem is not None:
                raise problem
            return answer

        response = await self.once("SCRAM credentials", ask, timeout)
        found: dict[str, Result[list[ScramCredential]]] = {}
        for row in response.results:
            rows = [
                ScramCredential(ScramMechanism(each.mechanism), each.iterations)
                for each in row.credential_infos
            ]
            problem = problem_of(f"user {row.user}", row.error_code, row.error_message)
            found[row.user] = Result(error=problem) if problem else Result(value=rows)
        return found

    async def alter_user_scram_credentials(
        self,
        alterations: Iterable[ScramUpsertion | ScramDeletion],
        *,
        timeout: float | None = None,
    ) -> dict[str, Result[None]]:
        """By user: all alterations of a user happen, or none."""
        wanted: dict[str, list[ScramUpsertion | ScramDeletion]] = {}
        for each in alterations:
            wanted.setdefault(each.user, []).append(each)

        async def step(users: list[str], _: int) -> Found[str, None]:
            rows = [each for user in users for each in wanted[user]]
            request = AlterUserScramCredentialsRequest(
                deletions=[
                    ScramCredentialDeletion(name=each.user, mechanism=each.mechanism)
                    for each in rows
                    if isinstance(each, ScramDeletion)
                ],
                upsertions=[_upsertion(each) for each in rows if isinstance(each, ScramUpsertion)],
            )
            response = await self.of_controller(request, AlterUserScramCredentialsResponse)
            return {
                row.user: problem_of(f"user {row.user}", row.error_code, row.error_message)
                for row in response.results
            }

        return await self.each("change of SCRAM credentials", wanted, step, timeout)

    async def create_delegation_token(
        self,
        *,
        renewers: Iterable[Principal] = (),
        owner: Principal | None = None,
        max_lifetime_ms: int = BROKERS_CHOICE,
        timeout: float | None = None,
    ) -> DelegationToken:
        """For the user of this connection, or for another owner (brokers from 3.3)."""
        allowed = tuple(renewers)

        async def ask(_: int) -> CreateDelegationTokenResponse:
            request = CreateDelegationTokenRequest(
                owner_principal_type=None if owner is None else owner.type,
                owner_principal_name=None if owner is None else owner.name,
                renewers=[
                    CreatableRenewers(principal_type=each.type, principal_name=each.name)
                    for each in allowed
                ],
                max_lifetime_ms=max_lifetime_ms,
            )
            answer = await self.of_any(
                request,
                CreateDelegationTokenResponse,
                at_least=0 if owner is None else _OWNER_VERSION,
            )
            _must_pass("creation of a delegation token", answer.error_code)
            return answer

        row = await self.once("creation of a delegation token", ask, timeout)
        return DelegationToken(
            row.token_id,
            Principal(row.principal_type, row.principal_name),
            _principal_or_none(
                row.token_requester_principal_type, row.token_requester_principal_name
            ),
            allowed,
            row.issue_timestamp_ms,
            row.expiry_timestamp_ms,
            row.max_timestamp_ms,
            bytes(row.hmac),
        )

    async def renew_delegation_token(
        self, hmac: bytes, *, period_ms: int = BROKERS_CHOICE, timeout: float | None = None
    ) -> int:
        """The new expiry timestamp."""

        async def ask(_: int) -> int:
            request = RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms)
            answer = await self.of_any(request, RenewDelegationTokenResponse)
            _must_pass("renewal of a delegation token", answer.error_code)
            return answer.expiry_timestamp_ms

        return await self.once("renewal of a delegation token", ask, timeout)

    async def expire_delegation_token(
        self, hmac: bytes, *, period_ms: int = BROKERS_CHOICE, timeout: float | None = None
    ) -> int:
        """The new expiry timestamp; a negative period ends the token at once."""

        async def ask(_: int) -> int:
            request = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms)
            answer = await self.of_any(request, ExpireDelegationTokenResponse)
            _must_pass("expiry of a delegation token", answer.error_code)
            return answer.expiry_timestamp_ms

        return await self.once("expiry of a delegation token", ask, timeout)

    async def describe_delegation_token(
        self, owners: Iterable[Principal] | None = None, *, timeout: float | None = None
    ) -> list[DelegationToken]:
        """Of these owners, or all that this user may see (None)."""
        wanted = None if owners is None else list(owners)

        async def ask(_: int) -> DescribeDelegationTokenResponse:
            request = DescribeDelegationTokenRequest(
                owners=None
                if wanted is None
                else [
                    DescribeDelegationTokenOwner(principal_type=each.type, principal_name=each.name)
                    for each in wanted
                ]
            )
            answer = await self.of_any(request, DescribeDelegationTokenResponse)
            _must_pass("description of delegation tokens", answer.error_code)
            return answer

        response = await self.once("description of delegation tokens", ask, timeout)
        return [
            DelegationToken(
                row.token_id,
                Principal(row.principal_type, row.principal_name),
                _principal_or_none(
                    row.token_requester_principal_type, row.token_requester_principal_name
                ),
                tuple(Principal(each.principal_type, each.principal_name) for each in row.renewers),
                row.issue_timestamp,
                row.expiry_timestamp,
                row.max_timestamp,
                bytes(row.hmac),
            )
            for row in response.tokens
        ]


def _must_pass(what: str, code: int) -> None:
    problem: ClientError | None = problem_of(what, code)
    if problem is not None:
        raise problem


def _principal_or_none(kind: str, name: str) -> Principal | None:
    return Principal(kind, name) if kind else None


def _upsertion(wanted: ScramUpsertion) -> ScramCredentialUpsertion:
    salt = secrets.token_bytes(SALT_BYTES) if wanted.salt is None else wanted.salt
    password = wanted.password
    raw = password.encode() if isinstance(password, str) else password
    return ScramCredentialUpsertion(
        name=wanted.user,
        mechanism=wanted.mechanism,
        iterations=wanted.iterations,
        salt=salt,
        salted_password=wanted.mechanism.salted_password(raw, salt, wanted.iterations),
    )
