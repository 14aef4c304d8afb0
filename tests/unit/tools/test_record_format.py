from __future__ import annotations

from typing import NamedTuple

import pytest

from tidelog.tools.cli.record_format import BadFormat, compile_format, iso_time, record_as_json


class Record(NamedTuple):
    """What a format sees of a consumer's record."""

    topic: str = "orders"
    partition: int = 2
    offset: int = 41
    timestamp: int = 1_700_000_000_123
    key: bytes | None = b"k"
    value: bytes | None = b"value"
    headers: tuple[tuple[str, bytes | None], ...] = (("a", b"1"), ("b", None))


def shown(text: str, record: Record | None = None, **options: object) -> bytes:
    return compile_format(text, **options)(record or Record())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"%t[%p]@%o %k=%s\n", b"orders[2]@41 k=value\n"),
        ("%K %S", b"1 5"),
        ("%R", b"\x00\x00\x00\x05"),
        ("%T %i", b"1700000000123 2023-11-14T22:13:20.123Z"),
        ("%h", b"a=1,b="),
        (r"100%%\t\\\x41\0", b"100%\t\\A\0"),
        ("", b""),
        ("ü%s", "üvalue".encode()),
    ],
)
def test_tokens_and_escapes_are_filled_in(text: str, expected: bytes) -> None:
    assert shown(text) == expected


def test_what_is_absent_is_shown_as_asked_and_has_length_minus_1() -> None:
    tombstone = Record(key=None, value=None)
    assert shown("%k|%s|%K|%S", tombstone) == b"||-1|-1"
    assert shown("%k|%s", tombstone, null=b"NULL") == b"NULL|NULL"
    assert shown("%R", tombstone) == b"\xff\xff\xff\xff"


@pytest.mark.parametrize("text", ["%q", "%", "\\", r"\q", r"\x4", r"\xzz"])
def test_an_unknown_token_or_escape_is_refused(text: str) -> None:
    with pytest.raises(BadFormat):
        compile_format(text)


def test_a_record_cannot_control_the_terminal() -> None:
    hostile = Record(value=b"\x1b]0;title\x07\ttab\nline \xc2\x9b2J \xc3\xbc")
    assert shown("%s", hostile, escape=True) == (
        b"\\x1b]0;title\\x07\ttab\nline \\xc2\\x9b2J \xc3\xbc"
    )
    assert shown("%s", hostile) == hostile.value


@pytest.mark.parametrize(
    ("timestamp_ms", "expected"),
    [(-1, "-"), (0, "1970-01-01T00:00:00.000Z"), (1 << 62, str(1 << 62))],
)
def test_odd_timestamps_have_a_text(timestamp_ms: int, expected: str) -> None:
    assert iso_time(timestamp_ms) == expected


def test_a_record_as_json_has_all_its_fields() -> None:
    row = record_as_json(Record())  # type: ignore[arg-type]
    assert row["headers"] == [{"key": "a", "value": b"1"}, {"key": "b", "value": None}]
    assert list(row) == ["topic", "partition", "offset", "timestamp", "key", "value", "headers"]
