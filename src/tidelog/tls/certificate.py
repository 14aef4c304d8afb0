"""What an X.509 certificate says, read from its DER bytes.

    Certificate ::= SEQUENCE { tbsCertificate, signatureAlgorithm, signature }
    tbsCertificate ::= SEQUENCE { [0] version, serialNumber, signature, issuer, validity, subject,
                                  subjectPublicKeyInfo, [1] .., [2] .., [3] extensions }

The subject is written as Java writes it (X500Principal.getName, RFC 2253), because access lists of
Kafka name principals so: last part first, `CN`, `OU` and the other short names of the RFC, an OID
and the value in hexadecimal for all others.

OpenSSL has verified what peers send before it comes here. What cannot be read is a ValueError.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final, NamedTuple

_SEQUENCE: Final = 0x30
_EXTENSIONS: Final = 0xA3
_UTC_TIME: Final = 0x17
_OCTET_STRING: Final = 0x04
_SAN_OID: Final = b"\x55\x1d\x11"

# The attribute types that RFC 2253 has short names for, by their OID.
_SHORT_NAMES: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
# UTF8String, PrintableString, TeletexString, IA5String, GeneralString, BMPString. Java reads all of
# them as UTF-8, and a principal must have the name that it has there.
_TEXT_TAGS: Final = frozenset((0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E))
_ESCAPED: Final = frozenset(',=+<>#;"\\')


class Certificate(NamedTuple):
    subject: str  # as RFC 2253 and Java write it
    alternative_names: frozenset[tuple[int, bytes]]  # tag of the kind, and the name
    not_before: datetime
    not_after: datetime

    def is_valid_at(self, moment: datetime) -> bool:
        return self.not_before <= moment <= self.not_after


class _Element(NamedTuple):
    tag: int
    content: bytes
    whole: bytes


def first_certificate(pem: str) -> Certificate:
    """The first one of a text in PEM: in a key store, the one that the key belongs to."""
    begin = pem.find("-----BEGIN CERTIFICATE-----")
    end = pem.find("-----END CERTIFICATE-----", begin)
    if begin < 0 or end < 0:
        raise ValueError("no certificate in PEM form")
    return read_certificate(
        ssl.PEM_cert_to_DER_cert(pem[begin : end + len("-----END CERTIFICATE-----")])
    )


def read_certificate(der: bytes) -> Certificate:
    (certificate,) = _elements(der)
    signed = next(_elements(certificate.content))
    fields = list(_elements(signed.content))
    if fields[0].tag == 0xA0:  # the version, which the first version leaves out
        del fields[0]
    _, _, _, validity, subject = fields[:5]
    not_before, not_after = map(_moment, _elements(validity.content))
    return Certificate(
        rfc2253(subject.content), _alternative_names(fields[5:]), not_before, not_after
    )


def subject_of(der: bytes) -> str:
    return read_certificate(der).subject


def rfc2253(name: bytes) -> str:
    """Of the content of a Name: a sequence of sets of attributes."""
    parts = [
        "+".join(_attribute(each) for each in _elements(relative_name.content))
        for relative_name in _elements(name)
    ]
    return ",".join(reversed(parts))


def _attribute(attribute: _Element) -> str:
    kind, value = _elements(attribute.content)
    oid = _dotted(kind.content)
    short = _SHORT_NAMES.get(oid)
    if short is None or value.tag not in _TEXT_TAGS:
        return f"{short or oid}=#{value.whole.hex()}"
    return f"{short}={_escaped(value.content.decode('utf-8', 'replace'))}"


def _escaped(text: str) -> str:
    lead = len(text) - len(text.lstrip(" \r"))
    trail = len(text.rstrip(" \r"))
    return "".join(
        "\\00" if char == "\0" else f"\\{char}" if char in _ESCAPED or is_edge else char
        for char, is_edge in ((char, not lead <= at < trail) for at, char in enumerate(text))
    )


def _alternative_names(fields: list[_Element]) -> frozenset[tuple[int, bytes]]:
    for field in fields:
        if field.tag != _EXTENSIONS:
            continue
        (extensions,) = _elements(field.content)
        for extension in _elements(extensions.content):
            oid, *_, value = _elements(extension.content)
            if oid.content == _SAN_OID and value.tag == _OCTET_STRING:
                (names,) = _elements(value.content)
                return frozenset((name.tag, name.content) for name in _elements(names.content))
    return frozenset()


def _moment(element: _Element) -> datetime:
    digits = element.content.decode("ascii").removesuffix("Z")
    if element.tag == _UTC_TIME:
        digits = ("19" if digits[0] >= "5" else "20") + digits
    return datetime.strptime(digits, "%Y%m%d%H%M%S").replace(tzinfo=UTC)


def _dotted(oid: bytes) -> str:
    numbers: list[int] = []
    number = 0
    for byte in oid:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _elements(data: bytes) -> Iterator[_Element]:
    position = 0
    while position < len(data):
        begin = position
        tag, size = data[position], _byte(data, position + 1)
        position += 2
        if size & 0x80:
            width = size & 0x7F
            size = int.from_bytes(data[position : position + width], "big")
            position += width
        if position + size > len(data):
            raise ValueError("a certificate that ends too early")
        yield _Element(tag, data[position : position + size], data[begin : position + size])
        position += size


def _byte(data: bytes, position: int) -> int:
    if position >= len(data):
        raise ValueError("a certificate that ends too early")
    return data[position]
