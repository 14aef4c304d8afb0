"""What an explanation consists of. It is plain data: a terminal and a web page show the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tidelog.tools.explain.events import spelled

PROBLEM: Final = "problem"
REMARK: Final = "remark"  # worth knowing, and nothing is wrong


class Finding(NamedTuple):
    level: str
    cause: str  # a stable word for programs
    what: str
    why: str
    next_step: str = ""
    since_ms: int | None = None

    def as_data(self) -> dict[str, object]:
        since = None if self.since_ms is None else spelled(self.since_ms)
        return {**self._asdict(), "since": since}


class Moment(NamedTuple):
    """One line of the timeline."""

    at_ms: int
    broker_id: int | None  # who told it
    event: str
    text: str

    def as_data(self) -> dict[str, object]:
        return {"time": spelled(self.at_ms), **self._asdict()}


@dataclass
class Explanation:
    subject: str
    state: list[tuple[str, str]] = field(default_factory=list)  # what holds now, by name
    findings: list[Finding] = field(default_factory=list)
    timeline: list[Moment] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)  # what could not be looked at, and why

    @property
    def has_problem(self) -> bool:
        return any(each.level == PROBLEM for each in self.findings)

    def as_data(self) -> dict[str, object]:
        return {
            "subject": self.subject,
            "state": dict(self.state),
            "findings": [each.as_data() for each in self.findings],
            "timeline": [each.as_data() for each in self.timeline],
            "unknown": self.unknown,
        }


def problem(
    cause: str, what: str, why: str, next_step: str = "", since_ms: int | None = None
) -> Finding:
    return Finding(PROBLEM, cause, what, why, next_step, since_ms)


def remark(
    cause: str, what: str, why: str, next_step: str = "", since_ms: int | None = None
) -> Finding:
    return Finding(REMARK, cause, what, why, next_step, since_ms)


def listed(numbers: Sequence[int] | frozenset[int]) -> str:
    found = sorted(numbers) if isinstance(numbers, frozenset) else numbers
    return ", ".join(map(str, found)) or "none"


def brokers(numbers: Sequence[int] | frozenset[int]) -> str:
    noun = "broker" if len(numbers) == 1 else "brokers"
    return f"{noun} {listed(numbers)}" if numbers else "no broker"


def duration(milliseconds: int) -> str:
    """To two units: 1h 5m, 12s, 40ms."""
    if milliseconds < 1_000:
        return f"{max(milliseconds, 0)}ms"
    seconds = milliseconds // 1_000
    parts = [
        (seconds // 86_400, "d"),
        (seconds // 3_600 % 24, "h"),
        (seconds // 60 % 60, "m"),
        (seconds % 60, "s"),
    ]
    while len(parts) > 1 and not parts[0][0]:
        parts.pop(0)
    return " ".join(f"{count}{unit}" for count, unit in parts[:2] if count or unit == parts[0][1])
