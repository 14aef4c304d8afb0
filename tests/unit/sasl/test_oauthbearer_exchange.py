"""Both ends of OAUTHBEARER, and every way in which its one message can be wrong."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.clock import FakeClock
from tidelog.config.sasl import SaslListener
from tidelog.protocol.header import encode_request_header
from tidelog.protocol.messages.metadata import MetadataRequest
from tidelog.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from tidelog.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tidelog.sasl.mechanism import SaslRefusal
from tidelog.sasl.oauth.access_token import InvalidToken
from tidelog.sasl.oauth.token_validator import ValidatedToken
from tidelog.sasl.oauthbearer import OAuthBearerClient, OAuthBearerServer
from tidelog.sasl.server_authenticator import (
    PASS,
    Failure,
    Reply,
    SaslServerAuthenticator,
    Step,
)

FIRST = b"n,,\x01auth=Bearer good\x01\x01"
INVALID = b'{"status":"invalid_token"}'


def validate(token: str) -> ValidatedToken:
    if not token.startswith("good"):
        raise InvalidToken(f"{token} has expired")
    return ValidatedToken("alice", 5_000)


def server_after(message: bytes) -> OAuthBearerServer:
    server = OAuthBearerServer(validate)
    assert server.evaluate(message) == b""
    return server


def test_a_good_token_lets_its_user_in_until_it_ends() -> None:
    server = server_after(FIRST)
    assert (server.user_or_none, server.credential_expires_at_ms) == ("alice", 5_000)
    assert not server.is_token_authenticated


@pytest.mark.parametrize(
    "message",
    [
        b"n,a=alice,\x01auth=Bearer good\x01\x01",
        b"n,,\x01auth=bearer   good==\x01\x01",
        b"n,,\x01host=broker\x01port=9092\x01auth=BEARER good\x01traceId=7 8\t9\x01\x01",
    ],
)
def test_the_message_may_have_what_rfc_7628_has(message: bytes) -> None:
    assert server_after(message).user_or_none == "alice"


def test_a_bad_token_is_refused_in_two_steps_and_the_reason_is_not_told() -> None:
    server = OAuthBearerServer(validate)
    assert server.evaluate(b"n,,\x01auth=Bearer bad\x01\x01") == INVALID
    assert server.user_or_none is None
    with pytest.raises(SaslRefusal) as raised:
        server.evaluate(b"\x01")
    assert raised.value.told == INVALID.decode()
    assert "bad has expired" in str(raised.value)


@pytest.mark.parametrize("then", [FIRST, b"", b"\x01\x01", b"n,,"])
def test_after_a_refusal_there_is_no_second_try(then: bytes) -> None:
    server = OAuthBearerServer(validate)
    server.evaluate(b"n,,\x01auth=Bearer bad\x01\x01")
    with pytest.raises(SaslRefusal):
        server.evaluate(then)
    assert server.user_or_none is None


def test_a_missing_scope_is_told() -> None:
    def refuse(_: str) -> ValidatedToken:
        raise InvalidToken("no", status="insufficient_scope", scope="a b")

    told = OAuthBearerServer(refuse).evaluate(FIRST)
    assert json.loads(told) == {"status": "insufficient_scope", "scope": "a b"}


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"n,,",
        b"n,,\x01\x01",
        b"n,,\x01auth=Bearer good\x01",  # one separator short
        b"n,,\x01auth=Bearer good\x01\x01\x01",
        b"n,,auth=Bearer good\x01\x01",
        b"y,,\x01auth=Bearer good\x01\x01",  # channel binding
        b"p=tls-unique,,\x01auth=Bearer good\x01\x01",
        b"n,a=,\x01auth=Bearer good\x01\x01",
        b"n,x=alice,\x01auth=Bearer good\x01\x01",
        b"n,a=al=ice,\x01auth=Bearer good\x01\x01",
        b"n,,\x01auth=Basic good\x01\x01",
        b"n,,\x01auth=Bearer\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01auth=good\x01\x01",
        b"n,,\x01auth=Bearer go od\x01\x01",
        b"n,,\x01auth=Bearer good,x\x01\x01",
        b"n,,\x01auth=Bearer good=x\x01\x01",
        b"n,,\x01Auth=Bearer good\x01\x01",
        b"n,,\x01host=x\x01\x01",
        b"n,,\x01auth=Bearer good\x01auth=Bearer good2\x01\x01",
        b"n,,\x01auth=Bearer good\x01trace=1\x01trace=2\x01\x01",
        b"n,,\x01auth=Bearer good\x01trace1=x\x01\x01",
        b"n,,\x01auth=Bearer good\x01=x\x01\x01",
        b"n,,\x01auth=Bearer good\x01trace=\x01\x01",
        b"n,,\x01auth=Bearer good\x01trace=\x00\x01\x01",
        b"n,,\x01auth=Bearer good\x01trace=\xc3\xa4\x01\x01",
        b"n,,\x01auth=Bearer g\xc3\xb6od\x01\x01",
        FIRST + b"\n",
        b" " + FIRST,
    ],
)
def test_any_other_message_ends_the_exchange(message: bytes) -> None:
    server = OAuthBearerServer(validate)
    with pytest.raises(SaslRefusal) as raised:
        server.evaluate(message)
    assert raised.value.told is None
    assert server.user_or_none is None


@given(place=st.integers(0, len(FIRST) - 1), byte=st.integers(0, 255))
def test_a_byte_that_is_changed_lets_nobody_else_in(place: int, byte: int) -> None:
    message = bytearray(FIRST)
    message[place] = byte
    server = OAuthBearerServer(validate)
    try:
        server.evaluate(bytes(message))
    except SaslRefusal:
        assert server.user_or_none is None


def test_an_authorization_id_must_be_the_users_own() -> None:
    with pytest.raises(SaslRefusal, match="authorization id"):
        OAuthBearerServer(validate).evaluate(b"n,a=bob,\x01auth=Bearer good\x01\x01")


def test_a_huge_message_is_judged_at_once() -> None:
    server = OAuthBearerServer(validate)
    assert server.evaluate(b"n,,\x01auth=Bearer " + b"x" * 500_000 + b"\x01\x01") == INVALID
    with pytest.raises(SaslRefusal):
        OAuthBearerServer(validate).evaluate(b"n,,\x01" + b"a=b\x01" * 100_000)


class TestClient:
    def test_it_sends_token_and_extensions(self) -> None:
        client = OAuthBearerClient("good", {"traceId": "7"})
        assert client.evaluate(b"") == b"n,,\x01auth=Bearer good\x01traceId=7\x01\x01"
        assert not client.is_complete
        assert client.evaluate(b"") == b""
        assert client.is_complete

    def test_it_answers_a_refusal_and_waits_for_the_end(self) -> None:
        client = OAuthBearerClient("bad", {})
        client.evaluate(b"")
        assert client.evaluate(INVALID) == b"\x01"
        assert not client.is_complete
        with pytest.raises(SaslRefusal, match="invalid_token"):
            client.evaluate(b"")

    def test_a_broker_that_goes_on_after_the_end_is_refused(self) -> None:
        client = OAuthBearerClient("good", {})
        client.evaluate(b"")
        client.evaluate(b"")
        with pytest.raises(SaslRefusal):
            client.evaluate(b"more")

    def test_both_ends_agree(self) -> None:
        client, server = OAuthBearerClient("good.a-b_c", {"k": "v"}), OAuthBearerServer(validate)
        assert client.evaluate(server.evaluate(client.evaluate(b""))) == b""
        assert (client.is_complete, server.user_or_none) == (True, "alice")


class Session:
    """A connection whose client has a token with some time to live."""

    def __init__(self, lifetime_ms: int, max_reauth_ms: int = 0) -> None:
        self.clock = FakeClock()
        self.expires_at_ms = self.clock.time_ms() + lifetime_ms
        listener = SaslListener(("OAUTHBEARER",), max_reauth_ms={"OAUTHBEARER": max_reauth_ms})
        self.authenticator = SaslServerAuthenticator(
            listener,
            lambda _: OAuthBearerServer(lambda name: ValidatedToken(name, self.expires_at_ms)),
            self.clock,
        )

    def send(self, request: SaslHandshakeRequest | SaslAuthenticateRequest, version: int) -> Step:
        frame = encode_request_header(request.API_KEY, version, 7, "client")
        return self.authenticator.receive(memoryview(frame + request.encode(version)))

    def log_in(self, user: str = "alice") -> Step:
        self.send(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1)
        message = f"n,,\x01auth=Bearer {user}\x01\x01".encode()
        return self.send(SaslAuthenticateRequest(auth_bytes=message), 2)

    def lifetime_ms(self) -> int:
        step = self.log_in()
        assert isinstance(step, Reply)
        return SaslAuthenticateResponse.decode(
            memoryview(b"".join(step.parts)), 5, 2
        ).session_lifetime_ms

    def metadata(self) -> Step:
        request = MetadataRequest(topics=[])
        frame = encode_request_header(request.API_KEY, 5, 8, "client")
        return self.authenticator.receive(memoryview(frame + request.encode(5)))


@pytest.mark.parametrize(
    ("token_ms", "max_reauth_ms", "told_ms"),
    [(5_000, 0, 5_000), (5_000, 3_000, 3_000), (5_000, 9_000, 5_000), (0, 9_000, 0), (-1, 0, 0)],
)
def test_a_session_ends_with_its_token_or_before(
    token_ms: int, max_reauth_ms: int, told_ms: int
) -> None:
    session = Session(token_ms, max_reauth_ms)
    assert session.lifetime_ms() == told_ms
    session.clock.advance(ms=told_ms)
    if told_ms:
        assert session.metadata() is PASS
    session.clock.advance(ms=1)
    assert isinstance(session.metadata(), Failure)


def test_another_token_of_the_same_user_makes_a_session_longer() -> None:
    session = Session(5_000)
    session.lifetime_ms()
    session.clock.advance(ms=4_000)
    session.expires_at_ms += 60_000
    assert session.lifetime_ms() == 61_000
    session.clock.advance(ms=60_000)
    assert session.metadata() is PASS


def test_a_token_of_another_user_ends_the_connection() -> None:
    session = Session(5_000)
    session.log_in("alice")
    session.clock.advance(ms=2_000)
    step = session.log_in("bob")
    assert isinstance(step, Failure)
    assert "Cannot change principals" in step.reason
    assert isinstance(session.metadata(), Failure)
