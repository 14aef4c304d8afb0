"""Where a client gets its access tokens: a token endpoint, a file, or a function of its own.

A token is kept and used for all logins until it is time for another (`refresh_at_ms`, by the keys
sasl.login.refresh.*). Then the next login gets one, in a thread, and others wait for the same one.
If that fails, the old one serves as long as it is valid. Brokers bound a session by the life of its
token, and a client logs in again at 85 to 95 % of that, so a session never outlives its token.

The signature is the broker's business. Only when a token ends is read from it here; a function may
say so itself, for tokens that are no JSON Web Tokens.
"""

from __future__ import annotations

import asyncio
import base64
import importlib
import json
import logging
import random
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple
from urllib.parse import quote_plus

from tidelog.clock import Clock, SystemClock
from tidelog.config.definition import ConfigError
from tidelog.config.oauth import TOKEN_PROVIDER, OAuthLogin, RefreshSettings, require_extension
from tidelog.sasl.oauth.access_token import InvalidToken, decoded, seconds_or_none, split
from tidelog.sasl.oauth.endpoint_client import EndpointClient, EndpointFailed
from tidelog.supervisor import attempt

logger = logging.getLogger(__name__)

_CHARACTERS: Final = frozenset(
    "-_~+/.=0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
)


class TokenUnavailable(Exception):
    """There is no token at the moment."""


class TokenRefused(TokenUnavailable):
    """There will be none, unless somebody changes something."""


class AccessToken(NamedTuple):
    """`expires_at_ms` is read from a JSON Web Token unless it is given."""

    value: str
    expires_at_ms: int | None = None
    extensions: Mapping[str, str] = MappingProxyType({})

    def __repr__(self) -> str:
        return f"AccessToken([hidden], expires_at_ms={self.expires_at_ms})"


class _Kept(NamedTuple):
    token: AccessToken
    expires_at_ms: int
    refresh_at_ms: int


class TokenSource:
    """Used on one event loop."""

    def __init__(self, login: OAuthLogin, clock: Clock | None = None) -> None:
        self._login = login
        self._clock: Clock = SystemClock() if clock is None else clock
        self._kept: _Kept | None = None
        self._getting: asyncio.Task[AccessToken] | None = None
        self._get: Callable[[], AccessToken] | None = None

    async def token(self) -> AccessToken:
        """TokenUnavailable if there is none."""
        kept = self._kept
        if kept is not None and self._clock.time_ms() < kept.refresh_at_ms:
            return kept.token
        if self._getting is None:
            self._getting = asyncio.get_running_loop().create_task(self._renewed())
            self._getting.add_done_callback(_look_at)  # whoever waits may have given up
        return await asyncio.shield(self._getting)

    def forget(self) -> None:
        """A broker has refused the one that is kept."""
        self._kept = None

    async def _renewed(self) -> AccessToken:
        try:
            token = await asyncio.get_running_loop().run_in_executor(None, self._new_token)
            now_ms = self._clock.time_ms()
            expires_at_ms, started_at_ms = _lifetime(token, now_ms)
        except TokenUnavailable as problem:
            kept = self._kept
            if kept is None or self._clock.time_ms() >= kept.expires_at_ms:
                raise
            logger.warning("the old token is used on: %s", problem)
            return kept.token
        finally:
            self._getting = None
        refresh_at = refresh_at_ms(self._login.refresh, started_at_ms, now_ms, expires_at_ms)
        self._kept = _Kept(token, expires_at_ms, refresh_at)
        return token

    def _new_token(self) -> AccessToken:
        """In a thread."""
        if self._get is None:
            self._get = _getter(self._login)
        token = self._get()
        if not token.value or not _CHARACTERS.issuperset(token.value):
            raise TokenRefused("the token is empty, or has characters that no token has")
        try:
            for name, value in token.extensions.items():
                require_extension("the token's extensions", name, value)
        except ConfigError as problem:
            raise TokenRefused(str(problem)) from None
        return token


def _look_at(task: asyncio.Task[AccessToken]) -> None:
    if not task.cancelled():
        task.exception()


