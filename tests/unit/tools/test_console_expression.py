"""Expressions that choose records: what is read, and what is refused and where."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.tools.console.messages.expression import (
    CONDITIONS_MAX,
    DEPTH_MAX,
    LENGTH_MAX,
    And,
    Comparison,
    Constant,
    Existence,
    ExpressionError,
    Field,
    Literal,
    Matching,
    Membership,
    Not,
    Or,
    Truth,
    found_anywhere,
    parse_expression,
)


def test_and_binds_tighter_than_or_and_not_tighter_than_and() -> None:
    found = parse_expression("value.a or not value.b and value.c")

    a, b, c = (Truth(Field("value", (name,))) for name in "abc")
    assert found == Or((a, And((Not(b), c))))


def test_parentheses_group() -> None:
    found = parse_expression("(value.a or value.b) and true")

    both = Or((Truth(Field("value", ("a",))), Truth(Field("value", ("b",)))))
    assert found == And((both, Constant(True)))


def test_paths_have_names_quoted_names_and_indexes() -> None:
    found = parse_expression('value.a["b c"][0].d == 1')

    assert found == Comparison("==", Field("value", ("a", "b c", 0, "d")), Literal(1))


def test_a_header_has_a_name_and_may_have_a_path() -> None:
    assert parse_expression('exists(headers["type"])') == Existence(Field("headers", (), "type"))
    assert parse_expression("exists(headers.trace.id)") == Existence(
        Field("headers", ("id",), "trace")
    )


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('"a\\"b\\n\\u00e4"', 'a"b\nä'),
        ("'it\\'s'", "it's"),
        ("42", 42),
        ("-1.5e3", -1500.0),
        ("true", True),
        ("null", None),
    ],
)
def test_literals(text: str, value: object) -> None:
    assert parse_expression(f"value.a == {text}") == Comparison(
        "==",
        Field("value", ("a",)),
        Literal(value),  # type: ignore[arg-type]
    )


def test_signs_may_stand_for_the_words() -> None:
    assert parse_expression("!(value.a && value.b)") == parse_expression(
        "not (value.a and value.b)"
    )


def test_a_time_is_compared_with_the_timestamp_as_milliseconds() -> None:
    found = parse_expression('timestamp > "2026-01-01T00:00:00Z"')

    assert found == Comparison(">", Field("timestamp"), Literal(1_767_225_600_000))


def test_in_takes_a_list_of_literals() -> None:
    assert parse_expression('key in ("a", 2)') == Membership(Field("key"), ("a", 2))


def test_patterns_are_compiled_once_and_found_anywhere() -> None:
    found = parse_expression('key matches "^eu-[0-9]+$"')

    assert isinstance(found, Matching)
    assert found.pattern.matches("eu-12")
    assert not found.pattern.matches("eu-12x")
    assert found_anywhere("b|c").matches("xxcxx")


@pytest.mark.parametrize(
    ("text", "told", "position"),
    [
        ("", "expected a field or a literal, not the end", 0),
        ("value.a = 1", "write ==", 8),
        ("value.a == ", "not the end", 11),
        ("colour == 1", "colour is no field", 0),
        ('value.a == "x', "no closing quote", 11),
        ("value.a == 1 2", "expected and, or or the end", 13),
        ("(value.a", "expected )", 8),
        ("value.a # 1", "means nothing here", 8),
        ('key matches "(a"', "no pattern", 12),
        ("key matches 5", "pattern in quotes", 12),
        ("key startswith 5", "text in quotes", 15),
        ('timestamp > "soon"', "is no time", 12),
        ('"a" contains "b"', "not a literal", 0),
        ("key in (value.a)", "list of literals", 8),
        ("offset", "expected a comparison", 6),
        ("5", "expected a comparison", 1),
        ("headers == 1", "a header is named", 8),
        ('value.a == "\\q"', "is no escape", 12),
        ("value[-1]", "name in quotes or an index", 6),
        ("exists(1)", "exists asks for a field", 7),
    ],
)
def test_what_is_wrong_is_told_with_its_place(text: str, told: str, position: int) -> None:
    with pytest.raises(ExpressionError) as caught:
        parse_expression(text)

    assert told in str(caught.value)
    assert caught.value.position == position


def test_length_depth_and_number_of_conditions_are_bounded() -> None:
    for text in (
        "key == " + '"a"' * LENGTH_MAX,
        "(" * (DEPTH_MAX + 1) + "true" + ")" * (DEPTH_MAX + 1),
        "not " * (DEPTH_MAX + 1) + "true",
        " or ".join(["true"] * (CONDITIONS_MAX + 1)),
        "key in (" + ",".join("1" * (CONDITIONS_MAX + 1)) + ")",
        "value" + ".a" * 50,
        "value.a == 1" + "0" * LENGTH_MAX,
    ):
        with pytest.raises(ExpressionError):
            parse_expression(text)


_PIECES = st.sampled_from(
    ["value", ".a", "[0]", "==", "and", "or", "not", "(", ")", '"x"', "5", "in", ",", "exists",
     "matches", "headers", '["t"]', "timestamp", "'", "\\", "é", " "]
)  # fmt: skip


@given(st.one_of(st.text(max_size=60), st.lists(_PIECES, max_size=25).map(" ".join)))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    found: ExpressionError | None = None
    try:
        parse_expression(text)
    except ExpressionError as problem:
        found = problem
    assert found is None or 0 <= found.position <= len(text)
