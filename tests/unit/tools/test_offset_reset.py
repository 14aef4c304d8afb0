"""Times and durations that `tidelog groups reset-offsets` understands."""

from __future__ import annotations

import pytest

from tidelog.tools.offset_reset import BadPlan, Target, datetime_ms, duration_ms, target_of


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-01T00:00:01.500", 1500),
        ("1970-01-01T01:00:00.000+01:00", 0),
        ("1970-01-02", 86_400_000),
    ],
)
def test_time_is_that_of_utc_unless_it_says_otherwise(text: str, expected: int) -> None:
    assert datetime_ms(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("PT0S", 0),
        ("PT1.5S", 1500),
        ("P1D", 86_400_000),
        ("P1DT2H3M4S", 93_784_000),
    ],
)
def test_duration_is_of_days_to_seconds(text: str, expected: int) -> None:
    assert duration_ms(text) == expected


@pytest.mark.parametrize("text", ["", "P", "PT", "1D", "P1H", "PT1D", "P-1D"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(BadPlan, match="no duration"):
        duration_ms(text)


def test_what_is_no_time_is_refused() -> None:
    with pytest.raises(BadPlan, match="yesterday"):
        datetime_ms("yesterday")


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("to-earliest", "", Target("earliest")),
        ("to-latest", "True", Target("latest")),
        ("to-current", "", Target("current")),
        ("to-offset", "12", Target("offset", 12)),
        ("shift-by", "-3", Target("shift", -3)),
        ("to-datetime", "1970-01-01T00:00:01", Target("timestamp", 1_000)),
        ("by-duration", "PT10S", Target("timestamp", 90_000)),
    ],
)
def test_a_target_has_the_name_of_its_flag(kind: str, value: str, expected: Target) -> None:
    assert target_of(kind, value, now_ms=100_000) == expected


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("", ""),
        ("to-hell", ""),
        ("to-offset", ""),
        ("to-offset", "many"),
        ("shift-by", "1.5"),
        ("to-datetime", "soon"),
        ("by-duration", ""),
    ],
)
def test_what_is_no_target_is_refused(kind: str, value: str) -> None:
    with pytest.raises(BadPlan):
        target_of(kind, value, now_ms=0)
