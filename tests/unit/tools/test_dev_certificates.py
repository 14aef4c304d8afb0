"""`tidelog certs`: what it makes works, whoever makes it, and nothing is overwritten."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from tidelog.config.broker import BrokerConfig
from tidelog.config.client import AdminConfig
from tidelog.config.server_properties import load_broker_config
from tidelog.tls.contexts import client_context, require_mutual_trust, server_contexts
from tidelog.tls.settings import TlsSettings
from tidelog.tools.cli.main import main
from tidelog.tools.dev_certificates import (
    CertificateError,
    CryptographyPackage,
    Maker,
    OpenSslProgram,
    make_certificates,
)


def makers() -> list[Maker]:
    program = shutil.which("openssl")
    return [CryptographyPackage(), *([OpenSslProgram(program)] if program else [])]


def properties(path: Path) -> dict[str, str]:
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


@pytest.mark.parametrize("maker", makers(), ids=lambda maker: type(maker).__name__)
def test_brokers_and_clients_trust_what_is_made(maker: Maker, tmp_path: Path) -> None:
    made = make_certificates(
        tmp_path / "certs",
        names=["broker.example", "10.0.0.1"],
        clients=["alice", "bob"],
        maker=maker,
    )
    assert {path.name for path in made} >= {"ca.pem", "server.pem", "alice.pem", "bob.pem"}
    config = load_broker_config(tmp_path / "certs" / "server.properties", [])
    assert isinstance(config, BrokerConfig)
    settings = TlsSettings.of(config.tls_values(config.listeners[0]))
    contexts = server_contexts(settings, among_brokers=True)
    require_mutual_trust(contexts, contexts)
    assert contexts.certificate.subject == "CN=broker.example"
    assert (0x82, b"localhost") in contexts.certificate.alternative_names
    assert (0x87, bytes([10, 0, 0, 1])) in contexts.certificate.alternative_names
    client = AdminConfig(properties(tmp_path / "certs" / "client.properties"))
    client_context(TlsSettings.of(client.values))


@pytest.mark.parametrize("maker", makers(), ids=lambda maker: type(maker).__name__)
def test_keys_are_for_their_owner_alone(maker: Maker, tmp_path: Path) -> None:
    for path in make_certificates(tmp_path, maker=maker):
        has_key = "PRIVATE KEY" in path.read_text()
        assert path.stat().st_mode & 0o777 == (0o600 if has_key else 0o644), path


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    make_certificates(tmp_path, maker=CryptographyPackage())
    before = (tmp_path / "ca.pem").read_bytes()
    with pytest.raises(CertificateError, match=r"has ca\.pem, .* nothing is overwritten"):
        make_certificates(tmp_path, maker=CryptographyPackage())
    assert (tmp_path / "ca.pem").read_bytes() == before


@pytest.mark.parametrize("name", ["server", "ca", "a/b", ""])
def test_a_client_cannot_have_the_name_of_another_file(name: str, tmp_path: Path) -> None:
    with pytest.raises(CertificateError, match="cannot be called"):
        make_certificates(tmp_path / "certs", clients=[name], maker=CryptographyPackage())


def test_the_command_prints_what_it_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["certs", str(tmp_path), "--client", "alice", "--days", "7"]) == 0
    assert str(tmp_path / "alice.pem") in capsys.readouterr().out.splitlines()
    assert main(["certs", str(tmp_path)]) == 1
    assert "nothing is overwritten" in capsys.readouterr().err


def test_without_means_to_make_them_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(CertificateError, match=r"pip install 'tidelog\[tls\]'"):
        make_certificates(tmp_path / "certs")
