"""SCRAM from both ends, RFC 5802's and RFC 7677's own examples, and every field tampered with."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable

import pytest

from tidelog.sasl.mechanism import SaslRefusal
from tidelog.sasl.scram import (
    MAX_ITERATIONS_ASKED,
    PretendedCredentials,
    SaltedPasswords,
    ScramClient,
    ScramServer,
)
from tidelog.sasl.scram_credential import SCRAM_MECHANISMS, ScramCredential, ScramMechanism

SHA_256 = ScramMechanism.SCRAM_SHA_256
SALT = b"0123456789abcdefghij"
PRETENDED = PretendedCredentials(b"cluster")


def credential(
    mechanism: ScramMechanism = SHA_256, password: str = "pencil", iterations: int = 4096
) -> ScramCredential:
    salted = mechanism.salted_password(password.encode(), SALT, iterations)
    return ScramCredential.of_salted_password(mechanism, salted, SALT, iterations)


def server_of(
    mechanism: ScramMechanism = SHA_256, users: dict[str, ScramCredential] | None = None
) -> ScramServer:
    known = {"user": credential(mechanism)} if users is None else users
    return ScramServer(mechanism, known.get, PRETENDED)


Tampering = Callable[[bytes], bytes]


def unchanged(message: bytes) -> bytes:
    return message


def exchange(
    server: ScramServer,
    client: ScramClient,
    *,
    client_first: Tampering = unchanged,
    server_first: Tampering = unchanged,
    client_final: Tampering = unchanged,
    server_final: Tampering = unchanged,
) -> None:
    challenge = server_first(server.evaluate(client_first(client.evaluate(b""))))
    client.evaluate(server_final(server.evaluate(client_final(client.evaluate(challenge)))))


@pytest.mark.parametrize("mechanism", SCRAM_MECHANISMS)
def test_both_ends_prove_who_they_are(mechanism: ScramMechanism) -> None:
    server, client = server_of(mechanism), ScramClient(mechanism, "user", "pencil")
    exchange(server, client)
    assert (server.user_or_none, client.is_complete) == ("user", True)


def test_the_example_of_rfc_7677() -> None:
    client = ScramClient(SHA_256, "user", "pencil", nonce=lambda: "rOprNGfwEbeRWgbNEkqO")
    assert client.evaluate(b"") == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    final = client.evaluate(f"r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode())
    assert final == f"c=biws,r={nonce},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
    client.evaluate(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")
    assert client.is_complete


def test_the_broker_in_the_example_of_rfc_7677() -> None:
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    salted = SHA_256.salted_password(b"pencil", salt, 4096)
    known = {"user": ScramCredential.of_salted_password(SHA_256, salted, salt, 4096)}
    server = ScramServer(
        SHA_256, known.get, PRETENDED, nonce=lambda: "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    )
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    first = server.evaluate(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    assert first == f"r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
    final = server.evaluate(
        f"c=biws,r={nonce},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
    )
    assert final == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def test_names_with_commas_and_equals_signs_are_escaped() -> None:
    name = "a=b,c=2C"
    server, client = server_of(users={name: credential()}), ScramClient(SHA_256, name, "pencil")
    exchange(server, client)
    assert server.user_or_none == name


def replaced(field: str, value: str) -> Tampering:
    def tamper(message: bytes) -> bytes:
        changed = re.sub(
            rf"(^|,){field}=[^,]*", rf"\g<1>{field}={value}", message.decode(), count=1
        )
        assert changed.encode() != message, "nothing was changed"
        return changed.encode()

    return tamper


def appended(field: str, more: str) -> Tampering:
    def tamper(message: bytes) -> bytes:
        return re.sub(rf"((?:^|,){field}=[^,]*)", rf"\g<1>{more}", message.decode()).encode()

    return tamper


def flipped(field: str) -> Tampering:
    """One bit of what is in base64."""

    def tamper(message: bytes) -> bytes:
        found = re.search(rf"(?:^|,){field}=([^,]*)", message.decode())
        assert found is not None
        raw = bytearray(base64.b64decode(found[1]))
        raw[-1] ^= 1
        return message.decode().replace(found[1], base64.b64encode(raw).decode()).encode()

    return tamper


@pytest.mark.parametrize(
    "tampering",
    [
        {"client_first": replaced("r", "another")},
        {"client_first": appended("r", "x")},
        {"client_first": appended("r", ",x=y")},
        {"client_first": replaced("n", "other")},
        {"client_first": lambda message: b"n,a=other," + message[3:]},
        {"client_first": lambda message: b"n,a=user," + message[3:]},  # c= is of another header
        {"client_first": lambda message: b"y,," + message[3:]},
        {"client_first": lambda message: b"p=tls-unique,," + message[3:]},
        {"client_first": lambda message: message[3:]},
        {"client_first": lambda message: message + b",tokenauth=true"},
        {"client_first": lambda message: message[:-1] + b"\xff"},
        {"client_first": lambda message: b""},
        {"server_first": replaced("r", "another")},
        {"server_first": appended("r", "x")},
        {"server_first": flipped("s")},
        {"server_first": replaced("s", "")},
        {"server_first": replaced("i", "4095")},
        {"server_first": replaced("i", "4097")},
        {"server_first": replaced("i", "0")},
        {"server_first": replaced("i", "-1")},
        {"server_first": replaced("i", str(MAX_ITERATIONS_ASKED + 1))},
        {"server_first": replaced("i", "9" * 40)},
        {"server_first": lambda message: b""},
        {"client_final": replaced("r", "another")},
        {"client_final": appended("r", "x")},
        {"client_final": lambda message: message.replace(b"r=", b"r=x")},
        {"client_final": replaced("c", "eSws")},
        {"client_final": replaced("c", "")},
        {"client_final": flipped("p")},
        {"client_final": replaced("p", "")},
        {"client_final": replaced("p", "AAAA")},
        {"client_final": replaced("p", "*")},
        {"client_final": lambda message: message.replace(b",p=", b",x=y,p=")},
        {"client_final": lambda message: message.rpartition(b",")[0]},
        {"client_final": lambda message: b""},
        {"client_final": lambda message: b"\xff"},
        {"server_final": flipped("v")},
        {"server_final": replaced("v", "")},
        {"server_final": lambda message: b"e=other-error"},
        {"server_final": lambda message: b""},
    ],
)
def test_a_message_that_was_tampered_with_is_refused(tampering: dict[str, Tampering]) -> None:
    server, client = server_of(), ScramClient(SHA_256, "user", "pencil")
    with pytest.raises(SaslRefusal):
        exchange(server, client, **tampering)
    assert not client.is_complete


def test_a_replayed_exchange_is_refused() -> None:
    """CVE-2024-56128: the broker's nonce must come back."""
    sent: list[bytes] = []

    def keep(message: bytes) -> bytes:
        sent.append(message)
        return message

    exchange(
        server_of(),
        ScramClient(SHA_256, "user", "pencil"),
        client_first=keep,
        client_final=keep,
    )
    again = server_of()
    again.evaluate(sent[0])
    with pytest.raises(SaslRefusal, match="nonce"):
        again.evaluate(sent[1])
    assert again.user_or_none is None


