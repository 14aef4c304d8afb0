"""The public keys that tokens are signed with: a JSON Web Key Set (RFC 7517).

Keys of RSA (2,048 bits or more) and of elliptic curves are taken. Others, and those for encryption,
are passed over: a secret key (`oct`) in a set that anybody can read would let anybody sign.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from joserfc.errors import BadSignatureError, JoseError
from joserfc.jwk import ECKey, RSAKey
from joserfc.jws import JWSRegistry, deserialize_compact

KEYS_MAX: Final = 1_000
RSA_BITS_MIN: Final = 2_048
SIGNED_BYTES_MAX: Final = 1 << 20  # above sasl.server.max.receive.size, which bounds tokens

# What a key of a type may sign, by the curve of one that has a curve.
ALGORITHMS: Final = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "P-256": ("ES256",),
    "P-384": ("ES384",),
    "P-521": ("ES512",),
}
SIGNATURES: Final = tuple(name for names in ALGORITHMS.values() for name in names)


class _Registry(JWSRegistry):
    """Headers may have names of their own; their size is bounded by `access_token.py`."""

    max_header_length = SIGNED_BYTES_MAX
    max_payload_length = SIGNED_BYTES_MAX
    max_signature_length = SIGNED_BYTES_MAX


_REGISTRY: Final = _Registry(algorithms=SIGNATURES, strict_check_header=False)


class InvalidKeySet(ValueError):
    pass


class VerificationKey(NamedTuple):
    kid: str | None
    algorithms: tuple[str, ...]
    key: RSAKey | ECKey

    def has_signed(self, token: str) -> bool:
        try:
            deserialize_compact(token, self.key, registry=_REGISTRY)
        except (BadSignatureError, JoseError, ValueError):
            return False
        return True


class VerificationKeys:
    def __init__(self, keys: tuple[VerificationKey, ...]) -> None:
        self._keys = keys

    def __len__(self) -> int:
        return len(self._keys)

    @classmethod
    def parse(cls, text: bytes) -> VerificationKeys:
        """InvalidKeySet if it is none, or has no key that can be used."""
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            raise InvalidKeySet("it is not JSON") from None
        rows = value.get("keys") if isinstance(value, dict) else None
        if not isinstance(rows, list):
            raise InvalidKeySet('it is not an object with a list "keys"')
        if len(rows) > KEYS_MAX:
            raise InvalidKeySet(f"it has more than {KEYS_MAX} keys")
        keys = tuple(key for row in rows if (key := _key_or_none(row)) is not None)
        if not keys:
            raise InvalidKeySet(
                f"none of its {len(rows)} keys is a public key of RSA with {RSA_BITS_MIN} bits or "
                "of a curve, for signatures"
            )
        return cls(keys)

    def candidates(self, algorithm: str, kid: str | None) -> Iterator[VerificationKey]:
        """The keys that may have signed a token with this header."""
        for key in self._keys:
            if algorithm in key.algorithms and (kid is None or key.kid == kid):
                yield key


def _key_or_none(row: Any) -> VerificationKey | None:
    if not isinstance(row, dict) or row.get("use", "sig") != "sig":
        return None
    operations = row.get("key_ops")
    if operations is not None and "verify" not in operations:
        return None
    try:
        if row.get("kty") == "RSA":
            if _bits(row["n"]) < RSA_BITS_MIN:
                return None
            public: RSAKey | ECKey = RSAKey.import_key(_only(row, "kty", "n", "e"))
            algorithms = ALGORITHMS["RSA"]
        elif row.get("kty") == "EC" and row.get("crv") in ALGORITHMS:
            public = ECKey.import_key(_only(row, "kty", "crv", "x", "y"))
            algorithms = ALGORITHMS[row["crv"]]
        else:
            return None
    except (JoseError, ValueError, TypeError, KeyError):
        return None
    if row.get("alg") is not None:
        algorithms = tuple(each for each in algorithms if each == row["alg"])
    kid = row.get("kid")
    return VerificationKey(kid if isinstance(kid, str) else None, algorithms, public)


def _bits(number: str) -> int:
    raw = base64.urlsafe_b64decode(number + "=" * (-len(number) % 4))
    return int.from_bytes(raw).bit_length()


def _only(row: dict[str, Any], *names: str) -> dict[str, str | list[str]]:
    """Of a public key; a private one has no business here, and is not kept."""
    return {name: row[name] for name in names}
