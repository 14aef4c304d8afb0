"""Which tokens are good, and each reason why one is not."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest
from joserfc.jwk import OctKey

from tests.support.clock import FakeClock
from tests.support.oauth_provider import (
    AUDIENCE,
    ISSUER,
    claims_of,
    ec_key,
    encoded,
    jwks,
    rsa_key,
    signed,
    unsecured,
)
from tidelog.config.oauth import Endpoint, SignedTokens, UnsecuredTokens
from tidelog.sasl.oauth.access_token import InvalidToken
from tidelog.sasl.oauth.token_validator import (
    SignedTokenValidator,
    UnsecuredTokenValidator,
    ValidatedToken,
)
from tidelog.sasl.oauth.verification_keys import InvalidKeySet, VerificationKeys

NOW = 1_700_000_000
ENDPOINT = Endpoint("sasl.oauthbearer.jwks.endpoint.url", "file:///k", 0, 0, 1, 1, {})
RULES = SignedTokens(ENDPOINT, expected_audience=(AUDIENCE,), expected_issuer=ISSUER)
KEYS = VerificationKeys.parse(jwks(rsa_key(), rsa_key(1), ec_key()))


class Stage:
    def __init__(self, rules: SignedTokens = RULES, keys: VerificationKeys = KEYS) -> None:
        self.missed = 0
        self.clock = FakeClock(NOW * 1000)
        self._validator = SignedTokenValidator(rules, lambda: keys, self._miss, self.clock)

    def _miss(self) -> None:
        self.missed += 1

    def validate(self, token: str) -> ValidatedToken:
        return self._validator.validate(token)

    def refusal(self, token: str) -> str:
        with pytest.raises(InvalidToken) as raised:
            self.validate(token)
        assert raised.value.status == "invalid_token"
        return str(raised.value)


def claims(**more: Any) -> dict[str, Any]:
    return claims_of(more.pop("sub", "alice"), NOW, **more)


def without_kid(**more: Any) -> str:
    return signed(claims(), kid=None, **more)


ALICE = ValidatedToken("alice", (NOW + 3600) * 1000)


@pytest.mark.parametrize(
    "token",
    [
        signed(claims()),
        signed(claims(), algorithm="RS512"),
        signed(claims(), algorithm="PS256"),
        signed(claims(), ec_key(), "ES256"),
        signed(claims(), rsa_key(1)),
        without_kid(),
        without_kid(key=rsa_key(1)),
        signed(claims(aud=["other", AUDIENCE])),
        signed(claims(exp=NOW + 3600.5)),
        signed(claims(sub="  alice ")),
        signed(claims(scope="read write"), typ="at+jwt", jku="https://evil.example"),
        signed(claims(scope=["read", "write"], nbf=NOW)),
    ],
)
def test_a_token_that_a_known_key_has_signed_is_good(token: str) -> None:
    validated = Stage().validate(token)
    assert validated.principal_name == "alice"
    assert validated.expires_at_ms in (ALICE.expires_at_ms, ALICE.expires_at_ms + 500)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"exp": None}, "exp is missing"),
        ({"exp": NOW - 30}, "expired, 30 s ago"),
        ({"exp": NOW - 100_000}, "expired"),
        ({"exp": str(NOW + 60)}, "exp is not a number"),
        ({"exp": True}, "exp is not a number"),
        ({"exp": -1}, "exp is not a time"),
        ({"exp": 1e300}, "exp is not a time"),
        ({"iat": None}, "iat is missing"),
        ({"iat": NOW + 31}, "not valid yet: iat"),
        ({"iat": NOW + 10, "exp": NOW + 5}, "expires before it begins"),
        ({"nbf": NOW + 31}, "not valid yet: nbf"),
        ({"aud": None}, "aud"),
        ({"aud": "other"}, "another audience"),
        ({"aud": []}, "another audience"),
        ({"aud": [1]}, "aud is not"),
        ({"aud": {AUDIENCE: 1}}, "aud is not"),
        ({"iss": "https://other.example"}, "another issuer"),
        ({"iss": None}, "another issuer"),
        ({"sub": None}, "sub is no text"),
        ({"sub": " "}, "sub is no text"),
        ({"sub": 7}, "sub is no text"),
        ({"scope": 7}, "scope is not"),
        ({"scope": ["a", ""]}, "scope is not"),
    ],
)
def test_a_signed_token_with_other_claims_is_refused(changed: dict[str, Any], reason: str) -> None:
    given = {**claims(), **changed}
    token = signed({name: value for name, value in given.items() if value is not None})
    assert reason in Stage().refusal(token)


def test_clocks_may_differ_by_the_skew() -> None:
    stage = Stage()
    stage.validate(signed(claims(exp=NOW - 29, iat=NOW - 60)))
    stage.validate(signed(claims(iat=NOW + 29, nbf=NOW + 29)))
    strict = Stage(RULES._replace(clock_skew_seconds=0))
    assert "expired" in strict.refusal(signed(claims(exp=NOW, iat=NOW - 60)))
    assert "not valid yet" in strict.refusal(signed(claims(nbf=NOW + 1)))


def test_a_token_for_somebody_is_refused_where_nobody_is_expected() -> None:
    """RFC 7519, and Kafka's library."""
    stage = Stage(RULES._replace(expected_audience=()))
    assert "another audience" in stage.refusal(signed(claims()))
    assert stage.validate(signed(claims(aud=None))).principal_name == "alice"


