"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677), as far as Kafka speaks them.

    client first   n,[a=authzid],n=user,r=nonce[,extensions]
    server first   r=nonce+nonce,s=salt,i=iterations
    client final   c=biws,r=nonce+nonce,p=proof
    server final   v=signature

Only the gs2 header `n` is taken: there is no channel binding. The password never leaves the client,
and the broker keeps keys from which it cannot be had (`ScramCredential`). Neither end sees a
replayed exchange as good, because each adds a nonce of its own and checks that both come back.

A name without a credential gets a salt that is always the same for it, and is refused in the end
with the words for a wrong password: who asks does not learn which users there are. (Kafka refuses
such a name in its first answer.)

With the extension `tokenauth=true` the name is the id of a delegation token, and the password is
its HMAC in base64; the client is then the token's owner (KIP-48).

Passwords and salts are not normalised (SASLprep), as in Kafka. Other extensions are passed over.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from collections.abc import Callable, MutableMapping
from typing import Final, NamedTuple

from tidelog.sasl.mechanism import SaslRefusal
from tidelog.sasl.scram_credential import (
    MIN_ITERATIONS,
    SALT_BYTES,
    ScramCredential,
    ScramMechanism,
    TokenCredential,
)

# A client refuses to hash for longer: anybody may play the broker, and choose the number.
MAX_ITERATIONS_ASKED: Final = 1_000_000
NONCE_BYTES: Final = 18
GS2_HEADER: Final = "n,,"

_SASL_NAME: Final = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_VALUE: Final = r"[\x01-\x2b\x2d-\x7f]+"
_PRINTABLE: Final = r"[\x21-\x2b\x2d-\x7e]+"
_EXTENSIONS: Final = rf"(?P<extensions>(?:,[A-Za-z]+={_VALUE})*)"
_BASE64: Final = r"(?:[a-zA-Z0-9/+]{4})*(?:[a-zA-Z0-9/+]{3}=|[a-zA-Z0-9/+]{2}==)?"
_CLIENT_FIRST: Final = re.compile(
    rf"(?P<gs2>n,(?:a=(?P<authzid>{_SASL_NAME}))?,)"
    rf"(?P<bare>(?:m={_VALUE},)?n=(?P<name>{_SASL_NAME}),r=(?P<nonce>{_PRINTABLE}){_EXTENSIONS})"
)
_SERVER_FIRST: Final = re.compile(
    rf"(?:m={_VALUE},)?r=(?P<nonce>{_PRINTABLE}),s=(?P<salt>{_BASE64}),"
    rf"i=(?P<iterations>[0-9]{{1,10}}){_EXTENSIONS}"
)
_CLIENT_FINAL: Final = re.compile(
    rf"(?P<bare>c=(?P<channel>{_BASE64}),r=(?P<nonce>{_PRINTABLE}){_EXTENSIONS}),"
    rf"p=(?P<proof>{_BASE64})"
)
_SERVER_FINAL: Final = re.compile(
    rf"(?:e=(?P<error>{_VALUE})|v=(?P<signature>{_BASE64})){_EXTENSIONS}"
)


class PretendedCredentials:
    """Credentials for names that have none: always the same for a name, and good for nothing.

    `secret` should be one for all brokers of a cluster and outlive them, or a name that gets
    another salt at the next broker is known to have none.
    """

    def __init__(self, secret: bytes) -> None:
        self._secret = hashlib.sha512(b"tidelog pretended SCRAM credentials" + secret).digest()

    def of(self, mechanism: ScramMechanism, user: str) -> ScramCredential:
        def derived(what: str) -> bytes:
            return mechanism.hmac(self._secret, f"{what}\0{mechanism.name}\0{user}".encode())

        return ScramCredential(
            derived("salt")[:SALT_BYTES], derived("stored"), derived("server"), MIN_ITERATIONS
        )


