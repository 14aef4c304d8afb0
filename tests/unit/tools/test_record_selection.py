from __future__ import annotations

from typing import NamedTuple

import pytest

from tidelog.tools.cli.record_selection import Place, RecordFilter, offset_of, parse_place

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


class Record(NamedTuple):
    key: bytes | None = b"user-1"
    value: bytes | None = b'{"a": 1}'
    headers: tuple[tuple[str, bytes | None], ...] = (("trace", b"abc"), ("empty", None))


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("beginning", Place("beginning")),
        ("earliest", Place("beginning")),
        ("end", Place("end")),
        ("1234", Place("offset", 1234)),
        ("-10", Place("before_end", 10)),
        ("+10", Place("after_beginning", 10)),
        ("@1600000000000", Place("time", 1_600_000_000_000)),
        ("@-1h", Place("time", NOW_MS - HOUR_MS)),
        ("@-1.5h", Place("time", NOW_MS - HOUR_MS * 3 // 2)),
        ("@-99999d", Place("time", 0)),
        ("@2023-11-14T22:13:20", Place("time", NOW_MS)),
        ("@2023-11-14T23:13:20+01:00", Place("time", NOW_MS)),
        ("@2023-11-14", Place("time", 1_699_920_000_000)),
    ],
)
def test_places_are_understood(text: str, place: Place) -> None:
    assert parse_place(text, NOW_MS) == place


@pytest.mark.parametrize(
    "text", ["", "x", "-", "+", "@", "@x", "@-1w", "--5", "1.5", "²", "99999999999999999999"]
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no "):
        parse_place(text, NOW_MS)


@pytest.mark.parametrize(
    ("place", "offset"),
    [
        (Place("beginning"), 100),
        (Place("end"), 200),
        (Place("offset", 150), 150),
        (Place("offset", 50), 100),
        (Place("offset", 500), 500),
        (Place("before_end", 10), 190),
        (Place("before_end", 500), 100),
        (Place("after_beginning", 10), 110),
        (Place("after_beginning", 500), 200),
    ],
)
def test_a_place_is_an_offset_of_a_log_from_100_to_200(place: Place, offset: int) -> None:
    assert offset_of(place, 100, 200) == offset


@pytest.mark.parametrize(
    ("key", "value", "headers", "accepted"),
    [
        (None, None, (), True),
        ("^user-", None, (), True),
        ("^x", None, (), False),
        (None, '"a": [0-9]', (), True),
        ("user", "nothing", (), False),
        (None, None, ("trace",), True),
        (None, None, ("trace=^ab",), True),
        (None, None, ("trace=^b",), False),
        (None, None, ("empty",), True),
        (None, None, ("empty=x",), False),
        (None, None, ("absent",), False),
    ],
)
def test_a_filter_searches_keys_values_and_headers(
    key: str | None, value: str | None, headers: tuple[str, ...], accepted: bool
) -> None:
    wanted = RecordFilter(key, value, headers)
    assert wanted.accepts(Record()) is accepted  # type: ignore[arg-type]


def test_an_absent_key_matches_no_pattern() -> None:
    assert not RecordFilter(key="").accepts(Record(key=None))  # type: ignore[arg-type]


def test_a_bad_pattern_is_refused() -> None:
    with pytest.raises(ValueError, match="no regular expression"):
        RecordFilter(value="(")