def test_without_an_expected_issuer_any_issuer_will_do() -> None:
    stage = Stage(RULES._replace(expected_issuer=None))
    assert stage.validate(signed(claims(iss=None))).principal_name == "alice"


def test_claims_may_have_other_names() -> None:
    stage = Stage(RULES._replace(sub_claim_name="email", scope_claim_name="scp"))
    token = signed(claims(email="a@example.com", scope=7))
    assert stage.validate(token).principal_name == "a@example.com"
    assert "email is no text" in stage.refusal(signed(claims()))


def tampered(token: str, place: int) -> str:
    parts = token.split(".")
    raw = bytearray(base64.urlsafe_b64decode(parts[place] + "=="))
    raw[len(raw) // 2] ^= 1
    parts[place] = base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
    return ".".join(parts)


def with_claims(token: str, changed: dict[str, Any]) -> str:
    header, _, signature = token.split(".")
    return f"{header}.{encoded(changed)}.{signature}"


def with_header(token: str, header: object) -> str:
    _, payload, signature = token.split(".")
    return f"{encoded(header)}.{payload}.{signature}"


GOOD = signed(claims())
DEEP = b"[" * 5_000
SECRET = OctKey.import_key({"kty": "oct", "kid": "rsa-0", "k": encoded(b"s" * 64)})


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        (tampered(GOOD, 1), "signature is wrong"),
        (tampered(GOOD, 2), "signature is wrong"),
        (with_claims(GOOD, claims(sub="admin")), "signature is wrong"),
        (signed(claims(), rsa_key(7), kid="rsa-0"), "signature is wrong"),
        (signed(claims(), rsa_key(1), kid="rsa-0"), "signature is wrong"),
        (GOOD.rpartition(".")[0] + ".", "is not accepted"),
        (GOOD.rpartition(".")[0] + ".AAAA", "signature is wrong"),
        (GOOD.rpartition(".")[0] + ".****", "signature is wrong"),
        (unsecured(claims()), "'none', which is not accepted"),
        (with_header(GOOD, {"alg": "None", "kid": "rsa-0"}), "not accepted"),
        (with_header(GOOD, {"alg": "NONE", "kid": "rsa-0"}), "not accepted"),
        (with_header(GOOD, {"kid": "rsa-0"}), "not accepted"),
        (with_header(GOOD, {"alg": ["RS256"], "kid": "rsa-0"}), "not accepted"),
        (signed(claims(), SECRET, "HS256"), "'HS256', which is not accepted"),
        (with_header(GOOD, {"alg": "RS256", "kid": 7}), "kid that is no text"),
        (with_header(GOOD, {"alg": "RS256", "kid": "rsa-0", "crit": ["x"]}), "crit"),
        (with_header(GOOD, {"alg": "RS256", "kid": "rsa-0", "b64": False}), "signature is wrong"),
        (with_header(GOOD, ["alg"]), "not a JSON object"),
        (with_header(GOOD, b'{"alg":"none","alg":"RS256"}'), "distinct names"),
        (with_header(GOOD, b"\xff"), "not a JSON object"),
        (with_header(GOOD, DEEP), "not a JSON object"),
        (with_header(GOOD, {"alg": "RS256", "x": "y" * 9_000}), "more than 8192 characters"),
        ("", "it has 1 parts"),
        ("a.b", "it has 2 parts"),
        (f"{GOOD}.x", "it has 4 parts"),
        ("*.b.c", "not base64url"),
        ("a.b.c", "not base64url"),
    ],
)
def test_a_token_that_was_tampered_with_is_refused(token: str, reason: str) -> None:
    stage = Stage()
    assert reason in stage.refusal(token)
    assert stage.missed == 0


