"""What a certificate says, compared with what Java says of the same bytes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.support.certificates import Authority
from tidelog.tls.certificate import first_certificate, read_certificate, rfc2253

# Subjects (a Name's content in DER) and what Java 17 says X500Principal.getName() is.
JAVA_NAMES = [
    (
        "310b3009060355040613024445310f300d06035504080c0642617965726e3111300f06035504070c"
        "084dc3bc6e6368656e31173015060355040a0c0e412c2042202620436f2e20227822311430120603"
        "55040b0c0b783d792b7a3c313e233b5c310c300a06035504030c03737663",
        'CN=svc,OU=x\\=y\\+z\\<1\\>\\#\\;\\\\,O=A\\, B & Co. \\"x\\",L=M\xfcnchen,ST=Bayern,C=DE',
    ),
    (
        "3119301706035504030c10206c65616420616e6420747261696c20",
        "CN=\\ lead and trail\\ ",
    ),
    (
        "310b300906035504030c022020",
        "CN=\\ \\ ",
    ),
    (
        "3114301206092a864886f70d01090116056140622e63310d300b06035504030c046d61696c310b30"
        "09060355040513023132",
        "2.5.4.5=#13023132,CN=mail,1.2.840.113549.1.9.1=#16056140622e63",
    ),
    (
        "31133011060a0992268993f22c6401191603636f6d31173015060a0992268993f22c640119160765"
        "78616d706c6531133011060a0992268993f22c6401010c03626f62310f300d06035504090c063120"
        "526f6164",
        "STREET=1 Road,UID=bob,DC=example,DC=com",
    ),
    (
        "310a3008060355040a0c014f31183008060355040b0c0175300c06035504030c056d756c7469",
        "OU=u+CN=multi,O=O",
    ),
    (
        "3113301106035504031e0a0062006d0070002000fc",
        "CN=\\00b\\00m\\00p\\00 \\00\ufffd",
    ),
    (
        "311d301b06035504031c14000000750000006e0000006900000020000000fc",
        "CN=#1c14000000750000006e0000006900000020000000fc",
    ),
    (
        "3114301206035504030c0b2368617368206669727374310a3008060355042a0c0147310a30080603"
        "55040c0c0154",
        "2.5.4.12=#0c0154,2.5.4.42=#0c0147,CN=\\#hash first",
    ),
    (
        "3119301706035504030c10746162096e65770a6c696e650d63720d",
        "CN=tab\tnew\nline\rcr\\\r",
    ),
    (
        "3114301206035504030c0be697a5e69cac20f09f9880",
        "CN=\u65e5\u672c \U0001f600",
    ),
    (
        "3113301106035504030c0a6e756c00696e73696465",
        "CN=nul\\00inside",
    ),
]


@pytest.mark.parametrize(("name", "text"), JAVA_NAMES)
def test_a_subject_is_written_as_java_writes_it(name: str, text: str) -> None:
    assert rfc2253(bytes.fromhex(name)) == text


def test_a_certificate_tells_its_names_and_when_it_is_valid(tmp_path: Path) -> None:
    store = Authority(tmp_path).issue("broker", hosts=("a.example", "10.0.0.1"))
    certificate = first_certificate(store.read_text())
    assert certificate.subject == "CN=broker"
    assert certificate.alternative_names == {(0x82, b"a.example"), (0x87, bytes([10, 0, 0, 1]))}
    now = datetime.now(UTC)
    assert certificate.is_valid_at(now)
    assert not certificate.is_valid_at(now + timedelta(days=2))
    assert not certificate.is_valid_at(now - timedelta(days=2))


def test_what_is_no_certificate_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="no certificate in PEM form"):
        first_certificate("nothing")
    for broken in (b"\x30", b"\x30\x05abc", b"\x30\x82\xff\xff"):
        with pytest.raises(ValueError, match="ends too early"):
            read_certificate(broken)
