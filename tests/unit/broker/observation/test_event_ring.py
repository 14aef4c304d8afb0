"""The ring of recent events: what it keeps, what it tells is missing, and its bounds."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from tidelog.broker.observation.event_ring import (
    ITEMS_MAX,
    LINES_MAX,
    TEXT_MAX,
    BadFilter,
    EventRing,
)

logger = logging.getLogger("tidelog.test_event_ring")


@pytest.fixture
def ring() -> Iterator[EventRing]:
    made = EventRing(3)
    made.broker_id = 7
    made.attach()
    logger.setLevel(logging.INFO)
    yield made
    made.detach()
    logger.setLevel(logging.NOTSET)


def tell(event: str, **fields: object) -> None:
    logger.info("it happened", extra={"event": event, **fields})


def rows(ring: EventRing, query: str = "") -> list[dict[str, Any]]:
    return [json.loads(line) for line in ring.page(query).splitlines()]


def test_a_flood_of_one_kind_pushes_out_no_other(ring: EventRing) -> None:
    tell("leader-elected", partition="orders-0")
    for number in range(10):
        tell("client-throttled", number=number)
    head, *events = rows(ring)
    assert head["broker_id"] == 7
    assert head["fell_out"] == {"client-throttled": 7}
    assert [each["event"] for each in events] == ["leader-elected"] + ["client-throttled"] * 3
    assert [each.get("number") for each in events] == [None, 7, 8, 9]


def test_a_filter_passes_its_subjects_and_the_events_of_the_broker(ring: EventRing) -> None:
    tell("isr-changed", partition="orders-0")
    tell("isr-changed", partition="orders-1")
    tell("brokers-changed", gone=[2])
    tell("rebalance-began", group="a b")
    found = [each["event"] for each in rows(ring, "partition=orders-0")[1:]]
    assert found == ["isr-changed", "brokers-changed"]
    assert len(rows(ring, "group=a+b&event=rebalance-began")) == 2
    assert len(rows(ring, "partition=orders-0&partition=orders-1")) == 4


@pytest.mark.parametrize("query", ["colour=red", "partition", "&".join(["event=x"] * 200)])
def test_a_query_that_asks_for_something_else_is_refused(ring: EventRing, query: str) -> None:
    with pytest.raises(BadFilter):
        ring.page(query)


def test_what_a_client_makes_long_is_cut(ring: EventRing) -> None:
    changing = ["x" * 5_000] * 500
    tell("request-refused", reason="r" * 50_000, many=changing, table={"k" * 5_000: "v" * 5_000})
    changing.clear()
    (event,) = rows(ring)[1:]
    assert len(event["reason"]) == TEXT_MAX
    assert len(event["many"]) == ITEMS_MAX
    assert len(ring.page("")) < 200_000


def test_an_answer_is_bounded_and_says_what_it_left_out() -> None:
    ring = EventRing(LINES_MAX + 5)
    for number in range(LINES_MAX + 5):
        record = logging.makeLogRecord({"msg": "m", "event": "slow-request", "number": number})
        ring.handle(record)
    head, *events = rows(ring)
    assert head["left_out"] == 5
    assert len(events) == LINES_MAX
    assert events[0]["number"] == 5


def test_lines_of_no_event_are_not_kept(ring: EventRing) -> None:
    logger.info("only words")
    assert len(rows(ring)) == 1