def test_claims_of_the_issuer_that_are_no_object_are_refused() -> None:
    from joserfc.jws import serialize_compact

    for payload in (b"[]", b"7", b"no json", b'{"exp":NaN}', b'{"sub":"a","sub":"b"}'):
        token = serialize_compact({"alg": "RS256", "kid": "rsa-0"}, payload, rsa_key())
        assert "payload" in Stage().refusal(token)


@pytest.mark.parametrize(
    "token",
    [
        signed(claims(), rsa_key(7)),
        signed(claims(), ec_key("P-384"), "ES384"),
        without_kid(key=ec_key("P-384"), algorithm="ES384"),
        with_header(GOOD, {"alg": "ES256", "kid": "rsa-0"}),  # a key of another type
    ],
)
def test_a_token_of_an_unknown_key_is_refused_and_the_key_is_looked_for(token: str) -> None:
    stage = Stage()
    assert "no key in the key set" in stage.refusal(token)
    assert stage.missed == 1


def test_a_key_signs_only_with_its_own_algorithm() -> None:
    row = {**rsa_key().as_dict(private=False), "alg": "RS512"}
    keys = VerificationKeys.parse(json.dumps({"keys": [row]}).encode())
    assert "no key in the key set" in Stage(keys=keys).refusal(GOOD)
    assert Stage(keys=keys).validate(signed(claims(), algorithm="RS512")) == ALICE


def public(**changed: Any) -> dict[str, Any]:
    return {**rsa_key().as_dict(private=False), **changed}


@pytest.mark.parametrize(
    "row",
    [
        public(use="enc"),
        public(key_ops=["encrypt"]),
        public(kty="oct", k="c2VjcmV0"),
        public(n="AQAB"),
        public(n=None),
        public(kty="EC"),
        rsa_key(0, 1024).as_dict(private=False),
        {"kty": "OKP", "crv": "Ed25519", "x": "AAAA"},
        "a text",
        {},
    ],
)
def test_a_key_that_cannot_check_signatures_is_passed_over(row: Any) -> None:
    with pytest.raises(InvalidKeySet, match="none of its 1 keys"):
        VerificationKeys.parse(json.dumps({"keys": [row]}).encode())
    both = {"keys": [row, ec_key().as_dict(private=False)]}
    assert len(VerificationKeys.parse(json.dumps(both).encode())) == 1


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b'{"keys":{}}', b"<html>", DEEP])
def test_what_is_no_key_set_is_refused(text: bytes) -> None:
    with pytest.raises(InvalidKeySet):
        VerificationKeys.parse(text)


class TestUnsecured:
    """For development."""

    def validator(self, **rules: Any) -> Callable[[str], ValidatedToken]:
        return UnsecuredTokenValidator(UnsecuredTokens(**rules), FakeClock(NOW * 1000)).validate

    def test_it_believes_what_it_reads(self) -> None:
        assert self.validator()(unsecured(claims())) == ALICE

    @pytest.mark.parametrize(
        ("token", "reason"),
        [
            (GOOD, "it is signed"),
            (unsecured(claims()) + "AAAA", "it is signed"),
            (unsecured(claims(exp=NOW)), "expired"),
            (unsecured(claims(exp=None)), "exp is missing"),
            (unsecured(claims(sub=None)), "sub is no text"),
            (unsecured(claims(iat=NOW + 1)), "not valid yet"),
        ],
    )
    def test_it_refuses(self, token: str, reason: str) -> None:
        with pytest.raises(InvalidToken, match=reason):
            self.validator()(token)

    def test_it_asks_for_scopes(self) -> None:
        validate = self.validator(required_scope=("a", "b"))
        assert validate(unsecured(claims(scope="a b c"))).principal_name == "alice"
        with pytest.raises(InvalidToken) as raised:
            validate(unsecured(claims(scope="a")))
        assert (raised.value.status, raised.value.scope) == ("insufficient_scope", "a b")

    def test_claims_may_have_other_names_and_clocks_may_differ(self) -> None:
        validate = self.validator(principal_claim_name="name", clock_skew_ms=2_000)
        token = unsecured(claims(name="bob", exp=NOW - 1, iat=NOW - 5))
        assert validate(token).principal_name == "bob"
