"""OAUTHBEARER (RFC 7628, KIP-255): a token in one message, and extensions beside it.

    client first   n,[a=authzid],^A auth=Bearer TOKEN ^A NAME=VALUE ^A ... ^A   (no blanks at ^A)
    server         nothing: the client is in
                   {"status":"invalid_token"}: it is not
    client         ^A, after a refusal
    server         the refusal once more, now as the end of the exchange

A token that is not good is refused in words that do not say why; the log does. Extensions are
checked for their form, and nothing is made of them, as in Kafka. A client that goes on with
something else than ^A after a refusal is refused for good; Kafka would take another token.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Final

from tidelog.config.oauth import OAUTHBEARER
from tidelog.sasl.mechanism import SaslRefusal
from tidelog.sasl.oauth.access_token import InvalidToken
from tidelog.sasl.oauth.token_validator import ValidatedToken

SEPARATOR: Final = "\x01"
AFTER_REFUSAL: Final = b"\x01"

_SASL_NAME: Final = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_PAIR: Final = r"[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01"
_FIRST: Final = re.compile(rf"n,(?:a=(?P<authzid>{_SASL_NAME}))?,\x01(?P<pairs>(?:{_PAIR})*)\x01")
_AUTH: Final = re.compile(r"(?i:bearer) +(?P<token>[-_~+/.a-zA-Z0-9]+=*)")


class OAuthBearerServer:
    is_token_authenticated: Final = False  # which tells of delegation tokens

    def __init__(self, validate: Callable[[str], ValidatedToken]) -> None:
        """`validate` raises InvalidToken."""
        self.user_or_none: str | None = None
        self.credential_expires_at_ms: int | None = None
        self._validate = validate
        self._refusal: SaslRefusal | None = None

    def evaluate(self, response: bytes) -> bytes:
        if self._refusal is not None:
            raise self._refusal
        authorization_id, value = _read(response)
        try:
            token = self._validate(value)
        except InvalidToken as problem:
            told = _error(problem)
            self._refusal = SaslRefusal(f"a token is refused: {problem}", told=told)
            return told.encode()
        if authorization_id not in ("", token.principal_name):
            raise SaslRefusal(
                "Authentication failed: Client requested an authorization id that is different "
                "from the token's principal name",
                is_public=True,
            )
        self.user_or_none = token.principal_name
        self.credential_expires_at_ms = token.expires_at_ms
        return b""


class OAuthBearerClient:
    mechanism: Final = OAUTHBEARER

    def __init__(self, token: str, extensions: Mapping[str, str]) -> None:
        self.is_complete = False
        self._token = token
        self._extensions = extensions
        self._has_begun = False
        self._error: str | None = None

    def evaluate(self, challenge: bytes) -> bytes:
        if not self._has_begun:
            self._has_begun = True
            pairs = {"auth": f"Bearer {self._token}", **self._extensions}
            text = SEPARATOR.join(f"{name}={value}" for name, value in pairs.items())
            return f"n,,{SEPARATOR}{text}{SEPARATOR}{SEPARATOR}".encode()
        if self._error is not None or self.is_complete:
            raise SaslRefusal(f"the broker goes on after {self._error or 'the end'}")
        if challenge:
            self._error = challenge.decode(errors="replace")
            return AFTER_REFUSAL
        self.is_complete = True
        return b""


def _read(message: bytes) -> tuple[str, str]:
    """The authorization id, and the token."""
    first = _FIRST.fullmatch(message.decode("latin-1"))
    if first is None:
        raise SaslRefusal("Invalid OAUTHBEARER client first message")
    pairs = [pair.partition("=")[::2] for pair in first["pairs"].split(SEPARATOR)[:-1]]
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        raise SaslRefusal("Invalid OAUTHBEARER client first message: a name is there twice")
    auth = _AUTH.fullmatch(dict(pairs).get("auth", ""))
    if auth is None:
        raise SaslRefusal("Invalid OAUTHBEARER client first message: no 'auth' with a bearer token")
    authorization_id = (first["authzid"] or "").replace("=2C", ",").replace("=3D", "=")
    return authorization_id, auth["token"]


def _error(problem: InvalidToken) -> str:
    told = {"status": problem.status}
    if problem.scope is not None:
        told["scope"] = problem.scope
    return json.dumps(told, separators=(",", ":"))