def test_an_old_librdkafka_may_repeat_its_nonce() -> None:
    """Before 2.6.1 it sends its own nonce, and then the whole one."""

    class OldClient(ScramClient):
        def evaluate(self, challenge: bytes) -> bytes:
            repeated = challenge.replace(b"r=", f"r={self._nonce}".encode())
            return super().evaluate(repeated if challenge.startswith(b"r=") else challenge)

    server, client = server_of(), OldClient(SHA_256, "user", "pencil")
    first = server.evaluate(client.evaluate(b""))
    final = client.evaluate(first)
    with pytest.raises(SaslRefusal) as raised:
        server.evaluate(final)
    assert "wrong password" in str(raised.value), "the nonce passes, this proof is of another text"


def test_an_exchange_has_one_end() -> None:
    server, client = server_of(), ScramClient(SHA_256, "user", "pencil")
    final = b""

    def keep(message: bytes) -> bytes:
        nonlocal final
        final = message
        return message

    exchange(server, client, client_final=keep)
    with pytest.raises(SaslRefusal):
        server.evaluate(final)
    with pytest.raises(SaslRefusal):
        client.evaluate(b"v=AAAA")


def test_a_failed_proof_cannot_be_tried_again() -> None:
    server, client = server_of(), ScramClient(SHA_256, "user", "pencil")
    right = client.evaluate(server.evaluate(client.evaluate(b"")))
    with pytest.raises(SaslRefusal):
        server.evaluate(flipped("p")(right))
    with pytest.raises(SaslRefusal):
        server.evaluate(right)
    assert server.user_or_none is None


