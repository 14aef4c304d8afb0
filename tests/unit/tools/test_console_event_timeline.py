"""The rows of the console's timeline."""

from __future__ import annotations

import re
from pathlib import Path

from tidelog.tools.console.event_timeline import (
    KINDS,
    EventFilter,
    Kind,
    row_of,
    rows_of,
)
from tidelog.tools.explain.events import Event

OBSERVABILITY = Path(__file__).resolve().parents[3] / "docs" / "observability.md"

ELECTED = Event(
    1_000,
    1,
    "leader-elected",
    {"msg": "leader elected", "event": "leader-elected", "partition": "orders-0", "leader": 2},
)
REBALANCE = Event(2_000, 2, "rebalance-began", {"group": "billing", "reason": "a <b>joins</b>"})
STRANGE = Event(3_000, None, "from-the-future", {"group": "billing", "x": [1, 2]})
ALL = [ELECTED, REBALANCE, STRANGE]


def test_an_event_is_about_its_subject_and_keeps_its_other_fields() -> None:
    row = row_of(ELECTED)
    assert (row.kind, row.subject, row.about) == (Kind.ELECTIONS, "partition", "orders-0")
    assert (row.message, row.fields) == ("leader elected", (("leader", "2"),))


def test_an_event_that_is_not_known_is_shown_too() -> None:
    row = row_of(STRANGE)
    assert (row.kind, row.about, row.fields) == (Kind.OTHER, "billing", (("x", "[1, 2]"),))


def test_every_documented_event_has_a_kind() -> None:
    named = re.findall(r"^\| `([a-z-]+)` \|", OBSERVABILITY.read_text(), re.MULTILINE)
    events = {name for name in named if "-" in name}
    assert events - KINDS.keys() == set()


def names(wanted: EventFilter) -> list[str]:
    return [row.name for row in rows_of(ALL, wanted)[0]]


def test_rows_are_filtered_and_the_newest_comes_first() -> None:
    assert names(EventFilter()) == ["from-the-future", "rebalance-began", "leader-elected"]
    assert names(EventFilter(kind="groups")) == ["rebalance-began"]
    assert names(EventFilter(name="leader-elected")) == ["leader-elected"]
    assert names(EventFilter(broker_id=2)) == ["rebalance-began"]
    assert names(EventFilter(text="BILLING")) == ["from-the-future", "rebalance-began"]
    assert names(EventFilter(text="leader=2")) == ["leader-elected"]
    assert names(EventFilter(kind="no kind")) == []


def test_of_many_rows_the_last_are_shown() -> None:
    events = [ELECTED._replace(at_ms=number) for number in range(10)]
    shown, left_out = rows_of(events, EventFilter(), rows_max=4)
    assert ([row.at_ms for row in shown], left_out) == ([9, 8, 7, 6], 6)


def test_long_values_are_cut() -> None:
    row = row_of(Event(0, 1, "member-left", {"group": "g" * 5_000, "reason": "r" * 5_000}))
    assert (len(row.about), len(row.fields[0][1])) == (300, 300)
