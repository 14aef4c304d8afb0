"""What brokers keep for SCRAM: keys from which the password cannot be had.

hashlib and hmac load OpenSSL's hash functions. Every broker holds credentials, and few have any, so
the first hash loads them.
"""

from __future__ import annotations

import base64
from enum import IntEnum
from typing import Final, NamedTuple

MIN_ITERATIONS: Final = 4_096
MAX_ITERATIONS: Final = 16_384  # of a credential that is made
SALT_BYTES: Final = 24


class ScramMechanism(IntEnum):
    """With the numbers that requests have for them."""

    UNKNOWN = 0
    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @classmethod
    def _missing_(cls, value: object) -> ScramMechanism:
        return cls.UNKNOWN

    @classmethod
    def named(cls, name: str) -> ScramMechanism:
        return cls[name.replace("-", "_")]

    @property
    def mechanism_name(self) -> str:
        return self.name.replace("_", "-")

    @property
    def hash_name(self) -> str:
        return "sha256" if self is ScramMechanism.SCRAM_SHA_256 else "sha512"

    def hash(self, data: bytes) -> bytes:
        import hashlib

        return hashlib.new(self.hash_name, data).digest()

    def hmac(self, key: bytes, data: bytes) -> bytes:
        import hmac

        return hmac.digest(key, data, self.hash_name)

    def salted_password(self, password: bytes, salt: bytes, iterations: int) -> bytes:
        """2 to 20 ms of a processor, without the interpreter's lock."""
        import hashlib

        return hashlib.pbkdf2_hmac(self.hash_name, password, salt, iterations)


SCRAM_MECHANISMS: Final = (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)


class ScramCredential(NamedTuple):
    """What a broker keeps of a password."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"ScramCredential(iterations={self.iterations}, [hidden])"

    @classmethod
    def of_salted_password(
        cls, mechanism: ScramMechanism, salted_password: bytes, salt: bytes, iterations: int
    ) -> ScramCredential:
        client_key = mechanism.hmac(salted_password, b"Client Key")
        server_key = mechanism.hmac(salted_password, b"Server Key")
        return cls(salt, mechanism.hash(client_key), server_key, iterations)

    def to_text(self) -> str:
        """As Kafka stores it."""
        return (
            f"salt={_base64(self.salt)},stored_key={_base64(self.stored_key)},"
            f"server_key={_base64(self.server_key)},iterations={self.iterations}"
        )

    @classmethod
    def parse(cls, text: str) -> ScramCredential:
        """ValueError, without the text, if it is none."""
        fields = dict(part.partition("=")[::2] for part in text.split(","))
        if fields.keys() != {"salt", "stored_key", "server_key", "iterations"}:
            raise ValueError("not a SCRAM credential")
        return cls(
            base64.b64decode(fields["salt"], validate=True),
            base64.b64decode(fields["stored_key"], validate=True),
            base64.b64decode(fields["server_key"], validate=True),
            int(fields["iterations"]),
        )


class TokenCredential(NamedTuple):
    """A delegation token, as far as a login needs it."""

    credential: ScramCredential
    owner: str
    expires_at_ms: int


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
