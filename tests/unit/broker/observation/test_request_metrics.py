"""Counters and quantiles of requests."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.broker.observation.error_counts import ROWS_MAX, count_errors
from tidelog.broker.observation.request_metrics import (
    SAMPLED,
    WINDOW_S,
    ApiMetrics,
    Histogram,
    RequestMetrics,
)
from tidelog.errors import ErrorCode
from tidelog.protocol.api_keys import ApiKey
from tidelog.protocol.messages.heartbeat import HeartbeatResponse
from tidelog.protocol.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)


def test_quantiles_are_off_by_less_than_an_eighth() -> None:
    rng = random.Random(7)
    times_s = sorted(rng.lognormvariate(-6, 2) for _ in range(5_000))
    histogram = Histogram()
    for seconds in times_s:
        histogram.add(seconds)
    quantiles = histogram.quantiles_ms((0.5, 0.95, 0.99, 0.999))
    assert quantiles is not None
    for fraction, found in zip((0.5, 0.95, 0.99, 0.999), quantiles, strict=True):
        true_ms = times_s[int(fraction * len(times_s)) - 1] * 1000
        assert found == pytest.approx(true_ms, rel=0.125, abs=0.002)


@given(st.floats(-10, 1e12))
def test_any_time_has_a_bucket(seconds: float) -> None:
    histogram = Histogram()
    histogram.add(seconds)
    assert histogram.count == 1
    assert histogram.quantiles_ms((0.5,)) is not None


def test_a_histogram_without_times_has_no_quantiles() -> None:
    assert Histogram().quantiles_ms((0.5,)) is None


def test_quantiles_cover_the_present_span_and_the_one_before() -> None:
    metrics = RequestMetrics()
    total = metrics.of(0).total
    total.add(1.0)
    metrics.maybe_turn(WINDOW_S)
    (median,) = total.quantiles_ms((0.5,)) or [0.0]
    assert median == pytest.approx(1000, rel=0.125)
    metrics.maybe_turn(WINDOW_S + 1)  # too early
    assert total.quantiles_ms((0.5,)) is not None
    metrics.maybe_turn(3 * WINDOW_S)
    assert total.quantiles_ms((0.5,)) is None
    assert total.count == 1


def test_the_first_request_and_every_eighth_is_timed_in_its_parts() -> None:
    metrics = ApiMetrics()
    timed = [metrics.begin(9) for _ in range(2 * SAMPLED + 1)]
    assert [n for n, is_timed in enumerate(timed) if is_timed] == [0, SAMPLED, 2 * SAMPLED]
    assert metrics.by_version[9] == 2 * SAMPLED + 1


def test_the_error_of_an_answer_and_those_of_its_rows_count() -> None:
    metrics = ApiMetrics()
    refused = HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
    count_errors(metrics, ApiKey.HEARTBEAT, refused)
    rows = [
        OffsetCommitResponsePartition(partition_index=n, error_code=code)
        for n, code in enumerate((0, 25, 25))
    ]
    answer = OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=rows)])
    count_errors(metrics, ApiKey.OFFSET_COMMIT, answer)
    count_errors(metrics, ApiKey.OFFSET_COMMIT, None)
    assert metrics.errors == {25: 3}


def test_a_long_answer_is_not_looked_through_to_its_end() -> None:
    metrics = ApiMetrics()
    row = OffsetCommitResponsePartition(error_code=25)
    topics = [OffsetCommitResponseTopic(name="t", partitions=[row]) for _ in range(2 * ROWS_MAX)]
    count_errors(metrics, ApiKey.OFFSET_COMMIT, OffsetCommitResponse(topics=topics))
    assert metrics.errors == {25: ROWS_MAX}
