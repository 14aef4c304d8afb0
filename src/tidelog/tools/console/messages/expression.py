r"""The expressions that choose records, as a syntax tree.

    value.customer.id == 42 and key startswith "eu-"
    headers["type"] in ("order", "refund") or not exists(value.items[0].price)
    timestamp > "2026-01-01T00:00:00Z" and value matches "^E[0-9]+"

    expression   conditions joined by `or`, `and` and `not`, with parentheses
    condition    A OP B,  A in (LITERAL, ...),  exists(FIELD),  or a FIELD that is true
    OP           ==  !=  <  <=  >  >=  contains  startswith  endswith  matches
    FIELD        key and value, with a path into their JSON: value.a.b, value["a b"], value[0];
                 headers["name"]; offset, partition, timestamp
    LITERAL      "text" or 'text' (\n \t \r \\ \" \' \uXXXX), numbers, true, false, null

What the conditions mean is in filtering.py. An expression is at most LENGTH_MAX characters long,
CONDITIONS_MAX conditions large and DEPTH_MAX parentheses deep. ExpressionError says what is wrong
and where.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final, NamedTuple

from tidelog.coordinator.re2 import InvalidPattern, Pattern

LENGTH_MAX: Final = 2_000
CONDITIONS_MAX: Final = 100
DEPTH_MAX: Final = 40
PATH_MAX: Final = 40

COMPARISONS: Final = ("==", "!=", "<=", ">=", "<", ">")
TEXT_TESTS: Final = ("contains", "startswith", "endswith", "matches")
NUMBER_FIELDS: Final = ("offset", "partition", "timestamp")
FIELDS: Final = ("key", "value", "headers", *NUMBER_FIELDS)
_ALIASES: Final = {"&&": "and", "||": "or", "!": "not"}
_CONSTANTS: Final[dict[str, bool | None]] = {"true": True, "false": False, "null": None}
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"', "'": "'", "/": "/"}

_TOKEN = re.compile(
    r"""
    (?P<space>\s+)
  | (?P<number>-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)
  | (?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
  | (?P<word>[^\W\d]\w*)
  | (?P<sign>==|!=|<=|>=|&&|\|\||[<>!().,\[\]=])
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)

Scalar = str | int | float | bool | None


class ExpressionError(ValueError):
    """`position` counts characters from 0."""

    def __init__(self, told: str, position: int) -> None:
        super().__init__(f"at character {position + 1}: {told}")
        self.position = position


class Literal(NamedTuple):
    value: Scalar


class Field(NamedTuple):
    """`name` is one of FIELDS; `header` the name of one; `path` leads into the JSON."""

    name: str
    path: tuple[str | int, ...] = ()
    header: str = ""


class Comparison(NamedTuple):
    operator: str
    left: Field | Literal
    right: Field | Literal


class Matching(NamedTuple):
    field: Field
    pattern: Pattern


class Membership(NamedTuple):
    field: Field
    values: tuple[Scalar, ...]


class Existence(NamedTuple):
    field: Field


class Truth(NamedTuple):
    field: Field


class Constant(NamedTuple):
    value: bool


class Not(NamedTuple):
    inner: Node


class And(NamedTuple):
    parts: tuple[Node, ...]


class Or(NamedTuple):
    parts: tuple[Node, ...]


Node = Comparison | Matching | Membership | Existence | Truth | Constant | Not | And | Or


class _Token(NamedTuple):
    kind: str  # number, text, word, sign or end
    text: str
    position: int


def parse_expression(text: str) -> Node:
    """Raises ExpressionError."""
    if len(text) > LENGTH_MAX:
        raise ExpressionError(f"an expression has at most {LENGTH_MAX} characters", LENGTH_MAX)
    return _Parser(_tokens(text)).parse()


def found_anywhere(text: str) -> Pattern:
    """A pattern that matches whole texts in which `text`, in the syntax of RE2, is found.

    Raises InvalidPattern.
    """
    Pattern(text)  # by itself: a lone parenthesis must not change what stands around it
    return Pattern(f"(?s:.*)(?:{text})(?s:.*)")


def parse_instant(text: str) -> int:
    """Milliseconds since 1970 of a time, UTC unless it says otherwise; raises ValueError."""
    given = datetime.fromisoformat(text)
    given = given if given.tzinfo is not None else given.replace(tzinfo=UTC)
    return round(given.timestamp() * 1_000)


