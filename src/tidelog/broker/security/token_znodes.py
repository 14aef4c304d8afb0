"""Where Kafka 3.9 keeps delegation tokens in ZooKeeper, and what it writes there.

    /delegation_token/tokens/ID                  {"version":3,"owner":"User%3Aalice",
                                                 "tokenRequester":"User%3Aalice",
                                                 "renewers":["User%3Abob"],"issueTimestamp":...,
                                                 "maxTimestamp":...,"expiryTimestamp":...,
                                                 "tokenId":"ID"}
    /delegation_token/token_changes/token_change_N   the id of a token that has changed

The HMAC that proves a token is not there: it is made of the id and delegation.token.secret.key.
Versions 1 and 2 have no requester, who is the owner then.
"""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

from tidelog.controller.znodes import desanitized, sanitized
from tidelog.network.session import Principal

TOKENS: Final = "/delegation_token/tokens"
CHANGES: Final = "/delegation_token/token_changes"
CHANGE_PREFIX: Final = "token_change_"
VERSION: Final = 3


class TokenInformation(NamedTuple):
    """All that is known of a token, but for its HMAC."""

    token_id: str
    owner: Principal
    requester: Principal
    renewers: tuple[Principal, ...]
    issue_timestamp: int
    max_timestamp: int
    expiry_timestamp: int

    def is_owner_or_renewer(self, principal: Principal) -> bool:
        return principal == self.owner or principal in self.renewers

    def has_expired(self, now_ms: int) -> bool:
        return self.max_timestamp < now_ms or self.expiry_timestamp < now_ms


def path_of(token_id: str) -> str:
    return f"{TOKENS}/{token_id}"


def encode(token: TokenInformation) -> bytes:
    value = {
        "version": VERSION,
        "owner": sanitized(str(token.owner)),
        "tokenRequester": sanitized(str(token.requester)),
        "renewers": [sanitized(str(each)) for each in token.renewers],
        "issueTimestamp": token.issue_timestamp,
        "maxTimestamp": token.max_timestamp,
        "expiryTimestamp": token.expiry_timestamp,
        "tokenId": token.token_id,
    }
    return json.dumps(value, separators=(",", ":")).encode()


def decode(data: bytes) -> TokenInformation:
    """ValueError if it is none."""
    value: Any = json.loads(data)
    try:
        version = _integer(value["version"])
        if not 0 < version <= VERSION:
            raise ValueError(f"a delegation token of an unknown version: {version}")
        owner = _principal(value["owner"])
        return TokenInformation(
            str(value["tokenId"]),
            owner,
            _principal(value["tokenRequester"]) if version >= VERSION else owner,
            tuple(map(_principal, value["renewers"])),
            _integer(value["issueTimestamp"]),
            _integer(value["maxTimestamp"]),
            _integer(value["expiryTimestamp"]),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"not a delegation token: {error!r}") from error


def _principal(text: object) -> Principal:
    if not isinstance(text, str):
        raise ValueError(f"not a principal: {text!r}")
    kind, colon, name = desanitized(text).partition(":")
    if not kind or not colon:
        raise ValueError(f"not a principal: {text!r}")
    return Principal(kind, name)


def _integer(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"not a number: {value!r}")
    return value
