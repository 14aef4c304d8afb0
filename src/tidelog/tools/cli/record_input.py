r"""Where `tidelog produce` takes its records from: lines, JSON lines or whole files.

A JSON line is an object as `tidelog consume -o jsonl` prints it. Only `value` means something by
itself; `key`, `headers`, `partition` and `timestamp` may be left out, and `topic` and `offset` are
ignored. Text stands for its UTF-8 bytes, {"base64": "..."} for any bytes, null for none, and any
other JSON for itself, written compactly. Headers are a list of {"key": ..., "value": ...} or an
object.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Final, NamedTuple

from tidelog.tools.cli.frame import CommandFailed
from tidelog.tools.cli.output import bytes_from_json

KNOWN_FIELDS: Final = frozenset(
    ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
)
CHUNK_BYTES: Final = 1 << 20
LINE_BYTES_MAX: Final = 1 << 30

Headers = tuple[tuple[str, bytes | None], ...]


class InputRecord(NamedTuple):
    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    partition: int | None = None
    timestamp: int | None = None


def split_records(stream: IO[bytes], delimiter: bytes) -> Iterator[bytes]:
    """Pieces between delimiters; the last one needs none behind it."""
    rest = b""
    read = getattr(stream, "read1", stream.read)
    while chunk := read(CHUNK_BYTES):
        *whole, rest = (rest + chunk).split(delimiter)
        yield from whole
        if len(rest) > LINE_BYTES_MAX:
            raise CommandFailed(
                f"a record of more than {LINE_BYTES_MAX:,} bytes; no broker takes it"
            )
    if rest:
        yield rest


class LineParser:
    """Records of pieces of text; `null` is the text of an absent key or value."""

    def __init__(self, key_delimiter: bytes | None, null: bytes | None) -> None:
        self._key_delimiter = key_delimiter
        self._null = null

    def parse(self, pieces: Iterable[bytes]) -> Iterator[InputRecord]:
        for piece in pieces:
            if self._key_delimiter is None:
                yield InputRecord(self._value(piece))
                continue
            key, found, value = piece.partition(self._key_delimiter)
            # As in kcat, a line without the delimiter has no key.
            yield (
                InputRecord(self._value(value), self._value(key))
                if found
                else InputRecord(self._value(piece))
            )

    def _value(self, text: bytes) -> bytes | None:
        return None if self._null is not None and text == self._null else text


def parse_json_lines(pieces: Iterable[bytes]) -> Iterator[InputRecord]:
    """Raises CommandFailed with the number of the line."""
    for number, piece in enumerate(pieces, 1):
        if not piece.strip():
            continue
        try:
            yield parse_json_record(json.loads(piece))
        except (ValueError, RecursionError, CommandFailed) as problem:
            raise CommandFailed(f"line {number}: {problem}") from problem


def parse_json_record(row: object) -> InputRecord:
    if not isinstance(row, dict):
        raise CommandFailed('a record is an object such as {"key": "k", "value": "v"}')
    unknown = sorted(set(row) - KNOWN_FIELDS)
    if unknown:
        known = ", ".join(sorted(KNOWN_FIELDS))
        raise CommandFailed(f"{unknown[0]} is no field of a record; there are {known}")
    return InputRecord(
        bytes_from_json(row.get("value")),
        bytes_from_json(row.get("key")),
        _headers(row.get("headers")),
        _number(row, "partition"),
        _number(row, "timestamp"),
    )


def _headers(given: object) -> Headers:
    if given is None:
        return ()
    if isinstance(given, dict):
        return tuple((str(name), bytes_from_json(value)) for name, value in given.items())
    if isinstance(given, list) and all(
        isinstance(each, dict) and isinstance(each.get("key"), str) for each in given
    ):
        return tuple((each["key"], bytes_from_json(each.get("value"))) for each in given)
    raise CommandFailed('headers are a list such as [{"key": "k", "value": "v"}], or an object')


def _number(row: dict[str, object], name: str) -> int | None:
    value = row.get(name)
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0):
        return value
    raise CommandFailed(f"{name} is a number from 0 on, not {json.dumps(value)}")


def whole_files(paths: Iterable[Path]) -> Iterator[bytes]:
    for path in paths:
        yield path.read_bytes()
