"""Patterns in the syntax of RE2, matched in time that grows with the text alone.

A member may subscribe to a regular expression, an admin may ask for transactional ids by one, and
anybody may be either. Python's `re` would let a pattern such as (a+)+b stall the broker for ever.
So patterns are compiled to a non-deterministic automaton of at most STATES_MAX states, and all its
states are followed at once; sets of states that were met before are remembered. The whole text
must match, as in Kafka.

    syntax      a|b  ab  a* a+ a? a{2} a{2,} a{2,5} (lazy ones too)  .  [a-z] [^a-z] [[:alpha:]]
                (a) (?:a) (?P<n>a) (?<n>a) (?i) (?i:a) (flags i m s U)  ^ $ \\A \\z \\b \\B
                \\d \\D \\w \\W \\s \\S \\n \\t ... \\x41 \\x{41} \\101 \\Q...\\E \\.
                \\pL \\p{Lu} \\PL \\p{^L}: general categories of Unicode
    refused     back references, look-around, possessive and atomic groups: RE2 has none of them
    not done    scripts (\\p{Greek}), which Python has no table of
"""

from __future__ import annotations

import logging
import string
import unicodedata
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Generator, Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from tidelog.clock import Timer

logger = logging.getLogger(__name__)

SLICE_STATES: Final = 10_000  # looked at in one turn of the loop
STATES_MAX: Final = 2000
DEPTH_MAX: Final = 100
REPEAT_MAX: Final = 1000
REMEMBERED_MAX: Final = 4000

_LETTERS_AND_DIGITS: Final = frozenset(string.ascii_letters + string.digits)
_WORD: Final = _LETTERS_AND_DIGITS | {"_"}
_OCTAL: Final = frozenset("01234567")
_CONTROL_ESCAPES: Final = {"a": "\a", "f": "\f", "t": "\t", "n": "\n", "r": "\r", "v": "\v"}
_ASSERTIONS: Final = {"A": "A", "z": "z", "b": "b", "B": "B"}
_CATEGORIES: Final = {
    *("C", "Cc", "Cf", "Co", "Cs"),
    *("L", "Ll", "Lm", "Lo", "Lt", "Lu"),
    *("M", "Mc", "Me", "Mn"),
    *("N", "Nd", "Nl", "No"),
    *("P", "Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps"),
    *("S", "Sc", "Sk", "Sm", "So"),
    *("Z", "Zl", "Zp", "Zs"),
}


class CharSet(NamedTuple):
    """Ranges, general categories and other sets together, or all but these."""

    firsts: tuple[str, ...] = ()  # of the ranges, which are in order and do not overlap
    lasts: tuple[str, ...] = ()
    categories: frozenset[str] = frozenset()
    others: frozenset[CharSet] = frozenset()
    ignores_case: bool = False
    is_negated: bool = False

    def __contains__(self, char: object) -> bool:
        assert isinstance(char, str)
        variants = {char, *char.lower(), *char.upper()} if self.ignores_case else (char,)
        return any(map(self._has, variants)) != self.is_negated

    def _has(self, char: str) -> bool:
        place = bisect_right(self.firsts, char)
        if place and char <= self.lasts[place - 1]:
            return True
        if self.categories:
            category = unicodedata.category(char)
            if category in self.categories or category[0] in self.categories:
                return True
        return any(char in other for other in self.others)

    def negated(self) -> CharSet:
        return self._replace(is_negated=not self.is_negated)


def _ranges(ranges: Iterable[tuple[str, str]]) -> CharSet:
    firsts: list[str] = []
    lasts: list[str] = []
    for first, last in sorted(ranges):
        if lasts and first <= lasts[-1]:
            lasts[-1] = max(last, lasts[-1])
        else:
            firsts.append(first)
            lasts.append(last)
    return CharSet(tuple(firsts), tuple(lasts))


def _named(*ranges: str) -> CharSet:
    """Of texts such as "az": from a to z."""
    return _ranges((each[0], each[-1]) for each in ranges)