def test_a_name_that_does_not_exist_looks_like_one_with_another_password() -> None:
    refusals: list[tuple[list[str], str | None]] = []
    for name in ("user", "nobody"):
        client, server = ScramClient(SHA_256, name, "wrong"), server_of()
        first = server.evaluate(client.evaluate(b""))
        with pytest.raises(SaslRefusal) as raised:
            server.evaluate(client.evaluate(first))
        shape = re.findall(r"(?:^|,)(\w)=", first.decode())
        refusals.append((shape, raised.value.told))
    assert refusals[0] == refusals[1] == (["r", "s", "i"], None)


def test_a_name_that_does_not_exist_always_has_the_same_salt() -> None:
    def salt(name: str, secret: bytes = b"cluster") -> bytes:
        return PretendedCredentials(secret).of(SHA_256, name).salt

    assert salt("nobody") == salt("nobody")
    assert len({salt("nobody"), salt("noone"), salt("nobody", b"other")}) == 3


def test_a_credential_with_few_iterations_is_not_used() -> None:
    server = server_of(users={"user": credential(iterations=4095)})
    with pytest.raises(SaslRefusal, match="4095 iterations"):
        server.evaluate(b"n,,n=user,r=abc")


def test_a_password_is_hashed_once_for_many_connections() -> None:
    kept: SaltedPasswords = {}
    for _ in range(3):
        exchange(server_of(), ScramClient(SHA_256, "user", "pencil", kept))
    assert len(kept) == 1
    changed = server_of(users={"user": credential(iterations=8192)})
    exchange(changed, ScramClient(SHA_256, "user", "pencil", kept))
    assert [iterations for _, _, iterations in kept] == [8192]


def test_a_credential_is_stored_as_kafka_stores_it() -> None:
    text = "salt=MDEyMzQ1Njc4OWFiY2RlZmdoaWo=,stored_key=AAEC,server_key=/+4=,iterations=4096"
    parsed = ScramCredential.parse(text)
    assert parsed == ScramCredential(SALT, b"\0\1\2", b"\xff\xee", 4096)
    assert parsed.to_text() == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "salt=AAAA",
        "salt=AAAA,stored_key=AAAA,server_key=AAAA",
        "salt=AAAA,stored_key=AAAA,server_key=AAAA,iterations=x",
        "salt=*,stored_key=AAAA,server_key=AAAA,iterations=4096",
        "salt=AAAA,stored_key=AAAA,server_key=AAAA,iterations=4096,more=1",
    ],
)
def test_what_is_no_credential_is_refused_without_its_text(text: str) -> None:
    with pytest.raises(ValueError) as raised:  # noqa: PT011
        ScramCredential.parse(text)
    assert "AAAA" not in str(raised.value)


def test_nothing_secret_is_shown() -> None:
    assert "MDEy" not in repr(credential())
    assert "pencil" not in repr(ScramClient(SHA_256, "user", "pencil"))
