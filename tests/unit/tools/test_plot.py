from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.tools.cli.plot import over_time, percentile, resample, short_number, spread


def test_columns_are_as_high_as_their_values() -> None:
    assert over_time([0, 4, 8], width=10, height=2, unit="x/s") == [
        "8 │  █  x/s",
        "0 │ ██",
        "  └───",
    ]


def test_many_values_share_a_column() -> None:
    assert resample([1, 3, 5, 7], 2) == [2, 6]
    assert resample([1, 2], 10) == [1, 2]


def test_a_histogram_counts_every_value() -> None:
    lines = spread([1.0, 1.0, 10.0, 100.0], width=10, rows=2, unit="ms")
    assert [line.rpartition(" ")[2] for line in lines] == ["2", "2"]
    assert spread([], width=10, rows=2, unit="ms") == []
    assert over_time([], width=10, height=2, unit="x") == []


@given(
    st.lists(st.floats(0, 1e12), min_size=1, max_size=200),
    st.integers(1, 60),
    st.integers(1, 10),
)
def test_any_values_can_be_drawn(values: list[float], width: int, height: int) -> None:
    lines = over_time(values, width=width, height=height, unit="u")
    assert len(lines) == height + 1
    counts = [
        int(line.rpartition(" ")[2].replace(",", ""))
        for line in spread(values, width=width, rows=height, unit="u")
    ]
    assert sum(counts) == len(values)


@pytest.mark.parametrize(
    ("share", "expected"), [(0.0, 1), (0.5, 50), (0.99, 99), (0.999, 100), (1.0, 100)]
)
def test_percentiles_are_values_that_occurred(share: float, expected: float) -> None:
    assert percentile(list(range(1, 101)), share) == expected


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (12.345, "12.3"), (1_234_567, "1.23M"), (2e9, "2G"), (999, "999")]
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert short_number(value) == text