_EVERYTHING: Final = CharSet(is_negated=True)
_ALL_BUT_NEWLINE: Final = _named("\n").negated()
_PERL_CLASSES: Final = {
    "d": _named("09"),
    "w": _named("az", "AZ", "09", "_"),
    "s": _named("\t\n", "\f\r", " "),
}
_POSIX_CLASSES: Final = {
    "alnum": _named("az", "AZ", "09"),
    "alpha": _named("az", "AZ"),
    "ascii": _named("\x00\x7f"),
    "blank": _named("\t", " "),
    "cntrl": _named("\x00\x1f", "\x7f"),
    "digit": _named("09"),
    "graph": _named("!~"),
    "lower": _named("az"),
    "print": _named(" ~"),
    "punct": _named("!/", ":@", "[`", "{~"),
    "space": _named("\t\r", " "),
    "upper": _named("AZ"),
    "word": _named("az", "AZ", "09", "_"),
    "xdigit": _named("09", "af", "AF"),
}


class InvalidPattern(ValueError):
    """What is wrong with it."""


# The syntax tree


class Chars(NamedTuple):
    chars: CharSet


class Assertion(NamedTuple):
    kind: str  # A: at the start, z: at the end, ^ $: of a line too, b B: (not) at a word's edge


class Sequence(NamedTuple):
    items: tuple[Node, ...]


class Choice(NamedTuple):
    items: tuple[Node, ...]


class Repeat(NamedTuple):
    item: Node
    low: int
    high: int | None  # None: without end


Node = Chars | Assertion | Sequence | Choice | Repeat


