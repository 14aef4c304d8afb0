"""Key stores and trust stores: what is read, what is refused, and what never reaches a disk."""

from __future__ import annotations

import builtins
import os
import shutil
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.certificates import PASSWORD, Authority
from tidelog.tls.contexts import client_context, server_contexts
from tidelog.tls.settings import TlsConfigError, TlsSettings
from tidelog.tls.stores import in_memory


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def settings_of(**keys: str) -> TlsSettings:
    """From Kafka's keys without their dots."""
    values = {name.replace("__", "."): value for name, value in keys.items()}
    return TlsSettings.of(values, "listener SSL")


def test_a_key_store_in_pem(authority: Authority) -> None:
    contexts = server_contexts(authority.settings(authority.issue("broker")))
    assert contexts.certificate.subject == "CN=broker"


def test_an_encrypted_key_in_pem_needs_its_password(authority: Authority) -> None:
    path = authority.issue("broker", password=PASSWORD)
    keys = {"ssl__keystore__type": "PEM", "ssl__keystore__location": str(path)}
    server_contexts(settings_of(**keys, ssl__key__password=PASSWORD))
    with pytest.raises(TlsConfigError, match=r"encrypted: set ssl\.key\.password"):
        server_contexts(settings_of(**keys))
    with pytest.raises(TlsConfigError, match=r"ssl\.key\.password is wrong") as raised:
        server_contexts(settings_of(**keys, ssl__key__password="wrong-secret"))
    assert "wrong-secret" not in str(raised.value)


def test_keys_and_certificates_may_be_values(authority: Authority, tmp_path: Path) -> None:
    text = authority.issue("broker").read_text()
    key, certificate = text.split("-----BEGIN CERTIFICATE-----")
    keys = {
        "ssl__keystore__type": "PEM",
        "ssl__keystore__key": key.replace("\n", "\\n"),
        "ssl__keystore__certificate__chain": "-----BEGIN CERTIFICATE-----" + certificate,
        "ssl__truststore__type": "PEM",
        "ssl__truststore__certificates": authority.path.read_text(),
    }
    settings = settings_of(**keys)
    assert server_contexts(settings).certificate.subject == "CN=broker"
    assert key.split("\n")[1] not in repr(settings)


def test_secrets_lie_in_memory_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with in_memory("secret") as path:
        assert Path(path).read_text() == "secret"
        assert os.listdir(tmp_path) == []
    monkeypatch.delattr(os, "memfd_create")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with in_memory("secret") as path:
        assert Path(path).read_text() == "secret"
        assert os.stat(path).st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == []


def test_stores_in_pkcs12(authority: Authority) -> None:
    keys = {
        "ssl__keystore__type": "PKCS12",
        "ssl__keystore__location": str(authority.issue_pkcs12("broker")),
        "ssl__keystore__password": PASSWORD,
        "ssl__truststore__type": "PKCS12",
        "ssl__truststore__location": str(authority.pkcs12_trust_store()),
        "ssl__truststore__password": PASSWORD,
    }
    contexts = server_contexts(settings_of(**keys))
    assert contexts.certificate.subject == "CN=broker"
    assert contexts.has_trust_store
    with pytest.raises(TlsConfigError, match=r"ssl\.keystore\.password is wrong or not set"):
        server_contexts(settings_of(**{**keys, "ssl__keystore__password": "no"}))
    as_jks = {**keys, "ssl__keystore__type": "JKS", "ssl__truststore__type": "JKS"}
    assert server_contexts(settings_of(**as_jks)).certificate.subject == "CN=broker"


