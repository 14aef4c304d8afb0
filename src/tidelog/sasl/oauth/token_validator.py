"""Whether a token is good, and whom it names.

A signed token is good if a key of the key set has signed it, it is valid now, and it is meant for
this cluster:

    alg        RS, PS or ES with 256, 384 or 512; never none, never a secret key (HS)
    kid        if there is one, that of a key in the set; an unknown one has the set read again
    crit       refused: no extension is known here
    exp, iat   must be there; exp is ahead and iat is not, give or take the clock skew
    nbf        if it is there, it has come
    aud        holds one of the audiences expected; without any, a token that has `aud` is refused
    iss        is the issuer expected, if there is one
    sub        names the user

The signature is checked before the claims are read, so what is read was written by the issuer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from tidelog.sasl.oauth.access_token import (
    InvalidToken,
    decoded,
    scopes_of,
    seconds_or_none,
    split,
    text_of,
)

if TYPE_CHECKING:
    from tidelog.clock import Clock
    from tidelog.config.oauth import SignedTokens, UnsecuredTokens
    from tidelog.sasl.oauth.verification_keys import VerificationKeys


class ValidatedToken(NamedTuple):
    principal_name: str
    expires_at_ms: int


class TokenValidator(Protocol):
    def validate(self, token: str) -> ValidatedToken:
        """InvalidToken says what is wrong with it."""


class SignedTokenValidator:
    def __init__(
        self,
        rules: SignedTokens,
        keys: Callable[[], VerificationKeys],
        key_missed: Callable[[], object],
        clock: Clock,
    ) -> None:
        """`key_missed` is told of tokens that no known key can have signed."""
        self._rules = rules
        self._keys = keys
        self._key_missed = key_missed
        self._clock = clock

    def validate(self, token: str) -> ValidatedToken:
        from tidelog.sasl.oauth.verification_keys import SIGNATURES

        header, claims, signature = split(token)
        algorithm, kid = header.get("alg"), header.get("kid")
        if algorithm not in SIGNATURES or not signature:
            raise InvalidToken(f"it is signed with {algorithm!r:.40}, which is not accepted")
        if kid is not None and not isinstance(kid, str):
            raise InvalidToken("its header has a kid that is no text")
        if "crit" in header:
            raise InvalidToken("its header has extensions (crit)")
        candidates = list(self._keys().candidates(algorithm, kid))
        if not candidates:
            self._key_missed()
            raise InvalidToken(f"no key in the key set is for {algorithm} and kid {kid!r:.100}")
        if not any(key.has_signed(token) for key in candidates):
            raise InvalidToken("its signature is wrong")
        return self._judge(decoded("payload", claims))

    def _judge(self, claims: Mapping[str, Any]) -> ValidatedToken:
        rules = self._rules
        expires_at = _judge_time(claims, self._clock.time_ms(), rules.clock_skew_seconds)
        if claims.get("iat") is None:
            raise InvalidToken("its claim iat is missing")
        _judge_audience(claims.get("aud"), rules.expected_audience)
        if rules.expected_issuer is not None and claims.get("iss") != rules.expected_issuer:
            raise InvalidToken(f"it is of another issuer, {claims.get('iss')!r:.100}")
        scopes_of(claims, rules.scope_claim_name)
        return ValidatedToken(text_of(claims, rules.sub_claim_name), int(expires_at * 1000))


class UnsecuredTokenValidator:
    """For development: anybody can write such a token, with any name in it."""

    def __init__(self, rules: UnsecuredTokens, clock: Clock) -> None:
        self._rules = rules
        self._clock = clock

    def validate(self, token: str) -> ValidatedToken:
        rules = self._rules
        header, encoded, signature = split(token)
        if header.get("alg") != "none" or signature:
            raise InvalidToken("it is signed, and this listener has no keys to check that with")
        claims = decoded("payload", encoded)
        name = text_of(claims, rules.principal_claim_name)
        expires_at = _judge_time(claims, self._clock.time_ms(), rules.clock_skew_ms / 1000)
        missing = [
            each
            for each in rules.required_scope
            if each not in scopes_of(claims, rules.scope_claim_name)
        ]
        if missing:
            raise InvalidToken(
                f"it has not the scope {missing[0]}",
                status="insufficient_scope",
                scope=" ".join(rules.required_scope),
            )
        return ValidatedToken(name, int(expires_at * 1000))


def _judge_time(claims: Mapping[str, Any], now_ms: int, skew_s: float) -> float:
    """When it expires."""
    now = now_ms / 1000
    expires_at = seconds_or_none(claims, "exp")
    if expires_at is None:
        raise InvalidToken("its claim exp is missing")
    if now - skew_s >= expires_at:
        raise InvalidToken(f"it has expired, {now - expires_at:.0f} s ago")
    issued_at = seconds_or_none(claims, "iat")
    not_before = seconds_or_none(claims, "nbf")
    for name, begins_at in (("iat", issued_at), ("nbf", not_before)):
        if begins_at is not None and begins_at > now + skew_s:
            raise InvalidToken(f"it is not valid yet: {name} is {begins_at - now:.0f} s ahead")
        if begins_at is not None and begins_at >= expires_at:
            raise InvalidToken(f"it expires before it begins (exp and {name})")
    return expires_at


def _judge_audience(audience: object, expected: tuple[str, ...]) -> None:
    """A token for somebody else is not for us (RFC 7519, 4.1.3)."""
    listed = [audience] if isinstance(audience, str) else audience
    if audience is None and not expected:
        return
    if not isinstance(listed, list) or not all(isinstance(each, str) for each in listed):
        raise InvalidToken("its claim aud is not a text or a list of texts, or is missing")
    if not set(listed) & set(expected):
        wanted = f"expected is {', '.join(expected)}" if expected else "none is expected"
        raise InvalidToken(f"it is for another audience, {listed!r:.200}; {wanted}")
