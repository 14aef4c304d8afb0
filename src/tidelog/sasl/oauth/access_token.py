"""A JSON Web Token (RFC 7519) in its compact form, read without looking at its signature.

    base64url(header) . base64url(claims) . base64url(signature)

Who reads one here knows nothing yet of who wrote it: the header is bounded before it is parsed, a
name that is there twice is an error, and a number must be one.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, NoReturn

HEADER_CHARACTERS_MAX: Final = 8_192
SECONDS_MAX: Final = 253_402_300_799  # the end of the year 9999

_BASE64URL: Final = re.compile(r"[A-Za-z0-9_-]*")


class InvalidToken(Exception):
    """What is wrong with a token, for the log. `status` and `scope` are what its sender is told."""

    def __init__(
        self, message: str, *, status: str = "invalid_token", scope: str | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.scope = scope


class Parts(NamedTuple):
    header: Mapping[str, Any]
    claims: str  # encoded still
    signature: str


def split(token: str) -> Parts:
    """InvalidToken unless there are three parts, and the first is a header."""
    parts = token.split(".")
    if len(parts) != 3:
        raise InvalidToken(f"not a JSON Web Token: it has {len(parts)} parts, not 3")
    header, claims, signature = parts
    if len(header) > HEADER_CHARACTERS_MAX:
        raise InvalidToken(f"its header has more than {HEADER_CHARACTERS_MAX} characters")
    return Parts(decoded("header", header), claims, signature)


def decoded(what: str, part: str) -> Mapping[str, Any]:
    """The JSON object in a part of a token."""
    if not _BASE64URL.fullmatch(part) or len(part) % 4 == 1:
        raise InvalidToken(f"its {what} is not base64url")
    text = base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
    try:
        value = json.loads(text, object_pairs_hook=_distinct, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise InvalidToken(f"its {what} is not a JSON object of distinct names") from None
    if not isinstance(value, dict):
        raise InvalidToken(f"its {what} is not a JSON object")
    return value


def seconds_or_none(claims: Mapping[str, Any], name: str) -> float | None:
    """A time, since 1970."""
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidToken(f"its claim {name} is not a number")
    if not 0 <= value <= SECONDS_MAX or not math.isfinite(value):
        raise InvalidToken(f"its claim {name} is not a time")
    return value


def text_of(claims: Mapping[str, Any], name: str) -> str:
    value = claims.get(name)
    if not isinstance(value, str) or not value.strip():
        raise InvalidToken(f"its claim {name} is no text, or is missing")
    return value.strip()


def scopes_of(claims: Mapping[str, Any], name: str) -> frozenset[str]:
    """Of a claim that is one text, with blanks between, or a list of texts, or missing."""
    value = claims.get(name)
    if value is None:
        return frozenset()
    listed = value.split() if isinstance(value, str) else value
    if not isinstance(listed, list) or not all(
        isinstance(each, str) and each.strip() for each in listed
    ):
        raise InvalidToken(f"its claim {name} is not a text or a list of texts")
    return frozenset(each.strip() for each in listed)


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name is there twice")
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
