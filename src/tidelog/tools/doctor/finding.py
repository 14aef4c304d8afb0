"""What a check says: what is wrong, and the command or setting that cures it."""

from __future__ import annotations

from typing import Final, NamedTuple

ERROR: Final = "error"
WARNING: Final = "warning"
UNCHECKED: Final = "unchecked"  # the check could not look


class Finding(NamedTuple):
    level: str
    check: str  # a word for programs
    subject: str  # a listener, a directory, a topic, ...
    problem: str
    cure: str


def error(check: str, subject: object, problem: str, cure: str) -> Finding:
    return Finding(ERROR, check, str(subject), problem, cure)


def warning(check: str, subject: object, problem: str, cure: str) -> Finding:
    return Finding(WARNING, check, str(subject), problem, cure)


def unchecked(check: str, subject: object, problem: str, cure: str) -> Finding:
    return Finding(UNCHECKED, check, str(subject), problem, cure)
