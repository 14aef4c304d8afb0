"""Times and durations that `tidelog groups reset-offsets` understands."""

from __future__ import annotations

import pytest

from tidelog.tools.offset_reset import BadPlan, datetime_ms, duration_ms


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
