from __future__ import annotations

import io
import json

import pytest

from tidelog.tools.cli.output import (
    Column,
    cell,
    columns,
    human_bytes,
    plain,
    show_rows,
    styled,
    table_lines,
    yaml_lines,
)

ROWS = [
    {"topic": "a", "partitions": 3, "racks": ["x", "y"], "internal": False},
    {"topic": "longer", "partitions": 12, "racks": [], "internal": True},
]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_table_pads_its_columns_and_puts_numbers_at_the_right() -> None:
    assert table_lines(ROWS, columns("topic", "partitions>", "racks", "internal")) == [
        "TOPIC   PARTITIONS  RACKS  INTERNAL",
        "a                3  x,y    no",
        "longer          12  -      yes",
    ]


def test_a_table_without_rows_has_its_headers() -> None:
    assert table_lines([], columns("a_b", "c=#C>")) == ["A-B  #C"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        ("", "-"),
        (0, "0"),
        ({"a": 1}, "a=1"),
        (b"\xff", "\\xff"),
        ("\x1b[2Jx\ny\tz\x9b", "\\x1b[2Jx\\ny\\tz\\x9b"),
    ],
)
def test_a_cell_is_one_line_that_leaves_the_terminal_alone(value: object, text: str) -> None:
    assert cell(value) == text


def test_colours_are_for_terminals_that_want_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert styled("x", "bad", Terminal()) == "\x1b[31mx\x1b[0m"
    assert styled("x", "bad", io.StringIO()) == "x"
    monkeypatch.setenv("NO_COLOR", "1")
    assert styled("x", "bad", Terminal()) == "x"


def test_padding_stays_outside_of_what_a_style_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr("sys.stdout", Terminal())
    shown = [Column("N", "n", style=lambda value: "bad" if value == 1 else ""), Column("M", "m")]
    _, first, second = table_lines([{"n": 1, "m": 2}, {"n": 22, "m": 3}], shown)
    assert first == "\x1b[31m1 \x1b[0m  2"
    assert second == "22  3"


@pytest.mark.parametrize(
    ("format", "printed"),
    [
        ("jsonl", '{"a":1}\n{"a":2}\n'),
        ("yaml", "- a: 1\n- a: 2\n"),
        ("json", '[\n  {\n    "a": 1\n  },\n  {\n    "a": 2\n  }\n]\n'),
    ],
)
def test_programs_get_all_fields(
    format: str, printed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    show_rows(format, [{"a": 1}, {"a": 2}], columns("b"))
    assert capsys.readouterr().out == printed


def test_yaml_quotes_what_it_would_read_as_something_else() -> None:
    value = {
        "word": "plain words",
        "number": "12",
        "flag": "no",
        "dash": "- x",
        "colon": "a: b",
        "empty": "",
        "none": None,
        "nested": {"list": [1, {"a": "b", "c": []}], "map": {}},
        "line": "a\nb",
    }
    assert list(yaml_lines(value)) == [
        "word: plain words",
        'number: "12"',
        'flag: "no"',
        'dash: "- x"',
        'colon: "a: b"',
        'empty: ""',
        "none: null",
        "nested:",
        "  list:",
        "    - 1",
        "    - a: b",
        "      c: []",
        "  map: {}",
        'line: "a\\nb"',
    ]


def test_bytes_are_text_or_base64() -> None:
    assert plain({"a": b"x", "b": b"\xff"}) == {"a": "x", "b": {"base64": "/w=="}}
    assert json.loads(json.dumps(plain((1, {2})))) == [1, [2]]


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (999, "999 B"), (1_500, "1.5 KB"), (2_000_000_000, "2.0 GB")]
)
def test_sizes_are_readable(count: int, text: str) -> None:
    assert human_bytes(count) == text
