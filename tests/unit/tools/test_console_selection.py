"""The fields of the messages form: what they mean, and what is refused at which field."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from tests.support.console_log import ConsoleLog, record_of
from tidelog.tools.console.messages.cursor import Direction, Span
from tidelog.tools.console.messages.expression import (
    And,
    Comparison,
    Existence,
    Field,
    Literal,
    Truth,
)
from tidelog.tools.console.messages.selection import (
    BadSelection,
    Selection,
    parse_partitions,
    parse_selection,
    spans_of,
)
from tidelog.tools.console.messages.source import TopicSource

NOW_MS = 1_767_225_600_000  # 2026-01-01


def test_an_empty_form_means_the_newest_records() -> None:
    found = parse_selection({"topic": "orders"}, NOW_MS)

    assert found == Selection("orders")
    assert found.direction is Direction.NEWEST_FIRST


def test_filters_of_the_form_come_together() -> None:
    found = parse_selection(
        {"topic": "t", "key": "k", "value": "v", "header": "type=x", "filter": "value.a"}, NOW_MS
    )

    assert found.condition == And(
        (
            Comparison("contains", Field("key"), Literal("k")),
            Comparison("contains", Field("value"), Literal("v")),
            Comparison("contains", Field("headers", (), "type"), Literal("x")),
            Truth(Field("value", ("a",))),
        )
    )
    only_name = parse_selection({"header": "type"}, NOW_MS)
    assert only_name.condition == Existence(Field("headers", (), "type"))


def test_times_and_offsets() -> None:
    by_time = parse_selection({"from": "time", "at": "-1s", "to": "2026-01-01"}, NOW_MS)
    by_offset = parse_selection({"from": "offset", "at": "1,000", "to": "2000"}, NOW_MS)

    assert (by_time.start, by_time.stop) == (NOW_MS - 1_000, NOW_MS)
    assert (by_offset.start, by_offset.stop) == (1_000, 2_000)


def test_partitions_are_numbers_and_ranges() -> None:
    assert parse_partitions("0, 3-5") == frozenset({0, 3, 4, 5})
    assert parse_partitions("") is None


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"from": "somewhere"}, "from"),
        ({"from": "offset"}, "at"),
        ({"from": "offset", "at": "x"}, "at"),
        ({"from": "offset", "at": "9" * 30}, "at"),
        ({"from": "time", "at": "soon"}, "at"),
        ({"to": "12x"}, "to"),
        ({"partitions": "5-3"}, "partitions"),
        ({"partitions": "a"}, "partitions"),
        ({"partitions": "0-2000000000"}, "partitions"),
        ({"limit": "0"}, "limit"),
        ({"limit": "100000"}, "limit"),
        ({"key-decoder": "rot13"}, "key-decoder"),
        ({"filter": "value ="}, "filter"),
        ({"value": "x" * 2_000}, "value"),
    ],
)
def test_what_is_wrong_is_told_with_its_field(asked: dict[str, str], field: str) -> None:
    with pytest.raises(BadSelection) as caught:
        parse_selection(asked, NOW_MS)

    assert caught.value.field == field


class TimedLog(ConsoleLog):
    async def offsets_at(self, timestamp: int) -> dict[int, int]:
        found = {}
        for partition, rows in self.records.items():
            later = [each.offset for each in rows if each.timestamp >= timestamp]
            if later:
                found[partition] = later[0]
        return found


def spans(selection: Selection) -> dict[int, Span]:
    log = TimedLog(
        [record_of(each, timestamp=each * 10) for each in range(10)]
        + [record_of(each, partition=1, timestamp=each) for each in range(5)]
    )
    log.starts[0] = 2
    return asyncio.run(spans_of(selection, cast(TopicSource, log)))


def test_places_become_offsets_within_the_log() -> None:
    whole = {0: Span(2, 10), 1: Span(0, 5)}
    assert spans(Selection("t")) == whole
    assert spans(Selection("t", "oldest")) == whole
    assert spans(Selection("t", "offset", 1, 4)) == {0: Span(2, 4), 1: Span(1, 4)}
    assert spans(Selection("t", "offset", 100)) == {0: Span(10, 10), 1: Span(5, 5)}
    assert spans(Selection("t", "time", 50)) == {0: Span(5, 10), 1: Span(5, 5)}
    assert spans(Selection("t", "newest", None, 30)) == {0: Span(2, 3), 1: Span(0, 5)}
    assert spans(Selection("t", "time", 50, 20)) == {0: Span(5, 5), 1: Span(5, 5)}
