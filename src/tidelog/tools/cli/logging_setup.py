r"""Structured logs on standard error, one line a record.

    logfmt   time=2026-11-15T09:30:00.123Z level=info logger=tidelog.log msg="log loaded" topic=t
    json     {"time":"2026-11-15T09:30:00.123Z","level":"info","logger":"tidelog.log",...}

What a caller passes as `extra` becomes a field of its own; a traceback is the field `exception`.

A line with the field `event` tells of one of the events that docs/observability.md lists. A flood
of one event is cut: LINES_MAX lines of it in WINDOW_S seconds are written, and the first one after
that says in the field `suppressed` how many were not.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator
from typing import Final

LEVELS: Final = ("debug", "info", "warning", "error")
FORMATS: Final = ("logfmt", "json")
WINDOW_S: Final = 10.0
LINES_MAX: Final = 100  # of one event in a window

# What every record has; anything else on it came in as `extra`.
STANDARD_ATTRIBUTES: Final = frozenset(
    (*logging.makeLogRecord({}).__dict__, "message", "asctime", "taskName")
)


def set_up_logging(format: str, level: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(FloodFilter())
    handler.setFormatter(JsonFormatter() if format == "json" else LogfmtFormatter())
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)


def fields(record: logging.LogRecord) -> Iterator[tuple[str, object]]:
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    yield "time", f"{seconds}.{int(record.msecs):03d}Z"
    yield "level", record.levelname.lower()
    yield "logger", record.name
    yield "msg", record.getMessage()
    for name, value in record.__dict__.items():
        if name not in STANDARD_ATTRIBUTES:
            yield name, value
    if record.exc_info:
        yield "exception", logging.Formatter().formatException(record.exc_info)


class FloodFilter(logging.Filter):
    """Lets the first lines of an event in each window pass. Records of no event all pass."""

    def __init__(self) -> None:
        super().__init__()
        self._windows: dict[str, tuple[float, int]] = {}  # of each event: its begin, its lines

    def filter(self, record: logging.LogRecord) -> bool:
        event = getattr(record, "event", None)
        if event is None:
            return True
        began, count = self._windows.get(event, (record.created, 0))
        if not 0 <= record.created - began < WINDOW_S:
            if count > LINES_MAX:
                record.suppressed = count - LINES_MAX
            began, count = record.created, 0
        self._windows[event] = (began, count + 1)
        return count < LINES_MAX


class LogfmtFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return " ".join(f"{name}={logfmt_value(str(value))}" for name, value in fields(record))


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        import json

        return json.dumps(dict(fields(record)), separators=(",", ":"), default=str)


def logfmt_value(text: str) -> str:
    if text and text.isprintable() and not any(char in ' ="\\' for char in text):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else escape(c) for c in escaped) + '"'


def escape(char: str) -> str:
    return {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(char, f"\\u{ord(char):04x}")