def test_pkcs12_without_its_package_says_what_to_install(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = authority.issue_pkcs12("broker")
    real_import = builtins.__import__

    def no_cryptography(name: str, *rest: Any, **others: Any) -> Any:
        if name.startswith("cryptography"):
            raise ImportError(name)
        return real_import(name, *rest, **others)

    monkeypatch.setattr(builtins, "__import__", no_cryptography)
    with pytest.raises(TlsConfigError, match=r"pip install 'tidelog\[tls\]'"):
        server_contexts(
            settings_of(ssl__keystore__type="PKCS12", ssl__keystore__location=str(path))
        )


@pytest.mark.skipif(shutil.which("keytool") is None, reason="needs keytool, which comes with Java")
def test_a_java_key_store_is_refused_with_the_command_that_converts_it(tmp_path: Path) -> None:
    store = tmp_path / "broker.jks"
    subprocess.run(
        [
            *("keytool", "-genkeypair", "-alias", "broker", "-keyalg", "EC", "-dname", "CN=broker"),
            *("-keystore", str(store), "-storetype", "JKS"),
            *("-storepass", "hushhush", "-keypass", "hushhush"),
        ],
        check=True,
        capture_output=True,
    )
    with pytest.raises(TlsConfigError) as raised:
        server_contexts(settings_of(ssl__keystore__location=str(store)))
    command = str(raised.value).partition("Convert it: ")[2].partition(";")[0].split()
    assert command[0] == "keytool"
    subprocess.run(
        [*command, "-srcstorepass", "hushhush", "-deststorepass", "hushhush"],
        check=True,
        capture_output=True,
    )
    contexts = server_contexts(
        settings_of(
            ssl__keystore__type="PKCS12",
            ssl__keystore__location=str(tmp_path / "broker.p12"),
            ssl__keystore__password="hushhush",
        )
    )
    assert contexts.certificate.subject == "CN=broker"


def test_stores_that_cannot_be_used_are_refused_with_the_reason(
    authority: Authority, tmp_path: Path
) -> None:
    broker = authority.issue("broker")
    (tmp_path / "nothing.pem").write_text("nothing")
    other = authority.issue("other").read_text()
    mixed = (
        broker.read_text().split("-----BEGIN CERTIFICATE-----")[0]
        + other[other.index("-----BEGIN CERT") :]
    )
    (tmp_path / "mixed.pem").write_text(mixed)
    pem = {"ssl__keystore__type": "PEM"}
    for keys, complaint in (
        ({}, "needs a key and a certificate"),
        ({**pem, "ssl__keystore__location": "/no/such.pem"}, "cannot be read: No such file"),
        ({**pem, "ssl__keystore__location": str(tmp_path / "nothing.pem")}, "nothing in PEM"),
        ({**pem, "ssl__keystore__location": str(authority.path)}, "has no private key"),
        ({**pem, "ssl__keystore__location": str(tmp_path / "mixed.pem")}, "does not belong"),
        ({"ssl__keystore__location": str(broker)}, r"set ssl\.keystore\.type=PEM"),
        ({"ssl__keystore__location": str(tmp_path / "nothing.pem")}, "no PKCS12 file"),
        (
            {"ssl__keystore__type": "BCFKS", "ssl__keystore__location": str(broker)},
            "use PEM or PKCS12",
        ),
        (
            {**pem, "ssl__keystore__location": str(broker), "ssl__keystore__password": "hush"},
            r"ssl\.keystore\.password cannot be set",
        ),
        ({**pem, "ssl__keystore__key": "x"}, "must be set together"),
        (
            {"ssl__keystore__key": "x", "ssl__keystore__certificate__chain": "x"},
            r"only with ssl\.keystore\.type=PEM",
        ),
        (
            {**pem, "ssl__keystore__location": str(broker), "ssl__client__auth": "required"},
            r"set ssl\.truststore\.type",
        ),
        (
            {**pem, "ssl__keystore__location": str(broker), "ssl__enabled__protocols": "TLSv1.1"},
            "TLSv1.1 is not spoken here",
        ),
        (
            {**pem, "ssl__keystore__location": str(broker), "ssl__cipher__suites": "RC4"},
            "names are those of Java",
        ),
        (
            {
                **pem,
                "ssl__keystore__location": str(broker),
                "ssl__cipher__suites": "TLS_AES_128_GCM_SHA256",
            },
            "name all of",
        ),
        (
            {
                **pem,
                "ssl__keystore__location": str(broker),
                "ssl__endpoint__identification__algorithm": "LDAPS",
            },
            "must be https, or empty",
        ),
    ):
        with pytest.raises(TlsConfigError, match=f"listener SSL: .*{complaint}"):
            server_contexts(settings_of(**keys))


def test_cipher_suites_choose_the_versions_too(authority: Authority) -> None:
    store = authority.issue("broker")
    older = server_contexts(
        authority.settings(store, cipher_suites=("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",))
    )
    assert older.server.maximum_version is ssl.TLSVersion.TLSv1_2
    names = [each["name"] for each in older.server.get_ciphers() if each["protocol"] == "TLSv1.2"]
    assert names == ["ECDHE-ECDSA-AES256-GCM-SHA384"]
    newer = server_contexts(
        authority.settings(
            store,
            cipher_suites=(
                "TLS_AES_256_GCM_SHA384",
                "TLS_CHACHA20_POLY1305_SHA256",
                "TLS_AES_128_GCM_SHA256",
            ),
        )
    )
    assert newer.server.minimum_version is ssl.TLSVersion.TLSv1_3


def test_a_client_without_a_trust_store_trusts_what_the_system_trusts() -> None:
    context = client_context(TlsSettings.of({"ssl.endpoint.identification.algorithm": "https"}))
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
