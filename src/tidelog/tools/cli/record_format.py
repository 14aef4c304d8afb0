r"""How `tidelog consume` prints a record.

A format is text with tokens, as kcat has them, and backslash escapes:

    %t topic       %k key     %K length of the key      %T timestamp in milliseconds
    %p partition   %s value   %S length of the value    %i timestamp as ISO 8601, in UTC
    %o offset      %h headers as name=value,...         %R length of the value, 4 bytes big-endian
    %% percent     \n \t \r \\ \0 \xNN

The length of an absent key or value is -1. On a terminal, control characters of records are shown
as escapes, so that no record can move the cursor or change the title; anywhere else the bytes go
out as they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tidelog.record.kernel import ConsumerRecord

Piece = Callable[["ConsumerRecord"], bytes]
RecordFormat = Callable[["ConsumerRecord"], bytes]

ESCAPES: Final = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
CONTROLS: Final = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]")
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class BadFormat(ValueError):
    """A token or an escape that there is not."""


def compile_format(text: str, *, null: bytes = b"", escape: bool = False) -> RecordFormat:
    """`null` stands for an absent key or value. Raises BadFormat."""
    pieces: list[Piece] = []
    position = 0
    while position < len(text):
        char, rest = text[position], text[position + 1 : position + 2]
        if char == "%":
            pieces.append(_token(rest, null, escape))
            position += 2
        elif char == "\\":
            literal, used = _escape(text, position)
            pieces.append(_constant(literal))
            position += used
        else:
            end = min(
                (found for found in (text.find(c, position) for c in "%\\") if found >= 0),
                default=len(text),
            )
            pieces.append(_constant(text[position:end].encode()))
            position = end
    return lambda record: b"".join([piece(record) for piece in pieces])


def _constant(literal: bytes) -> Piece:
    return lambda record: literal


def _escape(text: str, position: int) -> tuple[bytes, int]:
    """What the escape at `position` stands for, and how many characters it has."""
    char = text[position + 1 : position + 2]
    if char in ESCAPES and char:
        return ESCAPES[char], 2
    digits = text[position + 2 : position + 4]
    if char == "x" and re.fullmatch(r"[0-9a-fA-F]{2}", digits):
        return bytes((int(digits, 16),)), 4
    raise BadFormat(f"\\{char} is no escape; there are \\n \\t \\r \\0 \\\\ and \\xNN")


def _token(name: str, null: bytes, escape: bool) -> Piece:
    def shown(value: bytes | None) -> bytes:
        found = null if value is None else value
        return visible(found) if escape else found

    tokens: dict[str, Piece] = {
        "t": lambda record: shown(record.topic.encode()),
        "p": lambda record: b"%d" % record.partition,
        "o": lambda record: b"%d" % record.offset,
        "k": lambda record: shown(record.key),
        "s": lambda record: shown(record.value),
        "K": lambda record: b"%d" % (-1 if record.key is None else len(record.key)),
        "S": lambda record: b"%d" % (-1 if record.value is None else len(record.value)),
        "R": lambda record: (-1 if record.value is None else len(record.value)).to_bytes(
            4, "big", signed=True
        ),
        "T": lambda record: b"%d" % record.timestamp,
        "i": lambda record: iso_time(record.timestamp).encode(),
        "h": lambda record: b",".join(
            shown(name.encode()) + b"=" + shown(value) for name, value in record.headers
        ),
        "%": _constant(b"%"),
    }
    if name not in tokens:
        raise BadFormat(f"%{name} is no token; there are {' '.join(f'%{each}' for each in tokens)}")
    return tokens[name]


def visible(value: bytes) -> bytes:
    """Control characters, of one byte or of two in UTF-8, as escapes; tabs and line feeds stay."""
    return CONTROLS.sub(lambda found: b"".join(b"\\x%02x" % byte for byte in found[0]), value)


def iso_time(timestamp_ms: int) -> str:
    if timestamp_ms < 0:
        return "-"
    try:
        moment = EPOCH + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return str(timestamp_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def record_as_json(record: ConsumerRecord) -> dict[str, object]:
    """As `-o jsonl` prints it and `tidelog produce --json` reads it."""
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": record.key,
        "value": record.value,
        "headers": [{"key": name, "value": value} for name, value in record.headers],
    }