def refresh_at_ms(
    settings: RefreshSettings, started_at_ms: int, now_ms: int, expires_at_ms: int
) -> int:
    """When a token is due to be replaced, as Kafka reckons it."""
    share = settings.window_factor + settings.window_jitter * random.random()
    min_period_ms, buffer_ms = settings.min_period_seconds * 1000, settings.buffer_seconds * 1000
    if now_ms + min_period_ms + buffer_ms > expires_at_ms:
        return now_ms + int((expires_at_ms - now_ms) * share)
    proposed_ms = started_at_ms + int((expires_at_ms - started_at_ms) * share)
    return max(min(proposed_ms, expires_at_ms - buffer_ms), now_ms + min_period_ms)


def _lifetime(token: AccessToken, now_ms: int) -> tuple[int, int]:
    """When it ends, and when it began."""
    if token.expires_at_ms is not None:
        expires_at_ms, started_at_ms = token.expires_at_ms, now_ms
    else:
        try:
            claims = decoded("payload", split(token.value).claims)
            ends, begins = seconds_or_none(claims, "exp"), seconds_or_none(claims, "iat")
        except InvalidToken as problem:
            raise TokenRefused(f"the token cannot be read: {problem}") from None
        if ends is None:
            raise TokenRefused("the token does not say when it ends (exp)")
        expires_at_ms = int(ends * 1000)
        started_at_ms = now_ms if begins is None else int(begins * 1000)
    if expires_at_ms <= now_ms:
        raise TokenUnavailable(
            f"the token has expired, {(now_ms - expires_at_ms) // 1000} s ago; get a new one, and "
            "look at the clocks"
        )
    return expires_at_ms, started_at_ms


def _getter(login: OAuthLogin) -> Callable[[], AccessToken]:
    if login.provider is not None:
        return _Provider(login.provider)
    assert login.endpoint is not None
    try:
        client = EndpointClient(login.endpoint)
    except EndpointFailed as problem:
        raise TokenRefused(str(problem)) from None
    if login.endpoint.path_or_none is not None:
        return lambda: _of_file(client)
    return lambda: _of_endpoint(client, login)


def _of_file(client: EndpointClient) -> AccessToken:
    try:
        return AccessToken(client.get().decode(errors="replace").strip())
    except EndpointFailed as problem:
        raise TokenRefused(str(problem)) from None


def _of_endpoint(client: EndpointClient, login: OAuthLogin) -> AccessToken:
    """The client credentials grant (RFC 6749, 4.4)."""
    body = "grant_type=client_credentials"
    if login.scope is not None:
        body += f"&scope={quote_plus(login.scope)}"
    names = login.client_id, login.client_secret
    if login.urlencode_header:
        names = quote_plus(names[0]), quote_plus(names[1])
    basic = base64.b64encode(":".join(names).encode()).decode()
    headers = {
        "Authorization": f"Basic {basic}",
        "Accept": "application/json",
        "Content-Type": "application/x-www-form-urlencoded",
    }
    try:
        text = client.post_patiently(body.encode(), headers)
    except EndpointFailed as problem:
        kind = TokenRefused if problem.is_final else TokenUnavailable
        raise kind(str(problem)) from None
    try:
        value: Any = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    found = value.get("access_token") if isinstance(value, dict) else None
    if not isinstance(found, str) or not found.strip():
        raise TokenRefused(f"{login.endpoint!r} answered without an access_token")
    return AccessToken(found.strip())


class _Provider:
    """A function that returns a token as text, or an AccessToken."""

    def __init__(self, provider: Callable[[], object] | str) -> None:
        self._call = _function(provider) if isinstance(provider, str) else provider

    def __call__(self) -> AccessToken:
        results: list[object] = []
        problem = attempt(TOKEN_PROVIDER, lambda: results.append(self._call()))
        if problem is not None:
            raise TokenUnavailable(f"{TOKEN_PROVIDER} failed: {problem!r}") from problem
        (found,) = results
        if isinstance(found, str):
            return AccessToken(found)
        if not isinstance(found, AccessToken):
            raise TokenRefused(
                f"{TOKEN_PROVIDER} returned {type(found).__name__}, not a text or an AccessToken"
            )
        return found


def _function(name: str) -> Callable[[], object]:
    module_name, _, function_name = name.partition(":")
    try:
        function = getattr(importlib.import_module(module_name), function_name)
    except (ImportError, AttributeError) as problem:
        raise TokenRefused(f"{TOKEN_PROVIDER}={name}: {problem}") from problem
    if not callable(function):
        raise TokenRefused(f"{TOKEN_PROVIDER}={name}: it is no function")
    found: Callable[[], object] = function
    return found
