"""Delegation tokens (KIP-48, KIP-373): Kafka's DelegationTokenManager over ZooKeeper, and the same
over the embedded store.

A token has an id, an owner, and an HMAC of the id with delegation.token.secret.key. Whoever knows
id and HMAC logs in with SCRAM as the owner; all brokers have the same secret, so each can tell. A
token is good until it expires, and its owner and renewers may renew it up to its longest life.

Any broker makes and changes tokens. A change and its announcement are one transaction of the store,
and are written if the node is still as it was read, else the change begins again. What is read is
kept in memory; a login reads no store. In a cluster the controller's broker removes what has
expired, which nobody could log in with anyway.

The SCRAM credential of a token is made of its HMAC when somebody logs in with it for the first
time, and in a thread as soon as the token is made. Its salt is made of the HMAC too, so that all
brokers have the same.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hmac
import logging
import uuid
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from tidelog.broker.security import token_znodes
from tidelog.broker.security.token_znodes import TokenInformation
from tidelog.controller.announcements import Announcements
from tidelog.controller.metadata_store import (
    Create,
    Delete,
    MetadataStore,
    NodeExists,
    NoNode,
    Operation,
    SetData,
    StoreError,
)
from tidelog.controller.store_changes import ChangedByOthers, StoreChanges, until_written
from tidelog.errors import ErrorCode, KafkaError
from tidelog.sasl.scram_credential import (
    MIN_ITERATIONS,
    SALT_BYTES,
    SCRAM_MECHANISMS,
    ScramCredential,
    ScramMechanism,
    TokenCredential,
)
from tidelog.supervisor import report

if TYPE_CHECKING:
    from tidelog.clock import Clock, Timer
    from tidelog.config.broker import BrokerConfig
    from tidelog.network.session import Principal

logger = logging.getLogger(__name__)

Edit = Callable[[TokenInformation], TokenInformation | None]  # None: it goes

USER: Final = "User"  # the type of all principals that log in


class DelegationTokens:
    """Touched only on the broker's loop."""

    def __init__(
        self,
        store: MetadataStore,
        secret_key: str,
        config: BrokerConfig,
        *,
        clock: Clock,
        timer: Timer,
    ) -> None:
        self._store = store
        self._secret_key = secret_key.encode()
        self._max_lifetime_ms = config.get_int("delegation.token.max.lifetime.ms")
        self._renew_time_ms = config.get_int("delegation.token.expiry.time.ms")
        self._clock = clock
        self._timer = timer
        self._by_id: dict[str, TokenInformation] = {}
        self._id_of: dict[bytes, str] = {}  # by HMAC
        self._credentials: dict[tuple[ScramMechanism, str], ScramCredential] = {}
        self._changes = StoreChanges()
        self.announcements = Announcements(
            store,
            f"{token_znodes.CHANGES}/{token_znodes.CHANGE_PREFIX}",
            self._announced,
            clock=clock,
            timer=timer,
            reread=self._read_all,
        )

    # Reading

    def load(self) -> None:
        """Reads all tokens, blocking; for start-up."""
        for path in (token_znodes.TOKENS, token_znodes.CHANGES):
            with contextlib.suppress(NodeExists):
                self._store.multi_now([Create(path, make_parents=True)])
        for path, data, _ in self._store.subtree(token_znodes.TOKENS):
            if path != token_znodes.TOKENS:
                self._use(path.rpartition("/")[2], _decoded_or_none(path, data))

    def hmac_of(self, token_id: str) -> bytes:
        return hmac.digest(self._secret_key, token_id.encode(), "sha512")

    def all(self) -> Iterable[TokenInformation]:
        return tuple(self._by_id.values())

    def credential_or_none(
        self, mechanism: ScramMechanism, token_id: str
    ) -> TokenCredential | None:
        """What a login with the token needs; None if it is not good."""
        token = self._by_id.get(token_id)
        if token is None or token.has_expired(self._clock.time_ms()) or token.owner.type != USER:
            return None
        key = (mechanism, token_id)
        if key not in self._credentials:
            self._credentials[key] = credential_of(mechanism, self.hmac_of(token_id))
        return TokenCredential(self._credentials[key], token.owner.name, token.expiry_timestamp)

    def _use(self, token_id: str, token: TokenInformation | None) -> None:
        """None: there is none, or it cannot be read."""
        if token is not None:
            self._by_id[token_id] = token
            self._id_of[self.hmac_of(token_id)] = token_id
            return
        self._by_id.pop(token_id, None)
        self._id_of.pop(self.hmac_of(token_id), None)
        for mechanism in SCRAM_MECHANISMS:
            self._credentials.pop((mechanism, token_id), None)

    async def _announced(self, data: bytes) -> None:
        async with self._changes.lock:
            token_id = data.decode(errors="replace")
            await self._read(token_id)
        if token_id in self._by_id:
            await self._prepare_credentials(token_id)

    async def _read_all(self) -> None:
        async with self._changes.lock:
            names = await self._store.children(token_znodes.TOKENS)
            for token_id in {*names, *self._by_id}:
                await self._read(token_id)

    async def _read(self, token_id: str) -> int | None:
        """Takes over what the store has. The version of the node, if there is one."""
        path = token_znodes.path_of(token_id)
        try:
            data, stat = await self._store.get(path)
        except NoNode:
            self._use(token_id, None)
            return None
        self._use(token_id, _decoded_or_none(path, data))
        return stat.version

    async def _prepare_credentials(self, token_id: str) -> None:
        """In a thread, for it takes some milliseconds."""
        loop = asyncio.get_running_loop()
        secret = self.hmac_of(token_id)
        for mechanism in SCRAM_MECHANISMS:
            made = await loop.run_in_executor(None, credential_of, mechanism, secret)
            if token_id in self._by_id:
                self._credentials.setdefault((mechanism, token_id), made)

    # Changing

    async def create(
        self,
        owner: Principal,
        requester: Principal,
        renewers: Iterable[Principal],
        max_lifetime_ms: int,
    ) -> TokenInformation:
        """KafkaError if it cannot be kept."""
        now_ms = self._clock.time_ms()
        lifetime_ms = self._max_lifetime_ms
        if max_lifetime_ms > 0:
            lifetime_ms = min(lifetime_ms, max_lifetime_ms)
        token_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        token = TokenInformation(
            token_id,
            owner,
            requester,
            tuple(renewers),
            now_ms,
            now_ms + lifetime_ms,
            now_ms + min(lifetime_ms, self._renew_time_ms),
        )
        await self._changes.in_turn(self._write_new(token))
        await self._prepare_credentials(token_id)
        logger.info(
            "delegation token created",
            extra={"token": token_id, "owner": str(owner), "requester": str(requester)},
        )
        return token

    async def renew(self, principal: Principal, secret: bytes, period_ms: int) -> int:
        """When it expires now; KafkaError if it cannot be renewed."""

        def edit(token: TokenInformation) -> TokenInformation:
            now_ms = self._must_be_good(token)
            until_ms = now_ms + (self._renew_time_ms if period_ms < 0 else period_ms)
            return token._replace(expiry_timestamp=min(token.max_timestamp, until_ms))

        changed = await self._change_of(principal, secret, edit)
        assert changed is not None
        return changed.expiry_timestamp

    async def expire(self, principal: Principal, secret: bytes, period_ms: int) -> int:
        """When it expires now; below 0 is at once. KafkaError if it cannot be changed."""

        def edit(token: TokenInformation) -> TokenInformation | None:
            if period_ms < 0:
                return None
            until_ms = self._must_be_good(token) + period_ms
            return token._replace(expiry_timestamp=min(token.max_timestamp, until_ms))

        changed = await self._change_of(principal, secret, edit)
        return self._clock.time_ms() if changed is None else changed.expiry_timestamp

    def begin_removal(self) -> None:
        """Of what has expired."""
        report("removing expired delegation tokens", self._changes.task(self.remove_expired()))

    async def remove_expired(self) -> None:
        now_ms = self._clock.time_ms()

        def edit(token: TokenInformation) -> TokenInformation | None:
            return None if token.has_expired(now_ms) else token

        for token in self.all():
            if token.has_expired(now_ms):
                with contextlib.suppress(KafkaError):  # said by then; the next turn tries again
                    await self._changes.in_turn(self._change(token.token_id, edit))

    def _must_be_good(self, token: TokenInformation) -> int:
        now_ms = self._clock.time_ms()
        if token.has_expired(now_ms):
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED)
        return now_ms

    async def _change_of(
        self, principal: Principal, secret: bytes, edit: Edit
    ) -> TokenInformation | None:
        token_id = self._id_of.get(secret)
        if token_id is None:
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)

        def checked(token: TokenInformation) -> TokenInformation | None:
            if not token.is_owner_or_renewer(principal):
                raise KafkaError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
            return edit(token)

        return await self._changes.in_turn(self._change(token_id, checked))

    async def _write_new(self, token: TokenInformation) -> None:
        path = token_znodes.path_of(token.token_id)
        try:
            await self._store.multi([Create(path, token_znodes.encode(token)), _news(token)])
        except StoreError as error:
            raise _not_kept(error) from error
        self._use(token.token_id, token)

    async def _change(self, token_id: str, edit: Edit) -> TokenInformation | None:
        path = token_znodes.path_of(token_id)

        async def attempt() -> TokenInformation | None:
            version = await self._read(token_id)
            token = self._by_id.get(token_id)
            if version is None or token is None:
                raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
            changed = edit(token)
            if changed == token:
                return token
            write: Operation = Delete(path, version)
            if changed is not None:
                write = SetData(path, token_znodes.encode(changed), version)
            await self._store.multi([write, _news(token)])
            self._use(token_id, changed)
            what = "removed" if changed is None else "changed"
            logger.info("delegation token %s", what, extra={"token": token_id})
            return changed

        try:
            return await until_written(attempt, self._timer)
        except (StoreError, ChangedByOthers) as error:
            raise _not_kept(error) from error


