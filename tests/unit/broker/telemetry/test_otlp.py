"""The reader of pushed metrics against Google's encoder, and against hostile bytes."""

from __future__ import annotations

import random

import pytest

from tests.support.otlp import counter, gauge, metrics_data, pairs, point
from tidelog.broker.telemetry.otlp import FIELDS_MAX, POINTS_MAX, MalformedMetrics, read_metrics


def test_gauges_sums_and_histograms_are_read() -> None:
    histogram = {
        "name": "h",
        "histogram": {
            "data_points": [{"count": 3, "sum": 4.5, "attributes": pairs({"t": "x"})}],
            "aggregation_temporality": 1,
        },
    }
    batch = read_metrics(
        metrics_data(
            gauge("g", point(1.5, topic="orders"), point(-2)),
            counter("c", point(7)),
            counter("all", point(8), delta=False),
            histogram,
            client_rack="r1",
        )
    )
    assert batch.resource == {"client_rack": "r1"}
    assert [tuple(each) for each in batch.points] == [
        ("g", {"topic": "orders"}, 1.5, False, False),
        ("g", {}, -2, False, False),
        ("c", {}, 7, True, True),
        ("all", {}, 8, True, False),
        ("h.count", {"t": "x"}, 3, True, True),
        ("h.sum", {"t": "x"}, 4.5, True, True),
    ]


def test_what_is_no_number_is_left_out() -> None:
    batch = read_metrics(metrics_data(gauge("g", point(float("nan")), point(float("inf")))))
    assert batch.points == []


def test_nothing_is_read_of_nothing() -> None:
    assert read_metrics(b"").points == []


@pytest.mark.parametrize(
    "data",
    [
        b"\x0a\x05ab",  # longer than what there is
        b"\x0a",
        b"\xff" * 20,
        b"\x0b",  # a group, which proto3 does not have
        b"\x08\x01",  # a number where a message belongs
        b"\x0a\x02\x08\x01",
    ],
)
def test_what_is_no_message_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedMetrics):
        read_metrics(data)


def test_more_points_than_anybody_needs_are_refused() -> None:
    with pytest.raises(MalformedMetrics, match="data points"):
        read_metrics(metrics_data(gauge("g", *[point(1)] * (POINTS_MAX + 1))))


def test_more_fields_than_anybody_needs_are_refused() -> None:
    with pytest.raises(MalformedMetrics, match="fields"):
        read_metrics(b"\x0a\x00" * (FIELDS_MAX + 1))


def test_mutated_pushes_are_read_or_refused() -> None:
    rng = random.Random(14)
    good = metrics_data(gauge("g", point(1.5, a="b")), counter("c", point(7)), rack="r")
    for _ in range(3_000):
        data = bytearray(good)
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        try:
            read_metrics(data[: rng.randrange(len(data) + 1)])
        except MalformedMetrics:
            continue
