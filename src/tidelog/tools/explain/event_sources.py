"""Where events come from: /events of brokers that run, and log files, also of brokers that do not.

The listeners of brokers are found over the Kafka protocol (`tidelog.metrics.listener` is a setting
of theirs), or are named. An answer tells the broker's clock; the difference to ours is taken off
its events' times if it is larger than the answer took to come. What could not be asked, and what
an answer says is missing, becomes a sentence for the reader.
"""

from __future__ import annotations

import gzip
import json
import time
import urllib.parse
import urllib.request
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import IO, Final, NamedTuple

from tidelog.broker.observation.event_ring import BROKER_EVENTS
from tidelog.tools.explain.events import LINE_MAX, Event, event_of, in_order, parsed_time

SETTING: Final = "tidelog.metrics.listener"
TIMEOUT_S: Final = 5.0
THREADS: Final = 8
PAGE_BYTES_MAX: Final = 16 << 20
EVENTS_MAX: Final = 50_000  # of one file, the last ones
WILDCARDS: Final = ("", "0.0.0.0", "::", "[::]", "*")

Subjects = Mapping[str, str]  # `partition`, `group`, ...: what the events are to be about


class Gathered(NamedTuple):
    events: list[Event]
    unknown: list[str]


def concerns(event: Event, subjects: Subjects) -> bool:
    if event.name in BROKER_EVENTS:
        return True
    return any(event.text(name) == value for name, value in subjects.items())


def gather(urls: Sequence[str], files: Sequence[Path], subjects: Subjects) -> Gathered:
    found: list[Event] = []
    unknown: list[str] = []
    with ThreadPoolExecutor(THREADS) as threads:  # one that hangs holds up no other
        for events, problems in threads.map(partial(read_url, subjects=subjects), urls):
            found += events
            unknown += problems
    for path in files:
        found += read_file(path, subjects)
    return Gathered(in_order(found), unknown)


# Brokers


def listener_url(setting: str, broker_host: str) -> str | None:
    """Where to ask a broker with this setting; None where that cannot be told."""
    if not setting:
        return None
    parts = urllib.parse.urlsplit(setting)
    try:
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return None
    if not port:
        return None
    if host in WILDCARDS:
        host = broker_host
    host = f"[{host}]" if ":" in host else host
    return f"http://{host}:{port}"


def read_url(
    url: str, subjects: Subjects, now_s: Callable[[], float] = time.time
) -> tuple[list[Event], list[str]]:
    base = url.rstrip("/").removesuffix("/metrics").removesuffix("/events")
    address = f"{base}/events?{urllib.parse.urlencode(subjects)}"
    asked_s = now_s()
    try:
        if not address.startswith(("http://", "https://")):
            raise ValueError("an address begins with http://")
        with urllib.request.urlopen(address, timeout=TIMEOUT_S) as answer:
            text = answer.read(PAGE_BYTES_MAX).decode("utf-8", "replace")
    except (OSError, ValueError) as error:
        return [], [f"the events of {base}: {error}"]
    return page_events(base, text, asked_s, now_s())


def page_events(
    base: str, text: str, asked_s: float, answered_s: float
) -> tuple[list[Event], list[str]]:
    """The events of an answer, by our clock, and what it says is missing."""
    first, _, rest = text.partition("\n")
    try:
        head = json.loads(first)
    except (ValueError, RecursionError):
        head = None
    if not isinstance(head, dict) or "kept_of_each_event" not in head:
        return [], [f"the events of {base}: it is no tidelog broker that keeps events"]
    broker_id = head.get("broker_id")
    broker_id = broker_id if isinstance(broker_id, int) else None
    name = f"broker {broker_id}" if broker_id is not None else base
    ahead_ms = clock_difference(parsed_time(head.get("now")), asked_s, answered_s)
    events = [
        event._replace(at_ms=event.at_ms - ahead_ms, broker_id=broker_id)
        for line in rest.splitlines()
        if (event := event_of(line)) is not None
    ]
    problems = []
    if ahead_ms:
        where = "ahead of" if ahead_ms > 0 else "behind"
        problems.append(
            f"the clock of {name} is {abs(ahead_ms)} ms {where} this one; times are corrected"
        )
    if head.get("is_logged") is False:
        problems.append(f"{name} logs no events: its log level is above info")
    fell_out = head.get("fell_out")
    if isinstance(fell_out, dict) and fell_out:
        kinds = ", ".join(sorted(map(str, fell_out))[:10])
        problems.append(f"{name} has forgotten its oldest events ({kinds}); its log has them")
    if head.get("left_out"):
        problems.append(f"{name} left out {head['left_out']} older events; its log has them")
    if isinstance(head.get("since"), str):
        problems.append(f"{name} tells of nothing before {head['since']}, when it started")
    return events, problems


def clock_difference(broker_ms: int | None, asked_s: float, answered_s: float) -> int:
    """How far the broker's clock is ahead; 0 if that may be the time of the request itself."""
    if broker_ms is None:
        return 0
    asked_ms, answered_ms = int(asked_s * 1_000), int(answered_s * 1_000)
    if asked_ms - 1 <= broker_ms <= answered_ms + 1:
        return 0
    return broker_ms - (asked_ms + answered_ms) // 2


# Log files


def read_file(path: Path, subjects: Subjects) -> list[Event]:
    """OSError if it cannot be read."""
    with opened(path) as lines:
        return file_events(bounded_lines(lines), subjects)


def opened(path: Path) -> IO[bytes]:
    return gzip.open(path) if path.suffix == ".gz" else path.open("rb")  # type: ignore[return-value]


def bounded_lines(file: IO[bytes]) -> Iterator[str]:
    """Lines that are too long are passed over, and never held in memory."""
    is_rest = False
    while piece := file.readline(LINE_MAX):
        is_whole = piece.endswith(b"\n")
        if not is_rest and (is_whole or len(piece) < LINE_MAX):
            yield piece.decode("utf-8", "replace")
        is_rest = not is_whole


def file_events(lines: Iterable[str], subjects: Subjects) -> list[Event]:
    """A file is the log of one broker, unless its lines are labelled."""
    kept: deque[Event] = deque(maxlen=EVENTS_MAX)
    broker_id: int | None = None
    for line in lines:
        event = event_of(line)
        if event is None:
            continue
        if event.name == "broker-started" and event.broker_id is None:
            broker_id = event.number("broker_id")
        elif event.name == "partition-leading" and broker_id is None and event.broker_id is None:
            broker_id = event.number("leader")
        if concerns(event, subjects):
            kept.append(event)
    return [e if e.broker_id is not None else e._replace(broker_id=broker_id) for e in kept]
