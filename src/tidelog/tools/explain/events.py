r"""Events of brokers: one line each, as logfmt or as JSON, and the order in which they happened.

    time=2026-11-18T08:00:00.123Z level=info msg="topic created" event=topic-created topic=orders
    {"time":"2026-11-18T08:00:00.123Z","event":"topic-created","topic":"orders"}

Lines that tell of no event, and lines that nobody wrote like this, are passed over. A line longer
than LINE_MAX is not read.

Clocks of brokers differ, so times alone do not order what different brokers tell. Leader epochs do:
an event of a partition's later epoch comes after the first event of every earlier epoch, whatever
the clocks say. A topic that is made again begins with epoch 0 again: `of_present_topic` leaves out
what the one before it went through.
"""

from __future__ import annotations

import ast
import json
import re
import time
from calendar import timegm
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

LINE_MAX: Final = 64 * 1024
_PAIR: Final = re.compile(r'([A-Za-z_][\w.]*)=("(?:[^"\\]|\\.)*"|[^\s"]*)(?:\s|$)')
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)")
_ESCAPES: Final = {"n": "\n", "r": "\r", "t": "\t"}
_TIME: Final = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,3}))?Z")


class Event(NamedTuple):
    at_ms: int  # by the clock of the one who asks, as far as that is known
    broker_id: int | None  # who told it
    name: str
    fields: Mapping[str, object]

    def text(self, field: str) -> str:
        value = self.fields.get(field)
        return "" if value is None else str(value)

    def number(self, field: str) -> int | None:
        value = self.fields.get(field)
        if isinstance(value, bool):
            return None
        try:
            return int(value) if isinstance(value, int | str) else None
        except ValueError:
            return None

    def numbers(self, field: str) -> tuple[int, ...]:
        """A list such as the in-sync set. In logfmt it is Python's text of one."""
        value = self.fields.get(field)
        if isinstance(value, str):
            value = literal_or_none(value)
        if not isinstance(value, list | tuple):
            return ()
        return tuple(each for each in value if isinstance(each, int))

    def table(self, field: str) -> Mapping[str, object]:
        value = self.fields.get(field)
        if isinstance(value, str):
            value = literal_or_none(value)
        return value if isinstance(value, dict) else {}

    def is_true(self, field: str) -> bool:
        return self.fields.get(field) in (True, "True", "true")


def literal_or_none(text: str) -> object:
    if len(text) > LINE_MAX or text[:1] not in "[{(":
        return None
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None


def event_of(line: str) -> Event | None:
    """The broker id is that of the line's label (`serve --brokers`), if it has one."""
    if len(line) > LINE_MAX or "event" not in line:
        return None
    fields = fields_of(line)
    name, at_ms = fields.get("event"), parsed_time(fields.get("time"))
    if not isinstance(name, str) or at_ms is None:
        return None
    label = fields.get("broker")
    is_id = isinstance(label, int) or (isinstance(label, str) and label.isdecimal())
    broker_id = int(str(label)[:10]) if is_id and name != "broker-config-changed" else None
    return Event(at_ms, broker_id, name, fields)


def fields_of(line: str) -> dict[str, object]:
    start = line.find("{")
    if start == 0 or (start > 0 and "=" not in line[:start]):
        try:
            found = json.loads(line[start:])
        except (ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}
    return {name: _unquoted(value) for name, value in _PAIR.findall(line)}


def _unquoted(value: str) -> str:
    if not value.startswith('"'):
        return value
    return _ESCAPE.sub(_unescaped, value[1:-1])


def _unescaped(found: re.Match[str]) -> str:
    escape = found[1]
    if len(escape) == 5:
        return chr(int(escape[1:], 16))
    return _ESCAPES.get(escape, escape)


def parsed_time(value: object) -> int | None:
    """Milliseconds since 1970."""
    found = _TIME.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        return None
    try:
        seconds = timegm(time.strptime(found[1], "%Y-%m-%dT%H:%M:%S"))
    except (ValueError, OverflowError):
        return None
    return seconds * 1_000 + int((found[2] or "0").ljust(3, "0"))


def spelled(at_ms: int) -> str:
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at_ms // 1_000))
    return f"{seconds}.{at_ms % 1_000:03d}Z"


def in_order(events: Iterable[Event]) -> list[Event]:
    """Each once, though a log file and /events tell the same."""
    unique: dict[object, Event] = {}
    for event in events:
        fields = sorted((k, str(v)) for k, v in event.fields.items() if k not in ("time", "logger"))
        unique.setdefault((event.at_ms, event.name, event.broker_id, tuple(fields)), event)
    found = list(unique.values())
    floors = _epoch_floors(found)

    def place(event: Event) -> tuple[int, int, int]:
        epoch = event.number("leader_epoch")
        if epoch is None:
            return event.at_ms, -1, event.at_ms
        floor = floors.get((event.text("partition"), epoch), event.at_ms)
        return max(event.at_ms, floor), epoch, event.at_ms

    return sorted(found, key=place)


def of_present_topic(events: Sequence[Event], topic: str) -> list[Event]:
    """Of a topic that is there, so that whatever was deleted had its name before. The controller
    tells last that it is gone (`topic-removed`); a lone broker has no controller.
    """
    ends = [
        max(times)
        for name in ("topic-removed", "topic-deleted")
        if (times := [e.at_ms for e in events if e.name == name and e.text("topic") == topic])
    ]
    if not ends:
        return list(events)
    return [
        each
        for each in events
        if each.at_ms > ends[0]
        or not (each.text("topic") == topic or each.text("partition").rpartition("-")[0] == topic)
    ]


def _epoch_floors(events: Iterable[Event]) -> dict[tuple[str, int], int]:
    """The time before which no event of the epoch can have been."""
    first: dict[str, dict[int, int]] = {}
    for event in events:
        epoch = event.number("leader_epoch")
        if epoch is not None:
            times = first.setdefault(event.text("partition"), {})
            times[epoch] = min(times.get(epoch, event.at_ms), event.at_ms)
    floors: dict[tuple[str, int], int] = {}
    for partition, times in first.items():
        floor = 0
        for epoch in sorted(times):
            floor = max(floor, times[epoch])
            floors[partition, epoch] = floor
    return floors