class ScramServer:
    """`find` looks a user's credential up."""

    def __init__(
        self,
        mechanism: ScramMechanism,
        find: Callable[[str], ScramCredential | None],
        pretended: PretendedCredentials,
        nonce: Callable[[], str] = lambda: secrets.token_urlsafe(NONCE_BYTES),
        find_token: Callable[[str], TokenCredential | None] = lambda _: None,
    ) -> None:
        """`find_token` finds only tokens that are good now."""
        self.user_or_none: str | None = None
        self.credential_expires_at_ms: int | None = None
        self.is_token_authenticated = False
        self._mechanism = mechanism
        self._find = find
        self._find_token = find_token
        self._pretended = pretended
        self._own_nonce = nonce()
        self._began: _Begun | None = None
        self._is_over = False

    def evaluate(self, response: bytes) -> bytes:
        if self._is_over:
            raise SaslRefusal("a SCRAM message after the last one")
        message = _text(response)
        if self._began is None:
            self._began = self._begin(message)
            return self._began.server_first.encode()
        self._is_over = True
        return self._finish(self._began, message)

    def _begin(self, message: str) -> _Begun:
        first = _CLIENT_FIRST.fullmatch(message)
        if first is None:
            raise SaslRefusal("invalid SCRAM client first message")
        user = _user(first["name"])
        if first["authzid"] is not None and _user(first["authzid"]) != user:
            raise SaslRefusal(
                "Authentication failed: Client requested an authorization id that is different "
                "from username",
                is_public=True,
            )
        token: TokenCredential | None = None
        if _has_token(first["extensions"]):
            token = self._find_token(user)
            found = None if token is None else token.credential
        else:
            found = self._find(user)
        if found is not None and found.iterations < MIN_ITERATIONS:
            raise SaslRefusal(
                f"the credential of user {user!r} has {found.iterations} iterations, "
                f"at least {MIN_ITERATIONS} are needed"
            )
        credential = found or self._pretended.of(self._mechanism, user)
        nonce = first["nonce"] + self._own_nonce
        server_first = f"r={nonce},s={_base64(credential.salt)},i={credential.iterations}"
        return _Begun(
            user,
            token,
            credential,
            found is not None,
            first["gs2"],
            first["bare"],
            first["nonce"],
            nonce,
            server_first,
        )

    def _finish(self, began: _Begun, message: str) -> bytes:
        final = _CLIENT_FINAL.fullmatch(message)
        if final is None:
            raise SaslRefusal("invalid SCRAM client final message")
        # librdkafka 2.0.2 puts its own nonce before the whole one once more.
        if final["nonce"] not in (began.nonce, began.client_nonce + began.nonce):
            raise SaslRefusal("the nonce in the client final message is not the one given")
        if base64.b64decode(final["channel"]) != began.gs2_header.encode():
            raise SaslRefusal("the channel binding is not that of the client first message")
        signed = f"{began.client_first_bare},{began.server_first},{final['bare']}".encode()
        credential, mechanism = began.credential, self._mechanism
        signature = mechanism.hmac(credential.stored_key, signed)
        proof = base64.b64decode(final["proof"])
        if len(proof) != len(signature):
            raise SaslRefusal("the client proof has the wrong length")
        stored_key = mechanism.hash(_xor(signature, proof))
        is_right = hmac.compare_digest(stored_key, credential.stored_key)
        if not is_right or not began.is_known:
            known = "wrong password of" if began.is_known else "there is no"
            raise SaslRefusal(f"{known} user or token {began.user!r}")
        self.user_or_none = began.user
        if began.token is not None:
            self.user_or_none = began.token.owner
            self.credential_expires_at_ms = began.token.expires_at_ms
            self.is_token_authenticated = True
        return f"v={_base64(mechanism.hmac(credential.server_key, signed))}".encode()


class _Begun(NamedTuple):
    """What the server remembers between its two messages."""

    user: str  # or the id of a token
    token: TokenCredential | None
    credential: ScramCredential
    is_known: bool
    gs2_header: str
    client_first_bare: str
    client_nonce: str
    nonce: str  # the client's and the server's
    server_first: str


