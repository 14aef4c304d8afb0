"""Certificates for development: a CA, one certificate for brokers, one for each client.

    ca.pem, ca.key        the CA; ca.pem is the trust store of everybody
    server.pem            key store of brokers: private key and certificate
    client.pem            key store of a client; another name if clients are named
    server.properties     a broker with an SSL listener that uses them
    client.properties     a client of that broker

All keys are of P-256, whose signatures cost a fifth of RSA's. They come from the package
`cryptography` or, without it, from the program `openssl`. Nothing that exists is overwritten, and
files with keys are for their owner alone.
"""

from __future__ import annotations

import ipaddress
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from tidelog.errors import StartupError

CA_NAME: Final = "tidelog development CA"
LOCAL_NAMES: Final = ("localhost", "127.0.0.1", "::1")
PRIVATE: Final = 0o600
PUBLIC: Final = 0o644


class CertificateError(StartupError):
    """The certificates cannot be made."""


class Pair(NamedTuple):
    """A private key and its certificate, in PEM."""

    key: str
    certificate: str


class Wanted(NamedTuple):
    common_name: str
    names: tuple[str, ...]  # host names and addresses; none of a client
    days: int

    @property
    def is_server(self) -> bool:
        return bool(self.names)


class Maker(Protocol):
    def authority(self, common_name: str, days: int) -> Pair: ...

    def signed(self, wanted: Wanted, authority: Pair) -> Pair: ...


def make_certificates(
    directory: Path,
    *,
    names: Sequence[str] = (),
    clients: Sequence[str] = (),
    days: int = 365,
    maker: Maker | None = None,
) -> list[Path]:
    """The files made. Raises CertificateError."""
    directory = directory.absolute()
    clients = clients or ["client"]
    files = _file_names(clients)
    existing = [each for each in files if (directory / each).exists()]
    if existing:
        raise CertificateError(
            f"{directory} has {', '.join(existing)} already, and nothing is overwritten; name "
            "another directory"
        )
    maker = maker or find_maker()
    authority = maker.authority(CA_NAME, days)
    hosts = tuple(dict.fromkeys((*LOCAL_NAMES, *names)))
    server = maker.signed(Wanted(names[0] if names else "localhost", hosts, days), authority)
    directory.mkdir(parents=True, exist_ok=True)
    _write(directory / "ca.pem", authority.certificate, PUBLIC)
    _write(directory / "ca.key", authority.key, PRIVATE)
    _write(directory / "server.pem", server.key + server.certificate, PRIVATE)
    for client in clients:
        pair = maker.signed(Wanted(client, (), days), authority)
        _write(directory / f"{client}.pem", pair.key + pair.certificate, PRIVATE)
    _write(directory / "server.properties", _server_properties(directory), PUBLIC)
    _write(directory / "client.properties", _client_properties(directory, clients[0]), PUBLIC)
    return [directory / each for each in files]


def _file_names(clients: Sequence[str]) -> list[str]:
    for client in clients:
        if not client or client in ("ca", "server") or Path(client).name != client:
            raise CertificateError(f"a client cannot be called {client!r}: its file has that name")
    stores = [f"{client}.pem" for client in dict.fromkeys(clients)]
    return ["ca.pem", "ca.key", "server.pem", *stores, "server.properties", "client.properties"]


def _write(path: Path, text: str, mode: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)


def _server_properties(directory: Path) -> str:
    return (
        "listeners=SSL://127.0.0.1:9093\n"
        "security.inter.broker.protocol=SSL\n"
        "ssl.keystore.type=PEM\n"
        f"ssl.keystore.location={directory / 'server.pem'}\n"
        "ssl.truststore.type=PEM\n"
        f"ssl.truststore.location={directory / 'ca.pem'}\n"
        "# none: everybody may connect. required: only who has a certificate of the CA.\n"
        "ssl.client.auth=required\n"
    )


def _client_properties(directory: Path, client: str) -> str:
    return (
        "bootstrap.servers=127.0.0.1:9093\n"
        "security.protocol=SSL\n"
        "ssl.truststore.type=PEM\n"
        f"ssl.truststore.location={directory / 'ca.pem'}\n"
        "ssl.keystore.type=PEM\n"
        f"ssl.keystore.location={directory / f'{client}.pem'}\n"
    )


def find_maker() -> Maker:
    try:
        import cryptography  # noqa: F401
    except ImportError:
        program = shutil.which("openssl")
        if program is None:
            raise CertificateError(
                "neither the package cryptography nor the program openssl is here: "
                "pip install 'tidelog[tls]'"
            ) from None
        return OpenSslProgram(program)
    return CryptographyPackage()


