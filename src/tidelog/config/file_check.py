"""What is wrong with a server.properties, all of it at once, each with its lines.

An error keeps the broker from starting. A warning does not, unless it starts with --strict: a key
that is unknown or set twice. A remark tells what a start would log: keys without effect.
Values are not shown where they may be secret.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from tidelog.config.broker import BrokerConfig, find_key, listener_of, part_of_listener
from tidelog.config.definition import ConfigError, InvalidValue
from tidelog.config.server_properties import Setting, doubts_about, load_properties

WORD = re.compile(r"[\w.-]+\w")


class Problem(NamedTuple):
    line: int | None  # the first of them; None where no line of the file is to blame
    level: str  # error, warning or remark
    key: str | None
    message: str


def check_file(
    path: Path, more: Callable[[BrokerConfig], Iterable[ConfigError]] = lambda _: ()
) -> list[Problem]:
    """In the order of the lines. Raises ConfigError if the file cannot be read at all.

    `more` are problems of what is otherwise a good configuration.
    """
    items = load_properties(path)
    lines = {item.key: item.line for item in items}  # the last one holds
    found = [
        Problem(int(doubt.place.removeprefix("line ")), "warning", doubt.key, doubt.message)
        for doubt in doubts_about(
            Setting(f"line {item.line}", item.key, item.value) for item in items
        )
    ]
    properties = {item.key: item.value for item in items}
    problems = BrokerConfig.problems(properties)
    if not problems:
        problems += more(BrokerConfig(properties))
    for text in dict.fromkeys(map(_message, problems)):
        for part in _complaints(text, lines):
            key = _named_key(part, lines)
            found.append(Problem(lines.get(key or ""), "error", key, part))
    if not problems:
        for text in BrokerConfig(properties).warnings:
            key = _named_key(text, lines)
            found.append(Problem(lines.get(key or ""), "remark", key, text))
    return sorted(found, key=lambda problem: (problem.line or 0, problem.level))


def _message(problem: Exception) -> str:
    if isinstance(problem, InvalidValue):
        key = find_key(problem.name)
        if key is not None and key.sensitive:
            return f"Invalid value for configuration {problem.name}: {problem.rule}"
    return str(problem)


def _complaints(text: str, lines: dict[str, int]) -> list[str]:
    """One message may be a list of complaints, each of which begins with its key."""
    parts: list[str] = []
    for part in text.split("; "):
        if parts and part.partition(": ")[0] not in lines:
            parts[-1] += f"; {part}"
        else:
            parts.append(part)
    return parts


def _named_key(text: str, lines: dict[str, int]) -> str | None:
    """The listener's own, if it has one."""
    words = WORD.findall(text)
    own = (key for key in lines if part_of_listener(key) in words and listener_of(key) in words)
    return next(own, None) or next((word for word in words if word in lines), None)
