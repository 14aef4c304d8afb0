"""What conditions mean, judged by another reading of them, and that needles leave no match out."""

from __future__ import annotations

import json
import operator
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.console_log import record_of
from tidelog.record.kernel import ConsumerRecord
from tidelog.tools.console.messages.decoding import Decoder
from tidelog.tools.console.messages.expression import parse_expression
from tidelog.tools.console.messages.filtering import RecordFilter

AUTO = Decoder("auto")
NOTHING: Any = object()

Oracle = Callable[[dict[str, Any]], bool]


def accepts(expression: str, record: ConsumerRecord) -> bool:
    """And the sieve lets through what is accepted."""
    wanted = RecordFilter(parse_expression(expression), AUTO, AUTO)
    is_accepted = wanted.accepts(record)
    if is_accepted and wanted.sieve is not None:
        assert wanted.sieve(record), (expression, record)
    return is_accepted


def of_json(document: object, **more: Any) -> ConsumerRecord:
    return record_of(7, json.dumps(document).encode(), **more)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("value.customer.id == 42", True),
        ("value.customer.id == 42.0", True),
        ('value.customer.id == "42"', False),
        ("value.customer.id != 42", False),
        ("value.missing != 42", True),
        ("value.missing == null", False),
        ("value.nothing == null", True),
        ("exists(value.nothing)", True),
        ("exists(value.missing)", False),
        ("value.is_new", True),
        ("value.is_new == 1", False),
        ("value.customer", False),
        ("value.items[1].price > 2.5", True),
        ("value.items[2].price > 0", False),
        ("value.customer.id < value.items[0].price", False),
        ("value.customer.id > value.items[0].price", True),
        ('value.tags contains "b"', True),
        ('value.tags contains "a b"', False),
        ("value.numbers contains 2", True),
        ("value.numbers contains true", False),
        ('value.name startswith "Zoë"', True),
        ('value.name endswith "Zoë"', False),
        ('value.name matches "^Zo. [A-Z]"', True),
        ('value contains "customer"', True),
        ('value in (1, "x")', False),
        ('value.name in ("x", "Zoë B")', True),
        ('key == "eu-1" and key startswith "eu-"', True),
        ('headers["type"] == "order"', True),
        ('headers["type"] == "old"', False),
        ('headers["count"] == 3', True),
        ('headers["none"] == null', True),
        ('headers["missing"] == null', False),
        ('exists(headers["type"]) and not exists(headers["missing"])', True),
        ("headers.meta.a == 1", True),
        ("offset == 7 and partition == 2", True),
        ("offset >= 8", False),
        ('timestamp >= "2026-01-01T00:00:00Z" and timestamp < "2026-01-01T00:00:02Z"', True),
        ("timestamp == 1767225601000", True),
        ("not (offset == 7)", False),
        ("offset == value.seven", True),
        ("false or true", True),
    ],
)
def test_what_conditions_mean(expression: str, expected: bool) -> None:
    document = {
        "customer": {"id": 42},
        "name": "Zoë B",
        "nothing": None,
        "is_new": True,
        "items": [{"price": 1}, {"price": 3.5}],
        "tags": ["a", "b"],
        "numbers": [1, 2],
        "seven": 7,
    }
    headers = (
        ("type", b"old"),
        ("type", b"order"),
        ("count", b"3"),
        ("none", None),
        ("meta", b'{"a": 1}'),
    )
    record = of_json(
        document, key=b"eu-1", partition=2, timestamp=1_767_225_601_000, headers=headers
    )

    assert accepts(expression, record) is expected


def test_null_keys_and_values_are_null_and_hold_nothing() -> None:
    record = record_of(0, None)

    assert accepts("value == null and key == null", record)
    assert not accepts('value contains "" or exists(value.a) or value.a == null', record)


def test_plain_text_and_the_content_of_a_json_text_are_equal_to_text() -> None:
    assert accepts('value == "abc"', record_of(0, b"abc"))
    assert accepts('value == "abc"', record_of(0, b'"abc"'))
    assert accepts("value > 41 and value == 42", record_of(0, b"42"))


def test_bytes_that_are_no_text_match_nothing_but_do_no_harm() -> None:
    record = record_of(0, b"\xff\xfe{", key=b"\x00\x01")

    assert not accepts('value.a == 1 or value == "x" or key contains "y"', record)


def test_other_decoders_are_seen_by_conditions() -> None:
    number = Decoder("int64")
    wanted = RecordFilter(parse_expression("key == 5 and value == 5"), number, AUTO)

    assert wanted.accepts(record_of(0, b"5", key=(5).to_bytes(8, "big")))
    assert not wanted.accepts(record_of(0, b"5", key=b"5"))


def test_json_nested_beyond_reading_is_no_document() -> None:
    assert not accepts("exists(value[0])", record_of(0, b"[" * 100_000))


def test_the_sieve_leaves_out_what_cannot_match() -> None:
    for expression, out in [
        ('value.a == "red"', b'{"a":"green"}'),
        ("value.a == 4711", b'{"a":12}'),
        ('value.a == 1 and value.b == "blue"', b'{"a":1,"b":"red"}'),
        ('key == "k1" or key == "k2"', b"{}"),
        ("exists(value.customer)", b'{"a":1}'),
    ]:
        wanted = RecordFilter(parse_expression(expression), AUTO, AUTO)
        assert wanted.sieve is not None, expression
        assert not wanted.sieve(record_of(0, out, key=b"k3"))