def _alternative_names(names: Sequence[str]) -> list[tuple[str, str]]:
    """Kind (IP or DNS) and name."""
    rows: list[tuple[str, str]] = []
    for name in names:
        try:
            rows.append(("IP", str(ipaddress.ip_address(name))))
        except ValueError:
            rows.append(("DNS", name))
    return rows


class CryptographyPackage:
    def authority(self, common_name: str, days: int) -> Pair:
        return self._made(Wanted(common_name, (), days), None)

    def signed(self, wanted: Wanted, authority: Pair) -> Pair:
        return self._made(wanted, authority)

    def _made(self, wanted: Wanted, authority: Pair | None) -> Pair:
        """Signed by itself without an authority, which makes it one."""
        from datetime import UTC, datetime, timedelta

        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, wanted.common_name)])
        issuer, issuer_key = subject, key
        issuer_public = key.public_key()
        if authority is not None:
            above = x509.load_pem_x509_certificate(authority.certificate.encode())
            loaded = serialization.load_pem_private_key(authority.key.encode(), None)
            assert isinstance(loaded, ec.EllipticCurvePrivateKey)
            issuer, issuer_key, issuer_public = above.subject, loaded, loaded.public_key()
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(minutes=5))
            .not_valid_after(now + timedelta(days=wanted.days))
            .add_extension(x509.BasicConstraints(authority is None, None), critical=True)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
            )
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_public), critical=False
            )
        )
        if authority is not None:
            purposes = [ExtendedKeyUsageOID.CLIENT_AUTH]
            if wanted.is_server:
                purposes.append(ExtendedKeyUsageOID.SERVER_AUTH)
                builder = builder.add_extension(
                    x509.SubjectAlternativeName(
                        [
                            x509.IPAddress(ipaddress.ip_address(name))
                            if kind == "IP"
                            else x509.DNSName(name)
                            for kind, name in _alternative_names(wanted.names)
                        ]
                    ),
                    critical=False,
                )
            builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        made = builder.sign(issuer_key, hashes.SHA256())
        pem = serialization.Encoding.PEM
        key_bytes = key.private_bytes(
            pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return Pair(key_bytes.decode(), made.public_bytes(pem).decode())


class OpenSslProgram:
    def __init__(self, program: str) -> None:
        self._program = program

    def authority(self, common_name: str, days: int) -> Pair:
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            self._new_key(folder / "key")
            extensions = "basicConstraints=critical,CA:TRUE\nsubjectKeyIdentifier=hash\n"
            self._request(folder, common_name, extensions)
            self._run(
                *("x509", "-req", "-in", folder / "request", "-signkey", folder / "key"),
                *("-days", str(days), "-extfile", folder / "extensions"),
                *("-out", folder / "certificate"),
            )
            return Pair((folder / "key").read_text(), (folder / "certificate").read_text())

    def signed(self, wanted: Wanted, authority: Pair) -> Pair:
        purposes = "clientAuth,serverAuth" if wanted.is_server else "clientAuth"
        extensions = f"basicConstraints=critical,CA:FALSE\nextendedKeyUsage={purposes}\n"
        if wanted.is_server:
            rows = _alternative_names(wanted.names)
            extensions += f"subjectAltName={','.join(f'{kind}:{name}' for kind, name in rows)}\n"
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            self._new_key(folder / "key")
            self._request(folder, wanted.common_name, extensions)
            _write(folder / "ca.pem", authority.certificate, PUBLIC)
            _write(folder / "ca.key", authority.key, PRIVATE)
            self._run(
                *("x509", "-req", "-in", folder / "request", "-CA", folder / "ca.pem"),
                *("-CAkey", folder / "ca.key", "-set_serial", f"0x{os.urandom(16).hex()}"),
                *("-days", str(wanted.days), "-extfile", folder / "extensions"),
                *("-out", folder / "certificate"),
            )
            return Pair((folder / "key").read_text(), (folder / "certificate").read_text())

    def _new_key(self, path: Path) -> None:
        self._run(
            *("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", path)
        )

    def _request(self, folder: Path, common_name: str, extensions: str) -> None:
        (folder / "extensions").write_text(extensions)
        escaped = common_name.replace("\\", "\\\\").replace("/", "\\/").replace("+", "\\+")
        self._run(
            *("req", "-new", "-key", folder / "key", "-subj", f"/CN={escaped}"),
            *("-out", folder / "request"),
        )

    def _run(self, *arguments: str | Path) -> None:
        done = subprocess.run(
            [self._program, *map(str, arguments)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise CertificateError(f"openssl {arguments[0]} failed: {done.stderr.strip()}")
