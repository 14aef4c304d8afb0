"""One table of a TOML file: values taken by key and type, problems noted with their line.

A value that is wrong gives the default, so that reading goes on and finds the next problem. Keys
that nobody asked for are problems too, with the nearest key that is known.

tomllib does not tell on which line a table or key stands, so `TomlLines` finds out. The text is one
that tomllib has accepted, so only as much of the grammar is followed as it takes not to mistake the
inside of a string for a key. Keys inside inline tables and arrays are found at the line of the key
that holds them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

from tidelog.pipeline.declaration.parts import Place, Problem

KeyPath = tuple[str, ...]

_PART: Final = r"(?:[A-Za-z0-9_-]+|\"[^\"]*\"|'[^']*')"
_KEY: Final = rf"{_PART}(?:\s*\.\s*{_PART})*"
_HEADER = re.compile(rf"\s*\[\[?\s*({_KEY})\s*\]\]?")
_ASSIGNMENT = re.compile(rf"\s*({_KEY})\s*=(.*)", re.DOTALL)
_SYNTAX_LINE = re.compile(r"\(at line (\d+)")


class TomlTable:
    def __init__(
        self,
        file: Path,
        path: tuple[str, ...],
        given: dict[str, Any],
        lines: TomlLines,
        problems: list[Problem],
    ) -> None:
        self.file = file
        self.path = path
        self.given = given
        self._lines = lines
        self._problems = problems
        # Every key that was asked for, so what this table may hold.
        self._asked: dict[str, None] = {}

    def line(self, *key: str) -> int:
        return self._lines.line(*self.path, *key)

    def problem(self, key: str | None, message: str) -> None:
        where = f"[{'.'.join(self.path)}] " if self.path else ""
        if key is not None:
            where += f"{key} "
        where = where.strip() + ": " if where else ""
        line = self.line() if key is None else self.line(key)
        self._problems.append(Problem(Place(self.file, line), where + message))

    def text(self, key: str, default: str = "") -> str:
        value = self._value(key, default)
        if isinstance(value, str):
            return value
        self.problem(key, f"expected text in quotes, got {_shown(value)}")
        return default

    def must_text(self, key: str, fix: str) -> str:
        text = self.text(key)
        if not text.strip() and (key not in self.given or isinstance(self.given[key], str)):
            self.problem(key, f"is missing; {fix}")
        return text

    def text_list(self, key: str) -> list[str]:
        value = self._value(key, [])
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return value
        self.problem(key, f'expected a list of texts like ["a", "b"], got {_shown(value)}')
        return []

    def integer(self, key: str, *, at_least: int) -> int | None:
        value = self._value(key, None)
        if value is None:
            return None
        if isinstance(value, int) and not isinstance(value, bool) and value >= at_least:
            return value
        self.problem(key, f"expected a whole number of at least {at_least}, got {_shown(value)}")
        return None

    def flag(self, key: str, default: bool) -> bool:
        value = self._value(key, default)
        if isinstance(value, bool):
            return value
        self.problem(key, f"expected true or false, got {_shown(value)}")
        return default

    def choice(self, key: str, choices: Sequence[str], default: str) -> str:
        text = self.text(key, default)
        if text in choices:
            return text
        self.problem(key, f'"{text}" is not known; {_instead(text, choices)}')
        return default

    def table(self, key: str) -> dict[str, Any]:
        value = self._value(key, {})
        if isinstance(value, dict):
            return value
        path = ".".join((*self.path, key))
        self.problem(key, f"expected a table [{path}], got {_shown(value)}")
        return {}

    def one_of(self, *keys: str) -> str | None:
        """Which of the keys is given; there must be exactly one."""
        self._asked.update(dict.fromkeys(keys))
        given = [key for key in keys if key in self.given]
        if not given:
            self.problem(None, f"one of {', '.join(keys)} is missing")
            return None
        for other in given[1:]:
            self.problem(other, f"stands beside {given[0]}; keep one of them")
        return given[0]

    def texts(self) -> dict[str, str]:
        """The whole table as option texts; numbers and flags are written as Spark writes them."""
        found: dict[str, str] = {}
        for key, value in self.given.items():
            self._asked[key] = None
            if isinstance(value, bool):
                found[key] = str(value).lower()
            elif isinstance(value, str | int | float):
                found[key] = str(value)
            else:
                quoted = f'"{key}.…" = …' if isinstance(value, dict) else _shown(value)
                self.problem(
                    key, f"expected a text or number; names with dots are quoted: {quoted}"
                )
        return found

    def refuse_unread(self) -> None:
        self.refuse_other(tuple(self._asked))

    def refuse_other(self, known: Sequence[str]) -> None:
        for key in self.given:
            if key not in known:
                self.problem(key, f"is not a key here; {_instead(key, known)}")

    def _value(self, key: str, default: Any) -> Any:
        self._asked[key] = None
        return self.given.get(key, default)


def _instead(word: str, known: Sequence[str]) -> str:
    near = get_close_matches(word, known, 1)
    return f'did you mean "{near[0]}"?' if near else f"there is {', '.join(known)}"


def _shown(value: Any) -> str:
    """Whole, or not at all: half of a value cannot be recognised as a secret."""
    text = repr(value)
    kinds = {"dict": "a table", "list": "a list", "str": "a long text"}
    return text if len(text) <= 40 else kinds.get(type(value).__name__, "a long value")


class TomlLines:
    def __init__(self, text: str) -> None:
        self._lines = _index(text)

    def line(self, *path: str) -> int:
        """Of the key, or of the nearest table around it; 0 when there is none."""
        while path:
            if path in self._lines:
                return self._lines[path]
            path = path[:-1]
        return 0

    def first_text_line(self, text: str, *path: str) -> int:
        """Where the first line of a string value stands: below the quotes, when they end a line."""
        line = self.line(*path)
        return line + 1 if "\n" in text else line


def syntax_error_line(message: str) -> int:
    found = _SYNTAX_LINE.search(message)
    return int(found[1]) if found else 0


def _index(text: str) -> dict[KeyPath, int]:
    found: dict[KeyPath, int] = {}
    table: KeyPath = ()
    open_quotes = ""
    for number, line in enumerate(text.splitlines(), 1):
        if open_quotes:
            _, closing, after = line.partition(open_quotes)
            if closing:
                open_quotes = _left_open(after)
            continue
        if header := _HEADER.match(line):
            table = _parts(header[1])
            _note(found, table, number)
        elif assignment := _ASSIGNMENT.match(line):
            _note(found, table + _parts(assignment[1]), number)
            open_quotes = _left_open(assignment[2])
        else:
            open_quotes = _left_open(line)
    return found


def _note(found: dict[KeyPath, int], path: KeyPath, number: int) -> None:
    """Tables around it that have no header of their own begin here too."""
    for length in range(1, len(path) + 1):
        found.setdefault(path[:length], number)


def _parts(key: str) -> KeyPath:
    return tuple(part.strip("\"'") for part in re.findall(_PART, key))


def _left_open(text: str) -> str:
    """The triple quotes that this line opens and does not close, or nothing."""
    position = 0
    while position < len(text):
        char = text[position]
        if char == "#":
            return ""
        if char not in "\"'":
            position += 1
            continue
        quotes = char * 3 if text.startswith(char * 3, position) else char
        end = _closing(text, position + len(quotes), quotes)
        if end < 0:
            return quotes if len(quotes) == 3 else ""
        position = end + len(quotes)
    return ""


def _closing(text: str, position: int, quotes: str) -> int:
    while (end := text.find(quotes, position)) >= 0:
        backslashes = len(text[:end]) - len(text[:end].rstrip("\\"))
        if quotes[0] == "'" or backslashes % 2 == 0:
            return end
        position = end + 1
    return -1
