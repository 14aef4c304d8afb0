"""PLAIN (RFC 4616): name and password in one message, in the clear.

[authorization id] NUL username NUL password
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Final

from tidelog.config.sasl import PLAIN
from tidelog.sasl.mechanism import SaslRefusal

TOKENS: Final = 3
NO_PASSWORD: Final = "\0"  # no message can hold it


class PlainServer:
    credential_expires_at_ms: Final = None
    is_token_authenticated: Final = False

    def __init__(self, users: Mapping[str, str]) -> None:
        self.user_or_none: str | None = None
        self._users = users

    def evaluate(self, response: bytes) -> bytes:
        try:
            tokens = response.decode().split("\0", TOKENS)
        except UnicodeDecodeError:
            raise _refusal("Invalid username or password") from None
        if len(tokens) != TOKENS:
            raise SaslRefusal(
                f"Invalid SASL/PLAIN response: expected {TOKENS} tokens, got {len(tokens)}",
                is_public=True,
            )
        authorization_id, username, password = tokens
        if not username:
            raise _refusal("username not specified")
        if not password:
            raise _refusal("password not specified")
        expected = self._users.get(username, NO_PASSWORD)
        if not hmac.compare_digest(expected.encode(), password.encode()):
            raise _refusal("Invalid username or password")
        if authorization_id not in ("", username):
            raise _refusal("Client requested an authorization id that is different from username")
        self.user_or_none = username
        return b""


class PlainClient:
    mechanism: Final = PLAIN

    def __init__(self, username: str, password: str) -> None:
        self.is_complete = False
        self._username = username
        self._password = password

    def evaluate(self, challenge: bytes) -> bytes:
        if self.is_complete:
            raise SaslRefusal("the broker goes on after the only message of PLAIN")
        self.is_complete = True
        return f"\0{self._username}\0{self._password}".encode()


def _refusal(why: str) -> SaslRefusal:
    return SaslRefusal(f"Authentication failed: {why}", is_public=True)
