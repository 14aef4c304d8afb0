"""The events of a broker's recent life, kept in memory and told at /events.

An event is a log record with the field `event` (docs/observability.md). The ring is a handler of
the logger `tidelog`, so code that logs events knows nothing of it, and a request that logs nothing
pays nothing. Each kind of event has a ring of its own: thousands of throttled clients push out no
election. A field is kept as a number, a short text, or a list or table of them: what a client can
make long is cut at TEXT_MAX. So the memory is bounded by kinds x `kept_max` x fields.

`page` is the answer of /events, as JSON lines, and may be asked for on any thread. Its first line
tells what is missing: how many events of each kind fell out, how many were left out of the answer,
since when events are kept, whether the log level hides them, and the broker's clock.

A filter names subjects: `partition`, `topic`, `group`, `transactional_id`, `producer_id`, each any
number of times. An event passes if it is of one of them, or if it concerns the whole broker
(BROKER_EVENTS). `event` narrows the answer to these kinds.
"""

from __future__ import annotations

import json
import logging
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple
from urllib.parse import parse_qsl

from tidelog.clock import Clock, SystemClock

LOGGER: Final = "tidelog"
TEXT_MAX: Final = 1_000
ITEMS_MAX: Final = 100
FIELDS_MAX: Final = 32
LINES_MAX: Final = 2_000  # in an answer
KINDS_MAX: Final = 200
SUBJECTS: Final = ("partition", "topic", "group", "transactional_id", "producer_id")
FILTERS: Final = (*SUBJECTS, "event")
FILTERS_MAX: Final = 100
BROKER_EVENTS: Final = frozenset(
    {
        "broker-started",
        "broker-stopping",
        "broker-stopped",
        "broker-config-changed",
        "brokers-changed",
        "controller-elected",
        "controller-resigned",
        "log-dir-offline",
        "log-dir-recovery",
    }
)
_STANDARD: Final = frozenset((*logging.makeLogRecord({}).__dict__, "message", "asctime"))


class KeptEvent(NamedTuple):
    at_s: float
    number: int  # in the order in which they were logged
    level: str
    message: str
    fields: Mapping[str, object]  # among them `event`


class BadFilter(ValueError):
    """The message says what may be asked for."""


class EventRing(logging.Handler):
    """Hears from `attach` to `detach`."""

    def __init__(self, kept_max: int, clock: Clock | None = None) -> None:
        super().__init__()
        self.broker_id: int | None = None  # not known before the directories are read
        self._kept_max = kept_max
        self._clock = clock or SystemClock()
        self._since_s = self._clock.time_ms() / 1_000
        self._rings: dict[str, deque[KeptEvent]] = {}
        self._fell_out: Counter[str] = Counter()
        self._number = 0

    def attach(self) -> None:
        logging.getLogger(LOGGER).addHandler(self)

    def detach(self) -> None:
        logging.getLogger(LOGGER).removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Called under the handler's lock."""
        event = getattr(record, "event", None)
        if not isinstance(event, str):
            return
        ring = self._rings.get(event)
        if ring is None:
            if len(self._rings) >= KINDS_MAX:
                self._fell_out[event[:TEXT_MAX]] += 1
                return
            ring = self._rings[event] = deque(maxlen=self._kept_max)
        if len(ring) == self._kept_max:
            self._fell_out[event] += 1
        self._number += 1
        extras = [(k, v) for k, v in record.__dict__.items() if k not in _STANDARD]
        fields = {name: kept(value) for name, value in extras[:FIELDS_MAX] if name != "taskName"}
        ring.append(
            KeptEvent(
                record.created,
                self._number,
                record.levelname.lower(),
                record.getMessage()[:TEXT_MAX],
                fields,
            )
        )

    def page(self, query: str) -> str:
        """BadFilter if the query asks for what there is not."""
        wanted = parse_filter(query)
        with self.lock:  # type: ignore[union-attr]
            events = [each for ring in self._rings.values() for each in ring]
            fell_out = dict(self._fell_out)
        events = [each for each in events if passes(each.fields, wanted)]
        events.sort(key=lambda each: each.number)
        left_out = max(0, len(events) - LINES_MAX)
        head = {
            "broker_id": self.broker_id,
            "now": spelled(self._clock.time_ms() / 1_000),
            "since": spelled(self._since_s),
            "kept_of_each_event": self._kept_max,
            "fell_out": fell_out,
            "left_out": left_out,
            "is_logged": logging.getLogger(LOGGER).isEnabledFor(logging.INFO),
        }
        return "".join(f"{line}\n" for line in self._lines(head, events[left_out:]))

    def _lines(self, head: Mapping[str, object], events: list[KeptEvent]) -> Iterator[str]:
        yield json.dumps(head, separators=(",", ":"))
        for at_s, _, level, message, fields in events:
            row = {"time": spelled(at_s), "level": level, "msg": message, **fields}
            yield json.dumps(row, separators=(",", ":"))


def kept(value: object) -> object:
    """The value in a form that nobody changes any more, and that is not long."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, list | tuple):
        return [kept(each) for each in value[:ITEMS_MAX]]
    if isinstance(value, dict):
        items = list(value.items())[:ITEMS_MAX]
        return {str(name)[:TEXT_MAX]: kept(each) for name, each in items}
    return str(value)[:TEXT_MAX]


def parse_filter(query: str) -> dict[str, frozenset[str]]:
    try:
        pairs = parse_qsl(
            query, keep_blank_values=True, strict_parsing=bool(query), max_num_fields=FILTERS_MAX
        )
    except ValueError as error:
        raise BadFilter(f"the query cannot be read: {error}") from error
    found: dict[str, set[str]] = {}
    for name, value in pairs:
        if name not in FILTERS:
            raise BadFilter(f"no filter {name[:TEXT_MAX]!r}; there is {', '.join(FILTERS)}")
        found.setdefault(name, set()).add(value)
    return {name: frozenset(values) for name, values in found.items()}


def passes(fields: Mapping[str, object], wanted: Mapping[str, frozenset[str]]) -> bool:
    kinds = wanted.get("event")
    if kinds is not None and fields["event"] not in kinds:
        return False
    named = [name for name in SUBJECTS if name in wanted]
    if not named or fields["event"] in BROKER_EVENTS:
        return True
    return any(name in fields and str(fields[name]) in wanted[name] for name in named)


def spelled(at_s: float) -> str:
    milliseconds = int(at_s * 1_000)
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(milliseconds // 1_000))
    return f"{seconds}.{milliseconds % 1_000:03d}Z"
