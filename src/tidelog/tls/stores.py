"""Key stores and trust stores, read into PEM in memory.

    PEM      a file with certificates (and, in a key store, the private key), or the values of
             ssl.keystore.key, ssl.keystore.certificate.chain and ssl.truststore.certificates
    PKCS12   a file; needs the package `cryptography` (pip install tidelog[tls]), because OpenSSL's
             reader is not within reach of Python's ssl module
    JKS      Kafka's default. As in Java, such a file may be PKCS12 in truth, which keytool has
             written since Java 9. The old format is refused, with the command that converts it.

Nothing secret is written to a disk: OpenSSL takes keys from files only, so `in_memory` lends it one
that has no place on any.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.tls.settings import StoreSettings, TlsConfigError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates
    from cryptography.x509 import Certificate

PEM: Final = "PEM"
PKCS12: Final = "PKCS12"
JKS: Final = "JKS"
_JKS_MAGIC: Final = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
_DER_SEQUENCE: Final = b"\x30"
_STORE_BYTES_MAX: Final = 16 * 1024 * 1024
_CERTIFICATES: Final = re.compile(
    r"-----BEGIN (?:TRUSTED |X509 )?CERTIFICATE-----.+?-----END [A-Z0-9 ]*CERTIFICATE-----",
    re.DOTALL,
)
_PRIVATE_KEY: Final = re.compile(
    r"-----BEGIN ([A-Z0-9 ]*)PRIVATE KEY-----.+?-----END \1PRIVATE KEY-----", re.DOTALL
)


class KeyStore(NamedTuple):
    key: str  # in PEM
    certificates: str  # in PEM, that of the key first
    key_password: str | None

    def __repr__(self) -> str:
        return "KeyStore(...)"


Stamp = tuple[int, int, int] | None


def stamp_of(settings: StoreSettings) -> Stamp:
    """Changes when the file does; None without a file, or where it cannot be looked at."""
    if settings.location is None:
        return None
    try:
        stat = os.stat(settings.location)
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size, stat.st_ino


def read_key_store(settings: StoreSettings) -> KeyStore | None:
    """None where there is none to be read."""
    require_sound(settings)
    if settings.certificates is not None:
        assert settings.key is not None
        return _pem_key_store(settings, settings.key + "\n" + settings.certificates)
    if settings.location is None:
        return None
    kind, data = _read(settings)
    if kind == PEM:
        return _pem_key_store(settings, _pem_text(settings, data))
    return _pkcs12_key_store(settings, data)


def read_trust_store(settings: StoreSettings) -> str | None:
    """Certificates in PEM; None where there is none to be read."""
    require_sound(settings)
    if settings.certificates is not None:
        return _certificates(settings, settings.certificates)
    if settings.location is None:
        return None
    kind, data = _read(settings)
    if kind == PEM:
        return _certificates(settings, _pem_text(settings, data))
    loaded = _load_pkcs12(settings, data, settings.password)
    found = [each for each in (loaded.cert, *loaded.additional_certs) if each is not None]
    return _certificates(settings, "".join(_pem_of(each.certificate) for each in found))


def require_sound(settings: StoreSettings) -> None:
    """Kafka's rules of what may be set together, and a type that can be read. Reads no file."""
    has_inline = settings.key is not None or settings.certificates is not None
    if has_inline and settings.type.upper() != PEM:
        raise TlsConfigError(
            f"{settings.named('type')} is {settings.type}, but keys and certificates can be given "
            f"as values only with {settings.named('type')}=PEM"
        )
    if has_inline and settings.location is not None:
        raise TlsConfigError(
            f"{settings.named('location')} is set, and so are keys or certificates as values; "
            "remove one of them"
        )
    if settings.kind == "key" and (settings.key is None) != (settings.certificates is None):
        raise TlsConfigError(
            "ssl.keystore.key and ssl.keystore.certificate.chain must be set together"
        )
    if settings.type.upper() == PEM and settings.password is not None:
        hint = "; ssl.key.password is that of an encrypted key" if settings.kind == "key" else ""
        raise TlsConfigError(
            f"{settings.named('password')} cannot be set with {settings.named('type')}=PEM{hint}"
        )
    if settings.location is not None and settings.type.upper() not in (PEM, PKCS12, JKS):
        raise TlsConfigError(
            f"{settings.named('type')}={settings.type} is not known: use PEM or PKCS12"
        )


