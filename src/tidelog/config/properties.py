r"""Java's .properties format, as java.util.Properties reads it.

    # comment          ! comment
    key=value          key: value         key value       blanks around the separator are dropped
    key = a,\
          b            a backslash at the end of a line continues it, leading blanks are dropped
    \t \n \r \f \\ \: \= \# \uXXXX        escapes in keys and values; any other \x is x

Every property is given with its line, because a key may occur twice; its last value holds then.
Text is read as UTF-8, or as Latin-1 (Java's own choice) where it is not valid UTF-8.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from tidelog.config.definition import ConfigError

BLANKS: Final = " \t\f"
ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class Property(NamedTuple):
    line: int  # the first of those it stands in, counted from 1
    key: str
    value: str


def load_properties(path: Path) -> list[Property]:
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        text = raw.decode("latin-1")
    try:
        return parse_properties(text)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def parse_properties(text: str) -> list[Property]:
    properties: list[Property] = []
    for number, line in logical_lines(text):
        key, value = split_line(line)
        properties.append(Property(number, unescape(key, number), unescape(value, number)))
    return properties


def logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with continuations joined and comments and blank lines left out, with their number."""
    parts: list[str] = []
    first = 0
    for number, natural in enumerate(natural_lines(text), start=1):
        line = natural.lstrip(BLANKS)
        if not parts:
            if not line or line[0] in "#!":
                continue
            first = number
        if (len(line) - len(line.rstrip("\\"))) % 2:
            parts.append(line[:-1])
            continue
        yield first, "".join([*parts, line])
        parts.clear()
    if parts:
        yield first, "".join(parts)


def natural_lines(text: str) -> list[str]:
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def split_line(line: str) -> tuple[str, str]:
    """The raw key and value: the key ends at the first unescaped =, : or blank."""
    end = 0
    while end < len(line) and line[end] not in "=:" + BLANKS:
        end += 2 if line[end] == "\\" else 1
    rest = line[end:].lstrip(BLANKS)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(BLANKS)
    return line[:end], rest


def unescape(raw: str, number: int) -> str:
    if "\\" not in raw:
        return raw
    out: list[str] = []
    position = 0
    while position < len(raw):
        char = raw[position]
        position += 1
        if char == "\\" and position < len(raw):
            char = raw[position]
            position += 1
            if char == "u":
                char = unicode_escape(raw[position : position + 4], number)
                position += 4
            else:
                char = ESCAPES.get(char, char)
        out.append(char)
    return "".join(out)


def unicode_escape(digits: str, number: int) -> str:
    if len(digits) != 4 or not all(digit in "0123456789abcdefABCDEF" for digit in digits):
        raise ConfigError(f"line {number}: malformed \\u{digits} escape")
    return chr(int(digits, 16))
