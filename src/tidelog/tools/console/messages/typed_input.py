"""A record as somebody types it into a form: text, JSON, numbers, hex and so on, to bytes."""

from __future__ import annotations

import base64
import binascii
import struct
import uuid
from collections.abc import Callable, Mapping
from typing import Final

from tidelog.tools.cli.record_input import InputRecord
from tidelog.tools.console.messages.documents import parse

HEADERS_MAX: Final = 500
INT64_MAX: Final = (1 << 63) - 1


class BadInput(ValueError):
    """Names the field."""


def encoders() -> list[tuple[str, str]]:
    """Choices for a form."""
    return [(name, label) for name, (label, _) in _ENCODERS.items()]


def typed_record(values: Mapping[str, str]) -> InputRecord:
    """Of the fields partition, timestamp, key, key-form, value, value-form and headers, which has
    a header NAME: TEXT on each line; NAME alone has a null. Raises BadInput."""
    return InputRecord(
        _encoded("value", values.get("value-form", "text"), values.get("value", "")),
        _encoded("key", values.get("key-form", "null"), values.get("key", "")),
        tuple(_headers(values.get("headers", ""))),
        _number("partition", values.get("partition", ""), (1 << 31) - 1),
        _number("timestamp", values.get("timestamp", ""), INT64_MAX),
    )


def _encoded(field: str, form: str, text: str) -> bytes | None:
    if form not in _ENCODERS:
        raise BadInput(f"{field}: {form[:40]} is no form of input")
    try:
        return _ENCODERS[form][1](text)
    except (ValueError, struct.error, OverflowError) as problem:
        raise BadInput(f"{field}: is not {_ENCODERS[form][0]}: {problem}") from None


def _headers(text: str) -> list[tuple[str, bytes | None]]:
    found: list[tuple[str, bytes | None]] = []
    for line in text.splitlines():
        if not line.strip():
            continue
        name, colon, value = line.partition(":")
        if not name.strip():
            raise BadInput("headers: a line is NAME: TEXT")
        found.append((name.strip(), value.strip().encode() if colon else None))
        if len(found) > HEADERS_MAX:
            raise BadInput(f"headers: there are more than {HEADERS_MAX}")
    return found


def _number(field: str, text: str, most: int) -> int | None:
    text = text.strip()
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= most):
        raise BadInput(f"{field}: {text[:40]} is no number from 0 to {most}")
    return int(text)


def _null(text: str) -> None:
    if text:
        raise ValueError("there is text; choose what it is")


def _json(text: str) -> bytes:
    parse(text)
    return text.encode()


def _base64(text: str) -> bytes:
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except binascii.Error as problem:
        raise ValueError(str(problem)) from None


_ENCODERS: Final[dict[str, tuple[str, Callable[[str], bytes | None]]]] = {
    "text": ("text", lambda text: text.replace("\r\n", "\n").encode()),
    "json": ("JSON", _json),
    "null": ("null", _null),
    "int32": ("an integer of 4 bytes", lambda text: struct.pack(">i", int(text))),
    "int64": ("an integer of 8 bytes", lambda text: struct.pack(">q", int(text))),
    "float64": ("a float of 8 bytes", lambda text: struct.pack(">d", float(text))),
    "uuid": ("a UUID", lambda text: uuid.UUID(text.strip()).bytes),
    "hex": ("hex", lambda text: bytes.fromhex(text)),
    "base64": ("base64", _base64),
}
