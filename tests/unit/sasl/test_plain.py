from __future__ import annotations

import hmac

import pytest

from tidelog.sasl import plain
from tidelog.sasl.mechanism import SaslRefusal
from tidelog.sasl.plain import PlainClient, PlainServer

USERS = {"alice": "secret", "josé": "contraseña", "empty": ""}
WRONG = "Authentication failed: Invalid username or password"


def refusal_of(message: bytes) -> SaslRefusal:
    with pytest.raises(SaslRefusal) as raised:
        PlainServer(USERS).evaluate(message)
    return raised.value


@pytest.mark.parametrize(
    ("message", "user"),
    [
        (b"\0alice\0secret", "alice"),
        (b"alice\0alice\0secret", "alice"),
        ("\0josé\0contraseña".encode(), "josé"),
    ],
)
def test_the_right_password_is_enough(message: bytes, user: str) -> None:
    server = PlainServer(USERS)
    assert server.evaluate(message) == b""
    assert server.user_or_none == user


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (b"\0alice\0Secret", WRONG),
        (b"\0alice\0secre", WRONG),
        (b"\0alice\0secret ", WRONG),
        (b"\0nobody\0secret", WRONG),
        (b"\0\xff\0secret", WRONG),
        (b"\0\0secret", "Authentication failed: username not specified"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (b"\0empty\0", "Authentication failed: password not specified"),
        (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"\0alice", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
        (b"\0alice\0secret\0", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0alice\0secret\0\0\0", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
    ],
)
def test_anything_else_is_refused_in_kafkas_words(message: bytes, words: str) -> None:
    refusal = refusal_of(message)
    assert (str(refusal), refusal.told) == (words, words)


def test_nobody_becomes_somebody_else_by_an_authorization_id() -> None:
    """CVE-2017-12610."""
    server = PlainServer(USERS)
    with pytest.raises(SaslRefusal, match="authorization id that is different from username"):
        server.evaluate(b"admin\0alice\0secret")
    assert server.user_or_none is None


@pytest.mark.parametrize("user", ["alice", "nobody"])
def test_the_time_of_a_comparison_tells_nothing(user: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """CVE-2021-38153. A name that does not exist is compared too."""
    compared: list[bytes] = []

    class Noted:
        @staticmethod
        def compare_digest(expected: bytes, given: bytes) -> bool:
            compared.append(given)
            return hmac.compare_digest(expected, given)

    monkeypatch.setattr(plain, "hmac", Noted)
    refusal_of(b"\0%s\0guess" % user.encode())
    assert compared == [b"guess"]


def test_both_ends_understand_each_other() -> None:
    server, client = PlainServer(USERS), PlainClient("josé", "contraseña")
    server.evaluate(client.evaluate(b""))
    assert (server.user_or_none, client.is_complete) == ("josé", True)
