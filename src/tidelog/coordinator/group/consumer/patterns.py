"""Topic patterns in the syntax of RE2, matched in time that grows with the name alone.

A member may subscribe to a regular expression, and anybody may be a member: Python's `re` would let
a pattern such as (a+)+b stall the broker for ever. So patterns are compiled to a non-deterministic
automaton of at most STATES_MAX states, and all its states are followed at once; sets of states that
were met before are remembered. A whole name must match, as in Kafka.

Topic names are made of ASCII letters, digits, dot, underscore and hyphen. A set of characters is
therefore a set of these; what a pattern says of others can never match.

    syntax      a|b  ab  a* a+ a? a{2} a{2,} a{2,5} (lazy ones too)  .  [a-z] [^a-z] [[:alpha:]]
                (a) (?:a) (?P<n>a) (?<n>a) (?i) (?i:a) (flags i m s U)  ^ $ \\A \\z \\b \\B
                \\d \\D \\w \\W \\s \\S \\n \\t ... \\x41 \\x{41} \\101 \\Q...\\E \\.
    refused     back references, look-around, possessive and atomic groups: RE2 has none of them
    not done    Unicode classes (\\pL), which names of topics have no use for
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final, NamedTuple

STATES_MAX: Final = 2000
DEPTH_MAX: Final = 100
REPEAT_MAX: Final = 1000
REMEMBERED_MAX: Final = 4000

LETTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
DIGITS: Final = frozenset("0123456789")
WORD: Final = LETTERS | DIGITS | {"_"}
ALPHABET: Final = WORD | {".", "-"}
NONE: Final[frozenset[str]] = frozenset()

_PERL_CLASSES: Final = {"d": DIGITS, "w": WORD, "s": NONE}
_POSIX_CLASSES: Final = {
    "alnum": LETTERS | DIGITS,
    "alpha": LETTERS,
    "ascii": ALPHABET,
    "blank": NONE,
    "cntrl": NONE,
    "digit": DIGITS,
    "graph": ALPHABET,
    "lower": frozenset(c for c in LETTERS if c.islower()),
    "print": ALPHABET,
    "punct": frozenset("._-"),
    "space": NONE,
    "upper": frozenset(c for c in LETTERS if c.isupper()),
    "word": WORD,
    "xdigit": frozenset("0123456789abcdefABCDEF"),
}
_CONTROL_ESCAPES: Final = {"a": "\a", "f": "\f", "t": "\t", "n": "\n", "r": "\r", "v": "\v"}
_ASSERTIONS: Final = {"^": "A", "$": "z", "A": "A", "z": "z", "b": "b", "B": "B"}


class InvalidPattern(ValueError):
    """What is wrong with it."""


# The syntax tree


class Chars(NamedTuple):
    chars: frozenset[str]


class Assertion(NamedTuple):
    kind: str  # A: at the start, z: at the end, b, B: (not) at the edge of a word


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
        self._ignore_case = False
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
            return Chars(ALPHABET)
        if char in "^$":
            return Assertion(_ASSERTIONS[char])
        if char in "*+?":
            raise InvalidPattern(f"nothing to repeat before {char}")
        if char == "\\":
            return self._escape()
        return self._literal(char)

    def _group(self) -> Node:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise InvalidPattern("its groups are nested too deeply")
        ignore_case = self._ignore_case
        flags_only = False
        if self._accept("?"):
            flags_only = self._group_head()
        if flags_only:
            self._depth -= 1
            return Sequence(())  # for the rest of the enclosing group
        node = self._choice()
        if not self._accept(")"):
            raise InvalidPattern("missing )")
        self._ignore_case = ignore_case
        self._depth -= 1
        return node

    def _group_head(self) -> bool:
        """What stands between (? and the group's content; True if there is no content."""
        for name_start in ("P<", "<"):
            if self._peek(2) not in ("<=", "<!") and self._accept(name_start):
                name = self._take_until(">")
                if not name or not set(name) <= WORD:
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
            elif flag == "i":
                self._ignore_case = value
            elif flag not in "msU":
                raise InvalidPattern(f"(?{flag} is not supported")

    # Characters

    def _literal(self, char: str) -> Node:
        return Chars(self._cased(frozenset(char) & ALPHABET))

    def _cased(self, chars: frozenset[str]) -> frozenset[str]:
        if not self._ignore_case:
            return chars
        return chars | {char.swapcase() for char in chars}

    def _escape(self) -> Node:
        char = self._peek()
        if char and char in "AzbB":
            return Assertion(_ASSERTIONS[self._take()])
        return Chars(self._cased(self._escaped()))

    def _escaped(self) -> frozenset[str]:
        """After a backslash, also within a class."""
        char = self._take()
        if char in _PERL_CLASSES:
            return _PERL_CLASSES[char]
        if char.lower() in _PERL_CLASSES:
            return ALPHABET - _PERL_CLASSES[char.lower()]
        return frozenset(self._escaped_char(char)) & ALPHABET

    def _escaped_char(self, char: str) -> str:
        if char in _CONTROL_ESCAPES:
            return _CONTROL_ESCAPES[char]
        if char == "x":
            digits = self._take_until("}") if self._accept("{") else self._take(2)
            return _from_digits(digits, 16)
        if char == "0" or (char in "1234567" and self._peek() and self._peek() in "01234567"):
            while len(char) < 3 and self._peek() and self._peek() in "01234567":
                char += self._take()
            return _from_digits(char, 8)
        if char in LETTERS or char in DIGITS:
            raise InvalidPattern(f"\\{char} is not supported")
        return char

    def _class(self) -> frozenset[str]:
        is_negated = self._accept("^")
        chars: set[str] = set()
        is_first = True
        while is_first or not self._accept("]"):
            chars |= self._class_item()
            is_first = False
        cased = self._cased(frozenset(chars))
        return ALPHABET - cased if is_negated else cased

    def _class_item(self) -> frozenset[str]:
        if self._accept("[:"):
            is_negated = self._accept("^")
            name = self._take_until(":]")
            if name not in _POSIX_CLASSES:
                raise InvalidPattern(f"[:{name}:] is not known")
            named = self._cased(_POSIX_CLASSES[name])
            return ALPHABET - named if is_negated else named
        if self._peek() == "\\" and self._peek(2)[1:].lower() in _PERL_CLASSES:
            self._take()
            return self._escaped()
        first = self._class_char()
        if self._peek() != "-" or self._peek(2) == "-]":
            return frozenset(first) & ALPHABET
        self._take()
        last = self._class_char()
        if first > last:
            raise InvalidPattern(f"the range {first}-{last} is empty")
        return frozenset(char for char in ALPHABET if first <= char <= last)

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

    def __init__(self, chars: frozenset[str] | None = None, assertion: str = "") -> None:
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


class TopicPattern:
    """A compiled pattern."""

    __slots__ = ("_accepting", "_moves", "_start", "_states", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        compiler = _Compiler()
        start, self._accepting = compiler.compile(_Parser(text).parse())
        self._states = compiler.states
        self._start = frozenset({start})
        self._moves: dict[tuple[frozenset[int], str, str], frozenset[int]] = {}

    def matching(self, name: str) -> Generator[int, None, bool]:
        """Whether the name matches; yields how many states were looked at, step by step, so that
        the caller can rest in between.
        """
        states, before = self._start, _START
        for char in name:
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

    def matches(self, name: str) -> bool:
        steps = self.matching(name)
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
    if before == _START:
        return _START
    return "word" if before in WORD else "other"


def _holds(assertion: str, before: str, after: str) -> bool:
    if not assertion:
        return True
    if assertion == "A":
        return before == _START
    if assertion == "z":
        return after == _END
    at_edge = (before in WORD) != (after in WORD)
    return at_edge == (assertion == "b")
