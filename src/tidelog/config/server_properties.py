r"""server.properties: Java's format, and a broker's configuration as its operator wrote it.

As in Kafka, a key that no row has (it may be a plug-in's) and a key that is set twice do not keep
the broker from starting: all of them are named in the configuration's warnings, each with its line
and the nearest known key. A strict start refuses them instead, all at once.

The format, as java.util.Properties reads it:

    # comment          ! comment
    key=value          key: value         key value       blanks around the separator are dropped
    key = a,\
          b            a backslash at the end of a line continues it, leading blanks are dropped
    \t \n \r \f \\ \: \= \# \uXXXX        escapes in keys and values; any other \x is x

Every property is given with its line, because a key may occur twice; its last value holds then.
Text is read as UTF-8, or as Latin-1 (Java's own choice) where it is not valid UTF-8.

The command line wins over the environment (`environment.py`), and the environment over the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from tidelog.config.broker import BrokerConfig, find_key, nearest_key
from tidelog.config.definition import ConfigError
from tidelog.config.environment import Variable

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


def escaped_value(text: str) -> str:
    """How a file has to spell a value."""
    spelled = text.replace("\\", "\\\\")
    for letter, char in ESCAPES.items():
        spelled = spelled.replace(char, f"\\{letter}")
    return f"\\{spelled}" if spelled.startswith(" ") else spelled


def unicode_escape(digits: str, number: int) -> str:
    if len(digits) != 4 or not all(digit in "0123456789abcdefABCDEF" for digit in digits):
        raise ConfigError(f"line {number}: malformed \\u{digits} escape")
    return chr(int(digits, 16))


def load_broker_config(
    path: Path | None,
    overrides: Iterable[tuple[str, str]] = (),
    *,
    environment: Iterable[Variable] = (),
    strict: bool = False,
) -> BrokerConfig:
    """Overrides win over the environment, and that wins over the file. Raises ConfigError."""
    in_file = load_properties(path) if path is not None else []
    given = [Setting("--override", key, value) for key, value in overrides]
    layers = (
        [Setting(f"line {item.line}", item.key, item.value) for item in in_file],
        [Setting(*variable) for variable in environment],
        given,
    )
    doubts = [doubt for layer in layers for doubt in doubts_about(layer)]
    if strict and doubts:
        raise ConfigError(f"refused by --strict: {'; '.join(map(str, doubts))}")
    config = BrokerConfig({item.key: item.value for layer in layers for item in layer})
    config.warnings = (*map(str, doubts), *config.warnings)
    return config


class Setting(NamedTuple):
    place: str  # a line, a variable or --override
    key: str
    value: str


class Doubt(NamedTuple):
    """About a key that is unknown or set twice. Its value may be secret and is not shown."""

    place: str
    key: str
    message: str

    def __str__(self) -> str:
        return f"{self.place}: {self.message}"


def doubts_about(items: Iterable[Setting]) -> Iterator[Doubt]:
    first_places: dict[str, str] = {}
    for place, key, _ in items:
        if key in first_places:
            message = f"{key} is set again ({first_places[key]}); the last one holds"
            yield Doubt(place, key, message)
            continue
        first_places[key] = place
        if find_key(key) is None:
            nearest = nearest_key(key)
            hint = f"; did you mean {nearest}?" if nearest else ""
            yield Doubt(place, key, f"unknown configuration key {key}{hint}")
