r"""A filter applied to records, and the bytes that every match must contain.

What conditions mean
    a field that is not there     nothing but `!=` and `not` holds of it
    null                          `== null` holds of a null key or value, a null header, JSON's null
    numbers                       compare with numbers, text with text, true and false with those;
                                  between kinds `==` is false, and so are `<` and its like
    key, value, headers["x"]      as text: what the decoder shows; in comparisons with numbers, true
    without a path                and false: the JSON that they are
    contains                      of text: a part of it; of a JSON list: one of its items
    matches                       the pattern, in RE2's syntax, is found in the first
                                  MATCHED_CHARACTERS_MAX characters; ^ and $ tie it to the ends
    headers["x"]                  the last header of that name

`needles_of` finds byte strings that a matching record must hold, so that most records need not be
parsed. This is sound because a decoder that `keeps_bytes` shows UTF-8 as it is written, and JSON
writes characters either as themselves or as escapes: the needle of a JSON string avoids characters
with short escapes, and counts as found wherever there is a \u escape. The needle of a number is its
digits, and counts as found wherever a number may have an exponent or be rounded.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple, Protocol

from tidelog.record.kernel import ConsumerRecord
from tidelog.tools.console.messages.documents import MISSING, at_path, parse_or_missing
from tidelog.tools.console.messages.expression import (
    And,
    Comparison,
    Constant,
    Existence,
    Field,
    Literal,
    Matching,
    Membership,
    Node,
    Not,
    Or,
    Scalar,
    Truth,
)

MATCHED_CHARACTERS_MAX: Final = 1 << 20
ALTERNATIVES_MAX: Final = 16
REQUIREMENTS_MAX: Final = 3
NUMBER_MAX: Final = 10**9

_ORDERS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
# JSON writes these as \" \\ \/ \b \f \n \r \t; every other character as itself or as \uXXXX.
_PLAIN_RUN = re.compile(r'[^\x00-\x1f"\\/\ufffd\ud800-\udfff]+')
_UNICODE_ESCAPE: Final = b"\\u"
# A fraction that is read as a whole number below NUMBER_MAX has this many nines, or its digits.
_NINES: Final = b".9999999"
_EXPONENT: Final = b"0e"
_SHAPES: Final = bytes(
    ord("0") if chr(byte) in "0123456789" else ord("e") if chr(byte) in "eE" else ord(" ")
    for byte in range(256)
)


class Reading(Protocol):
    """How bytes are understood; decoding.Decoder is one."""

    @property
    def keeps_bytes(self) -> bool:
        """Text is the bytes as UTF-8, and documents are JSON parsed from them."""

    def text(self, data: bytes) -> str: ...

    def document(self, data: bytes) -> object:
        """MISSING if there is none."""


class Utf8:
    """Of headers."""

    keeps_bytes = True

    def text(self, data: bytes) -> str:
        return data.decode(errors="replace")

    def document(self, data: bytes) -> object:
        return parse_or_missing(data)


class Content:
    """A key, value or header of one record, understood when it is first asked for."""

    __slots__ = ("_document", "_reading", "_text", "data")

    def __init__(self, data: bytes | None, reading: Reading) -> None:
        self.data = data
        self._reading = reading
        self._text: str | None = None
        self._document: object = self  # not read yet

    @property
    def text(self) -> object:
        if self.data is None:
            return None
        if self._text is None:
            self._text = self._reading.text(self.data)
        return self._text

    @property
    def document(self) -> object:
        if self._document is self:
            self._document = None if self.data is None else self._reading.document(self.data)
        return self._document


class Candidate:
    """A record as conditions see it."""

    __slots__ = ("headers", "key", "offset", "partition", "timestamp", "value")

    def __init__(
        self,
        partition: int,
        offset: int,
        timestamp: int,
        key: Content,
        value: Content,
        headers: Sequence[tuple[str, bytes | None]],
    ) -> None:
        self.partition = partition
        self.offset = offset
        self.timestamp = timestamp
        self.key = key
        self.value = value
        self.headers = headers


Test = Callable[[Candidate], bool]
Get = Callable[[Candidate], object]
Sieve = Callable[[ConsumerRecord], bool]

_HEADER = Utf8()


class RecordFilter:
    """A condition made ready. Without one, every record is accepted."""

    def __init__(self, node: Node | None, key: Reading, value: Reading) -> None:
        self.key_reading = key
        self.value_reading = value
        self._test = None if node is None else _test(node)
        needles = () if node is None else needles_of(node, key, value)
        self.sieve = _sieve(needles) if needles else None  # lets every match through

    @property
    def accepts_all(self) -> bool:
        return self._test is None

    def accepts(self, record: ConsumerRecord) -> bool:
        return self._test is None or self._test(
            Candidate(
                record.partition,
                record.offset,
                record.timestamp,
                Content(record.key, self.key_reading),
                Content(record.value, self.value_reading),
                record.headers,
            )
        )


def _test(node: Node) -> Test:
    if isinstance(node, And | Or):
        tests = [_test(part) for part in node.parts]
        if isinstance(node, And):
            return lambda record: all(test(record) for test in tests)
        return lambda record: any(test(record) for test in tests)
    if isinstance(node, Not):
        inner = _test(node.inner)
        return lambda record: not inner(record)
    if isinstance(node, Constant):
        held = node.value
        return lambda record: held
    if isinstance(node, Existence):
        there = _document(node.field)
        return lambda record: there(record) is not MISSING
    if isinstance(node, Truth):
        document = _document(node.field)
        return lambda record: document(record) is True
    if isinstance(node, Membership):
        tests = [_equality(node.field, Literal(value)) for value in node.values]
        return lambda record: any(test(record) for test in tests)
    if isinstance(node, Matching):
        return _matching(node)
    return _comparison(node)


def _comparison(node: Comparison) -> Test:
    if node.operator == "==":
        return _equality(node.left, node.right)
    if node.operator == "!=":
        equal = _equality(node.left, node.right)
        return lambda record: not equal(record)
    if node.operator in _ORDERS:
        return _order(node)
    return _text_test(node)


def _matching(node: Matching) -> Test:
    text, pattern = _text(node.field), node.pattern

    def test(record: Candidate) -> bool:
        found = text(record)
        return isinstance(found, str) and pattern.matches(found[:MATCHED_CHARACTERS_MAX])

    return test


def _equality(left: Field | Literal, right: Field | Literal) -> Test:
    if isinstance(left, Literal):
        left, right = right, left
    get, other = _document(left), _document(right)
    if isinstance(right, Literal) and isinstance(right.value, str):
        expected, text = right.value, _text(left)
        return lambda record: text(record) == expected or get(record) == expected
    return lambda record: same(get(record), other(record))


def _order(node: Comparison) -> Test:
    compare = _ORDERS[node.operator]
    is_text = any(isinstance(side, Literal) and isinstance(side.value, str) for side in node[1:])
    get = _text if is_text else _document
    left, right = get(node.left), get(node.right)

    def test(record: Candidate) -> bool:
        first, second = left(record), right(record)
        if isinstance(first, str):
            return isinstance(second, str) and compare(first, second)
        return _is_number(first) and _is_number(second) and compare(first, second)

    return test


def _text_test(node: Comparison) -> Test:
    text, part = _text(node.left), _text(node.right)
    if node.operator == "contains":
        document, item = _document(node.left), _document(node.right)

        def contains(record: Candidate) -> bool:
            whole, wanted = text(record), part(record)
            if isinstance(whole, str) and isinstance(wanted, str) and wanted in whole:
                return True
            items = document(record)
            return isinstance(items, list) and any(same(each, item(record)) for each in items)

        return contains
    method = str.startswith if node.operator == "startswith" else str.endswith

    def test(record: Candidate) -> bool:
        whole, wanted = text(record), part(record)
        return isinstance(whole, str) and isinstance(wanted, str) and method(whole, wanted)

    return test


def same(first: object, second: object) -> bool:
    """Equal scalars of one kind; lists and objects equal nothing."""
    if _is_number(first):
        return _is_number(second) and first == second
    if first is None or isinstance(first, str | bool):
        return type(first) is type(second) and first == second
    return False


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _content(field: Field) -> Callable[[Candidate], Content | None]:
    """None for a header that is not there."""
    if field.name == "key":
        return lambda record: record.key
    if field.name == "value":
        return lambda record: record.value
    name = field.header

    def header(record: Candidate) -> Content | None:
        for each, data in reversed(record.headers):
            if each == name:
                return Content(data, _HEADER)
        return None

    return header


def _text(side: Field | Literal) -> Get:
    """Text; or what is there instead, such as a number in JSON."""
    if isinstance(side, Literal) or side.path or side.name not in ("key", "value", "headers"):
        return _document(side)
    content = _content(side)

    def text(record: Candidate) -> object:
        found = content(record)
        return MISSING if found is None else found.text

    return text


def _document(side: Field | Literal) -> Get:
    if isinstance(side, Literal):
        value = side.value
        return lambda record: value
    if side.name == "offset":
        return lambda record: record.offset
    if side.name == "partition":
        return lambda record: record.partition
    if side.name == "timestamp":
        return lambda record: record.timestamp
    content, path = _content(side), side.path

    def document(record: Candidate) -> object:
        found = content(record)
        return MISSING if found is None else at_path(found.document, path)

    def whole(record: Candidate) -> object:
        """Text is there even where there is no document."""
        found = content(record)
        if found is None:
            return MISSING
        return found.text if found.document is MISSING else found.document

    return document if path else whole


# What the bytes of a match must contain


class Spelling(Enum):
    """How else than by its literal a needle may be written."""

    ESCAPED = 1  # characters as \u escapes
    NUMBER = 2  # with an exponent, or as a fraction that rounds to it


class Needle(NamedTuple):
    """`place`: key, value or headers. `is_name`: of a field in JSON, which most records have."""

    place: str
    literal: bytes
    spelling: Spelling
    is_name: bool = False


Needles = tuple[Needle, ...]
"""At least one of them is in every match."""


def needles_of(node: Node, key: Reading, value: Reading) -> tuple[Needles, ...]:
    """Each of these holds for every match; the first one leaves out most records."""
    if isinstance(node, And):
        found = [each for part in node.parts for each in needles_of(part, key, value)]
        return tuple(sorted(dict.fromkeys(found), key=_strength, reverse=True)[:REQUIREMENTS_MAX])
    if isinstance(node, Or):
        return _either([needles_of(part, key, value) for part in node.parts])
    if isinstance(node, Membership):
        equalities = [Comparison("==", node.field, Literal(each)) for each in node.values]
        return _either([needles_of(each, key, value) for each in equalities])
    if isinstance(node, Existence | Truth | Matching):
        return _needles(node.field, None, key, value)
    if not isinstance(node, Comparison) or node.operator == "!=":
        return ()
    left, right = node.left, node.right
    if isinstance(left, Literal):
        left, right = right, left
    if not isinstance(left, Field):
        return ()
    literal = right.value if isinstance(right, Literal) else None
    return _needles(left, None if node.operator in _ORDERS else literal, key, value)


def _either(found: list[tuple[Needles, ...]]) -> tuple[Needles, ...]:
    joined: list[Needle] = []
    for needles in found:
        if not needles:
            return ()
        joined += needles[0]
    return (tuple(dict.fromkeys(joined)),) if len(joined) <= ALTERNATIVES_MAX else ()


def _strength(needles: Needles) -> tuple[bool, int, int]:
    return (
        not any(needle.is_name for needle in needles),
        min(len(needle.literal) for needle in needles),
        -len(needles),
    )


def _needles(field: Field, literal: Scalar, key: Reading, value: Reading) -> tuple[Needles, ...]:
    """Of a condition that holds of no record without the field, nor, if it is given, without this
    literal in it."""
    if field.name not in ("key", "value", "headers"):
        return ()
    reading = {"key": key, "value": value}.get(field.name, _HEADER)
    if not reading.keeps_bytes:
        return ()
    if isinstance(literal, int) and not isinstance(literal, bool) and abs(literal) < NUMBER_MAX:
        digits = str(abs(literal)).encode()
        return ((Needle(field.name, digits, Spelling.NUMBER),),)
    texts = [literal] if isinstance(literal, str) and _PLAIN_RUN.search(literal) else []
    names = texts or [step for step in field.path if isinstance(step, str)]
    runs = [run for each in names for run in _PLAIN_RUN.findall(each)]
    if not runs:
        return ()
    longest = max(runs, key=len).encode()
    return ((Needle(field.name, longest, Spelling.ESCAPED, is_name=not texts),),)


# Called for every record of a search


def _sieve(requirements: Sequence[Needles]) -> Sieve:
    """Whether a record may match."""
    tests = [_any_of([_found(needle) for needle in needles]) for needles in requirements]
    if len(tests) == 1:
        return tests[0]
    return lambda record: all(test(record) for test in tests)


def _any_of(tests: list[Sieve]) -> Sieve:
    if len(tests) == 1:
        return tests[0]
    return lambda record: any(test(record) for test in tests)


def _found(needle: Needle) -> Sieve:
    literal, is_number = needle.literal, needle.spelling is Spelling.NUMBER

    def is_in(data: bytes | None) -> bool:
        if data is None:
            return False
        if literal in data:
            return True
        if is_number:
            return _NINES in data or _EXPONENT in data.translate(_SHAPES)
        return _UNICODE_ESCAPE in data

    if needle.place == "value":
        return lambda record: is_in(record.value)
    if needle.place == "key":
        return lambda record: is_in(record.key)
    return lambda record: any(is_in(value) for _, value in record.headers)