@pytest.mark.parametrize(
    "value",
    [
        b'{"a": 42}',
        b'{"a": 42.0}',
        b'{"a": 4.2e1}',
        b'{"a": 420E-1}',
        b'{"a": 41.9999999999999999999}',
        b'{"\\u0061": 42}',
    ],
)
def test_a_number_is_found_however_it_is_written(value: bytes) -> None:
    assert accepts("value.a == 42", record_of(0, value))


def test_a_text_is_found_however_it_is_written() -> None:
    for value in (b'{"a": "r\\u0065d/"}', b'{"a": "red\\/"}', b'{"a":"red/"}'):
        assert accepts('value.a == "red/"', record_of(0, value))


# Against another reading

_TEXTS = st.sampled_from(["red", "re", "", 'q"/\\n', "zoë", "4", "e1"])
_NUMBERS = st.one_of(st.integers(-3, 3), st.sampled_from([42, 1.5, 1e3, 10**12]))
_SCALARS = st.one_of(_TEXTS, _NUMBERS, st.booleans(), st.none())
_DOCUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "a": _SCALARS,
        "b": st.fixed_dictionaries({}, optional={"c": _SCALARS, "d": st.lists(_SCALARS)}),
    },
)
_PATHS = {
    "value.a": lambda document: document.get("a", NOTHING),
    "value.b.c": lambda document: document.get("b", {}).get("c", NOTHING),
    "value.b.d[0]": lambda document: (document.get("b", {}).get("d") or [NOTHING])[0],
}


def _kind(value: object) -> object:
    return (
        "number" if isinstance(value, int | float) and not isinstance(value, bool) else type(value)
    )


def _same(left: object, right: object) -> bool:
    return left is not NOTHING and _kind(left) == _kind(right) and left == right


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[object, object], bool]:
    return lambda left, right: (
        _kind(left) == _kind(right) and _kind(left) in ("number", str) and compare(left, right)
    )


_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "==": _same,
    "!=": lambda left, right: not _same(left, right),
    "<": _ordered(operator.lt),
    "<=": _ordered(operator.le),
    ">": _ordered(operator.gt),
    ">=": _ordered(operator.ge),
}
_TEXT_OPERATORS: dict[str, Callable[[str, str], bool]] = {
    "contains": operator.contains,
    "startswith": str.startswith,
    "endswith": str.endswith,
}


def _compared(path: str, sign: str, literal: object) -> tuple[str, Oracle]:
    get, compare = _PATHS[path], _OPERATORS[sign]
    return f"{path} {sign} {json.dumps(literal)}", lambda document: compare(get(document), literal)


def _tested(path: str, word: str, text: str) -> tuple[str, Oracle]:
    get, test = _PATHS[path], _TEXT_OPERATORS[word]

    def oracle(document: dict[str, Any]) -> bool:
        value = get(document)
        return isinstance(value, str) and test(value, text)

    return f"{path} {word} {json.dumps(text)}", oracle


def _listed(path: str, literals: list[object]) -> tuple[str, Oracle]:
    get = _PATHS[path]
    shown = ", ".join(map(json.dumps, literals))
    return f"{path} in ({shown})", lambda document: any(
        _same(get(document), each) for each in literals
    )


def _there(path: str) -> tuple[str, Oracle]:
    get = _PATHS[path]
    return f"exists({path})", lambda document: get(document) is not NOTHING


_paths = st.sampled_from(sorted(_PATHS))
_CONDITIONS = st.one_of(
    st.builds(_compared, _paths, st.sampled_from(sorted(_OPERATORS)), _SCALARS),
    st.builds(_tested, _paths, st.sampled_from(sorted(_TEXT_OPERATORS)), _TEXTS),
    st.builds(_listed, _paths, st.lists(_SCALARS, min_size=1, max_size=3)),
    st.builds(_there, _paths),
)


def _joined(inner: st.SearchStrategy[tuple[str, Oracle]]) -> st.SearchStrategy[tuple[str, Oracle]]:
    def both(word: str, left: tuple[str, Oracle], right: tuple[str, Oracle]) -> tuple[str, Oracle]:
        combine = (lambda a, b: a and b) if word == "and" else (lambda a, b: a or b)
        return f"({left[0]} {word} {right[0]})", lambda document: combine(
            left[1](document), right[1](document)
        )

    def negated(part: tuple[str, Oracle]) -> tuple[str, Oracle]:
        return f"not ({part[0]})", lambda document: not part[1](document)

    return st.one_of(
        st.builds(both, st.sampled_from(["and", "or"]), inner, inner), st.builds(negated, inner)
    )


@settings(max_examples=200)
@given(st.recursive(_CONDITIONS, _joined, max_leaves=6), _DOCUMENTS, st.booleans(), st.booleans())
@example(_compared("value.a", "==", "red"), {"a": "red"}, True, True)
def test_conditions_agree_with_another_reading_of_them(
    condition: tuple[str, Oracle], document: dict[str, Any], is_ascii: bool, escapes_all: bool
) -> None:
    expression, oracle = condition
    text = json.dumps(document, ensure_ascii=is_ascii)
    if escapes_all:
        text = text.replace("e", "\\u0065") if "true" not in text and "false" not in text else text
        text = text if _is_same_document(text, document) else json.dumps(document)

    assert accepts(expression, record_of(0, text.encode())) is oracle(document), text


def _is_same_document(text: str, document: object) -> bool:
    try:
        return bool(json.loads(text) == document)
    except ValueError:
        return False
