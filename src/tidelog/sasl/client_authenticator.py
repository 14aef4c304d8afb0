"""The client's side of SASL on one connection: SaslHandshake, then tokens until both are satisfied.

Tokens of OAUTHBEARER are got when a login needs one (`oauth/token_source.py`).

Brokers before 1.0 have SaslHandshake v0 alone; with them tokens go as frames without a header, and
wrong credentials end the connection without a word.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from tidelog.config.oauth import OAuthLogin
from tidelog.config.sasl import PLAIN, AnyLogin
from tidelog.errors import ErrorCode
from tidelog.protocol.message import Message
from tidelog.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from tidelog.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tidelog.sasl.mechanism import SaslClient, SaslRefusal
from tidelog.sasl.oauth.token_source import TokenRefused, TokenSource, TokenUnavailable
from tidelog.sasl.oauthbearer import OAuthBearerClient
from tidelog.sasl.plain import PlainClient
from tidelog.sasl.scram import SaltedPasswords, ScramClient
from tidelog.sasl.scram_credential import ScramMechanism

# Of the lifetime of a session; a client logs in anew after a random part between these.
RENEWED_AFTER: Final = (0.85, 0.95)


class AuthenticationRefused(Exception):
    """By the broker, or by the client because the broker has not proved who it is."""

    def __init__(self, message: str, code: int = ErrorCode.SASL_AUTHENTICATION_FAILED) -> None:
        super().__init__(message)
        self.code = code


class LoginUnavailable(Exception):
    """There is nothing to log in with at the moment; it may be tried again."""


class Wire(Protocol):
    """A connection, as far as authentication uses it."""

    def ask(self, request: Message, version: int) -> Awaitable[Message]: ...

    def exchange(self, token: bytes) -> Awaitable[bytes]:
        """A frame without a header, answered by such a one."""


def renewal_time(began_at: float, lifetime_ms: int) -> float | None:
    """When the session of a login that began then has to be renewed; None if it has no end."""
    if lifetime_ms <= 0:
        return None
    return began_at + lifetime_ms * random.uniform(*RENEWED_AFTER) / 1000


class SaslLogin:
    """Logs in with the same credentials on any number of connections."""

    def __init__(self, login: AnyLogin) -> None:
        self.mechanism = login.mechanism
        self._login = login
        self._salted_passwords: SaltedPasswords = {}
        self._tokens = TokenSource(login) if isinstance(login, OAuthLogin) else None

    def __repr__(self) -> str:
        return f"SaslLogin({self._login!r})"

    async def new_client(self) -> SaslClient:
        """AuthenticationRefused or LoginUnavailable if there is no token to be had."""
        login = self._login
        if isinstance(login, OAuthLogin):
            assert self._tokens is not None
            try:
                token = await self._tokens.token()
            except TokenRefused as problem:
                raise self._refused(str(problem)) from None
            except TokenUnavailable as problem:
                raise LoginUnavailable(str(problem)) from problem
            return OAuthBearerClient(token.value, {**login.extensions, **token.extensions})
        if login.mechanism == PLAIN:
            return PlainClient(login.username, login.password)
        return ScramClient(
            ScramMechanism.named(login.mechanism),
            login.username,
            login.password,
            self._salted_passwords,
            is_token=login.is_token,
        )

    async def authenticate(
        self, wire: Wire, *, handshake_version: int, authenticate_version: int
    ) -> int:
        """The session's lifetime in ms, 0 if it has no end; AuthenticationRefused if it fails, or
        LoginUnavailable."""
        client = await self.new_client()
        await self._shake_hands(wire, handshake_version)
        lifetime_ms = 0

        async def send(token: bytes) -> bytes:
            nonlocal lifetime_ms
            if handshake_version == 0:
                return await wire.exchange(token)
            answer = await wire.ask(SaslAuthenticateRequest(auth_bytes=token), authenticate_version)
            assert isinstance(answer, SaslAuthenticateResponse)
            if answer.error_code:
                words = answer.error_message or f"the broker answered error {answer.error_code}"
                raise self._refused(words, answer.error_code)
            lifetime_ms = answer.session_lifetime_ms
            return bytes(answer.auth_bytes)

        try:
            await self._exchange_tokens(client, send)
        except SaslRefusal as refusal:
            raise self._refused(str(refusal)) from None
        except AuthenticationRefused:
            if self._tokens is not None:
                self._tokens.forget()  # the next login gets another one
            raise
        return lifetime_ms

    async def _shake_hands(self, wire: Wire, version: int) -> None:
        request = SaslHandshakeRequest(mechanism=self.mechanism)
        answer = await wire.ask(request, version)
        assert isinstance(answer, SaslHandshakeResponse)
        if answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            enabled = ", ".join(answer.mechanisms) or "none"
            raise self._refused(f"the broker has {enabled}", answer.error_code)
        if answer.error_code == ErrorCode.ILLEGAL_SASL_STATE:
            raise self._refused("the broker expects no authentication here", answer.error_code)
        if answer.error_code:
            raise self._refused(f"the broker answered error {answer.error_code}", answer.error_code)

    async def _exchange_tokens(
        self, client: SaslClient, send: Callable[[bytes], Awaitable[bytes]]
    ) -> None:
        challenge = b""
        loop = asyncio.get_running_loop()
        while not client.is_complete:
            if challenge:  # without one there is nothing to hash
                token = await loop.run_in_executor(None, client.evaluate, challenge)
            else:
                token = client.evaluate(challenge)
            if client.is_complete and not token:
                return
            challenge = await send(token)

    def _refused(
        self, words: str, code: int = ErrorCode.SASL_AUTHENTICATION_FAILED
    ) -> AuthenticationRefused:
        return AuthenticationRefused(f"SASL mechanism {self.mechanism}: {words}", code)
