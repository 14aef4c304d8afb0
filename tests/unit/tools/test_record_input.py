from __future__ import annotations

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.tools.cli.frame import CommandFailed
from tidelog.tools.cli.output import json_line
from tidelog.tools.cli.record_input import (
    InputRecord,
    LineParser,
    parse_json_lines,
    parse_json_record,
    split_records,
)


@pytest.mark.parametrize(
    ("text", "delimiter", "pieces"),
    [
        (b"a\nb\n", b"\n", [b"a", b"b"]),
        (b"a\nb", b"\n", [b"a", b"b"]),
        (b"a\n\nb\n", b"\n", [b"a", b"", b"b"]),
        (b"", b"\n", []),
        (b"a--b", b"--", [b"a", b"b"]),
    ],
)
def test_records_are_split_at_their_delimiter(
    text: bytes, delimiter: bytes, pieces: list[bytes]
) -> None:
    assert list(split_records(io.BytesIO(text), delimiter)) == pieces


def test_keys_stand_before_their_delimiter() -> None:
    parser = LineParser(b":", b"NULL")
    assert list(parser.parse([b"k:v:w", b"alone", b"k:NULL", b":v"])) == [
        InputRecord(b"v:w", b"k"),
        InputRecord(b"alone"),
        InputRecord(None, b"k"),
        InputRecord(b"v", b""),
    ]


def test_json_may_leave_out_what_it_likes() -> None:
    assert parse_json_record({"value": "v"}) == InputRecord(b"v")
    assert parse_json_record({"key": "k"}) == InputRecord(None, b"k")
    assert parse_json_record({"value": {"a": [1, None]}}).value == b'{"a":[1,null]}'
    assert parse_json_record({"value": {"base64": "AP8="}}).value == b"\x00\xff"
    assert parse_json_record({"headers": {"a": "1", "b": None}}).headers == (
        ("a", b"1"),
        ("b", None),
    )


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"{", "line 1: Expecting property name"),
        (b"[]", "line 1: a record is an object"),
        (b'{"vlaue": 1}', "line 1: vlaue is no field"),
        (b'{"partition": -1}', "line 1: partition is a number"),
        (b'{"partition": true}', "line 1: partition is a number"),
        (b'{"headers": [1]}', "line 1: headers are a list"),
        (b'{"value": {"base64": "?"}}', "line 1: a value of base64"),
        (b"[" * 100_000, "line 1: "),
        (b"\xff", "line 1: "),
    ],
)
def test_bad_json_is_refused_with_its_line(line: bytes, problem: str) -> None:
    with pytest.raises(CommandFailed, match=problem):
        list(parse_json_lines([line]))


values = st.none() | st.binary(max_size=20)


@given(values, values, st.lists(st.tuples(st.text(max_size=5), values), max_size=3))
def test_what_consume_prints_produce_reads(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    row = {
        "topic": "t",
        "partition": 1,
        "offset": 7,
        "timestamp": 5,
        "key": key,
        "value": value,
        "headers": [{"key": name, "value": text} for name, text in headers],
    }
    (record,) = parse_json_lines([json_line(row).encode()])
    assert record == InputRecord(value, key, tuple(headers), 1, 5)
    assert json.loads(json_line(row))["offset"] == 7
