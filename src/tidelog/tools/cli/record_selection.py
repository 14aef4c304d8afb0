"""Which records `tidelog consume` shows: places in a partition, and filters.

A place is one of

    beginning, end     of the partition
    1234, -10, +10     an offset; ten before the end; ten after the beginning
    @1700000000000     the first record from that time on, in milliseconds since 1970,
    @2026-01-31        or as a date, a date and a time (2026-01-31T13:00, UTC unless it says
    @-2h               otherwise), or that long ago: ms, s, m, h, d

A range begins at its first place and ends before its second.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.tools.cli.session import UNITS_MS
from tidelog.types import TopicPartition

if TYPE_CHECKING:
    from tidelog.client.blocking.consumer import Consumer
    from tidelog.record.kernel import ConsumerRecord

WORDS: Final = {
    "beginning": "beginning",
    "start": "beginning",
    "earliest": "beginning",
    "end": "end",
    "latest": "end",
    "stored": "stored",
}
AGO: Final = re.compile(r"-(\d+(?:\.\d+)?)(ms|s|m|h|d)")
INT64_MAX: Final = (1 << 63) - 1


class Place(NamedTuple):
    """`kind`: beginning, end, stored, offset, before_end, after_beginning or time (in ms)."""

    kind: str
    value: int = 0


def parse_place(text: str, now_ms: int) -> Place:
    """Raises ValueError."""
    if text in WORDS:
        return Place(WORDS[text])
    if text.startswith("@"):
        return Place("time", parse_time(text[1:], now_ms))
    number = text[1:] if text[:1] in "+-" else text
    if not (number.isascii() and number.isdigit()) or int(number) > INT64_MAX:
        raise ValueError(
            f"{text!r} is no place in a partition; try beginning, end, 1234, -10, +10, @-1h or "
            "@2026-01-31T13:00"
        )
    kind = {"+": "after_beginning", "-": "before_end"}.get(text[0], "offset")
    return Place(kind, int(number))


def parse_time(text: str, now_ms: int) -> int:
    """Milliseconds since 1970. Raises ValueError."""
    ago = AGO.fullmatch(text)
    if ago is not None:
        return max(0, now_ms - round(float(ago[1]) * UNITS_MS[ago[2]]))
    if text.isascii() and text.isdigit() and int(text) <= INT64_MAX:
        return int(text)
    try:
        given = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"@{text} is no time; try @-1h, @2026-01-31, @2026-01-31T13:00 or @1700000000000"
        ) from None
    given = given if given.tzinfo is not None else given.replace(tzinfo=UTC)
    return max(0, round(given.timestamp() * 1_000))


class Span(NamedTuple):
    """From `start` on, before `stop`; without one, for ever."""

    start: int
    stop: int | None


def resolve_spans(
    consumer: Consumer,
    partitions: Sequence[TopicPartition],
    first: Place,
    last: Place | None,
) -> dict[TopicPartition, Span]:
    """Places as offsets of each partition, within its log."""
    beginnings = consumer.beginning_offsets(partitions)
    ends = consumer.end_offsets(partitions)
    starts = _resolve(consumer, first, beginnings, ends)
    if last is None:
        return {each: Span(starts[each], None) for each in partitions}
    stops = _resolve(consumer, last, beginnings, ends)
    return {each: Span(starts[each], stops[each]) for each in partitions}


def _resolve(
    consumer: Consumer,
    place: Place,
    beginnings: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    if place.kind == "time":
        found = consumer.offsets_for_times(dict.fromkeys(ends, place.value))
        return {
            each: end if (row := found.get(each)) is None else row.offset
            for each, end in ends.items()
        }
    return {each: offset_of(place, beginnings[each], end) for each, end in ends.items()}


def offset_of(place: Place, beginning: int, end: int) -> int:
    if place.kind == "beginning":
        return beginning
    if place.kind == "end":
        return end
    if place.kind == "after_beginning":
        return min(beginning + place.value, end)
    if place.kind == "before_end":
        return max(end - place.value, beginning)
    return max(place.value, beginning)


class RecordFilter:
    """Regular expressions that are searched for in keys, values and headers."""

    def __init__(
        self,
        key: str | None = None,
        value: str | None = None,
        headers: Sequence[str] = (),
    ) -> None:
        """A header is `name` or `name=regex`. Raises ValueError."""
        self._key = _pattern(key)
        self._value = _pattern(value)
        self._headers = [
            (name, _pattern(regex if equals else None))
            for name, equals, regex in (each.partition("=") for each in headers)
        ]
        self.is_empty = self._key is None and self._value is None and not self._headers

    def accepts(self, record: ConsumerRecord) -> bool:
        return (
            _found(self._key, record.key)
            and _found(self._value, record.value)
            and all(
                any(name == each and _found(regex, text) for each, text in record.headers)
                for name, regex in self._headers
            )
        )


def _pattern(text: str | None) -> re.Pattern[bytes] | None:
    if text is None:
        return None
    try:
        return re.compile(text.encode())
    except re.error as error:
        raise ValueError(f"{text!r} is no regular expression: {error}") from None


def _found(pattern: re.Pattern[bytes] | None, value: bytes | None) -> bool:
    return pattern is None or (value is not None and pattern.search(value) is not None)