def credential_of(mechanism: ScramMechanism, secret: bytes) -> ScramCredential:
    """2 to 10 ms of a processor."""
    salt = mechanism.hmac(secret, f"salt of {mechanism.name}".encode())[:SALT_BYTES]
    salted = mechanism.salted_password(base64.b64encode(secret), salt, MIN_ITERATIONS)
    return ScramCredential.of_salted_password(mechanism, salted, salt, MIN_ITERATIONS)


def _news(token: TokenInformation) -> Create:
    path = f"{token_znodes.CHANGES}/{token_znodes.CHANGE_PREFIX}"
    return Create(path, token.token_id.encode(), sequence=True)


def _not_kept(error: StoreError | ChangedByOthers) -> KafkaError:
    logger.warning("a delegation token cannot be written: %s", error)
    return KafkaError(
        ErrorCode.KAFKA_STORAGE_ERROR, f"The delegation token cannot be written: {error}"
    )


def _decoded_or_none(path: str, data: bytes) -> TokenInformation | None:
    try:
        token = token_znodes.decode(data)
    except ValueError as error:
        logger.warning("a delegation token is left out, nobody can use it: %s: %s", path, error)
        return None
    if token.token_id != path.rpartition("/")[2]:
        logger.warning("a delegation token is left out, nobody can use it: %s: another id", path)
        return None
    return token