def _tokens(text: str) -> list[_Token]:
    found: list[_Token] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            if text[position] in "\"'":
                raise ExpressionError("this text has no closing quote", position)
            raise ExpressionError(f"{text[position]!r} means nothing here", position)
        kind = str(match.lastgroup)
        if kind != "space":
            token = _ALIASES.get(match[0], match[0])
            found.append(_Token("word" if token != match[0] else kind, token, position))
        position = match.end()
    found.append(_Token("end", "", len(text)))
    return found


class _Parser:
    """Recursive descent; `_depth` bounds the recursion."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0
        self._conditions = 0

    def parse(self) -> Node:
        found = self._or()
        rest = self._token
        if rest.kind != "end":
            raise ExpressionError(f"expected and, or or the end, not {_shown(rest)}", rest.position)
        return found

    @property
    def _token(self) -> _Token:
        return self._tokens[self._at]

    def _take(self) -> _Token:
        token = self._tokens[self._at]
        if token.kind != "end":
            self._at += 1
        return token

    def _accept(self, text: str) -> bool:
        """A word or sign."""
        if self._token.text.lower() != text or self._token.kind not in ("word", "sign"):
            return False
        self._at += 1
        return True

    def _expect(self, text: str, after: str) -> None:
        if not self._accept(text):
            raise ExpressionError(
                f"expected {text} after {after}, not {_shown(self._token)}", self._token.position
            )

    def _or(self) -> Node:
        parts = [self._and()]
        while self._accept("or"):
            parts.append(self._and())
        return parts[0] if len(parts) == 1 else Or(tuple(parts))

    def _and(self) -> Node:
        parts = [self._not()]
        while self._accept("and"):
            parts.append(self._not())
        return parts[0] if len(parts) == 1 else And(tuple(parts))

    def _not(self) -> Node:
        if not self._accept("not"):
            return self._condition()
        self._enter()
        inner = self._not()
        self._depth -= 1
        return Not(inner)

    def _enter(self) -> None:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise ExpressionError(
                f"this is nested more than {DEPTH_MAX} deep", self._token.position
            )

    def _condition(self) -> Node:
        if self._accept("("):
            self._enter()
            inner = self._or()
            self._expect(")", "what began with (")
            self._depth -= 1
            return inner
        self._conditions += 1
        if self._conditions > CONDITIONS_MAX:
            raise ExpressionError(
                f"there are more than {CONDITIONS_MAX} conditions", self._token.position
            )
        if self._accept("exists"):
            return self._existence()
        return self._comparison()

    def _existence(self) -> Node:
        self._expect("(", "exists")
        position = self._token.position
        field = self._operand()
        if not isinstance(field, Field):
            raise ExpressionError("exists asks for a field", position)
        self._expect(")", "the field of exists")
        return Existence(field)

    def _comparison(self) -> Node:
        start = self._token.position
        left = self._operand()
        token = self._token
        word = token.text.lower()
        if token.kind == "sign" and token.text == "=":
            raise ExpressionError("to compare, write ==", token.position)
        if token.kind == "sign" and word in COMPARISONS:
            self._take()
            return self._compared(word, left, start)
        if token.kind == "word" and word in (*TEXT_TESTS, "in"):
            self._take()
            if not isinstance(left, Field):
                raise ExpressionError(f"{word} asks about a field, not a literal", start)
            return self._membership(left) if word == "in" else self._tested(word, left)
        if isinstance(left, Field):
            if left.name in NUMBER_FIELDS:
                raise ExpressionError(
                    f"expected a comparison after {left.name}, not {_shown(token)}", token.position
                )
            return Truth(left)
        if isinstance(left.value, bool):
            return Constant(left.value)
        raise ExpressionError(
            f"expected a comparison after this literal, not {_shown(token)}", token.position
        )

    def _compared(self, operator: str, left: Field | Literal, start: int) -> Node:
        position = self._token.position
        right = self._operand()
        left, right = _as_time(left, right, start), _as_time(right, left, position)
        return Comparison(operator, left, right)

    def _tested(self, word: str, left: Field) -> Node:
        position = self._token.position
        right = self._operand()
        if word == "matches":
            if not isinstance(right, Literal) or not isinstance(right.value, str):
                raise ExpressionError("matches takes a pattern in quotes", position)
            try:
                return Matching(left, found_anywhere(right.value))
            except InvalidPattern as problem:
                raise ExpressionError(f"this is no pattern: {problem}", position) from None
        if isinstance(right, Literal) and not isinstance(right.value, str):
            if word != "contains":
                raise ExpressionError(f"{word} takes text in quotes", position)
            if right.value is None:
                raise ExpressionError("contains takes text, a number, true or false", position)
        return Comparison(word, left, right)

    def _membership(self, left: Field) -> Node:
        self._expect("(", "in")
        values: list[Scalar] = []
        while True:
            position = self._token.position
            found = self._operand()
            if not isinstance(found, Literal):
                raise ExpressionError("in takes a list of literals", position)
            found = _as_time(found, left, position)
            assert isinstance(found, Literal), found
            values.append(found.value)
            if len(values) > CONDITIONS_MAX:
                raise ExpressionError(f"there are more than {CONDITIONS_MAX} literals", position)
            if self._accept(")"):
                return Membership(left, tuple(values))
            self._expect(",", "a literal")

    def _operand(self) -> Field | Literal:
        token = self._take()
        if token.kind == "text":
            return Literal(_unquoted(token))
        if token.kind == "number":
            return Literal(_number(token))
        if token.kind == "word":
            word = token.text.lower()
            if word in _CONSTANTS:
                return Literal(_CONSTANTS[word])
            if word in FIELDS:
                return self._field(word)
            raise ExpressionError(
                f"{token.text} is no field; there are {', '.join(FIELDS)} (text stands in quotes)",
                token.position,
            )
        raise ExpressionError(f"expected a field or a literal, not {_shown(token)}", token.position)

    def _field(self, name: str) -> Field:
        if name in NUMBER_FIELDS:
            return Field(name)
        path = self._path()
        if name != "headers":
            return Field(name, path)
        if not path or not isinstance(path[0], str):
            raise ExpressionError('a header is named as headers["name"]', self._token.position)
        return Field(name, path[1:], path[0])

    def _path(self) -> tuple[str | int, ...]:
        path: list[str | int] = []
        while True:
            position = self._token.position
            if self._accept("."):
                token = self._take()
                if token.kind != "word":
                    raise ExpressionError(
                        f"expected a name after the dot, not {_shown(token)}", token.position
                    )
                path.append(token.text)
            elif self._accept("["):
                token = self._take()
                if token.kind == "text":
                    path.append(_unquoted(token))
                elif token.kind == "number" and token.text.isdigit() and len(token.text) < 10:
                    path.append(int(token.text))
                else:
                    raise ExpressionError(
                        f"expected a name in quotes or an index, not {_shown(token)}",
                        token.position,
                    )
                self._expect("]", "a name or an index")
            else:
                return tuple(path)
            if len(path) > PATH_MAX:
                raise ExpressionError(f"a path has at most {PATH_MAX} steps", position)


def _shown(token: _Token) -> str:
    return "the end" if token.kind == "end" else token.text[:40]


def _number(token: _Token) -> int | float:
    if any(char in token.text for char in ".eE"):
        return float(token.text)
    try:
        return int(token.text)
    except ValueError:  # more digits than Python converts
        raise ExpressionError("this number has too many digits", token.position) from None


def _unquoted(token: _Token) -> str:
    def character(found: re.Match[str]) -> str:
        escape = found[1]
        if len(escape) == 5:
            return chr(int(escape[1:], 16))
        if escape not in _ESCAPES:
            raise ExpressionError(
                f"\\{escape} is no escape; there are \\n \\t \\r \\\\ \\\" \\' and \\uXXXX",
                token.position + 1 + found.start(),
            )
        return _ESCAPES[escape]

    return _ESCAPE.sub(character, token.text[1:-1])


def _as_time(operand: Field | Literal, other: Field | Literal, position: int) -> Field | Literal:
    """Text that is compared with the timestamp is a time."""
    if (
        not isinstance(operand, Literal)
        or not isinstance(operand.value, str)
        or not isinstance(other, Field)
        or other.name != "timestamp"
    ):
        return operand
    try:
        return Literal(parse_instant(operand.value))
    except (OverflowError, ValueError):
        raise ExpressionError(
            f"{operand.value[:40]!r} is no time, such as 2026-01-31T13:00:00Z", position
        ) from None
