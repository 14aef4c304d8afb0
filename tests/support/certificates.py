"""Certificates of a CA of the test's own, as files: sound ones, and ones with a fault."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import NameOID

from tidelog.tls.settings import ClientAuth, StoreSettings, TlsSettings

LOCAL = ("localhost", "127.0.0.1")
DAY = timedelta(days=1)
PASSWORD = "hush"


class Authority:
    """A CA. Its certificate is `ca.pem` in the directory."""

    def __init__(self, directory: Path, name: str = "test CA") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        now = datetime.now(UTC)
        self.certificate = (
            x509.CertificateBuilder()
            .subject_name(self.name)
            .issuer_name(self.name)
            .public_key(self.key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 30 * DAY)
            .not_valid_after(now + 30 * DAY)
            .add_extension(x509.BasicConstraints(True, None), critical=True)
            .sign(self.key, hashes.SHA256())
        )
        self.path = directory / "ca.pem"
        self.path.write_bytes(self.certificate.public_bytes(Encoding.PEM))

    def issue(
        self,
        name: str,
        *,
        hosts: tuple[str, ...] = LOCAL,
        subject: x509.Name | None = None,
        valid_from: timedelta = -DAY,
        valid_to: timedelta = DAY,
        kind: str = "ec",
        password: str | None = None,
        file: str | None = None,
    ) -> Path:
        """A key store in PEM."""
        key, certificate = self._signed(name, hosts, subject, valid_from, valid_to, kind)
        encryption: KeySerializationEncryption = NoEncryption()
        if password is not None:
            encryption = BestAvailableEncryption(password.encode())
        path = self.directory / (file or f"{name}.pem")
        path.write_bytes(
            key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)
            + certificate.public_bytes(Encoding.PEM)
        )
        return path

    def issue_pkcs12(self, name: str, *, hosts: tuple[str, ...] = LOCAL) -> Path:
        """A key store with the CA in it."""
        key, certificate = self._signed(name, hosts, None, -DAY, DAY, "ec")
        path = self.directory / f"{name}.p12"
        path.write_bytes(
            pkcs12.serialize_key_and_certificates(
                name.encode(),
                key,
                certificate,
                [self.certificate],
                BestAvailableEncryption(PASSWORD.encode()),
            )
        )
        return path

    def pkcs12_trust_store(self) -> Path:
        path = self.directory / "trust.p12"
        path.write_bytes(
            pkcs12.serialize_key_and_certificates(
                None, None, None, [self.certificate], BestAvailableEncryption(PASSWORD.encode())
            )
        )
        return path

    def _signed(
        self,
        name: str,
        hosts: tuple[str, ...],
        subject: x509.Name | None,
        valid_from: timedelta,
        valid_to: timedelta,
        kind: str,
    ) -> tuple[Any, x509.Certificate]:
        key: Any
        if kind == "rsa":
            key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        else:
            key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject or x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
            .issuer_name(self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + valid_from)
            .not_valid_after(now + valid_to)
        )
        if hosts:
            builder = builder.add_extension(
                x509.SubjectAlternativeName(list(map(_general_name, hosts))), critical=False
            )
        return key, builder.sign(self.key, hashes.SHA256())

    def broker_keys(self, client_auth: str = "none", **stores: Path) -> dict[str, str]:
        """The ssl.* keys of a broker."""
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(stores.get("key") or self.issue("broker")),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(stores.get("trust") or self.path),
            "ssl.client.auth": client_auth,
        }

    def client_keys(self, key: Path | None = None) -> dict[str, str]:
        """The keys of a client of Kafka; it has a certificate if `key` is its store."""
        keys = {
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.path),
        }
        if key is not None:
            keys |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(key)}
        return keys

    def settings(self, key: Path | None = None, **fields: Any) -> TlsSettings:
        """Of a broker with `key`, or of a client."""
        return TlsSettings(
            key_store=StoreSettings("key", "PEM", None if key is None else str(key)),
            trust_store=StoreSettings("trust", "PEM", str(self.path)),
            **fields,
        )


REQUIRED = {"client_auth": ClientAuth.REQUIRED, "principal_mapping_rules": "DEFAULT"}


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