def _read(settings: StoreSettings) -> tuple[str, bytes]:
    """What the file is, and what is in it."""
    location = settings.location
    assert location is not None
    try:
        with open(location, "rb") as file:
            data = file.read(_STORE_BYTES_MAX + 1)
    except OSError as error:
        raise TlsConfigError(
            f"{settings.named('location')}: {location} cannot be read: {error.strerror}"
        ) from error
    if len(data) > _STORE_BYTES_MAX:
        raise TlsConfigError(f"{settings.named('location')}: {location} is larger than 16 MiB")
    if settings.type.upper() == PEM:
        return PEM, data
    if data.startswith(_JKS_MAGIC):
        raise TlsConfigError(
            f"{settings.named('location')}: {location} is a Java key store (JKS), which cannot be "
            "read here. Convert it: "
            f"keytool -importkeystore -srckeystore {location} -destkeystore "
            f"{Path(location).with_suffix('.p12')} -deststoretype PKCS12; then set "
            f"{settings.named('type')}=PKCS12 and {settings.named('location')} to the new file"
        )
    if b"-----BEGIN " in data[:65536]:
        raise TlsConfigError(
            f"{settings.named('location')}: {location} is in PEM form: set "
            f"{settings.named('type')}=PEM"
        )
    if not data.startswith(_DER_SEQUENCE):
        raise TlsConfigError(f"{settings.named('location')}: {location} is no PKCS12 file")
    return PKCS12, data


def _pem_text(settings: StoreSettings, data: bytes) -> str:
    if b"-----BEGIN " not in data:
        raise TlsConfigError(
            f"{settings.named('location')}: {settings.location} has nothing in PEM"
        )
    return data.decode("utf-8", "replace")


def _pem_key_store(settings: StoreSettings, text: str) -> KeyStore:
    key = _PRIVATE_KEY.search(text)
    if key is None:
        raise TlsConfigError(
            f"{_place(settings)} has no private key in PEM form; a key store holds the key and its "
            "certificates"
        )
    return KeyStore(key.group(), _certificates(settings, text), settings.key_password)


def _certificates(settings: StoreSettings, text: str) -> str:
    found = _CERTIFICATES.findall(text)
    if not found:
        raise TlsConfigError(f"{_place(settings)} has no certificates")
    return "\n".join(found) + "\n"


def _place(settings: StoreSettings) -> str:
    if settings.location is not None:
        return f"{settings.named('location')}: {settings.location}"
    return settings.named("certificate.chain" if settings.kind == "key" else "certificates")


# PKCS12


def _pkcs12_key_store(settings: StoreSettings, data: bytes) -> KeyStore:
    if settings.key_password not in (None, settings.password):
        raise TlsConfigError(
            "ssl.key.password differs from ssl.keystore.password: in a PKCS12 file the key has the "
            "password of the store"
        )
    loaded = _load_pkcs12(settings, data, settings.password)
    if loaded.key is None or loaded.cert is None:
        raise TlsConfigError(f"{_place(settings)} has no private key with its certificate")
    from cryptography.hazmat.primitives import serialization

    key = loaded.key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    others = [each.certificate for each in loaded.additional_certs]
    chain = _ordered(loaded.cert.certificate, others)
    return KeyStore(key.decode(), "".join(map(_pem_of, chain)), None)


def _ordered(first: Certificate, others: list[Certificate]) -> list[Certificate]:
    """Each followed by its issuer, as TLS sends them; a file may have them in any order."""
    chain = [first]
    while True:
        last = chain[-1]
        following = [each for each in others if each.subject == last.issuer and each not in chain]
        if not following:
            return chain
        chain.append(following[0])


def _load_pkcs12(
    settings: StoreSettings, data: bytes, password: str | None
) -> PKCS12KeyAndCertificates:
    try:
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError as error:
        raise TlsConfigError(
            f"{_place(settings)} is a PKCS12 file, and reading one needs the package cryptography: "
            "pip install 'tidelog[tls]', or convert it: openssl pkcs12 -in "
            f"{settings.location} -out store.pem -noenc, and set {settings.named('type')}=PEM"
        ) from error
    try:
        return pkcs12.load_pkcs12(data, None if password is None else password.encode())
    except ValueError as error:
        raise TlsConfigError(
            f"{_place(settings)} cannot be read: {settings.named('password')} is wrong or not set, "
            "or the file is damaged"
        ) from error


def _pem_of(certificate: Certificate) -> str:
    from cryptography.hazmat.primitives import serialization

    return certificate.public_bytes(serialization.Encoding.PEM).decode()


# Memory


@contextmanager
def in_memory(text: str) -> Iterator[str]:
    """The path of a file with this text, for as long as the block lasts.

    Where the system has no files in memory it is one that nobody else can read.
    """
    if hasattr(os, "memfd_create") and os.path.isdir("/proc/self/fd"):
        descriptor = os.memfd_create("tidelog-tls")
        path = f"/proc/self/fd/{descriptor}"
    else:
        import tempfile

        descriptor, path = tempfile.mkstemp(prefix="tidelog-tls-")  # mode 0600
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
            file.flush()
            yield path
    finally:
        if not path.startswith("/proc/"):
            os.unlink(path)
