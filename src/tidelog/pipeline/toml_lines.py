"""On which line of a TOML text a table or key stands; tomllib does not tell.

The text is one that tomllib has accepted, so only as much of the grammar is followed as it takes
not to mistake the inside of a string for a key. Keys inside inline tables and arrays are found at
the line of the key that holds them.
"""

from __future__ import annotations

import re
from typing import Final

KeyPath = tuple[str, ...]

_PART: Final = r"(?:[A-Za-z0-9_-]+|\"[^\"]*\"|'[^']*')"
_KEY: Final = rf"{_PART}(?:\s*\.\s*{_PART})*"
_HEADER = re.compile(rf"\s*\[\[?\s*({_KEY})\s*\]\]?")
_ASSIGNMENT = re.compile(rf"\s*({_KEY})\s*=(.*)", re.DOTALL)
_SYNTAX_LINE = re.compile(r"\(at line (\d+)")


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