# By mechanism, salt and iterations: a client that connects often hashes its password once.
SaltedPasswords = MutableMapping[tuple[ScramMechanism, bytes, int], bytes]


class ScramClient:
    def __init__(
        self,
        mechanism: ScramMechanism,
        username: str,
        password: str,
        salted_passwords: SaltedPasswords | None = None,
        nonce: Callable[[], str] = lambda: secrets.token_urlsafe(NONCE_BYTES),
        *,
        is_token: bool = False,
    ) -> None:
        """`is_token`: name and password are the id and the HMAC of a delegation token."""
        self.mechanism = mechanism.mechanism_name
        self.is_complete = False
        self._scram = mechanism
        self._username = username
        self._password = password
        self._extensions = ",tokenauth=true" if is_token else ""
        self._salted_passwords = {} if salted_passwords is None else salted_passwords
        self._nonce = nonce()
        self._first_bare = ""
        self._server_signature: bytes | None = None

    def evaluate(self, challenge: bytes) -> bytes:
        if self.is_complete:
            raise SaslRefusal("the broker goes on after its last SCRAM message")
        if not self._first_bare:
            name = self._username.replace("=", "=3D").replace(",", "=2C")
            self._first_bare = f"n={name},r={self._nonce}{self._extensions}"
            return f"{GS2_HEADER}{self._first_bare}".encode()
        if self._server_signature is None:
            return self._final(_text(challenge))
        self._verify(_text(challenge), self._server_signature)
        self.is_complete = True
        return b""

    def _final(self, message: str) -> bytes:
        first = _SERVER_FIRST.fullmatch(message)
        if first is None:
            raise SaslRefusal("the broker's first SCRAM message is not valid")
        nonce, iterations = first["nonce"], int(first["iterations"])
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise SaslRefusal("the broker's nonce does not begin with the client's")
        if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS_ASKED:
            raise SaslRefusal(
                f"the broker asks for {iterations} iterations; {MIN_ITERATIONS} to "
                f"{MAX_ITERATIONS_ASKED} are accepted"
            )
        scram = self._scram
        salted = self._salted(base64.b64decode(first["salt"]), iterations)
        without_proof = f"c={_base64(GS2_HEADER.encode())},r={nonce}"
        signed = f"{self._first_bare},{message},{without_proof}".encode()
        client_key = scram.hmac(salted, b"Client Key")
        proof = _xor(client_key, scram.hmac(scram.hash(client_key), signed))
        self._server_signature = scram.hmac(scram.hmac(salted, b"Server Key"), signed)
        return f"{without_proof},p={_base64(proof)}".encode()

    def _salted(self, salt: bytes, iterations: int) -> bytes:
        key = (self._scram, salt, iterations)
        found = self._salted_passwords.get(key)
        if found is None:
            found = self._scram.salted_password(self._password.encode(), salt, iterations)
            self._salted_passwords.clear()  # a credential that was replaced is not asked for again
            self._salted_passwords[key] = found
        return found

    def _verify(self, message: str, expected: bytes) -> None:
        final = _SERVER_FINAL.fullmatch(message)
        if final is None:
            raise SaslRefusal("the broker's final SCRAM message is not valid")
        if final["error"] is not None:
            raise SaslRefusal(f"the broker says {final['error']}")
        if not hmac.compare_digest(base64.b64decode(final["signature"]), expected):
            raise SaslRefusal(
                "the broker's signature is wrong: it does not know this user's credential"
            )


def _has_token(extensions: str) -> bool:
    pairs = dict(each.partition("=")[::2] for each in extensions.split(",") if each)
    return pairs.get("tokenauth", "").lower() == "true"


def _user(sasl_name: str) -> str:
    return sasl_name.replace("=2C", ",").replace("=3D", "=")


def _text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise SaslRefusal("a SCRAM message that is not UTF-8") from None


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))
