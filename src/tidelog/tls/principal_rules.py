"""`ssl.principal.mapping.rules`: from the subject of a certificate to the name of a principal.

    rules        rule,rule,...
    rule         DEFAULT                       the subject as it is
                 RULE:pattern/replacement/     if the pattern matches the whole subject
                 RULE:pattern/replacement/L    likewise, in lower case (U: in upper case)

The first rule that applies gives the name. Patterns are Java's and run on Python's `re`, which
reads them alike but for the names of groups; `$1` and `${name}` in a replacement stand for groups,
and a `$7` without a seventh group for itself, as in Kafka.

Python's `re` goes back and tries again, so a pattern such as (a+)+ takes time that doubles with
each character of a subject that does not match. Such patterns (a repetition without bound of a
group that holds another, or a choice) are refused, and so are subjects of more than
SUBJECT_CHARS_MAX characters.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple

SUBJECT_CHARS_MAX: Final = 2048

_RULE: Final = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_SPLITTER: Final = re.compile(rf"\s*({_RULE})\s*(,\s*|$)")
_PARSER: Final = re.compile(_RULE)
_JAVA_GROUP_NAME: Final = re.compile(r"\(\?<(?=[A-Za-z])")
_UNBOUNDED: Final = re.compile(r"[*+]|\{\d+,\}")
_BACK_REFERENCE: Final = re.compile(r"\\(.)|\$(\d+)|\$\{([A-Za-z][A-Za-z0-9]*)\}|(\$)", re.DOTALL)


class InvalidRules(ValueError):
    """The text is not a list of rules."""


class _Rule(NamedTuple):
    pattern: re.Pattern[str] | None  # None of DEFAULT
    replacement: str
    case: str  # "", "L" or "U"

    def apply(self, subject: str) -> str | None:
        if self.pattern is None:
            return subject
        if self.pattern.fullmatch(subject) is None:
            return None
        name = self.pattern.sub(self._replaced, subject)
        if self.case == "L":
            return name.lower()
        return name.upper() if self.case == "U" else name

    def _replaced(self, found: re.Match[str]) -> str:
        return _BACK_REFERENCE.sub(lambda reference: _expanded(reference, found), self.replacement)


def _expanded(reference: re.Match[str], found: re.Match[str]) -> str:
    literal, digits, name, dollar = reference.groups()
    if literal is not None:
        return literal
    if dollar is not None:
        return dollar
    if name is not None:
        return found.group(name) or ""
    count = len(found.groups())
    kept = len(digits)  # the longest number that is a group's; what follows it is text
    while kept > 1 and int(digits[:kept]) > count:
        kept -= 1
    if int(digits[:kept]) > count:
        return "$" + digits
    return (found.group(int(digits[:kept])) or "") + digits[kept:]


class PrincipalRules:
    """The rules of one listener. Raises InvalidRules."""

    __slots__ = ("_rules", "_text")

    def __init__(self, text: str) -> None:
        self._text = text
        self._rules = [rule for part in _split(text) if (rule := _parse(part)) is not None]

    def name_of(self, subject: str) -> str:
        """ValueError if no rule applies."""
        if len(subject) > SUBJECT_CHARS_MAX:
            raise ValueError(
                f"the subject of its certificate has {len(subject)} characters, more than "
                f"{SUBJECT_CHARS_MAX}"
            )
        for rule in self._rules:
            name = rule.apply(subject)
            if name is not None:
                return name
        raise ValueError(f"no rule of ssl.principal.mapping.rules applies to {subject}")


def _split(text: str) -> list[str]:
    return [found.group(1) for found in _SPLITTER.finditer(text.strip())]


def _parse(text: str) -> _Rule | None:
    found = _PARSER.match(text)
    end = found.end() if found is not None else 0
    if found is None or end != len(text):
        raise InvalidRules(f"{text!r} is not DEFAULT or RULE:pattern/replacement/[LU]")
    is_default, pattern, replacement, case, _ = found.groups()
    if is_default is not None:
        return _Rule(None, "", "")
    if pattern is None:
        return None  # nothing between two commas
    compiled = _compile(pattern)
    _require_groups(compiled, replacement)
    return _Rule(compiled, replacement, case)


def _compile(pattern: str) -> re.Pattern[str]:
    if _repeats_repetition(pattern):
        raise InvalidRules(
            f"the pattern {pattern} repeats a group that holds a repetition or a choice, so a "
            "subject that does not match could take for ever; write it without the outer one"
        )
    try:
        return re.compile(_JAVA_GROUP_NAME.sub("(?P<", pattern))
    except re.error as error:
        raise InvalidRules(f"the pattern {pattern} cannot be read: {error}") from error


def _require_groups(pattern: re.Pattern[str], replacement: str) -> None:
    for reference in _BACK_REFERENCE.finditer(replacement):
        name = reference.group(3)
        if name is not None and name not in pattern.groupindex:
            raise InvalidRules(f"the replacement {replacement} names a group that is not there")


def _repeats_repetition(pattern: str) -> bool:
    """Whether a group that may match in many ways is repeated without bound."""
    holds = [False]  # of each open group, the pattern itself first
    for token, after in _tokens(pattern):
        if token == "(":
            holds.append(False)
            continue
        has_inner = len(holds) > 1 and token == ")" and holds.pop()
        is_repeated = _UNBOUNDED.match(pattern, after) is not None
        if is_repeated and has_inner:
            return True
        holds[-1] = holds[-1] or is_repeated or has_inner or token == "|"
    return False


def _tokens(pattern: str) -> list[tuple[str, int]]:
    """Groups' ends and all else that may be repeated, each with the place behind it."""
    tokens: list[tuple[str, int]] = []
    position = 0
    while position < len(pattern):
        token = pattern[position]
        if token == "\\":
            position += 1
        elif token == "[":
            position = _end_of_class(pattern, position)
        position += 1
        tokens.append((token, position))
    return tokens


def _end_of_class(pattern: str, position: int) -> int:
    position += 2 if pattern[position + 1 : position + 2] == "^" else 1
    first = position
    while position < len(pattern) and (pattern[position] != "]" or position == first):
        position += 2 if pattern[position] == "\\" else 1
    return position


def rule_namer(text: str, subject_of: Callable[[bytes], str]) -> Callable[[bytes], str]:
    """From a certificate's bytes to the principal's name; raises ValueError as `name_of` does."""
    rules = PrincipalRules(text)
    return lambda certificate: rules.name_of(subject_of(certificate))
