from __future__ import annotations

import json
from typing import Any, NamedTuple

from tidelog.spark.lag import query_lag
from tidelog.types import TopicPartition


class Progress(NamedTuple):
    json: str


class Query(NamedTuple):
    lastProgress: Progress | None


def query(*sources: dict[str, Any]) -> Query:
    return Query(Progress(json.dumps({"sources": sources})))


def test_lag_is_what_a_query_has_seen_and_not_read_of_each_partition() -> None:
    read = {"orders": {"0": 5, "1": 7}}
    seen = {"orders": {"0": 9, "1": 7, "2": 3}}
    assert query_lag(query({"latestOffset": seen, "endOffset": json.dumps(read)})) == {
        TopicPartition("orders", 0): 4,
        TopicPartition("orders", 1): 0,
        TopicPartition("orders", 2): 3,
    }


def test_sources_add_up_and_those_of_another_kind_have_no_lag() -> None:
    orders = {"latestOffset": {"orders": {"0": 9}}, "endOffset": {"orders": {"0": 5}}}
    rate = {"latestOffset": 17, "endOffset": 16}
    assert query_lag(query(orders, rate, {"latestOffset": None})) == {
        TopicPartition("orders", 0): 4
    }


def test_a_query_without_a_report_has_no_lag() -> None:
    assert query_lag(Query(None)) == {}


def test_the_id_of_a_topic_is_no_offset() -> None:
    source = {
        "endOffset": {"t": {"0": 10, "id": "7uIfjXpdQ6eSVFYqlTB3mA"}},
        "latestOffset": {"t": {"0": 12, "id": "7uIfjXpdQ6eSVFYqlTB3mA"}},
    }
    assert query_lag(query(source)) == {TopicPartition("t", 0): 2}
