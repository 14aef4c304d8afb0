"""Which records are asked for: the fields of a form, checked.

    topic                       its name
    from                        newest, oldest, offset or time
    at                          the offset or the time to begin at
    to                          where to end, of the same kind: an offset, or a time
    partitions                  numbers and ranges: 0,3-5; empty for all
    limit                       records of a page
    committed                   1: without open and aborted transactions
    key, value, header          texts that must be in there; a header is NAME or NAME=TEXT
    filter                      an expression (expression.py)
    key-decoder, value-decoder  of decoding.DECODERS

Times are 2026-01-31T13:00 (UTC unless they say otherwise), milliseconds since 1970, or -2h.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tidelog.tools.cli.record_selection import parse_time
from tidelog.tools.console.messages.cursor import OFFSET_MAX, PARTITION_MAX, Direction, Span
from tidelog.tools.console.messages.decoding import DECODERS
from tidelog.tools.console.messages.expression import (
    And,
    Comparison,
    Existence,
    ExpressionError,
    Field,
    Literal,
    Node,
    parse_expression,
)
from tidelog.tools.console.messages.source import TopicSource

PLACES: Final = {
    "newest": "the newest",
    "oldest": "the oldest",
    "offset": "an offset on",
    "time": "a time on",
}
LIMITS: Final = (20, 50, 100, 200)
LIMIT: Final = 50
TEXT_MAX: Final = 1_000
PARTITIONS_MAX: Final = 10_000


class BadSelection(ValueError):
    """`field` is the one at fault."""

    def __init__(self, field: str, told: str) -> None:
        super().__init__(told)
        self.field = field


@dataclass(frozen=True, slots=True)
class Selection:
    topic: str
    place: str = "newest"
    start: int | None = None  # an offset, or milliseconds since 1970
    stop: int | None = None
    partitions: frozenset[int] | None = None
    limit: int = LIMIT
    is_committed: bool = False
    key_decoder: str = "auto"
    value_decoder: str = "auto"
    condition: Node | None = None

    @property
    def direction(self) -> Direction:
        return Direction.NEWEST_FIRST if self.place == "newest" else Direction.OLDEST_FIRST


def parse_selection(asked: Mapping[str, str], now_ms: int) -> Selection:
    """Raises BadSelection."""
    place = asked.get("from") or "newest"
    if place not in PLACES:
        raise BadSelection("from", f"{place[:40]} is none of {', '.join(PLACES)}")
    return Selection(
        topic=asked.get("topic", ""),
        place=place,
        start=_start(place, asked.get("at", "").strip(), now_ms),
        stop=_place("to", place, asked.get("to", "").strip(), now_ms),
        partitions=parse_partitions(asked.get("partitions", "")),
        limit=_limit(asked.get("limit", "")),
        is_committed=asked.get("committed") == "1",
        key_decoder=_decoder(asked, "key-decoder"),
        value_decoder=_decoder(asked, "value-decoder"),
        condition=_condition(asked),
    )


def _start(place: str, text: str, now_ms: int) -> int | None:
    if place not in ("offset", "time"):
        return None
    if not text:
        raise BadSelection("at", f"say from which {place}")
    return _place("at", place, text, now_ms)


def _place(field: str, place: str, text: str, now_ms: int) -> int | None:
    if not text:
        return None
    if place == "offset":
        number = _number_or_none(text.replace(",", ""), OFFSET_MAX)
        if number is None:
            raise BadSelection(field, f"{text[:40]} is no offset")
        return number
    try:
        return parse_time(text.removeprefix("@"), now_ms)
    except (OverflowError, ValueError):
        raise BadSelection(
            field, f"{text[:40]} is no time, such as 2026-01-31T13:00 or -2h"
        ) from None


def parse_partitions(text: str) -> frozenset[int] | None:
    """Raises BadSelection; None for all."""
    found: set[int] = set()
    for part in text.replace(" ", ",").split(","):
        if not part:
            continue
        first, dash, last = part.partition("-")
        low = _number_or_none(first, PARTITION_MAX)
        high = _number_or_none(last, PARTITION_MAX) if dash else low
        if low is None or high is None or high < low:
            raise BadSelection("partitions", f"{part[:40]} is no partition; write 0,3-5")
        if high - low + len(found) >= PARTITIONS_MAX:
            raise BadSelection("partitions", f"these are more than {PARTITIONS_MAX} partitions")
        found.update(range(low, high + 1))
    return frozenset(found) or None


def _limit(text: str) -> int:
    number = _number_or_none(text, LIMITS[-1]) if text else LIMIT
    if not number:
        raise BadSelection("limit", f"a page has 1 to {LIMITS[-1]} records")
    return number


def _number_or_none(text: str, most: int) -> int | None:
    text = text.strip()
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        return None
    return number if (number := int(text)) <= most else None


def _decoder(asked: Mapping[str, str], field: str) -> str:
    name = asked.get(field) or "auto"
    if name not in DECODERS:
        raise BadSelection(field, f"{name[:40]} is no decoder; there are {', '.join(DECODERS)}")
    return name


def _condition(asked: Mapping[str, str]) -> Node | None:
    parts: list[Node] = []
    for name in ("key", "value"):
        text = _text(asked, name)
        if text:
            parts.append(Comparison("contains", Field(name), Literal(text)))
    header = _text(asked, "header").strip()
    if header:
        name, equals, text = header.partition("=")
        field = Field("headers", (), name)
        parts.append(Comparison("contains", field, Literal(text)) if equals else Existence(field))
    expression = asked.get("filter", "").strip()
    if expression:
        try:
            parts.append(parse_expression(expression))
        except ExpressionError as problem:
            raise BadSelection("filter", str(problem)) from None
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else And(tuple(parts))


def _text(asked: Mapping[str, str], field: str) -> str:
    text = asked.get(field, "")
    if len(text) > TEXT_MAX:
        raise BadSelection(field, f"at most {TEXT_MAX} characters")
    return text


async def spans_of(selection: Selection, source: TopicSource) -> dict[int, Span]:
    """The offsets that it means now, of each partition."""
    bounds = await source.bounds()
    starts = {partition: span.start for partition, span in bounds.items()}
    stops = {partition: span.stop for partition, span in bounds.items()}
    if selection.place == "offset":
        starts = dict.fromkeys(bounds, selection.start or 0)
        if selection.stop is not None:
            stops = dict.fromkeys(bounds, selection.stop)
    else:
        if selection.start is not None:
            starts = stops | await source.offsets_at(selection.start)
        if selection.stop is not None:
            stops |= await source.offsets_at(selection.stop)
    found: dict[int, Span] = {}
    for partition, span in bounds.items():
        start = min(max(starts[partition], span.start), span.stop)
        found[partition] = Span(start, max(start, min(stops[partition], span.stop)))
    return found