class _Parser:
    """Recursive descent over the text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self._flags: frozenset[str] = frozenset()  # of i, m and s
        self._depth = 0

    def parse(self) -> Node:
        node = self._choice()
        if self._position < len(self._text):
            raise InvalidPattern("unexpected )")
        return node

    def _peek(self, length: int = 1) -> str:
        return self._text[self._position : self._position + length]

    def _take(self, length: int = 1) -> str:
        taken = self._peek(length)
        if len(taken) < length:
            raise InvalidPattern("it ends too soon")
        self._position += length
        return taken

    def _accept(self, expected: str) -> bool:
        if self._text.startswith(expected, self._position):
            self._position += len(expected)
            return True
        return False

    def _take_until(self, end: str) -> str:
        found = self._text.find(end, self._position)
        if found < 0:
            raise InvalidPattern(f"missing {end}")
        taken = self._text[self._position : found]
        self._position = found + len(end)
        return taken

    # Structure

    def _choice(self) -> Node:
        items = [self._sequence()]
        while self._accept("|"):
            items.append(self._sequence())
        return items[0] if len(items) == 1 else Choice(tuple(items))

    def _sequence(self) -> Node:
        items: list[Node] = []
        while (char := self._peek()) and char not in "|)":
            if self._accept("\\Q"):
                items.extend(self._quoted())
            else:
                items.append(self._repeated())
        return Sequence(tuple(items))

    def _quoted(self) -> list[Node]:
        """The last of the literals may be repeated, as when they stood alone."""
        end = self._text.find("\\E", self._position)
        stop = len(self._text) if end < 0 else end
        literals = [self._literal(char) for char in self._text[self._position : stop]]
        self._position = stop if end < 0 else stop + 2
        if literals:
            literals[-1] = self._quantified(literals[-1])
        return literals

    def _repeated(self) -> Node:
        return self._quantified(self._atom())

    def _quantified(self, node: Node) -> Node:
        bounds = self._quantifier()
        if bounds is None:
            return node
        self._accept("?")  # lazy: the same names match
        if self._quantifier() is not None:
            raise InvalidPattern("a repetition is repeated")
        return Repeat(node, *bounds)

    def _quantifier(self) -> tuple[int, int | None] | None:
        for sign, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._accept(sign):
                return bounds
        return self._counts() if self._peek() == "{" else None

    def _counts(self) -> tuple[int, int | None] | None:
        """{n}, {n,} or {n,m}; any other brace stands for itself."""
        end = self._text.find("}", self._position)
        low, comma, high = self._text[self._position + 1 : max(end, 0)].partition(",")
        if end < 0 or not _is_number(low) or not (high == "" or _is_number(high)):
            return None
        self._position = end + 1
        least = int(low)
        most = int(high) if high else (None if comma else least)
        if least > REPEAT_MAX or (most is not None and (most > REPEAT_MAX or most < least)):
            raise InvalidPattern("a repetition is out of bounds")
        return least, most

    def _atom(self) -> Node:
        char = self._take()
        if char == "(":
            return self._group()
        if char == "[":
            return Chars(self._class())
        if char == ".":
            return Chars(_EVERYTHING if "s" in self._flags else _ALL_BUT_NEWLINE)
        if char in "^$":
            whole = "A" if char == "^" else "z"
            return Assertion(char if "m" in self._flags else whole)
        if char in "*+?":
            raise InvalidPattern(f"nothing to repeat before {char}")
        if char == "\\":
            return self._escape()
        return self._literal(char)

    def _group(self) -> Node:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise InvalidPattern("its groups are nested too deeply")
        flags = self._flags
        flags_only = False
        if self._accept("?"):
            flags_only = self._group_head()
        if flags_only:
            self._depth -= 1
            return Sequence(())  # for the rest of the enclosing group
        node = self._choice()
        if not self._accept(")"):
            raise InvalidPattern("missing )")
        self._flags = flags
        self._depth -= 1
        return node

    def _group_head(self) -> bool:
        """What stands between (? and the group's content; True if there is no content."""
        for name_start in ("P<", "<"):
            if self._peek(2) not in ("<=", "<!") and self._accept(name_start):
                name = self._take_until(">")
                if not name or not set(name) <= _WORD:
                    raise InvalidPattern("a group has no good name")
                return False
        value = True
        while True:
            flag = self._take()
            if flag == ":":
                return False
            if flag == ")":
                return True
            if flag == "-":
                value = False
            elif flag in "ims":
                self._flags = self._flags | {flag} if value else self._flags - {flag}
            elif flag != "U":
                raise InvalidPattern(f"(?{flag} is not supported")

    # Characters

    def _literal(self, char: str) -> Node:
        return Chars(self._cased(_named(char)))

    def _cased(self, chars: CharSet) -> CharSet:
        return chars._replace(ignores_case=True) if "i" in self._flags else chars

    def _escape(self) -> Node:
        char = self._peek()
        if char and char in _ASSERTIONS:
            return Assertion(_ASSERTIONS[self._take()])
        named = self._named_class()
        if named is None:
            named = self._cased(_named(self._escaped_char(self._take())))
        return Chars(named)

    def _named_class(self) -> CharSet | None:
        """After a backslash, also within a class: d and the like, or a category of Unicode."""
        char = self._peek()
        if char and char.lower() in _PERL_CLASSES:
            named = _PERL_CLASSES[self._take().lower()]
        elif char and char in "pP":
            named = self._category(self._take())
        else:
            return None
        return named.negated() if char.isupper() else named

    def _category(self, sign: str) -> CharSet:
        name = self._take_until("}") if self._accept("{") else self._take()
        is_negated = name.startswith("^")
        name = name.removeprefix("^")
        if name == "Any":
            found = _EVERYTHING
        elif name in _CATEGORIES:
            found = self._cased(CharSet(categories=frozenset({name})))
        else:
            raise InvalidPattern(f"\\{sign}{{{name}}} is not known here")
        return found.negated() if is_negated else found

    def _escaped_char(self, char: str) -> str:
        if char in _CONTROL_ESCAPES:
            return _CONTROL_ESCAPES[char]
        if char == "x":
            digits = self._take_until("}") if self._accept("{") else self._take(2)
            return _from_digits(digits, 16)
        if char == "0" or (char in _OCTAL and self._peek() in _OCTAL):
            while len(char) < 3 and self._peek() in _OCTAL:
                char += self._take()
            return _from_digits(char, 8)
        if char in _LETTERS_AND_DIGITS:
            raise InvalidPattern(f"\\{char} is not supported")
        return char

    def _class(self) -> CharSet:
        is_negated = self._accept("^")
        ranges: list[tuple[str, str]] = []
        others: set[CharSet] = set()
        is_first = True
        while is_first or not self._accept("]"):
            item = self._class_item()
            if isinstance(item, CharSet):
                others.add(item)
            else:
                ranges.append(item)
            is_first = False
        found = self._cased(_ranges(ranges)._replace(others=frozenset(others)))
        return found.negated() if is_negated else found

    def _class_item(self) -> CharSet | tuple[str, str]:
        if self._accept("[:"):
            is_negated = self._accept("^")
            name = self._take_until(":]")
            if name not in _POSIX_CLASSES:
                raise InvalidPattern(f"[:{name}:] is not known")
            posix = self._cased(_POSIX_CLASSES[name])
            return posix.negated() if is_negated else posix
        if self._accept("\\"):
            named = self._named_class()
            if named is not None:
                return named
            first = self._escaped_char(self._take())
        else:
            first = self._take()
        if self._peek() != "-" or self._peek(2) == "-]":
            return first, first
        self._take()
        last = self._class_char()
        if first > last:
            raise InvalidPattern(f"the range {first}-{last} is empty")
        return first, last

    def _class_char(self) -> str:
        char = self._take()
        return self._escaped_char(self._take()) if char == "\\" else char


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 6


def _from_digits(digits: str, base: int) -> str:
    try:
        return chr(int(digits, base))
    except (ValueError, OverflowError):
        raise InvalidPattern(f"{digits} is no character") from None


# The automaton


class _State:
    """Consumes one of `chars`, or nothing (None) if `assertion` holds; then goes to all `then`."""

    __slots__ = ("assertion", "chars", "then")

    def __init__(self, chars: CharSet | None = None, assertion: str = "") -> None:
        self.chars = chars
        self.assertion = assertion
        self.then: list[int] = []


class _Compiler:
    def __init__(self) -> None:
        self.states: list[_State] = []
        self._steps = 0

    def compile(self, node: Node) -> tuple[int, int]:
        """First and last state of the node's part; nothing leads out of the last one yet."""
        self._steps += 1
        if self._steps > STATES_MAX:
            raise InvalidPattern("it is too large")
        if isinstance(node, Chars):
            return self._single(_State(chars=node.chars))
        if isinstance(node, Assertion):
            return self._single(_State(assertion=node.kind))
        if isinstance(node, Sequence):
            return self._in_sequence(list(node.items))
        if isinstance(node, Choice):
            return self._choice(node.items)
        return self._repeat(node)

    def _add(self, state: _State) -> int:
        self.states.append(state)
        if len(self.states) > STATES_MAX:
            raise InvalidPattern("it is too large")
        return len(self.states) - 1

    def _single(self, state: _State) -> tuple[int, int]:
        first, last = self._add(state), self._add(_State())
        state.then.append(last)
        return first, last

    def _in_sequence(self, nodes: list[Node]) -> tuple[int, int]:
        first = last = self._add(_State())
        for node in nodes:
            start, end = self.compile(node)
            self.states[last].then.append(start)
            last = end
        return first, last

    def _choice(self, nodes: tuple[Node, ...]) -> tuple[int, int]:
        first, last = self._add(_State()), self._add(_State())
        for node in nodes:
            start, end = self.compile(node)
            self.states[first].then.append(start)
            self.states[end].then.append(last)
        return first, last

    def _repeat(self, node: Repeat) -> tuple[int, int]:
        first = last = self._add(_State())
        for _ in range(node.low):
            start, end = self.compile(node.item)
            self.states[last].then.append(start)
            last = end
        if node.high is None:
            start, end = self.compile(node.item)
            loop, out = self._add(_State()), self._add(_State())
            self.states[last].then.append(loop)
            self.states[loop].then += [start, out]
            self.states[end].then.append(loop)
            return first, out
        exits = [last]
        for _ in range(node.high - node.low):
            start, end = self.compile(node.item)
            self.states[last].then.append(start)
            last = end
            exits.append(last)
        for each in exits[:-1]:
            self.states[each].then.append(last)
        return first, last


_START: Final = "start"  # what stands before the first character
_END: Final = ""  # what stands after the last one


class Pattern:
    """A compiled one."""

    __slots__ = ("_accepting", "_moves", "_start", "_states", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        compiler = _Compiler()
        start, self._accepting = compiler.compile(_Parser(text).parse())
        self._states = compiler.states
        self._start = frozenset({start})
        self._moves: dict[tuple[frozenset[int], str, str], frozenset[int]] = {}

    def matching(self, text: str) -> Generator[int, None, bool]:
        """Whether the text matches; yields how many states were looked at, step by step, so that
        the caller can rest in between.
        """
        states, before = self._start, _START
        for char in text:
            key = (states, _kind(before), char)
            after = self._moves.get(key)
            if after is None:
                reached = self._reach(states, before, char)
                yield len(reached)
                after = self._consume(reached, char)
                if len(self._moves) >= REMEMBERED_MAX:
                    self._moves.clear()
                self._moves[key] = after
            if not after:
                return False
            states, before = after, char
        reached = self._reach(states, before, _END)
        yield len(reached)
        return self._accepting in reached

    def matches(self, text: str) -> bool:
        steps = self.matching(text)
        while True:
            try:
                next(steps)
            except StopIteration as result:
                return bool(result.value)

    def _reach(self, states: frozenset[int], before: str, after: str) -> set[int]:
        """Where one gets to without consuming a character, between these two."""
        reached = set(states)
        todo = list(states)
        while todo:
            state = self._states[todo.pop()]
            if state.chars is not None or not _holds(state.assertion, before, after):
                continue
            for each in state.then:
                if each not in reached:
                    reached.add(each)
                    todo.append(each)
        return reached

    def _consume(self, reached: set[int], char: str) -> frozenset[int]:
        states = (self._states[each] for each in reached)
        return frozenset(
            state.then[0] for state in states if state.chars is not None and char in state.chars
        )


def _kind(before: str) -> str:
    """All that assertions ask of the character before."""
    if before in (_START, "\n"):
        return before
    return "word" if before in _WORD else "other"


def _holds(assertion: str, before: str, after: str) -> bool:
    if not assertion:
        return True
    if assertion == "A":
        return before == _START
    if assertion == "z":
        return after == _END
    if assertion == "^":
        return before in (_START, "\n")
    if assertion == "$":
        return after in (_END, "\n")
    at_edge = (before in _WORD) != (after in _WORD)
    return at_edge == (assertion == "b")


# Which topics patterns stand for

Resolved = dict[str, frozenset[str]]  # topic names by regex
Work = Generator[int, None, Resolved]


class PatternResolution:
    """Finds out which topics the patterns of groups stand for, a slice of work a turn of the loop.

    One group after the other. A slice ends when about SLICE_STATES states of automata were looked
    at, some milliseconds, whatever the patterns are: nobody else waits longer for them. Work that
    meets a bug resolves nothing, and holds up nobody else's. Touched only on the broker loop.
    """

    def __init__(self, timer: Timer) -> None:
        self._timer = timer
        self._waiting: deque[tuple[Work, Callable[[Resolved], object]]] = deque()

    def resolve(
        self, regexes: Iterable[str], names: Iterable[str], done: Callable[[Resolved], object]
    ) -> None:
        self._waiting.append((_resolving(sorted(regexes), list(names)), done))
        if len(self._waiting) == 1:
            self._timer.call_later(0.0, self._turn)

    def _turn(self) -> None:
        work, done = self._waiting[0]
        resolved: Resolved | None = {}  # of work that meets a bug, which the loop logs
        try:
            resolved = _slice(work)
        finally:
            if resolved is not None:
                self._waiting.popleft()
            if self._waiting:
                self._timer.call_later(0.0, self._turn)
            if resolved is not None:
                done(resolved)


def _slice(work: Work) -> Resolved | None:
    """Goes on with the work; what came of it, if it is done."""
    states = 0
    while states < SLICE_STATES:
        try:
            states += next(work)
        except StopIteration as result:
            resolved: Resolved = result.value
            return resolved
    return None


def _resolving(regexes: list[str], names: list[str]) -> Work:
    resolved: Resolved = {}
    for regex in regexes:
        try:
            pattern = Pattern(regex)
        except InvalidPattern as error:  # it was accepted by another version
            logger.warning("cannot read a pattern", extra={"regex": regex, "error": str(error)})
            continue
        found = set()
        for name in names:
            if (yield from pattern.matching(name)):
                found.add(name)
            yield len(name)  # what was remembered costs something too
        resolved[regex] = frozenset(found)
    return resolved
